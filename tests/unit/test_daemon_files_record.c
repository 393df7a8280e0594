/*
 * What comes over a channel from inside a sandbox, and the descriptors with it: only what can be
 * true is taken.
 */
#include "supervisor/daemon/files_record.h"

#include "pool/base/fd.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static _Alignas(8) char record[SP_INIT_FILE_REPLY];
static size_t length;

static void begin(void)
{
	const struct sp_init_file_record_header header = {.type = SP_INIT_FILE_FOUND};

	memset(record, 0, sizeof(record));
	memcpy(record, &header, sizeof(header));
	length = sizeof(header);
}

static struct sp_init_file_record_header *header(void)
{
	return (struct sp_init_file_record_header *)record;
}

/* The entry, to be spoilt. */
static struct sp_init_file_entry *add(const char *path)
{
	struct sp_init_file_entry *entry = (void *)(record + length);

	memset(entry, 0, sizeof(*entry));
	entry->path_length = (uint32_t)strlen(path);
	memcpy(entry + 1, path, strlen(path) + 1);
	length += (sizeof(*entry) + strlen(path) + 1 + 7) / 8 * 8;
	header()->count++;
	return entry;
}

/* How many entries are read before the end; -EBADMSG. */
static int read_all(uint32_t depth)
{
	struct files_entries entries;
	struct files_entry entry;
	int count = 0;
	int status = files_entries_open(&entries, record, length, depth);

	while (status == 0 && (status = files_entries_next(&entries, &entry)) == 1) {
		cr_assert(strlen(entry.path) == entry.path_length);
		count++;
		status = 0;
		if (entries.count == 0 && entries.left == 0)
			return count;
	}
	return status;
}

static bool takes(const char *path, uint32_t depth)
{
	begin();
	(void)add(path);
	return read_all(depth) == 1;
}

Test(daemon_files_record, entries_are_read_in_turn)
{
	static const char *const paths[] = {"a", "a/b", "seven77", "eight888", "\xff\n"};
	struct files_entries entries;
	struct files_entry entry;

	begin();
	for (size_t i = 0; i < SP_ARRAY_SIZE(paths); i++)
		add(paths[i])->info = (struct sp_init_file_info){
			.type = SP_INIT_FILE_DIR, .mode = 01755, .uid = 7, .size = i};
	cr_assert(files_entries_open(&entries, record, length, UINT32_MAX) == 0);
	for (size_t i = 0; i < SP_ARRAY_SIZE(paths); i++) {
		cr_assert(files_entries_next(&entries, &entry) == 1);
		cr_assert_str_eq(entry.path, paths[i]);
		cr_assert(entry.info.type == SP_FILE_DIRECTORY && entry.info.mode == 01755);
		cr_assert(entry.info.uid == 7 && entry.info.size == i);
	}
	cr_assert(files_entries_next(&entries, &entry) == 0);
}

Test(daemon_files_record, paths_stay_below_what_is_listed)
{
	static const char *const bad[] = {"",     "/a",     "a/",  "a//b", ".", "..",
					  "../a", "a/../b", "a/.", "./a",  "/"};

	for (size_t i = 0; i < SP_ARRAY_SIZE(bad); i++)
		cr_assert(!takes(bad[i], UINT32_MAX), "'%s'", bad[i]);
	cr_assert(takes("..a", 1) && takes(".a", 1) && takes("a..", 1));
	cr_assert(takes("a/b", 2) && !takes("a/b", 1), "no deeper than asked for");
	cr_assert(!takes("a", 0));
}

Test(daemon_files_record, names_and_paths_have_so_many_bytes)
{
	static char path[SP_FILE_PATH_MAX + 1];

	memset(path, 'n', NAME_MAX);
	cr_assert(takes(path, 1));
	path[NAME_MAX] = 'n';
	cr_assert(!takes(path, 1));
	for (size_t i = 0; i < SP_FILE_PATH_MAX - 1; i++)
		path[i] = i % 100 == 99 ? '/' : 'n';
	cr_assert(path[SP_FILE_PATH_MAX - 2] == 'n');
	cr_assert(takes(path, UINT32_MAX));
	path[SP_FILE_PATH_MAX - 1] = 'n';
	cr_assert(!takes(path, UINT32_MAX));
}

