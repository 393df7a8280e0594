/*
 * Sandboxes, pools, binds, reload and stop through service.h, on a real daemon.
 */
#include "daemon_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#define POOL "\"default\": {\"max_idle\": 2}"

static const struct sp_caller nobody_caller = {0};
static const struct sp_caller other_caller = {
	.may_acquire = true,
	.secret = "0000000000000000000000000000000000000000000000000000000000000000",
};

Test(daemon_service, secret_opens_its_sandbox_and_no_other)
{
	struct live live;
	struct sp_sandbox_info info;
	struct sp_err wrong = {0};
	struct sp_err unknown = {0};
	struct held held;
	struct held second;

	LIVE_START(&live, "", POOL);
	held = live_acquire(&live, "default");
	second = live_acquire(&live, "default");
	cr_assert(sp_service_inspect(live.service, &held.caller, held.id, &info, NULL) == 0);
	cr_assert(info.sandbox->state == SP_SANDBOX_LEASED && info.remaining_ms > 0);
	cr_assert_str_eq(info.pool, "default");
	cr_assert(sp_service_inspect(live.service, &second.caller, held.id, &info, &wrong) < 0);
	cr_assert(sp_service_inspect(live.service, &nobody_caller, held.id, &info, NULL) < 0);
	cr_assert(sp_service_release(live.service, &other_caller, held.id, NULL) < 0);
	/* The same words, up to the id, as for one that never was. */
	cr_assert(sp_service_inspect(live.service, &second.caller, "00000000000000000000", &info,
				     &unknown) < 0);
	cr_assert(wrong.code == SP_CODE_NOT_FOUND && unknown.code == SP_CODE_NOT_FOUND);
	memcpy(strstr(wrong.message, held.id), "00000000000000000000", SP_SANDBOX_ID_LEN);
	cr_assert_str_eq(wrong.message, unknown.message);
	cr_assert(sp_service_inspect(live.service, &operator_caller, held.id, &info, NULL) == 0);
	cr_assert(info.host_pid > 0);
	live_release(&live, &held);
	live_release(&live, &second);
	live_stop(&live);
}

Test(daemon_service, lease_id_of_the_client_and_its_repetition)
{
	static const char secret[] = "correct horse battery staple";
	char lease_id[SP_LEASE_ID_LEN + 1];
	struct live live;
	struct sp_service_acquire request = wish("default");
	struct sp_caller caller = {.secret = secret};
	struct sp_sandbox_info info;
	struct held first;
	struct held again;

	LIVE_START(&live, "", POOL);
	cr_assert(secret_lease_id(secret, lease_id) == 0);
	request.lease_id = lease_id;
	live_acquire_as(&live, &request, &first);
	live_acquire_as(&live, &request, &again);
	cr_assert(!first.refused && !again.refused);
	cr_assert_str_eq(first.id, again.id);
	cr_assert(first.secret[0] == '\0', "only one that we drew is told");
	cr_assert(sp_service_inspect(live.service, &caller, first.id, &info, NULL) == 0);
	request.ttl_ms = 5000;
	live_acquire_as(&live, &request, &again);
	cr_assert(again.refused && again.err.code == SP_CODE_LEASE_MISMATCH);
	request.lease_id = "ABC";
	live_acquire_as(&live, &request, &again);
	cr_assert(again.refused && again.err.code == SP_CODE_INVALID_ARGUMENT);
	live_stop(&live);
}

Test(daemon_service, release_is_idempotent_and_the_end_is_told)
{
	struct live live;
	struct sp_sandbox_info info;
	struct sp_err err = {0};
	struct held held;

	LIVE_START(&live, "", POOL);
	held = live_acquire(&live, "default");
	live_release(&live, &held);
	live_release(&live, &held);
	LIVE_WAIT(&live, tomb_find(live.service, held.id));
	live_release(&live, &held);
	cr_assert(sp_service_renew(live.service, &held.caller, held.id, 1000, &info, &err) < 0);
	cr_assert(err.code == SP_CODE_LEASE_ENDED);
	cr_assert(sp_service_renew(live.service, &other_caller, held.id, 1000, &info, &err) < 0);
	cr_assert(err.code == SP_CODE_NOT_FOUND, "the end is only its holder's to know");
	live_stop(&live);
}

