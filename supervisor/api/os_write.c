/*
 * The lifecycle API's JSON: a sandbox, a refusal. What was not given is left out.
 */
#include "supervisor/api/os_lifecycle.h"

#include "pool/base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CLOCK_SET_MS 500

void sp_os_time_text(struct sp_os_sandbox *os, int64_t boot_ms, char text[SP_OS_TIME_MAX])
{
	int64_t offset_ms = sp_clock_wall_ms() - sp_clock_boot_ms();

	/* Two clocks are not read at once: what differs by less than that is no other time. */
	if (offset_ms - os->wall_offset_ms > CLOCK_SET_MS ||
	    os->wall_offset_ms - offset_ms > CLOCK_SET_MS)
		os->wall_offset_ms = offset_ms;
	sp_os_format_time(os->wall_offset_ms + boot_ms, text);
}

static void write_time(struct sp_json_out *out, const char *key, struct sp_os_sandbox *os,
		       int64_t boot_ms)
{
	char text[SP_OS_TIME_MAX];

	sp_os_time_text(os, boot_ms, text);
	sp_json_text(out, key, text);
}

/* Clients' keys need their escapes, which is jansson's business. */
static void write_value(struct sp_json_out *out, const char *key, const json_t *value)
{
	char *text = json_dumps(value, JSON_COMPACT);

	if (!text) {
		out->status = -ENOMEM;
		return;
	}
	sp_json_raw(out, key, text, strlen(text));
	free(text);
}

void sp_os_sandbox_write(struct sp_json_out *out, struct sp_os_sandbox *os, bool with_image)
{
	sp_json_open(out, NULL, '{');
	sp_json_text(out, "id", os->uuid);
	if (with_image && os->image) {
		sp_json_open(out, "image", '{');
		sp_json_text(out, "uri", os->image);
		sp_json_close(out, '}');
	}
	sp_json_open(out, "status", '{');
	sp_json_text(out, "state", sp_os_state_name(os->state));
	write_time(out, "lastTransitionAt", os, os->transition_ms);
	sp_json_close(out, '}');
	if (os->metadata)
		write_value(out, "metadata", os->metadata);
	if (os->extensions)
		write_value(out, "extensions", os->extensions);
	if (os->platform)
		write_value(out, "platform", os->platform);
	if (os->expires_ms != INT64_MAX)
		write_time(out, "expiresAt", os, os->expires_ms);
	write_time(out, "createdAt", os, os->created_ms);
	if (os->entrypoint) {
		write_value(out, "entrypoint", os->entrypoint);
	} else {
		sp_json_open(out, "entrypoint", '[');
		sp_json_close(out, ']');
	}
	sp_json_close(out, '}');
}

void sp_os_reply_sandbox(struct sp_request *request, unsigned int status, struct sp_os_sandbox *os,
			 bool with_image)
{
	struct sp_err err = {0};
	struct sp_json_out out;
	struct sp_buf body;

	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	sp_os_sandbox_write(&out, os, with_image);
	if (out.status < 0) {
		(void)sp_err_set(&err, out.status, "write the answer");
		sp_reply_error(request, &err);
	} else {
		sp_reply_json(request, status, &body);
	}
	sp_buf_done(&body);
}

/* ["body", "image", "uri"] */
static void write_place(struct sp_json_out *out, const struct sp_os_refusal *refusal)
{
	const char *place = refusal->place;

	sp_json_open(out, "loc", '[');
	sp_json_text(out, NULL, refusal->part ? refusal->part : "body");
	while (*place) {
		size_t len = strcspn(place, ".");

		sp_json_text_n(out, NULL, place, len);
		place += len + (place[len] ? 1 : 0);
	}
	sp_json_close(out, ']');
}

/* FastAPI's form, and beside it the one that every other error has: clients show its message. */
static void refuse_schema(struct sp_request *request, const struct sp_os_refusal *refusal)
{
	struct sp_err err = {0};
	struct sp_json_out out;
	struct sp_buf body;

	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	sp_json_open(&out, NULL, '{');
	sp_json_open(&out, "detail", '[');
	sp_json_open(&out, NULL, '{');
	sp_json_text(&out, "type",
		     strcmp(refusal->message, "Field required") == 0 ? "missing" : "value_error");
	write_place(&out, refusal);
	sp_json_text(&out, "msg", refusal->message);
	sp_json_close(&out, '}');
	sp_json_close(&out, ']');
	sp_json_text(&out, "code", "SANDBOX::INVALID_PARAMETER");
	sp_json_text(&out, "message", refusal->message);
	sp_json_close(&out, '}');
	if (out.status < 0) {
		(void)sp_err_set(&err, out.status, "write the answer");
		sp_reply_error(request, &err);
	} else {
		sp_reply_json(request, refusal->status, &body);
	}
	sp_buf_done(&body);
}

void sp_os_refuse_value(struct sp_request *request, const char *part, const char *place,
			const char *message)
{
	struct sp_os_refusal refusal = {.status = MHD_HTTP_UNPROCESSABLE_CONTENT, .part = part};

	(void)snprintf(refusal.place, sizeof(refusal.place), "%s", place);
	(void)snprintf(refusal.message, sizeof(refusal.message), "%s", message);
	refuse_schema(request, &refusal);
}

void sp_os_refuse(struct sp_request *request, const struct sp_os_refusal *refusal)
{
	if (refusal->code)
		sp_os_reply_error(request, refusal->status, refusal->code, "%s", refusal->message);
	else
		refuse_schema(request, refusal);
}
