# SPDX-License-Identifier: Apache-2.0
"""Runs target programs bare and under the shim. The build folder is the first argument of every test here."""

import os
import resource
import subprocess
import sys
import time

from fake_daemon import FakeDaemon

BUILD = os.path.abspath(sys.argv[1])
SHIM = os.path.join(BUILD, "shim/libgpuprobe-shim.so")
TARGETS = os.path.join(BUILD, "tests/targets")
SIM = os.path.join(BUILD, "tests/sim")
SANITIZED = os.environ.get("SHIM_SANITIZER")  # shim/tests/sanitize: by which; else None
failures = 0


def session(label):
    return f"s{os.getpid()}_{label}"


def sanitizer_options(arguments):
    """What a sanitizer cannot do in a program."""
    name, options = " ".join(arguments), {}
    if SANITIZED and name == "s-close":  # it uses the numbers of descriptors that others have, which is a race to TSan, and those of TSan itself
        options["TSAN_OPTIONS"] = ":report_bugs=0"
    if SANITIZED and name.startswith("s-trace behind"):  # TSan cannot end a thread that is cancelled where it ignores what it does
        options["TSAN_OPTIONS"] = ":ignore_noninstrumented_modules=0"
    if SANITIZED and name == "s-cupti fork":  # the parent's thread is nobody's to join in the child
        options["TSAN_OPTIONS"] = ":report_thread_leaks=0"
    if SANITIZED and ("fork" in name or name == "s-cupti namespace"):  # LSan looks for the parent's threads in the child, and says that it finds none
        options["ASAN_OPTIONS"] = ":detect_leaks=0"
    if SANITIZED and name.startswith("s-seccomp threads"):  # LSan makes one
        options["ASAN_OPTIONS"] = ":detect_leaks=0"
    return {key: os.environ.get(key, "") + value for key, value in options.items()}


def limited(size):
    """What Popen runs first in a child: no file of its is longer."""
    return None if size is None else lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def run(arguments, preload=(SHIM,), timeout=60, file_size=None, **environment):
    """(status, standard output, standard error, seconds)."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("GPUPROBE", "LD_"))}
    clean.update(sanitizer_options(arguments))
    start = time.monotonic()
    try:
        done = subprocess.run(
            [os.path.join(TARGETS, arguments[0]), *arguments[1:]],
            capture_output=True,
            text=True,
            timeout=timeout,
            preexec_fn=limited(file_size),
            env={**clean, "LD_LIBRARY_PATH": SIM, **({"LD_PRELOAD": ":".join(preload)} if preload else {}), **environment},
        )
    except subprocess.TimeoutExpired as late:
        return "hangs", str(late.stdout), str(late.stderr), timeout
    seconds = time.monotonic() - start
    daemon = FakeDaemon.by_name.get(environment.get("GPUPROBE_SESSION"))
    if daemon:
        daemon.settle()
    return done.returncode, done.stdout, done.stderr, seconds


def report(label, good, text=""):
    global failures
    failures += not good
    print(f"{'ok  ' if good else 'FAIL'} {label}{'' if good else ': ' + text}", flush=True)


def as_bare(label, bare, ours, limit=None):
    """Whether a run under the shim cannot be told from the bare one."""
    if bare[:3] != ours[:3]:
        report(label, False, f"\n  bare {bare[:3]}\n  ours {ours[:3]}")
        return False
    if limit is not None and ours[3] > bare[3] + limit:
        report(label, False, f"took {ours[3]:.1f} s, bare {bare[3]:.1f} s, allowed {limit:.1f} s more")
        return False
    return True


class Steps:
    """s-steps, one step at a time."""

    def __init__(self, name, preload=(SHIM,), **environment):
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("GPUPROBE", "LD_"))}
        self.process = subprocess.Popen(
            [os.path.join(TARGETS, "s-steps")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**clean, "LD_LIBRARY_PATH": SIM, "LD_PRELOAD": ":".join(preload), "GPUPROBE_SESSION": name, **environment},
        )

    def step(self, what):
        start = time.monotonic()
        self.process.stdin.write(what.encode())
        self.process.stdin.flush()
        line = self.process.stdout.readline().decode() if what not in "fr" else ""
        self.seconds = time.monotonic() - start
        return line == {"k": "kept 33152\n", "l": "once 33152\n", "f": "", "r": ""}[what]

    def mirrors(self):
        return mirrors(self.process)

    def end(self):
        self.process.stdin.close()
        return self.process.wait(timeout=20)


class Releasing:
    """s-steps in the midst of giving back a reference to the primary context, which lives on: between the step r and end()."""

    def __init__(self, folder):
        self.path, self.fd = os.path.join(folder, "release"), -1
        os.mkfifo(self.path)
        self.environment = {"preload": (SHIM, os.path.join(TARGETS, "libs-slow.so")), "S_SLOW_CALL": "cuDevicePrimaryCtxRelease_v2", "S_SLOW_PIPE": self.path}

    def begun(self):
        """Whether it is there; asked once."""

        def opened():
            try:
                self.fd = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:  # nobody reads yet
                pass
            return self.fd >= 0

        return within(opened)

    def end(self):
        if self.fd >= 0:
            os.close(self.fd)


def mirrors(process):
    """Whether the shim's thread is there."""
    folder = f"/proc/{process.pid}/task"
    for thread in os.listdir(folder):
        try:
            with open(f"{folder}/{thread}/comm") as file:
                if file.read() == "gpuprobe\n":
                    return True
        except OSError:  # it has just ended
            pass
    return False


def within(condition, seconds=60):
    limit = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < limit:
        time.sleep(0.02)
    return met


def end():
    print(f"{failures} failures")
    sys.exit(1 if failures else 0)