Test(daemon_service, renewal_moves_the_end)
{
	struct live live;
	struct sp_service_acquire request = wish("default");
	struct sp_sandbox_info info;
	struct sp_err err = {0};
	struct held held;
	int64_t before_ms;

	LIVE_START(&live, "", "\"default\": {\"max_idle\": 1, \"max_lease\": \"1h\"}");
	request.ttl_ms = 1000;
	live_acquire_as(&live, &request, &held);
	cr_assert(sp_service_renew(live.service, &held.caller, held.id, 3600001, &info, &err) < 0);
	cr_assert(err.code == SP_CODE_INVALID_ARGUMENT);
	before_ms = sp_clock_boot_ms();
	cr_assert(sp_service_renew(live.service, &held.caller, held.id, 3600000, &info, &err) == 0);
	cr_assert(info.sandbox->expires_ms >= before_ms + 3600000);
	cr_assert(info.sandbox->expires_ms <= sp_clock_boot_ms() + 3600000);
	cr_assert(info.remaining_ms == info.sandbox->expires_ms - info.now_ms);
	cr_assert(info.sandbox->claimed);
	live_let_pass(&live, 1500);
	cr_assert(sp_service_inspect(live.service, &held.caller, held.id, &info, &err) == 0);
	cr_assert(info.sandbox->state == SP_SANDBOX_LEASED);
	live_stop(&live);
}

Test(daemon_service, waiter_that_left_takes_nothing)
{
	struct live live;
	struct sp_service_acquire request = wish("default");
	struct sp_service_op *op;
	struct sp_err err = {0};
	struct held first;
	struct held gone = {0};
	struct held next;

	LIVE_START(&live, "", "\"default\": {\"max_idle\": 1, \"max_total\": 1}");
	first = live_acquire(&live, "default");
	cr_assert(sp_service_acquire(live.service, &operator_caller, &request, held_on_answer,
				     &gone, &op, &err) == 0);
	live_let_pass(&live, 20);
	sp_service_acquire_cancel(op);
	live_release(&live, &first);
	next = live_acquire(&live, "default");
	cr_assert(!gone.answered);
	cr_assert_str_neq(next.id, first.id);
	/* One that was granted and not yet told is released. */
	live_release(&live, &next);
	LIVE_WAIT(&live, live_full(&live, "default"));
	cr_assert(sp_service_acquire(live.service, &operator_caller, &request, held_on_answer,
				     &gone, &op, &err) == 0);
	sp_service_acquire_cancel(op);
	LIVE_WAIT(&live, live_full(&live, "default"));
	cr_assert(!gone.answered);
	live_stop(&live);
}

Test(daemon_service, refusals_have_their_codes)
{
	struct live live;
	struct sp_service_acquire request = wish("nosuch");
	struct sp_err err = {0};
	struct held held;

	LIVE_START(&live, "", "\"default\": {\"max_idle\": 0}");
	live_acquire_as(&live, &request, &held);
	cr_assert(held.err.code == SP_CODE_POOL_NOT_FOUND);
	request.pool = "default";
	request.policy = SP_ACQUIRE_FAIL_FAST;
	live_acquire_as(&live, &request, &held);
	cr_assert(held.err.code == SP_CODE_POOL_EMPTY);
	request.policy = SP_ACQUIRE_CREATE;
	live_acquire_as(&live, &request, &held);
	cr_assert(!held.refused, "%s", held.err.message);
	cr_assert(sp_service_acquire(live.service, &nobody_caller, &request, held_on_answer, &held,
				     NULL, &err) < 0);
	cr_assert(err.code == SP_CODE_UNAUTHORIZED);
	cr_assert(sp_service_pool_drain(live.service, &other_caller, "default", &err) < 0);
	cr_assert(err.code == SP_CODE_FORBIDDEN);
	cr_assert(sp_service_reload(live.service, &other_caller, NULL, NULL, &err) < 0);
	cr_assert(err.code == SP_CODE_FORBIDDEN);
	live_stop(&live);
}

static int count_sandbox(void *arg, const struct sp_sandbox_info *info)
{
	size_t *count = arg;

	cr_assert(info->sandbox->state != SP_SANDBOX_GONE);
	(*count)++;
	return 0;
}

