/*
 * The volume's filesystem, frozen for a copy of its device. PID 1 calls nothing that waits for the filesystem: a
 * process of its own freezes it, holds it, and thaws it when it is let go.
 */
#ifndef VOLUME_H
#define VOLUME_H

#include "supervise.h"

#include <sys/types.h>

/* The epoll is to watch under `tag` for the word that the volume is frozen. */
void volume_init(int epoll, uint32_t tag);
void volume_ready(struct supervisor *s);
/* False when this was not the process that freezes. */
bool volume_reap(struct supervisor *s, pid_t pid, int status);
/* Before the machine ends: the volume is frozen no more, or cannot be thawed. */
void volume_end(void);

#endif
