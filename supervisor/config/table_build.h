/*
 * From a checked configuration to the launcher's table (launcher/table.h): resolves roots into
 * mount lists, synthesises /etc, compiles the seccomp filters. Runs only in sandpool-compile, as
 * root, on root-owned input.
 */
#ifndef SP_CONFIG_TABLE_BUILD_H
#define SP_CONFIG_TABLE_BUILD_H

#include "supervisor/config/config.h"

/* On success *ret_fd is a sealed memfd (F_SEAL_WRITE | SHRINK | GROW | SEAL) of the caller's. */
int sp_table_build(const struct sp_config *config, int *ret_fd, struct sp_err *err);
/* The same, written to a descriptor of the caller's, which stays open and unsealed. */
int sp_table_write(const struct sp_config *config, int fd, struct sp_err *err);

#endif
