#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Attaching to processes that run, and detaching: what was launched in between is counted, exactly, and nothing is left behind. On the CPU driver
with a stand-in for NVIDIA's patching library, or with GPUPROBE_TEST_GPU=1 on a GPU.
"""

import os
import re
import signal
import subprocess
import tempfile
import threading
import time

from harness import BUILD, COUNTER, CTL, GPU, GPUPROBED, SHIM, SIM, SOURCE, Daemon, check, equal, main, need, resident, wait_until
from live import LIVE, PTXCOMPILER, THREADS, Live, engines, example, obj, shown_id, reasons, sass_daemon

need(
    GPUPROBED,
    CTL,
    COUNTER,
    SHIM,
    LIVE,
    PTXCOMPILER,
    obj("two"),
    os.path.join(BUILD, "shim/libgpuprobe-sass.so"),
    *([] if GPU else [os.path.join(SIM, "libcuda.so.1"), os.path.join(SIM, "sanitizer/libsanitizer-public.so")]),
)

CYCLES = 200
GRAPHS_FOLLOW = False  # whether graphs that were made before an attachment are probed, too


def attach_two(daemon, *more):
    """A counter on vectorAdd whose map outlives it: the attachment to detach, and that which keeps the map."""
    attached = daemon.json("attach", obj("two"), *more)["attachments"]
    ids = {a["program"]: a["id"] for a in attached}
    return ids["cuda__count"], ids["cuda__keep"]


def detach(daemon, *ids):
    daemon.ctl("detach", *map(str, ids))


def counts(daemon):
    """Of all maps, in the order of attaching."""
    return [daemon.dump(str(m["id"]))[0]["value"] for m in daemon.json("map", "list")["maps"]]


def test_attach_and_detach():
    """Also what --pid of a running process does."""
    for options in (("--engine", "sanitizer"), (), ("--pid",)):
        with sass_daemon() as daemon, Live(daemon) as live, Live(daemon) as other:
            options = [*options, str(live.pid)] if options == ("--pid",) else options
            live.launch(5)
            count, keep = attach_two(daemon, *options)
            live.launch(7)
            other.launch(1)
            seen = 7 + ("--pid" not in options)
            equal(daemon.count_of(), seen * THREADS, options)
            equal(engines(daemon, "--pid", str(live.pid)), {("vectorAdd", "sanitizer")})
            detach(daemon, count)
            live.launch(9)
            other.launch(9)
            equal(daemon.count_of(), seen * THREADS, f"after detach {options}")
            equal(daemon.attachments()[0]["modules"], 0, "modules")
            detach(daemon, keep)
            attach_two(daemon, *options)
            live.launch(2)
            equal(daemon.count_of(), 2 * THREADS, "attached again")


def test_before_the_first_launch():
    with sass_daemon() as daemon, Live(daemon, load=None) as live:
        daemon.attach("--engine", "sanitizer")
        live.do("load 0")
        live.launch(1)
        equal(daemon.count_of(), THREADS)


def test_overlapping():
    """Two objects on kernels that overlap; detaching one leaves the other's counts alone."""
    with sass_daemon() as daemon, Live(daemon) as live:
        (first,) = daemon.attach("--engine", "sanitizer", "--kernel", "vectorAdd")
        (second,) = daemon.attach("--engine", "sanitizer", object=example("kernel_counter"))
        live.launch(3)
        live.launch(2, "lines")
        equal(daemon.count_of(), 3 * THREADS)
        detach(daemon, first)
        live.launch(4)
        live.launch(1, "lines")
        equal({e["key"]: e["value"] for e in daemon.dump("threads")}, {shown_id("vectorAdd"): 7 * THREADS, shown_id("lines"): 3 * THREADS})
        daemon.attach("--engine", "sanitizer", "--kernel", "lines")
        detach(daemon, second)
        live.launch(2)
        live.launch(2, "lines")
        equal(daemon.count_of(), 2 * THREADS)


