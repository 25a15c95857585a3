# SPDX-License-Identifier: Apache-2.0
"""An assembler and an interpreter of eBPF, small and plain: the reference that the translator is compared with.

The assembler takes the syntax of LLVM's disassembler, one instruction a line or separated by ';':

    r1 = 5            w1 = w2           r1 += r2         w1 s/= -3       r1 = (s8)r2      r1 = -r1
    r1 = 0x1122334455667788 ll          r1 = map[0] ll   r1 = value[0] + 8 ll
    r1 = thread + 8 ll
    r1 = be16 r1      r1 = le32 r1      r1 = bswap64 r1
    r0 = *(u64 *)(r1 + 8)               r0 = *(s8 *)(r1 - 1)
    *(u32 *)(r10 - 4) = r1              *(u8 *)(r1 + 0) = 7
    lock *(u64 *)(r1 + 0) += r2         r2 = atomic_fetch_or((u32 *)(r1 + 4), r2)
    r2 = xchg((u64 *)(r1 + 0), r2)      r0 = cmpxchg((u64 *)(r1 + 0), r0, r2)
    if r1 s> 5 goto done                if w1 & r2 goto +2
    goto done         gotol done        call 1           call function    exit          done:
    r2 = function body ll               may_goto done    call kfunc 1

The interpreter follows RFC 9669 as text, one thread after the other, on memory that is a list of regions. Threads of a warp
that are together wait for one another at helpers of lanes. Maps are in bpf_maps.py, numbers in bpf_numbers.py.
"""

import re
import struct

import bpf_maps
import bpf_numbers
import tables

M64 = (1 << 64) - 1
M32 = (1 << 32) - 1

ALU = {"+=": 0x00, "-=": 0x10, "*=": 0x20, "/=": 0x30, "|=": 0x40, "&=": 0x50, "<<=": 0x60, ">>=": 0x70, "%=": 0x90, "^=": 0xA0, "=": 0xB0, "s>>=": 0xC0}
JUMPS = {"==": 0x10, ">": 0x20, ">=": 0x30, "&": 0x40, "!=": 0x50, "s>": 0x60, "s>=": 0x70, "<": 0xA0, "<=": 0xB0, "s<": 0xC0, "s<=": 0xD0}
SIZES = {"8": 0x10, "16": 0x08, "32": 0x00, "64": 0x18}
BYTES = {0x10: 1, 0x08: 2, 0x00: 4, 0x18: 8}
ATOMICS = {"+": 0x00, "|": 0x40, "&": 0x50, "^": 0xA0}
FETCHES = {"add": 0x01, "or": 0x41, "and": 0x51, "xor": 0xA1}

THREAD = 64  # in place of the number of a map: the variables of a thread

LDX, LD, ST, STX, ALU32, JMP, JMP32, ALU64 = 1, 0, 2, 3, 4, 5, 6, 7


class AsmError(Exception):
    pass


def number(text):
    return int(text.replace(" ", ""), 0)


def insn(code, dst=0, src=0, off=0, imm=0):
    imm &= M32
    if not -0x8000 <= off <= 0x7FFF:
        raise AsmError("offset %d" % off)
    return struct.pack("<BBhI", code, dst | src << 4, off, imm)


def check_imm(value):
    if not -(1 << 31) <= value < 1 << 32:
        raise AsmError("immediate %d" % value)
    return value


RULES = []


def rule(pattern):
    def add(function):
        RULES.append((re.compile(pattern + "$"), function))
        return function

    return add


REG = r"([rw])(\d+)"
NUM = r"(-?(?:0x[0-9a-fA-F]+|\d+))"
OFF = r"\(r(\d+) ([+-] (?:0x[0-9a-fA-F]+|\d+))\)"


@rule("exit")
def _(a, m):
    return insn(JMP | 0x90)


@rule(r"r(\d+) = " + NUM + " ll")
def _(a, m):
    value = number(m[2])
    return insn(0x18, int(m[1]), 0, 0, value) + insn(0, 0, 0, 0, value >> 32)


@rule(r"r(\d+) = map\[(\d+)\] ll")
def _(a, m):
    return insn(0x18, int(m[1]), 5, 0, int(m[2])) + insn(0)


