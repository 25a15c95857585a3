/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU driver's decoder of PTX (sim-decode.h). ld, st, atom, red, cp.async, vector mov, cvta,
 * isspacep. Cache hints and scopes change nothing: atomic operations are the CPU's, and a fence
 * stands by a load or store that has an order.
 */

#include <stdio.h>
#include <stdlib.h>

#include "proto/patch.h"
#include "sim-decode.h"

/* Parts of ld, st, atom and red that are understood and need no more. */
static bool harmless(const struct sim_decoder *d, uint32_t part) {
	static const char *const names[] = {
		"global",
		"local",
		"param",
		"const",
		"shared",
		"shared::cta",
		"shared::cluster",
		"param::entry",
		"param::func",
		"volatile",
		"relaxed",
		"acquire",
		"release",
		"acq_rel",
		"weak",
		"mmio",
		"cta",
		"cluster",
		"gpu",
		"sys",
		"ca",
		"cg",
		"cs",
		"lu",
		"cv",
		"wb",
		"wt",
		"nc",
		"level::eviction_priority",
		"L1::evict_normal",
		"L1::evict_unchanged",
		"L1::evict_first",
		"L1::evict_last",
		"L1::no_allocate",
		"L2::64B",
		"L2::128B",
		"L2::256B",
		"L2::evict_last",
		"L2::evict_normal",
		"L2::evict_first",
		"L2::cache_hint",
		"noftz",
		"uni",
		"unified",
	};

	for (uint32_t n = 0; n < sizeof(names) / sizeof(names[0]); n++)
		if (sim_part_is(d, part, names[n]))
			return true;
	return false;
}

struct access {
	enum ptx_type type;
	uint32_t vector; /* 0: none */
	bool shared;
	char operation[16]; /* atom, red */
};

static bool read_parts(struct sim_decoder *d, struct access *access) {
	*access = (struct access){ .type = PTX_TYPE_NONE };
	for (uint32_t n = 1; n < d->part_count; n++) {
		struct ptx_range part = d->parts[n];
		enum ptx_type type = sim_part_type(d, n);

		if (type != PTX_TYPE_NONE && type != PTX_TYPE_OTHER) {
			access->type = type;
		} else if (sim_part_is(d, n, "v2") || sim_part_is(d, n, "v4") ||
			   sim_part_is(d, n, "v8")) {
			access->vector = sim_text(d, part)[1] - '0';
		} else if (!harmless(d, n)) {
			if (access->operation[0] || part.length >= sizeof(access->operation))
				return sim_decode_fail(d, ".%.*s is not supported",
						       (int)(part.length < 80 ? part.length : 80),
						       sim_text(d, part));
			memcpy(access->operation, sim_text(d, part), part.length);
		}
		access->shared = access->shared ||
				 (part.length >= 6 && !memcmp(sim_text(d, part), "shared", 6));
	}
	return access->type != PTX_TYPE_NONE ||
	       sim_decode_fail(d, "a memory access without a type");
}

enum {
	READS = 1,
	WRITES = 2,
	SYSTEM = 4
}; /* flags of patches of memory */

/* The access that was emitted last can be patched, unless it is of parameters or constants. */
static bool access_site(struct sim_decoder *d, enum sim_access access, bool vector, uint32_t size,
			uint32_t flags) {
	struct sim_site site = { .access = access, .vector = vector, .size = size, .flags = flags };

	if (sim_has_part(d, "param") || sim_has_part(d, "param::entry") ||
	    sim_has_part(d, "param::func") || sim_has_part(d, "const"))
		return true;
	if (sim_has_part(d, "shared::cluster"))
		site.patch = PATCH_REMOTE_SHARED_MEMORY;
	else if (access == SIM_ACCESS_SHARED)
		site.patch = PATCH_SHARED_MEMORY;
	else if (access == SIM_ACCESS_FRAME || sim_has_part(d, "local"))
		site.patch = PATCH_LOCAL_MEMORY;
	else
		site.patch = PATCH_GLOBAL_MEMORY;
	site.generic = site.patch == PATCH_GLOBAL_MEMORY && !sim_has_part(d, "global");
	return sim_site(d, site);
}

