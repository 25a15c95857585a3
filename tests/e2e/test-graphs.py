#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
CUDA graphs and the sanitizer engine: what a graph launches is counted while something is attached and only then, whenever the graph was made, and the
process goes on. On the CPU driver, where a graph whose patches are gone is as fatal as on a GPU, or with GPUPROBE_TEST_GPU=1 on a GPU.
"""

import os
import threading
import time

from harness import BUILD, COUNTER, CTL, GPU, GPUPROBED, SHIM, SIM, check, equal, main, need
from live import LIVE, PTXCOMPILER, THREADS, Live, example, obj, reasons, sass_daemon, shown_id

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

NODES = 3  # of the graph that most tests make
BLOCKS = 4


class Graph(Live):
    """With the graph's launches among those that must have been made."""

    def capture(self, nodes=NODES):
        self.do(f"capture 0 vectorAdd {nodes}")

    def replay(self, times, nodes=NODES, blocks=BLOCKS, threads=0):
        self.do(f"replay {times} {threads}")
        self.note("vectorAdd", times * nodes * max(threads, 1) * blocks / BLOCKS)


def attach_two(daemon):
    """A counter whose map outlives it: the attachment to detach, and that which keeps the map."""
    ids = {a["program"]: a["id"] for a in daemon.json("attach", obj("two"), "--engine", "sanitizer")["attachments"]}
    return ids["cuda__count"], ids["cuda__keep"]


def detach(daemon, *ids):
    daemon.ctl("detach", *map(str, ids))


def counts(daemon):
    """Of all counters, in the order of attaching."""
    return [daemon.dump(str(m["id"]))[0]["value"] for m in daemon.json("map", "list")["maps"]]


def of_graphs(daemon):
    """What is said about graphs, where kernels are not probed."""
    return [reason for reason in reasons(daemon) if "graph" in reason]


def test_made_before():
    with sass_daemon() as daemon, Graph(daemon) as live:
        live.capture()
        live.replay(1)
        count, keep = attach_two(daemon)
        live.replay(2)
        live.launch(1)
        equal(daemon.count_of(), (2 * NODES + 1) * THREADS, "attached")
        detach(daemon, count)
        live.replay(3)
        equal(daemon.count_of(), (2 * NODES + 1) * THREADS, "detached")
        detach(daemon, keep)
        attach_two(daemon)
        live.replay(5)
        equal(daemon.count_of(), 5 * NODES * THREADS, "attached again")
        equal(of_graphs(daemon), [])


def test_made_while_attached():
    with sass_daemon() as daemon, Graph(daemon) as live:
        count, keep = attach_two(daemon)
        live.capture()
        live.replay(2)
        equal(daemon.count_of(), 2 * NODES * THREADS, "attached")
        detach(daemon, count)
        live.replay(3)
        equal(daemon.count_of(), 2 * NODES * THREADS, "detached")
        live.capture()
        live.replay(1)
        equal(daemon.count_of(), 2 * NODES * THREADS, "made after that")
        detach(daemon, keep)
        live.replay(1)
        attach_two(daemon)
        live.replay(1)
        equal(daemon.count_of(), NODES * THREADS, "attached again")


def test_one_after_the_other():
    """Patches of other programs each time, with the graph launched in between."""
    with sass_daemon() as daemon, Graph(daemon) as live:
        live.capture()
        for _ in range(3):
            (threads,) = daemon.attach("--engine", "sanitizer", object=example("kernel_counter"))
            live.replay(2)
            equal([(e["key"], e["value"]) for e in daemon.dump("threads")], [(shown_id("vectorAdd"), 2 * NODES * THREADS)])
            (launches,) = daemon.json("attach", example("kernel_duration"), "--engine", "sanitizer")["attachments"][:1]
            live.replay(1)
            equal([e["value"] for e in daemon.dump("threads")], [3 * NODES * THREADS])
            equal(sum(e["value"] for e in daemon.dump("launches")), NODES)
            detach(daemon, threads)
            live.replay(1)
            detach(daemon, *[a["id"] for a in daemon.attachments()])
            live.replay(1)
            live.capture()
            live.replay(1)


