#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The GPU suite: probes real CUDA programs through the whole product and checks the counts; then the benchmarks.

    suite.py --build DIR [--quick] [--only NAME,...] [--skip NAME,...] [--programs NAME,...] [--out FILE] [--libraries DIR]

DIR is a meson build folder, or one unpacked from a bundle. --quick leaves the benchmarks out; --only and --skip take parts of
names (all takes about 15 minutes: `--quick --skip train`, then `--only bench_,train`). --libraries is a
folder of shared libraries for the daemon (a bundle's). --programs takes parts of names of programs that harmless.py runs
(`--only harmless --programs graphs/,cufft`). Exit code: 0 all passed, 1 something failed, 77 no GPU here.
"""

import argparse
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import Benchmarks
from ctxsw import ContextSwitches
from harmless import HarmlessCode
from real import RealCode
from sass import SassCode, Worker
from session import Session, Skipped, expect, expected, finish
from times import TimesCode
from tracing import TraceCode
from twins import TwinCode

TOP = Path(__file__).resolve().parents[2]
SHAPES = [(32, 32), (1024, 128), (99840, 384), (1048576, 1024), (16777216, 256)]  # threads, block


def gpu():
    """Name and driver version of the first GPU, or None."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    if cuda.cuInit(0) != 0:
        return None
    count = ctypes.c_int()
    if cuda.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return None
    name = ctypes.create_string_buffer(128)
    version = ctypes.c_int()
    cuda.cuDeviceGetName(name, 128, 0)
    cuda.cuDriverGetVersion(ctypes.byref(version))
    driver = Path("/proc/driver/nvidia/version")
    text = re.search(r"\d+\.\d+(\.\d+)?", driver.read_text()) if driver.exists() else None
    return {"gpu": name.value.decode(), "cuda_driver": version.value, "driver": text[0] if text else ""}


class Suite(Benchmarks, ContextSwitches, HarmlessCode, RealCode, SassCode, TimesCode, TraceCode, TwinCode):
    def __init__(self, arguments):
        self.build = Path(arguments.build).resolve()
        self.libraries = arguments.libraries
        self.scratch = Path(tempfile.mkdtemp(prefix="gpuprobe-gpu-"))
        self.results = []
        self.benchmarks = {}
        self.only_programs = [name for name in arguments.programs.split(",") if name]
        self.save = lambda: None  # what there is so far, for a test that takes long

    def tool_env(self):
        env = dict(os.environ)
        env.pop("LD_PRELOAD", None)
        if self.libraries:
            env["LD_LIBRARY_PATH"] = f"{self.libraries}:{env.get('LD_LIBRARY_PATH', '')}".rstrip(":")
        return env

    def object(self, name):
        return self.build / "docs" / f"{name}.bpf.o"

    def timed_object(self, name):
        return self.build / "tests/gpu" / f"{name}.bpf.o"

    def program(self, name):
        return self.build / "tests/gpu" / name

    # ---- what must hold -------------------------------------------------------------------------------------------

    def test_counts_static(self):
        self.counts(self.program("vec_add"))

    def test_counts_shared(self):
        self.counts(self.program("vec_add_shared"))

    def test_counts_driver_api(self):
        self.counts(self.build / "tests/sim/vec_add_driver")

    def counts(self, program):
        for threads, block in SHAPES:
            with Session(self) as session:
                session.attach()
                output = session.run(program, "--threads", threads, "--block", block, "--launches", 3)
                expect(f"{program.name} {threads}/{block}", session.read(), threads * 3)
                expect("threads the program says", expected(output), threads * 3)

    def test_driver_api_ways(self):
        program = self.build / "tests/sim/vec_add_driver"
        for load in "module", "moduleex", "library":
            for how in "launch", "ex", "cooperative", "streams", "threads", "graph", "capture":
                with Session(self) as session:
                    session.attach()
                    output = session.run(program, "--threads", 65536, "--launches", 6, "--how", how, "--load", load, "--loads", 3, "--getproc")
                    expect(f"{load} {how}, loaded three times", session.read(), 3 * expected(output))

    def test_compiler_options(self):
        """The driver compiles for so many registers, with probes that would take more."""
        program = self.build / "tests/sim/vec_add_driver"
        for load in "moduleex", "library":
            with Session(self) as session:
                session.attach("memory_histogram")
                session.run(program, "--threads", 65536, "--block", 1024, "--load", load, "--registers", 32)
                expect(f"loads and stores, {load}", session.read("accesses"), 3 * 65536)

    def test_registers(self):
        """Probes that take registers: a kernel that could have blocks of 1024 threads can, probed; of one that could have 512, 384 are probed."""
        program = self.build / "tests/sim/vec_add_driver"
        for how in "launch", "ex", "cooperative", "graph", "capture":
            with Session(self) as session:
                session.attach("memory_histogram")
                session.run_probed(program, "--threads", 8192, "--block", 1024, "--wide", 40, "--how", how)
                expect(f"blocks of 1024, {how}", session.read("accesses"), 83 * 8192)
                session.run_probed(program, "--threads", 8192, "--block", 512, "--wide", 112, "--how", how)
                reasons = [outcome["reason"] for outcome in session.json("why")["outcomes"]]
                without = any("without probes" in reason for reason in reasons)
                expect(f"blocks of 512, {how}", session.read("accesses"), 83 * 8192 + (0 if without else 227 * 8192))

    def test_contexts_and_captures(self):
        """Releasing and unloading, while a kernel runs and while another thread captures, do what they do bare, and no count is lost."""
        targets = self.build / "tests/targets"
        for program, *arguments in ("s-while", "release"), ("s-while", "unload"), ("s-while", "capture"), ("s-while", "again"), ("s-context", "attached"):
            command = [targets / program, *arguments]
            bare = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
            print(f"      {bare!r}")
            with Session(self) as session:
                session.attach("counter", "*")
                expect(f"{program} {arguments[0]}", session.run(*command), bare)
                expect(f"{program} {arguments[0]}: counted", session.read(), expected(bare) if "launches=" in bare else 3 * 256)
            if arguments == ["again"]:
                expect("a primary context that is there again has another id", bare.count("it is another one: 1"), 3)

    def test_graphs_and_threads(self):
        for how in "graph", "capture", "threads":
            with Session(self) as session:
                session.attach()
                output = session.run(self.program("vec_add"), "--threads", 65536, "--launches", 10, "--how", how)
                expect(how, session.read(), expected(output))

    def test_graph_nodes(self):
        """What the runtime tells of a node of a graph that was made while something was attached, and behind a detach."""

        def both(worker, first):
            expect("nodes", [worker.ask(how) for how in ("add", "capture")], [{"own": True, "threads": first + more} for more in (32, 64)])

        with Session(self) as session:
            attached = session.attach()
            with Worker(self, [self.program("nodes")], session) as worker:
                both(worker, 32)
                expect("attached", session.read(), 3 * 32)
                session.ctl("detach", *attached)
                both(worker, 3 * 32)
                both(worker, 5 * 32)

    def test_twelve_processes(self):
        with Session(self) as session:
            session.attach()
            running = [session.start(self.program("vec_add"), "--threads", 1048576, "--launches", 5) for _ in range(12)]
            want = sum(expected(finish(process)) for process in running)
            expect("twelve processes", session.read(), want)
            expect("threads x launches", want, 12 * 5 * 1048576)

    def test_two_programs_on_one_kernel(self):
        with Session(self) as session:
            (first,) = session.attach()
            (second,) = session.attach()
            session.run(self.program("vec_add"), "--threads", 1048576, "--launches", 2)
            for info in session.json("map", "list")["maps"]:
                expect(f"map {info['id']}", session.read(info["id"]), 2 * 1048576)
            session.ctl("detach", first)
            session.run(self.program("vec_add"), "--threads", 1048576, "--launches", 1)
            maps = session.json("map", "list")["maps"]
            expect("maps left", len(maps), 1)
            expect("the one left", session.read(maps[0]["id"]), 3 * 1048576)

    def test_names_and_filters(self):
        program = self.program("vec_add")
        cases = [
            ("_Z9vectorAddPKfS0_Pf", [], True),
            ("vectorAdd(float const*, float const*, float*)", [], True),
            ("vector*", [], True),
            ("vectorAd", [], False),
            ("vectorAdd", ["--comm", "vec_add"], True),
            ("vectorAdd", ["--comm", "other"], False),
            ("vectorAdd", ["--exe", program], True),
            ("vectorAdd", ["--exe", "/bin/true"], False),
            ("vectorAdd", ["--uid", os.getuid()], True),
            ("vectorAdd", ["--uid", 4242], False),
            ("vectorAdd", ["--pid", 1], False),
        ]
        for kernel, options, meant in cases:
            with Session(self) as session:
                session.attach("counter", kernel, *options)
                session.run(program, "--threads", 1024, "--launches", 1)
                expect(f"--kernel {kernel} {options}", session.read(), 1024 if meant else 0)

    def test_read_while_running(self):
        with Session(self) as session:
            session.attach()
            process = session.start(self.program("vec_add"), "--threads", 1024, "--launches", 40, "--sleep-ms", 50)
            seen = []
            while process.poll() is None:
                seen.append(session.read())
                time.sleep(0.1)
            finish(process)
            expect("at the end", session.read(), 40 * 1024)
            if seen != sorted(seen) or len({value for value in seen if 0 < value < 40 * 1024}) < 3:
                raise AssertionError(f"not read live: {seen}")
            if any(value % 1024 for value in seen):
                raise AssertionError(f"a launch was seen half: {seen}")

    def test_sass_only_says_why(self):
        program = self.program("vec_add_sass")
        with Session(self) as session:
            session.attach()
            session.run(program, "--threads", 1024)
            expect("nothing counted", session.read(), 0)
            text = session.ctl("why", "--kernel", "vectorAdd").stdout
            if "SASS only" not in text:
                raise AssertionError(f"why does not say it: {text}")

    def test_same_as_bare(self):
        bare = self.scratch / "bare"
        ours = self.scratch / "ours"
        programs = [[self.program("vec_add"), "--threads", "1048576"]]
        for kernel in "reduceSum", "histogram", "matrixMultiply", "stencil", "warpFunctions", "math64", "functions":
            programs.append([self.build / "tests/sim/kernels_driver", kernel])
        for command in programs:
            subprocess.run([*command, "--dump", bare], check=True, stdout=subprocess.DEVNULL)
            with Session(self) as session:
                session.attach("counter", "*")
                session.run(*command, "--dump", ours)
                if (session.read() == 0) != (command[-1] == "functions"):  # calls by pointers: no twin
                    raise AssertionError(f"{command}: the probe did not fire")
            if bare.read_bytes() != ours.read_bytes():
                raise AssertionError(f"{command}: another result when probed")

    def test_without_daemon(self):
        session = Session(self)
        for options in (["--threads", 1024], ["--threads", 1024, "--how", "graph"]):
            output = finish(session.start(self.program("vec_add"), *options))
            expect("exit without a daemon", "PASS" in output, True)

    def test_daemon_killed(self):
        """Kills the daemon at many moments of the program's life; the program must not notice."""
        for delay in [x / 100 for x in range(0, 80, 8)]:
            with Session(self) as session:
                session.attach()
                process = session.start(self.program("vec_add"), "--threads", 1024, "--launches", 20, "--sleep-ms", 10)
                time.sleep(delay)
                session.daemon.kill()
                expect(f"after a kill at {delay}s", "PASS" in finish(process), True)

    def test_worker_faults(self):
        for fault in "crash", "hang", "garbage":
            with Session(self, f"--image-worker-argument=--test-fault={fault}") as session:
                session.attach()
                start = time.monotonic()
                output = session.run(self.program("vec_add"), "--threads", 1024)
                expect(f"worker {fault}", "PASS" in output and session.read() == 0, True)
                if time.monotonic() - start > 6:
                    raise AssertionError(f"worker {fault}: took {time.monotonic() - start:.1f} s")

    def test_pytorch_and_triton_unharmed(self):
        """Stock PyTorch: its code is SASS, Triton's comes as cubins. Nothing can be probed, and nothing may change."""
        code = """
import torch
torch.manual_seed(0)
x = torch.randn(1024, 1024, device="cuda")
w = torch.randn(1024, 1024, device="cuda", requires_grad=True)
loss = torch.nn.functional.gelu(x @ w).softmax(-1).square().sum()
loss.backward()
f = torch.compile(lambda t: (t * 2 + 1).relu().sum(-1))
print(loss.item(), w.grad.double().sum().item(), f(x).double().sum().item(), x.flatten().sort()[0][:3].tolist())
"""
        command = [sys.executable, "-c", code]
        self.need_module("torch")
        cache = {"TORCHINDUCTOR_CACHE_DIR": str(self.scratch / "inductor")}
        start = time.monotonic()
        bare = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **cache})
        middle = time.monotonic()
        with Session(self) as session:
            session.attach("counter", "*")
            ours = subprocess.run(command, capture_output=True, text=True, env={**session.app_env(), **cache})
            counters = session.json("status")["counters"]
        expect("exit code", (bare.returncode, ours.returncode), (0, 0))
        expect("output", ours.stdout, bare.stdout)
        self.benchmarks["pytorch"] = {"bare_s": round(middle - start, 2), "ours_s": round(time.monotonic() - middle, 2), "counters": counters}

    def test_language(self):
        """Every point, context, helper and map: tests/e2e/test-language.py, on this GPU."""
        self.script("language", TOP / "tests/e2e/test-language.py", self.build)

    def test_map_update(self):
        """What the host writes to maps reaches programs: before they start, and while they run."""
        self.script("map_update", TOP / "tests/e2e/test-map-update.py", self.build)

    def test_objects(self):
        """Sections and names as other projects have them. (Uprobes want symbols, which programs of a bundle have not.)"""
        self.script(
            "objects",
            TOP / "tests/e2e/test-objects.py",
            self.build,
            "test_long_section",
            "test_prefix",
            "test_literal_before_prefix",
            "test_names",
            "test_wrong_context",
            "test_shared_hash",
        )

    def test_engine(self):
        """The sanitizer engine's points, contexts, helpers and maps, with NVIDIA's library."""
        self.script("engine", TOP / "tests/e2e/test-sass.py", self.build)

    def test_machine_code(self):
        """Probes in machine code: results of kernels stay the same to the bit, and counts are exact."""
        result = subprocess.run([self.program("machine-code")], capture_output=True, text=True, timeout=300)
        print(result.stdout + result.stderr, end="", flush=True)
        expect("machine-code", (result.returncode, result.stdout.split()[-1:]), (0, ["PASS"]))
        times = re.findall(r"vectorAdd (\d+) threads (\w+): ([\d.]+) us, x([\d.]+)", result.stdout)
        self.benchmarks["machine_code"] = {f"{threads} {name}": {"us": float(time), "ratio": float(ratio)} for threads, name, time, ratio in times}

    def machine_code(self, program, kernel, *arguments):
        """What a program prints and how many threads are counted, at entries, at ways out, and by blocks: in machine code, through the whole product."""
        with Session(self, "--engine=auto") as session:
            session.attach("counter", kernel)
            session.attach("counter", kernel, "--point", "return")
            session.attach("kernel_counter", kernel)
            output = session.run_probed(program, *arguments)
            outcomes = session.json("why")["outcomes"]
            counts = [session.read(info["id"]) for info in session.json("map", "list")["maps"]]
        probed = {outcome["engine"] for outcome in outcomes if outcome["outcome"] == "probed"}
        for outcome in outcomes:
            if outcome["outcome"] != "probed":
                print(f"      {outcome['outcome']}: {outcome['demangled'] or outcome['kernel']}: {outcome['reason']}", flush=True)
        expect(f"{program.name}: how it is probed", probed, {"machine code"})
        return output, counts

    def test_machine_code_counts(self):
        """A program without PTX, by twins from its machine code."""
        for threads, block in SHAPES:
            output, counts = self.machine_code(self.program("vec_add_sass"), "vectorAdd", "--threads", threads, "--block", block, "--launches", 3)
            expect(f"{threads}/{block}: threads the program says", expected(output), threads * 3)
            expect(f"{threads}/{block}: entry, return, blocks", counts, 3 * [threads * 3])
        for how in "graph", "capture", "threads":
            output, counts = self.machine_code(self.program("vec_add_sass"), "vectorAdd", "--threads", 65536, "--launches", 10, "--how", how)
            expect(f"{how}: entry, return, blocks", counts, 3 * [expected(output)])
        with Session(self, "--engine=ptx") as session:
            session.attach()
            session.run(self.program("vec_add_sass"), "--threads", 1024)
            expect("with --engine=ptx", session.read(), 0)

    def test_machine_code_live(self):
        """Attached to a program without PTX that runs, and detached."""
        threads = 65536
        with Session(self, "--engine=auto") as session, Worker(self, [self.program("live"), threads], session) as worker:
            worker.ask("add 10")
            attached = session.attach()
            deadline = time.monotonic() + 20
            while not session.read() and time.monotonic() < deadline:
                worker.ask("add 1")
            before = session.read()
            worker.ask("add 10")
            worker.ask("mul 10")
            expect("threads of ten launches", session.read() - before, 10 * threads)
            engines = {outcome["engine"] for outcome in session.json("why")["outcomes"] if outcome["outcome"] == "probed"}
            expect("how it is probed", engines, {"machine code"})
            session.ctl("detach", *attached)
            worker.ask("add 10")

    def test_machine_code_cublas(self):
        """A library without PTX for this GPU: the same results to the bit, as many threads leave as enter."""
        program = self.program("libraries-cublas")
        if not program.exists():
            raise Skipped("no libraries-cublas (ninja gpu-programs)")
        bare = subprocess.run([program], capture_output=True, text=True, timeout=300, check=True).stdout
        output, counts = self.machine_code(program, "*")
        expect("results", output, bare)
        expect("threads at entry, at return, by blocks", counts, 3 * [counts[0]])
        if not counts[0]:
            raise AssertionError("nothing was counted")

    def test_live(self):
        """Attaching to what runs, and detaching, on both engines."""
        self.script("live", TOP / "tests/e2e/test-live.py", self.build)

    def test_twin(self):
        """Modules that were loaded before an attachment of the PTX engine get twins."""
        self.script("twin", TOP / "tests/e2e/test-twin.py", self.build)

    def test_launch(self):
        """Launches have names: 1,000 each in two streams at once, and every way to give arguments."""
        self.script("launch", TOP / "tests/e2e/test-launch.py", self.build)

    def test_thread(self):
        """Variables of a thread: in registers what is in memory, too."""
        self.script("thread", TOP / "tests/e2e/test-thread.py", self.build)

    def test_twin_fit(self):
        """Which twin is launched: barriers of kernels, cooperative launches, attributes, contexts."""
        self.script("twin_fit", TOP / "tests/e2e/test-twin-fit.py", self.build)

    def test_twin_graphs(self):
        """Nodes of executable graphs get twins, and lose them."""
        self.script("twin_graphs", TOP / "tests/e2e/test-twin-graphs.py", self.build)

    def test_graphs(self):
        """CUDA graphs from before attach, from while attached and from after."""
        self.script("graphs", TOP / "tests/e2e/test-graphs.py", self.build)

    def test_restart(self):
        """The daemon restarted, crashed and killed while programs that it probes launch; e2e's Manager plays systemd."""
        self.script("restart", TOP / "tests/e2e/test-restart.py", self.build)

    def test_restart_sass(self):
        self.script("restart_sass", TOP / "tests/e2e/test-restart-sass.py", self.build)

    def test_restart_maps(self):
        self.script("restart_maps", TOP / "tests/e2e/test-restart-maps.py", self.build)

    def test_guides(self):
        self.script("guides", TOP / "tests/e2e/test-guides.py", self.build)

    def test_ring_contention(self):
        self.script("rings", TOP / "daemon/translator/device/test-ring.py", self.build / "daemon/translator/bpf-run")

    def test_loops(self):
        """bpf_loop, iterators and may_goto, to their bounds."""
        self.script("loops", TOP / "daemon/translator/test-loops.py", self.build / "daemon/translator/bpf-run")

    def test_hash_contention(self):
        self.script("hash", TOP / "tests/gpu/hash.py", self.build)

    def test_ring_contents(self):
        """A record of each of a million threads of all SMs, in three rings: each is there once, and whole."""
        threads = 4096 * 256
        with Session(self) as session:
            session.ctl("attach", self.build / "tests/e2e/objects/rings.bpf.o", "--ring-size", 512 << 20)
            session.run(self.build / "tests/sim/language_driver", "vectorAdd", "--grid", 4096, "--block", 256)
            for ring, kinds in ("gpu", {1: 1}), ("standard", {2: 1, 3: 2}):
                want = [thread << 8 | kind for kind, step in kinds.items() for thread in range(step - 1, threads, step)]
                got = []
                for line in session.ctl("--json", "ring", "read", ring, "--raw", timeout=300).stdout.splitlines():
                    record = bytes.fromhex(line[line.index('"record":"') + 10 : -2])
                    thread = int.from_bytes(record[:8], "little")
                    expect("block", int.from_bytes(record[8:12], "little"), thread // 256)
                    got.append(thread << 8 | record[12])
                expect(f"records of {ring}", sorted(got) == sorted(want), True)
            lost = {m["name"]: m["lost"] for m in session.json("map", "list")["maps"] if m["kind"] == "ring"}
            expect("lost", lost, {"gpu": 0, "standard": 0, "perf": 0})

    def test_print_million(self):
        """A line of each of a million threads: printed and lost are all of them, and the kernel did not wait for anybody."""
        program = [self.program("vec_add"), "--threads", 1048576, "--launches", 3]
        with Session(self) as session:
            session.ctl("attach", self.build / "tests/e2e/objects/log.bpf.o", "--program", "cuda__log")
            start = time.monotonic()
            session.run(*program)
            seconds = time.monotonic() - start
            (log,) = [m for m in session.json("map", "list")["maps"] if m["name"] == ".log"]
            printed = len(session.ctl("log").stdout.splitlines())
            expect("printed + lost", printed + log["lost"], 3 * 1048576)
            self.benchmarks["print_million"] = {"printed": printed, "lost": log["lost"], "program_s": round(seconds, 2)}
            if seconds > 20:
                raise AssertionError(f"the program took {seconds:.1f} s")

    def script(self, name, *command):
        """A test that is a program of its own; its output is kept."""
        env = {**self.tool_env(), "GPUPROBE_TEST_GPU": "1"}
        if self.libraries:
            env["GPUPROBE_TEST_LIBRARIES"] = self.libraries
        result = subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True, timeout=400)
        self.benchmarks[name] = result.stdout.splitlines()[-60:]
        if result.returncode != 0:
            raise AssertionError((result.stdout + result.stderr)[-6000:])

    def programs(self, name, script, *arguments):
        result = subprocess.run(
            [sys.executable, TOP / "tests/conformance" / script, *arguments], env=self.tool_env(), capture_output=True, text=True, timeout=400
        )
        self.benchmarks[name] = result.stdout.strip().splitlines()[-1:]
        if result.returncode != 0:
            raise AssertionError((result.stdout + result.stderr)[-3000:])

    def test_random_programs(self):
        self.programs("random_programs", "random-programs.py", self.build / "daemon/translator/bpf-run", "500")

    def test_conformance(self):
        cases = sorted((TOP / "tests/conformance/cases").iterdir())
        self.programs("conformance", "run.py", self.build / "daemon/translator/bpf-run", *cases)

    def test_random_patch_forms(self):
        self.programs("random_patch_forms", "random-programs.py", "--patch", self.build / "daemon/translator/bpf-run", "200", "1001")

    def test_patch_forms(self):
        """Programs as the sanitizer engine has them, called by a kernel."""
        folder = TOP / "tests/conformance"
        self.programs(
            "patch_forms", "run.py", "--patch", self.build / "daemon/translator/bpf-run", folder / "patch-only.txt", *sorted((folder / "cases").iterdir())
        )

    # ---------------------------------------------------------------------------------------------------------------

    def need_module(self, name):
        """Of Python."""
        if subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True).returncode != 0:
            raise Skipped(f"no {name} here")

    def one(self, name, function):
        start = time.monotonic()
        try:
            function()
            result = {"name": name, "result": "pass"}
        except Skipped as reason:
            result = {"name": name, "result": "skip", "why": str(reason)}
        except Exception as problem:  # a suite goes on
            result = {"name": name, "result": "fail", "why": f"{type(problem).__name__}: {problem}"[-6000:]}
        result["seconds"] = round(time.monotonic() - start, 2)
        self.results.append(result)
        print(f"{result['result']:5} {name} {result['seconds']} s {result.get('why', '')}", flush=True)

    def tally(self):
        kinds = {"passed": "pass", "failed": "fail", "skipped": "skip"}
        return {kind: sum(result["result"] == word for result in self.results) for kind, word in kinds.items()}

    def write_summary(self, device, path):
        summary = {
            "machine": device,
            "date": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
            **self.tally(),
            "results": self.results,
            "benchmarks": self.benchmarks,
        }
        new = Path(path + ".new")
        new.write_text(json.dumps(summary, indent=1) + "\n")
        new.rename(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--skip", default="")
    parser.add_argument("--programs", default="")
    parser.add_argument("--out")
    parser.add_argument("--libraries")
    arguments = parser.parse_args()
    device = gpu()
    if not device:
        print("SKIP: no GPU here")
        return 77
    suite = Suite(arguments)
    names = [name for name in dir(Suite) if name.startswith("test_") or (name.startswith("bench_") and not arguments.quick)]
    only = [name for name in arguments.only.split(",") if name]
    left_out = [name for name in arguments.skip.split(",") if name]
    names = [
        name
        for name in sorted(names, key=lambda name: name.startswith("bench_"))
        if (not only or any(part in name for part in only)) and not any(part in name for part in left_out)
    ]
    if not names:
        print("suite.py: --only and --skip leave no test", file=sys.stderr)
        return 2
    if arguments.out:
        suite.save = lambda: suite.write_summary(device, arguments.out)
    for name in names:
        suite.one(name, getattr(suite, name))
        suite.save()  # now: what runs this may have a limit
    print(json.dumps({name: figures for name, figures in suite.benchmarks.items() if name != "harmless"}, indent=1))  # that one printed its table
    counts = suite.tally()
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
