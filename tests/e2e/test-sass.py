#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The sanitizer engine through the whole product: points, contexts, helpers and maps in kernels whose machine code is patched. On the CPU driver, with a
stand-in for NVIDIA's patching library, or with GPUPROBE_TEST_GPU=1 on a GPU. test-live.py is about attaching to what runs.
"""

import os
import subprocess

from harness import BUILD, COUNTER, CTL, GPU, GPUPROBED, SHIM, SIM, check, equal, main, need
from live import LIVE, PTXCOMPILER, THREADS, Live, engines, example, kernel_id, obj, reasons, sass_daemon, shown_id

need(
    GPUPROBED,
    CTL,
    COUNTER,
    SHIM,
    LIVE,
    PTXCOMPILER,
    obj("two"),
    os.path.join(BUILD, "shim/libgpuprobe-sass.so"),
    *([] if GPU else [os.path.join(SIM, "libcuda.so.1"), os.path.join(SIM, "sanitizer/libsanitizer-public.so")]),
)


NO_TWINS = "engine sanitizer: no twins are made for this process (--engine)"


def by_key(daemon, name):
    return {(tuple(e["key"].values()) if isinstance(e["key"], dict) else e["key"]): e["value"] for e in daemon.dump(name)}


# ---- points ----


def test_entry():
    with sass_daemon() as daemon:
        daemon.attach("--engine", "sanitizer")
        equal([(a["engine"], a["kernel"]) for a in daemon.attachments()], [("sanitizer", "vectorAdd")])
        with Live(daemon) as live:
            live.launch(3)
            equal(daemon.count_of(), 3 * THREADS)
            equal(engines(daemon), {("vectorAdd", "sanitizer")})
            equal(reasons(daemon), [])
            (attachment,) = daemon.attachments()
            equal((attachment["modules"], attachment["recompiled"], attachment["processes"]), (1, 0, 1))
        equal(daemon.count_of(), 3 * THREADS, "of a process that is gone")


def test_cluster():
    """Patches of programs that need a newer GPU: they count where it is one, and are refused in one line where it is not."""
    for sm, clusters in [("90", {0: 64, 1: 64, 2: 64, 3: 64})] + ([] if GPU else [("80", {})]):
        with sass_daemon() as daemon:
            daemon.attach("--engine", "sanitizer", object=obj("cluster"))
            with Live(daemon, GPUPROBE_SIM_SM=sm) as live:
                live.launch(1)
                equal({e["key"]: e["value"] for e in daemon.dump("clusters", "--nonzero")}, clusters, sm)
                equal([reason.split("transform: ")[-1] for reason in reasons(daemon)], [] if clusters else ["the programs need sm_90, the device is sm_80"])


def test_prefix():
    """The prefix cuda_ of a section is left out where no kernel has it, and what the host has written is there for the patch."""
    with sass_daemon() as daemon:
        daemon.attach("--engine", "sanitizer", "--point", "kprobe/cuda_vectorAdd")
        daemon.attach("--engine", "sanitizer", "--point", "kprobe/vectorAdd", "--program", "cuda__inputs", object=obj("inputs"))
        daemon.ctl("map", "update", "settings", "0", "{.factor = 10, .shift = 1}")
        daemon.ctl("map", "update", "table", "7", "100")
        with Live(daemon) as live:
            live.launch(2)
            equal(daemon.count_of(), 2 * THREADS)
            equal([entry["value"] for entry in daemon.dump("results")][0], 11 * 2 * THREADS)
            check(daemon.dump("results")[2]["value"] >= 100 * 2 * THREADS)
            check(any("cuda_vectorAdd was read without cuda_" in outcome["reason"] for outcome in daemon.why()), daemon.why())


def test_return():
    with sass_daemon() as daemon:
        daemon.attach("--engine", "sanitizer", "--point", "kretprobe/vectorAdd")
        daemon.attach("--engine", "sanitizer", "--point", "kretprobe/returns")  # which has four ways out
        with Live(daemon) as live:
            live.launch(2)
            live.launch(5, "returns")
            counts = [daemon.dump(str(m["id"]))[0]["value"] for m in daemon.json("map", "list")["maps"]]
            equal(sorted(counts), [2 * THREADS, 5 * THREADS])


def test_order():
    """Entry and return of one thread see the same map, in this order."""
    with sass_daemon() as daemon:
        daemon.attach("--engine", "sanitizer", object=example("thread_time"))
        with Live(daemon) as live:
            live.launch(1)
            times = [e["value"] for e in daemon.dump("nanoseconds")]
            equal(len(times), THREADS, "threads")
            check(all(0 <= time < 60 * 10**9 for time in times), times)


def test_memory():
    with sass_daemon() as daemon:
        daemon.attach("--engine", "sanitizer", object=obj("memory"))
        with Live(daemon) as live:
            live.launch(2, "accesses")
            seen = by_key(daemon, "kinds")
            count = {key: value["count"] for key, value in seen.items()}
            # space, kind, size: global load, store; shared store, load
            for key in (1, 1, 4), (1, 2, 16), (2, 2, 8), (2, 1, 8):
                equal(count.pop(key, 0), 2 * THREADS, f"{key} of {seen}")
                equal(seen[key]["misaligned"], 0, key)
            equal(seen[(2, 2, 8)]["values"], 2 * 5 * THREADS, "values stored in shared memory")
            equal(seen[(1, 1, 4)]["values"], 0, "a load has no value")
            # the atomic and the reduction; ptxas may let one thread of a warp do it for all
            equal(set(count), {(1, 3, 4)})
            check(count[(1, 3, 4)] <= 4 * THREADS if GPU else count[(1, 3, 4)] == 4 * THREADS, count)
            equal(reasons(daemon), [])


def test_spaces():
    for spaces, count in (("shared", 2), ("global", 4), ("global,shared", 6)):
        with sass_daemon() as daemon:
            daemon.attach("--engine", "sanitizer", "--point", "memcapture/accesses", "--spaces", spaces)
            with Live(daemon) as live:
                live.launch(1, "accesses")
                seen = daemon.count_of()
                check(seen == count * THREADS or GPU and "global" in spaces and (count - 2) * THREADS < seen <= count * THREADS, spaces, seen)


def event(point, kernel):
    """By arguments: threads that ran the instruction in two launches."""
    with sass_daemon() as daemon:
        daemon.attach("--engine", "sanitizer", "--point", f"kprobe/{kernel}@{point}", object=obj("event"))
        equal([a["point"] for a in daemon.attachments()], [point])
        with Live(daemon) as live:
            live.launch(1)  # another kernel of the module
            live.launch(2, kernel)
            equal(reasons(daemon), [], point)
            entries = daemon.dump("events")
        equal({e["key"]["kernel_id"] for e in entries}, {kernel_id(kernel)}, point)
        seen = {}
        for e in entries:
            arguments = tuple(e["key"]["args"])
            seen[arguments] = seen.get(arguments, 0) + e["value"]
        return seen


def test_barriers():
    equal(event("barrier", "warps"), {(0, 0, 0): 2 * THREADS})
    masks = event("syncwarp", "warps")
    equal(sum(masks.values()), 2 * THREADS, masks)
    check(all(mask and not rest and not more for mask, rest, more in masks), masks)
    equal(event("shfl", "warps"), {(0, 0, 0): 2 * THREADS})


def test_calls():
    calls = event("call", "calls")
    equal(sum(calls.values()), 2 * 2 * THREADS, calls)
    equal((len(calls), min(calls)[0] > 0), (1, True), "one function is called")
    equal(event("ret", "calls"), {(0, 0, 0): 2 * 2 * THREADS})


# ---- contexts, helpers, maps ----


def test_context():
    """Entry and return; a record and a line from the first thread of each launch."""
    with sass_daemon() as daemon:
        daemon.attach("--engine", "sanitizer", object=obj("place"))
        with Live(daemon) as live:
            live.launch(3)
            place = {
                "kernel_id": kernel_id("vectorAdd"),
                "device": 0,
                "pid": live.pid,
                "grid_dim": 4 | 1 << 32,
                "grid_dim_z": 1,
                "block_dim": 64 | 1 << 16 | 1 << 32,
                "shared_bytes": 0,
            }
            equal([(e["key"], e["value"]) for e in daemon.dump("places")], [(place, 2 * 3 * THREADS)])
            equal([r["record"] for r in daemon.json_lines("ring", "read", "events")], [place] * 6)
            lines = daemon.json_lines("log")
            equal(
                sorted((line["program"], line["text"].strip()) for line in lines),
                sorted([(program, f"kernel {place['kernel_id']:x} of {live.pid}") for program in ("cuda__enter", "cuda__leave")] * 3),
            )
            equal(reasons(daemon), [])


def test_helpers():
    """Those of test-language.py, on this engine."""
    with sass_daemon() as daemon:
        daemon.attach("--engine", "sanitizer", object=obj("helpers"))
        with Live(daemon) as live:
            live.launch(1)
            r = daemon.dump("results")[0]["value"]
            equal((r["grid"], r["block_dim"], r["pid_tgid"], r["device"]), ([4, 1, 1], [64, 1, 1], live.pid << 32 | live.pid, 0))
            equal((r["randoms_differ"], r["comm_result"], r["membar"], r["comm"]), (1, 0, 0, "live_driver"))
            check(r["lane"] < 32 and r["sm"] == r["cpu"] and r["timer"] >= r["time"] > 0, r)


def test_by_kernel():
    """A hash keyed by kernel; launches and their duration."""
    with sass_daemon() as daemon:
        daemon.attach("--engine", "sanitizer", object=example("kernel_counter"))
        daemon.attach("--engine", "sanitizer", object=example("kernel_duration"))
        launches = {"vectorAdd": 5, "warps": 3, "lines": 1}
        with Live(daemon) as live:
            for kernel, count in launches.items():
                live.launch(count, kernel)
            equal(by_key(daemon, "threads"), {shown_id(kernel): count * THREADS for kernel, count in launches.items()})
            counted = {}
            for (kernel, log), count in by_key(daemon, "launches").items():
                check(log < 40, "log2 of nanoseconds:", log)
                counted[kernel] = counted.get(kernel, 0) + count
            equal(counted, {shown_id(kernel): count for kernel, count in launches.items()})
            names = {k["id"]: k["name"] for k in daemon.json("kernel", "list")["kernels"]}
            equal([names[shown_id(kernel)] for kernel in launches], list(launches))


def test_several_programs():
    """At one point and at several of one kernel, in plans of one module."""
    with sass_daemon() as daemon:
        ids = [daemon.attach("--engine", "sanitizer", "--point", f"{probe}/vectorAdd")[0] for probe in ("kprobe", "kretprobe", "kprobe", "memcapture")]
        with Live(daemon) as live:
            live.launch(1)
            maps = {m["object"]: m["id"] for m in daemon.json("map", "list")["maps"]}
            # vectorAdd loads a word and stores it
            equal([daemon.dump(str(m))[0]["value"] for m in maps.values()], [THREADS, THREADS, THREADS, 2 * THREADS])
            daemon.ctl("detach", str(ids[0]), str(ids[3]))
            live.launch(1)
            left = [m["id"] for m in daemon.json("map", "list")["maps"]]
            equal([daemon.dump(str(m))[0]["value"] for m in left], [2 * THREADS] * 2)


def test_program_show():
    with sass_daemon() as daemon:
        (attachment,) = daemon.attach("--engine", "sanitizer")
        with Live(daemon) as live:
            live.launch(1)
            (program,) = daemon.json("program", "show", str(attachment))["programs"]
            equal((program["attachment"]["id"], program["maps"], program["sanitizer"]), (attachment, ["counter"], ""))
            check(program["ptx_size"] > 100, program)
            equal([patch["instruction"] for patch in program["patches"]], ["entry"])
            check(0 < program["patches"][0]["registers"] < 256, program)
            equal(daemon.json("program", "show", "cuda__counter")["programs"], [program])
        equal(daemon.ctl("program", "show", "nothing", status=5), "")


# ---- which engine ----


def test_one_engine():
    """A process has the engine that its rule says, alone: it has what that engine can have, and `why` says of the rest what would help."""
    for rule, engine, other in (("sanitizer", "sanitizer", "ptx"), ("auto", "ptx", "sanitizer"), ("ptx", "ptx", "sanitizer")):
        with sass_daemon("--engine", f"{rule}:comm=live_driver", "--engine", "sanitizer") as daemon:
            daemon.attach()
            daemon.attach("--engine", engine)
            (refused,) = daemon.attach("--engine", other)
            with Live(daemon) as live:
                live.launch(2)
                equal([daemon.dump(str(m["id"]))[0]["value"] for m in daemon.json("map", "list")["maps"]], [2 * THREADS, 2 * THREADS, 0], rule)
                equal(engines(daemon), {("vectorAdd", engine)}, rule)
                (left,) = [o for o in daemon.why("--pid", str(live.pid)) if o["outcome"] != "probed"]
                equal(
                    (left["attachments"], f"engine {other}: " in left["reason"], f"--engine={other}:exe=PATH" in left["reason"]), ([refused], True, True), left
                )
                with open(f"/proc/{live.pid}/maps") as maps:
                    equal("libgpuprobe-sass" in maps.read(), engine == "sanitizer", rule)
    with sass_daemon("--engine", "auto") as daemon:  # nobody has it
        error = daemon.ctl("attach", COUNTER, "--engine", "sanitizer", status=None)
        equal((daemon.attachments(), "--engine=sanitizer:exe=PATH" in error, len(error.splitlines())), ([], True, 1), error)


def test_environment():
    """GPUPROBE=ptx: NVIDIA's library stays out, and with this rule the process is bare."""
    with sass_daemon() as daemon:
        daemon.attach()
        with Live(daemon, GPUPROBE="ptx") as live:
            live.launch(2)
            equal((daemon.count_of(), reasons(daemon)), (0, [NO_TWINS]))
            with open(f"/proc/{live.pid}/maps") as maps:
                check("libgpuprobe-sass" not in maps.read() and "libsanitizer" not in maps.read(), "it has the engine")


