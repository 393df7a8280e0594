/*
 * tls:// endpoints. The verbs read and write a plain descriptor with poll(2); so what they get is
 * one end of a socket pair, and a thread carries bytes between the other end and the server:
 *
 *	verb ◄──plain──► pair ◄──► thread (redis/tls.h: the codec) ◄──encrypted──► server
 *
 * The handshake is done before that, on the caller's time. One direction never waits for the other:
 * plain bytes are taken from the verb only while nothing encrypted is unsent, encrypted ones from
 * the server only while nothing plain is unread. An end of either side is passed on after what came
 * before it. sp_cli_tls_join() waits for the threads; each ends soon after its verb has closed.
 */
#include <errno.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "pool/base/fd.h"
#include "redis/tls.h"
#include "supervisor/cli/remote/link.h"

#define RELAYS_MAX   64u
#define READ_SIZE    SP_REDIS_TLS_RECORD_MAX
#define LINGER_MS    3000 /* for what is left once the verb has closed */
#define DIGEST_BYTES (SP_LEASE_ID_LEN / 2)

struct relay {
	int server; /* non-blocking, as the next */
	int verb;
	struct sp_redis_tls *tls;
	struct sp_buf plain;      /* decrypted, not yet taken by the verb */
	char received[READ_SIZE]; /* what the codec has been fed and may not have used up */
	bool server_ended, verb_ended;
};

static pthread_t threads[RELAYS_MAX];
static size_t thread_count;

/* ---- one relay ---- */

static void relay_free(struct relay *relay)
{
	if (!relay)
		return;
	sp_fd_close(&relay->server);
	sp_fd_close(&relay->verb);
	sp_redis_tls_free(relay->tls);
	sp_buf_done(&relay->plain);
	free(relay);
}

