/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Writes the interest page (interest-writer.h).
 *
 * Readers map the file, so the page is never replaced while the daemon lives: a sequence lock makes
 * changes atomic. A page that a killed daemon left behind is marked closed before the new one takes
 * its name, so that processes which still map the old one look again.
 */

#include "interest-writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/gpuprobed/base/memfd.h"
#include "lib/base/clock.h"

struct interest_writer {
	struct interest_page *page;
};

static void interest_begin(struct interest_page *page) {
	__atomic_store_n(&page->generation, page->generation + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
}

static void interest_end(struct interest_page *page) {
	__atomic_store_n(&page->generation, page->generation + 1, __ATOMIC_RELEASE);
}

static void interest_begin_trace(struct interest_page *page) {
	__atomic_store_n(&page->trace_generation, page->trace_generation + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
}

static void interest_end_trace(struct interest_page *page) {
	__atomic_store_n(&page->trace_generation, page->trace_generation + 1, __ATOMIC_RELEASE);
}

/* The page of a daemon that did not end in good order, or NULL. */
static struct interest_page *interest_map_old(const char *path) {
	_cleanup_fd int fd = -1;
	struct interest_page *page;
	struct stat status;

	fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) ||
	    status.st_size != INTEREST_PAGE_SIZE)
		return NULL;
	page = mmap(NULL, INTEREST_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return page == MAP_FAILED ? NULL : page;
}

/* Tells its readers, once the new one is in its place: they look for that at once. */
static void interest_close_old(struct interest_page *page) {
	if (page->magic == INTEREST_MAGIC) { /* whatever its version: interest.h */
		if (page->generation & 1)
			page->generation++; /* it died while it wrote */
		interest_begin(page);
		__atomic_or_fetch(&page->flags, INTEREST_FLAG_CLOSED, __ATOMIC_RELAXED);
		interest_end(page);
	}
	if (page->magic == INTEREST_MAGIC &&
	    page->version == INTEREST_VERSION) { /* who watches for traces watches this */
		if (page->trace_generation & 1)
			page->trace_generation++;
		interest_begin_trace(page);
		interest_end_trace(page);
	}
	munmap(page, INTEREST_PAGE_SIZE);
}

/* Puts the rules on the page, equal ones once. */
static void interest_put(struct interest_page *page, const struct interest_rule *rules,
			 size_t n_rules) {
	struct interest_rule kept[INTEREST_RULES_MAX];
	uint32_t n_kept = 0, flags = 0;

	for (size_t i = 0; i < n_rules; i++) {
		bool known = false;

		for (uint32_t k = 0; k < n_kept && !known; k++)
			known = memcmp(&kept[k], &rules[i], sizeof(rules[i])) == 0;
		if (known)
			continue;
		if (n_kept == INTEREST_RULES_MAX) {
			flags |= INTEREST_FLAG_EVERYONE;
			break;
		}
		kept[n_kept++] = rules[i];
	}
	page->flags = flags;
	page->rule_count = n_kept;
	memset(page->rules, 0, sizeof(page->rules));
	memcpy(page->rules, kept, n_kept * sizeof(kept[0]));
}

/*
 * Where a page's generation begins: above those of all pages before, as changes are rarer than
 * microseconds. Who has acted on a generation of an older page must not take one of this for the
 * same.
 */
static uint64_t interest_first_generation(void) {
	return (uint64_t)clock_us(CLOCK_BOOTTIME) * 2;
}

/* What the page says of the configuration. */
static void interest_fill(struct interest_page *page, const struct interest_options *options) {
	page->deadline_ms = options->deadline_ms;
	page->sass_rule_count = (uint32_t)options->n_sass_rules;
	memset(page->sass_rules, 0, sizeof(page->sass_rules));
	if (options->n_sass_rules)
		memcpy(page->sass_rules, options->sass_rules,
		       options->n_sass_rules * sizeof(page->sass_rules[0]));
	page->exclude_rule_count = (uint32_t)options->n_exclude_rules;
	memset(page->exclude_rules, 0, sizeof(page->exclude_rules));
	if (options->n_exclude_rules)
		memcpy(page->exclude_rules, options->exclude_rules,
		       options->n_exclude_rules * sizeof(page->exclude_rules[0]));
	memset(page->sanitizer, 0, sizeof(page->sanitizer));
	if (options->sanitizer)
		strncpy(page->sanitizer, options->sanitizer, sizeof(page->sanitizer) - 1);
}

/* An empty page, whose room on the disk is there: without, the first write to it would be a SIGBUS.
 * 0 or -errno. */
static int interest_map_new(int fd, struct interest_page **pagep) {
	struct interest_page *page;
	int r;

	if (fchmod(fd, 0644) < 0)
		return -errno;
	r = posix_fallocate(fd, 0, INTEREST_PAGE_SIZE);
	if (r)
		return -r;
	page = mmap(NULL, INTEREST_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		return -errno;
	*pagep = page;
	return 0;
}

int interest_writer_new(struct interest_writer **writerp, const char *path,
			const struct interest_options *options) {
	struct interest_writer *writer;
	struct interest_page *page = NULL, *old;
	_cleanup_fd int fd = -1;
	char new_path[256];
	int r;

	if (snprintf(new_path, sizeof(new_path), "%s.new", path) >= (int)sizeof(new_path))
		return -ENAMETOOLONG;
	unlink(new_path);
	fd = open(new_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	r = interest_map_new(fd, &page);
	if (r < 0) {
		unlink(new_path);
		return r;
	}
	page->version = INTEREST_VERSION;
	page->generation = page->trace_generation = interest_first_generation();
	interest_fill(page, options);
	interest_put(page, options->rules, options->n_rules);
	__atomic_store_n(&page->magic, INTEREST_MAGIC, __ATOMIC_RELEASE);
	writer = calloc(1, sizeof(*writer));
	if (!writer) {
		munmap(page, INTEREST_PAGE_SIZE);
		unlink(new_path);
		return -ENOMEM;
	}
	writer->page = page;
	old = interest_map_old(path);
	if (rename(new_path, path) < 0) {
		r = -errno;
		if (old)
			munmap(old, INTEREST_PAGE_SIZE);
		munmap(page, INTEREST_PAGE_SIZE);
		free(writer);
		unlink(new_path);
		return r;
	}
	if (old)
		interest_close_old(old);
	*writerp = writer;
	return 0;
}

struct interest_writer *interest_writer_leave(struct interest_writer *writer) {
	if (!writer)
		return NULL;
	munmap(writer->page, INTEREST_PAGE_SIZE);
	free(writer);
	return NULL;
}

struct interest_writer *interest_writer_free(struct interest_writer *writer) {
	if (!writer)
		return NULL;
	interest_begin(writer->page);
	writer->page->flags |= INTEREST_FLAG_CLOSED;
	interest_end(writer->page);
	return interest_writer_leave(writer);
}

void interest_writer_configure(struct interest_writer *writer,
			       const struct interest_options *options) {
	interest_begin(writer->page);
	interest_begin_trace(writer->page);
	interest_fill(writer->page, options);
	interest_end_trace(writer->page);
	interest_end(writer->page);
}

void interest_writer_set(struct interest_writer *writer, const struct interest_rule *rules,
			 size_t n_rules) {
	interest_begin(writer->page);
	interest_put(writer->page, rules, n_rules);
	interest_end(writer->page);
}

void interest_writer_trace(struct interest_writer *writer, const struct interest_rule *rules,
			   size_t n_rules) {
	struct interest_page *page = writer->page;
	const size_t n = n_rules < INTEREST_TRACE_RULES_MAX ? n_rules : INTEREST_TRACE_RULES_MAX;

	interest_begin_trace(page);
	page->trace_rule_count =
		(uint32_t)(n_rules > INTEREST_TRACE_RULES_MAX ? INTEREST_TRACE_RULES_MAX + 1
							      : n_rules);
	memset(page->trace_rules, 0, sizeof(page->trace_rules));
	if (n)
		memcpy(page->trace_rules, rules, n * sizeof(rules[0]));
	interest_end_trace(page);
}
