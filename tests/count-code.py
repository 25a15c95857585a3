#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
How large the product's C is: lines, tokens (comments and line ends do not count, adjacent strings are one), the share of comments, long functions, long lines, large folders.

usage: count-code.py [REVISION [FOLDER...]]      default: the working tree, all of the product
"""

import collections
import os
import re
import signal
import subprocess
import sys

PRODUCT = ("lib", "daemon", "shim", "passes", "proto", "ctl")
TOKEN = re.compile(
    r"""(?P<comment>/\*.*?\*/|//[^\n]*) | (?P<string>"(?:\\.|[^"\\])*"(?:\s*"(?:\\.|[^"\\])*")*) | '(?:\\.|[^'\\])*' | [A-Za-z_]\w* | \.?\d(?:[eEpP][+-]|[\w.])*
    | \.\.\.|<<=|>>=|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\#\# | (?P<space>\s+|\\\n) | .""",
    re.X | re.S,
)
LONG_FUNCTION, LONG_LINE, LARGE_FOLDER = 60, 100, 40


def is_product(path):
    name = os.path.basename(path)
    return path.startswith(tuple(f"{folder}/" for folder in PRODUCT)) and name.endswith((".c", ".h")) and not name.startswith("test-") and "/tests/" not in path


def read(revision):
    """Path and text of each file."""
    if revision:
        names = subprocess.run(["git", "ls-tree", "-r", "--name-only", revision], check=True, capture_output=True, text=True).stdout.split("\n")
        for name in filter(is_product, names):
            yield name, subprocess.run(["git", "show", f"{revision}:{name}"], check=True, capture_output=True, text=True).stdout
    else:
        for name in filter(is_product, subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True).stdout.split("\n")):
            with open(name) as file:
                yield name, file.read()


def count(text):
    """Tokens, characters of comments, and characters that are no space."""
    tokens = comment = everything = 0
    for match in TOKEN.finditer(text):
        if match["space"] is None:
            size = len(re.sub(r"\s+", "", match[0]))
            everything += size
            if match["comment"] is not None:
                comment += size
            else:
                tokens += 1
    return tokens, comment, everything


def functions(text):
    """Lines of each function, by its first line."""
    begin = None
    for number, line in enumerate(text.split("\n")):
        if re.match(r"[A-Za-z_].*\{$", line) and "=" not in line and not line.startswith(("struct", "enum", "union", "extern")) or line == "{":
            begin = number
        elif line == "}" and begin is not None:
            yield number - begin + 1
            begin = None


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # for `| head`
    revision, folders = (sys.argv[1] if len(sys.argv) > 1 and sys.argv[1] != "-" else None), tuple(sys.argv[2:])
    total = collections.Counter()
    entries = collections.Counter()
    for path, text in read(revision):
        if folders and not path.startswith(folders):
            continue
        tokens, comment, everything = count(text)
        lines = text.split("\n")[:-1]
        entries[os.path.dirname(path)] += 1
        total.update(
            files=1,
            lines=len(lines),
            tokens=tokens,
            comment=comment,
            everything=everything,
            long_lines=sum(len(line.expandtabs(8)) > LONG_LINE for line in lines),
            long_functions=sum(size > LONG_FUNCTION for size in functions(text)),
        )
    print(
        f"files {total['files']}, lines {total['lines']}, tokens {total['tokens']}, comments {100 * total['comment'] / max(1, total['everything']):.1f} % of characters"
    )
    print(f"functions over {LONG_FUNCTION} lines: {total['long_functions']}; lines over {LONG_LINE} columns: {total['long_lines']}")
    print("folders with most product files:", ", ".join(f"{folder} {n}" for folder, n in entries.most_common(5)))


if __name__ == "__main__":
    main()
