#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the functions of plans on the CUDA driver that there is, with arguments as the patching library passes them: what a program
reads of its context at each class, which attachments run and in which order, and what a store stores.

test-patch-run.py WORKER FATBIN_TOOL
"""

import ctypes
import os
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from worker_driver import Plan, Worker  # noqa: E402

WORKER, TOOL = sys.argv[1:3]
NOTHING = 0xABABABABABABABAB
FIELDS = {"entry": 7, "return": 7, "memory": 6}
PARAMETERS = {
    3: (64, 32, 32, 64),
    4: (64, 32, 32, 64),
    5: (64, 32, 32, 64),
    17: (64, 32, 32, 64),
    6: (32, 32, 32),
    7: (32,),
    9: (64, 32),
    11: (64, 64),
    12: (64,),
}


def record(name, fields):
    """A program that stores the fields that it reads, one after the other, where the 8 bytes behind its second slot say, and
    moves those on."""
    parameters = "".join(f", .param .b64 c{i}" for i in range(len(fields)))
    stores = "".join(f"\tld.param.b64 %rd4, [c{i}];\n\tst.global.b64 [%rd3+{8 * i}], %rd4;\n" for i in range(len(fields)))
    return (
        name,
        f""".func (.param .b64 r) {name}(.param .b64 slots{parameters})
{{
	.reg .b64 %rd<6>;
	ld.param.b64 %rd1, [slots];
	ld.global.b64 %rd2, [%rd1+8];
	ld.global.b64 %rd3, [%rd2];
{stores}	add.s64 %rd5, %rd3, {8 * len(fields)};
	st.global.b64 [%rd2], %rd5;
	mov.b64 %rd5, 1;
	st.param.b64 [r], %rd5;
	ret;
}}
""",
        list(fields),
        2,
    )


def caller(symbol, parameters):
    """A kernel that calls the function with its own parameters, and stores what it returns."""
    widths = (64, 64, *parameters)
    text = (
        ".visible .entry run(" + ", ".join(f".param .u64 a{i}" for i in range(len(widths))) + ", .param .u64 out)\n{\n"
        "\t.reg .b64 %d, %o;\n\t.reg .b32 %w;\n\tld.param.u64 %o, [out];\n\t{\n\t.param .b32 r;\n"
    )
    for i, width in enumerate(widths):
        text += f"\tld.param.u64 %d, [a{i}];\n\t.param .b{width} p{i};\n"
        text += f"\tst.param.b64 [p{i}], %d;\n" if width == 64 else f"\tcvt.u32.u64 %w, %d;\n\tst.param.b32 [p{i}], %w;\n"
    return (
        text + f"\tcall.uni (r), {symbol}, (" + ", ".join(f"p{i}" for i in range(len(widths))) + ");\n"
        "\tld.param.b32 %w, [r];\n\t}\n\tst.global.u32 [%o], %w;\n\tret;\n}\n"
    )


class Device:
    """As much of the driver as is needed."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *arguments):
        result = getattr(self.cuda, name)(*arguments)
        assert not result, (name, result)

    def put(self, data):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(len(data)))
        self.call("cuMemcpyHtoD_v2", address, data, ctypes.c_size_t(len(data)))
        return address.value

    def get(self, address, size):
        data = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", data, ctypes.c_uint64(address), ctypes.c_size_t(size))
        return data.raw

    def run(self, text, arguments, grid=(1, 1, 1), block=(1, 1, 1), shared=0):
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), text.encode() + b"\0")
        self.call("cuModuleGetFunction", ctypes.byref(function), module, b"run")
        values = [ctypes.c_uint64(a) for a in arguments]
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
        self.call("cuLaunchKernel", function, *grid, *block, shared, None, pointers, None)
        self.call("cuCtxSynchronize")
        self.call("cuModuleUnload", module)


