/*
 * Records of sandpoold as init sees them. Property: what the checks let through can be used without
 * reading past the record, and splitting its strings loses and invents nothing.
 */
#include "tests/fuzz/fuzz.h"

#include "supervisor/init/request.h"

#include <stdlib.h>
#include <string.h>

static size_t total_length(const struct init_strings *strings, uint32_t argc, uint32_t envc)
{
	size_t total = strlen(strings->cwd) + 1;

	for (uint32_t i = 0; i < argc; i++)
		total += strlen(strings->argv[i]) + 1;
	for (uint32_t i = 0; i < envc; i++)
		total += strlen(strings->envp[i]) + 1;
	require(!strings->argv[argc] && !strings->envp[envc]);
	return total;
}

static void use_exec(const struct sp_init_exec *exec, size_t len, size_t fd_count)
{
	static char *argv[SP_INIT_ARGS_MAX + 1];
	static char *envp[SP_INIT_ENV_MAX + 1];
	struct init_strings strings = {.argv = argv, .envp = envp};
	char *text;

	require(fd_count == init_request_exec_fds(exec->flags));
	if ((exec->flags & SP_EXEC_F_STRINGS) != 0)
		return;
	require(len == sizeof(*exec) + exec->strings_length);
	text = malloc(exec->strings_length);
	require(text != NULL);
	memcpy(text, exec + 1, exec->strings_length);
	if (init_request_split(text, exec->strings_length, exec->argc, exec->envc, &strings) == 0)
		require(total_length(&strings, exec->argc, exec->envc) == exec->strings_length);
	free(text);
}

/* Its paths are where and as long as it says, and nothing is behind them. */
static void use_file(const struct sp_init_file *file, size_t len)
{
	const char *path = (const char *)(file + 1);
	size_t used = sizeof(*file);

	if (file->kind != SP_INIT_FILE_CONNECT) {
		require(path[0] == '/' && strlen(path) == file->path_length);
		used += file->path_length + (size_t)1;
	}
	if (file->kind == SP_INIT_FILE_MOVE) {
		const char *to = path + file->path_length + 1;

		require(to[0] == '/' && strlen(to) == file->to_length);
		used += file->to_length + (size_t)1;
	}
	require(used == len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t fd_count;
	void *record;

	if (size < 1)
		return 0;
	fd_count = data[0] % 9;
	size--;
	record = malloc(size + (size == 0)); /* aligned, and its end is the sanitizer's */
	require(record != NULL);
	memcpy(record, data + 1, size);
	if (init_request_check(record, size, fd_count) == 0) {
		const struct sp_init_header *header = record;

		if (header->type == SP_INIT_EXEC)
			use_exec(record, size, fd_count);
		else if (header->type == SP_INIT_FILE)
			use_file(record, size);
		else if (header->type == SP_INIT_MOUNT)
			require(strlen((const char *)record + sizeof(struct sp_init_mount)) + 1 +
					sizeof(struct sp_init_mount) ==
				size);
	}
	free(record);
	return 0;
}
