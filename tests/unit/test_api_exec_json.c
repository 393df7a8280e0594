/*
 * START and acquire bodies, RESULT objects.
 */
#include "supervisor/api/exec_json.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static int start(const char *text, unsigned int flags, struct sp_start_body *body, char *message)
{
	struct sp_err err = {0};
	int status = sp_start_body_parse(body, flags, "default", text, strlen(text), &err);

	if (message)
		memcpy(message, err.message, sizeof(err.message));
	return status;
}

static int acquire(const char *text, struct sp_acquire_body *body)
{
	return sp_acquire_body_parse(body, "default", text, strlen(text), NULL);
}

Test(api_exec_json, start_fills_every_member)
{
	struct sp_start_body body;

	cr_assert(
		start("{\"argv\": [\"a\", \"\", \"\\u00e4\\n\"], \"cwd\": \"/x\", \"env\": {\"A\": "
		      "\"1=2\", \"B\": \"\"}, \"uid\": 1, \"gid\": 2, \"timeout\": 0.5, "
		      "\"output_limit\": 9, \"stdin\": true, \"merge_stderr\": true, "
		      "\"tty\": {\"rows\": 1, \"columns\": 65535}}",
		      0, &body, NULL) == 0);
	cr_assert(body.spec.argc == 3);
	cr_assert(strcmp(body.spec.argv[0], "a") == 0 && body.spec.argv[1][0] == '\0');
	cr_assert(strcmp(body.spec.argv[2], "\xc3\xa4\n") == 0);
	cr_assert(strcmp(body.spec.cwd, "/x") == 0);
	cr_assert(body.spec.envc == 2 && strcmp(body.spec.env[0], "A=1=2") == 0 &&
		  strcmp(body.spec.env[1], "B=") == 0);
	cr_assert(body.spec.uid == 1 && body.spec.gid == 2);
	cr_assert(body.spec.timeout_ms == 500 && body.spec.output_limit == 9);
	cr_assert(body.spec.stdin_open && body.spec.merge_stderr);
	cr_assert(body.spec.tty && body.spec.rows == 1 && body.spec.columns == 65535);
	sp_start_body_done(&body);
}

Test(api_exec_json, start_has_quiet_defaults)
{
	struct sp_start_body body;

	cr_assert(start("{\"argv\": [\"a\"]}", 0, &body, NULL) == 0);
	cr_assert(!body.spec.cwd && body.spec.envc == 0 && body.spec.uid == -1 &&
		  body.spec.gid == -1 && body.spec.timeout_ms == 0 && body.spec.output_limit == 0 &&
		  !body.spec.stdin_open && !body.spec.tty && !body.spec.merge_stderr);
	sp_start_body_done(&body);
}

Test(api_exec_json, release_is_for_the_stream_of_a_held_sandbox)
{
	static const unsigned int others[] = {SP_START_RUN, SP_START_PLAIN,
					      SP_START_RUN | SP_START_PLAIN};
	const char *text = "{\"argv\": [\"a\"], \"release\": true}";
	char message[SP_ERR_MESSAGE_MAX];
	struct sp_start_body body;

	cr_assert(start(text, 0, &body, NULL) == 0 && body.release);
	sp_start_body_done(&body);
	cr_assert(start("{\"argv\": [\"a\"]}", 0, &body, NULL) == 0 && !body.release);
	sp_start_body_done(&body);
	for (size_t i = 0; i < SP_ARRAY_SIZE(others); i++) {
		cr_assert(start(text, others[i], &body, message) == -EINVAL);
		cr_assert_not_null(strstr(message, "'release'"), "%s", message);
	}
}

Test(api_exec_json, shell_is_bin_sh)
{
	struct sp_start_body body;

	cr_assert(start("{\"shell\": \"echo 'a b'\"}", 0, &body, NULL) == 0);
	cr_assert(body.spec.argc == 3 && strcmp(body.spec.argv[0], "/bin/sh") == 0 &&
		  strcmp(body.spec.argv[1], "-c") == 0 &&
		  strcmp(body.spec.argv[2], "echo 'a b'") == 0);
	sp_start_body_done(&body);
}

