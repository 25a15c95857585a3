#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is left as it is, because a program would notice: modules of libraries that fail with others than their own, what the driver's compiler says. On
the CPU driver, or with GPUPROBE_TEST_GPU=1 on a GPU."""
import os
import subprocess

from harness import BUILD, COUNTER, CTL, GPU, GPUPROBED, SHIM, SIM, Daemon, check, equal, main, need

TARGETS = os.path.join(BUILD, "tests/targets")
CONTAINED, LOG = f"{TARGETS}/s-contained", f"{TARGETS}/s-log"
LIBRARIES = {"libcufft.so.12": "libcufft.so.12", "libs-renamed.so": "libcufftw.so.12", "libs-stranger.so": None} # as what why knows them
LIBRARIES = {f"{TARGETS}/{name}": known for name, known in LIBRARIES.items()}
THREADS = 256

need(GPUPROBED, CTL, COUNTER, SHIM, CONTAINED, LOG, *([] if GPU else [f"{SIM}/libcuda.so.1"]))


def bare(*command):
    """What a program says without us."""
    done = subprocess.run(command, env={**os.environ, **Daemon.libraries()}, capture_output=True, text=True, timeout=60)
    equal((done.returncode, done.stderr), (0, ""), f"{command[0]} alone")
    return done.stdout


def probed(daemon, *command):
    """The same under the shim; it must say the same."""
    status, out, err, _ = daemon.run(*command)
    equal((status, out, err), (0, bare(*command), ""), command[0])


def said_of_libraries(daemon):
    return [(o["outcome"], o["engine"], o["reason"].split(":")[0]) for o in daemon.why() if o["reason"].startswith("library ")]


def test_libraries():
    """Of a library that fails with other modules than its own none is replaced, wherever its images lie; why says so, once. Others are probed."""
    for path, known in LIBRARIES.items():
        with Daemon() as daemon:
            daemon.attach("--kernel", "vectorAdd")
            probed(daemon, CONTAINED, path)
            # its three loads, and those of the program
            equal(daemon.count_of(), (3 if known else 6) * THREADS, path)
            equal(said_of_libraries(daemon), [("not-probed", "ptx", f"library {known}")] if known else [], path)
            equal(len([o for o in daemon.why() if o["outcome"] == "failed"]), 0, "failures")


def test_libraries_traced():
    """While calls are traced they come from us, and still it is known who made them."""
    with Daemon() as daemon:
        daemon.attach("--kernel", "vectorAdd")
        trace = subprocess.run([CTL, "trace", "-o", "/dev/null", "--", CONTAINED, *LIBRARIES], capture_output=True, text=True, timeout=60,
                               env=daemon.environment(**daemon.libraries(), LD_PRELOAD=SHIM))
        equal((trace.returncode, trace.stdout), (0, bare(CONTAINED, *LIBRARIES)), trace.stderr)
        equal(daemon.count_of(), 6 * THREADS)
        equal(len(said_of_libraries(daemon)), 1)


def test_log():
    """What the driver's compiler says of the application's own image reaches it, and its kernels are probed all the same."""
    text = bare(LOG)
    check("info 0 bytes" in text and "time 1" in text and ": 218;" in text or GPU, text)
    with Daemon() as daemon:
        daemon.attach("--kernel", "vectorAdd")
        probed(daemon, LOG)
        equal(daemon.count_of(), text.count("\n33152\n") * THREADS, "launches of good modules")


if __name__ == "__main__":
    main([test_libraries, test_libraries_traced, test_log])
