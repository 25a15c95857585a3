# SPDX-License-Identifier: Apache-2.0
"""The sanitizer engine's side of the fake daemon: a page that wants the engine, and plans for the kernels whose names match a pattern.

The patch counts threads that enter, in the first word of its map; the two that follow are the kernel's number and the process."""

import os
import re
import struct

import fake_daemon
import wire
from fake_daemon import EVERYONE, MAP
from target_runs import within

SASS_RULES, SANITIZER = 2624, 3792  # where the page has them
HEADER = "<IIQQQQIIIIII"  # struct patch_plan
ENTER = 1
PROCESS_OFFSET, MAP_OFFSET, DATA_SIZE = 32, 40, 48
PID_WORD = fake_daemon.PID << 32 | fake_daemon.PID
PATCH = """.version 7.8
.target sm_70
.address_size 64
.visible .func (.param .b32 r) count_%d(.param .b64 data, .param .b64 pc) {
 .reg .b64 %%d; .reg .b64 %%x; .reg .b64 %%m; .reg .pred %%p;
 ld.param.u64 %%d, [data]; setp.eq.u64 %%p, %%d, 0; @%%p bra OUT;
 ld.global.u64 %%x, [%%d]; setp.eq.u64 %%p, %%x, 0; @%%p bra OUT;
 ld.global.u64 %%m, [%%d+40]; setp.eq.u64 %%p, %%m, 0; @%%p bra OUT;
 red.global.add.u64 [%%m], 1;
 ld.global.u64 %%x, [%%d+8]; st.global.u64 [%%m+8], %%x;
 ld.global.u64 %%x, [%%d+32]; ld.global.u64 %%x, [%%x]; st.global.u64 [%%m+16], %%x;
 OUT: st.param.b32 [r], 0; ret; }
"""


def fatbin(ptx):
    payload = ptx.encode() + b"\0"
    payload += bytes(-len(payload) % 8)
    entry = struct.pack("<HHIQIIHHIIIQQQ", 1, 0x0101, 64, len(payload), 0, 0, 8, 7, 70, 0, 0, 0x11, 0, 0)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry) + len(payload)) + entry + payload


def rule(flags=0, pid=0, uid=0, comm=b"", exe=0, cgroup=0):
    return struct.pack("<IIII16sQQ", flags, pid, uid, 0, comm, exe, cgroup)


def page(flags, sanitizer, rules=(rule(),), deadline_ms=2000):
    data = bytearray(fake_daemon.page(flags, deadline_ms))
    struct.pack_into("<I", data, 28, len(rules))
    for number, one in enumerate(rules):
        data[SASS_RULES + 48 * number : SASS_RULES + 48 * (number + 1)] = one
    data[SANITIZER : SANITIZER + 256] = sanitizer.encode().ljust(256, b"\0")
    return bytes(data)


def kernel_id(name):
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def modules_of(data):
    """[(number, module id, [name])] of a list of names."""
    found, at = [], 0
    while at < len(data):
        size, number, module, count, reserved = struct.unpack_from("<IIQII", data, at)
        names = data[at + 24 : at + size].split(b"\0")[:count]
        assert size % 8 == 0 and at + size <= len(data) and not reserved and len(names) == count and all(names)
        found.append((number, module, [name.decode() for name in names]))
        at += size
    return found


def make_plan(kernels, image, image_id=1, points=((ENTER, b"count_0"),)):
    """kernels: (module number, which name, kernel id, attachments)."""
    points_at = struct.calcsize(HEADER)
    kernels_at = points_at + 64 * len(points)
    image_at = kernels_at + 24 * len(kernels)
    size = image_at + len(image)
    return (
        struct.pack(HEADER, 0x50525047, 1, size, image_at, len(image), image_id, points_at, len(points), kernels_at, len(kernels), DATA_SIZE, 0)
        + b"".join(struct.pack("<II56s", number, 0, symbol) for number, symbol in points)
        + b"".join(struct.pack("<IIQQ", *kernel) for kernel in kernels)
        + image
    )