@rule(r"r(\d+) = value\[(\d+)\] \+ (\d+) ll")
def _(a, m):
    return insn(0x18, int(m[1]), 6, 0, int(m[2])) + insn(0, 0, 0, 0, int(m[3]))


@rule(r"r(\d+) = thread \+ (\d+) ll")
def _(a, m):
    return insn(0x18, int(m[1]), 6, 0, THREAD) + insn(0, 0, 0, 0, int(m[2]))


@rule(r"r(\d+) = function (\S+) ll")
def _(a, m):
    return insn(0x18, int(m[1]), 4, 0, a.distance(m[2])) + insn(0)


@rule(r"([rw])(\d+) = -\1\2")
def _(a, m):
    return insn((ALU64 if m[1] == "r" else ALU32) | 0x80, int(m[2]))


@rule(r"r(\d+) = (be|le|bswap)(16|32|64) r\1")
def _(a, m):
    code = {"le": ALU32 | 0xD0, "be": ALU32 | 0xD8, "bswap": ALU64 | 0xD0}[m[2]]
    return insn(code, int(m[1]), 0, 0, int(m[3]))


@rule(r"([rw])(\d+) = \(s(8|16|32)\)\1(\d+)")
def _(a, m):
    return insn((ALU64 if m[1] == "r" else ALU32) | 0xB8, int(m[2]), int(m[4]), int(m[3]))


@rule(REG + r" (\+=|-=|\*=|s/=|/=|\|=|&=|<<=|s>>=|>>=|s%=|%=|\^=|=) (?:([rw])(\d+)|" + NUM + ")")
def _(a, m):
    signed = m[3] in ("s/=", "s%=")
    code = ALU[m[3][1:] if signed else m[3]] | (ALU64 if m[1] == "r" else ALU32)
    if m[5]:
        if m[4] != m[1]:
            raise AsmError("mixed widths")
        return insn(code | 8, int(m[2]), int(m[5]), int(signed))
    return insn(code, int(m[2]), 0, int(signed), check_imm(number(m[6])))


@rule(r"r(\d+) = \*\(([us])(8|16|32|64) \*\)" + OFF)
def _(a, m):
    return insn(LDX | SIZES[m[3]] | (0x60 if m[2] == "u" else 0x80), int(m[1]), int(m[4]), number(m[5]))


@rule(r"\*\(u(8|16|32|64) \*\)" + OFF + r" = (?:r(\d+)|" + NUM + ")")
def _(a, m):
    if m[4]:
        return insn(STX | SIZES[m[1]] | 0x60, int(m[2]), int(m[4]), number(m[3]))
    return insn(ST | SIZES[m[1]] | 0x60, int(m[2]), 0, number(m[3]), check_imm(number(m[5])))


@rule(r"lock \*\(u(32|64) \*\)" + OFF + r" ([+|&^])= r(\d+)")
def _(a, m):
    return insn(STX | SIZES[m[1]] | 0xC0, int(m[2]), int(m[5]), number(m[3]), ATOMICS[m[4]])


@rule(r"r(\d+) = atomic_fetch_(add|or|and|xor)\(\(u(32|64) \*\)" + OFF + r", r\1\)")
def _(a, m):
    return insn(STX | SIZES[m[3]] | 0xC0, int(m[4]), int(m[1]), number(m[5]), FETCHES[m[2]])


@rule(r"r(\d+) = xchg\(\(u(32|64) \*\)" + OFF + r", r\1\)")
def _(a, m):
    return insn(STX | SIZES[m[2]] | 0xC0, int(m[3]), int(m[1]), number(m[4]), 0xE1)


@rule(r"r0 = cmpxchg\(\(u(32|64) \*\)" + OFF + r", r0, r(\d+)\)")
def _(a, m):
    return insn(STX | SIZES[m[1]] | 0xC0, int(m[2]), int(m[4]), number(m[3]), 0xF1)


@rule("if " + REG + r" (==|!=|>|>=|<|<=|s>|s>=|s<|s<=|&) (?:([rw])(\d+)|" + NUM + r") goto (\S+)")
def _(a, m):
    code = JUMPS[m[3]] | (JMP if m[1] == "r" else JMP32)
    if m[5]:
        return insn(code | 8, int(m[2]), int(m[5]), a.distance(m[7]))
    return insn(code, int(m[2]), 0, a.distance(m[7]), check_imm(number(m[6])))


