#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every s-* program: bare, under the shim with no daemon, with a daemon that probes, with GPUPROBE=off. Output and status are the same,
and with the daemon the threads that it launched are counted, in every form: what the GPU writes to host memory itself is there however
the program ends."""

import os
import struct
import time

import fake_daemon
import wire
from target_runs import SANITIZED, SHIM, TARGETS, as_bare, end, report, run, session, within

THREADS = 256  # of each launch
PROGRAMS = [  # arguments, launches, whether all that is in device memory can be counted
    (["s-plain"], 0, True),
    (["s-dlsym"], 3, True),
    (["s-linked"], 40, True),
    (["s-threads"], 40, True),
    (["s-signal"], 20, True),
    (["s-fork"], 4, True),
    (["s-exec"], 4, False),
    (["s-close"], 5, False),
    (["s-unload"], 3, True),
    (["s-file"], 2, True),
    (["s-ptsz"], 5, True),
    (["s-context"], 7, True),
    (["s-context", "none"], 20, True),
    (["s-context", "attached"], 3, True),
    (["s-errno"], 2, True),
    (["s-environment"], 22, True),
    (["s-register"], 3, True),
    (["s-capture"], 3, True),
    (["s-exit", "return"], 1, True),
    (["s-exit", "exit"], 1, True),
    (["s-exit", "_exit"], 1, False),
    (["s-exit", "abort"], 1, False),
    (["s-exit", "kill"], 1, False),
    (["s-exit", "thread"], 1, True),
    (["s-exit", "handler"], 1, True),
    (["s-exit", "nested"], 2, False),
]
RING, STAMPS = 2 * 128, 2048  # the ring that the probe uses: its control block, and how much of it


def ring_is_right(daemon, mirrored):
    """What the probe left in the rings; and in the control blocks, what the daemon and the shim had written there."""
    for memory, written, cookie, base in zip(daemon.instances, daemon.values(RING + 56), daemon.values(RING + 48), daemon.values(RING + 24)):
        (count,) = struct.unpack_from("<Q", memory, 8192 + 2 * 64 + 8)
        stamps = struct.unpack_from(f"<{STAMPS}Q", memory, 8192 + 4096 + 2 * fake_daemon.RING_SIZE)
        expected = [max(0, count - 1 - (count - 1 - n) % STAMPS) if n < count else 0 for n in range(STAMPS)]
        if list(stamps) != expected or cookie != fake_daemon.COOKIE + 2 or not base or (mirrored and written != count):
            return False
    return True


def process_is_right(daemon):
    pid = fake_daemon.PID << 32 | fake_daemon.PID
    comm = struct.unpack("<QQ", fake_daemon.COMM.ljust(16, b"\0"))
    return all(struct.unpack_from("<QQQQQQQQ", memory, 4096 + 8) == (pid, 0, *comm, 0, 0, 0, 0) for memory in daemon.instances)


def one(number, arguments, launches, exact, form):
    label = " ".join(arguments)
    bare = run(arguments, preload=())
    if (bare[0] == 0) != (arguments[0] != "s-exit" or arguments[1] in ("return", "nested")):
        report(f"{label}: bare", False, str(bare))
    if as_bare(f"{label}: no daemon", bare, run(arguments, GPUPROBE_SESSION=session("none"))):
        report(f"{label}: no daemon", True)
    with fake_daemon.FakeDaemon(session(f"{number}{form}"), form=form, deadline_ms=5000) as daemon:
        ours = run(arguments, GPUPROBE_SESSION=daemon.name)
        if as_bare(f"{label}: probed, {form}", bare, ours):
            counted, wanted = daemon.count(), launches * THREADS
            good = counted == wanted if exact or form in ("host", "kernel", "ring") else counted <= wanted
            good = good and (form != "ring" or ring_is_right(daemon, exact)) and (form != "process" or not exact or process_is_right(daemon))
            report(
                f"{label}: probed, {form}",
                good and (launches == 0) == (daemon.seen(wire.IMAGE) == 0) and (launches == 0 or within(lambda: daemon.seen(wire.ARMED) > 0)),
                f"counted {counted}, launched {wanted}; images {daemon.seen(wire.IMAGE)}, armed {daemon.seen(wire.ARMED)}, {daemon.reports()}",
            )
        before = daemon.seen(wire.IMAGE)
        if as_bare(f"{label}: GPUPROBE=off", bare, run(arguments, GPUPROBE_SESSION=daemon.name, GPUPROBE="off")):
            report(f"{label}: GPUPROBE=off", daemon.seen(wire.IMAGE) == before, "the daemon was asked")


def interposers():
    """Another library that counts launches, before and after the shim in the list, passing on in two ways."""
    other = os.path.join(TARGETS, "libs-interpose.so")
    for order in ((other, SHIM), (SHIM, other)):
        for how in ({}, {"INTERPOSE": "handle"}):
            for program in ("s-linked", "s-dlsym", "s-ptsz"):
                label = f"{program} {'shim last' if order[1] == SHIM else 'shim first'} {how.get('INTERPOSE', 'next')}"
                bare = run([program], preload=(other,), **how)
                if bare[0]:
                    continue  # RTLD_NEXT finds no driver in that program: the interposer is no good for it
                if as_bare(f"interposer, no daemon, {label}", bare, run([program], preload=order, GPUPROBE_SESSION=session("none"), **how)):
                    report(f"interposer, no daemon, {label}", True)
                with fake_daemon.FakeDaemon(session("between"), deadline_ms=5000) as daemon:
                    if as_bare(f"interposer, probed, {label}", bare, run([program], preload=order, GPUPROBE_SESSION=daemon.name, **how)):
                        report(f"interposer, probed, {label}", daemon.count() > 0, "nothing counted")


def sandbox():
    bare = run(["s-seccomp"], preload=())
    if as_bare("seccomp: no daemon", bare, run(["s-seccomp"], GPUPROBE_SESSION=session("none"))):
        report("seccomp: no daemon", bare[0] == 0, str(bare))
    others = [(1 << 2, 0, 0, 0, b"another", 0), (1 << 3, 0, 0, 0, b"", 12345)]
    with fake_daemon.FakeDaemon(session("others"), text=fake_daemon.page(0, rules=others)) as daemon:
        if as_bare("seccomp: a daemon with no interest", bare, run(["s-seccomp"], GPUPROBE_SESSION=daemon.name)):
            report("seccomp: a daemon with no interest", not daemon.messages)


def cancelled():
    """A thread is cancelled while it waits for the daemon: what others load is probed all the same."""
    late = []
    script = {"image": lambda connection, answer: (late or time.sleep(1), late.append(1), answer)[2]}
    bare = run(["s-cancel"], preload=())
    with fake_daemon.FakeDaemon(session("cancelled"), script) as daemon:
        if as_bare("a thread that is cancelled", bare, run(["s-cancel"], GPUPROBE_SESSION=daemon.name)):
            report("a thread that is cancelled", bare[0] == 0 and daemon.count() == 3 * THREADS, f"{bare} {daemon.count()}")


def small_stack():
    """Whoever reads what a page says of others has little room for it."""
    others = [(1 << 3, 0, 0, 0, b"", 12345), (1 << 4, 0, 0, 0, b"", 12345)]  # by executable, by cgroup
    bare = run(["s-stack"], preload=())
    with fake_daemon.FakeDaemon(session("stack"), text=fake_daemon.page(0, trace_rules=others)) as daemon:
        if as_bare("a thread with little stack", bare, run(["s-stack"], GPUPROBE_SESSION=daemon.name)):
            report("a thread with little stack", bare[0] == 0, str(bare))


def local_memory():
    """Threads of ours have stack enough beside the program's thread-local memory."""
    for program in "s-tls", "s-tls-large":
        bare = run([program], preload=())
        with fake_daemon.FakeDaemon(session("tls"), deadline_ms=5000) as daemon:
            if as_bare(program, bare, run([program], GPUPROBE_SESSION=daemon.name)):
                report(program, bare[0] == 0 and daemon.count() == 3 * THREADS, f"{bare} {daemon.count()}")