def test_points_of_one_engine():
    with sass_daemon() as daemon:
        error = daemon.ctl("attach", obj("event"), "--engine", "ptx", status=None)
        check("barrier" in error and len(error.splitlines()) == 1, error)
        for point in "kprobe/vectorAdd@block:0", "kprobe/dev:twice", "kprobe/vectorAdd@language.cu:3":
            error = daemon.ctl("attach", COUNTER, "--engine", "sanitizer", "--point", point, status=None)
            check("sanitizer" in error.lower() and len(error.splitlines()) == 1, point, error)
        error = daemon.ctl("attach", obj("context"), "--engine", "sanitizer", status=None)
        check("param" in error and len(error.splitlines()) == 1, error)
        equal(daemon.attachments(), [])
        # PTX has parameters: twins alone have it, and it is told
        (attachment,) = daemon.attach(object=obj("context"))
        (program,) = daemon.json("program", "show", str(attachment))["programs"]
        check("param" in program["sanitizer"], program)


def test_rules():
    """Which process has which engine; the first rule that matches decides."""
    uid = os.getuid()
    for options, engine in (
        (("--engine", "off", "--engine", "auto:exe=/no/such"), None),
        (("--engine", f"off:uid={uid}", "--engine", "auto"), None),
        (("--engine", f"sanitizer:exe={os.path.realpath(LIVE)}", "--engine", "ptx"), "sanitizer"),
        (("--engine", "auto:comm=live_driver"), "ptx"),
        (("--engine", "sanitizer:exe=/no/such", "--engine", "ptx"), "ptx"),
    ):
        with sass_daemon(*options) as daemon:
            daemon.attach()
            with Live(daemon) as live:
                live.launch(2)
                equal((daemon.count_of(), engines(daemon)), (2 * THREADS, {("vectorAdd", engine)}) if engine else (0, set()), options)
                if not engine:
                    check(any("engine off" in reason for reason in reasons(daemon)), options, daemon.why())