def test_detach_one_of_two():
    with sass_daemon() as daemon, Graph(daemon) as live:
        live.capture()
        (first,) = daemon.attach("--engine", "sanitizer")
        live.replay(1)
        (second,) = daemon.attach("--engine", "sanitizer")
        live.replay(1)
        equal(counts(daemon), [2 * NODES * THREADS, NODES * THREADS])
        detach(daemon, first)
        live.replay(1)
        equal(counts(daemon), [2 * NODES * THREADS])
        detach(daemon, second)
        live.replay(1)


def test_updates():
    """By the application: of nodes and of the whole, before attach, while attached and after it."""
    changes = {
        "nodes": lambda live, blocks: live.do(f"resize {blocks}"),
        "whole": lambda live, blocks: (live.do(f"blocks {blocks}"), live.do(f"update 0 vectorAdd {NODES}"), live.do(f"blocks {BLOCKS}")),
    }
    for label, change in changes.items():
        with sass_daemon() as daemon, Graph(daemon) as live:
            live.capture()
            live.replay(1)
            change(live, 2)
            live.replay(1, blocks=2)
            count, keep = attach_two(daemon)
            live.replay(1, blocks=2)
            equal(daemon.count_of(), NODES * 2 * 64, f"{label}: before attach")
            change(live, 3)
            live.replay(1, blocks=3)
            equal(daemon.count_of(), NODES * 5 * 64, f"{label}: while attached")
            change(live, 1)
            detach(daemon, count)
            live.replay(1, blocks=1)
            equal(daemon.count_of(), NODES * 5 * 64, f"{label}: before detach")
            change(live, 4)
            live.replay(1)
            detach(daemon, keep)
            attach_two(daemon)
            change(live, 2)
            live.replay(2, blocks=2)
            equal(daemon.count_of(), 2 * NODES * 2 * 64, f"{label}: after attach")
            equal(of_graphs(daemon), [])


def test_another_kernel():
    """A graph that was bare is updated to another kernel, whose patched code it has then."""
    with sass_daemon() as daemon, Graph(daemon) as live:
        live.capture()
        ids = daemon.attach("--engine", "sanitizer", "--kernel", "lines")
        live.replay(1)
        live.do(f"update 0 lines {NODES}")
        live.do("replay 2")
        live.note("lines", 2 * NODES)
        equal(daemon.count_of(), 2 * NODES * THREADS)
        detach(daemon, *ids)
        live.do("replay 1")
        daemon.attach("--engine", "sanitizer", "--kernel", "lines")
        live.do("replay 1")
        equal(daemon.count_of(), NODES * THREADS)


def test_another_kernel_in_ours():
    """Our bare instance of a graph is given patched code with the application's, and is not bare any more when that goes."""
    for replayed in False, True:
        with sass_daemon() as daemon, Graph(daemon) as live:
            ids = daemon.attach("--engine", "sanitizer")
            live.capture()
            detach(daemon, *ids)
            live.replay(1)
            ids = daemon.attach("--engine", "sanitizer", "--kernel", "lines")
            live.launch(1)
            live.do(f"update 0 lines {NODES}")
            live.note("lines", NODES)
            if replayed:
                live.do("replay 1")
            equal(daemon.count_of(), replayed * NODES * THREADS)
            detach(daemon, *ids)
            live.launch(1)
            live.do("replay 1")
            equal(of_graphs(daemon), [])


def test_beside_one_that_is_meant():
    """A kernel that a graph had before it was patched, and that no attachment means."""
    with sass_daemon() as daemon, Graph(daemon) as live:
        live.capture()
        daemon.attach("--engine", "sanitizer", "--kernel", "lines")
        live.replay(1)
        live.launch(2)
        live.launch(1, "lines")
        live.replay(1)
        equal(daemon.count_of(), THREADS)


