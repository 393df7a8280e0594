/*
 * What a host remembers of the cluster: its secret and the operator's intent, in files that are
 * whole or not there.
 */
#include "supervisor/daemon/daemon_private.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DIR_TEMPLATE "/tmp/sp-remembered-XXXXXX"

/* What reaches the disk, in its order: 'f' a file, 'd' a directory, 'r' a name is given. */
static char order[8];
static char fails; /* with EIO: the sync of one of these */

static void note(char what)
{
	size_t len = strlen(order);

	if (len < sizeof(order) - 1)
		order[len] = what;
}

int fsync(int fd)
{
	struct stat info = {0};
	char what;

	cr_assert(fstat(fd, &info) == 0);
	what = S_ISDIR(info.st_mode) ? 'd' : 'f';
	note(what);
	if (what == fails) {
		errno = EIO;
		return -1;
	}
	return (int)syscall(SYS_fsync, fd);
}

int renameat(int old_dir, const char *old_name, int new_dir, const char *new_name)
{
	note('r');
	return (int)syscall(SYS_renameat2, old_dir, old_name, new_dir, new_name, 0);
}

struct place {
	char dir[sizeof(DIR_TEMPLATE)];
	struct sp_identity owner;
};

static void open_place(struct place *place)
{
	memcpy(place->dir, DIR_TEMPLATE, sizeof(DIR_TEMPLATE));
	cr_assert_not_null(mkdtemp(place->dir));
	place->owner = (struct sp_identity){.uid = geteuid(), .gid = getegid()};
}

static const char *path_of(const struct place *place, const char *name)
{
	static char path[128];

	(void)snprintf(path, sizeof(path), "%s/%s", place->dir, name);
	return path;
}

