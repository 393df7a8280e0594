/*
 * A terminal's client: JSON and binary messages over a WebSocket.
 *
 *	HANDSHAKE ── 101 was written ──► WAITING ── the shell runs ──► ATTACHED
 *	any ── a CLOSE is sent (the shell's end, a failure, a takeover) ──► CLOSING
 *	CLOSING ── the client's CLOSE, its end, CLOSE_MS ──► gone
 *
 * To the client, text: connected, exit, error, pong; binary: 01 stdout, 02 stderr, 03 what was
 * written before (8 bytes of offset, big endian, first). From it, text: resize, signal, ping,
 *stdin; binary: 00 stdin. What it was sent from the ring comes before `connected`.
 *
 * It lets go of the session at once, whatever is still queued for it: whoever takes over does not
 * wait for one that no longer reads. While stdin finds no room, no more is read from the client.
 */
#include "supervisor/api/duplex.h"

#include "supervisor/api/execd_pty.h"
#include "supervisor/api/json_body.h"
#include "supervisor/api/websocket.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CLOSE_TAKEN_OVER 4001
#define CLOSE_MS         (5 * SP_MS_PER_S)  /* for the client's CLOSE after ours */
#define PING_MS          (30 * SP_MS_PER_S) /* between two of ours */
#define SILENCE_MS       (75 * SP_MS_PER_S) /* without any frame of the client's: it is gone */
#define FRAME_STDIN      0x00
#define FRAME_STDOUT     0x01
#define FRAME_STDERR     0x02
#define FRAME_REPLAY     0x03
#define REPLAY_HEADER    9u
#define JSON_MAX         (16u * 1024)

enum client_state { CLIENT_HANDSHAKE, CLIENT_WAITING, CLIENT_ATTACHED, CLIENT_CLOSING };

struct sp_pty_client {
	struct sp_duplex duplex;
	struct sp_list link; /* in pty->clients */
	struct sp_pty *pty;  /* NULL: it has let go */
	enum client_state state;
	struct sp_ws_reader reader;
	bool pipe;
	bool stdin_lost; /* told that nobody reads it */
	int64_t since;
	int64_t heard_ms; /* uv_now() */
	int64_t pinged_ms;
	int64_t close_until_ms;
	/* Let go in HANDSHAKE: what it is told when that is done. */
	uint16_t close_code;
	const char *close_reason;
	/* stdin that found no room; in the reader, or in `message`. */
	const char *rest;
	size_t rest_len;
	json_t *message;
};

static struct sp_pty_client *of_duplex(struct sp_duplex *duplex)
{
	return SP_CONTAINER_OF(duplex, struct sp_pty_client, duplex);
}

struct sp_pty_client *sp_pty_client_first(const struct sp_pty *pty)
{
	return SP_LIST_FIRST(&pty->clients, struct sp_pty_client, link);
}

static int64_t now_ms(const struct sp_pty_client *client)
{
	return (int64_t)uv_now(client->duplex.api->loop);
}

/* ---- letting go ---- */

static void let_go(struct sp_pty_client *client)
{
	struct sp_pty *pty = client->pty;

	if (!pty)
		return;
	client->pty = NULL;
	sp_list_remove(&client->link);
	pty->client_count--;
	if (pty->holder != client)
		return;
	pty->holder = NULL;
	sp_pty_pause(pty, false);
}

static void forget_rest(struct sp_pty_client *client)
{
	json_decref(client->message);
	client->message = NULL;
	client->rest_len = 0;
}

static void on_closed(struct sp_duplex *duplex)
{
	struct sp_pty_client *client = of_duplex(duplex);

	client->state = CLIENT_CLOSING;
	let_go(client);
}

static void on_freed(struct sp_duplex *duplex)
{
	struct sp_pty_client *client = of_duplex(duplex);

	forget_rest(client);
	sp_ws_reader_done(&client->reader);
	free(client);
}

/* ---- to the client ---- */

