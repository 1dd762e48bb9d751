#include "root.h"
#include "supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { MAX_LAYERS = 20 };
/* `_IOW('f', 16, __u64)`: ext4 grows to so many blocks. */
#define EXT4_IOC_RESIZE_FS 0x40086610

/* By its magic; NULL for anything else. */
static const char *filesystem_of(const char *device) {
	uint8_t start[1024 + 58] = { 0 };
	int fd = open(device, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, start, sizeof start) < 0)
		say("%s cannot be read: %s", device, strerror(errno));
	close(fd);
	bool ext4 = start[1024 + 56] == 0x53 && start[1024 + 57] == 0xef;
	return memcmp(start, "hsqs", 4) == 0 ? "squashfs" : ext4 ? "ext4" : NULL;
}

static const char *mount_layer(const char *device, const char *where, const char *what) {
	const char *type = filesystem_of(device);
	if (!type)
		return sentence("%s (%s) holds neither squashfs nor ext4", what, device);
	mkdir(where, 0755);
	/* An ext4 image that was left dirty mounts read-only in no other way than without its journal. */
	const char *options = type[0] == 'e' ? "noload" : "";
	if (mount(device, where, type, MS_RDONLY | MS_NOSUID | MS_NODEV, options))
		return sentence("%s (%s) cannot be mounted: %s", what, device, strerror(errno));
	return NULL;
}

/* The device may have grown since the filesystem was made. Growing to the size that it has does nothing. */
static void grow_volume(const char *device) {
	uint64_t size = 0;
	struct stat st;
	int disk = open(device, O_RDONLY | O_CLOEXEC), root = open("/volume", O_RDONLY | O_CLOEXEC);
	bool known = disk >= 0 && root >= 0 && ioctl(disk, BLKGETSIZE64, &size) == 0 && fstat(root, &st) == 0;
	uint64_t blocks = known ? size / (uint64_t)st.st_blksize : 0;
	if (!known || ioctl(root, EXT4_IOC_RESIZE_FS, &blocks))
		say("the volume's filesystem cannot be grown: %s", strerror(errno));
	close(disk);
	close(root);
}

static const char *mount_volume(const char *device) {
	mkdir("/volume", 0755);
	if (mount(device, "/volume", "ext4", MS_NOSUID | MS_NODEV | MS_NOATIME, ""))
		return sentence("the volume (%s) cannot be mounted: %s", device, strerror(errno));
	grow_volume(device);
	if ((mkdir("/volume/upper", 0755) && errno != EEXIST) || (mkdir("/volume/work", 0755) && errno != EEXIST))
		return sentence("the volume (%s) cannot be written: %s", device, strerror(errno));
	return NULL;
}

const char *root_mount(const struct boot_spec *spec) {
	char device[] = "/dev/vda", where[] = "/layer/a", what[32], options[MAX_LAYERS * sizeof where + 256] = "lowerdir=";
	const char *failure;
	if (spec->layer_count > MAX_LAYERS)
		return sentence("the boot spec names %u layers, and %d are the most", spec->layer_count, MAX_LAYERS);
	device[7] = (char)('a' + spec->layer_count + 1);
	if (access(device, F_OK))
		return sentence("there is no drive %s, which %u layers and a volume ask for", device, spec->layer_count);
	if ((failure = mount_volume(device)))
		return failure;
	mkdir("/layer", 0755);
	for (unsigned i = spec->layer_count + 1; i-- > 0;) {
		device[7] = where[7] = (char)('a' + i);
		snprintf(what, sizeof what, i ? "layer %u" : "the base", i);
		if ((failure = mount_layer(device, where, what)))
			return failure;
		strcat(strcat(options, where), i ? ":" : ",");
	}
	/* Without redirects, what the volume holds means the same over other layers. */
	strcat(options, "upperdir=/volume/upper,workdir=/volume/work,redirect_dir=nofollow,metacopy=off,index=off");
	mkdir(ROOT, 0755);
	if (mount("overlay", ROOT, "overlay", MS_NOSUID | MS_NODEV | MS_NOATIME, options))
		return sentence("the root cannot be stacked: %s", strerror(errno));
	return NULL;
}

/* From here on paths are those of the program's root: PID 1 has entered it, so that no symlink leads out of it. */

/* A directory, in place of whatever else stands there. */
static bool directory(const char *path) {
	struct stat st;
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return true;
	unlink(path);
	return mkdir(path, 0755) == 0;
}

static bool device(const char *path, unsigned major, unsigned minor) {
	return mknod(path, S_IFCHR | 0666, makedev(major, minor)) == 0 && chmod(path, 0666) == 0;
}