def test_chosen_by_name():
    """Patches are per module; what is not meant is not counted."""
    with sass_daemon() as daemon, Live(daemon) as live:
        daemon.attach("--engine", "sanitizer", "--kernel", "l*s")
        for kernel in "vectorAdd", "lines", "returns", "calls":
            live.launch(2, kernel)
        equal(daemon.count_of(), 2 * THREADS)
        equal(engines(daemon), {("lines", "sanitizer")})
        daemon.attach("--engine", "sanitizer", "--kernel", "no_such_kernel*")
        live.launch(1)
        equal(counts(daemon), [2 * THREADS, 0])


def test_modules():
    """Loaded while attached, and unloaded while attached, in both ways."""
    with sass_daemon() as daemon, Live(daemon) as live:
        daemon.attach("--engine", "sanitizer")
        for load in "load 1", "load 1 library":
            live.do(load)
            live.launch(2, slot=1)
            live.launch(1)
            live.do("unload 1")
            live.launch(1)
        live.do("unload 0")
        live.do("load 0")
        live.launch(1)
        equal(daemon.count_of(), 9 * THREADS)
        equal(reasons(daemon), [])


def test_lazy():
    """Kernels that the driver loads at their first launch (it does so by default): before the attachment, while it stands, and after."""
    with sass_daemon() as daemon, Live(daemon, GPUPROBE_SIM_LAZY="1", CUDA_MODULE_LOADING="LAZY") as live:
        live.launch(1, "lines")
        first, keep = attach_two(daemon, "--engine", "sanitizer")
        daemon.attach("--engine", "sanitizer", "--kernel", "lines")
        live.launch(2)
        live.launch(3, "lines")
        live.launch(1, "warps")
        equal(counts(daemon), [2 * THREADS, 3 * THREADS])
        detach(daemon, first)
        live.launch(2)
        daemon.attach("--engine", "sanitizer", "--kernel", "warps")
        live.launch(4, "warps")
        equal(counts(daemon), [2 * THREADS, 3 * THREADS, 4 * THREADS])


def test_contexts():
    """A module in each of two contexts."""
    with sass_daemon() as daemon, Live(daemon) as live:
        live.launch(1)
        live.do("context")
        live.do("load 1")
        live.launch(1, slot=1)
        count, _ = attach_two(daemon, "--engine", "sanitizer")
        live.launch(3, slot=1)
        live.do("context")
        live.do("load 2")
        live.launch(4, slot=2)
        equal(daemon.count_of(), 7 * THREADS)
        detach(daemon, count)
        live.launch(2, slot=2)
        equal(daemon.count_of(), 7 * THREADS, "after detach")
        live.sums = False


def test_context_that_lives_on():
    """Another thread retains and releases the primary context: each release may be its end, and is not."""
    with sass_daemon() as daemon, Live(daemon) as live:
        live.launch(1)
        for _ in range(10):
            live.do("churn")
            count, keep = attach_two(daemon, "--engine", "sanitizer")
            live.launch(1)
            live.do("calm")
            live.launch(3)  # and the one before, if it fell between two releases
            wait_until(lambda: daemon.count_of() >= 3 * THREADS, "attached meanwhile: it counts")
            check(daemon.count_of() in (3 * THREADS, 4 * THREADS), "attached meanwhile", daemon.count_of())
            live.do("churn")
            detach(daemon, count)
            live.launch(1)
            live.do("calm")
            live.launch(1)
            before = daemon.count_of()
            live.launch(2)
            equal(daemon.count_of() - before, 0, "detached meanwhile")
            detach(daemon, keep)


def test_names_past_the_limit():
    """What is patched stays when what was loaded later has more names than a list may have."""
    with sass_daemon() as daemon, Live(daemon) as live, tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        daemon.attach("--engine", "sanitizer", "--kernel", "vectorAdd")
        live.launch(1)
        names = [f"k{n:04d}".ljust(1047, "x") for n in range(1000)] + ["last".ljust(551, "x")]  # 1 MiB with their ends and the record's beginning
        file.write(".version 7.0\n.target sm_70\n.address_size 64\n" + "".join(f".visible .entry {name}() {{ ret; }}\n" for name in names))
        file.flush()
        for _ in range(17):
            live.do(f"file 1 {file.name}")
        daemon.attach("--engine", "sanitizer", "--kernel", "lines")
        live.launch(2)
        equal(counts(daemon), [3 * THREADS, 0])
        check(any("past 16 MiB" in reason for reason in reasons(daemon)), daemon.why())


