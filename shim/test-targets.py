#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every s-* program: bare, under the shim with no daemon, with a daemon that probes, with GPUPROBE=off. Output and status are the same,
and with the daemon the threads that it launched are counted."""
import os

import fake_daemon
import wire
from target_runs import SHIM, TARGETS, as_bare, end, report, run, session

THREADS = 256  # of each launch
PROGRAMS = [  # arguments, launches that must be counted (None: not all can be), bare needs no daemon
    (["s-plain"], 0), (["s-dlsym"], 3), (["s-linked"], 40), (["s-threads"], 40), (["s-signal"], 20), (["s-fork"], 4), (["s-exec"], None),
    (["s-close"], None), (["s-unload"], 3), (["s-file"], 2), (["s-ptsz"], 5), (["s-context"], 7), (["s-errno"], 2),
    (["s-exit", "return"], 1), (["s-exit", "exit"], 1), (["s-exit", "_exit"], None), (["s-exit", "abort"], None), (["s-exit", "kill"], None),
    (["s-exit", "thread"], 1), (["s-exit", "handler"], 1), (["s-exit", "nested"], None),
]


def one(number, arguments, launches, form):
    label = " ".join(arguments)
    bare = run(arguments, preload=())
    if (bare[0] == 0) != (arguments[0] != "s-exit" or arguments[1] in ("return", "nested")):
        report(f"{label}: bare", False, str(bare))
    if as_bare(f"{label}: no daemon", bare, run(arguments, GPUPROBE_SESSION=session("none"))):
        report(f"{label}: no daemon", True)
    with fake_daemon.FakeDaemon(session(f"{number}{form}"), form=form, deadline_ms=5000) as daemon:
        ours = run(arguments, GPUPROBE_SESSION=daemon.name)
        if as_bare(f"{label}: probed, {form}", bare, ours):
            counted = daemon.count()
            wanted = counted if launches is None else launches * THREADS
            report(f"{label}: probed, {form}", counted == wanted and (launches == 0) == (daemon.seen(wire.IMAGE) == 0) and
                   (launches == 0 or daemon.seen(wire.ARMED) > 0), f"counted {counted}, launched {wanted}; images {daemon.seen(wire.IMAGE)}, "
                   f"armed {daemon.seen(wire.ARMED)}, {[f for k, f in daemon.messages if k == wire.REPORT]}")
        before = daemon.seen(wire.IMAGE)
        if as_bare(f"{label}: GPUPROBE=off", bare, run(arguments, GPUPROBE_SESSION=daemon.name, GPUPROBE="off")):
            report(f"{label}: GPUPROBE=off", daemon.seen(wire.IMAGE) == before, "the daemon was asked")


def interposers():
    """Another library that counts launches, before and after the shim in the list, passing on in two ways."""
    other = os.path.join(TARGETS, "libs-interpose.so")
    for order in ((other, SHIM), (SHIM, other)):
        for how in ({}, {"INTERPOSE": "handle"}):
            for program in ("s-linked", "s-dlsym", "s-ptsz"):
                label = f"{program} {'shim last' if order[1] == SHIM else 'shim first'} {how.get('INTERPOSE', 'next')}"
                bare = run([program], preload=(other,), **how)
                if bare[0]:
                    continue  # RTLD_NEXT finds no driver in that program: the interposer is no good for it
                if as_bare(f"interposer, no daemon, {label}", bare, run([program], preload=order, GPUPROBE_SESSION=session("none"), **how)):
                    report(f"interposer, no daemon, {label}", True)
                with fake_daemon.FakeDaemon(session("between"), deadline_ms=5000) as daemon:
                    if as_bare(f"interposer, probed, {label}", bare, run([program], preload=order, GPUPROBE_SESSION=daemon.name, **how)):
                        report(f"interposer, probed, {label}", daemon.count() > 0, "nothing counted")


def sandbox():
    bare = run(["s-seccomp"], preload=())
    if as_bare("seccomp: no daemon", bare, run(["s-seccomp"], GPUPROBE_SESSION=session("none"))):
        report("seccomp: no daemon", bare[0] == 0, str(bare))
    others = [(1 << 2, 0, 0, 0, b"another", 0), (1 << 3, 0, 0, 0, b"", 12345)]
    with fake_daemon.FakeDaemon(session("others"), text=fake_daemon.page(0, rules=others)) as daemon:
        if as_bare("seccomp: a daemon with no interest", bare, run(["s-seccomp"], GPUPROBE_SESSION=daemon.name)):
            report("seccomp: a daemon with no interest", not daemon.messages)


for n, (program, expected) in enumerate(PROGRAMS):
    for variant in ("pointer", "resident"):
        one(n, program, expected, variant)
interposers()
sandbox()
end()
