/*
 * A helper, or the init that sends it, that has been taken over: the test plays it. Whatever does
 * not fit ends the sandbox, and no owner is told anything but an error.
 */
#include "files_fixture.h"

struct lie {
	struct live live;
	struct held held;
	struct fate fate;
	struct sandbox_link *link;
	int fd; /* the helper's end */
};

#define LIE_START(lie)                                               \
	do {                                                         \
		LIVE_START(&(lie)->live, "", FILES_POOL);            \
		(lie)->held = live_acquire(&(lie)->live, "default"); \
		(lie)->link = live_link(&(lie)->live, &(lie)->held); \
	} while (0)

static void lie_end(struct lie *lie)
{
	struct sp_err err;

	sp_fd_close(&lie->fd);
	(void)sp_service_release(lie->live.service, &lie->held.caller, lie->held.id, &err);
	live_stop(&lie->live);
}

static void say(struct lie *lie, const void *record, size_t len, const int *fds, size_t fd_count)
{
	cr_assert(sp_msg_send(lie->fd, record, len, fds, fd_count) == 0);
}

static struct sp_init_file_result result_record(int status)
{
	return (struct sp_init_file_result){.header.type = SP_INIT_FILE_RESULT, .status = status};
}

/* Waits for the operation's end, which must be the sandbox's. */
static void expect_given_up(struct lie *lie)
{
	LIVE_WAIT(&lie->live, lie->fate.done);
	cr_assert(lie->fate.failed && lie->fate.err.code == SP_CODE_SANDBOX_DEAD, "%s",
		  lie->fate.err.message);
	cr_assert(lie->link->state >= LINK_ENDING);
}

static void begin_open(struct lie *lie)
{
	cr_assert(FILE_BEGIN(sp_file_open, &lie->live, &lie->held, &lie->fate, "/tmp/f",
			     fate_on_open) == 0);
	lie->fd = impersonate(lie->fate.op);
}

static void begin_stat(struct lie *lie)
{
	cr_assert(FILE_BEGIN(sp_file_stat, &lie->live, &lie->held, &lie->fate, "/tmp/f",
			     fate_on_stat) == 0);
	lie->fd = impersonate(lie->fate.op);
}

static void begin_list(struct lie *lie)
{
	cr_assert(FILE_BEGIN(sp_file_list, &lie->live, &lie->held, &lie->fate, "/tmp", 1,
			     &fate_list) == 0);
	lie->fd = impersonate(lie->fate.op);
}

Test(daemon_files_liar, truth_is_taken)
{
	struct sp_init_file_result result = result_record(0);
	struct lie lie;
	int fd;

	LIE_START(&lie);
	begin_open(&lie);
	fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
	say(&lie, &result, sizeof(result), &fd, 1);
	LIVE_WAIT(&lie.live, lie.fate.done);
	cr_assert(!lie.fate.failed && lie.fate.fd >= 0);
	cr_assert(lie.link->state == LINK_READY);
	sp_fd_close(&lie.fate.fd);
	sp_fd_close(&fd);
	lie_end(&lie);
}

/* One sandbox a lie. */
static void expect_bad_descriptors(const int *fds, size_t fd_count)
{
	struct sp_init_file_result result = result_record(0);
	struct lie lie;

	LIE_START(&lie);
	begin_open(&lie);
	say(&lie, &result, sizeof(result), fds, fd_count);
	expect_given_up(&lie);
	lie_end(&lie);
}

Test(daemon_files_liar, other_descriptors_than_a_regular_file)
{
	int good = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
	int bad[] = {
		open("/dev/zero", O_RDONLY | O_CLOEXEC),
		open("/proc/self/status", O_RDONLY | O_CLOEXEC),
		open("/etc/passwd", O_PATH | O_CLOEXEC),
		open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(bad); i++) {
		expect_bad_descriptors(&bad[i], 1);
		sp_fd_close(&bad[i]);
	}
	expect_bad_descriptors((int[]){good, good}, 2);
	expect_bad_descriptors(NULL, 0);
	sp_fd_close(&good);
}

