/*
 * CRs are held back as a number: they are part of the line if anything but its end follows.
 */
#include "supervisor/api/line_window.h"

#include <string.h>

void sp_line_window_init(struct sp_line_window *window, uint64_t offset, uint64_t limit,
			 void (*out)(void *arg, const char *data, size_t len), void *arg)
{
	sp_assert(offset >= 1 && limit >= 1);
	*window = (struct sp_line_window){
		.skip = offset - 1,
		.left = limit,
		.out = out,
		.arg = arg,
	};
}

/* The LF that joins it to the one before is owed until the line is known to exist. */
static void begin_line(struct sp_line_window *window)
{
	if (window->in_line)
		return;
	if (window->begun)
		window->out(window->arg, "\n", 1);
	window->in_line = true;
	window->begun = true;
}

static void end_line(struct sp_line_window *window)
{
	window->carriage = 0;
	if (window->skip > 0) {
		window->skip--;
		return;
	}
	begin_line(window);
	window->in_line = false;
	window->left--;
}

static void put_returns(struct sp_line_window *window, uint64_t count)
{
	static const char returns[] = "\r\r\r\r\r\r\r\r\r\r\r\r\r\r\r\r";

	window->carriage -= count;
	while (count > 0) {
		size_t some = (size_t)SP_MIN(count, (uint64_t)sizeof(returns) - 1);

		window->out(window->arg, returns, some);
		count -= some;
	}
}

static void put(struct sp_line_window *window, const char *data, size_t len)
{
	size_t kept = len;

	if (window->skip > 0 || len == 0)
		return;
	while (kept > 0 && data[kept - 1] == '\r')
		kept--;
	begin_line(window);
	if (kept > 0) {
		put_returns(window, window->carriage);
		window->out(window->arg, data, kept);
	}
	window->carriage += len - kept;
	if (window->carriage > SP_LINE_RETURNS_MAX)
		put_returns(window, window->carriage - SP_LINE_RETURNS_MAX);
}

bool sp_line_window_feed(struct sp_line_window *window, const char *data, size_t len)
{
	while (len > 0 && window->left > 0) {
		const char *feed = memchr(data, '\n', len);
		size_t line_len = feed ? (size_t)(feed - data) : len;

		put(window, data, line_len);
		if (!feed)
			break;
		end_line(window);
		data += line_len + 1;
		len -= line_len + 1;
	}
	return window->left > 0;
}
