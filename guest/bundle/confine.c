#include "confine.h"
#include "fail.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOBODY 65534
/* Names of hard links and the map of one file are all that grows with the volume. */
#define MOST_MEMORY (1536ul << 20)
/* Guests and the proxy go first. */
#define NICENESS 10

static void limit(int resource, rlim_t most)
{
	struct rlimit limit = { most, most };
	if (setrlimit(resource, &limit) < 0)
		fail("a limit cannot be set: %s", strerror(errno));
}

static void become_nobody(void)
{
	limit(RLIMIT_CORE, 0);
	limit(RLIMIT_FSIZE, 0);
	limit(RLIMIT_AS, MOST_MEMORY);
	if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
			       setresuid(NOBODY, NOBODY, NOBODY) < 0))
		fail("root's rights cannot be given up: %s", strerror(errno));
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		fail("new rights cannot be renounced: %s", strerror(errno));
}

pid_t start_compressor(const char *level, int *into)
{
	int ends[2];
	if (pipe2(ends, O_CLOEXEC) < 0)
		fail("there is no pipe to the compressor: %s", strerror(errno));
	/* a larger pipe, where it may be: fewer turns between the two */
	fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
	if (setpriority(PRIO_PROCESS, 0, NICENESS) < 0)
		fail("its priority cannot be lowered: %s", strerror(errno));
	pid_t child = fork();
	if (child < 0)
		fail("the compressor cannot be started: %s", strerror(errno));
	if (child > 0) {
		close(ends[0]);
		close(STDOUT_FILENO);
		*into = ends[1];
		return child;
	}
	dup2(ends[0], STDIN_FILENO);
	char option[] = { '-', level[0], 0 };
	char *const arguments[] = { "pigz", "-c", "-n", option, NULL };
	become_nobody();
	execvp("pigz", arguments);
	_exit(errno == ENOENT ? 127 : 126);
}

void confine(void)
{
	static const int allowed[] = { SYS_read, SYS_write, SYS_sendto, SYS_mmap, SYS_munmap, SYS_mremap, SYS_brk,
		SYS_madvise, SYS_close, SYS_wait4, SYS_exit_group, SYS_fstat, SYS_newfstatat, SYS_rt_sigreturn,
		SYS_clock_gettime, SYS_getrandom, SYS_futex, SYS_sysinfo };
	enum { COUNT = sizeof allowed / sizeof *allowed };
	struct sock_filter filter[COUNT + 6];
	int at = 0;
	filter[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
	filter[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
	filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	filter[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (int i = 0; i < COUNT; i++)
		filter[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)allowed[i],
			(unsigned char)(COUNT - i), 0);
	filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);

	become_nobody();
	struct sock_fprog program = { .len = (unsigned short)at, .filter = filter };
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
		fail("system calls cannot be renounced: %s", strerror(errno));
}
