#include "replies.h"

#include <stdlib.h>
#include <string.h>

static size_t cost(const struct reply *reply) {
	return sizeof *reply + reply->length;
}

bool replies_push(struct replies *replies, uint32_t place, uint32_t flow, const uint8_t *bytes, size_t length) {
	size_t room = sizeof(struct reply) + length;
	if (length > MAX_DATAGRAM_BYTES || replies->waiting_bytes + room > REPLY_BYTES ||
	    replies->waiting_bytes_of[place] + room > FLOW_REPLY_BYTES)
		return false;
	struct reply *reply = malloc(room);
	if (!reply)
		return false;
	*reply = (struct reply){ NULL, flow, place, length };
	if (length > 0)
		memcpy(reply->bytes, bytes, length);
	*(replies->first ? &replies->last->next : &replies->first) = reply;
	replies->last = reply;
	replies->waiting_bytes += room;
	replies->waiting_bytes_of[place] += room;
	return true;
}

struct reply *replies_take(struct replies *replies) {
	struct reply *reply = replies->first;
	if (!reply)
		return NULL;
	replies->first = reply->next;
	replies->waiting_bytes -= cost(reply);
	replies->waiting_bytes_of[reply->place] -= cost(reply);
	return reply;
}

void replies_forget(struct replies *replies) {
	for (struct reply *reply; (reply = replies_take(replies));)
		free(reply);
}
