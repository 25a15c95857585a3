#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The image worker as the daemon uses it: jobs on what nvcc makes, on what an attacker would make, and on faults.

test-image-worker.py WORKER FATBIN_TOOL SAMPLE_FATBIN NVCC PTXAS

SAMPLE_FATBIN has va.cu's code for sm_90 and compute_90; it stands in where there is no nvcc. Where there is no compiler for the
worker, no twin can be made, and what needs one is left out.
"""

import itertools
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from worker_driver import PROBE, Died, Worker, memfd, rank_kernels, small_kernels  # noqa: E402

WORKER, TOOL, SAMPLE, NVCC, PTXAS = sys.argv[1:6]

SOURCE = """
__global__ void vectorAdd(const float *a, const float *b, float *c, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		c[i] = a[i] + b[i];
}
namespace ns { template<class T> __global__ void kernel(T *p) { *p += 1; } }
extern "C" __global__ void plain(int *p) { atomicAdd(p, 1); }
template __global__ void ns::kernel<float>(float *);
template __global__ void ns::kernel<int>(int *);
"""
PTX = """\
.version 7.0
.target sm_80
.address_size 64
.visible .entry vectorAdd(.param .u64 p)
{
	.reg .b64 %a;
	ld.param.u64 %a, [p];
	st.global.u64 [%a], %a;
	ret;
}
"""
ADD = "_Z9vectorAddPKfS0_Pfi"
FLOAT, INT = "_ZN2ns6kernelIfEEvPT_", "_ZN2ns6kernelIiEEvPT_"
NO_MATCH = "no kernel matches; it has .*"

folder = tempfile.mkdtemp()
compiled = {}


def nvcc(*arguments, source=SOURCE, kind="-fatbin"):
    """The output of nvcc, made once."""
    key = arguments, source, kind
    if key not in compiled:
        path = os.path.join(folder, f"{len(compiled)}.cu")
        with open(path, "w") as file:
            file.write(source)
        subprocess.run([NVCC, kind, *arguments, path, "-o", path + ".out"], check=True, capture_output=True)
        with open(path + ".out", "rb") as file:
            compiled[key] = file.read()
    return compiled[key]


def gencode(virtual, *real):
    return ["-gencode", f"arch=compute_{virtual},code=[{','.join(real)}]"]


def tool(image, *arguments):
    path = os.path.join(folder, "image")
    with open(path, "wb") as file:
        file.write(image)
    return subprocess.run([TOOL, arguments[0], path, *arguments[1:]], check=True, capture_output=True, text=True).stdout


def entries(image):
    """[(kind, sm, line)] of a fatbin."""
    return [(line.split()[1], line.split()[2], line) for line in tool(image, "list").splitlines()[:-1]]


def extract(image):
    """{file name: bytes} of a fatbin's entries."""
    where = tempfile.mkdtemp(dir=folder)
    found = {}
    for path in tool(image, "extract", "-o", where).splitlines():
        with open(path, "rb") as file:
            found[os.path.basename(path)] = file.read()
    return found


def entry(kind, payload, sm=90, flags=0x11, uncompressed=0):
    """A fatbin of one entry, made by hand."""
    padded = payload + b"\0" * (-len(payload) % 8)
    compressed = len(payload) if uncompressed else 0
    header = struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, 64, len(padded), compressed, 0, 0, 7, sm, 0, 0, flags, 0, uncompressed)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 64 + len(padded)) + header + padded


def image_of(out):
    """The image of a twin, without the table behind it."""
    return out[: struct.unpack_from("<Q", out, 8)[0] + 16]


def registers(cubin):
    """{function: registers} of a cubin, from its .nv.info."""

    def string(table, offset):
        return cubin[table + offset : cubin.index(b"\0", table + offset)].decode()

    (at,) = struct.unpack_from("<Q", cubin, 40)
    count, names = struct.unpack_from("<HH", cubin, 60)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, at + 64 * i) for i in range(count)]
    symbols = next(section for section in sections if section[1] == 2)
    info = next(s for s in sections if string(sections[names][4], s[0]) == ".nv.info")
    found, at = {}, info[4]
    while at + 4 <= info[4] + info[5]:
        form, attribute, value = struct.unpack_from("<BBH", cubin, at)
        if (form, attribute) == (4, 0x2F):
            index, number = struct.unpack_from("<II", cubin, at + 4)
            (name,) = struct.unpack_from("<I", cubin, symbols[4] + 24 * index)
            found[string(sections[symbols[6]][4], name)] = number
        at += 4 + (value if form == 4 else 0)
    return found


def wide(name, live, directives=""):
    """A kernel with so many values alive at once."""
    return (
        f".visible .entry {name}(.param .u64 p)\n{directives}\n{{\n.reg .b64 %a;\n.reg .f32 %f<{live}>;\nld.param.u64 %a, [p];\n"
        + "".join(f"ld.volatile.global.f32 %f{i}, [%a+{4 * i}];\n" for i in range(live))
        + "".join(f"st.volatile.global.f32 [%a+{4 * i}], %f{i * 7 % live};\n" for i in range(live))
        + "ret;\n}\n"
    )


# A program that needs more registers than a block of 1024 threads has for each.
WIDE_PROBE = (
    """.visible .global .align 8 .u64 __gpuprobe_o1_m0 = 0;
.func (.param .b64 r) __gpuprobe_o1_p0()
{
.reg .b64 %rd<3>;
.reg .f32 %f<90>;
ld.global.u64 %rd1, [__gpuprobe_o1_m0];
"""
    + "".join(f"ld.volatile.global.f32 %f{i}, [%rd1+{4 * i}];\n" for i in range(90))
    + "".join(f"st.volatile.global.f32 [%rd1+{4 * i}], %f{i * 7 % 90};\n" for i in range(90))
    + """mov.u64 %rd2, 0;
st.param.b64 [r], %rd2;
ret;
}
"""
)

# Kernels of which some cannot be in a twin, in all ways that there are.
POINTERS = (
    PTX.split(".visible")[0]
    + """
.extern .func cudaGraphSetConditional(.param .b64 h, .param .b32 v);
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.extern .func (.param .b32 r) cudaLaunchDevice(.param .b64 p);
.func helper();
.func other_name();
.func alias_of_calls();
.func ring();
.visible .global .align 8 .u64 functions[] = {helper, k_call, 5};
.func helper() {ret;}
.alias other_name, helper;
.func calls()
{
.reg .b64 %f;
ld.global.u64 %f, [functions];
P: .callprototype _ ();
call %f, P;
call ring;
ret;
}
.alias alias_of_calls, calls;
.func ring()
{
.reg .pred %p;
setp.ne.u32 %p, 1, 2;
@%p call calls;
ret;
}
.func stores()
{
.reg .b64 %f;
mov.u64 %f, other_name;
st.global.u64 [functions], %f;
ret;
}
.func never()
{
.param .b64 a;
call (a), cudaLaunchDevice, (a);
call stores;
ret;
}
.visible .entry k_plain() {ret; /* plain */}
.visible .entry k_helper() {call helper; call other_name; ret;}
.visible .entry k_print()
{
.param .b32 r;
.param .b64 a, b;
call (r), vprintf, (a, b);
ret;
}
.visible .entry k_reads()
{
.reg .b64 %f;
ld.global.u64 %f, [functions];
st.global.u64 [functions+8], %f;
ret;
}
.visible .entry k_other()
{
T: .calltargets helper;
helper_1: bra helper_1;
}
.visible .entry k_call()
{
.reg .b64 %f;
ld.global.u64 %f, [functions];
P: .callprototype _ ();
call %f, P;
ret;
}
.visible .entry k_table()
{
.reg .b64 %f;
ld.global.u64 %f, [functions];
T: .calltargets helper;
call %f, T;
ret;
}
.visible .entry k_deep() {call calls; ret;}
.visible .entry k_ring() {call ring; ret;}
.visible .entry k_alias() {call alias_of_calls; ret;}
.visible .entry k_move()
{
.reg .b64 %f;
mov.u64 %f, helper;
st.global.u64 [functions], %f;
ret;
}
.visible .entry k_launch()
{
.reg .b64 %f;
mov.u64 %f, k_plain;
st.global.u64 [functions], %f;
ret;
}
.visible .entry k_inner()
{
.global .align 8 .u64 inner = helper;
.reg .b64 %f;
ld.global.u64 %f, [inner];
ret;
}
.visible .entry k_stored() {call stores; ret;}
.visible .entry k_outside()
{
.param .b64 h;
.param .b32 v;
call cudaGraphSetConditional, (h, v);
ret;
}
.visible .entry k_both()
{
.param .b64 h;
.param .b32 v;
call cudaGraphSetConditional, (h, v);
call calls;
ret;
}
"""
)

