/*
 * The URL is cut from the left: scheme, authority (up to the first '/' or '?'), path, query. It
 * comes from the operator, not from the network; what matters is that a mistake is named and that
 * no part of a misplaced password is: 'redis://u:p/w@h' cut by the rules is host u, port p. So as
 * soon as there is an '@' anywhere, messages name parts and quote none.
 */
#include "redis/url.h"

#include "pool/base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct scheme {
	const char *prefix;
	bool local;
	bool sentinel;
	bool tls;
};

static const struct scheme schemes[] = {
	{"redis://", false, false, false},         {"rediss://", false, false, true},
	{"unix://", true, false, false},           {"redis+sentinel://", false, true, false},
	{"rediss+sentinel://", false, true, true},
};

/* A piece of the text. */
struct span {
	const char *data;
	size_t len;
};

struct parser {
	bool quotable;
	struct sp_redis_url *url;
	struct sp_err *err;
};

static int fault(const struct parser *parser, const char *what, struct span part)
{
	char text[64];
	char quoted[128];

	if (!parser->quotable || part.len == 0)
		return sp_err_code(parser->err, SP_CODE_CONFIG_INVALID, -EINVAL, "redis URL: %s",
				   what);
	(void)snprintf(text, sizeof(text), "%.*s", (int)SP_MIN(part.len, sizeof(text) - 1),
		       part.data);
	return sp_err_code(parser->err, SP_CODE_CONFIG_INVALID, -EINVAL, "redis URL: '%s': %s",
			   sp_log_quote(text, quoted, sizeof(quoted)), what);
}

/* Cuts *rest at the first `mark`: what was before it is returned; *ret_found says whether there
 * was one. */
static struct span cut(struct span *rest, char mark, bool *ret_found)
{
	const char *at = rest->len ? memchr(rest->data, mark, rest->len) : NULL;
	struct span part = *rest;

	*ret_found = at != NULL;
	if (!at) {
		*rest = (struct span){rest->data + rest->len, 0};
		return part;
	}
	part.len = (size_t)(at - rest->data);
	*rest = (struct span){at + 1, rest->len - part.len - 1};
	return part;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* %XX undone; no control bytes, no NUL. False: malformed or longer than size - 1. */
static bool decode(struct span part, char *text, size_t size)
{
	size_t used = 0;

	for (size_t i = 0; i < part.len; i++) {
		unsigned char byte = (unsigned char)part.data[i];

		if (byte == '%') {
			int high = i + 2 < part.len ? hex_digit(part.data[i + 1]) : -1;
			int low = high >= 0 ? hex_digit(part.data[i + 2]) : -1;

			if (low < 0)
				return false;
			byte = (unsigned char)(high * 16 + low);
			i += 2;
		}
		if (byte < ' ' || byte == 0x7f || used + 1 >= size)
			return false;
		text[used++] = (char)byte;
	}
	text[used] = '\0';
	return true;
}

/* Digits only, no sign, no blanks. */
static bool parse_number(struct span part, unsigned int max, unsigned int *ret)
{
	unsigned int value = 0;

	if (part.len == 0 || part.len > 9)
		return false;
	for (size_t i = 0; i < part.len; i++) {
		if (part.data[i] < '0' || part.data[i] > '9')
			return false;
		value = value * 10 + (unsigned int)(part.data[i] - '0');
	}
	if (value > max)
		return false;
	*ret = value;
	return true;
}

static bool is_name_byte(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '.' || c == '-' || c == '_';
}

static bool is_name(struct span part, size_t max)
{
	if (part.len == 0 || part.len > max)
		return false;
	for (size_t i = 0; i < part.len; i++)
		if (!is_name_byte(part.data[i]))
			return false;
	return true;
}

static bool is_ipv6(const char *data, size_t len)
{
	char text[INET6_ADDRSTRLEN];
	struct in6_addr address;

	if (len == 0 || len >= sizeof(text))
		return false;
	memcpy(text, data, len);
	text[len] = '\0';
	return inet_pton(AF_INET6, text, &address) == 1;
}

bool sp_redis_host_valid(const char *host, size_t len)
{
	return is_name((struct span){host, len}, SP_REDIS_HOST_NAME_MAX) || is_ipv6(host, len);
}

bool sp_redis_user_valid(const char *user)
{
	size_t len = strlen(user);

	if (len == 0 || len > SP_REDIS_USER_MAX)
		return false;
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)user[i] <= ' ' || user[i] == 0x7f)
			return false;
	return true;
}

