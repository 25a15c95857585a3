#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test-folded.py TEST-WRITERS: folded stacks."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

# what is freed is free: memory is measured
ENV = os.environ | {"ASAN_OPTIONS": "quarantine_size_mb=1:thread_local_quarantine_size_kb=64"}


def load(path):
    sums = {}
    for line in path.read_bytes().split(b"\n")[:-1]:
        # as flamegraph.pl takes a line apart
        stack, value = re.fullmatch(rb"(.*)\s+?(\d+)", line).groups()
        assert int(value) > 0 and b"\n" not in stack
        key = tuple(stack.decode("utf-8").split(";"))
        sums[key] = sums.get(key, 0) + int(value)
    return sums


with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / "trace.folded"
    run = lambda scene: subprocess.run([sys.argv[1], "folded", scene, path], check=True, stdout=subprocess.PIPE, env=ENV).stdout
    run("sample")
    sums = load(path)
    stack = ('py"thon', "main", "inner,frame", "cuLaunchKernel")
    expected = {
        stack: 8,  # 10.5 us less the ioctl's 3: 7.5
        stack + ("NV_ESC_RM_CONTROL",): 3,
        stack + ("add(int, <char>)",): 20,
        ('py"thon', "cuGraphLaunch"): 10,
        ('py"thon', "cuGraphLaunch", "graph"): 21,
        ('py"thon', "[GPU]", "on another stream"): 1,
        ('py"thon', "values"): 1,
        ('py"thon', "cuMemAlloc_v2"): 3,  # 2.5
        ('py"thon', "cuMemFree_v2"): 1,
        ('py"thon', "cuCtxSynchronize"): 100,
        # the one around the other came later
        ('py"thon', "cuModuleLoad"): 1,
        ('py"thon', "cuInit"): 2,
        ('py"thon', "cuInit", "crosses"): 2,  # 1.5
        ("pid 4194303", "in a process that nobody knows"): 1,
        ("pid 0", "irq:irq_handler_entry"): 1,  # 0.5
    }
    for key, value in expected.items():
        assert sums.get(key) == value, (key, sums.get(key), sums)
    # no time counts twice, however many threads or names there are
    run("threads")
    assert load(path) == {('py"thon', "outer"): 5000000, ('py"thon', "outer", "inner"): 5000000}, load(path)
    run("names")
    sums = load(path)
    assert len(sums) == 30001 and sum(sums.values()) == 40000 and sums['py"thon', "outer"] == 10000, (len(sums), sum(sums.values()))
    # of a long stack the call is the last that would be left out
    run("stacks")
    stack = ('py"thon',) + tuple("function_%0300d" % i for i in reversed(range(30)))
    assert load(path) == {
        stack + ("cuLaunchKernel",): 7,
        stack + ("cuLaunchKernel", "ioctl"): 3,
        stack + ("cuMemcpy",): 20,
        stack + ("cuLaunchKernel", "vectorAdd"): 500,
    }, load(path)
    run("empty")
    assert load(path) == {}
    grown = int(run("many"))
    assert grown < 2048, grown
