#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cache on the disk: what one daemon compiled serves the next, whose workers crash at each job; and whatever happens to the folder, programs run and are
counted."""
import glob
import os
import shutil
import subprocess
import tempfile

from harness import BUILD, COUNTER, VEC_ADD, Daemon, check, equal, main, need, wait_until

need(COUNTER, VEC_ADD)
N, LAUNCHES = 4096, 3
RUN = [VEC_ADD, "--threads", str(N), "--launches", str(LAUNCHES)]
NO_WORKERS = ("--image-worker-argument=--test-fault=crash", "--program-worker-argument=--test-fault=crash")


class Folder:
    """A folder for a cache."""

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="e2e-cache-")
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path)

    def daemon(self, *options):
        return Daemon(f"--cache-dir={self.path}", "--deadline-ms=20000", *options)

    def files(self):
        return sorted(glob.glob(f"{self.path}/*-*"))


def cache(daemon):
    return daemon.json("cache")


def settled(daemon, entries):
    """Waits until so many entries are written."""
    return wait_until(lambda: cache(daemon)["stores"] >= entries and cache(daemon), f"{entries} entries: {cache(daemon)}")


def run_counted(daemon, *attach):
    daemon.attach(*attach)
    status, out, err, _ = daemon.run(*RUN)
    equal(status, 0, out + err)
    equal(daemon.count_of(), N * LAUNCHES, f"count; {daemon.why()}")


def fill(folder, entries=3):
    with folder.daemon() as daemon:
        run_counted(daemon, "--kernel", "vectorAdd")
        return settled(daemon, entries)


def test_restart():
    """Attach and load after a restart: no worker does a job."""
    with Folder() as folder:
        said = fill(folder)
        equal((said["hits"], said["misses"], said["entries"]), (0, 3, 3), said)
        equal(len(folder.files()), 3, "files")
        with folder.daemon(*NO_WORKERS) as daemon:
            run_counted(daemon, "--kernel", "vectorAdd")
            said = cache(daemon)
            equal((said["hits"], said["misses"], said["invalid"]), (3, 0, 0), said)
            equal(daemon.status()["counters"]["worker_crashes"], 0, "crashes")
            equal({o["outcome"] for o in daemon.why()}, {"probed"}, daemon.why())
            # another id, the same content: detached and attached again it needs no worker either
            daemon.ctl("detach", *[str(a["id"]) for a in daemon.attachments()])
            run_counted(daemon, "--kernel", "vectorAdd")
            equal(cache(daemon)["misses"], 0, "misses")


if __name__ == "__main__":
    main([value for name, value in list(globals().items()) if name.startswith("test_")])
