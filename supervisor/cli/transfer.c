/*
 * A larger upload asks first (Expect: 100-continue): a daemon that refuses closes a connection
 * whose body it has not read, and on TCP its words would be lost with it.
 */
#include "supervisor/cli/transfer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pool/base/fd.h"
#include "supervisor/cli/http.h"

#define HEAD_MAX     (16u << 10)
#define PIECE_SIZE   (256u << 10)
#define CHUNK_FRAME  32u /* "40000\r\n" before a chunk, "\r\n" behind it */
#define ASK_FROM     (64 * 1024)
#define STATUS_GO_ON 100

struct upload {
	int fd;
	int64_t left; /* < 0: until the end */
	bool chunked;
};

/* -EPIPE: the daemon reads no more; it has answered, or is gone. */
static int send_bytes(int socket_fd, const char *data, size_t len, struct sp_err *err)
{
	while (len > 0) {
		ssize_t sent = send(socket_fd, data, len, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0 && (errno == EPIPE || errno == ECONNRESET))
			return -EPIPE;
		if (sent < 0)
			return sp_err_set(err, -errno, "send the request");
		data += sent;
		len -= (size_t)sent;
	}
	return 0;
}

static int send_head(int socket_fd, const struct sp_cli_client *client, const char *target,
		     const struct upload *upload, bool ask, struct sp_err *err)
{
	struct sp_cli_http_request request = {
		.method = "PUT",
		.target = target,
		.host = client->endpoint.tcp ? client->endpoint.host : "localhost",
		.api_key = client->api_key[0] ? client->api_key : NULL,
		.token = client->token[0] ? client->token : NULL,
		.content_type = "application/octet-stream",
		.chunked = upload->chunked,
		.body_len = upload->chunked ? 0 : (uint64_t)upload->left,
		.expect = ask,
	};
	struct sp_buf head;
	int status;

	sp_buf_init(&head, HEAD_MAX);
	status = sp_cli_http_write_head(&request, &head);
	if (status < 0)
		(void)sp_err_set(err, status, "write the request");
	else
		status = send_bytes(socket_fd, head.data, head.len, err);
	sp_buf_done(&head);
	return status;
}

/* Wait for the daemon's word: 0 = go on, -EPIPE = it has answered. */
static int wait_for_leave(int socket_fd, struct sp_cli_http_reader *reader, struct sp_err *err)
{
	char byte;

	while (reader->state != SP_CLI_HTTP_DONE) {
		ssize_t got = recv(socket_fd, &byte, 1, 0);
		int64_t used;

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return sp_err_set(err, -errno, "wait for the daemon");
		if (got == 0)
			return -EPIPE;
		used = sp_cli_http_reader_feed(reader, &byte, 1, err);
		if (used < 0)
			return (int)used;
		if (reader->status == STATUS_GO_ON && reader->state == SP_CLI_HTTP_STATUS_LINE &&
		    reader->line_len == 0)
			return 0;
	}
	return -EPIPE;
}

/* The next piece with its framing. 1: there was one; 0: that was all. */
static int send_piece(int socket_fd, struct upload *upload, struct sp_err *err)
{
	static char piece[CHUNK_FRAME + PIECE_SIZE + CHUNK_FRAME];
	char *data = piece + CHUNK_FRAME;
	size_t wanted = PIECE_SIZE;
	char frame[CHUNK_FRAME];
	ssize_t got;
	int len;

	if (!upload->chunked)
		wanted = (size_t)SP_MIN(upload->left, (int64_t)PIECE_SIZE);
	if (wanted == 0)
		return 0;
	do {
		got = read(upload->fd, data, wanted);
	} while (got < 0 && errno == EINTR);
	if (got < 0)
		return sp_err_set(err, -errno, "read what is to be copied");
	if (!upload->chunked) {
		upload->left -= got;
		if (got == 0)
			return sp_err_code(err, SP_CODE_UNAVAILABLE, -EIO,
					   "the file became shorter by %" PRId64
					   " bytes while it was copied",
					   upload->left);
		len = send_bytes(socket_fd, data, (size_t)got, err);
		return len < 0 ? len : 1;
	}
	/* The chunk of no bytes is the last one, with an empty line behind it like any other. */
	len = snprintf(frame, sizeof(frame), "%zx\r\n", (size_t)got);
	memcpy(data - len, frame, (size_t)len);
	memcpy(data + got, "\r\n", 2);
	len = send_bytes(socket_fd, data - len, (size_t)len + (size_t)got + 2, err);
	return len < 0 ? len : got > 0;
}

static int put(int socket_fd, const struct sp_cli_client *client, const char *target,
	       struct upload *upload, struct sp_cli_http_reader *reader, struct sp_err *err)
{
	bool ask = upload->chunked || upload->left > ASK_FROM;
	int status = send_head(socket_fd, client, target, upload, ask, err);

	if (status == 0 && ask)
		status = wait_for_leave(socket_fd, reader, err);
	if (status == 0)
		do {
			status = send_piece(socket_fd, upload, err);
		} while (status > 0);
	if (status < 0 && status != -EPIPE)
		return status;
	status = sp_cli_client_receive(socket_fd, reader, SP_CLI_CALL_TIMEOUT_MS, err);
	if (status == 0 && (reader->status < 200 || reader->status > 299))
		status = sp_cli_client_refusal(reader->status, &reader->body, err);
	return status;
}

int sp_cli_transfer_put(const struct sp_cli_client *client, const char *target, int fd,
			int64_t size, struct sp_err *err)
{
	struct upload upload = {.fd = fd, .left = size, .chunked = size < 0};
	struct sp_cli_http_reader reader;
	SP_AUTO_CLOSE int socket_fd = -1;
	int status = sp_cli_client_connect(client, &socket_fd, err);

	if (status < 0)
		return status;
	sp_cli_http_reader_init(&reader);
	status = put(socket_fd, client, target, &upload, &reader, err);
	sp_cli_http_reader_done(&reader);
	return status;
}

int sp_cli_transfer_get(const struct sp_cli_client *client, const char *target,
			int (*take)(void *arg, const char *data, size_t len, struct sp_err *err),
			void *arg, struct sp_err *err)
{
	struct sp_cli_http_reader reader;
	SP_AUTO_CLOSE int socket_fd = -1;
	struct sp_buf head;
	int status = sp_cli_client_connect(client, &socket_fd, err);

	if (status < 0)
		return status;
	sp_buf_init(&head, HEAD_MAX);
	sp_cli_http_reader_init(&reader);
	reader.take = take;
	reader.take_arg = arg;
	status = sp_cli_client_head(client, "GET", target, false, 0, &head, err);
	if (status == 0)
		status = send_bytes(socket_fd, head.data, head.len, err);
	if (status == 0 || status == -EPIPE)
		status = sp_cli_client_receive(socket_fd, &reader, SP_CLI_CALL_TIMEOUT_MS, err);
	if (status == 0 && (reader.status < 200 || reader.status > 299))
		status = sp_cli_client_refusal(reader.status, &reader.body, err);
	sp_cli_http_reader_done(&reader);
	sp_buf_done(&head);
	return status;
}
