#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpuprobectl trace as a user has it: a private daemon, programs on the CPU driver, calls by the shim."""

import csv
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time

from harness import BUILD, CTL, GPU, GPUPROBED, SHIM, SIM, VEC_ADD, Daemon, check, equal, main, need, wait_until
from live import LIVE, Live

need(GPUPROBED, CTL, SHIM, VEC_ADD, LIVE)
DAEMON = os.path.join(BUILD, "tests/targets/s-daemon")
SHAPES = os.path.join(BUILD, "tests/targets/s-shapes")
LAUNCHES = 5
RUN = ["--", VEC_ADD, "--threads", "64", "--launches", str(LAUNCHES)]
CALLS = {
    "cuInit": 1,
    "cuMemAlloc_v2": 3,
    "cuMemcpyHtoD_v2": 2,
    "cuModuleLoadData": 1,
    "cuModuleGetFunction": 1,
    "cuLaunchKernel": LAUNCHES,
    "cuMemcpyDtoH_v2": 1,
    "cuMemFree_v2": 3,
}


class Folder:
    """A folder to run in, and a daemon."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="test-trace-command-")
        self.daemon = Daemon()
        self.daemon.__enter__()
        return self

    def __exit__(self, *why):
        self.folder.cleanup()
        self.daemon.__exit__(*why)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def start(self, *arguments, backend="shim", **environment):
        return subprocess.Popen(
            [CTL, f"--session={self.daemon.name}", "trace", f"--backend={backend}", *arguments],
            cwd=self.folder.name,
            text=True,
            bufsize=0,
            env=self.daemon.environment(**self.daemon.tools(), **environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def trace(self, *arguments, status=0, backend="shim", **environment):
        process = self.start(*arguments, backend=backend, **environment)
        out, err = process.communicate(timeout=60)
        equal(process.returncode, status, f"trace {arguments}: {out}{err}")
        return out, err

    def lines(self, name):
        with open(self.path(name)) as file:
            return [json.loads(line) for line in file]


def calls(lines):
    return [line for line in lines if line["type"] == "userspace"]


def count(names):
    names = list(names)
    return {name: names.count(name) for name in CALLS}


def test_ctxsw():
    """Context switches and clocks of a GPU, which gpuprobectl reads itself, among what the daemon sends, to the end of the trace."""
    double = os.path.join(BUILD, "ctl/rm/libfake-driver.so")
    need(double)
    with Folder() as folder:
        with open(folder.path("records"), "wb") as file:  # the second context stays
            for sequence, (tag, time_ns) in enumerate([(6, 1000), (7, 2000), (6, 3000)]):
                file.write(struct.pack("<HHIBBHIIHBBQ", 2, 0, 0, tag, 0, sequence, 0x35, 2**31 - 1, 0, 255, 255, time_ns))
        preload = " ".join(filter(None, [os.environ.get("LD_PRELOAD"), double]))
        out, err = folder.trace("--ctxsw", "--gpu", "-o", "x.jsonl", *RUN, LD_PRELOAD=preload, FAKE_DRIVER=f"records={folder.path('records')}")
        check("not traced" not in err, err)
        lines = folder.lines("x.jsonl")
        equal(lines[-1], {"type": "stop", "events": len(lines) - 2, "lost": 0})
        equal(count(call["name"] for call in calls(lines)), CALLS)
        contexts = [line for line in lines if line["type"] == "ctxsw"]
        # the first one is seen if the driver's buffer was there after the beginning of the trace
        equal([(line["name"], line["phase"]) for line in contexts][-2:], [("pid[2147483647]", "X"), ("pid[2147483647]", "B")][-len(contexts) :])
        last = max(line["ts_ns"] + line.get("dur_ns", 0) for line in calls(lines))
        check(contexts[-1]["ts_ns"] + contexts[-1]["dur_ns"] > last, last)
        check(sum(line["type"] == "clock" and "pid" not in line for line in lines) >= 1, "clocks")


def test_jsonl():
    """Every call of a program from its first one on, in order, with arguments, names and results."""
    with Folder() as folder:
        out, err = folder.trace("-o", "x.jsonl", *RUN)
        check("PASS" in out and "lost" not in out, out)
        check(re.search(r"^\d+ events, 0 lost, \d+\.\d s, x.jsonl$", err, re.M), err)
        lines = folder.lines("x.jsonl")
        equal((lines[0]["type"], lines[-1]["type"], lines[-1]["lost"]), ("start", "stop", 0))
        lines = lines[1:-1]
        equal([line["event_id"] for line in lines], list(range(1, len(lines) + 1)))
        equal([line["ts_ns"] for line in lines], sorted(line["ts_ns"] for line in lines), "starts")
        made = calls(lines)
        equal(count(call["name"] for call in made), CALLS)
        equal((made[0]["name"], made[0]["comm"], {call["source"] for call in made}), ("cuInit", "vec_add_driver", {"shim"}))
        equal({call["ret_name"] for call in made}, {"CUDA_SUCCESS"})
        equal({call["kernel"] for call in made if call["name"] == "cuLaunchKernel"}, {"_Z9vectorAddPKfS0_Pf"})
        sizes = [call["size"] for call in made if call["name"] in ("cuMemAlloc_v2", "cuMemcpyHtoD_v2")]
        equal(len(set(sizes)), 1, sizes)
        pointers = {call["out"]["dptr"] for call in made if call["name"] == "cuMemAlloc_v2"}
        equal(pointers, {call["args"]["dptr"] for call in made if call["name"] == "cuMemFree_v2"}, "freed")
        equal(lines[-1]["name"], "exit")


def test_daemons():
    """All that a program calls in the background, at once: whoever started it has ended by then."""
    need(DAEMON)
    with Folder() as folder:
        for mode in "fork", "clone", "exec", "clear":
            for _ in range(3):
                folder.trace("-e", "all", "-o", "x.jsonl", "--", DAEMON, mode, "20")
                lines = folder.lines("x.jsonl")
                names = [call["name"] for call in calls(lines)]
                equal((names, len(names) + lines[-1]["lost"]), ((["cuInit"] + ["cuDeviceGet"] * 20)[: len(names)], 21), mode)
        out, err = folder.trace("-o", "x.jsonl", "--", "sh", "-c", "echo $GPUPROBE_TRACE $$")
        told, own = out.split()
        equal(told, own, "the command's own number, which all that it starts inherit")


def test_times():
    """All kernels of short programs have their times, however they launch and end."""
    need(SHAPES)
    with Folder() as folder:
        for shape, end in [(shape, end) for shape in ("one", "streams", "callbacks", "cooperative", "events") for end in ("return", "exit", "wait")] + [
            ("streams", "reset"),
            ("streams", "release"),
            ("one", "reset"),
        ]:
            out, err = folder.trace("--gpu", "-o", "x.jsonl", "--", SHAPES, shape, end)
            lines = folder.lines("x.jsonl")
            launched = [(call["tid"], call["name"]) for call in calls(lines) if "Launch" in call["name"] and "HostFunc" not in call["name"]]
            if lines[-1]["lost"]:  # on a machine that is so busy that the daemon gets no time
                check(len(launched) + sum(line["type"] == "gpu" for line in lines) + lines[-1]["lost"] >= 2 * int(out.split()[1]), shape, end, lines[-1])
                continue
            equal((f"launches {len(launched)}\n", sum(line["type"] == "gpu" for line in lines)), (out, len(launched)), f"{shape} {end}: {err}")
            check(not any(line["type"] == "note" for line in lines) and "unknown" not in err, shape, end, err)


def test_first_calls():
    """Several threads make the first calls of a process: each is in the trace, or counted."""
    need(DAEMON)
    with Folder() as folder:
        for _ in range(5):
            folder.trace("-e", "all", "-o", "x.jsonl", "--", DAEMON, "threads", "40")
            lines = folder.lines("x.jsonl")
            equal(len(calls(lines)) + lines[-1]["lost"], 8 * 41)
            check(len(calls(lines)) == 8 * 41 or lines[-1]["lost"], lines[-1])


def test_formats():
    """The same program in all formats."""
    with Folder() as folder:
        out, err = folder.trace(*RUN)
        check("PASS" in out, out)
        equal(count(re.findall(r"^\d\d:\d\d:\d\d\.\d{6} vec_add_driver\[\d+\] (cu\w+)\(.*\) = CUDA_SUCCESS <[\d.]+[mun]?s>$", err, re.M)), CALLS, err)
        folder.trace("-k", "-e", "launch", "-o", "x.jsonl", *RUN)
        for call in calls(folder.lines("x.jsonl")):
            check(re.search(r"^vec_add_driver\+0x[0-9a-f]+ \(launch_one\+0x[0-9a-f]+\)$", call["stack"][0]), call["stack"])
            check(any("(main+0x" in frame for frame in call["stack"]), call["stack"])
        out, err = folder.trace("-c", "-s", *RUN)
        rows = {row[-1]: (int(row[2]), int(row[3])) for row in (line.split() for line in err.splitlines()) if row and row[0] == "call"}
        equal({name: rows[name] for name in CALLS}, {name: (n, 0) for name, n in CALLS.items()})
        check(f"  Kernel launches: {LAUNCHES}\n  Memory allocations: 3\n" in err, err)
        folder.trace("--format=jsonl-seed", "-o", "seed.jsonl", *RUN)
        lines = folder.lines("seed.jsonl")
        for phase in "BE":
            equal(count(line["name"] for line in lines if line.get("phase") == phase), CALLS)
        equal([line["ts"] for line in lines], sorted(line["ts"] for line in lines))
        folder.trace("-o", "x.csv", *RUN)
        with open(folder.path("x.csv")) as file:
            equal(count(row["name"] for row in csv.DictReader(file)), CALLS)
        for name in "x.gtrc", "x.json", "x.pftrace", "x.folded":
            folder.trace("-o", name, *RUN)
            check(os.path.getsize(folder.path(name)) > 100, name)
        report = subprocess.run(
            [CTL, "trace", "report", folder.path("x.gtrc")],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env=folder.daemon.environment(**folder.daemon.tools()),
        ).stdout
        check(f"Kernel launches: {LAUNCHES}" in report, report)
        folder.trace("--save", *RUN)
        equal(count(call["name"] for call in calls(folder.lines("traces/trace_latest.jsonl"))), CALLS)


def table(text):
    """Rows of -c: calls, errors, the sum of bytes."""
    return {row[-1]: (row[2], row[3], row[10]) for row in (line.split() for line in text.splitlines()) if row and row[0] == "call"}


def test_counted():
    """A table of calls that were counted, by the kernel and by the daemon, is that of the records of the same program."""
    with Folder() as folder:
        for backend in ("bpf", "shim"):
            err = folder.trace("-c", "-s", "--hist", *RUN, backend=backend)[1]
            if "bpf: " in err:
                continue  # not root, or no such kernel
            folder.trace("-o", "x.gtrc", *RUN, backend=backend)
            report = [CTL, "trace", "report", folder.path("x.gtrc")]
            records = subprocess.run(
                [*report, "--format=table"], capture_output=True, text=True, timeout=60, check=True, env=folder.daemon.environment(**folder.daemon.tools())
            ).stdout
            equal({name: table(err)[name] for name in CALLS}, {name: table(records)[name] for name in CALLS}, backend)
            equal({name: int(table(err)[name][0]) for name in CALLS}, CALLS, backend)
            check(f"  Kernel launches: {LAUNCHES}\n  Memory allocations: 3\n" in err and "  Memory transfers: 3\n" in err, err)
            bars = re.search(r"^cuLaunchKernel:\n((?:\[.*\n)+)", err, re.M)
            equal(sum(int(line.split()[2]) for line in bars[1].splitlines()), LAUNCHES, err)


def test_without_shim():
    """A command whose processes do without the shim: that nothing was seen is said."""
    if GPU:
        return  # its program needs the simulated driver
    with Folder() as folder:
        library = f"LD_LIBRARY_PATH={SIM}"
        for command in ["env", "-i"], ["sh", "-c", 'setsid env -i "$@" & wait', "sh"]:
            out, err = folder.trace("-o", "x.jsonl", "--", *command, library, *RUN[1:], backend="auto")
            check("PASS" in out, out)
            equal(calls(folder.lines("x.jsonl")), [])
            equal([line for line in err.splitlines() if "no call was traced" in line and "--backend=bpf sees those" in line][1:], [], err)
            check("no call was traced" in err, err)
        out, err = folder.trace("-o", "x.jsonl", *RUN, backend="auto")
        check("no call was traced" not in err and "not traced" not in err, err)


def test_new_library():
    """eBPF: of a libcuda that is new to the trace calls are missing, and that is said, whether the program ended meanwhile or not."""
    if GPU:
        return  # the driver's library does not work from elsewhere
    with Folder() as folder:
        out, err = folder.trace("-o", "x.jsonl", *RUN, backend="bpf")
        if "calls of processes without the shim are not seen" in err or not calls(folder.lines("x.jsonl")):
            return  # this machine does not let its daemon probe programs
        os.mkdir(folder.path("new"))
        shutil.copy(os.path.join(SIM, "libcuda.so.1"), folder.path("new/libcuda.so.1"))
        # When the daemon looks at it: after it has ended, or in the midst of it. A busy machine may do that sooner; once in ten times is enough.
        for sleep in 0, 1000:
            wanted = (1, False, sleep > 0)
            for _ in range(10):
                out, err = folder.trace(
                    "-o", "x.jsonl", "--", "env", f"LD_LIBRARY_PATH={folder.path('new')}", *RUN[1:], "--sleep-ms", str(sleep), backend="bpf"
                )
                names = {call["name"] for call in calls(folder.lines("x.jsonl"))}
                said = [
                    line for line in err.splitlines() if f"not traced: bpf: {folder.path('new/libcuda.so.1')}: new to this trace" in line and "missing" in line
                ]
                check(len(said) == 1 or not sleep, err)
                got = (len(said), "cuInit" in names, bool(names))
                if got == wanted:
                    break
            equal(got, wanted, err)


def test_exec():
    """Calls are of the program that made them, not of the one that executed it."""
    with Folder() as folder:
        for backend in ("bpf", "shim"):
            err = folder.trace("-o", "x.jsonl", "--", "sh", "-c", f"exec {' '.join(RUN[1:])}", backend=backend)[1]
            if "bpf: " in err and not calls(folder.lines("x.jsonl")):
                continue  # not root, or no such kernel
            equal({(call["comm"], call.get("thread")) for call in calls(folder.lines("x.jsonl"))}, {("vec_add_driver", None)}, backend)


def test_chosen():
    """What -e, --errors and --sample leave."""
    with Folder() as folder:
        folder.trace("-e", "cuMem*,!cuMemFree*,launch", "-o", "x.jsonl", *RUN)
        names = {call["name"] for call in calls(folder.lines("x.jsonl"))}
        check({"cuMemAlloc_v2", "cuMemcpyHtoD_v2", "cuLaunchKernel"} <= names and not {"cuMemFree_v2", "cuInit", "cuModuleLoadData"} & names, names)
        folder.trace("--errors", "-o", "x.jsonl", *RUN)
        equal(calls(folder.lines("x.jsonl")), [])
        out, err = folder.trace("-e", "cuNothing*", *RUN, status=2)
        check("-e: " in err and "cuNothing*" in err and "PASS" not in out, err)


def test_status():
    """The program's exit status and signals are ours, its input and output its own."""
    with Folder() as folder:
        folder.trace("-o", "x.jsonl", "--", "sh", "-c", "exit 3", status=3)
        folder.trace("-o", "x.jsonl", "--", "sh", "-c", "kill -9 $$", status=137)
        process = folder.start("-o", "x.jsonl", "--", LIVE)
        equal(process.stdout.readline(), "ok\n")
        process.stdin.write("load 0\nlaunch 0 vectorAdd 7\n")
        equal([process.stdout.readline().split()[0] for _ in range(2)], ["ok", "ok"])
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
        equal(process.returncode, 128 + signal.SIGTERM)
        lines = folder.lines("x.jsonl")
        equal(count(call["name"] for call in calls(lines))["cuLaunchKernel"], 7)
        equal(lines[-1]["type"], "stop")
        for stream in process.stdin, process.stdout, process.stderr:
            stream.close()


