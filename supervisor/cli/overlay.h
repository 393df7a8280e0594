/*
 * What run, diff and commit share about overlays: which ones a sandbox has, what one has changed,
 * writing that back, and the program that is asked before.
 */
#ifndef SP_CLI_OVERLAY_H
#define SP_CLI_OVERLAY_H

#include <jansson.h>

#include "supervisor/cli/cli.h"

struct sp_cli_overlay {
	uint32_t number;
	const char *source; /* on the host; borrowed from the answer */
	const char *target;
};

#define SP_CLI_OVERLAYS_MAX 64u

struct sp_cli_overlays {
	json_t *answer;
	struct sp_cli_overlay at[SP_CLI_OVERLAYS_MAX];
	size_t count;
};

/* Of the sandbox that `sandbox` names: "/v1/sandboxes/ID". */
int sp_cli_overlays_get(const struct sp_cli *cli, const char *sandbox,
			struct sp_cli_overlays *ret_overlays, struct sp_err *err);
void sp_cli_overlays_done(struct sp_cli_overlays *overlays);
/* The one of that number; NULL: the only one. -EINVAL. */
int sp_cli_overlays_pick(const struct sp_cli_overlays *overlays, const char *number,
			 const struct sp_cli_overlay **ret_overlay, struct sp_err *err);

/* local: a file, or "-". */
int sp_cli_overlay_diff(const struct sp_cli *cli, const char *sandbox,
			const struct sp_cli_overlay *overlay, const char *local,
			struct sp_err *err);
/* Writes back; what was done is put into `said`, for people, or as the daemon's JSON if asked for
 * that. */
int sp_cli_overlay_commit(const struct sp_cli *cli, const char *sandbox,
			  const struct sp_cli_overlay *overlay, struct sp_buf *said,
			  struct sp_err *err);

/* What has to go on while something is waited for. */
struct sp_cli_tick {
	void (*call)(void *arg);
	void *arg;
	int every_ms;
};

/* Run `PROGRAM WHEN SOURCE` with our stderr for its output. Anything but exit status 0 is an error
 * that says so. tick: NULL, or called while it runs, which is as long as it takes. */
int sp_cli_overlay_check(const char *program, const char *when, const char *source,
			 const struct sp_cli_tick *tick, struct sp_err *err);

#endif
