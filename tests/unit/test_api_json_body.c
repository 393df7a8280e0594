/*
 * Request bodies: what is a member, of which type, in which range, and what the message says.
 */
#include "supervisor/api/json_body.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static json_t *parse(const char *text)
{
	json_t *root = NULL;

	cr_assert(sp_body_parse(text, strlen(text), &root, NULL) == 0, "%s", text);
	return root;
}

/* Read {"d": …} as a duration of 1 ms … `max`. */
static int read_duration(const char *text, int64_t max, int64_t *ret_ms)
{
	const struct sp_member members[] = {{"d", SP_MEMBER_DURATION, ret_ms, 1, max}};
	struct sp_err err = {0};
	json_t *root = NULL;
	int status = sp_body_parse(text, strlen(text), &root, &err);

	if (status == 0)
		status = sp_body_read(root, "", members, 1, &err);
	if (status < 0)
		cr_assert(err.code == SP_CODE_INVALID_ARGUMENT, "%s", err.message);
	json_decref(root);
	return status;
}

Test(api_json_body, empty_body_is_the_empty_object)
{
	json_t *root = parse("");

	cr_assert(json_object_size(root) == 0);
	json_decref(root);
}

Test(api_json_body, only_objects_without_surprises_are_bodies)
{
	static const char *const bad[] = {"[]",
					  "\"a\"",
					  "1",
					  "null",
					  "{",
					  "{}x",
					  "{\"a\":1,\"a\":2}",
					  "{\"a\":\"\\u0000\"}",
					  "{\"a\":\"\xff\"}",
					  "{\"a\":18446744073709551616}",
					  "{\"a\":1e999}",
					  "{'a':1}",
					  "{\"a\":01}",
					  " "};

	for (size_t i = 0; i < SP_ARRAY_SIZE(bad); i++) {
		struct sp_err err = {0};
		json_t *root = NULL;

		cr_assert(sp_body_parse(bad[i], strlen(bad[i]), &root, &err) == -EINVAL, "%s",
			  bad[i]);
		cr_assert(err.code == SP_CODE_INVALID_ARGUMENT && !root);
	}
}

Test(api_json_body, nesting_has_an_end)
{
	static char deep[200000];
	json_t *root = NULL;

	memset(deep, '[', sizeof(deep));
	memcpy(deep, "{\"a\":", 5);
	cr_assert(sp_body_parse(deep, sizeof(deep), &root, NULL) == -EINVAL);
}

Test(api_json_body, unknown_members_are_named)
{
	const char *value = NULL;
	const struct sp_member members[] = {{"policy", SP_MEMBER_TEXT, &value, 0, 0}};
	struct sp_err err = {0};
	json_t *root = parse("{\"policy\": \"wait\", \"polcy\": 1}");

	cr_assert(sp_body_read(root, "binds[3].", members, 1, &err) == -EINVAL);
	cr_assert(strcmp(err.message, "unknown member 'binds[3].polcy'") == 0, "%s", err.message);
	json_decref(root);
}

Test(api_json_body, absent_members_leave_the_default)
{
	int64_t number = 7;
	bool flag = true;
	const struct sp_member members[] = {{"n", SP_MEMBER_INTEGER, &number, 0, 9},
					    {"b", SP_MEMBER_BOOLEAN, &flag, 0, 0}};
	json_t *root = parse("{}");

	cr_assert(sp_body_read(root, "", members, 2, NULL) == 0);
	cr_assert(number == 7 && flag);
	json_decref(root);
}

Test(api_json_body, explicit_false_and_zero_are_not_absent)
{
	int64_t number = 7;
	bool flag = true;
	const struct sp_member members[] = {{"n", SP_MEMBER_INTEGER, &number, 0, 9},
					    {"b", SP_MEMBER_BOOLEAN, &flag, 0, 0}};
	json_t *root = parse("{\"n\": 0, \"b\": false}");

	cr_assert(sp_body_read(root, "", members, 2, NULL) == 0);
	cr_assert(number == 0 && !flag);
	json_decref(root);
}

