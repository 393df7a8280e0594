/*
 * Bodies of creates: what is read, what is refused, and in which words.
 */
#include "supervisor/api/os_body.h"

#include "pool/base/buf.h"
#include "supervisor/api/os_sandboxes.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD  "{\"image\":{\"uri\":\"python:3\"},\"entrypoint\":[\"true\"]"
#define GOOD  HEAD ",\"resourceLimits\":{\"cpu\":\"1\"}"
#define LABEL "SANDBOX::INVALID_METADATA_LABEL"
#define PARAM "SANDBOX::INVALID_PARAMETER"
#define UNSUP "SANDBOX::API_NOT_SUPPORTED"

static int parse(struct sp_os_create *create, const char *text, struct sp_os_refusal *refusal)
{
	*refusal = (struct sp_os_refusal){0};
	return sp_os_create_parse(create, text, strlen(text), refusal);
}

/* "STATUS CODE PLACE" of a refusal. */
static const char *refused(const char *text)
{
	static char said[256];
	struct sp_os_refusal refusal;
	struct sp_os_create create;

	if (parse(&create, text, &refusal) == 0) {
		sp_os_create_done(&create);
		return "taken";
	}
	cr_assert(refusal.message[0]);
	(void)snprintf(said, sizeof(said), "%u %s %s", refusal.status,
		       refusal.code ? refusal.code : "-", refusal.place);
	return said;
}

#define REFUSED(text, words) cr_assert(strcmp(refused(text), words) == 0, "%s", refused(text))

Test(api_os_body, what_the_javascript_client_sends)
{
	struct sp_os_refusal refusal;
	struct sp_os_create create;

	cr_assert(parse(&create,
			"{\"image\":{\"uri\":\"python:3\"},\"entrypoint\":[\"tail\",\"-f\",\"/dev/"
			"null\"],\"timeout\":600,\"resourceLimits\":{\"cpu\":\"1\",\"memory\":"
			"\"2Gi\"},"
			"\"env\":{\"A\":\"b\",\"N\":null},\"metadata\":{\"team\":\"x\"},"
			"\"extensions\":{"
			"\"opensandbox.extensions.a\":\"1\"},\"secureAccess\":false,\"new\":[1]}",
			&refusal) == 0);
	cr_assert(strcmp(create.image, "python:3") == 0);
	cr_assert(json_array_size(create.entrypoint) == 3);
	cr_assert(create.timeout_s == 600 && create.cpu_millis == 1000);
	cr_assert(create.memory_bytes == UINT64_C(2) << 30);
	cr_assert(create.egress == SP_OS_EGRESS_ANY && !create.pool && create.extend_s == 0);
	sp_os_create_done(&create);
}

Test(api_os_body, null_is_absent)
{
	struct sp_os_refusal refusal;
	struct sp_os_create create;

	cr_assert(parse(&create,
			GOOD ",\"timeout\":null,\"metadata\":null,\"env\":null,\"volumes\":null,"
			     "\"networkPolicy\":null,\"platform\":null,\"snapshotId\":null,"
			     "\"credentialProxy\":null,\"extensions\":null} trailing",
			&refusal) == 0);
	cr_assert(create.timeout_s == 0 && !create.metadata && !create.env);
	sp_os_create_done(&create);
}

Test(api_os_body, a_pool_by_name_needs_nothing_else)
{
	struct sp_os_refusal refusal;
	struct sp_os_create create;

	cr_assert(parse(&create, "{\"extensions\":{\"poolRef\":\"p\"}}", &refusal) == 0);
	cr_assert(strcmp(create.pool, "p") == 0 && !create.image && !create.entrypoint);
	sp_os_create_done(&create);
}

