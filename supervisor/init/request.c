/*
 * One function for each type of record: exact length, known flags, counts in range, as many
 * descriptors as the flags say.
 */
#include "supervisor/init/request.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#define STANDARD_FDS   3u
#define UMASK_BITS     0777u
#define SIGNAL_NUMBERS 64u

size_t init_request_exec_fds(uint32_t flags)
{
	size_t count = (flags & SP_EXEC_F_TTY) != 0 ? 0 : STANDARD_FDS;

	if ((flags & SP_EXEC_F_CGROUP) != 0)
		count++;
	if ((flags & SP_EXEC_F_STRINGS) != 0)
		count++;
	return count;
}

static bool exec_valid(const struct sp_init_exec *exec, size_t len, size_t fd_count)
{
	size_t strings;

	if (len < sizeof(*exec))
		return false;
	strings = len - sizeof(*exec);
	if ((exec->flags & ~SP_EXEC_F_ALL) != 0 || fd_count != init_request_exec_fds(exec->flags))
		return false;
	if (exec->argc == 0 || exec->argc > SP_INIT_ARGS_MAX || exec->envc > SP_INIT_ENV_MAX)
		return false;
	if ((exec->umask & ~UMASK_BITS) != 0 || exec->deadline_boot_ms < 0 || exec->reserved != 0)
		return false;
	/* Its terminal would be one of the sandbox's. */
	if (exec->session != 0 && (exec->flags & SP_EXEC_F_TTY) != 0)
		return false;
	if ((exec->flags & SP_EXEC_F_STRINGS) != 0)
		return strings == 0 && exec->strings_length > 0 &&
		       exec->strings_length <= SP_INIT_STRINGS_MAX;
	return strings == exec->strings_length && strings > 0 && strings <= SP_INIT_INLINE_MAX;
}

static bool signal_valid(const struct sp_init_signal *signal, size_t len, size_t fd_count)
{
	return len == sizeof(*signal) && fd_count == 0 && signal->reserved == 0 &&
	       signal->signal >= 1 && signal->signal <= SIGNAL_NUMBERS;
}

static bool mount_valid(const struct sp_init_mount *mount, size_t len, size_t fd_count)
{
	const char *target = (const char *)(mount + 1);

	bool overlay;

	if (len <= sizeof(*mount) || fd_count != 1 ||
	    (mount->flags & ~SP_INIT_MOUNT_F_OVERLAY) != 0)
		return false;
	overlay = (mount->flags & SP_INIT_MOUNT_F_OVERLAY) != 0;
	if (overlay ? mount->size == 0 || mount->header.exec == 0 ||
			      mount->header.exec > SP_INIT_OVERLAYS_MAX
		    : mount->size != 0)
		return false;
	if (mount->target_length == 0 || mount->target_length >= SP_INIT_TARGET_MAX)
		return false;
	if (len - sizeof(*mount) != (size_t)mount->target_length + 1)
		return false;
	return memchr(target, '\0', len - sizeof(*mount)) == target + mount->target_length;
}

static bool deadline_valid(const struct sp_init_deadline *deadline, size_t len, size_t fd_count)
{
	return len == sizeof(*deadline) && fd_count == 0 && deadline->boot_ms >= 0;
}

/* `length` bytes, then a NUL, and none before; absolute. */
static bool path_valid(const char *path, uint32_t length)
{
	return length > 0 && length < SP_INIT_PATH_MAX && path[0] == '/' &&
	       memchr(path, '\0', (size_t)length + 1) == path + length;
}

static bool file_paths_valid(const struct sp_init_file *file, size_t len)
{
	const char *text = (const char *)(file + 1);
	bool second = file->kind == SP_INIT_FILE_MOVE;
	size_t wanted = 0;

	if (file->path_length >= SP_INIT_PATH_MAX || file->to_length >= SP_INIT_PATH_MAX)
		return false;
	if (file->kind != SP_INIT_FILE_CONNECT)
		wanted += (size_t)file->path_length + 1;
	if (second)
		wanted += (size_t)file->to_length + 1;
	if (len - sizeof(*file) != wanted || (!second && file->to_length != 0))
		return false;
	if (file->kind == SP_INIT_FILE_CONNECT)
		return file->path_length == 0;
	return path_valid(text, file->path_length) &&
	       (!second || path_valid(text + file->path_length + 1, file->to_length));
}

static uint32_t file_flags(uint32_t kind)
{
	if (kind == SP_INIT_FILE_REMOVE)
		return SP_INIT_FILE_F_RECURSIVE;
	if (kind == SP_INIT_FILE_STAT || kind == SP_INIT_FILE_LIST)
		return SP_INIT_FILE_F_ACCOUNTS;
	if (kind == SP_INIT_FILE_RENEW)
		return SP_INIT_FILE_F_UNUSED;
	return kind == SP_INIT_FILE_MOVE ? SP_INIT_FILE_F_REPLACE : 0;
}

/* A session has one, the sandbox itself has numbers. */
static bool file_overlay_valid(const struct sp_init_file *file)
{
	if (file->kind < SP_INIT_FILE_DIFF)
		return file->overlay == 0;
	if (file->session != 0 || file->kind == SP_INIT_FILE_RECOVER)
		return file->session == 0 || file->overlay == 0;
	return file->overlay != 0;
}

