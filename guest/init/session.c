#include "session.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { TELL_DROPPED_EVERY = 256 };

static uint8_t *put_header(uint8_t *at, size_t length, uint8_t type) {
	return put_number(put_number(at, length, 4), type, 1);
}

static void answer(struct session *session, uint8_t type, const uint8_t *payload, size_t length) {
	if (session->answer_bytes + HEADER_BYTES + length > sizeof session->answers)
		return;
	memcpy(put_header(session->answers + session->answer_bytes, length, type), payload, length);
	session->answer_bytes += HEADER_BYTES + length;
}

static void receipt(struct session *session, uint8_t type, enum receipt outcome) {
	answer(session, RECEIPT, (const uint8_t[]){ type, (uint8_t)outcome }, 2);
}

static void on_reset(void *context) {
	struct session *session = context;
	session->greeted = session->awaits_freeze = session->awaits_volume_freeze = session->awaits_volume_thaw = false;
	session->answer_bytes = session->out_length = session->out_sent = 0;
	probe_forget_all();
	flow_forget_all();
	replies_forget(&session->replies);
}

static void on_hello(struct session *session, const uint8_t *id) {
	uint8_t payload[4 + SESSION_BYTES + 4 + 1 + 8] = { 'N', 'B', 'R', 'N' }, *at = payload + 4 + SESSION_BYTES;
	on_reset(session);
	ring_rewind(&session->supervisor.ring);
	session->greeted = true;
	memcpy(payload + 4, id, SESSION_BYTES);
	at = put_number(at, PROTOCOL_VERSION, 4);
	at = put_number(at, session->supervisor.sleep == THAWED ? session->supervisor.phase : FROZEN, 1);
	put_number(at, ring_next_sequence(&session->supervisor.ring), 8);
	answer(session, HELLO_ACK, payload, sizeof payload);
}

static bool on_boot_spec(struct session *session, uint8_t *payload, size_t length) {
	struct supervisor *s = &session->supervisor;
	enum receipt outcome = s->phase != AWAITING_SPEC                  ? NOT_NOW
			       : boot_spec_read(&s->spec, payload, length) ? TAKEN
									   : NOT_UNDERSTOOD;
	if (outcome == TAKEN)
		s->phase = STARTING;
	receipt(session, BOOT_SPEC, outcome);
	return outcome == TAKEN;
}

static void tell_usage(struct session *session, uint32_t id) {
	struct usage usage = { 0 };
	uint8_t payload[4 + 8 * USAGE_NUMBERS], *at = put_number(payload, id, 4);
	machine_usage(&usage);
	for (int i = 0; i < USAGE_NUMBERS; i++)
		at = put_number(at, usage.numbers[i], 8);
	answer(session, USAGE_RESULT, payload, sizeof payload);
}

static void on_freeze(struct session *session, struct fields *f) {
	uint32_t lease_ms = (uint32_t)take_number(f, 4);
	if (f->bad || session->awaits_freeze) {
		receipt(session, FREEZE, f->bad ? NOT_UNDERSTOOD : NOT_NOW);
		return;
	}
	session->awaits_freeze = true;
	supervise_freeze(&session->supervisor, lease_ms, session->now);
}

static struct session *session_of(struct supervisor *s) {
	return (struct session *)((char *)s - offsetof(struct session, supervisor));
}

void supervise_froze(struct supervisor *s, bool done) {
	struct session *session = session_of(s);
	if (session->awaits_freeze)
		receipt(session, FREEZE, done ? TAKEN : NOT_NOW);
	session->awaits_freeze = false;
}

static void on_freeze_volume(struct session *session, struct fields *f) {
	uint32_t lease_ms = (uint32_t)take_number(f, 4);
	if (f->bad || session->awaits_volume_freeze) {
		receipt(session, FREEZE_VOLUME, f->bad ? NOT_UNDERSTOOD : NOT_NOW);
		return;
	}
	session->awaits_volume_freeze = true;
	supervise_freeze_volume(&session->supervisor, lease_ms, session->now);
}

void supervise_volume_froze(struct supervisor *s, bool done) {
	struct session *session = session_of(s);
	if (session->awaits_volume_freeze)
		receipt(session, FREEZE_VOLUME, done ? TAKEN : NOT_NOW);
	session->awaits_volume_freeze = false;
}

static void on_thaw_volume(struct session *session) {
	if (session->awaits_volume_thaw) {
		receipt(session, THAW_VOLUME, NOT_NOW);
		return;
	}
	session->awaits_volume_thaw = true;
	supervise_thaw_volume(&session->supervisor);
}

void supervise_volume_thawed(struct supervisor *s, bool held) {
	struct session *session = session_of(s);
	if (session->awaits_volume_thaw)
		receipt(session, THAW_VOLUME, held ? TAKEN : NOT_NOW);
	session->awaits_volume_thaw = false;
}

static void on_datagram(struct session *session, struct fields *f) {
	uint32_t flow = (uint32_t)take_number(f, 4);
	uint16_t port = (uint16_t)take_number(f, 2);
	uint8_t *bytes;
	f->bad |= take_number(f, 1) != 0 || flow == 0;
	size_t length = take_datagram(f, &bytes);
	if (!f->bad)
		flow_send(session, flow, port, bytes, length);
}