def test_nodes_left_out():
    with sass_daemon() as daemon, Graph(daemon) as live:
        live.capture()
        live.do("disable 1")
        live.replay(1, NODES - 1)
        daemon.attach("--engine", "sanitizer")
        live.replay(1, NODES - 1)
        equal(daemon.count_of(), (NODES - 1) * THREADS)
        live.do("disable 0")
        live.replay(1, NODES - 2)
        live.do("enable 1")
        live.replay(1, NODES - 1)
        equal(daemon.count_of(), 2 * (NODES - 1) * THREADS + (NODES - 2) * THREADS)


def attach_one_after_the_other(daemon, live, replay):
    """Another program, so that code of a graph that was made while attached is gone."""
    detach(daemon, *[a["id"] for a in daemon.attachments()])
    daemon.attach("--engine", "sanitizer", object=example("kernel_counter"))
    if replay:
        replay()


def threads_of(daemon):
    return sum(e["value"] for e in daemon.dump("threads"))


def test_left_out_and_updated():
    """A node that is left out stays so when the graph is updated from another."""
    for replayed in True, False:
        with sass_daemon() as daemon, Graph(daemon) as live:
            daemon.attach("--engine", "sanitizer")
            live.capture()
            live.do("disable 1")
            live.replay(1, NODES - 1)
            attach_one_after_the_other(daemon, live, replayed and (lambda: live.replay(1, NODES - 1)))
            live.do(f"update 0 vectorAdd {NODES}")
            live.replay(2, NODES - 1)
            equal(threads_of(daemon), (2 + replayed) * (NODES - 1) * THREADS)
            live.do("enable 1")
            live.replay(1)
            live.do("disable 2")
            live.replay(1, NODES - 1)
            equal(threads_of(daemon), (3 + replayed) * (NODES - 1) * THREADS + NODES * THREADS)
            detach(daemon, *[a["id"] for a in daemon.attachments()])
            live.replay(1, NODES - 1)
            equal(of_graphs(daemon), [])


def test_updated_and_nodes():
    """Nodes that calls name are those of the graph that was instantiated, also after an update from another."""
    for replayed in True, False:
        with sass_daemon() as daemon, Graph(daemon) as live:
            daemon.attach("--engine", "sanitizer")
            live.capture()
            live.replay(1)
            attach_one_after_the_other(daemon, live, replayed and (lambda: live.replay(1)))
            live.do(f"update 0 vectorAdd {NODES}")
            if replayed:
                live.replay(1)
            live.do("resize 2")
            live.replay(1, blocks=2)
            live.do(f"update 0 vectorAdd {NODES}")
            live.do("resize 3")
            live.do("disable 0")
            live.replay(1, NODES - 1, blocks=3)
            equal(threads_of(daemon), NODES * (8 * replayed + 2) * 64 + (NODES - 1) * 3 * 64)
            detach(daemon, *[a["id"] for a in daemon.attachments()])
            live.replay(1, NODES - 1, blocks=3)
            daemon.attach("--engine", "sanitizer")
            live.replay(1, NODES - 1, blocks=3)
            equal(daemon.count_of(), (NODES - 1) * 3 * 64)
            equal(of_graphs(daemon), [])


def test_updated_before():
    """The whole and then nodes, before anything is attached."""
    with sass_daemon() as daemon, Graph(daemon) as live:
        live.capture()
        live.replay(1)
        live.do(f"update 0 vectorAdd {NODES}")
        live.do("resize 2")
        daemon.attach("--engine", "sanitizer")
        live.replay(1, blocks=2)
        equal(daemon.count_of(), NODES * 2 * 64)
        equal(of_graphs(daemon), [])


