# SPDX-License-Identifier: Apache-2.0
"""Stock PyTorch: convolutions, products, sorting, decompositions, random numbers, and a step of training captured as a CUDA graph."""

import hashlib
import os
import sys
import time

start = time.monotonic()
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # one workspace: the same order of sums
try:
    import torch
except ImportError:
    print("skipped: no torch")
    sys.exit(77)
from torch.nn import functional

torch.manual_seed(24)
torch.use_deterministic_algorithms(True, warn_only=True)
torch.backends.cudnn.benchmark = False


def tell(name, *tensors):
    digest = hashlib.sha256(b"".join(tensor.detach().flatten().contiguous().view(torch.uint8).cpu().numpy().tobytes() for tensor in tensors)).hexdigest()
    print(name, *(tuple(tensor.shape) for tensor in tensors), digest[:32], flush=True)
    if name == "randn":
        print(f"first result: {1e3 * (time.monotonic() - start):.1f} ms", file=sys.stderr)


def graph():
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.LayerNorm(512), torch.nn.Linear(512, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x, y = torch.randn(128, 256, device="cuda"), torch.randint(10, (128,), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=False)
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        loss = step()
    for _ in range(5):
        captured.replay()
    tell("graph", loss, *model.parameters())


image, kernel = torch.randn(8, 32, 64, 64, device="cuda"), torch.randn(48, 32, 3, 3, device="cuda")
tell("randn", image)
tell("convolution", functional.conv2d(image, kernel, padding=1))
tell("convolution, half", functional.conv2d(image.half(), kernel.half(), stride=2))
matrix = torch.randn(512, 512, device="cuda")
tell("product", matrix @ matrix.T)
tell("product, bfloat16", matrix.bfloat16() @ matrix.bfloat16())
tell("softmax", functional.softmax(matrix, 1), functional.layer_norm(matrix, (512,)))
tell("sort", *torch.sort(matrix.flatten()))
tell("scan", torch.cumsum(torch.randint(100, (100000,), device="cuda"), 0))
tell("attention", functional.scaled_dot_product_attention(*(torch.randn(2, 4, 128, 64, device="cuda", dtype=torch.float16) for _ in range(3))))
tell("Cholesky", torch.linalg.cholesky(matrix @ matrix.T + 512 * torch.eye(512, device="cuda")))
tell("eigenvalues", torch.linalg.eigvalsh(matrix + matrix.T))
tell("sparse", torch.sparse.mm(torch.round(matrix).to_sparse_csr(), torch.ones(512, 8, device="cuda")))
graph()
