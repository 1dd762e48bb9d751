/*
 * Every size and number of the filesystem is a stranger's. What bounds the walk: a directory is entered once, the blocks
 * that are read as content are together no more than the filesystem has, and a path has a longest length.
 */
#include "walk.h"
#include "device.h"
#include "fail.h"
#include "nbd.h"
#include "tar.h"

#include <ext2fs/ext2_ext_attr.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LONGEST_PATH 65536
#define PIECE (256u << 10)

/* A name below another; of a tree, from the leaf to the root. */
struct node {
	struct node *parent;
	uint32_t users;
	ext2_ino_t inode;
	char name[];
};

struct name {
	ext2_ino_t inode;
	uint32_t at;
};

/* What a directory holds: the names, one after another, each with its zero. */
struct names {
	struct name *list;
	size_t count, room;
	char *text;
	size_t length, text_room;
};

struct piece {
	uint64_t logical, physical, blocks;
};

static ext2_filsys fs;
static uint64_t budget;
static ext2fs_inode_bitmap entered;
static struct left_out left;

/* the runs of the file at hand */
static struct piece *pieces;
static size_t piece_count, piece_room;
static uint64_t file_size;

static char path[LONGEST_PATH + 256];

static const char *reason_of(errcode_t error)
{
	return error == EXT2_ET_SHORT_READ ? nbd_reason() : error_message(error);
}

__attribute__((noreturn)) static void damaged(const char *what)
{
	fail("the volume's filesystem is damaged: \"%s\" %s", printable(path), what);
}

/* ------------------------------------------------------------------------------------------------- names */

static struct node *node_of(struct node *parent, const char *name, ext2_ino_t inode)
{
	size_t length = strlen(name);
	struct node *node = get_memory(sizeof *node + length + 1);
	node->parent = parent;
	node->users = 1;
	node->inode = inode;
	memcpy(node->name, name, length + 1);
	if (parent != NULL)
		parent->users++;
	return node;
}

static void drop(struct node *node)
{
	while (node != NULL && --node->users == 0) {
		struct node *parent = node->parent;
		free(node);
		node = parent;
	}
}

/* The path of the node into `path`; gives its length. */
static size_t spell(const struct node *node)
{
	size_t length = strlen(node->name);
	for (const struct node *at = node->parent; at != NULL; at = at->parent)
		length += strlen(at->name) + 1;
	if (length > LONGEST_PATH)
		fail("the volume has a path of more than %d bytes", LONGEST_PATH);
	size_t end = length;
	path[end] = 0;
	for (const struct node *at = node; at != NULL; at = at->parent) {
		size_t part = strlen(at->name);
		end -= part;
		memcpy(path + end, at->name, part);
		if (at->parent != NULL)
			path[--end] = '/';
	}
	return length;
}

/* ----------------------------------------------------------------------------------------------- content */

static void spend(uint64_t blocks)
{
	if (blocks > budget)
		damaged("and what comes before it hold more than the volume has room for");
	budget -= blocks;
}

static void add_piece(uint64_t logical, uint64_t physical, uint64_t blocks)
{
	struct piece *last = piece_count == 0 ? NULL : &pieces[piece_count - 1];
	if (last != NULL && logical < last->logical + last->blocks)
		damaged("has blocks out of order");
	uint64_t all = ext2fs_blocks_count(fs->super);
	if (physical < fs->super->s_first_data_block || physical >= all || blocks > all - physical)
		damaged("has a block outside of the volume");
	if (last != NULL && logical == last->logical + last->blocks && physical == last->physical + last->blocks) {
		last->blocks += blocks;
		return;
	}
	if (piece_count == piece_room) {
		piece_room = piece_room == 0 ? 64 : piece_room * 2;
		pieces = more_memory(pieces, piece_room * sizeof *pieces);
	}
	pieces[piece_count++] = (struct piece){ logical, physical, blocks };
}

