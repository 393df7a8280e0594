/*
 * The function library: is it there, is it ours or newer, and calls that survive its absence.
 *
 *	ensure:  FCALL_RO sandpool_v1_info ─ ours or newer ───────────────────────────► done
 *	           ├ older ────► FUNCTION LOAD REPLACE ─┬ loaded ─────────────────────► done
 *	           └ missing ──► FUNCTION LOAD ─────────┼ there already ─► look again
 *	                                                └ no right: done if an older one is there
 *	fcall:   FCALL ─ "Function not found" ─► ensure ─► FCALL ─ again ─► pause ─► FCALL …
 *deadline
 *
 * "Function not found" is the server's word that nothing ran, so sending again cannot do a thing
 * twice; anything else is passed on. One ensure serves all calls that wait. Between its look and
 *its FUNCTION LOAD REPLACE a newer daemon may have loaded its own: that is put right by its next
 * connect or missing function; within v1 all changes are additive.
 *
 * Trusts nothing of a reply but its checked form.
 */
#include "redis/library.h"

#include "pool/base/list.h"
#include "redis/reply.h"
#include "redis/wire_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOKS_MAX        3 /* of one ensure: others may load and flush in between */
#define MISSING_PAUSE_MS 50
#define BUILD_TEXT       "local BUILD = "

struct sp_redis_library {
	struct sp_redis *redis;
	uint64_t build; /* ours */
	bool freed;
	bool ensuring;    /* for the calls that wait */
	uv_timer_t timer; /* the pause before waiting calls are sent again */
	struct sp_list ensures;
	struct sp_list sent;
	struct sp_list waiting;
	struct sp_list resending;
};

struct ensure {
	struct sp_list link;
	struct sp_redis_library *library; /* NULL: it was freed, nobody is told */
	void (*done)(void *arg, const struct sp_err *err);
	void *arg;
	unsigned int looks;
	bool older; /* there is one, of an earlier build */
};

struct call {
	struct sp_list link;              /* in one of the library's lists */
	struct sp_redis_library *library; /* NULL: it was freed, nobody is told */
	int64_t deadline_ms;
	bool missed; /* has met "Function not found" before */
	sp_redis_cb *cb;
	void *arg;
	int argc;
	const char **argv; /* with lens and the text in one piece of memory, after the struct */
	size_t *lens;
};

/* ---- ensure ---- */

static void look(struct ensure *ensure);

static void ensure_done(struct ensure *ensure, const struct sp_err *err)
{
	void (*done)(void *arg, const struct sp_err *err) = ensure->done;
	void *arg = ensure->arg;
	bool told = ensure->library != NULL;

	sp_list_remove(&ensure->link);
	free(ensure);
	if (told)
		done(arg, err);
}

static void on_loaded(void *arg, enum sp_redis_outcome outcome, const redisReply *reply,
		      const struct sp_err *err)
{
	struct ensure *ensure = arg;

	SP_UNUSED(outcome);
	if (err && ensure->library && ensure->looks < LOOKS_MAX && reply &&
	    strstr(reply->str, "already exists"))
		look(ensure);
	else if (ensure->older && sp_redis_error_of(reply) == SP_REDIS_ERROR_NOPERM)
		ensure_done(ensure, NULL);
	else
		ensure_done(ensure, err);
}

static void load(struct ensure *ensure)
{
	const char *const replace[] = {"FUNCTION", "LOAD", "REPLACE", sp_redis_library_text};
	const char *const fresh[] = {"FUNCTION", "LOAD", sp_redis_library_text};
	struct sp_err err = {0};
	int status;

	if (ensure->older)
		status = sp_redis_call(ensure->library->redis, 4, replace, NULL, 0, on_loaded,
				       ensure, &err);
	else
		status = sp_redis_call(ensure->library->redis, 3, fresh, NULL, 0, on_loaded, ensure,
				       &err);
	if (status < 0)
		ensure_done(ensure, &err);
}

