# SPDX-License-Identifier: Apache-2.0
"""Programs in the kernel: verified by its verifier, run by BPF_PROG_TEST_RUN, as raw tracepoints on numbers that the caller gives.

Maps are those of bpf-run that the kernel has, too; what is in them is shown as bpf-run shows it.
"""

import ctypes
import errno
import os
import struct

MAP_CREATE, MAP_LOOKUP, MAP_NEXT_KEY, PROG_LOAD, TEST_RUN = 0, 1, 4, 5, 10  # commands of bpf(2)
SYSCALL = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
HASH, PERCPU_HASH, PERCPU_ARRAY, RAW_TRACEPOINT = 1, 5, 6, 17
CONTEXT_SIZE = 96  # of a raw tracepoint
LOG_SIZE = 1 << 20
REFUSALS = errno.EINVAL, errno.EACCES, errno.E2BIG, errno.ERANGE, errno.EFAULT, errno.ENOSPC  # the last: in many words

libc = ctypes.CDLL(None, use_errno=True)


class NotHere(Exception):
    """The kernel, or this process, cannot do it at all."""


class Refused(Exception):
    """The verifier says no; what it says."""


def bpf(command, layout, *values):
    """Returns the result and the attributes afterwards."""
    attributes = ctypes.create_string_buffer(struct.pack(layout, *values), 144)
    result = libc.syscall(SYSCALL, command, attributes, 144)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result, attributes.raw


def address(buffer):
    return ctypes.addressof(buffer)


class Map:
    CPUS = os.sysconf("SC_NPROCESSORS_CONF")

    def __init__(self, text):
        self.kind, self.key, self.value, self.entries = map(int, text.split(":"))
        self.fd, _ = bpf(MAP_CREATE, "<IIIII", self.kind, self.key, self.value, self.entries, 0)

    def keys(self):
        key, following, found = None, ctypes.create_string_buffer(self.key), []
        try:
            while True:
                bpf(MAP_NEXT_KEY, "<IIQQ", self.fd, 0, address(key) if key else 0, address(following))
                found.append(following.raw)
                key = ctypes.create_string_buffer(following.raw, self.key)
        except FileNotFoundError:
            return found

    def get(self, key):
        """Of a value for each CPU, that of the one CPU which was there: the others are zeros."""
        key = ctypes.create_string_buffer(key, self.key)
        if self.kind not in (PERCPU_HASH, PERCPU_ARRAY):
            value = ctypes.create_string_buffer(self.value)
            bpf(MAP_LOOKUP, "<IIQQQ", self.fd, 0, address(key), address(value), 0)
            return value.raw
        stride = self.value + 7 & ~7
        values = ctypes.create_string_buffer(stride * self.CPUS)
        bpf(MAP_LOOKUP, "<IIQQQ", self.fd, 0, address(key), address(values), 0)
        merged = 0
        for at in range(0, len(values), stride):
            merged |= int.from_bytes(values[at : at + self.value], "little")
        return merged.to_bytes(self.value, "little")

    def dump(self):
        if self.kind in (HASH, PERCPU_HASH):
            return b"".join(key + self.get(key) for key in sorted(self.keys()))
        return b"".join(self.get(struct.pack("<I", i)) for i in range(self.entries))


class Program:
    """A verified program and its maps."""

    def __init__(self, code, maps, log=False):
        self.fds, self.maps = [], []
        try:
            for text in maps:
                self.maps.append(Map(text))
                self.fds.append(self.maps[-1].fd)
            self.fd = self.load(code, log)
            self.fds.append(self.fd)
        except OSError as error:
            self.close()
            raise NotHere("bpf(2): %s" % error) from None
        except Refused:
            self.close()
            raise

    def load(self, code, log):
        insns, license = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(b"GPL")
        text = ctypes.create_string_buffer(LOG_SIZE if log else 1)
        fds = struct.pack("<%dI" % len(self.fds), *self.fds)
        fds = ctypes.create_string_buffer(fds, len(fds))
        try:
            return bpf(
                PROG_LOAD,
                "<IIQQIIQ80xQ",
                RAW_TRACEPOINT,
                len(code) // 8,
                address(insns),
                address(license),
                int(log),
                len(text) if log else 0,
                address(text) if log else 0,
                address(fds),
            )[0]
        except OSError as error:
            if error.errno in REFUSALS:
                raise Refused(text.value.decode(errors="replace") or os.strerror(error.errno)) from None
            raise

    def run(self, context):
        """The low half of r0, and what is in the maps."""
        context = ctypes.create_string_buffer(context, CONTEXT_SIZE)
        try:
            _, attributes = bpf(TEST_RUN, "<IIIIQQIIIIQ", self.fd, 0, 0, 0, 0, 0, 0, 0, CONTEXT_SIZE, 0, address(context))
        except OSError as error:
            raise NotHere("BPF_PROG_TEST_RUN: %s" % error) from None
        words = ["0x%x" % struct.unpack_from("<I", attributes, 4)]
        return " ".join(words + [m.dump().hex() or "-" for m in self.maps])

    def close(self):
        for fd in self.fds:
            os.close(fd)
        self.fds = []
