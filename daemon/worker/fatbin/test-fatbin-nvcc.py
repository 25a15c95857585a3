#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fatbin-tool against what nvcc and fatbinary make: the extracted code is the code that nvcc put in.

test-fatbin-nvcc.py FATBIN_TOOL NVCC
"""

import os
import re
import subprocess
import sys
import tempfile

SOURCE = """
__global__ void vectorAdd(const float *a, const float *b, float *c, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		c[i] = a[i] + b[i];
}
"""
GENCODE_90 = ["-gencode", "arch=compute_90,code=[sm_90,compute_90]"]

# name, nvcc's arguments, what each line of `fatbin-tool list` has to match
CASES = [
    ("default", GENCODE_90, [r"elf +sm_90 .* raw \d+$", r"ptx +sm_90 .* zstd \d+ of \d+$"]),
    ("none", GENCODE_90 + ["-Xfatbin", "--compress-mode=none"], [r"elf .* raw \d+$", r"ptx .* raw \d+$"]),
    ("speed", GENCODE_90 + ["-Xfatbin", "--compress-mode=speed"], [r"elf ", r"ptx .* lz4 \d+ of \d+$"]),
    ("size", GENCODE_90 + ["-Xfatbin", "--compress-mode=size"], [r"elf .* zstd", r"ptx .* zstd"]),
    ("all", GENCODE_90 + ["-Xfatbin", "-compress-all"], [r"elf .* zstd", r"ptx .* zstd"]),
    ("options", GENCODE_90 + ["-maxrregcount=40", "-Xptxas", "-O2"], [r"elf ", r'ptx .* options "-O2  -maxrregcount=40 "$']),
    (
        "list",
        [
            "-gencode",
            "arch=compute_80,code=sm_80",
            "-gencode",
            "arch=compute_86,code=sm_86",
            "-gencode",
            "arch=compute_90a,code=[sm_90a,compute_90a]",
            "-gencode",
            "arch=compute_100f,code=sm_100f",
        ],
        [r"elf +sm_100f ", r"elf +sm_80 ", r"elf +sm_86 ", r"elf +sm_90a ", r"ptx +sm_90a "],
    ),
    ("ptx", ["-gencode", "arch=compute_80,code=compute_80"], [r"ptx +sm_80 "]),
    ("debug", GENCODE_90 + ["-G"], [r"elf .* flags 0x[0-9a-f]*[2367abef] ", r"ptx "]),
    ("lto", ["-dc", "-gencode", "arch=compute_90,code=lto_90"], [r"lto-ir +sm_90 .* scrambled"]),
]


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def bare(text):
    """PTX as it matters: nvcc strips comments and directives of the front end, and keeps the rest."""
    text = re.sub(rb"//[^\n]*", b"", text)
    return re.sub(rb"\s+", b" ", text).strip(b" \0")


def check(tool, nvcc, folder, name, arguments, patterns):
    where = os.path.join(folder, name)
    os.mkdir(where)
    source = os.path.join(where, "a.cu")
    with open(source, "w") as file:
        file.write(SOURCE)
    fatbin = os.path.join(where, "out.fatbin")
    if name != "lto":
        arguments = ["-fatbin"] + arguments
    else:
        fatbin = os.path.join(where, "out.o")
    run(nvcc, "-keep", "-keep-dir", where, *arguments, source, "-o", fatbin)

    lines = sorted(line.split(" ", 1)[1] for line in run(tool, "list", fatbin).splitlines()[:-1])
    assert len(lines) == len(patterns), (name, lines)
    for line, pattern in zip(lines, patterns):
        assert re.match(pattern, line), (name, line, pattern)
    assert " 0 failures" in run(tool, "verify", fatbin), name

    kept = {}
    for file in os.listdir(where):
        with open(os.path.join(where, file), "rb") as stream:
            kept[file] = stream.read()
    for path in run(tool, "extract", fatbin, "-o", os.path.join(where, "x")).splitlines():
        with open(path, "rb") as stream:
            data = stream.read()
        if path.endswith(".cubin"):
            assert any(data == other.ljust(len(data), b"\0") for file, other in kept.items() if file.endswith(".cubin")), (name, path)
        elif path.endswith(".ptx"):
            assert any(bare(data) == bare(other) for file, other in kept.items() if file.endswith(".ptx")), (name, path)
        else:
            assert path.endswith(".scrambled"), path
    print(f"ok {name}: {len(lines)} entries")


def main():
    tool, nvcc = sys.argv[1:3]
    if not os.access(nvcc, os.X_OK):
        print("no nvcc: skipped")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            check(tool, nvcc, folder, *case)
        # A program: the container lies in a section; and several programs' code in one file, one behind the other.
        for name in "none", "list":
            source = os.path.join(folder, name, "a.cu")
            run(nvcc, "-c", *next(c[1] for c in CASES if c[0] == name), source, "-o", source + ".o")
        assert run(tool, "list", os.path.join(folder, "list", "a.cu.o")).count("\n") == 6
        several = os.path.join(folder, "several")
        with open(several, "wb") as out:
            for name in "default", "none", "list":
                with open(os.path.join(folder, name, "out.fatbin"), "rb") as one:
                    out.write(one.read())
        assert run(tool, "verify", several).startswith("3 containers, 9 entries (3 ptx, 6 elf")
        print("ok several")


main()
