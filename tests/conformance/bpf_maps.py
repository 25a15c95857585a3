# SPDX-License-Identifier: Apache-2.0
"""The maps of the interpreter in bpf.py: what they do for programs, and what a reader sees of them, as bpf-run prints it.

Only results count, not where something lies: see proto/gpuprobe.bpf.h for what is promised of each type. A map that is not armed
has no memory in the process. Addresses of values are offsets in `data`; None is NULL.
"""

import struct

import tables

RECORD_MAX = 4096  # bytes
EAGAIN, E2BIG, EEXIST, ENOENT, EINVAL, ENODEV, ENOSPC = 11, 7, 17, 2, 22, 19, 28
NOEXIST, EXIST = 1, 2


class MapError(Exception):
    """What depends on more than the interpreter knows."""


class Map:
    key = 4

    def __init__(self, kind, key, value, entries, options):
        self.kind, self.key, self.value, self.entries = kind, key, value, entries
        self.stride = (value + 7) & ~7
        self.options = options
        self.armed, self.log = True, "log" in options
        self.data = bytearray()

    def lookup(self, key, thread):
        return self.find(key, thread) if self.armed else None

    def store(self, at, value):
        self.data[at : at + self.value] = value

    def dump(self):
        """What a reader sees; empty: nothing."""
        return self.values() if self.armed else b""


class Array(Map):
    def __init__(self, *shape):
        super().__init__(*shape)
        self.data = bytearray(self.stride * self.entries)

    def find(self, key, thread):
        index = int.from_bytes(key, "little")
        return index * self.stride if index < self.entries else None

    def update(self, key, value, flags, thread):
        at = self.find(key, thread)
        if flags > EXIST:
            return -EINVAL
        if at is None:
            return -E2BIG
        if flags == NOEXIST:
            return -EEXIST
        if not self.armed:
            return -ENODEV
        self.store(at, value)
        return 0

    def delete(self, key, thread):
        return -EINVAL

    def dump(self):
        return self.values()  # zeros, where there is no memory

    def values(self):
        return b"".join(self.data[at : at + self.value] for at in range(0, len(self.data), self.stride))


class ThreadArray(Array):
    """The values of index 0, one a thread, then those of index 1 ..."""

    def __init__(self, kind, key, value, entries, options):
        super().__init__(kind, key, value, entries, options)
        self.threads = options.get("threads", 65536)
        self.data = bytearray(self.stride * entries * self.threads)

    def find(self, key, thread):
        index = int.from_bytes(key, "little")
        if index >= self.entries or thread.number >= self.threads:
            return None
        return (index * self.threads + thread.number) * self.stride

    dump = Map.dump


class Hash(Map):
    def __init__(self, *shape):
        super().__init__(*shape)
        self.data = bytearray(self.stride * self.entries)
        self.elements = {}
        self.free = list(range(0, len(self.data), self.stride or 1))

    def find(self, key, thread):
        return self.elements.get(key)

    def update(self, key, value, flags, thread):
        if flags > EXIST:
            return -EINVAL
        if not self.armed:
            return -ENODEV
        if key in self.elements:
            if flags == NOEXIST:
                return -EEXIST
        elif flags == EXIST:
            return -ENOENT
        elif not self.free:
            return -E2BIG
        else:
            self.elements[key] = self.free.pop()
        self.store(self.elements[key], value)
        return 0

    def delete(self, key, thread):
        if not self.armed:
            return -ENODEV
        if key not in self.elements:
            return -ENOENT
        self.free.append(self.elements.pop(key))
        return 0

    def values(self):
        """Elements in order of keys."""
        return b"".join(key + self.data[at : at + self.value] for key, at in sorted(self.elements.items()))


