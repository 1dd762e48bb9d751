/* The guest's addresses, and connections to its own ports. */
#ifndef NET_H
#define NET_H

#include "session.h"

#include <sys/socket.h>

/* Gives lo and eth0 their addresses: NULL, or a sentence. */
const char *net_configure(const struct boot_spec *spec);
bool net_is_configured(void);
/* A port of the guest's own address, not of loopback: a program that listens on 127.0.0.1 alone is one that the host cannot reach. */
struct sockaddr net_own_address(uint16_t port);

enum { PROBES = 16 };
/* Probes are watched by this epoll; the events carry `tag` plus the number of the probe. */
void probe_init(int epoll, uint32_t tag);
void probe_ready(struct session *session, uint32_t number);
/* Ends the probes whose time is over; gives when the next one's is, 0 for none. */
uint64_t probe_tick(struct session *session, uint64_t now);

#endif
