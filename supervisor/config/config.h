/*
 * The configuration: one JSON file (comments allowed) plus a drop-in folder (FILE.d/NN-name.json,
 * merged in name order, objects merge, everything else replaces). One schema table (schema.c)
 * drives parsing, ranges, units, defaults, `config check`, `config dump` and the reference page.
 *
 * All faults are collected, each with file, line and key path ("pools.default.max_idle") and, for
 * an unknown key or word, the nearest known one. Unknown keys and repeated keys are errors.
 */
#ifndef SP_CONFIG_CONFIG_H
#define SP_CONFIG_CONFIG_H

#include "pool/base/buf.h"
#include "pool/base/err.h"
#include "pool/base/log.h"
#include "pool/pool.h"
#include "supervisor/launcher/table.h"

#define SP_CONFIG_FILE_MAX     (4u << 20) /* bytes of one file */
#define SP_CONFIG_DROPINS_MAX  64u
#define SP_CONFIG_FAULTS_MAX   200u
#define SP_CONFIG_LISTEN_MAX   16u
#define SP_CONFIG_IMAGES_MAX   64u
#define SP_CONFIG_LAYERS_MAX   16u
#define SP_CONFIG_MASKS_MAX    16u
#define SP_CONFIG_WRITABLE_MAX 32u
#define SP_CONFIG_API_KEYS_MAX 64u
#define SP_CONFIG_API_KEY_MAX  256u
#define SP_CONFIG_PEM_MAX      (64u << 10) /* bytes of a certificate chain, or of a key */

struct sp_config_bind_root {
	char *path;
	bool read_only;
	bool recursive;
};

#define SP_CONFIG_COMMAND_MAX     32u                  /* program and arguments of a hook */
#define SP_CONFIG_ARGUMENT_MAX    (16u << 10)          /* bytes of one of them */
#define SP_CONFIG_CREATION_MAX_MS (3600 * SP_MS_PER_S) /* the policy's longest create_timeout */

/* What runs in a new sandbox before it is idle. No command: nothing does. */
struct sp_config_warmup {
	char **command;
	size_t command_count;
	int64_t timeout_ms;
};

/* What must succeed in it then. */
struct sp_config_readiness {
	char **command;
	size_t command_count;
	int64_t interval_ms;
	int64_t timeout_ms; /* no attempt begins later, but for the last one; 0 = one attempt */
	int64_t attempt_timeout_ms;
};

struct sp_config_pool {
	struct sp_pool_config policy; /* spec_generation is filled by sp_config_spec_generation() */
	bool direct;                  /* backend: "direct" */
	char *direct_user; /* "direct_user": name or uid; required for direct, never root */
	uint32_t direct_uid, direct_gid; /* resolved */
	char *root;                      /* "system", "host", or an absolute directory */
	bool network_host;
	char *hostname;
	uint64_t memory_bytes; /* limits.memory */
	uint32_t pids;
	double cpu; /* cores */
	uint64_t open_files;
	uint64_t tmp_bytes;
	uint64_t tmp_inodes;
	uint64_t output_bytes;    /* per exec, stdout + stderr */
	uint64_t file_size_bytes; /* 0 = unlimited (RLIMIT_FSIZE) */
	uint64_t stack_bytes;
	uint64_t upper_bytes;       /* of an isolated session: its upper and other private files */
	uint64_t diff_bytes;        /* 0 = what its upper leaves */
	int64_t default_timeout_ms; /* of an exec that names none; 0 = none */
	char **layers;              /* read-only host directories shown at their own path */
	size_t layer_count;
	char **masks; /* paths to hide below host or directory roots */
	size_t mask_count;
	struct sp_config_bind_root *bind_roots;
	size_t bind_root_count;
	char **images;
	size_t image_count;
	char **allowed_writable; /* inside: what isolated sessions may bind or write */
	size_t allowed_writable_count;
	char *seccomp_profile;  /* path of an OCI JSON profile, NULL = built in */
	char *seccomp_digest;   /* of its contents: a changed profile is another sandbox */
	uint64_t spec_revision; /* orders specs among the hosts of a store */
	struct sp_config_warmup warmup;
	struct sp_config_readiness readiness;
};

/* How to reach a Redis store; strings are NULL where nothing is set. Files are absolute paths or
 * names of credentials. */
