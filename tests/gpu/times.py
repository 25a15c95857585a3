# SPDX-License-Identifier: Apache-2.0
"""Times of kernels in gpuprobectl trace, by events and by CUPTI, against PyTorch's own profiler; and what they cost a training step that the GPU bounds."""

import json
import statistics
import time

from sass import ratio
from session import Session, expect
from tracing import Trace, renamed

STEPS = 4


def kernels_of(items):
    """Kernels in their order, without copies."""
    kernels = [item for item in items if item["type"] == "gpu" and item.get("kernel")]
    return sorted(kernels, key=lambda item: item["ts_ns"])


def compare(items, profiled, lost):
    """How the kernels of a trace differ from those of torch.profiler in another run; names of ours are mapped to theirs by their order."""
    kernels = kernels_of(items)
    order = [item["name"] for item in kernels]
    same = renamed(order, profiled["order"])
    theirs = dict(zip(order, profiled["order"])) if same else {name: name for name in order}
    times = {}
    for item in kernels:
        times.setdefault(theirs[item["name"]], []).append(item["dur_ns"] / 1e3)
    all_of_theirs = sum(profiled["us"].values())
    by_name = {
        name: {
            "sum": round(sum(values) / profiled["us"][name], 4),
            "median": round(statistics.median(values) / profiled["median"][name], 4),
            "share": round(profiled["us"][name] / all_of_theirs, 4),
            "median_us": round(profiled["median"][name], 2),
            "n": len(values),
        }
        for name, values in times.items()
        if name in profiled["us"]
    }
    weight = sum(row["share"] for row in by_name.values()) or 1
    launches = {item.get("flow") for item in items if item.get("class") == "launch"}
    return {
        "kernels": len(order),
        "profiled": len(profiled["order"]),
        "same_order": same,
        "lost": lost,
        "violations": [item["violation"] for item in kernels if item.get("violation")][:5],
        "without_launch": sum(item.get("flow") not in launches for item in kernels),
        "notes": sorted({item["name"] for item in items if item["type"] == "note"}),
        "sum_ratio": round(sum(map(sum, times.values())) / all_of_theirs, 4),
        "median_ratio_by_share": round(sum(row["median"] * row["share"] for row in by_name.values()) / weight, 4),
        "worst_of_1_percent": max([abs(row["median"] - 1) for row in by_name.values() if row["share"] >= 0.01] or [None]),
        "error_ns": max([item.get("error_ns", 0) for item in kernels] or [None]),
        "by_name": dict(sorted(((name[:60], row) for name, row in by_name.items()), key=lambda pair: -pair[1]["share"])[:12]),
    }


