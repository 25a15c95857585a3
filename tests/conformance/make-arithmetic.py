#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes cases/arithmetic.txt: every operation, both widths, both kinds of operand, on values at the edges.

Each case folds the results on several pairs of operands into r0, which is rotated in between, so that each result counts.
Run `./make-arithmetic.py && ./run.py --fill cases/arithmetic.txt` after a change.
"""

EDGES = [
    (0, 0),
    (1, 0),
    (0, 1),
    (7, 3),
    (-7, 3),
    (7, -3),
    (-7, -3),
    (0x7FFFFFFFFFFFFFFF, -1),
    (-1 << 63, -1),
    (-1 << 31, -1),
    (0x80000000, 0xFFFFFFFF),
    (0xFFFFFFFF, 1),
    (-1, 0xFFFFFFFF),
    (0x123456789ABCDEF0, 0x0FEDCBA987654321),
    (0x8000000000000000, 63),
    (0x80000001, 31),
    (0xDEADBEEFCAFEBABE, 64),
    (0xDEADBEEFCAFEBABE, 33),
]
IMMEDIATES = [0, 1, -1, 3, -3, 31, 32, 63, 0x7FFFFFFF, -0x80000000]
OPERATIONS = [
    ("add", "+="),
    ("sub", "-="),
    ("mul", "*="),
    ("div", "/="),
    ("sdiv", "s/="),
    ("mod", "%="),
    ("smod", "s%="),
    ("or", "|="),
    ("and", "&="),
    ("xor", "^="),
    ("lsh", "<<="),
    ("rsh", ">>="),
    ("arsh", "s>>="),
    ("mov", "="),
]
JUMPS = [
    ("jeq", "=="),
    ("jne", "!="),
    ("jgt", ">"),
    ("jge", ">="),
    ("jlt", "<"),
    ("jle", "<="),
    ("jsgt", "s>"),
    ("jsge", "s>="),
    ("jslt", "s<"),
    ("jsle", "s<="),
    ("jset", "&"),
]
UNARY = [
    "r3 = -r3",
    "w3 = -w3",
    "r3 = (s8)r3",
    "r3 = (s16)r3",
    "r3 = (s32)r3",
    "w3 = (s8)w3",
    "w3 = (s16)w3",
    "r3 = be16 r3",
    "r3 = be32 r3",
    "r3 = be64 r3",
    "r3 = le16 r3",
    "r3 = le32 r3",
    "r3 = le64 r3",
    "r3 = bswap16 r3",
    "r3 = bswap32 r3",
    "r3 = bswap64 r3",
]


def value(register, bits, source):
    """A value the compiler cannot know: from memory. Otherwise a constant."""
    bits &= (1 << 64) - 1
    if source is None:
        return ["r%d = 0x%x ll" % (register, bits)]
    source.append(bits)
    return ["r%d = *(u64 *)(r9 + %d)" % (register, 8 * (len(source) - 1))]


FOLD = ["r0 *= 31", "r0 ^= r3"]


def case(out, name, steps, source):
    out.append("== " + name)
    if source:
        out.append(".mem " + "".join(v.to_bytes(8, "little").hex() for v in source))
    out.append("r9 = r1")
    out.append("r0 = 0")
    out += ["; ".join(step) for step in steps]
    out += ["exit", ""]


def main():
    out = ["# SPDX-License-Identifier: Apache-2.0", "# Made by make-arithmetic.py.", ""]
    for letter, width in (("r", "64"), ("w", "32")):
        for name, op in OPERATIONS:
            for kind in ("known", "unknown"):
                source = None if kind == "known" else []
                steps = [
                    value(3, a, source) + value(4, b, source) + ["%s3 %s %s4" % (letter, op, letter)] + FOLD
                    for a, b in (EDGES[5:11] if kind == "known" else EDGES)
                ]
                case(out, "%s%s register %s" % (name, width, kind), steps, source)
            source = []
            steps = [value(3, a, source) + ["%s3 %s %d" % (letter, op, i)] + FOLD for i in IMMEDIATES for a, _ in EDGES[6:9]]
            case(out, "%s%s immediate" % (name, width), steps, source)
        for name, op in JUMPS:
            source = []
            steps = [
                value(3, a, source) + value(4, b, source) + ["r5 = 1", "if %s3 %s %s4 goto +1" % (letter, op, letter), "r5 = 2", "r3 = r5"] + FOLD
                for a, b in EDGES
            ]
            case(out, "%s%s register" % (name, width), steps, source)
            source = []
            steps = [
                value(3, a, source) + ["r5 = 1", "if %s3 %s %d goto +1" % (letter, op, i), "r5 = 2", "r3 = r5"] + FOLD
                for i in IMMEDIATES
                for a, _ in EDGES[6:9]
            ]
            case(out, "%s%s immediate" % (name, width), steps, source)
    for operation in UNARY:
        for kind in ("known", "unknown"):
            source = None if kind == "known" else []
            steps = [value(3, a, source) + [operation] + FOLD for a, _ in EDGES]
            case(out, operation.replace("r3", "").replace("w3", "w").replace("=", "").strip() + " " + kind, steps, source)
    with open("cases/arithmetic.txt", "w") as f:
        f.write("\n".join(out))


main()
