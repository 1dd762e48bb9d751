/*
 * The program's processes. They live in a pid namespace of their own, so that nothing is left of a program that
 * ended, under a first process that does nothing but reap; and in a mount namespace in which nothing but the
 * stacked root can be named.
 */
#ifndef PROGRAM_H
#define PROGRAM_H

#include "supervise.h"

/* The ends of the pipes that the program's output comes from. */
extern int program_stdout, program_stderr;

/* The epoll is told to watch for the outcome of an exec under `tag`. */
void program_init(int epoll, uint32_t executed_tag);
/* The outcome of the exec can be read. */
void program_executed(struct supervisor *s, uint64_t now);
/* Reaps what has ended; tells the supervisor when that was the program. */
void program_reap(struct supervisor *s, uint64_t now);
/* Moves what the program has printed, at most one piece, into the ring; false when there was nothing. */
bool program_output(struct supervisor *s, int fd);

#endif
