/*
 * The exposition text is read back by a parser that is stricter than Prometheus: each family once,
 * HELP before TYPE before samples, no series twice, buckets cumulative and complete.
 */
#include "supervisor/metrics/metrics.h"
#include "supervisor/metrics/number.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX (64u << 20)

struct sample {
	char name[128];   /* with suffix */
	char labels[512]; /* without le, as written */
	char le[64];      /* "" if none */
	double value;
};

struct parsed {
	struct sample *samples;
	size_t count;
	size_t families;
};

static bool is_name(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!((text[i] >= 'a' && text[i] <= 'z') || (text[i] >= 'A' && text[i] <= 'Z') ||
		      text[i] == '_' || text[i] == ':' ||
		      (i > 0 && text[i] >= '0' && text[i] <= '9')))
			return false;
	return len > 0;
}

static double parse_value(const char *text)
{
	char *end;
	double value;

	if (strcmp(text, "+Inf") == 0)
		return INFINITY;
	if (strcmp(text, "-Inf") == 0)
		return -INFINITY;
	if (strcmp(text, "NaN") == 0)
		return NAN;
	cr_assert(strspn(text, "0123456789+-.e") == strlen(text), "number '%s'", text);
	value = strtod(text, &end);
	cr_assert(*text != '\0' && *end == '\0', "number '%s'", text);
	return value;
}

/* name="escaped value" pairs up to the brace; le is taken out. */
static const char *parse_labels(const char *at, struct sample *sample)
{
	do {
		const char *name = at;
		size_t name_len = strcspn(at, "=");
		const char *value;

		cr_assert(is_name(name, name_len) && !memchr(name, ':', name_len), "label '%s'",
			  at);
		at += name_len;
		cr_assert(at[0] == '=' && at[1] == '"');
		value = at += 2;
		while (*at != '"') {
			cr_assert(*at != '\0' && *at != '\n');
			if (*at == '\\') {
				at++;
				cr_assert(*at == '\\' || *at == 'n' || *at == '"');
			}
			at++;
		}
		if (name_len == 2 && strncmp(name, "le", 2) == 0)
			snprintf(sample->le, sizeof(sample->le), "%.*s", (int)(at - value), value);
		else
			snprintf(sample->labels + strlen(sample->labels),
				 sizeof(sample->labels) - strlen(sample->labels), "%.*s,",
				 (int)(at + 1 - name), name);
		at++;
	} while (*at == ',' && at++);
	cr_assert(*at == '}', "after labels: '%s'", at);
	return at + 1;
}

static void parse_sample(const char *line, struct sample *sample)
{
	size_t len = strcspn(line, "{ ");
	const char *at = line + len;

	cr_assert(is_name(line, len), "sample '%s'", line);
	snprintf(sample->name, sizeof(sample->name), "%.*s", (int)len, line);
	if (*at == '{')
		at = parse_labels(at + 1, sample);
	cr_assert(*at == ' ', "sample '%s'", line);
	sample->value = parse_value(at + 1);
}

static bool of_family(const char *sample, const char *family, const char *type)
{
	static const char *const suffixes[] = {"_bucket", "_sum", "_count"};
	size_t len = strlen(family);

	if (strcmp(type, "histogram") != 0)
		return strcmp(sample, family) == 0;
	for (size_t i = 0; i < 3; i++)
		if (strncmp(sample, family, len) == 0 && strcmp(sample + len, suffixes[i]) == 0)
			return true;
	return false;
}

static const struct sample *find(const struct parsed *parsed, const char *name, const char *labels,
				 const char *le)
{
	for (size_t i = 0; i < parsed->count; i++)
		if (strcmp(parsed->samples[i].name, name) == 0 &&
		    strcmp(parsed->samples[i].labels, labels) == 0 &&
		    strcmp(parsed->samples[i].le, le) == 0)
			return &parsed->samples[i];
	return NULL;
}

static double value_of(const struct parsed *parsed, const char *name, const char *labels,
		       const char *le)
{
	const struct sample *sample = find(parsed, name, labels, le);

	cr_assert_not_null(sample, "no %s{%s} le=%s", name, labels, le);
	return sample->value;
}

static int compare_samples(const void *a, const void *b)
{
	const struct sample *x = a;
	const struct sample *y = b;
	int order = strcmp(x->name, y->name);

	if (order == 0)
		order = strcmp(x->labels, y->labels);
	return order != 0 ? order : strcmp(x->le, y->le);
}

