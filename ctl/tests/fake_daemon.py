# SPDX-License-Identifier: Apache-2.0
"""What tests of gpuprobectl against the fake daemon share. Their first two arguments are GPUPROBECTL and FAKE_DAEMON."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

CTL, DAEMON = (os.path.abspath(path) for path in sys.argv[1:3])


class FakeDaemonCase(unittest.TestCase):
    """self.daemon listens at self.socket in self.dir, a folder that goes with the test."""

    def daemon_environment(self):
        """Of the fake daemon; None: ours."""
        return None

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="test-gpuprobectl-"))
        self.addCleanup(shutil.rmtree, self.dir)
        self.socket = str(self.dir / "socket")
        self.start_daemon()
        self.addCleanup(self.stop)

    def start_daemon(self, **variables):
        """Also another one, behind stop()."""
        self.daemon = subprocess.Popen([DAEMON, self.socket], stdout=subprocess.PIPE, env={**(self.daemon_environment() or os.environ), **variables})
        self.assertEqual(self.daemon.stdout.readline(), b"ready\n")

    def stop(self):
        self.daemon.kill()
        self.daemon.wait()
        self.daemon.stdout.close()

    def process_with(self, *libraries):
        """A process that has mapped files of these names."""
        paths = [self.dir / name for name in libraries]
        for path in paths:
            path.write_bytes(b"a library")
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "import mmap, sys\n"
                "files = [open(path) for path in sys.argv[1:]]\n"
                "maps = [mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) for file in files]\nprint(flush=True)\nsys.stdin.read()",
                *paths,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.addCleanup(process.communicate)
        process.stdout.readline()
        return str(process.pid)
