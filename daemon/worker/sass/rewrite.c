/* SPDX-License-Identifier: Apache-2.0 */

/* Puts probes into a kernel (rewrite.h). */

#include "rewrite.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "attribute.h"
#include "kernel.h"
#include "registers.h"

#define BLOCK_ALIGNMENT 8
#define PARAMETERS_MAX 4096 /* what KPARAM_INFO and all drivers can have, */
#define PARAMETERS_MAX_V2 32764 /* and KPARAM_INFO_V2 */
#define GUARD_SCOREBOARD 5
#define SEEN_STALL 2 /* the very next instruction does not see a scoreboard that is set */
#define LONGEST_STALL 15 /* results of the kernel's last calculations are there */
#define TEXT_ALIGNMENT 128

struct rewriter {
	const struct sass_request *request;
	struct sass_cubin *cubin;
	struct sass_kernel kernel;
	struct sass_buffer text; /* the kernel's code as it becomes, */
	struct sass_buffer info; /* and its attributes */
	struct sass_buffer exits; /* offsets of EXITs in it, if they are other ones, */
	struct sass_buffer lists[_SASS_LISTS]; /* and what probes add to lists */
	struct sass_twin twin;
};

static void append_word(struct rewriter *rewriter, struct sass_word word) {
	sass_buffer_append(&rewriter->text, &word, sizeof(word));
}

/* Constants behind the probe's parameters are those behind the kernel's; of its own banks, those
 * that data.h has put somewhere. */
static struct sass_word move_constant(const struct rewriter *rewriter,
				      const struct sass_opcode *opcode, struct sass_word word) {
	const unsigned offset = sass_constant_offset(word), bank = sass_constant_bank(word);
	const struct sass_request *request = rewriter->request;
	const bool own = bank == SASS_BANK_CONSTANTS && offset >= request->own_at &&
			 offset < request->own_at + sizeof(uint64_t);

	if (!(opcode->flags & SASS_CONSTANT))
		return word;
	if (bank)
		return sass_with_constant_offset(word, offset + request->bases.bank[bank] +
							       (own ? request->own_shift : 0));
	if (rewriter->request->own_parameters || offset < rewriter->kernel.arch->parameters)
		return word;
	return sass_with_constant_offset(word, offset + rewriter->twin.block_at);
}

/* What marks the end of a probe's body does nothing. */
static struct sass_word drop_mark(const struct rewriter *rewriter, struct sass_word word) {
	const struct sass_arch *arch = rewriter->kernel.arch;
	const uint64_t control = ~UINT64_C(0) << 41;

	if ((word.lo & 0xfff) != arch->mark)
		return word;
	return (struct sass_word){ arch->nop.lo, (arch->nop.hi & ~control) | (word.hi & control) };
}

/* Does an instruction read a register? */
static bool has_sources(const struct sass_opcode *opcode, struct sass_word word) {
	for (unsigned field = 0; field < _SASS_FIELDS; field++) {
		const unsigned value = sass_field(word, (enum sass_field)field);

		if (((opcode->registers & 1U << field) && value != SASS_ZERO_REGISTER) ||
		    ((opcode->uniform & 1U << field) && sass_has_uniform(opcode, word) &&
		     (value & SASS_ZERO_UNIFORM) != SASS_ZERO_UNIFORM))
			return true;
	}
	return false;
}

/*
 * The kernel's first instructions write registers that the probe's memory instructions may still
 * read or write. So each of them gets a scoreboard, which the end of the probe waits for.
 */
static struct sass_word guard(const struct sass_opcode *opcode, struct sass_word word) {
	const bool written = sass_write_scoreboard(word) != SASS_NO_SCOREBOARD;
	const bool read = sass_read_scoreboard(word) != SASS_NO_SCOREBOARD;
	const bool result = (opcode->registers & 1U << SASS_F16) &&
			    sass_field(word, SASS_F16) != SASS_ZERO_REGISTER;