def test_refused_rules():
    for rule in "both", "sanitizer:pid=1", "sanitizer:exe=relative", "sanitizer:uid=x", "":
        done = subprocess.run([GPUPROBED, "--session=refused", "--engine", rule], capture_output=True, text=True, timeout=20)
        equal((done.returncode != 0, len(done.stderr.splitlines())), (True, 1), f"{rule}: {done.stderr}")


def test_failures():
    """Whatever NVIDIA's library refuses: the process runs, and one line says what it was."""
    if GPU:
        return
    for failure in "subscribe", "old", "image", "mark", "patch", "data", "alloc", "write", "cubin":
        with sass_daemon() as daemon:
            daemon.attach("--engine", "sanitizer")
            with Live(daemon, GPUPROBE_SANITIZER_FAIL=failure) as live:
                live.launch(2)
                live.right()
                equal((daemon.count_of(), engines(daemon)), (0, set()), failure)
                equal([a["modules"] for a in daemon.attachments()], [0], failure)
                told = set(reasons(daemon, "--pid", str(live.pid))) - {NO_TWINS}  # for each load or launch that tried
                check(len(told) == 1 and all(told), failure, told)
    # patches that cannot be taken out: the program is not told of it, and they do nothing
    with sass_daemon() as daemon, Live(daemon, GPUPROBE_SANITIZER_FAIL="unpatch") as live:
        ids = daemon.attach("--engine", "sanitizer")
        live.launch(2)
        equal(daemon.count_of(), 2 * THREADS)
        daemon.ctl("detach", *map(str, ids))
        live.launch(2)


