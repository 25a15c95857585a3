#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Twins from machine code as the daemon asks for them: cubins that nvcc makes and eBPF programs that the program worker translates go through the image
worker; NVIDIA's disassembler and another reader of ELF say what came out.

- The kernel's own instructions are where they were; its first one and its exits branch to code behind.
- That code finds its maps: constant banks 3 and 4 have, where it reads them, symbols of the program's slots.
- Variables of the application are listed, and their relocations are void.
- What cannot be done has a reason that names it, and damaged cubins do the worker no harm.

usage: test-image-sass.py IMAGE_WORKER PROGRAM_WORKER FOLDER_OF_BPF_OBJECTS NVCC NVDISASM
Exit status: 77 something of that is not there
"""

import importlib.util
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(TOP / "daemon/worker"))
sys.path.insert(0, str(TOP / "daemon/translator"))
from worker_driver import Worker  # noqa: E402

IMAGE_WORKER, PROGRAM_WORKER, OBJECTS, NVCC, NVDISASM = sys.argv[1:6]
SYMBOL = "__gpuprobe_o1_p0"
SKIP = 77


def module(path):
    spec = importlib.util.spec_from_file_location(path.stem.replace("-", "_"), path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


rewrite = module(TOP / "daemon/worker/sass/test-rewrite.py")
programs = module(TOP / "daemon/translator/test-program-worker.py")
folder = Path(tempfile.mkdtemp())

VARIABLES = """
__device__ int total; static __device__ int table[4] = {1, 2, 3, 4}; __constant__ int scale[8];
extern "C" __global__ void meant(int *p, char c, long n) { if (p[1] > c) { p[n] = 5; return; } p[0] = atomicAdd(&total, table[*p & 3]); }
extern "C" __global__ void other(int *p) { *p = total; }
extern "C" __global__ void constants(int *p) { *p = scale[*p]; }
extern "C" __global__ void empty() { }
"""


def kernel_id(name):
    """kernel_id() of proto/kernel-id.h."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def compiled(source, *options, kind="-cubin"):
    path = folder / f"{len(list(folder.iterdir()))}.cu"
    path.write_text(source)
    subprocess.run([NVCC, "-std=c++17", kind, *options, "-o", path.with_suffix(".out"), path], check=True, capture_output=True, timeout=120)
    return path.with_suffix(".out").read_bytes()


class Program:
    """The first GPU program of an example, translated."""

    def __init__(self, name):
        worker = programs.Worker(PROGRAM_WORKER)
        linked, blob = programs.link(worker, (Path(OBJECTS) / f"{name}.bpf.o").read_bytes())
        reply, texts = programs.compile(worker, linked, blob)
        worker.end()
        assert reply["status"] == "compiled", reply
        one = reply["programs"][0]
        self.text = texts[0].replace(one["symbol"], SYMBOL)
        self.member = {"name": SYMBOL, "fd": 2, "isa": one["isa"], "target": one["target"], "context": one["context"]}


