#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Settings of a file, and their changes while the daemon and programs run; processes that are excluded."""

import os
import re
import subprocess
import tempfile

from configured import Configured
from harness import COUNTER, CTL, GPUPROBED, SHIM, SIM, SOURCE, VEC_ADD, Daemon, check, equal, main, need, wait_until
from live import LIVE, PTXCOMPILER, SANITIZER, THREADS, Live
from tracing import CALL, Trace
from varlink import Connection, VarlinkError

need(GPUPROBED, CTL, COUNTER, SHIM, LIVE, VEC_ADD, os.path.join(SIM, "libcuda.so.1"))
RUN = (VEC_ADD, "--threads", "64", "--launches", "3")
COUNTED = 3 * 256  # whole blocks


def ran(daemon, **more):
    """A program that runs to its end: what it added to the counter."""
    before = daemon.count_of()
    status, out, err, _ = daemon.run(*RUN, **more)
    equal(status, 0, out + err)
    return daemon.count_of() - before


def images(daemon):
    return daemon.status()["counters"]["images"]


def check_config(text, *options):
    with tempfile.NamedTemporaryFile(mode="w", suffix=".conf") as file:
        os.fchmod(file.fileno(), 0o644)
        file.write(text)
        file.flush()
        done = subprocess.run([GPUPROBED, f"--config={file.name}", *options], capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr.replace(file.name, "F")


def test_installed_file():
    """The file that packages put into /etc changes nothing, has every setting once, and says the defaults that there are."""
    with open(os.path.join(SOURCE, "systemd/gpuprobed.conf"), encoding="utf-8") as file:
        text = file.read()
    nothing = check_config("", "--check-config")
    equal(check_config(text, "--check-config"), nothing)
    for line in "metrics-format = openmetrics", "metrics-mode = 0640":  # texts are not shown unless they are set
        nothing = (0, nothing[1].replace(f"#{line.split(' =', maxsplit=1)[0]} =\n", line + "\n"), "")
    settings = re.compile(r"^#?([a-z-]+) =", re.M)
    equal(sorted(settings.findall(text)), sorted(settings.findall(nothing[1])))
    equal(check_config(re.sub(r"(?m)^#([a-z-]+ = .)", r"\1", text), "--check-config"), nothing, "without its comment signs")
    status, _, err = check_config(re.sub(r"(?m)^#   ([a-z-]+ = )", r"\1", text), "--check-config=quiet")
    equal((status, err), (0, ""), "its examples")


def test_full_disk():
    """Output that could not be written is an error."""
    for option in "--check-config", "--version", "--help":
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([GPUPROBED, option], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        equal((done.returncode, done.stderr), (1, "gpuprobed: cannot write the output: No space left on device\n"), option)


def test_check_config():
    """What the daemon says of a file, without running."""
    status, out, err = check_config("deadline-ms = 77\nexclude = comm=a\nexclude = uid=1\n", "--check-config", "--compile-ms=5")
    equal((status, err), (0, ""))
    for line in "deadline-ms = 77", "compile-ms = 5", "exclude = comm=a", "exclude = uid=1", "verify = on", "#toolkit =":
        check(line in out.splitlines(), line, out)
    equal(check_config(out, "--check-config"), (0, out, ""), "what is printed says the same")
    equal(check_config("deadline-ms = 77\n", "--check-config=quiet"), (0, "", ""))
    for options in ("--check-config",), ("--check-config=quiet",), ("--session=never",):
        equal(check_config("\nworkers = 0\n", *options), (1, "", "gpuprobed: F:2: workers = 0: not a number from 1 to 64\n"), options)
    equal(check_config("", "--check-config", "--workers=x"), (2, "", "gpuprobed: --workers=x: not a number from 1 to 64\n"))


def test_reload():
    """What changes live does so, of the rest the daemon says that it does not; a wrong file changes nothing."""
    with Configured("deadline-ms = 3000\nworkers = 3\n") as daemon:
        deadline = lambda: int.from_bytes(daemon.page()[20:24], "little")
        equal(deadline(), 3000)
        said = daemon.reload("deadline-ms = 4000\nworkers = 4\ntoolkit = /x\n")
        check("reload: needs a restart, and stays as it was: workers, toolkit" in said, said)
        equal(deadline(), 4000)
        daemon.write("deadline-ms = 5000\nworkers = none\n")
        said = daemon.hup("everything stays as it was")
        check(f"reload: {daemon.file.name}:2: workers = none: not a number from 1 to 64; everything stays as it was" in said, said)
        equal(deadline(), 4000)
        os.chmod(daemon.file.name, 0o666)
        daemon.hup("nobody else may write to it")
        os.chmod(daemon.file.name, 0o644)
        said = daemon.reload("workers = 3\n")
        check("restart" not in said, "what is again as at the start needs none", said)
        equal(deadline(), 2000)
        equal(daemon.status()["mode"], "session")


def test_links():
    """Who names a program by a link to it, as python3 is one, hears that this means nobody."""
    with tempfile.TemporaryDirectory() as folder:
        link = os.path.join(folder, "link")
        os.symlink(VEC_ADD, link)
        real = os.path.realpath(VEC_ADD)
        lines = [f"--{option}: exe={link} means no process of this host: it is a link, or one leads to it; say exe={real}" for option in ("engine", "exclude")]
        with Configured(f"engine = ptx:exe={link}\nengine = ptx\nexclude = exe={link}\n") as daemon:
            for line in lines:
                equal(daemon.text().count(line), 1, daemon.text())
            said = daemon.reload(f"exclude = exe={real}\nexclude = exe={folder}/lin?\nexclude = exe=/no/such/program\n")
            check("means no process" not in said, said)
            check(lines[1] in daemon.reload(f"exclude = exe={link}\n"))


def test_mirror_period():
    """A process that is connected copies its maps as often as the daemon says now."""

    def copied():
        """What the daemon has in the memory of maps: a counter is one word of it, or a sum of several."""
        total = 0
        for fd in os.listdir(f"/proc/{daemon.process.pid}/fd"):
            path = f"/proc/{daemon.process.pid}/fd/{fd}"
            if "memfd:gpuprobe-map" in os.readlink(path):
                with open(path, "rb") as file:
                    total += sum(memoryview(file.read()[4096:]).cast("Q"))
        return total

    with Configured("mirror-period-ms = 0\n") as daemon:
        daemon.attach()
        live = Live(daemon)
        live.launch(5)
        equal(daemon.count_of(), 5 * THREADS)  # it is connected now
        live.launch(2)
        daemon.reload("mirror-period-ms = 20\n")
        live.launch(1)
        wait_until(lambda: copied() == 8 * THREADS, lambda: f"copied without being asked: {copied()}")
        live.process.kill()
        live.process.communicate()
        wait_until(lambda: daemon.count_of() == 8 * THREADS, "all is counted")


def test_excluded():
    """Each kind of rule; who can know by himself asks nothing."""
    exe = os.path.realpath(VEC_ADD)
    with Configured() as daemon:
        daemon.attach()
        equal(ran(daemon), COUNTED)
        for rule, asks in ((f"uid={os.getuid()}", False), ("comm=vec_add_driver", False), (f"exe={exe}", False), (f"exe={os.path.dirname(exe)}/vec_*", True)):
            daemon.reload(f"exclude = comm=other\nexclude = {rule}\nexclude = uid=4000000000\n")
            before = images(daemon)
            equal(ran(daemon), 0, rule)
            equal(images(daemon) - before, int(asks), f"images sent with {rule}")
            if asks:
                equal(daemon.why()[0]["reason"], f"excluded by configuration: exclude = {rule}")
        daemon.reload("exclude = comm=other\nexclude = exe=/nonexistent/*\nexclude = uid=4000000000\n")
        equal(ran(daemon), COUNTED, "others")


def test_off():
    """GPUPROBE=off: nothing is asked, whatever the daemon wants."""
    with Daemon() as daemon:
        daemon.attach()
        equal(ran(daemon, GPUPROBE="off"), 0)
        equal((images(daemon), daemon.status()["counters"]["processes"]), (0, 0))
        equal(ran(daemon, GPUPROBE="on"), COUNTED)


def test_excluded_while_it_runs():
    """Probes and traces of a process end when it is excluded; it runs on as if nothing were."""
    with Configured() as daemon:
        daemon.attach()
        with Live(daemon) as live:
            trace = Trace(daemon.directory, filter={"comm": "live_driver"}, sources=["shim"])
            live.launch(3)
            equal(daemon.count_of(), 3 * THREADS)
            wait_until(lambda: trace.of(CALL), "calls are traced")
            daemon.reload("exclude = comm=live_driver\n")
            why = daemon.why("--pid", str(live.pid))[0]
            equal(
                (why["pid"], why["comm"], why["outcome"], why["reason"]),
                (live.pid, "live_driver", "not-probed", "excluded by configuration: exclude = comm=live_driver"),
            )
            live.launch(1)  # the last of the trace, and of the probes, may be seen
            wait_until(lambda: stopped(daemon, live), "its probes end")
            counted, traced = daemon.count_of(), len(trace.of(CALL))
            live.launch(5)
            live.do("load 1")
            live.launch(2, slot=1)
            equal(daemon.count_of(), counted, "counted after that")
            equal(len(trace.of(CALL)), traced, "traced after that")
            trace.close()
            bus = Connection(daemon.directory)
            bus.send("Trace", more=True, pids=[live.pid], sources=["shim"])
            try:
                bus.receive()
                check(False, "an excluded process is traced")
            except VarlinkError as error:
                equal((error.error, error.parameters), ("PermissionDenied", {"reason": f"process {live.pid} is excluded by configuration (exclude)"}))
            bus.close()
            daemon.reload("")
            live.do("load 2")
            live.launch(4, slot=2)
            equal(daemon.count_of(), counted + 4 * THREADS, "probed again")


def test_excluded_from_patches():
    """The same on the sanitizer engine: the patches go; and a process that is excluded when it begins does not get the engine."""
    if not os.path.exists(PTXCOMPILER):
        return
    with Configured("", "--engine=sanitizer", f"--sanitizer={SANITIZER}") as daemon:
        with Live(daemon) as live:
            daemon.attach("--engine", "sanitizer")
            live.launch(3)
            equal(daemon.count_of(), 3 * THREADS)
            daemon.reload("exclude = comm=live_driver\n")
            live.launch(4)
            equal(daemon.count_of(), 3 * THREADS, "excluded")
            with Live(daemon) as other:
                other.launch(2)
                with open(f"/proc/{other.pid}/maps") as maps:
                    check("libgpuprobe-sass" not in maps.read(), "it has the engine")
            daemon.reload("")
            live.launch(5)
            equal(daemon.count_of(), 8 * THREADS, "not excluded any more")


def stopped(daemon, live):
    """Whether a launch is not counted any more."""
    before = daemon.count_of()
    live.launch(1)
    return daemon.count_of() == before


if __name__ == "__main__":
    main(
        [
            test_installed_file,
            test_full_disk,
            test_check_config,
            test_reload,
            test_links,
            test_mirror_period,
            test_excluded,
            test_off,
            test_excluded_while_it_runs,
            test_excluded_from_patches,
        ]
    )
