#include "flows.h"
#include "net.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	IDLE_MS = 60000,
	LOOK_MS = 5000,
	/* What is taken from one socket before the next one has its turn. */
	READS = 16,
	/*
	 * The ends of flows lie above the ports that the kernel gives out, where programs seldom have a port of
	 * their own: one of theirs that a flow has taken could not be bound.
	 */
	FIRST_PORT = 61000,
	PORTS = 65536 - FIRST_PORT,
};

/* The host numbers flows from 1: 0 is a place that is free. */
static uint32_t ids[FLOWS];
static struct flow {
	int fd;
	uint16_t port;
	uint64_t used_at;
} flows[FLOWS];
static unsigned open_flows;
static uint64_t look_at;
static int flow_epoll;
static uint32_t flow_tag;

void flows_init(int epoll, uint32_t tag) {
	const struct rlimit files = { FLOWS + 1024, FLOWS + 1024 };
	flow_epoll = epoll;
	flow_tag = tag;
	if (setrlimit(RLIMIT_NOFILE, &files))
		say("fewer clients than %d can be kept apart: %s", FLOWS, strerror(errno));
}

static void end(uint32_t place) {
	close(flows[place].fd);
	ids[place] = 0;
	open_flows--;
}

static uint32_t place_of(uint32_t id) {
	uint32_t place = 0;
	while (place < FLOWS && ids[place] != id)
		place++;
	return place;
}

/* A free place; without one that of the flow which was silent for the longest. */
static uint32_t make_place(void) {
	uint32_t place = open_flows < FLOWS ? place_of(0) : 0;
	if (open_flows < FLOWS)
		return place;
	for (uint32_t other = 1; other < FLOWS; other++)
		if (flows[other].used_at < flows[place].used_at)
			place = other;
	end(place);
	return place;
}

/* Its peer is the guest's own address: that is what a program must listen on for the host to reach it. */
static int socket_to(uint16_t port) {
	static unsigned next;
	struct sockaddr own, peer = net_own_address(port);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), unbound = -1;
	for (unsigned tries = 0; fd >= 0 && unbound && tries < PORTS; tries++) {
		uint16_t from = (uint16_t)(FIRST_PORT + next++ % PORTS);
		own = net_own_address(from);
		unbound = from == port ? -1 : bind(fd, &own, sizeof own);
		if (unbound && from != port && errno != EADDRINUSE)
			break;
	}
	if (fd >= 0 && !unbound && connect(fd, &peer, sizeof peer) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

static uint32_t open_flow(uint32_t id, uint16_t port) {
	int fd = net_is_configured() ? socket_to(port) : -1;
	if (fd < 0)
		return FLOWS;
	uint32_t place = make_place();
	struct epoll_event watch = { .events = EPOLLIN, .data.u32 = flow_tag + place };
	if (epoll_ctl(flow_epoll, EPOLL_CTL_ADD, fd, &watch)) {
		close(fd);
		return FLOWS;
	}
	ids[place] = id;
	flows[place] = (struct flow){ fd, port, 0 };
	open_flows++;
	return place;
}

void flow_send(struct session *session, uint32_t id, uint16_t port, const uint8_t *bytes, size_t length) {
	uint32_t place = place_of(id);
	if (place < FLOWS && flows[place].port != port) {
		end(place);
		place = FLOWS;
	}
	if (place == FLOWS)
		place = open_flow(id, port);
	if (place == FLOWS) {
		session->dropped++;
		return;
	}
	flows[place].used_at = session->now;
	if (!look_at)
		look_at = session->now + LOOK_MS;
	ssize_t sent = send(flows[place].fd, bytes, length, MSG_NOSIGNAL);
	/* That is what became of an earlier one; this one was not sent yet. */
	if (sent < 0 && errno == ECONNREFUSED)
		sent = send(flows[place].fd, bytes, length, MSG_NOSIGNAL);
	if (sent < 0 && errno != ECONNREFUSED)
		session->dropped++;
}

void flow_close(uint32_t id) {
	uint32_t place = place_of(id);
	if (place < FLOWS)
		end(place);
}

void flow_ready(struct session *session, uint32_t place, uint64_t now) {
	static uint8_t bytes[MAX_DATAGRAM_BYTES];
	for (int turn = 0; turn < READS && place < FLOWS && ids[place]; turn++) {
		ssize_t count = recv(flows[place].fd, bytes, sizeof bytes, 0);
		if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return;
		/* Otherwise nobody listens there (yet): the error is taken with this, and the flow goes on. */
		if (count >= 0) {
			flows[place].used_at = now;
			session_reply(session, place, ids[place], bytes, (size_t)count);
		}
	}
}

uint64_t flows_tick(uint64_t now) {
	if (look_at && now >= look_at) {
		for (uint32_t place = 0; place < FLOWS; place++)
			if (ids[place] && now - flows[place].used_at >= IDLE_MS)
				end(place);
		look_at = now + LOOK_MS;
	}
	if (open_flows == 0)
		look_at = 0;
	return look_at;
}

void flow_forget_all(void) {
	for (uint32_t place = 0; place < FLOWS; place++)
		if (ids[place])
			end(place);
}
