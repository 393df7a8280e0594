/*
 * Bind sources on a file server that never answers: FUSE with a server that answers nothing but
 * INIT. A process that waits for it cannot even be killed, like one on a dead NFS.
 */
#include "tests/sandbox/launcher_harness.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define STUCK_MAX   8    /* SP_LAUNCHER_STUCK_MAX */
#define DEADLINE_MS 2000 /* SP_LAUNCHER_BIND_MS */
#define SLACK_MS    1500

static void skip_if_missing(void)
{
	if (play_missing())
		cr_skip_test("%s", play_missing());
	if (access("/dev/fuse", R_OK | W_OK) != 0)
		cr_skip_test("no /dev/fuse");
}

TestSuite(launcher_dead_server, .init = skip_if_missing, .timeout = 120);

static void answer_init(int fd, const struct fuse_in_header *in, const struct fuse_init_in *init)
{
	struct {
		struct fuse_out_header header;
		struct fuse_init_out init;
	} out = {
		.header = {.len = sizeof(out), .unique = in->unique},
		.init = {.major = FUSE_KERNEL_VERSION,
			 .minor = SP_MIN(init->minor, (uint32_t)FUSE_KERNEL_MINOR_VERSION),
			 .max_write = 4096},
	};

	MUST(write(fd, &out, sizeof(out)) == (ssize_t)sizeof(out));
}

static void serve_nothing(int fd)
{
	static char request[1 << 17];

	for (;;) {
		ssize_t got = read(fd, request, sizeof(request));
		const struct fuse_in_header *in = (const void *)request;

		if (got < (ssize_t)sizeof(*in))
			_exit(0);
		if (in->opcode == FUSE_INIT)
			answer_init(fd, in, (const void *)(request + sizeof(*in)));
	}
}

