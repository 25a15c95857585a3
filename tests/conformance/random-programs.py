#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""random-programs.py BPF_RUN [COUNT [SEED]]: programs made at random, run by bpf-run and by the interpreter in bpf.py.

The programs are valid and end: forward branches, counted loops, calls of functions, every arithmetic operation, loads and
stores of every size on memory and stack at known and unknown offsets, atomics, maps. r0, the memory and the maps must agree. A
program that differs is printed. Exit 77: no CUDA driver.
"""

import random
import sys

import bpf
import run

REGISTERS = [0, 2, 3, 4, 5, 6, 7]  # r1 is for addresses, r8 counts in loops, r9 is the memory
MEMORY = 64
STACK = 64  # bytes below r10 that hold data
BINARY = ['+=', '-=', '*=', '/=', 's/=', '%=', 's%=', '|=', '&=', '^=', '<<=', '>>=', 's>>=', '=']
CONDITIONS = ['==', '!=', '>', '>=', '<', '<=', 's>', 's>=', 's<', 's<=', '&']
CONSTANTS = [0, 1, -1, 2, 7, -8, 31, 63, 255, 0x7fff, 0x7fffffff, -0x80000000]
MAPS = ['2:4:16:4', '6:4:8:2']


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.labels = 0
        self.functions = []

    def label(self):
        self.labels += 1
        return 'l%d' % self.labels

    def reg(self):
        return self.random.choice(REGISTERS)

    def constant(self):
        r = self.random
        return r.choice(CONSTANTS) if r.random() < 0.6 else r.randrange(-1 << 31, 1 << 31)

    def arithmetic(self):
        r, letter, op = self.random, self.random.choice('rw'), self.random.choice(BINARY)
        if r.random() < 0.5:
            return ['%s%d %s %s%d' % (letter, self.reg(), op, letter, self.reg())]
        return ['%s%d %s %d' % (letter, self.reg(), op, self.constant())]

    def unary(self):
        a, b = self.reg(), self.reg()
        return [self.random.choice([
            'r%d = -r%d' % (a, a), 'w%d = -w%d' % (a, a), 'r%d = (s8)r%d' % (a, b), 'r%d = (s16)r%d' % (a, b),
            'r%d = (s32)r%d' % (a, b), 'w%d = (s8)w%d' % (a, b), 'w%d = (s16)w%d' % (a, b), 'r%d = be16 r%d' % (a, a),
            'r%d = be32 r%d' % (a, a), 'r%d = be64 r%d' % (a, a), 'r%d = le16 r%d' % (a, a), 'r%d = le32 r%d' % (a, a),
            'r%d = bswap16 r%d' % (a, a), 'r%d = bswap32 r%d' % (a, a), 'r%d = bswap64 r%d' % (a, a),
            'r%d = 0x%x ll' % (a, self.random.getrandbits(64))])]

    def place(self, size, aligned=False):
        """Instructions that leave an address in some register, and that register with an offset."""
        r, where = self.random, self.random.choice(['memory', 'memory+x', 'stack', 'stack', 'stack+x', 'pointer'])
        room = MEMORY if where.startswith('memory') else STACK
        low = 0 if where.startswith('memory') else -STACK
        step = size if aligned else 1
        base = 9 if where.startswith('memory') else 10
        at = low + r.randrange(0, (room - size) // step + 1) * step
        offset = lambda n: '%s %d' % ('+' if n >= 0 else '-', abs(n))
        if where in ('memory', 'stack'):
            return [], '(r%d %s)' % (base, offset(at))
        if where == 'pointer':
            return ['r1 = r%d' % base, 'r1 += %d' % (at - 8)], '(r1 %s)' % offset(8)
        # an index that is not known: 0 to 31
        mask = 31 & ~(step - 1)
        at = low + r.randrange(0, (room - 31 - size) // step + 1) * step
        return ['r1 = r%d' % self.reg(), 'r1 &= %d' % mask, 'r1 += r%d' % base], '(r1 %s)' % offset(at)

    def memory(self):
        r, bits = self.random, self.random.choice([8, 16, 32, 64])
        before, place = self.place(bits // 8)
        kind = r.random()
        if kind < 0.45:
            sign = 's' if bits < 64 and r.random() < 0.4 else 'u'
            return before + ['r%d = *(%s%d *)%s' % (self.reg(), sign, bits, place)]
        if kind < 0.7:
            return before + ['*(u%d *)%s = %d' % (bits, place, self.constant())]
        return before + ['*(u%d *)%s = r%d' % (bits, place, self.reg())]

    def atomic(self):
        bits = self.random.choice([32, 64])
        before, place = self.place(bits // 8, aligned=True)
        a = self.reg()
        return before + [self.random.choice(
            ['lock *(u%d *)%s %s= r%d' % (bits, place, op, a) for op in '+|&^'] +
            ['r%d = atomic_fetch_%s((u%d *)%s, r%d)' % (a, op, bits, place, a) for op in ('add', 'or', 'and', 'xor')] +
            ['r%d = xchg((u%d *)%s, r%d)' % (a, bits, place, a), 'r0 = cmpxchg((u%d *)%s, r0, r%d)' % (bits, place, a)])]

    def condition(self, target):
        letter = self.random.choice('rw')
        left, op = '%s%d' % (letter, self.reg()), self.random.choice(CONDITIONS)
        right = '%s%d' % (letter, self.reg()) if self.random.random() < 0.5 else str(self.constant())
        return 'if %s %s %s goto %s' % (left, op, right, target)

    def branch(self, depth, loops):
        other, end = self.label(), self.label()
        out = [self.condition(other)] + self.block(depth - 1, loops)
        if self.random.random() < 0.5:
            return out + ['goto %s' % end, other + ':'] + self.block(depth - 1, loops) + [end + ':']
        return out + [other + ':']

    def loop(self, depth):
        start = self.label()
        return ['r8 = %d' % self.random.randrange(1, 6), start + ':'] + self.block(depth - 1, loops=False) + \
            ['r8 -= 1', 'if r8 != 0 goto %s' % start]

    def fresh(self):
        """Registers that a call leaves undefined get values again."""
        return ['r%d = r%d' % (n, self.random.choice([0, 6, 7])) for n in (1, 2, 3, 4, 5)]

    def call(self):
        if not self.functions or self.random.random() < 0.3:
            return self.unary()
        return ['r1 = r9', 'call %s' % self.random.choice(self.functions)] + self.fresh()

    def map(self):
        r, end, index = self.random, self.label(), self.random.randrange(2)
        entries, size = (4, 16) if index == 0 else (2, 8)
        # the key and the value are below the data
        out = ['*(u32 *)(r10 - 72) = %d' % r.randrange(entries + 1)]
        if r.random() < 0.4:
            out = ['r1 = r%d' % self.reg(), 'r1 &= 3', '*(u32 *)(r10 - 72) = r1']
        out += ['r2 = r10', 'r2 += -72', 'r1 = map[%d] ll' % index]
        if r.random() < 0.25:
            value = -72 - 8 - size
            out += ['*(u64 *)(r10 - %d) = r%d' % (-value - 8 * i, self.random.choice([0, 6, 7])) for i in range(size // 8)]
            return out + ['r3 = r10', 'r3 += %d' % value, 'r4 = %d' % r.randrange(4), 'call 2'] + self.fresh()
        out += ['call 1', 'if r0 == 0 goto %s' % end]
        at = 8 * r.randrange(size // 8)
        out += r.choice([
            ['lock *(u64 *)(r0 + %d) += r6' % at], ['lock *(u32 *)(r0 + %d) += r7' % (at + 4)],
            ['r7 = *(u64 *)(r0 + %d)' % at], ['*(u16 *)(r0 + %d) = r6' % (at + 3)],
            ['r7 = atomic_fetch_xor((u64 *)(r0 + %d), r7)' % at],
            ['r1 = *(u64 *)(r0 + %d)' % at, 'r1 += r6', '*(u64 *)(r0 + %d) = r1' % at],
            ['r1 = *(u32 *)(r0 + %d)' % at, 'w1 -= 5', '*(u32 *)(r0 + %d) = r1' % at, 'r6 = r1'],
            ['r6 = 3', 'r1 = *(u64 *)(r0 + %d)' % at, 'r6 += r1', '*(u64 *)(r0 + %d) = r6' % at]])
        return out + [end + ':', 'r0 = r6'] + self.fresh()

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
            elif kind < 0.33:
                out += self.map()
            elif kind < 0.5:
                out += self.memory()
            elif kind < 0.58:
                out += self.atomic()
            elif kind < 0.7:
                out += self.unary()
            else:
                out += self.arithmetic()
        return out

    def function(self, name, callees):
        """r1 is the memory."""
        self.functions = callees
        out = ['r9 = r1']
        out += ['r%d = *(u64 *)(r9 + %d)' % (n, self.random.randrange(0, MEMORY - 7)) for n in REGISTERS]
        out += ['*(u64 *)(r10 - %d) = r%d' % (8 * (i + 1), self.reg()) for i in range(STACK // 8)]
        out += self.block(3)
        out += ['r0 ^= r%d' % n for n in REGISTERS[1:]]
        return ([name + ':'] if name else []) + out + ['exit']

    def program(self):
        names = ['f%d' % i for i in range(self.random.randrange(3))]
        out = self.function(None, names)
        for i, name in enumerate(names):
            out += self.function(name, names[i + 1:])
        return '\n'.join(out)


def make(seed):
    g = Generator(seed)
    case = run.Case('seed-%d' % seed, 'random', seed)
    case.memory = g.random.randbytes(MEMORY)
    case.maps, case.want_memory = MAPS, True
    case.text = g.program()
    return case


def main():
    bpf_run, count, seed = sys.argv[1], int((sys.argv[2:] + ['300'])[0]), int((sys.argv[3:] + ['1'])[0])
    cases = [make(s) for s in range(seed, seed + count)]
    failures = 0
    for case, answer in zip(cases, run.run_batch([bpf_run], cases)):
        expected = case.reference()
        if expected != answer:
            failures += 1
            print('seed %d: interpreter %s\n        bpf-run     %s' % (case.line, expected, answer))
            if failures == 1:
                print(case.text)
    print('%d programs, %d differ' % (count, failures))
    return 1 if failures else 0


if __name__ == '__main__':
    sys.exit(main())
