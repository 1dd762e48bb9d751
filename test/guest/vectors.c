/*
 * PID 1's end of the wire, one command a line: `decode HEX` prints what PID 1 made of a record of the host, as
 * JSON; `encode KIND FIELDS…` has PID 1 say something and prints the bytes. Both go through the code that runs in
 * a guest, the session included.
 */
#include "platform.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct session session;
static const uint8_t greeting_id[SESSION_BYTES] = { 1, 2, 3 };

static size_t from_hex(const char *hex, uint8_t *bytes) {
	size_t count = strcmp(hex, "-") == 0 ? 0 : strlen(hex) / 2;
	for (size_t i = 0; i < count; i++) {
		unsigned byte;
		sscanf(hex + 2 * i, "%2x", &byte);
		bytes[i] = (uint8_t)byte;
	}
	return count;
}

static void print_hex(const uint8_t *bytes, size_t count) {
	for (size_t i = 0; i < count; i++)
		printf("%02x", bytes[i]);
}

/* Everything that PID 1 has to say. */
static size_t said(uint8_t *into) {
	const uint8_t *bytes;
	size_t total = 0, count;
	while ((count = session_pending(&session, &bytes)) > 0) {
		memcpy(into + total, bytes, count);
		session_wrote(&session, count);
		total += count;
	}
	return total;
}

static void hello(const uint8_t *id) {
	uint8_t bytes[RESET_BYTES + HEADER_BYTES + 4 + SESSION_BYTES + 1], *at = bytes + RESET_BYTES;
	memset(bytes, 0xff, RESET_BYTES);
	at = put_number(put_number(put_number(at, 4 + SESSION_BYTES, 4), HELLO, 1), PROTOCOL_VERSION, 4);
	memcpy(at, id, SESSION_BYTES);
	at[SESSION_BYTES] = HOST_RECORD_END;
	session_feed(&session, bytes, sizeof bytes, 1000);
}

/* A session that has just been greeted, with nothing to say. */
static void begin(enum phase phase) {
	static uint8_t dump[1 << 17];
	boot_spec_free(&session.supervisor.spec);
	replies_forget(&session.replies);
	said(dump);
	ring_acknowledge(&session.supervisor.ring, UINT64_MAX);
	memset(&session, 0, sizeof session);
	memset(&platform, 0, sizeof platform);
	session.supervisor.phase = phase == FROZEN ? RUNNING : phase;
	session.supervisor.sleep = phase == FROZEN ? ASLEEP : THAWED;
	hello(greeting_id);
	said(dump);
}

static void print_string(const char *text) {
	putchar('"');
	for (; *text; text++) {
		if ((unsigned char)*text < 32 || *text == '"' || *text == '\\')
			printf("\\u%04x", (unsigned char)*text);
		else
			putchar(*text);
	}
	putchar('"');
}

static void print_field(const char *name, const char *value) {
	printf("\"%s\":", name);
	print_string(value);
	putchar(',');
}

static void print_list(const char *name, char **list, bool pairs) {
	printf("\"%s\":[", name);
	for (char **at = list; *at; at++) {
		char *equals = pairs ? strchr(*at, '=') : NULL;
		if (at != list)
			putchar(',');
		if (equals) {
			*equals = 0;
			putchar('[');
			print_string(*at);
			putchar(',');
			print_string(equals + 1);
			putchar(']');
		} else {
			print_string(*at);
		}
	}
	printf("],");
}

static void print_spec(struct boot_spec *spec) {
	printf("{\"kind\":\"boot-spec\",\"spec\":{");
	print_field("hostname", spec->hostname);
	printf("\"network\":{");
	print_field("address", spec->address);
	print_field("gateway", spec->gateway);
	printf("\"prefixLength\":%u},", spec->prefix_length);
	printf("\"nameservers\":[");
	for (unsigned i = 0; i < spec->nameserver_count; i++) {
		printf(i ? "," : "");
		print_string(spec->nameservers[i]);
	}
	printf("],\"layerCount\":%u,", spec->layer_count);
	print_field("program", spec->program);
	print_field("workingDirectory", spec->working_directory);
	print_list("args", spec->argv + 1, false);
	print_list("environment", spec->envp, true);
	printf("\"restartPolicy\":{\"maxRestarts\":%" PRIu32 ",\"initialBackoffMs\":%" PRIu64 ",\"maxBackoffMs\":%" PRIu64
	       ",\"backoffFactor\":%.17g,\"resetAfterMs\":%" PRIu64 "},\"hostTime\":%" PRIu64 "}}\n",
	       spec->max_restarts, spec->initial_backoff_ms, spec->max_backoff_ms, spec->backoff_factor,
	       spec->reset_after_ms, spec->host_time_ms);
}

