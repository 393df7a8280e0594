/*
 * sandpool-compile as the launcher runs it: descriptors by number, faults on stderr, exit status.
 */
#include "tests/unit/test_config.h"

#include "supervisor/sandbox/memfd.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGS_MAX 12

static char directory[64];
static char program[PATH_MAX];

/* Built into bin/ beside the folder of this test. */
static void set_up(void)
{
	ssize_t len = readlink("/proc/self/exe", program, sizeof(program) - 64);
	char *slash;

	cr_assert(len > 0);
	program[len] = '\0';
	slash = strrchr(program, '/');
	snprintf(slash, 64, "/../bin/sandpool-compile");
	snprintf(directory, sizeof(directory), "/tmp/sandpool-compile-XXXXXX");
	cr_assert_not_null(mkdtemp(directory));
	cr_assert(chdir(directory) == 0);
}

static int remove_one(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
	SP_UNUSED(stat);
	SP_UNUSED(type);
	SP_UNUSED(ftw);
	return remove(path);
}

static void tear_down(void)
{
	nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

TestSuite(config_compile, .init = set_up, .fini = tear_down);

struct outcome {
	int status;
	char messages[4096];
	int table_fd;
	int resolved_fd;
};

static void write_config(const char *text)
{
	int fd = open("config.json", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	cr_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

/* 5 and 6 are the table and the resolved configuration. */
static struct outcome run(const char *const args[])
{
	struct outcome outcome = {.table_fd = sp_memfd_new("table"),
				  .resolved_fd = sp_memfd_new("resolved")};
	int messages_fd = sp_memfd_new("messages");
	posix_spawn_file_actions_t actions;
	char *argv[ARGS_MAX] = {program};
	char *environment[] = {NULL};
	int wait_status;
	pid_t pid;

	for (size_t i = 0; args[i]; i++)
		argv[i + 1] = strdup(args[i]);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, messages_fd, STDERR_FILENO);
	posix_spawn_file_actions_adddup2(&actions, outcome.table_fd, 105);
	posix_spawn_file_actions_adddup2(&actions, outcome.resolved_fd, 106);
	cr_assert(posix_spawn(&pid, program, &actions, NULL, argv, environment) == 0);
	posix_spawn_file_actions_destroy(&actions);
	for (size_t i = 1; argv[i]; i++)
		free(argv[i]);
	cr_assert(waitpid(pid, &wait_status, 0) == pid);
	cr_assert(WIFEXITED(wait_status));
	outcome.status = WEXITSTATUS(wait_status);
	cr_assert(pread(messages_fd, outcome.messages, sizeof(outcome.messages) - 1, 0) >= 0);
	close(messages_fd);
	return outcome;
}

static struct outcome compile(void)
{
	const char *const args[] = {"--config",      "config.json", "--table-fd", "105",
				    "--resolved-fd", "106",         NULL};

	if (access(program, X_OK) != 0)
		cr_skip_test("sandpool-compile is not built");
	return run(args);
}

static off_t size_of(int fd)
{
	struct stat stat;

	cr_assert(fstat(fd, &stat) == 0);
	return stat.st_size;
}

static void done(struct outcome *outcome)
{
	close(outcome->table_fd);
	close(outcome->resolved_fd);
}

Test(config_compile, a_good_file_gives_a_table_and_a_configuration)
{
	struct sp_config *config;
	struct outcome outcome;
	struct sp_err err = {0};
	const void *table;
	size_t size;
	char *text;

	write_config("{\"pools\": {\"p\": {\"max_idle\": 3}}}");
	outcome = compile();
	cr_assert(outcome.status == 0, "%s", outcome.messages);
	cr_assert_str_eq(outcome.messages, "");
	cr_assert(sp_memfd_seal(outcome.table_fd) == 0);
	cr_assert(sp_memfd_map(outcome.table_fd, SP_TABLE_SIZE_MAX, &table, &size, &err) == 0);
	cr_assert(sp_table_check(table, size, &err) == 0, "%s", err.message);
	text = calloc(1, (size_t)size_of(outcome.resolved_fd) + 1);
	cr_assert(pread(outcome.resolved_fd, text, (size_t)size_of(outcome.resolved_fd), 0) > 0);
	config = parse_good(text);
	cr_assert(config->pools[0].policy.max_idle == 3);
	cr_assert(sp_table_pools(table)->generation == config->pools[0].policy.spec_generation);
	sp_config_free(config);
	free(text);
	munmap((void *)(uintptr_t)table, size);
	done(&outcome);
}

Test(config_compile, secrets_reach_only_the_resolved_configuration)
{
	static const char key[] = "0123456789abcdef";
	struct outcome outcome;
	char *table;
	char *resolved;
	int fd = open("keys", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	char text[256];

	cr_assert(fd >= 0 && write(fd, key, strlen(key)) == (ssize_t)strlen(key));
	close(fd);
	snprintf(text, sizeof(text), "{\"api_keys_file\": \"%s/keys\"}", directory);
	write_config(text);
	outcome = compile();
	cr_assert(outcome.status == 0, "%s", outcome.messages);
	table = calloc(1, (size_t)size_of(outcome.table_fd) + 1);
	resolved = calloc(1, (size_t)size_of(outcome.resolved_fd) + 1);
	cr_assert(pread(outcome.table_fd, table, (size_t)size_of(outcome.table_fd), 0) > 0);
	cr_assert(pread(outcome.resolved_fd, resolved, (size_t)size_of(outcome.resolved_fd), 0) >
		  0);
	cr_assert_null(memmem(table, (size_t)size_of(outcome.table_fd), key, strlen(key)));
	cr_assert_not_null(strstr(resolved, key));
	free(table);
	free(resolved);
	done(&outcome);
}

Test(config_compile, faults_are_listed_and_nothing_is_written)
{
	struct outcome outcome;

	write_config("{\n\"stroe\": 1,\n\"max_connections\": 0}");
	outcome = compile();
	cr_assert(outcome.status == 1);
	cr_assert_str_eq(outcome.messages,
			 "config.json:2: stroe: unknown key, did you mean 'store'?\n"
			 "config.json:3: max_connections: must be from 1 to 65536\n");
	cr_assert(size_of(outcome.table_fd) == 0 && size_of(outcome.resolved_fd) == 0);
	done(&outcome);
}

Test(config_compile, what_cannot_be_built_is_one_line)
{
	struct outcome outcome;

	write_config("{\"pools\": {\"p\": {\"root\": \"/nonexistent/image\"}}}");
	outcome = compile();
	cr_assert(outcome.status == 1);
	cr_assert_not_null(strstr(outcome.messages, "config.json: pool 'p': open root "
						    "'/nonexistent/image'"));
	cr_assert(strchr(outcome.messages, '\n') == strrchr(outcome.messages, '\n'));
	done(&outcome);
}

Test(config_compile, a_file_of_somebody_else_is_refused)
{
	struct outcome outcome;

	if (geteuid() != 0)
		cr_skip_test("needs root to give files away");
	write_config("{}");
	cr_assert(chown("config.json", 1000, 1000) == 0);
	outcome = compile();
	cr_assert(outcome.status == 1);
	cr_assert_not_null(strstr(outcome.messages, "owned by uid 1000"));
	done(&outcome);
}

Test(config_compile, wrong_arguments_are_refused)
{
	const char *const none[] = {NULL};
	const char *const no_table[] = {"--config", "config.json", "--resolved-fd", "106", NULL};
	const char *const stderr_fd[] = {"--config",      "config.json", "--table-fd", "2",
					 "--resolved-fd", "106",         NULL};
	const char *const no_number[] = {"--config",      "config.json", "--table-fd", "5x",
					 "--resolved-fd", "106",         NULL};
	const char *const extra[] = {"--config",      "config.json", "--table-fd", "105",
				     "--resolved-fd", "106",         "more",       NULL};
	const char *const unknown[] = {"--confg",       "config.json", "--table-fd", "105",
				       "--resolved-fd", "106",         NULL};
	const char *const *const all[] = {none, no_table, stderr_fd, no_number, extra, unknown};

	if (access(program, X_OK) != 0)
		cr_skip_test("sandpool-compile is not built");
	write_config("{}");
	for (size_t i = 0; i < SP_ARRAY_SIZE(all); i++) {
		struct outcome outcome = run(all[i]);

		cr_assert(outcome.status == 1);
		cr_assert_not_null(strstr(outcome.messages, "usage: sandpool-compile"));
		cr_assert(size_of(outcome.table_fd) == 0);
		done(&outcome);
	}
}

Test(config_compile, a_descriptor_that_is_not_there_is_an_error)
{
	const char *const args[] = {"--config",      "config.json", "--table-fd", "205",
				    "--resolved-fd", "106",         NULL};
	struct outcome outcome;

	if (access(program, X_OK) != 0)
		cr_skip_test("sandpool-compile is not built");
	write_config("{}");
	outcome = run(args);
	cr_assert(outcome.status == 1);
	cr_assert_not_null(strstr(outcome.messages, "write the table: Bad file descriptor"));
	done(&outcome);
}
