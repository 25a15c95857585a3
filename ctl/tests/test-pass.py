#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test-pass.py GPUPROBECTL FAKE_DAEMON: pass list and pass test."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

CTL, DAEMON = (os.path.abspath(path) for path in sys.argv[1:3])
OK, ERROR, USAGE, UNREACHABLE, VERIFIER, NOT_FOUND, PERMISSION = range(7)
PTX = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry _Z1fv()\n{\n\tret;\n}\n.visible .entry g()\n{\n\tret;\n}\n"
BUILTINS = ["kprobe_entry", "kretprobe", "kprobe_memcapture"]
PTXPASS = os.path.join(os.path.dirname(CTL), "../daemon/worker/ptxpass/ptxpass_kretprobe")
SANITIZED = b"__asan_init" in open(CTL, "rb").read()


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.passes = os.path.join(self.folder, "passes.d")
        os.mkdir(self.passes)
        self.ptx = self.file("x.ptx", PTX)

    def file(self, name, text, mode=0o644):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def define(self, name, script, **members):
        """A pass of the user: a script and its definition."""
        definition = {"name": name, "executable": "../" + name, "attach_points": {"include": ["*"]}, **members}
        self.file(name, "#!/bin/sh\n" + script, 0o755)
        self.file(f"passes.d/{name}.json", json.dumps(definition))

    def ctl(self, *arguments, status=OK, errors="", **environment):
        kept = {k: v for k, v in os.environ.items() if k.startswith(("ASAN", "LSAN", "UBSAN", "LD_LIBRARY"))}
        done = subprocess.run(
            [CTL, *arguments], capture_output=True, text=True, timeout=60, env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **kept, **environment}
        )
        self.assertEqual(done.returncode, status, done.stderr)
        if errors is not None:
            self.assertEqual(done.stderr, errors and f"gpuprobectl: {errors}\n")
        return done.stdout

    def run_test(self, *arguments, status=OK, errors="", **environment):
        """{pass: (result, exit status)}, the reasons, and the points."""
        out = json.loads(
            self.ctl("pass", "test", self.ptx, "--json", *arguments, status=status, errors=errors, GPUPROBE_PTXPASS_DIR=self.passes, **environment)
        )
        self.reasons = {r["pass"]: r["reason"] for r in out}
        self.points = {r["pass"]: r["attach_point"] for r in out}
        return {r["pass"]: (r["result"], r.get("exit_status")) for r in out}


class List(Case):
    def test_list(self):
        path = os.path.join(self.folder, "socket")
        with subprocess.Popen([DAEMON, path], stdout=subprocess.PIPE) as daemon:
            try:
                self.assertEqual(daemon.stdout.readline(), b"ready\n")
                lines = self.ctl("--socket", path, "pass", "list").splitlines()
                reply = json.loads(self.ctl("--socket", path, "pass", "list", "--json"))
            finally:
                daemon.kill()
        self.assertEqual(lines[0].split(), "ORDER NAME POINTS EXECUTABLE DESCRIPTION".split())
        self.assertEqual(lines[1].split(), "50 mine kprobe/* !kprobe/f /usr/bin/mine does ?this".split())
        self.assertEqual(lines[2].split(), "200 kretprobe kretprobe/* built in".split())
        self.assertEqual((reply["folders"], reply["passes"][0]["order"]), (["/etc/p"], 50))