	if (!(opcode->flags & SASS_VARIABLE) || written || (read && !result))
		return word;
	if (result || (opcode->uniform & 1U << SASS_F16))
		word = sass_set_bits(word, 110, 3, GUARD_SCOREBOARD);
	else if (has_sources(opcode, word))
		word = sass_set_bits(word, 113, 3, GUARD_SCOREBOARD);
	else
		return word;
	if (sass_stall(word) < SEEN_STALL)
		word = sass_set_bits(word, 105, 4, SEEN_STALL);
	return word;
}

static void note_lists(struct rewriter *rewriter, const struct sass_probe *probe,
		       const struct sass_map *map, uint64_t begin) {
	for (unsigned list = 0; list < _SASS_LISTS; list++)
		for (size_t i = 0; i < probe->n_list[list]; i++) {
			uint32_t value = probe->lists[list][i];

			if (list != SASS_LIST_MASKS)
				value += (uint32_t)begin;
			else if (value != SASS_MASK_ALL)
				value = SASS_MASK_REGISTER |
					(map->pair[(value & 0xff) / 2] * 2U + value % 2);
			sass_buffer_u32(&rewriter->lists[list], value);
		}
}

/*
 * The stub at the entry: BSSY, the probe with its exits as branches to the end, BSYNC, the kernel's
 * first instruction, and back. The warp is together again behind it, as the kernel may rely on.
 */
static void append_entry(struct rewriter *rewriter, const struct sass_map *map) {
	const struct sass_probe *probe = rewriter->request->entry;
	const struct sass_arch *arch = rewriter->kernel.arch;
	const uint64_t begin = rewriter->text.size + SASS_WORD_SIZE, end = begin + probe->size;
	const struct sass_word first = sass_read(rewriter->text.data, 0);
	unsigned barrier = 15;

	while (barrier && (probe->barriers & 1U << barrier))
		barrier--;
	append_word(rewriter, sass_bssy(arch, barrier, begin - SASS_WORD_SIZE, end));
	for (uint64_t at = 0; at < probe->size; at += SASS_WORD_SIZE) {
		struct sass_word word = sass_read(probe->code, at);
		const struct sass_opcode *opcode = sass_opcode_find(arch, word);

		if (opcode->flags & SASS_EXIT)
			word = sass_branch_for_exit(arch, word, begin + at, end);
		else
			word = guard(opcode, move_constant(rewriter, opcode,
							   sass_map_word(map, arch, word)));
		append_word(rewriter, drop_mark(rewriter, word));
	}
	note_lists(rewriter, probe, map, begin);
	append_word(rewriter,
		    sass_bsync(arch, barrier, probe->scoreboards | 1U << GUARD_SCOREBOARD));
	append_word(rewriter, first);
	append_word(rewriter, sass_branch(arch, rewriter->text.size, SASS_WORD_SIZE));
	if (!rewriter->text.failed)
		sass_write(rewriter->text.data, 0, sass_branch(arch, 0, begin - SASS_WORD_SIZE));
}

/*
 * The stub of all exits: the probe as it is, whose exits are now the kernel's. It begins by waiting
 * for all scoreboards: results that nobody waited for may be predicates or registers of the probe.
 */
static void append_exit(struct rewriter *rewriter, const struct sass_map *map) {
	const struct sass_probe *probe = rewriter->request->exit;
	const struct sass_arch *arch = rewriter->kernel.arch;
	const uint64_t begin = rewriter->text.size + SASS_WORD_SIZE;

	append_word(rewriter, sass_set_bits(sass_with_wait(arch->nop, SASS_ALL_SCOREBOARDS), 105, 4,
					    LONGEST_STALL));
	for (uint64_t at = 0; at < probe->size; at += SASS_WORD_SIZE) {
		struct sass_word word = sass_read(probe->code, at);
		const struct sass_opcode *opcode = sass_opcode_find(arch, word);

		if (opcode->flags & SASS_EXIT)
			sass_buffer_u32(&rewriter->exits, (uint32_t)(begin + at));
		word = move_constant(rewriter, opcode, sass_map_word(map, arch, word));
		append_word(rewriter, drop_mark(rewriter, word));
	}
	note_lists(rewriter, probe, map, begin);
	for (size_t i = 0; !rewriter->text.failed && i < rewriter->kernel.n_exits; i++) {
		const uint32_t at = rewriter->kernel.exits[i];

		sass_write(rewriter->text.data, at,
			   sass_branch_for_exit(arch, sass_read(rewriter->text.data, at), at,
						begin - SASS_WORD_SIZE));
	}
	rewriter->twin.exits = (uint32_t)rewriter->kernel.n_exits;
}

