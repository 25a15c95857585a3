#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hash.py BUILD [--small]: hash maps under contention of all threads of a GPU, and the calls of test-hash.py there.

Translates hash.bpf.c for maps of several sizes (bpf-run --ptx) and has hash-contention run it. --small: as much as a CPU that
plays GPU can do. Exit code: 0 right, 1 wrong, 77 no CUDA driver or device.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
MILLION = 1 << 20
# kind, entries, keys, threads, rounds
CASES = [
    ("count", 1, 1, MILLION, 1),
    ("count", 256, 256, 16 * MILLION, 1),
    ("count", 256, 256, MILLION, 16),
    ("count", MILLION, MILLION, 16 * MILLION, 1),
    ("count", 1000, 1001, MILLION, 4),
    ("count", 64, 100000, MILLION, 1),
    ("count", 1, 2, MILLION, 1),
    ("churn", 1, 1, MILLION // 4, 4),
    ("churn", 2, 6, MILLION // 4, 4),
    ("churn", 256, 1000, MILLION, 8),
    ("churn", MILLION, MILLION, 4 * MILLION, 8),
]
SMALL_CASES = [
    ("count", 1, 1, 2048, 1),
    ("count", 256, 256, 4096, 2),
    ("count", 20, 21, 2048, 2),
    ("count", 8, 1000, 2048, 1),
    ("churn", 1, 1, 2048, 2),
    ("churn", 2, 6, 2048, 4),
    ("churn", 300, 1000, 4096, 4),
]


def load_test_hash():
    spec = importlib.util.spec_from_file_location("test_hash", TOP + "/daemon/translator/device/test-hash.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def contend(build, case, folder):
    """Returns None, or what is wrong."""
    kind, entries, keys, threads, rounds = case
    code = load_test_hash().insns_of("%s/tests/gpu/hash-%s.bpf.o" % (build, kind))
    path = os.path.join(folder, "hash.ptx")
    with open(path, "w") as f:
        subprocess.run([build + "/daemon/translator/bpf-run", "--ptx", "--map", "1:8:8:%d" % entries], input=code.hex(), text=True, stdout=f, check=True)
    p = subprocess.run(
        [build + "/tests/gpu/hash-contention", kind, path, str(entries), str(keys), str(threads), str(rounds)], capture_output=True, text=True, timeout=300
    )
    print("%-5s %8d entries %8d keys %9d threads %3d rounds: %s" % (*case, (p.stdout + p.stderr).strip()), flush=True)
    if p.returncode == 77:
        sys.exit(77)
    return None if p.returncode == 0 else "%s: exit %d: %s%s" % (case, p.returncode, p.stdout, p.stderr)


def main():
    build = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        faults = [contend(build, case, folder) for case in (SMALL_CASES if "--small" in sys.argv else CASES)]
    p = subprocess.run(
        [sys.executable, TOP + "/daemon/translator/device/test-hash.py", build + "/daemon/translator/bpf-run", build + "/tests/gpu"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    print((p.stdout + p.stderr).strip())
    faults = [f for f in faults + [p.returncode and "test-hash.py: exit %d" % p.returncode] if f]
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


sys.exit(main())
