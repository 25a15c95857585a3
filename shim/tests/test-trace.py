#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""s-trace: bare, under the shim, and traced. It prints the same; and what the ring has is what it called."""

import os
import signal
import subprocess
import sys
import tempfile
import time

import fake_daemon
import fake_trace
import wire
from fake_trace import Ring, TraceDaemon
from target_runs import BUILD, SANITIZED, SHIM, TARGETS, as_bare, end, report, run, session, within

MOCK = {"LD_LIBRARY_PATH": os.path.join(BUILD, "shim/mock/traced")}
OLD_MOCK = {"LD_LIBRARY_PATH": os.path.join(BUILD, "shim/mock/traced/old")}


def names(calls):
    return [call.name for call in calls]


def traced(arguments, make=None, label=None, environment=MOCK, compare=True, **more):
    """The daemon and its calls, after a run that must look as a bare one."""
    label = label or " ".join(arguments)
    bare = run(arguments, preload=(), **environment)
    with TraceDaemon(session("t"), make=make, **more) as daemon:
        ours = run(arguments, GPUPROBE_SESSION=daemon.name, **environment)
        if compare:
            as_bare(label, (bare[0], bare[1], ""), (ours[0], ours[1], ""))
        daemon.error = ours[2]
        calls = daemon.calls()
    return daemon, calls


def check(label, good, *shown):
    report(label, bool(good), " ".join(map(str, shown)))


def consecutive(calls):
    by_thread = {}
    for call in calls:
        by_thread.setdefault(call.tid, []).append(call.sequence)
    return all(numbers == list(range(1, len(numbers) + 1)) for numbers in by_thread.values())


def plain():
    daemon, calls = traced(["s-trace", "plain", "20"])
    wanted = ["cuInit"] + ["cuMemFree_v2"] * 20 + ["cuMemAlloc_v2", "cuMemFree_v2", "cuMemAlloc_v2", "cuEventQuery"]
    check("plain: every call", names(calls) == wanted, names(calls))
    check("plain: results", [call.result for call in calls[-4:]] == [0, 0, 1, 600], calls[-4:])
    check("plain: words", [call.words for call in calls[1:21]] == [(n,) for n in range(20)] and calls[21].words[1] == 64, calls)
    check("plain: in order", consecutive(calls) and all(call.start < call.end for call in calls) and all(a.end <= b.start for a, b in zip(calls, calls[1:])))
    check("plain: no extras unless asked for", not any(call.extras for call in calls))
    check("plain: asked once, hung up", daemon.seen(wire.TRACE) == 1)
    daemon, calls = traced(["s-trace", "plain", "3"], lambda: Ring(clock=fake_trace.MONOTONIC))
    now = time.monotonic_ns()
    check("the other clock", all(now - 60e9 < call.start <= call.end < now for call in calls) and len(calls) == 8)


def filters():
    numbers = fake_trace.NUMBERS
    daemon, calls = traced(["s-trace", "plain", "20"], lambda: Ring(functions=[numbers["cuMemAlloc_v2"]]), label="one function")
    check("one function", names(calls) == ["cuMemAlloc_v2"] * 2 and consecutive(calls), calls)
    daemon, calls = traced(["s-trace", "plain", "20"], lambda: Ring(flags=fake_trace.ERRORS), label="errors")
    check("errors: what is not ready is none", [(call.name, call.result) for call in calls] == [("cuMemAlloc_v2", 1)], calls)
    daemon, calls = traced(["s-trace", "plain", "9995"], lambda: Ring(sample=10), label="sample")
    check("one in ten", 820 <= len(calls) <= 1180, len(calls))
    check("not each tenth", len({call.words[0] % 10 for call in calls if call.name == "cuMemFree_v2"}) == 10, calls)
    daemon, calls = traced(["s-trace", "plain", "20"], lambda: Ring(min_duration=1 << 60), label="long ones")
    check("only what takes long", not calls, calls)
    daemon, calls = traced(["s-trace", "plain", "20"], lambda: Ring(functions=[]), label="no function")
    check("no function", not calls and daemon.rings[0].states() == [0] * 16, calls)
    daemon, calls = traced(["s-trace", "arguments"], lambda: Ring(functions=[fake_trace.DYNAMIC]), label="unknown functions")
    check("functions that nobody knows have one bit", len(calls) == 3, calls)


def arguments():
    daemon, calls = traced(["s-trace", "arguments"], lambda: Ring(flags=fake_trace.EXTRAS))
    by_name = {call.name: call for call in calls}
    check("arguments: launch", by_name["cuLaunchKernel"].words == (0x5000, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10), by_name["cuLaunchKernel"])
    opened = by_name["cuIpcOpenMemHandle_v2"]
    inside = b"".join(word.to_bytes(8, "little") for word in opened.words[6:])
    check("arguments: a struct on the stack", len(opened.words) == 14 and inside == bytes(range(64)) and opened.words[1] & 0xFFFFFFFF == 77, opened.words)
    check("arguments: what comes back", opened.extras == {0: (1, (77).to_bytes(8, "little"))}, opened.extras)
    check("arguments: floats", by_name["cuTexRefSetMipmapLevelClamp"].words == (3, 0x3FC00000, 0x40200000), by_name["cuTexRefSetMipmapLevelClamp"])
    dynamic = [call for call in calls if isinstance(call.name, int)]
    names_given = {number: name for kind, number, name in daemon.rings[0].names if kind == 1}
    check(
        "arguments: functions of a newer driver",
        [names_given.get(call.function) for call in dynamic] == ["cuFutureFunction", "cuFutureFunction_v2", "cuFutureFunction_v2"]
        and len(names_given) == 2
        and all(call.function >= fake_trace.DYNAMIC and len(call.words) == 6 for call in dynamic),
        dynamic,
        names_given,
    )
    check("arguments: their words", dynamic[0].words[:4] == (1, 3, 5, 6) and dynamic[1].words[0] & 0xFFFFFFFF == 2, dynamic)


def kernel_names():
    for environment, known in ((MOCK, ["kernel_", "kernel__", "of a CUkernel", *["kernel__"] * 4]), (OLD_MOCK, ["kernel_"])):
        daemon, calls = traced(["s-trace", "names"], lambda: Ring(flags=fake_trace.EXTRAS), environment=environment)
        given = [name for kind, _, name in daemon.rings[0].names if kind == 2]
        check(f"names: {'of drivers' if environment is MOCK else 'from where handles came'}", given == known, given)
    lookups = [call for call in calls if call.name == "cuModuleGetFunction"]
    check("names: strings", [call.extras[2] for call in lookups] == [(0, b"kernel_"), (0, b"nothing")], [call.extras for call in lookups])
    daemon, calls = traced(["s-trace", "names"], lambda: Ring(functions=[fake_trace.NUMBERS["cuLaunchKernel"]]), label="names: unseen unload")
    given = [name for kind, _, name in daemon.rings[0].names if kind == 2]
    check("names: forgotten by an unload and ends of contexts that are not recorded", given.count("kernel__") == 5, given)


