/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The part of the analysis (analysis.h) that knows variables of a thread.
 *
 * They are registers, so an address of one is no address: it serves loads, stores and atomic
 * instructions, and moves by numbers. Usually the place is a constant. It need not be, since
 * compilers make one store of `if (c) a = 1; else b = 1;`. Then the access must be aligned, so that
 * it lies in one word.
 */

#include <stdio.h>

#include "analysis-step.h"
#include "value.h"

/* What messages call what an address leads to. */
const char *analysis_thread_name(const struct analysis *a, const struct value *address) {
	static _Thread_local char text[160];

	for (size_t i = 0; address->exact && i < a->thread->n_variables; i++) {
		const struct translate_variable *variable = &a->thread->variables[i];

		if (address->bits < variable->offset ||
		    address->bits - variable->offset >= variable->size)
			continue;
		snprintf(text, sizeof(text), "%.100s, a variable of a thread", variable->name);
		return text;
	}
	return "a variable of a thread";
}

/* A load or store of `n` bytes at an address plus an offset. Notes the words. */
int analysis_check_thread(struct analysis *a, size_t pc, const struct value *address,
			  int64_t offset, unsigned n) {
	const uint32_t size = a->thread->size;
	unsigned align = value_align(address);

	if (!address->exact) {
		if (offset && (unsigned)__builtin_ctzll((uint64_t)offset) < align)
			align = (unsigned)__builtin_ctzll((uint64_t)offset);
		if (1u << align < n)
			return fault_at(a->fault, pc,
					"access of %u bytes to a variable of a thread, at a place "
					"that is not known to be a multiple of that",
					n);
		if (a->recording)
			a->words |= (1u << (size + 7) / 8) - 1;
		return 0;
	}
	offset += (int64_t)address->bits;
	if (offset < 0 || offset + n > size)
		return fault_at(a->fault, pc,
				"access of %u bytes at offset %lld of the variables of a thread, "
				"which have %u",
				n, (long long)offset, size);
	if (offset % 8 + n > 8)
		return fault_at(a->fault, pc,
				"access of %u bytes at offset %lld of the variables of a thread, "
				"which lies in two registers",
				n, (long long)offset);
	if (a->recording)
		a->words |= 1u << offset / 8;
	return 0;
}