class Twin:
    """An image with its table, taken apart."""

    def __init__(self, image):
        size = struct.unpack_from("<Q", image, 8)[0] + 16
        magic, version, count, kernels, names_size, reserved = struct.unpack_from("<6I", image, size)
        assert (magic, version, reserved) == (0x54525047, 2, 0)
        names = image[size + 24 + 24 * count + 16 * kernels :]
        assert len(names) == names_size
        text = lambda at: names[at : names.index(b"\0", at)].decode()  # noqa: E731
        self.at = image.index(b"\x7fELF")
        self.cubin = image[self.at : size]
        self.slots, self.kernels = {}, {}
        for i in range(count):
            offset, name, _, addend = struct.unpack_from("<QIIq", image, size + 24 + 24 * i)
            self.slots[text(name)] = (offset - self.at, addend)
        for i in range(kernels):
            name, *numbers = struct.unpack_from("<4I", image, size + 24 + 24 * count + 16 * i)
            self.kernels[text(name)] = tuple(numbers)
        self.elf = rewrite.Elf(self.cubin)

    def texts(self):
        """{section: instructions}. The disassembler knows no void relocations: it gets the cubin without the table of those."""
        cubin = bytearray(self.cubin)
        headers = struct.unpack_from("<Q", cubin, 0x28)[0]
        for index, name in enumerate(self.elf.names):
            if name in (".rela.nv.constant4", ".rel.nv.constant4"):
                struct.pack_into("<Q", cubin, headers + 64 * index + 32, 0)
        path = folder / "twin.cubin"
        path.write_bytes(cubin)
        return rewrite.Tools("", NVDISASM, folder).disassemble(path)

    def relocations(self, section):
        """{offset: (type, symbol)}"""
        found = {}
        for name, header in zip(self.elf.names, self.elf.headers, strict=True):
            if header[1] in (4, 9) and header[7] == self.elf.names.index(section):
                for at in range(0, header[5], header[9]):
                    offset, info = struct.unpack_from("<QQ", self.elf.data[name], at)
                    found[offset] = (info & 0xFFFFFFFF, self.elf.symbol_names[info >> 32])
        return found

    def bank_symbol(self, bank, offset):
        """Whose the bytes of a constant bank are."""
        section = f".nv.constant{bank}"
        if bank == 4:
            kind, symbol = self.relocations(section)[offset & ~7]
            assert kind == 2, (offset, kind)
            return symbol
        for name, (_, _, _, index, value, size) in zip(self.elf.symbol_names, self.elf.symbols, strict=True):
            if self.elf.names[index : index + 1] == [section] and value <= offset < value + size:
                return name
        raise AssertionError(f"nothing is at {offset:#x} of bank {bank}")