Test(daemon_files_liar, descriptor_where_none_belongs)
{
	struct sp_init_file_result result = result_record(0);
	struct lie lie;
	int fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);

	LIE_START(&lie);
	begin_stat(&lie);
	say(&lie, &result, sizeof(result), &fd, 1);
	expect_given_up(&lie);
	lie_end(&lie);
	LIE_START(&lie);
	begin_open(&lie);
	result.status = -ENOENT;
	say(&lie, &result, sizeof(result), &fd, 1);
	expect_given_up(&lie);
	lie_end(&lie);
	sp_fd_close(&fd);
}

Test(daemon_files_liar, connection_to_something_else)
{
	struct sp_init_file_result result = result_record(0);
	struct lie lie;
	int pair[2];

	cr_assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	LIE_START(&lie);
	cr_assert(FILE_BEGIN(sp_port_connect, &lie.live, &lie.held, &lie.fate, 80,
			     fate_on_connect) == 0);
	lie.fd = impersonate(lie.fate.op);
	say(&lie, &result, sizeof(result), &pair[0], 1);
	expect_given_up(&lie);
	lie_end(&lie);
	sp_fd_close(&pair[0]);
	sp_fd_close(&pair[1]);
}

Test(daemon_files_liar, records_that_do_not_fit)
{
	static char huge[SP_INIT_FILE_REPLY + 1];
	struct sp_init_file_result positive = result_record(7);
	struct sp_init_file_record_header progress = {.type = SP_INIT_FILE_PROGRESS};
	struct sp_init_file_record_header unknown = {.type = 99};
	struct sp_init_file_record_header found = {.type = SP_INIT_FILE_FOUND, .count = 1};

	const struct {
		const void *record;
		size_t len;
	} lies[] = {
		{&positive, sizeof(positive)},
		{&positive, sizeof(positive) - 1},
		{&progress, sizeof(progress) - 1},
		{&unknown, sizeof(unknown)},
		{&found, sizeof(found)}, /* to a stat */
		{huge, sizeof(huge)},
		{"x", 1},
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(lies); i++) {
		struct lie lie;

		LIE_START(&lie);
		begin_stat(&lie);
		say(&lie, lies[i].record, lies[i].len, NULL, 0);
		expect_given_up(&lie);
		lie_end(&lie);
	}
}

struct found {
	struct sp_init_file_record_header header;
	struct sp_init_file_entry entry;
	char path[16];
};

static struct found found_record(const char *path)
{
	struct found found = {
		.header = {.type = SP_INIT_FILE_FOUND, .count = 1},
		.entry.path_length = (uint32_t)strlen(path),
	};

	(void)snprintf(found.path, sizeof(found.path), "%s", path);
	return found;
}

static size_t found_size(const struct found *found)
{
	return sizeof(found->header) + sizeof(found->entry) +
	       (found->entry.path_length + (size_t)1 + 7) / 8 * 8;
}

Test(daemon_files_liar, entries_from_elsewhere)
{
	static const char *const paths[] = {"../x", "/x", "a/b", ""};

	for (size_t i = 0; i < SP_ARRAY_SIZE(paths); i++) {
		struct found found = found_record(paths[i]);
		struct lie lie;

		LIE_START(&lie);
		begin_list(&lie);
		say(&lie, &found, found_size(&found), NULL, 0);
		expect_given_up(&lie);
		cr_assert(lie.fate.entries == 0, "'%s' was believed", paths[i]);
		lie_end(&lie);
	}
}

Test(daemon_files_liar, more_entries_than_there_may_be)
{
	struct found found = found_record("x");
	struct lie lie;

	LIE_START(&lie);
	begin_list(&lie);
	lie.fate.op->entries = SP_FILE_LIST_MAX - 1;
	say(&lie, &found, found_size(&found), NULL, 0);
	LIVE_WAIT(&lie.live, lie.fate.entries == 1);
	cr_assert(!lie.fate.done, "the last one");
	say(&lie, &found, found_size(&found), NULL, 0);
	expect_given_up(&lie);
	lie_end(&lie);
}

