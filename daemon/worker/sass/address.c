/* SPDX-License-Identifier: Apache-2.0 */

/* Looks for addresses in the code of kernels (address.h). */

#include "address.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"

#define RELOCATION_NONE 0 /* R_CUDA_NONE */
#define RELOCATION_64 2 /* R_CUDA_64 */
#define BANK_NAME ".nv.constant4"
#define LOOK_BACK 64 /* instructions before a call in which its target is looked for */

struct look {
	const struct sass_cubin *cubin;
	const struct sass_kernel *kernel;
	struct sass_slots *slots;
	size_t section; /* of code */
	struct sass_refusal *refusal;
};

/* What a relocation is about. */
struct target {
	Elf64_Rela entry;
	Elf64_Sym symbol;
	const char *name; /* of the symbol; "" if it has none */
	const char *section; /* in which it is; "" if in none */
};

/* Functions that the driver gives to each module. */
static bool is_drivers(const struct target *target) {
	static const char *const names[] = { "vprintf", "malloc", "free", "__assertfail" };

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (target->symbol.st_shndx == SHN_UNDEF && !strcmp(target->name, names[i]))
			return true;
	return false;
}

static bool is_variable(const struct target *target) {
	return !strncmp(target->section, ".nv.global", 10);
}

/* The driver's, or of the block's memory: the same in each module. */
static bool is_harmless(const struct target *target) {
	return !strncmp(target->section, ".nv.shared", 10) ||
	       !strncmp(target->name, ".nv.reservedSmem", 16) ||
	       !strncmp(target->name, "__nv_reservedSMEM", 17);
}

/* An entry of a table of relocations. False: it is none. */
static bool read_target(const struct sass_cubin *cubin, size_t table, size_t index,
			struct target *target) {
	const struct sass_section *section = &cubin->sections[table];
	const size_t size =
		section->header.sh_type == SHT_RELA ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
	const char *name;

	if (!section->content || index >= section->header.sh_size / size)
		return false;
	*target = (struct target){ .name = "", .section = "" };
	memcpy(&target->entry, section->content + index * size, size);
	if (!sass_cubin_symbol(cubin, ELF64_R_SYM(target->entry.r_info), &target->symbol, &name))
		return false;
	if (name)
		target->name = name;
	if (target->symbol.st_shndx != SHN_UNDEF && target->symbol.st_shndx < cubin->n_sections)
		target->section = cubin->sections[target->symbol.st_shndx].name;
	return true;
}

static bool is_table_of(const struct sass_cubin *cubin, size_t table, size_t section) {
	const Elf64_Shdr *header = &cubin->sections[table].header;

	return header->sh_info == section &&
	       (header->sh_type == SHT_REL || header->sh_type == SHT_RELA);
}

/* A relocation of an instruction. */
static int check_instruction(const struct look *look, const struct target *target) {
	const struct sass_section *text = &look->cubin->sections[look->section];
	const uint64_t at = target->entry.r_offset / SASS_WORD_SIZE * SASS_WORD_SIZE;
	const struct sass_opcode *opcode;
	struct sass_word word;

	if (at + SASS_WORD_SIZE > text->header.sh_size)
		return sass_refuse(look->refusal, "a relocation outside of %.120s", text->name);
	word = sass_read(text->content, at);
	opcode = sass_opcode_find(look->kernel->arch, word);
	if (target->symbol.st_shndx == look->section || is_harmless(target) ||
	    (opcode && (opcode->flags & SASS_CALL) &&
	     (target->symbol.st_shndx != SHN_UNDEF || is_drivers(target))))
		return 0;
	return sass_refuse(look->refusal, "an instruction has the address of %.120s at 0x%llx",
			   *target->name ? target->name : "a section", (unsigned long long)at);
}

/* The relocation of 8 bytes of a section. False: they have none. */
static bool find_relocation(const struct sass_cubin *cubin, size_t section, uint64_t at,
			    struct target *target, struct sass_slot *slot) {
	for (size_t table = 1; table < cubin->n_sections; table++) {
		if (!is_table_of(cubin, table, section))
			continue;
		for (size_t i = 0; read_target(cubin, table, i, target); i++) {
			if (target->entry.r_offset != at)
				continue;
			slot->relocation = (uint32_t)table;
			slot->entry = (uint32_t)i;
			return true;
		}
	}
	return false;
}

static int add_slot(struct sass_slots *slots, const struct sass_slot *slot) {
	for (size_t i = 0; i < slots->n; i++)
		if (slots->slots[i].at == slot->at)
			return 0;
	if (slots->n == slots->allocated) {
		const size_t allocated = slots->allocated ? 2 * slots->allocated : 16;
		struct sass_slot *more = reallocarray(slots->slots, allocated, sizeof(*more));

		if (!more)
			return -ENOMEM;
		slots->slots = more;
		slots->allocated = allocated;
	}
	slots->slots[slots->n++] = *slot;
	return 0;
}

