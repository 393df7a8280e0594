/*
 * An ordinary user may map only his own id. For more, newuidmap(1) and newgidmap(1), which have the
 * privilege for it, check the request against /etc/subuid and /etc/subgid and write the maps. They
 * must run outside the namespace that they are about, so a helper is forked before it is made:
 *
 *	launcher                          helper
 *	unshare(CLONE_NEWUSER)
 *	one byte ───────────────────────► newuidmap <launcher> 0 <uid> 1 1 <first> <count>
 *	                                  newgidmap likewise
 *	waits for its exit
 *
 * If the first of them fails nothing has been written, and the map of the one id still can be.
 * The two files are root's; of each the longest range of the user is taken.
 */
#include "supervisor/launcher/user_namespace.h"

#include "pool/base/fd.h"
#include "pool/base/log.h"
#include "supervisor/launcher/table.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SUBUID_FILE   "/etc/subuid"
#define SUBGID_FILE   "/etc/subgid"
#define NEWUIDMAP     "/usr/bin/newuidmap"
#define NEWGIDMAP     "/usr/bin/newgidmap"
#define IDS_MAX       (SP_OWN_IDS_PER_SANDBOX * SP_TABLE_SANDBOXES_MAX)
#define LINE_SPACE    512
#define DECIMAL_SPACE 12
#define EXIT_NO_UIDS  1
#define EXIT_NO_GIDS  2

struct range {
	uint32_t first;
	uint32_t count;
};

static int write_text(const char *path, const char *text)
{
	SP_AUTO_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd < 0 ? -errno : sp_write_all(fd, text, strlen(text));
}

/* "name:first:count", or the user's number instead of the name. */
static bool parse_line(char *line, const char *name, uid_t uid, struct range *ret)
{
	unsigned long first;
	unsigned long count;
	char number[DECIMAL_SPACE];
	char *colon = strchr(line, ':');
	char *end;

	if (!colon)
		return false;
	*colon = '\0';
	(void)snprintf(number, sizeof(number), "%u", uid);
	if (strcmp(line, number) != 0 && (!name || strcmp(line, name) != 0))
		return false;
	first = strtoul(colon + 1, &end, 10);
	if (end == colon + 1 || *end != ':')
		return false;
	colon = end;
	count = strtoul(colon + 1, &end, 10);
	if (end == colon + 1 || (*end != '\0' && *end != '\n') || first == 0 || first > UINT32_MAX)
		return false;
	*ret = (struct range){.first = (uint32_t)first,
			      .count = (uint32_t)SP_MIN(count, UINT32_MAX - first)};
	return true;
}

static struct range longest_range(const char *path, const char *name, uid_t uid)
{
	struct range longest = {0};
	FILE *file = fopen(path, "re");
	char line[LINE_SPACE];
	struct range range;

	while (file && fgets(line, sizeof(line), file))
		if (parse_line(line, name, uid, &range) && range.count > longest.count)
			longest = range;
	if (file)
		(void)fclose(file);
	return longest;
}

/* Only whole sandboxes' worth, and as many of uids as of gids. */
static bool find_ranges(struct range *ret_uids, struct range *ret_gids)
{
	const struct passwd *user = getpwuid(geteuid());
	const char *name = user ? user->pw_name : NULL;
	uint32_t count;

	*ret_uids = longest_range(SUBUID_FILE, name, geteuid());
	*ret_gids = longest_range(SUBGID_FILE, name, geteuid());
	count = SP_MIN(SP_MIN(ret_uids->count, ret_gids->count), IDS_MAX);
	count -= count % SP_OWN_IDS_PER_SANDBOX;
	ret_uids->count = count;
	ret_gids->count = count;
	return count > 0 && access(NEWUIDMAP, X_OK) == 0 && access(NEWGIDMAP, X_OK) == 0;
}

/* --- the helper --- */

SP_NORETURN static void run_tool(const char *tool, pid_t target, uint32_t own,
				 const struct range *range)
{
	char pid[DECIMAL_SPACE];
	char self[DECIMAL_SPACE];
	char first[DECIMAL_SPACE];
	char count[DECIMAL_SPACE];
	char *environment[] = {NULL};

	(void)snprintf(pid, sizeof(pid), "%d", target);
	(void)snprintf(self, sizeof(self), "%u", own);
	(void)snprintf(first, sizeof(first), "%u", range->first);
	(void)snprintf(count, sizeof(count), "%u", range->count);
	(void)execle(tool, tool, pid, "0", self, "1", "1", first, count, (char *)NULL, environment);
	_exit(EXIT_FAILURE);
}

