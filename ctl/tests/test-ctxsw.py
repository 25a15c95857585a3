#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test-ctxsw.py GPUPROBECTL FAKE_DAEMON FAKE_DRIVER: trace --ctxsw, against the fake daemon and a double of NVIDIA's driver, which is preloaded."""

import json
import os
import pathlib
import struct
import subprocess
import sys
import time
import unittest

import trace_file as t
from fake_daemon import CTL, FakeDaemonCase

DRIVER = os.path.abspath(sys.argv[3])
MS = 1_000_000
START, END, RESET = 6, 7, 0xFE
SELF = os.getpid()
COMM = pathlib.Path("/proc/self/comm").read_text().strip()
INITIAL = os.stat("/proc/self/ns/pid").st_ino == 0xEFFFFFFC


def record(sequence, tag, pid, time_ns, context=0x35):
    """As the driver writes it into an event buffer."""
    return struct.pack("<HHIBBHIIHBBQ", 2, 0, 0, tag, 0, sequence, context, pid, 0, 255, 255, time_ns)


# two processes in turn, a loss, another user's, one that is there to the end
RECORDS = b"".join(
    [
        record(7, START, SELF, 1 * MS),
        record(8, END, SELF, 3 * MS),
        record(9, START, 2**31 - 1, 3 * MS + 85_000, 0x38),
        record(10, END, 2**31 - 1, 5 * MS, 0x38),
        record(13, START, 0, 8 * MS, 0),
        record(14, END, 0, 9 * MS, 0),
        record(15, RESET, 0, 9 * MS, 0),
        record(16, START, SELF, 12 * MS),
    ]
)


