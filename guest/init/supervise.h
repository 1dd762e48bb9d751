/*
 * The life of the program: started, started again under its policy, stopped. It decides by what it is told and
 * by the time (ms of the monotonic clock); what it wants done is asked of the functions at the end.
 */
#ifndef SUPERVISE_H
#define SUPERVISE_H

#include "ring.h"

struct supervisor {
	enum phase phase;
	struct ring ring;
	struct boot_spec spec;
	bool program_is_up;
	/* Since the budget was earned back; since the boot. */
	uint32_t restarts_used, restarts_total;
	/* When the program was started, and when to start it, to kill it, to end the machine; 0 for never. */
	uint64_t started_at, start_at, kill_at, end_at;
};

/* The spec has been taken: the root is made and the program started, or the failure told. */
void supervise_boot(struct supervisor *s, uint64_t now);
/* The program's process has become the program, or failed to: then with a sentence. */
void supervise_executed(struct supervisor *s, const char *failure, uint64_t now);
/* The program ended, as wait() says, and nothing that it started is left. */
void supervise_ended(struct supervisor *s, int status, uint64_t now);
void supervise_shutdown(struct supervisor *s, uint32_t grace_ms, uint64_t now);
/* Does what is due. */
void supervise_tick(struct supervisor *s, uint64_t now);
/* When something is due next; 0 for never. */
uint64_t supervise_due(const struct supervisor *s);

/* NULL when the root is ready for the program, else a sentence. */
const char *machine_prepare(const struct boot_spec *spec);
/* Unmounts and ends the machine. Does not return in PID 1. */
void machine_end(void);
/* NULL when the program's process was made, else a sentence. */
const char *program_start(const struct boot_spec *spec);
/* SIGTERM to the program's process group. */
void program_terminate(void);
/* SIGKILL to everything that the program started. */
void program_kill(void);
/* A line on the console. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A sentence, kept until the next one. */
const char *sentence(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
