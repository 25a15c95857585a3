#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""embed.py NAME FILE OUT: a C file that defines `const unsigned char NAME[]`, 16-aligned, with a NUL after FILE's bytes."""

import sys

name, source, out = sys.argv[1:]
data = open(source, "rb").read() + b"\0"
with open(out, "w") as file:
    file.write("extern const unsigned char %s[];\n" % name)
    file.write("const unsigned char %s[] __attribute__((aligned(16))) = {\n" % name)
    for i in range(0, len(data), 16):
        file.write("".join("%d," % byte for byte in data[i : i + 16]) + "\n")
    file.write("};\n")