Test(daemon_service, resize_drain_resume_and_readiness)
{
	struct live live;
	struct sp_err err = {0};
	const char *reason;
	size_t count = 0;

	LIVE_START(&live, "", POOL);
	cr_assert(!sp_service_ready(live.service, &reason) && reason[0] != '\0');
	LIVE_WAIT(&live, live_full(&live, "default"));
	cr_assert(sp_service_ready(live.service, &reason));
	cr_assert(sp_service_pool_resize(live.service, &operator_caller, "default", 5, -1, &err) ==
		  0);
	LIVE_WAIT(&live, live_pool(&live, "default").idle == 5);
	cr_assert(sp_service_each_sandbox(live.service, &operator_caller, "default", count_sandbox,
					  &count, &err) == 0);
	cr_assert(count == 5);
	cr_assert(sp_service_pool_drain(live.service, &operator_caller, "default", &err) == 0);
	LIVE_WAIT(&live,
		  live_pool(&live, "default").idle + live_pool(&live, "default").killing == 0);
	cr_assert(sp_service_pool_resume(live.service, &operator_caller, "default", &err) == 0);
	LIVE_WAIT(&live, live_full(&live, "default"));
	live_stop(&live);
}

/* ---- what replaces a sandbox that was handed out ---- */

/* Turns of the loop that wait for nothing: what is not put off by a time has happened after them.
 */
static void turn_a_few_times(struct live *live)
{
	for (int i = 0; i < 10; i++)
		(void)uv_run(&live->loop, UV_RUN_NOWAIT);
}

static bool refilling(struct live *live, const char *pool)
{
	struct sp_pool_snapshot now = live_pool(live, pool);

	return now.creating > 0 || now.idle == now.max_idle;
}

Test(daemon_service, a_replacement_does_not_disturb_a_client_while_there_is_plenty)
{
	struct live live;
	struct held held;
	int64_t granted_ms;

	LIVE_START(&live, "", "\"default\": {\"max_idle\": 6}");
	LIVE_WAIT(&live, live_full(&live, "default"));
	held = live_acquire(&live, "default");
	granted_ms = live.service->pools[0]->served_ms;
	LIVE_WAIT(&live, refilling(&live, "default"));
	cr_assert(sp_clock_boot_ms() - granted_ms >= 10);
	LIVE_WAIT(&live, live_full(&live, "default"));
	live_release(&live, &held);
	live_stop(&live);
}

/* Six: two may be missing, with the third half of them are. */
Test(daemon_service, a_pool_that_is_half_empty_is_filled_at_once)
{
	struct live live;
	struct held held[3];

	LIVE_START(&live, "", "\"default\": {\"max_idle\": 6}");
	LIVE_WAIT(&live, live_full(&live, "default"));
	for (size_t i = 0; i < SP_ARRAY_SIZE(held); i++)
		held[i] = live_acquire(&live, "default");
	turn_a_few_times(&live);
	cr_assert(refilling(&live, "default"));
	LIVE_WAIT(&live, live_full(&live, "default"));
	for (size_t i = 0; i < SP_ARRAY_SIZE(held); i++)
		live_release(&live, &held[i]);
	live_stop(&live);
}

Test(daemon_service, clients_that_go_on_do_not_put_off_a_replacement_for_ever)
{
	struct live live;
	struct held held;
	int64_t end_ms = sp_clock_boot_ms() + WAIT_MS;

	LIVE_START(&live, "", "\"default\": {\"max_idle\": 6}");
	LIVE_WAIT(&live, live_full(&live, "default"));
	held = live_acquire(&live, "default");
	while (!refilling(&live, "default")) {
		cr_assert(sp_clock_boot_ms() < end_ms);
		live.service->pools[0]->served_ms = sp_clock_boot_ms();
		(void)uv_run(&live.loop, UV_RUN_ONCE);
	}
	live_release(&live, &held);
	live_stop(&live);
}

/* ---- binds ---- */

static void make_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "we");

	cr_assert_not_null(file);
	cr_assert(fputs(text, file) >= 0 && fclose(file) == 0);
}

