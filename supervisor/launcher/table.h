/*
 * The launcher's table: everything that the privileged side knows of the configuration.
 *
 * sandpool-compile (root, exec'ed by the launcher, no input but the root-owned configuration file)
 * writes it into a memfd and seals it; the launcher maps it read-only and checks every field with
 * sp_table_check() before it believes one. Fixed-size records, no pointers: offsets are into the
 * file. Native endianness: writer and reader are one build on one machine (build_id must match).
 *
 * File:  struct sp_table | sp_table_pool × pool_count | blobs (BPF programs, texts of files)
 */
#ifndef SP_LAUNCHER_TABLE_H
#define SP_LAUNCHER_TABLE_H

#include "pool/base/err.h"
#include "pool/base/id.h"

#define SP_TABLE_MAGIC      0x73706c54u /* "Tlps" */
#define SP_TABLE_VERSION    1u
#define SP_TABLE_POOLS_MAX  64u
#define SP_TABLE_MOUNTS_MAX 96u
#define SP_TABLE_ROOTS_MAX  32u
#define SP_TABLE_PATH_MAX \
	512u /* of configured paths, with NUL; a bind's relative path may be longer */
#define SP_TABLE_BPF_MAX       65528u /* bytes: 8191 instructions are beyond BPF_MAXINSNS anyway */
#define SP_TABLE_FILE_MAX      (1u << 20)
#define SP_TABLE_SIZE_MAX      (64u << 20)
#define SP_TABLE_SANDBOXES_MAX 20000u

/*
 * Entries are applied in order. `target` is absolute, normalised, inside the sandbox.
 *
 * What lies below the target of an earlier TREE is put into that tree by the launcher, once per
 * pool (BIND, FILE, SYMLINK, DIR); init then binds the finished tree with one call. Everything else
 * is done by init in every sandbox. FILE is legal below a TREE only.
 */
enum sp_table_mount_kind {
	SP_MOUNT_BIND = 1, /* source: absolute host path (dir or file), read-only in the template */
	SP_MOUNT_TREE,     /* a read-only directory assembled once per pool (/etc) */
	SP_MOUNT_DIR, /* an empty directory: of the skeleton, of a tree, or on a writable place */
	SP_MOUNT_SYMLINK,  /* source: the link's text */
	SP_MOUNT_FILE,     /* blob: content of a read-only file of a tree */
	SP_MOUNT_WRITABLE, /* a place on the sandbox's one tmpfs, own bind: nosuid, nodev */
	SP_MOUNT_HIDE,     /* cover an existing directory or file by an empty one */
	SP_MOUNT_DEV,      /* the minimal /dev at target */
	SP_MOUNT_PROC,     /* a fresh, masked proc at target */
};

#define SP_MOUNT_F_OPTIONAL  0x01u /* BIND, HIDE: leave out when source (target) does not exist */
#define SP_MOUNT_F_NOEXEC    0x02u /* WRITABLE, BIND */
#define SP_MOUNT_F_RECURSIVE 0x04u /* BIND: take submounts along */
#define SP_MOUNT_F_OWNED     0x08u /* WRITABLE, DIR: belongs to the workload's uid, else to id 0 */
#define SP_MOUNT_F_ALL       0x0fu

struct sp_table_mount {
	uint32_t kind;
	uint32_t flags;
	uint32_t mode;        /* FILE, DIR, WRITABLE: permission bits */
	uint32_t blob_length; /* FILE */
	uint64_t blob_offset; /* FILE: from the start of the table file */
	char source[SP_TABLE_PATH_MAX];
	char target[SP_TABLE_PATH_MAX];
};

#define SP_ROOT_F_READ_ONLY 0x01u /* only read-only binds below it */
#define SP_ROOT_F_RECURSIVE 0x02u /* submounts are taken along */
#define SP_ROOT_F_ALL       0x03u

/* One entry of allowed_binds. */
struct sp_table_root {
	uint32_t flags;
	uint32_t reserved;
	char path[SP_TABLE_PATH_MAX];
};

#define SP_POOL_F_NETWORK_HOST 0x01u
#define SP_POOL_F_DIRECT       0x02u /* backend "direct": no namespaces, no filter */
#define SP_POOL_F_DEGRADED_OK  0x04u /* a limit that cannot be enforced is not fatal */
#define SP_POOL_F_ALL          0x07u

/* One pool. Part of it (from `hostname` on) is what init needs; see init/boot.h. */
struct sp_table_pool {
	char name[64];
	uint32_t flags;
	uint32_t max_sandboxes; /* live ones of this pool that the launcher will allow */
	uint64_t generation;    /* spec digest folded to 64 bits; equal specs have equal numbers */

	/* cgroup limits; 0 = not limited */
	uint64_t memory_bytes;
	uint64_t cpu_quota_us; /* per cpu_period_us */
	uint64_t cpu_period_us;
	uint32_t pids;

	uint32_t direct_uid; /* DIRECT: the host's uid and gid to run as; never 0 */
	uint32_t direct_gid;
	uint32_t root_count;
	struct sp_table_root roots[SP_TABLE_ROOTS_MAX];

	char hostname[64];
	uint32_t workload_uid; /* inside; 1000 */
	uint32_t workload_gid;
	uint64_t tmp_bytes; /* the one tmpfs */
	uint64_t tmp_inodes;
	uint64_t rlimit_nofile;
	uint64_t rlimit_fsize; /* UINT64_MAX = unlimited */
	uint64_t rlimit_nproc;
	uint64_t rlimit_stack;
	uint32_t mount_count;
	uint32_t reserved;
	uint64_t filter_offset;      /* the big filter, loaded once in init */
	uint64_t exec_filter_offset; /* the tiny one, added in every workload */
	uint32_t filter_length;      /* bytes; multiple of 8; 0 only for DIRECT */
	uint32_t exec_filter_length;
	struct sp_table_mount mounts[SP_TABLE_MOUNTS_MAX];
};

struct sp_table {
	uint32_t magic;
	uint32_t version;
	uint64_t build_id;  /* SP_BUILD_ID of both programs */
	uint64_t file_size; /* of the whole memfd */
	uint32_t pool_count;
	uint32_t uid_count; /* slots of 65,536 ids that this instance may use at most */
	uint32_t uid_base;  /* first host id of slot 0; 0 = rootless, one-uid maps */
	uint32_t reserved;
	char instance[64]; /* names cgroups; same alphabet as a pool name */
	char state_dir[SP_TABLE_PATH_MAX];
	/* struct sp_table_pool pools[pool_count] follow */
};

static inline const struct sp_table_pool *sp_table_pools(const struct sp_table *table)
{
	return (const struct sp_table_pool *)(const void *)(table + 1);
}

/* Check every field of a mapped table of `size` bytes: counts, offsets, NUL termination, absolute
 * and normalised paths, ranges, known kinds and flags. -EINVAL with the field's name in err. */
int sp_table_check(const struct sp_table *table, size_t size, struct sp_err *err);

#endif
