/*
 * Tables: from the configuration file to something that sandboxes are made from.
 *
 *	IDLE → COMPILING → SOURCES → PREPARING → IDLE     (any failure: IDLE, CONFIG with status <
 *0)
 *
 * The compiler's table is sealed and then checked field by field; neither the compiler nor the
 * daemon is believed. HELLO's table is adopted at once, RELOAD's waits for ADOPT_TABLE. A table
 * lives until the last sandbox made from it is gone: its roots are what the sandbox may bind.
 *
 * Nothing here waits: the compiler and the sources process have deadlines and are killed at them.
 */
#include "supervisor/launcher/launcher_private.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"
#include "pool/base/log.h"
#include "supervisor/launcher/instance.h"
#include "supervisor/launcher/source.h"
#include "supervisor/sandbox/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* Numbers of the compiler's two files in the compiler. */
#define COMPILER_TABLE_FD    3
#define COMPILER_RESOLVED_FD 4

void sp_loader_init(struct sp_loader *loader)
{
	*loader = (struct sp_loader){
		.helper = -1,
		.resolved_fd = -1,
		.messages_fd = -1,
		.source_fd = -1,
		.spawner_source_fd = -1,
	};
}

/* --- tables in memory ------------------------------------------------------------------------ */

static struct sp_launcher_config *new_config(struct sp_launcher *launcher)
{
	for (size_t i = 0; i < SP_LAUNCHER_CONFIGS; i++) {
		struct sp_launcher_config *config = &launcher->configs[i];

		if (config->refs > 0)
			continue;
		memset(config, 0, sizeof(*config));
		memset(config->roots, 0xff, sizeof(config->roots)); /* -1 everywhere */
		config->refs = 1;
		config->table_fd = -1;
		return config;
	}
	return NULL;
}

void sp_config_unref(struct sp_launcher_config *config)
{
	if (!config || --config->refs > 0)
		return;
	for (size_t i = 0; i < SP_TABLE_POOLS_MAX; i++)
		for (size_t j = 0; j < SP_TABLE_ROOTS_MAX; j++)
			sp_fd_close(&config->roots[i][j]);
	if (config->table)
		(void)munmap((void *)(uintptr_t)config->table, config->size);
	config->table = NULL;
	sp_fd_close(&config->table_fd);
}

/* --- ends ------------------------------------------------------------------------------------ */

static void finish(struct sp_launcher *launcher)
{
	struct sp_loader *loader = &launcher->loader;

	sp_fd_close(&loader->resolved_fd);
	sp_fd_close(&loader->messages_fd);
	sp_launcher_unwatch(launcher, &loader->source_fd);
	sp_fd_close(&loader->spawner_source_fd);
	sp_loader_init(loader);
}

/* CONFIG with a failure: the text goes as a file, as the compiler's own messages do. */
static void fail_with_file(struct sp_launcher *launcher, int status, int *messages_fd,
			   const char *text)
{
	struct sp_launcher_answer answer = {
		.header = {.type = SP_LAUNCHER_CONFIG, .request = launcher->loader.request},
		.status = status,
		.stage = "config",
	};
	size_t fd_count = *messages_fd >= 0;

	(void)snprintf(answer.text, sizeof(answer.text), "%s", text);
	sp_launcher_answer(launcher, &answer, messages_fd, fd_count);
	*messages_fd = -1;
	sp_config_unref(launcher->loader.config);
	launcher->loader.config = NULL;
	finish(launcher);
}

static void fail(struct sp_launcher *launcher, int status, const char *text)
{
	SP_AUTO_CLOSE int fd = sp_memfd_new("sandpool-messages");

	if (fd >= 0 && (sp_write_all(fd, text, strlen(text)) < 0 || sp_memfd_seal(fd) < 0))
		sp_fd_close(&fd);
	sp_log(SP_LOG_ERROR, "configuration was not loaded", "error=\"%s\"", text);
	fail_with_file(launcher, status, &fd, text);
}

