/*
 * The schema tables. A new key is one entry here and one member in config.h; that the file, the
 * dump, the reference page and the digest know it follows from the table.
 *
 * Order is the order of the dump and of the reference page.
 */
#include "supervisor/config/schema.h"

#include <string.h>

#define NAME_MAX_LEN 64u /* longer ones are no misspelling of ours */

#define DURATION_MAX (366 * 24 * 3600 * SP_MS_PER_S)
#define HOUR_MS      (3600 * SP_MS_PER_S)
#define GIB          (INT64_C(1) << 30)
#define TIB          (INT64_C(1) << 40)

static const char *const log_words[] = {"error", "warn", "info", "debug", NULL};
static const char *const backend_words[] = {"namespace", "direct", NULL};
static const char *const network_words[] = {"none", "host", NULL};

#define GLOBAL(member) .offset = offsetof(struct sp_config, member)
#define REDIS(member)  .offset = offsetof(struct sp_config, redis.member)
#define POOL(member)   .offset = offsetof(struct sp_config_pool, member)
#define POLICY(member) .offset = offsetof(struct sp_config_pool, policy.member)

static const struct sp_schema_key global_keys[] = {
	{.name = "store",
	 .type = SP_SCHEMA_STRING,
	 .flags = SP_SCHEMA_F_PRIVATE,
	 GLOBAL(store),
	 .check = sp_check_store,
	 .fallback = "\"memory\"",
	 .help = "Where hosts find each other. `memory`: this host alone. Redis 7 or Valkey: "
		 "`redis://[user@]host[:6379][/db]`, `rediss://…` (TLS), `unix:///path[?db=N]`, "
		 "`redis+sentinel://host[:26379][,host…]/master-name[/db]`, `rediss+sentinel://…`. "
		 "A "
		 "password has its place in a file."},
	{.name = "redis",
	 .type = SP_SCHEMA_SECTION,
	 .section = SP_SCHEMA_REDIS,
	 .help = "See below."},
	{.name = "host",
	 .type = SP_SCHEMA_STRING,
	 GLOBAL(host),
	 .check = sp_check_host_id,
	 .fallback = "\"\"",
	 .help = "Name of this host among those that share the store; different for each. `\"\"`: "
		 "the host name of the machine."},
	{.name = "advertise",
	 .type = SP_SCHEMA_STRING,
	 GLOBAL(advertise),
	 .check = sp_check_advertise,
	 .fallback = "\"\"",
	 .help = "Where clients of other hosts reach this daemon, written as in `listen`. `\"\"`: "
		 "the first `tls://` or `tcp://` address of `listen`, else its first."},
	{.name = "capacity",
	 .type = SP_SCHEMA_U32,
	 GLOBAL(capacity),
	 .min = 1,
	 .max = 1000000,
	 .fallback = "1",
	 .help = "Weight of this host when the hosts of a store share `max_idle`."},
	{.name = "listen",
	 .type = SP_SCHEMA_STRINGS,
	 .flags = SP_SCHEMA_F_INLINE,
	 GLOBAL(listen),
	 .count_offset = offsetof(struct sp_config, listen_count),
	 .list_max = SP_CONFIG_LISTEN_MAX,
	 .check = sp_check_listen,
	 .fallback = "[\"unix:///run/sandpool/sandpool.sock\"]",
	 .help = "Addresses of the HTTP API: `unix:///path`, `tcp://host:port`, `tls://host:port`. "
		 "`tcp` beyond loopback needs `insecure`; `tls` needs the two `tls_` keys."},
	{.name = "instance",
	 .type = SP_SCHEMA_STRING,
	 GLOBAL(instance),
	 .check = sp_check_name,
	 .fallback = "\"default\"",
	 .help = "Names the control groups of this daemon; different for each daemon of a host."},
	{.name = "state_dir",
	 .type = SP_SCHEMA_STRING,
	 GLOBAL(state_dir),
	 .check = sp_check_below_root,
	 .fallback = "\"/var/lib/sandpool\"",
	 .help = "Directory that survives a restart; one per daemon. Never shown to a sandbox."},
	{.name = "user",
	 .type = SP_SCHEMA_STRING,
	 GLOBAL(user),
	 .check = sp_check_user,
	 .fallback = "\"sandpool\"",
	 .help = "Account that sandpoold runs as after its start. `\"\"`: the account that started "
		 "it."},
	{.name = "admin_group",
	 .type = SP_SCHEMA_STRING,
	 GLOBAL(admin_group),
	 .check = sp_check_user,
	 .fallback = "\"\"",
	 .help = "Members of this group are operators on the Unix socket. `\"\"`: only root and "
		 "`user` are."},
	{.name = "log_level",
	 .type = SP_SCHEMA_WORD,
	 GLOBAL(log_level),
	 .word_size = sizeof(enum sp_log_level),
	 .words = log_words,
	 .fallback = "\"info\"",
	 .help = "Least important kind of record that is logged."},
	{.name = "exec_enabled",
	 .type = SP_SCHEMA_BOOL,
	 GLOBAL(exec_enabled),
	 .fallback = "true",
	 .help = "`false`: sandboxes are handed out, but the API starts nothing in them."},
	{.name = "allow_direct",
	 .type = SP_SCHEMA_BOOL,
	 GLOBAL(allow_direct),
	 .fallback = "false",
	 .help = "Permits pools with `\"backend\": \"direct\"`, which isolate nothing."},
	{.name = "allow_host_network",
	 .type = SP_SCHEMA_BOOL,
	 GLOBAL(allow_host_network),
	 .fallback = "false",
	 .help = "Permits pools with `\"network\": \"host\"`: they reach abstract sockets and "
		 "loopback services of the host."},
	{.name = "degraded",
	 .type = SP_SCHEMA_BOOL,
	 GLOBAL(degraded),
	 .fallback = "false",
	 .help = "`true`: a limit that this host cannot enforce is reported instead of refused."},
	{.name = "insecure",
	 .type = SP_SCHEMA_BOOL,
	 GLOBAL(insecure),
	 .fallback = "false",
	 .help = "Permits `tcp://` beyond loopback, where keys and data cross the network in "
		 "clear."},
	{.name = "uid_base",
	 .type = SP_SCHEMA_U32,
	 GLOBAL(uid_base),
	 .min = 65536,
	 .max = UINT32_MAX,
	 .zero = "no range, every sandbox maps one id (rootless)",
	 .fallback = "2147483648",
	 .help = "First host id of the range that sandboxes get their ids from; a multiple of "
		 "65536."},
	{.name = "uid_count",
	 .type = SP_SCHEMA_U32,
	 GLOBAL(uid_count),
	 .min = 1,
	 .max = SP_TABLE_SANDBOXES_MAX,
	 .fallback = "16384",
	 .help = "Slots of 65536 ids in that range; one per live sandbox."},
	{.name = "api_keys_file",
	 .type = SP_SCHEMA_STRING,
	 .flags = SP_SCHEMA_F_NULLABLE,
	 GLOBAL(api_keys_file),
	 .check = sp_check_secret_file,
	 .fallback = "\"\"",
	 .help = "File with the API keys that TCP clients present: one a line, 16 to 256 printable "
		 "characters, at most 64; `#` starts a comment. Not readable by everybody. An "
		 "absolute path, or the name of a systemd credential."},
	{.name = "tls_certificate_file",
	 .type = SP_SCHEMA_STRING,
	 .flags = SP_SCHEMA_F_NULLABLE,
	 GLOBAL(tls_certificate_file),
	 .check = sp_check_secret_file,
	 .fallback = "\"\"",
	 .help = "PEM certificate chain for `tls://` addresses; read again by a reload."},
	{.name = "tls_key_file",
	 .type = SP_SCHEMA_STRING,
	 .flags = SP_SCHEMA_F_NULLABLE,
	 GLOBAL(tls_key_file),
	 .check = sp_check_secret_file,
	 .fallback = "\"\"",
	 .help = "PEM private key for `tls://` addresses. Not readable by everybody."},
	{.name = "api_keys",
	 .type = SP_SCHEMA_STRINGS,
	 .flags = SP_SCHEMA_F_RESOLVED | SP_SCHEMA_F_SECRET | SP_SCHEMA_F_PRIVATE,
	 GLOBAL(api_keys),
	 .count_offset = offsetof(struct sp_config, api_key_count),
	 .list_max = SP_CONFIG_API_KEYS_MAX,
	 .check = sp_check_api_key,
	 .fallback = "[]",
	 .help = "Contents of `api_keys_file`."},
	{.name = "tls_certificate",
	 .type = SP_SCHEMA_STRINGS,
	 .flags = SP_SCHEMA_F_RESOLVED | SP_SCHEMA_F_SECRET | SP_SCHEMA_F_PRIVATE,
	 GLOBAL(tls_certificate),
	 .count_offset = offsetof(struct sp_config, tls_certificate_count),
	 .list_max = 1,
	 .check = sp_check_pem,
	 .fallback = "[]",
	 .help = "Contents of `tls_certificate_file`."},
	{.name = "tls_key",
	 .type = SP_SCHEMA_STRINGS,
	 .flags = SP_SCHEMA_F_RESOLVED | SP_SCHEMA_F_SECRET | SP_SCHEMA_F_PRIVATE,
	 GLOBAL(tls_key),
	 .count_offset = offsetof(struct sp_config, tls_key_count),
	 .list_max = 1,
	 .check = sp_check_pem,
	 .fallback = "[]",
	 .help = "Contents of `tls_key_file`."},
	{.name = "max_connections",
	 .type = SP_SCHEMA_U32,
	 GLOBAL(max_connections),
	 .min = 1,
	 .max = 65536,
	 .fallback = "4096",
	 .help = "HTTP connections at once, all addresses together."},
	{.name = "shutdown_timeout",
	 .type = SP_SCHEMA_DURATION,
	 GLOBAL(shutdown_timeout_ms),
	 .min = 1,
	 .max = HOUR_MS,
	 .zero = "kill at once",
	 .fallback = "\"30s\"",
	 .help = "How long running programs may go on after SIGTERM."},
	{.name = "pools",
	 .type = SP_SCHEMA_POOLS,
	 GLOBAL(pools),
	 .count_offset = offsetof(struct sp_config, pool_count),
	 .list_max = SP_TABLE_POOLS_MAX,
	 .check = sp_check_name,
	 .help = "The pools by name, at most 64. Absent: one pool `default` with all defaults."},
};

