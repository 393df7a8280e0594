/*
 * Where Redis is: the URL taken apart, and addresses as text.
 *
 *	redis://[user@]host[:6379][/db]   rediss://…   unix:///path[?db=N]
 *	redis+sentinel://[user@]host[:26379][,host…]/master-name[/db]   rediss+sentinel://…
 *
 * A host is a name, an IPv4 address or an IPv6 address in brackets. User and path may hold %XX.
 */
#ifndef SP_REDIS_URL_H
#define SP_REDIS_URL_H

#include "pool/base/err.h"
#include "redis/wire.h"

#define SP_REDIS_URL_MAX       4096u
#define SP_REDIS_HOST_NAME_MAX 253u /* RFC 1035 */
#define SP_REDIS_PATH_MAX      107u /* sun_path; libuv would cut a longer one silently */
#define SP_REDIS_USER_MAX      255u
#define SP_REDIS_MASTER_MAX    127u
#define SP_REDIS_DB_MAX        65535u
#define SP_REDIS_PORT          6379u
#define SP_REDIS_SENTINEL_PORT 26379u

/* Room for any address as text, and for one in an error message. */
#define SP_REDIS_ADDRESS_TEXT_MAX 272u

/* One server. */
struct sp_redis_address {
	char host[SP_REDIS_HOST_NAME_MAX + 1]; /* name or literal; "" for a Unix socket */
	char path[SP_REDIS_PATH_MAX + 1];
	uint16_t port;
};

struct sp_redis_url {
	bool sentinel; /* servers are Sentinels that know `master` */
	bool tls;
	char user[SP_REDIS_USER_MAX + 1];
	char master[SP_REDIS_MASTER_MAX + 1];
	unsigned int db;
	size_t count;
	struct sp_redis_address servers[SP_REDIS_SENTINELS_MAX];
};

/* -EINVAL with what is wrong and the form that is expected. Of a URL that holds an '@' nothing is
 * repeated in the message: it might be a password. */
int sp_redis_url_parse(const char *text, struct sp_redis_url *ret, struct sp_err *err);
/* A host name or address literal without brackets, as a server may name it. */
bool sp_redis_host_valid(const char *host, size_t len);
bool sp_redis_user_valid(const char *user);
/* Fills *ret from what a server says. -EINVAL. */
int sp_redis_address_set(const char *host, size_t host_len, const char *port, size_t port_len,
			 struct sp_redis_address *ret) SP_MUST_CHECK;
bool sp_redis_address_equal(const struct sp_redis_address *a, const struct sp_redis_address *b);
/* "host:port", "[::1]:port" or the path; returns text. */
const char *sp_redis_address_text(const struct sp_redis_address *address, char *text, size_t size);

#endif