def threads():
    daemon, calls = traced(["s-trace", "threads", "8", "1000"])
    mine = [call for call in calls if call.name == "cuMemFree_v2"]
    check("threads: all calls, each its own thread's", len(mine) == 8000 and all(call.words == (call.tid,) for call in mine) and consecutive(calls), len(mine))
    daemon, calls = traced(["s-trace", "threads", "40", "100"], lambda: Ring(slots=4), label="more threads than slots")
    check("threads without a slot are counted", len(calls) + daemon.rings[0].lost() == 4001 and consecutive(calls), len(calls), daemon.rings[0].lost())
    daemon, calls = traced(["s-trace", "threads", "-10", "100"], label="threads that end")
    states = daemon.rings[0].states()
    check("their slots are left", len(calls) == 1001 and states.count(fake_trace.USED) == 1 and states.count(fake_trace.FREE) == 15, states)
    daemon, calls = traced(["s-trace", "threads", "4", "20000"], lambda: Ring(slot_bytes=4096), label="a ring that is full")
    lost = daemon.rings[0].lost()
    check("what finds no room is counted", lost > 0 and len(calls) + lost == 80001, len(calls), lost)


def first():
    """Several threads make the first calls: they wait for the one that asks, for a while; what does not wait any longer is counted."""
    for delay in 0, 0.05, 1:
        for _ in range(10):
            daemon, calls = traced(
                ["s-trace", "first", "8", "40"],
                label=f"first: answered after {delay} s",
                script={"trace": lambda _, answer, delay=delay: time.sleep(delay) or answer},
            )
            lost = daemon.rings[0].lost()
            if len(calls) + lost != 320 or bool(lost) == (delay == 1):
                break  # on a busy machine the answer may come too late, or a thread not at once
        check(f"first: answered after {delay} s: each call is there, or counted", len(calls) + lost == 320 and bool(lost) == (delay == 1), len(calls), lost)
    number = fake_trace.NUMBERS["cuMemAlloc_v2"]
    daemon, calls = traced(
        ["s-trace", "first", "8", "40"], lambda: Ring(functions=[number]), label="first: others", script={"trace": lambda _, answer: time.sleep(1) or answer}
    )
    check("first: what is not wanted is not lost", not calls and not daemon.rings[0].lost(), calls, daemon.rings[0].lost())
    daemon, calls = traced(
        ["s-trace", "first", "8", "40"], lambda: None, label="first: nobody traces", script={"trace": lambda _, answer: time.sleep(1) or answer}
    )
    check("first: nobody traces", not calls and daemon.seen(wire.TRACE) == 1)


def replaced():
    """A trace that begins needs more than the ring can have: the process goes on in another one."""
    with TraceDaemon(session("replaced")) as daemon:
        steps = Steps(daemon.name)
        daemon.change_rules()
        daemon.rings[0].replace()
        steps.do(10)
        check("replaced: all is in the other one", len(daemon.rings) == 2 and len(daemon.rings[1].read()) == 10 and not daemon.rings[1].lost(), daemon.rings)
        check("replaced: ends well", steps.end() == 0)
    with TraceDaemon(session("replaced")) as daemon:
        steps = Steps(daemon.name, "inside")
        while steps.line() != ["in", "call", "1"]:
            pass
        daemon.change_rules()
        daemon.rings[0].replace()
        steps.process.stdin.write("x")
        steps.process.stdin.flush()
        steps.line()
        steps.do(5)
        check(
            "replaced in the midst of a call: that is counted",
            len(daemon.rings) == 2 and len(daemon.rings[1].read()) == 5 and daemon.rings[1].lost() == 1,
            daemon.rings[1].lost(),
        )
        check("replaced in the midst of a call: ends well", steps.end() == 0)


def processes():
    daemon, calls = traced(["s-trace", "fork"])
    rings = [len(ring.read() or []) for ring in daemon.rings]
    counts = sorted((len({call.tid}), call.tid) for call in calls)
    by_process = {}
    for call in calls:
        by_process[call.tid] = by_process.get(call.tid, 0) + 1
    check(
        "fork: everybody has a ring of his own",
        sorted(by_process.values()) == [7, 9, 11, 16] and len(daemon.rings) == 4,
        by_process,
        len(daemon.rings),
        rings,
        counts,
    )
    daemon, calls = traced(["s-trace", "fork-inside"])
    check(
        "fork: of a signal handler that came while its thread wrote: the child goes on, and has a ring of its own",
        len(daemon.rings) == 2 and [names(calls).count(name) for name in ("cuLaunchKernel", "cuMemFree_v2")] == [1, 3 + 5],
        names(calls),
    )


def ancestors():
    """A process says of which one it descends: as its program was told, or whose memory it has, if that was traced."""

    def told(arguments, **environment):
        daemon, _ = traced(arguments, environment={**MOCK, **environment}, label=f"ancestors: {arguments} {environment}")
        return [fields[1] for kind, fields in daemon.messages if kind == wire.TRACE]

    said = told(["s-trace", "fork"], GPUPROBE_TRACE="4711")
    check(
        "ancestors: of forked processes the one that was traced, of programs what they were told",
        sorted(said) == sorted([4711, 4711, fake_daemon.PID, fake_daemon.PID]),
        said,
    )
    for value, number in (("17", 17), ("4294967295", 4294967295), ("4294967296", 0), ("", 0), ("x", 0), ("17x", 0), ("-1", 0), ("9" * 600, 0)):
        said = told(["s-trace", "plain", "1"], XGPUPROBE_TRACE="5", GPUPROBE_TRAC="6", GPUPROBE_TRACE=value)
        check(f"ancestors: {value[:20]!r}", said == [number], said)
    said = told(["s-trace", "plain", "1"])
    check("ancestors: nothing was said", said == [0], said)


def signals():
    if SANITIZED == "thread":
        return  # TSan keeps signals back till the next call of libc, and there is none
    daemon, calls = traced(["s-trace", "signal", "300"], lambda: Ring(slots=1, slot_bytes=1 << 27))
    made, handled = map(int, daemon.error.split()[1::2])
    lost = daemon.rings[0].lost()
    plain, mine = sum(call.words == (2,) for call in calls), sum(call.words == (1,) for call in calls)
    check(
        "signals: all calls but those that a handler made in the midst of one",
        plain == made and mine <= handled and lost <= handled - mine and all(call.start < call.end for call in calls),
        plain,
        made,
        mine,
        lost,
        handled,
    )


