/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The pass `probe` (probe.h): puts programs into a PTX module at their points. It works on text in
 * memory only.
 *
 * Functions are taken in the order of the text. Each is parsed, its sites are found (probe-site.h),
 * and every site gets
 *
 *	{
 *	@!%p bra $L__skip;		if the instruction runs under %p
 *	...				the fields that programs read, computed (probe-context.h)
 *	{ program } { program }		or a call of a function that calls them
 *	$L__skip:
 *	}
 *
 * before its instruction, which stays as it is. A scope of our own keeps names apart, so that
 * nothing of the function's is touched: its registers are read, never written. At an entry it
 * stands before the first label, so a loop to the beginning does not come by again; and it always
 * stands before a .pragma, because that may speak of the instruction after it. Nothing has
 * .noinline.
 *
 * Inlined programs make a module grow; beyond limits, sites call. Entries, returns, lines and
 * blocks come first, then memory instructions in order of text. Functions that sites call are
 * written at the end, when all of them are known, and go behind the header with the programs.
 */

#include "probe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/kernel-id.h"
#include "probe-caller.h"
#include "probe-context.h"
#include "probe-launch.h"
#include "probe-program.h"
#include "probe-site.h"
#include "probe-stub.h"
#include "probe-thread.h"
#include "lib/ptx/ptx-inline.h"

#define INLINE_MAX 16384 /* bytes of programs that are put into a function */
#define INLINE_WORDS_MAX                                                                       \
	65536 /* the same where they keep variables of a thread: a call of one would cost many \
		 times what it does */
#define LOCAL_MAX                                                                               \
	512 /* bytes of local memory that come with them, unless one alone has more: as an eBPF \
	       program's stack */
#define INLINE_TOTAL_MAX ((size_t)16 << 20) /* of all functions; the others call */
#define FIELD_COST 256 /* about what it takes to compute a field */
/* A function __memcapture__N and the like: which programs it calls. */
struct signature {
	enum point_kind point;
	uint32_t number; /* among those of its point */
	uint32_t *programs;
	uint32_t count;
};

struct pass {
	struct program_set set;
	const struct probe_options *options;
	struct probe_files files;
	struct signature *signatures;
	uint32_t signature_count, signature_capacity;
	uint32_t numbers[POINT_BLOCK + 1]; /* next of each point */
	FILE *callers; /* the functions that sites call */
	size_t inlined; /* bytes */
	struct probe_instruction *instructions;
	uint32_t instruction_count, instruction_capacity;
};

/* How a place has its programs. */
enum form {
	FORM_CALL,
	FORM_INLINE,
	FORM_NONE, /* nothing may be called there, and they cannot be inlined */
};

/* The function that is worked on. */
struct work {
	struct pass *pass;
	const struct probe_function *function;
	const struct ptx_body *body;
	struct probe_names names;
	struct probe_sites sites;
	enum form *forms; /* by site; the first of each place counts */
	uint64_t local; /* bytes of local memory that were put into it */
	bool nests; /* a device function with calls: it may be on the stack many times */
	bool caller[POINT_BLOCK + 1]; /* ENTRY, RETURN: it has its function already */
	bool launch; /* it can have the block of a launch */
	bool reads_launch; /* and a program reads it */
	struct probe_words words; /* of thread's variables, which it has in registers */
	uint32_t labels; /* suffixes that were given out */
	const struct ptx_statement *loc; /* the one before the current site */
	uint32_t loc_next; /* the statement to look at next for it */
};

static const char *const prefixes[] = {
	[POINT_ENTRY] = "__probe_func__",  [POINT_RETURN] = "__retprobe_func__",
	[POINT_MEMORY] = "__memcapture__", [POINT_LINE] = "__lineprobe__",
	[POINT_BLOCK] = "__blockprobe__",
};

/* The sites of one place are [first, the result). */
static uint32_t place_end(const struct work *work, uint32_t first) {
	const struct probe_site *sites = work->sites.sites;
	uint32_t end = first + 1;

	while (end < work->sites.count && sites[end].statement == sites[first].statement &&
	       sites[end].point == sites[first].point)
		end++;
	return end;
}

