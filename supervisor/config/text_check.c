/*
 * What the strings of the configuration may look like. Each check answers NULL or what the text
 * must be instead; the caller names the key and quotes the text. Everything here ends up in a path,
 * a socket address, a label or a log line of a privileged program, so control characters are out
 * everywhere and paths are normalised by their author, not by us.
 */
#include "supervisor/config/schema.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#define USER_MAX     32u
#define HOSTNAME_MAX 63u
#define IMAGE_MAX    255u
#define HOST_MAX     253u
#define PREFIX_MAX   64u

static const char alphanumeric[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

static bool has_control(const char *text)
{
	for (; *text != '\0'; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			return true;
	return false;
}

/* All characters alphanumeric or one of `more`? */
static bool made_of(const char *text, size_t len, const char *more)
{
	for (size_t i = 0; i < len; i++)
		if (!strchr(alphanumeric, text[i]) && !strchr(more, text[i]))
			return false;
	return true;
}

static bool normalised(const char *path)
{
	const char *at = path;

	if (*at != '/')
		return false;
	if (at[1] == '\0')
		return true;
	while (*at == '/') {
		size_t len = strcspn(at + 1, "/");

		if (len == 0 || (len == 1 && at[1] == '.') ||
		    (len == 2 && strncmp(at + 1, "..", 2) == 0))
			return false;
		at += 1 + len;
	}
	return true;
}

const char *sp_check_path(const char *text)
{
	if (strlen(text) >= SP_TABLE_PATH_MAX)
		return "must be a path of at most 511 bytes";
	if (has_control(text) || !normalised(text))
		return "must be an absolute path without '.', '..', '//' and trailing '/'";
	return NULL;
}

const char *sp_check_below_root(const char *text)
{
	if (strcmp(text, "/") == 0)
		return "must be a directory below '/'";
	return sp_check_path(text);
}

/* A bare name is a credential: systemd puts those into $CREDENTIALS_DIRECTORY. */
const char *sp_check_secret_file(const char *text)
{
	if (*text == '/')
		return sp_check_below_root(text);
	if (*text == '.' || strlen(text) > 255 || !made_of(text, strlen(text), "._-"))
		return "must be an absolute path, or the name of a systemd credential";
	return NULL;
}

const char *sp_check_name(const char *text)
{
	return sp_pool_name_valid(text) ? NULL
					: "must be 1 to 63 characters of a-z 0-9 . _ - and begin "
					  "with a letter or digit";
}

const char *sp_check_user(const char *text)
{
	size_t len = strlen(text);

	if (len == 0)
		return NULL;
	if (len > USER_MAX || *text == '-' || !made_of(text, len, "._-"))
		return "must be the name or number of an account";
	return NULL;
}

const char *sp_check_hostname(const char *text)
{
	size_t len = strlen(text);

	if (len == 0 || len > HOSTNAME_MAX || *text == '-' || text[len - 1] == '-' ||
	    !made_of(text, len, "-."))
		return "must be a host name of 1 to 63 characters";
	return NULL;
}

const char *sp_check_image(const char *text)
{
	size_t len = strlen(text);

	if (len == 0 || len > IMAGE_MAX || !made_of(text, len, "._-/:@+*"))
		return "must be an image name of 1 to 255 characters; '*' stands for any text";
	return NULL;
}

const char *sp_check_root(const char *text)
{
	if (strcmp(text, "system") == 0 || strcmp(text, "host") == 0)
		return NULL;
	if (strcmp(text, "/") == 0)
		return "must not be '/': \"host\" shows the host's root";
	if (*text != '/')
		return "must be \"system\", \"host\" or the absolute path of a directory";
	return sp_check_path(text);
}

/* "user:password@host" */
static bool has_password(const char *address)
{
	const char *at = strchr(address, '@');

	return *address != '/' && at && memchr(address, ':', (size_t)(at - address));
}

const char *sp_check_store(const char *text)
{
	static const char *const redis[] = {"redis://", "rediss://", "unix://", "redis+sentinel://",
					    "rediss+sentinel://"};

	if (strcmp(text, "memory") == 0)
		return NULL;
	/* What follows the scheme is read by redis/url.c, which says more. */
	for (size_t i = 0; i < SP_ARRAY_SIZE(redis); i++)
		if (strncmp(text, redis[i], strlen(redis[i])) == 0)
			return has_password(text + strlen(redis[i]))
				       ? "must not hold a password: name its file in "
					 "'redis.password_file'"
				       : NULL;
	return "must be \"memory\" or begin with redis://, rediss://, unix://, redis+sentinel:// "
	       "or rediss+sentinel://";
}

const char *sp_check_host_id(const char *text)
{
	return *text == '\0' ? NULL : sp_check_name(text);
}

const char *sp_check_prefix(const char *text)
{
	size_t len = strlen(text);

	if (len == 0 || len > PREFIX_MAX || !made_of(text, len, "._-:"))
		return "must be 1 to 64 letters, digits or . _ - :";
	return NULL;
}

const char *sp_check_redis_user(const char *text)
{
	for (const char *at = text; *at != '\0'; at++)
		if (*at <= ' ' || *at > '~')
			return "must consist of printable ASCII characters without blanks";
	return strlen(text) <= HOST_MAX ? NULL : "must have at most 253 characters";
}

const char *sp_check_api_key(const char *text)
{
	size_t len = strlen(text);

	if (len < 16 || len > SP_CONFIG_API_KEY_MAX)
		return "must have 16 to 256 characters";
	for (; *text != '\0'; text++)
		if (*text <= ' ' || *text > '~')
			return "must consist of printable ASCII characters without blanks";
	return NULL;
}

const char *sp_check_pem(const char *text)
{
	if (!strstr(text, "-----BEGIN "))
		return "holds nothing in PEM format";
	return strlen(text) > SP_CONFIG_PEM_MAX ? "must have at most 65536 bytes" : NULL;
}

const char *sp_check_digest(const char *text)
{
	if (*text == '\0')
		return NULL;
	if (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
		return "must be 16 hexadecimal digits";
	return NULL;
}

/* ---- addresses ---- */

bool sp_listen_is_tls(const char *address)
{
	return strncmp(address, "tls://", 6) == 0;
}

bool sp_listen_is_tcp(const char *address)
{
	return strncmp(address, "tcp://", 6) == 0 || sp_listen_is_tls(address);
}

/* Split "host:port" or "[v6]:port"; false when it is neither. */
static bool split_host(const char *text, char host[HOST_MAX + 1], const char **ret_port)
{
	const char *begin = text;
	const char *end;

	if (*text == '[') {
		begin++;
		end = strchr(text, ']');
		if (!end || end[1] != ':')
			return false;
		*ret_port = end + 2;
	} else {
		end = strchr(text, ':');
		if (!end || strchr(end + 1, ':'))
			return false;
		*ret_port = end + 1;
	}
	if (end == begin || (size_t)(end - begin) > HOST_MAX)
		return false;
	memcpy(host, begin, (size_t)(end - begin));
	host[end - begin] = '\0';
	return true;
}

static bool port_valid(const char *text)
{
	size_t len = strlen(text);
	long port;

	if (len == 0 || len > 5 || strspn(text, "0123456789") != len || *text == '0')
		return false;
	port = strtol(text, NULL, 10);
	return port >= 1 && port <= 65535;
}

/* Digits and dots alone must be an IPv4 address: "127.1" and "256.0.0.1" are mistakes. */
static bool host_valid(const char *host, bool bracketed)
{
	struct in6_addr v6;
	struct in_addr v4;

	if (bracketed)
		return inet_pton(AF_INET6, host, &v6) == 1;
	if (strspn(host, "0123456789.") == strlen(host))
		return inet_pton(AF_INET, host, &v4) == 1;
	return *host != '-' && *host != '.' && made_of(host, strlen(host), "-.");
}

const char *sp_check_listen(const char *text)
{
	static const char form[] =
		"must be unix:///path, tcp://host:port or tls://host:port (IPv6 in brackets)";
	char host[HOST_MAX + 1];
	const char *port;

	if (strncmp(text, "unix://", 7) == 0) {
		if (sp_check_below_root(text + 7))
			return "must be unix:// and an absolute path without '.', '..', '//'";
		if (strlen(text + 7) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
			return "must have a socket path of at most 107 bytes";
		return NULL;
	}
	if (!sp_listen_is_tcp(text) || !split_host(text + 6, host, &port))
		return form;
	if (!host_valid(host, text[6] == '['))
		return "must have a valid host name or address";
	if (!port_valid(port))
		return "must have a port from 1 to 65535";
	return NULL;
}

const char *sp_check_advertise(const char *text)
{
	return *text == '\0' ? NULL : sp_check_listen(text);
}

const char *sp_check_server_name(const char *text)
{
	return *text == '\0' || (strlen(text) <= HOST_MAX && host_valid(text, false))
		       ? NULL
		       : "must be a host name or an IPv4 address";
}

/* Of a valid tcp:// or tls:// address. */
bool sp_listen_is_loopback(const char *address)
{
	char host[HOST_MAX + 1];
	struct in6_addr v6;
	struct in_addr v4;
	const char *port;

	if (!split_host(address + 6, host, &port))
		return false;
	if (inet_pton(AF_INET6, host, &v6) == 1)
		return IN6_IS_ADDR_LOOPBACK(&v6);
	if (inet_pton(AF_INET, host, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == 127;
	return strcmp(host, "localhost") == 0;
}

const char *sp_check_argument(const char *text)
{
	return strlen(text) <= SP_CONFIG_ARGUMENT_MAX ? NULL : "must have at most 16384 bytes";
}
