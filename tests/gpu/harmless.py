# SPDX-License-Identifier: Apache-2.0
"""Programs that nobody wrote for us do under us what they do bare: a program a library, a feature of graphs, and a shape of program (programs/).

Each program prints its results exactly (integers, hashes of the bytes of arrays). It runs bare twice, then in each mode; outputs must be the same, byte by
byte. Only programs that are marked FLOAT may differ, in the modes of the PTX engine, and there in the lines that say so: their kernels are compiled again,
and probes change which products and sums become one instruction. They are compared with a bare run whose PTX the driver compiles (CUDA_FORCE_PTX_JIT=1,
the same compiler as in our worker), else within a tolerance ("close").

Every run has a daemon of its own, so that its counts, its log and its crash are its own. Runs of one mode go on side by side.
"""

import glob
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from session import Session, Skipped

PROGRAMS = Path(__file__).resolve().parent / "programs"
LIMIT = 60  # seconds a program may take
AT_LEAST = 25  # programs that can run on a GPU host
SKIPPED = 77
FLOAT = {"shapes/contraction", "libraries/curand_device"}
CONTEXT_DIES = {"shapes/device_assert"}  # what was counted, and the last kernels' times, die with it
# Programs of which a trace must have the time of each kernel: how many there are.
KERNELS = {
    "shapes/many_streams": 65,
    "shapes/callbacks": 8,
    "shapes/clusters": 3,
    "shapes/cooperative": 1,
    "shapes/surface": 2,
    "shapes/surface one": 1,
    "shapes/ipc": 2,
    "shapes/streams_events": 500,
    "shapes/nvrtc_atomics": 1,
}
FIRST_RESULTS = ("shapes/many_kernels", "shapes/many_modules", "libraries/tensor_f64", "libraries/cusolver")
GOOD = ("same", "as compiled again", "close", "skipped")

MODES = {
    "shim": {},  # preloaded, nothing is attached
    "ptx": {"attach": ("counter", "*", "--engine", "ptx"), "map": "counter"},
    "sass": {"options": ("--engine=sanitizer",), "attach": ("counter", "*", "--engine", "sanitizer"), "map": "counter"},
    "memory": {"attach": ("memory_histogram", "*", "--engine", "ptx"), "map": "accesses"},
    "traced": {"trace": True},
}