static void send_frame(struct sp_pty_client *client, enum sp_ws_opcode opcode, const void *data,
		       size_t len)
{
	uint8_t header[SP_WS_HEADER_MAX];

	sp_duplex_write(&client->duplex, header, sp_ws_header_write(header, opcode, len));
	if (len > 0)
		sp_duplex_write(&client->duplex, data, len);
}

/* A CLOSE, then nothing but the wait for the client's. */
static void say_goodbye(struct sp_pty_client *client, uint16_t code, const char *reason)
{
	uint8_t frame[SP_WS_FRAME_CONTROL];

	client->state = CLIENT_CLOSING;
	client->close_until_ms = now_ms(client) + CLOSE_MS;
	forget_rest(client);
	sp_duplex_write(&client->duplex, frame, sp_ws_close_write(frame, code, reason));
	sp_duplex_hold(&client->duplex, false);
}

/* reason: a literal. */
static void dismiss(struct sp_pty_client *client, uint16_t code, const char *reason)
{
	let_go(client);
	if (client->state == CLIENT_HANDSHAKE) {
		client->close_code = code;
		client->close_reason = reason;
	} else if (client->state != CLIENT_CLOSING) {
		say_goodbye(client, code, reason);
	}
}

static void send_json(struct sp_pty_client *client, struct sp_json_out *out)
{
	sp_json_close(out, '}');
	if (out->status < 0)
		sp_duplex_close(&client->duplex);
	else
		send_frame(client, SP_WS_TEXT, sp_buf_text(out->buf), out->buf->len);
	sp_buf_done(out->buf);
}

static void begin_json(struct sp_json_out *out, struct sp_buf *body, const char *type)
{
	sp_buf_init(body, JSON_MAX);
	sp_json_out_init(out, body);
	sp_json_open(out, NULL, '{');
	sp_json_text(out, "type", type);
}

static void send_error(struct sp_pty_client *client, const char *code, const char *message)
{
	struct sp_json_out out;
	struct sp_buf body;

	begin_json(&out, &body, "error");
	sp_json_text(&out, "error", message);
	sp_json_text(&out, "code", code);
	send_json(client, &out);
}

void sp_pty_client_fail(struct sp_pty_client *client, const char *code, const char *message)
{
	if (client->state == CLIENT_WAITING || client->state == CLIENT_ATTACHED)
		send_error(client, code, message);
	dismiss(client, SP_WS_CLOSE_INTERNAL, "the session failed");
}

void sp_pty_client_exited(struct sp_pty_client *client, int exit_code)
{
	struct sp_json_out out;
	struct sp_buf body;

	if (client->state == CLIENT_ATTACHED) {
		begin_json(&out, &body, "exit");
		sp_json_integer(&out, "exit_code", exit_code);
		send_json(client, &out);
	}
	if (client->state != CLIENT_HANDSHAKE)
		dismiss(client, SP_WS_CLOSE_NORMAL, "process exited");
}

static void stop_shell_if_full(struct sp_pty_client *client)
{
	if (client->pty && client->duplex.full)
		sp_pty_pause(client->pty, true);
}

void sp_pty_client_output(struct sp_pty_client *client, int stream, const void *data, size_t len)
{
	uint8_t header[SP_WS_HEADER_MAX + 1];
	size_t header_len;

	if (client->state != CLIENT_ATTACHED)
		return;
	header_len = sp_ws_header_write(header, SP_WS_BINARY, 1 + len);
	header[header_len++] = stream == 2 ? FRAME_STDERR : FRAME_STDOUT;
	sp_duplex_write(&client->duplex, header, header_len);
	sp_duplex_write(&client->duplex, data, len);
	stop_shell_if_full(client);
}

static void on_drained(struct sp_duplex *duplex)
{
	struct sp_pty_client *client = of_duplex(duplex);

	if (client->pty && client->pty->holder == client)
		sp_pty_pause(client->pty, false);
}