static bool run_and_wait(const char *tool, pid_t target, uint32_t own, const struct range *range)
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0)
		run_tool(tool, target, own, range);
	while (pid > 0 && waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return false;
	return pid > 0 && status == 0;
}

SP_NORETURN static void helper(int go_fd, pid_t target, const struct range *uids,
			       const struct range *gids)
{
	char go;

	if (sp_read_all(go_fd, &go, 1) != 1)
		_exit(EXIT_NO_UIDS);
	if (!run_and_wait(NEWUIDMAP, target, geteuid(), uids))
		_exit(EXIT_NO_UIDS);
	_exit(run_and_wait(NEWGIDMAP, target, getegid(), gids) ? EXIT_SUCCESS : EXIT_NO_GIDS);
}

/* Its exit status, or a negative errno. */
static int let_helper_go(int *go_fd, pid_t pid)
{
	int status = 0;
	bool sent = write(*go_fd, "G", 1) == 1;

	sp_fd_close(go_fd);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return sent && WIFEXITED(status) ? WEXITSTATUS(status) : -EPIPE;
}

/* --- the namespace --- */

static int unshare_user(struct sp_err *err)
{
	return unshare(CLONE_NEWUSER) == 0
		       ? 0
		       : sp_err_set(err, -errno,
				    "create a user namespace (see sysctl user.max_user_namespaces, "
				    "kernel.unprivileged_userns_clone, "
				    "kernel.apparmor_restrict_unprivileged_userns)");
}

static int map_one_id(uid_t uid, gid_t gid, struct sp_err *err)
{
	char uid_map[32];
	char gid_map[32];
	int status;

	(void)snprintf(uid_map, sizeof(uid_map), "0 %u 1", uid);
	(void)snprintf(gid_map, sizeof(gid_map), "0 %u 1", gid);
	status = write_text("/proc/self/uid_map", uid_map);
	if (status == 0)
		status = write_text("/proc/self/setgroups", "deny");
	if (status == 0)
		status = write_text("/proc/self/gid_map", gid_map);
	return status == 0 ? 0
			   : sp_err_set(err, status,
					"map the own uid (see sysctl "
					"kernel.apparmor_restrict_unprivileged_userns)");
}

/* 0: the maps are written; > 0: nothing is; < 0: neither can it be any more. */
static int enter_with_ranges(const struct range *uids, const struct range *gids, struct sp_err *err)
{
	SP_AUTO_CLOSE int go_fd = -1;
	pid_t launcher = getpid();
	int pair[2];
	int status;
	pid_t pid;

	if (pipe2(pair, O_CLOEXEC) < 0)
		return sp_err_set(err, -errno, "make a pipe");
	pid = fork();
	if (pid == 0) {
		sp_fd_close(&pair[1]);
		helper(pair[0], launcher, uids, gids);
	}
	sp_fd_close(&pair[0]);
	go_fd = pair[1];
	if (pid < 0)
		return sp_err_set(err, -errno, "fork");
	status = unshare_user(err);
	if (status < 0)
		return status; /* the helper reads the end of the pipe and goes */
	status = let_helper_go(&go_fd, pid);
	if (status == EXIT_NO_GIDS)
		return sp_err_set(err, -EPERM, "map groups with '" NEWGIDMAP "'");
	return status < 0 ? sp_err_set(err, status, "map ids with '" NEWUIDMAP "'") : status;
}

int sp_user_namespace_enter(struct sp_own_ids *ret_ids, struct sp_err *err)
{
	struct range uids;
	struct range gids;
	uid_t uid = geteuid();
	gid_t gid = getegid();
	int status;

	*ret_ids = (struct sp_own_ids){.user = uid};
	if (!find_ranges(&uids, &gids)) {
		sp_log(SP_LOG_WARN, "no subordinate ids, every sandbox has the user's own",
		       "uid=%u files=\"" SUBUID_FILE " " SUBGID_FILE "\" tool=" NEWUIDMAP, uid);
		status = unshare_user(err);
		return status < 0 ? status : map_one_id(uid, gid, err);
	}
	status = enter_with_ranges(&uids, &gids, err);
	if (status == 0)
		*ret_ids =
			(struct sp_own_ids){.user = uid, .first = uids.first, .count = uids.count};
	if (status <= 0)
		return status;
	sp_log(SP_LOG_WARN, "no subordinate ids, every sandbox has the user's own",
	       "uid=%u refused=" NEWUIDMAP, uid);
	return map_one_id(uid, gid, err);
}
