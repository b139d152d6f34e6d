/*
 * Plain, in-memory and gzip-compressed input; see source.h for the contract.
 *
 * A source has two levels: raw bytes (a descriptor or memory, read at an offset) and, when they are
 * compressed, an inflater above them with its position in both streams. Several gzip members one behind the
 * other are one stream, as gzip itself has it.
 *
 * Input files are read with pread on the calling thread and not through the ring: describing a file needs no
 * database, and the readers above do not depend on where bytes come from.
 */
#include "ingest/source.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define INPUT_BYTES (64u << 10)

struct inflater {
  z_stream stream;
  bool ready;            /* inflateInit2 succeeded */
  bool ended;            /* all members were read to their ends */
  uint64_t position;     /* of the next byte that it gives, uncompressed */
  uint64_t raw_position; /* of the next raw byte to load */
  uint8_t *input;        /* INPUT_BYTES */
  uint8_t *skipped;      /* INPUT_BYTES, where bytes that nobody wants go */
};

struct ingest_source {
  const turb_allocator *allocator;
  char *name;
  int fd; /* -1: memory */
  const uint8_t *data;
  uint64_t raw_size;
  bool compressed;
  struct inflater inflater;
};

/* ---- raw bytes ---- */

static turb_status raw_read(struct ingest_source *source, uint64_t offset, void *to, size_t size, size_t *got, turb_error *err) {
  *got = 0;
  if (offset >= source->raw_size) {
    return TURB_OK;
  }
  if (size > source->raw_size - offset) {
    size = (size_t)(source->raw_size - offset);
  }
  if (source->fd < 0) {
    memcpy(to, source->data + offset, size);
    *got = size;
    return TURB_OK;
  }
  while (*got < size) {
    const ssize_t count = pread(source->fd, (uint8_t *)to + *got, size - *got, (off_t)(offset + *got));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      return status_from_errno(err, errno, "read", source->name, offset + *got);
    }
    if (count == 0) {
      return status_set_file(err, TURB_IO, source->name, offset + *got, "the file became shorter while it was read");
    }
    *got += (size_t)count;
  }
  return TURB_OK;
}

/* ---- gzip ---- */

/* zlib gives no size back at release, so each block has it in front. */
static void *inflater_allocate(void *context, unsigned items, unsigned size) {
  size_t bytes = 0;
  if (__builtin_mul_overflow((size_t)items, (size_t)size, &bytes) || bytes > SIZE_MAX - MEM_ALIGNMENT) {
    return NULL;
  }
  bytes += MEM_ALIGNMENT;
  uint8_t *block = mem_alloc(context, bytes);
  if (block == NULL) {
    return NULL;
  }
  memcpy(block, &bytes, sizeof bytes);
  return block + MEM_ALIGNMENT;
}

static void inflater_release(void *context, void *memory) {
  uint8_t *block = (uint8_t *)memory - MEM_ALIGNMENT;
  size_t bytes = 0;
  memcpy(&bytes, block, sizeof bytes);
  mem_free(context, block, bytes);
}

static turb_status inflater_open(struct ingest_source *source, turb_error *err) {
  struct inflater *inflater = &source->inflater;
  inflater->input = mem_alloc(source->allocator, INPUT_BYTES);
  inflater->skipped = mem_alloc(source->allocator, INPUT_BYTES);
  if (inflater->input == NULL || inflater->skipped == NULL) {
    return status_set(err, TURB_NO_MEMORY, "no memory to decompress %s", source->name);
  }
  inflater->stream.zalloc = inflater_allocate;
  inflater->stream.zfree = inflater_release;
  /* zlib's context is not const, the allocator behind it is only read. */
  memcpy(&inflater->stream.opaque, &source->allocator, sizeof source->allocator);
  if (inflateInit2(&inflater->stream, 15 + 16) != Z_OK) {
    return status_set(err, TURB_NO_MEMORY, "no memory to decompress %s", source->name);
  }
  inflater->ready = true;
  return TURB_OK;
}

