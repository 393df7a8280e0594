/*
 * Bind sources: what is refused, whose files they are inside, and that nothing reaches the host.
 */
#include "tests/sandbox/launcher_harness.h"

#include "pool/base/fd.h"
#include "supervisor/sandbox/file_system.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define OWNER 2345u

static void skip_if_missing(void)
{
	if (play_missing())
		cr_skip_test("%s", play_missing());
}

TestSuite(launcher_bind, .init = skip_if_missing, .timeout = 120);

/* Roots: 0 usual, 1 read-only, 2 recursive, 3 missing, 4 root-owned. */
enum { ROOT_USUAL, ROOT_READ_ONLY, ROOT_RECURSIVE, ROOT_MISSING, ROOT_ROOTS };

static void make(const char *dir, const char *name, bool is_dir, uid_t uid, mode_t mode)
{
	char path[256];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (is_dir) {
		cr_assert(mkdir(path, 0755) == 0);
	} else {
		fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		cr_assert(fd >= 0 && sp_write_all(fd, name, strlen(name)) == 0 && close(fd) == 0);
	}
	cr_assert(chown(path, uid, uid) == 0 && chmod(path, mode) == 0);
}

static void add_root(struct sp_table_pool *pool, const char *dir, const char *name, uint32_t flags)
{
	struct sp_table_root *root = &pool->roots[pool->root_count++];

	root->flags = flags;
	(void)snprintf(root->path, sizeof(root->path), "%s/%s", dir, name);
}

static void begin(struct play *play, struct play_sandbox *sandbox)
{
	struct sp_table *table = play_table(play, 1);
	struct sp_table_pool *pool = play_pool(table, 0);

	make(play->dir, "work", true, 0, 0755);
	make(play->dir, "work/session", true, OWNER, 0700);
	make(play->dir, "work/session/private", false, OWNER, 0600);
	make(play->dir, "work/session/foreign", false, OWNER + 1, 0644);
	make(play->dir, "work/owned-by-root", true, 0, 0755);
	make(play->dir, "work/owned-by-root/secret", false, 0, 0600);
	make(play->dir, "work/owned-by-root/public", false, 0, 0644);
	make(play->dir, "work/file", false, OWNER, 0644);
	make(play->dir, "workspace-next-door", true, OWNER, 0755);
	{
		char path[256];

		(void)snprintf(path, sizeof(path), "%s/work/link", play->dir);
		cr_assert(symlink("session", path) == 0);
		(void)snprintf(path, sizeof(path), "%s/work/out", play->dir);
		cr_assert(symlink("/etc", path) == 0);
		(void)snprintf(path, sizeof(path), "%s/work/fifo", play->dir);
		cr_assert(mkfifo(path, 0666) == 0);
	}
	add_root(pool, play->dir, "work", 0);
	add_root(pool, play->dir, "work", SP_ROOT_F_READ_ONLY);
	add_root(pool, play->dir, "work", SP_ROOT_F_RECURSIVE);
	add_root(pool, play->dir, "not-there", 0);
	play_start(play, table);
	play_ready(play, 0, sandbox);
	free(table);
}

static void end(struct play *play, struct play_sandbox *sandbox)
{
	(void)play_kill(play, sandbox);
	play_stop(play);
	play_clean(play);
}

static uint64_t ask(struct play *play, struct play_sandbox *sandbox, uint32_t root,
		    const char *path, uint32_t flags)
{
	struct sp_launcher_bind bind = {
		.header.type = SP_LAUNCHER_BIND,
		.slot = sandbox->slot,
		.serial = sandbox->serial,
		.root_index = root,
		.flags = flags,
		.owner_uid = 1000,
		.owner_gid = 1000,
		.path_length = (uint32_t)strlen(path),
	};

	(void)snprintf(bind.path, sizeof(bind.path), "%s", path);
	return play_send(play, &bind, offsetof(struct sp_launcher_bind, path) + strlen(path) + 1);
}

