#include "volume.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* `_IOWR('X', 119, int)` and the one behind it. */
#define FIFREEZE 0xc0045877
#define FITHAW 0xc0045878

enum { FREEZER_END = 3, END_PATIENCE_MS = 5000 };

/* The process that freezes the volume and thaws it when it is let go; PID 1's end of their pair of sockets. */
static pid_t freezer;
static int control = -1, watching_epoll;
static uint32_t control_tag;

void volume_init(int epoll, uint32_t tag) {
	watching_epoll = epoll;
	control_tag = tag;
}

static int open_volume(void) {
	return open("/volume", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Were it to end before it has thawed, nothing could be written any more. */
static void outlive_want_of_memory(void) {
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "-1000", 5) < 0)
		say("whoever freezes the volume may be killed for want of memory: %s", strerror(errno));
	close(fd);
}

/* Most of the writing is done by the first sync, while the program can still write. */
static _Noreturn void freeze_until_let_go(int end) {
	char byte;
	dup2(end, FREEZER_END);
	syscall(SYS_close_range, FREEZER_END + 1, ~0u, 0);
	outlive_want_of_memory();
	int volume = open_volume();
	if (volume < 0 || syncfs(volume) || ioctl(volume, FIFREEZE, 0)) {
		say("the volume cannot be frozen: %s", strerror(errno));
		_exit(1);
	}
	if (send(FREEZER_END, "F", 1, MSG_NOSIGNAL) == 1)
		while (read(FREEZER_END, &byte, 1) < 0 && errno == EINTR)
			;
	_exit(ioctl(volume, FITHAW, 0) != 0);
}

bool volume_freeze(void) {
	int ends[2];
	if (freezer > 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends))
		return false;
	struct epoll_event watch = { .events = EPOLLIN, .data.u32 = control_tag };
	int flags = fcntl(ends[1], F_GETFL);
	bool watched = fcntl(ends[1], F_SETFL, flags & ~O_NONBLOCK) == 0 &&
		       epoll_ctl(watching_epoll, EPOLL_CTL_ADD, ends[0], &watch) == 0;
	freezer = watched ? fork() : -1;
	if (freezer == 0)
		freeze_until_let_go(ends[1]);
	close(ends[1]);
	control = ends[0];
	if (freezer > 0)
		return true;
	say("nobody can be made to freeze the volume: %s", strerror(errno));
	close(control);
	freezer = 0;
	control = -1;
	return false;
}

void volume_release(void) {
	/* Not only closed: a process that PID 1 has made since may hold this end too. */
	if (control >= 0)
		shutdown(control, SHUT_RDWR);
}

void volume_ready(struct supervisor *s) {
	char byte;
	ssize_t count = control < 0 ? -1 : read(control, &byte, 1);
	if (count == 1)
		supervise_volume_is_frozen(s);
	else if (count == 0)
		/* It has ended, or was let go: what comes next is its exit. */
		epoll_ctl(watching_epoll, EPOLL_CTL_DEL, control, NULL);
}

static void thaw_at_once(void) {
	int volume = open_volume();
	if (volume >= 0 && ioctl(volume, FITHAW, 0) == 0)
		say("the volume is thawed by PID 1");
	close(volume);
}

bool volume_reap(struct supervisor *s, pid_t pid, int status) {
	if (freezer == 0 || pid != freezer)
		return false;
	freezer = 0;
	close(control);
	control = -1;
	if (WIFSIGNALED(status))
		thaw_at_once();
	supervise_volume_is_thawed(s);
	return true;
}

void volume_end(void) {
	volume_release();
	for (int tries = 0; freezer > 0 && waitpid(freezer, NULL, WNOHANG) == 0 && tries < END_PATIENCE_MS; tries++)
		usleep(1000);
	if (freezer > 0)
		thaw_at_once();
}
