/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. Files of traces, whatever they are: what is read is written as jsonl, and that reads
 * back as the same number of events, none of them malformed.
 */

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ctl/trace/read/read-file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct copy {
	FILE *file;
	struct trace_writer *writer;
};

static int take_about(void *userdata, const struct trace_about *about) {
	struct copy *copy = userdata;

	return trace_format_jsonl.open(&copy->writer, copy->file, about);
}

/* What others rely on without looking. */
static int take_item(void *userdata, const struct trace_item *item) {
	struct copy *copy = userdata;

	if (!item->name || !item->base || !item->class || !item->thread || !item->process ||
	    !item->process->exe || item->n_values > TRACE_VALUES_MAX ||
	    (item->n_frames && !item->frames) ||
	    !memchr(item->process->comm, 0, sizeof(item->process->comm)))
		abort();
	for (size_t i = 0; i < item->n_values; i++)
		if (!item->values[i].name ||
		    (item->values[i].kind == VALUE_STRING && !item->values[i].text))
			abort();
	return trace_format_jsonl.item(copy->writer, item);
}

static int count_about(void *userdata, const struct trace_about *about) {
	return 0;
}

static int count_item(void *userdata, const struct trace_item *item) {
	return 0;
}

static void read_all(const void *data, size_t size, const struct read_taker *taker,
		     struct read_result *result) {
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size || lseek(fd, 0, SEEK_SET) != 0)
		abort();
	read_file(fd, taker, result);
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	static const struct read_taker counter = { .about = count_about, .item = count_item };
	struct read_result first, second;
	struct copy copy = {};
	struct read_taker taker = { .about = take_about, .item = take_item, .userdata = &copy };
	char *text = NULL;
	size_t n_text = 0;

	copy.file = open_memstream(&text, &n_text);
	if (!copy.file)
		abort();
	read_all(data, size, &taker, &first);
	if (copy.writer && trace_format_jsonl.close(copy.writer, true) != 0)
		abort();
	fclose(copy.file);
	if (copy.writer) {
		read_all(text, n_text, &counter, &second);
		if (second.items != first.items || second.malformed || second.cut ||
		    !second.stopped)
			abort();
	}
	free(text);
	return 0;
}