Test(daemon_service, binds_show_the_host_and_obey_their_mode)
{
	struct live live;
	COMMAND(use, "/bin/sh", "-c",
		"cat /data/rw/in; echo new > /data/rw/out; cat /data/ro/in; "
		"echo x > /data/ro/no || echo refused");
	struct sp_bind_request binds[2] = {{.target = "/data/rw", .mode = SP_BIND_RW},
					   {.target = "/data/ro", .mode = SP_BIND_RO}};
	struct sp_service_acquire request = wish("default");
	struct outcome outcome;
	struct held held;
	char root[] = "/tmp/sandpool-binds-XXXXXX";
	char source[64];
	char path[96];
	char pools[256];

	cr_assert_not_null(mkdtemp(root));
	(void)snprintf(source, sizeof(source), "%s/session", root);
	cr_assert(chmod(root, 0755) == 0 && mkdir(source, 0755) == 0);
	cr_assert(chown(source, 4711, 4711) == 0);
	(void)snprintf(path, sizeof(path), "%s/in", source);
	make_file(path, "seen\n");
	(void)snprintf(pools, sizeof(pools),
		       "\"default\": {\"max_idle\": 1, \"allowed_binds\": [\"%s\"]}", root);
	LIVE_START(&live, "", pools);
	binds[0].source = binds[1].source = source;
	request.binds = binds;
	request.bind_count = 2;
	live_acquire_as(&live, &request, &held);
	cr_assert(!held.refused, "%s", held.err.message);
	outcome = live_exec(&live, &held, &use);
	cr_assert_str_eq(outcome.text[1], "seen\nseen\nrefused\n");
	(void)snprintf(path, sizeof(path), "%s/out", source);
	{
		struct stat info;

		cr_assert(stat(path, &info) == 0 && info.st_uid == 4711);
	}
	live_stop(&live);
	live_remove_dir(root);
}

Test(daemon_service, bind_that_cannot_be_attached_ends_the_sandbox)
{
	struct live live;
	struct sp_bind_request bind = {.mode = SP_BIND_RO};
	struct sp_service_acquire request = wish("default");
	struct sp_pool_snapshot before;
	struct held held;

	LIVE_START(&live, "",
		   "\"default\": {\"max_idle\": 1, \"allowed_binds\": [\"/usr/share\"]}");
	LIVE_WAIT(&live, live_full(&live, "default"));
	request.binds = &bind;
	request.bind_count = 1;
	bind.source = "/etc";
	live_acquire_as(&live, &request, &held);
	cr_assert(held.refused && held.err.code == SP_CODE_BIND_REFUSED);
	before = live_pool(&live, "default");
	cr_assert(before.leased == 0, "refused before anything was taken");
	bind.source = "/usr/share/no-such-directory";
	live_acquire_as(&live, &request, &held);
	cr_assert(held.refused && held.err.code == SP_CODE_BIND_REFUSED, "%s", held.err.message);
	bind.source = "/usr/share/doc";
	bind.target = "/proc/sys";
	live_acquire_as(&live, &request, &held);
	cr_assert(held.refused && held.err.code == SP_CODE_NO_MOUNT_POINT, "%s", held.err.message);
	LIVE_WAIT(&live, live_full(&live, "default"));
	cr_assert(live_pool(&live, "default").ends_total[SP_END_DISCARDED] == 2);
	cr_assert(live_pool(&live, "default").leased == 0);
	live_stop(&live);
}

/* ---- reload ---- */

struct reloaded {
	bool answered;
	bool failed;
	struct sp_err err;
};

static void on_reloaded(void *arg, const struct sp_err *err)
{
	struct reloaded *reloaded = arg;

	reloaded->answered = true;
	reloaded->failed = err != NULL;
	if (err)
		reloaded->err = *err;
}

static struct reloaded reload(struct live *live)
{
	struct reloaded reloaded = {0};
	struct sp_err err = {0};

	cr_assert(sp_service_reload(live->service, &operator_caller, on_reloaded, &reloaded,
				    &err) == 0);
	cr_assert(sp_service_reload(live->service, &operator_caller, on_reloaded, &reloaded,
				    &err) == -EBUSY);
	LIVE_WAIT(live, reloaded.answered);
	return reloaded;
}

