/* Writes a tar archive, in the pax format, to a descriptor. */
#ifndef NIBRUNNER_TAR_H
#define NIBRUNNER_TAR_H

#include <stddef.h>
#include <stdint.h>

struct stamp {
	int64_t seconds;
	uint32_t nanoseconds;
};

/* What is said of an entry. `path` may have any bytes and any length; a directory's has no slash at its end. */
struct entry_facts {
	const char *path;
	char type;
	uint32_t mode, uid, gid;
	struct stamp modified, accessed;
	/* of symbolic and hard links */
	const char *target;
	/* of a file: all its bytes, holes included */
	uint64_t size;
};

/* A run of bytes that a sparse file has; between them are holes. */
struct run {
	uint64_t offset, length;
};

void tar_begin(int descriptor);

/* Records of the entry that comes next, before tar_entry: an attribute of any name and bytes. */
void tar_attribute(const char *name, const void *value, size_t length);

void tar_entry(const struct entry_facts *facts);

/* The same for a file with holes, which has these runs of bytes in order. */
void tar_sparse_entry(const struct entry_facts *facts, size_t runs, const struct run *(*run_at)(size_t index));

/* The bytes of the entry: as many as it has, or as its runs have. */
void tar_bytes(const void *bytes, size_t length);
/* After them. */
void tar_end_bytes(void);

void tar_end(void);

/* How many bytes were written. */
uint64_t tar_written(void);

#endif
