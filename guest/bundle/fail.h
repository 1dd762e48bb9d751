/* How the program gives up: one sentence on stderr, which the daemon puts into its report. */
#ifndef NIBRUNNER_FAIL_H
#define NIBRUNNER_FAIL_H

#include <stddef.h>

__attribute__((noreturn, format(printf, 1, 2))) void fail(const char *format, ...);

/* As malloc and realloc, but the end of memory is a failure. */
void *get_memory(size_t size);
void *more_memory(void *at, size_t size);

/* A name of any bytes as printable text of at most 200 characters, in a buffer that the next call reuses. */
const char *printable(const char *name);

#endif
