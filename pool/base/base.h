/*
 * What every part of sandpool may use without asking: compiler attributes, assertions,
 * cleanup of locals, sizes of arrays. Holds no state and makes no system call of its own
 * except to abort.
 */
#ifndef SP_BASE_BASE_H
#define SP_BASE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SP_PRINTF(fmt, args)               __attribute__((format(printf, fmt, args)))
#define SP_NORETURN                        __attribute__((noreturn))
#define SP_MUST_CHECK                      __attribute__((warn_unused_result))
#define SP_CLEANUP(fn)                     __attribute__((cleanup(fn)))
#define SP_ARRAY_SIZE(a)                   (sizeof(a) / sizeof((a)[0]))
#define SP_CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#define SP_MIN(a, b)                       ((a) < (b) ? (a) : (b))
#define SP_MAX(a, b)                       ((a) > (b) ? (a) : (b))
#define SP_UNUSED(x)                       ((void)(x))

/* 1 in a build with AddressSanitizer; gcc and clang say it in different words. */
#if defined(__SANITIZE_ADDRESS__)
#define SP_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SP_SANITIZED 1
#endif
#endif
#ifndef SP_SANITIZED
#define SP_SANITIZED 0
#endif

/* Units, so that no bare 1000 or 1024 stands in the code. */
#define SP_MS_PER_S  INT64_C(1000)
#define SP_NS_PER_MS INT64_C(1000000)
#define SP_NS_PER_S  INT64_C(1000000000)
#define SP_KIB       INT64_C(1024)
#define SP_MIB       (INT64_C(1024) * 1024)

/*
 * For our own bugs only; stays on in release builds. The expression must have no side effect and
 * must never depend on input from outside: a client that can trigger one has found a bug of ours.
 */
#define sp_assert(expr)                                              \
	do {                                                         \
		if (__builtin_expect(!(expr), 0))                    \
			sp_assert_failed(#expr, __FILE__, __LINE__); \
	} while (0)

SP_NORETURN void sp_assert_failed(const char *expr, const char *file, int line);

#endif
