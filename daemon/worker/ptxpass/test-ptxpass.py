#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The passes as programs: requests, replies and exit statuses.

test-ptxpass.py FOLDER_OF_EXECUTABLES PTXAS
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

FOLDER, PTXAS = sys.argv[1:3]
OK, CONFIGURATION, INPUT, TRANSFORM = 0, 64, 65, 66

PTX = """\
.version 7.0
.target sm_80
.address_size 64
.visible .entry _Z9vectorAddPf(.param .u64 p)
{
	.reg .pred %q;
	.reg .b64 %a;
	ld.param.u64 %a, [p];
	setp.eq.u64 %q, %a, 0;
	@%q ret;
	st.global.u64 [%a], %a;
	st.global.u64 [%a+8], %a;
	ret;
}
.visible .entry other()
{
	ret;
}
"""


def insn(code, dst=0, src=0, off=0, imm=0):
    """One instruction as the contract has it."""
    return {"lower_32bit": code | dst << 8 | src << 12 | (off & 0xFFFF) << 16, "upper_32bit": imm & 0xFFFFFFFF}


MOV0, EXIT = insn(0xB7), insn(0x95)
TIMER = [insn(0x85, imm=502), MOV0, EXIT]
# counter[0] += 1, the map by descriptor 7
COUNTER = [
    insn(0x62, 10, off=-4),
    insn(0xBF, 2, 10),
    insn(0x07, 2, imm=-4),
    insn(0x18, 1, 1, imm=7),
    insn(0),
    insn(0x85, imm=1),
    insn(0x15, off=2),
    insn(0xB7, 1, imm=1),
    insn(0xDB, 0, 1),
    MOV0,
    EXIT,
]
MAP = {"name": "counter", "type": 2, "key_size": 4, "value_size": 8, "max_entries": 1, "fd": 7}