/* One event that was sent and is numbered so. */
static void expect_acknowledgement_of(uint64_t sequence) {
	static uint8_t dump[4096];
	session.supervisor.ring.last_sequence = sequence - 1;
	ring_push(&session.supervisor.ring, STARTED, NULL, 0, NULL, 0);
	said(dump);
}

static void decode(const char *hex) {
	static uint8_t record[MAX_HOST_PAYLOAD], answer[65536];
	size_t count = from_hex(hex, record);
	uint8_t type = count > 4 ? record[4] : 0;
	begin(type == BOOT_SPEC ? AWAITING_SPEC : RUNNING);
	session.supervisor.program_is_up = true;
	struct fields tail = { record + HEADER_BYTES, count >= HEADER_BYTES + 8 ? 8 : 0, false };
	uint64_t sequence = take_number(&tail, 8);
	if (type == ACK && sequence > 0)
		expect_acknowledgement_of(sequence);
	session_feed(&session, record, count, 1000);
	size_t answered = said(answer);
	if (type == HELLO && answered > HEADER_BYTES + 4 + SESSION_BYTES && memcmp(answer + HEADER_BYTES + 4, greeting_id, 16)) {
		struct fields version = { record + HEADER_BYTES, 4, false };
		printf("{\"kind\":\"hello\",\"version\":%" PRIu64 ",\"session\":\"", take_number(&version, 4));
		print_hex(answer + HEADER_BYTES + 4, SESSION_BYTES);
		printf("\"}\n");
	} else if (type == BOOT_SPEC && session.supervisor.spec.argv) {
		print_spec(&session.supervisor.spec);
	} else if (type == ACK && sequence > 0 && ring_is_empty(&session.supervisor.ring)) {
		printf("{\"kind\":\"ack\",\"sequence\":%" PRIu64 "}\n", sequence);
	} else if (type == PROBE && platform.probes == 1) {
		printf("{\"kind\":\"probe\",\"id\":%" PRIu32 ",\"port\":%u,\"timeoutMs\":%" PRIu32 "}\n", platform.probe_id,
		       platform.probe_port, platform.probe_timeout_ms);
	} else if (type == SHUTDOWN && platform.terminations == 1) {
		printf("{\"kind\":\"shutdown\",\"graceMs\":%" PRIu64 "}\n", session.supervisor.kill_at - 1000);
	} else if (type == FREEZE && platform.freezes == 1) {
		printf("{\"kind\":\"freeze\",\"leaseMs\":%" PRIu64 "}\n", session.supervisor.thaw_at - 1000);
	} else if (type == THAW && platform.clock_ms > 0) {
		printf("{\"kind\":\"thaw\",\"hostTime\":%" PRIu64 "}\n", platform.clock_ms);
	} else if (type == FREEZE_VOLUME && platform.volume_freezes == 1) {
		printf("{\"kind\":\"freeze-volume\",\"leaseMs\":%" PRIu64 "}\n", session.supervisor.volume_thaw_at - 1000);
	} else if (type == THAW_VOLUME && answered == HEADER_BYTES + 2 && answer[HEADER_BYTES] == THAW_VOLUME) {
		printf("{\"kind\":\"thaw-volume\"}\n");
	} else if (type == DATAGRAM && platform.datagrams == 1) {
		printf("{\"kind\":\"datagram\",\"flow\":%" PRIu32 ",\"port\":%u,\"bytes\":\"", platform.flow, platform.flow_port);
		print_hex(platform.datagram, platform.datagram_length);
		printf("\"}\n");
	} else if (type == CLOSE_FLOW && platform.closes == 1) {
		printf("{\"kind\":\"close-flow\",\"flow\":%" PRIu32 "}\n", platform.closed_flow);
	} else if (type == USAGE && platform.usages == 1) {
		struct fields id = { answer + HEADER_BYTES, 4, false };
		printf("{\"kind\":\"usage\",\"id\":%" PRIu64 "}\n", take_number(&id, 4));
	} else {
		printf("null\n");
	}
}

