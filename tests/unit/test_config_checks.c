/*
 * What two keys must agree on, and the digest of what a sandbox is made of.
 */
#include "tests/unit/test_config.h"

#include "supervisor/config/schema.h"

Test(config_checks, the_minimum_remaining_life_is_below_the_idle_timeout)
{
	struct sp_config *config =
		parse_pool("\"idle_timeout\": \"10s\", \"acquire_min_remaining_ttl\": \"9999ms\"");

	cr_assert(config->pools[0].policy.acquire_min_remaining_ttl_ms == 9999);
	sp_config_free(config);
	pool_fault_has("\"idle_timeout\": \"10s\", \"acquire_min_remaining_ttl\": \"10s\"",
		       "acquire_min_remaining_ttl: 10s must be below idle_timeout (10s)");
	pool_fault_has("\"idle_timeout\": \"10s\", \"acquire_min_remaining_ttl\": \"1m\"",
		       "must be below idle_timeout");
}

Test(config_checks, the_minimum_follows_a_short_idle_timeout_unless_given)
{
	struct sp_config *config = parse_pool("\"idle_timeout\": \"10s\"");

	cr_assert(config->pools[0].policy.acquire_min_remaining_ttl_ms == 5000);
	sp_config_free(config);
	config = parse_pool("\"idle_timeout\": \"10s\", \"acquire_min_remaining_ttl\": \"auto\"");
	cr_assert(config->pools[0].policy.acquire_min_remaining_ttl_ms == 5000);
	sp_config_free(config);
	config = parse_pool("\"idle_timeout\": \"10s\", \"acquire_min_remaining_ttl\": 0");
	cr_assert(config->pools[0].policy.acquire_min_remaining_ttl_ms == 0);
	sp_config_free(config);
}

Test(config_checks, a_key_with_a_fault_causes_no_second_one)
{
	pool_fault_has("\"idle_timeout\": \"10\", \"acquire_min_remaining_ttl\": \"48h\"",
		       "idle_timeout");
	pool_fault_has("\"limits\": {\"memory\": 1, \"tmp\": \"16TiB\"}", "limits.memory");
	fault_has("{\"allow_host_network\": 1, \"pools\": {\"p\": {\"network\": \"host\"}}}",
		  "allow_host_network");
	fault_has("{\"insecure\": 1, \"listen\": [\"tcp://0.0.0.0:1\"]}", "insecure");
}

Test(config_checks, the_policy_s_own_checks_are_faults_of_the_pool)
{
	pool_fault_has("\"backoff_initial\": \"10s\", \"backoff_max\": \"1s\"", "backoff_max");
	pool_fault_has("\"idle_timeout\": \"1m\", \"refresh_margin\": \"1m\"", "refresh_margin");
}

Test(config_checks, tmp_is_below_memory)
{
	struct sp_config *config =
		parse_pool("\"limits\": {\"memory\": \"64MiB\", \"tmp\": \"67108863B\"}");

	sp_config_free(config);
	pool_fault_has("\"limits\": {\"memory\": \"64MiB\", \"tmp\": \"64MiB\"}",
		       "pools.p.limits.tmp: 64MiB must be below limits.memory (64MiB)");
}

Test(config_checks, dangerous_choices_need_their_switch)
{
	pool_fault_has("\"network\": \"host\"", "\"allow_host_network\": true");
	fault_has("{\"allow_host_network\": false, \"pools\": {\"p\": {\"network\": \"host\"}}}",
		  "allow_host_network");
	pool_fault_has("\"backend\": \"direct\", \"direct_user\": \"nobody\"",
		       "\"allow_direct\": true");
	fault_has("{\"allow_direct\": true, \"pools\": {\"p\": {\"backend\": \"direct\"}}}",
		  "direct_user");
	fault_has("{\"allow_direct\": true, \"pools\": {\"p\": {\"backend\": \"direct\", "
		  "\"direct_user\": \"root\"}}}",
		  "is root");
	fault_has("{\"allow_direct\": true, \"pools\": {\"p\": {\"backend\": \"direct\", "
		  "\"direct_user\": \"0\"}}}",
		  "is root");
	fault_has("{\"allow_direct\": true, \"pools\": {\"p\": {\"backend\": \"direct\", "
		  "\"direct_user\": \"no-such-user-here\"}}}",
		  "no such account");
	fault_has("{\"allow_direct\": true, \"user\": \"daemon\", \"pools\": {\"p\": {\"backend\": "
		  "\"direct\", \"direct_user\": \"1\"}}}",
		  "the daemon's own 'user'");
	pool_fault_has("\"direct_user\": \"nobody\"", "has no effect");
}

Test(config_checks, a_direct_user_is_resolved_by_name_and_by_number)
{
	struct sp_config *config =
		parse_good("{\"allow_direct\": true, \"pools\": {"
			   "\"a\": {\"backend\": \"direct\", \"direct_user\": \"daemon\"},"
			   "\"b\": {\"backend\": \"direct\", \"direct_user\": \"54321\"}}}");

	cr_assert(config->pools[0].direct);
	cr_assert(config->pools[0].direct_uid == 1 && config->pools[0].direct_gid == 1);
	cr_assert(config->pools[1].direct_uid == 54321 && config->pools[1].direct_gid == 54321);
	sp_config_free(config);
}

