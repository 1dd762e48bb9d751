/*
 * The guest's end of the wire: src/wire/records.ts says the rules. Every byte of the host is checked here, and
 * nothing here makes a system call.
 */
#ifndef WIRE_H
#define WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	PROTOCOL_VERSION = 2,
	HEADER_BYTES = 5,
	HOST_RECORD_END = 0x0a,
	MAX_HOST_PAYLOAD = 2 * 1024 * 1024,
	MAX_REASON_BYTES = 1024,
	SESSION_BYTES = 16,
	RESET_BYTES = 16,
	MAX_NAMESERVERS = 3,
	MAX_DATAGRAM_BYTES = 65507,
};

enum host_type {
	HELLO = 0x01,
	BOOT_SPEC = 0x02,
	ACK = 0x03,
	PROBE = 0x04,
	SHUTDOWN = 0x05,
	USAGE = 0x06,
	FREEZE = 0x07,
	THAW = 0x08,
	DATAGRAM = 0x09,
	CLOSE_FLOW = 0x0a,
	FREEZE_VOLUME = 0x0b,
	THAW_VOLUME = 0x0c,
};
enum answer_type { HELLO_ACK = 0x81, RECEIPT = 0x82, PROBE_RESULT = 0x83, USAGE_RESULT = 0x84, REPLY = 0x85, DROPPED = 0x86 };
enum event_type { OUTPUT = 0xc1, GAP = 0xc2, STARTED = 0xc3, RESTARTING = 0xc4, FAILED = 0xc5 };
enum stream { STREAM_STDOUT = 1, STREAM_STDERR = 2 };
enum phase { AWAITING_SPEC, STARTING, RUNNING, BACKING_OFF, STOPPING, HAS_FAILED, FROZEN };
enum receipt { TAKEN, NOT_NOW, NOT_UNDERSTOOD };
enum probe_outcome { PROBE_ACCEPTED, PROBE_REFUSED, PROBE_TIMED_OUT, PROBE_FAILED };

/* Takes fields off a payload. Behind its end, or a text with a NUL, `bad` is set and all that follows is zero. */
struct fields {
	uint8_t *at;
	size_t left;
	bool bad;
};
uint64_t take_number(struct fields *f, int bytes);
/* At most 2^53 - 1. */
uint64_t take_u64(struct fields *f);
/* Moves the text over its length to make room for the NUL behind it: the payload must outlive it. */
char *take_string(struct fields *f);
uint8_t *put_number(uint8_t *at, uint64_t value, int bytes);
/* The rest, as a datagram, in place: without the byte that follows each run of 0xFF which could else be a reset. */
size_t take_datagram(struct fields *f, uint8_t **bytes);

/* What to run. Its strings lie in the payload that they were read from, which is its own once it is taken. */
struct boot_spec {
	uint8_t *payload;
	char *hostname, *address, *gateway, *nameservers[MAX_NAMESERVERS];
	char *program, *working_directory, **argv, **envp;
	unsigned prefix_length, nameserver_count, layer_count;
	uint32_t max_restarts;
	uint64_t initial_backoff_ms, max_backoff_ms, reset_after_ms, host_time_ms;
	double backoff_factor;
};
/* False, with nothing kept, when the payload is no boot spec. */
bool boot_spec_read(struct boot_spec *spec, uint8_t *payload, size_t length);
void boot_spec_free(struct boot_spec *spec);

/* The host's stream. Nothing is taken before a reset and a HELLO. */
struct inbound {
	enum { LOST, RESET, GREETED } state;
	unsigned ones;
	uint8_t header[HEADER_BYTES], *payload;
	size_t have;
	uint32_t length;
};
/* `take` is given each whole record; it may keep the payload, which it then frees: it says true. */
struct inbound_handler {
	void (*reset)(void *context);
	bool (*take)(void *context, uint8_t type, uint8_t *payload, size_t length);
	void *context;
};
void inbound_feed(struct inbound *in, const struct inbound_handler *handler, const uint8_t *bytes, size_t count);

#endif
