# SPDX-License-Identifier: Apache-2.0
"""The shim wire protocol (proto/wire.h) from Python: a shim without CUDA, for tests of the daemon."""
import array
import fcntl
import os
import socket
import struct

MAGIC, VERSION = 0x57525047, 6
HELLO, IMAGE, INSTANCE, ARMED, UNLOAD, REPORT, SYNCED, TRACE, RESUME, KEEP = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
WELCOME, IMAGE_REPLY, SLOT, INSTANCE_REPLY, SYNC, DISARM, RETIRE, TRACE_REPLY, RESUMED, KEPT = 64, 65, 66, 67, 68, 69, 70, 71, 72, 73
IDS, IDS_MAX = 128, 24
LOADER, MIRROR, TRACER = 1, 2, 3
FATBIN, PTX, CUBIN, NAMES = 1, 2, 3, 4
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
BODIES = {
    HELLO: "<II32s", IMAGE: "<QIIIIII", INSTANCE: "<QII", ARMED: "<QII", UNLOAD: "<Q", REPORT: "<Q192s", SYNCED: "<",
    WELCOME: "<IIII16sQ", IMAGE_REPLY: "<QQIIII192s", SLOT: "<QQII64s", INSTANCE_REPLY: "<QQQQII", SYNC: "<", DISARM: "<Q", RETIRE: "<Q", TRACE: "<II", TRACE_REPLY: "<Q",
    IDS: "<QII24Q", RESUME: "<QIIII", RESUMED: "<QII", KEEP: "<QQ", KEPT: "<QQII",
}
POINTER, DATA, PROCESS, REGION = 1, 2, 3, 4  # kinds of slots
DEVICE, HOST, KERNEL = 0, 1, 2  # places of instances
ARRAY, THREADS, HASH, RING = 0, 1, 2, 3  # kinds of maps
# struct map_header (proto/map-layout.h): magic, version, map, instance, type, key, value, entries; kind, place, merge, shards, threads,
# rings; value_stride, shard_stride, entry_stride, capacity, ring_size, data_size, host_size; sequence, mirrored_ns, state, reserved
HEADER = "<IIQQIIII" "IIIIII" "QQQQQQQ" "QQII"
MAP_MAGIC, LAYOUT_VERSION, DATA_OFFSET = 0x4d525047, 3, 4096


def message(kind, *fields, sequence=1, magic=MAGIC, version=VERSION, size=None):
    body = struct.pack(BODIES[kind], *fields)
    return struct.pack("<IHHII", magic, version, kind, 16 + len(body) if size is None else size, sequence) + body


def names(*modules):
    """A list of names (proto/patch.h): modules are (number, module_id, names)."""
    result = b""
    for number, module_id, kernels in modules:
        text = b"".join(kernel.encode() + b"\0" for kernel in kernels)
        text += bytes(-len(text) % 8)
        result += struct.pack("<IIQII", 24 + len(text), number, module_id, len(kernels), 0) + text
    return result


class Plan:
    """The answer to it: functions for classes of instructions, and the kernels that are meant, (module, name, kernel id, attachments)."""
    def __init__(self, data):
        (magic, version, size, image, image_size, self.image_id, points, point_count, kernels, kernel_count, self.data_size,
         reserved) = struct.unpack_from("<IIQQQQIIIIII", data)
        assert (magic, version, size, reserved) == (0x50525047, 1, len(data), 0) and image + image_size <= size and self.image_id
        self.image = data[image:image + image_size]
        self.points = {struct.unpack_from("<I", data, points + 64 * n)[0]: data[points + 64 * n + 8:points + 64 * n + 64].rstrip(b"\0").decode()
                       for n in range(point_count)}
        self.kernels = [struct.unpack_from("<IIQQ", data, kernels + 24 * n) for n in range(kernel_count)]


