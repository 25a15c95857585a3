#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Makes the table of instructions of an architecture (table-sm90.h) from machine code and NVIDIA's disassembler. Run by hand; the table is in the tree.

Which field of an instruction names a register is found out by changing it: the 8 bits of each field are set to something else, and the disassembler says
whether a register of its text changed. An instruction that is in no cubin has no row; kernels that contain it have no twin.

usage: make-table.py --nvdisasm PATH [--arch SM90] FOLDER_OF_CUBINS... >table-sm90.h
"""

import argparse
import collections
import random
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

LINE = re.compile(r"/\*[0-9a-f]+\*/\s+(.*?);\s+/\* 0x([0-9a-f]+) \*/\s*\n\s+/\* 0x([0-9a-f]+) \*/")
TOKEN = re.compile(r"(?<![\w.])(UR|UP|R|P|B)(\d+|Z|T)\b")
FIELDS = (16, 24, 32, 40, 64)  # where a field of 8 bits that names a register may begin,
PREDICATES = (68, 77, 81, 84, 87)  # and one of 3 bits that names a predicate
SAMPLES = 40  # instructions of an opcode whose fields are changed
ENOUGH = 200  # instructions of an opcode that must have been seen before it is believed to need no scoreboard

# What cannot be seen in the text. Mnemonics without their suffixes.
ASYNC = {"HGMMA", "IGMMA", "QGMMA", "BGMMA"}
WIDE = ASYNC | {"UTMALDG", "UTMASTG", "UTMAREDG", "UTMAPF", "UTMACCTL", "UBLKCP", "UBLKRED", "UBLKPF"}  # read more than four uniform registers in a row
GLOBAL = {"LD", "LDG", "ST", "STG", "ATOM", "ATOMG", "RED", "REDG"}
MATRIX = {"HMMA", "IMMA", "DMMA", "BMMA"}  # calculations that take longer than a branch
SIZED = {"LD", "LDG", "LDS", "LDL", "ST", "STG", "STS", "STL"}  # an address and a value, whose size is in bits 73-75
PROBE = GLOBAL | {"LDC", "ULDC", "S2R", "S2UR", "CS2R", "SHFL", "VOTE", "VOTEU", "MATCH", "REDUX", "R2UR", "MEMBAR", "ERRBAR", "CCTL", "NOP", "BRA"}
PROBE |= {
    "NANOSLEEP",
    "PMTRIG",
    "CGAERRBAR",
    "ENDCOLLECTIVE",
    "BSSY",
    "BSYNC",
    "BREAK",
    "EXIT",
    "YIELD",
    "WARPSYNC",
    "P2R",
    "R2P",
    "UP2UR",
    "POPC",
    "FLO",
    "BREV",
    "MUFU",
    "F2F",
    "F2I",
    "I2F",
    "FRND",
    "FCHK",
}
FLOW = {"BRA": "BRANCH", "CALL": "CALL", "RET": "RETURN", "BRX": "INDIRECT", "BSSY": "SYNC", "EXIT": "EXIT", "NOP": "NOP", "USETMAXREG": "SETMAXREG"}
LANES = {"VOTEU", "R2UR", "REDUX", "ELECT"}  # put into uniform registers what depends on the active threads
SWITCH = {"BRA", "BSYNC", "YIELD", "WARPSYNC", "BREAK", "BRX", "CALL", "RET", "NANOSLEEP", "ENDCOLLECTIVE"}  # other threads of the warp may run behind it
# Calculations: their results are there after a fixed number of cycles.
CALCULATION = re.compile(r"U?(MOV|U?I?F?SEL|[FIDH]?SETP?|IADD3|LEA|LOP3|PLOP3|IABS|PRMT|SHF|SGXT|BMSK|[FDH]MUL2?|[FDH]ADD2?|[FDH]FMA2?|IMAD|IDP|FSET|HSET2|HSETP2"
    r"|DSETP|FSETP|ISETP|FMNMX|HMNMX2|F2FP|F2IP|I2FP|VIADD|VIADDMNMX|VIMNMX|VIMNMX3|UFLO|UPOPC)$")  # fmt: skip


def sections(data):
    """The executable sections of a cubin."""
    if data[:4] != b"\x7fELF":
        return
    offset, count = struct.unpack_from("<Q", data, 0x28)[0], struct.unpack_from("<H", data, 0x3C)[0]
    for index in range(count):
        header = struct.unpack_from("<IIQQQQIIQQ", data, offset + 64 * index)
        if header[1] == 1 and header[2] & 4:
            yield data[header[4] : header[4] + header[5]]


class Seen:
    """What was seen of one opcode."""

    def __init__(self):
        self.count = self.scoreboards = 0
        self.words = {}  # by what is set apart from registers


def read(paths):
    seen = collections.defaultdict(Seen)
    for path in paths:
        for text in sections(path.read_bytes()):
            for low, high in struct.iter_unpack("<QQ", text[: len(text) // 16 * 16]):
                one = seen[low & 0xFFF]
                one.count += 1
                one.scoreboards += high >> 46 & 0x3F != 0x3F
                words = one.words.setdefault(high >> 8 & 0x1FFFFFFFF, [])
                if len(words) < 6:
                    words.append(low | high << 64)
    return seen


class Disassembler:
    def __init__(self, program, arch):
        self.command = [program, "-b", arch, "-hex"]

    def texts(self, words):
        """The text of each word; words that are no instruction are left out."""
        words = sorted(set(words))
        with tempfile.NamedTemporaryFile(suffix=".bin") as file:
            while True:
                Path(file.name).write_bytes(b"".join(word.to_bytes(16, "little") for word in words))
                result = subprocess.run([*self.command, file.name], capture_output=True, text=True, check=False)
                bad = {int(at, 16) // 16 for at in re.findall(r"at address 0x([0-9a-f]+)", result.stderr)}
                if not bad:
                    break
                words = [word for index, word in enumerate(words) if index not in bad]
        if result.returncode:
            sys.exit(result.stderr)
        return {int(low, 16) | int(high, 16) << 64: text.replace(".reuse", "") for text, low, high in LINE.findall(result.stdout)}


def changed(before, after, value):
    """The kind of register that a changed field names, or None."""
    before, after = TOKEN.findall(before), TOKEN.findall(after)
    if len(before) == len(after):
        kinds = {new[0] for old, new in zip(before, after, strict=True) if old != new}
    else:
        kinds = {kind for kind, number in (collections.Counter(after) - collections.Counter(before)) if number == str(value)}
        kinds |= {kind for kind, number in (collections.Counter(before) - collections.Counter(after)) if number not in "ZT"}
    return kinds.pop() if len(kinds) == 1 else None


def find_fields(disassembler, seen):
    """{opcode: {field: {kind: how many times; None: it did nothing}}}, and the text of each sample."""
    random.seed(1)
    flips, samples = {}, {}
    for opcode, one in seen.items():
        words = [word for some in one.words.values() for word in some]
        samples[opcode] = words = random.sample(words, min(400, len(words)))
        for word in words[:SAMPLES]:
            for at in FIELDS:
                old = word >> at & 0xFF
                for value in {old ^ 4 if old != 0xFF else 8, old & 0xC0 | (old ^ 8) & 0x3F}:
                    flips[opcode, word, at, value] = word & ~(0xFF << at) | value << at
            for at in PREDICATES:
                flips[opcode, word, at, (word >> at & 7) ^ 1] = word ^ 1 << at
    texts = disassembler.texts([*flips.values(), *(word for words in samples.values() for word in words)])
    found = collections.defaultdict(lambda: collections.defaultdict(collections.Counter))
    for (opcode, word, at, value), new in flips.items():
        if new in texts and word in texts:
            found[opcode][at][changed(texts[word], texts[new], value)] += 1
    return found, {opcode: {word: texts[word] for word in words if word in texts} for opcode, words in samples.items()}


def row(opcode, one, fields, texts):
    text = next(iter(texts.values()))
    name = re.sub(r"^@!?U?P\w ", "", text).split()[0].split(".")[0]
    kinds = {"R": [], "UR": [], "B": [], "P": [], "UP": []}
    flags = set()
    for at, counts in sorted(fields.items()):
        for kind in counts:
            if kind in kinds and (kind in ("P", "UP")) == (at in PREDICATES):
                kinds[kind].append(f"P{at}" if at in PREDICATES else f"F{at}")
        if "UR" in counts and None in counts and at in (24, 32):
            flags.add("URB91")  # only where bit 91 is set
    if (one.scoreboards or one.count < ENOUGH) and not CALCULATION.match(name) or name in ASYNC:
        flags.add("VARIABLE")
    if any(re.match(r"@!?UP", text) for text in texts.values()) or name.startswith("U"):
        flags.add("UGUARD")
    if name in ASYNC:
        flags.add("ASYNC")
    if name in WIDE:
        flags.add("WIDE")
    if name in GLOBAL:
        flags.add("GLOBAL")
    if name == "LDGSTS":
        flags.add("NORESULT")
    if name in ("P2R", "R2P"):
        flags.add("ALL")
    if name in MATRIX:
        flags.add("LATE")
    if name in SIZED:
        flags.add("SIZED")
    if name in ("LDC", "ULDC"):
        flags.add("CONSTANT")
    if name in PROBE or CALCULATION.match(name):
        flags.add("PROBE")
    if name in LANES:
        flags.add("LANES")
    if name in SWITCH:
        flags.add("SWITCH")
    if name in FLOW:
        flags.add(FLOW[name])
    columns = [" | ".join(fields) for fields in (*kinds.values(), sorted(flags))]
    return f'\tROW(0x{opcode:03x}, "{name}", ' + ", ".join(column or "0" for column in columns) + ")"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvdisasm", required=True)
    parser.add_argument("--arch", default="SM90")
    parser.add_argument("folders", nargs="+", type=Path)
    options = parser.parse_args()
    seen = read(sorted(path for folder in options.folders for path in folder.rglob("*.cubin")))
    fields, texts = find_fields(Disassembler(options.nvdisasm, options.arch), seen)
    print("/* SPDX-License-Identifier: Apache-2.0 */\n")
    print(f"/* Made by make-table.py from {sum(one.count for one in seen.values())} instructions; not to be edited. */\n/* clang-format off */")
    print("\n".join(row(opcode, seen[opcode], fields[opcode], texts[opcode]) for opcode in sorted(seen) if texts[opcode]))
    print("/* clang-format on */")


if __name__ == "__main__":
    main()
