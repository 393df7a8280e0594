/*
 * Writing without waiting, to every kind of descriptor.
 */
#include "supervisor/cli/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <criterion/criterion.h>

static struct sp_cli_sink sink;

static void teardown(void)
{
	sp_cli_sink_done(&sink);
}

TestSuite(cli_sink, .fini = teardown, .timeout = 30);

/* Write until it would block; how much went in. */
static size_t fill(size_t step)
{
	static char data[1 << 20];
	size_t total = 0;

	for (int i = 0; i < 100000; i++) {
		ssize_t written = sp_cli_sink_write(&sink, data, step);

		if (written == -EAGAIN)
			return total;
		cr_assert(written > 0, "%zd", written);
		total += (size_t)written;
	}
	cr_assert_fail("it never blocks");
	return 0;
}

Test(cli_sink, a_full_pipe_does_not_block_and_keeps_its_flags)
{
	int ends[2];

	cr_assert(pipe2(ends, O_CLOEXEC) == 0);
	sp_cli_sink_init(&sink, ends[1], false);
	cr_assert(fill(1 << 20) >= 65536);
	cr_assert(sink.kind == SP_CLI_SINK_NONBLOCK);
	cr_assert((fcntl(ends[1], F_GETFL) & O_NONBLOCK) == 0,
		  "the description that others share is as it was");
}

Test(cli_sink, closing_the_sink_closes_its_own_end_of_the_pipe)
{
	int ends[2];
	char byte;

	cr_assert(pipe2(ends, O_CLOEXEC) == 0);
	sp_cli_sink_init(&sink, ends[1], false);
	cr_assert(sp_cli_sink_write(&sink, "x", 1) == 1);
	sp_cli_sink_done(&sink);
	(void)close(ends[1]);
	cr_assert(read(ends[0], &byte, 1) == 1);
	cr_assert(read(ends[0], &byte, 1) == 0);
}

Test(cli_sink, a_full_socket_does_not_block)
{
	int ends[2];

	cr_assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
	sp_cli_sink_init(&sink, ends[1], false);
	cr_assert(fill(65536) > 0);
	cr_assert(sink.kind == SP_CLI_SINK_SOCKET);
}

Test(cli_sink, a_pipe_that_cannot_be_opened_again_is_written_with_care)
{
	int ends[2];

	cr_assert(pipe2(ends, O_CLOEXEC) == 0);
	sp_cli_sink_init(&sink, ends[1], false);
	sink.kind = SP_CLI_SINK_CAUTIOUS;
	cr_assert(fill(1 << 20) >= 65536);
}

Test(cli_sink, a_file_and_dev_null_are_simply_written)
{
	int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

	sp_cli_sink_init(&sink, fd, false);
	cr_assert(sp_cli_sink_write(&sink, "x", 1) == 1);
	cr_assert(sink.kind == SP_CLI_SINK_FILE);
}

Test(cli_sink, a_closed_descriptor_is_an_error)
{
	sp_cli_sink_init(&sink, 987, false);
	cr_assert(sp_cli_sink_write(&sink, "x", 1) == -EBADF);
}

Test(cli_sink, a_pipe_without_reader_is_epipe)
{
	int ends[2];

	(void)signal(SIGPIPE, SIG_IGN);
	cr_assert(pipe2(ends, O_CLOEXEC) == 0);
	(void)close(ends[0]);
	sp_cli_sink_init(&sink, ends[1], false);
	cr_assert(sp_cli_sink_write(&sink, "x", 1) == -EPIPE);
}

Test(cli_sink, what_is_captured_is_kept)
{
	sp_cli_sink_init(&sink, STDOUT_FILENO, true);
	cr_assert(sp_cli_sink_write(&sink, "a\0b", 3) == 3);
	cr_assert(sink.captured.len == 3 && memcmp(sink.captured.data, "a\0b", 3) == 0);
}

Test(cli_sink, capture_holds_its_maximum_and_no_byte_more)
{
	sp_cli_sink_init(&sink, STDOUT_FILENO, true);
	cr_assert(sink.captured.max == SP_CLI_CAPTURE_MAX);
	sink.captured.max = 4;
	cr_assert(sp_cli_sink_write(&sink, "1234", 4) == 4);
	cr_assert(sp_cli_sink_write(&sink, "5", 1) == -E2BIG);
	cr_assert(sink.captured.len == 4);
}
