/*
 * The multipart reader: what comes out of a body however it is cut and however often the taker
 * says "not now"; what is no multipart; each limit at N and N+1.
 */
#include "supervisor/api/multipart.h"

#include "pool/base/buf.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Everything that happens is written down as text: "part(name,file)" data "end;". */
struct taker {
	struct sp_buf log;
	size_t refusals_left; /* of each event in turn */
	size_t refusals;      /* before each event is accepted */
	size_t most;          /* bytes of data taken at once */
};

static bool taker_ready(void *arg)
{
	struct taker *taker = arg;

	if (taker->refusals_left > 0) {
		taker->refusals_left--;
		return false;
	}
	return true;
}

static void note(struct taker *taker, const char *text)
{
	cr_assert(sp_buf_append(&taker->log, text, strlen(text)) == 0);
	taker->refusals_left = taker->refusals;
}

static void taker_part(void *arg, const struct sp_multipart_part *part)
{
	char text[128];

	(void)snprintf(text, sizeof(text), "part(%s,%s)", part->name,
		       part->is_file ? "file" : "value");
	note(arg, text);
}

static size_t taker_data(void *arg, const char *data, size_t len)
{
	struct taker *taker = arg;
	size_t taken = SP_MIN(len, taker->most);

	cr_assert(len > 0);
	cr_assert(sp_buf_append(&taker->log, data, taken) == 0);
	taker->refusals_left = taker->refusals;
	return taken;
}

static void taker_end(void *arg)
{
	note(arg, "end;");
}

static const struct sp_multipart_events events = {
	.ready = taker_ready,
	.part = taker_part,
	.data = taker_data,
	.part_end = taker_end,
};

static struct taker taker;
static struct sp_multipart multipart;
static struct sp_err err;

static void begin(void)
{
	taker = (struct taker){.most = SIZE_MAX};
	sp_buf_init(&taker.log, 1 << 24);
	err = (struct sp_err){0};
	sp_multipart_init(&multipart, "XbX", &events, &taker);
}

static void end(void)
{
	sp_buf_done(&taker.log);
}

static void again(void)
{
	end();
	begin();
}

TestSuite(api_multipart, .init = begin, .fini = end);

/* Feed a piece until all of it is used. */
static int64_t feed_all(const char *data, size_t len)
{
	size_t used = 0;

	while (used < len) {
		int64_t step = sp_multipart_feed(&multipart, data + used, len - used, &err);

		if (step < 0)
			return step;
		used += (size_t)step;
	}
	return (int64_t)used;
}

static int64_t feed(const char *text)
{
	return feed_all(text, strlen(text));
}

static void expect(const char *log)
{
	cr_assert_str_eq(sp_buf_text(&taker.log), log);
}

/* As the JavaScript SDK sends it, with data that looks like the beginning of a boundary. */
static const char form[] = "--XbX\r\n"
			   "Content-Disposition: form-data; name=\"metadata\"; "
			   "filename=\"metadata\"\r\n"
			   "Content-Type: application/json\r\n\r\n"
			   "{\"path\":\"/a\"}\r\n"
			   "--XbX\r\n"
			   "content-disposition: form-data; filename=\"a\"; name=\"file\"\r\n\r\n"
			   "one\r\ntwo\r\n--Xb\r\r\n--XbXtail\r\n\r\n--\r\n"
			   "--XbX--\r\n";
static const char form_log[] = "part(metadata,file){\"path\":\"/a\"}end;"
			       "part(file,file)one\r\ntwo\r\n--Xb\r\r\n--XbXtail\r\n\r\n--end;";

Test(api_multipart, parts_come_with_their_names_and_data)
{
	cr_assert(feed(form) == (int64_t)strlen(form));
	cr_assert(sp_multipart_finish(&multipart, &err) == 0);
	expect(form_log);
}

Test(api_multipart, events_are_the_same_wherever_a_body_is_cut)
{
	size_t len = strlen(form);

	for (size_t cut = 0; cut <= len; cut++) {
		again();
		cr_assert(feed_all(form, cut) >= 0 && feed_all(form + cut, len - cut) >= 0);
		cr_assert(sp_multipart_finish(&multipart, &err) == 0, "cut at %zu", cut);
		expect(form_log);
	}
}