static void check_unique(const struct parsed *parsed)
{
	size_t size = parsed->count * sizeof(struct sample);
	struct sample *sorted = malloc(size + 1);

	if (parsed->count == 0) {
		free(sorted);
		return;
	}
	memcpy(sorted, parsed->samples, size);
	qsort(sorted, parsed->count, sizeof(*sorted), compare_samples);
	for (size_t i = 1; i < parsed->count; i++)
		cr_assert(compare_samples(&sorted[i - 1], &sorted[i]) != 0, "%s{%s} twice",
			  sorted[i].name, sorted[i].labels);
	free(sorted);
}

/* Buckets of a series follow each other, rise, end in +Inf, and +Inf is _count. */
static void check_histograms(const struct parsed *parsed)
{
	for (size_t i = 0; i < parsed->count; i++) {
		const struct sample *sample = &parsed->samples[i];
		const struct sample *next = sample + 1;

		if (sample->le[0] == '\0')
			continue;
		cr_assert(i + 1 < parsed->count);
		if (strcmp(sample->le, "+Inf") == 0) {
			char name[160];

			snprintf(name, sizeof(name), "%.*s_count",
				 (int)(strlen(sample->name) - strlen("_bucket")), sample->name);
			cr_assert(value_of(parsed, name, sample->labels, "") == sample->value);
			continue;
		}
		cr_assert_str_eq(next->name, sample->name);
		cr_assert_str_eq(next->labels, sample->labels);
		cr_assert(next->value >= sample->value);
		cr_assert(parse_value(next->le) > parse_value(sample->le));
	}
}

static struct parsed parse(char *text)
{
	struct parsed parsed = {0};
	char families[256][128];
	char family[128] = "";
	char type[32] = "";
	size_t capacity = 0;
	char *rest = text;
	char *line;

	cr_assert(*text == '\0' || text[strlen(text) - 1] == '\n');
	while ((line = strsep(&rest, "\n")) && (rest || *line != '\0')) {
		if (strncmp(line, "# HELP ", 7) == 0) {
			size_t len = strcspn(line + 7, " ");

			snprintf(family, sizeof(family), "%.*s", (int)len, line + 7);
			for (size_t i = 0; i < parsed.families; i++)
				cr_assert_str_neq(families[i], family);
			memcpy(families[parsed.families++], family, sizeof(family));
			type[0] = '\0';
			continue;
		}
		if (strncmp(line, "# TYPE ", 7) == 0) {
			cr_assert(strncmp(line + 7, family, strlen(family)) == 0);
			cr_assert(type[0] == '\0');
			snprintf(type, sizeof(type), "%s", line + 7 + strlen(family) + 1);
			continue;
		}
		if (parsed.count == capacity) {
			capacity = capacity ? capacity * 2 : 64;
			parsed.samples =
				reallocarray(parsed.samples, capacity, sizeof(*parsed.samples));
		}
		parsed.samples[parsed.count] = (struct sample){0};
		parse_sample(line, &parsed.samples[parsed.count]);
		cr_assert(of_family(parsed.samples[parsed.count].name, family, type), "%s in %s",
			  parsed.samples[parsed.count].name, family);
		parsed.count++;
	}
	check_unique(&parsed);
	check_histograms(&parsed);
	return parsed;
}

static struct parsed expose(struct sp_metrics *metrics)
{
	struct parsed parsed;
	struct sp_buf out;

	sp_buf_init(&out, TEXT_MAX);
	cr_assert(sp_metrics_write(metrics, &out) == 0);
	parsed = parse(out.data ? out.data : (char[]){""});
	sp_buf_done(&out);
	return parsed;
}

static struct sp_metrics *new_metrics(void)
{
	struct sp_metrics *metrics;

	cr_assert(sp_metrics_new(&metrics) == 0);
	return metrics;
}

static const char *const two_names[] = {"pool", "state"};
static const double few_bounds[] = {0.1, 1, 10};

Test(metrics, nothing_registered_is_an_empty_text)
{
	struct sp_metrics *metrics = new_metrics();
	struct parsed parsed = expose(metrics);

	cr_assert(parsed.count == 0);
	sp_metrics_free(metrics);
}

