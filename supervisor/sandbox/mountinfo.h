/*
 * What everybody needs who reads /proc/self/mountinfo, see proc_pid_mountinfo(5).
 */
#ifndef SP_SANDBOX_MOUNTINFO_H
#define SP_SANDBOX_MOUNTINFO_H

/* A field as the kernel escapes it (blanks, newlines and backslashes as \040 and so on), in place.
 */
void sp_mountinfo_unescape(char *text);

#endif
