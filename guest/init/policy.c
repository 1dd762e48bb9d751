#include "policy.h"

#include <math.h>
#include <stdio.h>
#include <sys/wait.h>

struct program_exit program_exit_of(int wait_status)
{
	if (WIFSIGNALED(wait_status))
		return (struct program_exit){ true, (uint32_t)WTERMSIG(wait_status) };
	return (struct program_exit){ false, (uint32_t)WEXITSTATUS(wait_status) };
}

static uint64_t backoff(const struct restart_policy *policy, uint32_t used)
{
	double wanted = (double)policy->initial_backoff_ms * pow(policy->backoff_factor, used);

	/* A factor below zero, or 0 times infinity, asks for no wait that could be kept. */
	if (!(wanted > 0))
		return 0;
	return wanted < (double)policy->max_backoff_ms ? (uint64_t)wanted : policy->max_backoff_ms;
}

struct restart_decision restart_decide(const struct restart_policy *policy, uint32_t *used, uint64_t uptime_ms)
{
	struct restart_decision decision = { 0 };

	if (uptime_ms >= policy->reset_after_ms)
		*used = 0;
	if (*used >= policy->max_restarts) {
		decision.give_up = true;
		return decision;
	}
	decision.backoff_ms = backoff(policy, *used);
	decision.attempt = ++*used;
	return decision;
}

static const char *const signal_names[] = {
	[1] = "SIGHUP",   [2] = "SIGINT",   [3] = "SIGQUIT",  [4] = "SIGILL",   [5] = "SIGTRAP",    [6] = "SIGABRT",
	[7] = "SIGBUS",   [8] = "SIGFPE",   [9] = "SIGKILL",  [10] = "SIGUSR1", [11] = "SIGSEGV",   [12] = "SIGUSR2",
	[13] = "SIGPIPE", [14] = "SIGALRM", [15] = "SIGTERM", [24] = "SIGXCPU", [25] = "SIGXFSZ",   [27] = "SIGPROF",
	[29] = "SIGIO",   [30] = "SIGPWR",  [31] = "SIGSYS",
};

void exit_sentence(struct program_exit exit, char *sentence, size_t size)
{
	const char *name = "a real-time or unnamed one";

	if (!exit.by_signal) {
		snprintf(sentence, size, "the program ended with exit code %u", exit.number);
		return;
	}
	if (exit.number < sizeof signal_names / sizeof *signal_names && signal_names[exit.number])
		name = signal_names[exit.number];
	snprintf(sentence, size, "the program was ended by signal %u (%s)", exit.number, name);
}