static void boot_spec_record(bool whole) {
	static const char spec[] = "\0\0\0\001h" "\0\0\0\001a" "\30" "\0\0\0\001g" "\0" "\0" "\0\0\0\001/" "\0\0\0\001/" "\0\0" "\0\0"
				   "\0\0\0\0" "\0\0\0\0\0\0\0\0" "\0\0\0\0\0\0\0\0" "\0\0\0\0\0\0\0\0" "\0\0\0\0\0\0\0\0"
				   "\0\0\0\0\0\0\0";
	uint8_t record[sizeof spec + HEADER_BYTES + 1];
	size_t length = whole ? sizeof spec : 3;
	memcpy(put_number(put_number(record, length, 4), BOOT_SPEC, 1), spec, length);
	record[HEADER_BYTES + length] = HOST_RECORD_END;
	session_feed(&session, record, HEADER_BYTES + length + 1, 1000);
}

static void encode(char *fields) {
	static uint8_t answer[1 << 17], bytes[1 << 17];
	char *kind = strtok(fields, " "), *f[1 + USAGE_NUMBERS] = { 0 };
	for (size_t i = 0; i < sizeof f / sizeof *f; i++)
		f[i] = strtok(NULL, " ");
	struct supervisor *s = &session.supervisor;
	if (strcmp(kind, "hello-ack") == 0) {
		begin((enum phase)atoi(f[1]));
		s->ring.last_sequence = strtoull(f[2], NULL, 10) - 1;
		from_hex(f[0], bytes);
		hello(bytes);
	} else if (strcmp(kind, "receipt") == 0) {
		begin(strcmp(f[1], "1") == 0 ? RUNNING : AWAITING_SPEC);
		boot_spec_record(strcmp(f[1], "2") != 0);
	} else if (strcmp(kind, "probe-result") == 0) {
		begin(RUNNING);
		session_probe_result(&session, (uint32_t)strtoul(f[0], NULL, 10), (enum probe_outcome)atoi(f[1]));
	} else if (strcmp(kind, "usage-result") == 0) {
		uint8_t question[HEADER_BYTES + 4 + 1];
		begin(RUNNING);
		for (int i = 0; i < USAGE_NUMBERS; i++)
			platform.usage.numbers[i] = strtoull(f[i + 1], NULL, 10);
		put_number(put_number(put_number(question, 4, 4), USAGE, 1), strtoull(f[0], NULL, 10), 4);
		question[HEADER_BYTES + 4] = HOST_RECORD_END;
		session_feed(&session, question, sizeof question, 1000);
	} else if (strcmp(kind, "reply") == 0) {
		begin(RUNNING);
		session_reply(&session, 0, (uint32_t)strtoul(f[0], NULL, 10), bytes, from_hex(f[1], bytes));
	} else if (strcmp(kind, "dropped") == 0) {
		begin(RUNNING);
		session.dropped = strtoull(f[0], NULL, 10);
	} else {
		begin(STARTING);
		s->ring.last_sequence = strtoull(f[0], NULL, 10) - 1;
	}
	if (strcmp(kind, "output") == 0) {
		uint8_t stream = (uint8_t)atoi(f[1]);
		size_t count = from_hex(f[2], bytes);
		ring_push(&s->ring, OUTPUT, &stream, 1, bytes, count);
	} else if (strcmp(kind, "gap") == 0) {
		s->ring.lost_bytes = strtoull(f[1], NULL, 10);
	} else if (strcmp(kind, "started") == 0) {
		supervise_executed(s, NULL, 1000);
	} else if (strcmp(kind, "failed") == 0) {
		bytes[from_hex(f[1], bytes)] = 0;
		platform.prepare_failure = (char *)bytes;
		supervise_boot(s, 1000);
	} else if (strcmp(kind, "restarting") == 0) {
		int number = atoi(f[5]);
		s->phase = RUNNING;
		s->restarts_used = (uint32_t)atoi(f[1]) - 1;
		s->spec.max_restarts = (uint32_t)atoi(f[2]);
		s->restarts_total = (uint32_t)atoi(f[3]) - 1;
		s->spec.initial_backoff_ms = s->spec.max_backoff_ms = strtoull(f[6], NULL, 10);
		s->spec.backoff_factor = 1;
		s->spec.reset_after_ms = 1000000;
		supervise_ended(s, strcmp(f[4], "code") == 0 ? number << 8 : number, 1000);
	}
	print_hex(answer, said(answer));
	putchar('\n');
}

int main(void) {
	static char line[1 << 20];
	while (fgets(line, sizeof line, stdin)) {
		line[strcspn(line, "\n")] = 0;
		if (strncmp(line, "decode ", 7) == 0)
			decode(line + 7);
		else if (strncmp(line, "encode ", 7) == 0)
			encode(line + 7);
	}
	begin(RUNNING);
	return 0;
}
