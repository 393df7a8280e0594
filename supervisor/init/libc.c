/*
 * All of libc that PID 1 has: the start, strings, system calls with errno.
 *
 * Every sandbox starts this program, so what a libc does before main is paid by each. glibc asks
 * the processor what it can do, and on a virtual machine each CPUID is an exit to the hypervisor:
 * 340 µs of the 1,350 that a sandbox took, and 35 KiB that are private to each. Nothing here needs
 * any of it: one thread, no heap, no streams, no locale.
 *
 * The headers are glibc's, so the compiler checks each definition against the declaration that the
 * callers see; a call that is missing here is an error of the linker. The structures that go to the
 * kernel as they are (stat, msghdr, epoll_event, statx, …) are the kernel's own on x86-64 and
 * arm64. Stack protector and _FORTIFY_SOURCE work as with glibc.
 */
#undef _FORTIFY_SOURCE /* the functions themselves, not their checked callers */
#ifndef __clang__
#pragma GCC optimize("no-tree-loop-distribute-patterns") /* memcpy's loop is no call of memcpy */
#endif

#include "supervisor/init/raw.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KERNEL_SIGSET 8u /* bytes; glibc's type is longer */
#define DECIMAL       10u
#define DIGITS_MAX    20u /* of 64 bits */

int main(void);
SP_NORETURN void init_libc_start(const uintptr_t *stack);
SP_NORETURN void __stack_chk_fail(void);
int __snprintf_chk(char *text, size_t size, int flag, size_t room, const char *format, ...)
	__attribute__((format(printf, 5, 6)));
void *__memcpy_chk(void *to, const void *from, size_t len, size_t room);
void *__memset_chk(void *to, int byte, size_t len, size_t room);

/* --- start -------------------------------------------------------------------------------------
 */

/* What gcc and clang compare at the end of a function that has an array. */
#if defined(__x86_64__)

static struct {
	void *self;
	uintptr_t unused[4];
	uintptr_t guard; /* %fs:0x28 */
} thread = {.self = &thread};

static void set_guard(uintptr_t guard)
{
	thread.guard = guard;
	if (RAW2(SYS_arch_prctl, 0x1002 /* ARCH_SET_FS */, &thread) != 0)
		abort();
}

__asm__(".text\n"
	".globl _start\n"
	".type _start, @function\n"
	"_start:\n\t"
	"endbr64\n\t"
	"xorl %ebp, %ebp\n\t"
	"movq %rsp, %rdi\n\t"
	"andq $-16, %rsp\n\t"
	"call init_libc_start\n\t"
	"ud2\n");

#else

uintptr_t __stack_chk_guard;

static void set_guard(uintptr_t guard)
{
	__stack_chk_guard = guard;
}

__asm__(".text\n"
	".globl _start\n"
	".type _start, %function\n"
	"_start:\n\t"
	"mov x29, #0\n\t"
	"mov x30, #0\n\t"
	"mov x0, sp\n\t"
	"bl init_libc_start\n\t"
	"brk #1\n");

#endif

/* The kernel leaves argc, argv, NULL, envp, NULL and pairs of numbers. */
static const void *random_bytes(const uintptr_t *stack)
{
	const uintptr_t *at = stack + 1 + stack[0] + 1;

	while (*at != 0)
		at++;
	for (at++; at[0] != AT_NULL; at += 2)
		if (at[0] == AT_RANDOM)
			return (const void *)at[1];
	return NULL;
}

SP_NORETURN void init_libc_start(const uintptr_t *stack)
{
	const void *random = random_bytes(stack);
	uintptr_t guard;

	if (!random)
		abort();
	memcpy(&guard, random, sizeof(guard));
	set_guard(guard & ~(uintptr_t)0xff); /* a string that runs over ends there */
	_exit(main());
}

/* A trap kills PID 1 too, which ignores the signals that it sends itself. */
SP_NORETURN void abort(void)
{
	for (;;)
		__builtin_trap();
}

