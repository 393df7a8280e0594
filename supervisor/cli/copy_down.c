/*
 * Out of the sandbox. Every name and size is the sandbox's word: a name of a tree that is not below
 * the tree ends the copy, files are opened beneath the directory that was asked for and nowhere
 * else, and a file appears under its name when all of it has arrived.
 */
#include "supervisor/cli/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pool/base/fd.h"
#include "supervisor/cli/transfer.h"

#define WHOLE_TREE UINT32_MAX

static int take_to_fd(void *arg, const char *data, size_t len, struct sp_err *err)
{
	const int *fd = arg;
	int status = sp_write_all(*fd, data, len);

	return status < 0 ? sp_err_set(err, status, "write the copy") : 0;
}

static int get(const struct sp_cli *cli, const char *target, int fd, struct sp_err *err)
{
	return sp_cli_transfer_get(&cli->client, target, take_to_fd, &fd, err);
}

/* ---- one file ---- */

/* Under a name of its own first; then it takes the place of what is there. */
static int get_and_rename(const struct sp_cli *cli, const char *target, int directory_fd,
			  const char *name, mode_t mode, struct sp_err *err)
{
	char part[64];
	SP_AUTO_CLOSE int fd = -1;
	int status;

	(void)snprintf(part, sizeof(part), ".sandpool-cp.%d", (int)getpid());
	fd = openat(directory_fd, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
	if (fd < 0)
		return sp_err_set(err, -errno, "make a file beside '%s'", name);
	status = get(cli, target, fd, err);
	if (status == 0 && renameat(directory_fd, part, directory_fd, name) < 0)
		status = sp_err_set(err, -errno, "rename the copy to '%s'", name);
	if (status < 0)
		(void)unlinkat(directory_fd, part, 0);
	return status;
}

static mode_t mode_of(const json_t *info)
{
	int64_t decimal = json_integer_value(json_object_get(info, "mode"));
	mode_t mode = 0;

	for (mode_t place = 1; decimal > 0 && place <= 0100; place *= 8, decimal /= 10)
		mode += (mode_t)(decimal % 10 & 7) * place;
	return mode;
}

/* What is there and no regular file (a FIFO, /dev/null) is written to. */
int sp_cli_copy_get(const struct sp_cli *cli, const char *target, const char *local, uint32_t mode,
		    struct sp_err *err)
{
	const char *slash = strrchr(local, '/');
	char *directory = slash ? strndup(local, (size_t)(slash - local) + 1) : strdup(".");
	SP_AUTO_CLOSE int fd = -1;
	struct stat there;
	int status = 0;

	if (strcmp(local, "-") == 0) {
		status = get(cli, target, STDOUT_FILENO, err);
	} else if (stat(local, &there) == 0 && !S_ISREG(there.st_mode)) {
		fd = open(local, O_WRONLY | O_CLOEXEC);
		status = fd < 0 ? sp_err_set(err, -errno, "open '%s'", local)
				: get(cli, target, fd, err);
	} else {
		fd = directory ? open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
		status = fd < 0 ? sp_err_set(err, -errno, "open the directory of '%s'", local)
				: get_and_rename(cli, target, fd, slash ? slash + 1 : local, mode,
						 err);
	}
	free(directory);
	return status;
}

static int get_file(const struct sp_cli *cli, const struct sp_cli_place *place, const char *local,
		    mode_t mode, struct sp_err *err)
{
	struct sp_buf target;
	int status;

	sp_buf_init(&target, SP_CLI_REQUEST_MAX);
	status = sp_cli_place_target(&target, place, "files", err);
	if (status == 0)
		status = sp_cli_copy_get(cli, sp_buf_text(&target), local, mode, err);
	sp_buf_done(&target);
	return status;
}

/* ---- a tree ---- */

static int get_below(const struct sp_cli *cli, const struct sp_cli_place *root,
		     const char *relative, int directory_fd, const char *name, mode_t mode,
		     struct sp_err *err)
{
	struct sp_cli_place place = *root;
	char *path = sp_cli_path_join(root->path, relative);
	struct sp_buf target;
	int status;

	place.path = path;
	sp_buf_init(&target, SP_CLI_REQUEST_MAX);
	status = sp_cli_place_target(&target, &place, "files", err);
	if (status == 0)
		status = get_and_rename(cli, sp_buf_text(&target), directory_fd, name, mode, err);
	sp_buf_done(&target);
	free(path);
	return status;
}

/* The part of an entry's path below the tree's; NULL: it is not below it. */
static const char *below(const char *path, const char *root)
{
	size_t len = strlen(root);

	if (strncmp(path, root, len) != 0)
		return NULL;
	path += len;
	if (len > 1 && *path++ != '/')
		return NULL;
	for (const char *at = path;; at++) {
		size_t segment = strcspn(at, "/");

		if (segment == 0 || (segment == 1 && at[0] == '.') ||
		    (segment == 2 && at[0] == '.' && at[1] == '.'))
			return NULL;
		at += segment;
		if (*at == '\0')
			return path;
	}
}

/* The directory that an entry lies in, beneath root_fd, and its last name. */
static int open_parent(int root_fd, const char *relative, int *ret_fd, const char **ret_name,
		       struct sp_err *err)
{
	struct open_how how = {
		.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH,
	};
	const char *slash = strrchr(relative, '/');
	char *parent = slash ? strndup(relative, (size_t)(slash - relative)) : strdup(".");
	int fd = parent ? (int)syscall(SYS_openat2, root_fd, parent, &how, sizeof(how)) : -1;
	int status = fd < 0 ? sp_err_set(err, -errno, "open the directory of '%s'", relative) : 0;

	free(parent);
	if (status == 0) {
		*ret_fd = fd;
		*ret_name = slash ? slash + 1 : relative;
	}
	return status;
}

static int get_entry(const struct sp_cli *cli, const struct sp_cli_place *root, int root_fd,
		     const char *relative, const json_t *info, struct sp_err *err)
{
	SP_AUTO_CLOSE int parent_fd = -1;
	const char *name = relative;
	char text[512];
	int status = open_parent(root_fd, relative, &parent_fd, &name, err);

	if (status < 0)
		return status;
	switch (sp_cli_file_type(info)) {
	case SP_CLI_DIRECTORY:
		/* Ours to fill, whatever it is there. */
		if (mkdirat(parent_fd, name, mode_of(info) | S_IRWXU) < 0 && errno != EEXIST)
			status = sp_err_set(err, -errno, "make directory '%s'", relative);
		break;
	case SP_CLI_FILE:
		status = get_below(cli, root, relative, parent_fd, name, mode_of(info), err);
		break;
	case SP_CLI_SYMLINK:
	case SP_CLI_OTHER:
		(void)snprintf(text, sizeof(text), "'%.400s' is no regular file and left out",
			       relative);
		sp_cli_note(cli, text);
		break;
	}
	return status;
}

static int list_tree(const struct sp_cli *cli, const struct sp_cli_place *place,
		     json_t **ret_entries, struct sp_err *err)
{
	struct sp_buf target;
	int status;

	sp_buf_init(&target, SP_CLI_REQUEST_MAX);
	status = sp_cli_place_target(&target, place, "directories/list", err);
	if (status == 0 && sp_buf_printf(&target, "&depth=%u", WHOLE_TREE) < 0)
		status = sp_err_set(err, -ENOMEM, "write the request");
	if (status == 0)
		status = sp_cli_place_get(cli, sp_buf_text(&target), ret_entries, err);
	sp_buf_done(&target);
	return status;
}

/* shown: the tree's path as the daemon writes it, which its entries' begin with. */
static int get_tree(const struct sp_cli *cli, const struct sp_cli_place *place, const char *shown,
		    const char *local, struct sp_err *err)
{
	SP_AUTO_CLOSE int root_fd = -1;
	json_t *entries = NULL;
	json_t *entry;
	size_t i;
	int status = list_tree(cli, place, &entries, err);

	if (status < 0)
		return status;
	if (mkdir(local, 0777) < 0 && errno != EEXIST)
		status = sp_err_set(err, -errno, "make directory '%s'", local);
	if (status == 0)
		root_fd = open(local, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (status == 0 && root_fd < 0)
		status = sp_err_set(err, -errno, "open directory '%s'", local);
	json_array_foreach (entries, i, entry) {
		const char *path = json_string_value(json_object_get(entry, "path"));
		const char *relative = path ? below(path, shown) : NULL;

		if (status < 0)
			break;
		if (!relative)
			status = sp_err_code(err, SP_CODE_PROTOCOL, -EPROTO,
					     "the sandbox lists '%.200s' in '%.200s'",
					     path ? path : "nothing", shown);
		else
			status = get_entry(cli, place, root_fd, relative, entry, err);
	}
	json_decref(entries);
	return status;
}

/* ---- either ---- */

/* Of a link the mode says nothing about what it leads to. */
static mode_t file_mode(const json_t *info)
{
	return sp_cli_file_type(info) == SP_CLI_FILE ? mode_of(info) : 0666;
}

static int get_any(const struct sp_cli *cli, const struct sp_cli_place *place, const json_t *info,
		   const char *local, bool recursive, struct sp_err *err)
{
	const char *shown = json_string_value(json_object_get(info, "path"));

	if (sp_cli_file_type(info) != SP_CLI_DIRECTORY)
		return get_file(cli, place, local, file_mode(info), err);
	if (!recursive)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EISDIR,
				   "'%s' is a directory (copy it with -r)", place->path);
	return get_tree(cli, place, shown ? shown : place->path, local, err);
}

int sp_cli_copy_down(const struct sp_cli *cli, const struct sp_cli_place *place, const char *local,
		     bool recursive, struct sp_err *err)
{
	json_t *answer = NULL;
	const json_t *info;
	char *joined = NULL;
	struct stat there;
	int status;

	if (strcmp(local, "-") == 0)
		return get_file(cli, place, local, 0, err);
	status = sp_cli_place_info(cli, place, &answer, &info, err);
	if (status < 0)
		return status;
	if (stat(local, &there) == 0 && S_ISDIR(there.st_mode)) {
		char *base = sp_cli_path_base(place->path);

		joined = sp_cli_path_join(local, base);
		free(base);
	}
	status = get_any(cli, place, info, joined ? joined : local, recursive, err);
	free(joined);
	json_decref(answer);
	return status;
}
