#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each quota of a user, configured to be small: what is over it is told so, with the name of the setting, and has it when the quota is raised by a reload."""

import base64
import os
import resource
import select
import signal
import socket
import time

from configured import Configured
from harness import BUILD, COUNTER, GPUPROBED, SOURCE, VEC_ADD as PROGRAM, Daemon, as_user, check, equal, main, need, resident, wait_until
from tracing import Trace
from varlink import Connection, VarlinkError
from wire import AWAITED, HELLO, IMAGE, LOADER, MIRROR, PTX, WELCOME, Closed, Shim, memfd, message

LARGE, SLOW = (f"{BUILD}/tests/e2e/objects/{name}.bpf.o" for name in ("large", "slow"))
need(GPUPROBED, COUNTER, LARGE, SLOW)
with open(f"{SOURCE}/tests/targets/vec_add.ptx", "rb") as ptx_file:
    VEC_ADD = ptx_file.read()
with open(COUNTER, "rb") as object_file:
    OBJECT = base64.b64encode(object_file.read()).decode()
THREADS = 256  # of each launch
HANG = ("--image-worker-argument=--test-fault=hang",)


def refused(bus, method, **parameters):
    try:
        try:
            bus.send(method, **parameters)
        except BrokenPipeError:  # the answer may be there before the question
            pass
        bus.receive()
    except VarlinkError as error:
        return error.error, error.parameters
    return None


def over(what, limit):
    return "LimitExceeded", {"what": what, "limit": limit}


def send(shim, data):
    fd = memfd(data)
    shim.send(message(IMAGE, len(data), PTX, AWAITED, 9, 0, 0, 0), fd)
    os.close(fd)


def test_connections():
    with Configured("quota-connections = 2\n") as daemon:
        shims = [Shim(daemon.directory), Shim(daemon.directory, role=MIRROR)]
        try:
            Shim(daemon.directory)
            check(False, "a third connection")
        except Closed:
            pass
        check("quota-connections" in daemon.why()[0]["reason"], daemon.why())
        daemon.reload("quota-connections = 3\n")
        shims.append(Shim(daemon.directory))
        for shim in shims:
            shim.close()


def test_connections_of_a_trace():
    """A trace says in one line of which processes it sees nothing, as they are over the quota, and which setting that is."""
    with Configured("quota-connections = 2\n") as daemon:
        trace = Trace(daemon.directory, sources=["shim"])
        shims = [Shim(daemon.directory), Shim(daemon.directory, role=MIRROR)]
        children = []
        for _ in range(10):
            children.append(os.fork())
            if not children[-1]:
                try:
                    Shim(daemon.directory)
                except Closed:
                    os._exit(0)
                os._exit(1)
        equal([os.waitpid(child, 0)[1] for child in children], [0] * 10, "children that were served")
        wait_until(lambda: sum(line.count(str(child)) for line in trace.later for child in children) >= 8, "it says which processes", 10)
        lines = [line for line in trace.later if "quota-connections" in line]
        equal(len(lines), 1, trace.later)
        check(lines[0].startswith("processes ") and " and 2 more: " in lines[0], lines)
        trace.close()
        for shim in shims:
            shim.close()


