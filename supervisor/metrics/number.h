/*
 * Numbers as Prometheus reads them: a point whatever the locale says, the fewest digits that read
 * back as the same bits, +Inf, -Inf and NaN by name. No allocation.
 */
#ifndef SP_METRICS_NUMBER_H
#define SP_METRICS_NUMBER_H

#include "pool/base/base.h"

#define SP_NUMBER_SIZE 32u

/* Both return text. */
const char *sp_number_print(double value, char text[SP_NUMBER_SIZE]);
const char *sp_number_print_count(uint64_t value, char text[SP_NUMBER_SIZE]);

#endif
