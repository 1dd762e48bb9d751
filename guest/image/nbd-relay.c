/*
 * nbd-relay SOCKET UPSTREAM EXPORT
 *
 * Serves one export of the NBD server at the unix socket UPSTREAM on a unix socket of its own, so that who may use
 * SOCKET reaches this export and no other. The handshake is read word for word: an option that names another export,
 * or that this program does not know, never reaches the server. After it the two ends are connected, and nothing in
 * NBD leads from there to another export.
 *
 * One client at a time: a second one is hung up on. While the server is away a client's handshake waits; a server that
 * goes away in between ends the client's connection, and the client comes back. What a client that has died had asked
 * for is done before the next one is let in.
 *
 * Writes "ready" on stdout once it listens, and ends when it has had no client for LINGER_MS. SIGUSR1 begins that time
 * anew.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define LINGER_MS (10 * 60 * 1000)
#define RETRY_MS 100

#define NBD_MAGIC 0x4e42444d41474943ULL
#define OPTION_MAGIC 0x49484156454F5054ULL
#define REPLY_MAGIC 0x0003e889045565a9ULL
#define FIXED_NEWSTYLE 1
#define NO_ZEROES 2

enum { EXPORT_NAME = 1, ABORT, LIST, INFO = 6, GO, STRUCTURED_REPLY, LIST_META, SET_META };
enum { REP_ACK = 1, REP_SERVER = 2 };
#define REP_ERROR 0x80000000u
#define REP_UNSUPPORTED (REP_ERROR | 1)
#define REP_INVALID (REP_ERROR | 3)
#define REP_UNKNOWN (REP_ERROR | 6)

/* An option's or a reply's data: names have at most 4096 bytes, and a client asks few questions. */
#define MAX_DATA 65536

static const char *export_name;
static uint32_t export_length;
static struct sockaddr_un upstream_address = { .sun_family = AF_UNIX };

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

