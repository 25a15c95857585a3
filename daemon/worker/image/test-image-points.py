#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Points, device functions, contexts, and the stages of the job `image`.

test-image-points.py WORKER NVCC
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from worker_driver import PROBE, Worker  # noqa: E402

WORKER, NVCC = sys.argv[1:3]
COUNT = "red.global.add.u64"  # once in each place where PROBE stands
SLOT = "__gpuprobe_o1_m0"

PTX = """\
.version 7.0
.target sm_80
.address_size 64
.file 1 "/home/somebody/x.cu"
.visible .global .align 4 .u32 visible_one;
.global .align 4 .u32 private_one;
.func (.param .b32 r) _ZN3dev4halfEi(.param .b32 x)
{
	.reg .b32 %a;
	ld.param.b32 %a, [x];
	shr.b32 %a, %a, 1;
	st.param.b32 [r], %a;
	ret;
}
.func stub_here()
{
	ret;
}
.visible .entry _Z1fPmi(.param .u64 p, .param .u32 n)
{
	.reg .pred %p;
	.reg .b32 %x;
	.reg .b64 %a, %v;
	.shared .align 8 .b64 s;
	.loc 1 10 3
	ld.param.u64 %a, [p];
	cvta.to.global.u64 %a, %a;
	.loc 1 11 3
	ld.param.u32 %x, [n];
	setp.eq.s32 %p, %x, 0;
	@%p ret;
	.loc 1 12 3
	ld.global.u64 %v, [%a];
	st.shared.u64 [s], %v;
	call stub_here, ();
	.loc 1 13 3
	{
	.param .b32 p0;
	.param .b32 r0;
	st.param.b32 [p0], %x;
	call (r0), _ZN3dev4halfEi, (p0);
	ld.param.b32 %x, [r0];
	}
	st.global.u64 [%a], %v;
	ret;
}
.visible .entry g()
{
	ret;
}
"""


