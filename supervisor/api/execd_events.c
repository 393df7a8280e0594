/*
 * One event stream, from the first event to the last.
 *
 *	OPEN ──complete, fail──► ENDING (delivers what is kept) ──► closed
 *	  └─ gone ──► closed
 *
 * The memory goes in the close callback of the ping timer. Text of programs is escaped and repaired
 * by json_out.c and nowhere else.
 */
#include "supervisor/api/execd_events.h"

#include "pool/base/clock.h"
#include "supervisor/api/execd_lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define EVENT_MAX  (16u << 20) /* the longest line or result with every byte escaped */
#define EVENT_KEEP (64u * 1024)
#define SHORT_LINE (8u * 1024) /* while clients that do not read hold too much */
/* What all streams may write in one turn of the loop, and what an event costs beside its text: some
 * 250 short lines, a quarter of a millisecond. */
#define TURN_SHARE (64 * 1024)
#define EVENT_COST 256
#define OUTPUTS    2

struct sp_events {
	struct sp_list late; /* in api->late_events: has more, and has had its share */
	struct sp_api *api;
	struct sp_answer_stream *answer; /* NULL: gone, or its end was said */
	const struct sp_events_owner *owner;
	void *arg;
	uv_timer_t ping;
	struct sp_lines lines[OUTPUTS];
	struct sp_buf kept; /* output that found no room … */
	int kept_stream;    /* … and whose it is */
	size_t held;        /* of output_bytes: what is kept, and lines without an end */
	struct sp_buf event;
	struct sp_buf last; /* ENDING: the last event */
	bool full;
	bool ending;
};

static void recount(struct sp_events *events)
{
	size_t held = events->kept.len;

	for (size_t i = 0; i < OUTPUTS; i++)
		held += events->lines[i].tail.len;
	events->api->output_bytes += held - events->held;
	events->held = held;
}

static void on_closed(uv_handle_t *handle)
{
	struct sp_events *events = handle->data;
	struct sp_api *api = events->api;

	api->output_bytes -= events->held;
	for (size_t i = 0; i < OUTPUTS; i++)
		sp_lines_done(&events->lines[i]);
	sp_buf_done(&events->kept);
	sp_buf_done(&events->event);
	sp_buf_done(&events->last);
	free(events);
	sp_api_handle_closed(api);
}

static void close_events(struct sp_events *events)
{
	events->answer = NULL;
	sp_list_remove(&events->late);
	uv_close((uv_handle_t *)&events->ping, on_closed);
}

/* ---- one event ---- */

static void begin(struct sp_json_out *out, struct sp_buf *buf, const char *type)
{
	sp_buf_clear(buf);
	sp_json_out_init(out, buf);
	sp_json_open(out, NULL, '{');
	sp_json_text(out, "type", type);
}

static void stamp(struct sp_json_out *out)
{
	sp_json_integer(out, "timestamp", sp_clock_wall_ms());
}

static void finish(struct sp_json_out *out)
{
	sp_json_close(out, '}');
	if (out->status == 0)
		out->status = sp_buf_append(out->buf, "\n\n", 2);
}

/* Without memory for an event the client must not take what it has for all of it. */
static void send_event(struct sp_events *events, struct sp_json_out *out)
{
	struct sp_answer_stream *answer = events->answer;

	if (out->status == 0) {
		events->full |=
			!sp_answer_stream_write(answer, sp_buf_text(out->buf), out->buf->len);
		if (events->event.capacity > EVENT_KEEP)
			sp_buf_done(&events->event);
		return;
	}
	events->full = true;
	sp_answer_stream_break(answer);
}

static void send_text(struct sp_events *events, const char *type, const char *text, size_t len)
{
	struct sp_json_out out;

	begin(&out, &events->event, type);
	sp_json_text_n(&out, "text", text, len);
	stamp(&out);
	finish(&out);
	send_event(events, &out);
}

