/* SPDX-License-Identifier: Apache-2.0 */

/* Reads probes (probe.h). They come from our own compiler; they are checked as kernels are. */

#include "probe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "attribute.h"
#include "data.h"
#include "kernel.h"

#define SIZE_64 5 /* in bits 73-75 of an access */
#define SIZE_128 6
#define WIDE_PRODUCT 0x25 /* lower bits of the opcodes of IMAD.WIDE and UIMAD.WIDE */

static int check_constant(struct sass_word word, uint64_t at, struct sass_refusal *refusal) {
	const unsigned bank = sass_constant_bank(word);

	if (bank && bank != SASS_BANK_CONSTANTS && bank != SASS_BANK_ADDRESSES)
		return sass_refuse_word(refusal, "the probe reads an unknown constant bank", at,
					word);
	return 0;
}

static void note_registers(struct sass_probe *probe, const struct sass_opcode *opcode,
			   struct sass_word word) {
	for (unsigned field = 0; field < _SASS_FIELDS; field++) {
		const unsigned value = sass_field(word, field);

		if ((opcode->registers & 1U << field) && value != SASS_ZERO_REGISTER)
			probe->pairs[value / 128] |= UINT64_C(1) << value % 128 / 2;
		if ((opcode->uniform & 1U << field) && sass_has_uniform(opcode, word) &&
		    (value & SASS_ZERO_UNIFORM) != SASS_ZERO_UNIFORM)
			probe->uniform_quads |= 1U << (value & SASS_ZERO_UNIFORM) / 4;
		if (opcode->barriers & 1U << field)
			probe->barriers |= 1U << (value & 15);
	}
	if ((opcode->flags & SASS_GLOBAL) && sass_bits(word, 73, 3) == SIZE_128)
		probe->wide = true;
	if (opcode->flags & SASS_ALL)
		probe->predicates |= (1U << SASS_TRUE_PREDICATE) - 1;
	probe->predicates |= sass_guard(opcode, word) | sass_predicates(opcode, word, ~0U);
	probe->uniform_predicates |= sass_uniform_predicates(opcode, word);
	if (sass_write_scoreboard(word) != SASS_NO_SCOREBOARD)
		probe->scoreboards |= 1U << sass_write_scoreboard(word);
	if (sass_read_scoreboard(word) != SASS_NO_SCOREBOARD)
		probe->scoreboards |= 1U << sass_read_scoreboard(word);
}

/* Uniform registers and predicates that were written since other threads may have run. */
struct fresh {
	uint64_t registers;
	unsigned predicates;
};

/* How many registers in a row an instruction means by a field, at the least of what it writes and
 * at the most of what it reads. */
static unsigned width(const struct sass_opcode *opcode, struct sass_word word, unsigned field,
		      bool written) {
	if ((opcode->opcode & 0x7f) == WIDE_PRODUCT && (written || field == SASS_F64))
		return 2;
	if (!written && (opcode->flags & SASS_GLOBAL))
		return 2;
	if ((opcode->flags & SASS_CONSTANT) && written && sass_bits(word, 73, 3) == SIZE_64)
		return 2;
	return 1;
}

static uint64_t uniform_bits(const struct sass_opcode *opcode, struct sass_word word,
			     unsigned field, bool written) {
	const unsigned value = sass_field(word, (enum sass_field)field) & SASS_ZERO_UNIFORM;

	if (!(opcode->uniform & 1U << field) || !sass_has_uniform(opcode, word) ||
	    value == SASS_ZERO_UNIFORM)
		return 0;
	return (width(opcode, word, field, written) == 2 ? UINT64_C(3) : UINT64_C(1)) << value;
}

/* Does an instruction need a uniform value that is not fresh? Notes what it writes. */
static bool is_stale(const struct sass_opcode *opcode, struct sass_word word, struct fresh *fresh) {
	const bool result = !(opcode->flags & SASS_NO_RESULT);
	unsigned written = opcode->uniform_predicates & (SASS_P81 | SASS_P84), read, results = 0;
	bool stale = false;

	for (unsigned field = result ? SASS_F24 : SASS_F16; field < _SASS_FIELDS; field++)
		stale |= uniform_bits(opcode, word, field, false) & ~fresh->registers;
	read = sass_uniform_predicates(opcode, word);
	if (written) {
		struct sass_opcode only = *opcode;

		only.uniform_predicates = (uint8_t)written;
		only.flags &= ~(uint32_t)SASS_UGUARD;
		results = sass_uniform_predicates(&only, word);
		only = *opcode;
		only.uniform_predicates &= (uint8_t)~written;
		read = sass_uniform_predicates(&only, word);
	}
	stale |= read & ~fresh->predicates;
	if (result &&
	    (!(opcode->flags & SASS_UGUARD) || sass_bits(word, 12, 4) == SASS_TRUE_PREDICATE))
		fresh->registers |= uniform_bits(opcode, word, SASS_F16, true);
	fresh->predicates |= results;
	return stale;
}

