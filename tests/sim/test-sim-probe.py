#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test-sim-probe.py PTX_TOOL KERNELS_DRIVER KERNELS_PTX

Each kernel gives the same memory bare and with a probe at its entry, called or inlined, and the probe has counted
its threads: one probe at once, the other on three ways out, with labels, a loop and a stack.
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
tool, driver, source = sys.argv[1:]
kernels = re.findall(r"\.entry\s+(\w+)", open(source).read())
if len(kernels) < 7:
    sys.exit("%s has only the kernels %s" % (source, kernels))
with tempfile.TemporaryDirectory() as folder:
    def path(name):
        return os.path.join(folder, name)

    def probe(name, program, *options):
        open(path(name + ".txt"), "w").write(program)
        subprocess.run([tool, "probe", source, "--probe", path(name + ".txt"), "--context", "160", *options, "-o", path(name)], check=True)
        called = "call __probe_func__" in open(path(name)).read()
        if called != ("--call" in options):
            sys.exit("%s: %s" % (name, "called, though it is to be inlined" if called else "not called"))
        return name

    probed = [probe("simple", SIMPLE, "--call"), probe("simple-inlined", SIMPLE),
              probe("branches", BRANCHES, "--call"), probe("branches-inlined", BRANCHES)]
    for kernel in kernels:
        subprocess.run([driver, "--dump", path("bare"), kernel], check=True)
        for image in probed:
            result = subprocess.run([driver, "--image", path(image), "--global", "probe_counter", "--dump", path("probed"), kernel],
                                    check=True, stdout=subprocess.PIPE, text=True).stdout
            count = int(re.search(r"probe_counter=(\d+)", result).group(1))
            threads = int(re.search(r"threads=(\d+) PASS", result).group(1))
            if count != threads:
                sys.exit("%s: the probe %s counted %d of %d threads" % (kernel, image, count, threads))
            if open(path("bare"), "rb").read() != open(path("probed"), "rb").read():
                sys.exit("%s: the results differ with the probe %s" % (kernel, image))
        print("%s: %d threads, the same %d bytes" % (kernel, threads, os.path.getsize(path("bare"))))
