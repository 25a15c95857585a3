#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
test-bpf-header.py CLANG PROTO MULTIARCH: what our users' programs include compiles: gpuprobe.bpf.h alone needs no -I, and headers of the kernel and of libbpf
may stand beside it. MULTIARCH is -I and the folder that has <asm/types.h> on Debian.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

CLANG, PROTO, MULTIARCH = sys.argv[1:4]
OURS = '#include "gpuprobe.bpf.h"\n'
PROGRAM = """
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

SEC("kprobe/f")
int cuda__program(struct gpuprobe_kernel_ctx *ctx)
{
	__u64 *value, sum = ctx->pid + (__s64)BPF_ANY;
	__u32 key = 0;

	value = bpf_map_lookup_elem(&counts, &key);
	if (value)
		__sync_fetch_and_add(value, sum);
	return 0;
}

/* what daemon and worker know of them: point.h, launch.h */
_Static_assert(sizeof(struct gpuprobe_kernel_ctx) == 168, "all that is verified");
_Static_assert(sizeof(struct gpuprobe_launch_ctx) == 168, "all that is verified");
_Static_assert(__builtin_offsetof(struct gpuprobe_launch_ctx, launch) == 136, "behind nine parameters");
_Static_assert(__builtin_offsetof(struct gpuprobe_launch_ctx, params) == __builtin_offsetof(struct gpuprobe_kernel_ctx, params), "GPU_PARAM()");
_Static_assert(__builtin_offsetof(struct gpuprobe_memory_ctx, launch) == 48 && sizeof(struct gpuprobe_memory_ctx) == 80, "behind the rest");

char LICENSE[] SEC("license") = "GPL";
"""
# the part of one that bpftool makes that matters: the types that other headers define, too
VMLINUX = """
#ifndef __VMLINUX_H__
#define __VMLINUX_H__
typedef signed char __s8;
typedef unsigned char __u8;
typedef short int __s16;
typedef short unsigned int __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long int __s64;
typedef long long unsigned int __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u64 u64;
enum bpf_map_type { BPF_MAP_TYPE_UNSPEC = 0, BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_ARRAY = 2 };
enum { BPF_ANY = 0, BPF_NOEXIST = 1, BPF_EXIST = 2 };
struct bpf_map_def_of_the_kernel { u64 a; };
#endif
"""


class Header(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        with open(os.path.join(self.folder, "vmlinux.h"), "w") as file:
            file.write(VMLINUX)

    def compile(self, includes, *options):
        """What the compiler says; empty: it is satisfied."""
        with open(os.path.join(self.folder, "x.bpf.c"), "w") as file:
            file.write(includes + PROGRAM)
        return subprocess.run(
            [CLANG, "-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-I", PROTO, *options, "-c", "x.bpf.c", "-o", "x.bpf.o"],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        ).stdout

    def test_alone(self):
        for options in (), (MULTIARCH,), ("-mcpu=v3", "-std=gnu11"):
            with self.subTest(options=options):
                self.assertEqual(self.compile(OURS, *options), "")

    def test_before_others(self):
        for header in "linux/types.h", "linux/bpf.h", "bpf/bpf_helpers.h", "bpf/bpf_tracing.h", "bpf/bpf_endian.h", "bpf/bpf_core_read.h", "linux/if_ether.h":
            for options in (), (MULTIARCH,):
                with self.subTest(header=header, options=options):
                    self.assertEqual(self.compile(f"{OURS}#include <{header}>\n", *options), "")

    def test_behind_others(self):
        for headers in ("linux/types.h",), ("linux/bpf.h",), ("linux/bpf.h", "bpf/bpf_helpers.h"), ("linux/types.h", "bpf/bpf_helpers.h"), ("linux/ptrace.h",):
            with self.subTest(headers=headers):
                self.assertEqual(self.compile("".join(f"#include <{header}>\n" for header in headers) + OURS, MULTIARCH), "")

    def test_vmlinux(self):
        for includes in '#include "vmlinux.h"\n' + OURS, '#include "vmlinux.h"\n#include <bpf/bpf_helpers.h>\n' + OURS:
            for options in (), (MULTIARCH,):
                with self.subTest(includes=includes, options=options):
                    self.assertEqual(self.compile(includes, *options), "")

    def test_helpers(self):
        """The header declares the helpers of proto/helper.h that the kernel lacks, with the same numbers."""
        with open(os.path.join(PROTO, "gpuprobe.bpf.h")) as header, open(os.path.join(PROTO, "helper.h")) as table:
            declared = re.findall(r"\(\*const (\w+)\)\([^)]*\) =\s+\(void \*\)(\d+);", header.read())
            rows = re.findall(r'\{ (5\d\d), "(\w+)"', table.read())
        self.assertEqual(sorted(declared), sorted((name, number) for number, name in rows))

    def test_errors_are_seen(self):
        self.assertIn("no_such_type", self.compile(OURS + "no_such_type x;\n"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