def test_signals():
    """Signals are to the program what they were to us; a reader of lines that goes away ends the trace quietly, and a program goes on."""
    with Folder() as folder, Live(folder.daemon) as live:
        command = f"trap '' PIPE CHLD; exec {CTL} trace --backend=shim -o x.jsonl -- grep SigIgn /proc/self/status"
        done = subprocess.run(
            ["sh", "-c", command], cwd=folder.folder.name, env=folder.daemon.environment(**folder.daemon.tools()), capture_output=True, text=True
        )
        ignored = int(done.stdout.split()[1], 16)
        check(ignored >> signal.SIGPIPE - 1 & 1, done.stdout, done.stderr)
        out, _ = folder.trace("-o", "x.jsonl", "--", "grep", "SigIgn", "/proc/self/status")
        check(not int(out.split()[1], 16) >> signal.SIGPIPE - 1 & 1, out)
        process = folder.start("-p", str(live.pid), "-e", "launch")
        time.sleep(1)
        live.launch(1)
        check("cuLaunchKernel(" in process.stdout.readline(), "a line while it runs")
        process.stdout.close()
        live.launch(1)
        equal((process.wait(timeout=60), process.stderr.read()), (-signal.SIGPIPE, ""))
        process.stdin.close()
        process.stderr.close()
        process = folder.start("-o", "-", "--", "sh", "-c", "exec >&2; read line; exit 3")  # its standard output is ours as well
        process.stdout.close()
        process.stdin.write("\n")
        process.stdin.close()
        equal((process.wait(timeout=60), process.stderr.read()), (3, ""))
        process.stderr.close()