def many():
    """Thousands of modules: were each compared with all others, it would take minutes."""
    bare = run(["s-many"], preload=())
    with fake_daemon.FakeDaemon(session("many"), deadline_ms=20000) as daemon:
        if as_bare("thousands of modules", bare, run(["s-many"], GPUPROBE_SESSION=daemon.name)):
            report("thousands of modules", bare[0] == 0 and daemon.count() == 4 * THREADS, f"{bare} {daemon.count()}")


def constructors():
    """A library's constructor has the lock of dlopen(), while another thread looks for functions of the driver: nobody waits for the other."""
    library = os.path.join(TARGETS, "libs-construct.so")
    bare = run(["s-library", library], preload=())
    with fake_daemon.FakeDaemon(session("library"), deadline_ms=5000) as daemon:
        if as_bare("a library's constructor", bare, run(["s-library", library], GPUPROBE_SESSION=daemon.name)):
            report("a library's constructor", bare[0] == 0 and daemon.count() == 2 * THREADS, f"{bare} {daemon.count()}")


def cycles():
    """No mapping stays of contexts that have ended, be it that the driver could not be told then."""
    bare = run(["s-cycles"], preload=())
    for form in fake_daemon.FORMS:
        with fake_daemon.FakeDaemon(session(f"cycles{form}"), form=form, deadline_ms=5000) as daemon:
            if as_bare(f"contexts end and begin, {form}", bare, run(["s-cycles"], GPUPROBE_SESSION=daemon.name)):
                report(f"contexts end and begin, {form}", bare[0] == 0 and not daemon.reports(), f"{bare} {daemon.reports()}")


