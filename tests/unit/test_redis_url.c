/*
 * The URL and the options around it: what is accepted, what is refused and in which words, and that
 * no part of a misplaced password is repeated.
 */
#include "redis/url.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

TestSuite(redis_url, .timeout = 30);

static struct sp_redis_url parse(const char *text)
{
	struct sp_redis_url url;
	struct sp_err err = {0};

	cr_assert(sp_redis_url_parse(text, &url, &err) == 0, "%s: %s", text, err.message);
	return url;
}

static void refuse(const char *text, const char *words)
{
	struct sp_redis_url url = {.db = 77};
	struct sp_err err = {0};

	cr_assert(sp_redis_url_parse(text, &url, &err) == -EINVAL, "%s", text);
	cr_assert(err.code == SP_CODE_CONFIG_INVALID);
	cr_assert(url.db == 77);
	cr_assert(strncmp(err.message, "redis URL: ", 11) == 0);
	cr_assert_not_null(strstr(err.message, words), "%s: %s", text, err.message);
}

Test(redis_url, a_host_has_the_standard_port_and_database)
{
	struct sp_redis_url url = parse("redis://cache");

	cr_assert(url.count == 1 && strcmp(url.servers[0].host, "cache") == 0);
	cr_assert(url.servers[0].port == 6379 && url.db == 0 && !url.tls && !url.sentinel);
	cr_assert(url.user[0] == '\0' && url.servers[0].path[0] == '\0');
}

Test(redis_url, every_part_is_taken_apart)
{
	struct sp_redis_url url = parse("rediss://bob%40x@10.0.0.1:7000/12");

	cr_assert(strcmp(url.user, "bob@x") == 0 && strcmp(url.servers[0].host, "10.0.0.1") == 0);
	cr_assert(url.servers[0].port == 7000 && url.db == 12 && url.tls);
}

Test(redis_url, ipv6_stands_in_brackets)
{
	struct sp_redis_url url = parse("redis://[::1]:6380/1");

	cr_assert(strcmp(url.servers[0].host, "::1") == 0 && url.servers[0].port == 6380);
	url = parse("redis://[fe80::1:2]");
	cr_assert(strcmp(url.servers[0].host, "fe80::1:2") == 0 && url.servers[0].port == 6379);
	refuse("redis://::1", "IPv6 in brackets");
	refuse("redis://[::1", "brackets");
	refuse("redis://[::1]x", "behind ']'");
	refuse("redis://[]", "brackets");
	refuse("redis://[1.2.3.4]", "brackets");
	refuse("redis://[fe80::1%25eth0]", "brackets");
}

Test(redis_url, a_unix_path_may_name_a_database)
{
	struct sp_redis_url url = parse("unix:///run/redis%20one.sock?db=3");

	cr_assert(strcmp(url.servers[0].path, "/run/redis one.sock") == 0 && url.db == 3);
	cr_assert(url.servers[0].host[0] == '\0' && url.count == 1);
	refuse("unix://run/redis.sock", "absolute");
	refuse("unix://", "absolute");
	refuse("unix:///a?db=", "database");
	refuse("unix:///a?db=x", "database");
	refuse("unix:///a?x=1", "?db=N");
	refuse("unix:///a%", "malformed");
	refuse("unix:///a%0", "malformed");
	refuse("unix:///a%00", "malformed");
	refuse("unix:///a%zz", "malformed");
	refuse("unix:///a\n", "malformed");
}

Test(redis_url, sentinels_name_a_master)
{
	struct sp_redis_url url = parse("redis+sentinel://a,b:1,[::1]:2/my-master.1/4");

	cr_assert(url.sentinel && !url.tls && url.count == 3 && url.db == 4);
	cr_assert(strcmp(url.master, "my-master.1") == 0);
	cr_assert(strcmp(url.servers[0].host, "a") == 0 && url.servers[0].port == 26379);
	cr_assert(url.servers[1].port == 1 && url.servers[2].port == 2);
	cr_assert(strcmp(url.servers[2].host, "::1") == 0);
	cr_assert(parse("rediss+sentinel://u@a/m").tls);
	cr_assert(strcmp(parse("rediss+sentinel://u@a/m").user, "u") == 0);
	refuse("redis+sentinel://a", "master's name");
	refuse("redis+sentinel://a/", "master's name");
	refuse("redis+sentinel://a/m m", "master's name");
	refuse("redis+sentinel://a,/m", "host name");
	refuse("redis+sentinel://,a/m", "host name");
	refuse("redis+sentinel://a/m/", "database");
	refuse("redis+sentinel://a/m/x", "database");
}

Test(redis_url, sentinels_are_sixteen_at_most)
{
	char text[256] = "redis+sentinel://s";

	for (int i = 1; i < 16; i++)
		(void)snprintf(text + strlen(text), sizeof(text) - strlen(text), ",s%d", i);
	(void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "/m");
	cr_assert(parse(text).count == SP_REDIS_SENTINELS_MAX);
	(void)snprintf(text + strlen(text) - 2, sizeof(text) - strlen(text), ",s16/m");
	refuse(text, "16 Sentinels");
}

