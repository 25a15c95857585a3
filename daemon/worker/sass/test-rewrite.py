#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Machine-code twins against NVIDIA's disassembler.

- `sass-tool decode` finds the registers of each instruction that nvdisasm prints.
- A twin has all of its kernel's instructions, bit by bit where they were; only the first one and the exits are branches, to code behind. That code is the
  probe, with registers that the kernel does not use at the same time, and its parameter moved. Sections and attributes that are not the kernel's stay.
- What is not understood is refused, with a line that names it.

usage: test-rewrite.py SASS_TOOL NVCC NVDISASM [CUBIN...]        cubins: by hand, in place of those that it compiles
Exit status: 77 no nvcc or no disassembler
"""

import os
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]
SOURCES = {"tests/gpu/machine-code.cu": "sm_90", "tests/targets/kernels.cu": "sm_90", "tests/corpus/hopper.cu": "sm_90a", "tests/corpus/textures.cu": "sm_90"}
PROBE = TOP / "tests/gpu/counter-probe.ptx"
LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(.*?);\s+/\* 0x([0-9a-f]+) \*/\s*\n\s+/\* 0x([0-9a-f]+) \*/")
TOKEN = re.compile(r"(?<![\w.])(UR|R|B)(\d+)\b")
REGCOUNT, EXITS, PARAM_CBANK, PARAM_SIZE, KPARAM, KPARAM_V2, WARP_WIDE = 0x2F, 0x1C, 0x0A, 0x19, 0x17, 0x45, 0x31
OURS = {EXITS, PARAM_CBANK, PARAM_SIZE, KPARAM, KPARAM_V2, WARP_WIDE}  # attributes of a kernel that may differ in its twin
SKIP = 77


class Elf:
    """Another reader than the rewriter's."""

    def __init__(self, data):
        at = struct.unpack_from("<Q", data, 0x28)[0]
        count, names = struct.unpack_from("<HH", data, 0x3C)
        self.headers = [struct.unpack_from("<IIQQQQIIQQ", data, at + 64 * i) for i in range(count)]
        text = lambda offset: data[offset : data.index(0, offset)].decode()  # noqa: E731
        self.names = [text(self.headers[names][4] + header[0]) for header in self.headers]
        self.data = {name: data[h[4] : h[4] + h[5]] if h[1] != 8 else b"" for name, h in zip(self.names, self.headers, strict=True)}
        table = self.names.index(".symtab")
        strings = self.headers[self.headers[table][6]][4]
        self.symbols = [struct.unpack_from("<IBBHQQ", self.data[".symtab"], at) for at in range(0, len(self.data[".symtab"]), 24)]
        self.symbol_names = [text(strings + symbol[0]) for symbol in self.symbols]

    def kernels(self):
        return [name for name, symbol in zip(self.symbol_names, self.symbols, strict=True) if symbol[1] & 15 == 2 and symbol[2] & 0x10]

    def attributes(self, section):
        """(kind, value) in order."""
        data, at, found = self.data[section], 0, []
        while at + 4 <= len(data):
            form, kind, size = data[at], data[at + 1], struct.unpack_from("<H", data, at + 2)[0]
            at += 4
            found.append((kind, data[at : at + size] if form == 4 else size))
            at += size if form == 4 else 0
        return found

    def registers(self, kernel):
        return next(
            count
            for kind, value in self.attributes(".nv.info")
            if kind == REGCOUNT
            for symbol, count in [struct.unpack("<II", value)]
            if self.symbol_names[symbol] == kernel
        )


def words(text):
    return [int.from_bytes(text[at : at + 16], "little") for at in range(0, len(text), 16)]


def bits(word, at, n):
    return word >> at & (1 << n) - 1


def list_of(attributes, kind):
    return [offset for k, value in attributes if k == kind for offset in struct.unpack(f"<{len(value) // 4}I", value)]


