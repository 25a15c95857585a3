#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Daemons that are late, broken or hostile: the program prints and returns what it does bare, within the deadline."""

import os
import struct
import time

import fake_daemon
import wire
from fake_daemon import page, unsealed
from target_runs import SANITIZED, as_bare, end, report, run, session, within

DEADLINE = 0.4
MARGIN = 1.5
LOADS = ["s-unload"]  # four good loads


def header(change):
    """The right answer with its header changed: offsets 0 magic, 4 version, 6 type, 8 size, 12 sequence."""

    def answer(_, messages):
        data = bytearray(messages[0][0])
        change(data)
        return [(bytes(data), messages[0][1]), *messages[1:]]

    return answer


def field(form, offset, value):
    return header(lambda data: struct.pack_into(form, data, offset, value))


def resized(extra):
    def answer(_, messages):
        data, fds = messages[0]
        return [(data[:extra] if extra < 0 else data + b"\0" * extra, fds)]

    return answer


def descriptors(count):
    def answer(_, messages):
        data, fds = messages[0]
        return [(data, fds[:1] * count if fds else [os.open("/dev/null", os.O_RDONLY) for _ in range(count)])]

    return answer


def image(contents):
    """Another image than the right one, properly sealed."""

    def answer(_, messages):
        data, fds = messages[0]
        for fd in fds:
            os.close(fd)
        data = bytearray(data)
        struct.pack_into("<Q", data, 24, len(contents))
        return [(bytes(data), [wire.memfd(contents)])]

    return answer


def instance_file(size, seals=fake_daemon.INSTANCE_SEALS):
    def answer(_, messages):
        data, fds = messages[0]
        for fd in fds:
            os.close(fd)
        return [(data, [wire.memfd(b"\0" * size, seals)])]

    return answer


def late(connection, answer):
    time.sleep(DEADLINE * 3)
    return answer


def never(connection, answer):
    time.sleep(30)
    return None


def twice(connection, answer):
    return [answer[0][:1] + ([],), *answer] if not answer[0][1] else [(answer[0][0], [os.dup(fd) for fd in answer[0][1]]), *answer]


def elf(section_offset, count, size=64):
    data = bytearray(64 + 64 * 4)
    data[:5] = b"\x7fELF\x02"
    struct.pack_into("<QQ", data, 32, section_offset, section_offset)
    struct.pack_into("<HHHHHH", data, 52, 64, 56, count, size, count, 0)
    return bytes(data)


def steps():
    for step in ("welcome", "image", "slot", "instance"):
        yield f"{step}: hangs up", {step: lambda connection, answer: None}
        yield f"{step}: late", {step: late}
        yield f"{step}: never", {step: never}
        yield f"{step}: wrong magic", {step: field("<I", 0, 0x12345678)}
        yield f"{step}: wrong version", {step: field("<H", 4, 9)}
        yield f"{step}: type of another", {step: field("<H", 6, wire.SYNC)}
        yield f"{step}: unknown type", {step: field("<H", 6, 999)}
        yield f"{step}: wrong size field", {step: field("<I", 8, 1 << 31)}
        yield f"{step}: another sequence", {step: field("<I", 12, 0xDEAD)}
        yield f"{step}: cut short", {step: resized(-4)}
        yield f"{step}: too long", {step: resized(4)}
        yield f"{step}: 5000 bytes", {step: resized(5000)}
        yield f"{step}: empty", {step: lambda connection, answer: [(b"", [])]}
        yield f"{step}: noise", {step: lambda connection, answer: [(os.urandom(len(answer[0][0])), [])]}
        yield f"{step}: two descriptors", {step: descriptors(2)}
        yield f"{step}: nine descriptors", {step: descriptors(9)}
        yield f"{step}: twice", {step: twice}
    yield "image: no descriptor", {"image": descriptors(0)}
    yield "image: unsealed", {"image": lambda connection, answer: unsealed(answer)}
    yield "image: size 0", {"image": field("<Q", 24, 0)}
    yield "image: size of another", {"image": field("<Q", 24, 1 << 40)}
    yield "image: module 0", {"image": field("<Q", 16, 0)}
    yield "image: verdict unknown", {"image": field("<I", 32, 7)}
    yield "image: own, with a descriptor", {"image": field("<I", 32, 0)}
    yield "image: 4 billion slots", {"image": field("<I", 36, 0xFFFFFFFF)}
    yield "image: 257 slots", {"image": field("<I", 36, 257)}
    yield "image: more slots than come", {"image": field("<I", 36, 5)}
    yield "image: not PTX", {"image": image(b"\x01\x02\x03" * 5000)}
    yield "image: text without an end, one page", {"image": image(b"x" * 4096)}
    yield "image: text without an end, 4 pages", {"image": image(b"/" * 16384)}
    yield "image: a wrapper", {"image": image(struct.pack("<IIQQ", 0x466243B1, 1, 0x1000, 0).ljust(4096, b"\0"))}
    yield "image: a wrapper that could be text", {"image": image(struct.pack("<IIQQ", 0x466243B1, 0, 0x7878787878787878, 0).ljust(4096, b"\0"))}
    yield "image: container of 1 TiB", {"image": image(struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 40).ljust(4096, b"\0"))}
    yield "image: container without a header", {"image": image(struct.pack("<IHHQ", 0xBA55ED50, 1, 0, 100).ljust(4096, b"\0"))}
    yield "image: container, longer than it is", {"image": image(struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 20).ljust(4096, b"\0"))}
    for offset, count in ((64, 4), (1 << 30, 60000), ((1 << 64) - 64, 2), (3, 4), (64, 0)):
        yield f"image: ELF {offset:#x} {count}", {"image": image(elf(offset, count))}
    yield "image: one byte", {"image": image(b"x")}
    yield "slot: of another module", {"slot": field("<Q", 16, 12345)}
    yield "slot: a name without an end", {"slot": header(lambda data: data.__setitem__(slice(40, 104), b"x" * 64))}
    yield "slot: a name that is not there", {"slot": header(lambda data: data.__setitem__(slice(40, 104), b"nothing".ljust(64, b"\0")))}
    yield "instance: no descriptor", {"instance": descriptors(0)}
    yield (
        "instance: refused",
        {
            "instance": lambda connection, answer: [
                (wire.message(wire.INSTANCE_REPLY, fake_daemon.MAP, 1, 0, 0, 0, 0, sequence=struct.unpack_from("<I", answer[0][0], 12)[0]), [])
            ]
        },
    )
    yield "instance: of another map", {"instance": field("<Q", 16, 999)}
    yield "instance: 1 TiB", {"instance": field("<Q", 32, 1 << 40)}
    yield "instance: data of 1 TiB", {"instance": field("<Q", 40, 1 << 40)}
    yield "instance: data of 0 bytes", {"instance": field("<Q", 40, 0)}
    yield "instance: zeros", {"instance": instance_file(8192)}
    yield "instance: too small", {"instance": instance_file(4096)}
    yield "instance: unsealed", {"instance": instance_file(8192, 0)}
    yield "never reads", {"silent": True}


