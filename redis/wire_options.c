/*
 * The options: checked, copied, given their defaults. They come from the operator's configuration;
 * a mistake is named, and the option that it is in.
 */
#include "redis/wire_private.h"

#include "pool/base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_TIMEOUT_MS SP_MS_PER_S
#define COMMAND_TIMEOUT_MS SP_MS_PER_S
#define KEEPALIVE_MS       (3 * SP_MS_PER_S)
#define BACKOFF_MIN_MS     50
#define BACKOFF_MAX_MS     (2 * SP_MS_PER_S)

static int fault(struct sp_err *err, const char *option, const char *what)
{
	return sp_err_code(err, SP_CODE_CONFIG_INVALID, -EINVAL, "redis option '%s': %s", option,
			   what);
}

struct duration {
	const char *name;
	int64_t value;
	int64_t standard;
	int64_t *ret;
};

static int set_durations(struct sp_redis_settings *settings, const struct sp_redis_options *options,
			 struct sp_err *err)
{
	const struct duration durations[] = {
		{"connect_timeout_ms", options->connect_timeout_ms, CONNECT_TIMEOUT_MS,
		 &settings->connect_timeout_ms},
		{"command_timeout_ms", options->command_timeout_ms, COMMAND_TIMEOUT_MS,
		 &settings->command_timeout_ms},
		{"keepalive_ms", options->keepalive_ms, KEEPALIVE_MS, &settings->keepalive_ms},
		{"backoff_min_ms", options->backoff_min_ms, BACKOFF_MIN_MS,
		 &settings->backoff_min_ms},
		{"backoff_max_ms", options->backoff_max_ms, BACKOFF_MAX_MS,
		 &settings->backoff_max_ms},
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(durations); i++) {
		if (durations[i].value < 0 || durations[i].value > SP_REDIS_TIMEOUT_MAX_MS)
			return fault(err, durations[i].name, "must be 0 to 3600000");
		*durations[i].ret = durations[i].value ? durations[i].value : durations[i].standard;
	}
	if (settings->backoff_max_ms < settings->backoff_min_ms)
		return fault(err, "backoff_max_ms", "is less than backoff_min_ms");
	return 0;
}

static bool is_given(const char *text)
{
	return text && text[0] != '\0';
}

static int check_names(const struct sp_redis_options *options, struct sp_err *err)
{
	if (is_given(options->user) && !sp_redis_user_valid(options->user))
		return fault(err, "user", "is longer than 255 bytes or holds blanks");
	if (is_given(options->server_name) &&
	    !sp_redis_host_valid(options->server_name, strlen(options->server_name)))
		return fault(err, "server_name", "is no host name or address");
	if (!is_given(options->client_name))
		return 0;
	/* What CLIENT SETNAME takes. */
	if (strlen(options->client_name) > SP_REDIS_CLIENT_NAME_MAX)
		return fault(err, "client_name", "is longer than 255 bytes");
	for (const char *at = options->client_name; *at != '\0'; at++)
		if (*at < '!' || *at > '~')
			return fault(err, "client_name", "holds blanks or control characters");
	return 0;
}

static int check_files(const struct sp_redis_settings *settings,
		       const struct sp_redis_options *options, struct sp_err *err)
{
	const struct {
		const char *name;
		const char *value;
	} tls_only[] = {
		{"ca_file", options->ca_file},
		{"cert_file", options->cert_file},
		{"key_file", options->key_file},
		{"server_name", options->server_name},
	};

	/* Whoever names a CA believes that there is TLS. */
	for (size_t i = 0; i < SP_ARRAY_SIZE(tls_only) && !settings->url.tls; i++)
		if (is_given(tls_only[i].value))
			return fault(err, tls_only[i].name,
				     "is for TLS, and the URL does not begin with rediss");
	if (is_given(options->cert_file) != is_given(options->key_file))
		return fault(err, is_given(options->cert_file) ? "cert_file" : "key_file",
			     "cert_file and key_file go together");
	if (is_given(options->sentinel_password_file) && !settings->url.sentinel)
		return fault(err, "sentinel_password_file", "the URL names no Sentinels");
	return 0;
}

static int check(struct sp_redis_settings *settings, const struct sp_redis_options *options,
		 struct sp_err *err)
{
	int status;

	if (!is_given(options->url))
		return fault(err, "url", "is missing");
	status = sp_redis_url_parse(options->url, &settings->url, err);
	if (status == 0)
		status = set_durations(settings, options, err);
	if (status == 0)
		status = check_names(options, err);
	if (status == 0)
		status = check_files(settings, options, err);
	return status;
}

int sp_redis_options_check(const struct sp_redis_options *options, struct sp_err *err)
{
	struct sp_redis_settings settings = {0};

	return check(&settings, options, err);
}

static bool copy(const char *text, char **ret)
{
	if (!is_given(text))
		return true;
	*ret = strdup(text);
	return *ret != NULL;
}

int sp_redis_settings_init(struct sp_redis_settings *settings,
			   const struct sp_redis_options *options, struct sp_err *err)
{
	const char *user = options->user;
	int status;

	*settings = (struct sp_redis_settings){.allow_replica = options->allow_replica};
	status = check(settings, options, err);
	if (status < 0)
		return status;
	if (!is_given(user))
		user = settings->url.user;
	if (copy(user, &settings->user) && copy(options->password_file, &settings->password_file) &&
	    copy(options->sentinel_password_file, &settings->sentinel_password_file) &&
	    copy(options->ca_file, &settings->ca_file) &&
	    copy(options->cert_file, &settings->cert_file) &&
	    copy(options->key_file, &settings->key_file) &&
	    copy(options->server_name, &settings->server_name) &&
	    copy(options->client_name, &settings->client_name))
		return 0;
	sp_redis_settings_done(settings);
	return sp_err_set(err, -ENOMEM, "copy the redis options");
}

void sp_redis_settings_done(struct sp_redis_settings *settings)
{
	free(settings->user);
	free(settings->password_file);
	free(settings->sentinel_password_file);
	free(settings->ca_file);
	free(settings->cert_file);
	free(settings->key_file);
	free(settings->server_name);
	free(settings->client_name);
	*settings = (struct sp_redis_settings){0};
}
