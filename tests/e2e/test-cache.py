#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cache on the disk: what one daemon compiled serves the next, whose workers crash at each job; and whatever happens to the folder, programs run and are
counted."""

import base64
import ctypes
import glob
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time

import fuse
from harness import BUILD, COUNTER, CTL, VEC_ADD, Daemon, check, equal, main, need, wait_until
from varlink import Connection, VarlinkError
import wire

need(COUNTER, VEC_ADD)
N, LAUNCHES = 4096, 3
RUN = [VEC_ADD, "--threads", str(N), "--launches", str(LAUNCHES)]
NO_WORKERS = ("--image-worker-argument=--test-fault=crash", "--program-worker-argument=--test-fault=crash")


class Folder:
    """A folder for a cache."""

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="e2e-cache-")
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path)

    def daemon(self, *options):
        return Daemon(f"--cache-dir={self.path}", *options)

    def files(self):
        return sorted(glob.glob(f"{self.path}/*-*"))


def cache(daemon):
    return daemon.json("cache")


def doctor(daemon):
    """What doctor says of it, once."""
    (check,) = [c for c in daemon.json("doctor", "--only=daemon.*")["checks"] if c["id"] == "daemon.cache"]
    return check["state"], check["found"], check["todo"]


def missing(daemon):
    return [line for line in daemon.status()["missing"] if "cache" in line]


def settled(daemon, entries):
    """Waits until so many entries are written."""
    return wait_until(lambda: cache(daemon)["stores"] >= entries and cache(daemon), f"{entries} entries: {cache(daemon)}")


def run_counted(daemon, *attach):
    daemon.attach(*attach)
    status, out, err, _ = daemon.run(*RUN)
    equal(status, 0, out + err)
    equal(daemon.count_of(), N * LAUNCHES, f"count; {daemon.why()}")


def fill(folder, entries=3):
    with folder.daemon() as daemon:
        run_counted(daemon, "--kernel", "vectorAdd")
        return settled(daemon, entries)


def test_restart():
    """Attach and load after a restart: no worker does a job."""
    with Folder() as folder:
        said = fill(folder)
        equal((said["hits"], said["misses"], said["entries"]), (0, 3, 3), said)
        equal(len(folder.files()), 3, "files")
        with folder.daemon(*NO_WORKERS) as daemon:
            run_counted(daemon, "--kernel", "vectorAdd")
            said = cache(daemon)
            equal((said["hits"], said["misses"], said["invalid"]), (3, 0, 0), said)
            equal(daemon.status()["counters"]["worker_crashes"], 0, "crashes")
            equal({o["outcome"] for o in daemon.why()}, {"probed"}, daemon.why())
            # another id, the same content: detached and attached again it needs no worker either
            daemon.ctl("detach", *[str(a["id"]) for a in daemon.attachments()])
            run_counted(daemon, "--kernel", "vectorAdd")
            equal(cache(daemon)["misses"], 0, "misses")


def test_damaged():
    """Files that were changed, cut, or are something else: each is a miss, goes, and is made again."""

    def flip(path):
        with open(path, "r+b") as file:
            file.seek(os.path.getsize(path) // 2)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 4]))

    def exchange(path):
        with open(path, "wb") as file:
            file.write(b"something else")

    def folder_of(path):
        os.unlink(path)
        os.mkdir(path)

    for change in (flip, exchange, folder_of, lambda path: os.truncate(path, os.path.getsize(path) - 1), lambda path: os.truncate(path, 0)):
        with Folder() as folder:
            fill(folder)
            for path in folder.files():
                change(path)
            with folder.daemon() as daemon:
                run_counted(daemon, "--kernel", "vectorAdd")
                said = settled(daemon, 3)
                equal((said["hits"], said["misses"], said["invalid"]), (0, 3, 3), said)
            with folder.daemon(*NO_WORKERS) as daemon:
                run_counted(daemon, "--kernel", "vectorAdd")


def test_what_it_depends_on():
    """Another kernel, image, or option is another job; the same is the same."""
    with Folder() as folder:
        fill(folder)
        for options, attach, hits, misses in (
            ((), ("--kernel", "vectorAdd"), 3, 0),
            ((), ("--kernel", "vector*"), 2, 1),
            (("--stub=f",), ("--kernel", "vectorAdd"), 2, 1),
        ):
            with folder.daemon(*options) as daemon:
                run_counted(daemon, *attach)
                said = cache(daemon)
                equal((said["hits"], said["misses"]), (hits, misses), f"{options} {attach}")


def test_instructions():
    """Ids of instructions that were given out with an image are resolved after a restart as before."""
    program, language = os.path.join(BUILD, "tests/e2e/objects/memory.bpf.o"), os.path.join(BUILD, "tests/sim/language_driver")
    need(program, language)
    shown = []
    with Folder() as folder:
        for options in ((), NO_WORKERS):
            with folder.daemon(*options) as daemon:
                daemon.attach(object=program)
                status, out, err, _ = daemon.run(language, "accesses")
                equal(status, 0, out + err)
                shown.append(daemon.json("kernel", "show", "accesses")["instructions"])
                seen = {f"{e['value']['instruction']:016x}" for e in daemon.dump("kinds")}
                check(seen and seen <= {i["id"] for i in shown[-1]}, seen, shown[-1])
                if not options:
                    settled(daemon, 3)
    equal(shown[0], shown[1], "instructions")


def test_pass():
    """A pass of the user runs once, until its executable or its definition changes."""
    with Folder() as folder, tempfile.TemporaryDirectory(prefix="e2e-cache-passes-") as passes:
        os.chmod(passes, 0o755)
        os.mkdir(f"{passes}/marks", 0o755)
        os.chmod(f"{passes}/marks", 0o1777)

        def define(comment="", **members):
            with open(f"{passes}/mine", "w") as file:
                file.write(f'#!/bin/sh\n{comment}\necho x >> {passes}/marks/ran\nexec sed \'s/^{{"full_ptx"/{{"output_ptx"/\'\n')
            os.chmod(f"{passes}/mine", 0o755)
            with open(f"{passes}/mine.json", "w") as file:
                json.dump({"name": "mine", "executable": "mine", "order": 10, "attach_points": {"include": ["kprobe/*"]}, **members}, file)

        def runs():
            with folder.daemon("--pass-dir", passes) as daemon:
                run_counted(daemon, "--kernel", "vectorAdd")
                misses = cache(daemon)["misses"]
                settled(daemon, misses)
            with open(f"{passes}/marks/ran") as file:
                return len(file.readlines()), misses > 0

        define()
        equal(runs(), (1, True), "first")
        equal(runs(), (1, False), "again")
        define("# another")
        equal(runs(), (2, True), "another executable")
        define("# another", parameters={"x": 1})
        equal(runs(), (3, True), "another parameter")
        equal(runs(), (3, False), "again")


def test_two_daemons():
    """They share a folder: what one has made serves the other, and one may clear it at any time."""
    with Folder() as folder, folder.daemon() as one, folder.daemon() as two:
        run_counted(one, "--kernel", "vectorAdd")
        settled(one, 3)
        run_counted(two, "--kernel", "vectorAdd")
        equal((cache(two)["hits"], cache(two)["misses"]), (3, 0), "of the second")
        check("3 entries removed" in two.ctl("cache", "clear"))
        equal(folder.files(), [], "files")
        one.ctl("detach", *[str(a["id"]) for a in one.attachments()])
        run_counted(one, "--kernel", "vectorAdd")
        equal((cache(one)["hits"], cache(one)["misses"]), (0, 6), "of the first")


def test_killed():
    """Daemons that are killed while they write leave nothing that the next one stumbles over."""
    with Folder() as folder:
        for _ in range(4):
            with folder.daemon() as daemon:
                run_counted(daemon, "--kernel", "vectorAdd")
                equal(cache(daemon)["invalid"], 0, "invalid")
                daemon.kill()
        fill(folder, 0)
        with folder.daemon(*NO_WORKERS) as daemon:
            run_counted(daemon, "--kernel", "vectorAdd")
        equal([name for name in os.listdir(folder.path) if name.startswith(".new-")], [], "left")


def test_trouble():
    """A folder that goes away, or that others may write to: programs run and are counted, and the log has one line."""
    with Folder() as folder:
        with folder.daemon() as daemon:
            shutil.rmtree(folder.path)
            run_counted(daemon, "--kernel", "vectorAdd")
            settled(daemon, 3)
            equal(len(folder.files()), 3, "files")
            os.chmod(folder.path, 0o777)
            daemon.ctl("detach", *[str(a["id"]) for a in daemon.attachments()])
            run_counted(daemon, "--kernel", "vectorAdd")
            wait_until(lambda: cache(daemon)["failures"] >= 6, "failures")
            equal(
                missing(daemon), [f"the cache {folder.path} cannot be written: not a folder of this user alone; if the folder was removed, restart the daemon"]
            )
            equal(
                doctor(daemon),
                ("warning", f"the cache {folder.path} cannot be written: not a folder of this user alone", "if the folder was removed, restart the daemon"),
            )
            equal(daemon.text().count("not a folder of this user alone"), 1, daemon.text())
            check("not the daemon's alone" in daemon.ctl("cache", "list", status=None))
            os.chmod(folder.path, 0o700)
            daemon.ctl("detach", *[str(a["id"]) for a in daemon.attachments()])
            run_counted(daemon, "--kernel", "vector*")
            wait_until(lambda: not missing(daemon), "it is written again")
            os.chmod(folder.path, 0o777)
        with folder.daemon() as daemon:
            check("no cache: " in daemon.text() and "not a folder of this user alone" in daemon.text(), daemon.text())
            run_counted(daemon, "--kernel", "vectorAdd")
            equal(cache(daemon)["enabled"], False, "enabled")
            equal(missing(daemon), [f"no cache: {folder.path}: not a folder of this user alone (--cache-dir)"])
            equal(doctor(daemon), ("warning", f"no cache: {folder.path}: not a folder of this user alone (--cache-dir)", ""))
            check("no cache on the disk" in daemon.ctl("cache", "clear", status=None))
        os.chmod(folder.path, 0o700)
        with folder.daemon("--cache-size=0") as daemon:
            equal(cache(daemon)["enabled"], False, "enabled")
            equal(doctor(daemon)[0], "skipped")


def test_hanging():
    """The folder is on a disk that answers no more: the two jobs that wait for it do, all others are done as without a cache."""
    with Folder() as folder, folder.daemon() as daemon:
        run_counted(daemon, "--kernel", "vectorAdd")
        settled(daemon, 3)
        daemon.ctl("detach", *[str(a["id"]) for a in daemon.attachments()])
        try:
            _, device = fuse.mount("silent", os.getuid(), os.getgid(), folder.path)
        except OSError:
            return  # no FUSE here
        try:
            attaches = [
                subprocess.Popen([CTL, "attach", "--json", COUNTER], env=daemon.environment(**daemon.tools()), stdout=subprocess.DEVNULL) for _ in range(4)
            ]
            wait_until(lambda: sum(attach.poll() == 0 for attach in attaches) == 2, "two of four attaches", 20)
            equal(len(daemon.attachments()), 2, "attachments")
            daemon.run(*RUN)
            equal([daemon.dump(str(m["id"]))[0]["value"] for m in daemon.json("map", "list")["maps"]], [N * LAUNCHES] * 2, "counts")
        finally:
            os.close(device)  # what hangs gets an error
            subprocess.run(["umount", "-l", folder.path], check=True)
        equal([attach.wait(30) for attach in attaches], [0] * 4, "in the end")
        daemon.ctl("detach", *[str(a["id"]) for a in daemon.attachments()])
        run_counted(daemon, "--kernel", "vectorAdd")


def test_full():
    """A disk that is full, then read-only."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Folder() as folder:
        if (
            libc.unshare(0x20000)
            or libc.mount(b"none", b"/", None, 0x44000, None)
            or libc.mount(b"none", folder.path.encode(), b"tmpfs", 0, b"size=4k,mode=700")
        ):
            print("not root: no disk that is full")
            return
        try:
            with folder.daemon() as daemon:
                run_counted(daemon, "--kernel", "vectorAdd")
                wait_until(lambda: cache(daemon)["failures"] >= 2, "failures")
                equal(daemon.text().count("No space left on device"), 1, daemon.text())
                libc.mount(b"none", folder.path.encode(), None, 0x21, b"size=4k")  # MS_REMOUNT | MS_RDONLY
                daemon.ctl("detach", *[str(a["id"]) for a in daemon.attachments()])
                run_counted(daemon, "--kernel", "vectorAdd")
        finally:
            libc.umount(folder.path.encode())


