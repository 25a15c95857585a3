/* SPDX-License-Identifier: Apache-2.0 */

/* Finds out what a kernel is and uses (kernel.h). */

#include "kernel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "attribute.h"

#define SIZE_128 6 /* in bits 73-75 of an access; one less is 64 bits */
#define STACK_POINTER 1 /* R1, which the first instruction sets */
#define ASYNC_REGISTERS 128 /* the largest accumulator of a warpgroup's multiplication */

static void mark_busy(struct sass_usage *usage, unsigned reg, unsigned n) {
	if (reg == SASS_ZERO_REGISTER)
		return;
	for (unsigned i = reg; i < reg + n && i < SASS_ZERO_REGISTER; i++)
		usage->busy[i / 8] |= 1U << i % 8;
}

/* How many registers a field may mean. What is not known to be less is four, beginning at a
 * multiple of four; results of DMMA, which is LATE and VARIABLE, may be eight. */
static void mark_field(struct sass_usage *usage, const struct sass_opcode *opcode,
		       struct sass_word word, unsigned field) {
	const unsigned reg = sass_field(word, field), size = (unsigned)sass_bits(word, 73, 3);

	if (opcode->flags & SASS_ASYNC)
		mark_busy(usage, reg, ASYNC_REGISTERS);
	else if (!(opcode->flags & SASS_SIZED) || size > SIZE_128)
		mark_busy(usage, reg == SASS_ZERO_REGISTER ? reg : reg & ~3U,
			  (opcode->flags & SASS_LATE) && (opcode->flags & SASS_VARIABLE) ? 8 : 4);
	else if (field == SASS_F24)
		mark_busy(usage, reg, 2);
	else
		mark_busy(usage, reg, size == SIZE_128 ? 4 : size == SIZE_128 - 1 ? 2 : 1);
}

/*
 * Registers of a memory instruction are read after it was issued, and written later still. Whoever
 * waits for all scoreboards, as a probe at an exit does, is safe from those that have one. Left
 * are: registers of instructions without any scoreboard, or with a result and none for it, and all
 * of what goes on behind scoreboards. ptxas leaves them out where the kernel does not need
 * them.
 */
static void find_busy(struct sass_usage *usage, const struct sass_opcode *opcode,
		      struct sass_word word) {
	const bool written = sass_write_scoreboard(word) != SASS_NO_SCOREBOARD;
	const bool result = (opcode->registers & 1U << SASS_F16) &&
			    !(opcode->flags & SASS_NO_RESULT) &&
			    sass_field(word, SASS_F16) != SASS_ZERO_REGISTER;
	const bool read = sass_read_scoreboard(word) != SASS_NO_SCOREBOARD;

	if ((opcode->flags & SASS_VARIABLE) && !written)
		usage->late_predicates |= sass_predicates(opcode, word, SASS_P81 | SASS_P84);
	for (unsigned field = 0; field < _SASS_FIELDS; field++) {
		const bool source = !result || ((opcode->flags & SASS_SIZED) && field != SASS_F16);
		const bool safe = written || (read && source);

		if ((opcode->registers & 1U << field) &&
		    ((opcode->flags & SASS_ASYNC) ||
		     ((opcode->flags & SASS_LATE) && field == SASS_F16) ||
		     ((opcode->flags & SASS_VARIABLE) && !safe)))
			mark_field(usage, opcode, word, field);
	}
}

static void find_uniform(struct sass_usage *usage, const struct sass_opcode *opcode,
			 struct sass_word word) {
	if (!sass_has_uniform(opcode, word))
		return;
	for (unsigned field = 0; field < _SASS_FIELDS; field++) {
		const unsigned quad = (sass_field(word, field) & SASS_ZERO_UNIFORM) / 4;

		if (!(opcode->uniform & 1U << field))
			continue;
		usage->uniform_quads |= 1U << quad;
		if (opcode->flags & SASS_WIDE)
			usage->uniform_quads |= 6U << quad; /* with up to 8 more */
	}
}