def callbacks():
    daemon, calls = traced(["s-trace", "callbacks"])
    check(
        "callbacks: outermost calls, and those of the driver's threads",
        sorted(map(str, names(calls))) == ["cuCtxSynchronize", "cuInit"] + ["cuLaunchHostFunc"] * 3 + ["cuMemFree_v2"] * 2 + ["cuStreamAddCallback"],
        names(calls),
    )
    check(
        "callbacks: a call that its thread's end left has no result",
        [call.flags for call in calls if call.name == "cuLaunchHostFunc"].count(fake_trace.NO_RESULT) == 1,
        calls,
    )


def gpu():
    """Times of kernels, by a GPU whose clock and kernels are known (mock/traced/gpu.c)."""
    long = 2000000
    daemon, calls = traced(["s-trace", "gpu", "40"], lambda: Ring(flags=fake_trace.GPU, clock=fake_trace.MONOTONIC))
    ring = daemon.rings[0]
    launches = {call.sequence: call for call in calls if call.name in ("cuLaunchKernel", "cuGraphLaunch")}
    captured = [call for call in launches.values() if call.words[8:9] == (2,)]
    timed = {kernel[0]: kernel for kernel in ring.kernels}
    check(
        "gpu: each launch has its time, once, but for one that was captured",
        len(ring.kernels) == len(timed) == len(launches) - 1 and not timed.keys() - launches.keys() and captured[0].sequence not in timed,
        len(ring.kernels),
        len(launches),
    )
    good = True
    for sequence, tid, device, start, stop, context, stream, function in ring.kernels:
        call = launches[sequence]
        graph = call.name == "cuGraphLaunch"
        good &= (tid, device, context) == (call.tid, 3, 0x1000)
        good &= (stream, function) == ((4, 0) if graph else (call.words[8], call.words[0]))
    check("gpu: what it says of them", good, ring.kernels[:3])
    idle = [kernel[4] - kernel[3] for kernel in ring.kernels if kernel[6] == 0]
    busy = [(abs(kernel[4] - kernel[3] - long), error) for kernel, (_, error) in zip(ring.kernels, ring.exact) if kernel[6] == 1]
    check("gpu: one behind another takes what it takes", len(busy) == 40 and sum(by > 2 * error + 1000 for by, error in busy) <= 2, busy)
    off = [(abs(kernel[4] - kernel[3] - long), error) for kernel, (_, error) in zip(ring.kernels, ring.exact) if kernel[7]]
    check(
        "gpu: a stream that had nothing to do, too, within the error",
        sum(by > error + 5000 for by, error in off) <= 2  # the mock may have been preempted
        and sorted(idle)[20] in range(long - 5000, long + 2000),
        off,
        idle,
    )
    check("gpu: clock pairs", ring.pairs and all(device == 3 and before <= after for device, _, _, before, after in ring.pairs), ring.pairs)
    device, _, clock, before, after = ring.pairs[0]
    slack = after - before + 2000 + 3 * 10**5
    check(
        "gpu: none begins before it is launched",
        all(kernel[3] - clock + after + slack >= launches[kernel[0]].start for kernel in ring.kernels),
        [(kernel[3] - clock + after - launches[kernel[0]].start) for kernel in ring.kernels][:5],
        slack,
    )
    daemon, calls = traced(
        ["s-trace", "gpu-many", "5000"],
        lambda: Ring(slot_bytes=1 << 20, flags=fake_trace.GPU, functions=[fake_trace.NUMBERS["cuLaunchKernel"]]),
        label="more launches than events",
    )
    ring = daemon.rings[0]
    check(
        "more launches than events: those that have one are timed, the others lost",
        4000 < len(ring.kernels) < 5001 and len(ring.kernels) + ring.lost() == 5001 and not ring.unread(),
        len(ring.kernels),
        ring.lost(),
        ring.unread(),
    )
    daemon, calls = traced(["s-trace", "gpu-end", "10"], lambda: Ring(flags=fake_trace.GPU), label="nobody waits")
    ring = daemon.rings[0]
    check(
        "nobody waits: times are read behind a copy and at the end of the context, which waits for what runs then",
        len(ring.kernels) == 30 and not ring.lost() and not ring.unread(),
        len(ring.kernels),
        ring.lost(),
        ring.unread(),
    )
    daemon, calls = traced(["s-trace", "gpu", "3"], lambda: Ring(flags=fake_trace.GPU), environment=OLD_MOCK, label="an old driver")
    check("an old driver: times without names", len(daemon.rings[0].kernels) == 8)


def gpu_ends():
    """A program that ends in an orderly way has the times of all its launches; those whose end is not known are counted, and are not lost."""
    for arguments, label, kernels, unread in (
        (("gpu-exit", "64"), "the process exits", 128, 0),
        (("gpu-busy", "60"), "the GPU is busy with other work", 41, 0),
        (("gpu-unknown", "5000"), "a kernel that runs for longer than it is waited for", 1, 1),
        (("gpu-unknown", "0"), "a context that fails", 1, 1),
    ):
        daemon, calls = traced(["s-trace", *arguments], lambda: Ring(flags=fake_trace.GPU), label=label)
        ring = daemon.rings[0]
        check(label, (len(ring.kernels), ring.unread(), ring.lost()) == (kernels, unread, 0), len(ring.kernels), ring.unread(), ring.lost())
        check(
            f"{label}: what is wrong is said",
            ring.notes == (["kernels of a context are not timed any more: the driver says error 710"] if arguments[1] == "0" else []),
            ring.notes,
        )


def lengths():
    """Kernels of which it is known how long they run: by no more than twice its error another time is told, or it is lost."""
    for which, label, untimed in (
        (0, "the legacy stream and others", 0),
        (1, "two names of the legacy stream", 0),
        (2, "two names of a thread's own", 0),
        (3, "a stream that has a launch on its way", 0),
        (4, "two threads, one stream", 0),
        (5, "two threads, and the legacy stream", 0),
        (6, "a stream that ends before its work", 0),
        (7, "no events can be recorded", 10),
        (8, "another thread has the lock", 1),
    ):
        daemon, calls = traced(["s-trace", "slow", str(which)], lambda: Ring(flags=fake_trace.GPU, clock=fake_trace.MONOTONIC), label=f"lengths: {label}")
        ring = daemon.rings[0]
        launches = {(call.sequence, call.tid): call for call in calls if call.name.startswith("cuLaunchKernel")}
        off = [
            (abs(kernel[4] - kernel[3] - launches[kernel[:2]].words[1] * 1000000), error, *launches[kernel[:2]].words[1:4])
            for kernel, (_, error) in zip(ring.kernels, ring.exact)
        ]
        check(f"lengths: {label}: within the error", all(by <= 2 * error + 20000 for by, error, *_ in off), off)
        check(
            f"lengths: {label}: each has its time or is lost",
            len(off) + ring.lost() == len(launches) and ring.lost() <= untimed and (ring.lost() or untimed < 10),
            len(off),
            ring.lost(),
            len(launches),
        )


