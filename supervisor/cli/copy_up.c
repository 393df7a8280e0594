/*
 * Into the sandbox. What is sent is what this user can read here; who owns it there is up to the
 * sandbox.
 */
#include "supervisor/cli/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/base/fd.h"
#include "supervisor/cli/transfer.h"

char *sp_cli_path_join(const char *directory, const char *name)
{
	size_t len = strlen(directory);
	size_t size = len + strlen(name) + 2;
	char *joined = sp_cli_xrealloc(NULL, size);

	while (len > 0 && directory[len - 1] == '/')
		len--;
	(void)snprintf(joined, size, "%.*s/%s", (int)len, directory, name);
	return joined;
}

char *sp_cli_path_base(const char *path)
{
	size_t end = strlen(path);
	size_t start;
	char *base;

	while (end > 0 && path[end - 1] == '/')
		end--;
	for (start = end; start > 0 && path[start - 1] != '/';)
		start--;
	base = sp_cli_xrealloc(NULL, end - start + 1);
	memcpy(base, path + start, end - start);
	base[end - start] = '\0';
	return base;
}

static int put(const struct sp_cli *cli, int fd, int64_t size, uint32_t mode,
	       const struct sp_cli_place *place, struct sp_err *err)
{
	struct sp_buf target;
	int status;

	sp_buf_init(&target, SP_CLI_REQUEST_MAX);
	status = sp_cli_place_target(&target, place, "files", err);
	if (status == 0 && mode != 0 && sp_buf_printf(&target, "&mode=%o", mode) < 0)
		status = sp_err_set(err, -ENOMEM, "write the request");
	if (status == 0)
		status = sp_cli_transfer_put(&cli->client, sp_buf_text(&target), fd, size, err);
	sp_buf_done(&target);
	return status;
}

/* mode 0: the file's own. */
static int put_file(const struct sp_cli *cli, const char *local, uint32_t mode,
		    const struct sp_cli_place *place, struct sp_err *err)
{
	SP_AUTO_CLOSE int fd = open(local, O_RDONLY | O_CLOEXEC);
	struct stat info;

	if (fd < 0 || fstat(fd, &info) < 0)
		return sp_err_set(err, -errno, "open '%s'", local);
	if (S_ISDIR(info.st_mode))
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EISDIR,
				   "'%s' is a directory (copy it with -r)", local);
	if (mode == 0)
		mode = info.st_mode & 0777;
	return put(cli, fd, S_ISREG(info.st_mode) ? info.st_size : -1, mode, place, err);
}

static void leave_out(const struct sp_cli *cli, const char *path, const char *what)
{
	char text[512];

	(void)snprintf(text, sizeof(text), "'%.400s' is %s and left out", path, what);
	sp_cli_note(cli, text);
}

static int put_entry(const struct sp_cli *cli, const FTSENT *entry, size_t root_len, uint32_t mode,
		     const struct sp_cli_place *root, struct sp_err *err)
{
	const char *relative = entry->fts_path + root_len;
	struct sp_cli_place place = *root;
	char *path = NULL;
	int status = 0;

	relative += strspn(relative, "/");
	if (relative[0])
		place.path = path = sp_cli_path_join(root->path, relative);
	switch (entry->fts_info) {
	case FTS_D:
		status = sp_cli_place_mkdir(cli, &place, entry->fts_statp->st_mode & 0777, err);
		break;
	case FTS_F:
		status = put_file(cli, entry->fts_accpath, mode, &place, err);
		break;
	case FTS_SL:
	case FTS_SLNONE:
		leave_out(cli, entry->fts_path, "a link");
		break;
	case FTS_DEFAULT:
		leave_out(cli, entry->fts_path, "no regular file");
		break;
	case FTS_DNR:
	case FTS_ERR:
	case FTS_NS:
		status = sp_err_set(err, -entry->fts_errno, "read '%s'", entry->fts_path);
		break;
	default: /* a directory on the way back */
		break;
	}
	free(path);
	return status;
}

static int put_tree(const struct sp_cli *cli, const char *local, uint32_t mode,
		    const struct sp_cli_place *place, struct sp_err *err)
{
	char *root = sp_cli_xstrdup(local);
	char *const roots[] = {root, NULL};
	const FTSENT *entry;
	size_t len = strlen(root);
	int status = 0;
	FTS *walk;

	while (len > 1 && root[len - 1] == '/')
		root[--len] = '\0';
	walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	if (!walk)
		status = sp_err_set(err, -errno, "read '%s'", local);
	while (status == 0 && (entry = fts_read(walk)))
		status = put_entry(cli, entry, len, mode, place, err);
	if (walk)
		(void)fts_close(walk);
	free(root);
	return status;
}

/* Does the copy keep its name below `place`? */
static int is_directory(const struct sp_cli *cli, const struct sp_cli_place *place,
			bool *ret_directory, struct sp_err *err)
{
	json_t *answer = NULL;
	const json_t *info;
	int status;

	if (place->path[strlen(place->path) - 1] == '/') {
		*ret_directory = true;
		return 0;
	}
	status = sp_cli_place_info(cli, place, &answer, &info, err);
	if (status == -EREMOTEIO && err->code == SP_CODE_FILE_NOT_FOUND) {
		sp_err_clear(err);
		return 0;
	}
	if (status == 0)
		*ret_directory = sp_cli_file_type(info) == SP_CLI_DIRECTORY;
	json_decref(answer);
	return status;
}

int sp_cli_copy_up(const struct sp_cli *cli, const char *local, const struct sp_cli_place *place,
		   bool recursive, uint32_t mode, struct sp_err *err)
{
	struct sp_cli_place target = *place;
	bool directory = false;
	char *joined = NULL;
	struct stat info;
	int status;

	if (strcmp(local, "-") == 0)
		return put(cli, STDIN_FILENO, -1, mode, place, err);
	if (stat(local, &info) < 0)
		return sp_err_set(err, -errno, "look at '%s'", local);
	status = is_directory(cli, place, &directory, err);
	if (status < 0)
		return status;
	if (directory) {
		char *base = sp_cli_path_base(local);

		target.path = joined = sp_cli_path_join(place->path, base);
		free(base);
	}
	if (S_ISDIR(info.st_mode) && recursive)
		status = put_tree(cli, local, mode, &target, err);
	else
		status = put_file(cli, local, mode, &target, err);
	free(joined);
	return status;
}
