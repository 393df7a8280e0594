/*
 * The files: the configuration, its drop-ins, the secrets. Each is opened once and judged by what
 * was opened, not by its name: a regular file, not too large, and for the privileged compiler one
 * that nobody but root (without privilege: the user) can have written.
 */
#include "supervisor/config/reader.h"

#include "pool/base/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEYS_FILE_MAX (64u << 10)
/* What an id is shown as that a user namespace does not map. */
#define OVERFLOW_UID 65534

static int file_fault(struct sp_config_reader *reader, const char *path, int status,
		      const char *what)
{
	sp_assert(status < 0);
	sp_config_fault_in(reader, path, 0, "%s: %s", what, strerrordesc_np(-status));
	return status;
}

static bool owner_trusted(const struct stat *stat)
{
	return stat->st_uid == 0 || stat->st_uid == geteuid();
}

/* Running as root, geteuid() is 0: then only root's files are trusted. */
static int check_trust(struct sp_config_reader *reader, const char *path, const struct stat *stat)
{
	/* A rootless launcher is root of a user namespace that has its own user and nobody else. */
	if (stat->st_uid == OVERFLOW_UID && geteuid() == 0) {
		sp_config_fault_in(reader, path, 0,
				   "owned by uid %u, which is everybody else (root too) where the "
				   "daemon runs without root: must belong to who starts it",
				   stat->st_uid);
		return -EPERM;
	}
	if (!owner_trusted(stat)) {
		sp_config_fault_in(reader, path, 0,
				   "owned by uid %u: must belong to %s, as whoever can write it "
				   "decides what root does",
				   stat->st_uid, geteuid() == 0 ? "root" : "you or root");
		return -EPERM;
	}
	if (stat->st_mode & (S_IWGRP | S_IWOTH)) {
		sp_config_fault_in(reader, path, 0, "writable by %s (mode %04o): run chmod go-w",
				   stat->st_mode & S_IWOTH ? "everybody" : "its group",
				   stat->st_mode & 07777);
		return -EPERM;
	}
	return 0;
}

static int check_file(struct sp_config_reader *reader, const char *path, const struct stat *stat,
		      size_t max, bool secret)
{
	if (!S_ISREG(stat->st_mode)) {
		sp_config_fault_in(reader, path, 0, "not a regular file");
		return -EINVAL;
	}
	if ((uint64_t)stat->st_size > max) {
		sp_config_fault_in(reader, path, 0, "larger than %zu bytes", max);
		return -EFBIG;
	}
	if (secret && (stat->st_mode & S_IROTH)) {
		sp_config_fault_in(reader, path, 0,
				   "holds secrets and is readable by everybody: run chmod o-r");
		return -EPERM;
	}
	return reader->trusted ? check_trust(reader, path, stat) : 0;
}

int sp_config_read_file(struct sp_config_reader *reader, const char *path, size_t max, bool secret,
			char **ret_text, size_t *ret_len)
{
	/* O_NONBLOCK: opening a fifo must not hang */
	SP_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat stat;
	ssize_t len;
	char *text;
	int status;

	if (fd < 0)
		return file_fault(reader, path, -errno, "cannot be opened");
	if (fstat(fd, &stat) < 0)
		return file_fault(reader, path, -errno, "cannot be examined");
	status = check_file(reader, path, &stat, max, secret);
	if (status < 0)
		return status;
	text = malloc((size_t)stat.st_size + 1);
	if (!text)
		return -ENOMEM;
	len = sp_read_all(fd, text, (size_t)stat.st_size + 1);
	if (len < 0 || len > stat.st_size) {
		free(text);
		return file_fault(reader, path, len < 0 ? (int)len : -EAGAIN,
				  len < 0 ? "cannot be read" : "grew while it was read");
	}
	text[len] = '\0';
	*ret_text = text;
	*ret_len = (size_t)len;
	return 0;
}

static void load_source(struct sp_config_reader *reader, const char *path)
{
	char *text = NULL;
	size_t len = 0;
	int status = sp_config_read_file(reader, path, SP_CONFIG_FILE_MAX, false, &text, &len);

	if (status == 0)
		sp_config_add_source(reader, path, text, len);
	else if (reader->status == 0 && status != -EINVAL)
		reader->status = status;
}