/* ["OK", "sandpool_v1", name, value…]. */
static bool read_build(const redisReply *reply, uint64_t *ret)
{
	const char *status = sp_redis_status(reply);

	if (!status || strcmp(status, "OK") != 0)
		return false;
	for (size_t i = 2; i + 1 < reply->elements; i += 2) {
		const redisReply *value = reply->element[i + 1];

		if (sp_redis_is_word(reply->element[i], SP_REDIS_LIBRARY_BUILD_KEY) &&
		    value->type == REDIS_REPLY_INTEGER && value->integer >= 0) {
			*ret = (uint64_t)value->integer;
			return true;
		}
	}
	return false;
}

static void on_info(void *arg, enum sp_redis_outcome outcome, const redisReply *reply,
		    const struct sp_err *err)
{
	struct ensure *ensure = arg;
	struct sp_err odd = {0};
	uint64_t build;

	SP_UNUSED(outcome);
	if (ensure->library && sp_redis_error_of(reply) == SP_REDIS_ERROR_NO_FUNCTION) {
		ensure->older = false;
		load(ensure);
	} else if (!ensure->library || err) {
		ensure_done(ensure, err);
	} else if (!read_build(reply, &build)) {
		(void)sp_err_code(&odd, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -EBADMSG,
				  "sandpool_v1_info tells no build: is another library loaded?");
		ensure_done(ensure, &odd);
	} else if (build >= ensure->library->build) {
		ensure_done(ensure, NULL);
	} else {
		ensure->older = true;
		load(ensure);
	}
}

static void look(struct ensure *ensure)
{
	const char *const info[] = {"FCALL_RO", "sandpool_v1_info", "0"};
	struct sp_err err = {0};

	ensure->looks++;
	if (sp_redis_call(ensure->library->redis, 3, info, NULL, 0, on_info, ensure, &err) < 0)
		ensure_done(ensure, &err);
}

int sp_redis_library_ensure(struct sp_redis_library *library,
			    void (*done)(void *arg, const struct sp_err *err), void *arg)
{
	const char *const info[] = {"FCALL_RO", "sandpool_v1_info", "0"};
	struct ensure *ensure = calloc(1, sizeof(*ensure));
	int status;

	if (!ensure)
		return -ENOMEM;
	*ensure = (struct ensure){.library = library, .done = done, .arg = arg, .looks = 1};
	/* Not look(): what fails here is the caller's to hear, by the return value. */
	status = sp_redis_call(library->redis, 3, info, NULL, 0, on_info, ensure, NULL);
	if (status < 0)
		free(ensure);
	else
		sp_list_append(&library->ensures, &ensure->link);
	return status;
}

/* ---- calls ---- */

static void call_finish(struct call *call, enum sp_redis_outcome outcome, const redisReply *reply,
			const struct sp_err *err)
{
	sp_redis_cb *cb = call->cb;
	void *arg = call->arg;

	sp_list_remove(&call->link);
	free(call);
	cb(arg, outcome, reply, err);
}

static void on_reply(void *arg, enum sp_redis_outcome outcome, const redisReply *reply,
		     const struct sp_err *err);

/* Under the name that a user knows. */
static void call_name(const struct call *call, char *name)
{
	sp_redis_command_name(call->argc, call->argv, call->lens, name);
}

static int send_call(struct call *call, struct sp_err *err)
{
	int64_t left_ms = SP_MAX(call->deadline_ms - sp_redis_now_ms(), 1);

	return sp_redis_call(call->library->redis, call->argc, call->argv, call->lens, left_ms,
			     on_reply, call, err);
}

static struct call *take_first(struct sp_list *calls)
{
	struct sp_list *link = calls->next;

	sp_list_remove(link);
	sp_assert(calls->next != link);
	return SP_CONTAINER_OF(link, struct call, link);
}

