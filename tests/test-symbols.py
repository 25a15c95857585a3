#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Who may use whose functions: each room is a static library, and a room may use symbols of those below it alone (ROOMS of test-includes.py).

KNOWN (of the daemon) and OTHERS are the symbols that point upward today, a number for each pair of rooms. The test fails if there are more, and if there are fewer:
then lower the number. CIRCLES are files of one room of which each needs all others, by symbols. Libraries and their objects are those of meson's list of targets; an object's name says which file it is made of.
usage: test-symbols.py BUILD [--list]
"""

import collections
import importlib.util
import json
import os
import subprocess
import sys

KNOWN = {}
CIRCLE_MAX = 3
CIRCLES = {  # files of the longest circle in a room, where that is more than CIRCLE_MAX
    "shim": {
        "module": 9  # goes with twins
    }
}
OTHERS = {
    "shim": {
        # go with twins: the end of a context or a map is told to patches, resumed plans, and a graph that asks for patches at the next launch
        ("graph", "patch"): 1,
        ("module", "patch"): 4,
    }
}


def rooms():
    spec = importlib.util.spec_from_file_location("includes", os.path.join(os.path.dirname(os.path.abspath(__file__)), "test-includes.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ROOMS


def objects(build):
    """What each source file defines and what it needs: (file: ({symbol}, {symbol}))."""
    with open(f"{build}/meson-info/intro-targets.json", encoding="utf-8") as text:
        libraries = [t["filename"][0] for t in json.load(text) if t["type"] == "static library"]
    found = collections.defaultdict(lambda: (set(), set()))
    names = subprocess.run(["nm", "-gA", *filter(os.path.exists, libraries)], check=True, capture_output=True, text=True).stdout
    for line in filter(lambda line: ".o:" in line and "meson-generated" not in line, names.splitlines()):
        library, _, member = line.partition(":")
        member, _, rest = member.rpartition(".o:")
        source = os.path.basename(member).replace("_", "/")  # "..": of another folder
        source = os.path.normpath(os.path.join(os.path.relpath(os.path.dirname(library), build), source))
        kind, symbol = rest.split()[-2:]
        found[source][kind == "U"].add(symbol)
    return found


def room_of(program, source):
    inside = source.removeprefix(program + "/")
    return inside.split("/")[0] if "/" in inside else "."


def upward(program, order, found):
    """The symbols that point upward, by pair of rooms."""
    own = {source: room_of(program, source) for source in found if source.startswith(program + "/")}
    homes = collections.defaultdict(set)
    for source, room in own.items():
        for symbol in found[source][0]:
            homes[symbol].add(room)
    pairs = collections.defaultdict(set)
    for source, room in own.items():
        for symbol in found[source][1]:
            above = homes.get(symbol, {room})
            if min(map(order.index, above)) > order.index(room):
                pairs[room, min(above, key=order.index)].add(symbol)
    return pairs, len(homes)


def circles(program, found):
    """Files of one room that need one another, all of them: (room, name, name, ...), of more than CIRCLE_MAX files."""
    needs = collections.defaultdict(set)
    own = {source: room_of(program, source) for source in found if source.startswith(program + "/")}
    homes = {(own[source], symbol): source for source in own for symbol in found[source][0]}
    for source, room in own.items():
        needs[source] = {homes[room, symbol] for symbol in found[source][1] if (room, symbol) in homes}
    reached = {}
    for source in own:
        reached[source], todo = set(), [source]
        while todo:
            new = needs[todo.pop()] - reached[source]
            reached[source] |= new
            todo += new
    groups = {tuple(sorted(other for other in reached[source] if source in reached[other])) for source in own}
    return {(own[group[0]], *map(os.path.basename, group)) for group in groups if len(group) > CIRCLE_MAX}


def main():
    build = sys.argv[1]
    found = objects(os.path.abspath(build))
    bad = False
    for program, order in rooms().items():
        order = [*order, *(["."] if "." not in order else [])]
        known = KNOWN if program == "daemon/gpuprobed" else OTHERS.get(program, {})
        pairs, n = upward(program, order, found)
        for a, b in sorted({*known, *pairs}):
            symbols = pairs.get((a, b), set())
            if "--list" in sys.argv or len(symbols) != known.get((a, b), 0):
                print(f"{program}: {a} -> {b}: {len(symbols)}, {known.get((a, b), 0)} are known: {', '.join(sorted(symbols))}")
            bad = bad or len(symbols) != known.get((a, b), 0)
        print(f"{program}: {n} symbols, {sum(map(len, pairs.values()))} that point upward")
        longest = {circle[0]: circle for circle in sorted(circles(program, found), key=len)}
        for room in sorted({*longest, *CIRCLES[program]}) if program in CIRCLES else []:
            files = longest.get(room, ())[1:]
            if "--list" in sys.argv or len(files) != CIRCLES[program].get(room, 0):
                print(f"{program}/{room}: a circle of {len(files)} files, {CIRCLES[program].get(room, 0)} are known: {', '.join(files)}")
            bad = bad or len(files) != CIRCLES[program].get(room, 0)
        assert n > 20, "these are not the program's symbols"
    print("FAILED" if bad else "all known")
    return bad


if __name__ == "__main__":
    sys.exit(main())
