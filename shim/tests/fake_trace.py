# SPDX-License-Identifier: Apache-2.0
"""A daemon that traces, and reads what the shim writes (proto/trace-ring.h). The functions' table is read from proto/functions.txt."""

import fcntl
import mmap
import os
import re
import struct
import time

import fake_daemon
import wire

MAGIC, VERSION = 0x52525447, 2
EXTRAS, GPU, ERRORS, STACKS, CUPTI, REPLACED = 1, 2, 4, 8, 16, 32
TSC, MONOTONIC = 0, 1
HEADER, FUNCTIONS = struct.Struct("<IIIIIIIIQQQQQ"), 104
ENABLED, FLAGS, MIN_DURATION, SAMPLE, HEARTBEAT, HOMELESS, UNREAD, SLOTS_OFFSET = 8, 12, 40, 48, 56, 64, 72, 4096
FREE, USED, LEFT = 0, 1, 2
SLOT = 128
PAD, CALL, NAME, KERNEL, CLOCK_PAIR, NOTE = range(6)
NO_RESULT = 2
DYNAMIC = 3072
RULE = (0, 0, 0, 0, b"", 0)
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
with open(os.path.join(ROOT, "proto/functions.txt")) as table:
    NUMBERS = {name: int(number) for number, name in re.findall(r"^(\d+) \w+ (cu\w+)\(", table.read(), re.M)}
NAMES = {number: name for name, number in NUMBERS.items()}


class Call:
    def __init__(self, data, tid):
        _, _, self.flags, self.sequence, self.start, self.end, self.result, self.function, words, extras = struct.unpack_from("<HBBIQQiHBB", data)
        self.tid = tid
        self.words = struct.unpack_from(f"<{words}Q", data, 32)
        self.name = NAMES.get(self.function, self.function)
        self.extras, at = {}, 32 + 8 * words
        for _ in range(extras):
            argument, when, size, reserved = struct.unpack_from("<BBHI", data, at)
            assert not reserved
            self.extras[argument] = (when, data[at + 8 : at + 8 + size])
            at += 8 + (size + 7) // 8 * 8
        assert at == len(data), (at, len(data))

    def __repr__(self):
        return f"{self.name}{self.words}={self.result} #{self.sequence}"


class Ring:
    """What one process was given."""

    def __init__(self, slots=16, slot_bytes=1 << 16, flags=0, functions=None, clock=TSC, min_duration=0, sample=0, change=None, seals=SEALS, cut=0, cupti=""):
        self.slots, self.slot_bytes, self.stride = slots, slot_bytes, SLOT + slot_bytes
        size = SLOTS_OFFSET + slots * self.stride
        self.size = size
        self.fd = os.memfd_create("ring", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, size - cut)
        header = HEADER.pack(MAGIC, VERSION, 1, flags, clock, slots, slot_bytes, self.stride, SLOTS_OFFSET, min_duration, sample, time.monotonic_ns(), 0)
        bits = sum(1 << number for number in range(4096)) if functions is None else sum(1 << number for number in functions)
        header += bytes(FUNCTIONS - len(header)) + bits.to_bytes(512, "little") + cupti.encode()
        if change:
            header = change(bytearray(header))
        os.pwrite(self.fd, header, 0)
        self.memory = mmap.mmap(self.fd, size - cut)
        if seals:
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)
        self.kernels, self.pairs, self.names, self.notes, self.by_slot = [], [], [], [], []
        self.exact = []  # of kernels: flags, and nanoseconds by which they may be off

    def number(self, offset, form="<Q"):
        return struct.unpack_from(form, self.memory, offset)[0]

    def put(self, offset, value, form="<Q"):
        struct.pack_into(form, self.memory, offset, value)

    def end(self):
        self.put(ENABLED, 0, "<I")

    def replace(self):
        """The process is to ask for another one; the page has changed."""
        self.put(FLAGS, self.number(FLAGS, "<I") | REPLACED, "<I")
        self.end()

    def widen(self, flags):
        """All calls are to be recorded, with these flags; a shim looks when the page changes."""
        self.memory[FUNCTIONS : FUNCTIONS + 512] = b"\xff" * 512
        self.put(FLAGS, flags, "<I")
        self.put(MIN_DURATION, 0)
        self.put(SAMPLE, 1)

    def beat(self):
        self.put(HEARTBEAT, time.monotonic_ns())

    def at(self, slot):
        return SLOTS_OFFSET + slot * self.stride

    def states(self):
        return [self.number(self.at(slot), "<I") for slot in range(self.slots)]

    def lost(self):
        return sum(self.number(self.at(slot) + 16) for slot in range(self.slots)) + self.number(HOMELESS)

    def unread(self):
        """Launches of which nobody knows the end."""
        return self.number(UNREAD)

    def homeless(self):
        return self.number(HOMELESS)

    def read(self):
        """All calls that are there, by slot; slots that are left become free."""
        calls = []
        for slot in range(self.slots):
            at = self.at(slot)
            left = self.number(at, "<I") == LEFT
            tid, head, tail = self.number(at + 4, "<I"), self.number(at + 8), self.number(at + 64)
            assert head % 8 == 0 and tail <= head <= tail + self.slot_bytes, (head, tail)
            while tail < head:
                start = at + SLOT + tail % self.slot_bytes
                size, kind = struct.unpack_from("<HB", self.memory, start)
                assert size and size % 8 == 0 and size <= 1024 and tail % self.slot_bytes + size <= self.slot_bytes, (size, kind)
                record = bytes(self.memory[start : start + size])
                if kind == CALL:
                    calls.append(Call(record, tid))
                elif kind == NAME:
                    what, reserved, number = struct.unpack_from("<IIQ", record, 8)
                    assert not reserved
                    self.names.append((what, number, record[24:].rstrip(b"\0").decode()))
                elif kind == KERNEL:
                    assert size == 64 and record[60:] == bytes(4), record
                    self.kernels.append(struct.unpack_from("<IIIQQQQQ", record, 4))
                    self.exact.append((record[3], *struct.unpack_from("<I", record, 56)))
                elif kind == CLOCK_PAIR:
                    self.pairs.append(struct.unpack_from("<IIQQQ", record, 8))
                elif kind == NOTE:
                    self.notes.append(record[8:].rstrip(b"\0").decode())
                else:
                    assert kind == PAD, kind
                tail += size
            self.put(at + 64, tail)
            if left:
                self.put(at, FREE, "<I")
        return calls


class TraceDaemon(fake_daemon.FakeDaemon):
    """Traces whom `rules` name; make() is what a process is given (None: nothing)."""

    def __init__(self, name, rules=(RULE,), make=None, probes=False, **more):
        self.make, self.generation, self.rings = make or Ring, 2, []
        more.setdefault("deadline_ms", 2000)
        self.more = more
        super().__init__(name, text=fake_daemon.page(fake_daemon.EVERYONE if probes else 0, more["deadline_ms"], trace_rules=rules), **more)

    def change_rules(self, rules=(RULE,)):
        """In place, as the daemon does."""
        self.generation += 2
        data = fake_daemon.page(0, self.more["deadline_ms"], trace_generation=self.generation, trace_rules=rules)
        with open(os.path.join(self.folder, "interest"), "r+b") as file:
            file.write(data)

    def answer_trace(self, connection, sequence):
        ring = self.make()
        if ring is None:
            return super().answer_trace(connection, sequence)
        self.rings.append(ring)
        return self.send(connection, "trace", [(wire.message(wire.TRACE_REPLY, ring.size, sequence=sequence), [os.dup(ring.fd)])])

    def calls(self):
        return [call for ring in self.rings for call in ring.read()]
