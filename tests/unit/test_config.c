/*
 * From text to a configuration: defaults, values, faults and their places, limits, and the dump
 * that reads back. Checks across keys are in test_config_checks.c.
 */
#include "tests/unit/test_config.h"

#include "supervisor/config/schema.h"

#include <jansson.h>
#include <locale.h>

/* ---- defaults ---- */

Test(config, an_empty_object_has_all_defaults)
{
	struct sp_config *config = parse_good("{}");
	const struct sp_config_pool *pool = &config->pools[0];

	cr_assert_str_eq(config->store, "memory");
	cr_assert(config->listen_count == 1);
	cr_assert_str_eq(config->listen[0], "unix:///run/sandpool/sandpool.sock");
	cr_assert_str_eq(config->state_dir, "/var/lib/sandpool");
	cr_assert_str_eq(config->user, "sandpool");
	cr_assert_str_eq(config->instance, "default");
	cr_assert_str_eq(config->admin_group, "");
	cr_assert(config->log_level == SP_LOG_INFO);
	cr_assert(config->exec_enabled);
	cr_assert(!config->allow_direct && !config->allow_host_network && !config->degraded &&
		  !config->insecure);
	cr_assert(config->uid_base == 2147483648u && config->uid_count == 16384);
	cr_assert(config->max_connections == 4096);
	cr_assert(config->api_key_count == 0 && !config->api_keys_file);
	cr_assert(config->pool_count == 1);
	cr_assert_str_eq(pool->policy.name, "default");
	cr_assert(pool->policy.max_idle == 8);
	cr_assert(pool->policy.idle_timeout_ms == 24 * 3600 * SP_MS_PER_S);
	cr_assert(pool->policy.acquire_min_remaining_ttl_ms == 60 * SP_MS_PER_S);
	cr_assert_str_eq(pool->root, "system");
	cr_assert_str_eq(pool->hostname, "sandbox");
	cr_assert(!pool->direct && !pool->network_host && !pool->seccomp_profile);
	cr_assert(pool->memory_bytes == UINT64_C(512) << 20 && pool->pids == 256 &&
		  pool->cpu == 1 && pool->open_files == 1024 &&
		  pool->tmp_bytes == UINT64_C(256) << 20 && pool->tmp_inodes == 65536 &&
		  pool->output_bytes == UINT64_C(64) << 20 && pool->file_size_bytes == 0 &&
		  pool->stack_bytes == UINT64_C(8) << 20);
	cr_assert(pool->upper_bytes == pool->tmp_bytes && pool->diff_bytes == 0);
	cr_assert(pool->allowed_writable_count == 4);
	cr_assert_str_eq(pool->allowed_writable[0], "/workspace");
	cr_assert_str_eq(pool->allowed_writable[3], "/data");
	cr_assert(pool->policy.spec_generation != 0);
	sp_config_free(config);
}

Test(config, a_named_pool_without_members_is_the_default_pool)
{
	struct sp_config *absent = parse_good("{}");
	struct sp_config *empty = parse_good("{\"pools\":{\"default\":{}}}");
	char *a = dump(absent, true);
	char *b = dump(empty, true);

	cr_assert_str_eq(a, b);
	free(a);
	free(b);
	sp_config_free(absent);
	sp_config_free(empty);
}

Test(config, an_empty_list_is_not_an_absent_one)
{
	struct sp_config *config = parse_good("{\"listen\": []}");

	cr_assert(config->listen_count == 0);
	sp_config_free(config);
}

Test(config, tmp_follows_a_small_memory_limit_unless_given)
{
	struct sp_config *config = parse_pool("\"limits\":{\"memory\":\"64MiB\"}");

	cr_assert(config->pools[0].tmp_bytes == UINT64_C(32) << 20);
	sp_config_free(config);
	config = parse_pool("\"limits\":{\"memory\":\"2GiB\"}");
	cr_assert(config->pools[0].tmp_bytes == UINT64_C(256) << 20);
	sp_config_free(config);
	config = parse_pool("\"limits\":{\"memory\":\"64MiB\",\"tmp\":\"63MiB\"}");
	cr_assert(config->pools[0].tmp_bytes == UINT64_C(63) << 20);
	sp_config_free(config);
}

Test(config, pools_are_sorted_by_name_whatever_the_file_says)
{
	struct sp_config *config =
		parse_good("{\"pools\":{\"z\":{\"max_idle\":1},\"a\":{},\"m.1\":{}}}");

	cr_assert(config->pool_count == 3);
	cr_assert_str_eq(config->pools[0].policy.name, "a");
	cr_assert_str_eq(config->pools[1].policy.name, "m.1");
	cr_assert_str_eq(config->pools[2].policy.name, "z");
	cr_assert(config->pools[2].policy.max_idle == 1);
	sp_config_free(config);
}

/* ---- the dump ---- */

