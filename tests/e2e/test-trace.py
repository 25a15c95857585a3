#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Traces by the shim: a private daemon, clients of Trace, processes that are made up (tracing.py) and real ones on the CPU driver."""

import base64
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from harness import BUILD, GPUPROBED, SHIM, SIM, SOURCE, VEC_ADD, Daemon, Failed, as_user, check, equal, main, need, wait_until
from tracing import (
    CALL,
    CLOCK,
    DYNAMIC,
    ERRORS,
    EXEC,
    EXIT,
    EXTRAS,
    FORK,
    FUNCTION_NAME,
    KERNEL,
    KERNEL_NAME,
    LOST,
    NAME,
    PROCESS,
    SEEN,
    START,
    STOP,
    THREAD,
    TIMES,
    Producer,
    Trace,
    call,
    clock_pair,
    kernel,
    name,
)
from varlink import Connection, VarlinkError
from wire import Closed

need(GPUPROBED, SHIM, VEC_ADD, os.path.join(SIM, "libcuda.so.1"))
with open(f"{SOURCE}/proto/functions.txt") as file:
    NUMBERS = {found[2]: int(found[1]) for found in (re.match(r"(\d+) \w+ (cu\w+)\(", line) for line in file) if found}
NAMES = {number: function for function, number in NUMBERS.items()}
LAUNCH = NUMBERS["cuLaunchKernel"]
RUN = (VEC_ADD, "--threads", "64", "--launches", "3")
LATE = os.path.join(BUILD, "daemon/gpuprobed/trace/libcuda.so.1")
USER = 61234
US = {"pids": [os.getpid()], "sources": ["shim"]}


def calls(trace, **values):
    return trace.of(CALL, **values)


def ended(process, timeout=60):
    out, err = process.communicate(timeout=timeout)
    equal(process.returncode, 0, out + err)
    return out


# ---- a process that is made up ----


def test_records():
    """Everything that a ring can hold comes to the client, in order, with what is needed before it."""
    with Daemon() as daemon:
        trace = Trace(daemon.directory, **US)
        equal(trace.missing, [])
        producer = Producer(daemon.directory)
        equal(producer.flags, EXTRAS)
        check(producer.wants(LAUNCH) and producer.wants(DYNAMIC) and not producer.wants(NUMBERS["cuCtxGetCurrent"]), "functions")
        producer.claim()
        n = 20000
        for i in range(n):
            record = call(LAUNCH, 1000 + i, 2000 + i, range(i % 12), [(0, 0, b"x" * (i % 50))] if i % 12 else (), result=i % 5, sequence=i)
            wait_until(lambda: producer.write(record), "there is room")
        producer.write(name(KERNEL_NAME, 77, "_Z3foov"))
        producer.write(name(FUNCTION_NAME, DYNAMIC + 9, "cuTomorrow"))
        producer.write(call(DYNAMIC + 9, 1, 2))
        check(producer.head() > 2 * producer.slot_bytes, "the ring was too large for this")
        wait_until(lambda: len(calls(trace)) == n + 1, "all calls are there")
        for i, got in enumerate(calls(trace)[:n]):
            equal((got.sequence, got.function, got.words, got.result, got.pid, got.source), (i, LAUNCH, tuple(range(i % 12)), i % 5, os.getpid(), 1))
            equal(got.extras, {(0, 0): b"x" * (i % 50)} if i % 12 else {})
        equal([(r.name_kind, r.id, r.name) for r in trace.of(NAME)], [(KERNEL_NAME, 77, "_Z3foov"), (FUNCTION_NAME, DYNAMIC, "cuTomorrow")])
        equal(calls(trace)[-1].function, DYNAMIC)
        kinds = [r.kind for r in trace.records]
        check(kinds.index(START) < kinds.index(PROCESS) < kinds.index(THREAD) < kinds.index(CALL), kinds[:10])
        seen = trace.of(PROCESS)[0]
        equal((seen.pid, seen.parent, seen.uid, seen.what), (os.getpid(), os.getppid(), os.getuid(), SEEN))
        equal(trace.of(THREAD)[0].tid, threading.get_native_id())
        trace.close()
        wait_until(lambda: not producer.is_enabled(), "the process is told that it is over")
        check(producer.shim.closed(), "the connection stays")