class Run(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        try:
            cls.device = Device()
        except OSError as error:
            raise unittest.SkipTest(str(error))
        cls.worker = Worker([WORKER])
        if "patch" not in cls.worker.hello["features"]:
            cls.worker.close()
            raise unittest.SkipTest("no compiler that makes patches")

    @classmethod
    def tearDownClass(cls):
        assert cls.worker.close() == (0, "")

    def texts(self, programs, attachments):
        """The composed PTX, and the symbols of the plan."""
        reply, out = self.worker.patch(programs, attachments)
        self.assertEqual(reply["status"], "planned", reply)
        plan = Plan(out)
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/image", "wb") as file:
                file.write(plan.image)
            subprocess.run([TOOL, "extract", f"{folder}/image", "-o", folder], check=True, stdout=subprocess.DEVNULL)
            (name,) = [name for name in os.listdir(folder) if name.endswith(".ptx")]
            with open(f"{folder}/{name}") as file:
                return file.read(), plan

    def run_point(self, programs, attachments, number, arguments=(), bits=None, data=True, process=True, **launch):
        """Calls the function of a class; returns the words that programs stored, in order."""
        text, plan = self.texts(programs, attachments)
        records = self.device.put(struct.pack("<Q", NOTHING) * 32)
        cursor = self.device.put(struct.pack("<Q", records))
        owner = self.device.put(struct.pack("<QQ16s4Q", 4711 << 32 | 4711, 3, b"test", 0, 0, 0, 0)) if process else 0
        slots = struct.pack("<QQ", owner, cursor) * len(programs)
        bits = (1 << len(attachments)) - 1 if bits is None else bits
        block = struct.pack("<QQQQ", bits, 0x1234567890ABCDEF, owner, 0) + slots
        address = self.device.put(block.ljust(plan.data_size, b"\0")) if data else 0
        out = self.device.put(b"\xff" * 8)
        self.device.run(text + caller(plan.points[number], PARAMETERS.get(number, ())), [address, 0x77, *arguments, out], **launch)
        self.assertEqual(self.device.get(out, 4), bytes(4))  # SANITIZER_PATCH_SUCCESS
        end = struct.unpack("<Q", self.device.get(cursor, 8))[0]
        return list(struct.unpack(f"<{(end - records) // 8}Q", self.device.get(records, end - records)))

    def fields(self, point, number, arguments=(), **how):
        count = FIELDS.get(point, 5)
        return self.run_point([record("p", range(0, 8 * count, 8))], [("*", point, 0)], number, arguments, **how)

    def test_kernel(self):
        launch = {"grid": (1, 1, 1), "block": (1, 1, 1), "shared": 48}
        for point, number in ("entry", 1), ("return", 2):
            self.assertEqual(self.fields(point, number, **launch), [0x1234567890ABCDEF, 3, 4711, 1 | 1 << 32, 1, 1 | 1 << 16 | 1 << 32, 48])
        self.assertEqual(self.fields("entry", 1, process=False)[1:3], [0, 0])

    def test_memory(self):
        value = self.device.put(bytes(range(1, 17)))
        for number, space in (3, 1), (4, 2), (5, 3), (17, 1):
            for size, stored in (1, 0x01), (2, 0x0201), (4, 0x04030201), (8, 0x0807060504030201), (16, 0x0807060504030201):
                found = self.fields("memory", number, (0xABC0, size, 2, value))
                self.assertEqual(found, [0x77, 0xABC0, size, space, 2, stored])
            # a load has a pointer to the bytes that are used, an atomic none
            self.assertEqual(self.fields("memory", number, (0xABC0, 4, 1, value)), [0x77, 0xABC0, 4, space, 1, 0])
            self.assertEqual(self.fields("memory", number, (0xABC0, 4, 3, 0)), [0x77, 0xABC0, 4, space, 3, 0])
            self.assertEqual(self.fields("memory", number, (0xABC0, 4, 7, 0)), [0x77, 0xABC0, 4, space, 3, 0])
            self.assertEqual(self.fields("memory", number, (0xABC0, 4, 2, 0)), [0x77, 0xABC0, 4, space, 2, 0])
            self.assertEqual(self.fields("memory", number, (0xABC0, 4, 9, 0)), [])  # a prefetch
        self.assertEqual(self.fields("memory", 3, (2**64 - 16, 4, 1, 0))[1], 2**64 - 16)

    def test_events(self):
        for point, number, arguments, seen in [
            ("barrier", 6, (5, 128, 1), [5, 128, 0]),
            ("syncwarp", 7, (0xFFFF0000,), [0xFFFF0000, 0, 0]),
            ("shfl", 8, (), [0, 0, 0]),
            ("call", 9, (0x123456789A, 1), [0x123456789A, 0, 0]),
            ("ret", 10, (), [0, 0, 0]),
            ("malloc", 11, (1 << 40, 3 << 33), [1 << 40, 3 << 33, 0]),
            ("free", 12, (1 << 41,), [1 << 41, 0, 0]),
        ]:
            self.assertEqual(self.fields(point, number, arguments), [0x1234567890ABCDEF, 0x77, *seen], point)

    def test_which_run(self):
        programs = [record("p", [8, 40]), record("q", [8]), record("r", [0])]
        attachments = [("*", "entry", 1), ("*", "return", 2), ("*", "entry", 0), ("*", "entry", 1), ("*", "entry", 2)]
        block = 1 | 1 << 16 | 1 << 32
        identity = 0x1234567890ABCDEF
        for bits, seen in [
            (0b11111, [3, 3, block, 3, identity]),
            (0b00010, []),
            (0, []),
            (0b00100, [3, block]),
            (0b11000, [3, identity]),
            (0b10001, [3, identity]),
        ]:
            self.assertEqual(self.run_point(programs, attachments, 1, bits=bits), seen, bin(bits))
        self.assertEqual(self.run_point(programs, attachments, 2, bits=0b00010), [identity])
        self.assertEqual(self.run_point(programs, attachments, 1, data=False), [])

    def test_called_programs(self):
        """So many that the last are called: all run, in their order."""
        programs = [record(f"p{i}", [8, 16, 40] * 4 if i == 20 else [0]) for i in range(21)]
        attachments = [("*", "entry", i % 20) for i in range(57)] + [("*", "entry", 20)]
        text, _ = self.texts(programs, attachments)
        self.assertIn("call.uni (r), p20, ", text)
        attachments = [("*", "entry", 1)] * 6 + attachments[6:]
        found = self.run_point(programs, attachments, 1, bits=1 << 57 | 0b111)
        self.assertEqual(found, [0x1234567890ABCDEF] * 3 + [3, 4711, 1 | 1 << 16 | 1 << 32] * 4)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
