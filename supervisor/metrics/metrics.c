/*
 * Metric families, their series, and the text that Prometheus reads (exposition format 0.0.4).
 *
 * A series is made when its labels are first seen and lives until the end; its labels are escaped
 * then, so that writing the text is copying and printing numbers, without an allocation. The number
 * of series is bounded: past SP_METRIC_SERIES_MAX a family counts everything new in one series with
 * all labels "other", so that totals stay right.
 *
 * Names, helps and label names are literals of ours: a bad one is a bug and asserts. One thread.
 */
#include "supervisor/metrics/metrics.h"

#include "supervisor/metrics/number.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COLLECTORS_MAX   16u
#define FIRST_TABLE_SIZE 16u /* a power of two; so are the later sizes */

const double sp_metric_duration_buckets[] = {
	0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
	0.1,     0.25,   0.5,     1,      2.5,   5,      10,    30,   60,
};
const size_t sp_metric_duration_bucket_count = SP_ARRAY_SIZE(sp_metric_duration_buckets);

struct series {
	uint64_t hash;
	char *values;       /* label values, each with its NUL */
	char *labels;       /* escaped: a="x",b="y" */
	double value;       /* histogram: sum */
	uint64_t count;     /* histogram */
	uint64_t buckets[]; /* histogram: bucket_count, not cumulated */
};

struct sp_metric {
	struct sp_metric *next;
	enum sp_metric_type type;
	const char *name;
	const char *help;
	const char *label_names[SP_METRIC_LABELS_MAX];
	size_t label_count;
	const double *bounds;
	size_t bound_count;
	char (*bound_texts)[SP_NUMBER_SIZE];
	struct series **series; /* in the order of their making */
	size_t series_count;
	size_t series_capacity;
	struct series **table; /* open addressing, at most half full */
	size_t table_size;
	struct series *other;
};

struct collector {
	void (*collect)(void *arg);
	void *arg;
};

struct sp_metrics {
	struct sp_metric *first;
	struct sp_metric **last;
	struct collector collectors[COLLECTORS_MAX];
	size_t collector_count;
};

int sp_metrics_new(struct sp_metrics **ret_metrics)
{
	struct sp_metrics *metrics = calloc(1, sizeof(*metrics));

	if (!metrics)
		return -ENOMEM;
	metrics->last = &metrics->first;
	*ret_metrics = metrics;
	return 0;
}

static void series_free(struct series *series)
{
	if (!series)
		return;
	free(series->values);
	free(series->labels);
	free(series);
}

static void metric_free(struct sp_metric *metric)
{
	for (size_t i = 0; i < metric->series_count; i++)
		series_free(metric->series[i]);
	series_free(metric->other);
	free(metric->series);
	free(metric->table);
	free(metric->bound_texts);
	free(metric);
}

void sp_metrics_free(struct sp_metrics *metrics)
{
	if (!metrics)
		return;
	while (metrics->first) {
		struct sp_metric *next = metrics->first->next;

		metric_free(metrics->first);
		metrics->first = next;
	}
	free(metrics);
}

/* ---- series ---- */

static uint64_t hash_labels(const struct sp_metric *metric, const char *const *labels)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < metric->label_count; i++) {
		const char *at = labels[i];

		do
			hash = (hash ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
		while (*at++ != '\0');
	}
	return hash;
}

static bool has_labels(const struct sp_metric *metric, const struct series *series,
		       const char *const *labels)
{
	const char *at = series->values;

	for (size_t i = 0; i < metric->label_count; i++) {
		if (strcmp(at, labels[i]) != 0)
			return false;
		at += strlen(at) + 1;
	}
	return true;
}

/* Backslash, quote and newline; the rest goes through as it is. */
static int append_escaped(struct sp_buf *out, const char *text, bool quotes)
{
	int status = 0;

	for (; *text != '\0' && status == 0; text++) {
		if (*text == '\\')
			status = sp_buf_append(out, "\\\\", 2);
		else if (*text == '\n')
			status = sp_buf_append(out, "\\n", 2);
		else if (*text == '"' && quotes)
			status = sp_buf_append(out, "\\\"", 2);
		else
			status = sp_buf_append(out, text, 1);
	}
	return status;
}

