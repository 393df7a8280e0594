/*
 * What is shipped beside the program says what the program does: the reference page is generated
 * from the schema, the default configuration file is the default configuration.
 *
 * SP_TESTS_UPDATE=1 writes the reference page anew.
 */
#include "tests/unit/test_config.h"

#include "supervisor/config/schema.h"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

/* A file of the source tree; this file knows where that is. */
static const char *source_path(const char *name)
{
	static char path[PATH_MAX];
	const char *here = strstr(__FILE__, "tests/unit/");

	cr_assert_not_null(here);
	snprintf(path, sizeof(path), "%.*s%s", (int)(here - __FILE__), __FILE__, name);
	return path;
}

static char *read_text(const char *path)
{
	char *text = calloc(1, TEXT_MAX);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? -1 : read(fd, text, TEXT_MAX - 1);

	cr_assert(len >= 0, "cannot read %s", path);
	close(fd);
	return text;
}

static char *reference(void)
{
	struct sp_buf out;

	sp_buf_init(&out, TEXT_MAX);
	cr_assert(sp_config_reference(&out) == 0);
	return sp_buf_take(&out);
}

static void update(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	cr_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

Test(config_docs, the_reference_page_is_current)
{
	const char *path = source_path("deploy/docs/configuration.md");
	char *wanted = reference();
	char *found;

	if (getenv("SP_TESTS_UPDATE"))
		update(path, wanted);
	found = read_text(path);
	cr_assert(strcmp(found, wanted) == 0,
		  "%s is not what the schema says; run this test with SP_TESTS_UPDATE=1", path);
	free(found);
	free(wanted);
}

Test(config_docs, the_reference_page_has_every_key_once_with_a_meaning)
{
	char *text = reference();

	for (size_t i = 0; i < SP_SCHEMA_SCOPES; i++)
		for (size_t j = 0; j < sp_schema_scopes[i].count; j++) {
			const struct sp_schema_key *key = &sp_schema_scopes[i].keys[j];
			char row[128];

			snprintf(row, sizeof(row), "\n| `%s` | ", key->name);
			cr_assert((strstr(text, row) == NULL) ==
				  ((key->flags & SP_SCHEMA_F_RESOLVED) != 0));
			cr_assert(strlen(key->help) > 5);
			cr_assert_null(strchr(key->help, '|'));
		}
	free(text);
}

Test(config_docs, the_reference_page_fits_or_fails)
{
	struct sp_buf out;

	sp_buf_init(&out, 500);
	cr_assert(sp_config_reference(&out) == -E2BIG);
	sp_buf_done(&out);
}

Test(config_docs, the_shipped_configuration_is_the_default_one)
{
	struct sp_config_faults faults;
	struct sp_config *shipped = NULL;
	struct sp_config *empty = parse_good("{}");
	char *found;
	char *wanted = dump(empty, false);
	int status = sp_config_load(source_path("deploy/sandpool.json"), false, &shipped, &faults);

	cr_assert(status == 0, "%s", faults_text(&faults));
	found = dump(shipped, false);
	cr_assert_str_eq(found, wanted);
	free(found);
	free(wanted);
	sp_config_free(shipped);
	sp_config_free(empty);
}

Test(config_docs, the_shipped_configuration_shows_every_key)
{
	char *text = read_text(source_path("deploy/sandpool.json"));

	for (size_t i = 0; i < SP_SCHEMA_SCOPES; i++)
		for (size_t j = 0; j < sp_schema_scopes[i].count; j++) {
			const struct sp_schema_key *key = &sp_schema_scopes[i].keys[j];
			char member[128];

			snprintf(member, sizeof(member), " \"%s\": ", key->name);
			cr_assert((strstr(text, member) == NULL) ==
					  ((key->flags & SP_SCHEMA_F_RESOLVED) != 0),
				  "%s", key->name);
		}
	free(text);
}