class Base(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.worker = Worker([WORKER])

    @classmethod
    def tearDownClass(cls):
        assert cls.worker.close() == (0, "")

    def job(self, status, *attachments, image=PTX.encode(), **members):
        reply, out = self.worker.image(image, kind=members.pop("kind", "ptx"), attachments=attachments, **members)
        self.assertEqual(reply["status"], status, reply)
        return reply, out

    def text(self, *attachments, **members):
        """The edited text, and the reply."""
        image = {key: members[key] for key in ("image", "kind") if key in members}
        _, text = self.job("text", *attachments, stage="extract", **image)
        reply, text = self.job("text", *attachments, stage="edit", text=text, **members)
        self.assertEqual(reply["size"], len(text))
        return text.decode(), reply

    def need_compiler(self):
        if "compiler" not in self.worker.hello["features"]:
            self.skipTest("no compiler")


class Points(Base):
    def test_sites(self):
        for attachment, sites in [
            (("f", "entry"), 1),
            (("f", "return"), 2),
            (("f", "memory"), 3),
            (("f", "block", {"block": 0}), 1),
            (("f", "block", {"block": 1}), 1),
            (("f", "line", {"file": "x.cu", "line": 12}), 1),
            (("f", "line", {"file": "somebody/x.cu", "line": 10}), 1),
            (("*", "entry"), 2),
            (("*", "return"), 3),
        ]:
            with self.subTest(attachment):
                text, reply = self.text(attachment)
                self.assertEqual(text.count(COUNT), sites)
                self.assertEqual(reply["applied"], [3])
                self.assertEqual(text.count(f".u64 {SLOT}"), 1)

    def test_spaces(self):
        for spaces, sites in (["global"], 2), (["shared"], 1), (["global", "shared"], 3), (["param"], 2):
            with self.subTest(spaces):
                text, _ = self.text(("f", "memory", {"spaces": spaces}))
                self.assertEqual(text.count(COUNT), sites)
        for spaces in ["glob"], [1], [], "global", ["global"] * 7:
            with self.subTest(spaces):
                reply, _ = self.job("error", ("f", "memory", {"spaces": spaces}))
                self.assertEqual(reply["error"], "internal")

    def test_points_malformed(self):
        for point in (
            ("f", "nowhere"),
            ("f", "line"),
            ("f", "line", {"file": "x.cu"}),
            ("f", "line", {"line": 1}),
            ("f", "line", {"file": "", "line": 1}),
            ("f", "line", {"file": "x.cu", "line": 0}),
            ("f", "block"),
            ("f", "block", {"block": -1}),
            ("f", "block", {"block": 1 << 32}),
            ("f", "entry", {"device_function": 1}),
        ):
            with self.subTest(point):
                reply, _ = self.job("error", point)
                self.assertEqual(reply["error"], "internal")

    def test_several(self):
        text, reply = self.text(("f", "entry"), ("g", "return"), ("f", "return"), ("f", "memory"))
        self.assertEqual(text.count(COUNT), 1 + 1 + 2 + 3)
        self.assertEqual(reply["applied"], [3, 4, 5, 6])
        self.assertEqual({k["name"]: k["attachments"] for k in reply["kernels"]}, {"_Z1fPmi": [3, 5, 6], "g": [4]})

    def test_no_such_point(self):
        for attachment, what in [
            (("f", "line", {"file": "x.cu", "line": 99}), "no such point in kernel f: line x.cu:99"),
            (("f", "line", {"file": "u.cu", "line": 12}), "no such point in kernel f: line u.cu:12"),
            (("g", "memory"), "no such point in kernel g: memory instruction"),
            (("f", "block", {"block": 77}), "no such point in kernel f: block 77"),
        ]:
            with self.subTest(attachment):
                reply, out = self.job("own", attachment)
                self.assertEqual(reply["reason"], what)
                self.assertEqual([k["attachments"] for k in reply["kernels"]], [[3]])
                self.assertEqual(out, b"")
        for second in ("f", "line", {"file": "x.cu", "line": 99}), ("g", "memory"):
            reply, _ = self.job("own", ("f", "block", {"block": 77}), second)
            self.assertEqual(reply["reason"], "no such point in kernel f: block 77, and others")

    def test_some_have_a_point(self):
        text, reply = self.text(("*", "memory"), ("g", "block", {"block": 5}), ("g", "entry"))
        self.assertEqual(reply["applied"], [3, 5])
        self.assertEqual({k["name"]: k["attachments"] for k in reply["kernels"]}, {"_Z1fPmi": [3], "g": [5]})

    def test_stubs(self):
        text, _ = self.text(("f", "entry"), stubs=["stub_here"])
        body = text[text.index(".entry _Z1fPmi") :]
        self.assertNotIn("call stub_here", body)
        self.assertGreater(body.index(COUNT), body.index("st.shared"))
        text, _ = self.text(("f", "entry"), stubs=["another"])
        body = text[text.index(".entry _Z1fPmi") :]
        self.assertLess(body.index(COUNT), body.index("st.shared"))

    def test_call(self):
        text, _ = self.text(("f", "entry"), ("f", "return"), ("f", "memory"), call=True)
        self.assertEqual(text.count(COUNT), 1)
        for name in "__probe_func___Z1fPmi", "__retprobe_func___Z1fPmi", "__memcapture__0":
            self.assertIn(f".func {name}", text)
            self.assertIn(f"call {name}", text)

    def test_context(self):
        program = PROBE.replace("__gpuprobe_o1_p0()", "__gpuprobe_o1_p0(.param .b64 c0, .param .b64 c1)").replace("mov.u64 %one, 1", "ld.param.b64 %one, [c1]")
        described = [{"name": "__gpuprobe_o1_p0", "fd": 2, "isa": 63, "target": 52, "context": [64, 72]}]
        text, _ = self.text(("f", "entry"), program=program, programs=described)
        self.assertEqual(text.count(COUNT), 1)
        for context in [3], [208], [-8], ["64"], "x", [0] * 33:
            with self.subTest(context):
                reply, _ = self.job("error", ("f", "entry"), programs=[dict(described[0], context=context)])
                self.assertEqual(reply["error"], "internal")
        # A program that does not have as many parameters as it is said to.
        reply, _ = self.job("error", ("f", "entry"), programs=described)
        self.assertEqual(reply["error"], "transform")

    def test_instructions(self):
        _, reply = self.text(("f", "memory"), outputs=["instructions"])
        listed = json.loads(self.worker.outputs["instructions"])
        self.assertEqual(reply["instructions_size"], len(self.worker.outputs["instructions"]))
        self.assertEqual([i["index"] for i in listed], [0, 1, 2])
        self.assertEqual([i["text"].rstrip(";") for i in listed], ["ld.global.u64 %v, [%a]", "st.shared.u64 [s], %v", "st.global.u64 [%a], %v"])
        self.assertEqual({i["kernel"] for i in listed}, {"_Z1fPmi"})
        self.assertEqual([(i["file"], i["line"]) for i in listed], [("/home/somebody/x.cu", 12), ("/home/somebody/x.cu", 12), ("/home/somebody/x.cu", 13)])
        self.text(("g", "entry"), outputs=["instructions"])
        self.assertEqual(self.worker.outputs["instructions"], b"[]")

    @unittest.skipUnless(os.access(NVCC, os.X_OK), "no nvcc")
    def test_lines_of_nvcc(self):
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "lines.cu")
            with open(source, "w") as file:
                file.write("__global__ void k(int *p)\n{\n\tint v = p[threadIdx.x];\n\tp[threadIdx.x] = v * 3;\n}\n")
            subprocess.run([NVCC, "-arch=sm_90", "-lineinfo", "-fatbin", source, "-o", source + ".out"], check=True, capture_output=True)
            with open(source + ".out", "rb") as file:
                image = file.read()
        text, reply = self.text(("k", "line", {"file": "lines.cu", "line": 4}), image=image, kind="fatbin")
        self.assertGreaterEqual(text.count(COUNT), 1)
        self.assertEqual(reply["applied"], [3])


