# SPDX-License-Identifier: Apache-2.0
"""Records of proto/trace.h, for tests. A trace is b''.join() of them."""

import pathlib
import re
import struct

START, PROCESS, THREAD, NAME, CALL, IOCTL, EVENT, KERNEL, CLOCK, LOST, STACK, STOP = range(1, 13)
CTXSW, NOTE = 13, 14
DAEMON, SHIM, BPF, GPU = range(4)
FUNCTION_NAME, KERNEL_NAME, HOOK_NAME, LIBRARY_NAME = range(1, 5)
BEGINNING = 1_000_000_000_000  # CLOCK_MONOTONIC; times below are since then
REALTIME = 1_700_000_000_000_000_000
_text = (pathlib.Path(__file__).resolve().parents[2] / "proto/functions.txt").read_text()
FUNCTIONS = {name: int(number) for number, name in re.findall(r"^(\d+) \w+ (\w+)\(", _text, re.M)}


def pad(data):
    return data + bytes(-len(data) % 8)


def record(kind, body, source=DAEMON, flags=0):
    body = pad(body)
    return struct.pack("<IHBB", 8 + len(body), kind, source, flags) + body


def start(version=1, magic=0x43525447, driver=b"580.159.04"):
    return record(START, struct.pack("<IIQQ64s32s32s", magic, version, BEGINNING, REALTIME, b"host", driver, b"0.1.0"))


def process(pid, time=0, what=0, status=0, parent=1, uid=0, comm=b"python", exe=b"/usr/bin/python3"):
    return record(PROCESS, struct.pack("<QIIIIiI16s", BEGINNING + time, pid, parent, uid, what, status, 0, comm) + exe)


def thread(pid, tid, comm):
    return record(THREAD, struct.pack("<II16s", pid, tid, comm))


def name(kind, number, text, pid=0):
    return record(NAME, struct.pack("<IIQ", pid, kind, number) + text)


def call(function, begin, end, words=(), result=0, pid=10, tid=10, sequence=0, extras=(), flags=0, source=SHIM, stack=0):
    """extras: (argument, when, bytes). function: its name or number."""
    number = FUNCTIONS.get(function, function)
    body = struct.pack(
        f"<QQIIIiHBBI{len(words)}Q", BEGINNING + begin, BEGINNING + end, pid, tid, sequence, result, number, len(words), len(extras), stack, *words
    )
    for argument, when, data in extras:
        body += struct.pack("<BBHI", argument, when, len(data), 0) + pad(data)
    return record(CALL, body, source, flags)


def ioctl(command, begin, end, result=0, pid=10, tid=10, device=1, before=b"", after=b"", inner=b"", flags=0):
    return record(
        IOCTL,
        struct.pack("<QQIIIiBBHHHII", BEGINNING + begin, BEGINNING + end, pid, tid, command, result, device, 0, len(before), len(after), len(inner), 0, 0)
        + pad(before)
        + pad(after)
        + pad(inner),
        BPF,
        flags,
    )


def event(hook, begin, end, words=(), text=b"", result=0, pid=10, tid=10, cpu=0, flags=0):
    return record(
        EVENT,
        struct.pack(f"<QQIIIIqBBHI{len(words)}Q", BEGINNING + begin, BEGINNING + end, pid, tid, cpu, hook, result, len(words), len(pad(text)), 0, 0, *words)
        + pad(text),
        BPF,
        flags,
    )


def ctxsw(begin, end, pid=10, device=0, context=0x35, error=0, began=6, ended=7, preemption=0, instances=(255, 255), sequence=0, comm=b"", flags=0):
    """Of the GPU's contexts; tags by number."""
    return record(
        CTXSW,
        struct.pack(
            "<QQIIIIBBBBBBH16s", BEGINNING + begin, BEGINNING + end, pid, device, context, error, began, ended, preemption, 0, *instances, sequence, comm
        ),
        GPU,
        flags,
    )


def kernel(begin, end, sequence=0, function=0, pid=10, tid=10, stream=0, device=0, error=0):
    return record(KERNEL, struct.pack("<QQIIIIQQQII", BEGINNING + begin, BEGINNING + end, pid, tid, sequence, device, 0, stream, function, error, 0), GPU)


def clock(time, gpu, pid=10, device=0, drift=0, error=0):
    return record(CLOCK, struct.pack("<IIQQqQ", pid, device, gpu, BEGINNING + time, drift, error), GPU)


def lost(count, time=0, pid=0, tid=0, source=SHIM, flags=0):
    return record(LOST, struct.pack("<QIIQ", BEGINNING + time, pid, tid, count), source, flags)


def unknown_ends(count, time=0, pid=10):
    return lost(count, time, pid, source=GPU, flags=1)


def note(text, time=0, pid=10):
    return record(NOTE, struct.pack("<QII", BEGINNING + time, pid, 0) + text, SHIM)


def stack(number, frames):
    return record(STACK, struct.pack(f"<II{len(frames)}Q", number, len(frames), *range(len(frames))) + b"".join(frame + b"\0" for frame in frames))


def stop(time=0, records=0, total_lost=0):
    return record(STOP, struct.pack("<QQQ", BEGINNING + time, records, total_lost))
