# SPDX-License-Identifier: Apache-2.0
"""Traces from Python: records (proto/trace.h) and a ring's producer (proto/trace-ring.h), a traced process without CUDA."""

import base64
import mmap
import os
import struct
import threading
import time

from varlink import Connection
from wire import TRACE, TRACE_REPLY, TRACER, Shim, message

START, PROCESS, THREAD, NAME, CALL, IOCTL, EVENT, KERNEL, CLOCK, LOST, STACK, STOP = range(1, 13)
DAEMON, SHIM, BPF, GPU = range(4)
SEEN, FORK, EXEC, EXIT = range(4)
FUNCTION_NAME, KERNEL_NAME, HOOK_NAME = 1, 2, 3
DYNAMIC = 3072
MAGIC, RING_MAGIC = 0x43525447, 0x52525447
EXTRAS, TIMES, ERRORS, STACKS = 1, 2, 4, 8  # flags of a ring


class Record:
    """One record; what it has depends on its kind."""

    def __init__(self, data):
        self.size, self.kind, self.source, self.flags = struct.unpack_from("<IHBB", data)
        read = getattr(self, f"read_{self.kind}", None)
        if read:
            read(data)

    def __repr__(self):
        return f"<{self.__dict__}>"

    def read_1(self, data):
        self.magic, self.version, self.monotonic, self.realtime = struct.unpack_from("<IIQQ", data, 8)
        self.host, self.driver, self.daemon = (text(data[at : at + n]) for at, n in ((32, 64), (96, 32), (128, 32)))

    def read_2(self, data):
        self.time, self.pid, self.parent, self.uid, self.what, self.status = struct.unpack_from("<QIIIIi", data, 8)
        self.comm, self.exe = text(data[40:56]), text(data[56:])

    def read_3(self, data):
        self.pid, self.tid = struct.unpack_from("<II", data, 8)
        self.comm = text(data[16:32])

    def read_4(self, data):
        self.pid, self.name_kind, self.id = struct.unpack_from("<IIQ", data, 8)
        self.name = text(data[24:])

    def read_5(self, data):
        (self.start, self.end, self.pid, self.tid, self.sequence, self.result, self.function, n_arguments, n_extras, self.stack) = struct.unpack_from(
            "<QQIIIiHBBI", data, 8
        )
        self.words = struct.unpack_from(f"<{n_arguments}Q", data, 48)
        self.extras, at = {}, 48 + 8 * n_arguments
        for _ in range(n_extras):
            argument, when, size = struct.unpack_from("<BBH", data, at)
            self.extras[argument, when] = data[at + 8 : at + 8 + size]
            at += 8 + (size + 7) // 8 * 8
        assert at == len(data), (at, len(data))

    def read_8(self, data):
        (self.start, self.end, self.pid, self.tid, self.sequence, self.device, self.context, self.stream, self.function, self.error) = struct.unpack_from(
            "<QQIIIIQQQI", data, 8
        )

    def read_9(self, data):
        self.pid, self.device, self.gpu_time, self.host_time, self.drift, self.error = struct.unpack_from("<IIQQqQ", data, 8)

    def read_10(self, data):
        self.time, self.pid, self.tid, self.count = struct.unpack_from("<QIIQ", data, 8)

    def read_11(self, data):
        self.id, n = struct.unpack_from("<II", data, 8)
        self.addresses = struct.unpack_from(f"<{n}Q", data, 16)
        self.frames = [frame.decode() for frame in data[16 + 8 * n :].split(b"\0")[:n]]

    def read_12(self, data):
        self.time, self.records, self.lost = struct.unpack_from("<QQQ", data, 8)


def text(data):
    return data.split(b"\0", 1)[0].decode()


def records(data):
    at = 0
    while at < len(data):
        size = struct.unpack_from("<I", data, at)[0]
        assert size >= 8 and size % 8 == 0 and at + size <= len(data), (at, size, len(data))
        yield Record(data[at : at + size])
        at += size


class Trace:
    """A call of Trace. It returns when everything is attached; then a thread reads until the end, unless reads is false."""

    def __init__(self, directory, reads=True, **parameters):
        self.bus = Connection(directory, timeout=60)
        self.records, self.replies, self.over, self.error = [], 0, False, None
        self.bus.send("Trace", more=True, **parameters)
        self.later = []  # lines of `missing` of replies behind the first one
        self.missing = self.read().get("missing")
        self.later.clear()
        self.thread = threading.Thread(target=self.follow, daemon=True)
        if reads:
            self.thread.start()

    def read(self):
        reply, more = self.bus.receive()
        self.records.extend(records(base64.b64decode(reply["records"], validate=True)))
        self.later.extend(reply.get("missing", []))
        self.replies += 1
        self.over = not more
        return reply

    def follow(self):
        try:
            while not self.over:
                self.read()
        except (ConnectionError, OSError) as error:
            self.error = error

    def close(self):
        self.bus.socket.shutdown(2)
        if self.thread.is_alive():
            self.thread.join()
        self.bus.close()

    def end(self, timeout=30):
        """Waits for the end of the trace, by its duration or by that of its processes; checks what is true of all."""
        if self.thread.ident is None:
            self.thread.start()
        self.thread.join(timeout)
        assert self.over, ("the trace does not end", self.error)
        self.bus.close()
        assert [r.kind for r in self.records if r.kind in (START, STOP)] == [START, STOP] and self.records[0].kind == START
        stop = self.records[-1]
        assert stop.kind == STOP and stop.records == len(self.records) - 1, (stop, len(self.records))
        assert stop.lost == sum(r.count for r in self.of(LOST)), stop
        return self.records

    def of(self, kind, **values):
        return [r for r in list(self.records) if r.kind == kind and all(getattr(r, key) == value for key, value in values.items())]


