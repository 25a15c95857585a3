#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the PTX that Triton makes of some kernels, without a GPU, as PTX 8.8 (which ptxas 12.9 and later take). Argument: the folder
to write to."""

import os
import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def vector_add(a, b, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(out + i, tl.load(a + i, mask=mask) + tl.load(b + i, mask=mask), mask=mask)


@triton.jit
def softmax(out, values, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(values + row * stride + i, mask=i < columns, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out + row * stride + i, x / tl.sum(x, axis=0), mask=i < columns)


@triton.jit
def matmul(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, k, BK):
        left = tl.load(a + rm[:, None] * k + (start + rk)[None, :])
        right = tl.load(b + (start + rk)[:, None] * n + rn[None, :])
        total += tl.dot(left, right)
    tl.store(c + rm[:, None] * n + rn[None, :], total.to(tl.float16), mask=(rm < m)[:, None] & (rn < n)[None, :])


@triton.jit
def helper(x, y):
    return tl.where(x > y, x * 2, y - x)


@triton.jit
def scans_and_atomics(values, counts, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(values + i, mask=i < n, other=0)
    tl.atomic_add(counts + (x & 255), 1, mask=i < n)
    total = tl.cumsum(x, 0)
    if tl.program_id(0) == 0:
        tl.device_print("total", total)
    tl.device_assert(total >= 0, 'a } ret; "quoted" assertion')
    tl.store(out + i, tl.sort(helper(total, x)), mask=i < n)
    seen = tl.atomic_cas(counts, 0, 1)
    while seen != 0:
        seen = tl.atomic_cas(counts, 0, 1)


@triton.jit
def described(pointer, out, m, n, BM: tl.constexpr, BN: tl.constexpr):
    """Tensor descriptors: TMA from sm_90 on."""
    source = tl.make_tensor_descriptor(pointer, shape=[m, n], strides=[n, 1], block_shape=[BM, BN])
    target = tl.make_tensor_descriptor(out, shape=[m, n], strides=[n, 1], block_shape=[BM, BN])
    where = tl.program_id(0) * BM
    target.store([where, 0], source.load([where, 0]) * 2)


KERNELS = [
    (vector_add, {"a": "*fp32", "b": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}, {"BLOCK": 1024}, {}),
    (softmax, {"out": "*fp32", "values": "*fp32", "stride": "i32", "columns": "i32", "BLOCK": "constexpr"}, {"BLOCK": 2048}, {}),
    (
        matmul,
        {"a": "*fp16", "b": "*fp16", "c": "*fp16", "m": "i32", "n": "i32", "k": "i32", "BM": "constexpr", "BN": "constexpr", "BK": "constexpr"},
        {"BM": 128, "BN": 128, "BK": 64},
        {"num_warps": 4, "num_stages": 3},
    ),
    (scans_and_atomics, {"values": "*i32", "counts": "*i32", "out": "*i32", "n": "i32", "BLOCK": "constexpr"}, {"BLOCK": 256}, {"debug": True}),
    (described, {"pointer": "*fp32", "out": "*fp32", "m": "i32", "n": "i32", "BM": "constexpr", "BN": "constexpr"}, {"BM": 64, "BN": 64}, {}),
]


def main():
    folder = sys.argv[1]
    for capability in 75, 80, 90, 100, 120:
        for kernel, signature, constants, options in KERNELS:
            name = f"{kernel.__name__}.{capability}"
            if kernel is described and capability < 90:
                continue
            compiled = triton.compile(
                ASTSource(fn=kernel, signature=signature, constexprs=constants),
                target=GPUTarget("cuda", capability, 32),
                options={"ptx_version": 88, **options},
            )
            with open(os.path.join(folder, name + ".ptx"), "w") as file:
                file.write(compiled.asm["ptx"])
            print(name, len(compiled.asm["ptx"]))


if __name__ == "__main__":
    main()