static char *render_labels(const struct sp_metric *metric, const char *const *labels)
{
	struct sp_buf text;
	int status = 0;
	char *rendered = NULL;

	sp_buf_init(&text, SIZE_MAX / 2);
	for (size_t i = 0; i < metric->label_count && status == 0; i++) {
		status = sp_buf_printf(&text, "%s%s=\"", i > 0 ? "," : "", metric->label_names[i]);
		if (status == 0)
			status = append_escaped(&text, labels[i], true);
		if (status == 0)
			status = sp_buf_append(&text, "\"", 1);
	}
	if (status == 0)
		rendered = sp_buf_take(&text);
	sp_buf_done(&text);
	return rendered;
}

static char *copy_values(const struct sp_metric *metric, const char *const *labels)
{
	struct sp_buf text;
	int status = 0;
	char *values = NULL;

	sp_buf_init(&text, SIZE_MAX / 2);
	for (size_t i = 0; i < metric->label_count && status == 0; i++)
		status = sp_buf_append(&text, labels[i], strlen(labels[i]) + 1);
	if (status == 0)
		values = sp_buf_take(&text);
	sp_buf_done(&text);
	return values;
}

static struct series *series_new(const struct sp_metric *metric, const char *const *labels,
				 uint64_t hash)
{
	struct series *series =
		calloc(1, sizeof(*series) + metric->bound_count * sizeof(series->buckets[0]));

	if (!series)
		return NULL;
	series->hash = hash;
	series->values = copy_values(metric, labels);
	series->labels = render_labels(metric, labels);
	if (series->values && series->labels)
		return series;
	series_free(series);
	return NULL;
}

/* Where the labels are, or where they would go. */
static struct series **find_slot(const struct sp_metric *metric, const char *const *labels,
				 uint64_t hash)
{
	size_t at = hash & (metric->table_size - 1);

	while (metric->table[at] &&
	       (metric->table[at]->hash != hash || !has_labels(metric, metric->table[at], labels)))
		at = (at + 1) & (metric->table_size - 1);
	return &metric->table[at];
}

static int grow_table(struct sp_metric *metric)
{
	size_t size = metric->table_size ? metric->table_size * 2 : FIRST_TABLE_SIZE;
	struct series **table = calloc(size, sizeof(struct series *));

	if (!table)
		return -ENOMEM;
	for (size_t i = 0; i < metric->series_count; i++) {
		size_t at = metric->series[i]->hash & (size - 1);

		while (table[at])
			at = (at + 1) & (size - 1);
		table[at] = metric->series[i];
	}
	free(metric->table);
	metric->table = table;
	metric->table_size = size;
	return 0;
}

static int grow_list(struct sp_metric *metric)
{
	size_t capacity = metric->series_capacity ? metric->series_capacity * 2 : 8;
	struct series **grown = reallocarray(metric->series, capacity, sizeof(struct series *));

	if (!grown)
		return -ENOMEM;
	metric->series = grown;
	metric->series_capacity = capacity;
	return 0;
}

static struct series *other_series(struct sp_metric *metric)
{
	static const char *const other[SP_METRIC_LABELS_MAX] = {"other", "other", "other"};

	struct series *known = *find_slot(metric, other, hash_labels(metric, other));

	sp_assert(metric->label_count <= SP_METRIC_LABELS_MAX);
	if (known)
		return known;
	if (!metric->other)
		metric->other = series_new(metric, other, 0);
	return metric->other;
}

/* NULL: out of memory; the value is lost, the process is not. */
static struct series *get_series(struct sp_metric *metric, const char *const *labels)
{
	uint64_t hash = hash_labels(metric, labels);
	struct series **slot = NULL;
	struct series *series;

	if (metric->table_size > 0) {
		slot = find_slot(metric, labels, hash);
		if (*slot)
			return *slot;
	}
	if (metric->series_count == SP_METRIC_SERIES_MAX)
		return other_series(metric);
	if (metric->series_count * 2 >= metric->table_size && grow_table(metric) < 0)
		return NULL;
	if (metric->series_count == metric->series_capacity && grow_list(metric) < 0)
		return NULL;
	series = series_new(metric, labels, hash);
	if (!series)
		return NULL;
	*find_slot(metric, labels, hash) = series;
	metric->series[metric->series_count++] = series;
	return series;
}

