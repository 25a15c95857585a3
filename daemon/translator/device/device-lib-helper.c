/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The part of the device library for helpers of lanes, numbers and atomic changes
 * (proto/helper.h: NUMBER and ATOMIC). gpuprobe.bpf.h says what each gives.
 *
 * A helper of lanes asks once which lanes are together, and exchanges something with these alone:
 * lanes that are elsewhere are not waited for. What a lane asks of one that is not there is its own
 * value, so that no result is left to chance.
 *
 * Numbers: a NaN is the same NaN on every GPU, whatever its instructions make of one.
 */

#include "device-lib.h"

typedef long long s64;

#define EINVAL 22

/* ---- lanes ---- */

static inline u32 together(void) {
	return part_mask(lane_mask());
}

static inline u32 lane_id(void) {
	return (u32)__nvvm_read_ptx_sreg_laneid();
}

static inline u32 shuffle32(u32 mask, u32 value, u32 from) {
	return (u32)__nvvm_shfl_sync_idx_i32(mask, (int)value, (int)from, 31);
}

static inline u64 shuffle64(u32 mask, u64 value, u32 from) {
	u32 low = shuffle32(mask, (u32)value, from);
	u32 high = shuffle32(mask, (u32)(value >> 32), from);

	return (u64)high << 32 | low;
}

u64 gpuprobe_warp_active(void);
u64 gpuprobe_warp_active(void) {
	return together();
}

u64 gpuprobe_warp_is_leader(void);
u64 gpuprobe_warp_is_leader(void) {
	return is_leader(together());
}

u64 gpuprobe_warp_ballot(u64 condition);
u64 gpuprobe_warp_ballot(u64 condition) {
	return (u32)__nvvm_vote_ballot_sync(together(), condition != 0);
}

u64 gpuprobe_warp_any(u64 condition);
u64 gpuprobe_warp_any(u64 condition) {
	return __nvvm_vote_any_sync(together(), condition != 0);
}

u64 gpuprobe_warp_all(u64 condition);
u64 gpuprobe_warp_all(u64 condition) {
	return __nvvm_vote_all_sync(together(), condition != 0);
}

/* As text: the compiler takes the name only where the whole library is for sm_70. */
u64 gpuprobe_warp_match(u64 value);
u64 gpuprobe_warp_match(u64 value) {
	u32 same;

	__asm__ volatile("match.any.sync.b64 %0, %1, %2;"
			 : "=r"(same)
			 : "l"(value), "r"(together())
			 : "memory");
	return same;
}

/* The value of a lane that is together with this one; else the own. */
static inline u64 take(u64 value, u64 from) {
	u32 mask = together();

	return shuffle64(mask, value, from < 32 && mask >> from & 1 ? (u32)from : lane_id());
}

u64 gpuprobe_warp_shuffle(u64 value, u64 lane);
u64 gpuprobe_warp_shuffle(u64 value, u64 lane) {
	return take(value, lane);
}

u64 gpuprobe_warp_shuffle_up(u64 value, u64 distance);
u64 gpuprobe_warp_shuffle_up(u64 value, u64 distance) {
	return take(value, lane_id() - distance);
}

u64 gpuprobe_warp_shuffle_down(u64 value, u64 distance);
u64 gpuprobe_warp_shuffle_down(u64 value, u64 distance) {
	return take(value, lane_id() + distance);
}

u64 gpuprobe_warp_shuffle_xor(u64 value, u64 bits);
u64 gpuprobe_warp_shuffle_xor(u64 value, u64 bits) {
	return take(value, lane_id() ^ bits);
}

static inline u64 sum_of_warp(u64 value) {
#pragma unroll
	for (u32 distance = 16; distance; distance >>= 1)
		value += shuffle64(WARP, value, lane_id() ^ distance);
	return value;
}

