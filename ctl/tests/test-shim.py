#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test-shim.py GPUPROBECTL SHIM: shim enable, disable and status, in a root folder of its own and, in a mount namespace, for all programs of the system.
Needs root and a mount namespace."""

import ctypes
import errno
import json
import os
import random
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import time
import unittest

CTL, SHIM = (os.path.abspath(path) for path in sys.argv[1:3])
OK, ERROR, USAGE, UNREACHABLE, VERIFIER, NOT_FOUND, PERMISSION = range(7)
NAME = "libgpuprobe-shim.so"
LIBRARY = "/usr/lib/gpuprobe/" + NAME
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 1 << 18
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}


def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)


class Case(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="test-shim-", dir="/var/tmp")
        self.addCleanup(shutil.rmtree, self.root)
        os.chmod(self.root, 0o755)
        self.file = self.at("/etc/ld.so.preload")
        os.makedirs(self.at("/etc"), 0o755)
        os.makedirs(os.path.dirname(self.at(LIBRARY)), 0o755)
        shutil.copyfile(SHIM, self.at(LIBRARY))
        os.chmod(self.at(LIBRARY), 0o644)

    def at(self, path):
        return self.root + path

    def write(self, text, mode=0o644):
        with open(self.file, "wb") as file:
            file.write(text)
        os.chmod(self.file, mode)

    def read(self):
        """The file, or None, and nothing else may be beside it."""
        self.assertLessEqual(set(os.listdir(self.at("/etc"))), {"ld.so.preload", "link"})
        return self.text()

    def text(self):
        try:
            with open(self.file, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def run_ctl(self, *arguments, status=OK, error="", before=(), program=CTL, **more):
        done = subprocess.run([*before, program, "shim", *arguments], capture_output=True, text=True, timeout=120, env=ENVIRONMENT, **more)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertEqual(done.stderr, error and f"gpuprobectl: {error}\n")
        return done.stdout

    def ctl(self, verb, *arguments, **more):
        return self.run_ctl(verb, "--root", self.root, *arguments, **more)

    def enable(self, **more):
        return self.ctl("enable", LIBRARY, **more)

    def status(self, **more):
        return json.loads(self.ctl("status", "--json", **more))


class Edit(Case):
    def test_new_file(self):
        self.assertFalse(self.status()["enabled"])
        self.assertEqual(self.enable(), f"{LIBRARY} is in {self.file}: programs that start from now on have it\n")
        self.assertEqual(self.read(), LIBRARY.encode() + b"\n")
        before = os.stat(self.file)
        self.assertEqual((stat.S_IMODE(before.st_mode), before.st_uid, before.st_gid), (0o644, 0, 0))
        self.assertEqual(self.enable(), f"{LIBRARY} is in {self.file} already\n")
        self.assertEqual(os.stat(self.file), before)
        status = self.status()
        self.assertEqual(status["libraries"], [{"path": LIBRARY, "sound": True, "reason": None}])
        self.assertEqual((status["enabled"], status["file"], status["others"]), (True, self.file, []))
        self.assertEqual(self.ctl("disable"), f"{NAME} is out of {self.file}; the file, which had nothing else in it, is gone\n")
        self.assertIsNone(self.read())
        self.assertEqual(self.ctl("disable"), f"{NAME} is not in {self.file}\n")
        self.assertIsNone(self.read())

    def test_json(self):
        said = {"enabled": True, "file": self.file, "library": LIBRARY}
        self.assertEqual(json.loads(self.enable_json()), {"changed": True, **said})
        self.assertEqual(json.loads(self.enable_json()), {"changed": False, **said})
        said = {"enabled": False, "file": self.file, "library": None}
        self.assertEqual(json.loads(self.ctl("disable", "--json")), {"changed": True, **said})
        self.assertEqual(json.loads(self.ctl("disable", "--json")), {"changed": False, **said})

    def enable_json(self):
        return self.ctl("enable", "--json", LIBRARY)

    def test_text(self):
        """What was there, and is there after enable and after disable: None is no file."""
        us = LIBRARY.encode()
        for before, enabled, disabled in (
            (b"", us + b"\n", None),
            (b"\n \n", b"\n \n" + us + b"\n", None),
            (b"/a.so\n", b"/a.so\n" + us + b"\n", b"/a.so\n"),
            (b"/a.so", b"/a.so\n" + us + b"\n", b"/a.so\n"),
            (b"# x\n", b"# x\n" + us + b"\n", b"# x\n"),
            (b"# " + us, b"# " + us + b"\n" + us + b"\n", b"# " + us + b"\n"),
            (b"/a.so\n/old/" + NAME.encode() + b"\n/b.so\n", b"/a.so\n" + us + b"\n/b.so\n", b"/a.so\n/b.so\n"),
            (b"/a.so " + NAME.encode() + b":/b.so\n", b"/a.so " + us + b":/b.so\n", b"/a.so /b.so\n"),
            (b"/x/" + NAME.encode() + b"\t/a.so\n", us + b"\t/a.so\n", b"/a.so\n"),
            (b"/a.so\t/x/" + NAME.encode() + b" \n/b.so", b"/a.so\t" + us + b" \n/b.so", b"/a.so\n/b.so"),
            (us + b"#c\n", us + b"#c\n", b"#c\n"),
            (b"/a.so#" + us + b"\n", b"/a.so#" + us + b"\n" + us + b"\n", b"/a.so#" + us + b"\n"),
            (us + b"\n" + us + b"\n/x/" + NAME.encode() + b"\n/a.so\n", us + b"\n/a.so\n", b"/a.so\n"),
            (us + b" /y/" + NAME.encode() + b"\n", us + b"\n", None),
            (b"# x\n# " + us + b" is off\n", b"# x\n# is off\n" + us + b"\n", b"# x\n# is off\n"),
            (b"# x\n#" + us, b"# x\n#\n" + us + b"\n", b"# x\n#\n"),
            (us + b" # " + us + b"\n# x " + us + b"#" + us + b"\n", us + b" # " + us + b"\n# x #\n", b"# " + us + b"\n# x #\n"),
            (b"/lib/my" + NAME.encode() + b"\n", b"/lib/my" + NAME.encode() + b"\n" + us + b"\n", b"/lib/my" + NAME.encode() + b"\n"),
            (b"/a\0b.so\n\xff\n", b"/a\0b.so\n\xff\n" + us + b"\n", b"/a\0b.so\n\xff\n"),
        ):
            with self.subTest(before=before):
                self.write(before)
                self.enable()
                self.assertEqual(self.read(), enabled)
                self.ctl("disable")
                self.assertEqual(self.read(), disabled)

    @staticmethod
    def libraries(text):
        """What ld.so would load, less what is ours."""
        lines = (line.split(b"#")[0] for line in text.split(b"\n"))
        words = (word for line in lines for word in line.replace(b"\t", b" ").replace(b":", b" ").split(b" "))
        return [word for word in words if word and word.split(b"/")[-1] != NAME.encode()]

    def test_any_text(self):
        """Whatever is in the file, the other libraries are those that they were, in their order, and ours are gone."""
        parts = [b"/a.so", b"/b.so", b"/x/" + NAME.encode(), NAME.encode(), b" ", b"\n", b"\n", b":", b"\t", b"#", b"#c\n", b"\0"]
        chance = random.Random(1)
        for _ in range(200):
            before = b"".join(chance.choices(parts, k=chance.randrange(14)))
            self.write(before)
            self.ctl("disable")
            after = self.read() or b""
            with self.subTest(before=before, after=after):
                self.assertEqual(self.libraries(after), self.libraries(before))
                self.assertEqual(after.count(b"#"), before.count(b"#"))
                self.assertFalse(self.status()["enabled"])

    def test_attributes(self):
        self.write(b"/a.so\n", 0o640)
        os.chown(self.file, 0, 1)
        os.setxattr(self.file, "trusted.gpuprobe", b"label")
        for verb in self.enable, lambda: self.ctl("disable"):
            verb()
            status = os.stat(self.file)
            self.assertEqual((stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid), (0o640, 0, 1))
            self.assertEqual(os.getxattr(self.file, "trusted.gpuprobe"), b"label")

    def test_umask(self):
        self.enable(umask=0o077)
        self.assertEqual(stat.S_IMODE(os.stat(self.file).st_mode), 0o644)

    def test_link(self):
        """Links are followed, in the root alone; what they name is replaced, not the link, and not removed."""
        os.mkdir(self.at("/other"), 0o755)
        for target in "/other/preload", "../other/preload", "../../../../other/preload":
            with self.subTest(target=target):
                os.symlink(target, self.file)
                with open(self.at("/other/preload"), "w"):
                    pass
                self.enable()
                self.assertTrue(os.path.islink(self.file))
                with open(self.at("/other/preload")) as file:
                    self.assertEqual(file.read(), LIBRARY + "\n")
                self.ctl("disable")
                self.assertTrue(os.path.islink(self.file))
                self.assertEqual(os.path.getsize(self.at("/other/preload")), 0)
                self.assertEqual(os.listdir(self.at("/other")), ["preload"])
                os.unlink(self.at("/other/preload"))
                for verb in "disable", "status":
                    self.ctl(verb, status=ERROR, error=f"{self.file}: is a link that leads nowhere; remove it or make what it names")
                os.unlink(self.file)

    def test_no_file(self):
        for make in os.mkdir, os.mkfifo:
            make(self.file)
            for verb, *arguments in ("enable", LIBRARY), ("disable",), ("status",):
                self.ctl(verb, *arguments, status=ERROR, error=f"{self.file}: is not a file of at most 1 MiB: left alone")
            self.assertIn("ld.so.preload", os.listdir(self.at("/etc")))
            (os.rmdir if make == os.mkdir else os.unlink)(self.file)
        self.write(b"#" * (2 << 20))
        self.ctl("disable", status=ERROR, error=f"{self.file}: is not a file of at most 1 MiB: left alone")

    def test_writable_by_others(self):
        self.write(b"", 0o666)
        self.enable(status=ERROR, error=f"{self.file}: others than root may write to it (user 0, mode 0666): not enabled")
        self.write(LIBRARY.encode() + b"\n/a.so\n", 0o666)
        self.ctl("disable")
        self.assertEqual(self.read(), b"/a.so\n")

    def test_library_gone(self):
        self.enable()
        os.unlink(self.at(LIBRARY))
        status = self.status(status=ERROR)
        self.assertEqual(status["libraries"], [{"path": LIBRARY, "sound": False, "reason": f"{LIBRARY}: No such file or directory"}])
        self.assertIn(f"enabled: {LIBRARY}: No such file or directory: not sound\n", self.ctl("status", status=ERROR))
        self.ctl("disable")
        self.assertIsNone(self.read())

    def test_cdi(self):
        out = json.loads(self.ctl("cdi", LIBRARY))
        self.assertEqual((out["cdiVersion"], out["kind"], [device["name"] for device in out["devices"]]), ("0.5.0", "gpuprobe.io/shim", ["all"]))
        edits = out["devices"][0]["containerEdits"]
        self.assertEqual(edits["env"], ["LD_PRELOAD=/usr/lib/gpuprobe/" + NAME])
        self.assertEqual(
            [(mount["hostPath"], mount["containerPath"]) for mount in edits["mounts"]],
            [(LIBRARY, "/usr/lib/gpuprobe/" + NAME), ("/run/gpuprobe", "/run/gpuprobe")],
        )
        for mount in edits["mounts"]:
            self.assertIn("ro", mount["options"])
        beside = [f"/usr/lib/gpuprobe/libgpuprobe-{name}.so" for name in ("hold", "sass", "cupti")]
        for path in beside:
            with open(self.at(path), "wb"):
                pass
        mounts = json.loads(self.ctl("cdi", LIBRARY))["devices"][0]["containerEdits"]["mounts"]
        self.assertEqual([mount["hostPath"] for mount in mounts[1:4]], beside)
        self.assertEqual([mount["containerPath"] for mount in mounts[1:4]], beside)
        # what is no UTF-8 is a path nevertheless
        path = "/x\udcc2/" + NAME
        os.mkdir(self.at("/x\udcc2"), 0o755)
        shutil.copy(self.at(LIBRARY), self.at(path))
        out = subprocess.run([CTL, "shim", "cdi", "--root", self.root, path], stdout=subprocess.PIPE, timeout=120, env=ENVIRONMENT, check=True).stdout
        mounts = json.loads(out.decode(errors="surrogateescape"))["devices"][0]["containerEdits"]["mounts"]
        self.assertEqual(mounts[0]["hostPath"], path)
        os.chmod(self.at(LIBRARY), 0o666)
        self.ctl("cdi", LIBRARY, status=ERROR, error=f"{LIBRARY}: others than root may write to it (mode 0666)")
        os.unlink(self.at(LIBRARY))
        self.ctl("cdi", LIBRARY, status=NOT_FOUND, error=f"{LIBRARY}: No such file or directory")

    def test_usage(self):
        self.run_ctl(status=USAGE, error="shim: enable or disable or status or cdi?; see gpuprobectl shim --help")
        self.run_ctl("x", status=USAGE, error="shim has no command x; see gpuprobectl shim --help")
        self.ctl("disable", "x", status=USAGE, error="shim disable: x is too much; see gpuprobectl shim disable --help")
        self.run_ctl("status", "--root=/nowhere", status=NOT_FOUND, error="--root=/nowhere: No such file or directory")
        os.rmdir(self.at("/etc"))
        self.ctl("disable", status=ERROR, error="/etc: No such file or directory")

    def test_not_root(self):
        """Another user may ask, and do nothing when nothing is to be done; else he is told."""
        program = shutil.copy(CTL, self.root)  # whom the folder of the build may be closed to
        self.ctl("status", user=65534, program=program)
        self.ctl("disable", user=65534, program=program)
        self.enable(user=65534, program=program, status=PERMISSION, error="/etc/.ld.so.preload.lock: Permission denied; nothing is changed")
        self.assertIsNone(self.read())


class Refuse(Case):
    def refused(self, error, path=LIBRARY, status=ERROR):
        self.ctl("enable", path, status=status, error=error + ": not enabled")
        self.assertIsNone(self.read())

    def test_missing(self):
        self.refused("/usr/lib/no.so: No such file or directory", "/usr/lib/no.so", NOT_FOUND)
        self.refused(f"{LIBRARY}/x: Not a directory", LIBRARY + "/x", NOT_FOUND)
        self.refused("/usr/lib: is not a file", "/usr/lib")

    def test_owner(self):
        os.chown(self.at(LIBRARY), 7, 0)
        self.refused(f"{LIBRARY}: belongs to user 7, who could change it; it must be root's")
        os.chown(self.at(LIBRARY), 0, 0)
        for mode in 0o664, 0o646:
            os.chmod(self.at(LIBRARY), mode)
            self.refused(f"{LIBRARY}: others than root may write to it (mode {mode:04o})")
        for mode in 0o600, 0o640:
            os.chmod(self.at(LIBRARY), mode)
            self.refused(f"{LIBRARY}: not every user may read it (mode {mode:04o})")

    def test_folder(self):
        for folder in "/usr/lib/gpuprobe", "/usr", "/":
            os.chown(self.at(folder), 7, 0)
            self.refused(f"{folder}: belongs to user 7, who could change it; it must be root's")
            os.chown(self.at(folder), 0, 0)
            for mode in 0o775, 0o1777:
                os.chmod(self.at(folder), mode)
                self.refused(f"{folder}: others than root may write to it (mode {mode:04o})")
            os.chmod(self.at(folder), 0o750)
            self.refused(f"{folder}: not every user may read it (mode 0750)")
            os.chmod(self.at(folder), 0o755)

    def test_link(self):
        """What is behind a link counts, and is what gets into the file."""
        os.mkdir(self.at("/open"))
        os.symlink(LIBRARY, self.at("/open/" + NAME))
        os.chmod(self.at("/open"), 0o777)
        self.ctl("enable", "/open/" + NAME)
        self.assertEqual(self.read(), LIBRARY.encode() + b"\n")
        self.ctl("disable")
        os.rename(self.at(LIBRARY), self.at("/open/x"))
        os.symlink("/open/x", self.at(LIBRARY))
        self.refused("/open: others than root may write to it (mode 0777)")

    def test_name(self):
        os.rename(self.at(LIBRARY), self.at("/usr/lib/gpuprobe/other.so"))
        self.refused(f"/usr/lib/gpuprobe/other.so: is not named {NAME}, by which it is found again", "/usr/lib/gpuprobe/other.so")
        for folder in "a b", "a:b", "a#b", "a$b", "a\nb":
            os.mkdir(self.at("/usr/" + folder), 0o755)
            shutil.copy(self.at("/usr/lib/gpuprobe/other.so"), self.at(f"/usr/{folder}/{NAME}"))
            shown = folder.replace("\n", "?")  # one line
            self.refused(f"/usr/{shown}/{NAME}: has a character in its path that ld.so.preload cannot have", f"/usr/{folder}/{NAME}")

    def test_root(self):
        """A folder may have any name: ld.so is not told it."""
        for folder in "a b", "a:b", "a$ORIGIN":
            os.rename(self.root, self.root + folder)
            try:
                self.run_ctl("enable", "--root", self.root + folder, LIBRARY)
                self.run_ctl("disable", "--root", self.root + folder)
            finally:
                os.rename(self.root + folder, self.root)

    def test_no_library(self):
        with open(SHIM, "rb") as file:
            elf = file.read()
        for data, error in (
            (b"", "is not a library (no ELF file)"),
            (b"#!/bin/sh\n" + bytes(100), "is not a library (no ELF file)"),
            (elf[:4] + b"\1" + elf[5:], f"is not for this machine (class 1, machine {elf[18]})"),
            (elf[:18] + b"\xf3" + elf[19:], "is not for this machine (class 2, machine 243)"),
            (elf[:16] + b"\2" + elf[17:], "is not a shared library"),
        ):
            with open(self.at(LIBRARY), "wb") as file:
                file.write(data)
            self.refused(f"{LIBRARY}: {error}")

    def check_child(self, source, *expected):
        """A library that does something in each program."""
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", self.at(LIBRARY)], input=source.encode(), check=True)
        done = subprocess.run([CTL, "shim", "enable", "--root", self.root, LIBRARY], capture_output=True, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (ERROR, 1), done.stderr)
        for text in expected:
            self.assertIn(text, done.stderr)
        self.assertIsNone(self.read())

    def test_truncated(self):
        with open(SHIM, "rb") as file:
            elf = file.read()
        offset, count = struct.unpack_from("<Q", elf, 32)[0], struct.unpack_from("<H", elf, 56)[0]
        segments = [struct.unpack_from("<IIQQQQ", elf, offset + i * 56) for i in range(count)]
        end = max(segment[2] + segment[5] for segment in segments if segment[0] == 1)
        for n in 64, 100, 5000, end - 1:
            with open(self.at(LIBRARY), "wb") as file:
                file.write(elf[:n])
            self.refused(f"{LIBRARY}: is cut off")
        with open(self.at(LIBRARY), "wb") as file:  # what is not loaded may be absent
            file.write(elf[:end])
        self.enable()

    def test_constructor(self):
        head = "#include <stdio.h>\n#include <string.h>\n#include <unistd.h>\n#include <stdlib.h>\nextern char *program_invocation_name;\n"
        make = head + "__attribute__((constructor)) static void f(void) { %s }"
        self.check_child(make % "abort();", "with it, /bin/true is killed by signal 6 (Aborted)")
        self.check_child(make % "_exit(3);", "with it, /bin/true fails with status 3")
        self.check_child(make % 'puts("hello\\nyou");', "with it, /bin/true says: hello: not")
        self.check_child(make % 'for (int i = 0; i < 100000; i++) fputs("hello", stderr);', "with it, /bin/true says: hello")
        self.check_child(make % 'if (!strcmp(program_invocation_name, "/proc/self/exe")) _exit(0);', "with it, gpuprobectl says: : not")
        self.check_child("extern int nowhere(void); int f(void); int (*g)(void) = nowhere;", "with it, /bin/true says: ", "undefined symbol: nowhere")

    def test_constructor_hangs(self):
        self.check_child(
            "#include <unistd.h>\n__attribute__((constructor)) static void f(void) { for (;;) pause(); }", "with it, /bin/true does not end in 10 s"
        )


class Trouble(Case):
    """Crashes, errors, and others who edit."""

    OLD = b"/a.so # mine\n"
    NEW = OLD + LIBRARY.encode() + b"\n"
    # the calls with which a file is changed, and around it
    CALLS = (
        "openat",
        "openat2",
        "flock",
        "newfstatat",
        "read",
        "write",
        "fchown",
        "flistxattr",
        "fgetxattr",
        "fsetxattr",
        "fchmod",
        "fsync",
        "renameat",
        "unlinkat",
        "close",
    )

    def strace(self, call, fault, n, *arguments):
        """Runs it with something bad at its nth call. Its exit status, and whether the call came."""
        log = self.at("/log")
        done = subprocess.run(
            [
                "strace",
                "-o",
                log,
                "-e",
                "trace=" + call,
                "-e",
                f"inject={call}:{fault}:when={n}",
                CTL,
                "shim",
                arguments[0],
                "--root",
                self.root,
                *arguments[1:],
            ],
            capture_output=True,
            text=True,
            timeout=120,
            env=ENVIRONMENT,
        )
        with open(log) as file:
            text = file.read()
        return done, "killed by SIGKILL" in text or "(INJECTED)" in text

    def each(self, fault, calls, check):
        """Injects at every call, in enable and in disable. How often."""
        n = 0
        for call in calls:
            for arguments, old, new in (("enable", LIBRARY), self.OLD, self.NEW), (("disable",), self.NEW, self.OLD):
                i = 1
                while True:
                    self.write(old)
                    os.setxattr(self.file, "trusted.gpuprobe", b"label")
                    done, came = self.strace(call, fault, i, *arguments)
                    if not came:
                        break
                    with self.subTest(call=call, n=i, verb=arguments[0]):
                        check(done, self.text(), old, new)
                        # whatever was left behind does not matter, and goes with the next change
                        self.ctl(*arguments)
                        self.assertEqual(self.text(), new)
                        self.ctl(*(("disable",) if arguments[0] == "enable" else ("enable", LIBRARY)))
                        self.assertEqual(self.read(), old)
                    i += 1
                    n += 1
        return n

    @unittest.skipUnless(shutil.which("strace"), "no strace")
    def test_killed(self):
        seen = set()

        def check(done, text, old, new):
            self.assertIn(text, (old, new))
            seen.add(text == old)

        n = self.each("signal=KILL", self.CALLS, check)
        self.assertEqual(seen, {True, False})
        self.assertGreater(n, 60)

    @unittest.skipUnless(shutil.which("strace"), "no strace")
    def test_errors(self):
        """A full disk, a disk that breaks: an error is said, and the file is the old one; the new one only if the error came after the fact."""
        failed = []

        def check(done, text, old, new):
            self.assertIn(text, (old, new))
            if done.returncode == OK:
                self.assertEqual(text, new)
            else:
                failed.append(done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertTrue(text == old or "is changed, but" in done.stderr or "cannot write the output" in done.stderr, done.stderr)

        for error in "ENOSPC", "EIO":
            self.each("error=" + error, ("openat2", "flock", "write", "fchown", "flistxattr", "fgetxattr", "fsetxattr", "fchmod", "fsync", "renameat"), check)
        self.assertGreater(len(failed), 30)

    def test_full_disk(self):
        shutil.rmtree(self.at("/etc"))
        os.mkdir(self.at("/etc"), 0o755)
        mount("-t", "tmpfs", "-o", "size=64k,mode=755", "tmpfs", self.at("/etc"))
        self.addCleanup(subprocess.run, ["umount", self.at("/etc")], check=True)
        self.write(self.OLD)
        full = f"{self.file}: cannot be replaced, and is as it was: {os.strerror(errno.ENOSPC)}"
        for verb, old, arguments in ("enable", self.OLD, [LIBRARY]), ("disable", self.NEW, []):
            self.write(old)
            self.fill()
            self.ctl(verb, *arguments, status=ERROR, error=full)
            self.assertEqual(self.text(), old)
            os.unlink(self.at("/etc/link"))
        self.write(LIBRARY.encode())
        self.fill()
        self.ctl("disable")
        self.assertIsNone(self.read())

    def fill(self):
        with open(self.at("/etc/link"), "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1024))
            except OSError as error:
                self.assertEqual(error.errno, errno.ENOSPC)

    def test_read_only(self):
        """Nothing is to be done: that works. Something is: that is said."""
        self.write(self.NEW)
        mount("--bind", self.at("/etc"), self.at("/etc"))
        mount("-o", "remount,bind,ro", self.at("/etc"))
        self.addCleanup(subprocess.run, ["umount", self.at("/etc")], check=True)
        self.enable()
        self.ctl("disable", status=ERROR, error="/etc/.ld.so.preload.lock: Read-only file system; nothing is changed")
        self.assertEqual(self.read(), self.NEW)

    def test_mount_point(self):
        self.write(self.NEW)
        mount("--bind", self.file, self.file)
        self.addCleanup(subprocess.run, ["umount", self.file], check=True)
        self.ctl("disable", status=ERROR, error=f"{self.file}: cannot be replaced, and is as it was: {os.strerror(errno.EBUSY)}")
        self.assertEqual(self.read(), self.NEW)

    def test_leftovers(self):
        self.write(self.OLD)
        for name in ".ld.so.preload.new", ".ld.so.preload.lock":
            with open(self.at("/etc/" + name), "w") as file:
                file.write("half")
        self.enable()
        self.assertEqual(self.read(), self.NEW)

    def test_concurrent(self):
        self.write(self.OLD)
        for _ in range(3):
            running = [
                subprocess.Popen([CTL, "shim", verb, "--root", self.root, *library], env=ENVIRONMENT, stdout=subprocess.DEVNULL)
                for _ in range(6)
                for verb, *library in (("enable", LIBRARY), ("disable",))
            ]
            self.assertEqual([process.wait(timeout=120) for process in running], [OK] * len(running))
            self.assertIn(self.read(), (self.OLD, self.NEW))

    @unittest.skipUnless(shutil.which("strace"), "no strace")
    def test_edited_meanwhile(self):
        """What somebody else writes while the new file is on its way to the disk stays."""
        for text, (verb, *arguments), wanted in (
            (self.OLD, ("enable", LIBRARY), self.OLD + b"/b.so\n" + LIBRARY.encode() + b"\n"),
            (self.NEW, ("disable",), self.OLD + b"/b.so\n"),
            (None, ("enable", LIBRARY), b"/b.so\n" + LIBRARY.encode() + b"\n"),
        ):
            with self.subTest(text=text):
                if text is None:
                    os.unlink(self.file)
                else:
                    self.write(text)
                slow = subprocess.Popen(
                    [
                        "strace",
                        "-o",
                        self.at("/log"),
                        "-e",
                        "trace=fsync",
                        "-e",
                        "inject=fsync:delay_enter=3000000:when=1",
                        CTL,
                        "shim",
                        verb,
                        "--root",
                        self.root,
                        *arguments,
                    ],
                    env=ENVIRONMENT,
                    stdout=subprocess.DEVNULL,
                )
                while not os.path.exists(self.at("/etc/.ld.so.preload.new")) and slow.poll() is None:
                    time.sleep(0.01)
                with open(self.file, "ab") as file:
                    file.write(b"/b.so\n")
                self.assertEqual(slow.wait(timeout=120), OK)
                self.assertEqual(self.read(), wanted)

    def test_locked(self):
        import fcntl

        with open(self.at("/etc/.ld.so.preload.lock"), "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self.enable(status=ERROR, error="another gpuprobectl edits /etc/ld.so.preload; nothing is changed")
        self.enable()
        self.assertEqual(self.read(), LIBRARY.encode() + b"\n")


class System(unittest.TestCase):
    """All programs of the system, which has an /etc of its own in this namespace."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="test-shim-", dir="/var/tmp")
        self.addCleanup(shutil.rmtree, self.folder)
        mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", self.folder)
        self.addCleanup(subprocess.run, ["umount", "-l", self.folder], check=True)
        subprocess.run(["cp", "-a", "/etc", self.folder + "/etc"], check=True)
        mount("--bind", self.folder + "/etc", "/etc")
        self.addCleanup(subprocess.run, ["umount", "-l", "/etc"], check=True)
        mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/opt")
        self.addCleanup(subprocess.run, ["umount", "-l", "/opt"], check=True)
        self.library = "/opt/" + NAME
        shutil.copyfile(SHIM, self.library)
        os.chmod(self.library, 0o644)

    def has(self, *program):
        """Whether a program has the library; it must say nothing else."""
        done = subprocess.run(program, capture_output=True, text=True, env=ENVIRONMENT)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return self.library in done.stdout

    def others(self):
        """What else is in the file, and is missing or says something, is not our library's fault; and it can be mended if it was ours."""

        def ctl(*arguments):
            done = subprocess.run([CTL, "shim", *arguments], capture_output=True, text=True, env=ENVIRONMENT)
            return done.returncode, [line for line in done.stderr.splitlines() if line.startswith("gpuprobectl")], done.stdout

        def write(*lines):
            with open("/etc/ld.so.preload", "w") as file:
                file.write("".join(line + "\n" for line in lines))

        os.mkdir("/opt/x")
        for library, word in ("/opt/noisy.so", "noise"), ("/opt/x/" + NAME, "other"):
            subprocess.run(
                ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library],
                check=True,
                text=True,
                input='#include <stdio.h>\n__attribute__((constructor)) static void f(void) { fputs("%s\\n", stderr); }' % word,
            )
        write("/old/" + NAME)
        self.assertEqual(ctl("enable", self.library)[:2], (OK, []))
        with open("/etc/ld.so.preload") as file:
            self.assertEqual(file.read(), self.library + "\n")
        write("/foreign/missing.so", self.library)
        status, said, out = ctl("status", "--json")
        self.assertEqual((status, said, json.loads(out)["libraries"][0]["sound"]), (OK, [], True))
        write("/opt/noisy.so")
        self.assertEqual(ctl("enable", self.library)[:2], (OK, []))
        status, said, _ = ctl("enable", "/opt/x/" + NAME)
        self.assertEqual((status, said), (ERROR, [f"gpuprobectl: /opt/x/{NAME}: with it, /bin/true says: other: not enabled"]))
        write(self.library)

    def test(self):
        programs = (
            ["cat", "/proc/self/maps"],
            ["sh", "-c", "cat /proc/$$/maps; true"],
            [sys.executable, "-c", "print(open('/proc/self/maps').read())"],
            ["setpriv", "--reuid=65534", "--clear-groups", "cat", "/proc/self/maps"],
        )
        for program in programs:
            self.assertFalse(self.has(*program))
        subprocess.run([CTL, "shim", "enable", self.library], check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
        for program in programs:
            self.assertTrue(self.has(*program))
        status = json.loads(subprocess.run([CTL, "shim", "status", "--json"], check=True, stdout=subprocess.PIPE, env=ENVIRONMENT).stdout)
        self.assertEqual(status["libraries"], [{"path": self.library, "sound": True, "reason": None}])
        self.others()
        # the worst case: it is gone, and each program complains
        os.unlink(self.library)
        self.assertIn("cannot be preloaded", subprocess.run(["true"], check=True, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT).stderr)
        subprocess.run([CTL, "shim", "disable"], check=True, capture_output=True, env=ENVIRONMENT)
        for program in programs:
            self.assertFalse(self.has(*program))
        self.assertFalse(os.path.exists("/etc/ld.so.preload"))


if __name__ == "__main__":
    if os.geteuid() != 0 or b"__asan_init" in open(CTL, "rb").read():
        print("needs root, and no AddressSanitizer, which must be loaded before any other library")
        sys.exit(77)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        print("needs a mount namespace:", os.strerror(ctypes.get_errno()))
        sys.exit(77)
    os.umask(0o022)
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
