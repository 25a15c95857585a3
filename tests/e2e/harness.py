# SPDX-License-Identifier: Apache-2.0
"""A private daemon for a test, gpuprobectl, and programs under the shim. The build folder is the first argument of every test."""

import atexit
import contextlib
import ctypes
import glob
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else None
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(1, os.path.join(SOURCE, "tests"))
import built  # noqa: E402

GPUPROBED = os.path.join(BUILD, "daemon/gpuprobed/gpuprobed")
CTL = os.path.join(BUILD, "ctl/gpuprobectl")
SHIM = os.path.join(BUILD, "shim/libgpuprobe-shim.so")
COUNTER = os.path.join(BUILD, "docs/counter.bpf.o")
VEC_ADD = os.path.join(BUILD, "tests/sim/vec_add_driver")
SKIP = 77
LONGEST = 180  # seconds of one test, of which a busy machine needs a tenth
GPU = os.environ.get("GPUPROBE_TEST_GPU") == "1"  # programs run on the machine's own driver
TOOL_LIBRARIES = os.environ.get("GPUPROBE_TEST_LIBRARIES")  # of the daemon and gpuprobectl, unpacked from a bundle


def own_sim():
    """
    The folder of the CPU driver, with a driver of this test's own: what a program on the host hooks in it, it sees of all processes that have the
    file, and tests run side by side.
    """
    built = os.path.join(BUILD, "tests/sim")
    if GPU or not os.path.exists(os.path.join(built, "libcuda.so.1")):
        return built
    own = tempfile.mkdtemp(prefix="gpuprobe-sim-")
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    os.chmod(own, 0o755)  # other users' programs run on it
    for name in os.listdir(built):
        if name != "libcuda.so.1":
            os.symlink(os.path.join(built, name), os.path.join(own, name))
    shutil.copy(os.path.join(built, "libcuda.so.1"), own)
    return own


SIM = own_sim()


class Failed(Exception):
    pass


def check(condition, *what):
    if not condition:
        raise Failed(" ".join(str(w) for w in what) or "check failed")


def equal(got, wanted, what=""):
    check(got == wanted, f"{what}: {got!r}, expected {wanted!r}")