static int write_code(struct rewriter *rewriter, struct sass_refusal *refusal) {
	const struct sass_section *section = &rewriter->cubin->sections[rewriter->kernel.text];
	struct sass_map map;
	int r = 0;

	sass_buffer_append(&rewriter->text, section->content, section->header.sh_size);
	if (rewriter->text.failed)
		return -ENOMEM;
	/* The entry's stub is last, as it executes what is at the first place. */
	if (rewriter->request->exit) {
		r = sass_map_exit(&map, &rewriter->kernel, rewriter->request->exit, refusal);
		if (r)
			return r;
		append_exit(rewriter, &map);
		rewriter->twin.registers = map.registers;
	}
	if (rewriter->request->entry) {
		r = sass_map_entry(&map, &rewriter->kernel, rewriter->request->entry, refusal);
		if (r)
			return r;
		append_entry(rewriter, &map);
		if (map.registers > rewriter->twin.registers)
			rewriter->twin.registers = map.registers;
	}
	while (!rewriter->text.failed && rewriter->text.size % TEXT_ALIGNMENT)
		append_word(rewriter, rewriter->kernel.arch->nop);
	return rewriter->text.failed ? -ENOMEM : 0;
}

/* The block as a parameter: its number, offset and size. */
static bool append_parameter(const struct rewriter *rewriter, struct sass_buffer *info) {
	const struct sass_kernel *kernel = &rewriter->kernel;
	uint32_t value[3] = { 0, kernel->parameters_n | rewriter->twin.block_at << 16,
			      rewriter->twin.block };

	if (kernel->parameters_v2)
		return sass_attribute_append(info, SASS_KPARAM_INFO_V2, value, sizeof(value));
	value[2] = rewriter->twin.block << 18 | 0x1f000;
	return sass_attribute_append(info, SASS_KPARAM_INFO, value, sizeof(value));
}

/* Of a kernel without parameters: where they lie, and their size. False: no symbol of the bank. */
static bool append_first_parameter(const struct rewriter *rewriter, struct sass_buffer *info) {
	const uint8_t size[4] = { SASS_FORMAT_HALF, SASS_CBANK_PARAM_SIZE,
				  rewriter->twin.block & 0xff, rewriter->twin.block >> 8 & 0xff };
	const char *name;
	Elf64_Sym symbol;

	for (uint32_t i = 1; sass_cubin_symbol(rewriter->cubin, i, &symbol, &name); i++) {
		const uint32_t value[2] = { i, rewriter->kernel.arch->parameters |
						       rewriter->twin.block << 16 };

		if (ELF64_ST_TYPE(symbol.st_info) != STT_SECTION ||
		    symbol.st_shndx != rewriter->kernel.constants)
			continue;
		append_parameter(rewriter, info);
		sass_buffer_append(info, size, sizeof(size));
		return sass_attribute_append(info, SASS_PARAM_CBANK, value, sizeof(value));
	}
	return false;
}

/* An attribute as it becomes. Lists that are written anew are left out; false: too long. */
static bool append_attribute(const struct rewriter *rewriter, const uint8_t *data,
			     const struct sass_attribute *attribute, struct sass_buffer *info) {
	const uint32_t size = rewriter->twin.block_at + rewriter->twin.block;
	const size_t begin = info->size;

	if (attribute->kind == SASS_EXIT_INSTR_OFFSETS && rewriter->request->exit)
		return true;
	if (attribute->value && sass_list_of(attribute->kind) < _SASS_LISTS &&
	    rewriter->lists[sass_list_of(attribute->kind)].size)
		return true; /* in merge_list() */
	sass_buffer_append(info, data + attribute->at, attribute->end - attribute->at);
	if (info->failed || !rewriter->twin.block)
		return true;
	if (attribute->kind == SASS_CBANK_PARAM_SIZE)
		memcpy(info->data + begin + 2, &(uint16_t){ (uint16_t)size }, sizeof(uint16_t));
	if (attribute->kind == SASS_PARAM_CBANK)
		memcpy(info->data + begin + 4 + 6, &(uint16_t){ (uint16_t)size }, sizeof(uint16_t));
	return true;
}

