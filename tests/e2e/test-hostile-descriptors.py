#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Descriptors as a weapon: what the daemon has in flight to who does not read, and descriptors whose last close() waits (a TCP socket that lingers, a
file of a FUSE server that does not answer): the daemon answers others meanwhile.
"""

import base64
import contextlib
import errno
import itertools
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import fuse
from harness import CTL, COUNTER, GPUPROBED, SOURCE, Daemon, Failed, check, equal, main, need, wait_until
from varlink import Connection
from wire import AWAITED, HELLO, IMAGE, INSTANCE, LOADER, PTX, Shim, memfd, message

need(GPUPROBED, CTL, COUNTER)
with open(f"{SOURCE}/tests/targets/vec_add.ptx", "rb") as ptx:
    VEC_ADD_PTX = ptx.read()
LINGERS = 30  # seconds; who waits for it has no answer in time
ANSWERS = 10
USER = 61234  # nobody else's
IN_FLIGHT_MAX = 12  # descriptors for one connection
GREETING = message(HELLO, LOADER, 13000, b"test")
FIELDS = 9, 0, 0, 0  # capability, device, reserved


def lingering():
    """A socket whose last close() takes LINGERS, and its other end, which reads nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    near.setblocking(False)
    try:
        while True:
            near.send(bytes(1 << 16))
    except BlockingIOError:
        pass
    near.setblocking(True)
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGERS))
    return near, far


def dial(daemon, *first):
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.connect(f"{daemon.directory}/shim.sock")
    for data in first:
        peer.send(data)
    return peer


def call(daemon, *first):
    peer = Connection(daemon.directory).socket
    for data in first:
        peer.sendall(data)
    return peer


def answers(daemon, what):
    """Both sockets, in time."""
    start = time.monotonic()
    Connection(daemon.directory, timeout=ANSWERS).close()
    done = subprocess.run([CTL, "status"], env=daemon.environment(**daemon.tools()), capture_output=True, timeout=LINGERS + 10)
    equal(done.returncode, 0, f"{what}: {done.stderr}")
    Shim(daemon.directory, timeout=ANSWERS).close()
    check(time.monotonic() - start < ANSWERS, "others waited for", what)


def descriptors(daemon):
    return len(os.listdir(f"/proc/{daemon.process.pid}/fd"))


def test_lingering():
    """In every place where one may be: with what is right otherwise, with nonsense, unread behind nonsense, of a peer who has gone, one too many."""
    image = message(IMAGE, 100, PTX, AWAITED, *FIELDS)
    attacks = {
        "an image": (dial, [GREETING], image),
        "nonsense": (dial, [GREETING], b"x"),
        "nothing": (dial, [], b""),
        "what lies behind nonsense": (dial, [b"bad"], b"x"),
        "a call": (call, [], b"{"),
        "a call behind one": (call, [b'{"method":"org.varlink.service.GetInfo"}\0'], b"{"),
    }
    with Daemon("--quota-connections=4", "--quota-clients=8") as daemon:
        before = descriptors(daemon)
        for gone in False, True:
            for what, (connect, first, data) in attacks.items():
                near, far = lingering()
                daemon.process.send_signal(signal.SIGSTOP)  # else we might be the last who closes it
                peer = connect(daemon, *first)
                socket.send_fds(peer, [data], [near.fileno()])
                near.close()
                if gone:
                    peer.close()
                daemon.process.send_signal(signal.SIGCONT)
                answers(daemon, what)
                peer.close()
                far.close()
        held = [dial(daemon) for _ in range(4)]
        near, far = lingering()
        daemon.process.send_signal(signal.SIGSTOP)
        held.append(dial(daemon))
        socket.send_fds(held[-1], [b""], [near.fileno()])
        near.close()
        daemon.process.send_signal(signal.SIGCONT)
        daemon.status()
        for peer in held:
            peer.close()
        far.close()
        wait_until(lambda: descriptors(daemon) <= before, "descriptors are as before")
        answers(daemon, "the end")