def test_stalled():
    """A daemon that does not end the trace when the program has ended: that is said, and the trace is no complete one."""
    with Folder() as folder:
        process = folder.start("--save", "--", "sh", "-c", f"{VEC_ADD} --threads 64 --launches 1; echo; read line")
        process.stdout.readline()
        wait_until(lambda: process.stdout.readline() == "\n", "it has called")
        time.sleep(0.2)
        folder.daemon.process.send_signal(signal.SIGSTOP)
        process.stdin.write("\n")
        _, err = process.communicate(timeout=60)
        folder.daemon.process.send_signal(signal.SIGCONT)
        equal(process.returncode, 3, err)
        check("gpuprobectl: the daemon does not end the trace: what happened last is missing" in err, err)
        (name,) = os.listdir(folder.path("traces"))  # and no trace_latest
        check(folder.lines("traces/" + name)[-1]["type"] != "stop", name)


def test_running():
    """A process that runs already; Ctrl-C ends the trace, with all that had happened, and the process goes on."""
    with Folder() as folder, Live(folder.daemon) as live:
        process = folder.start("-p", str(live.pid), "-e", "launch", "-o", "x.gtrc")
        wait_until(lambda: os.path.exists(folder.path("x.gtrc")), "the trace begins")
        time.sleep(0.5)
        live.launch(100)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        equal((process.returncode, out), (0, ""), err)
        check("100 events, 0 lost" in err, err)
        live.launch(1)
        process = folder.start("-p", str(live.pid), "-e", "launch")
        time.sleep(1)
        live.launch(3)
        line = process.stdout.readline()
        check("cuLaunchKernel(vectorAdd" in line, "a line while it runs:", line)
        process.send_signal(signal.SIGINT)
        equal(process.stdout.read().count("cuLaunchKernel("), 2)
        equal(process.wait(timeout=60), 0)
        for stream in process.stdin, process.stdout, process.stderr:
            stream.close()


def test_hook():
    """A hook that needs no driver is tested, where the daemon may attach it."""
    with Folder() as folder:
        hooks = {hook["name"]: hook for hook in folder.daemon.json("hook", "list")["hooks"]}
        check({"ioctl", "xid", "process"} <= set(hooks), hooks)
        if hooks["process"]["state"] == "available":
            check(folder.daemon.ctl("hook", "test", "process", "--", "true").startswith("process: hit, by "), "hook test")
        check("hooks: 0 attached, " in folder.daemon.ctl("hook", "status"), "hook status")


if __name__ == "__main__":
    main(
        [
            test_jsonl,
            test_daemons,
            test_first_calls,
            test_times,
            test_ctxsw,
            test_formats,
            test_counted,
            test_without_shim,
            test_new_library,
            test_exec,
            test_chosen,
            test_status,
            test_signals,
            test_stalled,
            test_running,
            test_hook,
        ]
    )
