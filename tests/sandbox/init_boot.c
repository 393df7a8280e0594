/*
 * From the boot record to READY: what init refuses to start from, and what it has made of itself
 * and of the sandbox when it says that it is ready.
 */
#include "tests/sandbox/init_harness.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"
#include "supervisor/init/boot_check.h"
#include "supervisor/sandbox/syscalls.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEED_ROOT()                                            \
	do {                                                   \
		if (init_harness_missing())                    \
			cr_skip("%s", init_harness_missing()); \
	} while (0)

/* --- the record, without a kernel -------------------------------------------------------- */

static struct sp_boot *valid_record(void)
{
	struct sp_boot *boot = calloc(1, sizeof(*boot) + 64);
	struct sp_table_mount *mount = &boot->pool.mounts[0];

	boot->magic = SP_BOOT_MAGIC;
	boot->build_id = SP_BUILD_ID;
	boot->size = sizeof(*boot) + 64;
	boot->filter_offset = sizeof(*boot);
	boot->filter_length = 32;
	boot->exec_filter_offset = sizeof(*boot) + 32;
	boot->exec_filter_length = 32;
	(void)snprintf(boot->pool.hostname, sizeof(boot->pool.hostname), "h");
	boot->pool.workload_uid = 1000;
	boot->pool.workload_gid = 1000;
	boot->pool.tmp_bytes = 4096;
	boot->pool.tmp_inodes = 16;
	boot->pool.rlimit_nofile = 16;
	boot->pool.mount_count = 1;
	mount->kind = SP_MOUNT_DIR;
	(void)snprintf(mount->target, sizeof(mount->target), "/srv");
	return boot;
}

static const char *fault_of(const struct sp_boot *boot)
{
	const char *field = "none";
	int status = init_boot_check(boot, sizeof(*boot) + 64, &field);

	cr_assert((status == 0) == (strcmp(field, "none") == 0));
	return field;
}

Test(init_record, valid_one_passes)
{
	struct sp_boot *boot = valid_record();

	cr_assert_str_eq(fault_of(boot), "none");
	free(boot);
}

