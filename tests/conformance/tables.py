# SPDX-License-Identifier: Apache-2.0
"""The rows of the tables of proto/ (helper.h, map-type.h), read as text: which helpers and types of maps there are, and of what kind each is."""

import os
import re

PROTO = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../proto")


def text(name):
    with open(os.path.join(PROTO, name), encoding="utf-8") as file:
        return file.read()


def rows(name):
    """[[number, name, kind, ...]] of a table, kinds without their prefix."""
    constants = dict(re.findall(r"\b([A-Z]\w+)(?: =|)\s+(\d+)", text("gpuprobe.bpf.h") + text(name)))
    found = re.findall(r'\{ (\w+),\s+"(\w+)",\s+(?:HELPER|MAP_KIND)_(\w+),\s+([^{}]*?) \}', text(name))
    return [[int(constants.get(number, number)), *words] for number, *words in found]


HELPERS = {number: (name, kind) for number, name, kind, *_ in rows("helper.h")}
MAP_TYPES = {number: (kind, "MAP_TYPE_LRU" in flags) for number, _, kind, flags in rows("map-type.h")}