Test(daemon_files_record, lengths_and_counts_are_exact)
{
	begin();
	(void)add("a");
	(void)add("bb");
	cr_assert(read_all(1) == 2);
	header()->count = 1;
	cr_assert(read_all(1) < 0, "something is left");
	header()->count = 3;
	cr_assert(read_all(1) < 0, "something is missing");
	header()->count = 0;
	cr_assert(read_all(1) < 0);
	header()->count = 2;
	for (size_t whole = length; length > 0; length--)
		cr_assert((read_all(1) == 2) == (length == whole), "%zu bytes", length);
}

Test(daemon_files_record, numbers_of_an_entry)
{
	struct sp_init_file_entry *entry;

	begin();
	entry = add("name");
	entry->path_length = 3;
	cr_assert(read_all(1) < 0, "no end where it is said to be");
	entry->path_length = 5;
	cr_assert(read_all(1) < 0, "a NUL in it");
	entry->path_length = UINT32_MAX;
	cr_assert(read_all(1) < 0);
	entry->path_length = 4;
	entry->reserved = 1;
	cr_assert(read_all(1) < 0);
	entry->reserved = 0;
	entry->info.type = SP_INIT_FILE_ELSE + 1;
	cr_assert(read_all(1) < 0);
	entry->info.type = SP_INIT_FILE_ELSE;
	entry->info.mode = 010000;
	cr_assert(read_all(1) < 0);
	entry->info.mode = 07777;
	cr_assert(read_all(1) == 1);
}

Test(daemon_files_record, result)
{
	struct sp_init_file_result result = {.header.type = SP_INIT_FILE_RESULT};

	cr_assert(files_result_check(&result, sizeof(result), true) == 0);
	cr_assert(files_result_check(&result, sizeof(result) - 1, true) < 0);
	result.status = 1;
	cr_assert(files_result_check(&result, sizeof(result), false) < 0);
	result.status = -4096;
	cr_assert(files_result_check(&result, sizeof(result), false) < 0);
	result.status = -4095;
	cr_assert(files_result_check(&result, sizeof(result), false) == 0);
	memset(result.stage, 'x', sizeof(result.stage));
	cr_assert(files_result_check(&result, sizeof(result), false) < 0);
	memset(result.stage, 0, sizeof(result.stage));
	result.info.type = 4;
	cr_assert(files_result_check(&result, sizeof(result), true) == 0, "not looked at");
	result.status = 0;
	cr_assert(files_result_check(&result, sizeof(result), true) < 0);
	cr_assert(files_result_check(&result, sizeof(result), false) == 0);
}

/* ---- descriptors ---- */

static bool regular(int fd)
{
	struct sp_file_info info = {.type = SP_FILE_REGULAR, .size = 99};
	bool good = files_regular_check(fd, &info) == 0;

	cr_assert(fd >= 0);
	cr_assert(!good || info.size != 99, "the kernel's word");
	sp_fd_close(&fd);
	return good;
}

Test(daemon_files_record, only_files_that_are_data)
{
	int ends[2];

	cr_assert(regular(open("/etc/passwd", O_RDONLY | O_CLOEXEC)), "the control");
	cr_assert(regular(memfd_create("m", MFD_CLOEXEC)) == false, "open for writing");
	cr_assert(!regular(open("/etc/passwd", O_PATH | O_CLOEXEC)));
	cr_assert(!regular(open("/etc", O_RDONLY | O_CLOEXEC)));
	cr_assert(!regular(open("/dev/zero", O_RDONLY | O_CLOEXEC)));
	cr_assert(!regular(open("/proc/self/status", O_RDONLY | O_CLOEXEC)));
	cr_assert(!regular(open("/sys/kernel/mm/transparent_hugepage/enabled",
				O_RDONLY | O_CLOEXEC)) ||
		  access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) != 0);
	cr_assert(pipe2(ends, O_CLOEXEC) == 0);
	cr_assert(!regular(ends[0]) && !regular(ends[1]));
	cr_assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
	cr_assert(!regular(ends[0]) && !regular(ends[1]));
}