#define REFUSES(name, change, field)                      \
	Test(init_record, refuses_##name)                 \
	{                                                 \
		struct sp_boot *boot = valid_record();    \
		struct sp_table_pool *pool = &boot->pool; \
                                                          \
		(void)pool;                               \
		change;                                   \
		cr_assert_str_eq(fault_of(boot), field);  \
		free(boot);                               \
	}

#define ACCEPTS(name, change) REFUSES(not_##name, change, "none")

REFUSES(magic, boot->magic++, "magic")
REFUSES(build, boot->build_id++, "build_id")
REFUSES(size_short, boot->size--, "size")
REFUSES(size_long, boot->size++, "size")
REFUSES(pool_index, boot->pool_index = SP_TABLE_POOLS_MAX, "pool_index")
ACCEPTS(last_pool_index, boot->pool_index = SP_TABLE_POOLS_MAX - 1)
REFUSES(rootless, boot->rootless = 2, "rootless")
REFUSES(reserved, boot->reserved = 1, "reserved")
REFUSES(absent, boot->absent[SP_TABLE_MOUNTS_MAX - 1] = 2, "absent")
REFUSES(filter_inside_the_header, boot->filter_offset = sizeof(*boot) - 8, "filter")
REFUSES(filter_unaligned, boot->filter_offset += 4, "filter")
REFUSES(filter_past_the_end, boot->exec_filter_length = 40, "exec_filter")
REFUSES(filter_offset_wraps, boot->filter_offset = UINT64_MAX - 7, "filter")
REFUSES(filter_not_whole, boot->filter_length = 33, "filter")
REFUSES(filter_missing, boot->filter_length = 0, "filter")
REFUSES(exec_filter_missing, boot->exec_filter_length = 0, "exec_filter")
REFUSES(pool_flags, pool->flags = SP_POOL_F_ALL + 1, "flags")
REFUSES(hostname_unended, memset(pool->hostname, 'a', sizeof(pool->hostname)), "hostname")
REFUSES(hostname_empty, pool->hostname[0] = '\0', "hostname")
REFUSES(root_workload, pool->workload_uid = 0, "workload_uid")
REFUSES(unmapped_uid, pool->workload_uid = 65535, "workload_uid")
ACCEPTS(last_uid, pool->workload_uid = 65534)
REFUSES(root_group, pool->workload_gid = 0, "workload_gid")
REFUSES(tmpfs_without_size, pool->tmp_bytes = 0, "tmp_bytes")
REFUSES(tmpfs_without_inodes, pool->tmp_inodes = 0, "tmp_inodes")
REFUSES(no_descriptors, pool->rlimit_nofile = 2, "rlimit_nofile")
ACCEPTS(three_descriptors, pool->rlimit_nofile = 3)
REFUSES(mount_count, pool->mount_count = SP_TABLE_MOUNTS_MAX + 1, "mount_count")
REFUSES(mount_kind_zero, pool->mounts[0].kind = 0, "mount.kind")
REFUSES(mount_kind, pool->mounts[0].kind = SP_MOUNT_PROC + 1, "mount.kind")
REFUSES(mount_flags, pool->mounts[0].flags = SP_MOUNT_F_ALL + 1, "mount.flags")
REFUSES(mount_set_id, pool->mounts[0].mode = 04755, "mount.mode")
REFUSES(source_unended, memset(pool->mounts[0].source, 'a', SP_TABLE_PATH_MAX), "mount.source")
REFUSES(target_unended, memset(pool->mounts[0].target, '/', SP_TABLE_PATH_MAX), "mount.target")
REFUSES(link_to_nothing, pool->mounts[0].kind = SP_MOUNT_SYMLINK, "mount.source")
REFUSES(direct_root, pool->flags = SP_POOL_F_DIRECT, "direct_uid")

Test(init_record, all_mounts_may_be_used)
{
	struct sp_boot *boot = valid_record();

	for (uint32_t i = 1; i < SP_TABLE_MOUNTS_MAX; i++)
		boot->pool.mounts[i] = boot->pool.mounts[0];
	boot->pool.mount_count = SP_TABLE_MOUNTS_MAX;
	cr_assert_str_eq(fault_of(boot), "none");
	boot->pool.mounts[SP_TABLE_MOUNTS_MAX - 1].kind = 99;
	cr_assert_str_eq(fault_of(boot), "mount.kind");
	free(boot);
}

Test(init_record, paths_are_normal)
{
	static const char *const bad[] = {"",      "/",     "srv",   "//srv", "/srv/", "/./a",
					  "/a/..", "/../a", "/a//b", "/a/.",  "./a"};
	static const char *const good[] = {"/a", "/a/b", "/.a", "/..a", "/a.", "/..."};

	for (size_t i = 0; i < SP_ARRAY_SIZE(bad); i++)
		cr_assert(!init_path_normal(bad[i]), "'%s'", bad[i]);
	for (size_t i = 0; i < SP_ARRAY_SIZE(good); i++)
		cr_assert(init_path_normal(good[i]), "'%s'", good[i]);
}

Test(init_record, a_truncated_one_is_never_read_past)
{
	struct sp_boot *boot = valid_record();
	const char *field;

	for (size_t size = 0; size < sizeof(*boot); size += 1 + size / 3) {
		void *copy = malloc(size);

		memcpy(copy, boot, size);
		cr_assert_eq(init_boot_check(copy, size, &field), -EINVAL);
		free(copy);
	}
	free(boot);
}

/* --- with a kernel ----------------------------------------------------------------------- */

static void expect_failed(const struct harness_options *options, const char *stage, int status)
{
	struct harness harness;
	union harness_answer first;
	int fd;

	cr_assert(harness_start(&harness, options, &first));
	cr_assert_eq(first.header.type, SP_INIT_FAILED);
	cr_assert_str_eq(first.status.stage, stage);
	cr_assert_eq(first.status.status, status, "%s", strerror(-first.status.status));
	cr_assert_eq(harness_receive(&harness, &first, &fd, HARNESS_WAIT_MS), 0,
		     "a failed init must exit");
	harness_stop(&harness);
}

Test(init_boot, refuses_an_unsealed_record)
{
	NEED_ROOT();
	expect_failed(&(struct harness_options){.unsealed = true}, "record", -EPERM);
}

Test(init_boot, refuses_a_cut_record)
{
	NEED_ROOT();
	expect_failed(&(struct harness_options){.cut = 8}, "record:size", -EINVAL);
}

static void break_kind(struct sp_boot *boot)
{
	boot->pool.mounts[0].kind = 77;
}

Test(init_boot, names_the_bad_field)
{
	NEED_ROOT();
	expect_failed(&(struct harness_options){.edit = break_kind}, "record:mount.kind", -EINVAL);
}

static void break_source(struct sp_boot *boot)
{
	boot->absent[boot->pool.mount_count - 1] = 0;
}

Test(init_boot, a_missing_source_fails_the_sandbox)
{
	NEED_ROOT();
	expect_failed(&(struct harness_options){.edit = break_source}, "mount:17", -ENOENT);
}

static void target_through_symlink(struct sp_boot *boot)
{
	/* /bin is a symlink by then: nothing may be mounted through it. */
	(void)snprintf(boot->pool.mounts[6].target, SP_TABLE_PATH_MAX, "/bin/true");
}

Test(init_boot, follows_no_symlink_to_a_target)
{
	NEED_ROOT();
	expect_failed(&(struct harness_options){.edit = target_through_symlink}, "mount:6", -ELOOP);
}

static void hide_missing(struct sp_boot *boot)
{
	(void)snprintf(boot->pool.mounts[15].target, SP_TABLE_PATH_MAX, "/usr/not-there-either");
}

Test(init_boot, a_mask_without_target_fails_the_sandbox)
{
	NEED_ROOT();
	expect_failed(&(struct harness_options){.edit = hide_missing}, "mount:15", -ENOENT);
}

static void bad_filter(struct sp_boot *boot)
{
	boot->filter_offset = boot->exec_filter_offset;
	boot->filter_length = 8; /* a load without a return */
}

Test(init_boot, a_filter_that_does_not_load_fails_the_sandbox)
{
	NEED_ROOT();
	expect_failed(&(struct harness_options){.edit = bad_filter}, "seccomp", -EINVAL);
}

Test(init_boot, a_masked_proc_of_the_host_fails_as_proc)
{
	NEED_ROOT();
	expect_failed(&(struct harness_options){.masked_proc = true}, "proc", -EPERM);
}

/* Last line of output, for a script that prints one. */
static void expect_output(struct harness *harness, const char *script, const char *expected)
{
	static struct harness_result result;

	harness_shell(harness, script, &result);
	cr_assert_str_eq(result.output, expected, "%s", script);
}

Test(init_boot, the_sandbox_is_what_the_table_says)
{
	static struct harness_result result;
	struct harness harness;

	NEED_ROOT();
	harness_ready(&harness, NULL);
	expect_output(&harness, "hostname; id -u; id -g; id -G", "sandbox\n1000\n1000\n1000\n");
	expect_output(&harness, "cat /proc/sys/kernel/domainname", "(none)\n");
	expect_output(&harness, "readlink /bin; cat /etc/hosts", "usr/bin\n127.0.0.1 localhost\n");
	expect_output(&harness, "ls -A /usr/share", "");
	expect_output(&harness, "stat -c '%a %u' /tmp /home /workspace/made /srv",
		      "1777 0\n755 1000\n750 1000\n755 0\n");
	expect_output(&harness, "echo hi >/dev/null; head -c 3 /dev/zero | od -An -tx1",
		      " 00 00 00\n");
	expect_output(&harness, "touch /usr/x /etc/x /x /srv/x /dev/x 2>&1 | grep -c Read-only",
		      "5\n");
	expect_output(&harness, "cut -d: -f3 /proc/self/cgroup | sort -u", "/\n");
	expect_output(&harness, "cp /bin/true /dev/shm/t; /dev/shm/t 2>&1 | grep -c denied", "1\n");
	expect_output(&harness, "cp /bin/true /tmp/t && /tmp/t && echo runs", "runs\n");
	/* nosuid on all, nodev on all but what holds device files. */
	expect_output(&harness, "grep -vc nosuid /proc/self/mountinfo", "0\n");
	expect_output(&harness, "grep -v nodev /proc/self/mountinfo | cut -d' ' -f5",
		      "/dev\n/dev/pts\n");
	expect_output(&harness, "ls /.init 2>&1 | grep -c denied", "1\n");
	harness_shell(&harness, "cat /proc/kcore /proc/keys /proc/kallsyms /proc/kmsg", &result);
	cr_assert_eq(result.length,
		     strlen("cat: /proc/kcore: No such file or directory\n") *
			     (access("/proc/kcore", F_OK) != 0),
		     "%s", result.output);
	harness_stop(&harness);
}

/* What the kernel lets everybody write in proc is either the process's own or read-only. */
Test(init_boot, nothing_of_the_host_is_writable_in_proc)
{
	static struct harness_result result;
	struct harness harness;

	NEED_ROOT();
	harness_ready(&harness, NULL);
	harness_python(&harness,
		       "import os\n"
		       "for d, ds, fs in os.walk('/proc'):\n"
		       "    if d == '/proc': ds[:] = [x for x in ds if not x.isdigit()]\n"
		       "    for f in fs:\n"
		       "        p = os.path.join(d, f)\n"
		       "        if os.path.islink(p): continue\n"
		       "        try: os.close(os.open(p, os.O_WRONLY | os.O_NONBLOCK)); print(p)\n"
		       "        except OSError: pass\n",
		       &result);
	cr_assert_str_eq(result.output, "");
	harness_stop(&harness);
}

Test(init_boot, the_one_tmpfs_is_sized)
{
	static struct harness_result result;
	struct harness harness;

	NEED_ROOT();
	harness_ready(&harness, NULL);
	/* 16 MiB over all writable places together. */
	harness_shell(&harness, "head -c 10M /dev/zero >/tmp/a && head -c 10M /dev/zero >/home/b",
		      &result);
	cr_assert(strstr(result.output, "No space left"), "%s", result.output);
	expect_output(&harness, "rm /tmp/a /home/b; head -c 15M /dev/zero >/tmp/a && echo fits",
		      "fits\n");
	harness_python(&harness,
		       "import os\n"
		       "n = 0\n"
		       "try:\n"
		       "    while n < 5000: os.mkdir(f'/tmp/d{n}'); n += 1\n"
		       "except OSError as e: print(e.errno, 1900 < n < 2048)\n",
		       &result);
	cr_assert_str_eq(result.output, "28 True\n");
	harness_stop(&harness);
}

Test(init_boot, the_network_is_loopback_only)
{
	static struct harness_result result;
	struct harness harness;

	NEED_ROOT();
	harness_ready(&harness, NULL);
	harness_python(&harness,
		       "import socket\n"
		       "print([n for _, n in socket.if_nameindex()])\n"
		       "s = socket.create_server(('127.0.0.1', 0))\n"
		       "socket.create_connection(s.getsockname()).close(); print('up')\n"
		       "try: socket.create_connection(('169.254.169.254', 80), 1)\n"
		       "except OSError as e: print(e.errno)\n",
		       &result);
	cr_assert_str_eq(result.output, "['lo']\nup\n101\n");
	harness_stop(&harness);
}

/* "name:\tvalue" of a /proc/<pid>/status. */
static void status_field(pid_t pid, const char *name, char *ret, size_t size)
{
	char path[64];
	char text[8192];
	char key[64];
	int fd;
	ssize_t len;
	const char *at;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	len = sp_read_all(fd, text, sizeof(text) - 1);
	(void)close(fd);
	cr_assert(len > 0);
	text[len] = '\0';
	(void)snprintf(key, sizeof(key), "\n%s:\t", name);
	at = strstr(text, key);
	cr_assert(at, "%s", name);
	at += strlen(key);
	(void)snprintf(ret, size, "%.*s", (int)strcspn(at, "\n"), at);
}

Test(init_boot, is_not_pinned_with_its_maker)
{
	static struct harness_result result;
	struct harness harness;
	char expected[16];
	cpu_set_t before;
	cpu_set_t first;

	NEED_ROOT();
	cr_assert_eq(sched_getaffinity(0, sizeof(before), &before), 0);
	(void)snprintf(expected, sizeof(expected), "%d\n", CPU_COUNT(&before));
	CPU_ZERO(&first);
	for (size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&first) == 0; cpu++)
		if (CPU_ISSET(cpu, &before))
			CPU_SET(cpu, &first);
	cr_assert_eq(sched_setaffinity(0, sizeof(first), &first), 0);
	harness_ready(&harness, NULL);
	harness_shell(&harness, "nproc", &result);
	cr_assert_str_eq(result.output, expected);
	harness_stop(&harness);
}

