/* libs: sp_api */
/*
 * The guard on lists of headers: lines of the input, name and value parted by the first colon. What
 * it lets pass must be unambiguous by a second, slower reading; paths that it lets pass go on to
 * the route table, whose names must hold what they promise.
 */
#include "supervisor/api/guard.h"

#include "supervisor/api/api_private.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define LINES_MAX 80

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct line {
	const char *name;
	size_t name_len;
	const char *value;
};

static size_t count_named(const struct line *lines, size_t count, const char *name)
{
	size_t found = 0;

	for (size_t i = 0; i < count; i++)
		if (lines[i].name_len == strlen(name) &&
		    strncasecmp(lines[i].name, name, lines[i].name_len) == 0)
			found++;
	return found;
}

static void check_accepted(const struct sp_guard *guard, const struct line *lines, size_t count)
{
	size_t lengths = count_named(lines, count, "content-length");
	size_t codings = count_named(lines, count, "transfer-encoding");

	if (count > SP_API_HEADERS_MAX || lengths > 1 || codings > 1 || lengths + codings > 1)
		abort();
	if (count_named(lines, count, "host") != 1)
		abort();
	if (guard->chunked != (codings == 1) || guard->body_length > SP_API_STREAM_BODY_MAX)
		abort();
	for (size_t i = 0; i < count; i++)
		if (lines[i].name_len == 0 || memchr(lines[i].name, ' ', lines[i].name_len))
			abort();
}

static void check_path(const char *path)
{
	struct sp_route_match match;
	enum sp_route_outcome outcome =
		sp_route_find(sp_routes, sp_route_count, "POST", path, &match);

	if (outcome != SP_ROUTE_FOUND || !match.name[0])
		return;
	if (!sp_pool_name_valid(match.name) && !sp_sandbox_id_valid(match.name))
		abort();
	if (!strstr(path, match.name))
		abort();
}

static void judge(char *path, const struct line *lines, size_t count)
{
	struct sp_guard guard = {0};
	struct sp_guard_request request = {
		.method = "POST", .path = path, .uri_length = strlen(path), .version = "HTTP/1.1"};
	struct sp_err err = {0};
	int status = 0;

	request.bytes = strlen("POST  HTTP/1.1\r\n\r\n") + request.uri_length;
	for (size_t i = 0; i < count && status == 0; i++) {
		status = sp_guard_header(&guard, lines[i].name, lines[i].name_len, lines[i].value,
					 strlen(lines[i].value), &err);
		request.bytes += lines[i].name_len + strlen(lines[i].value) + 4;
	}
	if (status == 0)
		status = sp_guard_request(&guard, &request, &err);
	if (status < 0) {
		if (!err.message[0] || err.code == SP_CODE_NONE)
			abort();
		return;
	}
	check_accepted(&guard, lines, count);
	check_path(path);
	/* One byte more or less than the canonical spelling is never accepted. */
	request.bytes++;
	if (sp_guard_request(&guard, &request, NULL) == 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct line lines[LINES_MAX];
	char *text = malloc(size + 1);
	size_t count = 0;
	char *rest = text;
	char *path;

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	path = strsep(&rest, "\n");
	while (rest && count < LINES_MAX) {
		char *value = strsep(&rest, "\n");

		lines[count].name = strsep(&value, ":");
		lines[count].name_len = strlen(lines[count].name);
		lines[count].value = value ? value : "";
		count++;
	}
	judge(path, lines, count);
	free(text);
	return 0;
}
