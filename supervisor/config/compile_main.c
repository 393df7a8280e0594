/*
 * sandpool-compile: from the configuration file to the launcher's table and sandpoold's resolved
 * configuration.
 *
 *	sandpool-compile --config FILE --table-fd N --resolved-fd M
 *
 * The launcher execs it at start and on reload, as root, with two empty memory files; it seals them
 * itself afterwards. The only input is the file: it, its drop-ins and what they name must belong to
 * root and be writable by nobody else (without privilege: to the user). No client's byte gets here.
 * So everything that parses (JSON, profiles, directories) lives in a process that is gone before
 *the first client comes, and the launcher parses nothing.
 *
 * Faults go to stderr, one a line, "FILE:LINE: message". Exit status 0, or 1 with nothing usable in
 * the descriptors.
 */
#include "pool/base/fd.h"
#include "supervisor/config/reader.h"
#include "supervisor/config/table_build.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RESOLVED_MAX (16u << 20)

struct options {
	const char *config;
	int table_fd;
	int resolved_fd;
};

/* The number of an inherited descriptor beyond stderr; -1 otherwise. */
static int parse_fd(const char *text)
{
	char *end;
	long value;

	errno = 0;
	value = strtol(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0' || value <= STDERR_FILENO || value > 65535)
		return -1;
	return (int)value;
}

static int parse_options(int argc, char **argv, struct options *ret_options)
{
	static const struct option names[] = {
		{"config", required_argument, NULL, 'c'},
		{"table-fd", required_argument, NULL, 't'},
		{"resolved-fd", required_argument, NULL, 'r'},
		{NULL, 0, NULL, 0},
	};
	struct options options = {NULL, -1, -1};
	int option;

	while ((option = getopt_long(argc, argv, "", names, NULL)) != -1) {
		if (option == 'c')
			options.config = optarg;
		else if (option == 't')
			options.table_fd = parse_fd(optarg);
		else if (option == 'r')
			options.resolved_fd = parse_fd(optarg);
		else
			return -EINVAL;
	}
	if (!options.config || options.table_fd < 0 || options.resolved_fd < 0 || optind != argc)
		return -EINVAL;
	*ret_options = options;
	return 0;
}

static void print_faults(const struct sp_config_faults *faults)
{
	struct sp_buf text;

	sp_buf_init(&text, RESOLVED_MAX);
	if (sp_config_faults_print(faults, &text) == 0)
		(void)sp_write_all(STDERR_FILENO, sp_buf_text(&text), text.len);
	sp_buf_done(&text);
}

static int write_resolved(const struct sp_config *config, int fd, struct sp_err *err)
{
	struct sp_buf text;
	int status;

	sp_buf_init(&text, RESOLVED_MAX);
	status = sp_config_dump(config, true, &text, err);
	if (status == 0) {
		status = sp_write_all(fd, text.data, text.len);
		if (status < 0)
			(void)sp_err_set(err, status, "write the resolved configuration");
		explicit_bzero(text.data, text.len);
	}
	sp_buf_done(&text);
	return status;
}

static int compile(const struct options *options)
{
	struct sp_config_faults faults = {0};
	struct sp_config *config = NULL;
	struct sp_err err = {0};
	int status = sp_config_load_as(options->config, true, true, &config, &faults);

	if (status < 0) {
		print_faults(&faults);
		if (faults.count == 0)
			(void)fprintf(stderr, "%s: %s\n", options->config,
				      strerrordesc_np(-status));
		sp_config_faults_done(&faults);
		return 1;
	}
	status = sp_table_write(config, options->table_fd, &err);
	if (status == 0)
		status = write_resolved(config, options->resolved_fd, &err);
	if (status < 0)
		(void)fprintf(stderr, "%s: %s\n", options->config, err.message);
	sp_config_free(config);
	return status < 0 ? 1 : 0;
}

int main(int argc, char **argv)
{
	struct options options;

	if (parse_options(argc, argv, &options) < 0) {
		(void)fprintf(stderr, "usage: sandpool-compile --config FILE --table-fd N "
				      "--resolved-fd M\n");
		return 1;
	}
	return compile(&options);
}