def test_size():
    """The oldest go when there is no room; one that is too large is not kept."""
    with Folder() as folder, folder.daemon("--cache-size=64K") as daemon:
        daemon.attach("--kernel", "vectorAdd")
        shim = wire.Shim(daemon.directory)
        for n in range(20):
            shim.image(b"// %d\n" % n + b".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry vectorAdd()\n{\n\tret;\n}\n")
        said = wait_until(lambda: cache(daemon)["evicted"] and cache(daemon)["stores"] == 22 and cache(daemon), "evictions")
        check(said["bytes"] <= 64 << 10 and said["entries"] == len(folder.files()) > 3, said)
        listed = daemon.json("cache", "list")
        equal((listed["total"], len(listed["entries"])), (said["entries"], said["entries"]), "listed")
        check(all(e["job"] == "image" and e["name"] == "vectorAdd" for e in listed["entries"][:3]), listed)


def test_stopped():
    """A daemon that ends while jobs wait for workers that never get ready, or for the disk."""
    with Folder() as folder, tempfile.TemporaryDirectory(prefix="e2e-cache-workers-") as workers:
        os.chmod(workers, 0o755)
        for name in ("gpuprobe-image-worker", "gpuprobe-program-worker", "gpuprobe-pass-worker"):
            with open(f"{workers}/{name}", "w") as file:
                file.write("#!/bin/sh\nexec sleep 60\n")
            os.chmod(f"{workers}/{name}", 0o755)
        with folder.daemon("--worker-dir", workers) as daemon:
            control = Connection(daemon.directory)
            with open(COUNTER, "rb") as file:
                control.send("Attach", object=base64.b64encode(file.read()).decode(), filter={}, kernel="vectorAdd")
            time.sleep(0.2)
            daemon.stop()
        equal(folder.files(), [], "files")