Test(daemon_service, reload_adds_changes_and_removes_pools)
{
	struct live live;
	COMMAND(command, "/bin/echo", "alive");
	struct sp_service_acquire request = wish("default");
	struct held held;

	LIVE_START(&live, "", POOL);
	held = live_acquire(&live, "default");
	live_write_config(&live, "",
			  "\"another\": {\"max_idle\": 1}, \"default\": {\"max_idle\": 3}");
	cr_assert(!reload(&live).failed);
	LIVE_WAIT(&live, live_pool(&live, "default").idle == 3);
	LIVE_WAIT(&live, live_pool(&live, "another").idle == 1);
	live_write_config(&live, "", "\"another\": {\"max_idle\": 1}");
	cr_assert(!reload(&live).failed);
	cr_assert_str_eq(live_exec(&live, &held, &command).text[1], "alive\n");
	request.policy = SP_ACQUIRE_FAIL_FAST;
	{
		struct held refused;

		live_acquire_as(&live, &request, &refused);
		cr_assert(refused.err.code == SP_CODE_POOL_NOT_FOUND);
	}
	live_release(&live, &held);
	LIVE_WAIT(&live, live.service->pool_count == 1);
	live_write_config(&live, "", "\"another\": {\"max_idle\": 1}, " POOL);
	cr_assert(!reload(&live).failed);
	LIVE_WAIT(&live, live_full(&live, "default"));
	live_stop(&live);
}

Test(daemon_service, bad_reload_changes_nothing_and_says_why)
{
	struct live live;
	struct reloaded reloaded;

	LIVE_START(&live, "", POOL);
	live_write_config(&live, "", "\"default\": {\"max_idle\": 9, \"max_idel\": 1}");
	reloaded = reload(&live);
	cr_assert(reloaded.failed && reloaded.err.code == SP_CODE_CONFIG_INVALID);
	cr_assert_not_null(strstr(reloaded.err.message, "max_idel"));
	live_write_config(&live, "\"uid_count\": 77", "\"default\": {\"max_idle\": 9}");
	reloaded = reload(&live);
	cr_assert(reloaded.failed && reloaded.err.code == SP_CODE_CONFIG_INVALID);
	live_write_config(&live, "\"admin_group\": \"\"", "\"default\": {\"max_idle\": 9}");
	{
		char command[256];

		(void)snprintf(command, sizeof(command), "sed -i s/none.sock/some.sock/ '%s'",
			       live.config_path);
		cr_assert(system(command) == 0);
	}
	reloaded = reload(&live);
	cr_assert(reloaded.failed && reloaded.err.code == SP_CODE_CONFIG_INVALID);
	cr_assert_not_null(strstr(reloaded.err.message, "listen: "), "%s", reloaded.err.message);
	LIVE_WAIT(&live, live_full(&live, "default"));
	cr_assert(live_pool(&live, "default").max_idle == 2);
	live_write_config(&live, "", "\"default\": {\"max_idle\": 4}");
	cr_assert(!reload(&live).failed, "a good one after a bad one");
	LIVE_WAIT(&live, live_pool(&live, "default").idle == 4);
	live_stop(&live);
}

/* ---- stop ---- */

Test(daemon_service, stop_lets_execs_finish_and_refuses_new_work)
{
	struct live live;
	COMMAND(command, "/bin/sh", "-c", "sleep 0.5; echo done");
	struct sp_service_acquire request = wish("default");
	struct outcome outcome;
	struct held held;
	struct held refused;

	LIVE_START(&live, "", POOL);
	held = live_acquire(&live, "default");
	live_begin(&live, &held, &command, &outcome);
	LIVE_WAIT(&live, outcome.started);
	sp_daemon_stop(live.service);
	live_acquire_as(&live, &request, &refused);
	cr_assert(refused.err.code == SP_CODE_UNAVAILABLE);
	LIVE_WAIT(&live, outcome.ended);
	cr_assert_str_eq(outcome.text[1], "done\n");
	LIVE_WAIT(&live, live.ended);
	cr_assert(live.exit_status == 0);
	live_close(&live);
}

