/* libs: sp_api */
/*
 * The WebSocket reader. Properties: however the bytes are cut, the messages and the error are the
 * same; nothing beyond the limit is given or held; after a CLOSE there is nothing; text is UTF-8.
 */
#include "tests/fuzz/fuzz.h"

#include "supervisor/api/websocket.h"

#include "supervisor/api/json_out.h"

#include <string.h>

struct outcome {
	uint64_t hash; /* of all messages */
	size_t messages;
	int status;
};

static void take(struct outcome *outcome, const struct sp_ws_message *message)
{
	uint8_t opcode = (uint8_t)message->opcode;
	size_t escaped;

	require(message->len <= SP_WS_MESSAGE_MAX);
	require(opcode == SP_WS_TEXT || opcode == SP_WS_BINARY ||
		message->len <= SP_WS_CONTROL_MAX);
	if (opcode == SP_WS_TEXT || opcode == SP_WS_CLOSE)
		require(sp_utf8_valid(message->data, message->len, &escaped));
	mix(&outcome->hash, &opcode, 1);
	mix(&outcome->hash, &message->len, sizeof(message->len));
	mix(&outcome->hash, message->data, message->len);
	if (opcode == SP_WS_CLOSE)
		mix(&outcome->hash, &message->close_code, sizeof(message->close_code));
	outcome->messages++;
}

static struct outcome read_all(const uint8_t *data, size_t size, size_t step)
{
	struct outcome outcome = {.hash = FUZZ_HASH_START};
	struct sp_ws_reader reader;
	size_t at = 0;

	sp_ws_reader_init(&reader);
	while (at < size && outcome.status == 0) {
		size_t len = step && size - at > step ? step : size - at;
		struct sp_ws_message message;
		bool closed = reader.closed;
		bool complete;
		int64_t used = sp_ws_reader_feed(&reader, data + at, len, &message, &complete);

		require(reader.message.len <= SP_WS_MESSAGE_MAX);
		if (used < 0) {
			outcome.status = (int)used;
			break;
		}
		require((uint64_t)used <= len && (complete || (size_t)used == len));
		require(!closed || !complete);
		at += (size_t)used;
		if (complete)
			take(&outcome, &message);
	}
	sp_ws_reader_done(&reader);
	return outcome;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct outcome whole = read_all(data, size, 0);
	size_t steps[] = {1, 2, 7, size > 0 ? 1 + data[0] : 3};

	for (size_t i = 0; i < SP_ARRAY_SIZE(steps); i++) {
		struct outcome cut = read_all(data, size, steps[i]);

		require(cut.hash == whole.hash && cut.messages == whole.messages &&
			cut.status == whole.status);
	}
	return 0;
}
