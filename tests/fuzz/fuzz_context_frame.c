/*
 * Frames of an interpreter. Properties: however the bytes come, the frames and the error are the
 * same; a frame is all within the input and of a known kind; strings and representations lie within
 * their frame, and each ends in it.
 */
#include "tests/fuzz/fuzz.h"

#include "supervisor/api/context_frame.h"

#include <stdlib.h>
#include <string.h>

#define STRINGS_MAX 8

struct outcome {
	uint64_t hash; /* of all frames, and what is in them */
	size_t frames;
	int status;
};

static void require_string(const struct sp_context_frame *frame, const char *text)
{
	require(text >= frame->data && text < frame->data + frame->len);
	require(memchr(text, '\0', frame->len - (size_t)(text - frame->data)));
}

static void take_strings(struct outcome *outcome, const struct sp_context_frame *frame)
{
	const char *strings[STRINGS_MAX];
	size_t count = sp_context_strings(frame->data, frame->len, strings, STRINGS_MAX);

	require(count <= STRINGS_MAX);
	for (size_t i = 0; i < count; i++) {
		require_string(frame, strings[i]);
		mix(&outcome->hash, strings[i], strlen(strings[i]) + 1);
	}
}

static void take_data(struct outcome *outcome, const struct sp_context_frame *frame)
{
	struct sp_event_datum items[SP_CONTEXT_DATA_MAX];
	size_t count = sp_context_data(frame->data, frame->len, items);

	require(count <= SP_CONTEXT_DATA_MAX);
	for (size_t i = 0; i < count; i++) {
		require_string(frame, items[i].type);
		require_string(frame, items[i].data);
		require(items[i].type[0] != '\0' && !strpbrk(items[i].type, "\"\\\n "));
		require(strlen(items[i].data) == items[i].len);
		mix(&outcome->hash, items[i].type, strlen(items[i].type) + 1);
		mix(&outcome->hash, items[i].data, items[i].len);
	}
}

static void take(struct outcome *outcome, const struct sp_context_frame *frame)
{
	require(frame->kind != '\0' && strchr(SP_CONTEXT_FRAME_KINDS, frame->kind));
	require(frame->len <= SP_CONTEXT_FRAME_MAX);
	require(frame->size == frame->len + SP_CONTEXT_FRAME_HEAD);
	mix(&outcome->hash, &frame->kind, 1);
	mix(&outcome->hash, frame->data, frame->len);
	take_strings(outcome, frame);
	take_data(outcome, frame);
	outcome->frames++;
}

/* As a context reads: what has come is held in memory of just that size, looked at whenever more
 * comes, and dropped frame by frame. */
static struct outcome read_all(const uint8_t *data, size_t size, size_t step)
{
	struct outcome outcome = {.hash = FUZZ_HASH_START};
	size_t from = 0;
	size_t to = 0;

	do {
		struct sp_context_frame frame;
		char *held;

		to += step && size - to > step ? step : size - to;
		held = malloc(to - from + 1); /* malloc(0) may be NULL */
		require(held);
		memcpy(held, data + from, to - from);
		for (size_t at = 0;; at += frame.size) {
			size_t left = to - from - at;

			outcome.status = sp_context_frame_read(held + at, left, &frame);
			if (outcome.status <= 0) {
				from += at;
				break;
			}
			require(frame.size <= left);
			take(&outcome, &frame);
		}
		free(held);
	} while (to < size && outcome.status == 0);
	return outcome;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct outcome whole = read_all(data, size, 0);
	size_t steps[] = {1, 5, 6, size > 0 ? 1 + data[0] : 3};

	for (size_t i = 0; i < SP_ARRAY_SIZE(steps); i++) {
		struct outcome pieces = read_all(data, size, steps[i]);

		require(pieces.hash == whole.hash && pieces.frames == whole.frames &&
			pieces.status == whole.status);
	}
	return 0;
}