static const char everything[] =
	"{ // all kinds of values\n"
	"\"listen\": [\"unix:///a/b\", \"tcp://127.0.0.1:8080\", \"tls://[::]:443\"],\n"
	"\"instance\": \"blue\", \"state_dir\": \"/srv/\xc3\xa4\\\"\\\\\", \"user\": \"\",\n"
	"\"admin_group\": \"ops\", \"log_level\": \"debug\", \"exec_enabled\": false,\n"
	"\"allow_host_network\": true, \"degraded\": true, \"insecure\": true,\n"
	"\"uid_base\": 131072, \"uid_count\": 1, \"tls_certificate_file\": \"/c\",\n"
	"\"tls_key_file\": \"key\", \"max_connections\": 1, \"shutdown_timeout\": \"1m1ms\",\n"
	"\"api_keys\": [\"0123456789abcdef\", \"#!\\\"'$%&/()=?abcd\"],\n"
	"\"pools\": {\"a\": {\"max_idle\": 0, \"max_total\": 7, \"idle_timeout\": \"90s\",\n"
	" \"acquire_min_remaining_ttl\": 0, \"create_rate\": 0.1, \"drain_timeout\": "
	"\"unlimited\",\n"
	" \"network\": \"host\", \"root\": \"/srv/image\", \"layers\": [\"/opt\", \"/a b\"],\n"
	" \"masks\": [\"/opt/x\"], \"images\": [\"python:*\"], \"hostname\": \"h\",\n"
	" \"allowed_binds\": [\"/x\", {\"path\": \"/y\", \"read_only\": true, \"recursive\": "
	"true}],\n"
	" \"limits\": {\"cpu\": 0.3333333333333333, \"file_size\": \"1GiB\", \"tmp\": "
	"\"65537B\"}},\n"
	" \"b\": {}}}";

Test(config, the_dump_reads_back_to_the_same_dump)
{
	struct sp_config *first = parse_good(everything);
	char *once = dump(first, true);
	struct sp_config *second = parse_good(once);
	char *twice = dump(second, true);

	cr_assert_str_eq(once, twice);
	cr_assert(second->pools[0].cpu == first->pools[0].cpu);
	cr_assert(second->pools[0].policy.create_rate == 0.1);
	cr_assert(second->pools[0].policy.drain_timeout_ms == -1);
	cr_assert(second->pools[0].policy.spec_generation ==
		  first->pools[0].policy.spec_generation);
	cr_assert(second->api_key_count == 2);
	cr_assert_str_eq(second->api_keys[1], "#!\"'$%&/()=?abcd");
	cr_assert_str_eq(second->state_dir, "/srv/\xc3\xa4\"\\");
	cr_assert(second->pools[0].bind_root_count == 2);
	cr_assert(second->pools[0].bind_roots[1].read_only &&
		  second->pools[0].bind_roots[1].recursive);
	free(once);
	free(twice);
	sp_config_free(first);
	sp_config_free(second);
}

Test(config, the_dump_hides_secrets_unless_asked_and_never_reads_them_back)
{
	struct sp_config *config = parse_good(everything);
	char *hidden = dump(config, false);
	struct sp_config *again;

	cr_assert_null(strstr(hidden, "0123456789abcdef"));
	cr_assert_not_null(strstr(hidden, "\"api_keys\": \"***\""));
	again = parse_good(hidden);
	cr_assert(again->api_key_count == 0);
	free(hidden);
	sp_config_free(again);
	sp_config_free(config);
}

Test(config, the_dump_has_every_key_of_the_schema)
{
	struct sp_config *config = parse_good("{}");
	char *text = dump(config, false);
	json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	json_t *pool = json_object_get(json_object_get(json, "pools"), "default");
	json_t *const objects[] = {json,
				   json_object_get(json, "redis"),
				   pool,
				   json_object_get(pool, "limits"),
				   json_object_get(pool, "warmup"),
				   json_object_get(pool, "readiness")};

	for (size_t i = 0; i < SP_SCHEMA_SCOPES; i++) {
		cr_assert(json_object_size(objects[i]) == sp_schema_scopes[i].count);
		for (size_t j = 0; j < sp_schema_scopes[i].count; j++)
			cr_assert_not_null(
				json_object_get(objects[i], sp_schema_scopes[i].keys[j].name));
	}
	json_decref(json);
	free(text);
	sp_config_free(config);
}

Test(config, a_dump_that_does_not_fit_leaves_the_buffer_as_it_was)
{
	struct sp_config *config = parse_good("{}");
	struct sp_err err = {0};
	struct sp_buf out;

	sp_buf_init(&out, 200);
	cr_assert(sp_buf_append(&out, "x", 1) == 0);
	cr_assert(sp_config_dump(config, false, &out, &err) == -E2BIG);
	cr_assert_str_eq(sp_buf_text(&out), "x");
	sp_buf_done(&out);
	sp_config_free(config);
}

