#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test-units.py SERVICE SOURCE TMPFILES PAGE: what systemd says of the units, and what they and the catalog must have in common with the sources.
Needs systemd-analyze and journalctl 250 or later."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SERVICE, SOURCE, TMPFILES, PAGE = (os.path.abspath(path) for path in sys.argv[1:5])
UNITS = os.path.join(SOURCE, "systemd")
EXPOSURE_MAX = 2.0


def read(*path):
    with open(os.path.join(*path)) as file:
        return file.read()


def run(*command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, **more)


class Units(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """The units in a folder, and a program for ExecStart= and ExecReload=."""
        cls.folder = tempfile.mkdtemp(prefix="test-units-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        for name in "gpuprobed.socket", "gpuprobed-shim.socket":
            shutil.copy(os.path.join(UNITS, name), cls.folder)
        with open(os.path.join(cls.folder, "gpuprobed.service"), "w") as file:
            file.write(re.sub(r"^(Exec\w+)=\S+/gpuprobed\b", r"\1=/bin/true", read(SERVICE), flags=re.M))

    def verify(self, *units):
        return run("systemd-analyze", "verify", "--man=no", *(os.path.join(self.folder, unit) for unit in units))

    def test_verify(self):
        done = self.verify("gpuprobed.service", "gpuprobed.socket", "gpuprobed-shim.socket")
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_verify_drop_in(self):
        """Drop-ins are read, and what is said of a wrong one would be seen here."""
        drop_ins = os.path.join(self.folder, "gpuprobed.service.d")
        os.mkdir(drop_ins)
        self.addCleanup(shutil.rmtree, drop_ins)
        for name in "host-tracing.conf", "kernel-hooks.conf":
            shutil.copy(os.path.join(UNITS, name), drop_ins)
        self.assertEqual(self.verify("gpuprobed.service").stdout, "")
        with open(os.path.join(drop_ins, "wrong.conf"), "w") as file:
            file.write("[Service]\nPrivateDevice=yes\n")
        self.assertIn("PrivateDevice", self.verify("gpuprobed.service").stdout)

    def test_security(self):
        done = run("systemd-analyze", "security", "--offline=true", f"--threshold={int(EXPOSURE_MAX * 10)}", os.path.join(self.folder, "gpuprobed.service"))
        exposure = re.search(r"exposure level for gpuprobed\.service: ([0-9.]+)", done.stdout)
        self.assertTrue(exposure, done.stdout)
        self.assertLessEqual(float(exposure[1]), EXPOSURE_MAX, done.stdout)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_capabilities(self):
        service = read(SERVICE)
        for name in "AmbientCapabilities", "CapabilityBoundingSet":
            self.assertEqual(re.findall(f"^{name}=(.*)$", service, re.M), ["CAP_BPF CAP_PERFMON"])

    def test_comments(self):
        """Each line that restricts something has a comment above it, or above the lines that it stands with."""
        commented = False
        for line in read(SERVICE).split("[Service]")[1].split("[Install]")[0].splitlines():
            if line.startswith("#"):
                commented = not line.startswith("# ----")
            elif not line:
                commented = False
            elif line.split("=")[0] not in ("Type", "ExecStart", "Restart", "RestartSec"):
                self.assertTrue(commented or line.startswith(("Timeout", "TasksMax")), line)

    def test_paths(self):
        """Sockets lie where proto/paths.h says, under the names that the daemon expects."""
        paths = dict(re.findall(r'^#define (\w+) "(.*?)"', read(SOURCE, "proto/paths.h"), re.M))
        folder = paths["PATHS_SYSTEM_DIR"]
        for unit, listen, path, name in (
            ("gpuprobed.socket", "ListenStream", paths["PATHS_CONTROL_SOCKET"], "control"),
            ("gpuprobed-shim.socket", "ListenSequentialPacket", paths["PATHS_SHIM_SOCKET"], "shim"),
        ):
            text = read(UNITS, unit)
            self.assertIn(f"\n{listen}={folder}/{path}\n", text)
            self.assertIn(f"\nFileDescriptorName={name}\n", text)
            self.assertIn(f'"{name}"', read(SOURCE, "daemon/gpuprobed/main.c"))
        self.assertIn(f"\nRuntimeDirectory={os.path.basename(folder)}\n", read(SERVICE))
        self.assertIn(f"\nd {folder} 0755 gpuprobe gpuprobe -\n", read(TMPFILES))

    def test_preset(self):
        self.assertEqual(
            re.findall(r"^(\w+ \S+)$", read(UNITS, "gpuprobed.preset"), re.M),
            ["disable gpuprobed.service", "disable gpuprobed.socket", "disable gpuprobed-shim.socket"],
        )

    def test_user(self):
        """sysusers makes the user and the group that the service has."""
        os.makedirs(os.path.join(self.folder, "root/etc"), exist_ok=True)
        done = run("systemd-sysusers", "--root=" + os.path.join(self.folder, "root"), os.path.join(UNITS, "gpuprobed.sysusers"))
        self.assertEqual(done.returncode, 0, done.stdout)
        for name, file in ("User", "passwd"), ("Group", "group"):
            self.assertRegex(read(self.folder, "root/etc", file), "(?m)^" + re.search(f"(?m)^{name}=(.*)$", read(SERVICE))[1] + ":")

    def test_page(self):
        """tmpfiles makes the page on which nobody is interested, as large as it has to be, and leaves alone one that is there."""
        size = int(re.search(r"^#define INTEREST_PAGE_SIZE (\d+)$", read(SOURCE, "proto/interest.h"), re.M)[1])
        with open(PAGE, "rb") as file:
            self.assertEqual(file.read(), bytes(size))
        if os.geteuid():
            self.skipTest("not root")
        root = os.path.join(self.folder, "pages")
        source = re.search(r"^C /run/gpuprobe/interest 0644 gpuprobe gpuprobe - (/.*)$", read(TMPFILES), re.M)[1]
        os.makedirs(os.path.dirname(root + source))
        shutil.copy(PAGE, root + source)
        os.makedirs(root + "/etc")
        with open(root + "/etc/passwd", "w") as file:
            file.write("gpuprobe:x:77:78::/:/bin/false\n")
        with open(root + "/etc/group", "w") as file:
            file.write("gpuprobe:x:78:\n")
        for left in bytes(size), b"\1" * size:
            done = run("systemd-tmpfiles", "--root=" + root, "--create", TMPFILES)
            self.assertEqual((done.returncode, done.stdout), (0, ""))
            with open(root + "/run/gpuprobe/interest", "r+b") as file:
                status = os.fstat(file.fileno())
                self.assertEqual((status.st_mode & 0o7777, status.st_uid, status.st_gid), (0o644, 77, 78))
                self.assertEqual(file.read(), left)
                file.seek(0)
                file.write(b"\1" * size)

    def test_catalog(self):
        """Each id has its explanation, with fields that the daemon sends, and the other way round."""
        ids = dict(re.findall(r'^#define (MESSAGE_\w+) "([0-9a-f]{32})"$', read(SOURCE, "daemon/gpuprobed/base/message-id.h"), re.M))
        self.assertEqual(len(set(ids.values())), len(ids))
        text = read(UNITS, "gpuprobed.catalog")
        self.assertEqual(sorted(re.findall(r"^-- (\w+)$", text, re.M)), sorted(ids.values()))
        folder = os.path.join(SOURCE, "daemon/gpuprobed")
        sources = "".join(read(place, name) for place, _, names in os.walk(folder) for name in names if name.endswith(".c"))
        for name in ids:
            self.assertIn(name, sources)
        for field in re.findall(r"@(\w+)@", text):
            self.assertIn(f'"{field}"', sources)
        root = os.path.join(self.folder, "catalog")
        os.makedirs(root + "/usr/lib/systemd/catalog")
        os.makedirs(root + "/var/lib/systemd/catalog")
        shutil.copy(os.path.join(UNITS, "gpuprobed.catalog"), root + "/usr/lib/systemd/catalog")
        done = run("journalctl", "--update-catalog", "--root=" + root)
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertGreater(os.path.getsize(root + "/var/lib/systemd/catalog/database"), len(text))


if __name__ == "__main__":
    if not all(map(shutil.which, ("systemd-analyze", "journalctl", "systemd-sysusers", "systemd-tmpfiles"))):
        print("needs systemd-analyze, journalctl, systemd-sysusers and systemd-tmpfiles")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
