#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test-gputrace.py GPUTRACE COMPLETION: the command line without a daemon: lists, help, what -v shows, completion."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

GPUTRACE, COMPLETION = map(os.path.abspath, sys.argv[1:3])
TOOLS = {"allocs", "coalesce", "kernels", "kernlat", "launchlat", "nans"}


def gputrace(*arguments):
    done = subprocess.run([GPUTRACE, *arguments], capture_output=True, text=True, timeout=30, check=False)
    return done.returncode, done.stdout, done.stderr


class Command(unittest.TestCase):
    def test_lists(self):
        status, out, _ = gputrace("-l")
        self.assertEqual(status, 0)
        self.assertLessEqual(TOOLS, set(re.findall(r"^  (\w+)", out.split("\nTools:\n")[1], re.M)))
        self.assertEqual(gputrace("-l", "driver:cuMemAlloc_v2"), (0, "driver:cuMemAlloc_v2\n", ""))
        self.assertEqual(gputrace("-v", "-l", "driver:cuMemAlloc_v2")[1], "driver:cuMemAlloc_v2\n    CUdeviceptr * args.dptr\n    size_t args.bytesize\n")
        self.assertIn("driver:cuModuleLoadData\n", gputrace("-l", "module:load")[1])
        self.assertEqual(gputrace("-l", "idle:"), (0, "idle:\n    a kernel begins on a GPU that had none of the process before\n", ""))
        self.assertEqual(
            gputrace("-l", "thread:*gemm*"),
            (2, "", "gputrace: -l thread:*gemm*: kernels are seen when they are launched: -p PID -d SECONDS, or -- CMD; see gputrace --help\n"),
        )
        self.assertEqual(gputrace("-l", "thrad:*")[::2], (1, "gputrace: -l:1:1: there is no probe thrad:; did you mean thread?\n"))
        self.assertEqual(gputrace("-l", "driver:cuMemAloc")[0], 1)

    def test_cost(self):
        status, out, err = gputrace("--dry-run", "-v", "-e", "thread:f { @ = count(); } launch:f { @l = count(); }")
        self.assertEqual((status, out), (0, ""))
        self.assertRegex(err, r"\Akprobe/f: at most \d+ instructions an event, with 2 lookups and 0 changes of maps, 1 atomics, 0 helpers\n     0: r6 = r1\n")
        self.assertEqual(gputrace("--dry-run", "-v", "-e", "launch:f { @l = count(); }"), (0, "", ""))

    def test_usage(self):
        for arguments, said in (
            (["kernels", "more"], "more: a command stands behind --, as in -- more"),
            (["kernels", "--rate", "0"], "--rate: 0 is not a number from 1 up"),
            (["-e", "BEGIN { }", "kernels"], "kernels: a command stands behind --"),
        ):
            status, _, err = gputrace(*arguments)
            self.assertEqual(status, 2, arguments)
            self.assertIn(said, err)
        self.assertTrue(gputrace("-h", "kernels")[1].startswith("Usage: gputrace kernels "))
        self.assertTrue(gputrace("--help")[1].startswith("Usage: gputrace [OPTION]"))
        self.assertTrue(gputrace("/nonexistent", "-h")[1].startswith("Usage: gputrace [OPTION]"))


class Completion(unittest.TestCase):
    def setUp(self):
        self.bash = shutil.which("bash")
        if not self.bash:
            self.skipTest("no bash")
        self.folder = tempfile.TemporaryDirectory()
        for name in ("mine.gt", "other.txt"):
            with open(os.path.join(self.folder.name, name), "w"):
                pass

    def tearDown(self):
        self.folder.cleanup()

    def offered(self, *words):
        quoted = " ".join("'" + word + "'" for word in ("gputrace", *words))
        code = f'PATH={os.path.dirname(GPUTRACE)}:$PATH; . "{COMPLETION}"; COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _gputrace; printf "%s\\n" "${{COMPREPLY[@]}}"'
        return set(subprocess.run([self.bash, "-c", code], capture_output=True, check=True, cwd=self.folder.name).stdout.decode().split())

    def test_words(self):
        self.assertEqual(self.offered(""), TOOLS | {"mine.gt"})
        self.assertEqual(self.offered("kern"), {"kernels", "kernlat"})
        self.assertEqual(self.offered("kernels", ""), set())
        self.assertEqual(self.offered("-e", "launch:* { }", ""), set())
        self.assertEqual(self.offered("--format", ""), {"text", "json"})
        self.assertEqual(self.offered("--format", "=", "j"), {"json"})
        self.assertEqual(self.offered("-l", "th"), {"thread:"})
        self.assertEqual(self.offered("-l", "mem"), {"mem:", "mem.thread:"})
        self.assertIn(str(os.getpid()), self.offered("-p", str(os.getpid())))
        self.assertIn("bash", self.offered("kernels", "--", "bas"))
        self.assertEqual(self.offered("kernels", "--", "ls", "-"), set(), "arguments of CMD are its own")

    def test_options(self):
        """What --help tells is what is offered."""
        told = set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", gputrace("--help")[1], re.M))
        self.assertEqual({word for word in self.offered("--") if word != "--"}, told)
        self.assertGreater(len(told), 12)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