Test(daemon_service, second_stop_does_not_wait)
{
	struct live live;
	COMMAND(command, "/bin/sleep", "600");
	struct outcome outcome;
	struct held held;

	LIVE_START(&live, "\"shutdown_timeout\": \"10m\"", POOL);
	held = live_acquire(&live, "default");
	live_begin(&live, &held, &command, &outcome);
	LIVE_WAIT(&live, outcome.started);
	sp_daemon_stop(live.service);
	live_let_pass(&live, 200);
	cr_assert(!live.ended && !outcome.ended);
	sp_daemon_stop(live.service);
	LIVE_WAIT(&live, live.ended);
	cr_assert(outcome.ended && outcome.result.reason == SP_EXEC_KILLED);
	live_close(&live);
}

Test(daemon_service, shutdown_timeout_bounds_the_grace)
{
	struct live live;
	COMMAND(command, "/bin/sleep", "600");
	struct outcome outcome;
	struct held held;

	LIVE_START(&live, "\"shutdown_timeout\": \"200ms\"", POOL);
	held = live_acquire(&live, "default");
	live_begin(&live, &held, &command, &outcome);
	LIVE_WAIT(&live, outcome.started);
	sp_daemon_stop(live.service);
	LIVE_WAIT(&live, live.ended);
	cr_assert(outcome.ended && outcome.result.reason == SP_EXEC_KILLED);
	live_close(&live);
}

Test(daemon_service, close_without_start_leaves_nothing)
{
	struct live live;

	LIVE_START(&live, "", POOL);
	live_stop(&live);
}

Test(daemon_service, loss_of_the_launcher_ends_the_daemon_and_the_next_cleans_up)
{
	static struct live live; /* never taken apart: the process would end now */
	struct live next;
	struct sp_sandbox_info info;
	struct held held;
	char path[64];
	char text[256] = "";
	long launcher = 0;
	FILE *file;

	LIVE_START(&live, "", POOL);
	held = live_acquire(&live, "default");
	cr_assert(sp_service_inspect(live.service, &operator_caller, held.id, &info, NULL) == 0);
	(void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", live.service->launcher_pidfd);
	file = fopen(path, "re");
	cr_assert_not_null(file);
	while (fgets(text, sizeof(text), file))
		(void)sscanf(text, "Pid: %ld", &launcher);
	(void)fclose(file);
	cr_assert(launcher > 1 && kill((pid_t)launcher, SIGKILL) == 0);
	LIVE_WAIT(&live, live.ended);
	cr_assert(live.exit_status == 1);
	/* The sandboxes went with it, and what is left of them goes at the next start. */
	while (kill((pid_t)info.host_pid, 0) == 0)
		live_let_pass(&live, 5);
	LIVE_START(&next, "", POOL);
	LIVE_WAIT(&next, live_full(&next, "default"));
	live_stop(&next);
	live_remove_dir(live.dir);
}

Test(daemon_service, metrics_tell_what_happened)
{
	struct live live;
	COMMAND(command, "/bin/true");
	struct sp_buf text;

	LIVE_START(&live, "", POOL);
	(void)live_run(&live, "default", &command);
	/* The result goes out before the sandbox does. */
	LIVE_WAIT(&live, live_pool(&live, "default").ends_total[SP_END_RELEASED] == 1 &&
				 live_full(&live, "default"));
	sp_buf_init(&text, 1 << 20);
	cr_assert(sp_metrics_write(sp_service_metrics(live.service), &text) == 0);
	cr_assert_not_null(strstr(sp_buf_text(&text),
				  "sandpool_sandboxes{pool=\"default\",state=\"idle\"} 2"));
	cr_assert_not_null(strstr(sp_buf_text(&text), "sandpool_acquire_total{pool=\"default\","));
	cr_assert_not_null(strstr(
		sp_buf_text(&text),
		"sandpool_exec_duration_seconds_count{pool=\"default\",reason=\"exited\"} 1"));
	cr_assert_not_null(strstr(sp_buf_text(&text),
				  "sandpool_ends_total{pool=\"default\",reason=\"released\"} 1"));
	cr_assert_not_null(strstr(sp_buf_text(&text), "sandpool_build_info{version="));
	sp_buf_done(&text);
	live_stop(&live);
}