SP_NORETURN void _exit(int code)
{
	for (;;)
		(void)RAW1(SYS_exit_group, code);
}

SP_NORETURN void __stack_chk_fail(void)
{
	abort();
}

/* One thread, and its children do not touch it (raw.h). */
int *__errno_location(void)
{
	static int value;

	return &value;
}

/* --- memory and strings ------------------------------------------------------------------------
 */

void *memcpy(void *restrict to, const void *restrict from, size_t len)
{
	char *out = to;
	const char *in = from;

	while (len-- > 0)
		*out++ = *in++;
	return to;
}

void *memset(void *to, int byte, size_t len)
{
	char *out = to;

	while (len-- > 0)
		*out++ = (char)byte;
	return to;
}

int memcmp(const void *one, const void *two, size_t len)
{
	const unsigned char *left = one;
	const unsigned char *right = two;

	for (; len > 0; len--, left++, right++)
		if (*left != *right)
			return *left - *right;
	return 0;
}

void *memchr(const void *bytes, int byte, size_t len)
{
	const char *at = bytes;

	for (; len > 0; len--, at++)
		if (*at == (char)byte)
			return (void *)(uintptr_t)at;
	return NULL;
}

size_t strlen(const char *text)
{
	size_t len = 0;

	while (text[len] != '\0')
		len++;
	return len;
}

int strcmp(const char *one, const char *two)
{
	return strncmp(one, two, SIZE_MAX);
}

int strncmp(const char *one, const char *two, size_t len)
{
	for (; len > 0; len--, one++, two++)
		if (*one != *two || *one == '\0')
			return (unsigned char)*one - (unsigned char)*two;
	return 0;
}

static bool contains(const char *set, char wanted)
{
	for (; *set != '\0'; set++)
		if (*set == wanted)
			return true;
	return false;
}

size_t strspn(const char *text, const char *set)
{
	size_t len = 0;

	while (text[len] != '\0' && contains(set, text[len]))
		len++;
	return len;
}

size_t strcspn(const char *text, const char *set)
{
	size_t len = 0;

	while (text[len] != '\0' && !contains(set, text[len]))
		len++;
	return len;
}

char *strrchr(const char *text, int wanted)
{
	const char *found = NULL;

	for (;; text++) {
		if (*text == (char)wanted)
			found = text;
		if (*text == '\0')
			return (char *)(uintptr_t)found;
	}
}

struct output {
	char *text;
	size_t size;
	size_t len; /* as if there were room */
};

static void put(struct output *out, char byte)
{
	if (out->len + 1 < out->size)
		out->text[out->len] = byte;
	out->len++;
}

static void put_text(struct output *out, const char *text)
{
	while (*text != '\0')
		put(out, *text++);
}

static void put_number(struct output *out, unsigned long value)
{
	char digits[DIGITS_MAX];
	size_t count = 0;

	do {
		digits[count++] = (char)('0' + value % DECIMAL);
		value /= DECIMAL;
	} while (value > 0);
	while (count > 0)
		put(out, digits[--count]);
}

static void put_signed(struct output *out, long value)
{
	if (value < 0)
		put(out, '-');
	put_number(out, value < 0 ? -(unsigned long)value : (unsigned long)value);
}

/* %s, %d, %u and %lu are all that is asked for here. */
int vsnprintf(char *text, size_t size, const char *format, va_list values)
{
	struct output out = {.text = text, .size = size};

	for (; *format != '\0'; format++) {
		if (*format != '%')
			put(&out, *format);
		else if (*++format == 's')
			put_text(&out, va_arg(values, const char *));
		else if (*format == 'd')
			put_signed(&out, va_arg(values, int));
		else if (*format == 'u')
			put_number(&out, va_arg(values, unsigned int));
		else if (*format == 'l' && *++format == 'u')
			put_number(&out, va_arg(values, unsigned long));
		else
			abort();
	}
	if (size > 0)
		text[SP_MIN(out.len, size - 1)] = '\0';
	return (int)out.len;
}

