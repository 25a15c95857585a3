# SPDX-License-Identifier: Apache-2.0
"""A daemon for tests of the shim, which answers as a script says: rightly, late, with garbage, not at all.

A script is a dict: step -> function(connection, answer). The steps are "welcome", "image", "slot", "instance"; answer is a list of
(bytes, descriptors) that the right daemon would send, and what the function returns is sent instead (None: hang up). "silent": never
read. The right answer to PTX is the same PTX, with a counter of threads at every ret, in one of the forms of FORMS: what a slot is,
and where the map's memory."""

import array
import ctypes
import fcntl
import itertools
import mmap
import os
import re
import select
import shutil
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tests/e2e"))
import wire  # noqa: E402

PAGE_MAGIC, EVERYONE, CLOSED = 0x49525047, 1, 2
DATA_OFFSET, DATA_SIZE = 4096, 4096
RINGS, RING_SIZE, COOKIE = 4, 16384, 0x1122334455667788
PID, COMM = 4242, b"as the daemon "
MAP = 77
INSTANCE_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


RULE = "<IIII16sQQ"
TRACES = 32 + (54 + 16) * struct.calcsize(RULE)  # where the page speaks of traces


generations = itertools.count(1000, 2)


def page(flags=EVERYONE, deadline_ms=2000, generation=None, magic=PAGE_MAGIC, version=4, rules=(), trace_generation=2, trace_rules=()):
    """Without a generation: one above those of all pages before, as daemons have it."""
    generation = next(generations) if generation is None else generation
    data = struct.pack("<IIQIIII", magic, version, generation, flags, deadline_ms, len(rules), 0)
    data += b"".join(struct.pack(RULE, *rule, 0) for rule in rules)
    data = data.ljust(TRACES, b"\0") + struct.pack("<QII", trace_generation, len(trace_rules), 0)
    return (data + b"".join(struct.pack(RULE, *rule, 0) for rule in trace_rules)).ljust(4096, b"\0")


def folder_of(name):
    user = f"/run/user/{os.getuid()}"
    return f"{user}/gpuprobe-{name}" if os.path.isdir(user) else f"/tmp/gpuprobe-{os.getuid()}-{name}"


def through(load, code):
    """Code that uses the map's address in %ga, where there is one."""
    return "{ .reg .pred %gp; .reg .b64 %ga; .reg .b64 %gx<5>;\n" + load + "setp.eq.u64 %gp, %ga, 0;\n@%gp bra GPUPROBE_NONE;\n" + code + "GPUPROBE_NONE:\n}\n"


LOAD, LOAD_CONST = (f"ld.{space}.u64 %ga, [gpuprobe_map];\n" for space in ("global", "const"))
POINTER, POINTER_CONST = (f".visible .{space} .align 8 .u64 gpuprobe_map{value};\n" for space, value in (("global", ""), ("const", " = 0")))
COUNT = "red.global.add.u64 [%ga], 1;\n"
# in the third ring: what is written in the control block, beside the consumer's tail, and in the ring
COUNT_RING = (
    "ld.global.u64 %gx0, [%ga+280];\nsetp.eq.u64 %gp, %gx0, 0;\n@%gp bra GPUPROBE_NONE;\nld.global.u64 %gx1, [%ga+288];\n"
    "atom.global.add.u64 %gx2, [%ga+312], 1;\nred.global.add.u64 [%gx1+8], 1;\nand.b64 %gx3, %gx2, 2047;\n"
    "shl.b64 %gx3, %gx3, 3;\nadd.u64 %gx3, %gx3, %gx0;\nst.global.u64 [%gx3], %gx2;\n"
)
COUNT_PROCESS = COUNT + "".join(f"ld.const.u64 %gx0, [__gpuprobe_process+{n}];\nst.global.u64 [%ga+{8 + n}], %gx0;\n" for n in range(0, 64, 8))
PROCESS = ".visible .const .align 8 .b8 __gpuprobe_process[64];\n"
SLOT, PROCESS_SLOT = (MAP, wire.POINTER, b"gpuprobe_map"), (0, wire.PROCESS, b"__gpuprobe_process")
# form: (variables, code at ret, slots, place of the instance (one for all maps, or by map), kind of the map)
FORMS = {
    "pointer": (POINTER, through(LOAD, COUNT), [SLOT], wire.DEVICE, wire.ARRAY),
    "const": (POINTER_CONST, through(LOAD_CONST, COUNT), [SLOT], wire.DEVICE, wire.ARRAY),
    "resident": (
        f".visible .global .align 128 .b8 gpuprobe_map[{DATA_SIZE}];\n",
        "{ .reg .b64 %ga;\nmov.u64 %ga, gpuprobe_map;\nred.global.add.u64 [%ga], 1;\n}\n",
        [(MAP, wire.DATA, b"gpuprobe_map")],
        wire.DEVICE,
        wire.ARRAY,
    ),
    "host": (POINTER_CONST, through(LOAD_CONST, COUNT), [SLOT], wire.HOST, wire.ARRAY),
    "kernel": (POINTER_CONST, through(LOAD_CONST, COUNT), [SLOT], wire.KERNEL, wire.ARRAY),
    "ring": (POINTER_CONST, through(LOAD_CONST, COUNT_RING), [SLOT], wire.DEVICE, wire.RING),
    "two": (
        POINTER_CONST + POINTER_CONST.replace("gpuprobe_map", "gpuprobe_other"),
        through(LOAD_CONST, COUNT) + through(LOAD_CONST.replace("gpuprobe_map", "gpuprobe_other"), COUNT).replace("GPUPROBE_NONE", "GPUPROBE_NO_OTHER"),
        [SLOT, (MAP + 1, wire.POINTER, b"gpuprobe_other")],
        {MAP: wire.HOST, MAP + 1: wire.DEVICE},
        wire.ARRAY,
    ),
    "process": (PROCESS + POINTER_CONST, through(LOAD_CONST, COUNT_PROCESS), [PROCESS_SLOT, SLOT], wire.DEVICE, wire.ARRAY),
}


