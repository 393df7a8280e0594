/*
 * What the files of this folder share: listeners, connections, requests, and the way from a handler
 * to an answer.
 *
 * Life of a request, all on the loop thread:
 *
 *	headers → guard → route → access → body … complete → handler
 *	handler → sp_reply_*()                                  answered at once
 *	handler → sp_request_suspend() … later sp_reply_*()     answered when the service calls back
 *	handler → sp_request_upgrade()                          becomes a stream
 *
 * A handler does exactly one of the three. A suspended request whose client leaves (or when the api
 * closes) gets its `cancel` called exactly once, and the handler's side must then forget it.
 */
#ifndef SP_API_API_PRIVATE_H
#define SP_API_API_PRIVATE_H

#include "pool/base/buf.h"
#include "pool/base/list.h"
#include "supervisor/api/account_cache.h"
#include "supervisor/api/api.h"
#include "supervisor/api/guard.h"
#include "supervisor/api/json_out.h"
#include "supervisor/api/os_sandboxes.h"
#include "supervisor/api/route.h"
#include "supervisor/daemon/service.h"

#include <microhttpd.h>
#include <sys/types.h>
#include <uv.h>

#define SP_API_REQUEST_TIMEOUT_MS (30 * SP_MS_PER_S) /* to send a whole request */
#define SP_API_IDLE_TIMEOUT_MS    (75 * SP_MS_PER_S) /* between two requests */
#define SP_API_STALL_TIMEOUT_S    75u                /* a client that does not read its answer */
#define SP_API_CONNECTION_MEMORY  (32u * 1024)       /* libmicrohttpd's, per connection */
/* Beyond max_connections this many more are told 503; beyond these a connection is just closed.
 * Operators are served on some more: who is to end a flood must get in. */
#define SP_API_OVERFLOW_CONNECTIONS 32u
#define SP_API_OPERATOR_CONNECTIONS 16u
#define SP_API_REQUEST_ID_MAX       128u
#define SP_API_RESPONSE_MAX         (256u << 20)
#define SP_API_PLAIN_OUTPUT_MAX     (16u << 20)  /* stdout + stderr of one exec answered as JSON */
#define SP_API_PLAIN_TOTAL_MAX      (256u << 20) /* of all such execs together */
/* What clients have sent and is held until it is complete, or until it was answered: all bodies
 * and frames together. The first bytes of each do not count, so ordinary requests and frames of
 * data always find room. */
#define SP_API_INPUT_TOTAL_MAX (256u << 20)
#define SP_API_INPUT_FREE      (68u * 1024)
/* Output that waits for clients to read it. When all of it together is more, every stream counts
 * as full much sooner and programs wait; nothing is lost. */
#define SP_API_OUTPUT_TOTAL  (256u << 20)
#define SP_API_BACKLOG       511
#define SP_API_WORKSPACE_MAX 4096u

struct sp_answer_header;
struct sp_body_sink;
struct sp_duplex;
struct sp_tls;

enum sp_listener_kind { SP_LISTENER_UNIX, SP_LISTENER_TCP, SP_LISTENER_TLS };

struct sp_listener {
	struct sp_api *api;
	const char *url; /* borrowed from `url_owned` */
	char *url_owned;
	enum sp_listener_kind kind;
	int fd;
	struct sp_tls *tls; /* TLS: accepts instead of libmicrohttpd */
	struct MHD_Daemon *mhd;
	uv_poll_t poll;   /* libmicrohttpd's epoll descriptor */
	uv_timer_t timer; /* libmicrohttpd's timeouts */
	bool handles_open;
	bool running; /* inside MHD_run() */
	bool kicked;  /* wants MHD_run() at the next turn */
};

struct sp_api {
	struct sp_service *service;
	struct sp_os_table *os;
	uv_loop_t *loop;
	struct sp_listener listeners[SP_CONFIG_LISTEN_MAX];
	size_t listener_count;
	uint32_t max_connections;
	bool have_admin_group;
	gid_t admin_gid;

