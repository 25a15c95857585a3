/* SPDX-License-Identifier: Apache-2.0 */

/* Reads probes (probe.h). They come from our own compiler; they are checked as kernels are. */

#include "probe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "attribute.h"
#include "kernel.h"

#define SIZE_128 6 /* in bits 73-75 of an access */

static int check_constant(struct sass_word word, uint64_t at, struct sass_refusal *refusal) {
	if (sass_constant_bank(word))
		return sass_refuse_word(refusal, "the probe reads a constant bank of its own", at,
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

static int read_code(struct sass_probe *probe, struct sass_refusal *refusal) {
	uint32_t flags = 0;

	for (uint64_t at = 0; at < probe->size; at += SASS_WORD_SIZE) {
		const struct sass_word word = sass_read(probe->code, at);
		const struct sass_opcode *opcode = sass_opcode_find(probe->arch, word);
		uint64_t target;
		int r;

		if (!opcode || !(opcode->flags & SASS_PROBE))
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
		flags |= opcode->flags;
	}
	probe->mixes = (flags & SASS_LANES) && ((flags & SASS_SWITCH) || probe->n_exits > 1);
	return 0;
}

/* Its code ends with the last EXIT; ptxas fills the section up with a branch to itself and NOPs. */
static int copy_code(struct sass_probe *probe, const struct sass_cubin *cubin,
		     const struct sass_kernel *kernel, struct sass_refusal *refusal) {
	const uint32_t end = kernel->n_exits ? kernel->exits[kernel->n_exits - 1] : 0;
	const uint8_t *text = cubin->sections[kernel->text].content;
	const struct sass_word last = sass_read(text, end);
	const struct sass_word plain = probe->arch->exit;
	uint8_t *relocated;
	bool has_one;

	if (!end || ((last.lo ^ plain.lo) & probe->arch->exit_lo) ||
	    sass_bits(last, 87, 4) != sass_bits(plain, 87, 4))
		return sass_refuse(refusal, "the probe does not end with an exit");
	relocated = sass_cubin_relocated(cubin, kernel->text, end + SASS_WORD_SIZE);
	has_one = relocated && relocated[0] & 1;
	free(relocated);
	if (!relocated || has_one)
		return relocated ? sass_refuse(refusal, "the probe has a relocation") : -ENOMEM;
	probe->size = end;
	probe->code = malloc(probe->size);
	if (!probe->code)
		return -ENOMEM;
	memcpy(probe->code, text + SASS_WORD_SIZE, probe->size);
	return read_code(probe, refusal);
}

static int add_warp_wide(struct sass_probe *probe, const struct sass_attribute *attribute) {
	const size_t n = attribute->size / sizeof(uint32_t);
	uint32_t *grown =
		reallocarray(probe->warp_wide, probe->n_warp_wide + n + 1, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	probe->warp_wide = grown;
	for (size_t i = 0; i < n; i++) {
		const uint32_t at = sass_u32(attribute->value, i * sizeof(uint32_t));

		if (at >= SASS_WORD_SIZE && at - SASS_WORD_SIZE < probe->size)
			grown[probe->n_warp_wide++] = at - SASS_WORD_SIZE;
	}
	return 0;
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
			if (!sass_attribute_is_probes(attribute.kind))
				return sass_refuse(refusal, "the probe has attribute 0x%02x",
						   attribute.kind);
			if ((attribute.kind == SASS_FRAME_SIZE ||
			     attribute.kind == SASS_MIN_STACK_SIZE) &&
			    attribute.size == 8 && attribute.value && sass_u32(attribute.value, 4))
				return sass_refuse(refusal, "the probe needs a stack of %u bytes",
						   sass_u32(attribute.value, 4));
			if (attribute.kind == SASS_INT_WARP_WIDE_INSTR_OFFSETS && attribute.value &&
			    add_warp_wide(probe, &attribute))
				return -ENOMEM;
		}
	}
	return 0;
}

int sass_probe_init(struct sass_probe *probe, const void *data, size_t size, const char *name,
		    struct sass_refusal *refusal) {
	struct sass_kernel kernel = {};
	struct sass_cubin cubin;
	int r;

	*probe = (struct sass_probe){};
	r = sass_cubin_init(&cubin, data, size, refusal);
	if (r)
		return r;
	r = sass_kernel_init(&kernel, &cubin, name, refusal);
	if (!r) {
		probe->arch = kernel.arch;
		probe->registers = kernel.registers;
		probe->block = kernel.parameters;
		r = copy_code(probe, &cubin, &kernel, refusal);
	}
	if (!r)
		r = read_attributes(probe, &cubin, &kernel, refusal);
	sass_kernel_deinit(&kernel);
	sass_cubin_deinit(&cubin);
	if (r)
		sass_probe_deinit(probe);
	return r;
}

void sass_probe_deinit(struct sass_probe *probe) {
	free(probe->code);
	free(probe->warp_wide);
	*probe = (struct sass_probe){};
}
