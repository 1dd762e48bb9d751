/*
 * The client end of NBD, and a cache of windows of the export: what lies beside what was read is mostly read next, and a
 * question to an object store costs its round trip, however little is asked. Many windows may be on their way at once.
 */
#include "nbd.h"
#include "fail.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define WINDOW (256u << 10)
#define WINDOWS 160
#define HASH 512
/* How many questions may wait for their answers. */
#define MOST_ASKED 32
/* A server that says nothing for so long is gone. */
#define SILENCE_SECONDS 300

#define NBD_MAGIC 0x4e42444d41474943ULL
#define OPTION_MAGIC 0x49484156454f5054ULL
#define REPLY_MAGIC 0x0003e889045565a9ULL
#define REQUEST_MAGIC 0x25609513u
#define SIMPLE_REPLY_MAGIC 0x67446698u
#define FIXED_NEWSTYLE 1
#define NO_ZEROES 2

enum { GO = 7, REP_ACK = 1, REP_INFO = 3, INFO_EXPORT = 0 };
#define REP_ERROR 0x80000000u
#define MAX_DATA 65536

enum { EMPTY, ASKED, HERE, FAILED };

struct window {
	uint64_t number;
	uint64_t used;
	uint32_t length;
	int state;
	int next;
	unsigned char *bytes;
};

static struct window windows[WINDOWS];
static int heads[HASH];
static uint64_t size, clock_of_use;
static int fd, asked;
static char reason[200] = "nothing was read";