class Tools:
    def __init__(self, sass_tool, nvdisasm, folder):
        self.sass_tool, self.nvdisasm, self.folder = sass_tool, nvdisasm, Path(folder)

    def run(self, *arguments):
        return subprocess.run([self.sass_tool, *arguments], capture_output=True, text=True, timeout=60, check=False)

    def disassemble(self, path):
        """{section: [text]}, without branches' targets."""
        result = subprocess.run([self.nvdisasm, "-hex", path], capture_output=True, text=True, timeout=120, check=False)
        assert not result.returncode, f"nvdisasm refuses {path}: {result.stderr[:300]}"
        found = {}
        for part in re.split(r"^\t\.section\t", result.stdout, flags=re.M)[1:]:
            name = part.split(",")[0]
            if name.startswith(".text."):
                found[name] = [text.strip().replace(".reuse", "") for _, text, _, _ in LINE.findall(part)]
        return found

    def twin(self, path, *probes):
        out = self.folder / f"twin-{path.name}"
        result = self.run("twin", path, out, "--all", *probes)
        assert result.returncode in (0, 3), result
        return out, result.stdout


def check_decoding(tools, path, texts):
    """The registers that are printed are those that are decoded. RZ and URZ are not printed everywhere."""
    decoded = {}
    for line in tools.run("decode", path).stdout.splitlines():
        section, _, name, *fields = line.split()
        decoded.setdefault(section, []).append((name, {field.split("=")[1] for field in fields} - {"R255", "UR63"}))
    for section, lines in texts.items():
        assert len(lines) <= len(decoded[section]), section
        for text, (name, found) in zip(lines, decoded[section], strict=False):
            plain = re.sub(r"`\(.*?\)|@!?U?P\w ", "", text)
            printed = {kind + number for kind, number in TOKEN.findall(plain)}
            assert plain.split()[0].split(".")[0] == name and printed <= found, f"{section}: {text}: {name} {found}"
            unprinted = {register for register in found - printed if register not in ("UR0", "R0")}
            assert not unprinted or name in ("F2FP", "LEA", "ULEA", "UTMALDG", "UTMASTG"), f"{section}: {text}: {found}"
    return sum(map(len, texts.values()))


def is_branch_to_stub(word, original, at, stub_begin):
    """A BRA with the guard and second predicate of the original, to code behind the kernel's own."""
    distance = bits(word, 16, 8) | bits(word, 34, 48) << 8
    distance -= (distance >> 55) << 56
    same = all(bits(word, *field) == bits(original, *field) for field in ((12, 4), (87, 4), (105, 21)))
    return bits(word, 0, 12) == 0x947 and at + 16 + 4 * distance >= stub_begin and (same or not at)


def check_kernel_text(old, new):
    """The kernel's own instructions. Returns where the code of probes begins."""
    end = 16 * len(old)
    for index, (before, after) in enumerate(zip(old, new, strict=False)):
        moved = not index or bits(before, 0, 12) == 0x94D
        good = is_branch_to_stub(after, before, 16 * index, end) if moved else before == after
        assert good, f"instruction {16 * index:#x}: {before:032x} became {after:032x}"
    assert len(new) > len(old)
    return len(old)


def masked(word, text):
    """An instruction of a probe without what the rewriter may change: registers, the parameter's offset, scoreboards and stalls."""
    text = re.sub(r"(?<![\w.])(UR|R|B)\d+\b", r"\1#", re.sub(r"c\[0x0\]\[0x(2[1-9a-f].|[3-9a-f]..|1...)\]", "c[parameter]", text))
    return bits(word, 0, 12), re.sub(r"`\(.*?\)", "`", re.sub(r"(?<![\w.])P\d\b", "P#", text))