/* Can a branch lead to an instruction behind `from`, up to `to`? */
static bool is_target(const struct look *look, uint64_t from, uint64_t to) {
	const struct sass_section *text = &look->cubin->sections[look->section];

	for (uint64_t at = 0; at < text->header.sh_size; at += SASS_WORD_SIZE) {
		const struct sass_word word = sass_read(text->content, at);
		const struct sass_opcode *opcode = sass_opcode_find(look->kernel->arch, word);
		uint64_t target;

		if (!opcode || (opcode->flags & SASS_INDIRECT) ||
		    (sass_target(look->kernel->arch, opcode, word, at, &target) && target > from &&
		     target <= to))
			return true;
	}
	return false;
}

/* The instruction that gives a register the value that it has at a place: right before it, without
 * branches in between. False: it was not found. */
static bool find_source(const struct look *look, unsigned reg, uint64_t at, uint64_t *where) {
	const struct sass_section *text = &look->cubin->sections[look->section];

	for (uint64_t back = 1; back <= LOOK_BACK && back * SASS_WORD_SIZE <= at; back++) {
		const uint64_t from = at - back * SASS_WORD_SIZE;
		const struct sass_word word = sass_read(text->content, from);
		const struct sass_opcode *opcode = sass_opcode_find(look->kernel->arch, word);

		if (!opcode || (opcode->flags & (SASS_BRANCH | SASS_CALL | SASS_RETURN)))
			return false;
		if (!(opcode->registers & 1U << SASS_F16) || (opcode->flags & SASS_NO_RESULT) ||
		    sass_field(word, SASS_F16) != reg)
			continue;
		*where = from;
		return sass_bits(word, 12, 4) == SASS_TRUE_PREDICATE && !is_target(look, from, at);
	}
	return false;
}

/* The number that an instruction moves into a register. False: it is no such move. */
static bool read_number(const struct sass_arch *arch, struct sass_word word, uint32_t *number) {
	const struct sass_number *move = arch->numbers;

	while (move->opcode &&
	       (move->opcode != (word.lo & 0xfff) ||
		(move->zero_f24 && sass_field(word, SASS_F24) != SASS_ZERO_REGISTER) ||
		(move->zero_f64 && sass_field(word, SASS_F64) != SASS_ZERO_REGISTER)))
		move++;
	*number = (uint32_t)(word.lo >> 32);
	return move->opcode;
}

/* Where a load reads a constant bank: its register, if it names one, must have a known number. */
static bool find_offset(const struct look *look, struct sass_word word, uint64_t at,
			uint32_t *offset) {
	const struct sass_section *text = &look->cubin->sections[look->section];
	const struct sass_opcode *opcode = sass_opcode_find(look->kernel->arch, word);
	const unsigned index = sass_field(word, SASS_F24);
	uint32_t number = 0;
	uint64_t where;

	*offset = sass_constant_offset(word);
	if ((opcode->uniform & 1U << SASS_F24) && (index & SASS_ZERO_UNIFORM) != SASS_ZERO_UNIFORM)
		return false;
	if (!(opcode->registers & 1U << SASS_F24) || index == SASS_ZERO_REGISTER)
		return true;
	if (!find_source(look, index, at, &where) ||
	    !read_number(look->kernel->arch, sass_read(text->content, where), &number))
		return false;
	*offset += number;
	return true;
}

/* Code reads bank 4 there. */
static int check_address(const struct look *look, struct sass_word word, uint64_t at) {
	const size_t bank = sass_cubin_find(look->cubin, BANK_NAME, "");
	const struct sass_section *section = &look->cubin->sections[bank];
	struct sass_slot slot = {};
	struct target target;

	if (!find_offset(look, word, at, &slot.at))
		return sass_refuse_word(look->refusal, "it reads addresses by an index", at, word);
	slot.at &= ~7U;
	if (!bank || !section->content || slot.at + sizeof(uint64_t) > section->header.sh_size)
		return sass_refuse_word(look->refusal, "it reads what constant bank 4 has not", at,
					word);
	if (!find_relocation(look->cubin, bank, slot.at, &target, &slot) || is_drivers(&target))
		return 0;
	if (!is_variable(&target) || ELF64_R_TYPE(target.entry.r_info) != RELOCATION_64 ||
	    ELF64_ST_TYPE(target.symbol.st_info) != STT_OBJECT || !*target.name)
		return sass_refuse(look->refusal,
				   "it takes the address of %.120s, which is no variable (%.40s, "
				   "relocation of type %u)",
				   *target.name ? target.name : "a section", target.section,
				   (unsigned)ELF64_R_TYPE(target.entry.r_info));
	slot.variable = target.name;
	slot.addend = target.entry.r_addend;
	if (look->cubin->sections[slot.relocation].header.sh_type == SHT_REL)
		memcpy(&slot.addend, section->content + slot.at, sizeof(slot.addend));
	return add_slot(look->slots, &slot);
}

