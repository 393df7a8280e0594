/*
 * Listen sockets, made while still root, before anything is served. May block (name lookups).
 *
 * A Unix socket gets its mode before it has a name (fchmod on the unbound socket decides the mode
 * of the file that bind makes), so there is no moment in which more may connect than should:
 * 0660 with the admin group, or 0600 for the daemon's own user (root always can). What is already
 * at the path is looked at without following it: a socket that nobody answers on is a leftover of a
 * crash and removed, one that answers belongs to another daemon, and anything else, a symbolic link
 * above all, was put there by somebody and is refused. The directory must not be writable to others
 * for that to mean something; we make a missing one 0755.
 */
#include "supervisor/api/api_private.h"

#include "pool/base/fd.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define HOST_MAX 256

static const char *unix_path(const char *url)
{
	static const char scheme[] = "unix://";

	return strncmp(url, scheme, strlen(scheme)) == 0 ? url + strlen(scheme) : NULL;
}

static int make_parent(const char *path, struct sp_err *err)
{
	char parent[sizeof(((struct sockaddr_un *)0)->sun_path)];
	const char *slash = strrchr(path, '/');
	mode_t mask;
	int made;

	if (slash == path)
		return 0;
	(void)snprintf(parent, sizeof(parent), "%.*s", (int)(slash - path), path);
	mask = umask(022);
	made = mkdir(parent, 0755) < 0 ? -errno : 0;
	(void)umask(mask);
	if (made < 0 && made != -EEXIST)
		return sp_err_set(err, made, "make directory '%s'", parent);
	return 0;
}

/* 0: somebody answers; -ECONNREFUSED: a leftover. */
static int try_connect(const struct sockaddr_un *address)
{
	SP_AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0)
		return errno == EAGAIN ? 0 : -errno; /* EAGAIN: its backlog is full */
	return 0;
}

static int clear_path(const struct sockaddr_un *address, struct sp_err *err)
{
	const char *path = address->sun_path;
	struct stat st;
	int status;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : sp_err_set(err, -errno, "look at '%s'", path);
	if (!S_ISSOCK(st.st_mode))
		return sp_err_set(err, -EEXIST,
				  "listen on '%s': something that is no socket is "
				  "there",
				  path);
	status = try_connect(address);
	if (status == 0)
		return sp_err_set(err, -EADDRINUSE, "listen on '%s': another program answers there",
				  path);
	if (status != -ECONNREFUSED)
		return sp_err_set(err, status, "listen on '%s': probe what is there", path);
	if (unlink(path) < 0 && errno != ENOENT)
		return sp_err_set(err, -errno, "remove the stale socket '%s'", path);
	return 0;
}

/* The user that will run the daemon; ours if the configuration names none. */
static int daemon_uid(const struct sp_config *config, uid_t *ret_uid, struct sp_err *err)
{
	const struct passwd *entry;

	*ret_uid = geteuid();
	if (!config->user || !config->user[0] || geteuid() != 0)
		return 0;
	errno = 0;
	entry = getpwnam(config->user);
	if (!entry)
		return sp_err_set(err, errno ? -errno : -ENOENT, "look up user '%s'", config->user);
	*ret_uid = entry->pw_uid;
	return 0;
}

static int listen_unix(const char *path, const struct sp_config *config, bool have_group,
		       gid_t group, int *ret_fd, struct sp_err *err)
{
	SP_AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	uid_t owner = (uid_t)-1;
	mode_t mask;
	int status;

	if (fd < 0)
		return sp_err_set(err, -errno, "make a socket for '%s'", path);
	if (path[0] != '/' || strlen(path) >= sizeof(address.sun_path))
		return sp_err_set(err, -EINVAL,
				  "listen on '%s': not an absolute path of at most "
				  "%zu bytes",
				  path, sizeof(address.sun_path) - 1);
	memcpy(address.sun_path, path, strlen(path));
	status = make_parent(path, err);
	if (status == 0)
		status = clear_path(&address, err);
	if (status == 0 && !have_group)
		status = daemon_uid(config, &owner, err);
	if (status < 0)
		return status;
	if (fchmod(fd, have_group ? 0660 : 0600) < 0)
		return sp_err_set(err, -errno, "set the mode of socket '%s'", path);
	mask = umask(0);
	status = bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : 0;
	(void)umask(mask);
	if (status < 0)
		return sp_err_set(err, status, "bind '%s'", path);
	if (lchown(path, owner, have_group ? group : (gid_t)-1) < 0)
		return sp_err_set(err, -errno, "set the owner of '%s'", path);
	if (listen(fd, SP_API_BACKLOG) < 0)
		return sp_err_set(err, -errno, "listen on '%s'", path);
	*ret_fd = sp_take_fd(&fd);
	return 0;
}

