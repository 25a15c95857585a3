#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Twins in CUDA graphs, under the PTX engine: nodes of executable graphs get them and lose them between launches, whenever the graph was made and
whatever the program does with it. Graphs themselves keep originals. On the CPU driver, or with GPUPROBE_TEST_GPU=1 on a GPU.
"""

import os
import random
import tempfile
import threading

from harness import COUNTER, CTL, GPU, GPUPROBED, SHIM, SIM, Daemon, Failed, check, equal, main, need, wait_until
import live
from live import LIVE, THREADS, example, obj, reasons

need(GPUPROBED, CTL, COUNTER, SHIM, LIVE, obj("two"), *([] if GPU else [os.path.join(SIM, "libcuda.so.1")]))

NODES = 3  # of the graph that most tests make
BLOCKS = 4
MANY = 1000  # nodes; more than the shim changes before one launch
CAPTURE_UNSUPPORTED = 900  # CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
SLICE = 500  # nodes at most that it does; a node takes 6 us at least


class Graph(live.Live):
    """With the graph's launches among those that must have been made."""

    def __init__(self, daemon, **more):
        super().__init__(daemon, **more)

    def capture(self, nodes=NODES):
        self.do(f"capture 0 vectorAdd {nodes}")

    def replay(self, times, nodes=NODES, blocks=BLOCKS, threads=0):
        self.do(f"replay {times} {threads}")
        self.note("vectorAdd", times * nodes * max(threads, 1) * blocks / BLOCKS)


def ptx_daemon(*options):
    return Daemon("--engine", "ptx", *options)


def attach_two(daemon):
    """A counter whose map outlives it: the attachment to detach, and that which keeps the map."""
    ids = {a["program"]: a["id"] for a in daemon.json("attach", obj("two"))["attachments"]}
    return ids["cuda__count"], ids["cuda__keep"]


def detach(daemon, *ids):
    daemon.ctl("detach", *map(str, ids))


def grown(daemon, act, count=None):
    """What is counted meanwhile."""
    count = count or daemon.count_of
    before = count()
    act()
    return count() - before


def wait_for_twins(daemon, replay, threads=NODES * THREADS, count=None):
    """Launches until all nodes have twins: the launch that asks for a twin does not wait for it."""
    wait_until(lambda: grown(daemon, replay, count) == threads, "a launch of the graph that is probed")


def wait_for_originals(daemon, replay):
    wait_until(lambda: grown(daemon, replay) == 0, "a launch of the graph that is not probed")


def cycle(daemon, program, replay, threads=NODES * THREADS):
    """Attaches, launches and detaches, once."""
    count, keep = attach_two(daemon)
    wait_for_twins(daemon, replay, threads)
    equal(grown(daemon, lambda: [replay() for _ in range(5)]), 5 * threads, "attached")
    detach(daemon, count)
    equal(grown(daemon, lambda: [replay() for _ in range(2)]), 0, "detached")
    detach(daemon, keep)
    replay()
    program.right()


def counts(daemon):
    """Of all counters, in the order of attaching."""
    return [daemon.dump(str(m["id"]))[0]["value"] for m in daemon.json("map", "list")["maps"]]


def of_graphs(daemon):
    """What is said about graphs, where kernels are not probed."""
    return [reason for reason in reasons(daemon) if "graph" in reason]


def wait_for_reason(daemon, replay, text):
    def said():
        replay()
        return any(text in reason for reason in of_graphs(daemon))

    wait_until(said, text)


def test_captured():
    for load in "load 0", "load 0 library":
        with ptx_daemon() as daemon, Graph(daemon, load=load) as program:
            program.capture()
            program.replay(2)
            for _ in range(3):
                cycle(daemon, program, lambda: program.replay(1))
            equal(of_graphs(daemon), [])


