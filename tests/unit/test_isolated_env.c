/*
 * Which variables of a sandbox an isolated session gets.
 */
#include "supervisor/api/execd_isolated.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

Test(isolated_env, secrets_by_their_names)
{
	static const char *const secret[] = {
		"OPENAI_API_KEY=x", "openai_api_key=x", "GH_TOKEN=x",    "_TOKEN=x",
		"DB_PASSWORD=",     "A_SECRET=x=y",     "AWS_REGION=eu", "aws_=x",
		"ALI_X=x",          "ALIYUN_X=x",       "K8S_X=x",       "KUBE_X=x",
	};
	static const char *const plain[] = {
		"PATH=/bin",     "TOKEN=x",    "API_KEY=x",    "MY_TOKENS=x",    "SECRET_X=x",
		"XAWS_REGION=x", "PASSWORD=x", "KUBECONFIG=x", "VALUE=GH_TOKEN",
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(secret); i++)
		cr_assert(!sp_isolated_env_passes(secret[i], false, NULL), "%s", secret[i]);
	for (size_t i = 0; i < SP_ARRAY_SIZE(plain); i++)
		cr_assert(sp_isolated_env_passes(plain[i], false, NULL), "%s", plain[i]);
}

Test(isolated_env, keys_replace_the_patterns)
{
	json_t *keys = json_pack("[s, s]", "A", "EXECD_ENVS");
	json_t *none = json_array();

	cr_assert(!sp_isolated_env_passes("A=1", false, keys));
	cr_assert(sp_isolated_env_passes("AB=1", false, keys));
	cr_assert(sp_isolated_env_passes("GH_TOKEN=1", false, keys));
	cr_assert(!sp_isolated_env_passes("GH_TOKEN=1", false, none));
	cr_assert(sp_isolated_env_passes("A=1", true, keys));
	cr_assert(!sp_isolated_env_passes("AB=1", true, keys));
	cr_assert(!sp_isolated_env_passes("a=1", true, keys));
	cr_assert(!sp_isolated_env_passes("A=1", true, none));
	cr_assert(!sp_isolated_env_passes("A=1", true, NULL));
	json_decref(keys);
	json_decref(none);
}

Test(isolated_env, execds_own_never_pass)
{
	static const char *const own[] = {"EXECD_ACCESS_TOKEN=x", "JUPYTER_HOST=x",
					  "JUPYTER_TOKEN=x", "EXECD_ISOLATION_CONFIG=x",
					  "EXECD_ENVS=x"};
	json_t *keys = json_pack("[s, s, s, s, s]", "EXECD_ACCESS_TOKEN", "JUPYTER_HOST",
				 "JUPYTER_TOKEN", "EXECD_ISOLATION_CONFIG", "EXECD_ENVS");
	json_t *other = json_pack("[s]", "OTHER");

	for (size_t i = 0; i < SP_ARRAY_SIZE(own); i++) {
		cr_assert(!sp_isolated_env_passes(own[i], true, keys), "%s", own[i]);
		cr_assert(!sp_isolated_env_passes(own[i], false, other), "%s", own[i]);
		cr_assert(!sp_isolated_env_passes(own[i], false, NULL), "%s", own[i]);
	}
	cr_assert(sp_isolated_env_passes("EXECD_ENVS_X=x", false, NULL));
	json_decref(keys);
	json_decref(other);
}

Test(isolated_env, names_too_long_to_be_looked_at)
{
	char entry[300];

	memset(entry, 'A', sizeof(entry));
	memcpy(entry + 255, "=x", 3);
	cr_assert(sp_isolated_env_passes(entry, false, NULL));
	memset(entry, 'A', sizeof(entry));
	memcpy(entry + 256, "=x", 3);
	cr_assert(!sp_isolated_env_passes(entry, false, NULL));
}

static int read_with_keys(size_t count)
{
	struct sp_os_sandbox *os = sp_os_sandbox_new();
	json_t *body = json_pack("{s:{s:s}, s:{s:s, s:[]}}", "workspace", "path", "/w",
				 "env_passthrough", "mode", "allow", "keys");
	json_t *keys = json_object_get(json_object_get(body, "env_passthrough"), "keys");
	struct sp_isolated_wish wish = {0};
	struct sp_err err = {0};
	char *text;
	int status;

	for (size_t i = 0; i < count; i++)
		cr_assert(json_array_append_new(keys, json_string("A")) == 0);
	text = json_dumps(body, JSON_COMPACT);
	cr_assert(os && text);
	status = sp_isolated_wish_read(&wish, os, text, strlen(text), &err);
	cr_assert(status == 0 || err.code == SP_CODE_INVALID_ARGUMENT);
	sp_isolated_wish_done(&wish);
	sp_os_unref(os);
	json_decref(body);
	free(text);
	return status;
}

/* Each is compared with each variable of the sandbox. */
Test(isolated_env, as_many_keys_as_variables_and_not_one_more)
{
	cr_assert(read_with_keys(SP_EXECD_ENV_MAX) == 0);
	cr_assert(read_with_keys(SP_EXECD_ENV_MAX + 1) == -EINVAL);
}
