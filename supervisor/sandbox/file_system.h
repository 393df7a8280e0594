/*
 * What is known of a directory below an overlay whose changes are to be written back: on which file
 * systems it cannot be, and the name in it that is ours.
 */
#ifndef SP_SANDBOX_FILE_SYSTEM_H
#define SP_SANDBOX_FILE_SYSTEM_H

#include <stdbool.h>

/* What a commit keeps in its base until all of it is done. */
#define SP_COMMIT_DIR ".sandpool-commit"

/* f_type of statfs(2): what others change there does not show in this kernel's time stamps, or not
 * at once. */
static inline bool sp_file_system_remote(long magic)
{
	static const unsigned int magics[] = {
		0x6969,     /* nfs */
		0x517b,     /* smb */
		0xff534d42, /* cifs */
		0xfe534d42, /* smb2 */
		0x00c36400, /* ceph */
		0x5346414f, /* afs */
		0x6b414653, /* kafs */
		0x01021997, /* 9p */
		0x65735546, /* fuse */
		0x73757245, /* coda */
		0x01161970, /* gfs2 */
		0x7461636f, /* ocfs2 */
		0x0bd00bd0, /* lustre */
		0x47504653, /* gpfs */
		0x20030528, /* orangefs */
		0x19830326, /* beegfs */
		0x786f4256, /* vboxsf */
		0xbacbacbc, /* vmhgfs */
	};

	for (unsigned int i = 0; i < sizeof(magics) / sizeof(magics[0]); i++)
		if ((magic & 0xffffffffL) == (long)magics[i])
			return true;
	return false;
}

#endif