static void send_ping(struct sp_events *events)
{
	send_text(events, "ping", "pong", strlen("pong"));
}

static void on_ping(uv_timer_t *timer)
{
	struct sp_events *events = timer->data;

	/* A client that has not read what there is needs no sign of life. */
	if (events->answer && !events->full)
		send_ping(events);
}

/* ---- output ---- */

static bool emit_line(void *arg, const char *line, size_t len)
{
	struct sp_events *events = arg;

	send_text(events, events->kept_stream == 2 ? "stderr" : "stdout", line, len);
	events->api->event_share -= EVENT_COST + (int64_t)len;
	return !events->full && events->api->event_share > 0;
}

static size_t feed(struct sp_events *events, const char *data, size_t len)
{
	struct sp_lines *lines = &events->lines[events->kept_stream - 1];

	sp_lines_limit(lines, sp_api_output_tight(events->api) ? SHORT_LINE : SP_EXECD_LINE_MAX);
	return sp_lines_feed(lines, data, len, emit_line, events);
}

static void flush_lines(struct sp_events *events)
{
	for (int i = 0; i < OUTPUTS; i++) {
		events->kept_stream = i + 1;
		sp_lines_flush(&events->lines[i], emit_line, events);
	}
	recount(events);
}

static void end(struct sp_events *events)
{
	flush_lines(events);
	(void)sp_answer_stream_write(events->answer, sp_buf_text(&events->last), events->last.len);
	sp_answer_stream_end(events->answer);
	close_events(events);
}

static bool is_late(const struct sp_events *events)
{
	return !sp_list_empty(&events->late);
}

/* If it has more, and nothing but this turn's share stops it. */
static void wait_for_turn(struct sp_events *events)
{
	if (events->full || events->kept.len == 0)
		return;
	sp_list_append(&events->api->late_events, &events->late);
	sp_api_wake(events->api);
}

/* With what is kept. */
static void go_on(struct sp_events *events)
{
	if (events->api->event_share > 0) {
		size_t taken = feed(events, sp_buf_text(&events->kept), events->kept.len);

		sp_buf_consume(&events->kept, taken);
		recount(events);
	}
	wait_for_turn(events);
	if (events->full || is_late(events))
		return;
	sp_buf_done(&events->kept);
	if (events->ending)
		end(events);
	else if (events->owner->drained)
		events->owner->drained(events->arg);
}

/* There is room again. */
static void on_drained(void *arg)
{
	struct sp_events *events = arg;

	events->full = false;
	if (!is_late(events))
		go_on(events);
}

void sp_events_next_turn(struct sp_api *api)
{
	api->event_share = TURN_SHARE;
	while (api->event_share > 0 && !sp_list_empty(&api->late_events)) {
		struct sp_events *events =
			SP_CONTAINER_OF(api->late_events.next, struct sp_events, late);

		sp_list_remove(&events->late);
		if (!events->full)
			go_on(events);
	}
	if (!sp_list_empty(&api->late_events))
		sp_api_wake(api);
}

static void on_gone(void *arg)
{
	struct sp_events *events = arg;
	bool told = !events->ending;

	close_events(events);
	if (told)
		events->owner->gone(events->arg);
}

bool sp_events_output(struct sp_events *events, int stream, const void *data, size_t len)
{
	size_t taken = 0;

	sp_assert(!events->ending && events->kept.len == 0);
	events->kept_stream = stream;
	if (events->api->event_share > 0)
		taken = feed(events, data, len);
	if (sp_buf_append(&events->kept, (const char *)data + taken, len - taken) < 0)
		sp_answer_stream_break(events->answer);
	recount(events);
	wait_for_turn(events);
	return !events->full && !is_late(events);
}

/* ---- the other events ---- */

bool sp_events_count(struct sp_events *events, int64_t count)
{
	struct sp_json_out out;

	begin(&out, &events->event, "execution_count");
	sp_json_integer(&out, "execution_count", count);
	stamp(&out);
	finish(&out);
	send_event(events, &out);
	return !events->full;
}