def test_captured_while_attached():
    with ptx_daemon() as daemon, Graph(daemon) as program:
        count, keep = attach_two(daemon)
        program.capture()
        wait_for_twins(daemon, lambda: program.replay(1))
        program.capture()
        equal(grown(daemon, lambda: program.replay(4)), 4 * NODES * THREADS, "made anew")
        equal(program.do("originals 0 vectorAdd"), [0], "nodes of the graph with another kernel")
        detach(daemon, count)
        equal(grown(daemon, lambda: program.replay(2)), 0)
        detach(daemon, keep)


def test_launches_and_graphs():
    """Both count, and each alone."""
    with ptx_daemon() as daemon, Graph(daemon) as program:
        program.capture()
        daemon.attach()
        wait_for_twins(daemon, lambda: program.replay(1))
        equal(grown(daemon, lambda: program.launch(3)), 3 * THREADS)
        equal(grown(daemon, lambda: program.replay(3)), 3 * NODES * THREADS)


def test_built():
    """A graph that is built node by node; an update pairs nodes by their edges, not by the order that they were made in."""
    with ptx_daemon() as daemon, Graph(daemon) as program:

        def replay(blocks=1 + 2 + 3 + 4):
            program.do("replay 1")
            program.note("vectorAdd", blocks / BLOCKS)

        program.do("diamond 0 vectorAdd 0")
        cycle(daemon, program, replay, 10 * 64)
        program.do("disable 1")
        daemon.attach()
        wait_for_twins(daemon, lambda: replay(8), 8 * 64)
        program.do("diamond 0 vectorAdd 1")
        equal(grown(daemon, lambda: replay(8)), 8 * 64)
        program.do("widen 2")
        equal(grown(daemon, lambda: replay(13)), 13 * 64)
        program.do("enable 1")
        equal(grown(daemon, lambda: replay(15)), 15 * 64)
        equal(of_graphs(daemon), [])


CHANGES = {
    "nodes": lambda program, blocks: program.do(f"resize {blocks}"),
    "whole": lambda program, blocks: (program.do(f"blocks {blocks}"), program.do(f"update 0 vectorAdd {NODES}"), program.do(f"blocks {BLOCKS}")),
}


def test_updates():
    """By the program: of nodes and of the whole, before attach, while attached and after it."""
    for label, change in CHANGES.items():
        with ptx_daemon() as daemon, Graph(daemon) as program:
            program.capture()
            change(program, 2)
            program.replay(1, blocks=2)
            count, keep = attach_two(daemon)
            wait_for_twins(daemon, lambda: program.replay(1, blocks=2), NODES * 2 * 64)
            change(program, 3)
            equal(grown(daemon, lambda: program.replay(2, blocks=3)), 2 * NODES * 3 * 64, f"{label}: while attached")
            change(program, 1)
            detach(daemon, count)
            equal(grown(daemon, lambda: program.replay(1, blocks=1)), 0, f"{label}: detached")
            change(program, 4)
            program.replay(1)
            detach(daemon, keep)
            daemon.attach()
            change(program, 2)
            wait_for_twins(daemon, lambda: program.replay(1, blocks=2), NODES * 2 * 64)
            equal(of_graphs(daemon), [])


def test_updated_each_time():
    """Before each launch, as a program does that captures anew each time."""
    for label, change in CHANGES.items():
        with ptx_daemon() as daemon, Graph(daemon) as program:
            program.capture()
            count, _ = attach_two(daemon)
            wait_for_twins(daemon, lambda: program.replay(1))
            before = daemon.count_of()
            for step in range(20):
                change(program, 1 + step % 4)
                program.replay(1, blocks=1 + step % 4)
            equal(daemon.count_of() - before, NODES * 64 * 50, label)
            detach(daemon, count)
            change(program, 4)
            equal(grown(daemon, lambda: program.replay(3)), 0, label)


def test_nodes_and_whole():
    """A node's own parameters hold until the whole is updated, which names nodes of the graph that was instantiated."""
    with ptx_daemon() as daemon, Graph(daemon) as program:
        program.capture()
        daemon.attach()
        program.do("resize 2")
        wait_for_twins(daemon, lambda: program.replay(1, blocks=2), NODES * 2 * 64)
        CHANGES["whole"](program, 3)
        equal(grown(daemon, lambda: program.replay(1, blocks=3)), NODES * 3 * 64)
        program.do("resize 1")
        program.do("disable 0")
        equal(grown(daemon, lambda: program.replay(1, NODES - 1, blocks=1)), (NODES - 1) * 64)


