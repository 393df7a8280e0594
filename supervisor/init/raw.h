/*
 * System calls without libc.
 *
 * A child made with CLONE_VM shares PID 1's memory, errno included, and runs at the same time: one
 * failing libc call in it could change the errno that PID 1 is about to read. These return the
 * kernel's value (negative errno) and write nothing.
 */
#ifndef SP_INIT_RAW_H
#define SP_INIT_RAW_H

#include "pool/base/base.h"

#include <linux/sched.h>
#include <sys/types.h>

#if defined(__x86_64__)

static inline long raw_call(long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

#elif defined(__aarch64__)

static inline long raw_call(long number, long a, long b, long c, long d, long e, long f)
{
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc 0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory", "cc");
	return x0;
}

#else
#error "sandpool-init: x86-64 and arm64 only"
#endif

#define RAW0(number)          raw_call((number), 0, 0, 0, 0, 0, 0)
#define RAW1(number, a)       raw_call((number), (long)(a), 0, 0, 0, 0, 0)
#define RAW2(number, a, b)    raw_call((number), (long)(a), (long)(b), 0, 0, 0, 0)
#define RAW3(number, a, b, c) raw_call((number), (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define RAW4(number, a, b, c, d) \
	raw_call((number), (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define RAW5(number, a, b, c, d, e) \
	raw_call((number), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)
#define RAW6(number, a, b, c, d, e, f) \
	raw_call((number), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

/*
 * clone3(2) with a stack of the child's own (args->stack, stack_size): the child runs
 * entry(argument) and must not return from it. The pid, or a negative errno. Not inline: the
 * child's first instructions must not depend on what the compiler keeps on the parent's stack.
 */
pid_t raw_clone3(const struct clone_args *args, void (*entry)(void *), void *argument);

#endif
