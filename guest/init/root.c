#include "root.h"
#include "supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { TENANT = 65534, MAX_LAYERS = 20 };

/* `_IOW('f', 16, __u64)`: ext4 grows to so many blocks. */
#define EXT4_IOC_RESIZE_FS 0x40086610

static char failure[MAX_REASON_BYTES];

__attribute__((format(printf, 1, 2))) static const char *failed(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(failure, sizeof failure, format, arguments);
	va_end(arguments);
	return failure;
}

/* "squashfs" or "ext4" by its magic; NULL for anything else. */
static const char *filesystem_of(const char *device)
{
	uint8_t start[1024 + 58] = { 0 };
	int fd = open(device, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return NULL;
	ssize_t have = pread(fd, start, sizeof start, 0);
	close(fd);
	if (have < 0)
		return NULL;
	if (memcmp(start, "hsqs", 4) == 0)
		return "squashfs";
	if (start[1024 + 56] == 0x53 && start[1024 + 57] == 0xef)
		return "ext4";
	return NULL;
}

static const char *mount_layer(const char *device, const char *where, const char *what)
{
	const char *type = filesystem_of(device);

	if (!type)
		return failed("%s (%s) holds neither squashfs nor ext4", what, device);
	mkdir(where, 0755);
	/* An ext4 image that was left dirty mounts read-only in no other way than without its journal. */
	const char *options = type[0] == 'e' ? "noload" : "";
	if (mount(device, where, type, MS_RDONLY | MS_NOSUID | MS_NODEV, options))
		return failed("%s (%s) cannot be mounted: %s", what, device, strerror(errno));
	return NULL;
}

/* The volume's device may have grown since the filesystem was made; growing to the same size does nothing. */
static void grow_volume(const char *device)
{
	uint64_t bytes = 0, blocks;
	struct stat st;
	int disk = open(device, O_RDONLY | O_CLOEXEC), root = open("/volume", O_RDONLY | O_CLOEXEC);

	if (disk < 0 || root < 0 || ioctl(disk, BLKGETSIZE64, &bytes) || fstat(root, &st))
		say("the size of the volume cannot be read: %s", strerror(errno));
	else if ((blocks = bytes / (uint64_t)st.st_blksize) && ioctl(root, EXT4_IOC_RESIZE_FS, &blocks))
		say("the volume's filesystem cannot be grown to %llu blocks: %s", (unsigned long long)blocks,
		    strerror(errno));
	if (disk >= 0)
		close(disk);
	if (root >= 0)
		close(root);
}

static const char *mount_volume(const char *device)
{
	mkdir("/volume", 0755);
	if (mount(device, "/volume", "ext4", MS_NOSUID | MS_NODEV | MS_NOATIME, ""))
		return failed("the volume (%s) cannot be mounted: %s", device, strerror(errno));
	grow_volume(device);
	if ((mkdir("/volume/upper", 0755) && errno != EEXIST) || (mkdir("/volume/work", 0755) && errno != EEXIST))
		return failed("the volume (%s) cannot be written: %s", device, strerror(errno));
	return NULL;
}

const char *root_mount(const struct boot_spec *spec)
{
	char device[] = "/dev/vda", where[] = "/layer/a", what[32], lower[MAX_LAYERS * sizeof where + 16] = "";
	char options[sizeof lower + 128];
	const char *error;

	if (spec->layer_count > MAX_LAYERS)
		return failed("the boot spec names %u layers, and %d are the most", spec->layer_count, MAX_LAYERS);
	device[7] = (char)('a' + spec->layer_count + 1);
	if (access(device, F_OK))
		return failed("there is no drive %s, which %u layers ask for", device, spec->layer_count);
	if ((error = mount_volume(device)))
		return error;
	mkdir("/layer", 0755);
	for (int i = (int)spec->layer_count; i >= 0; i--) {
		device[7] = where[7] = (char)('a' + i);
		snprintf(what, sizeof what, i ? "layer %d" : "the base", i);
		if ((error = mount_layer(device, where, what)))
			return error;
		strcat(strcat(lower, i == (int)spec->layer_count ? "" : ":"), where);
	}
	/* Without redirects, what the volume holds means the same over other layers. */
	snprintf(options, sizeof options,
		 "lowerdir=%s,upperdir=/volume/upper,workdir=/volume/work,redirect_dir=off,metacopy=off,index=off",
		 lower);
	mkdir(ROOT, 0755);
	if (mount("overlay", ROOT, "overlay", MS_NOSUID | MS_NODEV | MS_NOATIME, options))
		return failed("the root cannot be stacked: %s", strerror(errno));
	return NULL;
}

/* From here on, paths are those of the program's root: PID 1 has entered it, so no symlink leads out of it. */

/* A directory at the path; whatever else stands there is replaced. */
static bool directory(const char *path, mode_t mode)
{
	struct stat st;

	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return true;
	unlink(path);
	return mkdir(path, mode) == 0;
}

static bool make_device(const char *path, mode_t mode, unsigned major, unsigned minor)
{
	return mknod(path, S_IFCHR | mode, makedev(major, minor)) == 0 && chmod(path, mode) == 0;
}

static const char *make_pseudo_filesystems(void)
{
	static const char *const places[] = { "/proc", "/dev", "/tmp", "/etc" };

	for (size_t i = 0; i < sizeof places / sizeof *places; i++)
		if (!directory(places[i], 0755))
			return failed("%s cannot be made: %s", places[i], strerror(errno));
	bool made = mount("dev", "/dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "size=64k,mode=0755") == 0 &&
		    make_device("/dev/null", 0666, 1, 3) && make_device("/dev/zero", 0666, 1, 5) &&
		    make_device("/dev/full", 0666, 1, 7) && make_device("/dev/random", 0666, 1, 8) &&
		    make_device("/dev/urandom", 0666, 1, 9) && make_device("/dev/tty", 0666, 5, 0) &&
		    symlink("pts/ptmx", "/dev/ptmx") == 0 && symlink("/proc/self/fd", "/dev/fd") == 0 &&
		    symlink("/proc/self/fd/0", "/dev/stdin") == 0 && symlink("/proc/self/fd/1", "/dev/stdout") == 0 &&
		    symlink("/proc/self/fd/2", "/dev/stderr") == 0 && mkdir("/dev/pts", 0755) == 0 &&
		    mkdir("/dev/shm", 01777) == 0 &&
		    mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
			  "newinstance,ptmxmode=0666,mode=0620,gid=5") == 0 &&
		    mount("shm", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "size=25%,mode=1777") == 0 &&
		    mount("tmp", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=25%,mode=1777") == 0;
	return made ? NULL : failed("the pseudo filesystems cannot be made: %s", strerror(errno));
}

static void write_resolv_conf(const struct boot_spec *spec)
{
	char text[256] = "";

	for (unsigned i = 0; i < spec->nameserver_count; i++) {
		size_t length = strlen(text);
		snprintf(text + length, sizeof text - length, "nameserver %.40s\n", spec->nameservers[i]);
	}
	if (unlink("/etc/resolv.conf") && errno == EISDIR)
		rmdir("/etc/resolv.conf");
	int fd = open("/etc/resolv.conf", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		say("/etc/resolv.conf cannot be written: %s", strerror(errno));
	if (fd >= 0)
		close(fd);
}

static const char *make_working_directory(char *path)
{
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		mkdir(path, 0755);
		*slash = '/';
	}
	if (mkdir(path, 0755) && errno != EEXIST)
		return failed("the working directory %s cannot be made: %s", path, strerror(errno));
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return failed("the working directory %s is no directory: %s", path, strerror(errno));
	int refused = fchown(fd, TENANT, TENANT);
	close(fd);
	return refused ? failed("the working directory %s cannot be given to uid %d: %s", path, TENANT, strerror(errno)) :
			 NULL;
}

static const char *look_at_program(const char *path)
{
	struct stat st;

	if (stat(path, &st)) {
		if (errno == ENOENT || errno == ENOTDIR)
			return failed("there is no program at %s in any layer", path);
		return failed("the program %s cannot be read: %s", path, strerror(errno));
	}
	if (!S_ISREG(st.st_mode))
		return failed("%s is not a file", path);
	setresgid(-1, TENANT, -1);
	setresuid(-1, TENANT, -1);
	long refused = syscall(SYS_faccessat2, AT_FDCWD, path, X_OK, AT_EACCESS);
	setresuid(-1, 0, -1);
	setresgid(-1, 0, -1);
	return refused ? failed("%s cannot be executed by uid %d", path, TENANT) : NULL;
}

const char *root_furnish(const struct boot_spec *spec)
{
	int outside = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const char *error;

	if (outside < 0 || chroot(ROOT) || chdir("/"))
		return failed("the root cannot be entered: %s", strerror(errno));
	error = make_pseudo_filesystems();
	if (!error) {
		write_resolv_conf(spec);
		error = make_working_directory(spec->working_directory);
	}
	if (!error)
		error = look_at_program(spec->program);
	if (fchdir(outside) || chroot("."))
		error = failed("the root cannot be left: %s", strerror(errno));
	close(outside);
	return error;
}

void root_unmount(void)
{
	static const char *const places[] = { ROOT "/dev/shm", ROOT "/dev/pts", ROOT "/dev", ROOT "/tmp", ROOT };

	sync();
	for (size_t i = 0; i < sizeof places / sizeof *places; i++)
		umount2(places[i], MNT_DETACH);
	/* The program's mount namespace may need a moment to let go of the volume. */
	for (int tries = 0; umount2("/volume", 0) && errno == EBUSY && tries < 50; tries++)
		usleep(10000);
	mount(NULL, "/volume", NULL, MS_REMOUNT | MS_RDONLY, NULL);
	sync();
}
