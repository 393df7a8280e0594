/*
 * The launcher against a daemon in an attacker's hands: every bad record is answered with an error
 * and changes nothing. After each storm a sandbox must still be made and killed.
 */
#include "tests/sandbox/launcher_harness.h"

#include "pool/base/fd.h"
#include "tests/unit/lingering.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

static void skip_if_missing(void)
{
	if (play_missing())
		cr_skip_test("%s", play_missing());
}

TestSuite(launcher_protocol, .init = skip_if_missing, .timeout = 120);

static void begin(struct play *play)
{
	struct sp_table *table = play_table(play, 1);

	play_start(play, table);
	free(table);
}

static void end(struct play *play)
{
	struct play_sandbox sandbox;

	play_ready(play, 0, &sandbox);
	(void)play_kill(play, &sandbox);
	play_stop(play);
	play_clean(play);
}

static const size_t sizes[] = {
	[SP_LAUNCHER_HELLO] = sizeof(struct sp_launcher_hello),
	[SP_LAUNCHER_CREATE] = sizeof(struct sp_launcher_create),
	[SP_LAUNCHER_KILL] = sizeof(struct sp_launcher_command),
	[SP_LAUNCHER_BIND] = offsetof(struct sp_launcher_bind, path) + 1,
	[SP_LAUNCHER_EXEC_CGROUP] = sizeof(struct sp_launcher_command),
	[SP_LAUNCHER_EXEC_KILL] = sizeof(struct sp_launcher_command),
	[SP_LAUNCHER_EXEC_DONE] = sizeof(struct sp_launcher_command),
	[SP_LAUNCHER_FREEZE] = sizeof(struct sp_launcher_command),
	[SP_LAUNCHER_RELOAD] = sizeof(struct sp_launcher_command),
	[SP_LAUNCHER_ADOPT_TABLE] = sizeof(struct sp_launcher_command),
};

Test(launcher_protocol, refuses_every_wrong_length)
{
	struct play play;

	begin(&play);
	for (uint32_t type = 1; type < SP_ARRAY_SIZE(sizes); type++) {
		struct sp_launcher_bind record = {.header.type = type};

		play_expect_failure(&play, play_send(&play, &record, sizes[type] - 1), -EBADMSG,
				    NULL);
		play_expect_failure(&play, play_send(&play, &record, sizes[type] + 1), -EBADMSG,
				    NULL);
	}
	end(&play);
}

Test(launcher_protocol, refuses_unknown_types_and_headers)
{
	struct play play;
	struct sp_launcher_command record = {0};
	char nothing = 0;

	begin(&play);
	for (uint32_t type = 0; type < 128; type++) {
		record.header.type = type;
		if (type < SP_ARRAY_SIZE(sizes) && sizes[type] > 0)
			continue;
		play_expect_failure(&play, play_send(&play, &record, sizeof(record)), -EBADMSG,
				    NULL);
	}
	record.header = (struct sp_launcher_header){.type = SP_LAUNCHER_KILL, .reserved = 1};
	play_expect_failure(&play, play_send(&play, &record, sizeof(record)), -EBADMSG, NULL);
	record.header.type = UINT32_MAX;
	play_expect_failure(&play, play_send(&play, &record, sizeof(record)), -EBADMSG, NULL);
	/* Too short for a header, too long for anything. */
	cr_assert(sp_msg_send(play.fd, &nothing, 1, NULL, 0) == 0);
	play_expect_failure(&play, 0, -EBADMSG, NULL);
	{
		static char large[65536];

		cr_assert(sp_msg_send(play.fd, large, sizeof(large), NULL, 0) == 0);
		play_expect_failure(&play, 0, -EBADMSG, NULL);
	}
	end(&play);
}

/* Requests that fail, until it takes no more because nobody reads its answers. Their number. */
static uint64_t send_until_full(struct play *play)
{
	struct sp_launcher_command command = {.header.type = SP_LAUNCHER_KILL, .slot = 77};
	uint64_t accepted = 0;

	cr_assert(fcntl(play->fd, F_SETFL, O_NONBLOCK) == 0);
	for (int idle = 0; idle < 100;) {
		command.header.request = play->requests + 1 + accepted;
		if (sp_msg_send(play->fd, &command, sizeof(command), NULL, 0) == 0) {
			accepted++;
			idle = 0;
		} else {
			idle++;
			(void)usleep(2000);
		}
		cr_assert(accepted < 100000, "it reads without end");
	}
	cr_assert(fcntl(play->fd, F_SETFL, 0) == 0);
	return accepted;
}

static void end_of_launcher(struct play *play, const struct play_sandbox *sandbox)
{
	int status;

	cr_assert(play_wait_end(sandbox->pidfd, 2000));
	cr_assert(waitpid(play->launcher, &status, 0) == play->launcher);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	cr_assert(!play_has_cgroups(play));
	play_clean(play);
}

