/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds the places in a function's body at which programs run (probe-site.h).
 *
 * Every kind of point is a walk over the flat list of a body's statements. What each finds is
 * sorted afterwards, so that uses of one place stand together: a place that several points share
 * gets the entry first, then the block, the line, the memory access and the return.
 *
 * Blocks begin at labels that something branches to, and behind branches and returns. Labels that
 * only debug information names are none, so that -lineinfo does not change the numbers.
 */

#include "probe-site.h"

#include <errno.h>
#include <stdlib.h>

#include "probe-access.h"

struct finder {
	struct probe_sites *sites;
	const struct probe_names *names;
	const struct ptx_body *body;
	const struct probe_files *files;
	const struct probe_options *options;
	bool *targets; /* by statement: a label that something branches to */
};

static int compare_files(const void *a, const void *b) {
	const struct probe_file *left = a, *right = b;

	return (left->number > right->number) - (left->number < right->number);
}

int probe_files_init(struct probe_files *files, const struct ptx_module *module) {
	*files = (struct probe_files){ 0 };
	files->files = calloc((size_t)module->item_count + 1, sizeof(*files->files));
	if (!files->files)
		return -ENOMEM;
	for (uint32_t i = 0; i < module->item_count; i++) {
		const struct ptx_range *text = &module->items[i].text;
		struct ptx_token token[3];
		struct ptx_lexer lexer;
		struct ptx_error error;
		struct probe_file *file = &files->files[files->count];

		if (module->items[i].kind != PTX_ITEM_FILE)
			continue;
		ptx_lexer_init(&lexer, module->text, text->offset, text->offset + text->length);
		for (unsigned int j = 0; j < 3; j++)
			if (ptx_lexer_next(&lexer, &token[j], &error))
				token[j] = (struct ptx_token){ .kind = PTX_TOKEN_END };
		if (token[2].kind != PTX_TOKEN_STRING || token[2].length < 2 ||
		    !ptx_integer_value(module->text + token[1].offset, token[1].length,
				       &file->number))
			continue;
		file->path = (struct ptx_range){ token[2].offset + 1, token[2].length - 2 };
		files->count++;
	}
	qsort(files->files, files->count, sizeof(*files->files), compare_files);
	return 0;
}

void probe_files_deinit(struct probe_files *files) {
	free(files->files);
}

bool probe_files_find(const struct probe_files *files, const struct ptx_body *body,
		      const struct ptx_statement *loc, struct ptx_range *path, uint32_t *line) {
	const struct ptx_token *token = &body->tokens[loc->first];
	struct probe_file wanted = { 0 }, *found;
	uint64_t number;

	*path = (struct ptx_range){ 0 };
	*line = 0;
	if (loc->end - loc->first < 3 ||
	    !ptx_integer_value(body->module->text + token[1].offset, token[1].length,
			       &wanted.number) ||
	    !ptx_integer_value(body->module->text + token[2].offset, token[2].length, &number) ||
	    number > UINT32_MAX)
		return false;
	found = files->count ? bsearch(&wanted, files->files, files->count, sizeof(wanted),
				       compare_files)
			     : NULL;
	if (!found)
		return false;
	*path = found->path;
	*line = (uint32_t)number;
	return true;
}

static int compare_names(const void *a, const void *b, void *text) {
	const struct ptx_token *left = a, *right = b;
	const char *bytes = text;

	if (left->length != right->length)
		return left->length < right->length ? -1 : 1;
	return memcmp(bytes + left->offset, bytes + right->offset, left->length);
}

static bool is_branch(const struct ptx_body *body, const struct ptx_statement *statement) {
	return ptx_instruction_is(body, statement, "bra") ||
	       ptx_instruction_is(body, statement, "brx");
}

static bool is_return(const struct ptx_body *body, const struct ptx_statement *statement) {
	return ptx_instruction_is(body, statement, "ret") ||
	       ptx_instruction_is(body, statement, "exit");
}

static bool ends_block(const struct ptx_body *body, const struct ptx_statement *statement) {
	return is_branch(body, statement) || is_return(body, statement) ||
	       ptx_instruction_is(body, statement, "trap");
}

