#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Restart without loss: what is attached and what was counted survives a restart, a crash and kill -9, and processes count on meanwhile. The test plays
systemd (manager.py); test-service.sh has the real one. On the CPU driver, or with GPUPROBE_TEST_GPU=1 on a GPU. test-restart-sass.py is the
same for machine code that is patched.
"""

import json
import os
import shutil
import signal
import tempfile
import time

from harness import BUILD, COUNTER, CTL, GPU, GPUPROBED, SHIM, SIM, SOURCE, VEC_ADD, Failed, check, equal, main, need, wait_until
from live import LIVE, THREADS, Live, example, obj, processes_end
from manager import Manager
from wire import MIRROR, Closed, Shim

need(GPUPROBED, CTL, COUNTER, SHIM, VEC_ADD, LIVE, *([] if GPU else [os.path.join(SIM, "libcuda.so.1")]))

WAYS = Manager.restart, Manager.crash_and_start


def program(daemon, launches=3, threads=4096):
    status, out, err, _ = daemon.run(VEC_ADD, "--threads", str(threads), "--launches", str(launches))
    equal(status, 0, out + err)
    return launches * threads


def same(daemon, before):
    """What List and ListMaps show, without what is not there yet again."""

    def plain():
        return (
            [{k: v for k, v in a.items() if k not in ("modules", "recompiled", "processes")} for a in daemon.attachments()],
            [{k: v for k, v in m.items() if k not in ("instances", "carried", "bytes")} for m in daemon.json("map", "list")["maps"]],
        )

    if before is None:
        return plain()
    equal(plain(), before)
    return before


def test_attachments_and_totals():
    with Manager() as daemon:
        daemon.attach()
        ids = daemon.attach("--uid", "12345", "--kernel", "vector*")
        daemon.ctl("detach", str(ids[0]))
        ids = daemon.attach("--exe", VEC_ADD, "--engine", "ptx", "--point", "kretprobe/vectorAdd")
        before, counted = same(daemon, None), 0
        for way in WAYS * 3:
            counted += program(daemon)
            equal([daemon.dump(str(m["id"]))[0]["value"] for m in daemon.json("map", "list")["maps"]], [counted] * 2, way.__name__)
            way(daemon)
            same(daemon, before)
            equal([daemon.dump(str(m["id"]))[0]["value"] for m in daemon.json("map", "list")["maps"]], [counted] * 2, way.__name__)
        again = daemon.attach()
        check(again[0] > ids[0], "an id was given out twice", again)


def test_pid():
    """Which process a number stood for when it was given is known to later daemons: another one that gets the number is not meant."""
    with open("/proc/self/stat", encoding="utf-8") as stat:
        start_time = int(stat.read().rpartition(")")[2].split()[19])
    with Manager() as daemon:
        daemon.attach("--pid", str(os.getpid()))
        for way in WAYS:
            way(daemon)
            daemon.attach("--comm", "x")  # the state is written anew
            with open(daemon.state(), encoding="utf-8") as state:
                check(f'"pid":{os.getpid()},"start_time":{start_time}' in state.read().replace(" ", ""), way.__name__)


def test_processes_count_on():
    """A process that launches all the time, before, while there is no daemon, and after: each launch is counted, once."""
    for options in ((), ("--mirror-period-ms", "0")):
        with Manager(*options) as daemon:
            daemon.attach()
            with Live(daemon) as live, Live(daemon) as idle:
                idle.launch(1)
                for end in (Manager.hand_over, Manager.crash) * 2:
                    live.launch(3)
                    end(daemon)
                    live.launch(4)
                    daemon.start()
                    live.launch(5)
                    equal(daemon.count_of(), (live.launched + idle.launched) * THREADS, f"{end.__name__} {options}")
                    equal(daemon.attachments()[0]["processes"], 2, "processes")
            equal(daemon.count_of(), (live.launched + idle.launched) * THREADS, "in the end")


def test_processes_end_meanwhile():
    with Manager() as daemon:
        daemon.attach()
        processes_end(daemon)


def test_processes_end_while_they_resume():
    """What is copied when a process exits is copied, whatever it is just saying to the next daemon."""
    with Manager("--mirror-period-ms", "0") as daemon:
        daemon.attach()
        for n in range(12):
            lives = [Live(daemon) for _ in range(3)]
            for live in lives:
                live.launch(1)
            daemon.crash_and_start()
            time.sleep(n * 0.003)
            for live in lives:
                live.end()
            equal(daemon.count_of(), 3 * (n + 1) * THREADS, f"round {n}")


def test_excluded_meanwhile():
    """What the next daemon leaves alone does not go on with what it has; a glob is not on the page, so the process asks."""
    with Manager() as daemon:
        daemon.attach()
        with Live(daemon) as live:
            live.launch(2)
            daemon.hand_over()
            daemon.options = [*daemon.options, "--exclude", f"exe={LIVE[:-1]}?"]
            daemon.start()
            live.launch(1)
            check(daemon.count_of() >= 2 * THREADS, "what was counted before")
            equal(daemon.attachments()[0]["processes"], 0, "processes")


def test_modules_and_detach():
    """Modules that were loaded before and after a restart; those of before are told of a detach."""
    with Manager() as daemon:
        ids = daemon.attach()
        with Live(daemon) as live:
            live.launch(1)
            daemon.crash_and_start()
            live.do("load 1")
            live.launch(2, slot=1)
            live.launch(3)
            equal(daemon.count_of(), 6 * THREADS)
            equal(daemon.attachments()[0]["modules"], 2, "modules")
            daemon.restart()
            live.do("unload 1")
            live.launch(1)
            equal(daemon.count_of(), 7 * THREADS)
            equal(daemon.attachments()[0]["modules"], 1, "modules")
            keep = daemon.attach()
            daemon.ctl("detach", str(ids[0]))
            live.launch(5)
            daemon.restart()
            live.do("load 1")
            live.launch(4, slot=1)
            equal(daemon.count_of(), 4 * THREADS, "of the new attachment")
            daemon.ctl("detach", str(keep[0]))


def test_state_stays():
    """Objects of all sorts: what one daemon after the other writes down is what the first did, and what is dumped stays."""

    def state(daemon):
        with open(daemon.state()) as file:
            return {**json.load(file), "starts": 0}

    def dumps(daemon):
        return {m["id"]: daemon.dump(str(m["id"]), "--raw") for m in daemon.json("map", "list")["maps"] if m["kind"] != "ring"}

    with Manager() as daemon:
        for name in "helpers", "log", "metrics", "place", "rings", "two":
            daemon.attach(object=obj(name))
        with Live(daemon) as first, Live(daemon) as second:
            first.launch(1)
            second.launch(1)
            wanted, content = state(daemon), dumps(daemon)
            for way in WAYS * 2:
                way(daemon)
                equal(state(daemon), wanted, way.__name__)
                equal(dumps(daemon), content, way.__name__)
        check("not restored" not in daemon.text(), daemon.text())


def lines_of(text):
    return [json.loads(line) for line in text.splitlines()]


def test_rings_and_logs():
    """
    Each record is read once, whether it was written before, while there is no daemon, or after; a reader that follows goes on. What it is being
    given when the daemon is killed may be lost, so it has all before that.
    """

    def read_all(read):
        while read < live.launched * THREADS:
            line = follower.stdout.readline()
            if not line:
                raise Failed(f"the reader ended: {follower.communicate()[1]}")
            read += len(lines_of(line))
        return read

    with Manager() as daemon:
        daemon.attach(object=obj("rings"))
        daemon.attach(object=obj("log"))
        with Live(daemon) as live:
            follower = daemon.start_ctl("--json", "ring", "read", "gpu", "-f")
            read = 0
            for way in WAYS:
                live.launch(1)
                for name, records in (("standard", 384), ("perf", 256)):
                    equal(len(lines_of(daemon.ctl("--json", "ring", "read", name, "--raw"))), records, f"{name}, {way.__name__}")
                live.launch(1)
                if way is Manager.crash_and_start:
                    read = read_all(read)
                way(daemon)
                live.launch(1)
                for name, records in (("standard", 768), ("perf", 512)):
                    equal(len(lines_of(daemon.ctl("--json", "ring", "read", name, "--raw"))), records, f"{name} after {way.__name__}")
                wait_until(lambda: live.launched and daemon.text().count("goes on with") >= 1, "it goes on")
            read = read_all(read)
            follower.send_signal(signal.SIGINT)
            out, err = follower.communicate(timeout=20)
            equal((follower.returncode, read + len(lines_of(out))), (0, live.launched * THREADS), err)
            check("waiting for the next" in err, err)
        rings = {m["name"]: m for m in daemon.json("map", "list")["maps"] if m["kind"] == "ring"}
        equal((rings["perf"]["written"], rings["perf"]["lost"]), (live.launched * THREADS, 0))


def test_hash_maps():
    """Totals of a hash map, of processes that ended before and after, and what living ones have."""
    with Manager() as daemon:
        daemon.attach(object=example("kernel_counter"))
        with Live(daemon) as live:
            for way in WAYS:
                with Live(daemon) as other:
                    other.launch(2)
                live.launch(1)
                way(daemon)
                live.launch(1)
            equal([e["value"] for e in daemon.dump("threads")], [8 * THREADS], "threads")


def test_names_of_kernels():
    """What the keys of maps stand for is known before any module is loaded again, also by metrics; as long as the daemon is not stopped."""

    def shown(daemon):
        return (
            {k["name"] for k in daemon.json("kernel", "list")["kernels"]},
            daemon.ctl("map", "dump", "launches"),
            sorted(line for line in daemon.ctl("metrics").splitlines() if line.startswith(("gpuprobe_map_launches", "gpuprobe_kernel_info"))),
        )

    with Manager() as daemon:
        daemon.attach("--export", "launches", object=example("kernel_duration"))
        with Live(daemon) as live:
            live.launch(2)
            live.launch(1, "lines")
            before = shown(daemon)
            check("vectorAdd" in before[0] and any("vectorAdd" in line for line in before[2]), before)
            for way in WAYS * 2:
                way(daemon)
                equal(shown(daemon), before, way.__name__)
        equal(shown(daemon)[0], before[0], "of a process that has ended")
        daemon.stop()
        daemon.start()
        equal(daemon.json("kernel", "list")["kernels"], [])


def test_host_programs():
    """They stay attached while there is no daemon, and share their maps with the GPU's."""
    with Manager() as daemon:
        if os.geteuid() or daemon.status()["verify"] != "on" or daemon.status()["missing"]:
            return
        daemon.attach("--kernel", "vectorAdd", object=example("launch_latency"))
        before = same(daemon, None)
        with Live(daemon) as live:
            for way in WAYS:
                live.launch(2)
                way(daemon)
                same(daemon, before)
                live.launch(1)
            check(sum(e["value"]["count"] if isinstance(e["value"], dict) and "count" in e["value"] else 1 for e in daemon.dump(str(before[1][0]["id"]))) > 0)
        daemon.options = [*daemon.options, "--quota-map-bytes", "1"]  # who has more by now keeps it
        daemon.restart()
        same(daemon, before)
        for attachment in daemon.attachments():
            daemon.ctl("detach", str(attachment["id"]))
        equal(daemon.attachments(), [])


