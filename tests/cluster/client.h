/*
 * A client of the cluster as a program of its own (client.c), and how it asks (client_ask.c): every
 * question goes into a history (tests/lib/history.py) before it is sent, every answer when it has
 * come.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REDIS_TIMEOUT_MS 1200
#define HTTP_TIMEOUT_MS  2000
#define HEX              64 /* a secret, a lease id */
#define HOSTS_MAX        8
#define REJECT_SIZE      256 /* eight ids and their commas */

struct place {
	char name[64];
	char address[64];
	uint16_t port;
};

struct options {
	char name[32]; /* of this program, in histories */
	char at[64];   /* whose namespace it runs in */
	char seed[64], history[256], meta[128], key[128];
	struct place redis, hosts[HOSTS_MAX];
	size_t hosts_count, threads, waiters;
	double rate, exec_share;
};

extern struct options options;

/* One attempt to get and use a sandbox, under a name of its own in the history. */
struct attempt {
	char name[64];
	unsigned int serial;
	uint64_t random;
	double due; /* when it should have begun; told with its first question */
};

/* What an answer said; empty and -1: nothing. */
struct answer {
	char status[64];
	char message[160];
	char sandbox[32];
	struct place owner;
	int64_t remaining_ms;
	bool at_owner, has_output;
	char found[160], reason[32]; /* of an exec: its output, how it ended */
};

/* What is asked, as the history tells it. NULL and 0: not told. */
struct question {
	const char *op, *lease;
	const char *via; /* "redis" or a host */
	const char *sandbox, *host;
	const char *policy, *reject;
	int64_t ttl_ms;
	bool again;
};

struct http_request {
	const struct place *to;
	const char *method, *path, *token, *body;
	int takes_ms; /* what is asked for may itself take so long */
};

void ask_open_history(void);
double ask_now(void);
uint64_t ask_random(struct attempt *attempt);

/* A function of the library, with its arguments up to NULL. */
void ask_redis(struct attempt *attempt, const struct question *question, const char *function,
	       const char *const *arguments, struct answer *ret_answer);
/* The question leaves, the connection goes before the answer is read. */
void ask_redis_and_hang_up(struct attempt *attempt, const struct question *question,
			   const char *function, const char *const *arguments);
/* Redis' TIME in ms, -1 if it cannot be had; not part of the history. */
int64_t ask_redis_time_ms(void);
void ask_host(struct attempt *attempt, const struct question *question,
	      const struct http_request *request, struct answer *ret_answer);
