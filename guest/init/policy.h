/* When a program that ended is started again, and how that is said. */
#ifndef POLICY_H
#define POLICY_H

#include "wire.h"

struct program_exit {
	bool by_signal;
	/* The exit code or the signal. */
	uint32_t number;
};

struct restart_decision {
	/* The restarts are used up: there is no other. */
	bool give_up;
	/* Counts from 1 since the budget was earned back. */
	uint32_t attempt;
	uint64_t backoff_ms;
};

struct program_exit program_exit_of(int wait_status);

/* `used` counts the restarts since the budget was earned back; it is brought up to date. */
struct restart_decision restart_decide(const struct restart_policy *policy, uint32_t *used, uint64_t uptime_ms);

/* "the program ended with exit code 3", "the program was ended by signal 9 (SIGKILL)" */
void exit_sentence(struct program_exit exit, char *sentence, size_t size);

#endif
