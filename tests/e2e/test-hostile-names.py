#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A shim that asks for a plan of the sanitizer engine (proto/patch.h): what it gets, and what the daemon does about lists that are no lists."""

import contextlib
import os
import struct

import varlink
import wire
from harness import COUNTER, CTL, GPUPROBED, SOURCE, check, equal, main, need, resident, wait_until
from live import PTXCOMPILER, kernel_id, obj, sass_daemon

need(GPUPROBED, CTL, COUNTER, PTXCOMPILER, obj("two"))
GOOD = wire.names((1, 0, ["vectorAdd", "other"]), (7, 0, ["other", "x", "vectorAdd"]))


def ask(shim, data):
    return shim.image(data, kind=wire.NAMES)


def kernels_of(daemon, pid):
    return daemon.json("kernel", "list", f"--pid={pid}")["kernels"]


def test_plan():
    with sass_daemon() as daemon:
        shim = wire.Shim(daemon.directory)
        equal(ask(shim, GOOD)[0], None, "nothing is attached")
        daemon.attach("--engine", "sanitizer")
        data, module, reason, slots = ask(shim, GOOD)
        check(data and module, reason)
        plan = wire.Plan(data)
        equal((list(plan.points), len(plan.image) > 100), ([1], True), "the entry")
        equal(plan.kernels, [(1, 0, kernel_id("vectorAdd"), 1), (7, 2, kernel_id("vectorAdd"), 1)])
        check(0 < plan.data_size <= 4096 and plan.data_size % 16 == 0, plan.data_size)
        # the process's and the counter's
        equal(sorted(kind for _, _, kind in slots), sorted([wire.PROCESS, slots[-1][2]]))
        check(slots[-1][2] in (wire.POINTER, wire.REGION), slots)
        equal([symbol for _, symbol, _ in slots], ["", ""])
        # the image is the same one, whatever the names
        again = wire.Plan(ask(shim, wire.names((3, 0, ["vectorAdd"])))[0])
        equal((again.image_id, again.image, again.points), (plan.image_id, plan.image, plan.points))
        equal(ask(shim, wire.names((3, 0, ["other"])))[0], None, "no name is meant")
        shim.close()


def test_no_lists():
    record = lambda size, count, text=b"", reserved=0: struct.pack("<IIQII", size, 1, 0, count, reserved) + text
    cases = {
        "a piece": b"\0" * 8,
        "a size of 0": record(0, 0),
        "a size that is too small": record(16, 0),
        "an odd size": record(25, 0) + b"\0",
        "beyond the end": record(4096, 1, b"vectorAdd\0".ljust(16, b"\0")),
        "no end of a name": record(32, 1, b"vectorAd"),
        "more names than bytes": record(40, 1 << 31, b"vectorAdd\0".ljust(16, b"\0")),
        "an empty name": record(32, 1, bytes(8)),
        "reserved": record(40, 1, b"vectorAdd\0".ljust(16, b"\0"), reserved=5),
        "bytes after the names": record(40, 1, b"a\0bcdefghijklmn\0"),
        "a second one that is none": GOOD + b"\xff" * 24,
        "rubbish": os.urandom(65536),
    }
    with sass_daemon() as daemon:
        daemon.attach("--engine", "sanitizer")
        shim = wire.Shim(daemon.directory)
        for what, data in cases.items():
            plan, _, reason, slots = ask(shim, data)
            check(not slots and (plan is None and reason or what == "reserved"), what, reason)
            check("\n" not in reason, what, reason)
        check(ask(shim, GOOD)[0], "the connection is as good as before")
        equal(daemon.status()["counters"]["worker_crashes"], 0)
        shim.close()


def test_many_names():
    """Half a million kernels: matched within the deadline, or left alone."""
    with sass_daemon() as daemon:
        daemon.attach("--engine", "sanitizer")
        shim = wire.Shim(daemon.directory)
        many = [f"kernel_with_a_name_{n}" for n in range(400000)]
        data, _, reason, _ = ask(shim, wire.names((1, 0, [*many, "vectorAdd"])))
        check(data and len(wire.Plan(data).kernels) == 1 or "time" in reason or "deadline" in reason, reason)
        too_many = wire.names((1, 0, [*many, *many, *many, "vectorAdd"]))
        check(len(too_many) > 16 << 20)
        try:
            check(ask(shim, too_many)[0] is None, "more than a list may have")
        except wire.Closed:
            pass
        shim = wire.Shim(daemon.directory)
        check(ask(shim, GOOD)[0], "others are served")
        shim.close()


