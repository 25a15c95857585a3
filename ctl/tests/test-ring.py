#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test-ring.py GPUPROBECTL FAKE_DAEMON: ring read and log, against the fake daemon."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
import unittest

from fake_daemon import CTL, FakeDaemonCase

OK, ERROR, USAGE, NOT_FOUND = 0, 1, 2, 5
LOST = "gpuprobectl: lost %d records: the ring was full (attach with --ring-size)\n"
EVENT = '{.a = 1, .b = -2, .name = "a", .color = GREEN, .low = 0, .high = 0, .list = [7, 8], .u = 1069547520, .f = 1.5, .flag = true}'


class Case(FakeDaemonCase):
    def ctl(self, *args, status=OK, stderr=""):
        done = subprocess.run([CTL, "--socket", self.socket, *args], capture_output=True, timeout=60)
        self.assertEqual(done.stderr.decode(), stderr)
        self.assertEqual(done.returncode, status)
        return done.stdout.decode()

    def follow(self, *args, lines, stop=signal.SIGINT):
        """Reads so many lines, interrupts, and returns the lines, the status, what is left of stdout, and stderr."""
        process = subprocess.Popen([CTL, "--socket", self.socket, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        read = [process.stdout.readline().decode() for _ in range(lines)]
        process.send_signal(stop)
        rest, err = process.communicate(timeout=60)
        return read, process.returncode, rest.decode(), err.decode()


class Ring(Case):
    def test_typed(self):
        self.assertEqual(self.ctl("ring", "read", "events"), f"77 sm 5 lane 0: {EVENT}\n77 sm 5 lane 1: {EVENT}\n")

    def test_json(self):
        first = json.loads(self.ctl("ring", "read", "--json", "events").splitlines()[0])
        self.assertEqual(
            first,
            {
                "pid": 77,
                "sm": 5,
                "lane": 0,
                "record": {"a": 1, "b": -2, "name": "a", "color": "GREEN", "low": 0, "high": 0, "list": [7, 8], "u": 1069547520, "f": 1.5, "flag": True},
            },
        )
        pretty = self.ctl("ring", "read", "--pretty", "plain")
        self.assertEqual(json.loads(pretty), {"pid": 77, "sm": 5, "lane": 0, "record": "0100000000"})
        self.assertGreater(pretty.count("\n"), 4)

    def test_sizes(self):
        """Records that are not of the type are hexadecimal, unless the user says that they begin with it."""
        lines = self.ctl("ring", "read", "mixed").splitlines()
        self.assertEqual(lines[0], "77 sm 5 lane 0: 01000000")
        self.assertEqual(lines[1], f"77 sm 5 lane 1: {EVENT}")
        self.assertRegex(lines[2], "^77 sm 5 lane 2: 01[0-9a-f]{190}$")
        lines = self.ctl("ring", "read", "--type=event", "mixed").splitlines()
        self.assertEqual(lines[0], "77 sm 5 lane 0: 01000000")
        self.assertEqual(lines[2], f"77 sm 5 lane 2: {EVENT}")
        self.assertRegex(self.ctl("ring", "read", "--raw", "events").splitlines()[0], "^77 sm 5 lane 0: 01[0-9a-f]{94}$")

    def test_types(self):
        """Records that were taken out of the ring are shown, whatever --type says: nobody else gets them."""
        missing = "gpuprobectl: --type: the object has no struct %s: records are shown as the map's values\n"
        self.assertEqual(
            self.ctl("ring", "read", "--type=nothing", "events", status=NOT_FOUND, stderr=missing % "nothing"),
            f"77 sm 5 lane 0: {EVENT}\n77 sm 5 lane 1: {EVENT}\n",
        )
        self.assertEqual(self.ctl("ring", "read", "--type=event", "plain", status=NOT_FOUND, stderr=missing % "event"), "77 sm 5 lane 0: 0100000000\n")
        self.assertEqual(self.ctl("ring", "read", "plain"), "77 sm 5 lane 0: 0100000000\n")

    def test_no_type(self):
        """Bytes at a terminal come with what makes a struct of them."""
        for name, told in ("plain", 1), ("events", 0):
            leader, follower = pty.openpty()
            done = subprocess.run([CTL, "--socket", self.socket, "ring", "read", name], stdout=follower, stderr=subprocess.PIPE, timeout=60, check=True)
            os.close(follower)
            os.close(leader)
            self.assertEqual(done.stderr.count(b"--type=STRUCT"), told)

    def test_lost(self):
        """Told once, at the end."""
        self.assertEqual(self.ctl("ring", "read", "losing", stderr=LOST % 5), "77 sm 5 lane 0: 01000000\n")
        self.assertEqual(self.ctl("ring", "read", "empty"), "")

    def test_follow(self):
        for stop in signal.SIGINT, signal.SIGTERM:
            self.assertEqual(self.follow("ring", "read", "-f", "losing", lines=1, stop=stop), (["77 sm 5 lane 0: 01000000\n"], OK, "", LOST % 2))
        lines, status, rest, err = self.follow("ring", "read", "--follow", "--json", "large", lines=5000)
        self.assertEqual((status, err), (OK, ""))
        self.assertEqual(json.loads(lines[4999])["record"], (4999).to_bytes(4, "little").hex())
        self.assertTrue(not rest or rest.endswith("\n"))

    def test_follow_tells(self):
        """It does not wait for the end to tell what was lost."""
        process = subprocess.Popen([CTL, "--socket", self.socket, "ring", "read", "-f", "losing"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.assertEqual(process.stderr.readline().decode(), LOST % 2)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.communicate(timeout=60)[1], b"")
        self.assertEqual(process.returncode, OK)

    def test_lost_less(self):
        """What was lost in rings that are there no more, or as another daemon says, is told no second time."""
        process = subprocess.Popen([CTL, "--socket", self.socket, "ring", "read", "-f", "falling"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.readline()
        self.assertEqual(process.stderr.readline().decode(), LOST % 2)
        self.stop()
        self.start_daemon(FAKE_LOST="0")
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        told = process.communicate(timeout=60)[1].decode().splitlines()  # one that dies may still be connected to, and is told again
        self.assertEqual(set(told), {"gpuprobectl: the daemon went away; waiting for the next"})
        self.assertEqual(process.returncode, OK)

    def test_count(self):
        self.assertEqual(len(self.ctl("ring", "read", "-n", "1", "events").splitlines()), 1)
        self.assertEqual(len(self.ctl("ring", "read", "-f", "-n", "2", "events").splitlines()), 2)
        self.assertEqual(len(self.ctl("ring", "read", "--count=5", "events").splitlines()), 2)
        lines = self.ctl("ring", "read", "-n2500", "large").splitlines()
        self.assertEqual((len(lines), lines[-1]), (2500, "77 sm 5 lane 0: " + (2499).to_bytes(4, "little").hex()))

    def test_all(self):
        lines = self.ctl("ring", "read", "large").splitlines()
        self.assertEqual([bytes.fromhex(line.split()[-1]) for line in lines], [i.to_bytes(4, "little") for i in range(100000)])

    def test_full_disk(self):
        """What cannot be written is not taken out any more."""
        for args in (("ring", "read", "large", "-f"), ("ring", "read", "large"), ("log", "-f")):
            with self.subTest(args=args), open("/dev/full", "wb") as full:
                done = subprocess.run([CTL, "--socket", self.socket, *args], stdout=full, stderr=subprocess.PIPE, timeout=30)
                self.assertEqual((done.returncode, done.stderr.decode()), (ERROR, "gpuprobectl: cannot write the output: No space left on device\n"))

    def test_stuck(self):
        """A reader of its output that has stopped to read keeps nobody from ending it."""
        for stop in signal.SIGTERM, signal.SIGINT:
            process = subprocess.Popen([CTL, "--socket", self.socket, "ring", "read", "large", "-f"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            process.stdout.readline()
            time.sleep(0.5)  # the pipe is full
            process.send_signal(stop)
            self.assertEqual(process.wait(30), -stop)
            process.communicate()

    def test_errors(self):
        self.ctl("ring", "read", "nothing", status=NOT_FOUND, stderr="gpuprobectl: there is no map nothing; gpuprobectl map list shows them\n")
        self.assertEqual(
            self.ctl("ring", "read", "detached", status=NOT_FOUND, stderr="gpuprobectl: the map detached was detached meanwhile\n"),
            "77 sm 5 lane 0: 01000000\n",
        )
        self.ctl("ring", "read", "busy", status=ERROR, stderr="gpuprobectl: process 77 reads it already\n")
        self.ctl("ring", "read", "garbage", status=ERROR, stderr="gpuprobectl: the daemon sent records that are not base64\n")
        for name in "unsent", "short":
            self.ctl("ring", "read", name, status=ERROR, stderr="gpuprobectl: the daemon sent no memory for records that can be used\n")
        for name in "cut", "torn", "lanes", "beyond", "nowhere":
            self.ctl("ring", "read", name, status=ERROR, stderr="gpuprobectl: the daemon sent records that make no sense\n")
        for args, text in (
            (("ring",), "ring: read?"),
            (("ring", "x"), "ring has no command x"),
            (("ring", "read"), "ring read: which map?"),
            (("ring", "read", "a", "b"), "ring read takes one map, but got b too"),
            (("ring", "read", "-n", "0", "a"), "--count: 0 is not a number from 1 up"),
            (("ring", "read", "--raw", "--type=x", "a"), "ring read takes --raw or --type, not both"),
        ):
            self.ctl(*args, status=USAGE, stderr=f"gpuprobectl: {text}; see gpuprobectl {'ring read' if 'read' in args else 'ring'} --help\n")


class Log(Case):
    def test_lines(self):
        self.assertEqual(self.ctl("log", stderr=LOST % 3), 'vec?add-1234 [cuda__probe] ts=5 "x"\n')
        self.assertEqual(
            json.loads(self.ctl("log", "--json", "--object=1", stderr=LOST % 3)),
            {"pid": 1234, "comm": "vec\x1badd", "time": 1700000000000000001, "program": "cuda__probe", "text": 'ts=5 "x"'},
        )

    def test_follow(self):
        self.assertEqual(self.follow("log", "-f", lines=1), (['vec?add-1234 [cuda__probe] ts=5 "x"\n'], OK, "", ""))

    def test_errors(self):
        self.ctl("log", "--object", "9", status=NOT_FOUND, stderr="gpuprobectl: there is no object 9; gpuprobectl list shows them\n")
        see = "; see gpuprobectl log --help\n"
        self.ctl("log", "x", status=USAGE, stderr="gpuprobectl: log takes no argument, but got x" + see)
        self.ctl("log", "--object=x", status=USAGE, stderr="gpuprobectl: --object: x is not a number from 1 up" + see)

    def test_help(self):
        self.assertTrue(self.ctl("log", "--help").startswith("Usage: gpuprobectl log "))
        for args in ("ring", "--help"), ("ring", "read", "--help"):
            self.assertTrue(self.ctl(*args).startswith("Usage: gpuprobectl ring read "))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
