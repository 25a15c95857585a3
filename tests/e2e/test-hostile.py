#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients of the shim socket that do everything wrong. The daemon closes their connection and goes on."""

import array
import fcntl
import os
import resource
import socket
import struct
import sys
import tempfile
import time

from harness import BUILD, COUNTER, CTL, GPUPROBED, SOURCE, Daemon, check, equal, main, need, resident, wait_until
from wire import (
    AWAITED,
    ARMED,
    CUBIN,
    FATBIN,
    HEADER,
    HELLO,
    IMAGE,
    IMAGE_REPLY,
    INSTANCE,
    LOADER,
    MIRROR,
    PTX,
    REPORT,
    SYNCED,
    UNLOAD,
    WELCOME,
    Closed,
    Shim,
    in_child,
    memfd,
    message,
)

need(GPUPROBED, CTL, COUNTER)
with open(f"{SOURCE}/tests/targets/vec_add.ptx", "rb") as file:
    VEC_ADD_PTX = file.read()
IMAGE_FIELDS = (PTX, AWAITED, 9, 0, 0, 0)


def alive(daemon):
    """The daemon serves another client as if nothing had happened."""
    shim = Shim(daemon.directory)
    new, _, reason, slots = shim.image(VEC_ADD_PTX)
    check(new and slots, "the daemon does not serve:", reason)
    shim.close()


STATE = struct.calcsize(HEADER) - 8  # of map_header.state


def refused(daemon, data, *fds, hello=True, role=LOADER):
    shim = Shim(daemon.directory, role=role, hello=hello)
    try:
        shim.send(data, *fds)
        check(shim.closed(), "not refused:", data[:24])
    except Closed:
        pass
    shim.close()


def test_malformed():
    with Daemon() as daemon:
        daemon.attach("--kernel", "vectorAdd")
        fd = memfd(VEC_ADD_PTX)
        image = message(IMAGE, len(VEC_ADD_PTX), *IMAGE_FIELDS)
        refused(daemon, image, fd, hello=False)
        refused(daemon, b"x", hello=False)
        refused(daemon, b"x" * 5000, hello=False)
        refused(daemon, message(HELLO, 99, 0, b""), hello=False)
        refused(daemon, message(HELLO, LOADER, 0, b""), fd, hello=False)
        refused(daemon, message(HELLO, LOADER, 0, b""))  # twice
        for bad in ({"magic": 1}, {"version": 1}, {"version": 99}, {"size": 4}, {"size": 10000}):
            refused(daemon, message(IMAGE, len(VEC_ADD_PTX), *IMAGE_FIELDS, **bad), fd)
        refused(daemon, image[:-1], fd)
        refused(daemon, image + b"x", fd)
        refused(daemon, image)  # no descriptor
        refused(daemon, image, fd, fd)  # two
        refused(daemon, image, *[fd] * 200)  # many
        refused(daemon, message(ARMED, 1, 0, 0), fd)
        refused(daemon, message(WELCOME, 1, 1, 1, 0, b"", 0))
        refused(daemon, message(SYNCED))
        refused(daemon, message(UNLOAD, 1), role=MIRROR)
        refused(daemon, message(IMAGE, len(VEC_ADD_PTX), 9, 0, 9, 0, 0, 0), fd)
        refused(daemon, message(REPORT, 1, b"x" * 192))
        os.close(fd)
        alive(daemon)


def test_bad_descriptors():
    with Daemon() as daemon:
        daemon.attach("--kernel", "vectorAdd")
        size = len(VEC_ADD_PTX)
        image = message(IMAGE, size, *IMAGE_FIELDS)
        part = fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
        cases = [
            memfd(VEC_ADD_PTX, seals=0),
            memfd(VEC_ADD_PTX, seals=part),
            memfd(VEC_ADD_PTX + b"x"),
            memfd(VEC_ADD_PTX[:-1]),
            memfd(b"x"),
            os.open("/dev/zero", os.O_RDWR),
            os.open("/etc/passwd", os.O_RDONLY),
            os.open("/tmp", os.O_RDONLY),
            *os.pipe(),
            os.open("/proc/self/mem", os.O_RDONLY),
        ]
        for fd in cases:
            refused(daemon, image, fd)
            os.close(fd)
        alive(daemon)