static const struct sp_schema_key redis_keys[] = {
	{.name = "user",
	 .type = SP_SCHEMA_STRING,
	 .flags = SP_SCHEMA_F_NULLABLE,
	 REDIS(user),
	 .check = sp_check_redis_user,
	 .fallback = "\"\"",
	 .help = "ACL user. `\"\"`: the one of the URL, else `default`."},
	{.name = "password_file",
	 .type = SP_SCHEMA_STRING,
	 .flags = SP_SCHEMA_F_NULLABLE,
	 REDIS(password_file),
	 .check = sp_check_secret_file,
	 .fallback = "\"\"",
	 .help = "File with its password, read by `user` of the top level at each connect. An "
		 "absolute path, or the name of a systemd credential; so are the others."},
	{.name = "sentinel_password_file",
	 .type = SP_SCHEMA_STRING,
	 .flags = SP_SCHEMA_F_NULLABLE,
	 REDIS(sentinel_password_file),
	 .check = sp_check_secret_file,
	 .fallback = "\"\"",
	 .help = "The same for the sentinels."},
	{.name = "ca_file",
	 .type = SP_SCHEMA_STRING,
	 .flags = SP_SCHEMA_F_NULLABLE,
	 REDIS(ca_file),
	 .check = sp_check_secret_file,
	 .fallback = "\"\"",
	 .help = "PEM certificates that the server's is checked against. `\"\"`: the system's."},
	{.name = "cert_file",
	 .type = SP_SCHEMA_STRING,
	 .flags = SP_SCHEMA_F_NULLABLE,
	 REDIS(cert_file),
	 .check = sp_check_secret_file,
	 .fallback = "\"\"",
	 .help = "PEM certificate that we show."},
	{.name = "key_file",
	 .type = SP_SCHEMA_STRING,
	 .flags = SP_SCHEMA_F_NULLABLE,
	 REDIS(key_file),
	 .check = sp_check_secret_file,
	 .fallback = "\"\"",
	 .help = "Its PEM private key."},
	{.name = "server_name",
	 .type = SP_SCHEMA_STRING,
	 .flags = SP_SCHEMA_F_NULLABLE,
	 REDIS(server_name),
	 .check = sp_check_server_name,
	 .fallback = "\"\"",
	 .help = "Name that the server's certificate must have. `\"\"`: the host of the URL."},
	{.name = "prefix",
	 .type = SP_SCHEMA_STRING,
	 REDIS(prefix),
	 .check = sp_check_prefix,
	 .fallback = "\"sandpool\"",
	 .help = "Begin of all keys; hosts with another one do not meet."},
	{.name = "command_timeout",
	 .type = SP_SCHEMA_DURATION,
	 REDIS(command_timeout_ms),
	 .min = 10,
	 .max = 60 * SP_MS_PER_S,
	 .fallback = "\"1s\"",
	 .help = "A command without an answer closes the connection after this."},
	{.name = "keepalive",
	 .type = SP_SCHEMA_DURATION,
	 REDIS(keepalive_ms),
	 .min = 100,
	 .max = 60 * SP_MS_PER_S,
	 .fallback = "\"3s\"",
	 .help = "A dead connection is noticed within this."},
};

