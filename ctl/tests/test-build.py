#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test-build.py GPUPROBECTL EXAMPLES: gpuprobectl build, with the clang of this machine, and without one. Exit status 77: there is no clang for BPF."""

import glob
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

CTL, EXAMPLES = (os.path.abspath(path) for path in sys.argv[1:3])
OK, ERROR, USAGE, NOT_FOUND = 0, 1, 2, 5
SEE = "; see gpuprobectl build --help"
SOURCE = '#include "gpuprobe.bpf.h"\nSEC("%s") int cuda__x(void *ctx) { return 0; }\n'


def has_clang():
    done = subprocess.run(["clang", "-target", "bpf", "-c", "-xc", "-", "-o", "/dev/null"], input=b"int x;", capture_output=True, check=False)
    return done.returncode == 0


class Build(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="test-build-"))
        self.addCleanup(shutil.rmtree, self.dir)

    def build(self, *arguments, status=OK, stderr="", **variables):
        done = subprocess.run(
            [CTL, *arguments], capture_output=True, text=True, timeout=60, check=False, cwd=self.dir, env={**os.environ, "CLANG": "", **variables}
        )
        self.assertEqual((done.returncode, done.stderr), (status, stderr and f"gpuprobectl: {stderr}\n") if stderr is not None else (status, done.stderr))
        return done.stdout if stderr is not None else done.stderr

    def source(self, text, name="x.bpf.c"):
        (self.dir / name).write_text(text)
        return name

    def test_examples(self):
        sources = sorted(glob.glob(f"{EXAMPLES}/*.bpf.c"))
        self.assertGreater(len(sources), 10)
        for source in sources:
            text = self.build("build", source)
            data = (self.dir / os.path.basename(source).replace(".c", ".o")).read_bytes()
            self.assertEqual(struct.unpack_from("<H", data, 18), (247,), source)
            self.assertIn(b".BTF", data)
            self.assertRegex(text, r"^PROGRAM +SECTION\n(\w+ +\S+\n)+$")
        reply = json.loads(self.build("--json", "build", f"{EXAMPLES}/counter.bpf.c", "-o", "other.o"))
        self.assertEqual(reply, {"object": "other.o", "programs": [{"program": "cuda__counter", "section": "kprobe/vectorAdd"}]})
        self.assertTrue((self.dir / "other.o").exists())

    def test_headers_of_linux_first(self):
        self.build("build", self.source("#include <linux/bpf.h>\n#include <linux/ptrace.h>\n" + SOURCE % "kprobe/f"))

    def test_options_of_clang(self):
        source = self.source("#ifndef WANTED\n#error no\n#endif\n" + SOURCE % "kprobe/f")
        self.build("build", source, "--", "-DWANTED=1", "-Wall")
        self.build("build", "-o", "y.o", source, status=ERROR, stderr=None)
        self.assertFalse((self.dir / "y.o").exists())
        self.build("build", self.source(SOURCE % "kprobe/f", "-x.bpf.c").replace("-", "./-", 1), "-o", "./-y.o")

    def test_wrong_sources(self):
        text = self.build("build", self.source("garbage\n"), status=ERROR, stderr=None)
        self.assertIn("x.bpf.c:1:1: error: ", text)
        self.assertTrue(text.endswith("\ngpuprobectl: x.bpf.c: clang did not compile it\n"), text)
        for section, told in (
            ("kprobe/f@block:x", "x.bpf.o: program cuda__x: kprobe/f@block:x: expected a number after block:"),
            ("memcapture/f@x", "x.bpf.o: program cuda__x: memcapture/f@x: "),
        ):
            err = self.build("build", self.source(SOURCE % section), status=ERROR, stderr=None)
            self.assertTrue(err.startswith(f"gpuprobectl: {told}") and err.count("\n") == 1, err)
        self.build("build", self.source("int x;\n"), status=ERROR, stderr='x.bpf.o: there is no program in it: SEC("kprobe/KERNEL")')
        self.assertIn("/none/x.o", self.build("build", self.source(SOURCE % "kprobe/f"), "-o", "/none/x.o", status=ERROR, stderr=None))

    def test_usage(self):
        self.build("build", status=USAGE, stderr="build: which source?" + SEE)
        self.build("build", "x.o", status=USAGE, stderr="build: x.o is no C source, as x.bpf.c is" + SEE)
        self.build("build", "a.c", "b.c", status=USAGE, stderr="build takes one source, but got b.c too" + SEE)
        self.build("build", "none.bpf.c", status=NOT_FOUND, stderr="none.bpf.c: No such file or directory")

    def test_no_clang(self):
        source = self.source(SOURCE % "kprobe/f")
        self.build(
            "build",
            source,
            PATH=str(self.dir),
            status=NOT_FOUND,
            stderr="clang, which makes eBPF of C, is not installed: apt install clang, or dnf install clang; gputrace needs none",
        )
        self.build("build", source, CLANG="/none/clang", status=NOT_FOUND, stderr="CLANG=/none/clang: there is no such program")
        os.symlink(shutil.which("clang"), self.dir / "clang-19")
        self.build("build", source, PATH=str(self.dir))


if not has_clang():
    print("SKIP: no clang for BPF")
    sys.exit(77)
unittest.main(argv=sys.argv[:1], verbosity=2)