def test_states_that_cannot_be_used():
    """One line, and the daemon starts with nothing; what was kept is let go."""
    for text, why in (('{"version":2,', "damaged"), ('{"version":99,"daemon":"9.9"}', "version 99, written by gpuprobed 9.9"), (None, None)):
        with Manager() as daemon:
            daemon.attach()
            program(daemon)
            daemon.crash()
            if text:
                with open(daemon.state(), "w") as state:
                    state.write(text)
            else:
                os.remove(daemon.state())
            daemon.start()
            equal(daemon.attachments(), [])
            if why:
                lines = [line for line in daemon.text().splitlines() if why in line]
                check(len(lines) == 1 and f"starts with nothing attached; the file is kept as {daemon.state()}.refused" in lines[0], daemon.text())
                daemon.aside = ["state.refused"]
                with open(daemon.state() + ".refused") as kept:
                    equal(kept.read(), text)
            daemon.attach()
            equal(daemon.count_of(), 0)
            equal(program(daemon), daemon.count_of())


class Unwritable:
    """While it lasts, no state can be written."""

    def __init__(self, daemon):
        self.new = daemon.state() + ".new"

    def __enter__(self):
        os.mkdir(self.new)

    def __exit__(self, *_):
        os.rmdir(self.new)


def test_numbers_without_state():
    """Daemons that cannot write what they are give out no number again, to programs or to processes."""
    with Manager() as daemon:
        daemon.attach()
        counted = program(daemon)
        with Unwritable(daemon):
            equal(daemon.attach("--uid", "12345"), [2])
            daemon.crash_and_start()
            equal([a["id"] for a in daemon.attachments()], [1])
            equal(daemon.attach("--uid", "12345"), [3])
            counted += program(daemon)  # whose instance is in the totals when the next daemon gives out its first
            lives = []
            for _ in range(3):
                daemon.crash_and_start()
                lives.append(Live(daemon))
                for live in lives:
                    live.launch(1)
                equal(daemon.count_of("1"), counted + sum(live.launched for live in lives) * THREADS)
        daemon.crash_and_start()
        for live in lives:
            live.launch(1)
            live.end()
        equal(daemon.count_of("1"), counted + sum(live.launched for live in lives) * THREADS)


