#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Which twin is launched, and where the original is: kernels with barriers of their own, cooperative launches, launches with attributes, attributes of
functions, several contexts. What is launched is counted exactly. On the CPU driver, or with GPUPROBE_TEST_GPU=1 on a GPU.
"""

import contextlib
import os
import tempfile

from harness import BUILD, CTL, GPU, GPUPROBED, SHIM, SIM, Daemon, check, equal, main, need, wait_until
import live
from live import obj, reasons

FIT = os.path.join(BUILD, "tests/sim/fit_driver")
need(GPUPROBED, CTL, SHIM, FIT, obj("two"), obj("log"), *([] if GPU else [os.path.join(SIM, "libcuda.so.1")]))

BLOCK = 64  # threads, if nothing else is said
DYNAMIC_SHARED, REGISTERS = 8, 4  # CUfunction_attribute
TOO_LARGE = 720  # CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
EAGER = {"CUDA_MODULE_LOADING": "EAGER"}  # then twins of libraries are modules
AT_ONCE = "its blocks may not all fit on the device at once"

# Each thread adds 1 to the first word and to a variable of the module; `tell` writes the variable to the second word.
HEAD = """\
.version 7.0
.target sm_70
.address_size 64
.visible .global .align 4 .u32 total;
.extern .shared .align 4 .b8 dynamic[];
.visible .entry tell(.param .u64 words, .param .u32 blocks)
{
	.reg .b64 %rd<2>;
	.reg .b32 %r<4>;
	.reg .pred %p;
	ld.param.u64 %rd1, [words];
	mov.u32 %r1, %tid.x;
	setp.ne.u32 %p, %r1, 0;
	@%p ret;
	ld.global.u32 %r2, [total];
	st.global.u32 [%rd1+4], %r2;
	ret;
}
.visible .entry vectorAdd(.param .u64 words, .param .u32 blocks)
{
	.reg .b64 %rd<2>;
	.reg .b32 %r<24>;
	.reg .pred %p<3>;
	ld.param.u64 %rd1, [words];
	ld.param.u32 %r1, [blocks];
	mov.u32 %r2, %tid.x;
"""
TAIL = """
	red.global.add.u32 [%rd1], 1;
	red.global.add.u32 [total], 1;
	ret;
}
"""
# The first thread of each block waits for all other blocks. The program clears the third word before the launch.
BARRIER = """
	setp.ne.u32 %p1, %r2, 0;
	@%p1 bra LAST;
	red.global.add.u32 [%rd1+8], 1;
NEXT:
	ld.volatile.global.u32 %r3, [%rd1+8];
	setp.lt.u32 %p2, %r3, %r1;
	@%p2 bra NEXT;
LAST:
	bar.sync 0;
"""
# Waits until another kernel or the host writes the fourth word.
FLAG = """
NEXT:
	ld.volatile.global.u32 %r3, [%rd1+12];
	setp.eq.u32 %p2, %r3, 0;
	@%p2 bra NEXT;
"""


class Fit(live.Live):
    def __init__(self, daemon, **more):
        super().__init__(daemon, load=None, program=FIT, **more)
        self.sums = False
        self.threads = BLOCK

    def block(self, threads, shared=0):
        self.threads = threads
        self.do(f"block {threads} {shared}")

    def run(self, how="plain", count=1, context=0, blocks=4, slot=0):
        """Launches, and returns how many threads are to be counted."""
        equal(self.do(f"launch {slot} {context} {how} {blocks} {count}"), [0], how)
        return count * blocks * self.threads

    def word(self, index, context=0):
        return self.do(f"word {context} {index}")[0]


@contextlib.contextmanager
def program(body="", load="module", head=HEAD, **more):
    """A daemon and a program that has loaded such a kernel before anything is attached. body: of the kernel."""
    with tempfile.TemporaryDirectory() as folder, Daemon("--engine", "ptx") as daemon, Fit(daemon, **more) as fit:
        path = os.path.join(folder, "module.ptx")
        with open(path, "w", encoding="utf-8") as file:
            file.write(head + body + TAIL)
        fit.do(f"{load} 0 {path}")
        yield daemon, fit


def attach(daemon):
    return {a["program"]: str(a["id"]) for a in daemon.json("attach", obj("two"))["attachments"]}


def detach(daemon, attached):
    for each in attached.values():
        daemon.ctl("detach", each)


def wait_for_twin(daemon, fit, how="plain", context=0):
    """Launches until a launch is counted: the launch that asks for a twin does not wait for it."""
    before = daemon.count_of()

    def probed():
        fit.run(how, context=context)
        return daemon.count_of() != before

    wait_until(probed, "a launch that is probed")


def counted(daemon, launch):
    """What a function's launches are counted as, and what it returns."""
    before = daemon.count_of()
    expected = launch()
    return daemon.count_of() - before, expected