def test_connections_of_all():
    """Who has many user ids, and says nothing, does not shut the others out, and not himself for long."""
    if os.getuid():
        print("not root: no other user")
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (20000, max(20000, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))

    def served(uid):
        try:
            with as_user(uid):
                return Shim(daemon.directory)
        except Closed:
            return None

    with Configured("") as daemon:
        first, silent = served(100014), []
        for uid in range(100000, 100017):
            with as_user(uid):
                for _ in range(256):
                    silent.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                    silent[-1].connect(f"{daemon.directory}/shim.sock")  # waits while the queue of the listening socket is full
        others, late = [served(0), served(65534)], Shim(daemon.directory, hello=False)
        check(all(others), "others are not served")
        check(not served(100014), "a user who has many connections has one more")
        check("all users" in daemon.why()[0]["reason"], daemon.why()[0])
        equal(daemon.text().count("programs have as many connections"), 1, daemon.text())
        daemon.process.send_signal(signal.SIGSTOP)  # what came in time but was not read yet is no silence
        late.send(message(HELLO, LOADER, 13000, b"late"))
        time.sleep(5.2)
        daemon.process.send_signal(signal.SIGCONT)
        equal(late.receive()[0], WELCOME, "the answer to a greeting")
        wait_until(lambda: served(100014), "there is room again", 10)
        check(any("no greeting" in outcome["reason"] for outcome in daemon.why()), daemon.why()[0])
        for shim in [first, *others, late]:
            check(not shim.resume(1, [1], []), "who has greeted stays")
            shim.close()
        for peer in silent:
            peer.close()


def test_clients():
    with Configured("quota-clients = 2\n") as daemon:
        held = []

        def connect():
            """The daemon may have to see the end of an earlier connection first."""
            bus = Connection(daemon.directory)
            if refused(bus, "Status"):
                return False
            held.append(bus)
            return True

        wait_until(connect, "a first connection")
        wait_until(connect, "a second connection")
        equal(refused(Connection(daemon.directory), "Status"), over("connections of one user", 2))
        daemon.reload("quota-clients = 3\n")
        wait_until(connect, "a third connection")
        for bus in held:
            bus.close()


def test_attachments():
    with Configured("quota-attachments = 2\n") as daemon:
        bus = Connection(daemon.directory)
        bus.call("Attach", object=OBJECT)
        bus.call("Attach", object=OBJECT)
        equal(refused(bus, "Attach", object=OBJECT), over("attachments of one user (quota-attachments)", 2))
        equal(len(bus.call("List")["attachments"]), 2)
        daemon.reload("quota-attachments = 3\n")
        bus.call("Attach", object=OBJECT)
        bus.close()


def test_traces():
    with Configured("quota-traces = 1\n") as daemon:
        trace = Trace(daemon.directory, sources=["shim"])
        bus = Connection(daemon.directory)
        bus.send("Trace", more=True, sources=["shim"])
        try:
            bus.receive()
            check(False, "a second trace")
        except VarlinkError as error:
            equal((error.error, error.parameters), over("traces of one user (quota-traces)", 1))
        bus.close()
        daemon.reload("quota-traces = 2\n")
        second = Trace(daemon.directory, sources=["shim"])
        second.close()
        trace.close()


def test_images():
    """In work at a time: their number, and their bytes. Who finds no room waits for it, but not for ever, and not twice."""
    for setting, size, more in ("quota-images = 1\n", 1, "quota-images = 2\n"), ("quota-image-bytes = 1K\n", 600, "quota-image-bytes = 1500\n"):
        short, long = "deadline-ms = 1000\n", "deadline-ms = 60000\n"
        with Configured(long + setting, *HANG) as daemon:
            daemon.attach()
            first, second = Shim(daemon.directory, timeout=60), Shim(daemon.directory, timeout=60)
            send(first, b"a" * size)
            wait_until(lambda: daemon.status()["counters"]["images"] == 1, "the first is there")
            daemon.reload(short + setting)
            new, _, reason, _ = second.image(b"b" * size)
            check(new is None and reason.startswith("quota: other images of uid"), reason)
            check(setting.strip().split(" = ")[0] in reason, reason)
            daemon.reload(long + setting)
            second.socket.settimeout(30)
            check(second.image(b"b" * size)[2].startswith("quota:"), "this process does not wait again")
            daemon.reload(long + more)
            send(second, b"b" * size)
            wait_until(lambda: daemon.status()["counters"]["images"] == 4, "the second is there")
            daemon.reload(short + more)
            third = Shim(daemon.directory, timeout=60)
            check(third.image(b"c" * size)[2].startswith("quota:"), "two are in work")
            for shim in first, second, third:
                shim.close()


