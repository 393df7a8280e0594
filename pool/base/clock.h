/*
 * The two clocks. Every deadline of sandpool is CLOCK_BOOTTIME (it also runs while the machine
 * sleeps, and nobody can set it); the wall clock is only ever shown to people.
 */
#ifndef SP_BASE_CLOCK_H
#define SP_BASE_CLOCK_H

#include <stdint.h>

int64_t sp_clock_boot_ms(void);
int64_t sp_clock_boot_ns(void);
int64_t sp_clock_wall_ms(void);

#endif
