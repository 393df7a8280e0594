/*
 * Records that must not be acted on, and what they are answered with.
 */
#include "tests/sandbox/init_setup.h"

#include "pool/base/fd.h"
#include "supervisor/init/request.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

TestSuite(init_bad_request, .init = set_up, .fini = tear_down);

struct exec_record {
	struct sp_init_exec exec;
	char text[64];
};

static struct exec_record valid_exec(size_t *ret_len)
{
	static const char text[] = "/\0/bin/true"; /* cwd, argv[0] */
	struct exec_record record = {
		.exec = {.header = {.type = SP_INIT_EXEC, .exec = 9, .request = 77},
			 .uid = 1000,
			 .gid = 1000,
			 .argc = 1,
			 .umask = 022,
			 .strings_length = sizeof(text)},
	};

	memcpy(record.text, text, sizeof(text));
	*ret_len = sizeof(record.exec) + sizeof(text);
	return record;
}

static void expect_bad(const void *record, size_t len, size_t fd_count, uint32_t type)
{
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	int fds[SP_MSG_FDS_MAX];
	union harness_answer answer;

	for (size_t i = 0; i < fd_count; i++)
		fds[i] = null_fd;
	harness_send(&harness, record, len, fds, fd_count);
	(void)close(null_fd);
	harness_expect(&harness, type, &answer);
	cr_assert_eq(answer.status.status, -EBADMSG);
	cr_assert_str_eq(answer.status.stage, "record");
}

Test(init_bad_request, the_good_one_is_good)
{
	size_t len;
	struct exec_record record = valid_exec(&len);
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	const int fds[] = {null_fd, null_fd, null_fd};
	union harness_answer answer;

	int fd;

	harness_send(&harness, &record, len, fds, 3);
	cr_assert(harness_receive(&harness, &answer, &fd, HARNESS_WAIT_MS) > 0);
	cr_assert_eq(answer.header.request, 77u);
	if (answer.header.type == SP_INIT_STARTED)
		cr_assert(harness_receive(&harness, &answer, &fd, HARNESS_WAIT_MS) > 0);
	cr_assert_eq(answer.header.type, SP_INIT_EXITED);
	(void)close(null_fd);
}