with open(SAMPLE, "rb") as file:
    SAMPLE_IMAGE = file.read()
HAVE_NVCC = os.access(NVCC, os.X_OK)
needs_nvcc = unittest.skipUnless(HAVE_NVCC, "no nvcc")


def code_sections(image):
    """The machine code of each kernel of an image of one cubin, which is not compressed."""
    cubin = image[image.index(b"\x7fELF") :]
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    count, names = struct.unpack_from("<HH", cubin, 0x3C)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + i * 64) for i in range(count)]
    found = []
    for section in sections:
        at = sections[names][4] + section[0]
        name = cubin[at : cubin.index(b"\0", at)]
        if name.startswith(b".text."):
            found.append(name + cubin[section[4] : section[4] + section[5]])
    assert found
    return found


class Base(unittest.TestCase):
    arguments = []

    @classmethod
    def setUpClass(cls):
        cls.worker = Worker([WORKER, *cls.arguments])
        cls.has_compiler = "compiler" in cls.worker.hello["features"]

    @classmethod
    def tearDownClass(cls):
        assert cls.worker.close() == (0, "")

    def need_compiler(self):
        if not self.has_compiler:
            self.skipTest("no compiler")

    def made(self, image, **how):
        self.need_compiler()
        reply, out = self.worker.image(image, **how)
        self.assertEqual(reply["status"], "made", reply)
        self.assertEqual(reply["size"], len(out))
        self.assertEqual(reply["id"], 7)
        return reply, image_of(out)

    def own(self, image, reason, **how):
        reply, out = self.worker.image(image, **how)
        self.assertEqual(reply["status"], "own", reply)
        self.assertRegex(reply["reason"], reason)
        self.assertEqual(reply.get("cause"), "no_ptx" if reply["reason"].startswith("no PTX") else None)
        self.assertEqual(out, b"")
        return reply

    def error(self, image, error, message=".", **how):
        reply, out = self.worker.image(image, **how)
        self.assertEqual((reply["status"], reply["error"]), ("error", error), reply)
        self.assertRegex(reply["message"], message)
        self.assertNotIn("\n", reply["message"])
        self.assertEqual(out, b"")
        return reply


