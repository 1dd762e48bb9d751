/* Sockets that carry the datagrams of the host's clients to the program, one for each client and port. */
#ifndef FLOWS_H
#define FLOWS_H

#include "session.h"

/* Flows are watched by this epoll; the events carry `tag` plus the place of the flow. */
void flows_init(int epoll, uint32_t tag);
void flow_ready(struct session *session, uint32_t place, uint64_t now);
/* Closes flows that are silent; gives when to look again, 0 for never. */
uint64_t flows_tick(uint64_t now);

#endif
