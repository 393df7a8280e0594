/*
 * The /etc of a sandbox whose root brings none: the few files that programs need, written here; and
 * where the programs are the host's, files copied from it and read-only binds of folders that hold
 * no secret. What is not named here does not exist inside; a service's configuration, keys and
 * accounts never do.
 */
#include "supervisor/config/table_mounts.h"

#include "pool/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPY_MAX (512u << 10)

static const char passwd_text[] = "root:x:0:0:root:/root:/bin/sh\n"
				  "user:x:1000:1000:user:/home/user:/bin/sh\n"
				  "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
static const char group_text[] = "root:x:0:\n"
				 "tty:x:5:\n"
				 "user:x:1000:\n"
				 "nogroup:x:65534:\n";
static const char nsswitch_text[] = "passwd: files\n"
				    "group: files\n"
				    "shadow: files\n"
				    "hosts: files dns\n"
				    "networks: files\n"
				    "protocols: files\n"
				    "services: files\n"
				    "ethers: files\n"
				    "rpc: files\n";

/* Copied as they are, or kept as the links that they are. */
static const char *const copied[] = {
	"/etc/bash.bashrc", "/etc/debian_version", "/etc/host.conf",  "/etc/inputrc",
	"/etc/ld.so.cache", "/etc/ld.so.conf",     "/etc/localtime",  "/etc/mime.types",
	"/etc/os-release",  "/etc/profile",        "/etc/protocols",  "/etc/services",
	"/etc/shells",      "/etc/timezone",       "/etc/login.defs", "/etc/ssl/openssl.cnf",
};

/* Shown as they are on the host. Not /etc/ssl and /etc/pki as a whole: they hold private keys. */
static const char *const shown[] = {
	"/etc/alternatives",
	"/etc/ca-certificates",
	"/etc/crypto-policies",
	"/etc/fonts",
	"/etc/java-*",
	"/etc/ld.so.conf.d",
	"/etc/perl",
	"/etc/pki/ca-trust",
	"/etc/pki/tls/certs",
	"/etc/python3*",
	"/etc/R",
	"/etc/ssl/certs",
};

static int add_text(struct sp_table_builder *builder, const char *target, const void *text,
		    size_t len)
{
	struct sp_table_mount *mount =
		sp_table_add_mount(builder, SP_MOUNT_FILE, 0, 0444, "", target);
	int status;

	if (!mount)
		return -E2BIG;
	status = sp_table_add_blob(builder, text, len, &mount->blob_offset);
	if (status < 0)
		return sp_err_set(builder->err, status, "pool '%s': add '%s'", builder->pool->name,
				  target);
	mount->blob_length = (uint32_t)len;
	return 0;
}

/* A link stays a link: its end is the sandbox's business. 1 when it was one. */
static int add_link(struct sp_table_builder *builder, const char *path)
{
	char text[SP_TABLE_PATH_MAX];
	ssize_t len = readlink(path, text, sizeof(text));
	int status;

	if (len <= 0 || (size_t)len >= sizeof(text))
		return 0;
	text[len] = '\0';
	status = sp_table_mount(builder, SP_MOUNT_SYMLINK, 0, 0, text, path);
	return status < 0 ? status : 1;
}

/* Only what everybody on the host may read. */
static int copy_file(struct sp_table_builder *builder, const char *path, const char *target)
{
	SP_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat stat;
	char *text;
	ssize_t len;
	int status;

	if (fd < 0 || fstat(fd, &stat) < 0 || !S_ISREG(stat.st_mode) || !(stat.st_mode & S_IROTH) ||
	    stat.st_size > COPY_MAX)
		return 0;
	text = malloc(COPY_MAX);
	if (!text)
		return sp_err_set(builder->err, -ENOMEM, "copy '%s'", path);
	len = sp_read_all(fd, text, COPY_MAX);
	status = len < 0 ? sp_err_set(builder->err, (int)len, "read '%s'", path)
			 : add_text(builder, target, text, (size_t)len);
	free(text);
	return status;
}

/* The zone as a link only where the sandbox has its target. */
static int add_copied(struct sp_table_builder *builder, const char *path)
{
	static const char ssl[] = "/etc/ssl/";
	int status = 0;

	if (access(path, F_OK) != 0)
		return 0;
	if (strncmp(path, ssl, strlen(ssl)) != 0)
		status = add_link(builder, path);
	return status != 0 ? SP_MIN(status, 0) : copy_file(builder, path, path);
}

static int add_shown(struct sp_table_builder *builder, const char *path)
{
	struct stat stat;
	int status = add_link(builder, path);

	if (status != 0)
		return SP_MIN(status, 0);
	if (lstat(path, &stat) < 0 || !S_ISDIR(stat.st_mode))
		return 0;
	return sp_table_mount(builder, SP_MOUNT_BIND, SP_MOUNT_F_OPTIONAL | SP_MOUNT_F_RECURSIVE, 0,
			      path, path);
}

static int add_matches(struct sp_table_builder *builder, const char *pattern)
{
	glob_t found;
	int status = 0;

	if (glob(pattern, GLOB_NOSORT, NULL, &found) != 0)
		return 0;
	for (size_t i = 0; i < found.gl_pathc && status == 0; i++)
		status = add_shown(builder, found.gl_pathv[i]);
	globfree(&found);
	return status;
}

static int add_names(struct sp_table_builder *builder)
{
	const char *hostname = builder->pool->hostname;
	char hosts[512];
	char name[80];
	int hosts_len = snprintf(hosts, sizeof(hosts),
				 "127.0.0.1 localhost\n"
				 "::1 localhost ip6-localhost ip6-loopback\n"
				 "127.0.1.1 %s\n",
				 hostname);
	int name_len = snprintf(name, sizeof(name), "%s\n", hostname);
	int status = add_text(builder, "/etc/hosts", hosts, (size_t)hosts_len);

	if (status == 0)
		status = add_text(builder, "/etc/hostname", name, (size_t)name_len);
	if (status < 0)
		return status;
	if (builder->source->network_host)
		return copy_file(builder, "/etc/resolv.conf", "/etc/resolv.conf");
	return add_text(builder, "/etc/resolv.conf", "", 0);
}

static int add_host_files(struct sp_table_builder *builder)
{
	int status = sp_table_mount(builder, SP_MOUNT_DIR, 0, 0755, "", "/etc/ssl");

	for (size_t i = 0; i < SP_ARRAY_SIZE(copied) && status == 0; i++)
		status = add_copied(builder, copied[i]);
	for (size_t i = 0; i < SP_ARRAY_SIZE(shown) && status == 0; i++)
		status = add_matches(builder, shown[i]);
	return status;
}

int sp_table_add_etc(struct sp_table_builder *builder, bool host_files)
{
	int status = sp_table_mount(builder, SP_MOUNT_TREE, 0, 0755, "", "/etc");

	if (status == 0)
		status = add_text(builder, "/etc/passwd", passwd_text, strlen(passwd_text));
	if (status == 0)
		status = add_text(builder, "/etc/group", group_text, strlen(group_text));
	if (status == 0)
		status = add_text(builder, "/etc/nsswitch.conf", nsswitch_text,
				  strlen(nsswitch_text));
	if (status == 0)
		status = add_names(builder);
	if (status == 0)
		status = sp_table_mount(builder, SP_MOUNT_SYMLINK, 0, 0, "/proc/mounts",
					"/etc/mtab");
	if (status == 0 && host_files)
		status = add_host_files(builder);
	return status;
}
