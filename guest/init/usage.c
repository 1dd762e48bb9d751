/* What this machine uses: its volume, memory, processors and network. */
#include "session.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* The start of a file of the kernel's, as text. */
static const char *start_of(const char *path) {
	static char text[1024];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t count = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	text[count < 0 ? 0 : count] = 0;
	if (fd >= 0)
		close(fd);
	return text;
}

static uint64_t number_in(const char *text, const char *name) {
	const char *at = name ? strstr(text, name) : text;
	uint64_t number = 0;
	if (at)
		sscanf(at + (name ? strlen(name) : 0), "%" SCNu64, &number);
	return number;
}

static uint64_t without(uint64_t whole, uint64_t part) {
	return whole > part ? whole - part : 0;
}

static void volume_usage(uint64_t *numbers) {
	struct statvfs fs;
	struct stat volume, above;
	/* Before it is mounted, the directory is one of the initramfs. */
	if (stat("/volume", &volume) || stat("/", &above) || volume.st_dev == above.st_dev || statvfs("/volume", &fs))
		return;
	numbers[VOLUME_TOTAL] = (uint64_t)fs.f_blocks * fs.f_frsize;
	numbers[VOLUME_USED] = without(fs.f_blocks, fs.f_bfree) * fs.f_frsize;
}

static void memory_usage(uint64_t *numbers) {
	const char *text = start_of("/proc/meminfo");
	uint64_t total = number_in(text, "MemTotal:");
	numbers[MEMORY_TOTAL] = total * 1024;
	numbers[MEMORY_USED] = without(total, number_in(text, "MemAvailable:")) * 1024;
}

/* Stolen time is none that this machine has used, and idle or waiting none that it was busy. */
static void cpu_usage(uint64_t *numbers) {
	uint64_t user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, softirq = 0, steal = 0;
	sscanf(start_of("/proc/stat"),
	       "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &user, &nice,
	       &system, &idle, &wait, &irq, &softirq, &steal);
	numbers[CPU_BUSY] = user + nice + system + irq + softirq;
	numbers[CPU_TOTAL] = numbers[CPU_BUSY] + idle + wait + steal;
}

void machine_usage(struct usage *usage) {
	volume_usage(usage->numbers);
	memory_usage(usage->numbers);
	cpu_usage(usage->numbers);
	usage->numbers[RECEIVED] = number_in(start_of("/sys/class/net/eth0/statistics/rx_bytes"), NULL);
	usage->numbers[SENT] = number_in(start_of("/sys/class/net/eth0/statistics/tx_bytes"), NULL);
}
