#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Passes of the user in the pass worker: good ones, and ones that sleep, fork, allocate, crash and lie.

test-pass-worker.py WORKER
"""

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from worker_driver import Worker, memfd  # noqa: E402

WORKER = sys.argv[1]
PYTHON = "/usr/bin/python3"
PTX = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry f()\n{\n\tret;\n}\n"


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        os.chmod(cls.folder, 0o755)  # a worker of root runs as nobody

    def script(self, text, interpreter="/bin/sh", mode=0o755):
        path = os.path.join(self.folder, f"pass{len(os.listdir(self.folder))}")
        with open(path, "w") as file:
            file.write(f"#!{interpreter}\n{text}")
        os.chmod(path, mode)
        return path

    def python(self, text):
        if not os.access(PYTHON, os.X_OK):
            self.skipTest("no " + PYTHON)
        return self.script("import json, os, sys\n" + text, PYTHON)

    def request(self, executable, ptx=PTX, **members):
        """One job in a worker of its own. The reply, the output, and how long it took."""
        worker = Worker([WORKER])
        fds = [memfd(ptx.encode()), os.memfd_create("out", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)]
        message = {
            "job": "pass",
            "id": 3,
            "executable": executable,
            "attach_point": "kprobe/f",
            "input": 0,
            "output": 1,
            "timeout_ms": 5000,
            "memory_mib": 512,
            "max_output_bytes": 1 << 20,
            **members,
        }
        start = time.monotonic()
        worker.send({k: v for k, v in message.items() if v is not None}, fds)
        reply = worker.receive()
        seconds = time.monotonic() - start
        out = os.pread(fds[1], os.fstat(fds[1]).st_size, 0)
        for fd in fds:
            os.close(fd)
        self.assertEqual(worker.close(), (0, ""))
        return reply, out.decode(), seconds

    def passed(self, executable, **members):
        reply, out, _ = self.request(executable, **members)
        self.assertEqual(reply["status"], "passed", reply)
        self.assertEqual(reply["size"], len(out))
        self.assertEqual(reply["modified"], bool(out))
        return out

    def failed(self, executable, words, **members):
        reply, out, seconds = self.request(executable, **members)
        self.assertEqual((reply["status"], reply.get("error")), ("error", "pass"), reply)
        self.assertRegex(reply["message"], words)
        self.assertNotIn("\n", reply["message"])
        self.assertEqual(out, "")
        return seconds


class Good(Case):
    def test_python(self):
        path = self.python('request = json.load(sys.stdin)\njson.dump({"output_ptx": request["full_ptx"].replace("ret", "exit")}, sys.stdout)\n')
        self.assertEqual(self.passed(path), PTX.replace("ret", "exit"))

    def test_shell(self):
        self.assertEqual(self.passed(self.script('sed \'s/^{"full_ptx"/{"output_ptx"/; s/ret;/exit;/\'\n')), PTX.replace("ret;", "exit;"))

    def test_unchanged(self):
        for answer in "{}", '{"output_ptx":""}', '{"output_ptx":null}', ' {"output_ptx":"","modified":false} ':
            self.assertEqual(self.passed(self.script(f"echo '{answer}'\n")), "")

    def test_request(self):
        path = self.python(
            'request = json.load(sys.stdin)\nrequest["environment"] = dict(os.environ)\n'
            'request["fds"] = sorted(os.listdir("/proc/self/fd"))\n'
            'json.dump({"output_ptx": request.pop("full_ptx") + "//" + json.dumps(request)}, sys.stdout)\n'
        )
        out = self.passed(path, kernel="_Z1fv", parameters={"mine": [1, {"x": 2}], "full_ptx": "no"})
        self.assertTrue(out.startswith(PTX))
        request = json.loads(out[len(PTX) + 2 :])
        self.assertEqual(request.pop("environment").keys() - {"LC_CTYPE"}, {"PTX_ATTACH_POINT", "PATH", "TMPDIR"})
        self.assertLessEqual(len(request.pop("fds")), 4)
        self.assertEqual(
            request,
            {"to_patch_kernel": "_Z1fv", "global_ebpf_map_info_symbol": "map_info", "ebpf_communication_data_symbol": "constData", "mine": [1, {"x": 2}]},
        )
        request = json.loads(self.passed(path)[len(PTX) + 2 :])
        self.assertNotIn("to_patch_kernel", request)
        self.assertEqual(request["environment"]["PTX_ATTACH_POINT"], "kprobe/f")

    def test_large(self):
        """More than pipes hold, both ways; and an answer from somebody who does not read."""
        text = PTX + "//" + "x" * (8 << 20) + "\n"
        path = self.python('json.dump({"output_ptx": json.load(sys.stdin)["full_ptx"]}, sys.stdout)\n')
        self.assertEqual(self.passed(path, ptx=text, max_output_bytes=16 << 20), text)
        self.assertEqual(self.passed(self.script("echo '{}'\n"), ptx=text), "")

    def test_background(self):
        """What a pass leaves behind is gone, and does not hold us up."""
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o777)
            mark = os.path.join(folder, "alive")
            path = self.script(f"(sleep 3; touch {mark}) &\necho '{{}}'\n")
            _, _, seconds = self.request(path)
            self.assertLess(seconds, 2.5)
            time.sleep(3.5)
            self.assertFalse(os.path.exists(mark))


class Bad(Case):
    def test_exit_status(self):
        self.failed(self.script("cat > /dev/null; echo first >&2; echo second >&2; exit 66\n"), "^exit status 66: first$")
        self.failed(self.script("exit 1\n"), "^exit status 1$")
        self.failed(self.script('echo \'{"output_ptx":"x"}\'; exit 70\n'), "^exit status 70$")

    def test_not_there(self):
        self.failed("/nowhere/pass", "^exit status 127: cannot be run: No such file or directory$")
        self.failed(self.script("echo '{}'\n", mode=0o644), "^exit status 127: cannot be run: Permission denied$")
        self.failed(self.script("echo\n", interpreter="/nowhere"), "^exit status 127: cannot be run")

    def test_crash(self):
        self.failed(self.script("kill -SEGV $$\n"), r"^ended by signal 11 \(Segmentation fault\)$")
        self.failed(self.python("os.abort()\n"), "^ended by signal 6")

    def test_sleeps(self):
        for text in "sleep 100\n", "trap '' TERM INT HUP; while :; do sleep 1; done\n", "exec sleep 100 < /dev/null > /dev/null 2>&1\n":
            self.assertLess(self.failed(self.script(text), "^timed out after 300 ms$", timeout_ms=300), 5)

    def test_computes(self):
        self.failed(self.script("while :; do :; done\n"), "^timed out after 500 ms$", timeout_ms=500)

    def test_forks(self):
        """A fork bomb: a limit holds it, the deadline ends it, and nothing is left."""
        mark = f"mark{os.getpid()}"
        path = self.script(f": {mark}\nb() {{ b | b & }}\nb 2> /dev/null\nwhile :; do sleep 1; done\n")
        self.failed(path, "^(timed out after 1000 ms|exit status|ended by signal)", timeout_ms=1000)
        self.gone(path)

    def test_leaves_group(self):
        """No way out of the group that is killed."""
        path = self.python(
            "import time\nwords = []\nfor leave in os.setsid, lambda: os.setpgid(0, 0):\n"
            "    try:\n        if os.fork() == 0:\n            leave()\n            time.sleep(100)\n"
            "    except OSError as error:\n        os._exit(0)\ntime.sleep(100)\n"
        )
        self.failed(path, "^timed out", timeout_ms=700)
        self.gone(path)

    def gone(self, path):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline") as file:
                    self.assertNotIn(path, file.read())
            except OSError:
                pass

    def test_allocates(self):
        self.failed(self.python("x = bytearray(1 << 31)\n"), "^exit status 1: Traceback", memory_mib=256)

    def test_writes(self):
        self.failed(self.script("head -c 100000000 /dev/zero\n"), "^its answer is longer than 1000 bytes$", max_output_bytes=1000)
        self.failed(self.script("head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 3\n"), "^exit status 3: xxx")

    def test_garbage(self):
        words = "^its answer is not a JSON object with the string output_ptx$"
        for answer in "", "x", "[]", '{"output_ptx":3}', '{"output_ptx":""} x', '{"output_ptx":"', PTX.replace("\n", " "):
            self.failed(self.script(f"cat > /dev/null; printf '%s' '{answer}'\n"), words)
        self.failed(self.script("head -c 1000 /dev/urandom\n"), words)

    def test_not_ptx(self):
        self.failed(self.script('echo \'{"output_ptx":"no PTX"}\'\n'), r"^output_ptx, line 1: ")

    def test_validation(self):
        path = self.script('sed \'s/^{"full_ptx"/{"output_ptx"/\'\n')
        self.assertEqual(self.passed(path, required_symbols=["f"]), PTX)
        self.failed(path, "^output_ptx lacks g$", required_symbols=["f", "g"])
        self.failed(path, f"^output_ptx has {len(PTX)} bytes, at most 20 are allowed$", max_output_bytes=20)

    def test_requests(self):
        for change in (
            {"executable": None},
            {"input": 5},
            {"output": None},
            {"timeout_ms": 0},
            {"memory_mib": "1"},
            {"max_output_bytes": 0},
            {"attach_point": 3},
        ):
            reply, _, _ = self.request(**{"executable": "/bin/true", **change})
            self.assertEqual((reply["status"], reply["error"]), ("error", "internal"), reply)


class Sandbox(Case):
    def test_no_network(self):
        path = self.python(
            "import socket\nwords = []\nfor family in socket.AF_INET, socket.AF_INET6, socket.AF_UNIX:\n"
            "    try:\n        socket.socket(family)\n        words.append('open')\n"
            "    except OSError as error:\n        words.append(error.strerror)\n"
            "sys.stderr.write(','.join(words))\nsys.exit(9)\n"
        )
        self.failed(path, "^exit status 9: (Operation not permitted,?){3}$")
        # Outside it works: else this would show nothing.
        done = subprocess.run([path], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        self.assertIn("open", done.stderr)

    def test_no_privileges(self):
        path = self.python(
            "with open('/proc/self/status') as file:\n    text = file.read()\n"
            "pick = [l.split()[1] for l in text.splitlines() if l.startswith(('CapEff', 'NoNewPrivs', 'Seccomp:'))]\n"
            "sys.stderr.write(','.join(pick))\nsys.exit(9)\n"
        )
        self.failed(path, "^exit status 9: 0+,1,2$")

    def test_files(self):
        """Temporary files are all that a pass can write, whatever rights its user has."""
        for place in "/var", "/opt", "/srv", "/run", "/home", os.path.expanduser("~"):
            try:
                outside = tempfile.mkdtemp(dir=place)
            except OSError:
                continue
            os.chmod(outside, 0o777)
            break
        else:
            self.skipTest("no folder outside of /tmp")
        try:
            path = self.script(f"set -e; echo x > /dev/null; t=$(mktemp); echo x > $t; cat $t; rm $t\necho x > {outside}/file && exit 8\nexit 9\n")
            done = subprocess.run([path], capture_output=True, text=True, stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 8, done.stderr)
            os.unlink(os.path.join(outside, "file"))
            if not self.landlock():
                self.skipTest("no Landlock")
            self.failed(path, "^exit status (2|9): .*file: Permission denied$")
            self.assertEqual(os.listdir(outside), [])
        finally:
            shutil.rmtree(outside)

    def test_temporary_files(self):
        """Nothing is left of them, be the pass killed, and whatever it makes. Links are not followed."""
        with tempfile.TemporaryDirectory() as other:
            os.chmod(other, 0o777)
            file = os.path.join(other, "file")
            with open(file, "w"):
                pass
            make = f"echo $TMPDIR >&2; cd $TMPDIR; mkdir -p a/b/c; mktemp > /dev/null; mkfifo a/f; ln -s {other} a/b/l; ln -s {file} l; echo x > a/b/c/x\n"
            for text, words in (
                (make + "exit 9\n", "^exit status 9: (.*)$"),
                (make + "exec kill -9 $$\n", "^ended by signal 9 .*: (.*)$"),
                (make + f"pwd > {other}/pwd\n[ $(stat -c %a .) = 700 ] || exit 8\nsleep 100\n", "^timed out after 1000 ms$"),
            ):
                reply, _, _ = self.request(self.script(text), timeout_ms=1000)
                found = re.search(words, reply["message"])
                self.assertTrue(found, reply)
                if found.groups():
                    folder = found[1]
                else:
                    with open(f"{other}/pwd") as place:
                        folder = place.read().strip()
                self.assertRegex(folder, "^/tmp/gpuprobe-pass-")
                self.assertFalse(os.path.lexists(folder))
            self.assertTrue(os.path.exists(file))

    @staticmethod
    def landlock():
        return ctypes.CDLL(None).syscall(444, None, 0, 1) >= 1

    def test_calls(self):
        path = self.python(
            "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nwords = []\n"
            "for call in (lambda: libc.unshare(0x10000000), lambda: libc.ptrace(0, 0, 0, 0),\n"
            "             lambda: libc.mount(b'none', b'/tmp', b'tmpfs', 0, None), lambda: libc.setsid(),\n"
            "             lambda: libc.setpgid(0, 0), lambda: libc.syscall(321, 0, 0, 0)):\n"
            "    words.append('refused' if call() < 0 and ctypes.get_errno() == 1 else 'done')\n"
            "sys.stderr.write(','.join(words))\nsys.exit(9)\n"
        )
        self.failed(path, "^exit status 9: (refused,?){6}$")

    def test_children(self):
        """What a shell does with its children and its files goes on."""
        self.assertEqual(
            self.passed(
                self.script(
                    "set -e; t=$(mktemp -d); cd $t\nsleep 100 & kill $!; wait $! || [ $? -gt 128 ]\n"
                    "echo x > a; sed -i s/x/y/ a; cp -p a b; chmod 700 b; chmod +x a; [ -x a ]; [ $(cat b) = y ]\n"
                    "timeout --foreground 0.1 sleep 100 || [ $? = 124 ]; rm -r $t\necho '{}'\n"
                )
            ),
            "",
        )


class Death(Case):
    def test_worker_dies(self):
        """A worker that is killed takes the pass with it, and its temporary files, with a namespace of processes and without."""
        self.killed()
        self.killed("--no-sandbox")

    def killed(self, *options):
        place = os.path.join(tempfile.mkdtemp(), "place")
        os.chmod(os.path.dirname(place), 0o777)
        self.addCleanup(shutil.rmtree, os.path.dirname(place))
        path = self.script(f"mkdir -p $TMPDIR/a/b; echo x > $TMPDIR/a/x; echo $TMPDIR > {place}.new; mv {place}.new {place}; sleep 100 & sleep 100\n")
        worker = Worker([WORKER, *options])
        fds = [memfd(PTX.encode()), os.memfd_create("out", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)]
        worker.send(
            {
                "job": "pass",
                "id": 3,
                "executable": path,
                "attach_point": "kprobe/f",
                "input": 0,
                "output": 1,
                "timeout_ms": 50000,
                "memory_mib": 512,
                "max_output_bytes": 1 << 20,
            },
            fds,
        )
        end = time.monotonic() + 10
        while not self.alive(path) and time.monotonic() < end:
            time.sleep(0.02)
        self.assertTrue(self.alive(path))
        while not os.path.exists(place) and time.monotonic() < end:
            time.sleep(0.02)
        with open(place) as file:
            folder = file.read().strip()
        self.assertTrue(os.path.isdir(folder))
        worker.process.kill()
        worker.process.wait()
        while (self.alive(path) or os.path.exists(folder)) and time.monotonic() < end:
            time.sleep(0.02)
        self.assertFalse(self.alive(path))
        self.assertFalse(os.path.exists(folder))
        worker.socket.close()
        worker.process.stderr.close()
        for fd in fds:
            os.close(fd)

    @staticmethod
    def alive(path):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline") as file:
                    if path in file.read():
                        return True
            except OSError:
                pass
        return False


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=1)