/* A listener on 127.0.0.1, its port in *ret_port. */
static int listener(uint16_t *ret_port)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	cr_assert(fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0 &&
		  listen(fd, 4) == 0);
	cr_assert(getsockname(fd, (struct sockaddr *)&address, &size) == 0);
	*ret_port = ntohs(address.sin_port);
	return fd;
}

Test(daemon_files_record, only_a_connection_to_that_port)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct linger slow = {.l_onoff = 1, .l_linger = 100};
	socklen_t size = sizeof(slow);
	uint16_t port;
	int listening = listener(&port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int datagram = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int pair[2];

	address.sin_port = htons(port);
	cr_assert(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	cr_assert(connect(datagram, (struct sockaddr *)&address, sizeof(address)) == 0);
	cr_assert(setsockopt(fd, SOL_SOCKET, SO_LINGER, &slow, sizeof(slow)) == 0);
	cr_assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	cr_assert(files_socket_check(fd, port) == 0, "the control");
	cr_assert((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
	cr_assert(getsockopt(fd, SOL_SOCKET, SO_LINGER, &slow, &size) == 0 && slow.l_onoff == 0);
	cr_assert(files_socket_check(fd, (uint16_t)(port + 1)) < 0);
	cr_assert(files_socket_check(listening, port) < 0);
	cr_assert(files_socket_check(datagram, port) < 0);
	cr_assert(files_socket_check(pair[0], port) < 0);
	cr_assert(files_socket_check(STDIN_FILENO, port) < 0);
	sp_fd_close(&fd);
	sp_fd_close(&datagram);
	sp_fd_close(&listening);
	sp_fd_close(&pair[0]);
	sp_fd_close(&pair[1]);
}

Test(daemon_files_record, codes_of_errors)
{
	static const struct {
		enum sp_init_file_kind kind;
		int status;
		enum sp_code code;
	} cases[] = {
		{SP_INIT_FILE_STAT, -ENOENT, SP_CODE_FILE_NOT_FOUND},
		{SP_INIT_FILE_MOVE, -EEXIST, SP_CODE_FILE_EXISTS},
		{SP_INIT_FILE_OPEN, -EISDIR, SP_CODE_FILE_KIND},
		{SP_INIT_FILE_OPEN, -ENODEV, SP_CODE_FILE_KIND},
		{SP_INIT_FILE_LIST, -ENOTDIR, SP_CODE_FILE_KIND},
		{SP_INIT_FILE_OPEN, -EOPNOTSUPP, SP_CODE_FILE_KIND},
		{SP_INIT_FILE_WRITE, -EACCES, SP_CODE_FILE_DENIED},
		{SP_INIT_FILE_WRITE, -EROFS, SP_CODE_FILE_DENIED},
		{SP_INIT_FILE_WRITE, -ENOSPC, SP_CODE_FILE_FULL},
		{SP_INIT_FILE_WRITE, -EFBIG, SP_CODE_FILE_FULL},
		{SP_INIT_FILE_LIST, -E2BIG, SP_CODE_TOO_MANY},
		{SP_INIT_FILE_STAT, -ENAMETOOLONG, SP_CODE_INVALID_ARGUMENT},
		{SP_INIT_FILE_STAT, -ECANCELED, SP_CODE_UNAVAILABLE},
		{SP_INIT_FILE_STAT, -EAGAIN, SP_CODE_UNAVAILABLE},
		{SP_INIT_FILE_CONNECT, -ECONNREFUSED, SP_CODE_CONNECT_FAILED},
		{SP_INIT_FILE_CONNECT, -ETIMEDOUT, SP_CODE_CONNECT_FAILED},
		{SP_INIT_FILE_CONNECT, -EAGAIN, SP_CODE_UNAVAILABLE},
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++)
		cr_assert(files_code(cases[i].kind, cases[i].status) == cases[i].code, "%zu", i);
}
