/*
 * Stands in for sandpool-compile: the "configuration file" of these tests is the finished table, or
 * a word that says how to fail.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

static int copy(const char *path, int to)
{
	int from = open(path, O_RDONLY | O_CLOEXEC);
	struct stat info;

	if (from < 0 || fstat(from, &info) < 0)
		return EXIT_FAILURE;
	for (off_t left = info.st_size; left > 0;) {
		ssize_t copied = sendfile(to, from, NULL, (size_t)left);

		if (copied <= 0)
			return EXIT_FAILURE;
		left -= copied;
	}
	return close(from) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	char word[16] = "";
	int fd;

	if (argc != 7 || strcmp(argv[1], "--config") != 0 || strcmp(argv[3], "--table-fd") != 0 ||
	    strcmp(argv[5], "--resolved-fd") != 0)
		return EXIT_FAILURE;
	fd = open(argv[2], O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, word, sizeof(word) - 1) < 0)
		return EXIT_FAILURE;
	if (strncmp(word, "faulty", 6) == 0) {
		(void)fprintf(stderr, "line 7: unknown key 'poools'\n");
		return EXIT_FAILURE;
	}
	if (strncmp(word, "abort", 5) == 0)
		abort();
	if (strncmp(word, "empty", 5) == 0)
		return EXIT_SUCCESS;
	if (dprintf(atoi(argv[6]), "{\"resolved\":true}") < 0)
		return EXIT_FAILURE;
	return copy(argv[2], atoi(argv[4]));
}