static const struct sp_schema_key pool_keys[] = {
	{.name = "max_idle",
	 .type = SP_SCHEMA_U32,
	 POLICY(max_idle),
	 .min = 1,
	 .max = SP_POOL_MAX_IDLE_LIMIT,
	 .zero = "none is kept warm",
	 .fallback = "8",
	 .help = "Warm sandboxes to keep; target and ceiling of idle plus creating."},
	{.name = "max_total",
	 .type = SP_SCHEMA_U32,
	 POLICY(max_total),
	 .min = 1,
	 .max = SP_POOL_MAX_TOTAL_LIMIT,
	 .zero = "no cap beyond the launcher's",
	 .help = "All live sandboxes of the pool: creating, idle, leased and being killed."},
	{.name = "idle_timeout",
	 .type = SP_SCHEMA_DURATION,
	 POLICY(idle_timeout_ms),
	 .min = 1,
	 .max = DURATION_MAX,
	 .help = "Life of a sandbox from its creation while nobody has taken it."},
	{.name = "acquire_min_remaining_ttl",
	 .type = SP_SCHEMA_DURATION,
	 POLICY(acquire_min_remaining_ttl_ms),
	 .min = 1,
	 .max = DURATION_MAX,
	 .zero = "off",
	 .minus_one = "auto",
	 .meaning = "the smaller of 60s and half of `idle_timeout`",
	 .help = "A sandbox with this much life left, or less, is not handed out. Below "
		 "`idle_timeout`."},
	{.name = "max_lease",
	 .type = SP_SCHEMA_DURATION,
	 POLICY(max_lease_ms),
	 .min = 1,
	 .max = DURATION_MAX,
	 .help = "The furthest from now that a claim or a renewal may put the end of a lease."},
	{.name = "claim_timeout",
	 .type = SP_SCHEMA_DURATION,
	 POLICY(claim_timeout_ms),
	 .min = 1,
	 .max = DURATION_MAX,
	 .zero = "off",
	 .help = "A sandbox that was taken but never used is killed after this."},
	{.name = "warmup_concurrency",
	 .type = SP_SCHEMA_U32,
	 POLICY(warmup_concurrency),
	 .min = 1,
	 .max = 1024,
	 .help = "Creations under way at once."},
	{.name = "create_rate",
	 .type = SP_SCHEMA_REAL,
	 POLICY(create_rate),
	 .real_min = 0.001,
	 .real_max = 100000,
	 .zero = "unlimited",
	 .help = "Creations per second (token bucket)."},
	{.name = "create_burst",
	 .type = SP_SCHEMA_U32,
	 POLICY(create_burst),
	 .min = 1,
	 .max = 100000,
	 .zero = "one second's worth, at least `warmup_concurrency`",
	 .help = "Creations that may follow each other without a pause."},
	{.name = "create_timeout",
	 .type = SP_SCHEMA_DURATION,
	 POLICY(create_timeout_ms),
	 .min = 1,
	 .max = HOUR_MS,
	 .help = "A creation without an answer is killed and counted as failed after this."},
	{.name = "refresh_margin",
	 .type = SP_SCHEMA_DURATION,
	 POLICY(refresh_margin_ms),
	 .min = 1,
	 .max = DURATION_MAX,
	 .zero = "replace at the very end",
	 .minus_one = "auto",
	 .meaning = "the smallest of 30s, a tenth of `idle_timeout` and a quarter of the time for "
		    "which it can be handed out",
	 .help = "How long before it becomes unfit to be handed out a sandbox is replaced."},
	{.name = "expiry_jitter_percent",
	 .type = SP_SCHEMA_U32,
	 POLICY(expiry_jitter_percent),
	 .min = 1,
	 .max = 50,
	 .zero = "none",
	 .help = "Idle lives are shortened by a random share up to this, so that a pool that was "
		 "filled at once does not expire at once."},
	{.name = "backoff_initial",
	 .type = SP_SCHEMA_DURATION,
	 POLICY(backoff_initial_ms),
	 .min = 1,
	 .max = HOUR_MS,
	 .help = "First pause after `degraded_threshold` failed creations."},
	{.name = "backoff_max",
	 .type = SP_SCHEMA_DURATION,
	 POLICY(backoff_max_ms),
	 .min = 1,
	 .max = 24 * HOUR_MS,
	 .help = "Longest such pause."},
	{.name = "degraded_threshold",
	 .type = SP_SCHEMA_U32,
	 POLICY(degraded_threshold),
	 .min = 1,
	 .max = 100,
	 .help = "Failed creations in a row that make the pool degraded."},
	{.name = "max_waiters",
	 .type = SP_SCHEMA_U32,
	 POLICY(max_waiters),
	 .min = 1,
	 .max = SP_POOL_WAITERS_LIMIT,
	 .zero = "nobody waits",
	 .help = "Acquires that may wait at once; POOL_SATURATED beyond."},
	{.name = "max_direct_creates",
	 .type = SP_SCHEMA_U32,
	 POLICY(max_direct_creates),
	 .min = 1,
	 .max = 1024,
	 .help = "Creations under way at once for acquires with a create policy."},
	{.name = "max_acquire_retries",
	 .type = SP_SCHEMA_U32,
	 POLICY(max_acquire_retries),
	 .min = 1,
	 .max = 100,
	 .help = "Candidates that an acquire with a retry policy tries."},
	{.name = "tick",
	 .type = SP_SCHEMA_DURATION,
	 POLICY(tick_ms),
	 .min = 10,
	 .max = 60 * SP_MS_PER_S,
	 .help = "Period of the reconciler; events do not wait for it."},
	{.name = "kill_retry",
	 .type = SP_SCHEMA_DURATION,
	 POLICY(kill_retry_ms),
	 .min = 10,
	 .max = 60 * SP_MS_PER_S,
	 .help = "A kill without an answer is repeated after this, then after twice as long, up to "
		 "60s."},
	{.name = "drain_timeout",
	 .type = SP_SCHEMA_DURATION,
	 POLICY(drain_timeout_ms),
	 .min = 1,
	 .max = 24 * HOUR_MS,
	 .zero = "do not wait",
	 .minus_one = "unlimited",
	 .meaning = "leases run to their end",
	 .help = "How long a draining pool waits for its leases."},
	{.name = "backend",
	 .type = SP_SCHEMA_WORD,
	 .flags = SP_SCHEMA_F_SPEC,
	 POOL(direct),
	 .word_size = sizeof(bool),
	 .words = backend_words,
	 .fallback = "\"namespace\"",
	 .help = "`namespace`: sandboxes. `direct`: plain processes of `direct_user`, no "
		 "isolation; "
		 "needs `allow_direct`."},
	{.name = "direct_user",
	 .type = SP_SCHEMA_STRING,
	 .flags = SP_SCHEMA_F_NULLABLE | SP_SCHEMA_F_SPEC,
	 POOL(direct_user),
	 .check = sp_check_user,
	 .fallback = "\"\"",
	 .help = "Account of the processes of a direct pool, by name or number; never root."},
	{.name = "root",
	 .type = SP_SCHEMA_STRING,
	 .flags = SP_SCHEMA_F_SPEC,
	 POOL(root),
	 .check = sp_check_root,
	 .fallback = "\"system\"",
	 .help = "What a sandbox sees as `/`. `system`: the host's programs and a small `/etc`. "
		 "`host`: the host's root, read-only, without `/home`, `/root`, `/tmp`, `/run`. A "
		 "directory: that tree, read-only."},
	{.name = "network",
	 .type = SP_SCHEMA_WORD,
	 .flags = SP_SCHEMA_F_SPEC,
	 POOL(network_host),
	 .word_size = sizeof(bool),
	 .words = network_words,
	 .fallback = "\"none\"",
	 .help = "`none`: loopback of its own. `host`: the host's network; needs "
		 "`allow_host_network`."},
	{.name = "hostname",
	 .type = SP_SCHEMA_STRING,
	 .flags = SP_SCHEMA_F_SPEC,
	 POOL(hostname),
	 .check = sp_check_hostname,
	 .fallback = "\"sandbox\"",
	 .help = "Host name inside."},
	{.name = "limits",
	 .type = SP_SCHEMA_SECTION,
	 .section = SP_SCHEMA_POOL_LIMITS,
	 .help = "See below."},
	{.name = "spec_revision",
	 .type = SP_SCHEMA_U64,
	 POOL(spec_revision),
	 .min = 1,
	 .max = INT64_C(1) << 52,
	 .zero = "the first",
	 .fallback = "0",
	 .help = "Orders what a sandbox is made of among the hosts of a store: raise it with every "
		 "change of that. A host with a lower one, or with the same one and other "
		 "contents, makes no sandboxes."},
	{.name = "default_timeout",
	 .type = SP_SCHEMA_DURATION,
	 POOL(default_timeout_ms),
	 .min = 1,
	 .max = 7 * 24 * HOUR_MS,
	 .zero = "none",
	 .fallback = "\"0\"",
	 .help = "Timeout of a program whose request names none."},
	{.name = "layers",
	 .type = SP_SCHEMA_STRINGS,
	 .flags = SP_SCHEMA_F_SPEC,
	 POOL(layers),
	 .count_offset = offsetof(struct sp_config_pool, layer_count),
	 .list_max = SP_CONFIG_LAYERS_MAX,
	 .check = sp_check_below_root,
	 .fallback = "[]",
	 .help = "Host directories that are shown read-only at their own path, e.g. `/opt`."},
	{.name = "masks",
	 .type = SP_SCHEMA_STRINGS,
	 .flags = SP_SCHEMA_F_SPEC,
	 POOL(masks),
	 .count_offset = offsetof(struct sp_config_pool, mask_count),
	 .list_max = SP_CONFIG_MASKS_MAX,
	 .check = sp_check_below_root,
	 .fallback = "[]",
	 .help = "Paths that are covered by an empty directory or file."},
	{.name = "allowed_binds",
	 .type = SP_SCHEMA_BINDS,
	 POOL(bind_roots),
	 .count_offset = offsetof(struct sp_config_pool, bind_root_count),
	 .list_max = SP_TABLE_ROOTS_MAX,
	 .check = sp_check_below_root,
	 .fallback = "[]",
	 .help = "Host directories below which requests may bind: a path, or `{\"path\": …, "
		 "\"read_only\": true, \"recursive\": true}`. `read_only` permits `ro`, and "
		 "`overlay` without a commit."},
	{.name = "images",
	 .type = SP_SCHEMA_STRINGS,
	 POOL(images),
	 .count_offset = offsetof(struct sp_config_pool, image_count),
	 .list_max = SP_CONFIG_IMAGES_MAX,
	 .check = sp_check_image,
	 .fallback = "[]",
	 .help = "Image names that this pool serves in the lifecycle API; `*` stands for any "
		 "text."},
	{.name = "seccomp_profile",
	 .type = SP_SCHEMA_STRING,
	 .flags = SP_SCHEMA_F_NULLABLE | SP_SCHEMA_F_SPEC,
	 POOL(seccomp_profile),
	 .check = sp_check_below_root,
	 .fallback = "\"\"",
	 .help = "OCI (Docker) seccomp profile to use instead of the built-in deny list."},
	{.name = "seccomp_digest",
	 .type = SP_SCHEMA_STRING,
	 .flags = SP_SCHEMA_F_NULLABLE | SP_SCHEMA_F_SPEC | SP_SCHEMA_F_RESOLVED,
	 POOL(seccomp_digest),
	 .check = sp_check_digest,
	 .fallback = "\"\"",
	 .help = "Digest of that file's contents."},
};

