#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test-gpuprobectl.py GPUPROBECTL FAKE_DAEMON COMPLETION: every command, every error and its exit status, and the JSON."""

import fcntl
import base64
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
import unittest

from fake_daemon import CTL, DAEMON, FakeDaemonCase

COMPLETION = os.path.abspath(sys.argv[3])
OK, ERROR, USAGE, UNREACHABLE, VERIFIER, NOT_FOUND, PERMISSION = range(7)
HEADER = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 1, 247, 1, 0, 0, 0, 0, 64, 0, 0, 64, 0, 0)


class Case(FakeDaemonCase):
    def setUp(self):
        super().setUp()
        self.object = self.file("prog.o", HEADER + b"the rest")

    def file(self, name, data):
        path = self.dir / name
        path.write_bytes(data)
        return str(path)

    def run_ctl(self, *args, program=None, status=OK, stderr="", env=None, **more):
        """Runs it; compares the exit status, and stderr unless it is None. Returns standard output."""
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TZ": "UTC", **(env or {})}
        for key in os.environ:
            if key.startswith(("ASAN", "LSAN", "UBSAN")):
                environment[key] = os.environ[key]
        done = subprocess.run([program or CTL, *args], capture_output=True, timeout=60, env=environment, **more)
        err = done.stderr.decode()
        self.assertEqual(done.returncode, status, err)
        if stderr is not None:
            self.assertEqual(err, stderr and f"gpuprobectl: {stderr}\n")
        return done.stdout.decode()

    def ctl(self, *args, **more):
        return self.run_ctl("--socket", self.socket, *args, **more)

    def json(self, *args, **more):
        return json.loads(self.ctl("--json", *args, **more))


class Attach(Case):
    def test_ids(self):
        self.assertEqual(self.ctl("attach", self.object), "1\n")
        self.assertEqual(self.ctl("attach", self.object, "--kernel", "vec*"), "2\n")
        self.assertEqual(self.ctl("attach", "-", input=HEADER), "3\n")

    def test_json_and_filter(self):
        exe = self.file("app", b"")
        output = self.json(
            "attach", "--kernel=a(int)", "--program", "cuda__p", "--pid=12", "--comm=x\u00e9", "--exe", "app", "--uid=root", self.object, cwd=self.dir
        )
        self.assertEqual(
            output,
            {
                "attachments": [
                    {
                        "id": 1,
                        "object": len(HEADER) + 8,
                        "program": "cuda__p",
                        "point": "entry",
                        "kernel": "a(int)",
                        "section": "kprobe/vectorAdd",
                        "engine": "auto",
                        "filter": {"pid": 12, "comm": "x\u00e9", "exe": os.path.realpath(exe), "uid": 0},
                        "state": "armed",
                        "modules": 0,
                        "recompiled": 1,
                        "processes": 0,
                        "owner": os.getuid(),
                    }
                ],
                "maps": [],
            },
        )
        link = self.dir / "link"
        link.symlink_to(exe)
        for given, seen in (
            (str(link), os.path.realpath(exe)),
            (f"{self.dir}/lin[k]", f"{self.dir}/lin[k]"),
            ("/no/such/app", "/no/such/app"),
            ("/usr/bin/*", "/usr/bin/*"),
            ("*python?", "*python?"),
            ("bin/a*", os.path.realpath(self.dir) + "/bin/a*"),
        ):
            output = self.json("attach", "--exe", given, self.object, cwd=self.dir)
            self.assertEqual(output["attachments"][0]["filter"], {"exe": seen})
        self.assertEqual(self.json("attach", "--uid", "4294967294", self.object)["attachments"][0]["filter"], {"uid": 4294967294})

    def test_failed(self):
        out = self.ctl("attach", self.object, "--program=failed", status=ERROR, stderr="attachment 1 (failed) is failed; gpuprobectl why tells more")
        self.assertEqual(out, "1\n")

    def test_refused_by_daemon(self):
        path = self.object
        cases = {
            "missing": (NOT_FOUND, f"{path}: there is no program missing in it"),
            "dead": (NOT_FOUND, "there is no process 4711"),
            "refused": (
                VERIFIER,
                f"{path}: the verifier refused program refused: invalid access to map value\n; *value = 1; @ a.bpf.c:7\nR1 invalid mem access",
            ),
            "hostile": (VERIFIER, f'{path}: the verifier refused program host?ile: a?b?c\n; x = "?[31m" @ a.c:1\n\tR1?1m\u00e9?'),
            "logless": (VERIFIER, f"{path}: the verifier refused program logless: no reason"),
            "uncompiled": (ERROR, f"{path}: program uncompiled cannot run on a GPU: helper 6 comes with the next release"),
            "nameless": (ERROR, f"{path} cannot run on a GPU: no worker"),
            "invalid": (ERROR, f"{path}: not usable: no GPU program in it\nlibbpf: hm"),
            "denied": (PERMISSION, "not permitted: only root and the group gpuprobe may attach"),
            "unavailable": (ERROR, "no CAP_BPF here"),
            "limit": (ERROR, "too many: attachments of uid 0; the limit is 64"),
            "argument": (USAGE, "--ring-size: not so large"),
            "internal": (ERROR, "the daemon has a problem: worker did not start"),
            "forbidden": (PERMISSION, "not permitted; try sudo, or become a member of the group gpuprobe"),
            "other": (ERROR, f"{self.socket}: the daemon does not take filter as we gave it: is it of another version?"),
            "old": (ERROR, f"{self.socket}: the daemon does not offer this (MethodNotImplemented): is it of another version?"),
            "crash": (
                UNREACHABLE,
                f"{self.socket}: the daemon hung up; gpuprobectl list shows whether it had done it, and its log why: standard error of gpuprobed",
            ),
        }
        for program, (status, text) in cases.items():
            for option in (), ("--json",):
                with self.subTest(program=program, option=option):
                    out = self.ctl("attach", path, "--program", program, *option, status=status, stderr=text)
                    self.assertEqual(out, "")

    def test_files(self):
        how = "compile it with: clang -O2 -g -target bpf -c"
        x86 = bytearray(HEADER)
        x86[18:20] = struct.pack("<H", 62)
        big_endian = bytearray(HEADER)
        big_endian[5] = 2
        os.mkfifo(self.dir / "fifo")
        cases = {
            str(self.dir / "nothing.o"): (NOT_FOUND, "No such file or directory"),
            str(self.dir): (ERROR, "is a directory, not an eBPF object"),
            str(self.dir / "fifo"): (ERROR, "is not a regular file, not an eBPF object"),
            "/dev/null": (ERROR, "is not a regular file, not an eBPF object"),
            self.file("prog.c", b"int main(void) { return 0; }"): (ERROR, f"is not an eBPF object; {how} {self.dir}/prog.c"),
            self.file("text", b"hello"): (ERROR, f"is not an eBPF object; {how} prog.bpf.c"),
            self.file("empty", b""): (ERROR, "is empty, not an eBPF object"),
            self.file("short", HEADER[:40]): (ERROR, "is cut short: it has 40 bytes"),
            self.file("x86", x86): (ERROR, f"is an ELF file for another machine, not an eBPF object; {how} prog.bpf.c"),
            self.file("be", big_endian): (ERROR, f"is an ELF file for another machine, not an eBPF object; {how} prog.bpf.c"),
            self.file("large", HEADER + bytes(8 << 20)): (ERROR, "is too large: an object has at most 8388608 bytes"),
        }
        for path, (status, text) in cases.items():
            with self.subTest(path=path):
                between = ": " if status == NOT_FOUND else " "
                self.ctl("attach", path, status=status, stderr=path + between + text)
        self.ctl("attach", "-", input=b"x", status=ERROR, stderr=f"standard input is not an eBPF object; {how} prog.bpf.c")
        if os.getuid() != 0:
            os.chmod(self.object, 0)
            self.ctl("attach", self.object, status=PERMISSION, stderr=f"{self.object}: Permission denied")

    def test_largest(self):
        path = self.file("largest.o", HEADER + bytes(8388608 - len(HEADER)))
        self.assertEqual(self.json("attach", path)["attachments"][0]["object"], 8388608)

    def test_usage(self):
        cases = (
            ((), "attach: which object?; see gpuprobectl attach --help"),
            ((self.object, "b.o"), "attach takes one object, but got b.o too; see gpuprobectl attach --help"),
            ((self.object, "--pid=0"), "--pid: 0 is not a number from 1 up; see gpuprobectl attach --help"),
            ((self.object, "--pid=1x"), "--pid: 1x is not a number from 1 up; see gpuprobectl attach --help"),
            ((self.object, "--pid=-1"), "--pid: -1 is not a number from 1 up; see gpuprobectl attach --help"),
            ((self.object, "--pid="), "--pid:  is not a number from 1 up; see gpuprobectl attach --help"),
            ((self.object, "--pid=99999999999999999999"), "--pid: 99999999999999999999 is not a number from 1 up; see gpuprobectl attach --help"),
            ((self.object, "--uid=no-such-user"), "--uid: there is no user no-such-user; see gpuprobectl attach --help"),
            ((self.object, "--exe="), "--exe: the path is empty; see gpuprobectl attach --help"),
            ((self.object, "--exe=no/such"), "--exe: no/such: No such file or directory"),
            ((self.object, "--nonzero"), "--nonzero is for attach FILE -- CMD; see gpuprobectl attach --help"),
            ((self.object, "--"), "attach: a command is missing behind --; see gpuprobectl attach --help"),
            (("--", "true"), "attach: which object?; see gpuprobectl attach --help"),
            ((self.object, "--pid=1", "--", "true"), "--pid is for a process that runs, and -- for one to be started; see gpuprobectl attach --help"),
            ((self.object, "--export=m", "--", "true"), "--export is for what stays attached, which it does not with --; see gpuprobectl attach --help"),
            ((self.object, "--nonsense"), "attach: unknown option --nonsense; see gpuprobectl attach --help"),
            ((self.object, "-x"), "attach: unknown option -x; see gpuprobectl attach --help"),
            ((self.object, "--json", "-xh"), "attach: unknown option -x; see gpuprobectl attach --help"),
            ((self.object, "--kernel"), "attach: option --kernel requires a value; see gpuprobectl attach --help"),
            ((self.object, "--shared=x"), "attach: option --shared takes no value; see gpuprobectl attach --help"),
            ((self.object, "--help=x"), "attach: option --help takes no value; see gpuprobectl attach --help"),
            ((self.object, "--p=1"), "attach: option --p is ambiguous: --pretty, --program, --pid, --point; see gpuprobectl attach --help"),
        )
        for args, text in cases:
            with self.subTest(args=args):
                self.assertEqual(self.ctl("attach", *args, status=USAGE, stderr=text), "")
        self.assertEqual(self.json("list"), {"attachments": []})


