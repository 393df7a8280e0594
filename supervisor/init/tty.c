/*
 * The devpts is mounted while the sandbox is made: on the way of its first program it would be a
 * tenth of what that costs. The slave is opened through its master (TIOCGPTPEER): no path is
 * involved that somebody could have put something at. A DIRECT sandbox uses the host's devpts.
 */
#include "supervisor/init/tty.h"

#include "pool/base/fd.h"
#include "supervisor/sandbox/mount_attach.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define TTY_MODE 0620

int init_tty_mount(struct init *init)
{
	const struct sp_mount_option options[] = {
		{"mode", "620"}, {"ptmxmode", "666"}, {"max", INIT_PTYS_MAX}};
	SP_AUTO_CLOSE int mount_fd = -1;
	SP_AUTO_CLOSE int target_fd = -1;
	int status;

	target_fd = sp_mount_resolve(init->root_fd, "/dev/pts");
	if (target_fd < 0)
		return target_fd;
	mount_fd = sp_mount_new("devpts", options, SP_ARRAY_SIZE(options),
				MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
	if (mount_fd == -ENODEV) /* a kernel without: opening /dev/ptmx is ENOENT inside */
		return 0;
	if (mount_fd < 0)
		return mount_fd;
	status = sp_mount_attach(mount_fd, target_fd);
	if (status == 0)
		init->pts_fd = sp_take_fd(&mount_fd);
	return status;
}

static int open_master(struct init *init)
{
	const int flags = O_RDWR | O_NOCTTY | O_NONBLOCK;
	int fd;

	if (init->direct) {
		fd = open("/dev/ptmx", flags | O_CLOEXEC);
		return fd < 0 ? -errno : fd;
	}
	if (init->pts_fd < 0)
		return -ENODEV;
	fd = openat(init->pts_fd, "ptmx", flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int open_slave(int master_fd)
{
	int locked = 0;
	int fd;

	if (ioctl(master_fd, TIOCSPTLCK, &locked) != 0)
		return -errno;
	fd = ioctl(master_fd, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int set_up_slave(const struct init *init, int slave_fd, const struct sp_init_exec *request)
{
	const struct winsize size = {.ws_row = request->rows, .ws_col = request->columns};

	if (ioctl(slave_fd, TIOCSWINSZ, &size) != 0)
		return -errno;
	/* Where there is but one id it belongs to that already. */
	if (!init->direct && !init->boot->rootless &&
	    fchown(slave_fd, request->uid, request->gid) != 0)
		return -errno;
	return fchmod(slave_fd, TTY_MODE) == 0 ? 0 : -errno;
}

int init_tty_open(struct init *init, const struct sp_init_exec *request, int *ret_master_fd,
		  int *ret_slave_fd)
{
	SP_AUTO_CLOSE int master_fd = open_master(init);
	SP_AUTO_CLOSE int slave_fd = -1;
	int status;

	if (master_fd < 0)
		return master_fd;
	slave_fd = open_slave(master_fd);
	if (slave_fd < 0)
		return slave_fd;
	status = set_up_slave(init, slave_fd, request);
	if (status < 0)
		return status;
	*ret_master_fd = sp_take_fd(&master_fd);
	*ret_slave_fd = sp_take_fd(&slave_fd);
	return 0;
}
