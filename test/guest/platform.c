#include "platform.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct platform platform;

const char *machine_prepare(const struct boot_spec *spec) {
	(void)spec;
	return platform.prepare_failure;
}

const char *program_start(const struct boot_spec *spec) {
	(void)spec;
	platform.starts++;
	return platform.start_failure;
}

void program_terminate(void) {
	platform.terminations++;
}

void program_kill(void) {
	platform.kills++;
}

void machine_end(void) {
	platform.ends++;
}

void say(const char *format, ...) {
	(void)format;
}

const char *sentence(const char *format, ...) {
	static char text[MAX_REASON_BYTES];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	return text;
}

void probe_begin(struct session *session, uint32_t id, uint16_t port, uint32_t timeout_ms) {
	(void)session;
	platform.probes++;
	platform.probe_id = id;
	platform.probe_port = port;
	platform.probe_timeout_ms = timeout_ms;
}

void machine_usage(struct usage *usage) {
	platform.usages++;
	*usage = platform.usage;
}

void probe_forget_all(void) {
	platform.forgotten++;
}

bool machine_set_clock(uint64_t ms) {
	if (ms > 253402300799999)
		return false;
	platform.clock_ms = ms;
	return true;
}

bool program_freeze(void) {
	platform.freezes++;
	return !platform.cannot_freeze;
}

bool program_is_frozen(void) {
	return !platform.freezing_is_slow;
}

void program_thaw(void) {
	platform.thaws++;
}

bool volume_sync(void) {
	platform.syncs++;
	return !platform.cannot_sync;
}

bool volume_freeze(void) {
	platform.volume_freezes++;
	return !platform.cannot_freeze_volume;
}

void volume_release(void) {
	platform.volume_releases++;
}

void flow_send(struct session *session, uint32_t flow, uint16_t port, const uint8_t *bytes, size_t length) {
	(void)session;
	platform.datagrams++;
	platform.flow = flow;
	platform.flow_port = port;
	platform.datagram_length = length;
	memcpy(platform.datagram, bytes, length);
}

void flow_close(uint32_t flow) {
	platform.closes++;
	platform.closed_flow = flow;
}

void flow_forget_all(void) {
	platform.flows_forgotten++;
}