Test(api_os_body, what_is_missing_or_of_a_wrong_type_names_its_place)
{
	REFUSED("", "422 - ");
	REFUSED("[]", "422 - ");
	REFUSED("{", "422 - ");
	REFUSED("{}", "422 - image");
	REFUSED("{\"image\":\"x\"}", "422 - image");
	REFUSED("{\"image\":{}}", "422 - image.uri");
	REFUSED("{\"image\":{\"uri\":\"\"}}", "422 - image.uri");
	REFUSED("{\"image\":{\"uri\":\"x\"}}", "422 - entrypoint");
	REFUSED("{\"image\":{\"uri\":\"x\"},\"entrypoint\":[]}", "422 - entrypoint");
	REFUSED("{\"image\":{\"uri\":\"x\"},\"entrypoint\":[1]}", "422 - entrypoint");
	REFUSED("{\"image\":{\"uri\":\"x\"},\"entrypoint\":[\"\"]}", "422 - entrypoint");
	REFUSED(HEAD "}", "422 - resourceLimits");
	REFUSED(HEAD ",\"resourceLimits\":{\"cpu\":1}}", "422 - resourceLimits");
	REFUSED(GOOD ",\"timeout\":\"60\"}", "422 - timeout");
	REFUSED(GOOD ",\"env\":{\"A\":1}}", "422 - env");
	REFUSED(GOOD ",\"metadata\":{\"a\":null}}", "422 - metadata");
	REFUSED(GOOD ",\"extensions\":{\"a\":true}}", "422 - extensions");
	REFUSED(GOOD ",\"snapshotId\":\"x\"}", "422 - ");
}

Test(api_os_body, timeouts_at_the_limit_and_beyond)
{
	REFUSED(GOOD ",\"timeout\":59}", "422 - timeout");
	REFUSED(GOOD ",\"timeout\":0}", "422 - timeout");
	REFUSED(GOOD ",\"timeout\":60}", "taken");
}

Test(api_os_body, what_this_server_cannot_do_is_refused_by_name)
{
	REFUSED("{\"snapshotId\":\"x\"}", "501 " UNSUP " snapshotId");
	REFUSED(GOOD ",\"volumes\":[{\"name\":\"x\"}]}", "501 " UNSUP " volumes");
	REFUSED(GOOD ",\"volumes\":[]}", "taken");
	REFUSED(GOOD ",\"credentialProxy\":{\"enabled\":true}}", "501 " UNSUP " credentialProxy");
	REFUSED(GOOD ",\"credentialProxy\":{\"enabled\":false}}", "taken");
	REFUSED(GOOD ",\"networkPolicy\":{\"egress\":[{\"action\":\"allow\",\"target\":\"x\"}]}}",
		"501 " UNSUP " networkPolicy");
	REFUSED(GOOD ",\"platform\":{\"os\":\"windows\"}}", "400 " PARAM " platform");
	REFUSED(GOOD ",\"platform\":{\"os\":\"linux\",\"arch\":\"s390x\"}}",
		"400 " PARAM " platform");
	REFUSED(GOOD ",\"platform\":{\"os\":\"linux\",\"arch\":null}}", "taken");
	REFUSED(HEAD ",\"resourceLimits\":{\"gpu\":\"1\"}}", "400 " PARAM " resourceLimits");
	REFUSED(HEAD ",\"resourceLimits\":{\"gpu\":\"0\"}}", "taken");
	REFUSED(HEAD ",\"resourceLimits\":{\"disk\":\"1Gi\"}}", "400 " PARAM " resourceLimits");
	REFUSED(HEAD ",\"resourceLimits\":{\"memory\":\"much\"}}", "400 " PARAM " resourceLimits");
}

Test(api_os_body, network_policies_that_come_down_to_one_word)
{
	struct sp_os_refusal refusal;
	struct sp_os_create create;

	cr_assert(parse(&create, GOOD ",\"networkPolicy\":{\"defaultAction\":\"deny\"}}",
			&refusal) == 0);
	cr_assert(create.egress == SP_OS_EGRESS_NONE);
	sp_os_create_done(&create);
	cr_assert(parse(&create, GOOD ",\"networkPolicy\":{\"defaultAction\":\"allow\"}}",
			&refusal) == 0);
	cr_assert(create.egress == SP_OS_EGRESS_ALL);
	sp_os_create_done(&create);
}