class PlanDaemon(fake_daemon.FakeDaemon):
    """Steps of its scripts besides: "plan" and "plan-slot"; `edit` changes the bytes of a plan. kind: of the map's slot. ptx: there are twins, too, for a
    process that has no sanitizer engine; they count in the same map."""

    def __init__(self, name, sanitizer, attached=True, kernels="vectorAdd", kind=wire.REGION, rules=(rule(),), deadline_ms=2000, ptx=False, **more):
        self.ptx = ptx
        self.kernels, self.kind, self.edit, self.asked, self.image_number, self.map = kernels, kind, None, [], 0, MAP
        self.slots = self.mirror = None
        self.most_plans = 0  # that a process had at a time
        self.later = 0  # there is none now, and that is why (enum wire_later)
        super().__init__(name, text=page(EVERYONE if attached else 0, sanitizer, rules, deadline_ms), deadline_ms=deadline_ms, **more)

    def attach(self, attached=True, rules=()):
        """Changes the page as the daemon does, in place. rules: those of the attachments, if they do not mean everybody."""
        fd = os.open(os.path.join(self.folder, "interest"), os.O_RDWR)
        (generation,) = struct.unpack("<Q", os.pread(fd, 8, 8))
        os.pwrite(fd, struct.pack("<Q", generation + 1), 8)
        os.pwrite(fd, struct.pack("<I", EVERYONE if attached and not rules else 0), 16)
        os.pwrite(fd, struct.pack("<I", len(rules)), 24)
        os.pwrite(fd, b"".join(rules), 32)
        os.pwrite(fd, struct.pack("<Q", generation + 2), 8)
        os.close(fd)

    def send(self, connection, step, answer):
        if step == "welcome" and self.roles[connection] == wire.MIRROR:
            self.mirror = connection
        return super().send(connection, step, answer)

    def disarm(self, map_id):
        """Whether the process has answered; its connection may just be ending, or another one beginning."""
        seen = self.seen(wire.SYNCED)

        def answered():
            if self.seen(wire.SYNCED) > seen:
                return True
            try:
                self.mirror.send(wire.message(wire.DISARM, map_id, sequence=100 + seen))
            except (OSError, AttributeError):
                return False
            return within(lambda: self.seen(wire.SYNCED) > seen, 0.5)

        return within(answered)

    def one_image(self, connection, fields, image, sequence):
        if fields[1] == wire.NAMES:
            return self.answer_names(connection, image, sequence)
        if self.ptx:
            return self.answer_image(connection, image, sequence)
        return self.send(connection, "own", [(wire.message(wire.IMAGE_REPLY, 1 << 32, 0, 0, 0, 0, 0, b"ptx is not wanted", sequence=sequence), [])])

    def answer_names(self, connection, data, sequence):
        modules = modules_of(data)
        with self.lock:
            self.asked.append(modules)
            self.module += 1
            module = self.module
        kernels = [(number, place, kernel_id(name), 1) for number, _, names in modules for place, name in enumerate(names) if re.fullmatch(self.kernels, name)]
        if not kernels or self.later:
            return self.send(
                connection, "plan-own", [(wire.message(wire.IMAGE_REPLY, module, 0, 0, 0, 0, self.later, b"no kernel is meant", sequence=sequence), [])]
            )
        plan = make_plan(kernels, fatbin(PATCH % self.image_number), 1 + self.image_number, [(ENTER, b"count_%d" % self.image_number)])
        if self.edit:
            plan = self.edit(bytearray(plan))
        slots = self.slots or [(0, wire.PROCESS, PROCESS_OFFSET), (self.map, self.kind, MAP_OFFSET)]
        reply = wire.message(wire.IMAGE_REPLY, module, len(plan), 1, len(slots), 0, 0, b"", sequence=sequence)
        if not self.send(connection, "plan", [(reply, [wire.memfd(plan)])]):
            return False
        self.most_plans = max(self.most_plans, self.steps["plan"] - self.seen(wire.UNLOAD))
        return all(
            self.send(connection, "plan-slot", [(wire.message(wire.SLOT, module, map_id, kind, offset, b"", sequence=sequence), [])])
            for map_id, kind, offset in slots
        )
