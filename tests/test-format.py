#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The form of C (.clang-format) and of Python (ruff.toml): fails on files that the formatters would change, and names the command that changes them.

usage: test-format.py SOURCE [--fix]
Exit status: 0 all as it should be, 1 not, 77 a formatter is not here (tests/prepare installs both)
"""

import os
import shutil
import subprocess
import sys

SKIP = 77


def tracked(source, *patterns):
    text = subprocess.run(["git", "-C", source, "ls-files", "-z", "--", *patterns], check=True, capture_output=True, text=True).stdout
    return [name for name in text.split("\0") if name and os.path.isfile(os.path.join(source, name))]


def is_python(path):
    with open(path, "rb") as file:
        first = file.readline()
    return first.startswith(b"#!") and b"python" in first


def main():
    source, fix = sys.argv[1], "--fix" in sys.argv[2:]
    clang_format = shutil.which("clang-format-19")
    ruff = next((path for path in (os.path.join(source, ".python/bin/ruff"), shutil.which("ruff")) if path and os.path.exists(path)), None)
    if not clang_format or not ruff:
        print("SKIP: clang-format-19 and ruff are needed; tests/prepare installs them")
        return SKIP
    c = tracked(source, "*.c", "*.h")
    python = [name for name in tracked(source, "*") if name.endswith(".py") or ("." not in os.path.basename(name) and is_python(os.path.join(source, name)))]
    assert len(c) > 1000 and len(python) > 100, "these are not all files"
    bad = False
    for what, files in (
        ([clang_format, *(["-i"] if fix else ["--dry-run", "-Werror", "--ferror-limit=1"])], c),
        ([ruff, "format", *([] if fix else ["--check"])], python),
    ):
        result = subprocess.run([*what, *files], cwd=source, capture_output=True, text=True)
        if result.returncode:
            print((result.stdout + result.stderr)[-3000:])
            bad = True
    if bad:
        print("the form is wrong: tests/test-format.py . --fix")
    return bad


if __name__ == "__main__":
    sys.exit(main())
