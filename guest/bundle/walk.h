/* Reads the tree that an app has written, from an ext4 filesystem, into the archive. */
#ifndef NIBRUNNER_WALK_H
#define NIBRUNNER_WALK_H

#include <ext2fs/ext2fs.h>

struct left_out {
	uint64_t sockets, fifos, devices;
};

/* Archives what lies in `upper` of the filesystem under `data/`. */
struct left_out archive_upper(ext2_filsys fs);

#endif
