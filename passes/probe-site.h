/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Private to the pass `probe`: finds the places of a body at which programs run. */

#include "probe.h"
#include "probe-names.h"

/* A use at a place. Those with the same statement and point are one place. */
struct probe_site {
	uint32_t statement; /* before it; body->statement_count: before the closing brace */
	uint32_t use; /* index in the function's */
	uint8_t point; /* enum point_kind */
	bool stub; /* the statement is a call that goes */
	/*
	 * Between a call and the ld.param of its result: nothing may be called there. ptxas 13
	 * leaves the result in the registers in which the next call gets its arguments.
	 */
	bool fragile;
};

struct probe_sites {
	struct probe_site *sites; /* by statement, then as they run, then by use */
	uint32_t count, capacity;
};

/* The module's .file lines, by number. */
struct probe_files {
	struct probe_file {
		uint64_t number;
		struct ptx_range path; /* without quotes */
	} *files;
	uint32_t count;
};

/* 0 or -ENOMEM. */
int probe_files_init(struct probe_files *files, const struct ptx_module *module);
void probe_files_deinit(struct probe_files *files);

/* What a .loc names; false (and line 0) if the file has no name. */
bool probe_files_find(const struct probe_files *files, const struct ptx_body *body,
		      const struct ptx_statement *loc, struct ptx_range *path, uint32_t *line);

/* Finds the sites of a function's uses. 0 or -ENOMEM. */
int probe_sites_init(struct probe_sites *sites, const struct probe_names *names,
		     const struct probe_files *files, const struct probe_options *options,
		     const struct probe_function *function);
void probe_sites_deinit(struct probe_sites *sites);

/* The first statement that is no declaration; body->statement_count: there is none. */
uint32_t probe_site_first(const struct ptx_body *body);

/*
 * Where a site's text goes: before pragmas that speak of its instruction, and not between those
 * that pass arguments and their call, or that set a result and the return (which PTX wants to stand
 * together).
 */
uint32_t probe_site_offset(const struct probe_names *names, const struct probe_site *site);

/* Is a function's name, mangled or not, what the user calls it? _ZN2ns1fEv is ns::f. */
bool probe_name_is(const char *name, size_t length, const char *wanted);