def contexts():
    """A device has the clock of one context; kernels of others are told as the host's clock had them."""
    daemon, calls = traced(["s-trace", "contexts", "14"], lambda: Ring(flags=fake_trace.GPU, clock=fake_trace.MONOTONIC))
    ring = daemon.rings[0]
    launches = {call.sequence: call for call in calls if call.name == "cuLaunchKernel"}
    check(
        "contexts: whose times are whose",
        len(ring.kernels) == 14 and [(kernel[5], flags) for kernel, (flags, _) in zip(ring.kernels, ring.exact)] == [(0x1000, 0), (0x2000, 1)] * 7,
        ring.kernels,
        ring.exact,
    )
    late = [
        (kernel[3] - launches[kernel[0]].start, launches[kernel[0]].end - kernel[3], error) for kernel, (flags, error) in zip(ring.kernels, ring.exact) if flags
    ]
    check("contexts: the host's times are", all(since >= -error - 1000 and till >= -error - 1000 for since, till, error in late), late)
    drifts = [(gpu - ring.pairs[0][2]) / ((before + after) / 2 - (ring.pairs[0][3] + ring.pairs[0][4]) / 2) - 1 for _, _, gpu, before, after in ring.pairs[1:]]
    half = max(after - before for _, _, _, before, after in ring.pairs)
    check("contexts: the clock is one clock", ring.pairs[1:] and all(abs(drift - 1e-4) < half / 4e8 + 1e-6 for drift in drifts), drifts, half, ring.pairs)


class Cupti:
    """Rings that ask for CUPTI's times, and what the stand-in for CUPTI (mock/cupti) was told to do."""

    def __init__(self, fails="", path=None, **more):
        self.path = os.path.join(BUILD, "shim/mock/cupti/libcupti.so") if path is None else path
        self.log = tempfile.NamedTemporaryFile(mode="r", prefix="cupti-")
        self.environment = {**MOCK, "GPUPROBE_CUPTI_LOG": self.log.name, "GPUPROBE_CUPTI_FAIL": fails}
        self.more = more

    def ring(self):
        return Ring(flags=fake_trace.GPU | fake_trace.CUPTI, clock=fake_trace.MONOTONIC, cupti=self.path, **self.more)

    def traced(self, *arguments, label):
        daemon, calls = traced(["s-trace", *map(str, arguments)], self.ring, environment=self.environment, label=label)
        return daemon.rings[0], calls

    def done(self):
        self.log.seek(0)
        return self.log.read().split("\n")[:-1]


def cupti():
    """Times by CUPTI: each kernel is that of its call, also those of graphs; copies, too."""
    mine = Cupti()
    ring, calls = mine.traced("gpu", 40, label="cupti")
    launches = {call.sequence: call for call in calls if call.name in ("cuLaunchKernel", "cuGraphLaunch")}
    graph = next(call for call in launches.values() if call.name == "cuGraphLaunch")
    captured = next(call for call in launches.values() if call.words[8:9] == (2,))
    of_calls = sorted(kernel[0] for kernel in ring.kernels)
    check(
        "cupti: each launch has its kernel, the graph three, one that was captured none",
        of_calls == sorted([*(set(launches) - {captured.sequence}), graph.sequence, graph.sequence]),
        of_calls,
    )
    good, named = True, {}
    for sequence, tid, device, start, stop, context, stream, function in ring.kernels:
        call = launches[sequence]
        good &= (tid, device, context, stream) == (call.tid, 3, 0x1000, 4 if call is graph else call.words[8]) and stop - start in range(1999795, 1999806)
        good &= call.start <= start + 100 and (call is graph or function == call.words[0])
        named.update({function: sequence} if call is graph else {})
    check("cupti: what it says of them", good and set(ring.exact) == {(1, 1000)}, ring.kernels[:3], ring.exact[:3])
    names = {number: name for _, number, name in ring.names}
    check(
        "cupti: names of a graph's kernels; its copy has none",
        sorted(names.get(number, "") for number in named) == ["", "first", "second"] and 0 in named,
        names,
    )
    check("cupti: neither clock pairs nor notes", not ring.pairs and not ring.notes, ring.notes)
    check("cupti: the end of each is known", ring.unread() == 0, ring.unread())
    check("cupti: what was collected", mine.done() == ["subscribe"] + [f"enable {kind}" for kind in (10, 1, 22, 2)], mine.done())
    mine = Cupti()
    ring, calls = mine.traced("copies", 4, label="cupti: copies")
    check("cupti: copies have their stream", [(kernel[6], kernel[7]) for kernel in ring.kernels] == [(5, 0)] * 4, ring.kernels)
    mine = Cupti(functions=[fake_trace.NUMBERS["cuLaunchKernel"]])
    ring, calls = mine.traced("gpu", 3, label="cupti: launches alone")
    check("cupti: launches alone", len(ring.kernels) == 7 and mine.done() == ["subscribe", "enable 10"], ring.kernels, mine.done())


def cupti_fails():
    """Whatever is wrong with CUPTI: the program runs as bare, the times come by events, and a note says why."""
    for fails, text in (
        ("subscribe", "another profiler has CUPTI in this process: Nsight Thing"),
        ("callback", "knows none of the functions"),
        ("clock", "cuptiActivityRegisterTimestampCallback failed: a reason (999)"),
        ("buffers", "cuptiActivityRegisterCallbacks failed"),
        ("enable", "cuptiActivityEnable failed"),
    ):
        mine = Cupti(fails)
        ring, _ = mine.traced("gpu", 3, label=f"cupti fails: {fails}")
        check(
            f"cupti fails: {fails}: a note",
            len(ring.notes) == 1 and ring.notes[0].startswith("kernels are timed by events, not by CUPTI: ") and text in ring.notes[0],
            ring.notes,
        )
        check(f"cupti fails: {fails}: events", len(ring.kernels) == 8 and ring.pairs and not any(flags for flags, _ in ring.exact), ring.kernels)
        check(f"cupti fails: {fails}: nothing stays", mine.done() == ([] if fails == "subscribe" else ["subscribe", "unsubscribe"]), mine.done())
    for path, text in (
        ("/nowhere/libcupti.so", "CUPTI cannot be loaded: /nowhere"),
        ("libcupti.so", "its path is not absolute"),
        (os.path.join(BUILD, "shim/mock/libempty.so"), "CUPTI has no cuptiGetResultString"),
    ):
        ring, _ = Cupti(path=path).traced("gpu", 3, label=f"cupti: {path}")
        check(f"cupti: {path}: a note, and events", len(ring.notes) == 1 and text in ring.notes[0] and len(ring.kernels) == 8, ring.notes)
    for fails in "flush", "memory":
        ring, _ = Cupti(fails).traced("gpu", 3, label=f"cupti fails: {fails}")
        check(f"cupti fails: {fails}: no times", not ring.kernels and not ring.notes, ring.kernels)
        check(f"cupti fails: {fails}: that is counted", ring.unread() == 8, ring.unread())
    ring, _ = Cupti("dropped").traced("gpu", 3, label="cupti drops")
    check("cupti drops: it is counted", ring.lost() >= 5 and ring.lost() % 5 == 0 and len(ring.kernels) == 10, ring.lost(), ring.kernels)