/* A call of what a register says must be one of the driver's functions. */
static int check_call(const struct look *look, struct sass_word call, uint64_t at) {
	const struct sass_section *text = &look->cubin->sections[look->section];
	const size_t bank = sass_cubin_find(look->cubin, BANK_NAME, "");
	const struct sass_opcode *opcode;
	struct sass_word word;
	struct sass_slot slot;
	struct target target;
	uint32_t offset;
	uint64_t where;

	if (bank && find_source(look, sass_field(call, SASS_F24), at, &where)) {
		word = sass_read(text->content, where);
		opcode = sass_opcode_find(look->kernel->arch, word);
		if ((opcode->flags & SASS_CONSTANT) &&
		    sass_constant_bank(word) == SASS_BANK_ADDRESSES &&
		    find_offset(look, word, where, &offset) &&
		    find_relocation(look->cubin, bank, offset, &target, &slot) &&
		    is_drivers(&target))
			return 0;
	}
	return sass_refuse_word(look->refusal, "it calls functions by pointers", at, call);
}

static int check_word(const struct look *look, struct sass_word word, uint64_t at) {
	const struct sass_opcode *opcode = sass_opcode_find(look->kernel->arch, word);
	const bool constant = opcode && (opcode->flags & SASS_CONSTANT);

	if (!opcode)
		return sass_refuse_word(look->refusal, "an unknown instruction", at, word);
	if (constant && sass_constant_bank(word) == SASS_BANK_CONSTANTS)
		return sass_refuse_word(look->refusal, "it reads __constant__ variables", at, word);
	if (constant && sass_constant_bank(word) == SASS_BANK_ADDRESSES)
		return check_address(look, word, at);
	if ((opcode->flags & SASS_CALL) && opcode->registers)
		return check_call(look, word, at);
	return 0;
}

static int look_at(struct look *look) {
	const struct sass_section *text = &look->cubin->sections[look->section];
	struct target target;
	int r = 0;

	for (size_t table = 1; table < look->cubin->n_sections; table++)
		for (size_t i = 0; !r && is_table_of(look->cubin, table, look->section) &&
				   read_target(look->cubin, table, i, &target);
		     i++)
			r = check_instruction(look, &target);
	for (uint64_t at = 0; !r && at < text->header.sh_size; at += SASS_WORD_SIZE)
		r = check_word(look, sass_read(text->content, at), at);
	return r;
}

/* A table of the kernel in bank 2: its own code's addresses stay right. */
static int check_tables(const struct look *look) {
	const size_t bank =
		sass_cubin_find(look->cubin, ".nv.constant2.",
				look->cubin->sections[look->kernel->text].name + strlen(".text."));
	struct target target;

	for (size_t table = 1; bank && table < look->cubin->n_sections; table++)
		for (size_t i = 0; is_table_of(look->cubin, table, bank) &&
				   read_target(look->cubin, table, i, &target);
		     i++)
			if (target.symbol.st_shndx != look->kernel->text)
				return sass_refuse(look->refusal,
						   "its table of addresses has %.120s",
						   *target.name ? target.name : "a section");
	return 0;
}

int sass_slots_add(struct sass_slots *slots, const struct sass_cubin *cubin,
		   const struct sass_kernel *kernel, struct sass_refusal *refusal) {
	struct look look = { .cubin = cubin, .kernel = kernel, .slots = slots, .refusal = refusal };
	int r;

	if (strncmp(cubin->sections[kernel->text].name, ".text.", 6))
		return sass_refuse(refusal, "the section %.120s has an unknown name",
				   cubin->sections[kernel->text].name);
	r = check_tables(&look);
	for (size_t i = 1; !r && i < cubin->n_sections; i++) {
		const struct sass_section *section = &cubin->sections[i];
		const char *name;
		Elf64_Sym symbol;
		bool kernels = false;

		if (!section->content || !(section->header.sh_flags & SHF_EXECINSTR) ||
		    (i != kernel->text && !kernel->usage.calls_out))
			continue;
		for (uint64_t k = 1;
		     i != kernel->text && !kernels && sass_cubin_symbol(cubin, k, &symbol, &name);
		     k++)
			kernels = symbol.st_shndx == i && (symbol.st_other & SASS_STO_ENTRY);
		look.section = i;
		r = kernels ? 0 : look_at(&look);
	}
	return r;
}

int sass_slots_drop(const struct sass_slots *slots, struct sass_cubin *cubin) {
	for (size_t i = 0; i < slots->n; i++) {
		const struct sass_slot *slot = &slots->slots[i];
		const size_t size = cubin->sections[slot->relocation].header.sh_size,
			     entry = cubin->sections[slot->relocation].header.sh_type == SHT_RELA
					     ? sizeof(Elf64_Rela)
					     : sizeof(Elf64_Rel);
		uint8_t *content = sass_cubin_change(cubin, slot->relocation, size);
		uint64_t info;

		if (!content)
			return -ENOMEM;
		content += slot->entry * entry + offsetof(Elf64_Rela, r_info);
		memcpy(&info, content, sizeof(info));
		info = ELF64_R_INFO(ELF64_R_SYM(info), RELOCATION_NONE);
		memcpy(content, &info, sizeof(info));
	}
	return 0;
}

void sass_slots_deinit(struct sass_slots *slots) {
	free(slots->slots);
	*slots = (struct sass_slots){};
}