@rule(r"goto (\S+)")
def _(a, m):
    return insn(JMP, off=a.distance(m[1]))


@rule(r"gotol (\S+)")
def _(a, m):
    return insn(JMP32, imm=a.distance(m[1]))


@rule(r"may_goto (\S+)")
def _(a, m):
    return insn(JMP | 0xE0, off=a.distance(m[1]))


@rule(r"call kfunc (\d+)")
def _(a, m):
    return insn(JMP | 0x80, src=2, imm=int(m[1]))


@rule(r"call (\d+)")
def _(a, m):
    return insn(JMP | 0x80, imm=int(m[1]))


@rule(r"call ([A-Za-z_]\w*)")
def _(a, m):
    return insn(JMP | 0x80, src=1, imm=a.distance(m[1]))


@rule(r"raw ([0-9a-f ]+)")
def _(a, m):
    return bytes.fromhex(m[1])


class Assembler:
    def __init__(self, text):
        self.labels = {}
        self.statements = []
        self.at = 0
        for line in text.split("\n"):
            for statement in line.split("#")[0].split(";"):
                statement = " ".join(statement.split())
                if re.match(r"[A-Za-z_]\w*:$", statement):
                    self.statements.append((statement[:-1], None, None))
                elif statement:
                    self.statements.append((None,) + self.parse(statement))

    def parse(self, statement):
        for pattern, function in RULES:
            match = pattern.match(statement)
            if match:
                return function, match
        raise AsmError("not an instruction: %s" % statement)

    def distance(self, target):
        if target[0] in "+-":
            return int(target)
        if target not in self.labels:
            if not self.final:
                return 0
            raise AsmError("no label %s" % target)
        return self.labels[target] - self.at - 1

    def assemble(self):
        for self.final in (False, True):
            self.at, code = 0, b""
            for label, function, match in self.statements:
                if label:
                    self.labels[label] = self.at
                    continue
                piece = function(self, match)
                self.at += len(piece) // 8
                code += piece
        return code


def assemble(text):
    """Bytes of a program in assembly."""
    return Assembler(text).assemble()


class BpfError(Exception):
    """The program does what no verified program does."""


def signed(value, bits):
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def divide(a, b):
    """Quotient, truncated towards zero."""
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


class Exit(Exception):
    """The thread has left the kernel."""


class Thread:
    """One thread: who it is, and what it holds. Places are counted where it matters how often it was there."""

    def __init__(self, machine, block, thread):
        self.block, self.index = block, thread
        self.block_number = number_of(block, machine.grid)
        in_block = number_of(thread, machine.block)
        self.lane, self.warp = in_block % 32, in_block // 32
        self.number = self.block_number * machine.block[0] * machine.block[1] * machine.block[2] + in_block
        self.sm = self.block_number + machine.first_sm & 127
        self.stack = bytearray(machine.garbage * 512 * 8)
        self.variables = bytearray(machine.thread_size)
        self.records, self.visits = [], {}
        self.may_goto = machine.LOOPS

    def visit(self, place):
        """The place, and how often the thread was there before."""
        n = self.visits[place] = self.visits.get(place, -1) + 1
        return place, n


def number_of(index, shape):
    return index[0] + shape[0] * (index[1] + shape[1] * index[2])


def shape_of(text):
    """X, XxY or XxYxZ as three numbers."""
    return tuple(([int(n) for n in str(text).split("x")] + [1, 1])[:3])


def count(text):
    x, y, z = shape_of(text)
    return x * y * z


class Record:
    """What a thread has reserved at one place: the place lasts, the record may be held or not."""

    def __init__(self, place, ring, size):
        self.place, self.ring, self.data, self.held = place, ring, bytearray(size), False