	struct sp_list connections;
	uint32_t connection_count;
	uint32_t refused_count;     /* of these, those that are over the limit, … */
	uint32_t extra_count;       /* … and operators who are served all the same */
	int fd_ceiling;             /* of descriptors, see pool/base/fd.h */
	struct sp_list streams;     /* every open sp_duplex */
	struct sp_list flush;       /* those with something to write, … */
	struct sp_list late_events; /* … event streams that had their share of this turn, and … */
	int64_t event_share;        /* … what is left of it (execd_events.c) */
	uv_check_t check; /* … listeners to run: all done at the end of a turn of the loop … */
	uv_idle_t idle;   /* … which does not sleep while this is active */
	uv_timer_t sweep; /* deadlines of connections, once a second while there are any */
	char run_id[SP_SANDBOX_ID_LEN + 1]; /* request ids made here: its beginning and a count */
	uint64_t request_count;
	size_t plain_bytes;  /* output held for execs answered as JSON, and their answers */
	size_t input_bytes;  /* see SP_API_INPUT_TOTAL_MAX */
	size_t output_bytes; /* see SP_API_OUTPUT_TOTAL */
	struct sp_list files_running; /* calls that may have an operation in a sandbox, … */
	struct sp_list files_waiting; /* … and those that wait until one of theirs is over */
	bool files_granting;
	struct sp_account_cache accounts;

	bool closing;
	uint32_t open_handles;
	void (*on_closed)(void *arg);
	void *on_closed_arg;
};

struct sp_connection {
	struct sp_list link;
	struct sp_api *api;
	struct sp_listener *listener;
	struct MHD_Connection *mhd;
	int fd;              /* libmicrohttpd's */
	int64_t deadline_ms; /* uv_now(); the client must have done something by then; 0 = none */
	size_t uri_length;   /* of the request being read */
	char *query;         /* its query as it came, where one may be passed on; else NULL */
	bool over_limit;     /* the N+1st: gets a 503 */
	bool extra;          /* over the limit, but an operator's */
	bool operator_rights;
	struct sp_request *request; /* NULL between requests */
	uv_poll_t watch;            /* notices that the client of a suspended request leaves */
	bool watch_open;
	bool closed;
};

/* Whose conventions the answer follows: codes, bodies of errors, request ids. */
enum sp_api_style {
	SP_STYLE_OWN,
	SP_STYLE_LIFECYCLE, /* of OpenSandbox's server */
	SP_STYLE_EXECD,     /* of its daemon in a sandbox */
};

/* Routes about the files of an isolated session are below this. */
#define SP_ISOLATED_FILES "/v1/isolated/session/{key}"
bool sp_route_is_isolated_files(const struct sp_route *route);

/* Of such a route: whose. */
struct sp_isolated_place {
	uint32_t number; /* 0: the sandbox itself */
	int64_t uid, gid;
	char workspace[SP_API_WORKSPACE_MAX];
};

struct sp_request {
	struct sp_api *api;
	struct sp_connection *connection;
	struct MHD_Connection *mhd;
	const struct sp_route *route;
	const char *method;
	const char *path;
	enum sp_api_style style;
	struct sp_route_match match; /* what the route's variables took */
	const char *name;            /* match.name: the route's {pool}, {host}, {id} or {uuid} */
	struct sp_os_sandbox *os;    /* the one of {uuid}, referenced; else NULL */
	struct sp_isolated_place *isolated; /* NULL: none; belongs to it */
	char id[SP_API_REQUEST_ID_MAX + 1];
	struct sp_guard headers;
	struct sp_caller caller;
	struct sp_buf body;
	size_t body_charged;             /* of api->input_bytes */
	const struct sp_body_sink *sink; /* takes the body as it comes, see request_body.h; */
	void *sink_arg;                  /* … until then it is collected in `body` */
	uint64_t body_taken;             /* by the sink */
	int64_t body_until_ms;           /* uv_now(): the sink waits no longer for it */
	bool body_waits;                 /* suspended, until the sink takes more */
	bool body_cut;                   /* nobody takes it any more */
	struct sp_err early; /* found before the body was read; answered instead of the handler */
	bool body_refused;   /* what still comes of it is thrown away */
	bool dispatched;
	bool suspended;
	bool close; /* end the connection after the answer */
	unsigned int status;
	struct MHD_Response *response;
	void (*cancel)(struct sp_request *request);
	void *operation;     /* the handler's */
	size_t answer_bytes; /* counted in api->plain_bytes until the client has read them */
	void (*upgrade_lost)(void *arg);
	void *upgrade_arg;
};