Test(api_json_body, wrong_types_are_errors_and_null_is_one)
{
	static const char *const values[] = {"null", "1", "1.5", "true", "\"x\"", "[]", "{}"};

	static const struct {
		enum sp_member_type type;
		const char *legal; /* indexes into values */
	} cases[] = {
		{SP_MEMBER_TEXT, "4"},  {SP_MEMBER_BOOLEAN, "3"}, {SP_MEMBER_INTEGER, "1"},
		{SP_MEMBER_ARRAY, "5"}, {SP_MEMBER_OBJECT, "6"},  {SP_MEMBER_DURATION, "12"},
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++)
		for (size_t j = 0; j < SP_ARRAY_SIZE(values); j++) {
			int64_t place[2] = {0};
			const struct sp_member member = {"m", cases[i].type, place, 0, 1000000};
			char text[64];
			json_t *root;

			(void)snprintf(text, sizeof(text), "{\"m\": %s}", values[j]);
			root = parse(text);
			cr_assert((sp_body_read(root, "", &member, 1, NULL) == 0) ==
					  (strchr(cases[i].legal, '0' + (int)j) != NULL),
				  "type %d: %s", cases[i].type, text);
			json_decref(root);
		}
}

Test(api_json_body, integers_are_taken_up_to_their_limits)
{
	int64_t number = -1;
	const struct sp_member member = {"n", SP_MEMBER_INTEGER, &number, 1, 10};

	static const struct {
		const char *text;
		int status;
	} cases[] = {{"{\"n\":0}", -EINVAL},
		     {"{\"n\":1}", 0},
		     {"{\"n\":10}", 0},
		     {"{\"n\":11}", -EINVAL}};

	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++) {
		json_t *root = parse(cases[i].text);

		cr_assert(sp_body_read(root, "", &member, 1, NULL) == cases[i].status, "%s",
			  cases[i].text);
		json_decref(root);
	}
}

Test(api_json_body, durations_in_every_spelling)
{
	static const struct {
		const char *text;
		int64_t ms; /* -1: refused */
	} cases[] = {
		{"{\"d\":\"10s\"}", 10000},
		{"{\"d\":\"1h30m\"}", 5400000},
		{"{\"d\":10}", 10000},
		{"{\"d\":0.5}", 500},
		{"{\"d\":0.0001}", 1}, /* rounded up: a positive duration is never 0 */
		{"{\"d\":2147483648}", INT64_C(2147483648000)},
		{"{\"d\":0}", -1},
		{"{\"d\":-1}", -1},
		{"{\"d\":-0.5}", -1},
		{"{\"d\":9223372036854775808}", -1},
		{"{\"d\":9223372036854775807}", -1},
		{"{\"d\":1e308}", -1},
		{"{\"d\":\"abc\"}", -1},
		{"{\"d\":\"10\"}", -1},
		{"{\"d\":\"-1s\"}", -1},
		{"{\"d\":\"\"}", -1},
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++) {
		int64_t ms = -1;
		int status = read_duration(cases[i].text, SP_BODY_DURATION_MAX_MS, &ms);

		cr_assert((status == 0) == (cases[i].ms >= 0), "%s", cases[i].text);
		cr_assert(ms == cases[i].ms, "%s: %lld", cases[i].text, (long long)ms);
	}
}

Test(api_json_body, durations_are_taken_up_to_their_limit)
{
	int64_t ms = 0;

	cr_assert(read_duration("{\"d\":\"5s\"}", 5000, &ms) == 0);
	cr_assert(read_duration("{\"d\":\"5001ms\"}", 5000, &ms) == -EINVAL);
	cr_assert(read_duration("{\"d\":5.001}", 5000, &ms) == -EINVAL);
}
