#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test-export.py GPUPROBECTL FAKE_DAEMON: map export, unexport, exports, metrics, attach --export, against the fake daemon."""

import json
import struct
import subprocess
import sys
import unittest

from fake_daemon import CTL, FakeDaemonCase

OK, ERROR, USAGE, NOT_FOUND = 0, 1, 2, 5
HEADER = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 1, 247, 1, 0, 0, 0, 0, 64, 0, 0, 64, 0, 0)


class Case(FakeDaemonCase):
    def ctl(self, *args, status=OK, stderr=""):
        done = subprocess.run([CTL, "--socket", self.socket, *args], capture_output=True, timeout=60)
        self.assertEqual(done.stderr.decode(), stderr and f"gpuprobectl: {stderr}\n")
        self.assertEqual(done.returncode, status)
        return done.stdout.decode()

    def test_export(self):
        self.assertEqual(self.ctl("map", "export", "m"), "a\nb\n")
        asked = json.loads(
            self.ctl(
                "--json",
                "map",
                "export",
                "m",
                "--as=n",
                "--help-text",
                "what it is",
                "--type=histogram",
                "--unit=bytes",
                "--label=a=1",
                "--label",
                "b=x=y",
                "--bucket=log2",
                "--sm",
                "--merge=latest",
                "--nonzero",
            )
        )
        self.assertEqual(
            asked,
            {
                "map": 1,
                "map_name": "m",
                "object": 1,
                "owner": 0,
                "name": "n",
                "kind": "histogram",
                "help": "what it is",
                "unit": "bytes",
                "labels": {"a": "1", "b": "x=y"},
                "per_sm": True,
                "merge": "latest",
                "nonzero": True,
                "bucket": "log2",
                "families": ["a", "b"],
            },
        )
        plain = json.loads(self.ctl("--json", "map", "export", "m"))
        self.assertEqual((plain["name"], plain["kind"], plain["per_sm"], plain["labels"]), ("-", "auto", False, {}))

    def test_wrong(self):
        self.ctl("map", "export", status=USAGE, stderr="map export: which map?; see gpuprobectl map export --help")
        self.ctl("map", "export", "a", "b", status=USAGE, stderr="map export takes one map, but got b too; see gpuprobectl map export --help")
        self.ctl(
            "map",
            "export",
            "a",
            "--type=summary",
            status=USAGE,
            stderr="--type: summary is none of counter, gauge and histogram; see gpuprobectl map export --help",
        )
        self.ctl("map", "export", "a", "--label=x", status=USAGE, stderr="--label: x is not NAME=TEXT; see gpuprobectl map export --help")
        self.ctl("map", "export", "a", "--label==x", status=USAGE, stderr="--label: =x is not NAME=TEXT; see gpuprobectl map export --help")
        self.ctl("map", "export", "none", status=NOT_FOUND, stderr="there is no map none; gpuprobectl map list shows them")
        self.ctl("map", "export", "ring", status=ERROR, stderr="ring: it is a ring")
        for parameter, option in {
            "name": "as",
            "help": "help-text",
            "kind": "type",
            "labels": "label",
            "per_sm": "sm",
            "unit": "unit",
            "bucket": "bucket",
        }.items():
            self.ctl("map", "export", f"wrong-{parameter}", status=USAGE, stderr=f"--{option}: no")
        self.ctl("map", "unexport", status=USAGE, stderr="map unexport: which map?; see gpuprobectl map unexport --help")
        self.ctl("map", "exports", "x", status=USAGE, stderr="map exports takes no argument, but got x; see gpuprobectl map exports --help")
        self.ctl("metrics", "x", status=USAGE, stderr="metrics takes no argument, but got x; see gpuprobectl metrics --help")

    def test_unexport(self):
        self.assertEqual(self.ctl("map", "unexport", "a", "b"), "")
        self.assertEqual(json.loads(self.ctl("--json", "map", "unexport", "a", "2")), {"unexported": ["a", "2"]})
        self.assertEqual(
            json.loads(self.ctl("--json", "map", "unexport", "none", "b", status=NOT_FOUND, stderr="there is no map none; gpuprobectl map list shows them")),
            {"unexported": ["b"]},
        )
        self.ctl("map", "unexport", "none", "b", status=NOT_FOUND, stderr="there is no map none; gpuprobectl map list shows them")
        self.ctl("map", "unexport", "quiet", status=NOT_FOUND, stderr="the map quiet is not exported; gpuprobectl map exports shows which are")

    def test_list(self):
        self.assertEqual(self.ctl("map", "exports").split("\n")[0].split(), ["MAP", "NAME", "TYPE", "OWNER", "METRICS"])
        self.assertIn("a and 1 more", self.ctl("map", "exports"))
        self.assertEqual(json.loads(self.ctl("--json", "map", "exports"))["exports"][0]["families"], ["a", "b"])

    def test_metrics(self):
        self.assertEqual(self.ctl("metrics"), "a 1\n# EOF\n")
        self.assertEqual(self.ctl("metrics", "--prometheus"), "a 1\n")
        self.assertEqual(json.loads(self.ctl("--json", "metrics")), {"text": "a 1\n# EOF\n"})

    def test_attach(self):
        path = self.dir / "prog.o"
        path.write_bytes(HEADER)
        self.ctl("attach", str(path), "--export=m", status=NOT_FOUND, stderr="--export: the object has no map m")
        self.assertEqual(json.loads(self.ctl("--json", "list")), {"attachments": []})
        self.ctl("attach", str(path), *["--export=m"] * 17, status=USAGE, stderr="--export: at most 16 maps; see gpuprobectl attach --help")


unittest.main(argv=sys.argv[:1])