def test_prompt():
    """What is written is told within 50 ms, whatever the machine has to do besides (here: seconds); many records come in few replies."""
    with Daemon() as daemon:
        trace = Trace(daemon.directory, **US)
        producer = Producer(daemon.directory)
        producer.claim()
        for i in range(20):
            producer.write(call(LAUNCH, 1, 2, sequence=i))
            wait_until(lambda: len(calls(trace)) == i + 1, "the call is told", 5)
        replies = trace.replies
        check(replies <= 45, replies)
        for i in range(10000):
            producer.write(call(LAUNCH, 1, 2, sequence=i))
        wait_until(lambda: len(calls(trace)) == 10020, "all calls")
        check(trace.replies - replies < 500, trace.replies)
        trace.close()


def test_times():
    """A kernel waits for its device's clock; times are of CLOCK_MONOTONIC."""
    with Daemon() as daemon:
        trace = Trace(daemon.directory, pids=[os.getpid()], sources=["shim", "gpu"])
        producer = Producer(daemon.directory)
        equal(producer.flags, EXTRAS | TIMES)
        producer.claim()
        tid = threading.get_native_id()
        producer.write(kernel(5, tid, 2, 10_000, 10_500, context=7, stream=8, function=9))
        producer.write(clock_pair(2, 9_000, 1000, 1000))
        wait_until(lambda: trace.of(KERNEL), "the kernel")
        got, clock = trace.of(KERNEL)[0], trace.of(CLOCK)[0]
        equal((got.tid, got.sequence, got.device, got.context, got.stream, got.function), (tid, 5, 2, 7, 8, 9))
        equal((clock.device, clock.gpu_time, clock.drift), (2, 9_000, 0))
        equal((got.start - clock.host_time, got.end - got.start), (1_000, 500), "times")
        trace.close()


def test_errors():
    cases = [
        ({"pids": []}, "pids", "expected 1 to"),
        ({"pids": [0]}, "pids", "not a process id"),
        ({"pids": [-1]}, "pids", "not a process id"),
        ({"pids": [1 << 40]}, "pids", "not a process id"),
        ({"pids": [1], "filter": {"uid": 0}}, "pids", "filter"),
        ({"pids": [1] * 2000}, "pids", "1024"),
        ({"filter": {"pid": 0}}, "filter.pid", "process id"),
        ({"filter": {"uid": -1}}, "filter.uid", "user id"),
        ({"filter": {"comm": "x" * 16}}, "filter.comm", "15"),
        ({"filter": {"exe": "python3"}}, "filter.exe", "absolute"),
        ({"cgroup": "a/b"}, "cgroup", "unified hierarchy"),
        ({"cgroup": ""}, "cgroup", "unified hierarchy"),
        ({"sources": []}, "sources", "empty"),
        ({"sources": ["shim", "tape"]}, "sources", "tape"),
        ({"sources": ["gpu"]}, "sources", "gpu needs shim"),
        ({"sources": ["cupti", "bpf"]}, "sources", "cupti needs shim"),
        ({"calls": ["cuNothing"]}, "calls", "cuNothing"),
        ({"calls": ["all", "!nothing*"]}, "calls", "nothing*"),
        ({"calls": [""]}, "calls", "empty"),
        ({"calls": ["x" * 256]}, "calls", "255"),
        ({"calls": ["all"] * 300}, "calls", "256"),
        ({"hooks": ["x"] * 300}, "hooks", "256"),
        ({"hooks": [""]}, "hooks", "empty"),
        ({"probes": ["x" * 1024]}, "probes", "1023"),
        ({"min_duration": -1}, "min_duration", "nanoseconds"),
        ({"sample": 0}, "sample", "samples"),
        ({"rate": 0}, "rate", "second"),
        ({"buffer": 4095}, "buffer", "4096"),
        ({"buffer": (64 << 20) + 1}, "buffer", "67108864"),
        ({"duration": 0}, "duration", "seconds"),
        ({"duration": 1 << 40}, "duration", "seconds"),
    ]
    with Daemon() as daemon:
        bus = Connection(daemon.directory)
        for parameters, parameter, words in cases:
            try:
                for _ in bus.stream("Trace", **parameters):
                    raise Failed(f"{str(parameters)[:200]} is not refused")
            except VarlinkError as error:
                equal((error.error, error.parameters.get("parameter")), ("InvalidArgument", parameter), str(parameters)[:200])
                check(words in error.parameters["reason"], error.parameters, "expected", words)
        try:
            for _ in bus.stream("Trace", pids=[4194304]):
                raise Failed("a trace of no process")
        except VarlinkError as error:
            equal((error.error, error.parameters), ("NotFound", {"what": "process 4194304"}))
        try:
            bus.call("Trace")
            raise Failed("a trace without `more`")
        except VarlinkError as error:
            equal(error.error, "org.varlink.service.ExpectedMore")
        traces = [Trace(daemon.directory, sources=["shim"]) for _ in range(4)]
        try:
            Trace(daemon.directory, sources=["shim"])
            raise Failed("a fifth trace")
        except VarlinkError as error:
            equal((error.error, error.parameters["limit"]), ("LimitExceeded", 4))
        traces[0].close()
        for trace in traces[1:] + [Trace(daemon.directory, sources=["shim"])]:
            trace.close()


