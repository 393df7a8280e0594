/*
 * The hosts of the cluster, for operators: the store is asked once for each of our pools, one after
 * another, and the answer has a row for each pool of each host.
 *
 * A question to the store cannot be taken back: an op whose client left is freed when its answer
 * comes.
 */
#include "supervisor/daemon/daemon_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The texts of a row are its own. */
struct row {
	struct sp_host_info info;
	char *texts[4];
};

struct sp_hosts_op {
	struct sp_service *service;
	char (*pools)[SP_POOL_NAME_MAX + 1];
	size_t pool_count;
	size_t next;
	struct row *rows;
	size_t row_count;
	bool drain;                       /* what is to be set … */
	char host[SP_REDIS_HOST_MAX + 1]; /* … at this host; "" = a list is wanted */
	bool found;                       /* that host, at some pool */
	bool cancelled;
	sp_service_hosts_cb *cb;
	void *arg;
};

static void op_free(struct sp_hosts_op *op)
{
	for (size_t i = 0; i < op->row_count; i++)
		for (size_t k = 0; k < SP_ARRAY_SIZE(op->rows[i].texts); k++)
			free(op->rows[i].texts[k]);
	free(op->rows);
	free(op->pools);
	free(op);
}

static void finish(struct sp_hosts_op *op, const struct sp_err *err)
{
	struct sp_host_info *infos = NULL;

	if (!err && op->row_count > 0) {
		infos = calloc(op->row_count, sizeof(*infos));
		for (size_t i = 0; infos && i < op->row_count; i++)
			infos[i] = op->rows[i].info;
	}
	if (!op->cancelled)
		op->cb(op->arg, infos, infos ? op->row_count : 0, err);
	free(infos);
	op_free(op);
}

static int keep(struct sp_hosts_op *op, const char *pool, const struct sp_redis_host *host)
{
	const char *const texts[] = {host->host, host->state, host->version, host->endpoint};
	struct row *rows = reallocarray(op->rows, op->row_count + 1, sizeof(*rows));
	struct row *row;

	if (!rows)
		return -ENOMEM;
	op->rows = rows;
	row = &rows[op->row_count++];
	*row = (struct row){0};
	for (size_t i = 0; i < SP_ARRAY_SIZE(texts); i++) {
		row->texts[i] = strdup(texts[i]);
		if (!row->texts[i])
			return -ENOMEM;
	}
	row->info = (struct sp_host_info){
		.pool = pool,
		.host = row->texts[0],
		.state = row->texts[1],
		.version = row->texts[2],
		.endpoint = row->texts[3],
		.idle = host->idle,
		.creating = host->creating,
		.leased = host->leased,
		.waiters = host->waiters,
		.share = host->share,
		.capacity = host->capacity,
		.seen_ms = host->seen_ms,
	};
	return 0;
}

static void ask_next(struct sp_hosts_op *op);

static void on_hosts(void *arg, const struct sp_redis_host *hosts, size_t count,
		     const struct sp_err *err)
{
	struct sp_hosts_op *op = arg;
	struct sp_err failed = {0};

	for (size_t i = 0; !err && i < count; i++)
		if (keep(op, op->pools[op->next], &hosts[i]) < 0) {
			(void)sp_err_set(&failed, -ENOMEM, "list of hosts");
			err = &failed;
		}
	if (err) {
		finish(op, err);
		return;
	}
	op->next++;
	ask_next(op);
}

static void on_drained(void *arg, const struct sp_err *err)
{
	struct sp_hosts_op *op = arg;

	if (err && sp_err_client_code(err) != SP_CODE_NOT_FOUND) {
		finish(op, err);
		return;
	}
	op->found = op->found || !err;
	op->next++;
	ask_next(op);
}

static void finish_drain(struct sp_hosts_op *op)
{
	struct sp_err err = {0};

	if (!op->found)
		(void)sp_err_code(&err, SP_CODE_NOT_FOUND, -ENOENT, "no host '%s'", op->host);
	else
		sp_log(SP_LOG_INFO, op->drain ? "host drains" : "host serves again", "host=%s",
		       op->host);
	finish(op, err.status != 0 ? &err : NULL);
}

static int ask(struct sp_hosts_op *op, struct sp_err *err)
{
	struct sp_store *store = op->service->store;
	const char *pool = op->pools[op->next];

	if (op->host[0] != '\0')
		return sp_redis_store_drain_host(store, pool, op->host, op->drain, on_drained, op,
						 err);
	return sp_redis_store_hosts(store, pool, on_hosts, op, err);
}

static void ask_next(struct sp_hosts_op *op)
{
	struct sp_err err = {0};

	if (op->cancelled)
		op_free(op);
	else if (op->next < op->pool_count && ask(op, &err) < 0)
		finish(op, &err);
	else if (op->next >= op->pool_count && op->host[0] != '\0')
		finish_drain(op);
	else if (op->next >= op->pool_count)
		finish(op, NULL);
}

static struct sp_hosts_op *op_new(struct sp_service *service)
{
	struct sp_hosts_op *op = calloc(1, sizeof(*op));

	if (!op)
		return NULL;
	op->service = service;
	op->pools = calloc(service->pool_count + 1, sizeof(*op->pools));
	if (!op->pools) {
		free(op);
		return NULL;
	}
	for (size_t i = 0; i < service->pool_count; i++)
		if (!service->pools[i]->removed)
			memcpy(op->pools[op->pool_count++], service->pools[i]->config->policy.name,
			       sizeof(*op->pools));
	return op;
}

/* The first question is asked here, so that what cannot be asked is refused at once. */
static int begin(struct sp_service *service, const struct sp_caller *caller, const char *host,
		 bool drain, sp_service_hosts_cb *cb, void *arg, struct sp_hosts_op **ret_op,
		 struct sp_err *err)
{
	struct sp_hosts_op *op;
	int status;

	if (!caller->operator_rights)
		return sp_err_code(err, SP_CODE_FORBIDDEN, -EPERM, "the hosts are for operators");
	if (!service->cluster)
		return sp_err_code(err, SP_CODE_UNSUPPORTED, -EOPNOTSUPP,
				   "this daemon shares its store with nobody (store: memory)");
	if (service->stopping)
		return sp_err_code(err, SP_CODE_UNAVAILABLE, -ESHUTDOWN,
				   "the daemon is shutting down");
	if (host && !sp_pool_name_valid(host))
		return sp_err_code(err, SP_CODE_NOT_FOUND, -ENOENT, "no such host");
	op = op_new(service);
	if (!op)
		return sp_err_set(err, -ENOMEM, "hosts");
	if (host)
		memcpy(op->host, host, strlen(host) + 1);
	op->drain = drain;
	op->cb = cb;
	op->arg = arg;
	status = ask(op, err);
	if (status < 0)
		op_free(op);
	else
		*ret_op = op;
	return status;
}

int sp_service_hosts(struct sp_service *service, const struct sp_caller *caller,
		     sp_service_hosts_cb *cb, void *arg, struct sp_hosts_op **ret_op,
		     struct sp_err *err)
{
	return begin(service, caller, NULL, false, cb, arg, ret_op, err);
}

int sp_service_host_drain(struct sp_service *service, const struct sp_caller *caller,
			  const char *host, bool drain, sp_service_hosts_cb *cb, void *arg,
			  struct sp_hosts_op **ret_op, struct sp_err *err)
{
	return begin(service, caller, host, drain, cb, arg, ret_op, err);
}

void sp_service_hosts_cancel(struct sp_hosts_op *op)
{
	op->cancelled = true;
}