int snprintf(char *text, size_t size, const char *format, ...)
{
	va_list values;
	int len;

	va_start(values, format);
	len = vsnprintf(text, size, format, values);
	va_end(values);
	return len;
}

/* --- what _FORTIFY_SOURCE calls ----------------------------------------------------------------
 */

int __snprintf_chk(char *text, size_t size, int flag, size_t room, const char *format, ...)
{
	va_list values;
	int len;

	SP_UNUSED(flag);
	if (room < size)
		abort();
	va_start(values, format);
	len = vsnprintf(text, size, format, values);
	va_end(values);
	return len;
}

void *__memcpy_chk(void *to, const void *from, size_t len, size_t room)
{
	if (room < len)
		abort();
	return memcpy(to, from, len);
}

void *__memset_chk(void *to, int byte, size_t len, size_t room)
{
	if (room < len)
		abort();
	return memset(to, byte, len);
}

/* --- inline in the headers, but for a compiler that does not optimise --------------------------
 */

dev_t gnu_dev_makedev(unsigned int major, unsigned int minor)
{
	const uint64_t low = 0xff;
	const uint64_t middle = 0xfff;

	return ((uint64_t)minor & low) | ((uint64_t)major & middle) << 8 |
	       ((uint64_t)minor & ~low) << 12 | ((uint64_t)major & ~middle) << 32;
}

struct cmsghdr *__cmsg_nxthdr(struct msghdr *message, struct cmsghdr *header)
{
	char *end = (char *)message->msg_control + message->msg_controllen;
	char *next = (char *)header + CMSG_ALIGN(header->cmsg_len);

	if (header->cmsg_len < sizeof(*header) || (size_t)(end - next) < sizeof(*header) ||
	    next > end)
		return NULL;
	header = (struct cmsghdr *)(void *)next;
	return CMSG_ALIGN(header->cmsg_len) <= (size_t)(end - next) ? header : NULL;
}

/* --- system calls ------------------------------------------------------------------------------
 */

static long result(long value)
{
	if (value >= 0)
		return value;
	errno = (int)-value;
	return -1;
}

#define CALL(call) ((int)result(call))

long syscall(long number, ...)
{
	long a[6];
	va_list values;

	va_start(values, number);
	for (size_t i = 0; i < SP_ARRAY_SIZE(a); i++)
		a[i] = va_arg(values, long);
	va_end(values);
	return result(RAW6(number, a[0], a[1], a[2], a[3], a[4], a[5]));
}

int close(int fd)
{
	return CALL(RAW1(SYS_close, fd));
}

int close_range(unsigned int first, unsigned int last, int flags)
{
	return CALL(RAW3(SYS_close_range, first, last, flags));
}

int dup3(int fd, int wanted, int flags)
{
	return CALL(RAW3(SYS_dup3, fd, wanted, flags));
}

int fcntl(int fd, int command, ...)
{
	va_list values;
	long argument;

	va_start(values, command);
	argument = va_arg(values, long);
	va_end(values);
	return CALL(RAW3(SYS_fcntl, fd, command, argument));
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list values;
	long argument;

	va_start(values, request);
	argument = va_arg(values, long);
	va_end(values);
	return CALL(RAW3(SYS_ioctl, fd, request, argument));
}

/* Nothing is ever created by open(2) here: no mode. */
int openat(int dir_fd, const char *path, int flags, ...) /* ban-ok: the definition */
{
	return CALL(RAW4(SYS_openat, dir_fd, path, flags, 0));
}

int open(const char *path, int flags, ...) /* ban-ok: the definition */
{
	return CALL(RAW4(SYS_openat, AT_FDCWD, path, flags, 0));
}

ssize_t read(int fd, void *buffer, size_t size)
{
	return result(RAW3(SYS_read, fd, buffer, size));
}

ssize_t pread(int fd, void *buffer, size_t size, off_t offset)
{
	return result(RAW4(SYS_pread64, fd, buffer, size, offset));
}

