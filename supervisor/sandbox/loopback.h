/*
 * The loopback interface of the calling process's network namespace.
 */
#ifndef SP_SANDBOX_LOOPBACK_H
#define SP_SANDBOX_LOOPBACK_H

/* Set `lo` up (127.0.0.1, and ::1 where the kernel has IPv6). 0 or negative errno. */
int sp_loopback_up(void);

#endif