class DeviceFunctions(Base):
    DEVICE = {"device_function": True}

    def test_match(self):
        for pattern in "_ZN3dev4halfEi", "dev::half", "dev::half(int)", "dev::*":
            with self.subTest(pattern):
                text, reply = self.text((pattern, "return", self.DEVICE))
                self.assertEqual(text.count(COUNT), 1)
                self.assertEqual(reply["kernels"], [{"name": "_ZN3dev4halfEi", "demangled": "dev::half(int)", "device_function": True, "attachments": [3]}])
        self.assertEqual(reply["kernel_count"], 2)

    def test_kernels_are_none(self):
        for pattern, members in (("f", self.DEVICE), ("dev::half", {})):
            reply, _ = self.job("own", (pattern, "entry", members))
            self.assertRegex(reply["reason"], "^no kernel (matches; it has .*|and no device function matches)$")
        text, reply = self.text(("*", "entry", self.DEVICE))
        self.assertEqual(sorted(k["name"] for k in reply["kernels"]), ["_ZN3dev4halfEi", "stub_here"])
        text, reply = self.text(("*", "entry"), ("*", "entry", self.DEVICE))
        self.assertEqual(text.count(COUNT), 4)
        self.assertEqual(["device_function" in k for k in reply["kernels"]], [False, False, True, True])


