#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""verified-programs.py [--seed N | --seed new] [--count N] [--verbose] BPF_RUN: programs made at random that the kernel's verifier accepts, run
by the kernel and by bpf-run.

What random-programs.py cannot have: addresses of stacks and values that are copied, moved, spilled, overwritten in part and filled,
merged where ways of control meet, passed to functions; values that are NULL or not. The generator has a guess of what each register
and stack slot holds. A third of the programs then get a line or two wrong. Which are programs, the kernel's verifier says; which
give the same wherever stack, maps and context lie, and whatever was on the stack before, the interpreter in bpf.py: the others are
passed over. r0 and the maps must agree. Every second program runs in its patch form.

In one program of a run the kernel may be alone against the interpreter and bpf-run. Linux 6.18 has such a fault (seed 1795832176): its
verifier takes a stack slot for the number that it held before a store at an address that depends on a loop's counter, and removes the
branch that this number does not take. Two such programs are a failure.

A program that differs is printed, the first of them also without lines that do not matter. What the translator refuses is counted:
it knows constants, but no ranges of numbers, so it looks at ways that the verifier knows are never taken (1 of 1000 or so). Exit 77: no CUDA driver, or no bpf(2).
"""

import argparse
import collections
import concurrent.futures
import copy
import itertools
import random
import re
import sys
import time

import kernel
import run

DATA, SLOTS, KEY = -64, range(-128, -64, 8), -136  # of a stack: bytes that are only data; what may be addresses; keys
GLOBAL, RESULT, PERCPU = 4, 5, {1, 3}  # maps
ENTRIES = 3
PORTION = 50  # programs that run at a time
OPERATIONS = ["+=", "-=", "*=", "/=", "s/=", "%=", "s%=", "|=", "&=", "^=", "<<=", ">>=", "s>>=", "="]
CONDITIONS = ["==", "!=", ">", ">=", "<", "<=", "s>", "s>=", "s<", "s<=", "&"]
CONSTANTS = [0, 1, -1, 2, 7, -8, 31, 63, 255, 0x7FFF, 0x7FFFFFFF, -0x80000000]
SIZES = [8, 16, 32, 64]

# An address: of what (maps' numbers, -1 a stack); bytes that may be accessed, from it on; the address is `phase` modulo `step`;
# `null`: 0, or a number that it has in common with its copies, if it may be NULL.
Pointer = collections.namedtuple("Pointer", "where low high step phase null")
NUMBER, ZERO = "number", "zero"  # what else a register holds; None: nothing to be used


def moved(p, by, spread=0, step=8):
    """The address plus `by` plus one of 0, step ... spread."""
    step = min(step, p.step)
    return p._replace(low=p.low - by, high=p.high - by - spread, step=step, phase=(p.phase + by) % step)


def is_number(kind):
    return kind in (NUMBER, ZERO)


class State:
    """What registers and slots hold. A slot that was written in part is a tuple: which bytes are numbers."""

    def __init__(self):
        self.registers = [None] * 10
        self.slots = {at: None for at in SLOTS}

    def copy(self):
        return copy.deepcopy(self)

    def all(self):
        return [(self.registers, i) for i in range(10)] + [(self.slots, at) for at in SLOTS]


def bytes_of(kind):
    return kind if isinstance(kind, tuple) and not isinstance(kind, Pointer) else (is_number(kind),) * 8


class Generator:
    def __init__(self, seed):
        self.random = r = random.Random(seed)
        self.labels, self.nulls = 0, 0
        self.sizes = [r.choice([8, 16, 20, 24, 40]) for _ in range(4)] + [32, 8]
        self.maps = [
            "%d:4:%d:%d" % (kind, size, entries)
            for kind, size, entries in zip([r.choice([2, 6]), 6, r.choice([1, 5]), 5, 2, 2], self.sizes, [ENTRIES] * 4 + [1, 1])
        ]
        self.functions = {}  # name: (its kind, maps that it updates)

    # ---- what there is ----

    def label(self):
        self.labels += 1
        return "l%d" % self.labels

    def emit(self, *lines):
        self.out += lines

    def get(self, register):
        return self.state.registers[register]

    def set(self, register, kind):
        self.state.registers[register] = kind

    def target(self, *avoid):
        """A register to write to, rather one without an address."""
        free = [i for i in range(9) if i not in self.frozen and i not in avoid]
        numbers = [i for i in free if not isinstance(self.get(i), Pointer)]
        return self.random.choice(numbers if numbers and self.random.random() < 0.8 else free)

    def constant(self):
        r = self.random
        return r.choice(CONSTANTS) if r.random() < 0.6 else r.randrange(-1 << 31, 1 << 31)

    def number(self, *avoid):
        """A register that holds one."""
        found = [i for i in range(9) if is_number(self.get(i)) and i not in avoid]
        return self.random.choice(found) if found and self.random.random() < 0.9 else self.fresh(*avoid)

    def fresh(self, *avoid):
        r, target = self.random, self.target(*avoid)
        self.emit(
            r.choice(
                [
                    "r%d = %d" % (target, self.constant()),
                    "r%d = 0x%x ll" % (target, r.getrandbits(64)),
                    "r%d = *(u64 *)(r9 + %d)" % (target, 8 * r.randrange(12)),
                    "r%d = *(u64 *)(r10 - %d)" % (target, 8 * r.randrange(1, 9)),
                ]
            )
        )
        self.set(target, NUMBER)
        return target

    def pointers(self, low=0, high=8):
        """Registers with addresses that are not NULL and have that room."""
        return [i for i in range(9) if isinstance(self.get(i), Pointer) and not self.get(i).null and self.get(i).low <= low and self.get(i).high >= high]

    def pointer(self, low=0, high=8):
        found = self.pointers(low, high)
        if found and self.random.random() < 0.9:
            return self.random.choice(found)
        target = self.target()
        if self.random.random() < 0.3:
            self.emit("r%d = value[%d] + 0 ll" % (target, GLOBAL))
            self.set(target, Pointer(frozenset([GLOBAL]), 0, 32, 8, 0, 0))
        else:
            self.emit("r%d = r10" % target, "r%d += %d" % (target, DATA))
            self.set(target, Pointer(frozenset([-1]), 0, -DATA, 8, 0, 0))
        return target

    def place(self, bits, aligned=False, register=None):
        """(rN + M), for an access of that size; None: there is none."""
        size, r = bits // 8, self.random
        if register is None and r.random() < 0.2:
            return "(r10 - %d)" % (size * r.randrange(1, -DATA // size + 1))
        register = self.pointer(0, size) if register is None else register
        p = self.get(register)
        offsets = range(p.low, p.high - size + 1)
        if aligned or -1 in p.where:
            offsets = [at for at in offsets if p.step >= size and (p.phase + at) % size == 0]
        return self.at(register, r.choice(offsets)) if offsets else None

    @staticmethod
    def at(register, offset):
        return "(r%d %s %d)" % (register, "-" if offset < 0 else "+", abs(offset))

    # ---- statements ----

    def arithmetic(self):
        r, letter, op = self.random, self.random.choice("rw"), self.random.choice(OPERATIONS)
        a = self.number()
        if a in self.frozen:
            return
        self.set(a, NUMBER)
        if r.random() < 0.5:
            b = self.number()
            return self.emit("%s%d %s %s%d" % (letter, a, op, letter, b))
        value = self.constant()
        if op in ("<<=", ">>=", "s>>="):
            value &= 63 if letter == "r" else 31
        elif op in ("/=", "%=", "s/=", "s%="):
            value = value or -1
        self.emit("%s%d %s %d" % (letter, a, op, value))

    def divide(self):
        """By what has no result elsewhere."""
        r, a, b = self.random, self.target(), self.target()
        self.emit("r%d = %s" % (b, r.choice(["0", "-1"])))
        self.emit(r.choice(["r%d = *(u64 *)(r9 + 8)" % a, "r%d = 0x%x ll" % (a, 1 << 63), "r%d = 0x%x ll" % (a, 1 << 31)]))
        self.emit(
            "%s%d %s %s%d"
            % (r.choice([("r", a, op, "r", b) for op in ("/=", "%=", "s/=", "s%=")] + [("w", a, op, "w", b) for op in ("/=", "%=", "s/=", "s%=")]))
        )
        self.set(a, NUMBER)
        self.set(b, NUMBER)

    def unary(self):
        a, b = self.number(), self.number()
        if a in self.frozen:
            return
        self.emit(
            self.random.choice(
                [
                    "r%d = -r%d" % (a, a),
                    "w%d = -w%d" % (a, a),
                    "r%d = (s8)r%d" % (a, b),
                    "r%d = (s16)r%d" % (a, b),
                    "r%d = (s32)r%d" % (a, b),
                    "w%d = (s8)w%d" % (a, b),
                    "w%d = (s16)w%d" % (a, b),
                    "r%d = be16 r%d" % (a, a),
                    "r%d = be32 r%d" % (a, a),
                    "r%d = be64 r%d" % (a, a),
                    "r%d = le16 r%d" % (a, a),
                    "r%d = le32 r%d" % (a, a),
                    "r%d = bswap16 r%d" % (a, a),
                    "r%d = bswap32 r%d" % (a, a),
                    "r%d = bswap64 r%d" % (a, a),
                    "w%d = w%d" % (a, b),
                ]
            )
        )
        self.set(a, NUMBER)

    def copy(self):
        source, target = self.random.randrange(9), self.target()
        if self.get(source) is not None:
            self.emit("r%d = r%d" % (target, source))
            self.set(target, self.get(source))

    def move(self):
        """A pointer, by a constant or by what is not known."""
        r, source, target = self.random, self.pointer(), self.target()
        p, size = self.get(source), self.random.choice([1, 4, 8])
        if target != source:
            self.emit("r%d = r%d" % (target, source))
        elif source in self.frozen:
            return
        if r.random() < 0.5 or p.high <= 8:
            by = r.randrange(p.low, p.high)
            by -= by % size if -1 in p.where else 0
            if r.random() < 0.4:
                self.emit("if %s goto +1" % self.condition(self.number(target, source)))
                self.set(target, self.joined(p, moved(p, by), {}))
            else:
                self.set(target, moved(p, by))
            return self.emit("r%d %s %d" % (target, *r.choice([("+=", by), ("-=", -by)][: 1 if -1 in p.where else 2])))
        index, step = self.target(source, target), r.choice([1, 4, 8])
        most = step * (r.choice([n for n in (2, 4, 8) if n == 2 or n * step < p.high]) - 1)
        step = self.index(index, step, most, (source, target))
        self.emit("r%d += r%d" % (target, index))
        self.set(target, moved(p, 0, most, step))
        bits = r.choice([32, 64, 64])
        where = self.place(bits, register=target)
        if where:
            self.emit("*(u%d *)%s = %d" % (bits, where, self.constant()))

    def index(self, register, step, most, avoid):
        """0, step ... most in a register, perhaps by way of a slot that is overwritten in part. Returns the step that it has."""
        r, source, slot = self.random, self.number(register, *avoid), self.free_slot()
        self.emit(
            *r.choice(
                [
                    ["r%d = r%d" % (register, source), "r%d &= %d" % (register, most)],
                    ["w%d = w%d" % (register, source), "w%d &= %d" % (register, most // step), "r%d *= %d" % (register, step)],
                    ["r%d = r%d" % (register, source), "r%d &= %d" % (register, most // step), "r%d <<= %d" % (register, step.bit_length() - 1)],
                    ["r%d = %d" % (register, r.choice([0, step, most]))],
                ]
            )
        )
        self.set(register, NUMBER)
        if slot is None or r.random() < 0.5:
            return step
        bits, where, other = r.choice([8, 16, 32]), "(r10 - %d)" % -slot, self.target(register, source, *avoid)
        if r.random() < 0.5 and SLOTS[-1] not in self.frozen:  # the last slot or the data behind it
            slot, where = SLOTS[-1], "(r%d - %d)" % (other, -SLOTS[-1])
            self.emit("r%d = r%d" % (other, source), "r%d &= 8" % other, "r%d += r10" % other)
        self.emit(
            "*(u64 *)(r10 - %d) = %s" % (-slot, r.choice(["r%d" % register, "0", "8"])),
            "r%d = r%d" % (register, source),
            "r%d &= 15" % register,
            "*(u%d *)%s = %s" % (bits, where, r.choice(["r%d" % register, str(r.randrange(9))])),
            "r%d = *(u%d *)(r10 - %d)" % (register, r.choice([bits, 64, 64]), -slot),
        )
        self.set(other, None)
        self.state.slots[slot] = NUMBER
        if r.random() < 0.3:
            self.emit("r%d &= %d" % (register, most))
            return step
        self.emit("if r%d <= %d goto +1" % (register, most), "r%d = 0" % register)
        return 1

    def free_slot(self):
        return self.random.choice([at for at in SLOTS if at not in self.frozen] or [None])

    def load(self):
        r, bits = self.random, self.random.choice(SIZES)
        where, target = self.place(bits), self.target()
        if where:
            self.emit("r%d = *(%s%d *)%s" % (target, r.choice("us") if bits < 64 else "u", bits, where))
            self.set(target, NUMBER)

    def store(self):
        r, bits = self.random, self.random.choice(SIZES)
        source, where = self.number(), self.place(bits)
        if where and is_number(self.get(source)):
            self.emit("*(u%d *)%s = %s" % (bits, where, r.choice(["r%d" % source, str(self.constant())])))

    def field(self):
        r, bits, target = self.random, self.random.choice(SIZES), self.target()
        at, sign = r.randrange(8 * kernel.CONTEXT_SIZE // bits) * bits // 8, r.choice("us") if bits < 64 else "u"
        self.emit("r%d = *(%s%d *)(r9 + %d)" % (target, sign, bits, at))
        self.set(target, NUMBER)

    def atomic(self):
        r, bits = self.random, self.random.choice([32, 64])
        where, a = self.place(bits, aligned=True), self.number()
        if not where or not is_number(self.get(a)) or "(r%d " % a in where:
            return
        if a in self.frozen or r.random() < 0.4:
            return self.emit("lock *(u%d *)%s %s= r%d" % (bits, where, r.choice("+|&^"), a))
        if is_number(self.get(0)) and r.random() < 0.3 and 0 not in self.frozen:
            return self.emit("r0 = cmpxchg((u%d *)%s, r0, r%d)" % (bits, where, a))
        fetches = ["r%d = atomic_fetch_%s((u%d *)%s, r%d)" % (a, op, bits, where, a) for op in ("add", "or", "and", "xor")]
        self.emit(r.choice(fetches + ["r%d = xchg((u%d *)%s, r%d)" % (a, bits, where, a)]))
        self.set(a, NUMBER)

    def add(self):
        """`*v += x`, or something like it."""
        r, bits = self.random, self.random.choice([64, 64, 32, 32, 16])
        p = r.choice([i for i in self.pointers() if self.get(i).where <= PERCPU] or [self.pointer()])
        where = self.get(p)
        low, high = where.low, where.high - bits // 8
        if -1 in where.where and (where.step < bits // 8 or where.phase % (bits // 8)):
            return
        a = self.target(p)
        b = self.number(p, a)
        if a == p or b == p or high < low:
            return
        self.set(a, NUMBER)
        step = bits // 8 if -1 in where.where or r.random() < 0.5 else 1
        at = r.choice([n for n in range(low, high + 1) if (n + where.phase) % step == 0] or [0])
        near = at + r.choice([-8, -4, -1, 1, 2, 4, 8])
        near = near if low <= near <= high and -1 not in where.where else at
        sum_, operand = (a, b) if b in self.frozen or r.random() < 0.7 else (b, a)
        letter = r.choice("rrrw")
        adds = ["%s%d %s %s%d" % (letter, sum_, r.choice(["+=", "+=", "-="]), letter, operand)]
        if sum_ == a:
            adds.append("%s%d %s %d" % (letter, a, r.choice(["+=", "-="]), self.constant()))
        noise = [
            "r%d = *(u%d *)%s" % (a, bits, self.at(p, at)),
            "*(u%d *)%s = r%d" % (bits, self.at(p, near), b),
            "*(u%d *)%s = %d" % (bits, self.at(p, near), self.constant()),
            "r%d ^= r%d" % (b, a),
            "w%d += 1" % b,
            "r%d = 7" % b,
            "r%d = r%d" % (b, a),
            "r%d = *(u%d *)%s" % (b, bits, self.at(p, near)),
            "*(u64 *)(r10 - 8) = r%d" % a,
            "lock *(u64 *)(r10 - 16) += r%d" % a,
        ]
        noise = [line for line in noise if b not in self.frozen or not re.match(r"[rw]%d " % b, line)]
        mere = [line for line in noise if "*" not in line] or noise
        out = ["r%d = *(%s%d *)%s" % (a, r.choice("uuus") if bits < 64 else "u", bits, self.at(p, at)), r.choice(adds)]
        other = r.choice([8, 16, 32, 64])
        other = other if r.random() < 0.2 and at + other // 8 <= where.high and -1 not in where.where else bits
        out.append("*(u%d *)%s = r%d" % (other, self.at(p, r.choice([at, at, at, near])), r.choice([sum_, sum_, sum_, operand])))
        for _ in range(r.choice([0, 0, 1, 1, 2, 3])):
            out.insert(r.randrange(1, len(out)), r.choice(noise if r.random() < 0.5 else mere))
        self.emit(*out, *r.choice([[], ["*(u64 *)(r10 - 24) = r%d" % r.choice([a, b])]]))
        if b not in self.frozen:
            self.set(b, NUMBER)

    def spill(self):
        """To a slot, whole or in part."""
        r, slot = self.random, self.free_slot()
        if slot is None:
            return
        source = r.choice([i for i in range(10) if self.get(i) is not None])
        if r.random() < 0.5 and self.get(source) is not None:
            self.emit("*(u64 *)(r10 - %d) = r%d" % (-slot, source))
            self.state.slots[slot] = self.get(source)
            return
        bits, source = r.choice(SIZES), self.number()
        at = r.randrange(64 // bits) * bits // 8
        self.emit("*(u%d *)(r10 - %d) = %s" % (bits, -slot - at, r.choice(["r%d" % source, str(self.constant())])))
        known = list(bytes_of(self.state.slots[slot]))
        known[at : at + bits // 8] = [True] * (bits // 8)
        self.state.slots[slot] = NUMBER if all(known) else tuple(known)

    def fill(self):
        r, slot, bits = self.random, self.random.choice(SLOTS), self.random.choice(SIZES + [64, 64, 64])
        kind, target = self.state.slots[slot], self.target()
        at = r.randrange(64 // bits) * bits // 8
        if isinstance(kind, Pointer) or kind == "context":
            self.emit("r%d = *(u64 *)(r10 - %d)" % (target, -slot))
            self.set(target, kind if kind != "context" else None)
        elif all(bytes_of(kind)[at : at + bits // 8]):
            sign = r.choice("us") if bits < 64 else "u"
            self.emit("r%d = *(%s%d *)(r10 - %d)" % (target, sign, bits, -slot - at))
            self.set(target, NUMBER)

    def overwrite(self, depth):
        """A part of a slot with an address, or one half after the other, and look at that."""
        r, slot, bits = self.random, self.free_slot(), self.random.choice([8, 16, 32])
        values = [i for i in self.pointers() if -1 not in self.get(i).where]
        source = r.choice(values) if values else self.pointer()
        number, target, end = self.number(source), self.target(source), self.label()
        if slot is None:
            return
        at, value = r.randrange(64 // bits) * bits // 8, r.choice(["r%d" % number, "0", "0", "1", "-1"])
        self.emit("*(u64 *)(r10 - %d) = r%d" % (-slot, source))
        if r.random() < 0.4:
            self.emit("*(u32 *)(r10 - %d) = 0" % -slot, "*(u32 *)(r10 - %d) = r%d" % (-slot - 4, number))
            at, bits, known = 0, 64, NUMBER
        else:
            self.emit("*(u%d *)(r10 - %d) = %s" % (bits, -slot - at, value))
            known = tuple(at <= i < at + bits // 8 for i in range(8))
        self.emit("r%d = *(u%d *)(r10 - %d)" % (target, bits, -slot - at))
        self.set(target, NUMBER)
        self.state.slots[slot] = known
        op = r.choice(["==", "!=", "==", "!=", ">", "s<"])
        self.emit("if %s%d %s %d goto %s" % (r.choice("rww"), target, op, r.choice([0, 0, 0, 1, -1]), end))
        before = self.state.copy()
        self.block(depth - 1, 2)
        self.join(before, end)

    def lines(self, statements):
        for _ in range(statements):
            self.statement(0)

    def key(self):
        r = self.random
        if r.random() < 0.5:
            self.emit("*(u32 *)(r10 - %d) = %d" % (-KEY, r.randrange(ENTRIES + 1)))
        else:
            source, target = self.number(), self.target()
            self.emit("r%d = r%d" % (target, source), "r%d &= 3" % target, "*(u32 *)(r10 - %d) = r%d" % (-KEY, target))
            self.set(target, NUMBER)
        self.emit("r2 = r10", "r2 += %d" % KEY)

    def called(self):
        for i in range(1, 6):
            self.set(i, None)

    def may_be_null(self, pointer):
        self.nulls += 1
        return pointer._replace(null=self.nulls)

    def can_call(self):
        return not any(i in self.frozen for i in range(6))

    def lookup(self, depth):
        if not self.can_call():
            return
        number = self.random.choice([0, 1, 1, 2, 3, 3])
        self.key()
        self.emit("r1 = map[%d] ll" % number, "call 1")
        self.called()
        self.set(0, self.may_be_null(Pointer(frozenset([number]), 0, self.sizes[number], 8, 0, 0)))
        if self.random.random() < 0.8:
            self.check(0, depth)

    def check(self, register, depth):
        """Whether an address is NULL: what is done if not, and sometimes if it is."""
        r, null, end, other = self.random, self.get(register).null, self.label(), self.label()
        is_null = self.state.copy()
        for holder, i in self.state.all():
            if isinstance(holder[i], Pointer) and holder[i].null == null:
                holder[i] = holder[i]._replace(null=0)
        for holder, i in is_null.all():
            if isinstance(holder[i], Pointer) and holder[i].null == null:
                holder[i] = ZERO
        self.emit("if r%d == 0 goto %s" % (register, other))
        for _ in range(r.randrange(3)):
            self.add()
        self.lines(r.randrange(1, 5))
        if depth and r.random() < 0.5:
            self.statement(depth - 1)
        if r.random() < 0.5:
            return self.join(is_null, other)
        self.emit("goto %s" % end, other + ":")
        state, self.state = self.state, is_null
        self.lines(r.randrange(1, 4))
        self.join(state, end)

    def join(self, other, label):
        """From here and from a jump, whose state is `other`, to a label."""
        self.emit(label + ":")
        nulls = {}
        for (mine, i), (its, _) in zip(self.state.all(), other.all()):
            mine[i] = self.joined(mine[i], its[i], nulls)

    def joined(self, a, b, nulls):
        if a == b:
            return a
        if isinstance(b, Pointer) and a == ZERO:
            a, b = b, a
        if isinstance(a, Pointer) and b == ZERO:
            key = (a.null, ZERO)
        elif isinstance(a, Pointer) and isinstance(b, Pointer):
            key = (a.null, b.null)
            step = min(a.step, b.step)
            while (a.phase - b.phase) % step:
                step //= 2
            a = Pointer(a.where | b.where, max(a.low, b.low), min(a.high, b.high), step, a.phase % step, 0)
        elif isinstance(a, Pointer) or isinstance(b, Pointer) or "context" in (a, b):
            return None
        elif is_number(a) and is_number(b):
            return NUMBER
        else:
            both = tuple(x and y for x, y in zip(bytes_of(a), bytes_of(b)))
            return both if any(both) else None
        if key == (0, 0):
            return a
        if key not in nulls:
            self.nulls += 1
            nulls[key] = self.nulls
        return a._replace(null=nulls[key])

    def update(self):
        """Or a deletion. Who has the address of what was there has it no longer."""
        r, number = self.random, self.random.randrange(4)
        if not self.can_call() or number >= 2 and self.looping:
            return
        size, source = self.sizes[number], self.target(1, 2)
        self.key()
        if number >= 2 and r.random() < 0.3:
            self.emit("r1 = map[%d] ll" % number, "call 3")
        else:
            self.emit(
                "r3 = r10",
                "r3 += %d" % (DATA + 8 * r.randrange((-DATA - size) // 8 + 1)),
                "r4 = %d" % r.choice([0, 0, 0, 1, 2, 3]),
                "r1 = map[%d] ll" % number,
                "call 2",
            )
        self.called()
        self.set(0, NUMBER)
        self.forget({number} if number >= 2 else set())

    def forget(self, maps):
        self.updated |= maps
        for holder, i in self.state.all():
            if isinstance(holder[i], Pointer) and holder[i].where & maps:
                holder[i] = None

    def condition(self, a):
        r, letter = self.random, self.random.choice("rw")
        others = [i for i in range(9) if is_number(self.get(i))]
        right = "%s%d" % (letter, r.choice(others)) if r.random() < 0.5 else str(self.constant())
        return "%s%d %s %s" % (letter, a, r.choice(CONDITIONS), right)

    def branch(self, depth):
        r, other, end = self.random, self.label(), self.label()
        pointers = [i for i in range(9) if isinstance(self.get(i), Pointer) and self.get(i).null]
        if pointers and r.random() < 0.6:
            return self.check(r.choice(pointers), depth)
        self.emit("if %s goto %s" % (self.condition(self.number()), other))
        before = self.state.copy()
        self.block(depth - 1, 4)
        if r.random() < 0.4:
            return self.join(before, other)
        self.emit("%s %s" % (r.choice(["goto", "gotol"]), end), other + ":")
        state, self.state = self.state, before
        self.block(depth - 1, 4)
        self.join(state, end)

    def loop(self, depth):
        """Some rounds, each of which begins with what the first began with."""
        r, start, counter, before = self.random, self.label(), self.target(), self.frozen
        frozen = before | {counter} | {i for holder, i in self.state.all() if isinstance(holder[i], Pointer)}
        if self.looping or len(frozen & set(range(9))) > 4:  # some registers must be free
            return
        self.emit("r%d = %d" % (counter, r.randrange(1, 5)), start + ":")
        self.set(counter, None)
        self.looping, self.frozen = True, frozen
        state = self.state.copy()
        self.block(depth - 1, 5)
        for (now, i), (then, _) in zip(self.state.all(), state.all()):
            if is_number(then[i]) and not is_number(now[i]):
                self.emit("r%d = %d" % (i, self.constant()) if i >= 0 else "*(u64 *)(r10 - %d) = 5" % -i)
                now[i] = NUMBER
            elif then[i] != now[i] and then[i] is not None and not is_number(then[i]):
                now[i] = None
            elif then[i] == ZERO:
                now[i] = NUMBER
        self.emit("r%d -= 1" % counter)
        out = self.label() if r.random() < 0.3 else None
        self.emit(*(["may_goto " + out] if out else []), "if r%d != 0 goto %s" % (counter, start), *([out + ":"] if out else []))
        self.frozen, self.looping = before, False
        self.set(counter, NUMBER if out else ZERO)

    def rounds(self):
        """Each looks up, and works on what the round before has found."""
        r, start, end, kept = self.random, self.label(), self.label(), self.random.choice([6, 7])
        if self.looping or not self.can_call() or {kept, 8} & self.frozen:
            return
        number = r.choice([0, 1, 1, 2, 3])
        self.emit(
            "r%d = 0" % kept,
            "r8 = %d" % r.randrange(2, 5),
            start + ":",
            "r1 = r8",
            "r1 &= 3",
            "*(u32 *)(r10 - %d) = r1" % -KEY,
            "r2 = r10",
            "r2 += %d" % KEY,
            "r1 = map[%d] ll" % number,
            "call 1",
            "*(u64 *)(r10 - %d) = r0" % -SLOTS[0],
            "if r%d == 0 goto %s" % (kept, end),
        )
        self.called()
        outside, self.state = self.state, State()  # what is known in each round
        self.set(kept, Pointer(frozenset([number]), 0, self.sizes[number], 8, 0, 0))
        self.set(9, "context")
        self.frozen, self.looping, before = self.frozen | {kept, 8, *SLOTS}, True, self.frozen
        self.lines(r.randrange(1, 4))
        self.add()
        self.frozen, self.looping = before, False
        self.emit(end + ":", "r%d = *(u64 *)(r10 - %d)" % (kept, -SLOTS[0]), "r8 -= 1", "if r8 != 0 goto " + start)
        outside.registers = [kind if i in before or i == 9 else None for i, kind in enumerate(outside.registers)]
        outside.slots[SLOTS[0]] = outside.registers[kept] = self.may_be_null(Pointer(frozenset([number]), 0, self.sizes[number], 8, 0, 0))
        outside.registers[8] = ZERO
        self.state = outside

    def call(self):
        """Of a function: r1 an address, r2 a number, r4 the context; of some r1 is a slot with an address, and r2 is behind it."""
        r = self.random
        if not self.functions or not self.can_call():
            return
        name = r.choice(list(self.functions))
        kind, updated = self.functions[name]
        if self.looping and updated:
            return
        if kind == "find":
            self.emit("r1 = r%d" % self.number(), "call %s" % name)
            self.called()
            return self.set(0, self.may_be_null(Pointer(frozenset([0]), 0, self.sizes[0], 8, 0, 0)))
        slot = r.choice(SLOTS[:-1])
        if kind == "struct":
            p = self.pointer(0, 16)
            number = self.number(p)
            if not self.is_at(p, 16) or not is_number(self.get(number)) or slot in self.frozen or slot + 8 in self.frozen:
                return
            self.emit("*(u64 *)(r10 - %d) = r%d" % (-slot, p), "*(u64 *)(r10 - %d) = r%d" % (-slot - 8, number))
            self.state.slots[slot], self.state.slots[slot + 8] = self.get(p), NUMBER
            self.emit("r1 = r10", "r1 += %d" % slot)
        else:
            p = self.pointer(0, 16)
            number = self.number(p)
            if not self.is_at(p, 16) or not is_number(self.get(number)):
                return
            if number == 1:
                self.emit("r2 = r1", "r1 = r%d" % p)
            else:
                self.emit("r1 = r%d" % p, "r2 = r%d" % number)
        self.emit("r4 = r9", "call %s" % name)
        self.called()
        self.set(0, NUMBER)
        self.forget(updated)

    def is_at(self, register, size):
        p = self.get(register)
        return isinstance(p, Pointer) and not p.null and p.low <= 0 and p.high >= size and p.step == 8 and p.phase == 0

    def statement(self, depth):
        r, kind = self.random, self.random.random()
        if depth and kind < 0.12:
            return self.branch(depth)
        if depth and kind < 0.18:
            return self.loop(depth)
        if depth and kind < 0.3:
            return self.lookup(depth - 1)
        if depth and kind < 0.4 and self.functions:
            return self.call()
        if depth and kind < 0.46:
            return self.overwrite(depth)
        if depth and kind < 0.49:
            return self.rounds()
        r.choice(
            [
                self.arithmetic,
                self.arithmetic,
                self.divide,
                self.unary,
                self.copy,
                self.move,
                self.load,
                self.load,
                self.store,
                self.store,
                self.field,
                self.atomic,
                self.add,
                self.add,
                self.add,
                self.spill,
                self.spill,
                self.fill,
                self.fill,
            ]
            + ([self.update] if depth else [])
        )()

    def block(self, depth, statements):
        for _ in range(self.random.randrange(1, statements + 1)):
            self.statement(max(depth, 0))

    # ---- functions ----

    def begin(self):
        self.out, self.state = [], State()
        self.frozen, self.looping, self.updated = set(), False, set()

    def start_data(self):
        for at in range(DATA, 0, 8):
            self.emit("r0 = *(u64 *)(r9 + %d)" % (8 * self.random.randrange(12)), "*(u64 *)(r10 - %d) = r0" % -at)
        self.set(0, NUMBER)
        self.set(9, "context")

    def finish(self):
        """r0 is made of all numbers that there are."""
        if not is_number(self.get(0)):
            self.emit("r0 = 1")
        for i in range(1, 9):
            if is_number(self.get(i)):
                self.emit("r0 *= 31", "r0 += r%d" % i)
        for at in [*SLOTS, *range(DATA, 0, 8)]:
            if at >= DATA or is_number(self.state.slots[at]):
                self.emit("r0 *= 31", "r1 = *(u64 *)(r10 - %d)" % -at, "r0 += r1")

    def function(self, name, kind):
        self.begin()
        if kind == "find":
            self.emit("r1 &= 3", "*(u32 *)(r10 - 8) = r1", "r2 = r10", "r2 += -8", "r1 = map[0] ll", "call 1", "exit")
            return [name + ":"] + self.out
        self.emit("r9 = r4")
        self.start_data()
        where = Pointer(frozenset([-1, 0, 1, 2, 3, GLOBAL]), 0, 16, 8, 0, 0)
        self.set(2, NUMBER)
        if kind == "struct":
            self.set(self.random.choice([6, 7]), where)
            self.emit("r%d = *(u64 *)(r1 + 0)" % self.pointers()[0])
            if self.random.random() < 0.5:
                self.emit("r2 = *(u64 *)(r1 + 8)")
            if self.random.random() < 0.5:
                self.emit("*(u32 *)(r1 + %d) = r2" % self.random.choice([8, 12]))
        else:
            self.set(1, where)
        self.block(2, 8)
        self.finish()
        return [name + ":"] + self.out + ["exit"]

    def program(self):
        r, text = self.random, {}
        for i in range(r.choice([0, 2, 3])):
            name, kind = "f%d" % i, r.choice(["plain", "plain", "struct", "find"])
            text[name] = self.function(name, kind)
            self.functions[name] = (kind, self.updated)
        self.begin()
        self.emit("r9 = r1")
        self.start_data()
        self.block(3, 25)
        self.finish()
        self.emit(
            "*(u64 *)(r10 - 8) = r0",
            "*(u32 *)(r10 - 16) = 0",
            "r6 = r0",
            "r1 = map[%d] ll" % RESULT,
            "r2 = r10",
            "r2 += -16",
            "r3 = r10",
            "r3 += -8",
            "r4 = 0",
            "call 2",
            "w0 = w6",
            "exit",
        )
        for name in reversed(text):
            if "call " + name in self.out:
                self.emit(*text[name])
        return self.mutated(self.out)

    def mutated(self, lines):
        r = self.random
        for _ in range(r.choice([0, 0, 0, 0, 1, 2])):
            i = r.randrange(len(lines) - 12)
            tokens = list(re.finditer(r"\b[rw]\d\b|(?<=\bu)\d+|(?<![\w\[])\d+", lines[i]))
            kind = r.random()
            if lines[i].endswith(":") or lines[i] == "exit" or lines[i].startswith("call"):
                continue
            if kind < 0.2:
                del lines[i]
            elif kind < 0.3:
                lines.insert(i, lines[r.randrange(len(lines) - 12)] if not lines[i].endswith(":") else "r0 = 0")
            elif kind < 0.5 and not lines[i + 1].endswith(":"):
                lines[i], lines[i + 1] = lines[i + 1], lines[i]
            elif tokens:
                m = r.choice(tokens)
                new = r.choice(SIZES) if lines[i][m.start() - 1] == "u" else r.choice([0, 1, 2, 4, 7, 8, 16, 32, 64, 72, 80])
                new = "%s%d" % (m[0][0], r.randrange(10)) if m[0][0] in "rw" else str(new)
                lines[i] = lines[i][: m.start()] + new + lines[i][m.end() :]
        return "\n".join(lines)


# ---- running them ----


def make(seed):
    g = Generator(seed)
    case = run.Case("seed-%d" % seed, "verified", seed)
    case.context = g.random.randbytes(kernel.CONTEXT_SIZE)
    case.text = g.program()
    case.maps = g.maps
    return case


def expected(case, log=False):
    """What kernel and interpreter make of it; or None and why it is none to compare with."""
    try:
        code = case.code()
    except (run.bpf.AsmError, KeyError):
        return None, "are no programs"
    try:
        program = kernel.Program(code, case.maps, log)
    except kernel.Refused as error:
        return None, str(error).splitlines()[-2:][0] if log else "are refused by the verifier"
    try:
        reference = case.reference()
        if not reference.startswith("0x"):
            return None, "depend on addresses" if "depends" in reference else reference
        result = program.run(case.context)
    finally:
        program.close()
    return result, reference


def is_refusal(answer):
    """By the translator, not by LLVM or the driver."""
    return answer.startswith("error: program")


def run_all(bpf_run, cases):
    """The answers, and the commands that gave them: those of odd seeds in the other form."""
    jobs = [([bpf_run], [case for case in cases if case.line % 2 == 0]), ([bpf_run, "--patch"], [case for case in cases if case.line % 2])]
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        answers = list(pool.map(lambda job: run.run_batch(*job), jobs))
    found = {case.line: (answer, command) for (command, half), some in zip(jobs, answers) for case, answer in zip(half, some)}
    return [found[case.line] for case in cases]


def reduced(case, bpf_run):
    """The case with as few lines as differ, as far as that is soon found."""

    def differs(text):
        smaller = copy.copy(case)
        smaller.text = text
        result, _ = expected(smaller)
        answer = result and run.run_batch(bpf_run, [smaller])[0]
        return result and result != answer and not is_refusal(answer)

    lines, step, end = case.text.split("\n"), 32, time.monotonic() + 40
    while step:
        at = 0
        while at < len(lines) and time.monotonic() < end:
            fewer = lines[:at] + lines[at + step :]
            if "w0 = w6" in fewer and differs("\n".join(fewer)):  # the kernel gives half of r0
                lines = fewer
            else:
                at += step
        step //= 2
    smaller = copy.copy(case)
    smaller.text = "\n".join(lines)
    return smaller


def accepted(seeds, options, passed_over):
    """Cases one after the other, and what the kernel makes of each; why others are none is counted."""
    for seed in seeds:
        case = make(seed)
        result, other = expected(case, options.verbose)
        if not result:
            passed_over[other] += 1
            continue
        if result != other:
            print("seed %d: kernel      %s\n        interpreter %s" % (seed, result, other))
        yield case, result, other


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=lambda word: int(time.time()) if word == "new" else int(word), default=1, help="new: made of the time")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--verbose", action="store_true", help="which portion runs; what the verifier says, not only how often")
    parser.add_argument("bpf_run")
    options = parser.parse_args()
    passed_over, refused, failures, alone = collections.Counter(), collections.Counter(), 0, 0
    try:
        kernel.Program(run.bpf.assemble("r1 = map[0] ll; r0 = 0; exit"), ["2:4:8:1"]).close()
    except (kernel.Refused, kernel.NotHere) as error:
        print("skipped: %s" % error)
        return 77
    cases = accepted(itertools.count(options.seed), options, passed_over)
    for start in range(0, options.count, PORTION):
        portion = list(itertools.islice(cases, min(PORTION, options.count - start)))
        if options.verbose:
            print("seeds %d to %d" % (portion[0][0].line, portion[-1][0].line), flush=True)
        for (case, result, other), (answer, command) in zip(portion, run_all(options.bpf_run, [case for case, *_ in portion])):
            if answer == result:
                continue
            if answer == other:
                alone += 1
                continue
            if is_refusal(answer):
                refused[re.sub("[0-9]+", "N", answer)] += 1
                if options.verbose:
                    print("seed %d: %s" % (case.line, answer))
                continue
            failures += 1
            print("seed %d: kernel  %s\n        bpf-run %s" % (case.line, result, answer))
            print("again:  %s --seed %d --count 1 %s" % (sys.argv[0], case.line, options.bpf_run))
            if failures == 1:
                print("%s\n%s --batch: 1 %s" % (case.text, " ".join(command), case.words()), flush=True)
                print("or, shorter:\n%s\n" % reduced(case, command).text, flush=True)
    for why, count in [*passed_over.most_common(), *refused.most_common()]:
        print("%d %s" % (count, why))
    if alone:
        print("%d where the kernel is alone" % alone)
    print("%d programs, seeds %d to %d; %d differ" % (options.count, options.seed, portion[-1][0].line, failures))
    return 1 if failures or alone > 1 else 0


if __name__ == "__main__":
    sys.exit(main())
