/*
 * Payload: `hog MEBIBYTES` touches so much memory, then says so and exits 0.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int main(int argc, char **argv)
{
	size_t size = (size_t)strtoul(argc > 1 ? argv[1] : "1024", NULL, 10) << 20;
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED) {
		perror("mmap");
		return 3;
	}
	for (size_t at = 0; at < size; at += 4096)
		memory[at] = 1;
	printf("touched %zu\n", size);
	return 0;
}
