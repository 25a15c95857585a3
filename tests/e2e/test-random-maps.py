#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Programs with a map of each kind and values and keys at random, in processes that come, go, are killed, and load their modules again, under a daemon that is restarted and killed:
what is in the maps is what a model of the threads says.

    test-random-maps.py BUILD [FIRST [NUMBER]]    others than the seeds below; a failure names its seed
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile

from harness import BUILD, CTL, GPUPROBED, SHIM, SIM, SKIP, SOURCE, check, equal, need
from live import LIVE, Live
from manager import Manager

need(GPUPROBED, CTL, SHIM, LIVE, os.path.join(SIM, "libcuda.so.1"))
CLANG = shutil.which("clang-19")
SEEDS = 6
BLOCK = 64  # threads
SLOTS = 0, 1  # modules of a process
THREADS = 100  # --threads
INTEGERS = {"__u64": (64, False), "__s64": (64, True), "__u32": (32, False), "__s32": (32, True), "__u16": (16, False), "__u8": (8, False)}
KINDS = {
    "sum": ("BPF_MAP_TYPE_ARRAY", "BPF_MAP_TYPE_GPU_ARRAY_MAP"),
    "array": ("BPF_MAP_TYPE_ARRAY", "BPF_MAP_TYPE_GPU_ARRAY_MAP", "BPF_MAP_TYPE_GPU_ARRAY_HOST_MAP"),
    "percpu": ("BPF_MAP_TYPE_PERCPU_ARRAY",),
    "hash": ("BPF_MAP_TYPE_HASH", "BPF_MAP_TYPE_GPU_HASH_MAP", "BPF_MAP_TYPE_LRU_HASH"),
    "percpu_hash": ("BPF_MAP_TYPE_PERCPU_HASH", "BPF_MAP_TYPE_LRU_PERCPU_HASH"),
    "threads": ("BPF_MAP_TYPE_PERGPUTD_ARRAY_MAP", "BPF_MAP_TYPE_PERGPUTD_ARRAY_HOST_MAP"),
    "variable": (None,),
}


def wrap(kind, value):
    bits, signed = INTEGERS[kind]
    value %= 1 << bits
    return value - (1 << bits) if signed and value >> (bits - 1) else value