class Case(unittest.TestCase):
    def execute(self, name, *arguments, text="", point=None, status=OK):
        """Runs one; its standard output, after its exit status and standard error were looked at."""
        environment = {"PATH": os.environ["PATH"], **({"PTX_ATTACH_POINT": point} if point is not None else {})}
        for key in os.environ:
            if key.startswith(("ASAN", "LSAN", "UBSAN", "LD_LIBRARY")):
                environment[key] = os.environ[key]
        done = subprocess.run([os.path.join(FOLDER, "ptxpass_" + name), *arguments], input=text.encode(), capture_output=True, timeout=60, env=environment)
        self.errors = done.stderr.decode()
        self.assertEqual(done.returncode, status, self.errors)
        if status == OK:
            self.assertEqual(self.errors, "")
        else:
            self.assertEqual(done.stdout, b"")
            self.assertGreaterEqual(self.errors.count("\n"), 1)
        return done.stdout.decode()

    def run_pass(self, name, request, point, status=OK):
        out = self.execute(name, text=json.dumps(request), point=point, status=status)
        if status != OK:
            self.assertEqual(self.errors.count("\n"), 1, self.errors)
            self.assertTrue(self.errors.startswith(f"ptxpass_{name}: "))
            return None
        self.assertEqual(out.count("\n"), 1)
        return json.loads(out)

    def assemble(self, text):
        if not os.access(PTXAS, os.X_OK):
            return
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.ptx")
            with open(path, "w") as file:
                file.write(text)
            done = subprocess.run([PTXAS, "-arch=sm_80", path, "-o", path + ".o"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)


class Contract(Case):
    def test_flat(self):
        for name, point, names in [
            ("kprobe_entry", "kprobe/_Z9vectorAddPf", ["__probe_func___Z9vectorAddPf"]),
            ("kprobe_entry", "kprobe/vectorAdd", ["__probe_func___Z9vectorAddPf"]),
            ("kretprobe", "kretprobe/vectorAdd", ["__retprobe_func___Z9vectorAddPf"]),
            ("kprobe_memcapture", "kprobe/__memcapture", ["__memcapture__0"]),
            ("kprobe_memcapture", "memcapture/vector*", ["__memcapture__0"]),
        ]:
            with self.subTest(name + " " + point):
                reply = self.run_pass(name, {"full_ptx": PTX}, point)
                self.assertEqual(list(reply), ["output_ptx"])
                text = reply["output_ptx"]
                for function in names:
                    self.assertEqual(len(re.findall(rf"^\.func {function}\b", text, re.M)), 1)
                    self.assertRegex(text, rf"call {function}\b")
                for forbidden in "%ptxpass_", "%globaltimer", "//":
                    self.assertNotIn(forbidden, text)
                self.assemble(text)

    def test_returns(self):
        text = self.run_pass("kretprobe", {"full_ptx": PTX}, "kretprobe/vectorAdd")["output_ptx"]
        self.assertEqual(len(re.findall(r"call __retprobe_func___Z9vectorAddPf", text)), 2)

    def test_kernel_of_the_request_wins(self):
        reply = self.run_pass("kprobe_entry", {"full_ptx": PTX, "to_patch_kernel": "other"}, "kprobe/vectorAdd")
        self.assertIn("__probe_func__other", reply["output_ptx"])
        self.assertNotIn("__probe_func___Z9vectorAddPf", reply["output_ptx"])
        for name, prefix in (("kprobe_entry", "__probe_func__"), ("kretprobe", "__retprobe_func__")):
            reply = self.run_pass(name, {"full_ptx": PTX, "to_patch_kernel": "other"}, None)
            self.assertIn(prefix + "other", reply["output_ptx"])

    def test_unchanged(self):
        for name, point, request in [
            ("kprobe_entry", "kprobe/nothing", {}),
            ("kprobe_entry", "kretprobe/vectorAdd", {}),
            ("kprobe_entry", "kprobe/__memcapture", {}),
            ("kretprobe", "kprobe/vectorAdd", {}),
            ("kprobe_memcapture", "kprobe/vectorAdd", {}),
            ("kprobe_memcapture", "memcapture/other", {}),
            ("kprobe_entry", "kprobe/vectorAdd", {"to_patch_kernel": "nothing"}),
        ]:
            with self.subTest(name + " " + point):
                self.assertEqual(self.run_pass(name, {"full_ptx": PTX, **request}, point), {"output_ptx": ""})
                self.assertEqual(self.run_pass(name, {"input": {"full_ptx": PTX, **request}}, point), {"output_ptx": "", "modified": False})

    def test_nested(self):
        reply = self.run_pass("kprobe_entry", {"input": {"full_ptx": PTX, "to_patch_kernel": "other"}, "ebpf_instructions": TIMER}, "kprobe/other")
        self.assertIs(reply["modified"], True)
        self.assertIn("%globaltimer", reply["output_ptx"])
        self.assemble(reply["output_ptx"])
        flat = self.run_pass("kprobe_entry", {"full_ptx": PTX, "to_patch_kernel": "other", "ebpf_instructions": TIMER}, "kprobe/other")
        self.assertEqual(flat["output_ptx"], reply["output_ptx"])

    def test_other_fields(self):
        self.run_pass(
            "kprobe_memcapture",
            {
                "full_ptx": PTX,
                "global_ebpf_map_info_symbol": "map_info",
                "ebpf_communication_data_symbol": "constData",
                "source_symbol": "x",
                "copy_bytes": 8,
                "align_bytes": 8,
                "more": [{"x": None}],
            },
            "kprobe/__memcapture",
        )

    def test_one_after_the_other(self):
        text = PTX
        for name, point in (("kprobe_entry", "kprobe/*"), ("kretprobe", "kretprobe/*"), ("kprobe_memcapture", "kprobe/__memcapture")):
            text = self.run_pass(name, {"full_ptx": text, "ebpf_instructions": TIMER}, point)["output_ptx"]
        for name in "__probe_func__other", "__retprobe_func__other", "__memcapture__0":
            self.assertIn(f"call {name}", text)
        self.assemble(text)
        # Memory instructions of one kernel, then those of another.
        again = self.run_pass("kprobe_memcapture", {"full_ptx": text}, "memcapture/vectorAdd")["output_ptx"]
        self.assertIn("call __memcapture__1", again)
        self.assemble(again)
        # A second time at the same place is an error.
        self.run_pass("kprobe_entry", {"full_ptx": text}, "kprobe/other", TRANSFORM)

    def test_lines_and_blocks(self):
        text = PTX.replace(".visible .entry _Z9", '.file 1 "/x/y.cu"\n.visible .entry _Z9').replace(
            "\tst.global.u64 [%a+8]", "\t.loc 1 5 1\n\tst.global.u64 [%a+8]"
        )
        for point in "kprobe/vectorAdd@y.cu:5", "kprobe/vectorAdd@block:1":
            self.assertIn("call ", self.run_pass("kprobe_entry", {"full_ptx": text}, point)["output_ptx"])
        self.assertEqual(self.run_pass("kprobe_entry", {"full_ptx": text}, "kprobe/vectorAdd@y.cu:6"), {"output_ptx": ""})


class Maps(Case):
    def test_descriptor(self):
        reply = self.run_pass("kprobe_entry", {"full_ptx": PTX, "ebpf_instructions": COUNTER, "maps": [MAP]}, "kprobe/vectorAdd")
        self.assertRegex(reply["output_ptx"], r"\.visible \.(global|const) .*\bmap_info_0\b")
        self.assemble(reply["output_ptx"])

    def test_names(self):
        request = {"full_ptx": PTX, "ebpf_instructions": COUNTER, "global_ebpf_map_info_symbol": "mine"}
        reply = self.run_pass("kprobe_entry", {**request, "maps": [MAP]}, "kprobe/vectorAdd")
        self.assertIn(" mine_0", reply["output_ptx"])
        reply = self.run_pass("kprobe_entry", {**request, "maps": [{**MAP, "slot_symbol": "here"}]}, "kprobe/vectorAdd")
        self.assertIn(" here", reply["output_ptx"])

    def test_no_such_map(self):
        request = {"full_ptx": PTX, "ebpf_instructions": COUNTER}
        self.run_pass("kprobe_entry", request, "kprobe/vectorAdd", TRANSFORM)
        self.assertIn('instruction 3 refers to map 7, and the request has no such member of "maps"', self.errors)
        self.run_pass("kprobe_entry", {**request, "maps": [{**MAP, "fd": 8}]}, "kprobe/vectorAdd", TRANSFORM)
        self.run_pass("kprobe_entry", {**request, "maps": [{**MAP, "type": 29}]}, "kprobe/vectorAdd", TRANSFORM)


class Wrong(Case):
    def test_not_json(self):
        for text in "", "x", PTX, "{", "[]", "3", '"x"', "{}x", '{"full_ptx":"x"} {}', "null", "{'full_ptx':''}", "\0":
            with self.subTest(text):
                self.execute("kprobe_entry", text=text, point="kprobe/x", status=INPUT)

    def test_fields(self):
        good = {"full_ptx": PTX}
        for request in [
            {},
            {"full_ptx": 3},
            {"full_ptx": None},
            {"full_ptx": ["x"]},
            {**good, "to_patch_kernel": 1},
            {**good, "global_ebpf_map_info_symbol": "a b"},
            {**good, "global_ebpf_map_info_symbol": ""},
            {**good, "ebpf_communication_data_symbol": 1},
            {**good, "ebpf_instructions": {}},
            {**good, "ebpf_instructions": [1]},
            {**good, "ebpf_instructions": [{}]},
            {**good, "ebpf_instructions": [{"lower_32bit": 1}]},
            {**good, "ebpf_instructions": [{"lower_32bit": 1, "upper_32bit": 1 << 32}]},
            {**good, "ebpf_instructions": [{"lower_32bit": -1, "upper_32bit": 0}]},
            {**good, "ebpf_instructions": [{"lower_32bit": "1", "upper_32bit": 0}]},
            {**good, "maps": {}},
            {**good, "maps": [1]},
            {**good, "maps": [{}]},
            {**good, "maps": [{**MAP, "fd": "7"}]},
            {**good, "maps": [MAP] * 65},
            {"input": PTX},
            {"input": {}},
            {"input": good, "ebpf_instructions": 1},
        ]:
            with self.subTest(str(request)[:200]):
                self.run_pass("kprobe_entry", request, "kprobe/x", INPUT)

    def test_not_ptx(self):
        for text in "", "nothing", ".version 7.0", PTX.replace("}", "", 1):
            self.run_pass("kprobe_entry", {"full_ptx": text}, "kprobe/vectorAdd", TRANSFORM)

    def test_programs(self):
        for instructions in ([insn(0xFF)], [MOV0], [insn(0x85, imm=9999), EXIT], [insn(0x05, off=100), EXIT], [insn(0x18, 1, imm=7)]):
            self.run_pass("kprobe_entry", {"full_ptx": PTX, "ebpf_instructions": instructions}, "kprobe/vectorAdd", TRANSFORM)

    def test_attach_point(self):
        for name in "kprobe_entry", "kretprobe", "kprobe_memcapture":
            self.run_pass(name, {"full_ptx": PTX}, None, CONFIGURATION)
            self.run_pass(name, {"full_ptx": PTX}, "", CONFIGURATION)
        self.run_pass("kprobe_entry", {"full_ptx": PTX}, "kprobe/f@block:x", CONFIGURATION)

    def test_usage(self):
        for arguments in ["--bogus"], ["extra"], ["--config"], ["--config", "/nowhere"], ["--print-config", "x"]:
            self.execute("kprobe_entry", *arguments, status=CONFIGURATION)
        self.assertIn("usage: ptxpass_kretprobe", self.execute("kretprobe", "--help"))
        self.assertRegex(self.execute("kretprobe", "--version"), r"^ptxpass_kretprobe \d")


class Configuration(Case):
    def config(self, name, change, text=None):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        path = os.path.join(folder, "x.json")
        if text is None:
            text = json.dumps({**json.loads(self.execute(name, "--print-config")), **change})
        with open(path, "w") as file:
            file.write(text)
        return path

    def with_config(self, name, change, request, point, status=OK, **more):
        out = self.execute(name, "--config", self.config(name, change, **more), text=json.dumps(request), point=point, status=status)
        return json.loads(out) if status == OK else None

    def test_print(self):
        for name, order in ("kprobe_entry", 100), ("kretprobe", 200), ("kprobe_memcapture", 300):
            printed = json.loads(self.execute(name, "--print-config"))
            self.assertEqual((printed["name"], printed["order"]), (name, order))
            # What is printed can be read, and says the same.
            path = self.config(name, {})
            self.assertEqual(json.loads(self.execute(name, "--config", path, "--print-config")), printed)

    def test_schema(self):
        """The schema has the members that are read, and the defaults that count."""
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../proto/pass.schema.json")) as file:
            members = json.load(file)["properties"]
        text = '{"name": "kretprobe", "attach_points": {"include": ["kretprobe/*"]}}'
        printed = json.loads(self.execute("kretprobe", "--config", self.config("kretprobe", {}, text), "--print-config"))
        self.assertEqual(set(printed) | {"$schema", "executable"}, set(members))
        for name in "attach_points", "validation":
            self.assertEqual(set(printed[name]), set(members[name]["properties"]))
        for name in "attach_type", "order", "timeout_ms", "memory_mib":
            self.assertEqual(printed[name], members[name]["default"])
        self.assertIn(printed["attach_type"], members["attach_type"]["enum"])
        for name in "order", "timeout_ms", "memory_mib":
            for limit, step in ("minimum", -1), ("maximum", 1):
                if limit in members[name]:
                    good = self.config("kretprobe", {name: members[name][limit]})
                    self.execute("kretprobe", "--config", good, "--print-config")
                    bad = self.config("kretprobe", {name: members[name][limit] + step})
                    self.execute("kretprobe", "--config", bad, "--print-config", status=CONFIGURATION)

    def test_points(self):
        points = {"attach_points": {"include": ["kprobe/vec*", "kprobe/other"], "exclude": ["kprobe/vectorSub"]}}
        for point, changed in ("kprobe/vectorAdd", True), ("kprobe/other", True), ("kprobe/o*", False), ("kprobe/vectorSub", False):
            reply = self.with_config("kprobe_entry", points, {"full_ptx": PTX}, point)
            self.assertEqual(bool(reply["output_ptx"]), changed, point)

    def test_parameters(self):
        text = PTX.replace(
            ".visible .entry other()\n{\n", ".func my_stub()\n{\n\tret;\n}\n.visible .entry other()\n{\n\t.reg .b64 %a;\n\tmov.b64 %a, 0;\n\tcall my_stub;\n"
        )
        reply = self.with_config("kprobe_entry", {"parameters": {"stubs": ["my_stub"]}}, {"full_ptx": text}, "kprobe/other")
        self.assertNotIn("call my_stub", reply["output_ptx"])
        reply = self.with_config("kprobe_memcapture", {"parameters": {"spaces": ["shared"]}}, {"full_ptx": PTX}, "kprobe/__memcapture")
        self.assertEqual(reply["output_ptx"], "")
        for parameters in {"stubs": "x"}, {"stubs": ["x"] * 65}, {"spaces": ["moon"]}, {"spaces": 3}:
            self.with_config("kprobe_entry", {"parameters": parameters}, {"full_ptx": PTX}, "kprobe/other", status=CONFIGURATION)

    def test_validation(self):
        request = {"full_ptx": PTX}
        self.with_config("kprobe_entry", {"validation": {"max_output_bytes": 100}}, request, "kprobe/other", status=TRANSFORM)
        self.assertIn("at most 100 are allowed", self.errors)
        self.with_config("kprobe_entry", {"validation": {"required_symbols": ["nothing"]}}, request, "kprobe/other", status=TRANSFORM)
        self.assertIn("the output lacks nothing", self.errors)
        self.with_config("kprobe_entry", {"validation": {"required_symbols": ["__probe_func__other"]}}, request, "kprobe/other")

    def test_bad_files(self):
        for text in [
            "",
            "x",
            "{}",
            "[]",
            '{"name":"kprobe_entry"}',
            '{"name":"kretprobe","attach_points":{"include":["*"]}}',
            '{"name":"mine","executable":"/bin/true","attach_points":{"include":["*"]}}',
            '{"name":"kprobe_entry","attach_points":{"include":["*"]},"ordr":1}',
        ]:
            with self.subTest(text):
                self.with_config("kprobe_entry", {}, {"full_ptx": PTX}, "kprobe/other", status=CONFIGURATION, text=text)
                self.assertEqual(self.errors.count("\n"), 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=1)
