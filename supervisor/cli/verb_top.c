/*
 * sandpool top: the pools, again and again, until q.
 *
 * On a terminal: the alternate screen, keys read one by one; both are undone on every way out.
 * Elsewhere, or with --json: one answer a line or table, for as long as somebody reads.
 */
#include "supervisor/cli/pools.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "pool/base/fd.h"
#include "supervisor/cli/terminal.h"

#define INTERVAL_DEFAULT_MS 1000
#define INTERVAL_MIN_MS     100
#define INTERVAL_MAX_MS     60000
#define SCREEN_ENTER        "\033[?1049h\033[?25l"
#define SCREEN_LEAVE        "\033[?25h\033[?1049l"
#define SCREEN_HOME         "\033[H"
#define LINE_CLEAR          "\033[K"
#define BELOW_CLEAR         "\033[J"

enum { OPTION_INTERVAL, OPTION_COUNT, OPTION_END };

static const struct sp_cli_option options[] = {
	[OPTION_INTERVAL] = {"interval", 'd', false, "MS", "milliseconds between two looks [1000]"},
	[OPTION_COUNT] = {"count", 'c', false, "N", "stop after N looks"},
	[OPTION_END] = {0},
};

struct top {
	struct sp_cli *cli;
	bool screen;
	int signal_fd;
	int interval_ms;
	long left; /* looks; < 0: no end */
};

static int parse_number(const struct sp_cli *cli, int option, long low, long high, long *ret_number)
{
	const char *text = sp_cli_args_value(&cli->args, &options[option]);
	size_t digits = text ? strspn(text, "0123456789") : 0;
	long number;

	if (!text)
		return 0;
	number = digits > 0 && digits < 10 && text[digits] == '\0' ? strtol(text, NULL, 10) : -1;
	if (number < low || number > high)
		return sp_cli_fail_usage(cli, "--%s '%.64s' is not a number from %ld to %ld",
					 options[option].name, text, low, high);
	*ret_number = number;
	return 0;
}

/* Line ends become "clear the rest of the line": redrawing in place does not flicker. */
static void put_screen(struct sp_buf *out, const char *text, uint16_t rows)
{
	sp_cli_put(out, SCREEN_HOME);
	for (uint16_t row = 0; *text && row + 1 < rows; row++) {
		size_t len = strcspn(text, "\n");

		sp_cli_put(out, "%.*s" LINE_CLEAR "\n", (int)len, text);
		text += len + (text[len] == '\n');
	}
	sp_cli_put(out, BELOW_CLEAR);
}

static void put_heading(struct sp_buf *out)
{
	time_t now = time(NULL);
	struct tm local;
	char text[32];

	if (!localtime_r(&now, &local) || strftime(text, sizeof(text), "%H:%M:%S", &local) == 0)
		text[0] = '\0';
	sp_cli_put(out, "sandpool  %s  q quits\n\n", text);
}

/* One look. On the screen a daemon that is away is shown and waited for. */
static int look(struct top *top)
{
	struct sp_cli_answer answer = {.root = NULL};
	struct sp_err err = {0};
	struct sp_buf text;
	struct sp_buf out;
	uint16_t rows = 24;
	uint16_t columns = 80;
	int exit_code;
	int status = sp_cli_pools_ask(top->cli, SP_CLI_CALL_TIMEOUT_MS, &answer, &err);

	sp_buf_init(&text, SP_CLI_REQUEST_MAX);
	sp_buf_init(&out, SP_CLI_REQUEST_MAX);
	if (top->screen)
		put_heading(&text);
	if (status == 0 && top->cli->json)
		sp_cli_put(&text, "%s", sp_buf_text(&answer.text));
	else if (status == 0)
		sp_cli_pools_write(top->cli, json_object_get(answer.root, "pools"), &text);
	else if (top->screen)
		sp_cli_put(&text, "%s\n", err.message);
	if (top->cli->json && text.len > 0 && text.data[text.len - 1] != '\n')
		sp_cli_put(&text, "\n");
	if (top->screen) {
		(void)sp_cli_terminal_size(STDOUT_FILENO, &rows, &columns);
		put_screen(&out, sp_buf_text(&text), rows);
	}
	if (status < 0 && !top->screen)
		exit_code = sp_cli_fail(top->cli, &err);
	else
		exit_code = sp_cli_print_buf(top->cli, top->screen ? &out : &text);
	sp_buf_done(&out);
	sp_buf_done(&text);
	sp_cli_answer_done(&answer);
	return exit_code;
}

/* Until the next look is due. True: that was the last one. */
static bool wait_for_end(const struct top *top, int *exit_code)
{
	struct pollfd ready[] = {
		{.fd = top->signal_fd, .events = POLLIN},
		{.fd = top->screen ? STDIN_FILENO : -1, .events = POLLIN},
	};
	struct signalfd_siginfo info;
	char key;

	if (poll(ready, SP_ARRAY_SIZE(ready), top->interval_ms) < 0)
		return errno != EINTR;
	if (ready[0].revents &&
	    read(top->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		*exit_code = SP_CLI_EXIT_SIGNAL + (int)info.ssi_signo;
		return true;
	}
	if (ready[1].revents)
		return read(STDIN_FILENO, &key, 1) <= 0 || key == 'q' || key == 'Q';
	return false;
}

static int loop(struct top *top)
{
	int exit_code = look(top);

	while (exit_code == 0 && (top->left < 0 || --top->left > 0)) {
		if (wait_for_end(top, &exit_code))
			break;
		exit_code = look(top);
	}
	return exit_code;
}

static int run(struct sp_cli *cli)
{
	struct top top = {.cli = cli,
			  .screen = !cli->json && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)};
	long interval_ms = INTERVAL_DEFAULT_MS;
	sigset_t set;
	int exit_code;

	top.left = -1;
	exit_code =
		parse_number(cli, OPTION_INTERVAL, INTERVAL_MIN_MS, INTERVAL_MAX_MS, &interval_ms);
	if (exit_code == 0)
		exit_code = parse_number(cli, OPTION_COUNT, 1, 999999999, &top.left);
	if (exit_code != 0)
		return exit_code;
	top.interval_ms = (int)interval_ms;
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGINT);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGHUP);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	top.signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (top.screen && sp_cli_terminal_enter(STDIN_FILENO, SP_CLI_TERMINAL_KEYS) < 0)
		top.screen = false;
	if (top.screen)
		(void)sp_cli_print(cli, SCREEN_ENTER, sizeof(SCREEN_ENTER) - 1);
	exit_code = loop(&top);
	if (top.screen)
		(void)sp_write_all(STDOUT_FILENO, SCREEN_LEAVE, sizeof(SCREEN_LEAVE) - 1);
	sp_cli_terminal_restore();
	sp_fd_close(&top.signal_fd);
	return exit_code;
}

const struct sp_cli_verb sp_cli_verb_top = {
	.name = "top",
	.usage = "[OPTIONS]",
	.summary = "watch the pools",
	.details = "The table of 'sandpool stats', redrawn; q quits. If stdout is no terminal, or "
		   "with\n"
		   "--json, every look is appended instead.\n\n"
		   "  sandpool top\n"
		   "  sandpool top --json -c 60 > minute.jsonl\n",
	.options = options,
	.over_redis = SP_CLI_REDIS_SERVED,
	.words_max = 0,
	.run = run,
};