/* ---- families ---- */

static bool name_valid(const char *name, const char *more)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";

	if (*name == '\0' || strchr("0123456789", *name))
		return false;
	for (; *name != '\0'; name++)
		if (!strchr(letters, *name) && !strchr("0123456789", *name) && !strchr(more, *name))
			return false;
	return true;
}

static bool family_known(const struct sp_metrics *metrics, const char *name)
{
	for (const struct sp_metric *metric = metrics->first; metric; metric = metric->next)
		if (strcmp(metric->name, name) == 0)
			return true;
	return false;
}

static bool labels_valid(enum sp_metric_type type, const char *const *names, size_t count)
{
	if (count > SP_METRIC_LABELS_MAX)
		return false;
	for (size_t i = 0; i < count; i++)
		if (!name_valid(names[i], "") || strncmp(names[i], "__", 2) == 0 ||
		    (type == SP_METRIC_HISTOGRAM && strcmp(names[i], "le") == 0))
			return false;
	return true;
}

/* The last bucket, +Inf, is ours. */
static bool bounds_valid(enum sp_metric_type type, const double *bounds, size_t count)
{
	if (type != SP_METRIC_HISTOGRAM)
		return count == 0;
	for (size_t i = 0; i < count; i++)
		if (!isfinite(bounds[i]) || (i > 0 && bounds[i] <= bounds[i - 1]))
			return false;
	return count > 0;
}

static int render_bounds(struct sp_metric *metric)
{
	if (metric->bound_count == 0)
		return 0;
	metric->bound_texts = calloc(metric->bound_count, sizeof(*metric->bound_texts));
	if (!metric->bound_texts)
		return -ENOMEM;
	for (size_t i = 0; i < metric->bound_count; i++)
		(void)sp_number_print(metric->bounds[i], metric->bound_texts[i]);
	return 0;
}

struct sp_metric *sp_metrics_register(struct sp_metrics *metrics, enum sp_metric_type type,
				      const char *name, const char *help,
				      const char *const *label_names, size_t label_count,
				      const double *buckets, size_t bucket_count)
{
	struct sp_metric *metric = calloc(1, sizeof(*metric));

	sp_assert(name_valid(name, ":"));
	sp_assert(!family_known(metrics, name));
	sp_assert(labels_valid(type, label_names, label_count));
	sp_assert(bounds_valid(type, buckets, bucket_count));
	if (!metric)
		return NULL;
	metric->type = type;
	metric->name = name;
	metric->help = help;
	for (size_t i = 0; i < label_count; i++)
		metric->label_names[i] = label_names[i];
	metric->label_count = label_count;
	metric->bounds = buckets;
	metric->bound_count = bucket_count;
	/* Without labels it exists from the start: a rate needs the 0 before the 1. */
	if (render_bounds(metric) < 0 || (label_count == 0 && !get_series(metric, NULL))) {
		metric_free(metric);
		return NULL;
	}
	*metrics->last = metric;
	metrics->last = &metric->next;
	return metric;
}

void sp_metric_add(struct sp_metric *metric, const char *const *labels, double value)
{
	struct series *series;

	if (!metric)
		return;
	sp_assert(metric->type != SP_METRIC_HISTOGRAM);
	sp_assert(metric->type == SP_METRIC_GAUGE || !(value < 0));
	series = get_series(metric, labels);
	if (series && !isnan(value))
		series->value += value;
}

void sp_metric_set(struct sp_metric *metric, const char *const *labels, double value)
{
	struct series *series;

	if (!metric)
		return;
	sp_assert(metric->type != SP_METRIC_HISTOGRAM);
	series = get_series(metric, labels);
	if (series)
		series->value = value;
}

