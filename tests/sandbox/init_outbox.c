/*
 * Answers that the socket does not take: nothing is lost, order is kept, room is bounded.
 */
#include "supervisor/init/outbox.h"

#include "pool/base/fd.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODYS_UID 54321 /* a budget of descriptors in flight that nothing else uses */

static struct init_outbox outbox;
static int ends[2];

static void set_up(void)
{
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends),
		     0);
}

TestSuite(init_outbox, .init = set_up);

static void send_number(uint64_t number, int fd)
{
	const struct sp_init_plain answer = {
		.header = {.type = SP_INIT_PONG, .request = number},
	};

	init_outbox_send(&outbox, ends[0], &answer, sizeof(answer), fd);
}

/* The number of the next record, 0 if there is none; a descriptor with it is closed. */
static uint64_t receive_number(size_t *ret_fds)
{
	struct sp_init_plain answer = {.header = {.request = 0}};
	int fds[SP_MSG_FDS_MAX];
	ssize_t len = sp_msg_receive(ends[1], &answer, sizeof(answer), fds, ret_fds);

	if (len == -EAGAIN)
		return 0;
	cr_assert_eq(len, (ssize_t)sizeof(answer));
	for (size_t i = 0; i < *ret_fds; i++)
		(void)close(fds[i]);
	return answer.header.request;
}

/* As many as the socket takes. */
static uint64_t fill_socket(void)
{
	uint64_t number = 0;

	while (outbox.count == 0)
		send_number(++number, -1);
	return number;
}

Test(init_outbox, keeps_what_a_full_socket_refuses)
{
	uint64_t last = fill_socket();
	size_t fds;

	cr_assert(!outbox.stalled, "a full socket says when it has room");
	while (outbox.count < INIT_OUTBOX_MAX)
		send_number(++last, -1);
	for (uint64_t expected = 1; expected <= last; expected++) {
		cr_assert_eq(receive_number(&fds), expected);
		init_outbox_flush(&outbox, ends[0]);
	}
	cr_assert_eq(outbox.count, 0u);
}

Test(init_outbox, one_more_than_it_holds_is_our_fault, .signal = SIGABRT)
{
	uint64_t last = fill_socket();

	while (outbox.count < INIT_OUTBOX_MAX)
		send_number(++last, -1);
	send_number(++last, -1);
}

Test(init_outbox, forgets_what_nobody_is_there_for)
{
	(void)close(ends[1]);
	send_number(1, fcntl(ends[0], F_DUPFD_CLOEXEC, 0));
	cr_assert_eq(outbox.count, 0u);
	cr_assert(!outbox.stalled);
}

/* Descriptors in flight are counted by user; at RLIMIT_NOFILE the kernel refuses the next. */
Test(init_outbox, keeps_what_is_refused_for_another_reason)
{
	const struct rlimit few = {.rlim_cur = 16, .rlim_max = 16};
	uint64_t number = 0;
	uint64_t received = 0;
	size_t fds;

	if (geteuid() != 0)
		cr_skip("needs root");
	cr_assert_eq(setresuid(NOBODYS_UID, NOBODYS_UID, NOBODYS_UID), 0);
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	while (outbox.count == 0 && number < 1000)
		send_number(++number, fcntl(ends[0], F_DUPFD_CLOEXEC, 0));
	cr_assert_eq(outbox.count, 1u);
	cr_assert(outbox.stalled);
	cr_assert(outbox.entries[outbox.first].fd >= 0, "it goes with its answer");
	while (receive_number(&fds) == received + 1) {
		received++;
		cr_assert_eq(fds, 1u);
		init_outbox_flush(&outbox, ends[0]);
	}
	cr_assert_eq(received, number);
	cr_assert(!outbox.stalled);
}
