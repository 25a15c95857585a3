#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""embed.py INPUT OUTPUT NAME: a file becomes a C array."""

import sys

source, target, name = sys.argv[1:]
with open(source, "rb") as f:
    data = f.read()
with open(target, "w") as f:
    f.write("/* Made by embed.py. */\n#pragma once\n\nstatic const unsigned char %s[] = {\n" % name)
    for i in range(0, len(data), 16):
        f.write("\t" + " ".join("0x%02x," % b for b in data[i : i + 16]) + "\n")
    f.write("};\n")