Test(config, numbers_do_not_depend_on_the_locale)
{
	struct sp_config *config;
	char *text;

	if (!setlocale(LC_ALL, "de_DE.UTF-8"))
		cr_skip_test("no locale with a decimal comma on this machine");
	config = parse_pool("\"create_rate\": 0.5");
	text = dump(config, false);
	cr_assert(config->pools[0].policy.create_rate == 0.5);
	cr_assert_not_null(strstr(text, "\"create_rate\": 0.5,"));
	free(text);
	sp_config_free(config);
}

/* What stands around an object of each scope. */
static const char *const before[] = {"",
				     "{\"redis\":",
				     "{\"pools\":{\"p\":",
				     "{\"pools\":{\"p\":{\"limits\":",
				     "{\"pools\":{\"p\":{\"warmup\":",
				     "{\"pools\":{\"p\":{\"readiness\":"};
static const char *const after[] = {"", "}", "}}", "}}}", "}}}", "}}}"};

static const char *shown_zero(const struct sp_schema_key *key)
{
	if (key->type == SP_SCHEMA_BOOL)
		return "false";
	if (key->type == SP_SCHEMA_REAL)
		return "0.0";
	return key->type == SP_SCHEMA_DURATION || key->type == SP_SCHEMA_SIZE ? "\"0\"" : "0";
}

static void zero_is_kept(size_t scope, const struct sp_schema_key *key)
{
	const char *zero = key->type == SP_SCHEMA_BOOL ? "false" : "0";
	struct sp_config *config;
	char wanted[128];
	char text[256];
	char *shown;

	snprintf(text, sizeof(text), "%s{\"%s\": %s}%s", before[scope], key->name, zero,
		 after[scope]);
	config = parse_good(text);
	shown = dump(config, false);
	snprintf(wanted, sizeof(wanted), "\"%s\": %s", key->name, shown_zero(key));
	cr_assert_not_null(strstr(shown, wanted), "%s: %s", wanted, shown);
	free(shown);
	sp_config_free(config);
}

/* B-203: every boolean and number, set to false or 0, is what the dump shows. Only create_burst is
 * shown as what its 0 means. */
Test(config, an_explicit_false_or_zero_is_kept)
{
	for (size_t i = 0; i < SP_SCHEMA_SCOPES; i++)
		for (size_t j = 0; j < sp_schema_scopes[i].count; j++) {
			const struct sp_schema_key *key = &sp_schema_scopes[i].keys[j];

			if ((key->type == SP_SCHEMA_BOOL || key->zero) &&
			    strcmp(key->name, "create_burst") != 0)
				zero_is_kept(i, key);
		}
}

/* ---- faults ---- */

Test(config, all_faults_come_at_once_with_their_places)
{
	faults_are("{\n"
		   "  \"stroe\": \"memory\",\n"
		   "  \"max_connections\": \"many\",\n"
		   "  \"pools\": {\n"
		   "    \"a\": {\n"
		   "      \"max_idel\": 1,\n"
		   "      \"network\": \"hots\",\n"
		   "      \"limits\": {\n"
		   "        \"memory\": 64\n"
		   "      },\n"
		   "      \"layers\": [\n"
		   "        \"/ok\",\n"
		   "        \"relative\"\n"
		   "      ]\n"
		   "    }\n"
		   "  }\n"
		   "}\n",
		   "test.json:2: stroe: unknown key, did you mean 'store'?\n"
		   "test.json:3: max_connections: must be a whole number, not a string\n"
		   "test.json:6: pools.a.max_idel: unknown key, did you mean 'max_idle'?\n"
		   "test.json:7: pools.a.network: unknown word 'hots', did you mean \"host\"?\n"
		   "test.json:9: pools.a.limits.memory: a number has no unit: give one, e.g. "
		   "\"64MiB\"\n"
		   "test.json:13: pools.a.layers[1]: 'relative' must be an absolute path without "
		   "'.', '..', '//' and trailing '/'\n");
}

Test(config, unknown_keys_get_a_hint_only_when_one_is_near)
{
	fault_has("{\"colour\": 1}", "colour: unknown key\n");
	fault_has("{\"Listen\": []}", "did you mean 'listen'?");
	fault_has("{\"max_connection\": 1}", "did you mean 'max_connections'?");
	pool_fault_has("\"maxIdle\": 1", "did you mean 'max_idle'?");
	pool_fault_has("\"\": 1", "unknown key\n");
	pool_fault_has("\"limits\": {\"mem\": 1}", "unknown key\n");
	pool_fault_has("\"limits\": {\"meory\": 1}", "did you mean 'memory'?");
	pool_fault_has("\"allowed_binds\": [{\"path\": \"/x\", \"readonly\": true}]",
		       "pools.p.allowed_binds[0].readonly: unknown key, did you mean 'read_only'?");
}

