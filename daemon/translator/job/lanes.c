/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds the integers in a map's values by their BTF type (lanes.h).
 *
 * A walk over a BTF type that writes down its integers. BTF comes from the object's author: types
 * may be nested without end or refer to each other in circles, so depth and steps are bounded. What
 * goes beyond is refused: an integer that is no lane would not be added.
 */

#include "lanes.h"

#include <bpf/btf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#define DEPTH_MAX 32
#define STEPS_MAX ((size_t)8 << 20) /* the integers of the largest values; a second at most */

struct lanes_walk {
	const struct btf *btf;
	uint32_t size;
	uint64_t end; /* of the last lane */
	size_t steps;
	int error; /* what lanes_find() returns; not 0: the walk is over */
	struct linked_lane *lanes;
	size_t n, capacity;
};

static void walk(struct lanes_walk *w, uint32_t id, uint64_t offset, unsigned int depth);

static void add_lane(struct lanes_walk *w, uint64_t offset, uint32_t size) {
	struct linked_lane *grown;

	if (w->n == w->capacity) {
		if (w->n == LINKED_LANES_MAX) {
			w->error = LANES_E_LIMIT;
			return;
		}
		w->capacity = w->n ? w->n * 2 : 64;
		grown = realloc(w->lanes, w->capacity * sizeof(*grown));
		if (!grown) {
			w->error = -ENOMEM;
			return;
		}
		w->lanes = grown;
	}
	w->lanes[w->n++] = (struct linked_lane){ .offset = (uint32_t)offset, .size = size };
	w->end = offset + size;
}

static void walk_int(struct lanes_walk *w, const struct btf_type *type, uint64_t offset) {
	uint32_t size = type->size;

	if (size != 1 && size != 2 && size != 4 && size != 8)
		return;
	if ((btf_int_encoding(type) & BTF_INT_BOOL) || btf_int_offset(type) ||
	    btf_int_bits(type) != size * 8)
		return;
	if (offset >= w->end && offset + size <= w->size)
		add_lane(w, offset, size);
}

/* The type behind modifiers and typedefs; NULL if there is none. */
static const struct btf_type *resolve(const struct btf *btf, uint32_t id) {
	for (unsigned int i = 0; i < DEPTH_MAX; i++) {
		const struct btf_type *type = btf__type_by_id(btf, id);

		if (!type || (!btf_is_mod(type) && !btf_is_typedef(type) && !btf_is_type_tag(type)))
			return type;
		id = type->type;
	}
	return NULL;
}

static void walk_array(struct lanes_walk *w, const struct btf_type *type, uint64_t offset,
		       unsigned int depth) {
	const struct btf_array *array = btf_array(type);
	const struct btf_type *element = resolve(w->btf, array->type);
	int64_t size = element ? btf__resolve_size(w->btf, array->type) : -1;

	if (size <= 0 || (size == 1 && btf_is_int(element)))
		return;
	for (uint32_t i = 0; i < array->nelems; i++) {
		uint64_t at = offset + (uint64_t)i * (uint64_t)size;

		if (at >= w->size || w->error)
			return;
		walk(w, array->type, at, depth + 1);
	}
}

static void walk_members(struct lanes_walk *w, const struct btf_type *type, uint64_t offset,
			 unsigned int depth) {
	uint32_t n = btf_is_union(type) && btf_vlen(type) ? 1 : btf_vlen(type);

	for (uint32_t i = 0; i < n && !w->error; i++)
		if (!btf_member_bitfield_size(type, i) && btf_member_bit_offset(type, i) % 8 == 0)
			walk(w, btf_members(type)[i].type,
			     offset + btf_member_bit_offset(type, i) / 8, depth + 1);
}

static void walk(struct lanes_walk *w, uint32_t id, uint64_t offset, unsigned int depth) {
	const struct btf_type *type;

	/* every visit counts, also one that ends here: a member that leads nowhere may stand
	 * thousands of times */
	if (w->steps++ >= STEPS_MAX || depth > DEPTH_MAX)
		w->error = LANES_E_LIMIT;
	if (w->error || offset >= w->size)
		return;
	type = resolve(w->btf, id);
	if (!type)
		return;
	if (btf_is_int(type))
		walk_int(w, type, offset);
	else if (btf_is_array(type))
		walk_array(w, type, offset, depth);
	else if (btf_is_composite(type))
		walk_members(w, type, offset, depth);
	else if (btf_is_var(type))
		walk(w, type->type, offset, depth + 1);
	else if (btf_is_datasec(type))
		for (uint32_t i = 0; i < btf_vlen(type) && !w->error; i++)
			walk(w, btf_var_secinfos(type)[i].type,
			     offset + btf_var_secinfos(type)[i].offset, depth + 1);
}

int lanes_find(const struct btf *btf, uint32_t type, uint32_t size, struct linked_lane **lanesp,
	       size_t *np) {
	struct lanes_walk w = { .btf = btf, .size = size };

	walk(&w, type, 0, 0);
	if (w.error) {
		free(w.lanes);
		return w.error;
	}
	*lanesp = w.lanes;
	*np = w.n;
	return 0;
}
