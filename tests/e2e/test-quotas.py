#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each quota of a user, configured to be small: what is over it is told so, with the name of the setting, and has it when the quota is raised by a reload."""
import base64
import os
import resource
import signal
import socket
import time

from configured import Configured
from harness import COUNTER, GPUPROBED, SOURCE, VEC_ADD as PROGRAM, as_user, check, equal, main, need, wait_until
from tracing import Trace
from varlink import Connection, VarlinkError
from wire import HELLO, IMAGE, LOADER, MIRROR, PTX, WELCOME, Closed, Shim, memfd, message

need(GPUPROBED, COUNTER)
with open(f"{SOURCE}/tests/targets/vec_add.ptx", "rb") as ptx_file:
    VEC_ADD = ptx_file.read()
with open(COUNTER, "rb") as object_file:
    OBJECT = base64.b64encode(object_file.read()).decode()
HANG = ("--image-worker-argument=--test-fault=hang",)


def refused(bus, method, **parameters):
    try:
        try:
            bus.send(method, **parameters)
        except BrokenPipeError: # the answer may be there before the question
            pass
        bus.receive()
    except VarlinkError as error:
        return error.error, error.parameters
    return None


def over(what, limit):
    return "LimitExceeded", {"what": what, "limit": limit}


def send(shim, data):
    fd = memfd(data)
    shim.send(message(IMAGE, len(data), PTX, 0, 9, 0, 0, 0), fd)
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
                    silent[-1].connect(f"{daemon.directory}/shim.sock") # waits while the queue of the listening socket is full
        others, late = [served(0), served(65534)], Shim(daemon.directory, hello=False)
        check(all(others), "others are not served")
        check(not served(100014), "a user who has many connections has one more")
        check("all users" in daemon.why()[0]["reason"], daemon.why()[0])
        equal(daemon.text().count("programs have as many connections"), 1, daemon.text())
        daemon.process.send_signal(signal.SIGSTOP) # what came in time but was not read yet is no silence
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


if __name__ == "__main__":
    main([test_connections, test_connections_of_all, test_clients, test_attachments, test_traces, test_images, test_images_wait, test_images_of_ranks, test_compile_seconds, test_maps])