def test_state_is_written_later():
    """What is attached and detached while no state can be written survives as soon as it can be; until then the old one stays whole."""
    with Manager() as daemon:
        equal(daemon.attach(object=obj("two")), [1, 2])
        counted = program(daemon)
        with Unwritable(daemon):
            daemon.ctl("detach", "2")
            daemon.crash_and_start()
            equal([a["id"] for a in daemon.attachments()], [1, 2])
            equal(daemon.count_of(), counted)
            counted += program(daemon)
            daemon.ctl("detach", "2")
            daemon.attach("--uid", "12345")
        daemon.restart()  # the last moment to write it
        equal([a["id"] for a in daemon.attachments()], [1, 3])
        equal(daemon.count_of("1"), counted)
        with Unwritable(daemon):
            daemon.ctl("detach", "1")
            daemon.attach("--uid", "12346")
        wait_until(lambda: daemon.text().count("will survive a restart\n") == 2, "it is written")
        daemon.settle()
        kept = len(daemon.kept)
        daemon.crash_and_start()
        equal([a["id"] for a in daemon.attachments()], [3, 4])
        daemon.settle()
        check(len(daemon.kept) <= kept, "left behind by what was detached:", sorted(daemon.kept), kept)  # what ended just before may not have been gone


def test_start_without_descriptors():
    """A daemon that starts while the system has no descriptors gives up nothing: it ends, and the next one goes on."""
    if not shutil.which("strace"):
        print("no strace")
        return
    with Manager() as daemon, tempfile.TemporaryDirectory() as folder:
        daemon.attach()
        counted = program(daemon)
        with Live(daemon) as live:
            live.launch(2)
            for path in daemon.state(), f"/proc/{live.pid}/stat":
                daemon.crash()
                live.launch(1)
                daemon.program = os.path.join(folder, "gpuprobed")
                with open(daemon.program, "w") as script:
                    script.write(f'#!/bin/sh\nexec strace -D -o /dev/null -P {path} -e trace=openat -e inject=openat:error=ENFILE:when=1 {GPUPROBED} "$@"\n')
                os.chmod(daemon.program, 0o755)
                try:
                    daemon.start()
                    check(False, "started without", path)
                except Failed:
                    equal(daemon.process.returncode, 1, "exit status: " + daemon.text())
                    check("Too many open files in system: left to the next one" in daemon.text(), daemon.text())
                daemon.settle()
                daemon.program = GPUPROBED
                daemon.start()
                live.launch(1)
                equal(daemon.count_of(), counted + live.launched * THREADS, path)