class Stuck:
    """A file system whose only file can be opened; nobody closes it before release()."""

    INIT, LOOKUP, GETATTR, OPEN, RELEASE, FLUSH, FORGET = 26, 1, 3, 14, 18, 25, 2

    def __init__(self):
        self.folder, self.device = fuse.mount("stuck", os.getuid(), os.getgid())
        self.flushes, self.released = [], False
        threading.Thread(target=self.serve, daemon=True).start()

    def attributes(self, node):
        mode = 0o40755 if node == 1 else 0o100644
        return struct.pack("<QQQQQQIIIIIIIIII", node, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def reply(self, unique, body=b"", error=0):
        try:
            os.write(self.device, struct.pack("<IiQ", 16 + len(body), error, unique) + body)
        except OSError:
            pass

    def serve(self):
        while True:
            try:
                request = os.read(self.device, 1 << 17)
            except OSError:
                return
            _, kind, unique, node = struct.unpack_from("<IIQQ", request)
            if kind == self.INIT:
                self.reply(unique, struct.pack("<IIIIHHIIHHI28x", 7, 31, 0, 0, 0, 0, 4096, 0, 0, 0, 0))
            elif kind == self.LOOKUP:
                self.reply(unique, struct.pack("<QQQQII", 2, 0, 0, 0, 0, 0) + self.attributes(2))
            elif kind == self.GETATTR:
                self.reply(unique, struct.pack("<QII", 0, 0, 0) + self.attributes(node))
            elif kind == self.OPEN:
                self.reply(unique, struct.pack("<QII", 1, 0, 0))
            elif kind == self.FLUSH and not self.released:
                self.flushes.append(unique)
            elif kind != self.FORGET:
                self.reply(unique, error=0 if kind in (self.FLUSH, self.RELEASE) else -38)

    def release(self):
        self.released = True
        for unique in self.flushes:
            self.reply(unique)

    def close(self):
        self.release()
        subprocess.run(["umount", "-l", self.folder], check=True)
        os.close(self.device)
        os.rmdir(self.folder)


@contextlib.contextmanager
def stuck_file():
    """Such a file system and its file, open; None where there is no FUSE. No process may be started meanwhile: it would have to close the file as well."""
    try:
        stuck = Stuck()
    except OSError as error:
        print(f"no FUSE here: {error}")
        yield None
        return
    file = os.open(f"{stuck.folder}/file", os.O_RDONLY)
    try:
        yield stuck, file
    finally:
        stuck.release()
        os.close(file)
        stuck.close()


def send_stuck(daemon, file):
    """Sends it in place of an image. The connection."""
    peer = dial(daemon, GREETING)
    socket.send_fds(peer, [message(IMAGE, 100, PTX, AWAITED, *FIELDS)], [file])
    return peer


def test_stuck():
    """Who sends files that cannot be closed has his connections taken, and no more than these."""
    with Daemon("--quota-connections=4") as daemon:
        with stuck_file() as there:
            if not there:
                return
            stuck, file = there
            before = descriptors(daemon)
            control = Connection(daemon.directory, timeout=ANSWERS)
            peers = []
            for n in range(4):
                peers.append(send_stuck(daemon, file))
                wait_until(lambda: len(stuck.flushes) == n + 1, "it is being closed")
                control.call("Status")
            over = dial(daemon)
            over.settimeout(ANSWERS)
            equal(over.recv(100), b"", "one connection too many")
        control.close()
        for peer in peers + [over]:
            peer.close()
        wait_until(lambda: descriptors(daemon) <= before, "descriptors are as before")
        answers(daemon, "files that were stuck")


def test_stuck_while_workers_start():
    """More files that cannot be closed than threads that close them: the rest stays open, and a process that the daemon starts then has it, too."""
    with Daemon("--quota-connections=100", "--workers=1") as daemon:
        daemon.attach("--kernel", "vectorAdd")
        Shim(daemon.directory).image(VEC_ADD_PTX)
        with stuck_file() as there:
            if not there:
                return
            stuck, file = there
            peers = [send_stuck(daemon, file) for _ in range(70)]
            wait_until(lambda: len(stuck.flushes) == 64, "as many as may be are being closed")
            before = daemon.children()
            check(before, "no worker")
            for worker in before:
                os.kill(worker, signal.SIGKILL)
            asks = Shim(daemon.directory, timeout=ANSWERS)
            asks.send(message(IMAGE, len(VEC_ADD_PTX), PTX, AWAITED, *FIELDS), memfd(VEC_ADD_PTX + b"\n"))  # a worker is needed
            wait_until(lambda: daemon.children() - before, "another worker")
            control = Connection(daemon.directory, timeout=ANSWERS)
            for _ in range(10):
                control.call("Status")
                time.sleep(0.05)
            control.close()
        asks.close()
        for peer in peers:
            peer.close()
        shim = Shim(daemon.directory)
        wait_until(lambda: shim.image(VEC_ADD_PTX + b"\n\n")[0], "an image")
        shim.close()


def unread(peer):
    """Descriptors that lie unread in a socket of ours."""
    with open(f"/proc/self/fdinfo/{peer.fileno()}") as info:
        return int(re.search(r"scm_fds:\s*(\d+)", info.read())[1])


def test_in_flight():
    """Requests whose answers have descriptors, of who reads nothing."""
    with Daemon() as daemon:
        daemon.attach("--kernel", "vectorAdd")
        shim = Shim(daemon.directory)
        _, _, _, slots = shim.image(VEC_ADD_PTX)
        shim.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)  # it has no say
        shim.socket.setblocking(False)
        sent = 0
        for _ in range(2000):
            try:
                shim.send(message(INSTANCE, slots[0][0], sent % 8, 0))
                sent += 1
            except BlockingIOError:
                time.sleep(0.001)
        answers(daemon, "who does not read")
        check(sent > 2 * IN_FLIGHT_MAX, sent, "requests")
        check(0 < unread(shim.socket) <= IN_FLIGHT_MAX, unread(shim.socket), "descriptors in flight to one connection")
        shim.socket.settimeout(ANSWERS)
        for _ in range(sent):  # all answers come in the end
            _, _, fd = shim.receive()
            os.close(fd)
        shim.close()


