# SPDX-License-Identifier: Apache-2.0
"""A private daemon, and programs that run under its shim, on a machine with a GPU."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path


class Skipped(Exception):
    """What a test cannot have on this machine."""


class Session:
    """A private daemon; `with` starts and stops it."""

    serial = 0

    def __init__(self, suite, *options):
        Session.serial += 1
        self.suite = suite
        self.name = f"gpu{os.getpid()}_{Session.serial}"
        self.options = options

    def __enter__(self):
        build = self.suite.build
        self.log = open(self.suite.scratch / f"{self.name}.log", "w")
        self.daemon = subprocess.Popen(
            [build / "daemon/gpuprobed/gpuprobed", f"--session={self.name}", *self.options],
            env=self.suite.tool_env(),
            stderr=self.log,
            stdout=self.log,
            stdin=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 20
        while self.ctl("status", check=False).returncode != 0:
            if self.daemon.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the daemon did not start: " + Path(self.log.name).read_text())
            time.sleep(0.02)
        return self

    def __exit__(self, *_):
        self.daemon.send_signal(signal.SIGTERM)
        try:
            self.daemon.wait(10)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait()
        self.log.close()

    def ctl(self, *args, check=True, timeout=180):
        result = subprocess.run(
            [self.suite.build / "ctl/gpuprobectl", f"--session={self.name}", *map(str, args)],
            env=self.suite.tool_env(),
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check and result.returncode != 0:
            raise RuntimeError(f"gpuprobectl {' '.join(map(str, args))}: exit {result.returncode}: {result.stderr}")
        return result

    def json(self, *args):
        return json.loads(self.ctl("--json", *args).stdout)

    def attach(self, program="counter", kernel="vectorAdd", *args):
        return self.ctl("attach", self.suite.object(program), "--kernel", kernel, *args).stdout.split()

    def read(self, name="counter"):
        """Sum of all integers of a map."""
        total = 0
        for entry in self.json("map", "dump", name)["entries"]:
            for value in entry["values"] if "values" in entry else [entry["value"]]:
                total += value if isinstance(value, int) else int(value, 0)
        return total

    def entries(self, name):
        """How many elements of a map are not all zeros."""
        return len(self.json("map", "dump", name, "--nonzero")["entries"])

    def app_env(self):
        env = dict(os.environ)
        env["LD_PRELOAD"] = str(self.suite.build / "shim/libgpuprobe-shim.so")
        env["GPUPROBE_SESSION"] = self.name
        return env

    def start(self, *command):
        return subprocess.Popen(
            [str(word) for word in command], env=self.app_env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
        )

    def run(self, *command):
        return finish(self.start(*command))

    def run_probed(self, *command):
        """As run(), and again for as long as the daemon goes on compiling what the program loads."""
        while True:
            process = self.start(*command)
            output = finish(process)
            if not any(o["pid"] == process.pid and "it goes on" in o["reason"] for o in self.json("why")["outcomes"]):
                return output


def finish(process, timeout=120):
    out, err = process.communicate(timeout=timeout)
    if process.returncode != 0:
        raise RuntimeError(f"{process.args}: exit {process.returncode}: {out}{err}")
    if err:
        raise RuntimeError(f"{process.args}: wrote to stderr: {err}")
    return out


def expected(output):
    """threads x launches of a vec_add run, from what it printed."""
    return int(re.search(r"threads=(\d+)", output)[1]) * int(re.search(r"launches=(\d+)", output)[1])


def expect(what, got, want):
    if got != want:
        raise AssertionError(f"{what}: {got}, expected {want}")
