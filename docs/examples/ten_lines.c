/* The ten lines of the README: open, create, put, search, print. */
#include <stdio.h>
#include <turbidite/turbidite.h>

int main(int count, char **arguments) {
  const float red[3] = {1, 0, 0}, orange[3] = {1, 0.6f, 0}, blue[3] = {0, 0, 1};
  turb_error err = TURB_ERROR_INIT;
  turb_db *db = NULL;
  turb_collection *colours = NULL;
  turb_result *found = NULL;
  turb_collection_options options = TURB_COLLECTION_OPTIONS_INIT;
  options.dimension = 3;
  if (turb_open(count > 1 ? arguments[1] : "colours.db", NULL, &db, &err) != TURB_OK ||
      turb_collection_create(db, "colours", &options, &colours, &err) != TURB_OK ||
      turb_put(colours, TURB_STR("red"), (turb_bytes){red, sizeof red}, TURB_NONE, NULL, &err) != TURB_OK ||
      turb_put(colours, TURB_STR("blue"), (turb_bytes){blue, sizeof blue}, TURB_NONE, NULL, &err) != TURB_OK ||
      turb_search(colours, (turb_bytes){orange, sizeof orange}, NULL, &found, &err) != TURB_OK) {
    (void)fprintf(stderr, "%s\n", err.message);
    return 1;
  }
  for (size_t i = 0; i < turb_result_count(found); i++) {
    const turb_hit *hit = turb_result_hit(found, i);
    printf("%.*s %g\n", (int)hit->key.size, (const char *)hit->key.data, (double)hit->distance);
  }
  turb_result_free(found);
  return turb_close(db, &err) == TURB_OK ? 0 : 1;
}
