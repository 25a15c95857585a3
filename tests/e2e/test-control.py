#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The control interface: what is refused and how, who may do what, big maps, clients that go away."""

import base64
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

from harness import BUILD, COUNTER, CTL, GPUPROBED, SOURCE, Daemon, Failed, check, equal, main, need, wait_until
from varlink import Connection, VarlinkError
from wire import ARMED, AWAITED, DISARM, IMAGE, MIRROR, PTX, SYNC, SYNCED, Closed, Shim, memfd, message

OBJECTS = os.path.join(BUILD, "daemon/translator/objects")
need(GPUPROBED, CTL, COUNTER, OBJECTS)
with open(f"{SOURCE}/tests/targets/vec_add.ptx", "rb") as file:
    VEC_ADD_PTX = file.read()


def encoded(name):
    path = COUNTER if name == "counter" else os.path.join(OBJECTS, name + ".bpf.o")
    with open(path, "rb") as opened:
        return base64.b64encode(opened.read()).decode()


def error(connection, method, **parameters):
    try:
        reply = connection.call(method, **parameters)
    except VarlinkError as refused:
        return refused.error, refused.parameters
    raise Failed(f"{method} {list(parameters)} is not refused: {reply}")


def test_examine():
    """What the daemon says of itself, and what of it is for whom: only who may attach has workers asked."""

    def checks(connection):
        return {check["id"]: check for check in connection.call("Examine")["checks"]}

    with Daemon() as daemon:
        found = checks(Connection(daemon.directory))
        check(found["daemon.image-worker"]["found"].startswith("answers in"), found)
        check(found["daemon.program-worker"]["state"] == "ok", found)
        check(found["daemon.restrictions"]["state"] == "skipped", found)
        check(daemon.status()["compiler"] != "unknown yet", "a worker has answered")
        missing = daemon.status()["missing"]
        said = [" ".join((part["found"], part["todo"])) for part in found.values()]
        for line in missing:
            check(line.replace("; ", " ", 1) in said, line, said)
        # a caller who goes away meanwhile
        for _ in range(20):
            connection = Connection(daemon.directory)
            connection.send("Examine")
            connection.close()
        check(checks(Connection(daemon.directory)).keys() == found.keys())
    with Daemon("--verify=off", "--image-worker-argument=--test-fault=crash") as daemon:
        found = checks(Connection(daemon.directory))
        equal(found["daemon.verifier"]["state"], "warning")
        equal(
            (found["daemon.image-worker"]["state"], found["daemon.image-worker"]["todo"]), ("failed", "its last words are in the standard error of the daemon")
        )
    with Daemon("--verify=off", "--toolkit=/nowhere", "--metrics=/nowhere/x.prom") as daemon:
        for part in "toolkit", "metrics":
            wait_until(lambda part=part: any(line.startswith(f"--{part}=/nowhere") for line in daemon.status()["missing"]), part)
            found = checks(Connection(daemon.directory))[f"daemon.{part}"]
            equal(found["state"], "warning")
            check("No such file" in found["found"], found)
    with Daemon("--verify=off", "--image-worker-argument=--no-such-option") as daemon:
        equal(daemon.status()["compiler"], "unknown yet", "no worker starts")


