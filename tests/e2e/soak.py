#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Many short-lived CUDA processes, some at a time, and one map: the count is exact, and the daemon is in the end what it was after the first 100: its
memory, its descriptors, and those that its service manager keeps. The bar, and what ./check runs: 1,000, 50 at a time; other
numbers are arguments: soak.py BUILD TOTAL WIDTH.
"""

import os
import sys
import time

from harness import COUNTER, CTL, GPUPROBED, SHIM, VEC_ADD, check, equal, need, resident, wait_until
from manager import Manager

need(GPUPROBED, CTL, COUNTER, SHIM, VEC_ADD)
THREADS, LAUNCHES = 256, 3
GROWTH_MAX = 5000  # kB


def descriptors(daemon):
    return len(os.listdir(f"/proc/{daemon.process.pid}/fd"))


def kept(daemon):
    daemon.settle()
    return sum(map(len, daemon.kept.values()))


def finish(process):
    out, err = process.communicate(timeout=120)
    equal(process.returncode, 0, out + err)
    check("PASS" in out, out)


def run(daemon, total, width):
    """That many processes in all, so many at a time."""
    running = []
    for _ in range(total):
        if len(running) == width:
            finish(running.pop(0))
        running.append(daemon.start_run(VEC_ADD, "--threads", str(THREADS), "--launches", str(LAUNCHES)))
    for process in running:
        finish(process)


def idle(daemon):
    """Nobody is connected, and what they left is added up: memory, descriptors, those that are kept."""
    wait_until(lambda: daemon.attachments()[0]["processes"] == 0, "processes are gone", 30)
    wait_until(lambda: daemon.json("map", "list")["maps"][0]["instances"] == 0, "instances are added up", 30)
    return resident(daemon.process.pid), descriptors(daemon), kept(daemon)


def main(total, width):
    with Manager() as daemon:
        daemon.attach()
        first = min(100, total // 2)
        run(daemon, first, width)
        before = idle(daemon)
        start = time.monotonic()
        run(daemon, total - first, width)
        seconds = time.monotonic() - start
        count = daemon.count_of()
        # A thread of the daemon may still close some: no more than before, sooner or later.
        wait_until(
            lambda: all(now <= then for now, then in zip(idle(daemon)[1:], before[1:])), "descriptors, and those that are kept, are no more than before", 30
        )
        after = idle(daemon)
        said = daemon.status()["counters"]
        print(f"{total} processes, {width} at a time: {count} of {total * LAUNCHES * THREADS} counted; {1000 * seconds / (total - first):.1f} ms each")
        print(
            f"after {first}: {before[0]} kB, {before[1]} descriptors, {before[2]} kept; "
            f"after {total}: {after[0]} kB ({after[0] - before[0]:+d}), {after[1]} descriptors, {after[2]} kept"
        )
        print("counters:", {name: said[name] for name in ("images", "worker_crashes", "worker_timeouts") if name in said})
        equal(count, total * LAUNCHES * THREADS, "counted")
        equal(daemon.count_of(), count, "counted, later")
        check(after[0] - before[0] < GROWTH_MAX, "the daemon has grown by", after[0] - before[0], "kB")


if __name__ == "__main__":
    main(*(int(word) for word in (sys.argv[2:] or ("1000", "50"))))