def test_unknown_names():
    """Modules and maps that the process was not given are no breach, and give nothing."""
    with Daemon() as daemon:
        daemon.attach("--kernel", "vectorAdd")
        shim = Shim(daemon.directory)
        equal(shim.instance(1)[:2], (None, 0), "a map without a module")
        new, module, _, slots = shim.image(VEC_ADD_PTX)
        check(new)
        for map_id in (0, slots[0][0] + 1, 2**64 - 1):
            equal(shim.instance(map_id)[:2], (None, 0), "an unknown map")
        for wrong in (0, module + 1, 2**64 - 1):
            shim.send(message(ARMED, wrong, 0, 0))
            shim.send(message(UNLOAD, wrong))
            shim.send(message(REPORT, wrong, b"no \x1b[31m way"))
        fd, size, _ = shim.instance(slots[0][0])
        check(fd is not None and size)
        shim.send(message(UNLOAD, module))
        equal(shim.instance(slots[0][0], 1)[:2], (None, 0), "a map whose module is unloaded")
        check(any(o["reason"] == "no ?[31m way" for o in daemon.why()), "a report is remembered, made printable")
        shim.close()
        alive(daemon)


def test_instance_is_sealed():
    """A process may write what it likes into its instance, and can neither shrink it nor fool the reader."""
    with Daemon() as daemon:
        daemon.attach("--kernel", "vectorAdd")
        shim = Shim(daemon.directory)
        _, module, _, slots = shim.image(VEC_ADD_PTX)
        fd, size, data_size = shim.instance(slots[0][0])
        for length in (0, size - 1, size + 4096):
            try:
                os.ftruncate(fd, length)
            except PermissionError:
                continue
            check(False, "an instance changed its size")
        os.pwrite(fd, os.urandom(4096), 0)  # the whole header
        os.pwrite(fd, struct.pack("<Q", 99), 4096)
        equal(daemon.count_of(), 99)
        equal(daemon.count_of(), 99)
        shim.close()
        wait_until(lambda: daemon.json("map", "list")["maps"][0]["instances"] == 0, "the instance is folded")
        equal(daemon.count_of(), 99)
        alive(daemon)


def test_contexts():
    """Each context has an instance of its own. One that has ended hands its instance on, but for data that modules may hold: it begins with zeros."""
    with Daemon() as daemon:
        daemon.attach("--kernel", "vectorAdd")
        for name in "gpu-array", "percpu":
            daemon.attach("--kernel", "vectorAdd", object=os.path.join(BUILD, f"daemon/translator/objects/{name}.bpf.o"))
        shim = Shim(daemon.directory)
        _, module, _, slots = shim.image(VEC_ADD_PTX)
        merges = {m["id"]: m["merge"] for m in daemon.json("map", "list")["maps"]}
        for map_id, _, _ in slots:
            first, second = (shim.instance(map_id)[0] for _ in range(2))
            other = shim.instance(map_id, 1)[0]
            for fd, value in ((first, 1), (second, 20), (other, 300)):
                os.pwrite(fd, struct.pack("<Q", value), 4096)
            os.pwrite(first, struct.pack("<I", 2), STATE)  # map_header.state: FINAL
            third = shim.instance(map_id)[0]
            if merges[map_id] == "sum64":
                equal(daemon.count_of(str(map_id)), 321)
                equal([e["value"] for e in daemon.dump(str(map_id), "--per-process")], [321])
            if merges[map_id] in ("sum64", "latest"):
                equal(os.pread(third, 8, 4096), bytes(8), "it begins with")
                equal(len({os.fstat(fd).st_ino for fd in (first, second, other, third)}), 4, "instances")
            else:
                check(merges[map_id] in ("none", "percpu"), merges)
                check(os.path.sameopenfile(first, third), "the instance of a context that has ended is not handed on")
                equal(struct.unpack("<I", os.pread(third, 4, STATE))[0], 0, "its state")
            for fd in (first, second, other, third):
                os.close(fd)
        check({"sum64", "percpu"} <= set(merges.values()), merges)
        n = 0
        while True:
            fd, size, _ = shim.instance(slots[0][0])
            if fd is None:
                break
            os.close(fd)
            n += 1
            check(n < 500, "no limit of contexts")
        shim.close()
        alive(daemon)


