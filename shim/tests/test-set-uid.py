#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A set-uid program is left alone, even when /etc/ld.so.preload brings the shim into it and the system's daemon is interested in all,
and traces all.
Needs root: it runs in a mount namespace with an overlay on /etc and a /run of its own."""

import os
import shutil
import subprocess
import sys

import fake_daemon
import wire
from fake_trace import TraceDaemon
from target_runs import SHIM, SIM, TARGETS, end, report

NOBODY = 65534
PLACE = "/run/test"


def inner():
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    os.makedirs(f"{PLACE}/etc/upper")
    os.makedirs(f"{PLACE}/etc/work")
    os.chmod(PLACE, 0o755)
    options = f"lowerdir=/etc,upperdir={PLACE}/etc/upper,workdir={PLACE}/etc/work"
    if subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, "/etc"]).returncode:
        sys.exit(77)
    for path in (SHIM, f"{SIM}/libcuda.so.1", f"{TARGETS}/s-threads", f"{TARGETS}/s-linked"):
        shutil.copy(path, PLACE)
        os.chmod(os.path.join(PLACE, os.path.basename(path)), 0o755)
    subprocess.run(["ldconfig", PLACE], check=True, stderr=subprocess.DEVNULL)
    with open("/etc/ld.so.preload", "w") as file:
        file.write(f"{PLACE}/libgpuprobe-shim.so\n")
    fake_daemon.folder_of = lambda name: "/run/gpuprobe"
    for program in ("s-threads", "s-linked"):
        for mode in (0o755, 0o4755):
            with TraceDaemon("system", deadline_ms=5000, probes=True) as daemon:
                os.chmod(daemon.folder, 0o755)
                os.chmod(f"{daemon.folder}/shim.sock", 0o666)
                os.chmod(f"{PLACE}/{program}", mode)
                done = subprocess.run([f"{PLACE}/{program}"], user=NOBODY, group=NOBODY, extra_groups=[], env={}, capture_output=True, text=True)
                asked = daemon.seen(wire.IMAGE)
                report(
                    f"{program} {mode:o}",
                    done.returncode == 0 and done.stdout == "165760\n" * 8 and asked == (40 if mode == 0o755 else 0),
                    f"status {done.returncode}, {asked} images, {done.stdout!r} {done.stderr!r}",
                )
                calls = len(daemon.calls())
                report(
                    f"{program} {mode:o}: traced",
                    calls > 200 and daemon.seen(wire.TRACE) == 1 if mode == 0o755 else not daemon.messages,
                    f"{calls} calls, {len(daemon.messages)} messages",
                )
    end()


if sys.argv[2:] == ["inner"]:
    inner()
if os.getuid() != 0 or not shutil.which("unshare") or subprocess.run(["unshare", "-m", "true"]).returncode:
    sys.exit(77)
sys.exit(subprocess.run(["unshare", "-m", "--propagation", "private", sys.executable, *sys.argv, "inner"]).returncode)