static void find_extents(ext2_ino_t number, struct ext2_inode *inode, uint64_t most)
{
	ext2_extent_handle_t handle;
	errcode_t error = ext2fs_extent_open2(fs, number, inode, &handle);
	struct ext2fs_extent extent;
	int op = EXT2_EXTENT_ROOT;
	uint64_t lowest = 0;
	while (error == 0) {
		error = ext2fs_extent_get(handle, op, &extent);
		op = EXT2_EXTENT_NEXT;
		if (error != 0)
			break;
		if (!(extent.e_flags & EXT2_EXTENT_FLAGS_LEAF) || (extent.e_flags & EXT2_EXTENT_FLAGS_SECOND_VISIT))
			continue;
		if (extent.e_len == 0 || extent.e_lblk < lowest)
			damaged("has blocks out of order");
		lowest = extent.e_lblk + extent.e_len;
		uint64_t blocks = extent.e_len;
		if (extent.e_lblk >= most)
			continue;
		if (blocks > most - extent.e_lblk)
			blocks = most - extent.e_lblk;
		/* room that was set aside and never written reads as zeros */
		if (!(extent.e_flags & EXT2_EXTENT_FLAGS_UNINIT))
			add_piece(extent.e_lblk, extent.e_pblk, blocks);
	}
	if (error != EXT2_ET_EXTENT_NO_NEXT && error != EXT2_ET_NO_CURRENT_NODE)
		fail("the volume's filesystem is damaged: the blocks of \"%s\" cannot be found: %s", printable(path),
			reason_of(error));
	ext2fs_extent_free(handle);
}

static int found_block(ext2_filsys of, blk64_t *block, e2_blkcnt_t logical, blk64_t where, int offset, void *data)
{
	(void)of, (void)where, (void)offset;
	const uint64_t *most = data;
	if (logical >= 0 && (uint64_t)logical < *most)
		add_piece((uint64_t)logical, *block, 1);
	return 0;
}

/* The blocks that an inode has within `size` bytes, into `pieces`. */
static void find_pieces(ext2_ino_t number, struct ext2_inode *inode, uint64_t size)
{
	piece_count = 0;
	file_size = size;
	uint64_t most = size / fs->blocksize + (size % fs->blocksize != 0);
	if (inode->i_flags & EXT4_EXTENTS_FL) {
		find_extents(number, inode, most);
	} else {
		errcode_t error = ext2fs_block_iterate3(fs, number, BLOCK_FLAG_DATA_ONLY | BLOCK_FLAG_READ_ONLY, NULL,
			found_block, &most);
		if (error != 0)
			fail("the volume's filesystem is damaged: the blocks of \"%s\" cannot be found: %s",
				printable(path), reason_of(error));
	}
	uint64_t blocks = 0;
	for (size_t i = 0; i < piece_count; i++)
		blocks += pieces[i].blocks;
	spend(blocks);
}

static const struct run *run_at(size_t index)
{
	static struct run run;
	run.offset = pieces[index].logical * fs->blocksize;
	run.length = pieces[index].blocks * fs->blocksize;
	if (run.length > file_size - run.offset)
		run.length = file_size - run.offset;
	return &run;
}

static void put_pieces(void)
{
	static unsigned char bytes[PIECE];
	for (size_t i = 0; i < piece_count; i++) {
		uint64_t at = pieces[i].physical * fs->blocksize, rest = run_at(i)->length;
		while (rest > 0) {
			size_t part = rest < PIECE ? (size_t)rest : PIECE;
			nbd_expect(at, rest);
			if (device_read(at, part, bytes) < 0)
				fail("\"%s\" cannot be read: %s", printable(path), nbd_reason());
			tar_bytes(bytes, part);
			at += part;
			rest -= part;
		}
	}
}

/* --------------------------------------------------------------------------------------------- directories */

