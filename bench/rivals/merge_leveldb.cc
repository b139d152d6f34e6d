// LevelDB over overlapping runs (bench/iterators_rival.h). In C++ for its environment alone, which holds back background work, so that
// the files of level 0 stay as many as there are runs; the C interface has no way to say so.
#include "bench/iterators_rival.h"

#include <leveldb/cache.h>
#include <leveldb/db.h>
#include <leveldb/env.h>
#include <leveldb/filter_policy.h>
#include <leveldb/write_batch.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

class IdleEnv : public leveldb::EnvWrapper {
public:
  IdleEnv() : leveldb::EnvWrapper(leveldb::Env::Default()) {
  }
  void Schedule(void (*)(void *), void *) override {
  }
};

void check(const leveldb::Status &status) {
  if (status.ok())
    return;
  std::fprintf(stderr, "bench: leveldb: %s\n", status.ToString().c_str());
  std::_Exit(1);
}

} // namespace

struct merge_leveldb {
  IdleEnv env;
  leveldb::DB *db = nullptr;
  leveldb::WriteBatch batch;
};

struct merge_leveldb *merge_leveldb_open(const char *path, size_t cache_bytes) {
  auto *rival = new merge_leveldb;
  leveldb::Options options;
  options.env = &rival->env;
  options.create_if_missing = true;
  options.compression = leveldb::kNoCompression;
  options.write_buffer_size = size_t{1} << 30;
  options.max_open_files = 10000;
  options.block_cache = leveldb::NewLRUCache(cache_bytes);
  options.filter_policy = leveldb::NewBloomFilterPolicy(10);
  check(leveldb::DB::Open(options, path, &rival->db));
  return rival;
}

void merge_leveldb_put(struct merge_leveldb *rival, const void *key, size_t key_size, const void *row, size_t row_size) {
  rival->batch.Put(leveldb::Slice(static_cast<const char *>(key), key_size), leveldb::Slice(static_cast<const char *>(row), row_size));
  if (rival->batch.ApproximateSize() > (size_t{1} << 20))
    merge_leveldb_write(rival);
}

void merge_leveldb_write(struct merge_leveldb *rival) {
  check(rival->db->Write(leveldb::WriteOptions(), &rival->batch));
  rival->batch.Clear();
}

int merge_leveldb_files(struct merge_leveldb *rival) {
  std::string number;
  return rival->db->GetProperty("leveldb.num-files-at-level0", &number) ? std::atoi(number.c_str()) : -1;
}

uint64_t merge_leveldb_scan(struct merge_leveldb *rival, size_t row_bytes, uint64_t *touched) {
  uint64_t count = 0, sum = 0;
  leveldb::Iterator *it = rival->db->NewIterator(leveldb::ReadOptions());
  for (it->SeekToFirst(); it->Valid(); it->Next(), count++) {
    const leveldb::Slice key = it->key();
    sum += static_cast<uint8_t>(key[key.size() - 1]);
    if (row_bytes) {
      const leveldb::Slice row = it->value();
      sum += static_cast<uint8_t>(row[0]) + static_cast<uint64_t>(static_cast<uint8_t>(row[row_bytes - 1]));
    }
  }
  check(it->status());
  delete it;
  *touched += sum;
  return count;
}