Test(redis_url, ports_are_1_to_65535)
{
	cr_assert(parse("redis://a:65535").servers[0].port == 65535);
	cr_assert(parse("redis://a:1").servers[0].port == 1);
	refuse("redis://a:65536", "'a:65536': the port must be 1 to 65535");
	refuse("redis://a:0", "port");
	refuse("redis://a:", "port");
	refuse("redis://a:+1", "port");
	refuse("redis://a: 1", "port");
	refuse("redis://a:1x", "port");
	refuse("redis://a:99999999999999999999", "port");
}

Test(redis_url, databases_are_0_to_65535)
{
	cr_assert(parse("redis://a/65535").db == SP_REDIS_DB_MAX);
	cr_assert(parse("redis://a/").db == 0);
	refuse("redis://a/65536", "database");
	refuse("redis://a/-1", "database");
	refuse("redis://a/1/2", "database");
}

static void repeat(char *text, size_t size, const char *before, size_t count, const char *after)
{
	size_t len = strlen(before);

	cr_assert(len + count + strlen(after) < size);
	memcpy(text, before, len);
	memset(text + len, 'a', count);
	memcpy(text + len + count, after, strlen(after) + 1);
}

Test(redis_url, lengths_are_bounded)
{
	static char text[8192];

	repeat(text, sizeof(text), "redis://", SP_REDIS_HOST_NAME_MAX, ":1");
	cr_assert(strlen(parse(text).servers[0].host) == SP_REDIS_HOST_NAME_MAX);
	repeat(text, sizeof(text), "redis://", SP_REDIS_HOST_NAME_MAX + 1, ":1");
	refuse(text, "host name");
	repeat(text, sizeof(text), "unix:///", SP_REDIS_PATH_MAX - 1, "");
	cr_assert(strlen(parse(text).servers[0].path) == SP_REDIS_PATH_MAX);
	repeat(text, sizeof(text), "unix:///", SP_REDIS_PATH_MAX, "");
	refuse(text, "107 bytes");
	repeat(text, sizeof(text), "redis://", SP_REDIS_USER_MAX, "@h");
	cr_assert(strlen(parse(text).user) == SP_REDIS_USER_MAX);
	repeat(text, sizeof(text), "redis://", SP_REDIS_USER_MAX + 1, "@h");
	refuse(text, "user");
	repeat(text, sizeof(text), "redis+sentinel://h/", SP_REDIS_MASTER_MAX, "");
	cr_assert(strlen(parse(text).master) == SP_REDIS_MASTER_MAX);
	repeat(text, sizeof(text), "redis+sentinel://h/", SP_REDIS_MASTER_MAX + 1, "");
	refuse(text, "master's name");
	repeat(text, sizeof(text), "redis://", SP_REDIS_URL_MAX - 8, "");
	refuse(text, "host name");
	repeat(text, sizeof(text), "redis://", SP_REDIS_URL_MAX - 7, "");
	refuse(text, "4096 bytes");
}

Test(redis_url, a_scheme_that_is_none_is_told_the_right_ones)
{
	refuse("", "redis+sentinel://");
	refuse("localhost:6379", "'localhost:6379'");
	refuse("http://a", "rediss://");
	refuse("redis:/a", "redis://host");
	refuse("REDIS://a", "redis://host");
	refuse("redis://", "host name");
	refuse("redis://a?x=1", "nothing behind");
	refuse("redis://a/1#x", "nothing behind");
	refuse("redis://a b", "host name");
	refuse("redis://a,b", "host name");
}

Test(redis_url, b146_a_password_is_refused_and_never_repeated)
{
	const char *const urls[] = {
		"redis://:hunter2@h",
		"redis://u:hunter2@h/0",
		"redis://u:hun/ter2@h",
		"redis://u:hun?ter2@h",
		"rediss://u:hun#ter2@h",
		"redis://u:hunter2@[::x]",
		"redis+sentinel://:hunter2@h",
		"unix://u:hunter2@/run/sock",
		"u:hunter2@h",
		"redis://u:hunter2@@h:x",
		"redis://h/hunter2@h",
		"unix:///x?password=hunter2",
	};

	for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
		struct sp_redis_url url;
		struct sp_err err = {0};

		cr_assert(sp_redis_url_parse(urls[i], &url, &err) == -EINVAL, "%s", urls[i]);
		cr_assert_null(strstr(err.message, "hun"), "%s", err.message);
		cr_assert_null(strstr(err.message, "ter2"), "%s", err.message);
	}
	refuse("redis://:hunter2@h", "password_file");
	refuse("redis://@h", "user before '@'");
}

Test(redis_url, faults_are_one_printable_line)
{
	struct sp_redis_url url;
	struct sp_err err = {0};

	cr_assert(sp_redis_url_parse("redis://a\nERROR forged\x1b[0m", &url, &err) == -EINVAL);
	for (const char *at = err.message; *at; at++)
		cr_assert((unsigned char)*at >= ' ' && *at != 0x7f);
}

