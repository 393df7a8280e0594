/*
 * The hooks of a pool in the configuration: warmup and readiness.
 */
#include "test_config.h"

#define LONGEST SP_CONFIG_ARGUMENT_MAX

Test(config_hooks, nothing_runs_unless_it_is_asked_for) /* P-008 */
{
	struct sp_config *config = parse_pool("");
	const struct sp_config_pool *pool = &config->pools[0];

	cr_assert(pool->warmup.command_count == 0 && pool->readiness.command_count == 0);
	cr_assert(pool->warmup.timeout_ms == 60000);
	cr_assert(pool->readiness.interval_ms == 200 && pool->readiness.timeout_ms == 30000);
	cr_assert(pool->readiness.attempt_timeout_ms == 5000);
	cr_assert(sp_config_hooks_ms(pool) == 0);
	sp_config_free(config);
}

/* P-009: explicit values survive. A command is no set: arguments may be equal, and empty. */
Test(config_hooks, commands_are_kept_word_by_word)
{
	struct sp_config *config = parse_pool(
		"\"warmup\": {\"command\": [\"sh\", \"-c\", \"-c\", \"\"], \"timeout\": \"7s\"}, "
		"\"readiness\": {\"command\": [\"true\"], \"interval\": \"1ms\", \"timeout\": 0, "
		"\"attempt_timeout\": \"3s\"}");
	const struct sp_config_pool *pool = &config->pools[0];

	cr_assert(pool->warmup.command_count == 4);
	cr_assert_str_eq(pool->warmup.command[0], "sh");
	cr_assert_str_eq(pool->warmup.command[2], "-c");
	cr_assert_str_eq(pool->warmup.command[3], "");
	cr_assert(pool->warmup.timeout_ms == 7000);
	cr_assert(pool->readiness.command_count == 1);
	cr_assert_str_eq(pool->readiness.command[0], "true");
	cr_assert(pool->readiness.interval_ms == 1 && pool->readiness.timeout_ms == 0);
	cr_assert(pool->readiness.attempt_timeout_ms == 3000);
	cr_assert(sp_config_hooks_ms(pool) == 7000 + 2 * 3000);
	sp_config_free(config);
}

Test(config_hooks, the_time_of_hooks_that_do_not_exist_does_not_count)
{
	struct sp_config *config = parse_pool("\"warmup\": {\"command\": [\"true\"]}");

	cr_assert(sp_config_hooks_ms(&config->pools[0]) == 60000);
	sp_config_free(config);
	config = parse_pool("\"readiness\": {\"command\": [\"true\"]}");
	cr_assert(sp_config_hooks_ms(&config->pools[0]) == 30000 + 2 * 5000);
	sp_config_free(config);
}

Test(config_hooks, bad_values_are_named)
{
	pool_fault_has("\"warmup\": [\"true\"]", "pools.p.warmup: must be an object, not a list");
	pool_fault_has("\"warmup\": {\"command\": \"true\"}",
		       "pools.p.warmup.command: must be a list of strings, not a string");
	pool_fault_has("\"warmup\": {\"command\": [1]}",
		       "pools.p.warmup.command[0]: must be a string, not a number");
	pool_fault_has("\"warmup\": {\"command\": [\"\"]}",
		       "pools.p.warmup.command[0]: must name a program");
	pool_fault_has("\"readiness\": {\"command\": [\"\", \"x\"]}",
		       "pools.p.readiness.command[0]: must name a program");
	pool_fault_has("\"warmup\": {\"comand\": []}", "did you mean 'command'?");
	pool_fault_has("\"warmup\": {\"interval\": \"1s\"}",
		       "it belongs to the readiness check of a pool");
	pool_fault_has("\"warmup\": {\"timeout\": 0}",
		       "pools.p.warmup.timeout: must be from 1ms to 30m");
	pool_fault_has("\"warmup\": {\"timeout\": 5}", "a number has no unit");
	pool_fault_has("\"readiness\": {\"timeout\": \"901s\"}",
		       "pools.p.readiness.timeout: must be from 1ms to 15m, or 0 (one attempt)");
	pool_fault_has("\"readiness\": {\"interval\": 0}", "must be from 1ms to 5m");
	pool_fault_has("\"readiness\": {\"attempt_timeout\": 0}", "must be from 1ms to 5m");
	pool_fault_has("\"readyness\": {}", "did you mean 'readiness'?");
	fault_has("{\"warmup\": {}}", "it belongs to a pool");
}

