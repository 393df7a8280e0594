/*
 * Files and ports of real sandboxes, through files.h.
 */
#include "files_fixture.h"

#include <signal.h>
#include <sys/stat.h>

#define MIB (1024u * 1024)

static char big[3 * MIB + 7];

Test(daemon_files, stat_and_open)
{
	struct live live;
	struct held held;
	struct fate fate;
	char text[16];

	LIVE_START(&live, "", FILES_POOL);
	held = live_acquire(&live, "default");
	sandbox_shell(&live, &held, "printf hello > /tmp/f; chmod 640 /tmp/f; ln -s f /tmp/l");
	cr_assert(FILE_DO(sp_file_stat, &live, &held, &fate, "/tmp/f", fate_on_stat));
	cr_assert(fate.info.type == SP_FILE_REGULAR && fate.info.mode == 0640);
	cr_assert(fate.info.uid == 1000 && fate.info.size == 5);
	cr_assert(FILE_DO(sp_file_stat, &live, &held, &fate, "/tmp/l//", fate_on_stat));
	cr_assert(fate.info.type == SP_FILE_SYMLINK, "whatever slashes are behind it");
	cr_assert(FILE_DO(sp_file_open, &live, &held, &fate, "/tmp/l", fate_on_open));
	cr_assert(fate.info.size == 5);
	cr_assert(pread(fate.fd, text, sizeof(text), 0) == 5 && memcmp(text, "hello", 5) == 0);
	cr_assert((fcntl(fate.fd, F_GETFD) & FD_CLOEXEC) != 0);
	sp_fd_close(&fate.fd);
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_files, errors_say_what_and_where)
{
	static const struct {
		const char *path;
		enum sp_code code;
		int status;
	} cases[] = {
		{"/tmp/missing", SP_CODE_FILE_NOT_FOUND, -ENOENT},
		{"/tmp", SP_CODE_FILE_KIND, -EISDIR},
		{"/dev/zero", SP_CODE_FILE_KIND, -ENODEV},
		{"/proc/self/mem", SP_CODE_FILE_KIND, -EOPNOTSUPP},
		{"/tmp/f/x", SP_CODE_FILE_KIND, -ENOTDIR},
		{"/tmp/closed", SP_CODE_FILE_DENIED, -EACCES},
		{"tmp/f", SP_CODE_INVALID_ARGUMENT, -EINVAL},
		{"", SP_CODE_INVALID_ARGUMENT, -EINVAL},
	};
	struct live live;
	struct held held;
	struct fate fate;

	LIVE_START(&live, "", FILES_POOL);
	held = live_acquire(&live, "default");
	sandbox_shell(&live, &held, "touch /tmp/f /tmp/closed; chmod 0 /tmp/closed");
	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++) {
		cr_assert(!FILE_DO(sp_file_open, &live, &held, &fate, cases[i].path, fate_on_open));
		cr_assert(fate.err.code == cases[i].code, "%s: %s", cases[i].path,
			  fate.err.message);
		cr_assert(fate.err.status == cases[i].status, "%s: %d", cases[i].path,
			  fate.err.status);
		cr_assert(strstr(fate.err.message, cases[i].path) != NULL, "%s", fate.err.message);
	}
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_files, path_has_so_many_bytes_and_one_more)
{
	static char path[SP_FILE_PATH_MAX + 1];
	struct live live;
	struct held held;
	struct fate fate;

	LIVE_START(&live, "", FILES_POOL);
	held = live_acquire(&live, "default");
	memset(path, '/', SP_FILE_PATH_MAX - 4);
	memcpy(path + SP_FILE_PATH_MAX - 4, "tmp", 3);
	cr_assert(strlen(path) == SP_FILE_PATH_MAX - 1);
	cr_assert(FILE_DO(sp_file_stat, &live, &held, &fate, path, fate_on_stat), "%s",
		  fate.err.message);
	path[SP_FILE_PATH_MAX - 1] = '/';
	cr_assert(!FILE_DO(sp_file_stat, &live, &held, &fate, path, fate_on_stat));
	cr_assert(fate.err.code == SP_CODE_INVALID_ARGUMENT);
	cr_assert(fate.err.status == -ENAMETOOLONG);
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_files, only_for_the_holder)
{
	char secret[SP_SECRET_LEN + 1] = "of somebody else";
	struct sp_caller stranger = {.secret = secret};
	struct sp_file_place place;
	struct sp_file_op *op;
	struct live live;
	struct held held;
	struct fate fate;

	LIVE_START(&live, "", FILES_POOL);
	held = live_acquire(&live, "default");
	place = place_of(&held);
	cr_assert(sp_file_stat(live.service, &stranger, &place, "/tmp", fate_on_stat, &fate, &op,
			       &fate.err) < 0);
	cr_assert(fate.err.code == SP_CODE_NOT_FOUND);
	place.sandbox = "../../etc";
	cr_assert(sp_file_stat(live.service, &operator_caller, &place, "/tmp", fate_on_stat, &fate,
			       &op, &fate.err) < 0);
	cr_assert(fate.err.code == SP_CODE_NOT_FOUND);
	place = place_of(&held);
	place.session = 1;
	cr_assert(sp_file_stat(live.service, &held.caller, &place, "/tmp", fate_on_stat, &fate, &op,
			       &fate.err) < 0);
	cr_assert(fate.err.code == SP_CODE_NOT_FOUND);
	live_release(&live, &held);
	cr_assert(sp_file_stat(live.service, &held.caller,
			       &(struct sp_file_place){.sandbox = held.id, .uid = -1, .gid = -1},
			       "/tmp", fate_on_stat, &fate, &op, &fate.err) < 0);
	cr_assert(fate.err.code == SP_CODE_LEASE_ENDED || fate.err.code == SP_CODE_SANDBOX_DEAD);
	live_stop(&live);
}