static void add_name(struct names *names, ext2_ino_t inode, const char *name, size_t length)
{
	if (length == 0 || memchr(name, 0, length) != NULL || memchr(name, '/', length) != NULL)
		damaged("has a name in it that no file can have");
	if ((length == 1 && name[0] == '.') || (length == 2 && name[0] == '.' && name[1] == '.'))
		return;
	if (names->count == names->room) {
		names->room = names->room == 0 ? 64 : names->room * 2;
		names->list = more_memory(names->list, names->room * sizeof *names->list);
	}
	if (names->length + length + 1 > names->text_room) {
		names->text_room = (names->length + length + 1) * 2;
		names->text = more_memory(names->text, names->text_room);
	}
	if (names->length + length + 1 > UINT32_MAX)
		fail("the volume has a directory with more than 4 GiB of names: \"%s\"", printable(path));
	names->list[names->count++] = (struct name){ inode, (uint32_t)names->length };
	memcpy(names->text + names->length, name, length);
	names->length += length;
	names->text[names->length++] = 0;
}

static int inline_name(struct ext2_dir_entry *entry, int offset, int size, char *buffer, void *data)
{
	(void)offset, (void)size, (void)buffer;
	if (entry->inode != 0)
		add_name(data, entry->inode, entry->name, (size_t)ext2fs_dirent_name_len(entry));
	return 0;
}

static void read_names(ext2_ino_t number, struct ext2_inode *inode, struct names *names)
{
	names->count = names->length = 0;
	if (inode->i_flags & EXT4_INLINE_DATA_FL) {
		errcode_t error = ext2fs_dir_iterate(fs, number, 0, NULL, inline_name, names);
		if (error != 0)
			fail("the directory \"%s\" cannot be read: %s", printable(path), reason_of(error));
		return;
	}
	static char *block;
	if (block == NULL)
		block = get_memory(fs->blocksize);
	find_pieces(number, inode, EXT2_I_SIZE(inode));
	for (size_t i = 0; i < piece_count; i++) {
		nbd_expect(pieces[i].physical * fs->blocksize, pieces[i].blocks * fs->blocksize);
		for (uint64_t at = 0; at < pieces[i].blocks; at++) {
			errcode_t error = ext2fs_read_dir_block4(fs, pieces[i].physical + at, block, 0, number);
			if (error != 0)
				fail("the directory \"%s\" cannot be read: %s", printable(path), reason_of(error));
			for (unsigned offset = 0; offset + 8 <= fs->blocksize;) {
				struct ext2_dir_entry *entry = (struct ext2_dir_entry *)(block + offset);
				unsigned length, name = (unsigned)ext2fs_dirent_name_len(entry);
				if (ext2fs_get_rec_len(fs, entry, &length) != 0 || length < 8 || length % 4 != 0 ||
				    length > fs->blocksize - offset || name + 8 > length)
					damaged("is no directory inside");
				if (entry->inode != 0)
					add_name(names, entry->inode, entry->name, name);
				offset += length;
			}
		}
	}
}

static struct names *sorting;

/* Inodes that lie beside each other are read together, and mostly their content too. */
static int by_inode(const void *left_name, const void *right_name)
{
	const struct name *a = left_name, *b = right_name;
	if (a->inode != b->inode)
		return a->inode < b->inode ? -1 : 1;
	return strcmp(sorting->text + a->at, sorting->text + b->at);
}

/* ------------------------------------------------------------------------------------------------- inodes */

static union {
	struct ext2_inode small;
	struct ext2_inode_large large;
	unsigned char bytes[4096];
} inode;

static void read_inode(ext2_ino_t number)
{
	if (number < EXT2_FIRST_INODE(fs->super) || number > fs->super->s_inodes_count)
		damaged("has an inode that cannot be a file's");
	errcode_t error = ext2fs_read_inode_full(fs, number, &inode.small, EXT2_INODE_SIZE(fs->super));
	if (error != 0)
		fail("the volume's filesystem is damaged: \"%s\" cannot be read: %s", printable(path), reason_of(error));
	if (inode.small.i_links_count == 0)
		damaged("is deleted, and still has a name");
}

