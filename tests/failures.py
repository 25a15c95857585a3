#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the tests that failed, each with the end of what it printed.

A run of meson test writes its results to build*/meson-logs/*.json, one JSON object a line. ./check runs several of
them, and its output is long: this is its last page, so that somebody who sees only the end sees the cause.

Usage: tests/failures.py FILE...
Exit status: 0, also where tests failed; 2 where there is no file."""

import json
import sys

GOOD = {"OK", "SKIP", "EXPECTEDFAIL"}
LAST_LINES = 40


def tail(text):
    return "\n".join(f"    {line}" for line in text.splitlines()[-LAST_LINES:])


def main():
    if len(sys.argv) < 2:
        sys.exit(2)
    failed = []
    ran = 0
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                test = json.loads(line)
                ran += 1
                if test["result"] not in GOOD:
                    failed.append((path, test))
    print(f"{ran} tests ran, {len(failed)} failed")
    for path, test in failed:
        print(f"FAILED ({test['result']}, exit status {test['returncode']}): {test['name']}, in {path}")
        for stream in ("stdout", "stderr"):
            if test.get(stream):
                print(f"  its {stream} ended with:\n{tail(test[stream])}")


if __name__ == "__main__":
    main()
