/*
 * init's own confinement, inherited by everything that it starts.
 */
#ifndef SP_INIT_CONFINE_H
#define SP_INIT_CONFINE_H

#include "supervisor/init/init.h"

/* After this nothing in the sandbox can gain a privilege. The filter is the last step but one. */
int init_confine(struct init *init);

#endif