/* A daemon that sends some is not ours: nothing is killed later because of what it sent. */
Test(launcher_protocol, ends_with_all_at_a_descriptor_that_lingers)
{
	struct sp_launcher_command record = {.header.type = SP_LAUNCHER_KILL};
	struct play_sandbox sandbox;
	struct play play;
	int listener;
	int fd;

	begin(&play);
	play_ready(&play, 0, &sandbox);
	fd = lingering_socket(&listener);
	/* Behind one that is in order. */
	(void)play_command(&play, SP_LAUNCHER_FREEZE, sandbox.slot, sandbox.serial, 1);
	cr_assert(sp_msg_send(play.fd, &record, sizeof(record), &fd, 1) == 0);
	cr_assert(close(fd) == 0);
	end_of_launcher(&play, &sandbox);
	cr_assert(close(play.fd) == 0 && close(listener) == 0);
}

/* Plays a daemon that dies with requests unread; the last of them brings descriptors. */
SP_NORETURN static void die_behind_a_full_queue(struct play *play, int report_fd, int lingering_fd)
{
	struct sp_launcher_command record = {.header.type = SP_LAUNCHER_KILL};
	struct play_sandbox sandbox;
	struct play_answer answer;
	pid_t init;
	int fds[2];

	begin(play);
	play_ready(play, 0, &sandbox);
	(void)send_until_full(play);
	fds[0] = play->fd; /* while it lies there no end of file can come */
	fds[1] = lingering_fd;
	/* It reads one request an answer that we take, which is fewer than are in the queue. */
	MUST(fcntl(play->fd, F_SETFL, O_NONBLOCK) == 0);
	for (int taken = 0; sp_msg_send(play->fd, &record, sizeof(record), fds, 2) != 0; taken++) {
		MUST(taken < 250);
		play_receive(play, &answer);
		(void)usleep(1000);
	}
	init = play_pid(sandbox.pidfd);
	MUST(sp_write_all(report_fd, play, sizeof(*play)) == 0 &&
	     sp_write_all(report_fd, &init, sizeof(init)) == 0);
	(void)pause();
	_exit(1);
}

Test(launcher_protocol, ends_with_a_daemon_whose_socket_stays_open)
{
	struct play play;
	pid_t init;
	int launcher_fd;
	int init_fd;
	int report[2];
	int listener;
	pid_t daemon;
	int fd;

	cr_assert(pipe2(report, O_CLOEXEC) == 0);
	fd = lingering_socket(&listener);
	daemon = fork();
	cr_assert(daemon >= 0);
	if (daemon == 0)
		die_behind_a_full_queue(&play, report[1], fd);
	cr_assert(close(fd) == 0 && close(report[1]) == 0);
	cr_assert(sp_read_all(report[0], &play, sizeof(play)) == (ssize_t)sizeof(play));
	cr_assert(sp_read_all(report[0], &init, sizeof(init)) == (ssize_t)sizeof(init));
	launcher_fd = pidfd_open(play.launcher, 0);
	init_fd = pidfd_open(init, 0);
	cr_assert(launcher_fd >= 0 && init_fd >= 0);
	cr_assert(kill(daemon, SIGKILL) == 0 && waitpid(daemon, NULL, 0) == daemon);
	cr_assert(play_wait_end(init_fd, 2000), "the sandbox lives on");
	cr_assert(play_wait_end(launcher_fd, 5000), "the launcher lives on");
	cr_assert(!play_has_cgroups(&play));
	play_clean(&play);
	cr_assert(close(listener) == 0);
}

Test(launcher_protocol, says_hello_first_and_once)
{
	struct play play;
	struct play_answer answer;
	struct sp_table *table = play_table(&play, 1);
	struct play_sandbox sandbox;
	char ids[128];
	struct sp_launcher_hello hello = {
		.header.type = SP_LAUNCHER_HELLO, .version = 99, .build_id = SP_BUILD_ID};

	play_write_table(&play, table);
	play_exec(&play);
	play_expect_failure(&play, play_create_request(&play, 0, &sandbox), -EBADMSG, NULL);
	play_expect_failure(&play, play_command(&play, SP_LAUNCHER_RELOAD, 0, 0, 0), -EBADMSG,
			    NULL);
	play_expect_failure(&play, play_send(&play, &hello, sizeof(hello)), -EPROTONOSUPPORT, NULL);
	hello.version = SP_LAUNCHER_PROTOCOL_VERSION;
	hello.build_id = 0xabc;
	play_expect_failure(&play, play_send(&play, &hello, sizeof(hello)), -ESTALE, &answer);
	snprintf(ids, sizeof(ids), "build %016x, sandpool-launcher of build %016llx", 0xabc,
		 (unsigned long long)SP_BUILD_ID);
	cr_assert_not_null(strstr(answer.record.text, ids), "%s", answer.record.text);
	play_expect(&play, SP_LAUNCHER_CONFIG, play_hello(&play), &answer);
	cr_assert(answer.record.status == 0);
	play_close(&answer);
	play_expect_failure(&play, play_hello(&play), -EALREADY, NULL);
	end(&play);
	free(table);
}

