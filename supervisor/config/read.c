/*
 * From texts to a checked configuration: strip and parse each source, merge them (objects merge,
 * everything else replaces), set defaults, read values, check across keys. Faults do not stop it;
 * only a source that is no JSON does, as nothing can be said of what it would have changed.
 *
 * Top level keys are read before pools, whose checks ask for them.
 */
#include "supervisor/config/reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define KEY_SHOWN_MAX 80

/* ---- where the reader is ---- */

void sp_config_enter(struct sp_config_reader *reader, const char *key)
{
	sp_assert(reader->path.depth < SP_JSON_PATH_MAX);
	reader->path.steps[reader->path.depth++] = (struct sp_json_step){.key = key};
}

void sp_config_enter_index(struct sp_config_reader *reader, size_t index)
{
	sp_assert(reader->path.depth < SP_JSON_PATH_MAX);
	reader->path.steps[reader->path.depth++] = (struct sp_json_step){.index = index};
}

void sp_config_leave(struct sp_config_reader *reader)
{
	reader->path.depth--;
}

/* ---- sources ---- */

struct repeat_context {
	struct sp_config_reader *reader;
	const char *file;
};

static void report_repeat(void *arg, const char *key, size_t key_len, int line, int first_line)
{
	struct repeat_context *context = arg;

	sp_config_fault_in(context->reader, context->file, line,
			   "'%.*s' is given twice, first on line %d",
			   (int)SP_MIN(key_len, (size_t)KEY_SHOWN_MAX), key, first_line);
}

/* jansson stops at the first repeated key. Find them all, then go on with the last value of each.
 */
static int parse_repeated(struct sp_config_reader *reader, const struct sp_config_source *source,
			  json_t **ret_json, json_error_t *error)
{
	struct repeat_context context = {reader, source->name};
	int line = error->line;
	int found = sp_jsonc_repeats(source->text, source->len, report_repeat, &context);

	if (found < 0)
		return found;
	if (found == 0) /* written differently: "a" and "\u0061" */
		sp_config_fault_in(reader, source->name, line, "a key is given twice");
	return sp_config_parse_json(source->text, source->len, 0, ret_json, error);
}

static json_t *parse_source(struct sp_config_reader *reader, struct sp_config_source *source)
{
	const char *message;
	json_error_t error;
	json_t *json = NULL;
	int status;
	int line;

	if (sp_jsonc_strip(source->text, source->len, &line, &message) < 0) {
		sp_config_fault_in(reader, source->name, line, "not valid JSON: %s", message);
		return NULL;
	}
	status = sp_config_parse_json(source->text, source->len, JSON_REJECT_DUPLICATES, &json,
				      &error);
	if (status == -EINVAL && json_error_code(&error) == json_error_duplicate_key)
		status = parse_repeated(reader, source, &json, &error);
	if (status == -EINVAL)
		sp_config_fault_in(reader, source->name, SP_MAX(error.line, 0),
				   "not valid JSON: %s", error.text);
	else if (status < 0)
		reader->status = status;
	if (json && !json_is_object(json)) {
		sp_config_fault_in(reader, source->name, 1, "must hold one object, not a list");
		json_decref(json);
		json = NULL;
	}
	return json;
}

void sp_config_add_source(struct sp_config_reader *reader, const char *name, char *text, size_t len)
{
	struct sp_config_source source = {.name = strdup(name), .text = text, .len = len};
	json_t *json;

	sp_assert(reader->source_count < SP_ARRAY_SIZE(reader->sources));
	if (!source.name) {
		free(text);
		reader->status = -ENOMEM;
		return;
	}
	reader->sources[reader->source_count++] = source;
	/* The name is kept in reader->sources; the analyzer does not follow it there. */
	json = parse_source(reader, &source); /* NOLINT(clang-analyzer-unix.Malloc) */
	if (!json) {
		reader->unparsed = true;
		return;
	}
	if (!reader->root) {
		reader->root = json;
		return;
	}
	if (json_object_update_recursive(reader->root, json) < 0)
		reader->status = -ENOMEM;
	json_decref(json);
}

void sp_config_reader_done(struct sp_config_reader *reader)
{
	for (size_t i = 0; i < reader->source_count; i++) {
		free(reader->sources[i].name);
		free(reader->sources[i].text);
	}
	reader->source_count = 0;
	json_decref(reader->root);
	reader->root = NULL;
	sp_config_free(reader->config);
	reader->config = NULL;
}

/* ---- pools ---- */

static int pool_init(struct sp_config_pool *pool, const char *name)
{
	size_t len = strnlen(name, SP_POOL_NAME_MAX);

	sp_pool_config_defaults(&pool->policy);
	memcpy(pool->policy.name, name, len);
	pool->policy.name[len] = '\0';
	return sp_config_set_defaults(&sp_schema_scopes[SP_SCHEMA_POOL], pool);
}

/* A section that a pool does not have keeps no marks of the pool before. */
static void sections_good(struct sp_config_reader *reader)
{
	reader->bad[SP_SCHEMA_POOL_LIMITS] = 0;
	reader->bad[SP_SCHEMA_POOL_WARMUP] = 0;
	reader->bad[SP_SCHEMA_POOL_READINESS] = 0;
}

static void read_pool(struct sp_config_reader *reader, const char *name, json_t *value,
		      struct sp_config_pool *pool)
{
	const char *complaint = sp_check_name(name);
	size_t faults_before = reader->faults->count;
	int status = pool_init(pool, name);

