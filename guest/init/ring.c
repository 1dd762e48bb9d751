#include "ring.h"

#include <stdlib.h>
#include <string.h>

void ring_init(struct ring *ring)
{
	memset(ring, 0, sizeof *ring);
	ring->next_sequence = 1;
}

static size_t cost(const struct event *event)
{
	return sizeof *event + event->length;
}

static uint64_t lost_bytes(const struct event *event)
{
	struct fields f = { (uint8_t *)event->body, event->length, false };

	if (event->type == OUTPUT)
		return event->length - 1;
	return event->type == GAP ? take_number(&f, 8) : 0;
}

/* Takes the event behind `previous` (the first one for NULL) out. Only what is not sent is ever taken out so. */
static void unlink_event(struct ring *ring, struct event *previous, struct event *event)
{
	*(previous ? &previous->next : &ring->first) = event->next;
	if (ring->last == event)
		ring->last = previous;
	if (ring->unsent == event)
		ring->unsent = event->next;
	ring->bytes -= cost(event);
	free(event);
}

static struct event *before(const struct ring *ring, const struct event *event)
{
	struct event *previous = NULL;

	for (struct event *at = ring->first; at && at != event; at = at->next)
		previous = at;
	return previous;
}

static void insert_gap(struct ring *ring, struct event *previous, uint64_t sequence, uint64_t bytes)
{
	struct event *gap = calloc(1, sizeof *gap + 8);

	if (!gap)
		return;
	gap->sequence = sequence;
	gap->type = GAP;
	gap->length = 8;
	put_number(gap->body, bytes, 8);
	gap->next = previous ? previous->next : ring->first;
	*(previous ? &previous->next : &ring->first) = gap;
	if (!gap->next)
		ring->last = gap;
	if (ring->unsent == gap->next)
		ring->unsent = gap;
	ring->bytes += cost(gap);
}

/* The oldest event that was not sent and whose type is (or is not) this one. */
static struct event *find(struct ring *ring, uint8_t type, bool equal, struct event **previous)
{
	*previous = before(ring, ring->unsent);
	for (struct event *at = ring->unsent; at; at = at->next) {
		if ((at->type == type) == equal)
			return at;
		*previous = at;
	}
	return NULL;
}

/*
 * Gives up the oldest output that was not sent and counts it in a gap at its place; without any, the oldest
 * event that is no gap. Gaps side by side become one. False when nothing is left to give up.
 */
static bool give_up_one(struct ring *ring)
{
	struct event *previous, *victim = find(ring, OUTPUT, true, &previous);

	if (!victim)
		victim = find(ring, GAP, false, &previous);
	if (!victim)
		return false;
	bool previous_is_sent = victim == ring->unsent;
	uint64_t sequence = victim->sequence, lost = lost_bytes(victim);
	unlink_event(ring, previous, victim);

	struct event *behind = previous ? previous->next : ring->first;
	if (behind && behind->type == GAP) {
		sequence = behind->sequence;
		lost += lost_bytes(behind);
		unlink_event(ring, previous, behind);
	}
	if (lost == 0)
		return true;
	if (previous && !previous_is_sent && previous->type == GAP) {
		put_number(previous->body, lost_bytes(previous) + lost, 8);
		previous->sequence = sequence;
		return true;
	}
	insert_gap(ring, previous, sequence, lost);
	return true;
}

static struct event *append(struct ring *ring, uint8_t type, size_t length)
{
	struct event *event = malloc(sizeof *event + length);

	if (!event)
		return NULL;
	*event = (struct event){ .sequence = ring->next_sequence++, .type = type, .length = length };
	*(ring->last ? &ring->last->next : &ring->first) = event;
	ring->last = event;
	if (!ring->unsent)
		ring->unsent = event;
	ring->bytes += cost(event);
	return event;
}

static void make_room(struct ring *ring)
{
	while (ring->bytes > RING_BYTES && give_up_one(ring))
		;
}

void ring_push(struct ring *ring, uint8_t type, const void *body, size_t length)
{
	struct event *event = append(ring, type, length);

	if (event && length > 0)
		memcpy(event->body, body, length);
	make_room(ring);
}

void ring_push_output(struct ring *ring, enum stream stream, const uint8_t *bytes, size_t length)
{
	struct event *event = append(ring, OUTPUT, length + 1);

	if (!event)
		return;
	event->body[0] = (uint8_t)stream;
	memcpy(event->body + 1, bytes, length);
	make_room(ring);
}

struct event *ring_send(struct ring *ring)
{
	struct event *event = ring->unsent;

	if (!event || (ring->bytes_sent > 0 && ring->bytes_sent + cost(event) > WINDOW_BYTES))
		return NULL;
	ring->bytes_sent += cost(event);
	ring->unsent = event->next;
	return event;
}

void ring_acknowledge(struct ring *ring, uint64_t sequence)
{
	while (ring->first && ring->first != ring->unsent && ring->first->sequence <= sequence) {
		struct event *event = ring->first;
		ring->first = event->next;
		if (!ring->first)
			ring->last = NULL;
		ring->bytes -= cost(event);
		ring->bytes_sent -= cost(event);
		free(event);
	}
}

void ring_rewind(struct ring *ring)
{
	ring->unsent = ring->first;
	ring->bytes_sent = 0;
}

uint64_t ring_next_sequence(const struct ring *ring)
{
	return ring->unsent ? ring->unsent->sequence : ring->next_sequence;
}
