/*
 * Comments out without moving anything; lines of nodes; repeated keys.
 */
#include "supervisor/config/jsonc.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void strips_to(const char *text, const char *wanted)
{
	char *copy = strdup(text);
	const char *message;
	int line;

	cr_assert(sp_jsonc_strip(copy, strlen(copy), &line, &message) == 0);
	cr_assert_str_eq(copy, wanted);
	free(copy);
}

static void strip_fails(const char *text, size_t len, int wanted_line, const char *words)
{
	char *copy = malloc(len + 1);
	const char *message;
	int line;

	memcpy(copy, text, len);
	cr_assert(sp_jsonc_strip(copy, len, &line, &message) == -EINVAL);
	cr_assert(line == wanted_line, "line %d", line);
	cr_assert_not_null(strstr(message, words));
	free(copy);
}

Test(config_jsonc, comments_become_blanks_in_place)
{
	strips_to("{} // x", "{}     ");
	strips_to("{/*x*/}", "{     }");
	strips_to("/*a\nb*/{}", "   \n   {}");
	strips_to("// a\n{} // b\n", "    \n{}     \n");
	strips_to("/**/{}", "    {}");
	strips_to("/* // */{}", "        {}");
	strips_to("// /* \n{}", "      \n{}");
	strips_to("/***/{}", "     {}");
	strips_to("", "");
}

Test(config_jsonc, strings_are_left_alone)
{
	strips_to("{\"a\": \"unix:///x\"}", "{\"a\": \"unix:///x\"}");
	strips_to("\"/* no */\"", "\"/* no */\"");
	strips_to("\"a\\\"//b\" //c", "\"a\\\"//b\"    ");
	strips_to("\"a\\\\\"//c", "\"a\\\\\"   ");
}

Test(config_jsonc, a_string_that_does_not_end_ends_with_its_line)
{
	strips_to("\"abc // d\n// e\n", "\"abc // d\n    \n");
	strips_to("\"abc\\\n// e", "\"abc\\\n    ");
	strips_to("\"", "\"");
	strips_to("\"\\", "\"\\");
}

Test(config_jsonc, a_single_slash_is_jansson_s_business)
{
	strips_to("{/}", "{/}");
	strips_to("/", "/");
}

Test(config_jsonc, a_comment_that_does_not_end_is_named_with_its_first_line)
{
	strip_fails("{\n\n /* a\n b", 9, 3, "does not end");
	strip_fails("/*/", 3, 1, "does not end");
	strip_fails("/*", 2, 1, "does not end");
}

Test(config_jsonc, a_nul_byte_is_named_with_its_line)
{
	strip_fails("{\n\0}", 4, 2, "NUL");
}

static int line_of(const char *text, const struct sp_json_path *path)
{
	/* a copy without NUL: reading past the end is seen by the sanitizer */
	char *copy = malloc(strlen(text));
	int line;

	memcpy(copy, text, strlen(text));
	line = sp_jsonc_line(copy, strlen(text), path);
	free(copy);
	return line;
}

static const char sample[] = "\n{\n"
			     "  \"a\": 1, \"b\": {\n"
			     "    \"c\": [ 1,\n"
			     "      {\"x\": 2},\n"
			     "      \"],{}\"\n"
			     "      , true ],\n"
			     "    \"d\\u0065\": null\n"
			     "  },\n"
			     "  \"e\": []\n"
			     "}\n";

Test(config_jsonc, lines_of_members_and_elements)
{
	cr_assert(line_of(sample, &(struct sp_json_path){0}) == 2);
	cr_assert(line_of(sample, &(struct sp_json_path){1, {{"a", 0}}}) == 3);
	cr_assert(line_of(sample, &(struct sp_json_path){1, {{"b", 0}}}) == 3);
	cr_assert(line_of(sample, &(struct sp_json_path){2, {{"b", 0}, {"c", 0}}}) == 4);
	cr_assert(line_of(sample, &(struct sp_json_path){3, {{"b", 0}, {"c", 0}, {NULL, 0}}}) == 4);
	cr_assert(line_of(sample, &(struct sp_json_path){3, {{"b", 0}, {"c", 0}, {NULL, 1}}}) == 5);
	cr_assert(line_of(sample, &(struct sp_json_path){
					  4, {{"b", 0}, {"c", 0}, {NULL, 1}, {"x", 0}}}) == 5);
	cr_assert(line_of(sample, &(struct sp_json_path){3, {{"b", 0}, {"c", 0}, {NULL, 2}}}) == 6);
	cr_assert(line_of(sample, &(struct sp_json_path){3, {{"b", 0}, {"c", 0}, {NULL, 3}}}) == 7);
	cr_assert(line_of(sample, &(struct sp_json_path){2, {{"b", 0}, {"de", 0}}}) == 8);
	cr_assert(line_of(sample, &(struct sp_json_path){1, {{"e", 0}}}) == 10);
}

Test(config_jsonc, what_is_not_there_has_no_line)
{
	cr_assert(line_of(sample, &(struct sp_json_path){1, {{"z", 0}}}) == 0);
	cr_assert(line_of(sample, &(struct sp_json_path){1, {{NULL, 0}}}) == 0);
	cr_assert(line_of(sample, &(struct sp_json_path){2, {{"a", 0}, {"b", 0}}}) == 0);
	cr_assert(line_of(sample, &(struct sp_json_path){3, {{"b", 0}, {"c", 0}, {NULL, 4}}}) == 0);
	cr_assert(line_of(sample, &(struct sp_json_path){2, {{"e", 0}, {NULL, 0}}}) == 0);
	cr_assert(line_of("", &(struct sp_json_path){0}) == 0);
}

struct seen {
	char text[256];
};

static void note(void *arg, const char *key, size_t key_len, int line, int first_line)
{
	struct seen *seen = arg;
	size_t used = strlen(seen->text);

	snprintf(seen->text + used, sizeof(seen->text) - used, "%.*s:%d:%d ", (int)key_len, key,
		 line, first_line);
}

static void repeats_are(const char *text, int count, const char *wanted)
{
	struct seen seen = {""};

	cr_assert(sp_jsonc_repeats(text, strlen(text), note, &seen) == count);
	cr_assert_str_eq(seen.text, wanted);
}

Test(config_jsonc, every_repeated_key_is_found)
{
	repeats_are("{}", 0, "");
	repeats_are("{\"a\":1,\"b\":2}", 0, "");
	repeats_are("{\"a\":1,\n\"a\":2}", 1, "a:2:1 ");
	repeats_are("{\"a\":1,\n\"b\":1,\n\"a\":2,\n\"a\":3}", 2, "a:3:1 a:4:1 ");
	repeats_are("{\"a\":{\"b\":1,\n\"b\":2},\n\"a\":[{\"c\":1,\n\"c\":2}]}", 3,
		    "b:2:1 c:4:3 a:3:1 ");
	repeats_are("[{\"a\":1},{\"a\":1}]", 0, "");
	repeats_are("{\"a\":1,\"aa\":2,\"aaa\":3}", 0, "");
}
