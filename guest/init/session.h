/* The conversation with the host over one channel: what it says is done, what there is to say is laid out for it. */
#ifndef SESSION_H
#define SESSION_H

#include "supervise.h"

struct session {
	struct inbound in;
	struct supervisor *supervisor;
	uint64_t now;
	/* The host has said HELLO since the last reset. */
	bool greeted;
	/* Answers that wait to be sent: a host that asks without reading loses them. */
	uint8_t replies[1024];
	size_t reply_bytes;
	uint8_t out[HEADER_BYTES + 8 + 1 + OUTPUT_BYTES];
	size_t out_length, out_sent;
};

void session_init(struct session *session, struct supervisor *supervisor);
/* Takes bytes of the host and does what they ask for. */
void session_feed(struct session *session, const uint8_t *bytes, size_t count, uint64_t now);
/* Bytes to write; none (0) when there is nothing to say. */
size_t session_pending(struct session *session, const uint8_t **bytes);
/* So many of them were written. */
void session_wrote(struct session *session, size_t count);
void session_probe_result(struct session *session, uint32_t id, enum probe_outcome outcome);

/* Begins to connect to a port of this guest; the answer comes by session_probe_result, at once or later. */
void probe_begin(struct session *session, uint32_t id, uint16_t port, uint32_t timeout_ms, uint64_t now);
/* Nobody waits for the probes under way any more. */
void probe_forget_all(void);

#endif