bool sp_events_result(struct sp_events *events, const struct sp_event_datum *data, size_t count)
{
	struct sp_json_out out;

	flush_lines(events);
	begin(&out, &events->event, "result");
	stamp(&out);
	sp_json_open(&out, "results", '{');
	for (size_t i = 0; i < count; i++)
		sp_json_text_n(&out, data[i].type, data[i].data, data[i].len);
	sp_json_close(&out, '}');
	finish(&out);
	send_event(events, &out);
	return !events->full;
}

static void end_with(struct sp_events *events, struct sp_json_out *out)
{
	finish(out);
	events->ending = true;
	if (out->status < 0)
		sp_answer_stream_break(events->answer);
	else if (events->kept.len == 0)
		end(events);
}

void sp_events_complete(struct sp_events *events, int64_t time_ms)
{
	struct sp_json_out out;

	begin(&out, &events->last, "execution_complete");
	if (time_ms > 0)
		sp_json_integer(&out, "execution_time", time_ms);
	stamp(&out);
	end_with(events, &out);
}

void sp_events_fail(struct sp_events *events, const struct sp_event_error *error)
{
	struct sp_json_out out;

	begin(&out, &events->last, "error");
	if (error->text)
		sp_json_text(&out, "text", error->text);
	stamp(&out);
	sp_json_open(&out, "error", '{');
	sp_json_text(&out, "ename", error->name);
	sp_json_text(&out, "evalue", error->value);
	if (error->text && error->traceback_count == 0) {
		sp_json_null(&out, "traceback");
	} else {
		sp_json_open(&out, "traceback", '[');
		for (size_t i = 0; i < error->traceback_count; i++)
			sp_json_text(&out, NULL, error->traceback[i]);
		sp_json_close(&out, ']');
	}
	sp_json_close(&out, '}');
	end_with(events, &out);
}

/* ---- opening ---- */

const struct sp_answer_header sp_event_headers[SP_EVENT_HEADER_COUNT] = {
	{"Content-Type", "text/event-stream"},
	{"Cache-Control", "no-cache"},
	{"X-Accel-Buffering", "no"},
};

static const struct sp_answer_stream_events answer_events = {
	.drained = on_drained,
	.gone = on_gone,
};

int sp_events_open(struct sp_request *request, const char *id, const struct sp_events_owner *owner,
		   void *arg, struct sp_events **ret_events)
{
	struct sp_events *events = calloc(1, sizeof(*events));
	struct sp_api *api = request->api;
	int status;

	if (!events) {
		(void)sp_request_respond(request, MHD_HTTP_OK, NULL, NULL);
		return -ENOMEM;
	}
	sp_request_body_forget(request);
	sp_list_init(&events->late);
	events->api = api;
	events->owner = owner;
	events->arg = arg;
	events->kept_stream = 1;
	for (size_t i = 0; i < OUTPUTS; i++)
		sp_lines_init(&events->lines[i]);
	sp_buf_init(&events->kept, SIZE_MAX);
	sp_buf_init(&events->event, EVENT_MAX);
	sp_buf_init(&events->last, EVENT_MAX);
	status =
		sp_answer_stream_open(request, MHD_HTTP_OK, sp_event_headers, SP_EVENT_HEADER_COUNT,
				      -1, &answer_events, events, &events->answer);
	if (status < 0) {
		free(events);
		return status;
	}
	(void)uv_timer_init(api->loop, &events->ping);
	sp_api_handle_opened(api);
	events->ping.data = events;
	(void)uv_timer_start(&events->ping, on_ping, SP_EVENTS_PING_MS, SP_EVENTS_PING_MS);
	send_text(events, "init", id, strlen(id));
	send_ping(events);
	*ret_events = events;
	return 0;
}
