/*
 * The parts of the daemon that need no sandbox: exec records, binds' text, secrets, the lock of the
 * state directory, what a reload may change.
 */
#include "pool/base/fd.h"
#include "supervisor/daemon/daemon_private.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct sp_config_bind_root roots[] = {
	{.path = (char *)(uintptr_t) "/srv/a"},
	{.path = (char *)(uintptr_t) "/srv/a/deep", .read_only = true},
	{.path = (char *)(uintptr_t) "/opt/skills", .read_only = true},
};

static struct sp_config_pool make_pool(void)
{
	struct sp_config_pool pool = {
		.output_bytes = 1000,
		.default_timeout_ms = 5000,
		.bind_roots = roots,
		.bind_root_count = SP_ARRAY_SIZE(roots),
		.direct_uid = 77,
		.direct_gid = 78,
	};

	(void)snprintf(pool.policy.name, sizeof(pool.policy.name), "p");
	return pool;
}

/* ---- records ---- */

static const char *const true_argv[] = {"/bin/true"};

static struct sp_exec_spec make_spec(void)
{
	return (struct sp_exec_spec){.argv = true_argv, .argc = 1, .uid = -1, .gid = -1};
}

/* The code of the refusal, NONE if it was built. */
static enum sp_code build(const struct sp_exec_spec *spec, struct sp_exec *exec)
{
	struct sp_config_pool pool = make_pool();
	struct sp_err err = {0};
	int status;

	*exec = (struct sp_exec){.strings_fd = -1};
	status = exec_record_build(exec, &pool, spec, &err);
	if (status < 0)
		cr_assert(!exec->record && exec->strings_fd < 0, "half a record");
	return status < 0 ? err.code : SP_CODE_NONE;
}

static const char *string_at(const struct sp_exec *exec, size_t number)
{
	const char *at = (const char *)(exec->record + 1);

	while (number-- > 0)
		at += strlen(at) + 1;
	return at;
}

Test(daemon_parts, record_has_directory_arguments_and_environment_in_order)
{
	static const char *const argv[] = {"prog", "", "a b\n"};
	static const char *const env[] = {"X=1", "HOME=/root", "X=2", "E="};
	struct sp_exec_spec spec = make_spec();
	struct sp_exec exec;

	spec.argv = argv;
	spec.argc = 3;
	spec.env = env;
	spec.envc = 4;
	cr_assert(build(&spec, &exec) == SP_CODE_NONE);
	cr_assert_str_eq(string_at(&exec, 0), "/workspace");
	cr_assert_str_eq(string_at(&exec, 1), "prog");
	cr_assert_str_eq(string_at(&exec, 2), "");
	cr_assert_str_eq(string_at(&exec, 3), "a b\n");
	cr_assert(exec.record->argc == 3 && exec.record->envc == 5);
	cr_assert(strncmp(string_at(&exec, 4), "PATH=", 5) == 0);
	cr_assert_str_eq(string_at(&exec, 5), "HOME=/root");
	cr_assert_str_eq(string_at(&exec, 6), "LANG=C.UTF-8");
	cr_assert_str_eq(string_at(&exec, 7), "X=2");
	cr_assert_str_eq(string_at(&exec, 8), "E=");
	cr_assert(exec.record_len == sizeof(*exec.record) + exec.record->strings_length);
	cr_assert(exec.timeout_ms == 5000 && exec.output_limit == 1000);
	exec_record_free(&exec);
}

Test(daemon_parts, terminal_gets_term)
{
	struct sp_exec_spec spec = make_spec();
	struct sp_exec exec;

	spec.tty = true;
	cr_assert(build(&spec, &exec) == SP_CODE_NONE);
	cr_assert(strncmp(string_at(&exec, 5), "TERM=", 5) == 0);
	cr_assert(exec.record->flags == SP_EXEC_F_TTY);
	exec_record_free(&exec);
	spec.start_awaited = true;
	cr_assert(build(&spec, &exec) == SP_CODE_NONE);
	cr_assert(exec.record->flags == (SP_EXEC_F_TTY | SP_EXEC_F_AWAITED));
	exec_record_free(&exec);
}

