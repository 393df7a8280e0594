/*
 * From a client's wish to the record that init gets: checks, defaults, environment, strings.
 *
 * The environment is PATH, HOME, LANG, TERM (with a terminal), then the request's; of equal names
 * the last one wins, and only that one is sent, because programs differ in which of two they read.
 */
#include "supervisor/daemon/daemon_private.h"

#include "pool/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEFAULTS_MAX 4u
#define UMASK        0022

static const char env_path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
static const char env_home[] = "HOME=/home/user";
static const char env_home_direct[] = "HOME=/"; /* no sandbox, no home of its own */
static const char env_lang[] = "LANG=C.UTF-8";
static const char env_term[] = "TERM=xterm-256color";

struct strings {
	const char *cwd;
	const char *const *argv;
	size_t argc;
	const char **env; /* malloc'ed */
	size_t envc;
	size_t length; /* of all, with NULs */
};

static size_t name_length(const char *entry)
{
	return strcspn(entry, "=");
}

static uint32_t hash_name(const char *entry, size_t len)
{
	uint32_t hash = 2166136261u; /* FNV-1a */

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (unsigned char)entry[i]) * 16777619u;
	return hash;
}

/* Fill `out` from the defaults and the request, one entry a name, the last one's value at the first
 * one's place. slots: 0 = free, else index + 1; its count is a power of two > the entries. */
static void merge_env(const char *const *sources[2], const size_t counts[2], const char **out,
		      size_t *ret_count, uint16_t *slots, size_t slot_mask)
{
	size_t count = 0;

	for (int part = 0; part < 2; part++) {
		for (size_t i = 0; i < counts[part]; i++) {
			const char *entry = sources[part][i];
			size_t len = name_length(entry);
			size_t slot = hash_name(entry, len) & slot_mask;

			while (slots[slot] != 0 && (name_length(out[slots[slot] - 1]) != len ||
						    memcmp(out[slots[slot] - 1], entry, len) != 0))
				slot = (slot + 1) & slot_mask;
			if (slots[slot] == 0) {
				out[count++] = entry;
				slots[slot] = (uint16_t)count;
			} else {
				out[slots[slot] - 1] = entry;
			}
		}
	}
	*ret_count = count;
}

static int build_env(const struct sp_exec_spec *spec, bool direct, struct strings *strings,
		     struct sp_err *err)
{
	const char *defaults[DEFAULTS_MAX] = {env_path, direct ? env_home_direct : env_home,
					      env_lang, env_term};
	size_t default_count = spec->tty ? DEFAULTS_MAX : DEFAULTS_MAX - 1;
	const char *const *sources[2] = {defaults, spec->env};
	size_t counts[2] = {default_count, spec->envc};
	size_t slot_count = 16;
	uint16_t *slots;

	if (spec->envc > SP_INIT_ENV_MAX - DEFAULTS_MAX)
		return sp_err_code(err, SP_CODE_PAYLOAD_TOO_LARGE, -E2BIG,
				   "env has %zu entries, at most %u are allowed", spec->envc,
				   SP_INIT_ENV_MAX - DEFAULTS_MAX);
	for (size_t i = 0; i < spec->envc; i++)
		if (spec->env[i][0] == '=' || !strchr(spec->env[i], '='))
			return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
					   "env entry %zu is not NAME=value", i);
	while (slot_count < 2 * (default_count + spec->envc))
		slot_count *= 2;
	slots = calloc(slot_count, sizeof(*slots));
	strings->env = malloc((default_count + spec->envc) * sizeof(*strings->env));
	if (!slots || !strings->env) {
		free(slots);
		return sp_err_set(err, -ENOMEM, "environment of an exec");
	}
	merge_env(sources, counts, strings->env, &strings->envc, slots, slot_count - 1);
	free(slots);
	return 0;
}

static int check_ids(const struct sp_exec_spec *spec, const struct sp_config_pool *pool,
		     struct sp_err *err)
{
	const struct {
		const char *name;
		int64_t value;
		uint32_t direct;
	} ids[] = {{"uid", spec->uid, pool->direct_uid}, {"gid", spec->gid, pool->direct_gid}};

	for (size_t i = 0; i < SP_ARRAY_SIZE(ids); i++) {
		if (ids[i].value == -1)
			continue;
		if (pool->direct && ids[i].value != (int64_t)ids[i].direct)
			return sp_err_code(err, SP_CODE_FORBIDDEN, -EPERM,
					   "%s %lld is not the one of pool '%s'", ids[i].name,
					   (long long)ids[i].value, pool->policy.name);
		/* 0 is init's own inside. */
		if (ids[i].value < 1 || ids[i].value > SP_ID_INSIDE_MAX)
			return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
					   "%s must be from 1 to %u", ids[i].name,
					   SP_ID_INSIDE_MAX);
	}
	return 0;
}

static int check_limits(struct sp_exec *exec, const struct sp_config_pool *pool,
			const struct sp_exec_spec *spec, struct sp_err *err)
{
	if (spec->timeout_ms < 0 || spec->timeout_ms > SP_EXEC_TIMEOUT_MAX_MS)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "timeout must be from 0 to %lld ms",
				   (long long)SP_EXEC_TIMEOUT_MAX_MS);
	if (spec->output_limit > pool->output_bytes)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "output_limit %llu is above the %llu bytes of pool '%s'",
				   (unsigned long long)spec->output_limit,
				   (unsigned long long)pool->output_bytes, pool->policy.name);
	exec->timeout_ms = spec->timeout_ms > 0 ? spec->timeout_ms : pool->default_timeout_ms;
	if (spec->for_life)
		exec->timeout_ms = 0;
	exec->output_limit = spec->output_limit > 0 ? spec->output_limit : pool->output_bytes;
	if (spec->output_unlimited)
		exec->output_limit = UINT64_MAX;
	return 0;
}

