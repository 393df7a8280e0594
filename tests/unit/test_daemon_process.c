/*
 * The daemon as a process: dropping privileges for good, talking to the service manager.
 */
#include "pool/base/fd.h"
#include "supervisor/daemon/daemon_private.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEEDS_ROOT()                                             \
	do {                                                     \
		if (geteuid() != 0) {                            \
			cr_assert(!getenv("SP_TESTS_MUST_RUN")); \
			cr_skip_test("needs root");              \
		}                                                \
	} while (0)

/* In a child, which has one thread (the test has two) and can afford to lose its rights. Returns
 * the number of the first expectation that did not hold, 0 = all did. */
static int in_child(int (*body)(void))
{
	pid_t pid = fork();
	int status = 0;

	cr_assert(pid >= 0);
	if (pid == 0)
		_exit(body());
	cr_assert(waitpid(pid, &status, 0) == pid);
	cr_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int becomes_nobody(void)
{
	struct sp_identity identity;
	struct sp_err err = {0};
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{.effective = 1, .permitted = 1}};
	struct passwd *nobody = getpwnam("nobody");

	if (!nobody || identity_resolve("nobody", &identity, &err) < 0)
		return 1;
	if (identity.uid != nobody->pw_uid || identity.gid != nobody->pw_gid)
		return 2;
	if (identity.group_count < 1 || privileges_check(&identity, &err) == 0)
		return 3; /* root would go unnoticed */
	if (privileges_drop(&identity, &err) < 0)
		return 4;
	if (getuid() != identity.uid || getgid() != identity.gid)
		return 5;
	if (setuid(0) == 0 || setgid(0) == 0 || setgroups(0, NULL) == 0)
		return 6;
	if (syscall(SYS_capset, &header, data) == 0)
		return 7;
	if (open("/etc/shadow", O_RDONLY | O_CLOEXEC) >= 0 || errno != EACCES)
		return 8;
	if (prctl(PR_CAPBSET_READ, CAP_SYS_ADMIN, 0, 0, 0) != 0)
		return 9;
	if (prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != SP_SANITIZED ||
	    prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
		return 10;
	identity.uid++;
	if (privileges_check(&identity, &err) == 0)
		return 11; /* somebody else would go unnoticed */
	return 0;
}

static int stays_root_without_rights(void)
{
	struct sp_identity identity;
	struct sp_err err = {0};

	if (identity_resolve("", &identity, &err) < 0 || identity.uid != 0)
		return 1;
	if (privileges_drop(&identity, &err) < 0)
		return 2;
	if (setresuid(1, 1, 1) == 0)
		return 3;
	return 0;
}

Test(daemon_process, privileges_go_for_good)
{
	NEEDS_ROOT();
	cr_assert(in_child(becomes_nobody) == 0);
}

Test(daemon_process, root_without_a_user_keeps_its_uid_and_nothing_else)
{
	NEEDS_ROOT();
	cr_assert(in_child(stays_root_without_rights) == 0);
}

Test(daemon_process, privileges_are_not_dropped_in_one_thread_of_several)
{
	struct sp_identity identity;
	struct sp_err err = {0};

	cr_assert(identity_resolve("", &identity, &err) == 0);
	cr_assert(privileges_drop(&identity, &err) == -EBUSY, "the test has two threads");
	identity_done(&identity);
}

Test(daemon_process, unknown_user_is_named)
{
	struct sp_identity identity;
	struct sp_err err = {0};

	cr_assert(identity_resolve("no-such-user", &identity, &err) == -ENOENT);
	cr_assert(err.code == SP_CODE_CONFIG_INVALID);
	cr_assert_not_null(strstr(err.message, "'no-such-user'"));
}

static int manager(const char *path, bool abstract)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	size_t len = strlen(path);

	memcpy(address.sun_path, path, len);
	if (abstract)
		address.sun_path[0] = '\0';
	cr_assert(bind(fd, (struct sockaddr *)&address,
		       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) == 0);
	return fd;
}

static void hears(struct sp_service *service, int fd, const char *text)
{
	char buffer[256];
	ssize_t got;

	notify_send(service, text);
	got = recv(fd, buffer, sizeof(buffer) - 1, 0);
	cr_assert(got == (ssize_t)strlen(text) && memcmp(buffer, text, (size_t)got) == 0);
}

Test(daemon_process, manager_is_told_by_path_and_abstract_name)
{
	static struct sp_service service;
	char path[64];
	int fd;

	(void)snprintf(path, sizeof(path), "/tmp/sandpool-notify-%d", (int)getpid());
	fd = manager(path, false);
	cr_assert(setenv("NOTIFY_SOCKET", path, 1) == 0);
	notify_init(&service);
	cr_assert_null(getenv("NOTIFY_SOCKET"), "children do not inherit it");
	hears(&service, fd, "READY=1");
	/* A manager that does not read must not stop us. */
	for (int i = 0; i < 100000; i++)
		notify_send(&service, "WATCHDOG=1");
	notify_done(&service);
	sp_fd_close(&fd);
	cr_assert(unlink(path) == 0);

	(void)snprintf(path, sizeof(path), "@sandpool-notify-%d", (int)getpid());
	fd = manager(path, true);
	cr_assert(setenv("NOTIFY_SOCKET", path, 1) == 0);
	notify_init(&service);
	hears(&service, fd, "STOPPING=1");
	notify_done(&service);
	sp_fd_close(&fd);
}

Test(daemon_process, no_manager_is_no_error)
{
	static struct sp_service service;
	static const char *const sockets[] = {"relative", "/no/such/socket", ""};

	for (size_t i = 0; i < SP_ARRAY_SIZE(sockets); i++) {
		cr_assert(setenv("NOTIFY_SOCKET", sockets[i], 1) == 0);
		notify_init(&service);
		notify_send(&service, "READY=1");
		notify_done(&service);
	}
	cr_assert(unsetenv("NOTIFY_SOCKET") == 0);
	notify_init(&service);
	cr_assert(service.notify_fd == -1);
}

Test(daemon_process, watchdog_is_fed_twice_in_its_time_and_only_if_it_is_ours)
{
	char pid[32];

	cr_assert(unsetenv("WATCHDOG_USEC") == 0 && unsetenv("WATCHDOG_PID") == 0);
	cr_assert(notify_watchdog_ms() == 0);
	cr_assert(setenv("WATCHDOG_USEC", "30000000", 1) == 0);
	cr_assert(notify_watchdog_ms() == 15000);
	cr_assert(setenv("WATCHDOG_PID", "1", 1) == 0);
	cr_assert(notify_watchdog_ms() == 0);
	(void)snprintf(pid, sizeof(pid), "%d", (int)getpid());
	cr_assert(setenv("WATCHDOG_PID", pid, 1) == 0);
	cr_assert(notify_watchdog_ms() == 15000);
	cr_assert(setenv("WATCHDOG_USEC", "junk", 1) == 0);
	cr_assert(notify_watchdog_ms() == 0);
}
