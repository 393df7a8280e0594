/* Frames of an interpreter: what is one, what is in it, what is none. */
#include "supervisor/api/context_frame.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int read_frame(const char *data, size_t len, struct sp_context_frame *ret)
{
	memset(ret, 0, sizeof(*ret));
	return sp_context_frame_read(data, len, ret);
}

Test(context_frame, is_read_when_it_is_all_there)
{
	static const char data[] = "o\3\0\0\0abcd";
	struct sp_context_frame frame;

	for (size_t len = 0; len < 8; len++)
		cr_assert(read_frame(data, len, &frame) == 0, "%zu", len);
	for (size_t len = 8; len <= 9; len++) {
		cr_assert(read_frame(data, len, &frame) == 1);
		cr_assert(frame.kind == 'o' && frame.len == 3 && frame.size == 8);
		cr_assert(memcmp(frame.data, "abc", 3) == 0);
	}
}

Test(context_frame, may_be_empty)
{
	struct sp_context_frame frame;

	cr_assert(read_frame("d\0\0\0\0", 5, &frame) == 1);
	cr_assert(frame.kind == 'd' && frame.len == 0 && frame.size == 5);
}

Test(context_frame, of_no_known_kind_is_none)
{
	struct sp_context_frame frame;

	for (int kind = 0; kind < 256; kind++) {
		char data[5] = {(char)kind};
		bool known = kind != 0 && strchr(SP_CONTEXT_FRAME_KINDS, kind);

		cr_assert(read_frame(data, 5, &frame) == (known ? 1 : -EPROTO), "%d", kind);
	}
}

Test(context_frame, up_to_its_longest)
{
	const size_t size = SP_CONTEXT_FRAME_HEAD + SP_CONTEXT_FRAME_MAX;
	char *data = calloc(1, size);
	struct sp_context_frame frame;

	cr_assert_not_null(data);
	data[0] = 'r';
	for (unsigned int i = 0; i < 4; i++)
		data[1 + i] = (char)(SP_CONTEXT_FRAME_MAX >> (8 * i));
	cr_assert(read_frame(data, size, &frame) == 1 && frame.size == size);
	cr_assert(read_frame(data, size - 1, &frame) == 0);
	data[1]++; /* its lowest byte is 0 */
	cr_assert(read_frame(data, 5, &frame) == -EPROTO, "known from its head alone");
	free(data);
}

Test(context_frame, strings_are_those_with_an_end)
{
	const char *strings[4];

	cr_assert(sp_context_strings("a\0\0bc\0d", 7, strings, 4) == 3);
	cr_assert_str_eq(strings[0], "a");
	cr_assert_str_eq(strings[1], "");
	cr_assert_str_eq(strings[2], "bc");
	cr_assert(sp_context_strings("a\0b\0c\0", 6, strings, 2) == 2,
		  "no more than there is room");
	cr_assert(sp_context_strings("", 0, strings, 4) == 0);
	cr_assert(sp_context_strings("a", 1, strings, 4) == 0);
}

static size_t data_of(const char *text, size_t len, struct sp_event_datum *items)
{
	return sp_context_data(text, len, items);
}

Test(context_frame, representations_are_pairs)
{
	static const char text[] = "text/plain\0004\0image/svg+xml\0<svg/>\0text/html";
	struct sp_event_datum items[SP_CONTEXT_DATA_MAX];

	cr_assert(data_of(text, sizeof(text) - 1, items) == 2, "the last has no text");
	cr_assert_str_eq(items[0].type, "text/plain");
	cr_assert_str_eq(items[0].data, "4");
	cr_assert(items[0].len == 1);
	cr_assert_str_eq(items[1].type, "image/svg+xml");
	cr_assert(items[1].len == strlen("<svg/>"));
}

Test(context_frame, a_type_that_could_be_no_key_is_left_out)
{
	static const char text[] = "\0empty\0TEXT\0upper\0a\"b\0quote\0a b\0blank\0a/b\0good\0";
	struct sp_event_datum items[SP_CONTEXT_DATA_MAX];

	cr_assert(data_of(text, sizeof(text) - 1, items) == 1);
	cr_assert_str_eq(items[0].data, "good");
}

Test(context_frame, representations_up_to_their_number)
{
	char text[(SP_CONTEXT_DATA_MAX + 1) * 4];
	struct sp_event_datum items[SP_CONTEXT_DATA_MAX];

	for (size_t i = 0; i <= SP_CONTEXT_DATA_MAX; i++)
		memcpy(text + 4 * i, "a\0b", 4);
	cr_assert(data_of(text, SP_CONTEXT_DATA_MAX * 4, items) == SP_CONTEXT_DATA_MAX);
	cr_assert(data_of(text, sizeof(text), items) == SP_CONTEXT_DATA_MAX);
}
