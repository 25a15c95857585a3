#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The job `patch` as the daemon uses it: plans, points, programs that cannot stand in a patch, hostile lists of names.

test-patch-worker.py WORKER FATBIN_TOOL
"""

import os
import re
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from worker_driver import Plan, Worker, names_list  # noqa: E402

WORKER, TOOL = sys.argv[1:3]
ADD = "_Z9vectorAddPKfS0_Pf"
CLASSES = {
    "entry": [1],
    "return": [2],
    "memory": [3, 4, 5, 17],
    "barrier": [6],
    "syncwarp": [7],
    "shfl": [8],
    "call": [9],
    "ret": [10],
    "malloc": [11],
    "free": [12],
}
FIELDS = {"entry": range(0, 56, 8), "return": range(0, 56, 8), "memory": range(0, 48, 8)}


def program(fields=(), name="__gpuprobe_o1_p0", extra="", body=""):
    """A patch form: adds the fields that it reads, and 1, to the 8 bytes behind its second slot."""
    parameters = "".join(f", .param .b64 c{i}" for i in range(len(fields)))
    reads = "".join(f"\tld.param.b64 %rd4, [c{i}];\n\tadd.s64 %rd3, %rd3, %rd4;\n" for i in range(len(fields)))
    return f"""{extra}