static int measure(struct strings *strings, struct sp_err *err)
{
	size_t length = strlen(strings->cwd) + 1;

	for (size_t i = 0; i < strings->argc && length <= SP_INIT_STRINGS_MAX; i++)
		length += strlen(strings->argv[i]) + 1;
	for (size_t i = 0; i < strings->envc && length <= SP_INIT_STRINGS_MAX; i++)
		length += strlen(strings->env[i]) + 1;
	if (length > SP_INIT_STRINGS_MAX)
		return sp_err_code(err, SP_CODE_PAYLOAD_TOO_LARGE, -E2BIG,
				   "argv, env and cwd are longer than %u bytes together",
				   SP_INIT_STRINGS_MAX);
	strings->length = length;
	return 0;
}

static char *copy_string(char *to, const char *text)
{
	size_t size = strlen(text) + 1;

	memcpy(to, text, size);
	return to + size;
}

static void copy_strings(const struct strings *strings, char *to)
{
	to = copy_string(to, strings->cwd);
	for (size_t i = 0; i < strings->argc; i++)
		to = copy_string(to, strings->argv[i]);
	for (size_t i = 0; i < strings->envc; i++)
		to = copy_string(to, strings->env[i]);
}

static int strings_to_memfd(const struct strings *strings, int *ret_fd, struct sp_err *err)
{
	SP_AUTO_CLOSE int fd = memfd_create("exec-strings", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	char *map;

	if (fd < 0)
		return sp_err_set(err, -errno, "make a memfd for the strings of an exec");
	if (ftruncate(fd, (off_t)strings->length) < 0)
		return sp_err_set(err, -errno, "size the memfd of an exec");
	map = mmap(NULL, strings->length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return sp_err_set(err, -errno, "map the memfd of an exec");
	copy_strings(strings, map);
	(void)munmap(map, strings->length);
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return sp_err_set(err, -errno, "seal the memfd of an exec");
	*ret_fd = sp_take_fd(&fd);
	return 0;
}

static int make_record(struct sp_exec *exec, const struct sp_exec_spec *spec,
		       const struct strings *strings, struct sp_err *err)
{
	bool inlined = strings->length <= SP_INIT_INLINE_MAX;
	size_t length = sizeof(*exec->record) + (inlined ? strings->length : 0);
	struct sp_init_exec *record;
	int status;

	if (!inlined) {
		status = strings_to_memfd(strings, &exec->strings_fd, err);
		if (status < 0)
			return status;
	}
	record = calloc(1, length);
	if (!record)
		return sp_err_set(err, -ENOMEM, "record of an exec");
	if (inlined)
		copy_strings(strings, (char *)(record + 1));
	record->header.type = SP_INIT_EXEC;
	record->flags = (spec->tty ? SP_EXEC_F_TTY : 0) | (inlined ? 0 : SP_EXEC_F_STRINGS) |
			(spec->start_awaited ? SP_EXEC_F_AWAITED : 0);
	/* (uint32_t)-1: the sandbox's own workload id, known when it is granted. */
	record->uid = (uint32_t)spec->uid;
	record->gid = (uint32_t)spec->gid;
	record->argc = (uint32_t)strings->argc;
	record->envc = (uint32_t)strings->envc;
	record->strings_length = (uint32_t)strings->length;
	record->rows = spec->rows;
	record->columns = spec->columns;
	record->umask = UMASK;
	record->session = spec->session;
	exec->record = record;
	exec->record_len = length;
	return 0;
}

int exec_record_build(struct sp_exec *exec, const struct sp_config_pool *pool,
		      const struct sp_exec_spec *spec, struct sp_err *err)
{
	struct strings strings = {.argv = spec->argv, .argc = spec->argc};
	int status;

	if (spec->argc < 1 || spec->argv[0][0] == '\0')
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "argv needs a program to run");
	if (spec->argc > SP_INIT_ARGS_MAX)
		return sp_err_code(err, SP_CODE_PAYLOAD_TOO_LARGE, -E2BIG,
				   "argv has %zu entries, at most %u are allowed", spec->argc,
				   SP_INIT_ARGS_MAX);
	if (spec->cwd && spec->cwd[0] != '/')
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "cwd '%.*s' is not an absolute path", EXEC_SHOWN_MAX, spec->cwd);
	strings.cwd = spec->cwd ? spec->cwd : pool->direct ? "/" : "/workspace";
	status = check_ids(spec, pool, err);
	if (status == 0)
		status = check_limits(exec, pool, spec, err);
	if (status == 0)
		status = build_env(spec, pool->direct, &strings, err);
	if (status == 0)
		status = measure(&strings, err);
	if (status == 0)
		status = make_record(exec, spec, &strings, err);
	(void)snprintf(exec->program, sizeof(exec->program), "%s", strings.argv[0]);
	(void)snprintf(exec->cwd, sizeof(exec->cwd), "%s", strings.cwd);
	free(strings.env);
	return status;
}

void exec_record_free(struct sp_exec *exec)
{
	free(exec->record);
	exec->record = NULL;
	sp_fd_close(&exec->strings_fd);
}
