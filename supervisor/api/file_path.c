/*
 * Text against text: nothing here knows what exists. Whether a segment is a link is for the kernel
 * to find out, inside the sandbox.
 */
#include "supervisor/api/file_path.h"

#include <errno.h>
#include <string.h>

#define SHOWN_MAX 64 /* of a variable's name in a message */

struct writer {
	char *out;
	size_t size;
	size_t len;
	unsigned int variables;
	bool full;
};

static void put(struct writer *writer, const char *text, size_t len)
{
	if (writer->full || len >= writer->size - writer->len) {
		writer->full = true;
		return;
	}
	memcpy(writer->out + writer->len, text, len);
	writer->len += len;
	writer->out[writer->len] = '\0';
}

static int finish(const struct writer *writer, struct sp_err *err)
{
	if (!writer->full)
		return 0;
	return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -ENAMETOOLONG,
			   "the path is longer than %zu bytes", writer->size - 1);
}

static size_t name_length(const char *text)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
	static const char all[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";

	return strspn(text, letters) > 0 ? strspn(text, all) : 0;
}

static int put_variable(struct writer *writer, const char *name, size_t len,
			sp_variable_fn *variable, void *arg, struct sp_err *err)
{
	const char *value;

	if (writer->variables++ == SP_PATH_VARIABLES_MAX)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -E2BIG,
				   "the path names more than %u variables", SP_PATH_VARIABLES_MAX);
	value = variable(arg, name, len);
	if (!value)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "the path names variable '%.*s', which is not set",
				   (int)SP_MIN(len, (size_t)SHOWN_MAX), name);
	put(writer, value, strlen(value));
	return 0;
}

/* What follows a '$'. Returns how much of it was used, or an error. */
static int64_t expand_dollar(struct writer *writer, const char *text, sp_variable_fn *variable,
			     void *arg, struct sp_err *err)
{
	bool braces = text[0] == '{';
	size_t len = name_length(text + braces);
	int status;

	if (!braces && len == 0) {
		put(writer, "$", 1);
		return 0;
	}
	if (len == 0 || (braces && text[1 + len] != '}'))
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "the path has '${' without a name and '}'");
	status = put_variable(writer, text + braces, len, variable, arg, err);
	return status < 0 ? status : (int64_t)len + (braces ? 2 : 0);
}

int sp_file_path_expand(const char *text, sp_variable_fn *variable, void *arg, char *out,
			size_t size, struct sp_err *err)
{
	struct writer writer = {.out = out, .size = size};

	if (text[0] == '~' && (text[1] == '/' || text[1] == '\0')) {
		int status = put_variable(&writer, "HOME", 4, variable, arg, err);

		if (status < 0)
			return status;
		text++;
	}
	while (*text && !writer.full) {
		size_t plain = strcspn(text, "$");
		int64_t used;

		put(&writer, text, plain);
		text += plain;
		if (*text == '\0')
			break;
		used = expand_dollar(&writer, text + 1, variable, arg, err);
		if (used < 0)
			return (int)used;
		text += 1 + used;
	}
	put(&writer, "", 0); /* so that it ends, whatever it is */
	return finish(&writer, err);
}

static void drop_last(struct writer *writer)
{
	while (writer->len > 0 && writer->out[--writer->len] != '/')
		continue;
	writer->out[writer->len] = '\0';
}

static void put_segments(struct writer *writer, const char *path)
{
	while (*path && !writer->full) {
		size_t len = strcspn(path, "/");

		if (len == 2 && memcmp(path, "..", 2) == 0) {
			drop_last(writer);
		} else if (len > 0 && !(len == 1 && path[0] == '.')) {
			put(writer, "/", 1);
			put(writer, path, len);
		}
		path += len;
		path += strspn(path, "/");
	}
}

int sp_file_path_clean(const char *text, const char *directory, char *out, size_t size,
		       struct sp_err *err)
{
	struct writer writer = {.out = out, .size = size};

	if (text[0] == '\0')
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL, "the path is empty");
	put(&writer, "", 0);
	if (text[0] != '/')
		put_segments(&writer, directory);
	put_segments(&writer, text);
	if (writer.len == 0)
		put(&writer, "/", 1);
	return finish(&writer, err);
}
