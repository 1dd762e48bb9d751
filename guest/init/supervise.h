/*
 * The life of the program: started, started again under its policy, stopped. It decides by what it is told and
 * by the time (ms of the monotonic clock); what it wants done is asked of the functions at the end.
 */
#ifndef SUPERVISE_H
#define SUPERVISE_H

#include "ring.h"

struct supervisor {
	/* Never FROZEN: that is said of a program that runs, and may be stopped or killed all the same. */
	enum phase phase;
	struct ring ring;
	struct boot_spec spec;
	bool program_is_up;
	/* Since the budget was earned back; since the boot. */
	uint32_t restarts_used, restarts_total;
	/* When the program was started, and when to start it, to kill it, to end the machine; 0 for never. */
	uint64_t started_at, start_at, kill_at, end_at;
	/* On its way to the machine's sleep the program is frozen first, then what it has written is put on the disk. */
	enum { THAWED, FREEZING, SYNCING, ASLEEP } sleep;
	/* When the program is thawed, told or not; when to look whether it is frozen, and when to give up on that. */
	uint64_t thaw_at, look_at, give_up_at;
	/* Apart from that, and never at the same time, the volume's filesystem is frozen by a process that thaws it when it is let go. */
	enum { VOLUME_THAWED, VOLUME_FREEZING, VOLUME_FROZEN, VOLUME_THAWING } volume;
	uint64_t volume_thaw_at;
	/* It was frozen until the host let it go. */
	bool volume_held;
};

/* The spec has been taken: the root is made and the program started, or the failure told. */
void supervise_boot(struct supervisor *s, uint64_t now);
/* The program's process has become the program, or failed to: then with a sentence. */
void supervise_executed(struct supervisor *s, const char *failure, uint64_t now);
/* The program ended, as wait() says, and nothing that it started is left. */
void supervise_ended(struct supervisor *s, int status, uint64_t now);
void supervise_shutdown(struct supervisor *s, uint32_t grace_ms, uint64_t now);
/* Freezes the program and syncs the volume; supervise_froze tells what came of it. Thawed again after `lease_ms`. */
void supervise_freeze(struct supervisor *s, uint32_t lease_ms, uint64_t now);
/* The volume is synced, or could not be. */
void supervise_synced(struct supervisor *s, bool done);
void supervise_thaw(struct supervisor *s);
/* Freezes the volume; supervise_volume_froze tells what came of it. Thawed again after `lease_ms`. */
void supervise_freeze_volume(struct supervisor *s, uint32_t lease_ms, uint64_t now);
/* It is frozen; it is not, or no longer. */
void supervise_volume_is_frozen(struct supervisor *s);
void supervise_volume_is_thawed(struct supervisor *s);
/* Thaws the volume; supervise_volume_thawed is called when that is done. */
void supervise_thaw_volume(struct supervisor *s);
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
/* Begins to freeze everything that the program started: false when that cannot be. */
bool program_freeze(void);
bool program_is_frozen(void);
void program_thaw(void);
/* Begins to put on the disk what was written to the volume; supervise_synced is called later. False when it cannot begin. */
bool volume_sync(void);
/* The host is told: frozen and synced, or not, and thawed again. */
void supervise_froze(struct supervisor *s, bool done);
/* Begins to freeze the volume: false when that cannot be. */
bool volume_freeze(void);
/* Lets it go: it is thawed, also when it is not frozen yet. */
void volume_release(void);
/* The host is told: frozen, or not; frozen until it was thawed now, or not. */
void supervise_volume_froze(struct supervisor *s, bool done);
void supervise_volume_thawed(struct supervisor *s, bool held);
/* A line on the console. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A sentence, kept until the next one. */
const char *sentence(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
