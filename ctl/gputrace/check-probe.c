/* SPDX-License-Identifier: Apache-2.0 */

/* Checks the parts of a probe, and which arguments a function of the driver has. */

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "ctl/base/suggest.h"
#include "lib/function.h"
#include "words.h"

#define NAME_MAX_BYTES 2000 /* what a section of an object has room for, nearly */

static const char *nearest_probe(const char *wanted) {
	static struct suggestion suggestion;
	const struct probe_row *row;

	suggestion = (struct suggestion){ .wanted = wanted };
	for (size_t i = 0; (row = probe_row_at(i)); i++)
		suggest_add(&suggestion, row->name);
	return suggestion.distance ? suggest_text(&suggestion) : "; gputrace -l lists the probes";
}

/* Probes of the language that this version lacks, and what there is instead. */
static const char *not_yet(const char *name) {
	static const struct {
		const char *name, *instead;
	} later[] = {
		{ "call", "func: is at the entry of a device function" },
		{ "barrier", "gpuprobectl attach has kprobe/K@barrier" },
		{ "ctxsw", "gpuprobectl trace --ctxsw shows switches" },
		{ "xid", "gpuprobectl trace -e xid shows these errors" },
		{ "uprobe", "bpftrace has it" },
		{ "uretprobe", "bpftrace has it" },
		{ "kprobe", "bpftrace has it; of GPU kernels: thread:" },
		{ "kretprobe", "bpftrace has it; of GPU kernels: thread:KERNEL:end" },
		{ "fentry", "bpftrace has it" },
		{ "fexit", "bpftrace has it" },
		{ "tracepoint", "bpftrace has it" },
		{ "profile", "bpftrace has it" },
	};

	for (size_t i = 0; i < sizeof(later) / sizeof(*later); i++)
		if (!strcmp(name, later[i].name))
			return later[i].instead;
	return NULL;
}

static bool part_number(struct script *script, struct probe *probe, const char *text, uint64_t min,
			uint64_t max) {
	char *end;

	errno = 0;
	probe->number = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || probe->number < min ||
	    probe->number > max)
		return script_fail(script, probe->place,
				   "%s: expected a number from %llu to %llu, not \"%s\"",
				   probe->parts[0], (unsigned long long)min,
				   (unsigned long long)max, text);
	return true;
}

/* A name of kernels as sections of objects can have it. */
static bool kernel_part(struct script *script, struct probe *probe, const char *name) {
	if (strlen(name) > NAME_MAX_BYTES)
		return script_fail(script, probe->place, "the name is longer than %d bytes",
				   NAME_MAX_BYTES);
	for (const char *c = name; *c; c++)
		if (*c < ' ' || *c > '~' || *c == '@')
			return script_fail(
				script, probe->place,
				"a name has printable characters other than @; * stands for any");
	if (!strncmp(name, "dev:", 4) || !strncmp(name, "__memcapture", 12) ||
	    !strncmp(name, "__directly_run", 14))
		return script_fail(script, probe->place, "\"%s\" cannot be the name of a kernel%s",
				   name, *name == 'd' ? "; func: is for device functions" : "");
	probe->name = name;
	return true;
}

static bool interval(struct script *script, struct probe *probe) {
	const bool seconds = !strcmp(probe->parts[1], "s");

	if (!seconds && strcmp(probe->parts[1], "ms"))
		return script_fail(script, probe->place,
				   "interval:%s: the unit is s or ms, as in interval:s:1",
				   probe->parts[1]);
	if (!part_number(script, probe, probe->parts[2], seconds ? 1 : 10, 86400))
		return false;
	probe->number *= seconds ? 1000000000 : 1000000;
	return true;
}

/* [:global|shared|local][:load|store|atomic] */
static bool memory_parts(struct script *script, struct probe *probe) {
	static const struct {
		const char *name;
		unsigned int access;
	} words[] = {
		{ "global", 0 },
		{ "shared", 0 },
		{ "local", 0 },
		{ "load", 1u << ACCESS_LOAD | 1u << ACCESS_MATRIX_LOAD },
		{ "store", 1u << ACCESS_STORE },
		{ "atomic", 1u << ACCESS_ATOMIC | 1u << ACCESS_REDUCTION },
	};

	for (size_t part = 2; part < probe->n_parts; part++) {
		size_t i = 0;

		while (i < sizeof(words) / sizeof(*words) &&
		       strcmp(words[i].name, probe->parts[part]))
			i++;
		if (i == sizeof(words) / sizeof(*words) ||
		    (words[i].access ? probe->access != 0 : probe->space || probe->access))
			return script_fail(script, probe->place,
					   "%s: \"%s\" cannot stand there; it is "
					   "%s:KERNEL[:global|shared|local][:load|store|atomic]",
					   probe->parts[0], probe->parts[part], probe->parts[0]);
		if (words[i].access)
			probe->access = words[i].access;
		else
			probe->space = words[i].name;
	}
	return true;
}

