#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What users do to the service itself: its memory, its verifier, its traces, its log, and its end."""

import base64
import contextlib
import fcntl
import os
import re
import select
import signal
import time

from configured import Configured
from harness import BUILD, COUNTER, CTL, GPUPROBED, SOURCE, Daemon, as_user, check, equal, main, need, wait_until
from tracing import Trace
from varlink import Connection, VarlinkError
from wire import AWAITED, CUBIN, FATBIN, IMAGE, NAMES, PTX, SEALS, Closed, Shim, message

SLOW = f"{BUILD}/tests/e2e/objects/slow60.bpf.o"
need(GPUPROBED, CTL, COUNTER, SLOW)
MIB = 1 << 20
USERS = 101001, 101002, 101003
with open(f"{SOURCE}/tests/targets/vec_add.ptx", "rb") as ptx_file:
    VEC_ADD = ptx_file.read()


def encoded(path):
    with open(path, "rb") as file:
        return base64.b64encode(file.read()).decode()


# ---- memory ----


def sparse(size, *pieces, flags=0):
    """A sealed memfd with some bytes at some places."""
    fd = os.memfd_create("sparse", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | flags)
    os.ftruncate(fd, size)
    for at, data in pieces:
        os.pwrite(fd, data, at)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    return fd


def test_holes():
    """Images with holes are refused, and get no memory by being looked at: it would be the service's, as long as the sender keeps them."""
    elf = b"\x7fELF\x02\x01\x01" + bytes(9)
    images = (
        (PTX, 64 * MIB, (0, VEC_ADD)),
        (PTX, 3 * 4096, (0, VEC_ADD[:4096]), (8192, b"x" * 4096)),
        (FATBIN, 64 * MIB),
        (CUBIN, 16 * MIB, (0, elf)),
        (PTX, 4096),
    )
    for engine, lists in ("ptx", images), ("sanitizer", ((NAMES, 8 * MIB),)):
        with Daemon(f"--engine={engine}") as daemon:
            daemon.attach()
            shim = Shim(daemon.directory, timeout=60)
            for kind, size, *pieces in lists:
                fd = sparse(size, *pieces)
                before = os.fstat(fd).st_blocks
                shim.send(message(IMAGE, size, kind, 0, 9, 0, 0, 0), fd)
                equal(shim.image_reply()[2], "the image has holes: bytes that are in no memory", (kind, size))
                equal(os.fstat(fd).st_blocks, before, f"blocks of kind {kind}, {size} bytes")
                os.close(fd)
            if engine == "ptx":
                new, _, reason, _ = shim.image(VEC_ADD)
                check(new, reason)
            shim.close()


def test_huge_pages():
    """Of these the kernel does not tell which are there."""
    try:
        fd = sparse(2 * MIB, flags=os.MFD_HUGETLB)
    except OSError as error:
        print(f"no huge pages here: {error}")
        return
    with Daemon() as daemon:
        daemon.attach()
        shim = Shim(daemon.directory)
        try:
            shim.send(message(IMAGE, 2 * MIB, PTX, AWAITED, 9, 0, 0, 0), fd)
            check(shim.closed(), "not refused")
        except Closed:
            pass


# ---- the verifier ----