Test(daemon_files, as_whom)
{
	static const int64_t bad[] = {-2, 0, 65533, 65534, 1 << 30};
	struct live live;
	struct held held;
	struct fate fate;
	struct sp_file_place place;
	struct sp_file_op *op;

	LIVE_START(&live, "", FILES_POOL);
	held = live_acquire(&live, "default");
	sandbox_shell(&live, &held, "echo x > /tmp/f; chmod 600 /tmp/f");
	place = place_of(&held);
	for (size_t i = 0; i < SP_ARRAY_SIZE(bad); i++) {
		place.uid = bad[i];
		cr_assert(sp_file_stat(live.service, &held.caller, &place, "/tmp", fate_on_stat,
				       &fate, &op, &fate.err) < 0);
		cr_assert(fate.err.code == SP_CODE_INVALID_ARGUMENT);
	}
	place.uid = 65532;
	memset(&fate, 0, sizeof(fate));
	cr_assert(sp_file_open(live.service, &held.caller, &place, "/tmp/f", fate_on_open, &fate,
			       &op, &fate.err) == 0);
	LIVE_WAIT(&live, fate.done);
	cr_assert(fate.failed && fate.err.code == SP_CODE_FILE_DENIED);
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_files, upload_is_whole_and_bounded_in_the_daemon)
{
	struct live live;
	struct held held;
	struct fate fate;
	size_t taken;
	pid_t init;

	LIVE_START(&live, "", FILES_POOL);
	held = live_acquire(&live, "default");
	for (size_t i = 0; i < sizeof(big); i++)
		big[i] = (char)(i * i >> 7);
	cr_assert(put_file(&live, &held, &fate, "/workspace/d/f", big, sizeof(big)), "%s",
		  fate.err.message);
	cr_assert(fate.drained > 0);
	cr_assert(FILE_DO(sp_file_open, &live, &held, &fate, "/workspace/d/f", fate_on_open));
	cr_assert(fate.info.size == sizeof(big) && fate.info.mode == 0644);
	for (size_t at = 0; at < sizeof(big); at += 65536) {
		static char page[65536];
		ssize_t got = pread(fate.fd, page, sizeof(page), (off_t)at);

		cr_assert(got == (ssize_t)SP_MIN(sizeof(page), sizeof(big) - at));
		cr_assert(memcmp(page, big + at, (size_t)got) == 0);
	}
	sp_fd_close(&fate.fd);

	/* Nobody reads: what is taken is what the kernel holds and SP_FILE_WRITE_MAX. */
	init = (pid_t)sandbox_host_pid(live_link(&live, &held));
	cr_assert(kill(init, SIGSTOP) == 0, "no helper before it goes on");
	cr_assert(write_begin(&live, &held, &fate, "/workspace/g") == 0);
	taken = sp_file_write_data(fate.write, big, sizeof(big));
	cr_assert(taken >= SP_FILE_WRITE_MAX && taken < 2 * SP_FILE_WRITE_MAX + 65536, "%zu",
		  taken);
	cr_assert(fate.write->op.outgoing.len <= SP_FILE_WRITE_MAX);
	cr_assert(sp_file_write_data(fate.write, big, 1) == 0, "full is full");
	sp_file_write_cancel(fate.write);
	cr_assert(kill(init, SIGCONT) == 0);
	sandbox_shell(&live, &held, "test ! -e /workspace/g");
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_files, upload_that_fails_says_why_before_its_end)
{
	struct live live;
	struct held held;
	struct fate fate;

	LIVE_START(&live, "", FILES_POOL);
	held = live_acquire(&live, "default");
	cr_assert(!put_file(&live, &held, &fate, "/usr/x", big, sizeof(big)));
	cr_assert(fate.err.code == SP_CODE_FILE_DENIED, "%s", fate.err.message);
	sandbox_shell(&live, &held, "mkdir /tmp/d");
	cr_assert(!put_file(&live, &held, &fate, "/tmp/d", big, sizeof(big)));
	cr_assert(fate.err.code == SP_CODE_FILE_KIND);
	cr_assert(write_begin(&live, &held, &fate, "/tmp/full") == 0);
	for (int i = 0; i < 40 && !fate.done; i++)
		write_all_data(&live, &fate, big, sizeof(big));
	LIVE_WAIT(&live, fate.done);
	cr_assert(fate.err.code == SP_CODE_FILE_FULL, "%s", fate.err.message);
	cr_assert(put_file(&live, &held, &fate, "/tmp/full", "x", 1), "it is empty again");
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_files, upload_given_up_leaves_nothing)
{
	struct live live;
	struct held held;
	struct fate fate;

	LIVE_START(&live, "", FILES_POOL);
	held = live_acquire(&live, "default");
	for (int i = 0; i < 30; i++) {
		cr_assert(write_begin(&live, &held, &fate, "/tmp/new/f") == 0, "%s",
			  fate.err.message);
		(void)sp_file_write_data(fate.write, big, (size_t)i * 10000);
		if (i % 3 == 0)
			live_let_pass(&live, 2);
		sp_file_write_cancel(fate.write);
		cr_assert(!fate.done);
	}
	live_let_pass(&live, 100);
	cr_assert(!fate.done);
	sandbox_shell(&live, &held, "test -z \"$(ls -A /tmp)\"");
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_files, list_gives_absolute_paths)
{
	struct live live;
	struct held held;
	struct fate fate;

	LIVE_START(&live, "", FILES_POOL);
	held = live_acquire(&live, "default");
	sandbox_shell(&live, &held, "mkdir -p /tmp/t/a; touch /tmp/t/a/f /tmp/t/b");
	cr_assert(FILE_DO(sp_file_list, &live, &held, &fate, "/tmp/t/", UINT32_MAX, &fate_list));
	cr_assert(fate.entries == 3);
	cr_assert_str_eq(fate.first, "/tmp/t/a");
	cr_assert(FILE_DO(sp_file_list, &live, &held, &fate, "/", 1, &fate_list));
	cr_assert(fate.first[0] == '/' && fate.first[1] != '/');
	cr_assert(FILE_DO(sp_file_list, &live, &held, &fate, "/tmp/t", 0, &fate_list));
	cr_assert(fate.entries == 0);
	cr_assert(!FILE_DO(sp_file_list, &live, &held, &fate, "/tmp/t/b", 1, &fate_list));
	cr_assert(fate.err.code == SP_CODE_FILE_KIND);
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_files, so_many_entries_and_one_more)
{
	struct live live;
	struct held held;
	struct fate fate;

	LIVE_START(&live, "",
		   "\"default\": {\"max_idle\": 1, \"limits\": {\"memory\": \"512MiB\", \"tmp\": "
		   "\"256MiB\", \"tmp_inodes\": 120000}}");
	held = live_acquire(&live, "default");
	sandbox_shell(&live, &held,
		      "mkdir /tmp/t; python3 -c 'import os\n"
		      "for i in range(100000): os.mknod(\"/tmp/t/%d\" % i)'");
	cr_assert(FILE_DO(sp_file_list, &live, &held, &fate, "/tmp/t", 1, &fate_list), "%s",
		  fate.err.message);
	cr_assert(fate.entries == SP_FILE_LIST_MAX);
	sandbox_shell(&live, &held, "touch /tmp/t/more");
	cr_assert(!FILE_DO(sp_file_list, &live, &held, &fate, "/tmp/t", 1, &fate_list));
	cr_assert(fate.err.code == SP_CODE_TOO_MANY, "%s", fate.err.message);
	cr_assert(FILE_DO(sp_file_remove, &live, &held, &fate, "/tmp/t", true, fate_on_done));
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_files, listing_can_be_cancelled_in_the_middle)
{
	struct live live;
	struct held held;
	struct fate fate;

	LIVE_START(&live, "", FILES_POOL);
	held = live_acquire(&live, "default");
	cr_assert(FILE_BEGIN(sp_file_list, &live, &held, &fate, "/usr", UINT32_MAX, &fate_list) ==
		  0);
	fate.cancel_at_entry = true;
	LIVE_WAIT(&live, fate.entries > 0);
	live_let_pass(&live, 50);
	cr_assert(fate.entries == 1 && !fate.done);
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_files, make_move_change_remove)
{
	struct live live;
	struct held held;
	struct fate fate;

	LIVE_START(&live, "", FILES_POOL);
	held = live_acquire(&live, "default");
	cr_assert(FILE_DO(sp_file_mkdir, &live, &held, &fate, "/tmp/a/b", 0700, SP_FILE_KEEP,
			  SP_FILE_KEEP, fate_on_done));
	cr_assert(put_file(&live, &held, &fate, "/tmp/a/b/f", "x", 1));
	cr_assert(FILE_DO(sp_file_move, &live, &held, &fate, "/tmp/a/b/f", "/workspace/n/g", false,
			  fate_on_done),
		  "%s", fate.err.message);
	cr_assert(FILE_DO(sp_file_change, &live, &held, &fate, "/workspace/n/g", 0604, 2000, 2001,
			  fate_on_done),
		  "%s", fate.err.message);
	cr_assert(FILE_DO(sp_file_stat, &live, &held, &fate, "/workspace/n/g", fate_on_stat));
	cr_assert(fate.info.mode == 0604 && fate.info.uid == 2000 && fate.info.gid == 2001);
	cr_assert(!FILE_DO(sp_file_move, &live, &held, &fate, "/workspace/n/g", "/tmp/a", false,
			   fate_on_done));
	cr_assert(fate.err.code == SP_CODE_FILE_EXISTS);
	cr_assert(!FILE_DO(sp_file_remove, &live, &held, &fate, "/tmp/a", false, fate_on_done));
	cr_assert(fate.err.code == SP_CODE_FILE_KIND);
	cr_assert(FILE_DO(sp_file_remove, &live, &held, &fate, "/tmp/a", true, fate_on_done));
	cr_assert(!FILE_DO(sp_file_remove, &live, &held, &fate, "/tmp/a", true, fate_on_done));
	cr_assert(fate.err.code == SP_CODE_FILE_NOT_FOUND);
	cr_assert(FILE_BEGIN(sp_file_change, &live, &held, &fate, "/workspace", 04755, SP_FILE_KEEP,
			     SP_FILE_KEEP, fate_on_done) < 0);
	cr_assert(fate.err.code == SP_CODE_INVALID_ARGUMENT);
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_files, port)
{
	struct live live;
	struct held held;
	struct fate fate;
	struct outcome server;
	struct sp_file_place place;
	char text[8];
	COMMAND(command, "/usr/bin/python3", "-c",
		"import socket\n"
		"s = socket.create_server(('127.0.0.1', 8080))\n"
		"print('go', flush=True)\n"
		"c, _ = s.accept()\n"
		"c.sendall(c.recv(9).upper())\n");

	LIVE_START(&live, "", FILES_POOL);
	held = live_acquire(&live, "default");
	place = place_of(&held);
	cr_assert(!FILE_DO(sp_port_connect, &live, &held, &fate, 8080, fate_on_connect));
	cr_assert(fate.err.code == SP_CODE_CONNECT_FAILED, "%s", fate.err.message);
	cr_assert(strstr(fate.err.message, "8080") != NULL);
	live_begin(&live, &held, &command, &server);
	LIVE_WAIT(&live, server.len[1] > 0);
	cr_assert(FILE_DO(sp_port_connect, &live, &held, &fate, 8080, fate_on_connect), "%s",
		  fate.err.message);
	cr_assert((fcntl(fate.fd, F_GETFL) & O_NONBLOCK) != 0);
	cr_assert(write(fate.fd, "hello", 5) == 5);
	LIVE_WAIT(&live, server.ended);
	cr_assert(read(fate.fd, text, sizeof(text)) == 5 && memcmp(text, "HELLO", 5) == 0);
	sp_fd_close(&fate.fd);
	cr_assert(sp_port_connect(live.service, &held.caller, &place, 0, fate_on_connect, &fate,
				  &fate.op, &fate.err) < 0);
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_files, so_many_at_once_and_one_more)
{
	struct live live;
	struct held held;
	struct fate fates[SP_FILE_OPS_MAX];
	struct fate more;

	LIVE_START(&live, "", FILES_POOL);
	held = live_acquire(&live, "default");
	for (size_t i = 0; i < SP_FILE_OPS_MAX; i++)
		cr_assert(write_begin(&live, &held, &fates[i], "/tmp/f") == 0);
	cr_assert(FILE_BEGIN(sp_file_stat, &live, &held, &more, "/tmp", fate_on_stat) < 0);
	cr_assert(more.err.code == SP_CODE_TOO_MANY);
	for (size_t i = 0; i < SP_FILE_OPS_MAX; i++)
		sp_file_write_commit(fates[i].write);
	for (size_t i = 0; i < SP_FILE_OPS_MAX; i++) {
		LIVE_WAIT(&live, fates[i].done);
		cr_assert(!fates[i].failed, "%s", fates[i].err.message);
	}
	cr_assert(FILE_DO(sp_file_stat, &live, &held, &more, "/tmp", fate_on_stat));
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_files, end_of_the_sandbox_ends_them)
{
	struct live live;
	struct held held;
	struct fate upload;
	struct fate other;

	LIVE_START(&live, "", FILES_POOL);
	held = live_acquire(&live, "default");
	cr_assert(write_begin(&live, &held, &upload, "/tmp/f") == 0);
	cr_assert(write_begin(&live, &held, &other, "/tmp/g") == 0);
	live_let_pass(&live, 20);
	live_release(&live, &held);
	LIVE_WAIT(&live, upload.done && other.done);
	cr_assert(upload.failed && upload.err.code == SP_CODE_SANDBOX_DEAD, "%s",
		  upload.err.message);
	live_stop(&live);
}

