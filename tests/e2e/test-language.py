#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Every point, context, helper and map of the probe language, through the whole product: on the CPU driver, or with GPUPROBE_TEST_GPU=1 on a
GPU. The kernels are those of tests/targets/language.cu.
"""

import ctypes
import os
import re
import struct
import subprocess
import tempfile
import time

from harness import BUILD, COUNTER, CTL, GPU, GPUPROBED, SHIM, SIM, Daemon, check, equal, main, need, wait_until

DRIVER = os.path.join(BUILD, "tests/sim/language_driver")
OBJECTS = os.path.join(BUILD, "tests/e2e/objects")


def obj(name):
    return os.path.join(OBJECTS, name + ".bpf.o")


need(GPUPROBED, CTL, COUNTER, SHIM, DRIVER, obj("maps"), *([] if GPU else [os.path.join(SIM, "libcuda.so.1")]))


def run(daemon, kernel, *options, same=True):
    """Runs a kernel probed; what it computes is what it computes bare."""
    command = (DRIVER, kernel, *map(str, options))
    status, out, err, _ = daemon.run(*command)
    equal((status, err), (0, ""), f"{kernel}: {out}")
    if same:
        bare = subprocess.run(command, env={**os.environ, **daemon.libraries()}, capture_output=True, text=True, timeout=60)
        equal(out, bare.stdout, "output, and bare")
    return int(re.search(r"threads=(\d+)", out)[1])


def probed(daemon):
    outcomes = daemon.why()
    return [outcome["reason"] for outcome in outcomes if outcome["outcome"] != "probed"]


def counted(section, kernel, *options, same=True):
    """What a counter at a point counts."""
    with Daemon() as daemon:
        daemon.attach("--point", section)
        run(daemon, kernel, *options, same=same)
        equal(probed(daemon), [], section)
        return daemon.count_of()


def values(daemon, name, *more):
    """Key and value of a map's entries; the sum of several values."""
    result = {}
    for entry in daemon.dump(name, *more):
        key = entry["key"] if not isinstance(entry["key"], dict) else tuple(entry["key"].values())
        value = sum(entry["values"]) if "values" in entry else entry["value"]
        result[(key, entry["thread"]) if "thread" in entry else key] = value
    return result


# ---- points ----


def test_entry_and_return():
    equal(counted("kprobe/returns", "returns", same=False), 256)
    equal(counted("kretprobe/returns", "returns", same=False), 256)
    equal(counted("kretprobe/vectorAdd", "vectorAdd", "--grid", "3,2,2", "--block", "8,4,2", "--launches", 3, same=False), 3 * 12 * 64)


def test_several_programs():
    """Any number at one point; detaching one leaves the others."""
    with Daemon() as daemon:
        ids = [daemon.attach("--point", f"{probe}/vectorAdd")[0] for probe in ("kprobe", "kretprobe", "kprobe", "kretprobe")]
        run(daemon, "vectorAdd")
        maps = {m["object"]: m["id"] for m in daemon.json("map", "list")["maps"]}
        equal([daemon.dump(str(m))[0]["value"] for m in maps.values()], [256] * 4)
        daemon.ctl("detach", str(ids[1]))
        run(daemon, "vectorAdd")
        left = [m["id"] for m in daemon.json("map", "list")["maps"]]
        equal([daemon.dump(str(m))[0]["value"] for m in left], [512] * 3)


def test_memory_points():
    # ld, st.v4, st.shared, ld.shared, red, atom; ld.param only if asked for
    equal(counted("memcapture/accesses", "accesses", same=False), 6 * 256)
    equal(counted("kprobe/__memcapture", "accesses", same=False), 6 * 256)
    for spaces, count in (("shared", 2), ("global", 4), ("global,shared", 6), ("param", 2), ("local", None)):
        with Daemon() as daemon:
            daemon.attach("--point", "memcapture/accesses", "--spaces", spaces)
            run(daemon, "accesses", same=False)
            if count is None:
                check(any("no such point" in reason for reason in probed(daemon)), daemon.why())
            else:
                equal(daemon.count_of(), count * 256, spaces)


