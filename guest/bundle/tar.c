/*
 * The ustar format with extended headers (POSIX.1-2017, pax), extended attributes as star and GNU tar write them, holes in
 * GNU's sparse format 1.0.
 */
#include "tar.h"
#include "fail.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK 512
#define BUFFER (1u << 20)

static int descriptor;
static unsigned char buffer[BUFFER];
static size_t filled;
static uint64_t written;

/* the records of the next extended header */
static char *records;
static size_t records_length, records_room;

static void flush(void)
{
	for (size_t at = 0; at < filled;) {
		ssize_t sent = write(descriptor, buffer + at, filled - at);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			fail("the bundle cannot be written: %s", strerror(errno));
		at += (size_t)sent;
	}
	filled = 0;
}

static void put(const void *bytes, size_t length)
{
	written += length;
	for (const unsigned char *at = bytes; length > 0;) {
		if (filled == BUFFER)
			flush();
		size_t part = BUFFER - filled < length ? BUFFER - filled : length;
		memcpy(buffer + filled, at, part);
		filled += part;
		at += part;
		length -= part;
	}
}

static void fill_block(void)
{
	static const unsigned char zeros[BLOCK];
	size_t over = written % BLOCK;
	if (over > 0)
		put(zeros, BLOCK - over);
}

void tar_begin(int fd)
{
	descriptor = fd;
}

static void record(const char *name, size_t name_length, const void *value, size_t length)
{
	/* "LENGTH NAME=VALUE\n", where LENGTH counts itself */
	size_t rest = 1 + name_length + 1 + length + 1, digits = 1;
	for (size_t power = 10; rest + digits >= power; power *= 10)
		digits++;
	size_t all = rest + digits;
	if (records_length + all + 1 > records_room) {
		records_room = (records_length + all + 1) * 2;
		records = more_memory(records, records_room);
	}
	char *at = records + records_length;
	at += sprintf(at, "%zu ", all);
	memcpy(at, name, name_length);
	at += name_length;
	*at++ = '=';
	memcpy(at, value, length);
	at[length] = '\n';
	records_length += all;
}

static void text_record(const char *name, const char *value)
{
	record(name, strlen(name), value, strlen(value));
}

static void number_record(const char *name, uint64_t value)
{
	char text[24];
	snprintf(text, sizeof text, "%llu", (unsigned long long)value);
	text_record(name, text);
}

static void time_record(const char *name, struct stamp time)
{
	char text[40];
	long long seconds = time.seconds;
	if (seconds < 0 && time.nanoseconds > 0)
		/* -1.25 is a quarter of a second before -1 */
		snprintf(text, sizeof text, "-%lld.%09u", -(seconds + 1), 1000000000u - time.nanoseconds);
	else
		snprintf(text, sizeof text, "%lld.%09u", seconds, time.nanoseconds);
	text_record(name, text);
}

void tar_attribute(const char *name, const void *value, size_t length)
{
	static const char prefix[] = "SCHILY.xattr.";
	size_t name_length = strlen(name);
	char *full = get_memory(sizeof prefix + name_length);
	memcpy(full, prefix, sizeof prefix - 1);
	memcpy(full + sizeof prefix - 1, name, name_length);
	record(full, sizeof prefix - 1 + name_length, value, length);
	free(full);
}

static void octal(unsigned char *field, size_t width, uint64_t value)
{
	for (size_t i = width - 1; i-- > 0; value >>= 3)
		field[i] = (unsigned char)('0' + (value & 7));
	field[width - 1] = 0;
}