static void inflater_rewind(struct inflater *inflater) {
  (void)inflateReset(&inflater->stream);
  inflater->stream.avail_in = 0;
  inflater->ended = false;
  inflater->position = 0;
  inflater->raw_position = 0;
}

static uint64_t inflater_raw_offset(const struct inflater *inflater) {
  return inflater->raw_position - inflater->stream.avail_in;
}

/* Loads raw bytes when none are left; leaves avail_in 0 at the end of the file. */
static turb_status inflater_load(struct ingest_source *source, turb_error *err) {
  struct inflater *inflater = &source->inflater;
  if (inflater->stream.avail_in != 0) {
    return TURB_OK;
  }
  size_t got = 0;
  const turb_status status = raw_read(source, inflater->raw_position, inflater->input, INPUT_BYTES, &got, err);
  inflater->stream.next_in = inflater->input;
  inflater->stream.avail_in = (unsigned)got;
  inflater->raw_position += got;
  return status;
}

/* The next bytes of the stream, at most size; *got 0 only at its end. */
static turb_status inflater_next(struct ingest_source *source, void *to, size_t size, size_t *got, turb_error *err) {
  struct inflater *inflater = &source->inflater;
  z_stream *stream = &inflater->stream;
  *got = 0;
  const unsigned wanted = size > INPUT_BYTES ? INPUT_BYTES : (unsigned)size;
  while (!inflater->ended && *got == 0) {
    const turb_status status = inflater_load(source, err);
    if (status != TURB_OK) {
      return status;
    }
    if (stream->avail_in == 0) {
      return status_set_file(err, TURB_CORRUPTION, source->name, source->raw_size, "the gzip stream is cut short");
    }
    stream->next_out = to;
    stream->avail_out = wanted;
    const int code = inflate(stream, Z_NO_FLUSH);
    *got = wanted - stream->avail_out;
    if (code == Z_STREAM_END) {
      /* Another member may follow. */
      const turb_status loaded = inflater_load(source, err);
      if (loaded != TURB_OK) {
        return loaded;
      }
      inflater->ended = stream->avail_in == 0;
      (void)inflateReset(stream);
    } else if (code == Z_MEM_ERROR) {
      return status_set(err, TURB_NO_MEMORY, "no memory to decompress %s", source->name);
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      return status_set_file(err, TURB_CORRUPTION, source->name, inflater_raw_offset(inflater), "the gzip stream is damaged: %s",
                             stream->msg != NULL ? stream->msg : "bad data");
    }
  }
  inflater->position += *got;
  return TURB_OK;
}

static turb_status inflater_read(struct ingest_source *source, uint64_t offset, void *to, size_t size, size_t *got, turb_error *err) {
  struct inflater *inflater = &source->inflater;
  if (offset < inflater->position) {
    inflater_rewind(inflater);
  }
  while (inflater->position < offset) {
    const uint64_t ahead = offset - inflater->position;
    size_t count = 0;
    const turb_status status = inflater_next(source, inflater->skipped, ahead > INPUT_BYTES ? INPUT_BYTES : (size_t)ahead, &count, err);
    if (status != TURB_OK || count == 0) {
      return status;
    }
  }
  while (*got < size) {
    size_t count = 0;
    const turb_status status = inflater_next(source, (uint8_t *)to + *got, size - *got, &count, err);
    if (status != TURB_OK || count == 0) {
      return status;
    }
    *got += count;
  }
  return TURB_OK;
}

/* ---- sources ---- */

/* NULL, with the error, when there is no memory. */
static struct ingest_source *source_create(const turb_allocator *allocator, const char *name, turb_error *err) {
  struct ingest_source *source = mem_alloc_zeroed(allocator, sizeof *source);
  if (source != NULL) {
    source->allocator = allocator;
    source->fd = -1;
    source->name = mem_strdup(allocator, name);
    if (source->name != NULL) {
      return source;
    }
    mem_free(allocator, source, sizeof *source);
  }
  (void)status_set(err, TURB_NO_MEMORY, "no memory to open %s", name);
  return NULL;
}

