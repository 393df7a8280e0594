/*
 * The caller's terminal: raw while a pty session runs, as it was afterwards, whatever happens.
 */
#ifndef SP_CLI_TERMINAL_H
#define SP_CLI_TERMINAL_H

#include "pool/base/base.h"

/* How input is taken. */
enum sp_cli_terminal_mode {
	SP_CLI_TERMINAL_RAW,  /* every byte goes to the other side, Ctrl-C too (exec -t) */
	SP_CLI_TERMINAL_KEYS, /* byte by byte and unechoed, signals as usual (top) */
};

/*
 * Switch fd (a terminal) and remember how it was. From then on it is put back by
 * sp_cli_terminal_restore(), by exit(3), and when we die of a fault. 0 or negative errno.
 */
int sp_cli_terminal_enter(int fd, enum sp_cli_terminal_mode mode);
void sp_cli_terminal_restore(void);

/* Size of the terminal on fd; false when it is none or does not know. */
bool sp_cli_terminal_size(int fd, uint16_t *ret_rows, uint16_t *ret_columns);

#endif
