/*
 * The programs that run inside a sandbox on behalf of sessions and contexts, as text: the files in
 * programs/. Nothing here is trusted with anything: they run as the code that they serve.
 */
#ifndef SP_API_EXECD_PROGRAMS_H
#define SP_API_EXECD_PROGRAMS_H

extern const char sp_session_bash[];
extern const char sp_session_sh[];
extern const char sp_context_py[];

#endif
