/* The volume as libext2fs reads it. */
#ifndef NIBRUNNER_DEVICE_H
#define NIBRUNNER_DEVICE_H

#include <ext2fs/ext2fs.h>

extern struct struct_io_manager device_manager;

/* Reads as they would be had the journal been written back: blocks that it holds newer come from it. */
int device_read(uint64_t offset, size_t length, void *into);

/* Takes up what the journal of a filesystem that was not unmounted holds; gives how many blocks. */
uint64_t device_take_journal(ext2_filsys fs);

#endif