def test_memory_contexts():
    with Daemon() as daemon:
        daemon.attach(object=obj("memory"))
        run(daemon, "accesses", same=False)
        seen = {tuple(e["key"].values()): e["value"] for e in daemon.dump("kinds")}
        # space, kind, size -> count, sum of values
        equal(
            {key: (value["count"], value["misaligned"]) for key, value in seen.items()},
            {(1, 1, 4): (256, 0), (1, 2, 16): (256, 0), (2, 2, 8): (256, 0), (2, 1, 8): (256, 0), (1, 4, 4): (256, 0), (1, 3, 4): (256, 0)},
        )
        equal(seen[(2, 2, 8)]["values"], 5 * 256, "values stored in shared memory")
        equal(seen[(1, 4, 4)]["values"], 3 * 256, "operands of the reduction")
        equal(seen[(1, 3, 4)]["values"], 256, "operands of the atomic")
        equal(seen[(1, 1, 4)]["values"], 0, "loads have none")
        # ids resolve to the text of the instruction and its line
        for key, words in (((1, 2, 16), "st.global.v4"), ((2, 1, 8), "ld.volatile.shared"), ((1, 3, 4), "atom.global.add")):
            number = f"{seen[key]['instruction']:016x}"
            (shown,) = daemon.json("kernel", "show", "--instruction", number)["instructions"]
            check(words in shown["text"].replace("\t", " "), shown)
            equal((int(shown["id"], 16), shown["kernel"]), (int(number, 16), "accesses"))
            check(shown["file"].endswith("language.cu") and shown["line"] > 30, shown)
        equal(len(daemon.json("kernel", "show", "accesses")["instructions"]), 6)
        check("st.global.v4" in daemon.ctl("kernel", "show", "accesses"))


def test_device_functions():
    equal(counted("kprobe/dev:twice", "calls"), 512)
    equal(counted("kretprobe/dev:twice", "calls"), 512)
    with Daemon() as daemon:  # a kernel's name does not mean a device function
        daemon.attach("--point", "kprobe/twice")
        run(daemon, "calls")
        (reason,) = probed(daemon)
        equal((daemon.count_of(), reason.split(";")[0]), (0, "no kernel matches"))


def test_registers():
    """A launch without probes, for want of registers, is without those of device functions, too."""
    if GPU:
        return  # there it takes programs that need many
    with Daemon() as daemon:
        for point in "kprobe/calls", "kprobe/dev:twice":
            daemon.attach("--point", point)
        status, out, err, _ = daemon.run(DRIVER, "calls", GPUPROBE_SIM_REGISTERS="2048")
        equal((status, err), (0, ""), out)
        wait_until(lambda: any("without probes" in reason for reason in probed(daemon)), "why says so")
        equal([daemon.dump(str(m["id"]))[0]["value"] for m in daemon.json("map", "list")["maps"]], [0, 0])
        run(daemon, "calls")
        equal([daemon.dump(str(m["id"]))[0]["value"] for m in daemon.json("map", "list")["maps"]], [256, 512])


def test_stub():
    equal(counted("kprobe/stubbed", "stubbed"), 128)
    # without a stub that is called, the entry
    with Daemon("--stub", "another_stub") as daemon:
        daemon.attach("--point", "kprobe/stubbed")
        run(daemon, "stubbed")
        equal(daemon.count_of(), 256)


def test_lines_and_blocks():
    source = os.path.join(os.path.dirname(__file__), "../targets/language.cu")
    line = next(n for n, text in enumerate(open(source), 1) if "this one" in text)
    equal(counted(f"kprobe/lines@language.cu:{line}", "lines"), 64)
    equal(counted("kprobe/lines@block:0", "lines"), 256)
    equal(counted("kprobe/lines@block:1", "lines"), 64)
    with Daemon() as daemon:
        daemon.attach("--point", "kprobe/lines@language.cu:1")
        run(daemon, "lines")
        check(any("no such point" in reason for reason in probed(daemon)), daemon.why())
        equal(daemon.count_of(), 0)
    with Daemon() as daemon:  # where other programs found theirs
        (here,) = daemon.attach("--point", "kprobe/lines")
        (nowhere,) = daemon.attach("--point", "kprobe/lines@language.cu:1")
        daemon.attach("--point", "kprobe/*@language.cu:1")  # a glob may mean kernels without such a line
        run(daemon, "lines")
        told = {(o["outcome"], o["reason"], *o["attachments"]) for o in daemon.why()}
        equal(told, {("probed", "", here), ("not-probed", "no such point in this kernel: line language.cu:1", nowhere)})