static uint32_t get32(const unsigned char *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static uint64_t get64(const unsigned char *at)
{
	return (uint64_t)get32(at) << 32 | get32(at + 4);
}

/* Whether the other end has hung up, whatever of its words is still unread. */
static int gone(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLRDHUP };

	return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

/* Waits until `fd` is ready for `event`; false when `other` hangs up before. */
static int wait_ready(int fd, short event, int other)
{
	for (;;) {
		struct pollfd p[2] = { { .fd = fd, .events = event }, { .fd = other, .events = POLLRDHUP } };

		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return 0;
		if (p[0].revents)
			return 1;
		if (p[1].revents)
			return 0;
	}
}

/* The whole of it, or false: an end hung up. */
static int receive(int fd, void *data, size_t length, int other)
{
	unsigned char *at = data;

	while (length > 0) {
		if (!wait_ready(fd, POLLIN, other))
			return 0;
		ssize_t n = read(fd, at, length);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			return 0;
		if (n > 0) {
			at += n;
			length -= (size_t)n;
		}
	}
	return 1;
}

static int transmit(int fd, const void *data, size_t length, int other)
{
	const unsigned char *at = data;

	while (length > 0) {
		if (!wait_ready(fd, POLLOUT, other))
			return 0;
		ssize_t n = write(fd, at, length);
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return 0;
		if (n > 0) {
			at += n;
			length -= (size_t)n;
		}
	}
	return 1;
}

static int reply(int client, int server, uint32_t option, uint32_t type, const void *data, uint32_t length)
{
	unsigned char header[20];

	put64(header, REPLY_MAGIC);
	put32(header + 8, option);
	put32(header + 12, type);
	put32(header + 16, length);
	return transmit(client, header, sizeof header, server) && transmit(client, data, length, server);
}

static int send_option(int server, int client, uint32_t option, const void *data, uint32_t length)
{
	unsigned char header[16];

	put64(header, OPTION_MAGIC);
	put32(header + 8, option);
	put32(header + 12, length);
	return transmit(server, header, sizeof header, client) && transmit(server, data, length, client);
}

/* Passes on what the server answers to an option, up to its last word, which is given in `last`. */
static int pass_replies(int client, int server, uint32_t option, uint32_t *last)
{
	static unsigned char data[MAX_DATA];

	for (;;) {
		unsigned char header[20];

		if (!receive(server, header, sizeof header, client))
			return 0;
		uint32_t type = get32(header + 12), length = get32(header + 16);
		if (get64(header) != REPLY_MAGIC || get32(header + 8) != option || length > sizeof data)
			return 0;
		if (!receive(server, data, length, client) || !reply(client, server, option, type, data, length))
			return 0;
		*last = type;
		if (type == REP_ACK || (type & REP_ERROR))
			return 1;
	}
}

/* Options that begin with the length of an export's name and the name: 1 for the own, 0 for another, -1 for no name. */
static int names_own(const unsigned char *data, uint32_t length)
{
	if (length < 4)
		return -1;
	uint32_t name = get32(data);
	if (name > length - 4)
		return -1;
	return name == export_length && memcmp(data + 4, export_name, name) == 0;
}

static int list_own(int client, int server)
{
	static unsigned char data[MAX_DATA];

	put32(data, export_length);
	memcpy(data + 4, export_name, export_length);
	return reply(client, server, LIST, REP_SERVER, data, 4 + export_length) &&
	       reply(client, server, LIST, REP_ACK, NULL, 0);
}

/* Up to the point from which on requests and answers flow; false when it is not reached. */
static int negotiate(int client, int server)
{
	static unsigned char data[MAX_DATA];
	unsigned char greeting[18], flags[4];

	if (!receive(server, greeting, sizeof greeting, client))
		return 0;
	uint32_t offered = (uint32_t)greeting[16] << 8 | greeting[17];
	if (get64(greeting) != NBD_MAGIC || get64(greeting + 8) != OPTION_MAGIC || !(offered & FIXED_NEWSTYLE))
		return 0;
	offered &= FIXED_NEWSTYLE | NO_ZEROES;
	greeting[16] = 0;
	greeting[17] = (unsigned char)offered;
	if (!transmit(client, greeting, sizeof greeting, server) || !receive(client, flags, sizeof flags, server))
		return 0;
	uint32_t chosen = get32(flags);
	if (!(chosen & FIXED_NEWSTYLE) || (chosen & ~offered) || !transmit(server, flags, sizeof flags, client))
		return 0;

	for (;;) {
		unsigned char header[16];
		uint32_t last = 0;

		if (!receive(client, header, sizeof header, server))
			return 0;
		uint32_t option = get32(header + 8), length = get32(header + 12);
		if (get64(header) != OPTION_MAGIC || length > sizeof data || !receive(client, data, length, server))
			return 0;

		switch (option) {
		case EXPORT_NAME:
			/* There is no answer for a refusal but to hang up. */
			return length == export_length && memcmp(data, export_name, length) == 0 &&
			       send_option(server, client, option, data, length);
		case ABORT:
			reply(client, server, option, REP_ACK, NULL, 0);
			return 0;
		case LIST:
			if (!(length == 0 ? list_own(client, server)
					  : reply(client, server, option, REP_INVALID, NULL, 0)))
				return 0;
			break;
		case INFO:
		case GO:
		case LIST_META:
		case SET_META: {
			int own = names_own(data, length);
			if (own != 1) {
				if (!reply(client, server, option, own < 0 ? REP_INVALID : REP_UNKNOWN, NULL, 0))
					return 0;
				break;
			}
			if (!send_option(server, client, option, data, length) ||
			    !pass_replies(client, server, option, &last))
				return 0;
			if (option == GO && last == REP_ACK)
				return 1;
			break;
		}
		case STRUCTURED_REPLY:
			if (!send_option(server, client, option, data, length) ||
			    !pass_replies(client, server, option, &last))
				return 0;
			break;
		default:
			if (!reply(client, server, option, REP_UNSUPPORTED, NULL, 0))
				return 0;
		}
	}
}

struct stream {
	int from, to;
	size_t start, end;
	unsigned char data[256 * 1024];
};

/* Moves what can be moved without waiting; false when an end has hung up. */
static int move(struct stream *s, short readable, short writable)
{
	if (readable && s->start == s->end) {
		ssize_t n = read(s->from, s->data, sizeof s->data);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			return 0;
		s->start = 0;
		s->end = n > 0 ? (size_t)n : 0;
		writable = 1;
	}
	if (writable && s->start < s->end) {
		ssize_t n = write(s->to, s->data + s->start, s->end - s->start);
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return 0;
		if (n > 0)
			s->start += (size_t)n;
	}
	return 1;
}

static void turn_away(int listener)
{
	int stranger = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	if (stranger >= 0)
		close(stranger);
}

static short wanted(const struct stream *in, const struct stream *out)
{
	return (short)((in->start == in->end ? POLLIN : 0) | (out->start < out->end ? POLLOUT : 0));
}

/* Requests one way and answers the other, until an end hangs up. */
static void connect_ends(int client, int server, int listener)
{
	static struct stream up, down;

	up.from = down.to = client;
	up.to = down.from = server;
	up.start = up.end = down.start = down.end = 0;
	for (;;) {
		struct pollfd p[3] = { { .fd = client, .events = wanted(&up, &down) },
				       { .fd = server, .events = wanted(&down, &up) },
				       { .fd = listener, .events = POLLIN } };

		if (poll(p, 3, -1) < 0) {
			if (errno != EINTR)
				return;
			continue;
		}
		if ((p[0].revents | p[1].revents) & (POLLHUP | POLLERR))
			return;
		if (!move(&up, p[0].revents & POLLIN, p[1].revents & POLLOUT) ||
		    !move(&down, p[1].revents & POLLIN, p[0].revents & POLLOUT))
			return;
		if (p[2].revents && !gone(client))
			turn_away(listener);
	}
}

/* Lets the server finish what it was asked for: it hangs up when it has read the last of it. */
static void drain(int server)
{
	static unsigned char rest[65536];

	shutdown(server, SHUT_WR);
	for (;;) {
		struct pollfd p = { .fd = server, .events = POLLIN };

		if (poll(&p, 1, -1) < 0 && errno != EINTR)
			return;
		ssize_t n = read(server, rest, sizeof rest);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			return;
	}
}

/* A connection to the server, as soon as there is one; -1 when the client hangs up before. */
static int reach_server(int client)
{
	for (;;) {
		int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (server >= 0 &&
		    connect(server, (struct sockaddr *)&upstream_address, sizeof upstream_address) == 0) {
			fcntl(server, F_SETFL, O_NONBLOCK);
			return server;
		}
		if (server >= 0)
			close(server);
		struct pollfd p = { .fd = client, .events = POLLRDHUP };
		if (poll(&p, 1, RETRY_MS) > 0 && p.revents)
			return -1;
	}
}

static void serve(int client, int listener)
{
	int server = reach_server(client);

	if (server < 0)
		return;
	if (negotiate(client, server))
		connect_ends(client, server, listener);
	/* A client that lives is told at once; one that is dead hears nothing. */
	shutdown(client, SHUT_RDWR);
	drain(server);
	close(server);
}

static void begin_anew(int signal)
{
	(void)signal;
}

/* Whoever sees the socket may connect: who does not, cannot get at its directory. */
static int listen_at(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	strcpy(address.sun_path, path);
	unlink(path);
	umask(0111);
	if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) < 0 ||
	    listen(listener, 16) < 0) {
		perror(path);
		exit(1);
	}
	return listener;
}

