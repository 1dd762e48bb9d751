#include "supervise.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum {
	/* How long the host is given to take the last events before the machine ends. */
	FAILURE_LINGER_MS = 10000,
	SHUTDOWN_LINGER_MS = 2000,
	/* A process that SIGKILL does not end (it waits for a device) does not hold the machine up. */
	KILL_PATIENCE_MS = 5000,
	/* A process that waits for a device cannot be frozen until it has what it waits for. */
	FREEZE_PATIENCE_MS = 5000,
	FREEZE_LOOK_MS = 2,
};

static const char *const signal_names[] = {
	"", "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
	"STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
	"PWR", "SYS",
};

static void describe_end(char *text, size_t size, int status) {
	if (!WIFSIGNALED(status))
		snprintf(text, size, "the program ended with exit code %d", WEXITSTATUS(status));
	else if (WTERMSIG(status) < (int)(sizeof signal_names / sizeof *signal_names))
		snprintf(text, size, "the program was ended by signal %d (SIG%s)", WTERMSIG(status), signal_names[WTERMSIG(status)]);
	else
		snprintf(text, size, "the program was ended by signal %d", WTERMSIG(status));
}

/* The volume need not be frozen any longer. */
static void let_volume_go(struct supervisor *s) {
	bool untold = s->volume == VOLUME_FREEZING;
	if (s->volume != VOLUME_FREEZING && s->volume != VOLUME_FROZEN)
		return;
	s->volume = VOLUME_THAWING;
	s->volume_thaw_at = 0;
	s->volume_held = false;
	volume_release();
	if (untold)
		supervise_volume_froze(s, false);
}

static void fail(struct supervisor *s, const char *reason, uint64_t now) {
	uint8_t length[4];
	size_t bytes = strnlen(reason, MAX_REASON_BYTES);
	say("failed: %s", reason);
	put_number(length, bytes, 4);
	ring_push(&s->ring, FAILED, length, 4, reason, bytes);
	let_volume_go(s);
	s->phase = HAS_FAILED;
	s->start_at = s->kill_at = 0;
	s->end_at = now + FAILURE_LINGER_MS;
}

static void start(struct supervisor *s, uint64_t now) {
	s->phase = STARTING;
	s->start_at = 0;
	const char *failure = program_start(&s->spec);
	s->program_is_up = !failure;
	if (failure)
		fail(s, failure, now);
}

void supervise_boot(struct supervisor *s, uint64_t now) {
	const char *failure = machine_prepare(&s->spec);
	if (failure)
		fail(s, failure, now);
	else
		start(s, now);
}

void supervise_executed(struct supervisor *s, const char *failure, uint64_t now) {
	if (s->phase != STARTING)
		return;
	if (failure) {
		fail(s, failure, now);
		return;
	}
	s->phase = RUNNING;
	s->started_at = now;
	ring_push(&s->ring, STARTED, NULL, 0, NULL, 0);
}

static uint64_t backoff(const struct boot_spec *spec, uint32_t used) {
	double wanted = (double)spec->initial_backoff_ms * pow(spec->backoff_factor, used);
	/* A factor below zero, or 0 times infinity, asks for no wait that could be kept. */
	if (!(wanted > 0))
		return 0;
	return wanted < (double)spec->max_backoff_ms ? (uint64_t)wanted : spec->max_backoff_ms;
}

static void restart(struct supervisor *s, int status, const char *reason, uint64_t now) {
	uint64_t wait = backoff(&s->spec, s->restarts_used);
	uint8_t head[4 + 4 + 4 + 1 + 4 + 8 + 4], *at = head;
	at = put_number(at, ++s->restarts_used, 4);
	at = put_number(at, s->spec.max_restarts, 4);
	at = put_number(at, ++s->restarts_total, 4);
	at = put_number(at, WIFSIGNALED(status), 1);
	at = put_number(at, (uint64_t)(WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status)), 4);
	at = put_number(at, wait, 8);
	put_number(at, strlen(reason), 4);
	ring_push(&s->ring, RESTARTING, head, sizeof head, reason, strlen(reason));
	s->phase = BACKING_OFF;
	s->start_at = now + wait;
}

void supervise_ended(struct supervisor *s, int status, uint64_t now) {
	char end[128];
	s->program_is_up = false;
	supervise_thaw(s);
	describe_end(end, sizeof end, status);
	if (s->phase == STOPPING) {
		s->kill_at = 0;
		s->end_at = now + SHUTDOWN_LINGER_MS;
	}
	if (s->phase != RUNNING)
		return;
	if (now - s->started_at >= s->spec.reset_after_ms)
		s->restarts_used = 0;
	if (s->restarts_used < s->spec.max_restarts)
		restart(s, status, end, now);
	else
		fail(s, sentence("%s and its %u restarts are used up", end, s->spec.max_restarts), now);
}

