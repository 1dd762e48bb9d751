/*
 * An io_manager of libext2fs over NBD, and the journal laid over it. Nothing is ever written: where a filesystem was
 * not unmounted, the blocks that its journal has committed are read in place of those that they would replace.
 */
#include "device.h"
#include "fail.h"
#include "nbd.h"

#include <stdlib.h>
#include <string.h>

/* The journal's format is the kernel's (include/linux/jbd2.h); all of it is big-endian. */
#define JOURNAL_MAGIC 0xc03b3998u
enum { DESCRIPTOR_BLOCK = 1, COMMIT_BLOCK = 2, SUPERBLOCK_V2 = 4, REVOKE_BLOCK = 5 };
enum { HAS_REVOKES = 1, HAS_64BIT = 2, HAS_CHECKSUMS_V2 = 8, HAS_CHECKSUMS_V3 = 16 };
enum { TAG_ESCAPED = 1, TAG_SAME_UUID = 2, TAG_LAST = 8 };

/* From block of the filesystem to the block that replaces it; open addressing, the capacity a power of two. */
struct entry {
	uint64_t block;
	uint64_t replacement;
	uint32_t sequence;
	unsigned char used, escaped, revoked;
};

static struct entry *entries;
static uint64_t capacity, count;
static unsigned block_size;
static int laid_over;

static struct entry *slot(uint64_t block)
{
	uint64_t at = (block * 0x9e3779b97f4a7c15ULL) & (capacity - 1);
	while (entries[at].used && entries[at].block != block)
		at = (at + 1) & (capacity - 1);
	return &entries[at];
}

static struct entry *enter(uint64_t block)
{
	if (count * 2 >= capacity) {
		struct entry *old = entries;
		uint64_t before = capacity;
		capacity = before == 0 ? 1024 : before * 2;
		entries = get_memory(capacity * sizeof *entries);
		memset(entries, 0, capacity * sizeof *entries);
		for (uint64_t i = 0; i < before; i++)
			if (old[i].used)
				*slot(old[i].block) = old[i];
		free(old);
	}
	struct entry *entry = slot(block);
	if (!entry->used) {
		memset(entry, 0, sizeof *entry);
		entry->used = 1;
		entry->block = block;
		count++;
	}
	return entry;
}

int device_read(uint64_t offset, size_t length, void *into)
{
	if (!laid_over)
		return nbd_read(offset, length, into);
	for (unsigned char *at = into; length > 0;) {
		uint64_t block = offset / block_size;
		size_t within = offset % block_size, part = block_size - within;
		if (part > length)
			part = length;
		struct entry *entry = slot(block);
		int replaced = entry->used && !entry->revoked;
		uint64_t from = (replaced ? entry->replacement : block) * block_size + within;
		if (nbd_read(from, part, at) < 0)
			return -1;
		if (replaced && entry->escaped && within < 4) {
			unsigned char magic[4] = { 0xc0, 0x3b, 0x39, 0x98 };
			memcpy(at, magic + within, part < 4 - within ? part : 4 - within);
		}
		at += part;
		offset += part;
		length -= part;
	}
	return 0;
}

static errcode_t device_open(const char *name, int flags, io_channel *channel)
{
	if (flags & IO_FLAG_RW)
		return EXT2_ET_RO_FILSYS;
	io_channel made = get_memory(sizeof *made);
	memset(made, 0, sizeof *made);
	made->magic = EXT2_ET_MAGIC_IO_CHANNEL;
	made->manager = &device_manager;
	made->name = strdup(name);
	made->block_size = 1024;
	made->refcount = 1;
	*channel = made;
	return 0;
}

static errcode_t device_close(io_channel channel)
{
	if (--channel->refcount > 0)
		return 0;
	free(channel->name);
	free(channel);
	return 0;
}

static errcode_t device_set_blksize(io_channel channel, int size)
{
	channel->block_size = size;
	return 0;
}

static errcode_t device_read_blk64(io_channel channel, unsigned long long block, int number, void *into)
{
	size_t length = number < 0 ? (size_t)-(long)number : (size_t)number * (size_t)channel->block_size;
	if (block > UINT64_MAX / (unsigned)channel->block_size)
		return EXT2_ET_SHORT_READ;
	return device_read(block * (unsigned)channel->block_size, length, into) < 0 ? EXT2_ET_SHORT_READ : 0;
}

