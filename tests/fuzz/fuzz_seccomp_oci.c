/*
 * OCI seccomp profiles as text. Property: a refused profile has a message; an accepted one gives
 * two programs that the kernel's own rules accept (loads inside the data, jumps forward and inside,
 * the last instruction a return).
 */
#include "tests/fuzz/fuzz.h"

#include "supervisor/sandbox/seccomp_compile.h"

#include <linux/filter.h>
#include <linux/seccomp.h>

static void check_jump(const struct sock_filter *op, size_t at, size_t count)
{
	if (BPF_OP(op->code) == BPF_JA)
		require(at + 1 + op->k < count);
	else
		require(at + 1 + op->jt < count && at + 1 + op->jf < count);
}

static void check_program(const struct sp_seccomp_program *program)
{
	const struct sock_filter *code = (const void *)program->bytes;
	size_t count = program->length / sizeof(*code);

	require(count > 0 && count <= BPF_MAXINSNS && program->length % sizeof(*code) == 0);
	for (size_t i = 0; i < count; i++) {
		if (BPF_CLASS(code[i].code) == BPF_JMP)
			check_jump(&code[i], i, count);
		else if (BPF_CLASS(code[i].code) == BPF_LD)
			require(code[i].k % 4 == 0 && code[i].k < sizeof(struct seccomp_data));
	}
	require(BPF_CLASS(code[count - 1].code) == BPF_RET);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sp_seccomp_program big;
	struct sp_seccomp_program tiny;
	struct sp_err err = {0};

	if (sp_seccomp_compile_oci((const char *)data, size, &big, &tiny, &err) < 0) {
		require(err.message[0] != '\0');
		return 0;
	}
	check_program(&big);
	check_program(&tiny);
	sp_seccomp_program_done(&big);
	sp_seccomp_program_done(&tiny);
	return 0;
}
