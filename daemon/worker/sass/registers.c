/* SPDX-License-Identifier: Apache-2.0 */

/* Gives registers to probes (registers.h). */

#include "registers.h"

#define UNNAMED 2 /* a count has two registers more than code may name */
#define LAST_UNIFORM_QUAD 15 /* URZ is in it */

static uint32_t least(uint32_t a, uint32_t b) {
	return a < b ? a : b;
}

static uint32_t rounded(uint32_t registers, uint32_t granule) {
	return (registers + granule - 1) / granule * granule;
}

/* Whether the kernel can have so many registers. */
static int check_count(const struct sass_kernel *kernel, uint32_t registers,
		       struct sass_refusal *refusal) {
	const struct sass_arch *arch = kernel->arch;

	if (registers <= kernel->registers)
		return 0;
	if (kernel->usage.least_registers)
		return sass_refuse(refusal,
				   "the kernel changes its number of registers "
				   "(USETMAXREG, %u at the least), and the probe needs %u",
				   kernel->usage.least_registers, registers);
	if (registers > arch->registers)
		return sass_refuse(refusal, "the kernel has %u registers, and %u with the probe",
				   kernel->registers, registers);
	if (kernel->max_threads && kernel->max_threads <= 1024 &&
	    rounded(registers, arch->granule) * rounded(kernel->max_threads, 32) > arch->file)
		return sass_refuse(refusal, "with %u registers no block of %u threads fits",
				   registers, kernel->max_threads);
	return 0;
}

int sass_map_entry(struct sass_map *map, const struct sass_kernel *kernel,
		   const struct sass_probe *probe, struct sass_refusal *refusal) {
	for (unsigned i = 0; i < sizeof(map->pair); i++)
		map->pair[i] = (uint8_t)i;
	for (unsigned i = 0; i < sizeof(map->predicate); i++)
		map->predicate[i] = map->uniform_predicate[i] = (uint8_t)i;
	for (unsigned i = 0; i < sizeof(map->uniform_quad); i++)
		map->uniform_quad[i] = map->barrier[i] = (uint8_t)i;
	map->registers =
		kernel->registers > probe->registers ? kernel->registers : probe->registers;
	return check_count(kernel, map->registers, refusal);
}

/* Whether a probe can have registers from `first` on, below `limit`. */
static bool is_free(const struct sass_kernel *kernel, uint32_t first, uint32_t n, uint32_t limit) {
	if (first + n > limit)
		return false;
	for (uint32_t i = first; i < first + n; i++)
		if (i < kernel->registers - UNNAMED && (kernel->usage.busy[i / 8] & 1U << i % 8))
			return false;
	return true;
}

static int map_registers(struct sass_map *map, const struct sass_kernel *kernel,
			 const struct sass_probe *probe, struct sass_refusal *refusal) {
	const uint32_t unit = probe->wide ? 4 : 2;
	const uint32_t limit =
		kernel->usage.least_registers
			? least(kernel->usage.least_registers, kernel->registers) - UNNAMED
			: kernel->arch->registers - UNNAMED;
	uint32_t next = 0;

	for (uint32_t own = 0; own < SASS_ZERO_REGISTER; own += unit) {
		const uint64_t mask = (unit == 4 ? UINT64_C(3) : UINT64_C(1)) << own % 128 / 2;

		if (!(probe->pairs[own / 128] & mask))
			continue;
		while (next < limit && !is_free(kernel, next, unit, limit))
			next += unit;
		if (next >= limit)
			return sass_refuse(refusal, "no registers are left below R%u", limit);
		for (uint32_t i = 0; i < unit; i += 2)
			map->pair[(own + i) / 2] = (uint8_t)((next + i) / 2);
		next += unit;
	}
	map->registers = kernel->registers;
	if (next + UNNAMED > map->registers)
		map->registers = next + UNNAMED;
	return check_count(kernel, map->registers, refusal);
}