/* What was written before, in one message. */
static void send_replay(struct sp_pty_client *client)
{
	const struct sp_tail *output = &client->pty->output;
	uint64_t offset = sp_tail_from(output, client->since);
	uint8_t header[SP_WS_HEADER_MAX + REPLAY_HEADER];
	const char *piece;
	size_t len;

	if (offset == output->end)
		return;
	len = sp_ws_header_write(header, SP_WS_BINARY, REPLAY_HEADER + (output->end - offset));
	header[len++] = FRAME_REPLAY;
	for (int shift = 56; shift >= 0; shift -= 8)
		header[len++] = (uint8_t)(offset >> shift);
	sp_duplex_write(&client->duplex, header, len);
	while ((piece = sp_tail_piece(output, offset, &len))) {
		sp_duplex_write(&client->duplex, piece, len);
		offset += len;
	}
}

void sp_pty_client_started(struct sp_pty_client *client)
{
	struct sp_json_out out;
	struct sp_buf body;

	if (client->state != CLIENT_WAITING)
		return;
	client->state = CLIENT_ATTACHED;
	send_replay(client);
	/* No memory for it: it has let go. */
	if (!client->pty)
		return;
	begin_json(&out, &body, "connected");
	sp_json_text(&out, "session_id", client->pty->id);
	sp_json_text(&out, "mode", client->pty->pipe ? "pipe" : "pty");
	send_json(client, &out);
	stop_shell_if_full(client);
}

/* ---- from the client ---- */

/* As with a pipe whose reader is gone; how the shell ends is still to come. */
static void lose_stdin(struct sp_pty_client *client)
{
	if (!client->stdin_lost)
		send_error(client, "STDIN_WRITE_FAILED", "nobody reads the standard input");
	client->stdin_lost = true;
}

/* Give the shell what it takes of the rest. */
static void push_stdin(struct sp_pty_client *client)
{
	while (client->rest_len > 0) {
		ssize_t taken = sp_pty_stdin(client->pty, client->rest, client->rest_len);

		if (taken < 0) {
			client->rest_len = 0;
			lose_stdin(client);
			break;
		}
		if (taken == 0)
			break;
		client->rest += taken;
		client->rest_len -= (size_t)taken;
	}
	if (client->rest_len == 0)
		forget_rest(client);
	sp_duplex_hold(&client->duplex, client->rest_len > 0);
}

void sp_pty_client_credit(struct sp_pty_client *client)
{
	if (client->state == CLIENT_ATTACHED && client->rest_len > 0)
		push_stdin(client);
}

static void on_resize(struct sp_pty_client *client, const json_t *message)
{
	json_int_t columns = json_integer_value(json_object_get(message, "cols"));
	json_int_t rows = json_integer_value(json_object_get(message, "rows"));

	if (columns < 1 || rows < 1 || columns > UINT16_MAX || rows > UINT16_MAX) {
		send_error(client, "INVALID_FRAME", "cols and rows are numbers from 1 to 65535");
		return;
	}
	if (client->pty->exec && !client->pty->pipe)
		(void)sp_exec_resize(client->pty->exec, (uint16_t)rows, (uint16_t)columns);
}

static void on_signal(struct sp_pty_client *client, const json_t *message)
{
	static const struct {
		const char *name;
		int number;
	} signals[] = {
		{"SIGINT", SIGINT},   {"SIGTERM", SIGTERM}, {"SIGKILL", SIGKILL},
		{"SIGQUIT", SIGQUIT}, {"SIGHUP", SIGHUP},
	};

	const char *name = json_string_value(json_object_get(message, "signal"));

	for (size_t i = 0; name && i < SP_ARRAY_SIZE(signals); i++) {
		if (strcmp(signals[i].name, name) != 0)
			continue;
		/* It may have ended meanwhile; the client is told of that. */
		if (client->pty->exec)
			(void)sp_exec_signal(client->pty->exec, signals[i].number, NULL);
		return;
	}
	send_error(client, "INVALID_FRAME",
		   "signal is one of SIGINT, SIGTERM, SIGKILL, SIGQUIT, SIGHUP");
}

static void on_json_ping(struct sp_pty_client *client)
{
	struct sp_json_out out;
	struct sp_buf body;

	begin_json(&out, &body, "pong");
	send_json(client, &out);
}

