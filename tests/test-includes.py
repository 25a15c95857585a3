#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Who may include whom.

DOMAINS says which folders a folder's files may include. ROOMS lists the rooms of a program from bottom to top: a file may include its own room and
those below. KNOWN are the includes that point upward today, a number for each pair of rooms. The test fails if there are more, and if there are fewer: then lower
the number. Files of tests may include anything.
usage: test-includes.py SOURCE [--list]
"""

import collections
import os
import re
import subprocess
import sys

DOMAINS = {  # the longest prefix counts
    "proto": [],
    "lib": ["proto", "lib/base"],
    "lib/base": [],
    "passes": ["proto", "lib"],
    "daemon/translator": ["proto", "lib", "passes", "daemon/worker/base"],
    "daemon/worker": ["proto", "lib", "passes", "daemon/translator"],
    "daemon/gpuprobed": ["proto", "lib"],
    "shim": ["proto", "lib/base"],
    "ctl": ["proto", "lib"],
}
ROOMS = {
    "daemon/gpuprobed": [
        "base",
        "settings",
        "map",
        "workers",
        "verify",
        "registry",
        "wire",
        "image",
        "clients",
        "keep",
        "trace",
        "attach",
        "metrics",
        "control",
        ".",
    ],
    "daemon/gpuprobed/trace": ["bpf", "source", "hook", "session"],
    "daemon/translator": ["device", "check", "emit", "job", "."],
    "daemon/worker": ["base", "fatbin", "compiler", "image", "patch", "ptxpass", "."],
    "shim": ["base", "link", "interest", "trace", "module", "graph", "patch", "entry", "hold", "sanitizer", "cupti"],
    "ctl": ["base", "shim", "rm", "trace", "commands", "doctor", "."],
    "ctl/trace": ["base", "read", "write", "report", "."],
}
KNOWN = {
    "ctl -> passes": 1,
    "daemon/gpuprobed -> daemon/translator": 1,
    "daemon/gpuprobed -> passes": 1,
    "daemon/gpuprobed/trace: source -> session": 1,
    "daemon/gpuprobed: attach -> .": 4,
    "daemon/gpuprobed: clients -> .": 4,
    "daemon/gpuprobed: clients -> keep": 1,
    "daemon/gpuprobed: clients -> trace": 1,
    "daemon/gpuprobed: control -> .": 15,
    "daemon/gpuprobed: image -> .": 8,
    "daemon/gpuprobed: image -> clients": 3,
    "daemon/gpuprobed: image -> keep": 1,
    "daemon/gpuprobed: keep -> .": 1,
    "daemon/gpuprobed: keep -> attach": 1,
    "daemon/gpuprobed: metrics -> .": 5,
    "daemon/gpuprobed: metrics -> control": 1,
    "daemon/gpuprobed: settings -> metrics": 1,
    "daemon/gpuprobed: settings -> registry": 1,
    "daemon/gpuprobed: settings -> trace": 1,
    "daemon/gpuprobed: settings -> workers": 1,
    "daemon/gpuprobed: workers -> .": 1,
    "daemon/translator: check -> .": 3,
    "daemon/translator: emit -> .": 2,
    "lib -> passes": 1,
    "shim: graph -> patch": 1,
    "shim: module -> patch": 4,
    "shim: trace -> module": 2,
    "shim: trace -> patch": 1,
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def longest(path, prefixes):
    found = [p for p in prefixes if path.startswith(p + "/")]
    return max(found, key=len) if found else None


def main():
    source = sys.argv[1]
    files = subprocess.run(["git", "-C", source, "ls-files", "*.c", "*.h"], capture_output=True, text=True, check=True).stdout.split()
    known = set(files)
    bad = collections.defaultdict(list)
    for path in files:
        name = os.path.basename(path)
        domain = longest(path, DOMAINS)
        if not domain or name.startswith(("test-", "fake-")) or "/tests/" in path or "/mock/" in path:
            continue
        with open(f"{source}/{path}", encoding="utf-8", errors="replace") as text:
            included = INCLUDE.findall(text.read())
        for other in included:
            here = f"{os.path.dirname(path)}/{other}"
            target = here if here in known else other
            if target not in known and "/" in other:
                bad["a path that is not from the top"].append(f"{path}: {other}")
            if target not in known:
                continue
            its = longest(target, DOMAINS)
            if its != domain and not any(target.startswith(allowed + "/") for allowed in DOMAINS[domain]):
                bad[f"{domain} -> {its}"].append(f"{path}: {target}")
            for program, rooms in ROOMS.items():
                if path.startswith(program + "/") and target.startswith(program + "/"):
                    a, b = (p[len(program) + 1 :].split("/")[0] if "/" in p[len(program) + 1 :] else "." for p in (path, target))
                    if a != b and a in rooms and b in rooms and rooms.index(b) > rooms.index(a):
                        bad[f"{program}: {a} -> {b}"].append(f"{path}: {target}")
                    if a not in rooms or b not in rooms:
                        bad[f"{program}: a room that is not listed"].append(f"{path}: {target}")
    if "--list" in sys.argv:
        for arrow, where in sorted(bad.items()):
            print(f"{len(where):4} {arrow}")
            print("".join(f"       {w}\n" for w in where), end="")
    counts = {arrow: len(where) for arrow, where in bad.items()}
    new = {arrow: n for arrow, n in counts.items() if n > KNOWN.get(arrow, 0)}
    gone = {arrow: n for arrow, n in KNOWN.items() if n > counts.get(arrow, 0)}
    for arrow, n in sorted(new.items()):
        print(f"FAILED: {arrow}: {n} includes, {KNOWN.get(arrow, 0)} are known; test-includes.py SOURCE --list shows them")
    for arrow, n in sorted(gone.items()):
        print(f"FAILED: {arrow}: {counts.get(arrow, 0)} includes are left of {n}: lower the number in KNOWN")
    print(f"{len(files)} files, {sum(counts.values())} includes that point upward, all known" if not new and not gone else "")
    return 1 if new or gone or len(files) < 800 else 0


if __name__ == "__main__":
    sys.exit(main())
