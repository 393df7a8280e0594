/*
 * Names of owners and groups, from a sandbox's own /etc/passwd and /etc/group. Both are whatever
 * the sandbox says: read up to a size, looked up in a time that does not depend on what is in them.
 * Pure.
 */
#ifndef SP_API_ACCOUNT_NAMES_H
#define SP_API_ACCOUNT_NAMES_H

#include "pool/base/err.h"

#define SP_ACCOUNTS_SIZE_MAX  (256u * 1024) /* bytes of a file that are read */
#define SP_ACCOUNTS_COUNT_MAX 4096u         /* accounts of it that are known */
#define SP_ACCOUNT_NAME_MAX   255u

struct sp_account {
	char *name; /* into the text */
	uint32_t id;
};

struct sp_accounts {
	char *text;
	struct sp_account *by_id;   /* ascending; of equal ids only the first of the file */
	struct sp_account *by_name; /* ascending, likewise */
	size_t id_count;
	size_t name_count;
};

/* "name:x:id:…" lines of either file; what is none is skipped. The text is copied. -ENOMEM. */
int sp_accounts_parse(struct sp_accounts *accounts, const char *text, size_t len,
		      struct sp_err *err);
void sp_accounts_done(struct sp_accounts *accounts); /* harmless for one that is all zero */
/* NULL: nobody has that id. */
const char *sp_accounts_name(const struct sp_accounts *accounts, uint32_t id);
/* Of a name, else of a decimal number; false: neither. */
bool sp_accounts_id(const struct sp_accounts *accounts, const char *name, uint32_t *ret_id);

#endif