/* ---- listen.c ---- */

/* Bind and listen as `url` says. group: owner group of a Unix socket if have_group. *ret_fd is the
 * caller's. */
int sp_listen_open(const char *url, const struct sp_config *config, bool have_group, gid_t group,
		   enum sp_listener_kind *ret_kind, int *ret_fd, struct sp_err *err);
/* Remove the socket file if we may. */
void sp_listen_remove(const char *url);

/* ---- api.c ---- */

/* Have libmicrohttpd look at its connections at the end of this turn of the loop. */
void sp_listener_kick(struct sp_listener *listener);
/* Run sp_duplex_flush_all() and the kicked listeners once, at the end of this turn of the loop. */
void sp_api_wake(struct sp_api *api);
/* A duplex's memory is gone; the last one lets a close go on. */
void sp_api_stream_gone(struct sp_api *api);
/* Every uv handle is counted from init to its close callback. */
void sp_api_handle_opened(struct sp_api *api);
void sp_api_handle_closed(struct sp_api *api);
/* Have `*held` bytes count as `now` in input_bytes. False: that is more than there may be, and
 * nothing has changed. */
bool sp_api_charge_input(struct sp_api *api, size_t *held, size_t now);
/* Clients that do not read hold so much that everybody's queues are short. */
bool sp_api_output_tight(const struct sp_api *api);

/* ---- connection.c ---- */

void sp_connection_notify(void *cls, struct MHD_Connection *mhd, void **socket_context,
			  enum MHD_ConnectionNotificationCode code);
/* The request line is there: from here on the whole request must come in time. */
void *sp_connection_request_line(void *cls, const char *uri, struct MHD_Connection *mhd);
struct sp_connection *sp_connection_of(struct MHD_Connection *mhd);
void sp_connection_set_deadline(struct sp_connection *connection, int64_t after_ms);
/* Call sp_request_abandon() when the client goes; until unwatch. 0 or negative errno. */
int sp_connection_watch(struct sp_connection *connection);
void sp_connection_unwatch(struct sp_connection *connection);
/* Have the kernel notice that a TCP peer is gone. */
void sp_connection_keep_alive(int fd);
/* Let libmicrohttpd find the socket dead. */
void sp_connection_shutdown(struct sp_connection *connection);
void sp_connection_sweep(struct sp_api *api);

/* ---- request.c ---- */

enum MHD_Result sp_request_access(void *cls, struct MHD_Connection *mhd, const char *url,
				  const char *method, const char *version, const char *upload,
				  size_t *upload_size, void **context);
void sp_request_completed(void *cls, struct MHD_Connection *mhd, void **context,
			  enum MHD_RequestTerminationCode code);
/* The answer comes later. cancel: see the top. On failure (client gone, no memory) the request has
 * been answered or dropped and the handler must undo what it started. */
int sp_request_suspend(struct sp_request *request, void (*cancel)(struct sp_request *request),
		       void *operation);
/* The client of a suspended request left, or the api closes (then err says what it is told). */
void sp_request_abandon(struct sp_request *request, const struct sp_err *err);
/* Does the client ask for the framed stream? */
bool sp_request_wants_stream(const struct sp_request *request);
/* Answer 101 with these headers; `lost` comes instead of on_upgrade if the client left before it,
 * and never once on_upgrade has set request->upgrade_lost to NULL. */
void sp_request_upgrade(struct sp_request *request, const struct sp_answer_header *headers,
			size_t header_count, MHD_UpgradeHandler on_upgrade, void (*lost)(void *arg),
			void *arg);

/* Takes the response; content_type may be NULL. Without a response the connection is dropped.
 * False: there is none, or no memory for its headers. */
bool sp_request_respond(struct sp_request *request, unsigned int status, const char *content_type,
			struct MHD_Response *response);
/* The same of an answer that somebody else wrote: what we add to a status of ours is not his. */
bool sp_request_pass(struct sp_request *request, unsigned int status,
		     struct MHD_Response *response);
