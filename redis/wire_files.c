/*
 * The files that the options name are read for each try, so that a password or a certificate that
 * is replaced counts from the next connection on. Reading may block (a slow disk, NFS) and a bundle
 * of CAs takes milliseconds to parse: both happen on one of libuv's threads, which sees nothing of
 * the connection but the settings (not changed after start) and a result of its own.
 */
#include "redis/wire_private.h"

#include "redis/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct sp_redis_files {
	uv_work_t work;
	const struct sp_redis_settings *settings;
	struct sp_redis_secrets *secrets;
	sp_redis_files_cb *cb;
	void *arg;
	struct sp_redis_secrets found;
	int status;
	struct sp_err err;
};

bool sp_redis_files_needed(const struct sp_redis_settings *settings)
{
	return settings->password_file || settings->sentinel_password_file || settings->url.tls;
}

static int read_password(const char *path, char **ret, struct sp_err *err)
{
	struct sp_buf text;
	int status;

	if (!path)
		return 0;
	sp_buf_init(&text, SP_REDIS_PASSWORD_MAX + 1);
	/* So that it never moves and leaves a copy behind. */
	if (!sp_buf_reserve(&text, SP_REDIS_PASSWORD_MAX + 1))
		return sp_err_set(err, -ENOMEM, "read password file '%s'", path);
	status = sp_redis_file_read("password file", path, &text, err);
	if (status == 0 && text.len > 0 && text.data[text.len - 1] == '\n')
		text.data[--text.len] = '\0';
	if (status == 0 && (text.len == 0 || memchr(text.data, '\0', text.len)))
		status = sp_err_code(err, SP_CODE_CONFIG_INVALID, -EINVAL,
				     "password file '%s' is empty or holds NUL bytes", path);
	if (status == 0 && text.len > SP_REDIS_PASSWORD_MAX)
		status = sp_err_set(err, -EFBIG, "read password file '%s'", path);
	if (status == 0)
		*ret = sp_buf_take(&text);
	else
		sp_redis_buf_wipe(&text);
	return status;
}

static void work(uv_work_t *request)
{
	struct sp_redis_files *files = SP_CONTAINER_OF(request, struct sp_redis_files, work);
	const struct sp_redis_settings *settings = files->settings;
	struct sp_redis_secrets *found = &files->found;
	struct sp_err *err = &files->err;

	files->status = read_password(settings->password_file, &found->password, err);
	if (files->status == 0)
		files->status = read_password(settings->sentinel_password_file,
					      &found->sentinel_password, err);
	if (files->status == 0 && settings->url.tls)
		files->status =
			sp_redis_tls_credentials_load(settings->ca_file, settings->cert_file,
						      settings->key_file, &found->credentials, err);
}

static void after_work(uv_work_t *request, int status)
{
	struct sp_redis_files *files = SP_CONTAINER_OF(request, struct sp_redis_files, work);

	if (status < 0) /* UV_ECANCELED */
		files->status = sp_err_set(&files->err, status, "read the files of the connection");
	if (files->status == 0) {
		sp_redis_secrets_done(files->secrets);
		*files->secrets = files->found;
	} else {
		sp_redis_secrets_done(&files->found);
	}
	files->cb(files->arg, files->status, files->status < 0 ? &files->err : NULL);
	free(files);
}

int sp_redis_files_read(uv_loop_t *loop, const struct sp_redis_settings *settings,
			struct sp_redis_secrets *secrets, sp_redis_files_cb *cb, void *arg,
			struct sp_redis_files **ret, struct sp_err *err)
{
	struct sp_redis_files *files = calloc(1, sizeof(*files));
	int status = UV_ENOMEM;

	if (files) {
		files->settings = settings;
		files->secrets = secrets;
		files->cb = cb;
		files->arg = arg;
		status = uv_queue_work(loop, &files->work, work, after_work);
	}
	if (status < 0) {
		free(files);
		return sp_err_set(err, status, "read the files of the connection");
	}
	*ret = files;
	return 0;
}

void sp_redis_files_cancel(struct sp_redis_files *files)
{
	/* Busy: it is under way and comes back by itself. */
	(void)uv_cancel((uv_req_t *)&files->work);
}

static void wipe(char **text)
{
	if (*text)
		explicit_bzero(*text, strlen(*text));
	free(*text);
	*text = NULL;
}

void sp_redis_secrets_done(struct sp_redis_secrets *secrets)
{
	wipe(&secrets->password);
	wipe(&secrets->sentinel_password);
	sp_redis_tls_credentials_unref(secrets->credentials);
	secrets->credentials = NULL;
}