def kept():
    """A context that lives on has what it had and what came meanwhile, till it ends."""
    slow = os.path.join(TARGETS, "libs-slow.so")
    bare = run(["s-keep"], preload=())
    for form in "pointer", "resident", "host":
        with fake_daemon.FakeDaemon(session(f"kept{form}"), form=form, deadline_ms=5000) as daemon:
            ours = run(["s-keep"], preload=(SHIM, slow), GPUPROBE_SESSION=daemon.name, S_SLOW_CALL="cuDevicePrimaryCtxRelease_v2", S_SLOW_MS="500")
            if as_bare(f"a context lives on, {form}", bare, ours):
                report(
                    f"a context lives on, {form}",
                    bare[0] == 0 and daemon.count() == 6 * THREADS and not daemon.reports(),
                    f"{daemon.count()}, {daemon.reports()}",
                )


def handles():
    """A context with the handle of one that has ended is another one, whether its end was in time or not."""
    slow, first = os.path.join(TARGETS, "libs-slow.so"), {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}  # what is free is used again at once
    for label, arguments, deadline, more in (  # who ends the first one waits for two deadlines, in vain
        ("late", [], 2000, {"S_SLOW_CALL": "cuMemAlloc_v2", "S_SLOW_TILL": "cuCtxDestroy_v2"}),
        ("meanwhile", ["meanwhile"], 5000, {"S_SLOW_CALL": "cuCtxDestroy_v2", "S_SLOW_TILL": "cuMemFree_v2", "S_SLOW_BEHIND": "1"}),
    ):
        bare = run(["s-handle", *arguments], preload=(slow,), **first, **more)
        for form in "pointer", "resident":
            with fake_daemon.FakeDaemon(session(f"handle{form}"), form=form, deadline_ms=deadline) as daemon:
                ours = run(["s-handle", *arguments], preload=(SHIM, slow), GPUPROBE_SESSION=daemon.name, **first, **more)
                if as_bare(f"a handle of before, {label}, {form}", bare, ours):
                    wanted = 3 * THREADS  # what cannot be copied in time is lost: a fourth
                    unloaded = [fields[0] for kind, fields in daemon.messages if kind == wire.UNLOAD]
                    report(
                        f"a handle of before, {label}, {form}",
                        bare[0] == 0 and wanted <= daemon.count() <= wanted + THREADS and not daemon.reports() and (label == "late" or unloaded == [1, 2]),
                        f"{daemon.count()}, {unloaded}, {daemon.reports()}",
                    )


