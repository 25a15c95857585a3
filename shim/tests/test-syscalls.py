#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs without CUDA make the same syscalls under the shim as under a library that is empty."""

import os
import re
import shutil
import subprocess
import sys
import tempfile

from target_runs import SHIM, TARGETS, end, report

if not shutil.which("strace"):
    sys.exit(77)

PATHS = ("openat", "open", "newfstatat", "stat", "lstat", "access", "faccessat2", "execve", "readlink")


def calls(library, command):
    """One list a process: names of calls, and of files. How many segments a library has is the linker's business, and whether a child ends
    before or while a shell waits for it is chance."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["strace", "-ff", "-e", "trace=all", "-o", f"{folder}/trace", "-E", f"LD_PRELOAD={library}", *command], capture_output=True, text=True
        )
        if done.returncode or not os.listdir(folder):
            print("no strace here:", done.stderr)
            sys.exit(77)
        processes = []
        for name in sorted(os.listdir(folder), key=lambda name: int(name.rsplit(".", 1)[1])):
            with open(f"{folder}/{name}") as file:
                found = [re.match(r"(\w+)\((.*)", line.replace(library, "LIBRARY")) for line in file]
            processes.append(
                [
                    (match[1], *(re.findall(r'"([^"]*)"', match[2])[:1] if match[1] in PATHS else ()))
                    for match in found
                    if match and match[1] not in ("mmap", "mprotect", "munmap", "rt_sigreturn", "wait4")
                ]
            )
    return processes


for arguments in (["/bin/true"], ["/bin/sh", "-c", "/bin/true; /bin/true"], [sys.executable, "-S", "-c", "import ctypes; ctypes.CDLL(None).puts"]):
    empty, ours = calls(os.path.join(TARGETS, "libs-empty.so"), arguments), calls(SHIM, arguments)
    extra = [(a, b) for one, other in zip(empty, ours) for a, b in zip(one, other) if a != b][:5]
    report(f"{' '.join(arguments)}: {sum(map(len, ours))} calls", empty == ours and ours[0], f"{extra} {list(map(len, empty))} {list(map(len, ours))}")
end()