void sp_loader_cancel(struct sp_launcher *launcher, int status, const char *text)
{
	struct sp_loader *loader = &launcher->loader;

	/* With the spawner: its answer is on the way and does not hang. */
	if (loader->state == SP_LOADER_IDLE || loader->state == SP_LOADER_PREPARING)
		return;
	sp_helper_abandon(launcher, loader->helper);
	fail(launcher, status, text);
}

/* --- compile --------------------------------------------------------------------------------- */

SP_NORETURN static void exec_compiler(const struct sp_launcher *launcher, int table_fd,
				      int resolved_fd, int messages_fd)
{
	sigset_t none;

	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	if (dup2(messages_fd, STDERR_FILENO) < 0 || dup2(table_fd, COMPILER_TABLE_FD) < 0 ||
	    dup2(resolved_fd, COMPILER_RESOLVED_FD) < 0 || close_range(5, ~0U, 0) < 0)
		_exit(EXIT_FAILURE);
	(void)execl(launcher->compile_path, "sandpool-compile", "--config", launcher->config_path,
		    "--table-fd", "3", "--resolved-fd", "4", (char *)NULL);
	(void)dprintf(STDERR_FILENO, "exec '%s': %s\n", launcher->compile_path,
		      strerrordesc_np(errno));
	_exit(EXIT_FAILURE);
}

static int start_compiler(struct sp_launcher *launcher, struct sp_err *err)
{
	struct sp_loader *loader = &launcher->loader;
	int keep[3];
	int status;

	loader->config->table_fd = sp_memfd_new("sandpool-table");
	loader->resolved_fd = sp_memfd_new("sandpool-config");
	loader->messages_fd = sp_memfd_new("sandpool-messages");
	if (loader->config->table_fd < 0 || loader->resolved_fd < 0 || loader->messages_fd < 0)
		return sp_err_set(err, -ENFILE, "create memory files for the compiler");
	keep[0] = loader->config->table_fd;
	keep[1] = loader->resolved_fd;
	keep[2] = loader->messages_fd;
	status = sp_helper_fork(launcher, SP_HELPER_COMPILER, keep, SP_ARRAY_SIZE(keep),
				&loader->helper);
	if (status == 0)
		exec_compiler(launcher, keep[0], keep[1], keep[2]);
	return status < 0 ? sp_err_set(err, status, "fork the compiler") : 0;
}

void sp_loader_begin(struct sp_launcher *launcher, uint64_t request)
{
	struct sp_loader *loader = &launcher->loader;
	struct sp_err err = {0};
	int status;

	if (loader->state != SP_LOADER_IDLE) {
		sp_launcher_fail(launcher, request, -EBUSY, "reload", "one is under way");
		return;
	}
	loader->request = request;
	loader->config = new_config(launcher);
	if (!loader->config) {
		fail(launcher, -EBUSY, "sandboxes of too many earlier configurations are alive");
		return;
	}
	loader->state = SP_LOADER_COMPILING;
	loader->deadline_ms = sp_clock_boot_ms() + SP_LAUNCHER_COMPILE_MS;
	status = start_compiler(launcher, &err);
	if (status < 0)
		fail(launcher, status, err.message);
}

/* --- sources --------------------------------------------------------------------------------- */

SP_NORETURN static void run_sources(const struct sp_launcher *launcher, int main_fd, int spawner_fd)
{
	_exit(sp_source_run(launcher->loader.config->table, main_fd, spawner_fd,
			    launcher->rootless));
}

