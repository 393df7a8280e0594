/*
 * Loading and exchanging tables: failures name their cause and change nothing.
 */
#include "tests/sandbox/launcher_harness.h"

#include "pool/base/fd.h"
#include "supervisor/sandbox/memfd.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void skip_if_missing(void)
{
	if (play_missing())
		cr_skip_test("%s", play_missing());
}

TestSuite(launcher_config, .init = skip_if_missing, .timeout = 120);

static void end(struct play *play)
{
	struct play_sandbox sandbox;

	play_ready(play, 0, &sandbox);
	(void)play_kill(play, &sandbox);
	play_stop(play);
	play_clean(play);
}

/* The answer to HELLO or RELOAD, with the text of its file. */
static int config(struct play *play, uint64_t request, char *text, size_t size)
{
	struct play_answer answer;
	ssize_t got;

	play_expect(play, SP_LAUNCHER_CONFIG, request, &answer);
	cr_assert(answer.fd_count == 1 && sp_memfd_sealed(answer.fds[0]));
	got = pread(answer.fds[0], text, size - 1, 0);
	cr_assert(got >= 0);
	text[got] = '\0';
	play_close(&answer);
	return answer.record.status;
}

static int reload(struct play *play, char *text, size_t size)
{
	return config(play, play_command(play, SP_LAUNCHER_RELOAD, 0, 0, 0), text, size);
}

static void adopt(struct play *play, uint32_t value)
{
	struct play_answer answer;
	uint64_t request = play_command(play, SP_LAUNCHER_ADOPT_TABLE, 0, 0, value);

	play_expect(play, SP_LAUNCHER_DONE, request, &answer);
}

Test(launcher_config, passes_on_the_resolved_configuration_and_the_complaints)
{
	struct play play;
	struct sp_table *table = play_table(&play, 1);
	char text[256];

	play_write_config(&play, "faulty", 6);
	play_exec(&play);
	cr_assert(config(&play, play_hello(&play), text, sizeof(text)) == -EINVAL);
	cr_assert_str_eq(text, "line 7: unknown key 'poools'\n");
	play_write_config(&play, "abort", 5);
	cr_assert(reload(&play, text, sizeof(text)) == -ECHILD);
	play_write_config(&play, "empty", 5);
	cr_assert(reload(&play, text, sizeof(text)) == -ENODATA);
	/* It goes on, and starts as soon as the file is right. */
	play_write_table(&play, table);
	cr_assert(reload(&play, text, sizeof(text)) == 0);
	cr_assert_str_eq(text, "{\"resolved\":true}");
	end(&play);
	free(table);
}

Test(launcher_config, believes_no_table_that_is_wrong)
{
	struct play play;
	struct sp_table *table = play_table(&play, 2);
	char text[256];

	play_pool(table, 1)->mounts[0].kind = 99;
	play_write_table(&play, table);
	play_exec(&play);
	cr_assert(config(&play, play_hello(&play), text, sizeof(text)) == -EINVAL);
	cr_assert(strstr(text, "pool 'pool1': mount 0: bad 'kind'"), "%s", text);
	play_pool(table, 1)->mounts[0].kind = SP_MOUNT_BIND;
	(void)snprintf(play_pool(table, 1)->mounts[0].source, 32, "/does/not/exist");
	play_write_table(&play, table);
	cr_assert(reload(&play, text, sizeof(text)) == -ENOENT);
	cr_assert(strstr(text, "'/does/not/exist'"), "%s", text);
	(void)snprintf(play_pool(table, 1)->mounts[0].source, 32, "/usr");
	table->uid_base = 0;
	play_write_table(&play, table);
	cr_assert(reload(&play, text, sizeof(text)) == -EINVAL);
	cr_assert(strstr(text, "uid_base"), "%s", text);
	table->uid_base = PLAY_UID_BASE;
	play_write_table(&play, table);
	cr_assert(reload(&play, text, sizeof(text)) == 0);
	end(&play);
	free(table);
}

Test(launcher_config, a_reload_waits_for_its_adoption)
{
	struct play play;
	struct play_sandbox old;
	struct play_sandbox sandbox;
	struct sp_table *table = play_table(&play, 1);
	char text[256];
	uint64_t request;

	play_start(&play, table);
	play_ready(&play, 0, &old);
	request = play_command(&play, SP_LAUNCHER_ADOPT_TABLE, 0, 0, 1);
	play_expect_failure(&play, request, -ENOENT, NULL);
	play_pool(table, 0)->generation = PLAY_GENERATION + 1;
	(void)snprintf(play_pool(table, 0)->hostname, 64, "changed");
	play_write_table(&play, table);
	/* Dropped: nothing happened. */
	cr_assert(reload(&play, text, sizeof(text)) == 0);
	request = play_command(&play, SP_LAUNCHER_ADOPT_TABLE, 0, 0, 2);
	play_expect_failure(&play, request, -EINVAL, NULL);
	adopt(&play, 0);
	play_ready(&play, 0, &sandbox);
	(void)play_kill(&play, &sandbox);
	/* Adopted: only the new generation is made, the old sandbox lives on. */
	cr_assert(reload(&play, text, sizeof(text)) == 0);
	adopt(&play, 1);
	play_expect_failure(&play, play_create_request(&play, 0, &sandbox), -ESTALE, NULL);
	cr_assert(play_shell(&old, "hostname", text, sizeof(text)) == 0);
	cr_assert_str_eq(text, "sandbox\n");
	play_pool(table, 0)->generation = PLAY_GENERATION;
	play_write_table(&play, table);
	cr_assert(reload(&play, text, sizeof(text)) == 0);
	adopt(&play, 1);
	play_ready(&play, 0, &sandbox);
	cr_assert(play_shell(&sandbox, "hostname", text, sizeof(text)) == 0);
	cr_assert_str_eq(text, "changed\n");
	(void)play_kill(&play, &sandbox);
	(void)play_kill(&play, &old);
	end(&play);
	free(table);
}