Test(redis_url, addresses_of_servers_are_checked_too)
{
	struct sp_redis_address address;
	char text[SP_REDIS_ADDRESS_TEXT_MAX];

	cr_assert(sp_redis_address_set("::1", 3, "6379", 4, &address) == 0);
	cr_assert(strcmp(sp_redis_address_text(&address, text, sizeof(text)), "[::1]:6379") == 0);
	cr_assert(sp_redis_address_set("10.0.0.1", 8, "1", 1, &address) == 0);
	cr_assert(strcmp(sp_redis_address_text(&address, text, sizeof(text)), "10.0.0.1:1") == 0);
	cr_assert(sp_redis_address_set("", 0, "1", 1, &address) == -EINVAL);
	cr_assert(sp_redis_address_set("a b", 3, "1", 1, &address) == -EINVAL);
	cr_assert(sp_redis_address_set("a", 1, "0", 1, &address) == -EINVAL);
	cr_assert(sp_redis_address_set("a", 1, "", 0, &address) == -EINVAL);
	cr_assert(sp_redis_address_set("/run/sock", 9, "1", 1, &address) == -EINVAL);
}

/* ---- options ---- */

static void refuse_option(struct sp_redis_options options, const char *words)
{
	struct sp_err err = {0};

	if (!options.url)
		options.url = "redis://h";
	cr_assert(sp_redis_options_check(&options, &err) == -EINVAL, "%s", words);
	cr_assert(err.code == SP_CODE_CONFIG_INVALID);
	cr_assert_not_null(strstr(err.message, words), "%s", err.message);
}

static void accept_option(struct sp_redis_options options)
{
	struct sp_err err = {0};

	if (!options.url)
		options.url = "redis://h";
	cr_assert(sp_redis_options_check(&options, &err) == 0, "%s", err.message);
}

Test(redis_url, options_that_do_not_fit_are_named)
{
	struct sp_err err = {0};

	cr_assert(sp_redis_options_check(&(struct sp_redis_options){0}, &err) == -EINVAL);
	cr_assert_not_null(strstr(err.message, "'url': is missing"));
	refuse_option((struct sp_redis_options){.url = "x://"}, "redis URL");
	refuse_option((struct sp_redis_options){.ca_file = "/ca"}, "'ca_file'");
	refuse_option((struct sp_redis_options){.cert_file = "/c", .key_file = "/k"},
		      "'cert_file'");
	refuse_option((struct sp_redis_options){.server_name = "h"}, "'server_name'");
	refuse_option((struct sp_redis_options){.url = "rediss://h", .cert_file = "/c"},
		      "go together");
	refuse_option((struct sp_redis_options){.url = "rediss://h", .key_file = "/k"},
		      "'key_file'");
	refuse_option((struct sp_redis_options){.url = "rediss://h", .server_name = "a b"},
		      "'server_name'");
	refuse_option((struct sp_redis_options){.sentinel_password_file = "/p"},
		      "names no Sentinels");
	refuse_option((struct sp_redis_options){.user = "a b"}, "'user'");
	refuse_option((struct sp_redis_options){.client_name = "a b"}, "'client_name'");
	refuse_option((struct sp_redis_options){.client_name = "\xc3\xa4"}, "'client_name'");
	refuse_option((struct sp_redis_options){.backoff_min_ms = 3000}, "'backoff_max_ms'");
	accept_option((struct sp_redis_options){.backoff_min_ms = 2000});
	accept_option((struct sp_redis_options){.url = "rediss://h",
						.ca_file = "/ca",
						.cert_file = "/c",
						.key_file = "/k",
						.server_name = "::1"});
	/* Empty means not given, as a configuration file says it. */
	accept_option((struct sp_redis_options){
		.ca_file = "", .cert_file = "", .user = "", .client_name = "", .server_name = ""});
}

Test(redis_url, times_are_an_hour_at_most)
{
	accept_option((struct sp_redis_options){.connect_timeout_ms = 3600000,
						.command_timeout_ms = 3600000,
						.keepalive_ms = 3600000,
						.backoff_min_ms = 3600000,
						.backoff_max_ms = 3600000});
	refuse_option((struct sp_redis_options){.connect_timeout_ms = 3600001},
		      "'connect_timeout_ms'");
	refuse_option((struct sp_redis_options){.command_timeout_ms = 3600001},
		      "'command_timeout_ms'");
	refuse_option((struct sp_redis_options){.keepalive_ms = -1}, "'keepalive_ms'");
	refuse_option((struct sp_redis_options){.backoff_min_ms = -1}, "'backoff_min_ms'");
	refuse_option((struct sp_redis_options){.backoff_max_ms = 3600001}, "'backoff_max_ms'");
}

Test(redis_url, client_names_are_255_bytes_at_most)
{
	char name[300];

	memset(name, 'n', sizeof(name));
	name[255] = '\0';
	accept_option((struct sp_redis_options){.client_name = name});
	name[255] = 'n';
	name[256] = '\0';
	refuse_option((struct sp_redis_options){.client_name = name}, "255 bytes");
}
