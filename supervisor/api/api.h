/*
 * The HTTP interface of sandpoold. One object for all listen sockets, on the daemon's loop.
 *
 *	sp_api_new()    as root: binds and listens, reads certificate and key; nothing is accepted
 *yet sp_api_serve()  after privileges are dropped: clients that connected meanwhile are served
 *	sp_api_close()  ends everything that is under way; `on_closed` when the memory is gone
 */
#ifndef SP_API_API_H
#define SP_API_API_H

#include "pool/base/err.h"

struct sp_api;
struct sp_service;
struct uv_loop_s;

/* service and loop are borrowed and must outlive it. The listen addresses are those of
 * sp_service_config()->listen. -EINVAL (an address), -EADDRINUSE, -EEXIST (something that is no
 * socket is in the way), other negative errno; err names the address. */
int sp_api_new(struct sp_service *service, struct uv_loop_s *loop, struct sp_api **ret_api,
	       struct sp_err *err);

/* Start answering. After a failure sp_api_close() is still to be called. */
int sp_api_serve(struct sp_api *api, struct sp_err *err);

/*
 * Stop listening, cancel every operation that a client waits for (those clients are told
 * UNAVAILABLE), end every stream. Idempotent; on_closed comes once, from the loop, never from
 * inside this call, and nothing of the api is touched after it. NULL is ignored.
 */
void sp_api_close(struct sp_api *api, void (*on_closed)(void *arg), void *arg);

#endif
