/*
 * Counters, gauges and histograms in Prometheus' text format. A fixed set of families registered at
 * start; label values come from fixed sets (pools, states, reasons, stages), never from a client,
 * so the number of series is bounded by configuration.
 */
#ifndef SP_METRICS_METRICS_H
#define SP_METRICS_METRICS_H

#include "pool/base/buf.h"
#include "pool/base/err.h"

struct sp_metrics;
struct sp_metric; /* a family */

#define SP_METRIC_LABELS_MAX 3u
#define SP_METRIC_SERIES_MAX 4096u /* per family; beyond, values go to the series "other" */

enum sp_metric_type { SP_METRIC_COUNTER, SP_METRIC_GAUGE, SP_METRIC_HISTOGRAM };

int sp_metrics_new(struct sp_metrics **ret_metrics);
void sp_metrics_free(struct sp_metrics *metrics);
/* Names borrowed for ever (string literals). Buckets (histograms) ascending, borrowed for ever. */
struct sp_metric *sp_metrics_register(struct sp_metrics *metrics, enum sp_metric_type type,
				      const char *name, const char *help,
				      const char *const *label_names, size_t label_count,
				      const double *buckets, size_t bucket_count);
/* labels: as many values as label names; copied on first use. NULL metric is ignored. */
void sp_metric_add(struct sp_metric *metric, const char *const *labels, double value);
void sp_metric_set(struct sp_metric *metric, const char *const *labels, double value);
void sp_metric_observe(struct sp_metric *metric, const char *const *labels, double value);
/* Run at the start of each exposition, to set gauges from live state. */
void sp_metrics_on_collect(struct sp_metrics *metrics, void (*collect)(void *arg), void *arg);
/* text/plain; version=0.0.4. 0, -ENOMEM, -E2BIG. */
int sp_metrics_write(struct sp_metrics *metrics, struct sp_buf *out);

/* Default buckets for durations in seconds: 50 µs … 60 s. */
extern const double sp_metric_duration_buckets[];
extern const size_t sp_metric_duration_bucket_count;

#endif