static struct stamp stamp_of(uint32_t seconds, uint32_t extra, size_t extra_at)
{
	struct stamp stamp = { .seconds = (int32_t)seconds };
	if (EXT2_INODE_SIZE(fs->super) > EXT2_GOOD_OLD_INODE_SIZE &&
	    EXT2_GOOD_OLD_INODE_SIZE + (size_t)inode.large.i_extra_isize >= extra_at + 4) {
		stamp.seconds += (int64_t)(extra & 3) << 32;
		stamp.nanoseconds = (extra >> 2) % 1000000000u;
	}
	return stamp;
}

static struct entry_facts facts_of(char type)
{
	return (struct entry_facts){
		.path = path,
		.type = type,
		.mode = inode.small.i_mode,
		.uid = inode_uid(inode.small),
		.gid = inode_gid(inode.small),
		.modified = stamp_of(inode.small.i_mtime, inode.large.i_mtime_extra,
			offsetof(struct ext2_inode_large, i_mtime_extra)),
		.accessed = stamp_of(inode.small.i_atime, inode.large.i_atime_extra,
			offsetof(struct ext2_inode_large, i_atime_extra)),
	};
}

static int has_attributes(void)
{
	if (ext2fs_file_acl_block(fs, &inode.small) != 0)
		return 1;
	size_t size = EXT2_INODE_SIZE(fs->super);
	size_t at = EXT2_GOOD_OLD_INODE_SIZE + (size > EXT2_GOOD_OLD_INODE_SIZE ? inode.large.i_extra_isize : 0);
	uint32_t magic;
	if (at + sizeof magic > size)
		return 0;
	memcpy(&magic, inode.bytes + at, sizeof magic);
	return ext2fs_le32_to_cpu(magic) == EXT2_EXT_ATTR_MAGIC;
}

static int put_attribute(char *name, char *value, size_t length, void *data)
{
	static const char overlay[] = "trusted.overlay.";
	int directory = *(int *)data;
	/* notes on the layers that the volume stood over, of no meaning elsewhere; and content that lies in the inode */
	if (strncmp(name, overlay, sizeof overlay - 1) == 0 &&
	    !(directory && strcmp(name, "trusted.overlay.opaque") == 0 && length == 1 && value[0] == 'y'))
		return 0;
	if (strcmp(name, "system.data") == 0)
		return 0;
	if (strchr(name, '=') != NULL || strchr(name, '\n') != NULL)
		fail("\"%s\" has an extended attribute whose name no archive can carry", printable(path));
	tar_attribute(name, value, length);
	return 0;
}

static void put_attributes(ext2_ino_t number, int directory)
{
	if (!has_attributes())
		return;
	struct ext2_xattr_handle *handle;
	errcode_t error = ext2fs_xattrs_open(fs, number, &handle);
	if (error == 0)
		error = ext2fs_xattrs_read(handle);
	if (error == 0)
		error = ext2fs_xattrs_iterate(handle, put_attribute, &directory);
	if (error != 0)
		fail("the extended attributes of \"%s\" cannot be read: %s", printable(path), reason_of(error));
	ext2fs_xattrs_close(&handle);
}

/* --------------------------------------------------------------------------------------------- hard links */

struct link {
	ext2_ino_t inode;
	struct node *first;
};

static struct link *links;
static size_t link_capacity, link_count;

static struct link *link_slot(ext2_ino_t number)
{
	size_t at = (number * 0x9e3779b1u) & (link_capacity - 1);
	while (links[at].inode != 0 && links[at].inode != number)
		at = (at + 1) & (link_capacity - 1);
	return &links[at];
}

/* The first name of an inode with several, or none when this is the first. */
static struct node *first_name(ext2_ino_t number, struct node *parent, const char *name)
{
	if (link_count * 2 >= link_capacity) {
		struct link *old = links;
		size_t before = link_capacity;
		link_capacity = before == 0 ? 1024 : before * 2;
		links = get_memory(link_capacity * sizeof *links);
		memset(links, 0, link_capacity * sizeof *links);
		for (size_t i = 0; i < before; i++)
			if (old[i].inode != 0)
				*link_slot(old[i].inode) = old[i];
		free(old);
	}
	struct link *link = link_slot(number);
	if (link->inode != 0)
		return link->first;
	link_count++;
	*link = (struct link){ number, node_of(parent, name, number) };
	return NULL;
}

