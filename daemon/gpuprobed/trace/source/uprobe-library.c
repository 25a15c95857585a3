/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Decides which files get uprobes in a trace (uprobe-private.h).
 *
 * Which files are probed. At the beginning: what traced processes have mapped, what their
 * environment and this host's loader would give them. Later: what a process maps, as the kernel
 * tells (libcuda-watch.h), by the next drain: calls before that are not seen, if it is the first
 * one with that file. Without that right all processes are looked at every second. All processes
 * are looked at in slices of some milliseconds; attaching to one file takes some ten.
 *
 * A probe is in the file for all processes: those with the shim pay for it, too. So a file that
 * only such processes use has none: it is dormant until another process, which has not told in a
 * while that it has the shim, maps it.
 *
 * Containers of one image have one file below their overlays (libcuda_is_file()). A file that only
 * processes brought, as a container's, is let go of a while after the last of them, or as soon as
 * there is none and its place is needed: its descriptor holds the container's file system. Nobody
 * tells of children that a process had before it ended: so all processes are looked at before that.
 * Those of the host stay.
 */

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bpf/bpf.h>

#include "lib/clock.h"
#include "lib/function.h"
#include "libcuda-watch.h"
#include "uprobe-private.h"

#define SLICE UINT64_C(2000000) /* nanoseconds of a drain */
#define FIRST_SLICE UINT64_C(50000000)
#define SCAN_PERIOD UINT64_C(1000000000)
#define SHIM_DELAY UINT64_C(200000000) /* a process with the shim has said so by then */
#define USERS_PERIOD UINT64_C(1000000000)
#define USERS_PERIOD_FULL UINT64_C(100000000) /* when there is no place */
#define UNUSED_LINGER \
	UINT64_C(10000000000) /* the next process that has it is seen from its first call on */
#define RETRY UINT64_C(30000000000) /* of a library that could not be attached */

/* ---- one library ---- */

static bool gives_names(const char *name) {
	return !strcmp(name, "cuModuleGetFunction") || !strcmp(name, "cuLibraryGetKernel") ||
	       !strcmp(name, "cuKernelGetFunction");
}

/* Makes of a row one that is counted, if no record is needed for that. */
static void make_row_count(struct uprobe_row *row, const struct function *function) {
	struct function_size_words words;

	if (function && function_describes_size(function))
		return;
	row->flags = UPROBE_ROW_COUNTED;
	row->n_extras = 0;
	row->size_word = row->rows_word = UPROBE_NO_WORD;
	if (!function || !function_size_words(function, &words))
		return;
	row->size_word = words.size->word;
	row->size_bytes = (uint8_t)words.size->type->size;
	row->size_unit = function->size_unit;
	if (words.rows) {
		row->rows_word = words.rows->word;
		row->rows_bytes = (uint8_t)words.rows->type->size;
	}
}

bool uprobe_make_row(struct trace_uprobe *uprobe, const char *name, const struct function *function,
		     const struct function *like, struct uprobe_row *row) {
	uint16_t bit = like ? like->number : TRACE_FUNCTION_DYNAMIC;
	bool pointers = uprobe_gives_pointers(name),
	     wanted = uprobe->functions[bit / 64] >> bit % 64 & 1;
	bool names = pointers || (gives_names(name) && !uprobe->aggregate);

	if (!wanted && !names)
		return false;
	*row = (struct uprobe_row){
		.function =
			function ? function->number : trace_session_function(uprobe->session, name),
		.flags = (uint8_t)((names ? UPROBE_ROW_NAMES : 0) |
				   (wanted ? 0 : UPROBE_ROW_UNWANTED)),
		.n_words = UPROBE_REGISTERS,
	};
	if (uprobe->aggregate && !pointers)
		make_row_count(row, function);
	if (!function)
		return row->function != 0;
	row->n_words = (uint8_t)(function->words - function->floats);
	if (function->floats)
		row->flags |= UPROBE_ROW_CUT;
	for (size_t i = 0; i < function->n_extras && row->n_extras < UPROBE_EXTRAS_MAX &&
			   (uprobe->extras || names) && !(row->flags & UPROBE_ROW_COUNTED);
	     i++)
		row->extras[row->n_extras++] = (struct uprobe_extra){
			.argument = function->extras[i].argument,
			.word = function->extras[i].word,
			.when = function->extras[i].when,
			.size = function->extras[i].size,
		};
	return true;
}