class Run:
    """What a command did: its output, its exit status (None: it hung and was killed), and how long it took."""

    def __init__(self, command, env, limit=LIMIT):
        start = time.monotonic()
        process = subprocess.Popen(
            [str(word) for word in command],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            self.out, self.err = process.communicate(timeout=limit)
            self.status = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            self.out, self.err = process.communicate()
            self.status = None
        self.ms = round(1e3 * (time.monotonic() - start), 1)
        told = re.search(r"^first result: ([\d.]+) ms$", self.err, re.MULTILINE)
        self.first_ms = float(told[1]) if told else None

    def missing(self):
        """What the program lacks on this machine, or None."""
        if self.status == SKIPPED:
            return self.out.strip().splitlines()[-1].removeprefix("skipped: ") if self.out.strip() else "77"
        library = re.search(r"error while loading shared libraries: ([^:]+)", self.err)
        return f"no {library[1]}" if self.status == 127 and library else None

    def trouble(self):
        """How it failed, or None."""
        if self.status is None:
            return {"result": "hung", "detail": (self.out + self.err)[-600:]}
        if self.status != 0:
            return {"result": "failed", "detail": f"exit {self.status}: {self.err.strip()[-600:] or self.out[-300:]}"}
        return None


def close(first, second):
    """Whether two values of a line "~32 name value" or "~64 name value" are the same but for the last bits."""
    bits, name, value = first.split(" ", 1)[0], first.rsplit(" ", 1)[0], float.fromhex(first.rsplit(" ", 1)[1])
    other = float.fromhex(second.rsplit(" ", 1)[1])
    return name == second.rsplit(" ", 1)[0] and abs(value - other) <= (2.0**-17 if bits == "~32" else 2.0**-44) * max(1.0, abs(value))


def compare(bare, other, may_be_close):
    """None if the outputs are the same; "" if they are close; else the first line that differs."""
    if bare == other:
        return None
    first, second = bare.splitlines(), other.splitlines()
    for one, two in zip(first, second):
        if one == two or may_be_close and one.startswith("float ") and one.split()[:-1] == two.split()[:-1]:
            continue
        if not (may_be_close and one.startswith("~") and two.startswith("~") and close(one, two)):
            return f"{two!r}, bare {one!r}"
    return "" if len(first) == len(second) else f"{len(second)} lines, bare {len(first)}: {second[-1:]}"


class Program:
    def __init__(self, name, command, toolkit=True):
        self.name, self.command = name, [str(word) for word in command]
        self.toolkit = toolkit  # it finds the toolkit's libraries where the harness says
        self.bare = self.again = self.compiled_again = None


def library_folders():
    """Where the libraries of the toolkit are on this machine: in the toolkit, then in Python's packages."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    pythons = [sys.executable, "/opt/torch/.venv/bin/python3"]
    found = [folder for folder in (f"{home}/lib64", "/usr/local/cuda/lib64") if os.path.isdir(folder)]
    for python in pythons:
        for packages in glob.glob(os.path.join(os.path.dirname(os.path.dirname(python)), "lib/python3*/*-packages")):
            found += sorted(glob.glob(f"{packages}/nvidia/*/lib") + glob.glob(f"{packages}/cutensor/lib"))
    return list(dict.fromkeys(found))


class Harmless:
    """The table of programs and modes."""

    def __init__(self, suite, programs, driver="", jobs=6, limit=LIMIT, modes=None, session_options=()):
        self.suite, self.programs, self.jobs, self.limit = suite, programs, jobs, limit
        self.driver = driver  # a folder with a driver that stands for the machine's
        self.modes = modes or MODES
        self.session_options = tuple(session_options)
        self.folders = library_folders()
        self.lock = threading.Lock()
        self.table = {program.name: {} for program in programs}

    def env(self, program, session=None, trace=False):
        env = dict(os.environ) if session is None or trace else session.app_env()
        folders = [self.driver, *(self.folders if program.toolkit else []), self.suite.libraries if trace else "", env.get("LD_LIBRARY_PATH", "")]
        env["LD_LIBRARY_PATH"] = ":".join(folder for folder in folders if folder)
        env["NCCL_NVLS_ENABLE"] = "0"  # what NVLS takes belongs to all users of the machine
        return env

    def session(self, *options):
        with self.lock:  # sessions are numbered
            return Session(self.suite, *self.session_options, *options)

    def run_bare(self, program):
        if not os.path.exists(program.command[0]):
            return {"result": "skipped", "detail": "it was not built: ninja gpu-programs"}
        program.bare = Run(program.command, self.env(program), self.limit)
        missing = program.bare.missing()
        if missing:
            return {"result": "skipped", "detail": missing}
        row = {"result": "same", "ms": program.bare.ms, "first_ms": program.bare.first_ms}
        row.update(program.bare.trouble() or {})
        if row["result"] != "same":
            return row
        program.again = Run(program.command, self.env(program), self.limit)
        if program.again.status != 0 or program.again.out != program.bare.out:
            row.update(result="unstable", detail=f"two bare runs differ: {compare(program.bare.out, program.again.out, False)}")
        return row

    def judge(self, program, run, mode):
        """What a run in a mode is, beside the bare one."""
        row = {"ms": run.ms, "first_ms": run.first_ms, "ratio": round(run.ms / max(1.0, min(program.bare.ms, program.again.ms)), 2)}
        trouble = run.trouble()
        if trouble:
            return {**row, **trouble}
        recompiled = program.name in FLOAT and "ptx" in MODES.get(mode, {}).get("attach", ())
        difference = compare(program.bare.out, run.out, recompiled)
        if difference is None:
            return {**row, "result": "same"}
        if recompiled:
            with self.lock:
                if not program.compiled_again:
                    program.compiled_again = Run(program.command, {**self.env(program), "CUDA_FORCE_PTX_JIT": "1"}, self.limit)
            if program.compiled_again.out == run.out:
                return {**row, "result": "as compiled again"}
        return {**row, "result": "differs", "detail": difference} if difference else {**row, "result": "close"}

    def run_attached(self, program, mode):
        how = self.modes[mode]
        with self.session(*how.get("options", ())) as session:
            if "attach" in how:
                session.attach(*how["attach"])
            run = Run(program.command, self.env(program, session), self.limit)
            row = self.judge(program, run, mode)
            if "attach" not in how:
                return row
            self.tell_count(session, how, row)
            if not row["count"] and row["result"] in GOOD and any("it goes on" in outcome["reason"] for outcome in row["outcomes"]):
                run = Run(program.command, self.env(program, session), self.limit)  # the daemon goes on compiling: for the next process
                row = {**self.judge(program, run, mode), "first_run": row}
                self.tell_count(session, how, row)
        if row["result"] in GOOD and not row["count"] and not row["outcomes"] and program.name not in CONTEXT_DIES:
            row.update(result="silent", detail="nothing was counted, and why says nothing")
        return row

    @staticmethod
    def tell_count(session, how, row):
        """Whether the probe fired, or what why says instead: each outcome and reason, and of how many kernels."""
        row["count"] = session.read(how["map"])
        kinds = {}
        for outcome in session.json("why")["outcomes"]:
            kind = outcome["outcome"], outcome.get("engine") or "", outcome["reason"]
            kinds[kind] = kinds.get(kind, 0) + 1
        row["outcomes"] = [{"outcome": kind[0], "engine": kind[1], "reason": kind[2][:300], "number": number} for kind, number in kinds.items()][:12]

    def run_traced(self, program, mode):
        with self.session() as session:
            file = self.suite.scratch / f"harmless-{session.name}.jsonl"
            run = Run(
                [self.suite.build / "ctl/gpuprobectl", f"--session={session.name}", "trace", "--gpu", "--format", "jsonl", "-o", file, "--", *program.command],
                self.env(program, trace=True),
                self.limit,
            )
            row = self.judge(program, run, mode)
        items = []
        for line in file.read_text().splitlines() if file.exists() else []:
            try:
                items.append(json.loads(line))
            except ValueError:
                row.update(result="failed", detail=f"the trace has a line that is no JSON: {line[:200]!r}")
        row["kernels"] = sum(item["type"] == "gpu" and bool(item.get("kernel")) for item in items)
        row["launches"] = sum(item.get("class") == "launch" for item in items)
        row["lost"] = sum(item.get("count", 0) for item in items if item["type"] == "lost")
        row["said"] = [line[:200] for line in run.err.splitlines() if not line.startswith("first result: ")][:5]
        file.unlink(missing_ok=True)
        if row["result"] not in GOOD or program.name in CONTEXT_DIES:
            return row
        if row["lost"]:
            row.update(result="lost", detail=f"{row['lost']} lost, {row['kernels']} kernels with times, {row['launches']} launches")
        elif program.name in KERNELS and row["kernels"] != KERNELS[program.name]:
            row.update(
                result="lost", detail=f"{row['kernels']} kernels with times, not {KERNELS[program.name]}; {row['launches']} launches; none is said to be lost"
            )
        return row

    def one(self, program, mode):
        try:
            if mode == "bare":
                row = self.run_bare(program)
            elif self.table[program.name]["bare"]["result"] != "same":
                row = {"result": "skipped", "detail": "see bare"}
            elif self.modes[mode].get("trace"):
                row = self.run_traced(program, mode)
            else:
                row = self.run_attached(program, mode)
        except Exception as problem:  # the others go on
            row = {"result": "failed", "detail": f"{type(problem).__name__}: {problem}"[-600:]}
        self.table[program.name][mode] = row

    def run(self, save=lambda: None):
        for mode in ("bare", *self.modes):
            start = time.monotonic()
            with ThreadPoolExecutor(self.jobs) as pool:
                list(pool.map(lambda program: self.one(program, mode), self.programs))
            print(f"      {mode}: {len(self.programs)} programs in {time.monotonic() - start:.1f} s", flush=True)
            save()
        return self.table

    def text(self):
        """The table for people: what each mode did, and its time by the bare one's (with others beside it: no measurement)."""
        lines = [f"{'program':32}{'bare ms':>9}  " + "".join(f"{mode:26}" for mode in self.modes)]
        for name, row in sorted(self.table.items()):
            line = f"{name:32}{row['bare'].get('ms', ''):>9}  "
            if row["bare"]["result"] != "same":
                lines.append(f"{line}{row['bare']['result']}: {row['bare'].get('detail', '')[:160]}")
                continue
            for mode in self.modes:
                cell = row.get(mode, {})
                told = "" if "map" not in self.modes[mode] else " fired" if cell.get("count") else " not fired"
                if "kernels" in cell:
                    told = f" {cell['kernels']} kernels"
                line += f"{cell.get('result', '')} x{cell.get('ratio', '')}{told} ".ljust(26)
            lines.append(line.rstrip())
        return "\n".join(lines)

    def problems(self):
        return [
            f"{name}, {mode}: {cell['result']}: {cell.get('detail', '')}"
            for name, row in sorted(self.table.items())
            for mode, cell in row.items()
            if cell["result"] not in GOOD
        ]


class HarmlessCode:
    def harmless_programs(self):
        """Those of programs/, built or not; the longest first."""
        names = [str(source.relative_to(PROGRAMS).with_suffix("")) for source in sorted(PROGRAMS.glob("*/*.cu"))]
        found = [Program(f"python/{script.stem}", [sys.executable, script], toolkit=False) for script in sorted(PROGRAMS.glob("python/*.py"))]
        found += [Program(name, [self.program(name.replace("/", "-"))]) for name in [*names, "library", "groups", "hopper", "memory", "child"]]
        found.append(Program("shapes/surface one", [self.program("shapes-surface"), "one"]))
        return [program for program in found if not self.only_programs or any(part in program.name for part in self.only_programs)]

    def harmless(self, programs):
        return Harmless(self, programs)

    def test_harmless(self):
        """All programs in all modes; --programs takes parts of names."""
        harmless = self.harmless(self.harmless_programs())
        if not harmless.programs:
            raise Skipped("--programs names none")
        self.benchmarks["harmless"] = harmless.table
        harmless.run(self.save)
        print(harmless.text(), flush=True)
        problems = harmless.problems()
        ran = sum(row["bare"]["result"] == "same" for row in harmless.table.values())
        if ran < (1 if self.only_programs else AT_LEAST):
            problems.append(f"only {ran} programs could run here")
        if problems:
            raise AssertionError(f"{len(problems)} runs are not as bare:\n" + "\n".join(problems))

    def bench_harmless_first_results(self, rounds=3):
        """Milliseconds from the start of a program to its first result, bare and with a counter at every kernel; alone on the machine, interleaved.

        Cold: neither the driver nor the daemon has compiled anything. Warm: the same program again, when the daemon is idle. Counts are of both runs."""
        programs = [program for program in self.harmless_programs() if program.name in FIRST_RESULTS]
        if not programs:
            raise Skipped("--programs names none of " + ", ".join(FIRST_RESULTS))
        harmless = self.harmless(programs)
        table = self.benchmarks["harmless_first_results"] = {}
        problems = []
        for _ in range(rounds):
            for program in programs:
                self.first_results(harmless, program, table.setdefault(program.name, {}), problems)
                self.save()
        for name, row in table.items():
            medians = {key: statistics.median(values) for key, values in row.items() if not key.startswith("count")}
            cells = [f"{key} {value:.0f} ms (x{value / max(0.1, medians.get('bare ' + key.split()[1], value)):.2f})" for key, value in medians.items()]
            print(
                f"      {name}: "
                + ", ".join(cells)
                + "; counted: "
                + ", ".join(f"{key[6:]} {values}" for key, values in row.items() if key.startswith("count")),
                flush=True,
            )
        if problems:
            raise AssertionError("\n".join(problems))

    def first_results(self, harmless, program, row, problems):
        def took(key, env):
            run = Run(program.command, env, harmless.limit)
            trouble = run.trouble()
            if trouble or run.first_ms is None:
                problems.append(f"{program.name}, {key}: {trouble or 'no first result'}")
            else:
                row.setdefault(key, []).append(run.first_ms)

        uncached = {"CUDA_CACHE_DISABLE": "1"}
        took("bare cold", {**harmless.env(program), **uncached})
        took("bare warm", harmless.env(program))
        for mode in "shim", "ptx", "sass":
            how = MODES[mode]
            with harmless.session(*how.get("options", ())) as session:
                if "attach" in how:
                    session.attach(*how["attach"])
                for temperature, settings in ("cold", uncached), ("warm", {}):
                    took(f"{mode} {temperature}", {**harmless.env(program, session), **settings})
                    if "map" in how:
                        row.setdefault(f"count {mode} {temperature}", []).append(session.read(how["map"]))
                    self.wait_for_compilers(session)

    @staticmethod
    def wait_for_compilers(session, seconds=90):
        """Until the daemon compiles nothing any more: its workers do no work."""
        pid, deadline, before, quiet = session.daemon.pid, time.monotonic() + seconds, None, 0
        while quiet < 4 and time.monotonic() < deadline:
            now = 0
            for path in glob.glob(f"/proc/{pid}/task/*/children"):
                for child in Path(path).read_text().split():
                    try:
                        now += sum(map(int, Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))
                    except OSError:
                        pass
            quiet = quiet + 1 if now == before else 0
            before = now
            time.sleep(0.1)
