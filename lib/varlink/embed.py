#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""embed.py OUT.c FILE...: each FILE as a C string named after it, io.foo.bar.varlink -> varlink_io_foo_bar."""

import pathlib
import sys

out = ["/* made by embed.py */"]
for path in map(pathlib.Path, sys.argv[2:]):
    name = "varlink_" + path.name.removesuffix(".varlink").replace(".", "_").replace("-", "_")
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    out.append(f"extern const char {name}[];\nconst char {name}[] =")
    for line in lines:
        text = "".join(c if " " <= c <= "~" and c not in '"\\?' else "".join(f"\\{b:03o}" for b in c.encode()) for c in line)
        out.append(f'\t"{text}"')
    out[-1] += ";"
pathlib.Path(sys.argv[1]).write_text("\n".join(out) + "\n", encoding="utf-8")
