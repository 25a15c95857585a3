#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
How many kernels of libraries get machine-code twins with a counter at their entry and exits, what that costs in registers, and why the others get none. By hand.

usage: survey.py BUILD [--arch sm_90] [--cuobjdump PATH] [--compare NVDISASM] LIBRARY|FOLDER_OF_CUBINS...
--compare has test-rewrite.py compare each twin with its original; that takes minutes for a large library.
"""

import argparse
import collections
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
TWIN = re.compile(r"^(\S+): block \d+ at \d+, registers (\d+) -> (\d+), exits (\d+)$")
REFUSED = re.compile(r"^(\S+): no twin: (.*)$")
GRANULE = 8  # registers of a thread are handed out in so many


def extract(options, library, folder):
    if library.is_dir():
        return sorted(library.rglob("*.cubin"))
    subprocess.run(
        [options.cuobjdump, "-arch", options.arch, "-xelf", "all", library.resolve()],
        cwd=folder,
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return sorted(Path(folder).glob("*.cubin"))


def one(options, probe, cubin):
    """Lines of sass-tool about a cubin, and what is wrong with its twins, or None."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as out:
        tool = options.build / "daemon/worker/sass/sass-tool"
        said = subprocess.run([tool, "twin", cubin, out.name, "--all", "--entry", probe, "--exit", probe], capture_output=True, text=True, check=False)
    wrong = None if said.returncode in (0, 3) else said.stderr
    if options.compare and not wrong:
        result = subprocess.run(
            [sys.executable, HERE / "test-rewrite.py", tool, options.nvcc, options.compare, cubin], capture_output=True, text=True, check=False
        )
        wrong = result.stderr[-300:] if result.returncode else None
    return said.stdout.splitlines(), wrong


def survey(options, probe, library):
    count, reasons = collections.Counter(), collections.Counter()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        cubins = extract(options, library, folder)
        for cubin, (lines, wrong) in zip(cubins, pool.map(lambda path: one(options, probe, path), cubins), strict=True):
            if wrong:
                count["wrong"] += 1
                print(f"   WRONG {cubin.name}: {wrong}")
            for line in lines:
                if twin := TWIN.match(line):
                    before, after = int(twin[2]), int(twin[3])
                    count["twins"] += 1
                    count["with more registers"] += after > before
                    count["with more registers in what is handed out"] += -(-after // GRANULE) > -(-before // GRANULE)
                elif refused := REFUSED.match(line):
                    reasons[re.sub(r"\([0-9a-f]+ [0-9a-f]+\)", "(...)", re.sub(r"\b(0x[0-9a-f]+|\d+)\b", "N", refused[2]))] += 1
    print(f"{library.name}: {len(cubins)} cubins, " + ", ".join(f"{n} {what}" for what, n in count.items()))
    for reason, n in reasons.most_common():
        print(f"   {n} no twin: {reason}")
    return count["wrong"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--cuobjdump", default="cuobjdump")
    parser.add_argument("--nvcc", default="/usr/local/cuda/bin/nvcc")
    parser.add_argument("--compare", metavar="NVDISASM")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("libraries", nargs="+", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder) / "probe.cubin"
        source = HERE.parents[2] / "tests/gpu/counter-probe.ptx"
        subprocess.run([options.nvcc, "-arch=sm_90", "-cubin", "-o", probe, source], check=True)
        return 1 if sum([survey(options, probe, library) for library in options.libraries]) else 0


if __name__ == "__main__":
    sys.exit(main())
