#include "net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <net/route.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* INADDR_ANY until the boot spec has told it. */
static in_addr_t own_address;

static struct sockaddr inet(in_addr_t address, uint16_t port) {
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = { address } };
	struct sockaddr any;
	memcpy(&any, &in, sizeof any);
	return any;
}

static bool interface_up(int control, const char *name, in_addr_t address, unsigned prefix_length) {
	struct ifreq request = { .ifr_addr = inet(address, 0) };
	strcpy(request.ifr_name, name);
	if (ioctl(control, SIOCSIFADDR, &request))
		return false;
	request.ifr_netmask = inet(htonl(prefix_length ? ~0u << (32 - prefix_length) : 0), 0);
	if (ioctl(control, SIOCSIFNETMASK, &request))
		return false;
	request.ifr_flags = IFF_UP;
	return ioctl(control, SIOCSIFFLAGS, &request) == 0;
}

const char *net_configure(const struct boot_spec *spec) {
	struct rtentry route = { .rt_flags = RTF_UP | RTF_GATEWAY, .rt_dst = inet(0, 0), .rt_genmask = inet(0, 0) };
	in_addr_t gateway;
	const char *failure = NULL;
	if (inet_pton(AF_INET, spec->address, &own_address) != 1 || inet_pton(AF_INET, spec->gateway, &gateway) != 1)
		return "the boot spec holds an address that is not IPv4";
	route.rt_gateway = inet(gateway, 0);
	int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (control < 0 || !interface_up(control, "lo", htonl(INADDR_LOOPBACK), 8))
		failure = sentence("lo cannot be set up: %s", strerror(errno));
	else if (!interface_up(control, "eth0", own_address, spec->prefix_length))
		failure = sentence("eth0 cannot be given the address %s: %s", spec->address, strerror(errno));
	else if (ioctl(control, SIOCADDRT, &route))
		failure = sentence("the route to %s cannot be set: %s", spec->gateway, strerror(errno));
	if (control >= 0)
		close(control);
	return failure;
}

bool net_is_configured(void) {
	return own_address != INADDR_ANY;
}

struct sockaddr net_own_address(uint16_t port) {
	return inet(own_address, port);
}

static struct probe {
	bool used;
	int fd;
	uint32_t id;
	uint64_t deadline;
} probes[PROBES];
static int probe_epoll;
static uint32_t probe_tag;

void probe_init(int epoll, uint32_t tag) {
	probe_epoll = epoll;
	probe_tag = tag;
}

static void probe_end(struct session *session, struct probe *probe, enum probe_outcome outcome) {
	close(probe->fd);
	probe->used = false;
	session_probe_result(session, probe->id, outcome);
}

static enum probe_outcome outcome_of(int error) {
	if (error == 0)
		return PROBE_ACCEPTED;
	return error == ECONNREFUSED ? PROBE_REFUSED : error == ETIMEDOUT ? PROBE_TIMED_OUT : PROBE_FAILED;
}

void probe_begin(struct session *session, uint32_t id, uint16_t port, uint32_t timeout_ms) {
	struct sockaddr address = net_own_address(port);
	uint32_t number = 0;
	while (number < PROBES && probes[number].used)
		number++;
	int fd = number < PROBES ? socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0) : -1;
	if (fd < 0) {
		session_probe_result(session, id, PROBE_FAILED);
		return;
	}
	struct epoll_event watch = { .events = EPOLLOUT, .data.u32 = probe_tag + number };
	probes[number] = (struct probe){ true, fd, id, session->now + timeout_ms };
	if (connect(fd, &address, sizeof address) == 0)
		probe_end(session, &probes[number], PROBE_ACCEPTED);
	else if (errno != EINPROGRESS)
		probe_end(session, &probes[number], outcome_of(errno));
	else if (epoll_ctl(probe_epoll, EPOLL_CTL_ADD, fd, &watch))
		probe_end(session, &probes[number], PROBE_FAILED);
}

void probe_ready(struct session *session, uint32_t number) {
	int error = 0;
	socklen_t size = sizeof error;
	if (number >= PROBES || !probes[number].used)
		return;
	getsockopt(probes[number].fd, SOL_SOCKET, SO_ERROR, &error, &size);
	probe_end(session, &probes[number], outcome_of(error));
}

uint64_t probe_tick(struct session *session, uint64_t now) {
	uint64_t due = 0;
	for (struct probe *probe = probes; probe < probes + PROBES; probe++) {
		if (probe->used && now >= probe->deadline)
			probe_end(session, probe, PROBE_TIMED_OUT);
		if (probe->used && (!due || probe->deadline < due))
			due = probe->deadline;
	}
	return due;
}

void probe_forget_all(void) {
	for (struct probe *probe = probes; probe < probes + PROBES; probe++) {
		if (probe->used)
			close(probe->fd);
		probe->used = false;
	}
}