static uint32_t get32(const unsigned char *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static uint64_t get64(const unsigned char *at)
{
	return (uint64_t)get32(at) << 32 | get32(at + 4);
}

static void put32(unsigned char *at, uint32_t value)
{
	for (int i = 3; i >= 0; i--, value >>= 8)
		at[i] = (unsigned char)value;
}

static void put64(unsigned char *at, uint64_t value)
{
	put32(at, (uint32_t)(value >> 32));
	put32(at + 4, (uint32_t)value);
}

static void take(void *into, size_t length)
{
	for (unsigned char *at = into; length > 0;) {
		ssize_t got = read(fd, at, length);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			fail("the server of the checkpoint said nothing for %d seconds", SILENCE_SECONDS);
		if (got <= 0)
			fail("the server of the checkpoint hung up");
		at += got;
		length -= (size_t)got;
	}
}

static void give(const void *from, size_t length)
{
	for (const unsigned char *at = from; length > 0;) {
		ssize_t sent = send(fd, at, length, MSG_NOSIGNAL);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			fail("the server of the checkpoint takes no questions");
		at += sent;
		length -= (size_t)sent;
	}
}

static void choose(const char *name)
{
	unsigned char words[64];
	take(words, 18);
	if (get64(words) != NBD_MAGIC || get64(words + 8) != OPTION_MAGIC || !(words[17] & FIXED_NEWSTYLE))
		fail("what serves the checkpoint does not speak NBD");
	put32(words, FIXED_NEWSTYLE | (words[17] & NO_ZEROES));
	give(words, 4);

	size_t length = strlen(name);
	put64(words, OPTION_MAGIC);
	put32(words + 8, GO);
	put32(words + 12, (uint32_t)(4 + length + 2));
	put32(words + 16, (uint32_t)length);
	give(words, 20);
	give(name, length);
	give("\0", 2);

	int described = 0;
	for (;;) {
		take(words, 20);
		uint32_t type = get32(words + 12), rest = get32(words + 16);
		if (get64(words) != REPLY_MAGIC || get32(words + 8) != GO || rest > MAX_DATA)
			fail("what serves the checkpoint does not speak NBD");
		if (type == REP_ACK && rest == 0)
			break;
		if (type & REP_ERROR)
			fail("the server of the checkpoint does not give the volume out (NBD error %u)", type & ~REP_ERROR);
		unsigned char data[MAX_DATA];
		take(data, rest);
		if (type == REP_INFO && rest >= 12 && data[0] == 0 && data[1] == INFO_EXPORT) {
			size = get64(data + 2);
			described = 1;
		}
	}
	if (!described)
		fail("the server of the checkpoint does not say how large the volume is");
}

uint64_t nbd_open(const char *socket_path, const char *export_name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	if (strlen(socket_path) >= sizeof address.sun_path || strlen(export_name) > 4096)
		fail("the name of the socket or of the volume is too long");
	strcpy(address.sun_path, socket_path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
		fail("the server of the checkpoint cannot be reached: %s", strerror(errno));
	struct timeval silence = { .tv_sec = SILENCE_SECONDS };
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &silence, sizeof silence);
	choose(export_name);
	for (int i = 0; i < HASH; i++)
		heads[i] = -1;
	unsigned char *room = get_memory((size_t)WINDOWS * WINDOW);
	for (int i = 0; i < WINDOWS; i++)
		windows[i].bytes = room + (size_t)i * WINDOW;
	return size;
}

static void hear(void)
{
	unsigned char words[16];
	take(words, sizeof words);
	uint64_t index = get64(words + 8);
	if (get32(words) != SIMPLE_REPLY_MAGIC || index >= WINDOWS || windows[index].state != ASKED)
		fail("the server of the checkpoint answers what it was not asked");
	struct window *window = &windows[index];
	uint32_t error = get32(words + 4);
	asked--;
	if (error != 0) {
		window->state = FAILED;
		snprintf(reason, sizeof reason, "the checkpoint cannot be read at byte %llu (NBD error %u)",
			(unsigned long long)(window->number * WINDOW), error);
		return;
	}
	take(window->bytes, window->length);
	window->state = HERE;
}

static struct window *find(uint64_t number)
{
	for (int i = heads[number % HASH]; i >= 0; i = windows[i].next)
		if (windows[i].number == number)
			return &windows[i];
	return NULL;
}

/* The window that was used the longest ago, out of the table; none while all are on their way. */
static struct window *oldest(void)
{
	struct window *found = NULL;
	for (int i = 0; i < WINDOWS; i++)
		if (windows[i].state != ASKED && (found == NULL || windows[i].used < found->used))
			found = &windows[i];
	if (found == NULL || found->state == EMPTY)
		return found;
	int *link = &heads[found->number % HASH];
	while (*link != found - windows)
		link = &windows[*link].next;
	*link = found->next;
	return found;
}

static struct window *ask(uint64_t number)
{
	while (asked >= MOST_ASKED)
		hear();
	struct window *window = oldest();
	uint64_t offset = number * WINDOW, rest = size - offset;
	window->number = number;
	window->used = ++clock_of_use;
	window->length = rest < WINDOW ? (uint32_t)rest : WINDOW;
	window->state = ASKED;
	window->next = heads[number % HASH];
	heads[number % HASH] = (int)(window - windows);
	unsigned char words[28];
	put32(words, REQUEST_MAGIC);
	put32(words + 4, 0);
	put64(words + 8, (uint64_t)(window - windows));
	put64(words + 16, offset);
	put32(words + 24, window->length);
	give(words, sizeof words);
	asked++;
	return window;
}

void nbd_expect(uint64_t offset, uint64_t length)
{
	if (length == 0 || offset >= size)
		return;
	if (length > size - offset)
		length = size - offset;
	if (length > NBD_AHEAD)
		length = NBD_AHEAD;
	uint64_t last = (offset + length - 1) / WINDOW;
	for (uint64_t number = offset / WINDOW; number <= last && asked < MOST_ASKED; number++)
		if (find(number) == NULL)
			ask(number);
}

int nbd_read(uint64_t offset, size_t length, void *into)
{
	if (offset > size || length > size - offset) {
		snprintf(reason, sizeof reason, "it points at byte %llu, and the volume has %llu",
			(unsigned long long)(offset + length), (unsigned long long)size);
		return -1;
	}
	for (unsigned char *at = into; length > 0;) {
		uint64_t number = offset / WINDOW;
		uint32_t within = (uint32_t)(offset % WINDOW);
		struct window *window = find(number);
		if (window == NULL)
			window = ask(number);
		while (window->state == ASKED)
			hear();
		if (window->state == FAILED)
			return -1;
		window->used = ++clock_of_use;
		size_t part = window->length - within < length ? window->length - within : length;
		memcpy(at, window->bytes + within, part);
		at += part;
		offset += part;
		length -= part;
	}
	return 0;
}

const char *nbd_reason(void)
{
	return reason;
}
