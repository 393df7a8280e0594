/*
 * sandpoold: options, and the order in which daemon and interfaces start and end.
 *
 * Exit status: 0 after an orderly stop, 1 when it could not start or go on (systemd restarts it),
 * 2 for wrong options.
 */
#include "pool/base/log.h"
#include "supervisor/api/api.h"
#include "supervisor/daemon/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <uv.h>

#define EXIT_USAGE  2
#define LARGE_BLOCK (512 * 1024)

struct program {
	uv_loop_t loop;
	struct sp_service *service;
	struct sp_api *api;
};

static const char usage[] =
	"Usage: sandpoold [--config FILE] [--state-dir DIR]\n"
	"\n"
	"  --config FILE     configuration (default " SP_DEFAULT_CONFIG ")\n"
	"  --state-dir DIR   instead of the configuration's state_dir\n"
	"  --version         print the version and exit\n"
	"  --help            print this and exit\n"
	"\n"
	"SIGTERM stops (twice: at once), SIGHUP reloads the configuration.\n"
	"`sandpool config check FILE` checks a configuration without starting anything.\n";

/* 0: go on; else exit with *ret_status. */
static int parse_options(int argc, char **argv, struct sp_daemon_options *options, int *ret_status)
{
	static const struct option names[] = {
		{"config", required_argument, NULL, 'c'},
		{"state-dir", required_argument, NULL, 's'},
		{"version", no_argument, NULL, 'v'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int option;

	while ((option = getopt_long(argc, argv, "c:", names, NULL)) != -1) {
		switch (option) {
		case 'c':
			options->config_path = optarg;
			break;
		case 's':
			options->state_dir = optarg;
			break;
		case 'v':
			printf("sandpoold %s (build %016llx)\n", SP_VERSION,
			       (unsigned long long)SP_BUILD_ID);
			*ret_status = EXIT_SUCCESS;
			return 1;
		case 'h':
			(void)fputs(usage, stdout);
			*ret_status = EXIT_SUCCESS;
			return 1;
		default:
			(void)fputs(usage, stderr);
			*ret_status = EXIT_USAGE;
			return 1;
		}
	}
	if (optind < argc) {
		(void)fprintf(stderr, "sandpoold: unexpected argument '%s'\n%s", argv[optind],
			      usage);
		*ret_status = EXIT_USAGE;
		return 1;
	}
	return 0;
}

/* A daemon started with one of 0-2 closed would write its log into the first file it opens. */
static void occupy_standard_fds(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	} while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		(void)close(fd);
}

static void on_daemon_closed(void *arg)
{
	(void)arg; /* nothing is left: uv_run() returns */
}

static void on_api_closed(void *arg)
{
	struct program *program = arg;

	program->api = NULL;
	sp_daemon_close(program->service, on_daemon_closed, NULL);
}

static void on_ended(void *arg, int exit_status)
{
	struct program *program = arg;

	/* Something cannot be ended from here: our death ends the launcher, and that everything. */
	if (exit_status != 0)
		_exit(exit_status);
	sp_api_close(program->api, on_api_closed, program);
}

static int start(struct program *program, const struct sp_daemon_options *options,
		 struct sp_err *err)
{
	int status = sp_daemon_new(options, &program->loop, &program->service, err);

	if (status == 0)
		status = sp_api_new(program->service, &program->loop, &program->api, err);
	if (status == 0)
		status = sp_daemon_drop_privileges(program->service, err);
	if (status == 0)
		status = sp_daemon_start(program->service, on_ended, program, err);
	if (status == 0)
		status = sp_api_serve(program->api, err);
	if (status == 0)
		sp_daemon_announce_ready(program->service);
	return status;
}

/* A start that failed: close what was begun. The end of the launcher is the sandboxes' end. */
static void abandon(struct program *program)
{
	if (program->api)
		sp_api_close(program->api, on_api_closed, program);
	else if (program->service)
		sp_daemon_close(program->service, on_daemon_closed, NULL);
	(void)uv_run(&program->loop, UV_RUN_DEFAULT);
	sp_daemon_free(program->service);
	(void)uv_loop_close(&program->loop);
}

/* Left to itself glibc learns from the first large block that is freed to keep all later ones in
 * its heap, up to 32 MiB each: what a flood needed for a moment would then stay for good, in
 * pieces. */
static void return_large_blocks(void)
{
	(void)mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK);
	(void)mallopt(M_TRIM_THRESHOLD, 2 * LARGE_BLOCK);
}

int main(int argc, char **argv)
{
	struct sp_daemon_options options = {0};
	struct program program = {0};
	struct sp_err err = {0};
	int status;

	occupy_standard_fds();
	return_large_blocks();
	if (parse_options(argc, argv, &options, &status) != 0)
		return status;
	sp_log_init("sandpoold", STDERR_FILENO, SP_LOG_INFO);
	(void)signal(SIGPIPE, SIG_IGN);
	if (uv_loop_init(&program.loop) < 0) {
		sp_log(SP_LOG_ERROR, "cannot make an event loop", NULL);
		return EXIT_FAILURE;
	}
	status = start(&program, &options, &err);
	if (status < 0) {
		(void)fprintf(stderr, "sandpoold: %s\n", err.message);
		abandon(&program);
		return EXIT_FAILURE;
	}
	(void)uv_run(&program.loop, UV_RUN_DEFAULT);
	sp_daemon_free(program.service);
	status = uv_loop_close(&program.loop);
	sp_assert(status == 0);
	sp_log(SP_LOG_INFO, "stopped", NULL);
	return EXIT_SUCCESS;
}
