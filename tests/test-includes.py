#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Who may include whom.

DOMAINS says which folders a folder's files may include. ROOMS lists the rooms of a program from bottom to top: a file may include its own room and
those below. KNOWN are the includes that point upward today, a number for each pair of rooms. The test fails if there are more, and if there are fewer: then lower
the number. Files of tests may include anything. KNOWN_CIRCLES are the circles of includes inside a folder.

Callbacks count as arrows, too, from the room that registers one to the room that calls it. CALLBACKS lists those that cross rooms: structs of function pointers,
and functions that take one. The test finds both: a struct by its members, which a file of another room sets by name or in order; a function by its prototype in a
header. What it cannot find are functions in a table of another form (control_methods, which lib/varlink calls).
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
    "daemon/worker": ["proto", "lib", "passes", "daemon/translator", "daemon/worker/sass"],
    "daemon/worker/sass": ["lib", "lib/base"],
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
    "daemon/worker": ["base", "fatbin", "sass", "compiler", "image", "patch", "ptxpass", "."],
    "shim": ["libc", "base", "driver", "interest", "engine", "trace", "module", "graph", "patch", "entry", "link", "hold", "sanitizer", "cupti"],
    "ctl": ["base", "shim", "rm", "session", "trace", "gputrace", "commands", "doctor", "."],
    "ctl/trace": ["base", "decode", "read", "write", "report", "."],
}
KNOWN = {
    "daemon/gpuprobed -> daemon/translator": 1,
    "daemon/gpuprobed: settings -> metrics": 1,
    "daemon/gpuprobed: settings -> registry": 1,
    "daemon/gpuprobed: settings -> trace": 1,
    "daemon/gpuprobed: settings -> workers": 1,
    "daemon/translator: check -> .": 3,
    "daemon/translator: emit -> .": 2,
    "shim: graph -> patch": 1,  # goes with twins: a graph asks for patches at the next launch
    "shim: module -> patch": 2,  # goes with twins: the end of a context or a map is told to patches; resumed plans
}
# A circle: files of a folder that include one another, in a ring; a .c and its .h are one. More than 3 are too many in CIRCLE_FREE.
CIRCLE_FREE = ("daemon/gpuprobed/", "shim/")
KNOWN_CIRCLES = {  # the folder, how many files
    ("daemon/gpuprobed/image", 10),  # goes with twins
    ("shim/module", 9),  # goes with twins
}
CALLBACKS = {  # the struct or function, the room that calls, and those that register
    "daemon/gpuprobed": {
        "attach_new": ("attach", "control"),
        "client_sync": ("clients", "control metrics"),
        "closer_foreign": ("base", "wire"),
        "detached_start": ("base", "trace"),
        "image_cache_each": ("image", "control"),
        "job_cache_clear": ("workers", "control"),
        "job_cache_list": ("workers", "control"),
        "job_cache_use": ("workers", "image"),
        "kernels_list_each": ("image", "metrics"),
        "map_keeper": ("map", "keep"),
        "metrics_each_trouble": ("metrics", "control"),
        "metrics_run_new": ("metrics", "control"),
        "other_shims_each": ("clients", "control"),
        "plan_prepare": ("image", "attach"),
        "process_table_init": ("image", "."),
        "ring_consume_some": ("map", "control"),
        "shim_server_handlers": ("wire", "clients"),
        "shim_server_options": ("wire", "."),
        "statistics_each": ("metrics", "control"),
        "worker_pool": ("workers", "."),
        "worker_task_new": ("workers", ". attach control image"),
    },
    "shim": {
        "cupti_events": ("cupti", "trace"),
        "cupti_source": ("trace", "cupti"),
        "helper_thread": ("base", "module trace"),
        "sass_engine": ("engine module patch sanitizer", "sanitizer"),
        "sass_events": ("sanitizer", "patch"),
    },
}
# Callbacks from a room to one above it.
CALLBACKS_UPWARD = {
    "shim": {
        "cupti_events": "two libraries: cupti/ is loaded by trace/, and neither is linked with the other",
        "sass_events": "two libraries: sanitizer/ is loaded by engine/ for patch/; goes with twins",
    }
}
PRIVATE = {"daemon/gpuprobed/daemon-private.h": "daemon/gpuprobed/daemon.c"}  # a header, and the one file that may include it
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
COMMENT = re.compile(r"/\*.*?\*/", re.S)
STRUCT = re.compile(r"^struct (\w+) \{\n(.*?)^\}", re.M | re.S)
FUNCTION_TYPE = re.compile(r"^typedef [^;]*?\(?\*?\b(\w+)\)?\([^;]*\);", re.M)
PROTOTYPE = re.compile(r"^[\w *]*?\b(\w+)\(((?:[^()]|\([^()]*\))*)\);", re.M)


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