Test(config_checks, tcp_in_clear_stays_on_the_machine)
{
	static const char *const far[] = {"tcp://0.0.0.0:80", "tcp://10.0.0.1:80", "tcp://[::]:80",
					  "tcp://example.org:80", "tcp://127.evil.org:80"};
	char text[256];

	for (size_t i = 0; i < SP_ARRAY_SIZE(far); i++) {
		snprintf(text, sizeof(text), "{\"listen\": [\"%s\"]}", far[i]);
		fault_has(text, "\"insecure\": true");
		snprintf(text, sizeof(text), "{\"insecure\": true, \"listen\": [\"%s\"]}", far[i]);
		sp_config_free(parse_good(text));
	}
}

Test(config_checks, tls_needs_its_two_files)
{
	fault_has("{\"listen\": [\"tls://0.0.0.0:443\"]}",
		  "'tls_certificate_file' and 'tls_key_file'");
	fault_has("{\"listen\": [\"tls://0.0.0.0:443\"], \"tls_key_file\": \"/k\"}",
		  "tls_certificate_file");
	sp_config_free(parse_good("{\"listen\": [\"tls://0.0.0.0:443\"], \"tls_key_file\": \"/k\", "
				  "\"tls_certificate_file\": \"/c\"}"));
}

Test(config_checks, uid_ranges_fit_and_do_not_overlap)
{
	struct sp_config *config = parse_good("{\"uid_base\": 4294836224, \"uid_count\": 1}");

	sp_config_free(config);
	fault_has("{\"uid_base\": 4294836224, \"uid_count\": 2}", "do not fit below 2^32");
	fault_has("{\"uid_base\": 100000}", "a multiple of 65536");
	fault_has("{\"uid_base\": 65535}", "must be from 65536");
	fault_has("{\"uid_base\": 4294967296}", "must be from 65536");
	sp_config_free(parse_good("{\"uid_base\": 65536, \"uid_count\": 1}"));
	sp_config_free(parse_good("{\"uid_base\": 0}"));
}

Test(config_checks, layers_stay_off_the_sandbox_s_own_places)
{
	pool_fault_has("\"layers\": [\"/opt\", \"/proc\"]", "layers[1]: '/proc' cannot be a layer");
	pool_fault_has("\"layers\": [\"/etc/x\"]", "cannot be a layer");
	pool_fault_has("\"layers\": [\"/dev/shm\"]", "cannot be a layer");
	sp_config_free(parse_pool("\"layers\": [\"/etcetera\", \"/devel\"]"));
}

/* ---- the digest of a sandbox ---- */

static uint64_t digest_of(const char *members)
{
	struct sp_config *config = parse_pool(members);
	uint64_t digest = config->pools[0].policy.spec_generation;

	cr_assert(digest == sp_config_spec_generation(config, &config->pools[0]));
	sp_config_free(config);
	return digest;
}

Test(config_checks, the_digest_changes_with_what_a_sandbox_is_made_of)
{
	static const char *const specs[] = {
		"",
		"\"root\": \"host\"",
		"\"root\": \"/srv/a\"",
		"\"hostname\": \"h\"",
		"\"layers\": [\"/opt\"]",
		"\"masks\": [\"/opt\"]",
		"\"layers\": [\"/opt\", \"/a\"]",
		"\"layers\": [\"/a\", \"/opt\"]",
		"\"limits\": {\"memory\": \"1GiB\"}",
		"\"limits\": {\"pids\": 100}",
		"\"limits\": {\"cpu\": 0.5}",
		"\"limits\": {\"open_files\": 100}",
		"\"limits\": {\"tmp\": \"1MiB\"}",
		"\"limits\": {\"tmp_inodes\": 100}",
		"\"limits\": {\"file_size\": \"1MiB\"}",
		"\"limits\": {\"stack\": \"1MiB\"}",
		"\"warmup\": {\"command\": [\"a\"]}",
		"\"warmup\": {\"command\": [\"a\", \"a\"]}",
		"\"readiness\": {\"command\": [\"a\"]}",
		"\"seccomp_profile\": \"/a\"",
		"\"seccomp_profile\": \"/a\", \"seccomp_digest\": \"0123456789abcdef\"",
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(specs); i++) {
		cr_assert(digest_of(specs[i]) != 0);
		for (size_t j = 0; j < i; j++)
			cr_assert(digest_of(specs[i]) != digest_of(specs[j]), "%s and %s", specs[i],
				  specs[j]);
	}
}

Test(config_checks, the_digest_does_not_change_with_sizes_timers_and_names)
{
	cr_assert(
		digest_of(
			"\"max_idle\": 1, \"max_total\": 5, \"idle_timeout\": \"1m\", "
			"\"max_lease\": \"1m\", \"images\": [\"x\"], \"allowed_binds\": [\"/x\"], "
			"\"default_timeout\": \"1s\", \"limits\": {\"output\": \"1MiB\"}, "
			"\"warmup\": {\"timeout\": \"2s\"}, \"readiness\": {\"interval\": \"1s\", "
			"\"timeout\": \"2s\", \"attempt_timeout\": \"1s\"}") == digest_of(""));
}

/* ---- did you mean ---- */

Test(config_nearest, one_edit_in_three_letters)
{
	const struct sp_schema_scope *pool = &sp_schema_scopes[SP_SCHEMA_POOL];
	char text[200];

	cr_assert_str_eq(sp_schema_nearest_key(pool, "max_idel"), "max_idle");
	cr_assert_str_eq(sp_schema_nearest_key(pool, "idle-timeout"), "idle_timeout");
	cr_assert_str_eq(sp_schema_nearest_key(pool, "rot"), "root");
	cr_assert_null(sp_schema_nearest_key(pool, "xyz"));
	cr_assert_null(sp_schema_nearest_key(pool, ""));
	memset(text, 'a', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	cr_assert_null(sp_schema_nearest_key(pool, text));
}