/* What the kernel has in a list, and what probes add. */
static bool merge_list(const struct rewriter *rewriter, const struct sass_section *section,
		       enum sass_list list, struct sass_buffer *info) {
	struct sass_buffer all = {};
	struct sass_attribute attribute;
	size_t at = 0;
	bool fits;

	if (!rewriter->lists[list].size)
		return true;
	while (sass_attribute_next(section->content, section->header.sh_size, &at, &attribute) == 1)
		if (sass_list_of(attribute.kind) == list && attribute.value)
			sass_buffer_append(&all, attribute.value, attribute.size);
	sass_buffer_append(&all, rewriter->lists[list].data, rewriter->lists[list].size);
	fits = !all.failed &&
	       sass_attribute_append(info, sass_attribute_of(list), all.data, all.size);
	sass_buffer_deinit(&all);
	return fits;
}

static bool make_info(const struct rewriter *rewriter, const struct sass_section *section,
		      struct sass_buffer *info) {
	struct sass_attribute attribute;
	bool fits = true, parameter = false;
	size_t at = 0;

	while (fits && sass_attribute_next(section->content, section->header.sh_size, &at,
					   &attribute) == 1) {
		if (!parameter && rewriter->twin.block &&
		    (attribute.kind == SASS_KPARAM_INFO || attribute.kind == SASS_KPARAM_INFO_V2)) {
			fits = append_parameter(rewriter, info); /* the last one is listed first */
			parameter = true;
		}
		fits = fits && append_attribute(rewriter, section->content, &attribute, info);
	}
	if (fits && !parameter && rewriter->twin.block)
		fits = append_first_parameter(rewriter, info);
	if (fits && rewriter->request->exit && rewriter->exits.size)
		fits = sass_attribute_append(info, SASS_EXIT_INSTR_OFFSETS, rewriter->exits.data,
					     rewriter->exits.size);
	for (unsigned list = 0; fits && list < _SASS_LISTS; list++)
		fits = merge_list(rewriter, section, (enum sass_list)list, info);
	return fits;
}

static int prepare_info(struct rewriter *rewriter, struct sass_refusal *refusal) {
	const struct sass_section *section = &rewriter->cubin->sections[rewriter->kernel.info];

	if (!make_info(rewriter, section, &rewriter->info))
		return sass_refuse(refusal,
				   "the attributes of section %.120s do not fit, or there is "
				   "no symbol of the constant bank",
				   section->name);
	for (unsigned list = 0; list < _SASS_LISTS; list++)
		rewriter->info.failed |= rewriter->lists[list].failed;
	return rewriter->info.failed || rewriter->exits.failed ? -ENOMEM : 0;
}

static int write_info(struct rewriter *rewriter) {
	uint8_t *content =
		sass_cubin_change(rewriter->cubin, rewriter->kernel.info, rewriter->info.size);

	if (!content)
		return -ENOMEM;
	if (rewriter->info.size)
		memcpy(content, rewriter->info.data, rewriter->info.size);
	return 0;
}

static int write_registers(struct rewriter *rewriter) {
	const size_t index = sass_cubin_find(rewriter->cubin, ".nv.info", "");
	const size_t size = rewriter->cubin->sections[index].header.sh_size;
	Elf64_Shdr *text = &rewriter->cubin->sections[rewriter->kernel.text].header;
	uint8_t *content = sass_cubin_change(rewriter->cubin, index, size);
	struct sass_attribute attribute;
	size_t at = 0;

	if (!content)
		return -ENOMEM;
	while (sass_attribute_next(content, size, &at, &attribute) == 1)
		if (attribute.kind == SASS_REGCOUNT && attribute.value && attribute.size == 8 &&
		    sass_u32(attribute.value, 0) == rewriter->kernel.symbol)
			memcpy(content + attribute.at + 8, &rewriter->twin.registers,
			       sizeof(uint32_t));
	/* CUDA 12 has the count in the section's header, too. */
	if (text->sh_info >> 24)
		text->sh_info = (text->sh_info & 0xffffff) | rewriter->twin.registers << 24;
	return 0;
}