def room_of(program, path):
    inside = path.removeprefix(program + "/")
    return inside.split("/")[0] if "/" in inside else "."


def is_product(path):
    return not (os.path.basename(path).startswith(("test-", "fake-")) or "/tests/" in path or "/mock/" in path)


def function_members(text, types):
    """Structs of a text with members that point to functions: {name: {member}}."""
    found = {name: {*re.findall(r"\(\*(?:const )?(\w+)\)\s*\(", body), *re.findall(rf"\b(?:{types}) \*?(\w+);", body)} for name, body in STRUCT.findall(text)}
    return {name: members for name, members in found.items() if members}


def find_callbacks(program, text):
    """Those that cross rooms: {struct or function: ({rooms that call}, {rooms that register})}."""
    text = {path: code for path, code in text.items() if path.startswith(program + "/")}
    types = "|".join({name for path in text for name in FUNCTION_TYPE.findall(text[path])} - {"__attribute__"}) or "$"
    structs, found = {path: function_members(text[path], types) for path in text}, {}
    own = collections.defaultdict(set)  # members of each room: what it does to them is not about another room's struct
    for path in structs:
        own[room_of(program, path)].update(*structs[path].values())
    for header in (path for path in text if path.endswith(".h")):
        declared = room_of(program, header)
        for name, members in structs[header].items():
            callers, by = set(), set()
            for path in text:
                room = room_of(program, path)
                some = "|".join(members - (own[room] if room != declared else set())) or "$"
                if not re.search(rf'\bstruct {name}\b|"(?:{header}|{os.path.basename(header)})"', text[path]):
                    continue
                if re.search(rf"(?:\.|->)(?:{some})\(", text[path]):
                    callers.add(room)
                if re.search(rf"(?:\.|->)(?:{some}) = &?\w+\s*[,;}}]|\bstruct {name}\)\s*\{{\s*[a-z_]+\s*[,}}]", text[path]):
                    by.add(room)
            if callers and by and len(callers | by) > 1:
                found[name] = (callers, by)
        for name, arguments in PROTOTYPE.findall(text[header]):
            if re.search(rf"\(\*\w*\)\s*\(|\b(?:{types})\b", arguments):
                by = {room_of(program, path) for path in text if re.search(rf"\b{name}\(", text[path])} - {declared}
                if by:
                    found[name] = ({declared}, by)
    return found


def check_callbacks(program, text):
    """Prints what is wrong; returns whether anything is."""
    order, listed, allowed = ROOMS[program], CALLBACKS[program], CALLBACKS_UPWARD.get(program, {})
    found = find_callbacks(program, text)
    rows = {name: tuple(" ".join(sorted(rooms)) for rooms in found[name]) for name in found}
    upward = {name for name, (callers, by) in found.items() if min(map(order.index, by)) < max(map(order.index, callers))}
    for name in sorted({*rows, *listed}):
        if rows.get(name) != listed.get(name):
            print(f"FAILED: {program}: callbacks of {name}: called and registered by the rooms {rows.get(name)}, CALLBACKS has {listed.get(name)}")
    for name in sorted(upward ^ set(allowed)):
        print(
            f"FAILED: {program}: callbacks of {name}: "
            + ("a room above calls them" if name in upward else "no room above calls them: take it out of CALLBACKS_UPWARD")
        )
    return rows != listed or upward != set(allowed)


def main():
    source = sys.argv[1]
    files = subprocess.run(["git", "-C", source, "ls-files", "*.c", "*.h"], capture_output=True, text=True, check=True).stdout.split()
    known = set(files)
    bad = collections.defaultdict(list)
    edges = collections.defaultdict(set)
    text = {}
    for path in files:
        domain = longest(path, DOMAINS)
        if not domain or not is_product(path):
            continue
        with open(f"{source}/{path}", encoding="utf-8", errors="replace") as file:
            code = file.read()
        text[path] = COMMENT.sub("", code)
        for other in INCLUDE.findall(code):
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
    wrong = [check_callbacks(program, text) for program in CALLBACKS]
    new = new or gone or set(found) != KNOWN_CIRCLES or any(wrong)
    print(f"{len(files)} files, {sum(counts.values())} includes that point upward, all known" if not new else "")
    return 1 if new or len(files) < 800 else 0


if __name__ == "__main__":
    sys.exit(main())