/* Probes what is wanted of a library's functions. */
static void attach_library(struct trace_uprobe *uprobe, struct uprobe_library *library) {
	const struct libcuda *file = library->file;
	uint64_t *offsets = calloc(2 * file->n, sizeof(*offsets)), *cookies = offsets + file->n;
	pid_t pid = uprobe_only_process(uprobe);
	size_t n = 0, refused = 0;
	int r = offsets ? 0 : -ENOMEM;

	for (size_t i = 0; !r && i < file->n; i++) {
		const struct function *function = function_by_name(file->functions[i].name);
		struct uprobe_row row;
		uint32_t key;

		if (!uprobe_make_row(uprobe, file->functions[i].name, function, function, &row))
			continue;
		key = row.function;
		if (bpf_map_update_elem(uprobe->engine.rows, &key, &row, BPF_ANY) < 0)
			continue;
		offsets[n] = file->functions[i].offset;
		cookies[n++] = UPROBE_COOKIE(library->id, key);
	}
	if (!r && n)
		r = uprobe_link_new(&library->link, uprobe->engine.rung, &uprobe->engine.programs,
				    file->fd, offsets, cookies, n, pid, &refused);
	if (r) {
		if (!library->broken)
			trace_session_missing(uprobe->session,
					      "bpf: %s: its calls are not seen: %s", file->path,
					      strerror(-r));
		library->retry = monotonic_now() + RETRY;
	}
	if (refused && !library->told)
		trace_session_missing(uprobe->session,
				      "bpf: %s: the kernel refused to probe %zu of %zu functions",
				      file->path, refused, n);
	library->broken = r;
	library->told = library->told || !r;
	free(offsets);
}

static void name_library(struct trace_uprobe *uprobe, const struct uprobe_library *library) {
	const char *path = library->file->path;
	const char *version = strstr(path, "libcuda.so.");
	char text[1024];
	int n;

	version = version && strchr(version + strlen("libcuda.so."), '.')
			  ? version + strlen("libcuda.so.")
			  : NULL;
	n = version ? snprintf(text, sizeof(text), "%s (%s)", path, version)
		    : snprintf(text, sizeof(text), "%s", path);
	trace_session_name(uprobe->session, TRACE_SOURCE_BPF, TRACE_NAME_LIBRARY, 0, library->id,
			   text, n > 0 ? strlen(text) : 0);
}

static void forget_gone_users(struct uprobe_library *library) {
	size_t n = 0;

	for (size_t i = 0; i < library->n_users; i++)
		if (!uprobe_is_gone(library->users[i]))
			library->users[n++] = library->users[i];
	library->n_users = n;
}

/* pid 0: nobody's. */
static void add_user(struct uprobe_library *library, pid_t pid) {
	library->unused = 0;
	for (size_t i = 0; i < library->n_users; i++)
		if (library->users[i] == pid)
			return;
	if (pid && library->n_users == UPROBE_USERS_MAX)
		forget_gone_users(library);
	if (!pid)
		library->kept = true;
	else if (library->n_users < UPROBE_USERS_MAX) /* others are found when these are gone */
		library->users[library->n_users++] = pid;
}

/* Whether nobody without the shim uses the library, as far as one knows. */
static bool is_only_for_shims(struct trace_uprobe *uprobe, struct uprobe_library *library) {
	if (library->n_users == UPROBE_USERS_MAX)
		return false;
	forget_gone_users(library);
	for (size_t i = 0; i < library->n_users; i++)
		if (!trace_session_has_shim(uprobe->session, library->users[i]))
			return false;
	return true;
}