Test(daemon_files, a_helper_that_dies_is_no_end_of_the_sandbox)
{
	struct live live;
	struct held held;
	struct fate fate;
	COMMAND(eat, "/usr/bin/python3", "-c", "b = bytearray(1 << 30)");

	LIVE_START(&live, "", FILES_POOL);
	held = live_acquire(&live, "default");
	cr_assert(write_begin(&live, &held, &fate, "/tmp/f") == 0);
	live_let_pass(&live, 20);
	/* The kernel takes whom it likes, mostly the eater; the sandbox goes on. */
	(void)live_exec(&live, &held, &eat);
	if (!fate.done)
		sp_file_write_commit(fate.write);
	LIVE_WAIT(&live, fate.done);
	cr_assert(!fate.failed || fate.err.code == SP_CODE_UNAVAILABLE, "%s", fate.err.message);
	cr_assert(FILE_DO(sp_file_stat, &live, &held, &fate, "/tmp", fate_on_stat));
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_files, stop_waits_for_them_once)
{
	struct live live;
	struct held held;
	struct fate fate;
	struct fate late;

	LIVE_START(&live, "", FILES_POOL);
	held = live_acquire(&live, "default");
	cr_assert(write_begin(&live, &held, &fate, "/tmp/f") == 0);
	sp_daemon_stop(live.service);
	live_let_pass(&live, 100);
	cr_assert(!live.ended && !fate.done);
	cr_assert(FILE_BEGIN(sp_file_stat, &live, &held, &late, "/tmp", fate_on_stat) < 0);
	cr_assert(late.err.code == SP_CODE_UNAVAILABLE);
	sp_file_write_commit(fate.write);
	LIVE_WAIT(&live, fate.done && live.ended);
	cr_assert(!fate.failed);
	live_close(&live);

	LIVE_START(&live, "", FILES_POOL);
	held = live_acquire(&live, "default");
	cr_assert(write_begin(&live, &held, &fate, "/tmp/f") == 0);
	sp_daemon_stop(live.service);
	sp_daemon_stop(live.service); /* no more patience */
	LIVE_WAIT(&live, fate.done && live.ended);
	cr_assert(fate.failed && fate.err.code == SP_CODE_SANDBOX_DEAD, "%s", fate.err.message);
	live_close(&live);
}

Test(daemon_files, nothing_is_left_open)
{
	struct live live;
	struct held held;
	struct fate fate;
	size_t before;

	LIVE_START(&live, "", FILES_POOL);
	held = live_acquire(&live, "default");
	cr_assert(FILE_DO(sp_file_stat, &live, &held, &fate, "/tmp", fate_on_stat));
	live_let_pass(&live, 20);
	before = open_descriptors();
	for (int i = 0; i < 100; i++) {
		cr_assert(FILE_DO(sp_file_open, &live, &held, &fate, "/etc/passwd", fate_on_open));
		sp_fd_close(&fate.fd);
		cr_assert(FILE_BEGIN(sp_file_open, &live, &held, &fate, "/etc/passwd",
				     fate_on_open) == 0);
		if (i % 2 == 0)
			live_let_pass(&live, 1);
		if (!fate.done)
			sp_file_op_cancel(fate.op);
		else
			sp_fd_close(&fate.fd);
	}
	live_let_pass(&live, 50);
	cr_assert(open_descriptors() == before);
	live_release(&live, &held);
	live_stop(&live);
}