def test_malformed_images():
    with Daemon() as daemon:
        daemon.attach("--kernel", "*")
        shim = Shim(daemon.directory)
        images = [
            (b"\0", FATBIN),
            (b"\x50\xed\x55\xba" + b"\xff" * 60, FATBIN),
            (os.urandom(100000), FATBIN),
            (b"\x7fELF", CUBIN),
            (os.urandom(5000), CUBIN),
            (os.urandom(5000), PTX),
            (VEC_ADD_PTX[:500], PTX),
            (VEC_ADD_PTX, FATBIN),
            (VEC_ADD_PTX, CUBIN),
            (b"{" * 100000, PTX),
            (b".version 8.0\n.target sm_90\n.address_size 64\n", PTX),
        ]
        reasons = set()
        for data, kind in images:
            new, module, reason, slots = shim.image(data, kind=kind)
            reasons.add(reason)
            check(new is None and not slots and module, "an image that is none has a twin")
            check(reason and reason.isprintable(), "no reason for", data[:20], kind)
        equal({outcome["reason"] for outcome in daemon.why()}, reasons, "outcomes: the same reason is told once")
        equal(daemon.status()["counters"]["worker_crashes"], 0, "crashes")
        alive(daemon)


def test_hang_up():
    """Clients that leave at every moment of a request."""
    with Daemon() as daemon:
        daemon.attach("--kernel", "vectorAdd")
        alive(daemon)
        before = len(os.listdir(f"/proc/{daemon.process.pid}/fd"))
        for i in range(40):
            shim = Shim(daemon.directory, hello=i % 4 != 0)
            if i % 4 >= 2:
                data = VEC_ADD_PTX + b"\n// %d\n" % i
                fd = memfd(data)
                shim.send(message(IMAGE, len(data), *IMAGE_FIELDS), fd)
                os.close(fd)
                if i % 4 == 3:
                    time.sleep(0.005)
            shim.close()
        alive(daemon)
        kept = 2 * 20  # what the images were made into, and their lists of names
        wait_until(lambda: len(os.listdir(f"/proc/{daemon.process.pid}/fd")) <= before + kept, "descriptors are given back", 60)


def test_hang_up_slow():
    """Who asks and leaves has asked: the work goes on beyond his deadline, and serves the next one."""
    with Daemon("--image-worker-argument=--test-fault=slow", "--deadline-ms=2000") as daemon:
        daemon.attach("--kernel", "vectorAdd")
        shim = Shim(daemon.directory)
        fd = memfd(VEC_ADD_PTX)
        shim.send(message(IMAGE, len(VEC_ADD_PTX), *IMAGE_FIELDS), fd)
        os.close(fd)
        shim.close()
        time.sleep(1.9)  # the deadline is over, the work is not
        alive(daemon)
        counters = daemon.status()["counters"]
        equal((counters["images"], counters["images_own"], counters["worker_timeouts"]), (2, 0, 0), "images, own, timeouts")


def test_second_request():
    """A request while one is in work is a breach; the daemon survives it and the first one's end."""
    with Daemon() as daemon:
        daemon.attach("--kernel", "vectorAdd")
        shim = Shim(daemon.directory)
        fd = memfd(VEC_ADD_PTX + b"//x\n")
        data = message(IMAGE, len(VEC_ADD_PTX) + 4, *IMAGE_FIELDS)
        shim.send(data, fd)
        try:
            shim.send(data, fd)
            shim.receive()
            shim.receive()
            shim.receive()
            check(False, "two requests at a time")
        except Closed:
            pass
        os.close(fd)
        alive(daemon)


def test_quotas():
    with Daemon("--deadline-ms=600000") as daemon:
        daemon.attach("--kernel", "vectorAdd")
        # connections of one uid
        shims = []
        for _ in range(256):
            shims.append(Shim(daemon.directory, hello=False))
        try:
            Shim(daemon.directory)
            check(False, "the 257th connection of a uid is served")
        except (Closed, ConnectionError):
            pass
        for shim in shims:
            shim.close()

        def again():
            try:
                alive(daemon)
                return True
            except (Closed, ConnectionError):
                return False

        wait_until(again, "connections are given back")
        # images in work of one uid: the surplus waits for its turn
        shims = [Shim(daemon.directory) for _ in range(60)]
        for i, shim in enumerate(shims):
            data = VEC_ADD_PTX + b"// different %d\n" % i
            fd = memfd(data)
            shim.send(message(IMAGE, len(data), *IMAGE_FIELDS), fd)
            os.close(fd)
        replies = [shim.image_reply() for shim in shims]
        equal([reply[2] for reply in replies if reply[0] is None], [], "of 60 images at once")
        for shim in shims:
            shim.close()
        alive(daemon)