Test(daemon_parts, every_entry_of_a_large_environment_survives)
{
	static char text[SP_INIT_ENV_MAX][16];
	static const char *env[SP_INIT_ENV_MAX];
	struct sp_exec_spec spec = make_spec();
	struct sp_exec exec;

	for (size_t i = 0; i < SP_INIT_ENV_MAX; i++) {
		(void)snprintf(text[i], sizeof(text[i]), "V%zu=%zu", i, i);
		env[i] = text[i];
	}
	spec.env = env;
	spec.envc = SP_INIT_ENV_MAX - 4;
	cr_assert(build(&spec, &exec) == SP_CODE_NONE);
	cr_assert(exec.record->envc == SP_INIT_ENV_MAX - 1);
	exec_record_free(&exec);
	spec.envc++;
	cr_assert(build(&spec, &exec) == SP_CODE_PAYLOAD_TOO_LARGE);
}

Test(daemon_parts, arguments_at_their_limit_and_one_more)
{
	static const char *argv[SP_INIT_ARGS_MAX + 1];
	struct sp_exec_spec spec = make_spec();
	struct sp_exec exec;

	for (size_t i = 0; i < SP_ARRAY_SIZE(argv); i++)
		argv[i] = "a";
	spec.argv = argv;
	spec.argc = SP_INIT_ARGS_MAX;
	cr_assert(build(&spec, &exec) == SP_CODE_NONE);
	exec_record_free(&exec);
	spec.argc++;
	cr_assert(build(&spec, &exec) == SP_CODE_PAYLOAD_TOO_LARGE);
	spec.argc = 0;
	cr_assert(build(&spec, &exec) == SP_CODE_INVALID_ARGUMENT);
	argv[0] = "";
	spec.argc = 1;
	cr_assert(build(&spec, &exec) == SP_CODE_INVALID_ARGUMENT);
}

/* Length of what comes beside one argument. */
static size_t fixed_length(void)
{
	struct sp_exec_spec spec = make_spec();
	struct sp_exec exec;
	size_t length;

	cr_assert(build(&spec, &exec) == SP_CODE_NONE);
	length = exec.record->strings_length - (strlen(true_argv[0]) + 1);
	exec_record_free(&exec);
	return length;
}

Test(daemon_parts, strings_go_inline_up_to_a_limit_then_by_memfd_up_to_another)
{
	static char big[SP_INIT_STRINGS_MAX + 1];
	const char *argv[] = {big};
	struct sp_exec_spec spec = make_spec();
	struct sp_exec exec;
	struct stat info;
	size_t rest = fixed_length() + 1;

	spec.argv = argv;
	memset(big, 'x', sizeof(big));
	big[SP_INIT_INLINE_MAX - rest] = '\0';
	cr_assert(build(&spec, &exec) == SP_CODE_NONE);
	cr_assert(exec.record->flags == 0 && exec.strings_fd < 0);
	cr_assert(exec.record->strings_length == SP_INIT_INLINE_MAX);
	exec_record_free(&exec);

	big[SP_INIT_INLINE_MAX - rest] = 'x';
	big[SP_INIT_INLINE_MAX - rest + 1] = '\0';
	cr_assert(build(&spec, &exec) == SP_CODE_NONE);
	cr_assert(exec.record->flags == SP_EXEC_F_STRINGS);
	cr_assert(exec.record_len == sizeof(*exec.record));
	cr_assert(fstat(exec.strings_fd, &info) == 0);
	cr_assert(info.st_size == (off_t)exec.record->strings_length);
	cr_assert(pwrite(exec.strings_fd, "y", 1, 0) < 0, "it is sealed");
	exec_record_free(&exec);
	cr_assert(exec.strings_fd < 0);

	big[SP_INIT_INLINE_MAX - rest + 1] = 'x';
	big[SP_INIT_STRINGS_MAX - rest] = '\0';
	cr_assert(build(&spec, &exec) == SP_CODE_NONE);
	cr_assert(exec.record->strings_length == SP_INIT_STRINGS_MAX);
	exec_record_free(&exec);
	big[SP_INIT_STRINGS_MAX - rest] = 'x';
	big[SP_INIT_STRINGS_MAX - rest + 1] = '\0';
	cr_assert(build(&spec, &exec) == SP_CODE_PAYLOAD_TOO_LARGE);
}

