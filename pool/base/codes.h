/*
 * The error codes that clients see (HTTP bodies, CLI --json, Redis replies), one word each.
 *
 * Names are part of the interface and never change their meaning; see deploy/docs/errors.md.
 * X(identifier, name on the wire, HTTP status, one line for people)
 */
#ifndef SP_BASE_CODES_H
#define SP_BASE_CODES_H

#define SP_CODES(X)                                                                               \
	X(INTERNAL, "INTERNAL", 500, "a fault of sandpool itself")                                \
	X(INVALID_ARGUMENT, "INVALID_ARGUMENT", 400, "the request is malformed")                  \
	X(UNAUTHORIZED, "UNAUTHORIZED", 401, "no or wrong credential")                            \
	X(FORBIDDEN, "FORBIDDEN", 403, "the credential does not allow this")                      \
	X(NOT_FOUND, "NOT_FOUND", 404, "no such object, or not yours")                            \
	X(METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", 405, "the path exists, the method does not")  \
	X(CONFLICT, "CONFLICT", 409, "the object's state does not allow this")                    \
	X(PAYLOAD_TOO_LARGE, "PAYLOAD_TOO_LARGE", 413, "a limit on size was exceeded")            \
	X(TOO_MANY, "TOO_MANY", 429, "a limit on count was exceeded")                             \
	X(UNAVAILABLE, "UNAVAILABLE", 503, "cannot be served now, try again")                     \
	X(UNSUPPORTED, "UNSUPPORTED", 501, "not possible on this host")                           \
	X(POOL_NOT_FOUND, "POOL_NOT_FOUND", 404, "no pool of that name")                          \
	X(POOL_EMPTY, "POOL_EMPTY", 503, "no idle sandbox, and the policy creates none")          \
	X(POOL_ACQUIRE_FAILED, "POOL_ACQUIRE_FAILED", 503, "candidates were tried, all failed")   \
	X(POOL_SATURATED, "POOL_SATURATED", 429, "max_total or the wait queue is full")           \
	X(POOL_NOT_RUNNING, "POOL_NOT_RUNNING", 503, "the pool is draining or stopped")           \
	X(POOL_DESTROYED, "POOL_DESTROYED", 410, "the pool was destroyed")                        \
	X(POOL_STATE_STORE_UNAVAILABLE, "POOL_STATE_STORE_UNAVAILABLE", 503, "the store is away") \
	X(CREATE_FAILED, "CREATE_FAILED", 503, "a sandbox could not be created")                  \
	X(ACQUIRE_TIMEOUT, "ACQUIRE_TIMEOUT", 503, "nothing became idle before the deadline")     \
	X(LEASE_ENDED, "LEASE_ENDED", 410, "the lease has ended")                                 \
	X(LEASE_MISMATCH, "LEASE_MISMATCH", 409, "the lease id is in use with other parameters")  \
	X(SANDBOX_DEAD, "SANDBOX_DEAD", 410, "the sandbox has ended")                             \
	X(EXEC_DISABLED, "EXEC_DISABLED", 403, "exec_enabled is false")                           \
	X(EXEC_START_FAILED, "EXEC_START_FAILED", 422, "the program could not be started")        \
	X(BIND_REFUSED, "BIND_REFUSED", 403, "the source is not below an allowed root")           \
	X(NO_MOUNT_POINT, "NO_MOUNT_POINT", 422, "the target cannot be made in this root")        \
	X(FILE_NOT_FOUND, "FILE_NOT_FOUND", 404, "no such file in the sandbox")                   \
	X(FILE_EXISTS, "FILE_EXISTS", 409, "the name is taken in the sandbox")                    \
	X(FILE_KIND, "FILE_KIND", 422, "not the kind of file that is meant")                      \
	X(FILE_DENIED, "FILE_DENIED", 403, "the workload itself may not do this")                 \
	X(FILE_FULL, "FILE_FULL", 507, "no space in the sandbox")                                 \
	X(CONNECT_FAILED, "CONNECT_FAILED", 502, "nobody listens on that port of the sandbox")    \
	X(PROTOCOL, "PROTOCOL", 400, "the peer broke the stream protocol")                        \
	X(CONFIG_INVALID, "CONFIG_INVALID", 422, "the configuration has faults")

enum sp_code {
	SP_CODE_NONE = 0,

#define SP_CODE_ENUM(id, name, status, text) SP_CODE_##id,
	SP_CODES(SP_CODE_ENUM)
#undef SP_CODE_ENUM
		SP_CODE_COUNT
};

/* The name on the wire ("POOL_EMPTY"); never NULL. */
const char *sp_code_name(enum sp_code code);
/* The code of that name, or SP_CODE_NONE. */
enum sp_code sp_code_from_name(const char *name);
/* The HTTP status that goes with it. */
int sp_code_http_status(enum sp_code code);
/* One line for people; never NULL. */
const char *sp_code_text(enum sp_code code);

#endif
