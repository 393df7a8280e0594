/*
 * Durations and sizes as people write them. A unit is never guessed: "64" may have meant bytes,
 * kibibytes or mebibytes, so it is refused with the form that is wanted. Parsing what was formatted
 * gives the same value again.
 *
 * Trusts nothing of the text: it comes from configuration files and from HTTP bodies.
 */
#include "supervisor/config/config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define UNIT_MAX   8  /* longest run of letters that is looked up */
#define QUOTED_MAX 64 /* of the text, in messages */

struct unit {
	const char *name;
	uint64_t factor;
};

/* Largest first: a duration lists them in this order, each at most once. */
static const struct unit duration_units[] = {
	{"d", 24 * 60 * 60 * 1000}, {"h", 60 * 60 * 1000}, {"m", 60 * 1000}, {"s", 1000}, {"ms", 1},
};

static const struct unit size_units[] = {
	{"TiB", UINT64_C(1) << 40},
	{"GiB", UINT64_C(1) << 30},
	{"MiB", UINT64_C(1) << 20},
	{"KiB", UINT64_C(1) << 10},
	{"B", 1},
};

/* What "64k", "64MB" and the like probably meant. */
static const struct unit *size_meant(const char *unit)
{
	static const char initials[] = "tTgGmMkKbB";
	const char *at = *unit != '\0' ? strchr(initials, *unit) : NULL;

	return at ? &size_units[(at - initials) / 2] : NULL;
}

/* Read digits. 0, -EINVAL (none), -ERANGE. */
static int read_number(const char **text, uint64_t *ret_value)
{
	const char *at = *text;
	uint64_t value = 0;

	if (*at < '0' || *at > '9')
		return -EINVAL;
	for (; *at >= '0' && *at <= '9'; at++)
		if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
			return -ERANGE;
	*text = at;
	*ret_value = value;
	return 0;
}

/* Copy a run of letters; "" when it is none or longer than any unit. */
static void read_unit(const char **text, char unit[UNIT_MAX])
{
	const char *at = *text;
	size_t len = 0;

	while ((at[len] >= 'a' && at[len] <= 'z') || (at[len] >= 'A' && at[len] <= 'Z'))
		len++;
	if (len >= UNIT_MAX)
		len = 0;
	memcpy(unit, at, len);
	unit[len] = '\0';
	*text = at + len;
}

static const struct unit *find_unit(const struct unit *units, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(units[i].name, name) == 0)
			return &units[i];
	return NULL;
}

static int bad_duration(const char *text, int status, struct sp_err *err)
{
	char quoted[QUOTED_MAX];

	(void)sp_log_quote(text, quoted, sizeof(quoted));
	if (status == -ERANGE)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, status,
				   "'%s' is too long a duration", quoted);
	if (*text != '\0' && strspn(text, "0123456789") == strlen(text))
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, status,
				   "'%s' has no unit: give one, e.g. \"%ss\"", quoted, quoted);
	return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, status,
			   "'%s' is not a duration: whole numbers with units d, h, m, s, ms, "
			   "largest first, e.g. \"500ms\", \"10m\", \"1h30m\"",
			   quoted);
}

int sp_parse_duration(const char *text, int64_t *ret_ms, struct sp_err *err)
{
	const struct unit *last = NULL;
	const char *at = text;
	uint64_t total = 0;

	if (strcmp(text, "0") == 0) {
		*ret_ms = 0;
		return 0;
	}
	do {
		const struct unit *unit;
		char name[UNIT_MAX];
		uint64_t value;
		int status = read_number(&at, &value);

		if (status < 0)
			return bad_duration(text, status, err);
		read_unit(&at, name);
		unit = find_unit(duration_units, SP_ARRAY_SIZE(duration_units), name);
		if (!unit || (last && unit <= last))
			return bad_duration(text, -EINVAL, err);
		last = unit;
		if (__builtin_mul_overflow(value, unit->factor, &value) ||
		    __builtin_add_overflow(total, value, &total) || total > INT64_MAX)
			return bad_duration(text, -ERANGE, err);
	} while (*at != '\0');
	*ret_ms = (int64_t)total;
	return 0;
}

static int bad_size(const char *text, int status, struct sp_err *err)
{
	char quoted[QUOTED_MAX];
	size_t digits = strspn(text, "0123456789");
	const struct unit *meant = size_meant(text + digits);

	(void)sp_log_quote(text, quoted, sizeof(quoted));
	if (status == -ERANGE)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, status, "'%s' is too large",
				   quoted);
	if (digits > 0 && digits < 20 && (text[digits] == '\0' || meant))
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, status,
				   "'%s' has no %sunit: give one, e.g. \"%.*s%s\"", quoted,
				   meant ? "known " : "", (int)digits, text,
				   meant ? meant->name : "MiB");
	return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, status,
			   "'%s' is not a size: a whole number with unit B, KiB, MiB, GiB or TiB, "
			   "e.g. \"64MiB\"",
			   quoted);
}

int sp_parse_size(const char *text, uint64_t *ret_bytes, struct sp_err *err)
{
	const struct unit *unit;
	const char *at = text;
	char name[UNIT_MAX];
	uint64_t value;
	int status;

	if (strcmp(text, "0") == 0) {
		*ret_bytes = 0;
		return 0;
	}
	status = read_number(&at, &value);
	if (status < 0)
		return bad_size(text, status, err);
	read_unit(&at, name);
	unit = find_unit(size_units, SP_ARRAY_SIZE(size_units), name);
	if (!unit || *at != '\0')
		return bad_size(text, -EINVAL, err);
	if (__builtin_mul_overflow(value, unit->factor, &value))
		return bad_size(text, -ERANGE, err);
	*ret_bytes = value;
	return 0;
}

/* Days are understood but never written: "24h" reads better than "1d" beside "90m". */
int sp_format_duration(int64_t ms, char *buffer, size_t size)
{
	uint64_t rest = (uint64_t)ms;
	size_t used = 0;

	if (ms < 0)
		return -EINVAL;
	if (ms == 0)
		return (size_t)snprintf(buffer, size, "0") < size ? 0 : -ENOSPC;
	for (size_t i = 1; i < SP_ARRAY_SIZE(duration_units); i++) {
		const struct unit *unit = &duration_units[i];
		uint64_t value = rest / unit->factor;

		if (value == 0)
			continue;
		used += (size_t)snprintf(buffer + used, size - used, "%" PRIu64 "%s", value,
					 unit->name);
		if (used >= size)
			return -ENOSPC;
		rest -= value * unit->factor;
	}
	return 0;
}

int sp_format_size(uint64_t bytes, char *buffer, size_t size)
{
	const struct unit *unit = size_units;

	if (bytes == 0)
		return (size_t)snprintf(buffer, size, "0") < size ? 0 : -ENOSPC;
	while (bytes % unit->factor != 0)
		unit++;
	if ((size_t)snprintf(buffer, size, "%" PRIu64 "%s", bytes / unit->factor, unit->name) >=
	    size)
		return -ENOSPC;
	return 0;
}