def test_other_order():
    """An update pairs nodes by their edges, not by the order that they were made in."""
    with sass_daemon() as daemon, Graph(daemon) as live:

        def replay(blocks):
            live.do("replay 1")
            live.note("vectorAdd", blocks / BLOCKS)

        live.do("diamond 0 vectorAdd 0")
        live.do("disable 1")
        replay(1 + 3 + 4)
        live.do("diamond 0 vectorAdd 1")
        replay(1 + 3 + 4)
        daemon.attach("--engine", "sanitizer")
        replay(1 + 3 + 4)
        live.do("widen 2")
        replay(1 + 8 + 4)
        equal(daemon.count_of(), (8 + 13) * 64)
        detach(daemon, *[a["id"] for a in daemon.attachments()])
        replay(1 + 8 + 4)
        live.do("enable 1")
        replay(1 + 2 + 8 + 4)
        equal(of_graphs(daemon), [])


def test_graph_in_a_node():
    with sass_daemon() as daemon, Graph(daemon) as live:
        daemon.attach("--engine", "sanitizer")
        live.do(f"nest 0 vectorAdd {NODES}")
        live.replay(1)
        attach_one_after_the_other(daemon, live, None)
        live.do("blocks 2")
        live.do(f"renest 0 vectorAdd {NODES}")
        live.do(f"blocks {BLOCKS}")
        live.replay(1, blocks=2)
        equal(threads_of(daemon), NODES * 2 * 64)
        detach(daemon, *[a["id"] for a in daemon.attachments()])
        live.replay(1, blocks=2)
        daemon.attach("--engine", "sanitizer")
        live.replay(1, blocks=2)
        equal(daemon.count_of(), NODES * 2 * 64)
        equal(of_graphs(daemon), [])


def test_node_in_a_node():
    if GPU:
        return  # it is not said that the driver takes such a node
    with sass_daemon() as daemon, Graph(daemon) as live:
        live.do(f"nest 0 vectorAdd {NODES}")
        live.do("inner 1")
        daemon.attach("--engine", "sanitizer")
        live.do("replay 1")
        equal(daemon.count_of(), (1 + (NODES - 1) * BLOCKS) * 64)
        live.note("vectorAdd", NODES - 1 + 1 / BLOCKS)
        live.do(f"renest 0 vectorAdd {NODES}")
        live.replay(1)
        live.do("inner 2")  # of the graph that the node was given: not followed
        live.do("replay 1")
        live.note("vectorAdd", NODES - 1 + 2 / BLOCKS)


def test_another_kernel_in_the_last_of_ours():
    """As test_another_kernel_in_ours(), where our clone has not followed: our instance keeps the patches."""
    if GPU:
        return  # as test_node_in_a_node()
    with sass_daemon() as daemon, Graph(daemon) as live:
        ids = daemon.attach("--engine", "sanitizer")
        live.do(f"nest 0 vectorAdd {NODES}")
        detach(daemon, *ids)
        live.replay(1)
        live.do(f"renest 0 vectorAdd {NODES}")
        live.do(f"inner {BLOCKS}")
        live.replay(1)
        ids = daemon.attach("--engine", "sanitizer")
        live.launch(1)
        equal(daemon.count_of(), THREADS)
        live.do(f"renest 0 lines {NODES}")
        live.note("lines", NODES)
        detach(daemon, *ids)
        live.launch(1)
        live.do("replay 1")
        check("keeps kernel patches: it was changed" in of_graphs(daemon)[0], daemon.why())
        live.do("forget 0")
        live.launch(1)


