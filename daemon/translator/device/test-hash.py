#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test-hash.py BPF_RUN (CLANG [OPTION...] | FOLDER): hash maps, from C to what is in memory in the end.

Compiles objects/hash.bpf.c for many types and sizes (or takes it from FOLDER, for a few, as tests/gpu compiles it), runs it
through BPF_RUN --batch (a libcuda.so.1 is needed: NVIDIA's or tests/sim) and compares: one thread's calls with what the kernel's
maps would answer; many threads' with each other. Exit 77: no CUDA driver.
"""

import os
import random
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
LOOKUP, UPDATE, DELETE, COUNT = 1, 2, 3, 4
ENOENT, E2BIG, EEXIST, ENODEV, EINVAL = -2, -7, -17, -19, -22
HASH, PERCPU_HASH, LRU_HASH, GPU_HASH = 1, 5, 9, 1501
ENTRIES = 16
MANY = 40000  # so many that neighbouring keys are kept together


def rounded(n):
    return (n + 7) & ~7


def insns_of(path, section=b"kprobe/hash"):
    """The instructions of an object's one program, its references to the one map resolved."""
    with open(path, "rb") as f:
        data = f.read()
    (offset,) = struct.unpack_from("<Q", data, 0x28)
    size, n, names = struct.unpack_from("<HHH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(n)]
    for s in sections:
        name = data[sections[names][4] + s[0] :].split(b"\0", 1)[0]
        if name == section:
            code = bytearray(data[s[4] : s[4] + s[5]])
        if name == b".rel" + section:
            relocations = data[s[4] : s[4] + s[5]]
    for i in range(0, len(relocations), 16):
        (at,) = struct.unpack_from("<Q", relocations, i)
        code[at + 1] |= 5 << 4  # BPF_PSEUDO_MAP_IDX
    return bytes(code)


def compiled(command, source, folder):
    path = os.path.join(folder, "hash.bpf.o")
    subprocess.run([*command, "-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-I", HERE + "/../../../proto", "-c", source, "-o", path], check=True)
    return path


def ptx_of(bpf_run, code):
    command = [bpf_run, "--ptx", "--map", "1:8:8:4096"]
    return subprocess.run(command, input=code, capture_output=True, text=True, check=True).stdout


def check_text(command, bpf_run, folder):
    """A program that counts by key has to fit where programs are put into kernels (INLINE_MAX of passes/probe.c), in registers.
    Only where nobody deletes may a lookup be answered from an L1 cache; what it finds is never read from one."""
    path = compiled(command, HERE + "/../../../docs/examples/hash_count.bpf.c", folder)
    text = ptx_of(bpf_run, insns_of(path, b"kprobe/vectorAdd").hex())
    check(".target sm_70" in text and "ld.global.v2.b64" in text, "counting by key: no cached lookup, or another target")
    text = text[text.index(".func") : text.index(".visible .entry")]
    print("a count by key takes %d bytes of PTX" % len(text))
    check(len(text) < 16384, "that is too much to be put into a kernel")
    check(".local" not in text, "it needs a stack")
    shape = Shape(HASH, 8, 8, True)
    shape.compile(command, folder)
    text = ptx_of(bpf_run, shape.code)
    check("ld.global.v2.b64" not in text, "a lookup from a cache though elements are deleted")
    check("ld.relaxed.gpu.global.v2.b64" in text, "no lookup")
    check("ld.volatile.global.u8" in text, "a value that may come from a cache")


class Shape:
    def __init__(self, kind, key, value, on_stack, place="", entries=ENTRIES):
        self.kind, self.key, self.value, self.on_stack, self.place, self.entries = kind, key, value, on_stack, place, entries

    def __str__(self):
        return "type %d, key %d, value %d%s" % (self.kind, self.key, self.value, ", on the stack" if self.on_stack else "")

    def compile(self, command, folder):
        if os.path.isdir(command[0]):
            self.code = insns_of("%s/hash-calls-%d-%d-%d.bpf.o" % (command[0], self.kind, self.key, self.value)).hex()
            return
        flags = ["-DMAP_TYPE=%d" % self.kind, "-DKEY_SIZE=%d" % self.key, "-DVALUE_SIZE=%d" % self.value]
        flags += ["-DON_STACK"] if self.on_stack else []
        self.code = insns_of(compiled(command + flags, HERE + "/../objects/hash.bpf.c", folder)).hex()

    def make_key(self, i):
        """Key number i: the first bytes differ, or only the last."""
        place = 0 if i % 2 or self.key < 8 else self.key - 1
        key = bytearray(self.key)
        key[place] = i + 1
        return bytes(key)

    def make_value(self, i):
        return bytes((i * 7 + n) & 0xFF for n in range(self.value))

    def pack(self, call):
        kind, flags, key, value = call
        return struct.pack("<qqq", kind, flags, 0x5555) + key.ljust(rounded(self.key), b"\xee") + value.ljust(rounded(self.value), b"\xdd")

    def unpack(self, data):
        """Result and value."""
        at = 24 + rounded(self.key)
        return struct.unpack_from("<q", data, 16)[0], data[at : at + self.value]

    def line(self, name, threads, grid, *words):
        """A line of a batch. threads: the calls of each."""
        memory = struct.pack("<Q", len(threads[0])) + b"".join(self.pack(c) for calls in threads for c in calls)
        shape = "%d:%d:%d:%d%s" % (self.kind, self.key, self.value, self.entries, self.place)
        return " ".join(
            [name, "prog=" + self.code, "mem=" + memory.hex(), "map=" + shape, "grid=%d" % grid, "block=%d" % (len(threads) // grid), "want=memory", *words]
        )

    def answer(self, words, threads):
        """The results of all calls, by thread, and the elements."""
        size = len(self.pack((0, 0, b"", b"")))
        memory = bytes.fromhex(words[-1])[8:]
        calls = [self.unpack(memory[i : i + size]) for i in range(0, len(memory), size)]
        n, element = len(threads[0]), self.key + self.value
        dump = bytes.fromhex(words[2].strip("-"))
        elements = [dump[i : i + element] for i in range(0, len(dump), element)]
        return ([calls[t * n : t * n + n] for t in range(len(threads))], {e[: self.key]: e[self.key :] for e in elements})


def expected(calls, entries):
    """What one thread sees, and what is there in the end."""
    elements, results = {}, []
    for kind, flags, key, value in calls:
        result = 0
        if kind == LOOKUP:
            result, value = (1, elements[key]) if key in elements else (0, value)
        elif kind == DELETE:
            result = 0 if elements.pop(key, None) is not None else ENOENT
        elif flags > 2:
            result = EINVAL
        elif key in elements and flags == 1:
            result = EEXIST
        elif key not in elements and flags == 2:
            result = ENOENT
        elif key not in elements and len(elements) == entries:
            result = E2BIG
        else:
            elements[key] = value
        results.append((result, value))
    return results, elements


def check(condition, what):
    if not condition:
        sys.exit("test-hash.py: " + what)


class Script:
    """One thread; any calls."""

    def __init__(self, shape, n, kinds, seed):
        r = random.Random(seed)
        self.shape = shape
        self.threads = [[(r.choice(kinds), r.choice((0, 0, 0, 1, 2, 3)), shape.make_key(r.randrange(24)), shape.make_value(i)) for i in range(n)]]

    def line(self, name):
        return self.shape.line(name, self.threads, 1)

    def check(self, words):
        results, elements = self.shape.answer(words, self.threads)
        want, remaining = expected(self.threads[0], self.shape.entries)
        for call, got, wanted in zip(self.threads[0], results[0], want):
            check(got == wanted, "%s: %s: %s, not %s" % (self.shape, call, got, wanted))
        check(elements == remaining, "%s: in the end there is %s, not %s" % (self.shape, elements, remaining))


class Unarmed:
    """Maps that have no memory yet."""

    def __init__(self, shape):
        self.shape = shape
        self.threads = [[(kind, flags, shape.make_key(1), shape.make_value(1)) for kind, flags in ((LOOKUP, 0), (UPDATE, 0), (UPDATE, 3), (DELETE, 0))]]

    def line(self, name):
        return self.shape.line(name, self.threads, 1, "maps=unarmed")

    def check(self, words):
        results, _ = self.shape.answer(words, self.threads)
        check([r for r, _ in results[0]] == [0, ENODEV, EINVAL, ENODEV], "not armed: %s" % results)


class Counts:
    """Many threads count: some keys that have room, or more."""

    def __init__(self, shape, keys, grid, block, n):
        self.shape, self.keys, self.grid = shape, keys, grid
        self.threads = [[(COUNT, 0, shape.make_key((t + i) % keys), struct.pack("<Q", 1)) for i in range(n)] for t in range(grid * block)]

    def line(self, name):
        return self.shape.line(name, self.threads, self.grid)

    def check(self, words):
        results, elements = self.shape.answer(words, self.threads)
        counted = {}
        for calls, got in zip(self.threads, results):
            for (_, _, key, _), (result, _) in zip(calls, got):
                check(result in (0, E2BIG), "%s: counting gave %d" % (self.shape, result))
                counted[key] = counted.get(key, 0) + (result == 0)
        counted = {key: struct.pack("<Q", n) for key, n in counted.items() if n}
        check(elements == counted, "%s: %d keys: counted %s, there are %s" % (self.shape, self.keys, counted, elements))
        check(len(elements) == min(self.keys, self.shape.entries), "%s: %d elements of %d keys" % (self.shape, len(elements), self.keys))
        if self.keys <= self.shape.entries:
            check(all(r == 0 for got in results for r, _ in got), "%s: refused though there is room" % self.shape)


class Churn:
    """Many threads insert and delete: each success is one."""

    def __init__(self, shape, keys, grid, block, n, seed):
        r = random.Random(seed)
        self.shape, self.grid = shape, grid
        self.threads = [
            [(r.choice((UPDATE, DELETE)), 1, shape.make_key(r.randrange(keys)), shape.make_value(i)) for i in range(n)] for _ in range(grid * block)
        ]

    def line(self, name):
        return self.shape.line(name, self.threads, self.grid)

    def check(self, words):
        results, elements = self.shape.answer(words, self.threads)
        balance = {}
        for calls, got in zip(self.threads, results):
            for (kind, _, key, _), (result, _) in zip(calls, got):
                check(result in ((0, EEXIST, E2BIG) if kind == UPDATE else (0, ENOENT)), "%s: %d gave %d" % (self.shape, kind, result))
                balance[key] = balance.get(key, 0) + ((1 if kind == UPDATE else -1) if result == 0 else 0)
        for key, n in balance.items():
            check(n == (key in elements), "%s: %s: %d insertions more than deletions" % (self.shape, key.hex(), n))


class Evicts:
    """Many threads insert more keys than have room in a map that evicts: each succeeds, and what is there in the end is what was
    inserted. (Only insertions: an update in place, or a look at a value, may meet what has taken the slot of an evicted element.)"""

    def __init__(self, shape, keys, grid, block, n, seed):
        r = random.Random(seed)
        self.shape, self.keys, self.grid = shape, keys, grid
        self.threads = [
            [(r.choice((UPDATE, UPDATE, LOOKUP)), 1, key, key[-1:] * shape.value) for key in (shape.make_key(r.randrange(keys)) for _ in range(n))]
            for _ in range(grid * block)
        ]

    def line(self, name):
        return self.shape.line(name, self.threads, self.grid)

    def check(self, words):
        results, elements = self.shape.answer(words, self.threads)
        for calls, got in zip(self.threads, results):
            for (kind, _, _, _), (result, _) in zip(calls, got):
                check(result in ((0, EEXIST) if kind == UPDATE else (0, 1)), "%s: %d gave %d" % (self.shape, kind, result))
        check(len(elements) == self.shape.entries, "%s: %d elements" % (self.shape, len(elements)))
        check(all(value == key[-1:] * self.shape.value for key, value in elements.items()), "%s: %s" % (self.shape, elements))


COMPILED = [(HASH, 4, 8, True), (HASH, 8, 8, True), (GPU_HASH, 40, 12, True), (HASH, 512, 200, False), (PERCPU_HASH, 12, 8, True), (LRU_HASH, 8, 8, True)]


def all_sizes():
    sizes = [(HASH, k, 8, True) for k in (1, 2, 4, 6, 8, 12, 16, 40, 64, 72)]
    sizes += [(HASH, k, 8, False) for k in (1, 4, 8, 12, 40, 65, 512)]
    sizes += [(GPU_HASH, 8, v, True) for v in (1, 2, 4, 7, 12, 16, 40, 64, 65, 200)]
    return sizes + [(PERCPU_HASH, 4, 8, True), (PERCPU_HASH, 12, 16, True), (LRU_HASH, 8, 8, True), (LRU_HASH, 4, 8, True)]


def make_cases(sizes, seed):
    for size in sizes:
        shape = Shape(*size)
        if shape.kind == LRU_HASH:
            yield Evicts(shape, 24, 4, 32, 6, seed)
            yield Evicts(Shape(*size, "", 2), 24, 2, 32, 6, seed)
            continue
        yield Script(shape, 150, (LOOKUP, UPDATE, UPDATE, DELETE), seed)
        if size in ((HASH, 4, 8, True), (HASH, 8, 8, True), (HASH, 40, 8, True), (HASH, 512, 8, False)):
            yield Counts(shape, 3, 4, 32, 4)
            yield Counts(shape, 24, 4, 32, 6)
            yield Churn(shape, 24, 4, 32, 6, seed)
    yield Unarmed(Shape(HASH, 8, 8, True))
    yield Counts(Shape(HASH, 4, 8, True), 1, 8, 64, 2)
    yield Script(Shape(HASH, 8, 8, True, ",host"), 150, (LOOKUP, UPDATE, UPDATE, DELETE), seed)
    for size in COMPILED[:3]:
        shape = Shape(*size, "", MANY)
        yield Script(shape, 150, (LOOKUP, UPDATE, UPDATE, DELETE), seed)
        if shape.value == 8:
            yield Counts(shape, 200, 4, 64, 4)


def main():
    bpf_run, *command = sys.argv[1:]
    prebuilt = os.path.isdir(command[0])
    cases = list(make_cases(COMPILED if prebuilt else all_sizes(), 1))
    with tempfile.TemporaryDirectory() as folder:
        for shape in {id(c.shape): c.shape for c in cases}.values():
            shape.compile(command, folder)
        if not prebuilt:
            check_text(command, bpf_run, folder)
        batch = os.path.join(folder, "batch")
        with open(batch, "w") as f:
            f.writelines("%s\n" % c.line(str(i)) for i, c in enumerate(cases))
        p = subprocess.run([bpf_run, "--batch", batch], capture_output=True, text=True)
    if "no CUDA driver" in p.stderr:
        return 77
    lines = p.stdout.splitlines()
    check(p.returncode == 0 and len(lines) == len(cases), "bpf-run: exit %d: %s" % (p.returncode, p.stderr))
    for i, (case, line) in enumerate(zip(cases, lines)):
        check(line.startswith("%d 0x" % i), "%s: %s" % (case.shape, line))
        case.check(line.split())
    print("%d runs" % len(cases))
    return 0


if __name__ == "__main__":
    sys.exit(main())
