/*
 * volume-bundle SOCKET EXPORT LEVEL [TIME]
 *
 * Writes a volume's bundle to the standard output, a gzipped tar: what its app has written, as `data/`. The volume is an
 * export of the NBD server at the unix socket SOCKET, and its filesystem is read in this program: no kernel mounts what a
 * tenant wrote. With TIME, in seconds since 1970, the standard input is the text of `.env`, which is put first.
 *
 * On stderr it says `{"usedBytes":N}` before the first byte, and after the last what was left out, each as a line; or one
 * sentence why there is no bundle, and ends with 1.
 */
#include "confine.h"
#include "device.h"
#include "fail.h"
#include "nbd.h"
#include "tar.h"
#include "walk.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_ENVIRONMENT (64u << 20)

static pid_t compressor;

void fail(const char *format, ...)
{
	char text[1024];
	va_list arguments;
	va_start(arguments, format);
	int length = vsnprintf(text, sizeof text - 1, format, arguments);
	va_end(arguments);
	if (length > (int)sizeof text - 2)
		length = sizeof text - 2;
	text[length] = '\n';
	if (write(STDERR_FILENO, text, (size_t)length + 1) < 0)
		_exit(2);
	_exit(1);
}

void *get_memory(size_t size)
{
	return more_memory(NULL, size);
}

void *more_memory(void *at, size_t size)
{
	void *made = realloc(at, size == 0 ? 1 : size);
	if (made == NULL)
		fail("the filesystem has more names or fragments than there is memory for");
	return made;
}

const char *printable(const char *name)
{
	static char text[210];
	size_t at = 0;
	for (; *name != 0 && at < 196; name++) {
		unsigned char byte = (unsigned char)*name;
		if (byte < ' ' || byte >= 127 || byte == '\\')
			at += (size_t)sprintf(text + at, "\\%03o", byte);
		else
			text[at++] = (char)byte;
	}
	strcpy(text + at, *name != 0 ? "..." : "");
	return text;
}

static const char *reason_of(errcode_t error)
{
	if (error == EXT2_ET_SHORT_READ)
		return nbd_reason();
	return error_message(error);
}

static ext2_filsys open_filesystem(void)
{
	ext2_filsys fs;
	errcode_t error = ext2fs_open2("volume", NULL, EXT2_FLAG_64BITS, 0, 0, &device_manager, &fs);
	if (error != 0)
		fail("the volume's filesystem cannot be opened: %s", reason_of(error));
	return fs;
}

static void put_environment(long long time)
{
	size_t length = 0, room = 65536;
	char *text = get_memory(room);
	for (;;) {
		ssize_t got = read(STDIN_FILENO, text + length, room - length);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			fail("the environment cannot be read: %s", strerror(errno));
		if (got == 0)
			break;
		length += (size_t)got;
		if (length > MOST_ENVIRONMENT)
			fail("the environment is too large");
		if (length == room)
			text = more_memory(text, room *= 2);
	}
	struct stamp stamp = { .seconds = time };
	struct entry_facts facts = { .path = ".env", .type = '0', .mode = 0600, .modified = stamp, .accessed = stamp,
		.size = length };
	tar_entry(&facts);
	tar_bytes(text, length);
	tar_end_bytes();
	free(text);
}

int main(int argc, char **argv)
{
	if (argc < 4 || argc > 5 || argv[3][0] < '1' || argv[3][0] > '9' || argv[3][1] != 0)
		fail("usage: volume-bundle SOCKET EXPORT LEVEL [TIME]");
	signal(SIGPIPE, SIG_IGN);
	int into;
	compressor = start_compressor(argv[3], &into);
	nbd_open(argv[1], argv[2]);
	confine();

	initialize_ext2_error_table();
	ext2_filsys fs = open_filesystem();
	if (ext2fs_has_feature_journal_needs_recovery(fs->super) && device_take_journal(fs) > 0) {
		/* the superblock and the groups may be newer in the journal too */
		ext2fs_close_free(&fs);
		fs = open_filesystem();
	}
	uint64_t used = (ext2fs_blocks_count(fs->super) - ext2fs_free_blocks_count(fs->super)) * fs->blocksize;
	fprintf(stderr, "{\"usedBytes\":%llu}\n", (unsigned long long)used);

	tar_begin(into);
	if (argc == 5)
		put_environment(strtoll(argv[4], NULL, 10));
	struct left_out left = archive_upper(fs);
	tar_end();
	close(into);
	int status;
	while (waitpid(compressor, &status, 0) < 0 && errno == EINTR)
		;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		fail("pigz failed");
	fprintf(stderr, "{\"sockets\":%llu,\"fifos\":%llu,\"devices\":%llu,\"tarBytes\":%llu}\n",
		(unsigned long long)left.sockets, (unsigned long long)left.fifos, (unsigned long long)left.devices,
		(unsigned long long)tar_written());
	return 0;
}
