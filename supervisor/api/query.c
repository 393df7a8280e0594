/*
 * Percent-decoding of query parameters (RFC 3986, 2.1). A decoded NUL is refused: whatever takes
 * the value is a C string sooner or later, and must not mean something shorter than what was
 * checked.
 */
#include "supervisor/api/query.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int hex_digit(char byte)
{
	if (byte >= '0' && byte <= '9')
		return byte - '0';
	if (byte >= 'a' && byte <= 'f')
		return byte - 'a' + 10;
	if (byte >= 'A' && byte <= 'F')
		return byte - 'A' + 10;
	return -1;
}

int sp_percent_decode(const char *text, size_t len, struct sp_buf *out, struct sp_err *err)
{
	for (size_t i = 0; i < len; i++) {
		char byte = text[i];

		if (byte == '%') {
			int high = i + 2 < len ? hex_digit(text[i + 1]) : -1;
			int low = i + 2 < len ? hex_digit(text[i + 2]) : -1;

			if (high < 0 || low < 0 || high + low == 0)
				return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
						   "'%%' without the two hex digits of a byte");
			byte = (char)(high << 4 | low);
			i += 2;
		}
		if (sp_buf_append(out, &byte, 1) < 0)
			return sp_err_set(err, -ENOMEM, "decode a query parameter");
	}
	return 0;
}

struct query_walk {
	const char *key;
	int (*visit)(void *arg, const char *value, struct sp_err *err);
	void *arg;
	struct sp_err *err;
	int status;
};

static enum MHD_Result visit_argument(void *cls, enum MHD_ValueKind kind, const char *key,
				      size_t key_len, const char *value, size_t value_len)
{
	struct query_walk *walk = cls;
	struct sp_buf decoded;

	SP_UNUSED(kind);
	if (strlen(walk->key) != key_len || memcmp(walk->key, key, key_len) != 0)
		return MHD_YES;
	sp_buf_init(&decoded, SP_API_URI_MAX);
	walk->status = sp_percent_decode(value ? value : "", value_len, &decoded, walk->err);
	if (walk->status < 0)
		(void)sp_err_wrap(walk->err, walk->status, "query parameter '%s'", walk->key);
	else
		walk->status = walk->visit(walk->arg, sp_buf_text(&decoded), walk->err);
	sp_buf_done(&decoded);
	return walk->status < 0 ? MHD_NO : MHD_YES;
}

int sp_query_each(struct sp_request *request, const char *key,
		  int (*visit)(void *arg, const char *value, struct sp_err *err), void *arg,
		  struct sp_err *err)
{
	struct query_walk walk = {.key = key, .visit = visit, .arg = arg, .err = err};

	(void)MHD_get_connection_values_n(request->mhd, MHD_GET_ARGUMENT_KIND, visit_argument,
					  &walk);
	return SP_MIN(walk.status, 0);
}

static int keep_first(void *arg, const char *value, struct sp_err *err)
{
	char **text = arg;

	if (*text)
		return 0;
	*text = strdup(value);
	return *text ? 0 : sp_err_set(err, -ENOMEM, "read the query");
}

int sp_query_text(struct sp_request *request, const char *key, char **ret_value, struct sp_err *err)
{
	char *text = NULL;
	int status = sp_query_each(request, key, keep_first, &text, err);

	if (status < 0) {
		free(text);
		return status;
	}
	if (!text)
		return 0;
	*ret_value = text;
	return 1;
}

int sp_query_integer(struct sp_request *request, const char *key, int64_t min, int64_t max,
		     int64_t *ret_value, struct sp_err *err)
{
	char *text;
	int status = sp_query_text(request, key, &text, err);
	long long value;
	char *end;

	if (status <= 0)
		return status;
	errno = 0;
	value = strtoll(text, &end, 10);
	if (end == text || *end || errno == ERANGE || value < min || value > max ||
	    text[strspn(text, "-0123456789")])
		status = sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				     "query parameter '%s' must be a number in %lld … %lld", key,
				     (long long)min, (long long)max);
	else
		*ret_value = value;
	free(text);
	return status;
}