Test(api_multipart, events_are_the_same_byte_by_byte)
{
	for (size_t i = 0; i < strlen(form); i++)
		cr_assert(feed_all(form + i, 1) == 1);
	cr_assert(sp_multipart_finish(&multipart, &err) == 0);
	expect(form_log);
}

Test(api_multipart, events_are_the_same_when_each_is_refused_first)
{
	for (size_t refusals = 1; refusals < 4; refusals++) {
		for (size_t most = 1; most < 4; most++) {
			again();
			taker.refusals = refusals;
			taker.refusals_left = refusals;
			taker.most = most;
			cr_assert(feed(form) == (int64_t)strlen(form));
			cr_assert(sp_multipart_finish(&multipart, &err) == 0);
			expect(form_log);
		}
	}
}

Test(api_multipart, taking_less_than_all_stops_the_feeding)
{
	static const char text[] = "--XbX\r\n\r\ndata";

	taker.most = 3;
	cr_assert(sp_multipart_feed(&multipart, text, strlen(text), &err) ==
		  (int64_t)strlen(text) - 1);
	expect("part(,value)dat");
}

Test(api_multipart, a_body_that_ends_anywhere_before_its_last_boundary_is_none)
{
	size_t whole = strlen(form) - strlen("\r\n");

	for (size_t len = 0; len <= strlen(form); len++) {
		again();
		cr_assert(feed_all(form, len) == (int64_t)len);
		cr_assert((sp_multipart_finish(&multipart, &err) == 0) == (len >= whole),
			  "ends after %zu", len);
	}
}

Test(api_multipart, preamble_padding_and_epilogue_are_ignored)
{
	cr_assert(feed("hello\r\n--XbY\r\n\r\n--XbX \t\r\n\r\ndata\r\n--XbX--\r\nbye --XbX\r\n") >
		  0);
	cr_assert(sp_multipart_finish(&multipart, &err) == 0);
	expect("part(,value)dataend;");
}

Test(api_multipart, a_part_may_be_empty)
{
	cr_assert(feed("--XbX\r\nContent-Disposition: form-data; name=file; filename=x\r\n\r\n\r\n"
		       "--XbX--") > 0);
	cr_assert(sp_multipart_finish(&multipart, &err) == 0);
	expect("part(file,file)end;");
}

Test(api_multipart, a_name_is_unquoted_and_a_file_needs_a_name)
{
	static const struct {
		const char *disposition;
		const char *log;
	} cases[] = {
		{"form-data; name=\"fi\\\"le\"; filename=\"\"", "part(fi\"le,value)"},
		{"form-data; name=file; filename*=UTF-8''a", "part(file,file)"},
		{"form-data; Name = \"file\" ; FileName = \"a;b=c\"", "part(file,file)"},
		{"form-data; filename=\"a\\\"; name=\\\"b\"; name=\"c\"", "part(c,file)"},
		{"form-data", "part(,value)"},
		{"form-data; name=\"open", "part(,value)"},
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++) {
		char body[256];

		again();
		(void)snprintf(body, sizeof(body), "--XbX\r\nContent-Disposition: %s\r\n\r\n",
			       cases[i].disposition);
		cr_assert(feed(body) == (int64_t)strlen(body));
		expect(cases[i].log);
	}
}

Test(api_multipart, what_two_readers_may_read_differently_is_malformed)
{
	static const char *const bodies[] = {
		"--XbX-\r\n",
		"--XbX\r\r\n",
		"--XbX  x\r\n",
		"--XbX\r\nA: b\n\r\n\r\n",
		"--XbX\r\nA: b\r\n c\r\n\r\n",
		"--XbX\r\nA\r\n\r\n",
		"--XbX\r\nA : b\r\n\r\n",
		"--XbX\r\n: b\r\n\r\n",
		"--XbX\r\nA: b\rc\r\n\r\n",
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(bodies); i++) {
		again();
		cr_assert(feed(bodies[i]) == -EINVAL, "%s", bodies[i]);
		cr_assert(err.code == SP_CODE_INVALID_ARGUMENT && err.message[0]);
	}
	again();
	cr_assert(feed_all("--XbX\r\nA: \0\r\n\r\n", 15) == -EINVAL);
}