static bool file_numbers_valid(const struct sp_init_file *file)
{
	bool limited = file->kind == SP_INIT_FILE_LIST || file->kind == SP_INIT_FILE_WRITE_BACK;
	bool attributes = file->kind == SP_INIT_FILE_MKDIR || file->kind == SP_INIT_FILE_CHANGE ||
			  file->kind == SP_INIT_FILE_WRITE;

	if (file->kind == SP_INIT_FILE_CONNECT ? file->port == 0 || file->port > UINT16_MAX
					       : file->port != 0)
		return false;
	if (!file_overlay_valid(file))
		return false;
	if (limited ? file->limit == 0 || file->limit > SP_INIT_FILE_ENTRIES : file->limit != 0)
		return false;
	if (file->depth != 0 && file->kind != SP_INIT_FILE_LIST)
		return false;
	if (!attributes)
		return file->mode == SP_INIT_FILE_KEEP && file->owner == SP_INIT_FILE_KEEP &&
		       file->group == SP_INIT_FILE_KEEP;
	return file->mode == SP_INIT_FILE_KEEP || (file->mode & ~SP_INIT_FILE_MODE) == 0;
}

static bool file_valid(const struct sp_init_file *file, size_t len, size_t fd_count)
{
	if (len < sizeof(*file) || fd_count != 1)
		return false;
	if (file->kind < SP_INIT_FILE_STAT || file->kind > SP_INIT_FILE_USED)
		return false;
	return (file->flags & ~file_flags(file->kind)) == 0 && file_numbers_valid(file) &&
	       file_paths_valid(file, len);
}

/* As many NULs as there are strings, the last at the end; each an absolute path. */
static bool session_strings_valid(const struct sp_init_session_open *open)
{
	const char *at = (const char *)(open + 1);
	const char *end = at + open->strings_length;
	uint32_t count = 1 + open->allowed_count + open->writable_count + 2 * open->bind_count;

	for (uint32_t i = 0; i < count; i++) {
		const char *nul = at < end ? memchr(at, '\0', (size_t)(end - at)) : NULL;

		if (!nul || at[0] != '/' || nul - at >= SP_INIT_PATH_MAX)
			return false;
		at = nul + 1;
	}
	return at == end;
}

static bool session_open_valid(const struct sp_init_session_open *open, size_t len, size_t fd_count)
{
	if (len < sizeof(*open) || fd_count != 0 || open->header.exec == 0)
		return false;
	if ((open->flags & ~SP_SESSION_F_ALL) != 0 || open->mode < SP_INIT_SESSION_RW ||
	    open->mode > SP_INIT_SESSION_OVERLAY)
		return false;
	if (open->allowed_count > SP_INIT_SESSION_PATHS_MAX ||
	    open->writable_count > SP_INIT_SESSION_PATHS_MAX ||
	    open->bind_count > SP_INIT_SESSION_PATHS_MAX ||
	    open->read_only_binds >> open->bind_count != 0)
		return false;
	return len - sizeof(*open) == open->strings_length &&
	       open->strings_length <= SP_INIT_INLINE_MAX && session_strings_valid(open);
}

int init_request_check(const void *record, size_t len, size_t fd_count)
{
	const struct sp_init_header *header = record;
	bool valid = false;

	if (len < sizeof(*header))
		return -EBADMSG;
	switch (header->type) {
	case SP_INIT_EXEC:
		valid = exec_valid(record, len, fd_count);
		break;
	case SP_INIT_SIGNAL:
		valid = signal_valid(record, len, fd_count);
		break;
	case SP_INIT_MOUNT:
		valid = mount_valid(record, len, fd_count);
		break;
	case SP_INIT_DEADLINE:
		valid = deadline_valid(record, len, fd_count);
		break;
	case SP_INIT_FILE:
		valid = file_valid(record, len, fd_count);
		break;
	case SP_INIT_SESSION_OPEN:
		valid = session_open_valid(record, len, fd_count);
		break;
	case SP_INIT_KILL_EXEC:
	case SP_INIT_PING:
	case SP_INIT_SESSION_CLOSE:
	case SP_INIT_USAGE:
		valid = len == sizeof(struct sp_init_plain) && fd_count == 0;
		break;
	default:
		break;
	}
	return valid ? 0 : -EBADMSG;
}

/* The string at *at, which must end before `end`; NULL if it does not. */
static char *next_string(char **at, char *end)
{
	char *start = *at;
	char *nul = start < end ? memchr(start, '\0', (size_t)(end - start)) : NULL;

	if (!nul)
		return NULL;
	*at = nul + 1;
	return start;
}

static int split_vector(char **at, char *end, uint32_t count, char **vector)
{
	for (uint32_t i = 0; i < count; i++) {
		vector[i] = next_string(at, end);
		if (!vector[i])
			return -EBADMSG;
	}
	vector[count] = NULL;
	return 0;
}

int init_request_split(char *text, size_t len, uint32_t argc, uint32_t envc,
		       struct init_strings *strings)
{
	char *at = text;
	char *end = text + len;

	strings->cwd = next_string(&at, end);
	if (!strings->cwd)
		return -EBADMSG;
	if (split_vector(&at, end, argc, strings->argv) < 0 ||
	    split_vector(&at, end, envc, strings->envp) < 0)
		return -EBADMSG;
	return at == end ? 0 : -EBADMSG;
}
