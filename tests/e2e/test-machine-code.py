#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Twins from machine code through the daemon: what a shim gets for an image without PTX, what `why` says of it, and on which engine. No GPU: the shim is the
test (wire.py), as the CPU driver runs no machine code."""

import os
import struct
import subprocess
import tempfile

from harness import COUNTER, VEC_ADD, Daemon, check, equal, main, need
import wire

NVCC = os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin/nvcc")
SOURCE = """
__device__ int total;
__global__ void vectorAdd(const float *a, float *b, int n) { int i = threadIdx.x; if (i >= n) return; b[i] = a[i] + atomicAdd(&total, 1); }
__global__ void other(float *b) { *b = 1; }
"""
need(COUNTER, VEC_ADD, NVCC)
ADD = "vectorAdd(float const*, float*, int)"


def compiled(*options, kind="-cubin"):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.cu")
        with open(path, "w", encoding="ascii") as file:
            file.write(SOURCE)
        subprocess.run([NVCC, kind, *options, "-o", path + ".out", path], check=True, capture_output=True)
        with open(path + ".out", "rb") as file:
            return file.read()


def table(image):
    """(variables, kernels with a block) of proto/twin.h."""
    size = struct.unpack_from("<Q", image, 8)[0] + 16
    magic, version, variables, kernels, _, _ = struct.unpack_from("<6I", image, size)
    equal((magic, version), (0x54525047, 2))
    return variables, kernels


def ask(daemon, image, kind=wire.CUBIN):
    shim = wire.Shim(daemon.directory)
    try:
        return shim.image(image, kind)
    finally:
        shim.close()


def outcomes(daemon):
    return {(one["outcome"], one["engine"], one["demangled"] or one["kernel"]): one["reason"] for one in daemon.why()}


def test_engines():
    cubin = compiled("-arch=sm_90")
    with Daemon("--engine=auto") as daemon:
        daemon.attach("--kernel", "vectorAdd")
        new, module, reason, slots = ask(daemon, cubin)
        check(new and module, reason)
        equal(table(new), (1, 0))
        equal([kind for _, _, kind in slots], [wire.DATA])
        check(slots[0][1].encode() in new)
        check(("probed", "machine code", ADD) in outcomes(daemon), outcomes(daemon))
        # PTX comes first, where there is some
        both = compiled("-gencode", "arch=compute_90,code=[sm_90,compute_90]", kind="-fatbin")
        new, _, reason, _ = ask(daemon, both, wire.FATBIN)
        check(new, reason)
        check(("probed", "ptx", ADD) in outcomes(daemon), outcomes(daemon))
        # another architecture than those that have run
        new, _, reason, _ = ask(daemon, compiled("-arch=sm_80"))
        check(not new)
    with Daemon("--engine=ptx") as daemon:
        daemon.attach("--kernel", "vectorAdd")
        new, _, reason, _ = ask(daemon, cubin)
        check(not new and reason == "no PTX for sm_90 in this image: SASS only", reason)


def test_rules():
    """One image, processes with different engines: each gets its own."""
    cubin = compiled("-arch=sm_90")
    with Daemon("--engine=ptx:uid=4294967290", "--engine=auto") as daemon:
        daemon.attach("--kernel", "vectorAdd")
        check(ask(daemon, cubin)[0])
    with Daemon(f"--engine=ptx:uid={os.getuid()}", "--engine=auto") as daemon:
        daemon.attach("--kernel", "vectorAdd")
        check(not ask(daemon, cubin)[0])


def test_attachments():
    """An attachment that is for PTX alone, and one that is not, mean one kernel."""
    cubin = compiled("-arch=sm_90")
    with Daemon("--engine=auto") as daemon:
        daemon.attach("--kernel", "vectorAdd", "--engine=ptx")
        new, _, reason, _ = ask(daemon, cubin)
        check(not new and "those of --engine=ptx, need PTX" in reason, reason)
        daemon.attach("--kernel", "vectorAdd")
        new, _, reason, slots = ask(daemon, cubin)
        check(new, reason)
        equal(len(slots), 1)


if __name__ == "__main__":
    main([value for name, value in list(globals().items()) if name.startswith("test_")])