static errcode_t device_read_blk(io_channel channel, unsigned long block, int number, void *into)
{
	return device_read_blk64(channel, block, number, into);
}

static errcode_t refuse_write64(io_channel channel, unsigned long long block, int number, const void *from)
{
	(void)channel, (void)block, (void)number, (void)from;
	return EXT2_ET_RO_FILSYS;
}

static errcode_t refuse_write(io_channel channel, unsigned long block, int number, const void *from)
{
	return refuse_write64(channel, block, number, from);
}

static errcode_t do_nothing(io_channel channel)
{
	(void)channel;
	return 0;
}

struct struct_io_manager device_manager = {
	.magic = EXT2_ET_MAGIC_IO_MANAGER,
	.name = "checkpoint",
	.open = device_open,
	.close = device_close,
	.set_blksize = device_set_blksize,
	.read_blk = device_read_blk,
	.write_blk = refuse_write,
	.flush = do_nothing,
	.read_blk64 = device_read_blk64,
	.write_blk64 = refuse_write64,
};

/* ------------------------------------------------------------------------------------------ the journal */

struct journal {
	ext2_filsys fs;
	struct ext2_inode inode;
	unsigned char *block;
	uint32_t first, blocks, incompat;
	unsigned tag_bytes, tail_bytes;
	int checksums, wide;
	uint32_t seed;
};