Test(config, a_key_in_the_wrong_object_is_told_where_it_belongs)
{
	pool_fault_has("\"memory\": \"64MiB\"", "it belongs to the limits of a pool");
	pool_fault_has("\"listen\": []", "it belongs to the top level");
	fault_has("{\"idle_timeout\": \"1m\"}", "it belongs to a pool");
}

Test(config, no_hint_leads_to_a_key_that_files_cannot_have)
{
	pool_fault_has("\"seccomp_digst\": \"\"", "unknown key\n");
}

Test(config, repeated_keys_are_all_found)
{
	faults_are("{\"store\": \"memory\",\n\"store\": \"memory\",\n"
		   "\"pools\": {\"a\": {\"max_idle\": 1,\n\"max_idle\": 2}}}",
		   "test.json:2: 'store' is given twice, first on line 1\n"
		   "test.json:4: 'max_idle' is given twice, first on line 3\n");
	fault_has("{\"store\": \"memory\", \"\\u0073tore\": \"memory\"}", "given twice");
}

Test(config, text_that_is_no_json_is_one_fault_with_its_line)
{
	fault_has("", "not valid JSON");
	fault_has("{\n\"a\": 1,\n}", "test.json:3: not valid JSON");
	fault_has("{\n\n\"uid_count\": NaN}", "test.json:3: not valid JSON");
	fault_has("{\"uid_count\": 1e999}", "not valid JSON: real number overflow");
	fault_has("{\"uid_count\": 99999999999999999999}", "too big integer");
	fault_has("{\"store\": \"mem\\u0000ory\"}", "not valid JSON");
	fault_has("{\"store\": \"mem\xffory\"}", "not valid JSON");
	fault_has("{\"store\": 'memory'}", "not valid JSON");
	fault_has("{} {}", "not valid JSON");
	fault_has("{ /* }", "a comment that does not end");
	fault_has("\xef\xbb\xbf{}", "not valid JSON");
	fault_has("[1, 2]", "must hold one object");
	fault_has("null", "not valid JSON");
}

