#include "ring.h"

#include <stdlib.h>
#include <string.h>

enum {
	/* A gap's body: the number of bytes lost. */
	GAP_BYTES = 8,
};

static size_t cost(const struct event *event) {
	return sizeof *event + event->length;
}

static void append(struct event_list *list, struct event *event) {
	event->next = NULL;
	*(list->first ? &list->last->next : &list->first) = event;
	list->last = event;
	list->bytes += cost(event);
}

/* Takes out what stands behind `previous`; the first for NULL. */
static struct event *take_out(struct event_list *list, struct event *previous) {
	struct event *event = previous ? previous->next : list->first;
	*(previous ? &previous->next : &list->first) = event->next;
	if (list->last == event)
		list->last = previous;
	list->bytes -= cost(event);
	return event;
}

static struct event *make(uint8_t type, size_t length) {
	struct event *event = calloc(1, sizeof *event + length);
	if (event) {
		event->type = type;
		event->length = length;
	}
	return event;
}

/* The oldest output; without any, the oldest event of all: a program that restarts for ever is bounded too. */
static void give_up_one(struct ring *ring) {
	struct event *previous = NULL, *event = ring->waiting.first;
	for (; event && event->type != OUTPUT; event = event->next)
		previous = event;
	event = take_out(&ring->waiting, event ? previous : NULL);
	if (event->type == OUTPUT)
		ring->lost_bytes += event->length - 1;
	free(event);
}

void ring_push(struct ring *ring, uint8_t type, const void *head, size_t head_length, const void *rest, size_t length) {
	struct event *event = make(type, head_length + length);
	if (!event) {
		ring->lost_bytes += length;
		return;
	}
	if (head_length > 0)
		memcpy(event->body, head, head_length);
	if (length > 0)
		memcpy(event->body + head_length, rest, length);
	append(&ring->waiting, event);
	/* The gap that tells of what was given up takes room too. */
	while (ring->sent.bytes + ring->waiting.bytes + sizeof *event + GAP_BYTES > RING_BYTES)
		give_up_one(ring);
}

/* What is to be sent for the first time next. */
static struct event *first_time(struct ring *ring) {
	if (ring->lost_bytes == 0)
		return ring->waiting.first ? take_out(&ring->waiting, NULL) : NULL;
	struct event *gap = make(GAP, GAP_BYTES);
	if (gap) {
		put_number(gap->body, ring->lost_bytes, GAP_BYTES);
		ring->lost_bytes = 0;
	}
	return gap;
}

const struct event *ring_send(struct ring *ring) {
	struct event *event = ring->resend;
	if (event) {
		ring->resend = event->next;
	} else if (ring->sent.bytes + sizeof *event + OUTPUT_BYTES + 1 <= WINDOW_BYTES && (event = first_time(ring))) {
		event->sequence = ++ring->last_sequence;
		append(&ring->sent, event);
	}
	return event;
}

void ring_acknowledge(struct ring *ring, uint64_t sequence) {
	while (ring->sent.first && ring->sent.first->sequence <= sequence) {
		if (ring->resend == ring->sent.first)
			ring->resend = ring->resend->next;
		free(take_out(&ring->sent, NULL));
	}
}

void ring_rewind(struct ring *ring) {
	ring->resend = ring->sent.first;
}

bool ring_is_empty(const struct ring *ring) {
	return !ring->sent.first && !ring->waiting.first && ring->lost_bytes == 0;
}

uint64_t ring_next_sequence(const struct ring *ring) {
	return ring->resend ? ring->resend->sequence : ring->last_sequence + 1;
}
