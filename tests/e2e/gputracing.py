# SPDX-License-Identifier: Apache-2.0
"""Runs gputrace for tests: with a private daemon or one that is there, as root or as nobody."""

import contextlib
import glob
import json
import os
import subprocess

from harness import BUILD, GPUPROBED, SHIM, SIM, VEC_ADD, equal, need

GPUTRACE = os.path.join(BUILD, "ctl/gputrace/gputrace")
need(GPUPROBED, GPUTRACE, SHIM, VEC_ADD)
NOBODY = 65534
KERNEL = "vectorAdd(float const*, float const*, float*)"
THREADS, BLOCK, LAUNCHES = 512, 128, 3
APP = [VEC_ADD, "--threads", str(THREADS), "--block", str(BLOCK), "--launches", str(LAUNCHES)]


def environment(**more):
    clean = {name: value for name, value in os.environ.items() if name != "GPUPROBE_SESSION"}
    return {**clean, "LD_LIBRARY_PATH": SIM, **more}


started = set()  # process ids of gputrace


def start(*arguments, app=None, environment, **more):
    process = subprocess.Popen(
        [GPUTRACE, *arguments, *(["--", *app] if app else [])], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more
    )
    started.add(process.pid)
    return process


def as_nobody():
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def gputrace(*arguments, status=0, user=None, app=APP, text=None, **more):
    """Runs it with a private daemon: output without the application's line, standard error."""
    process = start(*arguments, app=app, preexec_fn=user, stdin=subprocess.PIPE, cwd="/", environment=environment(**more))
    try:
        out, err = process.communicate(text, timeout=100)
    finally:
        process.kill()
    equal(process.returncode, status, f"gputrace {arguments}: {out}{err}")
    return "".join(line for line in out.splitlines(True) if not line.startswith("threads=")), err


def maps(script, **more):
    """{map: {keys: value}} of a script, by its JSON."""
    out, err = gputrace("-f", "json", "-e", script, **more)
    found = {}
    for line in out.splitlines():
        item = json.loads(line) if line.startswith("{") else {"type": "of the program"}
        if item["type"] == "map":
            found[item["name"]] = {tuple(entry["keys"]): entry["value"] for entry in item["entries"]}
    return found, err


def private_daemons():
    """Folders of those that this test has started; others may run tests, too."""
    paths = [path for uid in (0, os.getuid(), NOBODY) for folder in ("/tmp", f"/run/user/{uid}") for path in glob.glob(f"{folder}/gpuprobe*gputrace_*")]
    return sorted({path for path in paths if int(path.rsplit("_", 1)[1]) in started})


@contextlib.contextmanager
def running(daemon, *arguments, app=None):
    """gputrace beside a daemon that is there already."""
    process = start(*arguments, app=app, environment=environment(GPUPROBE_SESSION=daemon.name))
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
