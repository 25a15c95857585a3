#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The name of a launch, ctx->launch: programs see which launch a thread is of, by which host thread and in which stream. Attached, under the PTX
engine, to a module that was loaded before. On the CPU driver, or with GPUPROBE_TEST_GPU=1 on a GPU.
"""

import os
import subprocess

from harness import BUILD, CTL, GPU, GPUPROBED, SHIM, SIM, SOURCE, Daemon, Failed, check, equal, main, need, wait_until
from live import PTXCOMPILER, SANITIZER, example, obj, sass_daemon

DRIVER = os.path.join(BUILD, "tests/sim/launch_driver")
PTX = os.path.join(SOURCE, "tests/targets/launches.ptx")
THREADS = 256  # of each launch
LEGACY, OWN = 1, 2  # names of the default streams
LAUNCHES = 1000 if GPU else 40  # of each stream where there are several

need(GPUPROBED, CTL, SHIM, DRIVER, obj("launches"), example("kernel_duration"), *([] if GPU else [os.path.join(SIM, "libcuda.so.1")]))


class Program:
    def __init__(self, daemon, load="load", **environment):
        self.launched = 0
        self.process = subprocess.Popen(
            [DRIVER],
            env=daemon.environment(LD_PRELOAD=SHIM, **daemon.libraries(), **environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.read("start")
        self.do(f"{load} {PTX}")

    def read(self, command):
        words = self.process.stdout.readline().split()
        if not words or words[0] != "ok":
            self.process.kill()
            raise Failed(f"launch_driver: {command}: {words} {self.process.stderr.read()}")
        return [int(word) for word in words[1:]]

    def do(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.read(command)

    def launch(self, how, kernel, count=1):
        """The thread that launched, and the stream."""
        self.launched += count if how != "short" else 0
        return self.do(f"launch {how} {kernel} {count}")

    def streams(self, threads, kernel, count, ns=0):
        """(thread, stream) of each."""
        self.launched += threads * count
        numbers = self.do(f"streams {threads} {kernel} {count} {ns}")
        return list(zip(numbers[::2], numbers[1::2]))

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is None:
            equal(self.do("sum"), [self.launched * THREADS], "what the kernels computed")
            out, err = self.process.communicate(timeout=30)
            equal((self.process.returncode, out, err), (0, "", ""), "launch_driver")
        elif self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


def session(load="load"):
    """A daemon with the object attached, and a program that has loaded and launched before."""
    daemon = Daemon("--engine", "ptx")
    return daemon, Program(daemon, load=load)


def launches(daemon):
    return {entry["key"]: entry["value"] for entry in daemon.dump("launches")}


def attach(daemon, program, *more, object=None):
    """Attaches, and launches until launches have names. Returns what has been seen by then."""
    program.launch("pointers", "named")
    daemon.attach(*more, object=object or obj("launches"))

    def named():
        program.launch("pointers", "named")
        return [key for key in launches(daemon) if key]

    wait_until(named, "a launch that has a name")
    return launches(daemon)


def new(daemon, before):
    """Launches that were not there before. Those without names have changed at the most."""
    return {key: value for key, value in launches(daemon).items() if key and key not in before}


def whole(value, thread, stream):
    equal((value["entered"], value["left"]), (THREADS, THREADS), "threads of a launch")
    equal((value["thread"], value["stream"], value["node"]), (thread, stream, 0), "thread and stream of a launch")
    check(0 < value["begin"] <= value["end"], value)


def test_streams():
    """Two threads launch the same kernel in streams of their own, one beside the other: no launch is mixed up with another."""
    for load in "load", "library":
        daemon, program = session(load)
        with daemon, program:
            attach(daemon, program)
            program.launch("pointers", "spin")  # of two threads at a first launch, one would not wait for the other
            before = launches(daemon)
            # each launch of the first stream takes as long as this, at the least
            ns = 20000 if GPU else 1000
            threads = program.streams(2, "spin", LAUNCHES, ns)
            equal(len(set(threads)), 2)
            found = new(daemon, before)
            equal(len(found), 2 * LAUNCHES, "launches")
            for number, (thread, stream) in enumerate(threads):
                mine = {key: value for key, value in found.items() if value["thread"] == thread}
                equal(len(mine), LAUNCHES, "launches of a thread")
                for value in mine.values():
                    whole(value, thread, stream)
                    check(number or value["end"] - value["begin"] >= ns, "mixed up:", value)
                # those of a thread are numbered one after the other, and run so
                first = min(mine)
                equal(sorted(mine), list(range(first, first + LAUNCHES)), "ids of a thread")
                order = [mine[key]["begin"] for key in sorted(mine)]
                equal(order, sorted(order), "order of a stream")


def test_ways():
    """However arguments are given."""
    daemon, program = session()
    with daemon, program:
        before = attach(daemon, program)
        for how in "pointers", "extra", "padded", "ex", "legacy", "own":
            for kernel in ("named", "wide", "none") if how not in ("extra", "padded") else ("named", "wide"):
                thread, stream = program.launch(how, kernel, 3)
                found = new(daemon, before)
                equal(len(found), 3, f"{how}, {kernel}")
                for value in found.values():
                    whole(value, thread, {"legacy": LEGACY, "own": OWN}.get(how, stream))
                before.update(found)
        if not GPU:  # whose driver takes it
            program.launch("short", "named")  # which fails, as without us
            equal(new(daemon, before), {}, "a buffer that is too short")
        thread, stream = program.launch("cooperative", "named", 2)  # of the original, or with a name
        for value in new(daemon, before).values():
            whole(value, thread, stream)


def test_library_handle():
    daemon, program = session("library")
    with daemon, program:
        before = attach(daemon, program)
        program.launch("handle", "named")  # asks for the twin of this handle
        program.launch("handle", "named", 4)
        check(len(new(daemon, before)) >= 4, "launches by a library's handle")


def test_no_room():
    """A kernel whose parameters take all the room is probed, and its launches have no name."""
    daemon, program = session()
    with daemon, program:
        before = attach(daemon, program)
        unnamed = before.get(0, {"entered": 0})["entered"]
        for how in "pointers", "extra":
            program.launch(how, "filled", 5)
            equal(new(daemon, before), {})
            now = launches(daemon)[0]
            equal(now["entered"], unnamed + 5 * THREADS, how)
            equal((now["stream"], now["thread"]), (0, 0))
            unnamed = now["entered"]


def test_memory():
    """Memory instructions have the name of the launch, too."""
    daemon, program = session()
    with daemon, program:
        attach(daemon, program)
        program.launch("pointers", "named", 3)
        found = {entry["key"]: entry["value"] for entry in daemon.dump("accesses")}
        equal(set(found) - {0}, set(launches(daemon)) - {0}, "launches")
        for key, count in found.items():
            check(not key or count == THREADS, key, count)


def test_duration():
    """kernel_duration tells launches apart that overlap, and keeps nothing of those that have ended."""
    daemon, program = session()
    with daemon, program:
        program.launch("pointers", "named")
        daemon.attach(object=example("kernel_duration"))

        def counted():
            return sum(entry["value"] for entry in daemon.dump("launches"))

        def probed():
            program.launch("pointers", "named")
            return counted()

        wait_until(probed, "a launch that is probed")
        program.launch("pointers", "spin")  # as in test_streams
        before = counted()
        ns = 1 << 21
        program.streams(2, "spin", LAUNCHES // 10, ns)
        after = {}
        for entry in daemon.dump("launches"):
            after[entry["key"]["log2_ns"]] = after.get(entry["key"]["log2_ns"], 0) + entry["value"]
        equal(sum(after.values()), before + 2 * (LAUNCHES // 10), "launches")
        check(sum(count for log, count in after.items() if log >= 21) >= LAUNCHES // 10, "launches that are shorter than they were:", after)
        equal(daemon.dump("running"), [], "launches that have ended")


def test_sass():
    """Machine code that is patched knows no launches: they have no name."""
    if not os.path.exists(PTXCOMPILER) or not (GPU or os.path.exists(SANITIZER)):
        return
    with sass_daemon() as daemon, Program(daemon) as program:
        program.launch("pointers", "named")
        daemon.attach("--engine", "sanitizer", object=obj("launches"))
        program.launch("pointers", "named", 2)
        found = launches(daemon)
        equal(list(found), [0])
        equal((found[0]["entered"], found[0]["thread"], found[0]["stream"]), (2 * THREADS, 0, 0))


if __name__ == "__main__":
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
