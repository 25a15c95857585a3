#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Variables of a thread (section .thread), through the whole product: what programs keep in registers equals what they keep in memory; the
examples that use them; and what is refused. On the CPU driver, or with GPUPROBE_TEST_GPU=1 on a GPU.
"""

import glob
import os
import tempfile

from harness import BUILD, CTL, GPU, GPUPROBED, SHIM, SIM, VEC_ADD, Daemon, check, equal, main, need
from live import example, obj, sass_daemon
from manager import Manager

OBJECTS = os.path.join(BUILD, "daemon/translator/objects")
N, LAUNCHES = 1024, 3

need(GPUPROBED, CTL, SHIM, VEC_ADD, obj("thread"), example("block_sched"), *([] if GPU else [os.path.join(SIM, "libcuda.so.1")]))


def run(daemon, threads=N, launches=LAUNCHES):
    status, out, err, _ = daemon.run(VEC_ADD, "--threads", str(threads), "--launches", str(launches))
    equal((status, err), (0, ""), out)
    outcomes = daemon.why()
    equal([(o["outcome"], o["reason"]) for o in outcomes if o["outcome"] != "probed"], [], "outcomes")


def objects_that_are_refused():
    return {
        "thread-address": "a helper cannot take the address of slot, a variable of a thread, which is a register: copy it to a variable of the function: "
        "bpf_map_update_elem(&array, &slot, &begin, BPF_ANY); @ thread-address.bpf.c:22",
        "thread-device": "program cuda__call uses variables of a thread (.thread), which kernels keep and device functions do not have: attach it to a kernel",
        "thread-initial": "limit in .thread begins as 0 in each thread: it can have no other first value",
        "thread-large": "the variables in .thread have 72 bytes: 64 are allowed, as they are registers of a thread",
        "thread-pointer": "the variables in .thread begin as 0 in each thread: none can begin as an address",
        "thread-section": "an object with a section .thread can have none of the name .data.t",
    }


def test_memory_and_registers():
    """Each thread's duration and bytes, kept in registers and, by the same programs, in memory."""
    for called in False, True:
        with tempfile.TemporaryDirectory() as folder, Daemon(*([f"--keep-artifacts={folder}"] if called else [])) as daemon:
            daemon.attach("--threads", "2048", object=obj("thread"))
            run(daemon)
            equal(daemon.count_of("wrong"), 0, "threads that found something else")
            equal(daemon.count_of("moved"), 12 * N * LAUNCHES, "bytes")
            equal(daemon.count_of("moved_by_access"), 12 * N * LAUNCHES, "bytes, counted one by one")
            check(daemon.count_of("ran") >= sum(entry["value"] for entry in daemon.dump("ran_by_thread")), "the last launch took longer than all")
            texts = [open(path).read() for path in glob.glob(f"{folder}/**/main.ptx", recursive=True)]
            equal(["call (__gpuprobe_w), __memcapture__0, (" in text for text in texts], [True] * called, "programs are called")


def test_durations():
    """One launch, so that the array has all of them."""
    with Daemon() as daemon:
        daemon.attach("--threads", "2048", object=obj("thread"))
        run(daemon, launches=1)
        times = [entry["value"] for entry in daemon.dump("ran_by_thread")]
        equal(daemon.count_of("ran"), sum(times), "nanoseconds")
        check(daemon.count_of("ran") > 0, "no thread took any time")


def test_not_shared():
    """Two attachments of one object have variables of their own; so have other objects."""
    with Daemon() as daemon:
        for _ in range(2):
            daemon.attach("--threads", "2048", object=obj("thread"))
        daemon.attach(object=example("gmem_bytes"))
        run(daemon)
        for entry in daemon.json("map", "list")["maps"]:
            if entry["name"] in ("wrong", "moved"):
                (value,) = daemon.dump(str(entry["id"]))
                equal(value["value"], 12 * N * LAUNCHES if entry["name"] == "moved" else 0, entry)
        equal(daemon.count_of("gmem_bytes"), 12 * N * LAUNCHES)


def test_block_sched():
    """A beginning and a duration for each warp; of several launches, the last one's."""
    with Daemon() as daemon:
        daemon.attach(object=example("block_sched"))
        run(daemon)
        warps = daemon.dump("warps", "--nonzero")
        equal([w["key"] for w in warps], list(range(N // 32)), "warps")
        durations = [w["value"]["duration"] for w in warps]
        check(sum(durations) > 0 and all(d < 10**9 for d in durations), durations)  # the clock has steps


def test_restart():
    """A daemon that has started again knows which registers a program has."""
    with Manager() as daemon:
        daemon.attach(object=example("gmem_bytes"))
        shown = daemon.ctl("program", "show", "cuda__access")
        check("\nregisters of a thread: bytes\n" in shown, shown)
        for way in Manager.restart, Manager.crash_and_start:
            way(daemon)
            equal(daemon.ctl("program", "show", "cuda__access"), shown)
            run(daemon)
        equal(daemon.count_of("gmem_bytes"), 2 * 12 * N * LAUNCHES)


def test_shown():
    with Daemon() as daemon:
        daemon.attach(object=os.path.join(OBJECTS, "thread.bpf.o"))
        shown = daemon.ctl("program", "show", "cuda__enter")
        check("\nregisters of a thread: begin, entered, count\n" in shown, shown)
        check("\nsanitizer engine: no: it has variables of a thread (.thread), which are registers that only PTX can have yet\n" in shown, shown)
        (program,) = daemon.json("program", "show", "only_thread")["programs"]
        check("count" in program["thread"] and "begin" not in program["thread"], program["thread"])
        equal(program["local_bytes"], 0, "local memory")
        names = [m["name"] for m in daemon.json("map", "list")["maps"]]
        equal(sorted(names), sorted(["first", "second", ".rodata", ".data", ".bss"]), "maps: none for the variables")


def test_refused():
    with Daemon() as daemon:
        for name, reason in objects_that_are_refused().items():
            said = daemon.ctl("attach", os.path.join(OBJECTS, name + ".bpf.o"), status=None)
            check(reason in said and said.count("\n") == 1, said)
        said = daemon.ctl("attach", obj("thread"), "--program", "cuda__end", "--point", "kretprobe/dev:helper", status=None)
        check("program cuda__end uses variables of a thread (.thread), which kernels keep and device functions do not have" in said, said)
        equal(daemon.attachments(), [])


def test_refused_by_the_kernel():
    """What Linux verifies: an index beyond the variable, a program on the host."""
    with Daemon() as daemon:
        said = daemon.ctl("attach", os.path.join(OBJECTS, "thread-outside.bpf.o"), status=None)
        check("invalid access to map value, value_size=16 off=60 size=4: sizes[ctx->kind & 15]++;" in said, said)
        said = daemon.ctl("attach", os.path.join(OBJECTS, "thread-host.bpf.o"), status=None)
        check("program on_host runs on the host, where there are no variables of a GPU's thread (.thread)" in said, said)


def test_machine_code():
    """The sanitizer engine has no registers for them yet."""
    with sass_daemon() as daemon:
        said = daemon.ctl("attach", obj("thread"), "--engine", "sanitizer", status=None)
        check("the sanitizer engine cannot have program cuda__begin: it has variables of a thread (.thread), which are registers" in said, said)


main(
    [
        test_memory_and_registers,
        test_durations,
        test_not_shared,
        test_block_sched,
        test_restart,
        test_shown,
        test_refused,
        test_refused_by_the_kernel,
        test_machine_code,
    ]
)
