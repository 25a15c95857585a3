# SPDX-License-Identifier: Apache-2.0
"""Helpers of lanes and of numbers for the interpreter of bpf.py, in plain arithmetic: fractions, not floats."""

import struct
from fractions import Fraction

M64 = (1 << 64) - 1
EINVAL = 22

# by the numbers of enum gpuprobe_number: bits of the exponent and of the mantissa; 4 and 5 are integers
FORMATS = {0: (11, 52), 1: (8, 23), 2: (5, 10), 3: (8, 7)}
SIGNED, UNSIGNED = 4, 5
ZERO, SUBNORMAL, NORMAL, INFINITE, NAN = range(5)


def fields(value, form):
    """Sign, exponent and mantissa."""
    exponent, mantissa = FORMATS[form]
    return value >> (exponent + mantissa) & 1, value >> mantissa & (1 << exponent) - 1, value & (1 << mantissa) - 1


def class_of(value, form):
    exponent, mantissa = fields(value, form)[1:]
    if exponent == (1 << FORMATS[form][0]) - 1:
        return NAN if mantissa else INFINITE
    return NORMAL if exponent else SUBNORMAL if mantissa else ZERO


def bias(form):
    return (1 << FORMATS[form][0] - 1) - 1


def decode(value, form):
    """(sign, number): a fraction, "infinite" or "nan"."""
    if form == UNSIGNED:
        return 0, Fraction(value)
    if form == SIGNED:
        signed = value - (1 << 64) if value >> 63 else value
        return int(signed < 0), Fraction(signed)
    sign, exponent, mantissa = fields(value, form)
    kind = class_of(value, form)
    if kind in (INFINITE, NAN):
        return sign, "infinite" if kind == INFINITE else "nan"
    if kind == NORMAL:
        mantissa += 1 << FORMATS[form][1]
    number = Fraction(mantissa) * Fraction(2) ** (max(exponent, 1) - bias(form) - FORMATS[form][1])
    return sign, -number if sign else number


def encode(sign, number, form):
    """The nearest float, of two that are as near the even one; integers are cut off and stay in their range."""
    exponent_bits, mantissa_bits = FORMATS.get(form, (0, 0))
    infinite = (1 << exponent_bits) - 1 << mantissa_bits
    if form in (SIGNED, UNSIGNED):
        low, high = (-(1 << 63), (1 << 63) - 1) if form == SIGNED else (0, M64)
        if isinstance(number, str):
            return 0 if number == "nan" else (low if sign else high) & M64
        return min(max(int(number), low), high) & M64
    top = sign << exponent_bits + mantissa_bits
    if number == "nan":
        return infinite | 1 << mantissa_bits - 1
    if number == "infinite":
        return top | infinite
    size = abs(number)
    exponent = size.numerator.bit_length() - size.denominator.bit_length() + bias(form) if size else 0
    exponent = max(exponent - (size < Fraction(2) ** (exponent - bias(form))), 1)  # 1: of subnormal numbers, too
    steps = round(size / Fraction(2) ** (exponent - bias(form) - mantissa_bits))  # to even
    # a mantissa that is full carries into the exponent
    return top | min(steps + (exponent - 1 << mantissa_bits), infinite)


def convert(value, source, target):
    if source not in range(6) or target not in range(6):
        return 0
    sign, number = decode(value & M64, source)
    if source in (SIGNED, UNSIGNED):  # by way of f64
        sign, number = decode(encode(sign, number, 0), 0)
    return encode(sign, number, target)


def compare(a, b, form):
    if form not in FORMATS:
        return -EINVAL
    (sign_a, a), (sign_b, b) = decode(a, form), decode(b, form)
    if "nan" in (a, b):
        return 2
    beyond = Fraction(1 << 2000)
    a, b = ((-beyond if sign else beyond) if number == "infinite" else number for sign, number in ((sign_a, a), (sign_b, b)))
    return (a > b) - (a < b)


def result(name, values):
    """What a helper of numbers gives."""
    if name == "bpf_log2":
        return max(values[0].bit_length() - 1, 0)
    if name == "bpf_float_convert":
        return convert(*values)
    if name == "bpf_float_compare":
        return compare(*values)
    if name == "bpf_float_class":
        return class_of(values[0], values[1]) if values[1] in FORMATS else -EINVAL
    raise KeyError(name)


def signed(value):
    return value - (1 << 64) if value >> 63 else value


def changed(name, old, operand):
    """What is in a map's value after a helper of atomic changes."""
    if name == "bpf_atomic_add_f64":
        return struct.unpack("<Q", struct.pack("<d", sum(struct.unpack("<dd", struct.pack("<QQ", old, operand)))))[0]
    choose = min if "_min_" in name else max
    return choose(old, operand, key=signed if name.endswith("s64") else None)


def ballot(calls):
    return sum(1 << lane for lane, values in calls.items() if values[0])


def taken(source):
    """A shuffle: the value of the lane that `source` names, if it is there."""

    def answer(lane, calls):
        value, argument = calls[lane]
        return calls.get(source(lane, argument) & M64, (value,))[0]

    return answer


LANES = {  # (lane, {lane: [r1, r2]}) of the lanes that are together
    "bpf_warp_active": lambda lane, calls: sum(1 << other for other in calls),
    "bpf_warp_is_leader": lambda lane, calls: lane == min(calls),
    "bpf_warp_ballot": lambda lane, calls: ballot(calls),
    "bpf_warp_any": lambda lane, calls: ballot(calls) != 0,
    "bpf_warp_all": lambda lane, calls: all(values[0] for values in calls.values()),
    "bpf_warp_match": lambda lane, calls: sum(1 << other for other in calls if calls[other][0] == calls[lane][0]),
    "bpf_warp_shuffle": taken(lambda lane, argument: argument),
    "bpf_warp_shuffle_up": taken(lambda lane, argument: lane - argument),
    "bpf_warp_shuffle_down": taken(lambda lane, argument: lane + argument),
    "bpf_warp_shuffle_xor": taken(lambda lane, argument: lane ^ argument),
    "bpf_warp_sum": lambda lane, calls: sum(values[0] for values in calls.values()),
}


def of_lanes(name, lane, calls):
    """What a helper of lanes gives one of them."""
    return int(LANES[name](lane, calls))
