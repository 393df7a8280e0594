/*
 * See files_record.h. Sizes and times may be lies and are not checked; what is used as an index, a
 * name or a path is.
 */
#include "supervisor/daemon/files_record.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#define ALIGNMENT 8u
#define ERRNO_MAX 4095 /* the kernel's */
#define MODE_BITS 07777u
#define LOOPBACK  0x7f000001u

_Static_assert(SP_FILE_REGULAR == (int)SP_INIT_FILE_REGULAR, "types");
_Static_assert(SP_FILE_DIRECTORY == (int)SP_INIT_FILE_DIR, "types");
_Static_assert(SP_FILE_SYMLINK == (int)SP_INIT_FILE_LINK, "types");
_Static_assert(SP_FILE_OTHER == (int)SP_INIT_FILE_ELSE, "types");
_Static_assert(SP_FILE_PATH_MAX == SP_INIT_PATH_MAX, "paths");
_Static_assert(SP_FILE_KEEP == SP_INIT_FILE_KEEP, "keep");
_Static_assert(SP_FILE_LIST_MAX <= SP_INIT_FILE_ENTRIES, "listings");

int files_info_take(const struct sp_init_file_info *from, struct sp_file_info *ret)
{
	if (from->type > SP_INIT_FILE_ELSE || (from->mode & ~MODE_BITS) != 0)
		return -EBADMSG;
	*ret = (struct sp_file_info){
		.type = (enum sp_file_type)from->type,
		.mode = from->mode,
		.uid = from->uid,
		.gid = from->gid,
		.size = from->size,
		.inode = from->inode,
		.modified_ns = from->modified_ns,
		.changed_ns = from->changed_ns,
	};
	return 0;
}

int files_entries_open(struct files_entries *entries, const void *record, size_t len,
		       uint32_t depth)
{
	struct sp_init_file_record_header header;

	if (len < sizeof(header))
		return -EBADMSG;
	memcpy(&header, record, sizeof(header));
	if (header.type != SP_INIT_FILE_FOUND || header.count == 0)
		return -EBADMSG;
	entries->at = (const char *)record + sizeof(header);
	entries->left = len - sizeof(header);
	entries->count = header.count;
	entries->depth = depth;
	return 0;
}

/* One to `depth` components, each a name that a directory can hold. */
static bool relative_path(const char *path, size_t length, uint32_t depth)
{
	uint32_t components = 0;

	if (length == 0 || length >= SP_FILE_PATH_MAX || memchr(path, '\0', length) ||
	    path[length] != '\0')
		return false;
	for (;;) {
		size_t name = strcspn(path, "/");

		if (name == 0 || name > NAME_MAX || ++components > depth)
			return false;
		if ((name == 1 && path[0] == '.') || (name == 2 && memcmp(path, "..", 2) == 0))
			return false;
		if (path[name] == '\0')
			return true;
		path += name + 1;
	}
}

int files_entries_next(struct files_entries *entries, struct files_entry *ret)
{
	struct sp_init_file_entry entry;
	size_t size = sizeof(entry);

	if (entries->count == 0)
		return entries->left == 0 ? 0 : -EBADMSG;
	if (entries->left < sizeof(entry))
		return -EBADMSG;
	memcpy(&entry, entries->at, sizeof(entry));
	if (entry.path_length >= SP_FILE_PATH_MAX || entry.reserved != 0)
		return -EBADMSG;
	size += entry.path_length + (size_t)1;
	size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	if (size > entries->left)
		return -EBADMSG;
	ret->path = entries->at + sizeof(entry);
	ret->path_length = entry.path_length;
	if (!relative_path(ret->path, ret->path_length, entries->depth) ||
	    files_info_take(&entry.info, &ret->info) < 0)
		return -EBADMSG;
	entries->at += size;
	entries->left -= size;
	entries->count--;
	return 1;
}

int files_result_check(const void *record, size_t len, bool info)
{
	struct sp_init_file_result result;
	struct sp_file_info taken;

	if (len != sizeof(result))
		return -EBADMSG;
	memcpy(&result, record, sizeof(result));
	if (result.header.type != SP_INIT_FILE_RESULT || result.status > 0 ||
	    result.status < -ERRNO_MAX || !memchr(result.stage, '\0', sizeof(result.stage)) ||
	    !memchr(result.object, '\0', sizeof(result.object)))
		return -EBADMSG;
	return info && result.status == 0 ? files_info_take(&result.info, &taken) : 0;
}

int files_accounts_take(const void *record, size_t len, struct sp_file_info *ret_users,
			struct sp_file_info *ret_groups)
{
	struct sp_init_file_accounts accounts;

	if (len != sizeof(accounts))
		return -EBADMSG;
	memcpy(&accounts, record, sizeof(accounts));
	if (accounts.header.type != SP_INIT_FILE_ACCOUNTS || accounts.header.count != 0)
		return -EBADMSG;
	return files_info_take(&accounts.users, ret_users) < 0
		       ? -EBADMSG
		       : files_info_take(&accounts.groups, ret_groups);
}