def test_run_under_every_engine():
    """What `run` launches is PTX of ours, whatever processes of others have."""
    for options in (), ("--engine=ptx",), ("--engine=auto",), ("--engine=sanitizer",):
        with Daemon(*options) as daemon:
            out = daemon.ctl("run", os.path.join(BUILD, "docs/blocks_by_sm.bpf.o"), "--grid", "10")
            equal(sum(int(number) for number in re.findall(r"\d+", out.split("0:", 1)[1])), 10, out)


def test_directly_run():
    with Daemon() as daemon:
        text = daemon.ctl("run", obj("direct"), "--grid", "2", "--block", "32", "--count", "3")
        check("squares" in text and re.search(r"\[?5\]?: 150\b", text), text)  # 5 * 5, by two blocks, three times
        equal(daemon.attachments(), [], "nothing is left")
        done = daemon.json("run", obj("direct"), "--block", "32")
        equal({e["key"]: e["value"] for e in done["maps"][0]["entries"] if e["value"]}, {i: i * i for i in range(1, 32)})
        check("__directly_run" in daemon.ctl("run", COUNTER, status=None))
        check("block" in daemon.ctl("run", obj("direct"), "--block", "0", status=None))


# ---- contexts ----


def kernel_id(name):
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def test_kernel_contexts():
    for probe in "kprobe", "kretprobe":
        with Daemon() as daemon:
            daemon.attach("--point", f"{probe}/parameters", object=obj("context"))
            process = daemon.start_run(DRIVER, "parameters", "--grid", "3,2,1", "--block", "16,2,1", "--shared", "1024")
            out, err = process.communicate(timeout=60)
            equal((process.returncode, err), (0, ""), out)
            seen = values(daemon, "seen")
            equal([seen[i] for i in range(6)], [kernel_id("parameters"), 0, process.pid, 3 | 2 << 32, 1, 16 | 2 << 16 | 1 << 32], probe)
            equal(seen[6], 1024, "dynamic shared memory")
            equal([seen[i] for i in range(7, 13)], [6, 0xFEDCBA9876543210, 0x89ABCDEF, 0xFE, 0x1122334455667788, 0xFFFE], probe)
            check(seen[13] > 1 << 20, "a pointer")
            equal((seen[14], seen[20]), (0, 0), "beyond the last parameter")
            kernels = daemon.json("kernel", "list")["kernels"]
            equal([(k["name"], int(k["id"], 16)) for k in kernels], [("parameters", kernel_id("parameters"))])


def test_helpers():
    with Daemon() as daemon:
        daemon.attach(object=obj("helpers"))
        process = daemon.start_run(DRIVER, "vectorAdd", "--grid", "3,2,2", "--block", "8,2,4")
        out, err = process.communicate(timeout=60)
        equal((process.returncode, err), (0, ""), out)
        r = daemon.dump("results")[0]["value"]
        equal((r["grid"], r["block"], r["block_dim"], r["thread"]), ([3, 2, 2], [2, 1, 1], [8, 2, 4], [7, 1, 3]))
        equal(r["pid_tgid"], process.pid << 32 | process.pid)
        equal((r["device"], r["randoms_differ"], r["comm_result"], r["membar"]), (0, 1, 0, 0))
        equal(r["lane"], 63 % 32 if GPU else r["lane"])
        check(r["lane"] < 32 and r["sm"] == r["cpu"] and r["timer"] >= r["time"] > 0, r)
        equal(r["comm"], "language_driver"[:15], "comm")


def check_lanes(daemon, *, warps):
    """What the object `lanes` finds in `accesses` and in 768 threads of vectorAdd. warps: whether all lanes of a warp are together."""
    whole = {"GPUPROBE_SIM_WARPS": "whole"} if warps else {}
    for kernel in "accesses", "vectorAdd":
        status, out, err, _ = daemon.run(DRIVER, kernel, "--grid", "3,2,2", "--block", "8,2,4", **whole)
        equal((status, err), (0, ""), out)
    (moved,), (seen,) = daemon.dump("moved"), daemon.dump("seen")
    moved, seen = moved["value"], seen["value"]
    equal((moved["bytes"], moved["spaces"], moved["kinds"]), (44 * 768, 8 * 768, 1300 * 768))
    equal((seen["summed"], seen["wrong"], seen["block_dims"], seen["highest"]), (768, 0, 8 * 768, 7), seen)
    equal((seen["lowest"], seen["halves"]), (-1000, 384.0), seen)
    if warps or GPU:
        equal(seen["leaders"], 24)


