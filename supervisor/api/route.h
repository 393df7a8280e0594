/*
 * From method and path to a handler. Pure: the table is given by the caller.
 */
#ifndef SP_API_ROUTE_H
#define SP_API_ROUTE_H

#include "pool/base/id.h"

struct sp_request;

enum sp_route_access {
	SP_ROUTE_OPEN,     /* anybody */
	SP_ROUTE_KEY,      /* a peer on a Unix socket, or an API key */
	SP_ROUTE_TOKEN,    /* as KEY, or a sandbox token (the service judges it) */
	SP_ROUTE_OPERATOR, /* operators only */
};

/* Patterns have at most one variable segment, which takes the whole segment. */
struct sp_route {
	const char *method;  /* "GET" serves HEAD too */
	const char *pattern; /* "/v1/pools/{pool}/acquire"; "{pool}", "{host}" or "{id}" */
	enum sp_route_access access;
	void (*handle)(struct sp_request *request);
};

enum sp_route_outcome {
	SP_ROUTE_FOUND,
	SP_ROUTE_NO_PATH,     /* no pattern matches */
	SP_ROUTE_NO_METHOD,   /* a pattern matches, its method does not: 405 with `allow` */
	SP_ROUTE_BAD_POOL,    /* matches, but the segment can be no pool's name */
	SP_ROUTE_BAD_SANDBOX, /* … no sandbox's id */
	SP_ROUTE_BAD_HOST,    /* … no host's name */
};

struct sp_route_match {
	const struct sp_route *route;    /* FOUND, BAD_… */
	char name[SP_POOL_NAME_MAX + 1]; /* the variable segment, "" if there is none */
	char allow[64];                  /* NO_METHOD: "GET, HEAD, DELETE" */
};

enum sp_route_outcome sp_route_find(const struct sp_route *routes, size_t count, const char *method,
				    const char *path, struct sp_route_match *ret_match);

#endif
