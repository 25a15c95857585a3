#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test-report.py TRACE_REPORT: every analysis on files whose answers are computed here; files that are cut off, broken or none; conversions."""

import json
import os
import pathlib
import pty
import random
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import unittest

REPORT = os.path.abspath(sys.argv[1])
DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
OK, ERROR, USAGE = range(3)
NOT_FOUND, PERMISSION = 5, 6
START = {"type": "start", "format": "gpuprobe-trace", "version": 1, "monotonic": 5_000_000_000, "realtime": 1_700_000_000_000_000_000, "host": "h"}
# seeds/004, "JSON Output", and seeds/003, "Correlating Userspace and Kernel Events"
SEEDS = """\
{"event_id":1,"ts":0.001,"type":"userspace","name":"cuInit","phase":"B"}
{"event_id":2,"ts":0.003,"type":"kernel","name":"nvidia_ioctl","phase":"B"}
{"event_id":3,"ts":0.004,"type":"scheduler","name":"nv_schedule_work"}
{"event_id":4,"ts":0.005,"type":"kernel","name":"nvidia_ioctl","phase":"E"}
{"event_id":5,"ts":0.006,"type":"userspace","name":"cuInit","phase":"E"}
{"event_id":100,"ts":10.500,"type":"userspace","name":"cuLaunchKernel","phase":"B"}
{"event_id":101,"ts":10.502,"type":"syscall","name":"ioctl","cmd":3221766657}
{"event_id":102,"ts":10.503,"type":"kernel","name":"nvidia_ioctl","phase":"B"}
{"event_id":103,"ts":10.505,"type":"scheduler","name":"nv_schedule_work"}
{"event_id":104,"ts":10.600,"type":"kernel","name":"nvidia_ioctl","phase":"E"}
{"event_id":105,"ts":10.601,"type":"userspace","name":"cuLaunchKernel","phase":"E"}
"""


