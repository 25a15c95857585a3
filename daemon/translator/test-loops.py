#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test-loops.py BPF_RUN: loops to their bounds, which take the interpreter of tests/conformance too long. Exit 77: no CUDA driver."""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/conformance"))
import bpf  # noqa: E402

BOUND = 8 * 1024 * 1024

# A loop that ends for no other reason, whose rounds (r7) no compiler counts for it: each depends on a number that is unknown (r8).
ENDLESS = "r7 += 1; r8 *= 5; r8 += 1"
START = "r8 = *(u64 *)(r1 + 0); r7 = 0\n"

CASES = [
    ("may_goto", START + f"loop: ; may_goto out; {ENDLESS}; goto loop\nout: ; *(u64 *)(r1 + 0) = r8; r0 = r7; exit", BOUND),
    (
        "the budget of may_goto is that of the program",
        START
        + f"""
loop: ; may_goto next; {ENDLESS}; if r7 != 1000 goto loop
next: ; may_goto out; {ENDLESS}; goto next
out: ; *(u64 *)(r1 + 0) = r8; r0 = r7; exit""",
        BOUND,
    ),
    (
        "and its functions share it",
        START
        + f"""
r6 = r1; r1 = r8; call run; r8 = r0; r1 = r8; call run; *(u64 *)(r6 + 0) = r8; exit
run: ; r7 = 0; r8 = r1
loop: ; may_goto out; {ENDLESS}; if r7 != 5000000 goto loop
out: ; r0 = r7; exit""",
        BOUND - 5000000,
    ),
    (
        "bpf_loop",
        """r6 = r1; r3 = r1; r1 = 8388608; r2 = function body ll; r4 = 0; call 181; exit
body: ; r3 = *(u64 *)(r2 + 0); r3 *= 5; r3 += 1; *(u64 *)(r2 + 0) = r3; r0 = 0; exit""",
        BOUND,
    ),
    (
        "an iterator",
        START
        + f"""r6 = r1; r1 = r10; r1 += -8; r2 = -1; r3 = 8388607; call kfunc 1
loop: ; r1 = r10; r1 += -8; call kfunc 2; if r0 == 0 goto out; {ENDLESS}; goto loop
out: ; *(u64 *)(r6 + 0) = r8; r0 = r7; exit""",
        BOUND,
    ),
]


def main():
    failed = 0
    for name, text, expected in CASES:
        for options in [], ["--patch"]:
            done = subprocess.run([sys.argv[1], *options, "0100000000000000"], input=bpf.assemble(text).hex(), capture_output=True, text=True)
            if done.returncode == 77:
                sys.exit(77)
            if done.stdout.strip() != "0x%x" % expected and done.stdout.strip() != "%x" % expected:
                print(f"{name} {options}: {done.stdout.strip()} {done.stderr.strip()}, expected {expected:#x}")
                failed += 1
    sys.exit(failed > 0)


main()