class Ctxsw(FakeDaemonCase):
    def daemon_environment(self):
        return {**os.environ, "FAKE_TRACE": str(self.dir / "x.last")}

    def setUp(self):
        super().setUp()
        # a trace of a CMD ends with it; it is from now, as the GPU's times are
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        start = bytearray(t.start())
        start[16:32] = struct.pack("<QQ", now, t.REALTIME)
        t.BEGINNING = now
        (self.dir / "x.last").write_bytes(bytes(start) + t.process(10) + t.call("cuMemAlloc_v2", 100, 200, (0x7FFE1000, 4096), sequence=1) + t.stop(800, 3, 0))
        (self.dir / "records").write_bytes(RECORDS)

    def trace(self, *options, driver="", preload=True, command=("sleep", "0.2")):
        """Standard output, standard error. The double begins with the records of this file."""
        keep = ("ASAN", "LSAN", "UBSAN", "LD_PRELOAD")
        env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TZ": "UTC", **{key: value for key, value in os.environ.items() if key.startswith(keep)}}
        if preload:
            env |= {"LD_PRELOAD": f"{env.get('LD_PRELOAD', '')} {DRIVER}".strip(), "FAKE_DRIVER": f"records={self.dir}/records {driver}"}
        done = subprocess.run(
            [CTL, "--socket", self.socket, "trace", *options, "-o", "-", "--cgroup", str(self.dir / "x.last"), "--", *command],
            capture_output=True,
            timeout=60,
            env=env,
            cwd=self.dir,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout, done.stderr.decode()

    def items(self, *options, **more):
        out, err = self.trace("--format", "jsonl", *options, **more)
        return [json.loads(line) for line in out.splitlines()], err

    def report(self, data, *options):
        path = self.dir / "report"
        path.write_bytes(data)
        done = subprocess.run([CTL, "trace", "report", *options, str(path)], capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_items(self):
        items, err = self.items("--ctxsw")
        self.assertEqual(err, "gpuprobectl: lost 2 events\n")
        contexts = [item for item in items if item["type"] == "ctxsw"]
        name = f"{COMM}[{SELF}]" if INITIAL else f"pid[{SELF}]"
        self.assertEqual(
            [(item["name"], item["phase"], item.get("context"), item.get("args")) for item in contexts],
            [
                (name, "X", "0x35", {"began": "SIMPLE_START", "ended": "SIMPLE_END", **({} if INITIAL else {"host_pid": SELF})}),
                ("pid[2147483647]", "X", "0x38", {"began": "SIMPLE_START", "ended": "SIMPLE_END", **({} if INITIAL else {"host_pid": 2147483647})}),
                ("another user", "X", None, {"began": "SIMPLE_START", "ended": "SIMPLE_END"}),
                ("ENGINE_RESET", "i", None, None),
                (name, "B", "0x35", {"began": "SIMPLE_START", **({} if INITIAL else {"host_pid": SELF})}),
            ],
        )
        # to a step of the timer, and what little the estimated drift is off
        for item, duration in zip(contexts, (2 * MS, 2 * MS - 85_000, MS)):
            self.assertAlmostEqual(item["dur_ns"], duration, delta=2000)
        self.assertEqual(
            [item.get("pid") for item in contexts], [SELF if INITIAL else None, 2**31 - 1 if INITIAL else None, None, None, SELF if INITIAL else None]
        )
        self.assertTrue(all(item["source"] == "gpu" and item["class"] == "ctxsw" for item in contexts))
        self.assertEqual([item["count"] for item in items if item["type"] == "lost"], [2])
        self.assertEqual(items[-1], {"type": "stop", "events": len(items) - 2, "lost": 2})
        clocks = [item for item in items if item["type"] == "clock"]
        self.assertGreaterEqual(len(clocks), 2)
        for clock in clocks:
            self.assertNotIn("pid", clock)
            self.assertEqual(clock["args"]["host_time"] - t.BEGINNING, clock["ts_ns"])
        # what the daemon sent is all there
        self.assertEqual(sum(item["type"] == "userspace" for item in items), 1)

    def test_text(self):
        out, err = self.trace("--ctxsw")
        lines = [line.split(" ", 1)[1] for line in err.splitlines() + out.decode().splitlines() if "GPU0" in line]
        who = f"{COMM}[{SELF}]" if INITIAL else f"pid[{SELF}]"
        tail = "" if INITIAL else f", host_pid={SELF}"
        self.assertEqual(lines[0], f"{who} GPU0 context 0x35 (began=SIMPLE_START, ended=SIMPLE_END{tail}) <2.00ms>")
        self.assertRegex("\n".join(lines), r"another user GPU0 context 0x0 \(began=SIMPLE_START, ended=SIMPLE_END\) <(1\.00ms|1000\.0us)>")
        self.assertIn("- GPU0 ENGINE_RESET ()", lines)
        self.assertTrue(lines[-1].endswith(" = ? <unfinished>"), lines[-1])

    def test_report(self):
        raw = self.trace("--ctxsw", "--format", "raw")[0]
        jsonl = self.report(raw, "--format", "jsonl")
        one, other = (json.loads(self.report(data, "--json", "--ctxsw", "--summary")) for data in (raw, jsonl))
        self.assertEqual(one["ctxsw"], other["ctxsw"])
        self.assertEqual(one["summary"], other["summary"])
        device = one["ctxsw"]["devices"][0]
        self.assertEqual((device["device"], device["contexts"], device["between"]["count"]), (0, 4, 1))
        self.assertAlmostEqual(device["switching_ns"], 85_000, delta=2000)
        self.assertEqual(device["busy_ns"] + device["switching_ns"] + device["idle_ns"], device["observed_ns"])
        self.assertAlmostEqual(device["idle_ns"], 6 * MS, delta=4000)
        self.assertEqual(
            {row["name"]: row["count"] for row in one["ctxsw"]["processes"]},
            {f"{COMM}[{SELF}]" if INITIAL else f"pid[{SELF}]": 2, "pid[2147483647]": 1, "another user": 1},
        )
        text = self.report(raw, "--ctxsw").decode()
        self.assertRegex(text, r"GPU 0: 4 contexts, one after another in [\d.]+ ms\n  busy ")
        self.assertRegex(text, r"a switch takes 8\d\.\d\d us \(p50\)")
        self.assertIn("The trace has no context switches", self.report(t.start() + t.stop(1, 1, 0), "--ctxsw").decode())
        for format in ("chrome", "csv", "table", "text", "perfetto", "folded", "jsonl-seed"):
            self.report(raw, "--format", format)

    def test_file(self):
        """What a file says that is not made here: how contexts were stopped, instances of MIG, pids of another namespace, and before the beginning."""
        data = (
            t.start()
            + t.process(10)
            + b"".join(
                [
                    t.ctxsw(-500, -100),
                    t.ctxsw(-100, 100, comm=b"early"),
                    t.ctxsw(200, 300, preemption=0x0D),
                    t.ctxsw(350, 400, preemption=0x0A),
                    t.ctxsw(500, 700, pid=4711, comm=b"other", device=2, instances=(1, 3)),
                    t.ctxsw(600, 800, pid=2**32 - 1, began=0x99, ended=0),
                    t.ctxsw(900, 1000, pid=77, comm=b"me", flags=4),
                    t.ctxsw(1000, 1000, pid=5, began=0xFF, flags=1),
                ]
            )
            + t.stop(2000, 10, 0)
        )
        items = [json.loads(line) for line in self.report(data, "--format", "jsonl").splitlines()]
        self.assertEqual(
            [(item["name"], item.get("pid"), item["ts_ns"], item.get("device", 0), item.get("args")) for item in items if item["type"] == "ctxsw"],
            [
                ("python[10]", 10, 0, 0, {"began": "SIMPLE_START", "ended": "SIMPLE_END"}),
                ("python[10]", 10, 200, 0, {"began": "SIMPLE_START", "ended": "SIMPLE_END", "preemption": "FE_ACK_CILP"}),
                ("python[10]", 10, 350, 0, {"began": "SIMPLE_START", "ended": "SIMPLE_END", "preemption": "FE_ACK_WFI"}),
                ("other[4711]", 4711, 500, 2, {"began": "SIMPLE_START", "ended": "SIMPLE_END", "gpu_instance": 1, "compute_instance": 3}),
                ("the driver", None, 600, 0, {"began": 0x99}),
                ("me[77]", None, 900, 0, {"began": "SIMPLE_START", "ended": "SIMPLE_END", "host_pid": 77}),
                ("INVALID_TIMESTAMP", 5, 1000, 0, None),
            ],
        )
        report = json.loads(self.report(data, "--json", "--ctxsw"))["ctxsw"]
        self.assertEqual(
            [(row["device"], row["contexts"], row["observed_ns"], row["busy_ns"], row["switching_ns"], row["idle_ns"]) for row in report["devices"]],
            [(0, 5, 1000, 550, 450, 0), (2, 1, 200, 200, 0, 0)],
        )
        self.assertEqual(
            {row["name"]: (row["device"], row["count"], row["total_ns"], row["preempted"]) for row in report["processes"]},
            {"python[10]": (0, 3, 250, 1), "the driver": (0, 1, 200, 0), "other[4711]": (2, 1, 200, 0), "me[77]": (0, 1, 100, 0)},
        )

    def test_table(self):
        out = self.trace("--ctxsw", "-c")[0].decode()
        self.assertRegex(out, r"(?m)^ctxsw .* another user$")

    def test_gpus(self):
        items, err = self.items("--ctxsw", driver="gpus=3")
        self.assertEqual(err.count("\n"), 1, err)  # the loss: records are of one buffer
        self.assertEqual({item.get("device", 0) for item in items if item["type"] == "clock"}, {0, 1, 2})

    def test_clocks(self):
        """With --gpu only clocks, and who has no GPU is told nothing."""
        items, err = self.items("--gpu")
        self.assertEqual({item["type"] for item in items} & {"clock", "ctxsw"}, {"clock"})
        self.assertEqual(err, "")
        if not os.path.exists("/dev/nvidiactl"):
            items, err = self.items("--gpu", preload=False)
            self.assertEqual(err, "")
            self.assertNotIn("clock", {item["type"] for item in items})

    def test_refused(self):
        """One line, and the trace goes on."""
        for driver, line in {
            "open=13": "the GPU's clock and context switches: /dev/nvidiactl: Permission denied",
            "open=2": "the GPU's clock and context switches: /dev/nvidiactl: No such file or directory",
            "version=470.57.02": "the GPU's clock and context switches: the driver's version is 470.57.02: 525 or later is needed",
            "refuse=2:0x1b": "the GPU's clock and context switches: RM_ALLOC 0x41: NV_ERR_INSUFFICIENT_PERMISSIONS",
            "refuse=6:0x0f": "GPU 0: RM_ALLOC 0x80: NV_ERR_GPU_IS_LOST",
            "bind=0x56:4": "context switches of GPU 0: RM_CONTROL 0x20801238: NV_ERR_NOT_SUPPORTED; root may, or all if the driver is loaded with "
            "NVreg_RestrictProfilingToAdminUsers=0",
        }.items():
            with self.subTest(driver):
                items, err = self.items("--ctxsw", driver=driver)
                self.assertEqual(err, f"gpuprobectl: not traced: {line}\n")
                self.assertNotIn("ctxsw", {item["type"] for item in items})
                self.assertEqual(sum(item["type"] == "userspace" for item in items), 1)
        items, err = self.items("--ctxsw", driver="gpus=0")
        self.assertEqual(err, "gpuprobectl: not traced: context switches: the driver has no GPU\n")
        (self.dir / "records").write_bytes(b"")
        self.assertEqual(self.items("--ctxsw")[1], "gpuprobectl: there was no context switch: a process that has a GPU for itself makes none\n")

    def test_slow(self):
        """A driver that does not answer in time holds up the end, but not for long; what comes late is left out."""
        items, err = self.items("--ctxsw", driver="slow=20:30000", command=("true",))
        self.assertEqual(sum(item["type"] == "userspace" for item in items), 1)
        self.assertEqual(items[-1]["type"], "stop")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
