#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs and libraries of all kinds that are linked with the driver, that have its names for something else, or that stand before it: each runs as
it does bare, with and without a driver, and is probed and traced where it uses the driver."""

import os
import shutil
import tempfile

import fake_trace
from fake_daemon import FakeDaemon
from target_runs import SANITIZED, SHIM, SIM, TARGETS, as_bare, end, report, run, session

THREADS = 256  # of each launch
NO_DRIVER = {"LD_LIBRARY_PATH": ""}


def library(name):
    return os.path.join(TARGETS, f"libs-{name}.so")


def counted(label, arguments, launches, preload=(SHIM,), bare=None, **environment):
    """As bare (or that), and each launch is counted."""
    bare = bare or run(arguments, preload=(), **environment)
    if bare[0]:
        report(f"{label}: bare", False, str(bare))
    with FakeDaemon(session("linking"), deadline_ms=5000) as daemon:
        if as_bare(label, bare, run(arguments, preload=preload, GPUPROBE_SESSION=daemon.name, **environment)):
            report(label, daemon.count() == launches * THREADS, f"counted {daemon.count()}, launched {launches * THREADS}; {daemon.reports()}")


def traced(label, arguments, preload=(SHIM,), **environment):
    """The names of all calls of a traced run."""
    with fake_trace.TraceDaemon(session("calls"), make=lambda: fake_trace.Ring(slot_bytes=1 << 18)) as daemon:
        run(arguments, preload=preload, GPUPROBE_SESSION=daemon.name, **environment)
        calls = sorted(call.name for call in daemon.calls())
    report(f"{label}: traced", "cuInit" in calls and "cuLaunchKernel" in calls, str(calls[:10]))
    return calls


def linked():
    for name in "s-linked", "s-linked-now", "s-linked-table", "s-linked-no-pie":
        counted(name, [name], 40)
        calls = traced(name, [name])
        report(
            f"{name}: all calls",
            calls.count("cuLaunchKernel") == 40 and calls.count("cuModuleUnload") == 20 and calls.count("cuMemAlloc_v2") == 120,
            str(len(calls)),
        )
        counted(f"{name}, bound at once", [name], 40, LD_BIND_NOW="1")
    for name in "s-gmon", "s-gmon-linked":  # nobody tells the shim that the driver has come
        counted(name, [name], 40)


def copies():
    """Two copies of the shim, as of /etc/ld.so.preload and of LD_PRELOAD: one of them does the work."""
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copy(SHIM, folder)
        for name, preload in ("copy second", (SHIM, copy)), ("copy first", (copy, SHIM)):
            counted(name, ["s-threads"], 40, preload=preload)
            counted(f"{name}, linked", ["s-linked-now"], 40, preload=preload)
            report(f"{name}: calls", traced(name, ["s-threads"], preload=preload) == traced(name, ["s-threads"]), "")


def plugins():
    for name in "plugin", "plugin-now", "plugin-lazy", "plugin-table":
        counted(f"{name}: linked", [f"s-host-{name}"], 2)
        for mode in "now", "lazy", "global":
            counted(f"{name}: loaded, {mode}", ["s-host", library(name), mode], 2)
        calls = traced(name, ["s-host", library(name), "now"])
        report(f"{name}: all calls", calls.count("cuLaunchKernel") == 2 and calls.count("cuInit") == 1, str(calls))


def names():
    """Variables that are named like functions of the driver, and weak references to it."""
    for name, launches in (("s-variables", 1), ("s-variables-library", 1), ("s-weak-linked", 1), ("s-weak", 0)):
        counted(name, [name], launches)
        if name != "s-weak-linked":
            bare = run([name], preload=(), **NO_DRIVER)
            if as_bare(f"{name}: no driver", bare, run([name], GPUPROBE_SESSION=session("none"), **NO_DRIVER)):
                report(f"{name}: no driver", bare[0] == 0 and "no driver" in bare[1], str(bare))


def layers():
    """Another library with functions of the driver, before and behind us: it sees what it sees without us, and so do we."""
    for name in ("layer",) if SANITIZED else ("layer", "layer-dlsym"):  # a dlsym() of its own is asked before a sanitizer has begun
        other = library(name)
        for program, launches in (["s-linked"], 40), (["s-dlsym"], 3), (["s-threads"], 40), (["s-plain"], 0), (["s-host", library("plugin"), "now"], 2):
            bare = run(program, preload=(other,))
            calls = traced(program[0], program) if launches else []
            for order in (SHIM, other), (other, SHIM):
                label = f"{name} {'last' if order[1] == other else 'first'}: {program[0]}"
                counted(label, program, launches, preload=order, bare=bare)
                if launches:
                    report(f"{label}: all calls", traced(label, program, preload=order) == calls, "others than without it")


def closing():
    """The driver stays in use, and dlclose() answers as if it were not held."""
    text = "33152\nclosed 2 times, not open\n" * 3
    counted("closed until it fails", ["s-dlclose"], 3, bare=(0, text, "", 0))
    counted("closed once", ["s-dlclose", "1"], 3, bare=(0, text.replace("2 times, not open", "1 times, no error"), "", 0))
    with tempfile.TemporaryDirectory() as folder:
        counted(
            "closed too often, without libgpuprobe-hold.so",
            ["s-dlclose", "5"],
            3,
            preload=(shutil.copy(SHIM, folder),),
            bare=(0, text.replace("2 times, not open", "5 times, no error"), "", 0),
        )


copies()
linked()
plugins()
names()
layers()
closing()
end()