def forks():
    """Our thread copies in the parent all the time, and no child finds a lock of the driver held by it."""
    bare = run(["s-fork", "200"], preload=())
    with fake_daemon.FakeDaemon(session("forks"), form="resident", period_ms=1, deadline_ms=5000) as daemon:
        if as_bare("forks while copies are made", bare, run(["s-fork", "200"], GPUPROBE_SESSION=daemon.name)):
            report("forks while copies are made", bare[0] == 0 and daemon.count() == 2 * THREADS, f"{bare} {daemon.count()}")
    bare = run(["s-fork", "lock"], preload=())
    with fake_daemon.FakeDaemon(session("lock"), period_ms=1, deadline_ms=5000) as daemon:
        if as_bare("forks with a lock of the application's", bare, run(["s-fork", "lock"], GPUPROBE_SESSION=daemon.name)):
            report("forks with a lock of the application's", bare[0] == 0 and daemon.count() == 100 * THREADS, f"{bare} {daemon.count()}")


def meanwhile():
    """What others do in a context while it runs kernels, or captures, is not held up, spoils nothing, and no count is lost."""
    for what in "release", "unload", "capture", "again":
        bare = run(["s-while", what], preload=())
        for form in "resident", "ring":
            with fake_daemon.FakeDaemon(session(f"{what}{form}"), form=form, deadline_ms=200) as daemon:
                if as_bare(f"s-while {what}, {form}", bare, run(["s-while", what], GPUPROBE_SESSION=daemon.name)):
                    launched = int(bare[1].split("launches=")[1])
                    report(f"s-while {what}, {form}", bare[0] == 0 and daemon.count() == launched * THREADS, f"{bare} {daemon.count()}, {daemon.reports()}")


def unloaded_in_a_handler():
    """It comes while the thread waits for the daemon, and cannot take the lock: the module is forgotten all the same, and others count on."""
    images = []
    script = {"image": lambda connection, answer: (images and time.sleep(1), images.append(1), answer)[2]}
    bare = run(["s-unload", "handler"], preload=())
    with fake_daemon.FakeDaemon(session("handler"), script, form="resident", deadline_ms=5000) as daemon:
        if as_bare("unloaded in a signal handler", bare, run(["s-unload", "handler"], GPUPROBE_SESSION=daemon.name)):
            report(
                "unloaded in a signal handler",
                bare[0] == 0 and daemon.count() >= 2 * THREADS and daemon.seen(wire.UNLOAD) == 1,
                f"{bare} {daemon.count()}, {daemon.seen(wire.UNLOAD)} {[kind for kind, _ in daemon.messages]} {daemon.reports()}",
            )


def namespaces():
    """A child with the number of its parent knows that it is none."""
    bare = run(["s-init"], preload=())
    if bare[0] == 77:
        return
    with fake_daemon.FakeDaemon(session("init"), deadline_ms=30000) as daemon:
        if as_bare("a child with the number of its parent", bare, run(["s-init"], GPUPROBE_SESSION=daemon.name, timeout=20)):
            report("a child with the number of its parent", bare[0] == 0 and daemon.count() == THREADS, f"{bare} {daemon.count()}")


def again():
    """The primary context is there again before who released it has looked: it is another one, with memory of its own."""
    other = os.path.join(TARGETS, "libs-retain.so")
    bare = run(["s-again"], preload=(other,))
    for form in fake_daemon.FORMS:
        if form != "two":
            with fake_daemon.FakeDaemon(session(f"again{form}"), form=form, deadline_ms=5000) as daemon:
                if as_bare(f"s-again, {form}", bare, run(["s-again"], preload=(SHIM, other), GPUPROBE_SESSION=daemon.name)):
                    report(f"s-again, {form}", bare[0] == 0 and daemon.count() == 3 * THREADS, f"{bare} {daemon.count()}, {daemon.reports()}")


for n, program in enumerate(PROGRAMS):
    for variant in fake_daemon.FORMS:
        if variant != "two":
            one(n, *program, variant)
meanwhile()
local_memory()
many()
if not SANITIZED:  # it makes mappings of its own, and looks for functions before another dlsym() can answer
    constructors()
    kept()
    handles()
    cycles()
    small_stack()
unloaded_in_a_handler()
again()
namespaces()
interposers()
forks()
cancelled()
sandbox()
end()
