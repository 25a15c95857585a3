# SPDX-License-Identifier: Apache-2.0
"""CuPy: kernels that it compiles by NVRTC while it runs, CUB, cuFFT, cuSPARSE, cuSOLVER, random numbers."""

import hashlib
import sys
import time

start = time.monotonic()
try:
    import cupy
    import cupyx.scipy.sparse
except ImportError:
    print("skipped: no cupy")
    sys.exit(77)

SOURCE = r"""
extern "C" __global__ void mix(const unsigned *in, unsigned *out, int count)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < count)
		out[i] = in[i] * 2654435761u ^ in[count - 1 - i] >> 7;
}
"""


def tell(name, array):
    print(name, array.shape, hashlib.sha256(cupy.asnumpy(array).tobytes()).hexdigest()[:32], flush=True)
    if name == "raw kernel":
        print(f"first result: {1e3 * (time.monotonic() - start):.1f} ms", file=sys.stderr)


words = cupy.arange(100003, dtype=cupy.uint32)
out = cupy.zeros_like(words)
cupy.RawKernel(SOURCE, "mix")((391,), (256,), (words, out, cupy.int32(100003)))
tell("raw kernel", out)
tell("element by element", cupy.ElementwiseKernel("uint32 x, uint32 y", "uint32 z", "z = x * 31 + (y >> 3)", "harmless_mix")(words, out))
tell("sort", cupy.sort(out))
tell("unique", cupy.unique(out % 1000))
tell("scan", cupy.cumsum(out.astype(cupy.uint64)))
values = (out % 1001).astype(cupy.float32).reshape(-1)[:100000] - 500
tell("FFT", cupy.fft.rfft2(values[: 96 * 1000].reshape(96, 1000)))
square = values[: 256 * 256].reshape(256, 256)
tell("product", square @ square.T)
tell("solve", cupy.linalg.solve(square + 5000 * cupy.eye(256, dtype=cupy.float32), values[:256]))
tell("sparse", cupyx.scipy.sparse.csr_matrix(square * (square > 400)) @ cupy.ones((256, 4), dtype=cupy.float32))
tell("random", cupy.random.RandomState(25).randint(0, 1 << 30, 10000))