/* Is it one of NAME0 ... of an operand NAME<count>? */
static bool is_numbered(const struct ptx_body *body, const struct ptx_operand *operand,
			const struct ptx_token *label) {
	const struct ptx_token *name = &body->tokens[operand->first];
	const char *text = body->module->text, *digits = text + label->offset + name->length;
	uint64_t count, number = 0;

	if (operand->end - operand->first != 4 || label->length <= name->length ||
	    label->length - name->length > 9 ||
	    memcmp(text + label->offset, text + name->offset, name->length) ||
	    !ptx_integer_value(text + name[2].offset, name[2].length, &count))
		return false;
	for (uint32_t i = 0; i < label->length - name->length; i++) {
		if (digits[i] < '0' || digits[i] > '9' || (digits[0] == '0' && i))
			return false;
		number = 10 * number + (uint64_t)(digits[i] - '0');
	}
	return number < count;
}

/* Is the label in a .branchtargets NAME<count>? */
static bool is_in_range(const struct ptx_body *body, const struct ptx_token *label) {
	for (uint32_t i = 0; i < body->statement_count; i++) {
		const struct ptx_statement *statement = &body->statements[i];

		if (statement->kind != PTX_STATEMENT_BRANCH_TARGETS)
			continue;
		for (uint32_t j = 0; j < statement->operand_count; j++)
			if (is_numbered(body, &body->operands[statement->first_operand + j], label))
				return true;
	}
	return false;
}

/* Fills in targets. 0 or -ENOMEM. */
static int find_targets(struct finder *finder) {
	const struct ptx_body *body = finder->body;
	char *text = (char *)(uintptr_t)body->module->text;
	struct ptx_token *names;
	size_t count = 0;
	bool ranges = false;

	finder->targets = calloc((size_t)body->statement_count + 1, sizeof(*finder->targets));
	names = calloc((size_t)body->operand_count + 1, sizeof(*names));
	if (!finder->targets || !names) {
		free(names);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < body->statement_count; i++) {
		const struct ptx_statement *statement = &body->statements[i];

		/* brx only names its table */
		if (statement->kind != PTX_STATEMENT_BRANCH_TARGETS &&
		    !ptx_instruction_is(body, statement, "bra"))
			continue;
		for (uint32_t j = 0; j < statement->operand_count; j++) {
			const struct ptx_operand *operand =
				&body->operands[statement->first_operand + j];

			names[count++] = body->tokens[operand->first];
			ranges |= operand->end - operand->first > 1;
		}
	}
	qsort_r(names, count, sizeof(*names), compare_names, text);
	for (uint32_t i = 0; i < body->statement_count && count; i++)
		if (body->statements[i].kind == PTX_STATEMENT_LABEL) {
			const struct ptx_token *label = &body->tokens[body->statements[i].first];
			size_t from = 0, to = count;

			while (from < to) {
				size_t middle = from + (to - from) / 2;

				if (compare_names(&names[middle], label, text) < 0)
					from = middle + 1;
				else
					to = middle;
			}
			finder->targets[i] =
				(from < count && !compare_names(&names[from], label, text)) ||
				(ranges && is_in_range(body, label));
		}
	free(names);
	return 0;
}

static int add(struct finder *finder, uint32_t statement, enum point_kind point, uint32_t use,
	       bool stub) {
	struct probe_sites *sites = finder->sites;
	struct probe_site *larger;
	uint32_t capacity;

	if (sites->count == sites->capacity) {
		capacity = sites->capacity ? sites->capacity * 2 : 16;
		larger = capacity > sites->capacity
				 ? reallocarray(sites->sites, capacity, sizeof(*larger))
				 : NULL;
		if (!larger)
			return -ENOMEM;
		sites->sites = larger;
		sites->capacity = capacity;
	}
	sites->sites[sites->count++] = (struct probe_site){ statement, use, (uint8_t)point, stub };
	return 0;
}

