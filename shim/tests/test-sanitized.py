#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Programs that were built with a sanitizer begin and end under the shim: its runtime asks for symbols before it can answer for its own.

  test-sanitized.py SHIM
"""

import os
import shutil
import subprocess
import sys
import tempfile

SOURCE = r"""
#include <dlfcn.h>
#include <stdlib.h>
int main(void) { return dlsym(RTLD_DEFAULT, "malloc") && atoi("7") == 7 ? 7 : 1; }
"""
BUILDS = [("clang-19", f"-fsanitize={kind}") for kind in ("address", "memory", "thread", "undefined")] + [
    ("gcc", "-fsanitize=thread"),
    ("gcc", "-static-libasan", "-fsanitize=address"),
]

shim = os.path.abspath(sys.argv[1])
failed = tried = 0
with tempfile.TemporaryDirectory() as folder:
    source, program = os.path.join(folder, "a.c"), os.path.join(folder, "a")
    with open(source, "w") as file:
        file.write(SOURCE)
    for compiler, *options in BUILDS:
        what = " ".join([compiler, *options])
        if not shutil.which(compiler) or subprocess.run([compiler, *options, source, "-o", program], capture_output=True).returncode:
            print("skip", what)
            continue
        try:
            bare = subprocess.run([program], capture_output=True, text=True, timeout=60).returncode
            if bare != 7:
                print("skip", what, "which does not run here")
                continue
            done = subprocess.run([program], env={**os.environ, "LD_PRELOAD": shim}, capture_output=True, text=True, timeout=60)
            said = f"{done.returncode} {done.stderr[:300]}" if (done.returncode, done.stderr) != (7, "") else ""
        except subprocess.TimeoutExpired:
            said = "does not end"
        print("FAIL" if said else "ok  ", what, said)
        failed |= bool(said)
        tried += 1
sys.exit(1 if failed else 0 if tried else 77)
