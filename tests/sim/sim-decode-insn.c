/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU driver's decoder of PTX (sim-decode.h). Instructions. Memory and control have files of
 * their own; comparisons and conversions are below; the rest is looked up by name in the tables of
 * the sim-op-*.c files.
 */

#include <stdio.h>
#include <stdlib.h>

#include "sim-decode.h"

#define ROWS_MAX 1024

/* --- the tables, hashed by key --- */

static struct {
	pthread_once_t once;
	const struct sim_op_row *plain[ROWS_MAX * 2], *general[ROWS_MAX];
} rows = { .once = PTHREAD_ONCE_INIT };

static void add_rows(const struct sim_op_row **table, size_t size, const struct sim_op_row *row) {
	for (; row->key; row++) {
		size_t at = sim_hash(row->key, strlen(row->key)) % size;

		while (table[at])
			at = (at + 1) % size;
		table[at] = row;
	}
}

static void build_rows(void) {
	add_rows(rows.plain, ROWS_MAX * 2, sim_op_integer);
	add_rows(rows.plain, ROWS_MAX * 2, sim_op_bits);
	add_rows(rows.plain, ROWS_MAX * 2, sim_op_float);
	add_rows(rows.plain, ROWS_MAX * 2, sim_op_half);
	add_rows(rows.general, ROWS_MAX, sim_op_general);
}

static const struct sim_op_row *find_row(const char *key, bool general) {
	const struct sim_op_row **table;
	size_t size = general ? ROWS_MAX : ROWS_MAX * 2, at;

	pthread_once(&rows.once, build_rows);
	table = general ? rows.general : rows.plain;
	for (at = sim_hash(key, strlen(key)) % size; table[at]; at = (at + 1) % size)
		if (!strcmp(table[at]->key, key))
			return table[at];
	return NULL;
}

/* --- modifiers --- */

static const struct {
	const char *name;
	uint32_t mode;
} modifiers[] = {
	{ "rn", SIM_RN },
	{ "rz", SIM_RZ },
	{ "rm", SIM_RM },
	{ "rp", SIM_RP },
	{ "rna", SIM_RA },
	{ "rni", SIM_RN | SIM_ROUND_INTEGER },
	{ "rzi", SIM_RZ | SIM_ROUND_INTEGER },
	{ "rmi", SIM_RM | SIM_ROUND_INTEGER },
	{ "rpi", SIM_RP | SIM_ROUND_INTEGER },
	{ "ftz", SIM_FTZ },
	{ "sat", SIM_SAT },
	{ "NaN", SIM_NAN },
	{ "approx", 0 },
	{ "full", 0 },
	{ "noftz", 0 },
};

static bool modifier(const struct sim_decoder *d, uint32_t part, uint32_t *mode) {
	for (size_t n = 0; n < sizeof(modifiers) / sizeof(modifiers[0]); n++)
		if (sim_part_is(d, part, modifiers[n].name)) {
			*mode |= modifiers[n].mode;
			return true;
		}
	return false;
}

static bool unknown(struct sim_decoder *d) {
	struct ptx_range first = d->parts[0], last = d->parts[d->part_count - 1];
	uint32_t length = last.offset + last.length - first.offset;

	return sim_decode_fail(d, "the instruction %.*s is not supported",
			       (int)(length < 100 ? length : 100), sim_text(d, first));
}

/* --- from the tables --- */

static bool fill_operands(struct sim_decoder *d, const struct sim_op_row *row, enum ptx_type type,
			  struct sim_insn *out) {
	uint32_t *fields[] = { &out->a, &out->b, &out->c, &out->e };
	uint32_t field = 0, count = strlen(row->format);

	if (!sim_operands(d, count, count))
		return false;
	for (uint32_t n = 0; n < count; n++) {
		bool good;

		switch (row->format[n]) {
		case 'D':
			good = sim_destination(d, n, &out->d);
			break;
		case 'p':
			good = sim_predicate_source(d, n, fields[field++]);
			break;
		case 'f':
			good = sim_source(d, n, PTX_TYPE_F32, fields[field++]);
			break;
		default:
			good = sim_source(d, n, row->format[n] == 't' ? type : PTX_TYPE_B64,
					  fields[field++]);
		}
		if (!good)
			return false;
	}
	return true;
}

static bool from_tables(struct sim_decoder *d) {
	const struct sim_op_row *row;
	struct sim_insn fields = { .d = d->sink,
				   .a = d->zero,
				   .b = d->zero,
				   .c = d->zero,
				   .e = d->sink },
			*insn;
	enum ptx_type type = PTX_TYPE_NONE;
	uint32_t mode = 0, length = 0;
	char key[128];

	for (uint32_t n = 0; n < d->part_count; n++) {
		enum ptx_type part = n ? sim_part_type(d, n) : PTX_TYPE_NONE;
		uint32_t added = 0;

		if (part != PTX_TYPE_NONE && type == PTX_TYPE_NONE)
			type = part;
		if (n && modifier(d, n, &added)) {
			mode |= added;
			continue;
		}
		if (length + d->parts[n].length + 8 > sizeof(key))
			return unknown(d);
		length += sprintf(key + length, "%s%.*s", n ? "." : "", (int)d->parts[n].length,
				  sim_text(d, d->parts[n]));
	}
	if ((mode & SIM_SAT) && type == PTX_TYPE_S32) { /* integers: a name of its own */
		char *dot = strrchr(key, '.');

		if (!dot)
			return unknown(d);
		memmove(dot + 4, dot, strlen(dot) + 1);
		memcpy(dot, ".sat", 4);
		mode &= ~SIM_SAT;
	}
	if (type == PTX_TYPE_F64)
		mode &= ~SIM_FTZ; /* rcp.approx.ftz.f64 and rsqrt: exact here */
	row = find_row(key, mode && (type == PTX_TYPE_F32 || type == PTX_TYPE_F64));
	if (!row)
		return unknown(d);
	if (!fill_operands(d, row, type, &fields))
		return false;
	insn = sim_emit(d, row->op);
	if (!insn)
		return false;
	insn->d = fields.d;
	insn->a = fields.a;
	insn->b = fields.b;
	insn->c = fields.c;
	insn->e = fields.e;
	insn->mode = mode;
	return true;
}

