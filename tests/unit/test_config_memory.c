/*
 * Out of memory, at every allocation in turn: the call fails with -ENOMEM (or, if the allocation
 * was not needed for the outcome, succeeds), frees what it had, and the next call works.
 *
 * This program replaces malloc; under AddressSanitizer that is not possible and the suite is empty.
 */
#include "tests/unit/test_config.h"

#include "supervisor/metrics/metrics.h"

#if !SP_SANITIZED

/* The C library and jansson must find these too. */
#pragma GCC visibility push(default)
void *malloc(size_t size);
void *calloc(size_t number, size_t size);
void *realloc(void *old, size_t size);
void *reallocarray(void *old, size_t number, size_t size);
void free(void *memory);
#pragma GCC visibility pop

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void __libc_free(void *memory);

static bool armed;
static long left; /* allocations until the one that fails */
static long live; /* allocated and not yet freed while armed */

static bool fails(void)
{
	return armed && left-- == 0;
}

static void *count(void *memory)
{
	if (armed && memory)
		live++;
	return memory;
}

void *malloc(size_t size)
{
	if (!fails())
		return count(__libc_malloc(size));
	errno = ENOMEM;
	return NULL;
}

void *calloc(size_t number, size_t size)
{
	if (!fails())
		return count(__libc_calloc(number, size));
	errno = ENOMEM;
	return NULL;
}

void *realloc(void *old, size_t size)
{
	if (fails()) {
		errno = ENOMEM;
		return NULL;
	}
	return old ? __libc_realloc(old, size) : count(__libc_realloc(NULL, size));
}

void *reallocarray(void *old, size_t number, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(number, size, &bytes)) {
		errno = ENOMEM;
		return NULL;
	}
	return realloc(old, bytes);
}

void free(void *memory)
{
	if (armed && memory)
		live--;
	__libc_free(memory);
}

/* Nothing that is called between arm and disarm may keep memory. */
static void arm(long allocations)
{
	live = 0;
	left = allocations;
	armed = true;
}

/* Did the failing allocation happen? */
static bool disarm(void)
{
	armed = false;
	return left < 0;
}

static const char text[] =
	"{\"listen\": [\"unix:///a\", \"unix:///b\"], \"api_keys\": [\"0123456789abcdef\"],"
	" \"tls_key_file\": \"/k\", \"pools\": {\"a\": {\"layers\": [\"/opt\"], \"images\": "
	"[\"x\"],"
	" \"allowed_binds\": [\"/x\", {\"path\": \"/y\"}], \"limits\": {\"cpu\": 0.5}}, \"b\": "
	"{}}}";

Test(config_memory, parsing_survives_every_failed_allocation)
{
	for (long i = 0;; i++) {
		struct sp_config_faults faults;
		struct sp_config *config = NULL;
		int status;
		bool failed;

		arm(i);
		status = sp_config_parse(text, strlen(text), "t", &config, &faults);
		sp_config_free(config);
		sp_config_faults_done(&faults);
		failed = disarm();
		cr_assert(live == 0, "allocation %ld: %ld blocks are lost", i, live);
		cr_assert(status == (failed ? -ENOMEM : 0), "allocation %ld: %d", i, status);
		if (!failed) {
			cr_assert(status == 0);
			cr_assert(i > 100);
			return;
		}
	}
}

Test(config_memory, faults_survive_every_failed_allocation)
{
	static const char bad[] = "{\"stroe\": 1, \"listen\": [1, \"x\"], \"log_level\": \"inf\","
				  "\"pools\": {\"a\": {\"a\": 1, \"a\": 2}}}";

	for (long i = 0;; i++) {
		struct sp_config_faults faults;
		struct sp_config *config = NULL;
		int status;
		bool failed;

		arm(i);
		status = sp_config_parse(bad, strlen(bad), "t", &config, &faults);
		sp_config_faults_done(&faults);
		failed = disarm();
		cr_assert(live == 0, "allocation %ld: %ld blocks are lost", i, live);
		cr_assert(status == -EINVAL || status == -ENOMEM, "allocation %ld: %d", i, status);
		cr_assert_null(config);
		if (!failed)
			return;
	}
}

Test(config_memory, dumping_survives_every_failed_allocation)
{
	struct sp_config *config = parse_good(text);

	for (long i = 0;; i++) {
		struct sp_buf out;
		int status;
		bool failed;

		sp_buf_init(&out, TEXT_MAX);
		arm(i);
		status = sp_config_dump(config, true, &out, NULL);
		sp_buf_done(&out);
		failed = disarm();
		cr_assert(live == 0);
		cr_assert(status == (failed ? -ENOMEM : 0));
		if (!failed)
			break;
	}
	sp_config_free(config);
}

Test(config_memory, the_reference_survives_every_failed_allocation)
{
	for (long i = 0;; i++) {
		struct sp_buf out;
		int status;
		bool failed;

		sp_buf_init(&out, TEXT_MAX);
		arm(i);
		status = sp_config_reference(&out);
		sp_buf_done(&out);
		failed = disarm();
		cr_assert(live == 0);
		cr_assert(status == (failed ? -ENOMEM : 0), "allocation %ld: %d", i, status);
		if (!failed)
			return;
	}
}

static int use_metrics(void)
{
	static const char *const names[] = {"pool"};
	struct sp_metrics *metrics;
	struct sp_metric *counter;
	struct sp_metric *histogram;
	struct sp_buf out;
	int status;

	if (sp_metrics_new(&metrics) < 0)
		return -ENOMEM;
	counter = sp_metrics_register(metrics, SP_METRIC_COUNTER, "a_total", "Help.", names, 1,
				      NULL, 0);
	histogram =
		sp_metrics_register(metrics, SP_METRIC_HISTOGRAM, "b_seconds", "Help.", NULL, 0,
				    sp_metric_duration_buckets, sp_metric_duration_bucket_count);
	for (int i = 0; i < 40; i++) {
		char name[16];
		const char *labels[] = {name};

		snprintf(name, sizeof(name), "p%d", i);
		sp_metric_add(counter, labels, 1);
		sp_metric_observe(histogram, NULL, 1);
	}
	sp_buf_init(&out, TEXT_MAX);
	status = sp_metrics_write(metrics, &out);
	sp_buf_done(&out);
	sp_metrics_free(metrics);
	return status;
}

Test(config_memory, metrics_survive_every_failed_allocation)
{
	for (long i = 0;; i++) {
		int status;
		bool failed;

		arm(i);
		status = use_metrics();
		failed = disarm();
		cr_assert(live == 0, "allocation %ld: %ld blocks are lost", i, live);
		cr_assert(status == 0 || status == -ENOMEM);
		if (!failed) {
			cr_assert(status == 0);
			return;
		}
	}
}

#endif