def test_images_wait():
    """Those that find no room are worked on when there is some; who has hung up gives back what he held."""
    with Configured("deadline-ms = 60000\nquota-images = 1\n", "--image-worker-argument=--test-fault=slow") as daemon:
        daemon.attach()
        shims = [Shim(daemon.directory, timeout=60) for _ in range(4)]
        for i, shim in enumerate(shims):
            send(shim, b"%d" % i)
        wait_until(lambda: daemon.status()["counters"]["images"] == 4, "all are there")
        opened = lambda: len(os.listdir(f"/proc/{daemon.process.pid}/fd"))
        before = opened()
        shims[1].close()
        wait_until(lambda: opened() <= before - 2, "a connection and an image are closed")
        for i in 0, 2, 3:
            reason = shims[i].image_reply()[2]
            check(reason and "quota" not in reason, i, reason)
            shims[i].close()


def test_images_of_ranks():
    """One image that many processes load at a time is in work once."""
    for quota in "quota-images = 1\n", "quota-image-bytes = 1\n":
        with Configured("deadline-ms = 60000\n" + quota, "--image-worker-argument=--test-fault=slow") as daemon:
            daemon.attach()
            processes = [daemon.start_run(PROGRAM, "--threads", "256", "--launches", "3") for _ in range(8)]
            for process in processes:
                out, err = process.communicate(timeout=120)
                equal((process.returncode, err), (0, ""), out)
            equal(daemon.count_of(), 8 * 256 * 3, "counted")


def test_compile_seconds():
    """A worker that hangs until the deadline has used it up: for images, and for what is attached."""
    with Configured("deadline-ms = 2000\ncompile-ms = 0\nquota-compile-seconds = 1\n", *HANG) as daemon:
        daemon.attach()
        shim = Shim(daemon.directory, timeout=60)
        check("quota" not in shim.image(b"first")[2], "the first")
        reason = shim.image(b"second")[2]
        equal(reason, f"quota: workers have worked enough for uid {os.getuid()} in this minute (quota-compile-seconds = 1)")
        bus = Connection(daemon.directory)
        equal(refused(bus, "Attach", object=OBJECT), over("seconds of workers for one user in a minute (quota-compile-seconds)", 1))
        daemon.reload("deadline-ms = 2000\nquota-compile-seconds = 60\n")
        bus.call("Attach", object=OBJECT)
        check("quota" not in shim.image(b"third")[2], "with more")
        shim.close()
        bus.close()


def test_maps():
    """Memory of him who attached, and copies of maps in processes."""
    with Configured("deadline-ms = 60000\nquota-instances = 1\n") as daemon:
        daemon.attach()
        first, second = Shim(daemon.directory, timeout=60), Shim(daemon.directory, timeout=60)
        maps = [shim.image(VEC_ADD)[3][0][0] for shim in (first, second)]
        fd, _, _ = first.instance(maps[0])
        os.close(fd)
        fd, _, _ = second.instance(maps[1], device=1)
        equal(fd, None, "a second copy")
        check("quota-instances" in daemon.why()[0]["reason"], daemon.why()[0])
        daemon.reload("deadline-ms = 60000\nquota-instances = 2\nquota-map-bytes = 4K\n")
        equal(second.instance(maps[1], device=1)[0], None, "memory for a second copy")
        check("quota-map-bytes" in daemon.why()[0]["reason"], daemon.why()[0])
        daemon.reload("deadline-ms = 60000\nquota-instances = 2\n")
        fd, _, _ = second.instance(maps[1], device=1)
        os.close(fd)
        first.close()
        second.close()


