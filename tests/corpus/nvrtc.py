#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles a source with the NVRTC of another CUDA: PTX of its version, without its nvcc.

usage: nvrtc.py LIBNVRTC SOURCE PTX OPTION..."""

import ctypes
import sys


def main(library, source, target, *options):
    nvrtc = ctypes.CDLL(library)
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    with open(source, "rb") as file:
        text = file.read()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, source.encode(), 0, None, None) == 0
    words = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    if nvrtc.nvrtcCompileProgram(program, len(options), words):
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        sys.exit(log.value.decode(errors="replace"))
    nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetPTX(program, text)
    with open(target, "wb") as file:
        file.write(text.value)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
