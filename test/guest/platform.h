/* What PID 1's conversation and supervision ask of the machine, played by a test: it writes down what it was asked. */
#ifndef PLATFORM_H
#define PLATFORM_H

#include "../../guest/init/session.h"

struct platform {
	/* What machine_prepare and program_start answer. */
	const char *prepare_failure, *start_failure;
	unsigned starts, terminations, kills, ends;
	uint32_t probe_id, probe_timeout_ms;
	uint16_t probe_port;
	unsigned probes, forgotten;
	/* What machine_usage answers, and how often it was asked. */
	struct usage usage;
	unsigned usages;
	/* What the machine answers when the program is to be frozen and the volume synced, and how often it was asked. */
	bool cannot_freeze, cannot_sync, freezing_is_slow;
	unsigned freezes, thaws, syncs;
	/* The same for the volume's filesystem. */
	bool cannot_freeze_volume;
	unsigned volume_freezes, volume_releases;
	/* The last datagram that was to be sent, and the last flow that was to be closed. */
	uint32_t flow, closed_flow;
	uint16_t flow_port;
	uint8_t datagram[MAX_DATAGRAM_BYTES];
	size_t datagram_length;
	unsigned datagrams, closes, flows_forgotten;
	/* The last time that the clock was set to; none may lie beyond the year 9999. */
	uint64_t clock_ms;
};
extern struct platform platform;

#endif