static uint32_t program_of(const struct work *work, uint32_t site) {
	return work->function->uses[work->sites.sites[site].use].program;
}

static uint32_t fields_of_place(const struct work *work, uint32_t first, uint32_t end) {
	uint32_t fields = 0;

	for (uint32_t i = first; i < end; i++)
		fields |= probe_program_fields(&work->pass->set.programs[program_of(work, i)]);
	return fields;
}

/* Notes that a place's programs are used, and how. */
static void count_place(struct work *work, uint32_t first, uint32_t end) {
	for (uint32_t i = first; i < end; i++) {
		struct parsed_program *program = &work->pass->set.parsed[program_of(work, i)];

		program->used = true;
		program->called |= work->forms[first] == FORM_CALL;
		work->function->uses[work->sites.sites[i].use].sites++;
	}
}

/*
 * May what the place's programs have in local memory be put into the function? Of a program that
 * stands at ten places it is there ten times, as assemblers let the copies share nothing; functions
 * that are called one after the other do share it. And where a function calls itself, or is called
 * by what it calls, each level would have it, on a stack whose depth assemblers do not know.
 */
static bool take_local(struct work *work, uint32_t first, uint32_t end) {
	uint64_t bytes = 0;

	for (uint32_t i = first; i < end; i++)
		bytes += work->pass->set.parsed[program_of(work, i)].local;
	if (bytes && (work->nests || (work->local && work->local + bytes > LOCAL_MAX)))
		return false;
	work->local += bytes;
	return true;
}

/* About how many bytes a place's programs take where they stand themselves. */
static size_t place_length(const struct work *work, uint32_t first, uint32_t end) {
	const bool memory = work->sites.sites[first].point == POINT_MEMORY;
	uint32_t fields = fields_of_place(work, first, end);
	size_t length = 0;

	for (uint32_t i = first; i < end; i++) {
		const uint32_t program = program_of(work, i);

		length += work->words.count ? work->pass->set.parsed[program].block
					    : work->pass->set.programs[program].length;
	}
	if (memory && work->words.count)
		fields &= ~(uint32_t)PROBE_NUMBER_FIELDS;
	return length + (size_t)FIELD_COST * (unsigned int)__builtin_popcount(fields);
}

/* Decides for the places of memory instructions, or for all others. */
static void choose_forms(struct work *work, bool memory, size_t *left) {
	struct pass *pass = work->pass;
	uint32_t end;

	for (uint32_t first = 0; first < work->sites.count; first = end) {
		const struct probe_site *site = &work->sites.sites[first];
		bool simple = true;
		size_t length;

		end = place_end(work, first);
		if ((site->point == POINT_MEMORY) != memory)
			continue;
		length = place_length(work, first, end);
		for (uint32_t i = first; i < end; i++)
			simple &= pass->set.parsed[program_of(work, i)].simple;
		if (site->fragile) {
			work->forms[first] = simple ? FORM_INLINE : FORM_NONE;
		} else if (simple && !pass->options->call &&
			   (pass->options->inlined ||
			    (length <= *left && length <= INLINE_TOTAL_MAX - pass->inlined &&
			     take_local(work, first, end)))) {
			work->forms[first] = FORM_INLINE;
			*left -= length < *left ? length : *left;
			pass->inlined += length;
		}
		if (work->forms[first] != FORM_NONE)
			count_place(work, first, end);
	}
}

/* The words of a thread's variables that programs use. 0 or -ENOMEM. */
static int find_words(const struct pass *pass, const uint32_t *programs, uint32_t count,
		      struct probe_words *words) {
	int r = 0;

	*words = (struct probe_words){ 0 };
	for (uint32_t i = 0; i < count && !r; i++)
		r = probe_words_add(words, &pass->set.programs[programs[i]]);
	return r;
}

/* Writes a function that calls programs one after the other. 0 or -ENOMEM. */
static int write_caller(struct pass *pass, const char *name, const uint32_t *programs,
			uint32_t count) {
	struct probe_words words;
	int r = find_words(pass, programs, count, &words);

	if (!r)
		probe_caller_write(pass->callers, &pass->set, name, programs, count, &words);
	probe_words_deinit(&words);
	return r;
}

