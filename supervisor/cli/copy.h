/*
 * Files and trees into a sandbox and out of it. Trees go file by file: links, devices, sockets and
 * FIFOs in them are left out, with a note.
 */
#ifndef SP_CLI_COPY_H
#define SP_CLI_COPY_H

#include "supervisor/cli/place.h"

/* local "-": standard input. mode 0: the file's own. A directory of the sandbox, or a path that
 * ends in '/', takes the copy under its old name. */
int sp_cli_copy_up(const struct sp_cli *cli, const char *local, const struct sp_cli_place *place,
		   bool recursive, uint32_t mode, struct sp_err *err);
/* local "-": standard output. A directory here takes the copy under its old name. */
int sp_cli_copy_down(const struct sp_cli *cli, const struct sp_cli_place *place, const char *local,
		     bool recursive, struct sp_err *err);

/* What GET of `target` gives, into a file; "-": standard output. It appears when all of it is
 * there. */
int sp_cli_copy_get(const struct sp_cli *cli, const char *target, const char *local, uint32_t mode,
		    struct sp_err *err);

/* directory + "/" + name, malloc'ed; dies when out of memory. */
char *sp_cli_path_join(const char *directory, const char *name);
/* Into path: what follows its last slash, slashes at its end not counted; "" for "/". malloc'ed. */
char *sp_cli_path_base(const char *path);

#endif