/* ------------------------------------------------------------------------------------------------ entries */

static void put_file(ext2_ino_t number)
{
	struct entry_facts facts = facts_of('0');
	facts.size = EXT2_I_SIZE(&inode.small);
	if (facts.size > INT64_MAX)
		damaged("is larger than a file can be");
	put_attributes(number, 0);
	if (inode.small.i_flags & EXT4_INLINE_DATA_FL) {
		size_t length = 0;
		static char bytes[65536];
		errcode_t error = facts.size <= sizeof bytes / 2
					  ? ext2fs_inline_data_get(fs, number, &inode.small, bytes, &length)
					  : EXT2_ET_FILE_TOO_BIG;
		if (error != 0)
			fail("\"%s\" cannot be read: %s", printable(path), reason_of(error));
		if (length < facts.size)
			memset(bytes + length, 0, (size_t)facts.size - length);
		tar_entry(&facts);
		tar_bytes(bytes, (size_t)facts.size);
		tar_end_bytes();
		return;
	}
	find_pieces(number, &inode.small, facts.size);
	uint64_t held = 0;
	for (size_t i = 0; i < piece_count; i++)
		held += run_at(i)->length;
	if (held == facts.size)
		tar_entry(&facts);
	else
		tar_sparse_entry(&facts, piece_count, run_at);
	put_pieces();
	tar_end_bytes();
}

static void put_symbolic_link(ext2_ino_t number)
{
	static char target[65536];
	uint64_t size = EXT2_I_SIZE(&inode.small);
	if (size == 0 || size >= fs->blocksize || size >= sizeof target / 2)
		damaged("is a symbolic link of an impossible length");
	if (inode.small.i_flags & EXT4_INLINE_DATA_FL) {
		size_t length = 0;
		errcode_t error = ext2fs_inline_data_get(fs, number, &inode.small, target, &length);
		if (error != 0 || length < size)
			damaged("is a symbolic link without a target");
	} else if (ext2fs_is_fast_symlink(&inode.small)) {
		if (size >= sizeof inode.small.i_block)
			damaged("is a symbolic link of an impossible length");
		memcpy(target, inode.small.i_block, (size_t)size);
	} else {
		find_pieces(number, &inode.small, size);
		if (piece_count != 1 || pieces[0].logical != 0 ||
		    device_read(pieces[0].physical * fs->blocksize, (size_t)size, target) < 0)
			damaged("is a symbolic link without a target");
	}
	target[size] = 0;
	if (strlen(target) != size)
		damaged("is a symbolic link with a zero in its target");
	struct entry_facts facts = facts_of('2');
	facts.target = target;
	put_attributes(number, 0);
	tar_entry(&facts);
}

static void put_hard_link(const struct node *first)
{
	static char target[LONGEST_PATH + 256];
	static char name[LONGEST_PATH + 256];
	strcpy(name, path);
	spell(first);
	strcpy(target, path);
	strcpy(path, name);
	struct entry_facts facts = facts_of('1');
	facts.target = target;
	tar_entry(&facts);
}

static void put_device(void)
{
	const uint32_t *number = inode.small.i_block;
	/* 0,0 in either of the two ways in which ext4 keeps a device's number: overlayfs's whiteout */
	if (!LINUX_S_ISCHR(inode.small.i_mode) || number[0] != 0 || number[1] != 0) {
		left.devices++;
		return;
	}
	struct entry_facts facts = facts_of('3');
	tar_entry(&facts);
}