HOLDER = """
import os, resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
ends[0].setblocking(False)
try:
    while True:
        socket.send_fds(ends[0], [b"x"], [0] * 16)
except OSError as error:
    print(error.errno, flush=True)
sys.stdin.read()
"""


def test_too_many_in_flight():
    """Without privileges all processes of a user together may have RLIMIT_NOFILE descriptors in flight: the daemon waits until there are less, and does not spin."""
    if os.getuid():
        print("not root: no user of its own")
        return
    alone = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]
    daemon = Daemon(start=False)
    daemon.directory = f"/tmp/gpuprobe-{USER}-{daemon.name}"
    daemon.process = subprocess.Popen(
        [*alone, "prlimit", "--nofile=80:80", GPUPROBED, f"--session={daemon.name}", "--verify=off", "--workers=1"],
        stderr=daemon.log,
        env={"PATH": os.environ["PATH"], **daemon.tools()},
    )
    with daemon:
        wait_until(daemon.listens, "the daemon listens")
        control = Connection(daemon.directory)
        with open(COUNTER, "rb") as program:
            control.call("Attach", object=base64.b64encode(program.read()).decode(), kernel="vectorAdd")
        shim = Shim(daemon.directory)
        _, _, _, slots = shim.image(VEC_ADD_PTX)
        holder = subprocess.Popen([*alone, sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        equal(int(holder.stdout.readline()), errno.ETOOMANYREFS, "the user has as much in flight as he may")
        shim.send(message(INSTANCE, slots[0][0], 0, 0))
        time.sleep(1)
        with open(f"/proc/{daemon.process.pid}/stat") as stat:
            start = sum(map(int, stat.read().rsplit(")")[1].split()[11:13]))
        time.sleep(1)
        with open(f"/proc/{daemon.process.pid}/stat") as stat:
            used = sum(map(int, stat.read().rsplit(")")[1].split()[11:13])) - start
        check(used < 0.5 * os.sysconf("SC_CLK_TCK"), "the daemon spins:", used, "ticks in a second")
        other = Shim(daemon.directory)
        check("in flight" in other.image(VEC_ADD_PTX + b"\n")[2], "no worker gets an image")
        equal(control.call("Status")["counters"]["worker_crashes"], 0, "workers that crashed")
        other.close()
        holder.communicate("")
        _, _, fd = shim.receive()
        os.close(fd)
        shim.close()
        control.close()


def test_none_left():
    """No descriptor for a connection: who asks is told so, no process waits for ever, one line in the log, and it is counted; afterwards all is as before."""
    with Daemon() as daemon:
        before = descriptors(daemon)
        asks = Connection(daemon.directory)
        for _ in range(2):  # the daemon hears on the way that Daemon.listens() has hung up
            asks.call("Status")
        soft, hard = resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)

        def take_all():
            """Those that workers needed at their start may come back meanwhile."""
            free = next(n for n in itertools.count() if not os.path.lexists(f"/proc/{daemon.process.pid}/fd/{n}"))
            resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (free, hard))
            try:
                return daemon.ctl("list", status=None)
            except Failed:  # it did not fail
                return None

        wait_until(take_all, "none is left")
        for _ in range(3):
            said = daemon.ctl("list", status=None)
            check("descriptors of the daemon (LimitNOFILE=)" in said, said)
        process = dial(daemon, GREETING)
        wait_until(lambda: exhausted(asks)["shim"], "it is counted")
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
        process.settimeout(ANSWERS)
        process.recv(1000)  # a greeting, or the end
        process.close()
        check(exhausted(asks)["control"] >= 3, exhausted(asks))
        asks.close()
        equal(daemon.text().count("no descriptor is left for connections"), 1, "lines")
        answers(daemon, "descriptors")
        wait_until(lambda: descriptors(daemon) <= before, "descriptors are as before")


def exhausted(control):
    """Of each socket, so far."""
    found = control.call("Status")["statistics"]
    return {s["of"]: s["value"] for s in found if (s["group"], s["name"]) == ("connections", "exhausted")}


if __name__ == "__main__":
    main([value for name, value in list(globals().items()) if name.startswith("test_")])