def test_update_fails():
    """The executable graph stays as it is, and is followed further."""
    with ptx_daemon() as daemon, Graph(daemon) as program:
        program.capture()
        program.do(f"misfit 0 vectorAdd {NODES + 1}")
        daemon.attach()
        wait_for_twins(daemon, lambda: program.replay(1))
        program.do(f"misfit 0 vectorAdd {NODES + 1}")
        equal(grown(daemon, lambda: program.replay(3)), 3 * NODES * THREADS)
        CHANGES["whole"](program, 2)
        equal(grown(daemon, lambda: program.replay(3, blocks=2)), 3 * NODES * 2 * 64)


def test_another_kernel():
    """A graph is updated to another kernel, of which it has the twin then, and back."""
    with ptx_daemon() as daemon, Graph(daemon) as program:
        program.capture()
        daemon.attach(object=example("kernel_counter"))
        counted = lambda: sum(e["value"] for e in daemon.dump("threads"))
        wait_for_twins(daemon, lambda: program.replay(1), count=counted)
        program.do(f"update 0 lines {NODES}")
        program.note("lines", NODES)
        equal(grown(daemon, lambda: program.do("replay 2"), counted), 2 * NODES * THREADS)
        program.do(f"update 0 vectorAdd {NODES}")
        equal(grown(daemon, lambda: program.replay(1), counted), NODES * THREADS)


def test_only_one_kernel():
    """Nodes of kernels that are not meant keep their originals."""
    with ptx_daemon() as daemon, Graph(daemon) as program:
        daemon.attach("--kernel", "lines")
        program.do("capture 0 lines 2")
        program.note("lines", 2)
        wait_for_twins(daemon, lambda: program.do("replay 1"), 2 * THREADS)
        program.capture()
        equal(grown(daemon, lambda: program.replay(3)), 0)


def test_one_after_the_other():
    """Other programs while the graph has twins: each node gets the new one; the old ones can go."""
    with ptx_daemon() as daemon, Graph(daemon) as program:
        program.capture()

        def threads():
            return sum(e["value"] for e in daemon.dump("threads"))

        count, keep = attach_two(daemon)
        wait_for_twins(daemon, lambda: program.replay(1))
        (second,) = daemon.attach(object=example("kernel_counter"))
        wait_for_twins(daemon, lambda: program.replay(1), count=threads)
        before, other = daemon.count_of(), threads()
        program.replay(2)
        equal((daemon.count_of() - before, threads() - other), (2 * NODES * THREADS,) * 2, "both")
        detach(daemon, count)
        wait_for_twins(daemon, lambda: program.replay(1), count=threads)
        equal(grown(daemon, lambda: program.replay(2)), 0, "the first is detached")
        detach(daemon, second, keep)
        program.replay(2)


def test_nested():
    """A graph in a node; it is given another one."""
    with ptx_daemon() as daemon, Graph(daemon) as program:
        program.do(f"nest 0 vectorAdd {NODES}")
        cycle(daemon, program, lambda: program.replay(1))
        daemon.attach()
        wait_for_twins(daemon, lambda: program.replay(1))
        program.do("blocks 2")
        program.do(f"renest 0 vectorAdd {NODES}")
        program.do(f"blocks {BLOCKS}")
        equal(grown(daemon, lambda: program.replay(2, blocks=2)), 2 * NODES * 2 * 64)
        program.do("inner 1")
        program.note("vectorAdd", (1 + (NODES - 1) * 2) / BLOCKS)
        equal(grown(daemon, lambda: program.do("replay 1")), (1 + (NODES - 1) * 2) * 64)
        equal(of_graphs(daemon), [])


def test_conditional():
    for value in 0, 1:
        with ptx_daemon() as daemon, Graph(daemon) as program:
            program.do(f"conditional 0 vectorAdd {value}")
            for _ in range(2):
                cycle(daemon, program, lambda: program.replay(1, 1 + value), (1 + value) * THREADS)
            equal(of_graphs(daemon), [])


