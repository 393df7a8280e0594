/*
 * Makes, limits, kills and removes cgroups. Works through directory descriptors only, so that it
 * goes on working after the host's file system was pivoted away.
 *
 * Trusts the kernel's cgroup files and its own names; sub-cgroups may be written by a sandbox's
 * init, which is why they get cgroup.max.depth 0 and why removal never assumes that one is empty.
 */
#include "supervisor/sandbox/cgroup.h"

#include "pool/base/fd.h"
#include "supervisor/sandbox/mountinfo.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TOP_DIR         "sandpool"
#define MAKE_RETRIES    8
#define SUPERVISOR_LEAF "supervisor"
#define VALUE_MAX       64     /* of one written limit */
#define KILL_BATCH      256    /* processes of one v1 pass */
#define SWEEP_MS        5      /* between two passes of the sweep */
#define CPU_PERIOD_US   100000 /* of a new v1 cgroup */

static const struct {
	const char *name;
	uint32_t bit;
} controller_names[] = {
	{"memory", SP_CGROUP_MEMORY},
	{"pids", SP_CGROUP_PIDS},
	{"cpu", SP_CGROUP_CPU},
};

/* Which of our controllers stand in a list separated by `separator`. */
static uint32_t controllers_in(const char *list, char separator)
{
	const char delimiters[] = {separator, '\n', '\0'};
	uint32_t found = 0;

	while (*list != '\0') {
		size_t len = strcspn(list, delimiters);

		for (size_t i = 0; i < SP_ARRAY_SIZE(controller_names); i++)
			if (strlen(controller_names[i].name) == len &&
			    strncmp(list, controller_names[i].name, len) == 0)
				found |= controller_names[i].bit;
		list += len;
		list += *list != '\0';
	}
	return found;
}