/* The number of the function for these programs; it is written if it is new. */
static int find_signature(struct pass *pass, enum point_kind point, const uint32_t *programs,
			  uint32_t count, uint32_t *number) {
	struct signature *larger, *signature;
	uint32_t capacity;
	char name[32];
	int r;

	for (uint32_t i = 0; i < pass->signature_count; i++) {
		signature = &pass->signatures[i];
		if (signature->point == point && signature->count == count &&
		    !memcmp(signature->programs, programs, count * sizeof(*programs))) {
			*number = signature->number;
			return 0;
		}
	}
	if (pass->signature_count == pass->signature_capacity) {
		capacity = pass->signature_capacity ? pass->signature_capacity * 2 : 8;
		larger = reallocarray(pass->signatures, capacity, sizeof(*larger));
		if (!larger)
			return -ENOMEM;
		pass->signatures = larger;
		pass->signature_capacity = capacity;
	}
	do { /* a pass before us may have been here */
		*number = pass->numbers[point]++;
		snprintf(name, sizeof(name), "%s%u", prefixes[point], *number);
	} while (ptx_module_has_symbol(pass->set.module, name, strlen(name)));
	r = program_set_place(&pass->set, name);
	if (r)
		return r;
	signature = &pass->signatures[pass->signature_count];
	*signature = (struct signature){ point, *number, calloc(count, sizeof(*programs)), count };
	if (!signature->programs)
		return -ENOMEM;
	memcpy(signature->programs, programs, count * sizeof(*programs));
	pass->signature_count++;
	return write_caller(pass, name, programs, count);
}

/* The name of the function that an entry or a return calls; it is written if it is new. */
static int find_named(struct work *work, enum point_kind point, const uint32_t *programs,
		      uint32_t count, char **name) {
	const struct ptx_range range = work->function->function->name;
	const char *text = work->body->module->text;
	int r;

	if (text[range.offset] == '%') { /* which may only stand at the start of a name */
		ptx_error_set(
			work->pass->set.error, text, range.offset,
			"a function whose name begins with %% cannot call one named after it");
		return PROBE_E_FUNCTION;
	}
	if (asprintf(name, "%s%.*s", prefixes[point], (int)range.length, text + range.offset) < 0)
		return -ENOMEM;
	if (work->caller[point])
		return 0;
	work->caller[point] = true;
	r = program_set_place(&work->pass->set, *name);
	if (!r)
		r = write_caller(work->pass, *name, programs, count);
	if (r)
		free(*name);
	return r;
}

static int find_caller(struct work *work, enum point_kind point, const uint32_t *programs,
		       uint32_t count, char **name) {
	uint32_t number;
	int r;

	if (point == POINT_ENTRY || point == POINT_RETURN)
		return find_named(work, point, programs, count, name);
	r = find_signature(work->pass, point, programs, count, &number);
	if (!r && asprintf(name, "%s%u", prefixes[point], number) < 0)
		r = -ENOMEM;
	return r;
}

/* The call of a place's programs. */
static int write_call(struct work *work, FILE *stream, uint32_t first, uint32_t end,
		      const struct probe_context *context) {
	uint32_t *programs = calloc(end - first, sizeof(*programs));
	struct probe_words words = { 0 };
	char *name = NULL;
	int r;

	if (!programs)
		return -ENOMEM;
	for (uint32_t i = first; i < end; i++)
		programs[i - first] = program_of(work, i);
	r = find_words(work->pass, programs, end - first, &words);
	if (!r)
		r = find_caller(work, work->sites.sites[first].point, programs, end - first, &name);
	if (!r) {
		probe_caller_call(stream, name, context, &words, &work->words);
		free(name);
	}
	probe_words_deinit(&words);
	free(programs);
	return r;
}

/*
 * A program itself. It may write one word of the thread's variables before it reads another, which
 * was there before: it reads copies.
 */
