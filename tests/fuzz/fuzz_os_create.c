/* libs: sp_api */
/*
 * Bodies of creates, patches of metadata, times and quantities: whatever is accepted keeps the
 * limits that are promised, whatever is refused says why and with what status, and a time that is
 * read and written again is the same time.
 */
#include "supervisor/api/os_body.h"
#include "supervisor/api/os_sandboxes.h"
#include "supervisor/api/os_values.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_refusal(const struct sp_os_refusal *refusal)
{
	if (!refusal->message[0] || refusal->status < 400)
		abort();
	if (!refusal->code != (refusal->status == 422))
		abort();
}

static void check_metadata(json_t *metadata)
{
	const char *key;
	json_t *value;

	if (json_object_size(metadata) > SP_OS_METADATA_MAX)
		abort();
	json_object_foreach (metadata, key, value)
		if (sp_os_label_check(key, json_string_value(value), NULL) < 0)
			abort();
}

static void check_create(const char *data, size_t size)
{
	struct sp_os_refusal refusal = {0};
	struct sp_os_create create;

	if (sp_os_create_parse(&create, data, size, &refusal) < 0) {
		check_refusal(&refusal);
		return;
	}
	if (!create.pool && (!create.image || !create.entrypoint))
		abort();
	if (create.timeout_s != 0 && create.timeout_s < SP_OS_TIMEOUT_MIN_S)
		abort();
	if (create.cpu_millis < 0 || create.extend_s < 0 ||
	    json_object_size(create.env) > SP_OS_ENV_MAX)
		abort();
	check_metadata(create.metadata);
	sp_os_create_done(&create);
}

static void check_patch(const char *data, size_t size)
{
	json_t *patch = json_loadb(data, size, JSON_DISABLE_EOF_CHECK | JSON_DECODE_ANY, NULL);
	struct sp_os_refusal refusal = {0};
	json_t *changed = NULL;

	if (!patch)
		return;
	if (sp_os_metadata_patch(NULL, patch, &changed, &refusal) < 0)
		check_refusal(&refusal);
	else
		check_metadata(changed);
	json_decref(changed);
	json_decref(patch);
}

static void check_values(const char *text)
{
	char written[SP_OS_TIME_MAX];
	uint64_t bytes;
	int64_t first;
	int64_t again;

	if (sp_os_parse_cpu(text, &first, NULL) == 0 && first < 0)
		abort();
	(void)sp_os_parse_memory(text, &bytes, NULL);
	if (sp_os_image_matches(text, text) && sp_os_image_weight(text) > strlen(text))
		abort();
	if (sp_os_parse_time(text, &first, NULL) < 0)
		return;
	sp_os_format_time(first, written);
	/* An offset may lead out of the years that are written. */
	if (written[0] && (sp_os_parse_time(written, &again, NULL) < 0 || again != first))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	check_create(text, size);
	check_patch(text, size);
	check_values(text);
	free(text);
	return 0;
}