int main(int argc, char **argv)
{
	if (argc != 4 || strlen(argv[1]) >= sizeof upstream_address.sun_path ||
	    strlen(argv[2]) >= sizeof upstream_address.sun_path || strlen(argv[3]) > 4096) {
		fputs("usage: nbd-relay SOCKET UPSTREAM EXPORT (paths of at most 107 bytes)\n", stderr);
		return 2;
	}
	strcpy(upstream_address.sun_path, argv[2]);
	export_name = argv[3];
	export_length = (uint32_t)strlen(export_name);
	signal(SIGPIPE, SIG_IGN);
	sigaction(SIGUSR1, &(struct sigaction){ .sa_handler = begin_anew }, NULL);

	int listener = listen_at(argv[1]);
	if (write(STDOUT_FILENO, "ready\n", 6) < 0)
		return 1;
	close(STDOUT_FILENO);
	close(STDERR_FILENO);

	for (;;) {
		struct pollfd p = { .fd = listener, .events = POLLIN };
		int ready = poll(&p, 1, LINGER_MS);

		if (ready == 0)
			break;
		if (ready < 0)
			continue;
		int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (client >= 0) {
			serve(client, listener);
			close(client);
		}
	}
	unlink(argv[1]);
	rmdir(dirname(argv[1]));
	return 0;
}
