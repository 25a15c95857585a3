#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is shared with processes and written for people: processes that lie in their instances or go away at every moment, readers that end,
disks that are full."""

import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

from harness import BUILD, COUNTER, CTL, GPUPROBED, SOURCE, Daemon, check, equal, main, need, wait_until
from wire import AWAITED, DATA_OFFSET, HEADER, IMAGE, PTX, RING, Shim, memfd, message

OBJECTS = f"{BUILD}/tests/e2e/objects"
need(GPUPROBED, CTL, COUNTER, f"{OBJECTS}/rings.bpf.o", f"{OBJECTS}/log.bpf.o")
with open(f"{SOURCE}/tests/targets/vec_add.ptx", "rb") as file:
    VEC_ADD_PTX = file.read()


def alive(daemon):
    """The daemon serves another client as if nothing had happened."""
    shim = Shim(daemon.directory)
    new, _, reason, slots = shim.image(VEC_ADD_PTX)
    check(new and slots, "the daemon does not serve:", reason)
    shim.close()


def descriptors(daemon):
    return len(os.listdir(f"/proc/{daemon.process.pid}/fd"))


def test_full_disk():
    """Where no file may grow, artifacts and instances are refused, one by one; the application and the daemon go on, and so does all later."""
    folder = tempfile.mkdtemp()
    try:
        with Daemon(f"--keep-artifacts={folder}/kept") as daemon:
            daemon.attach("--kernel", "vectorAdd")
            limits = resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (1024, limits[1]))
            shim = Shim(daemon.directory)
            _, _, _, slots = shim.image(VEC_ADD_PTX)
            check(slots, "no twin")
            equal(shim.instance(slots[0][0])[0], None, "an instance that may not grow")
            check(any("no memory" in o["reason"] for o in daemon.why()), daemon.why())
            wait_until(lambda: "artifacts cannot be kept" in daemon.text(), "a warning")
            equal(os.listdir(f"{folder}/kept"), [], "what is left of an artifact")
            resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, limits)
            check(shim.instance(slots[0][0])[0] is not None, "an instance")
            shim.close()
            shim = Shim(daemon.directory)
            shim.image(VEC_ADD_PTX + b"// once more\n")
            kept = wait_until(lambda: [n for n in os.listdir(f"{folder}/kept") if n[0] != "."], "an artifact")
            equal(sorted(os.listdir(f"{folder}/kept/{kept[0]}")), ["main.ptx", "out.fatbin"])
            equal(os.stat(f"{folder}/kept").st_mode & 0o77, 0, "others may read artifacts")
            equal(os.stat(f"{folder}/kept/{kept[0]}/main.ptx").st_mode & 0o77, 0, "others may read an artifact")
            shim.close()
            alive(daemon)
    finally:
        shutil.rmtree(folder)


def test_many_maps():
    """More maps than a module has slots for: the first attachments are applied, and `why` names the rest."""
    with Daemon("--deadline-ms=60000") as daemon:
        for _ in range(5):
            daemon.attach(object=f"{OBJECTS}/many.bpf.o")
        shim = Shim(daemon.directory, timeout=60)
        new, _, reason, slots = shim.image(VEC_ADD_PTX)
        check(new, "no twin:", reason)
        equal(len(slots), 4 * 60, "slots")
        check(any("only the first 4 of them" in o["reason"] for o in daemon.why()), daemon.why())
        shim.close()


def start_ctl(daemon, *arguments):
    return subprocess.Popen([CTL, *arguments], env=daemon.environment(**daemon.tools()), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(reader, status, words):
    """How a reader ended."""
    _, err = reader.communicate(timeout=10)
    equal(reader.returncode, status, err)
    lines = err.splitlines()
    check(words in err and len(lines) == (1 if words else 0), err)


def start_reader(daemon, map_id, *command):
    """A reader that has the ring: another one is refused. If it is that one which has it first, a new one is started."""
    deadline = time.monotonic() + 10
    reader = start_ctl(daemon, *command)
    while "reads it already" not in start_ctl(daemon, "ring", "read", str(map_id)).communicate()[1] or reader.poll() is not None:
        check(time.monotonic() < deadline, "no reader within 10 s", reader.poll())
        if reader.poll() is not None:
            reader.communicate()
            reader = start_ctl(daemon, *command)
    return reader


def ring_instances(daemon, shim):
    """An instance of each ring of the module: [(map, descriptor, size)]."""
    _, _, reason, slots = shim.image(VEC_ADD_PTX)
    check(slots, reason)
    found = []
    for map_id, _, _ in slots:
        if map_id:
            fd, size, _ = shim.instance(map_id)
            if shim.kind == RING:
                found.append((map_id, fd, size))
            else:
                os.close(fd)
    return found


def test_noise_in_rings():
    """A process that writes noise all over its rings while they are read: header, heads, tails, batches with stamps that are right."""
    with Daemon() as daemon:
        daemon.attach(object=f"{OBJECTS}/rings.bpf.o")
        daemon.attach(object=f"{OBJECTS}/log.bpf.o", *("--program", "cuda__log"))
        shim = Shim(daemon.directory)
        rings = ring_instances(daemon, shim)
        equal(len(rings), 4, "rings")
        readers = [start_ctl(daemon, "log", "-f")]
        for map_id, fd, size in rings:
            cookie = struct.unpack("<Q", os.pread(fd, 8, DATA_OFFSET + 48))[0]
            header = struct.unpack(HEADER, os.pread(fd, struct.calcsize(HEADER), 0))
            rings_n, ring_size, data_size = header[13], header[18], header[19]
            first = (DATA_OFFSET + data_size + 4095) // 4096 * 4096 + (rings_n * 64 + 4095) // 4096 * 4096
            for i in range(rings_n):
                stamp = 0x9E3779B97F4A7C15 ^ cookie  # of position 0
                batch = struct.pack(
                    "<QIIQII",
                    stamp,
                    *[(0xFFFFFFFF, 32, 0xFFFFFFFF, 1, 2), (1, 33, 1, 1, 2), (4096, 32, 0, 1, 2), (0, 0, 0, 0, 0), (4, 1, 1 << 40, 0, 0), (8, 2, 3, 0, 0)][
                        i % 6
                    ],
                )
                os.pwrite(fd, batch, first + i * ring_size)
            os.pwrite(fd, b"\xff" * data_size, DATA_OFFSET)  # counters, too
        for map_id, fd, size in rings:
            for _ in range(20):
                os.pwrite(fd, os.urandom(65536), int.from_bytes(os.urandom(4), "little") % (size - 65536))
        for name in "gpu", "standard", "perf":
            daemon.ctl("ring", "read", name, "--raw")
        for found in daemon.json("map", "list")["maps"]:
            if found["kind"] == "ring":
                check(0 <= found["lost"] < 2**63 and 0 <= found["written"] < 2**63, found)
        for _, fd, _ in rings:
            os.pwrite(fd, os.urandom(4096), 0)
            os.close(fd)
        shim.close()
        alive(daemon)
        for name in "gpu", "standard", "perf":
            daemon.ctl("ring", "read", name, "--raw")
        for reader in readers:
            reader.terminate()
            reader.communicate(timeout=10)


def test_detached_while_read():
    """Whoever reads a ring, a log or a map ends, or goes on where there may be more, when it is detached; nothing stays."""
    with Daemon() as daemon:
        alive_before = descriptors(daemon)
        for _ in range(5):
            ids = daemon.attach(object=f"{OBJECTS}/rings.bpf.o") + daemon.attach("--program", "cuda__log", object=f"{OBJECTS}/log.bpf.o")
            shim = Shim(daemon.directory)
            rings = ring_instances(daemon, shim)
            reader = start_reader(daemon, "gpu", "ring", "read", "gpu", "-f")
            logs = [m["id"] for m in daemon.json("map", "list")["maps"] if m["name"] == ".log"]
            log = start_reader(daemon, logs[0], "log", "-f") if logs else start_ctl(daemon, "log", "-f")
            for i in ids:
                daemon.ctl("detach", str(i))
            ended(reader, 5, "detached")
            equal(log.poll(), None, "the log of all objects goes on")
            log.terminate()
            log.communicate(timeout=10)
            check(shim.instance(rings[0][0])[0] is None, "an instance of a map that is detached")
            for _, fd, _ in rings:
                os.close(fd)
            shim.close()
            equal(daemon.json("map", "list")["maps"], [])
        wait_until(lambda: descriptors(daemon) <= alive_before + 8, "descriptors are given back")
        daemon.attach()
        alive(daemon)


def test_killed_while_read():
    """Readers of a daemon that is killed say so, wait for the next one, and end when they are told to."""
    with Daemon() as daemon:
        daemon.attach(object=f"{OBJECTS}/rings.bpf.o")
        readers = [start_reader(daemon, "gpu", "ring", "read", "gpu", "-f"), start_ctl(daemon, "log", "-f")]
        time.sleep(0.1)
        daemon.kill()
        for reader in readers:
            said = reader.stderr.readline()
            check("waiting for the next" in said, said)
            equal(reader.poll(), None, "it waits")
            reader.send_signal(signal.SIGINT)
            _, err = reader.communicate(timeout=10)
            equal((reader.returncode, err), (0, ""))


def test_large_maps():
    """Processes with large maps end one after the other, in good order or not; all is counted, at every moment, and others are served."""
    with Daemon() as daemon:
        daemon.attach("--threads", "1000000", object=f"{OBJECTS}/maps.bpf.o")
        maps = {m["name"]: m["id"] for m in daemon.json("map", "list")["maps"]}

        def total():
            entries = daemon.dump(str(maps["threads"]), "--nonzero")
            return sum(e["value"] for e in entries), len(entries)

        for i in range(1, 4):
            shim = Shim(daemon.directory)
            shim.image(VEC_ADD_PTX)
            fd, size, data_size = shim.instance(maps["threads"])
            equal(data_size, 16000000)
            for at in range(0, data_size, 800000):
                os.pwrite(fd, struct.pack("<Q", 7), DATA_OFFSET + at)
            hash_fd, hash_size, _ = shim.instance(maps["hash"])
            os.pwrite(hash_fd, os.urandom(hash_size), 0)
            shim.close()
            alive(daemon)
            for _ in range(3):
                equal(total(), (7 * 20 * i, 20))
            daemon.dump(str(maps["hash"]))
            os.close(fd)
            os.close(hash_fd)

        def folded():
            return all(m["instances"] == 0 for m in daemon.json("map", "list")["maps"])

        wait_until(folded, "the instances are folded")
        equal(total(), (7 * 20 * 3, 20))
        # detached, and stopped, in the middle of it
        shim = Shim(daemon.directory)
        shim.image(VEC_ADD_PTX)
        fds = [shim.instance(maps[name])[0] for name in ("threads", "host_threads", "hash")]
        shim.close()
        daemon.ctl("detach", "1")
        alive_after = daemon.attach("--threads", "1000000", object=f"{OBJECTS}/maps.bpf.o")
        check(alive_after, "not attached again")
        shim = Shim(daemon.directory)
        shim.image(VEC_ADD_PTX)
        maps = {m["name"]: m["id"] for m in daemon.json("map", "list")["maps"]}
        fds += [shim.instance(maps[name])[0] for name in ("threads", "host_threads", "hash")]
        shim.close()
        for fd in fds:
            os.close(fd)


def test_many_processes():
    """Descriptors and memory of processes that come and go, with rings that nobody reads, have a bound."""
    with Daemon() as daemon:
        daemon.attach(object=f"{OBJECTS}/rings.bpf.o")
        counts = []
        for i in range(24):
            shim = Shim(daemon.directory)
            for map_id, fd, size in ring_instances(daemon, shim):
                cookie = struct.unpack("<Q", os.pread(fd, 8, DATA_OFFSET + 48))[0]
                header = struct.unpack(HEADER, os.pread(fd, struct.calcsize(HEADER), 0))
                first = (DATA_OFFSET + header[19] + 4095) // 4096 * 4096 + (header[13] * 64 + 4095) // 4096 * 4096
                os.pwrite(fd, struct.pack("<IIQII", 8, 1, 1, 2, 3) + b"\0" * 8, first + 8)
                os.pwrite(fd, struct.pack("<Q", 0x9E3779B97F4A7C15 ^ cookie), first)  # a record
                os.close(fd)
            shim.close()
            wait_until(lambda: all(m["bytes"] <= 64 << 20 for m in daemon.json("map", "list")["maps"]), "rings are folded")
            counts.append(descriptors(daemon))
        check(counts[-1] <= counts[11] + 2, counts)  # a socket or two may not be closed yet
        found = [m for m in daemon.json("map", "list")["maps"] if m["kind"] == "ring"]
        for m in found:
            lines = daemon.ctl("ring", "read", str(m["id"]), "--raw").splitlines()
            check(0 < len(lines) < 24, len(lines), "records")
            equal(len(lines) + m["lost"], 24, "records read and lost")
        alive(daemon)
        wait_until(lambda: descriptors(daemon) < counts[11] - 15, "drained rings are given back")


def sleeping(seconds):
    """Whether a process runs `sleep seconds`."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if file.read().split(b"\0")[1:2] == [seconds.encode()]:
                    return True
        except OSError:
            pass
    return False


