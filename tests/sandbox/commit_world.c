/* See commit_world.h. */
#include "tests/sandbox/commit_world.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct harness commit_harness;
static struct harness_result result;
static union harness_answer answer;

void commit_set_up(void)
{
	if (init_harness_missing())
		cr_skip("%s", init_harness_missing());
	harness_ready(&commit_harness, NULL);
	if (commit_open_session("/workspace", NULL) == -EOPNOTSUPP)
		cr_skip("this kernel's tmpfs has no user attributes");
	commit_close_session();
	(void)commit_shell(0, "rmdir /workspace/made");
}

void commit_tear_down(void)
{
	if (commit_harness.launcher != 0)
		harness_stop(&commit_harness);
}

static const char *run(uint32_t session, const char *const *argv)
{
	const struct harness_exec exec = {.argv = argv, .session = session};

	harness_run(&commit_harness, &exec, &result);
	return result.output;
}

const char *commit_shell(uint32_t session, const char *script)
{
	const char *argv[] = {"/bin/sh", "-c", script, NULL};

	return run(session, argv);
}

const char *commit_python(uint32_t session, const char *script)
{
	const char *argv[] = {"python3", "-c", script, NULL};

	return run(session, argv);
}

int commit_open_session(const char *workspace, const char **ret_stage)
{
	struct {
		struct sp_init_session_open head;
		char text[1024];
	} message = {
		.head = {.header = {.type = SP_INIT_SESSION_OPEN, .exec = 1},
			 .flags = SP_SESSION_F_PRIVATE_TMP,
			 .mode = SP_INIT_SESSION_OVERLAY,
			 .uid = HARNESS_WORKLOAD,
			 .gid = HARNESS_WORKLOAD,
			 .strings_length = (uint32_t)strlen(workspace) + 1},
	};

	(void)snprintf(message.text, sizeof(message.text), "%s", workspace);
	do { /* one that has failed has its number until it is reaped */
		harness_send(&commit_harness, &message,
			     sizeof(message.head) + message.head.strings_length, NULL, 0);
		harness_expect(&commit_harness, SP_INIT_SESSION_OPENED, &answer);
	} while (answer.status.status == -EEXIST);
	if (ret_stage)
		*ret_stage = answer.status.stage;
	return answer.status.status;
}

void commit_close_session(void)
{
	harness_plain(&commit_harness, SP_INIT_SESSION_CLOSE, 1);
	harness_expect(&commit_harness, SP_INIT_SESSION_ENDED, &answer);
}

const char *commit_state(uint32_t session, const char *directory)
{
	static const char text[] =
		"import os, stat, sys, hashlib\n"
		"top = os.fsencode('%s')\n"
		"def show(path):\n"
		"  s = os.lstat(path)\n"
		"  name = os.path.relpath(path, top)\n"
		"  what = ''\n"
		"  if stat.S_ISLNK(s.st_mode): what = os.readlink(path)\n"
		"  if stat.S_ISREG(s.st_mode):\n"
		"    shut = stat.S_IMODE(s.st_mode) & 0o400 == 0\n"
		"    if shut: os.chmod(path, 0o600)\n"
		"    what = hashlib.md5(open(path, 'rb').read()).hexdigest(), s.st_mtime_ns, "
		"s.st_size\n"
		"    if shut: os.chmod(path, stat.S_IMODE(s.st_mode))\n"
		"  print(ascii(name), oct(s.st_mode), what)\n"
		"  if stat.S_ISDIR(s.st_mode):\n"
		"    if stat.S_IMODE(s.st_mode) & 0o700 != 0o700: os.chmod(path, 0o700)\n"
		"    for n in sorted(os.listdir(path)): show(os.path.join(path, n))\n"
		"    if stat.S_IMODE(s.st_mode) & 0o700 != 0o700: os.chmod(path, "
		"stat.S_IMODE(s.st_mode))\n"
		"show(top)\n";
	char script[sizeof(text) + 256];

	(void)snprintf(script, sizeof(script), text, directory);
	return commit_python(session, script);
}

int commit_ask(uint32_t kind, struct file_reply *ret)
{
	const struct file_ask ask = {.kind = kind, .path = "/", .session = 1};

	return channel_do(&commit_harness, &ask, ret);
}

int commit_recover_path(const char *path, struct file_reply *ret)
{
	const struct file_ask ask = {.kind = SP_INIT_FILE_RECOVER, .path = path};

	return channel_do(&commit_harness, &ask, ret);
}
