#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An image worker that makes no patches, fails, or lies about plans: what attach says of it, and what a process gets."""

import contextlib
import json
import os
import struct
import sys
import tempfile

import wire
from harness import BUILD, COUNTER, CTL, GPUPROBED, Daemon, as_user, check, equal, main, need

need(GPUPROBED, CTL, COUNTER)
PROGRAM_WORKER = os.path.join(BUILD, "daemon/translator/gpuprobe-program-worker")
NAMES = wire.names((1, 0, ["k"]))

# Does what FILE says for jobs with names and without: dies, or writes bytes and replies. FILE.log says which had what.
WORKER = """#!{python}
import array, json, os, socket
s = socket.socket(fileno=3)
s.send(b'{{"ready":true,"features":{{"patch":"a liar"}}}}')
while True:
    data, ancillary, _, _ = s.recvmsg(131072, 4096)
    if not data:
        break
    fds = array.array("i", ancillary[0][2])
    request = json.loads(data)
    job = "names" if "names" in request else request["job"]
    mood = json.load(open({mood!r}))["image" if job == "patch" else "names"]
    with open({mood!r} + ".log", "a") as log:
        print(os.getpid(), job, file=log)
    if mood is None:
        os._exit(1)
    written = bytes.fromhex(mood.get("write", ""))
    os.pwrite(fds[request["output"]], written, 0)
    s.send(json.dumps({{"id": request["id"], "status": "planned", "size": len(written), **mood["reply"]}}).encode())
    for fd in fds:
        os.close(fd)
"""


def plan(*kernels, size=None, data_size=48, points=1, image_id=1):
    """Of one program with one map: 32 bytes, two slots."""
    head, image = 64 + 64, bytes(16)
    body = struct.pack("<II56s", 1, 0, b"f") + image + b"".join(struct.pack("<IIQQ", 0, 0, 1, bits) for bits in kernels)
    return (
        struct.pack(
            "<IIQQQQIIIIII", 0x50525047, 1, 64 + len(body) if size is None else size, head, 16, image_id, 64, points, head + 16, len(kernels), data_size, 0
        )
        + body
    )


def good(data, **reply):
    return {"write": data.hex(), "reply": reply}


def refused(word, message):
    return {"reply": {"status": "error", "error": word, "message": message}}


@contextlib.contextmanager
def lying_daemon(*options):
    """The daemon, a shim that it knows, and mood(image, names)."""
    with tempfile.TemporaryDirectory() as folder:
        path, worker = os.path.join(folder, "mood"), os.path.join(folder, "gpuprobe-image-worker")
        with open(worker, "w") as file:
            file.write(WORKER.format(python=sys.executable, mood=path))
        os.chmod(worker, 0o755)
        os.symlink(PROGRAM_WORKER, os.path.join(folder, "gpuprobe-program-worker"))

        def mood(image, names=None):
            with open(path, "w") as file:
                json.dump({"image": image, "names": names}, file)

        mood.log = path + ".log"
        with Daemon(f"--worker-dir={folder}", "--engine=sanitizer", *options) as daemon:
            shim = wire.Shim(daemon.directory, timeout=30)
            equal(shim.image(NAMES, kind=wire.NAMES)[2], "no attachment means this process")
            yield daemon, shim, mood
            shim.close()


def test_no_patches():
    """For the sanitizer engine alone: refused, and nothing stays. With auto: attached, and it is told why not."""
    for image, word in (
        (refused("compile", "too many registers"), "too many registers"),
        (refused("unsupported", "no nvPTXCompiler here"), "no nvPTXCompiler"),
        (None, ""),
        (good(b"x" * 200), "malformed"),
        (good(plan(1)), "malformed"),
        (good(plan(data_size=64)), "malformed"),
        (good(plan(points=2)), "malformed"),
        (good(plan(), size=1), "malformed"),
        (good(plan(), size="x"), "malformed"),
    ):
        with lying_daemon() as (daemon, shim, mood):
            mood(image)
            error = daemon.ctl("attach", COUNTER, "--engine", "sanitizer", status=1)
            equal((error, daemon.attachments(), daemon.json("map", "list")["maps"]), ("", [], []), word)
            (attachment,) = daemon.attach()
            new, _, reason, slots = shim.image(NAMES, kind=wire.NAMES)
            check(new is None and not slots and reason.isprintable(), word, reason)
            if word == "too many registers":  # the program's fault: known for good
                equal(daemon.json("program", "show", str(attachment))["programs"][0]["sanitizer"], word)
            elif word:
                check(word in reason, reason)
            check(any(word in outcome["reason"] for outcome in daemon.why()), word)


def test_alone():
    """The image that processes of all users get is of a worker that has seen nobody's bytes."""
    if os.getuid() != 0:
        return
    with lying_daemon("--workers=1") as (daemon, shim, mood):
        mood(good(plan()), {"reply": {"status": "own", "reason": "x"}})
        daemon.attach("--engine", "sanitizer")
        with as_user(1001):
            other = wire.Shim(daemon.directory, timeout=30)
        for number in range(2):
            other.image(wire.names((number, 0, ["k"])), kind=wire.NAMES)
        daemon.attach("--engine", "sanitizer")
        with open(mood.log) as file:
            jobs = [line.split() for line in file]
        equal([job for _, job in jobs][:4], ["patch", "names", "names", "patch"])
        pids = [pid for pid, _ in jobs]
        equal([pids.count(pid) for pid, job in jobs if job == "patch"], [1] * (len(jobs) - 2), jobs)
        other.close()


def test_lies_about_names():
    with lying_daemon() as (daemon, shim, mood):
        mood(good(plan()))
        (attachment,) = daemon.attach("--engine", "sanitizer")
        kernels = [{"name": "k", "demangled": "k()", "attachments": [attachment]}]
        lies = [
            good(plan(2), kernels=kernels),
            good(plan(0), kernels=kernels),
            good(plan(1, data_size=4096)),
            good(plan(1, size=1 << 40)),
            good(plan(1, image_id=0)),
            good(plan(1)[:-8], size=len(plan(1))),
            good(b""),
            good(plan(1), size=-1),
            good(plan(1), kernels=[{"name": "k", "attachments": [attachment + 1]}]),
            good(plan(1), kernels=7),
            None,
        ]
        for number, lie in enumerate(lies):
            mood(good(plan()), lie)
            new, _, reason, slots = shim.image(wire.names((number, 0, ["k"])), kind=wire.NAMES)
            check(new is None and not slots and reason.isprintable() and reason, lie, reason)
        mood(good(plan()), good(plan(1), kernels=kernels))
        new, module, _, slots = shim.image(wire.names((99, 0, ["k"])), kind=wire.NAMES)
        equal((new, len(slots)), (plan(1), 2), "the truth")
        check(all(outcome["outcome"] != "probed" for outcome in daemon.why()), "before it is armed")
        shim.send(wire.message(wire.ARMED, module, 0, 0))
        equal(shim.instance(slots[1][0])[1] > 0, True)
        equal([(o["kernel"], o["engine"]) for o in daemon.why() if o["outcome"] == "probed"], [("k", "sanitizer")])


if __name__ == "__main__":
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
