/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Keeps what a trace has told about processes, threads, kernels, functions, hooks and stacks
 * (names.h). Each fact is a list of versions, the newest first. It also finds names of frames.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "demangle.h"
#include "ctl/trace/base/map.h"
#include "names.h"
#include "symbols.h"

#define BLOCK_SIZE ((size_t)64 << 10)
#define FRAME_NAME_MAX 512
#define FRAME_MAX (FRAME_NAME_MAX + 512)

/* A fact about the same thing, the newest first. */
struct version {
	uint64_t number;
	struct version *older;
	union {
		struct trace_process_info process;
		const struct names_text *text;
		struct names_file {
			const char *path;
			uint64_t inode;
		} file;
	};
};

struct kept_text {
	struct hash_text key;
	struct names_text *text;
};

struct block {
	struct block *next;
	size_t n, n_max;
	_Alignas(16) char bytes[];
};

struct names {
	struct block *blocks; /* the first one is filled */
	size_t n_bytes;
	struct hash_table texts; /* of struct kept_text */
	struct trace_map processes, threads, named, hooks, stacks, files;
	struct trace_symbols *symbols; /* NULL: not asked yet */
	unsigned int failures; /* of demangling */
};

/* Memory until the end; NULL: there is none, or enough was taken. */
static void *keep(struct names *names, size_t size) {
	struct block *block = names->blocks;
	void *memory;

	size = (size + 15) & ~(size_t)15;
	if (!block || block->n_max - block->n < size) {
		size_t n_max = size > BLOCK_SIZE ? size : BLOCK_SIZE;

		if (names->n_bytes + n_max > NAMES_BYTES_MAX)
			return NULL;
		block = malloc(sizeof(*block) + n_max);
		if (!block)
			return NULL;
		*block = (struct block){ .next = names->blocks, .n_max = n_max };
		names->blocks = block;
		names->n_bytes += n_max;
	}
	memory = block->bytes + block->n;
	block->n += size;
	return memory;
}

static char *keep_bytes(struct names *names, const char *text, size_t n) {
	char *kept = keep(names, n + 1);

	if (kept) {
		memcpy(kept, text, n);
		kept[n] = '\0';
	}
	return kept;
}

/* The one copy of a text; NULL without room. */
static const struct names_text *keep_text(struct names *names, const char *text, size_t n_max) {
	struct hash_text key = { .bytes = text, .n = (uint32_t)strnlen(text, n_max) };
	struct kept_text *entry = hash_table_find(&names->texts, &key);
	struct names_text *kept;
	char *demangled;

	if (entry)
		return entry->text;
	kept = keep(names, sizeof(*kept));
	if (!kept)
		return NULL;
	key.bytes = kept->text = kept->demangled = keep_bytes(names, text, key.n);
	entry = key.bytes ? hash_table_add(&names->texts, &key, NULL) : NULL;
	if (!entry)
		return NULL;
	entry->text = kept;
	demangled = demangle(kept->text, &names->failures);
	if (demangled)
		kept->demangled = keep_bytes(names, demangled, strlen(demangled)) ?: kept->text;
	free(demangled);
	return kept;
}

/* A new version of what the two numbers mean; NULL without room. */
static struct version *add_version(struct names *names, struct trace_map *map, uint64_t a,
				   uint64_t b, uint64_t number) {
	struct version *version = keep(names, sizeof(*version));

	if (!version)
		return NULL;
	*version = (struct version){ .number = number, .older = trace_map_get(map, a, b) };
	return trace_map_set(map, a, b, version) ? NULL : version;
}

/* What held when record @number came; what is told later than it was needed holds, too. */
static const struct version *version_at(const struct trace_map *map, uint64_t a, uint64_t b,
					uint64_t number) {
	const struct version *version = trace_map_get(map, a, b);

	while (version && version->number > number && version->older)
		version = version->older;
	return version;
}

static void learn_process(struct names *names, const struct trace_process *process,
			  uint64_t number) {
	const struct version *before = version_at(&names->processes, process->pid, 0, number);
	const struct names_text *exe;
	struct version *version;

	if (process->what == TRACE_PROCESS_EXIT && before)
		return;
	exe = keep_text(names, process->exe, process->record.size - sizeof(*process));
	if (!exe || (before && before->process.parent == process->parent &&
		     before->process.uid == process->uid && before->process.exe == exe->text &&
		     !strncmp(before->process.comm, process->comm, sizeof(process->comm))))
		return;
	version = add_version(names, &names->processes, process->pid, 0, number);
	if (!version)
		return;
	version->process = (struct trace_process_info){ .pid = process->pid,
							.parent = process->parent,
							.uid = process->uid,
							.exe = exe->text };
	memcpy(version->process.comm, process->comm, sizeof(process->comm) - 1);
}

