#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Another user does everything to the sockets that he can, as fast as he can, while a process asks for an image that is known and an instance, again and
again. It is answered all the time (the longest wait is printed), and in the end the daemon has as many descriptors as before.
"""

import ctypes
import fcntl
import itertools
import multiprocessing
import os
import signal
import socket
import statistics
import tempfile
import threading
import time

from harness import COUNTER, CTL, GPUPROBED, SOURCE, Daemon, check, equal, main, need, wait_until
from varlink import Connection
from wire import AWAITED, FATBIN, HELLO, IMAGE, INSTANCE, LOADER, MIRROR, NAMES, PTX, REPORT, SEALS, Closed, Shim, memfd, message

need(GPUPROBED, CTL, COUNTER)
with open(f"{SOURCE}/tests/targets/vec_add.ptx", "rb") as ptx:
    VEC_ADD_PTX = ptx.read()
FIELDS = 9, 0, 0, 0  # capability, device, reserved
ATTACK_SECONDS = 0.7
WAIT_MAX = 2  # generous: a busy machine; 0.1 is the aim
KEPT_MAX = 40  # peers: a process may have 64
GIB = 1 << 30


class Other:
    """Connections that are made while it lasts are another user's."""

    def __enter__(self):
        if os.getuid() == 0:
            os.seteuid(65534)
            ctypes.CDLL(None).setfsuid(0)  # who may go into the folder
        return self

    def __exit__(self, *_):
        if os.getuid() == 0:
            os.seteuid(0)


def connect(daemon, **more):
    with Other():
        return Shim(daemon.directory, **more)


def load(shim, data):
    fd = memfd(data)
    shim.send(message(IMAGE, len(data), PTX, AWAITED, *FIELDS), fd)
    os.close(fd)


def ask(directory, stop, pipe):
    """The process that others must not delay: how long each answer took, and how long those for which a worker compiles, one in 16."""
    waits, compiled = [], []
    for n in itertools.count():
        if stop.is_set():
            break
        is_new = n % 16 == 8
        shim = Shim(directory, timeout=60)
        start = time.monotonic()
        new, module, reason, slots = shim.image(VEC_ADD_PTX + (b"\n// mine %d\n" % n if is_new else b""))
        check(new and slots, reason)
        fd, *_ = shim.instance(slots[0][0])
        (compiled if is_new else waits).append(time.monotonic() - start)
        os.close(fd)
        shim.close()
        time.sleep(0.002)
    pipe.send((waits, compiled))


