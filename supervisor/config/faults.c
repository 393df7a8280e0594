/*
 * The list of faults: each with a place, at most SP_CONFIG_FAULTS_MAX of them, sorted by place. Out
 * of memory for a fault is a fault too: `more` is set, and the configuration stays refused.
 *
 * Texts quote files that anyone may have written (config check runs on drafts), so control bytes
 * are shown, never sent to the terminal.
 */
#include "supervisor/config/reader.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_MAX   512
#define PATH_MAX_LEN  256
#define KEY_SHOWN_MAX 80

/* A copy with control bytes written as \xNN. NULL: out of memory. */
static char *printable(const char *text)
{
	static const char hex[] = "0123456789abcdef";
	char *copy = malloc(strlen(text) * 4 + 1);
	char *at = copy;

	if (!copy)
		return NULL;
	for (; *text != '\0'; text++) {
		unsigned char byte = (unsigned char)*text;

		if (byte >= ' ' && byte != 0x7f) {
			*at++ = (char)byte;
			continue;
		}
		*at++ = '\\';
		*at++ = 'x';
		*at++ = hex[byte >> 4];
		*at++ = hex[byte & 15];
	}
	*at = '\0';
	return copy;
}

static void append(struct sp_config_faults *faults, const char *file, int line, const char *message)
{
	struct sp_config_fault fault = {.line = line};
	struct sp_config_fault *grown;

	if (faults->count == SP_CONFIG_FAULTS_MAX) {
		faults->more = true;
		return;
	}
	grown = reallocarray(faults->items, faults->count + 1, sizeof(*grown));
	if (!grown) {
		faults->more = true;
		return;
	}
	faults->items = grown;
	fault.file = printable(file);
	fault.message = printable(message);
	if (!fault.file || !fault.message) {
		free(fault.file);
		free(fault.message);
		faults->more = true;
		return;
	}
	faults->items[faults->count++] = fault;
}

void sp_config_fault_in(struct sp_config_reader *reader, const char *file, int line,
			const char *format, ...)
{
	char message[MESSAGE_MAX];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	append(reader->faults, file, line, message);
}

/* "pools.default.layers[2]"; "" at the top. */
static void path_text(const struct sp_json_path *path, char text[PATH_MAX_LEN])
{
	size_t used = 0;

	text[0] = '\0';
	for (size_t i = 0; i < path->depth && used < PATH_MAX_LEN; i++) {
		const struct sp_json_step *step = &path->steps[i];

		if (step->key)
			used += (size_t)snprintf(text + used, PATH_MAX_LEN - used, "%s%.*s",
						 i > 0 ? "." : "", KEY_SHOWN_MAX, step->key);
		else
			used += (size_t)snprintf(text + used, PATH_MAX_LEN - used, "[%zu]",
						 step->index);
	}
}

/* The last source that has it wins; what no source has is placed where its parent stands. */
static const char *place(const struct sp_config_reader *reader, int *ret_line)
{
	struct sp_json_path path = reader->path;

	for (;; path.depth--) {
		for (size_t i = reader->source_count; i > 0; i--) {
			const struct sp_config_source *source = &reader->sources[i - 1];

			*ret_line = sp_jsonc_line(source->text, source->len, &path);
			if (*ret_line > 0 && path.depth > 0)
				return source->name;
		}
		if (path.depth == 0)
			break;
	}
	*ret_line = 0;
	return reader->sources[0].name;
}

static void fault_here(struct sp_config_reader *reader, const char *message)
{
	char path[PATH_MAX_LEN];
	char text[MESSAGE_MAX + PATH_MAX_LEN];
	int line;
	const char *file = place(reader, &line);

	path_text(&reader->path, path);
	(void)snprintf(text, sizeof(text), "%s%s%s", path, *path != '\0' ? ": " : "", message);
	append(reader->faults, file, line, text);
}

void sp_config_fault(struct sp_config_reader *reader, const char *format, ...)
{
	char message[MESSAGE_MAX];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	fault_here(reader, message);
}

void sp_config_fault_key(struct sp_config_reader *reader, const char *key, const char *format, ...)
{
	char message[MESSAGE_MAX];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	sp_config_enter(reader, key);
	fault_here(reader, message);
	sp_config_leave(reader);
}

static int compare_places(const void *a, const void *b)
{
	const struct sp_config_fault *x = a;
	const struct sp_config_fault *y = b;
	int order = strcmp(x->file, y->file);

	if (order == 0)
		order = x->line - y->line;
	return order != 0 ? order : strcmp(x->message, y->message);
}

void sp_config_faults_sort(struct sp_config_faults *faults)
{
	if (faults->count > 1)
		qsort(faults->items, faults->count, sizeof(*faults->items), compare_places);
}

void sp_config_faults_done(struct sp_config_faults *faults)
{
	for (size_t i = 0; i < faults->count; i++) {
		free(faults->items[i].file);
		free(faults->items[i].message);
	}
	free(faults->items);
	*faults = (struct sp_config_faults){0};
}

int sp_config_faults_print(const struct sp_config_faults *faults, struct sp_buf *out)
{
	int status = 0;

	for (size_t i = 0; i < faults->count && status == 0; i++) {
		const struct sp_config_fault *fault = &faults->items[i];

		if (fault->line > 0)
			status = sp_buf_printf(out, "%s:%d: %s\n", fault->file, fault->line,
					       fault->message);
		else
			status = sp_buf_printf(out, "%s: %s\n", fault->file, fault->message);
	}
	if (status == 0 && faults->more)
		status = sp_buf_printf(out, "more faults were found than are listed here\n");
	return status;
}