def test_killed_in_pass():
    """A daemon that is killed, or an application, while a pass of the user runs that has started others: nothing of it stays."""
    need(f"{BUILD}/daemon/worker/ptxpass/gpuprobe-pass-worker")
    for victim in "daemon", "application", "pass":
        folder = tempfile.mkdtemp()
        try:
            os.chmod(folder, 0o755)  # a worker of root runs as nobody
            seconds = f"4321.{os.getpid()}"
            with open(f"{folder}/hang", "w") as file:
                file.write(
                    f"#!/bin/sh\n(sleep {seconds} & sleep {seconds}) & exec sleep {seconds}\n"
                    if victim != "pass"
                    else f"#!/bin/sh\nsleep {seconds} &\nkill -SEGV $$\n"
                )
            os.chmod(f"{folder}/hang", 0o755)
            with open(f"{folder}/hang.json", "w") as file:
                json.dump({"name": "hang", "executable": "hang", "timeout_ms": 3000, "attach_points": {"include": ["kprobe/*"]}}, file)
            with Daemon("--pass-dir", folder) as daemon:
                daemon.attach("--kernel", "vectorAdd")
                shim = Shim(daemon.directory, timeout=30)
                fd = memfd(VEC_ADD_PTX)
                shim.send(message(IMAGE, len(VEC_ADD_PTX), PTX, AWAITED, 9, 0, 0, 0), fd)
                os.close(fd)
                if victim == "pass":
                    new, _, _, slots = shim.image_reply()
                    check(new and slots, "no twin")
                    check(any("hang: ended by signal 11" in o["reason"] for o in daemon.why()), daemon.why())
                else:
                    wait_until(lambda: sleeping(seconds), "the pass runs")
                if victim == "daemon":
                    daemon.kill()
                shim.close()
                wait_until(lambda: not sleeping(seconds), f"with the {victim} killed, what the pass started is gone")
                if victim == "application":
                    alive(daemon)
        finally:
            shutil.rmtree(folder)