def test_no_memory():
    """Where our copies cannot be made the application's own is launched, as long as its code is there, or the last of ours."""
    if GPU:
        return
    for clones, label in (1, "bare"), (1, "probed"), (2, "ours"):
        with sass_daemon() as daemon, Graph(daemon, GPUPROBE_SIM_CLONES=str(clones)) as live:
            if label != "bare":
                daemon.attach("--engine", "sanitizer")
            live.capture()
            live.replay(1)
            if label == "ours":
                attach_one_after_the_other(daemon, live, lambda: live.replay(1))
                live.do(f"update 0 vectorAdd {NODES}")
            live.do(f"update 0 vectorAdd {NODES}")
            live.do("disable 0")
            live.replay(1, NODES - 1)
            if label == "bare":
                daemon.attach("--engine", "sanitizer")
                live.replay(2, NODES - 1)
                live.replay(1, NODES - 1)
                equal(daemon.count_of(), 0)
                check("without probes: it was changed" in of_graphs(daemon)[0], daemon.why())
                continue
            detach(daemon, *[a["id"] for a in daemon.attachments()])
            live.replay(2, NODES - 1)
            check("keeps kernel patches: it was changed" in of_graphs(daemon)[0], daemon.why())
            daemon.attach("--engine", "sanitizer", object=example("kernel_duration"))
            live.replay(1, NODES - 1)
            live.do("forget 0")
            live.launch(1)
            equal(sum(e["value"] for e in daemon.dump("launches")), 1, f"{label}: it is gone")


def test_no_instance():
    """The application's graph goes on where ours cannot be instantiated."""
    if GPU:
        return
    for instances in 1, 2:
        with sass_daemon() as daemon, Graph(daemon, GPUPROBE_SIM_INSTANCES=str(instances)) as live:
            live.capture()
            ids = daemon.attach("--engine", "sanitizer")
            live.replay(2)
            equal(daemon.count_of(), (instances - 1) * 2 * NODES * THREADS)
            live.launch(1)
            equal(
                of_graphs(daemon),
                [] if instances == 2 else ["a CUDA graph is launched without probes, or with some only: the driver makes no executable graph of its clone"],
            )
            detach(daemon, *ids)
            live.replay(2)
            daemon.attach("--engine", "sanitizer", object=example("kernel_counter"))
            live.do(f"update 0 vectorAdd {NODES}")
            live.replay(2)
            live.do("resize 2")
            live.replay(1, blocks=2)


def test_destroyed():
    with sass_daemon() as daemon, Graph(daemon) as live:
        for made_before in True, False:
            if made_before:
                live.capture()
            ids = daemon.attach("--engine", "sanitizer")
            if not made_before:
                live.capture()
            live.replay(1)
            equal(daemon.count_of(), NODES * THREADS)
            live.do("forget 0")
            live.launch(1)
            equal(daemon.count_of(), (NODES + 1) * THREADS)
            detach(daemon, *ids)
            live.launch(1)


def test_threads():
    """One graph, launched by two threads; at last while it is attached and detached."""
    with sass_daemon() as daemon, Graph(daemon) as live:
        live.capture()
        ids = daemon.attach("--engine", "sanitizer")
        live.replay(10, threads=2)
        equal(daemon.count_of(), 2 * 10 * NODES * THREADS)
        detach(daemon, *ids)
        thread = threading.Thread(target=live.replay, args=[15000], kwargs={"threads": 2})
        thread.start()
        kept = []
        for cycle in range(10):  # with nothing attached in between, then with what keeps the maps: they are read when no kernel runs any more
            count, keep = attach_two(daemon)
            time.sleep(0.02)
            detach(daemon, count)
            if cycle < 5:
                detach(daemon, keep)
            else:
                kept.append(keep)
        thread.join()
        numbers = counts(daemon)
        check(len(numbers) == len(kept) and all(number % THREADS == 0 for number in numbers), numbers)
        detach(daemon, *kept)
        daemon.attach("--engine", "sanitizer")
        live.replay(1)
        equal(daemon.count_of(), NODES * THREADS)