/* Whether a place of the probe is one that something branches to, a bit each. NULL: no memory. */
static uint8_t *find_targets(const struct sass_probe *probe) {
	uint8_t *targets = calloc(1, probe->size / SASS_WORD_SIZE / 8 + 1);

	for (uint64_t at = 0; targets && at < probe->size; at += SASS_WORD_SIZE) {
		const struct sass_word word = sass_read(probe->code, at);
		const struct sass_opcode *opcode = sass_opcode_find(probe->arch, word);
		uint64_t target;

		if (opcode && sass_target(probe->arch, opcode, word, at, &target) &&
		    target < probe->size)
			targets[target / SASS_WORD_SIZE / 8] |= 1U << target / SASS_WORD_SIZE % 8;
	}
	return targets;
}

/* Other threads of the warp may run where one branches, and where branches lead to. */
static int find_mixed(struct sass_probe *probe) {
	uint8_t *targets = find_targets(probe);
	struct fresh fresh = {};

	if (!targets)
		return -ENOMEM;
	for (uint64_t at = 0; at < probe->size; at += SASS_WORD_SIZE) {
		const uint64_t number = at / SASS_WORD_SIZE;
		const struct sass_word word = sass_read(probe->code, at);
		const struct sass_opcode *opcode = sass_opcode_find(probe->arch, word);

		if (targets[number / 8] & 1U << number % 8)
			fresh = (struct fresh){};
		if (is_stale(opcode, word, &fresh) && !probe->mixes) {
			probe->mixes = true;
			probe->mixes_at = at;
		}
		if (opcode->flags &
		    (SASS_SWITCH | SASS_EXIT | SASS_BRANCH | SASS_CALL | SASS_RETURN))
			fresh = (struct fresh){};
	}
	free(targets);
	return 0;
}

/* Of calls those of functions in it: ptxas has some for divisions. They and their ways back are
 * relative to where the code lies. */
static bool may_have(const struct sass_opcode *opcode) {
	return opcode->flags & (SASS_PROBE | SASS_RETURN) ||
	       ((opcode->flags & SASS_CALL) && !opcode->registers);
}

static int read_code(struct sass_probe *probe, struct sass_refusal *refusal) {
	for (uint64_t at = 0; at < probe->size; at += SASS_WORD_SIZE) {
		const struct sass_word word = sass_read(probe->code, at);
		const struct sass_opcode *opcode = sass_opcode_find(probe->arch, word);
		uint64_t target;
		int r;

		if (!opcode || !may_have(opcode))
			return sass_refuse_word(refusal,
						"the probe has an instruction that it may "
						"not have",
						at + SASS_WORD_SIZE, word);
		if (sass_target(probe->arch, opcode, word, at, &target) && target >= probe->size)
			return sass_refuse_word(refusal, "the probe branches out of itself",
						at + SASS_WORD_SIZE, word);
		r = opcode->flags & SASS_CONSTANT
			    ? check_constant(word, at + SASS_WORD_SIZE, refusal)
			    : 0;
		if (r)
			return r;
		probe->n_exits += !!(opcode->flags & SASS_EXIT);
		note_registers(probe, opcode, word);
	}
	return find_mixed(probe);
}

/* ptxas fills a section up with a branch to itself and NOPs: where that begins. 0: it is not there.
 */
static uint64_t find_end(const struct sass_arch *arch, const struct sass_section *text) {
	uint64_t end = text->header.sh_size / SASS_WORD_SIZE * SASS_WORD_SIZE, target;

	while (end) {
		const struct sass_word word = sass_read(text->content, end -= SASS_WORD_SIZE);
		const struct sass_opcode *opcode = sass_opcode_find(arch, word);

		if (!opcode || !(opcode->flags & (SASS_NOP | SASS_BRANCH)))
			return 0;
		if (opcode->flags & SASS_NOP)
			continue;
		return sass_target(arch, opcode, word, end, &target) && target == end ? end : 0;
	}
	return 0;
}

/* Does nothing come behind a word? */
static bool is_last(const struct sass_arch *arch, struct sass_word word) {
	const struct sass_word plain = arch->exit;
	const struct sass_opcode *opcode = sass_opcode_find(arch, word);

	return opcode && (opcode->flags & (SASS_EXIT | SASS_BRANCH | SASS_RETURN)) &&
	       !((word.lo ^ plain.lo) & arch->exit_lo) &&
	       sass_bits(word, 87, 4) == sass_bits(plain, 87, 4) && !sass_has_uniform(opcode, word);
}

