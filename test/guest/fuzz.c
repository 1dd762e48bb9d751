/*
 * Feeds PID 1's conversation and supervision with random and mutated bytes of a host, random ends of the program
 * and random times, for so many seconds:
 *
 *     fuzz SECONDS SEED
 *
 * The sanitizers watch the memory; this watches the promises: what PID 1 says is whole records, events are
 * numbered without a hole, the ring and the replies keep their bounds, what was acknowledged is not said again, and
 * program and volume are never frozen together.
 */
#include "platform.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct session session;
static uint64_t random_state, now = 1, rounds, total_replies, total_freezes;

static uint64_t random_number(void) {
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static uint64_t below(uint64_t limit) {
	return random_number() % limit;
}

#define REQUIRE(what)                                                                                              \
	do {                                                                                                       \
		if (!(what)) {                                                                                     \
			fprintf(stderr, "round %" PRIu64 ": not so: %s\n", rounds, #what);                         \
			abort();                                                                                   \
		}                                                                                                  \
	} while (0)

/* The host's end: what PID 1 has said on this connection. */
static struct {
	uint8_t bytes[1 << 18];
	size_t have;
	bool greeted;
	/* 0 before the first event of the connection. */
	uint64_t last_sequence, acknowledged;
	/* The datagrams that it was told are lost, and the replies that it has got, over all connections. */
	uint64_t dropped, replies;
} host;

static void host_forget(void) {
	host.have = 0;
	host.greeted = false;
	host.last_sequence = 0;
}

static void host_take_record(uint8_t type, uint8_t *payload, size_t length) {
	struct fields f = { payload, length, false };
	if (!host.greeted) {
		REQUIRE(type == HELLO_ACK && length == 33 && memcmp(payload, "NBRN", 4) == 0);
		host.greeted = true;
		return;
	}
	REQUIRE((type >= HELLO_ACK && type <= DROPPED) || (type >= OUTPUT && type <= FAILED));
	if (type == REPLY) {
		REQUIRE(length >= 4 && length <= 4 + MAX_DATAGRAM_BYTES);
		/* Its flow tells the byte that it is made of, and the connection that it is for. */
		uint8_t byte = payload[3];
		REQUIRE(take_number(&f, 4) >> 8 == (platform.flows_forgotten & 0xffff));
		REQUIRE(length == 4 || (payload[4] == byte && payload[length - 1] == byte));
		host.replies++;
	}
	if (type == DROPPED) {
		uint64_t dropped = take_u64(&f);
		REQUIRE(!f.bad && dropped > 0);
		host.dropped += dropped;
		REQUIRE(host.dropped <= session.dropped);
	}
	if (type < OUTPUT)
		return;
	uint64_t sequence = take_u64(&f);
	REQUIRE(sequence > host.acknowledged);
	REQUIRE(host.last_sequence == 0 || sequence == host.last_sequence + 1);
	host.last_sequence = sequence;
	if (type == OUTPUT)
		REQUIRE(f.left >= 1 && f.left <= OUTPUT_BYTES + 1 && (payload[8] == 1 || payload[8] == 2));
	if (type == GAP)
		REQUIRE(take_number(&f, 8) > 0);
	REQUIRE(!f.bad);
}

static void host_read(void) {
	const uint8_t *bytes;
	for (size_t count, limit = below(4); limit > 0 && (count = session_pending(&session, &bytes)) > 0; limit--) {
		size_t part = below(3) == 0 ? 1 + below(count) : count;
		REQUIRE(host.have + part <= sizeof host.bytes);
		memcpy(host.bytes + host.have, bytes, part);
		host.have += part;
		session_wrote(&session, part);
		size_t at = 0;
		while (host.have - at >= HEADER_BYTES) {
			struct fields f = { host.bytes + at, HEADER_BYTES, false };
			size_t length = take_number(&f, 4);
			REQUIRE(length <= 64 * 1024);
			if (host.have - at < HEADER_BYTES + length)
				break;
			host_take_record(host.bytes[at + 4], host.bytes + at + HEADER_BYTES, length);
			at += HEADER_BYTES + length;
		}
		memmove(host.bytes, host.bytes + at, host.have - at);
		host.have -= at;
	}
}

/* The host's bytes reach PID 1 in pieces. A reset among them ends the connection that this end knows of. */
static void feed(const uint8_t *bytes, size_t count) {
	for (size_t at = 0; at < count;) {
		size_t piece = 1 + below(count - at);
		unsigned forgotten = platform.forgotten;
		session_feed(&session, bytes + at, piece, now);
		if (platform.forgotten != forgotten)
			host_forget();
		at += piece;
	}
}

static uint8_t record[1 << 18];

static size_t finish(uint8_t *end, uint8_t type) {
	size_t length = (size_t)(end - record) - HEADER_BYTES;
	put_number(put_number(record, length, 4), type, 1);
	*end = HOST_RECORD_END;
	return HEADER_BYTES + length + 1;
}

static uint8_t *put_text(uint8_t *at, size_t longest) {
	size_t length = below(longest + 1);
	at = put_number(at, length, 4);
	for (size_t i = 0; i < length; i++)
		*at++ = (uint8_t)(1 + below(254));
	return at;
}

static size_t write_boot_spec(void) {
	uint8_t *at = record + HEADER_BYTES;
	at = put_text(at, 8);
	at = put_text(at, 16);
	at = put_number(at, below(34), 1);
	at = put_text(at, 16);
	size_t nameservers = below(5), args = below(6), variables = below(6);
	at = put_number(at, nameservers, 1);
	while (nameservers-- > 0)
		at = put_text(at, 16);
	at = put_number(at, below(256), 1);
	for (int i = 0; i < 2; i++) {
		size_t length = below(20);
		at = put_number(at, length + 1, 4);
		*at++ = '/';
		memset(at, 'p', length);
		at += length;
	}
	at = put_number(at, args, 2);
	while (args-- > 0)
		at = put_text(at, 200);
	at = put_number(at, variables, 2);
	while (variables-- > 0)
		at = put_text(put_text(at, 20), 300);
	at = put_number(at, below(4), 4);
	at = put_number(at, below(100), 8);
	at = put_number(at, below(1000), 8);
	const double factors[] = { 0, 1, 2, -3, 1e300 };
	uint64_t bits;
	memcpy(&bits, &factors[below(5)], 8);
	at = put_number(at, bits, 8);
	at = put_number(at, below(300), 8);
	at = put_number(at, below(1 << 30), 8);
	return finish(at, BOOT_SPEC);
}

/* What the last datagram that was written has to be when it arrives. */
static uint8_t datagram[MAX_DATAGRAM_BYTES];
static size_t datagram_length;
static bool datagram_written;

static size_t write_datagram(void) {
	uint8_t *at = record + HEADER_BYTES;
	at = put_number(put_number(put_number(at, 1 + below(1u << 31), 4), random_number(), 2), 0, 1);
	datagram_length = below(20) ? below(200) : below(MAX_DATAGRAM_BYTES + 1);
	unsigned ones = 0;
	bool much = below(2);
	for (size_t i = 0; i < datagram_length; i++) {
		*at++ = datagram[i] = much && below(20) ? 0xff : (uint8_t)random_number();
		ones = datagram[i] == 0xff ? ones + 1 : 0;
		if (ones == RESET_BYTES - 1) {
			*at++ = 0;
			ones = 0;
		}
	}
	datagram_written = true;
	return finish(at, DATAGRAM);
}

/* A record as a host writes it. */
static size_t write_record(void) {
	uint8_t *at = record + HEADER_BYTES;
	switch (below(13)) {
	case 0:
		return write_boot_spec();
	case 9:
	case 10:
		return write_datagram();
	case 11:
		return below(2) ? finish(put_number(at, below(60), 4), FREEZE_VOLUME) : finish(at, THAW_VOLUME);
	case 12:
		return finish(put_number(at, below(2) ? below(8) : random_number(), 4), CLOSE_FLOW);
	case 7:
		return finish(put_number(at, below(60), 4), FREEZE);
	case 8:
		return finish(put_number(at, below(8) ? below(1 << 30) : random_number(), 8), THAW);
	case 1:
	case 2:
		host.acknowledged = host.last_sequence > host.acknowledged ? host.last_sequence : host.acknowledged;
		return finish(put_number(at, host.acknowledged, 8), ACK);
	case 3:
		return finish(put_number(put_number(put_number(at, random_number(), 4), random_number(), 2), below(100), 4), PROBE);
	case 4:
		return finish(put_number(at, random_number(), 4), USAGE);
	case 5:
		if (below(200) == 0)
			return finish(put_number(at, below(500), 4), SHUTDOWN);
		/* fall through */
	default:
		for (size_t length = below(64); length > 0; length--)
			*at++ = (uint8_t)random_number();
		return finish(at, (uint8_t)(0x06 + below(0x3a)));
	}
}

static void say_hello(void) {
	uint8_t bytes[RESET_BYTES + HEADER_BYTES + 4 + SESSION_BYTES + 1], *at = bytes + RESET_BYTES;
	memset(bytes, 0xff, RESET_BYTES);
	at = put_number(put_number(put_number(at, 4 + SESSION_BYTES, 4), HELLO, 1), 1, 4);
	for (int i = 0; i < SESSION_BYTES; i++)
		*at++ = (uint8_t)random_number();
	*at = HOST_RECORD_END;
	feed(bytes, sizeof bytes);
}

static void host_acts(void) {
	uint64_t acknowledged = host.acknowledged;
	bool greeted = session.greeted && session.in.state == GREETED && session.in.have == 0;
	unsigned datagrams = platform.datagrams, forgotten = platform.flows_forgotten;
	datagram_written = false;
	size_t count = write_record();
	switch (below(12)) {
	case 0:
		host.acknowledged = acknowledged;
		say_hello();
		return;
	case 1: /* bits that changed on the way */
		for (uint64_t changes = 1 + below(4); changes > 0; changes--)
			record[below(count)] ^= (uint8_t)(1 + below(255));
		break;
	case 2: /* half a record, and the next connection */
		feed(record, below(count));
		host.acknowledged = acknowledged;
		say_hello();
		return;
	case 3: /* noise, often of the bytes that mean something */
		for (size_t i = 0; i < count; i++)
			record[i] = below(3) ? 0xff : (uint8_t)(below(2) ? below(8) : random_number());
		break;
	default:
		feed(record, count);
		if (datagram_written && greeted) {
			REQUIRE(platform.datagrams == datagrams + 1 && platform.flows_forgotten == forgotten);
			REQUIRE(platform.datagram_length == datagram_length);
			REQUIRE(memcmp(platform.datagram, datagram, datagram_length) == 0);
		}
		return;
	}
	feed(record, count);
	/* What PID 1 made of that is its own: it may have acknowledged. This host begins anew. */
	host.acknowledged = 0;
	say_hello();
}

static void machine_acts(void) {
	struct supervisor *s = &session.supervisor;
	static uint8_t output[OUTPUT_BYTES];
	const uint8_t stream = (uint8_t)(1 + below(2));
	static const char *const sentences[] = { "", "a sentence", "a sentence \xff that is no text" };
	switch (below(11)) {
	case 0:
		if (s->phase == STARTING && !s->program_is_up) {
			platform.prepare_failure = below(50) ? NULL : sentences[below(3)];
			platform.start_failure = below(50) ? NULL : sentences[below(3)];
			supervise_boot(s, now);
		}
		break;
	case 1:
		if (s->program_is_up && s->phase == STARTING)
			supervise_executed(s, below(50) ? NULL : sentences[below(3)], now);
		break;
	case 2:
		if (s->program_is_up && s->phase != STARTING && below(4) == 0)
			supervise_ended(s, below(2) ? (int)below(256) << 8 : (int)(1 + below(64)), now);
		break;
	case 3:
		session_probe_result(&session, (uint32_t)random_number(), (enum probe_outcome)below(4));
		break;
	case 5:
	case 6: {
		static uint8_t reply[MAX_DATAGRAM_BYTES];
		/* Now and then more than there is room for. */
		for (uint64_t many = below(30) ? 1 : 30, large = many > 1 || below(4) == 0; many > 0; many--) {
			uint32_t flow = (platform.flows_forgotten & 0xffff) << 8 | (uint32_t)below(256);
			size_t length = below(large ? MAX_DATAGRAM_BYTES + 1 : 300);
			memset(reply, (uint8_t)flow, length);
			session_reply(&session, (uint32_t)below(below(2) ? 4 : FLOWS), flow, reply, length);
		}
		break;
	}
	case 7:
		platform.cannot_freeze_volume = below(8) == 0;
		/* Whoever freezes says so once, unless it was let go before, and ends when it is let go, or dies. */
		if (s->volume == VOLUME_FREEZING && below(3))
			supervise_volume_is_frozen(s);
		else if (s->volume == VOLUME_THAWING || (s->volume != VOLUME_THAWED && below(10) == 0))
			supervise_volume_is_thawed(s);
		now += below(20);
		supervise_tick(s, now);
		break;
	case 4:
		platform.cannot_freeze = below(8) == 0;
		platform.cannot_sync = below(8) == 0;
		platform.freezing_is_slow = below(3) == 0;
		if (below(2))
			supervise_synced(s, below(4) > 0);
		now += below(20);
		supervise_tick(s, now);
		REQUIRE(supervise_due(s) == 0 || supervise_due(s) > now || platform.ends > 0);
		break;
	default:
		ring_push(&s->ring, OUTPUT, &stream, 1, output, 1 + below(below(4) ? 200 : sizeof output));
	}
	/* A program that is frozen is one that runs, and it is thawed some day. */
	REQUIRE(s->sleep == THAWED || (s->phase == RUNNING && s->thaw_at > 0));
	REQUIRE(s->volume != VOLUME_FREEZING || s->volume_thaw_at > 0);
	REQUIRE(s->volume != VOLUME_FROZEN || s->volume_thaw_at > 0);
	REQUIRE(s->volume == VOLUME_THAWED || s->sleep == THAWED);
	REQUIRE(s->volume != VOLUME_FREEZING || (s->phase != STOPPING && s->phase != HAS_FAILED));
	REQUIRE(s->volume != VOLUME_FROZEN || (s->phase != STOPPING && s->phase != HAS_FAILED));
	REQUIRE(session.replies.waiting_bytes <= REPLY_BYTES);
	for (uint32_t place = 0; place < 4; place++)
		REQUIRE(session.replies.waiting_bytes_of[place] <= FLOW_REPLY_BYTES);
	REQUIRE((session.replies.waiting_bytes == 0) == !session.replies.first);
	REQUIRE(s->ring.sent.bytes + s->ring.waiting.bytes <= RING_BYTES);
	REQUIRE(s->ring.sent.bytes <= WINDOW_BYTES);
}

/* A guest from its boot to its end. */
static void one_guest(void) {
	memset(&session, 0, sizeof session);
	memset(&platform, 0, sizeof platform);
	host_forget();
	host.acknowledged = 0;
	for (uint64_t steps = below(4000); steps > 0 && platform.ends == 0; steps--) {
		if (below(2))
			host_acts();
		else
			machine_acts();
		host_read();
	}
	total_replies += host.replies;
	host.replies = host.dropped = 0;
	total_freezes += platform.volume_freezes;
	replies_forget(&session.replies);
	for (uint32_t place = 0; place < FLOWS; place++)
		REQUIRE(session.replies.waiting_bytes_of[place] == 0);
	free(session.in.payload);
	boot_spec_free(&session.supervisor.spec);
	struct ring *ring = &session.supervisor.ring;
	do {
		ring_rewind(ring);
		while (ring_send(ring))
			;
		ring_acknowledge(ring, UINT64_MAX);
	} while (!ring_is_empty(ring));
	rounds++;
}

int main(int count, char **arguments) {
	if (count != 3) {
		fprintf(stderr, "fuzz SECONDS SEED\n");
		return 2;
	}
	time_t end = time(NULL) + atoi(arguments[1]);
	random_state = strtoull(arguments[2], NULL, 10) * 2 + 1;
	do
		one_guest();
	while (time(NULL) < end);
	fprintf(stderr, "%" PRIu64 " replies, %" PRIu64 " freezes of the volume\n", total_replies, total_freezes);
	printf("%" PRIu64 "\n", rounds);
	return 0;
}