class LruHash(Hash):
    """One that evicts the element that was used least recently, which is exact where the map is small."""

    EXACT = 16  # entries

    def __init__(self, *shape):
        super().__init__(*shape)
        self.clock, self.used = 0, {}

    def lookup(self, key, thread):
        at = super().lookup(key, thread)
        if at is not None:
            self.used[key] = self.clock + 1
        return at

    def update(self, key, value, flags, thread):
        there = key in self.elements
        if self.armed and not there and flags in (0, NOEXIST):
            self.clock += 2
            if not self.free:
                self.evict()
        result = super().update(key, value, flags, thread)
        if not result:
            self.used[key] = self.clock + 1 if there else self.clock
        return result

    def evict(self):
        oldest = min(self.used[key] for key in self.elements)
        victims = [key for key in self.elements if self.used[key] == oldest]
        if self.entries > self.EXACT or len(victims) > 1:
            raise MapError("which element is evicted depends on where it lies")
        self.free.append(self.elements.pop(victims[0]))


class Ring(Map):
    """
    Records of lanes that are together are one batch. Threads run one after the other here, so batches are put together in the end:
    records that were written at one place, for the same time there, by lanes of one warp of which the case says that they are
    together. Whether there is room is known where there is one ring for all SMs.
    """

    TOTAL, SMALLEST = 8 << 20, 16 << 10

    def __init__(self, *shape):
        super().__init__(*shape)
        total = max(self.options.get("ring", self.TOTAL), self.SMALLEST)
        total = 1 << total.bit_length() - 1
        rings = max(1, min(128, total // self.SMALLEST))
        self.size = total // rings
        self.is_one = rings == 1
        self.head = self.consumed = self.options.get("head", 0)
        self.tail = self.options.get("tail", 0) or max(self.head - self.size, 0)
        self.largest = self.value if self.kind == 1527 and 0 < self.value < RECORD_MAX else RECORD_MAX
        self.together = False
        self.lost, self.batches = 0, {}

    def output(self, record_size, read, full, thread, place):
        """The result of a helper that writes; read(): the record."""
        if not 0 < record_size <= self.largest:
            return -E2BIG if record_size else -EINVAL
        return 0 if self.write(read(), thread, place) else -full

    def write(self, record, thread, place):
        if not self.armed:
            return False
        if self.together:
            key = (thread.block_number, thread.warp, place, len(record))
        else:
            key = len(self.batches)
            if not self.take(32 + len(record)):
                self.lost += 1
                return False
        self.batches.setdefault(key, []).append((thread.lane, record))
        return True

    def take(self, size):
        size = (size + 31) & ~31
        if not self.is_one:
            self.head += size
            if self.head > self.size:
                raise MapError("whether there is room is not known here")
            return True
        left = self.size - self.head % self.size
        skip = left if left < size else 0
        if self.head + skip + size - self.tail > self.size:
            self.tail = max(self.tail, self.consumed)
            if self.head + skip + size - self.tail > self.size:
                return False
        self.head += skip + size
        return True

    def values(self):
        pieces, written = [], 0
        for batch in self.batches.values():
            records = [record for _, record in sorted(batch, key=lambda item: item[0])]
            written += len(records)
            most = 1 if "records" in self.options else (self.size // 2 - 32) // len(records[0])
            pieces += [records[i : i + most] for i in range(0, len(records), most)]
        if self.together and not all(self.take(32 + len(p[0]) * len(p)) for p in pieces):
            raise MapError("what finds no room is not known here")
        pieces = sorted(struct.pack("<II", len(p[0]), len(p)) + b"".join(p) for p in pieces)
        return struct.pack("<II", self.lost, written) + b"".join(pieces)


def make(text):
    """A map from what bpf-run takes: TYPE:KEY:VALUE:ENTRIES[,OPTION]..."""
    shape, *words = text.split(",")
    options = {}
    for word in words:
        name, _, value = word.partition("=")
        options[name] = int(value) if value else True
    kind, *sizes = map(int, shape.split(":"))
    name, lru = tables.MAP_TYPES.get(kind, ("ARRAY", False))
    classes = {"ARRAY": Array, "THREADS": ThreadArray, "HASH": LruHash if lru else Hash, "RING": Ring}
    return classes[name](kind, *sizes, options)