def test_slow_reader():
    """A client that does not read loses records, which are counted; the process does not wait, and the client is not dropped."""
    with Daemon() as daemon:
        trace = Trace(daemon.directory, reads=False, buffer=4 << 20, **US)
        producer = Producer(daemon.directory)
        producer.claim()
        n, lost = 90000, 0
        record = bytearray(call(LAUNCH, 1, 2, [0], [(0, 0, b"x" * 900)]))
        for i in range(n):
            record[4:8] = i.to_bytes(4, "little")
            if not producer.write(record):
                lost += 1
                producer.set_lost(lost)
        producer.close()
        wait_until(lambda: daemon.status()["pid"], "the daemon answers others")
        daemon.process.send_signal(signal.SIGTERM)  # ends the trace
        try:
            trace.end()
        except AssertionError:
            check(trace.error, "no end, and no end of the connection")  # what did not fit into the socket went with the daemon
        got, told = calls(trace), sum(r.count for r in trace.of(LOST))
        check(0 < len(got) < n, len(got))
        equal([r.sequence for r in got], sorted(r.sequence for r in got), "order")
        daemon.process.wait(timeout=15)
    with Daemon() as daemon:  # the same, and it reads in the end
        trace = Trace(daemon.directory, reads=False, buffer=4 << 20, **US)
        producer = Producer(daemon.directory)
        producer.claim()
        lost = 0
        for i in range(n):
            record[4:8] = i.to_bytes(4, "little")
            if not producer.write(record):
                lost += 1
                producer.set_lost(lost)
        trace.thread.start()
        producer.close()
        wait_until(lambda: len(calls(trace)) + sum(r.count for r in trace.of(LOST)) == n, "each is there or counted", 120)
        got, told = calls(trace), trace.of(LOST)
        check(len(got) < n and sum(r.count for r in told) >= lost, len(got), lost)
        check(all((r.source, r.pid, r.tid) == (1, os.getpid(), threading.get_native_id()) for r in told), told)
        trace.close()


def test_liar():
    """Who writes nonsense loses its ring, with one line in the log; others and the daemon are unhurt."""
    with Daemon() as daemon:
        trace = Trace(daemon.directory, **US)
        liar = Producer(daemon.directory)
        liar.claim()
        liar.write(call(LAUNCH, 1, 2, sequence=1))
        wait_until(lambda: len(calls(trace)) == 1, "the honest part")
        liar.set_head(1 << 60)
        wait_until(lambda: not liar.is_enabled(), "it is found out")
        check(liar.shim.closed(), "its connection stays")
        equal(Producer(daemon.directory).size, 0, "another ring for it")
        equal(daemon.text().count("is not traced any more"), 1, daemon.text())
        equal(len(calls(trace)), 1)
        trace.close()
        run = Trace(daemon.directory, sources=["shim"], filter={"comm": "vec_add_driver"})
        ended(daemon.start_run(*RUN))
        wait_until(lambda: len(calls(run, function=LAUNCH)) == 3, "another process")
        run.close()


def test_not_meant():
    with Daemon() as daemon:
        equal(Producer(daemon.directory).size, 0, "a ring without a trace")
        for parameters in (
            {"pids": [1], "sources": ["shim"]},
            {"filter": {"comm": "nobody"}, "sources": ["shim"]},
            {"cgroup": "/no/such", "sources": ["shim"]},
            {"pids": [os.getpid()], "sources": ["kernel"]},
        ):
            trace = Trace(daemon.directory, **parameters)
            equal(Producer(daemon.directory).size, 0, parameters)
            trace.close()