Test(init_boot, init_itself_is_confined)
{
	struct harness harness;
	char value[128];

	NEED_ROOT();
	harness_ready(&harness, NULL);
	status_field(harness.init, "NoNewPrivs", value, sizeof(value));
	cr_assert_str_eq(value, "1");
	status_field(harness.init, "Seccomp", value, sizeof(value));
	cr_assert_str_eq(value, "2");
	status_field(harness.init, "CapBnd", value, sizeof(value));
	cr_assert_str_eq(value, "0000000000000000");
	status_field(harness.init, "CapInh", value, sizeof(value));
	cr_assert_str_eq(value, "0000000000000000");
	/* CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID, SETUID, SYS_ADMIN. */
	status_field(harness.init, "CapPrm", value, sizeof(value));
	cr_assert_str_eq(value, "00000000002410eb");
	harness_stop(&harness);
}

/* Whether somebody of init's own ids and capabilities may look into its memory. */
static bool init_is_open(const struct harness *harness)
{
	const uint64_t same = UINT64_C(0x2000eb);
	char path[64];
	char link[256];
	int status = 0;
	pid_t pid;

	(void)snprintf(path, sizeof(path), "/proc/%d/ns/user", harness->init);
	pid = fork();
	if (pid == 0) {
		int ns_fd = open(path, O_RDONLY | O_CLOEXEC);

		if (ns_fd < 0 || setns(ns_fd, CLONE_NEWUSER) != 0 || setgroups(0, NULL) != 0 ||
		    setresgid(0, 0, 0) != 0 || setresuid(0, 0, 0) != 0 ||
		    sp_sys_capset(same, same, 0) != 0)
			_exit(2);
		(void)snprintf(path, sizeof(path), "/proc/%d/exe", harness->init);
		_exit(readlink(path, link, sizeof(link)) > 0 ? 0 : 1);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) < 2);
	return WEXITSTATUS(status) == 0;
}

