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
from manager import Manager

need(GPUPROBED, CTL, COUNTER, SHIM, VEC_ADD, os.path.join(SIM, "libcuda.so.1"))

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


if __name__ == "__main__":
    main([value for name, value in list(globals().items()) if name.startswith("test_")])