Test(metrics, counts_per_label_values)
{
	struct sp_metrics *metrics = new_metrics();
	struct sp_metric *metric = sp_metrics_register(metrics, SP_METRIC_COUNTER, "x_total",
						       "Help.", two_names, 2, NULL, 0);
	struct parsed parsed;

	sp_metric_add(metric, (const char *const[]){"a", "idle"}, 1);
	sp_metric_add(metric, (const char *const[]){"a", "idle"}, 2);
	sp_metric_add(metric, (const char *const[]){"a", "leased"}, 0.5);
	sp_metric_add(metric, (const char *const[]){"ai", "dle"}, 7);
	parsed = expose(metrics);

	cr_assert(parsed.count == 3);
	cr_assert(value_of(&parsed, "x_total", "pool=\"a\",state=\"idle\",", "") == 3);
	cr_assert(value_of(&parsed, "x_total", "pool=\"a\",state=\"leased\",", "") == 0.5);
	cr_assert(value_of(&parsed, "x_total", "pool=\"ai\",state=\"dle\",", "") == 7);
	free(parsed.samples);
	sp_metrics_free(metrics);
}

Test(metrics, a_family_without_labels_starts_at_zero)
{
	struct sp_metrics *metrics = new_metrics();
	struct parsed parsed;

	sp_metrics_register(metrics, SP_METRIC_COUNTER, "x_total", "Help.", NULL, 0, NULL, 0);
	parsed = expose(metrics);

	cr_assert(value_of(&parsed, "x_total", "", "") == 0);
	free(parsed.samples);
	sp_metrics_free(metrics);
}

Test(metrics, a_family_without_series_is_left_out)
{
	struct sp_metrics *metrics = new_metrics();
	struct parsed parsed;

	sp_metrics_register(metrics, SP_METRIC_COUNTER, "x_total", "Help.", two_names, 2, NULL, 0);
	parsed = expose(metrics);

	cr_assert(parsed.families == 0);
	sp_metrics_free(metrics);
}

Test(metrics, labels_and_help_are_escaped)
{
	struct sp_metrics *metrics = new_metrics();
	struct sp_metric *metric = sp_metrics_register(metrics, SP_METRIC_GAUGE, "x",
						       "a \\ \n \" b", two_names, 2, NULL, 0);
	struct parsed parsed;
	struct sp_buf out;

	sp_metric_set(metric, (const char *const[]){"q\"\\\n", "{},= "}, 1);
	sp_buf_init(&out, TEXT_MAX);
	cr_assert(sp_metrics_write(metrics, &out) == 0);

	cr_assert_not_null(strstr(out.data, "# HELP x a \\\\ \\n \" b\n"));
	parsed = parse(out.data);
	cr_assert(value_of(&parsed, "x", "pool=\"q\\\"\\\\\\n\",state=\"{},= \",", "") == 1);
	free(parsed.samples);
	sp_buf_done(&out);
	sp_metrics_free(metrics);
}

Test(metrics, a_value_on_a_bound_belongs_to_that_bucket)
{
	struct sp_metrics *metrics = new_metrics();
	struct sp_metric *metric = sp_metrics_register(metrics, SP_METRIC_HISTOGRAM, "x_seconds",
						       "Help.", NULL, 0, few_bounds, 3);
	const double values[] = {0.1, 0.10001, 1, 10, 10.5, 1e9};
	struct parsed parsed;

	for (size_t i = 0; i < SP_ARRAY_SIZE(values); i++)
		sp_metric_observe(metric, NULL, values[i]);
	parsed = expose(metrics);

	cr_assert(value_of(&parsed, "x_seconds_bucket", "", "0.1") == 1);
	cr_assert(value_of(&parsed, "x_seconds_bucket", "", "1") == 3);
	cr_assert(value_of(&parsed, "x_seconds_bucket", "", "10") == 4);
	cr_assert(value_of(&parsed, "x_seconds_bucket", "", "+Inf") == 6);
	cr_assert(value_of(&parsed, "x_seconds_count", "", "") == 6);
	cr_assert_float_eq(value_of(&parsed, "x_seconds_sum", "", ""), 1000000021.70001, 1e-6);
	free(parsed.samples);
	sp_metrics_free(metrics);
}

