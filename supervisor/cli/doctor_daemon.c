/*
 * Doctor: the running daemon, if there is one: reachable, healthy, of our protocol, and whether its
 * pools enforce all of their limits.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "supervisor/cli/doctor.h"
#include "supervisor/cli/pools.h"

#define TIMEOUT_MS (2 * SP_MS_PER_S)
#define PROTOCOL   1

static void check_version(struct sp_cli_doctor *doctor)
{
	struct sp_cli_answer answer = {.root = NULL};
	struct sp_cli_finding *finding;
	struct sp_err err = {0};

	if (sp_cli_ask(doctor->cli, "GET", "/v1/version", NULL, TIMEOUT_MS, &answer, &err) < 0) {
		(void)sp_cli_doctor_report(doctor, "daemon version", SP_CLI_FAIL, "%.250s",
					   err.message);
	} else if (sp_cli_member_number(answer.root, "protocol") != PROTOCOL) {
		finding = sp_cli_doctor_report(
			doctor, "daemon version", SP_CLI_FAIL,
			"it speaks protocol %lld, this program %d",
			(long long)sp_cli_member_number(answer.root, "protocol"), PROTOCOL);
		sp_cli_doctor_fix(finding, "install sandpool and sandpoold of one release");
	} else {
		const char *version = sp_cli_member_text(answer.root, "version");
		bool same = strcmp(version, SP_VERSION) == 0;

		(void)sp_cli_doctor_report(
			doctor, "daemon version", same ? SP_CLI_PASS : SP_CLI_WARN,
			same ? "%.32s" : "%.32s, this program is " SP_VERSION, version);
	}
	sp_cli_answer_done(&answer);
}

static void check_ready(struct sp_cli_doctor *doctor)
{
	struct sp_err err = {0};
	struct sp_buf body;
	int status = sp_cli_client_call(&doctor->cli->client, "GET", "/readyz", NULL, TIMEOUT_MS,
					&body, &err);

	if (status == 0)
		(void)sp_cli_doctor_report(doctor, "daemon ready", SP_CLI_PASS,
					   "every pool has something to give");
	else
		sp_cli_doctor_fix(sp_cli_doctor_report(doctor, "daemon ready", SP_CLI_WARN,
						       "not ready: %.250s", err.message),
				  "sandpool stats, and the daemon's log");
	sp_buf_done(&body);
}

/* "memory, cpu" */
static void join(const json_t *list, char *text, size_t size)
{
	json_t *item;
	size_t used = 0;
	size_t i;

	text[0] = '\0';
	json_array_foreach (list, i, item) {
		int len = snprintf(text + used, size - used, "%s%s", used ? ", " : "",
				   json_string_value(item) ? json_string_value(item) : "?");

		if (len < 0 || (size_t)len >= size - used)
			return;
		used += (size_t)len;
	}
}

static void check_pool(struct sp_cli_doctor *doctor, const json_t *pool)
{
	const char *name = sp_cli_member_text(pool, "name");
	const char *error = sp_cli_member_text(pool, "last_error");

	if (json_is_true(json_object_get(pool, "spec_mismatch"))) {
		sp_cli_doctor_fix(
			sp_cli_doctor_report(doctor, "pools", SP_CLI_FAIL,
					     "'%.64s' makes nothing: %s", name,
					     sp_cli_pools_trouble(pool)),
			"give the pool the same keys and the same higher spec_revision on "
			"every host; sandpool reload");
		return;
	}
	if (strcmp(sp_cli_member_text(pool, "health"), "healthy") == 0)
		return;
	sp_cli_doctor_fix(sp_cli_doctor_report(doctor, "pools", SP_CLI_FAIL,
					       "'%.64s' is %.20s: %.160s", name,
					       sp_cli_member_text(pool, "health"), error),
			  "sandpool pool show %.64s, and the daemon's log", name);
}

static void check_pools(struct sp_cli_doctor *doctor)
{
	struct sp_cli_answer answer = {.root = NULL};
	struct sp_err err = {0};
	size_t failed = doctor->totals[SP_CLI_FAIL];
	json_t *pool;
	size_t i;

	if (sp_cli_pools_ask(doctor->cli, TIMEOUT_MS, &answer, &err) < 0) {
		(void)sp_cli_doctor_report(doctor, "pools", SP_CLI_FAIL, "%.250s", err.message);
	} else {
		/* One line a pool would fill the screen of a host with many: the sick ones. */
		json_array_foreach (json_object_get(answer.root, "pools"), i, pool)
			if (i < SP_CLI_FINDINGS_MAX / 2)
				check_pool(doctor, pool);
		if (failed == doctor->totals[SP_CLI_FAIL])
			(void)sp_cli_doctor_report(doctor, "pools", SP_CLI_PASS, "all healthy");
	}
	sp_cli_answer_done(&answer);
}

/* The sandboxes themselves say which of their limits could not be enforced. */
static void check_limits(struct sp_cli_doctor *doctor)
{
	struct sp_cli_answer answer = {.root = NULL};
	struct sp_err err = {0};
	char text[64] = "";
	json_t *sandbox;
	size_t i;

	if (sp_cli_ask(doctor->cli, "GET", "/v1/pools/-/sandboxes", NULL, TIMEOUT_MS, &answer,
		       &err) < 0) {
		(void)sp_cli_doctor_report(doctor, "limits in force", SP_CLI_WARN,
					   "not checked: %.200s", err.message);
		sp_cli_answer_done(&answer);
		return;
	}
	json_array_foreach (json_object_get(answer.root, "sandboxes"), i, sandbox) {
		const json_t *degraded = json_object_get(sandbox, "limits_degraded");

		if (json_array_size(degraded) > 0 && !text[0])
			join(degraded, text, sizeof(text));
	}
	if (text[0])
		sp_cli_doctor_fix(sp_cli_doctor_report(doctor, "limits in force", SP_CLI_WARN,
						       "sandboxes run without a limit on: %s",
						       text),
				  "see the limits above; \"degraded\": true permits it");
	else
		(void)sp_cli_doctor_report(doctor, "limits in force", SP_CLI_PASS,
					   "none is degraded");
	sp_cli_answer_done(&answer);
}

void sp_cli_doctor_daemon(struct sp_cli_doctor *doctor)
{
	struct sp_err err = {0};
	struct sp_buf body;
	int status = sp_cli_client_call(&doctor->cli->client, "GET", "/healthz", NULL, TIMEOUT_MS,
					&body, &err);

	sp_buf_done(&body);
	if (status < 0 && status != -EREMOTEIO) {
		sp_cli_doctor_fix(
			sp_cli_doctor_report(doctor, "daemon", SP_CLI_WARN, "%.280s", err.message),
			"start sandpoold, if it is meant to run now");
		return;
	}
	if (status < 0) {
		(void)sp_cli_doctor_report(doctor, "daemon", SP_CLI_FAIL,
					   "reachable and unwell: %.200s", err.message);
		return;
	}
	(void)sp_cli_doctor_report(doctor, "daemon", SP_CLI_PASS, "reachable and alive");
	check_version(doctor);
	check_ready(doctor);
	check_pools(doctor);
	check_limits(doctor);
}
