/* The guest's addresses, and connections to its own ports. */
#ifndef NET_H
#define NET_H

#include "session.h"

/* Gives lo and eth0 their addresses: NULL, or a sentence. */
const char *net_configure(const struct boot_spec *spec);
/* Probes are watched by this epoll; their events carry `tag` plus a number below PROBES. */
enum { PROBES = 16 };
void probe_init(int epoll, uint32_t tag);
void probe_ready(struct session *session, unsigned number);
void probe_tick(struct session *session, uint64_t now);
uint64_t probe_due(void);

#endif
