/*
 * PID 1 of the guest. Loads what the kernel needs to see the machine's devices, talks to the host, makes the root
 * that the host describes, and runs the program in it.
 */
#include "flows.h"
#include "net.h"
#include "program.h"
#include "root.h"
#include "volume.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CHANNEL_NAME "nibrunner.guest"
enum { CONSOLE_GRACE_MS = 10000 };
enum tag { CHANNEL_TAG, SIGNALS_TAG, STDOUT_TAG, STDERR_TAG, EXECUTED_TAG, VOLUME_TAG, PROBE_TAG, FLOW_TAG = PROBE_TAG + PROBES };

void say(const char *format, ...) {
	char text[MAX_REASON_BYTES];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	dprintf(2, "nibrunner: %s\n", text);
}

const char *sentence(const char *format, ...) {
	static char text[MAX_REASON_BYTES];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	return text;
}

static uint64_t now_ms(void) {
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void open_console(void) {
	mount("dev", "/dev", "devtmpfs", MS_NOSUID, "mode=0755");
	mount("proc", "/proc", "proc", 0, NULL);
	mount("sys", "/sys", "sysfs", 0, NULL);
	int console = open("/dev/console", O_WRONLY | O_NOCTTY | O_NONBLOCK);
	if (console < 0)
		console = open("/dev/null", O_RDWR);
	for (int fd = 0; fd < 3; fd++)
		dup2(console, fd);
	if (console > 2)
		close(console);
}

/* /modules/list names files in the order that their dependencies ask; what is loaded is not needed again. */
static void load_modules(void) {
	char name[64], path[80];
	FILE *list = fopen("/modules/list", "re");
	if (!list)
		say("there is no list of modules: %s", strerror(errno));
	while (list && fscanf(list, "%63s", name) == 1) {
		snprintf(path, sizeof path, "/modules/%s", name);
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || syscall(SYS_finit_module, fd, "", 0))
			say("module %s cannot be loaded: %s", name, strerror(errno));
		close(fd);
		unlink(path);
	}
	if (list)
		fclose(list);
}

/* The channel's device, once the host's side has told its name; -1 until then. */
static int open_channel(void) {
	char path[300], name[sizeof CHANNEL_NAME + 1];
	DIR *ports = opendir("/sys/class/virtio-ports");
	int channel = -1;
	for (struct dirent *port; ports && channel < 0 && (port = readdir(ports));) {
		snprintf(path, sizeof path, "/sys/class/virtio-ports/%s/name", port->d_name);
		FILE *file = fopen(path, "re");
		if (file && fscanf(file, "%16s", name) == 1 && strcmp(name, CHANNEL_NAME) == 0) {
			snprintf(path, sizeof path, "/dev/%s", port->d_name);
			channel = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
		}
		if (file)
			fclose(file);
	}
	if (ports)
		closedir(ports);
	return channel;
}

static int wait_for_channel(void) {
	int channel;
	for (int tries = 1; (channel = open_channel()) < 0; tries++) {
		if (tries % 10000 == 0)
			say("still no virtio port named %s", CHANNEL_NAME);
		usleep(1000);
	}
	return channel;
}

static void set_kernel(const char *path, const char *value) {
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, value, strlen(value)) < 0)
		say("%s cannot be set: %s", path, strerror(errno));
	close(fd);
}

bool machine_set_clock(uint64_t ms) {
	struct timespec time = { (time_t)(ms / 1000), (long)(ms % 1000) * 1000000 };
	return clock_settime(CLOCK_REALTIME, &time) == 0;
}