def exact(daemon, launch, what=""):
    got, expected = counted(daemon, launch)
    equal(got, expected, what)


def not_counted(daemon, launch, what=""):
    got, expected = counted(daemon, launch)
    check(expected, what)
    equal(got, 0, what)


def without(daemon):
    """What `why` says of launches without the twin that there is."""
    return [reason for reason in reasons(daemon) if "without probes" in reason]


def test_ways():
    """Cooperative launches and those with attributes are probed."""
    for load in ("module", "library"):
        with program(load=load) as (daemon, fit):
            ways = ["plain", "cooperative", "ex", "coopex", "cluster", "priority", "serial"] + ["handle"] * (load == "library")
            if GPU and fit.do("launch 0 0 cluster 4 1") != [0]:  # a GPU without clusters
                ways.remove("cluster")
            for how in ways:
                fit.run(how)
            attached = attach(daemon)
            for how in ways:
                wait_for_twin(daemon, fit, how)
                exact(daemon, lambda: fit.run(how, 3), f"{load} {how}")
            detach(daemon, attached)
            for how in ways:
                fit.run(how)


def test_listed():
    """A kernel that the program knows from a library's list alone."""
    with program(load="library") as (daemon, fit):
        fit.run("listed")
        attach(daemon)
        wait_for_twin(daemon, fit, "listed")
        exact(daemon, lambda: fit.run("listed", 3))


def test_refused():
    """What the driver refuses bare, it refuses with a twin, too, and that counts nothing."""
    with program() as (daemon, fit):
        fit.run()
        launches = [f"launch 0 0 {how} 4 1" for how in ("newer", "updatable")] + ["launch 0 0 cooperative 1000000 1"]
        bare = [fit.do(launch) for launch in launches]
        check(GPU or [0] not in bare, bare)  # a GPU's driver may take no notice of an attribute
        equal(bare[-1], [TOO_LARGE])
        attach(daemon)
        wait_for_twin(daemon, fit)
        before = daemon.count_of()
        equal([fit.do(launch) for launch in launches], bare)
        equal(daemon.count_of(), before)
        exact(daemon, lambda: fit.run("plain", 2))


def test_not_at_once():
    """Where all blocks fit at once with the original, and not with the twin, the original is launched, and `why` says so once."""
    # The CPU driver counts the registers that a kernel declares. There are as many here as let 2 blocks of 1024 threads be on a multiprocessor;
    # the twin has more.
    if GPU:
        return
    with program() as (_, fit):
        registers = (fit.do(f"get 0 0 {REGISTERS}")[0] + 7) // 8 * 8
    for load in ("module", "library"):
        with program(load=load, GPUPROBE_SIM_REGISTERS=str(2048 * registers)) as (daemon, fit):
            fit.block(1024)
            blocks, processors = fit.do("fits 0 0")
            equal(blocks, 2)
            attach(daemon)
            wait_for_twin(daemon, fit)
            for how in ("plain", "ex", "cooperative", "coopex", "cluster"):
                exact(daemon, lambda: fit.run(how, 2, blocks=processors), f"{how}: fits with both")
            equal(without(daemon), [])
            for how in ("plain", "ex", "cooperative", "coopex", "cluster"):
                not_counted(daemon, lambda: fit.run(how, 2, blocks=2 * processors), f"{how}: fits with the original alone")
                not_counted(daemon, lambda: fit.run(how, 1, blocks=processors + 2), f"{how}: the same with fewer")
            for how in ("plain", "ex", "cluster"):
                exact(daemon, lambda: fit.run(how, 2, blocks=2 * processors + 2), f"{how}: fits with neither")
            for how in ("cooperative", "coopex"):
                equal(fit.do(f"launch 0 0 {how} {2 * processors + 1} 1"), [TOO_LARGE])
            equal(without(daemon), [f"launched 1 time without probes, with which {AT_ONCE}"])
            equal(fit.do("fits 0 0"), [2, processors], "a question of the program is about its own kernel")


