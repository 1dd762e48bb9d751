/*
 * Starts a program that is not trusted, in its own process: the pid that it is started under stays the program's.
 *
 *     jail [--listen SOCKET]... [--tap NAME] [--group DIRECTORY]...
 *          [--root DIRECTORY [--no-network] [--ro PATH | --rw PATH | --device PATH]... --user ID]
 *          -- PROGRAM ARGUMENT...
 *
 * What is opened here the program finds open, from descriptor 3 on, in the order in which it is named: a listening unix
 * socket that nobody but this process's user can connect to, or a tap. So it needs no right to make or open any of it.
 *
 * With --root it gets a filesystem that holds nothing but the paths that are named, where they are on the host; the
 * directory only has to exist. It becomes the user and group ID, without a single capability. In any case it can gain no
 * privilege from what it executes.
 *
 *     jail --widen PID
 *
 * Makes room for connections that wait to be accepted at every TCP socket that the process listens at: QEMU's user network has
 * room for one, and the kernel loses the rest for seconds.
 *
 * Every failure ends it with status 125 and one line on stderr, before the program has started.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <net/if.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

/* From linux/if_tun.h and linux/capability.h, which the C library does not bring. */
#define TUNSETIFF _IOW('T', 202, int)
#define IFF_TAP 0x0002
#define IFF_NO_PI 0x1000
#define IFF_VNET_HDR 0x4000
struct capability_header {
	unsigned version;
	int pid;
};
struct capability_sets {
	unsigned effective, permitted, inheritable;
};
#define CAPABILITY_VERSION 0x20080522

#define FIRST_FD 3
/* A VMM opens its forwarded ports at its start, so their numbers are small. */
#define MAX_LISTENERS 128
#define BACKLOG 1024
/* What a VMM has of threads at most, with room: its processors', its own, and those that wait for its disks. */
#define MAX_THREADS 512

static int next_fd = FIRST_FD;

static void __attribute__((noreturn, format(printf, 1, 2))) fail(const char *format, ...)
{
	int error = errno;
	va_list arguments;

	fputs("jail: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, ": %s\n", strerror(error));
	exit(125);
}

/* Gives what was opened the next number that the program expects. */
static void hand_over(int fd, const char *what)
{
	if (fd != next_fd) {
		if (dup3(fd, next_fd, 0) < 0)
			fail("%s cannot be handed over", what);
		close(fd);
	}
	if (fcntl(next_fd, F_SETFD, 0) < 0)
		fail("%s cannot be handed over", what);
	next_fd++;
}

static void listen_at(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd;

	if (strlen(path) >= sizeof address.sun_path) {
		errno = ENAMETOOLONG;
		fail("the socket %s cannot be made", path);
	}
	strcpy(address.sun_path, path);
	umask(0177);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 8) < 0)
		fail("the socket %s cannot be made", path);
	hand_over(fd, path);
}

static void open_tap(const char *name)
{
	struct ifreq request = { .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		fail("/dev/net/tun cannot be opened");
	if (strlen(name) >= sizeof request.ifr_name) {
		errno = ENAMETOOLONG;
		fail("the tap %s cannot be opened", name);
	}
	strcpy(request.ifr_name, name);
	if (ioctl(fd, TUNSETIFF, &request) < 0)
		fail("the tap %s cannot be opened", name);
	hand_over(fd, name);
}

static int write_to(const char *directory, const char *file)
{
	char path[4096];
	int fd;

	if (snprintf(path, sizeof path, "%s/%s", directory, file) >= (int)sizeof path) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	ssize_t written = write(fd, "0", 1);
	close(fd);
	return written == 1 ? 0 : -1;
}

/* Version 1 takes a single thread, which this process is, without the wait for all of the machine that a process costs. */
static void join_group(const char *directory)
{
	if (write_to(directory, "tasks") < 0 && (errno != ENOENT || write_to(directory, "cgroup.procs") < 0))
		fail("the cgroup %s cannot be joined", directory);
}

/* Makes the directories above the path, below the working directory. */
static void make_parents(const char *path)
{
	char parent[4096];

	if (strlen(path) >= sizeof parent) {
		errno = ENAMETOOLONG;
		fail("%s cannot be shown", path);
	}
	strcpy(parent, path);
	for (char *slash = strchr(parent, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(parent, 0755) < 0 && errno != EEXIST)
			fail("%s cannot be shown", path);
		*slash = '/';
	}
}

/* The path from the new root, which is the working directory. */
static const char *inside(const char *path)
{
	while (*path == '/')
		path++;
	return path;
}

static void show(const char *path, unsigned long flags)
{
	const char *target = inside(path);
	struct stat there;

	if (path[0] != '/' || stat(path, &there) < 0)
		fail("%s cannot be shown", path);
	make_parents(target);
	if (S_ISDIR(there.st_mode)) {
		if (mkdir(target, 0755) < 0 && errno != EEXIST)
			fail("%s cannot be shown", path);
	} else {
		int fd = open(target, O_CREAT | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0644);
		if (fd < 0)
			fail("%s cannot be shown", path);
		close(fd);
	}
	if (mount(path, target, NULL, MS_BIND, NULL) < 0 ||
	    mount(NULL, target, NULL, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | flags, NULL) < 0)
		fail("%s cannot be shown", path);
}

/* A device of the same number that the user alone can open: that on the host may be root's, and stays so. */
static void make_device(const char *path, uid_t user)
{
	const char *target = inside(path);
	struct stat there;

	if (stat(path, &there) < 0)
		fail("%s cannot be shown", path);
	make_parents(target);
	if (mknod(target, S_IFCHR | 0600, there.st_rdev) < 0 || chown(target, user, user) < 0)
		fail("%s cannot be shown", path);
}

static void limit(int resource, rlim_t most, const char *what)
{
	struct rlimit now;

	if (getrlimit(resource, &now) < 0)
		fail("%s cannot be limited", what);
	if (now.rlim_max != RLIM_INFINITY && now.rlim_max < most)
		most = now.rlim_max;
	if (setrlimit(resource, &(struct rlimit){ most, most }) < 0)
		fail("%s cannot be limited", what);
}

static void become(uid_t user)
{
	struct capability_header header = { CAPABILITY_VERSION, 0 };
	struct capability_sets none[2] = { { 0, 0, 0 }, { 0, 0, 0 } };

	for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; capability++) {
		if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0)
			fail("capability %d cannot be given up", capability);
	}
	if (setgroups(0, NULL) < 0 || setresgid(user, user, user) < 0 || setresuid(user, user, user) < 0)
		fail("user %u cannot be taken on", user);
	if (syscall(SYS_capset, &header, none) < 0)
		fail("the capabilities cannot be given up");
}

