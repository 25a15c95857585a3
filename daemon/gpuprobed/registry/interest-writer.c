/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Writes the interest page (interest-writer.h).
 *
 * Readers map the file, so it is never replaced while the daemon lives: a sequence lock makes
 * changes atomic. The next daemon goes on with the same file, if it is one that it can trust to be
 * a page: of zeros, or of a daemon of its version, whether that was stopped or killed. Else it puts
 * a new file in its place, and closes the old page after that, so that processes which map it look
 * again.
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

#include "daemon/gpuprobed/base/log.h"
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

/* What lies at the path when a daemon starts. */
struct interest_old {
	struct interest_page *page; /* to be written to; NULL: that is not possible */
	const char *fault; /* why it is not gone on with; NULL: it is, or there is no file */
};

static bool interest_is_empty(const struct interest_page *page) {
	static const char zeros[INTEREST_PAGE_SIZE];

	return memcmp(page, zeros, INTEREST_PAGE_SIZE) == 0;
}

/* What is wrong with a file that is mapped, as far as its content says; NULL: nothing. */
static const char *interest_page_fault(const struct interest_page *page) {
	if (interest_is_empty(page))
		return NULL;
	if (page->magic != INTEREST_MAGIC)
		return "not a page of a daemon";
	return page->version == INTEREST_VERSION ? NULL : "a page of another version";
}

static const char *interest_file_fault(const struct stat *status) {
	if (!S_ISREG(status->st_mode))
		return "not a file";
	if (status->st_uid != geteuid())
		return "another user's file";
	if (status->st_nlink != 1)
		return "a file with more than one name";
	return status->st_size == INTEREST_PAGE_SIZE ? NULL : "a file of another size";
}

/* A page that is not gone on with is mapped, too, where it can be closed. */
static struct interest_old interest_open_old(const char *path) {
	struct interest_old old = { 0 };
	_cleanup_fd int fd = -1;
	struct stat status;

	fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &status) < 0) {
		if (errno != ENOENT)
			old.fault = "no file that can be written to";
		return old;
	}
	old.fault = interest_file_fault(&status);
	if (old.fault)
		return old;
	if (fchmod(fd, 0644) < 0 || posix_fallocate(fd, 0, INTEREST_PAGE_SIZE))
		old.fault = "a file that cannot be made readable, or has no room";
	old.page = mmap(NULL, INTEREST_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (old.page == MAP_FAILED)
		return (struct interest_old){ .fault = "a file that cannot be mapped" };
	if (!old.fault)
		old.fault = interest_page_fault(old.page);
	return old;
}

/* Tells the readers of a page that is not gone on with, once the new one is in its place: they look
 * for that at once. */
static void interest_close_old(struct interest_page *page) {
	if (page->generation & 1)
		page->generation++; /* it died while it wrote */
	interest_begin(page);
	__atomic_or_fetch(&page->flags, INTEREST_FLAG_CLOSED | INTEREST_FLAG_REPLACED,
			  __ATOMIC_RELAXED);
	interest_end(page);
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
 * Where a daemon's generations begin: above those of all pages before, as changes are rarer than
 * microseconds. Who has acted on a generation of an older daemon must not take one of this for the
 * same. Even.
 */
static uint64_t interest_first_generation(uint64_t before) {
	const uint64_t now = (uint64_t)clock_us(CLOCK_BOOTTIME) * 2, next = (before | 1) + 1;

	return now > next ? now : next;
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

/* Begins with a page, whatever was on it. Its readers see all of it, or what was there before. */
static void interest_start(struct interest_page *page, const struct interest_options *options) {
	const uint64_t generation = interest_first_generation(page->generation),
		       trace_generation = interest_first_generation(page->trace_generation);

	__atomic_store_n(&page->generation, generation - 1, __ATOMIC_RELAXED);
	__atomic_store_n(&page->trace_generation, trace_generation - 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	page->daemon = generation;
	page->version = INTEREST_VERSION;
	interest_fill(page, options);
	interest_put(page, options->rules, options->n_rules);
	page->trace_rule_count = 0;
	memset(page->trace_rules, 0, sizeof(page->trace_rules));
	__atomic_store_n(&page->magic, INTEREST_MAGIC, __ATOMIC_RELEASE);
	__atomic_store_n(&page->trace_generation, trace_generation, __ATOMIC_RELEASE);
	__atomic_store_n(&page->generation, generation, __ATOMIC_RELEASE);
}

/* A page in a new file, which takes the path. 0 or -errno. */
static int interest_make(struct interest_page **pagep, const char *path,
			 const struct interest_options *options) {
	struct interest_page *page = NULL;
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
	if (r == 0) {
		interest_start(page, options);
		if (rename(new_path, path) == 0) {
			*pagep = page;
			return 0;
		}
		r = -errno;
		munmap(page, INTEREST_PAGE_SIZE);
	}
	unlink(new_path);
	return r;
}

/* Says what was found when it is not what a daemon leaves that ends in good order. */
static void interest_log_old(const char *path, const struct interest_old *old) {
	if (old->fault)
		log_warning("%s: %s: a new one takes its place%s", path, old->fault,
			    old->page ? ""
				      : "; a process that has it mapped sees that when it next "
					"loads a module");
	else if (old->page && (old->page->generation & 1))
		log_notice("%s: the daemon before ended while it wrote: written anew", path);
}

int interest_writer_new(struct interest_writer **writerp, const char *path,
			const struct interest_options *options) {
	struct interest_writer *writer = calloc(1, sizeof(*writer));
	struct interest_old old;
	int r = 0;

	if (!writer)
		return -ENOMEM;
	old = interest_open_old(path);
	interest_log_old(path, &old);
	if (old.page && !old.fault) {
		interest_start(old.page, options);
		writer->page = old.page;
	} else {
		r = interest_make(&writer->page, path, options);
		if (old.page && r == 0)
			interest_close_old(old.page);
		else if (old.page)
			munmap(old.page, INTEREST_PAGE_SIZE);
	}
	if (r < 0) {
		free(writer);
		return r;
	}
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
