/*
 * The boot record comes from the launcher through a sealed memfd; still every field is checked
 * before it is used, as everything between processes is.
 */
#ifndef SP_INIT_BOOT_CHECK_H
#define SP_INIT_BOOT_CHECK_H

#include "supervisor/init/boot.h"

#define INIT_ID_NOBODY 65535u /* a sandbox has 65,536 ids; the last is no user's */

/* record: `size` mapped bytes. 0, or -EINVAL with the name of the first bad field in *ret_field. */
int init_boot_check(const struct sp_boot *record, size_t size, const char **ret_field);

/* Absolute, no empty, "." or ".." component, no slash at the end, not "/" alone. */
bool init_path_normal(const char *path);

#endif
