/*
 * What a sandbox uses, once or every two seconds. The share of processor time is that since the one
 * asked for it before (at least SHARE_MIN_MS ago), the first time since the sandbox is held: nobody
 * waits for a second sample.
 */
#include "supervisor/api/execd.h"

#include "pool/base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SHARE_MIN_MS 100
#define WATCH_MS     2000u

static void update_share(struct sp_execd *execd, const struct sp_sandbox_usage *usage)
{
	int64_t now_ns = sp_clock_boot_ns();
	int64_t since_ns = execd->seen_ns;
	int64_t used_ns = usage->cpu_ns - SP_MAX(execd->seen_cpu_ns, INT64_C(0));
	double share;

	if (usage->cpu_ns < 0)
		return;
	if (execd->seen_cpu_ns < 0)
		since_ns = execd->os->created_ms * SP_NS_PER_MS;
	else if (now_ns - since_ns < SHARE_MIN_MS * SP_NS_PER_MS)
		return;
	if (now_ns > since_ns) {
		share = 100 * (double)used_ns / (double)(now_ns - since_ns) / usage->cpus;
		execd->cpu_percent = share < 0 ? 0 : share > 100 ? 100 : share;
	}
	execd->seen_ns = now_ns;
	execd->seen_cpu_ns = usage->cpu_ns;
}

static int64_t mib_thousandths(uint64_t bytes)
{
	return (int64_t)((double)bytes * 1000 / (double)SP_MIB);
}

static int write_usage(struct sp_execd *execd, struct sp_json_out *out, struct sp_err *err)
{
	struct sp_caller caller = sp_os_caller(execd->os);
	struct sp_sandbox_usage usage;
	int status = sp_service_usage(execd->api->service, &caller, execd->os->id, &usage, err);

	if (status < 0)
		return status;
	update_share(execd, &usage);
	sp_json_open(out, NULL, '{');
	sp_json_thousandths(out, "cpu_count", (int64_t)(usage.cpus * 1000));
	sp_json_thousandths(out, "cpu_used_pct", (int64_t)(execd->cpu_percent * 1000));
	sp_json_thousandths(out, "mem_total_mib", mib_thousandths(usage.memory_limit));
	sp_json_thousandths(out, "mem_used_mib",
			    mib_thousandths(SP_MIN(usage.memory_bytes, usage.memory_limit)));
	sp_json_integer(out, "timestamp", sp_clock_wall_ms());
	sp_json_close(out, '}');
	return 0;
}

void sp_handle_execd_metrics(struct sp_request *request)
{
	struct sp_execd *execd = sp_execd_of(request);
	struct sp_err err = {0};
	struct sp_json_out out;
	struct sp_buf body;

	if (!execd)
		return;
	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	if (write_usage(execd, &out, &err) < 0) {
		sp_buf_done(&body);
		sp_reply_error(request, &err);
	} else {
		sp_reply_written(request, &out);
	}
}

/* ---- GET /metrics/watch ---- */

/* Until the client leaves or the sandbox ends; freed in the timer's close callback. */
struct watch {
	struct sp_os_attachment attachment;
	struct sp_execd *execd;
	struct sp_api *api;
	struct sp_answer_stream *answer;
	uv_timer_t timer;
	bool full;
};

static void on_closed(uv_handle_t *handle)
{
	struct watch *watch = handle->data;
	struct sp_api *api = watch->api;

	free(watch);
	sp_api_handle_closed(api);
}

static void watch_close(struct watch *watch)
{
	sp_os_detach(&watch->attachment);
	uv_close((uv_handle_t *)&watch->timer, on_closed);
}

static void on_gone(void *arg)
{
	watch_close(arg);
}

static void on_drained(void *arg)
{
	struct watch *watch = arg;

	watch->full = false;
}

static void on_sandbox_ended(struct sp_os_attachment *attachment)
{
	struct watch *watch = SP_CONTAINER_OF(attachment, struct watch, attachment);

	sp_answer_stream_end(watch->answer);
	watch_close(watch);
}

static void send_usage(struct watch *watch)
{
	struct sp_json_out out;
	struct sp_buf body;

	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	if (write_usage(watch->execd, &out, NULL) == 0 && out.status == 0 &&
	    sp_buf_append(&body, "\n", 1) == 0)
		watch->full |= !sp_answer_stream_write(watch->answer, sp_buf_text(&body), body.len);
	sp_buf_done(&body);
}

static void on_timer(uv_timer_t *timer)
{
	struct watch *watch = timer->data;

	if (!uv_is_closing((uv_handle_t *)timer) && !watch->full)
		send_usage(watch);
}

static const struct sp_answer_stream_events watch_events = {
	.drained = on_drained,
	.gone = on_gone,
};

void sp_handle_execd_metrics_watch(struct sp_request *request)
{
	struct sp_execd *execd = sp_execd_of(request);
	struct watch *watch;
	struct sp_err err = {0};

	if (!execd)
		return;
	watch = calloc(1, sizeof(*watch));
	if (!watch) {
		(void)sp_err_set(&err, -ENOMEM, "watch a sandbox");
		sp_reply_error(request, &err);
		return;
	}
	watch->execd = execd;
	watch->api = request->api;
	watch->attachment.ended = on_sandbox_ended;
	sp_list_init(&watch->attachment.link);
	if (sp_answer_stream_open(request, MHD_HTTP_OK, sp_event_headers, SP_EVENT_HEADER_COUNT, -1,
				  &watch_events, watch, &watch->answer) < 0) {
		free(watch);
		return;
	}
	sp_os_attach(request->os, &watch->attachment);
	(void)uv_timer_init(watch->api->loop, &watch->timer);
	sp_api_handle_opened(watch->api);
	watch->timer.data = watch;
	(void)uv_timer_start(&watch->timer, on_timer, WATCH_MS, WATCH_MS);
	send_usage(watch);
}