/* ---- drop-ins ---- */

static int is_dropin(const struct dirent *entry)
{
	size_t len = strlen(entry->d_name);

	return entry->d_name[0] != '.' && len > 5 && strcmp(entry->d_name + len - 5, ".json") == 0;
}

/* By bytes, not by the locale's idea of order. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int open_dropin_folder(struct sp_config_reader *reader, const char *folder)
{
	SP_AUTO_CLOSE int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat stat;

	if (fd < 0)
		return errno == ENOENT ? -ENOENT
				       : file_fault(reader, folder, -errno, "cannot be opened");
	if (fstat(fd, &stat) < 0)
		return file_fault(reader, folder, -errno, "cannot be examined");
	if (reader->trusted && check_trust(reader, folder, &stat) < 0)
		return -EPERM;
	return sp_take_fd(&fd);
}

static void load_dropins(struct sp_config_reader *reader, const char *path)
{
	struct dirent **entries = NULL;
	char folder[PATH_MAX];
	char file[PATH_MAX + 256];
	SP_AUTO_CLOSE int fd = -1;
	int count;

	if ((size_t)snprintf(folder, sizeof(folder), "%s.d", path) >= sizeof(folder)) {
		reader->status = file_fault(reader, path, -ENAMETOOLONG, "cannot be opened");
		return;
	}
	fd = open_dropin_folder(reader, folder);
	if (fd == -ENOENT)
		return;
	if (fd < 0) {
		reader->status = fd;
		return;
	}
	count = scandirat(fd, ".", &entries, is_dropin, by_name);
	if (count < 0) {
		reader->status = file_fault(reader, folder, -errno, "cannot be listed");
		return;
	}
	if ((unsigned int)count > SP_CONFIG_DROPINS_MAX)
		sp_config_fault_in(reader, folder, 0, "has %d files, at most %u are possible",
				   count, SP_CONFIG_DROPINS_MAX);
	for (int i = 0; i < count; i++) {
		if ((unsigned int)count <= SP_CONFIG_DROPINS_MAX) {
			(void)snprintf(file, sizeof(file), "%s/%s", folder, entries[i]->d_name);
			load_source(reader, file);
		}
		free(entries[i]);
	}
	free(entries);
}

/* ---- secrets ---- */

