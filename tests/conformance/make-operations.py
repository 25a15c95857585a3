#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes cases/operations.txt: what every operation returns on every type of map with keys.

Each case calls one operation after the other and keeps what they return in memory. Run
`./make-operations.py && ./run.py --fill cases/operations.txt` after a change, and compare what is filled in with the comments.
"""

HEAD = """# SPDX-License-Identifier: Apache-2.0
# Made by make-operations.py. Every operation of every type of map with keys, one after the other: what each call returns is in
# memory, 8 bytes each. What a lookup finds is given as 256 and the value; 0 is NULL.
"""
ANY, NOEXIST, EXIST = 0, 1, 2


class Operations:
    def __init__(self):
        self.lines, self.n = ["r9 = r1"], 0

    def add(self, key, text, note):
        self.lines += ["# " + note, "*(u64 *)(r10 - 16) = %d; r1 = map[0] ll; r2 = r10; r2 += -16; %s; *(u64 *)(r9 + %d) = r0" % (key, text, 8 * self.n)]
        self.n += 1

    def update(self, key, value, flags, note):
        self.add(key, "r3 = r10; r3 += -32; *(u64 *)(r10 - 32) = %d; r4 = %d; call 2" % (value, flags), note)

    def lookup(self, key, note, change=0):
        add = "r1 = %d; lock *(u64 *)(r0 + 0) += r1; " % change if change else ""
        self.add(key, "call 1; if r0 == 0 goto +%d; %sr0 = *(u64 *)(r0 + 0); r0 += 256" % (4 if change else 2, add), note)

    def delete(self, key, note):
        self.add(key, "call 3", note)

    def case(self, name, *options):
        return "\n".join(["", "== operations of " + name, *options, ".mem " + "ee" * 8 * self.n, ".memory", *self.lines, "r0 = 0; exit", ""])


def array():
    o = Operations()
    o.lookup(1, "lookup: zeros")
    o.lookup(2, "lookup out of range: NULL")
    o.update(1, 7, ANY, "update, BPF_ANY: 0")
    o.lookup(1, "lookup: 7, becomes 9", 2)
    o.update(0, 5, EXIST, "BPF_EXIST: 0")
    o.update(0, 6, NOEXIST, "BPF_NOEXIST: -EEXIST")
    o.update(2, 6, ANY, "out of range: -E2BIG")
    o.update(2, 6, NOEXIST, "out of range, BPF_NOEXIST: -E2BIG")
    o.update(2, 6, EXIST, "out of range, BPF_EXIST: -E2BIG")
    o.update(0, 6, 3, "unknown flags: -EINVAL")
    o.update(2, 6, 4, "and out of range: -EINVAL")
    o.delete(0, "delete: -EINVAL")
    o.delete(2, "delete out of range: -EINVAL")
    o.lookup(0, "lookup: 5")
    return o


def array_without_memory():
    o = Operations()
    o.lookup(1, "lookup: NULL")
    o.update(1, 7, ANY, "update, BPF_ANY: -ENODEV")
    o.update(1, 7, EXIST, "BPF_EXIST: -ENODEV")
    o.update(1, 7, NOEXIST, "BPF_NOEXIST: -EEXIST")
    o.update(2, 7, ANY, "out of range: -E2BIG")
    o.update(1, 7, 3, "unknown flags: -EINVAL")
    o.delete(1, "delete: -EINVAL")
    return o


def hash_map():
    o = Operations()
    o.lookup(1, "lookup, absent: NULL")
    o.delete(1, "delete, absent: -ENOENT")
    o.update(1, 3, EXIST, "BPF_EXIST, absent: -ENOENT")
    o.update(1, 7, ANY, "BPF_ANY, absent: 0")
    o.lookup(1, "lookup: 7, becomes 9", 2)
    o.update(1, 8, NOEXIST, "BPF_NOEXIST, present: -EEXIST")
    o.lookup(1, "lookup: still 9")
    o.update(1, 10, ANY, "BPF_ANY, present: 0")
    o.update(1, 11, EXIST, "BPF_EXIST, present: 0")
    o.lookup(1, "lookup: 11")
    o.update(2, 20, NOEXIST, "BPF_NOEXIST, absent: 0")
    o.update(3, 30, ANY, "the map has two: -E2BIG")
    o.update(3, 30, NOEXIST, "BPF_NOEXIST: -E2BIG")
    o.update(3, 30, EXIST, "BPF_EXIST, absent: -ENOENT")
    o.update(2, 21, ANY, "full, but present: 0")
    o.update(1, 1, 3, "unknown flags: -EINVAL")
    o.update(3, 1, 255, "absent, too: -EINVAL")
    o.delete(1, "delete, present: 0")
    o.lookup(1, "lookup, deleted: NULL")
    o.delete(1, "delete, deleted: -ENOENT")
    o.update(3, 31, NOEXIST, "there is room again: 0")
    o.update(1, 1, ANY, "and then not: -E2BIG")
    return o


def lru_map():
    o = Operations()
    o.lookup(1, "lookup, absent: NULL")
    o.update(1, 3, EXIST, "BPF_EXIST, absent: -ENOENT")
    o.update(1, 10, ANY, "BPF_ANY, absent: 0")
    o.update(1, 8, NOEXIST, "BPF_NOEXIST, present: -EEXIST")
    o.update(2, 20, NOEXIST, "BPF_NOEXIST, absent: 0")
    o.lookup(1, "lookup: 10")
    o.update(3, 30, ANY, "the map has two: 0, instead of 2")
    o.lookup(2, "lookup, evicted: NULL")
    o.update(1, 11, EXIST, "BPF_EXIST, present: 0")
    o.update(4, 40, NOEXIST, "again: 0, instead of 3")
    o.lookup(3, "lookup, evicted: NULL")
    o.lookup(1, "lookup: 11")
    o.update(5, 50, EXIST, "BPF_EXIST, absent: -ENOENT, nothing is evicted")
    o.update(5, 50, 3, "unknown flags: -EINVAL")
    o.delete(1, "delete, present: 0")
    o.delete(1, "delete, deleted: -ENOENT")
    o.update(5, 50, ANY, "there is room: 0")
    o.lookup(4, "lookup: 40")
    o.update(6, 60, ANY, "and then not: 0, instead of 5")
    o.delete(5, "delete, evicted: -ENOENT")
    o.update(6, 61, ANY, "present: 0")
    return o


def hash_map_without_memory():
    o = Operations()
    o.lookup(1, "lookup: NULL")
    for flags in ("ANY", "NOEXIST", "EXIST"):
        o.update(1, 7, globals()[flags], "update, BPF_%s: -ENODEV" % flags)
    o.update(1, 7, 3, "unknown flags: -EINVAL")
    o.delete(1, "delete: -ENODEV")
    return o


ARRAYS = [
    ("2:4:8:2", "ARRAY"),
    ("2:4:8:2,host", "ARRAY in host memory"),
    ("2:4:8:2,kernel", "ARRAY of the kernel"),
    ("6:4:8:2", "PERCPU_ARRAY"),
    ("1503:4:8:2", "1503"),
    ("1513:4:8:2", "1513"),
    ("1504:4:8:2,kernel", "1504"),
    ("1502:4:8:2,threads=1", "1502"),
    ("1512:4:8:2,threads=1", "1512"),
]
LRUS = [("9:4:8:2", "LRU_HASH"), ("10:8:8:2", "LRU_PERCPU_HASH")]
HASHES = [("1:8:8:2", "HASH"), ("1:8:8:2,host", "HASH in host memory"), ("1501:8:8:2", "1501"), ("5:8:8:2", "PERCPU_HASH")]


def main():
    text = HEAD
    for maps, armed, unarmed in (ARRAYS, array, array_without_memory), (HASHES, hash_map, hash_map_without_memory), (LRUS, lru_map, hash_map_without_memory):
        for shape, name in maps:
            text += armed().case(name, ".map " + shape)
            text += unarmed().case(name + ", not armed", ".unarmed", ".map " + shape)
    with open("cases/operations.txt", "w") as f:
        f.write(text)


main()