def test_attach_errors():
    with Daemon() as daemon:
        bus = Connection(daemon.directory)
        cases = [
            ({"object": "!!"}, "InvalidArgument", "base64"),
            ({"object": ""}, "InvalidArgument", "empty"),
            ({"object": base64.b64encode(b"\x7fELF" + b"x" * 1000).decode()}, "InvalidObject", ""),
            ({"object": encoded("counter"), "program": "nobody"}, "NotFound", "nobody"),
            ({"object": encoded("counter"), "kernel": ""}, "InvalidArgument", "glob"),
            ({"object": encoded("counter"), "kernel": "x" * 2048}, "InvalidArgument", "2047"),
            ({"object": encoded("counter"), "kernel": "a\nb"}, "InvalidArgument", "printable"),
            ({"object": encoded("counter"), "filter": {"pid": 0}}, "InvalidArgument", "process id"),
            ({"object": encoded("counter"), "filter": {"uid": -1}}, "InvalidArgument", "user id"),
            ({"object": encoded("counter"), "filter": {"comm": "x" * 16}}, "InvalidArgument", "15"),
            ({"object": encoded("counter"), "filter": {"exe": "python3"}}, "InvalidArgument", "absolute"),
            ({"object": encoded("past-end")}, "VerificationFailed", "invalid access to map value"),
            ({"object": encoded("no-null-check")}, "VerificationFailed", "map_value_or_null"),
            ({"object": encoded("endless")}, "VerificationFailed", ""),
            ({"object": encoded("counter"), "point": "kprobe/f@x.cu"}, "InvalidArgument", "expected FILE:LINE, block:N, or one of call, "),
            ({"object": encoded("counter"), "point": "uprobe/f"}, "InvalidArgument", "expected kprobe/"),
            ({"object": encoded("counter"), "point": "kprobe/"}, "InvalidArgument", "--kernel"),
            ({"object": encoded("counter"), "point": ""}, "InvalidArgument", "section"),
            ({"object": encoded("counter"), "spaces": ["shared"]}, "InvalidArgument", "memory instructions"),
            ({"object": encoded("counter"), "point": "memcapture/f", "spaces": ["texture"]}, "InvalidArgument", "texture"),
            ({"object": encoded("counter"), "point": "memcapture/f", "spaces": []}, "InvalidArgument", "empty"),
            ({"object": encoded("counter"), "threads": 0}, "InvalidArgument", "268435456"),
            ({"object": encoded("counter"), "threads": 1 << 40}, "InvalidArgument", "268435456"),
            ({"object": encoded("counter"), "ring_size": 16383}, "InvalidArgument", "16 KiB"),
            ({"object": encoded("counter"), "ring_size": (2 << 30) + 1}, "InvalidArgument", "2 GiB"),
            ({"object": encoded("context"), "point": "memcapture/f"}, "CompileFailed", "at a memory access it has 80 bytes"),
            ({"object": encoded("exit")}, "VerificationFailed", "bpf_cuda_exit"),
            ({"object": encoded("host")}, "InvalidObject", "the object has none for the GPU"),
            ({"object": encoded("host"), "program": "on_unlink"}, "InvalidObject", "cuda__"),
            ({"object": encoded("extern")}, "InvalidObject", ""),
        ]
        for parameters, wanted, words in cases:
            name, details = error(bus, "Attach", **parameters)
            shown = {k: v for k, v in parameters.items() if k != "object"}
            check(name == wanted and words in str(details), f"{shown}: {name} {str(details)[:300]}, expected {wanted} {words}")
        equal(bus.call("List"), {"attachments": []})
        equal(bus.call("ListMaps"), {"maps": []})
        equal(bus.call("Status")["counters"]["worker_crashes"], 0, "crashes")
        name, details = error(bus, "Attach", object=encoded("past-end"))
        equal(details["program"], "cuda__past_end")
        check("count[1] = 2" in details["log"], "the log has no source line:", details["log"])
        bus.close()


def test_objects():
    """What the operator's objects look like once attached."""
    with Daemon() as daemon:
        bus = Connection(daemon.directory)
        reply = bus.call("Attach", object=encoded("calls"))
        equal([(a["program"], a["kernel"]) for a in reply["attachments"]], [("cuda__first", "first"), ("cuda__second", "second")])
        equal(len({a["object"] for a in reply["attachments"]}), 1)
        equal([m["name"] for m in reply["maps"]], ["out"])
        first, second = (a["id"] for a in reply["attachments"])
        bus.call("Detach", id=first)
        equal(len(bus.call("ListMaps")["maps"]), 1, "the map goes with the last one only")
        bus.call("Detach", id=second)
        equal(bus.call("ListMaps")["maps"], [])
        equal(error(bus, "Detach", id=second), ("NotFound", {"what": f"attachment {second}"}))
        equal(error(bus, "Detach", id=-1)[0], "NotFound")
        reply = bus.call("Attach", object=encoded("calls"), program="cuda__second", kernel="other*", filter={"uid": 5, "comm": "x", "exe": "/bin/x*", "pid": 7})
        equal(
            [(a["program"], a["kernel"], a["filter"]) for a in reply["attachments"]],
            [("cuda__second", "other*", {"uid": 5, "comm": "x", "exe": "/bin/x*", "pid": 7})],
        )
        reply = bus.call("Attach", object=encoded("percpu"))
        equal([(m["type"], m["merge"]) for m in reply["maps"]], [("percpu_array", "percpu")])
        reply = bus.call("Attach", object=encoded("gpu-array"))
        equal([(m["name"], m["max_entries"]) for m in reply["maps"]], [("slots", 1024)])
        reply = bus.call("Attach", object=encoded("globals"))
        equal({m["name"] for m in reply["maps"]} & {"out", ".rodata", ".data", ".bss"}, {m["name"] for m in reply["maps"]})
        entries = bus.call("DumpMap", map=".data")["entries"]
        check(b"label" in base64.b64decode(entries[0]["values"][0]), "initial values", entries)
        bus.close()