const char *machine_prepare(const struct boot_spec *spec) {
	const char *failure;
	if (!machine_set_clock(spec->host_time_ms) || sethostname(spec->hostname, strlen(spec->hostname)))
		return sentence("clock and hostname cannot be set: %s", strerror(errno));
	/* The program has the machine for itself: it may listen on any port. No namespace may give it more rights. */
	set_kernel("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
	set_kernel("/proc/sys/user/max_user_namespaces", "0");
	/*
	 * A connection that is over is forgotten at once. A guest that sleeps most of the time would remember it over many
	 * lives, and the host's user network counts anew in each: a new connection from the same port would be turned away
	 * as an old one, and tried again after 6 s.
	 */
	set_kernel("/proc/sys/net/ipv4/tcp_max_tw_buckets", "0");
	if ((failure = net_configure(spec)) || (failure = root_mount(spec)))
		return failure;
	return root_furnish(spec);
}

void machine_end(void) {
	program_kill();
	volume_end();
	root_unmount();
	/* Not power off: a machine without ACPI would only halt, while a reset ends every VMM that we run under. */
	reboot(RB_AUTOBOOT);
}

/* Takes what the host has sent, at most some pages at a time; true when there may be more. */
static bool read_channel(struct session *session, int channel) {
	static uint8_t bytes[4096];
	for (int turn = 0; turn < 16; turn++) {
		ssize_t count = read(channel, bytes, sizeof bytes);
		if (count <= 0)
			return false;
		session_feed(session, bytes, (size_t)count, now_ms());
	}
	return true;
}

static void write_channel(struct session *session, int channel) {
	const uint8_t *bytes;
	for (size_t count; (count = session_pending(session, &bytes)) > 0;) {
		ssize_t written = write(channel, bytes, count);
		if (written <= 0)
			return;
		session_wrote(session, (size_t)written);
	}
}

static void on_signals(struct supervisor *s, int signals) {
	struct signalfd_siginfo info;
	while (read(signals, &info, sizeof info) == sizeof info)
		if (info.ssi_signo != SIGCHLD)
			supervise_shutdown(s, CONSOLE_GRACE_MS, now_ms());
	program_reap(s, now_ms());
}

static int wait_ms(const uint64_t *due, size_t count, uint64_t now) {
	uint64_t first = 0;
	for (size_t i = 0; i < count; i++)
		if (due[i] && (!first || due[i] < first))
			first = due[i];
	if (!first)
		return -1;
	return first <= now ? 0 : first - now < 3600000 ? (int)(first - now) : 3600000;
}

static _Noreturn void serve(int epoll, int channel, int signals, struct session *session) {
	struct supervisor *s = &session->supervisor;
	struct epoll_event events[8];
	for (bool booted = false, more = true;;) {
		more = more && read_channel(session, channel);
		write_channel(session, channel);
		if (!booted && s->phase == STARTING) {
			booted = true;
			supervise_boot(s, now_ms());
		}
		supervise_tick(s, now_ms());
		const uint64_t due[] = { probe_tick(session, now_ms()), flows_tick(now_ms()), supervise_due(s) };
		write_channel(session, channel);
		int count = epoll_wait(epoll, events, 8, more ? 0 : wait_ms(due, sizeof due / sizeof *due, now_ms()));
		program_executed(s, now_ms());
		for (int i = 0; i < count; i++) {
			uint32_t tag = events[i].data.u32;
			if (tag == CHANNEL_TAG)
				more = true;
			else if (tag == SIGNALS_TAG)
				on_signals(s, signals);
			else if (tag == STDOUT_TAG || tag == STDERR_TAG)
				program_output(s, tag == STDOUT_TAG ? STREAM_STDOUT : STREAM_STDERR);
			else if (tag == VOLUME_TAG)
				volume_ready(s);
			else if (tag >= FLOW_TAG)
				flow_ready(session, tag - FLOW_TAG, now_ms());
			else if (tag >= PROBE_TAG)
				probe_ready(session, tag - PROBE_TAG);
		}
	}
}

static bool watch(int epoll, int fd, uint32_t events, enum tag tag) {
	struct epoll_event event = { .events = events, .data.u32 = tag };
	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

int main(void) {
	static struct session session;
	sigset_t mask;
	umask(022);
	open_console();
	reboot(RB_DISABLE_CAD);
	load_modules();
	unlink("/init");

	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGINT);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	int signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK), epoll = epoll_create1(EPOLL_CLOEXEC);
	int channel = wait_for_channel();
	probe_init(epoll, PROBE_TAG);
	flows_init(epoll, FLOW_TAG);
	volume_init(epoll, VOLUME_TAG);
	/* The channel by its edges: while the host is not connected, a level would be told for ever. */
	if (program_init(epoll, EXECUTED_TAG) && watch(epoll, signals, EPOLLIN, SIGNALS_TAG) &&
	    watch(epoll, program_stdout, EPOLLIN, STDOUT_TAG) && watch(epoll, program_stderr, EPOLLIN, STDERR_TAG) &&
	    watch(epoll, channel, EPOLLIN | EPOLLOUT | EPOLLET, CHANNEL_TAG))
		serve(epoll, channel, signals, &session);
	say("the guest cannot watch its descriptors: %s", strerror(errno));
	machine_end();
}
