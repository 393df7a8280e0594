/*
 * What this host remembers of the cluster in its state directory, one small file each, so that the
 * loss of the store loses nothing that an operator said:
 *
 *	host.secret         64 hex digits, drawn once: proves that a restart is the same host
 *	intent.POOL         "v1 REVISION MAX_IDLE MAX_TOTAL STATE DRAINING\n", as last seen
 *
 * Each is written beside the old one, synced, renamed over it, and the directory synced, before
 * anybody acts on it: power that fails takes neither the name of this host nor what an operator
 * said last. That blocks the loop for as long as the disk takes, once for each word of an operator.
 * A file that cannot be read is no intent.
 */
#include "supervisor/daemon/daemon_private.h"

#include "pool/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECRET_FILE "host.secret"
#define NAME_ROOM   (SP_POOL_NAME_MAX + 32)
#define INTENT_MAX  128

static const char *const state_names[] = {
	[SP_STORE_ACTIVE] = "active",
	[SP_STORE_DRAINING] = "draining",
	[SP_STORE_DESTROYING] = "destroying",
	[SP_STORE_DESTROYED] = "destroyed",
};

static int open_dir(const char *state_dir, struct sp_err *err)
{
	int fd = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? sp_err_set(err, -errno, "open the state directory '%s'", state_dir) : fd;
}

/* The whole of a small regular file with a NUL behind it; its length, or -errno. */
static ssize_t read_small(int dir, const char *name, char *text, size_t size)
{
	SP_AUTO_CLOSE int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat info;
	ssize_t got;

	if (fd < 0 || fstat(fd, &info) < 0)
		return -errno;
	if (!S_ISREG(info.st_mode))
		return -EINVAL;
	got = sp_read_all(fd, text, size - 1);
	if (got >= 0)
		text[got] = '\0';
	return got;
}

/* Whole or not at all, and for good once this has returned 0. */
static int replace(int dir, const char *name, const char *text, const struct sp_identity *owner)
{
	char fresh[NAME_ROOM];
	SP_AUTO_CLOSE int fd = -1;
	size_t len = strlen(text);

	/* The directory is an unprivileged user's and we may be root: never into a file that is
	 * there already, whatever it is another name of. */
	(void)snprintf(fresh, sizeof(fresh), "%s.new", name);
	(void)unlinkat(dir, fresh, 0);
	fd = openat(dir, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	if (write(fd, text, len) != (ssize_t)len ||
	    (owner && fchown(fd, owner->uid, owner->gid) < 0) || fsync(fd) < 0 ||
	    renameat(dir, fresh, dir, name) < 0 || fsync(dir) < 0) {
		int status = errno != 0 ? -errno : -EIO;

		(void)unlinkat(dir, fresh, 0);
		return status;
	}
	return 0;
}

int host_secret_get(const char *state_dir, const struct sp_identity *owner,
		    char ret_secret[SP_SECRET_LEN + 1], struct sp_err *err)
{
	SP_AUTO_CLOSE int dir = open_dir(state_dir, err);
	char text[SP_SECRET_LEN + 2];
	ssize_t got;
	int status;

	if (dir < 0)
		return dir;
	got = read_small(dir, SECRET_FILE, text, sizeof(text));
	if (got >= 0 && sp_lease_id_valid(text)) {
		memcpy(ret_secret, text, SP_SECRET_LEN + 1);
		return 0;
	}
	if (got >= 0)
		return sp_err_code(err, SP_CODE_CONFIG_INVALID, -EINVAL,
				   "'%s/" SECRET_FILE "' does not hold a secret: remove it, and "
				   "this host is another one to the store",
				   state_dir);
	if (got != -ENOENT)
		return sp_err_set(err, (int)got, "read '%s/" SECRET_FILE "'", state_dir);
	sp_secret_new(ret_secret);
	status = replace(dir, SECRET_FILE, ret_secret, owner);
	return status < 0 ? sp_err_set(err, status, "write '%s/" SECRET_FILE "'", state_dir) : 0;
}

static void intent_name(const char *pool, char *name)
{
	(void)snprintf(name, NAME_ROOM, "intent.%s", pool);
}

static int parse_state(const char *word, enum sp_store_pool_state *ret_state)
{
	for (size_t i = 0; i < SP_ARRAY_SIZE(state_names); i++) {
		if (strcmp(word, state_names[i]) == 0) {
			*ret_state = (enum sp_store_pool_state)i;
			return 0;
		}
	}
	return -EINVAL;
}

static int parse_intent(const char *text, struct sp_store_meta *ret_meta, bool *ret_draining)
{
	struct sp_store_meta meta;
	int64_t revision;
	char state[16];
	int draining;

	if (sscanf(text, "v1 %" SCNd64 " %" SCNu32 " %" SCNu32 " %15s %d", &revision,
		   &meta.max_idle, &meta.max_total, state, &draining) != 5 ||
	    revision < 0 || parse_state(state, &meta.state) < 0)
		return -EINVAL;
	meta.revision = (uint64_t)revision;
	*ret_meta = meta;
	*ret_draining = draining != 0;
	return 0;
}

void intent_load(const char *state_dir, const char *pool, struct sp_store_meta *ret_meta,
		 bool *ret_draining)
{
	SP_AUTO_CLOSE int dir = open_dir(state_dir, NULL);
	char name[NAME_ROOM];
	char text[INTENT_MAX];
	ssize_t got;

	intent_name(pool, name);
	got = dir < 0 ? dir : read_small(dir, name, text, sizeof(text));
	if (got == -ENOENT)
		return;
	if (got < 0 || parse_intent(text, ret_meta, ret_draining) < 0)
		sp_log(SP_LOG_WARN, "what was last seen of a pool is not readable, ignoring",
		       "pool=%s file=%s/%s", pool, state_dir, name);
}

int intent_save(const char *state_dir, const char *pool, const struct sp_store_meta *meta,
		bool draining, struct sp_err *err)
{
	SP_AUTO_CLOSE int dir = open_dir(state_dir, err);
	char name[NAME_ROOM];
	char text[INTENT_MAX];
	int status;

	if (dir < 0)
		return dir;
	intent_name(pool, name);
	(void)snprintf(text, sizeof(text), "v1 %" PRIu64 " %" PRIu32 " %" PRIu32 " %s %d\n",
		       meta->revision, meta->max_idle, meta->max_total, state_names[meta->state],
		       draining ? 1 : 0);
	status = replace(dir, name, text, NULL);
	return status < 0 ? sp_err_set(err, status, "write '%s/%s'", state_dir, name) : 0;
}
