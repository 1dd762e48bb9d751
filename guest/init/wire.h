/*
 * Records between the host and PID 1: the guest's end of src/wire/records.ts, which says the rules.
 * Every byte of the host is checked here; nothing in this file makes a system call.
 */
#ifndef WIRE_H
#define WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	PROTOCOL_VERSION = 1,
	HEADER_BYTES = 5,
	HOST_RECORD_END = 0x0a,
	MAX_HOST_PAYLOAD = 2 * 1024 * 1024,
	MAX_GUEST_PAYLOAD = 64 * 1024,
	MAX_REASON_BYTES = 1024,
	SESSION_BYTES = 16,
	RESET_BYTES = 16,
};

enum host_type { HELLO = 0x01, BOOT_SPEC = 0x02, ACK = 0x03, PROBE = 0x04, SHUTDOWN = 0x05 };

enum guest_type {
	HELLO_ACK = 0x81,
	RECEIPT = 0x82,
	PROBE_RESULT = 0x83,
	OUTPUT = 0xc1,
	GAP = 0xc2,
	STARTED = 0xc3,
	RESTARTING = 0xc4,
	FAILED = 0xc5,
};

enum phase {
	PHASE_AWAITING_SPEC,
	PHASE_STARTING,
	PHASE_RUNNING,
	PHASE_BACKING_OFF,
	PHASE_STOPPING,
	PHASE_FAILED,
};

enum receipt { RECEIPT_TAKEN, RECEIPT_NOT_NOW, RECEIPT_NOT_UNDERSTOOD };
enum probe_outcome { PROBE_ACCEPTED, PROBE_REFUSED, PROBE_TIMED_OUT, PROBE_FAILED };
enum stream { STREAM_STDOUT = 1, STREAM_STDERR = 2 };

/* Reads fields from a payload. Past its end, or after text with a NUL, `bad` is set and all that follows is zero. */
struct fields {
	uint8_t *at;
	size_t left;
	bool bad;
};

uint64_t take_number(struct fields *f, int bytes);
/* At most 2^53 - 1. */
uint64_t take_u64(struct fields *f);
double take_f64(struct fields *f);
/* Moves the text over its length to make room for the NUL that ends it, so the payload must outlive it. */
char *take_string(struct fields *f);

struct restart_policy {
	uint32_t max_restarts;
	uint64_t initial_backoff_ms, max_backoff_ms;
	double backoff_factor;
	uint64_t reset_after_ms;
};

/* What to run. Every string lies in the payload that it was read from. */
struct boot_spec {
	char *hostname, *address, *gateway;
	uint8_t prefix_length;
	char *nameservers[3];
	unsigned nameserver_count;
	unsigned layer_count;
	char *program, *working_directory;
	char **argv, **envp;
	struct restart_policy policy;
	uint64_t host_time_ms;
};

/* Takes the payload apart where it lies; argv and envp are allocated. False, with nothing allocated, when it is no boot spec. */
bool boot_spec_read(struct boot_spec *spec, uint8_t *payload, size_t length);
void boot_spec_free(struct boot_spec *spec);

/* The host's stream, record by record. */
struct inbound {
	enum { INBOUND_LOST, INBOUND_RESET, INBOUND_GREETED } state;
	unsigned ones;
	uint8_t header[HEADER_BYTES];
	size_t have;
	uint32_t length;
	uint8_t *payload;
};

/*
 * Feeds bytes in; `reset` is called at each reset, `take` for each whole record behind one, the first of which
 * is a HELLO. `take` may keep the payload: then it says true and frees it later.
 */
struct inbound_handler {
	void (*reset)(void *context);
	bool (*take)(void *context, uint8_t type, uint8_t *payload, size_t length);
	void *context;
};
void inbound_feed(struct inbound *in, const struct inbound_handler *handler, const uint8_t *bytes, size_t count);

/* Writes fields into a buffer that the caller knows to be large enough. */
uint8_t *put_number(uint8_t *at, uint64_t value, int bytes);
/* `length` and `type` of a record of the guest. */
uint8_t *put_header(uint8_t *at, size_t payload_length, uint8_t type);

#endif
