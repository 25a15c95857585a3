#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
./check --quick: the tests of the layers that changed, without those that take long.

What changed: files that differ from BASE, and files that git does not know yet. BASE is the point where this branch left its upstream or main;
on main itself the last commit, unless the working tree differs from it.

usage: quick.py SOURCE BUILD [BASE]
Exit status: that of meson test; 0 where nothing changed.
"""

import json
import subprocess
import sys
import time

# Which suites test a folder. The longest prefix counts; a file under no prefix concerns the suite "tests" alone, which always runs.
SUITES = {
    "lib/": ["lib", "varlink", "daemon", "worker", "fatbin", "bpf", "trace", "ctl", "ctl+trace", "fuzz", "e2e"],
    "lib/ptx/": ["passes", "ptxpass", "worker", "sim", "ctl", "fuzz", "e2e"],
    "lib/varlink/": ["varlink", "daemon", "e2e"],
    "proto/": ["proto", "passes", "worker", "bpf", "sim", "trace", "shim", "daemon", "ctl", "fuzz", "docs", "e2e"],
    "passes/": ["passes", "ptxpass", "worker", "fuzz", "e2e"],
    "daemon/gpuprobed/": ["daemon", "fuzz", "e2e"],
    "daemon/gpuprobed/trace/": ["trace", "daemon+trace", "daemon", "e2e"],
    "daemon/translator/": ["bpf", "fuzz", "e2e"],
    "daemon/worker/": ["worker", "fatbin", "ptxpass", "fuzz", "e2e"],
    "shim/": ["shim", "sim", "fuzz", "e2e"],
    "ctl/": ["ctl", "ctl+trace", "fuzz", "docs"],
    "ctl/gputrace/": ["ctl", "gputrace", "fuzz", "docs", "e2e"],
    "ctl/tools/": ["ctl", "gputrace", "docs", "e2e"],
    "docs/": ["docs"],
    "systemd/": ["systemd", "docs"],
    "tests/e2e/": ["e2e"],
    "tests/sim/": ["sim", "shim", "e2e"],
    "tests/targets/": ["shim", "e2e"],
    "tests/conformance/": ["bpf"],
    "tests/corpus/": ["passes"],
    "tests/fuzz/": ["fuzz"],
    "tests/gpu/": ["gpu"],
    "meson.build": ["proto", "docs"],
}
# Those of whole sessions that take seconds; all others of these suites are for the whole ./check.
SMOKE = {
    "e2e": [
        "e2e-config",
        "e2e-contain",
        "e2e-gputrace",
        "e2e-gputrace-tools",
        "e2e-lying-worker",
        "e2e-map-update",
        "e2e-objects",
        "e2e-soak",
        "e2e-hostile-probes",
    ],
    "package": [],
    "qemu": [],
    "gpu": [],
}
# More than four seconds each on an idle machine.
LONG = {
    *(
        "conformance-arithmetic",
        "conformance-operations",
        "conformance-patch-operations",
        "conformance-patch-rings",
        "conformance-rings",
        "hash",
        "hash-schedules",
    ),
    *("hash-threads", "patch-programs", "program-worker", "ptxas", "random-programs", "random-programs-patch", "verified-programs", "gpuprobectl-ctxsw"),
    *(
        "rewrite",
        "gpuprobectl-ring",
        "gpuprobectl-run",
        "gpuprobectl-shim",
        "gpuprobectl-trace",
        "trace-perfetto",
        "trace-report",
        "worker-pool",
        "fatbin-nvcc",
    ),
    *(
        "judge-bpf",
        "judge-everywhere",
        "judge-everywhere-bare",
        "judge-everywhere-call",
        "judge-quick",
        "functions",
        "pass-worker",
        "ptxpass",
        "answers",
        "daemons",
    ),
    *("patching", "targets", "trace", "hook", "hook-user", "uprobe", "uprobe-library", "varlink-systemd", "image-points", "image-worker", "patch-worker"),
}


def git(source, *words):
    result = subprocess.run(["git", "-C", source, *words], capture_output=True, text=True)
    return result.stdout.strip() if result.returncode == 0 else None


def changed(source, base):
    """Paths, and what they were compared with."""
    if not base:
        base = git(source, "merge-base", "HEAD", "@{upstream}") or git(source, "merge-base", "HEAD", "main") or "HEAD"
        if git(source, "rev-parse", base) == git(source, "rev-parse", "HEAD") and not git(source, "status", "--porcelain"):
            base = "HEAD~1"
    files = git(source, "diff", "--name-only", base, "--")
    if files is None:
        sys.exit(f"check --quick: {base} is not a commit here")
    return files.split("\n") + git(source, "ls-files", "--others", "--exclude-standard").split("\n"), base


def suites_of(files):
    suites = {"tests"}
    for path in filter(None, files):
        prefix = max((prefix for prefix in SUITES if path.startswith(prefix)), key=len, default=None)
        suites.update(SUITES.get(prefix, []))
    return suites


def chosen(tests, suites):
    names = []
    for test in tests:
        name, suite = test["name"], test["suite"][0].split(":")[-1]
        if suite in suites and (name in SMOKE[suite] if suite in SMOKE else name not in LONG):
            names.append(name)
    return names


def main():
    source, build, base = [*sys.argv[1:4], None][:3]
    files, base = changed(source, base)
    suites = suites_of(files)
    tests = json.loads(subprocess.run(["meson", "introspect", "--tests", build], check=True, capture_output=True, text=True).stdout)
    known = {test["name"] for test in tests}
    stale = sorted((LONG | {name for names in SMOKE.values() for name in names}) - known)
    if stale:
        print(f"check --quick: not built here: {', '.join(stale)}")
    names = chosen(tests, suites)
    print(
        f"check --quick: changed since {base}: {len(list(filter(None, files)))} files; {len(names)} of {len(tests)} tests ({', '.join(sorted(suites))})",
        flush=True,
    )
    start = time.monotonic()
    status = subprocess.run(["meson", "test", "-C", build, "--no-rebuild", "--print-errorlogs", *names]).returncode
    print(f"check --quick: {time.monotonic() - start:.0f} s; ./check runs all")
    return status


if __name__ == "__main__":
    sys.exit(main())