static int add_text(char ***list, size_t *count, const char *text)
{
	char **grown = reallocarray(*list, *count + 1, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	*list = grown;
	grown[*count] = strdup(text);
	if (!grown[*count])
		return -ENOMEM;
	(*count)++;
	return 0;
}

static bool key_known(const struct sp_config *config, const char *key)
{
	for (size_t i = 0; i < config->api_key_count; i++)
		if (strcmp(config->api_keys[i], key) == 0)
			return true;
	return false;
}

/* One line without its newline. Messages name the line, never the key. */
static void read_key(struct sp_config_reader *reader, const char *file, int line, char *text)
{
	struct sp_config *config = reader->config;
	const char *complaint;
	size_t len = strcspn(text, "\r");

	while (len > 0 && (text[len - 1] == ' ' || text[len - 1] == '\t'))
		len--;
	text[len] = '\0';
	text += strspn(text, " \t");
	if (*text == '\0' || *text == '#')
		return;
	complaint = sp_check_api_key(text);
	if (complaint)
		sp_config_fault_in(reader, file, line, "an API key %s", complaint);
	else if (key_known(config, text))
		sp_config_fault_in(reader, file, line, "the same API key twice");
	else if (config->api_key_count == SP_CONFIG_API_KEYS_MAX)
		sp_config_fault_in(reader, file, line, "more than %u API keys",
				   SP_CONFIG_API_KEYS_MAX);
	else if (add_text(&config->api_keys, &config->api_key_count, text) < 0)
		reader->status = -ENOMEM;
}

/* A name without slash is a credential of the service. */
static int secret_path(struct sp_config_reader *reader, const char *key, const char *name,
		       char path[PATH_MAX])
{
	const char *folder = secure_getenv("CREDENTIALS_DIRECTORY");

	if (*name == '/') {
		(void)snprintf(path, PATH_MAX, "%s", name);
		return 0;
	}
	if (!folder || *folder != '/') {
		sp_config_fault_key(reader, key,
				    "'%s' is the name of a credential, but $CREDENTIALS_DIRECTORY "
				    "is not set",
				    name);
		return -ENOENT;
	}
	if ((size_t)snprintf(path, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
		return -ENAMETOOLONG;
	return 0;
}

static void load_keys(struct sp_config_reader *reader)
{
	char path[PATH_MAX];
	char *text = NULL;
	char *rest;
	char *line;
	size_t len = 0;
	int number = 0;

	if (!reader->config->api_keys_file ||
	    secret_path(reader, "api_keys_file", reader->config->api_keys_file, path) < 0 ||
	    sp_config_read_file(reader, path, KEYS_FILE_MAX, true, &text, &len) < 0)
		return;
	if (memchr(text, '\0', len))
		sp_config_fault_in(reader, path, 0, "holds a NUL byte");
	rest = text;
	while ((line = strsep(&rest, "\n")))
		read_key(reader, path, ++number, line);
	if (reader->config->api_key_count == 0 && reader->faults->count == 0)
		sp_config_fault_in(reader, path, 0, "holds no API key");
	explicit_bzero(text, len);
	free(text);
}

static bool wants_tls(const struct sp_config *config)
{
	for (size_t i = 0; i < config->listen_count; i++)
		if (sp_listen_is_tls(config->listen[i]))
			return true;
	return false;
}

/* Whether certificate and key are good, and of each other, is for GnuTLS to say in the daemon. */
static void load_pem(struct sp_config_reader *reader, const char *key, const char *file,
		     bool secret, char ***list, size_t *count)
{
	char path[PATH_MAX];
	const char *complaint;
	char *text = NULL;
	size_t len = 0;

	if (!file || secret_path(reader, key, file, path) < 0 ||
	    sp_config_read_file(reader, path, SP_CONFIG_PEM_MAX, secret, &text, &len) < 0)
		return;
	complaint = sp_check_pem(text);
	if (complaint)
		sp_config_fault_in(reader, path, 0, "%s", complaint);
	else if (add_text(list, count, text) < 0)
		reader->status = -ENOMEM;
	explicit_bzero(text, len);
	free(text);
}

static void load_tls(struct sp_config_reader *reader)
{
	struct sp_config *config = reader->config;

	if (!wants_tls(config))
		return;
	load_pem(reader, "tls_certificate_file", config->tls_certificate_file, false,
		 &config->tls_certificate, &config->tls_certificate_count);
	load_pem(reader, "tls_key_file", config->tls_key_file, true, &config->tls_key,
		 &config->tls_key_count);
}

/* ---- all of it ---- */

int sp_config_load_as(const char *path, bool with_secrets, bool trusted,
		      struct sp_config **ret_config, struct sp_config_faults *faults)
{
	struct sp_config_reader reader = {.faults = faults, .trusted = trusted};
	struct sp_config *config = NULL;
	int status;

	*faults = (struct sp_config_faults){0};
	load_source(&reader, path);
	if (reader.status == 0)
		load_dropins(&reader, path);
	status = sp_config_read(&reader, &config);
	if (status == 0 && with_secrets) {
		reader.config = config;
		load_keys(&reader);
		load_tls(&reader);
		sp_config_faults_sort(faults);
		config = reader.config;
		reader.config = NULL;
		if (reader.status < 0)
			status = reader.status;
		else if (faults->count > 0 || faults->more)
			status = -EINVAL;
	}
	sp_config_reader_done(&reader);
	if (status < 0)
		sp_config_free(config);
	else
		*ret_config = config;
	return status;
}

int sp_config_load(const char *path, bool with_secrets, struct sp_config **ret_config,
		   struct sp_config_faults *faults)
{
	return sp_config_load_as(path, with_secrets, false, ret_config, faults);
}