Test(api_os_body, extension_of_the_life_by_use)
{
	REFUSED(GOOD ",\"extensions\":{\"access.renew.extend.seconds\":\"299\"}}",
		"400 " PARAM " extensions");
	REFUSED(GOOD ",\"extensions\":{\"access.renew.extend.seconds\":\"300\"}}", "taken");
	REFUSED(GOOD ",\"extensions\":{\"access.renew.extend.seconds\":\"86400\"}}", "taken");
	REFUSED(GOOD ",\"extensions\":{\"access.renew.extend.seconds\":\"86401\"}}",
		"400 " PARAM " extensions");
	REFUSED(GOOD ",\"extensions\":{\"access.renew.extend.seconds\":\"5m\"}}",
		"400 " PARAM " extensions");
}

Test(api_os_body, labels_and_variables_are_judged)
{
	REFUSED(GOOD ",\"metadata\":{\"a b\":\"x\"}}", "400 " LABEL " metadata");
	REFUSED(GOOD ",\"metadata\":{\"opensandbox.io/id\":\"x\"}}", "400 " LABEL " metadata");
	REFUSED(GOOD ",\"env\":{\"\":\"x\"}}", "400 " PARAM " env");
	REFUSED(GOOD ",\"env\":{\"A=B\":\"x\"}}", "400 " PARAM " env");
}

/* An object of `count` members whose names differ; the caller's. */
static char *many(const char *member, unsigned int count)
{
	struct sp_buf text;

	sp_buf_init(&text, 1 << 20);
	cr_assert(sp_buf_printf(&text, GOOD ",\"%s\":{\"a\":\"\"", member) == 0);
	for (unsigned int i = 1; i < count; i++)
		cr_assert(sp_buf_printf(&text, ",\"a%u\":\"\"", i) == 0);
	cr_assert(sp_buf_printf(&text, "}}") == 0);
	return sp_buf_take(&text);
}

Test(api_os_body, counts_at_the_limit_and_beyond)
{
	char *text = many("metadata", SP_OS_METADATA_MAX);

	REFUSED(text, "taken");
	free(text);
	text = many("metadata", SP_OS_METADATA_MAX + 1);
	REFUSED(text, "400 " LABEL " metadata");
	free(text);
	text = many("env", SP_OS_ENV_MAX);
	REFUSED(text, "taken");
	free(text);
	text = many("env", SP_OS_ENV_MAX + 1);
	REFUSED(text, "400 " PARAM " env");
	free(text);
}

Test(api_os_body, a_body_as_long_as_is_kept_and_one_byte_more)
{
	char *text = malloc(SP_OS_KEPT_MAX + 2);

	memset(text, ' ', SP_OS_KEPT_MAX + 1);
	memcpy(text, GOOD "}", strlen(GOOD "}"));
	text[SP_OS_KEPT_MAX + 1] = '\0';
	REFUSED(text, "413 " PARAM " ");
	text[SP_OS_KEPT_MAX] = '\0';
	REFUSED(text, "taken");
	free(text);
}

Test(api_os_body, a_patch_changes_adds_and_removes)
{
	json_t *metadata = json_pack("{s:s,s:s}", "a", "1", "b", "2");
	json_t *patch = json_pack("{s:n,s:s,s:s,s:n}", "a", "b", "3", "c", "4", "none");
	json_t *wanted = json_pack("{s:s,s:s}", "b", "3", "c", "4");
	struct sp_os_refusal refusal;
	json_t *changed;

	cr_assert(sp_os_metadata_patch(metadata, patch, &changed, &refusal) == 0);
	cr_assert(json_equal(changed, wanted));
	cr_assert(json_object_size(metadata) == 2);
	json_decref(changed);
	json_decref(patch);
	patch = json_pack("{s:s}", "a b", "x");
	cr_assert(sp_os_metadata_patch(metadata, patch, &changed, &refusal) < 0);
	cr_assert(strcmp(refusal.code, LABEL) == 0);
	json_decref(patch);
	patch = json_pack("{s:i}", "a", 1);
	cr_assert(sp_os_metadata_patch(NULL, patch, &changed, &refusal) < 0);
	cr_assert(refusal.status == 422);
	json_decref(patch);
	json_decref(wanted);
	json_decref(metadata);
}