static int bound(struct play *play, struct play_sandbox *sandbox, uint32_t root, const char *path,
		 uint32_t flags)
{
	struct play_answer answer;

	play_expect(play, SP_LAUNCHER_BOUND, ask(play, sandbox, root, path, flags), &answer);
	cr_assert(answer.fd_count == 1);
	return answer.fds[0];
}

static void refused(struct play *play, struct play_sandbox *sandbox, uint32_t root,
		    const char *path, uint32_t flags, int status, const char *stage)
{
	struct play_answer answer;

	play_expect_failure(play, ask(play, sandbox, root, path, flags), status, &answer);
	cr_assert_str_eq(answer.record.stage, stage);
}

Test(launcher_bind, gives_the_workload_what_the_owner_has)
{
	struct play play;
	struct play_sandbox sandbox;
	char output[512];
	char path[256];
	struct stat info;
	int fd;

	begin(&play, &sandbox);
	fd = bound(&play, &sandbox, ROOT_USUAL, "session", 0);
	cr_assert(play_mount(&sandbox, fd, "/workspace/a") == 0);
	cr_assert(play_shell(&sandbox,
			     "cat /workspace/a/private && echo new > /workspace/a/new && "
			     "stat -c %u:%g /workspace/a/private /workspace/a/foreign",
			     output, sizeof(output)) == 0);
	cr_assert_str_eq(output, "work/session/private1000:1000\n65534:65534\n");
	(void)snprintf(path, sizeof(path), "%s/work/session/new", play.dir);
	cr_assert(stat(path, &info) == 0 && info.st_uid == OWNER && info.st_gid == OWNER);
	sp_fd_close(&fd);
	end(&play, &sandbox);
}

Test(launcher_bind, sets_attributes_before_it_leaves)
{
	struct play play;
	struct play_sandbox sandbox;
	struct statvfs fs;
	char output[512];
	int fd;

	begin(&play, &sandbox);
	fd = bound(&play, &sandbox, ROOT_USUAL, "session", 0);
	cr_assert(fstatvfs(fd, &fs) == 0);
	cr_assert((fs.f_flag & (ST_NOSUID | ST_NODEV | ST_RDONLY)) == (ST_NOSUID | ST_NODEV));
	sp_fd_close(&fd);
	fd = bound(&play, &sandbox, ROOT_READ_ONLY, "session", SP_BIND_F_READ_ONLY);
	cr_assert(fstatvfs(fd, &fs) == 0);
	cr_assert((fs.f_flag & (ST_NOSUID | ST_NODEV | ST_RDONLY)) ==
		  (ST_NOSUID | ST_NODEV | ST_RDONLY));
	cr_assert(play_mount(&sandbox, fd, "/workspace/a") == 0);
	cr_assert(play_shell(&sandbox, "cat /workspace/a/private; echo x > /workspace/a/new",
			     output, sizeof(output)) != 0);
	cr_assert(strstr(output, "Read-only file system"), "%s", output);
	sp_fd_close(&fd);
	end(&play, &sandbox);
}

/* B-035 */
Test(launcher_bind, refuses_what_is_not_plainly_below_the_root)
{
	static const struct {
		const char *path;
		int status;
	} cases[] = {
		{"..", -EXDEV},
		{"../workspace-next-door", -EXDEV},
		{"session/../../workspace-next-door", -EXDEV},
		{"/etc", -EXDEV},
		{"link", -ELOOP},
		{"link/private", -ELOOP},
		{"out", -ELOOP},
		{"out/passwd", -ELOOP},
		{"not-there", -ENOENT},
		{"file/below", -ENOTDIR},
		{"session\n", -ENOENT},
	};
	struct play play;
	struct play_sandbox sandbox;
	int fd;

	begin(&play, &sandbox);
	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++)
		refused(&play, &sandbox, ROOT_USUAL, cases[i].path, SP_BIND_F_READ_ONLY,
			cases[i].status, "open");
	refused(&play, &sandbox, ROOT_USUAL, "fifo", SP_BIND_F_READ_ONLY, -EINVAL, "type");
	/* Positive control: a file, the root itself. */
	fd = bound(&play, &sandbox, ROOT_USUAL, "file", 0);
	sp_fd_close(&fd);
	fd = bound(&play, &sandbox, ROOT_USUAL, "", SP_BIND_F_READ_ONLY);
	sp_fd_close(&fd);
	end(&play, &sandbox);
}