def test_points():
    """What was asked for is listed; maps lie where they were asked to lie."""
    with Daemon() as daemon:
        bus = Connection(daemon.directory)
        bus.call("Attach", object=encoded("counter"), point="kprobe/dev:f@x.cu:12", kernel="g*")
        bus.call("Attach", object=encoded("counter"), point="kprobe/__memcapture", spaces=["global", "param"])
        bus.call("Attach", object=encoded("calls"), point="kprobe/both@block:2")
        equal(
            [(a["section"], a["point"], a["kernel"]) for a in bus.call("List")["attachments"]],
            [
                ("kprobe/dev:f@x.cu:12", "line", "g*"),
                ("kprobe/__memcapture", "memory", "*"),
                ("kprobe/both@block:2", "block", "both"),
                ("kprobe/both@block:2", "block", "both"),
            ],
        )
        equal([(m["kind"], m["place"], m["merge"]) for m in bus.call("Attach", object=encoded("counter"))["maps"]], [("array", "device", "sum64")])
        reply = bus.call("Attach", object=encoded("counter"), shared=True)
        equal([(m["kind"], m["place"], m["merge"], m["shards"]) for m in reply["maps"]], [("array", "host", "none", 1)])
        for method, parameters, wanted in (
            ("ListKernels", {"pid": 0}, "InvalidArgument"),
            ("ShowKernel", {}, "InvalidArgument"),
            ("ShowKernel", {"kernel": "f", "instruction": "1"}, "InvalidArgument"),
            ("ShowKernel", {"instruction": "xyz"}, "InvalidArgument"),
            ("ShowKernel", {"instruction": "1"}, "NotFound"),
            ("ShowKernel", {"kernel": "nobody"}, "NotFound"),
        ):
            equal(error(bus, method, **parameters)[0], wanted, (method, parameters))
        equal(bus.call("ListKernels"), {"kernels": []})
        bus.close()


def test_verify_off():
    with Daemon("--verify=off") as daemon:
        bus = Connection(daemon.directory)
        bus.call("Attach", object=encoded("past-end"))
        status = bus.call("Status")
        equal(status["verify"], "off")
        check(any("verif" in line for line in status["missing"]), status)
        bus.close()


def test_permissions():
    """A user without rights sees nothing of others, and cannot attach; he is served all the same."""
    if os.getuid() != 0:
        return
    with Daemon() as daemon:
        daemon.attach("--kernel", "vectorAdd")
        os.chmod(daemon.directory, 0o755)  # as in system mode
        for name in ("io.gpuprobe.control", "shim.sock"):
            os.chmod(f"{daemon.directory}/{name}", 0o666)
        script = f"""
import encodings.idna, os, sys
sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
from varlink import Connection, VarlinkError
from wire import Shim
ptx = open({SOURCE + "/tests/targets/vec_add.ptx"!r}, "rb").read()
os.setgroups([]); os.setgid(65534); os.setuid(65534)
bus = Connection({daemon.directory!r})
def refused(method, **parameters):
    try:
        bus.call(method, **parameters)
    except VarlinkError as e:
        return e.error
print(refused("Attach", object={encoded("counter")!r}), refused("Detach", id=1), refused("DumpMap", map="counter"),
      refused("DumpMap", map="1"), bus.call("List")["attachments"], bus.call("ListMaps")["maps"], bus.call("Why")["outcomes"])
shim = Shim({daemon.directory!r})
new, module, reason, slots = shim.image(ptx)
print(bool(new), [o["outcome"] for o in bus.call("Why")["outcomes"]])
"""
        shim = Shim(daemon.directory)
        check(shim.image(VEC_ADD_PTX)[0])
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
        equal(done.stdout.splitlines(), ["PermissionDenied NotFound NotFound NotFound [] [] []", "True ['probed']"], done.stderr)
        bus = Connection(daemon.directory)
        equal([o["outcome"] for o in bus.call("Why")["outcomes"]].count("probed"), 2)
        equal(bus.call("Status")["counters"]["images_cached"], 0, "what one user's image became serves no other user")
        bus.close()
        os.chmod(daemon.directory, 0o700)
        shim.close()