void sp_metric_observe(struct sp_metric *metric, const char *const *labels, double value)
{
	struct series *series;
	size_t bucket = 0;

	if (!metric)
		return;
	sp_assert(metric->type == SP_METRIC_HISTOGRAM);
	series = get_series(metric, labels);
	if (!series || isnan(value))
		return;
	while (bucket < metric->bound_count && value > metric->bounds[bucket])
		bucket++;
	if (bucket < metric->bound_count)
		series->buckets[bucket]++;
	series->count++;
	series->value += value;
}

/* ---- the text ---- */

void sp_metrics_on_collect(struct sp_metrics *metrics, void (*collect)(void *arg), void *arg)
{
	sp_assert(metrics->collector_count < COLLECTORS_MAX);
	metrics->collectors[metrics->collector_count++] = (struct collector){collect, arg};
}

static int append_text(struct sp_buf *out, const char *text)
{
	return sp_buf_append(out, text, strlen(text));
}

/* name suffix {labels[,le="bound"]} value */
static int write_sample(const struct sp_metric *metric, const char *suffix,
			const struct series *series, const char *bound, const char *number,
			struct sp_buf *out)
{
	const char *const parts[] = {
		metric->name,
		suffix,
		bound || *series->labels != '\0' ? "{" : "",
		series->labels,
		bound && *series->labels != '\0' ? "," : "",
		bound ? "le=\"" : "",
		bound ? bound : "",
		bound ? "\"" : "",
		bound || *series->labels != '\0' ? "} " : " ",
		number,
		"\n",
	};
	int status = 0;

	for (size_t i = 0; i < SP_ARRAY_SIZE(parts) && status == 0; i++)
		status = append_text(out, parts[i]);
	return status;
}

static int write_histogram(const struct sp_metric *metric, const struct series *series,
			   struct sp_buf *out)
{
	char number[SP_NUMBER_SIZE];
	uint64_t below = 0;
	int status = 0;

	for (size_t i = 0; i < metric->bound_count && status == 0; i++) {
		below += series->buckets[i];
		status = write_sample(metric, "_bucket", series, metric->bound_texts[i],
				      sp_number_print_count(below, number), out);
	}
	sp_number_print_count(series->count, number);
	if (status == 0)
		status = write_sample(metric, "_bucket", series, "+Inf", number, out);
	if (status == 0)
		status = write_sample(metric, "_count", series, NULL, number, out);
	if (status == 0)
		status = write_sample(metric, "_sum", series, NULL,
				      sp_number_print(series->value, number), out);
	return status;
}

static int write_series(const struct sp_metric *metric, const struct series *series,
			struct sp_buf *out)
{
	char number[SP_NUMBER_SIZE];

	if (metric->type == SP_METRIC_HISTOGRAM)
		return write_histogram(metric, series, out);
	return write_sample(metric, "", series, NULL, sp_number_print(series->value, number), out);
}

static int write_family(const struct sp_metric *metric, struct sp_buf *out)
{
	static const char *const types[] = {
		[SP_METRIC_COUNTER] = "counter",
		[SP_METRIC_GAUGE] = "gauge",
		[SP_METRIC_HISTOGRAM] = "histogram",
	};
	int status = 0;

	if (metric->series_count == 0)
		return 0;
	status = sp_buf_printf(out, "# HELP %s ", metric->name);
	if (status == 0)
		status = append_escaped(out, metric->help, false);
	if (status == 0)
		status = sp_buf_printf(out, "\n# TYPE %s %s\n", metric->name, types[metric->type]);
	for (size_t i = 0; i < metric->series_count && status == 0; i++)
		status = write_series(metric, metric->series[i], out);
	if (status == 0 && metric->other)
		status = write_series(metric, metric->other, out);
	return status;
}

int sp_metrics_write(struct sp_metrics *metrics, struct sp_buf *out)
{
	size_t before = out->len;
	int status = 0;

	for (size_t i = 0; i < metrics->collector_count; i++)
		metrics->collectors[i].collect(metrics->collectors[i].arg);
	for (struct sp_metric *metric = metrics->first; metric && status == 0;
	     metric = metric->next)
		status = write_family(metric, out);
	if (status < 0) {
		out->len = before;
		if (out->data)
			out->data[before] = '\0';
	}
	return status;
}
