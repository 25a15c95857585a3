#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tables.py FOLDER OUTPUT STATUSES: the tables of the driver's numbers become C; names of statuses in a file of their own. See rm_ioctls.txt and params.txt for the notation of ours."""

import fnmatch
import pathlib
import re
import sys

folder, target, statuses = pathlib.Path(sys.argv[1]), *sys.argv[2:]
# Of the names of one number the first is taken, but for these.
PREFERRED = {"NV01_ROOT", "NV01_MEMORY_VIRTUAL", "NV2080_CTRL_CMD_FB_STATS_GET"}
ANY_DRIVER = 595


def lines(name):
    for line in (folder / name).read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            yield line


def names(name):
    """NUMBER tab NAME: {number: name}."""
    found = {}
    for line in lines(name):
        number, text = line.split("\t")
        number = int(number, 0)
        if number not in found or text in PREFERRED:
            found[number] = text
    return found


def kind(name, size):
    """What a field is, by its name: these are the driver's and follow a rule."""
    if size == 16:
        return "UUID"
    if size > 8:
        return "STRING"
    if re.match(r"h[A-Z]\w*Class$|hClass$", name):
        return "CLASS"
    if name == "cmd":
        return "COMMAND"
    if name == "function":
        return "FUNCTION"
    if re.match(r"b[A-Z]|pageableMemAccess|allProcessors", name):
        return "BOOL"
    if re.search(r"(fd|Fd|^rc)$", name):
        return "INT"
    if re.search(r"(^size|Size|^length|Length|^total|^free|^alignment)$", name) and name != "totalObjects":
        return "SIZE"
    if re.match(
        r"[hp][A-Z]|base|requestedBase|offset|dmaOffset|limit|address|flags|attr|params|pointer|descriptor$|queueBuffer|controlBuffer|userdOffset|gpFifoOffset|accessMask",
        name,
    ):
        return "HEX"
    return "UINT"


fields, rows = [], {"ioctl": [], "uvm": [], "alloc": [], "control": []}


def add(table, name, number, size, status, until, items):
    """items: (access, name, offset, size)."""
    rows[table].append(
        (
            number,
            '{ "%s", %#x, %d, %d, %d, %d, %d },'
            % (name, number, -1 if size is None else size, -1 if status is None else status, until, len(fields), len(items)),
        )
    )
    for access, field, offset, n in items:
        fields.append('{ "%s", %d, %d, FIELD_%s, ACCESS_%s },' % (field, offset, n, kind(field, n), {"": "IN", ">": "OUT", "*": "BOTH"}[access]))


def parse(text):
    access, name, offset, size = re.fullmatch(r"([>*]?)(\w+)@(\d+)(?::(\d+))?", text).groups()
    return access, name, int(offset), int(size or 4)


def number_or_none(text):
    return None if text == "-" else int(text, 0)


def offsets(name):
    """A file as the compiler's own layout was printed: {name: (number, size, status, items)}."""
    found = {}
    for line in lines(name):
        field = re.match(r"\s+\.(\w+)\s+off=\s*(\d+) size=(\d+)", line)
        if field:
            text, offset, size = field[1], int(field[2]), int(field[3])
            # arrays: the first element
            size = {"hUserdMemory": 4, "userdOffset": 8}.get(text, size)
            found[struct][3].append(("", text, offset, size))
            continue
        struct = line.split()[0]
        number, status = re.search(r"cmd=(\w+)", line), re.search(r"rmStatus@(\d+)", line)
        found[struct] = (number and int(number[1], 0), int(re.search(r"sizeof(?:\(\w+\))?=(\d+)", line)[1]), status and int(status[1]), [])
    return found


# rm_ctrl_cmds.tsv lacks those of class 0, the root: rm_ctrl_root.tsv has those that CUDA and tools use
commands = names("rm_ctrl_root.tsv") | names("rm_ctrl_cmds.tsv")
classes, uvm = names("rm_classes.tsv"), names("uvm_ioctls.tsv")
structs, uvm_structs = offsets("alloc_params_offsets.txt"), offsets("uvm_ioctl_offsets.txt")

for line in lines("rm_ioctls.txt"):
    name, number, size, status, until, *items = line.split()
    add("ioctl", name, int(number, 0), number_or_none(size), number_or_none(status), int(until), [parse(i) for i in items])
for line in lines("params.txt"):
    table, pattern, size, status, *items = line.split()
    numbers = {"alloc": classes, "control": commands, "uvm": uvm}[table]
    matching = [number for number, name in numbers.items() if fnmatch.fnmatchcase(name, pattern)]
    if not matching:
        sys.exit("params.txt: no %s is called %s" % (table, pattern))
    for number in matching:
        if items and items[0].startswith("="):
            add(table, classes[number], number, None, None, ANY_DRIVER, structs[items[0][1:]][3])
        elif table == "uvm":
            uvm_structs[numbers[number]] = (number, number_or_none(size), number_or_none(status), [parse(i) for i in items])
        else:
            add(table, numbers[number], number, None, None, ANY_DRIVER, [parse(i) for i in items])
for number, name in uvm.items():
    _, size, status, items = uvm_structs.get(name, (number, None, None, []))
    add("uvm", name, number, size, status, ANY_DRIVER, items)

with open(target, "w") as f:
    f.write("/* Made by tables.py. */\n#pragma once\n\n")
    for name, table in ("classes", classes), ("commands", commands):
        f.write("static const struct trace_number %s[] = {\n" % name)
        for number in sorted(table):
            f.write('\t{ %#x, "%s" },\n' % (number, table[number]))
        f.write("};\n\n")
    f.write("static const struct trace_field fields[] = {\n%s\n};\n\n" % "\n".join("\t" + i for i in fields))
    for name, table in rows.items():
        f.write("static const struct trace_params %s_params[] = {\n" % name)
        # by number; of one number as they were
        for _, text in sorted(table, key=lambda row: row[0]):
            f.write("\t%s\n" % text)
        f.write("};\n\n")

with open(statuses, "w") as f:
    f.write("/* Made by tables.py. */\n" + "".join('{ %#x, "%s" },\n' % row for row in sorted(names("nv_status.tsv").items())))
