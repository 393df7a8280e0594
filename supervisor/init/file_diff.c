/*
 * DIFF: what the overlay of a session has changed, as a tar.gz in a nameless file of the session's
 * own tmpfs, so within its budget.
 *
 * The archive is a layer as OCI has it: what was deleted is an empty file `.wh.NAME`, a directory
 * that hides what is below it has one named `.wh..wh..opq`, right behind it. Names beyond 100 bytes
 * have a pax header. Nothing is compressed: gzip knows blocks that are stored, and the sandbox's
 * processor time is its own. What changes meanwhile has the size that it had when it was reached.
 *
 * Here, and nowhere else in a helper, permissions are passed over (CAP_DAC_OVERRIDE): a file that
 * its owner has closed has changed as well. All names are below the upper directory's descriptor,
 * no link is followed, and nothing but the archive is written.
 */
#include "supervisor/init/file_walk.h"

#include "pool/base/fd.h"
#include "supervisor/init/raw.h"
#include "supervisor/sandbox/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TAR_BLOCK    512u
#define TAR_NAME     100u
#define STORED_MAX   32768u /* bytes of one deflate block */
#define WHITEOUT     ".wh."
#define OPAQUE       ".wh..wh..opq"
#define CRC_POLYNOME 0xedb88320u
#define CRC_ENTRIES  256u
#define BYTE_BITS    8
#define RECORD_SPACE (SP_INIT_PATH_MAX + 64u)

struct tar_header {
	char name[TAR_NAME];
	char mode[8];
	char uid[8];
	char gid[8];
	char size[12];
	char mtime[12];
	char checksum[8];
	char type;
	char link[TAR_NAME];
	char magic[8];
	char user[32];
	char group[32];
	char major[8];
	char minor[8];
	char prefix[155];
	char pad[12];
};

_Static_assert(sizeof(struct tar_header) == TAR_BLOCK, "a tar header is one block");

static struct {
	uint32_t table[CRC_ENTRIES];
	uint32_t crc;
	uint32_t length; /* modulo 2^32, as gzip wants it */
	size_t used;
	uint8_t data[STORED_MAX];
	char copy[STORED_MAX];
	char text[SP_INIT_PATH_MAX + sizeof(OPAQUE) + 1];
	char link[PATH_MAX];
	char record[2 * RECORD_SPACE];
} out;

/* ---- gzip ---- */

static int write_out(const void *data, size_t len)
{
	const char *at = data;

	while (len > 0) {
		ssize_t written = write(INIT_FILE_ARCHIVE, at, len);

		if (written < 0)
			return -errno;
		at += written;
		len -= (size_t)written;
	}
	return 0;
}

static int begin(void)
{
	static const uint8_t head[] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255};

	for (uint32_t i = 0; i < CRC_ENTRIES; i++) {
		uint32_t value = i;

		for (int bit = 0; bit < BYTE_BITS; bit++)
			value = (value & 1) != 0 ? (value >> 1) ^ CRC_POLYNOME : value >> 1;
		out.table[i] = value;
	}
	out.crc = UINT32_MAX;
	return write_out(head, sizeof(head));
}

static int flush(bool last)
{
	const uint16_t len = (uint16_t)out.used;
	const uint16_t not_len = (uint16_t)~len;
	const uint8_t head[] = {
		last ? 1 : 0,
		(uint8_t)(len & 0xff),
		(uint8_t)(len >> BYTE_BITS),
		(uint8_t)(not_len & 0xff),
		(uint8_t)(not_len >> BYTE_BITS),
	};
	int status = write_out(head, sizeof(head));

	if (status == 0)
		status = write_out(out.data, out.used);
	out.used = 0;
	return status;
}

static int put(const void *data, size_t len)
{
	const uint8_t *bytes = data;

	for (size_t i = 0; i < len; i++) {
		int status = out.used == STORED_MAX ? flush(false) : 0;

		if (status < 0)
			return status;
		out.data[out.used++] = bytes[i];
		out.crc = out.table[(out.crc ^ bytes[i]) & 0xff] ^ (out.crc >> BYTE_BITS);
	}
	out.length += (uint32_t)len;
	return 0;
}

static int end(void)
{
	static const char zeros[TAR_BLOCK];
	uint32_t tail[2];
	int status = put(zeros, sizeof(zeros));

	if (status == 0)
		status = put(zeros, sizeof(zeros));
	if (status == 0)
		status = flush(true);
	tail[0] = ~out.crc; /* both little-endian, as the machines are that this is built for */
	tail[1] = out.length;
	return status < 0 ? status : write_out(tail, sizeof(tail));
}