def test_other_user():
    """Rings, logs, kernels and instructions are another user's; what is put into his own processes he may know."""
    if os.getuid() != 0:
        return
    with Daemon() as daemon:
        daemon.attach(object=f"{OBJECTS}/rings.bpf.o")
        daemon.attach("--program", "cuda__log", object=f"{OBJECTS}/log.bpf.o")
        daemon.attach("--kernel", "vectorAdd", object=f"{OBJECTS}/memory.bpf.o", *("--uid", "0"))
        shim = Shim(daemon.directory)
        rings = ring_instances(daemon, shim)
        names = [m["name"] for m in daemon.json("map", "list")["maps"]]
        ids = [m["id"] for m in daemon.json("map", "list")["maps"]]
        check(daemon.json("kernel", "list")["kernels"], "no kernel")
        check(daemon.json("kernel", "show", "vectorAdd")["instructions"], "no instruction")
        script = f"""
import encodings.idna, os, sys
sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
from varlink import Connection, VarlinkError
from wire import Shim
ptx = open({SOURCE + "/tests/targets/vec_add.ptx"!r}, "rb").read()
os.setgroups([]); os.setgid(65534); os.setuid(65534)
bus = Connection({daemon.directory!r})
def error(method, **parameters):
    try:
        return bus.call(method, **parameters)
    except VarlinkError as e:
        return e.error
def seen():
    print({{error("ReadRing", map=m) for m in {names + [str(i) for i in ids]!r}}}, error("ReadLog", object=1), error("ReadLog"),
          {{error("DumpMap", map=m) for m in {names!r}}}, error("ShowKernel", kernel="*"), error("ShowKernel", instruction="100000000"),
          [k["name"] for k in bus.call("ListKernels")["kernels"]])
seen()
shim = Shim({daemon.directory!r})
shim.image(ptx)
seen()
"""
        os.chmod(daemon.directory, 0o755)  # as in system mode
        for name in ("io.gpuprobe.control", "shim.sock"):
            os.chmod(f"{daemon.directory}/{name}", 0o666)
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
        nothing = "{'NotFound'} NotFound {'lines': [], 'lost': 0} {'NotFound'} NotFound NotFound "
        check(len(done.stdout.splitlines()) == 2, done.stdout + done.stderr)
        equal(done.stdout.splitlines()[0], nothing + "[]")
        check("vectorAdd" in done.stdout.splitlines()[1] and "lines': []" in done.stdout.splitlines()[1], done.stdout)
        for _, fd, _ in rings:
            os.close(fd)
        os.chmod(daemon.directory, 0o700)
        shim.close()


if __name__ == "__main__":
    main(
        [
            test_full_disk,
            test_many_maps,
            test_noise_in_rings,
            test_detached_while_read,
            test_killed_while_read,
            test_large_maps,
            test_many_processes,
            test_killed_in_pass,
            test_other_user,
        ]
    )