def test_sync():
    """A reader gets what the processes copy out when they are asked; one that does not answer costs 200 ms."""
    with Daemon() as daemon:
        daemon.attach("--kernel", "vectorAdd")
        loader = Shim(daemon.directory)
        _, module, _, slots = loader.image(VEC_ADD_PTX)
        fd, _, _ = loader.instance(slots[0][0])
        loader.send(message(ARMED, module, 0, 0))
        bus = Connection(daemon.directory)
        bus.send("DumpMap", map="counter")
        mirror = Shim(daemon.directory, role=MIRROR)  # it has its first instance, and connects only now
        kind, _, _ = mirror.receive()
        equal(kind, SYNC)
        os.pwrite(fd, struct.pack("<Q", 5), 4096)
        mirror.send(message(SYNCED, sequence=mirror.sequence))
        reply, _ = bus.receive()
        equal(base64.b64decode(reply["entries"][0]["values"][0]), struct.pack("<Q", 5))
        start = time.monotonic()
        bus.call("DumpMap", map="counter")
        check(0.15 < time.monotonic() - start < 1, "a silent process:", time.monotonic() - start)
        equal(mirror.receive()[0], SYNC)
        bus.send("DumpMap", map="counter")  # and goes away while it is asked
        equal(mirror.receive()[0], SYNC)
        start = time.monotonic()
        mirror.close()
        bus.receive()
        check(time.monotonic() - start < 0.15, "a process that is gone")
        mirror = Shim(daemon.directory, role=MIRROR)
        bus.send("DumpMap", map="counter")  # the reader goes away
        equal(mirror.receive()[0], SYNC)
        bus.close()
        daemon.ctl("detach", "1")
        kind, fields, _ = mirror.receive()
        equal((kind, fields), (DISARM, (slots[0][0],)))
        equal(loader.instance(slots[0][0])[:2], (None, 0), "the map is gone")
        loader.close()
        mirror.close()


def big_object():
    """An object with an array of 1M values, 8 MiB."""
    clang = next((c for c in ("clang-19",) if subprocess.run(["which", c], capture_output=True).returncode == 0), None)
    if not clang:
        return None
    with open(f"{SOURCE}/docs/examples/counter.bpf.c") as opened:
        text = opened.read()
    text = text.replace("__uint(max_entries, 1);", "__uint(max_entries, 1 << 20);")
    multiarch = subprocess.run(["gcc", "-print-multiarch"], capture_output=True, text=True).stdout.strip()
    done = subprocess.run(
        [clang, "-O2", "-g", "-target", "bpf", f"-I/usr/include/{multiarch}", f"-I{SOURCE}/proto", "-x", "c", "-c", "-", "-o", "-"],
        input=text.encode(),
        capture_output=True,
    )
    equal(done.returncode, 0, done.stderr)
    return base64.b64encode(done.stdout).decode()