/* Gives each number that is wanted one that is not taken, from the highest down. */
static bool map_numbers(uint8_t numbers[16], uint16_t wanted, uint16_t taken) {
	int next = 15;

	for (unsigned i = 0; i < 16; i++) {
		if (!(wanted & 1U << i))
			continue;
		while (next >= 0 && (taken & 1U << next))
			next--;
		if (next < 0)
			return false;
		numbers[i] = (uint8_t)next--;
	}
	return true;
}

/* Each keeps its number unless that is taken; then it gets one that nobody else has. */
static bool map_predicates(uint8_t numbers[8], unsigned wanted, unsigned taken) {
	unsigned left = ~(wanted | taken) & ((1U << SASS_TRUE_PREDICATE) - 1);

	for (unsigned i = 0; i <= SASS_TRUE_PREDICATE; i++) {
		numbers[i] = (uint8_t)i;
		if (!(wanted & taken & 1U << i))
			continue;
		if (!left)
			return false;
		numbers[i] = (uint8_t)__builtin_ctz(left);
		left &= left - 1;
	}
	return true;
}

int sass_map_exit(struct sass_map *map, const struct sass_kernel *kernel,
		  const struct sass_probe *probe, struct sass_refusal *refusal) {
	*map = (struct sass_map){};
	if (kernel->registers < UNNAMED ||
	    (kernel->usage.least_registers && kernel->usage.least_registers < UNNAMED))
		return sass_refuse(refusal, "a count of %u registers", kernel->registers);
	if (!map_predicates(map->uniform_predicate, probe->uniform_predicates,
			    kernel->usage.uniform_predicates))
		return sass_refuse(refusal, "the kernel leaves too few uniform predicates");
	if (!map_predicates(map->predicate, probe->predicates, kernel->usage.late_predicates))
		return sass_refuse(refusal, "the kernel may write predicates late, and leaves too "
					    "few for the probe");
	if (probe->mixes)
		return sass_refuse_word(refusal,
					"the probe needs a uniform value behind a branch, where "
					"other threads of the warp may have changed it,",
					probe->mixes_at + SASS_WORD_SIZE,
					probe->code ? sass_read(probe->code, probe->mixes_at)
						    : (struct sass_word){});
	if (!map_numbers(map->uniform_quad, probe->uniform_quads,
			 kernel->usage.uniform_quads | 1U << LAST_UNIFORM_QUAD))
		return sass_refuse(refusal, "the kernel leaves too few uniform registers");
	if (!map_numbers(map->barrier, probe->barriers, kernel->usage.barriers))
		return sass_refuse(refusal, "the kernel leaves too few convergence barriers");
	return map_registers(map, kernel, probe, refusal);
}

struct sass_word sass_map_word(const struct sass_map *map, const struct sass_arch *arch,
			       struct sass_word word) {
	const struct sass_opcode *opcode = sass_opcode_find(arch, word);
	const bool uniform = sass_has_uniform(opcode, word);

	word = sass_map_predicates(opcode, word, map->predicate);
	word = sass_map_uniform_predicates(opcode, word, map->uniform_predicate);
	for (unsigned field = 0; field < _SASS_FIELDS; field++) {
		const unsigned value = sass_field(word, field), number = value & SASS_ZERO_UNIFORM;

		if ((opcode->registers & 1U << field) && value != SASS_ZERO_REGISTER)
			word = sass_set_field(word, field, map->pair[value / 2] * 2U + value % 2);
		if (uniform && (opcode->uniform & 1U << field) && number != SASS_ZERO_UNIFORM)
			word = sass_set_field(
				word, field,
				(value & ~(unsigned)SASS_ZERO_UNIFORM) |
					(map->uniform_quad[number / 4] * 4U + number % 4));
		if (opcode->barriers & 1U << field)
			word = sass_set_field(word, field,
					      (value & ~15U) | map->barrier[value & 15]);
	}
	return word;
}