/* "HOST:PORT", "[V6]:PORT" */
static int split_address(const char *text, char *host, size_t host_size, const char **ret_port)
{
	const char *colon = strrchr(text, ':');
	size_t len;

	if (!colon || !colon[1] || colon == text)
		return -EINVAL;
	len = (size_t)(colon - text);
	if (text[0] == '[') {
		if (text[len - 1] != ']' || len < 3)
			return -EINVAL;
		text++;
		len -= 2;
	} else if (memchr(text, ':', len)) {
		return -EINVAL; /* an IPv6 address without brackets */
	}
	if (len >= host_size)
		return -EINVAL;
	memcpy(host, text, len);
	host[len] = '\0';
	*ret_port = colon + 1;
	return 0;
}

static bool is_loopback(const struct sockaddr *address)
{
	if (address->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)address;

		return ntohl(in->sin_addr.s_addr) >> 24 == 127;
	}
	if (address->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const void *)address;

		return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
	}
	return false;
}

static int listen_address(const char *url, const struct addrinfo *info, int *ret_fd,
			  struct sp_err *err)
{
	SP_AUTO_CLOSE int fd =
		socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const int on = 1;

	if (fd < 0)
		return sp_err_set(err, -errno, "make a socket for '%s'", url);
	/* Without it a restart waits for the old connections' TIME_WAIT. */
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) < 0)
		return sp_err_set(err, -errno, "set options of '%s'", url);
	if (bind(fd, info->ai_addr, info->ai_addrlen) < 0)
		return sp_err_set(err, -errno, "bind '%s'", url);
	if (listen(fd, SP_API_BACKLOG) < 0)
		return sp_err_set(err, -errno, "listen on '%s'", url);
	*ret_fd = sp_take_fd(&fd);
	return 0;
}

static int listen_tcp(const char *url, const char *address, bool plain_anywhere, int *ret_fd,
		      struct sp_err *err)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				       .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
	struct addrinfo *info = NULL;
	char host[HOST_MAX];
	const char *port;
	int status;

	if (split_address(address, host, sizeof(host), &port) < 0)
		return sp_err_set(err, -EINVAL, "listen on '%s': not of the form HOST:PORT", url);
	status = getaddrinfo(host, port, &hints, &info);
	if (status != 0)
		return sp_err_code(err, SP_CODE_CONFIG_INVALID, -EINVAL, "listen on '%s': %s", url,
				   gai_strerror(status));
	if (!plain_anywhere && !is_loopback(info->ai_addr))
		status = sp_err_code(err, SP_CODE_CONFIG_INVALID, -EINVAL,
				     "listen on '%s': plain TCP beyond loopback needs tls:// or "
				     "\"insecure\": true",
				     url);
	else
		status = listen_address(url, info, ret_fd, err);
	freeaddrinfo(info);
	return status;
}

int sp_listen_open(const char *url, const struct sp_config *config, bool have_group, gid_t group,
		   enum sp_listener_kind *ret_kind, int *ret_fd, struct sp_err *err)
{
	const char *path = unix_path(url);
	int status;

	if (path) {
		status = listen_unix(path, config, have_group, group, ret_fd, err);
		if (status == 0)
			*ret_kind = SP_LISTENER_UNIX;
		return status;
	}
	if (strncmp(url, "tcp://", 6) == 0) {
		status = listen_tcp(url, url + 6, config->insecure, ret_fd, err);
		if (status == 0)
			*ret_kind = SP_LISTENER_TCP;
		return status;
	}
	if (strncmp(url, "tls://", 6) == 0) {
		status = listen_tcp(url, url + 6, true, ret_fd, err);
		if (status == 0)
			*ret_kind = SP_LISTENER_TLS;
		return status;
	}
	return sp_err_set(err, -EINVAL, "listen on '%s': neither unix:// nor tcp:// nor tls://",
			  url);
}

void sp_listen_remove(const char *url)
{
	const char *path = unix_path(url);

	/* Fails when the directory is root's and we are not any more; the next start removes it. */
	if (path)
		(void)unlink(path);
}