/* Takes `<length><name>` of a mangled name; false if there is none. */
static bool next_name(const char **at, const char *end, const char **name, size_t *length) {
	*length = 0;
	while (*at < end && **at >= '0' && **at <= '9' && *length < 100000)
		*length = *length * 10 + (size_t)(*(*at)++ - '0');
	*name = *at;
	if (!*length || *length > (size_t)(end - *at))
		return false;
	*at += *length;
	return true;
}

bool probe_name_is(const char *name, size_t length, const char *wanted) {
	const char *at = name, *end = name + length, *part;
	bool nested, first = true;
	size_t part_length;

	if (length == strlen(wanted) && !memcmp(name, wanted, length))
		return true;
	if (length < 3 || memcmp(name, "_Z", 2))
		return false;
	at += 2;
	nested = *at == 'N';
	at += nested || *at == 'L'; /* L: static */
	do {
		if (!next_name(&at, end, &part, &part_length))
			return false;
		if (!first && strncmp(wanted, "::", 2))
			return false;
		wanted += first ? 0 : 2;
		if (strncmp(wanted, part, part_length))
			return false;
		wanted += part_length;
		first = false;
	} while (nested && at < end && *at != 'E');
	return !*wanted && at < end && *at != 'I'; /* I: of a template */
}

static bool is_stub(const struct finder *finder, const struct ptx_statement *statement) {
	struct ptx_call call;

	if (!finder->options->n_stubs || !ptx_instruction_call(finder->body, statement, &call) ||
	    call.indirect)
		return false;
	for (size_t i = 0; i < finder->options->n_stubs; i++)
		if (probe_name_is(ptx_body_token_text(finder->body, call.target),
				  finder->body->tokens[call.target].length,
				  finder->options->stubs[i]))
			return true;
	return false;
}

uint32_t probe_site_first(const struct ptx_body *body) {
	uint32_t first = 0;

	while (first < body->statement_count &&
	       (body->statements[first].kind == PTX_STATEMENT_REGISTERS ||
		body->statements[first].kind == PTX_STATEMENT_VARIABLE))
		first++;
	return first;
}

static int find_entry(struct finder *finder, uint32_t use) {
	const struct ptx_body *body = finder->body;
	uint32_t stubs = 0;
	int r;

	for (uint32_t i = 0; i < body->statement_count; i++) {
		if (!is_stub(finder, &body->statements[i]))
			continue;
		stubs++;
		r = add(finder, i, POINT_ENTRY, use, true);
		if (r)
			return r;
	}
	return stubs ? 0 : add(finder, probe_site_first(body), POINT_ENTRY, use, false);
}

static int find_returns(struct finder *finder, uint32_t use) {
	const struct ptx_body *body = finder->body;
	bool reached = true;
	int r;

	for (uint32_t i = 0; i < body->statement_count; i++) {
		const struct ptx_statement *statement = &body->statements[i];

		if (is_return(body, statement)) {
			r = add(finder, i, POINT_RETURN, use, false);
			if (r)
				return r;
		}
		if (finder->targets[i])
			reached = true;
		else if (statement->guard == PTX_NONE && ends_block(body, statement))
			reached = false;
	}
	return reached ? add(finder, body->statement_count, POINT_RETURN, use, false) : 0;
}

static int find_memory(struct finder *finder, uint32_t use, uint32_t spaces) {
	struct probe_access access;
	int r;

	for (uint32_t i = 0; i < finder->body->statement_count; i++) {
		if (!probe_access_read(finder->names, i, &access) || !(spaces & 1u << access.space))
			continue;
		r = add(finder, i, POINT_MEMORY, use, false);
		if (r)
			return r;
	}
	return 0;
}

/* Is it the path, or its end from a '/' on? */
static bool path_matches(const char *path, size_t length, const char *wanted) {
	size_t tail = strlen(wanted);

	return tail <= length && !memcmp(path + length - tail, wanted, tail) &&
	       (tail == length || path[length - tail - 1] == '/');
}

