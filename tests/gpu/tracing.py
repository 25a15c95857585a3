# SPDX-License-Identifier: Apache-2.0
"""gpuprobectl trace on a GPU: what CUDA programs call, and when their kernels run, against PyTorch's own profiler; and what it costs."""

import json
import signal
import subprocess
import time

from sass import Worker, ratio
from session import Session, expect

STEPS = 6


class Trace:
    """A trace of a process that runs, from here on until the end of `with`."""

    def __init__(self, suite, session, worker, *options):
        self.file = suite.scratch / f"trace-{time.monotonic_ns()}.jsonl"
        self.process = subprocess.Popen(
            [
                suite.build / "ctl/gpuprobectl",
                f"--session={session.name}",
                "trace",
                "-p",
                str(worker.pid),
                "--format",
                "jsonl",
                "-o",
                self.file,
                *map(str, options),
            ],
            env=suite.tool_env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self):
        deadline = time.monotonic() + 20
        while not self.file.exists() or not self.file.stat().st_size:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise RuntimeError(f"the trace did not start: {self.process.communicate()}")
            time.sleep(0.02)
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=60)
        if self.process.returncode != 0:
            raise RuntimeError(f"gpuprobectl trace: exit {self.process.returncode}: {out}{err}")

    def items(self):
        return [json.loads(line) for line in open(self.file)]

    def lost(self):
        return sum(item.get("count", 0) for item in self.items() if item["type"] == "lost")


def renamed(ours, theirs):
    """Two orders of kernels are the same if one becomes the other by giving each name another: demanglers differ."""
    names = {}
    return (
        len(ours) == len(theirs) and all(names.setdefault(one, other) == other for one, other in zip(ours, theirs)) and len(set(names.values())) == len(names)
    )


class TraceCode:
    def test_trace_calls(self):
        """Every call of a program from its first to its last, with its launches' kernels and times."""
        with Session(self) as session:
            out = self.scratch / "calls.jsonl"
            session.ctl("trace", "--gpu", "--format", "jsonl", "-o", out, "--", self.program("vec_add"), "--threads", 65536, "--launches", 10)
            items = [json.loads(line) for line in open(out)]
            calls = [item for item in items if item["type"] == "userspace"]
            launches = [call for call in calls if call.get("class") == "launch"]
            kernels = [item for item in items if item["type"] == "gpu"]
            expect("lost", sum(item.get("count", 0) for item in items if item["type"] == "lost"), 0)
            expect("launches", len(launches), 10)
            expect("kernels of launches", {call.get("kernel") for call in launches}, {"_Z9vectorAddPKfS0_Pf"})
            expect("kernels on the GPU", len(kernels), 10)
            expect("each begins after its launch", [item["violation"] for item in kernels if item.get("violation")], [])
            expect("flows", sorted(item["flow"] for item in kernels), sorted(call["flow"] for call in launches))
            expect("the first call", calls[0]["name"] in ("cuInit", "cuGetProcAddress_v2", "cuDriverGetVersion"), True)
            self.benchmarks["trace_calls"] = {
                "calls": len(calls),
                "functions": len({call["name"] for call in calls}),
                "ioctls": sum(item["type"] == "ioctl" for item in items),
            }

    def test_trace_train(self):
        """Number, order and times of kernels are those that torch.profiler tells of another run; none begins before its launch."""
        self.need_module("torch")
        with self.train("eager") as bare:
            bare.ask("steps 4")
            profiled = bare.ask(f"profile {STEPS}")
        with Session(self) as session, self.train("eager", session=session) as worker:
            worker.ask("steps 4")
            with Trace(self, session, worker, "--gpu", "-e", "launch") as trace:
                worker.ask(f"steps {STEPS}")
                worker.ask("memory")
        items = trace.items()
        kernels = sorted((item for item in items if item["type"] == "gpu"), key=lambda item: item["ts_ns"])
        ours, theirs, total = {}, {}, {}
        for item in kernels:
            ours[item["name"]] = ours.get(item["name"], 0) + item["dur_ns"] / 1e3
        order = [item["name"] for item in kernels]
        for mine, name in zip(order, profiled["order"]):
            total[mine] = name
        theirs = {mine: profiled["us"][name] for mine, name in total.items()}
        apart = {name: round(us / theirs[name], 3) for name, us in ours.items() if name in theirs}
        self.benchmarks["trace_train"] = {
            "kernels": len(order),
            "profiled": len(profiled["order"]),
            "lost": trace.lost(),
            "gpu_time_ratio": round(sum(ours.values()) / max(sum(profiled["us"].values()), 1e-9), 4),
            "by_kernel": apart,
        }
        expect("lost", trace.lost(), 0)
        expect("kernels before their launch", [item["violation"] for item in kernels if item.get("violation")], [])
        expect("number of kernels", len(order), len(profiled["order"]))
        expect("the same order", renamed(order, profiled["order"]), True)

    def bench_trace_train(self):
        """A step of training: bare, with the shim, traced by it, with times of kernels; and traced by uprobes without the shim."""
        self.need_module("torch")
        ways = {"shim": [], "shim_gpu": ["--gpu"]}
        times = {key: [] for key in ("bare", "present", *ways, "bpf", "detached")}
        missing = ""
        with Session(self) as session, self.train("eager") as bare, self.train("eager", session=session) as ours:

            def measure(worker, key):
                worker.ask("steps 3")
                times[key].append(worker.ask("steps 10")["ms"])

            for _ in range(7):
                measure(bare, "bare")
                measure(ours, "present")
                for key, options in ways.items():
                    with Trace(self, session, ours, "--backend", "shim", *options) as trace:
                        measure(ours, key)
                    if not any(item.get("class") == "launch" for item in trace.items()):
                        raise AssertionError(f"{key}: no launch was traced")
                measure(ours, "detached")
                if not missing:
                    try:
                        with Trace(self, session, bare, "--backend", "bpf") as trace:
                            measure(bare, "bpf")
                        if not any(item.get("class") == "launch" for item in trace.items()):
                            missing = "no launch was traced"
                    except RuntimeError as problem:
                        missing = str(problem)[:300]
        self.benchmarks["trace_step"] = {
            "ratios": {key: ratio(values, times["bare"]) for key, values in times.items() if values},
            "ms": times,
            "bpf_missing": missing,
        }
