/*
 * Two sorted tables over one copy of the text, so that a listing of many files with as many owners
 * costs a binary search each, whatever the sandbox put into the file.
 */
#include "supervisor/api/account_names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A whole decimal number below (uint32_t)-1, which means "nobody" everywhere. */
static bool read_id(const char *text, uint32_t *ret_id)
{
	uint64_t id = 0;

	if (text[0] == '\0')
		return false;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return false;
		id = id * 10 + (uint64_t)(*text - '0');
		if (id >= UINT32_MAX)
			return false;
	}
	*ret_id = (uint32_t)id;
	return true;
}

/* Cuts the line at its colons. False: no account. */
static bool read_line(char *line, struct sp_account *account)
{
	char *rest = line;
	const char *name = strsep(&rest, ":");
	const char *password = rest ? strsep(&rest, ":") : NULL;
	const char *id = rest ? strsep(&rest, ":") : NULL;

	SP_UNUSED(password);
	account->name = line;
	return id && name[0] && strlen(name) <= SP_ACCOUNT_NAME_MAX && read_id(id, &account->id);
}

/* Both tables lie in the order of the text before they are sorted, so the pointers tell the first
 * one of equals. */
static int compare_place(const struct sp_account *one, const struct sp_account *other)
{
	return one->name < other->name ? -1 : one->name > other->name;
}

static int compare_ids(const void *one, const void *other)
{
	const struct sp_account *left = one;
	const struct sp_account *right = other;

	if (left->id != right->id)
		return left->id < right->id ? -1 : 1;
	return compare_place(left, right);
}

static int compare_names(const void *one, const void *other)
{
	const struct sp_account *left = one;
	const struct sp_account *right = other;
	int order = strcmp(left->name, right->name);

	return order != 0 ? order : compare_place(left, right);
}

static void sort(struct sp_accounts *accounts, size_t count)
{
	qsort(accounts->by_id, count, sizeof(*accounts->by_id), compare_ids);
	qsort(accounts->by_name, count, sizeof(*accounts->by_name), compare_names);
	for (size_t i = 0; i < count; i++) {
		const struct sp_account *id = &accounts->by_id[i];
		const struct sp_account *name = &accounts->by_name[i];

		if (i == 0 || accounts->by_id[accounts->id_count - 1].id != id->id)
			accounts->by_id[accounts->id_count++] = *id;
		if (i == 0 ||
		    strcmp(accounts->by_name[accounts->name_count - 1].name, name->name) != 0)
			accounts->by_name[accounts->name_count++] = *name;
	}
}

/* Few files have as many as there may be, and the tables are kept for a while. */
static void shrink(struct sp_account **table, size_t count)
{
	struct sp_account *smaller = realloc(*table, SP_MAX(count, (size_t)1) * sizeof(**table));

	if (smaller)
		*table = smaller;
}

int sp_accounts_parse(struct sp_accounts *accounts, const char *text, size_t len,
		      struct sp_err *err)
{
	size_t size = SP_ACCOUNTS_COUNT_MAX * sizeof(struct sp_account);
	size_t count = 0;
	char *line;
	char *rest;

	len = SP_MIN(len, (size_t)SP_ACCOUNTS_SIZE_MAX);
	*accounts = (struct sp_accounts){
		.text = strndup(text, len),
		.by_id = malloc(size),
		.by_name = malloc(size),
	};
	if (!accounts->text || !accounts->by_id || !accounts->by_name) {
		sp_accounts_done(accounts);
		return sp_err_set(err, -ENOMEM, "read the names of a sandbox's accounts");
	}
	rest = accounts->text;
	while (count < SP_ACCOUNTS_COUNT_MAX && (line = strsep(&rest, "\n"))) {
		struct sp_account account;

		if (!read_line(line, &account))
			continue;
		accounts->by_id[count] = account;
		accounts->by_name[count] = account;
		count++;
	}
	sort(accounts, count);
	shrink(&accounts->by_id, accounts->id_count);
	shrink(&accounts->by_name, accounts->name_count);
	return 0;
}

void sp_accounts_done(struct sp_accounts *accounts)
{
	free(accounts->text);
	free(accounts->by_id);
	free(accounts->by_name);
	*accounts = (struct sp_accounts){.text = NULL};
}

static int find_id(const void *key, const void *element)
{
	const uint32_t *id = key;
	const struct sp_account *account = element;

	return *id < account->id ? -1 : *id > account->id;
}

static int find_name(const void *key, const void *element)
{
	const struct sp_account *account = element;

	return strcmp(key, account->name);
}

const char *sp_accounts_name(const struct sp_accounts *accounts, uint32_t id)
{
	const struct sp_account *found = NULL;

	if (accounts->id_count > 0)
		found = bsearch(&id, accounts->by_id, accounts->id_count, sizeof(*found), find_id);
	return found ? found->name : NULL;
}

bool sp_accounts_id(const struct sp_accounts *accounts, const char *name, uint32_t *ret_id)
{
	const struct sp_account *found = NULL;

	if (accounts->name_count > 0)
		found = bsearch(name, accounts->by_name, accounts->name_count, sizeof(*found),
				find_name);
	if (!found)
		return read_id(name, ret_id);
	*ret_id = found->id;
	return true;
}
