/*
 * What a helper inside a sandbox sends over its channel (init/protocol.h), checked before anything
 * of it is used. Pure but for the checks of descriptors; a record that does not pass means that
 * init has been taken over.
 */
#ifndef SP_DAEMON_FILES_RECORD_H
#define SP_DAEMON_FILES_RECORD_H

#include "supervisor/daemon/files.h"
#include "supervisor/init/protocol.h"

struct files_entries {
	const char *at;
	size_t left;
	uint32_t count; /* not read yet */
	uint32_t depth; /* components that a path may have */
};

struct files_entry {
	struct sp_file_info info;
	const char *path; /* relative, in the record */
	size_t path_length;
};

/* A FOUND of a listing down to `depth`. 0, -EBADMSG. */
int files_entries_open(struct files_entries *entries, const void *record, size_t len,
		       uint32_t depth);
/* 1: *ret is the next one. 0: that was all. -EBADMSG. */
int files_entries_next(struct files_entries *entries, struct files_entry *ret);

/* A RESULT. info: whether this kind has one when it went well. 0, -EBADMSG. */
int files_result_check(const void *record, size_t len, bool info);
/* An ACCOUNTS. 0, -EBADMSG. */
int files_accounts_take(const void *record, size_t len, struct sp_file_info *ret_users,
			struct sp_file_info *ret_groups);
/* The inside's word for it; -EBADMSG: no numbers of any file. */
int files_info_take(const struct sp_init_file_info *from, struct sp_file_info *ret);

/* Descriptors, which are not the inside's word but the kernel's. -EBADMSG: not a regular file that
 * is open for reading, on a file system that has such; not a TCP connection to 127.0.0.1:port. */
int files_regular_check(int fd, struct sp_file_info *info);
int files_socket_check(int fd, uint16_t port);

/* What a client is told of an errno from inside. */
enum sp_code files_code(enum sp_init_file_kind kind, int status);
/* What a commit failed at, in words; NULL: the errno says it. */
const char *files_commit_refusal(const char *stage, enum sp_code *ret_code);

#endif