static void find_barriers(struct sass_usage *usage, const struct sass_opcode *opcode,
			  struct sass_word word) {
	for (unsigned field = 0; field < _SASS_FIELDS; field++)
		if (opcode->barriers & 1U << field)
			usage->barriers |= 1U << (sass_field(word, field) & 15);
}

static bool is_relocated(const struct sass_kernel *kernel, uint64_t at) {
	return kernel->relocated[at / SASS_WORD_SIZE / 8] & 1U << at / SASS_WORD_SIZE % 8;
}

/* Calls go to a place in this section, or have a relocation or a register. */
static int check_target(struct sass_kernel *kernel, const struct sass_cubin *cubin, size_t section,
			const struct sass_opcode *opcode, uint64_t at,
			struct sass_refusal *refusal) {
	const struct sass_section *text = &cubin->sections[section];
	const struct sass_word word = sass_read(text->content, at);
	uint64_t target;

	if ((opcode->flags & SASS_CALL) && (opcode->registers || is_relocated(kernel, at))) {
		kernel->usage.calls_out = true;
		return 0;
	}
	if (!sass_target(kernel->arch, opcode, word, at, &target))
		return 0;
	if (!target && section == kernel->text)
		return sass_refuse_word(refusal, "a branch to the kernel's first instruction", at,
					word);
	if (target >= text->header.sh_size || target % SASS_WORD_SIZE)
		return sass_refuse_word(refusal, "a branch out of the kernel", at, word);
	return 0;
}

static int add_exit(struct sass_kernel *kernel, uint64_t at) {
	if (kernel->n_exits == kernel->exits_room) {
		const size_t room = kernel->exits_room ? 2 * kernel->exits_room : 8;
		uint32_t *exits = reallocarray(kernel->exits, room, sizeof(*exits));

		if (!exits)
			return -ENOMEM;
		kernel->exits = exits;
		kernel->exits_room = room;
	}
	kernel->exits[kernel->n_exits++] = (uint32_t)at;
	return 0;
}

static int read_exit(struct sass_kernel *kernel, const struct sass_cubin *cubin, size_t section,
		     uint64_t at, struct sass_refusal *refusal) {
	const struct sass_arch *arch = kernel->arch;
	const struct sass_word word = sass_read(cubin->sections[section].content, at);

	if (section != kernel->text)
		return sass_refuse_word(refusal, "a function that may be called has an exit", at,
					word);
	if (((word.lo ^ arch->exit.lo) & ~arch->exit_lo) ||
	    ((word.hi ^ arch->exit.hi) & ~arch->exit_hi))
		return sass_refuse_word(refusal, "an exit of an unknown form", at, word);
	if (is_relocated(kernel, at))
		return sass_refuse_word(refusal, "an exit with a relocation", at, word);
	return add_exit(kernel, at);
}

static int read_word(struct sass_kernel *kernel, const struct sass_cubin *cubin, size_t section,
		     uint64_t at, struct sass_refusal *refusal) {
	const struct sass_word word = sass_read(cubin->sections[section].content, at);
	const struct sass_opcode *opcode = sass_opcode_find(kernel->arch, word);
	struct sass_usage *usage = &kernel->usage;

	if (!opcode)
		return sass_refuse_word(refusal, "an unknown instruction", at, word);
	if (section == kernel->text && !at && is_relocated(kernel, at))
		return sass_refuse_word(refusal, "a first instruction with a relocation", at, word);
	/* The stack pointer has no scoreboard: all code relies on it. Nobody else writes it. */
	if (section == kernel->text && !at)
		usage->busy[STACK_POINTER / 8] |= 1U << STACK_POINTER % 8;
	else
		find_busy(usage, opcode, word);
	find_uniform(usage, opcode, word);
	usage->uniform_predicates |= (uint8_t)sass_uniform_predicates(opcode, word);
	find_barriers(usage, opcode, word);
	if (opcode->flags & SASS_SETMAXREG) {
		const uint32_t n = (uint32_t)sass_bits(word, 32, 9);

		if (!usage->least_registers || n < usage->least_registers)
			usage->least_registers = n;
	}
	if (opcode->flags & SASS_EXIT)
		return read_exit(kernel, cubin, section, at, refusal);
	return check_target(kernel, cubin, section, opcode, at, refusal);
}