class Other:
    """Connections of this process are another user's, while it lasts."""

    def __enter__(self):
        os.seteuid(65534)
        ctypes.CDLL(None).setfsuid(0)  # which may go into the folder
        return self

    def __exit__(self, *_):
        os.seteuid(0)


def test_users():
    """Users share nothing, see what is theirs, and may not clear."""
    if os.getuid() != 0:
        print("not root: no other user")
        return
    with Folder() as folder, folder.daemon() as daemon:
        daemon.attach("--kernel", "vectorAdd")
        image = b".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry vectorAdd()\n{\n\tret;\n}\n"
        mine = wire.Shim(daemon.directory)
        check(mine.image(image)[0])
        settled(daemon, 3)
        with Other():
            shim, control = wire.Shim(daemon.directory), Connection(daemon.directory)
        check(shim.image(image)[0])
        equal((cache(daemon)["hits"], cache(daemon)["misses"]), (0, 4), "the other user's is another entry")
        numbers = itertools.count()

        def kept():
            """What a worker made that had root's image before is not kept, and that worker gets no more."""
            shim.image(image + b"// %d\n" % next(numbers))
            return control.call("ListCache")["entries"]

        entries = wait_until(kept, "an entry of the other user")
        equal({(e["uid"], e["job"]) for e in entries}, {(65534, "image")}, "what the other user sees")
        equal({e["uid"] for e in daemon.json("cache", "list")["entries"]}, {0, 65534}, "what root sees")
        try:
            control.call("ClearCache")
        except VarlinkError as error:
            equal(error.error, "PermissionDenied", "clear")
        else:
            check(False, "another user may clear")
        check(control.call("CacheStatus")["entries"] >= 4, "entries")


if __name__ == "__main__":
    main([value for name, value in list(globals().items()) if name.startswith("test_")])
