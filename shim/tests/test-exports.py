#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the shim, or the sanitizer engine, exports and needs, against the committed lists; that an old glibc has all of it; and that it does nothing when
it is loaded (the shim: looks at the list of libraries once, arrival.c).

  test-exports.py LIBRARY EMPTY-LIBRARY NM READELF EXPORTS

EXPORTS is a list beside this file. None of it is a function of the driver.
"""

import os
import re
import subprocess
import sys

shim, empty, nm, readelf, exports = sys.argv[1:]
folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
failed = 0
GLIBC_MINOR = 17  # gpuprobe-shim(7) says so


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def lines(name):
    with open(os.path.join(folder, name)) as file:
        return [line.strip() for line in file if line.strip() and not line.startswith("#")]


def compare(what, found, wanted):
    global failed
    for name in sorted(set(found) - set(wanted)):
        print(f"{what}: {name} is not in the list")
    for name in sorted(set(wanted) - set(found)):
        print(f"{what}: {name} is in the list only")
    failed |= set(found) != set(wanted)


def dynamic(library):
    return run(readelf, "-dW", library)


def constructors(library):
    """How many functions run when it is loaded; the compiler's own start file brings one."""
    size = re.search(r"INIT_ARRAYSZ\)\s+(\d+)", dynamic(library))
    return int(size.group(1)) // 8 if size else 0


exported = [line.split()[-1] for line in run(nm, "-D", "--defined-only", shim).splitlines()]
for name in exported:
    if "@" in name:
        print(f"{name}: exported with a version: nobody would find it")
        failed = 1
for name in exported:
    if re.match("cu[A-Z]", name):
        print(f"{name}: exported into every process")
        failed = 1
compare("exports", exported, lines(exports))
needed = re.findall(r"NEEDED\).*\[(.*)\]", dynamic(shim))
if set(needed) - {"libc.so.6"} - set(lines("needed.txt")) or "libc.so.6" not in needed:
    print("needed:", *needed)
    failed = 1
# ld.so ends a program that has preloaded what needs a version of glibc that there is not: nothing would start in a container with an older one.
for version in sorted(set(re.findall(r"Name: (\S+)  Flags", run(readelf, "-VW", shim)))):
    number = re.fullmatch(r"GLIBC_2\.(\d+)(\.\d+)?", version)
    if not number or int(number[1]) > GLIBC_MINOR:
        print(
            f"needs {version}: glibc 2.{GLIBC_MINOR} is to do (old-libc.c):",
            *re.findall(rf"(\S+)@{re.escape(version)}$", run(nm, "-D", "--undefined-only", shim), re.M),
        )
        failed = 1
for name in re.findall(r" U ([^@\s]+)$", run(nm, "-D", "--undefined-only", shim), re.M):
    print(f"{name}: needed, of no version, and not weak")
    failed = 1
if constructors(shim) != constructors(empty) + ("__gmon_start__" in exported):
    print(f"{constructors(shim)} constructors, an empty library has {constructors(empty)}")
    failed = 1
for flag in ("BIND_NOW", "TEXTREL", "RUNPATH", "RPATH"):
    if flag in dynamic(shim):
        print(f"the dynamic section has {flag}")
        failed = 1
sys.exit(failed)
