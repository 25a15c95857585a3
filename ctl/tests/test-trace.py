#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test-trace.py GPUPROBECTL FAKE_DAEMON: gpuprobectl trace and hook, against the fake daemon, which plays traces that are made here."""

import csv
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import unittest

import trace_file as t
from fake_daemon import CTL, FakeDaemonCase

OK, ERROR, USAGE, UNREACHABLE, VERIFIER, NOT_FOUND, PERMISSION = range(7)
RM_CONTROL = 0xC020462A
US = 1000


def basic():
    """Two threads; an allocation with an ioctl and a hook in it, a launch that fails, one whose kernel runs, what another thread did, a loss."""
    rm_control = struct.pack("<IIIIQII", 0xC1D00001, 0xCAF00000, 0x20801303, 0, 0x7FFE0000, 16, 0)
    return [
        t.start(),
        t.process(10),
        t.thread(10, 10, b"python"),
        t.thread(10, 11, b"worker"),
        t.name(t.HOOK_NAME, 5, b"work nvidia:nv_kthread_q_schedule_q_item(item:hex,name:str,again:bool)=s32"),
        t.name(t.KERNEL_NAME, 0xF0, b"_Z9vectorAddPfS_i", pid=10),
        t.clock(0, 5_000_000, error=40),
        t.event(5, 120 * US, 125 * US, (0xABC, 0xFFFF, 1), b"isr\0", result=0, cpu=3),
        t.ioctl(RM_CONTROL, 110 * US, 150 * US, before=rm_control, after=rm_control),
        t.call("cuMemAlloc_v2", 100 * US, 200 * US, (0x7FFE1000, 4 << 20), sequence=1, extras=((0, 1, struct.pack("<Q", 0x7F0000000000)),)),
        t.call("cuLaunchKernel", 300 * US, 310 * US, (0xF1, 1, 1, 1, 32, 1, 1, 0, 0x7, 0, 0), result=400, sequence=2),
        t.call("cuMemcpyHtoD_v2", 250 * US, 400 * US, (0x7F0000000000, 0x5000, 3 << 20), tid=11, sequence=1),
        t.call("cuLaunchKernel", 500 * US, 504 * US, (0xF0, 2, 1, 1, 64, 1, 1, 0, 0x7, 0, 0), sequence=3),
        t.lost(7, 505 * US, pid=10, tid=11),
        t.kernel(510 * US, 522 * US, sequence=3, function=0xF0, stream=7, error=100),
        t.call("cuCtxSynchronize", 506 * US, 600 * US, sequence=4),
        t.process(10, 700 * US, what=3, status=0),
        t.stop(800 * US, 14, 7),
    ]