/* Bytes of a probe's block. False: its parameters are not those of the kernel. */
static bool find_block(const struct rewriter *rewriter, const struct sass_probe *probe,
		       uint32_t *block) {
	const struct sass_twin *twin = &rewriter->twin;

	*block = 0;
	if (!probe)
		return true;
	*block = probe->parameters;
	if (!rewriter->request->own_parameters)
		return true;
	*block = probe->parameters > twin->block_at ? probe->parameters - twin->block_at : 0;
	return *block || probe->parameters == rewriter->kernel.parameters;
}

static int place_block(struct rewriter *rewriter, struct sass_refusal *refusal) {
	const struct sass_kernel *kernel = &rewriter->kernel;
	struct sass_twin *twin = &rewriter->twin;
	const uint32_t most = kernel->parameters_v2 ? PARAMETERS_MAX_V2 : PARAMETERS_MAX;
	uint32_t entry, exit;

	twin->registers = twin->registers_before = kernel->registers;
	twin->parameters = kernel->parameters;
	twin->parameters_n = kernel->parameters_n;
	twin->block_at = (kernel->parameters + BLOCK_ALIGNMENT - 1) & ~(BLOCK_ALIGNMENT - 1U);
	if (!find_block(rewriter, rewriter->request->entry, &entry) ||
	    !find_block(rewriter, rewriter->request->exit, &exit))
		return sass_refuse(refusal, "the parameters do not lie as the probe has them");
	twin->block = entry > exit ? entry : exit;
	if (!kernel->constants || !rewriter->cubin->sections[kernel->constants].content)
		return sass_refuse(refusal, "the kernel has no constant bank");
	if (twin->block && twin->block_at + twin->block > most)
		return sass_refuse(refusal,
				   "the kernel has %u bytes of parameters: no room for %u "
				   "more",
				   kernel->parameters, twin->block);
	return 0;
}

static int write_sections(struct rewriter *rewriter) {
	struct sass_kernel *kernel = &rewriter->kernel;
	const struct sass_twin *twin = &rewriter->twin;
	const size_t constants = kernel->arch->parameters + twin->block_at + twin->block;
	uint8_t *text;
	int r;

	text = sass_cubin_change(rewriter->cubin, kernel->text, rewriter->text.size);
	if (!text ||
	    (twin->block && !sass_cubin_change(rewriter->cubin, kernel->constants, constants)))
		return -ENOMEM;
	memcpy(text, rewriter->text.data, rewriter->text.size);
	r = sass_cubin_resize_symbol(rewriter->cubin, kernel->symbol, rewriter->text.size);
	if (!r)
		r = write_info(rewriter);
	return r ? r : write_registers(rewriter);
}

static int rewrite(struct rewriter *rewriter, struct sass_refusal *refusal) {
	const struct sass_request *request = rewriter->request;
	int r = sass_kernel_init(&rewriter->kernel, rewriter->cubin, request->kernel, refusal);

	if (r)
		return r;
	if ((request->entry && request->entry->arch != rewriter->kernel.arch) ||
	    (request->exit && request->exit->arch != rewriter->kernel.arch))
		return sass_refuse(refusal, "the probe is for another architecture");
	r = place_block(rewriter, refusal);
	if (!r)
		r = write_code(rewriter, refusal);
	if (!r)
		r = prepare_info(rewriter, refusal);
	return r ? r : write_sections(rewriter);
}

int sass_rewrite(struct sass_twin *twin, struct sass_cubin *cubin,
		 const struct sass_request *request, struct sass_refusal *refusal) {
	struct rewriter rewriter = { .request = request, .cubin = cubin };
	const int r = rewrite(&rewriter, refusal);

	if (!r)
		*twin = rewriter.twin;
	sass_buffer_deinit(&rewriter.text);
	sass_buffer_deinit(&rewriter.info);
	sass_buffer_deinit(&rewriter.exits);
	for (unsigned list = 0; list < _SASS_LISTS; list++)
		sass_buffer_deinit(&rewriter.lists[list]);
	sass_kernel_deinit(&rewriter.kernel);
	return r;
}