Test(daemon_parts, numbers_of_an_exec_are_checked)
{
	static const char *const bad_env[] = {"=x"};
	static const char *const no_value[] = {"NAME"};
	struct sp_exec_spec spec = make_spec();
	struct sp_exec exec;

#define REFUSED(field, value)                                               \
	do {                                                                \
		spec = make_spec();                                         \
		spec.field = (value);                                       \
		cr_assert(build(&spec, &exec) == SP_CODE_INVALID_ARGUMENT); \
	} while (0)
#define ACCEPTED(field, value)                                  \
	do {                                                    \
		spec = make_spec();                             \
		spec.field = (value);                           \
		cr_assert(build(&spec, &exec) == SP_CODE_NONE); \
		exec_record_free(&exec);                        \
	} while (0)

	REFUSED(uid, 0);
	REFUSED(uid, -2);
	ACCEPTED(uid, 1);
	ACCEPTED(uid, SP_ID_INSIDE_MAX);
	REFUSED(uid, SP_ID_INSIDE_MAX + 1);
	REFUSED(uid, INT64_C(4294967296));
	REFUSED(gid, 0);
	ACCEPTED(gid, SP_ID_INSIDE_MAX);
	REFUSED(timeout_ms, -1);
	ACCEPTED(timeout_ms, SP_EXEC_TIMEOUT_MAX_MS);
	REFUSED(timeout_ms, SP_EXEC_TIMEOUT_MAX_MS + 1);
	ACCEPTED(output_limit, 1000);
	REFUSED(output_limit, 1001);
	REFUSED(cwd, "relative");
	spec = make_spec();
	spec.env = bad_env;
	spec.envc = 1;
	cr_assert(build(&spec, &exec) == SP_CODE_INVALID_ARGUMENT);
	spec.env = no_value;
	cr_assert(build(&spec, &exec) == SP_CODE_INVALID_ARGUMENT);
}

Test(daemon_parts, direct_pool_runs_as_its_user_only)
{
	struct sp_config_pool pool = make_pool();
	struct sp_exec_spec spec = make_spec();
	struct sp_exec exec = {.strings_fd = -1};
	struct sp_err err = {0};

	pool.direct = true;
	cr_assert(exec_record_build(&exec, &pool, &spec, &err) == 0);
	cr_assert_str_eq(string_at(&exec, 0), "/");
	exec_record_free(&exec);
	spec.uid = 77;
	spec.gid = 78;
	cr_assert(exec_record_build(&exec, &pool, &spec, &err) == 0);
	exec_record_free(&exec);
	spec.uid = 1000;
	cr_assert(exec_record_build(&exec, &pool, &spec, &err) < 0);
	cr_assert(err.code == SP_CODE_FORBIDDEN);
}

/* ---- binds ---- */

static enum sp_code resolve(const char *source, const char *target, enum sp_bind_mode mode,
			    struct resolved_bind *ret)
{
	struct sp_config_pool pool = make_pool();
	struct sp_bind_request request = {.source = source, .target = target, .mode = mode};
	struct resolved_bind *binds = NULL;
	struct sp_err err = {0};

	if (binds_resolve(&pool, &request, 1, &binds, &err) < 0)
		return err.code;
	*ret = *binds;
	free(binds);
	return SP_CODE_NONE;
}

static void resolved_done(struct resolved_bind *bind)
{
	free(bind->source);
	free(bind->path);
	free(bind->target);
}

static void resolves_to(const char *source, const char *target, uint32_t root, const char *path,
			const char *inside)
{
	struct resolved_bind bind;

	cr_assert(resolve(source, target, SP_BIND_RO, &bind) == SP_CODE_NONE, "%s", source);
	cr_assert(bind.root_index == root && bind.read_only);
	cr_assert_str_eq(bind.path, path);
	cr_assert_str_eq(bind.target, inside);
	resolved_done(&bind);
}

Test(daemon_parts, bind_source_picks_the_deepest_root)
{
	resolves_to("/srv/a", NULL, 0, "", "/srv/a");
	resolves_to("/srv//a/", "/x/", 0, "", "/x");
	resolves_to("/srv/a/b/c", "/x", 0, "b/c", "/x");
	resolves_to("/srv/a/deep/c", "/x", 1, "c", "/x");
	resolves_to("/srv/a/deeper", "/x", 0, "deeper", "/x");
	resolves_to("/opt/skills/...", "/x", 2, "...", "/x");
}

