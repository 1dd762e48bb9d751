#include "wire.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

uint64_t take_number(struct fields *f, int bytes) {
	uint64_t value = 0;
	if (f->bad || f->left < (size_t)bytes) {
		f->bad = true;
		return 0;
	}
	for (int i = 0; i < bytes; i++)
		value = value << 8 | f->at[i];
	f->at += bytes;
	f->left -= (size_t)bytes;
	return value;
}

uint64_t take_u64(struct fields *f) {
	uint64_t value = take_number(f, 8);
	if (value < (uint64_t)1 << 53)
		return value;
	f->bad = true;
	return 0;
}

static double take_f64(struct fields *f) {
	uint64_t bits = take_number(f, 8);
	double value;
	memcpy(&value, &bits, sizeof value);
	if (isfinite(value))
		return value;
	f->bad = true;
	return 0;
}

char *take_string(struct fields *f) {
	uint8_t *text = f->at;
	uint32_t length = (uint32_t)take_number(f, 4);
	if (!f->bad && (length > f->left || memchr(f->at, 0, length)))
		f->bad = true;
	if (f->bad)
		return NULL;
	memmove(text, f->at, length);
	text[length] = 0;
	f->at += length;
	f->left -= length;
	return (char *)text;
}

size_t take_datagram(struct fields *f, uint8_t **bytes) {
	size_t length = 0;
	*bytes = f->at;
	for (unsigned ones = 0; f->left > 0 && !f->bad;) {
		uint8_t byte = (uint8_t)take_number(f, 1);
		(*bytes)[length++] = byte;
		ones = byte == 0xff ? ones + 1 : 0;
		if (ones == RESET_BYTES - 1) {
			f->bad |= take_number(f, 1) != 0;
			ones = 0;
		}
	}
	f->bad |= length > MAX_DATAGRAM_BYTES;
	return f->bad ? 0 : length;
}

/* `name=value`, in the bytes that the two took with their lengths. */
static char *take_variable(struct fields *f) {
	char *name = take_string(f), *value = take_string(f);
	if (f->bad)
		return NULL;
	size_t length = strlen(name);
	name[length] = '=';
	memmove(name + length + 1, value, strlen(value) + 1);
	return name;
}

static char **take_list(struct fields *f, char *first, char *(*take)(struct fields *)) {
	size_t count = take_number(f, 2), at = 0;
	char **list = calloc(count + 2, sizeof *list);
	f->bad |= !list;
	if (list && first)
		list[at++] = first;
	for (size_t i = 0; i < count && !f->bad; i++)
		list[at++] = take(f);
	return list;
}

bool boot_spec_read(struct boot_spec *spec, uint8_t *payload, size_t length) {
	struct fields f = { payload, length, false };
	memset(spec, 0, sizeof *spec);
	spec->hostname = take_string(&f);
	spec->address = take_string(&f);
	spec->prefix_length = (unsigned)take_number(&f, 1);
	spec->gateway = take_string(&f);
	for (uint64_t left = take_number(&f, 1); left > 0 && !f.bad; left--) {
		char *nameserver = take_string(&f);
		if (spec->nameserver_count < MAX_NAMESERVERS)
			spec->nameservers[spec->nameserver_count++] = nameserver;
	}
	spec->layer_count = (unsigned)take_number(&f, 1);
	spec->program = take_string(&f);
	spec->working_directory = take_string(&f);
	spec->argv = take_list(&f, spec->program, take_string);
	spec->envp = take_list(&f, NULL, take_variable);
	spec->max_restarts = (uint32_t)take_number(&f, 4);
	spec->initial_backoff_ms = take_u64(&f);
	spec->max_backoff_ms = take_u64(&f);
	spec->backoff_factor = take_f64(&f);
	spec->reset_after_ms = take_u64(&f);
	spec->host_time_ms = take_u64(&f);
	if (f.bad || spec->prefix_length > 32 || spec->program[0] != '/' || spec->working_directory[0] != '/') {
		boot_spec_free(spec);
		return false;
	}
	spec->payload = payload;
	return true;
}

void boot_spec_free(struct boot_spec *spec) {
	free(spec->payload);
	free(spec->argv);
	free(spec->envp);
	memset(spec, 0, sizeof *spec);
}

static void forget_record(struct inbound *in) {
	free(in->payload);
	in->payload = NULL;
	in->have = 0;
}

static void take_byte(struct inbound *in, const struct inbound_handler *handler, uint8_t byte) {
	if (in->have < HEADER_BYTES) {
		in->header[in->have++] = byte;
		if (in->have < HEADER_BYTES)
			return;
		struct fields f = { in->header, HEADER_BYTES, false };
		in->length = (uint32_t)take_number(&f, 4);
		if (in->length <= MAX_HOST_PAYLOAD)
			in->payload = malloc(in->length + 1);
		if (in->payload)
			return;
	} else if (in->have < HEADER_BYTES + (size_t)in->length) {
		in->payload[in->have++ - HEADER_BYTES] = byte;
		return;
	} else if (byte == HOST_RECORD_END) {
		uint8_t type = in->header[4];
		if (type == HELLO && in->length >= 4 + SESSION_BYTES)
			in->state = GREETED;
		if (in->state == GREETED && handler->take(handler->context, type, in->payload, in->length))
			in->payload = NULL;
		forget_record(in);
		return;
	}
	forget_record(in);
	in->state = LOST;
}

/* Takes what is plainly the inside of a payload: up to its end, or the first byte that may belong to a reset. */
static size_t take_plain(struct inbound *in, const uint8_t *bytes, size_t count) {
	if (in->state == LOST || in->have < HEADER_BYTES)
		return 0;
	size_t at = in->have - HEADER_BYTES, wanted = in->length - at < count ? in->length - at : count;
	const uint8_t *one = memchr(bytes, 0xff, wanted);
	size_t plain = one ? (size_t)(one - bytes) : wanted;
	memcpy(in->payload + at, bytes, plain);
	in->have += plain;
	if (plain > 0)
		in->ones = 0;
	return plain;
}

void inbound_feed(struct inbound *in, const struct inbound_handler *handler, const uint8_t *bytes, size_t count) {
	for (size_t i = 0; i < count; i++) {
		i += take_plain(in, bytes + i, count - i);
		if (i == count)
			return;
		in->ones = bytes[i] == 0xff ? in->ones + 1 : 0;
		if (in->ones >= RESET_BYTES) {
			in->ones = RESET_BYTES;
			in->state = RESET;
			forget_record(in);
			handler->reset(handler->context);
		} else if (in->state != LOST) {
			take_byte(in, handler, bytes[i]);
		}
	}
}

uint8_t *put_number(uint8_t *at, uint64_t value, int bytes) {
	for (int i = bytes - 1; i >= 0; i--, value >>= 8)
		at[i] = (uint8_t)value;
	return at + bytes;
}