/* ---- tar ---- */

/* What is to be told of one entry. */
struct entry {
	const char *name;
	const char *link; /* NULL: none */
	uint64_t size;
	int64_t modified_s;
	uint32_t mode;
	uint32_t uid;
	uint32_t gid;
	char type;
};

/* Octal digits and a NUL; what does not fit is cut, which a size never is (8 GiB, checked). */
static void octal(char *field, size_t size, uint64_t value)
{
	field[size - 1] = '\0';
	for (size_t i = size - 1; i-- > 0; value >>= 3)
		field[i] = (char)('0' + (value & 7));
}

static int pad(uint64_t size)
{
	static const char zeros[TAR_BLOCK];

	return put(zeros, (size_t)((TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK));
}

static int put_header(const struct entry *entry)
{
	struct tar_header header;
	uint32_t sum = 0;

	memset(&header, 0, sizeof(header));
	memcpy(header.name, entry->name, SP_MIN(strlen(entry->name), sizeof(header.name)));
	octal(header.mode, sizeof(header.mode), entry->mode);
	octal(header.uid, sizeof(header.uid), entry->uid);
	octal(header.gid, sizeof(header.gid), entry->gid);
	octal(header.size, sizeof(header.size), entry->size);
	octal(header.mtime, sizeof(header.mtime), (uint64_t)SP_MAX(entry->modified_s, INT64_C(0)));
	memset(header.checksum, ' ', sizeof(header.checksum));
	header.type = entry->type;
	if (entry->link)
		memcpy(header.link, entry->link, SP_MIN(strlen(entry->link), sizeof(header.link)));
	memcpy(header.magic, "ustar\00000", sizeof(header.magic));
	for (size_t i = 0; i < sizeof(header); i++)
		sum += ((const uint8_t *)&header)[i];
	octal(header.checksum, sizeof(header.checksum) - 1, sum);
	return put(&header, sizeof(header));
}

/* "LENGTH key=value\n", where the length counts itself. */
static size_t pax_record(char *to, size_t size, const char *key, const char *value)
{
	size_t len = strlen(key) + strlen(value) + 3;
	size_t digits = 1;

	for (size_t limit = 10; len + digits >= limit; limit *= 10)
		digits++;
	return (size_t)snprintf(to, size, "%lu %s=%s\n", (unsigned long)(len + digits), key, value);
}

static int put_pax(const struct entry *entry)
{
	struct entry pax = {.name = "pax", .mode = 0644, .type = 'x'};
	size_t len = 0;
	int status;

	if (strlen(entry->name) > TAR_NAME)
		len = pax_record(out.record, sizeof(out.record), "path", entry->name);
	if (entry->link && strlen(entry->link) > TAR_NAME)
		len += pax_record(out.record + len, sizeof(out.record) - len, "linkpath",
				  entry->link);
	if (len == 0)
		return 0;
	pax.size = len;
	status = put_header(&pax);
	if (status == 0)
		status = put(out.record, len);
	return status < 0 ? status : pad(len);
}

static int put_entry(const struct entry *entry)
{
	int status = put_pax(entry);

	return status < 0 ? status : put_header(entry);
}

/* ---- entries ---- */

/* An empty file, in the directory that the first `len` bytes name. */
static int put_marker(const struct entry *entry, const char *directory, size_t len,
		      const char *prefix, const char *name)
{
	struct entry marker = {.modified_s = entry->modified_s, .mode = 0644, .type = '0'};

	memcpy(out.text, directory, len);
	(void)snprintf(out.text + len, sizeof(out.text) - len, "%s%s%s",
		       len > 0 && directory[len - 1] != '/' ? "/" : "", prefix, name);
	marker.name = out.text;
	return put_entry(&marker);
}

static int put_content(struct file_job *job, int fd, uint64_t size)
{
	uint64_t left = size;
	int status = 0;

	while (status == 0 && left > 0) {
		size_t want = (size_t)SP_MIN(left, (uint64_t)sizeof(out.copy));
		ssize_t got = read(fd, out.copy, want);

		if (got < 0)
			return -errno;
		if (got == 0) { /* it has become shorter */
			memset(out.copy, 0, want);
			got = (ssize_t)want;
		}
		left -= (uint64_t)got;
		file_tell(job);
		status = put(out.copy, (size_t)got);
	}
	return status < 0 ? status : pad(size);
}

static int put_file(struct file_job *job, int dir_fd, const char *name, struct entry *entry)
{
	SP_AUTO_CLOSE int fd = sp_sys_openat2(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0,
					      RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
	struct sp_init_file_info info;
	int status = fd < 0 ? fd : file_info(fd, "", &info);

	if (status == -ENOENT || status == -ELOOP)
		return 0; /* gone meanwhile */
	if (status < 0)
		return status;
	if (info.type != SP_INIT_FILE_REGULAR)
		return 0;
	if (info.size >> 33 != 0)
		return -EFBIG;
	entry->size = info.size;
	status = put_entry(entry);
	return status < 0 ? status : put_content(job, fd, info.size);
}

static int put_link(int dir_fd, const char *name, struct entry *entry)
{
	long len = RAW4(SYS_readlinkat, dir_fd, name, out.link, sizeof(out.link) - 1);

	if (len < 0)
		return len == -ENOENT || len == -EINVAL ? 0 : (int)len;
	out.link[len] = '\0';
	entry->link = out.link;
	return put_entry(entry);
}

/* Does it hide what lies below it? */
static int is_opaque(int dir_fd, const char *name)
{
	SP_AUTO_CLOSE int fd = sp_sys_openat2(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0,
					      RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
	char value = 0;

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	return RAW4(SYS_fgetxattr, fd, "user.overlay.opaque", &value, sizeof(value)) == 1 &&
	       value == 'y';
}

static int put_directory(struct file_walk *walk, int dir_fd, const char *name, struct entry *entry)
{
	int opaque = is_opaque(dir_fd, name);
	int status;

	if (opaque < 0)
		return opaque;
	(void)snprintf(out.text, sizeof(out.text), "%s/", walk->path);
	entry->name = out.text;
	status = put_entry(entry);
	if (status < 0 || opaque == 0)
		return status;
	return put_marker(entry, walk->path, walk->path_length, OPAQUE, "");
}

/* Other devices cannot be made in here, sockets are no data. */
static int put_other(const struct file_walk *walk, int dir_fd, const char *name,
		     struct entry *entry)
{
	struct statx info;

	if (statx(dir_fd, name, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &info) != 0)
		return errno == ENOENT ? 0 : -errno;
	if (S_ISFIFO(info.stx_mode)) {
		entry->type = '6';
		return put_entry(entry);
	}
	if (!S_ISCHR(info.stx_mode) || info.stx_rdev_major != 0 || info.stx_rdev_minor != 0)
		return 0;
	return put_marker(entry, walk->path, walk->path_length - strlen(name), WHITEOUT, name);
}

static int on_entry(struct file_walk *walk, int dir_fd, const char *name,
		    const struct sp_init_file_info *info)
{
	struct entry entry = {
		.name = walk->path,
		.modified_s = info->modified_ns / INT64_C(1000000000),
		.mode = info->mode,
		.uid = info->uid,
		.gid = info->gid,
		.type = '0',
	};

	switch (info->type) {
	case SP_INIT_FILE_REGULAR:
		return put_file(walk->job, dir_fd, name, &entry);
	case SP_INIT_FILE_LINK:
		entry.type = '2';
		return put_link(dir_fd, name, &entry);
	case SP_INIT_FILE_DIR:
		entry.type = '5';
		return put_directory(walk, dir_fd, name, &entry);
	default:
		return put_other(walk, dir_fd, name, &entry);
	}
}

int file_diff(struct file_job *job, struct sp_init_file_info *ret, int *ret_fd)
{
	static struct file_walk walk;
	int status;

	job->stage = "diff";
	walk.job = job;
	walk.depth = UINT32_MAX;
	walk.limit = SP_INIT_FILE_ENTRIES;
	walk.path_limit = SP_INIT_PATH_MAX - 1;
	walk.entry = on_entry;
	status = file_privilege(true);
	if (status == 0)
		status = begin();
	if (status == 0)
		status = file_walk(&walk, INIT_FILE_UPPER);
	if (status == 0)
		status = end();
	if (status == 0)
		status = file_privilege(false);
	if (status == 0)
		status = file_info(INIT_FILE_ARCHIVE_READ, "", ret);
	if (status == 0) {
		*ret_fd = INIT_FILE_ARCHIVE_READ;
		return 0;
	}
	/* Its room is free when the failure is told. */
	(void)close(INIT_FILE_ARCHIVE);
	(void)close(INIT_FILE_ARCHIVE_READ);
	return status;
}