class Victim:
    def __init__(self, daemon):
        self.stop = multiprocessing.Event()
        self.pipe, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=ask, args=(daemon.directory, self.stop, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.join()

    def end(self):
        self.stop.set()
        check(self.pipe.poll(90), "another process gets no answer")
        return self.pipe.recv()


def descriptors(daemon):
    return len(os.listdir(f"/proc/{daemon.process.pid}/fd"))


def rss(daemon):
    with open(f"/proc/{daemon.process.pid}/status") as status:
        return {line.split(":")[0]: int(line.split()[1]) for line in status if line.startswith(("RssAnon", "RssShmem"))}


def under(attack, *options):
    """The attack over and over for a while, with a fresh daemon. attack(daemon) does one round; what it returns is kept open meanwhile."""
    with Daemon(*options) as daemon:
        before, memory = descriptors(daemon), rss(daemon)
        daemon.attach("--kernel", "vectorAdd")
        first = Shim(daemon.directory)
        check(first.image(VEC_ADD_PTX)[0], "an image")
        first.close()
        rounds, kept, end = 0, [], time.monotonic() + ATTACK_SECONDS
        with Victim(daemon) as victim:
            while time.monotonic() < end or not rounds:
                kept += attack(daemon) or []
                rounds += 1
                while len(kept) > KEPT_MAX:
                    kept.pop(0).close()
            most = descriptors(daemon)
            waits, compiled = victim.end()
        for peer in kept:
            peer.close()
        print(
            f"       {attack.__name__}: {rounds} rounds; {len(waits)} answers, median {1000 * statistics.median(waits):.1f} ms, longest "
            f"{1000 * max(waits):.1f} ms, longest of {len(compiled)} that were compiled {1000 * max(compiled, default=0):.1f} ms; at most {most} descriptors, {sum(rss(daemon).values()) - sum(memory.values()):+d} kB"
        )
        check(max(waits) < WAIT_MAX, "another process waited for", max(waits), "s")
        check(len(waits) > 2, "answers", len(waits))
        last = Shim(daemon.directory)
        check(last.image(VEC_ADD_PTX)[0], "afterwards")
        last.close()
        daemon.ctl("detach", str(daemon.attachments()[0]["id"]))  # images that are kept for it go, too
        wait_until(lambda: descriptors(daemon) <= before, f"descriptors are as before ({before})", 30)


def breach(shim, data, *fds):
    """What must end the connection."""
    try:
        shim.send(data, *fds)
        check(shim.closed(), "not refused:", data[:24])
    except Closed:
        pass
    shim.close()


def test_malformed():
    def malformed(daemon):
        breach(connect(daemon, hello=False), b"")
        breach(connect(daemon, hello=False), b"x")
        breach(connect(daemon), os.urandom(64))
        breach(connect(daemon), bytes(200000))
        breach(connect(daemon), message(IMAGE, 1, PTX, AWAITED, *FIELDS)[:-4])

    under(malformed)


def test_slow():
    """A byte at a time is a datagram that is too short here; and there are those who say nothing, nothing but HELLO, or half of a varlink call."""

    def slow(daemon):
        silent = [connect(daemon, hello=False), connect(daemon), connect(daemon, role=MIRROR)]
        breach(connect(daemon, hello=False), message(HELLO, LOADER, 0, b"")[:1])
        with Other():
            control = Connection(daemon.directory)
        for byte in b'{"method"':
            control.socket.sendall(bytes([byte]))
            time.sleep(0.002)
        return [*silent, control]

    under(slow)


def test_connections():
    """As many as one user may have, and more."""
    if os.getuid():
        print("not root: no other user")
        return

    def connections(daemon):
        held = []
        for _ in range(300):
            with Other():
                peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                peer.connect(f"{daemon.directory}/shim.sock")  # waits while the queue of the listening socket is full
                peer.settimeout(10)
            held.append(peer)
        for peer in held:
            peer.close()

    under(connections)


def test_stuffed():
    """As many descriptors in a message as the kernel takes, of memfds, sockets, and the connection itself."""

    def stuffed(daemon):
        fd = memfd(VEC_ADD_PTX)
        pair = socket.socketpair()
        image = message(IMAGE, len(VEC_ADD_PTX), PTX, AWAITED, *FIELDS)
        for fds in [fd] * 253, [pair[0].fileno()] * 253, [fd] * 17, [fd] * 2:
            breach(connect(daemon), image, *fds)
            breach(connect(daemon), bytes(100), *fds)
        shim = connect(daemon)
        breach(shim, image, *[shim.socket.fileno()] * 253)
        late = connect(daemon, hello=False)
        try:
            for _ in range(20):
                late.send(message(REPORT, 1, b"x"), *[fd] * 253)
        except Closed:
            pass
        late.close()
        os.close(fd)
        for end in pair:
            end.close()

    under(stuffed)


def large(size, seals=SEALS):
    """A memfd without contents."""
    fd = os.memfd_create("large", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def strange(size):
    """What is no sealed memfd, though some of it looks like one."""
    yield large(size, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    yield large(size, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | 0x10)  # F_SEAL_FUTURE_WRITE: whoever maps it already still writes
    yield large(size, fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
    for end in socket.socketpair():
        yield end.detach()
    yield from os.pipe()
    yield os.open("/", os.O_RDONLY)
    yield os.open("/", os.O_PATH)
    yield os.open("/dev/zero", os.O_RDWR)
    yield os.open("/proc/self/maps", os.O_RDONLY)
    yield os.eventfd(1)
    with tempfile.TemporaryFile() as file:
        file.write(bytes(size))
        file.flush()
        yield os.dup(file.fileno())
    secret = ctypes.CDLL(None).syscall(447, 0)  # memfd_secret
    if secret >= 0:
        os.ftruncate(secret, size)
        yield secret


def test_strange_descriptors():
    def strange_descriptors(daemon):
        size = len(VEC_ADD_PTX)
        for fd in strange(size):
            breach(connect(daemon), message(IMAGE, size, PTX, AWAITED, *FIELDS), fd)
            os.close(fd)

    under(strange_descriptors)


def test_that_shrink():
    """Memfds that somebody tries to change from when they are sent until the answer is there: either they were refused, or it does not work."""

    def that_shrink(daemon):
        fd = os.memfd_create("shrinks", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        data = VEC_ADD_PTX + bytes(1 << 16)
        os.write(fd, data)
        shim = connect(daemon)
        done = threading.Event()

        def change():
            while not done.is_set():
                for size in 0, len(data):
                    try:
                        os.ftruncate(fd, size)
                    except PermissionError:
                        pass

        changer = threading.Thread(target=change)
        changer.start()
        try:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
            shim.send(message(IMAGE, os.fstat(fd).st_size or 1, PTX, AWAITED, *FIELDS), fd)
            shim.image_reply()
        except Closed:
            pass
        done.set()
        changer.join()
        shim.close()
        os.close(fd)

    under(that_shrink)


def test_huge():
    """The largest images that there may be, without contents; and one of huge pages that the machine does not have."""

    def huge(daemon):
        shims = []
        for kind in PTX, FATBIN:
            fd = large(GIB)
            shims.append(connect(daemon, timeout=60))
            shims[-1].send(message(IMAGE, GIB, kind, AWAITED, *FIELDS), fd)
            os.close(fd)
        breach(connect(daemon), message(IMAGE, GIB + 1, PTX, AWAITED, *FIELDS), shims[0].socket.fileno())
        breach(connect(daemon), message(IMAGE, GIB, NAMES, 0, *FIELDS), shims[0].socket.fileno())
        for shim in shims:
            check(shim.image_reply()[0] is None, "a twin")
            shim.close()
        fd = os.memfd_create("pages", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | os.MFD_HUGETLB)
        os.ftruncate(fd, 2 << 20)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
        shim = connect(daemon)
        shim.send(message(IMAGE, 2 << 20, PTX, AWAITED, *FIELDS), fd)
        os.close(fd)
        try:
            check(shim.image_reply()[0] is None, "a twin")
        except Closed:
            pass
        shim.close()

    under(huge)
    with tempfile.TemporaryDirectory(prefix="e2e-hostile-") as folder:
        under(huge, f"--cache-dir={folder}")


def test_endless():
    """Messages without a pause by some who read nothing; images, each another one, by others."""

    def endless(daemon):
        peers = []
        for _ in range(5):
            shim = connect(daemon)
            shim.socket.setblocking(False)
            peers.append(shim)
        for n in range(400):
            for shim in peers:
                try:
                    shim.send(message(INSTANCE, n, 0, 0) if n % 2 else message(REPORT, 1, b"endless"))
                except (BlockingIOError, Closed):
                    pass
        return peers

    under(endless)


def test_unread():
    """Requests whose answers have descriptors, and nobody reads."""

    def unread(daemon):
        shim = connect(daemon)
        shim.image(VEC_ADD_PTX)
        shim.socket.setblocking(False)
        fd = memfd(VEC_ADD_PTX)
        try:
            for _ in range(1000):
                shim.send(message(IMAGE, len(VEC_ADD_PTX), PTX, AWAITED, *FIELDS), fd)
        except (BlockingIOError, Closed):
            pass
        os.close(fd)
        return [shim]

    under(unread)


def test_images():
    """As many as one user may have in work, each another one."""
    if os.getuid():
        print("not root: no other user")
        return
    numbers = iter(range(1000000))

    def images(daemon):
        shims = [connect(daemon, timeout=60) for _ in range(40)]
        for shim in shims:
            load(shim, VEC_ADD_PTX + b"\n// %d\n" % next(numbers))
        for shim in shims:
            shim.image_reply()
            shim.close()

    under(images)


def image_workers(daemon):
    """Their process ids."""
    found = []
    for pid in daemon.children():
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as line:
                found += [pid] * line.read().split(b"\0")[0].endswith(b"gpuprobe-image-worker")
        except OSError:
            pass  # it has ended
    return found


def test_held_workers():
    """Images of another user for which workers need forever, as many as there are workers: others do not wait till these are given up."""
    if os.getuid():
        print("not root: no other user")
        return
    with Daemon("--workers=2", "--deadline-ms=30000") as daemon:
        daemon.attach("--kernel", "vectorAdd")
        wait_until(lambda: len(image_workers(daemon)) == 2, "two workers")
        held = image_workers(daemon)
        for pid in held:
            os.kill(pid, signal.SIGSTOP)
        others = [connect(daemon, timeout=60) for _ in range(3)]
        for n, shim in enumerate(others):
            load(shim, VEC_ADD_PTX + b"\n// held %d\n" % n)
        wait_until(lambda: any(row["value"] == 2 for row in daemon.status()["statistics"] if (row["name"], row.get("of")) == ("working", "image")), "both work")
        start = time.monotonic()
        shim = Shim(daemon.directory, timeout=60)
        check(shim.image(VEC_ADD_PTX)[0], "an image")
        waited = time.monotonic() - start
        print(f"       held_workers: answered after {1000 * waited:.1f} ms")
        check(waited < WAIT_MAX, "another process waited for", waited, "s")
        check(set(held) <= set(image_workers(daemon)), "the others' workers are there")
        for pid in held:
            os.kill(pid, signal.SIGCONT)
        for other in others:
            check(other.image_reply()[0], "the others are answered, too")
            other.close()
        wait_until(lambda: len(image_workers(daemon)) == 2, "two workers again")
        shim.close()


def test_control():
    """Calls on the other socket that are too long, without an end, deep, or whose answers nobody reads."""

    def control(daemon):
        held = []
        for data in (
            b"x" * 1000,
            b"\0" * 1000,
            b"[" * 100000 + b"\0",
            b'{"method":"' + b"a" * 1000000 + b'"}\0',
            b" " * (17 << 20),
            b'{"method":"io.gpuprobe.control.Status"}\0' * 5000,
        ):
            with Other():
                peer = Connection(daemon.directory, timeout=1)
            peer.socket.setblocking(False)
            try:
                peer.socket.send(data)
                peer.socket.send(data)
            except OSError:
                pass
            held.append(peer)
        time.sleep(0.02)
        for peer in held:
            peer.close()

    under(control)


if __name__ == "__main__":
    main([value for name, value in list(globals().items()) if name.startswith("test_")])
