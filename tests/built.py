#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""built.py BUILD PATH...: whether files that a test needs were built, for scripts; tests in Python import it.

The exit status is 77 (skipped) only if the build folder makes no file of that name, because the machine lacks what it is made with (clang for BPF, LLVM, ...).
A file that is made, and is not there, or is in another folder, is a mistake: 1, and a line that says what to do.
"""

import json
import os
import sys

SKIP = 77


def missing(build, path):
    """None if a file (below the build folder, or absolute) is there; else (exit status, reason)."""
    path = os.path.join(build, path)
    if os.path.exists(path):
        return None
    try:
        with open(os.path.join(build, "meson-info/intro-targets.json")) as file:
            made = [name for target in json.load(file) for name in target["filename"]]
    except OSError:
        return SKIP, f"skipped: {path} is not there"  # nor is meson: a bundle, unpacked for a GPU
    if path in made:
        return 1, f"{path} is not there: ninja -C {build}"
    others = [name for name in made if os.path.basename(name) == os.path.basename(path)]
    if len(others) == 1:
        return 1, f"{path} is made nowhere, but {others[0]} is: correct the test"
    return SKIP, f"skipped: {path} is not made here: meson setup has said what is missing"


def need(build, *paths):
    """Ends the test if one of the files is not there."""
    for path in paths:
        found = missing(build, path)
        if found:
            print(found[1])
            sys.exit(found[0])


if __name__ == "__main__":
    need(os.path.realpath(sys.argv[1]), *sys.argv[2:])
