/* The root filesystem of the program: drives stacked by overlayfs, and what stands in it beside them. */
#ifndef ROOT_H
#define ROOT_H

#include "wire.h"

/* Where PID 1 sees the program's root. */
#define ROOT "/root"
/* The uid and gid of the program. */
enum { TENANT = 65534 };

/* Mounts the drives and stacks them: NULL, or a sentence. */
const char *root_mount(const struct boot_spec *spec);
/* /dev, /tmp, /dev/shm, resolv.conf, the working directory, and a look at the program: NULL, or a sentence. */
const char *root_furnish(const struct boot_spec *spec);
/* Takes the root apart, so that the volume is clean; safe when it was never made. */
void root_unmount(void);

#endif