/* message stays alive until all of it was taken. */
static void on_json_stdin(struct sp_pty_client *client, json_t *message)
{
	json_t *data = json_object_get(message, "data");

	if (!json_is_string(data)) {
		send_error(client, "INVALID_FRAME", "data is a string");
		return;
	}
	client->message = json_incref(message);
	client->rest = json_string_value(data);
	client->rest_len = json_string_length(data);
	push_stdin(client);
}

static void on_json(struct sp_pty_client *client, json_t *message)
{
	const char *type = json_string_value(json_object_get(message, "type"));

	if (type && strcmp(type, "stdin") == 0)
		on_json_stdin(client, message);
	else if (type && strcmp(type, "resize") == 0)
		on_resize(client, message);
	else if (type && strcmp(type, "signal") == 0)
		on_signal(client, message);
	else if (type && strcmp(type, "ping") == 0)
		on_json_ping(client);
	else
		send_error(client, "INVALID_FRAME", "type is one of stdin, resize, signal, ping");
}

static void on_text(struct sp_pty_client *client, const struct sp_ws_message *message)
{
	json_t *root = NULL;

	if (sp_body_parse_loose((const char *)message->data, message->len, &root, NULL) < 0)
		send_error(client, "INVALID_FRAME", "the text is no JSON");
	else
		on_json(client, root);
	json_decref(root);
}

static void on_binary(struct sp_pty_client *client, const struct sp_ws_message *message)
{
	if (message->len == 0 || message->data[0] != FRAME_STDIN)
		return;
	client->rest = (const char *)message->data + 1;
	client->rest_len = message->len - 1;
	push_stdin(client);
}

static void on_close(struct sp_pty_client *client, const struct sp_ws_message *message)
{
	bool ours_first = client->state == CLIENT_CLOSING;

	let_go(client);
	client->state = CLIENT_CLOSING;
	if (!ours_first && message->close_code == SP_WS_CLOSE_NO_CODE)
		send_frame(client, SP_WS_CLOSE, NULL, 0);
	else if (!ours_first)
		say_goodbye(client, message->close_code, "");
	sp_duplex_drain(&client->duplex);
}

static void on_message(struct sp_pty_client *client, const struct sp_ws_message *message)
{
	if (message->opcode == SP_WS_CLOSE)
		on_close(client, message);
	else if (message->opcode == SP_WS_PING && client->state != CLIENT_CLOSING)
		send_frame(client, SP_WS_PONG, message->data, message->len);
	else if (message->opcode == SP_WS_TEXT && client->state == CLIENT_ATTACHED)
		on_text(client, message);
	else if (message->opcode == SP_WS_BINARY && client->state == CLIENT_ATTACHED)
		on_binary(client, message);
}

static size_t on_received(struct sp_duplex *duplex, const uint8_t *data, size_t len)
{
	struct sp_pty_client *client = of_duplex(duplex);
	struct sp_ws_message message;
	bool complete;
	int64_t used;

	client->heard_ms = now_ms(client);
	used = sp_ws_reader_feed(&client->reader, data, len, &message, &complete);
	if (used < 0) {
		dismiss(client, (uint16_t)sp_ws_close_code((int)used), "");
		sp_duplex_drain(duplex);
		return 0;
	}
	if (complete)
		on_message(client, &message);
	return (size_t)used;
}

static void on_tick(struct sp_duplex *duplex, int64_t now)
{
	struct sp_pty_client *client = of_duplex(duplex);

	if (client->state == CLIENT_CLOSING) {
		if (now >= client->close_until_ms)
			sp_duplex_close(duplex);
	} else if (now - client->heard_ms >= SILENCE_MS && !duplex->held) {
		sp_duplex_close(duplex);
	} else if (now - client->pinged_ms >= PING_MS && !duplex->full) {
		client->pinged_ms = now;
		send_frame(client, SP_WS_PING, NULL, 0);
	}
}

/* ---- the beginning ---- */