/*
 * A sum over a part of a warp without a loop, in whose turns lanes could part. Each lane has the
 * sum of a run of lanes that begins with itself, and knows the first lane behind that run (32:
 * none); a step adds the run that begins there. The runs double, so the lowest lane has all after
 * five.
 */
static inline u64 sum_of_part(u32 mask, u64 value) {
	u32 above = mask & __nvvm_read_ptx_sreg_lanemask_gt();
	u32 next = above ? (u32)__builtin_ctz(above) : 32;

#pragma unroll
	for (int step = 0; step < 5; step++) {
		u32 from = next < 32 ? next : lane_id();
		u64 more = shuffle64(mask, value, from);
		u32 behind = shuffle32(mask, next, from);

		value += next < 32 ? more : 0;
		next = next < 32 ? behind : 32;
	}
	return shuffle64(mask, value, (u32)__builtin_ctz(mask));
}

u64 gpuprobe_warp_sum(u64 value);
u64 gpuprobe_warp_sum(u64 value) {
	u32 mask = lane_mask();

	return mask == WARP ? sum_of_warp(value) : sum_of_part(part_mask(mask), value);
}

/* ---- atomic changes of a map's value ---- */

#define DEFINE_CHANGE(name, operation, suffix, scope)                                           \
	void gpuprobe_atomic_##name##suffix(GLOBAL u64 *p, u64 v);                              \
	void gpuprobe_atomic_##name##suffix(GLOBAL u64 *p, u64 v) {                             \
		__asm__ volatile("red" scope ".global." operation " [%0], %1;" ::"l"(p), "l"(v) \
				 : "memory");                                                   \
	}
#define DEFINE_CHANGES(name, operation)      \
	DEFINE_CHANGE(name, operation, , "") \
	DEFINE_CHANGE(name, operation, _sys, ".sys")

DEFINE_CHANGES(min_u64, "min.u64")
DEFINE_CHANGES(max_u64, "max.u64")
DEFINE_CHANGES(min_s64, "min.s64")
DEFINE_CHANGES(max_s64, "max.s64")

#define DEFINE_FLOAT_ADD(suffix, scope)                                            \
	void gpuprobe_atomic_add_f64##suffix(GLOBAL u64 *p, u64 v);                \
	void gpuprobe_atomic_add_f64##suffix(GLOBAL u64 *p, u64 v) {               \
		__asm__ volatile("red" scope ".global.add.f64 [%0], %1;" ::"l"(p), \
				 "d"(__builtin_bit_cast(double, v))                \
				 : "memory");                                      \
	}

DEFINE_FLOAT_ADD(, "")
DEFINE_FLOAT_ADD(_sys, ".sys")

/* ---- numbers ---- */

/* enum gpuprobe_number of gpuprobe.bpf.h */
enum {
	F64,
	F32,
	F16,
	BF16,
	S64,
	U64,
};

/* enum gpuprobe_float_class */
enum {
	ZERO,
	SUBNORMAL,
	NORMAL,
	INFINITE,
	NOT_A_NUMBER,
};

u64 gpuprobe_log2(u64 value);
u64 gpuprobe_log2(u64 value) {
	return value ? 63 - (u32)__builtin_clzll(value) : 0;
}

static inline double f32_to_f64(u32 bits) {
	double wide;

	__asm__("cvt.f64.f32 %0, %1;" : "=d"(wide) : "f"(__builtin_bit_cast(float, bits)));
	return wide;
}

/* The number as f64; integers beyond 53 bits are rounded. */
static inline double decode(u64 value, u64 format) {
	double wide;

	switch (format) {
	case F64:
		return __builtin_bit_cast(double, value);
	case F32:
		return f32_to_f64((u32)value);
	case F16:
		__asm__("cvt.f64.f16 %0, %1;" : "=d"(wide) : "h"((unsigned short)value));
		return wide;
	case BF16:
		return f32_to_f64((u32)value << 16);
	case S64:
		__asm__("cvt.rn.f64.s64 %0, %1;" : "=d"(wide) : "l"(value));
		return wide;
	default:
		__asm__("cvt.rn.f64.u64 %0, %1;" : "=d"(wide) : "l"(value));
		return wide;
	}
}