Test(config, deep_nesting_is_a_fault_and_no_crash)
{
	char text[5000];

	memset(text, '[', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	memcpy(text, "{\"a\":", 5);
	fault_has(text, "not valid JSON");
}

Test(config, wrong_types_are_named)
{
	fault_has("{\"store\": 1}", "store: must be a string, not a number");
	fault_has("{\"exec_enabled\": 0}", "must be true or false, not a number");
	fault_has("{\"exec_enabled\": \"false\"}", "must be true or false, not a string");
	fault_has("{\"exec_enabled\": null}", "leave the key out");
	fault_has("{\"uid_count\": 1.0}", "must be a whole number, not a fraction");
	fault_has("{\"uid_count\": true}", "must be a whole number, not a boolean");
	fault_has("{\"listen\": \"unix:///x\"}", "must be a list of strings, not a string");
	fault_has("{\"listen\": [1]}", "listen[0]: must be a string, not a number");
	fault_has("{\"pools\": []}", "pools: must be an object");
	fault_has("{\"pools\": {\"a\": 1}}", "pools.a: must be an object");
	fault_has("{\"log_level\": 1}", "must be a string");
	pool_fault_has("\"limits\": 1", "pools.p.limits: must be an object");
	pool_fault_has("\"create_rate\": \"1\"", "must be a number");
	pool_fault_has("\"idle_timeout\": []", "must be a duration");
	pool_fault_has("\"limits\": {\"memory\": {}}", "must be a size");
	pool_fault_has("\"allowed_binds\": {}", "must be a list");
	pool_fault_has("\"allowed_binds\": [1]", "allowed_binds[0]: must be a path");
	pool_fault_has("\"allowed_binds\": [{\"path\": 1}]",
		       "allowed_binds[0].path: must be a string");
	pool_fault_has("\"allowed_binds\": [{}]", "has no 'path'");
	pool_fault_has("\"allowed_binds\": [{\"path\": \"/x\", \"recursive\": 1}]",
		       "allowed_binds[0].recursive: must be true or false");
}

Test(config, numbers_where_a_unit_is_needed)
{
	pool_fault_has("\"idle_timeout\": 60", "no unit: give one, e.g. \"10s\"");
	pool_fault_has("\"idle_timeout\": 0.5", "no unit");
	pool_fault_has("\"idle_timeout\": \"60\"", "\"60s\"");
	pool_fault_has("\"limits\": {\"memory\": 536870912}", "no unit: give one, e.g. \"64MiB\"");
	pool_fault_has("\"limits\": {\"memory\": \"64\"}", "\"64MiB\"");
}

Test(config, numbers_out_of_range)
{
	fault_has("{\"uid_count\": -1}", "must be from 1 to 20000");
	fault_has("{\"max_connections\": 0}", "must be from 1 to 65536");
	pool_fault_has("\"limits\": {\"pids\": 0}", "must be from 8 to 4194304");
	pool_fault_has("\"limits\": {\"pids\": -1}", "must be from 8");
	pool_fault_has("\"limits\": {\"cpu\": 1e308}", "must be from 0.01 to 4096, or 0");
	pool_fault_has("\"limits\": {\"cpu\": -0.5}", "must be from 0.01");
	pool_fault_has("\"limits\": {\"cpu\": 1e-300}", "must be from 0.01");
	pool_fault_has("\"limits\": {\"memory\": \"0\"}", "must be from 4MiB to 16TiB");
	pool_fault_has("\"limits\": {\"memory\": \"18446744073709551615B\"}", "must be from 4MiB");
	pool_fault_has("\"limits\": {\"memory\": \"999999999TiB\"}", "too large");
	pool_fault_has("\"idle_timeout\": 0", "must be from 1ms to 8784h");
	pool_fault_has("\"idle_timeout\": \"367d\"", "must be from 1ms to 8784h");
	pool_fault_has("\"max_lease\": \"99999999999999999999h\"", "too long");
}

/* Other keys of the object that let this one reach its bounds. */
static const char *room_for(size_t scope, const char *name)
{
	if (scope == SP_SCHEMA_POOL_LIMITS && strcmp(name, "tmp") == 0)
		return "\"memory\": \"16TiB\", ";
	if (scope != SP_SCHEMA_POOL)
		return "";
	return strcmp(name, "idle_timeout") == 0 ? "\"acquire_min_remaining_ttl\": 0, "
						 : "\"idle_timeout\": \"8784h\", ";
}

static int try_number(size_t scope, const struct sp_schema_key *key, int64_t value)
{
	bool bare = key->type != SP_SCHEMA_DURATION && key->type != SP_SCHEMA_SIZE;
	const char *unit = key->type == SP_SCHEMA_DURATION ? "ms\"" : "B\"";
	struct sp_config_faults faults;
	struct sp_config *config = NULL;
	char text[512];
	int status;

	snprintf(text, sizeof(text), "%s{%s\"%s\": %s%lld%s}%s", before[scope],
		 room_for(scope, key->name), key->name, bare ? "" : "\"", (long long)value,
		 bare ? "" : unit, after[scope]);
	status = sp_config_parse(text, strlen(text), "t", &config, &faults);
	sp_config_faults_done(&faults);
	if (status == 0)
		sp_config_free(config);
	return status;
}

/* Every number of the table at its bounds and one beyond; and the policy agrees with the table. */
Test(config, each_number_is_accepted_at_its_bounds_and_refused_beyond)
{
	/* bounded by another key as well; looked at on their own below */
	static const char *const skipped[] = {"uid_base",       "acquire_min_remaining_ttl",
					      "refresh_margin", "backoff_initial",
					      "backoff_max",    "tmp",
					      "upper"};

	for (size_t i = 0; i < SP_SCHEMA_SCOPES; i++)
		for (size_t j = 0; j < sp_schema_scopes[i].count; j++) {
			const struct sp_schema_key *key = &sp_schema_scopes[i].keys[j];
			bool skip = key->max == 0;

			for (size_t k = 0; k < SP_ARRAY_SIZE(skipped); k++)
				skip = skip || strcmp(skipped[k], key->name) == 0;
			if (skip)
				continue;
			cr_assert(try_number(i, key, key->min) == 0, "%s min", key->name);
			cr_assert(try_number(i, key, key->max) == 0, "%s max", key->name);
			cr_assert(try_number(i, key, key->max + 1) == -EINVAL, "%s max + 1",
				  key->name);
			if (key->min > 1 || !key->zero)
				cr_assert(try_number(i, key, key->min - 1) == -EINVAL, "%s min - 1",
					  key->name);
			cr_assert((try_number(i, key, 0) == 0) == (key->zero != NULL), "%s 0",
				  key->name);
		}
}

Test(config, text_of_files_never_reaches_the_terminal_raw)
{
	char *message = parse_bad("{\"a\\u001b[31m\\nb\": 1, \"log_level\": \"x\\u0007\\ny\"}");

	for (const char *at = message; *at != '\0'; at++)
		cr_assert(*at >= ' ' || *at == '\n');
	cr_assert_not_null(strstr(message, "a\\x1b[31m\\x0ab: unknown key"));
	free(message);
}

static char *many_faults(size_t count)
{
	struct sp_buf text;

	sp_buf_init(&text, TEXT_MAX);
	cr_assert(sp_buf_printf(&text, "{") == 0);
	for (size_t i = 0; i < count; i++)
		cr_assert(sp_buf_printf(&text, "%s\n\"unknown%zu\": 1", i > 0 ? "," : "", i) == 0);
	cr_assert(sp_buf_printf(&text, "}") == 0);
	return sp_buf_take(&text);
}

Test(config, faults_are_listed_up_to_their_limit)
{
	for (size_t extra = 0; extra < 2; extra++) {
		char *text = many_faults(SP_CONFIG_FAULTS_MAX + extra);
		struct sp_config_faults faults;
		struct sp_config *config = NULL;
		char *message;

		cr_assert(sp_config_parse(text, strlen(text), "t", &config, &faults) == -EINVAL);
		cr_assert(faults.count == SP_CONFIG_FAULTS_MAX);
		cr_assert(faults.more == (extra == 1));
		message = faults_text(&faults);
		cr_assert((strstr(message, "more faults") != NULL) == (extra == 1));
		free(message);
		free(text);
		sp_config_faults_done(&faults);
	}
}

/* ---- limits on counts and lengths ---- */

static char *list_of(const char *head, const char *item, size_t count, const char *tail)
{
	struct sp_buf text;

	sp_buf_init(&text, TEXT_MAX);
	cr_assert(sp_buf_printf(&text, "%s", head) == 0);
	for (size_t i = 0; i < count; i++) {
		size_t at = strcspn(item, "#");

		cr_assert(sp_buf_printf(&text, "%s%.*s%zu%s", i > 0 ? "," : "", (int)at, item, i,
					item + at + 1) == 0);
	}
	cr_assert(sp_buf_printf(&text, "%s", tail) == 0);
	return sp_buf_take(&text);
}

/* "#" in item is its number. */
static void list_limit(const char *head, const char *item, size_t limit, const char *tail,
		       const char *words)
{
	char *text = list_of(head, item, limit, tail);
	struct sp_config *config = parse_good(text);

	sp_config_free(config);
	free(text);
	text = list_of(head, item, limit + 1, tail);
	fault_has(text, words);
	free(text);
}

Test(config, lists_up_to_their_limit)
{
	list_limit("{\"listen\":[", "\"unix:///s#\"", SP_CONFIG_LISTEN_MAX, "]}",
		   "listen: has 17 entries, at most 16");
	list_limit("{\"pools\":{", "\"p#\":{}", SP_TABLE_POOLS_MAX, "}}",
		   "pools: has 65 pools, at most 64");
	list_limit("{\"pools\":{\"p\":{\"images\":[", "\"i#\"", SP_CONFIG_IMAGES_MAX, "]}}}",
		   "images: has 65 entries");
	list_limit("{\"pools\":{\"p\":{\"layers\":[", "\"/l#\"", SP_CONFIG_LAYERS_MAX, "]}}}",
		   "layers: has 17 entries");
	list_limit("{\"pools\":{\"p\":{\"masks\":[", "\"/m#\"", SP_CONFIG_MASKS_MAX, "]}}}",
		   "masks: has 17 entries");
	list_limit("{\"pools\":{\"p\":{\"allowed_binds\":[", "\"/b#\"", SP_TABLE_ROOTS_MAX, "]}}}",
		   "allowed_binds: has 33 entries");
	list_limit("{\"pools\":{\"p\":{\"allowed_writable\":[", "\"/w#\"", SP_CONFIG_WRITABLE_MAX,
		   "]}}}", "allowed_writable: has 33 entries, at most 32");
	list_limit("{\"api_keys\":[", "\"key-0123456789-#\"", SP_CONFIG_API_KEYS_MAX, "]}",
		   "api_keys: has 65 entries");
}

static void length_limit(const char *head, const char *tail, const char *prefix, size_t limit,
			 const char *words)
{
	for (size_t extra = 0; extra < 2; extra++) {
		char value[1024];
		char text[2048];

		memset(value, 'a', sizeof(value));
		memcpy(value, prefix, strlen(prefix));
		value[limit + extra] = '\0';
		snprintf(text, sizeof(text), "%s%s%s", head, value, tail);
		if (extra == 0)
			sp_config_free(parse_good(text));
		else
			fault_has(text, words);
	}
}

Test(config, texts_up_to_their_limit)
{
	length_limit("{\"state_dir\": \"", "\"}", "/", SP_TABLE_PATH_MAX - 1, "at most 511 bytes");
	length_limit("{\"listen\": [\"", "\"]}", "unix:///", 7 + 107, "at most 107 bytes");
	length_limit("{\"instance\": \"", "\"}", "a", SP_POOL_NAME_MAX, "63 characters");
	length_limit("{\"user\": \"", "\"}", "a", 32, "account");
	length_limit("{\"pools\": {\"", "\": {}}}", "a", SP_POOL_NAME_MAX, "a pool's name must be");
	length_limit("{\"pools\": {\"p\": {\"hostname\": \"", "\"}}}", "a", 63, "host name");
	length_limit("{\"pools\": {\"p\": {\"images\": [\"", "\"]}}}", "a", 255, "image name");
	length_limit("{\"api_keys\": [\"", "\"]}", "a", SP_CONFIG_API_KEY_MAX, "16 to 256");
	fault_has("{\"api_keys\": [\"123456789012345\"]}", "16 to 256");
}

/* ---- what texts may look like ---- */

Test(config, paths_are_absolute_and_normalised)
{
	static const char *const bad[] = {"",   "x",   "./x",    "//x",   "/x//y", "/x/",
					  "/.", "/..", "/x/./y", "/x/..", "/",     "/x\\ny"};

	for (size_t i = 0; i < SP_ARRAY_SIZE(bad); i++) {
		char text[128];

		snprintf(text, sizeof(text), "{\"state_dir\": \"%s\"}", bad[i]);
		fault_has(text, "state_dir: ");
	}
	sp_config_free(parse_good("{\"state_dir\": \"/.x/..y/z...\"}"));
}

Test(config, listen_addresses)
{
	static const char *const good[] = {
		"unix:///run/x.sock",   "tcp://127.0.0.1:1", "tcp://localhost:65535",
		"tcp://127.9.9.9:8080", "tcp://[::1]:8080",
	};
	static const char *const bad[] = {
		"/run/x.sock",
		"unix://x",
		"unix:///",
		"unix:///a/../b",
		"http://x:1",
		"tcp://",
		"tcp://:80",
		"tcp://127.0.0.1",
		"tcp://127.0.0.1:",
		"tcp://127.0.0.1:0",
		"tcp://127.0.0.1:65536",
		"tcp://127.0.0.1:08",
		"tcp://127.0.0.1:-1",
		"tcp://127.0.0.1:1x",
		"tcp://127.1:80",
		"tcp://256.0.0.1:80",
		"tcp://::1:80",
		"tcp://[::1]",
		"tcp://[127.0.0.1]:80",
		"tcp://[::1:80",
		"tcp://a b:80",
		"tcp://-a:80",
		"tcp://a/b:80",
		"tcp://u@h:80",
		"tls://",
		"TCP://127.0.0.1:80",
	};
	char text[256];

	for (size_t i = 0; i < SP_ARRAY_SIZE(good); i++) {
		snprintf(text, sizeof(text), "{\"listen\": [\"%s\"]}", good[i]);
		sp_config_free(parse_good(text));
	}
	for (size_t i = 0; i < SP_ARRAY_SIZE(bad); i++) {
		snprintf(text, sizeof(text), "{\"insecure\": true, \"listen\": [\"%s\"]}", bad[i]);
		fault_has(text, "listen[0]: ");
	}
}

Test(config, the_same_entry_twice_is_a_fault)
{
	fault_has("{\"listen\": [\"unix:///a\", \"unix:///b\", \"unix:///a\"]}",
		  "listen[2]: the same as entry 0");
	pool_fault_has("\"layers\": [\"/a\", \"/a\"]", "layers[1]: the same as entry 0");
	pool_fault_has("\"allowed_binds\": [\"/a\", {\"path\": \"/a\", \"read_only\": true}]",
		       "allowed_binds[1]: the same as entry 0");
}

Test(config, names_of_pools)
{
	fault_has("{\"pools\": {\"Default\": {}}}", "pools.Default: a pool's name must be");
	fault_has("{\"pools\": {\"\": {}}}", "a pool's name must be");
	fault_has("{\"pools\": {\"-a\": {}}}", "a pool's name must be");
	fault_has("{\"pools\": {\"a/b\": {}}}", "a pool's name must be");
	fault_has("{\"pools\": {}}", "must name at least one pool");
}

Test(config, a_redis_store_with_a_password_is_refused_without_showing_it) /* B-146 */
{
	static const char *const urls[] = {"redis://user:hunter2@h:6379/0", "rediss://:hunter2@h",
					   "redis+sentinel://u:hunter2@h,i/m"};

	for (size_t i = 0; i < SP_ARRAY_SIZE(urls); i++) {
		char text[128];
		char *message;

		snprintf(text, sizeof(text), "{\"store\": \"%s\"}", urls[i]);
		message = parse_bad(text);
		cr_assert_not_null(strstr(message, "redis.password_file"));
		cr_assert_null(strstr(message, "hunter2"));
		free(message);
	}
	fault_has("{\"store\": \"mysql://hunter2\"}", "must be \"memory\" or begin with");
}

Test(config, stores)
{
	static const char *const urls[] = {"redis://h:6379/0",
					   "redis://user@h",
					   "rediss://h",
					   "unix:///run/redis.sock?db=1",
					   "redis+sentinel://a:1,b:2/m/0",
					   "rediss+sentinel://a/m"};

	for (size_t i = 0; i < SP_ARRAY_SIZE(urls); i++) {
		char text[128];
		struct sp_config *config;

		snprintf(text, sizeof(text), "{\"store\": \"%s\"}", urls[i]);
		config = parse_good(text);
		cr_assert_str_eq(config->store, urls[i]);
		cr_assert_str_eq(config->redis.prefix, "sandpool");
		cr_assert(config->capacity == 1 && config->host[0] == '\0');
		cr_assert(config->redis.command_timeout_ms == 1000 && !config->redis.password_file);
		sp_config_free(config);
	}
	fault_has("{\"host\": \"Upper\"}", "host: 'Upper' must be 1 to 63 characters");
	fault_has("{\"advertise\": \"host:1\"}", "advertise: 'host:1' must be unix:///path");
	fault_has("{\"redis\": {\"prefix\": \"a{b}\"}}", "redis.prefix: 'a{b}' must be 1 to 64");
	fault_has("{\"redis\": {\"password_file\": \"./pw\"}}", "redis.password_file: ");
	fault_has("{\"prefix\": \"x\"}", "it belongs to the section redis");
	fault_has("{\"redis\": \"x\"}", "redis: must be an object");
}

Test(config, what_isolated_sessions_may_write_is_replaced_not_added_to)
{
	struct sp_config *config = parse_pool("\"allowed_writable\": [\"/srv/in\"]");

	cr_assert(config->pools[0].allowed_writable_count == 1);
	cr_assert_str_eq(config->pools[0].allowed_writable[0], "/srv/in");
	sp_config_free(config);
	config = parse_pool("\"allowed_writable\": []");
	cr_assert(config->pools[0].allowed_writable_count == 0);
	sp_config_free(config);
	pool_fault_has("\"allowed_writable\": [\"/\"]",
		       "allowed_writable[0]: '/' must be a directory below '/'");
	pool_fault_has("\"allowed_writable\": [\"/a/../b\"]", "must be an absolute path");
	pool_fault_has("\"allowed_writable\": [\"/a\", \"/a\"]", "[1]: the same as entry 0");
	pool_fault_has("\"allowed_writable\": \"/a\"", "must be a list");
}

Test(config, the_sizes_of_isolated_sessions)
{
	struct sp_config *config = parse_pool("\"limits\": {\"tmp\": \"1MiB\"}");

	cr_assert(config->pools[0].upper_bytes == 1u << 20, "follows tmp");
	sp_config_free(config);
	config = parse_pool("\"limits\": {\"memory\": \"8MiB\", \"tmp\": \"1MiB\", "
			    "\"upper\": \"8388607B\", \"diff\": \"64KiB\"}");
	cr_assert(config->pools[0].upper_bytes == (8u << 20) - 1);
	cr_assert(config->pools[0].diff_bytes == 64u << 10);
	sp_config_free(config);
	pool_fault_has("\"limits\": {\"memory\": \"8MiB\", \"tmp\": \"1MiB\", \"upper\": \"8MiB\"}",
		       "limits.upper: 8MiB must be below limits.memory (8MiB)");
	pool_fault_has("\"limits\": {\"upper\": \"65535B\"}", "limits.upper");
	pool_fault_has("\"limits\": {\"diff\": \"65535B\"}", "limits.diff");
	pool_fault_has("\"limits\": {\"upper\": \"0\"}", "limits.upper");
}

Test(config, the_digest_of_a_spec_counts_what_a_sandbox_is_made_of)
{
	static const char *const same[] = {
		"\"max_idle\": 3",          "\"idle_timeout\": \"5h\"",
		"\"spec_revision\": 7",     "\"images\": [\"x\"]",
		"\"allowed_writable\": []", "\"limits\": {\"upper\": \"1MiB\"}"};
	struct sp_config *base = parse_pool("");
	struct sp_config *other = parse_pool("\"limits\": {\"pids\": 300}");
	char first[SP_CONFIG_DIGEST_LEN + 1];
	char second[SP_CONFIG_DIGEST_LEN + 1];

	sp_config_spec_digest(&base->pools[0], 1, first);
	sp_config_spec_digest(&other->pools[0], 1, second);
	cr_assert(strlen(first) == SP_CONFIG_DIGEST_LEN && strcmp(first, second) != 0);
	sp_config_spec_digest(&base->pools[0], 2, second);
	cr_assert(strcmp(first, second) != 0, "another init");
	sp_config_free(other);
	for (size_t i = 0; i < SP_ARRAY_SIZE(same); i++) {
		other = parse_pool(same[i]);
		sp_config_spec_digest(&other->pools[0], 1, second);
		cr_assert_str_eq(first, second);
		sp_config_free(other);
	}
	sp_config_free(base);
}

Test(config, roots)
{
	struct sp_config *config = parse_pool("\"root\": \"/srv/image\"");

	cr_assert_str_eq(config->pools[0].root, "/srv/image");
	sp_config_free(config);
	sp_config_free(parse_pool("\"root\": \"host\""));
	pool_fault_has("\"root\": \"/\"", "\"host\" shows the host's root");
	pool_fault_has("\"root\": \"sytem\"", "must be \"system\", \"host\" or");
	pool_fault_has("\"root\": \"\"", "must be \"system\"");
	pool_fault_has("\"root\": \"/a/../b\"", "absolute path");
}