class Images(Base):
    def check_image(self, out, kernels, sm="90", ptx_sm="90"):
        """The image of a twin: one cubin for the device, and the PTX that it was made of, both with the kernels that are meant and their probes."""
        self.assertEqual([(kind, name) for kind, name, _ in entries(out)], [("elf", f"sm_{sm}"), ("ptx", f"sm_{ptx_sm}")])
        files = extract(out)
        cubin = files[f"0.0.sm_{sm}.cubin"]
        self.assertEqual(cubin[:4], b"\x7fELF")
        self.assertIn(b"__gpuprobe_o1_m0\0", cubin)
        text = files[f"0.1.sm_{ptx_sm}.ptx"].decode()
        self.assertEqual(text.count(".visible .global .align 8 .u64 __gpuprobe_o1_m0"), 1)
        self.assertEqual(sorted(re.findall(r"\.entry (\w+)", text)), sorted(kernels))
        for kernel in kernels:
            self.assertIn(b".text." + kernel.encode() + b"\0", cubin)
            # The probe is in the kernel itself, or the kernel begins with a call.
            body = re.search(r"\.entry " + re.escape(kernel) + r"\(.*?^}", text, re.S | re.M).group(0)
            self.assertTrue("__gpuprobe_o1_m0" in body or f"__probe_func__{kernel}" in body, kernel)
        if os.access(PTXAS, os.X_OK):
            path = os.path.join(folder, "check.ptx")
            with open(path, "w") as file:
                file.write(text)
            subprocess.run([PTXAS, "-arch", f"sm_{sm}", path, "-o", path + ".cubin"], check=True)

    def test_sample(self):
        reply, out = self.made(SAMPLE_IMAGE)
        self.assertEqual(reply["applied"], [3])
        self.assertEqual(reply["kernels"], [{"name": ADD, "demangled": "vectorAdd(float const*, float const*, float*, int)", "attachments": [3]}])
        self.assertEqual(reply["kernel_count"], 4)
        self.check_image(out, [ADD])
        self.assertIn("0 failures", tool(out, "verify"))

    def test_called_program(self):
        """A program with a function of its own is called, not made part of the kernel."""
        first_line, rest = PROBE.split("\n", 1)
        program = first_line + "\n.func __gpuprobe_o1_p0_h()\n{\n\tret;\n}\n" + rest.replace("\tret;\n}", "\tcall __gpuprobe_o1_p0_h;\n\tret;\n}")
        reply, out = self.made(SAMPLE_IMAGE, program=program)
        text = next(data for name, data in extract(out).items() if name.endswith(".ptx"))
        self.assertIn(f"__probe_func__{ADD}".encode(), text)
        self.check_image(out, [ADD])

    def test_patterns(self):
        for pattern, kernels in [
            (ADD, [ADD]),
            ("vectorAdd", [ADD]),
            ("vectorAdd(float const*, float const*, float*, int)", [ADD]),
            ("vector*", [ADD]),
            ("vectorAdd(*)", [ADD]),
            ("ns::kernel", [FLOAT, INT]),
            ("ns::kernel<float>", [FLOAT]),
            ("ns::kernel<*>", [FLOAT, INT]),
            ("ns::*", [FLOAT, INT]),
            ("plain", ["plain"]),
            ("[p-q]lain", ["plain"]),
            ("*", [ADD, FLOAT, INT, "plain"]),
        ]:
            with self.subTest(pattern):
                reply, out = self.made(SAMPLE_IMAGE, attachments=[(pattern,)])
                self.assertEqual(sorted(k["name"] for k in reply["kernels"]), sorted(kernels))
        for pattern in "vectorAd", "kernel", "", "vectorAdd(int)", "_Z", "ns", "void ns::kernel<float>":
            with self.subTest(pattern):
                reply = self.own(SAMPLE_IMAGE, f"^{NO_MATCH}$", attachments=[(pattern,)])
                self.assertEqual((reply["kernels"], reply["kernel_count"]), ([], 4))

    def test_several_attachments(self):
        reply, out = self.made(SAMPLE_IMAGE, attachments=[("plain",), ("nothing",), ("ns::kernel",), ("p*",)])
        self.assertEqual(reply["applied"], [3, 5, 6])
        self.assertEqual({k["name"]: k["attachments"] for k in reply["kernels"]}, {"plain": [3, 6], FLOAT: [5], INT: [5]})
        self.check_image(out, [FLOAT, INT, "plain"])

    @needs_nvcc
    def test_other_devices(self):
        image = nvcc(*gencode("80", "sm_80"), *gencode("90", "sm_90", "compute_90"), *gencode("100", "sm_100"))
        reply, out = self.made(image)
        self.check_image(out, [ADD])
        # 8.6 runs the code for 8.0, which has no PTX; 12.0 would compile the PTX for 9.0.
        self.own(
            image, "^no PTX for sm_86 in this image: its SASS for sm_80 was made from compute_80|^no PTX for sm_86 in this image: SASS only$", capability=86
        )
        reply, out = self.made(image, capability=120)
        self.check_image(out, [ADD], sm="120")
        self.own(image, "^no code for sm_75 in this image$", capability=75)

    @needs_nvcc
    def test_same_source_only(self):
        # Machine code for 9.0 was made from compute_90; that PTX for compute_80 exists is no help.
        image = nvcc(*gencode("90", "sm_90"), *gencode("80", "compute_80"))
        self.own(image, "^no PTX for sm_90 in this image: its SASS for sm_90 was made from compute_90, its PTX is compute_80$")
        # Here it was made from compute_80.
        image = nvcc("-gencode", "arch=compute_80,code=[sm_90,compute_80]")
        reply, out = self.made(image)
        self.check_image(out, [ADD], ptx_sm="80")
        # And here there is none: the driver would compile.
        image = nvcc(*gencode("80", "sm_80", "compute_80"))
        reply, out = self.made(image)
        self.check_image(out, [ADD], ptx_sm="80")

    @needs_nvcc
    def test_architecture_specific(self):
        image = nvcc(*gencode("90a", "sm_90a", "compute_90a"))
        reply, out = self.made(image)
        self.check_image(out, [ADD], sm="90a", ptx_sm="90a")
        self.own(image, "^no code for sm_100 in this image$", capability=100)
        image = nvcc(*gencode("100f", "sm_100f", "compute_100f"))
        reply, out = self.made(image, capability=103)
        self.check_image(out, [ADD], sm="103f", ptx_sm="100f")
        # Of code for 90 and 90a on a 9.0 the special one runs, and its source counts.
        image = nvcc(*gencode("90", "sm_90", "compute_90"), *gencode("90a", "sm_90a"))
        self.own(image, "its SASS for sm_90a was made from compute_90a, its PTX is compute_90$")

    def test_registers(self):
        """Where machine code says that a block of 1024 threads was possible, it is with the probe, if the kernel does not say how large its blocks are."""
        head = PTX.split(".visible")[0]
        kernels = head + wide("k_few", 30) + wide("k_many", 100) + wide("k_bound", 30, ".maxntid 128, 1, 1") + wide("other", 100)
        path = os.path.join(folder, "wide.ptx")
        if not os.access(PTXAS, os.X_OK):
            self.skipTest("no ptxas")
        with open(path, "w") as file:
            file.write(kernels)
        subprocess.run([PTXAS, "-arch=sm_90", path, "-o", path + ".cubin"], check=True)
        with open(path + ".cubin", "rb") as file:
            code = entry(2, file.read(), sm=90)
        text = entry(1, kernels.encode(), sm=80)
        image = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(code) + len(text) - 32) + code[16:] + text[16:]
        _, out = self.made(image, program=WIDE_PROBE, attachments=[("k*",)])
        files = extract(out)
        text = next(data for name, data in files.items() if name.endswith(".ptx")).decode()
        found = registers(next(data for name, data in files.items() if name.endswith("sm_90.cubin")))
        for name, is_limited in {"k_few": True, "k_many": False, "k_bound": False}.items():
            self.assertEqual(bool(re.search(rf"\.entry {name}\([^)]*\)[^{{]*\.maxnreg 64\n{{", text)), is_limited, name)
            self.assertEqual(found[name] <= 64, is_limited, (name, found))

    def test_options(self):
        image = nvcc(*gencode("90", "sm_90", "compute_90"), "-maxrregcount=16", "-Xptxas", "-O1")
        reply, out = self.made(image)
        self.assertIn('options "-O1  -maxrregcount=16 "', entries(out)[-1][2])
        cubin = extract(out)["0.0.sm_90.cubin"]  # the compiler leaves its command line there
        self.assertRegex(cubin, rb"maxrregcount[ =]16")
        self.assertRegex(cubin, rb"-O 1|opt-level[ =]1|-O1")

    @needs_nvcc
    def test_debug_and_compression(self):
        for arguments in ["-G"], ["-lineinfo"], ["-Xfatbin", "--compress-mode=speed"], ["-Xfatbin", "-compress-all"], ["-Xfatbin", "--compress-mode=none"]:
            with self.subTest(arguments):
                reply, out = self.made(nvcc(*gencode("90", "sm_90", "compute_90"), *arguments))
                self.check_image(out, [ADD])

    @needs_nvcc
    def test_ptx_lacks_a_kernel(self):
        cubin = nvcc("-arch=sm_90", kind="-cubin")
        both = entry(2, cubin)[16:] + entry(1, PTX.encode() + b"\0")[16:]
        image = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(both)) + both
        self.own(image, r"^the PTX of this image lacks kernel \S+ of its SASS$")
        # A name that is no name stays in one line.
        reply = self.own(image.replace(b"vectorAddPKf", b"vector\n\x1b\xffPKf"), "^the PTX of this image lacks", attachments=[("*",)])
        self.assertNotRegex(reply["reason"], "[\0-\x1f]")

    def twin(self, image, **how):
        """The image of a twin: its entries, for each slot the variable, the addend and what the slot holds, and the kernels with a block."""
        self.need_compiler()
        reply, out = self.worker.image(image, **how)
        self.assertEqual(reply["status"], "made", reply)
        size = struct.unpack_from("<Q", out, 8)[0] + 16
        self.assertEqual(size % 8, 0)
        magic, version, count, kernel_count, names_size, reserved = struct.unpack_from("<6I", out, size)
        self.assertEqual((magic, version, reserved), (0x54525047, 2, 0))
        variables_at = size + 24
        kernels_at = variables_at + 24 * count
        names = out[kernels_at + 16 * kernel_count :]
        self.assertEqual(len(names), names_size)

        def name_at(at):
            return names[at : names.index(b"\0", at)].decode()

        slots = []
        for i in range(count):
            offset, name, reserved, addend = struct.unpack_from("<QIIq", out, variables_at + 24 * i)
            self.assertEqual(reserved, 0)
            slots.append((name_at(name), addend, struct.unpack_from("<Q", out, offset)[0]))
        kernels = [struct.unpack_from("<4I", out, kernels_at + 16 * i) for i in range(kernel_count)]
        return out[:size], slots, [(name_at(name), *numbers) for name, *numbers in kernels]

    @needs_nvcc
    def test_twin(self):
        source = """
        __device__ int total; static __device__ int table[4] = {1, 2, 3, 4}; __device__ int *pointer = &table[1];
        extern "C" __global__ void meant(int *p) { p[0] = atomicAdd(&total, table[*p & 3]) + *pointer; }
        extern "C" __global__ void other(int *p) { *p = total; }
        """
        self.need_compiler()
        image = nvcc(*gencode("80", "sm_80", "compute_80"), *gencode("90", "sm_90", "compute_90"), source=source)
        for sm in 80, 90:
            out, slots, kernels = self.twin(image, attachments=[("meant",)], capability=sm)
            self.assertEqual(kernels, [])
            self.assertEqual([e[:2] for e in entries(out)], [("elf", f"sm_{sm}"), ("ptx", f"sm_{sm}")])
            self.assertEqual(sorted(slots), [("pointer", 0, 0), ("table", 0, 0), ("total", 0, 0)])
            files = extract(out)
            cubin = next(data for name, data in files.items() if name.endswith(".cubin"))
            self.assertIn(b".text.meant\0", cubin)
            self.assertNotIn(b".text.other\0", cubin)
            text = next(data for name, data in files.items() if name.endswith(".ptx"))
            self.assertNotIn(b"other", text)
        self.assertEqual(self.twin(nvcc(*gencode("90", "sm_90", "compute_90")), attachments=[("plain",)])[1], [])

    @needs_nvcc
    def test_twin_constants(self):
        """A __constant__ variable is read at its address in the original."""
        source = """
        __constant__ int scale[8]; __device__ int which; // .const in a comment
        extern "C" __global__ void meant(int *p) { const int *all = scale; *p = scale[2] + all[which]; }
        """
        self.need_compiler()
        out, slots, _ = self.twin(nvcc(*gencode("90", "sm_90", "compute_90"), source=source), attachments=[("meant",)])
        self.assertEqual(sorted({name for name, _, _ in slots}), ["scale", "which"])
        text = next(data for name, data in extract(out).items() if name.endswith(".ptx")).decode()
        self.assertIn(".global .align 4 .b8 scale[32]", text)
        self.assertNotIn("ld.const.u32", text)

    @needs_nvcc
    def test_twin_launch(self):
        """Kernels whose programs read the launch get its block, where the machine code has it, too; others keep their parameters."""
        source = """
        struct three { char bytes[3]; };
        extern "C" __global__ void few(int *p, three x, short y) { *p = x.bytes[1] + y; }
        extern "C" __global__ void none() { __syncthreads(); }
        extern "C" __global__ void other(int *p) { *p = 1; }
        struct full { char bytes[4088]; };
        extern "C" __global__ void filled(int *p, full x) { *p = x.bytes[*p]; }
        """
        reads = PROBE.replace("(.param .b64 r) __gpuprobe_o1_p0()", "(.param .b64 r) __gpuprobe_o1_p0(.param .b64 c0)")
        self.assertNotEqual(reads, PROBE)
        self.need_compiler()
        image = nvcc(*gencode("80", "sm_80", "compute_80"), source=source)
        how = {"attachments": [("few",), ("none",), ("filled",)], "capability": 80}

        def parameters(out):
            """Their offsets and sizes, of the machine code: EIATTR_KPARAM_INFO."""
            cubin = next(data for name, data in extract(out).items() if name.endswith(".cubin"))
            found = []
            for at in range(len(cubin) - 16):
                if cubin[at : at + 4] == b"\x04\x17\x0c\x00":
                    _, _, offset, sizes = struct.unpack_from("<IHHI", cubin, at + 4)
                    found.append((offset, sizes >> 18))
            return sorted(found)

        program = [{"name": "__gpuprobe_o1_p0", "fd": 2, "isa": 63, "target": 52, "context": [168]}]
        out, _, kernels = self.twin(image, program=reads, programs=program, **how)
        self.assertEqual(sorted(kernels), [("few", 3, 14, 16), ("filled", 2, 4096, 4096), ("none", 0, 0, 0)])
        self.assertEqual([offset for offset, size in parameters(out) if size == 32], [0, 16, 4096])
        out, _, kernels = self.twin(image, **how)
        self.assertEqual(kernels, [])
        self.assertNotIn(32, [size for _, size in parameters(out)])

    def test_twin_registers(self):
        """A twin can be launched with blocks of 1024 threads if its original can, also where no machine code says whether that can."""
        self.need_compiler()
        # A twin's constants are loads of global memory, which take registers from before the stores to behind them.
        constants = "".join(f"ld.const.f32 %c{i}, [table+{4 * i}];\n" for i in range(50))
        sums = "".join(f"add.f32 %c{i}, %c{i}, %c{i + 1};\nst.volatile.global.f32 [%a+{4 * i}], %c{i};\n" for i in range(49))
        table = wide("k_table", 30).replace("ld.param", f".reg .f32 %c<50>;\n{constants}ld.param").replace("ret;", sums + "ret;")
        kernels = wide("k_few", 30) + wide("k_many", 100) + wide("k_bound", 30, ".maxntid 128, 1, 1") + wide("k_apart", 30, ".minnctapersm 1")
        # no compiler takes this one, and it is not in the twin
        left = ".extern .func cudaLaunchDevice();\n.func calls() {call cudaLaunchDevice; ret;}\n.visible .entry k_left() {call calls; ret;}\n"
        text = PTX.split(".visible")[0] + ".const .align 4 .f32 table[50];\n" + left + kernels + table + wide("other", 100)
        ptx = entry(1, text.encode(), sm=80)
        images = [("ptx", text.encode()), ("fatbin", ptx)]
        if HAVE_NVCC:  # with code for another architecture
            code = next(data for name, data in extract(nvcc(*gencode("75", "sm_75"))).items() if name.endswith(".cubin"))
            code = entry(2, code, sm=75)
            images.append(("fatbin", struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(code) + len(ptx) - 32) + code[16:] + ptx[16:]))
        for (kind, image), point in itertools.product(images, ("entry", "memory")):
            with self.subTest(kind, point=point):
                out = self.twin(image, kind=kind, program=WIDE_PROBE, attachments=[("k*", point)])[0]
                found = registers(next(data for name, data in extract(out).items() if name.endswith("sm_90.cubin")))
                self.assertEqual([name for name in sorted(found) if found[name] <= 64], ["k_apart", "k_few", "k_table"], found)
                self.assertIn("k_many", found)  # it has more itself
                self.assertIn("k_bound", found)  # it says how large its blocks are

    def test_twin_refused(self):
        """What no kernel of the module can have in a twin."""
        for text, reason in [
            (".const[2] .align 4 .u32 scale;", "the module has constant memory of an old kind"),
            (".global .texref image;", "the module has a texture or surface reference, image"),
        ]:
            with self.subTest(text):
                image = PTX.replace(".visible .entry", text + "\n.visible .entry").encode()
                self.own(image, f"^no twin can be made: {re.escape(reason)}$", kind="ptx")
        inside = PTX.replace("st.global", ".global .u32 inner;\n\tst.global.u32 [inner], 5;\n\tst.global").encode()
        if self.has_compiler:
            self.own(inside, "^no twin can be made: the module has a variable inside of a function, .*inner", kind="ptx")

    def left_out(self, reply):
        """{kernel or function: why it is not in the twin}"""
        for kernel in reply["kernels"]:
            self.assertEqual("reason" in kernel, not kernel["attachments"])
            self.assertEqual([one["id"] for one in kernel.get("missing", [])], [3] if "reason" in kernel else [])
        return {kernel["name"]: kernel["reason"].removeprefix("no twin can be made: ") for kernel in reply["kernels"] if "reason" in kernel}

    def test_twin_pointers(self):
        """Kernels that call by pointers or out of the module, or that take addresses of functions, are not in the twin; the others are."""
        reasons = {
            "k_call": "it calls functions by pointers",
            "k_table": "it calls functions by pointers",
            "k_deep": "it calls functions by pointers (in calls)",
            "k_ring": "it calls functions by pointers (in calls)",
            "k_alias": "it calls functions by pointers (in calls)",
            "k_move": "it takes the address of helper",
            "k_launch": "it takes the address of k_plain",
            "k_inner": "it takes the address of helper",
            "k_stored": "it takes the address of other_name (in stores)",
            "k_outside": "it calls cudaGraphSetConditional, which is outside of the module",
            "k_both": "it calls cudaGraphSetConditional, which is outside of the module",
        }
        kernels = dict.fromkeys(["k_plain", "k_helper", "k_print", "k_reads", "k_other"], None) | reasons
        text = POINTERS
        reply, out = self.worker.image(text.encode(), kind="ptx", attachments=[("k_*",)])
        self.assertEqual(reply["status"], "made", reply)
        self.assertEqual(self.left_out(reply), reasons)
        self.assertEqual(sorted(kernel["name"] for kernel in reply["kernels"]), sorted(kernels))
        found = extract(image_of(out))
        cubin = next(data for name, data in found.items() if name.endswith(".cubin"))
        for name in kernels:
            self.assertEqual(f".text.{name}\0".encode() in cubin, name not in reasons, name)
        new = next(data for name, data in found.items() if name.endswith(".ptx")).decode()
        for name in "calls", "ring", "stores", "never", "alias_of_calls":
            self.assertNotRegex(new, rf"\b{name}\b")
        self.assertRegex(new, r"\.alias other_name, *helper;")
        self.assertIn("functions[] = {0, 0, 5}", new)
        # what a twin does not have may be all that is meant
        self.assertEqual(self.twin(text.encode(), kind="ptx", attachments=[("k_reads",)])[1], [("functions", 0, 0)])
        reply = self.own(text.encode(), "^no twin can be made: it calls functions by pointers$", kind="ptx", attachments=[("k_call",)])
        self.assertEqual(self.left_out(reply), {"k_call": reasons["k_call"]})

    @needs_nvcc
    def test_twin_virtual(self):
        """What nvcc makes of virtual functions: who makes an object stores the address of the original's table, and who calls has no twin."""
        source = """
        struct base { __device__ virtual int f(int x) { return x; } int n; };
        struct more : base { __device__ int f(int x) override { return x + n; } };
        __device__ int helper(int x) { return x + 1; }
        __device__ int (*function)(int) = helper;
        extern "C" __global__ void k_make(more *p) { new (p) more(); }
        extern "C" __global__ void k_use(base *p, int *x) { *x = p->f(*x); }
        extern "C" __global__ void k_pointer(int *x) { *x = function(*x); }
        extern "C" __global__ void k_set() { function = helper; }
        extern "C" __global__ void k_plain(int *x) { *x = helper(*x); }
        extern "C" __global__ void k_print(int *x) { printf("%d", *x); assert(*x); x = (int *)malloc(*x); free(x); }
        """
        self.need_compiler()
        image = nvcc(*gencode("90", "sm_90", "compute_90"), source="#include <cstdio>\n#include <cassert>\n#include <new>\n" + source)
        reply, out = self.worker.image(image, attachments=[("k_*",)])
        self.assertEqual(reply["status"], "made", reply)
        left = {"k_use": "it calls functions by pointers", "k_pointer": "it calls functions by pointers", "k_set": "it takes the address of _Z6helperi"}
        self.assertEqual(self.left_out(reply), left)
        slots = self.twin(image, attachments=[("k_make",)])[1]
        self.assertIn("_ZTV4more", [name for name, _, _ in slots])

    def test_twin_pointers_of_functions(self):
        """The same of device functions that are meant."""
        how = {"kind": "ptx"}
        self.need_compiler()
        named = [(name, "entry", {"device_function": True}) for name in ("helper", "calls", "never")]
        reply, out = self.worker.image(POINTERS.encode(), attachments=named[:1], **how)
        self.assertEqual((reply["status"], self.left_out(reply)), ("made", {}), reply)
        cubin = next(data for name, data in extract(image_of(out)).items() if name.endswith(".cubin"))
        self.assertIn(b".text.k_helper\0", cubin)
        self.assertNotIn(b".text.k_call\0", cubin)
        self.own(POINTERS.encode(), r"^no twin can be made: it calls functions by pointers$", attachments=named[1:2], **how)
        self.own(POINTERS.encode(), r"^no twin can be made: no kernel that can have one calls it$", attachments=named[2:], **how)

    def test_twin_of_passes(self):
        """A pass of the user that puts a call by a pointer into a kernel: no twin."""
        self.need_compiler()
        how = {"kind": "ptx", "attachments": [("k_plain",)]}
        good = POINTERS.replace("{ret; /* plain */}", "{\n.reg .b64 %f;\nmov.u64 %f, 0;\nP: .callprototype _ ();\ncall %f, P;\nret;\n}")
        self.assertNotEqual(good, POINTERS)
        reply, edited = self.worker.image(POINTERS.encode(), stage="edit", text=good.encode(), **how)
        self.assertEqual(reply["status"], "text", reply)
        reply = self.own(
            POINTERS.encode(), "^no twin can be made: with what is put into k_plain, it calls functions by pointers$", stage="build", text=edited, **how
        )

    def test_twin_managed(self):
        """A __managed__ variable is used where the original has it; the twin has none of its own."""
        self.need_compiler()
        text = PTX.replace(
            ".visible .entry",
            ".visible .global .attribute(.managed) .align 4 .u32 shared_one, shared_two[2] = {1, 2};\n"
            ".global .attribute(.managed, .unified(1, 2)) .align 4 .u32 third;\n.visible .entry",
        ).replace("st.global.u64", "st.global.u32 [shared_one], 5;\n\tst.global.u32 [shared_two+4], 5;\n\tst.global.u64")
        out, slots, _ = self.twin(text.encode(), kind="ptx")
        self.assertEqual(sorted(slots), [("shared_one", 0, 0), ("shared_two", 0, 0), ("third", 0, 0)])
        new = next(data for name, data in extract(out).items() if name.endswith(".ptx")).decode()
        self.assertNotIn("attribute", new)

    def test_twin_large(self):
        """The time that it takes to find what cannot be in a twin grows as the module."""
        self.need_compiler()
        times = []
        for count in 4000, 64000:
            chain = "".join(f".func f{i}()\n{{\ncall f{i + 1};\ncall f0;\nret;\n}}\n" for i in range(count))
            head = PTX.split(".visible")[0] + "".join(f".func f{i}();\n" for i in range(count + 1))
            last = f".func f{count}()\n{{\n.reg .b64 %f;\nmov.u64 %f, 0;\nP: .callprototype _ ();\ncall %f, P;\nret;\n}}\n"
            many = "".join(f".visible .entry k{i}()\n{{\ncall f{i};\nret;\n}}\n" for i in range(count))
            text = (head + chain + last + many + ".visible .entry good() { ret; }\n").encode()
            start = time.perf_counter()
            reply, _ = self.worker.image(text, kind="ptx", attachments=[("k*",)])
            times.append(time.perf_counter() - start)
            self.assertEqual((reply["reason"], reply["kernel_count"]), (f"no twin can be made: it calls functions by pointers (in f{count})", count + 1))
        self.assertLess(times[1], 64 * times[0] + 0.5, times)

    def test_ptx_text(self):
        for text in PTX, PTX + "\0", PTX + "\0\0\0":
            reply, out = self.made(text.encode(), kind="ptx")
            self.assertEqual([e[:2] for e in entries(out)], [("elf", "sm_90"), ("ptx", "sm_80")])
        self.own(PTX.replace("sm_80", "sm_100").encode(), "^no code for sm_90 in this image: its PTX is for sm_100$", kind="ptx")
        self.own(PTX.replace("sm_80", "sm_90a").encode(), "its PTX is for sm_90a$", kind="ptx", capability=100)

    def test_older_target(self):
        """A .target that no compiler makes code for any more is raised to what the program needs."""
        for sm in 20, 30, 35, 50, 52, 62:
            reply, out = self.made(PTX.replace(".version 7.0", ".version 3.2").replace("sm_80", f"sm_{sm}").encode(), kind="ptx")
            self.assertEqual([e[:2] for e in entries(out)], [("elf", "sm_90"), ("ptx", f"sm_{max(sm, 52)}")])
        self.error(PTX.replace("sm_80", "sm_13").encode(), "transform", "needs PTX for sm_20 or newer", kind="ptx")

    def test_newer_than_the_compiler(self):
        """PTX of a later CUDA than the compiler's, and a device that it does not know: no twin."""
        newer = PTX.replace(".version 7.0", ".version 99.0")
        for image, how in (newer.encode(), {"kind": "ptx"}), (entry(1, newer.encode() + b"\0", sm=80), {}), (PTX.encode(), {"kind": "ptx", "capability": 990}):
            self.own(image, "^no twin can be made: there is no compiler for this device$", **how)

    @needs_nvcc
    def test_cubin(self):
        image = nvcc("-arch=sm_90", kind="-cubin")
        reply = self.own(image, "^no PTX for sm_90 in this image: SASS only$", kind="cubin")
        self.assertEqual([k["name"] for k in reply["kernels"]], [ADD])
        self.assertEqual(reply["kernel_count"], 4)
        self.own(image, f"^{NO_MATCH}$", kind="cubin", attachments=[("other",)])
        image = nvcc(*gencode("90", "sm_90"))
        reply = self.own(image, "^no PTX for sm_90 in this image: SASS only$", attachments=[("ns::kernel",)])
        self.assertEqual(sorted(k["name"] for k in reply["kernels"]), [FLOAT, INT])

    @needs_nvcc
    def test_relocatable(self):
        image = nvcc(*gencode("90", "sm_90", "compute_90"), "-rdc=true")
        self.own(image, r"^relocatable code \(-rdc=true\)")

    def test_no_version_in_text(self):
        body = PTX.split("\n", 1)[1]
        image = entry(1, body.encode() + b"\0", sm=80)
        reply, out = self.made(image)
        self.assertTrue(extract(out)["0.1.sm_80.ptx"].startswith(b".version 7.0\n"))

    def test_many_kernels(self):
        kernels = "".join(f".visible .entry k{i}()\n{{\n\tret;\n}}\n" for i in range(700))
        text = PTX.split(".visible")[0] + kernels
        reply, out = self.made(text.encode(), kind="ptx", attachments=[("k*",)])
        self.assertEqual((reply["kernel_count"], len(reply["kernels"]), reply["truncated"]), (700, 500, True))
        # Names so long that the message would burst.
        kernels = "".join(f".visible .entry k{i}{'x' * 2000}()\n{{\n\tret;\n}}\n" for i in range(100))
        text = PTX.split(".visible")[0] + kernels
        reply = self.own(text.encode(), "^no kernel matches$", kind="ptx")
        reply, out = self.made(text.encode(), kind="ptx", attachments=[("k*",)])
        self.assertTrue(5 < len(reply["kernels"]) < 100 and reply["truncated"])

    def test_threads(self):
        """Several threads make the same code of a large module, and one makes it where there can be no others."""
        self.need_compiler()
        text, made = small_kernels(200).encode(), []
        for threads in 1, 4:
            worker = Worker([WORKER, *self.arguments, f"--threads={threads}"])
            counted, done = set(), threading.Event()

            def count():
                while not done.is_set():
                    counted.add(len(os.listdir(f"/proc/{worker.process.pid}/task")))

            counter = threading.Thread(target=count)
            counter.start()
            reply, out = worker.image(text, kind="ptx", attachments=[("k*",)])
            done.set()
            counter.join()
            self.assertEqual((reply["status"], worker.close()), ("made", (0, "")), reply)
            self.assertEqual(max(counted) > 1, threads > 1, counted)
            made.append(b"".join(code_sections(out)))
        self.assertEqual(made[0], made[1])

    def test_predicates(self):
        """Kernels for which ptxas is short of predicate registers when they call a program: in threads the compiler aborts, so the job can ask for one, and hears why."""
        looping = PROBE.replace(
            "\tred.global.add.u64 [%a], %one;\n", "again:\n\tatom.global.add.u64 %one, [%a], 1;\n\tsetp.lt.u64 %p, %one, 9;\n\t@%p bra again;\n"
        )
        self.assertIn("again", looping)
        text, how = rank_kernels(40).encode(), {"kind": "ptx", "program": looping, "attachments": [("rank*", "memory")], "call": True}
        for threads, more in (1, {}), (4, {"one_thread": True}):
            worker = Worker([WORKER, *self.arguments, f"--threads={threads}"])
            reply, out = worker.image(text, **how, **more)
            self.assertEqual(worker.close()[0], 0)
            self.assertEqual((reply["status"], reply["error"], out), ("error", "compile", b""), reply)
            self.assertIn("(C7600)", reply["log"])
        self.error(text, "internal", "one_thread", one_thread=1, **how)

    def test_nothing_attached(self):
        self.own(SAMPLE_IMAGE, f"^{NO_MATCH}$", attachments=[])

    def test_no_match(self):
        """The reason names what there is, in words that --kernel takes; not what is too long, nor a template twice, nor more than three."""

        def has(*names):
            text = PTX.split(".visible")[0] + "".join(f".visible .entry {name}()\n{{\n\tret;\n}}\n" for name in names)
            said = self.own(text.encode(), "^no kernel matches", kind="ptx", attachments=[("nothing",)])["reason"].removeprefix("no kernel matches")
            for name in said.removeprefix("; it has ").removesuffix(", ...").split(", ") if said else []:
                self.made(text.encode(), kind="ptx", attachments=[(name,)])
            return said

        hidden = "_GLOBAL__N__0a1b2c3d_4_x_cu_5e6f7a8b_123456"
        self.assertEqual(has("a"), "; it has a")
        self.assertEqual(has("_ZN2ns6kernelIfEEvPT_i", "_ZN2ns6kernelIiEEvPT_i", "_ZL5fixedPf"), "; it has ns::kernel, fixed")
        self.assertEqual(has(f"_ZN{len(hidden)}{hidden}1kE", "x" * 49, "y" * 48), "; it has (anonymous namespace)::k, " + "y" * 48)
        self.assertEqual(has("x" * 49, "_Z", "_Z99x", "_ZZ1fvE1g", "_ZNK1aE", "_Z0", "_ZN", "_ZN1a", "_Z99999999999999999999999x"), "")
        self.assertEqual(has("a", "b", "c"), "; it has a, b, c")
        self.assertEqual(has("a", "b", "c", "d"), "; it has a, b, c, ...")