def wait_until(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise Failed(f"not within {seconds} s: {what}")


def resident(pid, which="VmRSS"):
    """KiB of a process; VmHWM: the most so far."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(which + ":"))


@contextlib.contextmanager
def as_user(uid):
    """Connections that root makes while it lasts are another user's, who may go into the folder."""
    os.seteuid(uid)
    ctypes.CDLL(None).setfsuid(0)
    try:
        yield
    finally:
        os.seteuid(0)


def need(*paths):
    """Ends the test if something that it needs was not built: as skipped if this machine cannot (no clang for BPF, no libbpf, ...)."""
    built.need(BUILD, *paths)


class Daemon:
    """gpuprobed --session=<unique>. Use with `with`: at the end it must stop in good order and leave nothing behind.

    Without a configuration its deadline is long, unless a test says another: a busy machine compiles slowly.
    """

    count = 0

    def __init__(self, *options, name=None, start=True):
        Daemon.count += 1
        self.name = name or f"e2e_{os.getpid()}_{Daemon.count}"
        user = f"/run/user/{os.getuid()}"
        self.directory = f"{user}/gpuprobe-{self.name}" if os.path.isdir(user) else f"/tmp/gpuprobe-{os.getuid()}-{self.name}"
        self.options = options if any(option.startswith("--config") for option in options) else ("--deadline-ms=20000", "--deadline-others-ms=20000", *options)
        self.log = tempfile.NamedTemporaryFile(mode="w+", prefix="gpuprobed-", suffix=".log")
        self.process = None
        if start:
            self.start()

    def start(self):
        self.process = subprocess.Popen([GPUPROBED, f"--session={self.name}", *self.options], stderr=self.log, env={**os.environ, **self.tools()})
        wait_until(lambda: self.listens() or self.process.poll() is not None, "the daemon listens")
        check(self.process.poll() is None, "gpuprobed ended:", self.text())
        return self

    def listens(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            return client.connect_ex(f"{self.directory}/io.gpuprobe.control") == 0

    def text(self):
        with open(self.log.name) as log:
            return log.read()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=15)
        equal(status, 0, "exit status of gpuprobed: " + self.text())
        check(not os.path.exists(self.directory), self.directory, "is left behind")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def clean(self):
        """After kill(): what a killed daemon leaves behind."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def children(self):
        """Process ids of its workers, whichever of its threads started them."""
        found = set()
        for path in glob.glob(f"/proc/{self.process.pid}/task/*/children"):
            with open(path) as pids:
                found.update(map(int, pids.read().split()))
        return found

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if self.process.poll() is None:
            if kind is None:
                self.stop()
            else:
                why = subprocess.run([CTL, "why"], env=self.environment(**self.tools()), capture_output=True, text=True, timeout=60)
                print("--- gpuprobectl why:\n" + why.stdout + why.stderr)
                self.kill()
        if kind is not None:
            print("--- gpuprobed:\n" + self.text())
        self.clean()
        self.log.close()

    def environment(self, **more):
        return {**os.environ, "GPUPROBE_SESSION": self.name, **more}

    @staticmethod
    def libraries():
        """Where programs find the CUDA driver."""
        return {} if GPU else {"LD_LIBRARY_PATH": SIM}

    @staticmethod
    def tools():
        """Where the daemon and gpuprobectl find their libraries, and a program on the host the driver."""
        return {"LD_LIBRARY_PATH": TOOL_LIBRARIES} if TOOL_LIBRARIES else {} if GPU else {"LD_LIBRARY_PATH": SIM}

    def ctl(self, *arguments, status=0):
        """gpuprobectl; returns its standard output. status None: any failure, returns standard error."""
        done = subprocess.run([CTL, *arguments], env=self.environment(**self.tools()), capture_output=True, text=True, timeout=60)
        if status is None:
            check(done.returncode != 0, "gpuprobectl", *arguments, "did not fail")
            return done.stderr
        equal(done.returncode, status, f"gpuprobectl {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def try_ctl(self, *arguments):
        """gpuprobectl: exit status, output, standard error."""
        done = subprocess.run([CTL, *arguments], env=self.environment(**self.tools()), capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    def json(self, *arguments):
        return json.loads(self.ctl(*arguments, "--json"))

    def json_lines(self, *arguments):
        return [json.loads(line) for line in self.ctl("--json", *arguments).splitlines()]

    def attach(self, *arguments, object=COUNTER):
        return [int(line) for line in self.ctl("attach", object, *arguments).split()]

    def attachments(self):
        return self.json("list")["attachments"]

    def dump(self, name="counter", *more):
        return self.json("map", "dump", name, *more)["entries"]

    def count_of(self, name="counter"):
        entries = self.dump(name)
        equal(len(entries), 1, "entries")
        return entries[0]["value"]

    def why(self, *more):
        return self.json("why", *more)["outcomes"]

    def status(self):
        return self.json("status")

    def start_run(self, *command, shim=True, **more):
        """Starts a program on the CPU driver, under the shim."""
        environment = self.environment(**self.libraries(), **more)
        if shim:
            environment["LD_PRELOAD"] = SHIM
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *command, shim=True, timeout=60, **more):
        """Runs it to the end: exit status, output, standard error, seconds."""
        start = time.monotonic()
        process = self.start_run(*command, shim=shim, **more)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise Failed(f"{command} does not end")
        return process.returncode, out, err, time.monotonic() - start


def too_long(*_):
    raise Failed(f"not done within {LONGEST} s")


def main(tests):
    """Runs the tests (those named on the command line, or all), says which failed. One that hangs fails, and says where."""
    failed = 0
    signal.signal(signal.SIGALRM, too_long)
    chosen = sys.argv[2:]
    forgotten = [name for name, value in vars(sys.modules["__main__"]).items() if name.startswith("test_") and value not in tests]
    if forgotten:
        sys.exit(f"FAILED: never run: {', '.join(forgotten)}")
    for test in tests:
        if chosen and test.__name__ not in chosen:
            continue
        start = time.monotonic()
        signal.alarm(LONGEST)
        try:
            test()
        except Exception as error:
            signal.alarm(0)
            failed += 1
            print(f"FAILED {test.__name__}: {error}")
            traceback.print_exc(file=sys.stdout)
        else:
            signal.alarm(0)
            print(f"ok     {test.__name__} ({time.monotonic() - start:.2f} s)")
        sys.stdout.flush()
    sys.exit(failed > 0)
