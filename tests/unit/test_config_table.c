/*
 * From configuration to the launcher's table: every table is mapped and checked as the launcher
 * does it, then looked at.
 */
#include "tests/unit/test_config.h"

#include "supervisor/config/table_build.h"
#include "supervisor/sandbox/memfd.h"

#include <fcntl.h>
#include <ftw.h>
#include <linux/filter.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[64];

static void set_up(void)
{
	snprintf(directory, sizeof(directory), "/tmp/sandpool-table-XXXXXX");
	cr_assert_not_null(mkdtemp(directory));
	cr_assert(chdir(directory) == 0);
}

static int remove_one(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
	SP_UNUSED(stat);
	SP_UNUSED(type);
	SP_UNUSED(ftw);
	return remove(path);
}

static void tear_down(void)
{
	nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

TestSuite(config_table, .init = set_up, .fini = tear_down);

struct built {
	struct sp_config *config;
	const struct sp_table *table;
	size_t size;
	const struct sp_table_pool *pool; /* the first */
};

static struct built build(const char *text)
{
	struct built built = {.config = parse_good(text)};
	struct sp_err err = {0};
	const void *data;
	int fd = -1;

	cr_assert(sp_table_build(built.config, &fd, &err) == 0, "%s", err.message);
	cr_assert(sp_memfd_sealed(fd));
	cr_assert(sp_memfd_map(fd, SP_TABLE_SIZE_MAX, &data, &built.size, &err) == 0);
	close(fd);
	built.table = data;
	cr_assert(sp_table_check(built.table, built.size, &err) == 0, "%s", err.message);
	built.pool = sp_table_pools(built.table);
	return built;
}

/* "#" is the test's directory. */
static struct built build_pool(const char *members)
{
	char text[4096] = "{\"pools\":{\"p\":{";
	size_t used = strlen(text);

	for (; *members != '\0'; members++)
		used += *members == '#' ? (size_t)snprintf(text + used, sizeof(text) - used, "%s",
							   directory)
					: (size_t)snprintf(text + used, sizeof(text) - used, "%c",
							   *members);
	snprintf(text + used, sizeof(text) - used, "}}}");
	return build(text);
}

static void done(struct built *built)
{
	munmap((void *)(uintptr_t)built->table, built->size);
	sp_config_free(built->config);
}

static void build_fails(const char *members, const char *words)
{
	struct sp_config *config;
	struct sp_err err = {0};
	char text[4096];
	int fd = -1;

	snprintf(text, sizeof(text), "{\"pools\":{\"p\":{%s}}}", members);
	config = parse_good(text);
	cr_assert(sp_table_build(config, &fd, &err) < 0);
	cr_assert(fd == -1);
	cr_assert_not_null(strstr(err.message, words), "%s", err.message);
	sp_config_free(config);
}

static int index_of(const struct sp_table_pool *pool, const char *target)
{
	for (uint32_t i = 0; i < pool->mount_count; i++)
		if (strcmp(pool->mounts[i].target, target) == 0)
			return (int)i;
	return -1;
}

/* The last entry for a target is the one that is seen. */
static const struct sp_table_mount *at(const struct sp_table_pool *pool, const char *target)
{
	for (uint32_t i = pool->mount_count; i > 0; i--)
		if (strcmp(pool->mounts[i - 1].target, target) == 0)
			return &pool->mounts[i - 1];
	cr_assert(false, "no mount at %s", target);
	return NULL;
}

static void is_at(const struct sp_table_pool *pool, const char *target, uint32_t kind,
		  uint32_t flags, uint32_t mode)
{
	const struct sp_table_mount *mount = at(pool, target);

	cr_assert(mount->kind == kind, "%s has kind %u", target, mount->kind);
	cr_assert(mount->flags == flags, "%s has flags %x", target, mount->flags);
	cr_assert(mount->mode == mode, "%s has mode %o", target, mount->mode);
}

static void has_places(const struct sp_table_pool *pool)
{
	is_at(pool, "/tmp", SP_MOUNT_WRITABLE, 0, 01777);
	is_at(pool, "/home", SP_MOUNT_WRITABLE, 0, 0755);
	is_at(pool, "/home/user", SP_MOUNT_DIR, SP_MOUNT_F_OWNED, 0755);
	is_at(pool, "/run", SP_MOUNT_WRITABLE, 0, 0755);
	is_at(pool, "/workspace", SP_MOUNT_WRITABLE, SP_MOUNT_F_OWNED, 0755);
	is_at(pool, "/data", SP_MOUNT_WRITABLE, SP_MOUNT_F_OWNED, 0755);
	is_at(pool, "/mnt", SP_MOUNT_WRITABLE, SP_MOUNT_F_OWNED, 0755);
	is_at(pool, "/root", SP_MOUNT_DIR, 0, 0700);
	is_at(pool, "/dev", SP_MOUNT_DEV, 0, 0);
	is_at(pool, "/dev/shm", SP_MOUNT_WRITABLE, SP_MOUNT_F_NOEXEC, 01777);
	is_at(pool, "/proc", SP_MOUNT_PROC, 0, 0);
	cr_assert(at(pool, "/sys")->kind == SP_MOUNT_DIR);
	cr_assert(index_of(pool, "/dev") < index_of(pool, "/dev/shm"));
}

static const char *text_at(const struct built *built, const char *target)
{
	const struct sp_table_mount *mount = at(built->pool, target);

	cr_assert(mount->kind == SP_MOUNT_FILE);
	return (const char *)built->table + mount->blob_offset;
}

static bool starts(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

/* ---- numbers ---- */

Test(config_table, the_header_says_whose_table_it_is)
{
	struct built built = build("{\"instance\": \"blue\", \"state_dir\": \"/srv/state\", "
				   "\"uid_base\": 131072, \"uid_count\": 7}");

	cr_assert(built.table->magic == SP_TABLE_MAGIC);
	cr_assert(built.table->build_id == SP_BUILD_ID);
	cr_assert(built.table->file_size == built.size);
	cr_assert_str_eq(built.table->instance, "blue");
	cr_assert_str_eq(built.table->state_dir, "/srv/state");
	cr_assert(built.table->uid_base == 131072 && built.table->uid_count == 7);
	cr_assert(built.table->pool_count == 1);
	cr_assert_str_eq(built.pool->name, "default");
	done(&built);
}

Test(config_table, limits_arrive_as_numbers)
{
	struct built built = build_pool("\"hostname\": \"box\", \"limits\": {\"memory\": "
					"\"64MiB\", \"pids\": 99, \"cpu\": 1.5, "
					"\"open_files\": 77, \"tmp\": \"1MiB\", \"tmp_inodes\": "
					"500, \"file_size\": \"2MiB\", "
					"\"stack\": \"1MiB\"}");
	const struct sp_table_pool *pool = built.pool;

	cr_assert(pool->memory_bytes == 64u << 20 && pool->pids == 99);
	cr_assert(pool->cpu_quota_us == 150000 && pool->cpu_period_us == 100000);
	cr_assert(pool->tmp_bytes == 1u << 20 && pool->tmp_inodes == 500);
	cr_assert(pool->rlimit_nofile == 77 && pool->rlimit_nproc == 99);
	cr_assert(pool->rlimit_fsize == 2u << 20 && pool->rlimit_stack == 1u << 20);
	cr_assert_str_eq(pool->hostname, "box");
	cr_assert(pool->workload_uid == 1000 && pool->workload_gid == 1000);
	cr_assert(pool->generation == built.config->pools[0].policy.spec_generation);
	cr_assert(pool->generation != 0);
	done(&built);
}

Test(config_table, what_is_not_limited_has_no_number)
{
	struct built built = build_pool("\"limits\": {\"cpu\": 0, \"file_size\": 0}");

	cr_assert(built.pool->cpu_quota_us == 0);
	cr_assert(built.pool->rlimit_fsize == UINT64_MAX);
	done(&built);
	built = build_pool("\"limits\": {\"cpu\": 0.01}");
	cr_assert(built.pool->cpu_quota_us == 1000);
	done(&built);
}

static uint32_t ceiling(const char *members)
{
	struct built built = build_pool(members);
	uint32_t most = built.pool->max_sandboxes;

	done(&built);
	return most;
}

Test(config_table, the_launcher_s_ceiling_covers_the_policy_s)
{
	cr_assert(ceiling("\"max_idle\": 10, \"max_total\": 12") == 12);
	cr_assert(ceiling("\"max_idle\": 10") == 10 + 4096);
	cr_assert(ceiling("\"max_idle\": 20000") == SP_TABLE_SANDBOXES_MAX);
	cr_assert(ceiling("\"max_idle\": 1, \"max_total\": 100000") == SP_TABLE_SANDBOXES_MAX);
}

Test(config_table, flags_follow_the_configuration)
{
	struct built built = build("{\"allow_host_network\": true, \"degraded\": true, "
				   "\"pools\": {\"p\": {\"network\": \"host\"}}}");

	cr_assert(built.pool->flags == (SP_POOL_F_NETWORK_HOST | SP_POOL_F_DEGRADED_OK));
	done(&built);
	built = build("{}");
	cr_assert(built.pool->flags == 0);
	done(&built);
}

Test(config_table, a_direct_pool_has_a_user_and_nothing_of_a_sandbox)
{
	struct built built = build("{\"allow_direct\": true, \"pools\": {\"p\": {\"backend\": "
				   "\"direct\", \"direct_user\": \"daemon\"}}}");

	cr_assert(built.pool->flags == SP_POOL_F_DIRECT);
	cr_assert(built.pool->direct_uid == 1 && built.pool->direct_gid == 1);
	cr_assert(built.pool->mount_count == 0 && built.pool->filter_length == 0);
	done(&built);
}

Test(config_table, allowed_binds_arrive_with_their_flags)
{
	struct built built = build_pool("\"allowed_binds\": [\"/srv\", {\"path\": \"/opt\", "
					"\"read_only\": true, \"recursive\": true}]");

	cr_assert(built.pool->root_count == 2);
	cr_assert_str_eq(built.pool->roots[0].path, "/srv");
	cr_assert(built.pool->roots[0].flags == 0);
	cr_assert_str_eq(built.pool->roots[1].path, "/opt");
	cr_assert(built.pool->roots[1].flags == (SP_ROOT_F_READ_ONLY | SP_ROOT_F_RECURSIVE));
	done(&built);
}

/* ---- filters ---- */

Test(config_table, pools_with_one_policy_share_their_filters)
{
	struct built built = build("{\"pools\": {\"a\": {}, \"b\": {\"max_idle\": 1}}}");
	const struct sp_table_pool *pools = sp_table_pools(built.table);

	cr_assert(pools[0].filter_length > 0 && pools[0].exec_filter_length > 0);
	cr_assert(pools[0].filter_length % sizeof(struct sock_filter) == 0);
	cr_assert(pools[0].filter_offset % 8 == 0);
	cr_assert(pools[0].filter_offset == pools[1].filter_offset);
	cr_assert(pools[0].exec_filter_offset == pools[1].exec_filter_offset);
	done(&built);
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	cr_assert(fd >= 0);
	cr_assert(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

Test(config_table, a_profile_gives_its_pool_a_filter_of_its_own)
{
	struct built built;
	char text[512];

	write_file("profile.json",
		   "{\"defaultAction\": \"SCMP_ACT_ALLOW\", \"syscalls\": [{\"names\": "
		   "[\"mkdir\"], \"action\": \"SCMP_ACT_ERRNO\"}]}");
	snprintf(text, sizeof(text),
		 "{\"pools\": {\"a\": {}, \"b\": {\"seccomp_profile\": \"%s/profile.json\"}, "
		 "\"c\": {\"seccomp_profile\": \"%s/profile.json\"}}}",
		 directory, directory);
	built = build(text);

	const struct sp_table_pool *pools = sp_table_pools(built.table);

	cr_assert(pools[0].filter_offset != pools[1].filter_offset);
	cr_assert(pools[1].filter_offset == pools[2].filter_offset);
	cr_assert(pools[1].filter_length > 0);
	done(&built);
}

Test(config_table, a_profile_that_does_not_compile_is_named)
{
	char members[256];

	write_file("profile.json", "{\"defaultAction\": \"SCMP_ACT_NONSENSE\"}");
	snprintf(members, sizeof(members), "\"seccomp_profile\": \"%s/profile.json\"", directory);
	build_fails(members, "profile.json'");
	snprintf(members, sizeof(members), "\"seccomp_profile\": \"%s/none.json\"", directory);
	build_fails(members, "open seccomp profile");
}

/* ---- root "system" ---- */

Test(config_table, the_system_root_has_the_host_s_programs_and_little_else)
{
	struct built built = build("{}");
	struct stat stat;

	is_at(built.pool, "/usr", SP_MOUNT_BIND, SP_MOUNT_F_RECURSIVE, 0);
	cr_assert_str_eq(at(built.pool, "/usr")->source, "/usr");
	cr_assert(lstat("/bin", &stat) == 0);
	if (S_ISLNK(stat.st_mode))
		cr_assert(at(built.pool, "/bin")->kind == SP_MOUNT_SYMLINK &&
			  strcmp(at(built.pool, "/bin")->source, "usr/bin") == 0);
	else
		is_at(built.pool, "/bin", SP_MOUNT_BIND, SP_MOUNT_F_RECURSIVE, 0);
	has_places(built.pool);
	is_at(built.pool, "/var", SP_MOUNT_DIR, 0, 0755);
	is_at(built.pool, "/var/tmp", SP_MOUNT_WRITABLE, 0, 01777);
	cr_assert(index_of(built.pool, "/opt") < 0 && index_of(built.pool, "/srv") < 0 &&
		  index_of(built.pool, "/boot") < 0);
	done(&built);
}

Test(config_table, etc_is_synthesised)
{
	struct built built = build_pool("\"hostname\": \"box\"");

	is_at(built.pool, "/etc", SP_MOUNT_TREE, 0, 0755);
	cr_assert(starts(text_at(&built, "/etc/passwd"),
			 "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n"
			 "nobody:x:65534:"));
	cr_assert(starts(text_at(&built, "/etc/group"), "root:x:0:\n"));
	cr_assert(starts(text_at(&built, "/etc/hosts"), "127.0.0.1 localhost\n"));
	cr_assert_not_null(strstr(text_at(&built, "/etc/hosts"), "127.0.1.1 box\n"));
	cr_assert(starts(text_at(&built, "/etc/hostname"), "box\n"));
	cr_assert(starts(text_at(&built, "/etc/nsswitch.conf"), "passwd: files\n"));
	cr_assert(at(built.pool, "/etc/resolv.conf")->blob_length == 0);
	cr_assert_str_eq(at(built.pool, "/etc/mtab")->source, "/proc/mounts");
	for (uint32_t i = 0; i < built.pool->mount_count; i++)
		if (built.pool->mounts[i].kind == SP_MOUNT_FILE)
			cr_assert(built.pool->mounts[i].mode == 0444);
	done(&built);
}

Test(config_table, nothing_secret_of_etc_is_shown)
{
	static const char *const secret[] = {
		"/etc/shadow",  "/etc/gshadow", "/etc/ssl",      "/etc/ssl/private", "/etc/ssh",
		"/etc/sudoers", "/etc/pki",     "/etc/sandpool", "/etc/machine-id"};
	struct built built = build("{}");

	for (size_t i = 0; i < SP_ARRAY_SIZE(secret); i++) {
		int found = index_of(built.pool, secret[i]);

		cr_assert(found < 0 || built.pool->mounts[found].kind == SP_MOUNT_DIR, "%s",
			  secret[i]);
	}
	done(&built);
}

Test(config_table, a_host_network_has_the_host_s_resolver)
{
	struct built built = build("{\"allow_host_network\": true, "
				   "\"pools\": {\"p\": {\"network\": \"host\"}}}");
	struct stat stat;

	if (lstat("/etc/resolv.conf", &stat) != 0 || !S_ISREG(stat.st_mode) || stat.st_size == 0)
		cr_skip_test("this host has no /etc/resolv.conf");
	cr_assert(at(built.pool, "/etc/resolv.conf")->blob_length == stat.st_size);
	done(&built);
}

/* ---- layers and masks ---- */

Test(config_table, a_layer_is_bound_at_its_own_path_over_everything_before)
{
	struct built built;
	char tools[128];

	cr_assert(mkdir("tools", 0755) == 0);
	snprintf(tools, sizeof(tools), "%s/tools", directory);
	built = build_pool("\"layers\": [\"#/tools\", \"/opt\"]");

	is_at(built.pool, "/opt", SP_MOUNT_BIND, SP_MOUNT_F_RECURSIVE, 0);
	is_at(built.pool, tools, SP_MOUNT_BIND, SP_MOUNT_F_RECURSIVE, 0);
	cr_assert(index_of(built.pool, tools) > index_of(built.pool, "/tmp"));
	done(&built);
}

Test(config_table, a_layer_that_does_not_exist_is_named)
{
	build_fails("\"layers\": [\"/nonexistent/layer\"]", "layer '/nonexistent/layer'");
}

Test(config_table, a_layer_that_lies_behind_a_link_is_refused)
{
	struct stat stat;

	if (lstat("/lib", &stat) != 0 || !S_ISLNK(stat.st_mode))
		cr_skip_test("this host's /lib is no link");
	build_fails("\"layers\": [\"/lib/systemd\"]", "none can be made there");
}

Test(config_table, masks_cover_optionally)
{
	struct built built = build_pool("\"masks\": [\"/usr/share/doc\", \"/usr/nonexistent/x\"]");

	is_at(built.pool, "/usr/share/doc", SP_MOUNT_HIDE, SP_MOUNT_F_OPTIONAL, 0);
	is_at(built.pool, "/usr/nonexistent/x", SP_MOUNT_HIDE, SP_MOUNT_F_OPTIONAL, 0);
	done(&built);
}

Test(config_table, a_mask_is_resolved_to_where_its_links_lead)
{
	struct built built;
	struct stat stat;

	if (lstat("/lib", &stat) != 0 || !S_ISLNK(stat.st_mode))
		cr_skip_test("this host's /lib is no link");
	built = build_pool("\"masks\": [\"/lib/modules-load.d\"]");
	is_at(built.pool, "/usr/lib/modules-load.d", SP_MOUNT_HIDE, SP_MOUNT_F_OPTIONAL, 0);
	done(&built);
}

Test(config_table, deeper_covers_come_later)
{
	struct built built;
	char members[512];

	cr_assert(mkdir("m", 0755) == 0 && mkdir("m/layer", 0755) == 0 &&
		  mkdir("m/layer/secret", 0755) == 0);
	snprintf(members, sizeof(members),
		 "\"masks\": [\"%s/m/layer/secret\", \"%s/m\"], \"layers\": [\"%s/m/layer\"]",
		 directory, directory, directory);
	built = build_pool(members);

	char outer[128];
	char layer[128];
	char inner[128];

	snprintf(outer, sizeof(outer), "%s/m", directory);
	snprintf(layer, sizeof(layer), "%s/m/layer", directory);
	snprintf(inner, sizeof(inner), "%s/m/layer/secret", directory);
	cr_assert(index_of(built.pool, outer) < index_of(built.pool, layer));
	cr_assert(index_of(built.pool, layer) < index_of(built.pool, inner));
	/* an empty cover takes no mount points: the one with a layer below is a writable place */
	is_at(built.pool, outer, SP_MOUNT_WRITABLE, SP_MOUNT_F_NOEXEC, 0755);
	is_at(built.pool, layer, SP_MOUNT_BIND, SP_MOUNT_F_RECURSIVE, 0);
	is_at(built.pool, inner, SP_MOUNT_HIDE, SP_MOUNT_F_OPTIONAL, 0);
	done(&built);
}

/* ---- root "host" ---- */

Test(config_table, the_host_root_shows_top_level_entries_and_hides_our_own)
{
	struct built built =
		build("{\"state_dir\": \"/var/lib/sandpool-test\", \"listen\": "
		      "[\"unix:///srv/sandpool.sock\"], \"pools\": {\"p\": {\"root\": \"host\"}}}");

	is_at(built.pool, "/usr", SP_MOUNT_BIND, SP_MOUNT_F_RECURSIVE, 0);
	is_at(built.pool, "/etc", SP_MOUNT_BIND, SP_MOUNT_F_RECURSIVE, 0);
	is_at(built.pool, "/var", SP_MOUNT_BIND, SP_MOUNT_F_RECURSIVE, 0);
	is_at(built.pool, "/var/tmp", SP_MOUNT_WRITABLE, 0, 01777);
	has_places(built.pool);
	is_at(built.pool, "/var/lib/sandpool-test", SP_MOUNT_HIDE, SP_MOUNT_F_OPTIONAL, 0);
	is_at(built.pool, "/srv/sandpool.sock", SP_MOUNT_HIDE, SP_MOUNT_F_OPTIONAL, 0);
	for (uint32_t i = 0; i < built.pool->mount_count; i++)
		cr_assert(built.pool->mounts[i].kind != SP_MOUNT_BIND ||
			  (strcmp(built.pool->mounts[i].source, "/home") != 0 &&
			   strcmp(built.pool->mounts[i].source, "/root") != 0 &&
			   strcmp(built.pool->mounts[i].source, "/run") != 0));
	done(&built);
}

/* ---- a directory as root ---- */

static void make_image(void)
{
	cr_assert(mkdir("image", 0755) == 0 && mkdir("image/usr", 0755) == 0 &&
		  mkdir("image/usr/bin", 0755) == 0 && mkdir("image/tmp", 0755) == 0 &&
		  mkdir("image/proc", 0755) == 0 && mkdir("image/opt", 0755) == 0);
	cr_assert(symlink("usr/bin", "image/bin") == 0);
	cr_assert(mkfifo("image/pipe", 0644) == 0);
	write_file("image/entrypoint.sh", "#!/bin/sh\n");
}

Test(config_table, an_image_shows_its_entries_and_gets_what_it_lacks)
{
	struct built built;
	char source[128];

	make_image();
	built = build_pool("\"root\": \"#/image\"");

	snprintf(source, sizeof(source), "%s/image/usr", directory);
	is_at(built.pool, "/usr", SP_MOUNT_BIND, SP_MOUNT_F_RECURSIVE, 0);
	cr_assert_str_eq(at(built.pool, "/usr")->source, source);
	is_at(built.pool, "/entrypoint.sh", SP_MOUNT_BIND, SP_MOUNT_F_RECURSIVE, 0);
	cr_assert(at(built.pool, "/bin")->kind == SP_MOUNT_SYMLINK);
	cr_assert_str_eq(at(built.pool, "/bin")->source, "usr/bin");
	cr_assert(index_of(built.pool, "/pipe") < 0);
	is_at(built.pool, "/etc", SP_MOUNT_TREE, 0, 0755);
	cr_assert(index_of(built.pool, "/etc/passwd") > 0);
	cr_assert(index_of(built.pool, "/etc/ld.so.cache") < 0); /* of the host's libraries */
	is_at(built.pool, "/var/tmp", SP_MOUNT_WRITABLE, 0, 01777);
	has_places(built.pool);
	done(&built);
}

Test(config_table, an_image_with_etc_keeps_it)
{
	struct built built;

	make_image();
	cr_assert(mkdir("image/etc", 0755) == 0 && mkdir("image/var", 0755) == 0);
	built = build_pool("\"root\": \"#/image\"");
	is_at(built.pool, "/etc", SP_MOUNT_BIND, SP_MOUNT_F_RECURSIVE, 0);
	cr_assert(index_of(built.pool, "/etc/passwd") < 0);
	/* read-only and without a directory for it */
	cr_assert(index_of(built.pool, "/var/tmp") < 0);
	done(&built);
}

Test(config_table, an_image_that_is_missing_or_a_link_is_refused)
{
	char members[256];

	snprintf(members, sizeof(members), "\"root\": \"%s/none\"", directory);
	build_fails(members, "open root");
	make_image();
	cr_assert(symlink("image", "link") == 0);
	snprintf(members, sizeof(members), "\"root\": \"%s/link\"", directory);
	build_fails(members, "no symbolic link is followed");
	snprintf(members, sizeof(members), "\"root\": \"%s/image/entrypoint.sh\"", directory);
	build_fails(members, "open root");
}

Test(config_table, a_layer_needs_a_mount_point_in_the_image)
{
	char members[512];
	struct built built;

	make_image();
	cr_assert(mkdir("image/srv", 0755) == 0);
	snprintf(members, sizeof(members), "\"root\": \"%s/image\", \"layers\": [\"/usr/lib\"]",
		 directory);
	build_fails(members, "layer '/usr/lib': the root has no such directory");
	built = build_pool("\"root\": \"#/image\", \"layers\": [\"/usr/bin\"]");
	is_at(built.pool, "/usr/bin", SP_MOUNT_BIND, SP_MOUNT_F_RECURSIVE, 0);
	cr_assert_str_eq(at(built.pool, "/usr/bin")->source, "/usr/bin");
	done(&built);
}

Test(config_table, masks_of_an_image_are_resolved_inside_it)
{
	struct built built;

	make_image();
	cr_assert(symlink("/opt", "image/usr/escape") == 0);
	cr_assert(mkdir("image/opt/x", 0755) == 0);
	built = build_pool("\"root\": \"#/image\", \"masks\": [\"/usr/escape/x\", \"/bin/sh\"]");
	is_at(built.pool, "/opt/x", SP_MOUNT_HIDE, SP_MOUNT_F_OPTIONAL, 0);
	is_at(built.pool, "/usr/bin/sh", SP_MOUNT_HIDE, SP_MOUNT_F_OPTIONAL, 0);
	done(&built);
}

/* Fills the image until the table has exactly `count` mounts. */
static void fill_image(uint32_t present, uint32_t count)
{
	for (uint32_t i = present; i < count; i++) {
		char name[64];

		snprintf(name, sizeof(name), "image/extra%u", i);
		cr_assert(mkdir(name, 0755) == 0);
	}
}

Test(config_table, mounts_up_to_their_limit)
{
	char members[256];
	struct built built;
	uint32_t present;

	make_image();
	cr_assert(mkdir("image/etc", 0755) == 0);
	snprintf(members, sizeof(members), "\"root\": \"%s/image\"", directory);
	built = build_pool("\"root\": \"#/image\"");
	present = built.pool->mount_count;
	done(&built);
	fill_image(present, SP_TABLE_MOUNTS_MAX);
	built = build_pool("\"root\": \"#/image\"");
	cr_assert(built.pool->mount_count == SP_TABLE_MOUNTS_MAX);
	done(&built);
	fill_image(SP_TABLE_MOUNTS_MAX, SP_TABLE_MOUNTS_MAX + 1);
	build_fails(members, "more than 96 mounts");
}

Test(config_table, as_many_pools_as_can_be_configured_fit)
{
	struct built built;
	struct sp_buf text;
	char *json;

	sp_buf_init(&text, TEXT_MAX);
	cr_assert(sp_buf_printf(&text, "{\"pools\": {") == 0);
	for (unsigned int i = 0; i < SP_TABLE_POOLS_MAX; i++)
		cr_assert(sp_buf_printf(&text, "%s\"p%u\": {}", i > 0 ? "," : "", i) == 0);
	cr_assert(sp_buf_printf(&text, "}}") == 0);
	json = sp_buf_take(&text);
	built = build(json);
	cr_assert(built.table->pool_count == SP_TABLE_POOLS_MAX);
	cr_assert(built.size < SP_TABLE_SIZE_MAX);
	done(&built);
	free(json);
}