class Map:
    """One map of a program: its source, and what threads do to it."""

    def __init__(self, choose, kind):
        self.name = f"map_{kind}"
        self.kind = kind
        self.type = choose.choice(KINDS[self.kind])
        width = choose.choice(["__u64", "__u32"]) if kind == "sum" else None  # then modules and SMs have copies of their own
        self.members = {f"m{i}": width or choose.choice(list(INTEGERS)[:4]) for i in range(choose.randint(1, 5))}
        # what a thread adds: a + b * (thread % c)
        self.adds = {
            m: (choose.choice([1, 3, -1, 1 << 31, choose.getrandbits(40)]), choose.choice([0, 1, 1 << 33]), choose.choice([2, 5, 64])) for m in self.members
        }
        self.text = self.kind in ("array", "hash", "threads") and choose.random() < 0.5  # which all write
        self.start = {m: choose.choice([1, 7, 0x7FFFFFFF]) if self.kind == "variable" else 0 for m in self.members}
        self.size = choose.choice([1, 2, 7, 33])
        self.keys = [choose.choice(list(INTEGERS)) for _ in range(choose.randint(1, 3))]  # of a hash
        self.packed = choose.random() < 0.5
        self.first = choose.choice([0, 0, 5])  # threads below do nothing

    def is_hash(self):
        return self.kind in ("hash", "percpu_hash")

    def source(self):
        """Declarations, and what stands in the program."""
        members = " ".join(f"{kind} {name};" for name, kind in self.members.items())
        lines = [f"struct {self.name}_value {{ {members} {'char text[8];' if self.text else ''} }};"]
        if self.kind == "variable":
            lines.append(f"struct {self.name}_value {self.name} = {{ {', '.join(map(str, self.start.values()))} }};")
        else:
            if self.is_hash():
                members = " ".join(f"{kind} k{i};" for i, kind in enumerate(self.keys))
                lines.append(f"struct {self.name}_key {{ {members} }} {'__attribute__((packed))' if self.packed else ''};")
            key = f"struct {self.name}_key" if self.is_hash() else "__u32"
            lines.append(
                f"struct {{ __uint(type, {self.type}); __uint(max_entries, {64 if self.is_hash() else self.size}); __type(key, {key}); "
                f'__type(value, struct {self.name}_value); }} {self.name} SEC(".maps");'
            )
        body = [f"\tif (t >= {self.first}) {{"]
        if self.kind == "variable":
            body.append(f"\t\tstruct {self.name}_value *v = &{self.name};")
        elif self.is_hash():
            body += [
                f"\t\tstruct {self.name}_value none = {{}}, *v;",
                f"\t\tstruct {self.name}_key key;",
                "\t\t__builtin_memset(&key, 0, sizeof(key));",
                *(f"\t\tkey.k{i} = ({kind})(t % {self.size} * {i + 1});" for i, kind in enumerate(self.keys)),
                f"\t\tv = bpf_map_lookup_elem(&{self.name}, &key);",
                f"\t\tif (!v) {{\n\t\t\tbpf_map_update_elem(&{self.name}, &key, &none, BPF_NOEXIST);\n\t\t\tv = bpf_map_lookup_elem(&{self.name}, &key);\n\t\t}}",
            ]
        else:
            body += [f"\t\t__u32 key = t % {self.size};", f"\t\tstruct {self.name}_value *v = bpf_map_lookup_elem(&{self.name}, &key);"]
        body.append("\t\tif (v) {")
        for name, (a, b, c) in self.adds.items():
            operand = f"({self.members[name]})({a}ll + {b}ll * (__s64)(t % {c}))"
            body.append(f"\t\t\tv->{name} += {operand};" if self.kind == "threads" else f"\t\t\t__sync_fetch_and_add(&v->{name}, {operand});")
        if self.text:
            body.append(f"\t\t\tv->text[0] = 'a' + t % {self.size} % 26;")
        return "\n".join(lines), "\n".join([*body, "\t\t}\n\t}"])

    def key(self, thread):
        if self.kind == "threads":
            return thread % self.size, thread
        return tuple(wrap(kind, thread % self.size * (i + 1)) for i, kind in enumerate(self.keys)) if self.is_hash() else thread % self.size

    def run(self, state, threads):
        """What a launch does to what one process has of the map."""
        for thread in range(self.first, min(threads, THREADS) if self.kind == "threads" else threads):
            value = state.setdefault(0 if self.kind == "variable" else self.key(thread), dict.fromkeys(self.members, 0))
            for name, (a, b, c) in self.adds.items():
                value[name] += a + b * (thread % c)

    def merged(self, states):
        sums = {0: dict(self.start)} if self.kind == "variable" else {}
        for state in states:
            for key, value in state.items():
                old = sums.get(key, {})
                sums[key] = {name: old.get(name, 0) + n for name, n in value.items()}
        for key, value in sums.items():
            value.update({name: wrap(self.members[name], n) for name, n in value.items()})
            if self.text:
                value["text"] = chr(97 + (key if self.kind == "array" else key[0]) % 26)
        return {key: value for key, value in sums.items() if any(value.values())}

    def shown(self, daemon):
        """The same out of a dump."""
        result = {}
        for entry in daemon.dump(".data" if self.kind == "variable" else self.name, "--nonzero"):
            values = [v[self.name] if self.kind == "variable" else v for v in entry.get("values", [entry.get("value")])]
            total = {name: wrap(kind, sum(v[name] for v in values)) for name, kind in self.members.items()}
            if self.text:
                total["text"] = values[0]["text"]
            key = tuple(entry["key"].values()) if self.is_hash() else (entry["key"], entry["thread"]) if self.kind == "threads" else entry["key"]
            check(key not in result, self.name, key, "comes twice")
            if any(total.values()):
                result[key] = total
        return result


