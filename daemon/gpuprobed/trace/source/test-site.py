#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test-site.py TEST-SITE LIBRARY...: the decoder of site.c against objdump, on the beginnings of all functions of real libraries.

Each instruction that it knows must have objdump's length; one that it calls harmless must write none but rax, r10, r11 or flags; and what it
calls emulated must be a push, a nop, a jump or a call."""

import os
import re
import shutil
import subprocess
import sys

BYTES = 32
FREE = re.compile(r"%(?:[er]?ax|al|ah|r1[01][dwb]?)$")
EMULATED = re.compile(r"(?:push|pushq|nop\w?|xchg|data16|j\w+|call\w?|bnd|notrack)\b")
COMPARES = re.compile(r"(?:cmp|test)[bwlq]?\b|endbr64")


def functions(library):
    """For each function of the dynamic symbols: (address, instructions as (bytes, text))."""
    starts = set()
    for line in subprocess.run(["objdump", "-T", library], capture_output=True, text=True, check=True).stdout.splitlines():
        match = re.match(r"([0-9a-f]{16}) .* DF \.text", line)
        if match:
            starts.add(int(match[1], 16))
    current, left = None, 0
    lines = subprocess.run(["objdump", "-d", "--insn-width=16", "-j", ".text", library], capture_output=True, text=True, check=True).stdout.splitlines()
    for line in lines:
        match = re.match(r" *([0-9a-f]+):\t((?:[0-9a-f]{2} )+) *\t?(.*)", line)
        if not match:
            continue
        address, data, text = int(match[1], 16), bytes.fromhex(match[2]), match[3].split("#")[0].strip()
        if address in starts:
            if current:
                yield current
            current, left = (address, []), BYTES
        if current and left > 0:
            current[1].append((data, text))
            left -= len(data)
    if current:
        yield current


def check(address, code, answer):
    """Complaints about the answer for one function."""
    kind, offset, *lengths = answer.split()
    at, offset = 0, int(offset)
    for (data, text), word in zip(code, lengths):
        length, harmless = int(word.rstrip("h")), word.endswith("h")
        if length != len(data):
            yield f"{address:#x}: {text}: {length} bytes instead of {len(data)}"
            return
        if harmless and not COMPARES.match(text) and not FREE.search(text.split(",")[-1].strip()):
            yield f"{address:#x}: {text} is not harmless"
    for data, text in code:
        if at == offset and kind == "emulated" and not EMULATED.match(text):
            yield f"{address:#x}: {text} is not emulated"
        if at > offset:
            break
        at += len(data)


def main():
    program, *libraries = sys.argv[1:]
    libraries = [library for library in libraries if os.path.exists(library)]
    if os.uname().machine != "x86_64" or not shutil.which("objdump") or not libraries:
        print("skipped: no objdump, or no library")
        return 77
    total = emulated = 0
    complaints = []
    for library in libraries:
        known = list(functions(library))
        lines = "".join(b"".join(data for data, _ in code)[:BYTES].hex() + "\n" for _, code in known)
        answers = subprocess.run([program, "--lengths"], input=lines, capture_output=True, text=True, check=True).stdout.splitlines()
        assert len(answers) == len(known), library
        for (address, code), answer in zip(known, answers):
            complaints += [f"{library}: {text}" for text in check(address, code, answer)]
            total += 1
            emulated += answer.startswith("emulated")
        print(f"{library}: {len(known)} functions, {sum(a.startswith('emulated') for a in answers)} with a cheap site")
    print("\n".join(complaints[:20]))
    assert total > 1000, total
    return bool(complaints)


sys.exit(main())
