/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Finds names of functions at offsets in files, from their symbol tables. What a trace says about
 * files is foreign data, and any user may write the files. So a file is read only if it is a
 * regular file with the inode that the trace says (lib/elf-symbols.h). Tables are kept, within a
 * bound of memory.
 */

#include <stddef.h>
#include <stdint.h>

struct trace_symbols;

int trace_symbols_new(struct trace_symbols **symbolsp);
struct trace_symbols *trace_symbols_free(struct trace_symbols *symbols);

/*
 * The function, demangled, that the instruction before an offset is in (a return address may be the
 * first of the next one), and how far the offset is from its beginning. The path is as process pid
 * sees it: another one on this machine, or none that runs any more. NULL: there is no name; else it
 * lives until the next question.
 */
const char *trace_symbols_name(struct trace_symbols *symbols, uint32_t pid, const char *path,
			       uint64_t inode, uint64_t offset, uint64_t *distancep);