Test(daemon_files_liar, longer_paths_in_all_than_there_may_be)
{
	struct found found = found_record("x"); /* "/tmp/x": 6 */
	struct lie lie;

	LIE_START(&lie);
	begin_list(&lie);
	lie.fate.op->path_bytes = SP_FILE_LIST_BYTES_MAX - 6;
	say(&lie, &found, found_size(&found), NULL, 0);
	LIVE_WAIT(&lie.live, lie.fate.entries == 1);
	say(&lie, &found, found_size(&found), NULL, 0);
	LIVE_WAIT(&lie.live, lie.fate.done);
	cr_assert(lie.fate.entries == 1 && lie.fate.err.code == SP_CODE_TOO_MANY);
	cr_assert(lie.link->state == LINK_READY, "long names are no lie");
	lie_end(&lie);
}

Test(daemon_files_liar, upload_that_was_never_committed)
{
	struct sp_init_file_result result = result_record(0);
	struct lie lie;

	LIE_START(&lie);
	cr_assert(write_begin(&lie.live, &lie.held, &lie.fate, "/tmp/f") == 0);
	lie.fd = impersonate(&lie.fate.write->op);
	say(&lie, &result, sizeof(result), NULL, 0);
	expect_given_up(&lie);
	lie_end(&lie);
}

Test(daemon_files_liar, reason_is_read_though_the_channel_is_closed)
{
	static char data[300000];
	struct sp_init_file_result result = result_record(-ENOSPC);
	struct lie lie;

	LIE_START(&lie);
	cr_assert(write_begin(&lie.live, &lie.held, &lie.fate, "/tmp/f") == 0);
	lie.fd = impersonate(&lie.fate.write->op);
	(void)sp_file_write_data(lie.fate.write, data, sizeof(data));
	/* Unread data of ours makes its end a reset. */
	say(&lie, &result, sizeof(result), NULL, 0);
	sp_fd_close(&lie.fd);
	LIVE_WAIT(&lie.live, lie.fate.done);
	cr_assert(lie.fate.err.code == SP_CODE_FILE_FULL, "%s", lie.fate.err.message);
	cr_assert(lie.link->state == LINK_READY);
	lie_end(&lie);
}

Test(daemon_files_liar, silence_has_an_end)
{
	struct sp_init_file_record_header progress = {.type = SP_INIT_FILE_PROGRESS};
	struct lie lie;

	LIE_START(&lie);
	begin_stat(&lie);
	say(&lie, &progress, sizeof(progress), NULL, 0);
	live_let_pass(&lie.live, 20);
	cr_assert(sp_timer_pending(&lie.fate.op->stall));
	/* As if the time had passed. */
	sp_timer_set(&lie.live.service->timers, &lie.fate.op->stall, sp_clock_boot_ms());
	LIVE_WAIT(&lie.live, lie.fate.done);
	cr_assert(lie.fate.err.code == SP_CODE_UNAVAILABLE && lie.fate.err.status == -ETIMEDOUT);
	cr_assert(lie.link->state == LINK_READY);
	lie_end(&lie);
}

Test(daemon_files_liar, end_without_a_result)
{
	struct lie lie;

	LIE_START(&lie);
	begin_stat(&lie);
	sp_fd_close(&lie.fd);
	LIVE_WAIT(&lie.live, lie.fate.done);
	cr_assert(lie.fate.err.code == SP_CODE_UNAVAILABLE);
	cr_assert(lie.link->state == LINK_READY);
	lie_end(&lie);
}