ssize_t write(int fd, const void *data, size_t len)
{
	return result(RAW3(SYS_write, fd, data, len));
}

int pipe2(int ends[2], int flags)
{
	return CALL(RAW2(SYS_pipe2, ends, flags));
}

int fstat(int fd, struct stat *info)
{
	return CALL(RAW2(SYS_fstat, fd, info));
}

int statx(int dir_fd, const char *restrict path, int flags, unsigned int mask,
	  struct statx *restrict info)
{
	return CALL(RAW5(SYS_statx, dir_fd, path, flags, mask, info));
}

int fchmod(int fd, mode_t mode)
{
	return CALL(RAW2(SYS_fchmod, fd, mode));
}

int fchown(int fd, uid_t uid, gid_t gid)
{
	return CALL(RAW3(SYS_fchown, fd, uid, gid));
}

int fchownat(int dir_fd, const char *path, uid_t uid, gid_t gid, int flags)
{
	return CALL(RAW5(SYS_fchownat, dir_fd, path, uid, gid, flags));
}

int mkdirat(int dir_fd, const char *path, mode_t mode)
{
	return CALL(RAW3(SYS_mkdirat, dir_fd, path, mode));
}

int mknodat(int dir_fd, const char *path, mode_t mode, dev_t device)
{
	return CALL(RAW4(SYS_mknodat, dir_fd, path, mode, device));
}

int symlinkat(const char *target, int dir_fd, const char *path)
{
	return CALL(RAW3(SYS_symlinkat, target, dir_fd, path));
}

int chdir(const char *path)
{
	return CALL(RAW1(SYS_chdir, path));
}

int fchdir(int fd)
{
	return CALL(RAW1(SYS_fchdir, fd));
}

mode_t umask(mode_t mask)
{
	return (mode_t)RAW1(SYS_umask, mask);
}

int fsopen(const char *type, unsigned int flags)
{
	return CALL(RAW2(SYS_fsopen, type, flags));
}

int fsconfig(int fd, unsigned int command, const char *key, const void *value, int number)
{
	return CALL(RAW5(SYS_fsconfig, fd, command, key, value, number));
}

int fsmount(int fd, unsigned int flags, unsigned int attributes)
{
	return CALL(RAW3(SYS_fsmount, fd, flags, attributes));
}

int open_tree(int dir_fd, const char *path, unsigned int flags)
{
	return CALL(RAW3(SYS_open_tree, dir_fd, path, flags));
}

int move_mount(int from_fd, const char *from, int to_fd, const char *to, unsigned int flags)
{
	return CALL(RAW5(SYS_move_mount, from_fd, from, to_fd, to, flags));
}

int mount_setattr(int dir_fd, const char *path, unsigned int flags, struct mount_attr *attributes,
		  size_t size)
{
	return CALL(RAW5(SYS_mount_setattr, dir_fd, path, flags, attributes, size));
}

int umount2(const char *target, int flags)
{
	return CALL(RAW2(SYS_umount2, target, flags));
}

int unshare(int flags)
{
	return CALL(RAW1(SYS_unshare, flags));
}

int sethostname(const char *name, size_t len)
{
	return CALL(RAW2(SYS_sethostname, name, len));
}

int setdomainname(const char *name, size_t len)
{
	return CALL(RAW2(SYS_setdomainname, name, len));
}

int prctl(int option, ...)
{
	unsigned long a[4];
	va_list values;

	va_start(values, option);
	for (size_t i = 0; i < SP_ARRAY_SIZE(a); i++)
		a[i] = va_arg(values, unsigned long);
	va_end(values);
	return CALL(RAW5(SYS_prctl, option, a[0], a[1], a[2], a[3]));
}

int getrlimit(__rlimit_resource_t resource, struct rlimit *limit)
{
	return CALL(RAW4(SYS_prlimit64, 0, resource, NULL, limit));
}

int sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *set)
{
	return CALL(RAW3(SYS_sched_setaffinity, pid, size, set));
}

