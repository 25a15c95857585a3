#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test-sim-probe.py PTX_TOOL KERNELS_DRIVER KERNELS_PTX

Each kernel gives the same memory bare and with a probe, called or inlined, and the probe has counted its threads at the entry and
on the ways out: one probe at once, the other on three ways out, with labels, a loop and a stack. So it does with one that reads all of
the context at each memory instruction, each of which moves at least a byte.
"""

import os, re, subprocess, sys, tempfile

SIMPLE = """.visible .global .align 8 .u64 probe_counter = 0;
.func (.param .b64 r) probe_program (.param .b64 ctx)
{
	.reg .b64 %x;
	red.global.add.u64 [probe_counter], 1;
	mov.b64 %x, 0;
	st.param.b64 [r], %x;
	ret;
}
"""
BRANCHES = """.visible .global .align 8 .u64 probe_counter = 0;
.func (.param .b64 r) probe_program (.param .b64 ctx)
{
	.local .align 8 .b8 	__local_depot0[16];
	.reg .b64 	%SP;
	.reg .b64 	%SPL;
	.reg .pred 	%p<4>;
	.reg .b32 	%r<5>;
	.reg .b64 	%rd<4>;
	mov.u64 	%SPL, __local_depot0;
	cvta.local.u64 	%SP, %SPL;
	ld.param.b64 	%rd1, [ctx];
	st.u64 	[%SP+8], %rd1;
	mov.u32 	%r1, %tid.x;
	and.b32 	%r2, %r1, 1;
	setp.eq.u32 	%p1, %r2, 1;
	setp.gt.u32 	%p2, %r1, 40;
	@%p2 bra 	$L__BB0_2;
	st.param.b64 	[r], %rd1;
	@%p1 red.global.add.u64 	[probe_counter], 1;
	@%p1 ret;
$L__BB0_1:
	ld.u64 	%rd2, [%SP+8];
	add.s64 	%rd2, %rd2, 1;
	st.u64 	[%SP+8], %rd2;
	setp.lt.u64 	%p3, %rd2, 5;
	@%p3 bra 	$L__BB0_1;
	add.s64 	%rd3, %rd2, -4;
	red.global.add.u64 	[probe_counter], %rd3;
	bra.uni 	$L__BB0_3;
$L__BB0_2:
	red.global.add.u64 	[probe_counter], 1;
	st.param.b64 	[r+0], 0;
	ret;
$L__BB0_3:
	ret;
}
"""
MEMORY = """.visible .global .align 8 .u64 probe_counter = 0;
.func (.param .b64 r) probe_program(.param .b64 id, .param .b64 address, .param .b64 size, .param .b64 value)
{
	.reg .b64 	%rd<5>;
	.reg .pred 	%p<2>;
	ld.param.b64 	%rd1, [id];
	ld.param.b64 	%rd2, [address];
	ld.param.b64 	%rd3, [size];
	ld.param.b64 	%rd4, [value];
	xor.b64 	%rd1, %rd1, %rd2;
	xor.b64 	%rd1, %rd1, %rd4;
	setp.eq.s64 	%p1, %rd1, 0;
	@%p1 bra 	$L__BB0_1;
	red.global.add.u64 	[probe_counter], %rd3;
$L__BB0_1:
	st.param.b64 	[r], 0;
	ret;
}
"""
tool, driver, source = sys.argv[1:]
kernels = re.findall(r"\.entry\s+(\w+)", open(source).read())
if len(kernels) < 7:
    sys.exit("%s has only the kernels %s" % (source, kernels))
with tempfile.TemporaryDirectory() as folder:

    def path(name):
        return os.path.join(folder, name)

    def probe(name, program, *options, context="160"):
        open(path(name + ".txt"), "w").write(program)
        subprocess.run([tool, "probe", source, "--probe", path(name + ".txt"), "--context", context, *options, "-o", path(name)], check=True)
        called = re.search("call (__probe_func__|__retprobe_func__|__memcapture__)", open(path(name)).read())
        if "--call" in options and not called:
            sys.exit("%s: not called" % name)
        if "--call" not in options and called and program != MEMORY:
            sys.exit("%s: called, though it is to be inlined" % name)
        return name

    everywhere = ["--point", "entry", "--point", "return"]
    memory = ["--point", "memory", "--spaces", "0x3f", "--image", "1"]
    # name, and how often a thread comes by (None: at least once)
    probed = [
        (probe("simple", SIMPLE, "--call"), 1),
        (probe("simple-inlined", SIMPLE), 1),
        (probe("branches", BRANCHES, "--call"), 1),
        (probe("branches-inlined", BRANCHES), 1),
        (probe("both", BRANCHES, *everywhere, "--call"), 2),
        (probe("both-inlined", BRANCHES, *everywhere), 2),
        (probe("return", SIMPLE, "--point", "return"), 1),
        (probe("memory", MEMORY, *memory, "--call", context="0,8,16,40"), None),
        (probe("memory-inlined", MEMORY, *memory, context="0,8,16,40"), None),
    ]
    for kernel in kernels:
        subprocess.run([driver, "--dump", path("bare"), kernel], check=True)
        for image, times in probed:
            result = subprocess.run(
                [driver, "--image", path(image), "--global", "probe_counter", "--dump", path("probed"), kernel], check=True, stdout=subprocess.PIPE, text=True
            ).stdout
            count = int(re.search(r"probe_counter=(\d+)", result).group(1))
            threads = int(re.search(r"threads=(\d+) PASS", result).group(1))
            if count != threads * times if times else count < threads:
                sys.exit("%s: the probe %s counted %d of %d threads" % (kernel, image, count, threads))
            if open(path("bare"), "rb").read() != open(path("probed"), "rb").read():
                sys.exit("%s: the results differ with the probe %s" % (kernel, image))
        print("%s: %d threads, the same %d bytes" % (kernel, threads, os.path.getsize(path("bare"))))
