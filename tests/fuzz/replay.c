/* SPDX-License-Identifier: Apache-2.0 */
/* main() for a fuzzer without libFuzzer: feeds it every file of the folders and files given, so
 * that ./check replays a corpus. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path) {
	FILE *file = fopen(path, "rb");
	struct stat status;
	uint8_t *data;

	if (!file || fstat(fileno(file), &status) != 0) {
		perror(path);
		return 1;
	}
	/* exactly as large as the input, so that ASan sees any read past it */
	data = malloc(status.st_size ? (size_t)status.st_size : 1);
	if (!data || fread(data, 1, (size_t)status.st_size, file) != (size_t)status.st_size) {
		perror(path);
		return 1;
	}
	fclose(file);
	LLVMFuzzerTestOneInput(data, (size_t)status.st_size);
	free(data);
	return 0;
}

int main(int argc, char **argv) {
	unsigned count = 0;

	for (int i = 1; i < argc; i++) {
		DIR *folder = opendir(argv[i]);
		struct dirent *entry;

		if (!folder) {
			if (replay_file(argv[i]) != 0)
				return 1;
			count++;
			continue;
		}
		while ((entry = readdir(folder))) {
			char path[4096];

			if (entry->d_name[0] == '.')
				continue;
			if (snprintf(path, sizeof(path), "%s/%s", argv[i], entry->d_name) >=
				    (int)sizeof(path) ||
			    replay_file(path) != 0)
				return 1;
			count++;
		}
		closedir(folder);
	}
	printf("%u inputs replayed\n", count);
	return count == 0; /* a corpus that is not there is an error */
}
