#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The fault matrix: the daemon, its workers, the application and gpuprobectl are killed at points of an attach, a load, a run and a dump (tests/targets/
kill-at.c: before or after a certain system call of their first thread), and the daemon has no disk, descriptors or memory left. Each time the application's
result is right, what was said to be attached is attached, nothing is counted twice or in part, and the next attach works and counts exactly. The test
plays systemd (manager.py): a daemon that was killed is started again at once.

./check takes QUICK points of each; `test-faults.py BUILD --points 20` prints the whole table.
"""

import contextlib
import ctypes
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading

POINTS = 4  # of each victim
if "--points" in sys.argv:
    at = sys.argv.index("--points")
    POINTS = int(sys.argv[at + 1])
    del sys.argv[at : at + 2]

from harness import BUILD, COUNTER, CTL, GPUPROBED, SHIM, SIM, VEC_ADD, Failed, check, equal, main, need, wait_until
from manager import Manager

KILL_AT = os.path.join(BUILD, "tests/kill-at")
need(GPUPROBED, CTL, COUNTER, SHIM, VEC_ADD, KILL_AT)
THREADS, LAUNCHES = 1024, 3
EXACT = THREADS * LAUNCHES
RUN = VEC_ADD, "--threads", str(THREADS), "--launches", str(LAUNCHES)


def call_names():
    """Of system calls, as far as this machine's headers say."""
    names = {}
    for path in "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h":
        if os.path.exists(path):
            with open(path) as header:
                names = {int(n): name for name, n in re.findall(r"#define __NR_(\w+) (\d+)", header.read())}
    return names


CALLS = call_names()


