/*
 * The checks behind `sandpool doctor`: each looks at one requirement, changes nothing on the host,
 * and reports one line with the remedy.
 */
#ifndef SP_CLI_DOCTOR_H
#define SP_CLI_DOCTOR_H

#include "supervisor/cli/cli.h"
#include "supervisor/config/config.h"

enum sp_cli_verdict { SP_CLI_PASS, SP_CLI_WARN, SP_CLI_FAIL, SP_CLI_VERDICT_COUNT };

struct sp_cli_finding {
	const char *name; /* of the requirement: constant */
	enum sp_cli_verdict verdict;
	char detail[300];
	char fix[300]; /* "" = none needed */
};

#define SP_CLI_FINDINGS_MAX 96

struct sp_cli_doctor {
	struct sp_cli *cli;
	const char *config_path;
	bool config_named;              /* by the user: then its absence is a failure */
	const struct sp_config *config; /* NULL when it could not be loaded */
	bool root;
	struct sp_cli_finding findings[SP_CLI_FINDINGS_MAX];
	size_t count;
	size_t totals[SP_CLI_VERDICT_COUNT];
};

/* Add a line. The pointer stays valid until the next call: for sp_cli_doctor_fix(). */
struct sp_cli_finding *sp_cli_doctor_report(struct sp_cli_doctor *doctor, const char *name,
					    enum sp_cli_verdict verdict, const char *format, ...)
	SP_PRINTF(4, 5);
void sp_cli_doctor_fix(struct sp_cli_finding *finding, const char *format, ...) SP_PRINTF(2, 3);

/* The file's text without its last line end. 0, -EMSGSIZE, other negative errno. */
int sp_cli_doctor_read(const char *path, char *text, size_t size);
/* A file that holds one number ("max" = INT64_MAX). */
int sp_cli_doctor_number(const char *path, int64_t *ret_number);

/* Sandboxes that the configuration allows at once; 0 when there is no configuration. */
int64_t sp_cli_doctor_capacity(const struct sp_cli_doctor *doctor);

/* The groups, in the order of the output. */
void sp_cli_doctor_kernel(struct sp_cli_doctor *doctor);     /* doctor_kernel.c */
void sp_cli_doctor_namespaces(struct sp_cli_doctor *doctor); /* doctor_namespaces.c */
void sp_cli_doctor_cgroups(struct sp_cli_doctor *doctor);    /* doctor_cgroups.c */
void sp_cli_doctor_host(struct sp_cli_doctor *doctor);       /* doctor_host.c */
void sp_cli_doctor_rootless(struct sp_cli_doctor *doctor);   /* doctor_rootless.c */
void sp_cli_doctor_redis(struct sp_cli_doctor *doctor);      /* doctor_redis.c */
void sp_cli_doctor_daemon(struct sp_cli_doctor *doctor);     /* doctor_daemon.c */

#endif