def test_while_threads_launch():
    """Two threads launch all the time: what began after attach and ended before detach is counted, and nothing from before or after."""
    with sass_daemon() as daemon, Live(daemon) as live:
        live.do("start 0 vectorAdd 2")
        wait_until(lambda: live.do("counts")[1] > 10, "launches")
        for _ in range(3):
            before = live.do("counts")
            count, keep = attach_two(daemon, "--engine", "sanitizer")
            first = live.do("counts")
            wait_until(lambda: live.do("counts")[1] > first[0] + 20, "launches while attached")
            last = live.do("counts")
            detach(daemon, count)
            after = live.do("counts")
            wait_until(lambda: live.do("counts")[1] > after[0] + 20, "launches after detach")
            # threads that launch all the time may keep the CPU driver's lock from who copies the map: nothing is added any more, it may come late
            wait_until(lambda: daemon.count_of() // THREADS >= last[1] - first[0], "what was launched is counted")
            seen, rest = divmod(daemon.count_of(), THREADS)
            check(rest == 0 and seen <= after[0] - before[1], "counted", seen, rest, "of", before, first, last, after)
            detach(daemon, keep)
        live.note("vectorAdd", live.do("stop")[0])


def test_many_attach_at_once():
    """Four clients attach and detach while two threads launch; at the end nothing is counted any more."""
    with sass_daemon() as daemon, Live(daemon) as live:
        live.do("start 0 vectorAdd 2")
        errors = []

        def client():
            try:
                for _ in range(5):
                    ids = daemon.attach("--engine", "sanitizer")
                    time.sleep(0.02)
                    detach(daemon, *ids)
            except Exception as error:
                errors.append(error)

        clients = [threading.Thread(target=client) for _ in range(4)]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join()
        equal(errors, [])
        live.note("vectorAdd", live.do("stop")[0])
        equal(daemon.attachments(), [])
        daemon.attach("--engine", "sanitizer")
        live.launch(3)
        equal(daemon.count_of(), 3 * THREADS)


def test_cycles():
    """Attached and detached many times: right each time, and neither descriptors nor memory grow."""
    with sass_daemon() as daemon, Live(daemon) as live:

        def cycles(n):
            for _ in range(n):
                ids = daemon.attach("--engine", "sanitizer")
                live.launch(1)
                equal(daemon.count_of(), THREADS)
                detach(daemon, *ids)
            live.launch(1)
            time.sleep(0.2)
            return {
                "descriptors": live.descriptors(),
                "memory": live.memory(),
                "daemon's descriptors": len(os.listdir(f"/proc/{daemon.process.pid}/fd")),
                "daemon's memory": resident(daemon.process.pid),
            }

        before, after = cycles(CYCLES // 4), cycles(CYCLES - CYCLES // 4)
        for what in before:
            slack = 4096 if "memory" in what else 4
            check(after[what] <= before[what] + slack, what, before[what], "grew to", after[what])


def test_guide():
    """docs/guides/live.md; kernels and launches are ours, so the report is known."""
    with sass_daemon() as daemon, Live(daemon) as live:
        live.launch(2)
        pid = "--pid", str(live.pid)
        ids = daemon.attach(*pid, object=example("kernel_counter")) + daemon.attach(*pid, object=example("kernel_duration"))
        equal(len(ids), 3, "attachments")
        live.launch(3)
        live.launch(5, "lines")
        report = subprocess.run(
            [os.path.join(SOURCE, "docs/examples/kernel_report")],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env=daemon.environment(PATH=os.path.dirname(CTL) + ":" + os.environ["PATH"], **daemon.tools()),
        ).stdout.splitlines()
        begin = [report.index(name) for name in ("lines", "vectorAdd")]
        for line, launches in zip(begin, (5, 3)):
            equal(report[line + 1 : line + 3], [f"  {launches * THREADS} threads", f"  {launches} launches"])
        rows = [re.fullmatch(r" +[\d.]+ (?:ns|us|ms|s) +(\d+)( #*)?", line) for line in report if "thread" not in line and "launch" not in line]
        equal(sum(int(row[1]) for row in rows if row), 8, report)
        check({("lines", "sanitizer"), ("vectorAdd", "sanitizer")} <= engines(daemon, *pid), daemon.why(*pid))
        daemon.ctl("detach", *map(str, ids))
        equal((daemon.attachments(), daemon.json("map", "list")["maps"]), ([], []))
        live.launch(2)


# ---- the PTX engine ----


def test_ptx_detach():
    """A process with twins goes on with its own kernels; graphs, libraries and functions that it holds included."""
    for load in "load 0", "load 0 library":
        with sass_daemon("--engine", "ptx") as daemon:
            count, keep = attach_two(daemon)
            with Live(daemon, load=load) as live:
                live.launch(3)
                equal((daemon.count_of(), engines(daemon)), (3 * THREADS, {("vectorAdd", "ptx")}))
                detach(daemon, count)
                live.launch(10)
                live.do("capture 0 vectorAdd 2")
                live.do("replay 3")
                live.note("vectorAdd", 6)
                equal(daemon.count_of(), 3 * THREADS, "after detach")
                detach(daemon, keep)
                attach_two(daemon)
                probed(daemon, live)
                before = daemon.count_of()
                live.launch(2)
                equal(daemon.count_of() - before, 2 * THREADS, "attached again")
                live.do("load 1")
                live.launch(2, slot=1)
                equal(daemon.count_of() - before, 4 * THREADS, "loaded again")


def probed(daemon, live):
    """Launches until one is counted: a launch waits for no compiler."""

    def counted():
        before = daemon.count_of() if daemon.dump() else 0
        live.launch(1)
        return daemon.dump() and daemon.count_of() > before

    wait_until(counted, "twins are launched")


def test_ptx_detach_one_of_two():
    """As long as an attachment of the module is left, it counts on."""
    with sass_daemon("--engine", "ptx") as daemon:
        (first,) = daemon.attach()
        daemon.attach("--point", "kretprobe/vectorAdd")
        with Live(daemon) as live:
            live.launch(2)
            detach(daemon, first)
            probed(daemon, live)
            before = daemon.count_of()
            live.launch(2)
            equal(daemon.count_of() - before, 2 * THREADS)


# ---- what else happens ----


def test_daemon_killed():
    """While attached; the process goes on, and the next daemon can attach to it."""
    daemon = sass_daemon()
    live = Live(daemon)
    try:
        daemon.attach("--engine", "sanitizer")
        live.launch(2)
        equal(daemon.count_of(), 2 * THREADS)
        daemon.kill()
        live.launch(3)
        live.do("load 1")
        live.launch(3, slot=1)
        daemon.start()
        equal(daemon.attachments(), [])
        live.launch(1)
        daemon.attach("--engine", "sanitizer")
        live.launch(4)
        live.launch(4, slot=1)
        equal(daemon.count_of(), 8 * THREADS, "of the next daemon")
        live.end()
        daemon.stop()
    finally:
        live.process.kill()
        if daemon.process.poll() is None:
            daemon.kill()
        daemon.clean()


def test_process_killed():
    """What it had counted is not lost, as far as the daemon has seen it; the daemon lets go of what it held."""
    with sass_daemon() as daemon:
        daemon.attach("--engine", "sanitizer")
        with Live(daemon) as live:  # the daemon has what it needs from now on
            live.launch(1)
        equal(daemon.count_of(), THREADS)
        descriptors = len(os.listdir(f"/proc/{daemon.process.pid}/fd"))
        live = Live(daemon)
        live.launch(2)
        equal(daemon.count_of(), 3 * THREADS)
        live.process.send_signal(signal.SIGKILL)
        live.process.communicate()
        equal(daemon.count_of(), 3 * THREADS, "of the process that was killed")
        wait_until(lambda: len(os.listdir(f"/proc/{daemon.process.pid}/fd")) <= descriptors, "descriptors are closed")
        equal([(a["modules"], a["processes"]) for a in daemon.attachments()], [(0, 0)])


def test_daemon_comes_later():
    """A process that was there before the daemon has no sanitizer engine: it can be told at its first CUDA call only. It runs on."""
    daemon = Daemon(start=False)
    with Live(daemon) as live:
        live.launch(1)
        with sass_daemon(name=daemon.name) as late:
            late.attach("--engine", "sanitizer")
            live.launch(2)
            equal(late.count_of(), 0)


if __name__ == "__main__":
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