def test_lanes():
    for warps in False, True:
        with Daemon() as daemon:
            daemon.attach(object=obj("lanes"))
            check_lanes(daemon, warps=warps)


def test_lanes_in_called_programs():
    """The same where programs are functions that all places call: there the size is not the place's."""
    with tempfile.TemporaryDirectory() as folder, Daemon(f"--keep-artifacts={folder}") as daemon:
        daemon.attach(object=obj("lanes"))
        check_lanes(daemon, warps=True)


def test_cluster():
    """A launch without a cluster size has a cluster for each block. tests/gpu/real.py has clusters of two blocks."""
    with Daemon() as daemon:
        daemon.attach(object=obj("cluster"))
        run(daemon, "vectorAdd", "--grid", "3,4,2", "--block", "8,2,4", same=False)
        blocks = {x + 8 * y + 64 * z: 64 for x in range(3) for y in range(4) for z in range(2)}
        equal(values(daemon, "clusters", "--nonzero"), blocks)
        equal(probed(daemon), [])


def test_cluster_on_older_gpu():
    """The program is refused on a GPU without clusters, in one line. The kernel runs as ever."""
    if GPU:
        return  # the CPU driver alone can play an older one
    with Daemon() as daemon:
        daemon.attach(object=obj("cluster"))
        status, out, err, _ = daemon.run(DRIVER, "vectorAdd", GPUPROBE_SIM_SM="80")
        equal((status, err), (0, ""), out)
        (reason,) = probed(daemon)
        equal(reason.split("transform: ")[-1], "program cuda__cluster needs a GPU of sm_90 or newer, this one is sm_80")
        equal(values(daemon, "clusters", "--nonzero"), {})


# ---- maps ----


def test_maps():
    """256 threads, twice; per-thread arrays have room for 200 of them."""
    with Daemon() as daemon:
        daemon.attach("--threads", "200", object=obj("maps"))
        for _ in range(2):
            run(daemon, "vectorAdd", same=False)
        for name in "array", "gpu_array", "host_array", "percpu":
            equal(values(daemon, name), {0: 0, 1: 512}, name)
        for name in "threads", "host_threads":
            equal(values(daemon, name, "--nonzero"), {(1, thread): 2 * thread for thread in range(1, 200)}, name)
        equal(values(daemon, "hash"), {i << 32: 8 for i in range(64)})
        equal(values(daemon, "gpu_hash"), {i: 32 for i in range(16)})
        equal(values(daemon, "percpu_hash"), {i: 32 for i in range(16)})
        (entered,) = daemon.dump(".bss", "--raw")
        equal(int.from_bytes(bytes.fromhex(entered["value"]), "little"), 512, "a global variable")
        equal(values(daemon, ".bss"), {0: {"entered": 512}}, "by its name")
        results = values(daemon, "results")
        equal([results[i] for i in (0, 2, 5)], [0, 0, 0], "unexpected results")
        equal(results[1], 2 * 56, "threads beyond --threads")
        equal(results[3] + results[4], 512, "each update came through or found the map full")
        equal((results[6], results[7]), (results[3], results[4]), "who came in went out")
        equal(daemon.dump("small"), [], "left in the small map")
        process = daemon.start_run(DRIVER, "vectorAdd", "--launches", "2", "--sleep-ms", "1500")
        wait_until(lambda: any(entry.get("pid") == process.pid for entry in daemon.dump("gpu_hash", "--per-process")), "its entries")
        per_process = daemon.dump("gpu_hash", "--per-process")
        equal({entry["value"] for entry in per_process if entry.get("pid") == process.pid}, {16}, "of the process")
        equal({entry["value"] for entry in per_process if "pid" not in entry}, {32}, "of those that are gone")
        process.communicate(timeout=60)