def test_big_map():
    data = big_object()
    if not data:
        return
    os.environ.pop("MALLOC_PERTURB_", None)  # fills hundreds of free megabytes at each realloc() beside them
    with Daemon() as daemon:
        bus = Connection(daemon.directory)
        bus.call("Attach", object=data)
        shim = Shim(daemon.directory)
        _, module, _, slots = shim.image(VEC_ADD_PTX)
        fd, size, data_size = shim.instance(slots[0][0])
        for index in (0, 777777, (1 << 20) - 1):
            os.pwrite(fd, struct.pack("<Q", index + 1), 4096 + 8 * index)
        equal(error(bus, "DumpMap", map="counter")[0], "LimitExceeded")
        entries = bus.call("DumpMap", map="counter", nonzero=True)["entries"]
        found = [(struct.unpack("<I", base64.b64decode(e["key"]))[0], struct.unpack("<Q", base64.b64decode(e["values"][0]))[0]) for e in entries]
        equal(found, [(0, 1), (777777, 777778), ((1 << 20) - 1, 1 << 20)])
        replies, n = 0, 0
        for reply in bus.stream("DumpMap", map="counter"):
            equal("btf" in reply, replies == 0, "BTF in the first reply")
            replies += 1
            n += len(reply["entries"])
        equal(n, 1 << 20)
        check(replies > 100, "replies", replies)
        # a reader that does not read, others go on; then the map goes away under it
        slow = Connection(daemon.directory)
        slow.send("DumpMap", more=True, map="counter")
        slow.receive()
        start = time.monotonic()
        bus.call("Status")
        check(time.monotonic() - start < 0.5, "others wait for a slow reader")
        bus.call("Detach", id=1)
        try:
            for _ in range(100000):
                slow.receive()
        except VarlinkError as gone:
            equal(gone.error, "NotFound")
        slow.close()
        gone = Connection(daemon.directory)
        bus.call("Attach", object=data)
        gone.send("DumpMap", more=True, map="counter")
        gone.receive()
        gone.close()  # in the middle
        equal(len(bus.call("ListMaps")["maps"]), 1)
        bus.close()
        shim.close()


def test_clients_that_go():
    """Clients that leave while their object is linked, verified, compiled: nothing of it stays."""
    with Daemon() as daemon:
        for i in range(12):
            gone = Connection(daemon.directory)
            gone.send("Attach", object=encoded("counter"))
            time.sleep(0.008 * i)
            gone.close()
        bus = Connection(daemon.directory)
        reply = bus.call("Attach", object=encoded("counter"))
        time.sleep(1)
        listed = bus.call("List")["attachments"]
        check(reply["attachments"][0] in listed)
        check(len(listed) < 12, "attachments of clients that were gone:", len(listed))
        bus.close()


def test_program_worker_fails():
    for fault, words in (("crash", "crashed"), ("garbage", "malformed")):
        with Daemon(f"--program-worker-argument=--test-fault={fault}") as daemon:
            bus = Connection(daemon.directory)
            name, details = error(bus, "Attach", object=encoded("counter"))
            equal(name, "Internal")
            check(words in details["reason"], details)
            check(bus.call("Status")["counters"]["worker_crashes"] >= (fault == "crash"))
            bus.close()


def test_closed():
    """Started with descriptors 0 to 2 closed, it works, and what it logs is nowhere."""
    with Daemon(start=False) as daemon:
        daemon.process = subprocess.Popen(
            ["sh", "-c", 'exec "$0" "$@" 0>&- 1>&- 2>&-', GPUPROBED, f"--session={daemon.name}"], env={**os.environ, **daemon.tools()}
        )
        wait_until(lambda: daemon.listens() or daemon.process.poll() is not None, "the daemon listens")
        daemon.attach()
        ids = [check["id"] for check in daemon.json("doctor", "--only=daemon.*")["checks"]]
        equal(sorted(ids), sorted(set(ids)), "each is told once")