Test(launcher_protocol, checks_the_path_of_a_bind)
{
	struct play play;
	struct sp_launcher_bind bind = {.header.type = SP_LAUNCHER_BIND};
	size_t fixed = offsetof(struct sp_launcher_bind, path);

	begin(&play);
	bind.path_length = 5; /* says 5, has 3 */
	memcpy(bind.path, "abc", 4);
	play_expect_failure(&play, play_send(&play, &bind, fixed + 4), -EBADMSG, NULL);
	bind.path_length = 3; /* no NUL at the end */
	memcpy(bind.path, "abcd", 4);
	play_expect_failure(&play, play_send(&play, &bind, fixed + 4), -EBADMSG, NULL);
	memcpy(bind.path, "a\0c", 4); /* a NUL inside */
	play_expect_failure(&play, play_send(&play, &bind, fixed + 4), -EBADMSG, NULL);
	bind.path_length = UINT32_MAX;
	play_expect_failure(&play, play_send(&play, &bind, fixed + 4), -EBADMSG, NULL);
	memset(bind.path, 'a', sizeof(bind.path)); /* 4096 characters, and 4095 */
	bind.path_length = SP_BIND_PATH_MAX;
	play_expect_failure(&play, play_send(&play, &bind, sizeof(bind)), -EBADMSG, NULL);
	bind.path[SP_BIND_PATH_MAX - 1] = '\0';
	bind.path_length = SP_BIND_PATH_MAX - 1;
	play_expect_failure(&play, play_send(&play, &bind, sizeof(bind)), -ESRCH, NULL);
	end(&play);
}

/* Random records of mostly right types and lengths, with live slots and serials among them. */
Test(launcher_protocol, survives_garbage)
{
	struct play play;
	struct play_sandbox sandboxes[3];
	unsigned int seed = 1;
	int ended = 0;

	begin(&play);
	for (size_t i = 0; i < 3; i++)
		play_ready(&play, 0, &sandboxes[i]);
	for (int i = 0; i < 5000; i++) {
		unsigned char bytes[sizeof(struct sp_launcher_bind)];
		struct sp_launcher_command *command = (void *)bytes;
		size_t size;
		struct play_answer answer;

		for (size_t j = 0; j < sizeof(bytes); j++)
			bytes[j] = (unsigned char)rand_r(&seed);
		command->header.type = (uint32_t)rand_r(&seed) % 12;
		if (rand_r(&seed) % 8 != 0)
			command->header.reserved = 0;
		size = command->header.type < SP_ARRAY_SIZE(sizes) && rand_r(&seed) % 8 != 0
			       ? sizes[command->header.type]
			       : (size_t)rand_r(&seed) % sizeof(bytes);
		/* A compile for each would only make it slow. */
		if (command->header.type == SP_LAUNCHER_RELOAD)
			command->header.reserved = 1;
		if (size >= sizeof(*command) && rand_r(&seed) % 2 == 0) {
			command->slot = sandboxes[i % 3].slot;
			command->serial = sandboxes[i % 3].serial;
			command->value = (uint32_t)rand_r(&seed) % 4;
			if (command->header.type == SP_LAUNCHER_KILL)
				command->serial += 1000;
		}
		if (size == 0)
			continue;
		cr_assert(sp_msg_send(play.fd, bytes, size, NULL, 0) == 0);
		play_receive(&play, &answer);
		cr_assert(answer.record.header.type >= SP_LAUNCHER_CONFIG);
		ended += answer.record.header.type == SP_LAUNCHER_GONE;
		play_close(&answer);
	}
	cr_assert(ended == 0);
	for (size_t i = 0; i < 3; i++)
		(void)play_kill(&play, &sandboxes[i]);
	end(&play);
}

/* A daemon that writes and does not read stops itself, not the launcher. */
Test(launcher_protocol, reads_no_more_than_it_can_answer)
{
	struct play play;
	struct play_answer answer;
	struct play_sandbox sandbox;
	uint64_t accepted;
	uint64_t first;

	begin(&play);
	play_ready(&play, 0, &sandbox);
	first = play.requests + 1;
	accepted = send_until_full(&play);
	play.requests += accepted;
	for (uint64_t i = 0; i < accepted; i++) {
		play_receive(&play, &answer);
		cr_assert(answer.record.status == -ESRCH &&
			  answer.record.header.request == first + i);
	}
	(void)play_kill(&play, &sandbox);
	end(&play);
}
