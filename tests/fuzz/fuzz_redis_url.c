/*
 * The URL of a server. What is accepted can be written again and means the same; what is refused
 * leaves the result alone, gives a printable message, and of a URL with an '@' quotes nothing.
 */
#include "tests/fuzz/fuzz.h"

#include "redis/url.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* User and path with every byte as %XX. Returns how much of it there is. */
static size_t encode(char *at, const char *text)
{
	static const char digits[] = "0123456789abcdef";
	size_t used = 0;

	for (; *text; text++) {
		at[used++] = '%';
		at[used++] = digits[(unsigned char)*text >> 4];
		at[used++] = digits[(unsigned char)*text & 15];
	}
	return used;
}

static void write_again(const struct sp_redis_url *url, char *text, size_t size)
{
	char address[SP_REDIS_ADDRESS_TEXT_MAX];
	size_t used;

	if (url->servers[0].path[0] != '\0') {
		used = (size_t)snprintf(text, size, "unix:///");
		used += encode(text + used, url->servers[0].path + 1);
		(void)snprintf(text + used, size - used, "?db=%u", url->db);
		return;
	}
	used = (size_t)snprintf(text, size, "redis%s%s://", url->tls ? "s" : "",
				url->sentinel ? "+sentinel" : "");
	if (url->user[0] != '\0') {
		used += encode(text + used, url->user);
		text[used++] = '@';
	}
	for (size_t i = 0; i < url->count; i++)
		used += (size_t)snprintf(
			text + used, size - used, "%s%s", i ? "," : "",
			sp_redis_address_text(&url->servers[i], address, sizeof(address)));
	(void)snprintf(text + used, size - used, "%s%s/%u", url->sentinel ? "/" : "", url->master,
		       url->db);
}

static void check_accepted(const struct sp_redis_url *url)
{
	static char text[65536];
	struct sp_redis_url again;

	require(url->count >= 1 && url->count <= SP_REDIS_SENTINELS_MAX);
	require(url->sentinel == (url->master[0] != '\0') && url->db <= SP_REDIS_DB_MAX);
	for (size_t i = 0; i < url->count; i++)
		require((url->servers[i].host[0] != '\0') == (url->servers[i].port != 0));
	write_again(url, text, sizeof(text));
	if (strlen(text) > SP_REDIS_URL_MAX)
		return;
	require(sp_redis_url_parse(text, &again, NULL) == 0);
	require(memcmp(url, &again, sizeof(again)) == 0);
}

static void check_refused(const char *text, const struct sp_err *err)
{
	require(err->status == -EINVAL && err->code == SP_CODE_CONFIG_INVALID);
	for (const char *at = err->message; *at != '\0'; at++)
		require((unsigned char)*at >= ' ' && *at != 0x7f);
	if (strchr(text, '@'))
		require(strncmp(err->message, "redis URL: '", 12) != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sp_redis_url url;
	struct sp_redis_url before;
	struct sp_err err = {0};
	char *text = malloc(size + 1);

	require(text != NULL);
	memcpy(text, data, size);
	text[size] = '\0';
	memset(&url, 0x5a, sizeof(url));
	before = url;
	if (sp_redis_url_parse(text, &url, &err) == 0) {
		check_accepted(&url);
	} else {
		require(memcmp(&url, &before, sizeof(url)) == 0);
		check_refused(text, &err);
	}
	free(text);
	return 0;
}
