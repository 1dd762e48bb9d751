/*
 * Datagrams on their way to the host. Bounded, for each flow too: what finds no room is dropped, and one client's
 * flood leaves room for the others.
 */
#ifndef REPLIES_H
#define REPLIES_H

#include "wire.h"

enum {
	/* The clients that are kept apart. */
	FLOWS = 1024,
	REPLY_BYTES = 512 * 1024,
	FLOW_REPLY_BYTES = REPLY_BYTES / 4,
};

struct reply {
	struct reply *next;
	uint32_t flow, place;
	size_t length;
	uint8_t bytes[];
};

struct replies {
	struct reply *first, *last;
	size_t waiting_bytes, waiting_bytes_of[FLOWS];
};

/* `place`: below FLOWS, which flow's room is taken. False when there is none. */
bool replies_push(struct replies *replies, uint32_t place, uint32_t flow, const uint8_t *bytes, size_t length);
/* The next one, which the caller frees; NULL when there is none. */
struct reply *replies_take(struct replies *replies);
void replies_forget(struct replies *replies);

#endif
