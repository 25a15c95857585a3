#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tools of gputrace: each finds what is planted in a program on the CPU driver, and says nothing about a program without it."""

import json
import os
import re
import time

from gputracing import APP, BLOCK, KERNEL, LAUNCHES, THREADS, gputrace, running
from harness import SOURCE, VEC_ADD, Daemon, check, equal, main

NOTHING = ["/bin/true"]  # a program without CUDA
TOOLS = sorted(name[:-3] for name in os.listdir(os.path.join(SOURCE, "ctl/tools")) if name.endswith(".gt"))


def tool(*arguments, app=APP, status=0):
    out, err = gputrace(*arguments, app=app, status=status)
    equal(err, "", arguments)
    return out


def histogram(name, *arguments, app):
    """{kernel: {lower bound: count}} of a tool that prints one."""
    item = next((json.loads(line) for line in tool(name, "-f", "json", *arguments, app=app).splitlines()), None)
    return {entry["keys"][0]: {bucket.get("min"): bucket["count"] for bucket in entry["value"]} for entry in item["entries"]} if item else {}


def test_all():
    """Each is listed with a line of help, says how it is called, and says nothing about a program that does nothing."""
    listed = dict(re.findall(r"^  (\S+) +(\S.*)$", tool("-l", app=None).split("Tools:\n")[1], re.M))
    equal(sorted(listed), TOOLS)
    for name in TOOLS:
        text = tool(name, "--help", app=None)
        check(text.startswith(f"Usage: gputrace {name} [-k KERNEL] [-p PID] [-d SECONDS] [-- CMD [ARGUMENT]...]\n\n{listed[name]}\n\n"), text)
        equal(tool(name, app=NOTHING), "", name)
    _, err = gputrace("kernel", app=NOTHING, status=1)
    equal(err, "gputrace: kernel: No such file or directory; did you mean kernels?\n")
    _, err = gputrace("qqqqqqqq", app=NOTHING, status=1)
    equal(err, "gputrace: qqqqqqqq: No such file or directory; gputrace -l lists the tools\n")
    _, err = gputrace("allocs", "-k", "*", app=NOTHING, status=1)
    check("-k is for probes whose kernel is *, as in launch:*; there is none" in err, err)


def test_kernels():
    line = rf" +(\d+) +(\d+) +\d+\.\d{{3}} +{THREADS // BLOCK} +1 +1 +{BLOCK} +1 +1 +0  {re.escape(KERNEL)}\n"
    found = re.fullmatch(r" +COUNT +TOTAL us .* KERNEL\n" + line, tool("kernels"))
    check(found and int(found[1]) == LAUNCHES, tool("kernels"))
    check(re.search(line, tool("kernels", "-k", "vector*")), "its kernel alone")
    equal(tool("kernels", "-k", "other*"), "")
    check(re.search(r" 1 +\d+ .* \(graph\)\n$", tool("kernels", app=[*APP[:-1], "8", "--how", "graph"])), "all launches of the graph")
    with Daemon() as daemon:
        process = daemon.start_run(VEC_ADD, "--threads", "512", "--launches", "60", "--sleep-ms", "50")
        time.sleep(0.5)
        with running(daemon, "kernels", "-p", str(process.pid), "-d", "1") as tracer:
            out, err = tracer.communicate(timeout=20)
            found = re.search(rf"\n +(\d+) .*{re.escape(KERNEL)}\n$", out)
            check(found and 5 <= int(found[1]) <= 30, out, err)
        process.kill()
        process.communicate()


def test_latencies():
    """A long launch among short ones, or not. On the CPU driver a kernel runs while it is launched."""
    for name in ("kernlat", "launchlat"):
        short = histogram(name, app=APP)
        equal({kernel: sum(counts.values()) for kernel, counts in short.items()}, {KERNEL: LAUNCHES})
        equal(histogram(name, "-k", "other*", app=APP), {})
    long = histogram("launchlat", app=[VEC_ADD, "--threads", "131072", "--block", "128"])
    check(min(long[KERNEL]) >= 4096 > min(short[KERNEL]), long, short)


def test_allocs():
    size = 4 * THREADS
    out = tool("allocs")
    equal(len(re.findall(rf"^{size} bytes in 1 calls of cuMemAlloc_v2 from\n    vec_add_driver\+0x\w+ \(main\+0x\w+\)\n", out, re.M)), 3)
    check(out.endswith(f"\n{3 * size} bytes in 3 calls in all\n"), out)


if __name__ == "__main__":
    main([test_all, test_kernels, test_latencies, test_allocs])