/* The working directory becomes the root, and the old one is nowhere any more. */
static void enter_root(void)
{
	if (mount(NULL, ".", NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		fail("the new root cannot be made read-only");
	if (syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		fail("the new root cannot be entered");
}

static const char *value_of(char **argument)
{
	if (argument[1] == NULL) {
		errno = EINVAL;
		fail("%s needs a value", argument[0]);
	}
	return argument[1];
}

static void leave_namespaces(const char *root, int without_network)
{
	int spaces = CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | (without_network ? CLONE_NEWNET : 0);

	if (unshare(spaces) < 0)
		fail("namespaces of its own cannot be had");
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		fail("the mounts cannot be made private");
	if (mount("none", root, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=755,size=1m") < 0 || chdir(root) < 0)
		fail("a new root cannot be mounted on %s", root);
	umask(022);
	if (mkdir("dev", 0755) < 0 || mount("none", "dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755,size=64k") < 0)
		fail("devices cannot be made");
}

static int widen(const char *process)
{
	int pidfd = (int)syscall(SYS_pidfd_open, atoi(process), 0);

	if (pidfd < 0)
		fail("process %s cannot be looked at", process);
	for (int number = 0; number < MAX_LISTENERS; number++) {
		int fd = (int)syscall(SYS_pidfd_getfd, pidfd, number, 0), listens = 0, domain = 0;
		socklen_t size = sizeof listens, domain_size = sizeof domain;
		if (fd < 0 && errno == EBADF)
			continue;
		if (fd < 0)
			fail("the sockets of process %s cannot be had", process);
		if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens &&
		    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_size) == 0 && domain == AF_INET &&
		    listen(fd, BACKLOG) < 0)
			fail("a socket of process %s cannot be widened", process);
		close(fd);
	}
	return 0;
}

int main(int count, char **arguments)
{
	if (count == 3 && strcmp(arguments[1], "--widen") == 0)
		return widen(arguments[2]);

	const char *root = NULL;
	const char *user_text = NULL;
	int without_network = 0;
	char **argument;

	/* Listening sockets and taps first: they are of the host's root and network. */
	for (argument = arguments + 1; *argument != NULL && strcmp(*argument, "--") != 0; argument++) {
		if (strcmp(*argument, "--no-network") == 0) {
			without_network = 1;
			continue;
		}
		const char *value = value_of(argument);
		if (strcmp(*argument, "--listen") == 0)
			listen_at(value);
		else if (strcmp(*argument, "--tap") == 0)
			open_tap(value);
		else if (strcmp(*argument, "--group") == 0)
			join_group(value);
		else if (strcmp(*argument, "--root") == 0)
			root = value;
		else if (strcmp(*argument, "--user") == 0)
			user_text = value;
		else if (strcmp(*argument, "--ro") != 0 && strcmp(*argument, "--rw") != 0 && strcmp(*argument, "--device") != 0) {
			errno = EINVAL;
			fail("%s is no option", *argument);
		}
		argument++;
	}
	char **program = *argument == NULL ? argument : argument + 1;
	if (*program == NULL || (root == NULL) != (user_text == NULL)) {
		errno = EINVAL;
		fail("a program, and a user for its root, are needed");
	}

	if (root != NULL) {
		char *end;
		unsigned long user = strtoul(user_text, &end, 10);
		if (*end != '\0' || user == 0 || user >= (uid_t)-1) {
			errno = EINVAL;
			fail("%s is no user that a program may become", user_text);
		}
		leave_namespaces(root, without_network);
		for (argument = arguments + 1; argument < program - 1; argument++) {
			if (strcmp(*argument, "--no-network") == 0)
				continue;
			if (strcmp(*argument, "--ro") == 0)
				show(argument[1], MS_RDONLY);
			else if (strcmp(*argument, "--rw") == 0)
				show(argument[1], MS_NOEXEC);
			else if (strcmp(*argument, "--device") == 0)
				make_device(argument[1], user);
			argument++;
		}
		if (mount(NULL, "dev", NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NOEXEC, "mode=755") < 0)
			fail("the devices cannot be made read-only");
		enter_root();
		limit(RLIMIT_NPROC, MAX_THREADS, "the number of threads");
		limit(RLIMIT_CORE, 0, "the size of a core");
		become(user);
	}
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		fail("the gain of privileges cannot be shut off");
	if (syscall(SYS_close_range, next_fd, ~0u, 0) < 0 && errno != ENOSYS)
		fail("open files cannot be closed");
	execv(*program, program);
	fail("%s cannot be run", *program);
}
