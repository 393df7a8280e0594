/*
 * FILE, whole trees: listing, removing, moving.
 *
 * Of the pitfalls: B-189 (across_mounts), B-192 (closed_directories, deeper_than_any_path), B-193
 * (odd_names_…), B-194 and B-195 (so_many_entries_…, root_must_be_a_directory_…), B-196.
 */
#include "tests/sandbox/files_setup.h"

#include "pool/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(init_file_list, .init = set_up, .fini = tear_down);
TestSuite(init_file_remove, .init = set_up, .fini = tear_down);
TestSuite(init_file_move, .init = set_up, .fini = tear_down);

/* ---- list ---- */

static int list_at_most(const char *path, uint32_t depth, uint32_t limit)
{
	return channel_do(
		&harness,
		&(struct file_ask){
			.kind = SP_INIT_FILE_LIST, .path = path, .depth = depth, .limit = limit},
		&reply);
}

static int list(const char *path, uint32_t depth)
{
	return list_at_most(path, depth, 0);
}

Test(init_file_list, order_and_depth)
{
	shell("cd /tmp; mkdir -p t/b/z t/a-b t/a/x/y; touch t/a.c t/b/z/f t/a/x/y/g; ln -s b "
	      "t/link");
	cr_assert(list("/tmp/t", 0) == 0 && reply.entries == 0);
	cr_assert(list("/tmp/t", 1) == 0);
	cr_assert_str_eq(reply.paths, "a\na-b\na.c\nb\nlink\n");
	cr_assert(reply.infos[0].type == SP_INIT_FILE_DIR);
	cr_assert(reply.infos[2].type == SP_INIT_FILE_REGULAR);
	cr_assert(reply.infos[4].type == SP_INIT_FILE_LINK);
	cr_assert(list("/tmp/t", 2) == 0);
	cr_assert_str_eq(reply.paths, "a\na/x\na-b\na.c\nb\nb/z\nlink\n");
	cr_assert(list("/tmp/t", UINT32_MAX) == 0);
	cr_assert_str_eq(reply.paths, "a\na/x\na/x/y\na/x/y/g\na-b\na.c\nb\nb/z\nb/z/f\nlink\n");
}

Test(init_file_list, root_must_be_a_directory_and_no_link)
{
	shell("cd /tmp; mkdir d; touch f; ln -s d l");
	cr_assert(list("/tmp/l", 1) == -ENOTDIR || reply.status == -ELOOP);
	cr_assert(list("/tmp/f", 0) == -ENOTDIR);
	cr_assert(list("/tmp/missing", 1) == -ENOENT);
	cr_assert(list("/proc", 1) == -EOPNOTSUPP);
	cr_assert(list("/tmp/d", 1) == 0, "the control");
}

Test(init_file_list, of_everything_leaves_the_kernels_own_out)
{
	cr_assert(list("/", 1) == 0);
	cr_assert(strstr(reply.paths, "proc\n") != NULL);
	cr_assert(list("/", 2) == 0, "%s in '%s'", strerror(-reply.status), reply.stage);
	cr_assert(strstr(reply.paths, "proc\n") && !strstr(reply.paths, "proc/"));
	cr_assert(strstr(reply.paths, "usr/bin\n") && strstr(reply.paths, "workspace/made\n"));
	cr_assert(!strstr(reply.paths, ".init/proc"));
}

Test(init_file_list, what_may_not_be_read_is_passed_over)
{
	shell("cd /tmp; mkdir -p t/a t/b t/c/in; touch t/a/f t/b/f; chmod 0 t/a; chmod 444 t/b");
	cr_assert(list("/tmp/t", UINT32_MAX) == 0);
	cr_assert_str_eq(reply.paths, "a\nb\nc\nc/in\n");
	cr_assert(list("/tmp/t/a", 1) == -EACCES);
}

Test(init_file_list, odd_names_come_as_they_are)
{
	python("import os\n"
	       "os.mkdir('/tmp/t')\n"
	       "for n in b'new\\nline', b'-x', b'\\xff', b'n' * 255, b' ':\n"
	       "  open(b'/tmp/t/' + n, 'w')\n");
	cr_assert(list("/tmp/t", 1) == 0);
	cr_assert(reply.entries == 5);
	cr_assert(strncmp(reply.paths, " \n-x\nnew\nline\nnnn", 16) == 0);
	cr_assert(strcmp(reply.paths + strlen(reply.paths) - 3, "n\n\xff\n") != 0 &&
		  strstr(reply.paths, "\xff\n"));
}