static const struct sp_schema_key limit_keys[] = {
	{.name = "memory",
	 .type = SP_SCHEMA_SIZE,
	 .flags = SP_SCHEMA_F_SPEC,
	 POOL(memory_bytes),
	 .min = 4 * SP_MIB,
	 .max = 16 * TIB,
	 .fallback = "\"512MiB\"",
	 .help = "Memory of everything in the sandbox, files in `tmp` included; no swap."},
	{.name = "pids",
	 .type = SP_SCHEMA_U32,
	 .flags = SP_SCHEMA_F_SPEC,
	 POOL(pids),
	 .min = 8,
	 .max = 4194304,
	 .fallback = "256",
	 .help = "Processes and threads, PID 1 included."},
	{.name = "cpu",
	 .type = SP_SCHEMA_REAL,
	 .flags = SP_SCHEMA_F_SPEC,
	 POOL(cpu),
	 .real_min = 0.01,
	 .real_max = 4096,
	 .zero = "not limited",
	 .fallback = "1.0",
	 .help = "Processors, e.g. 0.5."},
	{.name = "open_files",
	 .type = SP_SCHEMA_U64,
	 .flags = SP_SCHEMA_F_SPEC,
	 POOL(open_files),
	 .min = 16,
	 .max = 1048576,
	 .fallback = "1024",
	 .help = "Open files of one process."},
	{.name = "tmp",
	 .type = SP_SCHEMA_SIZE,
	 .flags = SP_SCHEMA_F_SPEC,
	 POOL(tmp_bytes),
	 .min = 64 * SP_KIB,
	 .max = 16 * TIB,
	 .minus_one = "auto",
	 .meaning = "the smaller of 256MiB and half of `memory`",
	 .fallback = "\"auto\"",
	 .help = "All writable places together; below `memory`, which it counts against."},
	{.name = "tmp_inodes",
	 .type = SP_SCHEMA_U64,
	 .flags = SP_SCHEMA_F_SPEC,
	 POOL(tmp_inodes),
	 .min = 64,
	 .max = 16777216,
	 .fallback = "65536",
	 .help = "Files and directories in all writable places together."},
	{.name = "output",
	 .type = SP_SCHEMA_SIZE,
	 POOL(output_bytes),
	 .min = SP_KIB,
	 .max = TIB,
	 .fallback = "\"64MiB\"",
	 .help = "Output of one program, stdout and stderr together; it is ended beyond."},
	{.name = "file_size",
	 .type = SP_SCHEMA_SIZE,
	 .flags = SP_SCHEMA_F_SPEC,
	 POOL(file_size_bytes),
	 .min = 4 * SP_KIB,
	 .max = 16 * TIB,
	 .zero = "not limited",
	 .fallback = "\"0\"",
	 .help = "Size of one file."},
	{.name = "stack",
	 .type = SP_SCHEMA_SIZE,
	 .flags = SP_SCHEMA_F_SPEC,
	 POOL(stack_bytes),
	 .min = 64 * SP_KIB,
	 .max = GIB,
	 .fallback = "\"8MiB\"",
	 .help = "Stack of a main thread."},
};