static int read_text(struct sass_kernel *kernel, const struct sass_cubin *cubin, size_t section,
		     struct sass_refusal *refusal) {
	const struct sass_section *text = &cubin->sections[section];
	int r = 0;

	if (text->header.sh_size % SASS_WORD_SIZE || text->header.sh_size >= UINT32_MAX)
		return sass_refuse(refusal, "section %.120s: its size is %llu", text->name,
				   (unsigned long long)text->header.sh_size);
	kernel->relocated = sass_cubin_relocated(cubin, section, SASS_WORD_SIZE);
	if (!kernel->relocated)
		return -ENOMEM;
	for (uint64_t at = 0; !r && at < text->header.sh_size; at += SASS_WORD_SIZE)
		r = read_word(kernel, cubin, section, at, refusal);
	free(kernel->relocated);
	kernel->relocated = NULL;
	return r;
}

uint32_t sass_registers_of(const struct sass_cubin *cubin, uint64_t symbol) {
	const size_t info = sass_cubin_find(cubin, ".nv.info", "");
	const struct sass_section *section = &cubin->sections[info];
	struct sass_attribute attribute;
	size_t at = 0;

	while (section->content &&
	       sass_attribute_next(section->content, section->header.sh_size, &at, &attribute) == 1)
		if (attribute.kind == SASS_REGCOUNT && attribute.size == 8 && attribute.value &&
		    sass_u32(attribute.value, 0) == symbol)
			return sass_u32(attribute.value, 4);
	return 0;
}

static bool is_function(const struct sass_cubin *cubin, const Elf64_Sym *symbol) {
	return ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && symbol->st_shndx != SHN_UNDEF &&
	       symbol->st_shndx < cubin->n_sections && !(symbol->st_other & SASS_STO_ENTRY) &&
	       !symbol->st_value && cubin->sections[symbol->st_shndx].content;
}

/* The largest count of registers of all functions. */
static uint32_t most_registers(const struct sass_cubin *cubin) {
	const struct sass_section *section =
		&cubin->sections[sass_cubin_find(cubin, ".nv.info", "")];
	struct sass_attribute attribute;
	uint32_t most = 0;
	size_t at = 0;

	while (section->content && sass_attribute_next(section->content, section->header.sh_size,
						       &at, &attribute) == 1) {
		const char *name;
		Elf64_Sym symbol;

		if (attribute.kind == SASS_REGCOUNT && attribute.size == 8 && attribute.value &&
		    sass_cubin_symbol(cubin, sass_u32(attribute.value, 0), &symbol, &name) &&
		    is_function(cubin, &symbol) && sass_u32(attribute.value, 4) > most)
			most = sass_u32(attribute.value, 4);
	}
	return most;
}

/* All functions in sections of their own: which of them is called is not followed. */
static int read_functions(struct sass_kernel *kernel, const struct sass_cubin *cubin,
			  struct sass_refusal *refusal) {
	bool *seen = calloc(cubin->n_sections, sizeof(*seen));
	const char *name;
	Elf64_Sym symbol;
	int r = seen ? 0 : -ENOMEM;

	for (uint64_t i = 1; !r && sass_cubin_symbol(cubin, i, &symbol, &name); i++) {
		if (!is_function(cubin, &symbol) || symbol.st_shndx == kernel->text ||
		    seen[symbol.st_shndx])
			continue;
		seen[symbol.st_shndx] = true;
		r = read_text(kernel, cubin, symbol.st_shndx, refusal);
	}
	free(seen);
	if (!r && most_registers(cubin) > kernel->registers)
		kernel->registers = most_registers(cubin);
	return r;
}