def test_lists_of_one_user():
    """Lists that nobody takes do not fill the daemon's memory, however many connections ask for one."""
    with sass_daemon() as daemon:
        daemon.attach("--engine", "sanitizer", "--kernel", "*")
        shim = wire.Shim(daemon.directory, timeout=60)
        data, _, reason, _ = ask(shim, wire.names((1, 0, [f"{n:0280}" for n in range(50000)])))
        check(data or "deadline" in reason or "longer" in reason, reason)
        before = resident(daemon.process.pid, "RssAnon")
        buses = [varlink.Connection(daemon.directory, timeout=60) for _ in range(40)]
        for bus in buses:
            bus.send("ListKernels", more=True)
        refused = 0
        for bus in buses:
            try:
                bus.receive()
            except varlink.VarlinkError as error:
                equal(error.parameters["limit"], 128 << 20, error.parameters["what"])
                refused += 1
        check(0 < refused < 40, refused, "refused")
        more = resident(daemon.process.pid, "RssAnon") - before
        check(more < 300 << 10, "KiB more:", more)
        equal(len(daemon.attachments()), 1, "others are answered")
        for bus in buses:
            bus.close()
        wait_until(lambda: len(daemon.json("kernel", "list")["kernels"]) == 50000, "there is room again")
        shim.close()


def test_kernel_list():
    """Whatever number a map has, gpuprobectl kernel list has its name: of 10,000 kernels that a glob means, too; and when the process is gone."""
    some = ["_Z9vectorAddPKfS0_Pf", "bell\a\x1b[31m", "x" * 6000, "vectorAdd", ""]
    many = [f"_Z6kernelILi{n}EEvPf" for n in range(10000)]
    with sass_daemon() as daemon:
        (identifier,) = daemon.attach("--engine", "sanitizer", "--kernel", "*")
        shim = wire.Shim(daemon.directory)
        data, module, reason, _ = ask(shim, wire.names((5, 0, some), (2, 0, many), (9, 0, many[:10])))
        check(data, reason)
        ids = {f"{kernel:016x}" for _, _, kernel, _ in wire.Plan(data).kernels}
        equal(len(ids), len(some) - 1 + len(many), "what may be in a map")
        kernels = {kernel["id"]: kernel for kernel in daemon.json("kernel", "list")["kernels"]}
        equal(set(kernels), ids)
        name_of = lambda name: kernels[f"{kernel_id(name):016x}"]
        equal({kernel["name"] for kernel in kernels.values()}, {some[0], "bell??[31m", "x" * 4096, "vectorAdd", *many})
        equal(name_of(some[0])["demangled"], "vectorAdd(float const*, float const*, float*)")
        equal(name_of(many[9876])["demangled"], "void kernel<9876>(float*)")
        equal(name_of("vectorAdd")["demangled"], "vectorAdd")
        for kernel in kernels.values():
            equal((kernel["pids"], kernel["attachments"], kernel["device_function"]), ([os.getpid()], [identifier], False))
        equal(len(kernels_of(daemon, os.getpid())), len(ids))
        equal(kernels_of(daemon, 1), [])
        equal(len(daemon.ctl("kernel", "list").splitlines()), 1 + len(ids))
        equal(daemon.json("kernel", "show", many[7777])["instructions"], [], "it is known, and patched")
        with contextlib.closing(varlink.Connection(daemon.directory)) as bus:
            equal(len(bus.call("ListKernels")["kernels"]), 8192, "one reply")
            replies = list(bus.stream("ListKernels"))
            equal({kernel["id"] for reply in replies for kernel in reply["kernels"]}, ids)
            check(len(replies) > 10, len(replies))
            bus.send("ListKernels", more=True)  # and goes away without reading
        shim.send(wire.message(wire.UNLOAD, module))
        shim.close()
        wait_until(lambda: not kernels_of(daemon, os.getpid()), "the process is seen to go")
        gone = daemon.json("kernel", "list")["kernels"]
        equal(({kernel["id"] for kernel in gone}, [kernel for kernel in gone if kernel["pids"]]), (ids, []))
        daemon.ctl("detach", str(identifier))
        wait_until(lambda: not [kernel for kernel in daemon.json("kernel", "list")["kernels"] if kernel["name"] in many], "nothing is attached")


if __name__ == "__main__":
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
