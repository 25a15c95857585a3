#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Who may include whom.

DOMAINS says which folders a folder's files may include. ROOMS lists the rooms of a program from bottom to top: a file may include its own room and
those below. KNOWN are the includes that point upward today, a number for each pair of rooms. The test fails if there are more, and if there are fewer: then lower
the number. Files of tests may include anything. KNOWN_CIRCLES are the circles of includes inside a folder.

Callbacks count as arrows, too, from who registers them to who calls them. Those of the daemon that go from a room to one below it, or from daemon.c:
process_table.gone (image calls, daemon.c registers client_process_gone), client_handlers (wire calls clients), control_methods (lib/varlink calls control),
map_keeper (map calls keep), catch_up of a trace's session (trace/sink calls trace/session), on_crash and on_time of worker pools (workers calls daemon.c).
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
        "export",
        "wire",
        "image",
        "keep",
        "trace",
        "clients",
        "attach",
        "metrics",
        "control",
        ".",
    ],
    "daemon/gpuprobed/trace": ["bpf", "sink", "source", "hook", "session"],
    "daemon/translator": ["device", "check", "emit", "job", "."],
    "daemon/worker": ["base", "fatbin", "compiler", "image", "patch", "ptxpass", "."],
    "shim": ["base", "link", "interest", "trace", "module", "graph", "patch", "entry", "hold", "sanitizer", "cupti"],
    "ctl": ["base", "shim", "rm", "trace", "commands", "doctor", "."],
    "ctl/trace": ["base", "decode", "read", "write", "report", "."],
}
KNOWN = {
    "daemon/gpuprobed -> daemon/translator": 1,
    "daemon/gpuprobed -> passes": 1,
    "daemon/gpuprobed: settings -> metrics": 1,
    "daemon/gpuprobed: settings -> registry": 1,
    "daemon/gpuprobed: settings -> trace": 1,
    "daemon/gpuprobed: settings -> workers": 1,
    "daemon/translator: check -> .": 3,
    "daemon/translator: emit -> .": 2,
    "shim: graph -> patch": 1,
    "shim: module -> patch": 4,
    "shim: trace -> module": 2,
    "shim: trace -> patch": 1,
}
# A circle: files of a folder that include one another, in a ring; a .c and its .h are one. More than 3 are too many in CIRCLE_FREE.
CIRCLE_FREE = ("daemon/gpuprobed/", "shim/")
KNOWN_CIRCLES = {  # the folder, how many files
    ("daemon/gpuprobed/image", 10),  # goes with twins
    ("shim/link", 4),
    ("shim/module", 7),
    ("shim/trace", 4),
}
PRIVATE = {"daemon/gpuprobed/daemon-private.h": "daemon/gpuprobed/daemon.c"}  # a header, and the one file that may include it
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def longest(path, prefixes):
    found = [p for p in prefixes if path.startswith(p + "/")]
    return max(found, key=len) if found else None


def circles(edges):
    """Which sets of nodes reach one another, of more than 3."""

    def reached(start):
        seen, left = set(), [start]
        while left:
            for node in edges.get(left.pop(), ()):
                if node not in seen:
                    seen.add(node)
                    left.append(node)
        return seen

    reach = {node: reached(node) for node in edges}
    rings = {frozenset(other for other in reach[node] if node in reach.get(other, ())) for node in edges}
    return [ring for ring in rings if len(ring) > 3]


def main():
    source = sys.argv[1]
    files = subprocess.run(["git", "-C", source, "ls-files", "*.c", "*.h"], capture_output=True, text=True, check=True).stdout.split()
    known = set(files)
    bad = collections.defaultdict(list)
    edges = collections.defaultdict(set)
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
            if PRIVATE.get(target, path) != path:
                bad["a private header"].append(f"{path}: {target}")
            if os.path.dirname(target) == os.path.dirname(path) and path.startswith(CIRCLE_FREE):
                edges[path[:-2]].add(target[:-2])
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
    found = {(os.path.dirname(min(ring)), len(ring)): ring for ring in circles(edges)}
    for folder, n in sorted(set(found) - KNOWN_CIRCLES):
        print(f"FAILED: {folder}: {n} files include one another in a circle: {' '.join(sorted(found[folder, n]))}")
    for folder, n in sorted(KNOWN_CIRCLES - set(found)):
        print(f"FAILED: {folder}: no circle of {n} files is left: take it out of KNOWN_CIRCLES")
    new = new or gone or set(found) != KNOWN_CIRCLES
    print(f"{len(files)} files, {sum(counts.values())} includes that point upward, all known" if not new else "")
    return 1 if new or len(files) < 800 else 0


if __name__ == "__main__":
    sys.exit(main())