def test_left_alone():
    """A module that is left alone is said to be so once, whether it is there before the attachment, comes while nothing else is to be asked, or within a launch."""
    if GPU:
        return
    left = [("not-probed", "sanitizer", "module with unknown kernels: not patched, because the names of its kernels cannot be read")]
    for load, launch in ("load 0", "launch 0"), ("load 0 library", "launch 0"), ("load 0 library", "handle 0"):
        for before in True, False:
            with sass_daemon() as daemon, Live(daemon, load=None, GPUPROBE_SANITIZER_FAIL="cubin") as live:

                def launches():
                    live.do(f"{launch} vectorAdd 1")
                    live.note("vectorAdd", 1)

                if before:
                    live.do(load)
                    launches()
                ids = daemon.attach("--engine", "sanitizer")
                if not before:
                    live.do(load)
                for _ in range(2):
                    launches()
                    equal([(o["outcome"], o["engine"], o["reason"]) for o in daemon.why()], left, (load, launch, before))
                    daemon.ctl("detach", *map(str, ids))
                    launches()
                    ids = daemon.attach("--engine", "sanitizer")


def test_no_library():
    """The process runs bare, whatever is attached; one line says why."""
    with sass_daemon("--sanitizer", "/no/such/libsanitizer-public.so") as daemon:
        daemon.attach("--engine", "sanitizer")
        daemon.attach("--engine", "auto")
        with Live(daemon) as live:
            live.launch(2)
            equal([daemon.dump(str(m["id"]))[0]["value"] for m in daemon.json("map", "list")["maps"]], [0, 0])
            equal(engines(daemon), set())
            told = set(reasons(daemon, "--pid", str(live.pid))) - {NO_TWINS}
            equal((len(told), "/no/such/libsanitizer-public.so" in "".join(told)), (1, True), told)


if __name__ == "__main__":
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
