# SPDX-License-Identifier: Apache-2.0
"""The sanitizer engine on a GPU: machine code that nobody rebuilt, probed while it runs; what it costs while it is there, attached, and gone."""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from session import Session, Skipped, expect

PROGRAMS = Path(__file__).resolve().parent / "programs"
ENGINE = "--engine=sanitizer"
OF_THE_DRIVER = ("memcpy32_post", "memset32_post")  # kernels that copy and fill in graphs: they lie in no module

MATMUL = """
import sys, torch
a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
c = a @ b; torch.cuda.synchronize(); print("ready", flush=True)
for line in sys.stdin:
    times = []
    for _ in range(int(line)):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record(); torch.matmul(a, b, out=c); end.record(); end.synchronize(); times.append(begin.elapsed_time(end))
    print(sorted(times)[len(times) // 2], flush=True)
"""


class Worker:
    """A program that does what it is told, a command a line, and answers with a line."""

    def __init__(self, suite, command, session=None):
        env = session.app_env() if session else dict(os.environ)
        env["TORCHINDUCTOR_CACHE_DIR"] = str(suite.scratch / "inductor")
        self.errors = open(suite.scratch / f"worker-{time.monotonic_ns()}.err", "w+")
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, env=env)
        self.pid = self.process.pid
        self.line()

    def line(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.errors.seek(0)
            raise RuntimeError(f"the program ended with {self.process.returncode}: {self.errors.read()[-2000:]}")
        return line.strip()

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return json.loads(self.line())

    def host(self):
        status = dict(line.split(":", 1) for line in open(f"/proc/{self.pid}/status"))
        return {"rss": int(status["VmRSS"].split()[0]), "descriptors": len(os.listdir(f"/proc/{self.pid}/fd"))}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def ratio(values, base):
    return round(statistics.median(values) / statistics.median(base), 4)


class SassCode:
    def live(self, session=None, threads=1 << 20):
        return Worker(self, [self.program("live"), threads], session)

    def test_sass_live(self):
        """Attached to a running process, and taken away again; only the kernel that is meant counts."""
        threads = 1 << 20
        with Session(self, ENGINE) as session, self.live(session, threads) as worker:
            worker.ask("add 3")
            attached = session.attach("counter", "vectorAdd", "--pid", worker.pid)
            worker.ask("small 1")
            expect("the first launch after attach", session.read(), 32)
            worker.ask("add 5")
            worker.ask("mul 4")
            expect("vectorAdd alone", session.read(), 32 + 5 * threads)
            second = session.attach("counter", "vector*", "--pid", worker.pid)
            worker.ask("mul 2")
            ids = sorted(info["id"] for info in session.json("map", "list")["maps"])
            expect("both attachments", [session.read(number) for number in ids], [32 + 5 * threads, 2 * threads])
            session.ctl("detach", *attached)
            worker.ask("add 7")
            expect("after the first is detached", session.read(ids[1]), 9 * threads)
            session.ctl("detach", *second)
            worker.ask("add 1")
            expect("maps left", session.json("map", "list")["maps"], [])

    def bench_sass_effective(self):
        """How long the launch takes that follows an attach or detach, and finds it: in that launch it takes effect."""
        figures = {"attach_ms": [], "first_launch_ms": [], "detach_ms": [], "launch_after_detach_ms": []}

        def timed(name, call, *arguments):
            begin = time.monotonic()
            result = call(*arguments)
            figures[name].append(round(1e3 * (time.monotonic() - begin), 2))
            return result

        with Session(self, ENGINE) as session, self.live(session, 1 << 16) as worker:
            for _ in range(15):
                attached = timed("attach_ms", session.attach, "counter", "vectorAdd", "--pid", worker.pid)
                timed("first_launch_ms", worker.ask, "small 1")
                expect("that launch counts", session.read(), 32)
                timed("detach_ms", session.ctl, "detach", *attached)
                timed("launch_after_detach_ms", worker.ask, "small 1")
        self.benchmarks["sass_effective"] = {**{key: statistics.median(values) for key, values in figures.items()}, "all": figures}

    def test_sass_two_gpus(self):
        """Counts of each device of one process."""
        names = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.splitlines()
        if len(names) < 2:
            raise Skipped("one GPU here")
        threads = 1 << 20
        with Session(self, ENGINE) as session, self.live(session, threads) as worker:
            worker.ask("device 1")
            worker.ask("add 1")
            attached = session.ctl("attach", self.timed_object("devices"), "--kernel", "vector*", "--pid", worker.pid).stdout.split()
            worker.ask("add 3")
            worker.ask("device 0")
            worker.ask("mul 5")
            worker.ask("device 1")
            worker.ask("add 2")
            counts = {int(entry["key"]): entry["value"] for entry in session.json("map", "dump", "devices", "--nonzero")["entries"]}
            expect("threads of each device", counts, {0: 5 * threads, 1: 5 * threads})
            session.ctl("detach", *attached)
            worker.ask("add 1")
        self.benchmarks["sass_two_gpus"] = counts

    def test_sass_cycles(self):
        """1,000 times attached and detached: no count is wrong, nothing grows."""
        threads = 1 << 16
        with Session(self, ENGINE) as session, self.live(session, threads) as worker:
            before = None
            for cycle in range(1000):
                attached = session.attach("counter", "vectorAdd", "--pid", worker.pid)
                worker.ask("add 2")
                if cycle % 20 == 0:
                    expect(f"cycle {cycle}", session.read(), 2 * threads)
                session.ctl("detach", *attached)
                worker.ask("add 1")
                if cycle == 20:
                    before = {"device": worker.ask("memory"), **worker.host()}
            after = {"device": worker.ask("memory"), **worker.host()}
            self.benchmarks["sass_cycles"] = {"before": before, "after": after}
            expect("descriptors", after["descriptors"], before["descriptors"])
            expect("device memory", after["device"], before["device"])
            if after["rss"] - before["rss"] > 2048:
                raise AssertionError(f"host memory grew from {before['rss']} to {after['rss']} KiB")

    def train(self, mode, *options, session=None):
        return Worker(self, [sys.executable, PROGRAMS / "train.py", mode, *options], session)

    def train_live(self, mode):
        """The losses are those of the bare run, the threads of each kernel those that CUPTI tells of another run."""
        self.need_module("torch")
        with self.train(mode, "--small") as bare:
            want = sum((bare.ask(f"steps {count}")["losses"] for count in (4, 6, 5)), [])
            profiled = bare.ask("profile 6")["kernels"]
        with Session(self, ENGINE) as session, self.train(mode, "--small", session=session) as worker:
            got = worker.ask("steps 4")["losses"]
            attached = session.ctl("attach", self.object("kernel_counter"), "--engine", "sanitizer", "--pid", worker.pid).stdout.split()
            attached += session.ctl("attach", self.object("kernel_duration"), "--engine", "sanitizer", "--pid", worker.pid).stdout.split()
            got += worker.ask("steps 6")["losses"]
            names = {kernel["id"]: kernel["name"] for kernel in session.json("kernel", "list")["kernels"]}
            threads = {entry["key"]: entry["value"] for entry in session.json("map", "dump", "threads", "--nonzero")["entries"]}
            launches = {}
            for entry in session.json("map", "dump", "launches", "--nonzero")["entries"]:
                key = entry["key"]["kernel_id"]
                launches[key] = launches.get(key, 0) + entry["value"]
            why = session.ctl("why", "--pid", worker.pid).stdout
            for number in attached:
                session.ctl("detach", number)
            got += worker.ask("steps 5")["losses"]
        self.benchmarks[f"sass_train_{mode}"] = {"kernels": len(threads), "threads": sum(threads.values()), "launches": sum(launches.values())}
        expect("losses", got, want)
        self.compare(profiled, names, threads, launches, why)

    def compare(self, profiled, names, threads, launches, why):
        """CUPTI's names are demangled, ours are not: kernels are told by their numbers."""
        unknown = [key for key in threads if key not in names]
        expect("kernels without a name", unknown, [])
        ours = sorted((launches.get(key, 0), count) for key, count in threads.items())
        theirs = sorted((count, number) for name, (count, number) in profiled.items() if not name.startswith(OF_THE_DRIVER))
        if ours != theirs:
            raise AssertionError(f"launches and threads of kernels: {ours[:40]}, CUPTI says {theirs[:40]}\n{why[:600]}")

    def test_sass_train_eager(self):
        self.train_live("eager")

    def test_sass_train_compile(self):
        self.train_live("compile")

    def test_sass_train_graphs(self):
        self.train_live("graphs")

    # ---- what it costs --------------------------------------------------------------------------------------------

    def bench_sass_vector_add(self):
        """16.8M threads, memory bound: bare, with the engine there, probed, beside one that is probed, and after."""
        times = {key: [] for key in ("bare", "present", "attached", "not_meant", "detached")}
        small = {key: [] for key in ("bare", "present", "attached", "detached")}
        with Session(self, ENGINE) as session, self.live(None, 1 << 24) as bare, self.live(session, 1 << 24) as ours:
            for _ in range(7):
                times["bare"].append(bare.ask("add 20"))
                times["present"].append(ours.ask("add 20"))
                small["bare"].append(bare.ask("small 2000"))
                small["present"].append(ours.ask("small 2000"))
                attached = session.attach("counter", "vectorAdd", "--pid", ours.pid)
                times["attached"].append(ours.ask("add 20"))
                small["attached"].append(ours.ask("small 2000"))
                times["not_meant"].append(ours.ask("mul 20"))
                expect("the probe fired", session.read(), 20 * (1 << 24) + 2000 * 32)
                session.ctl("detach", *attached)
                times["detached"].append(ours.ask("add 20"))
                small["detached"].append(ours.ask("small 2000"))
        self.benchmarks["sass_vector_add"] = {
            "ratios": {key: ratio(values, times["bare"]) for key, values in times.items()},
            "launch_us": {key: statistics.median(values) for key, values in small.items()},
            "ms": times,
        }

    def bench_sass_matmul(self):
        self.need_module("torch")
        times = {key: [] for key in ("bare", "present", "attached", "detached")}
        command = [sys.executable, "-c", MATMUL]
        with Session(self, ENGINE) as session, Worker(self, command) as bare, Worker(self, command, session) as ours:
            for _ in range(7):
                times["bare"].append(bare.ask("10"))
                times["present"].append(ours.ask("10"))
                attached = session.attach("counter", "*", "--engine", "sanitizer", "--pid", ours.pid)
                times["attached"].append(ours.ask("10"))
                if not session.read():
                    raise AssertionError("matmul: the probe did not fire")
                session.ctl("detach", *attached)
                times["detached"].append(ours.ask("10"))
        self.benchmarks["sass_matmul"] = {"ratios": {key: ratio(values, times["bare"]) for key, values in times.items()}, "ms": times}

    def bench_sass_train(self):
        """A step of training: bare, with the engine there, with a counter at the entry of every kernel, one a kernel, and after."""
        self.need_module("torch")
        for mode in "eager", "graphs":
            times = {key: [] for key in ("bare", "present", "counter", "kernel_counter", "detached")}
            with Session(self, ENGINE) as session, self.train(mode) as bare, self.train(mode, session=session) as ours:

                def measure(worker, key):
                    worker.ask("steps 3")  # the GPU comes from another process, patches are made in the first launches
                    times[key].append(worker.ask("steps 10")["ms"])

                for _ in range(7):
                    measure(bare, "bare")
                    measure(ours, "present")
                    for program, map_name in ("counter", "counter"), ("kernel_counter", "threads"):
                        attached = session.ctl("attach", self.object(program), "--kernel", "*", "--engine", "sanitizer", "--pid", ours.pid).stdout.split()
                        measure(ours, program)
                        if session.read(map_name) < 13 * 1000000:  # a step has millions of threads
                            raise AssertionError(f"{mode}: the probe did not fire everywhere: {session.read(map_name)}")
                        session.ctl("detach", *attached)
                    measure(ours, "detached")
            self.benchmarks[f"sass_step_{mode}"] = {"ratios": {key: ratio(values, times["bare"]) for key, values in times.items()}, "ms": times}