def check_stubs(kernel, texts, new_words, begin, probe_texts, probe_words, old_texts):
    """Exit: NOP, the probe. Entry: BSSY, the probe with branches for exits, BSYNC, the first instruction, BRA."""
    body = [masked(word, text) for word, text in zip(probe_words[1:], probe_texts[1:], strict=False)]
    last = max(i for i, (opcode, _) in enumerate(body) if opcode == 0x94D)
    body = body[: last + 1]
    stub = [masked(word, text) for word, text in zip(new_words, texts, strict=False)][begin:]
    n = len(body)
    assert bits(new_words[begin], 0, 12) == 0x918 and bits(new_words[begin], 116, 6) == 0x3F, f"{kernel}: the exit's stub does not wait"
    assert stub[1 : 1 + n] == body, f"{kernel}: exit: {stub[: n + 1]} {body}"
    entry = stub[1 + n :]
    opcodes = [opcode for opcode, _ in entry]
    assert opcodes[0] == 0x945 and opcodes[n + 1] == 0x941 and opcodes[n + 3] == 0x947, f"{kernel}: entry: {entry}"
    assert [0x947 if one[0] == 0x94D else one for one in body] == [one[0] if one[0] == 0x947 else one for one in entry[1 : n + 1]], f"{kernel}: entry: {entry}"
    assert entry[n + 2][1] == "LDC R#, c[0x0][0x28]", entry[n + 2]
    assert all(opcode == 0x918 for opcode in opcodes[n + 4 :]), f"{kernel}: {entry[n + 4 :]}"
    uniform = {number for text in texts[begin + 1 : begin + 1 + n] for kind, number in TOKEN.findall(text) if kind == "UR"}
    used = {number for text in old_texts for kind, number in TOKEN.findall(text) if kind == "UR"}
    assert not uniform & used, f"{kernel}: the probe at the exit uses uniform registers of the kernel: {uniform & used}"


def late(word, text):
    """Registers (as text has them, with those that follow) of a memory instruction that has no scoreboard for them."""
    if not re.search(r"\[.*\]", text) or re.search(r"LDC|REDUX|DEPBAR", text) or bits(word, 110, 3) != 7 or bits(word, 113, 3) != 7:
        return set()
    return {int(number) + i for kind, number in TOKEN.findall(text) if kind == "R" for i in range(2 if f"R{number}.64" in text else 1)}


def check_registers(kernel, elf, texts, old_texts, old_words, begin, n):
    """No register of the probe at the exit is one of a memory instruction that nobody waits for, and all are within the count."""
    mine = {int(number) for text in texts[begin + 1 : begin + 1 + n] for kind, number in TOKEN.findall(text) if kind == "R"}
    assert max(mine) < elf.registers(kernel) - 2, f"{kernel}: {mine} of {elf.registers(kernel)}"
    for word, text in zip(old_words, old_texts, strict=False):
        assert not late(word, text) & mine, f"{kernel}: {text} may still read what the probe writes: {mine}"


