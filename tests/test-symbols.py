#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Who may use whose functions: the rooms of the daemon are static libraries, and a room may use symbols of those below it alone (ROOMS of test-includes.py).

KNOWN are the symbols that point upward today, a number for each pair of rooms. The test fails if there are more, and if there are fewer: then lower the number.
usage: test-symbols.py BUILD [--list]
"""

import collections
import importlib.util
import os
import subprocess
import sys

PROGRAM = "daemon/gpuprobed"
KNOWN = {}
PARTS = {"workers": ["workers", "workers_cache"], ".": [""]}  # a room's libraries, where they have other names


def rooms():
    spec = importlib.util.spec_from_file_location("includes", os.path.join(os.path.dirname(os.path.abspath(__file__)), "test-includes.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [*module.ROOMS[PROGRAM], "."] if "." not in module.ROOMS[PROGRAM] else module.ROOMS[PROGRAM]


def symbols(build, room, *options):
    found = set()
    for part in PARTS.get(room, [room]):
        library = os.path.join(build, PROGRAM, f"libdaemon{'-' if part else ''}{part}.a")
        text = subprocess.run(["nm", "-g", *options, library], check=True, capture_output=True, text=True).stdout
        found |= {line.split()[-1] for line in text.split("\n") if line.strip() and not line.endswith(":")}
    return found


def main():
    build = sys.argv[1]
    order = rooms()
    home = {symbol: room for room in order for symbol in symbols(build, room, "--defined-only")}
    assert len(home) > 500, "these are not the daemon's symbols"
    upward = collections.defaultdict(set)
    for room in order:
        for symbol in symbols(build, room, "--undefined-only"):
            above = home.get(symbol)
            if above and order.index(above) > order.index(room):
                upward[room, above].add(symbol)
    bad = False
    for pair in sorted(set(KNOWN) | set(upward)):
        found = upward.get(pair, set())
        if "--list" in sys.argv or len(found) != KNOWN.get(pair, 0):
            print(f"{pair[0]} -> {pair[1]}: {len(found)}, {KNOWN.get(pair, 0)} are known: {', '.join(sorted(found))}")
        bad = bad or len(found) != KNOWN.get(pair, 0)
    print(f"{len(home)} symbols, {sum(map(len, upward.values()))} that point upward" + ("; FAILED" if bad else ", all known"))
    return bad


if __name__ == "__main__":
    sys.exit(main())
