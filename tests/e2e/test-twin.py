#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Twins: attaching, under the PTX engine, to modules that were loaded before. What was launched in between is counted, exactly; the module's own
variables are used; detached, the original runs again and nothing is left. On the CPU driver, or with GPUPROBE_TEST_GPU=1 on a GPU.
"""

import os
import tempfile

from harness import COUNTER, CTL, GPU, GPUPROBED, SHIM, SIM, Daemon, check, equal, main, need, wait_until
import live
from live import LIVE, THREADS, engines, obj, reasons

need(GPUPROBED, CTL, COUNTER, SHIM, LIVE, obj("two"), *([] if GPU else [os.path.join(SIM, "libcuda.so.1")]))

# Each thread adds 1 to its word, as vectorAdd of language.cu does, and to a variable; and `tell` adds the variable to the first word.
VARIABLES = """\
.version 7.0
.target sm_70
.address_size 64
.visible .global .align 4 .u32 total;
.global .align 4 .u32 steps[4] = {1, 1, 1, 1};
.visible .entry vectorAdd(.param .u64 data)
{
	.reg .b64 %rd<6>;
	.reg .b32 %r<8>;
	ld.param.u64 %rd1, [data];
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mad.lo.s32 %r4, %r2, %r3, %r1;
	mul.wide.u32 %rd2, %r4, 4;
	add.s64 %rd3, %rd1, %rd2;
	ld.global.u32 %r5, [%rd3];
	and.b32 %r6, %r1, 3;
	mul.wide.u32 %rd4, %r6, 4;
	mov.u64 %rd5, steps;
	add.s64 %rd5, %rd5, %rd4;
	ld.global.u32 %r7, [%rd5];
	add.s32 %r5, %r5, %r7;
	st.global.u32 [%rd3], %r5;
	red.global.add.u32 [total], %r7;
	ret;
}
.visible .entry tell(.param .u64 data)
{
	.reg .b64 %rd<2>;
	.reg .b32 %r<4>;
	.reg .pred %p;
	ld.param.u64 %rd1, [data];
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, %ctaid.x;
	or.b32 %r1, %r1, %r2;
	setp.ne.u32 %p, %r1, 0;
	@%p ret;
	ld.global.u32 %r3, [total];
	red.global.add.u32 [%rd1], %r3;
	ret;
}
"""

# The same, but `tell` adds twice the variable: a function says what, by a pointer that vectorAdd copies.
POINTERS = (
    VARIABLES.replace(
        ".visible .entry vectorAdd",
        """\
.visible .func (.param .b32 out) twice(.param .b32 in)
{
	.reg .b32 %r<2>;
	ld.param.u32 %r1, [in];
	add.s32 %r1, %r1, %r1;
	st.param.b32 [out], %r1;
	ret;
}
.visible .global .align 8 .u64 table[2] = {twice, 0};
.visible .entry vectorAdd""",
    )
    .replace("	ld.param.u64 %rd1, [data];", "	ld.global.u64 %rd1, [table];\n	st.global.u64 [table+8], %rd1;\n	ld.param.u64 %rd1, [data];", 1)
    .replace(
        "	red.global.add.u32 [%rd1], %r3;",
        """\
	{
	.reg .b64 %f;
	.param .b32 in;
	.param .b32 out;
	ld.global.u64 %f, [table+8];
	st.param.b32 [in], %r3;
	prototype: .callprototype (.param .b32 _) _ (.param .b32 _);
	call (out), %f, (in), prototype;
	ld.param.b32 %r3, [out];
	}
	red.global.add.u32 [%rd1], %r3;""",
    )
)


def Live(daemon, **more):
    return live.Live(daemon, **more)


def ptx_daemon(*options):
    return Daemon("--engine", "ptx", *options)


def wait_for_twin(daemon, program):
    """Launches until a launch is counted: the launch that asks for a twin does not wait for it. Returns what is counted by then."""

    def probed():
        program.launch(1)
        return daemon.count_of()

    wait_until(probed, "a launch that is probed")
    return daemon.count_of()


def count_attached(daemon, program, launches):
    """Attaches, launches, and detaches; the number of threads that were counted."""
    attached = {a["program"]: a["id"] for a in daemon.json("attach", obj("two"))["attachments"]}
    before = wait_for_twin(daemon, program)
    program.launch(launches)
    counted = daemon.count_of()
    daemon.ctl("detach", str(attached["cuda__count"]))
    program.launch(1)
    equal(daemon.count_of(), counted, "after detach")
    daemon.ctl("detach", str(attached["cuda__keep"]))
    program.launch(1)
    return counted - before


def load_text(program, folder, text):
    path = os.path.join(folder, "module.ptx")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    program.do(f"file 0 {path}")


def test_loaded_before():
    for load in ("load 0", "load 0 library"):
        with ptx_daemon() as daemon, Live(daemon, load=load) as program:
            program.launch(5)
            for cycle in range(3):
                equal(count_attached(daemon, program, 7), 7 * THREADS, f"{load}, cycle {cycle}")


def test_cycles():
    """Attached and detached again and again, a process has no more memory, mappings and descriptors than after the first times."""

    def sizes(program):
        with open(f"/proc/{program.process.pid}/maps", encoding="utf-8") as maps:
            return program.memory(), len(maps.readlines()), program.descriptors()

    with ptx_daemon() as daemon, Live(daemon) as program:
        program.launch(1)
        for _ in range(5):
            count_attached(daemon, program, 1)
        before = sizes(program)
        for _ in range(40):
            equal(count_attached(daemon, program, 1), THREADS)
        after = sizes(program)
        check(GPU or after[0] <= before[0] + 400, "memory in KiB", before, after)  # 40 maps have 4,000
        check(after[1] <= before[1] + 8, "mappings", before, after)
        equal(after[2], before[2], "descriptors")


def test_says_so():
    with ptx_daemon() as daemon, Live(daemon) as program:
        program.launch(1)
        daemon.attach()
        check("recompiled" not in daemon.ctl("list"), "before there is a twin")
        wait_for_twin(daemon, program)
        equal(engines(daemon), {("vectorAdd", "ptx")})
        equal([(a["modules"], a["recompiled"]) for a in daemon.attachments()], [(1, 1)])
        check("  recompiled  " in daemon.ctl("list"), daemon.ctl("list"))


def test_variables():
    """The twin works with the variables of the module that was loaded, not with some of its own."""
    with tempfile.TemporaryDirectory() as folder, ptx_daemon() as daemon, Live(daemon, load=None) as program:
        load_text(program, folder, VARIABLES)
        program.launch(2)
        equal(count_attached(daemon, program, 3), 3 * THREADS)
        program.right()
        total = program.launched * THREADS
        program.launch(1, "tell")
        equal(program.do("sum"), [2 * total], "total")


def test_constants():
    """The twin reads the module's __constant__ variables, also as the program changes them."""
    text = VARIABLES.replace(".global .align 4 .u32 steps[4]", ".const .align 4 .u32 steps[4]").replace("ld.global.u32 %r7", "ld.const.u32 %r7")
    with tempfile.TemporaryDirectory() as folder, ptx_daemon() as daemon, Live(daemon, load=None) as program:
        load_text(program, folder, text)
        program.launch(2)
        equal(count_attached(daemon, program, 3), 3 * THREADS)
        program.right()