#define SUID_DUMPABLE "/proc/sys/fs/suid_dumpable"

static char old_suid_dumpable[16];

static void set_suid_dumpable(const char *value)
{
	int fd = open(SUID_DUMPABLE, O_WRONLY | O_CLOEXEC);

	if (fd >= 0) {
		cr_assert_eq(write(fd, value, strlen(value)), (ssize_t)strlen(value));
		(void)close(fd);
	}
}

static void remember_suid_dumpable(void)
{
	int fd = open(SUID_DUMPABLE, O_RDWR | O_CLOEXEC);

	if (init_harness_missing() || fd < 0)
		cr_skip("needs root and a writable " SUID_DUMPABLE);
	cr_assert(read(fd, old_suid_dumpable, sizeof(old_suid_dumpable) - 1) > 0);
	(void)close(fd);
}

static void restore_suid_dumpable(void)
{
	set_suid_dumpable(old_suid_dumpable);
}

/* A child that changes its ids shares init's memory: on a host that dumps set-id programs the
 * change would open that memory to whoever has the ids. */
Test(init_boot, stays_closed_where_set_id_programs_are_dumped, .init = remember_suid_dumpable,
     .fini = restore_suid_dumpable)
{
	static struct harness_result result;
	struct harness harness;

	set_suid_dumpable("1");
	harness_ready(&harness, NULL);
	cr_assert(!init_is_open(&harness));
	harness_shell(&harness, ":", &result);
	cr_assert_eq(result.code, (uint32_t)CLD_EXITED);
	cr_assert(!init_is_open(&harness));
	harness_stop(&harness);
}

