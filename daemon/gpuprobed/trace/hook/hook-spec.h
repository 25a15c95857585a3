/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a hook is: of the catalogue, of a file of the user, or of a spec on the command line. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/gpuprobed/trace/bpf/hook.h"

#define HOOK_ERROR_SIZE 256
#define HOOK_NAME_SIZE 32 /* of an argument */
#define HOOK_SPEC_MAX 1024 /* bytes of a spec */
#define HOOK_FILE_MAX ((size_t)1 << 20)
#define HOOK_FOLDER "/etc/gpuprobe/hooks.d"
#define HOOK_DISCOVER                                                               \
	"discover:" /* before a glob, among the patterns: counts calls of functions \
		     */

enum hook_kind {
	HOOK_FUNCTION, /* of the kernel or of a module: place is the module, "vmlinux" for the
			  kernel itself */
	HOOK_TRACEPOINT, /* place is its group */
	HOOK_SYSCALL, /* name: ioctl, open, close, mmap, of the driver's devices alone */
	HOOK_RAW, /* processes: a raw tracepoint that is always attached */
	HOOK_USER, /* place is a file */
};

struct hook_type {
	char name[8];
	uint8_t size; /* bytes; 0: void */
	uint8_t flags; /* HOOK_WORD_SIGNED, HOOK_WORD_TEXT */
};

struct hook_argument {
	char name[HOOK_NAME_SIZE];
	const struct hook_type *type; /* NULL: a tracepoint's format tells */
	/* of functions: argN, argN+OFFSET (what it points to), argN->STRUCT.MEMBER */
	uint8_t index;
	bool follow;
	uint32_t offset;
	char structure[48], member[48];
	/* of tracepoints */
	char field[HOOK_NAME_SIZE];
};

/* Place where a hook can be attached. */
struct hook_alternative {
	enum hook_kind kind;
	char *place;
	char *name;
	uint16_t from[3], to[3]; /* versions of the driver, both included; to[0] 0: no end */
	struct hook_argument arguments[HOOK_WORDS_MAX];
	size_t n_arguments;
	bool span; /* has an end: a return, or the tracepoint `until` */
	const struct hook_type *result; /* NULL: none */
	/* of tracepoints */
	char *until_place, *until_name; /* of the end, or NULL */
	char returned[HOOK_NAME_SIZE]; /* field of the end that is the result; empty: none */
	char match_field[HOOK_NAME_SIZE]; /* empty: all */
	char match[HOOK_MATCH_SIZE];
};

enum hook_process_kind {
	HOOK_PROCESS_MEANT, /* those that a trace means */
	HOOK_PROCESS_ANY,
	HOOK_PROCESS_NONE, /* it runs in whatever process it interrupted */
};

struct hook {
	char *name, *set, *purpose;
	enum hook_process_kind process;
	struct hook_alternative *alternatives;
	size_t n_alternatives;
};

struct hook_catalogue {
	struct hook **hooks;
	size_t n;
};

const struct hook_type *hook_type_find(const char *name, size_t n); /* NULL: there is none */

/* argN, argN+OFFSET, argN->STRUCT.MEMBER. False: it is none of them. */
bool hook_source_parse(struct hook_argument *argument, const char *text, size_t n);

/*
 * A spec: k:MODULE:FUNCTION(...), u:PATH:SYMBOL(...), t:GROUP:NAME(...), where ... is
 * NAME=SOURCE:TYPE or, of a tracepoint, [NAME=]FIELD[:TYPE], separated by commas; then perhaps
 * =ret:TYPE or =void, which asks for the end, too. 0; 1 and a line that says what is wrong, and at
 * which character; or -ENOMEM.
 */
int hook_spec_parse(struct hook **hookp, const char *spec, char error[HOOK_ERROR_SIZE]);

/* The text of the NAME record: "memory nvidia:nv_dma_map_alloc(pages:u64,contig:bool)=s32". types:
 * those of a tracepoint's fields, which are known once it is attached; NULL: as in the alternative.
 */
void hook_describe(char *text, size_t n_text, const struct hook *hook,
		   const struct hook_alternative *alternative,
		   const struct hook_type *const *types);

/* "nvidia:nv_dma_map_alloc" */
void hook_target(char *text, size_t n_text, const struct hook_alternative *alternative);

struct hook *hook_free(struct hook *hook);

/* Says what is wrong with a file. */
typedef void (*hook_complain_fn)(const char *line, void *userdata);

/* The catalogue that is compiled in, and the files of folder (NULL: HOOK_FOLDER), whose hooks
 * replace those of the same name. What is bad is named, and left out. */
int hook_catalogue_read(struct hook_catalogue *catalogue, const char *folder,
			hook_complain_fn complain, void *userdata);
void hook_catalogue_deinit(struct hook_catalogue *catalogue);

/* "580.159.04": parts that are missing are 0. False: it is no version. */
bool hook_version_parse(uint16_t version[static 3], const char *text);

/* Whether the alternative is for that version of the driver (0: unknown, then it is). */
bool hook_alternative_fits(const struct hook_alternative *alternative,
			   const uint16_t version[static 3]);

/* Whether a list of names, globs, sets, and such with ! before them, selects the hook; none: those
 * of the sets driver, uvm, xid. */
bool hook_selected(const struct hook *hook, const char *const *patterns, size_t n);