/* Send what is queued as far as it goes. False: nobody is there any more. */
static bool flush(int fd, struct sp_buf *queue)
{
	while (queue->len > 0) {
		ssize_t sent = send(fd, queue->data, queue->len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return errno == EAGAIN;
		sp_buf_consume(queue, (size_t)sent);
	}
	return true;
}

static bool decrypt(struct relay *relay)
{
	char data[READ_SIZE];
	ssize_t got;

	while ((got = sp_redis_tls_read(relay->tls, data, sizeof(data), NULL)) > 0)
		if (sp_buf_append(&relay->plain, data, (size_t)got) < 0)
			return false;
	/* 0: it said goodbye; an end without that is one, too: HTTP has its own lengths. */
	relay->server_ended = relay->server_ended || got != -EAGAIN;
	return true;
}

static bool take_from_server(struct relay *relay)
{
	ssize_t got = recv(relay->server, relay->received, sizeof(relay->received), MSG_DONTWAIT);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (got <= 0) {
		relay->server_ended = true;
		return true;
	}
	sp_redis_tls_feed(relay->tls, relay->received, (size_t)got);
	return decrypt(relay);
}

static bool take_from_verb(struct relay *relay)
{
	char data[READ_SIZE];
	ssize_t got = recv(relay->verb, data, sizeof(data), MSG_DONTWAIT);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (got <= 0) {
		relay->verb_ended = true;
		return true;
	}
	return sp_redis_tls_write(relay->tls, data, (size_t)got, NULL) == 0;
}

static short wanted(bool in, bool out)
{
	return (short)((in ? POLLIN : 0) | (out ? POLLOUT : 0));
}

/* False: it is over. */
static bool relay_step(struct relay *relay)
{
	bool unsent = sp_redis_tls_out(relay->tls)->len > 0;
	bool unread = relay->plain.len > 0;
	struct pollfd ready[] = {
		{.fd = relay->server, .events = wanted(!unread && !relay->server_ended, unsent)},
		{.fd = relay->verb, .events = wanted(!unsent && !relay->verb_ended, unread)},
	};

	if ((relay->server_ended && !unread) || (relay->verb_ended && !unsent))
		return false;
	/* poll(2) reports hangups of what nobody asks about, again and again. */
	for (size_t i = 0; i < SP_ARRAY_SIZE(ready); i++)
		if (ready[i].events == 0)
			ready[i].fd = -1;
	if (poll(ready, SP_ARRAY_SIZE(ready), relay->verb_ended ? LINGER_MS : -1) <= 0)
		return errno == EINTR && !relay->verb_ended;
	if ((ready[0].revents & ~POLLOUT) && !unread && !take_from_server(relay))
		return false;
	if ((ready[1].revents & ~POLLOUT) && !unsent && !take_from_verb(relay))
		return false;
	return flush(relay->server, sp_redis_tls_out(relay->tls)) &&
	       flush(relay->verb, &relay->plain);
}

static void *relay_run(void *arg)
{
	struct relay *relay = arg;

	/* What came with the end of the handshake. */
	if (decrypt(relay) && flush(relay->verb, &relay->plain))
		while (relay_step(relay))
			continue;
	relay_free(relay);
	return NULL;
}

static int relay_start(struct relay *relay)
{
	sigset_t all;
	sigset_t before;
	int status;

	if (thread_count == RELAYS_MAX)
		return -EMFILE;
	/* Signals are the verb's. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	status = pthread_create(&threads[thread_count], NULL, relay_run, relay);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (status == 0)
		thread_count++;
	return -status;
}

void sp_cli_tls_join(void)
{
	while (thread_count > 0)
		(void)pthread_join(threads[--thread_count], NULL);
}

/* ---- the handshake ---- */

static int wait_for(int fd, short events, int64_t deadline_ms)
{
	struct pollfd ready = {.fd = fd, .events = events};
	int64_t left_ms;

	while ((left_ms = deadline_ms - sp_clock_boot_ms()) > 0) {
		int count = poll(&ready, 1, (int)left_ms);

		if (count > 0)
			return 0;
		if (count < 0 && errno != EINTR)
			return -errno;
	}
	return -ETIMEDOUT;
}

static int exchange(struct relay *relay, int64_t deadline_ms)
{
	ssize_t got;
	int status = 0;

	while (status == 0 && sp_redis_tls_out(relay->tls)->len > 0) {
		if (!flush(relay->server, sp_redis_tls_out(relay->tls)))
			return -ECONNRESET;
		if (sp_redis_tls_out(relay->tls)->len > 0)
			status = wait_for(relay->server, POLLOUT, deadline_ms);
	}
	if (status == 0)
		status = wait_for(relay->server, POLLIN, deadline_ms);
	if (status < 0)
		return status;
	got = recv(relay->server, relay->received, sizeof(relay->received), MSG_DONTWAIT);
	if (got <= 0)
		return got == 0 ? -ECONNRESET : -errno;
	sp_redis_tls_feed(relay->tls, relay->received, (size_t)got);
	return 0;
}

static int handshake(struct relay *relay, const char *host, int64_t timeout_ms, struct sp_err *err)
{
	int64_t deadline_ms = sp_clock_boot_ms() + timeout_ms;
	int status;

	while ((status = sp_redis_tls_handshake(relay->tls, err)) == -EAGAIN) {
		status = exchange(relay, deadline_ms);
		if (status < 0)
			return sp_err_code(err, SP_CODE_UNAVAILABLE, status, "TLS with '%s': %s",
					   host, strerrordesc_np(-status));
	}
	if (status == 0 && !flush(relay->server, sp_redis_tls_out(relay->tls)))
		return sp_err_code(err, SP_CODE_UNAVAILABLE, -ECONNRESET,
				   "TLS with '%s': it closed the connection", host);
	return status < 0 ? sp_err_wrap(err, status, "TLS with '%s'", host) : 0;
}

static int relay_new(const char *host, const char *ca_file, struct relay **ret_relay,
		     struct sp_err *err)
{
	struct sp_redis_tls_credentials *credentials;
	struct relay *relay = calloc(1, sizeof(*relay));
	int status;

	if (!relay)
		return sp_err_set(err, -ENOMEM, "make room for TLS");
	relay->server = -1;
	relay->verb = -1;
	sp_buf_init(&relay->plain, SP_REDIS_TLS_OUT_MAX);
	status = sp_redis_tls_credentials_load(ca_file, NULL, NULL, &credentials, err);
	if (status == 0) {
		status = sp_redis_tls_new(credentials, host, &relay->tls, err);
		sp_redis_tls_credentials_unref(credentials);
	}
	if (status < 0) {
		relay_free(relay);
		return status;
	}
	*ret_relay = relay;
	return 0;
}

int sp_cli_tls_open(int *fd, const char *host, const char *ca_file, int64_t timeout_ms,
		    struct sp_err *err)
{
	struct relay *relay = NULL;
	int pair[2] = {-1, -1};
	int status = relay_new(host, ca_file, &relay, err);

	if (status < 0)
		return status;
	sp_assert(relay);
	relay->server = sp_take_fd(fd);
	status = handshake(relay, host, timeout_ms, err);
	if (status == 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		status = sp_err_set(err, -errno, "make a socket pair for TLS");
	relay->verb = pair[1];
	if (status == 0) {
		status = relay_start(relay);
		if (status < 0)
			(void)sp_err_set(err, status, "start a thread for TLS");
	}
	if (status < 0) {
		sp_fd_close(&pair[0]);
		relay_free(relay);
		return status;
	}
	*fd = pair[0];
	return 0;
}

/* ---- digests ---- */

int sp_cli_lease_id(const char *secret, char *ret_lease)
{
	static const char hex[] = "0123456789abcdef";
	unsigned char digest[DIGEST_BYTES];

	if (gnutls_hash_fast(GNUTLS_DIG_SHA256, secret, strlen(secret), digest) < 0)
		return -EIO;
	for (size_t i = 0; i < sizeof(digest); i++) {
		ret_lease[2 * i] = hex[digest[i] >> 4];
		ret_lease[2 * i + 1] = hex[digest[i] & 15];
	}
	ret_lease[SP_LEASE_ID_LEN] = '\0';
	return 0;
}