Test(launcher_config, a_failed_reload_leaves_the_current_table)
{
	struct play play;
	struct sp_table *table = play_table(&play, 1);
	char text[256];
	uint64_t request;

	play_start(&play, table);
	play_write_config(&play, "faulty", 6);
	cr_assert(reload(&play, text, sizeof(text)) == -EINVAL);
	request = play_command(&play, SP_LAUNCHER_ADOPT_TABLE, 0, 0, 1);
	play_expect_failure(&play, request, -ENOENT, NULL);
	play_append(table->instance, sizeof(table->instance), "x");
	play_write_table(&play, table);
	cr_assert(reload(&play, text, sizeof(text)) == -EINVAL);
	cr_assert(strstr(text, "cannot change by a reload"), "%s", text);
	end(&play);
	free(table);
}

Test(launcher_config, the_limit_counts_over_reloads)
{
	struct play play;
	struct play_sandbox a;
	struct play_sandbox b;
	struct sp_table *table = play_table(&play, 2);
	char text[256];

	play_pool(table, 1)->max_sandboxes = 1;
	play_start(&play, table);
	play_ready(&play, 1, &a);
	/* The same pool by name, at another place. */
	table->pool_count = 2;
	(void)snprintf(play_pool(table, 0)->name, 64, "pool1");
	(void)snprintf(play_pool(table, 1)->name, 64, "pool0");
	play_pool(table, 0)->max_sandboxes = 1;
	play_pool(table, 1)->max_sandboxes = 1;
	play_write_table(&play, table);
	cr_assert(reload(&play, text, sizeof(text)) == 0);
	adopt(&play, 1);
	play_expect_failure(&play, play_create_request(&play, 0, &b), -EAGAIN, NULL);
	play_ready(&play, 1, &b);
	(void)play_kill(&play, &a);
	(void)play_kill(&play, &b);
	end(&play);
	free(table);
}

/* B-083 for reloads: templates, tables and their files go with the last user. */
Test(launcher_config, many_reloads_leave_nothing)
{
	struct play play;
	struct sp_table *table = play_table(&play, 3);
	char text[256];
	int descriptors = 0;

	play_start(&play, table);
	for (int i = 0; i < 30; i++) {
		cr_assert(reload(&play, text, sizeof(text)) == 0);
		adopt(&play, (uint32_t)i % 2);
		if (i == 3)
			descriptors = play_fd_count(play.launcher);
	}
	{
		struct play_sandbox sandbox;

		play_ready(&play, 0, &sandbox);
		(void)play_kill(&play, &sandbox);
	}
	cr_assert(play_fd_count(play.launcher) == descriptors);
	end(&play);
	free(table);
}

/* Sandboxes that live long must not stop an operator from reloading what he has not changed. */
Test(launcher_config, a_table_that_makes_the_same_takes_the_sandboxes_over)
{
	struct play play;
	struct play_sandbox sandboxes[12];
	struct sp_table *table = play_table(&play, 2);
	char text[256];

	play_pool(table, 0)->max_sandboxes = SP_ARRAY_SIZE(sandboxes);
	play_start(&play, table);
	for (size_t i = 0; i < SP_ARRAY_SIZE(sandboxes); i++) {
		play_ready(&play, 0, &sandboxes[i]);
		cr_assert(reload(&play, text, sizeof(text)) == 0, "%s", text);
		adopt(&play, 1);
	}
	play_expect_failure(&play, play_create_request(&play, 0, &(struct play_sandbox){0}),
			    -EAGAIN, NULL);
	for (size_t i = 0; i < SP_ARRAY_SIZE(sandboxes); i++)
		(void)play_kill(&play, &sandboxes[i]);
	end(&play);
	free(table);
}

/* Tables held by old sandboxes: eight in all, the ninth is refused. */
Test(launcher_config, refuses_the_first_above_its_tables)
{
	struct play play;
	struct play_sandbox sandboxes[9];
	struct sp_table *table = play_table(&play, 1);
	char text[256];
	size_t made = 0;

	play_start(&play, table);
	for (; made < 7; made++) {
		struct sp_table_pool *pool = play_pool(table, 0);

		play_ready(&play, 0, &sandboxes[made]);
		/* Each lets a sandbox bind something else. */
		pool->root_count = 1;
		(void)snprintf(pool->roots[0].path, sizeof(pool->roots[0].path), "%s/%zu", play.dir,
			       made);
		play_write_table(&play, table);
		cr_assert(reload(&play, text, sizeof(text)) == 0);
		adopt(&play, 1);
	}
	play_ready(&play, 0, &sandboxes[made]);
	cr_assert(reload(&play, text, sizeof(text)) == -EBUSY);
	(void)play_kill(&play, &sandboxes[0]);
	cr_assert(reload(&play, text, sizeof(text)) == 0);
	adopt(&play, 0);
	for (size_t i = 1; i <= made; i++)
		(void)play_kill(&play, &sandboxes[i]);
	end(&play);
	free(table);
}
