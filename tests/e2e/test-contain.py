#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a program would notice, and does not: libraries that check their own modules, what the driver's compiler says, branches of graphs. On the CPU driver, or
with GPUPROBE_TEST_GPU=1 on a GPU."""

import os
import subprocess

from harness import BUILD, COUNTER, CTL, GPU, GPUPROBED, SHIM, SIM, Daemon, check, equal, main, need

TARGETS = os.path.join(BUILD, "tests/targets")
CONTAINED, LOG, CONDITIONAL = f"{TARGETS}/s-contained", f"{TARGETS}/s-log", f"{TARGETS}/s-conditional"
LIBRARY = f"{TARGETS}/libs-contained.so"
THREADS = 256

SASS = () if GPU else (f"--sanitizer={SIM}/sanitizer/libsanitizer-public.so",)

need(GPUPROBED, CTL, COUNTER, SHIM, CONTAINED, LOG, CONDITIONAL, *([] if GPU else [f"{SIM}/libcuda.so.1", f"{SIM}/sanitizer/libsanitizer-public.so"]))


def bare(*command):
    """What a program says without us."""
    done = subprocess.run(command, env={**os.environ, **Daemon.libraries()}, capture_output=True, text=True, timeout=60)
    equal((done.returncode, done.stderr), (0, ""), f"{command[0]} alone")
    return done.stdout


def probed(daemon, *command):
    """The same under the shim; it must say the same."""
    status, out, err, _ = daemon.run(*command)
    equal((status, out, err), (0, bare(*command), ""), command[0])


def test_libraries():
    """Libraries that load modules are probed as the program is, also while calls are traced and come from us."""
    for trace in (), (CTL, "trace", "-o", "/dev/null", "--"):
        with Daemon() as daemon:
            daemon.attach("--kernel", "vectorAdd")
            done = subprocess.run(
                [*trace, CONTAINED, LIBRARY], capture_output=True, text=True, timeout=60, env=daemon.environment(**daemon.libraries(), LD_PRELOAD=SHIM)
            )
            equal((done.returncode, done.stdout), (0, bare(CONTAINED, LIBRARY)), done.stderr)
            equal(daemon.count_of(), 6 * THREADS, "three loads of the library, and those of the program")
            equal([o for o in daemon.why() if o["outcome"] != "probed"], [])


def test_log():
    """What the driver's compiler says of the application's own image reaches it, and its kernels are probed all the same."""
    os.environ["CUDA_CACHE_DISABLE"] = "1"  # a GPU's driver says nothing of what it has compiled before
    text = bare(LOG)
    check("module, options 0 to 6: 0; info 1 [" in text and "time 1" in text and "0 to 6: 218; info 0 [" in text or GPU, text)
    with Daemon() as daemon:
        daemon.attach("--kernel", "vectorAdd")
        probed(daemon, LOG)
        equal(daemon.count_of(), text.count("\n33152\n") * THREADS, "launches of good modules")


def adds_of(text):
    """How often the kernel add was launched."""
    return sum(int(number) for number in text.splitlines()[-1].split()[-8:])


def test_conditional_graphs():
    """Graphs whose kernels set conditions take the branches that they take bare, by each engine; what can be probed is, and why says what is not."""
    for how in (), ("apart",), ("library",):
        command = (CONDITIONAL, *how)
        adds = adds_of(bare(*command))
        with Daemon() as daemon:
            probed(daemon, *command)  # the shim alone
            daemon.attach("--kernel", "*")
            probed(daemon, *command)
            check(adds // 2 < daemon.count_of() <= adds, f"PTX engine {how}", daemon.count_of(), adds)
            told = [o["reason"] for o in daemon.why("--kernel", "set") if o["outcome"] == "not-probed"]
            equal(told, ["no twin can be made: it calls cudaGraphSetConditional, which is outside of the module"], how)
        with Daemon("--engine=sanitizer", *SASS) as daemon:
            probed(daemon, *command)
            daemon.attach("--kernel", "*", "--engine=sanitizer")
            probed(daemon, *command)
            equal(daemon.count_of(), adds if how == ("apart",) else 0, f"sanitizer engine {how}")
            left = ("not-probed", "sanitizer", "module with set: not patched, because kernels of it act on CUDA graphs (cudaGraphSetConditional or the like)")
            for of in (), ("--kernel", "set"):  # of the whole module, and so of each kernel
                equal([(o["outcome"], o["engine"], o["reason"]) for o in daemon.why(*of) if o["reason"].startswith("module with ")], [left], of)


if __name__ == "__main__":
    main([test_libraries, test_log, test_conditional_graphs])