def kernel_ticks(pid):
    """What threads but the main one have worked in the kernel so far."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/task/{thread}/stat") as file:
            total += int(file.read().rpartition(")")[2].split()[12]) * (int(thread) != pid)
    return total


def verifies(pid, seconds=0.3):
    before = kernel_ticks(pid)
    time.sleep(seconds)
    return kernel_ticks(pid) > before


def can_verify(daemon):
    status = daemon.status()
    if os.geteuid() or status["verify"] != "on" or status["missing"]:
        print("not root, or nothing can be verified")
        return False
    return True


def begin_slow(daemon, users):
    """Attaches that take minutes to verify."""
    buses = []
    for uid in users:
        with as_user(uid):
            buses.append(Connection(daemon.directory, timeout=120))
        buses[-1].send("Attach", object=encoded(SLOW))
    wait_until(lambda: kernel_ticks(daemon.process.pid) > 50, "the verifier works", 60)
    return buses


def test_verifier_is_shared():
    """Two users who have much to be verified do not keep a third one from having his, nor root; and what nobody waits for any more ends."""
    with Daemon("--user-attach=yes") as daemon:
        if not can_verify(daemon):
            return
        buses = begin_slow(daemon, USERS[:2])
        for uid in USERS[2], 0:
            with as_user(uid):
                bus = Connection(daemon.directory, timeout=120)
            equal(len(bus.call("Attach", object=encoded(COUNTER))["attachments"]), 1)
            bus.close()
        equal(select.select([bus.socket for bus in buses], [], [], 0)[0], [], "attaches that were waited for")
        for bus in buses:
            bus.close()
        wait_until(lambda: not verifies(daemon.process.pid), "the verifier ends", 30)
        equal(len(daemon.attachments()), 2)


def test_verifier_and_stop():
    """A stop does not wait for the verifier: harness.Daemon.stop() gives it 15 seconds, the verifier takes minutes."""
    for number in signal.SIGTERM, signal.SIGUSR1:
        with Daemon("--user-attach=yes") as daemon:
            if not can_verify(daemon):
                return
            buses = begin_slow(daemon, USERS)
            daemon.process.send_signal(number)
            equal(daemon.process.wait(timeout=15), 0, daemon.text())
            for bus in buses:
                bus.close()


# ---- shares ----


def test_traces_are_shared():
    if os.geteuid():
        print("not root: no other user")
        return
    held = []

    def trace(uid):
        with as_user(uid):
            bus = Connection(daemon.directory, timeout=60)
        bus.send("Trace", more=True, sources=["shim"])
        try:
            bus.receive()
        except VarlinkError as error:
            bus.close()
            return error.parameters["what"]
        held.append(bus)
        return None

    with Daemon() as daemon:
        for uid in USERS[:2]:
            while not trace(uid):
                pass
        equal(trace(USERS[0]), "traces of all users (the last are for users who have none, and for root)")
        equal(trace(USERS[2]), None, "a user who has none")
        equal(trace(0), None, "root")
        for bus in held:
            bus.close()


# ---- the log ----


def test_trace_lines():
    """A user who begins traces all the time has some lines of the log, and one that says how many were left out. Who sees what others do, and who attaches, is named each time."""
    if os.geteuid():
        print("not root: no other user")
        return
    with Daemon("--user-attach=yes", "--verify=off") as daemon:
        began = {}
        for uid in USERS[0], 0:
            for _ in range(40):
                with as_user(uid):
                    bus = Connection(daemon.directory, timeout=60)
                bus.send("Trace", more=True, sources=["shim"])
                with contextlib.suppress(VarlinkError):
                    bus.receive()
                    began[uid] = began.get(uid, 0) + 1
                bus.close()
        with as_user(USERS[0]):
            bus = Connection(daemon.directory, timeout=60)
        for _ in range(12):
            (attachment,) = bus.call("Attach", object=encoded(COUNTER))["attachments"]
            bus.call("Detach", id=attachment["id"])
        bus.close()
        daemon.stop()
        lines = daemon.text()
        for what in "entry of vectorAdd", "detached":
            equal(len(re.findall(rf"attachment \d+: .*{what}, by uid {USERS[0]}\n", lines)), 12, what)
        equal(len(re.findall(r"trace: began, by uid 0\n", lines)), began[0], "of root")
        written = len(re.findall(rf"trace: began, by uid {USERS[0]}\n", lines))
        check(0 < written <= 10 < began[USERS[0]], written, began)
        check(f"trace: began, by uid {USERS[0]}: {began[USERS[0]] - written} more such lines were left out" in lines, lines)


# ---- images that NVIDIA's compiler dies of ----


def test_compiler_dies():
    """So does the worker, and nothing else: the program has its own code, and the next one is served."""
    with Daemon() as daemon:
        daemon.attach("--kernel", "*")
        shim = Shim(daemon.directory, timeout=60)
        for name in sorted(os.listdir(f"{SOURCE}/tests/e2e/ptx")):
            with open(f"{SOURCE}/tests/e2e/ptx/{name}", "rb") as file:
                new, _, reason, _ = shim.image(file.read())
            print(f"{name}: {reason or 'compiled'}")
            check(new is None and "worker" in reason, name, reason)
            new, _, reason, slots = shim.image(VEC_ADD + f"\n// after {name}\n".encode())
            check(new and slots, f"after {name}:", reason)
        shim.close()


# ---- the end ----


def test_signals_while_it_stops():
    """One more signal does not kill a daemon that stops, so it leaves nothing behind."""
    for first, more in (
        (signal.SIGTERM, signal.SIGTERM),
        (signal.SIGTERM, signal.SIGINT),
        (signal.SIGINT, signal.SIGUSR1),
        (signal.SIGTERM, signal.SIGHUP),
        (signal.SIGUSR1, signal.SIGUSR1),
    ):
        with Configured("") as daemon:
            daemon.attach()
            daemon.process.send_signal(first)
            while daemon.process.poll() is None:
                daemon.process.send_signal(more)
            equal(daemon.process.returncode, 0, f"{first.name}, then {more.name}: {daemon.text()}")
            check(not os.path.exists(daemon.directory), f"{first.name}, then {more.name}: {daemon.directory} is left behind")


def test_hangup():
    """The terminal of a session goes away: the daemon ends in good order, but under nohup. (With a file it reads that again: test-config.py.)"""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # this test may run under nohup itself
    with Daemon() as daemon:
        daemon.attach()
        daemon.process.send_signal(signal.SIGHUP)
        equal(daemon.process.wait(timeout=15), 0, daemon.text())
        check("stops: SIGHUP" in daemon.text(), daemon.text())
        check(not os.path.exists(daemon.directory), daemon.directory, "is left behind")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Daemon() as daemon, open(f"/proc/{daemon.process.pid}/status", encoding="ascii") as status:
            ignored = int(re.search(r"^SigIgn:\s*(\w+)", status.read(), re.M)[1], 16)
            check(ignored & 1 << (signal.SIGHUP - 1), f"SIGHUP is not ignored: {ignored:x}")
    finally:
        signal.signal(signal.SIGHUP, before)


if __name__ == "__main__":
    main([value for name, value in list(globals().items()) if name.startswith("test_")])