/* What the body said is in other hands now: its memory goes before the request does. */
void sp_request_body_forget(struct sp_request *request);
/* Of a suspended request: libmicrohttpd looks at it again. Only for who suspended it himself. */
void sp_request_resume(struct sp_request *request);

/* ---- access.c ---- */

/* Fills in route, style, sandbox and caller. Negative: what is to be answered instead. */
int sp_request_find_route(struct sp_request *request, struct sp_err *err);

/* The answers. Each takes the body's memory and leaves it empty. */
void sp_reply_json(struct sp_request *request, unsigned int status, struct sp_buf *body);
void sp_reply_text(struct sp_request *request, unsigned int status, const char *content_type,
		   struct sp_buf *body);
void sp_reply_empty(struct sp_request *request); /* 204 */
/* A status without a body, which a client knows by its Content-Length: 0. */
void sp_reply_status(struct sp_request *request, unsigned int status);
/* In the words of the request's style. */
void sp_reply_error(struct sp_request *request, const struct sp_err *err);
/* Until the request is over these bytes are of SP_API_PLAIN_TOTAL_MAX. At most once a request. */
void sp_request_count_answer(struct sp_request *request, size_t len);
/* For a handler that wrote `out` into `body`: the JSON, or an error if writing failed. */
void sp_reply_written(struct sp_request *request, struct sp_json_out *out);
/* {"code", "message"} */
void sp_error_write(struct sp_json_out *out, const struct sp_err *err);

/* ---- os_errors.c: errors as the OpenSandbox APIs put them ---- */

/* {"code", "message"} with a code of theirs. */
void sp_os_reply_error(struct sp_request *request, unsigned int status, const char *code,
		       const char *format, ...) SP_PRINTF(4, 5);
/* sp_reply_error() of the styles LIFECYCLE and EXECD. */
void sp_os_reply_err(struct sp_request *request, const struct sp_err *err);

/* ---- handlers, by file ---- */

extern const struct sp_route sp_routes[];
extern const size_t sp_route_count;
/* Below /v1 and below / alike. */
extern const struct sp_route sp_os_routes[];
extern const size_t sp_os_route_count;
/* Below {lifecycle}/sandboxes/{uuid}/proxy/44772. request->os is the sandbox, it runs, and
 * request->caller may use it. */
extern const struct sp_route sp_execd_routes[];
extern const size_t sp_execd_route_count;

void sp_handle_acquire(struct sp_request *request);
void sp_handle_run(struct sp_request *request);
void sp_handle_exec(struct sp_request *request);
void sp_handle_sandbox_list(struct sp_request *request);
void sp_handle_sandbox_get(struct sp_request *request);
void sp_handle_sandbox_renew(struct sp_request *request);
void sp_handle_sandbox_release(struct sp_request *request);
void sp_handle_sandbox_claim(struct sp_request *request);
void sp_handle_overlay_list(struct sp_request *request);
void sp_handle_overlay_diff(struct sp_request *request);
void sp_handle_overlay_commit(struct sp_request *request);
void sp_handle_host_list(struct sp_request *request);
void sp_handle_host_drain(struct sp_request *request);
void sp_handle_host_resume(struct sp_request *request);
void sp_handle_pool_list(struct sp_request *request);
void sp_handle_pool_get(struct sp_request *request);
void sp_handle_pool_resize(struct sp_request *request);
void sp_handle_pool_drain(struct sp_request *request);
void sp_handle_pool_resume(struct sp_request *request);
void sp_handle_reload(struct sp_request *request);
void sp_handle_config(struct sp_request *request);
void sp_handle_version(struct sp_request *request);
void sp_handle_metrics(struct sp_request *request);
void sp_handle_healthz(struct sp_request *request);
void sp_handle_readyz(struct sp_request *request);

/* ---- OpenSandbox: lifecycle ---- */

/* Somebody uses it: it may live longer for that. */
void sp_os_used(struct sp_api *api, struct sp_os_sandbox *os);
/* Once a second: ends and leases that the pool does not look after. */
void sp_os_sweep(struct sp_api *api);
/* sp_service_end_cb; arg: struct sp_api. */
void sp_os_on_end(void *arg, const char *id, enum sp_end_reason reason);