/* --- setp, set --- */

static bool compare_from_name(const struct sim_decoder *d, uint32_t part,
			      enum sim_compare *compare) {
	static const char *const names[SIM_COMPARE_COUNT] = { "eq",  "ne",  "lt",  "le",  "gt",
							      "ge",  "equ", "neu", "ltu", "leu",
							      "gtu", "geu", "num", "nan" };
	static const char *const unsigned_names[] = { "", "", "lo", "ls", "hi", "hs" };

	for (int n = 0; n < SIM_COMPARE_COUNT; n++)
		if (sim_part_is(d, part, names[n]) ||
		    (n >= 2 && n < 6 && sim_part_is(d, part, unsigned_names[n]))) {
			*compare = n;
			return true;
		}
	return false;
}

static enum sim_boolean boolean_from_name(const struct sim_decoder *d, uint32_t part) {
	return sim_part_is(d, part, "and")   ? SIM_BOOL_AND
	       : sim_part_is(d, part, "or")  ? SIM_BOOL_OR
	       : sim_part_is(d, part, "xor") ? SIM_BOOL_XOR
					     : SIM_BOOL_NONE;
}

/* setp.lt[.and][.ftz].type p[|q], a, b[, [!]c]; set.lt[.and][.ftz].dtype.stype d, a, b[, [!]c] */
static bool compare(struct sim_decoder *d, bool set) {
	enum sim_compare comparison;
	enum sim_boolean boolean = SIM_BOOL_NONE;
	enum ptx_type type, result = PTX_TYPE_PRED;
	uint32_t mode = 0, p, q = d->sink, a, b, c = d->zero, part = 2;
	struct sim_insn *insn;
	bool simple;

	if (d->part_count < (set ? 4u : 3u) || !compare_from_name(d, 1, &comparison))
		return unknown(d);
	type = sim_part_type(d, d->part_count - 1);
	if (set)
		result = sim_part_type(d, d->part_count - 2);
	if (boolean_from_name(d, part) != SIM_BOOL_NONE)
		boolean = boolean_from_name(d, part++);
	for (; part < d->part_count - (set ? 2 : 1); part++)
		if (!modifier(d, part, &mode) || mode & ~SIM_FTZ)
			return unknown(d);
	if (!sim_op_setp(comparison, type))
		return unknown(d);
	if (set && result != PTX_TYPE_U32 && result != PTX_TYPE_S32 && result != PTX_TYPE_F32)
		return unknown(d);
	if (!sim_operands(d, boolean ? 4 : 3, boolean ? 4 : 3) ||
	    (set ? !sim_destination(d, 0, &p) : !sim_destination_pair(d, 0, &p, &q)) ||
	    !sim_source(d, 1, type, &a) || !sim_source(d, 2, type, &b) ||
	    (boolean && !sim_predicate_source(d, 3, &c)))
		return false;
	simple = !set && !boolean && !mode && q == d->sink;
	insn = sim_emit(d, simple ? sim_op_setp(comparison, type)
			   : set  ? sim_op_set()
				  : sim_op_setp_general());
	if (!insn)
		return false;
	insn->d = p;
	insn->e = q;
	insn->a = a;
	insn->b = b;
	insn->c = c;
	insn->mode = comparison | (uint32_t)boolean << 8 | (uint32_t)type << 16 | mode << 24;
	insn->bits = result == PTX_TYPE_F32;
	return true;
}

/* cvt[.round][.ftz][.sat].to.from */
static bool convert(struct sim_decoder *d) {
	enum ptx_type to, from;
	uint32_t mode = 0, destination, source;
	struct sim_insn *insn;

	if (d->part_count < 3)
		return unknown(d);
	to = sim_part_type(d, d->part_count - 2);
	from = sim_part_type(d, d->part_count - 1);
	for (uint32_t part = 1; part + 2 < d->part_count; part++)
		if (!modifier(d, part, &mode))
			return unknown(d);
	if (!sim_op_convert(to, from, mode))
		return unknown(d);
	if (!sim_operands(d, 2, 2) || !sim_destination(d, 0, &destination) ||
	    !sim_source(d, 1, from, &source))
		return false;
	insn = sim_emit(d, sim_op_convert(to, from, mode));
	if (!insn)
		return false;
	insn->d = destination;
	insn->a = source;
	insn->mode = mode | (uint32_t)to << 8 | (uint32_t)from << 16;
	return true;
}

bool sim_decode_instruction(struct sim_decoder *d) {
	bool known;

	if (!sim_decode_memory(d, &known))
		return false;
	if (known)
		return true;
	if (!sim_decode_control(d, &known))
		return false;
	if (known)
		return true;
	if (sim_part_is(d, 0, "setp") || sim_part_is(d, 0, "set"))
		return compare(d, sim_part_is(d, 0, "set"));
	if (sim_part_is(d, 0, "cvt"))
		return convert(d);
	return from_tables(d);
}