def test_hash_while_running():
    """A hash map is read while kernels insert and count: keys are whole, numbers only grow."""
    with Daemon() as daemon:
        daemon.attach(object=obj("maps"))
        process = daemon.start_run(DRIVER, "vectorAdd", "--launches", "40", "--sleep-ms", "50")
        before, dumps = {}, 0
        while process.poll() is None:
            now = values(daemon, "hash")
            check(set(before) <= set(now) <= {i << 32 for i in range(64)}, "keys", now)
            check(all(now[key] >= value for key, value in before.items()), "a number shrank")
            dumps += bool(now) and now != before
            before = now
        process.communicate()
        check(dumps > 3, "dumps that differ:", dumps)
        equal(values(daemon, "hash"), {i << 32: 4 * 40 for i in range(64)})


def test_shared():
    """One copy for all processes of a user, in host memory."""
    with Daemon() as daemon:
        daemon.attach("--shared", object=obj("maps"))
        first = daemon.start_run(DRIVER, "vectorAdd", "--launches", "40", "--sleep-ms", "10")
        second = daemon.start_run(DRIVER, "vectorAdd", "--launches", "40", "--sleep-ms", "10")
        for process in first, second:
            out, err = process.communicate(timeout=60)
            equal((process.returncode, err), (0, ""), out)
        shared = values(daemon, "gpu_array")[1]
        check(40 * 256 <= shared <= 80 * 256, shared)  # two GPUs' contexts may lose additions over the bus: see the guide
        instances = {m["name"]: (m["place"], m["instances"]) for m in daemon.json("map", "list")["maps"]}
        equal(instances["gpu_array"], ("host", 1))


def test_configured():
    """What .rodata holds is a constant: a way that it rules out may do what no GPU can, and a record may be as large as it says."""
    with Daemon() as daemon:
        daemon.attach(object=obj("configured"))
        run(daemon, "vectorAdd", same=False)
        equal(values(daemon, "out"), {0: 7})
        records = [bytes.fromhex(r["record"]) for r in daemon.json_lines("ring", "read", "events", "--raw")]
        equal(set(records), {struct.pack("<QqQ", 7, -3, 24)})
        equal(len(records), 256)


def test_loops():
    """bpf_loop, an iterator over numbers, may_goto: the number of rounds is in a variable."""
    with Daemon() as daemon:
        daemon.attach(object=obj("loops"))
        run(daemon, "vectorAdd", same=False)
        equal(values(daemon, ".bss"), {0: {f"by_{loop}": 256 * 4950 for loop in ("helper", "iterator", "may_goto")}})


def test_lru():
    """Maps that evict: every insertion succeeds, as many elements are left as have room, and each is one that somebody inserted."""
    with Daemon() as daemon:
        daemon.attach(object=obj("lru"))
        run(daemon, "vectorAdd", "--launches", 2, same=False)
        equal(values(daemon, "counts"), {0: 2 * 3 * 256, 1: 0})
        for name, keys in ("lru", (0, 500)), ("lru_percpu", (0,)):
            left = values(daemon, name)
            equal(len(left), 16, name)
            valid = {1000 * (block + 1) + thread + more for block in range(4) for thread in range(64) for more in keys}
            check(all(key == value and key in valid for key, value in left.items()), name, left)
        maps = {m["name"]: m for m in daemon.json("map", "list")["maps"]}
        equal([maps[name]["type"] for name in ("lru", "lru_percpu")], ["lru_hash", "lru_percpu_hash"])
        equal([maps[name].get("lost", 0) for name in ("lru", "lru_percpu")], [0, 0])