struct sp_config_redis {
	char *user;
	char *password_file;
	char *sentinel_password_file;
	char *ca_file;
	char *cert_file;
	char *key_file;
	char *server_name;
	char *prefix;
	int64_t command_timeout_ms;
	int64_t keepalive_ms;
};

struct sp_config {
	char *store; /* "memory" or a URL */
	struct sp_config_redis redis;
	char *host;      /* "": the machine's host name */
	char *advertise; /* "": derived from listen */
	uint32_t capacity;
	char *listen[SP_CONFIG_LISTEN_MAX];
	size_t listen_count;
	char *instance;
	char *state_dir;
	char *user;        /* sandpoold runs as; "" = the user that started it */
	char *admin_group; /* members may use the Unix socket as operators; "" = none */
	enum sp_log_level log_level;
	bool exec_enabled;
	bool allow_direct;
	bool allow_host_network;
	bool degraded;
	bool insecure; /* TCP without TLS beyond loopback */
	uint32_t uid_base;
	uint32_t uid_count;
	char *api_keys_file; /* one key a line */
	char *tls_certificate_file;
	char *tls_key_file;
	char **api_keys; /* contents of api_keys_file */
	size_t api_key_count;
	char **tls_certificate; /* contents of tls_certificate_file and tls_key_file: one each, */
	size_t tls_certificate_count; /* none without a tls:// address */
	char **tls_key;
	size_t tls_key_count;
	uint32_t max_connections;
	int64_t shutdown_timeout_ms;  /* running execs get this long on SIGTERM */
	struct sp_config_pool *pools; /* sorted by name; index = index in the launcher's table */
	size_t pool_count;
};

struct sp_config_fault {
	char *file;
	int line; /* 0 = whole file */
	char *message;
};

struct sp_config_faults {
	struct sp_config_fault *items;
	size_t count;
	bool more; /* SP_CONFIG_FAULTS_MAX was reached */
};

void sp_config_faults_done(struct sp_config_faults *faults);
/* "FILE:LINE: message\n" each. */
int sp_config_faults_print(const struct sp_config_faults *faults, struct sp_buf *out);

/* Read file and drop-ins, check, resolve. 0 and *ret_config, or -EINVAL with every fault listed, or
 * another errno when it could not be read. with_secrets: also read the files that hold secrets. */
int sp_config_load(const char *path, bool with_secrets, struct sp_config **ret_config,
		   struct sp_config_faults *faults);
/* The same from text that sp_config_dump() wrote (no drop-ins). */
int sp_config_parse(const char *text, size_t len, const char *name, struct sp_config **ret_config,
		    struct sp_config_faults *faults);
void sp_config_free(struct sp_config *config);

/* Canonical JSON with every key and default. with_secrets: for sandpoold over a sealed memfd only;
 * else secrets are shown as "***". */
int sp_config_dump(const struct sp_config *config, bool with_secrets, struct sp_buf *out,
		   struct sp_err *err);
/* The reference page (Markdown), from the schema table. */
int sp_config_reference(struct sp_buf *out);

/* How long the hooks of a pool may take at most, beside the making of the sandbox. */
int64_t sp_config_hooks_ms(const struct sp_config_pool *pool);

/* Digest of what a sandbox of this pool is made of (not sizes, not timers), folded to 64 bits,
 * never 0. */
uint64_t sp_config_spec_generation(const struct sp_config *config,
				   const struct sp_config_pool *pool);

#define SP_CONFIG_DIGEST_LEN 16

/* The same for all hosts that share a store: equal where sandboxes are interchangeable although the
 * builds may differ, as long as their inits speak alike. Hex, with a NUL. */
void sp_config_spec_digest(const struct sp_config_pool *pool, uint64_t init_protocol,
			   char ret_digest[SP_CONFIG_DIGEST_LEN + 1]);

/* Units. "10m", "1h30m", "500ms", "60s" → ms; a bare number is refused except 0.
 * "512MiB", "64KiB", "1GiB", "1000B" → bytes; k/M/G without "iB" are refused with a hint.
 * -EINVAL, -ERANGE; message says what is accepted. */
int sp_parse_duration(const char *text, int64_t *ret_ms, struct sp_err *err);
int sp_parse_size(const char *text, uint64_t *ret_bytes, struct sp_err *err);
int sp_format_duration(int64_t ms, char *buffer, size_t size);
int sp_format_size(uint64_t bytes, char *buffer, size_t size);

#endif