class Case(FakeDaemonCase):
    def daemon_environment(self):
        return {**os.environ, "FAKE_TRACE": str(self.dir / "command.last")}

    def file(self, name, data):
        path = self.dir / name
        path.write_bytes(data)
        return str(path)

    def environment(self):
        keep = ("ASAN", "LSAN", "UBSAN", "LD_PRELOAD")
        return {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TZ": "UTC", **{key: value for key, value in os.environ.items() if key.startswith(keep)}}

    def start(self, *args, program=CTL, **more):
        return subprocess.Popen(
            [program, "--socket", self.socket, *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            cwd=self.dir,
            env=self.environment(),
            **more,
        )

    @staticmethod
    def finish(process):
        "What is left of the output of a process of which lines were read."
        out, err = process.stdout.read(), process.stderr.read()
        process.wait(timeout=60)
        process.stdout.close()
        process.stderr.close()
        return out, err

    def ctl(self, *args, status=OK, stderr=""):
        process = self.start(*args)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, status, err)
        if stderr is not None:
            self.assertEqual(err.decode(), stderr)
        return out.decode()

    def trace(self, records, *args, name="x", **more):
        """A trace of what the records say; LOSS is what it tells of losses."""
        path = self.file(name, b"".join(records))
        return self.ctl("trace", f"--cgroup={path}", *args, **more)

    def usage(self, *args, text):
        command = args[:2] if len(args) > 1 and args[1] in ("list", "test", "status") else args[:1]
        self.ctl(*args, status=USAGE, stderr=f"gpuprobectl: {text}; see gpuprobectl {' '.join(command)} --help\n")


LOSS = "gpuprobectl: lost 7 events\n"
RM = 'hClient=0xc1d00001, hObject=0xcaf00000, cmd=NV2080_CTRL_CMD_FB_GET_INFO_V2, flags=0x0, params=0x7ffe0000, paramsSize=16, device="nvidiactl"'
GRID = "blockDimY=1, blockDimZ=1, sharedMemBytes=0, hStream=0x7, kernelParams=0x0, extra=0x0"
TEXT = f"""\
22:13:20.000100 python[10] cuMemAlloc_v2(dptr=[0x7f0000000000], bytesize=4.0MiB) = CUDA_SUCCESS <100.0us>
22:13:20.000110 python[10]   NV_ESC_RM_CONTROL({RM}) = NV_OK <40.0us>
22:13:20.000120 python[10]   nvidia:nv_kthread_q_schedule_q_item(item=0xabc, name="isr", again=true) = 0 <5.00us>
22:13:20.000250 python[10/11] cuMemcpyHtoD_v2(dstDevice=0x7f0000000000, srcHost=0x5000, ByteCount=3.0MiB) = CUDA_SUCCESS <150.0us>
22:13:20.000300 python[10] cuLaunchKernel(f=0xf1, gridDimX=1, gridDimY=1, gridDimZ=1, blockDimX=32, {GRID}) = CUDA_ERROR_INVALID_HANDLE <10.0us>
22:13:20.000500 python[10] cuLaunchKernel(vectorAdd(float*, float*, int), f=0xf0, gridDimX=2, gridDimY=1, gridDimZ=1, blockDimX=64, {GRID}) = CUDA_SUCCESS <4.00us>
22:13:20.000505 python[10/11] --- lost 7 events ---
22:13:20.000506 python[10] cuCtxSynchronize() = CUDA_SUCCESS <94.0us>
22:13:20.000510 python[10] GPU0 vectorAdd(float*, float*, int) stream=0x7 <12.0us>
22:13:20.000700 python[10] +++ exited with 0 +++
"""
SEED = """\
{"event_id":1,"ts":0.100000,"tid":10,"type":"memory","name":"cuMemAlloc_v2","size":4194304}
{"event_id":2,"ts":0.100000,"tid":10,"type":"userspace","name":"cuMemAlloc_v2","phase":"B","size":4194304}
{"event_id":3,"ts":0.110000,"tid":10,"type":"syscall","name":"ioctl","cmd":3223340586}
{"event_id":4,"ts":0.110000,"tid":10,"type":"kernel","name":"nvidia_ioctl","phase":"B"}
{"event_id":5,"ts":0.120000,"tid":10,"type":"scheduler","name":"nv_kthread_q_schedule_q_item","phase":"B"}
{"event_id":6,"ts":0.125000,"tid":10,"type":"scheduler","name":"nv_kthread_q_schedule_q_item","phase":"E","duration_us":5.000}
{"event_id":7,"ts":0.150000,"tid":10,"type":"ioctl","name":"NV_ESC_RM_CONTROL","cmd":3223340586,"decoded":{"dir":3,"type":70,"nr":42,"size":32},"duration_us":40.000}
{"event_id":8,"ts":0.150000,"tid":10,"type":"kernel","name":"nvidia_ioctl","phase":"E","duration_us":40.000}
{"event_id":9,"ts":0.200000,"tid":10,"type":"userspace","name":"cuMemAlloc_v2","phase":"E","duration_us":100.000}
{"event_id":10,"ts":0.250000,"tid":11,"type":"userspace","name":"cuMemcpyHtoD_v2","phase":"B","size":3145728}
{"event_id":11,"ts":0.300000,"tid":10,"type":"userspace","name":"cuLaunchKernel","phase":"B"}
{"event_id":12,"ts":0.310000,"tid":10,"type":"userspace","name":"cuLaunchKernel","phase":"E","duration_us":10.000}
{"event_id":13,"ts":0.400000,"tid":11,"type":"userspace","name":"cuMemcpyHtoD_v2","phase":"E","duration_us":150.000}
{"event_id":14,"ts":0.500000,"tid":10,"type":"userspace","name":"cuLaunchKernel","phase":"B"}
{"event_id":15,"ts":0.504000,"tid":10,"type":"userspace","name":"cuLaunchKernel","phase":"E","duration_us":4.000}
{"event_id":16,"ts":0.506000,"tid":10,"type":"userspace","name":"cuCtxSynchronize","phase":"B"}
{"event_id":17,"ts":0.522000,"tid":10,"type":"gpu_complete","name":"vectorAdd(float*, float*, int)","fence":"nvidia","duration_us":12.000}
{"event_id":18,"ts":0.600000,"tid":10,"type":"userspace","name":"cuCtxSynchronize","phase":"E","duration_us":94.000}
"""
SUMMARY = """\
=== TRACE SUMMARY ===

USERSPACE (libcuda.so):
  Total CUDA API calls: 5
  Kernel launches: 2
  Memory allocations: 1
  Total memory allocated: 4194304 bytes (4.00 MB)
  Memory transfers: 1
  Total data transferred: 3145728 bytes (3.00 MB)

KERNEL SPACE (nvidia.ko):
  IOCTL calls: 1
  Total IOCTL time: 0.040 ms
  Scheduler calls: 1

GPU:
  Kernels: 1
  Total kernel time: 0.012 ms

Lost events: 7
"""
TABLE = """\
TYPE       %     CALLS  ERRORS    TOTAL     MEAN      P50      P95      P99      MAX     BYTES  NAME
call   41.90         1       0  150.0us  150.0us  150.0us  150.0us  150.0us  150.0us    3.0MiB  cuMemcpyHtoD_v2
call   27.93         1       0  100.0us  100.0us  100.0us  100.0us  100.0us  100.0us    4.0MiB  cuMemAlloc_v2
call   26.26         1       0   94.0us   94.0us   94.0us   94.0us   94.0us   94.0us         -  cuCtxSynchronize
call    3.91         2       1   14.0us   7.00us   4.02us   10.0us   10.0us   10.0us         -  cuLaunchKernel
ioctl 100.00         1       0   40.0us   40.0us   40.0us   40.0us   40.0us   40.0us         -  NV_ESC_RM_CONTROL
hook  100.00         1       0   5.00us   5.00us   5.00us   5.00us   5.00us   5.00us         -  nvidia:nv_kthread_q_schedule_q_item
gpu   100.00         1       0   12.0us   12.0us   12.0us   12.0us   12.0us   12.0us         -  vectorAdd(float*, float*, int)
lost events: 7
"""


class Formats(Case):
    def lines(self, *args, records=None, **more):
        text = self.trace(records or basic(), "--format=jsonl", *args, **more)
        return [json.loads(line) for line in text.splitlines()]

    def items(self, records, *args, **more):
        return self.lines(*args, records=[t.start(), *records], **more)[1:-1]

    def test_text(self):
        self.assertEqual(self.trace(basic(), stderr=LOSS), TEXT)
        self.assertEqual(self.trace(basic(), "-o", "x.txt", stderr=None), "")
        self.assertEqual((self.dir / "x.txt").read_text(), TEXT)

    def test_jsonl(self):
        lines = self.lines(stderr=LOSS)
        self.assertEqual(
            lines[0],
            {
                "type": "start",
                "format": "gpuprobe-trace",
                "version": 1,
                "monotonic": t.BEGINNING,
                "realtime": t.REALTIME,
                "host": "host",
                "driver": "580.159.04",
                "daemon": "0.1.0",
            },
        )
        self.assertEqual(lines[-1], {"type": "stop", "events": 12, "lost": 7})
        self.assertEqual([line["event_id"] for line in lines[1:-1]], list(range(1, 13)))
        thread = {"pid": 10, "tid": 10, "comm": "python"}
        span = {"phase": "X", "ret": 0}
        self.assertEqual(
            lines[3],
            {
                **thread,
                **span,
                "event_id": 3,
                "ts": 0.1,
                "ts_ns": 100000,
                "dur_ns": 100000,
                "duration_us": 100,
                "type": "userspace",
                "name": "cuMemAlloc_v2",
                "base": "cuMemAlloc",
                "class": "memory",
                "source": "shim",
                "sequence": 1,
                "ret_name": "CUDA_SUCCESS",
                "size": 4 << 20,
                "args": {"bytesize": 4 << 20},
                "out": {"dptr": "0x7f0000000000"},
            },
        )
        self.assertEqual(
            {**lines[4], "args": 0},
            {
                **thread,
                **span,
                "event_id": 4,
                "ts": 0.11,
                "ts_ns": 110000,
                "dur_ns": 40000,
                "duration_us": 40,
                "type": "ioctl",
                "name": "NV_ESC_RM_CONTROL",
                "class": "ioctl",
                "source": "bpf",
                "parent": 3,
                "cmd": RM_CONTROL,
                "ret_name": "NV_OK",
                "args": 0,
            },
        )
        self.assertEqual(
            lines[5],
            {
                **thread,
                **span,
                "event_id": 5,
                "ts": 0.12,
                "ts_ns": 120000,
                "dur_ns": 5000,
                "duration_us": 5,
                "type": "kernel",
                "name": "nvidia:nv_kthread_q_schedule_q_item",
                "class": "work",
                "source": "bpf",
                "cpu": 3,
                "parent": 4,
                "args": {"item": "0xabc", "name": "isr", "again": True},
            },
        )
        self.assertEqual((lines[6]["thread"], lines[6]["tid"]), ("worker", 11))
        self.assertEqual((lines[7]["failed"], lines[7]["ret"], lines[7]["ret_name"]), (True, 400, "CUDA_ERROR_INVALID_HANDLE"))
        self.assertNotIn("flow", lines[7])
        self.assertEqual((lines[8]["flow"], lines[8]["kernel"], lines[8]["stream"]), (8, "_Z9vectorAddPfS_i", "0x7"))
        self.assertEqual(lines[9]["count"], 7)
        self.assertEqual(
            lines[11],
            {
                **thread,
                "event_id": 11,
                "ts": 0.51,
                "ts_ns": 510000,
                "dur_ns": 12000,
                "duration_us": 12,
                "type": "gpu",
                "name": "vectorAdd(float*, float*, int)",
                "class": "kernel",
                "phase": "X",
                "source": "gpu",
                "parent": 8,
                "flow": 8,
                "sequence": 3,
                "stream": "0x7",
                "kernel": "_Z9vectorAddPfS_i",
                "error_ns": 100,
            },
        )
        self.assertEqual((lines[12]["name"], lines[12]["status"], lines[12]["exe"]), ("exit", 0, "/usr/bin/python3"))
        self.assertEqual([json.loads(line) for line in self.trace(basic(), "--json", stderr=LOSS).splitlines()], lines)

    def test_seed(self):
        self.assertEqual(self.trace(basic(), "--format=jsonl-seed", stderr=LOSS), SEED)

    def test_csv(self):
        rows = list(csv.DictReader(self.trace(basic(), "--format=csv", stderr=LOSS).splitlines()))
        self.assertEqual(len(rows), 12)
        self.assertEqual(rows[10]["name"], "vectorAdd(float*, float*, int)")
        self.assertEqual(
            rows[2],
            {
                "id": "3",
                "ts_ns": "100000",
                "dur_ns": "100000",
                "type": "userspace",
                "source": "shim",
                "pid": "10",
                "tid": "10",
                "name": "cuMemAlloc_v2",
                "class": "memory",
                "comm": "python",
                "ret": "0",
                "ret_name": "CUDA_SUCCESS",
                "size": "4194304",
                "stream": "0",
                "device": "0",
                "kernel": "",
                "parent": "0",
                "flow": "0",
                "sequence": "1",
                "args": "dptr=0x7f0000000000 bytesize=4194304",
            },
        )

    def test_table(self):
        self.assertEqual(self.trace(basic(), "-c", stderr=LOSS), TABLE)
        self.assertEqual(self.trace(basic(), "--format=table", stderr=LOSS), TABLE)
        self.assertEqual(self.trace(basic(), "-cs", stderr=LOSS), TABLE + SUMMARY)
        self.assertEqual(self.trace(basic(), "-s", stderr=LOSS), TEXT + SUMMARY)
        self.assertEqual(self.trace(basic(), "-s", "--format=jsonl", "-o", "-", stderr=SUMMARY + LOSS).count("\n"), 14)
        histograms = self.trace([t.start(), *(t.call("cuInit", 0, 1 << i, (0,)) for i in (10, 10, 12))], "-c", "--hist").split("cuInit:\n")[1]
        self.assertEqual(
            histograms,
            "".join(f"[{bounds:15}{n:9} |{'@' * 26 * n:52}|\n" for bounds, n in (("1.02us, 2.05us)", 2), ("2.05us, 4.10us)", 0), ("4.10us, 8.19us)", 1))),
        )

    def test_discover(self):
        "Functions of the kernel, and how often they were called."
        hook = lambda number, name: t.name(t.HOOK_NAME, number, b"discover nvidia:" + name + b"(count:u64)")
        events = [t.event(number, 10 * i, 10 * i, (count,), flags=1) for i, (number, count) in enumerate(((1, 5), (2, 70), (1, 6)))]
        text = self.trace([t.start(), hook(1, b"rm_ioctl"), hook(2, b"os_alloc_mem"), *events], "--discover")
        self.assertEqual([(line.split()[-1], int(line.split()[2])) for line in text.splitlines()[1:]], [("nvidia:os_alloc_mem", 70), ("nvidia:rm_ioctl", 11)])

    def test_interval(self):
        path = self.file("follow", b"".join(basic()[:-1]))
        process = self.start("trace", f"--cgroup={path}", "-c", "--interval=1ms")
        text = process.stdout.readline() + process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = self.finish(process)
        self.assertEqual((process.returncode, err), (OK, LOSS.encode()))
        self.assertTrue((text + out).decode().endswith(TABLE))
        self.assertEqual(text.decode().splitlines()[0], TABLE.splitlines()[0])

    def test_raw(self):
        data = b"".join(basic())
        self.trace(basic(), "-o", "x.gtrc", stderr=None)
        self.assertEqual((self.dir / "x.gtrc").read_bytes(), data)
        self.trace(basic(), "--format=raw", "-o", "y", "-s", stderr=None)
        self.assertEqual((self.dir / "y").read_bytes(), data)

    def test_files(self):
        told = r"8 events, 7 lost, \d+\.\d s, {}\n"
        for option in ["--save"], ["-o", "traces"], ["-o", "traces/"]:
            path = self.file("x", b"".join(basic()))
            process = self.start("trace", f"--cgroup={path}", *option)
            out, err = process.communicate(timeout=60)
            self.assertEqual((process.returncode, out), (OK, b""))
            self.assertRegex(err.decode(), "^" + told.format(r"traces/trace_\d{8}_\d{6}(_\d)?\.jsonl") + "$")
            self.assertEqual(os.readlink(self.dir / "traces/trace_latest.jsonl"), err.decode().split("traces/")[1].strip())
            self.assertEqual(len((self.dir / "traces/trace_latest.jsonl").read_text().splitlines()), 14)
        self.assertEqual(len(list((self.dir / "traces").iterdir())), 4)
        self.trace(basic(), "--save", "--format=csv", stderr=None)
        self.assertTrue((self.dir / "traces/trace_latest.csv").is_symlink())
        self.trace(basic(), "-o", "x.csv", stderr=None)
        self.assertTrue((self.dir / "x.csv").read_text().startswith("id,"))
        self.trace(basic(), "-o", "/dev/full", status=ERROR, stderr=None)
        self.assertIn("/nowhere/x: No such file or directory", self.fails(ERROR, "trace", "-o", "/nowhere/x"))

    def test_not_permitted(self):
        "A file that may not be written, or read."
        os.chmod(self.dir, 0o755)
        os.chmod(self.socket, 0o666)
        program, other = str(self.dir / "gpuprobectl"), {}
        shutil.copy(CTL, program)
        for name, mode in ("closed", 0o555), ("profile", 0o600):
            (self.dir / name).mkdir()
            (self.dir / name).chmod(mode)
        if os.getuid() == 0:
            other = {"user": 65534, "group": 65534, "extra_groups": []}
        for option in "closed/x", "closed/", "closed/traces/":
            self.assertIn("Permission denied", self.fails(PERMISSION, "trace", "-o", option, program=program, **other))
        self.assertIn("Permission denied", self.fails(PERMISSION, "trace", "--profile=./profile/x", program=program, **other))

    def fails(self, status, *args, **more):
        process = self.start(*args, **more)
        err = process.communicate(timeout=60)[1].decode()
        self.assertEqual(process.returncode, status, err)
        self.assertEqual(err.count("\n"), 1, err)
        return err

    def test_order(self):
        "Calls come at their end, threads mixed: what comes out is in the order of starts, with parents, in portions of any size."
        calls = [t.call("cuInit", i * 100, i * 100 + 90, (i,), tid=10 + i % 3, sequence=i) for i in range(300)]
        calls.append(t.call("cuCtxSynchronize", 50, 40000, tid=20))
        calls.append(t.ioctl(0xC0104629, 60, 70, tid=20))
        mixed = [calls[(i * 7) % len(calls)] for i in range(len(calls))]
        self.assertEqual(len(set(mixed)), 302)
        for name in "x", "x.7", "x.1":
            items = self.items(mixed, name=name)
            starts = [item["ts_ns"] for item in items]
            self.assertEqual((len(starts), starts), (302, sorted(starts)))
            self.assertEqual([item.get("parent") for item in items if item["type"] == "ioctl"], [items[starts.index(50)]["event_id"]])

    def test_nesting(self):
        "The innermost span around it is the parent; a thread that is not the same is none, nor is a span that ends before."
        items = self.items(
            [
                t.name(t.HOOK_NAME, 1, b"driver m:f()"),
                t.call("cuInit", 100, 1000, (0,)),
                t.ioctl(0xC0104629, 200, 900),
                t.event(1, 300, 400),
                t.event(1, 950, 960),
                t.event(1, 300, 310, tid=11),
                t.event(1, 1200, 1210),
                t.ioctl(0xC0104629, 990, 1500),
                t.ioctl(0xC0104629, 999, 5000),
            ]
        )
        parents = {item["ts_ns"] + item["tid"] % 10: item.get("parent") for item in items}
        self.assertEqual(parents, {100: None, 200: 1, 300: 2, 301: None, 950: 1, 990: 1, 999: None, 1200: 7})

    def test_kernels(self):
        "Kernels find their launches by number or by the order on the stream; one that starts too early says so."
        launch = lambda begin, sequence, stream=0, function=0xF0: t.call(
            "cuLaunchKernel", begin, begin + 10, (function, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0), sequence=sequence
        )
        names = [t.name(t.KERNEL_NAME, 0xF0, b"first", pid=10), t.name(t.KERNEL_NAME, 0xF1, b"second", pid=10)]
        items = self.items(
            [
                *names,
                launch(100 * US, 1),
                launch(200 * US, 2),
                launch(300 * US, 4),
                t.kernel(90 * US, 150 * US, sequence=1, function=0xF0),
                t.kernel(170 * US, 220 * US, sequence=2, function=0xF0, error=9999),
                t.kernel(270 * US, 320 * US, sequence=4, function=0xF0, error=10 * US),
                t.kernel(400 * US, 402 * US, sequence=99, function=0xF5),
            ]
        )
        self.assertEqual(
            [(item["name"], item["ts_ns"] // US, item["dur_ns"], item.get("parent"), item.get("violation")) for item in items],
            [
                ("cuLaunchKernel", 100, 10, None, None),
                ("first", 100, 50 * US, 1, None),
                ("cuLaunchKernel", 200, 10, None, None),
                ("first", 170, 50 * US, 3, "starts 30.000us before its launch"),
                ("cuLaunchKernel", 300, 10, None, None),
                ("first", 300, 20 * US, 5, None),
                ("kernel@0xf5", 400, 2 * US, None, None),
            ],
        )
        # the launches come late enough that the first kernel says what is to be remembered
        items = self.items(
            [
                *names,
                launch(1000, 1, 5),
                launch(1100, 2, 6),
                launch(1200, 3, 5, 0xF1),
                *(
                    t.kernel(3000 + i, 3100 + i, tid=0, stream=stream, function=function)
                    for i, (stream, function) in enumerate(((5, 0xF0), (5, 0xF1), (6, 0xF0), (6, 0xF0)))
                ),
            ]
        )
        self.assertEqual([item.get("parent") for item in items[3:]], [1, 3, 2, None])
        self.assertEqual(
            self.items([t.clock(0, 0), t.call("cuMemcpyHtoD_v2", 10, 20, (1, 2, 3), sequence=1), t.kernel(30, 40, sequence=1)])[2]["name"], "cuMemcpyHtoD"
        )

    def test_notes(self):
        "What the shim says of a process is in the trace, and told to who reads it; no report takes it for an event of the program."
        records = [
            t.start(),
            t.process(10),
            t.note(b"kernels are timed by events, not by CUPTI: why", 50 * US),
            t.call("cuInit", 100 * US, 200 * US, (0,), sequence=1),
            t.stop(),
        ]
        line = "kernels are timed by events, not by CUPTI: why"
        told = f"gpuprobectl: process 10 (python): {line}\n"
        self.assertIn(f"python[10] --- {line} ---\n", self.trace(records))
        self.assertIn("python[10] --- exec ---\n", self.trace([t.start(), t.process(10, what=2, exe=b""), t.stop()]))
        for name in "jsonl", "csv", "chrome", "perfetto", "folded", "jsonl-seed":
            self.ctl("trace", f"--cgroup={self.file('notes', b''.join(records))}", f"--format={name}", "-o", f"notes.{name}", stderr=None)
        items = self.items(records, stderr=told)
        self.assertEqual([(item["type"], item["name"], item["ts_ns"], item["pid"]) for item in items if item["type"] == "note"], [("note", line, 50 * US, 10)])
        self.assertIn(f",note,shim,10,", self.trace(records, "--format=csv", stderr=told))
        self.trace(
            [t.start(), t.process(10, comm=b"py\x1b\xc2\x9b"), t.note(b"why\x1b[31m\n", 50 * US), t.stop()],
            "--format=csv",
            stderr="gpuprobectl: process 10 (py??): why?[31m?\n",
        )  # whoever is traced has not the terminal
        out = self.trace([t.start(), t.process(10, comm=b"\x7f\xc2\x9b\xc3\xa9\x9b", what=1), t.stop()], "--json")
        self.assertIn('"\\u007f\\u009b\u00e9\\ufffd"', out)
        summary = json.loads(self.ctl("--json", "trace", "report", "notes.jsonl"))
        self.assertEqual(json.loads(self.ctl("trace", "--json", "--socket", self.socket, "report", "notes.jsonl")), summary)
        self.assertEqual((summary["summary"]["userspace"]["calls"], "note" in json.dumps(summary)), (1, True), summary)

    def test_names(self):
        "What a name means changes; processes and threads do, too. Texts are foreign."
        items = self.items(
            [
                t.process(10, comm=b"one"),
                t.name(t.KERNEL_NAME, 1, b"a", pid=10),
                t.kernel(10, 20, function=1),
                t.name(t.KERNEL_NAME, 1, b"b", pid=10),
                t.kernel(30, 40, function=1),
                t.process(10, 50, what=2, comm=b"two", exe=b"/bin/two"),
                t.call("cuInit", 60, 70, (0,)),
                t.kernel(80, 90, function=1, pid=11),
            ]
        )
        self.assertEqual([item["name"] for item in items], ["seen", "a", "b", "exec", "cuInit", "kernel@0x1"])
        self.assertEqual([item.get("comm") for item in items], ["one", "one", "one", "two", "two", None])
        hostile = [t.process(10, comm=b'\x1b[31m"\xff'), t.call("cuModuleGetFunction", 10, 20, (1, 2, 3), extras=((2, 0, b'\x1b]0;x\x07\xc3\xa9\xff"\\'),))]
        self.assertEqual(self.items(hostile)[1]["args"]["name"], '\x1b]0;x\x07\u00e9\ufffd"\\')
        text = self.trace([t.start(), *hostile])
        self.assertIn('\\x1b[31m\\"\\xff[10]', text)
        self.assertIn('name="\\x1b]0;x\\x07\u00e9\\xff\\"\\\\"', text)
        hostile += [t.note(b'a\n"b",\\ \x1b]0;\xc2\x9b\xc3\xa9', 15), t.name(t.KERNEL_NAME, 1, b"k\x1b\xff", pid=10), t.kernel(10, 20, function=1)]
        rows = list(csv.DictReader(self.trace([t.start(), *hostile], "--format=csv", stderr=None).splitlines()))
        self.assertEqual(
            [(row["name"], row["comm"], row["kernel"]) for row in rows[1:]],
            [
                ("cuModuleGetFunction", '\\x1b[31m"\\xff', ""),
                ("k\\x1b\\xff", '\\x1b[31m"\\xff', "k\\x1b\\xff"),
                ('a\\x0a"b",\\ \\x1b]0;\\xc2\\x9b\u00e9', '\\x1b[31m"\\xff', ""),
            ],
        )
        self.assertEqual(rows[1]["args"], 'name=\\x1b]0;x\\x07\u00e9\\xff\\"\\\\'.replace("name", "hfunc=0x1 hmod=0x2 name"))

    def test_structs(self):
        "A struct within a struct is that in every format, also in one that is made of another."
        prop = struct.pack("<IIIiQBBH4x", 1, 0, 1, 3, 0, 1, 0, 2)
        records = [
            t.start(),
            t.call("cuMemCreate", 10, 20, (0x7FFE1000, 2 << 20, 0x7FFE2000, 0), extras=((0, 1, struct.pack("<Q", 0xABC)), (2, 0, prop))),
            t.stop(),
        ]
        wanted = {
            "size": 2 << 20,
            "prop": {
                "type": "CU_MEM_ALLOCATION_TYPE_PINNED",
                "requestedHandleTypes": "CU_MEM_HANDLE_TYPE_NONE",
                "location": {"type": "CU_MEM_LOCATION_TYPE_DEVICE", "id": 3},
                "win32HandleMetaData": "0x0",
                "allocFlags": {"compressionType": 1, "gpuDirectRDMACapable": 0, "usage": 2},
            },
            "flags": 0,
        }
        lines = self.trace(records, "--format=jsonl")
        self.assertEqual((json.loads(lines.splitlines()[1])["args"], json.loads(lines.splitlines()[1])["out"]), (wanted, {"handle": "0xabc"}))
        path = self.file("structs.jsonl", lines.encode())
        self.assertEqual(self.ctl("trace", "report", "--format=jsonl", path), lines)
        events = json.loads(self.ctl("trace", "report", "--format=chrome", path))["traceEvents"]
        args = next(event["args"] for event in events if event["name"] == "cuMemCreate")
        self.assertEqual({key: value for key, value in args.items() if key[0] != "="}, {"handle": "0xabc", **wanted})
        for text in self.trace(records), self.ctl("trace", "report", "--format=text", path):
            self.assertRegex(
                text.replace('"', ""),
                r"location=\{type=CU_MEM_LOCATION_TYPE_DEVICE, id=3\}, win32HandleMetaData=0x0, allocFlags=\{compressionType=1, "
                r"gpuDirectRDMACapable=0, usage=2\}\}, flags=0",
            )
        # more members than a call has room for
        deep = {"s": {f"m{i}": i for i in range(60)}}
        path = self.file(
            "deep.jsonl",
            (lines.splitlines()[0] + "\n" + json.dumps({"type": "userspace", "name": "f", "ts_ns": 1, "args": deep, "out": {"x": 1}}) + "\n").encode(),
        )
        line = json.loads(self.ctl("trace", "report", "--format=jsonl", path, stderr=None).splitlines()[1])
        self.assertEqual((line["args"], "out" in line), ({"s": {f"m{i}": i for i in range(47)}}, False))

    def test_unknown(self):
        items = self.items(
            [
                t.name(t.FUNCTION_NAME, 3072, b"cuNewThing"),
                t.call(3072, 10, 20, (1, 0xFFFFFFFFFFFFFFFF)),
                t.call(3999, 30, 40, flags=2),
                t.call("cuInit", 50, 60, flags=1),
                t.event(77, 70, 80, (5,)),
                t.record(200, b"later"),
                t.event(77, 90, 90, flags=1),
            ]
        )
        self.assertEqual(
            [(item["name"], item.get("args"), item["phase"], item.get("ret")) for item in items],
            [
                ("cuNewThing", {"word0": "0x1", "word1": "0xffffffffffffffff"}, "X", 0),
                ("cu#3999", None, "X", None),
                ("cuInit", None, "B", None),
                ("hook#77", {"word0": "0x5"}, "X", None),
                ("hook#77", None, "i", None),
            ],
        )
        self.assertIn("cuInit() = ? <unfinished>\n", self.trace([t.start(), t.call("cuInit", 50, 60, flags=1)]))

    def test_stacks(self):
        items = self.items(
            [t.stack(3, [b"app+0x12 (main+0x4)", b"libc.so.6+0x1"]), t.call("cuInit", 10, 20, (0,), stack=3), t.call("cuInit", 30, 40, (0,), stack=4)]
        )
        self.assertEqual([item.get("stack") for item in items], [["app+0x12 (main+0x4)", "libc.so.6+0x1"], None])

    def test_filters(self):
        "What the daemon lets through, but was not asked for."
        records = [
            t.call("cuInit", 0, 999, (0,)),
            t.call("cuInit", 2000, 3000, (0,), result=1),
            t.call("cuStreamQuery", 4000, 6000, (0,), result=600),
            t.lost(1),
        ]
        self.assertEqual([item["ts_ns"] for item in self.items(records, "--min-dur=1us", stderr=None)], [0, 2000, 4000])
        self.assertEqual([item["type"] for item in self.items(records, "--errors", stderr=None)], ["lost", "userspace"])

    def test_unknown_ends(self):
        "Launches whose end is not known are no losses: they are told apart."
        records = [t.start(), t.call("cuInit", 10, 20, (0,)), t.unknown_ends(1, 30), t.lost(7, 40), t.unknown_ends(2, 50), t.stop()]
        text = self.trace(records, stderr=LOSS + "gpuprobectl: 3 launches whose end is unknown\n")
        self.assertIn(" --- 1 launch whose end is unknown ---\n", text)
        lines = self.lines(records=records, stderr=None)
        self.assertEqual(
            [(line["type"], line["name"], line["count"]) for line in lines if "count" in line],
            [("note", "1 launch whose end is unknown", 1), ("lost", "lost", 7), ("note", "2 launches whose end is unknown", 2)],
        )
        self.assertEqual(lines[-1], {"type": "stop", "events": 4, "lost": 7})
        path = self.file("x", b"".join(records))
        out, err = self.finish(self.start("trace", f"--cgroup={path}", "-o", "x.jsonl"))
        self.assertRegex(err.decode(), r"(?m)^1 events, 7 lost, 3 launches whose end is unknown, \d+\.\d s, x.jsonl\n$")
        self.trace(records, "--format=raw", "-o", "x.gtrc", stderr=None)
        self.assertEqual(json.loads(self.ctl("trace", "report", "--json", "x.gtrc", stderr=None))["file"]["lost"], 7)

    def test_damage(self):
        "Nothing that a trace holds is believed."
        whole = t.call("cuInit", 10, 20, (0,))
        short = t.record(t.CALL, b"\0" * 8)
        extras = bytearray(t.call("cuInit", 10, 20, (0,), extras=((0, 0, b"12345678"),)))
        extras[8 + 8 * 5 - 2 - 4 + 8 + 2] = 255  # the size of what follows
        words = bytearray(whole)
        words[8 + 34] = 33
        stack = bytearray(t.stack(1, [b"x"]))
        stack[12:16] = (1 << 30).to_bytes(4, "little")
        cases = [
            short,
            bytes(words),
            bytes(stack),
            t.record(t.IOCTL, struct.pack("<QQIIIiBBHHHII", 0, 0, 1, 1, 0, 0, 0, 0, 65535, 0, 0, 0, 0)),
            t.record(t.EVENT, b"\xff" * 56),
        ]
        for record in cases:
            out = self.trace([t.start(), record, whole], stderr="gpuprobectl: passed over 1 records that make no sense\n")
            self.assertIn("cuInit", out)
        sense = "gpuprobectl: the daemon sent records that make no sense\n"
        for size in 0, 4, 12, 5000, 1 << 31:
            out = self.trace([t.start(), whole, struct.pack("<IHBB", size, t.CALL, 0, 0) + bytes(48)], status=ERROR, stderr=sense)
            self.assertIn("cuInit", out)
        self.trace([whole], status=ERROR, stderr=sense)
        self.trace([t.start(magic=1)], status=ERROR, stderr=sense)
        self.trace([t.start(version=2)], status=ERROR, stderr="gpuprobectl: the daemon's traces are of another version than ours\n")
        self.assertIn("cuInit", self.trace([t.start(), whole, whole[:20]]))
        self.assertEqual(self.trace([]), "")


class Ends(Case):
    def test_ctrl_c(self):
        "What had happened until then is all there."
        path = self.file("follow", b"".join(basic()[:-1]))
        for number in signal.SIGINT, signal.SIGTERM:
            process = self.start("trace", f"--cgroup={path}")
            first = process.stdout.readline()
            process.send_signal(number)
            out, err = self.finish(process)
            self.assertEqual((process.returncode, (first + out).decode(), err.decode()), (OK, TEXT, LOSS))
        process = self.start("trace", f"--cgroup={path}", "-o", "x.gtrc")
        deadline = time.monotonic() + 60
        while not ((self.dir / "x.gtrc").exists() and (self.dir / "x.gtrc").stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        data = (self.dir / "x.gtrc").read_bytes()
        self.assertTrue(data.startswith(b"".join(basic()[:-1])))
        self.assertEqual(struct.unpack("<IHBB", data[-32:-24])[:2], (32, t.STOP))
        self.assertEqual(struct.unpack("<QQ", data[-16:]), (len(basic()) - 1, 7))

    def test_nohup(self):
        "A terminal that goes away ends a trace, but none that was started so that it is none of its business."
        path = self.file("follow", b"".join(basic()[:-1]))
        for handler in signal.SIG_DFL, signal.SIG_IGN:
            process = self.start("trace", f"--cgroup={path}", preexec_fn=lambda: signal.signal(signal.SIGHUP, handler))
            first = process.stdout.readline()
            process.send_signal(signal.SIGHUP)
            if handler == signal.SIG_IGN:
                time.sleep(1)
                self.assertIsNone(process.poll())
                process.send_signal(signal.SIGINT)
            out, err = self.finish(process)
            self.assertEqual((process.returncode, (first + out).decode(), err.decode()), (OK, TEXT, LOSS))

    def test_stuck(self):
        "A reader of its output that has stopped to read keeps nobody from ending it; a pager that gets the same Ctrl-C reads on."
        path = self.file("follow", t.start() + b"".join(t.call("cuInit", i * US, (i + 1) * US, (0,)) for i in range(10000)))
        for number in signal.SIGTERM, signal.SIGINT:
            process = self.start("trace", f"--cgroup={path}")
            process.stdout.readline()
            time.sleep(0.5)  # the pipe is full
            process.send_signal(number)
            if number == signal.SIGTERM:
                self.assertEqual(process.wait(30), -number)
            else:
                time.sleep(3)
                self.assertIsNone(process.poll())
            out, err = self.finish(process)
        self.assertEqual(process.returncode, OK, err)
        self.assertEqual(out.count(b"cuInit"), 9999)

    def test_hangup(self):
        self.assertEqual(self.ctl("trace", "--cgroup=/hangup", status=UNREACHABLE, stderr=None), "")

    def test_never_began(self):
        "A trace that does not begin leaves what was there."
        self.trace(basic(), "--save", stderr=None)
        folder = self.dir / "traces"
        before, latest = set(folder.iterdir()), os.readlink(folder / "trace_latest.jsonl")
        kept = self.file("keep.jsonl", b"x" * 100000)
        other = self.file("other", t.start(version=2))
        for option in ["--save"], ["-o", kept], ["-o", kept, "--format=raw"], ["-o", "new"]:
            self.ctl("trace", "--cgroup=/error/Unavailable", *option, status=ERROR, stderr="gpuprobectl: not today\n")
            self.ctl("trace", f"--cgroup={other}", *option, status=ERROR, stderr=None)
        self.assertEqual((set(folder.iterdir()), os.readlink(folder / "trace_latest.jsonl")), (before, latest))
        self.assertFalse((self.dir / "new").exists())
        self.assertEqual(pathlib.Path(kept).read_bytes(), b"x" * 100000)
        self.trace(basic(), "-o", kept, stderr=None)
        self.assertEqual(pathlib.Path(kept).read_text(), (folder / "trace_latest.jsonl").read_text())

    def test_cut_off(self):
        "What the end of the daemon cut off has no last line, and is not the latest trace that is complete."
        path = self.file("follow", b"".join(basic()[:-1]))
        processes = [self.start("trace", f"--cgroup={path}", "--save", f"--format={name}") for name in ("jsonl", "raw")]
        folder, deadline = self.dir / "traces", time.monotonic() + 60
        while not (folder.exists() and [file.stat().st_size > 0 for file in folder.iterdir()] == [True] * 2) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.daemon.kill()
        for process in processes:
            self.finish(process)
            self.assertEqual(process.returncode, UNREACHABLE)
        files = {file.suffix: file for file in folder.iterdir()}
        self.assertEqual({suffix: file.is_symlink() for suffix, file in files.items()}, {".jsonl": False, ".gtrc": False})
        self.assertEqual([json.loads(line)["type"] for line in files[".jsonl"].read_text().splitlines()][-2:], ["gpu", "process"])
        self.assertEqual(files[".gtrc"].read_bytes(), b"".join(basic()[:-1]))
        for file in files.values():
            told = f"gpuprobectl: {file}: cut off, the end of the trace is missing\n" + f"gpuprobectl: {file}: 7 events were lost while it was recorded\n"
            self.assertNotIn('"stop"', self.ctl("trace", "report", "--format=jsonl", str(file), stderr=told))

    def test_killed(self):
        "SIGKILL leaves a file of whole events, which can be read, and a report says that it is cut."
        path = self.file("follow", b"".join(basic()[:-1]))
        formats = "jsonl", "chrome", "perfetto", "csv", "raw"
        processes = [self.start("trace", f"--cgroup={path}", "-o", name, f"--format={name}") for name in formats]
        # "exit" is of the last event
        deadline = time.monotonic() + 60
        while (
            any(not (self.dir / name).exists() or b"exit" not in (self.dir / name).read_bytes() for name in formats if name != "raw")
            and time.monotonic() < deadline
        ):
            time.sleep(0.05)
        for process in processes:
            process.kill()
            self.finish(process)
        lines = [json.loads(line) for line in (self.dir / "jsonl").read_text().splitlines()]
        self.assertEqual((lines[0]["type"], len(lines), lines[-1]["name"]), ("start", 13, "exit"))
        events = json.loads((self.dir / "chrome").read_text())["traceEvents"]
        self.assertEqual([event["name"] for event in events if event["ph"] in "Xi"][-1], "exit")
        self.assertEqual(len((self.dir / "csv").read_text().splitlines()), 13)
        data = (self.dir / "perfetto").read_bytes()
        self.assertEqual(sum(1 for _ in self.packets(data)) > 12, True)
        self.assertEqual((self.dir / "raw").read_bytes(), b"".join(basic()[:-1]))
        for name in "jsonl", "raw":
            self.assertIn(
                "Total CUDA API calls: 5",
                self.ctl(
                    "trace",
                    "report",
                    name,
                    stderr=f"gpuprobectl: {name}: cut off, the end of the trace is missing\ngpuprobectl: {name}: 7 events were lost while it was recorded\n",
                ),
            )

    def packets(self, data):
        "The fields of a message of protobuf, which are all its packets, to the end."
        at = 0
        while at < len(data):
            self.assertEqual(data[at], 0x0A)
            size = shift = 0
            while True:
                at += 1
                size |= (data[at] & 127) << shift
                shift += 7
                if data[at] < 128:
                    break
            at += 1 + size
            self.assertLessEqual(at, len(data))
            yield size

    def test_full(self):
        "A full disk is said to be one, in all formats; what of a file is there are whole events."
        records = [t.start()] + [t.call("cuInit", i * US, (i + 1) * US, (0,)) for i in range(20000)] + [t.stop(1, 20001, 0)]
        path = self.file("x", b"".join(records))
        formats = "text", "jsonl", "jsonl-seed", "chrome", "perfetto", "folded", "csv", "table", "raw"
        for name in formats:
            err = self.fails_at_end("trace", f"--cgroup={path}", f"--format={name}", "-o", "/dev/full")
            self.assertEqual((name, err), (name, "gpuprobectl: /dev/full: No space left on device"))

        def small():
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_FSIZE, (50000, 50000))

        for name in set(formats) - {"folded", "table"}:
            err = self.fails_at_end("trace", f"--cgroup={path}", f"--format={name}", "-o", "y", preexec_fn=small)
            self.assertEqual((name, err), (name, "gpuprobectl: y: File too large"))
            data = (self.dir / "y").read_bytes()
            if name == "chrome":
                json.loads(data)
            elif name == "perfetto":
                list(self.packets(data))
            elif name != "raw":
                self.assertTrue(data.endswith(b"\n"), (name, data[-100:]))
            self.assertGreater(len(data), 10000, name)
        self.trace(records, "-o", "z.jsonl", stderr=None)
        err = self.fails_at_end("trace", "report", "--format=chrome", "-o", "y", "z.jsonl", preexec_fn=small)
        self.assertEqual(err, "gpuprobectl: cannot write y: File too large")
        with open("/dev/full", "w") as full:
            for name in set(formats) - {"raw"}:
                process = subprocess.Popen(
                    [CTL, "--socket", self.socket, "trace", f"--cgroup={path}", f"--format={name}", "-o", "-"],
                    stdout=full,
                    stderr=subprocess.PIPE,
                    cwd=self.dir,
                    env=self.environment(),
                )
                err = process.communicate(timeout=60)[1]
                self.assertEqual((process.returncode, err), (ERROR, b"gpuprobectl: cannot write the output: No space left on device\n"))
            for args in (["z.jsonl"], ["--all", "z.jsonl"], ["--format=chrome", "z.jsonl"], ["--format=jsonl", "-o", "/dev/full", "z.jsonl"]):
                process = subprocess.run([CTL, "trace", "report", *args], stdout=full, stderr=subprocess.PIPE, cwd=self.dir, env=self.environment(), timeout=60)
                self.assertEqual(process.returncode, ERROR)
                self.assertRegex(process.stderr.decode(), "^gpuprobectl: cannot write (the output|/dev/full): No space left on device\n$")

    def fails_at_end(self, *args, **more):
        process = self.start(*args, **more)
        err = process.communicate(timeout=60)[1].decode()
        self.assertEqual(process.returncode, ERROR, err)
        return err.splitlines()[-1]

    def test_missing(self):
        path = self.file("x", b"".join(basic()))
        self.file("x.missing", b"bpf: no CAP_BPF\nhook xid: no driver\n")
        self.ctl("trace", f"--cgroup={path}", stderr="gpuprobectl: not traced: bpf: no CAP_BPF\ngpuprobectl: not traced: hook xid: no driver\n" + LOSS)
        path = self.file("y.100", b"".join(basic()))
        self.file("y.100.missing", b"hook xid: no driver\n")
        self.file("y.100.later", b"bpf: /x/libcuda.so.1: no\n")
        self.ctl("trace", f"--cgroup={path}", stderr="gpuprobectl: not traced: hook xid: no driver\ngpuprobectl: not traced: bpf: /x/libcuda.so.1: no\n" + LOSS)

    def test_errors(self):
        for error, status, text in (
            ("PermissionDenied", PERMISSION, "not permitted: not today"),
            ("Unavailable", ERROR, "not today"),
            ("InvalidArgument", USAGE, "-e: cuFoo: no function has that name"),
            ("NotFound", NOT_FOUND, "there is no process 7"),
            ("Internal", ERROR, "the daemon has a problem: not today"),
        ):
            self.ctl("trace", "--cgroup=/error/" + error, status=status, stderr=f"gpuprobectl: {text}\n")
        done = subprocess.run([CTL, "--socket", "/nowhere", "trace"], capture_output=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (UNREACHABLE, b"gpuprobectl: /nowhere: no daemon answers there: No such file or directory\n"))


class Command(Case):
    def setUp(self):
        super().setUp()
        self.file("command.last", b"".join(basic()))

    def run_command(self, *command, options=(), **more):
        process = self.start("trace", *options, "--", *command, **more)
        out, err = process.communicate(timeout=60)
        return process.returncode, out.decode(), err.decode()

    def test_streams(self):
        "Its output is its own, the lines go to standard error."
        self.assertEqual(self.run_command("echo", "mine"), (OK, "mine\n", TEXT + LOSS))
        self.assertEqual(self.run_command("echo", "mine", options=["-o", "-"]), (OK, "mine\n" + TEXT, LOSS))
        status, out, err = self.run_command("echo", "mine", options=["-o", "x.jsonl", "-s"])
        self.assertEqual((status, out), (OK, "mine\n"))
        self.assertRegex(err, "(?s)^=== TRACE SUMMARY.*\\n8 events, 7 lost, .* s, x.jsonl\\n$")
        status, out, err = self.run_command("echo", "mine", options=["--format=csv"])
        self.assertRegex(err, r"traces/trace_\d+_\d+\.csv\n$")

    def test_no_call(self):
        "Where the shim alone was to see calls and saw none, one line says who is not seen by it."
        line = "gpuprobectl: no call was traced; if some were made, then by processes without the shim, such as with a cleaned environment or another user: --backend=bpf sees those\n"
        self.file("command.last", b"".join([t.start(), t.process(10), t.stop(1, 2, 0)]))
        self.assertEqual(self.run_command("true", options=["--backend=shim"]), (OK, "", line))
        self.assertEqual(self.run_command("true", options=["--backend=shim", "-c"]), (OK, "", line))
        self.assertEqual(self.run_command("true", options=["--backend=bpf"]), (OK, "", ""))
        self.assertEqual(self.run_command("true", options=["-e", "ioctl"]), (OK, "", ""))
        self.file("command.last", b"".join([t.start(), t.process(10), t.lost(3), t.stop(1, 2, 3)]))
        self.assertEqual(self.run_command("true", options=["--backend=shim"])[2].splitlines()[-1], "gpuprobectl: lost 3 events")
        self.file("command.last", b"".join([t.start(), t.process(10), t.call("cuInit", 1, 2), t.stop(1, 2, 3)]))
        self.assertNotIn("no call", self.run_command("true", options=["--backend=shim"])[2])

    def test_status(self):
        self.assertEqual(self.run_command("sh", "-c", "exit 3")[0], 3)
        self.assertEqual(self.run_command("sh", "-c", "kill -9 $$")[0], 137)
        status, out, err = self.run_command("/nowhere/x")
        self.assertEqual((status, err.splitlines()[0]), (127, "gpuprobectl: /nowhere/x: No such file or directory"))
        os.mkdir(self.dir / "d")
        self.assertEqual(self.run_command(str(self.dir / "d"))[0], 126)

    def test_misspelt(self):
        "What cannot be run is said in one line, and not that it made no call."
        self.file("command.last", b"".join([t.start(), t.process(10), t.stop(1, 2, 0)]))
        os.mkdir(self.dir / "d")
        for command, status, text in (
            ("reprot", 127, "reprot: No such file or directory; did you mean gpuprobectl trace report?"),
            ("no-such-program", 127, "no-such-program: No such file or directory"),
            (str(self.dir / "d"), 126, f"{self.dir}/d: Permission denied"),
        ):
            self.assertEqual(self.run_command(command, "x.jsonl", options=["--backend=shim"]), (status, "", f"gpuprobectl: {text}\n"))

    def test_not_traced(self):
        "A command that cannot be traced is not run."
        for arguments in ["--cgroup=/error/Unavailable"], ["--cgroup=/echo"]:
            process = self.start("trace", *arguments, "--", "touch", "ran")
            process.communicate(timeout=60)
            self.assertEqual(process.returncode, ERROR)
        self.assertFalse((self.dir / "ran").exists())

    def test_signals(self):
        "A signal to us goes on to it; the second one ends the trace, not the program."
        script = 'trap "echo got; exit 5" TERM; echo ready; while :; do sleep 0.05; done'
        process = self.start("trace", "-o", "x.txt", "--", "sh", "-c", script)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(process)[0], b"got\n")
        self.assertEqual(process.returncode, 5)
        script = 'trap "" INT; echo ready; while test ! -e end; do sleep 0.05; done; exit 6'
        process = self.start("trace", "-o", "x.txt", "--", "sh", "-c", script)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        for _ in range(3):
            process.send_signal(signal.SIGINT)
            time.sleep(0.1)
        self.assertIsNone(process.poll())
        self.file("end", b"")
        self.finish(process)
        self.assertEqual(process.returncode, 6)

    def test_daemon_dies(self):
        "The program goes on."
        process = self.start("trace", "--", "sh", "-c", "echo ready; while test ! -e end; do sleep 0.05; done; exit 6")
        self.assertEqual(process.stdout.readline(), b"ready\n")
        self.daemon.kill()
        time.sleep(0.1)
        self.file("end", b"")
        err = self.finish(process)[1]
        self.assertEqual(process.returncode, 6)
        self.assertIn(b"the daemon hung up", err)

    def test_signals_behind_the_end(self):
        "What is sent to us goes on to it as long as it lives, also if whoever started us wants to hear of no child."
        script = 'trap "" INT; trap "echo got; exit 5" TERM; echo ready; for i in $(seq 200); do sleep 0.05; done'
        for ignore in False, True:
            process = self.start("trace", "-o", "x.txt", "--", "sh", "-c", script, preexec_fn=lambda: ignore and signal.signal(signal.SIGCHLD, signal.SIG_IGN))
            self.assertEqual(process.stdout.readline(), b"ready\n")
            for _ in range(2):
                process.send_signal(signal.SIGINT)
                time.sleep(0.1)
            self.assertRegex(process.stderr.readline(), b", x.txt\n$")  # the trace is over
            process.send_signal(signal.SIGTERM)
            self.assertEqual(self.finish(process)[0], b"got\n")
            self.assertEqual(process.returncode, 5)

    def test_preload(self):
        "The shim is preloaded if it is there, and nothing else does it already."
        for name in "ctl", "shim":
            (self.dir / name).mkdir()
        shutil.copy(CTL, self.dir / "ctl/gpuprobectl")
        shutil.copy(re.search(r"\S*/libc\.so\.6$", pathlib.Path("/proc/self/maps").read_text(), re.M)[0], self.dir / "shim/libgpuprobe-shim.so")
        shim = f"{self.dir}/ctl/../shim/libgpuprobe-shim.so"
        inherited = os.environ.get("LD_PRELOAD", "")

        def preloaded(*options, enter=(), **environment):
            done = subprocess.run(
                [*enter, str(self.dir / "ctl/gpuprobectl"), "--socket", self.socket, "trace", *options, "--", "sh", "-c", "echo $LD_PRELOAD"],
                capture_output=True,
                timeout=60,
                text=True,
                env={**self.environment(), **environment},
                cwd=self.dir,
            )
            self.assertEqual(done.returncode, OK, done.stderr)
            return done.stdout.strip()

        self.assertEqual(preloaded(), shim + (inherited and ":" + inherited))
        self.assertEqual(preloaded("--backend=shim"), shim + (inherited and ":" + inherited))
        self.assertEqual(preloaded("--backend=bpf"), inherited)
        self.assertEqual(preloaded("-e", "ioctl"), inherited)
        os.symlink(self.dir / "shim/libgpuprobe-shim.so", self.dir / "libgpuprobe-shim.so")
        mine = f"{self.dir}/libgpuprobe-shim.so"
        sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"  # gpuprobectl itself gets it, too
        self.assertEqual(preloaded(LD_PRELOAD=mine, ASAN_OPTIONS=sanitizer), mine)
        missing = "/nowhere/libgpuprobe-shim.so"
        self.assertEqual(preloaded(LD_PRELOAD=missing, ASAN_OPTIONS=sanitizer), f"{shim}:{missing}")
        # and what /etc/ld.so.preload has, in a namespace
        (self.dir / "etc").mkdir()
        enter = [
            "unshare",
            "-m",
            "sh",
            "-c",
            'mount -t tmpfs tmpfs etc && cp -a /etc/. etc && printf "$0" >etc/ld.so.preload && mount --bind etc /etc && exec "$@"',
        ]
        if inherited or subprocess.run([*enter, "", "true"], cwd=self.dir, capture_output=True, timeout=60).returncode:
            return
        for text, wanted in (mine, ""), ("# " + mine, shim), (missing, shim), (f"# x\\n{missing} {mine}", ""):
            self.assertEqual(preloaded(enter=[*enter, text]), wanted, text)


class Options(Case):
    def asked(self, *args, status=ERROR):
        "The parameters that the daemon gets."
        process = self.start("trace", "--cgroup=/echo", *args)
        err = process.communicate(timeout=60)[1].decode()
        self.assertEqual(process.returncode, status, err)
        err = re.sub(r"gpuprobectl: process \d+ has loaded no CUDA library so far\n", "", err)
        asked = json.loads(err.removeprefix("gpuprobectl: the daemon has a problem: "))
        self.assertIs(asked.pop("descriptor"), True)
        return asked

    def test_parameters(self):
        every = {"shim", "bpf", "kernel"}
        self.assertEqual(self.asked(), {})
        self.assertEqual(
            self.asked("-f", "-k", "-d5", "--sample=1/16", "--rate", "1000", "--buffer=4M", "--errors", "--min-dur", "1.5ms", "--no-extras"),
            {
                "follow": True,
                "stacks": True,
                "duration": 5,
                "sample": 16,
                "rate": 1000,
                "buffer": 4 << 20,
                "errors": True,
                "min_duration": 1500000,
                "extras": False,
            },
        )
        self.assertEqual(self.asked("-p", str(os.getpid()), "--pid=1"), {"pids": [os.getpid(), 1]})
        pid = self.process_with("libcuda.so.1", "libgpuprobe-shim.so")
        self.assertEqual(self.asked("-p", pid), {"pids": [int(pid)], "sources": ["shim", "kernel"]})
        self.assertEqual(self.asked("-p", pid, "-f"), {"pids": [int(pid)], "follow": True})
        self.assertEqual(self.asked("-p", pid, "-p", str(os.getpid())), {"pids": [int(pid), os.getpid()]})
        self.assertEqual(self.asked("--uid=root", "--comm", "python"), {"filter": {"uid": 0, "comm": "python"}})
        self.assertEqual(self.asked("--sample=7")["sample"], 7)
        self.assertEqual(self.asked("-e", "launch,cuMem*,!cuMemFree*"), {"calls": ["launch", "cuMem*", "!cuMemFree*"], "sources": ["shim", "bpf"]})
        self.ctl("trace", "-e", "memory," + "a" * 256, status=ERROR, stderr=f"gpuprobectl: {'a' * 256}: longer than 255 bytes\n")
        self.usage("trace", "-e", "lunch", text="there is no function, class of functions, hook or set of hooks lunch")
        self.assertEqual(self.asked("-e", "ioctl,nvidia:nv_dma*,!xid"), {"hooks": ["ioctl", "nvidia:nv_dma*", "!xid"], "sources": ["kernel"]})
        asked = self.asked("-e", "memory", "-e", "ioctl,gsp")
        self.assertEqual(asked, {"calls": ["memory"], "hooks": ["ioctl", "gsp"]})
        asked = self.asked("--kernel=driver,gsp")
        self.assertEqual((asked["hooks"], set(asked["sources"])), (["driver", "gsp"], every))
        asked = self.asked("--kernel")
        self.assertEqual((asked["hooks"], set(asked["sources"])), (["driver", "uvm", "xid"], every))
        self.assertEqual(set(self.asked("--gpu")["sources"]), {"gpu", *every})
        self.assertEqual(self.asked("--gpu=events"), self.asked("--gpu"))
        self.assertEqual(set(self.asked("--gpu=cupti")["sources"]), {"cupti", *every})
        self.assertEqual(self.asked("--backend=cupti", "-e", "launch")["sources"], ["shim", "cupti"])
        self.assertEqual(self.asked("--backend=shim"), {"sources": ["shim"]})
        self.assertEqual(set(self.asked("--backend=bpf", "--kernel")["sources"]), {"bpf", "kernel"})
        self.assertEqual(self.asked("--backend=auto"), {})
        asked = self.asked("--probe=k:nvidia:f(a=arg1:u64)", "--probe", "t:irq:x()")
        self.assertEqual((asked["probes"], set(asked.get("sources", every))), (["k:nvidia:f(a=arg1:u64)", "t:irq:x()"], every))
        self.assertEqual(self.asked("--discover"), {"hooks": ["discover:*"], "sources": ["kernel"]})
        self.assertEqual(self.asked("-c", "--backend=bpf"), {"sources": ["bpf"], "aggregate": True})
        self.assertEqual(self.asked("-c", "--backend=bpf", "--rate", "5"), {"sources": ["bpf"], "rate": 5})
        self.assertEqual(self.asked("--discover", "-e", "gsp"), {"hooks": ["discover:gsp"], "sources": ["kernel"]})

    def test_profiles(self):
        "Options from files: those that are shipped, and what is wrong with others."
        folder = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "trace/profiles")
        expected = {
            "launches": {"calls": ["launch"], "sources": ["shim", "bpf"]},
            "memory": {"calls": ["memory", "transfer"], "stacks": True, "sources": ["shim", "bpf"]},
            "latency": {"calls": ["launch", "sync"], "sources": ["shim", "bpf", "gpu"]},
            "driver": {"hooks": ["driver", "gsp", "xid"], "sources": ["kernel"]},
            "dev": {"calls": ["all"], "stacks": True, "hooks": ["driver", "uvm", "xid"]},
            "bench": {"aggregate": True},
            "prod": {"calls": ["launch", "transfer", "memory", "sync"], "sample": 16, "rate": 1000, "extras": False, "sources": ["shim", "bpf"]},
        }
        self.assertEqual({name.removesuffix(".conf") for name in os.listdir(folder)}, set(expected))
        for name, parameters in expected.items():
            with open(f"{folder}/{name}.conf", "rb") as file:
                asked = self.asked("--profile=" + self.file("copy.conf", file.read().replace(b",uvm", b",gsp")))  # the fake daemon knows no uvm
            self.assertEqual({key: value for key, value in asked.items() if key in parameters}, parameters, name)
            self.assertEqual(set(asked) - set(parameters) - {"sources"}, set(), name)
        self.assertEqual(self.asked("-e", "sync", f"--profile={folder}/memory.conf", "-e", "launch")["calls"], ["sync", "memory", "transfer", "launch"])
        own = self.file("own.conf", b"# mine\n\n  --sample = 1/4 \nmin-dur\t2us\r\nbackend=bpf\nerrors")
        self.assertEqual(self.asked("--profile", own), {"sample": 4, "min_duration": 2000, "sources": ["bpf"], "errors": True})
        for text in "pid 1", "profile x", "json", "lunch", "events", "stacks yes", "socket /x":
            path = self.file("bad.conf", b"errors\n" + text.encode())
            self.usage(
                "trace",
                f"--profile={path}",
                text=f"{path}: line 2: {text.split()[0]} is no option of a profile, or has a value that it should not, or lacks one",
            )
        path = self.file("bad.conf", b"rate x\n")
        self.ctl(
            "trace",
            f"--profile={path}",
            status=USAGE,
            stderr=f"gpuprobectl: --rate: x is not a number from 1 up; see gpuprobectl trace --help\ngpuprobectl: that is in {path}, line 1\n",
        )
        self.assertIn("there is no profile nobody-has-this; there are: ", self.ctl_error("trace", "--profile=nobody-has-this"))
        self.assertIn("No such file", self.ctl_error("trace", "--profile=./nothing"))
        path = self.file("bad.conf", b"errors\0\n")
        self.ctl("trace", f"--profile={path}", status=ERROR, stderr=f"gpuprobectl: --profile: {path}: it is too long, or no text\n")

    def ctl_error(self, *args):
        process = self.start(*args)
        err = process.communicate(timeout=60)[1].decode()
        self.assertEqual(process.returncode, NOT_FOUND, err)
        return err

    def test_cgroup(self):
        path = self.file("x", b"".join(basic()))
        self.assertEqual(self.ctl("trace", f"--cgroup=/sys/fs/cgroup{path}", stderr=LOSS), TEXT)

    def test_usage(self):
        for args, text in (
            (["-p", "x"], "-p: x is not a number from 1 up"),
            (["-p", "0"], "-p: 0 is not a number from 1 up"),
            (["-e", "a,,b"], "-e: a name is missing in a,,b"),
            (["-e", "!"], "-e: a name is missing in !"),
            (["-e", ""], '-e: a name is missing in ""'),
            (["--kernel="], '--kernel: a name is missing in ""'),
            (["-o", ""], "-o: which file?"),
            (["--min-dur=5"], "--min-dur: 5 is not a duration, such as 10us or 1.5ms"),
            (["--min-dur=1.5x"], "--min-dur: 1.5x is not a duration, such as 10us or 1.5ms"),
            (["--min-dur=-5us"], "--min-dur: -5us is not a duration, such as 10us or 1.5ms"),
            (["--min-dur=nan"], "--min-dur: nan is not a duration, such as 10us or 1.5ms"),
            (["--interval=0"], "--interval: 0 is not a duration, such as 10us or 1.5ms"),
            (["--sample=1/0"], "--sample: 0 is not a number from 1 up"),
            (["--sample=2/3"], "--sample: 2/3 is not a number from 1 up"),
            (["--rate=0"], "--rate: 0 is not a number from 1 up"),
            (["--buffer=x"], "--buffer: x is not a size, such as 65536, 64K or 1G"),
            (["-d", "0"], "--duration: 0 is not a number from 1 up"),
            (["--cgroup=x"], "--cgroup: x is not the path of a cgroup, such as /system.slice/a.service"),
            (["--uid=nobody9"], "--uid: there is no user nobody9"),
            (["--comm=abcdefghijklmnop"], "--comm: abcdefghijklmnop: names of processes have at most 15 bytes"),
            (["--backend=ptrace"], "--backend: ptrace is none of auto, shim, bpf, cupti"),
            (["--format=xml"], "--format: xml is none of text, jsonl, jsonl-seed, chrome, perfetto, folded, csv, table, raw"),
            (["--probe=x"], "--probe: x does not begin with k:, u: or t:"),
            (["-p", "1", "--", "ls"], "trace takes -p or a CMD, not both"),
            (["--"], "a CMD is missing behind --"),
            (["-c", "--"], "a CMD is missing behind --"),
            (["-p", "1", "--uid=0"], "--uid and --comm are for all processes: not with -p or a CMD"),
            (["-c", "--format=csv"], "trace takes -c or --format, not both"),
            (["--gpu=nvml"], "--gpu: nvml is none of events, cupti"),
            (["--gpu="], '--gpu: "" is none of events, cupti'),
            (["--backend=cupti", "--backend=bpf"], "--gpu needs the shim: not with --backend=bpf"),
            (["--gpu", "--backend=bpf"], "--gpu needs the shim: not with --backend=bpf"),
            (["--discover", "-e", "cuInit"], "--discover counts functions of the kernel: it goes with hooks only"),
            (["--json", "-c"], "trace takes --json or another format, not both"),
        ):
            self.usage("trace", *args, text=text)
        for args in (
            ["-o", "a", "--output=b"],
            ["--format=csv", "--format=text"],
            ["-d1", "-d2"],
            ["--gpu", "--gpu=cupti"],
            ["--min-dur=1us", "--min-dur=1us"],
            ["--uid=0", "--uid=0"],
        ):
            name = {"-o": "output", "-d1": "duration"}.get(args[0], args[0].split("=")[0].removeprefix("--"))
            self.usage("trace", *args, text=f"--{name} may be given once")
        self.usage("trace", "-o", "x", "--save", text="trace takes -o or --save, not both")
        for name in "x.jsonlines", "d.x/x.gz", "x.":
            self.usage(
                "trace",
                "-o",
                name,
                text=f"-o: {name}: no format has the suffix .{name.split('.')[-1]}; "
                ".jsonl, .json, .pftrace, .folded, .csv, .gtrc and .txt are some, or say --format",
            )
        for name in "x.txt", "x.log", ".hidden", "x":
            self.trace(basic(), "-o", name, name="input", stderr=None)
            self.assertEqual((self.dir / name).read_text(), TEXT)
        self.trace(basic(), "-o", "x.gz", "--format=text", stderr=None)
        self.ctl("trace", "-p", "99999999", status=NOT_FOUND, stderr="gpuprobectl: there is no process 99999999\n")
        thread = threading.Thread(target=time.sleep, args=(5,), daemon=True)
        thread.start()
        self.ctl(
            "trace",
            "-p",
            str(thread.native_id),
            status=NOT_FOUND,
            stderr=f"gpuprobectl: -p: {thread.native_id} is a thread of process {os.getpid()}, whose number is wanted\n",
        )
        path, none = self.file("x", b"".join(basic())), "gpuprobectl: process {} has loaded no CUDA library so far\n".format
        self.ctl("trace", f"--cgroup={path}", "-p", str(os.getpid()), stderr=none(os.getpid()) + LOSS)
        pid = self.process_with("libcuda.so.1")
        self.ctl("trace", f"--cgroup={path}", "-p", pid, stderr=LOSS)
        for args in ["--nonsense"], ["-p"]:
            self.ctl("trace", *args, status=USAGE, stderr=None)

    def test_help(self):
        self.assertTrue(self.ctl("trace", "--help").startswith("Usage: gpuprobectl trace "))
        for args in ["hook", "--help"], ["hook", "list", "--help"], ["hook", "test", "--help"], ["hook", "status", "--help"]:
            self.assertTrue(self.ctl(*args).startswith("Usage: gpuprobectl hook "))


class Hooks(Case):
    def test_list(self):
        lines = self.ctl("hook", "list").splitlines()
        self.assertEqual(lines[0].split(), ["NAME", "SET", "STATE", "METHOD", "TARGET", "PURPOSE"])
        self.assertEqual(len(lines), 4)
        self.assertIn("nvidia:rm_?ioctl", lines[3])
        self.assertEqual(len(self.ctl("hook", "list", "driver").splitlines()), 3)
        self.assertEqual(json.loads(self.ctl("--json", "hook", "list", "xid"))["hooks"][0]["target"], "nvidia:nvidia_dev_xid")
        self.ctl("hook", "list", "a" * 256, status=ERROR, stderr=f"gpuprobectl: {'a' * 256}: longer than 255 bytes\n")
        self.ctl("hook", "list", "nothing", status=NOT_FOUND, stderr="gpuprobectl: there is no hook nothing; gpuprobectl hook list shows them\n")

    def test_status(self):
        text = self.ctl("hook", "status")
        self.assertIn("hooks: 1 attached, 1 available, 1 unavailable\n", text)
        self.assertRegex(text, r"ioctl +attached +raw-tracepoint +sys_enter +12 +no kprobes here\n")
        self.assertEqual(len(json.loads(self.ctl("--json", "hook", "status"))["hooks"]), 3)

    def test_test(self):
        self.file("command.last", b"".join([t.start(), t.stop()]))
        self.assertEqual(self.ctl("hook", "test", "xid", "--", "true", status=ERROR), "xid: not hit, by tracepoint at nvidia:nvidia_dev_xid\n")
        self.file("command.last", b"".join(basic()))
        self.assertEqual(self.ctl("hook", "test", "xid", "--", "true"), "xid: hit, by tracepoint at nvidia:nvidia_dev_xid\n")
        self.assertEqual(
            json.loads(self.ctl("--json", "hook", "test", "xid")), {"name": "xid", "hits": 8, "method": "tracepoint", "target": "nvidia:nvidia_dev_xid"}
        )
        self.assertEqual(json.loads(self.ctl("hook", "test", "xid", "--json", "--", "true", "--json"))["hits"], 8)
        self.assertEqual(json.loads(self.ctl("hook", "list", "xid", "--json"))["hooks"], json.loads(self.ctl("--json", "hook", "list", "xid"))["hooks"])
        for args, status, text in (
            (["nothing"], NOT_FOUND, "there is no hook nothing; gpuprobectl hook list shows them"),
            (["driver"], ERROR, "driver are 2 hooks; gpuprobectl hook list driver shows them"),
            (["nvidia:rm_\x1bioctl"], ERROR, "nvidia:rm_?ioctl: unavailable: this kernel has no kprobes"),
        ):
            self.ctl("hook", "test", *args, status=status, stderr=f"gpuprobectl: {text}\n")

    def test_usage(self):
        for args, text in (
            (["hook"], "hook: list or test or status?"),
            (["hook", "x"], "hook has no command x"),
            (["hook", "list", "a", "b"], "hook list takes one pattern, but got b too"),
            (["hook", "test"], "hook test: which hook?"),
            (["hook", "test", "a", "b"], "hook test takes one hook, but got b too; a CMD comes behind --"),
            (["hook", "test", "a", "--"], "hook test: which CMD?"),
            (["hook", "status", "x"], "hook status takes no argument, but got x"),
        ):
            self.usage(*args, text=text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