def memfd(data, seals=SEALS, size=0):
    """With data, and nothing behind it up to a size."""
    fd = os.memfd_create("image", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    os.ftruncate(fd, max(size, len(data)))
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


class Closed(Exception):
    pass


class Shim:
    def __init__(self, directory, role=LOADER, hello=True, timeout=10):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        self.socket.settimeout(timeout)
        self.socket.connect(os.path.join(directory, "shim.sock"))
        if hello:
            self.send(message(HELLO, role, 13000, b"test"))
            kind, fields, _ = self.receive()
            assert kind == WELCOME, kind
            self.deadline_ms, self.period_ms, self.pid, self.start, self.comm, self.session = fields

    def close(self):
        self.socket.close()

    def send(self, data, *fds):
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            self.socket.sendmsg([data], ancillary)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed from error

    def receive(self):
        """One message: its type, its fields, and a descriptor or None."""
        try:
            data, ancillary, _, _ = self.socket.recvmsg(4096, socket.CMSG_SPACE(4 * 4))
        except (ConnectionResetError, BrokenPipeError) as error:
            raise Closed from error
        fd = None
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fd = array.array("i", payload[:4])[0]
        if not data:
            raise Closed
        magic, version, kind, size, self.sequence = struct.unpack_from("<IHHII", data)
        assert (magic, version, size) == (MAGIC, VERSION, len(data)), data
        return kind, struct.unpack_from(BODIES[kind], data, 16), fd

    def image(self, data, kind=PTX, capability=(9, 0), device=0, sequence=7):
        """Sends an image. (bytes or None, module id, reason, [(map, symbol, kind)])."""
        fd = memfd(data)
        self.send(message(IMAGE, len(data), kind, 0, *capability, device, 0, sequence=sequence), fd)
        os.close(fd)
        return self.image_reply()

    def image_reply(self):
        kind, (module, size, verdict, slots, attachments, _, reason), fd = self.receive()
        assert kind == IMAGE_REPLY, kind
        found = []
        for _ in range(slots):
            kind, (slot_module, map_id, slot_kind, _, symbol), _ = self.receive()
            assert kind == SLOT and slot_module == module
            found.append((map_id, symbol.rstrip(b"\0").decode(), slot_kind))
        self.attachments = []
        while len(self.attachments) < attachments:
            kind, (ids_module, count, _, *ids), _ = self.receive()
            assert kind == IDS and ids_module == module and count == min(IDS_MAX, attachments - len(self.attachments)) and not any(ids[count:])
            self.attachments += ids[:count]
        new = None
        if verdict:
            assert os.fstat(fd).st_size == size and fcntl.fcntl(fd, fcntl.F_GET_SEALS) & SEALS == SEALS
            new = os.pread(fd, size, 0)
        if fd is not None:
            os.close(fd)
        return new, module, reason.rstrip(b"\0").decode(), found

    def instance(self, map_id, device=0):
        """Asks for an instance: (descriptor or None, its size, size of its data); where it is and of which kind are in place and kind."""
        self.send(message(INSTANCE, map_id, device, 0))
        kind, (reply_map, instance, size, data_size, self.place, self.kind), fd = self.receive()
        assert kind == INSTANCE_REPLY and reply_map == map_id and instance
        self.instance_id = instance
        return fd, size, data_size

    def resume(self, module, attachments, maps, flags=1):
        """Whether the daemon knows the module."""
        ids = [*attachments, *maps]
        self.send(message(RESUME, module, len(attachments), len(maps), flags, 0))
        for at in range(0, len(ids), IDS_MAX):
            some = ids[at:at + IDS_MAX]
            self.send(message(IDS, module, len(some), 0, *some, *[0] * (IDS_MAX - len(some))))
        kind, (reply_module, known, _), _ = self.receive()
        assert kind == RESUMED and reply_module == module
        return bool(known)

    def keep(self, map_id, instance):
        """Whether the daemon has the instance."""
        self.send(message(KEEP, map_id, instance))
        kind, (reply_map, reply_instance, known, _), _ = self.receive()
        assert kind == KEPT and (reply_map, reply_instance) == (map_id, instance)
        return bool(known)

    def closed(self):
        """Whether the daemon has hung up."""
        try:
            self.receive()
        except Closed:
            return True
        return False