def cupti_live():
    """CUPTI comes and goes with the traces of a process that runs, at the ends of calls; and before it, when nothing is called."""
    for fails in "", "finalize", "busy":
        mine = Cupti(fails)
        with TraceDaemon(session("cupti"), rules=(), make=mine.ring) as daemon:
            steps = Steps(daemon.name, "launches", **mine.environment)
            steps.do(2)
            for n in range(3):
                daemon.change_rules()
                steps.do(5)
                ring = daemon.rings[-1]
                check(f"cupti live {fails}{n}: kernels", within(lambda: ring.read() is None or len(ring.kernels) == 5, 5), ring.kernels)
                check(
                    f"cupti live {fails}{n}: it is there",
                    [line for line in mine.done() if not line.startswith(("enable", "disable"))]
                    == ["subscribe", *["unsubscribe", "finalize", "subscribe"] * n],
                    mine.done(),
                )
                ring.end()
                if n != 1:
                    check(f"cupti live {fails}{n}: over without a call", within(lambda: steps.maps() == (0, 0), 5), steps.maps())
                    check(f"cupti live {fails}{n}: nothing is collected", within(lambda: mine.done()[-1].startswith("disable"), 5), mine.done())
                steps.do(5)
                check(
                    f"cupti live {fails}{n}: it leaves at the end of a call",
                    within(lambda: steps.do(1) and mine.done()[-2:] == ["unsubscribe", "finalize"], 5) and steps.maps() == (0, 0),
                    mine.done(),
                )
                check(f"cupti live {fails}{n}: nothing later", len(daemon.rings) == n + 1 and not ring.read() and len(ring.kernels) == 5)
            daemon.change_rules()
            steps.do(5)
            daemon.rings[-1].end()
            within(lambda: mine.done()[-1].startswith("disable"), 5)
            daemon.change_rules()
            steps.do(3)
            check(
                f"cupti live {fails}: another trace before it could leave",
                mine.done()[-1].startswith("enable")
                and mine.done().count("subscribe") == 4
                and within(lambda: daemon.rings[-1].read() is None or len(daemon.rings[-1].kernels) == 3, 5),
                mine.done(),
            )
            check(f"cupti live {fails}: ends well", steps.end() == 0)


def cupti_taken():
    """A profiler that the application starts later takes CUPTI's buffers: what it has enabled is left alone at the end."""
    mine = Cupti("taken")
    with TraceDaemon(session("taken"), rules=(), make=mine.ring) as daemon:
        steps = Steps(daemon.name, "launches", **mine.environment)
        daemon.change_rules()
        steps.do(5)
        steps.do(-5000)
        ring = daemon.rings[-1]
        check(
            "cupti taken: a note says so",
            within(lambda: ring.beat() or ring.read() is None or ring.notes, 8) and "has taken CUPTI over" in ring.notes[0] and not ring.kernels,
            ring.notes,
        )
        ring.end()
        check(
            "cupti taken: nothing is disabled, and CUPTI stays",
            within(lambda: mine.done()[-1] == "unsubscribe", 5) and steps.do(3) and not any(line.startswith(("disable", "finalize")) for line in mine.done()),
            mine.done(),
        )
        check("cupti taken: ends well", steps.maps() == (0, 0) and steps.end() == 0)


def cupti_taken_idle():
    """The same at a moment when CUPTI has no buffer of ours: it never asks for one again."""
    mine = Cupti("idle")
    with TraceDaemon(session("idle"), rules=(), make=mine.ring) as daemon:
        steps = Steps(daemon.name, "launches", **mine.environment)
        daemon.change_rules()
        steps.do(5)
        ring = daemon.rings[-1]
        check("cupti idle: kernels at first", within(lambda: ring.beat() or ring.read() is None or len(ring.kernels) == 5, 5), ring.kernels)
        steps.do(-5000)
        check(
            "cupti idle: a note says so",
            within(lambda: ring.beat() or ring.read() is None or ring.notes, 8) and "has taken CUPTI over" in ring.notes[0],
            ring.notes,
        )
        ring.end()
        check(
            "cupti idle: nothing is disabled, and CUPTI stays",
            within(lambda: mine.done()[-1] == "unsubscribe", 5) and steps.do(3) and not any(line.startswith(("disable", "finalize")) for line in mine.done()),
            mine.done(),
        )
        check("cupti idle: ends well", steps.maps() == (0, 0) and steps.end() == 0)


def cupti_others():
    """An application with records of its own, which subscribes to nothing: its buffers that come to us are left alone, and it may free ours."""
    for first in True, False:
        label = f"cupti, another client {'before' if first else 'after'}"
        mine = Cupti()
        with TraceDaemon(session("others"), rules=(), make=mine.ring) as daemon:
            steps = Steps(daemon.name, "records", mine.path, program="s-cupti", **mine.environment)
            if first:
                steps.do(0)
            steps.do(2)
            daemon.change_rules()
            steps.do(5)
            ring = daemon.rings[-1]
            if not first:
                steps.do(0)
            for _ in range(4):
                time.sleep(0.1)  # what runs is in a buffer till it has ended
                goes_on = steps.do(5)
            check(
                f"{label}: kernels, if the buffers are ours",
                within(lambda: ring.read() is None or len(ring.kernels) >= 5, 5) if first else goes_on,
                ring.kernels,
            )
            ring.end()
            check(f"{label}: over", within(lambda: mine.done()[-1] in ("finalize", "unsubscribe") or not steps.do(1), 5) and steps.do(3), mine.done())
            daemon.change_rules()
            steps.do(5)
            time.sleep(0.1)
            check(
                f"{label}: again",
                steps.do(5) and within(lambda: daemon.rings[-1].read() is None or len(daemon.rings[-1].kernels) >= 5, 5) and len(daemon.rings) == 2,
            )
            check(f"{label}: ends well", steps.end() == 0)


def cupti_forks():
    """A fork while CUPTI is started, and one whose child has its parent's number: the child does without CUPTI."""
    for case, fails in ("fork", "slow"), ("namespace", ""):
        mine = Cupti(fails)
        daemon, calls = traced(["s-cupti", case], mine.ring, environment=mine.environment, label=f"cupti: {case}")
        notes = [note for ring in daemon.rings for note in ring.notes]
        check(
            f"cupti: {case}: the child has events, the parent CUPTI",
            len(daemon.rings) == 2
            and mine.done().count("subscribe") == 1
            and notes == ["kernels are timed by events, not by CUPTI: this process was forked by one that used CUPTI"],
            notes,
            mine.done(),
        )
        check(f"cupti: {case}: kernels", case != "fork" or len(daemon.rings[0].kernels) == 2, [ring.kernels for ring in daemon.rings])