static int start_sources(struct sp_launcher *launcher, struct sp_err *err)
{
	struct sp_loader *loader = &launcher->loader;
	int main_pair[2];
	int spawner_pair[2];
	int keep[2];
	int status;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, main_pair) < 0)
		return sp_err_set(err, -errno, "create a socket for the sources");
	loader->source_fd = main_pair[0];
	keep[0] = main_pair[1];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, spawner_pair) < 0) {
		sp_fd_close(&keep[0]);
		return sp_err_set(err, -errno, "create a socket for the sources");
	}
	loader->spawner_source_fd = spawner_pair[0];
	keep[1] = spawner_pair[1];
	status = sp_helper_fork(launcher, SP_HELPER_SOURCES, keep, SP_ARRAY_SIZE(keep),
				&loader->helper);
	if (status == 0)
		run_sources(launcher, keep[0], keep[1]);
	sp_fd_close(&keep[0]);
	sp_fd_close(&keep[1]);
	if (status < 0)
		return sp_err_set(err, status, "fork the sources process");
	if (fcntl(loader->source_fd, F_SETFL, O_NONBLOCK) < 0)
		return sp_err_set(err, -errno, "watch the sources process");
	loader->state = SP_LOADER_SOURCES;
	loader->deadline_ms = sp_clock_boot_ms() + SP_LAUNCHER_SOURCES_MS;
	return sp_launcher_watch(launcher, loader->source_fd, SP_EVENT_SOURCES, 0, EPOLLIN);
}

static int take_table(struct sp_launcher *launcher, struct sp_err *err)
{
	struct sp_launcher_config *config = launcher->loader.config;
	const void *data;
	int status;

	if (sp_memfd_seal(config->table_fd) < 0 || sp_memfd_seal(launcher->loader.resolved_fd) < 0)
		return sp_err_set(err, -errno, "seal the compiler's table");
	status = sp_memfd_map(config->table_fd, SP_TABLE_SIZE_MAX, &data, &config->size, err);
	if (status < 0)
		return status;
	config->table = data;
	status = sp_table_check(config->table, config->size, err);
	if (status < 0)
		return status;
	if (!launcher->rootless && config->table->uid_base == 0)
		return sp_err_code(err, SP_CODE_CONFIG_INVALID, -EINVAL,
				   "table: header: 'uid_base' 0 is for an unprivileged launcher");
	if (launcher->current &&
	    (strcmp(config->table->instance, launcher->current->table->instance) != 0 ||
	     strcmp(config->table->state_dir, launcher->current->table->state_dir) != 0 ||
	     config->table->uid_base != launcher->current->table->uid_base ||
	     config->table->uid_count != launcher->current->table->uid_count))
		return sp_err_code(err, SP_CODE_CONFIG_INVALID, -EINVAL,
				   "instance, state_dir and uid ranges cannot change by a reload");
	return 0;
}

/* With the first table that is good. */
static int lock_instance(struct sp_launcher *launcher, struct sp_err *err)
{
	if (launcher->instance.lock_dir_fd >= 0)
		return 0;
	return sp_instance_lock(launcher->loader.config->table, launcher->own_ids.user,
				&launcher->instance, err);
}

void sp_loader_compiled(struct sp_launcher *launcher, int exit_code)
{
	struct sp_loader *loader = &launcher->loader;
	struct sp_err err = {0};
	int status;

	sp_assert(loader->state == SP_LOADER_COMPILING);
	loader->helper = -1;
	if (exit_code < 0) {
		fail(launcher, -ECHILD, "the compiler was killed by a signal");
		return;
	}
	if (exit_code > 0) {
		(void)sp_memfd_seal(loader->messages_fd);
		fail_with_file(launcher, -EINVAL, &loader->messages_fd, "configuration is invalid");
		return;
	}
	status = take_table(launcher, &err);
	if (status == 0)
		status = lock_instance(launcher, &err);
	if (status == 0)
		status = start_sources(launcher, &err);
	if (status < 0)
		fail(launcher, status, err.message);
}

static void take_root(struct sp_launcher *launcher, const struct sp_source_root *message, int *fd)
{
	struct sp_launcher_config *config = launcher->loader.config;
	const struct sp_table_pool *pools = sp_table_pools(config->table);

	sp_assert(message->pool < config->table->pool_count &&
		  message->root < pools[message->pool].root_count);
	if (message->status < 0)
		sp_log(SP_LOG_WARN, "root of allowed binds cannot be opened, ignoring",
		       "pool=%s root=%s error=\"%s\"", pools[message->pool].name,
		       pools[message->pool].roots[message->root].path,
		       strerrordesc_np(-message->status));
	config->roots[message->pool][message->root] = sp_take_fd(fd);
}

