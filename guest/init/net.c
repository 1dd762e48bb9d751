#include "net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <net/route.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static struct in_addr own_address;

static struct sockaddr inet(struct in_addr address, uint16_t port)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = address };
	struct sockaddr any;

	memcpy(&any, &in, sizeof any);
	return any;
}

static int interface_up(int control, const char *name, struct in_addr address, struct in_addr mask)
{
	struct ifreq request = { 0 };

	strcpy(request.ifr_name, name);
	request.ifr_addr = inet(address, 0);
	if (ioctl(control, SIOCSIFADDR, &request))
		return -1;
	request.ifr_netmask = inet(mask, 0);
	if (ioctl(control, SIOCSIFNETMASK, &request))
		return -1;
	request.ifr_flags = IFF_UP;
	return ioctl(control, SIOCSIFFLAGS, &request);
}

const char *net_configure(const struct boot_spec *spec)
{
	static char failure[128];
	struct in_addr gateway, any = { 0 };
	struct in_addr mask = { htonl(spec->prefix_length ? ~0u << (32 - spec->prefix_length) : 0) };
	struct in_addr loopback = { htonl(INADDR_LOOPBACK) }, loopback_mask = { htonl(0xff000000) };
	const char *step = NULL;

	if (inet_pton(AF_INET, spec->address, &own_address) != 1 || inet_pton(AF_INET, spec->gateway, &gateway) != 1)
		return "the boot spec holds an address that is not IPv4";
	int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (control < 0 || interface_up(control, "lo", loopback, loopback_mask)) {
		step = "lo cannot be set up";
	} else if (interface_up(control, "eth0", own_address, mask)) {
		step = "eth0 cannot be given its address";
	} else {
		struct rtentry route = { .rt_flags = RTF_UP | RTF_GATEWAY };
		route.rt_dst = route.rt_genmask = inet(any, 0);
		route.rt_gateway = inet(gateway, 0);
		if (ioctl(control, SIOCADDRT, &route))
			step = "the default route cannot be set";
	}
	if (step)
		snprintf(failure, sizeof failure, "the guest's network: %s: %s", step, strerror(errno));
	if (control >= 0)
		close(control);
	return step ? failure : NULL;
}

/*
 * A probe connects to the guest's own address, not to loopback: a program that listens on 127.0.0.1 alone is
 * one that nobody outside can reach.
 */
static struct probe {
	bool used;
	int fd;
	uint32_t id;
	uint64_t deadline;
} probes[PROBES];
static int probe_epoll;
static uint32_t probe_tag;

void probe_init(int epoll, uint32_t tag)
{
	probe_epoll = epoll;
	probe_tag = tag;
}

static void probe_end(struct session *session, struct probe *probe, enum probe_outcome outcome)
{
	close(probe->fd);
	probe->used = false;
	session_probe_result(session, probe->id, outcome);
}

static enum probe_outcome outcome_of(int error)
{
	if (error == 0)
		return PROBE_ACCEPTED;
	return error == ECONNREFUSED ? PROBE_REFUSED : error == ETIMEDOUT ? PROBE_TIMED_OUT : PROBE_FAILED;
}

void probe_begin(struct session *session, uint32_t id, uint16_t port, uint32_t timeout_ms, uint64_t now)
{
	struct sockaddr address = inet(own_address, port);
	unsigned number = 0;

	while (number < PROBES && probes[number].used)
		number++;
	int fd = number < PROBES ? socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0) : -1;
	if (fd < 0) {
		session_probe_result(session, id, PROBE_FAILED);
		return;
	}
	struct epoll_event watch = { .events = EPOLLOUT, .data.u32 = probe_tag + number };
	probes[number] = (struct probe){ true, fd, id, now + timeout_ms };
	if (connect(fd, &address, sizeof address) == 0)
		probe_end(session, &probes[number], PROBE_ACCEPTED);
	else if (errno != EINPROGRESS)
		probe_end(session, &probes[number], outcome_of(errno));
	else if (epoll_ctl(probe_epoll, EPOLL_CTL_ADD, fd, &watch))
		probe_end(session, &probes[number], PROBE_FAILED);
}

void probe_ready(struct session *session, unsigned number)
{
	int error = 0;
	socklen_t size = sizeof error;

	if (number >= PROBES || !probes[number].used)
		return;
	getsockopt(probes[number].fd, SOL_SOCKET, SO_ERROR, &error, &size);
	probe_end(session, &probes[number], outcome_of(error));
}

void probe_tick(struct session *session, uint64_t now)
{
	for (unsigned i = 0; i < PROBES; i++)
		if (probes[i].used && now >= probes[i].deadline)
			probe_end(session, &probes[i], PROBE_TIMED_OUT);
}

uint64_t probe_due(void)
{
	uint64_t due = 0;

	for (unsigned i = 0; i < PROBES; i++)
		if (probes[i].used && (!due || probes[i].deadline < due))
			due = probes[i].deadline;
	return due;
}

void probe_forget_all(void)
{
	for (unsigned i = 0; i < PROBES; i++)
		if (probes[i].used)
			close(probes[i].fd);
	memset(probes, 0, sizeof probes);
}