_Static_assert(SP_ARRAY_SIZE(global_keys) <= 64 && SP_ARRAY_SIZE(pool_keys) <= 64 &&
		       SP_ARRAY_SIZE(redis_keys) <= 64 && SP_ARRAY_SIZE(limit_keys) <= 64,
	       "faults are tracked in a bit mask");

const struct sp_schema_scope sp_schema_scopes[SP_SCHEMA_SCOPES] = {
	[SP_SCHEMA_GLOBAL] = {SP_SCHEMA_GLOBAL, "Top level", "the top level", NULL, global_keys,
			      SP_ARRAY_SIZE(global_keys)},
	[SP_SCHEMA_REDIS] = {SP_SCHEMA_REDIS, "redis", "the section redis",
			     "How to reach the store when it is a Redis. A change needs a restart.",
			     redis_keys, SP_ARRAY_SIZE(redis_keys)},
	[SP_SCHEMA_POOL] = {SP_SCHEMA_POOL, "pools.NAME", "a pool",
			    "A name has 1 to 63 characters of `a-z 0-9 . _ -` and begins with a "
			    "letter or digit.",
			    pool_keys, SP_ARRAY_SIZE(pool_keys)},
	[SP_SCHEMA_POOL_LIMITS] = {SP_SCHEMA_POOL_LIMITS, "pools.NAME.limits",
				   "the limits of a pool", NULL, limit_keys,
				   SP_ARRAY_SIZE(limit_keys)},
};

