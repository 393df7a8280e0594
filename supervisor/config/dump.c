/*
 * From the structs back to JSON: every key in the order of the schema, defaults resolved, numbers
 * in the shortest form that reads back as the same bits. What is written here, sp_config_parse()
 * reads into an equal configuration, and dumping that gives the same bytes.
 */
#include "supervisor/config/reader.h"

#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHOLE_MAX 1e15 /* up to here every whole number is exact and needs no exponent */

static int write_string(const char *text, struct sp_buf *out)
{
	int status = sp_buf_append(out, "\"", 1);

	for (; *text != '\0' && status == 0; text++) {
		unsigned char byte = (unsigned char)*text;

		if (byte == '"' || byte == '\\')
			status = sp_buf_printf(out, "\\%c", byte);
		else if (byte < ' ' || byte == 0x7f)
			status = sp_buf_printf(out, "\\u%04x", byte);
		else
			status = sp_buf_append(out, text, 1);
	}
	return status < 0 ? status : sp_buf_append(out, "\"", 1);
}

/* Never negative. The caller has set the C locale for this thread. */
static int write_real(double value, struct sp_buf *out)
{
	char text[40];

	if (value < WHOLE_MAX && value <= (double)(int64_t)value)
		return sp_buf_printf(out, "%.1f", value);
	for (int digits = 1; digits <= 17; digits++) {
		(void)snprintf(text, sizeof(text), "%.*g", digits, value);
		if (strtod(text, NULL) >= value && strtod(text, NULL) <= value)
			break;
	}
	return sp_buf_printf(out, "%s", text);
}

static int write_duration(const struct sp_schema_key *key, int64_t ms, struct sp_buf *out)
{
	char text[64];

	if (ms == -1 && key->minus_one)
		return write_string(key->minus_one, out);
	if (sp_format_duration(ms, text, sizeof(text)) < 0)
		return -EINVAL;
	return write_string(text, out);
}

static int write_size(const struct sp_schema_key *key, uint64_t bytes, struct sp_buf *out)
{
	char text[64];

	if (bytes == SP_SIZE_AUTO && key->minus_one)
		return write_string(key->minus_one, out);
	if (sp_format_size(bytes, text, sizeof(text)) < 0)
		return -EINVAL;
	return write_string(text, out);
}

static int write_strings(const struct sp_schema_key *key, const void *base, struct sp_buf *out)
{
	char *const *strings = sp_schema_strings(key, base);
	int status = sp_buf_append(out, "[", 1);

	for (size_t i = 0; i < sp_schema_count(key, base) && status == 0; i++) {
		if (i > 0)
			status = sp_buf_append(out, ", ", 2);
		if (status == 0)
			status = write_string(strings[i], out);
	}
	return status < 0 ? status : sp_buf_append(out, "]", 1);
}

static int write_bind(const struct sp_config_bind_root *bind, struct sp_buf *out)
{
	int status = sp_buf_printf(out, "{\"path\": ");

	if (status == 0)
		status = write_string(bind->path, out);
	if (status == 0)
		status = sp_buf_printf(out, ", \"read_only\": %s, \"recursive\": %s}",
				       bind->read_only ? "true" : "false",
				       bind->recursive ? "true" : "false");
	return status;
}

static int write_binds(const struct sp_schema_key *key, const void *base, struct sp_buf *out)
{
	const struct sp_config_bind_root *const *binds = sp_schema_const_at(base, key->offset);
	int status = sp_buf_append(out, "[", 1);

	for (size_t i = 0; i < sp_schema_count(key, base) && status == 0; i++) {
		if (i > 0)
			status = sp_buf_append(out, ", ", 2);
		if (status == 0)
			status = write_bind(&(*binds)[i], out);
	}
	return status < 0 ? status : sp_buf_append(out, "]", 1);
}

int sp_config_write_value(const struct sp_schema_key *key, const void *base, bool with_secrets,
			  struct sp_buf *out)
{
	const void *at = sp_schema_const_at(base, key->offset);