# ---- real programs ----


def test_program():
    """Every call of a program, once, in order, with its arguments and results; nothing is lost."""
    with Daemon() as daemon:
        trace = Trace(daemon.directory, sources=["shim"], calls=["all"], filter={"exe": os.path.realpath(VEC_ADD)})
        before = time.monotonic_ns()
        process = daemon.start_run(*RUN)
        ended(process)
        after = time.monotonic_ns()
        wait_until(lambda: trace.of(PROCESS, what=EXIT), "its end")
        got = calls(trace)
        names = [NAMES[r.function] for r in got]
        equal(names.count("cuInit"), 1, names)
        equal(names.count("cuLaunchKernel"), 3, names)
        for wanted in (
            "cuDeviceGet",
            "cuMemAlloc_v2",
            "cuMemcpyHtoD_v2",
            "cuModuleLoadData",
            "cuModuleGetFunction",
            "cuLaunchKernel",
            "cuMemcpyDtoH_v2",
            "cuMemFree_v2",
        ):
            check(wanted in names, wanted, "is missing:", names)
        order = [
            names.index(n) for n in ("cuInit", "cuMemAlloc_v2", "cuModuleLoadData", "cuModuleGetFunction", "cuLaunchKernel", "cuMemcpyDtoH_v2", "cuMemFree_v2")
        ]
        equal(order, sorted(order), names)
        equal([r.sequence for r in got], list(range(1, len(got) + 1)), "sequence")
        equal({(r.pid, r.tid, r.result) for r in got}, {(process.pid, process.pid, 0)})
        for one, other in zip(got, got[1:]):
            check(before < one.start <= one.end <= other.start and other.end < after, "times of", one, other)
        allocated = {int.from_bytes(r.extras[0, 1], "little") for r in got if r.function == NUMBERS["cuMemAlloc_v2"]}
        freed = {r.words[0] for r in got if r.function == NUMBERS["cuMemFree_v2"]}
        equal(allocated, freed, "what is allocated is freed")
        function = next(r for r in got if NAMES[r.function] == "cuModuleGetFunction")
        equal(function.extras[2, 0], b"_Z9vectorAddPKfS0_Pf", "the string that an argument points to")
        handle = int.from_bytes(function.extras[0, 1], "little")
        for launch in (r for r in got if r.function == LAUNCH):
            equal(launch.words[:5], (handle, 1, 1, 1, 256), "grid and block")
            equal(len(launch.words), 11)
        equal([(r.id, r.name) for r in trace.of(NAME)], [(handle, "_Z9vectorAddPKfS0_Pf")])
        equal(trace.of(LOST), [])
        trace.close()


def test_options():
    """What is asked for comes, and nothing else."""
    with Daemon() as daemon:

        def traced(n, run=RUN, **parameters):
            trace = Trace(daemon.directory, sources=["shim"], filter={"comm": "vec_add_driver"}, **parameters)
            ended(daemon.start_run(*run))
            wait_until(lambda: trace.of(PROCESS, what=EXIT), "the end")
            trace.close()
            if n is not None:
                equal(len(calls(trace)), n, parameters)
            return calls(trace)

        traced(3, calls=["launch"])
        equal({r.function for r in traced(3, calls=["cuLaunch*", "!cuLaunchHostFunc*"])}, {LAUNCH})
        check(all(not r.extras for r in traced(None, extras=False)), "extras")
        traced(0, errors=True, calls=["launch"])
        traced(0, min_duration=3600 * 10**9)
        everything = len(traced(None))
        some = len(traced(None, run=(VEC_ADD, "--threads", "64", "--launches", "400"), calls=["launch"], sample=4))
        check(50 <= some <= 150, f"{some}: one of four")
        trace = Trace(daemon.directory, sources=["shim"], filter={"comm": "vec_add_driver"}, rate=5, duration=20)
        ended(daemon.start_run(*RUN))
        wait_until(lambda: trace.of(PROCESS, what=EXIT), "the end")
        wait_until(lambda: len(calls(trace)) + sum(r.count for r in trace.of(LOST)) == everything, "what the rate leaves out is counted")
        check(5 <= len(calls(trace)) <= 10, len(calls(trace)))
        trace.close()