def test_cycles():
    """Neither descriptors nor memory grow, and each one is right."""
    nodes = 60  # each instance of the graph is to be seen
    with sass_daemon() as daemon, Graph(daemon) as live:
        live.capture(nodes)

        def cycles(number):
            for _ in range(number):
                ids = daemon.attach("--engine", "sanitizer")
                live.replay(1, nodes)
                equal(daemon.count_of(), nodes * THREADS)
                detach(daemon, *ids)
                live.replay(1, nodes)
            time.sleep(0.2)
            return live.descriptors(), live.memory()

        before, after = cycles(30), cycles(100)
        check(after[0] <= before[0] + 2 and after[1] <= before[1] + 1024, before, "grew to", after)


def test_changed_all_the_time():
    """Updates and parameters of nodes in a loop, while attached, of a graph that was updated before: nothing piles up."""
    with sass_daemon() as daemon, Graph(daemon) as live:
        live.capture(20)
        live.do("update 0 vectorAdd 20")
        daemon.attach("--engine", "sanitizer")
        live.replay(1, nodes=20)
        for cycle in range(300):
            live.do("update 0 vectorAdd 20")
            live.do("resize 2")
            live.replay(1, nodes=20, blocks=2)
            if cycle == 20:
                before = live.memory()
        check(live.memory() <= before + 1024, before, "grew to", live.memory())
        equal(daemon.count_of(), (20 + 300 * 20 // 2) * THREADS)


def test_cannot_be_cloned():
    """Such a graph is counted if it was made while attached; then its patches stay till it is destroyed, and count nothing."""
    if GPU:
        return
    for why_not in "NO_CLONE", "DEVICE_UPDATABLE":  # what the device updates is its own instance
        cannot_be_cloned({f"GPUPROBE_SIM_{why_not}": "1"})


def cannot_be_cloned(why_not):
    with sass_daemon() as daemon, Graph(daemon, **why_not) as live:
        live.capture()
        ids = daemon.attach("--engine", "sanitizer")
        live.replay(1)
        equal(daemon.count_of(), 0, "made before")
        check(all("launched without probes" in reason for reason in of_graphs(daemon)) and of_graphs(daemon), daemon.why())
        live.capture()
        live.replay(1)
        equal(daemon.count_of(), NODES * THREADS, "made while attached")
        detach(daemon, *ids)
        live.replay(2)
        check("a CUDA graph keeps kernel patches" in of_graphs(daemon)[0], daemon.why())
        daemon.attach("--engine", "sanitizer", object=example("kernel_counter"))
        live.replay(1)
        equal(daemon.dump("threads"), [], "its patches are of another program")
        live.do("forget 0")
        live.launch(1)
        equal([e["value"] for e in daemon.dump("threads")], [THREADS], "it is gone")


def sums(daemon):
    """As counts(), of maps that may be empty."""
    return [sum(e["value"] for e in daemon.dump(str(m["id"]))) for m in daemon.json("map", "list")["maps"]]


def test_kept_patches():
    """While a graph keeps patches what was attached before goes on, what is detached does not, and what is attached then begins when the graph is gone."""
    if GPU:
        return
    with sass_daemon() as daemon, Graph(daemon, GPUPROBE_SIM_NO_CLONE="1") as live:
        first, keep = attach_two(daemon)
        (second,) = daemon.attach("--engine", "sanitizer")
        live.capture()
        live.replay(1)
        equal(sums(daemon), [NODES * THREADS] * 2, "attached")
        daemon.attach("--engine", "sanitizer", object=example("kernel_counter"))  # another image
        live.launch(2)
        live.replay(1)
        seen = 2 * NODES + 2
        equal(sums(daemon), [seen * THREADS] * 2 + [0], "a third one is attached")
        detach(daemon, first)
        live.launch(1)
        live.replay(1)
        equal(sums(daemon), [seen * THREADS, (seen + 1 + NODES) * THREADS, 0], "the first is detached")
        detach(daemon, second, keep)
        live.launch(1)
        equal(sums(daemon), [0], "the map of the second is gone")
        live.do("forget 0")
        live.launch(1)
        equal(sums(daemon), [THREADS], "the graph is gone")


if __name__ == "__main__":
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
