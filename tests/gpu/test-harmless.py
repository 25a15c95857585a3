#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""harmless.py tells what it should of programs that behave, and of ones that differ, fail, hang or miss something; on the CPU driver.

test-harmless.py BUILD
"""

import contextlib
import io
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parent.parent))
import built  # noqa: E402
from harmless import FIRST_RESULTS, MODES, Harmless, HarmlessCode, Program, close, compare
from session import expect

BUILD = Path(sys.argv[1]).resolve()
SIM = BUILD / "tests/sim"
NEEDED = [
    "daemon/gpuprobed/gpuprobed",
    "ctl/gpuprobectl",
    "shim/libgpuprobe-shim.so",
    "docs/counter.bpf.o",
    "docs/memory_histogram.bpf.o",
    "tests/sim/libcuda.so.1",
    "tests/sim/vec_add_driver",
    "tests/sim/sanitizer/libsanitizer-public.so",
    "daemon/worker/libgpuprobe-ptxcompiler.so",
]

# Whether a script runs preloaded; gpuprobectl trace does that, too.
SCRIPTS = {
    "same": "echo one; echo 'first result: 1.5 ms' >&2",
    "differs": 'echo one; echo "preload ${LD_PRELOAD:+is} set"',
    "fails": 'echo one; [ -z "$LD_PRELOAD" ] || { echo broken >&2; exit 3; }',
    "unstable": "echo $$",
    "skips": "echo 'skipped: no libfoo.so'; exit 77",
    "lacks": 'echo "$0: error while loading shared libraries: libfoo.so.1: cannot open shared object file" >&2; exit 127',
    "broken": "exit 1",
    "not built": None,
    # Of the programs that are marked FLOAT: one whose last bit changes, and one that is as the driver compiles it again.
    "shapes/contraction": '[ "$LD_PRELOAD" ] && x=0x1.000001p+1 y=2 || { x=0x1p+1; y=1; }; echo "float x $y"; echo "~32 x $x"',
    "libraries/curand_device": '[ "$LD_PRELOAD$CUDA_FORCE_PTX_JIT" ] && x=0x1p+9 || x=0x1p+1; echo "~32 x $x"',
}


class Suite(HarmlessCode):
    """What harmless.py needs of the GPU suite, on the CPU driver."""

    build, libraries, save, only_programs = BUILD, None, staticmethod(lambda: None), ["good", "bad"]

    def __init__(self, scratch, programs=()):
        self.scratch, self.benchmarks, self.harmless_programs = Path(scratch), {}, lambda: list(programs)

    def object(self, name):
        return BUILD / "docs" / f"{name}.bpf.o"

    def tool_env(self):
        return {**os.environ, "LD_LIBRARY_PATH": str(SIM)}

    def harmless(self, programs, **more):
        return Harmless(
            self, programs, driver=str(SIM), jobs=2, session_options=(f"--sanitizer={SIM}/sanitizer/libsanitizer-public.so", "--deadline-ms=20000"), **more
        )


def run(scratch, programs, **more):
    table = Suite(scratch).harmless(programs, **more)
    table.run()
    print(table.text())
    return table


def vec_add(name):
    """A program of the driver; how long it took is no result."""
    return Program(name, ["/bin/sh", "-c", f"{SIM}/vec_add_driver --threads 1024 --launches 3 | sed 's/first_us=[0-9]*//' && echo 'first result: 2.5 ms' >&2"])


def test_compare():
    expect("same", compare("a\n", "a\n", False), None)
    expect("another line", bool(compare("a\n", "b\n", True)), True)
    expect("fewer lines", bool(compare("a\nb\n", "a\n", True)), True)
    expect("float line", compare("float x 1\n~32 x 0x1p+1\n", "float x 2\n~32 x 0x1.000001p+1\n", True), "")
    expect("another label", bool(compare("float x 1\n", "float y 2\n", True)), True)
    expect("exact", bool(compare("float x 1\n", "float x 2\n", False)), True)
    expect("close", close("~32 x 0x1p+1", "~32 x 0x1.000001p+1"), True)
    expect("not close in double precision", close("~64 x 0x1p+1", "~64 x 0x1.000001p+1"), False)


def test_scripts(scratch):
    """No CUDA in them: nothing is counted, and why says nothing."""
    programs = [Program(name, ["/bin/sh", "-c", script] if script else ["/no/such/program"]) for name, script in SCRIPTS.items()]
    table = run(scratch, programs, modes={mode: MODES[mode] for mode in ("shim", "ptx", "traced")})
    got = {name: [row[mode]["result"] for mode in ("bare", "shim", "ptx", "traced")] for name, row in table.table.items()}
    expect(
        "results",
        got,
        {
            "same": ["same", "same", "silent", "same"],
            "differs": ["same", "differs", "differs", "differs"],
            "fails": ["same", "failed", "failed", "failed"],
            "unstable": ["unstable", "skipped", "skipped", "skipped"],
            "skips": ["skipped"] * 4,
            "lacks": ["skipped"] * 4,
            "not built": ["skipped"] * 4,
            "broken": ["failed", "skipped", "skipped", "skipped"],
            "shapes/contraction": ["same", "differs", "silent", "differs"],
            "libraries/curand_device": ["same", "differs", "silent", "differs"],
        },
    )
    expect("how float ones were compared", [table.judge(program, program.compiled_again, "ptx")["result"] for program in programs[-1:]], ["as compiled again"])
    expect("first result", table.table["same"]["shim"]["first_ms"], 1.5)
    expect("what is missing", [table.table[name]["bare"]["detail"] for name in ("skips", "lacks")], ["no libfoo.so", "no libfoo.so.1"])
    expect("problems", len(table.problems()), 15)


def test_hung(scratch):
    program = Program("hangs", ["/bin/sh", "-c", '[ -z "$LD_PRELOAD" ] || sleep 1000 & wait'])
    table = run(scratch, [program], modes={"shim": {}}, limit=10)
    expect("hung", table.table["hangs"]["shim"]["result"], "hung")


def test_cuda(scratch):
    """A program of the driver, in all modes: the probes fire, and its kernels have times."""
    row = run(scratch, [vec_add("vec_add_driver")]).table["vec_add_driver"]
    expect("results", {mode: (row[mode]["result"], row[mode].get("detail")) for mode in row}, {mode: ("same", None) for mode in ("bare", *MODES)})
    expect("counts", {mode: row[mode]["count"] for mode in ("ptx", "sass", "memory")}, {"ptx": 3072, "sass": 3072, "memory": 3 * 3072})
    expect("kernels with times", (row["traced"]["kernels"], row["traced"]["lost"]), (3, 0))


def test_suite(scratch):
    """As the GPU suite calls it: a good program, a bad one, and the table of first results."""
    Suite(scratch, [vec_add("good")]).test_harmless()
    try:
        Suite(scratch, [vec_add("good"), Program("bad", ["/bin/sh", "-c", SCRIPTS["differs"]])]).test_harmless()
    except AssertionError as problem:
        expect("said", str(problem).splitlines()[0], "5 runs are not as bare:")
    else:
        raise AssertionError("a program that differs was taken for a good one")
    suite = Suite(scratch, [vec_add("good")])
    suite.only_programs = []
    try:
        suite.test_harmless()
    except AssertionError as problem:
        expect("said", str(problem).splitlines()[1], "only 1 programs could run here")
    else:
        raise AssertionError("a GPU host without the programs was taken for a good one")
    suite = Suite(scratch, [vec_add(FIRST_RESULTS[0])])
    with contextlib.redirect_stdout(io.StringIO()) as said:
        suite.bench_harmless_first_results(rounds=1)
    print(said.getvalue())
    row = suite.benchmarks["harmless_first_results"][FIRST_RESULTS[0]]
    expect(
        "times",
        {key: values for key, values in row.items() if not key.startswith("count")},
        {f"{mode} {temperature}": [2.5] for mode in ("bare", "shim", "ptx", "sass") for temperature in ("cold", "warm")},
    )
    expect(
        "counts",
        {key: values for key, values in row.items() if key.startswith("count")},
        {f"count {mode} {temperature}": [3072 * runs] for mode in ("ptx", "sass") for temperature, runs in (("cold", 1), ("warm", 2))},
    )
    expect("said", FIRST_RESULTS[0] in said.getvalue(), True)
    try:
        Suite(scratch, [Program(FIRST_RESULTS[0], ["/bin/sh", "-c", SCRIPTS["fails"]])]).bench_harmless_first_results(rounds=1)
    except AssertionError as problem:
        expect("failed runs", len(str(problem).splitlines()), 8)
    else:
        raise AssertionError("programs without a first result were taken for good ones")


def main():
    built.need(BUILD, *NEEDED)
    test_compare()
    with tempfile.TemporaryDirectory(prefix="gpuprobe-harmless-") as scratch:
        for test in test_scripts, test_hung, test_cuda, test_suite:
            test(scratch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