class Base(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.worker = Worker([IMAGE_WORKER])

    @classmethod
    def tearDownClass(cls):
        assert cls.worker.close() == (0, "")

    def ask(self, image, program, attachments, **members):
        how = {"kind": "cubin", "twins": "ptx_first", "program": program.text, "programs": [program.member]} | members
        return self.worker.image(image, attachments=attachments, **how)

    def made(self, image, program, attachments, **members):
        reply, out = self.ask(image, program, attachments, **members)
        self.assertEqual((reply["status"], reply.get("twin")), ("made", "machine_code"), reply)
        return reply, Twin(out)

    def own(self, image, program, attachments, reason, **members):
        reply, out = self.ask(image, program, attachments, **members)
        self.assertEqual((reply["status"], out), ("own", b""), reply)
        self.assertRegex(reply["reason"], reason)
        self.assertNotIn("twin", reply)
        return reply

    def check_kernel(self, old, twin, texts, kernel, entry, exits):
        """Instructions in place, branches, lists, registers. Returns the text of what was put in."""
        section, info = ".text." + kernel, ".nv.info." + kernel
        before, after = rewrite.words(old.data[section]), rewrite.words(twin.elf.data[section])
        for index, (a, b) in enumerate(zip(before, after, strict=False)):
            moved = (entry and not index) or (exits and rewrite.bits(a, 0, 12) == 0x94D)
            good = rewrite.is_branch_to_stub(b, a, 16 * index, 16 * len(before)) if moved else a == b
            self.assertTrue(good, f"{kernel}: instruction {16 * index:#x}: {a:032x} became {b:032x}")
        self.assertEqual(len(texts[section]), len(after))
        listed = set(rewrite.list_of(twin.elf.attributes(info), rewrite.EXITS))
        self.assertEqual(listed, {16 * i for i, word in enumerate(after) if rewrite.bits(word, 0, 12) == 0x94D})
        mine = texts[section][len(before) :]
        used = {int(number) for text in mine for kind, number in rewrite.TOKEN.findall(text) if kind == "R"}
        self.assertLess(max(used), twin.elf.registers(kernel) - 2)
        self.assertGreaterEqual(twin.elf.registers(kernel), old.registers(kernel))
        self.assertFalse([text for text in mine if "PMTRIG" in text])
        for text in mine:
            for bank, offset in re.findall(r"c\[0x([34])\]\[(0x[0-9a-f]+|RZ)\]", text):
                symbol = twin.bank_symbol(int(bank), 0 if offset == "RZ" else int(offset, 16))
                self.assertTrue(symbol.startswith("__gpuprobe_"), (text, symbol))
        return mine

    def check_all(self, cubin, program, points):
        """Each kernel of a cubin. Returns the names of those that have a twin, and why others have none."""
        old = rewrite.Elf(cubin)
        reply, twin = self.made(cubin, program, [("*", point) for point in points])
        texts = twin.texts()
        made = [kernel["name"] for kernel in reply["kernels"] if kernel["attachments"]]
        for kernel in made:
            self.check_kernel(old, twin, texts, kernel, "entry" in points, "return" in points)
        for kernel in set(old.kernels()) - set(made):
            self.assertEqual(old.data[".text." + kernel], twin.elf.data[".text." + kernel])
        self.assertEqual(reply["applied"], [3 + i for i in range(len(points))])
        return made, {kernel["name"]: kernel["reason"] for kernel in reply["kernels"] if "reason" in kernel}


class Twins(Base):
    def test_kernels(self):
        cubin = compiled((TOP / "tests/gpu/machine-code.cu").read_text(), "-arch=sm_90")
        counter = Program("counter")
        for points in (["entry"], ["return"], ["entry", "return"]):
            made, refused = self.check_all(cubin, counter, points)
            self.assertEqual(sorted(refused), ["pointers"])
            self.assertRegex(refused["pointers"], "^no twin can be made: .*(calls functions by pointers|address of)")
            self.assertEqual(len(made) + 1, len(rewrite.Elf(cubin).kernels()))
        for options in (["-arch=sm_90", "-G"], ["-arch=sm_90", "-lineinfo"], ["-arch=sm_90", "-O1", "-Xptxas", "-O1"]):
            reply, _ = self.ask(compiled((TOP / "tests/targets/kernels.cu").read_text(), *options), counter, [("*",), ("*", "return")])
            self.assertEqual(reply["status"], "own" if "-G" in options else "made", reply)

    def test_examples(self):
        """Programs with hash maps, rings, per-thread arrays: at entries."""
        cubin = compiled(VARIABLES, "-arch=sm_90")
        for name in ("blocks_by_sm", "hash_count", "kernel_counter", "kernel_duration", "kernel_trace", "shared_array", "thread_time"):
            made, refused = self.check_all(cubin, Program(name), ["entry"])
            self.assertEqual((sorted(made), sorted(refused)), (["empty", "meant", "other"], ["constants"]), name)
            self.assertRegex(refused["constants"], "__constant__ variables at 0x[0-9a-f]+ ")

    def test_exits(self):
        """Programs with branches at ways out: what a warp shares must not be needed behind one."""
        cubin = compiled(VARIABLES, "-arch=sm_90")
        for name in ("blocks_by_sm", "hash_count", "kernel_trace", "shared_array", "thread_time"):
            made, _ = self.check_all(cubin, Program(name), ["return"])
            self.assertEqual(sorted(made), ["empty", "meant", "other"], name)
        self.own(cubin, Program("kernel_counter"), [("meant", "return")], "needs a uniform value behind a branch.* at 0x[0-9a-f]+ ")
        self.own(cubin, Program("print_launch"), [("meant",)], "the probe has an instruction that it may not have at 0x[0-9a-f]+ |needs a stack")

    def test_variables(self):
        cubin = compiled(VARIABLES, "-arch=sm_90")
        _, twin = self.made(cubin, Program("counter"), [("meant",)])
        bank = next(header[4] for name, header in zip(twin.elf.names, twin.elf.headers, strict=True) if name == ".nv.constant4")
        self.assertEqual(sorted(twin.slots), ["table", "total"])
        for name, (offset, addend) in twin.slots.items():
            self.assertEqual(twin.relocations(".nv.constant4")[offset - bank], (0, name))
            self.assertEqual(addend, 0)
        self.assertEqual({name for kind, name in twin.relocations(".nv.constant4").values() if kind == 2}, {"__gpuprobe_o1_m0"})
        self.assertEqual(twin.kernels, {})
        _, twin = self.made(cubin, Program("counter"), [("empty", "return")])
        self.assertEqual(twin.slots, {})

    def test_contexts(self):
        """A kernel's id, its parameters and the launch."""
        cubin = compiled(VARIABLES, "-arch=sm_90")
        old = rewrite.Elf(cubin)
        text = """\
.visible .const .align 8 .u64 __gpuprobe_o1_m0 = 0;
.func (.param .b64 r) __gpuprobe_o1_p0(%s)
{
	.reg .b64 %%a, %%v<4>;
	ld.const.u64 %%a, [__gpuprobe_o1_m0];
%s	mov.u64 %%a, 0;
	st.param.b64 [r], %%a;
	ret;
}
"""
        body = "".join(f"	ld.param.u64 %v{i}, [c{i}];\n	st.global.u64 [%a+{8 * i}], %v{i};\n" for i in range(4))
        program = type("Written", (), {})()
        program.text = text % (", ".join(f".param .b64 c{i}" for i in range(4)), body)
        for last, block in ((56, False), (168, True)):  # param_count, or launch.id
            program.member = {"name": SYMBOL, "fd": 2, "isa": 63, "target": 70, "context": [0, 64, 80, last]}
            for point in ("entry", "return"):
                _, twin = self.made(cubin, program, [("meant", point), ("empty", point)])
                texts = twin.texts()
                for kernel, size in (("meant", 24), ("empty", 0)):
                    mine = " ".join(self.check_kernel(old, twin, texts, kernel, point == "entry", point == "return"))
                    ids = twin.elf.data[".nv.constant3"]
                    where = [int(at, 16) for at in re.findall(r"c\[0x3\]\[(0x[0-9a-f]+)\]", mine) if twin.bank_symbol(3, int(at, 16)) == "__gpuprobe_kernels"]
                    self.assertTrue(where, mine)
                    self.assertEqual({ids[at : at + 8] for at in where if at % 8 == 0}, {struct.pack("<Q", kernel_id(kernel))}, mine)
                    if kernel == "meant":
                        self.assertIn("c[0x0][0x210]", mine)
                        self.assertIn("c[0x0][0x220]", mine)
                    if block:
                        self.assertIn(f"c[0x0][{0x210 + size:#x}]", mine)
                        self.assertEqual(twin.kernels[kernel], (3 if size else 0, size, size))
                        self.assertEqual(dict(twin.elf.attributes(".nv.info." + kernel))[rewrite.PARAM_SIZE], size + 32)
                    else:
                        self.assertEqual(old.data[".nv.constant0." + kernel], twin.elf.data[".nv.constant0." + kernel])
                self.assertEqual(len(twin.kernels), 2 * block)

    def test_several_programs(self):
        """All programs of a place, in one probe."""
        cubin = compiled(VARIABLES, "-arch=sm_90")
        counter = Program("counter")
        reply, twin = self.made(cubin, counter, [("meant",), ("*",), ("meant", "return"), ("meant", "memory")])
        mine = self.check_kernel(rewrite.Elf(cubin), twin, twin.texts(), "meant", True, True)
        self.assertEqual(len([text for text in mine if "REDG.E.ADD.64" in text]), 3)
        self.assertEqual(reply["applied"], [3, 4, 5])
        self.assertEqual([k.get("missing") for k in reply["kernels"] if k["name"] == "meant"], [[{"id": 6, "point": "memory instruction"}]])


class Choice(Base):
    def test_choice(self):
        counter = Program("counter")
        code, both = ["-gencode", "arch=compute_90,code=sm_90"], ["-gencode", "arch=compute_90,code=[sm_90,compute_90]"]
        for options, twins, expected in (
            (code, "ptx", "no PTX for sm_90 in this image: SASS only"),
            (code, "ptx_first", "machine_code"),
            (code, "machine_code_first", "machine_code"),
            (both, "ptx", "ptx"),
            (both, "ptx_first", "ptx"),
            (both, "machine_code_first", "machine_code"),
            (both, "machine_code", "machine_code"),
        ):
            image = compiled(VARIABLES, *options, kind="-fatbin")
            reply, _ = self.ask(image, counter, [("meant",)], kind="fatbin", twins=twins)
            self.assertEqual(reply.get("twin", reply.get("reason")), expected, (options, twins))
        # one kernel cannot: PTX has them all
        reply, _ = self.ask(compiled(VARIABLES, *both, kind="-fatbin"), counter, [("*",)], kind="fatbin", twins="machine_code_first")
        self.assertEqual(reply.get("twin"), "ptx", reply)
        reply, _ = self.ask(compiled(VARIABLES, *both, kind="-fatbin"), counter, [("*",)], kind="fatbin", twins="machine_code")
        self.assertEqual(reply.get("twin"), "machine_code", reply)

    def test_refused(self):
        counter = Program("counter")
        cubin = compiled(VARIABLES, "-arch=sm_90")
        reply = self.own(cubin, counter, [("constants",)], "^no twin can be made: it reads __constant__ variables at 0x.*SASS only")
        self.assertEqual(reply["cause"], "no_ptx")
        self.own(cubin, counter, [("meant", "memory")], "probes other than at entry and return, .* need PTX")
        self.own(cubin, counter, [("meant", "entry", {"ptx": True})], "those of --engine=ptx, need PTX")
        self.own(cubin, Program("block_sched"), [("meant",)], r"^no twin can be made: variables of a thread \(\.thread\) need PTX")
        self.own(compiled(VARIABLES, "-arch=sm_80"), counter, [("meant",)], "for sm_80, the device is sm_90", twins="machine_code")
        self.own(compiled(VARIABLES, "-arch=sm_80"), counter, [("meant",)], "machine code for sm_80 is not understood", twins="machine_code", capability=80)
        self.own(compiled(VARIABLES, "-arch=sm_80"), counter, [("meant",)], "^no PTX for sm_80 in this image: SASS only$", capability=80)
        self.own(compiled(VARIABLES, "-arch=sm_90", "-rdc=true"), counter, [("meant",)], "linked")
        self.own(compiled(VARIABLES, "-arch=compute_90", kind="-ptx"), counter, [("meant",)], "has no machine code for sm_90", kind="ptx", twins="machine_code")
        reply, _ = self.ask(cubin, counter, [("meant",)], twins="both")
        self.assertEqual((reply["error"], reply["message"]), ("internal", "bad request: twins is none of the ways to make them"))

    def test_program_of_another_module(self):
        """A variable of the image has the name of a program's map."""
        reply = self.own(
            compiled('extern "C" { __device__ int __gpuprobe_o1_m0; __global__ void f(int *p) { *p = __gpuprobe_o1_m0++; } }', "-arch=sm_90"),
            Program("counter"),
            [("f",)],
            "the cubin has a symbol __gpuprobe_o1_m0",
        )
        self.assertEqual(reply["kernel_count"], 1)

    def test_damaged(self):
        """Whatever is in a cubin, the worker answers."""
        counter, generator = Program("counter"), random.Random(4)
        cubin = compiled(VARIABLES, "-arch=sm_90")
        statuses = set()
        for _ in range(300):
            damaged = bytearray(cubin)
            for _ in range(generator.randrange(1, 6)):
                damaged[generator.randrange(len(damaged))] = generator.randrange(256)
            reply, _ = self.ask(bytes(damaged[: generator.choice([len(damaged), generator.randrange(64, len(damaged))])]), counter, [("*",), ("*", "return")])
            statuses.add(reply["status"])
        self.assertEqual(statuses, {"made", "own", "error"})


if __name__ == "__main__":
    needed = [NVCC, NVDISASM, PROGRAM_WORKER, os.path.join(OBJECTS, "counter.bpf.o")]
    missing = [path for path in needed if not os.path.exists(path)]
    if missing:
        print(f"not there: {json.dumps(missing)}")
        sys.exit(SKIP)
    unittest.main(argv=[sys.argv[0], *sys.argv[6:]])