Test(daemon_files_liar, a_channel_that_outlives_its_sandbox)
{
	struct sp_err err;
	struct lie lie;

	LIE_START(&lie);
	begin_stat(&lie);
	cr_assert(sp_service_release(lie.live.service, &lie.held.caller, lie.held.id, &err) == 0);
	LIVE_WAIT(&lie.live, lie.fate.done);
	cr_assert(lie.fate.err.code == SP_CODE_SANDBOX_DEAD, "%s", lie.fate.err.message);
	lie_end(&lie);
}

struct seen {
	unsigned int times;
	struct sp_file_info users;
	struct sp_file_info groups;
	struct fate *cancel; /* its operation */
};

static void on_seen(void *arg, const struct sp_file_info *users, const struct sp_file_info *groups)
{
	struct seen *seen = arg;

	seen->times++;
	seen->users = *users;
	seen->groups = *groups;
	if (seen->cancel)
		sp_file_op_cancel(seen->cancel->op);
}

static void begin_seen(struct lie *lie, struct seen *seen)
{
	struct sp_file_place place = place_of(&lie->held);

	memset(&lie->fate, 0, sizeof(lie->fate));
	place.accounts = on_seen;
	place.accounts_arg = seen;
	cr_assert(sp_file_stat(lie->live.service, &lie->held.caller, &place, "/tmp", fate_on_stat,
			       &lie->fate, &lie->fate.op, &lie->fate.err) == 0);
}

Test(daemon_files_liar, account_files_as_they_are)
{
	struct seen seen = {0};
	struct lie lie = {.fd = -1};

	LIE_START(&lie);
	begin_seen(&lie, &seen);
	LIVE_WAIT(&lie.live, lie.fate.done);
	cr_assert(!lie.fate.failed && seen.times == 1);
	cr_assert(seen.users.inode != 0 && seen.groups.inode != 0);
	/* Whoever is told may have had enough. */
	seen.cancel = &lie.fate;
	begin_seen(&lie, &seen);
	LIVE_WAIT(&lie.live, seen.times == 2);
	cr_assert(!lie.fate.done);
	cr_assert(lie.link->state == LINK_READY);
	lie_end(&lie);
}

Test(daemon_files_liar, account_files_that_nobody_asked_for)
{
	const struct sp_init_file_accounts accounts = {.header.type = SP_INIT_FILE_ACCOUNTS};
	struct lie lie;

	LIE_START(&lie);
	begin_stat(&lie);
	say(&lie, &accounts, sizeof(accounts), NULL, 0);
	expect_given_up(&lie);
	lie_end(&lie);
}

Test(daemon_files_liar, account_files_told_twice)
{
	const struct sp_init_file_accounts accounts = {.header.type = SP_INIT_FILE_ACCOUNTS};
	struct seen seen = {0};
	struct lie lie;

	LIE_START(&lie);
	begin_seen(&lie, &seen);
	lie.fd = impersonate(lie.fate.op);
	say(&lie, &accounts, sizeof(accounts), NULL, 0);
	say(&lie, &accounts, sizeof(accounts), NULL, 0);
	expect_given_up(&lie);
	cr_assert(seen.times == 1 && seen.users.inode == 0);
	lie_end(&lie);
}

Test(daemon_files_liar, account_files_that_are_none)
{
	struct sp_init_file_accounts accounts[] = {
		{.header.type = SP_INIT_FILE_ACCOUNTS, .header.count = 1},
		{.header.type = SP_INIT_FILE_ACCOUNTS, .users.type = 4},
		{.header.type = SP_INIT_FILE_ACCOUNTS, .groups.mode = 010000},
		{.header.type = SP_INIT_FILE_ACCOUNTS},
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(accounts); i++) {
		size_t len = sizeof(accounts[i]) - (i == 3 ? 1 : 0);
		struct seen seen = {0};
		struct lie lie;

		LIE_START(&lie);
		begin_seen(&lie, &seen);
		lie.fd = impersonate(lie.fate.op);
		say(&lie, &accounts[i], len, NULL, 0);
		expect_given_up(&lie);
		cr_assert(seen.times == 0, "%zu", i);
		lie_end(&lie);
	}
}