static int find_line(struct finder *finder, uint32_t use, const char *file, uint32_t line) {
	const struct ptx_body *body = finder->body;
	bool here = false, before = false;
	struct ptx_range path;
	uint32_t number;
	int r;

	for (uint32_t i = 0; i < body->statement_count; i++) {
		if (body->statements[i].kind == PTX_STATEMENT_LOC)
			here = probe_files_find(finder->files, body, &body->statements[i], &path,
						&number) &&
			       number == line &&
			       path_matches(body->module->text + path.offset, path.length, file);
		if (body->statements[i].kind != PTX_STATEMENT_INSTRUCTION)
			continue;
		if (here && !before) {
			r = add(finder, i, POINT_LINE, use, false);
			if (r)
				return r;
		}
		before = here;
	}
	return 0;
}

static int find_block(struct finder *finder, uint32_t use, uint32_t block) {
	const struct ptx_body *body = finder->body;
	bool starts = true;

	for (uint32_t i = 0; i < body->statement_count; i++) {
		starts |= finder->targets[i];
		if (body->statements[i].kind != PTX_STATEMENT_INSTRUCTION)
			continue;
		if (starts && !block--)
			return add(finder, i, POINT_BLOCK, use, false);
		starts = ends_block(body, &body->statements[i]);
	}
	return 0;
}

static int compare_sites(const void *a, const void *b) {
	static const uint8_t order[] = { [POINT_ENTRY] = 0,
					 [POINT_BLOCK] = 1,
					 [POINT_LINE] = 2,
					 [POINT_MEMORY] = 3,
					 [POINT_RETURN] = 4 };
	const struct probe_site *left = a, *right = b;

	if (left->statement != right->statement)
		return left->statement < right->statement ? -1 : 1;
	if (left->point != right->point)
		return order[left->point] - order[right->point];
	return (left->use > right->use) - (left->use < right->use);
}

static int find_use(struct finder *finder, const struct probe_use *use, uint32_t index) {
	switch (use->point) {
	case POINT_ENTRY:
		return find_entry(finder, index);
	case POINT_RETURN:
		return find_returns(finder, index);
	case POINT_MEMORY:
		return find_memory(finder, index, use->spaces);
	case POINT_LINE:
		return use->file ? find_line(finder, index, use->file, use->line) : -EINVAL;
	case POINT_BLOCK:
		return find_block(finder, index, use->block);
	case POINT_CLASS: /* of machine code */
		break;
	}
	return -EINVAL;
}

/*
 * Statements that pass arguments, call or return, and take results: in this order they belong
 * together.
 */
enum frame_part {
	FRAME_NONE,
	FRAME_ARGUMENT,
	FRAME_CALL,
	FRAME_RESULT,
};

static enum frame_part frame_part(const struct probe_names *names, uint32_t index) {
	const struct ptx_body *body = names->body;
	const struct ptx_statement *statement = &body->statements[index];
	const struct ptx_variable *variable;
	uint32_t from;

	if (ptx_instruction_is(body, statement, "call") || is_return(body, statement))
		return FRAME_CALL;
	if (ptx_instruction_is(body, statement, "st") &&
	    (ptx_instruction_has(body, statement, "param") ||
	     ptx_instruction_has(body, statement, "param::func")))
		return FRAME_ARGUMENT;
	if (!ptx_instruction_is(body, statement, "ld") || statement->operand_count != 2)
		return FRAME_NONE;
	from = probe_names_addressed(body, &body->operands[statement->first_operand + 1]);
	variable = from == PTX_NONE ? NULL : probe_names_variable(names, index, from);
	return variable && variable->space == PTX_SPACE_PARAM ? FRAME_RESULT : FRAME_NONE;
}

/* Does it stand between arguments and their call without breaking them up? */
static bool is_frame_declaration(const struct ptx_body *body, uint32_t index) {
	switch (body->statements[index].kind) {
	case PTX_STATEMENT_LOC:
	case PTX_STATEMENT_VARIABLE:
	case PTX_STATEMENT_CALL_PROTOTYPE:
	case PTX_STATEMENT_CALL_TARGETS:
		return true;
	case PTX_STATEMENT_LABEL: /* of one of them */
		return index + 1 < body->statement_count &&
		       (body->statements[index + 1].kind == PTX_STATEMENT_CALL_PROTOTYPE ||
			body->statements[index + 1].kind == PTX_STATEMENT_CALL_TARGETS);
	}
	return false;
}