static void sources_ready(struct sp_launcher *launcher, const struct sp_source_ready *ready)
{
	const struct sp_spawn_request request = {.type = SP_SPAWN_PREPARE};

	if (ready->status < 0) {
		sp_helper_abandon(launcher, launcher->loader.helper);
		fail(launcher, ready->status, ready->text);
		return;
	}
	launcher->loader.state = SP_LOADER_PREPARING;
	sp_launcher_unwatch(launcher, &launcher->loader.source_fd);
	/* The spawner has room for one table beside the current one. */
	sp_config_unref(launcher->next);
	launcher->next = NULL;
	/* In line behind the creations that still mean the current table. */
	sp_spawn_slow(launcher, &request);
}

void sp_loader_sources_event(struct sp_launcher *launcher)
{
	union {
		uint32_t type;
		struct sp_source_root root;
		struct sp_source_ready ready;
	} message;

	while (launcher->loader.state == SP_LOADER_SOURCES) {
		int fds[SP_MSG_FDS_MAX] = {-1, -1, -1, -1, -1, -1, -1, -1};
		size_t fd_count = 0;
		ssize_t got = sp_msg_receive(launcher->loader.source_fd, &message, sizeof(message),
					     fds, &fd_count);

		if (got == -EAGAIN)
			return;
		if (got <= 0) {
			sp_loader_cancel(launcher, -ECHILD, "the sources process ended early");
			return;
		}
		if (message.type == SP_SOURCE_ROOT)
			take_root(launcher, &message.root, &fds[0]);
		else
			sources_ready(launcher, &message.ready);
		for (size_t i = 0; i < fd_count; i++)
			sp_fd_close(&fds[i]);
	}
}

void sp_loader_sources_ended(struct sp_launcher *launcher, int index)
{
	/* After READY the spawner takes it from there; before, the socket has told. The next load
	 * may have begun since, with a helper of its own. */
	if (launcher->loader.helper == index)
		launcher->loader.helper = -1;
}

/* --- prepared -------------------------------------------------------------------------------- */

static void adopt(struct sp_launcher *launcher, struct sp_launcher_config *config)
{
	const struct sp_spawn_request request = {.type = SP_SPAWN_ADOPT, .value = 1};

	sp_spawn_slow(launcher, &request);
	sp_config_unref(launcher->current);
	launcher->current = config;
	sp_slots_recount(launcher);
	sp_log(SP_LOG_INFO, "configuration is in use", "instance=%s pools=%u",
	       config->table->instance, config->table->pool_count);
}

void sp_loader_prepared(struct sp_launcher *launcher, const struct sp_spawn_answer *spawn)
{
	struct sp_loader *loader = &launcher->loader;
	struct sp_launcher_answer answer = {
		.header = {.type = SP_LAUNCHER_CONFIG, .request = loader->request},
	};

	sp_assert(loader->state == SP_LOADER_PREPARING);
	if (spawn->status < 0) {
		fail(launcher, spawn->status, spawn->text);
		return;
	}
	answer.value = loader->config->table->pool_count;
	sp_launcher_answer(launcher, &answer, &loader->resolved_fd, 1);
	loader->resolved_fd = -1;
	if (launcher->current) {
		launcher->next = loader->config;
	} else {
		adopt(launcher, loader->config);
		sp_binder_start(launcher); /* ready before the first bind waits for it */
	}
	finish(launcher);
}

void sp_loader_adopt(struct sp_launcher *launcher, const struct sp_launcher_command *message)
{
	const struct sp_spawn_request drop = {.type = SP_SPAWN_ADOPT, .value = 0};
	uint64_t request = message->header.request;

	if (!launcher->next || message->value > 1) {
		sp_launcher_fail(launcher, request, launcher->next ? -EINVAL : -ENOENT, "adopt",
				 launcher->next ? "value" : "no table is waiting");
		return;
	}
	if (message->value == 1) {
		adopt(launcher, launcher->next);
	} else {
		sp_spawn_slow(launcher, &drop);
		sp_config_unref(launcher->next);
	}
	launcher->next = NULL;
	sp_launcher_done(launcher, request);
}