Test(init_file_list, so_many_entries_and_one_more)
{
	python("import os\n"
	       "for i in range(10):\n"
	       "  os.makedirs('/tmp/t/%d' % i)\n"
	       "  for j in range(9): open('/tmp/t/%d/%d' % (i, j), 'w')\n");
	cr_assert(list_at_most("/tmp/t", UINT32_MAX, 100) == 0 && reply.entries == 100);
	cr_assert(list_at_most("/tmp/t", UINT32_MAX, 99) == -E2BIG);
	cr_assert_str_eq(reply.stage, "limit");
	cr_assert(list_at_most("/tmp/t", 1, 10) == 0 && reply.entries == 10);
	cr_assert(list_at_most("/tmp/t", 1, 9) == -E2BIG);
}

Test(init_file_list, many_come_in_few_records)
{
	python("import os\n"
	       "os.mkdir('/tmp/t')\n"
	       "for i in range(1500): open('/tmp/t/%06d' % i, 'w')\n");
	cr_assert(list("/tmp/t", 1) == 0 && reply.entries == 1500);
	cr_assert(reply.records < 20, "%zu", reply.records);
	for (unsigned int i = 0; i < 1500; i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "%06u\n", i);
		cr_assert(strncmp(reply.paths + i * 7, name, 7) == 0, "sorted, the %u-th", i);
	}
}

Test(init_file_list, path_has_so_many_bytes_and_one_more)
{
	/* "/tmp/" and 15 names of 255 with their slashes are 3844 bytes. */
	python("import os\n"
	       "os.chdir('/tmp')\n"
	       "for i in range(15):\n"
	       "  os.mkdir('d' * 255); os.chdir('d' * 255)\n"
	       "open('f' * (4095 - 5 - 15 * 256), 'w')\n");
	cr_assert(list("/tmp", UINT32_MAX) == 0, "%s", strerror(-reply.status));
	cr_assert(reply.entries == 16);
	python("import os\n"
	       "os.chdir('/tmp')\n"
	       "for i in range(15): os.chdir('d' * 255)\n"
	       "open('g' * (4096 - 5 - 15 * 256), 'w')\n");
	cr_assert(list("/tmp", UINT32_MAX) == -E2BIG);
	cr_assert_str_eq(reply.stage, "path");
}

/* ---- remove ---- */

static int remove_it(const char *path, bool recursive)
{
	return channel_do(&harness,
			  &(struct file_ask){.kind = SP_INIT_FILE_REMOVE,
					     .path = path,
					     .flags = recursive ? SP_INIT_FILE_F_RECURSIVE : 0},
			  &reply);
}

Test(init_file_remove, one)
{
	shell("cd /tmp; touch f; mkdir d; mkfifo p; ln -s d l");
	cr_assert(remove_it("/tmp/f", false) == 0);
	cr_assert(remove_it("/tmp/p", false) == 0);
	cr_assert(remove_it("/tmp/l", false) == 0);
	cr_assert(remove_it("/tmp/d", false) == -EISDIR);
	cr_assert(remove_it("/tmp/f", false) == -ENOENT);
	cr_assert(remove_it("/tmp/f", true) == -ENOENT);
	cr_assert(remove_it("/usr/bin/env", false) == -EROFS || reply.status == -EACCES);
	cr_assert_str_eq(said("ls -A /tmp"), "d\n");
}

Test(init_file_remove, whole_tree_and_nothing_beside)
{
	shell("cd /tmp; mkdir -p t/a/b t/c keep; touch t/f t/a/g t/a/b/h keep/k; ln -s /tmp/keep "
	      "t/l;"
	      "ln -s t link");
	cr_assert(remove_it("/tmp/link", true) == 0, "the link itself");
	shell("test -d /tmp/t/a/b");
	cr_assert(remove_it("/tmp/t", true) == 0);
	cr_assert_str_eq(said("cd /tmp; find . | sort"), ".\n./keep\n./keep/k\n");
}

Test(init_file_remove, closed_directories)
{
	shell("cd /tmp; mkdir -p t/a/b t/c/d; touch t/a/b/f t/c/f t/c/d/f;"
	      "chmod 0 t/a/b t/a; chmod 500 t/c/d t/c; chmod 0 t");
	cr_assert(remove_it("/tmp/t", true) == 0, "%s", strerror(-reply.status));
	cr_assert_str_eq(said("ls -A /tmp"), "");
}

