/* SPDX-License-Identifier: Apache-2.0 */

/* Takes machine instructions apart and puts them together (instruction.h). Touches nothing else. */

#include "instruction.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "refusal.h"

#define UNIFORM_BIT 67 /* of PLOP3: its predicate in bits 68-70 is a uniform one */
#define OPCODE_BITS 0xfff
#define CONTROL_HI (UINT64_C(0x1fffff) << 41) /* stall to reuse */

static const uint8_t field_at[_SASS_FIELDS] = { 16, 24, 32, 40, 64 };
static const uint8_t predicate_at[] = { 68, 77, 81, 84, 87 };

const struct sass_opcode *sass_opcode_find(const struct sass_arch *arch, struct sass_word word) {
	const uint16_t opcode = word.lo & OPCODE_BITS;
	size_t first = 0, n = arch->n_opcodes;

	while (n) {
		const struct sass_opcode *middle = &arch->opcodes[first + n / 2];

		if (middle->opcode == opcode)
			return middle;
		if (middle->opcode < opcode) {
			first += n / 2 + 1;
			n -= n / 2 + 1;
		} else {
			n /= 2;
		}
	}
	return NULL;
}

struct sass_word sass_read(const uint8_t *text, uint64_t offset) {
	struct sass_word word;

	memcpy(&word, text + offset, sizeof(word));
	return word;
}

void sass_write(uint8_t *text, uint64_t offset, struct sass_word word) {
	memcpy(text + offset, &word, sizeof(word));
}

static uint64_t ones(unsigned n) {
	return n < 64 ? (UINT64_C(1) << n) - 1 : ~UINT64_C(0);
}

uint64_t sass_bits(struct sass_word word, unsigned at, unsigned n) {
	uint64_t value = at < 64 ? word.lo >> at : word.hi >> (at - 64);

	if (at && at < 64 && at + n > 64)
		value |= word.hi << (64 - at);
	return value & ones(n);
}

struct sass_word sass_set_bits(struct sass_word word, unsigned at, unsigned n, uint64_t value) {
	value &= ones(n);
	if (at >= 64) {
		word.hi = (word.hi & ~(ones(n) << (at - 64))) | value << (at - 64);
		return word;
	}
	word.lo = (word.lo & ~(ones(n) << at)) | value << at;
	if (at + n > 64) {
		const unsigned rest = at + n - 64;

		word.hi = (word.hi & ~ones(rest)) | value >> (64 - at);
	}
	return word;
}

unsigned sass_field(struct sass_word word, enum sass_field field) {
	return (unsigned)sass_bits(word, field_at[field], 8);
}

struct sass_word sass_set_field(struct sass_word word, enum sass_field field, unsigned value) {
	return sass_set_bits(word, field_at[field], 8, value);
}

bool sass_has_uniform(const struct sass_opcode *opcode, struct sass_word word) {
	return opcode->uniform && (!(opcode->flags & SASS_URB91) || sass_bits(word, 91, 1));
}

static unsigned named(struct sass_word word, unsigned fields) {
	unsigned found = 0;

	for (unsigned i = 0; i < sizeof(predicate_at); i++)
		if (fields & 1U << i)
			found |= 1U << sass_bits(word, predicate_at[i], 3);
	return found & ~(1U << SASS_TRUE_PREDICATE);
}

/* Fields that name predicates; those of PLOP3 that may name either say which by a bit of their
 * own (nvdisasm). */
static unsigned predicate_fields(const struct sass_opcode *opcode, struct sass_word word) {
	const unsigned either = opcode->predicates & opcode->uniform_predicates;

	return opcode->predicates & ~(sass_bits(word, UNIFORM_BIT, 1) ? either : 0);
}

static unsigned uniform_fields(const struct sass_opcode *opcode, struct sass_word word) {
	const unsigned either = opcode->predicates & opcode->uniform_predicates;

	return opcode->uniform_predicates & ~(sass_bits(word, UNIFORM_BIT, 1) ? 0 : either);
}

unsigned sass_predicates(const struct sass_opcode *opcode, struct sass_word word, unsigned fields) {
	return named(word, predicate_fields(opcode, word) & fields);
}

unsigned sass_guard(const struct sass_opcode *opcode, struct sass_word word) {
	return opcode->flags & SASS_UGUARD
		       ? 0
		       : (1U << sass_bits(word, 12, 3)) & ~(1U << SASS_TRUE_PREDICATE);
}

unsigned sass_uniform_predicates(const struct sass_opcode *opcode, struct sass_word word) {
	const unsigned guard = opcode->flags & SASS_UGUARD ? 1U << sass_bits(word, 12, 3) : 0;

	return named(word, uniform_fields(opcode, word)) | (guard & ~(1U << SASS_TRUE_PREDICATE));
}