static uint32_t be32(const void *at)
{
	const unsigned char *b = at;
	return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static uint16_t be16(const void *at)
{
	const unsigned char *b = at;
	return (uint16_t)(b[0] << 8 | b[1]);
}

static uint64_t place(struct journal *journal, uint32_t number)
{
	blk64_t physical = 0;
	if (ext2fs_bmap2(journal->fs, EXT2_JOURNAL_INO, &journal->inode, NULL, 0, number, NULL, &physical) != 0 ||
	    physical == 0)
		fail("the filesystem's journal has a hole");
	return physical;
}

static void read_journal(struct journal *journal, uint32_t number)
{
	if (nbd_read(place(journal, number) * block_size, block_size, journal->block) < 0)
		fail("the filesystem's journal cannot be read: %s", nbd_reason());
}

static uint32_t checksum_of(struct journal *journal, size_t at)
{
	unsigned char kept[4], none[4] = { 0 };
	memcpy(kept, journal->block + at, 4);
	memcpy(journal->block + at, none, 4);
	uint32_t sum = ext2fs_crc32c_le(journal->seed, journal->block, block_size);
	memcpy(journal->block + at, kept, 4);
	return sum;
}

static int whole(struct journal *journal, size_t at)
{
	return !journal->checksums || checksum_of(journal, at) == be32(journal->block + at);
}

static uint32_t following(struct journal *journal, uint32_t number)
{
	return number + 1 >= journal->blocks ? journal->first : number + 1;
}

enum { COMMITTED, ENDED };

/*
 * Reads one transaction: pass 0 looks whether it was committed, pass 1 notes what it revokes, as a revocation counts for
 * every earlier transaction, and pass 2 what it replaces.
 */
static int transaction(struct journal *journal, uint32_t sequence, uint32_t *at, int pass)
{
	for (uint32_t steps = 0; steps <= journal->blocks; steps++) {
		read_journal(journal, *at);
		unsigned char *block = journal->block;
		if (be32(block) != JOURNAL_MAGIC || be32(block + 8) != sequence)
			return ENDED;
		uint32_t kind = be32(block + 4);
		*at = following(journal, *at);
		if (kind == COMMIT_BLOCK)
			return whole(journal, 16) ? COMMITTED : ENDED;
		if (kind == REVOKE_BLOCK) {
			uint32_t used = be32(block + 12);
			unsigned width = journal->wide ? 8 : 4;
			if (!whole(journal, block_size - 4) || used > block_size - journal->tail_bytes)
				return ENDED;
			for (uint32_t i = 16; pass == 1 && i + width <= used; i += width) {
				uint64_t revoked = journal->wide ? (uint64_t)be32(block + i) << 32 | be32(block + i + 4)
								 : be32(block + i);
				struct entry *entry = enter(revoked);
				if (!entry->revoked || (int32_t)(sequence - entry->sequence) > 0)
					entry->sequence = sequence;
				entry->revoked = 1;
			}
			continue;
		}
		if (kind != DESCRIPTOR_BLOCK || !whole(journal, block_size - 4))
			return ENDED;
		for (uint32_t i = 12; i + journal->tag_bytes <= block_size - journal->tail_bytes;) {
			uint64_t target = be32(block + i);
			uint32_t flags;
			if (journal->incompat & HAS_CHECKSUMS_V3) {
				flags = be32(block + i + 4);
				if (journal->wide)
					target |= (uint64_t)be32(block + i + 8) << 32;
			} else {
				flags = be16(block + i + 6);
				if (journal->wide)
					target |= (uint64_t)be32(block + i + 8) << 32;
			}
			if (pass == 2) {
				struct entry *entry = count == 0 ? NULL : slot(target);
				int revoked = entry != NULL && entry->used && entry->revoked &&
					      (int32_t)(entry->sequence - sequence) >= 0;
				if (!revoked) {
					entry = enter(target);
					entry->revoked = 0;
					entry->sequence = sequence;
					entry->escaped = (flags & TAG_ESCAPED) != 0;
					entry->replacement = place(journal, *at);
				}
			}
			*at = following(journal, *at);
			i += journal->tag_bytes + (flags & TAG_SAME_UUID ? 0 : 16);
			if (flags & TAG_LAST)
				break;
		}
	}
	return ENDED;
}

uint64_t device_take_journal(ext2_filsys fs)
{
	struct journal journal = { .fs = fs };
	block_size = fs->blocksize;
	if (fs->super->s_journal_inum != EXT2_JOURNAL_INO ||
	    ext2fs_read_inode(fs, EXT2_JOURNAL_INO, &journal.inode) != 0)
		fail("the filesystem was not unmounted, and its journal is not where it should be");
	journal.block = get_memory(block_size);
	read_journal(&journal, 0);
	unsigned char *super = journal.block;
	if (be32(super) != JOURNAL_MAGIC || be32(super + 4) != SUPERBLOCK_V2 || be32(super + 12) != block_size)
		fail("the filesystem was not unmounted, and its journal is damaged");
	journal.blocks = be32(super + 16);
	journal.first = be32(super + 20);
	uint32_t sequence = be32(super + 24), start = be32(super + 28);
	journal.incompat = be32(super + 40);
	const uint32_t known = HAS_REVOKES | HAS_64BIT |
			       HAS_CHECKSUMS_V2 | HAS_CHECKSUMS_V3;
	if (journal.incompat & ~known)
		fail("the filesystem was not unmounted, and its journal has features that cannot be read (%x)",
			journal.incompat & ~known);
	if (start == 0)
		return 0;
	uint64_t room = EXT2_I_SIZE(&journal.inode) / block_size;
	if (journal.first == 0 || journal.first >= journal.blocks || journal.blocks > room || start < journal.first ||
	    start >= journal.blocks)
		fail("the filesystem was not unmounted, and its journal is damaged");
	journal.wide = (journal.incompat & HAS_64BIT) != 0;
	journal.checksums = (journal.incompat & (HAS_CHECKSUMS_V2 | HAS_CHECKSUMS_V3)) != 0;
	journal.tail_bytes = journal.checksums ? 4 : 0;
	if (journal.incompat & HAS_CHECKSUMS_V3)
		journal.tag_bytes = 16;
	else
		journal.tag_bytes = (journal.wide ? 12 : 8) + (journal.incompat & HAS_CHECKSUMS_V2 ? 2 : 0);
	journal.seed = ext2fs_crc32c_le(~0u, super + 48, 16);

	for (int pass = 1; pass <= 2; pass++) {
		uint32_t at = start, next = sequence, read = 0;
		/* only what is committed counts: a transaction is looked through before it is noted */
		for (uint32_t ends = at; read < journal.blocks; next++) {
			if (transaction(&journal, next, &ends, 0) == ENDED)
				break;
			read += ends > at ? ends - at : ends + journal.blocks - at;
			transaction(&journal, next, &at, pass);
		}
	}
	free(journal.block);
	laid_over = count > 0;
	return count;
}