void sp_handle_os_create(struct sp_request *request);
void sp_handle_os_list(struct sp_request *request);
void sp_handle_os_get(struct sp_request *request);
void sp_handle_os_delete(struct sp_request *request);
void sp_handle_os_metadata(struct sp_request *request);
void sp_handle_os_pause(struct sp_request *request);
void sp_handle_os_resume(struct sp_request *request);
void sp_handle_os_renew(struct sp_request *request);
void sp_handle_os_endpoint(struct sp_request *request);
void sp_handle_os_proxy(struct sp_request *request);
/* Of both proxies: takes the body as it comes, if there is one. */
int sp_proxy_begin(struct sp_request *request, struct sp_err *err);
void sp_handle_os_event(struct sp_request *request);
void sp_handle_os_health(struct sp_request *request);
void sp_handle_os_no_snapshots(struct sp_request *request);
void sp_handle_os_no_diagnostics(struct sp_request *request);
void sp_handle_os_no_pools(struct sp_request *request);

/* ---- OpenSandbox: execd ---- */

void sp_handle_execd_ping(struct sp_request *request);
void sp_handle_execd_command(struct sp_request *request);
void sp_handle_execd_interrupt(struct sp_request *request);
void sp_handle_execd_command_status(struct sp_request *request);
void sp_handle_execd_command_logs(struct sp_request *request);
void sp_handle_execd_session_create(struct sp_request *request);
void sp_handle_execd_session_run(struct sp_request *request);
void sp_handle_execd_session_delete(struct sp_request *request);
void sp_handle_execd_code(struct sp_request *request);
void sp_handle_execd_context_create(struct sp_request *request);
void sp_handle_execd_context_list(struct sp_request *request);
void sp_handle_execd_context_delete_all(struct sp_request *request);
void sp_handle_execd_context_get(struct sp_request *request);
void sp_handle_execd_context_delete(struct sp_request *request);
void sp_handle_execd_metrics(struct sp_request *request);
void sp_handle_execd_metrics_watch(struct sp_request *request);
void sp_handle_isolated_capabilities(struct sp_request *request);
void sp_handle_isolated_create(struct sp_request *request);
void sp_handle_isolated_list(struct sp_request *request);
void sp_handle_isolated_get(struct sp_request *request);
void sp_handle_isolated_delete(struct sp_request *request);
void sp_handle_isolated_run(struct sp_request *request);
void sp_handle_isolated_diff(struct sp_request *request);
void sp_handle_isolated_commit(struct sp_request *request);
void sp_handle_execd_proxy(struct sp_request *request);
void sp_handle_pty_create(struct sp_request *request);
void sp_handle_pty_get(struct sp_request *request);
void sp_handle_pty_delete(struct sp_request *request);
void sp_handle_pty_socket(struct sp_request *request);

/* Dead ones, and those that nobody uses, go. */
void sp_isolated_sweep(const struct sp_os_sandbox *os, int64_t now_ms);
/* The request is about the files of the session of its {key}: fills in request->isolated.
 * NOT_FOUND, SANDBOX_DEAD. */
int sp_isolated_enter(struct sp_request *request, struct sp_err *err);

/* ---- files: execd's routes and ours ---- */

void sp_handle_files_info(struct sp_request *request);
void sp_handle_files_search(struct sp_request *request);
void sp_handle_files_download(struct sp_request *request);
void sp_handle_files_upload(struct sp_request *request);
int sp_begin_files_upload(struct sp_request *request, struct sp_err *err);
void sp_handle_files_put(struct sp_request *request);
int sp_begin_files_put(struct sp_request *request, struct sp_err *err);
void sp_handle_files_replace(struct sp_request *request);
void sp_handle_files_move(struct sp_request *request);
void sp_handle_files_permissions(struct sp_request *request);
void sp_handle_files_delete(struct sp_request *request);
void sp_handle_directories_list(struct sp_request *request);
void sp_handle_directories_create(struct sp_request *request);
void sp_handle_directories_delete(struct sp_request *request);

/* ---- exec_plain.c, exec_stream.c ---- */

void sp_exec_plain_start(struct sp_request *request, bool run);
void sp_exec_stream_open(struct sp_request *request, bool run);

#endif
