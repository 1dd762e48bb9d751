/* Reads an export of an NBD server over its unix socket, read-only and ahead of who reads. */
#ifndef NIBRUNNER_NBD_H
#define NIBRUNNER_NBD_H

#include <stddef.h>
#include <stdint.h>

/* Connects and chooses the export; gives its size in bytes. */
uint64_t nbd_open(const char *socket_path, const char *export_name);

/* Reads through a cache. 0, or -1 when the range is not within the export or the server answers with an error. */
int nbd_read(uint64_t offset, size_t length, void *into);

/* Asks for what will be read soon, as far as there is room. */
void nbd_expect(uint64_t offset, uint64_t length);

/* Why the last read failed, as a clause. */
const char *nbd_reason(void);

/* The most that one call of nbd_expect asks for. */
#define NBD_AHEAD (8u << 20)

#endif
