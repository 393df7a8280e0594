/*
 * Helpers for files and ports: at most SP_INIT_FILES_MAX, each a child of PID 1 that does one
 *thing.
 *
 *	free ──FILE──► busy ──channel hung up──► killed ──┐
 *	  ▲              └──────────ended─────────────────┴──► reaped ──► free, or sweeping ──► free
 *
 * sweeping: a helper that may have left a temporary file is followed by one that removes it.
 */
#ifndef SP_INIT_FILE_H
#define SP_INIT_FILE_H

#include "supervisor/init/init.h"

/* Start what a checked FILE record asks for. Takes the channel. What goes wrong here is said there.
 */
void init_file_start(struct init *init, const struct sp_init_file *request, int *channel_fd);

/* An event of the epoll set from INIT_EVENT_FILES on, which is 0 here. */
void init_file_event(struct init *init, uint64_t event);

#endif