/* The handshake is done: now, and not before, somebody else may lose the session for it. */
static void on_opened(struct sp_duplex *duplex)
{
	struct sp_pty_client *client = of_duplex(duplex);
	struct sp_pty *pty = client->pty;
	struct sp_err err = {0};

	client->heard_ms = client->pinged_ms = now_ms(client);
	client->state = CLIENT_WAITING;
	if (!pty) {
		say_goodbye(client, client->close_code, client->close_reason);
		return;
	}
	if (pty->holder && pty->holder != client)
		dismiss(pty->holder, CLOSE_TAKEN_OVER, "TAKEN_OVER");
	pty->holder = client;
	if (!pty->exec && sp_pty_start(pty, client->pipe, &err) < 0)
		sp_pty_client_fail(client, "START_FAILED", err.message);
	else if (pty->started)
		sp_pty_client_started(client);
}

static const struct sp_duplex_events duplex_events = {
	.opened = on_opened,
	.received = on_received,
	.drained = on_drained,
	.tick = on_tick,
	.closed = on_closed,
	.freed = on_freed,
};

static const char *header_of(struct sp_request *request, const char *name)
{
	return MHD_lookup_connection_value(request->mhd, MHD_HEADER_KIND, name);
}

static const char *query_of(struct sp_request *request, const char *name)
{
	const char *value = MHD_lookup_connection_value(request->mhd, MHD_GET_ARGUMENT_KIND, name);

	return value ? value : "";
}

/* False: an error was answered. */
static bool shake_hands(struct sp_request *request, char *accept)
{
	const char *version = header_of(request, "Sec-WebSocket-Version");

	if (!request->headers.upgrade || strcasecmp(request->headers.upgrade, "websocket") != 0 ||
	    !sp_guard_has_token(request->headers.connection, "upgrade") || request->body.len > 0 ||
	    strcmp(request->method, "GET") != 0) {
		sp_os_reply_error(request, MHD_HTTP_BAD_REQUEST, "INVALID_REQUEST_BODY",
				  "this path is a WebSocket");
		return false;
	}
	if (!version || strcmp(version, "13") != 0 ||
	    sp_ws_accept(header_of(request, "Sec-WebSocket-Key"), accept) < 0) {
		sp_os_reply_error(request, MHD_HTTP_BAD_REQUEST, "INVALID_REQUEST_BODY",
				  "a WebSocket handshake has Sec-WebSocket-Version: 13 and a "
				  "Sec-WebSocket-Key of 16 bytes");
		return false;
	}
	return true;
}

static struct sp_pty_client *client_new(struct sp_request *request, struct sp_pty *pty)
{
	struct sp_pty_client *client = calloc(1, sizeof(*client));

	if (!client)
		return NULL;
	sp_duplex_init(&client->duplex, request->api, &duplex_events, 0);
	sp_ws_reader_init(&client->reader);
	client->pty = pty;
	client->pipe = strcmp(query_of(request, "pty"), "0") == 0;
	client->since = strtoll(query_of(request, "since"), NULL, 10);
	sp_list_append(&pty->clients, &client->link);
	pty->client_count++;
	return client;
}

void sp_pty_client_open(struct sp_request *request, struct sp_pty *pty)
{
	bool takeover = strcmp(query_of(request, "takeover"), "1") == 0;
	char accept[SP_WS_ACCEPT_LEN + 1];
	const struct sp_answer_header headers[] = {
		{"Upgrade", "websocket"},
		{"Sec-WebSocket-Accept", accept},
	};
	struct sp_pty_client *client;
	struct sp_err err = {0};

	if ((pty->holder && !(takeover && request->headers.upgrade)) ||
	    pty->client_count >= SP_PTY_CLIENTS_MAX) {
		sp_os_reply_error(request, MHD_HTTP_CONFLICT, "ALREADY_CONNECTED",
				  "another client is already connected to pty session %s", pty->id);
		return;
	}
	if (!shake_hands(request, accept))
		return;
	client = client_new(request, pty);
	if (!client) {
		(void)sp_err_set(&err, -ENOMEM, "open a terminal");
		sp_reply_error(request, &err);
		return;
	}
	if (!pty->holder)
		pty->holder = client;
	sp_duplex_upgrade(&client->duplex, request, headers, SP_ARRAY_SIZE(headers));
}
