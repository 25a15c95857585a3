/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A driver may answer cuGetProcAddress() with functions that it does not export. They are found when a process gets them: the call is recorded whatever was asked for, the
 * address is looked for among the process's mappings of libraries, and what lies at no exported function is probed, too, with the next drain: calls within the some
 * milliseconds until then are not seen. Which version of a function it is, an address does not say: if there are several, its arguments are raw words.
 *
 * The address is what the process has in its memory when the call returns, which may be anything, and in the midst of an instruction a probe would break programs. So the
 * library must say, in its table for unwinding, that a function begins there; and these probes are in that process alone.
 */

#include <bpf/bpf.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "foreign.h"
#include "function.h"
#include "uprobe-private.h"

#define CODE_FRESH UINT64_C(100000000) /* nanoseconds */
#define CODE_SLOW UINT64_C(5000000) /* who has so many mappings may not keep us busy with them: */
#define CODE_PAUSE 9 /* times as long as reading them took there is none */

bool uprobe_gives_pointers(const char *name) {
	return !strcmp(name, "cuGetProcAddress") || !strcmp(name, "cuGetProcAddress_v2");
}

/* Reads where a process has code of libraries that are known. */
static void read_code(struct trace_uprobe *uprobe, pid_t pid) {
	struct uprobe_code *code = &uprobe->code;
	char *maps, *save = NULL, mode[5];
	unsigned long start, end, offset, inode;
	size_t size;

	*code = (struct uprobe_code){ .pid = pid, .read = monotonic_now() };
	maps = foreign_read(pid, "maps", FOREIGN_MAPS_MAX, &size);
	for (char *line = maps ? strtok_r(maps, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
		if (sscanf(line, "%lx-%lx %4s %lx %*x:%*x %lu", &start, &end, mode, &offset, &inode) != 5 || mode[2] != 'x' || !inode)
			continue;
		for (size_t i = 0; i < uprobe->n_libraries && code->n < sizeof(code->ranges) / sizeof(code->ranges[0]); i++) {
			if (uprobe->libraries[i].file->inode != inode)
				continue;
			code->ranges[code->n].start = start;
			code->ranges[code->n].end = end;
			code->ranges[code->n].offset = offset;
			code->ranges[code->n++].library = i;
			break;
		}
	}
	free(maps);
	end = monotonic_now();
	code->next = end - code->read > CODE_SLOW ? end + CODE_PAUSE * (end - code->read) : 0;
}

/* The library that an address is in, and where in its file; NULL: none. */
static struct uprobe_library *find_code(struct trace_uprobe *uprobe, pid_t pid, uint64_t address, uint64_t *entryp) {
	const struct uprobe_code *code = &uprobe->code;

	for (int again = 0; again < 2; again++) {
		for (size_t i = 0; i < code->n && code->pid == pid; i++)
			if (address >= code->ranges[i].start && address < code->ranges[i].end) {
				*entryp = address - code->ranges[i].start + code->ranges[i].offset;
				return &uprobe->libraries[code->ranges[i].library];
			}
		if (again || monotonic_now() < code->next || (code->pid == pid && monotonic_now() - code->read < CODE_FRESH))
			break;
		read_code(uprobe, pid);
	}
	return NULL;
}

static bool is_known(const struct uprobe_library *library, pid_t pid, uint64_t entry) {
	for (size_t i = 0; i < library->file->n; i++)
		if (library->file->functions[i].entry == entry || library->file->functions[i].offset == entry)
			return true;
	for (size_t i = 0; i < library->n_found; i++)
		if (library->found[i].entry == entry && library->found[i].pid == pid)
			return true;
	return false;
}

/* Makes room: lets go of what was found for processes that are gone. */
static void forget_gone(struct uprobe_library *library) {
	size_t n = 0;

	for (size_t i = 0; i < library->n_more; i++)
		if (kill(library->more[i].pid, 0) < 0 && errno == ESRCH)
			uprobe_link_free(library->more[i].link);
		else
			library->more[n++] = library->more[i];
	library->n_more = n;
	n = 0;
	for (size_t i = 0; i < library->n_found; i++)
		if (kill(library->found[i].pid, 0) == 0 || errno != ESRCH)
			library->found[n++] = library->found[i];
	library->n_found = n;
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
	if (library->n_found == UPROBE_FOUND_MAX || library->n_more == UPROBE_MORE_MAX)
		forget_gone(library);
	if (library->n_found == UPROBE_FOUND_MAX || library->n_more == UPROBE_MORE_MAX)
		return;
	like = find_base(name, &only);
	if (!uprobe_make_row(uprobe, name, only ? like : NULL, like, &row))
		return;
	key = row.function;
	if (bpf_map_update_elem(uprobe->engine.rows, &key, &row, BPF_ANY) == 0)
		library->found[library->n_found++] = (struct uprobe_found){ .entry = entry, .row = key, .pid = pid };
}

/* Attaches to what a process has got of a library since the last time. */
static void attach_found(struct trace_uprobe *uprobe, size_t index, pid_t pid) {
	struct uprobe_library *library = &uprobe->libraries[index];
	uint64_t *offsets = calloc(2 * library->n_found, sizeof(*offsets)), *cookies = offsets + library->n_found;
	struct uprobe_more *more = &library->more[library->n_more];
	size_t n = 0, refused;

	for (size_t i = 0; i < library->n_found; i++) {
		struct uprobe_found *found = &library->found[i];

		if (found->attached || found->pid != pid)
			continue;
		found->attached = true;
		if (offsets && libcuda_site(library->file, found->entry, &offsets[n]) == 0)
			cookies[n++] = UPROBE_COOKIE(index + 1, found->row);
	}
	if (n && uprobe_link_new(&more->link, uprobe->engine.rung, &uprobe->engine.programs, library->file->fd, offsets, cookies, n, pid, &refused) == 0) {
		more->pid = pid;
		library->n_more++;
	}
	free(offsets);
}

void uprobe_follow_attach(struct trace_uprobe *uprobe) {
	for (size_t i = 0; i < uprobe->n_libraries; i++) {
		struct uprobe_library *library = &uprobe->libraries[i];

		for (size_t k = 0; k < library->n_found && library->link && library->n_more < UPROBE_MORE_MAX; k++)
			if (!library->found[k].attached)
				attach_found(uprobe, i, library->found[k].pid);
	}
}

void uprobe_follow_detach(struct uprobe_library *library) {
	while (library->n_more)
		uprobe_link_free(library->more[--library->n_more].link);
	for (size_t i = 0; i < library->n_found; i++)
		library->found[i].attached = false;
}
