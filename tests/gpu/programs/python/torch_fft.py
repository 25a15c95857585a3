# SPDX-License-Identifier: Apache-2.0
"""Stock PyTorch: FFTs, whose kernels cuFFT loads while the program runs."""

import sys
import time

start = time.monotonic()
try:
    import torch
except ImportError:
    print("skipped: no torch")
    sys.exit(77)

torch.manual_seed(23)
for shape in (64, 512, 512), (8, 1021), (4, 100, 102):
    x = torch.randn(*shape, device="cuda")
    spectrum = torch.fft.rfft2(x) if len(shape) == 3 else torch.fft.fft(x)
    total = float(spectrum.abs().sum())
    if shape[0] == 64:
        print(f"first result: {1e3 * (time.monotonic() - start):.1f} ms", file=sys.stderr)
    back = torch.fft.irfft2(spectrum, s=shape[1:]) if len(shape) == 3 else torch.fft.ifft(spectrum)
    print(shape, total.hex(), float(back.abs().sum()).hex())
