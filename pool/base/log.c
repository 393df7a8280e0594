/*
 * The log writer. A record that does not fit its buffer is cut, never split over two writes, so
 * that records of several processes on one descriptor do not mix (PIPE_BUF, pipe(7)).
 *
 * A reader that has stopped (a held terminal, a pager, a stuck collector) must not stop the
 * service: what finds no room is counted instead, and the count written when there is room again.
 * O_NONBLOCK is not ours to set, the descriptor is shared with whoever started us.
 */
#include "pool/base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RECORD_MAX 2048

static struct {
	const char *name;
	int fd;
	enum sp_log_level level;
	bool journal;
	unsigned int lost;
} state = {.name = "sandpool", .fd = STDERR_FILENO, .level = SP_LOG_INFO};

static const char *const level_names[] = {"error", "warn", "info", "debug"};
/* sd-daemon(3): <3> err, <4> warning, <6> info, <7> debug */
static const char level_priorities[] = {'3', '4', '6', '7'};

void sp_log_init(const char *name, int fd, enum sp_log_level level)
{
	state.name = name;
	state.fd = fd;
	state.level = level;
	state.journal = getenv("JOURNAL_STREAM") != NULL;
}

void sp_log_set_level(enum sp_log_level level)
{
	state.level = level;
}

bool sp_log_enabled(enum sp_log_level level)
{
	return level <= state.level;
}

static size_t prefix(char *record, size_t size, enum sp_log_level level)
{
	struct timespec now = {0};
	struct tm parts;
	size_t used;
	int more;

	if (state.journal) {
		more = snprintf(record, size, "<%c>", level_priorities[level]);
		return more > 0 ? (size_t)more : 0;
	}
	(void)clock_gettime(CLOCK_REALTIME, &now);
	if (!gmtime_r(&now.tv_sec, &parts))
		return 0;
	used = strftime(record, size, "%Y-%m-%dT%H:%M:%S", &parts);
	more = snprintf(record + used, size - used, ".%03ldZ %s: %s: ", now.tv_nsec / SP_NS_PER_MS,
			state.name, level_names[level]);
	return used + (more > 0 ? (size_t)more : 0);
}

static bool has_room(void)
{
	struct pollfd out = {.fd = state.fd, .events = POLLOUT};

	return poll(&out, 1, 0) != 0;
}

static void put(const char *record, size_t len)
{
	if (!has_room() || write(state.fd, record, len) < 0)
		state.lost++;
}

static void report_lost(void)
{
	char record[256];
	size_t used = prefix(record, sizeof(record), SP_LOG_WARN);
	unsigned int lost = state.lost;
	int more = snprintf(record + used, sizeof(record) - used,
			    "log records lost, nobody read them count=%u\n", lost);

	state.lost = 0;
	put(record, used + (more > 0 ? (size_t)more : 0));
	if (state.lost > 0)
		state.lost = lost; /* later */
}

void sp_log(enum sp_log_level level, const char *message, const char *fields, ...)
{
	char record[RECORD_MAX];
	size_t used;
	va_list args;
	int more;

	if (!sp_log_enabled(level))
		return;
	used = prefix(record, sizeof(record), level);
	more = snprintf(record + used, sizeof(record) - used, "%s", message);
	used = SP_MIN(used + (more > 0 ? (size_t)more : 0), sizeof(record) - 2);
	if (fields && fields[0] != '\0') {
		record[used++] = ' ';
		va_start(args, fields);
		more = vsnprintf(record + used, sizeof(record) - used, fields, args);
		va_end(args);
		used = SP_MIN(used + (more > 0 ? (size_t)more : 0), sizeof(record) - 2);
	}
	/* Whatever slipped through unquoted must not be able to start a second record. */
	for (size_t i = 0; i < used; i++)
		if ((unsigned char)record[i] < ' ' || record[i] == 0x7f)
			record[i] = '?';
	record[used++] = '\n';
	if (state.lost > 0)
		report_lost();
	put(record, used);
}

int sp_log_level_parse(const char *text, enum sp_log_level *ret_level)
{
	for (size_t i = 0; i < SP_ARRAY_SIZE(level_names); i++) {
		if (strcmp(text, level_names[i]) == 0) {
			*ret_level = (enum sp_log_level)i;
			return 0;
		}
	}
	return -EINVAL;
}

const char *sp_log_quote(const char *text, char *buffer, size_t size)
{
	static const char cut[] = "\xe2\x80\xa6"; /* … */
	size_t used = 0;

	sp_assert(size >= 16);
	if (!text)
		text = "-";
	for (; *text != '\0'; text++) {
		unsigned char byte = (unsigned char)*text;

		if (used + sizeof(cut) + 4 > size) {
			memcpy(buffer + used, cut, sizeof(cut) - 1);
			used += sizeof(cut) - 1;
			break;
		}
		if (byte == '\n') {
			buffer[used++] = '\\';
			buffer[used++] = 'n';
		} else if (byte == '"' || byte == '\\') {
			buffer[used++] = '\\';
			buffer[used++] = (char)byte;
		} else if (byte < ' ' || byte == 0x7f) {
			used += (size_t)snprintf(buffer + used, size - used, "\\x%02x", byte);
		} else {
			buffer[used++] = (char)byte;
		}
	}
	buffer[used] = '\0';
	return buffer;
}