BARE = run(LOADS, preload=())
for number, (label, script) in enumerate(steps()):
    for form in ("pointer", "resident"):
        with fake_daemon.FakeDaemon(session(f"a{number}{form}"), script, form=form, deadline_ms=int(DEADLINE * 1000)) as daemon:
            ours = run(LOADS, GPUPROBE_SESSION=daemon.name)
            asked = len(daemon.messages) > 0 or script.get("silent")
            if as_bare(f"{label}, {form}", BARE, ours, DEADLINE + MARGIN):
                report(f"{label}, {form}", asked, "the daemon was not asked: the test tests nothing")


def pages():
    yield "empty page", b""
    yield "short page", page()[:100]
    yield "wrong magic", page(magic=1)
    yield "wrong version", page(version=1)
    yield "closed", page(flags=fake_daemon.EVERYONE | fake_daemon.CLOSED)
    yield "nobody is meant", page(flags=0)
    yield "being written for ever", page(generation=3)
    yield "absurd count of rules", page(flags=0)[:24] + struct.pack("<I", 0xFFFFFFFF) + page(flags=0)[28:]
    yield "no time", page(deadline_ms=0)
    yield "noise", os.urandom(4096)


for number, (label, text) in enumerate(pages()):
    with fake_daemon.FakeDaemon(session(f"p{number}"), text=text) as daemon:
        if as_bare(f"page: {label}", BARE, run(LOADS, GPUPROBE_SESSION=daemon.name), MARGIN):
            wanted = label in ("being written for ever", "absurd count of rules")
            report(f"page: {label}", (len(daemon.messages) > 0) == wanted, f"{len(daemon.messages)} messages")
with fake_daemon.FakeDaemon(session("nobody"), listen=False) as daemon:  # left by a daemon that was killed
    if as_bare("nobody listens", BARE, run(LOADS, GPUPROBE_SESSION=daemon.name), MARGIN):
        report("nobody listens", True)


with fake_daemon.FakeDaemon(session("size")) as daemon:
    run(LOADS, GPUPROBE_SESSION=daemon.name)
    sizes = [fields[0] for kind, fields in daemon.messages if kind == wire.IMAGE]
# a memfd is a file, and what is past the limit a signal; sanitizers have files of their own
for limit in () if SANITIZED else (max(sizes), min(sizes) - 1, 0):
    with fake_daemon.FakeDaemon(session("limit")) as daemon:
        if as_bare(f"files of {limit} bytes", BARE, run(LOADS, file_size=limit, GPUPROBE_SESSION=daemon.name)):
            seen = sum(size <= limit for size in sizes)
            told = within(lambda: sum("ulimit -f" in reason for reason in daemon.reports()) == len(sizes) - seen)
            report(f"files of {limit} bytes", told and daemon.seen(wire.IMAGE) == seen, f"{daemon.messages}")


def folders():
    yield "open to others", lambda daemon: os.chmod(daemon.folder, 0o755)
    if os.getuid() == 0:
        yield "of another user", lambda daemon: os.chown(daemon.folder, 65534, 65534)
    yield "a link", lambda daemon: (os.rename(daemon.folder, daemon.folder + "_"), os.symlink(daemon.folder + "_", daemon.folder))
    yield "its page a link", lambda daemon: (os.rename(daemon.folder + "/interest", daemon.folder + "/real"), os.symlink("real", daemon.folder + "/interest"))


for number, (label, spoil) in enumerate(folders()):
    daemon = fake_daemon.FakeDaemon(session(f"f{number}"))
    spoil(daemon)
    ours = run(LOADS, GPUPROBE_SESSION=daemon.name)
    if as_bare(f"folder: {label}", BARE, ours, MARGIN):
        report(f"folder: {label}", not daemon.messages, "the daemon was asked")
    if os.path.islink(daemon.folder):
        os.unlink(daemon.folder)
        os.rename(daemon.folder + "_", daemon.folder)
    daemon.stop()
for name in ("../../tmp/x", "a/b", "x" * 33, "a.b"):
    if as_bare(f"session name {name}", BARE, run(LOADS, GPUPROBE_SESSION=name), MARGIN):
        report(f"session name {name}", True)
end()