Test(api_exec_json, bad_starts_name_the_member)
{
	static const struct {
		const char *text;
		const char *word;
	} cases[] = {
		{"{}", "'argv' and 'shell'"},
		{"{\"argv\": [\"a\"], \"shell\": \"b\"}", "'argv' and 'shell'"},
		{"{\"argv\": []}", "'argv'"},
		{"{\"argv\": [\"a\", 1]}", "'argv[1]'"},
		{"{\"argv\": [\"a\"], \"env\": {\"A\": 1}}", "'env.A'"},
		{"{\"argv\": [\"a\"], \"env\": {\"A=\": \"1\"}}", "'A='"},
		{"{\"argv\": [\"a\"], \"env\": {\"\": \"1\"}}", "''"},
		{"{\"argv\": [\"a\"], \"uid\": -1}", "'uid'"},
		{"{\"argv\": [\"a\"], \"uid\": 65535}", "'uid'"},
		{"{\"argv\": [\"a\"], \"timeout\": 0}", "'timeout'"},
		{"{\"argv\": [\"a\"], \"timeout\": \"169h\"}", "'timeout'"},
		{"{\"argv\": [\"a\"], \"output_limit\": 0}", "'output_limit'"},
		{"{\"argv\": [\"a\"], \"tty\": {\"rows\": 0}}", "'tty.rows'"},
		{"{\"argv\": [\"a\"], \"tty\": {\"columns\": 65536}}", "'tty.columns'"},
		{"{\"argv\": [\"a\"], \"tty\": {\"cols\": 1}}", "'tty.cols'"},
		{"{\"argv\": [\"a\"], \"policy\": \"wait\"}", "'policy'"}, /* on /run only */
		{"{\"argv\": [\"a\"], \"stdin_text\": \"x\"}", "'stdin_text'"},
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++) {
		struct sp_start_body body;
		char message[SP_ERR_MESSAGE_MAX];

		cr_assert(start(cases[i].text, 0, &body, message) == -EINVAL, "%s", cases[i].text);
		cr_assert(strstr(message, cases[i].word), "%s: %s", cases[i].text, message);
	}
}

Test(api_exec_json, longest_timeout_is_a_week)
{
	struct sp_start_body body;

	cr_assert(start("{\"argv\": [\"a\"], \"timeout\": \"168h\"}", 0, &body, NULL) == 0);
	cr_assert(body.spec.timeout_ms == SP_EXEC_TIMEOUT_MAX_MS);
	sp_start_body_done(&body);
	cr_assert(start("{\"argv\": [\"a\"], \"timeout\": 604800.001}", 0, &body, NULL) == -EINVAL);
}

Test(api_exec_json, plain_form_has_stdin_as_text)
{
	struct sp_start_body body;

	cr_assert(start("{\"argv\": [\"a\"], \"stdin_text\": \"\"}", SP_START_PLAIN, &body, NULL) ==
		  0);
	cr_assert(body.spec.stdin_open && body.stdin_text && body.stdin_text_len == 0);
	sp_start_body_done(&body);
	cr_assert(start("{\"argv\": [\"a\"], \"stdin\": true}", SP_START_PLAIN, &body, NULL) ==
		  -EINVAL);
}

Test(api_exec_json, run_takes_the_members_of_an_acquire)
{
	struct sp_start_body body;

	cr_assert(start("{\"argv\": [\"a\"], \"policy\": \"create\", \"wait\": \"2s\", "
			"\"min_remaining\": 0, \"binds\": [{\"source\": \"/s\"}]}",
			SP_START_RUN, &body, NULL) == 0);
	cr_assert(strcmp(body.acquire.pool, "default") == 0);
	cr_assert(body.acquire.policy == SP_ACQUIRE_CREATE && body.acquire.wait_ms == 2000);
	cr_assert(body.acquire.min_remaining_ms == 0 && body.acquire.bind_count == 1);
	sp_start_body_done(&body);
}