Test(launcher_bind, refuses_wrong_roots_flags_and_owners)
{
	struct play play;
	struct play_sandbox sandbox;
	struct sp_launcher_bind bind = {.header.type = SP_LAUNCHER_BIND};
	size_t size = offsetof(struct sp_launcher_bind, path) + 1;

	begin(&play, &sandbox);
	refused(&play, &sandbox, ROOT_ROOTS, "session", 0, -EINVAL, "bind");
	refused(&play, &sandbox, ROOT_MISSING, "session", 0, -ENOENT, "bind");
	refused(&play, &sandbox, ROOT_READ_ONLY, "session", 0, -EROFS, "bind");
	refused(&play, &sandbox, ROOT_USUAL, "session", SP_BIND_F_ALL + 1, -EINVAL, "bind");
	bind.slot = sandbox.slot;
	bind.serial = sandbox.serial;
	bind.owner_uid = 65536;
	play_expect_failure(&play, play_send(&play, &bind, size), -EINVAL, NULL);
	bind.owner_uid = 1000;
	bind.owner_gid = 65536;
	play_expect_failure(&play, play_send(&play, &bind, size), -EINVAL, NULL);
	bind.owner_gid = 65535;
	bind.serial++;
	play_expect_failure(&play, play_send(&play, &bind, size), -ESRCH, NULL);
	end(&play, &sandbox);
}

Test(launcher_bind, root_owned_sources_are_read_only_and_unmapped)
{
	struct play play;
	struct play_sandbox sandbox;
	char output[512];
	int fd;

	begin(&play, &sandbox);
	refused(&play, &sandbox, ROOT_USUAL, "owned-by-root", 0, -EPERM, "owner");
	fd = bound(&play, &sandbox, ROOT_USUAL, "owned-by-root", SP_BIND_F_READ_ONLY);
	cr_assert(play_mount(&sandbox, fd, "/workspace/a") == 0);
	cr_assert(play_shell(&sandbox, "cat /workspace/a/public && cat /workspace/a/secret", output,
			     sizeof(output)) != 0);
	cr_assert(strstr(output, "owned-by-root/public") && strstr(output, "Permission denied"),
		  "%s", output);
	sp_fd_close(&fd);
	end(&play, &sandbox);
}

/* Submounts, in a mount namespace of the test's own that the launcher inherits. */
static void mount_below(const struct play *play, unsigned long flags)
{
	char path[256];

	(void)snprintf(path, sizeof(path), "%s/work/session/sub", play->dir);
	if (mkdir(path, 0755) < 0)
		cr_assert(errno == EEXIST);
	cr_assert(mount("tmpfs", path, "tmpfs", flags, "size=1m,mode=0755,uid=2345,gid=2345") == 0);
}