/* The clock first: the program runs on in the right time. */
static void on_thaw(struct session *session, struct fields *f) {
	uint64_t time_ms = take_u64(f);
	bool understood = !f->bad && machine_set_clock(time_ms);
	if (understood)
		supervise_thaw(&session->supervisor);
	receipt(session, THAW, understood ? TAKEN : NOT_UNDERSTOOD);
}

static bool on_record(void *context, uint8_t type, uint8_t *payload, size_t length) {
	struct session *session = context;
	struct fields f = { payload, length, false };
	if (type == BOOT_SPEC)
		return on_boot_spec(session, payload, length);
	if (type == HELLO && length >= 4 + SESSION_BYTES) {
		on_hello(session, payload + 4);
	} else if (type == ACK) {
		uint64_t sequence = take_u64(&f);
		if (!f.bad)
			ring_acknowledge(&session->supervisor.ring, sequence);
	} else if (type == PROBE) {
		uint32_t id = (uint32_t)take_number(&f, 4);
		uint16_t port = (uint16_t)take_number(&f, 2);
		uint32_t timeout_ms = (uint32_t)take_number(&f, 4);
		if (!f.bad)
			probe_begin(session, id, port, timeout_ms);
	} else if (type == USAGE) {
		uint32_t id = (uint32_t)take_number(&f, 4);
		if (!f.bad)
			tell_usage(session, id);
	} else if (type == FREEZE) {
		on_freeze(session, &f);
	} else if (type == THAW) {
		on_thaw(session, &f);
	} else if (type == FREEZE_VOLUME) {
		on_freeze_volume(session, &f);
	} else if (type == THAW_VOLUME) {
		on_thaw_volume(session);
	} else if (type == DATAGRAM) {
		on_datagram(session, &f);
	} else if (type == CLOSE_FLOW) {
		uint32_t flow = (uint32_t)take_number(&f, 4);
		if (!f.bad && flow != 0)
			flow_close(flow);
	} else if (type == SHUTDOWN) {
		uint32_t grace_ms = (uint32_t)take_number(&f, 4);
		receipt(session, SHUTDOWN, f.bad ? NOT_UNDERSTOOD : TAKEN);
		if (!f.bad)
			supervise_shutdown(&session->supervisor, grace_ms, session->now);
	}
	return false;
}

void session_feed(struct session *session, const uint8_t *bytes, size_t count, uint64_t now) {
	const struct inbound_handler handler = { on_reset, on_record, session };
	session->now = now;
	inbound_feed(&session->in, &handler, bytes, count);
}

void session_probe_result(struct session *session, uint32_t id, enum probe_outcome outcome) {
	uint8_t payload[5];
	put_number(put_number(payload, id, 4), outcome, 1);
	answer(session, PROBE_RESULT, payload, sizeof payload);
}

void session_reply(struct session *session, uint32_t place, uint32_t flow, const uint8_t *bytes, size_t length) {
	if (!replies_push(&session->replies, place, flow, bytes, length))
		session->dropped++;
}

static bool lay_out_event(struct session *session) {
	const struct event *event = ring_send(&session->supervisor.ring);
	if (!event)
		return false;
	uint8_t *body = put_number(put_header(session->out, 8 + event->length, event->type), event->sequence, 8);
	memcpy(body, event->body, event->length);
	session->out_length = HEADER_BYTES + 8 + event->length;
	session->reply_is_next = true;
	return true;
}

static bool lay_out_reply(struct session *session) {
	struct reply *reply = replies_take(&session->replies);
	if (!reply)
		return false;
	uint8_t *body = put_number(put_header(session->out, 4 + reply->length, REPLY), reply->flow, 4);
	memcpy(body, reply->bytes, reply->length);
	session->out_length = HEADER_BYTES + 4 + reply->length;
	session->reply_is_next = false;
	session->replies_since_told++;
	free(reply);
	return true;
}

static bool lay_out_dropped(struct session *session) {
	if (session->dropped == session->dropped_told)
		return false;
	put_number(put_header(session->out, 8, DROPPED), session->dropped - session->dropped_told, 8);
	session->out_length = HEADER_BYTES + 8;
	session->dropped_told = session->dropped;
	session->replies_since_told = 0;
	return true;
}

static void lay_out_next(struct session *session) {
	session->out_sent = session->out_length = 0;
	if (session->answer_bytes > 0) {
		memcpy(session->out, session->answers, session->answer_bytes);
		session->out_length = session->answer_bytes;
		session->answer_bytes = 0;
		return;
	}
	if (session->replies_since_told >= TELL_DROPPED_EVERY && lay_out_dropped(session))
		return;
	bool laid_out = session->reply_is_next ? lay_out_reply(session) || lay_out_event(session) :
						 lay_out_event(session) || lay_out_reply(session);
	if (!laid_out)
		lay_out_dropped(session);
}

size_t session_pending(struct session *session, const uint8_t **bytes) {
	if (session->greeted && session->out_sent == session->out_length)
		lay_out_next(session);
	*bytes = session->out + session->out_sent;
	return session->out_length - session->out_sent;
}

void session_wrote(struct session *session, size_t count) {
	session->out_sent += count;
}
