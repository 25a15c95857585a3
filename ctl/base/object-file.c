/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads an eBPF object file for commands that send one to the daemon. It looks at the first bytes
 * only, and finds the usual mistakes: a source file, a program of the machine, a folder. The daemon
 * checks the content.
 */

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base64.h"
#include "lib/json.h"
#include "ctl.h"
#include "object-file.h"

#define HOW "compile it with: clang -O2 -g -target bpf -c "

/* Reads to the end, at most OBJECT_FILE_MAX bytes. Returns 0, negative errno, or -EFBIG. */
static int read_all(int fd, unsigned char **datap, size_t *n_datap) {
	size_t n_data = 0, n_max = 0;
	unsigned char *data = NULL, *grown;
	ssize_t n;
	int r;

	for (;;) {
		if (n_data == n_max) {
			n_max = n_max ? n_max * 2 : 64 * 1024;
			grown = realloc(data, n_max);
			if (!grown) {
				r = -ENOMEM;
				break;
			}
			data = grown;
		}
		n = read(fd, data + n_data, n_max - n_data);
		if (n == 0) {
			*datap = data;
			*n_datap = n_data;
			return 0;
		}
		r = n > 0 ? 0 : -errno;
		if (n > 0)
			n_data += n;
		if (n_data > OBJECT_FILE_MAX)
			r = -EFBIG;
		if (r && r != -EINTR)
			break;
	}
	free(data);
	return r;
}

/* Whether the bytes are an ELF object for the BPF machine. Returns the exit status. */
static int check(const char *path, const char *name, const unsigned char *data, size_t n_data) {
	const char *dot = strrchr(path, '.');
	bool is_source = dot && !strcmp(dot, ".c");
	Elf64_Ehdr header = {};

	memcpy(&header, data, n_data < sizeof(header) ? n_data : sizeof(header));
	if (n_data == 0)
		return ctl_fail(CTL_ERROR, "%s is empty, not an eBPF object", name);
	if (memcmp(header.e_ident, ELFMAG, SELFMAG))
		return ctl_fail(CTL_ERROR, "%s is not an eBPF object; " HOW "%s", name,
				is_source ? path : "prog.bpf.c");
	if (n_data < sizeof(header))
		return ctl_fail(CTL_ERROR, "%s is cut short: it has %zu bytes", name, n_data);
	if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
	    header.e_machine != EM_BPF)
		return ctl_fail(CTL_ERROR,
				"%s is an ELF file for another machine, not an eBPF object; " HOW
				"%s",
				name, is_source ? path : "prog.bpf.c");
	return CTL_OK;
}

/*
 * Reads the object at @path; "-" is standard input. Tells the user what is wrong. Returns the exit
 * status; free *@datap.
 */
int object_file_read(const char *path, unsigned char **datap, size_t *n_datap) {
	bool is_stdin = !strcmp(path, "-");
	const char *name = is_stdin ? "standard input" : path;
	unsigned char *data = NULL;
	size_t n_data = 0;
	struct stat st;
	int fd, r;

	fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return ctl_fail_open(name, errno, false);
	if (!is_stdin && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))) {
		close(fd);
		return ctl_fail(CTL_ERROR, "%s is %s, not an eBPF object", name,
				S_ISDIR(st.st_mode) ? "a directory" : "not a regular file");
	}
	r = read_all(fd, &data, &n_data);
	if (!is_stdin)
		close(fd);
	if (r == -EFBIG)
		return ctl_fail(CTL_ERROR, "%s is too large: an object has at most %zu bytes", name,
				OBJECT_FILE_MAX);
	if (r)
		return ctl_fail(CTL_ERROR, "%s: %s", name, strerror(-r));
	r = check(path, name, data, n_data);
	if (r) {
		free(data);
		return r;
	}
	*datap = data;
	*n_datap = n_data;
	return CTL_OK;
}

/* The folder of this process, in which the daemon finds relative paths of uprobes. */
static void put_folder(json_object *parameters) {
	char *folder = getcwd(NULL, 0);

	if (folder && *folder == '/')
		json_add_string(parameters, "folder", folder);
	free(folder);
}

int object_file_put(const char *path, json_object *parameters) {
	unsigned char *data;
	size_t n_data;
	char *text;
	int r;

	r = object_file_read(path, &data, &n_data);
	if (r)
		return r;
	text = malloc(base64_encoded_size(n_data));
	if (text) {
		base64_encode(text, data, n_data);
		json_add_string(parameters, "object", text);
		put_folder(parameters);
	} else {
		r = ctl_fail(CTL_ERROR, "%s: out of memory", path);
	}
	free(text);
	free(data);
	return r;
}
