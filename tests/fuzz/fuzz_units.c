/* libs: sp_config */
/*
 * Durations and sizes. What is accepted formats to a text that parses to the same value; what is
 * refused leaves the value alone and gives a printable message.
 */
#include "tests/fuzz/fuzz.h"

#include "supervisor/config/config.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_message(const struct sp_err *err)
{
	require(err->status < 0 && err->code == SP_CODE_INVALID_ARGUMENT);
	for (const char *at = err->message; *at != '\0'; at++)
		require((unsigned char)*at >= ' ');
}

static void check_duration(const char *text)
{
	struct sp_err err = {0};
	char formatted[64];
	int64_t ms = -7;
	int64_t again;

	if (sp_parse_duration(text, &ms, &err) < 0) {
		require(ms == -7);
		check_message(&err);
		return;
	}
	require(ms >= 0);
	require(sp_format_duration(ms, formatted, sizeof(formatted)) == 0);
	require(sp_parse_duration(formatted, &again, NULL) == 0 && again == ms);
}

static void check_size(const char *text)
{
	struct sp_err err = {0};
	char formatted[64];
	uint64_t bytes = 7;
	uint64_t again;

	if (sp_parse_size(text, &bytes, &err) < 0) {
		require(bytes == 7);
		check_message(&err);
		return;
	}
	require(sp_format_size(bytes, formatted, sizeof(formatted)) == 0);
	require(sp_parse_size(formatted, &again, NULL) == 0 && again == bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	require(text != NULL);
	memcpy(text, data, size);
	text[size] = '\0';
	check_duration(text);
	check_size(text);
	free(text);
	return 0;
}