Test(init_file_remove, what_belongs_to_another_stays)
{
	shell("mkdir /tmp/t; touch /tmp/t/f");
	cr_assert(channel_do(&harness,
			     &(struct file_ask){.kind = SP_INIT_FILE_REMOVE,
						.path = "/tmp/t",
						.flags = SP_INIT_FILE_F_RECURSIVE,
						.uid = 2000},
			     &reply) < 0);
	shell("test -f /tmp/t/f");
}

Test(init_file_remove, deeper_than_any_path)
{
	python("import os\n"
	       "os.chdir('/tmp')\n"
	       "os.mkdir('t'); os.chdir('t')\n"
	       "for i in range(1800): os.mkdir('level'); os.chdir('level')\n"
	       "open('f', 'w')\n");
	cr_assert(remove_it("/tmp/t", true) == 0, "%s", strerror(-reply.status));
	cr_assert_str_eq(said("ls -A /tmp"), "");
}

Test(init_file_remove, many_in_one_directory)
{
	python("import os\n"
	       "os.mkdir('/tmp/t')\n"
	       "for i in range(1900): open('/tmp/t/%d' % i, 'w')\n");
	cr_assert(remove_it("/tmp/t", true) == 0);
	cr_assert_str_eq(said("ls -A /tmp"), "");
}

Test(init_file_remove, mounts_are_not_emptied)
{
	static char source[] = "/tmp/sandpool-mount-XXXXXX";
	char file[64];
	int mount_fd;

	shell("touch /workspace/f");
	cr_assert(remove_it("/workspace", true) == -EROFS, "its place is on the skeleton");
	cr_assert(remove_it("/", true) == -EBUSY);
	cr_assert(remove_it("/tmp/..", true) == -EBUSY);
	shell("test -f /workspace/f");

	cr_assert_not_null(mkdtemp(source));
	cr_assert(chmod(source, 0777) == 0);
	(void)snprintf(file, sizeof(file), "%s/precious", source);
	cr_assert(mkdir(file, 0777) == 0 && chmod(file, 0777) == 0);
	mount_fd = harness_clone(source, false);
	cr_assert(harness_mount(&harness, mount_fd, "/workspace/t/below", NULL) == 0);
	(void)close(mount_fd);
	shell("touch /workspace/g");
	cr_assert(remove_it("/workspace/t", true) < 0);
	cr_assert(access(file, F_OK) == 0, "what is mounted below is somebody else's");
	(void)rmdir(file);
	(void)rmdir(source);
}

/* ---- move ---- */

static int move(const char *from, const char *to, bool replace)
{
	return channel_do(&harness,
			  &(struct file_ask){.kind = SP_INIT_FILE_MOVE,
					     .path = from,
					     .to = to,
					     .flags = replace ? SP_INIT_FILE_F_REPLACE : 0},
			  &reply);
}

Test(init_file_move, within_a_mount)
{
	shell("cd /tmp; echo f > f; echo g > g; mkdir -p d/e; ln -s nowhere l");
	cr_assert(move("/tmp/f", "/tmp/new/dir/f", false) == 0);
	cr_assert_str_eq(said("cat /tmp/new/dir/f; stat -c '%a %u' /tmp/new"), "f\n755 1000\n");
	cr_assert(move("/tmp/g", "/tmp/new/dir/f", false) == -EEXIST);
	cr_assert_str_eq(said("cat /tmp/g /tmp/new/dir/f"), "g\nf\n");
	cr_assert(move("/tmp/g", "/tmp/new/dir/f", true) == 0);
	cr_assert_str_eq(said("cat /tmp/new/dir/f; test -e /tmp/g || echo gone"), "g\ngone\n");
	cr_assert(move("/tmp/d", "/tmp/new/d", false) == 0);
	cr_assert(move("/tmp/l", "/tmp/new/l", false) == 0, "the link, not what it leads to");
	cr_assert_str_eq(said("readlink /tmp/new/l; ls /tmp/new/d"), "nowhere\ne\n");
}