static int write_program(struct work *work, FILE *stream, uint32_t index,
			 const struct probe_context *context) {
	const struct probe_program *program = &work->pass->set.programs[index];
	const struct parsed_program *parsed = &work->pass->set.parsed[index];
	const uint32_t n = probe_thread_words(program);
	char copies[POINT_THREAD_WORDS][32], registers[POINT_THREAD_WORDS][32], suffix[32];
	const char *arguments[64], *results[POINT_THREAD_WORDS];
	uint32_t word = 0;
	int r;

	if (n)
		fprintf(stream, "{\n\t.reg .b64 %%gpuprobe_was<%u>;\n", n);
	for (uint32_t j = 0; j < program->context_count; j++) {
		const uint16_t offset = program->context[j];

		if (!point_is_thread(offset)) {
			arguments[j] = context->arguments[offset / 8];
			continue;
		}
		snprintf(copies[word], sizeof(copies[word]), "%%gpuprobe_was%u", word);
		snprintf(registers[word], sizeof(registers[word]), PROBE_WORD,
			 probe_words_find(&work->words, program, offset));
		fprintf(stream, "\tmov.b64 %s, %s;\n", copies[word], registers[word]);
		arguments[j] = copies[word];
		results[word] = registers[word];
		word++;
	}
	snprintf(suffix, sizeof(suffix), "__gpuprobe%u", work->labels++);
	r = ptx_inline_write(stream, &parsed->module, parsed->function, arguments, results, n,
			     suffix);
	if (n)
		fputs("\t}\n", stream);
	return r;
}

/* A place's programs themselves. */
static int write_programs(struct work *work, FILE *stream, uint32_t first, uint32_t end,
			  const struct probe_context *context) {
	int r = 0;

	for (uint32_t i = first; i < end && !r; i++)
		r = write_program(work, stream, program_of(work, i), context);
	return r > 0 ? -EINVAL : r; /* it was possible before */
}

/* Notes an instruction that gets a memory probe; its index is the count before. */
static int add_instruction(struct work *work, uint32_t statement) {
	struct pass *pass = work->pass;
	struct probe_instruction *larger, *instruction;
	uint32_t capacity;

	if (pass->instruction_count == pass->instruction_capacity) {
		capacity = pass->instruction_capacity ? pass->instruction_capacity * 2 : 16;
		larger = reallocarray(pass->instructions, capacity, sizeof(*larger));
		if (!larger)
			return -ENOMEM;
		pass->instructions = larger;
		pass->instruction_capacity = capacity;
	}
	for (; work->loc_next < statement; work->loc_next++)
		if (work->body->statements[work->loc_next].kind == PTX_STATEMENT_LOC)
			work->loc = &work->body->statements[work->loc_next];
	instruction = &pass->instructions[pass->instruction_count];
	*instruction = (struct probe_instruction){
		.index = pass->instruction_count,
		.function = work->function->function,
		.text = ptx_statement_text(work->body, &work->body->statements[statement]),
	};
	if (work->loc)
		probe_files_find(&pass->files, work->body, work->loc, &instruction->file,
				 &instruction->line);
	pass->instruction_count++;
	return 0;
}

/* Lines and blocks stand before an instruction whatever its predicate is. */
static bool is_guarded(const struct work *work, const struct probe_site *site) {
	return (site->stub || site->point == POINT_MEMORY || site->point == POINT_RETURN) &&
	       site->statement < work->body->statement_count &&
	       work->body->statements[site->statement].guard != PTX_NONE;
}

