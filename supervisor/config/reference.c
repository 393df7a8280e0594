/*
 * The reference page, from the schema and from a default configuration: what it says of a default
 * is what the program uses.
 */
#include "supervisor/config/reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char head[] =
	"<!-- Generated from the schema (supervisor/config/schema.c); do not edit. -->\n"
	"# Configuration\n\n"
	"One JSON file, in which `//` and `/* */` comments are allowed. Files in the folder of the "
	"same name with `.d` appended (`sandpool.json.d/*.json`) are merged over it in the order "
	"of their names: objects merge, everything else replaces. Unknown and repeated keys are "
	"errors. `sandpool config check` reports every fault with its line, `sandpool config dump` "
	"shows the outcome with all defaults.\n\n"
	"Durations are whole numbers with the units `d`, `h`, `m`, `s`, `ms`, largest first "
	"(`\"1h30m\"`, `\"500ms\"`). Sizes are a whole number with one of `B`, `KiB`, `MiB`, "
	"`GiB`, `TiB` (`\"64MiB\"`). Only 0 may stand without a unit.\n";

static const char *type_text(const struct sp_schema_key *key)
{
	switch (key->type) {
	case SP_SCHEMA_BOOL:
		return "boolean";
	case SP_SCHEMA_U32:
	case SP_SCHEMA_U64:
		return "whole number";
	case SP_SCHEMA_REAL:
		return "number";
	case SP_SCHEMA_DURATION:
		return "duration";
	case SP_SCHEMA_SIZE:
		return "size";
	case SP_SCHEMA_WORD:
		return "word";
	case SP_SCHEMA_STRING:
		return "string";
	case SP_SCHEMA_STRINGS:
		return "list of strings";
	case SP_SCHEMA_BINDS:
		return "list";
	case SP_SCHEMA_SECTION:
	case SP_SCHEMA_POOLS:
		return "object";
	}
	return "";
}

static int write_bound(const struct sp_schema_key *key, int64_t value, struct sp_buf *out)
{
	char text[64];

	if (key->type == SP_SCHEMA_DURATION)
		(void)sp_format_duration(value, text, sizeof(text));
	else if (key->type == SP_SCHEMA_SIZE)
		(void)sp_format_size((uint64_t)value, text, sizeof(text));
	else
		return sp_buf_printf(out, "%lld", (long long)value);
	return sp_buf_printf(out, "%s", text);
}

static int write_words(const struct sp_schema_key *key, struct sp_buf *out)
{
	int status = 0;

	for (size_t i = 0; key->words[i] && status == 0; i++)
		status = sp_buf_printf(out, "%s`%s`", i > 0 ? ", " : "", key->words[i]);
	return status;
}

/* The range, and what 0 and the special word mean. */
static int write_range(const struct sp_schema_key *key, struct sp_buf *out)
{
	int status = 0;

	if (key->type == SP_SCHEMA_WORD)
		return write_words(key, out);
	if (key->list_max > 0)
		status = sp_buf_printf(out, "at most %u", key->list_max);
	if (key->type == SP_SCHEMA_REAL)
		status = sp_buf_printf(out, "%g … %g", key->real_min, key->real_max);
	if (key->max > 0) {
		status = write_bound(key, key->min, out);
		if (status == 0)
			status = sp_buf_printf(out, " … ");
		if (status == 0)
			status = write_bound(key, key->max, out);
	}
	if (status == 0 && key->zero)
		status = sp_buf_printf(out, "; 0: %s", key->zero);
	if (status == 0 && key->minus_one)
		status = sp_buf_printf(out, "; `\"%s\"`: %s", key->minus_one, key->meaning);
	return status;
}

static int write_default(const struct sp_schema_key *key, const void *base, struct sp_buf *out)
{
	int status;

	if (key->type == SP_SCHEMA_SECTION || key->type == SP_SCHEMA_POOLS)
		return 0;
	status = sp_buf_printf(out, "`");
	if (status == 0)
		status = sp_config_write_value(key, base, false, out);
	return status < 0 ? status : sp_buf_printf(out, "`");
}

static int write_key(const struct sp_schema_key *key, const void *base, struct sp_buf *out)
{
	int status = sp_buf_printf(out, "| `%s` | %s | ", key->name, type_text(key));

	if (status == 0)
		status = write_default(key, base, out);
	if (status == 0)
		status = sp_buf_printf(out, " | ");
	if (status == 0)
		status = write_range(key, out);
	return status < 0 ? status : sp_buf_printf(out, " | %s |\n", key->help);
}

static int write_table(const struct sp_schema_scope *scope, const void *base, struct sp_buf *out)
{
	int status = sp_buf_printf(out,
				   "\n## %s\n\n%s%s| key | type | default | values | meaning |\n"
				   "| --- | --- | --- | --- | --- |\n",
				   scope->title, scope->intro ? scope->intro : "",
				   scope->intro ? "\n\n" : "");

	for (size_t i = 0; i < scope->count && status == 0; i++)
		if (!(scope->keys[i].flags & SP_SCHEMA_F_RESOLVED))
			status = write_key(&scope->keys[i], base, out);
	return status;
}

int sp_config_reference(struct sp_buf *out)
{
	struct sp_config config = {0};
	struct sp_config_pool pool = {0};
	int status = sp_buf_append(out, head, sizeof(head) - 1);

	sp_pool_config_defaults(&pool.policy);
	if (status == 0)
		status = sp_config_set_defaults(&sp_schema_scopes[SP_SCHEMA_GLOBAL], &config);
	if (status == 0)
		status = sp_config_set_defaults(&sp_schema_scopes[SP_SCHEMA_POOL], &pool);
	if (status == 0)
		status = write_table(&sp_schema_scopes[SP_SCHEMA_GLOBAL], &config, out);
	if (status == 0)
		status = write_table(&sp_schema_scopes[SP_SCHEMA_REDIS], &config, out);
	if (status == 0)
		status = write_table(&sp_schema_scopes[SP_SCHEMA_POOL], &pool, out);
	if (status == 0)
		status = write_table(&sp_schema_scopes[SP_SCHEMA_POOL_LIMITS], &pool, out);
	if (status == 0)
		status = write_table(&sp_schema_scopes[SP_SCHEMA_POOL_WARMUP], &pool, out);
	if (status == 0)
		status = write_table(&sp_schema_scopes[SP_SCHEMA_POOL_READINESS], &pool, out);
	sp_config_scope_done(&sp_schema_scopes[SP_SCHEMA_GLOBAL], &config);
	sp_config_scope_done(&sp_schema_scopes[SP_SCHEMA_POOL], &pool);
	return status;
}
