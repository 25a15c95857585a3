#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test-ring.py BPF_RUN: rings under contention, on the CPU driver with its modes (see sim-run.c) or a GPU.

Every thread writes records that say which thread wrote them. Each is there once and whole, or counted as lost. Exit 77: no CUDA driver.
"""

import os
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../tests/conformance"))
import bpf  # noqa: E402

GRID, BLOCK = 24, 64

# r9: the number of the thread in the grid
NUMBER = """
r1 = r10; r1 += -8; r2 = r10; r2 += -16; r3 = r10; r3 += -24; call 503; r9 = *(u64 *)(r10 - 8)
r1 = r10; r1 += -8; r2 = r10; r2 += -16; r3 = r10; r3 += -24; call 505; r9 <<= 6; r1 = *(u64 *)(r10 - 8); r9 += r1
"""


def fill(words):
    """A record of 8-byte words below r10: number, number + 1 ..."""
    return "r1 = r9; " + "; ".join("*(u64 *)(r10 - %d) = r1; r1 += 1" % (8 * (words - i)) for i in range(words)) + "\n"


def output(words):
    return fill(words) + "r1 = map[0] ll; r2 = r10; r2 += -%d; r3 = %d; r4 = 0; call 130; r0 = 0; exit" % (8 * words, 8 * words)


RESERVE = """
r1 = map[0] ll; r2 = 16; r3 = 0; call 131; if r0 == 0 goto out; *(u64 *)(r0 + 0) = r9; r9 += 1; *(u64 *)(r0 + 8) = r9
r1 = r0; r2 = 0; call 132
out: ; r0 = 0; exit
"""

# odd threads write less, every fourth nothing
DIVERGENT = (
    fill(4)
    + """
r1 = r9; r1 &= 3; if r1 == 3 goto out; r3 = 32; if r1 != 1 goto +1; r3 = 16
r1 = map[0] ll; r2 = r10; r2 += -32; r4 = 0; call 130
out: ; r0 = 0; exit
"""
)


def divergent_words(n):
    return {0: 4, 1: 2, 2: 4, 3: 0}[n & 3]


CASES = [  # name, program, words of the record of thread n, bytes of all rings
    ("8 bytes", output(1), lambda n: 1, 1 << 20),
    ("24 bytes", output(3), lambda n: 3, 1 << 20),
    ("32 bytes, too little room", output(4), lambda n: 4, 1 << 15),
    ("32 bytes, one ring", output(4), lambda n: 4, 1 << 14),
    ("80 bytes, too little room", output(10), lambda n: 10, 1 << 15),
    ("reserved", RESERVE, lambda n: 2, 1 << 15),
    ("some threads, two sizes", DIVERGENT, divergent_words, 1 << 15),
]

MODES = [
    {},
    {"GPUPROBE_SIM_WARPS": "whole"},
    {"GPUPROBE_SIM_THREADS": "4", "GPUPROBE_SIM_TURN": "20"},
    {"GPUPROBE_SIM_THREADS": "4", "GPUPROBE_SIM_TURN": "50", "GPUPROBE_SIM_WARPS": "whole"},
    {"GPUPROBE_SIM_THREADS": "8", "GPUPROBE_SIM_TURN": "7", "GPUPROBE_SIM_WARPS": "whole", "GPUPROBE_SIM_SEED": "9"},
]


def batches(data):
    """The records of each batch of what bpf-run prints of a ring."""
    at = 8
    while at < len(data):
        size, count = struct.unpack_from("<II", data, at)
        at += 8
        yield [data[at + i * size : at + (i + 1) * size] for i in range(count)]
        at += size * count
    assert at == len(data), at


def check(data, words, whole):
    lost, written = struct.unpack_from("<II", data)
    expected = sum(1 for n in range(GRID * BLOCK) if words(n))
    assert lost + written == expected, "lost %d, written %d of %d" % (lost, written, expected)
    seen = set()
    largest = max(len(batch) for batch in batches(data))
    assert largest > 1 if whole else largest >= 1, "no batch of more than a record"
    for record in (record for batch in batches(data) for record in batch):
        numbers = struct.unpack("<%dQ" % (len(record) // 8), record)
        first = numbers[0]
        assert first < GRID * BLOCK and first not in seen, "thread %d" % first
        assert numbers == tuple(range(first, first + words(first))), "thread %d: %s" % (first, numbers)
        seen.add(first)
    assert len(seen) == written, "%d records, %d written" % (len(seen), written)
    return lost


def main():
    bpf_run = sys.argv[1]
    failed = lost_ever = 0
    for mode in MODES:
        lines = [
            "%d prog=%s map=27:0:0:4096,ring=%d context=00 grid=%d block=%d" % (i, bpf.assemble(NUMBER + program).hex(), size, GRID, BLOCK)
            for i, (_, program, _, size) in enumerate(CASES)
        ]
        run = subprocess.run([bpf_run, "--batch", "-"], input="\n".join(lines) + "\n", capture_output=True, text=True, env=dict(os.environ, **mode))
        if run.returncode == 1 and "no CUDA driver" in run.stderr:
            print("skipped: %s" % run.stderr.strip())
            return 77
        answers = dict(line.split(" ", 1) for line in run.stdout.splitlines())
        for i, (name, _, words, _) in enumerate(CASES):
            answer = answers.get(str(i), "no answer: " + run.stderr)
            try:
                assert answer.startswith("0x0 "), answer[:200]
                lost = check(bytes.fromhex(answer[4:]), words, mode.get("GPUPROBE_SIM_WARPS") == "whole")
                lost_ever += lost
            except AssertionError as error:
                failed += 1
                print("%s, %s: %s" % (name, mode, error))
    print("%d cases, %d failures, %d records lost" % (len(CASES) * len(MODES), failed, lost_ever))
    return 1 if failed or not lost_ever else 0


sys.exit(main())