#define BAD_EXEC(name, fd_count, change)                                  \
	Test(init_bad_request, exec_##name)                               \
	{                                                                 \
		size_t len;                                               \
		struct exec_record record = valid_exec(&len);             \
		int before = harness_count_fds(&harness);                 \
                                                                          \
		change;                                                   \
		expect_bad(&record, len, fd_count, SP_INIT_START_FAILED); \
		cr_assert_eq(harness_count_fds(&harness), before);        \
	}

BAD_EXEC(short, 3, len = sizeof(record.exec) - 1)
BAD_EXEC(without_strings, 3, len = sizeof(record.exec))
BAD_EXEC(too_few_descriptors, 2, )
BAD_EXEC(too_many_descriptors, 4, )
BAD_EXEC(more_descriptors_than_a_message_has, 8, )
BAD_EXEC(descriptors_with_terminal, 3, record.exec.flags = SP_EXEC_F_TTY)
BAD_EXEC(unknown_flag, 3, record.exec.flags = SP_EXEC_F_ALL + 1)
BAD_EXEC(negative_deadline, 3, record.exec.deadline_boot_ms = -1)
BAD_EXEC(no_arguments, 3, record.exec.argc = 0)
BAD_EXEC(too_many_arguments, 3, record.exec.argc = SP_INIT_ARGS_MAX + 1)
BAD_EXEC(too_much_environment, 3, record.exec.envc = SP_INIT_ENV_MAX + 1)
BAD_EXEC(more_arguments_than_strings, 3, record.exec.argc = 2)
BAD_EXEC(more_environment_than_strings, 3, record.exec.envc = UINT32_MAX)
BAD_EXEC(strings_left_over, 3, record.text[3] = '\0')
BAD_EXEC(strings_unended, 3, record.text[11] = 'x')
BAD_EXEC(strings_longer_than_the_record, 3, record.exec.strings_length++)
BAD_EXEC(umask, 3, record.exec.umask = 01000)
BAD_EXEC(strings_that_are_no_memfd, 4,
	 (record.exec.flags = SP_EXEC_F_STRINGS, len = sizeof(record.exec)))

Test(init_bad_request, strings_must_be_sealed)
{
	size_t len;
	struct exec_record record = valid_exec(&len);
	int fd = memfd_create("strings", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	const int fds[] = {fd, fd, fd, fd};
	union harness_answer answer;

	cr_assert_eq(write(fd, record.text, record.exec.strings_length),
		     (ssize_t)record.exec.strings_length);
	record.exec.flags = SP_EXEC_F_STRINGS;
	harness_send(&harness, &record, sizeof(record.exec), fds, 4);
	harness_expect(&harness, SP_INIT_START_FAILED, &answer);
	cr_assert_eq(answer.status.status, -EBADMSG);
	(void)close(fd);
}

Test(init_bad_request, unknown_and_short_records)
{
	const struct sp_init_plain unknown = {.header = {.type = 60, .exec = 1}};
	const struct sp_init_plain answer_type = {.header = {.type = SP_INIT_READY}};
	const struct sp_init_plain ping = {.header = {.type = SP_INIT_PING}};
	const struct sp_init_plain kill_exec = {.header = {.type = SP_INIT_KILL_EXEC}};
	const struct sp_init_mount mount = {.header = {.type = SP_INIT_MOUNT}};
	const struct sp_init_signal signal = {.header = {.type = SP_INIT_SIGNAL}, .signal = 65};
	const struct sp_init_deadline deadline = {.header = {.type = SP_INIT_DEADLINE},
						  .boot_ms = -1};

	expect_bad(&unknown, sizeof(unknown), 0, SP_INIT_START_FAILED);
	expect_bad(&answer_type, sizeof(answer_type), 0, SP_INIT_START_FAILED);
	expect_bad(&unknown, 1, 0, SP_INIT_START_FAILED);
	expect_bad(&ping, sizeof(ping), 1, SP_INIT_START_FAILED);
	expect_bad(&kill_exec, sizeof(kill_exec) - 1, 0, SP_INIT_KILLED);
	expect_bad(&mount, sizeof(mount), 1, SP_INIT_MOUNTED);
	expect_bad(&signal, sizeof(signal), 0, SP_INIT_START_FAILED);
	expect_bad(&deadline, sizeof(deadline), 0, SP_INIT_START_FAILED);
	(void)harness_ping(&harness);
}

Test(init_bad_request, longer_than_any_record)
{
	static char big[SP_INIT_RECORD_MAX + 1];
	struct sp_init_header *header = (struct sp_init_header *)(void *)big;

	header->type = SP_INIT_EXEC;
	expect_bad(big, sizeof(big), 3, SP_INIT_START_FAILED);
	(void)harness_ping(&harness);
}

/* --- the checks alone -------------------------------------------------------------------- */

Test(init_request, counts_at_their_limits)
{
	static char text[SP_INIT_ARGS_MAX + SP_INIT_ENV_MAX + 1]; /* as many empty strings */
	static char *argv[SP_INIT_ARGS_MAX + 1];
	static char *envp[SP_INIT_ENV_MAX + 1];
	struct init_strings strings = {.argv = argv, .envp = envp};

	cr_assert_eq(
		init_request_split(text, sizeof(text), SP_INIT_ARGS_MAX, SP_INIT_ENV_MAX, &strings),
		0);
	cr_assert(argv[SP_INIT_ARGS_MAX - 1] && !argv[SP_INIT_ARGS_MAX]);
	cr_assert(envp[SP_INIT_ENV_MAX - 1] && !envp[SP_INIT_ENV_MAX]);
	cr_assert_eq(init_request_split(text, sizeof(text) - 1, SP_INIT_ARGS_MAX, SP_INIT_ENV_MAX,
					&strings),
		     -EBADMSG);
}

Test(init_request, inline_strings_at_their_limit)
{
	static struct {
		struct sp_init_exec exec;
		char text[SP_INIT_INLINE_MAX + 1];
	} record = {.exec = {.header = {.type = SP_INIT_EXEC}, .argc = 1}};

	record.exec.strings_length = SP_INIT_INLINE_MAX;
	cr_assert_eq(init_request_check(&record, sizeof(record.exec) + SP_INIT_INLINE_MAX, 3), 0);
	record.exec.strings_length++;
	cr_assert_eq(init_request_check(&record, sizeof(record.exec) + SP_INIT_INLINE_MAX + 1, 3),
		     -EBADMSG);
	record.exec.flags = SP_EXEC_F_STRINGS;
	record.exec.strings_length = SP_INIT_STRINGS_MAX;
	cr_assert_eq(init_request_check(&record, sizeof(record.exec), 4), 0);
	record.exec.strings_length++;
	cr_assert_eq(init_request_check(&record, sizeof(record.exec), 4), -EBADMSG);
}