static void learn_text(struct names *names, struct trace_map *map, uint64_t a, uint64_t b,
		       const char *text, size_t n_max, uint64_t number) {
	const struct version *before = version_at(map, a, b, number);
	const struct names_text *kept = keep_text(names, text, n_max);
	struct version *version;

	if (!kept || (before && before->text == kept))
		return;
	version = add_version(names, map, a, b, number);
	if (version)
		version->text = kept;
}

static struct names_argument read_type(char *text) {
	static const struct {
		const char *name;
		enum names_type type;
	} types[] = { { "bool", NAMES_BOOL },
		      { "str", NAMES_TEXT },
		      { "hex", NAMES_HEX },
		      { "ptr", NAMES_POINTER } };
	unsigned long bits;

	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (!strcmp(text, types[i].name))
			return (struct names_argument){ .type = types[i].type, .size = 8 };
	bits = *text ? strtoul(text + 1, NULL, 10) : 0;
	if ((*text == 'u' || *text == 's') && (bits == 8 || bits == 16 || bits == 32 || bits == 64))
		return (struct names_argument){ .type = *text == 'u' ? NAMES_UNSIGNED
								     : NAMES_SIGNED,
						.size = (uint8_t)(bits / 8) };
	return (struct names_argument){ .type = NAMES_HEX, .size = 8 };
}

/* "SET NAME(ARGUMENT:TYPE,...)=TYPE"; parts may be missing. */
static void read_hook(struct names_hook *hook, char *text) {
	char *word, *type, *rest = strchr(text, ' '), *result;

	hook->result.type = NAMES_NONE;
	hook->set = rest ? text : "";
	hook->name = rest ? rest + 1 : text;
	if (rest)
		*rest = '\0';
	rest = strrchr(hook->name, '(');
	result = strchr(rest ?: hook->name, '=');
	if (result) {
		*result = '\0';
		hook->result = read_type(result + 1);
	}
	if (!rest)
		return;
	*rest++ = '\0';
	if (strchr(rest, ')'))
		*strchr(rest, ')') = '\0';
	while (*rest && hook->n_arguments < HOOK_ARGUMENTS_MAX && (word = strsep(&rest, ","))) {
		type = strchr(word, ':');
		if (type)
			*type++ = '\0';
		hook->arguments[hook->n_arguments] = read_type(type ?: (char *)"");
		hook->arguments[hook->n_arguments++].name = word;
		if (!rest)
			break;
	}
}

/* The key of a file's last part. */
static uint64_t hash_file(const char *name, size_t n) {
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < n; i++)
		hash = (hash ^ (unsigned char)name[i]) * UINT64_C(0x100000001b3);
	return hash;
}

/* A file that a process executes code of; stacks name it by the last part of its path. */
static void learn_file(struct names *names, const struct trace_name *name, uint64_t number) {
	const struct names_text *path =
		keep_text(names, name->name, name->record.size - sizeof(*name));
	const char *base = path ? strrchr(path->text, '/') : NULL;
	struct version *version;

	if (!base)
		return;
	version = add_version(names, &names->files, hash_file(base + 1, strlen(base + 1)),
			      name->pid, number);
	if (version)
		version->file = (struct names_file){ .path = path->text, .inode = name->id };
}

/* Whether a process has two files of that name: then one does not know which one is meant. */
static bool is_ambiguous(const struct version *version) {
	for (const struct version *older = version->older; older; older = older->older)
		if (older->file.inode != version->file.inode)
			return true;
	return false;
}

/* "file+0x12" becomes "file+0x12 (function+0x4)", if the function can be found. */
static const char *name_frame(struct names *names, const char *frame, uint32_t pid,
			      uint64_t number) {
	const char *plus = strrchr(frame, '+'), *name;
	const struct names_text *kept;
	const struct version *file;
	char text[FRAME_MAX], *end;
	uint64_t offset, distance;
	int n;

	if (!plus || strncmp(plus, "+0x", 3) != 0)
		return frame;
	offset = strtoull(plus + 1, &end, 16);
	file = *end ? NULL
		    : version_at(&names->files, hash_file(frame, (size_t)(plus - frame)), pid,
				 number);
	if (!file || is_ambiguous(file) || (!names->symbols && trace_symbols_new(&names->symbols)))
		return frame;
	name = trace_symbols_name(names->symbols, pid, file->file.path, file->file.inode, offset,
				  &distance);
	if (!name)
		return frame;
	n = snprintf(text, sizeof(text), "%s (%.*s+0x%llx)", frame, FRAME_NAME_MAX, name,
		     (unsigned long long)distance);
	kept = n > 0 && n < (int)sizeof(text) ? keep_text(names, text, (size_t)n) : NULL;
	return kept ? kept->text : frame;
}

