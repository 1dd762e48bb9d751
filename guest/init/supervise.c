#include "supervise.h"

#include <stdio.h>
#include <string.h>

enum {
	/* How long the host is given to take the last events before the machine ends. */
	FAILURE_LINGER_MS = 10000,
	SHUTDOWN_LINGER_MS = 2000,
	/* A process that SIGKILL does not end (it waits for a device) does not hold the machine up. */
	KILL_PATIENCE_MS = 5000,
};

static void fail(struct supervisor *s, const char *reason, uint64_t now)
{
	uint8_t body[4 + MAX_REASON_BYTES];
	size_t length = strnlen(reason, MAX_REASON_BYTES);

	say("failed: %s", reason);
	memcpy(put_number(body, length, 4), reason, length);
	ring_push(s->ring, FAILED, body, 4 + length);
	s->phase = PHASE_FAILED;
	s->start_at = s->kill_at = 0;
	s->end_at = now + FAILURE_LINGER_MS;
}

static void start(struct supervisor *s, uint64_t now)
{
	s->phase = PHASE_STARTING;
	s->start_at = 0;
	const char *failure = program_start(&s->spec);
	if (failure)
		fail(s, failure, now);
	else
		s->program_is_up = true;
}

void supervise_boot(struct supervisor *s, uint64_t now)
{
	s->phase = PHASE_STARTING;
	const char *failure = machine_prepare(&s->spec);
	if (failure)
		fail(s, failure, now);
	else
		start(s, now);
}

void supervise_executed(struct supervisor *s, const char *failure, uint64_t now)
{
	if (s->phase != PHASE_STARTING)
		return;
	if (failure) {
		fail(s, failure, now);
		return;
	}
	s->phase = PHASE_RUNNING;
	s->started_at = now;
	ring_push(s->ring, STARTED, NULL, 0);
}

static void restart(struct supervisor *s, struct program_exit exit, struct restart_decision decision, uint64_t now)
{
	char reason[128];
	uint8_t body[4 * 3 + 1 + 4 + 8 + 4 + sizeof reason], *at = body;

	exit_sentence(exit, reason, sizeof reason);
	s->restarts_total++;
	at = put_number(at, decision.attempt, 4);
	at = put_number(at, s->spec.policy.max_restarts, 4);
	at = put_number(at, s->restarts_total, 4);
	at = put_number(at, exit.by_signal, 1);
	at = put_number(at, exit.number, 4);
	at = put_number(at, decision.backoff_ms, 8);
	at = put_number(at, strlen(reason), 4);
	memcpy(at, reason, strlen(reason));
	ring_push(s->ring, RESTARTING, body, (size_t)(at - body) + strlen(reason));
	s->phase = PHASE_BACKING_OFF;
	s->start_at = now + decision.backoff_ms;
}

void supervise_ended(struct supervisor *s, struct program_exit exit, uint64_t now)
{
	s->program_is_up = false;
	if (s->phase == PHASE_STOPPING) {
		s->kill_at = 0;
		s->end_at = now + SHUTDOWN_LINGER_MS;
		return;
	}
	if (s->phase != PHASE_RUNNING)
		return;
	struct restart_decision decision =
		restart_decide(&s->spec.policy, &s->restarts_used, now - s->started_at);
	if (!decision.give_up) {
		restart(s, exit, decision, now);
		return;
	}
	char sentence[128], reason[256];
	exit_sentence(exit, sentence, sizeof sentence);
	snprintf(reason, sizeof reason, "%s and its %u restarts are used up", sentence, s->spec.policy.max_restarts);
	fail(s, reason, now);
}

void supervise_shutdown(struct supervisor *s, uint32_t grace_ms, uint64_t now)
{
	uint64_t kill_at = now + grace_ms;

	if (s->phase == PHASE_STOPPING) {
		if (s->kill_at > kill_at)
			s->kill_at = kill_at;
		return;
	}
	s->phase = PHASE_STOPPING;
	s->start_at = 0;
	if (s->program_is_up) {
		program_terminate();
		s->kill_at = kill_at;
		s->end_at = 0;
	} else {
		s->end_at = now + SHUTDOWN_LINGER_MS;
	}
}

void supervise_tick(struct supervisor *s, uint64_t now)
{
	if (s->start_at && now >= s->start_at)
		start(s, now);
	if (s->kill_at && now >= s->kill_at) {
		program_kill();
		s->kill_at = 0;
		s->end_at = now + KILL_PATIENCE_MS;
	}
	if (s->end_at && (now >= s->end_at || (!s->program_is_up && !s->ring->first)))
		machine_end();
}

uint64_t supervise_due(const struct supervisor *s)
{
	uint64_t due = 0;

	for (int i = 0; i < 3; i++) {
		uint64_t at = i == 0 ? s->start_at : i == 1 ? s->kill_at : s->end_at;
		if (at && (!due || at < due))
			due = at;
	}
	return due;
}