.func (.param .b64 r) {name}(.param .b64 slots{parameters})
{{
	.reg .pred %p<3>;
	.reg .b64 %rd<6>;
	ld.param.b64 %rd1, [slots];
	ld.relaxed.cta.global.b64 %rd2, [%rd1+8];
	setp.eq.s64 %p1, %rd2, 0;
	mov.b64 %rd3, 1;
	@%p1 bra $L1;
{reads}{body}	red.global.add.u64 [%rd2], %rd3;
$L1:
	mov.b64 %rd5, 0;
	st.param.b64 [r], %rd5;
	ret;
}}
"""


def one(fields=(), slots=2, **how):
    return [("__gpuprobe_o1_p0", program(fields, **how), fields, slots)]


def ptx_of(image):
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/image", "wb") as file:
            file.write(image)
        subprocess.run([TOOL, "extract", f"{folder}/image", "-o", f"{folder}/out"], check=True, stdout=subprocess.DEVNULL)
        found = {}
        for name in os.listdir(f"{folder}/out"):
            with open(f"{folder}/out/{name}", "rb") as file:
                found[name.split(".")[-1]] = file.read()
    return found["ptx"].decode(), found["cubin"]


class Base(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.worker = Worker([WORKER])
        if "patch" not in cls.worker.hello["features"]:
            cls.worker.close()
            raise unittest.SkipTest("no compiler that makes patches")

    @classmethod
    def tearDownClass(cls):
        assert cls.worker.close() == (0, "")

    def planned(self, programs, attachments, **how):
        reply, out = self.worker.patch(programs, attachments, **how)
        self.assertEqual(reply["status"], "planned", reply)
        self.assertEqual(reply["size"], len(out))
        plan = Plan(out)
        self.assertEqual(plan.image, out[reply["image_offset"] :][: reply["image_size"]])
        self.assertEqual(reply["matched"], len(plan.kernels))
        return reply, plan, out

    def error(self, error, message, programs, attachments, **how):
        reply, out = self.worker.patch(programs, attachments, **how)
        self.assertEqual((reply["status"], reply.get("error")), ("error", error), reply)
        self.assertRegex(reply["message"], message)
        self.assertNotIn("\n", reply["message"])
        self.assertEqual(out, b"")
        return reply


class Points(Base):
    def test_every_class_with_all_fields(self):
        for point, numbers in CLASSES.items():
            fields = list(FIELDS.get(point, range(0, 40, 8)))
            reply, plan, _ = self.planned(one(fields), [("*", point, 0)])
            self.assertEqual(sorted(plan.points), numbers, point)
            self.assertEqual([f["instruction"] for f in reply["functions"]], numbers)
            text, cubin = ptx_of(plan.image)
            for number, symbol in plan.points.items():
                self.assertEqual(symbol, f"gpuprobe_{plan.image_id:016x}_{number}")
                self.assertEqual(text.count(f" {symbol}(.param .b64 data, .param .b64 pc"), 1)
                self.assertIn(symbol.encode(), cubin)
            for function in reply["functions"]:
                self.assertGreater(function["registers"], 0)
                self.assertEqual(set(function), {"instruction", "registers", "spill_stores", "spill_loads", "stack"})

    def test_spaces(self):
        for spaces, numbers in [(["global"], [3, 17]), (["shared"], [4]), (["local"], [5]), (["generic"], [3]), (["shared", "local", "const"], [4, 5])]:
            _, plan, _ = self.planned(one([24]), [("*", "memory", 0, {"spaces": spaces})])
            self.assertEqual(sorted(plan.points), numbers, spaces)
        for spaces in ["const"], ["param"], ["const", "param"]:
            self.error("program", "attachment 3: .*spaces", one(), [("*", "memory", 0, {"spaces": spaces})])

    def test_what_a_context_lacks(self):
        for point, field, name in [
            ("entry", 56, "param_count"),
            ("return", 64, r"params\[0\]"),
            ("entry", 160, r"params\[12\]"),
            ("memory", 80, "offset 80"),
            ("call", 40, "offset 40"),
            ("free", 48, "offset 48"),
        ]:
            self.error(
                "program",
                f"attachment 4: program __gpuprobe_o1_p0 reads .*{name}.*point {point}",
                one([field]) + [("__gpuprobe_o1_p1", program((), "__gpuprobe_o1_p1"), (), 1)],
                [("*", point, 1), ("*", point, 0)],
            )

    def test_no_launch(self):
        """Machine code that is patched has no launch: it reads as 0."""
        for point, first in ("entry", 168), ("return", 168), ("memory", 48):
            _, plan, _ = self.planned(one([first, first + 24]), [("*", point, 0)])
            self.assertNotIn("gpuprobe_launch", ptx_of(plan.image)[0])

    def test_unknown_points(self):
        for point in "line", "block", "exit", "":
            self.error("program", "no point", one(), [("*", point, 0)])

    def test_a_plain_counter_is_short_and_spills_nothing(self):
        reply, plan, _ = self.planned(one(), [("*", "entry", 0)])
        self.assertEqual([(f["spill_stores"], f["spill_loads"], f["stack"]) for f in reply["functions"]], [(0, 0, 0)])
        text, cubin = ptx_of(plan.image)
        self.assertNotIn("call", text)  # the program is in the function

    def test_stores_tell_their_value_once(self):
        _, plan, _ = self.planned(one([40]), [("*", "memory", 0, {"spaces": ["shared"]})])
        text, _ = ptx_of(plan.image)
        for size in 1, 2, 4:
            self.assertIn(f"@%gpuprobe_s ld.u{8 * size} %gpuprobe_c5, [%gpuprobe_pointer]", text)
        self.assertIn("setp.ge.and.u64 %gpuprobe_s, %gpuprobe_size, 8", text)
        _, plan, _ = self.planned(one([8]), [("*", "memory", 0, {"spaces": ["shared"]})])
        self.assertNotIn("ld.u", ptx_of(plan.image)[0])


class Attachments(Base):
    def test_order_bits_and_slots(self):
        programs = [
            ("__gpuprobe_o1_p0", program((), "__gpuprobe_o1_p0"), (), 3),
            ("__gpuprobe_o1_p1", program([0], "__gpuprobe_o1_p1"), [0], 2),
            ("__gpuprobe_o2_p0", program((), "__gpuprobe_o2_p0"), (), 4),
        ]
        _, plan, _ = self.planned(programs, [("*", "entry", 2), ("*", "return", 1), ("*", "entry", 0), ("*", "entry", 2)])
        self.assertEqual(sorted(plan.points), [1, 2])
        self.assertEqual(plan.data_size, 112)  # 32 + 9 * 8, to a multiple of 16
        text, _ = ptx_of(plan.image)
        functions = {number: text[text.index(f" {symbol}(") :].split("\n}\n")[0] for number, symbol in plan.points.items()}
        found = {
            number: list(zip(re.findall(r"%gpuprobe_bits, (0x\w+);", text), re.findall(r"%gpuprobe_slots, %gpuprobe_data, (\d+);", text)))
            for number, text in functions.items()
        }
        # bit of the attachment, offset of its program's slots
        self.assertEqual(found, {1: [("0x1", "72"), ("0x4", "32"), ("0x8", "72")], 2: [("0x2", "56")]})

    def test_many(self):
        programs = [(f"__gpuprobe_o{i}_p0", program((0, 16), f"__gpuprobe_o{i}_p0"), (0, 16), 8) for i in range(58)]
        reply, plan, _ = self.planned(programs, [("*", "entry", i) for i in range(58)], names=names_list([(0, 0, ["k"])]))
        self.assertEqual(plan.kernels[0][3], (1 << 58) - 1)
        self.assertEqual(plan.data_size, 32 + 58 * 64)
        self.assertIn("call", ptx_of(plan.image)[0])  # what is too long to stand in one function
        self.error("internal", "no attachments, or too many", programs, [("*", "entry", 0)] * 59)
        self.error("internal", "no attachments, or too many", programs, [])

    def test_too_many_slots(self):
        self.error("program", "too many maps", one(slots=509), [("*", "entry", 0)])
        self.planned(one(slots=508), [("*", "entry", 0)])

    def test_the_same_image_for_the_same_work(self):
        ids = {}
        for key, programs, attachments, capability in [
            ("a", one(), [("x", "entry", 0)], 90),
            ("a", one(), [("y*", "entry", 0)], 90),
            ("capability", one(), [("x", "entry", 0)], 80),
            ("point", one(), [("x", "return", 0)], 90),
            ("two", one(), [("x", "entry", 0), ("y", "entry", 0)], 90),
            ("fields", one([0]), [("x", "entry", 0)], 90),
        ]:
            _, plan, _ = self.planned(programs, attachments, capability=capability)
            ids.setdefault(key, set()).add(plan.image_id)
        self.assertEqual([len(found) for found in ids.values()], [1] * 5)
        self.assertEqual(len(set.union(*ids.values())), 5)

    def test_an_earlier_plan_spares_the_compiler(self):
        attachments = [("*Add*", "entry", 0), ("*", "memory", 0)]
        _, first, earlier = self.planned(one([0]), attachments)
        bare = [(name, None, fields, slots) for name, _, fields, slots in one([0])]
        reply, plan, _ = self.planned(bare, [("k", "entry", 0), ("*", "memory", 0)], earlier=earlier, names=names_list([(1, 0, [ADD, "k"])]))
        self.assertEqual((plan.image, plan.image_id, plan.points, plan.data_size), (first.image, first.image_id, first.points, first.data_size))
        self.assertEqual([kernel[3] for kernel in plan.kernels], [2, 3])
        self.assertEqual(reply["compile_us"], 0)
        self.assertNotIn("functions", reply)
        for broken in earlier[:-8], b"x" * 200, earlier[:4] + b"\2" + earlier[5:]:
            self.error("internal", "patch is no plan", bare, attachments, earlier=broken)
        self.error("internal", "patch is no plan", bare, [("*", "return", 0)], earlier=earlier)
        with_more = [(name, None, fields, 40) for name, _, fields, _ in one([0])]
        self.error("internal", "patch is no plan", with_more, attachments, earlier=earlier)


class Programs(Base):
    def refused(self, what, message, **how):
        self.error("compile", message, one(extra=what.get("extra", ""), body=what.get("body", "")), [("*", "entry", 0)], **how)

    def test_what_a_patch_cannot_have(self):
        for body in "bar.sync 0;", "barrier.sync 0;", "@%p1 bar.red.popc.u32 %r1, 0, %p1;", "exit;", "barrier.cluster.arrive;":
            self.refused({"body": f"\t{body}\n"}, "program __gpuprobe_o1_p0: `.*` in a patch")
        self.refused({"extra": ".shared .align 8 .b8 x[8];"}, r"x is in \.shared")
        self.refused({"body": "\t.shared .align 8 .b8 x[8];\n"}, r"x is in \.shared")
        self.refused({"extra": ".visible .const .align 8 .u64 __gpuprobe_o1_m0 = 0;"}, r"m0 is in \.const")
        self.refused({"extra": ".visible .entry k()\n{\n\tret;\n}"}, "has a kernel")
        self.refused({"extra": ".func f()\n{\n\tbar.sync 0;\n\tret;\n}"}, "`bar.sync 0;`")
        self.planned(one(body="\tbar.warp.sync 1;\n"), [("*", "entry", 0)])

    def test_what_is_no_program(self):
        for text in "", "}", ".func f()\n{\n\tret;\n}\n", program([0]):
            self.error("compile", "program __gpuprobe_o1_p0: ", [("__gpuprobe_o1_p0", text or "\n", (), 1)], [("*", "entry", 0)])
        reply = self.error("compile", "does not compile", one(body="\tadd.s64 %rd3, %rd3, %nothing;\n"), [("*", "entry", 0)])
        self.assertIn("nothing", reply["log"])

    def test_device(self):
        self.error("compile", "need sm_70, the device is sm_52", one(), [("*", "entry", 0)], capability=52)
        self.error("compile", "does not know sm_999", one(), [("*", "entry", 0)], capability=999)

    def test_variables_and_functions_of_programs(self):
        """Functions of a program stay, and a variable that two bring in the same words stands there once."""
        shared = ".visible .global .align 8 .u64 shared_by_all = 0;\n"
        called = ".func {}_h()\n{{\n\tret;\n}}\n"
        programs = [
            (name, program((), name, extra=shared + called.format(name), body=f"\tcall {name}_h;\n"), (), 2)
            for name in ("__gpuprobe_o1_p0", "__gpuprobe_o1_p1")
        ]
        _, plan, _ = self.planned(programs, [("*", "entry", 0), ("*", "entry", 1), ("*", "return", 0)])
        text, _ = ptx_of(plan.image)
        self.assertEqual(text.count(shared.strip()), 1)
        self.assertEqual(text.count(".func __gpuprobe_o1_p1_h()"), 1)
        other = [programs[0], (programs[1][0], programs[1][1].replace(".u64 shared_by_all", ".u32 shared_by_all"), (), 2)]
        self.error("compile", "another program has a symbol shared_by_all", other, [("*", "entry", 0), ("*", "entry", 1)])


class Names(Base):
    def match(self, names, *attachments, **how):
        return self.planned(one(), [(a[0], "entry", 0, *a[1:]) for a in attachments], names=names, **how)

    def test_globs_and_demangled_names(self):
        names = names_list([(7, 0, [ADD, "plain", "_Z4gemmIfEvPT_"]), (3, 0, []), (9, 0, ["other", ADD])])
        for pattern, found in [
            ("vectorAdd", [(7, 0), (9, 1)]),
            ("*gemm*", [(7, 2)]),
            ("gemm<float>", [(7, 2)]),
            (ADD, [(7, 0), (9, 1)]),
            ("*", [(7, 0), (7, 1), (7, 2), (9, 0), (9, 1)]),
            ("none", []),
            ("p*[n]", [(7, 1)]),
        ]:
            reply, plan, _ = self.match(names, (pattern,))
            self.assertEqual([kernel[:2] for kernel in plan.kernels], found, pattern)
            self.assertEqual(reply["kernel_count"], 5)
        reply, plan, _ = self.match(names, ("vectorAdd",), ("*",))
        self.assertEqual([kernel[3] for kernel in plan.kernels], [3, 2, 2, 2, 3])
        self.assertEqual(
            [(kernel["name"], kernel["attachments"]) for kernel in reply["kernels"]], [(ADD, [3, 4]), ("plain", [4]), ("_Z4gemmIfEvPT_", [4]), ("other", [4])]
        )  # a name once

    def test_no_names(self):
        for names in None, b"", names_list([]), names_list([(1, 0, [])]):
            reply, plan, _ = self.match(names, ("*",))
            self.assertEqual((plan.kernels, reply["kernels"], reply["kernel_count"]), ([], [], 0))
        _, plan, _ = self.match(names_list([(1, 0, ["", "k"])]), ("*",))
        self.assertEqual([name for _, name, _, _ in plan.kernels], [1])

    def test_malformed(self):
        good = names_list([(1, 0, ["a", "b"]), (2, 0, ["c"])])

        def patched(offset, form, value):
            data = bytearray(good)
            struct.pack_into(form, data, offset, value)
            return bytes(data)

        for data in (
            good[:-1],
            good[:-8],
            good[:40],
            good[:8],
            good + b"\0" * 8,
            patched(0, "<I", 0),
            patched(0, "<I", 23),
            patched(0, "<I", 33),
            patched(0, "<I", 40),
            patched(0, "<I", 2**32 - 8),
            patched(16, "<I", 9),
            patched(16, "<I", 0),
            patched(16, "<I", 2**32 - 1),
            patched(20, "<I", 1),
            patched(32 + 0, "<I", 2**31),
            good.replace(b"c" + bytes(7), b"cccccccc"),
            good.replace(b"a\0b\0" + bytes(4), b"a\0b\0\0\0\0x"),
            b"\xff" * 64,
        ):
            self.error("image", "malformed list of names: ", one(), [("*", "entry", 0)], names=data)

    def test_large(self):
        names = [f"_Z9vectorAddPKfS0_Pf_{i}" for i in range(20000)]
        reply, plan, _ = self.match(names_list([(0, 0, names[:10000]), (1, 0, names[10000:])]), ("_Z9*",))
        self.assertEqual((len(plan.kernels), reply["kernel_count"]), (20000, 20000))
        self.assertTrue(reply["truncated"])
        self.assertLessEqual(len(reply["kernels"]), 500)
        self.assertEqual(plan.kernels[15000][:2], (1, 5000))

    def test_sixteen_mebibytes(self):
        count = (16 << 20) // 32
        record = struct.pack("<IIQII", 32, 1, 0, 4, 0) + b"a\0b\0c\0d\0"
        reply, plan, _ = self.match(record * count, ("c",))
        self.assertEqual((reply["kernel_count"], len(plan.kernels)), (4 * count, count))
        text = b"_Z1fv\0" * ((16 << 20) // 6 - 8)
        text += b"\0" * (-len(text) % 8)
        self.match(struct.pack("<IIQII", 24 + len(text), 1, 0, (16 << 20) // 6 - 8, 0) + text, ("g*x",))
        self.error("internal", "names is no sealed memfd", one(), [("*", "entry", 0)], names=bytes((16 << 20) + 8))


class Without(unittest.TestCase):
    def test_no_compiler(self):
        worker = Worker([WORKER, "--compiler=none"])
        self.assertNotIn("patch", worker.hello["features"])
        reply, out = worker.patch(one(), [("*", "entry", 0)])
        self.assertEqual((reply["error"], out), ("unsupported", b""))
        self.assertIn("nvPTXCompiler", reply["message"])
        worker.close()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
