/*
 * MOUNT: late mounts, where they may go and what is made for them.
 */
#include "tests/sandbox/init_harness.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"
#include "supervisor/sandbox/mount_attach.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static struct harness harness;
static struct harness_result result;
static char host_dir[] = "/tmp/sandpool-mount-XXXXXX";
static char host_file[64];

static void set_up(void)
{
	int fd;

	if (init_harness_missing())
		cr_skip("%s", init_harness_missing());
	harness_ready(&harness, NULL);
	cr_assert(mkdtemp(host_dir));
	cr_assert_eq(chmod(host_dir, 0777), 0);
	(void)snprintf(host_file, sizeof(host_file), "%s/file", host_dir);
	fd = open(host_file, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	cr_assert_eq(write(fd, "content\n", 8), 8);
	(void)close(fd);
}

static void tear_down(void)
{
	char command[128];

	if (harness.launcher == 0)
		return;
	harness_stop(&harness);
	(void)snprintf(command, sizeof(command), "rm -rf %s", host_dir);
	cr_assert_eq(system(command), 0);
}

TestSuite(init_mount, .init = set_up, .fini = tear_down);

static int mount_dir(const char *target, union harness_answer *ret)
{
	int fd = harness_clone(host_dir, false);
	int status = harness_mount(&harness, fd, target, ret);

	(void)close(fd);
	return status;
}

static void expect_refused(const char *target, int status, const char *stage)
{
	union harness_answer answer;

	cr_assert_eq(mount_dir(target, &answer), status, "'%s': %s", target,
		     strerror(-answer.status.status));
	cr_assert_str_eq(answer.status.stage, stage, "'%s': %s", target, answer.status.stage);
}

static void expect_content(const char *path)
{
	char script[256];

	(void)snprintf(script, sizeof(script), "cat %s", path);
	harness_shell(&harness, script, &result);
	cr_assert_str_eq(result.output, "content\n", "%s: %s", path, result.output);
}

Test(init_mount, on_a_writable_place)
{
	cr_assert_eq(mount_dir("/workspace", NULL), 0);
	expect_content("/workspace/file");
	harness_shell(&harness, "echo x >/workspace/new && cat /workspace/new", &result);
	cr_assert_str_eq(result.output, "x\n");
}

Test(init_mount, makes_the_mount_point_on_the_skeleton)
{
	cr_assert_eq(mount_dir("/made/deep/down", NULL), 0);
	expect_content("/made/deep/down/file");
	/* The skeleton itself stays read-only to workloads. */
	harness_shell(&harness, "mkdir /made/x 2>&1 | grep -c Read-only", &result);
	cr_assert_str_eq(result.output, "1\n");
}

Test(init_mount, makes_the_mount_point_on_a_writable_place)
{
	cr_assert_eq(mount_dir("/workspace/a/b", NULL), 0);
	expect_content("/workspace/a/b/file");
	cr_assert_eq(mount_dir("/srv/a", NULL), 0);
	expect_content("/srv/a/file");
}

Test(init_mount, a_file_gets_a_file)
{
	int fd = harness_clone(host_file, true);

	cr_assert_eq(harness_mount(&harness, fd, "/workspace/deep/name", NULL), 0);
	(void)close(fd);
	expect_content("/workspace/deep/name");
}

Test(init_mount, kinds_must_agree)
{
	union harness_answer answer;
	int fd = harness_clone(host_file, true);

	cr_assert_eq(harness_mount(&harness, fd, "/workspace", &answer), -EISDIR);
	cr_assert_str_eq(answer.status.stage, "target");
	(void)close(fd);
	expect_refused("/usr/bin/python3.11", -ENOTDIR, "target");
}

Test(init_mount, nothing_is_made_on_the_host)
{
	expect_refused("/usr/lib/not-there", -ENOENT, "no_mount_point");
	cr_assert_eq(mount_dir("/workspace", NULL), 0);
	/* Writable, but the host's directory. */
	expect_refused("/workspace/not-there", -ENOENT, "no_mount_point");
	cr_assert_eq(access(host_file, F_OK), 0);
	(void)snprintf(host_file, sizeof(host_file), "%s/not-there", host_dir);
	cr_assert_neq(access(host_file, F_OK), 0);
}

Test(init_mount, over_an_existing_directory_of_the_host)
{
	cr_assert_eq(mount_dir("/usr/lib", NULL), 0);
}

Test(init_mount, some_places_are_no_targets)
{
	static const char *const never[] = {"/",      "/proc",       "/proc/self", "/proc/sys/x",
					    "/dev",   "/dev/shm",    "/etc",       "/etc/passwd",
					    "/.init", "/.init/proc", "/sys"};

	for (size_t i = 0; i < SP_ARRAY_SIZE(never); i++)
		expect_refused(never[i], -EPERM, "target");
	cr_assert_eq(mount_dir("/processes", NULL), 0);
	cr_assert_eq(mount_dir("/etcetera", NULL), 0);
}

Test(init_mount, paths_must_be_normal)
{
	static const char *const bad[] = {"workspace",     "//workspace", "/workspace/",
					  "/workspace/.",  "/tmp/../etc", "/./etc",
					  "/workspace/..", "/tmp//x"};

	for (size_t i = 0; i < SP_ARRAY_SIZE(bad); i++)
		expect_refused(bad[i], -EINVAL, "target");
}

Test(init_mount, no_symlink_is_followed)
{
	harness_shell(&harness, "ln -s /usr /tmp/link; ln -s /proc /tmp/proc", &result);
	expect_refused("/tmp/link", -ELOOP, "target");
	expect_refused("/tmp/link/lib", -ELOOP, "target");
	expect_refused("/tmp/proc/sys", -ELOOP, "target");
	expect_refused("/bin", -ELOOP, "target");
}

/* A workload puts links and other directories in the way all the time. */
#define SWAPPER                                                                     \
	"import os\n"                                                               \
	"def t(f, *a):\n"                                                           \
	"    try: f(*a)\n"                                                          \
	"    except OSError: pass\n"                                                \
	"x, n = '/workspace/x', 0\n"                                                \
	"while True:\n"                                                             \
	"    n += 1\n"                                                              \
	"    t(os.rename, x + '/y', f'{x}y{n}'); t(os.symlink, '/usr', x + '/y')\n" \
	"    t(os.unlink, x + '/y'); t(os.mkdir, x + '/y')\n"                       \
	"    t(os.rename, x, f'{x}{n}'); t(os.symlink, '/', x)\n"                   \
	"    t(os.unlink, x); t(os.makedirs, x + '/y')\n"

Test(init_mount, swapped_directories_lead_nowhere)
{
	const char *const argv[] = {"/usr/bin/python3", "-c", SWAPPER, NULL};
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	const int fds[3] = {null_fd, null_fd, null_fd};
	int64_t end_ms = sp_clock_boot_ms() + HARNESS_WAIT_MS;
	union harness_answer answer;
	unsigned int attached = 0;
	unsigned int refused = 0;

	(void)harness_exec(&harness, &(struct harness_exec){.argv = argv}, fds, 3);
	(void)close(null_fd);
	harness_expect(&harness, SP_INIT_STARTED, &answer);
	while ((attached < 20 || refused < 20) && sp_clock_boot_ms() < end_ms) {
		if (mount_dir("/workspace/x/y/bin", NULL) == 0)
			attached++;
		else
			refused++;
	}
	cr_assert(attached > 0 && refused > 0, "%u, %u", attached, refused);
	harness_shell(&harness,
		      "grep -F /sandpool-mount- /proc/self/mountinfo | cut -d' ' -f5 | "
		      "grep -v ^/workspace/; ls -d /y /usr/bin/bin /bin/sh 2>/dev/null",
		      &result);
	cr_assert_str_eq(result.output, "/bin/sh\n", "%s", result.output);
}

Test(init_mount, attributes_are_enforced)
{
	int fd = open_tree(AT_FDCWD, host_dir, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

	cr_assert(fd >= 0);
	cr_assert_eq(harness_mount(&harness, fd, "/workspace", NULL), 0);
	(void)close(fd);
	harness_shell(&harness,
		      "grep ' /workspace ' /proc/self/mountinfo | tail -n1 | "
		      "grep nosuid | grep nodev | grep -vc shared:",
		      &result);
	cr_assert_str_eq(result.output, "1\n");
}

Test(init_mount, what_is_attached_elsewhere_is_refused)
{
	union harness_answer answer;
	int fd = open(host_dir, O_PATH | O_CLOEXEC);

	cr_assert_eq(harness_mount(&harness, fd, "/workspace", &answer), -EINVAL);
	cr_assert_str_eq(answer.status.stage, "attributes");
	(void)close(fd);
}

Test(init_mount, what_is_no_mount_is_refused)
{
	union harness_answer answer;
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	cr_assert_eq(harness_mount(&harness, fd, "/workspace", &answer), -EBADMSG);
	cr_assert_str_eq(answer.status.stage, "descriptor");
	(void)close(fd);
}

Test(init_mount, read_only_stays_read_only)
{
	int fd = harness_clone(host_dir, true);

	cr_assert_eq(harness_mount(&harness, fd, "/data", NULL), 0);
	(void)close(fd);
	harness_shell(&harness, "touch /data/x 2>&1 | grep -c Read-only", &result);
	cr_assert_str_eq(result.output, "1\n");
}

Test(init_mount, target_length_at_its_limit)
{
	struct {
		struct sp_init_mount record;
		char target[SP_INIT_TARGET_MAX + 1];
	} message = {.record.header = {.type = SP_INIT_MOUNT}};
	union harness_answer answer;
	int fd = harness_clone(host_dir, false);

	memset(message.target, 'x', sizeof(message.target));
	message.target[0] = '/';
	message.target[SP_INIT_TARGET_MAX - 1] = '\0';
	message.record.target_length = SP_INIT_TARGET_MAX - 1;
	harness_send(&harness, &message, sizeof(message.record) + SP_INIT_TARGET_MAX, &fd, 1);
	harness_expect(&harness, SP_INIT_MOUNTED, &answer);
	cr_assert_eq(answer.status.status, -EINVAL, "one component of 4094 bytes");
	message.target[SP_INIT_TARGET_MAX - 1] = 'x';
	message.target[SP_INIT_TARGET_MAX] = '\0';
	message.record.target_length = SP_INIT_TARGET_MAX;
	harness_send(&harness, &message, sizeof(message.record) + SP_INIT_TARGET_MAX + 1, &fd, 1);
	harness_expect(&harness, SP_INIT_MOUNTED, &answer);
	cr_assert_eq(answer.status.status, -EBADMSG);
	(void)close(fd);
}

/* ---- overlays ---- */

#define OVERLAY_BYTES (UINT64_C(1) << 20)

static int mount_overlay(const char *target, uint32_t number, uint64_t size, int fd,
			 union harness_answer *ret)
{
	struct {
		struct sp_init_mount record;
		char target[SP_INIT_TARGET_MAX];
	} message = {
		.record = {.header = {.type = SP_INIT_MOUNT, .exec = number},
			   .flags = SP_INIT_MOUNT_F_OVERLAY,
			   .target_length = (uint32_t)strlen(target),
			   .size = size},
	};

	memcpy(message.target, target, strlen(target));
	harness_send(&harness, &message, sizeof(message.record) + strlen(target) + 1, &fd, 1);
	harness_expect(&harness, SP_INIT_MOUNTED, ret);
	return ret->status.status;
}

static void expect_overlay(const char *target, uint32_t number, uint64_t size, int status,
			   const char *stage)
{
	union harness_answer answer;
	int fd = harness_clone(host_dir, false);

	cr_assert_eq(mount_overlay(target, number, size, fd, &answer), status, "'%s': %s: %s",
		     target, answer.status.stage, strerror(-answer.status.status));
	if (status < 0)
		cr_assert_str_eq(answer.status.stage, stage, "'%s': %s", target,
				 answer.status.stage);
	(void)close(fd);
}

Test(init_mount, an_overlay_keeps_what_is_written)
{
	char path[64];

	expect_overlay("/workspace", 1, OVERLAY_BYTES, 0, NULL);
	expect_content("/workspace/file");
	harness_shell(&harness, "rm -r /workspace/* && mkdir /workspace/file && ls /workspace/file",
		      &result);
	cr_assert_str_eq(result.output, "", "%s", result.output);
	cr_assert_eq(access(host_file, F_OK), 0);
	(void)snprintf(path, sizeof(path), "%s/.sandpool", host_dir);
	cr_assert_neq(access(path, F_OK), 0);
	harness_shell(&harness, "ls /.init /.init/overlay/1/lower 2>&1 | grep -c denied", &result);
	cr_assert_str_eq(result.output, "2\n", "%s", result.output);
}

Test(init_mount, an_overlay_is_as_large_as_was_asked)
{
	expect_overlay("/workspace", 1, OVERLAY_BYTES, 0, NULL);
	expect_overlay("/srv/other", 2, 2 * OVERLAY_BYTES, 0, NULL);
	/* Blocks of the tmpfs, less one page for each of what it has. */
	harness_shell(&harness,
		      "for i in /workspace /srv/other; do head -c 1500000 /dev/zero >$i/zeros "
		      "2>/dev/null; echo $?; done",
		      &result);
	cr_assert_str_eq(result.output, "1\n0\n", "%s", result.output);
}

static uint64_t used_bytes(void)
{
	union harness_answer answer;

	harness_plain(&harness, SP_INIT_USAGE, 0);
	harness_expect(&harness, SP_INIT_USED, &answer);
	return answer.used.bytes;
}

Test(init_mount, what_is_written_to_overlays_is_measured)
{
	const uint64_t slack = 256 * SP_KIB; /* directories, and whole pages */

	cr_assert_eq(used_bytes(), 0);
	expect_overlay("/workspace", 1, 4 * OVERLAY_BYTES, 0, NULL);
	expect_overlay("/srv/other", 2, 4 * OVERLAY_BYTES, 0, NULL);
	expect_overlay("/proc", 3, 4 * OVERLAY_BYTES, -EPERM, "target");
	cr_assert_leq(used_bytes(), slack);
	harness_shell(&harness,
		      "head -c 3000000 /dev/zero >/tmp/x; head -c 1048576 /dev/zero >/workspace/x;"
		      "head -c 2097152 /dev/zero >/srv/other/x",
		      &result);
	cr_assert_geq(used_bytes(), 3 * SP_MIB);
	cr_assert_leq(used_bytes(), 3 * SP_MIB + slack, "and nothing else");
	harness_shell(&harness, "rm /srv/other/x", &result);
	cr_assert_leq(used_bytes(), SP_MIB + slack);
}

Test(init_mount, overlays_have_their_numbers)
{
	union harness_answer answer;
	char target[32];
	int fd;

	for (uint32_t i = 1; i <= SP_INIT_OVERLAYS_MAX; i++) {
		(void)snprintf(target, sizeof(target), "/srv/%u", i);
		expect_overlay(target, i, OVERLAY_BYTES, 0, NULL);
	}
	expect_overlay("/srv/again", 1, OVERLAY_BYTES, -EEXIST, "overlay");
	fd = harness_clone(host_dir, false);
	cr_assert_eq(mount_overlay("/srv/0", 0, OVERLAY_BYTES, fd, &answer), -EBADMSG);
	cr_assert_eq(mount_overlay("/srv/x", SP_INIT_OVERLAYS_MAX + 1, OVERLAY_BYTES, fd, &answer),
		     -EBADMSG);
	cr_assert_eq(mount_overlay("/srv/x", 1, 0, fd, &answer), -EBADMSG);
	(void)close(fd);
}

Test(init_mount, an_overlay_needs_a_directory_and_covers_nothing)
{
	union harness_answer answer;
	int fd = harness_clone(host_file, false);

	cr_assert_eq(mount_overlay("/workspace/name", 1, OVERLAY_BYTES, fd, &answer), -ENOTDIR);
	(void)close(fd);
	expect_overlay("/proc", 1, OVERLAY_BYTES, -EPERM, "target");
	expect_overlay("/.init/overlay", 1, OVERLAY_BYTES, -EPERM, "target");
	expect_overlay("/usr/lib/not-there", 1, OVERLAY_BYTES, -ENOENT, "no_mount_point");
	/* The table hides something below it. */
	expect_overlay("/usr", 1, OVERLAY_BYTES, -EBUSY, "covers");
	expect_overlay("/workspace", 1, OVERLAY_BYTES, 0, NULL);
}