static void release_library(struct trace_uprobe *uprobe, struct uprobe_library *library) {
	const struct uprobe_library *last = &uprobe->libraries[--uprobe->n_libraries];

	if (uprobe->tuning.detach_now)
		uprobe_link_free_now(library->link);
	else
		uprobe_link_free(library->link);
	uprobe_follow_detach(library);
	libcuda_free(library->file);
	if (library != last)
		*library = *last;
	uprobe->code.pid = 0; /* it knows libraries by their places */
}

/* Whether all processes were looked at since the library had a user that is known; if not, they
 * will be. */
static bool is_unused(struct trace_uprobe *uprobe, const struct uprobe_library *library) {
	if (!library->unused)
		return false;
	if (uprobe->closed || library->unused < uprobe->last_scan)
		return true;
	uprobe->scan_again = true;
	return false;
}

/* Lets go of those that nobody has used for a while; tries one of those again that could not be
 * attached. */
static void look_at_users(struct trace_uprobe *uprobe, uint64_t now) {
	bool tried = false;

	uprobe->looked = now;
	if (uprobe->code.pid && uprobe_is_gone(uprobe->code.pid))
		uprobe->code.pid = 0;
	for (size_t i = uprobe->n_libraries; i-- > 0;) {
		struct uprobe_library *library = &uprobe->libraries[i];

		forget_gone_users(library);
		uprobe_follow_forget_gone(library);
		if (library->kept || library->n_users) {
			if (library->broken && now >= library->retry && !tried) {
				tried = true;
				attach_library(uprobe, library);
			}
			continue;
		}
		library->unused = library->unused ? library->unused : now;
		if ((now - library->unused >= UNUSED_LINGER || uprobe->tuning.no_linger) &&
		    is_unused(uprobe, library))
			release_library(uprobe, library);
		else if (uprobe->n_libraries > UPROBE_LIBRARIES_MAX / 2)
			is_unused(uprobe, library); /* its place may be needed soon */
	}
}

/* A place for a library. NULL: all have users, as far as one knows now. */
static struct uprobe_library *take_place(struct trace_uprobe *uprobe) {
	struct uprobe_library *oldest = NULL;
	uint64_t now = monotonic_now();

	if (uprobe->n_libraries == UPROBE_LIBRARIES_MAX &&
	    now - uprobe->looked >= USERS_PERIOD_FULL)
		look_at_users(uprobe, now);
	for (size_t i = 0; i < uprobe->n_libraries && uprobe->n_libraries == UPROBE_LIBRARIES_MAX;
	     i++)
		if (is_unused(uprobe, &uprobe->libraries[i]) &&
		    (!oldest || uprobe->libraries[i].unused < oldest->unused))
			oldest = &uprobe->libraries[i];
	if (oldest)
		release_library(uprobe, oldest);
	return uprobe->n_libraries < UPROBE_LIBRARIES_MAX ? &uprobe->libraries[uprobe->n_libraries]
							  : NULL;
}

static bool all_have_users(const struct trace_uprobe *uprobe) {
	for (size_t i = 0; i < uprobe->n_libraries; i++)
		if (uprobe->libraries[i].unused)
			return false;
	return true;
}

/* The text that the kernel has for a file: what a symbolic link led to. */
static const char *real_path(int fd, const char *path, char buffer[static 1024]) {
	char link[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, buffer, 1023);
	if (n <= 0)
		return path;
	buffer[n] = '\0';
	return buffer[0] == '/' && libcuda_path_matches(buffer, (size_t)n) ? buffer : path;
}

/* A library of a process that runs was attached: it may have made calls by now. */
static void note_late(struct trace_uprobe *uprobe, const struct uprobe_library *library) {
	if (uprobe->started && uprobe->finding && library->link)
		uprobe_late_add(uprobe, uprobe->finding, library->file->inode, library->file->path,
				false);
}