static inline _Bool is_nan(double number) {
	return (__builtin_bit_cast(u64, number) & ~0ull >> 1) > 0x7ffull << 52;
}

/* To the nearest, of two that are as near to the even one. */
static inline u32 f64_to_f32(double number) {
	float narrow;

	__asm__("cvt.rn.f32.f64 %0, %1;" : "=f"(narrow) : "d"(number));
	return __builtin_bit_cast(u32, narrow);
}

static inline u32 f64_to_f16(double number) {
	unsigned short narrow;

	__asm__("cvt.rn.f16.f64 %0, %1;" : "=h"(narrow) : "d"(number));
	return narrow;
}

/*
 * By way of an f32 that was cut off, whose last bit tells whether anything was: so the number is
 * rounded once.
 */
static inline u32 f64_to_bf16(double number) {
	float narrow;
	u32 bits;

	__asm__("cvt.rz.f32.f64 %0, %1;" : "=f"(narrow) : "d"(number));
	bits = __builtin_bit_cast(u32, narrow);
	bits |= __builtin_bit_cast(u64, f32_to_f64(bits)) != __builtin_bit_cast(u64, number);
	return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static inline u64 f64_to_integer(double number, _Bool sign) {
	u64 integer;

	if (sign)
		__asm__("cvt.rzi.s64.f64 %0, %1;" : "=l"(integer) : "d"(number));
	else
		__asm__("cvt.rzi.u64.f64 %0, %1;" : "=l"(integer) : "d"(number));
	return integer;
}

u64 gpuprobe_float_convert(u64 value, u64 from, u64 to);
u64 gpuprobe_float_convert(u64 value, u64 from, u64 to) {
	double number = decode(value, from);
	_Bool nan = is_nan(number);

	if (from > U64)
		return 0;
	switch (to) {
	case F64:
		return nan ? 0x7ff8ull << 48 : __builtin_bit_cast(u64, number);
	case F32:
		return nan ? 0x7fc00000 : f64_to_f32(number);
	case F16:
		return nan ? 0x7e00 : f64_to_f16(number);
	case BF16:
		return nan ? 0x7fc0 : f64_to_bf16(number);
	case S64:
	case U64:
		return nan ? 0 : f64_to_integer(number, to == S64);
	default:
		return 0;
	}
}

u64 gpuprobe_float_compare(u64 a, u64 b, u64 format);
u64 gpuprobe_float_compare(u64 a, u64 b, u64 format) {
	double x = decode(a, format), y = decode(b, format);

	if (format > BF16)
		return (u64)-EINVAL;
	return x < y ? (u64)-1 : x > y ? 1 : x == y ? 0 : 2;
}

/* The class of a float by the bits of its exponent and of its mantissa. */
static inline u64 class_of(u64 value, u32 exponent_bits, u32 mantissa_bits) {
	u64 exponents = (1ull << exponent_bits) - 1, exponent = value >> mantissa_bits & exponents,
	    mantissa = value & ((1ull << mantissa_bits) - 1);

	if (exponent == exponents)
		return mantissa ? NOT_A_NUMBER : INFINITE;
	if (exponent)
		return NORMAL;
	return mantissa ? SUBNORMAL : ZERO;
}

u64 gpuprobe_float_class(u64 value, u64 format);
u64 gpuprobe_float_class(u64 value, u64 format) {
	switch (format) {
	case F64:
		return class_of(value, 11, 52);
	case F32:
		return class_of(value, 8, 23);
	case F16:
		return class_of(value, 5, 10);
	case BF16:
		return class_of(value, 8, 7);
	default:
		return (u64)-EINVAL;
	}
}