def test_pointers():
    """A kernel that calls a function by a pointer is left alone, and `why` says so; the pointer that another kernel's twin copied is good."""
    with tempfile.TemporaryDirectory() as folder, ptx_daemon() as daemon, Live(daemon, load=None) as program:
        load_text(program, folder, POINTERS)
        program.launch(2)
        daemon.attach("--kernel", "*")
        wait_for_twin(daemon, program)
        counted = daemon.count_of()
        program.launch(3)
        program.right()
        total = program.launched * THREADS
        program.launch(2, "tell")
        equal(daemon.count_of(), counted + 3 * THREADS)
        equal(program.do("sum"), [5 * total], "twice what vectorAdd counted, twice")
        said = {outcome["kernel"]: outcome["reason"] for outcome in daemon.why() if outcome["outcome"] == "not-probed"}
        equal(said.get("tell"), "no twin can be made: it calls functions by pointers")
        equal(engines(daemon), {("vectorAdd", "ptx")})


def test_cannot():
    """The same where no other kernel is meant."""
    with tempfile.TemporaryDirectory() as folder, ptx_daemon() as daemon, Live(daemon, load=None) as program:
        load_text(program, folder, POINTERS)
        program.launch(1)
        daemon.attach("--kernel", "tell")

        def said():
            program.launch(1, "tell")
            return "no twin can be made: it calls functions by pointers" in reasons(daemon)

        wait_until(said, "the reason")
        equal(daemon.count_of(), 0)


def test_unloaded():
    """The module is unloaded and loaded again while it is probed."""
    with ptx_daemon() as daemon, Live(daemon) as program:
        program.launch(1)
        daemon.attach()
        counted = wait_for_twin(daemon, program)
        program.do("unload 0")
        equal(daemon.count_of(), counted, "unloaded")
        program.do("load 0")
        program.launch(3)
        equal(daemon.count_of(), counted + 3 * THREADS, "loaded again")


def test_threads():
    """Attached and detached while threads launch: the program computes what it does bare, and no thread is counted twice."""
    with ptx_daemon() as daemon, Live(daemon) as program:
        program.do("start 0 vectorAdd 4")
        for cycle in range(10):
            begun = program.do("counts")[0]
            attached = {a["program"]: a["id"] for a in daemon.json("attach", obj("two"))["attachments"]}
            wait_until(daemon.count_of, "the probe's first launch")
            daemon.ctl("detach", str(attached["cuda__count"]))
            ended = program.do("counts")[1]
            counted = daemon.count_of()
            check(0 < counted <= (ended - begun + 8) * THREADS, f"cycle {cycle}: {counted} of {begun} to {ended}")
            daemon.ctl("detach", str(attached["cuda__keep"]))
        program.note("vectorAdd", program.do("stop")[0])


def test_daemon_dies():
    """Without a daemon the program goes on; with the next one it is probed again."""
    with ptx_daemon() as daemon, Live(daemon) as program:
        program.launch(1)
        daemon.attach()
        wait_for_twin(daemon, program)
        daemon.kill()
        program.launch(3)
        daemon.start()
        daemon.attach()
        counted = wait_for_twin(daemon, program)
        program.launch(4)
        equal(daemon.count_of(), counted + 4 * THREADS)


if __name__ == "__main__":
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