def test_rings():
    with Daemon() as daemon:
        daemon.attach(object=obj("rings"))
        run(daemon, "vectorAdd", "--launches", 2, same=False)
        equal(values(daemon, "results"), {0: 512, 1: 512, 2: 512, 3: 512, 4: 0, 5: 0, 6: 0, 7: 0})
        read = [r["record"] for r in daemon.json_lines("ring", "read", "gpu")]
        equal(sorted((r["thread"], r["block"], r["kind"]) for r in read), sorted([(t, t // 64, 1) for t in range(256)] * 2))
        equal(daemon.json_lines("ring", "read", "gpu"), [], "records are read once")
        raw = [bytes.fromhex(r["record"]) for r in daemon.json_lines("ring", "read", "standard", "--raw")]
        kinds = [(int.from_bytes(r[:8], "little"), r[12]) for r in raw]
        equal(sorted(kinds), sorted([(t, 2) for t in range(256)] * 2 + [(t, 3) for t in range(1, 256, 2)] * 2))
        sizes = sorted(len(bytes.fromhex(r["record"])) for r in daemon.json_lines("ring", "read", "perf", "--raw"))
        equal(sizes, [12] * 256 + [160] * 256)


def test_ring_lost():
    """Who finds no room is counted: written and lost are all there were."""
    with Daemon() as daemon:
        daemon.attach("--ring-size", "16K", object=obj("rings"))
        run(daemon, "vectorAdd", "--grid", "64", "--block", "64", same=False)
        rings = {m["name"]: m for m in daemon.json("map", "list")["maps"] if m["kind"] == "ring"}
        for name, records in (("gpu", 4096), ("perf", 4096), ("standard", 4096 + 2048)):
            ring = rings[name]
            equal(ring["written"] + ring["lost"], records, name)
            check(ring["lost"] > 0 and ring["written"] > 0, name, ring)
            equal(len(daemon.json_lines("ring", "read", name, "--raw")), ring["written"], name)


def test_ring_follow():
    """Records come while the kernels run."""
    with Daemon() as daemon:
        daemon.attach(object=obj("rings"))
        reader = subprocess.Popen([CTL, "--json", "ring", "read", "gpu", "-f"], env=daemon.environment(**daemon.tools()), stdout=subprocess.PIPE, text=True)
        process = daemon.start_run(DRIVER, "vectorAdd", "--launches", "30", "--sleep-ms", "50")
        lines = [reader.stdout.readline() for _ in range(600)]
        check(process.poll() is None, "the program still runs")
        check(all('"thread"' in line for line in lines), lines[:3])
        reader.terminate()
        equal(len(lines) + len(reader.communicate(timeout=20)[0].splitlines()) >= 600, True, "records")
        process.communicate(timeout=60)


def test_log():
    with Daemon() as daemon:
        daemon.attach("--program", "cuda__log", object=obj("log"))
        run(daemon, "vectorAdd", same=False)
        lines = daemon.ctl("log").splitlines()
        equal(len(lines), 256)
        texts = sorted(line.split("] ", 1)[-1] for line in lines)
        check(any("block 2 thread  17 of 0xff" in text for text in texts), texts[:3])
        check("language_driv" in lines[0], lines[0])
    with Daemon() as daemon:
        daemon.attach("--program", "cuda__log_more", object=obj("log"))
        run(daemon, "returns", "--grid", "1", same=False)
        texts = [line["text"] for line in daemon.json_lines("log")]
        equal(sorted(texts), sorted(["stack 50%", "put", "1 2 3 4 5"]))


def test_log_overflow():
    """Lost and printed lines are all there were, and nothing waits."""
    with Daemon() as daemon:
        daemon.attach("--program", "cuda__log", "--ring-size", "16K", object=obj("log"))
        run(daemon, "vectorAdd", "--grid", "256", same=False)
        log = next(m for m in daemon.json("map", "list")["maps"] if m["name"] == ".log")
        printed = len(daemon.ctl("log").splitlines())
        equal(printed + log["lost"], 256 * 64)
        check(log["lost"] > 0 and printed > 0, log)


def test_exit():
    with Daemon() as daemon:
        error = daemon.ctl("attach", obj("exit"), status=None)
        check("bpf_cuda_exit" in error and "allow" in error, error)
    with Daemon("--allow-exit") as daemon:
        daemon.attach(object=obj("exit"))
        daemon.attach("--point", "kretprobe/vectorAdd")
        run(daemon, "vectorAdd", same=False)
        equal(daemon.count_of(), 128, "threads that reached the end")


# ---- programs on the host ----


def test_host_programs():
    """A uprobe and a GPU probe share a kernel array; each can be detached alone."""
    launch_latency = os.path.join(BUILD, "docs/launch_latency.bpf.o")
    with Daemon() as daemon:
        ids = daemon.attach(object=launch_latency)
        listed = {a["program"]: a for a in daemon.attachments()}
        host, gpu = listed["host_launch"], listed["cuda__launch"]
        equal(sorted(ids), sorted([host["id"], gpu["id"]]))
        equal((host["point"], host["kernel"], gpu["point"]), ("host", "libcuda.so.1:cuLaunchKernel", "entry"))
        equal([(m["name"], m["place"]) for m in daemon.json("map", "list")["maps"]], [("times", "kernel")])
        run(daemon, "vectorAdd", "--launches", "5", same=False)
        first = values(daemon, "times")
        check(first[0] > 0 and first[1] > 0 and first[2] == 5, first)
        daemon.ctl("detach", str(host["id"]))
        run(daemon, "vectorAdd", same=False)
        second = values(daemon, "times")
        equal((second[0] == first[0], second[2]), (True, 6), "the GPU's goes on alone")
        daemon.ctl("detach", str(gpu["id"]))
        equal(daemon.json("map", "list")["maps"], [])
        # the other way around
        host = next(a["id"] for a in daemon.json("attach", launch_latency)["attachments"] if a["point"] == "host")
        daemon.ctl("detach", *[str(a["id"]) for a in daemon.attachments() if a["id"] != host])
        run(daemon, "vectorAdd", same=False)
        third = values(daemon, "times")
        check(third[0] > first[0] and third[2] == 0, third)


def test_host_map():
    """A map of a type that is the GPU's own is a kernel array where a program on the host uses it, too."""
    with Daemon() as daemon:
        daemon.attach(object=obj("hostmap"))
        equal([(m["name"], m["place"]) for m in daemon.json("map", "list")["maps"]], [("both", "kernel")])
        run(daemon, "vectorAdd", "--launches", "3", same=False)
        seen = values(daemon, "both")
        equal((seen[1], seen[2]), (7, 3))
        check(seen[0] > 0 if GPU else seen[0] == 3 * 256, seen)  # over the bus a GPU's additions may be lost: see the guide


def test_host_types():
    """Programs on the host may rely on types of the running kernel, though those for the GPU may not."""
    with Daemon() as daemon:
        daemon.attach("--program", "*_launch", object=os.path.join(BUILD, "daemon/translator/objects/host-core.bpf.o"))
        run(daemon, "vectorAdd", same=False)
        seen = values(daemon, "seen")
        check(seen[0] > 0, "a process id, as the kernel has it", seen)
        equal((seen[1], seen[2]), (7, 5))


def test_host_programs_refused():
    shared = os.path.join(BUILD, "daemon/translator/objects/host-shared.bpf.o")
    cases = (
        ("*hash", "map hash (hash): programs on the host and on the GPU can share arrays only: make it a BPF_MAP_TYPE_ARRAY", 1),
        ("*table", "map gpu_hash (gpu_hash): programs on the host and on the GPU can share arrays only: make it a BPF_MAP_TYPE_ARRAY", 1),
        ("*on_[gn]*", "no_such_function", 1),  # of the daemon
        ("*on_[gh]*[ud]", "invalid mem access", 4),
        ("on_nothing", "none for the GPU", 1),
    )
    with Daemon() as daemon:
        before = len(os.listdir(f"/proc/{daemon.process.pid}/fd"))
        for programs, words, status in cases:
            done = subprocess.run(
                [CTL, "attach", shared, "--program", programs], env=daemon.environment(**daemon.tools()), capture_output=True, text=True, timeout=60
            )
            equal(done.returncode, status, f"{programs}: {done.stderr}")
            check(words in done.stderr, programs, done.stderr)
        equal(daemon.attachments(), [])
        wait_until(lambda: len(os.listdir(f"/proc/{daemon.process.pid}/fd")) <= before, "descriptors are closed")


# ---- bad input ----


def test_refusals():
    with Daemon() as daemon:
        for arguments, words in (
            (("--point", "kprobe/f@x.cu"), "block"),
            (("--point", "memcapture/"), "kernel"),
            (("--point", "wrong/f"), "wrong"),
            (("--spaces", "globl"), "global, shared"),
            (("--threads", "0"), "threads"),
            (("--ring-size", "99999999G"), "ring"),
            (("--threads", "999999999999"), "threads"),
        ):
            error = daemon.ctl("attach", COUNTER, *arguments, status=None)
            check(words in error and len(error.strip().splitlines()) == 1, arguments, error)
        error = daemon.ctl("attach", obj("context"), "--point", "memcapture/vectorAdd", status=None)
        check("memcapture/vectorAdd gives a struct gpuprobe_memory_ctx" in error, error)
        equal(daemon.attachments(), [])


if __name__ == "__main__":
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