/* The first statement of those that an instruction belongs together with. */
static uint32_t frame_begin(const struct probe_names *names, uint32_t statement) {
	enum frame_part part = statement < names->body->statement_count
				       ? frame_part(names, statement)
				       : FRAME_NONE;
	enum frame_part before;
	uint32_t first = statement;

	for (uint32_t i = statement; part != FRAME_NONE && i--;) {
		if (is_frame_declaration(names->body, i))
			continue;
		before = frame_part(names, i);
		if (before == FRAME_NONE || before > part || (before == part && part == FRAME_CALL))
			break;
		first = i;
		part = before;
	}
	return first;
}

/* Is the parameter that the statement reads a result of the call? */
static bool is_result_of(const struct ptx_body *body, uint32_t index, uint32_t call_index) {
	const struct ptx_statement *statement = &body->statements[index];
	const struct ptx_token *name = &body->tokens[probe_names_addressed(
		body, &body->operands[statement->first_operand + 1])];
	struct ptx_call call;

	if (!ptx_instruction_call(body, &body->statements[call_index], &call))
		return false;
	for (uint32_t i = call.returns; i < call.returns_end; i++)
		if (!compare_names(&body->tokens[i], name, (void *)(uintptr_t)body->module->text))
			return true;
	return false;
}

/* Marks the sites that stand between a call and a read of its result. */
static int find_fragile(struct probe_sites *sites, const struct probe_names *names) {
	const struct ptx_body *body = names->body;
	bool *fragile = calloc((size_t)body->statement_count + 1, sizeof(*fragile));
	uint32_t call = PTX_NONE, marked = 0;

	if (!fragile)
		return -ENOMEM;
	for (uint32_t i = 0; i < body->statement_count; i++) {
		if (ptx_instruction_is(body, &body->statements[i], "call"))
			call = i;
		if (call == PTX_NONE || frame_part(names, i) != FRAME_RESULT ||
		    !is_result_of(body, i, call))
			continue;
		for (marked = marked > call ? marked : call + 1; marked <= i; marked++)
			fragile[marked] = true;
	}
	for (uint32_t i = 0; i < sites->count; i++)
		sites->sites[i].fragile = fragile[frame_begin(names, sites->sites[i].statement)];
	free(fragile);
	return 0;
}

int probe_sites_init(struct probe_sites *sites, const struct probe_names *names,
		     const struct probe_files *files, const struct probe_options *options,
		     const struct probe_function *function) {
	struct finder finder = {
		.sites = sites,
		.names = names,
		.body = names->body,
		.files = files,
		.options = options,
	};
	int r;

	*sites = (struct probe_sites){ 0 };
	r = find_targets(&finder);
	for (uint32_t i = 0; i < function->use_count && !r; i++)
		r = find_use(&finder, &function->uses[i], i);
	free(finder.targets);
	if (!r)
		r = find_fragile(sites, names);
	if (r)
		probe_sites_deinit(sites);
	else if (sites->count)
		qsort(sites->sites, sites->count, sizeof(*sites->sites), compare_sites);
	return r;
}

void probe_sites_deinit(struct probe_sites *sites) {
	free(sites->sites);
	*sites = (struct probe_sites){ 0 };
}

uint32_t probe_site_offset(const struct probe_names *names, const struct probe_site *site) {
	const struct ptx_body *body = names->body;
	uint32_t statement = site->statement, first;

	if (statement == body->statement_count)
		return body->function->body.offset + body->function->body.length - 1;
	if (site->point != POINT_ENTRY)
		statement = frame_begin(names, statement);
	first = statement;
	while (statement && (body->statements[statement - 1].kind == PTX_STATEMENT_PRAGMA ||
			     body->statements[statement - 1].kind == PTX_STATEMENT_LOC))
		if (body->statements[--statement].kind == PTX_STATEMENT_PRAGMA)
			first = statement;
	return body->tokens[body->statements[first].first].offset;
}
