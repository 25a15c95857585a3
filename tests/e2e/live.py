# SPDX-License-Identifier: Apache-2.0
"""A process that launches what a test tells it to (tests/targets/live_driver.c), under the shim and the sanitizer engine."""

import os
import subprocess

from harness import BUILD, GPU, SHIM, SIM, Daemon, Failed, check, equal, resident

LIVE = os.path.join(BUILD, "tests/sim/live_driver")
# On a GPU NVIDIA's own, where toolkits put it or where the variable says; else the one for the CPU driver
SANITIZER = os.environ.get("GPUPROBE_TEST_SANITIZER") if GPU else os.path.join(SIM, "sanitizer/libsanitizer-public.so")
PTXCOMPILER = os.path.join(BUILD, "daemon/worker/libgpuprobe-ptxcompiler.so")  # what makes patches
THREADS = 256  # of each launch


def obj(name):
    return os.path.join(BUILD, "tests/e2e/objects", name + ".bpf.o")


def example(name):
    return os.path.join(BUILD, "docs", name + ".bpf.o")


def shown_id(name):
    """A kernel's id as JSON has it."""
    return f"{kernel_id(name):016x}"


def kernel_id(name):
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def sass_daemon(*options, kind=Daemon, **more):
    """A daemon whose processes get the sanitizer engine (by default they do not), unless the options say otherwise."""
    options = [
        *([] if "--engine" in options else ["--engine", "sanitizer"]),
        *(["--sanitizer", SANITIZER] if SANITIZER and "--sanitizer" not in options else []),
        *options,
    ]
    return kind(*options, **more)


class Live:
    def __init__(self, daemon, load="load 0", shim=SHIM, program=LIVE, **environment):
        self.launched = 0  # of vectorAdd, which adds 1 to a word in each thread
        self.sums = True  # whether only vectorAdd has written
        self.process = subprocess.Popen(
            [program],
            env=daemon.environment(LD_PRELOAD=shim, **daemon.libraries(), **environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self.process.pid
        self.read("start")
        if load:
            self.do(load)

    def read(self, command):
        words = self.process.stdout.readline().split()
        if not words or words[0] != "ok":
            self.process.kill()
            raise Failed(f"live_driver: {command}: {words} {self.process.stderr.read()}")
        return [int(word) for word in words[1:]]

    def do(self, command):
        """Has it do something; returns the numbers that it says."""
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.read(command)

    def launch(self, count, kernel="vectorAdd", slot=0):
        self.do(f"launch {slot} {kernel} {count}")
        self.note(kernel, count)

    def note(self, kernel, count):
        self.launched += count
        self.sums = self.sums and kernel == "vectorAdd"

    def right(self):
        """What its kernels wrote is what they write bare."""
        if self.sums:
            equal(self.do("sum"), [self.launched * THREADS], "what the kernels wrote")

    def end(self):
        self.right()
        out, err = self.process.communicate(timeout=30)
        equal((self.process.returncode, out, err), (0, "", ""), "live_driver")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def memory(self):
        return resident(self.pid)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is None:
            self.end()
        elif self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


def engines(daemon, *more):
    """Of the kernels that are probed: name and engine."""
    return {(outcome["demangled"] or outcome["kernel"], outcome["engine"]) for outcome in daemon.why(*more) if outcome["outcome"] == "probed"}


def reasons(daemon, *more):
    """Why something is not probed."""
    return [outcome["reason"] for outcome in daemon.why(*more) if outcome["outcome"] != "probed"]


def processes_end(daemon):
    """What processes count that end while there is no daemon is not lost. daemon is a Manager's, with something attached."""
    counted = 0
    for end in (daemon.hand_over, daemon.crash) * 2:
        with Live(daemon) as live:
            live.launch(2)
            end()
            live.launch(3)
        counted += live.launched
        daemon.start()
        equal(daemon.count_of(), counted * THREADS, end.__name__)
