/*
 * The log: one write per record, and no text from outside can forge one.
 */
#include "pool/base/log.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int ends[2];

static void open_log(enum sp_log_level level)
{
	cr_assert(pipe(ends) == 0);
	sp_log_init("test", ends[1], level);
}

static const char *read_log(void)
{
	static char text[8192];
	ssize_t got;

	close(ends[1]);
	got = read(ends[0], text, sizeof(text) - 1);
	cr_assert(got >= 0);
	text[got] = '\0';
	close(ends[0]);
	return text;
}

static void no_journal(void)
{
	unsetenv("JOURNAL_STREAM");
}

Test(log, writes_message_and_fields_on_one_line, .init = no_journal)
{
	const char *text;

	open_log(SP_LOG_INFO);
	sp_log(SP_LOG_WARN, "lease expired", "pool=%s", "p");
	text = read_log();
	cr_assert(strstr(text, "Z test: warn: lease expired pool=p\n"), "%s", text);
}

Test(log, leaves_out_what_is_below_the_level, .init = no_journal)
{
	open_log(SP_LOG_WARN);
	sp_log(SP_LOG_INFO, "not this", NULL);
	sp_log_set_level(SP_LOG_DEBUG);
	cr_assert(sp_log_enabled(SP_LOG_DEBUG));
	sp_log(SP_LOG_DEBUG, "but this", NULL);
	cr_assert(strstr(read_log(), "debug: but this\n"));
}

Test(log, speaks_to_the_journal_with_priorities)
{
	setenv("JOURNAL_STREAM", "1:2", 1);
	open_log(SP_LOG_INFO);
	sp_log(SP_LOG_ERROR, "gone", NULL);
	cr_assert(strcmp(read_log(), "<3>gone\n") == 0);
}

Test(log, control_bytes_cannot_begin_a_second_record, .init = no_journal)
{
	const char *text;

	open_log(SP_LOG_INFO);
	sp_log(SP_LOG_INFO, "x", "name=%s", "a\nb\x1b[0m");
	text = read_log();
	cr_assert(strchr(text, '\n') == text + strlen(text) - 1);
	cr_assert(!strchr(text, 0x1b));
}

Test(log, a_long_record_is_cut_at_its_end, .init = no_journal)
{
	char fields[5000];
	const char *text;

	memset(fields, 'x', sizeof(fields) - 1);
	fields[sizeof(fields) - 1] = '\0';
	open_log(SP_LOG_INFO);
	sp_log(SP_LOG_INFO, "long", "%s", fields);
	text = read_log();
	cr_assert(strlen(text) <= 2048 && text[strlen(text) - 1] == '\n');
}

Test(log, quotes_what_comes_from_outside)
{
	char buffer[64];
	char small[16];

	cr_assert(strcmp(sp_log_quote("a\"b\\\n\x01", buffer, sizeof(buffer)),
			 "a\\\"b\\\\\\n\\x01") == 0);
	cr_assert(strcmp(sp_log_quote(NULL, buffer, sizeof(buffer)), "-") == 0);
	cr_assert(strcmp(sp_log_quote("0123456789abcdef", small, sizeof(small)),
			 "012345678\xe2\x80\xa6") == 0);
}

Test(log, levels_have_names)
{
	enum sp_log_level level;

	cr_assert(sp_log_level_parse("debug", &level) == 0 && level == SP_LOG_DEBUG);
	cr_assert(sp_log_level_parse("loud", &level) == -EINVAL);
}

static const char *drained;

static void drain(void)
{
	static char text[1 << 20];
	size_t used = 0;
	struct pollfd more = {.fd = ends[0], .events = POLLIN};

	while (poll(&more, 1, 0) == 1) {
		ssize_t got = read(ends[0], text + used, sizeof(text) - 1 - used);

		cr_assert(got > 0);
		used += (size_t)got;
	}
	text[used] = '\0';
	drained = text;
}

Test(log, waits_for_no_reader_and_counts_what_he_missed, .init = no_journal, .timeout = 10)
{
	unsigned int lost = 0;
	size_t kept = 0;

	open_log(SP_LOG_INFO);
	for (int i = 0; i < 5000; i++)
		sp_log(SP_LOG_INFO, "a line", "number=%d", i);
	drain();
	for (const char *at = drained; (at = strstr(at, "a line")); at++)
		kept++;
	cr_assert(kept > 100 && kept < 5000 && !strstr(drained, "lost"), "%zu", kept);
	sp_log(SP_LOG_INFO, "after it", NULL);
	drain();
	cr_assert(sscanf(strstr(drained, "count="), "count=%u", &lost) == 1);
	cr_assert(kept + lost == 5000, "%zu and %u", kept, lost);
	cr_assert(strstr(drained, "after it"));
	sp_log(SP_LOG_INFO, "once", NULL);
	drain();
	cr_assert(!strstr(drained, "lost"));
}