class Points:
    """Kills a process at its Nth point, or counts them (0)."""

    def __init__(self, n, pid, then=lambda: None):
        self.process = subprocess.Popen([KILL_AT, str(n), str(pid)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        equal(self.process.stdout.readline(), "ready\n", "kill-at")
        self.said = ""
        self.thread = threading.Thread(target=self.follow, args=[then])
        self.thread.start()

    def follow(self, then):
        self.said = self.process.stdout.read()
        self.process.wait()
        if self.said.startswith("killed"):
            then()

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.thread.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return self.said


def place(said):
    """What kill-at said, for people."""
    words = said.split()
    return f"{words[3]} {CALLS.get(int(words[4]), words[4])}" if said.startswith("killed") else "not reached"


def spread(count, n):
    """The middles of that many parts of the points 1 to count."""
    return sorted({1 + (2 * i + 1) * count // (2 * n) for i in range(n)})


def application(daemon):
    """Runs it: its result is right whatever happens."""
    status, out, err, _ = daemon.run(*RUN, timeout=120)
    check(status == 0 and "PASS" in out and not err, "the application:", status, out, err)


def ctl(daemon, *arguments):
    """gpuprobectl: its exit status, what it said. A failure has a line that says why."""
    done = subprocess.run([CTL, *arguments], env=daemon.environment(**daemon.tools()), capture_output=True, text=True, timeout=120)
    check(done.returncode >= 0, "gpuprobectl", *arguments, "was ended by signal", -done.returncode)
    check(done.returncode == 0 or done.stderr.startswith("gpuprobectl: "), "no reason for", done.returncode, done.stderr)
    return done.returncode, done.stdout.strip() if done.returncode == 0 else done.stderr.strip()


def detach_all(daemon):
    for attachment in daemon.attachments():
        daemon.ctl("detach", str(attachment["id"]))
    equal(daemon.json("map", "list")["maps"], [], "maps")


def settled(daemon):
    wait_until(lambda: not any(a["processes"] for a in daemon.attachments()), "the processes are gone", 30)
    wait_until(lambda: not any(m["instances"] for m in daemon.json("map", "list")["maps"]), "what they left is added up", 30)


def works(daemon):
    """The next attach works, and counts exactly; what was attached before goes."""
    detach_all(daemon)
    daemon.attach()
    application(daemon)
    equal(daemon.count_of(), EXACT, "the next attach counts")
    settled(daemon)
    equal(daemon.count_of(), EXACT, "the next attach counts, later")
    detach_all(daemon)


def outcome(status, said, counts):
    said = said.removeprefix("gpuprobectl: ").splitlines()[0]
    return ("attached" if status == 0 else "not attached: " + said.split(".control: ")[-1], "counted" if counts == [EXACT] else "own image" if counts else "")


def cycle(daemon):
    """Attach, run, dump, detach, whatever happens meanwhile: what came of it."""
    status, said = ctl(daemon, "attach", COUNTER)
    ids = [a["id"] for a in daemon.attachments()]
    if status == 0:
        equal(ids, [int(said)], "attached")
    application(daemon)
    counts = [daemon.dump(str(m["id"]))[0]["value"] for m in daemon.json("map", "list")["maps"]]
    settled(daemon)
    equal([daemon.dump(str(m["id"]))[0]["value"] for m in daemon.json("map", "list")["maps"]], counts, "counts, later")
    check(set(counts) <= {0, EXACT}, "counted in part:", counts)
    for id in ids:
        ctl(daemon, "detach", str(id))
    return outcome(status, said, counts)


ROWS = []


def row(victim, point, said, what):
    ROWS.append((victim, point, said, *what))
    print("      ", victim, point, said, *what)


def kill_in_cycle(victim, daemon, find, then, points):
    """Kills what find() finds, at points of the cycle."""
    for _ in range(2):  # the second is like those that follow
        count = Points(0, find())
        equal(cycle(daemon), ("attached", "counted"), "with nothing killed")
        total = int(count.end().split()[2])
        check(total > points, victim, "has", total, "points")
    for point in spread(total, points):
        killer = Points(point, find(), then)
        try:
            what = cycle(daemon)
        except Exception as error:
            raise Failed(f"{victim}, {point} of {total}, {place(killer.end())}: {error}") from error
        row(victim, f"{point} of {total}", place(killer.end()), what)
        try:
            works(daemon)
        except Exception as error:
            raise Failed(f"{victim}, {point} of {total}, {place(killer.said)}, afterwards: {error}") from error


def test_daemon():
    with Manager() as daemon:

        def again():
            daemon.process.wait()
            daemon.start()

        kill_in_cycle("daemon", daemon, lambda: daemon.process.pid, again, POINTS)


def worker(daemon, kind):
    def find():
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat") as stat, open(f"/proc/{pid}/cmdline") as arguments:
                    state, parent = stat.read().rpartition(")")[2].split()[:2]
                    if parent == str(daemon.process.pid) and state == "S" and arguments.read().rstrip("\0").endswith(kind):
                        return int(pid)
            except OSError:  # it ended meanwhile
                pass
        return None

    return wait_until(find, "a worker")


def test_workers():
    with Manager("--workers=1") as daemon:
        kill_in_cycle("image worker", daemon, lambda: worker(daemon, "image-worker"), lambda: None, (POINTS + 1) // 2)
        kill_in_cycle("program worker", daemon, lambda: worker(daemon, "program-worker"), lambda: None, (POINTS + 1) // 2)


def started(n, preload, *command, environment):
    """Starts a command that is killed at its Nth point: what kill-at said last."""
    done = subprocess.run([KILL_AT, str(n), preload, *command], env=environment, capture_output=True, text=True, timeout=120)
    said = done.stdout.strip().splitlines()[-1]
    check(n or said.startswith("ended after"), said, done.stderr)
    return said


def test_application():
    """What it counted before may be lost in part; others are not disturbed."""
    with Manager() as daemon:
        environment = daemon.environment(**daemon.libraries())
        daemon.attach()
        total = int(started(0, SHIM, *RUN, environment=environment).split()[2])
        for point in spread(total, POINTS):
            with subprocess.Popen([*RUN, "--sleep-ms", "30"], env={**environment, "LD_PRELOAD": SHIM}, stdout=subprocess.PIPE, text=True) as other:
                said = started(point, SHIM, *RUN, environment=environment)
                check("PASS" in other.communicate(timeout=60)[0], "another application")
            settled(daemon)
            before = daemon.count_of()
            check(before % EXACT in (0, THREADS, 2 * THREADS), "counted in part of a launch:", before)
            application(daemon)
            equal(daemon.count_of(), before + EXACT, "the next application")
            row("application", f"{point} of {total}", place(said), (f"{before} of it and another counted",))
            works(daemon)
            daemon.attach()


def test_client():
    """gpuprobectl attach, dump, trace, detach."""
    commands = ["attach", COUNTER], ["map", "dump", "counter"], ["trace", "-d", "1"], ["detach", "counter"]
    with Manager() as daemon:
        environment = daemon.environment(**daemon.tools())
        for command in commands:

            def real():
                return [str(daemon.attachments()[0]["id"]) if word == "counter" and command[0] == "detach" else word for word in command]

            def prepare():
                if command[0] != "attach":
                    daemon.attach()

            prepare()
            total = int(started(0, "", CTL, *real(), environment=environment).split()[2])
            works(daemon)
            for point in spread(total, (POINTS + len(commands) - 1) // len(commands)):
                prepare()
                said = started(point, "", CTL, *real(), environment=environment)
                application(daemon)
                attached = len(daemon.attachments())
                check(attached <= 1, "attached", attached)
                if attached:
                    equal(daemon.count_of(), EXACT, "counted")
                row(f"gpuprobectl {command[0]}", f"{point} of {total}", place(said), ("attached" if attached else "not attached",))
                works(daemon)


def limited(daemon, kind, value):
    """An attach and a run under that soft limit, and a dump without: what came of it. A daemon that ends is started again."""
    pid = daemon.process.pid
    soft, hard = resource.prlimit(pid, kind)
    done = threading.Event()

    def watch():
        while not done.wait(0.05):
            if daemon.process.poll() is not None:
                daemon.start()
                return

    guard = threading.Thread(target=watch)
    resource.prlimit(pid, kind, (value, hard))
    guard.start()
    try:
        status, said = ctl(daemon, "attach", COUNTER)
        application(daemon)
    finally:
        if daemon.process.poll() is None and daemon.process.pid == pid:
            resource.prlimit(pid, kind, (soft, hard))
        done.set()
        guard.join()
    settled(daemon)
    counts = [daemon.dump(str(m["id"]))[0]["value"] for m in daemon.json("map", "list")["maps"]]
    check(set(counts) <= {0, EXACT}, "counted in part:", counts)
    equal(len(daemon.attachments()), status == 0, "attached: " + said)
    return outcome(status, said, counts) + (() if daemon.process.pid == pid else ("the daemon ended",))


def works_soon(daemon):
    """As works(), when workers that could not start are started again."""
    wait_until(lambda: ctl(daemon, "attach", COUNTER)[0] == 0, "an attach works", 30)
    works(daemon)


def descriptors(daemon):
    folder, found = f"/proc/{daemon.process.pid}/fd", []
    for fd in os.listdir(folder):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"{folder}/{fd}"))
    return sorted(found)


def sweep(victim, kind, used, step, unit):
    """Limits from what it uses to so much more."""
    with Manager("--deadline-ms=3000") as daemon:
        works(daemon)
        opened = descriptors(daemon)
        for n in range(0, 20, max(1, 20 // max(POINTS, 5))):
            row(victim, f"{n * unit} more", "", limited(daemon, kind, used(daemon) + n * step))
            works_soon(daemon)
        with contextlib.suppress(Failed):  # before, one of a client that had just ended may have been among them
            wait_until(lambda: len(descriptors(daemon)) <= len(opened), "no more than before", 30)
        check(len(descriptors(daemon)) <= len(opened), f"the daemon's descriptors: {descriptors(daemon)}; before: {opened}")


def test_descriptors():
    sweep("descriptors", resource.RLIMIT_NOFILE, lambda daemon: len(os.listdir(f"/proc/{daemon.process.pid}/fd")), 1, 1)


def used_memory(daemon):
    with open(f"/proc/{daemon.process.pid}/statm") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()


def test_memory():
    """Of addresses: a cgroup that has no more kills, which is test_daemon() or test_workers()."""
    sweep("memory (KiB)", resource.RLIMIT_AS, used_memory, 64 << 10, 64)


class Full:
    """A full disk of its own under a folder, for as long as is said."""

    libc = ctypes.CDLL(None, use_errno=True)

    def __init__(self, path):
        self.path = path
        self.mounted = False

    @staticmethod
    def private():
        """Mounts are this process's and its children's from now on."""
        return os.geteuid() == 0 and not Full.libc.unshare(0x20000) and not Full.libc.mount(b"none", b"/", None, 0x44000, None)

    def mount(self):
        equal(Full.libc.mount(b"none", self.path.encode(), b"tmpfs", 0, b"size=256k,mode=700"), 0, "mount")
        self.mounted = True
        return self

    def fill(self):
        try:
            with open(f"{self.path}/fill", "wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
        except OSError:
            pass

    def empty(self):
        os.remove(f"{self.path}/fill")

    def umount(self):
        if self.mounted:
            Full.libc.umount2(self.path.encode(), 2)


class OnTmpfs(Manager):
    """Its state file and page are on a disk that can be filled."""

    def __init__(self, *options):
        self.disk = None
        super().__init__(*options)

    def listen(self, name, kind):
        if not self.disk:
            self.disk = Full(self.directory).mount()
        return super().listen(name, kind)

    def stop(self):
        if os.path.exists(f"{self.directory}/fill"):
            self.disk.empty()
        super().stop()

    def __exit__(self, kind, value, trace):
        super().__exit__(kind, value, trace)
        self.disk.umount()
        self.clean()


def test_disk_of_the_state():
    """Attaching works and does not survive; a daemon that is to start goes on with the page, or has no room for one, and says so until it has."""
    if not Full.private():
        print("not root: no disk that is full")
        return
    with OnTmpfs() as daemon:
        works(daemon)
        daemon.disk.fill()
        row("disk of the state", "full", "", cycle(daemon))
        works(daemon)
        daemon.crash_and_start()  # goes on with the page, which has its room
        works(daemon)
        daemon.crash()
        os.unlink(f"{daemon.directory}/interest")
        daemon.disk.fill()
        try:
            daemon.start()
            check(False, "started without a page")
        except Failed:
            equal(daemon.process.returncode, 1, "exit status: " + daemon.text())
            check("interest: No space left on device" in daemon.text(), daemon.text())
        daemon.disk.empty()
        daemon.start()
        works(daemon)
        row("disk of the state", "full at the start", "", ("does not start, and says why; starts when there is room",))
        daemon.attach()
        application(daemon)
        daemon.disk.fill()
        os.truncate(f"{daemon.directory}/fill", os.path.getsize(f"{daemon.directory}/fill") - 8192)  # room for a page, but not for state
        daemon.crash_and_start()
        equal(daemon.count_of(), EXACT, "kept")
        application(daemon)
        equal(daemon.count_of(), 2 * EXACT, "counted on")
        row("disk of the state", "full after an attach, then a crash", "", ("attached", "counted"))


def test_other_disks():
    """Of metrics and of the cache."""
    if not Full.private():
        return
    for what in "cache", "metrics":
        with tempfile.TemporaryDirectory(prefix="e2e-faults-") as folder:
            disk = Full(folder).mount()
            disk.fill()
            try:
                option = f"--cache-dir={folder}" if what == "cache" else f"--metrics={folder}/gpuprobed.prom"
                with Manager(option) as daemon:
                    row(f"disk of the {what}", "full", "", cycle(daemon))
                    works(daemon)
                    daemon.crash_and_start()
                    works(daemon)
                    disk.empty()
                    works(daemon)
            finally:
                disk.umount()


def test_zz_table():
    """Prints it."""
    print("\n| victim | point | where | what came of it |\n|---|---|---|---|")
    for victim, point, where, *what in ROWS:
        print(f"| {victim} | {point} | {where} | {'; '.join(word for word in what if word)} |")


if __name__ == "__main__":
    main([value for name, value in list(globals().items()) if name.startswith("test_")])