class Test(Case):
    def test_user(self):
        self.define("same", "echo '{}'\n", order=1)
        self.define("change", 'sed \'s/^{"full_ptx"/{"output_ptx"/\'\n', order=2)
        self.define("fail", "echo no good >&2; exit 66\n", order=3)
        self.define("crash", "kill -KILL $$\n", order=4)
        self.define("late", "exec sleep 100\n", order=5, timeout_ms=200)
        self.define("other", "exit 9\n", order=6, attach_points={"include": ["kprobe/nothing"]})
        self.define("validated", 'sed \'s/^{"full_ptx"/{"output_ptx"/\'\n', order=7, validation={"required_symbols": ["h"]})
        names = ["same", "change", "fail", "crash", "late", "other", "validated"]
        results = self.run_test(status=ERROR)
        self.assertEqual(
            {name: results[name] for name in names},
            {
                "same": ("ok", 0),
                "change": ("changed", 0),
                "fail": ("failed", 66),
                "crash": ("failed", 137),
                "late": ("failed", None),
                "other": ("ok", None),
                "validated": ("failed", 0),
            },
        )
        self.assertEqual(self.reasons["fail"], "exit status 66: no good")
        self.assertEqual(self.reasons["late"], "timed out after 200 ms")
        self.assertEqual(self.reasons["validated"], "output_ptx lacks h")
        self.assertEqual(self.points["fail"], "kprobe/_Z1fv")
        self.assertEqual(list(results), names + BUILTINS)

    def test_no_utf8(self):
        self.define("bytes", r"printf 'a\377b\302' >&2; exit 1" "\n")
        self.assertEqual(self.run_test("--pass=bytes", status=ERROR), {"bytes": ("failed", 1)})
        self.assertEqual(self.reasons["bytes"], "exit status 1: a\ufffdb\ufffd")
        self.ctl("pass", "test", b"/nowhere\xc2x", status=NOT_FOUND, errors="/nowhere?x: No such file or directory")

    def test_chosen(self):
        self.define("mine", 'test "$PTX_ATTACH_POINT" = kprobe/g && grep -q \'"to_patch_kernel":"g"\' && echo \'{}\'\n')
        self.assertEqual(self.run_test("--pass=mine", "--kernel=g"), {"mine": ("ok", 0)})
        self.assertEqual(self.run_test("--pass=mine", status=ERROR), {"mine": ("failed", 1)})
        self.assertEqual(
            json.loads(self.ctl("pass", "--json", "test", "--pass=mine", "--kernel=g", "--pass-dir", self.passes, self.ptx)),
            [{"pass": "mine", "attach_point": "kprobe/g", "result": "ok", "exit_status": 0, "reason": ""}],
        )
        lines = self.ctl("pass", "test", "--pass", "mine", "--kernel", "g", "--pass-dir", self.passes, self.ptx).splitlines()
        self.assertEqual([line.split() for line in lines], ["PASS POINT RESULT EXIT REASON".split(), "mine kprobe/g ok 0".split()])

    @unittest.skipUnless(os.path.exists(PTXPASS), "no LLVM")
    @unittest.skipIf(SANITIZED, "sanitizers need more memory than a pass gets")
    def test_builtin(self):
        self.assertEqual(self.run_test(), {"kprobe_entry": ("changed", 0), "kretprobe": ("changed", 0), "kprobe_memcapture": ("ok", 0)})
        self.assertEqual(self.points["kretprobe"], "kretprobe/_Z1fv")

    def test_bad_definitions(self):
        self.file("passes.d/bad.json", "{")
        self.define("good", "echo '{}'\n")
        results = self.run_test("--pass=good", errors=f"pass left out: {self.passes}/bad.json: not JSON: it ends too early")
        self.assertEqual(results, {"good": ("ok", 0)})

    def test_wrong(self):
        self.ctl("pass", status=USAGE, errors="pass: list or test?; see gpuprobectl pass --help")
        self.ctl("pass", "dump", status=USAGE, errors="pass has no command dump; see gpuprobectl pass --help")
        self.ctl("pass", "test", status=USAGE, errors="pass test takes one file; see gpuprobectl pass test --help")
        self.ctl("pass", "test", self.ptx, self.ptx, status=USAGE, errors="pass test takes one file; see gpuprobectl pass test --help")
        self.ctl("pass", "test", self.ptx, "--pass=none", "--pass-dir", self.passes, status=NOT_FOUND, errors="there is no pass none")
        self.ctl("pass", "test", self.ptx, "--kernel=h", status=NOT_FOUND, errors=f"{self.ptx}: it has no kernel h")
        self.ctl("pass", "test", "/nowhere", status=NOT_FOUND, errors="/nowhere: No such file or directory")
        if os.getuid():
            secret = self.file("secret.ptx", PTX, 0)
            self.ctl("pass", "test", secret, status=PERMISSION, errors=f"{secret}: Permission denied")
        self.ctl("pass", "test", self.folder, status=ERROR, errors=f"{self.folder}: not a file of at most 256 MiB")
        bad = self.file("bad.ptx", "no PTX")
        self.ctl("pass", "test", bad, status=ERROR, errors=None)
        empty = self.file("empty.ptx", PTX.split(".visible")[0])
        self.ctl("pass", "test", empty, status=ERROR, errors=f"{empty}: it has no kernel")
        self.assertTrue(self.ctl("pass", "--help").startswith("Usage: gpuprobectl pass list"))
        self.assertTrue(self.ctl("pass", "test", "--help").startswith("Usage: gpuprobectl pass list"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=1)
