/*
 * A socket that is ours alone, with a queue in each direction: the client's after an Upgrade, or
 * one that leads into a sandbox. What travels on it is the owner's business.
 *
 *	UPGRADING ── 101 was written ──► OPEN
 *	OPEN ── sp_duplex_drain() ──► DRAINING: writes what is queued, wants no more
 *	DRAINING ── all was written (and a peer inside has closed), SP_DUPLEX_DRAIN_MS ──► CLOSED
 *	any ── sp_duplex_close(), an error of the socket, the end of the api ──► CLOSED
 *
 * The owner embeds it and keeps the memory until `freed`. No event comes from within a call of the
 * owner's, but for `closed` from sp_duplex_close() and from a write that found no memory. An event
 * may call any function here.
 *
 * Nothing is unbounded: while more than SP_DUPLEX_READ_STOP is queued the peer is not read, at
 * SP_DUPLEX_FULL (or sooner, see SP_API_OUTPUT_TOTAL) the owner is asked to stop writing,
 * SP_DUPLEX_WRITE_MAX is the end of it. What a peer has sent and was not used yet counts.
 */
#ifndef SP_API_DUPLEX_H
#define SP_API_DUPLEX_H

#include "supervisor/api/answer_stream.h"

#define SP_DUPLEX_FULL       (256u * 1024)
#define SP_DUPLEX_RESUME     (64u * 1024)
#define SP_DUPLEX_READ_STOP  (512u * 1024)
#define SP_DUPLEX_WRITE_MAX  (4u << 20)
#define SP_DUPLEX_READ_CHUNK (64u * 1024)
#define SP_DUPLEX_DRAIN_MS   (10 * SP_MS_PER_S)

enum sp_duplex_state {
	SP_DUPLEX_UPGRADING,
	SP_DUPLEX_OPEN,
	SP_DUPLEX_DRAINING,
	SP_DUPLEX_CLOSED,
};

struct sp_duplex_events {
	void (*opened)(struct sp_duplex *duplex); /* of an upgraded one; may be NULL */
	/* Bytes came: returns how many were used. The rest comes again, with what follows it. */
	size_t (*received)(struct sp_duplex *duplex, const uint8_t *data, size_t len);
	/* The peer sends no more, and all of it was received. NULL: that closes it. */
	void (*ended)(struct sp_duplex *duplex);
	/* What the peer began to send finds no room: drains or closes. NULL: that closes it. */
	void (*refused)(struct sp_duplex *duplex, const struct sp_err *err);
	void (*drained)(struct sp_duplex *duplex);              /* full no more */
	void (*tick)(struct sp_duplex *duplex, int64_t now_ms); /* once a second; may be NULL */
	void (*closed)(struct sp_duplex *duplex);               /* last but for: */
	void (*freed)(struct sp_duplex *duplex);                /* the memory may go */
};

struct sp_duplex {
	struct sp_list link;  /* in api->streams */
	struct sp_list flush; /* in api->flush while there is something to do at the turn's end */
	struct sp_api *api;
	const struct sp_duplex_events *events;
	struct sp_listener *listener;
	struct MHD_UpgradeResponseHandle *mhd; /* NULL: the descriptor is ours */
	int fd;
	uv_poll_t poll;
	int poll_events;
	enum sp_duplex_state state;
	bool held; /* the owner wants no bytes */
	bool full;
	bool ended;
	bool deaf; /* takes no bytes any more; what is written goes nowhere */
	bool shut; /* DRAINING: told the peer that all was sent */
	int64_t drain_until_ms;
	struct sp_buf in;
	size_t in_charged; /* of api->input_bytes */
	struct sp_buf out;
	size_t out_sent; /* of `out`, already written */
};

/* read_max: the most bytes that the owner may leave unused and want more. */
void sp_duplex_init(struct sp_duplex *duplex, struct sp_api *api,
		    const struct sp_duplex_events *events, size_t read_max);
/* Answer the request with 101 and these headers ("Upgrade" must be among them). If that fails, now
 * or later, `closed` and `freed` come, from here or later. */
void sp_duplex_upgrade(struct sp_duplex *duplex, struct sp_request *request,
		       const struct sp_answer_header *headers, size_t header_count);
/* Open on a connected socket; takes fd. On failure there is no event and nothing to free. */
int sp_duplex_open(struct sp_duplex *duplex, int fd, struct sp_err *err);

/* Queue bytes; they are written at the end of this turn of the loop. No memory closes it. */
void sp_duplex_write(struct sp_duplex *duplex, const void *data, size_t len);

static inline size_t sp_duplex_queued(const struct sp_duplex *duplex)
{
	return duplex->out.len - duplex->out_sent;
}

/* Read no more until called with false. What was read and not used comes again then. */
void sp_duplex_hold(struct sp_duplex *duplex, bool hold);
void sp_duplex_drain(struct sp_duplex *duplex);
void sp_duplex_close(struct sp_duplex *duplex); /* idempotent */

/* For api.c: at the end of a turn, once a second, at the end of the api. */
void sp_duplex_flush_all(struct sp_api *api);
void sp_duplex_sweep(struct sp_api *api);
void sp_duplex_close_all(struct sp_api *api);

#endif