static void header(const char *name, const struct entry_facts *facts, uint64_t size)
{
	unsigned char block[BLOCK] = { 0 };
	size_t length = strlen(name);
	memcpy(block, name, length < 100 ? length : 100);
	octal(block + 100, 8, facts->mode & 07777);
	octal(block + 108, 8, facts->uid > 07777777 ? 0 : facts->uid);
	octal(block + 116, 8, facts->gid > 07777777 ? 0 : facts->gid);
	octal(block + 124, 12, size > 077777777777ULL ? 0 : size);
	int64_t seconds = facts->modified.seconds;
	octal(block + 136, 12, seconds < 0 ? 0 : seconds > 077777777777LL ? 077777777777ULL : (uint64_t)seconds);
	block[156] = (unsigned char)facts->type;
	if (facts->target != NULL) {
		size_t target = strlen(facts->target);
		memcpy(block + 157, facts->target, target < 100 ? target : 100);
	}
	memcpy(block + 257, "ustar\00000", 8);
	octal(block + 329, 8, 0);
	octal(block + 337, 8, 0);
	memset(block + 148, ' ', 8);
	unsigned sum = 0;
	for (int i = 0; i < BLOCK; i++)
		sum += block[i];
	octal(block + 148, 7, sum);
	put(block, BLOCK);
}

static void extended_header(void)
{
	if (records_length == 0)
		return;
	struct entry_facts facts = { .type = 'x', .mode = 0644 };
	header("PaxHeaders/x", &facts, records_length);
	put(records, records_length);
	fill_block();
	records_length = 0;
}

static void describe(const struct entry_facts *facts, uint64_t size)
{
	if (facts->target != NULL && strlen(facts->target) > 100)
		text_record("linkpath", facts->target);
	if (size > 077777777777ULL)
		number_record("size", size);
	if (facts->uid > 07777777)
		number_record("uid", facts->uid);
	if (facts->gid > 07777777)
		number_record("gid", facts->gid);
	if (facts->type == '1')
		return;
	int64_t seconds = facts->modified.seconds;
	if (facts->modified.nanoseconds > 0 || seconds < 0 || seconds > 077777777777LL)
		time_record("mtime", facts->modified);
	time_record("atime", facts->accessed);
}

void tar_entry(const struct entry_facts *facts)
{
	char *named = NULL;
	const char *name = facts->path;
	if (facts->type == '5') {
		size_t length = strlen(name);
		named = get_memory(length + 2);
		memcpy(named, name, length);
		memcpy(named + length, "/", 2);
		name = named;
	}
	uint64_t size = facts->type == '0' ? facts->size : 0;
	if (strlen(name) > 100)
		text_record("path", name);
	describe(facts, size);
	extended_header();
	header(name, facts, size);
	free(named);
}

static size_t digits_of(uint64_t number)
{
	size_t digits = 1;
	for (; number >= 10; number /= 10)
		digits++;
	return digits;
}

static void number_line(uint64_t number)
{
	char text[24];
	put(text, (size_t)snprintf(text, sizeof text, "%llu\n", (unsigned long long)number));
}

void tar_sparse_entry(const struct entry_facts *facts, size_t runs, const struct run *(*run_at)(size_t index))
{
	/* the map says where the file ends, should it end with a hole */
	uint64_t end = 0, bytes = 0, map = 0;
	for (size_t i = 0; i < runs; i++) {
		const struct run *run = run_at(i);
		map += digits_of(run->offset) + 1 + digits_of(run->length) + 1;
		bytes += run->length;
		end = run->offset + run->length;
	}
	int hole_last = end < facts->size;
	if (hole_last)
		map += digits_of(facts->size) + 1 + 2;
	map += digits_of(runs + (size_t)hole_last) + 1;
	map = (map + BLOCK - 1) / BLOCK * BLOCK;

	text_record("GNU.sparse.major", "1");
	text_record("GNU.sparse.minor", "0");
	text_record("GNU.sparse.name", facts->path);
	number_record("GNU.sparse.realsize", facts->size);
	describe(facts, map + bytes);
	extended_header();
	header("GNUSparseFile.0/x", facts, map + bytes);
	number_line(runs + (size_t)hole_last);
	for (size_t i = 0; i < runs; i++) {
		const struct run *run = run_at(i);
		number_line(run->offset);
		number_line(run->length);
	}
	if (hole_last) {
		number_line(facts->size);
		number_line(0);
	}
	fill_block();
}

void tar_bytes(const void *bytes, size_t length)
{
	put(bytes, length);
}

void tar_end_bytes(void)
{
	fill_block();
}

void tar_end(void)
{
	static const unsigned char zeros[2 * BLOCK];
	put(zeros, sizeof zeros);
	flush();
}

uint64_t tar_written(void)
{
	return written;
}
