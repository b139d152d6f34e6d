/* Any bytes as a npy file: opened and read to the end without a crash, a leak or an access outside the bytes. */
#include "tests/fuzz/ingest_any.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  ingest_any(TURB_IMPORT_NPY, data, size);
  return 0;
}