class Rest(Case):
    def test_list(self):
        self.assertEqual(self.ctl("list"), "")
        self.ctl("attach", self.object)
        self.ctl("attach", self.object, "--kernel=k\x1b[31m\u00e9", "--pid=7", "--comm=c d")
        lines = self.ctl("list").splitlines()
        self.assertEqual(lines[0].split(), "ID OBJECT PROGRAM POINT ENGINE STATE MODULES CODE PROCESSES OWNER FILTER SECTION KERNEL".split())
        self.assertEqual(
            lines[1].split(), ["1", "72", "cuda__count", "entry", "auto", "armed", "0", "-", "0", str(os.getuid()), "-", "kprobe/vectorAdd", "vectorAdd"]
        )
        self.assertTrue(lines[2].endswith("  k?[31m\u00e9"), lines[2])
        self.assertIn("  pid=7 comm=c d  kprobe/vectorAdd  ", lines[2])
        self.assertEqual(lines[0].index("STATE"), lines[2].index("armed"))
        self.assertEqual(lines[0].index("CODE"), lines[2].index("recompiled"))
        output = self.json("list")
        self.assertEqual([attachment["id"] for attachment in output["attachments"]], [1, 2])
        self.assertEqual(output["attachments"][1]["kernel"], "k\x1b[31m\u00e9")

    def test_detach(self):
        for _ in range(4):
            self.ctl("attach", self.object)
        self.assertEqual(self.ctl("detach", "1"), "")
        self.assertEqual(self.json("detach", "2"), {"detached": [2]})
        missing = "there is no attachment 9; gpuprobectl list shows them"
        self.assertEqual(self.json("detach", "9", "3", status=NOT_FOUND, stderr=missing), {"detached": [3]})
        self.assertEqual(self.json("detach", "--all"), {"detached": [4]})
        self.assertEqual(self.ctl("detach", "--all"), "")
        self.assertEqual(self.ctl("list"), "")
        self.ctl("detach", status=USAGE, stderr="detach: which attachment?; see gpuprobectl detach --help")
        self.ctl("detach", "x", status=USAGE, stderr="detach: x is not a number from 1 up; see gpuprobectl detach --help")
        self.ctl("detach", "--all", "1", status=USAGE, stderr="detach takes ids or --all, not both; see gpuprobectl detach --help")

    def test_status(self):
        text = self.ctl("status")
        self.assertIn(f"gpuprobed 0.1.0, process 4711, session daemon at {self.socket}\nstarted: 2023-11-14 22:13:20\n", text)
        self.assertIn("verifier: on\ncompiler: nvJitLink 13.0\nattachments: 1\nmaps: 2\n", text)
        self.assertIn(
            "now, and since the start:\n"
            "  daemon:              memory 6.0 MiB, longest turn 1.5 ms\n"
            "  workers image:       jobs 9007199254740993, alive 3\n"
            "  workers program:     jobs 2, alive 1\n"
            "  quotas:              hit images 0, hit maps 4\n",
            text,
        )
        self.assertTrue(text.endswith("missing: no CAP_BPF: nothing can be verified; run as root\n"))
        output = self.json("status")
        self.assertEqual(set(output), {"version", "pid", "mode", "started", "verify", "compiler", "attachments", "maps", "counters", "statistics", "missing"})
        self.assertEqual(output["counters"]["images_own"], 1)

    def test_why(self):
        self.assertEqual(
            self.ctl("why"),
            "2023-11-14 22:13:20  77 vec_add  probed (sanitizer)  vectorAdd(float*, float*): no PTX for sm_90 in this image\n"
            "2023-11-14 22:13:20  78 py?[31mthon  not-probed  no PTX for sm_90 in this image: SASS only\n",
        )
        self.assertEqual(len(self.ctl("why", "--pid", "78").splitlines()), 1)
        self.assertEqual(self.ctl("why", "--kernel=none", stderr="nothing is remembered about a kernel none"), "")
        output = self.json("why")
        self.assertEqual(set(output["outcomes"][0]), {"pid", "comm", "time", "kernel", "demangled", "outcome", "engine", "reason", "attachments"})
        self.ctl("why", "77", status=USAGE, stderr="why takes no argument, but got 77; see gpuprobectl why --help")
        self.ctl("why", "--pid=x", status=USAGE, stderr="--pid: x is not a number from 1 up; see gpuprobectl why --help")

    def at_terminal(self, width, *args):
        """What a command prints at a terminal of this width."""
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        subprocess.run([CTL, "--socket", self.socket, *args], stdout=follower, check=True, timeout=60)
        os.close(follower)
        text = b""
        try:
            while part := os.read(leader, 65536):
                text += part
        except OSError:  # EIO: nobody has the other end any more
            pass
        os.close(leader)
        return text.decode().split("\r\n")[:-1]

    def test_table_width(self):
        """At a terminal a row is a line: the longest texts are shortened. Elsewhere they are whole."""
        kernel = "a_kernel_with_a_long_name_" * 12
        self.ctl("attach", self.object, "--kernel", kernel)
        self.assertIn(kernel, self.ctl("list"))
        for width in 170, 200:
            lines = self.at_terminal(width, "list")
            self.assertEqual(len(lines), 2)
            for line in lines:
                self.assertLessEqual(len(line), width)
            self.assertIn("a_kernel_with_", lines[1])
            self.assertTrue(lines[1].endswith("..."), lines[1])
        self.assertEqual(self.at_terminal(1000, "list"), self.ctl("list").splitlines())

    def test_did_you_mean(self):
        for args, status, text in (
            (("atach",), USAGE, "there is no command atach; did you mean attach?; see gpuprobectl --help"),
            (("map", "dmup"), USAGE, "map has no command dmup; did you mean dump?; see gpuprobectl map --help"),
            (("kernel", "lst"), USAGE, "kernel has no command lst; did you mean list?; see gpuprobectl kernel --help"),
            (("map", "dump", "emtpy"), NOT_FOUND, "there is no map emtpy; gpuprobectl map list shows them; did you mean empty?"),
        ):
            self.ctl(*args, status=status, stderr=text)
        self.ctl(
            "attach", "--kernle=x", self.object, status=USAGE, stderr="attach: unknown option --kernle; did you mean --kernel?; see gpuprobectl attach --help"
        )

    def test_help_width(self):
        """At a terminal, a help text is as wide as that, with all its words; elsewhere it is as it is written."""
        for command in "", "attach", "why", "map export", "trace", "trace report", "shim", "hook", "doctor", "run":
            written = self.run_ctl(*command.split(), "--help")
            for width in 40, 80, 250:
                lines = self.at_terminal(width, *command.split(), "--help")
                self.assertEqual(" ".join(lines).split(), written.split(), (command, width))
                for line in lines:
                    self.assertEqual(line, line.rstrip())
                    self.assertTrue(len(line) <= width or len(line.split()) == 1 or line.startswith("      --"), (command, width, line))

    def test_process_lacks(self):
        """Who means a process in which nothing can be probed hears of it."""
        no_shim = (
            ("libcuda.so.1",),
            "runs without the shim, so nothing is probed in it: start it again with LD_PRELOAD=libgpuprobe-shim.so, or after gpuprobectl shim enable",
        )
        neither = (), "has loaded no CUDA library so far, and runs without the shim, so nothing would be probed in it if it did"
        early = ("libgpuprobe-shim.so",), "has loaded no CUDA library so far"
        for libraries, lacks in no_shim, neither, early:
            pid = self.process_with(*libraries)
            self.assertRegex(self.ctl("attach", self.object, "--pid", pid, stderr=f"process {pid} {lacks}"), r"^\d+\n$")
            self.assertEqual(self.ctl("why", "--kernel=none", "--pid", pid, stderr=f"nothing is remembered; process {pid} {lacks}"), "")
            self.json("why", "--kernel=none", "--pid", pid)
        pid = self.process_with("libcuda.so.535.1", "libgpuprobe-shim.so")
        self.ctl("attach", self.object, "--pid", pid)
        self.assertEqual(self.ctl("why", "--kernel=none", "--pid", pid), "")
        thread = threading.Thread(target=time.sleep, args=(5,), daemon=True)
        thread.start()
        for command in ("attach", self.object), ("why", "--kernel=none"), ("why", "--kernel=none", "--json"), ("kernel", "list"), ("kernel", "show", "*"):
            self.assertEqual(
                self.ctl(
                    *command,
                    "--pid",
                    str(thread.native_id),
                    status=NOT_FOUND,
                    stderr=f"--pid: {thread.native_id} is a thread of process {os.getpid()}, whose number is wanted",
                ),
                "",
            )
            for pid in "2147483648", "9223372036854775807":  # of no process
                self.assertEqual(self.ctl(*command, "--pid", pid, status=NOT_FOUND, stderr=f"there is no process {pid}"), "")
        self.ctl("why", "--kernel=none", "--pid", "4194305", stderr="nothing is remembered; process 4194305 is not there any more, or never was")

    def test_options_twice(self):
        """An option with a value stands once, but for lists of them and those of all commands."""
        for args, name in (
            ("attach --kernel=a --kernel=b", "kernel"),
            ("attach --pid 1 --pid 1", "pid"),
            ("why --pid=1 --pid=2", "pid"),
            ("map dump --merge=sum --merge=latest", "merge"),
            ("map export --unit=s --unit=s", "unit"),
            ("ring read -n1 -n2", "count"),
            ("run --grid=1 --grid=2", "grid"),
            ("kernel list --pid=1 --pid=2", "pid"),
            ("log --object=1 --object=2", "object"),
            ("doctor --only=a --only=b", "only"),
            ("pass test --pass=a --pass=b", "pass"),
            ("shim status --root=/ --root=/", "root"),
        ):
            args = args.split()
            command = " ".join(args[:1] if args[1].startswith("-") or args[0] == "kernel" else args[:2])
            self.ctl(*args, status=USAGE, stderr=f"--{name} may be given once; see gpuprobectl {command} --help")
        self.json("list", "--json", "--socket", "/nowhere", "--socket", self.socket)
        self.json("map", "export", "counts", "--label=a=b", "--label=c=d")

    def test_attach_options(self):
        def asked(*args):
            done = subprocess.run([CTL, "--socket", self.socket, "attach", "--program=echo", *args, self.object], capture_output=True, timeout=60, check=False)
            text = done.stderr.decode()
            self.assertEqual(done.returncode, ERROR, text)
            parameters = json.loads(text[text.index("{") : text.rindex("}") + 1])
            self.assertEqual(parameters.pop("folder"), os.getcwd())
            return {key: value for key, value in parameters.items() if key != "program"}

        self.assertEqual(asked(), {})
        self.assertEqual(asked("--host-target=a=./x:main", "--host-target", "b=c:d=e"), {"host_targets": {"a": "./x:main", "b": "c:d=e"}})
        for text in "a", "=b", "a=":
            self.ctl(
                "attach",
                "--host-target",
                text,
                self.object,
                status=USAGE,
                stderr=f"--host-target: {text} is not PROGRAM=TARGET, as in on_launch=./app:main; see gpuprobectl attach --help",
            )
        self.ctl(
            "attach",
            "--host-target=a=b",
            "--host-target=a=c",
            self.object,
            status=USAGE,
            stderr="--host-target: program a has two targets; see gpuprobectl attach --help",
        )
        self.assertEqual(asked("--point", "kprobe/f@x.cu:12", "--kernel=k"), {"point": "kprobe/f@x.cu:12", "kernel": "k"})
        self.assertEqual(asked("--spaces=global,shared", "--spaces", "param"), {"spaces": ["global", "shared", "param"]})
        self.assertEqual(asked("--threads", "1048576", "--shared"), {"threads": 1048576, "shared": True})
        for text, size in ("65536", 65536), ("64K", 65536), ("16M", 16 << 20), ("2G", 2 << 30):
            self.assertEqual(asked("--ring-size", text), {"ring_size": size})
        for text in "", "K", "-1", "0", "1.5M", "64k", "64KB", "9999999999G", "99999999999999999999":
            self.ctl(
                "attach",
                "--ring-size",
                text,
                self.object,
                status=USAGE,
                stderr=f"--ring-size: {text} is not a size, such as 65536, 64K or 1G; see gpuprobectl attach --help",
            )
        self.ctl("attach", "--spaces=a,,b", self.object, status=USAGE, stderr="--spaces: a name is missing before a comma; see gpuprobectl attach --help")
        self.ctl("attach", "--spaces=", self.object, status=USAGE, stderr="--spaces: the list is empty; see gpuprobectl attach --help")
        for engine in "auto", "ptx", "sanitizer", "sass":
            self.assertEqual(asked("--engine", engine), {"engine": engine})
        for engine in "both", "", "PTX":
            self.ctl(
                "attach",
                "--engine",
                engine,
                self.object,
                status=USAGE,
                stderr=f"--engine: {engine} is none of auto, ptx and sanitizer; see gpuprobectl attach --help",
            )
        self.ctl("attach", "--threads=0", self.object, status=USAGE, stderr="--threads: 0 is not a number from 1 up; see gpuprobectl attach --help")

    def test_kernel(self):
        lines = self.ctl("kernel", "list").splitlines()
        self.assertEqual(lines[0].split(), "ID TYPE PIDS ATTACHMENTS KERNEL".split())
        self.assertEqual(lines[1].split(None, 4), ["00000000000000ab", "kernel", "77,78", "1", "vectorAdd(float*, float*)"])
        self.assertEqual(lines[2].split(None, 4), ["00000000000000cd", "device", "-", "-", "g()"])
        self.assertEqual(len(self.json("kernel", "list", "--pid=77")["kernels"]), 1)
        lines = self.ctl("kernel", "show", "f").splitlines()
        self.assertEqual(lines[0].split(), "ID SOURCE INSTRUCTION KERNEL".split())
        self.assertEqual(lines[1].split(), ["0000001100000000", "x.cu:12", *"ld.global.f32 %f1, [%rd4];".split(), "_Z1fv"])
        self.assertEqual(lines[2].split(), ["0000001100000001", "-", "bar?", "_Z1fv"])
        self.assertEqual(self.json("kernel", "show", "--instruction=1100000000")["instructions"][0]["line"], 12)
        self.assertEqual(self.ctl("kernel", "show", "bare", stderr="bare: it has no instructions with memory probes"), "")
        self.ctl(
            "kernel", "show", "none", status=NOT_FOUND, stderr="there is no kernel none with memory probes now; gpuprobectl kernel list shows what there is"
        )
        self.ctl("kernel", status=USAGE, stderr="kernel: list or show?; see gpuprobectl kernel --help")
        self.ctl("kernel", "dump", status=USAGE, stderr="kernel has no command dump; see gpuprobectl kernel --help")
        self.ctl("kernel", "list", "f", status=USAGE, stderr="kernel list takes no argument and no --instruction; see gpuprobectl kernel --help")
        for args in [], ["a", "b"], ["a", "--instruction=1"], ["a", "--pid=1"]:
            self.ctl("kernel", "show", *args, status=USAGE, stderr="kernel show takes one kernel, or --instruction; see gpuprobectl kernel --help")

    def test_program(self):
        first, second = self.ctl("program", "show", "cuda__count").split("\n\n")
        self.assertEqual(
            first.splitlines()[:7],
            [
                "cuda__count, attachment 1: entry of gemm?*",
                "PTX: 1234 bytes, ISA 6.3, sm_52",
                "local memory of a thread: 16 bytes",
                "maps: a, b",
                "registers of a thread: begin, bytes",
                "ptx engine: yes",
                "sanitizer engine: yes",
            ],
        )
        self.assertEqual(
            [line.split() for line in first.splitlines()[7:]],
            ["PATCH DEVICE REGISTERS SPILL-STORES SPILL-LOADS STACK".split(), ["entry", "sm_90", "24", "4", "8", "16"]],
        )
        self.assertEqual(
            second.splitlines(),
            [
                "cuda__count, attachment 2: barrier of f",
                "PTX: 20 bytes, ISA 7.8, sm_90",
                "local memory of a thread: 0 bytes",
                "maps: none",
                "ptx engine: no: it has no such point",
                "sanitizer engine: yes",
            ],
        )
        self.assertTrue(self.ctl("program", "show", "ptx").endswith("\nptx engine: yes\nsanitizer engine: no: it reads params of its context\n"))
        programs = self.json("program", "show", "1")["programs"]
        self.assertEqual([(p["attachment"]["id"], p["patches"][0]["registers"]) for p in programs], [(1, 24)])
        self.ctl("program", "show", "none", status=NOT_FOUND, stderr="there is no program none on the GPU; gpuprobectl list shows what is attached")
        self.ctl("program", status=USAGE, stderr="program: show?; see gpuprobectl program --help")
        self.ctl("program", "list", status=USAGE, stderr="program has no command list; see gpuprobectl program --help")
        self.ctl("program", "show", status=USAGE, stderr="program show: which program?; see gpuprobectl program show --help")
        self.ctl("program", "show", "a", "b", status=USAGE, stderr="program show takes one program, but got b too; see gpuprobectl program show --help")
        self.ctl("program", "show", "a", "--pid=1", status=USAGE, stderr="program show: unknown option --pid; see gpuprobectl program show --help")

    def test_help_and_version(self):
        self.assertEqual(self.run_ctl("--version"), "gpuprobectl 0.1.0\n")
        self.assertTrue(self.run_ctl("--help").startswith("Usage: gpuprobectl [OPTION]... COMMAND"))
        for command in "attach", "detach", "list", "status", "why", "kernel", "program", "map", "ring", "run", "log", "pass", "cache":
            self.assertTrue(self.run_ctl(command, "--help").startswith(f"Usage: gpuprobectl {command}"))
            self.assertTrue(self.run_ctl(command, "-h").startswith(f"Usage: gpuprobectl {command}"))
            self.assertEqual(self.run_ctl(command, "--version"), "gpuprobectl 0.1.0\n")
        self.assertEqual(self.run_ctl(status=USAGE, stderr=None), "")
        self.run_ctl("nonsense", status=USAGE, stderr="there is no command nonsense; see gpuprobectl --help")
        self.run_ctl("--nonsense", status=USAGE, stderr="unknown option --nonsense; see gpuprobectl --help")
        self.run_ctl("list", "x", status=USAGE, stderr="list takes no argument, but got x; see gpuprobectl list --help")

    def test_no_text(self):
        """What is no text of a call, and what a terminal would take for a command."""
        for args in ("map", "dump", b"\xff"), ("attach", self.object, b"--kernel=a\xe9"), ("why", b"--kernel=\x80"):
            self.ctl(*args, status=USAGE, stderr="a name or a path on the command line is not UTF-8")
        self.ctl("map", "dump", "a\nb\x1bc\u009bd\u00e9", status=NOT_FOUND, stderr="there is no map a?b?c?d\u00e9; gpuprobectl map list shows them")
        done = subprocess.run([CTL, "attach", b"/a\x9bb\xff\xc3\xa9"], capture_output=True, timeout=60)
        self.assertEqual(done.stderr, b"gpuprobectl: /a?b\xff\xc3\xa9: No such file or directory\n")

    def test_json_controls(self):
        """Control characters are escaped, those beyond ASCII, too; other characters are as they are."""
        path = str(self.dir / "other")
        version = "\x1b\x7f\u0080\u009b\u009f\u00a0\u00e9\u20ac"
        daemon = subprocess.Popen([DAEMON, path], stdout=subprocess.PIPE, env={**os.environ, "FAKE_VERSION": version})
        self.addCleanup(lambda: (daemon.kill(), daemon.wait(), daemon.stdout.close()))
        self.assertEqual(daemon.stdout.readline(), b"ready\n")
        for option in "--json", "--pretty":
            out = self.run_ctl("--socket", path, "status", option)
            self.assertIn('"\\u001b\\u007f\\u0080\\u009b\\u009f\u00a0\u00e9\u20ac"', out)
            self.assertEqual(json.loads(out)["version"], version)

    def test_closed(self):
        """Where descriptors 0 to 2 are closed, nothing that is meant for them gets to the daemon, and nothing is undone half."""

        def run(*args, closed):
            close = " ".join(f"{fd}>&-" for fd in closed)
            return subprocess.run(["sh", "-c", f'"$0" "$@" {close}', CTL, "--socket", self.socket, *args], capture_output=True, timeout=60)

        self.assertEqual(run("attach", self.object, "--export=no", closed=(2,)).returncode, NOT_FOUND)
        self.assertEqual(self.json("list"), {"attachments": []})  # it was detached, behind the error
        for closed in (1,), (0, 1):
            done = run("map", "dump", "counter", closed=closed)
            self.assertEqual((done.returncode, done.stderr), (ERROR, b"gpuprobectl: cannot write the output: Bad file descriptor\n"))
        self.assertEqual(run("attach", "-", closed=(0,)).stderr, b"gpuprobectl: standard input: Bad file descriptor\n")
        self.assertEqual(run("list", closed=(0, 1, 2)).returncode, OK)  # it has nothing to say
        self.assertEqual(run("list", "x", closed=(0, 1, 2)).returncode, USAGE)

    def test_full_disk(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([CTL, "--socket", self.socket, "status"], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual((done.returncode, done.stderr), (ERROR, b"gpuprobectl: cannot write the output: No space left on device\n"))

    def completer(self, script):
        """What completion offers for words, where gpuprobectl is this script."""
        bash = shutil.which("bash")
        if not bash:
            self.skipTest("no bash")
        wrapper = self.dir / "bin"
        wrapper.mkdir()
        path = wrapper / "gpuprobectl"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

        def complete(*words):
            quoted = " ".join(f"'{word}'" for word in words)
            code = (
                f'PATH={wrapper}:$PATH; . "{COMPLETION}"; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1};_gpuprobectl; printf "%s\\n" "${{COMPREPLY[@]}}"'
            )
            return set(subprocess.run([bash, "-c", code], capture_output=True, check=True, cwd=self.dir).stdout.decode().split())

        return complete

    def test_completion_of_names(self):
        """Names that others chose are no shell of who presses TAB."""
        row = "u:/`touch${IFS}x`:f $(touch${IFS}x) $(touch${IFS}x) ringbuf"
        complete = self.completer(f"cat <<'END'\n1 2 3 4\n{row}\nu:/bin/a-b:f kprobe_entry .bss ringbuf\nEND")
        for words, offered in (
            (("trace", "-e", "u"), "u:/bin/a-b:f"),
            (("hook", "list", "u"), "u:/bin/a-b:f"),
            (("hook", "test", "u"), "u:/bin/a-b:f"),
            (("pass", "test", "--pass", ""), "kprobe_entry"),
            (("map", "dump", "."), ".bss"),
            (("ring", "read", "."), ".bss"),
        ):
            self.assertEqual(complete("gpuprobectl", *words), {offered}, words)
        self.assertFalse((self.dir / "x").exists())

    def test_completion(self):
        os.symlink(CTL, self.dir / "gpuprobectl")
        self.ctl("attach", self.object)
        complete = self.completer(f'exec "{CTL}" --socket "{self.socket}" "$@"')
        self.assertEqual(complete("gpuprobectl", "sta"), {"status"})
        named = re.findall(r"^  ([a-z]+) ", self.run_ctl("--help"), re.M)
        self.assertEqual(complete("gpuprobectl", "") - {"--json", "--pretty", "--session", "--socket", "--help", "--version"}, set(named))
        self.assertEqual(
            complete("gpuprobectl", "map", ""),
            {"list", "dump", "update", "delete", "export", "unexport", "exports", "--json", "--pretty", "--session", "--socket", "--help", "--version"},
        )
        self.assertEqual(complete("gpuprobectl", "--json", "map", "dump", "c"), {"counter"})
        self.assertEqual(complete("gpuprobectl", "detach", "1"), {"1"})
        self.assertEqual(complete("gpuprobectl", "attach", "--k"), {"--kernel"})
        self.assertEqual(complete("gpuprobectl", "attach", "--s"), {"--spaces", "--shared", "--session", "--socket"})
        self.assertEqual(complete("gpuprobectl", "attach", "--spaces", "g"), {"global", "generic"})
        self.assertEqual(complete("gpuprobectl", "kernel", "s"), {"show"})
        self.assertEqual(complete("gpuprobectl", "program", "show", "c"), {"cuda__count"})
        self.assertEqual(complete("gpuprobectl", "attach", "--engine", "=", ""), {"auto", "ptx", "sanitizer"})
        self.assertEqual(complete("gpuprobectl", "kernel", "show", "0"), {"00000000000000ab", "00000000000000cd"})
        self.assertEqual(complete("gpuprobectl", "attach", "pro"), {"prog.o"})
        self.assertEqual(complete("gpuprobectl", "attach", "--uid", "=", "roo"), {"root"})
        self.assertEqual(complete("gpuprobectl", "map", "dump", "--merge", "=", "l"), {"latest"})
        self.assertEqual(complete("gpuprobectl", "log", "--object", ""), {"72"})
        self.assertEqual(complete("gpuprobectl", "cache", "l"), {"list"})
        own = {path.stem for path in pathlib.Path("/etc/gpuprobe/profiles").glob("*.conf")}
        self.assertEqual(complete("gpuprobectl", "trace", "--profile", ""), {"bench", "dev", "driver", "latency", "launches", "memory", "prod"} | own)
        self.assertEqual(complete("gpuprobectl", "map", "unexport", "--"), complete("gpuprobectl", "map", "exports", "--"))
        self.assertEqual(complete("gpuprobectl", "map", "unexport", "m"), {"m"})
        # what --help tells is what completion offers, and the manual has it
        manual = (pathlib.Path(COMPLETION).parents[2] / "docs/gpuprobectl.1.scd").read_text()
        common = {"--json", "--pretty", "--session", "--socket", "--help", "--version"}
        offered = {}
        for words in (
            ["attach"],
            ["detach"],
            ["list"],
            ["status"],
            ["why"],
            ["kernel", "list"],
            ["kernel", "show"],
            ["program", "show"],
            ["map", "list"],
            ["map", "dump"],
            ["ring", "read"],
            ["run"],
            ["log"],
            ["pass", "list"],
            ["pass", "test"],
            ["shim", "enable"],
            ["shim", "disable"],
            ["shim", "status"],
            ["shim", "cdi"],
            ["doctor"],
            ["cache", "list"],
        ):
            options = complete("gpuprobectl", *words, "--")
            self.assertLessEqual(common, options, words)
            offered.setdefault(words[0], set()).update(options - common)
        for command, options in offered.items():
            told = set(re.findall(r"--[a-z][a-z-]+", self.run_ctl(*command.split(), "--help")))
            self.assertEqual(told - common, options, command)
            for option in options:
                self.assertRegex(manual, re.escape(option) + r"\b", command)


class Map(Case):
    def test_list(self):
        lines = self.ctl("map", "list").splitlines()
        self.assertEqual(lines[0].split(), "ID OBJECT NAME TYPE KEY VALUE ENTRIES WRITTEN LOST".split())
        self.assertEqual(lines[1].split(), "1 1 counter gpu_array 4 8 1 - -".split())
        self.assertEqual(lines[10].split(), "10 1 events ringbuf 4 0 4096 5000000000 7".split())
        self.assertEqual(self.json("map", "list", "--wide"), self.json("map", "list"))
        self.ctl("map", "list", "x", status=USAGE, stderr="map list takes no argument, but got x; see gpuprobectl map list --help")
        lines = self.ctl("map", "list", "--wide").splitlines()
        self.assertEqual(lines[0].split(), "ID OBJECT NAME TYPE KIND PLACE KEY VALUE ENTRIES THREADS SHARDS MERGE WRITTEN LOST INSTANCES BYTES".split())
        self.assertEqual(lines[1].split(), "1 1 counter gpu_array array device 4 8 1 - 1 sum64 - - 1 4096".split())
        self.assertEqual(lines[8].split(), "8 1 threads gpu_thread_array threads device 4 8 2 65536 1 none - - 1 4096".split())
        self.assertEqual(lines[10].split(), "10 1 events ringbuf ring device 4 0 4096 - 1 none 5000000000 7 1 4096".split())
        self.assertEqual(
            self.json("map", "list")["maps"][0],
            {
                "id": 1,
                "object": 1,
                "name": "counter",
                "type": "gpu_array",
                "key_size": 4,
                "value_size": 8,
                "max_entries": 1,
                "kind": "array",
                "place": "device",
                "shards": 1,
                "merge": "sum64",
                "instances": 1,
                "bytes": 4096,
            },
        )

    def test_update(self):
        """What is typed becomes bytes by the map's types. The fake daemon says which, if there must be no such element."""

        def sent(map_id, key, value):
            encoded = [base64.b64encode(bytes.fromhex(text)).decode() for text in (key, value)]
            return f"map {map_id} key {encoded[0]} value {encoded[1]}"

        self.assertEqual(self.ctl("map", "update", "counter", "0", "18446744073709551615"), "")
        self.assertEqual(self.json("map", "update", "counter", "0", "1", "exist"), {})
        for arguments, wanted in (
            (("counter", "0", "258"), (1, "00000000", "0201000000000000")),
            (("1", "0x0", "0x10"), (1, "00000000", "1000000000000000")),
            (("plain", "1", "hex 01 02 03 4 5 6 0x7 ff"), (4, "01000000", "01020304050607ff")),
            (("plain", "1", "0102030405060708"), (4, "01000000", "0102030405060708")),
            (("plain", "1", "5"), (4, "01000000", "0500000000000000")),
            (("percpu", "1", "-2"), (3, "01000000", "feffffffffffffff")),
        ):
            self.ctl("map", "update", *arguments, "noexist", status=ERROR, stderr=sent(*wanted))
        # what is printed can be typed, in either form
        raw = self.json("map", "dump", "--raw", "struct")["entries"][0]["value"]
        dumped = self.ctl("map", "dump", "struct").splitlines()[0].split(": ", 1)[1]
        for text in dumped, json.dumps(self.json("map", "dump", "struct")["entries"][0]["value"]):
            self.ctl("map", "update", "struct", "0", text, "noexist", status=ERROR, stderr=sent(2, "00000000", raw))
        self.assertEqual(self.ctl("map", "delete", "counter", "3"), "")
        for arguments in ("update", "counter", "10", "0", "exist"), ("delete", "counter", "10"):
            self.ctl("map", *arguments, status=NOT_FOUND, stderr="the map counter has no such element")
        self.ctl("map", "delete", "counter", "9", status=ERROR, stderr="map 1 key CQAAAA== value -")
        for words, status, arguments in (
            ("value x: x is not a whole number", USAGE, ("update", "counter", "0", "x")),
            ("key 4294967296: 4294967296 does not fit into 32 bits", USAGE, ("update", "counter", "4294967296", "0")),
            ("value hex 01: expected 8 bytes in hexadecimal behind hex, as in: hex 01 02 ff", USAGE, ("update", "counter", "0", "hex 01")),
            ("map update: never is none of any, noexist and exist; see gpuprobectl map update --help", USAGE, ("update", "counter", "0", "0", "never")),
            ("map delete takes a map and a key: put each into quotes; see gpuprobectl map delete --help", USAGE, ("delete", "counter")),
            ("events is a ring: gpuprobectl ring read takes its records", ERROR, ("update", "events", "0", "0")),
            ("there is no map none; gpuprobectl map list shows them", NOT_FOUND, ("update", "none", "0", "0")),
        ):
            self.ctl("map", *arguments, status=status, stderr=words)

    def test_scalar(self):
        self.assertEqual(self.ctl("map", "dump", "counter"), "0: 18446744073709551615\n")
        self.assertEqual(self.ctl("map", "dump", "1"), "0: 18446744073709551615\n")
        self.assertEqual(self.json("map", "dump", "counter")["entries"], [{"key": 0, "value": 18446744073709551615}])
        self.assertEqual(self.ctl("map", "dump", "--raw", "counter"), "00000000: ffffffffffffffff\n")
        self.assertEqual(self.json("map", "dump", "--raw", "counter")["entries"], [{"key": "00000000", "value": "f" * 16}])
        self.assertEqual(self.ctl("map", "dump", "empty"), "")
        self.assertEqual(self.json("map", "dump", "empty")["entries"], [])

    def test_top(self):
        self.assertEqual(self.ctl("map", "dump", "--top=3", "large"), "99997: 199994\n99998: 199996\n99999: 199998\n")
        self.assertEqual(self.ctl("map", "dump", "--top=1", "percpu"), "0: 1, -2, 3\n")  # the sum of the SMs
        self.assertEqual(self.ctl("map", "dump", "--top=9", "pairs"), "{.x = 8, .y = RED}: 1\n{.x = 7, .y = GREEN}: 1, -2, 3\n")
        self.assertEqual(self.ctl("map", "dump", "--top=1", "threads"), "[1] thread 0: 9\n")
        self.assertIn("0: {.a = 1,", self.ctl("map", "dump", "--top=1", "struct"))  # its first number
        self.assertEqual(self.ctl("map", "dump", "--top=1", "empty"), "")
        self.assertEqual(self.json("map", "dump", "--top=2", "large")["entries"], [{"key": key, "value": 2 * key} for key in (99998, 99999)])
        self.assertEqual(len(self.json("map", "dump", "--top=2", "--pretty", "large")["entries"]), 2)

    def test_histogram(self):
        def bar(bounds, n, most):
            return f"{bounds:16} {n:8} |{'@' * (52 * n // most):52}|\n"

        self.assertEqual(self.ctl("map", "dump", "--hist", "percpu"), bar("[0, 2)", 2, 2) + bar("[2, 4)", 1, 2))
        self.assertEqual(self.ctl("map", "dump", "--hist", "threads"), bar("[0, 2)", 1, 9) + bar("[2, 4)", 9, 9))
        pairs = "{.y = RED}:\n" + bar("[256, 512)", 1, 1) + "\n{.y = GREEN}:\n" + bar("[128, 256)", 2, 2)
        self.assertEqual(self.ctl("map", "dump", "--hist", "pairs"), pairs)
        self.assertEqual(self.ctl("map", "dump", "--hist=x", "pairs"), pairs)
        self.assertEqual(self.ctl("map", "dump", "--hist", "struct"), "0:\n" + bar("[0, 2)", 7, 8) + bar("[2, 4)", 8, 8))  # its array; empty ones are left out
        self.assertEqual(self.ctl("map", "dump", "--hist", "empty"), "")
        for option in "--json", "--pretty":
            output = self.json(option, "map", "dump", "--hist", "pairs")
            self.assertEqual(output["map"]["name"], "pairs")
            self.assertEqual(
                output["histograms"],
                [{"key": {"y": "RED"}, "buckets": [{"min": 256, "count": 1}]}, {"key": {"y": "GREEN"}, "buckets": [{"min": 128, "count": 2}]}],
            )
        self.assertEqual(self.json("map", "dump", "--hist", "percpu")["histograms"], [{"buckets": [{"min": 0, "count": 2}, {"min": 2, "count": 1}]}])
        for arguments, text in (
            (("--hist=y", "pairs"), "--hist: the key has no number y"),
            (("--hist=x", "percpu"), "--hist: the key has no number x"),
            (("--hist", "plain"), "--hist: the values are no numbers, and no arrays of numbers"),
            (("--hist", ".bss"), "--hist: the values are no numbers, and no arrays of numbers"),
            (("--hist", "large"), "--hist: a key has the bucket 64, but a histogram in powers of two has those from 0 to 63"),
        ):
            for option in (), ("--json",):
                self.assertEqual(self.ctl("map", "dump", *option, *arguments, status=ERROR, stderr=text), "")
        see = "; see gpuprobectl map dump --help"
        for arguments, text in (
            (("--top=2", "--hist"), "map dump takes --hist or --top, not both"),
            (("--raw", "--hist"), "map dump takes --hist or --raw, not both"),
            (("--top=1", "--per-process"), "map dump takes --top or --per-process, not both"),
            (("--top=0",), "--top: 0 is not a number from 1 up"),
            (("--watch=x",), "--watch: x is not a number from 1 up"),
            (("--watch=86401",), "--watch: at most a day, 86400 seconds"),
        ):
            self.ctl("map", "dump", *arguments, "counter", status=USAGE, stderr=text + see)

    def test_watch(self):
        for option, end in ((), "\n"), (("--json",), ""):
            process = subprocess.Popen([CTL, "--socket", self.socket, "map", "dump", *option, "--watch", "threads"], stdout=subprocess.PIPE, text=True)
            for number in range(2):
                if number:
                    self.assertEqual(end and process.stdout.readline(), end)
                line = process.stdout.readline()
                if option:
                    self.assertEqual(len(json.loads(line)["entries"]), 2)
                else:
                    self.assertEqual(line + process.stdout.readline(), "[0] thread 5: 1\n[1] thread 0: 9\n")
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
            self.assertEqual(process.returncode, OK)
        self.ctl("map", "dump", "--watch", "none", status=NOT_FOUND, stderr="there is no map none; gpuprobectl map list shows them")

    def test_per_process(self):
        self.assertEqual(self.ctl("map", "dump", "--per-process", "counter"), "process 77:\n  0: 5\nprocess 78:\n  0: 6\n")
        self.assertEqual(
            self.json("map", "dump", "--per-process", "counter")["entries"], [{"pid": 77, "key": 0, "value": 5}, {"pid": 78, "key": 0, "value": 6}]
        )

    def test_threads(self):
        self.assertEqual(self.ctl("map", "dump", "threads"), "[0] thread 5: 1\n[1] thread 0: 9\n")
        self.assertEqual(self.json("map", "dump", "threads")["entries"], [{"thread": 5, "key": 0, "value": 1}, {"thread": 0, "key": 1, "value": 9}])
        self.assertEqual(
            self.ctl("map", "dump", "--per-process", "threads"), "process 77:\n  [0] thread 5: 1\n  [1] thread 0: 9\nprocesses together:\n  [1] thread 0: 3\n"
        )
        self.assertEqual(
            self.json("map", "dump", "--per-process", "threads")["entries"][1:],
            [{"pid": 77, "thread": 0, "key": 1, "value": 9}, {"thread": 0, "key": 1, "value": 3}],
        )
        self.assertEqual(self.ctl("map", "dump", "--raw", "threads").splitlines()[0], "[00000000] thread 5: 0100000000000000")

    def test_hash(self):
        self.assertEqual(self.ctl("map", "dump", "pairs"), "{.x = 7, .y = GREEN}: 1, -2, 3\n{.x = 8, .y = RED}: 1\n")
        self.assertEqual(self.ctl("map", "dump", "pairs", "--merge=sum"), self.ctl("map", "dump", "pairs"))
        self.assertEqual(self.ctl("map", "dump", "pairs", "--merge=latest"), "{.x = 7, .y = GREEN}: 1\n{.x = 8, .y = RED}: 1\n")
        self.assertEqual(
            self.json("map", "dump", "pairs")["entries"], [{"key": {"x": 7, "y": "GREEN"}, "values": [1, -2, 3]}, {"key": {"x": 8, "y": "RED"}, "values": [1]}]
        )
        self.assertEqual(self.ctl("map", "dump", "--raw", "pairs").splitlines()[1], "0800000000000000: 0100000000000000")

    def test_struct(self):
        first = '0: {.a = 1, .b = -2, .name = "a,(b)", .color = GREEN, .low = 5, .high = 100, .list = [7, 8], .u = 1069547520, .f = 1.5, .flag = true}\n'
        second = '1: {.a = 0, .b = 0, .name = "", .color = RED, .low = 0, .high = 0, .list = [0, 0], .u = 0, .f = 0, .flag = false}\n'
        self.assertEqual(self.ctl("map", "dump", "struct"), first + second)
        self.assertEqual(self.ctl("map", "dump", "struct", "--nonzero"), first)
        output = self.json("map", "dump", "struct")
        self.assertEqual(output["map"]["name"], "struct")
        self.assertEqual(
            output["entries"][0],
            {
                "key": 0,
                "value": {"a": 1, "b": -2, "name": "a,(b)", "color": "GREEN", "low": 5, "high": 100, "list": [7, 8], "u": 1069547520, "f": 1.5, "flag": True},
            },
        )
        pretty = self.ctl("map", "dump", "struct", "--pretty")
        self.assertEqual(json.loads(pretty), output)
        self.assertGreater(pretty.count("\n"), 5)

    def test_section(self):
        self.assertEqual(self.ctl("map", "dump", ".bss"), "0: {.entered = 512, .pairs = [{.x = 7, .y = GREEN}, {.x = 8, .y = RED}]}\n")
        self.assertEqual(
            self.json("map", "dump", ".bss")["entries"], [{"key": 0, "value": {"entered": 512, "pairs": [{"x": 7, "y": "GREEN"}, {"x": 8, "y": "RED"}]}}]
        )
        self.assertEqual(self.ctl("map", "dump", "--raw", ".bss"), "00000000: 000200000000000007000000010000000800000000000000\n")

    def test_others(self):
        self.assertEqual(self.ctl("map", "dump", "percpu"), "0: 1, -2, 3\n1: 1\n")
        self.assertEqual(self.json("map", "dump", "percpu")["entries"], [{"key": 0, "values": [1, -2, 3]}, {"key": 1, "values": [1]}])
        self.assertEqual(self.ctl("map", "dump", "plain"), "00000000: 0500000000000000\n")
        self.assertEqual(self.ctl("map", "dump", "misfit"), "0: 05000000\n")

    def test_errors(self):
        self.ctl("map", "dump", "nothing", status=NOT_FOUND, stderr="there is no map nothing; gpuprobectl map list shows them")
        self.ctl("map", "dump", "twice", status=ERROR, stderr="several maps have the name twice; say which by its id: 3, 14")
        self.ctl("map", "dump", "theirs", status=PERMISSION, stderr="not permitted: it is of uid 1000")
        self.ctl("map", status=USAGE, stderr="map: list or dump or update or delete or export or unexport or exports?; see gpuprobectl map --help")
        self.ctl("map", "x", status=USAGE, stderr="map has no command x; see gpuprobectl map --help")
        self.ctl("map", "dump", status=USAGE, stderr="map dump: which map?; see gpuprobectl map dump --help")
        self.ctl("map", "dump", "a", "b", status=USAGE, stderr="map dump takes one map, but got b too; see gpuprobectl map dump --help")
        self.ctl("map", "dump", "--merge=none", "a", status=USAGE, stderr="--merge: none is neither sum nor latest; see gpuprobectl map dump --help")
        self.ctl("map", "dump", "--pid", "a", status=USAGE, stderr="map dump: unknown option --pid; see gpuprobectl map dump --help")
        self.ctl("ring", "read", "a", "-n", status=USAGE, stderr="ring read: option -n requires a value; see gpuprobectl ring read --help")

    def test_stream(self):
        lines = self.ctl("map", "dump", "large").splitlines()
        self.assertEqual(len(lines), 100000)
        self.assertEqual(lines[-1], "99999: 199998")
        entries = self.json("map", "dump", "large")["entries"]
        self.assertEqual(entries[65536], {"key": 65536, "value": 131072})
        self.assertEqual(len(entries), 100000)

    def test_head(self):
        """Whoever closes the pipe early hears nothing, and the daemon goes on."""
        for ignored in False, True:

            def prepare(ignored=ignored):
                signal.signal(signal.SIGPIPE, signal.SIG_IGN if ignored else signal.SIG_DFL)

            process = subprocess.Popen(
                [CTL, "--socket", self.socket, "map", "dump", "large"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=prepare
            )
            self.assertEqual(process.stdout.readline(), b"0: 0\n")
            process.stdout.close()
            self.assertEqual(process.stderr.read(), b"")
            self.assertEqual(process.wait(), -signal.SIGPIPE)
            process.stderr.close()
        self.assertEqual(self.ctl("map", "dump", "counter"), "0: 18446744073709551615\n")


class Connection(Case):
    def test_nobody(self):
        path = str(self.dir / "other")
        self.run_ctl("--socket", path, "list", status=UNREACHABLE, stderr=f"{path}: no daemon answers there: No such file or directory")
        self.stop_here()
        self.ctl("list", status=UNREACHABLE, stderr=f"{self.socket}: no daemon answers there: Connection refused")
        self.run_ctl("--socket", "x" * 200, "list", status=USAGE, stderr="x" * 200 + ": too long for a socket")

    def stop_here(self):
        self.daemon.kill()
        self.daemon.wait()

    def test_permission(self):
        if os.getuid() != 0:
            self.skipTest("only root can become somebody else")
        os.chmod(self.dir, 0o755)
        os.chmod(self.socket, 0o600)
        program = self.dir / "gpuprobectl"  # the build folder may be root's alone
        shutil.copy(CTL, program)
        self.ctl(
            "list",
            program=program,
            status=PERMISSION,
            user=65534,
            group=65534,
            extra_groups=[],
            stderr=f"{self.socket}: Permission denied: you may not talk to this daemon; try sudo",
        )

    def session(self, name, mode=0o700):
        """Makes the directory of a session daemon, with its socket, as proto/paths.h says."""
        run = f"/run/user/{os.getuid()}"
        path = pathlib.Path((f"{run}/gpuprobe" if os.path.isdir(run) else f"/tmp/gpuprobe-{os.getuid()}") + f"-{name}")
        path.mkdir(mode)
        path.chmod(mode)
        self.addCleanup(shutil.rmtree, path)
        daemon = subprocess.Popen([DAEMON, str(path / "io.gpuprobe.control")], stdout=subprocess.PIPE)
        self.addCleanup(daemon.stdout.close)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.kill)
        self.assertEqual(daemon.stdout.readline(), b"ready\n")
        return path

    def test_session(self):
        name = f"test_{os.getpid()}"
        path = self.session(name)
        for args, env in (["--session=" + name], {}), ([], {"GPUPROBE_SESSION": name}):
            self.assertIn(f"at {path}/io.gpuprobe.control\n", self.run_ctl(*args, "status", env=env))
        self.assertIn(f"at {path}/", self.run_ctl("status", f"--session={name}", env={"GPUPROBE_SESSION": "other"}))
        path.chmod(0o755)
        text = f"no session daemon at {path}/io.gpuprobe.control: its directory is not one of yours with mode 0700; start one with: gpuprobed --session={name}"
        self.run_ctl("--session=" + name, "status", status=UNREACHABLE, stderr=text)

    def test_no_session(self):
        self.assertIn(f"start one with: gpuprobed --session=none{os.getpid()}\n", self.error("--session=none" + str(os.getpid()), "list", status=UNREACHABLE))
        for name in "a/b", "../x", "x" * 33, "a b":
            text = "the name of a session has letters, digits and _, at most 32"
            self.run_ctl(f"--session={name}", "list", status=USAGE, stderr=f"{name}: {text}; see gpuprobectl --help")
            self.run_ctl("list", env={"GPUPROBE_SESSION": name}, status=USAGE, stderr=f"GPUPROBE_SESSION={name}: {text}")

    def error(self, *args, status):
        done = subprocess.run([CTL, *args], capture_output=True, timeout=60)
        self.assertEqual(done.returncode, status)
        return done.stderr.decode()

    def test_not_again(self):
        """What a daemon that hangs up may have done is not asked for a second time; what only looks is."""
        for arguments, calls in ((("map", "unexport", "m"), 1), (("detach", "1"), 1), (("list",), 2)):
            path = str(self.dir / "hangs-up")
            methods = []
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(path)
                listener.listen()
                listener.settimeout(60)
                ctl = subprocess.Popen([CTL, "--socket", path, *arguments], stderr=subprocess.PIPE)
                for _ in range(calls):
                    connection, _ = listener.accept()
                    methods.append(json.loads(connection.recv(65536)[:-1])["method"])
                    connection.close()
                os.remove(path)
            _, err = ctl.communicate(timeout=60)
            self.assertEqual(ctl.returncode, UNREACHABLE, arguments)
            self.assertEqual((len(methods), len(set(methods))), (calls, 1))
            self.assertEqual(b"shows whether it had done it" in err, calls == 1, err)

    def bad_daemon(self, answer):
        """A daemon that reads something, says @answer and hangs up."""
        path = str(self.dir / "bad")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()

        def serve():
            connection, _ = listener.accept()
            connection.recv(65536)
            connection.sendall(answer)
            connection.close()
            listener.close()
            os.remove(path)

        thread = threading.Thread(target=serve)
        thread.start()
        self.addCleanup(thread.join)
        return path

    def test_bad_daemon(self):
        version = "is it of another version?"
        cases = (
            (b"", UNREACHABLE, "the daemon hung up; its log says why: standard error of gpuprobed"),
            (b'{"parameters":', UNREACHABLE, "the daemon hung up; its log says why: standard error of gpuprobed"),
            (b"HTTP/1.1 400 Bad Request\0", ERROR, "what answers there does not talk varlink"),
            (b'{"parameters":{"attachments":[]},"continues":true}\0', ERROR, "what answers there does not talk varlink"),
            (b"{}\0", ERROR, f"the daemon's answer to List is not understood (attachments: missing): {version}"),
            (
                b'{"parameters":{"attachments":[{"id":"1"}]}}\0',
                ERROR,
                f"the daemon's answer to List is not understood (attachments[0].id: not an int): {version}",
            ),
            (b'{"error":"org.example.What","parameters":{"a":1}}\0', ERROR, 'unknown error org.example.What {"a":1}'),
            (b'{"error":"io.gpuprobe.control.NotFound"}\0', ERROR, "unknown error io.gpuprobe.control.NotFound {}"),
            (b'{"parameters":{"attachments":[],"later":1}}\0', OK, ""),
        )
        for answer, status, text in cases:
            with self.subTest(answer=answer):
                path = self.bad_daemon(answer)
                self.run_ctl("--socket", path, "list", status=status, stderr=text and f"{path}: {text}")
                self.doCleanups_threads()

    def doCleanups_threads(self):
        for thread in threading.enumerate():
            if thread is not threading.current_thread():
                thread.join(10)

    def test_bad_dump(self):
        entry = (
            '{"parameters":{"map":{"id":1,"object":1,"name":"m","type":"array","key_size":4,"value_size":4,"max_entries":1,'
            '"kind":"array","place":"device","shards":1,"merge":"none","instances":0,"bytes":0},"entries":[{"key":"%s","values":["AAAAAA=="]}],"btf":"%s",'
            '"btf_key_type":1,"btf_value_type":77}}\0'
        )
        path = self.bad_daemon((entry % ("!", "")).encode())
        self.run_ctl("--socket", path, "map", "dump", "m", status=ERROR, stderr="the daemon sent an element that is not base64")
        self.doCleanups_threads()
        path = self.bad_daemon((entry % ("AQAAAA==", "AAAA")).encode())
        self.assertEqual(self.run_ctl("--socket", path, "map", "dump", "m"), "01000000: 00000000\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