# Answers at once, but for images with a certain word: never.
HANGING_WORKER = """#!{python}
import array, json, os, socket, time
s = socket.socket(fileno=3)
s.send(b'{{"ready":true,"features":{{}}}}')
while True:
    data, ancillary, _, _ = s.recvmsg(131072, 4096)
    if not data:
        break
    fds = array.array("i", ancillary[0][2])
    while b"hang" in os.pread(fds[0], 1 << 20, 0):
        time.sleep(1000)
    for fd in fds:
        os.close(fd)
    s.send(json.dumps({{"id": json.loads(data)["id"], "status": "own", "reason": "fine"}}).encode())
"""


def test_slow_images():
    """Images that take for ever: few go on, each charged to its user until its end; the pool has its workers for others."""
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/gpuprobe-image-worker", "w") as file:
            file.write(HANGING_WORKER.format(python=sys.executable))
        os.chmod(f"{folder}/gpuprobe-image-worker", 0o755)
        os.symlink(f"{BUILD}/daemon/translator/gpuprobe-program-worker", f"{folder}/gpuprobe-program-worker")
        with Daemon(f"--worker-dir={folder}", "--workers=2", "--deadline-ms=1500") as daemon:
            ids = daemon.attach("--kernel", "*")
            numbers = iter(range(1000))

            def hang(n):
                """Loads n images that hang, by n connections of a process, which are closed then; the reasons."""
                datas = [b"hang %d" % next(numbers) for _ in range(n)]

                def work():
                    shims = [Shim(daemon.directory) for _ in datas]
                    for shim, data in zip(shims, datas):
                        fd = memfd(data)
                        shim.send(message(IMAGE, len(data), *IMAGE_FIELDS), fd)
                        os.close(fd)
                    return [shim.image_reply()[2] for shim in shims]

                return in_child(work)

            def served():
                datas = [b"%d" % next(numbers) for _ in range(5)]

                def work():
                    shim = Shim(daemon.directory)
                    return [shim.image(data)[2] for data in datas]

                equal(in_child(work), ["fine"] * 5)

            served()
            said = hang(6)
            late = [s for s in said if "late: the 1350 ms" in s]
            equal((len(late), said.count("worker timed out: too many other jobs take as long")), (5, 1), said)
            served()
            # beside the one that goes on there is no room for what is as large as the quota
            shim, fd = Shim(daemon.directory), memfd(b"", size=256 << 20)
            shim.send(message(IMAGE, 256 << 20, *IMAGE_FIELDS), fd)
            os.close(fd)
            check(shim.image_reply()[2].startswith("quota:"), "over the quota")
            shim.close()
            served()
            daemon.ctl("detach", str(ids[0]))
            daemon.attach("--kernel", "*")
            served()
            said = hang(32)
            check(not any(s.startswith("quota:") for s in said), "what was charged is not given back:", said)
            served()


def test_slow_reader():
    """A client that asks and never reads cannot make the daemon wait, or keep its answers without bound."""
    with Daemon() as daemon:
        daemon.attach("--kernel", "vectorAdd")
        slow = Shim(daemon.directory)
        slow.image(VEC_ADD_PTX)
        slow.socket.setblocking(False)
        sent = 0
        try:
            for _ in range(100000):
                slow.send(message(INSTANCE, 12345, 0, 0))
                sent += 1
        except (BlockingIOError, Closed):
            pass
        check(sent < 100000, "the daemon reads on without an end")
        start = time.monotonic()
        alive(daemon)
        check(time.monotonic() - start < 2, "others wait for a slow one")
        rss = resident(daemon.process.pid)
        check(rss < 100000, "the daemon uses", rss, "kB")
        slow.close()


def test_flood():
    """Requests without a pause from several clients; another one is still served, each time before the daemon's own deadline."""
    with Daemon() as daemon:
        daemon.attach("--kernel", "vectorAdd")
        floods = [Shim(daemon.directory) for _ in range(20)]
        for shim in floods:
            shim.socket.setblocking(False)
        victim = Shim(daemon.directory)
        for _ in range(20):
            for shim in floods:
                try:
                    for _ in range(50):
                        shim.send(message(REPORT, 1, b"flood"))
                except BlockingIOError:
                    pass
            new, *_ = victim.image(VEC_ADD_PTX)
            check(new)


if __name__ == "__main__":
    main(
        [
            test_malformed,
            test_bad_descriptors,
            test_unknown_names,
            test_instance_is_sealed,
            test_contexts,
            test_malformed_images,
            test_hang_up,
            test_hang_up_slow,
            test_second_request,
            test_quotas,
            test_slow_images,
            test_slow_reader,
            test_flood,
        ]
    )
