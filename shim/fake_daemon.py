# SPDX-License-Identifier: Apache-2.0
"""A daemon for tests of the shim, which answers as a script says: rightly, late, with garbage, not at all.

A script is a dict: step -> function(connection, answer). The steps are "welcome", "image", "slot", "instance"; answer is a list of
(bytes, descriptors) that the right daemon would send, and what the function returns is sent instead (None: hang up). "silent": never read. The right answer to PTX is the same PTX, with a counter of threads at
every ret: in a buffer that a pointer leads to (form "pointer"), or in the module itself (form "resident")."""
import array
import ctypes
import fcntl
import mmap
import os
import re
import shutil
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests/e2e"))
import wire  # noqa: E402

PAGE_MAGIC, MAP_MAGIC, EVERYONE, CLOSED = 0x49525047, 0x4d525047, 1, 2
DATA_OFFSET, DATA_SIZE = 4096, 4096
MAP = 77
INSTANCE_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def page(flags=EVERYONE, deadline_ms=2000, generation=2, magic=PAGE_MAGIC, version=1, rules=()):
    data = struct.pack("<IIQIIII", magic, version, generation, flags, deadline_ms, len(rules), 0)
    for rule in rules:
        data += struct.pack("<IIII16sQ", *rule)
    return data.ljust(4096, b"\0")


def folder_of(name):
    user = f"/run/user/{os.getuid()}"
    return f"{user}/gpuprobe-{name}" if os.path.isdir(user) else f"/tmp/gpuprobe-{os.getuid()}-{name}"


def probe(ptx, form):
    """A counter of threads in every kernel, in the first 8 bytes of the map."""
    if form == "pointer":
        variable = ".visible .global .align 8 .u64 gpuprobe_map;\n"
        count = ("{ .reg .pred %gp; .reg .b64 %ga;\nld.global.u64 %ga, [gpuprobe_map];\nsetp.eq.u64 %gp, %ga, 0;\n"
                 "@%gp bra GPUPROBE_NONE;\nred.global.add.u64 [%ga], 1;\nGPUPROBE_NONE:\n}\n")
    else:
        variable = f".visible .global .align 128 .b8 gpuprobe_map[{DATA_SIZE}];\n"
        count = "{ .reg .b64 %ga;\nmov.u64 %ga, gpuprobe_map;\nred.global.add.u64 [%ga], 1;\n}\n"
    text = ptx.decode()
    text = re.sub(r"(\.address_size 64\n)", lambda m: m.group(1) + variable, text, count=1)
    return re.sub(r"\n\tret;", lambda m: "\n" + count + "\tret;", text).encode()


class FakeDaemon:
    def __init__(self, name, script=None, form="pointer", period_ms=50, deadline_ms=2000, flags=EVERYONE, text=None, listen=True):
        self.name, self.script, self.form, self.period_ms, self.deadline_ms = name, script or {}, form, period_ms, deadline_ms
        self.folder = folder_of(name)
        shutil.rmtree(self.folder, ignore_errors=True)
        os.mkdir(self.folder, 0o700)
        os.chmod(self.folder, 0o700)
        self.write_page(text if text is not None else page(flags, deadline_ms))
        self.messages, self.instances, self.connections, self.module, self.steps = [], [], [], 0, {}
        self.lock = threading.Lock()
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
            answer = self.script[step](connection, answer)
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
            return self.send(connection, "welcome", [(wire.message(wire.WELCOME, self.deadline_ms, self.period_ms, sequence=sequence), [])])
        if kind == wire.IMAGE:
            image = os.pread(fd, fields[0], 0)
            os.close(fd)
            return self.answer_image(connection, image, sequence)
        if kind == wire.INSTANCE:
            return self.answer_instance(connection, fields[0], sequence)
        return True

    def answer_image(self, connection, image, sequence):
        with self.lock:
            self.module += 1
            module = self.module
        new = probe(image, self.form)
        reply = wire.message(wire.IMAGE_REPLY, module, len(new), 1, 1, b"", sequence=sequence)
        if not self.send(connection, "image", [(reply, [wire.memfd(new)])]):
            return False
        return self.send(connection, "slot", [(wire.message(wire.SLOT, module, MAP, b"gpuprobe_map", sequence=sequence), [])])

    def answer_instance(self, connection, map_id, sequence):
        fd = os.memfd_create("instance", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, DATA_OFFSET + DATA_SIZE)
        memory = mmap.mmap(fd, DATA_OFFSET + DATA_SIZE)
        with self.lock:
            self.instances.append(memory)
            number = len(self.instances)
        struct.pack_into("<IIQQIIIIIIQQQ", memory, 0, MAP_MAGIC, 1, map_id, number, 2, 4, 8, 512, 1, 1, 8, 4096, DATA_SIZE)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, INSTANCE_SEALS)
        reply = wire.message(wire.INSTANCE_REPLY, map_id, number, DATA_OFFSET + DATA_SIZE, DATA_SIZE, sequence=sequence)
        return self.send(connection, "instance", [(reply, [fd])])

    def count(self):
        """The sum over the instances."""
        return sum(struct.unpack_from("<Q", memory, DATA_OFFSET)[0] for memory in self.instances)

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
