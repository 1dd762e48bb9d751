#include "program.h"
#include "root.h"

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

enum { TENANT = 65534 };

int program_stdout, program_stderr;

static int stdout_end, stderr_end, outcome_pipe = -1, own_pidfd, watching_epoll;
static uint32_t outcome_tag;
static pid_t reaper, program;
static int program_status;
static const char *program_path;

/* What a process that could not become the program says: which step, and the error. */
struct outcome {
	char step[48];
	int error;
};

static int pidfd_open(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

static void make_pipe(int *read_end, int *write_end)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC)) {
		say("no pipe for the program's output: %s", strerror(errno));
		return;
	}
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	*read_end = ends[0];
	*write_end = ends[1];
}

void program_init(int epoll, uint32_t executed_tag)
{
	watching_epoll = epoll;
	outcome_tag = executed_tag;
	own_pidfd = pidfd_open(getpid());
	make_pipe(&program_stdout, &stdout_end);
	make_pipe(&program_stderr, &stderr_end);
}

/* The first process of the program's pid namespace: with SIGCHLD ignored, what it inherits is reaped by itself. */
static void reap_for_ever(void)
{
	signal(SIGCHLD, SIG_IGN);
	prctl(PR_SET_DUMPABLE, 0);
	syscall(SYS_close_range, 0, ~0u, 0);
	for (;;)
		pause();
}

static bool enter_root(void)
{
	return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && chdir(ROOT) == 0 &&
	       mount(".", "/", NULL, MS_MOVE, NULL) == 0 && chroot(".") == 0 && chdir("/") == 0;
}

static bool set_limits(void)
{
	const struct rlimit files = { 65536, 1048576 }, core = { 0, 0 };

	return setrlimit(RLIMIT_NOFILE, &files) == 0 && setrlimit(RLIMIT_CORE, &core) == 0;
}

static bool connect_stdio(void)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	return null >= 0 && dup2(null, 0) == 0 && dup2(stdout_end, 1) == 1 && dup2(stderr_end, 2) == 2;
}

static void reset_signals(void)
{
	sigset_t none;

	for (int number = 1; number < 65; number++)
		signal(number, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static bool drop_privileges(void)
{
	for (int capability = 0; prctl(PR_CAPBSET_READ, capability) >= 0; capability++)
		if (prctl(PR_CAPBSET_DROP, capability))
			return false;
	return syscall(SYS_setgroups, 0, NULL) == 0 && setresgid(TENANT, TENANT, TENANT) == 0 &&
	       setresuid(TENANT, TENANT, TENANT) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

static _Noreturn void become_program(const struct boot_spec *spec, int outcome_end)
{
	struct outcome outcome = { 0 };
	const char *step = NULL;

	setsid();
	umask(022);
	if (!enter_root())
		step = "its root cannot be entered";
	else if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL))
		step = "/proc cannot be mounted";
	else if (!set_limits())
		step = "its limits cannot be set";
	else if (!connect_stdio())
		step = "its output cannot be connected";
	else if (chdir(spec->working_directory))
		step = "its working directory cannot be entered";
	else if (!drop_privileges())
		step = "its privileges cannot be dropped";
	if (!step) {
		reset_signals();
		execve(spec->program, spec->argv, spec->envp);
	}
	outcome.error = errno;
	if (step)
		strcpy(outcome.step, step);
	if (write(outcome_end, &outcome, sizeof outcome) < 0)
		_exit(126);
	_exit(127);
}

/* fork() whose child is in the pid namespace of the reaper and in a new mount namespace. */
static pid_t fork_program(int reaper_pidfd)
{
	pid_t child = -1;

	if (setns(reaper_pidfd, CLONE_NEWPID) == 0) {
		child = (pid_t)syscall(SYS_clone, CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0);
		if (child != 0 && setns(own_pidfd, CLONE_NEWPID))
			say("the pid namespace cannot be left: %s", strerror(errno));
	}
	return child;
}

const char *program_start(const struct boot_spec *spec)
{
	static char failure[128];
	int ends[2] = { -1, -1 }, reaper_pidfd = -1;

	program_path = spec->program;
	program = 0;
	reaper = (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
	if (reaper == 0)
		reap_for_ever();
	if (reaper > 0 && pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0 && (reaper_pidfd = pidfd_open(reaper)) >= 0)
		program = fork_program(reaper_pidfd);
	if (reaper > 0 && reaper_pidfd >= 0 && program == 0)
		become_program(spec, ends[1]);
	int error = errno;
	close(reaper_pidfd);
	close(ends[1]);
	outcome_pipe = ends[0];
	if (program > 0) {
		struct epoll_event watch = { .events = EPOLLIN, .data.u32 = outcome_tag };
		epoll_ctl(watching_epoll, EPOLL_CTL_ADD, outcome_pipe, &watch);
		return NULL;
	}
	close(outcome_pipe);
	outcome_pipe = -1;
	program = 0;
	if (reaper > 0)
		kill(reaper, SIGKILL);
	snprintf(failure, sizeof failure, "a process for the program cannot be made: %s", strerror(error));
	return failure;
}

void program_executed(struct supervisor *s, uint64_t now)
{
	char sentence[MAX_REASON_BYTES];
	struct outcome outcome;

	if (outcome_pipe < 0)
		return;
	ssize_t count = read(outcome_pipe, &outcome, sizeof outcome);
	if (count < 0)
		return;
	close(outcome_pipe);
	outcome_pipe = -1;
	if (count < (ssize_t)sizeof outcome) {
		supervise_executed(s, NULL, now);
		return;
	}
	if (outcome.step[0])
		snprintf(sentence, sizeof sentence, "the program cannot be started, %s: %s", outcome.step,
			 strerror(outcome.error));
	else
		snprintf(sentence, sizeof sentence, "%s cannot be run: %s%s", program_path, strerror(outcome.error),
			 outcome.error == ENOENT ? " (the loader or interpreter that it names is absent)" : "");
	supervise_executed(s, sentence, now);
}

void program_reap(struct supervisor *s, uint64_t now)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == program) {
			program = 0;
			program_status = status;
			/* Ends everything that the program left behind, before it is started again. */
			kill(reaper, SIGKILL);
		} else if (pid == reaper) {
			reaper = 0;
		}
		if (!s->program_is_up || program || reaper)
			continue;
		program_executed(s, now);
		while (program_output(s, program_stdout) || program_output(s, program_stderr))
			;
		supervise_ended(s, program_exit_of(program_status), now);
	}
}

bool program_output(struct supervisor *s, int fd)
{
	static uint8_t piece[OUTPUT_BYTES];
	ssize_t count = read(fd, piece, sizeof piece);

	if (count > 0)
		ring_push_output(s->ring, fd == program_stdout ? STREAM_STDOUT : STREAM_STDERR, piece, (size_t)count);
	return count > 0;
}

void program_terminate(void)
{
	if (program > 0)
		kill(-program, SIGTERM);
}

void program_kill(void)
{
	if (reaper > 0)
		kill(reaper, SIGKILL);
}
