#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test-doctor.py GPUPROBECTL FAKE_DAEMON SHIM: each check of doctor in a root folder made for it, fine and not; what can be tried only by doing it, under
a filter of system calls; the daemon's own; the output. Needs root."""

import ctypes
import json
import os
import pty
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

CTL, DAEMON, SHIM = (os.path.abspath(path) for path in sys.argv[1:4])
OK, ERROR, USAGE = range(3)
BPF, PROG_LOAD, LINK_CREATE = 321, 5, 28
EPERM, EINVAL, ENOSYS = 1, 22, 38


def refuse(command, error):
    """For a child: bpf(2) with this command fails."""
    allow, fail = 0x7FFF0000, 0x50000 | error
    program = [(0x20, 0, 0, 0), (0x15, 0, 3, BPF), (0x20, 0, 0, 16), (0x15, 0, 1, command), (0x06, 0, 0, fail), (0x06, 0, 0, allow)]
    code = b"".join(struct.pack("HBBI", *line) for line in program)
    buffer = ctypes.create_string_buffer(code)
    header = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, header, 0, 0):
        os._exit(99)


class Case(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="test-doctor-", dir="/var/tmp")
        self.addCleanup(shutil.rmtree, self.root)
        os.chmod(self.root, 0o755)

    def write(self, path, text="", mode=0o644):
        path = self.root + path
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        os.chmod(path, mode)

    def link(self, path, target):
        path = self.root + path
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.lexists(path):
            os.unlink(path)
        os.symlink(target, path)

    def remove(self, path):
        path = self.root + path
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)

    def run_ctl(self, *arguments, status=OK, environment=None, error="", **more):
        done = subprocess.run(
            [CTL, *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", **(environment or {})},
            **more,
        )
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        if error is not None:
            self.assertEqual(done.stderr, error and f"gpuprobectl: {error}\n")
        return done.stdout

    def check(self, name, state, found, todo=None, live=False, **more):
        """Runs one check and compares: found and todo are what the texts have in them (todo None: it must be empty)."""
        root = [] if live else ["--root", self.root]
        out = json.loads(self.run_ctl("doctor", "--json", "--only", name, *root, status=ERROR if state == "failed" else OK, **more))
        self.assertEqual(len(out["checks"]), 1, out)
        self.assertEqual(out[state], 1)
        check = out["checks"][0]
        self.assertEqual((check["id"], check["state"]), (name, state), check)
        self.assertIn(found, check["found"])
        self.assertIn(todo, check["todo"]) if todo else self.assertEqual(check["todo"], "")


class Kernel(Case):
    def test_release(self):
        self.check("kernel.release", "unknown", "does not tell", "/proc")
        for text, state, todo in (
            ("6.18.1-x\n", "ok", None),
            ("6.1.0-40-amd64\n", "ok", None),
            ("5.8.0\n", "ok", None),
            ("5.7.19\n", "failed", "5.8"),
            ("4.19.0\n", "failed", "5.8"),
        ):
            self.write("/proc/sys/kernel/osrelease", text)
            self.check("kernel.release", state, text.strip(), todo)
        self.check("kernel.release", "ok", os.uname().release, live=True)
        self.assertEqual(json.loads(self.run_ctl("doctor", "--json", "--only=kernel.[kmr]*"))["unknown"], 0)  # all that is in /proc can be read

    def test_files(self):
        self.check("kernel.btf", "warning", "no /sys/kernel/btf", "CONFIG_DEBUG_INFO_BTF")
        self.write("/sys/kernel/btf/vmlinux", bytes(2048))
        self.check("kernel.btf", "ok", "2 KiB")
        self.check("kernel.uprobe", "warning", "no uprobe", "CONFIG_UPROBE_EVENTS")
        self.write("/sys/bus/event_source/devices/uprobe/type", "8\n")
        self.check("kernel.uprobe", "ok", "type 8")
        self.check("kernel.tracefs", "warning", "not mounted", "mount -t tracefs")
        self.write("/sys/kernel/debug/tracing/events/sched/x")
        self.check("kernel.tracefs", "ok", "/sys/kernel/debug/tracing")
        self.write("/sys/kernel/tracing/events/sched/x")
        self.check("kernel.tracefs", "ok", "/sys/kernel/tracing")

    def test_lockdown(self):
        self.check("kernel.lockdown", "ok", "no lockdown")
        for text, state, found, todo in (
            ("[none] integrity confidentiality\n", "ok", "none", None),
            ("none [integrity] confidentiality\n", "ok", "integrity", None),
            ("none integrity [confidentiality]\n", "warning", "confidentiality", "lockdown=integrity"),
        ):
            self.write("/sys/kernel/security/lockdown", text)
            self.check("kernel.lockdown", state, found, todo)

    def test_levels(self):
        self.check("kernel.perf-paranoid", "warning", "no performance events", "CONFIG_PERF_EVENTS")
        self.check("kernel.kptr-restrict", "unknown", "does not tell", "/proc")
        for level, paranoid, kptr in ((-1, "ok", "ok"), (1, "ok", "ok"), (2, "ok", "warning"), (4, "warning", "warning")):
            self.write("/proc/sys/kernel/perf_event_paranoid", f"{level}\n")
            self.write("/proc/sys/kernel/kptr_restrict", f"{level}\n")
            self.check("kernel.perf-paranoid", paranoid, str(level), "sysctl kernel.perf_event_paranoid=2" if paranoid == "warning" else None)
            self.check("kernel.kptr-restrict", kptr, str(level), "sysctl kernel.kptr_restrict=1" if kptr == "warning" else None)

    def test_memlock(self):
        self.write("/proc/sys/kernel/osrelease", "5.11.0\n")
        self.check("kernel.memlock", "ok", "does not charge")
        self.write("/proc/sys/kernel/osrelease", "5.10.0\n")
        self.check("kernel.memlock", "unknown", "does not tell", "/proc")
        self.write("/proc/self/limits", "Limit   Soft  Hard  Units\nMax locked memory         8388608   8388608  bytes\n")
        self.check("kernel.memlock", "warning", "8388608 bytes", "ulimit -l unlimited")
        self.write("/proc/self/limits", "Max locked memory         unlimited   unlimited  bytes\n")
        self.check("kernel.memlock", "ok", "unlimited")

    def test_bpf(self):
        for name in ("kernel.bpf", "kernel.uprobe-multi"):
            self.check(name, "skipped", "does not run")
            self.check(name, "skipped", "only root", "as root", live=True, user=65534, group=65534, extra_groups=[])
        out = json.loads(subprocess.run([CTL, "doctor", "--json", "--only=kernel.bpf"], capture_output=True, text=True, check=False).stdout)
        if out["ok"] != 1:
            self.skipTest(f"eBPF is not to be had here: {out}")
        self.check("kernel.bpf", "ok", "verified", live=True)
        self.check("kernel.bpf", "failed", "although this is root", "container", live=True, preexec_fn=lambda: refuse(PROG_LOAD, EPERM))
        self.check("kernel.bpf", "failed", "cannot be loaded", "CONFIG_BPF_SYSCALL", live=True, preexec_fn=lambda: refuse(PROG_LOAD, ENOSYS))
        self.check("kernel.bpf", "warning", "a ring cannot be made", "5.8", live=True, preexec_fn=lambda: refuse(0, EINVAL))
        self.check("kernel.uprobe-multi", "skipped", "see kernel.bpf", live=True, preexec_fn=lambda: refuse(PROG_LOAD, EPERM))
        self.check("kernel.uprobe-multi", "warning", "by itself", "6.6", live=True, preexec_fn=lambda: refuse(LINK_CREATE, EINVAL))
        version = tuple(int(part) for part in re.match(r"(\d+)\.(\d+)", os.uname().release).groups())
        if version >= (6, 6):
            self.check("kernel.uprobe-multi", "ok", "one link", live=True)


UNITS = "gpuprobed.service", "gpuprobed.socket", "gpuprobed-shim.socket"


class Service(Case):
    def test_units(self):
        self.check("service.units", "warning", "not installed", "install the package")
        for unit in UNITS:
            self.write(f"/lib/systemd/system/{unit}")
        self.check("service.units", "ok", "/lib/systemd/system")
        self.link(f"/etc/systemd/system/{UNITS[1]}", "/dev/null")
        self.check("service.units", "failed", "gpuprobed.socket is masked", "systemctl unmask")
        self.remove("/etc/systemd/system")
        self.remove(f"/lib/systemd/system/{UNITS[0]}")
        self.check("service.units", "failed", "gpuprobed.service is not installed, others are", "reinstall")

    def test_enabled(self):
        self.check("service.enabled", "warning", "does not start", "systemctl enable")
        self.link("/etc/systemd/system/multi-user.target.wants/gpuprobed.service", "/lib/systemd/system/gpuprobed.service")
        self.check("service.enabled", "warning", "in part", "systemctl enable")
        for unit in UNITS[1:]:
            self.link(f"/etc/systemd/system/sockets.target.wants/{unit}", f"/lib/systemd/system/{unit}")
        self.check("service.enabled", "ok", "start at boot")

    def test_active(self):
        def says(text, code=0):
            self.write("/bin/systemctl", f"#!/bin/sh\ncat <<END\n{text}\nEND\nexit {code}\n", 0o755)
            return {"live": True, "environment": {"PATH": f"{self.root}/bin:/usr/bin:/bin"}}

        self.check("service.active", "skipped", "does not run")
        silent = "does not answer this user" if os.path.exists("/run/systemd/system") else "systemd does not run"
        self.check("service.active", "skipped", silent, **says("", 1))
        self.check("service.active", "skipped", silent, live=True, environment={"PATH": self.root})
        self.check("service.active", "ok", "active", **says("ActiveState=active\nSubState=running\nResult=success\nNRestarts=0"))
        self.check("service.active", "warning", "3 times", "journalctl", **says("ActiveState=active\nResult=success\nNRestarts=3"))
        self.check("service.active", "warning", "inactive", "systemctl enable", **says("ActiveState=inactive\nResult=success\nNRestarts=0"))
        self.check("service.active", "failed", "failed (exit-code)", "reset-failed", **says("ActiveState=failed\nResult=exit-code\nNRestarts=5"))

    def test_sockets(self):
        folder = self.root + "/run/gpuprobe"
        for name, file in (("socket.control", "io.gpuprobe.control"), ("socket.shim", "shim.sock")):
            self.check(name, "warning", "no /run/gpuprobe", "systemctl enable")
            os.makedirs(folder, 0o755)
            self.check(name, "warning", "is not there", "systemctl enable")
            self.write(f"/run/gpuprobe/{file}")
            self.check(name, "failed", "is not a socket", "remove it")
            os.unlink(f"{folder}/{file}")
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(f"{folder}/{file}")
                os.chmod(f"{folder}/{file}", 0o600)
                self.check(name, "failed", "0600", "systemctl restart")
                os.chmod(f"{folder}/{file}", 0o666)
                self.check(name, "ok", file)
                os.chmod(folder, 0o700)
                self.check(name, "failed", "0700", "systemd-tmpfiles")
            shutil.rmtree(folder)

    def test_group(self):
        self.check("caller.group", "warning", "there is no group", "systemd-sysusers")
        self.write("/etc/group", "x:x:1:\ngpuprobe:x:4711:a,nobody,b\n")
        self.check("caller.group", "ok", "root")
        nobody = {"user": 65534, "group": 65534}
        self.check("caller.group", "ok", "may attach", extra_groups=[4711], **nobody)
        self.check("caller.group", "warning", "began before", "newgrp", extra_groups=[], **nobody)
        self.write("/etc/group", "gpuprobe:x:4711:nobod,nobodys\n")
        self.check("caller.group", "warning", "not in the group", "usermod -a -G gpuprobe nobody", extra_groups=[], **nobody)


class Preload(Case):
    def test_enabled(self):
        library = "/usr/lib/gpuprobe/libgpuprobe-shim.so"
        self.check("preload.enabled", "unknown", "no /etc", "name the root")
        self.write("/etc/hosts")
        self.check("preload.enabled", "warning", "not enabled", "shim enable")
        self.write("/etc/ld.so.preload", "/other.so\n")
        self.check("preload.enabled", "warning", "other libraries", "shim enable")
        self.write("/etc/ld.so.preload", f"/other.so\n{library}\n")
        self.check("preload.enabled", "failed", "No such file", "shim disable")
        self.write(library, b"no library")
        self.check("preload.enabled", "failed", "no ELF file", "shim disable")
        shutil.copyfile(SHIM, self.root + library)
        self.check("preload.enabled", "ok", library)
        self.remove("/etc/ld.so.preload")
        self.link("/etc/ld.so.preload", "nowhere")
        self.check("preload.enabled", "failed", "cannot be read", "repair", error=None)

    def test_library(self):
        path = re.search(r"\((/.*)\) unless", self.run_ctl("shim", "--help")).group(1)
        self.check("preload.library", "warning", "No such file", "install the package")
        self.check("preload.sass", "warning", "is not there", "install the package")
        self.write(path, b"no library")
        self.check("preload.library", "failed", "no ELF file", "reinstall")
        shutil.copyfile(SHIM, self.root + path)
        self.check("preload.library", "ok", path)
        self.write(os.path.dirname(path) + "/libgpuprobe-sass.so")
        self.check("preload.sass", "ok", "libgpuprobe-sass.so")
        self.check("preload.cupti", "warning", "by events", "install the package")
        self.write(os.path.dirname(path) + "/libgpuprobe-cupti.so")
        self.check("preload.cupti", "ok", "libgpuprobe-cupti.so")
        self.check("preload.hold", "warning", "closes the driver", "install the package")
        self.write(os.path.dirname(path) + "/libgpuprobe-hold.so")
        self.check("preload.hold", "ok", "libgpuprobe-hold.so")


class Reach(Case):
    def process(self, pid, shim, namespace="1", environment=b"", comm="python3"):
        self.write(
            f"/proc/{pid}/maps", "7f0-7f1 r-xp 0 0:0 1 /usr/lib/libcuda.so.580.1\n" + ("7f2-7f3 r-xp 0 0:0 2 /usr/lib/libgpuprobe-shim.so\n" if shim else "")
        )
        self.write(f"/proc/{pid}/environ", environment)
        self.write(f"/proc/{pid}/comm", comm + "\n")
        self.link(f"/proc/{pid}/ns/mnt", f"mnt:[{namespace}]")

    def test_processes(self):
        self.link("/proc/self/ns/mnt", "mnt:[1]")
        self.write("/proc/7/maps", "7f0-7f1 r-xp 0 0:0 1 /usr/bin/sh\n")
        self.check("reach.processes", "ok", "0 CUDA processes")
        self.process(10, True)
        self.check("reach.processes", "ok", "1 CUDA processes")
        self.process(11, False, environment=b"A=1\0GPUPROBE=off\0B=2\0")
        self.check("reach.processes", "warning", "1 of 2 CUDA processes have no library of ours: 11 (python3): GPUPROBE=off", "start them again")
        self.process(11, False, namespace="2")
        self.check("reach.processes", "warning", "11 (python3): in a container", "shim cdi")
        self.process(11, False, environment=b"GPUPROBE=offline\0")
        self.check("reach.processes", "warning", "11 (python3): began before, or is set-uid", "start them again")
        for pid in range(20, 25):
            self.process(pid, False)
        self.check("reach.processes", "warning", "; ...", "start them again")

    def test_libc(self):
        self.write("/lib/ld-linux-x86-64.so.2")
        self.check("reach.libc", "ok", "glibc")
        self.write("/lib/ld-musl-x86_64.so.1")
        self.check("reach.libc", "warning", "ld-musl-x86_64.so.1", "glibc")

    def test_32_bit(self):
        self.write("/lib/ld-linux-x86-64.so.2")
        self.check("reach.class", "ok", "no loader")
        self.write("/lib/ld-linux.so.2")
        self.check("reach.class", "warning", "wrong ELF class", "LD_PRELOAD=")

    def test_containers(self):
        self.check("reach.containers", "ok", "no runtime")
        self.write("/usr/bin/podman")
        self.write("/etc/cdi/nvidia.json", "{}")
        self.check("reach.containers", "warning", "/usr/bin/podman", "shim cdi")
        self.write("/run/cdi/mine.json", '{"x":"libgpuprobe-shim.so"}')
        self.check("reach.containers", "ok", "/run/cdi/mine.json: containers that ask for its device have the library (glibc 2.17")


class Driver(Case):
    def version(self, text):
        self.write("/proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX {text}\nGCC version:  gcc version 12.2.0 (Debian)\n")

    def test_devices(self):
        self.check("driver.devices", "warning", "no GPU", "modprobe")
        self.write("/proc/driver/nvidia/gpus/0000:01:00.0/information")
        self.check("driver.devices", "failed", "no /dev/nvidia0", "nvidia-modprobe")
        self.write("/dev/nvidia0")
        self.write("/dev/nvidiactl")
        self.check("driver.devices", "failed", "/dev/nvidia-uvm is missing", "nvidia-modprobe")
        self.write("/dev/nvidia-uvm")
        self.check("driver.devices", "ok", "1 GPU")

    def test_module(self):
        self.check("driver.module", "warning", "not loaded", "modprobe")
        self.version("Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@x)  Tue Sep 23 10:11:16 UTC 2025")
        self.check("driver.module", "ok", "580.95.05, open")
        self.version("x86_64 Kernel Module  470.256.02  Thu May  2 14:37:44 UTC 2024")
        self.check("driver.module", "warning", "470.256.02", "525")

    def test_library(self):
        folder = "/usr/lib/x86_64-linux-gnu" if os.uname().machine == "x86_64" else "/usr/lib/aarch64-linux-gnu"
        self.check("driver.library", "warning", "finds no libcuda.so.1", "ldconfig")
        self.write(f"{folder}/libcuda.so.1")
        self.check("driver.library", "warning", "does not tell its version", None)
        self.write(f"{folder}/libcuda.so.580.95.05")
        self.link(f"{folder}/libcuda.so.1", "libcuda.so.580.95.05")
        self.check("driver.library", "ok", "version 580.95.05")
        self.version("Open Kernel Module for x86_64  580.95.05  Release Build")
        self.check("driver.library", "ok", "version 580.95.05")
        for version in ("580.65.06", "590.1.2"):
            self.version(f"Open Kernel Module for x86_64  {version}  Release Build")
            self.check("driver.library", "failed", "error 803", "reboot")
        self.version("Open Kernel Module for x86_64  570.1.2  Release Build")
        self.check("driver.library", "warning", "version 580.95.05", "forward compatibility")
        # the dynamic linker's cache comes first
        self.write("/opt/x/libcuda.so.570.1.2")
        self.link("/opt/x/libcuda.so.1", "libcuda.so.570.1.2")
        self.write("/etc/ld.so.cache", b"glibc-ld.so.cache1.1" + bytes(20) + b"libcuda.so.1\0/nowhere/libcuda.so.1\0libcuda.so.1\0/opt/x/libcuda.so.1\0")
        self.check("driver.library", "ok", "/opt/x/libcuda.so.1, version 570.1.2")

    def test_settings(self):
        self.check("driver.profiling", "skipped", "not loaded")
        self.write("/proc/driver/nvidia/params", "EnableMSI: 1\nRmProfilingAdminOnly: 1\n")
        self.check("driver.profiling", "warning", "for administrators", "NVreg_RestrictProfilingToAdminUsers=0")
        self.write("/proc/driver/nvidia/params", "RmProfilingAdminOnly: 0\n")
        self.check("driver.profiling", "ok", "all users")
        self.write("/proc/driver/nvidia/capabilities/gpu0/mig/x")
        self.check("driver.mig", "ok", "no GPU instances")
        self.write("/proc/driver/nvidia/capabilities/gpu0/mig/gi1/access")
        self.write("/proc/driver/nvidia/capabilities/gpu1/mig/gi3/access")
        self.check("driver.mig", "warning", "2 GPU instances", "tell us")
        self.write("/proc/9/comm", "bash\n")
        self.check("driver.mps", "ok", "does not run")
        self.write("/proc/10/comm", "nvidia-cuda-mps\n")
        self.check("driver.mps", "warning", "not tried", "nvidia-cuda-mps-control")


class Toolkit(Case):
    def test_toolkit(self):
        self.check("toolkit.cuda", "warning", "none", "CUDA_HOME")
        self.write("/usr/local/cuda/include/cuda.h", "#define CUDA_VERSION 11080\n")
        self.check("toolkit.cuda", "warning", "version 11.8", "12.0")
        self.write("/opt/x/include/cuda.h", "#define CUDA_VERSION 13000\n")
        self.check("toolkit.cuda", "ok", "/opt/x, version 13.0", environment={"CUDA_HOME": "/opt/x"})
        self.write("/opt/x/include/cuda.h", "")
        self.check("toolkit.cuda", "unknown", "/opt/x", environment={"CUDA_HOME": "/opt/x"})

    def test_libraries(self):
        self.check("toolkit.ptxcompiler", "warning", "no compiler", "gpuprobed-ptxcompiler")
        for prefix in ("/usr", "/usr/local"):
            self.write(f"{prefix}/libexec/gpuprobe/libgpuprobe-ptxcompiler.so")
        self.check("toolkit.ptxcompiler", "ok", "built in")
        self.check("toolkit.nvjitlink", "warning", "not found", "libnvjitlink")
        self.write("/usr/local/cuda/lib64/libnvJitLink.so.12")
        self.check("toolkit.nvjitlink", "ok", "libnvJitLink.so.12")
        self.check("toolkit.sanitizer", "warning", "not found", "cuda-sanitizer")
        self.write("/usr/local/cuda/compute-sanitizer/libsanitizer-public.so")
        self.check("toolkit.sanitizer", "ok", "libsanitizer-public.so")
        self.check("toolkit.cupti", "ok", "not there")
        self.write("/usr/local/cuda/lib64/libcupti.so")
        self.check("toolkit.cupti", "ok", "steps back")


class Command(Case):
    def setUp(self):
        super().setUp()
        self.socket = self.root + "/socket"
        daemon = subprocess.Popen([DAEMON, self.socket], stdout=subprocess.PIPE)
        self.addCleanup(lambda: (daemon.kill(), daemon.wait(), daemon.stdout.close()))
        self.assertEqual(daemon.stdout.readline(), b"ready\n")

    def test_daemon(self):
        out = self.run_ctl("--socket", self.socket, "doctor", "--only=daemon.*", status=ERROR)
        self.assertEqual(
            out,
            f"ok       daemon.reachable  daemon: version 0.1.0 answers at {self.socket}\n"
            "ok       daemon.fine       this: as it should be\n"
            "warning  daemon.less       that: not there\n"
            "                           -> get ?one\n"
            "failed   daemon.broken     other: gone\n"
            "                           -> mend it\n"
            "unknown  daemon.later      new: x\n"
            "2 ok, 1 warnings, 1 failed, 0 skipped, 1 unknown\n",
        )
        out = json.loads(self.run_ctl("--socket", self.socket, "doctor", "--only=daemon.l*", "--json"))
        self.assertEqual(
            out,
            {
                "checks": [
                    {"id": "daemon.less", "title": "that", "state": "warning", "found": "not there", "todo": "get \x1bone"},
                    {"id": "daemon.later", "title": "new", "state": "splendid", "found": "x", "todo": ""},
                ],
                "ok": 0,
                "warning": 1,
                "failed": 0,
                "skipped": 0,
                "unknown": 1,
            },
        )

    def test_version(self):
        """A daemon of before, which an upgrade did not restart."""
        path = self.root + "/old"
        daemon = subprocess.Popen([DAEMON, path], stdout=subprocess.PIPE, env={**os.environ, "FAKE_VERSION": "0.0.9"})
        self.addCleanup(lambda: (daemon.kill(), daemon.wait(), daemon.stdout.close()))
        self.assertEqual(daemon.stdout.readline(), b"ready\n")
        (check,) = json.loads(self.run_ctl("--socket", path, "doctor", "--only=daemon.reachable", "--json"))["checks"]
        self.assertEqual((check["state"], check["found"]), ("warning", f"version 0.0.9 answers at {path}, but gpuprobectl is of version 0.1.0"))
        self.assertIn("start it again", check["todo"])

    def test_no_daemon(self):
        self.check("daemon.reachable", "skipped", "does not run")
        path = self.root + "/none"
        out = self.run_ctl("--socket", path, "doctor", "--only=daemon.*", status=ERROR, error=f"{path}: no daemon answers there: No such file or directory")
        self.assertIn("no answer; what only the daemon can see was not looked at\n", out)
        self.assertIn("-> start gpuprobed; if it runs, its log says more", out)
        # the rest is looked at all the same, and a check of something else does not ask for the daemon
        self.assertEqual(
            self.run_ctl("--socket", path, "doctor", "--only=driver.mig", "--root", self.root),
            "ok       driver.mig  MIG: no GPU instances\n1 ok, 0 warnings, 0 failed, 0 skipped, 0 unknown\n",
        )

    def test_all(self):
        os.makedirs(self.root + "/etc")
        out = json.loads(self.run_ctl("doctor", "--json", "--root", self.root))
        ids = [check["id"] for check in out["checks"]]
        self.assertEqual(len(ids), len(set(ids)))
        self.assertEqual(sum(out[state] for state in ("ok", "warning", "failed", "skipped", "unknown")), len(ids))
        with open(__file__, encoding="utf-8") as file:
            tested = set(re.findall(r'"([a-z]+\.[a-z-]+)"', file.read()))
        self.assertLessEqual(set(ids), tested, "a check has no test")

    def test_usage(self):
        self.run_ctl("doctor", "x", status=USAGE, error="doctor takes no argument, but got x; see gpuprobectl doctor --help")
        self.run_ctl("doctor", "--only=nothing", status=USAGE, error="--only=nothing: no check has an id like that; see gpuprobectl doctor --help")
        self.run_ctl("doctor", "--root=/nowhere", status=USAGE, error="--root=/nowhere: No such file or directory; see gpuprobectl doctor --help")
        self.assertIn("Usage: gpuprobectl doctor", self.run_ctl("doctor", "--help"))

    def coloured(self, **environment):
        leader, follower = pty.openpty()
        subprocess.run([CTL, "doctor", "--only=driver.m*", "--root", self.root], stdout=follower, check=True, env={"TERM": "xterm", **environment})
        os.close(follower)
        out = os.read(leader, 65536)
        os.close(leader)
        return b"\033[" in out

    def test_colour(self):
        self.assertTrue(self.coloured())
        self.assertTrue(self.coloured(NO_COLOR=""))
        self.assertFalse(self.coloured(NO_COLOR="1"))
        self.assertFalse(self.coloured(TERM="dumb"))
        self.assertNotIn("\033", self.run_ctl("doctor", "--only=driver.m*", "--root", self.root, environment={"TERM": "xterm"}))


if os.geteuid():
    print("skipped: needs root")
    sys.exit(77)
# where any user may run it
folder = tempfile.TemporaryDirectory(prefix="test-doctor-", dir="/var/tmp")
os.chmod(folder.name, 0o755)
CTL = shutil.copy(CTL, folder.name)
unittest.main(argv=sys.argv[:1])