static int parse_host(struct parser *parser, struct span part, uint16_t default_port)
{
	struct sp_redis_address *address = &parser->url->servers[parser->url->count];
	struct span rest = part;
	struct span host;
	unsigned int port = default_port;
	bool has_port;

	if (part.len > 0 && part.data[0] == '[') {
		rest = (struct span){part.data + 1, part.len - 1};
		host = cut(&rest, ']', &has_port);
		if (!has_port || !is_ipv6(host.data, host.len))
			return fault(parser, "no IPv6 address in brackets", part);
		has_port = rest.len > 0;
		if (has_port && rest.data[0] != ':')
			return fault(parser, "expected ':' and a port behind ']'", part);
		if (has_port)
			rest = (struct span){rest.data + 1, rest.len - 1};
	} else {
		host = cut(&rest, ':', &has_port);
		if (!is_name(host, SP_REDIS_HOST_NAME_MAX))
			return fault(parser, "expected a host name or address (IPv6 in brackets)",
				     part);
	}
	if (has_port && (!parse_number(rest, UINT16_MAX, &port) || port == 0))
		return fault(parser, "the port must be 1 to 65535", part);
	memcpy(address->host, host.data, host.len);
	address->port = (uint16_t)port;
	parser->url->count++;
	return 0;
}

static int parse_db(struct parser *parser, struct span part)
{
	if (!parse_number(part, SP_REDIS_DB_MAX, &parser->url->db))
		return fault(parser, "the database must be a number, 0 to 65535", part);
	return 0;
}

static int parse_user(struct parser *parser, struct span user)
{
	if (user.len > 0 && memchr(user.data, ':', user.len))
		return fault(parser,
			     "holds a password, which would end up in logs and process "
			     "lists: put it into a file (password_file, --redis-password-file)",
			     (struct span){0});
	if (!decode(user, parser->url->user, sizeof(parser->url->user)) ||
	    !sp_redis_user_valid(parser->url->user))
		return fault(parser, "the user before '@' is empty, too long or malformed",
			     (struct span){0});
	return 0;
}

static int parse_hosts(struct parser *parser, struct span authority)
{
	uint16_t port = parser->url->sentinel ? SP_REDIS_SENTINEL_PORT : SP_REDIS_PORT;
	bool more = true;
	int status;

	if (!parser->url->sentinel)
		return parse_host(parser, authority, port);
	while (more) {
		struct span host = cut(&authority, ',', &more);

		if (parser->url->count == SP_REDIS_SENTINELS_MAX)
			return fault(parser, "more than 16 Sentinels", host);
		status = parse_host(parser, host, port);
		if (status < 0)
			return status;
	}
	return 0;
}

/* What follows the authority: "/db", or "/master-name[/db]". */
static int parse_path(struct parser *parser, struct span path)
{
	struct sp_redis_url *url = parser->url;
	bool has_db = path.len > 0;
	struct span master;

	if (!url->sentinel)
		return path.len > 0 ? parse_db(parser, path) : 0;
	master = cut(&path, '/', &has_db);
	if (!is_name(master, SP_REDIS_MASTER_MAX))
		return fault(parser,
			     "expected the master's name behind the Sentinels: "
			     "redis+sentinel://host,host/master-name",
			     master);
	memcpy(url->master, master.data, master.len);
	return has_db ? parse_db(parser, path) : 0;
}