Test(api_exec_json, acquire_without_policy_waits_only_if_told_how_long)
{
	struct sp_acquire_body body;

	cr_assert(acquire("", &body) == 0);
	cr_assert(body.acquire.policy == SP_ACQUIRE_FAIL_FAST && body.acquire.wait_ms == 0);
	cr_assert(body.acquire.ttl_ms == 0 && body.acquire.min_remaining_ms == -1);
	cr_assert(!body.acquire.lease_id && body.acquire.bind_count == 0);
	sp_acquire_body_done(&body);
	cr_assert(acquire("{\"wait\": 1}", &body) == 0);
	cr_assert(body.acquire.policy == SP_ACQUIRE_WAIT && body.acquire.wait_ms == 1000);
	sp_acquire_body_done(&body);
	cr_assert(acquire("{\"policy\": \"wait\"}", &body) == 0);
	cr_assert(body.acquire.wait_ms == SP_API_DEFAULT_WAIT_MS);
	sp_acquire_body_done(&body);
	cr_assert(acquire("{\"policy\": \"wait\", \"wait\": 0}", &body) == 0);
	cr_assert(body.acquire.wait_ms == 0);
	sp_acquire_body_done(&body);
}

Test(api_exec_json, lease_ids_are_checked)
{
	static const char id[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
	struct sp_acquire_body body;
	char text[128];

	(void)snprintf(text, sizeof(text), "{\"lease\": \"%s\"}", id);
	cr_assert(acquire(text, &body) == 0 && strcmp(body.acquire.lease_id, id) == 0);
	sp_acquire_body_done(&body);
	(void)snprintf(text, sizeof(text), "{\"lease\": \"%s\"}", id + 1);
	cr_assert(acquire(text, &body) == -EINVAL);
	cr_assert(acquire("{\"lease\": \"\"}", &body) == -EINVAL);
}

Test(api_exec_json, binds_of_the_limit_are_taken_and_one_more_refused)
{
	for (unsigned int extra = 0; extra < 2; extra++) {
		struct sp_acquire_body body;
		char text[4096] = "{\"binds\": [";
		size_t len = strlen(text);
		int status;

		for (unsigned int i = 0; i < SP_BINDS_MAX + extra; i++)
			len += (size_t)snprintf(text + len, sizeof(text) - len,
						"%s{\"source\": \"/s%u\", \"mode\": \"ro\"}",
						i ? "," : "", i);
		(void)snprintf(text + len, sizeof(text) - len, "]}");
		status = acquire(text, &body);
		cr_assert(status == (extra ? -EINVAL : 0));
		if (status < 0)
			continue;
		cr_assert(body.acquire.bind_count == SP_BINDS_MAX);
		cr_assert(body.acquire.binds[31].mode == SP_BIND_RO);
		cr_assert(strcmp(body.acquire.binds[31].source, "/s31") == 0);
		cr_assert(!body.acquire.binds[31].target);
		sp_acquire_body_done(&body);
	}
}

Test(api_exec_json, an_overlay_has_a_size)
{
	static const struct {
		const char *size;
		uint64_t bytes;
	} sizes[] = {{"1", 1}, {"\"64MiB\"", 64u << 20}, {"9223372036854775807", INT64_MAX}};

	for (size_t i = 0; i < SP_ARRAY_SIZE(sizes); i++) {
		struct sp_acquire_body body;
		char text[256];

		(void)snprintf(text, sizeof(text),
			       "{\"binds\": [{\"source\": \"/s\", \"mode\": \"overlay\", "
			       "\"size\": %s}]}",
			       sizes[i].size);
		cr_assert(acquire(text, &body) == 0, "%s", text);
		cr_assert(body.acquire.binds[0].mode == SP_BIND_OVERLAY);
		cr_assert(body.acquire.binds[0].size == sizes[i].bytes, "%s", text);
		sp_acquire_body_done(&body);
	}
}

Test(api_exec_json, bad_acquires_are_refused)
{
	static const char *const bad[] = {"{\"binds\": [{\"source\": \"/a\", \"size\": 0}]}",
					  "{\"binds\": [{\"source\": \"/a\", \"size\": -1}]}",
					  "{\"binds\": [{\"source\": \"/a\", \"size\": \"0\"}]}",
					  "{\"binds\": [{\"source\": \"/a\", \"size\": 1.5}]}",
					  "{\"binds\": [{\"source\": \"/a\", \"size\": \"MB\"}]}",
					  "{\"ttl\": 0}",
					  "{\"ttl\": -1}",
					  "{\"wait\": -1}",
					  "{\"policy\": \"now\"}",
					  "{\"binds\": {}}",
					  "{\"binds\": [1]}",
					  "{\"binds\": [{}]}",
					  "{\"binds\": [{\"source\": \"/a\", \"mode\": \"rx\"}]}",
					  "{\"binds\": [{\"source\": \"/a\", \"to\": \"/b\"}]}"};

	for (size_t i = 0; i < SP_ARRAY_SIZE(bad); i++) {
		struct sp_acquire_body body;

		cr_assert(acquire(bad[i], &body) == -EINVAL, "%s", bad[i]);
	}
}

static const char *result_text(struct sp_buf *buf, const struct sp_exec_result *result)
{
	struct sp_json_out out;

	sp_buf_clear(buf);
	sp_json_out_init(&out, buf);
	sp_result_write(&out, NULL, result);
	cr_assert(out.status == 0);
	return sp_buf_text(buf);
}

Test(api_exec_json, result_of_an_exit)
{
	const struct sp_exec_result result = {.reason = SP_EXEC_EXITED,
					      .exit_code = 3,
					      .wall_us = 12345,
					      .user_us = 1000,
					      .system_us = 500,
					      .peak_memory_bytes = 4096,
					      .stdout_bytes = 1,
					      .stderr_truncated = true};
	struct sp_buf buf;

	sp_buf_init(&buf, 4096);
	cr_assert(strcmp(result_text(&buf, &result),
			 "{\"reason\":\"exited\",\"exit_code\":3,\"signal\":0,\"wall_ms\":12.345,"
			 "\"cpu_ms\":1.500,\"peak_memory_bytes\":4096,\"stdout_bytes\":1,"
			 "\"stderr_bytes\":0,\"stdout_truncated\":false,"
			 "\"stderr_truncated\":true}") == 0,
		  "%s", sp_buf_text(&buf));
	sp_buf_done(&buf);
}

Test(api_exec_json, result_of_what_did_not_exit_has_no_exit_code)
{
	const struct sp_exec_result result = {
		.reason = SP_EXEC_TIMEOUT, .exit_code = -1, .signal = 9};
	struct sp_buf buf;

	sp_buf_init(&buf, 4096);
	cr_assert(strstr(result_text(&buf, &result),
			 "\"reason\":\"timeout\",\"exit_code\":null,\"signal\":9"));
	sp_buf_done(&buf);
}

Test(api_exec_json, program_that_cannot_start_has_the_codes_of_a_shell)
{
	struct sp_exec_result result = {.reason = SP_EXEC_START_FAILED,
					.exit_code = -1,
					.stage = "exec",
					.start_errno = ENOENT,
					.message = "start \"x\""};
	struct sp_buf buf;

	sp_buf_init(&buf, 4096);
	cr_assert(strstr(result_text(&buf, &result), "\"exit_code\":127"));
	cr_assert(strstr(sp_buf_text(&buf), "\"stage\":\"exec\",\"message\":\"start \\\"x\\\"\""));
	result.start_errno = EACCES;
	cr_assert(strstr(result_text(&buf, &result), "\"exit_code\":126"));
	sp_buf_done(&buf);
}