def cupti_constructor():
    """A library's constructor makes the first call: CUPTI cannot be loaded meanwhile, and is waited for for a while only."""
    mine = Cupti()
    daemon, calls = traced(
        ["s-cupti", "constructor", os.path.join(TARGETS, "libs-construct.so")], mine.ring, environment=mine.environment, label="cupti: a constructor"
    )
    ring = daemon.rings[0]
    check(
        "cupti: a constructor",
        names(calls).count("cuLaunchKernel") == len(ring.kernels) == 2
        and not mine.done()
        and ring.notes == ["kernels are timed by events, not by CUPTI: it takes too long to load and start it"],
        ring.notes,
        ring.kernels,
        mine.done(),
    )


def cupti_jump():
    """A call is left by a longjmp: what CUPTI tells of the next one is not written where that one was."""
    mine = Cupti()
    daemon, calls = traced(["s-cupti", "jump"], mine.ring, environment=mine.environment, label="cupti: a jump")
    check("cupti: a jump: CUPTI was there", "subscribe" in mine.done(), names(calls), mine.done())


def cupti_exit():
    """The process exits in a signal handler that has interrupted CUPTI: it is not waited for till it goes on."""
    mine = Cupti("signal")
    with TraceDaemon(session("exit"), make=mine.ring) as daemon:
        status, output, error, seconds = run(["s-cupti", "exit"], GPUPROBE_SESSION=daemon.name, **mine.environment)
        check("cupti: exit within CUPTI", (status, output) == (signal.SIGUSR1, "") and "subscribe" in mine.done(), status, output, mine.done())


def cupti_stack():
    """The first call is made by a thread that has as little stack as there may be: there is enough for CUPTI."""
    mine = Cupti()
    daemon, calls = traced(["s-stack"], mine.ring, environment=mine.environment, label="cupti: little stack")
    check("cupti: little stack", len(calls) == 1 and "subscribe" in mine.done() and not daemon.rings[0].notes, calls, mine.done())


def behind():
    """Calls of the driver that are made inside the application's leave nothing that it sees."""
    daemon, calls = traced(["s-trace", "behind", "200"], lambda: Ring(flags=fake_trace.GPU), label="behind: names and times")
    launches = sum(call.name == "cuLaunchKernel" and not call.flags for call in calls)
    check("behind: launches", launches == 203, launches)


class Steps:
    def __init__(self, name, case="steps", *more, program="s-trace", **variables):
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("GPUPROBE", "LD_"))}
        self.process = subprocess.Popen(
            [os.path.join(TARGETS, program), case, *more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**environment, **MOCK, "LD_PRELOAD": SHIM, "GPUPROBE_SESSION": name, **variables},
        )
        if case == "steps":
            self.do(1)

    def line(self):
        return self.process.stdout.readline().split()

    def do(self, count):
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        while True:
            line = self.line()
            if not line or line[0] == "did":
                return line == ["did", str(count)]

    def maps(self):
        """How many rings the process has mapped, and connections and sockets it has."""
        with open(f"/proc/{self.process.pid}/maps") as maps:
            rings = sum("memfd:ring" in line for line in maps)
        return rings, sum(self.is_socket(fd) for fd in os.listdir(f"/proc/{self.process.pid}/fd"))

    def is_socket(self, fd):
        try:
            return os.readlink(f"/proc/{self.process.pid}/fd/{fd}").startswith("socket:")
        except FileNotFoundError:  # closed meanwhile
            return False

    def end(self):
        self.process.stdin.close()
        status = self.process.wait(20)
        self.process.stdout.close()
        return status