class Machine:
    MEMORY = 0x10000000
    CONTEXT = 0x50000000
    STACK = 0x70000000
    RECORDS = 0x60000000  # each has 64 KiB
    THREAD = 0x40000000
    REFERENCES = 0x30000000  # to maps
    MAPS = 1 << 40  # the values of each have 4 GiB
    CONTEXT_SIZE = 168
    STEPS = 1000000
    LOOPS = 8 * 1024 * 1024  # at most, of bpf_loop, of an iterator, and of all may_goto
    PID_TGID, DEVICE, COMM = 0x123400001234, 3, b"bpf-run"  # as bpf-run says

    def __init__(self, code, memory=b"", maps=(), grid="1", block="1", context=None, together=0):
        self.together = together  # mask of the lanes of each warp that are together; 0: each is alone
        self.insns = [struct.unpack("<BBhi", code[i : i + 8]) for i in range(0, len(code), 8)]
        self.memory = bytearray(memory)
        self.context = None if context is None else context.ljust(self.CONTEXT_SIZE, b"\0")
        self.maps = maps
        self.grid, self.block = shape_of(grid), shape_of(block)
        self.clock, self.first_sm = 1000, 0
        self.garbage = b"\0"  # on stacks
        self.thread_size, self.runs = 0, 1
        self.current = None

    def region(self, address, size):
        if self.MEMORY <= address and address + size <= self.MEMORY + len(self.memory):
            return self.memory, address - self.MEMORY
        if self.STACK <= address and address + size <= self.STACK + len(self.current.stack):
            return self.current.stack, address - self.STACK
        if self.THREAD <= address and address + size <= self.THREAD + len(self.current.variables):
            return self.current.variables, address - self.THREAD
        if self.context is not None and self.CONTEXT <= address and address + size <= self.CONTEXT + len(self.context):
            return self.context, address - self.CONTEXT
        for areas, base, bits in ((self.current.records, self.RECORDS, 16), (self.maps, self.MAPS, 32)):
            index, offset = address - base >> bits, address - base & (1 << bits) - 1
            if 0 <= index < len(areas) and offset + size <= len(areas[index].data):
                return areas[index].data, offset
        raise BpfError("access of %d bytes at 0x%x" % (size, address))

    def load(self, address, size):
        data, at = self.region(address & M64, size)
        return int.from_bytes(data[at : at + size], "little")

    def store(self, address, size, value):
        data, at = self.region(address & M64, size)
        if data is self.context:
            raise BpfError("store to the context")
        data[at : at + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")

    def alu(self, code, off, a, b):
        bits = 64 if code & 7 == ALU64 else 32
        mask = (1 << bits) - 1
        a, b, op = a & mask, b & mask, code & 0xF0
        if op == 0x00:
            r = a + b
        elif op == 0x10:
            r = a - b
        elif op == 0x20:
            r = a * b
        elif op == 0x30:
            if b == 0:
                r = 0
            else:
                r = divide(signed(a, bits), signed(b, bits)) if off else a // b
        elif op == 0x40:
            r = a | b
        elif op == 0x50:
            r = a & b
        elif op == 0x60:
            r = a << (b & bits - 1)
        elif op == 0x70:
            r = a >> (b & bits - 1)
        elif op == 0x80:
            r = -a
        elif op == 0x90:
            if b == 0:
                r = a
            elif off:
                x, y = signed(a, bits), signed(b, bits)
                r = x - y * divide(x, y)
            else:
                r = a % b
        elif op == 0xA0:
            r = a ^ b
        elif op == 0xB0:
            r = signed(b, off) if off else b
        elif op == 0xC0:
            r = signed(a, bits) >> (b & bits - 1)
        else:
            raise BpfError("operation 0x%x" % op)
        return r & mask

    @staticmethod
    def swap(code, imm, a):
        a &= (1 << imm) - 1
        if code == ALU32 | 0xD0:
            return a
        return int.from_bytes(a.to_bytes(imm // 8, "little"), "big")

    @staticmethod
    def taken(code, a, b):
        bits = 64 if code & 7 == JMP else 32
        a, b = a & (1 << bits) - 1, b & (1 << bits) - 1
        x, y = signed(a, bits), signed(b, bits)
        return {
            0x10: a == b,
            0x20: a > b,
            0x30: a >= b,
            0x40: a & b != 0,
            0x50: a != b,
            0x60: x > y,
            0x70: x >= y,
            0xA0: a < b,
            0xB0: a <= b,
            0xC0: x < y,
            0xD0: x <= y,
        }[code & 0xF0]

    def atomic(self, code, imm, regs, dst, src, off):
        size = BYTES[code & 0x18]
        mask = (1 << 8 * size) - 1
        address = regs[dst] + off
        old, operand = self.load(address, size), regs[src] & mask
        op = imm & 0xF0
        if imm == 0xF1:
            new = operand if old == regs[0] & mask else old
        else:
            new = {0x00: old + operand, 0x40: old | operand, 0x50: old & operand, 0xA0: old ^ operand, 0xE0: operand}[op]
        self.store(address, size, new)
        if imm == 0xF1:
            regs[0] = old
        elif imm & 1:
            regs[src] = old

    def map_of(self, reference):
        return self.maps[reference - self.REFERENCES]

    def map_helper(self, number, regs):
        """Helpers of maps with keys."""
        m = self.map_of(regs[1])
        key = self.bytes_at(regs[2], m.key)
        if number == 3:
            return m.delete(key, self.current)
        if number == 2:
            return m.update(key, self.bytes_at(regs[3], m.value), regs[4], self.current)
        at = m.lookup(key, self.current)
        return 0 if at is None else self.MAPS + (self.maps.index(m) << 32) + at

    def bytes_at(self, address, size):
        data, at = self.region(address & M64, size)
        return bytes(data[at : at + size])

    def reserve(self, ring, size, place):
        if not 0 < size <= ring.largest:
            return 0
        records = self.current.records
        index = next((i for i, r in enumerate(records) if r.place == place), len(records))
        if index == len(records):
            records.append(Record(place, ring, size))
        elif records[index].held:
            return 0
        records[index].held = True
        return self.RECORDS + (index << 16)

    def release(self, address, place, submit):
        if address:
            record = self.current.records[address - self.RECORDS >> 16]
            if submit and record.held:
                record.ring.write(bytes(record.data), self.current, self.current.visit(place))
            record.held = False
        return 0

    def ring_helper(self, number, regs, place):
        if number == 131:
            return self.reserve(self.map_of(regs[1]), regs[2], place)
        if number in (132, 133):
            return self.release(regs[1], place, number == 132)
        ring, data, size, full = (2, 4, 5, bpf_maps.ENOSPC) if number == 25 else (1, 2, 3, bpf_maps.EAGAIN)
        return self.map_of(regs[ring]).output(regs[size], lambda: self.bytes_at(regs[data], regs[size]), full, self.current, self.current.visit(place))

    def text_at(self, address, size):
        """A text that ends with NUL or after `size` bytes, at most 255, and how many conversions it has."""
        text = b""
        while len(text) < min(size, 255) and self.load(address + len(text), 1):
            text += self.bytes_at(address + len(text), 1)
        return text, text.replace(b"%%", b"").count(b"%")

    def log_helper(self, number, regs, place):
        """A record as in proto/log-record.h, with time 0."""
        log = next(m for m in self.maps if m.log)
        text, n = self.text_at(regs[1], 255 if number == 501 else regs[2])
        values = struct.pack("<QQQ", *regs[3:6])[: 8 * min(n, 3)] if number == 6 else b""
        if number == 177:
            if regs[4] % 8 or regs[4] > 96:
                return -bpf_maps.EINVAL
            values = self.bytes_at(regs[3], regs[4]) if regs[4] else b""
        record = struct.pack("<QHHHH", 0, 2 if number == 501 else 1, len(text), len(values) // 8, 0) + values
        record += text.ljust(len(text) + 7 & ~7, b"\0")
        return 0 if log.write(record, self.current, self.current.visit(place)) else -bpf_maps.ENOSPC

    def number_helper(self, number, regs):
        """Helpers that give numbers; time, SM and warp are not what a case may depend on."""
        thread = self.current
        name, kind = tables.HELPERS.get(number, ("helper %d" % number, None))
        if kind == "TRIPLE":
            triples = {
                "bpf_get_block_idx": thread.block,
                "bpf_get_block_dim": self.block,
                "bpf_get_thread_idx": thread.index,
                "bpf_get_grid_dim": self.grid,
                "bpf_get_cluster_id": thread.block,
            }
            for reg, value in zip(regs[1:4], triples[name]):
                self.store(reg, 8, value)
            return 0
        if kind == "COMM":
            comm = self.COMM[: min(regs[2] - 1, 15)].ljust(regs[2], b"\0")
            for i, byte in enumerate(comm):
                self.store(regs[1] + i, 1, byte)
            return 0
        if kind == "EXIT":
            raise Exit
        if kind == "ATOMIC":
            self.store(regs[1], 8, bpf_numbers.changed(name, self.load(regs[1], 8), regs[2]))
            return 0
        if kind == "NUMBER":
            return bpf_numbers.result(name, regs[1:4])
        self.clock += 32
        values = {
            "bpf_ktime_get_ns": self.clock,
            "bpf_get_prandom_u32": self.clock * 0x9E3779B1 & M32,
            "bpf_get_smp_processor_id": thread.sm,
            "bpf_get_current_pid_tgid": self.PID_TGID,
            "bpf_get_globaltimer": self.clock,
            "bpf_gpu_membar": 0,
            "bpf_get_sm_id": thread.sm,
            "bpf_get_warp_id": thread.warp & 31,
            "bpf_get_lane_id": thread.lane,
            "bpf_get_device_ordinal": self.DEVICE,
        }
        if name not in values:
            raise BpfError(name)
        return values[name]

    def iterator(self, number, regs):
        """bpf_iter_num_new, _next, _destroy: two numbers of 32 bits, the last one given and the end."""
        last, end, result = 0, 0, 0
        if number == 1:
            start, stop = signed(regs[2], 32), signed(regs[3], 32)
            result = -bpf_maps.EINVAL if start > stop else -bpf_maps.E2BIG if stop - start > self.LOOPS else 0
            if not result:
                last, end = start - 1, stop
        elif number == 2:
            last, end = signed(self.load(regs[1], 4) + 1, 32), signed(self.load(regs[1] + 4, 4), 32)
            result = regs[1]
            if last >= end:
                last, end, result = 0, 0, 0
        elif number != 3:
            raise BpfError("kfunc %d" % number)
        self.store(regs[1], 4, last)
        self.store(regs[1] + 4, 4, end)
        return result

    def helper(self, number, regs, place):
        _, kind = tables.HELPERS.get(number, (None, ""))
        if kind.startswith("MAP_"):
            return self.map_helper(number, regs)
        if kind.startswith(("RING_", "PERF_")):
            return self.ring_helper(number, regs, place)
        if kind in ("PRINTK", "VPRINTK", "PUTS"):
            return self.log_helper(number, regs, place)
        return self.number_helper(number, regs)

    def thread(self):
        """Runs the current thread. Gives (name, place, values) at each helper of lanes; returns r0, or None: it left the kernel."""
        if any(i[0] == 0x18 and i[1] >> 4 == 6 and i[3] != THREAD and not self.maps[i[3]].armed for i in self.insns):
            return 0
        try:
            for _ in range(self.runs):
                result = yield from self.steps()
            return result
        except Exit:
            return None

    def warp(self, threads):
        """Runs threads of a warp that are together. Returns what each returns."""
        runs = {t: self.thread() for t in threads}
        results, answers = {}, dict.fromkeys(runs)
        while runs:
            waiting = {}
            for t in list(runs):
                self.current = t
                try:
                    waiting[t] = runs[t].send(answers[t])
                except StopIteration as end:
                    results[t] = end.value
                    del runs[t]
            if len({call[:2] for call in waiting.values()}) > 1:
                raise BpfError("lanes that are together call different helpers")
            by_lane = {t.lane: call[2] for t, call in waiting.items()}
            answers = {t: bpf_numbers.of_lanes(call[0], t.lane, by_lane) for t, call in waiting.items()}
        return list(results.values())

    def enter(self, frames, regs, back, start, loop):
        """Begins a function at `start`; the caller goes on at `back`."""
        frames.append((back, regs[6:11], loop))
        if len(frames) >= 8:
            raise BpfError("calls too deep")
        regs[0] = 0
        regs[6:11] = [0, 0, 0, 0, regs[10] - 512]
        end = regs[10] - self.STACK
        self.current.stack[end - 512 : end] = self.garbage * 512
        return start

    def steps(self):
        regs = [0] * 11
        if self.context is not None:
            regs[1] = self.CONTEXT
        else:
            regs[1] = self.MEMORY if self.memory else 0
            regs[2] = len(self.memory)
        regs[10] = self.STACK + len(self.current.stack)
        frames, pc = [], 0  # frames: where to go on, r6-r10, and of a callback: its start, rounds done, all rounds, context
        for _ in range(self.STEPS):
            if not 0 <= pc < len(self.insns):
                raise BpfError("pc %d" % pc)
            code, registers, off, imm = self.insns[pc]
            dst, src, kind = registers & 15, registers >> 4, code & 7
            b = regs[src] if code & 8 else imm & M64
            pc += 1
            if kind in (ALU32, ALU64):
                if code & 0xF0 == 0xD0:
                    regs[dst] = self.swap(code, imm, regs[dst])
                else:
                    regs[dst] = self.alu(code, off, regs[dst], b)
            elif code == 0x18:
                high = self.insns[pc][3]
                pc += 1
                if src == 0:
                    regs[dst] = imm & M32 | (high & M32) << 32
                elif src == 4:
                    regs[dst] = pc - 1 + imm + 1  # not 0
                elif src == 5:
                    regs[dst] = self.REFERENCES + imm
                elif imm == THREAD:
                    regs[dst] = self.THREAD + high
                else:
                    regs[dst] = self.MAPS + (imm << 32) + high
            elif kind == LDX:
                size = BYTES[code & 0x18]
                value = self.load(regs[src] + off, size)
                regs[dst] = signed(value, 8 * size) & M64 if code & 0xE0 == 0x80 else value
            elif kind == ST:
                self.store(regs[dst] + off, BYTES[code & 0x18], imm & M64)
            elif kind == STX:
                if code & 0xE0 == 0xC0:
                    self.atomic(code, imm, regs, dst, src, off)
                else:
                    self.store(regs[dst] + off, BYTES[code & 0x18], regs[src])
            elif code == JMP | 0x90:
                if not frames:
                    return regs[0]
                pc, regs[6:11], loop = frames.pop()
                if loop:
                    start, done, rounds, context = loop
                    if regs[0] == 0 and done + 1 < rounds:
                        pc = self.enter(frames, regs, pc, start, (start, done + 1, rounds, context))
                        regs[1], regs[2] = done + 1, context
                    else:
                        regs[0] = done + 1
            elif code == JMP | 0x80:
                if src == 1:
                    pc = self.enter(frames, regs, pc, pc + imm, None)
                elif src == 2:
                    regs[0] = self.iterator(imm, regs) & M64
                elif imm == 181:
                    rounds, start, context = regs[1] & M32, regs[2] - 1, regs[3]
                    regs[0] = (-bpf_maps.EINVAL if regs[4] else -bpf_maps.E2BIG if rounds > self.LOOPS else 0) & M64
                    if not regs[0] and rounds:
                        pc = self.enter(frames, regs, pc, start, (start, 0, rounds, context))
                        regs[1], regs[2] = 0, context
                elif tables.HELPERS.get(imm, ("",))[0] in bpf_numbers.LANES:
                    regs[0] = (yield tables.HELPERS[imm][0], (pc, *(f[0] for f in frames)), regs[1:3]) & M64
                else:
                    regs[0] = self.helper(imm, regs, (pc, *(f[0] for f in frames))) & M64
            elif code == JMP | 0xE0:
                if self.current.may_goto:
                    self.current.may_goto -= 1
                else:
                    pc += off
            elif code == JMP:
                pc += off
            elif code == JMP32:
                pc += imm
            elif self.taken(code, regs[dst], b):
                pc += off
        raise BpfError("does not end")

    def threads(self):
        (gx, gy, gz), (bx, by, bz) = self.grid, self.block
        return [((x, y, z), (i, j, k)) for z in range(gz) for y in range(gy) for x in range(gx) for k in range(bz) for j in range(by) for i in range(bx)]

    def run(self, backwards=False):
        """Runs all threads, one after the other. Returns their r0, which must be the same (None: all left)."""
        threads = self.threads()
        if backwards:  # what no case may depend on is different, too
            self.clock, self.first_sm, self.garbage = 70000, 9, b"\xa5"
            self.STACK, self.MAPS, self.CONTEXT = 0xFFFFC90092345678, 0xFFFF8831A3456ED8, 0xFFFFEA00D1234560
        threads = [Thread(self, *t) for t in threads]
        warps = {}
        for t in reversed(threads) if backwards else threads:
            warps.setdefault((t.block_number, t.warp) if self.together >> t.lane & 1 else t, []).append(t)
        values = {r for warp in warps.values() for r in self.warp(warp)} - {None}
        if len(values) > 1:
            raise BpfError("threads return different values: %s" % sorted(values)[:3])
        return values.pop() if values else None