def test_destroyed_after_instantiation():
    """The graph is gone for the program, but its nodes are there for us."""
    with ptx_daemon() as daemon, Graph(daemon) as program:
        program.capture()
        program.do("drop")
        program.do("again")
        for _ in range(2):
            cycle(daemon, program, lambda: program.replay(1))
        program.do("forget 0")
        program.capture()
        cycle(daemon, program, lambda: program.replay(1))


def test_never_launched_again():
    """A twin that a graph keeps stays loaded; launches get the next one, and so does the graph if it is launched after all."""
    with ptx_daemon() as daemon, Graph(daemon) as program:
        program.capture()
        count, keep = attach_two(daemon)
        wait_for_twins(daemon, lambda: program.replay(1))
        detach(daemon, count, keep)
        program.launch(3)
        daemon.attach()
        wait_for_twins(daemon, lambda: program.launch(1), THREADS)
        equal(grown(daemon, lambda: program.launch(4)), 4 * THREADS)
        wait_for_twins(daemon, lambda: program.replay(1))
        program.do("forget 0")
        equal(grown(daemon, lambda: program.launch(4)), 4 * THREADS)


def test_slices():
    """Of many nodes some have twins and some not yet, or not any more; a launch waits for a part only."""
    with ptx_daemon() as daemon, Graph(daemon, **({} if GPU else {"GPUPROBE_SIM_NODE_US": "6"})) as program:
        program.capture(MANY)
        program.replay(1, MANY)
        count, keep = attach_two(daemon)
        steps = []
        while not steps or steps[-1] != MANY * THREADS:
            steps.append(grown(daemon, lambda: program.replay(1, MANY)))
            check(steps[-1] % THREADS == 0 and len(steps) < 10000, steps)
        check(steps == sorted(steps), steps)
        begun = [step for step in steps if step]
        check(GPU or begun[0] <= SLICE * THREADS, "a launch waited for", begun[0] // THREADS, "nodes")
        equal(grown(daemon, lambda: program.replay(2, MANY)), 2 * MANY * THREADS)
        detach(daemon, count)
        wait_for_originals(daemon, lambda: program.replay(1, MANY))
        detach(daemon, keep)
        program.replay(1, MANY)
        daemon.attach()
        wait_for_twins(daemon, lambda: program.replay(1, MANY), MANY * THREADS)


def test_first_launch():
    """A graph that has just been made gets all its twins before its first launch."""
    with ptx_daemon() as daemon, Graph(daemon, **({} if GPU else {"GPUPROBE_SIM_NODE_US": "6"})) as program:
        daemon.attach()
        wait_for_twins(daemon, lambda: program.launch(1), THREADS)
        for _ in range(3):
            program.capture(MANY)
            equal(grown(daemon, lambda: program.replay(1, MANY)), MANY * THREADS)


def test_updated_too_often():
    """Where there is no time for all nodes between updates the program goes on, and `why` says that some are not probed."""
    with ptx_daemon() as daemon, Graph(daemon, **({} if GPU else {"GPUPROBE_SIM_NODE_US": "6"})) as program:
        program.capture(MANY)
        program.replay(1, MANY)
        daemon.attach()

        def said():
            program.do(f"update 0 vectorAdd {MANY}")
            program.replay(1, MANY)
            return any("it is updated too often" in reason for reason in of_graphs(daemon))

        wait_until(said, "the reason")
        wait_for_twins(daemon, lambda: program.replay(1, MANY), MANY * THREADS)


def test_updated_all_the_time():
    """Twins in a graph that is updated before each launch soon take too much of the program's time: after most updates it keeps originals."""
    with ptx_daemon() as daemon, Graph(daemon, **({} if GPU else {"GPUPROBE_SIM_NODE_US": "6"})) as program:
        program.capture(MANY)
        program.replay(1, MANY)
        daemon.attach()
        wait_for_twins(daemon, lambda: program.replay(1, MANY), MANY * THREADS)

        def updates(count):
            for _ in range(count):
                program.do(f"update 0 vectorAdd {MANY}")
                program.replay(1, MANY)

        updates(100)
        wait_until(lambda: grown(daemon, lambda: updates(1)) == 0, "originals", 100)
        check(any("it is updated too often" in reason for reason in of_graphs(daemon)), of_graphs(daemon))
        wait_for_twins(daemon, lambda: program.replay(1, MANY), MANY * THREADS)


def test_detached_in_slices():
    """Before all nodes have their originals the program attaches again."""
    with ptx_daemon() as daemon, Graph(daemon, **({} if GPU else {"GPUPROBE_SIM_NODE_US": "6"})) as program:
        program.capture(MANY)
        for _ in range(3):
            count, keep = attach_two(daemon)
            wait_for_twins(daemon, lambda: program.replay(1, MANY), MANY * THREADS)
            detach(daemon, count, keep)
            program.replay(1, MANY)
        program.right()


def test_spoiled():
    """The graph is changed after it was instantiated: what the executable one has is not known, until the program updates it."""
    with ptx_daemon() as daemon, Graph(daemon) as program:
        program.capture()
        program.do("spoil 2")
        daemon.attach()
        wait_for_reason(daemon, lambda: program.replay(1), "the graph was changed after it was instantiated")
        equal(daemon.count_of(), 0)
        program.do("resize 1")
        wait_for_twins(daemon, lambda: program.replay(1, blocks=1), NODES * 64)
        program.do("spoil 3")
        equal(grown(daemon, lambda: program.replay(2, blocks=1)), 2 * NODES * 64, "their own parameters hold")
        CHANGES["whole"](program, 2)
        equal(grown(daemon, lambda: program.replay(1, blocks=2)), NODES * 2 * 64)


def test_node_removed():
    """A node of the graph is destroyed, which the executable graph still has."""
    with ptx_daemon() as daemon, Graph(daemon) as program:
        program.capture()
        count, keep = attach_two(daemon)
        wait_for_twins(daemon, lambda: program.replay(1))
        program.do("remove")
        equal(grown(daemon, lambda: program.replay(2)), 0)
        wait_for_reason(daemon, lambda: program.replay(1), "the graph was changed after it was instantiated")
        detach(daemon, count, keep)
        program.replay(1)


def test_user_objects():
    """A graph with user objects is destroyed when the program says so, and its executable graph keeps originals."""
    with ptx_daemon() as daemon, Graph(daemon) as program:
        program.capture()
        program.do("object")
        daemon.attach()
        wait_for_twins(daemon, lambda: program.replay(1))
        equal(program.do("objects"), [0])
        program.do("drop")
        wait_until(lambda: program.do("objects") == [1], "the object is destroyed")
        equal(grown(daemon, lambda: program.replay(2)), 0)
        wait_for_reason(daemon, lambda: program.replay(1), "user objects")


def test_captured_in_another():
    """The driver refuses a launch that is captured: the graph keeps its twins."""
    with ptx_daemon() as daemon, Graph(daemon) as program:
        program.capture()
        equal(program.do("enclose"), [CAPTURE_UNSUPPORTED])
        daemon.attach()
        wait_for_twins(daemon, lambda: program.replay(1))
        equal(program.do("enclose"), [CAPTURE_UNSUPPORTED])
        equal(grown(daemon, lambda: program.replay(2)), 2 * NODES * THREADS)


def test_refused():
    if GPU:
        return
    with ptx_daemon() as daemon, Graph(daemon, GPUPROBE_SIM_REFUSE="vectorAdd") as program:
        program.capture()
        daemon.attach()
        wait_for_reason(daemon, lambda: program.replay(1), "the driver does not take the probed kernel there")
        equal(daemon.count_of(), 0)
        equal(grown(daemon, lambda: program.launch(2)), 2 * THREADS)


def test_device_updatable():
    if GPU:
        return
    with ptx_daemon() as daemon, Graph(daemon, GPUPROBE_SIM_DEVICE_UPDATABLE="1") as program:
        program.capture()
        daemon.attach()
        wait_for_reason(daemon, lambda: program.replay(1), "the device launches or changes them")
        equal(daemon.count_of(), 0)


def test_unloaded():
    """The module is unloaded while a graph has its twins; then the graph gets other kernels."""
    with ptx_daemon() as daemon, Graph(daemon) as program:
        program.do("load 1")
        program.capture()
        daemon.attach()
        wait_for_twins(daemon, lambda: program.replay(1))
        program.do("unload 0")
        program.do(f"update 1 vectorAdd {NODES}")
        wait_for_twins(daemon, lambda: program.replay(1))
        program.do("forget 0")
        program.launch(1, slot=1)


def test_context():
    """A graph in a second context, of a module that was loaded there, while the first context's is there, too."""
    with ptx_daemon() as daemon, Graph(daemon) as program:
        program.capture()
        daemon.attach()
        wait_for_twins(daemon, lambda: program.replay(1))
        program.do("context")
        program.do("load 1")
        program.do(f"capture 1 vectorAdd {NODES}")
        wait_for_twins(daemon, lambda: program.replay(1))


def test_threads():
    """One graph, launched by two threads while it is attached and detached."""
    with ptx_daemon() as daemon, Graph(daemon) as program:
        program.capture()
        count, keep = attach_two(daemon)
        wait_for_twins(daemon, lambda: program.replay(1))
        equal(grown(daemon, lambda: program.replay(10, threads=2)), 2 * 10 * NODES * THREADS)
        detach(daemon, count, keep)
        thread = threading.Thread(target=program.replay, args=[6000], kwargs={"threads": 2})
        thread.start()
        kept = []
        for _ in range(5):
            count, keep = attach_two(daemon)
            wait_until(lambda: counts(daemon)[-1] or not thread.is_alive(), "a launch that is probed")
            detach(daemon, count)
            kept.append(keep)
        thread.join()
        program.replay(1)
        numbers = counts(daemon)
        check(len(numbers) == len(kept) and all(number % THREADS == 0 for number in numbers), numbers)
        detach(daemon, *kept)
        daemon.attach()
        wait_for_twins(daemon, lambda: program.replay(1))


def test_cycles():
    """Each one is right. Descriptors do not grow, and memory no more than it does with launches."""
    with ptx_daemon() as daemon, Graph(daemon) as program:
        program.capture(20)

        def cycles(replay, threads):
            before = program.memory()
            for _ in range(5):
                cycle(daemon, program, replay, threads)
            return program.memory() - before

        cycles(lambda: program.replay(1, 20), 20 * THREADS)
        descriptors = program.descriptors()
        launches = cycles(lambda: program.launch(1), THREADS)
        graphs = cycles(lambda: program.replay(1, 20), 20 * THREADS)
        check(program.descriptors() <= descriptors + 2, "descriptors", descriptors, program.descriptors())
        check(graphs <= launches + 1024, "KiB:", launches, "with launches,", graphs, "with graphs")


def test_graphs_come_and_go():
    """Captured, updated, destroyed at once and launched, over and over: nothing piles up."""
    with ptx_daemon() as daemon, Graph(daemon) as program:
        daemon.attach()

        def rounds(number):
            for _ in range(number):
                program.capture(20)
                program.do("drop")
                program.do("update 0 vectorAdd 20")
                program.replay(1, 20)
            return program.memory()

        before, after = rounds(50), rounds(300)
        check(after <= before + 1024, before, "grew to", after)
        wait_for_twins(daemon, lambda: program.replay(1, 20), 20 * THREADS)


class Random:
    """Does what comes to its mind with a graph, and knows what its launch has to count."""

    def __init__(self, daemon, program, random):
        self.daemon, self.program, self.random = daemon, program, random
        self.attached = None
        self.capture()

    def capture(self):
        self.blocks = [BLOCKS] * self.random.randint(1, 6)
        self.off = set()
        self.nodes = True  # the graph is there, and its nodes can be named
        self.program.capture(len(self.blocks))

    def launch(self):
        self.program.do("replay 1")
        self.program.note("vectorAdd", self.threads() / THREADS)

    def threads(self):
        return sum(64 * blocks for node, blocks in enumerate(self.blocks) if node not in self.off)

    def any_node(self):
        return self.random.randrange(len(self.blocks))

    def resize(self):
        blocks = self.random.randint(1, 8)
        self.program.do(f"resize {blocks}")
        self.blocks = [blocks] * len(self.blocks)

    def widen(self):
        node = self.any_node()
        self.program.do(f"widen {node}")
        self.blocks[node] = 8

    def disable(self):
        node = self.any_node()
        self.program.do(f"disable {node}")
        self.off.add(node)

    def enable(self):
        node = self.any_node()
        self.program.do(f"enable {node}")
        self.off.discard(node)

    def update(self):
        blocks = self.random.randint(1, 8)
        self.program.do(f"blocks {blocks}")
        self.program.do(f"update 0 vectorAdd {len(self.blocks)}")
        self.program.do(f"blocks {BLOCKS}")
        self.blocks = [blocks] * len(self.blocks)

    def misfit(self):
        self.program.do(f"misfit 0 vectorAdd {len(self.blocks) + 1}")

    def drop(self):
        self.program.do("drop")
        self.nodes = False

    def attach(self):
        if self.attached:
            detach(self.daemon, self.attached[0])
            equal(grown(self.daemon, self.launch), 0, "detached")
            detach(self.daemon, self.attached[1])
            self.attached = None
        else:
            self.attached = attach_two(self.daemon)
            wait_for_twins(self.daemon, self.launch, self.threads()) if self.threads() else None

    def step(self):
        acts = [self.capture, self.update, self.misfit, self.attach, self.attach]
        if self.nodes:
            acts += [self.resize, self.widen, self.disable, self.enable, self.enable, self.drop]
        act = self.random.choice(acts)
        act()
        return act.__name__


def test_random():
    seed = int.from_bytes(os.urandom(4), "little")
    for number in range(seed, seed + 2):
        done = []
        try:
            with ptx_daemon() as daemon, Graph(daemon) as program:
                user = Random(daemon, program, random.Random(number))
                for _ in range(40):
                    done.append(user.step())
                    if user.attached:
                        if user.threads() and not daemon.count_of():
                            wait_for_twins(daemon, user.launch, user.threads())
                        equal(grown(daemon, user.launch), user.threads())
                    else:
                        user.launch()
                equal(of_graphs(daemon), [])
        except Exception as error:
            raise Failed(f"seed {number}, after {' '.join(done)}: {error}") from error


def test_daemon_dies():
    with ptx_daemon() as daemon, Graph(daemon) as program:
        program.capture()
        daemon.attach()
        wait_for_twins(daemon, lambda: program.replay(1))
        daemon.kill()
        program.replay(3)
        daemon.start()
        daemon.attach()
        wait_for_twins(daemon, lambda: program.replay(1))


def test_from_a_file():
    """Of a module in a file, as Triton's and others are loaded: the image is copied."""
    text = ".version 7.0\n.target sm_70\n.address_size 64\n" + VECTOR_ADD
    with tempfile.TemporaryDirectory() as folder, ptx_daemon() as daemon, Graph(daemon, load=None) as program:
        path = os.path.join(folder, "module.ptx")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        program.do(f"file 0 {path}")
        program.capture()
        cycle(daemon, program, lambda: program.replay(1))


VECTOR_ADD = """\
.visible .entry vectorAdd(.param .u64 data)
{
	.reg .b64 %rd<4>;
	.reg .b32 %r<6>;
	ld.param.u64 %rd1, [data];
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mad.lo.s32 %r4, %r2, %r3, %r1;
	mul.wide.u32 %rd2, %r4, 4;
	add.s64 %rd3, %rd1, %rd2;
	ld.global.u32 %r5, [%rd3];
	add.s32 %r5, %r5, 1;
	st.global.u32 [%rd3], %r5;
	ret;
}
"""

if __name__ == "__main__":
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
