/*
 * sandpool doctor: everything a host needs, one line each, with the remedy.
 *
 * Works without a daemon and without a configuration; what cannot be seen without them is said. As
 * root it sees most; as another user it checks what that user's own (rootless) sandboxes would
 * need.
 */
#include "supervisor/cli/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/base/fd.h"
#include "supervisor/cli/text.h"

#define CONFIG_DEFAULT "/etc/sandpool/sandpool.json"
#define OUTPUT_MAX     (4u << 20)

enum { OPTION_CONFIG, OPTION_END };

static const struct sp_cli_option options[] = {
	[OPTION_CONFIG] = {"config", 'c', false, "FILE",
			   "configuration to check against [/etc/sandpool/sandpool.json]"},
	[OPTION_END] = {0},
};

static const char *const verdict_names[SP_CLI_VERDICT_COUNT] = {
	[SP_CLI_PASS] = "pass",
	[SP_CLI_WARN] = "warn",
	[SP_CLI_FAIL] = "fail",
};

struct sp_cli_finding *sp_cli_doctor_report(struct sp_cli_doctor *doctor, const char *name,
					    enum sp_cli_verdict verdict, const char *format, ...)
{
	struct sp_cli_finding *finding = &doctor->findings[doctor->count];
	va_list args;

	sp_assert(doctor->count + 1 < SP_CLI_FINDINGS_MAX); /* the last one is spare */
	doctor->count++;
	doctor->totals[verdict]++;
	*finding = (struct sp_cli_finding){.name = name, .verdict = verdict};
	va_start(args, format);
	(void)vsnprintf(finding->detail, sizeof(finding->detail), format, args);
	va_end(args);
	return finding;
}

void sp_cli_doctor_fix(struct sp_cli_finding *finding, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)vsnprintf(finding->fix, sizeof(finding->fix), format, args);
	va_end(args);
}

int sp_cli_doctor_read(const char *path, char *text, size_t size)
{
	SP_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	ssize_t len;

	if (fd < 0)
		return -errno;
	len = sp_read_all(fd, text, size);
	if (len < 0)
		return (int)len;
	if ((size_t)len == size)
		return -EMSGSIZE;
	text[len] = '\0';
	if (len > 0 && text[len - 1] == '\n')
		text[len - 1] = '\0';
	return 0;
}

int sp_cli_doctor_number(const char *path, int64_t *ret_number)
{
	char text[64];
	char *end;
	long long number;
	int status = sp_cli_doctor_read(path, text, sizeof(text));

	if (status < 0)
		return status;
	if (strcmp(text, "max") == 0) {
		*ret_number = INT64_MAX;
		return 0;
	}
	errno = 0;
	number = strtoll(text, &end, 10);
	if (end == text || errno != 0)
		return -EINVAL;
	*ret_number = number;
	return 0;
}

int64_t sp_cli_doctor_capacity(const struct sp_cli_doctor *doctor)
{
	int64_t total = 0;

	for (size_t i = 0; doctor->config && i < doctor->config->pool_count; i++) {
		const struct sp_pool_config *policy = &doctor->config->pools[i].policy;

		total += SP_MAX((int64_t)policy->max_total, (int64_t)policy->max_idle);
	}
	return total;
}

/* The faults themselves are for `config check`; here the first one and their number. */
static void load_config(struct sp_cli_doctor *doctor, struct sp_config **ret_config)
{
	struct sp_config_faults faults = {0};
	struct sp_cli_finding *finding;
	int status = sp_config_load(doctor->config_path, doctor->root, ret_config, &faults);

	if (status == 0) {
		doctor->config = *ret_config;
		(void)sp_cli_doctor_report(doctor, "configuration", SP_CLI_PASS, "'%s', %zu %s",
					   doctor->config_path, doctor->config->pool_count,
					   doctor->config->pool_count == 1 ? "pool" : "pools");
	} else if (!doctor->config_named && access(doctor->config_path, F_OK) < 0 &&
		   errno == ENOENT) {
		finding = sp_cli_doctor_report(
			doctor, "configuration", SP_CLI_WARN,
			"'%s' does not exist: what depends on it is not checked",
			doctor->config_path);
		sp_cli_doctor_fix(finding,
				  "write it, or name yours: sandpool doctor --config FILE");
	} else {
		finding = sp_cli_doctor_report(
			doctor, "configuration", SP_CLI_FAIL,
			"'%s' has %zu fault%s, the first: %.160s", doctor->config_path,
			faults.count, faults.count == 1 ? "" : "s",
			faults.count > 0 ? faults.items[0].message : strerrordesc_np(-status));
		sp_cli_doctor_fix(finding, "sandpool config check %.200s", doctor->config_path);
	}
	sp_config_faults_done(&faults);
}