def check_attributes(kernel, old, new, new_words):
    info = ".nv.info." + kernel
    before, after = old.attributes(info), new.attributes(info)
    assert [one for one in before if one[0] not in OURS] == [one for one in after if one[0] not in OURS]
    exits = {16 * index for index, word in enumerate(new_words) if bits(word, 0, 12) == 0x94D}
    assert set(list_of(after, EXITS)) == exits, f"{kernel}: exits {exits}, listed {list_of(after, EXITS)}"
    wide = list_of(after, WARP_WIDE)
    assert wide[: len(list_of(before, WARP_WIDE))] == list_of(before, WARP_WIDE)
    assert all(bits(new_words[at // 16], 0, 12) == 0x886 for at in wide[len(list_of(before, WARP_WIDE)) :])
    size = dict(before).get(PARAM_SIZE, 0)
    block = (size + 7) // 8 * 8
    assert dict(after)[PARAM_SIZE] == block + 8 == struct.unpack_from("<H", dict(after)[PARAM_CBANK], 6)[0]
    assert len(new.data[".nv.constant0." + kernel]) == 0x210 + block + 8
    parameters = [value for kind, value in after if kind in (KPARAM, KPARAM_V2)]
    assert parameters[1:] == [value for kind, value in before if kind in (KPARAM, KPARAM_V2)]
    assert struct.unpack_from("<IHH", parameters[0]) == (0, len(parameters) - 1, block)
    return block


def check_rest(old, new, kernels):
    """Sections that are not the kernels' own stay as they are; symbols, but for sizes."""
    own = {prefix + kernel for kernel in kernels for prefix in (".text.", ".nv.info.", ".nv.constant0.")} | {".nv.info", ".symtab"}
    assert old.names == new.names
    for name, before, after in zip(old.names, old.headers, new.headers, strict=True):
        assert name in own or old.data[name] == new.data[name], f"section {name} differs"
        assert before[:4] + before[6:] == after[:4] + after[6:], f"header of {name}: {before} {after}"
        assert before[1] == 8 or after[4] % max(1, after[8]) == 0, f"section {name} is not aligned"
    for name, before, after in zip(old.symbol_names, old.symbols, new.symbols, strict=True):
        assert before[:5] == after[:5] and (before[5] == after[5] or name in kernels), name
        assert name not in kernels or after[5] == len(new.data[".text." + name])


def check_twins(tools, path, probe, texts):
    out, said = tools.twin(path, "--entry", probe, "--exit", probe)
    kernels = re.findall(r"^(\S+): block", said, re.M)
    old, new = Elf(path.read_bytes()), Elf(out.read_bytes())
    new_texts = tools.disassemble(out)
    probe_texts, probe_words = tools.disassemble(probe)[".text.probe"], words(Elf(probe.read_bytes()).data[".text.probe"])
    check_rest(old, new, kernels)
    for kernel in kernels:
        section = ".text." + kernel
        old_words, new_words = words(old.data[section]), words(new.data[section])
        begin = check_kernel_text(old_words, new_words)
        block = check_attributes(kernel, old, new, new_words)
        n = max(i for i, word in enumerate(probe_words) if bits(word, 0, 12) == 0x94D)
        check_stubs(kernel, new_texts[section], new_words, begin, probe_texts, probe_words, texts[section])
        check_registers(kernel, new, new_texts[section], texts[section], old_words, begin, n)
        assert sum(f"c[0x0][{0x210 + block:#x}]" in text for text in new_texts[section][begin:]) == 2, "the block is read elsewhere"
    return kernels, said


def compile_cubin(nvcc, source, arch, out, *options):
    subprocess.run([nvcc, "-std=c++17", f"-arch={arch}", "-cubin", *options, "-o", out, source], check=True, capture_output=True, timeout=120)
    return out


def patched(path, out, change):
    data = bytearray(path.read_bytes())
    change(data)
    out.write_bytes(data)
    return out


def section_offset(path, name):
    elf = Elf(path.read_bytes())
    return elf.headers[elf.names.index(name)][4]


def check_refusals(tools, nvcc, probe):
    """Each is a line that names what is not understood; the cubin is not changed."""
    source = tools.folder / "refused.cu"
    source.write_text("""
struct full { char bytes[4096]; };
extern "C" __global__ void whole(full f, int) {}
extern "C" __global__ void plain(int *p, int n) { if (threadIdx.x < n) p[threadIdx.x] = n; }
""")
    cubin = compile_cubin(nvcc, source, "sm_90", tools.folder / "refused.cubin")
    text, info = section_offset(cubin, ".text.plain"), section_offset(cubin, ".nv.info.plain")
    exit_at = next(16 * i for i, word in enumerate(words(Elf(cubin.read_bytes()).data[".text.plain"])) if bits(word, 0, 12) == 0x94D)

    def put(at, data):
        return lambda bytes_: bytes_.__setitem__(slice(at, at + len(data)), data)

    cases = [
        (cubin, "none", "the cubin has no kernel none"),
        (patched(cubin, tools.folder / "opcode", put(text + 0x20, b"\xff\x7f")), "plain", r"an unknown instruction at 0x20 \([0-9a-f]{12}7fff [0-9a-f]{16}\)"),
        (patched(cubin, tools.folder / "first", put(text, b"\x18\x79")), "plain", "an unknown first instruction at 0x0 "),
        (patched(cubin, tools.folder / "exit", put(text + exit_at + 10, b"\x90")), "plain", f"an exit of an unknown form at {exit_at:#x} "),
        (patched(cubin, tools.folder / "unlisted", put(text + 0x20, b"\x4d\x79" + bytes(8) + b"\x80\x03")), "plain", "exits, and attribute 0x1c has"),
        (patched(cubin, tools.folder / "attribute", put(info + 1, b"\xee")), "plain", "attribute 0xee of .nv.info.plain is unknown"),
        (patched(cubin, tools.folder / "format", put(info, b"\x07")), "plain", "section .nv.info.plain is malformed"),
        (patched(cubin, tools.folder / "type", put(0x10, b"\x01")), "plain", "has to be linked"),
        (patched(cubin, tools.folder / "short", lambda data: data.__delitem__(slice(200, None))), "plain", "not a cubin"),
        (compile_cubin(nvcc, source, "sm_80", tools.folder / "sm80.cubin"), "plain", "machine code for sm_80 is not understood"),
        (compile_cubin(nvcc, source, "sm_90", tools.folder / "debug.cubin", "-G"), "plain", "(attribute 0x..|an unknown|.*section)"),
    ]
    for path, kernel, wanted in cases:
        result = tools.run("twin", path, tools.folder / "refused-out", kernel, "--entry", probe, "--exit", probe)
        assert result.returncode == 3 and re.search(wanted, result.stdout), f"{path.name}: {result}"
        assert len(result.stdout.splitlines()) == 1, result.stdout
        assert (tools.folder / "refused-out").read_bytes() == path.read_bytes()
    whole = tools.run("twin", cubin, tools.folder / "whole", "whole", "--entry", probe)
    assert whole.returncode in (0, 3), whole


PROBE_HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
BAD_PROBES = {
    "shared": (".shared .b32 s; .reg .b32 %r<2>; mov.u32 %r1, %tid.x; st.volatile.shared.u32 [s], %r1;", "may not have|attribute"),
    "barrier": ("bar.sync 0;", "may not have|attribute"),
    "stack": (".local .align 4 .b32 room[16]; .reg .b32 %r<3>; .reg .b64 %rd<3>; mov.u32 %r1, %tid.x; and.b32 %r1, %r1, 15; mul.wide.u32 %rd1, %r1, 4; "
              "mov.u64 %rd2, room; add.u64 %rd1, %rd1, %rd2; st.local.u32 [%rd1], %r1; ld.local.u32 %r2, [room+8]; st.global.u32 [%rd2], %r2;", "stack|may not have"),
}  # fmt: skip


def check_probes(tools, nvcc, cubin):
    for name, (body, wanted) in BAD_PROBES.items():
        source = tools.folder / f"{name}.ptx"
        source.write_text(PROBE_HEAD + ".visible .entry probe(.param .align 8 .b8 block[8])\n{ " + body + " ret; }\n")
        probe = compile_cubin(nvcc, source, "sm_90", tools.folder / f"{name}.cubin")
        result = tools.run("twin", cubin, tools.folder / "out", "vectorAdd", "--entry", probe)
        assert result.returncode == 1 and re.search(wanted, result.stderr), f"{name}: {result}"


def main():
    sass_tool, nvcc, nvdisasm, *given = sys.argv[1:]
    if not os.path.exists(nvcc) or not os.path.exists(nvdisasm):
        print("SKIP: nvcc and nvdisasm are needed; tests/prepare installs them")
        return SKIP
    with tempfile.TemporaryDirectory() as folder:
        tools = Tools(sass_tool, nvdisasm, folder)
        probe = compile_cubin(nvcc, PROBE, "sm_90", tools.folder / "probe.cubin")
        cubins = [Path(path) for path in given]
        for source, arch in () if given else SOURCES.items():
            cubins.append(compile_cubin(nvcc, TOP / source, arch, tools.folder / f"{Path(source).stem}.cubin"))
        total = 0
        for path in cubins:
            texts = tools.disassemble(path)
            decoded = check_decoding(tools, path, texts)
            kernels, said = check_twins(tools, path, probe, texts)
            total += len(kernels)
            refused = [line for line in said.splitlines() if "no twin" in line]
            print(f"{path.name}: {decoded} instructions, {len(kernels)} kernels", *refused, sep="\n  ")
        if not given:
            assert total >= 20, total
            check_refusals(tools, nvcc, probe)
            check_probes(tools, nvcc, cubins[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
