/*
 * GET /sandboxes: those of the OpenSandbox API, newest first, by state and metadata, in pages.
 *
 * `metadata` is one parameter that is a query itself ("team=a&tier=b"), so what is decoded once is
 * cut at '&' and '=' and decoded again; some clients encode it one more time.
 */
#include "supervisor/api/os_lifecycle.h"

#include "supervisor/api/query.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PAGE_SIZE_DEFAULT 20
#define PAGE_SIZE_MAX     200
#define FILTER_MAX        (2 * SP_OS_METADATA_MAX)

struct filter {
	bool states_given;
	bool states[SP_OS_STATE_COUNT];
	json_t *metadata; /* object of strings: all of them */
	int64_t page;
	int64_t page_size;
	const char *code; /* of a refusal; NULL: the usual one */
	const char *bad;  /* the parameter that is no number of its range */
};

/* States that are none of ours are legal and match nothing. */
static int visit_state(void *arg, const char *value, struct sp_err *err)
{
	struct filter *filter = arg;

	SP_UNUSED(err);
	filter->states_given = true;
	for (unsigned int i = 0; i < SP_OS_STATE_COUNT; i++)
		if (strcasecmp(value, sp_os_state_name((enum sp_os_state)i)) == 0)
			filter->states[i] = true;
	return 0;
}

static int bad_metadata(struct filter *filter, struct sp_err *err)
{
	filter->code = "INVALID_METADATA_FORMAT";
	return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
			   "metadata must be like 'key=value&key2=value2'");
}

/* "key=value" */
static int add_pair(struct filter *filter, const char *pair, size_t len, struct sp_err *err)
{
	const char *equals = memchr(pair, '=', len);
	struct sp_buf key;
	struct sp_buf value;
	int status;

	if (!equals || equals == pair || json_object_size(filter->metadata) >= FILTER_MAX)
		return bad_metadata(filter, err);
	sp_buf_init(&key, SP_API_URI_MAX);
	sp_buf_init(&value, SP_API_URI_MAX);
	status = sp_percent_decode(pair, (size_t)(equals - pair), &key, err);
	if (status == 0)
		status = sp_percent_decode(equals + 1, len - (size_t)(equals - pair) - 1, &value,
					   err);
	/* Or what was decoded is no UTF-8. */
	if (status < 0 || json_object_set_new(filter->metadata, sp_buf_text(&key),
					      json_string(sp_buf_text(&value))) < 0)
		status = bad_metadata(filter, err);
	sp_buf_done(&key);
	sp_buf_done(&value);
	return status;
}

static int visit_metadata(void *arg, const char *value, struct sp_err *err)
{
	struct filter *filter = arg;
	struct sp_buf decoded;
	const char *at;
	int status = 0;

	/* Encoded once more. */
	sp_buf_init(&decoded, SP_API_URI_MAX);
	if (!strchr(value, '=') && strcasestr(value, "%3d")) {
		status = sp_percent_decode(value, strlen(value), &decoded, err);
		if (status < 0)
			status = bad_metadata(filter, err);
		value = sp_buf_text(&decoded);
	}
	for (at = value; status == 0 && *at;) {
		size_t len = strcspn(at, "&");

		status = add_pair(filter, at, len, err);
		at += len + (at[len] ? 1 : 0);
	}
	sp_buf_done(&decoded);
	return status;
}

static int read_number(struct sp_request *request, struct filter *filter, const char *key,
		       int64_t max, int64_t *value, struct sp_err *err)
{
	int status = sp_query_integer(request, key, 1, max, value, err);

	if (status < 0 && err->code == SP_CODE_INVALID_ARGUMENT)
		filter->bad = key;
	return SP_MIN(status, 0);
}

static int read_filter(struct sp_request *request, struct filter *filter, struct sp_err *err)
{
	int status;

	filter->metadata = json_object();
	if (!filter->metadata)
		return sp_err_set(err, -ENOMEM, "read the query");
	status = sp_query_each(request, "state", visit_state, filter, err);
	if (status == 0)
		status = sp_query_each(request, "metadata", visit_metadata, filter, err);
	if (status == 0)
		status = read_number(request, filter, "page", INT32_MAX, &filter->page, err);
	if (status == 0)
		status = read_number(request, filter, "pageSize", PAGE_SIZE_MAX, &filter->page_size,
				     err);
	return status;
}

static bool matches(const struct filter *filter, const struct sp_os_sandbox *os)
{
	const char *key;
	json_t *value;

	if (filter->states_given && !filter->states[os->state])
		return false;
	json_object_foreach (filter->metadata, key, value)
		if (!json_equal(value, json_object_get(os->metadata, key)))
			return false;
	return true;
}

static void write_pages(struct sp_json_out *out, const struct filter *filter, int64_t total)
{
	int64_t pages = (total + filter->page_size - 1) / filter->page_size;

	sp_json_open(out, "pagination", '{');
	sp_json_integer(out, "page", filter->page);
	sp_json_integer(out, "pageSize", filter->page_size);
	sp_json_integer(out, "totalItems", total);
	sp_json_integer(out, "totalPages", pages);
	sp_json_boolean(out, "hasNextPage", filter->page < pages);
	sp_json_close(out, '}');
}

static void reply_list(struct sp_request *request, const struct filter *filter)
{
	int64_t first = (filter->page - 1) * filter->page_size;
	int64_t total = 0;
	struct sp_json_out out;
	struct sp_buf body;

	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	sp_json_open(&out, NULL, '{');
	sp_json_open(&out, "items", '[');
	SP_LIST_FOREACH (link, sp_os_table_list(request->api->os)) {
		struct sp_os_sandbox *os = SP_CONTAINER_OF(link, struct sp_os_sandbox, link);

		if (!matches(filter, os))
			continue;
		if (total >= first && total < first + filter->page_size)
			sp_os_sandbox_write(&out, os, true);
		total++;
	}
	sp_json_close(&out, ']');
	write_pages(&out, filter, total);
	sp_json_close(&out, '}');
	sp_reply_written(request, &out);
}

void sp_handle_os_list(struct sp_request *request)
{
	struct filter filter = {.page = 1, .page_size = PAGE_SIZE_DEFAULT};
	struct sp_err err = {0};

	if (read_filter(request, &filter, &err) == 0)
		reply_list(request, &filter);
	else if (filter.code)
		sp_os_reply_error(request, MHD_HTTP_BAD_REQUEST, filter.code, "%s", err.message);
	else if (filter.bad)
		sp_os_refuse_value(request, "query", filter.bad, err.message);
	else
		sp_reply_error(request, &err);
	json_decref(filter.metadata);
}
