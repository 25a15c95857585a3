#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test-run.py GPUPROBECTL FAKE_DAEMON: gpuprobectl run, against the fake daemon and launchers that do what a test wants."""

import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

CTL, DAEMON = (os.path.abspath(path) for path in sys.argv[1:3])
OK, ERROR, USAGE, UNREACHABLE, VERIFIER, NOT_FOUND = range(6)
HEADER = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 1, 247, 1, 0, 0, 0, 0, 64, 0, 0, 64, 0, 0)
SEE = "; see gpuprobectl run --help"
LOG = 'vec?add-1234 [cuda__probe] ts=5 "x"\n'
LOST = "gpuprobectl: lost 3 records: the ring was full (attach with --ring-size)\n"
COUNTER = "counter:\n0: 18446744073709551615\n"


class Run(unittest.TestCase):
    def setUp(self):
        """gpuprobectl lies in a folder like the build folder, beside a launcher and a library to preload."""
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="test-run-"))
        self.addCleanup(shutil.rmtree, self.dir)
        for name in "ctl", "shim":
            (self.dir / name).mkdir()
        self.program = self.dir / "ctl/gpuprobectl"
        shutil.copy(CTL, self.program)
        maps = pathlib.Path("/proc/self/maps").read_text()
        self.libc = re.search(r"\S*/libc\.so\.6$", maps, re.M)[0]
        shutil.copy(self.libc, self.dir / "shim/libgpuprobe-shim.so")
        self.object = str(self.dir / "prog.o")
        pathlib.Path(self.object).write_bytes(HEADER)
        self.socket = str(self.dir / "socket")
        self.daemon = subprocess.Popen([DAEMON, self.socket], stdout=subprocess.PIPE)
        self.addCleanup(self.daemon.stdout.close)
        self.addCleanup(self.daemon.wait)
        self.addCleanup(self.daemon.kill)
        self.assertEqual(self.daemon.stdout.readline(), b"ready\n")
        self.launcher("echo 42")

    def launcher(self, script):
        path = self.dir / "ctl/gpuprobe-launch"
        path.write_text(f'#!/bin/sh\necho "$* $GPUPROBE$LD_PRELOAD" >{self.dir}/launched\n{script}\n')
        path.chmod(0o755)

    def launched(self):
        return (self.dir / "launched").read_text()

    def start(self, *args, stdout=subprocess.PIPE, **more):
        return subprocess.Popen(
            [str(self.program), "--socket", self.socket, "run", *args],
            env={**os.environ, "GPUPROBE": "off"},
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            **more,
        )

    def ctl(self, *args, status=OK, stderr=LOST):
        """Runs a program, and sees that nothing of it is left."""
        process = self.start("--program=fine", *args, self.object)
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, err), (status, stderr))
        self.assert_detached()
        return out

    def assert_detached(self):
        done = subprocess.run([CTL, "--socket", self.socket, "--json", "list"], capture_output=True, timeout=60, check=True)
        self.assertEqual(json.loads(done.stdout), {"attachments": []})

    def test_results(self):
        self.assertEqual(self.ctl(), LOG + COUNTER)
        self.assertEqual(self.launched(), f"1 1 1 1 1 1 1 0 ptx{self.dir}/ctl/../shim/libgpuprobe-shim.so\n")
        self.ctl("--grid=4,3", "--block", "8,4,2", "--count=1000000", "--device=1")
        self.assertEqual(self.launched().split()[:8], "4 3 1 8 4 2 1000000 1".split())

    def test_json(self):
        for option in "--json", "--pretty":
            text = self.ctl(option)
            self.assertEqual(text.count("\n") == 1, option == "--json", text)
            output = json.loads(text)
            self.assertEqual(output["microseconds"], 42)
            self.assertEqual([(line["program"], line["text"]) for line in output["log"]], [("cuda__probe", 'ts=5 "x"')])
            self.assertEqual([(m["map"]["name"], m["entries"]) for m in output["maps"]], [("counter", [{"key": 0, "value": 18446744073709551615}])])

    def test_usage(self):
        number = "is not a number from 1 up" + SEE
        cases = (
            (("--grid=0",), f"--grid: 0 {number}"),
            (("--block=x",), f"--block: x {number}"),
            (("--grid=1,,1",), f"--grid:  {number}"),
            (("--grid=",), f"--grid:  {number}"),
            (("--grid=1,2,3,4",), "--grid takes up to three numbers, not 1,2,3,4" + SEE),
            (("--grid=2147483648",), "--grid: 2147483648 is too many in x, at most 2147483647" + SEE),
            (("--grid=1,65536",), "--grid: 65536 is too many in y, at most 65535" + SEE),
            (("--block=1,1,65",), "--block: 65 is too many in z, at most 64" + SEE),
            (("--block=33,32",), "--block: 33,32 are more than 1024 threads" + SEE),
            (("--count=-1",), f"--count: -1 {number}"),
            (("--device=-1",), "--device: -1 is not a number from 0 up" + SEE),
            (("--device=4294967296",), "--device: there is no device 4294967296" + SEE),
            (("--threads=0",), f"--threads: 0 {number}"),
            (("--ring-size=x",), "--ring-size: x is not a size, such as 65536, 64K or 1G" + SEE),
            (("other.o",), f"run takes one object, but got {self.object} too" + SEE),
        )
        for args, text in cases:
            with self.subTest(args=args):
                self.assertEqual(self.ctl(*args, status=USAGE, stderr=f"gpuprobectl: {text}\n"), "")
        self.ctl("--grid=2147483647,65535,65535", "--block=1024")
        process = self.start()
        self.assertEqual(process.communicate(timeout=60), ("", "gpuprobectl: run: which object?" + SEE + "\n"))

    def test_refused(self):
        for program, status, text in (
            ("missing", NOT_FOUND, f"{self.object}: there is no program missing in it"),
            ("logless", VERIFIER, f"{self.object}: the verifier refused program logless: no reason"),
        ):
            process = self.start("--program", program, self.object)
            self.assertEqual((*process.communicate(timeout=60), process.returncode), ("", f"gpuprobectl: {text}\n", status))
        self.assertFalse((self.dir / "launched").exists())

    def test_no_such_section(self):
        process = self.start(self.object)
        self.assertEqual(
            (*process.communicate(timeout=60), process.returncode),
            ("", f"gpuprobectl: {self.object}: no program has the section kprobe/__directly_run: say which one with --program\n", ERROR),
        )
        self.assertFalse((self.dir / "launched").exists())
        self.assert_detached()

    def test_nothing_to_launch(self):
        for path in self.dir / "ctl/gpuprobe-launch", self.dir / "shim/libgpuprobe-shim.so":
            path.unlink()
            process = self.start("--program=fine", self.object)
            out, err = process.communicate(timeout=60)
            if process.returncode != OK:  # else one is installed
                self.assertEqual((out, process.returncode), ("", ERROR))
                self.assertRegex(err, rf"^gpuprobectl: /\S*/{path.name}: No such file or directory; is it installed\?\n$")
            self.assert_detached()
            self.setUp()

    def test_launcher_fails(self):
        self.launcher('echo "gpuprobe-launch: running the kernel: no (700)" >&2; exit 1')
        self.assertEqual(self.ctl(status=ERROR, stderr="gpuprobe-launch: running the kernel: no (700)\n"), "")
        self.launcher("kill -SEGV $$")
        self.assertEqual(self.ctl(status=ERROR, stderr="gpuprobectl: the kernel may not have run: gpuprobe-launch: Segmentation fault\n"), "")
        os.remove(self.dir / "ctl/gpuprobe-launch")
        os.mkdir(self.dir / "ctl/gpuprobe-launch")
        self.ctl(status=ERROR, stderr=f"gpuprobectl: {self.dir}/ctl/gpuprobe-launch: Permission denied\n")

    def test_not_probed(self):
        """The kernel has run, but not the program: an application would not care, we do."""
        process = self.start("--program=unprobed", self.object)
        self.assertEqual(
            (*process.communicate(timeout=60), process.returncode), ("", f"gpuprobectl: {self.object}: the program was not run: the compiler said no\n", ERROR)
        )
        self.assert_detached()

    def test_daemon_gone(self):
        """It ends while the kernel runs: said once."""
        self.launcher(f"kill {self.daemon.pid}; sleep 0.2; echo 42")
        process = self.start("--program=fine", self.object)
        out, err = process.communicate(timeout=60)
        self.assertEqual((out, process.returncode), ("", UNREACHABLE))
        self.assertRegex(err, rf"^gpuprobectl: {self.socket}: [^\n]*\n$")

    def wait_launched(self):
        end = time.monotonic() + 30
        while not (self.dir / "launched").exists():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)

    def test_interrupted(self):
        """Ctrl-C, and signals to us alone, end the kernel; nothing stays attached."""
        for number, group in (
            (signal.SIGINT, True),
            (signal.SIGINT, False),
            (signal.SIGTERM, False),
            (signal.SIGQUIT, True),
            (signal.SIGHUP, True),
            (signal.SIGHUP, False),
        ):
            self.launcher("exec sleep 100")
            process = self.start(
                "--program=fine", self.object, start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)
            )  # the test itself may run under nohup
            self.wait_launched()
            (os.killpg if group else os.kill)(process.pid, number)
            self.assertEqual(
                (*process.communicate(timeout=60), process.returncode), ("", "gpuprobectl: interrupted: the kernel may not have run to its end\n", ERROR)
            )
            self.assert_detached()
            os.remove(self.dir / "launched")

    def test_nohup(self):
        """A terminal that goes away is none of a program's business that was started so."""
        self.launcher("sleep 0.3; echo 42")
        process = self.start("--program=fine", self.object, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.wait_launched()
        process.send_signal(signal.SIGHUP)
        self.assertEqual((*process.communicate(timeout=60), process.returncode), (LOG + COUNTER, LOST, OK))
        self.assert_detached()

    def test_no_answer(self):
        """Ctrl-C also ends the wait for a daemon that does not answer."""
        self.daemon.send_signal(signal.SIGSTOP)
        process = self.start("--program=fine", self.object)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        self.assertEqual((*process.communicate(timeout=60), process.returncode), ("", "", -signal.SIGINT))
        self.daemon.send_signal(signal.SIGCONT)

    def test_no_answer_at_the_end(self):
        """Nor does one that does not answer when all is to be detached leave anything attached."""
        process = self.start("--program=clinging", self.object)
        self.assertEqual(self.daemon.stdout.readline(), b"waits\n")
        process.send_signal(signal.SIGINT)
        self.assertEqual((*process.communicate(timeout=60), process.returncode), (LOG, LOST, -signal.SIGINT))
        self.assert_detached()

    def test_reader_gone(self):
        """Whoever closes the pipe early hears nothing, and nothing stays attached."""
        self.launcher("sleep 0.3; echo 42")
        process = self.start("--program=fine", self.object)
        process.stdout.close()
        self.assertEqual((process.stderr.read(), process.wait(60)), (LOST, -signal.SIGPIPE))
        process.stderr.close()
        self.assert_detached()

    def start_stopped(self, *args):
        """With a reader of its output that reads nothing yet, for which it waits; and the pipe from which it may."""
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        with self.assertRaises(BlockingIOError):
            while True:
                os.write(writing, bytes(4096))
        os.set_blocking(writing, True)
        process = self.start("--program=fine", *args, self.object, stdout=writing)
        os.close(writing)
        end = time.monotonic() + 30
        while not pathlib.Path(f"/proc/{process.pid}/syscall").read_text().startswith("1 0x1 "):  # write(1, ...)
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        return process, open(reading, "rb")

    def test_interrupted_printing(self):
        """What is printed is whole, and it is said that it is not all."""
        for args in (), ("--json",):
            process, reading = self.start_stopped(*args)
            process.send_signal(signal.SIGINT)
            with reading:
                out = reading.read().lstrip(b"\0").decode()
            self.assertEqual((process.stderr.read(), process.wait(60)), ("gpuprobectl: interrupted: not all of the log and the maps is printed\n", ERROR))
            process.stderr.close()
            if args:
                self.assertEqual(json.loads(out)["maps"], [])
            else:
                self.assertEqual(out, LOG)
            self.assert_detached()

    def test_reader_stopped(self):
        """Where nobody reads our output, a signal ends us, and nothing stays attached."""
        process, reading = self.start_stopped()
        self.addCleanup(reading.close)
        process.send_signal(signal.SIGTERM)
        self.assertEqual((process.stderr.read(), process.wait(60)), ("", -signal.SIGTERM))
        process.stderr.close()
        self.assert_detached()

    def test_full_disk(self):
        """Output that cannot be written is an error, and nothing stays attached."""
        self.launcher("echo 42")
        with open("/dev/full", "w") as full:
            process = self.start("--program=fine", self.object, stdout=full)
        self.assertEqual((process.stderr.read(), process.wait(60)), ("gpuprobectl: cannot write the output: No space left on device\n", ERROR))
        process.stderr.close()
        self.assert_detached()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
