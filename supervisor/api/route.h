/*
 * From method and path to a handler. Pure: the tables are given by the caller.
 *
 * Patterns are matched segment by segment. What a variable segment may look like is part of the
 * match, so "/v1/sandboxes/{id}" and "/v1/sandboxes/{uuid}" are two routes:
 *
 *	{pool} {host}   a name, see pool/base/id.h
 *	{id}            a sandbox id of ours
 *	{uuid}          a sandbox id of the OpenSandbox API: a UUID in lower case
 *	{key}           any id that the handler looks up itself; "" if it is too long for one
 *	{port} {number} any segment; 0 unless it is a number in 1 … 65535
 *	{tail}          the rest of the path, from its slash on; may be nothing; only at the end
 */
#ifndef SP_API_ROUTE_H
#define SP_API_ROUTE_H

#include "pool/base/id.h"

#define SP_OS_UUID_LEN    36
#define SP_ROUTE_NAME_MAX SP_POOL_NAME_MAX /* the longest of {pool}, {host}, {id}, {uuid} */
#define SP_ROUTE_KEY_MAX  64

struct sp_request;

enum sp_route_access {
	SP_ROUTE_OPEN,     /* anybody */
	SP_ROUTE_KEY,      /* a peer on a Unix socket, or an API key */
	SP_ROUTE_TOKEN,    /* as KEY, or a sandbox token (the service judges it) */
	SP_ROUTE_INSIDE,   /* the token of the path's sandbox, or an operator */
	SP_ROUTE_OPERATOR, /* operators only */
};

struct sp_route {
	const char *method;  /* "GET" serves HEAD too; "*" every method */
	const char *pattern; /* "/v1/pools/{pool}/acquire" */
	enum sp_route_access access;
	void (*handle)(struct sp_request *request);
};

enum sp_route_outcome {
	SP_ROUTE_FOUND,
	SP_ROUTE_NO_PATH,     /* no pattern matches */
	SP_ROUTE_NO_METHOD,   /* a pattern matches, its method does not: 405 with `allow` */
	SP_ROUTE_BAD_POOL,    /* would match, but the segment can be no pool's name */
	SP_ROUTE_BAD_SANDBOX, /* … no sandbox's id */
	SP_ROUTE_BAD_HOST,    /* … no host's name */
};

struct sp_route_match {
	const struct sp_route *route; /* FOUND, BAD_… */
	/* FOUND: what the variables took, "" if there is none. */
	char name[SP_ROUTE_NAME_MAX + 1]; /* {pool}, {host}, {id} or {uuid} */
	char key[SP_ROUTE_KEY_MAX + 1];
	uint16_t port;    /* or {number} */
	const char *tail; /* in the path */
	char allow[64];   /* NO_METHOD: "GET, HEAD, DELETE" */
};

enum sp_route_outcome sp_route_find(const struct sp_route *routes, size_t count, const char *method,
				    const char *path, struct sp_route_match *ret_match);
/* Does the pattern name a sandbox of the OpenSandbox API? */
bool sp_route_has_uuid(const struct sp_route *route);
/* "f81d4fae-7dec-41d0-a765-00a0c91e6bf6": lower case, version 4. */
bool sp_os_uuid_valid(const char *text);

#endif