static turb_status source_find_compression(struct ingest_source *source, turb_error *err) {
  uint8_t head[2];
  size_t got = 0;
  const turb_status status = raw_read(source, 0, head, sizeof head, &got, err);
  if (status != TURB_OK) {
    return status;
  }
  source->compressed = got == sizeof head && head[0] == 0x1f && head[1] == 0x8b;
  return source->compressed ? inflater_open(source, err) : TURB_OK;
}

static turb_status source_open_file(struct ingest_source *source, turb_error *err) {
  /* Not blocking: opening a pipe that nobody writes to would wait for ever; it is refused below. */
  source->fd = open(source->name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (source->fd < 0) {
    return status_from_errno(err, errno, "open", source->name, STATUS_NO_OFFSET);
  }
  struct stat about;
  if (fstat(source->fd, &about) != 0) {
    return status_from_errno(err, errno, "stat", source->name, STATUS_NO_OFFSET);
  }
  if (!S_ISREG(about.st_mode)) {
    return status_set_file(err, TURB_INVALID, source->name, STATUS_NO_OFFSET, "not a regular file");
  }
  source->raw_size = (uint64_t)about.st_size;
  (void)posix_fadvise(source->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  return source_find_compression(source, err);
}

/* Hands the opened source out, or closes what failed to open. */
static turb_status source_finish(struct ingest_source *made, turb_status status, struct ingest_source **source) {
  if (status == TURB_OK) {
    *source = made;
  } else {
    ingest_source_close(made);
  }
  return status;
}

turb_status ingest_source_open(const turb_allocator *allocator, const char *path, struct ingest_source **source, turb_error *err) {
  *source = NULL;
  struct ingest_source *made = source_create(allocator, path, err);
  return made == NULL ? TURB_NO_MEMORY : source_finish(made, source_open_file(made, err), source);
}

turb_status ingest_source_open_memory(const turb_allocator *allocator, const char *name, const void *data, size_t size,
                                      struct ingest_source **source, turb_error *err) {
  *source = NULL;
  struct ingest_source *made = source_create(allocator, name, err);
  if (made == NULL) {
    return TURB_NO_MEMORY;
  }
  made->data = data;
  made->raw_size = size;
  return source_finish(made, source_find_compression(made, err), source);
}

void ingest_source_close(struct ingest_source *source) {
  if (source == NULL) {
    return;
  }
  if (source->inflater.ready) {
    (void)inflateEnd(&source->inflater.stream);
  }
  mem_free(source->allocator, source->inflater.input, INPUT_BYTES);
  mem_free(source->allocator, source->inflater.skipped, INPUT_BYTES);
  if (source->fd >= 0) {
    (void)close(source->fd);
  }
  mem_free_string(source->allocator, source->name);
  mem_free(source->allocator, source, sizeof *source);
}

turb_status ingest_source_read(struct ingest_source *source, uint64_t offset, void *to, size_t size, size_t *got, turb_error *err) {
  *got = 0;
  if (size == 0) {
    return TURB_OK;
  }
  return source->compressed ? inflater_read(source, offset, to, size, got, err) : raw_read(source, offset, to, size, got, err);
}

uint64_t ingest_source_size(const struct ingest_source *source) {
  return source->compressed ? INGEST_SIZE_UNKNOWN : source->raw_size;
}

bool ingest_source_compressed(const struct ingest_source *source) {
  return source->compressed;
}

const char *ingest_source_name(const struct ingest_source *source) {
  return source->name;
}

const turb_allocator *ingest_source_allocator(const struct ingest_source *source) {
  return source->allocator;
}
