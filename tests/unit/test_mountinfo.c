/*
 * Mount points with odd names are compared as what they are.
 */
#include "supervisor/sandbox/mountinfo.h"

#include <criterion/criterion.h>
#include <stdio.h>

static void becomes(const char *escaped, const char *plain)
{
	char text[64];

	(void)snprintf(text, sizeof(text), "%s", escaped);
	sp_mountinfo_unescape(text);
	cr_assert_str_eq(text, plain);
}

Test(mountinfo, fields_are_unescaped)
{
	becomes("", "");
	becomes("/a/b", "/a/b");
	becomes("/a\\040b\\011\\012", "/a b\t\n");
	becomes("\\134040", "\\040");
	becomes("\\377", "\377");
	/* Not the kernel's. */
	becomes("\\04", "\\04");
	becomes("\\049", "\\049");
	becomes("\\", "\\");
}
