#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test-cache.py GPUPROBECTL FAKE_DAEMON: cache, cache list, cache clear."""

import json
import os
import subprocess
import sys
import unittest

from fake_daemon import CTL, FakeDaemonCase

OK, ERROR, USAGE = range(3)


class Cache(FakeDaemonCase):
    def ctl(self, *arguments, status=OK, errors=""):
        kept = {k: v for k, v in os.environ.items() if k.startswith(("ASAN", "LSAN", "UBSAN", "LD_LIBRARY"))}
        done = subprocess.run(
            [CTL, "--socket", self.socket, "cache", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TZ": "UTC", **kept},
        )
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertEqual(done.stderr, errors and f"gpuprobectl: {errors}\n")
        return done.stdout

    def test_status(self):
        shown = self.ctl()
        self.assertEqual(
            shown.splitlines(),
            [
                "folder: /var/?cache",
                "entries: 2, 1.5 MiB of 1.0 GiB",
                "since the start:",
                "  hits: 10",
                "  misses: 11",
                "  written: 13",
                "  gone to make room: 16",
                "  not written, too much at once: 14",
                "  damaged, and removed: 12",
                "  failures of the disk: 15 (the daemon's log says which)",
            ],
        )
        self.assertEqual(self.ctl("status"), shown)
        self.assertEqual(self.ctl("--socket", self.socket), shown)
        self.assertEqual(self.ctl("--socket", self.socket, "status"), shown)
        for arguments in (("--json",), ("status", "--json"), ("--json", "status")):
            reply = json.loads(self.ctl(*arguments))
            self.assertEqual((reply["enabled"], reply["limit"], reply["evicted"]), (True, 1 << 30, 16))

    def test_list(self):
        lines = self.ctl("list").splitlines()
        self.assertEqual(lines[0].split(), "KEY JOB UID BYTES USED NAME".split())
        self.assertEqual(lines[1].split(), "0123456789abcdef image 1000 8192 2023-11-14 22:13:20 f(?int)".split())
        self.assertEqual(lines[2].split(), "fedcba9876543210 link 0 4096 2020-09-13 12:26:40".split())
        self.assertEqual(lines[3:], ["3 more"])
        self.assertEqual(json.loads(self.ctl("list", "--json"))["total"], 5)

    def test_clear(self):
        self.assertEqual(self.ctl("clear"), "2 entries removed, 500 bytes\n")
        self.assertTrue(self.ctl().startswith("no cache: "))
        self.ctl("clear", status=ERROR, errors="this daemon has no cache")
        self.ctl("list", status=ERROR, errors="this daemon has no cache")

    def test_wrong(self):
        self.ctl("dump", status=USAGE, errors="cache has no command dump; see gpuprobectl cache --help")
        self.ctl("clear", "all", status=USAGE, errors="cache clear takes no argument, but got all; see gpuprobectl cache clear --help")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
