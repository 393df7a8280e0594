/*
 * The small languages of the lifecycle API: quantities, times, labels, names of images. Pure.
 */
#ifndef SP_API_OS_VALUES_H
#define SP_API_OS_VALUES_H

#include "pool/base/err.h"

#define SP_OS_TIME_MAX  80u
#define SP_OS_IMAGE_MAX 512u /* bytes of an image's name */

/* Kubernetes quantities. "500m", "0.5" → 500 thousandths of a core. INVALID_ARGUMENT. */
int sp_os_parse_cpu(const char *text, int64_t *ret_millis, struct sp_err *err);
/* "512Mi", "1.5Gi", "2G", "1048576" → bytes, rounded up. INVALID_ARGUMENT. */
int sp_os_parse_memory(const char *text, uint64_t *ret_bytes, struct sp_err *err);

/* RFC 3339: date, time, an offset or Z, any number of digits of a second. Milliseconds since 1970,
 * rounded down. INVALID_ARGUMENT. */
int sp_os_parse_time(const char *text, int64_t *ret_wall_ms, struct sp_err *err);
/* "2026-11-30T12:00:00.123000Z"; "" before 1970 and beyond the year 9999. */
void sp_os_format_time(int64_t wall_ms, char text[SP_OS_TIME_MAX]);

/* Of metadata. INVALID_ARGUMENT says what is wrong with it. */
int sp_os_label_check(const char *key, const char *value, struct sp_err *err);

/* Does a pool with this entry of `images` serve the image? Wildcards as in fnmatch(3), '*' also
 * over slashes. "docker.io/library/python" is the same image as "python:latest". */
bool sp_os_image_matches(const char *pattern, const char *image);
/* How much a pattern says: of two that match, the larger one counts. */
size_t sp_os_image_weight(const char *pattern);

#endif