def test_no_registers():
    """A block that the twin has not registers enough for."""
    if GPU:
        return
    with program() as (_, fit):
        registers = (fit.do(f"get 0 0 {REGISTERS}")[0] + 7) // 8 * 8
    with program(GPUPROBE_SIM_REGISTERS=str(1024 * registers)) as (daemon, fit):
        fit.block(64)
        attach(daemon)
        wait_for_twin(daemon, fit)
        fit.block(1024)
        not_counted(daemon, lambda: fit.run("plain", 2))
        not_counted(daemon, lambda: fit.run("cooperative", 2))
        equal(without(daemon), ["launched 1 time without probes, with which registers do not suffice"])
        fit.block(512)
        exact(daemon, lambda: fit.run("plain", 2))


def test_no_local_memory():
    """The driver has no memory left for the stacks of a twin's threads, and refuses the launch: the original is launched."""
    if GPU:
        return
    with tempfile.TemporaryDirectory() as folder:
        full = os.path.join(folder, "full")
        with program(GPUPROBE_SIM_NO_LOCAL=full) as (daemon, fit):
            fit.run()
            daemon.json("attach", obj("log"))  # its texts are in local memory
            attach(daemon)
            wait_for_twin(daemon, fit)
            open(full, "w", encoding="utf-8").close()
            for how in ("plain", "ex", "cooperative", "coopex"):
                not_counted(daemon, lambda: fit.run(how, 2), how)
            os.unlink(full)
            exact(daemon, lambda: fit.run("plain", 2))


def test_attributes():
    """What the program changes about a function is changed about its twin, before it is attached to and after."""
    for load, verb, how, more in (
        ("module", "set", "plain", {}),
        ("library", "set", "plain", {}),
        ("library", "setkernel", "handle", {}),
        ("library", "setkernel", "handle", EAGER),
    ):
        with program(load=load, **more) as (daemon, fit):
            fit.run(how)
            fit.do(f"{verb} 0 0 {DYNAMIC_SHARED} 60000")
            attach(daemon)
            wait_for_twin(daemon, fit, how)
            fit.block(BLOCK, 60000)
            exact(daemon, lambda: fit.run(how, 2), f"{load} {verb}: before")
            for size in (70000, 50000, 80000):
                fit.do(f"{verb} 0 0 {DYNAMIC_SHARED} {size}")
                fit.block(BLOCK, size)
                exact(daemon, lambda: fit.run(how, 2), f"{load} {verb}: {size}")
            if verb == "set":
                equal(fit.do(f"get 0 0 {DYNAMIC_SHARED}"), [80000])


def totals_are_right(fit, contexts, slot=0):
    """Each context has variables of its own, and the twin used those."""
    for context in contexts:
        fit.do(f"tell {slot} {context}")
        equal(fit.word(1, context), fit.word(0, context), f"context {context}")