def test_second_daemon():
    with Daemon() as daemon:
        done = subprocess.run([GPUPROBED, f"--session={daemon.name}"], capture_output=True, text=True, timeout=10)
        equal(done.returncode, 1)
        check("another gpuprobed runs there" in done.stderr, done.stderr)
        daemon.ctl("status")  # the first one is none the worse
    for arguments, words in (
        (["--session=a/b"], "letters"),
        (["--workers=0"], "1 to 64"),
        (["--verify=maybe"], "on or off"),
        (["--deadline-ms=-5"], "not a number"),
        (["--compile-ms=3600001"], "0 to 3600000"),
        (["x"], "x"),
        (["--what"], "see gpuprobed --help"),
    ):
        done = subprocess.run([GPUPROBED, *arguments], capture_output=True, text=True, timeout=10)
        equal(done.returncode, 2, arguments)
        check(words in done.stderr, arguments, done.stderr)
    done = subprocess.run([GPUPROBED, "--session=nowhere", "--worker-dir=/tmp"], capture_output=True, text=True, timeout=10)
    equal(done.returncode, 1)
    check("--worker-dir" in done.stderr, done.stderr)


def test_stop_busy():
    """The daemon is asked to stop while an object is in work, an image is in work, and a reader reads."""
    for delay in (0, 0.01, 0.03, 0.05):
        with Daemon("--image-worker-argument=--test-fault=hang") as daemon:
            daemon.attach("--kernel", "vectorAdd")
            shim = Shim(daemon.directory)
            fd = memfd(VEC_ADD_PTX)
            shim.send(message(IMAGE, len(VEC_ADD_PTX), PTX, AWAITED, 9, 0, 0, 0), fd)
            os.close(fd)
            attaching, reading = Connection(daemon.directory), Connection(daemon.directory)
            attaching.send("Attach", object=encoded("calls"))
            reading.send("DumpMap", more=True, map="counter")
            time.sleep(delay)
            start = time.monotonic()
            daemon.stop()
            check(time.monotonic() - start < 2, "stopping took", time.monotonic() - start)
            check(shim.closed())
            attaching.close()
            reading.close()


def test_systemd():
    """Sockets from the service manager, by name; readiness and the end are announced; the level is in front of a line."""
    with tempfile.TemporaryDirectory() as folder:
        control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        control.bind(f"{folder}/io.gpuprobe.control")
        control.listen()
        shim = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        shim.bind(f"{folder}/shim.sock")
        shim.listen()
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.bind(f"{folder}/notify")
        notify.settimeout(10)
        name = f"e2e_systemd_{os.getpid()}"
        fds = [os.dup(s.fileno()) for s in (shim, control)]
        pid = os.fork()
        if pid == 0:
            try:
                moved = [fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for fd in fds]
                for place, fd in enumerate(moved):
                    os.dup2(fd, 3 + place)
                log = os.open(f"{folder}/log", os.O_WRONLY | os.O_CREAT, 0o600)
                os.dup2(log, 2)
                journal = os.fstat(2)
                os.execve(
                    GPUPROBED,
                    [GPUPROBED, f"--session={name}"],
                    {
                        **os.environ,
                        "LISTEN_PID": str(os.getpid()),
                        "LISTEN_FDS": "2",
                        "LISTEN_FDNAMES": "shim:control",
                        "NOTIFY_SOCKET": f"{folder}/notify",
                        "JOURNAL_STREAM": f"{journal.st_dev}:{journal.st_ino}",
                    },
                )
            finally:
                os._exit(1)
        for fd in fds:
            os.close(fd)
        try:
            while b"READY=1" not in notify.recv(4096):  # descriptors to be kept come, too
                pass
            bus = Connection(folder)
            bus.call("Attach", object=encoded("counter"))
            check(Shim(folder).image(VEC_ADD_PTX)[0])
            bus.close()
        finally:
            os.kill(pid, signal.SIGTERM)
            status = os.waitpid(pid, 0)[1]
        equal(status, 0)
        while b"STOPPING=1" not in notify.recv(4096):
            pass
        check(os.path.exists(f"{folder}/io.gpuprobe.control"), "a socket of the service manager was removed")
        with open(f"{folder}/log") as log:
            text = log.read()
        check(text.startswith("<5>Discovered"), text)  # what has an id goes to the journal itself, if there is one


if __name__ == "__main__":
    main(
        [
            test_examine,
            test_attach_errors,
            test_objects,
            test_points,
            test_verify_off,
            test_permissions,
            test_sync,
            test_big_map,
            test_clients_that_go,
            test_program_worker_fails,
            test_closed,
            test_second_daemon,
            test_stop_busy,
            test_systemd,
        ]
    )
