/*
 * Events for the host, kept until it has acknowledged them. Bounded: when there is no room, the oldest output
 * that was never sent is given up, and the number of bytes lost is the next thing sent.
 */
#ifndef RING_H
#define RING_H

#include "wire.h"

enum {
	RING_BYTES = 256 * 1024,
	/* The most that is sent ahead of its acknowledgement: what was sent is not given up. */
	WINDOW_BYTES = 64 * 1024,
	/* The longest piece of output in one event. */
	OUTPUT_BYTES = 16 * 1024,
};

struct event {
	struct event *next;
	uint64_t sequence;
	size_t length;
	uint8_t type, body[];
};

struct event_list {
	struct event *first, *last;
	size_t bytes;
};

struct ring {
	/* Numbered as they were first sent, and not acknowledged; and what was never sent. */
	struct event_list sent, waiting;
	/* The first of `sent` that this connection has not seen. */
	struct event *resend;
	uint64_t last_sequence, lost_bytes;
};

/* `head` and `rest` make the body. */
void ring_push(struct ring *ring, uint8_t type, const void *head, size_t head_length, const void *rest, size_t length);
/* The next event to send, which then counts as sent; NULL when there is none, or the window is full. */
const struct event *ring_send(struct ring *ring);
/* Frees what was sent up to this sequence. */
void ring_acknowledge(struct ring *ring, uint64_t sequence);
/* A new connection has seen nothing. */
void ring_rewind(struct ring *ring);
bool ring_is_empty(const struct ring *ring);
/* The sequence of the next event to send. */
uint64_t ring_next_sequence(const struct ring *ring);

#endif