/* What is no directory. The path and the inode are read. */
static void put_other(struct node *parent, const char *name, ext2_ino_t number)
{
	uint16_t mode = inode.small.i_mode;
	if (LINUX_S_ISSOCK(mode))
		left.sockets++;
	else if (LINUX_S_ISFIFO(mode))
		left.fifos++;
	else if (LINUX_S_ISCHR(mode) || LINUX_S_ISBLK(mode))
		put_device();
	else if (!LINUX_S_ISREG(mode) && !LINUX_S_ISLNK(mode))
		damaged("is neither a file nor anything else");
	else {
		struct node *first = inode.small.i_links_count > 1 ? first_name(number, parent, name) : NULL;
		if (first != NULL)
			put_hard_link(first);
		else if (LINUX_S_ISREG(mode))
			put_file(number);
		else
			put_symbolic_link(number);
	}
}

/* ------------------------------------------------------------------------------------------- directories */

static struct node **waiting;
static size_t waiting_count, waiting_room;

static void wait_for_turn(struct node *node)
{
	if (waiting_count == waiting_room) {
		waiting_room = waiting_room == 0 ? 64 : waiting_room * 2;
		waiting = more_memory(waiting, waiting_room * sizeof *waiting);
	}
	waiting[waiting_count++] = node;
}

static void enter(ext2_ino_t number)
{
	if (ext2fs_test_inode_bitmap2(entered, number))
		damaged("is a directory with two names");
	ext2fs_mark_inode_bitmap2(entered, number);
}

static void put_directory(struct node *node)
{
	static struct names names;
	size_t length = spell(node);
	read_inode(node->inode);
	if (!LINUX_S_ISDIR(inode.small.i_mode))
		damaged("is no directory");
	enter(node->inode);
	struct entry_facts facts = facts_of('5');
	put_attributes(node->inode, 1);
	tar_entry(&facts);
	struct ext2_inode directory = inode.small;
	read_names(node->inode, &directory, &names);
	if (names.count > 0) {
		sorting = &names;
		qsort(names.list, names.count, sizeof *names.list, by_inode);
	}
	for (size_t i = 0; i < names.count; i++) {
		const char *name = names.text + names.list[i].at;
		if (length + 1 + strlen(name) > LONGEST_PATH)
			fail("the volume has a path of more than %d bytes", LONGEST_PATH);
		path[length] = '/';
		strcpy(path + length + 1, name);
		read_inode(names.list[i].inode);
		if (LINUX_S_ISDIR(inode.small.i_mode))
			wait_for_turn(node_of(node, name, names.list[i].inode));
		else
			put_other(node, name, names.list[i].inode);
		path[length] = 0;
	}
}

static ext2_ino_t find_upper(void)
{
	static struct names names;
	errcode_t error = ext2fs_read_inode(fs, EXT2_ROOT_INO, &inode.small);
	if (error != 0 || !LINUX_S_ISDIR(inode.small.i_mode))
		damaged("has no root");
	struct ext2_inode root = inode.small;
	read_names(EXT2_ROOT_INO, &root, &names);
	for (size_t i = 0; i < names.count; i++)
		if (strcmp(names.text + names.list[i].at, "upper") == 0)
			return names.list[i].inode;
	return 0;
}

struct left_out archive_upper(ext2_filsys filesystem)
{
	fs = filesystem;
	budget = ext2fs_blocks_count(fs->super);
	strcpy(path, "/");
	if (EXT2_INODE_SIZE(fs->super) > sizeof inode.bytes)
		damaged("has inodes of an impossible size");
	if (ext2fs_allocate_inode_bitmap(fs, "directories", &entered) != 0)
		fail("the volume has more inodes than there is memory for");
	ext2_ino_t upper = find_upper();
	if (upper == 0) {
		/* made by no boot yet: nothing has been written */
		struct entry_facts facts = { .path = "data", .type = '5', .mode = 0755 };
		facts.modified.seconds = facts.accessed.seconds = (int64_t)fs->super->s_mkfs_time;
		tar_entry(&facts);
		return left;
	}
	wait_for_turn(node_of(NULL, "data", upper));
	while (waiting_count > 0) {
		struct node *node = waiting[--waiting_count];
		put_directory(node);
		drop(node);
	}
	return left;
}
