# SPDX-License-Identifier: Apache-2.0
"""Twins in a program that runs: when an attach takes effect, how long a launch waits for it, updated graphs, launches that overlap, cycles."""

import shutil
import statistics
import subprocess
import threading
import time

from sass import Worker, ratio
from session import Session, expect
from times import kernels_of
from tracing import Trace

THREADS = 32  # of a launch of `work`
NODES = 1000
OVERLAPPING = 1000  # launches in each stream


def spin_ns(stream, i):
    """As twins.c has it."""
    return 20000 + 2000 * ((i * 7 + stream * 13) % 64)


def device_memory():
    """MiB of the GPU's memory in use; None where there is no GPU."""
    if not shutil.which("nvidia-smi"):
        return None
    return subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader"], capture_output=True, text=True).stdout


class Paced:
    """A command that goes on for some time, while something else is done."""

    def __init__(self, worker, command):
        self.worker, self.command = worker, command

    def __enter__(self):
        self.thread = threading.Thread(target=lambda: setattr(self, "launches", self.worker.ask(self.command)))
        self.thread.start()
        time.sleep(0.2)
        return self

    def __exit__(self, *_):
        self.thread.join()


def effect(launches, counted, told_ns):
    """Of launches of which the last ones were counted: when the first of them began after `told_ns`, and the longest wait around then."""
    first = launches[len(launches) - counted] if counted else None
    before = [done for begin, _, done in launches if begin < told_ns - 100e6]
    around = [done for begin, _, done in launches if told_ns - 100e6 <= begin]
    return {
        "effect_ms": (first[0] - told_ns) / 1e6 if first else None,
        "longest_before_ms": max(before) / 1e6,
        "longest_ms": max(around) / 1e6,
        "longest_call_ms": max(call for begin, call, _ in launches if begin >= told_ns - 100e6) / 1e6,
    }


