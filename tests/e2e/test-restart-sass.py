#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Restart without loss under the sanitizer engine: patched kernels of running processes count on while there is no daemon, and the next one goes on with them.
On the CPU driver with a stand-in for NVIDIA's patching library, or with GPUPROBE_TEST_GPU=1 on a GPU. test-restart.py is the same for PTX.
"""

import os
import shutil
import tempfile
import time

from harness import BUILD, COUNTER, CTL, GPU, GPUPROBED, SHIM, SIM, check, equal, main, need, wait_until
from live import LIVE, PTXCOMPILER, THREADS, Live, engines, example, obj, processes_end, reasons, sass_daemon
from manager import Manager

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

ENDS = Manager.hand_over, Manager.crash


def manager(*options):
    return sass_daemon(*options, kind=Manager)


def counts(daemon):
    """Of all maps, in the order of attaching."""
    return [daemon.dump(str(m["id"]))[0]["value"] for m in daemon.json("map", "list")["maps"]]


def test_counts_on():
    """Launches before, while there is no daemon, and after: each is counted, once."""
    for options in ((), ("--mirror-period-ms", "0")):
        with manager(*options) as daemon:
            daemon.attach("--engine", "sanitizer")
            with Live(daemon) as live, Live(daemon) as idle:
                idle.launch(1)
                for end in ENDS * 2:
                    live.launch(3)
                    end(daemon)
                    live.launch(4)
                    daemon.start()
                    equal(daemon.count_of(), (live.launched + idle.launched) * THREADS, f"before a launch, {end.__name__} {options}")
                    wait_until(lambda: [(a["modules"], a["processes"]) for a in daemon.attachments()] == [(2, 2)], "both have said what they have")
                    live.launch(5)
                    equal(daemon.count_of(), (live.launched + idle.launched) * THREADS, f"{end.__name__} {options}")
                    equal(daemon.attachments()[0]["processes"], 2, "processes")
                equal(engines(daemon), {("vectorAdd", "sanitizer")})
                daemon.crash_and_start()
                equal([k["name"] for k in daemon.json("kernel", "list")["kernels"]], ["vectorAdd"], "kernels that the next daemon knows")
                equal(reasons(daemon), [])
            equal(daemon.count_of(), (live.launched + idle.launched) * THREADS, "in the end")


def test_launches_all_the_time():
    """From threads that never stop for it."""
    with manager() as daemon:
        daemon.attach("--engine", "sanitizer")
        with Live(daemon) as live:
            live.launch(1)
            live.do("start 0 vectorAdd 2")
            for end in ENDS * 2:
                end(daemon)
                daemon.start()
                (begun,) = live.do("counts")[:1]
                wait_until(lambda: live.do("counts")[1] > begun + 10, "it launches on")
            live.note("vectorAdd", live.do("stop")[0])
            equal(daemon.count_of(), live.launched * THREADS)
            equal(reasons(daemon), [])


def test_graphs():
    """That were made before, replayed while there is no daemon, and after; made while there is none."""
    with manager() as daemon:
        daemon.attach("--engine", "sanitizer")
        with Live(daemon) as live:
            for end in ENDS:
                live.launch(1)
                live.do("capture 0 vectorAdd 2")
                live.do("replay 3")
                end(daemon)
                live.do("replay 1")
                daemon.start()
                live.do("replay 2")
                live.launch(1)
                live.do("replay 1")
                live.do("forget")
                live.note("vectorAdd", 7 * 2)
                equal(daemon.count_of(), live.launched * THREADS, end.__name__)


def test_detach_after():
    """Detached by another daemon than the one that attached, before and after the process has launched under it; attached anew then."""
    with manager() as daemon:
        for launches in (0, 2):
            for end in ENDS:
                (attachment,) = daemon.attach("--engine", "sanitizer")
                with Live(daemon) as live:
                    live.launch(3)
                    end(daemon)
                    live.launch(1)
                    daemon.start()
                    live.launch(launches)
                    equal(daemon.count_of(), (4 + launches) * THREADS, end.__name__)
                    daemon.ctl("detach", str(attachment))
                    live.launch(5)
                    (again,) = daemon.attach("--engine", "sanitizer")
                    equal(daemon.count_of() if daemon.dump() else 0, 0, "attached anew")
                    live.launch(2)
                    equal(daemon.count_of(), 2 * THREADS, f"attached anew, {end.__name__}")
                    equal(reasons(daemon, "--pid", str(live.pid)), [])
                daemon.ctl("detach", str(again))


def test_attach_after():
    """To a process that was patched by nobody, or for another attachment, before."""
    with manager() as daemon:
        with Live(daemon) as live:
            live.launch(1)
            for end in ENDS:
                end(daemon)
                daemon.start()
                daemon.attach("--engine", "sanitizer")
                live.launch(2)
            end(daemon)
            live.launch(3)
            daemon.start()
            live.launch(4)
            equal(counts(daemon), [11 * THREADS, 9 * THREADS])


def test_two_engines():
    """An object that is in two processes by different engines."""
    with manager("--engine", "sanitizer:comm=live_driver", "--engine", "ptx") as daemon, tempfile.TemporaryDirectory() as folder:
        daemon.attach()
        other = shutil.copy(LIVE, os.path.join(folder, "live_ptx"))
        with Live(daemon) as patched, Live(daemon, program=other) as twins:
            patched.launch(2)
            twins.launch(3)
            equal(engines(daemon), {("vectorAdd", "ptx"), ("vectorAdd", "sanitizer")})
            for end in ENDS:
                end(daemon)
                patched.launch(4)
                twins.launch(5)
                daemon.start()
                patched.launch(6)
                twins.launch(7)
            equal(daemon.count_of(), (2 + 3 + 2 * (4 + 5 + 6 + 7)) * THREADS)


def test_modules():
    """Loaded and unloaded before, while there is no daemon, and after."""
    with manager() as daemon:
        daemon.attach("--engine", "sanitizer")
        with Live(daemon) as live:
            live.launch(1)
            for end in ENDS:
                live.do("load 1")
                live.launch(1, slot=1)
                end(daemon)
                live.do("unload 1")
                live.do("load 2")
                daemon.start()
                live.launch(1)
                live.launch(2, slot=2)
                live.do("unload 2")
                live.launch(1)
                equal(daemon.count_of(), live.launched * THREADS, end.__name__)
            equal(reasons(daemon), [])


def test_ended_meanwhile():
    with manager() as daemon:
        daemon.attach("--engine", "sanitizer")
        processes_end(daemon)


def test_stop_is_final():
    """Nothing is left of what was attached. Kernels count for what is attached then, though nothing tells a process of the next daemon."""
    with manager() as daemon:
        with Live(daemon) as live, Live(daemon) as idle:
            for _ in range(2):
                ids = daemon.attach("--engine", "sanitizer")
                live.launch(2)
                idle.launch(1)
                daemon.stop()
                live.launch(3)
                daemon.start()
                equal(daemon.attachments(), [])
                time.sleep(0.2)
                daemon.attach("--engine", "sanitizer")
                live.launch(4)
                equal(daemon.count_of(), 4 * THREADS)
                idle.launch(1)
                equal(daemon.count_of(), 5 * THREADS)
                daemon.stop()
                daemon.start()


def test_detach_is_told():
    """Of one that has not launched since: its memory is let go at the next launch, under whatever daemon the attachment was made."""
    with manager("--mirror-period-ms", "0") as daemon:
        ids = [daemon.attach("--engine", "sanitizer", "--kernel", kernel)[0] for kernel in ("vectorAdd", "lines")]
        with Live(daemon) as live:
            live.launch(1)
            live.launch(1, "lines")
            for end, attachment in zip(ENDS, ids):
                end(daemon)
                daemon.start()
                wait_until(lambda: daemon.attachments()[-1]["processes"] == 1, "it has said what it has")
                daemon.ctl("detach", str(attachment))
                left = daemon.attachments()
                equal([a["processes"] for a in left], [1] * len(left))
                live.launch(1)
                live.launch(1, "lines")
            wait_until(lambda: b"gpuprobe" not in threads(live.pid), "the thread that copies maps has ended")


def threads(pid):
    """Their names."""
    return {open(f"/proc/{pid}/task/{task}/comm", "rb").read().strip() for task in os.listdir(f"/proc/{pid}/task")}


def test_many_restarts():
    """The process has no more descriptors with each daemon."""
    with manager() as daemon:
        daemon.attach("--engine", "sanitizer")
        with Live(daemon) as live:
            live.launch(1)
            seen = set()
            for _ in range(8):
                daemon.restart()
                live.launch(1)
                equal(daemon.count_of(), live.launched * THREADS)  # both connections are there
                seen.add(live.descriptors())
            equal(len(seen), 1, f"descriptors: {seen}")


if __name__ == "__main__":
    main([value for name, value in list(globals().items()) if name.startswith("test_")])