def test_descriptors_that_are_gone():
    """As after a stop that nobody saw; and when systemd has no room for all: what is there goes on."""
    with Manager() as daemon:
        daemon.attach()
        daemon.crash()
        daemon.drop()
        daemon.start()
        equal(daemon.attachments(), [])
        check("its daemon was stopped" in daemon.text(), daemon.text())
    with Manager(store_max=3) as daemon:
        daemon.attach()
        daemon.attach()
        daemon.restart()
        equal(daemon.attachments(), [])
        check("is not restored" in daemon.text(), daemon.text())
        daemon.store_max = 100000
        daemon.attach()
        daemon.restart()
        equal(len(daemon.attachments()), 1)


def test_commands_wait():
    """A command that comes while there is no daemon waits for the next."""
    with Manager() as daemon:
        daemon.attach()
        counted = program(daemon)
        daemon.crash()
        waiting = daemon.start_ctl("--json", "map", "dump", "counter")
        time.sleep(0.2)
        daemon.start()
        out, err = waiting.communicate(timeout=30)
        equal((waiting.returncode, json.loads(out)["entries"][0]["value"]), (0, counted), err)


def kept_at_rest(daemon):
    """How many descriptors are kept once the daemon has folded up what ended processes had."""
    seen = []
    while len(seen) < 5 or len(set(seen[-5:])) > 1:
        time.sleep(0.2)
        daemon.settle()
        seen.append(len(daemon.kept))
    return seen[-1]