static int write_place(struct work *work, FILE *stream, uint32_t first, uint32_t end) {
	const struct probe_site *site = &work->sites.sites[first];
	struct pass *pass = work->pass;
	struct probe_context context = { .wanted = fields_of_place(work, first, end) };
	struct probe_access access;
	struct probe_place place = {
		.names = &work->names,
		.statement = site->statement,
		.process_space = pass->set.constant_full ? "global" : "const",
		.kernel_variable = work->function->kernel_variable,
		.launch = work->launch,
		.inlined = work->forms[first] == FORM_INLINE,
	};
	bool skips = is_guarded(work, site), scope = skips || context.wanted || !place.inlined;
	uint32_t label = skips ? work->labels++ : 0;
	int r = 0;

	if (site->point == POINT_MEMORY) {
		probe_access_read(&work->names, site->statement, &access);
		place.access = &access;
		place.instruction = instruction_id(pass->options->image, pass->instruction_count);
		r = add_instruction(work, site->statement);
		if (r)
			return r;
	} else {
		pass->set.needs_process |= probe_context_needs_process(context.wanted);
	}
	work->reads_launch |=
		work->launch && probe_context_reads_launch(context.wanted, place.access);
	if (scope)
		fputs("{\n", stream);
	if (skips) { /* `@%p` of the instruction turned round */
		fputc('\t', stream);
		ptx_statement_write_guard(work->body, &work->body->statements[site->statement],
					  true, stream);
		fprintf(stream, "bra $L__skip__gpuprobe%u;\n", label);
	}
	probe_context_write(stream, &place, &context);
	r = place.inlined ? write_programs(work, stream, first, end, &context)
			  : write_call(work, stream, first, end, &context);
	if (skips)
		fprintf(stream, "$L__skip__gpuprobe%u:\n", label);
	if (scope)
		fputs("\t}\n", stream);
	fputc('\t', stream);
	return r;
}

static int edit_place(struct work *work, uint32_t first, uint32_t end) {
	const struct probe_site *site = &work->sites.sites[first];
	struct ptx_edit *edit = work->pass->set.edit;
	char *bytes = NULL;
	size_t length = 0;
	FILE *stream;
	int r;

	stream = open_memstream(&bytes, &length);
	if (!stream)
		return -ENOMEM;
	r = write_place(work, stream, first, end);
	if (fclose(stream))
		r = -ENOMEM;
	if (!r && site->stub)
		r = probe_stub_replace(edit, &work->names, site->statement, bytes, length,
				       work->pass->set.error);
	else if (!r)
		r = ptx_edit_insert(edit, probe_site_offset(&work->names, site), bytes, length);
	free(bytes);
	return r;
}

static bool has_prefix(const char *text, struct ptx_range name, const char *prefix) {
	return name.length >= strlen(prefix) && !memcmp(text + name.offset, prefix, strlen(prefix));
}

static bool has_calls(const struct ptx_body *body) {
	for (uint32_t i = 0; i < body->statement_count; i++)
		if (ptx_instruction_is(body, &body->statements[i], "call"))
			return true;
	return false;
}

/* Declares the registers that programs of the function keep variables of a thread in. */
static int keep_words(struct work *work) {
	const struct probe_site start = { .statement = probe_site_first(work->body) };
	const struct ptx_body *body = work->body;
	const struct pass *pass = work->pass;
	int r = 0;

	for (uint32_t i = 0; i < work->sites.count && !r; i++)
		r = probe_words_add(&work->words, &pass->set.programs[program_of(work, i)]);
	if (r || !work->words.count)
		return r;
	if (!work->function->function->entry) {
		ptx_error_set(pass->set.error, body->module->text,
			      work->function->function->name.offset,
			      "a device function has no variables of a thread (.thread): only a "
			      "kernel keeps them");
		return PROBE_E_FUNCTION;
	}
	for (uint32_t i = 0; i < body->register_count; i++)
		if (has_prefix(body->module->text, body->registers[i].name, "%gpuprobe_thread")) {
			ptx_error_set(pass->set.error, body->module->text,
				      body->registers[i].name.offset,
				      "the kernel has a register of a name of ours already");
			return PROBE_E_TAKEN;
		}
	return probe_words_declare(&work->words, pass->set.edit,
				   probe_site_offset(&work->names, &start));
}

static int edit_sites(struct work *work) {
	uint32_t end;
	size_t left;
	int r;

	work->forms = calloc((size_t)work->sites.count + 1, sizeof(*work->forms));
	if (!work->forms)
		return -ENOMEM;
	work->nests = !work->function->function->entry && has_calls(work->body);
	r = keep_words(work);
	left = work->words.count ? INLINE_WORDS_MAX : INLINE_MAX;
	choose_forms(work, false, &left);
	choose_forms(work, true, &left);
	for (uint32_t first = 0; first < work->sites.count && !r; first = end) {
		end = place_end(work, first);
		if (work->forms[first] != FORM_NONE)
			r = edit_place(work, first, end);
	}
	free(work->forms);
	probe_words_deinit(&work->words);
	return r;
}