def test_contexts():
    """A library in two contexts, and streams of one while the other is current."""
    for how, more in (("plain", {}), ("handle", {}), ("plain", EAGER), ("handle", EAGER)):
        with program(load="library", **more) as (daemon, fit):
            fit.do("context 1 new")
            for context in (0, 1):
                fit.do(f"current {context}")
                fit.run(how, context=context)
            for cycle in range(3):
                attached = attach(daemon)
                for context in (0, 1):
                    fit.do(f"current {1 - context}")
                    wait_for_twin(daemon, fit, how, context)
                for current in (0, 1):
                    fit.do(f"current {current}")
                    for context in (0, 1, 1, 0):
                        exact(daemon, lambda: fit.run(how, 2, context), f"{how}, cycle {cycle}, {current} is current, in {context}")
                detach(daemon, attached)
                fit.run(how, context=1)
            totals_are_right(fit, (0, 1))


def test_managed():
    """A __managed__ variable is the original's, and one for all contexts."""
    for load, more in (("module", {}), ("library", {}), ("library", EAGER)):
        with program(load=load, head=HEAD.replace(".global .align 4 .u32 total", ".global .attribute(.managed) .align 4 .u32 total"), **more) as (daemon, fit):
            contexts = (0, 1) if load == "library" else (0,)
            if load == "library":
                fit.do("context 1 new")
            for context in contexts:
                fit.run(context=context)
            attached = attach(daemon)
            for context in contexts:
                wait_for_twin(daemon, fit, context=context)
            for context in contexts:
                exact(daemon, lambda: fit.run("plain", 3, context), f"{load} in {context}")
            detach(daemon, attached)
            for context in contexts:
                fit.run(context=context)
            for context in contexts:
                fit.do(f"tell 0 {context}")
                equal(fit.word(1, context), sum(fit.word(0, each) for each in contexts), f"{load} in {context}")


def test_module_elsewhere():
    """A module of one context, launched while another is current."""
    with program() as (daemon, fit):
        fit.do("context 1 new")
        fit.do("current 1")
        fit.run()
        attached = attach(daemon)
        wait_for_twin(daemon, fit)
        exact(daemon, lambda: fit.run("plain", 3))
        detach(daemon, attached)
        fit.run()
        totals_are_right(fit, (0,))


def test_context_ends():
    """Contexts that come and go while a library's kernels are probed: more than there are places for. Their twins go, too."""
    for more in ({}, EAGER):
        with program(load="library", **more) as (daemon, fit):
            fit.run()
            attach(daemon)
            wait_for_twin(daemon, fit)
            for cycle in range(20):
                fit.do("context 1 new")
                wait_for_twin(daemon, fit, context=1)
                exact(daemon, lambda: fit.run("plain", 2, 1), f"cycle {cycle}")
                exact(daemon, lambda: fit.run("plain", 1, 0), f"cycle {cycle}, the first context")
                totals_are_right(fit, (0, 1))
                equal(daemon.attachments()[0]["modules"], 2, f"cycle {cycle}: twins")
                fit.do("destroy 1")


def test_many_contexts():
    """In more contexts than there are places for, originals are launched."""
    with program(load="library") as (daemon, fit):
        attach(daemon)
        for context in range(1, 18):
            fit.do(f"context {context} new")
        for context in range(0, 16):
            wait_for_twin(daemon, fit, context=context)
        not_counted(daemon, lambda: fit.run("plain", 3, 16))
        not_counted(daemon, lambda: fit.run("plain", 3, 17))
        exact(daemon, lambda: sum(fit.run("plain", 1, context) for context in range(16)))
        totals_are_right(fit, range(18))


def test_devices():
    """A library on two devices."""
    with program(load="library") as (daemon, fit):
        if fit.do("devices")[0] < 2:
            return
        fit.do("context 1 device 1")
        attach(daemon)
        for how in ("plain", "handle", "cooperative"):
            for context in (1, 0):
                wait_for_twin(daemon, fit, how, context)
                exact(daemon, lambda: fit.run(how, 2, context), f"{how} in {context}")
        totals_are_right(fit, (0, 1))