class TwinCode:
    def twins(self, session=None):
        return Worker(self, [self.program("twins")], session)

    def live_effect(self, command, threads, rounds):
        """Attaches while launches go on, `rounds` times; the first time nothing is cached."""
        rows = []
        with Session(self) as session, self.twins(session) as worker:
            worker.ask(f"graph {NODES}")
            for _ in range(rounds):
                with Paced(worker, f"{command} 700") as paced:
                    attached = session.attach("counter", "work", "--pid", worker.pid)
                    told_ns = time.monotonic_ns()
                counted = session.read()
                rows.append({**effect(paced.launches, -(-counted // threads), told_ns), "launches": len(paced.launches), "counted": counted / threads})
                if not counted:
                    raise AssertionError(f"nothing was counted: {rows} {session.ctl('why', check=False).stdout[:600]}")
                with Paced(worker, f"{command} 400") as paced:
                    session.ctl("detach", *attached)
                rows[-1]["longest_at_detach_ms"] = max(done for _, _, done in paced.launches) / 1e6
        keys = ("effect_ms", "longest_before_ms", "longest_ms", "longest_call_ms", "longest_at_detach_ms")
        return {"first": rows[0], "median": {key: round(statistics.median(row[key] for row in rows[1:]), 3) for key in keys}, "all": rows}

    def bench_twin_effect(self):
        """From the return of attach until a launch counts, in a program that launches and waits once a millisecond; and the longest launch."""
        self.benchmarks["twin_effect"] = self.live_effect("pace", THREADS, 12)

    def bench_twin_effect_graph(self):
        """The same with a graph of 1,000 nodes."""
        self.benchmarks["twin_effect_graph"] = self.live_effect("replay", THREADS * NODES, 6)

    def bench_twin_update(self):
        """A graph that is updated as a whole before each launch, bare and probed in turns."""
        count, rounds, figures = 500, 9, {}
        for nodes in 1, 20, 200:
            with Session(self) as session, self.twins() as bare, self.twins(session) as ours:
                session.attach("counter", "work", "--pid", ours.pid)
                for worker in bare, ours:
                    worker.ask(f"graph {nodes}")
                    worker.ask("replay 300")
                before = session.read()
                times = {"bare": [], "ours": []}
                for _ in range(rounds):
                    times["bare"].append(bare.ask(f"update {count}"))
                    times["ours"].append(ours.ask(f"update {count}"))
                counted = (session.read() - before) / (THREADS * nodes * count * rounds)
                figures[nodes] = {"ratio": ratio(times["ours"], times["bare"]), "counted": counted, **times}
        self.benchmarks["twin_update"] = figures

    def bench_twin_detached(self):
        """Launches of a program that was probed and is no more, and of one that never was, in turns."""
        with Session(self) as session, self.twins() as bare, self.twins(session) as ours:
            attached = session.attach("counter", "work", "--pid", ours.pid)
            ours.ask("pace 200")
            if not session.read():
                raise AssertionError("nothing was counted")
            session.ctl("detach", *attached)
            times = {"bare": [], "ours": []}
            for worker in bare, ours:
                worker.ask("loop 20000")
            for _ in range(15):
                times["bare"].append(bare.ask("loop 20000"))
                times["ours"].append(ours.ask("loop 20000"))
        self.benchmarks["twin_detached"] = {"ratio": ratio(times["ours"], times["bare"]), **times}

    def test_twin_cycles(self):
        """1,000 times attached and detached: no count is wrong, nothing grows."""
        with Session(self) as session, self.twins(session) as worker:
            counts, before = [], None
            for cycle in range(1000):
                attached = session.attach("counter", "work", "--pid", worker.pid)
                launched = len(worker.ask("pace 30"))
                counts.append((session.read() / THREADS, launched))
                session.ctl("detach", *attached)
                worker.ask("pace 2")
                if cycle == 100:
                    before = {"device": device_memory(), **worker.host()}
            after = {"device": device_memory(), **worker.host()}
        self.benchmarks["twin_cycles"] = {"before": before, "after": after, "cycles that counted": sum(counted > 0 for counted, _ in counts)}
        expect("cycles with a wrong count", [pair for pair in counts if pair[0] != int(pair[0]) or pair[0] > pair[1]], [])
        expect("most cycles counted", sum(counted > 0 for counted, _ in counts) > 500, True)
        expect("descriptors", after["descriptors"], before["descriptors"])
        expect("device memory", after["device"], before["device"])
        if after["rss"] - before["rss"] > 2048:
            raise AssertionError(f"host memory grew from {before['rss']} to {after['rss']} KiB")

    def test_twin_overlap(self):
        """Launches of one kernel that overlap in two streams: the duration of each is CUPTI's, within 2 us and what the kernel's start costs."""
        with Session(self) as session, self.twins(session) as worker:
            session.ctl("attach", self.timed_object("durations"), "--pid", worker.pid)
            known = self.warm(session, worker)
            with Trace(self, session, worker, "--gpu=cupti", "-e", "launch") as trace:
                worker.ask(f"overlap {OVERLAPPING}")
            ours = [entry["value"] for entry in sorted(self.launches(session), key=lambda entry: int(entry["key"])) if entry["key"] not in known]
            theirs = [item for item in kernels_of(trace.items()) if "spin" in item["kernel"]]
        figures = self.benchmarks["twin_overlap"] = {"ours": len(ours), "cupti": len(theirs)}
        theirs.sort(key=lambda item: item.get("flow", 0))
        expect("launches", (len(ours), len(theirs)), (2 * OVERLAPPING, 2 * OVERLAPPING))
        durations = [int(times["end"]) - int(times["begin"]) for times in ours]
        mixed = [i for i, took in enumerate(durations) if not 0 <= took - spin_ns(i % 2, i // 2) < 4000]
        apart = sorted(item["dur_ns"] - took for item, took in zip(theirs, durations))
        figures.update({"cupti_minus_ours_ns": {"least": apart[0], "median": apart[len(apart) // 2], "99%": apart[-len(apart) // 100], "most": apart[-1]}})
        figures["within_2_us_of_median"] = sum(abs(value - apart[len(apart) // 2]) <= 2000 for value in apart)
        expect("launches whose duration is another's", mixed, [])

    def launches(self, session):
        return session.json("map", "dump", "launches", "--nonzero")["entries"]

    def warm(self, session, worker):
        """Launches until each one counts. Returns those of until then."""
        deadline, before = time.monotonic() + 10, 0
        while time.monotonic() < deadline:
            worker.ask("overlap 4")
            known = {entry["key"] for entry in self.launches(session)}
            if len(known) == before + 8:
                return known
            before = len(known)
        raise AssertionError(f"{before} launches counted in 10 s")
