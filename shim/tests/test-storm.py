#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Patching in a process that captures, abandons captures, loads and unloads modules, and launches, all at the same time: no call of its own
fails, it does not hang, and its kernels are counted all the same."""

import os
import subprocess
import time

from fake_plans import PlanDaemon
from target_runs import SANITIZED, SHIM, SIM, TARGETS, end, report, session, within

SANITIZER = os.path.join(SIM, "sanitizer/libsanitizer-public.so")
THREADS = 256


class Storm:
    def __init__(self, daemon, preload=SHIM, **more):
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("GPUPROBE", "LD_"))}
        self.process = subprocess.Popen(
            [os.path.join(SIM, "storm_driver")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**clean, "LD_LIBRARY_PATH": SIM, "LD_PRELOAD": preload, "GPUPROBE_SESSION": daemon.name, **more},
        )
        self.process.stdout.readline()

    def do(self, command):
        if self.process.poll() is None:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
        words = self.process.stdout.readline().split()
        return [int(word) for word in words[1:]] if words[:1] == ["ok"] else None

    def good(self):
        self.process.stdin.close()
        return self.process.wait(timeout=60) == 0


with PlanDaemon(session("abandoned"), SANITIZER, attached=False) as daemon:
    storm = Storm(daemon)
    storm.do("abandon")
    daemon.attach()
    storm.do("launch 3")
    good = within(lambda: daemon.count() == 3 * THREADS)
    report("a capture that was abandoned", storm.good() and good, str(daemon.count()))

if not SANITIZED:  # what makes a function slow answers before a sanitizer can
    with PlanDaemon(session("reborn"), SANITIZER, attached=False) as daemon:
        # what is free is used again at once
        storm = Storm(
            daemon,
            f"{SHIM}:{TARGETS}/libs-slow.so",
            S_SLOW_CALL="cuCtxDestroy_v2",
            S_SLOW_TILL="cuEventSynchronize",
            S_SLOW_BEHIND="1",
            GLIBC_TUNABLES="glibc.malloc.tcache_count=0",
        )
        storm.do("launch 1")
        good = storm.do("reborn") is not None
        daemon.attach()
        storm.do("launch 1")
        good = good and storm.do("end") is not None
        storm.do("launch 2")
        good = storm.good() and good
        report(
            "a capture in a context that has the handle of one that ends",
            good and daemon.count() == 2 * THREADS,
            f"{good} {daemon.count()}, {daemon.reports()}",
        )

with PlanDaemon(session("storm"), SANITIZER, attached=False) as daemon:
    storm = Storm(daemon)
    storm.do("storm 4")
    for cycle in range(60):
        daemon.image_number = cycle % 3
        daemon.attach(cycle % 2 == 0)
        time.sleep(0.03)
    calm = storm.do("calm")
    daemon.attach()
    storm.do("launch 1")  # brings it up to date, if nothing else has
    before, now = None, daemon.count()
    while before != now:  # till copies have come
        time.sleep(0.3)
        before, now = now, daemon.count()
    storm.do("launch 2")
    good = calm is not None and within(lambda: daemon.count() == before + 2 * THREADS)
    report("captures, loads and launches while patches come and go", storm.good() and good, f"{calm} {before} {daemon.count()} {sorted(set(daemon.reports()))}")
end()
