#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Probes of functions of files by a user who has no rights but his own: however long his files take to be opened, read, attached to or detached from, the
daemon answers others meanwhile.
"""

import contextlib
import os
import select
import shutil
import struct
import subprocess
import tempfile
import threading
import time

import fuse
from harness import GPUPROBED, Daemon, as_user, check, equal, main, need, wait_until
from tracing import Trace
from varlink import Connection, VarlinkError

need(GPUPROBED)
ANSWERS = 4  # seconds for a call of another client; what is done here takes longer, or never ends
USER = 61234
LIBRARIES = "/lib/x86_64-linux-gnu/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6", "/lib64/libc.so.6"
LIBRARY = next(filter(os.path.exists, LIBRARIES), None)
FUNCTIONS = """abs labs atoi atol div ldiv rand srand getpid getppid getuid geteuid getgid getegid kill open close read write lseek access chdir chmod chown dup dup2
fork link mkdir rmdir unlink symlink readlink rename stat fstat lstat umask mount socket bind listen accept connect send recv shutdown getenv setenv puts fopen
fclose fread fwrite fseek ftell fflush fputs fgets malloc free calloc realloc qsort bsearch""".split()


class Other:
    """Another client, who asks all the time."""

    def __init__(self, daemon):
        self.bus, self.stop, self.error, self.n = Connection(daemon.directory, timeout=ANSWERS), False, None, 0
        self.thread = threading.Thread(target=self.ask)

    def ask(self):
        try:
            while not self.stop:
                self.bus.call("Status")
                self.n += 1
                time.sleep(0.005)
            self.bus.close()
        except Exception as error:
            self.error = error

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        n = self.n
        wait_until(lambda: self.n > n or self.error, "another client has an answer", ANSWERS + 5)
        self.stop = True
        self.thread.join()
        check(not self.error, "another client:", repr(self.error))


@contextlib.contextmanager
def folder():
    """One of the user's."""
    path = tempfile.mkdtemp(prefix="hostile-probes-")
    os.chown(path, USER, USER)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def ask(daemon, probes, **more):
    """A trace by the user; its connection, on which the reply comes."""
    with as_user(USER):
        bus = Connection(daemon.directory, timeout=20)
    bus.send("Trace", more=True, sources=["kernel"], hooks=["!all"], probes=probes, **more)
    return bus


def busy(bus):
    """Whether the user is told to ask again: he has had his share of the loop's time, which is soon on a busy machine."""
    if not select.select([bus.socket], [], [], 0)[0]:
        return False
    try:
        bus.receive()
    except VarlinkError as error:
        check("ask again in a moment" in error.parameters["what"], error)
        return True
    return False


def give_up(bus):
    bus.socket.shutdown(2)
    bus.close()


def has_probes(daemon):
    """Whether it can load eBPF programs at all."""
    with as_user(USER):
        trace = Trace(daemon.directory, sources=["kernel"], hooks=["!all"], probes=[f"u:{LIBRARY}:abs"])
    trace.close()
    return LIBRARY and any("files only" in line for line in trace.missing)


def test_many_functions():
    """Sixty-four functions, attached and detached: as single events, that took a tenth of a second and more for each."""
    with Daemon("--user-attach=yes") as daemon, folder() as own:
        if not has_probes(daemon):
            return
        path = f"{own}/libc.so"
        shutil.copyfile(LIBRARY, path)
        os.chown(path, USER, USER)
        probes = [f"u:{path}:{name}(a=arg0:s32)=ret:s32" for name in FUNCTIONS[:64]]
        with Other(daemon):
            for _ in range(3):
                bus = ask(daemon, probes)
                missing = bus.receive()[0]["missing"]
                check(all(line.endswith("when the program starts") for line in missing), missing)
                give_up(bus)


