/*
 * Shared by the suites of the configuration: texts in, configurations or faults out.
 */
#ifndef SP_TEST_CONFIG_H
#define SP_TEST_CONFIG_H

#include "supervisor/config/config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX (16u << 20)

/* All faults as text; the caller frees. */
static inline char *faults_text(const struct sp_config_faults *faults)
{
	struct sp_buf out;

	sp_buf_init(&out, TEXT_MAX);
	cr_assert(sp_config_faults_print(faults, &out) == 0);
	return sp_buf_take(&out);
}

static inline struct sp_config *parse_good(const char *text)
{
	struct sp_config_faults faults;
	struct sp_config *config = NULL;
	int status = sp_config_parse(text, strlen(text), "test.json", &config, &faults);

	cr_assert(status == 0, "status %d: %s", status, faults_text(&faults));
	cr_assert(faults.count == 0 && !faults.more);
	sp_config_faults_done(&faults);
	return config;
}

/* One pool `p` with these members. */
static inline struct sp_config *parse_pool(const char *members)
{
	char text[8192];

	cr_assert((size_t)snprintf(text, sizeof(text), "{\"pools\":{\"p\":{%s}}}", members) <
		  sizeof(text));
	return parse_good(text);
}

static inline char *parse_bad(const char *text)
{
	struct sp_config_faults faults;
	struct sp_config *config = NULL;
	char *message;

	cr_assert(sp_config_parse(text, strlen(text), "test.json", &config, &faults) == -EINVAL,
		  "accepted: %s", text);
	cr_assert_null(config);
	message = faults_text(&faults);
	sp_config_faults_done(&faults);
	return message;
}

/* The faults are exactly this text. */
static inline void faults_are(const char *text, const char *wanted)
{
	char *message = parse_bad(text);

	cr_assert(strcmp(message, wanted) == 0, "\n%s\ngave:\n%s\nnot:\n%s", text, message, wanted);
	free(message);
}

/* There is one fault, and it has these words. */
static inline void fault_has(const char *text, const char *words)
{
	char *message = parse_bad(text);

	cr_assert_not_null(strstr(message, words), "\n%s\ngave:\n%s\nwithout:\n%s", text, message,
			   words);
	cr_assert(strchr(message, '\n') == strrchr(message, '\n'), "\n%s\ngave:\n%s", text,
		  message);
	free(message);
}

static inline void pool_fault_has(const char *members, const char *words)
{
	char text[8192];

	cr_assert((size_t)snprintf(text, sizeof(text), "{\"pools\":{\"p\":{%s}}}", members) <
		  sizeof(text));
	fault_has(text, words);
}

static inline char *dump(const struct sp_config *config, bool with_secrets)
{
	struct sp_err err = {0};
	struct sp_buf out;

	sp_buf_init(&out, TEXT_MAX);
	cr_assert(sp_config_dump(config, with_secrets, &out, &err) == 0, "%s", err.message);
	return sp_buf_take(&out);
}

#endif