class TimesCode:
    def test_trace_cupti(self):
        """--gpu=cupti tells the kernels of a process that runs as torch.profiler does; both serve such a process one after the other."""
        self.need_module("torch")
        with self.train("eager") as bare:
            bare.ask("steps 4")
            profiled = bare.ask(f"profile {STEPS}")
        result = self.benchmarks["trace_cupti"] = {}
        with Session(self) as session, self.train("eager", session=session) as worker:
            worker.ask("steps 4")
            for key in "first", "second":
                with Trace(self, session, worker, "--gpu=cupti", "-e", "launch") as trace:
                    worker.ask(f"steps {STEPS}")
                    worker.ask("memory")
                result[key] = compare(trace.items(), profiled, trace.lost())
            again = worker.ask(f"profile {STEPS}")
            result["profiler_afterwards"] = {"kernels": len(again["order"]), "same": again["order"] == profiled["order"]}
            worker.ask("profiler 1")
            with Trace(self, session, worker, "--gpu=cupti", "-e", "launch") as trace:
                worker.ask(f"steps {STEPS}")
            result["while_profiled"] = compare(trace.items(), profiled, trace.lost())
            result["profiler_was_first"] = worker.ask("profiler 0")
            with Trace(self, session, worker, "--gpu=events", "-e", "launch") as trace:
                worker.ask(f"steps {STEPS}")
                worker.ask("memory")
            result["events"] = compare(trace.items(), profiled, trace.lost())
        expect(
            "the same kernels in the same order, and none before its launch",
            [(result[key]["same_order"], result[key]["lost"], result[key]["violations"], result[key]["notes"]) for key in ("first", "second")],
            [(True, 0, [], [])] * 2,
        )
        expect("torch.profiler afterwards", again["order"] == profiled["order"], True)
        expect(
            "one that was first has all, and a note says so",
            (result["profiler_was_first"]["kernels"], len(result["while_profiled"]["notes"])),
            (len(again["order"]), 1),
        )
        expect("the same order by events", (result["events"]["same_order"], result["events"]["violations"]), (True, []))

    def test_trace_cupti_command(self):
        """A short program, whole: its kernels, those of a graph each by itself, and its copies."""
        with Session(self) as session:
            figures = self.benchmarks["trace_cupti_command"] = {}
            for how, kernels in ("launch", 10), ("graph", 10):
                out = self.scratch / f"cupti-{how}.jsonl"
                session.ctl(
                    "trace", "--gpu=cupti", "--format", "jsonl", "-o", out, "--", self.program("vec_add"), "--threads", 65536, "--launches", 10, "--how", how
                )
                items = [json.loads(line) for line in open(out)]
                found = kernels_of(items)
                calls = {item["flow"]: item for item in items if item["type"] == "userspace" and item.get("flow")}
                figures[how] = {
                    "notes": [item["name"] for item in items if item["type"] == "note"],
                    "kernels": len(found),
                    "copies": [item["name"] for item in items if item["type"] == "gpu" and not item.get("kernel")],
                    "launches": len(calls),
                    "us": [item["dur_ns"] / 1e3 for item in found],
                    "after_call_us": [(item["ts_ns"] - calls[item["flow"]]["ts_ns"]) / 1e3 for item in found if item.get("flow") in calls],
                }
                expect(f"{how}: names", {item["kernel"] for item in found}, {"_Z9vectorAddPKfS0_Pf"})
                expect(
                    f"{how}: kernels, each of a call and not before it",
                    (len(found), [item for item in found if item.get("flow") not in calls or item.get("violation")]),
                    (kernels, []),
                )

    def bench_trace_launches(self):
        """A step of training that launches bound: what each way to trace it costs."""
        self.need_module("torch")
        self.ways_to_trace("trace_launches", 10, 40)

    def bench_trace_times(self):
        """A step of training that keeps the GPU busy: what each way to trace it costs, and how exact the times of its kernels are."""
        self.need_module("torch")
        self.ways_to_trace("trace_times", 3, 90, "--big")

    def ways_to_trace(self, name, steps, seconds, *options):
        ways = {"traced": ["--backend", "shim"], "events": ["--backend", "shim", "--gpu=events"], "cupti": ["--backend", "shim", "--gpu=cupti"]}
        times = {key: [] for key in ("bare", "present", *ways, "after", "bpf")}
        result = self.benchmarks[name] = {"ratios": {}, "to_present": {}, "ms": times}
        with Session(self) as session, self.train("eager", *options) as bare, self.train("eager", *options, session=session) as ours:

            def measure(worker, key):
                worker.ask("steps 1")
                times[key].append(worker.ask(f"steps {steps}")["ms"])

            def round_of(keys):
                for key in keys:
                    way = ["--backend", "bpf"] if key == "bpf" else ways.get(key)
                    worker = bare if key in ("bare", "bpf") else ours
                    if way is None:
                        measure(worker, key)
                        continue
                    with Trace(self, session, worker, *way) as trace:
                        measure(worker, key)
                    if worker is ours:
                        result.setdefault("notes", {})[key] = sorted({item["name"] for item in trace.items() if item["type"] == "note"})

            measure(bare, "bare")  # clocks and caches of the GPU: not counted
            times["bare"].clear()
            deadline = time.monotonic() + seconds
            while len(times["bpf"]) < 8 and time.monotonic() < deadline:
                round_of(list(times))  # and backwards: a GPU gets warm, and what comes after what matters
                round_of(reversed(list(times)))
            result["ratios"] = {key: ratio(values, times["bare"]) for key, values in times.items()}
            result["to_present"] = {key: ratio(values, times["present"]) for key, values in times.items()}  # two processes differ by themselves
            profiled = bare.ask(f"profile {STEPS}")
            result["profiled"] = {
                "busy": profiled["busy"],
                "kernels": len(profiled["order"]),
                "kernel_ms": round(sum(profiled["us"].values()) / 1e3 / STEPS, 2),
            }
            for key in "events", "cupti":
                with Trace(self, session, ours, *ways[key], "-e", "launch") as trace:
                    ours.ask(f"steps {STEPS}")
                    ours.ask("memory")
                result[key] = compare(trace.items(), profiled, trace.lost())
            ours.ask("steps 1")  # a process leaves CUPTI at its next call of the driver
            again = ours.ask(f"profile {STEPS}")
            result["profiled_in_this_process"] = {
                "sum_ratio": round(sum(again["us"].values()) / sum(profiled["us"].values()), 4),
                "same_order": again["order"] == profiled["order"],
            }
