/*
 * Trusts the kernel to have written what it reads; text of another kind comes out as it is.
 */
#include "supervisor/sandbox/mountinfo.h"

#include <string.h>

void sp_mountinfo_unescape(char *text)
{
	char *to = text;

	while (*text != '\0') {
		if (text[0] == '\\' && strspn(text + 1, "01234567") >= 3) {
			*to++ = (char)((text[1] - '0') * 64 + (text[2] - '0') * 8 +
				       (text[3] - '0'));
			text += 4;
		} else {
			*to++ = *text++;
		}
	}
	*to = '\0';
}
