#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Each kind of map, at each place where maps can be, across each kind of end that a daemon can have. What is in a map right after the next daemon has begun, and later,
is what it is under a daemon that goes on: the same programs do the same under one that is not restarted, and the dumps are compared. On the CPU driver, or with
GPUPROBE_TEST_GPU=1 on a GPU.
"""

import os
import signal
import tempfile

from harness import BUILD, CTL, GPU, GPUPROBED, SHIM, SIM, check, equal, main, need
from live import LIVE, PTXCOMPILER, THREADS, Live, example, obj, sass_daemon
from manager import Manager

need(GPUPROBED, CTL, SHIM, LIVE, PTXCOMPILER, obj("maps"), obj("rings"), obj("wide"), *([] if GPU else [os.path.join(SIM, "libcuda.so.1")]))


def segfault(daemon):
    daemon.end(signal.SIGSEGV, -signal.SIGSEGV)


def stay(daemon):
    """The daemon of the numbers that must come out."""


BY_CHANCE = "small", "results"  # where threads of a GPU race for room
CACHE = tempfile.TemporaryDirectory()  # what is compiled for one daemon is there for the next, as in the service
ENDS = Manager.hand_over, Manager.crash, segfault


def run(end, look, options, object_file, daemon_options=()):
    """
    Processes that ended before, end while there is no daemon, and go on after it; what look() sees before, right after, and in the end.
    """
    with sass_daemon("--cache-dir", CACHE.name, *daemon_options, kind=Manager) as daemon:
        daemon.attach(*options, object=object_file)
        seen = []
        with Live(daemon) as ended:
            ended.launch(1)
        with Live(daemon) as live:
            with Live(daemon) as ends:
                live.launch(2)
                ends.launch(1)
                seen.append(look(daemon))
                live.launch(1)  # what nobody has looked at yet
                end(daemon)
                live.launch(3)
                ends.launch(2)
            if end != stay:
                daemon.start()
            seen.append(look(daemon))
            live.launch(1)
            if end != stay:
                daemon.crash_and_start()  # and once more, after it has gone on
        seen.append(look(daemon))
        return seen


LAUNCHES = 4, 10, 11  # of those that look() sees; with one that ended before


def compare(look, options, object_file, *daemon_options, ends=ENDS):
    """That all ends give what no end gives; which is returned."""
    wanted = run(stay, look, options, object_file, daemon_options)
    for end in ends:
        for n, (got, want) in enumerate(zip(run(end, look, options, object_file, daemon_options), wanted)):
            for name in {*got, *want}:
                equal(got.get(name), want.get(name), f"{name}, {options}, look {n}, {end.__name__}")
    return wanted


def dumps(daemon):
    """Of all maps: where it is, of which type, and what is in it; SMs added up."""
    result = {}
    for info in [m for m in daemon.json("map", "list")["maps"] if m["kind"] != "ring" and not (GPU and m["name"] in BY_CHANCE)]:
        entries = {
            str(e["key"]) + str(e.get("thread", "")): sum(e["values"]) if "values" in e else e["value"] for e in daemon.dump(str(info["id"]), "--nonzero")
        }
        result[info["name"]] = info["type"], info["place"], entries
    return result


def test_maps():
    """Arrays, per-thread arrays, hashes, global variables; in device memory, in host memory, and one for all processes."""
    for options, ends in ((), ENDS), (("--shared",), (Manager.crash,)), (("--engine", "sanitizer"), (segfault,)):
        wanted = compare(dumps, ("--threads", "200", *options), obj("maps"), ends=ends)
        places = {name: place for name, (_, place, _) in wanted[0].items()}
        equal(places["host_array"], "host")
        equal(places["gpu_array"], "host" if "--shared" in options else "device")
        for launches, seen in zip(LAUNCHES, wanted):
            for name in "array", "gpu_array", "host_array", "percpu":
                equal(seen[name][2], {"1": launches * THREADS}, name)
            equal(seen[".bss"][2], {"0": {"entered": launches * THREADS}}, ".bss")
            equal(len(seen["hash"][2]), 64, "hash")


def test_wide_values():
    """Values with more integers than a page has room for: all are added, between processes and with what the next daemon gets."""
    for launches, seen in zip(LAUNCHES, compare(dumps, (), obj("wide"), ends=(Manager.crash,))):
        for name in "typed", ".bss":
            (buckets,) = [b for value in seen[name][2].values() for b in value.values()]
            equal((buckets[1], buckets[-1], sum(buckets)), (launches * THREADS, launches * THREADS, 2 * launches * THREADS), name)


def test_without_period():
    """Maps in device memory that are copied when somebody asks, and at the end, alone."""
    compare(dumps, (), obj("maps"), "--mirror-period-ms", "0", ends=(Manager.crash,))


def rings(daemon):
    """What is read from each, which is read once, and what they count."""
    result = {}
    for info in [m for m in daemon.json("map", "list")["maps"] if m["kind"] == "ring"]:
        result[info["name"]] = sorted(r["record"] for r in daemon.json_lines("ring", "read", str(info["id"]), "--raw"))
    for info in [m for m in daemon.json("map", "list")["maps"] if m["kind"] == "ring"]:
        result[info["name"] + ", counted"] = info["written"], info["lost"]
    result["results"] = dumps(daemon).get("results")
    return result


def test_rings():
    """Each record is read once, by whichever daemon; what found no room is counted once."""
    wanted = compare(rings, (), obj("rings"))
    equal([len(seen["gpu"]) for seen in wanted], [launches * THREADS for launches in (4, 6, 1)])
    equal(wanted[-1]["gpu, counted"], (11 * THREADS, 0))
    if GPU:  # which of them finds room is chance
        return
    wanted = compare(rings, ("--ring-size", "16K"), obj("rings"), ends=(Manager.hand_over, segfault))
    check(all(wanted[-1][f"{name}, counted"][1] > 0 for name in ("gpu", "perf", "standard")), wanted[-1])
    equal(sum(wanted[-1]["gpu, counted"]), 11 * THREADS, "written and lost")
    equal(sum(len(seen["gpu"]) for seen in wanted), wanted[-1]["gpu, counted"][0], "read and written")


def unread(daemon):
    daemon.dump("results")  # has all be copied
    return {m["name"]: (m["written"], m["lost"]) for m in daemon.json("map", "list")["maps"] if m["kind"] == "ring"}


def test_rings_that_nobody_reads():
    if GPU:
        return
    compare(unread, ("--ring-size", "16K"), obj("rings"), ends=(Manager.crash,))


def test_kernel_maps():
    """An array of the kernel's, which a program on the host writes to as well, while there is no daemon, too."""
    with sass_daemon(kind=Manager) as daemon:
        if os.geteuid() or daemon.status()["verify"] != "on" or daemon.status()["missing"]:
            return

    def look(daemon):
        (info,), times = daemon.json("map", "list")["maps"], [e["value"] for e in daemon.dump("times")]
        return {"times": (info["type"], info["place"], times[2]), "of the host": times[0] > 0, "later": times[1] > times[0]}

    def moves(daemon):
        """The program on the host runs: its time of the last launch is another one each time."""
        now = daemon.dump("times")[0]["value"]
        seen = {**look(daemon), "it moves": now > last[0]}
        last[0] = now
        return seen

    last = [0]
    wanted = []
    for end in (stay, *ENDS):
        last[0] = 0
        wanted.append(run(end, moves, (), example("launch_latency")))
        equal([seen["times"] for seen in wanted[-1]], [("gpu_kernel_shared_array", "kernel", launches) for launches in LAUNCHES], end.__name__)
        equal([seen["it moves"] for seen in wanted[-1]], [True] * 3, end.__name__)


def test_exports():
    """Maps among the metrics stay there, with the right numbers."""

    def look(daemon):
        return {
            "metrics": [line for line in daemon.ctl("metrics").splitlines() if line.startswith("gpuprobe_map_counter")],
            "exports": daemon.json("map", "exports")["exports"],
        }

    def plain(daemon):
        seen = look(daemon)
        for export in seen["exports"]:
            export.pop("id", None)
        return seen

    def fresh(daemon):
        daemon.dump()  # metrics show the last copy
        return plain(daemon)

    wanted = compare(fresh, ("--export", "counter"), example("counter"))
    check(all(f" {launches * THREADS}" in seen["metrics"][0] for launches, seen in zip(LAUNCHES, wanted)), wanted)


if __name__ == "__main__":
    main([value for name, value in list(globals().items()) if name.startswith("test_")])