static int open_dir(int dir_fd, const char *name)
{
	int fd = openat(dir_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int write_file(int dir_fd, const char *name, const char *value)
{
	SP_AUTO_CLOSE int fd = openat(dir_fd, name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return sp_write_all(fd, value, strlen(value));
}

static int write_number(int dir_fd, const char *name, uint64_t number)
{
	char value[VALUE_MAX];

	(void)snprintf(value, sizeof(value), "%" PRIu64, number);
	return write_file(dir_fd, name, value);
}

static ssize_t read_file(int dir_fd, const char *name, char *buffer, size_t size)
{
	SP_AUTO_CLOSE int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t got;

	if (fd < 0)
		return -errno;
	got = sp_read_all(fd, buffer, size - 1);
	if (got >= 0)
		buffer[got] = '\0';
	return got;
}

/* --- finding the hierarchies ------------------------------------------------------------- */

static uint32_t controllers_known(const struct sp_cgroups *groups)
{
	uint32_t known = 0;

	for (size_t i = 0; i < groups->count; i++)
		known |= groups->hierarchies[i].controllers;
	return known;
}

static void add_hierarchy(struct sp_cgroups *groups, const char *path, bool v2, const char *options)
{
	struct sp_cgroup_hierarchy *hierarchy = &groups->hierarchies[groups->count];
	char list[VALUE_MAX * 4] = "";
	uint32_t controllers;
	int fd;

	if (groups->count == SP_CGROUP_HIERARCHIES_MAX || (v2 && sp_cgroups_have_v2(groups)))
		return;
	controllers = v2 ? 0 : controllers_in(options, ',');
	/* A controller belongs to one hierarchy; a second mount of it is the same one again. */
	if (!v2 && (controllers & ~controllers_known(groups)) == 0)
		return;
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (v2 && read_file(fd, "cgroup.controllers", list, sizeof(list)) > 0)
		controllers = controllers_in(list, ' ');
	*hierarchy = (struct sp_cgroup_hierarchy){
		.mount_fd = fd, .base_fd = -1, .controllers = controllers, .v2 = v2};
	groups->count++;
}

/* One line of mountinfo: "… root mountpoint options [optional…] - type source superoptions". */
static void parse_mount(struct sp_cgroups *groups, char *line)
{
	char *tail = strstr(line, " - ");
	char *fields[5];
	char *state = NULL;
	char *type;

	if (!tail)
		return;
	*tail = '\0';
	fields[0] = strtok_r(line, " ", &state);
	for (size_t i = 1; i < SP_ARRAY_SIZE(fields); i++)
		fields[i] = strtok_r(NULL, " ", &state);
	type = strtok_r(tail + 3, " ", &state);
	if (!fields[4] || !type || !strtok_r(NULL, " ", &state))
		return;
	sp_mountinfo_unescape(fields[4]);
	if (strcmp(type, "cgroup2") == 0)
		add_hierarchy(groups, fields[4], true, "");
	else if (strcmp(type, "cgroup") == 0 && state)
		add_hierarchy(groups, fields[4], false, state);
}

static struct sp_cgroup_hierarchy *find_v2(struct sp_cgroups *groups)
{
	for (size_t i = 0; i < groups->count; i++)
		if (groups->hierarchies[i].v2)
			return &groups->hierarchies[i];
	return NULL;
}

static int v2_base(const struct sp_cgroups *groups)
{
	for (size_t i = 0; i < groups->count; i++)
		if (groups->hierarchies[i].v2)
			return groups->hierarchies[i].base_fd;
	return -1;
}

bool sp_cgroups_have_v2(const struct sp_cgroups *groups)
{
	for (size_t i = 0; i < groups->count; i++)
		if (groups->hierarchies[i].v2)
			return true;
	return false;
}

/*
 * On a pure v2 host a systemd service owns its cgroup (Delegate=yes): sandboxes go below it. Other
 * cgroups (a login session's scope) are not ours to rearrange, then the mount's root is used. In
 * a hybrid the v1 paths could differ, and one path must name a sandbox everywhere: root as well.
 */
static void enter_service(struct sp_cgroups *groups)
{
	static const char suffix[] = ".service";
	static const char leaf[] = "/" SUPERVISOR_LEAF;
	struct sp_cgroup_hierarchy *v2 = find_v2(groups);
	char line[SP_CGROUP_PATH_MAX];
	char *path = line + strlen("0::/");
	size_t len;
	int fd;

	if (groups->count != 1 || !v2 ||
	    read_file(AT_FDCWD, "/proc/self/cgroup", line, sizeof(line)) < 0 ||
	    strncmp(line, "0::/", strlen("0::/")) != 0)
		return;
	len = strcspn(path, "\n");
	if (len >= strlen(leaf) && strncmp(path + len - strlen(leaf), leaf, strlen(leaf)) == 0)
		len -= strlen(leaf); /* where an earlier start of ours moved the service */
	path[len] = '\0';
	if (len <= strlen(suffix) || strcmp(path + len - strlen(suffix), suffix) != 0)
		return;
	fd = open_dir(v2->mount_fd, path);
	if (fd < 0)
		return;
	sp_fd_close(&v2->mount_fd);
	v2->mount_fd = fd;
	(void)snprintf(groups->service, sizeof(groups->service), "%s/", path);
}

int sp_cgroups_find(struct sp_cgroups *groups, struct sp_err *err)
{
	char *line = NULL;
	size_t size = 0;
	FILE *file;

	memset(groups, 0, sizeof(*groups));
	file = fopen("/proc/self/mountinfo", "re");
	if (!file)
		return sp_err_set(err, -errno, "open '/proc/self/mountinfo'");
	while (getline(&line, &size, file) > 0) {
		line[strcspn(line, "\n")] = '\0';
		parse_mount(groups, line);
	}
	free(line);
	(void)fclose(file);
	enter_service(groups);
	return 0;
}

/* --- start --------------------------------------------------------------------------------- */

static int make_dir(int dir_fd, const char *name)
{
	if (mkdirat(dir_fd, name, 0755) < 0 && errno != EEXIST)
		return -errno;
	return open_dir(dir_fd, name);
}

/* Move every process of dir into its child `leaf`: v2 gives controllers only to the children of a
 * cgroup that has no processes itself. */
static int empty_into_leaf(int dir_fd, const char *leaf)
{
	SP_AUTO_CLOSE int leaf_fd = make_dir(dir_fd, leaf);
	char list[4096] = "";
	ssize_t got;

	if (leaf_fd < 0)
		return leaf_fd;
	got = read_file(dir_fd, "cgroup.procs", list, sizeof(list));
	if (got < 0)
		return (int)got;
	for (char *at = list; *at != '\0';) {
		size_t len = strcspn(at, "\n");

		if (at[len] == '\0') /* cut at the end of the buffer */
			break;
		at[len] = '\0';
		(void)write_file(leaf_fd, "cgroup.procs", at); /* it may have ended */
		at += len + 1;
	}
	return 0;
}

static void enable_controllers(int dir_fd, uint32_t wanted)
{
	for (size_t i = 0; i < SP_ARRAY_SIZE(controller_names); i++) {
		char word[16];

		if ((wanted & controller_names[i].bit) == 0)
			continue;
		(void)snprintf(word, sizeof(word), "+%s", controller_names[i].name);
		if (write_file(dir_fd, "cgroup.subtree_control", word) == -EBUSY &&
		    empty_into_leaf(dir_fd, SUPERVISOR_LEAF) == 0)
			(void)write_file(dir_fd, "cgroup.subtree_control", word);
	}
}

/* Another instance that stops may take the empty sandpool away between our two steps. */
static int make_base(const struct sp_cgroup_hierarchy *hierarchy, const char *instance,
		     int *ret_top_fd)
{
	int base_fd = -ENOENT;

	for (int i = 0; i < MAKE_RETRIES && base_fd == -ENOENT; i++) {
		SP_AUTO_CLOSE int top_fd = make_dir(hierarchy->mount_fd, TOP_DIR);

		if (top_fd < 0 && top_fd != -ENOENT)
			return top_fd;
		base_fd = top_fd < 0 ? top_fd : make_dir(top_fd, instance);
		if (base_fd >= 0)
			*ret_top_fd = sp_take_fd(&top_fd);
	}
	return base_fd;
}

static int start_hierarchy(struct sp_cgroup_hierarchy *hierarchy, const char *instance)
{
	SP_AUTO_CLOSE int top_fd = -1;
	int base_fd = make_base(hierarchy, instance, &top_fd);
	char list[VALUE_MAX * 4] = "";

	if (base_fd < 0)
		return base_fd;
	hierarchy->base_fd = base_fd;
	if (!hierarchy->v2)
		return faccessat(base_fd, "cgroup.procs", W_OK, 0) < 0 ? -errno : 0;
	enable_controllers(hierarchy->mount_fd, hierarchy->controllers);
	enable_controllers(top_fd, hierarchy->controllers);
	enable_controllers(base_fd, hierarchy->controllers);
	/* What is really handed down, whatever the writes said. */
	hierarchy->controllers = 0;
	if (read_file(base_fd, "cgroup.subtree_control", list, sizeof(list)) > 0)
		hierarchy->controllers = controllers_in(list, ' ');
	return 0;
}

static void close_hierarchy(struct sp_cgroup_hierarchy *hierarchy)
{
	sp_fd_close(&hierarchy->mount_fd);
	sp_fd_close(&hierarchy->base_fd);
}

int sp_cgroups_start(struct sp_cgroups *groups, const char *instance, struct sp_err *err)
{
	size_t kept = 0;
	int used;

	used = snprintf(groups->path, sizeof(groups->path), "%s" TOP_DIR "/%s", groups->service,
			instance);
	if (used < 0 || (size_t)used + SP_SANDBOX_ID_LEN + 2 > sizeof(groups->path))
		return sp_err_set(err, -ENAMETOOLONG, "cgroup path of instance '%s'", instance);
	(void)snprintf(groups->instance, sizeof(groups->instance), "%s", instance);
	for (size_t i = 0; i < groups->count; i++) {
		struct sp_cgroup_hierarchy hierarchy = groups->hierarchies[i];

		if (start_hierarchy(&hierarchy, instance) < 0)
			close_hierarchy(&hierarchy);
		else
			groups->hierarchies[kept++] = hierarchy;
	}
	groups->count = kept;
	return 0;
}

void sp_cgroups_done(struct sp_cgroups *groups)
{
	for (size_t i = 0; i < groups->count; i++) {
		int mount_fd = groups->hierarchies[i].mount_fd;
		char base[sizeof(groups->instance) + sizeof(TOP_DIR "/")];

		(void)snprintf(base, sizeof(base), TOP_DIR "/%s", groups->instance);
		/* Those in use, by us or by others, refuse. */
		if (groups->instance[0] != '\0' && unlinkat(mount_fd, base, AT_REMOVEDIR) == 0)
			(void)unlinkat(mount_fd, TOP_DIR, AT_REMOVEDIR);
		close_hierarchy(&groups->hierarchies[i]);
	}
	groups->count = 0;
}

/* --- killing and removing ------------------------------------------------------------------ */

static size_t read_pids(int dir_fd, pid_t *pids, size_t max)
{
	char list[KILL_BATCH * 12];
	size_t count = 0;
	char *at = list;

	if (read_file(dir_fd, "cgroup.procs", list, sizeof(list)) <= 0)
		return 0;
	while (count < max) {
		char *end;
		long pid = strtol(at, &end, 10);

		if (end == at || *end != '\n')
			break;
		if (pid > 0)
			pids[count++] = (pid_t)pid;
		at = end + 1;
	}
	return count;
}

/* v1 has no cgroup.kill. A pid may be reused between reading and signalling, so it is pinned by a
 * pidfd first and must still be listed after that. */
static void kill_listed(int dir_fd)
{
	pid_t before[KILL_BATCH];
	pid_t after[KILL_BATCH];
	int pidfds[KILL_BATCH];
	size_t before_count = read_pids(dir_fd, before, KILL_BATCH);
	size_t after_count;

	for (size_t i = 0; i < before_count; i++)
		pidfds[i] = pidfd_open(before[i], 0);
	after_count = before_count > 0 ? read_pids(dir_fd, after, KILL_BATCH) : 0;
	for (size_t i = 0; i < before_count; i++) {
		for (size_t j = 0; j < after_count && pidfds[i] >= 0; j++)
			if (after[j] == before[i]) {
				(void)pidfd_send_signal(pidfds[i], SIGKILL, NULL, 0);
				break;
			}
		sp_fd_close(&pidfds[i]);
	}
}

static void kill_members(const struct sp_cgroup_hierarchy *hierarchy, int dir_fd)
{
	if (!hierarchy->v2 || write_file(dir_fd, "cgroup.kill", "1") < 0)
		kill_listed(dir_fd);
}

/* Call remove for each sub-directory of dir. */
static int remove_children(int dir_fd)
{
	int status = 0;
	int list_fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = list_fd < 0 ? NULL : fdopendir(list_fd);
	struct dirent *entry;

	if (!dir) {
		sp_fd_close(&list_fd);
		return -errno;
	}
	while ((entry = readdir(dir)) != NULL) {
		if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
			continue;
		if (unlinkat(dir_fd, entry->d_name, AT_REMOVEDIR) < 0 && errno != ENOENT)
			status = -errno;
	}
	(void)closedir(dir);
	return status;
}

static int remove_one(const struct sp_cgroup_hierarchy *hierarchy, const char *id)
{
	SP_AUTO_CLOSE int dir_fd = -1;

	if (unlinkat(hierarchy->base_fd, id, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	if (errno != EBUSY)
		return -errno;
	dir_fd = open_dir(hierarchy->base_fd, id);
	if (dir_fd < 0)
		return dir_fd == -ENOENT ? 0 : dir_fd;
	if (hierarchy->v2)
		(void)remove_children(dir_fd);
	if (unlinkat(hierarchy->base_fd, id, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	kill_members(hierarchy, dir_fd);
	return -EBUSY;
}

int sp_cgroup_remove(const struct sp_cgroups *groups, const char *id)
{
	int status = 0;

	for (size_t i = 0; i < groups->count; i++) {
		int one = remove_one(&groups->hierarchies[i], id);

		if (one < 0)
			status = one;
	}
	return status;
}

/* --- creating ------------------------------------------------------------------------------ */

static int limit_memory(int dir_fd, bool v2, uint64_t bytes)
{
	int status;

	if (v2) {
		status = write_number(dir_fd, "memory.max", bytes);
		if (status == 0)
			status = write_file(dir_fd, "memory.swap.max", "0");
	} else {
		status = write_number(dir_fd, "memory.limit_in_bytes", bytes);
		if (status == 0)
			status = write_number(dir_fd, "memory.memsw.limit_in_bytes", bytes);
	}
	/* Without swap accounting there is no knob, and the limit still holds for memory. */
	return status == -ENOENT ? 0 : status;
}

static int limit_cpu(int dir_fd, bool v2, const struct sp_cgroup_limits *limits)
{
	char value[VALUE_MAX];
	int status;

	if (v2) {
		(void)snprintf(value, sizeof(value), "%" PRIu64 " %" PRIu64, limits->cpu_quota_us,
			       limits->cpu_period_us);
		return write_file(dir_fd, "cpu.max", value);
	}
	/* For each of the two the kernel goes through every cgroup there is, so what a new one has
	 * already is not written. */
	status = limits->cpu_period_us == CPU_PERIOD_US
			 ? 0
			 : write_number(dir_fd, "cpu.cfs_period_us", limits->cpu_period_us);
	if (status == 0)
		status = write_number(dir_fd, "cpu.cfs_quota_us", limits->cpu_quota_us);
	return status;
}

static uint32_t limits_wanted(const struct sp_cgroup_limits *limits)
{
	return (limits->memory_bytes > 0 ? SP_CGROUP_MEMORY : 0) |
	       (limits->pids > 0 ? SP_CGROUP_PIDS : 0) |
	       (limits->cpu_quota_us > 0 ? SP_CGROUP_CPU : 0);
}

/* Returns the limits that this directory now enforces. */
static uint32_t apply_limits(const struct sp_cgroup_hierarchy *hierarchy, int dir_fd,
			     const struct sp_cgroup_limits *limits)
{
	uint32_t wanted = limits_wanted(limits) & hierarchy->controllers;
	uint32_t applied = 0;

	if ((wanted & SP_CGROUP_MEMORY) != 0 &&
	    limit_memory(dir_fd, hierarchy->v2, limits->memory_bytes) == 0)
		applied |= SP_CGROUP_MEMORY;
	if ((wanted & SP_CGROUP_PIDS) != 0 && write_number(dir_fd, "pids.max", limits->pids) == 0)
		applied |= SP_CGROUP_PIDS;
	if ((wanted & SP_CGROUP_CPU) != 0 && limit_cpu(dir_fd, hierarchy->v2, limits) == 0)
		applied |= SP_CGROUP_CPU;
	return applied;
}

static int create_one(const struct sp_cgroup_hierarchy *hierarchy, const char *id,
		      const struct sp_cgroup_limits *limits, struct sp_cgroup_entry *entry,
		      uint32_t *applied)
{
	SP_AUTO_CLOSE int dir_fd = -1;
	int attach_fd;

	if (mkdirat(hierarchy->base_fd, id, 0755) < 0)
		return -errno;
	dir_fd = open_dir(hierarchy->base_fd, id);
	if (dir_fd < 0)
		return dir_fd;
	*applied |= apply_limits(hierarchy, dir_fd, limits);
	if (hierarchy->v2) {
		entry->v2_fd = sp_take_fd(&dir_fd);
		return 0;
	}
	/* Not cgroup.procs: a single thread that moves itself takes no lock that waits for an RCU
	 * grace period (from 5.18 on), and holds up nobody else's fork, mkdir and rmdir meanwhile.
	 */
	attach_fd = openat(dir_fd, "tasks", O_WRONLY | O_CLOEXEC);
	if (attach_fd < 0) {
		int status = -errno;

		(void)unlinkat(hierarchy->base_fd, id, AT_REMOVEDIR);
		return status;
	}
	entry->attach_fds[entry->attach_count++] = attach_fd;
	return 0;
}

void sp_cgroup_entry_done(struct sp_cgroup_entry *entry)
{
	sp_fd_close(&entry->v2_fd);
	for (size_t i = 0; i < entry->attach_count; i++)
		sp_fd_close(&entry->attach_fds[i]);
	entry->attach_count = 0;
}

static int refuse_unenforced(uint32_t missing, struct sp_err *err)
{
	for (size_t i = 0; i < SP_ARRAY_SIZE(controller_names); i++)
		if ((missing & controller_names[i].bit) != 0)
			return sp_err_set(err, -EOPNOTSUPP, "enforce the '%s' limit",
					  controller_names[i].name);
	return -EOPNOTSUPP;
}

/* While no sandbox lives the instance's own cgroup is empty, and whoever tidies up (a service
 * manager, an operator) can take it away. */
static int renew_base(struct sp_cgroup_hierarchy *hierarchy, const char *instance)
{
	struct sp_cgroup_hierarchy fresh = *hierarchy;
	int status;

	fresh.base_fd = -1;
	status = start_hierarchy(&fresh, instance);
	if (status < 0) {
		sp_fd_close(&fresh.base_fd);
		return status;
	}
	sp_fd_close(&hierarchy->base_fd);
	*hierarchy = fresh;
	return 0;
}

int sp_cgroup_create(struct sp_cgroups *groups, const char *id,
		     const struct sp_cgroup_limits *limits, struct sp_cgroup_entry *ret_entry,
		     struct sp_err *err)
{
	struct sp_cgroup_entry entry = {.v2_fd = -1};
	uint32_t applied = 0;
	size_t made = 0;
	int status = 0;

	while (made < groups->count && status == 0) {
		struct sp_cgroup_hierarchy *hierarchy = &groups->hierarchies[made];

		status = create_one(hierarchy, id, limits, &entry, &applied);
		if (status == -ENOENT && renew_base(hierarchy, groups->instance) == 0)
			status = create_one(hierarchy, id, limits, &entry, &applied);
		if (status == 0)
			made++;
		else
			(void)sp_err_set(err, status, "create cgroup '%s/%s'", groups->path, id);
	}
	entry.degraded = limits_wanted(limits) & ~applied;
	if (status == 0 && entry.degraded != 0 && !limits->degraded_ok)
		status = refuse_unenforced(entry.degraded, err);
	if (status < 0) {
		sp_cgroup_entry_done(&entry);
		/* Only what we made: a repeated id must not cost its first owner his life. */
		for (size_t i = 0; i < made; i++)
			(void)remove_one(&groups->hierarchies[i], id);
		return status;
	}
	*ret_entry = entry;
	return 0;
}

static unsigned int sweep_pass(const struct sp_cgroup_hierarchy *hierarchy)
{
	int list_fd = openat(hierarchy->base_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = list_fd < 0 ? NULL : fdopendir(list_fd);
	unsigned int left = 0;
	struct dirent *entry;

	if (!dir) {
		sp_fd_close(&list_fd);
		return 0;
	}
	while ((entry = readdir(dir)) != NULL)
		if (entry->d_type == DT_DIR && entry->d_name[0] != '.' &&
		    remove_one(hierarchy, entry->d_name) < 0)
			left++;
	(void)closedir(dir);
	return left;
}

unsigned int sp_cgroups_sweep(struct sp_cgroups *groups, int wait_ms)
{
	const struct timespec pause = {.tv_nsec = SWEEP_MS * SP_NS_PER_MS};
	unsigned int left = 0;

	for (int waited = 0;; waited += SWEEP_MS) {
		left = 0;
		for (size_t i = 0; i < groups->count; i++)
			left += sweep_pass(&groups->hierarchies[i]);
		if (left == 0 || waited >= wait_ms)
			return left;
		(void)nanosleep(&pause, NULL);
	}
}

/* --- v2 only ------------------------------------------------------------------------------- */

static int open_v2(const struct sp_cgroups *groups, const char *id)
{
	int base_fd = v2_base(groups);

	return base_fd < 0 ? -EOPNOTSUPP : open_dir(base_fd, id);
}

int sp_cgroup_freeze(const struct sp_cgroups *groups, const char *id, bool freeze)
{
	SP_AUTO_CLOSE int dir_fd = open_v2(groups, id);

	return dir_fd < 0 ? dir_fd : write_file(dir_fd, "cgroup.freeze", freeze ? "1" : "0");
}

static void exec_name(char *name, size_t size, uint32_t number)
{
	(void)snprintf(name, size, "x%u", number);
}

/* init may move its children between the sandbox's cgroup and this one only if it may write the
 * cgroup.procs of their common ancestor too, which is the sandbox's own. */
static int own_exec(int sandbox_fd, int exec_fd, uid_t uid)
{
	int status = write_file(exec_fd, "cgroup.max.depth", "0");

	if (status < 0)
		return status;
	if (fchownat(sandbox_fd, "cgroup.procs", uid, (gid_t)-1, AT_SYMLINK_NOFOLLOW) < 0 ||
	    fchownat(exec_fd, "cgroup.procs", uid, (gid_t)-1, AT_SYMLINK_NOFOLLOW) < 0 ||
	    fchownat(exec_fd, "", uid, (gid_t)-1, AT_EMPTY_PATH) < 0)
		return -errno;
	return 0;
}

int sp_cgroup_exec_create(const struct sp_cgroups *groups, const char *id, uint32_t number,
			  uid_t uid, int *ret_fd, struct sp_err *err)
{
	SP_AUTO_CLOSE int sandbox_fd = open_v2(groups, id);
	SP_AUTO_CLOSE int exec_fd = -1;
	char name[16];
	int status;

	if (sandbox_fd < 0)
		return sp_err_set(err, sandbox_fd, "open v2 cgroup '%s/%s'", groups->path, id);
	exec_name(name, sizeof(name), number);
	if (mkdirat(sandbox_fd, name, 0755) < 0)
		return sp_err_set(err, -errno, "create cgroup '%s/%s/%s'", groups->path, id, name);
	/* Readable, not O_PATH: the receiver checks what it got by fstatfs and lists nothing else.
	 */
	exec_fd = openat(sandbox_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	status = exec_fd < 0 ? -errno : own_exec(sandbox_fd, exec_fd, uid);
	if (status < 0) {
		(void)unlinkat(sandbox_fd, name, AT_REMOVEDIR);
		return sp_err_set(err, status, "hand over cgroup '%s/%s/%s'", groups->path, id,
				  name);
	}
	*ret_fd = sp_take_fd(&exec_fd);
	return 0;
}

int sp_cgroup_exec_kill(const struct sp_cgroups *groups, const char *id, uint32_t number)
{
	SP_AUTO_CLOSE int sandbox_fd = open_v2(groups, id);
	SP_AUTO_CLOSE int exec_fd = -1;
	char name[16];

	if (sandbox_fd < 0)
		return sandbox_fd;
	exec_name(name, sizeof(name), number);
	exec_fd = open_dir(sandbox_fd, name);
	return exec_fd < 0 ? exec_fd : write_file(exec_fd, "cgroup.kill", "1");
}

int sp_cgroup_exec_remove(const struct sp_cgroups *groups, const char *id, uint32_t number)
{
	SP_AUTO_CLOSE int sandbox_fd = open_v2(groups, id);
	char name[16];

	if (sandbox_fd < 0)
		return sandbox_fd == -ENOENT ? 0 : sandbox_fd;
	exec_name(name, sizeof(name), number);
	if (unlinkat(sandbox_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return -errno;
	return 0;
}