def test_maps_of_others():
    """A map that gets no memory costs its own attachments only: others in the same kernel count, whichever came first."""
    maps = os.path.join(BUILD, "tests/e2e/objects/maps.bpf.o")
    need(maps, PROGRAM)
    for objects in (maps, COUNTER), (COUNTER, maps):
        with Daemon("--quota-map-bytes=600K") as daemon:
            for path in objects:
                daemon.attach(object=path)
            status, out, *_ = daemon.run(PROGRAM, "--threads", str(THREADS))
            check(status == 0 and "PASS" in out, out)
            equal(daemon.count_of(), THREADS, "threads counted beside maps without memory")
            failed = [outcome for outcome in daemon.why() if outcome["outcome"] == "failed" and outcome["kernel"]]
            equal({tuple(outcome["attachments"]) for outcome in failed}, {(1 + objects.index(maps),)}, "attachments whose maps have no memory")
            check("threads: no memory for a map: the daemon refused it" in [outcome["reason"] for outcome in failed], failed)


def test_many_contexts():
    """A process that ends its context and begins another, 400 times, with a hundred copies of maps at most (and a map 256 in a process): all is counted."""
    maps, cycles = os.path.join(BUILD, "tests/e2e/objects/maps.bpf.o"), os.path.join(BUILD, "tests/targets/s-cycles")
    need(maps, cycles)
    with Daemon("--quota-instances=100") as daemon:
        daemon.attach(object=maps)
        equal(daemon.run(cycles)[0], 0)
        for name in "array", "gpu_array", "host_array":
            equal([entry["value"] for entry in daemon.dump(name)], [0, 400 * THREADS], name)
        equal([outcome for outcome in daemon.why() if outcome["outcome"] == "failed"], [])


def mebibytes(daemon, which="VmRSS"):
    """That the daemon has."""
    return resident(daemon.process.pid, which) >> 10


def test_large_values():
    """Room to read a map is his who attached it, and no list of the integers in a value is made where each byte is one."""
    with open(LARGE, "rb") as file:
        large = base64.b64encode(file.read()).decode()
    with Configured("quota-map-bytes = 4M\n", "--verify=off") as daemon:
        bus = Connection(daemon.directory)
        equal(refused(bus, "Attach", object=large), over("bytes of the maps of one user (quota-map-bytes)", 4 << 20))
        daemon.reload("quota-map-bytes = 16M\n")
        before = mebibytes(daemon)
        bus.call("Attach", object=large)
        check(mebibytes(daemon) - before < 24, "MiB more:", mebibytes(daemon) - before)
        bus.close()


def test_gathered_replies():
    """Of a user one large reply is gathered at a time, the others wait; and the memory goes back."""
    with open(LARGE, "rb") as file:
        large = base64.b64encode(file.read()).decode()
    with Configured("", "--verify=off") as daemon:
        buses = [Connection(daemon.directory, timeout=60) for _ in range(6)]
        buses[0].call("Attach", object=large)
        before = mebibytes(daemon)
        for bus in buses:
            bus.send("DumpMap", map="many")
        for bus in buses:
            equal(len(bus.receive()[0]["entries"]), 100000)
            bus.close()
        check(mebibytes(daemon, "VmHWM") - before < 64, "MiB more:", mebibytes(daemon, "VmHWM") - before)
        wait_until(lambda: mebibytes(daemon) - before < 16, "memory goes back")


def test_slow_verification():
    """The verifier's threads are not all one user's, whatever he has to be verified: others do not wait for him."""
    with open(SLOW, "rb") as file:
        slow = base64.b64encode(file.read()).decode()
    with Daemon("--user-attach=yes") as daemon:
        status = daemon.status()
        if os.geteuid() or status["verify"] != "on" or status["missing"]:
            return
        with as_user(65534):
            buses = [Connection(daemon.directory, timeout=120) for _ in range(4)]
        for bus in buses:
            bus.send("Attach", object=slow)
        time.sleep(0.5)  # until they are linked; the verifier takes seconds for each
        daemon.attach()
        equal(select.select([bus.socket for bus in buses], [], [], 0)[0], [], "attaches that were waited for")
        for bus in buses:
            equal(len(bus.receive()[0]["attachments"]), 3)


if __name__ == "__main__":
    main([value for name, value in list(globals().items()) if name.startswith("test_")])