Test(api_multipart, boundary_is_taken_from_the_content_type)
{
	static const struct {
		const char *type;
		const char *boundary; /* NULL: refused */
	} cases[] = {
		{"multipart/form-data; boundary=abc", "abc"},
		{"Multipart/Form-Data; charset=utf-8; Boundary=\"a b?c\"", "a b?c"},
		{" multipart/form-data;boundary=----formdata-undici-0123",
		 "----formdata-undici-0123"},
		{"multipart/form-data; boundary=\"a \"", NULL},
		{"multipart/form-data; boundary=\"\"", NULL},
		{"multipart/form-data; boundary=a%b", NULL},
		{"multipart/form-data", NULL},
		{"multipart/form-data2; boundary=a", NULL},
		{"multipart/mixed; boundary=a", NULL},
		{"application/json", NULL},
		{NULL, NULL},
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++) {
		char boundary[SP_MULTIPART_BOUNDARY_MAX + 1] = "";
		int status = sp_multipart_boundary(cases[i].type, boundary, &err);

		cr_assert((status == 0) == (cases[i].boundary != NULL), "%zu", i);
		if (cases[i].boundary)
			cr_assert_str_eq(boundary, cases[i].boundary);
	}
}

/* ---- limits ---- */

Test(api_multipart, boundary_of_the_limit_passes_and_one_more_byte_does_not)
{
	for (unsigned int more = 0; more < 2; more++) {
		char boundary[SP_MULTIPART_BOUNDARY_MAX + 1];
		char type[256];
		int at = snprintf(type, sizeof(type), "multipart/form-data; boundary=");

		memset(type + at, 'b', SP_MULTIPART_BOUNDARY_MAX + more);
		type[at + (int)(SP_MULTIPART_BOUNDARY_MAX + more)] = '\0';
		cr_assert(sp_multipart_boundary(type, boundary, &err) == (more ? -EINVAL : 0));
	}
}

/* A part whose header lines take `size` bytes with the empty one. */
static int64_t feed_header_of(size_t size)
{
	static char header[SP_MULTIPART_HEADER_MAX + 64];

	memset(header, 'x', size);
	memcpy(header, "A: ", 3);
	memcpy(header + size - 4, "\r\n\r\n", 4);
	cr_assert(feed("--XbX\r\n") > 0);
	return feed_all(header, size);
}

Test(api_multipart, header_of_the_limit_passes_and_one_more_byte_does_not)
{
	cr_assert(feed_header_of(SP_MULTIPART_HEADER_MAX) == SP_MULTIPART_HEADER_MAX);
	expect("part(,value)");
	again();
	cr_assert(feed_header_of(SP_MULTIPART_HEADER_MAX + 1) == -E2BIG);
}

Test(api_multipart, preamble_of_the_limit_passes_and_one_more_byte_does_not)
{
	static char preamble[SP_MULTIPART_PREAMBLE_MAX + 1];

	memset(preamble, 'p', sizeof(preamble));
	/* The virtual line end in front of it counts. */
	cr_assert(feed_all(preamble, SP_MULTIPART_PREAMBLE_MAX - 2) > 0);
	cr_assert(feed("\r\n--XbX--") > 0 && sp_multipart_finish(&multipart, &err) == 0);
	again();
	cr_assert(feed_all(preamble, SP_MULTIPART_PREAMBLE_MAX - 1) == -E2BIG);
}

Test(api_multipart, parts_of_the_limit_pass_and_one_more_does_not)
{
	for (unsigned int i = 0; i < SP_MULTIPART_PARTS_MAX; i++)
		cr_assert(feed(i == 0 ? "--XbX\r\n\r\n" : "\r\n--XbX\r\n\r\n") > 0);
	cr_assert(feed("\r\n--XbX\r\n\r\n") == -E2BIG);
}

Test(api_multipart, name_of_the_limit_is_known_and_a_longer_one_is_nobodys)
{
	for (unsigned int more = 0; more < 2; more++) {
		char name[SP_MULTIPART_NAME_MAX + 2];
		char body[256];
		char log[128];

		again();
		memset(name, 'n', sizeof(name));
		name[SP_MULTIPART_NAME_MAX + more] = '\0';
		(void)snprintf(body, sizeof(body),
			       "--XbX\r\nContent-Disposition: form-data; name=%s\r\n\r\n", name);
		(void)snprintf(log, sizeof(log), "part(%s,value)", more ? "" : name);
		cr_assert(feed(body) > 0);
		expect(log);
	}
}