/* libcuda_found_fn: a file, which may be known. */
static void found_library(void *userdata, int fd, const char *path) {
	struct trace_uprobe *uprobe = userdata;
	struct uprobe_library *library;
	struct libcuda *file;
	char buffer[1024];
	struct stat status;

	if (fstat(fd, &status) < 0) {
		close(fd);
		return;
	}
	for (size_t i = 0; i < uprobe->n_libraries; i++) {
		library = &uprobe->libraries[i];
		if (!libcuda_is_file(library->file, fd, &status))
			continue;
		close(fd);
		add_user(library, uprobe->finding);
		if (!library->link && !library->broken) {
			attach_library(uprobe, library);
			note_late(uprobe, library);
		}
		return;
	}
	library = take_place(uprobe);
	if (!library) {
		close(fd);
		uprobe->scan_again = true; /* until there is a place */
		if (!uprobe->full && all_have_users(uprobe)) {
			trace_session_missing(uprobe->session,
					      "bpf: processes use more than %d libcudas at once: "
					      "calls of some are not seen",
					      UPROBE_LIBRARIES_MAX);
			uprobe->full = true;
		}
		return;
	}
	path = real_path(fd, path, buffer);
	if (libcuda_new(&file, fd, path))
		return; /* a stub of somebody's, or nothing that could be called */
	uprobe->n_libraries++;
	*library = (struct uprobe_library){ .file = file, .id = ++uprobe->last_library };
	add_user(library, uprobe->finding);
	name_library(uprobe, library);
	attach_library(uprobe, library);
	note_late(uprobe, library);
}

void uprobe_libraries_shim(struct trace_uprobe *uprobe) {
	for (size_t i = 0; i < uprobe->n_libraries && uprobe->watch; i++) {
		struct uprobe_library *library = &uprobe->libraries[i];

		if (library->link && is_only_for_shims(uprobe, library)) {
			library->link = uprobe_link_free(library->link);
			uprobe_follow_detach(library);
		}
	}
}

/* ---- finding them ---- */

/* Looks at what a traced process has mapped; one that does not answer, again later. False: it is
 * gone, or has none. */
static bool look_at_process(struct trace_uprobe *uprobe, pid_t pid) {
	int r;

	if (trace_session_has_shim(uprobe->session, pid))
		return true;
	if (!trace_session_means(uprobe->session, pid))
		return !trace_session_missed(uprobe->session, pid);
	uprobe->finding = pid;
	r = libcuda_find_mapped(pid, found_library, uprobe);
	if (r > 0)
		trace_session_foresee(uprobe->session, pid);
	if (r == -ETIMEDOUT || r == -EBUSY)
		uprobe->scan_again = true;
	uprobe->finding = 0;
	return r != -ENOENT && r != -ESRCH &&
	       r != 0; /* one that ended and is waited for has nothing mapped */
}

/* Looks at all processes, for a while. */
static void scan(struct trace_uprobe *uprobe, uint64_t until) {
	const struct dirent *entry;

	if (!uprobe->scan) {
		uprobe->scan = opendir("/proc");
		uprobe->scan_began = monotonic_now();
		uprobe->scan_again = false; /* unless something comes up meanwhile */
	}
	while (uprobe->scan && monotonic_now() < until) {
		entry = readdir(uprobe->scan);
		if (!entry) {
			closedir(uprobe->scan);
			uprobe->scan = NULL;
			uprobe->scanned = monotonic_now();
			uprobe->last_scan = uprobe->scan_began;
			return;
		}
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
			look_at_process(uprobe, (pid_t)atoi(entry->d_name));
	}
}

static bool has_dormant_library(const struct trace_uprobe *uprobe) {
	for (size_t i = 0; i < uprobe->n_libraries; i++)
		if (!uprobe->libraries[i].link && !uprobe->libraries[i].broken)
			return true;
	return false;
}

