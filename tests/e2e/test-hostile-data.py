#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is shared with processes and written for people: processes that lie in their instances or go away at every moment, readers that end,
disks that are full."""
import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time

from harness import BUILD, COUNTER, CTL, GPUPROBED, SOURCE, Daemon, check, equal, main, need, wait_until
from wire import DATA_OFFSET, HEADER, RING, Shim

OBJECTS = f"{BUILD}/tests/e2e/objects"
need(GPUPROBED, CTL, COUNTER, f"{OBJECTS}/rings.bpf.o", f"{OBJECTS}/log.bpf.o")
with open(f"{SOURCE}/tests/targets/vec_add.ptx", "rb") as file:
    VEC_ADD_PTX = file.read()


def alive(daemon):
    """The daemon serves another client as if nothing had happened."""
    shim = Shim(daemon.directory)
    new, _, reason, slots = shim.image(VEC_ADD_PTX)
    check(new and slots, "the daemon does not serve:", reason)
    shim.close()


def descriptors(daemon):
    return len(os.listdir(f"/proc/{daemon.process.pid}/fd"))


def test_full_disk():
    """Where no file may grow, artifacts and instances are refused, one by one; the application and the daemon go on, and so does all later."""
    folder = tempfile.mkdtemp()
    try:
        with Daemon(f"--keep-artifacts={folder}/kept") as daemon:
            daemon.attach("--kernel", "vectorAdd")
            limits = resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (1024, limits[1]))
            shim = Shim(daemon.directory)
            _, _, _, slots = shim.image(VEC_ADD_PTX)
            check(slots, "not replaced")
            equal(shim.instance(slots[0][0])[0], None, "an instance that may not grow")
            check(any("no memory" in o["reason"] for o in daemon.why()), daemon.why())
            wait_until(lambda: "artifacts cannot be kept" in daemon.text(), "a warning")
            equal(os.listdir(f"{folder}/kept"), [], "what is left of an artifact")
            resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, limits)
            check(shim.instance(slots[0][0])[0] is not None, "an instance")
            shim.close()
            shim = Shim(daemon.directory)
            shim.image(VEC_ADD_PTX + b"// once more\n")
            kept = wait_until(lambda: [n for n in os.listdir(f"{folder}/kept") if n[0] != "."], "an artifact")
            equal(sorted(os.listdir(f"{folder}/kept/{kept[0]}")), ["main.ptx", "out.fatbin"])
            equal(os.stat(f"{folder}/kept").st_mode & 0o77, 0, "others may read artifacts")
            equal(os.stat(f"{folder}/kept/{kept[0]}/main.ptx").st_mode & 0o77, 0, "others may read an artifact")
            shim.close()
            alive(daemon)
    finally:
        shutil.rmtree(folder)


def test_many_maps():
    """More maps than a module has slots for: the first attachments are applied, and `why` names the rest."""
    with Daemon("--deadline-ms=60000") as daemon:
        for _ in range(5):
            daemon.attach(object=f"{OBJECTS}/many.bpf.o")
        shim = Shim(daemon.directory, timeout=60)
        new, _, reason, slots = shim.image(VEC_ADD_PTX)
        check(new, "not replaced:", reason)
        equal(len(slots), 4 * 60, "slots")
        check(any("only the first 4 of them" in o["reason"] for o in daemon.why()), daemon.why())
        shim.close()


if __name__ == "__main__":
    main([test_full_disk, test_many_maps])