	if (status < 0) {
		reader->status = status;
		return;
	}
	sp_config_enter(reader, name);
	if (complaint)
		sp_config_fault(reader, "a pool's name %s", complaint);
	if (json_is_object(value)) {
		sections_good(reader);
		sp_config_read_scope(reader, &sp_schema_scopes[SP_SCHEMA_POOL], value, pool);
		sp_config_check_pool(reader, pool, faults_before);
	} else {
		sp_config_fault(reader, "must be an object");
	}
	sp_config_leave(reader);
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Index = index in the launcher's table: sorted, so that it does not depend on the order of files.
 */
static void read_named_pools(struct sp_config_reader *reader, json_t *pools, size_t count)
{
	struct sp_config *config = reader->config;
	const char **names = calloc(count, sizeof(*names));
	size_t used = 0;
	const char *name;
	json_t *value;

	config->pools = calloc(count, sizeof(*config->pools));
	if (!names || !config->pools) {
		free(names);
		reader->status = -ENOMEM;
		return;
	}
	json_object_foreach (pools, name, value)
		names[used++] = name;
	qsort(names, used, sizeof(*names), compare_names);
	for (size_t i = 0; i < used && reader->status == 0; i++) {
		config->pool_count++;
		read_pool(reader, names[i], json_object_get(pools, names[i]), &config->pools[i]);
	}
	free(names);
}

static void default_pool(struct sp_config_reader *reader)
{
	struct sp_config *config = reader->config;

	config->pools = calloc(1, sizeof(*config->pools));
	if (!config->pools) {
		reader->status = -ENOMEM;
		return;
	}
	config->pool_count = 1;
	reader->status = pool_init(&config->pools[0], "default");
	if (reader->status < 0)
		return;
	reader->bad[SP_SCHEMA_POOL] = 0;
	sections_good(reader);
	sp_config_enter(reader, "default");
	sp_config_check_pool(reader, &config->pools[0], reader->faults->count);
	sp_config_leave(reader);
}

static void read_pools(struct sp_config_reader *reader)
{
	json_t *pools = json_object_get(reader->root, "pools");

	sp_config_enter(reader, "pools");
	if (!pools)
		default_pool(reader);
	else if (!json_is_object(pools))
		sp_config_fault(reader, "must be an object of pools by name");
	else if (json_object_size(pools) == 0)
		sp_config_fault(reader, "must name at least one pool");
	else if (json_object_size(pools) > SP_TABLE_POOLS_MAX)
		sp_config_fault(reader, "has %zu pools, at most %u are possible",
				json_object_size(pools), SP_TABLE_POOLS_MAX);
	else
		read_named_pools(reader, pools, json_object_size(pools));
	sp_config_leave(reader);
}

/* ---- the whole ---- */

static void fill_generations(struct sp_config *config)
{
	for (size_t i = 0; i < config->pool_count; i++)
		config->pools[i].policy.spec_generation =
			sp_config_spec_generation(config, &config->pools[i]);
}

int sp_config_read(struct sp_config_reader *reader, struct sp_config **ret_config)
{
	const struct sp_schema_scope *global = &sp_schema_scopes[SP_SCHEMA_GLOBAL];

	if (reader->root && !reader->unparsed && reader->status == 0) {
		reader->config = calloc(1, sizeof(*reader->config));
		reader->status =
			reader->config ? sp_config_set_defaults(global, reader->config) : -ENOMEM;
	}
	if (reader->config && reader->status == 0) {
		sp_config_read_scope(reader, global, reader->root, reader->config);
		sp_config_check_global(reader);
		read_pools(reader);
	}
	sp_config_faults_sort(reader->faults);
	if (reader->status < 0)
		return reader->status;
	if (reader->faults->count > 0 || reader->faults->more)
		return -EINVAL;
	sp_assert(reader->config); /* a source that was no JSON left a fault */
	fill_generations(reader->config);
	*ret_config = reader->config;
	reader->config = NULL;
	return 0;
}

int sp_config_parse(const char *text, size_t len, const char *name, struct sp_config **ret_config,
		    struct sp_config_faults *faults)
{
	struct sp_config_reader reader = {.faults = faults, .resolved = true};
	char *copy = malloc(len + 1);
	int status;

	*faults = (struct sp_config_faults){0};
	if (!copy)
		return -ENOMEM;
	memcpy(copy, text, len);
	copy[len] = '\0';
	sp_config_add_source(&reader, name, copy, len);
	status = sp_config_read(&reader, ret_config);
	sp_config_reader_done(&reader);
	return status;
}

void sp_config_free(struct sp_config *config)
{
	if (!config)
		return;
	for (size_t i = 0; i < config->pool_count; i++)
		sp_config_scope_done(&sp_schema_scopes[SP_SCHEMA_POOL], &config->pools[i]);
	free(config->pools);
	for (size_t i = 0; i < config->api_key_count; i++)
		explicit_bzero(config->api_keys[i], strlen(config->api_keys[i]));
	for (size_t i = 0; i < config->tls_key_count; i++)
		explicit_bzero(config->tls_key[i], strlen(config->tls_key[i]));
	sp_config_scope_done(&sp_schema_scopes[SP_SCHEMA_GLOBAL], config);
	free(config);
}
