/*
 * Plays sandpoold's side of a FILE: sends the record with one end of a channel and reads what comes
 * back on the other.
 */
#ifndef SP_TESTS_FILE_CHANNEL_H
#define SP_TESTS_FILE_CHANNEL_H

#include "tests/sandbox/init_harness.h"

#include <stdbool.h>
#include <stddef.h>

#define CHANNEL_ENTRIES_MAX 4096u

struct file_ask {
	uint32_t kind;
	const char *path;
	const char *to;
	uint32_t flags;
	uint32_t mode; /* 0 = KEEP, as the next two; 0 itself cannot be asked for */
	uint32_t owner;
	uint32_t group;
	uint32_t depth;
	uint32_t limit; /* 0: 100000 for a LIST */
	uint32_t port;
	uint32_t uid; /* 0: the workload's */
	uint32_t session;
	uint32_t overlay;
};

struct file_reply {
	bool answered; /* else the channel ended without a RESULT */
	int status;
	char stage[32];
	struct sp_init_file_info info;
	struct sp_init_file_counts counts;
	char object[SP_INIT_FILE_OBJECT];
	int fd;                                /* -1: none came */
	struct sp_init_file_accounts accounts; /* type 0: it did not come first */
	size_t entries;                        /* of all FOUND */
	size_t records;
	char paths[1 << 16]; /* the entries' paths, each with a line break behind it, as far as they
			      * fit */
	struct sp_init_file_info infos[CHANNEL_ENTRIES_MAX];
};

/* Send it; our end of the channel. */
int channel_ask(struct harness *harness, const struct file_ask *ask);
/* The record of channel_ask(), to be spoilt: its length. */
size_t channel_record(const struct file_ask *ask, void *record, size_t size);
/* Read to the RESULT or the end; closes the channel. */
void channel_reply(int channel_fd, struct file_reply *ret);
/* Both. */
int channel_do(struct harness *harness, const struct file_ask *ask, struct file_reply *ret);

void channel_data(int channel_fd, const void *data, size_t len);
void channel_commit(int channel_fd);
/* A whole upload: its status. */
int channel_put(struct harness *harness, const char *path, const void *data, size_t len);

#endif
