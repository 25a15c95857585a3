#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""random-programs.py [--patch] BPF_RUN [COUNT [SEED | new]]: programs made at random, run by bpf-run and by the interpreter in bpf.py.

The programs are valid and end: forward branches, counted loops, calls of functions, every arithmetic operation, loads and
stores of every size on memory, stack and variables of a thread at known and unknown offsets, atomics, maps of all kinds, records, the log. Half of them
have a context, and for memory a global variable. A third of them are run by many threads, which share nothing but what they add
to; the CPU driver says of half of these that a warp is together. r0, the memory and the maps must agree. A program that differs
is printed. --patch runs patch forms, of programs without variables of a thread. "new" starts at a seed made of the time, so that each run has other programs; of one that
differs the command is printed that repeats it. Exit 77: no CUDA driver.
"""

import concurrent.futures
import os
import random
import sys
import time

import bpf
import random_helpers
import run

REGISTERS = [0, 2, 3, 4, 5, 6, 7]  # r1 is for addresses, r8 counts in loops, r9 is the memory
MEMORY = 64
STACK = 64  # bytes below r10 that hold data
THREAD = 40  # bytes of the variables of a thread
BINARY = ["+=", "-=", "*=", "/=", "s/=", "%=", "s%=", "|=", "&=", "^=", "<<=", ">>=", "s>>=", "="]
CONDITIONS = ["==", "!=", ">", ">=", "<", "<=", "s>", "s>=", "s<", "s<=", "&"]
CONSTANTS = [0, 1, -1, 2, 7, -8, 31, 63, 255, 0x7FFF, 0x7FFFFFFF, -0x80000000]
SHAPES = [("1", "4"), ("1", "33"), ("2", "5x2"), ("2x1x2", "4"), ("1x3", "2x2x3"), ("3", "1")]


class Generator(random_helpers.Helpers):
    def __init__(self, seed, patch):
        self.random = random.Random(seed)
        self.thread = 0 if patch or seed % 4 > 1 else THREAD
        self.labels = 0
        self.functions = []
        self.context = seed % 2 == 1
        self.blocks, self.block_shape = self.random.choice(SHAPES) if seed % 3 == 0 else ("1", "1")
        self.threads = bpf.count(self.blocks) * bpf.count(self.block_shape)
        self.maps = self.make_maps(self.threads)

    def label(self):
        self.labels += 1
        return "l%d" % self.labels

    def reg(self):
        return self.random.choice(REGISTERS)

    def constant(self):
        r = self.random
        return r.choice(CONSTANTS) if r.random() < 0.6 else r.randrange(-1 << 31, 1 << 31)

    def arithmetic(self):
        r, letter, op = self.random, self.random.choice("rw"), self.random.choice(BINARY)
        if r.random() < 0.5:
            return ["%s%d %s %s%d" % (letter, self.reg(), op, letter, self.reg())]
        return ["%s%d %s %d" % (letter, self.reg(), op, self.constant())]

    def unary(self):
        a, b = self.reg(), self.reg()
        return [
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
                    "r%d = 0x%x ll" % (a, self.random.getrandbits(64)),
                ]
            )
        ]

    def memory_base(self, index=None):
        """Instructions that leave the memory's address in r1, plus a register's value below 32."""
        if not self.context:
            return ["r1 = r9"] if index is None else index + ["r1 += r9"]
        if index is None:
            return ["r1 = value[1] + 0 ll"]
        return index + ["r5 = value[1] + 0 ll", "r1 += r5", "r5 = 77"]

    def place(self, size, aligned=False, store=False):
        """Instructions that leave an address in some register, and that register with an offset."""
        r, where = self.random, self.random.choice(["memory", "memory+x", "stack", "stack", "stack+x", "pointer"])
        if store and self.threads > 1:
            where = where.replace("memory", "stack")
        if self.thread and r.random() < 0.3:
            return self.thread_place(size)
        room = MEMORY if where.startswith("memory") else STACK
        low = 0 if where.startswith("memory") else -STACK
        step = size if aligned else 1
        at = low + r.randrange(0, (room - size) // step + 1) * step
        offset = lambda n: "%s %d" % ("+" if n >= 0 else "-", abs(n))
        if where == "stack" or where == "memory" and not self.context:
            return [], "(r%d %s)" % (9 if where == "memory" else 10, offset(at))
        if where == "memory":
            return self.memory_base(), "(r1 %s)" % offset(at)
        if where == "pointer":
            return ["r1 = r10", "r1 += %d" % (at - 8)], "(r1 %s)" % offset(8)
        # an index that is not known: 0 to 31
        mask = 31 & ~(step - 1)
        at = low + r.randrange(0, (room - 31 - size) // step + 1) * step
        index = ["r1 = r%d" % self.reg(), "r1 &= %d" % mask]
        if where == "stack+x":
            return index + ["r1 += r10"], "(r1 %s)" % offset(at)
        return self.memory_base(index), "(r1 %s)" % offset(at)

    def thread_place(self, size):
        """The same in the variables of a thread: inside one word."""
        r = self.random
        if r.random() < 0.6:
            at = 8 * r.randrange(THREAD // 8) + r.randrange(0, 9 - size)
            return ["r1 = thread + %d ll" % at], "(r1 + 0)"
        index = ["r1 = r%d" % self.reg(), "r1 &= %d" % (31 & -size), "r5 = thread + 0 ll", "r1 += r5", "r5 = 77"]
        return index, "(r1 + %d)" % (r.randrange(0, 8 // size + 1) * size)

    def field(self):
        """Of the context, or a part of one."""
        bits = self.random.choice([8, 16, 32, 64])
        at = self.random.randrange(21) * 8 + self.random.randrange(64 // bits) * bits // 8
        sign = "s" if bits < 64 and self.random.random() < 0.3 else "u"
        return ["r%d = *(%s%d *)(r9 + %d)" % (self.reg(), sign, bits, at)]

    def memory(self):
        r, bits = self.random, self.random.choice([8, 16, 32, 64])
        kind = r.random()
        before, place = self.place(bits // 8, store=kind >= 0.45)
        if kind < 0.45:
            sign = "s" if bits < 64 and r.random() < 0.4 else "u"
            return before + ["r%d = *(%s%d *)%s" % (self.reg(), sign, bits, place)]
        if kind < 0.7:
            return before + ["*(u%d *)%s = %d" % (bits, place, self.constant())]
        return before + ["*(u%d *)%s = r%d" % (bits, place, self.reg())]

    def atomic(self):
        bits = self.random.choice([32, 64])
        before, place = self.place(bits // 8, aligned=True, store=True)
        a = self.reg()
        return before + [
            self.random.choice(
                ["lock *(u%d *)%s %s= r%d" % (bits, place, op, a) for op in "+|&^"]
                + ["r%d = atomic_fetch_%s((u%d *)%s, r%d)" % (a, op, bits, place, a) for op in ("add", "or", "and", "xor")]
                + ["r%d = xchg((u%d *)%s, r%d)" % (a, bits, place, a), "r0 = cmpxchg((u%d *)%s, r0, r%d)" % (bits, place, a)]
            )
        ]

    def condition(self, target):
        letter = self.random.choice("rw")
        left, op = "%s%d" % (letter, self.reg()), self.random.choice(CONDITIONS)
        right = "%s%d" % (letter, self.reg()) if self.random.random() < 0.5 else str(self.constant())
        return "if %s %s %s goto %s" % (left, op, right, target)

    def branch(self, depth, loops):
        other, end = self.label(), self.label()
        out = [self.condition(other)] + self.block(depth - 1, loops)
        if self.random.random() < 0.5:
            return out + ["goto %s" % end, other + ":"] + self.block(depth - 1, loops) + [end + ":"]
        return out + [other + ":"]

    def loop(self, depth):
        start = self.label()
        return ["r8 = %d" % self.random.randrange(1, 6), start + ":"] + self.block(depth - 1, loops=False) + ["r8 -= 1", "if r8 != 0 goto %s" % start]

    def fresh(self):
        """Registers that a call leaves undefined get values again."""
        return ["r%d = r%d" % (n, self.random.choice([0, 6, 7])) for n in (1, 2, 3, 4, 5)]

    def call(self):
        if not self.functions or self.random.random() < 0.3:
            return self.unary()
        return ["r1 = r9", "r2 = *(u64 *)(r10 - 72)", "call %s" % self.random.choice(self.functions)] + self.fresh()

    def map(self):
        """An array: anything, or only what allows that it lies in memory in another way."""
        r, end, index = self.random, self.label(), self.random.randrange(1 if self.context or self.threads > 1 else 2)
        entries, size, style = (4, self.value_size, self.style) if index == 0 else (2, 8, "any")
        # the key is below the data
        out = ["*(u32 *)(r10 - 88) = %d" % r.randrange(entries + 1)]
        if r.random() < 0.4:
            out = ["r1 = r%d" % self.reg(), "r1 &= 3", "*(u32 *)(r10 - 88) = r1"]
        if style == "update" or style == "any" and r.random() < 0.25:
            out += self.source(3, size) + ["r4 = %d" % r.choice([0, 0, 2] if style == "update" else [0, 1, 2, 3])]
            return out + ["r2 = r10", "r2 += -88", "r1 = map[%d] ll" % index, "call 2"] + self.result()
        out += ["r2 = r10", "r2 += -88", "r1 = map[%d] ll" % index, "call 1", "if r0 == 0 goto %s" % end]
        at = 8 * r.randrange(size // 8)
        out += ["lock *(u64 *)(r0 + %d) += r%d" % (at, r.choice([6, 7]))] if style == "add" else self.value_operation(size)
        return out + [end + ":", "r0 = r6"] + self.fresh()

    def block(self, depth, loops=True):
        r, out = self.random, []
        for _ in range(r.randrange(1, 7)):
            kind = r.random()
            if depth and kind < 0.15:
                out += self.branch(depth, loops)
            elif depth and loops and kind < 0.22:
                out += self.loop(depth)
            elif kind < 0.27:
                out += self.call()
            elif kind < 0.31:
                out += self.map()
            elif kind < 0.38:
                out += self.helper()
            elif kind < 0.40 and self.context:
                out += self.field()
            elif kind < 0.5:
                out += self.memory()
            elif kind < 0.58:
                out += self.atomic()
            elif kind < 0.7:
                out += self.unary()
            else:
                out += self.arithmetic()
        return out

    def number(self):
        """The number of the thread in r2; r0 and r3 to r6 are not kept."""
        bx, by, _ = bpf.shape_of(self.block_shape)
        gx, gy, _ = bpf.shape_of(self.blocks)
        out = []
        for helper, x, y, size in (503, gx, gy, 1), (505, bx, by, bpf.count(self.block_shape)):
            out += ["r1 = r10", "r1 += -8", "r2 = r10", "r2 += -16", "r3 = r10", "r3 += -24", "call %d" % helper]
            out += ["r4 = *(u64 *)(r10 - 24)", "r4 *= %d" % y, "r2 = *(u64 *)(r10 - 16)", "r4 += r2", "r4 *= %d" % x]
            out += ["r2 = *(u64 *)(r10 - 8)", "r4 += r2"]
            out += ["r6 = r4"] if helper == 503 else ["r6 *= %d" % size, "r6 += r4", "r2 = r6"]
        return out

    def start(self):
        """What is in memory, of the program: fields of the context, if it has one."""
        out = ["r9 = r1"]
        if self.context:
            out += ["r1 = value[1] + 0 ll"]
            for i in range(MEMORY // 8):
                out += ["r3 = *(u64 *)(r9 + %d)" % (8 * self.random.randrange(21)), "*(u64 *)(r1 + %d) = r3" % (8 * i)]
        return out + self.number()

    def end(self):
        """The results of many threads are in a map."""
        if self.threads == 1:
            return ["exit"]
        return [
            "*(u64 *)(r10 - 128) = r0",
            "*(u32 *)(r10 - 112) = 0",
            "r1 = map[%d] ll" % random_helpers.THREADS,
            "r2 = r10",
            "r2 += -112",
            "r3 = r10",
            "r3 += -128",
            "r4 = 0",
            "call 2",
            "r0 = 0",
            "exit",
        ]

    def function(self, name, callees):
        """r1 is the memory or the context, r2 the number of the thread."""
        self.functions = callees
        out = ["r9 = r1"] if name else self.start()
        out += ["*(u64 *)(r10 - 72) = r2"] + self.memory_base()
        base = 1 if self.context else 9
        out += ["r%d = *(u64 *)(r%d + %d)" % (n, base, self.random.randrange(0, MEMORY - 7)) for n in REGISTERS]
        if self.threads > 1:
            out += ["r1 = *(u64 *)(r10 - 72)", "r6 ^= r1", "r7 += r1"]
        out += ["*(u64 *)(r10 - %d) = r%d" % (8 * (i + 1), self.reg()) for i in range(STACK // 8)]
        out += [] if name else self.helpers()
        out += self.block(3)
        out += ["r0 ^= r%d" % n for n in REGISTERS[1:]]
        return [name + ":"] + out + ["exit"] if name else out + self.end()

    def program(self):
        names = ["f%d" % i for i in range(self.random.randrange(3))]
        out = self.function(None, names)
        for i, name in enumerate(names):
            out += self.function(name, names[i + 1 :])
        return "\n".join(out)


def make(seed, patch):
    g = Generator(seed, patch)
    case = run.Case("seed-%d" % seed, "random", seed)
    if g.context:
        case.context = g.random.randbytes(168)
    else:
        case.memory, case.want_memory = g.random.randbytes(MEMORY), True
    case.maps, case.grid, case.block = g.maps, g.blocks, g.block_shape
    case.text, case.thread = g.program(), g.thread
    return case


def run_all(bpf_run, cases):
    """The answers, by seed. The CPU driver of tests/sim says for half of the seeds that a warp is together."""
    whole, jobs = dict(os.environ, GPUPROBE_SIM_WARPS="whole"), max(1, min(4, os.cpu_count() // 2))
    halves = [([case for case in cases if case.line // 2 % 2 == half], environment) for half, environment in enumerate([None, whole])]
    parts = [(half[i::jobs], environment) for half, environment in halves for i in range(jobs)]
    with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
        answers = pool.map(lambda part: run.run_batch(bpf_run, *part), parts)
        return {case.line: answer for (part, _), found in zip(parts, answers) for case, answer in zip(part, found)}


def main():
    mode = [sys.argv.pop(1)] if sys.argv[1] == "--patch" else []
    bpf_run, count, seed = [sys.argv[1]] + mode, int((sys.argv[2:] + ["300"])[0]), (sys.argv[3:] + ["1"])[0]
    seed = int(time.time()) if seed == "new" else int(seed)
    cases = [make(s, mode) for s in range(seed, seed + count)]
    failures = left_out = 0
    answers = run_all(bpf_run, cases)
    for case in cases:
        expected, answer = case.reference(), answers[case.line]
        if expected.startswith("depends on"):  # a name for the SM or the time has found its way into what is compared
            left_out += 1
        elif expected != answer:
            failures += 1
            print("seed %d: interpreter %s\n        bpf-run     %s" % (case.line, expected, answer))
            print("again:  %s" % " ".join([sys.argv[0], *mode, sys.argv[1], "1", str(case.line)]))
            if failures == 1:
                print(case.text)
                print(case.words())
    print("%d programs, seeds %d to %d: %d left out, %d differ" % (count, seed, seed + count - 1, left_out, failures))
    return 1 if failures or left_out > 1 + count // 100 else 0


if __name__ == "__main__":
    sys.exit(main())
