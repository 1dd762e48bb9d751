/*
 * The program's processes. They live in a pid namespace of their own, so that nothing is left of a program that
 * ended, under a first process that does nothing but reap; and in a mount namespace in which nothing but the
 * stacked root has a name.
 */
#ifndef PROGRAM_H
#define PROGRAM_H

#include "supervise.h"

/* The ends of the pipes that the program's output comes from. */
extern int program_stdout, program_stderr;

/* The epoll is to watch for the outcome of an exec under `tag`. False when the pipes cannot be made. */
bool program_init(int epoll, uint32_t tag);
/* Tells the supervisor whether the program's process has become the program, if that is known since the last call. */
void program_executed(struct supervisor *s, uint64_t now);
/* Reaps what has ended; tells the supervisor when that was the program. */
void program_reap(struct supervisor *s, uint64_t now);
/* Moves a piece of what the program has printed into the ring; false when there was nothing. */
bool program_output(struct supervisor *s, enum stream stream);

#endif
