/*
 * Terminals of the sandbox's own devpts.
 */
#ifndef SP_INIT_TTY_H
#define SP_INIT_TTY_H

#include "supervisor/init/init.h"

#define INIT_PTYS_MAX "128" /* per sandbox; the kernel's 4096 are for the whole host */

/*
 * Mount the sandbox's own devpts, once, after the root. Programs that want a terminal of their own
 * (pexpect, script, tmux) use it too. 0, also where the kernel has none, or a negative errno.
 */
int init_tty_mount(struct init *init);

/* A new pair of the request's size, the slave owned by the request's ids. On success both belong
 * to the caller. Negative errno. */
int init_tty_open(struct init *init, const struct sp_init_exec *request, int *ret_master_fd,
		  int *ret_slave_fd);

#endif