static int edit_function(struct pass *pass, const struct probe_function *function) {
	struct work work = { .pass = pass, .function = function };
	struct ptx_error inner;
	struct ptx_body body;
	int r;

	r = ptx_body_parse(&body, pass->set.module, function->function, &inner);
	if (r > 0) {
		*pass->set.error = inner;
		return PROBE_E_FUNCTION;
	}
	if (r)
		return r;
	work.body = &body;
	work.launch =
		pass->options->launch && probe_launch_fits(pass->set.module, function->function);
	r = probe_names_init(&work.names, &body);
	if (!r) {
		r = probe_sites_init(&work.sites, &work.names, &pass->files, pass->options,
				     function);
		if (!r)
			r = edit_sites(&work);
		if (!r && work.reads_launch)
			r = probe_launch_add(pass->set.edit, pass->set.module, function->function);
		probe_sites_deinit(&work.sites);
		probe_names_deinit(&work.names);
	}
	ptx_body_deinit(&body);
	return r;
}

/*
 * Is the caller's list sound? Notes which programs are listed, and puts functions with a body in
 * the order of the text.
 */
static int check_functions(const struct ptx_module *module, struct probe_function *functions,
			   size_t count, bool *listed, size_t program_count,
			   struct probe_function **ordered) {
	for (size_t i = 0; i < count; i++) {
		const struct ptx_function *function = functions[i].function;
		size_t index = (size_t)(function - module->functions);

		if (function < module->functions ||
		    function >= module->functions + module->function_count || ordered[index])
			return -EINVAL;
		ordered[index] = &functions[i];
		for (uint32_t j = 0; j < functions[i].use_count; j++) {
			functions[i].uses[j].sites = 0;
			if (functions[i].uses[j].program >= program_count)
				return -EINVAL;
			if (function->body.length)
				listed[functions[i].uses[j].program] = true;
		}
	}
	return 0;
}

/* Everything between the checks and the clean-up. */
static int run(struct pass *pass, struct probe_function **ordered) {
	const struct ptx_module *module = pass->set.module;
	char *callers = NULL;
	size_t length = 0;
	int r;

	pass->callers = open_memstream(&callers, &length);
	if (!pass->callers)
		return -ENOMEM;
	r = probe_files_init(&pass->files, module);
	for (uint32_t i = 0; i < module->function_count && !r; i++)
		if (ordered[i] && ordered[i]->use_count && module->functions[i].body.length)
			r = edit_function(pass, ordered[i]);
	if (fclose(pass->callers))
		r = -ENOMEM;
	if (!r)
		r = program_set_insert(&pass->set);
	if (!r && length)
		r = ptx_edit_insert_after_header(pass->set.edit, module, callers, length);
	free(callers);
	probe_files_deinit(&pass->files);
	return r;
}

int probe_apply(struct ptx_edit *edit, const struct ptx_module *module,
		const struct probe_options *options, const struct probe_program *programs,
		size_t program_count, struct probe_function *functions, size_t function_count,
		struct probe_result *result, struct ptx_error *error) {
	struct pass pass = {
		.set = { .edit = edit,
			 .module = module,
			 .programs = programs,
			 .count = program_count,
			 .capability = options->capability,
			 .error = error },
		.options = options,
	};
	struct probe_function **ordered =
		calloc((size_t)module->function_count + 1, sizeof(*ordered));
	bool *listed = calloc(program_count + 1, sizeof(*listed));
	int r = -ENOMEM;

	if (ordered && listed)
		r = check_functions(module, functions, function_count, listed, program_count,
				    ordered);
	if (!r)
		r = program_set_parse(&pass.set, listed);
	if (!r)
		r = run(&pass, ordered);
	program_set_deinit(&pass.set);
	for (uint32_t i = 0; i < pass.signature_count; i++)
		free(pass.signatures[i].programs);
	free(pass.signatures);
	free(ordered);
	free(listed);
	if (r) {
		free(pass.instructions);
		return r;
	}
	*result = (struct probe_result){ pass.instructions, pass.instruction_count };
	return 0;
}