static void learn_name(struct names *names, const struct trace_name *name, uint64_t number) {
	size_t n_max = name->record.size - sizeof(*name);
	struct names_hook *hook;
	char *text;

	if (name->kind == TRACE_NAME_KERNEL || name->kind == TRACE_NAME_FUNCTION)
		return learn_text(names, &names->named, name->id,
				  (uint64_t)name->kind << 32 | name->pid, name->name, n_max,
				  number);
	if (name->kind == TRACE_NAME_FILE)
		return learn_file(names, name, number);
	if (name->kind != TRACE_NAME_HOOK || trace_map_get(&names->hooks, name->id, 0))
		return;
	hook = keep(names, sizeof(*hook));
	text = keep_bytes(names, name->name, strnlen(name->name, n_max));
	if (!hook || !text)
		return;
	memset(hook, 0, sizeof(*hook));
	read_hook(hook, text);
	trace_map_set(&names->hooks, name->id, 0, hook);
}

static void learn_stack(struct names *names, const struct trace_stack *record) {
	const char *text = (const char *)(record->addresses + record->n),
		   *end = (const char *)record + record->record.size;
	struct names_stack *stack =
		keep(names, sizeof(*stack) + record->n * sizeof(*stack->frames));

	if (!stack || !record->id)
		return;
	stack->named = false;
	stack->n = record->n;
	for (size_t i = 0; i < stack->n; i++) {
		size_t n = strnlen(text, (size_t)(end - text));
		const struct names_text *frame = keep_text(names, text, n);

		stack->frames[i] = frame ? frame->text : "";
		text += n < (size_t)(end - text) ? n + 1 : n;
	}
	trace_map_set(&names->stacks, record->id, 0, stack);
}

void names_learn(struct names *names, const struct trace_record *record, uint64_t number) {
	const struct trace_thread *thread;

	switch (record->type) {
	case TRACE_PROCESS:
		learn_process(names, (const struct trace_process *)record, number);
		break;
	case TRACE_THREAD:
		thread = (const struct trace_thread *)record;
		learn_text(names, &names->threads, thread->pid, thread->tid, thread->comm,
			   sizeof(thread->comm), number);
		break;
	case TRACE_NAME:
		learn_name(names, (const struct trace_name *)record, number);
		break;
	case TRACE_STACK:
		learn_stack(names, (const struct trace_stack *)record);
		break;
	}
}

const struct trace_process_info *names_process(const struct names *names, uint32_t pid,
					       uint64_t number) {
	static const struct trace_process_info unknown = { .exe = "" };
	const struct version *version = version_at(&names->processes, pid, 0, number);

	return version ? &version->process : &unknown;
}

const char *names_thread(const struct names *names, uint32_t pid, uint32_t tid, uint64_t number) {
	const struct version *version = version_at(&names->threads, pid, tid, number);

	return version ? version->text->text : "";
}

const struct names_text *names_text(const struct names *names, enum trace_name_kind kind,
				    uint32_t pid, uint64_t id, uint64_t number) {
	const struct version *version =
		version_at(&names->named, id, (uint64_t)kind << 32 | pid, number);

	return version ? version->text : NULL;
}

const struct names_hook *names_hook(const struct names *names, uint32_t hook) {
	return trace_map_get(&names->hooks, hook, 0);
}

const struct names_stack *names_stack(struct names *names, uint32_t number_of_stack, uint32_t pid,
				      uint64_t number) {
	struct names_stack *stack =
		number_of_stack ? trace_map_get(&names->stacks, number_of_stack, 0) : NULL;

	for (size_t i = 0; stack && !stack->named && i < stack->n; i++)
		stack->frames[i] = name_frame(names, stack->frames[i], pid, number);
	if (stack)
		stack->named = true;
	return stack;
}

int names_new(struct names **namesp) {
	*namesp = calloc(1, sizeof(**namesp));
	if (!*namesp)
		return -ENOMEM;
	(*namesp)->texts.entry_size = sizeof(struct kept_text);
	return 0;
}

struct names *names_free(struct names *names) {
	struct trace_map *maps[] = { &names->processes, &names->threads, &names->named,
				     &names->hooks,     &names->stacks,  &names->files };

	if (!names)
		return NULL;
	for (size_t i = 0; i < sizeof(maps) / sizeof(*maps); i++)
		trace_map_deinit(maps[i], NULL);
	hash_table_deinit(&names->texts);
	trace_symbols_free(names->symbols);
	while (names->blocks) {
		struct block *next = names->blocks->next;

		free(names->blocks);
		names->blocks = next;
	}
	free(names);
	return NULL;
}
