/*
 * The life of the program: started, started again under its policy, stopped. Decides by what it is told and
 * the time; what it wants done is asked of the functions at the end, which program.c, root.c and main.c have.
 */
#ifndef SUPERVISE_H
#define SUPERVISE_H

#include "policy.h"
#include "ring.h"

struct supervisor {
	enum phase phase;
	struct ring *ring;
	struct boot_spec spec;
	uint32_t restarts_used, restarts_total;
	bool program_is_up;
	uint64_t started_at;
	/* In ms of the monotonic clock; 0 for none. When to start again, to kill, to end the machine. */
	uint64_t start_at, kill_at, end_at;
};

/* The spec has been taken: the root is made and the program started, or the failure told. */
void supervise_boot(struct supervisor *s, uint64_t now);
/* The program's process has become the program, or failed to with this sentence. */
void supervise_executed(struct supervisor *s, const char *failure, uint64_t now);
/* The program ended, and nothing that it started is left. */
void supervise_ended(struct supervisor *s, struct program_exit exit, uint64_t now);
void supervise_shutdown(struct supervisor *s, uint32_t grace_ms, uint64_t now);
/* Does what is due. */
void supervise_tick(struct supervisor *s, uint64_t now);
/* When something is due next; 0 for never. */
uint64_t supervise_due(const struct supervisor *s);

/* NULL when the root is ready for the program, else a sentence. */
const char *machine_prepare(const struct boot_spec *spec);
/* Starts the program's processes: NULL, or a sentence. */
const char *program_start(const struct boot_spec *spec);
/* SIGTERM to the program's process group. */
void program_terminate(void);
/* SIGKILL to everything that the program started. */
void program_kill(void);
/* Unmounts and powers off. Does not return in PID 1. */
void machine_end(void);
/* A line on the console. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