class Producer:
    """The process's side of its ring: asks for it as the shim does, and writes records."""

    def __init__(self, directory):
        self.shim = Shim(directory, role=TRACER)
        self.map = None
        self.ask()

    def ask(self):
        self.shim.send(message(TRACE, 0, 0))
        kind, (size,), fd = self.shim.receive()
        assert kind == TRACE_REPLY, kind
        self.size = size
        if not size:
            assert fd is None
            return
        assert os.fstat(fd).st_size == size
        self.map = self.map or mmap.mmap(fd, size)
        self.numbers = memoryview(self.map).cast("Q")  # one store each; struct writes byte by byte, which the daemon would see
        self.numbers[80 // 8] = 1  # it is taken
        os.close(fd)
        (
            magic,
            version,
            self.enabled,
            self.flags,
            self.clock,
            self.slot_count,
            self.slot_bytes,
            self.stride,
            self.slots,
            self.min_duration,
            self.sample,
            self.heartbeat,
        ) = struct.unpack_from("<8I4Q", self.map)
        assert (magic, version) == (RING_MAGIC, 2)

    def wants(self, function):
        return bool(self.map[104 + function // 8] >> function % 8 & 1)

    def is_enabled(self):
        return struct.unpack_from("<I", self.map, 8)[0] != 0

    def close(self):
        self.shim.close()

    def now(self):
        """Of the ring's clock. There is no rdtsc here, so tests take rings of CLOCK_MONOTONIC, or times relative to the heartbeat."""
        return time.monotonic_ns()

    # a slot's fields: state, tid; head, lost; tail
    def slot(self, i):
        return self.slots + i * self.stride

    def claim(self, i=0, tid=None):
        struct.pack_into("<II", self.map, self.slot(i), 1, tid or threading.get_native_id())

    def leave(self, i=0):
        struct.pack_into("<I", self.map, self.slot(i), 2)

    def state(self, i=0):
        return struct.unpack_from("<I", self.map, self.slot(i))[0]

    def head(self, i=0):
        return self.numbers[self.slot(i) // 8 + 1]

    def tail(self, i=0):
        return self.numbers[self.slot(i) // 8 + 8]

    def set_head(self, head, i=0):
        self.numbers[self.slot(i) // 8 + 1] = head

    def set_lost(self, lost, i=0):
        self.numbers[self.slot(i) // 8 + 2] = lost

    def write(self, record, i=0):
        """One record, padded; False: there is no room."""
        head, at = self.head(i), self.slot(i) + 128
        place = head % self.slot_bytes
        pad = self.slot_bytes - place if self.slot_bytes - place < len(record) else 0
        if head + pad + len(record) - self.tail(i) > self.slot_bytes:
            return False
        if pad:
            struct.pack_into("<HBBI", self.map, at + place, pad, 0, 0, 0)
            place = 0
        self.map[at + place : at + place + len(record)] = record
        self.set_head(head + pad + len(record), i)
        return True


def call(function, start, end, words=(), extras=(), result=0, sequence=0, flags=0):
    """A TRACE_RING_CALL. extras: (argument, when, bytes)."""
    body = struct.pack(f"<{len(words)}Q", *words)
    for argument, when, data in extras:
        body += struct.pack("<BBHI", argument, when, len(data), 0) + data + bytes(-len(data) % 8)
    return struct.pack("<HBBIQQiHBB", 32 + len(body), 1, flags, sequence, start, end, result, function, len(words), len(extras)) + body


def name(kind, number, value):
    data = value.encode() + b"\0"
    data += bytes(-len(data) % 8)
    return struct.pack("<HBBIIIQ", 24 + len(data), 2, 0, 0, kind, 0, number) + data


def kernel(sequence, tid, device, start, end, context=1, stream=0, function=0, error=0):
    return struct.pack("<HBBIIIQQQQQII", 64, 3, 0, sequence, tid, device, start, end, context, stream, function, error, 0)


def clock_pair(device, gpu, before, after):
    return struct.pack("<HBBIIIQQQ", 40, 4, 0, 0, device, 0, gpu, before, after)
