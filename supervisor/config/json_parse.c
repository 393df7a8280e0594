/*
 * jansson, with an end to its silence: when it cannot grow the buffer that it collects a string in,
 * version 2.14 drops the bytes and goes on, and the value is another one. A path that lost its end
 * must not become a mask or a root, so every allocation of a parse is watched and one that fails
 * fails the parse.
 *
 * The functions set here are malloc and free with a note of failure: other users of jansson in the
 * process lose nothing.
 */
#include "supervisor/config/reader.h"

#include <errno.h>
#include <stdlib.h>

static _Thread_local bool starved;

static void *watched_malloc(size_t size)
{
	void *memory = malloc(size);

	if (!memory)
		starved = true;
	return memory;
}

int sp_config_parse_json(const char *text, size_t len, size_t flags, json_t **ret_json,
			 json_error_t *error)
{
	json_t *json;

	json_set_alloc_funcs(watched_malloc, free);
	starved = false;
	json = json_loadb(text, len, flags, error);
	if (starved) {
		json_decref(json);
		return -ENOMEM;
	}
	if (!json)
		return -EINVAL;
	*ret_json = json;
	return 0;
}
