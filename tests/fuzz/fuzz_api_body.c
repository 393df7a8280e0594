/* libs: sp_api */
/*
 * START and acquire bodies: whatever is accepted must be something the service may be given, and
 * the writer's output of any bytes must be JSON that reads back.
 */
#include "supervisor/api/exec_json.h"
#include "supervisor/api/json_body.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_acquire(const struct sp_service_acquire *acquire)
{
	if (acquire->wait_ms < 0 || acquire->ttl_ms < 0 || acquire->min_remaining_ms < -1)
		abort();
	if (acquire->bind_count > SP_BINDS_MAX || acquire->policy >= SP_ACQUIRE_POLICY_COUNT)
		abort();
	for (size_t i = 0; i < acquire->bind_count; i++)
		if (!acquire->binds[i].source)
			abort();
	if (acquire->lease_id && !sp_lease_id_valid(acquire->lease_id))
		abort();
}

static void check_start(const char *data, size_t size, unsigned int flags)
{
	struct sp_start_body body;
	struct sp_err err = {0};

	if (sp_start_body_parse(&body, flags, "default", data, size, &err) < 0) {
		if (!err.message[0])
			abort();
		return;
	}
	if (body.spec.argc == 0 || body.spec.timeout_ms < 0 ||
	    body.spec.timeout_ms > SP_EXEC_TIMEOUT_MAX_MS)
		abort();
	for (size_t i = 0; i < body.spec.envc; i++)
		if (body.spec.env[i][0] == '=' || !strchr(body.spec.env[i], '='))
			abort();
	if (body.spec.tty && (body.spec.rows == 0 || body.spec.columns == 0))
		abort();
	if (flags & SP_START_RUN)
		check_acquire(&body.acquire);
	sp_start_body_done(&body);
}

static void check_writer(const char *data, size_t size)
{
	struct sp_json_out out;
	struct sp_buf buf;
	size_t escaped;
	json_t *value;

	sp_buf_init(&buf, 1 << 24);
	sp_json_out_init(&out, &buf);
	sp_json_text_n(&out, NULL, data, size);
	value = json_loadb(buf.data, buf.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	if (!value)
		abort();
	if (sp_utf8_valid(data, size, &escaped)) {
		if (escaped + 2 != buf.len || json_string_length(value) != size ||
		    (size > 0 && memcmp(json_string_value(value), data, size) != 0))
			abort();
	}
	json_decref(value);
	sp_buf_done(&buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	struct sp_acquire_body acquire;

	for (unsigned int flags = 0; flags <= (SP_START_RUN | SP_START_PLAIN); flags++)
		check_start(text, size, flags);
	if (sp_acquire_body_parse(&acquire, "default", text, size, NULL) == 0) {
		check_acquire(&acquire.acquire);
		sp_acquire_body_done(&acquire);
	}
	check_writer(text, size);
	return 0;
}
