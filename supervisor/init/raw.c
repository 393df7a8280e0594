/*
 * The one call that C cannot express: a child that returns from the kernel on another stack.
 */
#include "supervisor/init/raw.h"

#include <sys/syscall.h>

#if defined(__x86_64__)

pid_t raw_clone3(const struct clone_args *args, void (*entry)(void *), void *argument)
{
	long result;

	/* rbp is cleared so that a backtrace of the child ends; the stack is 16-byte aligned here,
	 * and `call` makes it what the ABI says a function starts with. */
	__asm__ volatile("syscall\n\t"
			 "testq %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xorl %%ebp, %%ebp\n\t"
			 "movq %[argument], %%rdi\n\t"
			 "call *%[entry]\n\t"
			 "ud2\n"
			 "1:"
			 : "=a"(result)
			 : "0"((long)SYS_clone3), "D"(args),
			   "S"(sizeof(*args)), [entry] "r"(entry), [argument] "r"(argument)
			 : "rcx", "r11", "memory");
	return (pid_t)result;
}

#else

pid_t raw_clone3(const struct clone_args *args, void (*entry)(void *), void *argument)
{
	register long x8 __asm__("x8") = SYS_clone3;
	register long x0 __asm__("x0") = (long)args;
	register long x1 __asm__("x1") = sizeof(*args);

	__asm__ volatile("svc 0\n\t"
			 "cbnz x0, 1f\n\t"
			 "mov x29, xzr\n\t"
			 "mov x0, %[argument]\n\t"
			 "blr %[entry]\n\t"
			 "brk 1\n"
			 "1:"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), [entry] "r"(entry), [argument] "r"(argument)
			 : "x30", "memory", "cc");
	return (pid_t)x0;
}

#endif