def test_attach():
    """To a process that runs already; away from it; and again. It does not notice."""
    with Daemon() as daemon:
        process = daemon.start_run(VEC_ADD, "--threads", "64", "--launches", "400", "--sleep-ms", "10")
        time.sleep(0.3)
        for _ in range(3):
            trace = Trace(daemon.directory, pids=[process.pid], sources=["shim"], calls=["launch"])
            wait_until(lambda: len(calls(trace)) >= 5, "calls")
            sequences = [r.sequence for r in calls(trace)]
            equal(sequences, list(range(1, len(sequences) + 1)), "sequence")
            check(trace.of(NAME, id=calls(trace)[0].words[0]), "the name of a kernel that was there before")
            trace.close()
        check(process.poll() is None, "it ended too early")
        last = Trace(daemon.directory, pids=[process.pid], sources=["shim"], calls=["launch"])
        ended(process)
        last.end()
        equal([r.what for r in last.of(PROCESS, pid=process.pid)], [SEEN, EXIT])
        equal(last.records[-1].lost, 0)


def test_two_traces():
    """Two traces of one process, of different things: each gets its own, also when one joins or leaves while it runs."""
    with Daemon() as daemon:
        first = Trace(daemon.directory, sources=["shim"], calls=["launch"], filter={"comm": "vec_add_driver"})
        process = daemon.start_run(VEC_ADD, "--threads", "64", "--launches", "300", "--sleep-ms", "10")
        wait_until(lambda: len(calls(first)) >= 5, "the first")
        second = Trace(daemon.directory, sources=["shim"], calls=["launch", "sync"], pids=[process.pid])
        wait_until(lambda: len(calls(second)) >= 5, "the second")
        third = Trace(daemon.directory, sources=["shim"], calls=["sync"], pids=[process.pid])
        fourth = Trace(daemon.directory, sources=["shim"], calls=["all"], sample=2, pids=[process.pid])
        wait_until(lambda: len(calls(fourth)) >= 5, "the fourth")
        fourth.close()
        ended(process)
        second.end()
        wait_until(lambda: first.of(PROCESS, what=EXIT), "the end")
        first.close()
        equal(len(calls(first)), 300, "launches of the first")
        equal({r.function for r in calls(first)}, {LAUNCH})
        check({r.function for r in calls(second)} >= {LAUNCH, NUMBERS["cuCtxSynchronize"]}, {NAMES[r.function] for r in calls(second)})
        third.end()
        check(calls(third) and not calls(third, function=LAUNCH), "the third")


def test_follow():
    """Children, and what they execute; without follow the process alone, and the end of the trace is its end."""
    with Daemon() as daemon:
        for follow in (True, False):
            shell = subprocess.Popen(
                ["sh", "-c", f"read x; {' '.join(RUN)}; {' '.join(RUN)}; true"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**daemon.environment(**daemon.libraries()), "LD_PRELOAD": SHIM},
            )
            trace = Trace(daemon.directory, pids=[shell.pid], sources=["shim"], calls=["launch"], follow=follow)
            shell.communicate(b"\n", timeout=60)
            trace.end()
            got = calls(trace)
            equal(len(got), 6 if follow else 0)
            equal(len({r.pid for r in got}), 2 if follow else 0, "processes")
            check(shell.pid not in {r.pid for r in got}, "the shell launches nothing")
            check(all(trace.of(PROCESS, pid=r.pid)[-1].comm == "vec_add_driver" for r in got), trace.of(PROCESS))
            equal([r.pid for r in trace.of(PROCESS, what=EXIT, pid=shell.pid)], [shell.pid])


def test_fifty():
    """Fifty programs at a time: each call of each is there."""
    with Daemon() as daemon:
        trace = Trace(daemon.directory, sources=["shim"], filter={"comm": "vec_add_driver"}, calls=["all"])
        processes = [daemon.start_run(*RUN) for _ in range(50)]
        for process in processes:
            ended(process, 120)
        wait_until(lambda: len(trace.of(PROCESS, what=EXIT)) == 50, "their ends", 30)
        counts = {process.pid: len(calls(trace, pid=process.pid)) for process in processes}
        equal(len(set(counts.values())), 1, counts)
        check(counts[processes[0].pid] > 15, counts)
        equal(len(calls(trace)), sum(counts.values()))
        equal(trace.of(LOST), [])
        trace.close()


