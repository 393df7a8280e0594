/*
 * Parsers of what the lifecycle API writes as text. Each takes the whole text or nothing of it.
 */
#include "supervisor/api/os_values.h"

#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DIGITS         "0123456789"
#define QUANTITY_MAX   24 /* bytes of its number */
#define BYTES_MAX      ((double)(UINT64_C(1) << 62))
#define CORES_MAX      1e6
#define LABEL_PART_MAX 63u
#define LABEL_DNS_MAX  253u
#define SHOWN_MAX      80 /* of a client's text in a message */

static int invalid(struct sp_err *err, const char *what, const char *text)
{
	return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL, "'%.*s' is no %s", SHOWN_MAX,
			   text, what);
}

/* ---- quantities ---- */

/* The number in front; *ret_suffix is what follows. */
static int parse_number(const char *text, double *ret_value, const char **ret_suffix)
{
	size_t len = strspn(text, DIGITS ".");
	char number[QUANTITY_MAX + 1];
	char *end;

	if (len == 0 || len > QUANTITY_MAX || strspn(text, ".") == len)
		return -EINVAL;
	memcpy(number, text, len);
	number[len] = '\0';
	*ret_value = strtod(number, &end);
	if (*end)
		return -EINVAL; /* a second point */
	*ret_suffix = text + len;
	return 0;
}

int sp_os_parse_cpu(const char *text, int64_t *ret_millis, struct sp_err *err)
{
	const char *suffix;
	double value;

	if (parse_number(text, &value, &suffix) < 0 || (*suffix && strcmp(suffix, "m") != 0))
		return invalid(err, "number of cores like \"500m\" or \"2\"", text);
	if (!*suffix)
		value *= 1000;
	if (value > CORES_MAX * 1000)
		return invalid(err, "possible number of cores", text);
	*ret_millis = (int64_t)ceil(value);
	return 0;
}

int sp_os_parse_memory(const char *text, uint64_t *ret_bytes, struct sp_err *err)
{
	static const struct {
		const char *suffix;
		double factor;
	} units[] = {
		{"", 1},        {"m", 1e-3},    {"k", 1e3},     {"M", 1e6},     {"G", 1e9},
		{"T", 1e12},    {"P", 1e15},    {"E", 1e18},    {"Ki", 0x1p10}, {"Mi", 0x1p20},
		{"Gi", 0x1p30}, {"Ti", 0x1p40}, {"Pi", 0x1p50}, {"Ei", 0x1p60},
	};

	const char *suffix;
	double value;
	size_t i = 0;

	if (parse_number(text, &value, &suffix) < 0)
		return invalid(err, "size like \"512Mi\" or \"2Gi\"", text);
	while (i < SP_ARRAY_SIZE(units) && strcmp(units[i].suffix, suffix) != 0)
		i++;
	if (i == SP_ARRAY_SIZE(units))
		return invalid(err, "size like \"512Mi\" or \"2Gi\"", text);
	value = ceil(value * units[i].factor);
	if (value > BYTES_MAX)
		return invalid(err, "possible size", text);
	*ret_bytes = (uint64_t)value;
	return 0;
}

/* ---- times ---- */

/* `count` digits and then `after` ('\0': anything), as a number in min … max; NULL if not so. */
static const char *digits(const char *at, size_t count, char after, int min, int max, int *ret)
{
	int value = 0;

	for (size_t i = 0; i < count; i++) {
		if (at[i] < '0' || at[i] > '9')
			return NULL;
		value = value * 10 + (at[i] - '0');
	}
	at += count;
	if (value < min || value > max || (after && *at != after))
		return NULL;
	*ret = value;
	return after ? at + 1 : at;
}

static const char *parse_fraction(const char *at, int *ret_ms)
{
	int scale = 100;

	*ret_ms = 0;
	if (*at != '.')
		return at;
	at++;
	if (*at < '0' || *at > '9')
		return NULL;
	for (; *at >= '0' && *at <= '9'; at++) {
		*ret_ms += (*at - '0') * scale;
		scale /= 10;
	}
	return at;
}

static const char *parse_offset(const char *at, int *ret_minutes)
{
	int sign = *at == '-' ? -1 : 1;
	int hours;
	int minutes;

	*ret_minutes = 0;
	if (*at == 'Z' || *at == 'z')
		return at + 1;
	if (*at != '+' && *at != '-')
		return NULL;
	at = digits(at + 1, 2, ':', 0, 23, &hours);
	if (at)
		at = digits(at, 2, '\0', 0, 59, &minutes);
	if (at)
		*ret_minutes = sign * (hours * 60 + minutes);
	return at;
}

static int days_of_month(int year, int month)
{
	static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

	return days[month - 1] + (month == 2 && leap ? 1 : 0);
}