/* Mounts it at <dir>/dead. Returns the server's pid; killing it ends all waits. */
static pid_t start_server(const struct play *play)
{
	char path[128];
	char options[96];
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	pid_t pid;

	cr_assert(fd >= 0);
	cr_assert(unshare(CLONE_NEWNS) == 0 &&
		  mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	(void)snprintf(path, sizeof(path), "%s/dead", play->dir);
	cr_assert(mkdir(path, 0755) == 0);
	(void)snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
	cr_assert(mount("dead", path, "fuse", 0, options) == 0);
	pid = fork();
	cr_assert(pid >= 0);
	if (pid == 0)
		serve_nothing(fd);
	sp_fd_close(&fd);
	return pid;
}

static void stop_server(pid_t pid)
{
	cr_assert(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
}

static uint64_t ask(struct play *play, const struct play_sandbox *sandbox, const char *path)
{
	struct sp_launcher_bind bind = {
		.header.type = SP_LAUNCHER_BIND,
		.slot = sandbox->slot,
		.serial = sandbox->serial,
		.flags = SP_BIND_F_READ_ONLY,
		.owner_uid = 1000,
		.owner_gid = 1000,
		.path_length = (uint32_t)strlen(path),
	};

	(void)snprintf(bind.path, sizeof(bind.path), "%s", path);
	return play_send(play, &bind, offsetof(struct sp_launcher_bind, path) + strlen(path) + 1);
}

static void expect_bound(struct play *play, uint64_t request)
{
	struct play_answer answer;

	play_expect(play, SP_LAUNCHER_BOUND, request, &answer);
	play_close(&answer);
}

static void begin(struct play *play, struct play_sandbox *sandbox, pid_t *ret_server)
{
	struct sp_table *table = play_table(play, 1);
	struct sp_table_pool *pool = play_pool(table, 0);

	*ret_server = start_server(play);
	pool->root_count = 1;
	(void)snprintf(pool->roots[0].path, sizeof(pool->roots[0].path), "%s", play->dir);
	play_start(play, table);
	play_ready(play, 0, sandbox);
	free(table);
}

static void end(struct play *play)
{
	char path[128];

	play_stop(play);
	(void)snprintf(path, sizeof(path), "%s/dead", play->dir);
	(void)umount2(path, MNT_DETACH);
	play_clean(play);
}

Test(launcher_dead_server, delays_one_bind_and_nothing_else)
{
	struct play play;
	struct play_sandbox sandbox;
	struct play_sandbox other;
	struct play_answer answer;
	pid_t server;
	int64_t start;
	uint64_t dead;
	uint64_t behind;

	begin(&play, &sandbox, &server);
	start = sp_clock_boot_ms();
	dead = ask(&play, &sandbox, "dead/x");
	behind = ask(&play, &sandbox, "state");
	play_ready(&play, 0, &other);
	(void)play_kill(&play, &other);
	cr_assert(sp_clock_boot_ms() - start < DEADLINE_MS, "creating waited for the bind");
	play_expect_failure(&play, dead, -ETIMEDOUT, &answer);
	cr_assert(sp_clock_boot_ms() - start >= DEADLINE_MS - 50);
	cr_assert(sp_clock_boot_ms() - start < DEADLINE_MS + SLACK_MS);
	/* A new binder took over what stood behind it. */
	expect_bound(&play, behind);
	stop_server(server);
	(void)play_kill(&play, &sandbox);
	end(&play);
}

Test(launcher_dead_server, is_given_up_at_the_limit_of_stuck_binders)
{
	struct play play;
	struct play_sandbox sandbox;
	char path[32];
	pid_t server;
	uint64_t request;

	begin(&play, &sandbox, &server);
	for (int i = 0; i < STUCK_MAX; i++) {
		expect_bound(&play, ask(&play, &sandbox, "state"));
		(void)snprintf(path, sizeof(path), "dead/%d", i);
		play_expect_failure(&play, ask(&play, &sandbox, path), -ETIMEDOUT, NULL);
	}
	play_expect_failure(&play, ask(&play, &sandbox, "state"), -EAGAIN, NULL);
	/* The server's end frees them, and binds work again. */
	stop_server(server);
	for (int i = 0; i < 200; i++) {
		struct play_answer answer;

		request = ask(&play, &sandbox, "state");
		play_receive(&play, &answer);
		cr_assert(answer.record.header.request == request);
		play_close(&answer);
		if (answer.record.header.type == SP_LAUNCHER_BOUND)
			break;
		cr_assert(answer.record.status == -EAGAIN && i < 199);
		(void)usleep(10000);
	}
	(void)play_kill(&play, &sandbox);
	end(&play);
}

/* The daemon goes while binders hang: the launcher leaves all the same. */
Test(launcher_dead_server, does_not_keep_the_launcher)
{
	struct play play;
	struct play_sandbox sandbox;
	pid_t server;
	int64_t start;

	begin(&play, &sandbox, &server);
	(void)ask(&play, &sandbox, "dead/x");
	(void)usleep(100000);
	start = sp_clock_boot_ms();
	sp_fd_close(&play.fd);
	cr_assert(waitpid(play.launcher, NULL, 0) == play.launcher);
	cr_assert(sp_clock_boot_ms() - start < 5000);
	cr_assert(play_wait_end(sandbox.pidfd, 0));
	stop_server(server);
	play_clean(&play);
}

/* A table with such a source: the load fails, the launcher goes on. */
Test(launcher_dead_server, fails_a_load_within_its_deadline)
{
	struct play play;
	struct play_answer answer;
	struct play_sandbox sandbox;
	struct sp_table *table = play_table(&play, 1);
	struct sp_table_pool *pool = play_pool(table, 0);
	pid_t server = start_server(&play);
	char text[256] = "";

	play_start(&play, table);
	(void)snprintf(pool->mounts[0].source, sizeof(pool->mounts[0].source), "%s/dead/x",
		       play.dir);
	play_write_table(&play, table);
	play_expect(&play, SP_LAUNCHER_CONFIG, play_command(&play, SP_LAUNCHER_RELOAD, 0, 0, 0),
		    &answer);
	cr_assert(answer.record.status == -ETIMEDOUT);
	cr_assert(pread(answer.fds[0], text, sizeof(text) - 1, 0) > 0);
	cr_assert_str_eq(text, "a source of a pool does not answer");
	play_close(&answer);
	play_ready(&play, 0, &sandbox);
	(void)play_kill(&play, &sandbox);
	stop_server(server);
	end(&play);
	free(table);
}