static bool vector_access(struct sim_decoder *d, const struct access *access, bool load,
			  uint32_t address_operand, const uint32_t slots[8]) {
	struct sim_vector *vector;
	struct sim_address address;
	struct sim_insn *insn;
	uint32_t size = ptx_type_size(access->type);

	if (access->vector * size > 32 || !size)
		return sim_decode_fail(d, "a vector of more than 32 bytes");
	if (!sim_address(d, address_operand, access->shared, access->vector * size, &address))
		return false;
	vector = calloc(1, sizeof(*vector));
	if (!sim_keep(d, vector))
		return false;
	vector->offset = address.offset;
	vector->count = access->vector;
	vector->element = size;
	vector->is_signed = access->type >= PTX_TYPE_S8 && access->type <= PTX_TYPE_S64;
	vector->access = address.access;
	memcpy(vector->slots, slots, access->vector * sizeof(*slots));
	insn = sim_emit(d, load ? sim_op_load_vector() : sim_op_store_vector());
	if (!insn)
		return false;
	insn->a = address.slot;
	insn->data = vector;
	return access_site(d, address.access, true, access->vector * size, load ? READS : WRITES);
}

static bool plain_access(struct sim_decoder *d, bool load) {
	uint32_t value = load ? 0 : 1, place = load ? 1 : 0, slots[8], slot, count;
	struct sim_address address;
	struct access access;
	struct sim_insn *insn;

	if (!sim_operands(d, 2, 3) || !read_parts(d, &access))
		return false;
	if (sim_has_part(d, "release") && !sim_emit(d, sim_op_control(SIM_CONTROL_FENCE)))
		return false;
	if (access.operation[0])
		return sim_decode_fail(d, ".%s is not supported", access.operation);
	if (!sim_vector_operand(d, value, access.type, !load, slots, &count))
		return false;
	if (count != access.vector)
		return sim_decode_fail(d, "a vector of %u where %u are accessed", count,
				       access.vector);
	if (count)
		return vector_access(d, &access, load, place, slots);
	if (load ? !sim_destination(d, value, &slot) : !sim_source(d, value, access.type, &slot))
		return false;
	if (!sim_address(d, place, access.shared, ptx_type_size(access.type), &address))
		return false;
	insn = sim_emit(d, load ? sim_op_load(address.access, access.type)
				: sim_op_store(address.access, access.type));
	if (!insn)
		return false;
	insn->d = slot;
	insn->a = address.slot;
	insn->offset = address.offset;
	return access_site(d, address.access, false, ptx_type_size(access.type),
			   load ? READS : WRITES);
}

static bool load_or_store(struct sim_decoder *d, bool load) {
	return plain_access(d, load) &&
	       (!sim_has_part(d, "acquire") || sim_emit(d, sim_op_control(SIM_CONTROL_FENCE)));
}

static bool atomic(struct sim_decoder *d, bool reduction) {
	uint32_t first = reduction ? 0 : 1, destination = d->sink, b, c = d->zero;
	struct sim_address address;
	struct access access;
	struct sim_insn *insn;
	bool swap;

	if (!read_parts(d, &access))
		return false;
	swap = !strcmp(access.operation, "cas");
	if (!sim_operands(d, first + (swap ? 3 : 2), first + (swap ? 4 : 3)))
		return false;
	if (access.vector)
		return sim_decode_fail(d, "vector atomics are not supported");
	if (!reduction && !sim_destination(d, 0, &destination))
		return false;
	if (!sim_source(d, first + 1, access.type, &b) ||
	    (swap && !sim_source(d, first + 2, access.type, &c)) ||
	    !sim_address(d, first, access.shared, ptx_type_size(access.type), &address))
		return false;
	if (address.access == SIM_ACCESS_FRAME)
		return sim_decode_fail(d, "an atomic operation on a variable of the frame");
	insn = sim_emit(d, sim_op_atomic(access.operation, access.type));
	if (!insn)
		return false;
	insn->d = destination;
	insn->a = address.slot;
	insn->b = b;
	insn->c = c;
	insn->e = address.access;
	insn->offset = address.offset;
	return access_site(d, address.access, false, ptx_type_size(access.type),
			   READS | WRITES | (sim_has_part(d, "sys") ? SYSTEM : 0));
}