Test(metrics, not_a_number_never_enters_a_sum)
{
	struct sp_metrics *metrics = new_metrics();
	struct sp_metric *histogram = sp_metrics_register(metrics, SP_METRIC_HISTOGRAM, "x_seconds",
							  "Help.", NULL, 0, few_bounds, 3);
	struct sp_metric *counter = sp_metrics_register(metrics, SP_METRIC_COUNTER, "y_total",
							"Help.", NULL, 0, NULL, 0);
	struct parsed parsed;

	sp_metric_observe(histogram, NULL, NAN);
	sp_metric_observe(histogram, NULL, 2);
	sp_metric_add(counter, NULL, NAN);
	parsed = expose(metrics);

	cr_assert(value_of(&parsed, "x_seconds_sum", "", "") == 2);
	cr_assert(value_of(&parsed, "x_seconds_count", "", "") == 1);
	cr_assert(value_of(&parsed, "y_total", "", "") == 0);
	free(parsed.samples);
	sp_metrics_free(metrics);
}

static size_t series_after(size_t different, double *ret_other)
{
	static const char *const names[] = {"n"};
	struct sp_metrics *metrics = new_metrics();
	struct sp_metric *metric = sp_metrics_register(metrics, SP_METRIC_COUNTER, "x_total",
						       "Help.", names, 1, NULL, 0);
	const struct sample *other;
	struct parsed parsed;
	size_t count;

	for (size_t i = 0; i < different; i++) {
		char value[32];
		const char *labels[] = {value};

		snprintf(value, sizeof(value), "v%zu", i);
		sp_metric_add(metric, labels, 1);
		sp_metric_add(metric, labels, 1);
	}
	parsed = expose(metrics);
	count = parsed.count;
	other = find(&parsed, "x_total", "n=\"other\",", "");
	*ret_other = other ? other->value : -1;
	free(parsed.samples);
	sp_metrics_free(metrics);
	return count;
}

Test(metrics, series_are_bounded_and_what_is_beyond_is_counted_as_other)
{
	double other;

	cr_assert(series_after(SP_METRIC_SERIES_MAX, &other) == SP_METRIC_SERIES_MAX);
	cr_assert(other == -1);
	cr_assert(series_after(SP_METRIC_SERIES_MAX + 1, &other) == SP_METRIC_SERIES_MAX + 1);
	cr_assert(other == 2);
	cr_assert(series_after(SP_METRIC_SERIES_MAX + 1000, &other) == SP_METRIC_SERIES_MAX + 1);
	cr_assert(other == 2000);
}

Test(metrics, a_label_that_is_called_other_is_not_exposed_twice)
{
	static const char *const names[] = {"n"};
	struct sp_metrics *metrics = new_metrics();
	struct sp_metric *metric = sp_metrics_register(metrics, SP_METRIC_COUNTER, "x_total",
						       "Help.", names, 1, NULL, 0);
	struct parsed parsed;

	sp_metric_add(metric, (const char *const[]){"other"}, 5);
	for (size_t i = 0; i < SP_METRIC_SERIES_MAX + 3; i++) {
		char value[32];
		const char *labels[] = {value};

		snprintf(value, sizeof(value), "v%zu", i);
		sp_metric_add(metric, labels, 1);
	}
	parsed = expose(metrics);

	cr_assert(parsed.count == SP_METRIC_SERIES_MAX);
	cr_assert(value_of(&parsed, "x_total", "n=\"other\",", "") == 5 + 4);
	free(parsed.samples);
	sp_metrics_free(metrics);
}

static void set_gauge(void *arg)
{
	sp_metric_add(arg, NULL, 1);
}

Test(metrics, collectors_run_before_each_exposition)
{
	struct sp_metrics *metrics = new_metrics();
	struct sp_metric *metric =
		sp_metrics_register(metrics, SP_METRIC_GAUGE, "x", "Help.", NULL, 0, NULL, 0);
	struct parsed parsed;

	sp_metrics_on_collect(metrics, set_gauge, metric);
	parsed = expose(metrics);
	cr_assert(value_of(&parsed, "x", "", "") == 1);
	free(parsed.samples);
	parsed = expose(metrics);
	cr_assert(value_of(&parsed, "x", "", "") == 2);
	free(parsed.samples);
	sp_metrics_free(metrics);
}