def test_killed():
    """A process that is killed: what it had written is told."""
    with Daemon() as daemon:
        process = daemon.start_run(VEC_ADD, "--threads", "64", "--launches", "100000", "--sleep-ms", "1")
        trace = Trace(daemon.directory, pids=[process.pid], sources=["shim"], calls=["launch"])
        wait_until(lambda: len(calls(trace)) > 20, "calls")
        process.kill()
        process.communicate()
        trace.end()
        sequences = [r.sequence for r in calls(trace)]
        equal(sequences, list(range(1, len(sequences) + 1)), "sequence")


def test_stop():
    """The daemon stops, or is killed, in the middle of a trace: programs go on, and a new daemon traces them again."""
    with Daemon() as daemon:
        process = daemon.start_run(VEC_ADD, "--threads", "64", "--launches", "600", "--sleep-ms", "10")
        trace = Trace(daemon.directory, sources=["shim"], calls=["launch"])
        wait_until(lambda: len(calls(trace)) > 5, "calls")
        daemon.stop()
        trace.end()
        daemon.start()
        wait_until(lambda: daemon.listens(), "it is back")
        trace = Trace(daemon.directory, sources=["shim"], calls=["launch"])
        later = daemon.start_run(*RUN)
        wait_until(lambda: len(calls(trace, pid=later.pid)) == 3, "a new process")
        ended(later)
        daemon.kill()
        trace.thread.join(10)
        check(trace.error, "the client does not notice")
        daemon.clean()
        check(process.poll() is None, "the program ended too early")
        ended(process)
        daemon.start()


def test_late_library():
    """A program brings a libcuda of its own while a trace runs: what is to be said of it comes with a later reply, once."""
    with Daemon() as daemon, tempfile.TemporaryDirectory() as folder:
        trace = Trace(daemon.directory, sources=["bpf"], calls=["all"])
        if any(line.startswith("bpf:") and "calls of processes without the shim" in line for line in trace.missing):
            trace.close()
            return  # this machine does not let its daemon probe programs
        need(LATE)
        library = shutil.copy(LATE, folder)
        process = subprocess.Popen(
            [sys.executable, "-c", "import ctypes, sys, time\ncuda = ctypes.CDLL(sys.argv[1])\nwhile not cuda.cuInit(0): time.sleep(0.005)", library]
        )
        wait_until(lambda: calls(trace, pid=process.pid), "a call")
        said = lambda: [line for line in trace.later if line.startswith(f"bpf: {library}: new to this trace when process {process.pid} mapped it")]
        wait_until(said, "that calls before are missing")
        process.kill()
        process.wait()
        trace.close()
        equal(len(said()), 1, trace.later)


def test_hooks():
    with Daemon("--user-attach=yes") as daemon:
        bus = Connection(daemon.directory)
        try:
            hooks = bus.call("ListHooks")["hooks"]
        except VarlinkError as error:
            equal(error.error, "Unavailable")
            return
        check(len(hooks) > 10 and all(h["name"] and h["set"] and h["state"] in ("available", "unavailable", "attached") for h in hooks), hooks[:3])
        equal(bus.call("ListHooks", pattern="no-such-hook")["hooks"], [])
        # probes of a trace, and what they hit, are for who traces, and for root
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            path = shutil.copyfile(VEC_ADD, f"{folder}/mine")
            os.chown(path, USER, USER)
            with as_user(USER):
                trace = Trace(daemon.directory, sources=["kernel"], hooks=["!all"], probes=[f"u:{path}:main"])
            mine = [h["name"] for h in bus.call("ListHooks", pattern="user")["hooks"]]
            equal(mine, [f"u:{path}:main"] if not any("hooks:" in line for line in trace.missing) else [])
            for uid, names in ((USER, mine), (USER + 1, [])):
                with as_user(uid):
                    other = Connection(daemon.directory)
                equal(wait_until(lambda: listed(other), "a list for a user"), [names])
            trace.close()


def listed(bus):
    """Names of probes, in a list; none while another user's list was just made."""
    try:
        return [[h["name"] for h in bus.call("ListHooks", pattern="user")["hooks"]]]
    except VarlinkError as error:
        equal(error.error, "LimitExceeded")
        return None


if __name__ == "__main__":
    main(
        [
            test_records,
            test_prompt,
            test_times,
            test_errors,
            test_slow_reader,
            test_liar,
            test_not_meant,
            test_program,
            test_options,
            test_attach,
            test_two_traces,
            test_follow,
            test_fifty,
            test_killed,
            test_stop,
            test_late_library,
            test_hooks,
        ]
    )
