/*
 * A configuration being read: its sources, where in them the reader is, and the faults so far.
 * Private to supervisor/config.
 */
#ifndef SP_CONFIG_READER_H
#define SP_CONFIG_READER_H

#include "supervisor/config/jsonc.h"
#include "supervisor/config/schema.h"

#include <jansson.h>

struct sp_config_source {
	char *name; /* path of the file */
	char *text; /* comments blanked out */
	size_t len;
};

struct sp_config_reader {
	struct sp_config *config;
	struct sp_config_faults *faults;
	struct sp_config_source sources[1 + SP_CONFIG_DROPINS_MAX]; /* later ones win */
	size_t source_count;
	json_t *root;                   /* all sources merged */
	struct sp_json_path path;       /* where the reader is */
	uint64_t bad[SP_SCHEMA_SCOPES]; /* keys of the current object that had a fault */
	bool unparsed;                  /* a source was no JSON: values are not looked at */
	bool resolved;                  /* the text was written by sp_config_dump() */
	bool trusted; /* refuse files that anyone but root (or the user) could have written */
	bool with_secrets;
	int status; /* -ENOMEM, or the errno of what could not be read; 0 */
};

void sp_config_reader_done(struct sp_config_reader *reader);
/* json_loadb() that tells "out of memory" from "not JSON". 0, -EINVAL (error is filled), -ENOMEM.
 */
int sp_config_parse_json(const char *text, size_t len, size_t flags, json_t **ret_json,
			 json_error_t *error);
/* Strip, parse and merge one more source; takes text. */
void sp_config_add_source(struct sp_config_reader *reader, const char *name, char *text,
			  size_t len);
/* Everything after the sources are there: defaults, values, checks. 0, -EINVAL, -ENOMEM, … */
int sp_config_read(struct sp_config_reader *reader, struct sp_config **ret_config);

/* Where the reader is. */
void sp_config_enter(struct sp_config_reader *reader, const char *key);
void sp_config_enter_index(struct sp_config_reader *reader, size_t index);
void sp_config_leave(struct sp_config_reader *reader);

/* A fault of what the reader is at: finds file and line, puts the key path before the message. */
void sp_config_fault(struct sp_config_reader *reader, const char *format, ...) SP_PRINTF(2, 3);
/* A fault of a member of it. */
void sp_config_fault_key(struct sp_config_reader *reader, const char *key, const char *format, ...)
	SP_PRINTF(3, 4);
/* A fault at a place of its own; line 0 = the whole file. */
void sp_config_fault_in(struct sp_config_reader *reader, const char *file, int line,
			const char *format, ...) SP_PRINTF(4, 5);
void sp_config_faults_sort(struct sp_config_faults *faults);

/* Give every key of the scope its default. 0, -ENOMEM. */
int sp_config_set_defaults(const struct sp_schema_scope *scope, void *base);
/* Read one JSON object into base. */
void sp_config_read_scope(struct sp_config_reader *reader, const struct sp_schema_scope *scope,
			  json_t *object, void *base);
/* Had this key of the current object a fault? */
bool sp_config_key_bad(const struct sp_config_reader *reader, enum sp_schema_scope_kind kind,
		       const char *key);
void sp_config_scope_done(const struct sp_schema_scope *scope, void *base);

/* Checks across keys (check.c): once for a pool after its values, once for the whole.
 * faults_before: number of faults when the pool was begun. */
void sp_config_check_pool(struct sp_config_reader *reader, struct sp_config_pool *pool,
			  size_t faults_before);
void sp_config_check_global(struct sp_config_reader *reader);

/* Files (load.c). Contents of a regular file of at most max bytes, followed by a NUL. Reports the
 * fault itself and returns its errno. */
int sp_config_read_file(struct sp_config_reader *reader, const char *path, size_t max, bool secret,
			char **ret_text, size_t *ret_len);
/* FNV-1a. */
uint64_t sp_config_hash(uint64_t hash, const void *data, size_t len);
#define SP_CONFIG_HASH_START UINT64_C(0xcbf29ce484222325)

/* One value as JSON (dump.c). 0, -ENOMEM, -E2BIG. */
int sp_config_write_value(const struct sp_schema_key *key, const void *base, bool with_secrets,
			  struct sp_buf *out);

/* sp_config_load() with every switch. */
int sp_config_load_as(const char *path, bool with_secrets, bool trusted,
		      struct sp_config **ret_config, struct sp_config_faults *faults);

#endif
