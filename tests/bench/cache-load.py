#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cache-load.py BUILD [ROUNDS=11]: what a load of a matched module costs on the shim's side: the image into a memfd, the daemon asked, its answer mapped. For
images of several sizes (PTX of a kernel, filled up with comments): compiled (cold), from the cache in the daemon's memory, and from the disk after a
restart of the daemon. One JSON object a size; milliseconds, medians (of cold: the one time). The parts of a load from memory: copying, asking, mapping.

    tests/bench/cache-load.py build
"""

import fcntl
import json
import mmap
import os
import shutil
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
from harness import Daemon, wait_until  # noqa: E402
import wire  # noqa: E402

PTX = b"""
.version 7.0
.target sm_52
.address_size 64
.visible .entry vectorAdd(.param .u64 p)
{
	.reg .b64 %a;
	ld.param.u64 %a, [p];
	cvta.to.global.u64 %a, %a;
	st.global.u64 [%a], %a;
	ret;
}
"""
SIZES = (100 << 10, 1 << 20, 10 << 20, 100 << 20)


def image(size, number):
    line = b"// %061d\n" % number
    return PTX + line * ((size - len(PTX)) // len(line))


def load(shim, data):
    """Seconds: copying the image, asking, mapping the answer."""
    start = time.perf_counter()
    fd = os.memfd_create("image", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    done = 0
    while done < len(data):
        done += os.write(fd, memoryview(data)[done:])
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, wire.SEALS)
    copied = time.perf_counter()
    shim.send(wire.message(wire.IMAGE, len(data), wire.PTX, wire.AWAITED, 9, 0, 0, 0, sequence=7), fd)
    os.close(fd)
    kind, (_, size, verdict, slots, reason), fd = shim.receive()
    assert kind == wire.IMAGE_REPLY and verdict, reason
    for _ in range(slots):
        shim.receive()
    asked = time.perf_counter()
    mmap.mmap(fd, size, mmap.MAP_PRIVATE, mmap.PROT_READ).close()
    os.close(fd)
    return copied - start, asked - copied, time.perf_counter() - asked


def attach(daemon):
    """Milliseconds, gpuprobectl's own start included, once workers are ready."""
    wait_until(lambda: daemon.status()["compiler"] not in ("driver", "unknown yet"), "a worker is ready")
    start = time.perf_counter()
    daemon.attach("--kernel", "vectorAdd")
    return (time.perf_counter() - start) * 1e3


def measure(size, rounds, folder):
    options = (f"--cache-dir={folder}", "--cache-size=4G", "--deadline-ms=60000")
    data = [image(size, n) for n in range(rounds if size < 10 << 20 else 3)]
    result = {"benchmark": "cache-load", "bytes": size}
    with Daemon(*options) as daemon:
        result["attach_cold_ms"] = attach(daemon)
        shim = wire.Shim(daemon.directory, timeout=120)
        cold = [sum(load(shim, d)) for d in data]
        warm = [load(shim, d) for d in data for _ in range(3)]
        wait_until(lambda: daemon.json("cache")["stores"] >= len(data) + 2, "all is written", 60)
    with Daemon(*options) as daemon:
        result["attach_disk_ms"] = attach(daemon)
        shim = wire.Shim(daemon.directory, timeout=120)
        disk = [sum(load(shim, d)) for d in data]
        assert daemon.json("cache")["misses"] == 0, daemon.json("cache")
    result["cold_ms"] = statistics.median(cold) * 1e3
    result["disk_ms"] = statistics.median(disk) * 1e3
    result["memory_ms"] = statistics.median(sum(w) for w in warm) * 1e3
    for part, name in enumerate(("copy", "ask", "map")):
        result[f"memory_{name}_ms"] = statistics.median(w[part] for w in warm) * 1e3
    return {key: round(value, 3) if isinstance(value, float) else value for key, value in result.items()}


def main():
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 11
    folder = tempfile.mkdtemp(prefix="bench-cache-")
    try:
        for size in SIZES:
            print(json.dumps(measure(size, rounds, folder)), flush=True)
            for name in os.listdir(folder):
                os.unlink(os.path.join(folder, name))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
