/*
 * The digest of what a sandbox is made of. Two pools with equal digests make interchangeable
 * sandboxes; a pool whose digest changes retires its idle ones. Sizes, timers, image names and what
 * requests may bind do not count: they change nothing in a sandbox that exists.
 *
 * FNV-1a over the keys marked SPEC, each as name, length and value, and the build. Not against an
 * adversary: whoever chooses the configuration is root.
 */
#include "supervisor/config/reader.h"

#include <stdio.h>
#include <string.h>

uint64_t sp_config_hash(uint64_t hash, const void *data, size_t len)
{
	const unsigned char *bytes = data;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
	return hash;
}

/* NULL and "" differ from each other and from everything else. */
static uint64_t hash_text(uint64_t hash, const char *text)
{
	uint64_t len = text ? strlen(text) : UINT64_MAX;

	hash = sp_config_hash(hash, &len, sizeof(len));
	return text ? sp_config_hash(hash, text, strlen(text)) : hash;
}

static uint64_t hash_strings(uint64_t hash, const struct sp_schema_key *key, const void *base)
{
	char *const *strings = sp_schema_strings(key, base);
	uint64_t count = sp_schema_count(key, base);

	hash = sp_config_hash(hash, &count, sizeof(count));
	for (size_t i = 0; i < count; i++)
		hash = hash_text(hash, strings[i]);
	return hash;
}

static size_t value_size(const struct sp_schema_key *key)
{
	switch (key->type) {
	case SP_SCHEMA_BOOL:
		return sizeof(bool);
	case SP_SCHEMA_U32:
		return sizeof(uint32_t);
	case SP_SCHEMA_WORD:
		return key->word_size;
	case SP_SCHEMA_U64:
	case SP_SCHEMA_SIZE:
	case SP_SCHEMA_DURATION:
	case SP_SCHEMA_REAL:
		return sizeof(uint64_t);
	case SP_SCHEMA_STRING:
	case SP_SCHEMA_STRINGS:
	case SP_SCHEMA_BINDS:
	case SP_SCHEMA_SECTION:
	case SP_SCHEMA_POOLS:
		break;
	}
	return 0;
}

static uint64_t hash_scope(uint64_t hash, enum sp_schema_scope_kind kind, const void *base)
{
	const struct sp_schema_scope *scope = &sp_schema_scopes[kind];

	for (size_t i = 0; i < scope->count; i++) {
		const struct sp_schema_key *key = &scope->keys[i];
		const void *at = sp_schema_const_at(base, key->offset);

		if (key->type == SP_SCHEMA_SECTION)
			hash = hash_scope(hash, (enum sp_schema_scope_kind)key->section, base);
		if (!(key->flags & SP_SCHEMA_F_SPEC))
			continue;
		hash = hash_text(hash, key->name);
		if (key->type == SP_SCHEMA_STRING)
			hash = hash_text(hash, *(char *const *)at);
		else if (key->type == SP_SCHEMA_STRINGS)
			hash = hash_strings(hash, key, base);
		else
			hash = sp_config_hash(hash, at, value_size(key));
	}
	return hash;
}

uint64_t sp_config_spec_generation(const struct sp_config *config,
				   const struct sp_config_pool *pool)
{
	const uint64_t build = SP_BUILD_ID;
	uint64_t hash = sp_config_hash(SP_CONFIG_HASH_START, &build, sizeof(build));

	SP_UNUSED(config);
	hash = hash_scope(hash, SP_SCHEMA_POOL, pool);
	return hash != 0 ? hash : 1;
}

void sp_config_spec_digest(const struct sp_config_pool *pool, uint64_t init_protocol,
			   char ret_digest[SP_CONFIG_DIGEST_LEN + 1])
{
	uint64_t hash = sp_config_hash(SP_CONFIG_HASH_START, &init_protocol, sizeof(init_protocol));

	hash = hash_scope(hash, SP_SCHEMA_POOL, pool);
	(void)snprintf(ret_digest, SP_CONFIG_DIGEST_LEN + 1, "%016llx", (unsigned long long)hash);
}