/* All that wait are sent again. A callback may free the library: its memory stays until later. */
static void resend_all(struct sp_redis_library *library)
{
	while (!library->freed && !sp_list_empty(&library->waiting)) {
		struct call *call = take_first(&library->waiting);

		sp_list_append(&library->resending, &call->link);
	}
	while (!library->freed && !sp_list_empty(&library->resending)) {
		struct call *call = take_first(&library->resending);
		struct sp_err err = {0};

		sp_list_append(&library->sent, &call->link);
		if (send_call(call, &err) < 0)
			call_finish(call, SP_REDIS_NOT_SENT, NULL, &err);
	}
}

static void fail_waiting(struct sp_redis_library *library, const struct sp_err *why)
{
	while (!library->freed && !sp_list_empty(&library->waiting)) {
		struct call *call = take_first(&library->waiting);
		char name[SP_REDIS_COMMAND_NAME_MAX];
		struct sp_err err = {0};

		call_name(call, name);
		(void)sp_err_code(&err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, why->status,
				  "'%s': the function library is not loaded: %s", name,
				  why->message);
		call_finish(call, SP_REDIS_NOT_SENT, NULL, &err);
	}
}

static void on_pause_over(uv_timer_t *timer)
{
	struct sp_redis_library *library = timer->data;

	if (!library->freed)
		resend_all(library);
}

static void pause_calls(struct sp_redis_library *library)
{
	/* Cannot fail: there is a callback and the handle is not closing. */
	if (!uv_is_active((uv_handle_t *)&library->timer))
		(void)uv_timer_start(&library->timer, on_pause_over, MISSING_PAUSE_MS, 0);
}

static void on_ensured(void *arg, const struct sp_err *err)
{
	struct sp_redis_library *library = arg;

	library->ensuring = false;
	if (!err)
		resend_all(library);
	else if (err->status == -EACCES)
		pause_calls(library); /* no right to load it: somebody else will */
	else
		fail_waiting(library, err);
}

static void wait_for_library(struct call *call, const struct sp_err *err)
{
	struct sp_redis_library *library = call->library;
	bool first = !call->missed;

	if (sp_redis_now_ms() + MISSING_PAUSE_MS >= call->deadline_ms && !first) {
		call_finish(call, SP_REDIS_NOT_SENT, NULL, err);
		return;
	}
	call->missed = true;
	sp_list_remove(&call->link);
	sp_list_append(&library->waiting, &call->link);
	if (library->ensuring)
		return;
	if (!first)
		pause_calls(library);
	else if (sp_redis_library_ensure(library, on_ensured, library) == 0)
		library->ensuring = true;
	else
		fail_waiting(library, err);
}

static void on_reply(void *arg, enum sp_redis_outcome outcome, const redisReply *reply,
		     const struct sp_err *err)
{
	struct call *call = arg;
	char name[SP_REDIS_COMMAND_NAME_MAX];
	struct sp_err odd = {0};

	if (!call->library) {
		free(call);
	} else if (sp_redis_error_of(reply) == SP_REDIS_ERROR_NO_FUNCTION) {
		wait_for_library(call, err);
	} else if (err || sp_redis_status(reply)) {
		call_finish(call, outcome, reply, err);
	} else {
		call_name(call, name);
		(void)sp_err_code(&odd, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -EBADMSG,
				  "'%s': the answer begins with no status word", name);
		call_finish(call, outcome, reply, &odd);
	}
}

/* Room for the arguments behind the struct, so that they can be sent again. */
static struct call *call_new(size_t argc, size_t text_len)
{
	size_t head = sizeof(struct call) + argc * (sizeof(char *) + sizeof(size_t));
	struct call *call = malloc(head + text_len);

	if (!call)
		return NULL;
	*call = (struct call){0};
	call->argv = (const char **)(call + 1);
	call->lens = (size_t *)(call->argv + argc);
	return call;
}

static char *add(struct call *call, char *at, const char *text, size_t len)
{
	memcpy(at, text, len);
	call->argv[call->argc] = at;
	call->lens[call->argc] = len;
	call->argc++;
	return at + len;
}

