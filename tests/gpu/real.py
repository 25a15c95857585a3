# SPDX-License-Identifier: Apache-2.0
"""Real code: what it prints is the same bare and probed, at entries, returns and memory instructions."""

import os
import re
import subprocess
import sys

from session import Session, Skipped, expect

# Loads what Triton compiled as PTX, which is the driver's to compile: this is how a PTX-only user of it runs.
TRITON = """
import ctypes, torch, triton, triton.language as tl
@triton.jit
def scale_add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i, mask=i < n)
    b = tl.load(y + i, mask=i < n)
    tl.store(out + i, a * 2 + tl.sqrt(b), mask=i < n)
torch.manual_seed(1)
n = 100000
x, y = torch.rand(n, device="cuda"), torch.rand(n, device="cuda")
out = torch.zeros(n, device="cuda")
kernel = scale_add[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
want = out.clone(); out.zero_()
cuda = ctypes.CDLL("libcuda.so.1")
module, function = ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuModuleLoadData(ctypes.byref(module), kernel.asm["ptx"].encode()) == 0
assert cuda.cuModuleGetFunction(ctypes.byref(function), module, kernel.metadata.name.encode()) == 0
import re
params = len(re.findall(r"\\.param \\.", kernel.asm["ptx"].split(".entry")[1].split(")")[0]))
values = [ctypes.c_uint64(x.data_ptr()), ctypes.c_uint64(y.data_ptr()), ctypes.c_uint64(out.data_ptr()), ctypes.c_int(n)] + [ctypes.c_uint64(0)] * 8
pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
assert cuda.cuLaunchKernel(function, triton.cdiv(n, 1024), 1, 1, 32 * kernel.metadata.num_warps, 1, 1, kernel.metadata.shared, None, pointers, None) == 0
torch.cuda.synchronize()
print(torch.equal(out, want), out.double().sum().item(), params)
"""

JAX = """
import jax, jax.numpy as jnp
x = jax.random.normal(jax.random.PRNGKey(0), (512, 512))
f = jax.jit(lambda x: jnp.tanh(x @ x.T).sum(axis=0) + jnp.sort(x[0]))
print(f(x).sum().item(), jax.grad(lambda x: jnp.sin(x).prod(axis=1).sum())(x).sum().item(), jax.devices()[0].platform)
"""


class RealCode:
    def test_real_programs(self):
        probed = self.benchmarks["real_programs"] = {}
        for name in "library", "groups", "hopper", "memory", "child":
            program = self.program(name)
            bare = subprocess.run([program], capture_output=True, text=True, check=True).stdout
            with Session(self, "--deadline-ms=60000") as session:
                session.attach("memory_histogram", "*", "--engine", "ptx")
                expect(f"{name} with memory probes", session.run_probed(program), bare)
                accesses = probed[f"{name} memory_histogram"] = session.read("accesses")
                if name not in ("child", "library") and not accesses:  # ptxas cannot compile all of library with them (C7600)
                    raise AssertionError(f"{name} with memory probes: nothing was counted: {session.ctl('why').stdout[:500]}")
            for section, count in (
                ("kprobe/*", True),
                ("kretprobe/*", True),
                ("memcapture/*", True),
                ("kprobe/dev:*", False),
            ):  # device functions: none here is called but by pointers
                with Session(self, "--deadline-ms=20000") as session:  # large modules, on a GPU that others use too
                    session.ctl("attach", self.object("counter"), "--point", section)
                    expect(f"{name} with {section}", session.run_probed(program), bare)
                    total = session.read()
                    kernels = session.json("kernel", "list")["kernels"]
                    probed[f"{name} {section}"] = {"count": total, "kernels": len(kernels)}
                    if count and name != "child" and not total:
                        raise AssertionError(f"{name} with {section}: nothing was counted: {session.ctl('why').stdout[:500]}")

    def test_clusters(self):
        """Threads by the id of their cluster, for clusters of two blocks: what the program has worked out on the host."""
        program = self.program("shapes-clusters")
        for engine in "ptx", "sanitizer":
            with Session(self, f"--engine={engine}") as session:
                session.ctl("attach", self.build / "tests/e2e/objects/cluster.bpf.o", "--kernel", "pairs", "--engine", engine)
                process = session.start(program)
                out, err = process.communicate(timeout=120)
                if process.returncode == 77:
                    raise Skipped(out.strip().removeprefix("skipped: "))
                expect(f"{engine}: exit status", (process.returncode, err if process.returncode else ""), (0, ""))
                lines = re.findall(r"^cluster (\d+) (\d+) (\d+): (\d+) threads$", out, re.M)
                want = {int(x) + 8 * int(y) + 64 * int(z): int(threads) for x, y, z, threads in lines}
                expect(f"{engine}: clusters that the program had", len(want), 24)
                entries = session.json("map", "dump", "clusters", "--nonzero")["entries"]
                got = {int(entry["key"]): int(entry["value"]) for entry in entries}
                expect(f"{engine}: threads of each cluster; {session.ctl('why').stdout[:500]}", got, want)

    def test_cluster_in_older_ptx(self):
        """A module of PTX for sm_80 alone holds a program that needs sm_90: on a GPU that has clusters its target is raised."""
        threads, block = 4 * 256, 256
        with Session(self) as session:
            session.ctl("attach", self.build / "tests/e2e/objects/cluster.bpf.o", "--kernel", "vectorAdd")
            session.run(self.program("vec_add_ptx80"), "--threads", threads, "--block", block, "--launches", 2)
            outcomes = session.json("why")["outcomes"]
            if any("needs a GPU of sm_90" in outcome["reason"] for outcome in outcomes):
                raise Skipped("no GPU of sm_90 or newer")
            entries = session.json("map", "dump", "clusters", "--nonzero")["entries"]
            got = {int(entry["key"]): int(entry["value"]) for entry in entries}
            expect(f"threads of each block; {outcomes}", got, {i: 2 * block for i in range(threads // block)})

    def python(self, code, section, module):
        """Runs it bare and probed; its count."""
        self.need_module(module)
        script = self.scratch / f"use_{module}.py"  # Triton reads the source of its kernels
        script.write_text(code)
        settings = {
            "TRITON_CACHE_DIR": str(self.scratch / "triton"),
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            "XLA_FLAGS": "--xla_gpu_autotune_level=0",
        }  # which kernels are chosen does not depend on the weather
        command = [sys.executable, script]
        bare = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **settings})
        with Session(self) as session:
            session.ctl("attach", self.object("counter"), "--point", section)
            ours = subprocess.run(command, capture_output=True, text=True, env={**session.app_env(), **settings})
            count = session.read()
        expect(f"{module}: exit code", (bare.returncode, ours.returncode, bare.stderr[-800:] * (bare.returncode != 0)), (0, 0, ""))
        expect(f"{module}: output", ours.stdout, bare.stdout)
        return count

    def test_triton_as_ptx(self):
        for section in "kprobe/scale_add", "memcapture/scale_add", "kretprobe/scale_add":
            count = self.python(TRITON, section, "triton")
            if count == 0:
                raise AssertionError(f"{section} did not fire")

    def test_jax(self):
        """XLA makes PTX and machine code of it, in process: SASS only, left alone."""
        count = self.python(JAX, "kprobe/*", "jax")
        self.benchmarks["jax_count"] = count