static bool emit_row(struct sim_decoder *d, const struct sim_op_row *rows, const char *key,
		     uint32_t destination, uint32_t source) {
	for (; rows->key; rows++)
		if (!strcmp(rows->key, key)) {
			struct sim_insn *insn = sim_emit(d, rows->op);

			if (!insn)
				return false;
			insn->d = destination;
			insn->a = source;
			return true;
		}
	return sim_decode_fail(d, "%s is not supported", key);
}

/* mov.b32 {a, b}, c and back: packing is done with what is there already, shifts and ors being too
 * many instructions. */
SIM_OP(pack) {
	const struct sim_vector *vector = i->data;
	uint64_t value = 0;

	for (uint32_t n = vector->count; n--;) {
		uint64_t element = RD(vector->slots[n]);

		if (vector->element < 8)
			element &= (UINT64_C(1) << 8 * vector->element) - 1;
		value = value << 8 * vector->element | element;
	}
	RD(i->d) = value;
	return i + 1;
}

SIM_OP(unpack) {
	const struct sim_vector *vector = i->data;
	uint64_t value = RD(i->a);

	for (uint32_t n = 0; n < vector->count; n++, value >>= 8 * vector->element)
		RD(vector->slots[n]) = value & ((UINT64_C(1) << 8 * vector->element) - 1);
	return i + 1;
}

static bool vector_move(struct sim_decoder *d, bool *known) {
	uint32_t to[8], from[8], to_count, from_count, slot,
		size = ptx_type_size(sim_part_type(d, 1));
	struct sim_vector *vector;
	struct sim_insn *insn;

	*known = true;
	if (!sim_operands(d, 2, 2) ||
	    !sim_vector_operand(d, 0, PTX_TYPE_B64, false, to, &to_count) ||
	    !sim_vector_operand(d, 1, PTX_TYPE_B64, true, from, &from_count))
		return false;
	if (!to_count && !from_count) {
		*known = false;
		return true;
	}
	if ((to_count && from_count) || size > 8 || size % (to_count + from_count))
		return sim_decode_fail(d, "a mov of vectors of this kind is not supported");
	vector = calloc(1, sizeof(*vector));
	if (!sim_keep(d, vector))
		return false;
	vector->count = to_count + from_count;
	vector->element = size / vector->count;
	memcpy(vector->slots, to_count ? to : from, sizeof(to));
	if (vector->count < 2 ||
	    (to_count ? !sim_source(d, 1, PTX_TYPE_B64, &slot) : !sim_destination(d, 0, &slot)))
		return sim_decode_fail(d, "a mov of a vector of one");
	insn = sim_emit(d, to_count ? unpack : pack);
	if (!insn)
		return false;
	insn->a = slot;
	insn->d = to_count ? d->sink : slot;
	insn->data = vector;
	return true;
}

static bool convert_address(struct sim_decoder *d) {
	static const char *const spaces[] = { "shared", "shared::cta",  "shared::cluster",
					      "global", "local",        "const",
					      "param",  "param::entry", NULL };
	static const char *const plain[] = { "shared", "shared", "shared", "global",
					     "local",  "const",  "param",  "param" };
	char key[64];
	uint32_t destination, source;

	if (!sim_operands(d, 2, 2))
		return false;
	for (uint32_t n = 0; spaces[n]; n++) {
		if (!sim_has_part(d, spaces[n]))
			continue;
		snprintf(key, sizeof(key), "%.*s%s.%s", (int)d->parts[0].length,
			 sim_text(d, d->parts[0]), sim_has_part(d, "to") ? ".to" : "", plain[n]);
		return sim_source(d, 1, PTX_TYPE_B64, &source) &&
		       sim_destination(d, 0, &destination) &&
		       emit_row(d, sim_op_address, key, destination, source);
	}
	return sim_decode_fail(d, "an address space that is not supported");
}

/* cp.async[...].shared.global [to], [from], size [, bytes to read, or a predicate: none]: done at
 * once, so there is nothing to wait for. */