static int find_symbol(struct sass_kernel *kernel, const struct sass_cubin *cubin,
		       const char *wanted, struct sass_refusal *refusal) {
	const struct sass_section *text;
	const char *name;
	Elf64_Sym symbol;

	for (kernel->symbol = 1; sass_cubin_symbol(cubin, kernel->symbol, &symbol, &name);
	     kernel->symbol++)
		if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC &&
		    (symbol.st_other & SASS_STO_ENTRY) && name && !strcmp(name, wanted))
			break;
	if (!sass_cubin_symbol(cubin, kernel->symbol, &symbol, &name))
		return sass_refuse(refusal, "the cubin has no kernel %.160s", wanted);
	if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx >= cubin->n_sections)
		return sass_refuse(refusal, "the kernel has no section");
	text = &cubin->sections[symbol.st_shndx];
	if (text->header.sh_type != SHT_PROGBITS || !(text->header.sh_flags & SHF_EXECINSTR) ||
	    symbol.st_value || symbol.st_size != text->header.sh_size ||
	    symbol.st_size < 2 * SASS_WORD_SIZE)
		return sass_refuse(refusal, "section %.120s is not the kernel's alone", text->name);
	kernel->text = symbol.st_shndx;
	kernel->info = sass_cubin_find(cubin, ".nv.info.", wanted);
	kernel->constants = sass_cubin_find(cubin, ".nv.constant0.", wanted);
	kernel->registers = sass_registers_of(cubin, kernel->symbol);
	if (!kernel->info || !cubin->sections[kernel->info].content || !kernel->registers)
		return sass_refuse(refusal,
				   "the cubin has no attributes of the kernel, or no count "
				   "of its registers");
	return 0;
}

