# SPDX-License-Identifier: Apache-2.0
"""gpuprobectl trace --ctxsw on a GPU: which process was on it when, on the clock of all else, and how good that clock is."""

import bisect
import json
import os
import signal
import statistics
import subprocess
import time

from session import Session, expect

THREADS = 16777216
SLACK = 20_000  # nanoseconds: a kernel's end is that of an event behind it


class Competitor:
    """A program that keeps the GPU busy all the time, and has no shim."""

    def __init__(self, suite):
        self.process = subprocess.Popen(
            [suite.program("vec_add"), "--threads", str(THREADS), "--launches", "100000000"],
            env=suite.tool_env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.pid = self.process.pid

    def __enter__(self):
        time.sleep(3)  # its first launch
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def overlaps(spans):
    spans = sorted((item["ts_ns"], item["ts_ns"] + item["dur_ns"]) for item in spans)
    return sum(after[0] < before[1] for before, after in zip(spans, spans[1:]))


def is_within(spans, begins, time_ns):
    """Whether a span of those, which are in order, has that time in it."""
    i = bisect.bisect_right(begins, time_ns + SLACK) - 1
    return i >= 0 and time_ns <= spans[i][1] + SLACK


class ContextSwitches:
    def test_ctxsw(self):
        """Two programs share the GPU: each one's contexts, one after another; kernels end while their own is there; clocks are good to a microsecond."""
        out = self.scratch / "ctxsw.jsonl"
        with Session(self) as session, Competitor(self) as other:
            # by events there are no times beside a competitor: none ends soon enough to tell how the clocks relate
            result = session.ctl(
                "trace", "--gpu=cupti", "--ctxsw", "--format", "jsonl", "-o", out, "--", self.program("vec_add"), "--threads", THREADS, "--launches", 3000
            )
            items = [json.loads(line) for line in open(out)]
            report = session.ctl("trace", "report", "--ctxsw", out).stdout
            perfetto = self.scratch / "ctxsw.pftrace"
            session.ctl("trace", "report", "--format", "perfetto", "-o", perfetto, out)
        contexts = [item for item in items if item["type"] == "ctxsw"]
        pids = {item["pid"] for item in contexts if item.get("pid")}
        traced = next(item["pid"] for item in items if item["type"] == "userspace")
        clocks = [item for item in items if item["type"] == "clock" and not item.get("pid")]
        spans = sorted((item["ts_ns"], item["ts_ns"] + item["dur_ns"]) for item in contexts if item.get("pid") == traced)
        begins = [begin for begin, _ in spans]
        kernels = [item for item in items if item["type"] == "gpu"]
        inside = sum(is_within(spans, begins, item["ts_ns"] + item["dur_ns"]) for item in kernels)
        whole = [item for item in contexts if item["args"].get("began") and item["args"].get("ended")]
        ordered = sorted(contexts, key=lambda item: item["ts_ns"])
        switches = [after["ts_ns"] - before["ts_ns"] - before["dur_ns"] for before, after in zip(ordered, ordered[1:])]
        self.benchmarks["ctxsw"] = {
            "not_traced": result.stderr,
            "contexts": len(contexts),
            "traced": len(spans),
            "kernels": len(kernels),
            "kernels_inside": inside,
            "slice_us_p50": round(statistics.median(item["dur_ns"] for item in whole) / 1e3, 1),
            "switch_us_p50": round(statistics.median(switches) / 1e3, 1),
            "clock_error_ns": [item["error_ns"] for item in clocks][-3:],
            "drift_ppb": [item["args"]["drift"] for item in clocks][-3:],
            "report": report,
            "perfetto_bytes": os.path.getsize(perfetto),
        }
        expect("lost", sum(item.get("count", 0) for item in items if item["type"] == "lost"), 0)
        expect("both programs", {traced, other.pid} <= pids, True)
        expect("contexts at one time", overlaps(contexts), 0)
        expect("clocks of a microsecond", [item["error_ns"] for item in clocks if item["error_ns"] > 1000], [])
        expect("most kernels end while their context is there", inside >= 0.95 * len(kernels), True)

    def bench_ctxsw(self):
        """Two programs at a time: how long one takes bare, and while context switches are traced."""
        times = {"bare": [], "traced": []}
        command = [self.program("vec_add"), "--threads", str(THREADS), "--launches", "5000"]
        with Session(self) as session, Competitor(self):
            for _ in range(3):
                for way, seconds in times.items():
                    trace = None
                    if way == "traced":
                        trace = subprocess.Popen(
                            [
                                self.build / "ctl/gpuprobectl",
                                f"--session={session.name}",
                                "trace",
                                "--ctxsw",
                                "-e",
                                "device",
                                "-p",
                                str(os.getpid()),
                                "-o",
                                self.scratch / "bench.jsonl",
                            ],
                            env=self.tool_env(),
                            stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL,
                        )
                        time.sleep(1)
                    began = time.monotonic()
                    subprocess.run(command, env=self.tool_env(), stdout=subprocess.DEVNULL, check=True)
                    seconds.append(round(time.monotonic() - began, 3))
                    if trace:
                        trace.send_signal(signal.SIGINT)
                        trace.wait(20)
        self.benchmarks["ctxsw_cost"] = times
