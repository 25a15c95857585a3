#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tools of gputrace: each finds what is planted in a program on the CPU driver, and says nothing about a program without it."""

import json
import os
import re
import tempfile
import time

from gputracing import APP, BLOCK, KERNEL, LAUNCHES, THREADS, gputrace, running
from harness import BUILD, SOURCE, VEC_ADD, Daemon, check, equal, main, need

PTX_DRIVER = os.path.join(BUILD, "tests/sim/ptx_driver")
need(PTX_DRIVER)
NOTHING = ["/bin/true"]  # a program without CUDA
TOOLS = sorted(name[:-3] for name in os.listdir(os.path.join(SOURCE, "ctl/tools")) if name.endswith(".gt"))


def tool(*arguments, app=APP, status=0, **more):
    out, err = gputrace(*arguments, app=app, status=status, **more)
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
        equal(gputrace(name, app=NOTHING)[0], "", name)  # on the GPU: that nothing was probed is said beside it
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


STORES = """.version 7.0
.target sm_70
.address_size 64
.visible .entry good(.param .u64 p) {
	.reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .f32 %f<4>;
	ld.param.u64 %rd1, [p];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd2, %r1, 4;
	add.s64 %rd3, %rd1, %rd2;
	mov.u32 %r2, 0xffffffff;
	st.global.u32 [%rd3], %r2;
	mov.f32 %f1, 0f3f800000;
	st.global.f32 [%rd3+256], %f1;
	ret;
}
.visible .entry bad(.param .u64 p) {
	.reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .f32 %f<4>; .reg .f64 %d<2>; .reg .b16 %h<2>; .reg .pred %p<2>;
	ld.param.u64 %rd1, [p];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd2, %r1, 8;
	add.s64 %rd3, %rd1, %rd2;
	mov.f32 %f1, 0f3f800000;
	setp.eq.u32 %p1, %r1, 5;
	@%p1 mov.f32 %f1, 0f7fc00000;
	st.global.f32 [%rd3], %f1;
	mov.f64 %d1, 0dfff0000000000000;
	st.global.f64 [%rd3+1024], %d1;
	mov.b16 %h1, 0x7c01;
	st.global.b16 [%rd3+2048], %h1;
	mov.f32 %f2, 0f3f800000;
	st.global.v2.f32 [%rd3+4096], {%f2, %f1};
	ret;
}
"""


ACCESSES = """.version 7.0
.target sm_70
.address_size 64
.visible .entry good(.param .u64 p) {
	.reg .b64 %rd<4>; .reg .b32 %r<4>;
	ld.param.u64 %rd1, [p];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd2, %r1, 4;
	add.s64 %rd3, %rd1, %rd2;
	ld.global.u32 %r2, [%rd3];
	st.global.u32 [%rd3+4096], %r2;
	ret;
}
.visible .entry bad(.param .u64 p) {
	.reg .b64 %rd<6>; .reg .b32 %r<4>; .reg .pred %p<2>;
	ld.param.u64 %rd1, [p];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd2, %r1, 128;
	add.s64 %rd3, %rd1, %rd2;
	ld.global.u32 %r2, [%rd3];
	mul.wide.u32 %rd4, %r1, 8;
	add.s64 %rd5, %rd1, %rd4;
	setp.lt.u32 %p1, %r1, 16;
	@%p1 st.global.u32 [%rd5+8192], %r2;
	ret;
}
"""


def test_coalesce():
    """A load with a stride of 128 bytes, a store of half a warp with one of 8; and the same without strides."""
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(ACCESSES)
        file.flush()
        equal(tool("coalesce", app=[PTX_DRIVER, file.name, "good"], GPUPROBE_SIM_WARPS="whole"), "good words=0\n")
        out = tool("coalesce", app=[PTX_DRIVER, file.name, "good", "bad"], GPUPROBE_SIM_WARPS="whole")
    lines = [line.split(None, 4) for line in out.splitlines() if "words=" not in line]
    equal(
        lines,
        [
            ["SECTORS", "NEEDED", "REQUESTS", "TOO", "MANY  KERNEL, LINE"],
            ["4.0", "2.0", "1", "2", "bad, @%p1 st.global.u32 [%rd5+8192], %r2;"],
            ["32.0", "4.0", "1", "28", "bad, ld.global.u32 %r2, [%rd3];"],
        ],
    )


def test_nans():
    """Kernels that store NaN and infinity of several types, and one that stores integers whose bits are those of NaN."""
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(STORES)
        file.flush()
        out = tool("nans", app=[PTX_DRIVER, file.name, "good"])
        equal(out, "good words=1138736640\n")
        out = tool("nans", app=[PTX_DRIVER, file.name, "good", "bad"])
    lines = [line for line in out.splitlines() if "words=" not in line]
    equal(
        sorted(lines),
        [
            "1 NaN or Inf stored as f32 by bad at st.global.f32 [%rd3], %f1;",
            "1 NaN or Inf stored as f32 by bad at st.global.v2.f32 [%rd3+4096], {%f2, %f1};",
            "32 NaN or Inf stored as f64 by bad at st.global.f64 [%rd3+1024], %d1;",
            "32 NaN or Inf, if these are floats, stored by bad at st.global.b16 [%rd3+2048], %h1;",
        ],
    )


if __name__ == "__main__":
    main([test_all, test_kernels, test_latencies, test_allocs, test_coalesce, test_nans])
