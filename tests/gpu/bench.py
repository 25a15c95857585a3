# SPDX-License-Identifier: Apache-2.0
"""The benchmarks of the GPU suite. Each checks that the probe fired as often as it had to."""

import json
import re
import statistics
import subprocess
import time

from session import Session, expect

SIZES = [32, 1024, 10240, 102400, 1048576, 16777216]
RING_BYTES = 2 << 30


class Benchmarks:
    def bench_first_load(self):
        """Wall time of the first launch (lazy load, probe and arming in it), bare and ours in turn; nothing cached."""
        bare, ours, second, unmatched = [], [], [], []
        program = self.program("vec_add")

        def first(output):
            return int(re.search(r"first_us=(\d+)", output)[1])

        for _ in range(9):
            bare.append(first(subprocess.run([program, "--threads", "1024"], capture_output=True, text=True, check=True).stdout))
            with Session(self) as session:
                session.attach()
                ours.append(first(session.run(program, "--threads", 1024)))
                expect("the probe fired", session.read(), 1024)
                second.append(first(session.run(program, "--threads", 1024)))
            with Session(self) as session:
                session.attach("counter", "anotherKernel")
                session.run(program, "--threads", 1024)
                unmatched.append(first(session.run(program, "--threads", 1024)))
        figures = self.benchmarks["first_load"] = {"unmatched_us": statistics.median(unmatched)}
        figures.update(
            {
                "bare_us": statistics.median(bare),
                "ours_us": statistics.median(ours),
                "added_us": statistics.median(ours) - statistics.median(bare),
                "all_bare": bare,
                "all_ours": ours,
            }
        )
        figures["second_process_us"] = statistics.median(second)

    def bench_probes(self):
        """Bare, ours and hand-written CUDA for each kind of probe: tests/bench/probes.cu."""
        figures = self.benchmarks["probes"] = {}
        for case, maps in PROBES.items():
            with Session(self) as session:
                several = case in ("both", "lookup") or case.startswith(("sched", "bytes"))
                options = ["--program", f"cuda__{case.removesuffix('_gemm')}*" if several else f"cuda__{case}"]
                if case == "thread":
                    options += ["--threads", max(SIZES)]
                session.ctl("attach", self.timed_object("probes"), *options)
                result = json.loads(session.run(self.program("probes"), case))
                launched = sum(size["threads"] * size["launches"] for size in result["sizes"])
                for name, check in maps.items():
                    got = session.entries(name) if name == "sched_warps" else session.read(name)
                    if not check(got, launched, result):
                        raise AssertionError(f"{case}: map {name} holds {got}; {launched} threads were launched")
                    result[name] = got
                if case == "empty":
                    expect("p_empty is probed", [k["name"] for k in session.json("kernel", "list")["kernels"]], ["p_empty"])
                figures[case] = result

    def bench_ring(self):
        """Events of 32 bytes from every thread, while the ring has room: nobody reads. Written and lost are all of them."""
        figures = self.benchmarks["ring"] = []
        for size in SIZES:
            with Session(self) as session:
                session.ctl("attach", self.timed_object("probes"), "--program", "cuda__ring32", "--ring-size", RING_BYTES)
                result = json.loads(session.run(self.program("probes"), "ring32", "--size", size))["sizes"][0]
                (ring,) = session.json("map", "list")["maps"]
                expect("written + lost", ring["written"] + ring["lost"], result["threads"] * result["launches"])
                figures.append({**result, "written": ring["written"], "lost": ring["lost"]})

    def bench_ring_reader(self):
        """What one core takes out of rings: alone, and through gpuprobectl while all SMs write."""
        alone = subprocess.run([self.build / "daemon/gpuprobed/ring-rate"], env=self.tool_env(), capture_output=True, text=True, timeout=120)
        figures = self.benchmarks["ring_reader"] = {"consumer_alone": alone.stdout.strip().splitlines()}
        with Session(self) as session:
            session.ctl("attach", self.timed_object("probes"), "--program", "cuda__ring32", "--ring-size", 1 << 30)
            program = session.start(self.program("probes"), "ring32", "--size", 1048576, "--rounds", 31)
            start = time.monotonic()
            reader = subprocess.Popen(
                [self.build / "ctl/gpuprobectl", f"--session={session.name}", "ring", "read", "events", "--raw", "-f"],
                env=self.tool_env(),
                stdout=subprocess.PIPE,
            )
            lines, last = 0, start
            while time.monotonic() < start + 10:
                block = reader.stdout.read1(1 << 20)
                if block:
                    lines += block.count(b"\n")
                    last = time.monotonic()
            reader.terminate()
            reader.stdout.close()
            reader.wait(10)
            program.communicate(timeout=60)
            figures["gpuprobectl_records_per_s"] = round(lines / (last - start))


def exactly(got, launched, result):
    return got == launched


# What the maps of a case hold in the end. The timer is sampled, a table that is updated holds a thread's number.
PROBES = {
    "empty": {},
    "entry": {"entries": exactly},
    "return": {"returns": exactly},
    "both": {"both_entries": exactly, "both_returns": exactly},
    "globaltimer": {"ticks": lambda got, launched, result: got > 0},
    "lookup": {"table_hits": lambda got, launched, result: got == result["checked_threads"]},
    "update": {"updated": lambda got, launched, result: 1 <= got <= max(SIZES)},
    "spread": {"spread": lambda got, launched, result: got >= sum(range(1, 65537))},
    "thread": {"threads": exactly},
    "hash1": {"hash1": exactly},
    "hash256": {"hash256": exactly},
    "hash1m": {"hash1m": exactly},
    "memory": {"accesses": lambda got, launched, result: got == 3 * launched},
    "sched": {"sched_warps": lambda got, launched, result: got == max(SIZES) // 32},
    "bytes": {"bytes_moved": lambda got, launched, result: got == 12 * launched},
    # a thread of the product loads 8 floats for each of 64 tiles, and stores 4
    "sched_gemm": {"sched_warps": lambda got, launched, result: got == result["sizes"][0]["threads"] // 32},
    "bytes_gemm": {"bytes_moved": lambda got, launched, result: got == (64 * 8 + 4) * 4 * launched},
}