static int copy_code(struct sass_probe *probe, const struct sass_cubin *cubin,
		     const struct sass_kernel *kernel, struct sass_refusal *refusal) {
	const struct sass_section *text = &cubin->sections[kernel->text];
	const uint64_t end = find_end(probe->arch, text);
	uint8_t *relocated;
	bool has_one;

	if (end < 2 * SASS_WORD_SIZE ||
	    !is_last(probe->arch, sass_read(text->content, end - SASS_WORD_SIZE)))
		return sass_refuse(refusal, "the probe does not end with an exit");
	relocated = sass_cubin_relocated(cubin, kernel->text, end);
	has_one = relocated && relocated[0] & 1;
	free(relocated);
	if (!relocated || has_one)
		return relocated ? sass_refuse(refusal, "the probe has a relocation") : -ENOMEM;
	probe->size = end - SASS_WORD_SIZE;
	probe->code = malloc(probe->size);
	if (!probe->code)
		return -ENOMEM;
	memcpy(probe->code, text->content + SASS_WORD_SIZE, probe->size);
	return read_code(probe, refusal);
}

/* Can an entry of a list be understood? */
static bool is_understood(const struct sass_probe *probe, enum sass_list list, uint32_t value) {
	if (list == SASS_LIST_MASKS)
		return value == SASS_MASK_ALL || (value >= SASS_MASK_REGISTER &&
						  value < SASS_MASK_REGISTER + SASS_ZERO_REGISTER);
	return value >= SASS_WORD_SIZE && value - SASS_WORD_SIZE < probe->size;
}

static int add_list(struct sass_probe *probe, enum sass_list list,
		    const struct sass_attribute *attribute, struct sass_refusal *refusal) {
	const size_t n = attribute->size / sizeof(uint32_t);
	uint32_t *grown =
		reallocarray(probe->lists[list], probe->n_list[list] + n + 1, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	probe->lists[list] = grown;
	for (size_t i = 0; i < n; i++) {
		const uint32_t value = sass_u32(attribute->value, i * sizeof(uint32_t));

		if (!is_understood(probe, list, value))
			return sass_refuse(refusal, "the probe's attribute 0x%02x has 0x%x",
					   attribute->kind, value);
		grown[probe->n_list[list]++] =
			list == SASS_LIST_MASKS ? value : value - SASS_WORD_SIZE;
	}
	return 0;
}

static int read_attribute(struct sass_probe *probe, const struct sass_attribute *attribute,
			  struct sass_refusal *refusal) {
	const enum sass_list list = sass_list_of(attribute->kind);

	if (!sass_attribute_is_probes(attribute->kind))
		return sass_refuse(refusal, "the probe has attribute 0x%02x", attribute->kind);
	if ((attribute->kind == SASS_FRAME_SIZE || attribute->kind == SASS_MIN_STACK_SIZE) &&
	    attribute->size == 8 && attribute->value && sass_u32(attribute->value, 4))
		return sass_refuse(refusal, "the probe needs a stack of %u bytes",
				   sass_u32(attribute->value, 4));
	if (attribute->kind == SASS_CRS_STACK_SIZE &&
	    (!attribute->value || attribute->size != sizeof(uint32_t) ||
	     sass_u32(attribute->value, 0)))
		return sass_refuse(refusal, "the probe needs a stack for branches");
	return list < _SASS_LISTS && attribute->value ? add_list(probe, list, attribute, refusal)
						      : 0;
}

static int read_attributes(struct sass_probe *probe, const struct sass_cubin *cubin,
			   const struct sass_kernel *kernel, struct sass_refusal *refusal) {
	const size_t sections[] = { kernel->info, sass_cubin_find(cubin, ".nv.info", "") };

	for (size_t i = 0; i < sizeof(sections) / sizeof(*sections); i++) {
		const struct sass_section *section = &cubin->sections[sections[i]];
		struct sass_attribute attribute;
		size_t at = 0;

		while (section->content &&
		       sass_attribute_next(section->content, section->header.sh_size, &at,
					   &attribute) == 1) {
			const int r = read_attribute(probe, &attribute, refusal);

			if (r)
				return r;
		}
	}
	if (probe->n_list[SASS_LIST_GROUPS] != probe->n_list[SASS_LIST_MASKS])
		return sass_refuse(refusal, "the probe's attributes 0x28 and 0x29 differ");
	return 0;
}

int sass_probe_init(struct sass_probe *probe, const struct sass_cubin *cubin, const char *name,
		    struct sass_refusal *refusal) {
	struct sass_kernel kernel = {};
	int r;

	*probe = (struct sass_probe){};
	r = sass_kernel_init(&kernel, cubin, name, refusal);
	if (!r) {
		probe->arch = kernel.arch;
		probe->registers = kernel.registers;
		probe->parameters = kernel.parameters;
		r = copy_code(probe, cubin, &kernel, refusal);
	}
	if (!r)
		r = read_attributes(probe, cubin, &kernel, refusal);
	sass_kernel_deinit(&kernel);
	if (r)
		sass_probe_deinit(probe);
	return r;
}

void sass_probe_deinit(struct sass_probe *probe) {
	free(probe->code);
	for (size_t list = 0; list < _SASS_LISTS; list++)
		free(probe->lists[list]);
	*probe = (struct sass_probe){};
}
