#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Restart without loss: what is attached and what was counted survives a restart, a crash and kill -9, and processes count on meanwhile. The test plays
systemd (manager.py); test-service.sh has the real one. On the CPU driver.
"""
import json
import os
import signal
import time

from harness import BUILD, COUNTER, CTL, GPUPROBED, SHIM, SIM, VEC_ADD, Failed, check, equal, main, need, wait_until
from live import LIVE, THREADS, Live
from manager import Manager

need(GPUPROBED, CTL, COUNTER, SHIM, VEC_ADD, LIVE, os.path.join(SIM, "libcuda.so.1"))

WAYS = Manager.restart, Manager.crash_and_start


def program(daemon, launches=3, threads=4096):
    status, out, err, _ = daemon.run(VEC_ADD, "--threads", str(threads), "--launches", str(launches))
    equal(status, 0, out + err)
    return launches * threads


def same(daemon, before):
    """What List and ListMaps show, without what is not there yet again."""
    def plain():
        return ([{k: v for k, v in a.items() if k not in ("modules", "processes")} for a in daemon.attachments()],
                [{k: v for k, v in m.items() if k not in ("instances", "bytes")} for m in daemon.json("map", "list")["maps"]])
    if before is None:
        return plain()
    equal(plain(), before)
    return before


def test_attachments_and_totals():
    with Manager() as daemon:
        daemon.attach()
        ids = daemon.attach("--uid", "12345", "--kernel", "vector*")
        daemon.ctl("detach", str(ids[0]))
        ids = daemon.attach("--exe", VEC_ADD, "--engine", "ptx", "--point", "kretprobe/vectorAdd")
        before, counted = same(daemon, None), 0
        for way in WAYS * 3:
            counted += program(daemon)
            equal([daemon.dump(str(m["id"]))[0]["value"] for m in daemon.json("map", "list")["maps"]], [counted] * 2, way.__name__)
            way(daemon)
            same(daemon, before)
            equal([daemon.dump(str(m["id"]))[0]["value"] for m in daemon.json("map", "list")["maps"]], [counted] * 2, way.__name__)
        again = daemon.attach()
        check(again[0] > ids[0], "an id was given out twice", again)


def test_processes_count_on():
    """A process that launches all the time, before, while there is no daemon, and after: each launch is counted, once."""
    for options in ((), ("--mirror-period-ms", "0")):
        with Manager(*options) as daemon:
            daemon.attach()
            with Live(daemon) as live, Live(daemon) as idle:
                idle.launch(1)
                for end in (Manager.hand_over, Manager.crash) * 2:
                    live.launch(3)
                    end(daemon)
                    live.launch(4)
                    daemon.start()
                    live.launch(5)
                    equal(daemon.count_of(), (live.launched + idle.launched) * THREADS, f"{end.__name__} {options}")
                    equal(daemon.attachments()[0]["processes"], 2, "processes")
            equal(daemon.count_of(), (live.launched + idle.launched) * THREADS, "in the end")


def test_processes_end_meanwhile():
    with Manager() as daemon:
        daemon.attach()
        counted = 0
        for end in (Manager.hand_over, Manager.crash) * 2:
            with Live(daemon) as live:
                live.launch(2)
                end(daemon)
                live.launch(3)
            counted += live.launched
            daemon.start()
            equal(daemon.count_of(), counted * THREADS, end.__name__)


def test_modules_and_detach():
    """Modules that were loaded before and after a restart; those of before are told of a detach."""
    with Manager() as daemon:
        ids = daemon.attach()
        with Live(daemon) as live:
            live.launch(1)
            daemon.crash_and_start()
            live.do("load 1")
            live.launch(2, slot=1)
            live.launch(3)
            equal(daemon.count_of(), 6 * THREADS)
            equal(daemon.attachments()[0]["modules"], 2, "modules")
            daemon.restart()
            live.do("unload 1")
            live.launch(1)
            equal(daemon.count_of(), 7 * THREADS)
            equal(daemon.attachments()[0]["modules"], 1, "modules")
            keep = daemon.attach()
            daemon.ctl("detach", str(ids[0]))
            live.launch(5)
            daemon.restart()
            live.do("load 1")
            live.launch(4, slot=1)
            equal(daemon.count_of(), 4 * THREADS, "of the new attachment")
            daemon.ctl("detach", str(keep[0]))


def test_stop_is_final():
    """Nothing is left of what was attached, neither in the next daemon nor in processes; they count for what is attached then."""
    with Manager() as daemon:
        daemon.attach()
        with Live(daemon) as live:
            live.launch(2)
            daemon.stop()
            live.launch(3)
            daemon.start()
            equal(daemon.attachments(), [])
            daemon.attach()
            live.launch(1)
            live.do("load 1")
            live.launch(4, slot=1)
            equal(daemon.count_of(), 4 * THREADS)


if __name__ == "__main__":
    main([value for name, value in list(globals().items()) if name.startswith("test_")])
