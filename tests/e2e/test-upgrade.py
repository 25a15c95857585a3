#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
An upgrade while programs run: shims of before under the next daemon, shims of after under the daemon that is about to be restarted. Daemons and a shim of other
versions are made from this source, with another version of the protocol (gpuprobed-old and the shim beside it: 6; gpuprobed-next: 8, and another
interest page). On the CPU driver.
"""

import json
import os
import subprocess

from harness import BUILD, COUNTER, CTL, GPUPROBED, SHIM, SIM, Daemon, check, equal, main, need, wait_until
from live import LIVE, PTXCOMPILER, SANITIZER, THREADS, Live, obj
from manager import Manager

OLD = os.path.join(BUILD, "daemon/gpuprobed/gpuprobed-old")
NEXT = os.path.join(BUILD, "daemon/gpuprobed/gpuprobed-next")
OLD_SHIM = os.path.join(BUILD, "shim/libgpuprobe-shim-old.so")
ENGINES = ("--engine", "ptx"), ("--engine", "sanitizer", "--sanitizer", SANITIZER)

need(GPUPROBED, OLD, NEXT, OLD_SHIM, CTL, COUNTER, SHIM, LIVE, PTXCOMPILER, os.path.join(SIM, "libcuda.so.1"))


def upgrade(daemon, program, end=Manager.hand_over):
    end(daemon)
    daemon.program = program
    daemon.start()


def counts(daemon):
    return [daemon.dump(str(m["id"]))[0]["value"] for m in daemon.json("map", "list")["maps"]]


def told(daemon, what):
    """That `status`, `list` and `doctor` tell of one process, with the same line, which the log has once."""

    def found():
        return [line for line in daemon.status()["missing"] if what in line]

    (line,) = wait_until(found, f"status tells of it: {what}", seconds=25)
    equal(daemon.json("list")["notices"], [line])
    check(line in subprocess.run([CTL, "list"], env=daemon.environment(**daemon.tools()), capture_output=True, text=True).stderr)
    seen = json.loads(subprocess.run([CTL, "doctor", "--json"], env=daemon.environment(**daemon.tools()), capture_output=True, text=True).stdout)
    (doctor,) = [c for c in seen["checks"] if c["id"] == "daemon.shims"]
    equal((doctor["state"], f"{doctor['found']}; {doctor['todo']}"), ("warning", line))
    wait_until(lambda: line in daemon.text(), "the log has it")
    equal(daemon.text().count(what), 1, daemon.text())
    return line


def test_older_shim():
    """It counts on, on each engine; what it loads from then on and what is attached from then on is not had; what it has counted stays."""
    for options in ENGINES:
        with Manager(*options, program=OLD) as daemon:
            ids = daemon.attach()
            with Live(daemon, shim=OLD_SHIM) as live:
                live.launch(3)
                equal(counts(daemon), [3 * THREADS])
                upgrade(daemon, GPUPROBED)
                live.launch(4)
                wait_until(lambda: counts(daemon) == [7 * THREADS], f"it counts on: {counts(daemon)}")
                daemon.attach()
                live.do("load 1")  # asks, and is not understood
                live.launch(2)
                live.launch(2, slot=1)
                line = told(daemon, "an older shim")
                check(f"1 (process {live.pid}): " in line and line.endswith("; restart them"), line)
                (reason,) = {o["reason"] for o in daemon.why("--pid", str(live.pid))}
                check("protocol 6, this daemon's is 7): restart the program" in reason, reason)
                with Live(daemon) as other:  # one of the new version
                    other.launch(1)
                    wait_until(lambda: counts(daemon) == [10 * THREADS, THREADS], f"both count: {counts(daemon)}")
                daemon.crash_and_start()
                live.launch(1)
            equal(counts(daemon), [11 * THREADS, THREADS], "of a process that has ended")
            check("shim" not in "".join(daemon.status()["missing"]), daemon.status()["missing"])
            daemon.ctl("detach", *map(str, ids))


def test_older_shim_is_detached():
    """It cannot be told: it counts where nobody looks, and runs on."""
    with Manager(program=OLD) as daemon:
        (attachment,) = daemon.attach()
        with Live(daemon, shim=OLD_SHIM) as live:
            live.launch(1)
            upgrade(daemon, GPUPROBED)
            daemon.ctl("detach", str(attachment))
            live.launch(2)
            live.do("load 1")
            live.launch(2, slot=1)
            daemon.attach()
            live.launch(3)
            equal(daemon.count_of(), 0)


def test_newer_shim():
    """Programs that start after the package was upgraded and before the daemon is restarted: bare till then, and not a moment longer."""
    with Manager(program=OLD) as daemon:
        daemon.attach()
        with Live(daemon) as live:
            live.launch(2)
            line = told(daemon, "a newer shim")
            check(f"1 (process {live.pid}): " in line and line.endswith("; restart the daemon"), line)
            upgrade(daemon, GPUPROBED)
            equal(daemon.count_of(), 0)
            live.do("load 1")
            live.launch(3, slot=1)
            equal(daemon.count_of(), 3 * THREADS)
            check("shim" not in "".join(daemon.status()["missing"]), daemon.status()["missing"])


def test_other_page():
    """The next daemon's interest page is of another version: who does not understand it counts on, too, and a stop ends that."""
    for options in ENGINES:
        with Manager(*options) as daemon:
            daemon.attach()
            with Live(daemon) as live:
                live.launch(1)
                equal(counts(daemon), [THREADS])
                upgrade(daemon, NEXT)
                live.launch(4)
                wait_until(lambda: counts(daemon) == [5 * THREADS], f"it counts on: {counts(daemon)}")
                line = told(daemon, "have not come back")
                check(f"1 (process {live.pid}): " in line, line)
                upgrade(daemon, GPUPROBED, Manager.crash)  # a downgrade: it is understood again
                live.launch(2)
                equal(counts(daemon), [7 * THREADS])
                wait_until(lambda: [a["processes"] for a in daemon.attachments()] == [1], "it has said what it has")
                check("notices" not in daemon.json("list"))
                upgrade(daemon, NEXT)
                live.launch(1)
                daemon.stop()
                live.launch(1)
                daemon.program = GPUPROBED
                daemon.start()
                equal(daemon.attachments(), [])


def test_anybody_can_greet():
    """However many say that they are of another version: one line, and not all of them are remembered."""
    from wire import HELLO, LOADER, Shim, message

    with Daemon() as daemon:
        for version in 4, 8, 65535:
            shim = Shim(daemon.directory, hello=False)
            shim.send(message(HELLO, LOADER, 13000, b"1.0\x1b[31m", version=version))
            check(shim.closed())
        lines = [line for line in daemon.status()["missing"] if "shim" in line]
        equal((len(lines), f"1 (process {os.getpid()})" in lines[0]), (1, True), lines)
        check("of version ? (protocol 4, " in daemon.why()[0]["reason"], daemon.why())
        counted = {s["name"]: s["value"] for s in daemon.status()["statistics"] if s["group"] == "connections"}
        equal((counted["other_versions"], counted["breaches"]), (3, 0))


if __name__ == "__main__":
    main([value for name, value in list(globals().items()) if name.startswith("test_")])