static int by_offset(const void *a, const void *b) {
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static int compare_exits(struct sass_kernel *kernel, const struct sass_attribute *attribute,
			 size_t *n, struct sass_refusal *refusal) {
	for (size_t i = 0; i < attribute->size / sizeof(uint32_t); i++, ++*n) {
		const uint32_t at = sass_u32(attribute->value, i * sizeof(uint32_t));

		if (!kernel->n_exits || !bsearch(&at, kernel->exits, kernel->n_exits,
						 sizeof(*kernel->exits), by_offset))
			return sass_refuse(refusal,
					   "attribute 0x1c names an exit at 0x%x, where "
					   "none is",
					   at);
	}
	return 0;
}

static int check_tables(const struct sass_attribute *attribute, struct sass_refusal *refusal) {
	const size_t words = attribute->size / sizeof(uint32_t);

	for (size_t i = 0; i + 3 <= words;) {
		const uint32_t n = sass_u32(attribute->value, 4 * (i + 2));

		if (n > words - i - 3)
			return sass_refuse(refusal, "attribute 0x34 is malformed");
		for (size_t k = 0; k < n; k++)
			if (!sass_u32(attribute->value, 4 * (i + 3 + k)))
				return sass_refuse(refusal, "attribute 0x34 names the kernel's "
							    "first instruction");
		i += 3 + n;
	}
	return 0;
}

static int read_parameter(struct sass_kernel *kernel, const struct sass_attribute *attribute,
			  struct sass_refusal *refusal) {
	const bool v2 = attribute->kind == SASS_KPARAM_INFO_V2;
	uint32_t number, size;

	if (!attribute->value || attribute->size != 12)
		return sass_refuse(refusal, "attribute 0x%02x is malformed", attribute->kind);
	number = sass_u32(attribute->value, 4) & 0xffff;
	size = sass_u32(attribute->value, 8);
	if (number >= SASS_PARAMETERS_MAX)
		return sass_refuse(refusal, "the kernel has parameter %u", number);
	if (!kernel->parameter)
		kernel->parameter = calloc(SASS_PARAMETERS_MAX, sizeof(*kernel->parameter));
	if (!kernel->parameter)
		return -ENOMEM;
	kernel->parameter[number] = (struct sass_parameter){
		.offset = sass_u32(attribute->value, 4) >> 16,
		.size = v2 ? size : size >> 18,
	};
	kernel->parameters_v2 |= v2;
	kernel->parameters_n++;
	return 0;
}

static int read_value(struct sass_kernel *kernel, const struct sass_attribute *attribute,
		      size_t *n_exits, struct sass_refusal *refusal) {
	const uint8_t *value = attribute->value;

	switch (attribute->kind) {
	case SASS_EXIT_INSTR_OFFSETS:
		return value ? compare_exits(kernel, attribute, n_exits, refusal) : 0;
	case SASS_INDIRECT_BRANCH_TARGETS:
		return value ? check_tables(attribute, refusal) : 0;
	case SASS_CBANK_PARAM_SIZE:
		kernel->parameters = attribute->size;
		break;
	case SASS_KPARAM_INFO:
	case SASS_KPARAM_INFO_V2:
		return read_parameter(kernel, attribute, refusal);
	case SASS_PARAM_CBANK:
		if (!value || attribute->size != 8 ||
		    (sass_u32(value, 4) & 0xffff) != kernel->arch->parameters)
			return sass_refuse(refusal, "attribute 0x0a: parameters begin elsewhere");
		break;
	case SASS_MAX_THREADS:
		if (value && attribute->size == 12)
			kernel->max_threads =
				sass_u32(value, 0) * sass_u32(value, 4) * sass_u32(value, 8);
		break;
	}
	return 0;
}

static int read_attributes(struct sass_kernel *kernel, const struct sass_cubin *cubin, size_t index,
			   bool own, struct sass_refusal *refusal) {
	const struct sass_section *section = &cubin->sections[index];
	struct sass_attribute attribute;
	size_t at = 0, n_exits = 0;
	int r, found;

	if (!section->content)
		return 0;
	while ((found = sass_attribute_next(section->content, section->header.sh_size, &at,
					    &attribute)) == 1) {
		if (!sass_attribute_is_known(attribute.kind))
			return sass_refuse(refusal, "attribute 0x%02x of %.120s is unknown",
					   attribute.kind, section->name);
		r = own ? read_value(kernel, &attribute, &n_exits, refusal) : 0;
		if (r)
			return r;
	}
	if (found)
		return sass_refuse(refusal, "section %.120s is malformed", section->name);
	if (own && n_exits != kernel->n_exits)
		return sass_refuse(refusal, "%zu exits, and attribute 0x1c has %zu",
				   kernel->n_exits, n_exits);
	return 0;
}

static int check_first(const struct sass_kernel *kernel, const struct sass_cubin *cubin,
		       struct sass_refusal *refusal) {
	const struct sass_word word = sass_read(cubin->sections[kernel->text].content, 0);
	const struct sass_word wanted = kernel->arch->first;
	const uint64_t plain = (UINT64_C(1) << 41) - 1; /* without control bits */

	if (word.lo != wanted.lo || ((word.hi ^ wanted.hi) & plain))
		return sass_refuse_word(refusal, "an unknown first instruction", 0, word);
	return 0;
}

int sass_kernel_init(struct sass_kernel *kernel, const struct sass_cubin *cubin, const char *name,
		     struct sass_refusal *refusal) {
	const size_t global = sass_cubin_find(cubin, ".nv.info", "");
	int r;

	*kernel = (struct sass_kernel){ .arch = sass_arch_find(cubin->sm) };
	if (!kernel->arch)
		return sass_refuse(refusal, "machine code for sm_%u is not understood", cubin->sm);
	r = find_symbol(kernel, cubin, name, refusal);
	if (!r)
		r = check_first(kernel, cubin, refusal);
	if (!r)
		r = read_text(kernel, cubin, kernel->text, refusal);
	if (!r && kernel->usage.calls_out)
		r = read_functions(kernel, cubin, refusal);
	if (!r)
		r = read_attributes(kernel, cubin, kernel->info, true, refusal);
	if (!r)
		r = read_attributes(kernel, cubin, global, false, refusal);
	if (r)
		sass_kernel_deinit(kernel);
	return r;
}

void sass_kernel_deinit(struct sass_kernel *kernel) {
	free(kernel->exits);
	free(kernel->relocated);
	free(kernel->parameter);
	*kernel = (struct sass_kernel){};
}