static int parse_network(struct parser *parser, struct span rest)
{
	size_t authority_len = strcspn(rest.data, "/?#");
	struct span authority = {rest.data, authority_len};
	const char *at = authority_len ? memrchr(rest.data, '@', authority_len) : NULL;
	struct span path = {rest.data + authority_len, rest.len - authority_len};
	int status = 0;

	if (strpbrk(path.data, "?#"))
		return fault(parser, "expected nothing behind the database (no '?', no '#')",
			     (struct span){0});
	if (at) {
		struct span user = {authority.data, (size_t)(at - authority.data)};

		authority = (struct span){at + 1, authority.len - user.len - 1};
		status = parse_user(parser, user);
	}
	if (status == 0)
		status = parse_hosts(parser, authority);
	if (status < 0)
		return status;
	if (path.len > 0)
		path = (struct span){path.data + 1, path.len - 1};
	return parse_path(parser, path);
}

static int parse_local(struct parser *parser, struct span rest)
{
	struct sp_redis_address *address = &parser->url->servers[0];
	bool has_query;
	struct span path = cut(&rest, '?', &has_query);

	if (path.len == 0 || path.data[0] != '/')
		return fault(parser, "expected an absolute path: unix:///run/redis.sock", path);
	if (!decode(path, address->path, sizeof(address->path)))
		return fault(parser, "the path is malformed or longer than 107 bytes", path);
	parser->url->count = 1;
	if (!has_query)
		return 0;
	if (rest.len < 3 || memcmp(rest.data, "db=", 3) != 0)
		return fault(parser, "expected nothing but ?db=N behind the path",
			     (struct span){0});
	return parse_db(parser, (struct span){rest.data + 3, rest.len - 3});
}

static const struct scheme *find_scheme(const char *text)
{
	for (size_t i = 0; i < SP_ARRAY_SIZE(schemes); i++)
		if (strncmp(text, schemes[i].prefix, strlen(schemes[i].prefix)) == 0)
			return &schemes[i];
	return NULL;
}

int sp_redis_url_parse(const char *text, struct sp_redis_url *ret, struct sp_err *err)
{
	const struct scheme *scheme = find_scheme(text);
	struct sp_redis_url url = {0};
	struct parser parser = {!strchr(text, '@'), &url, err};
	struct span rest;
	int status;

	if (strlen(text) > SP_REDIS_URL_MAX)
		return fault(&parser, "longer than 4096 bytes", (struct span){0});
	if (!scheme)
		return fault(&parser,
			     "expected redis://host, rediss://host, unix:///path, "
			     "redis+sentinel://host,host/master-name or rediss+sentinel://…",
			     (struct span){text, strlen(text)});
	url.tls = scheme->tls;
	url.sentinel = scheme->sentinel;
	rest = (struct span){text + strlen(scheme->prefix), strlen(text) - strlen(scheme->prefix)};
	status = scheme->local ? parse_local(&parser, rest) : parse_network(&parser, rest);
	if (status == 0)
		*ret = url;
	return status;
}

int sp_redis_address_set(const char *host, size_t host_len, const char *port, size_t port_len,
			 struct sp_redis_address *ret)
{
	unsigned int number;

	if (!sp_redis_host_valid(host, host_len) ||
	    !parse_number((struct span){port, port_len}, UINT16_MAX, &number) || number == 0)
		return -EINVAL;
	*ret = (struct sp_redis_address){.port = (uint16_t)number};
	memcpy(ret->host, host, host_len);
	return 0;
}

bool sp_redis_address_equal(const struct sp_redis_address *a, const struct sp_redis_address *b)
{
	return strcmp(a->host, b->host) == 0 && strcmp(a->path, b->path) == 0 && a->port == b->port;
}

const char *sp_redis_address_text(const struct sp_redis_address *address, char *text, size_t size)
{
	if (address->host[0] == '\0')
		(void)snprintf(text, size, "%s", address->path);
	else if (strchr(address->host, ':'))
		(void)snprintf(text, size, "[%s]:%u", address->host, (unsigned int)address->port);
	else
		(void)snprintf(text, size, "%s:%u", address->host, (unsigned int)address->port);
	return text;
}