pid_t getpid(void)
{
	return (pid_t)RAW0(SYS_getpid);
}

int kill(pid_t pid, int number)
{
	return CALL(RAW2(SYS_kill, pid, number));
}

pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage)
{
	return CALL(RAW4(SYS_wait4, pid, status, options, usage));
}

pid_t waitpid(pid_t pid, int *status, int options)
{
	return wait4(pid, status, options, NULL);
}

int waitid(idtype_t type, id_t id, siginfo_t *info, int options)
{
	return CALL(RAW5(SYS_waitid, type, id, info, options, NULL));
}

int sigemptyset(sigset_t *set)
{
	memset(set, 0, sizeof(*set));
	return 0;
}

int sigfillset(sigset_t *set)
{
	memset(set, UCHAR_MAX, sizeof(*set));
	return 0;
}

int sigaddset(sigset_t *set, int number)
{
	const size_t bits = CHAR_BIT * sizeof(set->__val[0]);

	set->__val[(size_t)(number - 1) / bits] |= 1UL << ((size_t)(number - 1) % bits);
	return 0;
}

int sigprocmask(int how, const sigset_t *restrict set, sigset_t *restrict old)
{
	return CALL(RAW4(SYS_rt_sigprocmask, how, set, old, KERNEL_SIGSET));
}

int signalfd(int fd, const sigset_t *set, int flags)
{
	return CALL(RAW4(SYS_signalfd4, fd, set, KERNEL_SIGSET, flags));
}

int timerfd_create(clockid_t clock, int flags)
{
	return CALL(RAW2(SYS_timerfd_create, clock, flags));
}

int timerfd_settime(int fd, int flags, const struct itimerspec *value, struct itimerspec *old)
{
	return CALL(RAW4(SYS_timerfd_settime, fd, flags, value, old));
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	return CALL(RAW2(SYS_clock_gettime, clock, now));
}

int nanosleep(const struct timespec *pause, struct timespec *left)
{
	return CALL(RAW2(SYS_nanosleep, pause, left));
}

int epoll_create1(int flags)
{
	return CALL(RAW1(SYS_epoll_create1, flags));
}

int epoll_ctl(int epoll_fd, int operation, int fd, struct epoll_event *event)
{
	return CALL(RAW4(SYS_epoll_ctl, epoll_fd, operation, fd, event));
}

int epoll_wait(int epoll_fd, struct epoll_event *events, int count, int wait_ms)
{
	return CALL(RAW6(SYS_epoll_pwait, epoll_fd, events, count, wait_ms, NULL, KERNEL_SIGSET));
}

int poll(struct pollfd *items, nfds_t count, int wait_ms)
{
	struct timespec wait = {.tv_sec = wait_ms / 1000, .tv_nsec = wait_ms % 1000 * 1000000L};

	return CALL(RAW5(SYS_ppoll, items, count, wait_ms < 0 ? NULL : &wait, NULL, KERNEL_SIGSET));
}

int socket(int family, int type, int protocol) /* ban-ok: the definition */
{
	return CALL(RAW3(SYS_socket, family, type, protocol));
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	return result(RAW3(SYS_sendmsg, fd, message, flags));
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t size)
{
	return CALL(RAW5(SYS_setsockopt, fd, level, name, value, size));
}

int connect(int fd, __CONST_SOCKADDR_ARG address, socklen_t size)
{
	return CALL(RAW3(SYS_connect, fd, address.__sockaddr__, size));
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	return result(RAW3(SYS_recvmsg, fd, message, flags));
}

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
	return (void *)result(RAW6(SYS_mmap, at, size, protection, flags, fd, offset));
}

int munmap(void *at, size_t size)
{
	return CALL(RAW2(SYS_munmap, at, size));
}

int mprotect(void *at, size_t size, int protection)
{
	return CALL(RAW3(SYS_mprotect, at, size, protection));
}

int madvise(void *at, size_t size, int advice)
{
	return CALL(RAW3(SYS_madvise, at, size, advice));
}
