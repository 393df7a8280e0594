/*
 * Which variables of a sandbox an isolated session gets.
 */
#include "supervisor/api/execd_isolated.h"

#include <criterion/criterion.h>
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
