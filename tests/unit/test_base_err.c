/*
 * The error object and the table of codes.
 */
#include "pool/base/err.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

Test(err, says_what_was_tried_and_what_the_kernel_said)
{
	struct sp_err err = {0};

	cr_assert(sp_err_set(&err, -ENOENT, "open '%s'", "/x") == -ENOENT);
	cr_assert(strcmp(err.message, "open '/x': No such file or directory") == 0);
	cr_assert(sp_err_client_code(&err) == SP_CODE_NOT_FOUND);
	cr_assert(sp_err_wrap(&err, -EIO, "start pool '%s'", "p") == -ENOENT);
	cr_assert(strcmp(err.message, "start pool 'p': open '/x': No such file or directory") == 0);
	sp_err_clear(&err);
	cr_assert(err.status == 0 && err.message[0] == '\0');
}

Test(err, may_be_absent)
{
	cr_assert(sp_err_set(NULL, -EIO, "x") == -EIO);
	cr_assert(sp_err_code(NULL, SP_CODE_CONFLICT, -EEXIST, "x") == -EEXIST);
	cr_assert(sp_err_wrap(NULL, -EIO, "x") == -EIO);
	sp_err_clear(NULL);
}

Test(err, code_goes_to_the_client_as_it_is)
{
	struct sp_err err;

	cr_assert(sp_err_code(&err, SP_CODE_POOL_EMPTY, -EAGAIN, "pool '%s'", "p") == -EAGAIN);
	cr_assert(strcmp(err.message, "pool 'p'") == 0);
	cr_assert(sp_err_client_code(&err) == SP_CODE_POOL_EMPTY);
	cr_assert(sp_err_wrap(&err, -EIO, "acquire") == -EAGAIN);
	cr_assert(err.code == SP_CODE_POOL_EMPTY);
}

Test(err, a_long_message_is_cut)
{
	char text[2 * SP_ERR_MESSAGE_MAX];
	struct sp_err err;

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	(void)sp_err_set(&err, -EIO, "%s", text);
	cr_assert(strlen(err.message) == SP_ERR_MESSAGE_MAX - 1);
	(void)sp_err_wrap(&err, -EIO, "outer");
	cr_assert(strncmp(err.message, "outer: xxx", 10) == 0);
	cr_assert(strlen(err.message) == SP_ERR_MESSAGE_MAX - 1);
}

Test(err, errno_becomes_a_code)
{
	static const struct {
		int status;
		enum sp_code code;
	} rows[] = {
		{-EINVAL, SP_CODE_INVALID_ARGUMENT},
		{-EACCES, SP_CODE_FORBIDDEN},
		{-EPERM, SP_CODE_FORBIDDEN},
		{-E2BIG, SP_CODE_PAYLOAD_TOO_LARGE},
		{-ENOMEM, SP_CODE_UNAVAILABLE},
		{-EAGAIN, SP_CODE_UNAVAILABLE},
		{-EIO, SP_CODE_INTERNAL},
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(rows); i++) {
		struct sp_err err;

		(void)sp_err_set(&err, rows[i].status, "x");
		cr_assert(sp_err_client_code(&err) == rows[i].code);
	}
}

Test(codes, names_go_both_ways)
{
	for (int i = 1; i < SP_CODE_COUNT; i++) {
		enum sp_code code = (enum sp_code)i;

		cr_assert(sp_code_from_name(sp_code_name(code)) == code);
		cr_assert(sp_code_http_status(code) >= 400 && sp_code_text(code)[0] != '\0');
	}
	cr_assert(sp_code_from_name("NO_SUCH") == SP_CODE_NONE);
	cr_assert(strcmp(sp_code_name(SP_CODE_COUNT), "INTERNAL") == 0);
}
