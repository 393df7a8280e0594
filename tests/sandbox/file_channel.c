/*
 * See file_channel.h. Everything asserts, as in the harness.
 */
#include "tests/sandbox/file_channel.h"

#include "pool/base/fd.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MUST(condition)                                                                    \
	do {                                                                               \
		if (!(condition)) {                                                        \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, \
				strerror(errno));                                          \
			abort();                                                           \
		}                                                                          \
	} while (0)

static uint32_t or_keep(uint32_t value)
{
	return value ? value : SP_INIT_FILE_KEEP;
}

static size_t put_path(char *at, const char *path)
{
	memcpy(at, path, strlen(path) + 1);
	return strlen(path) + 1;
}

size_t channel_record(const struct file_ask *ask, void *record, size_t size)
{
	struct sp_init_file *file = record;
	char *text = (char *)(file + 1);
	size_t len = sizeof(*file);

	memset(record, 0, size);
	file->header.type = SP_INIT_FILE;
	file->kind = ask->kind;
	file->flags = ask->flags;
	file->uid = ask->uid ? ask->uid : HARNESS_WORKLOAD;
	file->gid = file->uid;
	file->mode = or_keep(ask->mode);
	file->owner = or_keep(ask->owner);
	file->group = or_keep(ask->group);
	file->port = ask->port;
	if (ask->kind == SP_INIT_FILE_LIST) {
		file->depth = ask->depth;
		file->limit = ask->limit ? ask->limit : 100000;
	}
	if (ask->kind == SP_INIT_FILE_WRITE_BACK)
		file->limit = ask->limit ? ask->limit : 100000;
	file->session = ask->session;
	file->overlay = ask->overlay;
	if (ask->path) {
		file->path_length = (uint32_t)strlen(ask->path);
		len += put_path(text, ask->path);
	}
	if (ask->to) {
		file->to_length = (uint32_t)strlen(ask->to);
		len += put_path(text + len - sizeof(*file), ask->to);
	}
	return len;
}

int channel_ask(struct harness *harness, const struct file_ask *ask)
{
	static char record[SP_INIT_RECORD_MAX];
	size_t len = channel_record(ask, record, sizeof(record));
	int ends[2];

	MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
	harness_send(harness, record, len, &ends[1], 1);
	(void)close(ends[1]);
	return ends[0];
}

static void take_entries(const char *record, size_t len, struct file_reply *ret)
{
	const struct sp_init_file_record_header *header = (const void *)record;
	size_t at = sizeof(*header);

	for (uint32_t i = 0; i < header->count; i++) {
		struct sp_init_file_entry entry;
		size_t text = strlen(ret->paths);

		MUST(at + sizeof(entry) <= len);
		memcpy(&entry, record + at, sizeof(entry));
		MUST(at + sizeof(entry) + entry.path_length < len + 8);
		if (ret->entries < CHANNEL_ENTRIES_MAX)
			ret->infos[ret->entries] = entry.info;
		if (text + entry.path_length + 2 < sizeof(ret->paths)) {
			memcpy(ret->paths + text, record + at + sizeof(entry), entry.path_length);
			ret->paths[text + entry.path_length] = '\n';
		}
		ret->entries++;
		at += (sizeof(entry) + entry.path_length + 1 + 7) / 8 * 8;
	}
	MUST(at == len);
}

void channel_reply(int channel_fd, struct file_reply *ret)
{
	static _Alignas(8) char record[SP_INIT_FILE_REPLY];
	const struct sp_init_file_result *result = (const void *)record;

	memset(ret, 0, sizeof(*ret));
	ret->fd = -1;
	while (!ret->answered) {
		struct pollfd ready = {.fd = channel_fd, .events = POLLIN};
		int fds[SP_MSG_FDS_MAX];
		size_t count = 0;
		ssize_t len;

		MUST(poll(&ready, 1, HARNESS_WAIT_MS) == 1);
		len = sp_msg_receive(channel_fd, record, sizeof(record), fds, &count);
		if (len == -ECONNRESET)
			continue;
		if (len == 0)
			break;
		MUST(len >= (ssize_t)sizeof(result->header) && count <= 1);
		ret->records++;
		if (count == 1)
			ret->fd = fds[0];
		if (result->header.type == SP_INIT_FILE_ACCOUNTS && ret->records == 1) {
			MUST(len == sizeof(ret->accounts));
			memcpy(&ret->accounts, record, sizeof(ret->accounts));
		}
		if (result->header.type == SP_INIT_FILE_FOUND)
			take_entries(record, (size_t)len, ret);
		if (result->header.type != SP_INIT_FILE_RESULT)
			continue;
		MUST(len == sizeof(*result));
		ret->answered = true;
		ret->status = result->status;
		ret->info = result->info;
		ret->counts = result->counts;
		memcpy(ret->object, result->object, sizeof(ret->object));
		memcpy(ret->stage, result->stage, sizeof(ret->stage));
	}
	(void)close(channel_fd);
}

int channel_do(struct harness *harness, const struct file_ask *ask, struct file_reply *ret)
{
	channel_reply(channel_ask(harness, ask), ret);
	MUST(ret->answered);
	return ret->status;
}

void channel_data(int channel_fd, const void *data, size_t len)
{
	static struct {
		struct sp_init_file_record_header header;
		char bytes[SP_INIT_FILE_DATA_MAX];
	} record = {.header.type = SP_INIT_FILE_DATA};

	while (len > 0) {
		size_t part = SP_MIN(len, sizeof(record.bytes));
		int status;

		memcpy(record.bytes, data, part);
		status = sp_msg_send(channel_fd, &record, sizeof(record.header) + part, NULL, 0);
		if (status < 0)
			return; /* the RESULT says why */
		data = (const char *)data + part;
		len -= part;
	}
}

void channel_commit(int channel_fd)
{
	const struct sp_init_file_record_header record = {.type = SP_INIT_FILE_COMMIT};

	(void)sp_msg_send(channel_fd, &record, sizeof(record), NULL, 0);
}

int channel_put(struct harness *harness, const char *path, const void *data, size_t len)
{
	static struct file_reply reply;
	int fd = channel_ask(harness, &(struct file_ask){.kind = SP_INIT_FILE_WRITE, .path = path});

	channel_data(fd, data, len);
	channel_commit(fd);
	channel_reply(fd, &reply);
	MUST(reply.answered);
	return reply.status;
}
