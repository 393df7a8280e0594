/* libs: sp_config */
/*
 * The comment stripper and the line scanner. Stripping keeps length, newlines and everything
 * outside comments, and stripping again changes nothing. The scanner stays inside the text, and
 * finds each top-level key that jansson finds, on a line that the text has.
 */
#include "tests/fuzz/fuzz.h"

#include "supervisor/config/jsonc.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int count_lines(const char *text, size_t size)
{
	int lines = 1;

	for (size_t i = 0; i < size; i++)
		lines += text[i] == '\n';
	return lines;
}

static void check_stripped(const uint8_t *before, const char *after, size_t size)
{
	for (size_t i = 0; i < size; i++)
		require(after[i] == (char)before[i] || (after[i] == ' ' && before[i] != '\n'));
}

static void ignore_repeat(void *arg, const char *key, size_t key_len, int line, int first_line)
{
	SP_UNUSED(key);
	SP_UNUSED(key_len);
	require(first_line >= 1 && first_line <= line && line <= *(int *)arg);
}

static void check_lines(const char *text, size_t size)
{
	json_t *json = json_loadb(text, size, 0, NULL);
	int lines = count_lines(text, size);
	struct sp_json_path path = {1, {{"a", 0}}};
	const char *key;
	json_t *value;

	(void)sp_jsonc_line(text, size, &path);
	require(sp_jsonc_repeats(text, size, ignore_repeat, &lines) >= 0);
	json_object_foreach (json, key, value) {
		int line;

		path.steps[0].key = key;
		line = sp_jsonc_line(text, size, &path);
		require(line >= 1 && line <= lines);
	}
	if (json_is_array(json)) {
		path.steps[0].key = NULL;
		for (size_t i = 0; i < json_array_size(json); i++) {
			path.steps[0].index = i;
			require(sp_jsonc_line(text, size, &path) >= 1);
		}
		path.steps[0].index = json_array_size(json);
		require(sp_jsonc_line(text, size, &path) == 0);
	}
	json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	char *again;
	const char *message;
	int line = 0;

	require(text != NULL);
	memcpy(text, data, size);
	if (sp_jsonc_strip(text, size, &line, &message) == 0) {
		check_stripped(data, text, size);
		again = malloc(size + 1);
		require(again != NULL);
		memcpy(again, text, size);
		require(sp_jsonc_strip(again, size, &line, &message) == 0);
		require(memcmp(text, again, size) == 0);
		free(again);
		check_lines(text, size);
	} else {
		require(line >= 1 && line <= count_lines(text, size) && *message != '\0');
	}
	free(text);
	return 0;
}
