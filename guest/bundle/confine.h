/* What the program gives up before it reads a byte that a tenant wrote. */
#ifndef NIBRUNNER_CONFINE_H
#define NIBRUNNER_CONFINE_H

#include <sys/types.h>

/*
 * Starts `pigz` at this level, from a pipe to the standard output, and lays the pipe's other end at `into`. It runs as
 * nobody.
 */
pid_t start_compressor(const char *level, int *into);

/* Nobody, without a way back; little memory, no new file, and of the kernel only what reading and writing takes. */
void confine(void);

#endif