Test(daemon_parts, bind_source_outside_of_the_roots_is_refused)
{
	static const char *const sources[] = {
		"/",     "/srv", "/srv/ab",        "/srv/a/../b", "/srv/a/./b",
		"srv/a", "",     "/opt/skillsets", "/srv/a/..",   "/../srv/a",
	};
	struct resolved_bind bind;

	for (size_t i = 0; i < SP_ARRAY_SIZE(sources); i++)
		cr_assert(resolve(sources[i], "/x", SP_BIND_RO, &bind) == SP_CODE_BIND_REFUSED,
			  "'%s'", sources[i]);
	cr_assert(resolve("/opt/skills/x", "/x", SP_BIND_RW, &bind) == SP_CODE_BIND_REFUSED);
	cr_assert(resolve("/srv/a", "x", SP_BIND_RO, &bind) == SP_CODE_INVALID_ARGUMENT);
	cr_assert(resolve("/srv/a", "/x/../etc", SP_BIND_RO, &bind) == SP_CODE_INVALID_ARGUMENT);
}

Test(daemon_parts, bind_lengths_and_counts_at_their_limits)
{
	static char path[SP_BIND_PATH_MAX + 1];
	struct sp_config_pool pool = make_pool();
	struct sp_bind_request requests[SP_BINDS_MAX + 1];
	struct resolved_bind *binds;
	struct resolved_bind bind;
	struct sp_err err = {0};

	memset(path, 'p', SP_BIND_PATH_MAX);
	memcpy(path, "/srv/a/", 7);
	cr_assert(resolve(path, "/x", SP_BIND_RO, &bind) == SP_CODE_INVALID_ARGUMENT);
	path[SP_BIND_PATH_MAX - 1] = '\0';
	cr_assert(resolve(path, "/x", SP_BIND_RO, &bind) == SP_CODE_NONE);
	resolved_done(&bind);
	for (size_t i = 0; i <= SP_BINDS_MAX; i++)
		requests[i] = (struct sp_bind_request){.source = "/srv/a", .target = "/x"};
	cr_assert(binds_resolve(&pool, requests, SP_BINDS_MAX, &binds, &err) == 0);
	binds_free(binds, SP_BINDS_MAX);
	cr_assert(binds_resolve(&pool, requests, SP_BINDS_MAX + 1, &binds, &err) < 0);
	cr_assert(err.code == SP_CODE_INVALID_ARGUMENT);
	pool.direct = true;
	cr_assert(binds_resolve(&pool, requests, 1, &binds, &err) < 0);
	cr_assert(err.code == SP_CODE_UNSUPPORTED);
}

/* ---- secrets ---- */

