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
	/* The last time that the clock was set to; none may lie beyond the year 9999. */
	uint64_t clock_ms;
};
extern struct platform platform;

#endif