def test_manager_hangs():
    """A PID 1 that reads nothing for a while delays nobody, and has missed nothing afterwards; nor can it hold a daemon that ends."""
    with Manager() as daemon:
        daemon.attach()
        daemon.settle()
        of_one = len(daemon.kept) - 2  # but the index, and names of kernels
        counted = program(daemon)
        equal(daemon.count_of(), counted)
        known = kept_at_rest(daemon)
        daemon.hang()
        daemon.attach("--uid", "12345")
        counted += program(daemon)
        equal(len(daemon.attachments()), 2, "attachments")
        equal(len(daemon.kept), known, "kept while it hangs")
        daemon.awake.set()
        wait_until(lambda: len(daemon.kept) >= known + of_one, "it has been told")
        before = same(daemon, None)
        for way in WAYS:
            way(daemon)
            same(daemon, before)
            equal(daemon.dump(str(daemon.json("map", "list")["maps"][0]["id"]))[0]["value"], counted, way.__name__)
        daemon.hang()
        daemon.process.send_signal(signal.SIGTERM)
        equal(daemon.process.wait(timeout=15), 0, "exit status")
        daemon.awake.set()
        daemon.drop()
        daemon.start()


def test_stop_is_final():
    """Nothing is left of what was attached, neither in the next daemon nor in processes; they count for what is attached then."""
    with Manager() as daemon:
        daemon.attach()
        with Live(daemon) as live:
            live.launch(2)
            daemon.stop()
            live.launch(3)
            daemon.start()
            equal(daemon.attachments(), [])
            daemon.attach()
            live.launch(1)
            live.do("load 1")
            live.launch(4, slot=1)
            equal(daemon.count_of(), 4 * THREADS)


def test_stop_is_short():
    """A stop does not go through all that processes have, to tell them: the page says it, and is closed before their connections are."""
    with Manager() as daemon:
        daemon.attach()
        loader = Shim(daemon.directory)
        with open(f"{SOURCE}/tests/targets/vec_add.ptx", "rb") as ptx:
            new, _, reason, _ = loader.image(ptx.read())
        check(new, reason)
        mirror = Shim(daemon.directory, role=MIRROR)
        with open(f"{daemon.directory}/interest", "rb") as page:
            daemon.process.send_signal(signal.SIGTERM)
            try:
                raise Failed(f"a message before the end: {mirror.receive()}")
            except Closed:
                check(os.pread(page.fileno(), 1, 16)[0] & 2, "the page is not closed yet")
        equal(daemon.process.wait(timeout=15), 0, "exit status")
        daemon.drop()
        daemon.start()


if __name__ == "__main__":
    main([value for name, value in list(globals().items()) if name.startswith("test_")])