static bool copy_async(struct sim_decoder *d) {
	const struct ptx_operand *last;
	const struct sim_symbol *symbol;
	struct sim_address to, from;
	struct sim_copy *copy;
	struct sim_insn *insn;
	uint32_t index;
	uint64_t size;
	bool good = true;

	if (sim_has_part(d, "commit_group") || sim_has_part(d, "wait_group") ||
	    sim_has_part(d, "wait_all"))
		return sim_emit(d, sim_op_control(SIM_CONTROL_NOP));
	if (sim_has_part(d, "bulk") || sim_has_part(d, "mbarrier") || !sim_has_part(d, "global"))
		return sim_decode_fail(d, "cp.async of this kind is not supported");
	copy = calloc(1, sizeof(*copy));
	if (!sim_keep(d, copy) || !sim_operands(d, 3, 5) ||
	    !sim_source(d, 2, PTX_TYPE_U32, &copy->read) || !sim_address(d, 0, true, 1, &to) ||
	    !sim_address(d, 1, false, 1, &from))
		return false;
	size = copy->read < d->function->register_count
		       ? 0
		       : d->constants[copy->read - d->function->register_count];
	if ((size != 4 && size != 8 && size != 16) || to.access != SIM_ACCESS_SHARED ||
	    from.access != SIM_ACCESS_REAL)
		return sim_decode_fail(d, "cp.async of this kind is not supported");
	copy->size = size;
	copy->ignore = d->zero;
	if (d->statement->operand_count > (sim_has_part(d, "L2::cache_hint") ? 4 : 3)) {
		last = &d->body->operands[d->statement->first_operand + 3];
		symbol = last->end - last->first == 1
				 ? sim_find_symbol(d, sim_token_range(d, last->first), &index)
				 : NULL;
		if (symbol ? symbol->type == PTX_TYPE_PRED : sim_token_char(d, last->first, '!'))
			good = sim_predicate_source(d, 3, &copy->ignore);
		else
			good = sim_source(d, 3, PTX_TYPE_U32, &copy->read);
	}
	if (!good)
		return false;
	copy->to = to.slot;
	copy->to_offset = to.offset;
	insn = sim_emit(d, sim_op_copy());
	if (!insn)
		return false;
	insn->a = from.slot;
	insn->data = copy;
	copy->from_offset = from.offset;
	return true;
}

/* createpolicy: a policy is a number that nobody looks at. */
static bool create_policy(struct sim_decoder *d) {
	struct sim_insn *insn;
	uint32_t destination;

	if (!sim_operands(d, 1, 4) || !sim_destination(d, 0, &destination))
		return false;
	insn = sim_emit(d, sim_op_copy_register());
	if (!insn)
		return false;
	insn->d = destination;
	return true;
}

/* mapa: in a cluster of one block every address maps to itself. */
static bool map_address(struct sim_decoder *d) {
	uint32_t destination, source;

	return sim_operands(d, 3, 3) && sim_source(d, 1, PTX_TYPE_B64, &source) &&
	       sim_destination(d, 0, &destination) &&
	       emit_row(d, sim_op_address, "cvta.global", destination, source);
}

bool sim_decode_memory(struct sim_decoder *d, bool *known) {
	*known = true;
	if (sim_part_is(d, 0, "ld") || sim_part_is(d, 0, "ldu"))
		return load_or_store(d, true);
	if (sim_part_is(d, 0, "st"))
		return load_or_store(d, false);
	if (sim_part_is(d, 0, "atom"))
		return atomic(d, false);
	if (sim_part_is(d, 0, "red"))
		return atomic(d, true);
	if (sim_part_is(d, 0, "cvta") || sim_part_is(d, 0, "isspacep"))
		return convert_address(d);
	if (sim_part_is(d, 0, "cp") && sim_has_part(d, "async"))
		return copy_async(d);
	if (sim_part_is(d, 0, "createpolicy"))
		return create_policy(d);
	if (sim_part_is(d, 0, "mapa"))
		return map_address(d);
	if (sim_part_is(d, 0, "mov") && d->part_count == 2)
		return vector_move(d, known);
	*known = false;
	return true;
}