int sp_redis_fcall(struct sp_redis_library *library, const char *name, bool read_only,
		   const char *key, int argc, const char *const *argv, const size_t *lens,
		   int64_t deadline_ms, sp_redis_cb *cb, void *arg, struct sp_err *err)
{
	const char *const head[] = {read_only ? "FCALL_RO" : "FCALL", name, "1", key};
	size_t text_len = 0;
	struct call *call;
	char *at;
	int status;

	for (size_t i = 0; i < SP_ARRAY_SIZE(head); i++)
		text_len += strlen(head[i]);
	for (int i = 0; i < argc; i++)
		text_len += lens ? lens[i] : strlen(argv[i]);
	if (text_len > SP_REDIS_COMMAND_MAX)
		return sp_err_set(err, -EMSGSIZE, "'%s' is longer than %u bytes", name,
				  SP_REDIS_COMMAND_MAX);
	call = call_new((size_t)argc + SP_ARRAY_SIZE(head), text_len);
	if (!call)
		return sp_err_set(err, -ENOMEM, "call '%s'", name);
	at = (char *)(call->lens + (size_t)argc + SP_ARRAY_SIZE(head));
	for (size_t i = 0; i < SP_ARRAY_SIZE(head); i++)
		at = add(call, at, head[i], strlen(head[i]));
	for (int i = 0; i < argc; i++)
		at = add(call, at, argv[i], lens ? lens[i] : strlen(argv[i]));
	call->library = library;
	call->cb = cb;
	call->arg = arg;
	if (deadline_ms <= 0)
		deadline_ms = library->redis->settings.command_timeout_ms;
	call->deadline_ms = sp_redis_now_ms() + deadline_ms;
	status = send_call(call, err);
	if (status < 0)
		free(call);
	else
		sp_list_append(&library->sent, &call->link);
	return status;
}

/* ---- life ---- */

/* The number that functions/ give themselves. */
static int read_own_build(uint64_t *ret, struct sp_err *err)
{
	const char *at = strstr(sp_redis_library_text, BUILD_TEXT);
	char *end;

	if (!at)
		return sp_err_code(err, SP_CODE_INTERNAL, -EINVAL,
				   "the function library has no build number");
	at += strlen(BUILD_TEXT);
	errno = 0;
	*ret = strtoull(at, &end, 10);
	if (errno != 0 || end == at)
		return sp_err_code(err, SP_CODE_INTERNAL, -EINVAL,
				   "the build number of the function library is no number");
	return 0;
}

int sp_redis_library_new(struct sp_redis *redis, struct sp_redis_library **ret, struct sp_err *err)
{
	struct sp_redis_library *library = calloc(1, sizeof(*library));
	int status;

	if (!library)
		return sp_err_set(err, -ENOMEM, "make the function library");
	status = read_own_build(&library->build, err);
	if (status == 0)
		status = uv_timer_init(redis->loop, &library->timer);
	if (status < 0) {
		free(library);
		return status;
	}
	library->redis = redis;
	library->timer.data = library;
	sp_list_init(&library->ensures);
	sp_list_init(&library->sent);
	sp_list_init(&library->waiting);
	sp_list_init(&library->resending);
	*ret = library;
	return 0;
}

static void on_timer_closed(uv_handle_t *handle)
{
	free(handle->data);
}

static void free_calls(struct sp_list *calls)
{
	SP_LIST_FOREACH_SAFE (link, following, calls)
		free(SP_CONTAINER_OF(link, struct call, link));
	sp_list_init(calls);
}

void sp_redis_library_free(struct sp_redis_library *library)
{
	if (!library || library->freed)
		return;
	library->freed = true;
	/* The connection still answers what was sent: to nobody. */
	SP_LIST_FOREACH_SAFE (link, following, &library->sent) {
		SP_CONTAINER_OF(link, struct call, link)->library = NULL;
		sp_list_remove(link);
	}
	SP_LIST_FOREACH_SAFE (link, following, &library->ensures) {
		SP_CONTAINER_OF(link, struct ensure, link)->library = NULL;
		sp_list_remove(link);
	}
	free_calls(&library->waiting);
	free_calls(&library->resending);
	uv_close((uv_handle_t *)&library->timer, on_timer_closed);
}
