/* libs: sp_config */
/*
 * Configuration text. What is accepted dumps to a text that is accepted, gives the same dump again,
 * and makes the same sandboxes. What is refused says why, in printable text.
 */
#include "tests/fuzz/fuzz.h"

#include "supervisor/config/config.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_MAX (16u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *dump(const struct sp_config *config)
{
	struct sp_err err = {0};
	struct sp_buf out;

	sp_buf_init(&out, TEXT_MAX);
	require(sp_config_dump(config, true, &out, &err) == 0);
	return sp_buf_take(&out);
}

static void check_faults(const struct sp_config_faults *faults)
{
	struct sp_buf out;

	require(faults->count > 0);
	sp_buf_init(&out, TEXT_MAX);
	require(sp_config_faults_print(faults, &out) == 0);
	for (size_t i = 0; i < out.len; i++)
		require((unsigned char)out.data[i] >= ' ' || out.data[i] == '\n');
	sp_buf_done(&out);
}

static void check_round_trip(const struct sp_config *config)
{
	struct sp_config_faults faults;
	struct sp_config *again = NULL;
	char *first = dump(config);
	char *second;

	require(sp_config_parse(first, strlen(first), "dump", &again, &faults) == 0);
	second = dump(again);
	require(strcmp(first, second) == 0);
	require(config->pool_count == again->pool_count);
	for (size_t i = 0; i < config->pool_count; i++)
		require(config->pools[i].policy.spec_generation ==
				again->pools[i].policy.spec_generation &&
			config->pools[i].policy.spec_generation != 0);
	free(first);
	free(second);
	sp_config_faults_done(&faults);
	sp_config_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sp_config_faults faults;
	struct sp_config *config = NULL;
	int status = sp_config_parse((const char *)data, size, "fuzz", &config, &faults);

	if (status == 0)
		check_round_trip(config);
	else
		check_faults(&faults);
	sp_config_faults_done(&faults);
	sp_config_free(config);
	return 0;
}
