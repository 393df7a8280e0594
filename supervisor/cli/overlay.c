/*
 * The daemon's answers are checked for their shape like any other. The program that is asked has no
 * stdin and cannot mix its words with the command's output.
 */
#include "supervisor/cli/overlay.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool/base/fd.h"
#include "supervisor/cli/ask.h"
#include "supervisor/cli/copy.h"

#define DIFF_MODE 0666
#define NUMBER    10

extern char **environ;

/* ---- which ---- */

static int take(struct sp_cli_overlays *overlays, const json_t *value)
{
	struct sp_cli_overlay overlay = {
		.number = (uint32_t)json_integer_value(json_object_get(value, "number")),
		.source = json_string_value(json_object_get(value, "source")),
		.target = json_string_value(json_object_get(value, "target")),
	};

	if (overlay.number == 0 || !overlay.source || !overlay.target ||
	    overlays->count == SP_ARRAY_SIZE(overlays->at))
		return -EPROTO;
	overlays->at[overlays->count++] = overlay;
	return 0;
}

int sp_cli_overlays_get(const struct sp_cli *cli, const char *sandbox,
			struct sp_cli_overlays *ret_overlays, struct sp_err *err)
{
	struct sp_cli_answer answer = {.root = NULL};
	const json_t *list;
	struct sp_buf target;
	int status;

	*ret_overlays = (struct sp_cli_overlays){.answer = NULL};
	sp_buf_init(&target, SP_CLI_REQUEST_MAX);
	sp_cli_put(&target, "%s/overlays", sandbox);
	status = sp_cli_ask(cli, "GET", sp_buf_text(&target), NULL, SP_CLI_CALL_TIMEOUT_MS, &answer,
			    err);
	sp_buf_done(&target);
	list = json_object_get(answer.root, "overlays");
	for (size_t i = 0; status == 0 && i < json_array_size(list); i++)
		if (take(ret_overlays, json_array_get(list, i)) < 0)
			status = sp_err_code(err, SP_CODE_PROTOCOL, -EPROTO,
					     "the daemon listed an overlay that is none");
	ret_overlays->answer = json_incref(answer.root);
	sp_cli_answer_done(&answer);
	return status;
}

void sp_cli_overlays_done(struct sp_cli_overlays *overlays)
{
	json_decref(overlays->answer);
	*overlays = (struct sp_cli_overlays){.answer = NULL};
}

static int refuse_choice(const struct sp_cli_overlays *overlays, const char *why,
			 struct sp_err *err)
{
	struct sp_buf text;

	sp_buf_init(&text, SP_CLI_REQUEST_MAX);
	for (size_t i = 0; i < overlays->count; i++)
		sp_cli_put(&text, "%s %" PRIu32 " (%s at %s)", i > 0 ? "," : "",
			   overlays->at[i].number, overlays->at[i].source, overlays->at[i].target);
	(void)sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL, "%s:%.400s", why,
			  overlays->count > 0 ? sp_buf_text(&text) : " it has none");
	sp_buf_done(&text);
	return -EINVAL;
}

int sp_cli_overlays_pick(const struct sp_cli_overlays *overlays, const char *number,
			 const struct sp_cli_overlay **ret_overlay, struct sp_err *err)
{
	char *end = NULL;
	unsigned long wanted = number ? strtoul(number, &end, NUMBER) : 0;

	if (!number && overlays->count != 1)
		return refuse_choice(overlays, "say with --number which overlay is meant", err);
	if (number && (number[0] < '0' || number[0] > '9' || *end != '\0'))
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "--number '%.64s' is no number", number);
	for (size_t i = 0; i < overlays->count; i++)
		if (!number || overlays->at[i].number == wanted) {
			*ret_overlay = &overlays->at[i];
			return 0;
		}
	return refuse_choice(overlays, "the sandbox has no overlay of that number", err);
}

/* ---- diff, commit ---- */

int sp_cli_overlay_diff(const struct sp_cli *cli, const char *sandbox,
			const struct sp_cli_overlay *overlay, const char *local, struct sp_err *err)
{
	struct sp_buf target;
	int status;

	sp_buf_init(&target, SP_CLI_REQUEST_MAX);
	sp_cli_put(&target, "%s/overlays/%" PRIu32 "/diff", sandbox, overlay->number);
	status = sp_cli_copy_get(cli, sp_buf_text(&target), local, DIFF_MODE, err);
	sp_buf_done(&target);
	return status;
}