static bool module_call(const char *base, const char *what) {
	static const char *const prefixes[] = { "cuModule", "cuLibrary" };

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++)
		if (!strncmp(base, prefixes[i], strlen(prefixes[i])) &&
		    !strncmp(base + strlen(prefixes[i]), what, strlen(what)))
			return true;
	return false;
}

/* Whether a name or glob, or the class that the probe stands for, means a function. */
bool probe_has_function(const struct probe *probe, const struct function *function) {
	const char *base = function->base;

	if (probe->name && fnmatch(probe->name, function->name, 0) && fnmatch(probe->name, base, 0))
		return false;
	switch (probe->kind) {
	case PROBE_COPY:
		return function->class == FUNCTION_TRANSFER;
	case PROBE_SYNC:
		return function->class == FUNCTION_SYNC;
	case PROBE_ALLOC:
		return !strncmp(base, "cuMemAlloc", 10) || !strcmp(base, "cuMemCreate") ||
		       !strcmp(base, "cuMemHostAlloc");
	case PROBE_FREE:
		return !strncmp(base, "cuMemFree", 9) || !strcmp(base, "cuMemRelease");
	case PROBE_MODULE:
		return module_call(base, probe->unloads ? "Unload" : "Load");
	default:
		return probe->kind == PROBE_DRIVER;
	}
}

static bool function_part(struct script *script, struct probe *probe) {
	struct suggestion suggestion = { .wanted = probe->n_parts > 1 ? probe->parts[1] : "" };

	probe->name = probe->n_parts > 1 && *probe->parts[1] ? probe->parts[1] : NULL;
	for (size_t i = 0; i < function_count; i++)
		if (probe_has_function(probe, function_all[i]))
			return true;
	for (size_t i = 0; i < function_count; i++)
		suggest_add(&suggestion, function_all[i]->name);
	return script_fail(script, probe->place, "%s: the driver has no such function: %s%s",
			   probe->parts[0], probe->name, suggest_text(&suggestion));
}

static bool module_part(struct script *script, struct probe *probe) {
	probe->unloads = !strcmp(probe->parts[1], "unload");
	return probe->unloads || !strcmp(probe->parts[1], "load") ||
	       script_fail(script, probe->place, "module is written module:load or module:unload");
}

/* What happened to the process, or nothing: all. */
static bool process_part(struct script *script, struct probe *probe) {
	static const char *const names[] = { "seen", "fork", "exec", "exit" };
	const char *wanted = probe->n_parts > 1 ? probe->parts[1] : "";
	struct suggestion suggestion = { .wanted = wanted };

	for (size_t i = 0; *wanted && i < sizeof(names) / sizeof(*names); i++) {
		if (!strcmp(names[i], wanted))
			probe->name = names[i];
		suggest_add(&suggestion, names[i]);
	}
	return !*wanted || probe->name ||
	       script_fail(script, probe->place,
			   "process: is of seen, fork, exec or exit, not \"%s\"%s", wanted,
			   suggest_text(&suggestion));
}

static bool probe_parts(struct script *script, struct probe *probe) {
	switch (probe->kind) {
	case PROBE_MODULE:
		return module_part(script, probe);
	case PROBE_PROCESS:
		return process_part(script, probe);
	case PROBE_IDLE:
		return probe->n_parts < 2 || !*probe->parts[1] ||
		       script_fail(script, probe->place, "idle is written idle:");
	case PROBE_INTERVAL:
		return interval(script, probe);
	case PROBE_DRIVER:
	case PROBE_COPY:
	case PROBE_SYNC:
	case PROBE_ALLOC:
	case PROBE_FREE:
		return function_part(script, probe);
	case PROBE_LINE:
		probe->file = probe->parts[1];
		return kernel_part(script, probe, probe->file) &&
		       part_number(script, probe, probe->parts[2], 1, UINT32_MAX - 1);
	case PROBE_BLOCK:
		return kernel_part(script, probe, probe->parts[1]) &&
		       part_number(script, probe, probe->parts[2], 0, UINT32_MAX - 1);
	case PROBE_MEMORY:
	case PROBE_WARP_MEMORY:
		return kernel_part(script, probe, probe->parts[1]) && memory_parts(script, probe);
	default:
		return probe->n_parts < 2 || kernel_part(script, probe, probe->parts[1]);
	}
}