Test(init_file_move, errors)
{
	shell("cd /tmp; mkdir d; touch f d/g");
	cr_assert(move("/tmp/missing", "/tmp/new/x", false) == -ENOENT);
	shell("test ! -e /tmp/new");
	cr_assert(move("/tmp/f", "/tmp/d", true) == -EISDIR);
	cr_assert(move("/tmp/d", "/tmp/f", true) == -ENOTDIR);
	cr_assert(move("/tmp/d", "/tmp/d/below", false) == -EINVAL);
	cr_assert(move("/tmp/f", "/usr/f", false) == -EROFS || reply.status == -EXDEV);
	shell("test -f /tmp/f && test -d /tmp/d");
}

Test(init_file_move, across_mounts)
{
	shell("cd /tmp; mkdir -m 750 t; mkdir -m 500 t/ro; chmod 700 t/ro; echo in > t/ro/f;"
	      "chmod 640 t/ro/f; chmod 500 t/ro; ln -s /x t/l; touch -d @1000000000 t/g;"
	      "echo file > f; chmod 604 f; ln -s y l; echo there > /workspace/there");
	cr_assert(move("/tmp/f", "/workspace/there", false) == -EEXIST);
	cr_assert(move("/tmp/f", "/workspace/there", true) == 0, "%s in '%s'",
		  strerror(-reply.status), reply.stage);
	cr_assert_str_eq(said("cat /workspace/there; stat -c '%a %u' /workspace/there"),
			 "file\n604 1000\n");
	cr_assert(move("/tmp/l", "/workspace/l", false) == 0);
	cr_assert_str_eq(said("readlink /workspace/l"), "y\n");
	cr_assert(move("/tmp/t", "/workspace/a/t", false) == 0, "%s in '%s'",
		  strerror(-reply.status), reply.stage);
	cr_assert_str_eq(said("cd /workspace/a/t; stat -c '%n %a' . ro ro/f; cat ro/f; readlink l;"
			      "stat -c %Y g; ls -A /tmp"),
			 ". 750\nro 500\nro/f 640\nin\n/x\n1000000000\n");
	cr_assert_str_eq(said("find / -name '.sandpool*' 2>/dev/null"), "");
}

static void many_inodes(struct sp_boot *boot)
{
	boot->pool.tmp_inodes = 6 * SP_INIT_PATH_MAX;
}

/* As deep as a path can name, and one level more. */
Test(init_file_move_limit, across_mounts_however_deep, .fini = tear_down)
{
	struct harness_options options = {.edit = many_inodes};
	static const char make[] = "import os\n"
				   "os.chdir('/tmp'); os.mkdir('t'); os.chdir('t')\n"
				   "for i in range(%d): os.mkdir('d'); os.chdir('d')\n";
	char script[256];

	if (init_harness_missing())
		cr_skip("%s", init_harness_missing());
	harness_ready(&harness, &options);
	(void)snprintf(script, sizeof(script), make, SP_INIT_PATH_MAX / 2);
	python(script);
	cr_assert(move("/tmp/t", "/workspace/t", false) == 0, "%s in '%s'", strerror(-reply.status),
		  reply.stage);
	cr_assert(remove_it("/workspace/t", true) == 0);
	(void)snprintf(script, sizeof(script), make, SP_INIT_PATH_MAX / 2 + 1);
	python(script);
	cr_assert(move("/tmp/t", "/workspace/t", false) == -E2BIG, "%s in '%s'",
		  strerror(-reply.status), reply.stage);
	cr_assert(remove_it("/tmp/t", true) == 0);
	cr_assert_str_eq(said("ls -A /tmp /workspace"), "/tmp:\n\n/workspace:\nmade\n");
}

Test(init_file_move, across_mounts_is_all_or_nothing)
{
	shell("cd /tmp; mkdir t; echo f > t/f; mkfifo t/p; mkdir /workspace/t; touch "
	      "/workspace/t/f");
	cr_assert(move("/tmp/t", "/workspace/u", false) == -EXDEV, "a FIFO is not copied");
	cr_assert_str_eq(said("ls -A /workspace /tmp/t"),
			 "/tmp/t:\nf\np\n\n/workspace:\nmade\nt\n");
	shell("rm /tmp/t/p");
	cr_assert(move("/tmp/t", "/workspace/t", false) == -EEXIST);
	cr_assert(move("/tmp/t", "/workspace/t", true) == -ENOTEMPTY);
	cr_assert_str_eq(said("ls -A /workspace /tmp/t"), "/tmp/t:\nf\n\n/workspace:\nmade\nt\n");
	cr_assert(move("/workspace", "/tmp/w", false) == -EBUSY, "a mount point stays");
	shell("test -d /workspace/t && test ! -e /tmp/w");
}