def stacks():
    """Who called: the addresses lie in the program, in functions of its own."""
    daemon, calls = traced(["s-trace", "arguments"], lambda: Ring(flags=fake_trace.STACKS | fake_trace.EXTRAS))
    deep = [len(call.extras[255][1]) // 8 for call in calls]
    check("stacks: of every call", min(deep) >= 3 and max(deep) <= 32 and all(call.extras[255][0] == 0 for call in calls), deep)
    tops = {call.extras[255][1][:8] for call in calls if call.name == "cuLaunchKernel" or isinstance(call.name, int)}
    check("stacks: where from", len(tops) == 4, tops)
    opened = next(call for call in calls if call.name == "cuIpcOpenMemHandle_v2")
    check("stacks: behind other extras", opened.extras[0][1] == (77).to_bytes(8, "little"), opened.extras)


def live():
    """Traces begin and end while the process runs."""
    with TraceDaemon(session("live"), rules=()) as daemon:
        steps = Steps(daemon.name)
        steps.do(10)
        check("live: nobody asks", not daemon.messages and steps.maps() == (0, 0), daemon.messages, steps.maps())
        for n in range(3):
            daemon.change_rules()
            check(f"live {n}: it goes on", steps.do(10))
            check(f"live {n}: traced", len(daemon.calls()) == 10 and steps.maps() == (1, 1), steps.maps())
            daemon.rings[-1].end()
            steps.do(10)
            check(f"live {n}: over", not daemon.calls()[1:] and steps.maps() == (0, 0) and len(daemon.rings) == n + 1, steps.maps())
        daemon.change_rules()
        steps.do(5)
        daemon.change_rules(())
        steps.do(5)
        check("live: a page that changes does not end it", len(daemon.calls()) == 10)
        if SANITIZED != "thread":  # TSan cannot end a thread that is cancelled where it ignores what it does
            daemon.change_rules()
            check("live: a thread that is being cancelled looks at a page", steps.do(-1) and len(daemon.calls()) == 1)
        daemon.rings[-1].end()
        daemon.change_rules([(1 << 2, 0, 0, 0, b"another", 0)])
        steps.do(5)
        check("live: not meant", steps.maps() == (0, 0) and len(daemon.rings) == 4)
        check("live: ends well", steps.end() == 0)
    with TraceDaemon(session("filtered"), make=lambda: Ring(functions=[])) as daemon:
        steps = Steps(daemon.name)
        daemon.rings[-1].end()
        daemon.change_rules(())
        steps.do(5)
        check("live: one that records nothing sees the end, too", steps.maps() == (0, 0) and steps.end() == 0)
    with TraceDaemon(session("widened"), make=lambda: Ring(functions=[], flags=fake_trace.ERRORS, min_duration=1 << 62, sample=100)) as daemon:
        steps = Steps(daemon.name)
        ring = daemon.rings[0]
        steps.do(5)
        check("live: nothing is wanted", not ring.read())
        for n, flags in enumerate((fake_trace.EXTRAS, fake_trace.EXTRAS | fake_trace.STACKS | fake_trace.GPU)):
            ring.widen(flags)
            daemon.change_rules()
            steps.do(5)
            calls = ring.read()
            check(
                f"live: more is wanted ({flags})",
                [call.sequence for call in calls] == list(range(5 * n + 1, 5 * n + 6))
                and daemon.rings == [ring]
                and not ring.pairs
                and all((255 in call.extras) == bool(flags & fake_trace.STACKS) for call in calls),
                calls,
            )
        check("live: ends well, widened", steps.end() == 0)
    with TraceDaemon(session("inside")) as daemon:
        steps = Steps(daemon.name, "inside")
        while steps.line() != ["in", "call", "1"]:
            pass
        daemon.rings[-1].end()
        steps.process.stdin.write("x")
        steps.process.stdin.flush()
        steps.line()
        steps.do(5)
        check("live: over in the midst of a call", steps.maps() == (0, 0) and steps.end() == 0)


def forked_at_the_end():
    """A child that is forked while a session ends does not unmap what the parent has unmapped."""
    with TraceDaemon(session("unmap")) as daemon:
        steps = Steps(daemon.name, LD_PRELOAD=f"{SHIM}:{os.path.join(TARGETS, 'libs-unmap.so')}")
        daemon.rings[-1].end()
        check("forked at the end", steps.do(5) and steps.maps() == (0, 0) and steps.end() == 0)


def storm():
    """Traces begin and end all the time, with threads that call all the time."""
    for flags in (0, fake_trace.EXTRAS | fake_trace.GPU, fake_trace.EXTRAS | fake_trace.GPU | fake_trace.CUPTI):
        with TraceDaemon(session("storm"), make=lambda: Ring(slots=6, slot_bytes=4096, flags=flags, cupti=Cupti().path), deadline_ms=20000) as daemon:
            steps = Steps(daemon.name, "busy", "6")
            while steps.line() != ["in", "call", "1"]:
                pass
            traces = 50 if flags & fake_trace.CUPTI else 150
            for n in range(traces):
                calls = []
                daemon.change_rules()
                if not within(lambda: calls or len(daemon.rings) > n and calls.extend(daemon.rings[n].read()), 20):
                    break
                for _ in range(3):
                    daemon.rings[n].read()
                daemon.rings[n].end()
                if n % 10 == 0:
                    steps.process.stdin.write("x")
                    steps.process.stdin.flush()
            steps.process.stdin.write("e")
            steps.process.stdin.flush()
            goes_on = steps.line() == ["did", "1"] and steps.do(5)
            check(
                f"storm {flags}: {len(daemon.rings)} traces",
                goes_on and len(daemon.rings) == traces and calls and steps.maps() == (0, 0) and steps.end() == 0,
                goes_on,
            )


def stale():
    """Nobody reads: while there is room it goes on, then it ends."""
    with TraceDaemon(session("stale"), make=lambda: Ring(slot_bytes=4096)) as daemon:
        steps = Steps(daemon.name)
        ring = daemon.rings[0]
        steps.do(1000)
        check("stale: losses alone do not end it", steps.maps() == (1, 1) and ring.lost() > 800, ring.lost())
        time.sleep(5.5)
        steps.do(1000)
        check("stale: over", steps.maps() == (0, 0) and steps.end() == 0, ring.lost())


def hostile():
    """Answers that make no sense: no trace, and no harm."""

    def field(offset, value, form="<I"):
        def change(header):
            header[offset : offset + len(value.to_bytes(8, "little")[: 4 if form == "<I" else 8])] = value.to_bytes(8, "little")[: 4 if form == "<I" else 8]
            return bytes(header)

        return lambda: Ring(change=change)

    wrong = {
        "magic": field(0, 1),
        "version": field(4, 99),
        "clock": field(16, 2),
        "no slots": field(20, 0),
        "many slots": field(20, 257),
        "more slots than there are": field(20, 17),
        "size of slots": field(24, 1 << 17),
        "no power of two": field(24, 3000),
        "small slots": field(24, 1024),
        "stride": field(28, 128),
        "odd stride": field(28, 128 + (1 << 16) + 1),
        "offset": field(32, 1 << 40, "<Q"),
        "offset in the header": field(32, 64, "<Q"),
        "offset that is odd": field(32, 4097, "<Q"),
        "unsealed": lambda: Ring(seals=0),
        "half sealed": lambda: Ring(seals=1 << 1),
        "short": lambda: Ring(cut=4096),
        "nothing": lambda: None,
    }
    for label, make in wrong.items():
        daemon, calls = traced(["s-trace", "plain", "5"], make, label=f"hostile: {label}")
        check(f"hostile: {label}", daemon.seen(wire.TRACE) == 1 and (label == "nothing" or daemon.rings[0].states() == [0] * 16))
    for label, script in (
        ("no welcome", {"welcome": lambda *_: None}),
        ("no answer", {"trace": lambda *_: None}),
        ("late", {"trace": lambda *_: time.sleep(1)}),
        ("without its memory", {"trace": lambda _, answer: [(answer[0][0], [])]}),
        ("garbage", {"trace": lambda *_: [(b"x" * 24, [])]}),
        ("deaf", {"silent": True}),
    ):
        start = time.monotonic()
        daemon, calls = traced(["s-trace", "plain", "5"], label=f"hostile: {label}", script=script, deadline_ms=300)
        check(f"hostile: {label}", not calls and time.monotonic() - start < 20)

    def scribble(ring, value):
        for slot in range(ring.slots):
            for offset in (8, 16, 64):
                ring.put(ring.at(slot) + offset, value)

    for value in (1, 3 << 40, 2**64 - 8):
        with TraceDaemon(session("scribble")) as daemon:
            steps = Steps(daemon.name)
            scribble(daemon.rings[0], value)
            check(f"hostile: heads and tails {value:#x}", steps.do(3000) and steps.end() == 0)
        with TraceDaemon(session("scribble")) as daemon:

            def make():
                ring = Ring()
                scribble(ring, value)
                return ring

            daemon.make = make
            steps = Steps(daemon.name)
            check(f"hostile: heads and tails from the beginning {value:#x}", steps.do(3000) and steps.end() == 0)


def programs():
    """Programs that do what a preloaded library may break, each traced with all there is, on the CPU driver."""
    everything = fake_trace.EXTRAS | fake_trace.GPU | fake_trace.STACKS
    for arguments in (
        ["s-plain"],
        ["s-dlsym"],
        ["s-linked"],
        ["s-threads"],
        ["s-signal"],
        ["s-fork"],
        ["s-exec"],
        ["s-close"],
        ["s-unload"],
        ["s-file"],
        ["s-ptsz"],
        ["s-context"],
        ["s-context", "none"],
        ["s-errno"],
        ["s-register"],
        ["s-capture"],
        ["s-exit", "return"],
        ["s-exit", "exit"],
        ["s-exit", "_exit"],
        ["s-exit", "abort"],
        ["s-exit", "thread"],
        ["s-exit", "handler"],
    ):
        label = "traced: " + " ".join(arguments)
        bare = run(arguments, preload=())
        with TraceDaemon(session("programs"), make=lambda: Ring(slot_bytes=1 << 20, flags=everything), period_ms=50) as daemon:
            ours = run(arguments, GPUPROBE_SESSION=daemon.name)
            calls = daemon.calls()
            lost = sum(ring.lost() for ring in daemon.rings)
            if as_bare(label, bare, ours):
                launches = [call for call in calls if "LaunchKernel" in str(call.name) and not call.result]
                kernels = sum(len(ring.kernels) for ring in daemon.rings)
                report(
                    label,
                    bool(calls) == (arguments != ["s-plain"]) and not lost and kernels <= len(launches) + 10,
                    f"{len(calls)} calls, {lost} lost, {len(launches)} launches, {kernels} kernels",
                )

    for arguments in (
        ["s-threads"],
        ["s-signal"],
        ["s-fork"],
        ["s-exec"],
        ["s-close"],
        ["s-exit", "return"],
        ["s-exit", "_exit"],
        ["s-exit", "abort"],
        ["s-exit", "handler"],
    ):
        label = "with CUPTI: " + " ".join(arguments)
        bare = run(arguments, preload=())
        mine = Cupti(slot_bytes=1 << 20)
        with TraceDaemon(session("cupti"), make=mine.ring, period_ms=50) as daemon:
            if as_bare(label, bare, run(arguments, GPUPROBE_SESSION=daemon.name, GPUPROBE_CUPTI_LOG=mine.log.name)):
                report(label, daemon.calls() and "subscribe" in mine.done() and not any(ring.notes for ring in daemon.rings[:1]), mine.done())
    for arguments, launches in ((["s-linked"], 40), (["s-threads"], 40), (["s-capture"], 3), (["s-unload"], 3)):
        label = "traced and probed: " + " ".join(arguments)
        bare = run(arguments, preload=())
        with TraceDaemon(session("both"), make=lambda: Ring(slot_bytes=1 << 20, flags=everything), period_ms=50, probes=True, deadline_ms=5000) as daemon:
            if as_bare(label, bare, run(arguments, GPUPROBE_SESSION=daemon.name)):
                report(label, daemon.count() == launches * 256 and daemon.calls(), f"counted {daemon.count()}")


def constructors():
    """A library's constructor launches, while another thread looks for functions of the driver: nobody waits for the other."""
    library = os.path.join(TARGETS, "libs-construct.so")
    bare = run(["s-library", library], preload=())
    with fake_trace.TraceDaemon(session("library"), make=lambda: Ring(flags=fake_trace.GPU)) as daemon:
        if as_bare("a library's constructor", bare, run(["s-library", library], GPUPROBE_SESSION=daemon.name)):
            calls = daemon.calls()
            check("a library's constructor", names(calls).count("cuLaunchKernel") == 2, names(calls))


def ended():
    """A context ends while another thread has the events of all: the one that gets its handle has events of its own."""
    slow = os.path.join(TARGETS, "libs-slow.so")
    bare = run(["s-ended"], preload=(slow,))
    for wait in "500", "1500":
        with TraceDaemon(session("ended"), make=lambda: Ring(flags=fake_trace.GPU)) as daemon:
            if as_bare(
                f"ended: {wait} ms", bare, run(["s-ended"], preload=(SHIM, slow), GPUPROBE_SESSION=daemon.name, S_SLOW_CALL="cuEventCreate", S_SLOW_MS=wait)
            ):
                calls = daemon.calls()
                main = next(call.tid for call in calls if call.name == "cuInit")
                kernels = [kernel for ring in daemon.rings for kernel in ring.kernels if kernel[1] == main]
                check(f"ended: {wait} ms", len(kernels) == 2, kernels, names(calls))


def unwanted():
    """Who is not meant, opted out, or runs with more rights than his user makes no connection."""
    bare = run(["s-trace", "plain", "5"], preload=(), **MOCK)
    with TraceDaemon(session("off")) as daemon:
        as_bare("GPUPROBE=off", bare, run(["s-trace", "plain", "5"], GPUPROBE_SESSION=daemon.name, GPUPROBE="off", **MOCK))
        check("GPUPROBE=off: nobody asks", not daemon.messages)
    others = [(1 << 2, 0, 0, 0, b"another", 0), (1 << 3, 0, 0, 0, b"", 12345)]
    with TraceDaemon(session("others"), rules=others) as daemon:
        as_bare("others: not meant", bare, run(["s-trace", "plain", "5"], GPUPROBE_SESSION=daemon.name, **MOCK))
        check("others: nobody asks", not daemon.messages)
    sandboxed = run(["s-seccomp"], preload=())
    with TraceDaemon(session("seccomp"), rules=others) as daemon:
        as_bare("seccomp", sandboxed, run(["s-seccomp"], GPUPROBE_SESSION=daemon.name))
        check("seccomp: nobody asks", not daemon.messages)
    if SANITIZED:
        return  # it makes system calls of its own
    numbers = [kind for kind, number in (("pid", 0xEFFFFFFC), ("user", 0xEFFFFFFD)) if os.readlink(f"/proc/self/ns/{kind}") == f"{kind}:[{number}]"]
    rules = [
        rule
        for kind, rule in (("pid", (1, os.getpid(), 0, 0, b"", 0)), ("user", (2 | 4 | 8 | 16, 0, os.getuid() + 1, 0, b"s-trace", 12345)))
        if kind in numbers
    ]
    with TraceDaemon(session("sandbox"), rules=()) as daemon:
        steps = Steps(daemon.name, "sandboxed")
        check("sandbox: it begins", steps.line() == ["init", "0"] and steps.line() == ["sandboxed", "1"])
        for n in range(3):
            check(f"sandbox {n}: alone", steps.do(5))
            daemon.change_rules(rules)
            check(f"sandbox {n}: a trace of others makes no system call", steps.do(5))
            daemon.change_rules(())
        check("sandbox: ends well", steps.do(5) and steps.end() == 0 and not daemon.messages)


if not os.path.exists("/proc/self/maps"):
    sys.exit(77)
slow = () if SANITIZED else (constructors, ended)  # it looks for functions before another dlsym() can answer
for part in (
    plain,
    filters,
    arguments,
    kernel_names,
    threads,
    first,
    replaced,
    processes,
    ancestors,
    signals,
    callbacks,
    stacks,
    gpu,
    gpu_ends,
    lengths,
    contexts,
    cupti,
    cupti_fails,
    cupti_live,
    cupti_taken,
    cupti_taken_idle,
    cupti_others,
    cupti_forks,
    cupti_constructor,
    cupti_jump,
    cupti_exit,
    cupti_stack,
    behind,
    live,
    forked_at_the_end,
    storm,
    stale,
    hostile,
    programs,
    *slow,
    unwanted,
):
    if len(sys.argv) < 3 or part.__name__ in sys.argv[2:]:
        part()
end()