/* The watch: a process has mapped a libcuda. */
static void process_mapped(void *userdata, pid_t pid, const char *path, uint64_t inode) {
	struct trace_uprobe *uprobe = userdata;
	struct uprobe_pending *pending = &uprobe->pending[uprobe->n_pending];

	for (size_t i = 0; i < uprobe->n_pending; i++)
		if (uprobe->pending[i].pid == pid)
			return;
	if (uprobe->n_pending == UPROBE_USERS_MAX) {
		uprobe->scan_again = true;
		return;
	}
	*pending = (struct uprobe_pending){ .pid = pid,
					    .due = monotonic_now() +
						   (has_dormant_library(uprobe) ? SHIM_DELAY : 0),
					    .inode = inode };
	snprintf(pending->path, sizeof(pending->path), "%s", path);
	uprobe->n_pending++;
}

static bool is_probed(const struct trace_uprobe *uprobe, uint64_t inode) {
	for (size_t i = 0; i < uprobe->n_libraries; i++)
		if (uprobe->libraries[i].file->inode == inode && uprobe->libraries[i].link)
			return true;
	return false;
}

/* Looks at those whose time has come, for a while. */
static void look_at_pending(struct trace_uprobe *uprobe, uint64_t until) {
	size_t n = 0;

	for (size_t i = 0; i < uprobe->n_pending; i++) {
		uint64_t now = monotonic_now();

		if (now < uprobe->pending[i].due || now >= until)
			uprobe->pending[n++] = uprobe->pending[i];
		else if (!look_at_process(uprobe, uprobe->pending[i].pid) &&
			 !is_probed(uprobe, uprobe->pending[i].inode))
			uprobe_late_add(uprobe, uprobe->pending[i].pid, uprobe->pending[i].inode,
					uprobe->pending[i].path, true);
	}
	uprobe->n_pending = n;
}

void uprobe_libraries_start(struct trace_uprobe *uprobe) {
	int r = libcuda_watch_new(&uprobe->watch);

	if (r)
		trace_session_missing(uprobe->session,
				      "bpf: no events of mappings (%s): a process that starts with "
				      "a libcuda of its own is found within a second only",
				      strerror(-r));
	for (size_t i = 0; i < uprobe->n_pids; i++) {
		look_at_process(uprobe, (pid_t)uprobe->pids[i]);
		r = libcuda_find_environment((pid_t)uprobe->pids[i], found_library, uprobe);
		if (r == -ETIMEDOUT || r == -EBUSY)
			trace_session_missing(uprobe->session,
					      "bpf: process %u does not let itself be looked at: a "
					      "libcuda of its own may not be found",
					      uprobe->pids[i]);
	}
	if (!uprobe->tuning.no_usual)
		libcuda_find_usual(found_library, uprobe);
	if (!uprobe->closed)
		scan(uprobe,
		     uprobe->tuning.whole_scan ? UINT64_MAX : monotonic_now() + FIRST_SLICE);
	uprobe->started = true;
}

void uprobe_libraries_continue(struct trace_uprobe *uprobe, uint64_t now) {
	if (uprobe->watch && !libcuda_watch_read(uprobe->watch, process_mapped, uprobe))
		uprobe->scan_again = true;
	look_at_pending(uprobe, now + SLICE);
	uprobe_late_tell(uprobe, now);
	now = monotonic_now(); /* what was looked at may have taken a while */
	if (now - uprobe->looked >= USERS_PERIOD || uprobe->tuning.no_linger)
		look_at_users(uprobe, now);
	uprobe_follow_attach(uprobe);
	if (uprobe->scan ||
	    (now - uprobe->scanned >= SCAN_PERIOD && (uprobe->scan_again || !uprobe->watch)))
		scan(uprobe, now + SLICE);
}

void uprobe_libraries_stop(struct trace_uprobe *uprobe) {
	while (uprobe->n_libraries)
		release_library(uprobe, &uprobe->libraries[uprobe->n_libraries - 1]);
	if (uprobe->scan)
		closedir(uprobe->scan);
	libcuda_watch_free(uprobe->watch);
}