class Stages(Base):
    ENTRY = ("f", "entry")

    def refused(self, stage, text, words, *attachments, **members):
        reply, out = self.job("error", *(attachments or [self.ENTRY]), stage=stage, text=text.encode(), **members)
        self.assertEqual(reply["error"], "transform")
        self.assertRegex(reply["message"], words)
        self.assertEqual(out, b"")

    def test_all_the_way(self):
        reply, out = self.job("text", self.ENTRY, stage="extract")
        self.assertEqual((out.decode(), reply["size"]), (PTX, len(PTX)))
        self.assertEqual([k["name"] for k in reply["kernels"]], ["_Z1fPmi"])
        foreign = PTX.replace("shr.b32 %a, %a, 1", "shr.b32 %a, %a, 2 /* mine */").encode()
        reply, out = self.job("text", stage="check", text=foreign)
        self.assertEqual(out, b"")
        reply, edited = self.job("text", self.ENTRY, stage="edit", text=foreign, outputs=["instructions"])
        self.assertEqual((reply["size"], reply["applied"]), (len(edited), [3]))
        self.assertEqual((reply["isa"], reply["target"]), (70, 80))
        self.assertIn(b"/* mine */", edited)
        self.assertEqual(edited.count(COUNT.encode()), 1)
        self.job("text", self.ENTRY, stage="check_edited", text=edited)
        self.need_compiler()
        reply, out = self.job("made", self.ENTRY, stage="build", text=edited, outputs=["text_output"])
        text = self.worker.outputs["text_output"]
        self.assertEqual((b"/* mine */" in text, text.count(COUNT.encode()), b".entry g" in text), (True, 1, False), text)  # f, and what it calls
        self.assertEqual((reply["size"], reply["text_size"]), (len(out), len(text)))
        self.assertNotIn("applied", reply)

    def test_launch_of_a_twin(self):
        """The block of a launch, which our edit adds to the parameters: passes after it may leave it, and add none themselves."""
        how = {
            "program": PROBE.replace("__gpuprobe_o1_p0()", "__gpuprobe_o1_p0(.param .b64 c0)"),
            "programs": [{"name": "__gpuprobe_o1_p0", "fd": 2, "isa": 63, "target": 52, "context": [168]}],
        }
        block = ",\n\t.param .align 8 .b8 __gpuprobe_launch[32]"
        _, edited = self.job("text", self.ENTRY, stage="edit", text=PTX.encode(), **how)
        edited = edited.decode()
        self.assertEqual((edited.count(block), edited.count("[__gpuprobe_launch+0]")), (1, 1))
        self.job("text", self.ENTRY, stage="check_edited", text=edited.encode(), **how)
        self.refused("check_edited", edited.replace("launch[32]", "launch[40]"), "has 3 parameters instead of 2", **how)
        self.refused("check", PTX.replace(".param .u32 n", ".param .u32 n" + block), "has 3 parameters instead of 2", **how)
        self.need_compiler()
        self.job("made", self.ENTRY, stage="build", text=edited.encode(), **how)

    def test_nothing_matches(self):
        reply, _ = self.job("own", ("other", "entry"), stage="extract")
        self.assertEqual(reply["reason"], "no kernel matches; it has f, g")

    def test_foreign(self):
        """What a pass must leave as it is."""
        edited = self.text(self.ENTRY)[0]
        for change, words in [
            ((".visible .entry g()\n{\n\tret;\n}\n", ""), "^kernel g is gone$"),
            ((".entry g()", ".entry h()"), "^kernel g is gone$"),
            ((".visible .entry g", ".visible .entry h()\n{\n\tret;\n}\n.visible .entry g"), "^it has 3 kernels instead of 2$"),
            ((".param .u32 n)", ".param .u64 n)"), "^parameter 1 of kernel _Z1fPmi is another$"),
            ((".param .u32 n)", ".param .u32 n, .param .u32 m)"), "^kernel _Z1fPmi has 3 parameters instead of 2$"),
            ((".version 7.0", ".version 8.4"), "^.version 8.4 is newer than 7.0$"),
            ((".target sm_80", ".target sm_90"), "^.target sm_90 instead of sm_80$"),
            ((".target sm_80", ".target sm_70"), "^.target sm_70 instead of sm_80$"),
            ((".address_size 64", ".address_size 32"), "^.address_size 32 instead of 64$"),
            ((".visible .global .align 4 .u32 visible_one;\n", ""), "^variable visible_one is gone$"),
            ((".u32 visible_one", ".u64 visible_one"), "^variable visible_one is another$"),
            ((".visible .entry g()", "%%%"), r"^PTX line \d+: "),
        ]:
            with self.subTest(change):
                self.assertNotEqual(edited, edited.replace(*change))
                self.refused("build", edited.replace(*change), words)
                self.refused("check_edited", edited.replace(*change), words)
                self.refused("edit", PTX.replace(*change), words)
                self.refused("check", PTX.replace(*change), words)
        # What is private may go, and a pass may be allowed more.
        self.job("text", stage="check", text=PTX.replace(".global .align 4 .u32 private_one;\n", "").encode())
        self.job("text", stage="check", text=PTX.replace(".version 7.0", ".version 8.4").encode(), isa=84)

    def test_slots(self):
        self.refused("build", PTX, f"^variable {SLOT} is gone$")
        self.refused("check_edited", PTX, f"^variable {SLOT} is gone$")
        self.job("text", self.ENTRY, stage="check", text=PTX.encode())
        edited = self.text(self.ENTRY)[0]
        self.refused("build", edited.replace(f".u64 {SLOT} ", f".u32 {SLOT} "), f"^variable {SLOT} is another$")
        self.refused("build", edited.replace(f".visible .global .align 8 .u64 {SLOT}", f".global .align 8 .u64 {SLOT}"), f"^variable {SLOT} is gone$")

    def test_does_not_compile(self):
        self.need_compiler()
        edited = self.text(self.ENTRY)[0].replace("shr.b32", "shr.nonsense")
        reply, _ = self.job("error", self.ENTRY, stage="build", text=edited.encode())
        self.assertEqual(reply["error"], "compile")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=1)