def compile_maps(maps, path):
    parts = [m.source() for m in maps]
    source = "\n".join(
        [
            "#include <linux/bpf.h>",
            "#include <bpf/bpf_helpers.h>",
            '#include "gpuprobe.bpf.h"',
            *(declarations for declarations, _ in parts),
            'SEC("kprobe/vectorAdd")',
            "int cuda__random(void *ctx)",
            "{",
            "\t__u64 t, block, size, unused;",
            "",
            "\tbpf_get_block_idx(&block, &unused, &unused);",
            "\tbpf_get_block_dim(&size, &unused, &unused);",
            "\tbpf_get_thread_idx(&t, &unused, &unused);",
            "\tt += block * size;",
            *(body for _, body in parts),
            "\treturn 0;",
            "}",
            'char LICENSE[] SEC("license") = "GPL";',
            "",
        ]
    )
    multiarch = subprocess.run(["uname", "-m"], capture_output=True, text=True, check=True).stdout.strip() + "-linux-gnu"
    done = subprocess.run(
        [CLANG, "-O2", "-g", "-target", "bpf", "-fwrapv", f"-I/usr/include/{multiarch}", f"-I{SOURCE}/proto", "-x", "c", "-c", "-", "-o", path],
        input=source,
        capture_output=True,
        text=True,
    )
    equal(done.returncode, 0, done.stderr)


class Process:
    def __init__(self, daemon, choose, maps):
        self.maps = maps
        self.states = {m: {} for m in maps}
        self.live = Live(
            daemon,
            GPUPROBE_SIM_THREADS=str(choose.choice([1, 4, 8])),
            GPUPROBE_SIM_WARPS=choose.choice(["", "whole"]),
            GPUPROBE_SIM_TURN=str(choose.choice([1, 7, 1000])),
            GPUPROBE_SIM_SEED=str(choose.randint(0, 1000)),
        )
        self.live.do("load 1")

    def launch(self, choose):
        blocks, count = choose.choice([1, 2, 4]), choose.choice([1, 2])
        self.live.do(f"blocks {blocks}")
        self.live.do(f"launch {choose.choice(SLOTS)} vectorAdd {count}")
        for m in self.maps:
            for _ in range(count):
                m.run(self.states[m], blocks * BLOCK)

    def reload(self, choose):
        slot = choose.choice(SLOTS)
        self.live.do(f"unload {slot}")
        self.live.do(f"load {slot}")

    def end(self, kill):
        if kill:
            self.live.process.kill()
        self.live.process.communicate(timeout=30)


def try_seed(seed, folder):
    choose = random.Random(seed)
    maps = [Map(choose, kind) for kind in KINDS]
    path = os.path.join(folder, "random.bpf.o")
    compile_maps(maps, path)
    gone, live, steps = [], [], []

    def compare(daemon):
        for m in maps:
            equal(m.shown(daemon), m.merged([p.states[m] for p in gone + live]), f"{m.name}, after {steps}")

    with Manager(*choose.choice([(), ("--mirror-period-ms=0",), ("--mirror-period-ms=10",)])) as daemon:
        daemon.attach("--threads", str(THREADS), object=path)
        for _ in range(choose.randint(5, 10)):
            step = choose.choice(["start", "launch", "launch", "launch", "reload", "reload", "end", "kill", "restart", "crash"]) if live else "start"
            steps.append(step)
            process = choose.choice(live) if live else None
            if step == "start":
                live.append(Process(daemon, choose, maps))
                live[-1].launch(choose)
            elif step == "launch":
                process.launch(choose)
            elif step == "reload":
                process.reload(choose)
            elif step in ("end", "kill"):
                if step == "kill":
                    compare(daemon)  # by which all is copied
                process.end(step == "kill")
                live.remove(process)
                gone.append(process)
            elif step == "restart":
                daemon.restart()
            else:
                daemon.crash()
                process.launch(choose)
                daemon.start()
            if choose.random() < 0.5:
                compare(daemon)
        for process in live:
            process.end(False)
        compare(daemon)


def main():
    first, number = int(sys.argv[2]) if len(sys.argv) > 2 else 0, int(sys.argv[3]) if len(sys.argv) > 3 else SEEDS
    failed = 0
    if not CLANG:
        print("skipped: no clang-19")
        sys.exit(SKIP)
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + number):
            try:
                try_seed(seed, folder)
            except Exception as error:
                failed += 1
                print(f"FAILED seed {seed}: {type(error).__name__} {error}", flush=True)
    print(f"{number} seeds, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
