#include "session.h"

#include <string.h>

static void reply(struct session *session, uint8_t type, const uint8_t *payload, size_t length)
{
	if (session->reply_bytes + HEADER_BYTES + length > sizeof session->replies)
		return;
	uint8_t *at = put_header(session->replies + session->reply_bytes, length, type);
	memcpy(at, payload, length);
	session->reply_bytes += HEADER_BYTES + length;
}

static void reply_receipt(struct session *session, uint8_t type, enum receipt outcome)
{
	reply(session, RECEIPT, (const uint8_t[]){ type, (uint8_t)outcome }, 2);
}

static void on_reset(void *context)
{
	struct session *session = context;

	session->greeted = false;
	session->reply_bytes = session->out_length = session->out_sent = 0;
	probe_forget_all();
}

static void on_hello(struct session *session, struct fields *f)
{
	uint8_t payload[4 + SESSION_BYTES + 4 + 1 + 8] = { 'N', 'B', 'R', 'N' }, *at;

	take_number(f, 4);
	memcpy(payload + 4, f->at, SESSION_BYTES);
	at = put_number(payload + 4 + SESSION_BYTES, PROTOCOL_VERSION, 4);
	at = put_number(at, session->supervisor->phase, 1);
	ring_rewind(session->supervisor->ring);
	put_number(at, ring_next_sequence(session->supervisor->ring), 8);
	on_reset(session);
	session->greeted = true;
	reply(session, HELLO_ACK, payload, sizeof payload);
}

/* True when the payload is kept: the spec's strings lie in it. */
static bool on_boot_spec(struct session *session, uint8_t *payload, size_t length)
{
	struct supervisor *s = session->supervisor;

	if (s->phase != PHASE_AWAITING_SPEC) {
		reply_receipt(session, BOOT_SPEC, RECEIPT_NOT_NOW);
		return false;
	}
	if (!boot_spec_read(&s->spec, payload, length)) {
		reply_receipt(session, BOOT_SPEC, RECEIPT_NOT_UNDERSTOOD);
		return false;
	}
	s->phase = PHASE_STARTING;
	reply_receipt(session, BOOT_SPEC, RECEIPT_TAKEN);
	return true;
}

static bool on_record(void *context, uint8_t type, uint8_t *payload, size_t length)
{
	struct session *session = context;
	struct fields f = { payload, length, false };

	if (type == HELLO) {
		on_hello(session, &f);
	} else if (type == BOOT_SPEC) {
		return on_boot_spec(session, payload, length);
	} else if (type == ACK) {
		uint64_t sequence = take_u64(&f);
		if (!f.bad)
			ring_acknowledge(session->supervisor->ring, sequence);
	} else if (type == PROBE) {
		uint32_t id = (uint32_t)take_number(&f, 4);
		uint16_t port = (uint16_t)take_number(&f, 2);
		uint32_t timeout_ms = (uint32_t)take_number(&f, 4);
		if (!f.bad)
			probe_begin(session, id, port, timeout_ms, session->now);
	} else if (type == SHUTDOWN) {
		uint32_t grace_ms = (uint32_t)take_number(&f, 4);
		reply_receipt(session, SHUTDOWN, f.bad ? RECEIPT_NOT_UNDERSTOOD : RECEIPT_TAKEN);
		if (!f.bad)
			supervise_shutdown(session->supervisor, grace_ms, session->now);
	}
	return false;
}

void session_init(struct session *session, struct supervisor *supervisor)
{
	memset(session, 0, sizeof *session);
	session->supervisor = supervisor;
}

void session_feed(struct session *session, const uint8_t *bytes, size_t count, uint64_t now)
{
	const struct inbound_handler handler = { on_reset, on_record, session };

	session->now = now;
	inbound_feed(&session->in, &handler, bytes, count);
}

void session_probe_result(struct session *session, uint32_t id, enum probe_outcome outcome)
{
	uint8_t payload[5];

	put_number(put_number(payload, id, 4), outcome, 1);
	reply(session, PROBE_RESULT, payload, sizeof payload);
}

static void lay_out_event(struct session *session, const struct event *event)
{
	uint8_t *at = put_header(session->out, 8 + event->length, event->type);

	at = put_number(at, event->sequence, 8);
	memcpy(at, event->body, event->length);
	session->out_length = (size_t)(at - session->out) + event->length;
}

size_t session_pending(struct session *session, const uint8_t **bytes)
{
	if (session->greeted && session->out_sent == session->out_length) {
		struct event *event;
		session->out_sent = session->out_length = 0;
		if (session->reply_bytes > 0) {
			memcpy(session->out, session->replies, session->reply_bytes);
			session->out_length = session->reply_bytes;
			session->reply_bytes = 0;
		} else if ((event = ring_send(session->supervisor->ring))) {
			lay_out_event(session, event);
		}
	}
	*bytes = session->out + session->out_sent;
	return session->out_length - session->out_sent;
}

void session_wrote(struct session *session, size_t count)
{
	session->out_sent += count;
}