def probe(ptx, form):
    """A counter of threads in every kernel."""
    variables, count = FORMS[form][:2]
    text = ptx.decode()
    text = re.sub(r"(\.address_size 64\n)", lambda m: m.group(1) + variables, text, count=1)
    return re.sub(r"\n\tret;", lambda m: "\n" + count + "\tret;", text).encode()


def twin(text):
    """PTX as the image of a twin (proto/twin.h) that uses no variable of its original; the text ends with a NUL, and the table follows."""
    text += b"\n" if len(text) % 8 == 0 else b""
    return text.ljust((len(text) + 7) // 8 * 8, b"\0") + struct.pack("<IIIIII", 0x54525047, 2, 0, 0, 0, 0)


def kernel_array():
    """The descriptor of a BPF array that can be mapped; where the kernel gives none, a sealed memfd stands for it."""
    attributes = struct.pack("<IIIII", 2, 4, 8, DATA_SIZE // 8, 1 << 10).ljust(128, b"\0")
    fd = ctypes.CDLL(None).syscall({"x86_64": 321, "aarch64": 280}[os.uname().machine], 0, attributes, len(attributes))
    if fd >= 0:
        return fd
    fd = os.memfd_create("instance", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, DATA_SIZE)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, INSTANCE_SEALS)
    return fd


def instance_memory(map_id, number, place, kind):
    """(descriptor, size, size of the data) of an instance, as the daemon makes it."""
    if place == wire.KERNEL:
        return kernel_array(), DATA_SIZE, DATA_SIZE
    host_size, data_size = (4096 + RINGS * RING_SIZE, RINGS * 128) if kind == wire.RING else (0, DATA_SIZE)
    size = DATA_OFFSET + 4096 + host_size if host_size else DATA_OFFSET + data_size
    fd = os.memfd_create("instance", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    rings = (RINGS, RING_SIZE) if host_size else (0, 0)
    layout = (kind, place, 0 if host_size or place else 1, 1, 0, rings[0], 8, DATA_SIZE, 0, 0, rings[1], data_size, host_size)
    os.pwrite(fd, struct.pack(wire.HEADER, wire.MAP_MAGIC, wire.LAYOUT_VERSION, map_id, number, 2, 4, 8, 512, *layout, 0, 0, 0, 0), 0)
    for ring in range(rings[0]):
        os.pwrite(fd, struct.pack("<Q", COOKIE + ring), DATA_OFFSET + ring * 128 + 48)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, INSTANCE_SEALS)
    return fd, size, data_size


class FakeDaemon:
    by_name = {}

    def __init__(self, name, script=None, form="pointer", period_ms=50, deadline_ms=2000, flags=EVERYONE, text=None, listen=True):
        self.name, self.script, self.form, self.period_ms, self.deadline_ms = name, script or {}, form, period_ms, deadline_ms
        self.folder = folder_of(name)
        shutil.rmtree(self.folder, ignore_errors=True)
        os.mkdir(self.folder, 0o700)
        os.chmod(self.folder, 0o700)
        self.write_page(text if text is not None else page(flags, deadline_ms))
        self.messages, self.instances, self.connections, self.module, self.steps, self.roles = [], [], [], 0, {}, {}
        self.gone = set()  # maps of which there is no memory any more
        self.scripted = set()  # connections for which the script says what is answered
        self.lock = threading.Lock()
        self.by_name[name] = self
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        if listen:
            self.listener.bind(os.path.join(self.folder, "shim.sock"))
            self.listener.listen(64)
            threading.Thread(target=self.accept, daemon=True).start()

    def write_page(self, data):
        with open(os.path.join(self.folder, "interest.new"), "wb") as file:
            file.write(data)
        os.rename(os.path.join(self.folder, "interest.new"), os.path.join(self.folder, "interest"))

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.stop()

    def stop(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        self.hang_up()
        shutil.rmtree(self.folder, ignore_errors=True)

    def settle(self):
        """What processes said that have ended is read, on a busy machine also; but for what comes behind a script that sleeps."""
        limit = time.monotonic() + 5
        while time.monotonic() < limit and (
            self.listener.fileno() >= 0
            and select.select([self.listener], [], [], 0)[0]
            or not self.script.get("silent")
            and any(c.fileno() >= 0 and c not in self.scripted for c in self.connections)
        ):
            time.sleep(0.005)

    def hang_up(self):
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            if not self.script.get("silent"):
                threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        try:
            while self.one(connection):
                pass
        except OSError:
            pass
        connection.close()

    def send(self, connection, step, answer):
        if step in self.script:
            self.scripted.add(connection)
            answer = self.script[step](connection, answer)
            self.scripted.discard(connection)
        if answer is None:
            return False
        for data, fds in answer:
            connection.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])
            for fd in set(fds):
                os.close(fd)
        with self.lock:
            self.steps[step] = self.steps.get(step, 0) + 1
        return True

    def one(self, connection):
        data, ancillary, _, _ = connection.recvmsg(4096, socket.CMSG_SPACE(16))
        if not data:
            return False
        fd = next((array.array("i", payload[:4])[0] for _, _, payload in ancillary), None)
        _, _, kind, _, sequence = struct.unpack_from("<IHHII", data)
        fields = struct.unpack_from(wire.BODIES[kind], data, 16)
        with self.lock:
            self.messages.append((kind, fields))
        if kind == wire.HELLO:
            self.roles[connection] = fields[0]
            return self.send(connection, "welcome", [(wire.message(wire.WELCOME, self.deadline_ms, self.period_ms, PID, 0, COMM, 0, sequence=sequence), [])])
        if kind == wire.IMAGE:
            image = os.pread(fd, fields[0], 0)
            os.close(fd)
            return self.one_image(connection, fields, image, sequence)
        if kind == wire.INSTANCE:
            return self.answer_instance(connection, fields[0], sequence)
        if kind == wire.TRACE:
            return self.answer_trace(connection, sequence)
        return self.answer_other(connection, kind, fields, sequence)

    def answer_other(self, connection, kind, fields, sequence):
        """What no daemon gets that is the first of its session; test-resume.py has others."""
        return True

    def answer_trace(self, connection, sequence):
        """Nobody traces; fake_trace.py has a daemon where somebody does."""
        return self.send(connection, "trace", [(wire.message(wire.TRACE_REPLY, 0, sequence=sequence), [])])

    def one_image(self, connection, fields, image, sequence):
        return self.answer_image(connection, image, sequence)

    def answer_image(self, connection, image, sequence):
        with self.lock:
            self.module += 1
            module = self.module
        new = twin(probe(image, self.form))
        slots = FORMS[self.form][2]
        reply = wire.message(wire.IMAGE_REPLY, module, len(new), 1, len(slots), 0, 0, b"", sequence=sequence)
        if not self.send(connection, "image", [(reply, [wire.memfd(new)])]):
            return False
        return all(
            self.send(connection, "slot", [(wire.message(wire.SLOT, module, map_id, kind, 0, symbol, sequence=sequence), [])]) for map_id, kind, symbol in slots
        )

    def answer_instance(self, connection, map_id, sequence):
        if map_id in self.gone:
            return self.send(connection, "instance", [(wire.message(wire.INSTANCE_REPLY, map_id, 0, 0, 0, 0, 0, sequence=sequence), [])])
        place, kind = FORMS[self.form][3:]
        place = place[map_id] if isinstance(place, dict) else place
        with self.lock:
            number = len(self.instances) + 1
            fd, size, data_size = instance_memory(map_id, number, place, kind)
            self.instances.append(mmap.mmap(fd, size))
        reply = wire.message(wire.INSTANCE_REPLY, map_id, number, size, data_size, place, kind, sequence=sequence)
        return self.send(connection, "instance", [(reply, [fd])])

    def values(self, offset=0):
        """The u64 at that place of the data of each instance."""
        start = 0 if FORMS[self.form][3] == wire.KERNEL else DATA_OFFSET
        return [struct.unpack_from("<Q", memory, start + offset)[0] for memory in self.instances]

    def count(self):
        """The sum over the instances: of a ring, what the GPU wrote into host memory itself."""
        return sum(self.values(4096 + 2 * 64 + 8 if self.form == "ring" else 0))

    def reports(self):
        with self.lock:
            return [fields[1].rstrip(b"\0").decode() for kind, fields in self.messages if kind == wire.REPORT]

    def connected(self, number):
        """Whether so many connections were welcomed."""
        with self.lock:
            return self.steps.get("welcome", 0) == number

    def seen(self, kind):
        with self.lock:
            return sum(1 for one, _ in self.messages if one == kind)


def unsealed(answer):
    """The same with a memfd that can still change."""
    data, fds = answer[0]
    fd = os.memfd_create("unsealed", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, os.pread(fds[0], os.fstat(fds[0]).st_size, 0))
    os.close(fds[0])
    return [(data, [fd])]