def large(path, symbols, names):
    """A library with as many functions, of which all names begin alike."""
    table, strings = 8192 + names, 8192
    header = b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 4096, 0, 64, 56, 1, 64, 4, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 4096, 4096, 4096)
    sections = bytes(64) + b"".join(
        struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, at, size, link, 0, 0, entry)
        for kind, at, size, link, entry in ((11, table, 24 * symbols, 3, 24), (2, table, 24 * symbols, 3, 24), (3, strings, names, 0, 0))
    )
    with open(path, "wb") as file:
        file.write(header + segment)
        file.seek(4096)
        file.write(sections)
        file.seek(strings)
        file.write(b"a" * names)
        file.seek(table)
        file.write(struct.pack("<IBBHQQ", 1, 2, 0, 1, 0, 0) * symbols)
    os.chown(path, USER, USER)


def test_large_files():
    """Files in which it takes long to look for a function: as large as may be, or larger."""
    name = "a" * 300 + "b"
    with Daemon("--user-attach=yes") as daemon, folder() as own:
        if not has_probes(daemon):
            return
        large(f"{own}/most", 1 << 18, 16 << 20)
        large(f"{own}/more", 2 << 20, 64 << 20)
        with Other(daemon):
            bus = ask(daemon, [f"u:{own}/{file}:{name[n:]}" for file, times in (("most", 16), ("more", 48)) for n in range(times)])
            missing = bus.receive()[0]["missing"]
            equal(len(missing), 64)
            check(all("no such function" in line or "too large" in line or "does not answer" in line for line in missing), missing[0], missing[-1])
            give_up(bus)
        with Other(daemon):
            for _ in range(8):
                give_up(ask(daemon, [f"u:{own}/most:{name}"]))


class Silent:
    """A file system that answers nothing but its beginning."""

    def __init__(self):
        self.folder, self.device = fuse.mount("silent", USER, USER)
        self.asked = 0
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                _, kind, unique = struct.unpack_from("<IIQ", os.read(self.device, 1 << 17))
                if kind == 26:  # INIT, with FUSE_PARALLEL_DIROPS
                    os.write(self.device, struct.pack("<IiQIIIIHHIIHHI28x", 80, 0, unique, 7, 31, 0, 1 << 18, 0, 0, 4096, 0, 0, 0, 0))
                else:
                    self.asked += 1
            except OSError:
                return

    def close(self):
        subprocess.run(["umount", "-f", self.folder], check=False, stderr=subprocess.DEVNULL)  # aborts what waits
        subprocess.run(["umount", "-l", self.folder], check=False, stderr=subprocess.DEVNULL)
        os.close(self.device)
        os.rmdir(self.folder)


def test_silent_files():
    """Paths that lead to a server which never answers. Who has as many of them as he may have is told so, and nobody else."""
    with Daemon("--user-attach=yes") as daemon:
        try:
            silent = Silent()
        except OSError as error:
            print(f"no FUSE here: {error}")
            return
        try:
            if not has_probes(daemon):
                return
            with Other(daemon):
                bus = ask(daemon, [], cgroup=f"/../../..{silent.folder}/x")  # no path of a cgroup
                bus.receive()
                give_up(bus)
                equal(silent.asked, 0)
                for n in range(8):
                    bus = ask(daemon, [f"u:{silent.folder}/{n}:f"])
                    while not silent.asked > n:
                        if busy(bus):
                            give_up(bus)
                            bus = ask(daemon, [f"u:{silent.folder}/{n}:f"])
                        time.sleep(0.02)
                    give_up(bus)
                reply = None
                while reply is None:
                    bus = ask(daemon, [f"u:{silent.folder}/x:f"])
                    with contextlib.suppress(VarlinkError):
                        reply = bus.receive()[0]
                    give_up(bus)
                    time.sleep(0.02)
                check("try again in a while" in reply["missing"][0])
                trace = Trace(daemon.directory, sources=["kernel"], hooks=["!all"], probes=[f"u:{LIBRARY}:abs"])
                equal(trace.missing, [])
                trace.close()
        finally:
            silent.close()
        wait_until(lambda: answered(daemon), "what waited has ended")


def answered(daemon):
    bus = ask(daemon, [f"u:{LIBRARY}:abs"])
    missing = [""]
    with contextlib.suppress(VarlinkError):
        missing = bus.receive()[0]["missing"]
    give_up(bus)
    return "files only" in missing[0]


if __name__ == "__main__":
    main([test_many_functions, test_large_files, test_silent_files])
