/*
 * The sandboxes of the OpenSandbox API: what that API knows of a sandbox beside what the pool does.
 *
 * A sandbox of that API has a UUID. The table leads from it to our sandbox id and the secret of its
 * lease, which the interface holds for the client and gives out with every endpoint. It is in
 * memory only, as the sandboxes are, and bounded (SP_OS_SANDBOXES_MAX, SP_OS_KEPT_MAX).
 *
 *	sp_os_sandbox_new ─► RUNNING ⇄ PAUSING ─► PAUSED ─► RESUMING ─► RUNNING
 *	                        └───────────── ended ─► out of the table; gone with the last
 *reference
 *
 * Whoever keeps something for a sandbox (commands, sessions, terminals) attaches it and is told
 * when the sandbox ends. A request has a reference to its sandbox until it is over; whoever keeps a
 * pointer for longer takes one.
 */
#ifndef SP_API_OS_SANDBOXES_H
#define SP_API_OS_SANDBOXES_H

#include "pool/base/err.h"
#include "pool/base/list.h"
#include "pool/base/map.h"
#include "supervisor/api/route.h"
#include "supervisor/daemon/service.h"

#include <jansson.h>

#define SP_OS_SANDBOXES_MAX 4096u
#define SP_OS_KEPT_MAX      (128u * 1024) /* bytes of one create, and of metadata later on */
#define SP_OS_METADATA_MAX  64u           /* labels of one sandbox */
#define SP_EXECD_PORT       44772u

enum sp_os_state { SP_OS_RUNNING, SP_OS_PAUSING, SP_OS_PAUSED, SP_OS_RESUMING, SP_OS_STATE_COUNT };

struct sp_os_attachment {
	struct sp_list link;
	/* The sandbox has ended, nothing in it runs any more. Called once, never after a detach;
	 * the attachment is detached when it is called, and may free itself. */
	void (*ended)(struct sp_os_attachment *attachment);
};

/* Members that are NULL were not given. All belong to it. */
struct sp_os_sandbox {
	struct sp_map_link by_uuid;
	struct sp_map_link by_id;
	struct sp_list link; /* in the table, newest first */
	struct sp_os_table *table;
	struct sp_list attachments;
	unsigned int references;
	bool ended;
	bool died; /* … by itself: nobody had asked for it */

	char uuid[SP_OS_UUID_LEN + 1];
	char id[SP_SANDBOX_ID_LEN + 1]; /* ours */
	char secret[SP_SECRET_LEN + 1];
	enum sp_os_state state;
	int64_t wall_offset_ms; /* of the wall clock to BOOTTIME, as far as anybody is shown */
	int64_t created_ms;     /* both BOOTTIME */
	int64_t transition_ms;  /* of state */
	int64_t expires_ms;     /* INT64_MAX: none */
	int64_t lease_end_ms;   /* what the pool knows; never sooner, moved on as long as needed */
	int64_t extend_ms;      /* every use makes it live this long from then; 0 = not */
	char *image;
	json_t *entrypoint; /* array of strings */
	json_t *metadata;   /* object of strings, never NULL */
	json_t *extensions; /* object of strings: the public ones */
	json_t *platform;
	char **env; /* "NAME=value": before an exec's own */
	size_t envc;
};

struct sp_os_table;

/* 0 or -ENOMEM. */
int sp_os_table_new(struct sp_os_table **ret_table);
/* Every sandbox in it ends first. NULL is fine. */
void sp_os_table_free(struct sp_os_table *table);
size_t sp_os_table_count(const struct sp_os_table *table);
/* Newest first. */
const struct sp_list *sp_os_table_list(const struct sp_os_table *table);

/* An empty one with a new UUID, not in the table yet; the reference is the caller's. NULL: no
 * memory. */
struct sp_os_sandbox *sp_os_sandbox_new(void);
/* id, secret and times are filled. The table has a reference until the end. TOO_MANY. */
int sp_os_table_add(struct sp_os_table *table, struct sp_os_sandbox *os, struct sp_err *err);
/* NULL if there is none. */
struct sp_os_sandbox *sp_os_find(const struct sp_os_table *table, const char *uuid);
struct sp_os_sandbox *sp_os_find_by_id(const struct sp_os_table *table, const char *id);
/* Its attachments are told; it is found no more. Idempotent. */
void sp_os_end(struct sp_os_sandbox *os);

struct sp_os_sandbox *sp_os_ref(struct sp_os_sandbox *os);
void sp_os_unref(struct sp_os_sandbox *os); /* NULL is fine */

/* Not after its end. */
void sp_os_attach(struct sp_os_sandbox *os, struct sp_os_attachment *attachment);
/* Harmless for one that is not attached but initialised (sp_list_init). */
void sp_os_detach(struct sp_os_attachment *attachment);

/* Who asks the service on behalf of whoever was let in; borrowed from os. */
struct sp_caller sp_os_caller(const struct sp_os_sandbox *os);
/* A random UUID of version 4; text has room for SP_OS_UUID_LEN + 1. */
void sp_os_uuid_new(char *text);
/* "Running", … */
const char *sp_os_state_name(enum sp_os_state state);

#endif