class WithoutCompiler(Base):
    arguments = ["--compiler=none"]

    def test_no_twin(self):
        self.assertFalse(self.has_compiler)
        self.assertIn("no_compiler", self.worker.hello["features"])
        reply = self.own(SAMPLE_IMAGE, "^no twin can be made: there is no compiler for this device$")
        self.assertEqual([kernel["name"] for kernel in reply["kernels"]], [ADD])
        self.own(SAMPLE_IMAGE, f"^{NO_MATCH}$", attachments=[("nothing",)])
        reply, out = self.worker.image(PTX.encode(), kind="ptx", stage="extract")
        self.assertEqual((reply["status"], out), ("text", PTX.encode()), reply)


class Hostile(Base):
    def test_truncated(self):
        size = len(SAMPLE_IMAGE)
        for length in list(range(1, 600, 7)) + list(range(600, size, 211)):
            reply, _ = self.worker.image(SAMPLE_IMAGE[:length])
            self.assertEqual((reply["status"], reply.get("error")), ("error", "image"), (length, reply))

    def test_garbage(self):
        for kind in "fatbin", "ptx", "cubin":
            for data in b"\0", b"garbage", os.urandom(5000), b"\x50\xed\x55\xba" * 100, b"\x7fELF" + b"\xff" * 1000:
                reply, _ = self.worker.image(data, kind=kind)
                self.assertEqual((reply["status"], reply.get("error")), ("error", "image"), reply)

    def test_damaged(self):
        """Bytes changed here and there: any answer, but an answer."""
        for position in list(range(0, 300)) + list(range(300, len(SAMPLE_IMAGE), 97)):
            image = bytearray(SAMPLE_IMAGE)
            image[position] ^= 0x81
            reply, _ = self.worker.image(bytes(image))
            self.assertIn(reply["status"], ("made", "own", "error"))

    def test_huge_sizes(self):
        self.error(entry(1, b"\x28\xb5\x2f\xfd" + bytes(100), flags=0x8011, uncompressed=1 << 40), "image", "limit")
        self.error(entry(1, b"\x10" * 100, flags=0x2011, uncompressed=1 << 62), "image", "limit")
        self.error(entry(2, b"\x10" * 100, flags=0x2011, uncompressed=1 << 20), "image", "corrupt")
        self.own(entry(1, b"\x10" * 100, flags=0x12011, uncompressed=1 << 20), "scrambled")
        self.own(entry(8, b"\x10" * 100, flags=0x12011, uncompressed=1 << 20), "^no code for sm_90 in this image$")
        # 254 MiB of spaces in LZ4's 1 MiB: within the limit, and no PTX.
        bomb = b"\x1f \x01\x00" + b"\xff" * (1 << 20) + b"\x00" + b"\x50     "
        self.error(entry(1, bomb, flags=0x2011, uncompressed=15 + 4 + 5 + 255 * (1 << 20) - 4), "image")

    def test_no_ptx(self):
        self.error(entry(1, b"this is no PTX\0"), "image", r"PTX line \d+: ")
        self.error(b".version 7.0\n.target sm_80\n.visible .entry x(", "image", r"PTX line", kind="ptx")
        self.error(b"\xff\xfe\n\0\x01", "image", kind="ptx")

    def test_does_not_assemble(self):
        bad = PTX.replace("st.global.u64", "st.global.nonsense")
        if self.has_compiler:
            reply = self.error(bad.encode(), "compile", "does not compile the edited PTX for sm_90: ptxas .*nonsense", kind="ptx")
            self.assertIn("nonsense", reply["log"])
            self.error(PTX.replace("%a", "%unknown", 1).encode(), "compile", kind="ptx")
        self.made(PTX.encode(), kind="ptx")

    def test_program(self):
        self.error(SAMPLE_IMAGE, "transform", program=".func nothing() { ret; }\n")
        self.error(SAMPLE_IMAGE, "transform", program="}")
        self.error(SAMPLE_IMAGE, "transform", program="\xff")
        self.error(PTX.replace("vectorAdd", "__gpuprobe_o1_m0").encode(), "transform", kind="ptx", attachments=[("*",)])

    def test_kernel_names(self):
        name = "_Z" + "N" * 3000 + "1aE"
        text = PTX.replace("vectorAdd", name)
        self.own(text.encode(), "no kernel matches", kind="ptx", attachments=[("x*",)])
        self.made(text.encode(), kind="ptx", attachments=[("_Z*",)])

    def test_request(self):
        good = {
            "job": "image",
            "id": 1,
            "kind": "ptx",
            "input": 0,
            "output": 1,
            "capability": 90,
            "programs": [{"name": "p", "fd": 2, "isa": 63, "target": 52}],
            "attachments": [{"id": 3, "kernel": "k", "point": "entry", "program": "p"}],
        }
        for change in [
            {"kind": "elf"},
            {"kind": 1},
            {"kind": None},
            {"input": "0"},
            {"input": 3},
            {"input": -1},
            {"input": 0.0},
            {"input": True},
            {"output": 0},
            {"output": 9},
            {"output": 1 << 80},
            {"capability": 0},
            {"capability": "90"},
            {"capability": 1 << 40},
            {"programs": {}},
            {"programs": [1]},
            {"programs": [{}]},
            {"programs": [{"name": "p", "fd": 7, "isa": 63, "target": 52}]},
            {"programs": [{"name": "p", "fd": 2, "isa": "63", "target": 52}]},
            {"programs": [{"name": "p", "fd": 2, "isa": 63, "target": 52}] * 65},
            {"attachments": "x"},
            {"attachments": [3]},
            {"attachments": [{"id": 3}]},
            {"attachments": [{"id": 3, "kernel": "k", "point": "entry", "program": "other"}]},
            {"attachments": [{"id": "3", "kernel": "k", "point": "entry", "program": "p"}]},
            {"attachments": [{"id": 3, "kernel": "k\0x", "point": "entry", "program": "p"}]},
            {"job": "link"},
            {"job": 3},
            {"job": "x" * 5000},
            {"stage": "none"},
            {"stage": 1},
            {"stage": "check"},
            {"stage": "edit", "text": 9},
            {"stage": "build", "text": 1},
            {"text_output": 9},
            {"instructions": "x"},
            {"image": -1},
            {"image": 1 << 31},
            {"call": 1},
            {"stubs": "x"},
            {"stubs": [1]},
            {"stubs": ["x"] * 65},
            {"isa": 1},
            {"target": "90"},
        ]:
            fds = [memfd(PTX.encode()), memfd(b"", seal=False), memfd(PROBE.encode())]
            with self.subTest(change):
                self.worker.send(dict(good, **change), fds)
                reply = self.worker.receive()
                self.assertEqual((reply["status"], reply["error"], reply["id"]), ("error", "internal", 1), reply)
            for fd in fds:
                os.close(fd)

    def test_descriptors(self):
        message = {
            "job": "image",
            "id": 1,
            "kind": "ptx",
            "input": 0,
            "output": 1,
            "capability": 90,
            "programs": [{"name": "__gpuprobe_o1_p0", "fd": 2, "isa": 63, "target": 52}],
            "attachments": [{"id": 3, "kernel": "vectorAdd", "point": "entry", "program": "__gpuprobe_o1_p0"}],
        }
        read_end, write_end = os.pipe()
        image, probe = memfd(PTX.encode()), memfd(PROBE.encode())
        for what, fds in [
            ("not sealed", [memfd(PTX.encode(), seal=False), memfd(b"", seal=False), probe]),
            ("empty", [memfd(b""), memfd(b"", seal=False), probe]),
            ("a pipe", [read_end, memfd(b"", seal=False), probe]),
            ("a socket", [self.worker.socket.fileno(), memfd(b"", seal=False), probe]),
            ("a program's not sealed", [image, memfd(b"", seal=False), memfd(PROBE.encode(), seal=False)]),
            ("output is sealed", [image, memfd(b""), probe]),
            ("output is a pipe", [image, write_end, probe]),
            ("none", []),
        ]:
            with self.subTest(what):
                self.worker.send(message, fds)
                reply = self.worker.receive()
                self.assertEqual((reply["status"], reply["error"]), ("error", "internal"), reply)
        self.made(PTX.encode(), kind="ptx")

    def test_no_leak(self):
        """Descriptors and memory after many jobs of all kinds."""

        def used():
            # The answer to this says that the descriptors of the job before are closed.
            self.worker.send({"id": 1})
            self.worker.receive()
            with open(f"/proc/{self.worker.process.pid}/status") as status:
                rss = int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1))
            try:
                return len(os.listdir(f"/proc/{self.worker.process.pid}/fd")), rss
            except PermissionError:
                return 0, rss

        def some():
            self.worker.image(SAMPLE_IMAGE)
            self.worker.image(SAMPLE_IMAGE, attachments=[("other",)])
            self.worker.image(SAMPLE_IMAGE[:1000])
            self.worker.image(PTX.encode(), kind="ptx", capability=75)
            self.worker.image(b"x", kind="ptx")

        for _ in range(10):
            some()
        before = used()
        for _ in range(60):
            some()
        after = used()
        self.assertEqual(after[0], before[0])
        self.assertLess(after[1], before[1] + 8 * 1024)

    def test_sandboxed(self):
        with open(f"/proc/{self.worker.process.pid}/status") as status:
            text = status.read()
        self.assertIn("Seccomp:\t2\n", text)
        self.assertIn("CapEff:\t0000000000000000\n", text)
        self.assertIn("NoNewPrivs:\t1\n", text)