struct sass_word sass_map_predicates(const struct sass_opcode *opcode, struct sass_word word,
				     const uint8_t numbers[8]) {
	const unsigned fields = predicate_fields(opcode, word);

	for (unsigned i = 0; i < sizeof(predicate_at); i++)
		if (fields & 1U << i)
			word = sass_set_bits(word, predicate_at[i], 3,
					     numbers[sass_bits(word, predicate_at[i], 3)]);
	if (!(opcode->flags & SASS_UGUARD))
		word = sass_set_bits(word, 12, 3, numbers[sass_bits(word, 12, 3)]);
	return word;
}

struct sass_word sass_map_uniform_predicates(const struct sass_opcode *opcode,
					     struct sass_word word, const uint8_t numbers[8]) {
	const unsigned fields = uniform_fields(opcode, word);

	for (unsigned i = 0; i < sizeof(predicate_at); i++)
		if (fields & 1U << i)
			word = sass_set_bits(word, predicate_at[i], 3,
					     numbers[sass_bits(word, predicate_at[i], 3)]);
	if (opcode->flags & SASS_UGUARD)
		word = sass_set_bits(word, 12, 3, numbers[sass_bits(word, 12, 3)]);
	return word;
}

struct sass_word sass_with_wait(struct sass_word word, unsigned mask) {
	word.hi |= (uint64_t)mask << 52;
	return word;
}

static uint64_t read_target(const struct sass_target *form, struct sass_word word, uint64_t at) {
	const unsigned n = form->low_bits + form->high_bits;
	uint64_t distance = sass_bits(word, form->high_at, form->high_bits) << form->low_bits;

	if (form->low_bits)
		distance |= sass_bits(word, form->low_at, form->low_bits);
	if (n < 64 && distance >> (n - 1) & 1)
		distance |= ~ones(n);
	return at + SASS_WORD_SIZE + distance * form->unit;
}

static struct sass_word write_target(const struct sass_target *form, struct sass_word word,
				     uint64_t at, uint64_t target) {
	const int64_t bytes = (int64_t)(target - at - SASS_WORD_SIZE);
	const uint64_t distance = (uint64_t)(bytes / form->unit);

	if (form->low_bits)
		word = sass_set_bits(word, form->low_at, form->low_bits, distance);
	return sass_set_bits(word, form->high_at, form->high_bits, distance >> form->low_bits);
}

bool sass_target(const struct sass_arch *arch, const struct sass_opcode *opcode,
		 struct sass_word word, uint64_t at, uint64_t *target) {
	/* Calls through a register are relative to it, and calls to an address have a relocation.
	 */
	if (opcode->flags & (SASS_BRANCH | SASS_CALL))
		*target = read_target(&arch->branch, word, at);
	else if (opcode->flags & SASS_SYNC)
		*target = read_target(&arch->sync, word, at);
	else
		return false;
	return true;
}

struct sass_word sass_branch(const struct sass_arch *arch, uint64_t at, uint64_t target) {
	return write_target(&arch->branch, arch->bra, at, target);
}

struct sass_word sass_branch_for_exit(const struct sass_arch *arch, struct sass_word exit,
				      uint64_t at, uint64_t target) {
	struct sass_word word = sass_branch(arch, at, target);

	word = sass_set_bits(word, 12, 4, sass_bits(exit, 12, 4));
	word = sass_set_bits(word, 87, 4, sass_bits(exit, 87, 4));
	word.hi = (word.hi & ~CONTROL_HI) | (exit.hi & CONTROL_HI);
	return word;
}

struct sass_word sass_bssy(const struct sass_arch *arch, unsigned barrier, uint64_t at,
			   uint64_t target) {
	return write_target(&arch->sync, sass_set_bits(arch->bssy, 16, 4, barrier), at, target);
}

struct sass_word sass_bsync(const struct sass_arch *arch, unsigned barrier, unsigned wait) {
	return sass_with_wait(sass_set_bits(arch->bsync, 16, 4, barrier), wait);
}

struct sass_word sass_with_constant_offset(struct sass_word word, unsigned offset) {
	return sass_set_bits(word, 38, 16, offset);
}

int sass_refuse(struct sass_refusal *refusal, const char *format, ...) {
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(refusal->text, sizeof(refusal->text), format, arguments);
	va_end(arguments);
	for (char *c = refusal->text; *c; c++)
		if ((unsigned char)*c < ' ')
			*c = '?'; /* names of sections are anybody's; it is one line */
	return SASS_REFUSED;
}

int sass_refuse_word(struct sass_refusal *refusal, const char *what, uint64_t offset,
		     struct sass_word word) {
	return sass_refuse(refusal, "%s at 0x%llx (%016llx %016llx)", what,
			   (unsigned long long)offset, (unsigned long long)word.lo,
			   (unsigned long long)word.hi);
}
