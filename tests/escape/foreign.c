/*
 * Payload: enter the kernel by the doors beside the native one, int 0x80 (i386 numbers) and x32
 * (bit 30), which a filter written for native numbers does not know. Prints "NAME ok|ERRNO|signal
 * N".
 *
 * No 32-bit compiler is needed: int 0x80 works from 64-bit code with arguments below 4 GiB.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __x86_64__
#define X32_BIT 0x40000000L

static long int80(long number, long one, long two)
{
	long result;

	__asm__ volatile("int $0x80"
			 : "=a"(result)
			 : "a"(number), "b"(one), "c"(two), "d"(0L), "S"(0L), "D"(0L)
			 : "memory", "r8", "r9", "r10", "r11");
	return result;
}

static long x32(long number, long one, long two)
{
	long result = syscall(X32_BIT | number, one, two, 0L, 0L, 0L);

	return result < 0 ? -errno : result;
}

static void attempt(const char *name, long (*call)(long, long, long), long number)
{
	int status = 0;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child < 0)
		_exit(2);
	if (child == 0) {
		long result = call(number, 0, 0);

		_exit(result < 0 ? (int)-result : 0);
	}
	if (waitpid(child, &status, 0) != child)
		_exit(2);
	if (WIFSIGNALED(status))
		printf("%s signal %d\n", name, WTERMSIG(status));
	else if (WEXITSTATUS(status))
		printf("%s %d\n", name, WEXITSTATUS(status));
	else
		printf("%s ok\n", name);
}

int main(void)
{
	attempt("int80_getpid", int80, 20);
	attempt("int80_mount", int80, 21);
	attempt("int80_ptrace", int80, 26);
	attempt("int80_unshare", int80, 310);
	attempt("x32_getpid", x32, SYS_getpid);
	attempt("x32_mount", x32, SYS_mount);
	attempt("x32_unshare", x32, SYS_unshare);
	attempt("x32_ptrace", x32, 521); /* has a number of its own there */
	return 0;
}
#else
int main(void)
{
	puts("none");
	return 0;
}
#endif