	if ((key->flags & SP_SCHEMA_F_SECRET) && !with_secrets && sp_schema_count(key, base) > 0)
		return write_string("***", out);
	switch (key->type) {
	case SP_SCHEMA_BOOL:
		return sp_buf_printf(out, "%s", *(const bool *)at ? "true" : "false");
	case SP_SCHEMA_U32:
		return sp_buf_printf(out, "%" PRIu32, *(const uint32_t *)at);
	case SP_SCHEMA_U64:
		return sp_buf_printf(out, "%" PRIu64, *(const uint64_t *)at);
	case SP_SCHEMA_REAL:
		return write_real(*(const double *)at, out);
	case SP_SCHEMA_DURATION:
		return write_duration(key, *(const int64_t *)at, out);
	case SP_SCHEMA_SIZE:
		return write_size(key, *(const uint64_t *)at, out);
	case SP_SCHEMA_WORD:
		return write_string(key->words[sp_schema_word(key, base)], out);
	case SP_SCHEMA_STRING:
		return write_string(*(char *const *)at ? *(char *const *)at : "", out);
	case SP_SCHEMA_STRINGS:
		return write_strings(key, base, out);
	case SP_SCHEMA_BINDS:
		return write_binds(key, base, out);
	case SP_SCHEMA_SECTION:
	case SP_SCHEMA_POOLS: /* objects: the caller walks their scopes */
		break;
	}
	return -EINVAL;
}

static int write_pools(const struct sp_config *config, bool with_secrets, struct sp_buf *out);

static int indent(int depth, struct sp_buf *out)
{
	return sp_buf_printf(out, "%*s", 2 * depth, "");
}

static int write_scope(const struct sp_schema_scope *scope, const void *base, bool with_secrets,
		       int depth, struct sp_buf *out)
{
	int status = sp_buf_append(out, "{", 1);

	for (size_t i = 0; i < scope->count && status == 0; i++) {
		const struct sp_schema_key *key = &scope->keys[i];

		status = sp_buf_printf(out, "%s\n%*s\"%s\": ", i > 0 ? "," : "", 2 * depth + 2, "",
				       key->name);
		if (status < 0)
			break;
		if (key->type == SP_SCHEMA_SECTION)
			status = write_scope(&sp_schema_scopes[key->section], base, with_secrets,
					     depth + 1, out);
		else if (key->type == SP_SCHEMA_POOLS)
			status = write_pools(base, with_secrets, out);
		else
			status = sp_config_write_value(key, base, with_secrets, out);
	}
	if (status == 0)
		status = sp_buf_append(out, "\n", 1);
	if (status == 0)
		status = indent(depth, out);
	return status < 0 ? status : sp_buf_append(out, "}", 1);
}

static int write_pools(const struct sp_config *config, bool with_secrets, struct sp_buf *out)
{
	int status = sp_buf_append(out, "{", 1);

	for (size_t i = 0; i < config->pool_count && status == 0; i++) {
		const struct sp_config_pool *pool = &config->pools[i];

		status =
			sp_buf_printf(out, "%s\n    \"%s\": ", i > 0 ? "," : "", pool->policy.name);
		if (status == 0)
			status = write_scope(&sp_schema_scopes[SP_SCHEMA_POOL], pool, with_secrets,
					     2, out);
	}
	return status < 0 ? status : sp_buf_printf(out, "\n  }");
}

int sp_config_dump(const struct sp_config *config, bool with_secrets, struct sp_buf *out,
		   struct sp_err *err)
{
	size_t before = out->len;
	locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
	locale_t previous;
	int status;

	if (!c_locale)
		return sp_err_set(err, -ENOMEM, "dump the configuration");
	previous = uselocale(c_locale);
	status = write_scope(&sp_schema_scopes[SP_SCHEMA_GLOBAL], config, with_secrets, 0, out);
	if (status == 0)
		status = sp_buf_append(out, "\n", 1);
	(void)uselocale(previous);
	freelocale(c_locale);
	if (status < 0) {
		out->len = before;
		if (out->data)
			out->data[before] = '\0';
		return sp_err_set(err, status, "dump the configuration");
	}
	return 0;
}