static void own_namespace(void)
{
	cr_assert(unshare(CLONE_NEWNS) == 0);
	/* As on most hosts: shared, so that a leak of propagation would be seen. */
	cr_assert(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	cr_assert(mount(NULL, "/", NULL, MS_REC | MS_SHARED, NULL) == 0);
}

Test(launcher_bind, refuses_a_source_that_covers_a_submount)
{
	struct play play;
	struct play_sandbox sandbox;
	char output[512];
	char path[256];
	int fd;

	own_namespace();
	begin(&play, &sandbox);
	/* Mounted after the launcher's start: it must see the host as it is now. */
	mount_below(&play, 0);
	refused(&play, &sandbox, ROOT_USUAL, "session", 0, -EXDEV, "submount");
	refused(&play, &sandbox, ROOT_USUAL, "", SP_BIND_F_READ_ONLY, -EXDEV, "submount");
	/* A layer has no submounts, whatever the root says. */
	refused(&play, &sandbox, ROOT_RECURSIVE, "session", SP_BIND_F_OVERLAY, -EXDEV, "submount");
	/* The mount itself covers none, nor does its neighbour. */
	fd = bound(&play, &sandbox, ROOT_USUAL, "session/sub", 0);
	sp_fd_close(&fd);
	fd = bound(&play, &sandbox, ROOT_USUAL, "owned-by-root", SP_BIND_F_READ_ONLY);
	sp_fd_close(&fd);
	fd = bound(&play, &sandbox, ROOT_RECURSIVE, "session", 0);
	cr_assert(play_mount(&sandbox, fd, "/workspace/a") == 0);
	cr_assert(play_shell(&sandbox,
			     "echo x > /workspace/a/sub/file && "
			     "grep -c 'workspace/a.*nosuid,nodev' /proc/self/mountinfo",
			     output, sizeof(output)) == 0);
	cr_assert_str_eq(output, "2\n");
	sp_fd_close(&fd);
	(void)snprintf(path, sizeof(path), "%s/work/session/sub", play.dir);
	cr_assert(umount2(path, MNT_DETACH) == 0);
	fd = bound(&play, &sandbox, ROOT_USUAL, "session", 0);
	sp_fd_close(&fd);
	end(&play, &sandbox);
}

/* A root-owned source may be written to where the host ignores set-id bits. */
Test(launcher_bind, root_owned_is_writable_on_a_nosuid_mount)
{
	struct play play;
	struct play_sandbox sandbox;
	char path[256];
	int fd;

	own_namespace();
	begin(&play, &sandbox);
	(void)snprintf(path, sizeof(path), "%s/work/owned-by-root", play.dir);
	cr_assert(mount("tmpfs", path, "tmpfs", MS_NOSUID, "size=1m") == 0);
	fd = bound(&play, &sandbox, ROOT_USUAL, "owned-by-root", 0);
	sp_fd_close(&fd);
	cr_assert(umount2(path, MNT_DETACH) == 0);
	cr_assert(mount("tmpfs", path, "tmpfs", 0, "size=1m") == 0);
	refused(&play, &sandbox, ROOT_USUAL, "owned-by-root", 0, -EPERM, "owner");
	cr_assert(umount2(path, MNT_DETACH) == 0);
	end(&play, &sandbox);
}

static int own_mount_lines(void)
{
	FILE *file = fopen("/proc/self/mountinfo", "re");
	int lines = 0;
	int byte;

	cr_assert(file != NULL);
	while ((byte = fgetc(file)) != EOF)
		lines += byte == '\n';
	(void)fclose(file);
	return lines;
}

/* B-079: with everything shared nothing of a sandbox's mounts comes back. */
Test(launcher_bind, a_base_for_an_overlay_is_a_directory_of_somebody)
{
	struct play play;
	struct play_sandbox sandbox;
	struct play_answer answer;
	int fd;

	begin(&play, &sandbox);
	refused(&play, &sandbox, ROOT_USUAL, "file", SP_BIND_F_OVERLAY, -ENOTDIR, "type");
	refused(&play, &sandbox, ROOT_USUAL, "owned-by-root", SP_BIND_F_OVERLAY, -EPERM, "owner");
	refused(&play, &sandbox, ROOT_READ_ONLY, "session", SP_BIND_F_OVERLAY, -EROFS, "bind");
	fd = bound(&play, &sandbox, ROOT_READ_ONLY, "session",
		   SP_BIND_F_OVERLAY | SP_BIND_F_READ_ONLY);
	sp_fd_close(&fd);
	/* What an earlier commit has left is told with the mount, where it can be completed. */
	play_expect(&play, SP_LAUNCHER_BOUND,
		    ask(&play, &sandbox, ROOT_USUAL, "session", SP_BIND_F_OVERLAY), &answer);
	cr_assert(answer.record.value == 0);
	sp_fd_close(&answer.fds[0]);
	make(play.dir, "work/session/" SP_COMMIT_DIR, true, OWNER, 0700);
	play_expect(&play, SP_LAUNCHER_BOUND,
		    ask(&play, &sandbox, ROOT_USUAL, "session", SP_BIND_F_OVERLAY), &answer);
	cr_assert(answer.record.value == 1);
	sp_fd_close(&answer.fds[0]);
	play_expect(&play, SP_LAUNCHER_BOUND,
		    ask(&play, &sandbox, ROOT_USUAL, "session", SP_BIND_F_READ_ONLY), &answer);
	cr_assert(answer.record.value == 0);
	sp_fd_close(&answer.fds[0]);
	end(&play, &sandbox);
}

Test(launcher_bind, nothing_propagates_to_the_host)
{
	struct play play;
	struct play_sandbox sandbox;
	char output[256];
	int before;
	int host = play_mount_lines();
	int fd;

	own_namespace();
	before = own_mount_lines();
	begin(&play, &sandbox);
	for (int i = 0; i < 20; i++) {
		char target[64];

		fd = bound(&play, &sandbox, ROOT_USUAL, "session", 0);
		(void)snprintf(target, sizeof(target), "/workspace/m%d", i);
		cr_assert(play_mount(&sandbox, fd, target) == 0);
		sp_fd_close(&fd);
	}
	cr_assert(play_shell(&sandbox, "ls /workspace | wc -l", output, sizeof(output)) == 0);
	cr_assert_str_eq(output, "20\n");
	cr_assert(own_mount_lines() == before);
	cr_assert(play_mount_lines() == host);
	end(&play, &sandbox);
	cr_assert(own_mount_lines() == before);
}

/* The other direction: what the host mounts later stays the host's. */
Test(launcher_bind, later_mounts_of_the_host_stay_outside)
{
	struct play play;
	struct play_sandbox sandbox;
	char output[256];
	char path[256];
	int fd;

	own_namespace();
	begin(&play, &sandbox);
	fd = bound(&play, &sandbox, ROOT_USUAL, "session", 0);
	cr_assert(play_mount(&sandbox, fd, "/workspace/a") == 0);
	sp_fd_close(&fd);
	mount_below(&play, 0);
	cr_assert(play_shell(&sandbox, "grep -c workspace/a /proc/self/mountinfo", output,
			     sizeof(output)) == 0);
	cr_assert_str_eq(output, "1\n");
	(void)snprintf(path, sizeof(path), "%s/work/session/sub", play.dir);
	cr_assert(umount2(path, MNT_DETACH) == 0);
	end(&play, &sandbox);
}

Test(launcher_bind, many_binds_leave_no_descriptor)
{
	struct play play;
	struct play_sandbox sandbox;
	int descriptors;
	int fd;

	begin(&play, &sandbox);
	fd = bound(&play, &sandbox, ROOT_USUAL, "session", 0);
	sp_fd_close(&fd);
	/* Its answer comes after the mount's copy was closed over there. */
	refused(&play, &sandbox, ROOT_USUAL, "not-there", 0, -ENOENT, "open");
	descriptors = play_fd_count(play.launcher);
	for (int i = 0; i < 300; i++) {
		fd = bound(&play, &sandbox, ROOT_USUAL, "session", 0);
		sp_fd_close(&fd);
		refused(&play, &sandbox, ROOT_USUAL, "not-there", 0, -ENOENT, "open");
	}
	cr_assert(play_fd_count(play.launcher) == descriptors);
	end(&play, &sandbox);
}
