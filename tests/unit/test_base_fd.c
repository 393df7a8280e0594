/*
 * Descriptors: messages with attached ones arrive whole, close-on-exec, or not at all.
 */
#include "pool/base/fd.h"

#include "pool/base/clock.h"
#include "pool/base/list.h"
#include "tests/unit/lingering.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static void pair(int *fds)
{
	cr_assert(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
}

Test(fd, close_keeps_errno_and_forgets)
{
	int fd = dup(0);

	errno = EBADF;
	sp_fd_close(&fd);
	cr_assert(fd == -1 && errno == EBADF);
	sp_fd_close(&fd);
}

Test(fd, take_moves_ownership)
{
	int fd = 7;

	cr_assert(sp_take_fd(&fd) == 7 && fd == -1);
}

Test(fd, messages_carry_up_to_eight)
{
	int ends[2], sent[SP_MSG_FDS_MAX], got[SP_MSG_FDS_MAX];
	size_t count = 0;
	char text[8];

	pair(ends);
	for (size_t i = 0; i < SP_MSG_FDS_MAX; i++)
		sent[i] = ends[0];
	cr_assert(sp_msg_send(ends[0], "hello", 5, sent, SP_MSG_FDS_MAX) == 0);
	cr_assert(sp_msg_receive(ends[1], text, sizeof(text), got, &count) == 5);
	cr_assert(count == SP_MSG_FDS_MAX && memcmp(text, "hello", 5) == 0);
	for (size_t i = 0; i < count; i++) {
		cr_assert((fcntl(got[i], F_GETFD) & FD_CLOEXEC) != 0);
		sp_fd_close(&got[i]);
	}
	cr_assert(sp_msg_receive(ends[1], text, sizeof(text), got, &count) == -EAGAIN);
	close(ends[0]);
	cr_assert(sp_msg_receive(ends[1], text, sizeof(text), got, &count) == 0, "end of file");
	cr_assert(sp_msg_send(ends[1], "x", 1, NULL, 0) == -EPIPE);
	close(ends[1]);
}

Test(fd, a_cut_message_leaks_nothing)
{
	int ends[2], got[SP_MSG_FDS_MAX], probe, again;
	size_t count = 0;
	char text[3];

	pair(ends);
	probe = dup(0);
	close(probe);
	cr_assert(sp_msg_send(ends[0], "hello", 5, &ends[0], 1) == 0);
	cr_assert(sp_msg_receive(ends[1], text, sizeof(text), got, &count) == -EMSGSIZE);
	again = dup(0);
	cr_assert(again == probe, "the descriptor that came with it was closed");
	close(again);
	close(ends[0]);
	close(ends[1]);
}

/* Leave room for so many more descriptors. */
static void set_room(int room)
{
	struct rlimit limit;
	int next = dup(0);

	close(next);
	cr_assert(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = (rlim_t)(next + room);
	cr_assert(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* More than a record may have, of a kind that the kernel would wait for. */
Test(fd, superfluous_descriptors_are_discarded_by_us, .timeout = 30)
{
	int64_t before_ms = sp_clock_boot_ms();
	char control[CMSG_SPACE(50 * sizeof(int))] = {0};
	char byte = 'x';
	struct iovec iov = {.iov_base = &byte, .iov_len = 1};
	struct msghdr message = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	int received[SP_MSG_FDS_MAX];
	size_t count = 0;
	int listener;
	int fd = lingering_socket(&listener);
	int fds[2];

	pair(fds);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(50 * sizeof(int));
	for (int i = 0; i < 50; i++)
		memcpy(CMSG_DATA(header) + (size_t)i * sizeof(int), i < 10 ? &fds[1] : &fd,
		       sizeof(int));
	cr_assert(sendmsg(fds[0], &message, 0) == 1);
	cr_assert(close(fd) == 0);
	cr_assert(sp_msg_receive(fds[1], &byte, 1, received, &count) == -EMSGSIZE);
	cr_assert(sp_clock_boot_ms() - before_ms < 5000);
	cr_assert(close(fds[0]) == 0 && close(fds[1]) == 0 && close(listener) == 0);
}

Test(fd, a_full_table_costs_the_descriptors_and_not_the_record)
{
	int ends[2], got[SP_MSG_FDS_MAX];
	size_t count = 9;
	bool lost = false;
	char text[8];

	pair(ends);
	set_room(1);
	cr_assert(sp_msg_send(ends[0], "one", 3, ends, 1) == 0);
	cr_assert(sp_msg_receive_any(ends[1], text, sizeof(text), got, &count, &lost) == 3);
	cr_assert(count == 1 && !lost);
	sp_fd_close(&got[0]);
	cr_assert(sp_msg_send(ends[0], "two", 3, ends, 2) == 0);
	cr_assert(sp_msg_receive_any(ends[1], text, sizeof(text), got, &count, &lost) == 3);
	cr_assert(count == 0 && lost && memcmp(text, "two", 3) == 0);
	cr_assert(sp_fd_low(ends[0], INT_MAX) == false, "the first of the two was closed again");
	cr_assert(sp_msg_send(ends[0], "two", 3, ends, 2) == 0);
	cr_assert(sp_msg_receive(ends[1], text, sizeof(text), got, &count) == -EMSGSIZE);
}

Test(fd, the_ceiling_leaves_a_reserve)
{
	static const struct {
		rlim_t limit;
		int ceiling;
	} expected[] = {{64, 48}, {128, 112}, {1024, 896}, {4096, 3840}};

	for (size_t i = 0; i < SP_ARRAY_SIZE(expected); i++) {
		struct rlimit limit;

		cr_assert(getrlimit(RLIMIT_NOFILE, &limit) == 0);
		if (limit.rlim_max < expected[i].limit)
			continue;
		limit.rlim_cur = expected[i].limit;
		cr_assert(setrlimit(RLIMIT_NOFILE, &limit) == 0);
		cr_assert(sp_fd_ceiling() == expected[i].ceiling);
	}
}

Test(fd, low_begins_at_the_ceiling)
{
	int next = dup(0);

	close(next);
	cr_assert(!sp_fd_low(0, next + 1));
	cr_assert(sp_fd_low(0, next));
	set_room(0);
	cr_assert(sp_fd_low(0, INT_MAX), "none is left at all");
}

Test(fd, write_all_and_read_all)
{
	int ends[2];
	char text[8] = {0};

	cr_assert(pipe2(ends, O_CLOEXEC) == 0);
	cr_assert(sp_write_all(ends[1], "abc", 3) == 0);
	close(ends[1]);
	cr_assert(sp_read_all(ends[0], text, sizeof(text)) == 3 && strcmp(text, "abc") == 0);
	close(ends[0]);
	cr_assert(sp_read_all(ends[0], text, sizeof(text)) == -EBADF);
	cr_assert(sp_write_all(ends[0], "x", 1) == -EBADF);
}

Test(clock, goes_forward)
{
	int64_t first = sp_clock_boot_ns();

	cr_assert(sp_clock_boot_ns() >= first && sp_clock_boot_ms() >= first / SP_NS_PER_MS);
	cr_assert(sp_clock_wall_ms() > INT64_C(1600000000000));
}

struct item {
	int number;
	struct sp_list link;
};

Test(list, keeps_order_and_lets_go)
{
	struct item items[3] = {{.number = 1}, {.number = 2}, {.number = 3}};
	struct sp_list list;
	int expected = 1;

	sp_list_init(&list);
	cr_assert(SP_LIST_FIRST(&list, struct item, link) == NULL);
	sp_list_append(&list, &items[1].link);
	sp_list_append(&list, &items[2].link);
	sp_list_prepend(&list, &items[0].link);
	SP_LIST_FOREACH_SAFE (link, following, &list) {
		struct item *item = SP_CONTAINER_OF(link, struct item, link);

		cr_assert(item->number == expected++);
		sp_list_remove(link);
		sp_list_remove(link);
	}
	cr_assert(sp_list_empty(&list) && expected == 4);
}
