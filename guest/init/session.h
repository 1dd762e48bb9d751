/* The conversation with the host: what it asks for is done, and what there is to say is laid out for it. */
#ifndef SESSION_H
#define SESSION_H

#include "replies.h"
#include "supervise.h"

/* What the machine uses, in the order of the wire; what cannot be known is 0. */
enum usage_number { VOLUME_TOTAL, VOLUME_USED, MEMORY_TOTAL, MEMORY_USED, CPU_TOTAL, CPU_BUSY, RECEIVED, SENT, USAGE_NUMBERS };
struct usage {
	uint64_t numbers[USAGE_NUMBERS];
};

struct session {
	struct inbound in;
	struct supervisor supervisor;
	uint64_t now;
	/* The host has said HELLO since the last reset. */
	bool greeted;
	/* It waits to be told whether the program is frozen. */
	bool awaits_freeze;
	/* And whether the volume is frozen; and whether it was until it was thawed. */
	bool awaits_volume_freeze, awaits_volume_thaw;
	struct replies replies;
	/* Events and replies take turns: neither keeps the other waiting for long. */
	bool reply_is_next;
	/* Datagrams that found no room since the boot, and how many of them the host has been told. */
	uint64_t dropped, dropped_told;
	/* Replies laid out since then: a flood that never ends is told of too. */
	unsigned replies_since_told;
	/* Answers that wait to be sent: a host that asks and does not read loses them. */
	uint8_t answers[1024];
	size_t answer_bytes;
	uint8_t out[HEADER_BYTES + 4 + MAX_DATAGRAM_BYTES];
	size_t out_length, out_sent;
};

void session_feed(struct session *session, const uint8_t *bytes, size_t count, uint64_t now);
/* Bytes to write, and how many; 0 when there is nothing to say. */
size_t session_pending(struct session *session, const uint8_t **bytes);
void session_wrote(struct session *session, size_t count);
/* Sets the clock: false when there is no such time. */
bool machine_set_clock(uint64_t ms);
void session_probe_result(struct session *session, uint32_t id, enum probe_outcome outcome);

/* A datagram for the client of this flow, whose `place` is below FLOWS. */
void session_reply(struct session *session, uint32_t place, uint32_t flow, const uint8_t *bytes, size_t length);

/* Begins to connect to a port of this guest; session_probe_result is called, at once or later. */
void probe_begin(struct session *session, uint32_t id, uint16_t port, uint32_t timeout_ms);
/* Nobody waits for the probes under way any more. */
void probe_forget_all(void);
/* Sends a datagram to a port of this guest. What cannot be sent is counted as dropped. */
void flow_send(struct session *session, uint32_t flow, uint16_t port, const uint8_t *bytes, size_t length);
void flow_close(uint32_t flow);
/* The clients of an earlier connection are none of this one's. */
void flow_forget_all(void);
/* `usage` is all 0. */
void machine_usage(struct usage *usage);

#endif