def percentile(values, percent):
    """The smallest value that so many percent do not exceed."""
    values = sorted(values)
    return values[max(0, -(-len(values) * percent // 100) - 1)]


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="test-report-"))
        self.addCleanup(shutil.rmtree, self.dir)
        self.next_id = 0

    def file(self, data, name="trace.jsonl"):
        path = self.dir / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return str(path)

    def run_report(self, *args, status=OK, stderr="", env=None, **more):
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "COLUMNS": "100", **(env or {})}
        for key in os.environ:
            if key.startswith(("ASAN", "LSAN", "UBSAN")):
                environment[key] = os.environ[key]
        done = subprocess.run([more.pop("program", REPORT), *args], capture_output=True, timeout=120, env=environment, **more)
        err = done.stderr.decode()
        self.assertEqual(done.returncode, status, err)
        if stderr is not None:
            self.assertEqual(err, "".join(f"gpuprobectl: {line}\n" for line in ([stderr] if isinstance(stderr, str) and stderr else stderr)))
        return done.stdout

    def json(self, *args, **more):
        return json.loads(self.run_report("--json", *args, **more))

    def item(self, kind, name, start, duration=None, **more):
        """One line of ours, with an id of its own."""
        self.next_id += 1
        line = {
            "event_id": self.next_id,
            "ts": start / 1e6,
            "type": kind,
            "name": name,
            "phase": "i" if duration is None else "X",
            "ts_ns": start,
            "pid": 7,
            "tid": 8,
            "source": "shim",
        }
        if duration is not None:
            line.update(dur_ns=duration, duration_us=duration / 1e3)
        line.update(more)
        return line

    def trace(self, items, stop=True, name="trace.jsonl"):
        lines = [START, *items] + ([{"type": "stop", "events": len(items), "lost": 0}] if stop else [])
        return self.file("".join(json.dumps(line) + "\n" for line in lines), name)

    def near(self, value, wanted):
        self.assertLessEqual(abs(value - wanted), max(1, wanted // 100), (value, wanted))


class Seeds(Case):
    def test_example(self):
        data = self.json("--summary", "--layers", "--gaps", self.file(SEEDS))
        self.assertEqual(data["file"]["format"], "jsonl-seed")
        self.assertEqual(data["file"]["items"], 7)
        self.assertEqual(
            data["summary"]["userspace"], {"calls": 2, "launches": 1, "allocations": 0, "allocated_bytes": 0, "transfers": 0, "transferred_bytes": 0}
        )
        self.assertEqual(data["summary"]["kernel_space"], {"ioctls": 2, "ioctl_ns": 99000, "scheduler_calls": 2})
        # what the seed says of it: cuLaunchKernel took 0.101 ms, the ioctl 0.097 ms
        launch = next(row for row in data["layers"]["calls"] if row["call"] == "cuLaunchKernel")
        self.assertEqual((launch["api"]["total_ns"], launch["api"]["own_ns"], launch["ioctl"]["total_ns"]), (101000, 4000, 97000))

    def test_text(self):
        out = self.run_report(self.file(SEEDS)).decode()
        self.assertTrue(
            out.startswith(
                "=== TRACE SUMMARY ===\n\nUSERSPACE (libcuda.so):\n  Total CUDA API calls: 2\n  Kernel launches: 1\n"
                "  Memory allocations: 0\n  Total memory allocated: 0 bytes (0.00 MB)\n  Memory transfers: 0\n"
                "  Total data transferred: 0 bytes (0.00 MB)\n\nKERNEL SPACE (nvidia.ko):\n  IOCTL calls: 2\n"
                "  Total IOCTL time: 0.099 ms\n  Scheduler calls: 2\n"
            ),
            out,
        )

    def test_other_lines(self):
        lines = SEEDS + (
            '{"type":"ioctl","cmd":3221766657,"decoded":{"dir":3,"type":66,"nr":1,"size":8}}\n'
            '{"type":"gpu_complete","fence":"nvidia"}\n{"type":"gpu_mem","total":1024}\n'
            '{"event_id":7,"ts":11.0,"tid":5,"type":"scheduler","name":"nv_gpu_scheduler_schedule","duration_us":12.345}\n'
            '{"event_id":8,"ts":11.1,"tid":5,"type":"memory","size":4096}\n'
            '{"event_id":9,"ts":11.2,"tid":6,"type":"userspace","name":"cuMemFree_v2","phase":"E"}\n'
        )
        data = self.json("--summary", "--top", self.file(lines))
        self.assertEqual(data["file"]["malformed"], 0)
        self.assertEqual(data["file"]["unmatched"], 1)
        self.assertEqual(data["summary"]["userspace"]["allocated_bytes"], 4096)
        self.assertEqual(data["summary"]["kernel_space"]["ioctls"], 2)
        self.assertEqual([row["duration_ns"] for row in data["top"]], [101000, 97000, 12345, 5000, 2000])

    def test_end_before_beginning(self):
        """Of what is inside a call that ends, where times are not in order, no format makes a duration below zero, which is one of centuries."""
        lines = [("cuA", "B", 1), ("cuB", "B", 10), ("cuA", "E", 5), ("cuB", "E", 12)]
        path = self.file("".join(f'{{"ts":{ts},"tid":1,"type":"userspace","name":"{name}","phase":"{phase}"}}\n' for name, phase, ts in lines))
        for name in "text", "csv", "jsonl", "jsonl-seed", "chrome", "folded", "table":
            with self.subTest(format=name):
                self.assertNotRegex(self.run_report("--format", name, path, stderr=None), rb"[0-9]{10}")
        self.assertLessEqual(max(row["duration_ns"] for row in self.json("--top", path)["top"]), 12 * 10**6)

    def test_lost_ends_and_threads(self):
        lines = []
        for tid in range(2000):  # more than are remembered at once
            lines.append({"ts": tid / 1000, "tid": tid, "type": "userspace", "name": "cuInit", "phase": "B"})
            lines.append({"ts": tid / 1000 + 0.0005, "tid": tid, "type": "kernel", "name": "nvidia_ioctl", "phase": "B"})
            lines.append({"ts": tid / 1000 + 0.0009, "tid": tid, "type": "userspace", "name": "cuInit", "phase": "E"})
        lines.append({"ts": 3.0, "tid": 1, "type": "userspace", "name": "cuCtxSynchronize", "phase": "B"})
        data = self.json(self.file("".join(json.dumps(line) + "\n" for line in lines)))
        self.assertEqual((data["summary"]["userspace"]["calls"], data["summary"]["kernel_space"]["ioctls"], data["file"]["unmatched"]), (2001, 2000, 0))

    def test_long_span(self):
        lines = [{"ts": 0, "tid": 1, "type": "userspace", "name": "cuInit", "phase": "B"}]
        for i in range(10000):
            lines += [{"ts": i + 0.1, "tid": 1, "type": "kernel", "name": "nvidia_ioctl", "phase": phase} for phase in "BE"]
        lines.append({"ts": 20000, "tid": 1, "type": "userspace", "name": "cuInit", "phase": "E"})
        data = self.json("--top=1", "--summary", self.file("".join(json.dumps(line) + "\n" for line in lines)))
        self.assertEqual((data["file"]["items"], data["file"]["unmatched"], data["top"][0]["duration_ns"]), (10001, 0, 20000 * 10**6))


class Analyses(Case):
    def test_summary(self):
        items = [
            self.item("userspace", "cuMemAlloc_v2", 10, 5, base="cuMemAlloc", **{"class": "memory"}, size=1000, out={"dptr": "0x10"}),
            self.item(
                "userspace",
                "cuMemAlloc_v2",
                20,
                5,
                base="cuMemAlloc",
                **{"class": "memory"},
                size=5000,
                failed=True,
                ret=2,
                ret_name="CUDA_ERROR_OUT_OF_MEMORY",
            ),
            self.item("userspace", "cuMemHostAlloc", 30, 5, **{"class": "memory"}, size=24),
            self.item("userspace", "cuMemcpyHtoDAsync_v2", 40, 5, base="cuMemcpyHtoDAsync", **{"class": "transfer"}, size=600),
            self.item("userspace", "cuMemcpyHtoD_v2", 45, 5, base="cuMemcpyHtoD", **{"class": "transfer"}, size=700, failed=True),
            self.item("userspace", "cuMemsetD8_v2", 50, 5, base="cuMemsetD8", **{"class": "transfer"}, size=60),
            self.item("userspace", "cuLaunchKernel", 60, 5, **{"class": "launch"}, flow=1),
            self.item("userspace", "cuLaunchHostFunc", 70, 5, **{"class": "launch"}),
            self.item("userspace", "cuGraphLaunch", 80, 5, **{"class": "launch"}),
            self.item("ioctl", "NV_ESC_RM_ALLOC", 90, 7, **{"class": "ioctl"}),
            self.item("ioctl", "UVM_FREE", 100, 8, **{"class": "uvm"}),
            self.item("kernel", "nvidia:nv_kthread_q_schedule_q_item", 110, **{"class": "work"}),
            self.item("gpu", "k", 200, 100, source="gpu", flow=1),
            self.item("gpu", "k", 250, 100, source="gpu", stream="0x2"),
            self.item("gpu", "k", 500, 50, source="gpu"),
            self.item("lost", "lost", 600, count=42),
            self.item("kernel", "nvidia:rm_ioctl", 600, **{"class": "discover"}, args={"calls": 30}),
            self.item("kernel", "nvidia:rm_ioctl", 700, **{"class": "discover"}, args={"calls": 12}),
        ]
        summary = self.json("--summary", self.trace(items))["summary"]
        self.assertEqual(summary["userspace"], {"calls": 9, "launches": 2, "allocations": 2, "allocated_bytes": 1024, "transfers": 1, "transferred_bytes": 600})
        self.assertEqual(summary["kernel_space"], {"ioctls": 2, "ioctl_ns": 15, "scheduler_calls": 1})
        # [200, 350) and [500, 550)
        self.assertEqual(summary["gpu"], {"kernels": 3, "kernel_ns": 250, "devices": 1, "processes": 1, "busy_ns": 200, "idle_ns": 150})
        self.assertEqual((summary["failed"], summary["lost"]), (2, 42))
        counts = {(row["type"], row["name"]): (row["count"], row["failed"], row["total_ns"]) for row in summary["by_name"]}
        self.assertEqual(counts["userspace", "cuMemAlloc_v2"], (2, 1, 10))
        self.assertEqual(counts["gpu", "k"], (3, 0, 250))
        self.assertEqual(counts["kernel", "nvidia:rm_ioctl"], (42, 0, 0))
        self.assertEqual({(row["type"], row["class"]): row["count"] for row in summary["by_type"]}["userspace", "memory"], 3)

    def test_top(self):
        durations = list(range(1, 2001))
        random.Random(1).shuffle(durations)
        items = [self.item("userspace", f"cuF{i % 7}", 10000 * i, duration) for i, duration in enumerate(durations)]
        items.append(self.item("gpu", "k", 1, 10**9, source="gpu"))
        path = self.trace(items)
        for args, n in ((["--top"], 10), (["--top", "3"], 3), (["--top=25"], 25), (["--top=5000"], 2000)):
            with self.subTest(args=args):
                rows = self.json(*args, path)["top"]
                self.assertEqual([row["duration_ns"] for row in rows], sorted(durations, reverse=True)[:n])
                self.assertEqual(rows[0]["ts_ns"], 10000 * durations.index(2000))

    def test_gaps(self):
        at, ends, items = 0, [], []
        rng = random.Random(2)
        for _ in range(500):
            at += rng.randrange(1000, 100000)
            duration = rng.randrange(500, 900)
            ends.append((at, at + duration))
            items.append(self.item("userspace", "cuLaunchKernel", at, duration, comm="python", thread="worker"))
        items.append(self.item("userspace", "cuLaunchKernel", at + 10, 5, tid=99))
        idle = [b[0] - a[1] for a, b in zip(ends, ends[1:])]
        between = [b[0] - a[0] for a, b in zip(ends, ends[1:])]
        threads = self.json("--gaps", self.trace(items))["gaps"]["threads"]
        self.assertEqual([(row["tid"], row["launches"]) for row in threads], [(8, 500), (99, 1)])
        self.assertEqual(threads[0]["thread"], "worker")
        self.assertEqual((threads[0]["idle"]["count"], threads[0]["idle"]["total_ns"], threads[0]["idle"]["max_ns"]), (499, sum(idle), max(idle)))
        self.near(threads[0]["between"]["mean_ns"], round(statistics.mean(between)))
        for percent in (50, 90, 99):
            self.near(threads[0]["idle"][f"p{percent}_ns"], percentile(idle, percent))

    def test_idle_is_of_the_union(self):
        spans = [(0, 100), (50, 150), (150, 200), (300, 400), (310, 320), (1000, 1100)]
        items = [self.item("gpu", "k", start, end - start, stream=hex(i % 2), source="gpu") for i, (start, end) in enumerate(spans)]
        items.append(self.item("gpu", "k", 5000, 10, device=1, source="gpu"))
        devices = self.json("--gaps", self.trace(items))["gaps"]["devices"]
        self.assertEqual([(d["device"], d["busy_ns"], d["idle_ns"], d["gaps"]["count"]) for d in devices], [(0, 400, 700, 2), (1, 10, 0, 0)])
        self.assertEqual(devices[0]["longest"], [{"ts_ns": 400, "duration_ns": 600}, {"ts_ns": 200, "duration_ns": 100}])

    def test_idle_out_of_order(self):
        """Kernels of several streams, in any order within some hundred: the union is exact."""
        rng, spans, at = random.Random(3), [], 1000
        for _ in range(20000):
            at += rng.randrange(0, 300)
            spans.append((at, at + rng.randrange(1, 400)))
        shuffled = [spans[i] for i in sorted(range(len(spans)), key=lambda i: i + rng.randrange(300))]
        busy, end, gaps = 0, None, []
        for first, last in sorted(spans):
            if end is not None and first > end:
                gaps.append(first - end)
            busy += max(0, last - max(first, end or 0))
            end = max(end or 0, last)
        device = self.json("--gaps", self.trace([self.item("gpu", "k", a, b - a, source="gpu") for a, b in shuffled]))["gaps"]["devices"][0]
        self.assertEqual((device["busy_ns"], device["idle_ns"], device["gaps"]["count"], device["late"]), (busy, sum(gaps), len(gaps), 0))
        self.assertEqual(device["gaps"]["max_ns"], max(gaps))

    def test_layers(self):
        alloc = self.item("userspace", "cuMemAlloc_v2", 100, 1000, base="cuMemAlloc")
        ioctl = self.item("ioctl", "NV_ESC_RM_ALLOC", 200, 600, parent=alloc["event_id"])
        items = [
            alloc,
            ioctl,
            self.item("kernel", "nvidia:gsp", 300, 100, parent=ioctl["event_id"], **{"class": "gsp"}),
            self.item("kernel", "nvidia:lock", 500, 50, parent=ioctl["event_id"], **{"class": "lock"}),
            self.item("kernel", "nvidia:nv_alloc_pages", 600, 70, **{"class": "memory"}),
            self.item("kernel", "x", 650, **{"class": "memory"}),
            self.item("userspace", "cuInner", 900, 100),
            self.item("userspace", "cuOther", 1100, 40),  # begins where the first ends
            self.item("ioctl", "NV_ESC_RM_FREE", 5000, 10),
            self.item("ioctl", "NV_ESC_RM_FREE", 300, 10, tid=1),
        ]
        data = self.json("--layers", self.trace(items))["layers"]
        self.assertEqual(
            {k: (v["count"], v["total_ns"], v["own_ns"]) for k, v in data.items() if isinstance(v, dict)},
            {"api": (3, 1040, 440), "ioctl": (3, 620, 400), "rpc": (2, 150, 150), "driver": (2, 70, 70)},
        )
        calls = {row["call"]: row for row in data["calls"]}
        self.assertEqual(set(calls), {"cuMemAlloc", "cuOther", "(no call)"})
        self.assertEqual(
            (calls["cuMemAlloc"]["api"]["total_ns"], calls["cuMemAlloc"]["api"]["own_ns"], calls["cuMemAlloc"]["ioctl"]["own_ns"]), (1000, 400, 380)
        )
        self.assertEqual(calls["(no call)"]["ioctl"]["total_ns"], 20)

    def test_late_parent(self):
        items = [
            self.item("ioctl", "i", 200, 100),
            self.item("userspace", "cuLate", 100, 1000),
            self.item("ioctl", "i", 500, 100),
            self.item("userspace", "cuBeside", 50, 20),
        ]
        data = self.json("--layers", self.trace(items))["layers"]
        self.assertEqual((data["late"], data["api"]["own_ns"], data["ioctl"]["total_ns"]), (2, 920, 200))

    def test_latency(self):
        rng, latencies, items = random.Random(4), [], []
        for i in range(1000):
            latency = rng.randrange(2000, 200000)
            latencies.append(latency)
            launch = self.item("userspace", "cuLaunchKernel", 10**6 * i, 900, **({"flow": i + 1} if i % 2 else {}))
            items += [launch, self.item("gpu", "k", 10**6 * i + latency, 50, parent=launch["event_id"], source="gpu", **({"flow": i + 1} if i % 2 else {}))]
        items.append(self.item("userspace", "cuLaunchKernel", 2 * 10**9, 900, flow=5000))
        items.append(self.item("gpu", "k", 2 * 10**9 - 20700, 50, flow=5000, error_ns=800, source="gpu", violation="starts 20.7us before its launch"))
        items.append(self.item("gpu", "k", 3 * 10**9 - 29000, 50, flow=5001, error_ns=800, source="gpu"))  # before its launch in the file, too
        items.append(self.item("userspace", "cuLaunchKernel", 3 * 10**9, 900, flow=5001))
        items.append(self.item("userspace", "cuLaunchKernel", 35 * 10**8, 900, flow=5002))
        items.append(self.item("gpu", "k", 35 * 10**8, 50, flow=5002, source="gpu"))  # as traces show what began a little before
        items.append(self.item("gpu", "k", 4 * 10**9, 50, source="gpu"))
        data = self.json("--latency", "--errors", self.trace(items))
        latency = data["latency"]
        self.assertEqual((latency["count"], latency["total_ns"], latency["min_ns"], latency["max_ns"]), (1000, sum(latencies), min(latencies), max(latencies)))
        for percent in (50, 90, 99):
            self.near(latency[f"p{percent}_ns"], percentile(latencies, percent))
        self.assertEqual((latency["started_before_launch"], latency["unknown"], latency["worst_ns"], latency["unmatched"]), (1, 2, 29000, 1))
        self.assertEqual(sum(power["count"] for power in latency["powers"]), 1000)
        for power in latency["powers"]:
            self.assertEqual(power["count"], sum(power["from_ns"] <= value < 2 * power["from_ns"] for value in latencies))
        self.assertIn(
            "2 began with their launch, as far as can be told: their stream had nothing to do.\n\nNOT POSSIBLE: 1 started before their launch, by up to 29.00 us\n",
            self.run_report("--latency", str(self.dir / "trace.jsonl")).decode(),
        )
        self.assertEqual(data["errors"]["n_violations"], 1)
        self.assertEqual(data["errors"]["violations"][0]["violation"], "starts 20.7us before its launch")

    def test_kernels(self):
        rng, times, items, at = random.Random(5), {}, [], 0
        for i in range(5000):
            name = f"kernel{rng.randrange(4)}(float*, int)"
            duration = int(rng.lognormvariate(10, 2)) + 1
            at += duration
            times.setdefault(name, []).append(duration)
            items.append(self.item("gpu", name, at, duration, source="gpu"))
        rows = self.json("--kernels", self.trace(items))["kernels"]
        whole = sum(sum(values) for values in times.values())
        self.assertEqual([row["name"] for row in rows], sorted(times, key=lambda name: -sum(times[name])))
        for row in rows:
            values = times[row["name"]]
            self.assertEqual((row["count"], row["total_ns"], row["min_ns"], row["max_ns"]), (len(values), sum(values), min(values), max(values)))
            self.assertAlmostEqual(row["percent"], sum(values) * 100 / whole)
            self.near(row["mean_ns"], round(statistics.mean(values)))
            self.near(row["p50_ns"], percentile(values, 50))
            self.near(row["p99_ns"], percentile(values, 99))

    def test_histogram(self):
        values = [0, 1, 63, 64, 65, 127, 128, 1000, 10**6, 10**12]
        items = [self.item("userspace", "cuMemAlloc_v2", 10**13 * i, value, base="cuMemAlloc") for i, value in enumerate(values)]
        items.append(self.item("userspace", "cuInit", 10**15, 5))
        for name in ("cuMemAlloc", "cuMem*", "cuMemAlloc_v2"):
            data = self.json("--histogram", name, self.trace(items))["histogram"]
            self.assertEqual((data["count"], data["total_ns"]), (len(values), sum(values)))
            self.assertEqual({p["from_ns"]: p["count"] for p in data["powers"] if p["count"]}, {0: 2, 32: 1, 64: 3, 128: 1, 512: 1, 2**19: 1, 2**39: 1})
        text = self.run_report("--histogram=cuInit", self.trace(items)).decode()
        self.assertEqual(text.splitlines()[-1], f"[4ns, 8ns)              1 |{'@' * 52}|")
        self.assertIn("nothing of that name", self.run_report("--histogram=x", self.trace(items), stderr=None).decode())

    def test_errors(self):
        items = [self.item("userspace", "cuMemAlloc_v2", 1000 * i, 5, ret=2, ret_name="CUDA_ERROR_OUT_OF_MEMORY", failed=True) for i in range(1, 4)]
        items += [
            self.item("ioctl", "NV_ESC_RM_CONTROL", 9000, 5, ret=-22, failed=True),
            self.item("kernel", "nvidia:nvidia_dev_xid", 9500, **{"class": "xid"}),
            self.item("userspace", "cuEventQuery", 9600, 5, ret=600, ret_name="CUDA_ERROR_NOT_READY"),
            self.item("lost", "lost", 9700, count=3),
        ]
        errors = self.json("--errors", self.trace(items))["errors"]
        self.assertEqual(
            errors["failed"],
            [
                {"type": "userspace", "name": "cuMemAlloc_v2", "result": "CUDA_ERROR_OUT_OF_MEMORY", "count": 3, "first_ns": 1000, "last_ns": 3000},
                {"type": "ioctl", "name": "NV_ESC_RM_CONTROL", "result": "-22", "count": 1, "first_ns": 9000, "last_ns": 9000},
                {"type": "kernel", "name": "nvidia:nvidia_dev_xid", "result": "Xid", "count": 1, "first_ns": 9500, "last_ns": 9500},
            ],
        )
        self.assertEqual((errors["xids"], errors["lost"]), (1, 3))

    def test_ctxsw(self):
        rng, items, wanted, processes = random.Random(7), [], {}, {}
        for device in range(3):
            at, row = rng.randrange(1000), {"contexts": 300, "busy_ns": 0, "switching_ns": 0, "idle_ns": 0}
            for i in range(300):
                gap, duration, name = rng.choice([rng.randrange(1, 10**6), rng.randrange(10**6, 10**8)]), rng.randrange(1, 10**7), rng.choice(["a[1]", "b[2]"])
                if i:
                    row["switching_ns" if gap < 10**6 else "idle_ns"] += gap
                    at += gap
                row["busy_ns"] += duration
                processes.setdefault((device, name), []).append(duration)
                items.append(self.item("ctxsw", name, at, duration, device=device, source="gpu"))
                at += duration
            wanted[device] = row
        items.sort(key=lambda item: item["ts_ns"])
        data = self.json("--ctxsw", self.trace(items))["ctxsw"]
        self.assertEqual({row["device"]: {key: row[key] for key in wanted[0]} for row in data["devices"]}, wanted)
        self.assertEqual(
            {(row["device"], row["name"]): (row["count"], row["total_ns"], row["max_ns"]) for row in data["processes"]},
            {key: (len(values), sum(values), max(values)) for key, values in processes.items()},
        )
        items = [
            self.item("ctxsw", name, at, 10**6, device=device, source="gpu")
            for name, device, at in (("a[1]", 0, 0), ("a[1]", 0, 10**6), ("b[2]", 1, 0), ("c[3]", 1, 3 * 10**6))
        ]
        rows = [line.split() for line in self.run_report("--ctxsw", self.trace(items)).decode().splitlines()]
        self.assertEqual(
            {row[-1]: (row[0], row[4]) for row in rows if row and row[-1].endswith("]")}, {"a[1]": ("0", "100.0"), "b[2]": ("1", "25.0"), "c[3]": ("1", "25.0")}
        )
        items = [self.item("ctxsw", "a[1]", 1000 * i + 10 * device, 5, device=device, source="gpu") for i in range(2) for device in range(65)]
        data = self.json("--ctxsw", self.trace(items))["ctxsw"]
        self.assertEqual(({row["contexts"] for row in data["devices"]}, len(data["devices"]), data["untold"]), ({2}, 64, 2))

    def test_timeline(self):
        items = [
            self.item("userspace", "cuInit", 0, 500_000_000, comm="python"),
            self.item("ioctl", "i", 250_000_000, 250_000_000),
            self.item("gpu", "k", 500_000_000, 500_000_000, source="gpu", stream="0x10"),
            self.item("userspace", "cuF", 999_000_000, 1_000_000),
        ]
        path = self.trace(items)
        rows = self.json("--timeline", path)["timeline"]["rows"]
        self.assertEqual([(row["kind"], sum(row["busy_ns"])) for row in rows], [("calls", 501_000_000), ("ioctls", 250_000_000), ("stream", 500_000_000)])
        for locale, full, empty in (("C.UTF-8", "█", "▁"), ("C", "#", ".")):
            lines = self.run_report("--timeline", path, env={"LC_ALL": locale, "COLUMNS": "128"}).decode().splitlines()
            calls, ioctls, stream = (line.split("|")[1] for line in lines[3:6])
            self.assertTrue(lines[3].startswith("8 python"), lines[3])
            self.assertEqual((len(calls), len(ioctls), len(stream)), (100, 100, 100))
            self.assertEqual((calls[:49], calls[52:98].strip()), (full * 49, ""))
            self.assertNotEqual(calls[-1], " ")
            self.assertEqual((ioctls[:24].strip(), ioctls[27:49]), ("", full * 22))
            self.assertEqual((stream[:48].strip(), stream[52:]), ("", full * 48))

    def test_timeline_late(self):
        """What began before the first item of the file, and comes later, is shown in full, with what came before it where it was."""
        for start in 0, 999, 1_234_567, 10**9, 49_999_999_000, 50 * 10**9:
            items = [self.item("ioctl", "i", 50 * 10**9, 10**10), self.item("userspace", "cuInit", start, 10**11, tid=9)]
            timeline = self.json("--timeline", self.trace(items))["timeline"]
            step = timeline["step_ns"]
            self.assertTrue(start - step < timeline["from_ns"] <= start and timeline["to_ns"] == start + 10**11, (start, timeline["from_ns"], step))
            for row, (first, duration) in zip(timeline["rows"], ((50 * 10**9, 10**10), (start, 10**11))):
                self.assertEqual(sum(row["busy_ns"]), duration)
                busy = [timeline["from_ns"] + i * step for i, ns in enumerate(row["busy_ns"]) if ns]
                self.assertTrue(busy[0] <= first < busy[0] + step and busy[-1] <= first + duration <= busy[-1] + step)

    def test_several_processes(self):
        items = [self.item("gpu", "k", 0, 10**7, source="gpu", pid=pid) for pid in (7, 4711)]
        items += [self.item("userspace", "cuInit", 0, 10**7, pid=7, tid=tid, comm="x") for tid in (7, 8)]
        path = self.trace(items)
        labels = re.findall(r"^(\S.*?) *\|", self.run_report("--timeline", path).decode(), re.M)
        self.assertEqual(labels, ["7 x", "7/8 x", "7 GPU 0 stream 0", "4711 GPU 0 stream 0"])
        gpu = self.json("--summary", path)["summary"]["gpu"]
        self.assertEqual((gpu["devices"], gpu["processes"], gpu["busy_ns"]), (2, 2, 2 * 10**7))
        self.assertIn(b"Busy: 20.000 ms of 20.000 ms (100.0%), added up over 2 processes, each with GPUs of its own\n", self.run_report("--summary", path))

    def test_many_rows(self):
        items = [self.item("userspace", "cuInit", 100 * tid, 50, tid=tid) for tid in range(1, 301)]
        rows = self.json("--timeline", self.trace(items))["timeline"]["rows"]
        self.assertEqual((len(rows), sum(row["count"] for row in rows), rows[-1].get("others")), (65, 300, True))

    def test_extremes(self):
        """Whatever numbers a file has: an answer in time, and JSON."""
        rng, numbers = random.Random(7), [0, 1, 1000, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1]
        names = ["cuMemAlloc", "cuMemFree", "cuLaunchKernel", "cuMemcpy", "k", "exit", "cuMemHostRegister"]
        items = []
        for i in range(600):
            value = lambda: rng.choice(numbers)
            items.append(
                self.item(
                    rng.choice(["userspace", "ioctl", "kernel", "gpu", "lost", "process"]),
                    rng.choice(names),
                    value(),
                    rng.choice([None, value()]),
                    pid=rng.randrange(3),
                    tid=rng.randrange(3),
                    size=value(),
                    flow=rng.choice([0, 1, 2, value()]),
                    parent=rng.choice([0, value(), i]),
                    count=value(),
                    error_ns=value(),
                    args={"a": rng.choice([value(), hex(value())])},
                    out={"b": hex(value())},
                    stream=hex(value()),
                    device=value(),
                    **{"class": rng.choice(["gsp", "discover", "memory"])},
                )
            )
        for i, some in enumerate((items, sorted(items, key=lambda item: item["ts_ns"]), items[:1])):
            path = self.trace(some, name=f"trace{i}")
            self.json("--all", "--histogram=*", path, stderr=None)
            self.run_report("--all", "--histogram=*", path, stderr=None)
            for name in ("text", "csv", "jsonl", "jsonl-seed", "chrome", "perfetto", "folded", "table"):
                self.run_report("--format", name, path, stderr=None)

    def test_filters(self):
        items = [
            self.item("userspace", "cuInit", 0, 10**6),
            self.item("userspace", "cuMemAlloc_v2", 2 * 10**6, 10, base="cuMemAlloc", **{"class": "memory"}),
            self.item("userspace", "cuMemFree_v2", 3 * 10**9, 10, base="cuMemFree", pid=9, **{"class": "memory"}),
            self.item("ioctl", "UVM_FREE", 10**6, 5),
        ]
        path = self.trace(items)
        for args, names in (
            (["-p", "7"], {"cuInit", "cuMemAlloc_v2", "UVM_FREE"}),
            (["-p7", "-p9"], {"cuInit", "cuMemAlloc_v2", "cuMemFree_v2", "UVM_FREE"}),
            (["-e", "memory"], {"cuMemAlloc_v2", "cuMemFree_v2"}),
            (["-e", "cuMem*,!cuMemFree"], {"cuMemAlloc_v2"}),
            (["-e", "!userspace"], {"UVM_FREE"}),
            (["--from=2ms"], {"cuMemAlloc_v2", "cuMemFree_v2"}),
            (["--to", "1ms"], {"cuInit"}),
            (["--from", "500us", "--to=2.5"], {"cuInit", "cuMemAlloc_v2", "UVM_FREE"}),
        ):
            with self.subTest(args=args):
                self.assertEqual({row["name"] for row in self.json(*args, path)["summary"]["by_name"]}, names)

    def test_kernels_by_name(self):
        """Kernels have the names that attach takes: mangled, demangled, without arguments, globs; launches are theirs."""
        add, gemm = "_Z9vectorAddPKfS0_i", "_ZN3lib4gemmIfLi4EEEvPT_i"
        items = [
            self.item("userspace", "cuLaunchKernel", 0, 10, kernel=add, flow=1),
            self.item("gpu", "vectorAdd(float const*, float const*, int)", 20, 30, kernel=add, flow=1, source="gpu"),
            self.item("userspace", "cuLaunchKernel", 100, 10, kernel=gemm, flow=3),
            self.item("gpu", "void lib::gemm<float, 4>(float*, int)", 120, 30, kernel=gemm, flow=3, source="gpu"),
            self.item("userspace", "cuMemAlloc_v2", 200, 10, base="cuMemAlloc"),
        ]
        path = self.trace(items)
        for pattern, kernel in (
            (add, add),
            ("vectorAdd", add),
            ("vectorAdd(float const*, float const*, int)", add),
            ("vector*", add),
            ("_Z9vec*", add),
            ("lib::gemm", gemm),
            ("lib::gemm<float, 4>", gemm),
            ("void lib::gemm<float, 4>(float*, int)", gemm),
            ("*gemm*", gemm),
        ):
            with self.subTest(pattern=pattern):
                lines = [json.loads(line) for line in self.run_report("--format=jsonl", "-e", pattern, path).splitlines()][1:-1]
                self.assertEqual([(line["type"], line["kernel"]) for line in lines], [("userspace", kernel), ("gpu", kernel)])
                self.assertEqual(self.json(f"--histogram={pattern}", path)["histogram"]["count"], 1)
        lines = [json.loads(line) for line in self.run_report("--format=jsonl", "-e", "cuLaunchKernel,!vectorAdd", path).splitlines()][1:-1]
        self.assertEqual([line["kernel"] for line in lines], [gemm])
        both = [
            json.loads(line) for line in self.run_report("--format=jsonl", "-e", f"vectorAdd(float const*, float const*, int),lib::gemm", path).splitlines()
        ][1:-1]
        self.assertEqual(len(both), 4)

    def test_nothing_matches(self):
        """What is not there gets a line that says what is."""
        add = "_Z9vectorAddPKfS0_i"
        items = (
            [self.item("userspace", "cuLaunchKernel", i, 1, kernel=add) for i in range(3)]
            + [self.item("userspace", "cuMemAlloc_v2", 7, 1, base="cuMemAlloc")]
            + [self.item("gpu", "vectorAdd(float const*, float const*, int)", 20, 30, kernel=add, source="gpu")]
        )
        path = self.trace(items)
        there = "there are cuLaunchKernel, cuMemAlloc, vectorAdd"
        for pattern, text in (
            ("vectoradd", "did you mean vectorAdd?"),
            ("vetcorAdd", "did you mean vectorAdd?"),
            ("cuMemAloc", "did you mean cuMemAlloc?"),
            ("launch", "did you mean cuLaunchKernel?"),
            ("gemm", there),
            ("ioctl", there),
        ):
            for args in (["-e", pattern], ["-e", pattern, "--json"], ["-e", pattern, "--format=csv"], ["-e", f"cuInit*,{pattern}"]):
                done = subprocess.run([REPORT, *args, path], capture_output=True, timeout=60)
                self.assertEqual(done.returncode, OK)
                self.assertEqual(done.stderr.decode().splitlines()[-1], f"gpuprobectl: {path}: nothing is called {pattern}; {text}")
            self.run_report(f"--histogram={pattern}", path, stderr=f"{path}: nothing that takes time is called {pattern}; {text}")
        self.run_report("-p", "9", path, stderr=f"{path}: nothing is of a process 9; there are 7")
        named = self.trace([self.item("userspace", "cuInit", 1, 1, comm="python")], name="named.jsonl")
        self.run_report("-p", "9", named, stderr=f"{named}: nothing is of a process 9; there are 7 (python)")
        self.run_report("-e", "vectorAdd,!gemm", "-p", "7", path)
        many = self.trace([self.item("userspace", f"cuF{i}", i, 1) for i in range(20)], name="many.jsonl")
        self.run_report("-e", "other", many, stderr=f"{many}: nothing is called other; there are cuF0, cuF1, cuF2, cuF3, cuF4, cuF5 and 14 more")
        none = self.trace([], name="none.jsonl")
        self.run_report("-e", "x", none, stderr=f"{none}: nothing is called x; there is nothing that has a name")

    def test_filters_of_types(self):
        """What is about the others goes only when it is named; losses stay, and so does what is of no process."""
        items = [
            self.item("process", "exec", 1),
            self.item("clock", "clock", 2),
            self.item("note", "text", 3),
            self.item("lost", "lost", 4, count=1),
            self.item("ctxsw", "another user", 5, 5, pid=0),
            self.item("ctxsw", "x[9]", 6, 5, pid=9),
            self.item("userspace", "cuInit", 7, 5),
        ]
        path, about = self.trace(items), ["process", "clock", "note", "lost"]
        for args, types in (
            (["-e", "cuInit"], [*about, "userspace"]),
            (["-e", "!clock"], ["process", "note", "lost", "ctxsw", "ctxsw", "userspace"]),
            (["-e", "!process,!note,!lost,!ctxsw"], ["clock", "lost", "userspace"]),
            (["-e", "!clock,clock"], [*about, "ctxsw", "ctxsw", "userspace"]),
            (["-p", "7"], [*about, "ctxsw", "userspace"]),
        ):
            with self.subTest(args=args):
                lines = [json.loads(line) for line in self.run_report("--format=jsonl", *args, path, stderr=None).splitlines()]
                self.assertEqual([line["type"] for line in lines[1:-1]], types)


class Leaks(Case):
    def alloc(self, start, address, size=100, duration=10, name="cuMemAlloc_v2", **more):
        return self.item(
            "userspace", name, start, duration, base=name.removesuffix("_v2"), size=size, args={"bytesize": size}, out={"dptr": hex(address)}, **more
        )

    def free(self, start, address, duration=10, name="cuMemFree_v2", **more):
        return self.item("userspace", name, start, duration, base=name.removesuffix("_v2"), args={"dptr": hex(address)}, **more)

    def test_groups(self):
        stacks = [["main", "f"], ["main", "g"]]
        items = [
            self.alloc(1000, 0x1000, stack=stacks[0]),
            self.alloc(2000, 0x2000, 50, stack=stacks[0]),
            self.alloc(3000, 0x3000, 7, stack=stacks[1]),
            self.alloc(4000, 0x4000),
            self.free(5000, 0x4000),
            self.free(6000, 0),
            self.free(6100, 0xDEAD),
            self.free(6200, 0x1000, pid=99),
            self.alloc(6300, 0x8000, 1, failed=True),
            self.alloc(7000, 0x5000, 9, name="cuMemHostAlloc"),
            self.item("userspace", "cuEnd", 10000, 10),
        ]
        leaks = self.json("--leaks", self.trace(items))["leaks"]
        self.assertEqual(
            [(g["function"], g["count"], g["bytes"], g["oldest_ns"], g["newest_ns"], g["stack"], g["process_ended"]) for g in leaks["groups"]],
            [
                ("cuMemAlloc_v2", 2, 150, 9000, 8000, stacks[0], False),
                ("cuMemHostAlloc", 1, 9, 3000, 3000, [], False),
                ("cuMemAlloc_v2", 1, 7, 7000, 7000, stacks[1], False),
            ],
        )
        self.assertEqual((leaks["n_live"], leaks["allocations"], leaks["frees"], leaks["unknown_frees"], leaks["peak_bytes"]), (4, 5, 3, 2, 257))
        self.assertEqual({row["address"] for row in leaks["live"]}, {"0x1000", "0x2000", "0x3000", "0x5000"})
        text = self.run_report("--leaks", self.trace(items)).decode()
        self.assertIn("2 by cuMemAlloc_v2: 150 B, the oldest for 9.000 us\n    main\n    f\n", text)

    def test_same_address_again(self):
        items = [
            self.alloc(1000, 0x10, 1),
            self.free(2000, 0x10),
            self.alloc(3000, 0x10, 2),
            self.free(4000, 0x10),
            self.alloc(5000, 0x10, 4),
            self.alloc(6000, 0x10, 8),
        ]
        leaks = self.json("--leaks", self.trace(items))["leaks"]
        self.assertEqual([(g["count"], g["bytes"]) for g in leaks["groups"]], [(1, 8)])
        self.assertEqual((leaks["replaced"], leaks["unknown_frees"], leaks["peak_bytes"]), (1, 0, 8))

    def test_threads_hand_over_an_address(self):
        """One thread's allocation waits while another frees the address that it gets: it is not what is freed."""
        items = [self.alloc(1000, 0x10, 1), self.alloc(2000, 0x10, 2, duration=1000, tid=9), self.free(2500, 0x10, tid=10)]
        leaks = self.json("--leaks", self.trace(items))["leaks"]
        self.assertEqual([(g["count"], g["bytes"]) for g in leaks["groups"]], [(1, 2)])
        self.assertEqual((leaks["replaced"], leaks["unknown_frees"]), (0, 0))

    def test_streams_and_kinds(self):
        items = [
            self.alloc(1000, 0x10, name="cuMemAllocAsync", stream="0x7"),
            self.free(2000, 0x10, name="cuMemFreeAsync", stream="0x8"),
            self.alloc(3000, 0x20, name="cuMemAllocAsync"),
            self.free(4000, 0x20),
            self.alloc(5000, 0x30, name="cuStreamCreate"),
            self.free(6000, 0x30),
            self.item("userspace", "cuMemHostRegister_v2", 7000, 5, base="cuMemHostRegister", args={"p": "0x40"}, size=3),
        ]
        leaks = self.json("--leaks", self.trace(items))["leaks"]
        self.assertEqual({g["function"] for g in leaks["groups"]}, {"cuStreamCreate", "cuMemHostRegister_v2"})
        self.assertEqual(leaks["unknown_frees"], 1)

    def test_all_that_frees_free(self):
        """What was captured, imported or mapped is freed as what was made, and is no memory that was not there before."""
        pairs = [
            ("cuStreamEndCapture", "cuGraphDestroy"),
            ("cuGreenCtxStreamCreate", "cuStreamDestroy_v2"),
            ("cuMulticastCreate", "cuMemRelease"),
            ("cuMemImportFromShareableHandle", "cuMemRelease"),
            ("cuMemPoolImportFromShareableHandle", "cuMemPoolDestroy"),
            ("cuIpcOpenEventHandle", "cuEventDestroy_v2"),
            ("cuExternalMemoryGetMappedBuffer", "cuMemFree_v2"),
            ("cuExternalMemoryGetMappedMipmappedArray", "cuMipmappedArrayDestroy"),
            ("cuMemPoolImportPointer", "cuMemFreeAsync"),
        ]
        items = []
        for i, (make, free) in enumerate(pairs):
            items += [self.alloc(1000 * i, i + 1, name=make), self.free(1000 * i + 500, i + 1, name=free)]
        # a capture into a graph that is there
        items += [
            self.alloc(50000, 0x70, name="cuGraphCreate"),
            self.alloc(51000, 0x70, name="cuStreamEndCapture"),
            self.free(52000, 0x70, name="cuGraphDestroy"),
        ]
        path = self.trace(items)
        data = self.json("--leaks", "--summary", path)
        leaks = data["leaks"]
        self.assertEqual((leaks["allocations"], leaks["frees"], leaks["unknown_frees"], leaks["replaced"], leaks["n_live"]), (10, 10, 0, 0, 0))
        self.assertEqual((data["summary"]["userspace"]["allocations"], data["summary"]["userspace"]["allocated_bytes"]), (0, 0))

    def test_inner_calls_and_exit(self):
        items = [
            self.alloc(1000, 0x10, duration=100, name="cuMemAllocManaged"),
            self.alloc(1010, 0x10, duration=10),
            self.free(2000, 0x10, duration=100),
            self.free(2010, 0x10),
            self.alloc(3000, 0x50, 6),
            self.item("process", "exit", 4000),
            self.alloc(5000, 0x50, 7),
        ]
        leaks = self.json("--leaks", self.trace(items))["leaks"]
        self.assertEqual((leaks["allocations"], leaks["unknown_frees"], leaks["replaced"], [g["bytes"] for g in leaks["groups"]]), (3, 0, 0, [7]))

    def test_exit_of_another(self):
        """What one thread gets while another frees that address is live, whoever ends meanwhile."""
        items = [self.alloc(0, 0x10, 1), self.alloc(90, 0x10, 2, duration=110), self.item("process", "exit", 120, pid=99), self.free(150, 0x10, tid=9)]
        leaks = self.json("--leaks", self.trace(items))["leaks"]
        self.assertEqual(([g["bytes"] for g in leaks["groups"]], leaks["replaced"], leaks["unknown_frees"]), ([2], 0, 0))

    def test_exec(self):
        items = [
            self.alloc(0, 0x10, 100),
            self.alloc(15, 0x30, 6, duration=100, tid=9),
            self.item("process", "exec", 50),
            self.alloc(60, 0x10, 5),
            self.alloc(80, 0x20, 50),
            self.item("userspace", "cuEnd", 10000, 10),
        ]
        leaks = self.json("--leaks", self.trace(items))["leaks"]
        self.assertEqual([(g["count"], g["bytes"], g["process_ended"]) for g in leaks["groups"]], [(2, 55, False), (1, 6, True)])
        self.assertEqual((leaks["replaced"], leaks["peak_bytes"]), (0, 100))

    def test_random(self):
        rng, live, items, at = random.Random(6), {}, [], 0
        for _ in range(20000):
            at += 100
            if live and rng.random() < 0.48:
                address = rng.choice(list(live)[:50])
                items.append(self.free(at, address))
                del live[address]
            else:
                address = 0x1000 * rng.randrange(1, 10**6)
                if address in live:
                    continue
                live[address] = rng.randrange(1, 1000)
                items.append(self.alloc(at, address, live[address]))
        leaks = self.json("--leaks", self.trace(items))["leaks"]
        self.assertEqual({int(row["address"], 16): row["size"] for row in leaks["live"]}, live)
        self.assertEqual((leaks["unknown_frees"], leaks["replaced"]), (0, 0))


class Files(Case):
    def test_none(self):
        leader, follower = pty.openpty()
        self.run_report(
            stdin=follower,
            status=USAGE,
            stderr="trace report: which file? gpuprobectl trace --save makes traces/trace_latest.jsonl; see gpuprobectl trace report --help",
        )
        os.close(leader)
        os.close(follower)
        self.run_report(self.file(b"", "empty"), status=ERROR, stderr=f"{self.dir}/empty is empty")
        self.run_report(
            self.file(os.urandom(100000).replace(b"{", b"x"), "garbage"),
            status=ERROR,
            stderr=f"{self.dir}/garbage is no trace: neither raw nor lines of JSON, as gpuprobectl trace writes them",
        )
        self.run_report(
            self.file('{"traceEvents":[]}\n', "chrome"),
            status=ERROR,
            stderr=f"{self.dir}/chrome is no trace: neither raw nor lines of JSON, as gpuprobectl trace writes them",
        )
        self.run_report(str(self.dir / "x"), status=NOT_FOUND, stderr=f"{self.dir}/x: No such file or directory")
        self.run_report(str(self.dir), status=ERROR, stderr=f"{self.dir}: Is a directory")

    def test_usage(self):
        path = self.file(SEEDS)
        for args, what in (
            (["--top=0"], "--top: 0 is not a number from 1 up"),
            (["--from=x"], "--from: x is no time, such as 1.5s or 20ms"),
            (["--to=1h"], "--to: 1h is no time, such as 1.5s or 20ms"),
            (["-e", "a,,b"], "--events: an empty name, or more than 64"),
            (["--format=x"], "trace report: there is no format x"),
            (["-o", "x"], "trace report: -o needs --format"),
            (["--format=text", "--top"], "trace report: either a report or --format"),
        ):
            with self.subTest(args=args):
                self.run_report(*args, path, status=USAGE, stderr=f"{what}; see gpuprobectl trace report --help")

    def test_malformed(self):
        good = json.dumps(self.item("userspace", "cuInit", 5, 5))
        lines = [
            json.dumps(START).encode(),
            good.encode(),
            b"{",
            b'{"a"}',
            b"[]",
            b"null",
            b"\xff\xfe",
            b'{"type":"userspace"',
            good.encode() + b"x",
            b'{"a":' * 100,
            b'{"type":"nonsense","ts":1}',
            b'{"type":"gpu","name":"no time"}',
            b'{"type":"userspace","ts":' + b"1" * 70000 + b"}",
            b"",
            b"  ",
            good.encode(),
            b'{"type":"stop"}',
        ]
        path = self.file(b"\n".join(lines) + b"\n")
        data = self.json(path)
        self.assertEqual((data["file"]["items"], data["file"]["malformed"], data["file"]["cut_bytes"], data["file"]["complete"]), (2, 11, 0, False))
        self.run_report(path, stderr=f"{path}: 11 lines are not readable and left out")

    def test_cut(self):
        whole = pathlib.Path(self.trace([self.item("userspace", "cuInit", 5, 5), self.item("userspace", "cuInit", 15, 5, args={"Flags": 0})])).read_bytes()
        lines = whole.split(b"\n")
        for n in range(1, len(whole)):
            path = self.file(whole[:n])
            ends = [sum(len(line) + 1 for line in lines[: i + 1]) - 1 for i in range(len(lines) - 1)]
            complete = sum(n >= end for end in ends)
            if not complete:
                self.run_report(path, status=ERROR, stderr=None)
                continue
            file = self.json(path)["file"]
            rest = n - (ends[complete - 1] + 1)
            self.assertEqual((file["items"], file["malformed"], file["cut_bytes"]), (min(2, complete - 1), 0, max(0, rest)))
            if n > 350:
                break

    def test_no_end(self):
        path = self.trace([self.item("userspace", "cuInit", 5, 5)], stop=False)
        self.run_report(path, stderr=f"{path}: cut off, the end of the trace is missing")
        again = self.file(self.run_report("--format=jsonl", path, stderr=f"{path}: cut off, the end of the trace is missing"), "again")
        self.run_report(again, stderr=f"{again}: cut off, the end of the trace is missing")
        for whole in self.trace([], name="whole"), self.file(SEEDS):
            self.assertEqual(json.loads(self.run_report("--format=jsonl", whole).splitlines()[-1])["type"], "stop")

    def test_version(self):
        for version, status in (1, OK), (2, ERROR):
            lines = [json.dumps({**START, "version": version}), json.dumps(self.item("userspace", "cuInit", 5, 5)), '{"type":"stop"}']
            path = self.file("\n".join(lines) + "\n")
            self.run_report(path, status=status, stderr="" if status == OK else f"{path}: a trace of another version of gpuprobe")

    def test_stdin_and_several(self):
        self.assertEqual(json.loads(self.run_report("--json", input=SEEDS.encode()))["file"]["name"], "standard input")
        self.assertEqual(json.loads(self.run_report("--json", "-", input=SEEDS.encode()))["file"]["items"], 7)
        a, b = self.file(SEEDS, "a"), self.file(SEEDS, "b")
        out = self.run_report(a, b).decode()
        self.assertTrue(out.startswith(f"==> {a} <==\n") and f"\n==> {b} <==\n" in out)
        self.run_report(a, str(self.dir / "x"), b, status=NOT_FOUND, stderr=f"{self.dir}/x: No such file or directory")

    def test_grows_while_read(self):
        """A pipe whose writer stops in the middle of a line, and goes on."""
        process = subprocess.Popen([REPORT, "--json"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        half = len(SEEDS) // 2 + 7
        for part in (SEEDS[:half], SEEDS[half:]):
            process.stdin.write(part.encode())
            process.stdin.flush()
        out = process.communicate()[0]
        self.assertEqual(json.loads(out)["file"]["items"], 7)

    def test_terminal_is_safe(self):
        items = [
            self.item("userspace", "cu\x1b[31mX", 5, 5, failed=True, ret_name="\x07bell", violation="\x1b]"),
            self.item("gpu", "k\x1b", 50, 5, source="gpu"),
        ]
        out = self.run_report("--all", self.trace(items))
        self.assertFalse(any(byte < 32 and byte != 10 for byte in out))
        evil = "\x1b[31m\x07\x9b\nfake"
        items = [
            self.item(kind, evil, 5, 5000, args={evil: evil}, **dict.fromkeys(("class", "comm", "exe", "kernel", "ret_name", "thread", "violation"), evil))
            for kind in ("userspace", "ioctl", "kernel", "gpu", "ctxsw", "process", "note")
        ]
        for name in "text", "csv", "folded", "table":
            with self.subTest(format=name):
                out = self.run_report("--format", name, self.trace(items)).decode()
                self.assertFalse([char for char in out if ord(char) < 32 and char != "\n" or 0x7F <= ord(char) < 0xA0])
                if name != "folded":
                    self.assertEqual(out.count("\n"), {"text": 7, "csv": 8, "table": 6}[name])

    def test_too_many_names(self):
        """What is another text in each line takes no name's room; names beyond the bound are counted."""
        lines = [json.dumps(START)]
        for i in range(2**17 + 10):
            lines += [f'{{"type":"gpu","name":"k","ts_ns":{i},"violation":"v{i}"}}', f'{{"type":"note","name":"n{i}","ts_ns":{i}}}']
        lines += [f'{{"type":"userspace","name":"last","ts_ns":{2**20}}}', '{"type":"stop"}']
        out = self.run_report("--format=csv", input="\n".join(lines).encode()).decode().splitlines()
        self.assertIn(",last,", out[-1])
        self.assertIn(f",n{2**17 + 9},", out[-2])
        lines = [json.dumps(START), *(f'{{"type":"userspace","name":"f{i}","ts_ns":{i}}}' for i in range(2**18 + 10)), '{"type":"stop"}']
        out = self.run_report("--format=csv", input="\n".join(lines).encode(), stderr="standard input: 10 names are shown as (other): there are too many")
        self.assertIn(",(other),", out.decode().splitlines()[-1])
        self.assertEqual(self.json("--errors", input="\n".join(lines).encode())["file"]["unnamed"], 10)

    def test_strings(self):
        names = ['a"b\\c/\b\f\t', "é€😀", "x" * 300]
        lines = [json.dumps(self.item("userspace", name, 5, 5), ensure_ascii=ascii) for name in names for ascii in (True, False)]
        lines.append('{"type":"userspace","ts_ns":1,"name":"\\ud800x\\u0000"}')
        path = self.file(("\n".join(lines) + "\n").encode() + b'{"type":"userspace","ts_ns":1,"name":"\xff\xc3(\xed\xa0\x80"}\n')
        self.assertEqual({row["name"]: row["count"] for row in self.json(path)["summary"]["by_name"]}, {**{name: 2 for name in names}, "?x?": 1, "??(???": 1})


class Convert(Case):
    def test_round_trip(self):
        alloc = self.item(
            "userspace",
            "cuMemAlloc_v2",
            1000,
            5000,
            base="cuMemAlloc",
            **{"class": "memory"},
            size=64,
            ret=0,
            ret_name="CUDA_SUCCESS",
            comm="c",
            thread="t",
            cpu=3,
            sequence=9,
            args={"bytesize": 64, "ratio": 1.5, "neg": -7, "on": True, "struct": {"a": "0x10", "b": "NAME"}},
            out={"dptr": "0x7f0000000000"},
            stack=["f+0x1", "main"],
        )
        items = [
            alloc,
            self.item("ioctl", "NV_ESC_RM_CONTROL", 2000, 100, parent=1, cmd=0xC020462A, failed=True, ret=-5, ret_name="EIO", **{"class": "ioctl"}),
            self.item("kernel", "nvidia:x", 2500, parent=1, cpu=1, **{"class": "memory"}),
            self.item("userspace", "cuLaunchKernel", 9000, 50, flow=3, kernel="_Z1kv"),
            self.item(
                "gpu", "k()", 9500, 50, flow=3, parent=4, kernel="_Z1kv", stream="0x10", context="0x20", device=1, error_ns=40, source="gpu", violation="v"
            ),
            self.item("process", "exit", 9900, comm="c", parent_pid=3, uid=4, exe="/bin/c", status=256, source="bpf"),
            self.item("lost", "lost", 9950, count=3, source="bpf"),
            self.item("clock", "clock", 9960, device=1, error_ns=7, source="gpu"),
        ]
        path = self.trace(items)
        once = self.run_report("--format=jsonl", path, stderr=f"{path}: 3 events were lost while it was recorded")
        self.assertEqual(self.run_report("--format=jsonl", self.file(once, "again"), stderr=None), once)
        got = [json.loads(line) for line in once.splitlines()]
        self.assertEqual(got[0], START)
        for wanted, line in zip(items, got[1:]):
            for key, value in wanted.items():
                self.assertEqual(line.get(key), value, (key, wanted))

    def test_numbers(self):
        """Numbers that readers with doubles (jq) would take for one another are texts; those of ids always are."""
        numbers = [2**53, 2**53 + 1, 2**53 + 2, 2**64 - 2, 2**64 - 1, -(2**53) - 1, -(2**63)]
        args = {f"n{i}": number for i, number in enumerate(numbers)} | {"streamId": 17, "big_id": 2**60 + 1, "name": "17"}
        item = self.item("userspace", "cuStreamGetId", 100, 50, args=args, ret=2**60 + 1, size=2**63 + 1)
        for kind in "jsonl", "chrome":
            lines = self.run_report(f"--format={kind}", self.trace([item])).decode()
            made = json.loads(lines.splitlines()[1]) if kind == "jsonl" else [event for event in json.loads(lines)["traceEvents"] if event["ph"] == "X"][0]
            wanted = {key: str(value) if isinstance(value, str) or abs(value) > 2**53 or key.lower().endswith("id") else value for key, value in args.items()}
            self.assertEqual({key: made["args"][key] for key in args}, wanted)
            self.assertEqual(
                [made["ret"], made["size"]] if kind == "jsonl" else [made["args"]["=result"], made["args"]["=size"]], [str(2**60 + 1), str(2**63 + 1)]
            )
            if kind == "jsonl":  # and they are read back
                again = self.file(lines, "again.jsonl")
                self.assertEqual(self.run_report("--format=jsonl", again).decode(), lines)
                csv_line = self.run_report("--format=csv", again).decode().splitlines()[1]
                self.assertIn(f"n4={2**64 - 1}", csv_line)
                self.assertIn(f"streamId=17", csv_line)
                self.assertIn(f",{2**60 + 1},", csv_line)

    def test_names_twice(self):
        """No object has a key twice, and reading it back changes nothing. A member has the name of another struct's, or of an argument, all the same."""

        def pairs(members):
            self.assertEqual(len({key for key, _ in members}), len(members), members)
            return dict(members)

        args = '{"flags":1,"s":{"flags":2,"x":3,"x":{"x":4}},"flags":5,"x":6,"flags":7}'
        path = self.file(f'{json.dumps(START)}\n{{"type":"ioctl","name":"NV","ts_ns":1,"args":{args},"out":{{"flags":8}}}}\n{{"type":"stop"}}\n')
        once = self.run_report("--format=jsonl", path)
        item = json.loads(once.splitlines()[1], object_pairs_hook=pairs)
        self.assertEqual(item["args"], {"flags": 1, "s": {"flags": 2, "x": 3, "x#2": {"x": 4}}, "flags#6": 5, "x": 6, "flags#8": 7})
        self.assertEqual(item["out"], {"flags": 8})
        self.assertEqual(self.run_report("--format=jsonl", self.file(once, "again")), once)

    def test_seed_round_trip(self):
        """What our writer of the seeds' format wrote means the same to us."""
        alloc = self.item("userspace", "cuMemAlloc_v2", 1000, 50000, base="cuMemAlloc", **{"class": "memory"}, size=64)
        items = [
            alloc,
            self.item("ioctl", "NV_ESC_RM_ALLOC", 2000, 30000, parent=1, cmd=0xC030462B, **{"class": "ioctl"}),
            self.item("userspace", "cuLaunchKernel", 90000, 5000, **{"class": "launch"}),
            self.item("gpu", "k", 95000, 7000, source="gpu"),
        ]
        seed = self.run_report("--format", "jsonl-seed", self.trace(items))
        data = self.json("--summary", "--layers", "--kernels", self.file(seed, "seed"))
        self.assertEqual(data["file"]["format"], "jsonl-seed")
        self.assertEqual(
            data["summary"]["userspace"], {"calls": 2, "launches": 1, "allocations": 1, "allocated_bytes": 64, "transfers": 0, "transferred_bytes": 0}
        )
        self.assertEqual(data["summary"]["kernel_space"], {"ioctls": 1, "ioctl_ns": 30000, "scheduler_calls": 0})
        self.assertEqual((data["layers"]["api"]["own_ns"], data["kernels"][0]["name"], data["kernels"][0]["total_ns"]), (25000, "k", 7000))

    def test_memory_in_use(self):
        """An address that a thread gets while another frees it is in use, and that of a process that executes another program is not."""

        def call(name, start, duration, size=None, **more):
            out = {"size": size, "out": {"dptr": "0x10"}} if size else {"args": {"dptr": "0x10"}}
            return self.item("userspace", name, start, duration, **{"class": "memory"}, **out, **more)

        items = [
            call("cuMemAlloc", 0, 10, 1),
            call("cuMemAlloc", 90, 110, 2),
            call("cuMemFree", 150, 10, tid=9),
            call("cuMemFree", 1000, 10),
            call("cuMemAlloc", 2000, 10, 4),
            self.item("process", "exec", 3000),
        ]
        data = json.loads(self.run_report("--format=chrome", self.trace(items)))
        self.assertEqual(
            [(event["ts"], event["args"]["bytes"]) for event in data["traceEvents"] if event["ph"] == "C"], [(0.01, 1), (0.2, 2), (1.01, 0), (2.01, 4), (3, 0)]
        )

    def test_permission(self):
        path, out, secret = self.trace([self.item("userspace", "cuInit", 5, 5)]), self.file("", "out"), self.file("", "secret")
        program, other = str(self.dir / "report"), {}
        shutil.copy(REPORT, program)  # the build folder may be root's alone
        os.chmod(self.dir, 0o755)
        for file, mode in (path, 0o444), (out, 0o444), (secret, 0):
            os.chmod(file, mode)
        if os.getuid() == 0:
            other = {"user": 65534, "group": 65534, "extra_groups": []}
        self.run_report(secret, program=program, status=PERMISSION, stderr=f"{secret}: Permission denied", **other)
        self.run_report("--format=text", "-o", out, path, program=program, status=PERMISSION, stderr=f"{out}: Permission denied", **other)

    def test_csv_of_lost(self):
        path = self.trace([self.item("lost", "lost", 5, count=3), self.item("lost", "lost", 6, count=2**64 - 1, args={"x": 1})])
        lines = self.run_report("--format=csv", path, stderr=None).decode().splitlines()
        self.assertEqual([line.split(",")[-1] for line in lines], ["args", "count=3", f"count={2**64 - 1} x=1"])

    def test_table_is_full(self):
        """Names that have a row keep it when there is none left for others."""
        names = ("cuInit" if i % 2 else f"f{i}" for i in range(2 * 65536 + 20))
        lines = [json.dumps(START), *(f'{{"type":"userspace","name":"{name}","ts_ns":{i}}}' for i, name in enumerate(names)), '{"type":"stop"}']
        rows = [line.split() for line in self.run_report("--format=table", input="\n".join(lines).encode()).decode().splitlines()[1:]]
        calls = {row[-1]: int(row[2]) for row in rows}
        self.assertEqual((calls["cuInit"], calls["(others)"], len(calls)), (65546, 11, 65537))

    def test_output(self):
        path, out = self.trace([self.item("userspace", "cuInit", 5, 5000)]), str(self.dir / "out")
        self.assertEqual(self.run_report("--format=text", "-o", out, path), b"")
        self.assertIn("cuInit", pathlib.Path(out).read_text())
        before = pathlib.Path(out).read_text()
        other = self.dir / "other"
        other.write_text("no trace\n")
        self.run_report(
            "--format=text", "-o", out, str(other), status=ERROR, stderr=f"{other} is no trace: neither raw nor lines of JSON, as gpuprobectl trace writes them"
        )
        self.assertEqual(pathlib.Path(out).read_text(), before)
        for nothing in other, self.file("", "empty"):
            self.run_report("--format=text", "-o", str(self.dir / "new"), str(nothing), status=ERROR, stderr=None)
            self.assertFalse((self.dir / "new").exists())
        self.run_report("--format=text", "-o", out, path)
        self.assertEqual(pathlib.Path(out).read_text(), before)
        self.run_report("--format=jsonl", "-o", path, path, status=ERROR, stderr=f"{path} is what is read: another file is needed for the output")
        self.assertIn(b"cuInit", pathlib.Path(path).read_bytes())
        # more than a buffer, so that it is noticed in the middle: the end of the trace is not what is missing
        long = self.trace([self.item("userspace", "cuInit", 5 + i, 5) for i in range(2000)])
        for file in path, long:
            for name in "text", "jsonl", "csv", "chrome", "perfetto":
                self.run_report(f"--format={name}", "-o", "/dev/full", file, status=ERROR, stderr="cannot write /dev/full: No space left on device")
        self.run_report("--format=text", "-o", str(self.dir / "no/no"), path, status=ERROR, stderr=f"{self.dir}/no/no: No such file or directory")
        for name in ("csv", "folded", "chrome", "perfetto", "table"):
            with self.subTest(format=name):
                self.assertTrue(self.run_report("--format", name, path))


class Raw(Case):
    """Records of proto/trace.h, made here."""

    def record(self, kind, body, source=1, flags=0):
        body += bytes(-len(body) % 8)
        return struct.pack("<IHBB", 8 + len(body), kind, source, flags) + body

    def start(self, version=1):
        return self.record(
            1, struct.pack("<IIQQ", 0x43525447, version, 10**9, 17 * 10**17) + b"host".ljust(64, b"\0") + b"580.1".ljust(32, b"\0") + b"0.1".ljust(32, b"\0")
        )

    def call(self, start, end, function=1, sequence=1, tid=8, words=(0,)):
        return self.record(
            5,
            struct.pack("<QQIIIiHBBI", 10**9 + start, 10**9 + end, 7, tid, sequence, 0, function, len(words), 0, 0)
            + b"".join(struct.pack("<Q", word) for word in words),
        )

    def stop(self, records, lost=0):
        return self.record(12, struct.pack("<QQQ", 2 * 10**9, records, lost), source=0)

    def test_calls(self):
        """cuInit is 1 in CUPTI's numbers, and on these."""
        lost = self.record(10, struct.pack("<QIIQ", 10**9 + 7000, 7, 0, 5))
        data = self.start() + self.call(1000, 3000) + self.call(500, 9000, sequence=2) + lost + self.stop(4, 5)
        got = self.json("--summary", "--top", self.file(data, "raw"))
        self.assertEqual((got["file"]["format"], got["file"]["items"], got["file"]["complete"], got["file"]["lost"]), ("raw", 3, True, 5))
        self.assertEqual([(row["name"], row["ts_ns"], row["duration_ns"]) for row in got["top"]], [("cuInit", 500, 8500), ("cuInit", 1000, 2000)])

    def test_counts(self):
        """Calls that were counted are in tables, and are filtered as calls are: by name, class and type."""
        counts = self.record(16, struct.pack("<QQIHHQQQQQQQII", 10**9, 10**9 + 50, 7, 1, 1, 3, 0, 30, 5, 20, 0, 0, 10, 3))
        path = self.file(self.start() + counts + self.call(1000, 3000, function=17) + self.stop(3), "raw")
        for args, names in (
            ([], ["cuCtxSynchronize", "cuInit"]),
            (["-e", "cuI*"], ["cuInit"]),
            (["-e", "userspace,!sync"], ["cuInit"]),
            (["-e", "cuCtx*,gpu"], ["cuCtxSynchronize"]),
            (["-p", "8"], []),
        ):
            with self.subTest(args=args):
                rows = [line.split() for line in self.run_report("--format=table", *args, path, stderr=None).decode().splitlines()[1:]]
                self.assertEqual([(row[-1], row[2]) for row in rows], [(name, "3" if name == "cuInit" else "1") for name in names])

    def kernel(self, start, end, sequence=1):
        return self.record(8, struct.pack("<QQIIIIQQQII", 10**9 + start, 10**9 + end, 7, 8, sequence, 0, 1, 0, 0x10, 0, 0), source=3)

    def launch(self, start, end, sequence=1):
        return self.call(start, end, function=307, sequence=sequence, words=[0x10] + [1] * 10)

    def kernel_name(self, text):
        name = self.record(4, struct.pack("<IIQ", 7, 2, 0x10) + text.encode() + b"\0")
        return self.file(self.start() + name + self.launch(1000, 2000) + self.kernel(2000, 3000) + self.stop(4), "raw")

    def test_numbers_again(self):
        """Calls are numbered anew when a process executes another program: each kernel is of the launch that had its number then."""
        data = self.start()
        for at in (0, 10**6, 2 * 10**6):
            data += (
                self.launch(at + 1000, at + 2000, 5)
                + self.launch(at + 4000, at + 5000, 6)
                + self.kernel(at + 6000, at + 7000, 5)
                + self.kernel(at + 7000, at + 9000, 6)
            )
            lines = [json.loads(line) for line in self.run_report("--format=jsonl", self.file(data, "raw"), stderr=None).splitlines()]
            launches = {line["event_id"]: line["ts_ns"] for line in lines if line.get("class") == "launch"}
            kernels = [line for line in lines if line["type"] == "gpu"][-4:]
            self.assertEqual([line["ts_ns"] - launches[line["parent"]] for line in kernels], [5000, 3000] * (len(kernels) // 2))
            self.assertFalse([line for line in kernels if "violation" in line])

    def test_names_that_explode(self):
        """Names of a hundred bytes that stand for gigabytes, or for more than a line can have, stay mangled; ones that are merely rich do not."""
        digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
        for depth in (10, 35):
            bomb = "_Z1fSt4pairIiiE" + "".join(f"S_IS{digit}_S{digit}_E" for digit in digits[:depth])
            path = self.kernel_name(bomb)
            lines = self.run_report("--format=jsonl", path)
            self.assertEqual(json.loads(lines.splitlines()[2])["name"], bomb)
            self.assertEqual(self.json(self.file(lines))["file"]["malformed"], 0)
            self.assertIn(bomb.encode(), self.run_report("--format=text", path))
        rich = self.kernel_name("_Z1fSt4pairIiiE" + "S0_" * 50)
        self.assertIn('"name":"f(' + "std::pair<int, int>, " * 50 + 'std::pair<int, int>)"', self.run_report("--format=jsonl", rich).decode())

    def test_long_names(self):
        """Names of which each byte is six in JSON are cut, at a whole character, so that a line is one that is read back."""
        path = self.kernel_name("_Z1f900" + "\x01" * 900 + "S_" * 16)
        for name in "jsonl", "jsonl-seed":
            lines = self.run_report("--format", name, path)
            self.assertLessEqual(max(map(len, lines.splitlines())), 65536)
            self.assertEqual(self.json(self.file(lines))["file"]["malformed"], 0)
            kernel = next(event for event in map(json.loads, lines.splitlines()) if event["type"] in ("gpu", "gpu_complete"))
            self.assertTrue(("f(" + ("\x01" * 900 + ", ") * 17).startswith(kernel["name"]))
            self.assertGreater(len(kernel["name"]), 16384 // 6)
            self.assertEqual(len(kernel.get("kernel", "")), {"jsonl": len("_Z1f900") + (4096 - len("_Z1f900")) // 6}.get(name, 0))

    def test_every_cut(self):
        data = self.start() + self.call(1000, 3000) + self.call(5000, 9000, sequence=2) + self.stop(3)
        ends = [len(self.start()) + i * len(self.call(0, 0)) for i in range(3)]
        for n in range(12, len(data)):
            file = self.file(data[:n], "raw")
            if n < ends[0]:
                told = f"{file}: cut off, the last {n} bytes are not whole"
                self.run_report(file, stderr=told)
                if n == 100:  # and what it is converted to is an empty trace
                    self.assertEqual(json.loads(self.run_report("--format=chrome", file, stderr=told))["traceEvents"], [])
                    self.assertEqual(json.loads(self.run_report("--format=jsonl", file, stderr=told))["type"], "start")
                continue
            got = self.json(file)["file"]
            complete = sum(n >= end for end in ends)
            self.assertEqual((got["items"], got["cut_bytes"], got["complete"]), (complete - 1, n - ends[complete - 1], False))

    def test_broken(self):
        path = self.file(self.start() + self.call(1000, 3000) + struct.pack("<IHBB", 7, 5, 0, 0) + bytes(50), "raw")
        got = self.json(path)["file"]
        self.assertEqual((got["items"], got["malformed"]), (1, 1))
        self.run_report(self.file(self.start(version=9), "raw"), status=ERROR, stderr=f"{self.dir}/raw: a trace of another version of gpuprobe")


class Documentation(Case):
    def test_options(self):
        """Each option of the help is in the manual page, under REPORTS or OPTIONS."""
        page = (DOCS / "gpuprobectl.1.scd").read_text()
        reports = page[page.index("# REPORTS") : page.index("# ENVIRONMENT")]
        options = re.findall(r"--[a-z-]+", self.run_report("--help").decode())
        self.assertGreater(len(set(options)), 15)
        for option in options:
            self.assertRegex(reports, rf"\*{option}\b")

    def test_members(self):
        """Each member that a line of ours can have is in the page of the formats."""
        page = (DOCS / "gpuprobe-trace.5.scd").read_text()
        page = page[page.index("# JSONL") : page.index("# JSONL-SEED")]
        source = (pathlib.Path(__file__).parent / "write/jsonl.c").read_text()
        members = re.findall(r'member\w*\(line, "(\w+)"', source) + re.findall(r'\\"(\w+)\\":', source)
        self.assertGreater(len(set(members)), 30)
        for member in set(members):
            self.assertRegex(page, rf'\*{member}\*|_{member}_|"{member}"')


class Memory(Case):
    def peak(self, n):
        """Peak memory (KiB) for n events: launches, kernels, allocations that are freed, ioctls, many names and threads."""
        environment = {key: value for key, value in os.environ.items() if key.startswith(("ASAN", "UBSAN", "PATH"))}
        process = subprocess.Popen([REPORT, "--json", "--all", "--histogram=cu*"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment)
        with process.stdin:
            for first in range(0, n, 5000):
                lines = []
                for i in range(first, first + 5000, 5):
                    at, tid, address = 2000 * i, i % 50, 0x1000 * (i + 1)
                    lines.append(
                        '{"event_id":%d,"type":"userspace","name":"cuLaunchKernel","ts_ns":%d,"dur_ns":%d,"pid":7,"tid":%d,"flow":%d}\n'
                        % (i, at, 900 + i % 977, tid, i + 1)
                    )
                    lines.append(
                        '{"event_id":%d,"type":"gpu","name":"kernel%d","ts_ns":%d,"dur_ns":%d,"pid":7,"flow":%d}\n'
                        % (i + 1, i % 500, at + 5000, 700 + i % 613, i + 1)
                    )
                    lines.append(
                        '{"event_id":%d,"type":"userspace","name":"cuMemAlloc_v2","base":"cuMemAlloc","ts_ns":%d,"dur_ns":99,"pid":7,"tid":%d,"size":64,"out":{"dptr":"%#x"}}\n'
                        % (i + 2, at + 2000, tid, address)
                    )
                    lines.append('{"event_id":%d,"type":"ioctl","name":"NV_ESC_RM_FREE","ts_ns":%d,"dur_ns":99,"pid":7,"tid":%d}\n' % (i + 3, at + 3000, tid))
                    lines.append(
                        '{"event_id":%d,"type":"userspace","name":"cuMemFree_v2","base":"cuMemFree","ts_ns":%d,"dur_ns":99,"pid":7,"tid":%d,"args":{"dptr":"%#x"}}\n'
                        % (i + 4, at + 4000, tid, address)
                    )
                process.stdin.write("".join(lines).encode())
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0)
        return usage.ru_maxrss

    @unittest.skipIf(b"__asan_init" in pathlib.Path(REPORT).read_bytes(), "what a sanitizer keeps of freed memory grows")
    def test_does_not_grow(self):
        small, large = self.peak(100_000), self.peak(1_000_000)
        self.assertLess(large, small * 1.3 + 4096)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