def test_green():
    """A green context, with some of the multiprocessors."""
    with program(load="library") as (daemon, fit):
        fit.do("context 1 green 2")
        for how in ("plain", "handle"):
            fit.run(how, context=1)
        attached = attach(daemon)
        for how in ("plain", "handle", "cooperative"):
            for context in (1, 0):
                wait_for_twin(daemon, fit, how, context)
                exact(daemon, lambda: fit.run(how, 2, context), f"{how} in {context}")
        detach(daemon, attached)
        fit.run(context=1)
        if not GPU:  # there it may have the variables of the primary context
            totals_are_right(fit, (0, 1))
        fit.do("destroy 1")


def test_green_not_at_once():
    """A green context has room for fewer blocks than the device."""
    if GPU:
        return
    with program() as (_, fit):
        registers = (fit.do(f"get 0 0 {REGISTERS}")[0] + 7) // 8 * 8
    with program(load="library", GPUPROBE_SIM_REGISTERS=str(2048 * registers)) as (daemon, fit):
        fit.do("context 1 green 4")
        fit.block(1024)
        attach(daemon)
        wait_for_twin(daemon, fit, context=1)
        exact(daemon, lambda: fit.run("plain", 2, 1, blocks=4))
        exact(daemon, lambda: fit.run("cooperative", 2, 1, blocks=4))
        not_counted(daemon, lambda: fit.run("plain", 2, 1, blocks=6))
        not_counted(daemon, lambda: fit.run("cooperative", 2, 1, blocks=8))


def test_barrier():
    """A kernel with a barrier of its own, in all blocks that fit at once, while something is attached and detached: it never waits for ever."""
    with program(BARRIER, GPUPROBE_SIM_THREADS="8") as (daemon, fit):
        fit.block(BLOCK if not GPU else 1024)
        blocks, processors = fit.do("fits 0 0")
        blocks = blocks * processors if GPU else processors  # the CPU driver runs one block on each multiprocessor

        def launch():
            fit.do("write 0 2 0")
            return fit.run("plain", blocks=blocks)

        launch()
        launched = 1
        for cycle in range(4):
            attached = attach(daemon)
            before = daemon.count_of()
            for _ in range(20):
                launch()
            probed = daemon.count_of() - before
            check(probed % (blocks * fit.threads) == 0, f"cycle {cycle}: {probed}")
            detach(daemon, attached)
            launch()
            launched += 21
        equal(fit.word(0), launched * blocks * fit.threads % 2**32)


def test_later_launch():
    """A kernel that waits for a later launch never hangs, also where it is attached to while it runs."""
    # The CPU driver runs one kernel after the other, in the thread that launches it.
    if not GPU:
        return
    wait_for_later_launch()
    for other in ("new", "green 8"):
        wait_in_another_context(other)


def wait_in_another_context(kind):
    """Kernels of a context wait while a library is attached to that is launched in another one."""
    with program(FLAG, load="library") as (daemon, fit):
        fit.do(f"context 1 {kind}")
        fit.do("write 0 3 1")
        fit.do("write 1 3 1")
        for context in (0, 1):
            fit.run(context=context)
        fit.do("write 0 3 0")
        fit.do("begin 0 0 4")
        attach(daemon)
        for _ in range(10):
            fit.run(context=1)
        fit.do("write 0 3 1")
        fit.do("wait 0")
        wait_for_twin(daemon, fit, context=1)
        exact(daemon, lambda: fit.run("plain", 3, 1), kind)


def wait_for_later_launch():
    with program(FLAG) as (daemon, fit), tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "other.ptx")
        with open(path, "w", encoding="utf-8") as file:
            file.write(HEAD + "	st.global.u32 [%rd1+12], 1;\n" + TAIL)
        fit.do(f"module 1 {path}")
        for before in (True, False):
            fit.do("write 0 3 1")
            for slot in (0, 1):
                fit.run(slot=slot)
            attached = attach(daemon) if before else None
            fit.do("write 0 3 0")
            fit.do("begin 0 0 4")
            attached = attached or attach(daemon)
            for _ in range(5):
                fit.do("later 1 0 4")
            fit.do("wait 0")
            wait_until(lambda: fit.run(slot=1) and daemon.count_of(), "a launch that is probed")
            detach(daemon, attached)


if __name__ == "__main__":
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
