/*
 * What an overlay is made of, in a directory that nobody but uid 0 enters: below INIT_PRIVATE_PATH
 * of a session's mount namespace, or in INIT_PRIVATE_PATH/overlay/N of the sandbox's.
 *
 *	lower/	the base, mounted
 *	upper/	what the workload has changed; work/ is the kernel's
 *	frozen	since when changes of the base are somebody else's: struct init_freeze
 *	target	where the overlay is mounted: a path, without NUL
 */
#ifndef SP_INIT_OVERLAY_H
#define SP_INIT_OVERLAY_H

#include "supervisor/init/init.h"
#include "supervisor/init/protocol.h"

#define INIT_OVERLAYS_PATH INIT_PRIVATE_PATH "/overlay"

/* The two clocks at one moment. What the base was is what it was before it. */
struct init_freeze {
	int64_t real_ns;
	int64_t boot_ns;
	int64_t root_ns; /* when a commit that was given up last changed its root; 0: none did */
};

/* The path of such a directory: of a session's (number 0), of the sandbox's overlay `number`. */
#define INIT_OVERLAY_PATH_MAX 32
void init_overlay_path(uint32_t number, char path[INIT_OVERLAY_PATH_MAX]);

/*
 * The layers in a fresh tmpfs, whose root is dir_fd (O_PATH will do) and `path` the place where it
 * is attached, and the overlay: a detached mount. base_fd is a detached mount as well, attached
 * here. Negative errno; -EOPNOTSUPP: the kernel's tmpfs has no user attributes.
 */
int init_overlay_make(int dir_fd, const char *path, int base_fd);
/* The same on the base that is there, when upper and work are gone. */
int init_overlay_remake(int dir_fd, const char *path);
/* After it was attached: writes the two files. Nothing may run in it before this has returned,
 * which waits for the end of the tick that the kernel stamps changes with (1 to 10 ms). */
int init_overlay_freeze(int dir_fd, const char *target);
/* The same in two halves, for who has other things to do meanwhile. */
int init_overlay_freeze_note(int dir_fd, const char *target, struct init_freeze *ret);
void init_overlay_freeze_wait(const struct init_freeze *freeze);

/* What the tmpfs of such a directory holds; fd is anywhere in it. Waits for nothing. */
int init_overlay_used(int fd, uint64_t *ret_bytes);

/* Its file, open for reading and writing. */
int init_overlay_frozen(int dir_fd, struct init_freeze *ret);
int init_overlay_target(int dir_fd, char target[SP_INIT_TARGET_MAX]);

#endif