int sp_os_parse_time(const char *text, int64_t *ret_wall_ms, struct sp_err *err)
{
	struct tm parts = {0};
	const char *at = text;
	int offset = 0;
	int ms = 0;

	at = digits(at, 4, '-', 1970, 9999, &parts.tm_year);
	if (at)
		at = digits(at, 2, '-', 1, 12, &parts.tm_mon);
	if (at)
		at = digits(at, 2, '\0', 1, days_of_month(parts.tm_year, parts.tm_mon),
			    &parts.tm_mday);
	if (at)
		at = *at == 'T' || *at == 't' || *at == ' ' ? at + 1 : NULL;
	if (at)
		at = digits(at, 2, ':', 0, 23, &parts.tm_hour);
	if (at)
		at = digits(at, 2, ':', 0, 59, &parts.tm_min);
	if (at)
		at = digits(at, 2, '\0', 0, 60, &parts.tm_sec);
	if (at)
		at = parse_fraction(at, &ms);
	if (at)
		at = parse_offset(at, &offset);
	if (!at || *at)
		return invalid(err, "time like \"2026-01-31T12:00:00Z\"", text);
	parts.tm_year -= 1900;
	parts.tm_mon -= 1;
	*ret_wall_ms = ((int64_t)timegm(&parts) - offset * INT64_C(60)) * SP_MS_PER_S + ms;
	return 0;
}

void sp_os_format_time(int64_t wall_ms, char text[SP_OS_TIME_MAX])
{
	time_t seconds = (time_t)(wall_ms / SP_MS_PER_S);
	struct tm parts;

	text[0] = '\0';
	if (wall_ms < 0 || !gmtime_r(&seconds, &parts) || parts.tm_year > 9999 - 1900)
		return;
	(void)snprintf(text, SP_OS_TIME_MAX, "%04d-%02d-%02dT%02d:%02d:%02d.%03d000Z",
		       parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour,
		       parts.tm_min, parts.tm_sec, (int)(wall_ms % SP_MS_PER_S));
}

/* ---- labels ---- */

static bool is_alphanumeric(char byte)
{
	return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
	       (byte >= 'A' && byte <= 'Z');
}

static bool is_label_part(const char *text, size_t len)
{
	if (len == 0 || len > LABEL_PART_MAX || !is_alphanumeric(text[0]) ||
	    !is_alphanumeric(text[len - 1]))
		return false;
	for (size_t i = 0; i < len; i++)
		if (!is_alphanumeric(text[i]) && !strchr("-_.", text[i]))
			return false;
	return true;
}

/* Lower case, dots between parts of letters, digits and inner hyphens. */
static bool is_dns_name(const char *text, size_t len)
{
	char before = '.';

	if (len == 0 || len > LABEL_DNS_MAX)
		return false;
	for (size_t i = 0; i < len; i++) {
		char byte = text[i];
		bool edge = before == '.' || i + 1 == len || text[i + 1] == '.';

		if (byte == '.' ? before == '.' || before == '-' || i + 1 == len
				: byte != '-' &&
					  (!is_alphanumeric(byte) || (byte >= 'A' && byte <= 'Z')))
			return false;
		if (byte == '-' && edge)
			return false;
		before = byte;
	}
	return true;
}

int sp_os_label_check(const char *key, const char *value, struct sp_err *err)
{
	static const char reserved[] = "opensandbox.io/";
	const char *slash = strchr(key, '/');
	const char *name = slash ? slash + 1 : key;

	if (strncmp(key, reserved, strlen(reserved)) == 0)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "metadata key '%.*s' has the reserved prefix 'opensandbox.io/'",
				   SHOWN_MAX, key);
	if (!is_label_part(name, strlen(name)) ||
	    (slash && !is_dns_name(key, (size_t)(slash - key))))
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "metadata key '%.*s' is no label's key (1 … %u letters, digits "
				   "and inner '-', '_', '.', optionally after a DNS name and '/')",
				   SHOWN_MAX, key, LABEL_PART_MAX);
	if (value[0] && !is_label_part(value, strlen(value)))
		return sp_err_code(
			err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
			"metadata value '%.*s' of key '%.*s' is no label's value (0 … %u "
			"letters, digits and inner '-', '_', '.')",
			SHOWN_MAX, value, SHOWN_MAX, key, LABEL_PART_MAX);
	return 0;
}

/* ---- images ---- */

/* Without the registry that is meant when none is named, and with the tag that is. */
static void canonical_image(const char *image, char text[SP_OS_IMAGE_MAX + 8])
{
	static const char registry[] = "docker.io/";
	static const char library[] = "library/";
	const char *last;

	if (strncmp(image, registry, strlen(registry)) == 0)
		image += strlen(registry);
	if (strncmp(image, library, strlen(library)) == 0)
		image += strlen(library);
	last = strrchr(image, '/');
	(void)snprintf(text, SP_OS_IMAGE_MAX + 8, "%.*s%s", (int)SP_OS_IMAGE_MAX, image,
		       strpbrk(last ? last : image, ":@") ? "" : ":latest");
}

bool sp_os_image_matches(const char *pattern, const char *image)
{
	char canonical[SP_OS_IMAGE_MAX + 8];

	canonical_image(image, canonical);
	return fnmatch(pattern, image, 0) == 0 || fnmatch(pattern, canonical, 0) == 0;
}

size_t sp_os_image_weight(const char *pattern)
{
	size_t weight = 0;

	for (; *pattern; pattern++)
		if (!strchr("*?[]", *pattern))
			weight++;
	return weight;
}