int files_regular_check(int fd, struct sp_file_info *info)
{
	int flags = fcntl(fd, F_GETFL);
	struct statfs system;
	struct stat file;

	if (flags < 0 || (flags & O_PATH) != 0 || (flags & O_ACCMODE) != O_RDONLY)
		return -EBADMSG;
	if (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode) || info->type != SP_FILE_REGULAR)
		return -EBADMSG;
	if (fstatfs(fd, &system) != 0 || sp_init_file_pseudo(system.f_type))
		return -EBADMSG;
	/* What is read is this, whatever the inside said. The ids are another namespace's. */
	info->size = (uint64_t)file.st_size;
	return 0;
}

static bool is_stream(int fd)
{
	socklen_t size = sizeof(int);
	int protocol = 0;
	int listening = 1;

	if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) != 0 ||
	    protocol != IPPROTO_TCP)
		return false;
	size = sizeof(listening);
	return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0 && listening == 0;
}

int files_socket_check(int fd, uint16_t port)
{
	const struct linger none = {0};
	struct sockaddr_in peer = {0};
	socklen_t size = sizeof(peer);
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || !is_stream(fd))
		return -EBADMSG;
	/* ENOTCONN: whoever listens there has hung up already, which the owner will see. */
	if (getpeername(fd, (struct sockaddr *)&peer, &size) != 0
		    ? errno != ENOTCONN
		    : peer.sin_family != AF_INET || peer.sin_port != htons(port) ||
			      peer.sin_addr.s_addr != htonl(LOOPBACK))
		return -EBADMSG;
	/* A close that waits would be the loop's. */
	if (setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none)) != 0 ||
	    fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
		return -EBADMSG;
	return 0;
}

static enum sp_code connect_code(int status)
{
	switch (-status) {
	case EAGAIN:
	case ENOMEM:
	case ECANCELED:
	case EMFILE:
	case ENFILE:
	case ENOBUFS:
		return SP_CODE_UNAVAILABLE;
	default:
		return SP_CODE_CONNECT_FAILED;
	}
}

enum sp_code files_code(enum sp_init_file_kind kind, int status)
{
	if (kind == SP_INIT_FILE_CONNECT)
		return connect_code(status);
	switch (-status) {
	case ENOENT:
		return SP_CODE_FILE_NOT_FOUND;
	case EEXIST:
	case ENOTEMPTY:
		return SP_CODE_FILE_EXISTS;
	case ENOTDIR:
	case EISDIR:
	case ELOOP:
	case ENODEV:
	case ENXIO:
	case EOPNOTSUPP: /* a file system of the kernel's own */
		return SP_CODE_FILE_KIND;
	case EACCES:
	case EPERM:
	case EROFS:
	case EBUSY: /* a mount point */
	case ETXTBSY:
		return SP_CODE_FILE_DENIED;
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		return SP_CODE_FILE_FULL;
	case E2BIG:
		return SP_CODE_TOO_MANY;
	case EINVAL:
	case ENAMETOOLONG:
	case EOVERFLOW: /* an id that is not mapped */
		return SP_CODE_INVALID_ARGUMENT;
	case EXDEV:
		return SP_CODE_UNSUPPORTED;
	default:
		return SP_CODE_UNAVAILABLE;
	}
}

const char *files_commit_refusal(const char *stage, enum sp_code *ret_code)
{
	static const struct {
		const char *stage;
		enum sp_code code;
		const char *why;
	} refusals[] = {
		{SP_INIT_COMMIT_BASE, SP_CODE_CONFLICT,
		 "somebody else has changed the base since the overlay was made"},
		{SP_INIT_COMMIT_CLOCK, SP_CODE_CONFLICT,
		 "the clock was set back since the overlay was made, so nobody can tell whether "
		 "the "
		 "base was changed"},
		{SP_INIT_COMMIT_FILESYSTEM, SP_CODE_UNSUPPORTED,
		 "the base is on a network or FUSE file system: what others change there would not "
		 "be noticed"},
		{SP_INIT_COMMIT_APART, SP_CODE_UNSUPPORTED,
		 "it is in a file system of its own (a subvolume) below the base, where nothing "
		 "can "
		 "be moved to in one step"},
		{SP_INIT_COMMIT_LIMIT, SP_CODE_TOO_MANY, "there is too much for one commit"},
		{SP_INIT_COMMIT_BUSY, SP_CODE_CONFLICT, "what runs there does not end"},
		{SP_INIT_COMMIT_LOCKED, SP_CODE_CONFLICT,
		 "another commit to that base is under way"},
		{SP_INIT_COMMIT_RESERVED, SP_CODE_CONFLICT, "a name that commits use themselves"},
		{SP_INIT_COMMIT_OWNER, SP_CODE_FILE_DENIED,
		 "the workload may not do this in the base"},
		{SP_INIT_COMMIT_KIND, SP_CODE_FILE_KIND, "a device"},
		{SP_INIT_COMMIT_JOURNAL, SP_CODE_CONFLICT,
		 "what is left in the base is no commit of ours; remove it"},
		{SP_INIT_COMMIT_APPLY, SP_CODE_UNAVAILABLE,
		 "it is decided and could not be finished; that is done when the base is bound "
		 "again"},
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(refusals); i++) {
		if (strcmp(stage, refusals[i].stage) != 0)
			continue;
		*ret_code = refusals[i].code;
		return refusals[i].why;
	}
	return NULL;
}
