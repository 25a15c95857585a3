#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test-sim-probe.py PTX_TOOL KERNELS_DRIVER KERNELS_PTX

Each kernel gives the same memory bare and with a probe that kprobe_entry put in, and the probe has counted its threads.
"""
import os, re, subprocess, sys, tempfile

PROBE = """.visible .global .align 8 .u64 probe_counter = 0;
.func (.param .b64 r) probe_program (.param .b64 ctx)
{
	.reg .b64 %x;
	red.global.add.u64 [probe_counter], 1;
	mov.b64 %x, 0;
	st.param.b64 [r], %x;
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

    open(path("probe.ptx"), "w").write(PROBE)
    subprocess.run([tool, "kprobe-entry", source, "--probe", path("probe.ptx"), "-o", path("probed.ptx")], check=True)
    for kernel in kernels:
        subprocess.run([driver, "--dump", path("bare"), kernel], check=True)
        result = subprocess.run([driver, "--image", path("probed.ptx"), "--global", "probe_counter", "--dump", path("probed"), kernel],
                                check=True, stdout=subprocess.PIPE, text=True).stdout
        count = int(re.search(r"probe_counter=(\d+)", result).group(1))
        threads = int(re.search(r"threads=(\d+) PASS", result).group(1))
        if count != threads:
            sys.exit("%s: the probe counted %d of %d threads" % (kernel, count, threads))
        if open(path("bare"), "rb").read() != open(path("probed"), "rb").read():
            sys.exit("%s: the results differ" % kernel)
        print("%s: %d threads, the same %d bytes" % (kernel, threads, os.path.getsize(path("bare"))))
