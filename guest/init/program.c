#include "program.h"
#include "root.h"
#include "volume.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CGROUP "/cgroup/program"

int program_stdout, program_stderr;
static int stdout_end, stderr_end, outcome_pipe = -1, own_pidfd, watching_epoll;
static uint32_t outcome_tag;
static pid_t reaper, program, syncer;
static int program_status;

/* Why a process did not become the program. */
struct outcome {
	enum step { GROUP_STEP, ROOT_STEP, LIMITS_STEP, OUTPUT_STEP, DIRECTORY_STEP, PRIVILEGES_STEP, EXEC_STEP } step;
	int error;
};

static int pidfd_of(pid_t pid) {
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

static bool make_pipe(int *read_end, int *write_end) {
	int ends[2];
	if (pipe2(ends, O_CLOEXEC) || fcntl(ends[0], F_SETFL, O_NONBLOCK))
		return false;
	*read_end = ends[0];
	*write_end = ends[1];
	return true;
}

/* The first process of the program's pid namespace: with SIGCHLD ignored, what it inherits is reaped by itself. */
static _Noreturn void reap_for_ever(void) {
	signal(SIGCHLD, SIG_IGN);
	prctl(PR_SET_DUMPABLE, 0);
	syscall(SYS_close_range, 0, ~0u, 0);
	for (;;)
		pause();
}

static int open_group(const char *file, int flags) {
	char path[64];
	snprintf(path, sizeof path, CGROUP "/%s", file);
	return open(path, flags | O_CLOEXEC);
}

static bool write_group(const char *file, const char *value) {
	int fd = open_group(file, O_WRONLY);
	bool written = fd >= 0 && write(fd, value, strlen(value)) > 0;
	int error = errno;
	close(fd);
	errno = error;
	return written;
}

/* What freezes the program without its knowledge: a cgroup of its own, out of its sight. */
static bool make_group(void) {
	mkdir("/cgroup", 0700);
	return mount("cgroup", "/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0 && mkdir(CGROUP, 0700) == 0;
}

bool program_init(int epoll, uint32_t tag) {
	watching_epoll = epoll;
	outcome_tag = tag;
	own_pidfd = pidfd_of(getpid());
	return own_pidfd >= 0 && make_group() && make_pipe(&program_stdout, &stdout_end) &&
	       make_pipe(&program_stderr, &stderr_end);
}

static bool enter_group(void) {
	return write_group("cgroup.procs", "0");
}

static bool enter_root(void) {
	return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && chdir(ROOT) == 0 &&
	       mount(".", "/", NULL, MS_MOVE, NULL) == 0 && chroot(".") == 0 && chdir("/") == 0 &&
	       mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0;
}

static bool set_limits(void) {
	const struct rlimit files = { 65536, 1048576 }, core = { 0, 0 };
	umask(022);
	return setrlimit(RLIMIT_NOFILE, &files) == 0 && setrlimit(RLIMIT_CORE, &core) == 0;
}

static bool connect_output(void) {
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return null >= 0 && dup2(null, 0) == 0 && dup2(stdout_end, 1) == 1 && dup2(stderr_end, 2) == 2;
}

static bool drop_privileges(void) {
	for (int capability = 0; prctl(PR_CAPBSET_READ, capability) >= 0; capability++)
		if (prctl(PR_CAPBSET_DROP, capability))
			return false;
	return syscall(SYS_setgroups, 0, NULL) == 0 && setresgid(TENANT, TENANT, TENANT) == 0 &&
	       setresuid(TENANT, TENANT, TENANT) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

static void execute(const struct boot_spec *spec) {
	sigset_t none;
	for (int number = 1; number <= SIGRTMAX; number++)
		signal(number, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execve(spec->program, spec->argv, spec->envp);
}

static _Noreturn void become_program(const struct boot_spec *spec, int outcome_end) {
	setsid();
	enum step step = !enter_group()                     ? GROUP_STEP
			 : !enter_root()                    ? ROOT_STEP
			 : !set_limits()                    ? LIMITS_STEP
			 : !connect_output()                ? OUTPUT_STEP
			 : chdir(spec->working_directory)   ? DIRECTORY_STEP
			 : !drop_privileges()               ? PRIVILEGES_STEP
							    : EXEC_STEP;
	if (step == EXEC_STEP)
		execute(spec);
	const struct outcome outcome = { step, errno };
	_exit(write(outcome_end, &outcome, sizeof outcome) < 0 ? 126 : 127);
}

/* A child in the pid namespace of the reaper, and in a mount namespace of its own; 0 in the child. */
static pid_t fork_program(int reaper_pidfd) {
	if (setns(reaper_pidfd, CLONE_NEWPID))
		return -1;
	pid_t child = (pid_t)syscall(SYS_clone, CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0);
	int error = errno;
	if (child != 0 && setns(own_pidfd, CLONE_NEWPID))
		say("the program's pid namespace cannot be left: %s", strerror(errno));
	errno = error;
	return child;
}

const char *program_start(const struct boot_spec *spec) {
	int ends[2] = { -1, -1 }, reaper_pidfd = -1;
	reaper = (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
	if (reaper == 0)
		reap_for_ever();
	bool ready = reaper > 0 && pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0 && (reaper_pidfd = pidfd_of(reaper)) >= 0;
	program = ready ? fork_program(reaper_pidfd) : -1;
	if (program == 0)
		become_program(spec, ends[1]);
	const char *failure = program > 0 ? NULL : sentence("no process can be made for the program: %s", strerror(errno));
	close(reaper_pidfd);
	close(ends[1]);
	outcome_pipe = ends[0];
	struct epoll_event watch = { .events = EPOLLIN, .data.u32 = outcome_tag };
	if (!failure && epoll_ctl(watching_epoll, EPOLL_CTL_ADD, outcome_pipe, &watch))
		failure = sentence("the program's start cannot be watched: %s", strerror(errno));
	if (failure)
		program_kill();
	return failure;
}

static const char *explain(const struct boot_spec *spec, struct outcome outcome) {
	static const char *const steps[] = { "its cgroup cannot be entered", "its root cannot be entered", "its limits cannot be set",
					     "its output cannot be connected", "its working directory cannot be entered",
					     "its privileges cannot be dropped" };
	const char *hint = outcome.error == ENOENT ? " (the loader or interpreter that it names is absent)" : "";
	if (outcome.step < EXEC_STEP)
		return sentence("the program cannot be started, %s: %s", steps[outcome.step], strerror(outcome.error));
	return sentence("%s cannot be run: %s%s", spec->program, strerror(outcome.error), hint);
}

void program_executed(struct supervisor *s, uint64_t now) {
	struct outcome outcome;
	ssize_t count = outcome_pipe < 0 ? -1 : read(outcome_pipe, &outcome, sizeof outcome);
	if (count < 0)
		return;
	close(outcome_pipe);
	outcome_pipe = -1;
	supervise_executed(s, count == sizeof outcome ? explain(&s->spec, outcome) : NULL, now);
}

void program_reap(struct supervisor *s, uint64_t now) {
	int status;
	pid_t pid;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == program) {
			program = 0;
			program_status = status;
			/* Whatever the program has left behind ends before it is started again. */
			program_kill();
		} else if (pid == reaper) {
			reaper = 0;
		} else if (pid == syncer) {
			syncer = 0;
			supervise_synced(s, status == 0);
		} else if (volume_reap(s, pid, status)) {
			continue;
		}
		if (!s->program_is_up || program > 0 || reaper > 0)
			continue;
		program_executed(s, now);
		while (program_output(s, STREAM_STDOUT) || program_output(s, STREAM_STDERR))
			;
		supervise_ended(s, program_status, now);
	}
}

bool program_output(struct supervisor *s, enum stream stream) {
	static uint8_t piece[OUTPUT_BYTES];
	const uint8_t head = (uint8_t)stream;
	ssize_t count = read(stream == STREAM_STDOUT ? program_stdout : program_stderr, piece, sizeof piece);
	if (count > 0)
		ring_push(&s->ring, OUTPUT, &head, 1, piece, (size_t)count);
	return count > 0;
}

void program_terminate(void) {
	/* The process may not have made its group yet. */
	if (program > 0 && kill(-program, SIGTERM))
		kill(program, SIGTERM);
}

void program_kill(void) {
	if (reaper > 0)
		kill(reaper, SIGKILL);
}

bool program_freeze(void) {
	bool begun = syncer == 0 && write_group("cgroup.freeze", "1");
	if (!begun)
		say("the program cannot be frozen: %s", syncer ? "an earlier sync is still under way" : strerror(errno));
	return begun;
}

bool program_is_frozen(void) {
	char events[64] = "";
	int fd = open_group("cgroup.events", O_RDONLY);
	ssize_t count = fd < 0 ? -1 : read(fd, events, sizeof events - 1);
	close(fd);
	return count > 0 && strstr(events, "frozen 1");
}

void program_thaw(void) {
	if (!write_group("cgroup.freeze", "0"))
		say("the program cannot be thawed: %s", strerror(errno));
}

/* In a process of its own: PID 1 waits for no disk. */
bool volume_sync(void) {
	syncer = fork();
	if (syncer == 0) {
		int volume = open("/volume", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		_exit(volume < 0 || syncfs(volume));
	}
	if (syncer > 0)
		return true;
	syncer = 0;
	say("the volume cannot be synced: %s", strerror(errno));
	return false;
}