static void say(const struct sp_cli_overlay *overlay, const struct sp_cli_answer *answer,
		struct sp_buf *said)
{
	static const char *const counts[] = {"files", "directories", "deleted", "bytes"};

	sp_cli_put(said, "committed to '%s':", overlay->source);
	for (size_t i = 0; i < SP_ARRAY_SIZE(counts); i++)
		sp_cli_put(said, "%s %s %" PRId64, i > 0 ? "," : "", counts[i],
			   sp_cli_member_number(answer->root, counts[i]));
	if (json_is_true(json_object_get(answer->root, "ended")))
		sp_cli_put(said, "; the overlay has ended with it");
}

int sp_cli_overlay_commit(const struct sp_cli *cli, const char *sandbox,
			  const struct sp_cli_overlay *overlay, struct sp_buf *said,
			  struct sp_err *err)
{
	struct sp_cli_answer answer = {.root = NULL};
	struct sp_buf target;
	int status;

	sp_buf_init(&target, SP_CLI_REQUEST_MAX);
	sp_cli_put(&target, "%s/overlays/%" PRIu32 "/commit", sandbox, overlay->number);
	/* It takes as long as there is to write, and the daemon bounds it. */
	status = sp_cli_ask(cli, "POST", sp_buf_text(&target), NULL, -1, &answer, err);
	if (status == 0 && cli->json)
		sp_cli_put(said, "%s", sp_buf_text(&answer.text));
	else if (status == 0)
		say(overlay, &answer, said);
	sp_cli_answer_done(&answer);
	sp_buf_done(&target);
	return status;
}

/* ---- the check ---- */

/* Nothing of what we block or ignore is inherited. */
static int spawn(char *const *argv, pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none;
	sigset_t all;
	int status;

	(void)sigemptyset(&none);
	(void)sigfillset(&all);
	if (posix_spawn_file_actions_init(&actions) != 0)
		return ENOMEM;
	if (posix_spawnattr_init(&attributes) != 0) {
		(void)posix_spawn_file_actions_destroy(&actions);
		return ENOMEM;
	}
	(void)posix_spawnattr_setsigmask(&attributes, &none);
	(void)posix_spawnattr_setsigdefault(&attributes, &all);
	(void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	status = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	if (status == 0)
		status = posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
	if (status == 0)
		status = posix_spawnp(ret_pid, argv[0], &actions, &attributes, argv, environ);
	(void)posix_spawnattr_destroy(&attributes);
	(void)posix_spawn_file_actions_destroy(&actions);
	return status;
}

static void wait_ticking(pid_t pid, const struct sp_cli_tick *tick)
{
	SP_AUTO_CLOSE int pidfd = pidfd_open(pid, 0);
	struct pollfd end = {.fd = pidfd, .events = POLLIN};
	int ready = 0;

	while (pidfd >= 0 && (ready == 0 || (ready < 0 && errno == EINTR))) {
		ready = poll(&end, 1, tick->every_ms);
		if (ready == 0)
			tick->call(tick->arg);
	}
}

int sp_cli_overlay_check(const char *program, const char *when, const char *source,
			 const struct sp_cli_tick *tick, struct sp_err *err)
{
	char *words[] = {sp_cli_xstrdup(program), sp_cli_xstrdup(when), sp_cli_xstrdup(source),
			 NULL};
	int wait_status = 0;
	pid_t pid = -1;
	int status = spawn(words, &pid);

	for (size_t i = 0; words[i]; i++)
		free(words[i]);
	if (status != 0)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -status,
				   "--check: '%.200s' cannot be run: %s", program,
				   strerror(status));
	if (tick)
		wait_ticking(pid, tick);
	while (waitpid(pid, &wait_status, 0) < 0)
		if (errno != EINTR)
			return sp_err_set(err, -errno, "wait for '%.200s'", program);
	if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0)
		return 0;
	if (WIFEXITED(wait_status))
		return sp_err_code(err, SP_CODE_CONFLICT, -ECANCELED,
				   "--check: '%.200s %s' refused '%.200s' with status %d", program,
				   when, source, WEXITSTATUS(wait_status));
	return sp_err_code(err, SP_CODE_CONFLICT, -ECANCELED,
			   "--check: '%.200s %s' about '%.200s' was killed by signal %d", program,
			   when, source, WTERMSIG(wait_status));
}