bool check_probe(struct script *script, struct probe *probe) {
	const char *name = probe->parts[0], *later = not_yet(name);
	const struct probe_row *row = probe_row_find(name);
	size_t n = probe->n_parts;
	bool empty = false;

	if (!row && later)
		return script_fail(script, probe->place, "%s: is not in this version; %s", name,
				   later);
	if (!row)
		return script_fail(script, probe->place, "there is no probe %s:%s", name,
				   nearest_probe(name));
	probe->kind = row->kind;
	if (script->kernel && row->kernel && n > 1 && !strcmp(probe->parts[1], "*")) {
		probe->parts[1] = script->kernel;
		script->kernel_used = true;
	}
	if (row->end && n > 2 && !strcmp(probe->parts[n - 1], "end")) {
		probe->end = true;
		n--;
	}
	for (size_t i = 0; i < row->min; i++)
		empty |= i < n && !*probe->parts[i];
	if (n < row->min || n > row->max - (row->end && !probe->end) || empty)
		return script_fail(script, probe->place, "%s is written %s%s", name, row->form,
				   n > row->max - (row->end && !probe->end)
					   ? "; a name with a : in it must be quoted"
					   : "");
	return probe_parts(script, probe);
}

/* The argument of a function by its name, or -1. */
static int argument_of(const struct function *function, const char *name) {
	for (int i = 0; i < function->n_arguments; i++)
		if (!strcmp(function->arguments[i].name, name))
			return i;
	return -1;
}

static enum type argument_type(const struct function *function, int argument) {
	for (int i = 0; i < function->n_extras; i++)
		if (function->extras[i].argument == argument && !function->extras[i].size)
			return TYPE_TEXT;
	return TYPE_NUMBER;
}

/* Whether a struct, or one in it, has a number of that name. */
static bool has_member(const struct function_struct *structure, const char *name,
		       struct suggestion *suggestion) {
	bool found = false;

	for (size_t i = 0; structure && i < structure->n; i++) {
		const struct function_field *field = &structure->fields[i];

		if (field->type->kind == FUNCTION_STRUCT) {
			found |= has_member(field->type->structure, name, suggestion);
		} else if (field->type->kind != FUNCTION_BYTES) {
			suggest_add(suggestion, field->name);
			found |= !strcmp(field->name, name);
		}
	}
	return found;
}

/* Members of structs that arguments point to, and that a record has. */
static bool member_of(const struct function *function, const char *name,
		      struct suggestion *suggestion) {
	bool found = false;

	for (int i = 0; i < function->n_extras; i++) {
		const struct function_type *type =
			function->arguments[function->extras[i].argument].type;

		if (type->target && type->target->kind == FUNCTION_STRUCT)
			found |= has_member(type->target->structure, name, suggestion);
	}
	return found;
}

/* Of process:, whose events are no calls. */
static bool process_argument(const struct probe *probe, const char *name,
			     struct suggestion *suggestion, enum type *typep) {
	static const char *const names[] = { "parent", "uid", "status", "exe" };
	bool found = false;

	for (size_t i = 0; probe->kind == PROBE_PROCESS && i < sizeof(names) / sizeof(*names);
	     i++) {
		suggest_add(suggestion, names[i]);
		found |= !strcmp(names[i], name);
	}
	if (found && !strcmp(name, "exe"))
		*typep = TYPE_TEXT;
	return found;
}

bool check_argument(struct script *script, const struct clause *clause, const struct node *node,
		    enum type *typep) {
	const char *name = node->text[4] ? node->text + 5 : "";
	struct suggestion suggestion = { .wanted = name };
	bool found = false;

	*typep = TYPE_NUMBER;
	if (!*name)
		return script_fail(
			script, node->place,
			"args is all arguments of a call: say which, as in args.bytesize");
	for (const struct probe *probe = clause->probes; probe; probe = probe->next)
		found |= process_argument(probe, name, &suggestion, typep);
	for (const struct probe *probe = clause->probes; probe; probe = probe->next)
		for (size_t i = 0; i < function_count; i++) {
			const struct function *function = function_all[i];
			const int argument = argument_of(function, name);

			if (!probe_has_function(probe, function))
				continue;
			for (int j = 0; j < function->n_arguments; j++)
				suggest_add(&suggestion, function->arguments[j].name);
			found |= argument >= 0 || member_of(function, name, &suggestion);
			if (argument >= 0 && argument_type(function, argument) == TYPE_TEXT)
				*typep = TYPE_TEXT;
		}
	return found ||
	       script_fail(script, node->place, "no event of this probe has an argument %s%s", name,
			   suggest_text(&suggestion));
}