Test(metrics, a_text_that_does_not_fit_leaves_the_buffer_as_it_was)
{
	struct sp_metrics *metrics = new_metrics();
	struct sp_buf out;
	size_t whole;

	sp_metrics_register(metrics, SP_METRIC_GAUGE, "x", "Help.", NULL, 0, NULL, 0);
	sp_buf_init(&out, TEXT_MAX);
	cr_assert(sp_metrics_write(metrics, &out) == 0);
	whole = out.len;
	sp_buf_done(&out);

	sp_buf_init(&out, whole);
	cr_assert(sp_metrics_write(metrics, &out) == 0);
	sp_buf_done(&out);
	sp_buf_init(&out, whole + 1);
	cr_assert(sp_buf_append(&out, "ab", 2) == 0);
	cr_assert(sp_metrics_write(metrics, &out) == -E2BIG);
	cr_assert(out.len == 2);
	cr_assert_str_eq(sp_buf_text(&out), "ab");
	sp_buf_done(&out);
	sp_metrics_free(metrics);
}

Test(metrics, no_metric_is_ignored)
{
	sp_metric_add(NULL, NULL, 1);
	sp_metric_set(NULL, NULL, 1);
	sp_metric_observe(NULL, NULL, 1);
	sp_metrics_free(NULL);
}

Test(metrics, default_buckets_rise_from_50_microseconds_to_a_minute)
{
	cr_assert(sp_metric_duration_buckets[0] == 0.00005);
	cr_assert(sp_metric_duration_buckets[sp_metric_duration_bucket_count - 1] == 60);
	for (size_t i = 1; i < sp_metric_duration_bucket_count; i++)
		cr_assert(sp_metric_duration_buckets[i] > sp_metric_duration_buckets[i - 1]);
}

Test(metrics, the_same_name_twice_is_a_bug, .signal = SIGABRT)
{
	struct sp_metrics *metrics = new_metrics();

	sp_metrics_register(metrics, SP_METRIC_GAUGE, "x", "Help.", NULL, 0, NULL, 0);
	sp_metrics_register(metrics, SP_METRIC_GAUGE, "x", "Help.", NULL, 0, NULL, 0);
}

Test(metrics, le_is_no_label_of_a_histogram, .signal = SIGABRT)
{
	static const char *const names[] = {"le"};

	sp_metrics_register(new_metrics(), SP_METRIC_HISTOGRAM, "x", "Help.", names, 1, few_bounds,
			    3);
}

Test(metrics, buckets_that_do_not_rise_are_a_bug, .signal = SIGABRT)
{
	static const double bounds[] = {1, 1};

	sp_metrics_register(new_metrics(), SP_METRIC_HISTOGRAM, "x", "Help.", NULL, 0, bounds, 2);
}

Test(metrics, a_name_that_begins_with_a_digit_is_a_bug, .signal = SIGABRT)
{
	sp_metrics_register(new_metrics(), SP_METRIC_GAUGE, "2x", "Help.", NULL, 0, NULL, 0);
}

Test(metrics_number, prints_what_reads_back)
{
	const double values[] = {0,
				 1,
				 -1,
				 0.1,
				 5e-05,
				 123456789012345678.0,
				 1e308,
				 0.25,
				 1e15,
				 9007199254740991.0,
				 9007199254740994.0,
				 -2.5,
				 5e-324};

	for (size_t i = 0; i < SP_ARRAY_SIZE(values); i++) {
		char text[SP_NUMBER_SIZE];

		cr_assert(strtod(sp_number_print(values[i], text), NULL) == values[i], "%s", text);
	}
}

Test(metrics_number, names_what_is_no_number)
{
	char text[SP_NUMBER_SIZE];

	cr_assert_str_eq(sp_number_print(INFINITY, text), "+Inf");
	cr_assert_str_eq(sp_number_print(-INFINITY, text), "-Inf");
	cr_assert_str_eq(sp_number_print(NAN, text), "NaN");
	cr_assert_str_eq(sp_number_print(0.1, text), "0.1");
	cr_assert_str_eq(sp_number_print(-0.0, text), "0");
	cr_assert_str_eq(sp_number_print_count(UINT64_MAX, text), "18446744073709551615");
}

Test(metrics_number, has_a_point_in_a_locale_with_a_comma)
{
	char text[SP_NUMBER_SIZE];

	if (!setlocale(LC_NUMERIC, "de_DE.UTF-8"))
		cr_skip_test("no locale with a decimal comma on this machine");
	cr_assert_str_eq(sp_number_print(0.5, text), "0.5");
	cr_assert_str_eq(sp_number_print(5e-05, text), "5e-05");
}