void supervise_shutdown(struct supervisor *s, uint32_t grace_ms, uint64_t now) {
	bool again = s->phase == STOPPING;
	supervise_thaw(s);
	let_volume_go(s);
	s->phase = STOPPING;
	s->start_at = 0;
	if (!s->program_is_up) {
		if (!again)
			s->end_at = now + SHUTDOWN_LINGER_MS;
	} else if (!again) {
		program_terminate();
		s->kill_at = now + grace_ms;
		s->end_at = 0;
	} else if (s->kill_at > now + grace_ms) {
		s->kill_at = now + grace_ms;
	}
}

void supervise_freeze(struct supervisor *s, uint32_t lease_ms, uint64_t now) {
	if (s->phase != RUNNING || s->sleep != THAWED || s->volume != VOLUME_THAWED || !program_freeze()) {
		supervise_froze(s, false);
		return;
	}
	s->sleep = FREEZING;
	s->look_at = now;
	s->give_up_at = now + FREEZE_PATIENCE_MS;
	s->thaw_at = now + lease_ms;
}

void supervise_synced(struct supervisor *s, bool done) {
	if (s->sleep != SYNCING)
		return;
	if (!done) {
		supervise_thaw(s);
		return;
	}
	s->sleep = ASLEEP;
	supervise_froze(s, true);
}

void supervise_thaw(struct supervisor *s) {
	bool untold = s->sleep == FREEZING || s->sleep == SYNCING;
	if (s->sleep == THAWED)
		return;
	s->sleep = THAWED;
	s->thaw_at = s->look_at = s->give_up_at = 0;
	program_thaw();
	if (untold)
		supervise_froze(s, false);
}

void supervise_freeze_volume(struct supervisor *s, uint32_t lease_ms, uint64_t now) {
	/* Before the program is up for the first time, there may be no volume. */
	bool in_use = s->phase == RUNNING || s->phase == BACKING_OFF || (s->phase == STARTING && s->program_is_up);
	if (!in_use || s->sleep != THAWED || s->volume != VOLUME_THAWED || !volume_freeze()) {
		supervise_volume_froze(s, false);
		return;
	}
	s->volume = VOLUME_FREEZING;
	s->volume_thaw_at = now + lease_ms;
}

void supervise_volume_is_frozen(struct supervisor *s) {
	if (s->volume != VOLUME_FREEZING)
		return;
	s->volume = VOLUME_FROZEN;
	supervise_volume_froze(s, true);
}

void supervise_volume_is_thawed(struct supervisor *s) {
	bool untold = s->volume == VOLUME_FREEZING, held = s->volume == VOLUME_THAWING && s->volume_held;
	s->volume = VOLUME_THAWED;
	s->volume_thaw_at = 0;
	s->volume_held = false;
	if (untold)
		supervise_volume_froze(s, false);
	supervise_volume_thawed(s, held);
}

void supervise_thaw_volume(struct supervisor *s) {
	bool held = s->volume == VOLUME_FROZEN;
	let_volume_go(s);
	if (s->volume == VOLUME_THAWED)
		supervise_volume_thawed(s, false);
	else if (held)
		s->volume_held = true;
}

static void tick_freeze(struct supervisor *s, uint64_t now) {
	if (s->look_at && now >= s->look_at) {
		if (program_is_frozen()) {
			s->look_at = s->give_up_at = 0;
			s->sleep = SYNCING;
			if (!volume_sync())
				supervise_thaw(s);
		} else {
			s->look_at = now + FREEZE_LOOK_MS;
		}
	}
	if ((s->give_up_at && now >= s->give_up_at) || (s->thaw_at && now >= s->thaw_at)) {
		say("the program is thawed without the host");
		supervise_thaw(s);
	}
}

void supervise_tick(struct supervisor *s, uint64_t now) {
	tick_freeze(s, now);
	if (s->volume_thaw_at && now >= s->volume_thaw_at) {
		say("the volume is thawed without the host");
		let_volume_go(s);
	}
	if (s->start_at && now >= s->start_at)
		start(s, now);
	if (s->kill_at && now >= s->kill_at) {
		program_kill();
		s->kill_at = 0;
		s->end_at = now + KILL_PATIENCE_MS;
	}
	if (s->end_at && (now >= s->end_at || (!s->program_is_up && ring_is_empty(&s->ring))))
		machine_end();
}

static uint64_t earlier(uint64_t a, uint64_t b) {
	return !a || (b && b < a) ? b : a;
}

uint64_t supervise_due(const struct supervisor *s) {
	uint64_t sleep = earlier(s->look_at, earlier(s->give_up_at, s->thaw_at));
	return earlier(earlier(sleep, s->volume_thaw_at), earlier(s->start_at, earlier(s->kill_at, s->end_at)));
}
