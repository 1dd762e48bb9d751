/*
 * Events for the host, kept until it has acknowledged them. Bounded: when there is no room, the oldest output
 * that was not sent becomes a gap in its place.
 */
#ifndef RING_H
#define RING_H

#include "wire.h"

enum {
	RING_BYTES = 256 * 1024,
	/* The most that is sent ahead of its acknowledgement: what is sent is not thrown away. */
	WINDOW_BYTES = 64 * 1024,
	/* The longest piece of output in one event. */
	OUTPUT_BYTES = 16 * 1024,
};

struct event {
	struct event *next;
	uint64_t sequence;
	uint8_t type;
	size_t length;
	/* The payload behind the sequence. */
	uint8_t body[];
};

struct ring {
	struct event *first, *last;
	/* The first event that this connection has not seen; NULL when it has seen all. */
	struct event *unsent;
	uint64_t next_sequence;
	size_t bytes, bytes_sent;
};

void ring_init(struct ring *ring);
void ring_push(struct ring *ring, uint8_t type, const void *body, size_t length);
void ring_push_output(struct ring *ring, enum stream stream, const uint8_t *bytes, size_t length);
/* The next event to send; NULL when all are sent or the window is full. It counts as sent. */
struct event *ring_send(struct ring *ring);
/* Frees the events up to this sequence, as far as they were sent. */
void ring_acknowledge(struct ring *ring, uint64_t sequence);
/* A new connection: nothing counts as sent. */
void ring_rewind(struct ring *ring);
/* The sequence of the next event to send. */
uint64_t ring_next_sequence(const struct ring *ring);

#endif