const struct sp_schema_key *sp_schema_find(const struct sp_schema_scope *scope, const char *name)
{
	for (size_t i = 0; i < scope->count; i++)
		if (strcmp(scope->keys[i].name, name) == 0)
			return &scope->keys[i];
	return NULL;
}

unsigned int sp_schema_word(const struct sp_schema_key *key, const void *base)
{
	const void *at = sp_schema_const_at(base, key->offset);
	enum sp_log_level wide;

	if (key->word_size == sizeof(bool))
		return *(const bool *)at;
	memcpy(&wide, at, sizeof(wide));
	return (unsigned int)wide;
}

/* ---- did you mean ---- */

/* Edits (insert, delete, replace, swap neighbours) from one text to the other. */
static size_t distance(const char *a, const char *b)
{
	size_t rows[3][NAME_MAX_LEN + 1];
	size_t a_len = strlen(a);
	size_t b_len = strlen(b);

	if (a_len > NAME_MAX_LEN || b_len > NAME_MAX_LEN)
		return SIZE_MAX;
	for (size_t j = 0; j <= b_len; j++)
		rows[0][j] = j;
	for (size_t i = 1; i <= a_len; i++) {
		size_t *row = rows[i % 3];
		const size_t *above = rows[(i - 1) % 3];
		const size_t *twice = rows[(i + 1) % 3];

		row[0] = i;
		for (size_t j = 1; j <= b_len; j++) {
			size_t best = above[j - 1] + (a[i - 1] != b[j - 1]);

			best = SP_MIN(best, above[j] + 1);
			best = SP_MIN(best, row[j - 1] + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				best = SP_MIN(best, twice[j - 2] + 1);
			row[j] = best;
		}
	}
	return rows[a_len % 3][b_len];
}

static void nearer(const char *candidate, const char *text, const char **best,
		   size_t *best_distance)
{
	size_t edits = distance(text, candidate);

	if (edits < *best_distance) {
		*best_distance = edits;
		*best = candidate;
	}
}

/* One edit in three letters is a misspelling; more is another word. */
static size_t first_too_far(const char *text)
{
	return SP_MAX(strlen(text) / 3, (size_t)1) + 1;
}

const char *sp_schema_nearest_key(const struct sp_schema_scope *scope, const char *text)
{
	size_t best_distance = first_too_far(text);
	const char *best = NULL;

	for (size_t i = 0; i < scope->count; i++)
		if (!(scope->keys[i].flags & SP_SCHEMA_F_RESOLVED))
			nearer(scope->keys[i].name, text, &best, &best_distance);
	return best;
}

const char *sp_schema_nearest_word(const char *const *words, const char *text)
{
	size_t best_distance = first_too_far(text);
	const char *best = NULL;

	for (; *words; words++)
		nearer(*words, text, &best, &best_distance);
	return best;
}