/* A configuration whose warm-up has so many words of such a length. */
static void write_command(struct sp_buf *out, size_t count, size_t length)
{
	char *word = malloc(length + 1);

	cr_assert_not_null(word);
	memset(word, 'x', length);
	word[length] = '\0';
	cr_assert(sp_buf_printf(out, "{\"pools\": {\"p\": {\"warmup\": {\"command\": [") == 0);
	for (size_t i = 0; i < count; i++)
		cr_assert(sp_buf_printf(out, "%s\"%s\"", i > 0 ? ", " : "", word) == 0);
	cr_assert(sp_buf_printf(out, "]}}}}") == 0);
	free(word);
}

static int try_command(size_t count, size_t length, const char *complaint)
{
	struct sp_config_faults faults;
	struct sp_config *config = NULL;
	struct sp_buf text;
	char *told;
	int status;

	sp_buf_init(&text, TEXT_MAX);
	write_command(&text, count, length);
	status = sp_config_parse(text.data, text.len, "t", &config, &faults);
	told = faults_text(&faults);
	cr_assert(status == 0 || strstr(told, complaint), "%s", told);
	sp_config_faults_done(&faults);
	sp_config_free(config);
	sp_buf_done(&text);
	free(told);
	return status;
}

Test(config_hooks, a_command_has_a_longest_list_and_a_longest_word)
{
	cr_assert(try_command(SP_CONFIG_COMMAND_MAX, 1, "") == 0);
	cr_assert(try_command(SP_CONFIG_COMMAND_MAX + 1, 1,
			      "has 33 entries, at most 32 are possible") == -EINVAL);
	cr_assert(try_command(1, LONGEST, "") == 0);
	cr_assert(try_command(1, LONGEST + 1, "must have at most 16384 bytes") == -EINVAL);
	cr_assert(try_command(SP_CONFIG_COMMAND_MAX, LONGEST, "") == 0, "all of it fits");
}

/* The policy's deadline for a creation is create_timeout and the hooks: at most its own maximum. */
Test(config_hooks, a_creation_takes_an_hour_at_most)
{
	static const char fits[] =
		"\"create_timeout\": \"30m\", \"warmup\": {\"command\": [\"a\"], "
		"\"timeout\": \"15m\"}, \"readiness\": {\"command\": [\"a\"], "
		"\"timeout\": \"5m\", \"attempt_timeout\": \"5m\"}";
	struct sp_config *config = parse_pool(fits);

	sp_config_free(config);
	pool_fault_has("\"create_timeout\": \"1800001ms\", \"warmup\": {\"command\": [\"a\"], "
		       "\"timeout\": \"15m\"}, \"readiness\": {\"command\": [\"a\"], "
		       "\"timeout\": \"5m\", \"attempt_timeout\": \"5m\"}",
		       "pools.p.create_timeout: 30m1ms and what warmup and readiness may take "
		       "(30m) must not be above 1h together");
	config = parse_pool("\"create_timeout\": \"1h\", \"warmup\": {\"timeout\": \"30m\"}");
	sp_config_free(config);
}

/* sandpoold reads what sandpool-compile dumps. */
Test(config_hooks, the_dump_reads_back)
{
	struct sp_config *config =
		parse_pool("\"warmup\": {\"command\": [\"sh\", \"-c\", \"echo \\\"\\n\\\" x\"]}");
	struct sp_config *again;
	struct sp_buf out;

	sp_buf_init(&out, TEXT_MAX);
	cr_assert(sp_config_dump(config, true, &out, NULL) == 0);
	again = parse_good(sp_buf_text(&out));
	cr_assert(again->pools[0].warmup.command_count == 3);
	cr_assert_str_eq(again->pools[0].warmup.command[2], "echo \"\n\" x");
	cr_assert(again->pools[0].policy.spec_generation ==
		  config->pools[0].policy.spec_generation);
	sp_buf_done(&out);
	sp_config_free(again);
	sp_config_free(config);
}