static bool small_dev(void) {
	return mount("dev", "/dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "size=64k,mode=0755") == 0 &&
	       device("/dev/null", 1, 3) && device("/dev/zero", 1, 5) && device("/dev/full", 1, 7) &&
	       device("/dev/random", 1, 8) && device("/dev/urandom", 1, 9) && device("/dev/tty", 5, 0) &&
	       symlink("pts/ptmx", "/dev/ptmx") == 0 && symlink("/proc/self/fd", "/dev/fd") == 0 &&
	       symlink("/proc/self/fd/0", "/dev/stdin") == 0 && symlink("/proc/self/fd/1", "/dev/stdout") == 0 &&
	       symlink("/proc/self/fd/2", "/dev/stderr") == 0 && mkdir("/dev/pts", 0755) == 0 &&
	       mkdir("/dev/shm", 0755) == 0 &&
	       mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5") == 0;
}

static const char *pseudo_filesystems(void) {
	const unsigned long flags = MS_NOSUID | MS_NODEV;
	if (!directory("/proc") || !directory("/dev") || !directory("/tmp") || !directory("/etc") || !small_dev() ||
	    mount("shm", "/dev/shm", "tmpfs", flags, "size=25%,mode=1777") ||
	    mount("tmp", "/tmp", "tmpfs", flags, "size=25%,mode=1777"))
		return sentence("the pseudo filesystems of the root cannot be made: %s", strerror(errno));
	return NULL;
}

static void resolv_conf(const struct boot_spec *spec) {
	char text[MAX_NAMESERVERS * 64] = "";
	for (unsigned i = 0; i < spec->nameserver_count; i++)
		snprintf(text + strlen(text), 64, "nameserver %.40s\n", spec->nameservers[i]);
	if (unlink("/etc/resolv.conf") && errno == EISDIR)
		rmdir("/etc/resolv.conf");
	int fd = open("/etc/resolv.conf", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		say("/etc/resolv.conf cannot be written: %s", strerror(errno));
	close(fd);
}

static const char *working_directory(char *path) {
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		mkdir(path, 0755);
		*slash = '/';
	}
	if (mkdir(path, 0755) && errno != EEXIST)
		return sentence("the working directory %s cannot be made: %s", path, strerror(errno));
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const char *failure = NULL;
	if (fd < 0)
		failure = sentence("the working directory %s cannot be used: %s", path, strerror(errno));
	else if (fchown(fd, TENANT, TENANT))
		failure = sentence("the working directory %s cannot be given to uid %d: %s", path, TENANT, strerror(errno));
	close(fd);
	return failure;
}

static const char *look_at_program(const char *path) {
	struct stat st;
	if (stat(path, &st)) {
		bool absent = errno == ENOENT || errno == ENOTDIR;
		return absent ? sentence("there is no program at %s in any layer", path) :
				sentence("the program %s cannot be read: %s", path, strerror(errno));
	}
	if (!S_ISREG(st.st_mode))
		return sentence("%s is not a file", path);
	bool changed = setresgid(-1, TENANT, -1) == 0 && setresuid(-1, TENANT, -1) == 0;
	bool allowed = changed && syscall(SYS_faccessat2, AT_FDCWD, path, X_OK, AT_EACCESS) == 0;
	if (setresuid(-1, 0, -1) || setresgid(-1, 0, -1))
		return sentence("the guest cannot be root again: %s", strerror(errno));
	return allowed ? NULL : sentence("%s cannot be executed by uid %d", path, TENANT);
}

const char *root_furnish(const struct boot_spec *spec) {
	const char *failure;
	int outside = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (outside < 0 || chroot(ROOT) || chdir("/"))
		return sentence("the root cannot be entered: %s", strerror(errno));
	if (!(failure = pseudo_filesystems())) {
		resolv_conf(spec);
		if (!(failure = working_directory(spec->working_directory)))
			failure = look_at_program(spec->program);
	}
	if (fchdir(outside) || chroot("."))
		failure = sentence("the root cannot be left: %s", strerror(errno));
	close(outside);
	return failure;
}

void root_unmount(void) {
	static const char *const places[] = { ROOT "/dev/shm", ROOT "/dev/pts", ROOT "/dev", ROOT "/tmp", ROOT, "/volume" };
	sync();
	for (size_t i = 0; i < sizeof places / sizeof *places; i++)
		/* The last process of the program may need a moment to let go. */
		for (int tries = 0; umount2(places[i], 0) && errno == EBUSY && tries < 50; tries++)
			usleep(10000);
	mount(NULL, "/volume", NULL, MS_REMOUNT | MS_RDONLY, NULL);
	sync();
}
