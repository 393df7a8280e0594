/*
 * Printing numbers. Most metrics are whole and small, and those are printed without the C library.
 */
#include "supervisor/metrics/number.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHOLE_MAX 9007199254740992.0 /* 2^53: up to here every whole number is exact */

const char *sp_number_print_count(uint64_t value, char text[SP_NUMBER_SIZE])
{
	char digits[SP_NUMBER_SIZE];
	size_t at = sizeof(digits);

	digits[--at] = '\0';
	do {
		digits[--at] = (char)('0' + value % 10);
		value /= 10;
	} while (value > 0);
	memcpy(text, digits + at, sizeof(digits) - at);
	return text;
}

/* The thread's locale may have another decimal point; strtod expects the same one. */
static void print_fraction(double value, char text[SP_NUMBER_SIZE])
{
	const char *point = localeconv()->decimal_point;
	size_t point_len = strlen(point);
	char *at;

	for (int digits = 15; digits <= 17; digits++) {
		double back;

		(void)snprintf(text, SP_NUMBER_SIZE, "%.*g", digits, value);
		back = strtod(text, NULL);
		if (back >= value && back <= value)
			break;
	}
	at = strcmp(point, ".") != 0 ? strstr(text, point) : NULL;
	if (!at)
		return;
	*at = '.';
	memmove(at + 1, at + point_len, strlen(at + point_len) + 1);
}

const char *sp_number_print(double value, char text[SP_NUMBER_SIZE])
{
	if (isnan(value)) {
		memcpy(text, "NaN", sizeof("NaN"));
	} else if (isinf(value)) {
		memcpy(text, value > 0 ? "+Inf" : "-Inf", sizeof("+Inf"));
	} else if (fabs(value) < WHOLE_MAX && value >= trunc(value) && value <= trunc(value)) {
		char *digits = text;

		if (value < 0)
			*digits++ = '-';
		(void)sp_number_print_count((uint64_t)fabs(value), digits);
	} else {
		print_fraction(value, text);
	}
	return text;
}