Test(init_boot, nothing_of_init_is_readable_inside)
{
	struct harness harness;

	NEED_ROOT();
	harness_ready(&harness, NULL);
	expect_output(&harness,
		      "for f in fd/3 root/ cwd/ exe environ maps mem; do "
		      "head -c1 /proc/1/$f >/dev/null 2>&1 && echo $f; done; "
		      "ls /proc/1/fd /proc/1/root 2>&1 | grep -c denied",
		      "2\n");
	expect_output(&harness, "tr '\\0' ' ' </proc/1/cmdline", "sandpool-init ");
	harness_stop(&harness);
}

Test(init_boot, ends_with_the_control_socket)
{
	struct harness harness;
	int64_t start_ms;

	NEED_ROOT();
	harness_ready(&harness, NULL);
	start_ms = sp_clock_boot_ms();
	harness_stop(&harness); /* waits for the launcher, which waits for init */
	cr_assert(sp_clock_boot_ms() - start_ms < 5000);
}

Test(init_boot, dies_with_the_launcher)
{
	struct harness harness;
	union harness_answer answer;
	int fd;

	NEED_ROOT();
	harness_ready(&harness, NULL);
	cr_assert_eq(kill(harness.launcher, SIGKILL), 0);
	cr_assert_eq(harness_receive(&harness, &answer, &fd, HARNESS_WAIT_MS), 0);
	harness_stop(&harness);
}