class Life(unittest.TestCase):
    """A worker that ends, and how."""

    def ends(self, worker, code, words):
        with self.assertRaises(Died) as died:
            worker.receive()
        self.assertRegex(str(died.exception), f"(?s)^{code}: .*{words}")
        worker.socket.close()
        worker.process.stderr.close()

    def test_no_request(self):
        for message in (
            b"x",
            b"{",
            b"[]",
            b"3",
            b'{"id":1}x',
            b'{"id":1}\0',
            b"\xff",
            b'{"id":"1"}',
            b'{"job":"image"}',
            b'{"id":1.0}',
            b'{"id":1,"x":"\xff"}',
            b"[" * 1000,
            b'{"id":1,}',
            b"nul",
        ):
            with self.subTest(message):
                worker = Worker([WORKER, "--compiler=none"])
                worker.send(message)
                self.ends(worker, 1, "serving: Bad message")

    def test_too_long(self):
        worker = Worker([WORKER, "--compiler=none"])
        worker.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        worker.send(b'{"id":1}' + b" " * (128 * 1024))
        self.ends(worker, 1, "serving: Protocol error")
        worker = Worker([WORKER, "--compiler=none"])
        worker.send(b'{"id":1,"job":"none"}', [2] * 65)
        self.ends(worker, 1, "serving: Protocol error")
        worker = Worker([WORKER, "--compiler=none"])
        worker.send(b'{"id":1,"job":"none"}' + b" " * (100 * 1024), [2] * 64)
        self.assertEqual(worker.receive()["message"], 'this worker does not do the job "none"')
        self.assertEqual(worker.close(), (0, ""))

    def test_ping(self):
        worker = Worker([WORKER, "--compiler=none"])
        worker.send(b'{"id":7,"job":"ping"}')
        self.assertEqual(worker.receive(), {"id": 7, "status": "pong"})
        self.assertEqual(worker.close(), (0, ""))

    def test_faults(self):
        worker = Worker([WORKER, "--compiler=none", "--test-fault=crash"])
        worker.send({"id": 1})
        self.ends(worker, -signal.SIGSEGV, "")
        worker = Worker([WORKER, "--compiler=none", "--test-fault=garbage"])
        worker.send({"id": 1})
        with self.assertRaises(ValueError):
            worker.receive()
        worker.close()
        worker = Worker([WORKER, "--compiler=none", "--test-fault=hang"])
        worker.send({"id": 1})
        worker.socket.settimeout(0.3)
        with self.assertRaises(TimeoutError):
            worker.receive()
        worker.process.kill()
        worker.close()
        worker = Worker([WORKER, "--compiler=none", "--test-fault=slow"])
        worker.send({"id": 1, "job": "none"})
        worker.socket.settimeout(0.3)
        with self.assertRaises(TimeoutError):
            worker.receive()
        worker.socket.settimeout(None)
        self.assertEqual(worker.receive()["message"], 'this worker does not do the job "none"')
        self.assertEqual(worker.close(), (0, ""))

    def test_output_limit(self):
        worker = Worker([WORKER, "--compiler=none", "--output=1"])
        text = PTX + "//" + "x" * (1 << 20) + "\n"
        reply, _ = worker.image(text.encode(), kind="ptx", stage="extract")
        self.assertEqual(reply["error"], "internal")
        self.assertIn("File too large", reply["message"])
        self.assertEqual(worker.image(PTX.encode(), kind="ptx", stage="extract")[0]["status"], "text")
        self.assertEqual(worker.close(), (0, ""))

    def test_memory_limit(self):
        worker = Worker([WORKER, "--compiler=none", "--memory=150"])
        text = PTX + "//" + "x" * (200 << 20) + "\n"
        reply, _ = worker.image(text.encode(), kind="ptx")
        self.assertEqual((reply["status"], reply["error"]), ("error", "internal"), reply)
        self.assertEqual(worker.image(PTX.encode(), kind="ptx", stage="extract")[0]["status"], "text")
        self.assertEqual(worker.close(), (0, ""))

    def test_arguments(self):
        for argument in "--memory=x", "--memory=-1", "--cpu=", "--bogus", "extra", "--test-fault=no", "--compiler=gcc":
            done = subprocess.run([WORKER, argument], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, argument)
            self.assertNotEqual(done.stderr, "")
        self.assertEqual(subprocess.run([WORKER, "--help"], capture_output=True).returncode, 0)
        self.assertEqual(subprocess.run([WORKER, "--version"], capture_output=True).returncode, 0)
        # Descriptor 3 is no socket.
        done = subprocess.run([WORKER, "--compiler=none"], capture_output=True, close_fds=True)
        self.assertEqual(done.returncode, 1)


def measure():
    image = nvcc(*gencode("90", "sm_90", "compute_90")) if HAVE_NVCC else SAMPLE_IMAGE
    start = time.perf_counter()
    worker = Worker([WORKER])
    ready = time.perf_counter()
    times = []
    for _ in range(20):
        begin = time.perf_counter()
        reply, _ = worker.image(image)
        times.append(time.perf_counter() - begin)
    own = []
    for _ in range(20):
        begin = time.perf_counter()
        worker.image(image, attachments=[("other",)])
        own.append(time.perf_counter() - begin)
    worker.close()
    print(
        f"{worker.hello['features'].get('compiler', 'no compiler')}: ready after {1e3 * (ready - start):.1f} ms, first job "
        f"{1e3 * times[0]:.1f} ms, later jobs {1e3 * sorted(times)[10]:.1f} ms (median; compile "
        f"{reply.get('compile_us', 0) / 1e3:.1f}), no kernel matches {1e3 * sorted(own)[10]:.2f} ms"
    )


if __name__ == "__main__":
    try:
        result = unittest.main(argv=sys.argv[:1] + sys.argv[6:], exit=False, verbosity=1).result
        measure()
    finally:
        shutil.rmtree(folder)
    sys.exit(not result.wasSuccessful())