static void put_text(const struct sp_cli_doctor *doctor, struct sp_buf *out)
{
	int width = 0;

	for (size_t i = 0; i < doctor->count; i++)
		width = SP_MAX(width, (int)strlen(doctor->findings[i].name));
	for (size_t i = 0; i < doctor->count; i++) {
		const struct sp_cli_finding *finding = &doctor->findings[i];
		struct sp_buf line;
		int status;

		sp_buf_init(&line, OUTPUT_MAX);
		status = sp_cli_append_printable(&line, finding->detail);
		if (status == 0 && finding->fix[0])
			status = sp_buf_append(&line, "; fix: ", 7);
		if (status == 0)
			status = sp_cli_append_printable(&line, finding->fix);
		sp_cli_put(out, "%s  %-*s  %s\n", verdict_names[finding->verdict], width,
			   finding->name, status == 0 ? sp_buf_text(&line) : "");
		sp_buf_done(&line);
	}
	sp_cli_put(out, "%zu passed, %zu warnings, %zu failed\n", doctor->totals[SP_CLI_PASS],
		   doctor->totals[SP_CLI_WARN], doctor->totals[SP_CLI_FAIL]);
}

/* File names and kernel texts need not be UTF-8; a report must not fail for that. */
static void put_member(struct sp_cli_json *json, const char *key, const char *text)
{
	sp_cli_json_member(json, key, sp_cli_utf8_valid(text, strlen(text)) ? text : "?");
}

static void put_json(const struct sp_cli_doctor *doctor, struct sp_buf *out)
{
	struct sp_cli_json json;

	sp_cli_json_init(&json, out);
	sp_cli_json_open(&json, '{');
	sp_cli_json_key(&json, "checks");
	sp_cli_json_open(&json, '[');
	for (size_t i = 0; i < doctor->count; i++) {
		const struct sp_cli_finding *finding = &doctor->findings[i];

		sp_cli_json_open(&json, '{');
		put_member(&json, "name", finding->name);
		put_member(&json, "verdict", verdict_names[finding->verdict]);
		put_member(&json, "detail", finding->detail);
		if (finding->fix[0])
			put_member(&json, "fix", finding->fix);
		sp_cli_json_close(&json, '}');
	}
	sp_cli_json_close(&json, ']');
	sp_cli_json_key(&json, "passed");
	sp_cli_json_number(&json, (int64_t)doctor->totals[SP_CLI_PASS]);
	sp_cli_json_key(&json, "warnings");
	sp_cli_json_number(&json, (int64_t)doctor->totals[SP_CLI_WARN]);
	sp_cli_json_key(&json, "failed");
	sp_cli_json_number(&json, (int64_t)doctor->totals[SP_CLI_FAIL]);
	sp_cli_json_close(&json, '}');
	sp_cli_put(out, "\n");
}

static int run(struct sp_cli *cli)
{
	const char *path = sp_cli_args_value(&cli->args, &options[OPTION_CONFIG]);
	struct sp_cli_doctor *doctor = sp_cli_xrealloc(NULL, sizeof(*doctor));
	struct sp_config *config = NULL;
	struct sp_buf out;
	int exit_code;

	memset(doctor, 0, sizeof(*doctor));
	doctor->cli = cli;
	doctor->config_path = path ? path : CONFIG_DEFAULT;
	doctor->config_named = path != NULL;
	doctor->root = geteuid() == 0;
	load_config(doctor, &config);
	sp_cli_doctor_kernel(doctor);
	sp_cli_doctor_namespaces(doctor);
	sp_cli_doctor_cgroups(doctor);
	sp_cli_doctor_host(doctor);
	sp_cli_doctor_redis(doctor);
	sp_cli_doctor_daemon(doctor);
	sp_buf_init(&out, OUTPUT_MAX);
	if (cli->json)
		put_json(doctor, &out);
	else
		put_text(doctor, &out);
	exit_code = sp_cli_print_buf(cli, &out);
	if (exit_code == 0 && doctor->totals[SP_CLI_FAIL] > 0)
		exit_code = SP_CLI_EXIT_FINDING;
	sp_buf_done(&out);
	sp_config_free(config);
	free(doctor);
	return exit_code;
}

const struct sp_cli_verb sp_cli_verb_doctor = {
	.name = "doctor",
	.usage = "[--config FILE]",
	.summary = "check that this host can do what sandpool needs",
	.details = "One line for each requirement: pass, warn (works, but less well or less "
		   "safely) or fail,\n"
		   "with the remedy. Nothing on the host is changed; no daemon is needed. Run it "
		   "as the user\n"
		   "that starts the daemon, usually root.\n\n"
		   "Exit status: 0 without a failure (warnings do not count), 1 with one.\n\n"
		   "  sudo sandpool doctor\n"
		   "  sandpool doctor --json | jq -r '.checks[] | select(.verdict != \"pass\") | "
		   ".fix'\n",
	.options = options,
	.over_redis = SP_CLI_REDIS_IGNORED,
	.words_max = 0,
	.run = run,
};