Test(init_boot, rootless_workloads_have_nothing_of_inits)
{
	static struct harness_result result;
	struct harness harness;

	NEED_ROOT();
	harness_ready(&harness, &(struct harness_options){.rootless = true});
	harness_shell(&harness,
		      "id -u; grep -E 'Cap(Eff|Prm|Bnd)' /proc/self/status | cut -f2 | sort -u; "
		      "ls -d /.init 2>/dev/null; cat /proc/self/uid_map | tr -s ' '; "
		      "touch /home/x && stat -c %u /home/x",
		      &result);
	cr_assert_str_eq(result.output, "1000\n0000000000000000\n 1000 0 1\n1000\n");
	/* The same id as init's outside; still nothing of init can be opened or killed. */
	harness_shell(&harness,
		      "for f in fd/3 fd/5 root/ mem environ maps; do "
		      "head -c1 /proc/1/$f 2>&1 | grep -c 'denied'; done; "
		      "kill -9 1; kill -STOP 1; :",
		      &result);
	cr_assert_str_eq(result.output, "1\n1\n1\n1\n1\n1\n", "%s", result.output);
	(void)harness_ping(&harness);
	harness_stop(&harness);
}

Test(init_boot, direct_needs_to_know_its_children)
{
	NEED_ROOT();
	expect_failed(&(struct harness_options){.direct = true, .masked_proc = true}, "children",
		      -ENOENT);
}

Test(init_boot, direct_has_the_hosts_view)
{
	static struct harness_result result;
	const char *const argv[] = {"sh", "-c", "id -u; grep NoNew /proc/self/status", NULL};
	struct harness harness;

	NEED_ROOT();
	harness_ready(&harness, &(struct harness_options){.direct = true});
	harness_run(&harness, &(struct harness_exec){.argv = argv, .uid = HARNESS_DIRECT_ID},
		    &result);
	cr_assert_str_eq(result.output, "65534\nNoNewPrivs:\t1\n");
	harness_run(&harness, &(struct harness_exec){.argv = argv, .uid = 1000}, &result);
	cr_assert_eq(result.status, -EPERM);
	cr_assert_str_eq(result.stage, "credentials");
	cr_assert_eq(harness_mount(&harness, harness.control_fd, "/mnt", NULL), -EOPNOTSUPP);
	harness_stop(&harness);
}