static void write_file(const struct place *place, const char *name, const char *text)
{
	FILE *file = fopen(path_of(place, name), "w");

	cr_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void close_place(const struct place *place)
{
	static const char *const names[] = {"host.secret", "host.secret.new", "intent.p",
					    "intent.p.new"};

	for (size_t i = 0; i < SP_ARRAY_SIZE(names); i++)
		(void)unlink(path_of(place, names[i]));
	cr_assert(rmdir(place->dir) == 0, "nothing else was left there");
}

Test(daemon_remembered, a_secret_is_drawn_once_and_nobody_else_reads_it)
{
	struct place place;
	char first[SP_SECRET_LEN + 1];
	char second[SP_SECRET_LEN + 1];
	struct stat info;

	open_place(&place);
	cr_assert(host_secret_get(place.dir, &place.owner, first, NULL) == 0);
	cr_assert(host_secret_get(place.dir, &place.owner, second, NULL) == 0);
	cr_assert_str_eq(first, second);
	cr_assert(sp_lease_id_valid(first));
	cr_assert(stat(path_of(&place, "host.secret"), &info) == 0);
	cr_assert((info.st_mode & 07777) == 0600);
	close_place(&place);
}

Test(daemon_remembered, what_is_no_secret_is_refused_not_replaced)
{
	static const char *const texts[] = {
		"", "short",
		("GGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGG"
		 "GGGG")};
	char secret[SP_SECRET_LEN + 1];
	struct place place;

	open_place(&place);
	for (size_t i = 0; i < SP_ARRAY_SIZE(texts); i++) {
		struct sp_err err = {0};

		write_file(&place, "host.secret", texts[i]);
		cr_assert(host_secret_get(place.dir, &place.owner, secret, &err) == -EINVAL);
		cr_assert(err.code == SP_CODE_CONFIG_INVALID && strstr(err.message, "host.secret"));
	}
	close_place(&place);
}

Test(daemon_remembered, a_secret_behind_a_link_is_not_followed)
{
	struct place place;
	char secret[SP_SECRET_LEN + 1];

	open_place(&place);
	cr_assert(symlink("/etc/hostname", path_of(&place, "host.secret")) == 0);
	cr_assert(host_secret_get(place.dir, &place.owner, secret, NULL) == -ELOOP);
	close_place(&place);
}

Test(daemon_remembered, what_lies_in_the_way_is_not_written_to)
{
	struct place place;
	struct sp_store_meta meta = {.revision = 1};
	struct stat info;

	open_place(&place);
	write_file(&place, "host.secret", "precious");
	cr_assert(symlink("host.secret", path_of(&place, "intent.p.new")) == 0);
	cr_assert(intent_save(place.dir, "p", &meta, false, NULL) == 0);
	cr_assert(stat(path_of(&place, "host.secret"), &info) == 0 && info.st_size == 8);
	close_place(&place);
}

Test(daemon_remembered, an_intent_comes_back_as_it_was)
{
	static const enum sp_store_pool_state states[] = {SP_STORE_ACTIVE, SP_STORE_DRAINING,
							  SP_STORE_DESTROYING, SP_STORE_DESTROYED};
	struct place place;

	open_place(&place);
	for (size_t i = 0; i < SP_ARRAY_SIZE(states); i++) {
		struct sp_store_meta meta = {
			.revision = (UINT64_C(1) << 52) + i,
			.max_idle = 0,
			.max_total = UINT32_MAX,
			.state = states[i],
		};
		struct sp_store_meta found = {0};
		bool draining = false;

		cr_assert(intent_save(place.dir, "p", &meta, i % 2 == 0, NULL) == 0);
		intent_load(place.dir, "p", &found, &draining);
		cr_assert(found.revision == meta.revision && found.max_idle == 0);
		cr_assert(found.max_total == UINT32_MAX && found.state == states[i]);
		cr_assert(draining == (i % 2 == 0));
	}
	cr_assert(access(path_of(&place, "intent.p.new"), F_OK) < 0);
	close_place(&place);
}

Test(daemon_remembered, what_is_not_readable_is_no_intent)
{
	static const char *const texts[] = {"",
					    "v2 1 2 3 active 0\n",
					    "v1 -1 2 3 active 0\n",
					    "v1 1 2 3 sleeping 0\n",
					    "v1 1 2 3 active\n",
					    "\xff\xff"};
	struct place place;

	open_place(&place);
	for (size_t i = 0; i <= SP_ARRAY_SIZE(texts); i++) {
		struct sp_store_meta found = {.revision = 5};
		bool draining = true;

		if (i < SP_ARRAY_SIZE(texts))
			write_file(&place, "intent.p", texts[i]);
		else
			(void)unlink(path_of(&place, "intent.p"));
		intent_load(place.dir, "p", &found, &draining);
		cr_assert(found.revision == 5 && draining, "'%s'", i < 6 ? texts[i] : "none");
	}
	close_place(&place);
}

Test(daemon_remembered, a_directory_that_is_gone_is_an_error)
{
	struct sp_store_meta meta = {0};
	struct sp_err err = {0};

	cr_assert(intent_save("/nowhere/at/all", "p", &meta, false, &err) == -ENOENT);
	cr_assert(strstr(err.message, "/nowhere/at/all"));
}

Test(daemon_remembered, what_is_acted_on_is_on_the_disk_first)
{
	struct place place;
	struct sp_store_meta meta = {.revision = 7};
	char secret[SP_SECRET_LEN + 1];

	open_place(&place);
	cr_assert(host_secret_get(place.dir, &place.owner, secret, NULL) == 0);
	cr_assert_str_eq(order, "frd");
	memset(order, 0, sizeof(order));
	cr_assert(intent_save(place.dir, "p", &meta, false, NULL) == 0);
	cr_assert_str_eq(order, "frd");
	close_place(&place);
}

Test(daemon_remembered, what_does_not_reach_the_disk_is_an_error)
{
	struct place place;
	struct sp_store_meta meta = {.revision = 7};
	struct sp_store_meta found = {0};
	char secret[SP_SECRET_LEN + 1];
	bool draining = false;

	open_place(&place);
	cr_assert(intent_save(place.dir, "p", &meta, false, NULL) == 0);
	fails = 'f';
	meta.revision = 8;
	cr_assert(intent_save(place.dir, "p", &meta, false, NULL) == -EIO);
	intent_load(place.dir, "p", &found, &draining);
	cr_assert(found.revision == 7, "the old one is still whole");
	cr_assert(host_secret_get(place.dir, &place.owner, secret, NULL) == -EIO);
	cr_assert(access(path_of(&place, "host.secret"), F_OK) < 0);
	fails = 'd';
	cr_assert(intent_save(place.dir, "p", &meta, false, NULL) == -EIO);
	cr_assert(host_secret_get(place.dir, &place.owner, secret, NULL) == -EIO);
	close_place(&place);
}