Test(daemon_parts, lease_id_is_the_hash_of_the_secret)
{
	static char longest[SP_SECRET_TEXT_MAX + 2];
	char lease_id[SP_LEASE_ID_LEN + 1];

	cr_assert(secret_lease_id("abc", lease_id) == 0);
	cr_assert_str_eq(lease_id, /* FIPS 180-4, example B.1 */
			 "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	cr_assert(secret_opens("abc", lease_id));
	cr_assert(!secret_opens("abd", lease_id));
	cr_assert(!secret_opens(NULL, lease_id));
	cr_assert(!secret_opens("abc", ""), "a sandbox without lease opens for nobody");
	cr_assert(secret_lease_id("", lease_id) == -EINVAL);
	memset(longest, 's', SP_SECRET_TEXT_MAX + 1);
	cr_assert(secret_lease_id(longest, lease_id) == -EINVAL);
	longest[SP_SECRET_TEXT_MAX] = '\0';
	cr_assert(secret_lease_id(longest, lease_id) == 0);
}

/* ---- state directory ---- */

Test(daemon_parts, state_directory_is_one_daemons)
{
	char base[] = "/tmp/sandpool-state-XXXXXX";
	char path[64];
	char file[96];
	struct sp_err err = {0};
	struct stat info;
	int lock;
	int second = -1;

	cr_assert_not_null(mkdtemp(base));
	(void)snprintf(path, sizeof(path), "%s/state", base);
	cr_assert(state_dir_lock(path, geteuid(), getegid(), &lock, &err) == 0, "%s", err.message);
	cr_assert(stat(path, &info) == 0 && (info.st_mode & 07777) == 0700);
	cr_assert(state_dir_lock(path, geteuid(), getegid(), &second, &err) == -EBUSY);
	cr_assert(err.code == SP_CODE_CONFLICT);
	(void)snprintf(file, sizeof(file), "(pid %ld)", (long)getpid());
	cr_assert_not_null(strstr(err.message, file));
	sp_fd_close(&lock);
	cr_assert(state_dir_lock(path, geteuid(), getegid(), &lock, &err) == 0,
		  "left by a dead one");
	sp_fd_close(&lock);
	cr_assert(chmod(path, 0777) == 0);
	cr_assert(state_dir_lock(path, geteuid(), getegid(), &lock, &err) == -EPERM);
	(void)snprintf(file, sizeof(file), "%s/lock", path);
	cr_assert(unlink(file) == 0 && rmdir(path) == 0);
	cr_assert(symlink("/tmp", path) == 0);
	cr_assert(state_dir_lock(path, geteuid(), getegid(), &lock, &err) < 0,
		  "no link is followed");
	cr_assert(unlink(path) == 0 && rmdir(base) == 0);
	(void)snprintf(path, sizeof(path), "%s/no/such", base);
	cr_assert(state_dir_lock(path, geteuid(), getegid(), &lock, &err) == -ENOENT);
	cr_assert_not_null(strstr(err.message, path));
}

Test(daemon_parts, state_directory_that_others_can_write_is_not_taken_over)
{
	char path[] = "/tmp/sandpool-state-XXXXXX";
	struct sp_err err = {0};
	struct stat info;
	int lock;

	cr_assert_not_null(mkdtemp(path));
	cr_assert(chmod(path, 0775) == 0);
	cr_assert(state_dir_lock(path, 1234, 1234, &lock, &err) == -EPERM);
	cr_assert(stat(path, &info) == 0 && info.st_uid == geteuid());
	cr_assert((info.st_mode & 07777) == 0775, "nor does a refusal repair it");
	cr_assert(rmdir(path) == 0);
}

Test(daemon_parts, state_lock_that_is_another_files_name_is_not_given_away)
{
	char path[] = "/tmp/sandpool-state-XXXXXX";
	char secret[64];
	char lock_path[64];
	struct sp_err err = {0};
	struct stat info;
	int lock;
	int fd;

	if (geteuid() != 0)
		cr_skip_test("needs root");
	cr_assert_not_null(mkdtemp(path));
	(void)snprintf(secret, sizeof(secret), "%s.secret", path);
	(void)snprintf(lock_path, sizeof(lock_path), "%s/lock", path);
	fd = open(secret, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	cr_assert(fd >= 0 && write(fd, "secret", 6) == 6 && close(fd) == 0);
	cr_assert(link(secret, lock_path) == 0);
	cr_assert(state_dir_lock(path, 1234, 1234, &lock, &err) == -EPERM);
	cr_assert(stat(secret, &info) == 0 && info.st_uid == 0 && info.st_size == 6);
	cr_assert(unlink(lock_path) == 0 && mkfifo(lock_path, 0600) == 0);
	cr_assert(state_dir_lock(path, 1234, 1234, &lock, &err) == -EPERM, "a FIFO");
	cr_assert(unlink(lock_path) == 0 && unlink(secret) == 0 && rmdir(path) == 0);
}

/* ---- reload ---- */

Test(daemon_parts, keys_that_only_a_restart_changes)
{
	struct sp_config old = {0};
	struct sp_config new;

#define CHANGE(field, value, key)                                      \
	do {                                                           \
		new = old;                                             \
		new.field = (value);                                   \
		cr_assert_str_eq(reload_restart_key(&old, &new), key); \
	} while (0)

	old.store = new.store = (char *)(uintptr_t) "memory";
	old.listen[0] = (char *)(uintptr_t) "unix:///a";
	old.listen_count = 1;
	new = old;
	cr_assert_null(reload_restart_key(&old, &new));
	new.max_connections = 5;
	new.log_level = SP_LOG_DEBUG;
	cr_assert_null(reload_restart_key(&old, &new));
	CHANGE(store, (char *)(uintptr_t) "redis://x", "store");
	CHANGE(host, (char *)(uintptr_t) "b", "host");
	CHANGE(advertise, (char *)(uintptr_t) "tcp://h:1", "advertise");
	CHANGE(capacity, 7, "capacity");
	CHANGE(redis.prefix, (char *)(uintptr_t) "other", "redis");
	CHANGE(redis.password_file, (char *)(uintptr_t) "/other", "redis");
	CHANGE(redis.keepalive_ms, 1, "redis");
	CHANGE(listen_count, 2, "listen");
	CHANGE(listen[0], (char *)(uintptr_t) "unix:///b", "listen");
	CHANGE(instance, (char *)(uintptr_t) "i", "instance");
	CHANGE(state_dir, (char *)(uintptr_t) "/s", "state_dir");
	CHANGE(user, (char *)(uintptr_t) "u", "user");
	CHANGE(uid_base, 1, "uid_base");
	CHANGE(uid_count, 1, "uid_count");
}
