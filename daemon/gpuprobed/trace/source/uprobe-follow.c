/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Probes functions of a driver that it does not export (uprobe-private.h).
 *
 * A driver may answer cuGetProcAddress() with functions that it does not export. They are found
 * when a process gets them: the call is recorded whatever was asked for, the address is looked for
 * among the process's mappings of libraries, and what lies at no exported function is probed, too,
 * with the next drain: calls within the some milliseconds until then are not seen. Which version of
 * a function it is, an address does not say: if there are several, its arguments are raw words.
 *
 * The address is what the process has in its memory when the call returns, which may be anything,
 * and in the midst of an instruction a probe would break programs. So the library must say, in its
 * table for unwinding, that a function begins there; and these probes are in that process alone, by
 * a link or a few of its own: nobody makes others pay. (On kernels with UPROBE_LINK_E_THREADS its
 * other threads' calls of these functions are not seen.)
 */

#include <bpf/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/clock.h"
#include "daemon/gpuprobed/trace/sink/foreign.h"
#include "lib/function.h"
#include "uprobe-private.h"

#define UPROBE_NO_LINK UINT32_MAX /* no function begins there, or it could not be attached */
#define CODE_FRESH UINT64_C(100000000) /* nanoseconds */
#define CODE_SLOW UINT64_C(5000000) /* who has so many mappings may not keep us busy with them: */
#define CODE_PAUSE 9 /* times as long as reading them took there is none */

bool uprobe_gives_pointers(const char *name) {
	return !strcmp(name, "cuGetProcAddress") || !strcmp(name, "cuGetProcAddress_v2");
}

static bool add_code(void *userdata, const struct foreign_mapping *mapping) {
	struct trace_uprobe *uprobe = userdata;
	struct uprobe_code *code = &uprobe->code;

	for (size_t i = 0; i < uprobe->n_libraries && mapping->inode; i++)
		if (uprobe->libraries[i].file->inode == mapping->inode) {
			code->ranges[code->n].start = mapping->start;
			code->ranges[code->n].end = mapping->end;
			code->ranges[code->n].offset = mapping->offset;
			code->ranges[code->n++].library = i;
			break;
		}
	return code->n < sizeof(code->ranges) / sizeof(code->ranges[0]);
}

/* Reads where a process has code of libraries that are known. */
static void read_code(struct trace_uprobe *uprobe, pid_t pid) {
	struct uprobe_code *code = &uprobe->code;
	uint64_t end;

	*code = (struct uprobe_code){ .pid = pid, .read = monotonic_now() };
	foreign_each_mapping(pid, add_code, uprobe);
	end = monotonic_now();
	code->next = end - code->read > CODE_SLOW ? end + CODE_PAUSE * (end - code->read) : 0;
}

/* The library that an address is in, and where in its file; NULL: none. */
static struct uprobe_library *find_code(struct trace_uprobe *uprobe, pid_t pid, uint64_t address,
					uint64_t *entryp) {
	const struct uprobe_code *code = &uprobe->code;

	for (int again = 0; again < 2; again++) {
		for (size_t i = 0; i < code->n && code->pid == pid; i++)
			if (address >= code->ranges[i].start && address < code->ranges[i].end) {
				*entryp = address - code->ranges[i].start + code->ranges[i].offset;
				return &uprobe->libraries[code->ranges[i].library];
			}
		if (again || monotonic_now() < code->next ||
		    (code->pid == pid && monotonic_now() - code->read < CODE_FRESH))
			break;
		read_code(uprobe, pid);
	}
	return NULL;
}

static bool is_known(const struct uprobe_library *library, pid_t pid, uint64_t entry) {
	for (size_t i = 0; i < library->file->n; i++)
		if (library->file->functions[i].entry == entry ||
		    library->file->functions[i].offset == entry)
			return true;
	for (size_t i = 0; i < library->n_found; i++)
		if (library->found[i].entry == entry && library->found[i].pid == pid)
			return true;
	return false;
}

void uprobe_follow_forget_gone(struct uprobe_library *library) {
	pid_t pid = 0; /* of the last one: neighbours are one process's */
	bool gone = false;
	size_t n = 0;

	for (size_t i = 0; i < library->n_more; i++)
		if (uprobe_is_gone(library->more[i].pid))
			uprobe_link_free(library->more[i].link);
		else
			library->more[n++] = library->more[i];
	library->n_more = n;
	n = 0;
	for (size_t i = 0; i < library->n_found; i++) {
		if (library->found[i].pid != pid)
			gone = uprobe_is_gone(library->found[i].pid);
		pid = library->found[i].pid;
		if (!gone)
			library->found[n++] = library->found[i];
	}
	library->n_found = n;
}

static bool is_full(const struct uprobe_library *library) {
	return library->n_found == UPROBE_FOUND_MAX || library->n_more == UPROBE_MORE_MAX;
}

static void tell_unfollowed(struct trace_uprobe *uprobe, const char *reason) {
	if (!uprobe->unfollowed)
		trace_session_missing(
			uprobe->session,
			"bpf: of functions that processes got by cuGetProcAddress() and that "
			"libcuda does not export, calls of some are not seen: %s",
			reason);
	uprobe->unfollowed = true;
}

/* A function of that name without version, and whether there is only that one. */
static const struct function *find_base(const char *name, bool *onlyp) {
	const struct function *found = NULL;

	*onlyp = true;
	for (size_t i = 0; i < function_count; i++) {
		if (strcmp(function_all[i]->base, name) != 0)
			continue;
		*onlyp = !found;
		found = function_all[i];
	}
	return found;
}

void uprobe_follow(struct trace_uprobe *uprobe, pid_t pid, const char *name, uint64_t address) {
	struct uprobe_library *library;
	const struct function *like;
	struct uprobe_row row;
	uint64_t entry;
	uint32_t key;
	bool only;

	library = address ? find_code(uprobe, pid, address, &entry) : NULL;
	if (!library || is_known(library, pid, entry))
		return;
	if (is_full(library))
		uprobe_follow_forget_gone(library);
	if (is_full(library)) {
		tell_unfollowed(uprobe, "there are too many");
		return;
	}
	like = find_base(name, &only);
	if (!uprobe_make_row(uprobe, name, only ? like : NULL, like, &row))
		return;
	key = row.function;
	if (bpf_map_update_elem(uprobe->engine.rows, &key, &row, BPF_ANY) == 0)
		library->found[library->n_found++] =
			(struct uprobe_found){ .entry = entry, .row = key, .pid = pid };
}

/* Links of the process that are no larger than what comes with them become one with it: each
 * function is attached to some times only, and a process has few links. */
static size_t first_to_replace(const struct uprobe_library *library, pid_t pid, uint32_t n) {
	size_t first = library->n_more;

	for (size_t i = library->n_more; i-- > 0;) {
		if (library->more[i].pid != pid)
			continue;
		if (library->more[i].n > n)
			break;
		n += library->more[i].n;
		first = i;
	}
	return first;
}

/* Whether it is a function of the new link, which replaces those of the process from one on. */
static bool is_for_link(const struct uprobe_library *library, const struct uprobe_found *found,
			pid_t pid, uint32_t first_id) {
	return found->pid == pid && (!found->link || (first_id && found->link >= first_id &&
						      found->link <= library->last_more));
}

static void replace_links(struct uprobe_library *library, size_t first,
			  const struct uprobe_more *more) {
	size_t n = first;

	for (size_t i = first; i < library->n_more; i++)
		if (library->more[i].pid == more->pid)
			uprobe_link_free(library->more[i].link);
		else
			library->more[n++] = library->more[i];
	library->more[n++] = *more;
	library->n_more = n;
}

/* Attaches to what a process has got of a library since the last time. */
static void attach_found(struct trace_uprobe *uprobe, struct uprobe_library *library, pid_t pid) {
	uint64_t *offsets = calloc(2 * library->n_found, sizeof(*offsets)),
		 *cookies = offsets + library->n_found;
	struct uprobe_more more = { .pid = pid };
	size_t n = 0, refused, first;
	uint32_t first_id;
	int r;

	if (!offsets)
		return; /* again with the next drain */
	for (size_t i = 0; i < library->n_found; i++) {
		struct uprobe_found *found = &library->found[i];

		if (found->pid != pid || found->link)
			continue;
		if (libcuda_site(library->file, found->entry, &found->offset))
			found->link = UPROBE_NO_LINK;
		else
			more.n++;
	}
	/* without links for many functions, theirs would go slowly, one by one, and there would be
	 * no fewer */
	first = uprobe->engine.rung == UPROBE_CLASSIC ? library->n_more
						      : first_to_replace(library, pid, more.n);
	first_id = first < library->n_more ? library->more[first].id : 0;
	for (size_t i = 0; i < library->n_found && more.n; i++)
		if (is_for_link(library, &library->found[i], pid, first_id)) {
			offsets[n] = library->found[i].offset;
			cookies[n++] = UPROBE_COOKIE(library->id, library->found[i].row);
		}
	r = n ? uprobe_link_new(&more.link, uprobe->engine.rung, &uprobe->engine.programs,
				library->file->fd, offsets, cookies, n, pid, &refused)
	      : 0;
	more.id = library->last_more + 1;
	more.n = (uint32_t)n;
	for (size_t i = 0; i < library->n_found && n; i++)
		if (is_for_link(library, &library->found[i], pid, r ? 0 : first_id))
			library->found[i].link = r ? UPROBE_NO_LINK : more.id;
	if (more.link) {
		library->last_more = more.id;
		replace_links(library, first, &more);
	} else if (r && r != -ESRCH) {
		tell_unfollowed(uprobe, strerror(-r));
	}
	free(offsets);
}

void uprobe_follow_attach(struct trace_uprobe *uprobe) {
	for (size_t i = 0; i < uprobe->n_libraries; i++) {
		struct uprobe_library *library = &uprobe->libraries[i];

		for (size_t k = 0;
		     k < library->n_found && library->link && library->n_more < UPROBE_MORE_MAX;
		     k++)
			if (!library->found[k].link)
				attach_found(uprobe, library, library->found[k].pid);
	}
}

void uprobe_follow_detach(struct uprobe_library *library) {
	while (library->n_more)
		uprobe_link_free(library->more[--library->n_more].link);
	for (size_t i = 0; i < library->n_found; i++)
		if (library->found[i].link != UPROBE_NO_LINK)
			library->found[i].link = 0;
}
