/*
 * Prints the frequency of this machine's TSC in kHz: a guest whose processor is emulated is told it, since its own
 * measurement against an emulated timer hangs when the host is busy. The shortest of several readings around
 * each end is taken, so that being descheduled in between does not count.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

struct instant {
	uint64_t ticks, nanoseconds;
};

static uint64_t nanoseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static struct instant read_both(void)
{
	struct instant best = { 0, 0 };
	uint64_t shortest = UINT64_MAX;

	for (int i = 0; i < 20; i++) {
		uint64_t before = __rdtsc(), now = nanoseconds(), after = __rdtsc();
		if (after - before < shortest) {
			shortest = after - before;
			best = (struct instant){ before + (after - before) / 2, now };
		}
	}
	return best;
}

int main(void)
{
	const struct timespec pause = { 0, 100000000 };
	struct instant start = read_both();

	nanosleep(&pause, NULL);
	struct instant end = read_both();
	uint64_t elapsed = end.nanoseconds - start.nanoseconds;
	if (end.ticks <= start.ticks || elapsed == 0) {
		fputs("the TSC of this machine does not count\n", stderr);
		return 1;
	}
	printf("%llu\n", (unsigned long long)((end.ticks - start.ticks) * (__uint128_t)1000000 / elapsed));
	return 0;
}
