#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An image worker in the hands of an attacker: whatever it replies, the program gets its own image, and the reason is told."""

import contextlib
import json
import os
import sys
import tempfile

from harness import BUILD, COUNTER, CTL, GPUPROBED, Daemon, as_user, check, equal, main, need, wait_until
from wire import Shim

need(GPUPROBED, CTL, COUNTER)
PROGRAM_WORKER = os.path.join(BUILD, "daemon/translator/gpuprobe-program-worker")
PTX = b".version 8.0\n.target sm_90\n.address_size 64\n"

# Replies with what FILE says (JSON, or text), after it has written N bytes into its output.
WORKER = """#!{python}
import array, json, os, socket, sys
s = socket.socket(fileno=3)
s.send(b'{{"ready":true,"features":{{}}}}')
while True:
    data, ancillary, _, _ = s.recvmsg(131072, 4096)
    if not data:
        break
    fds = array.array("i", ancillary[0][2])
    request = json.loads(data)
    plan = json.load(open({plan!r}))
    os.pwrite(fds[1], b"x" * plan["write"], 0)
    for key in "instructions", "text_output":
        if key in plan and key in request:
            os.pwrite(fds[request[key]], plan[key].encode(), 0)
    with open({plan!r} + ".request", "w") as file:
        json.dump(request, file)
    reply = plan["reply"]
    if isinstance(reply, dict):
        reply = json.dumps({{"id": request["id"], **reply}})
    s.send(reply.encode())
    for fd in fds:
        os.close(fd)
"""
# What an image with EVIL in it takes over.
TAKEN_OVER = """#!{python}
import array, json, os, socket
s = socket.socket(fileno=3)
s.send(b'{{"ready":true,"features":{{}}}}')
evil = False
while True:
    data, ancillary, _, _ = s.recvmsg(131072, 4096)
    if not data:
        break
    fds = array.array("i", ancillary[0][2])
    request = json.loads(data)
    evil = evil or b"EVIL" in os.pread(fds[request["input"]], 1 << 20, 0)
    os.pwrite(fds[request["output"]], b"POISON" if evil else b"HONEST", 0)
    ids = [a["id"] for a in request["attachments"]]
    s.send(json.dumps({{"id": request["id"], "status": "made", "size": 6, "applied": ids,
                        "kernels": [{{"name": "k", "demangled": "k", "attachments": ids}}]}}).encode())
    for fd in fds:
        os.close(fd)
"""
GOOD = {"status": "made", "size": 100, "applied": [1], "kernels": [{"name": "k", "demangled": "k()", "attachments": [1]}]}


def changed(**members):
    return {k: v for k, v in {**GOOD, **members}.items() if v is not None}


LIES = [
    (100, changed(size=99)),
    (100, changed(size=101)),
    (100, changed(size=-1)),
    (100, changed(size="100")),
    (100, changed(size=None)),
    (0, changed(size=0)),
    (100, changed(applied=[])),
    (100, changed(applied=[2])),
    (100, changed(applied=[1, 1])),
    (100, changed(applied=[-1])),
    (100, changed(applied=["1"])),
    (100, changed(applied=None)),
    (100, changed(applied={})),
    (100, changed(applied=[18446744073709551617])),
    (100, changed(status="fine")),
    (100, changed(status=7)),
    (100, changed(status=None)),
    (100, changed(kernels=7)),
    (100, changed(kernels=[7])),
    (100, changed(kernels=[{}])),
    (100, changed(kernels=[{"name": 7}])),
    (100, changed(kernels=[{"name": "k", "attachments": [9]}])),
    (100, changed(kernels=[{"name": "k"}] * 501)),
    (100, changed(id=4711)),
    (100, changed(id="1")),
    (100, "{}"),
    (100, "[]"),
    (100, "null"),
    (100, "7"),
    (100, "x"),
    (100, "{" * 100),
    (100, '{"id":1,"status":"made"} '),
    (100, "\0"),
    (100, '{"id":1,"status":"\udcff"}'.encode("utf-8", "surrogateescape").decode("latin1")),
    (100, {"status": "error"}),
    (100, {"status": "error", "error": 7, "message": 7}),
    (100, {"status": "error", "error": "image", "message": "\x1b]0;title\x07 no"}),
    (100, changed(instructions_size=1)),
    (100, changed(instructions_size=-1)),
    (100, changed(instructions_size="0")),
    (0, {"status": "own"}),
    (0, {"status": "own", "reason": 7}),
    (0, {"status": "own", "reason": "x" * 10000}),
]


@contextlib.contextmanager
def lying_daemon(*options):
    """A daemon with such a worker. Gives it and ask(number, write, reply, ...), which loads an image and says what came of it."""
    with tempfile.TemporaryDirectory() as folder:
        plan = os.path.join(folder, "plan")
        worker = os.path.join(folder, "gpuprobe-image-worker")
        with open(worker, "w") as file:
            file.write(WORKER.format(python=sys.executable, plan=plan))
        os.chmod(worker, 0o755)
        os.symlink(PROGRAM_WORKER, os.path.join(folder, "gpuprobe-program-worker"))
        with Daemon(f"--worker-dir={folder}", "--workers=4", *options) as daemon:
            shim = Shim(daemon.directory, timeout=30)

            def ask(number, write, reply, **more):
                with open(plan, "w") as file:
                    json.dump({"write": write, "reply": reply, **more}, file)
                result = shim.image(PTX + b"// %d\n" % number)
                if os.path.exists(plan + ".request"):
                    with open(plan + ".request") as file:
                        daemon.request = json.load(file)
                return result

            yield daemon, ask
            shim.close()


def test_lies():
    with lying_daemon() as (daemon, ask):
        daemon.attach("--kernel", "*")
        for number, (write, reply) in enumerate(LIES):
            new, _, reason, slots = ask(number, write, reply)
            check(new is None and not slots, "believed:", reply)
            check(reason and reason.isascii() and reason.isprintable(), reply, "reason:", reason)
            outcome = daemon.why()[0]
            check(outcome["outcome"] in ("failed", "not-probed") and outcome["reason"].isprintable(), outcome)
        new, _, reason, slots = ask(-1, 100, GOOD)  # the truth is believed, so the lies were refused for what they are
        equal((new, len(slots)), (b"x" * 100, 1), reason)
        equal(daemon.why()[0]["outcome"], "probed")


def test_requests():
    """What the worker is asked for: points, spaces, contexts, stubs."""
    with lying_daemon("--stub=one", "--stub", "two") as (daemon, ask):
        points = ["kprobe/f", "kretprobe/f", "memcapture/dev:f", "kprobe/f@x.cu:12", "kprobe/f@block:3"]
        for point in points:
            daemon.attach("--point", point, *(["--spaces=shared,param"] if "memcapture" in point else []))
        equal([a["section"] for a in daemon.attachments()], points)
        equal([(a["point"], a["kernel"]) for a in daemon.attachments()], [("entry", "f"), ("return", "f"), ("memory", "f"), ("line", "f"), ("block", "f")])
        ask(0, 0, {"status": "own", "reason": "no such point in kernel f: line x.cu:12", "kernels": [{"name": "f", "demangled": "f", "attachments": [4]}]})
        request = daemon.request
        equal((request["stubs"], request["call"], request["stage"], "text_output" in request), (["one", "two"], False, "all", False))
        check(0 < request["image"] < 1 << 31, request)
        for attachment in request["attachments"]:
            check(attachment.pop("program").startswith("__gpuprobe_o"), request)
        equal(
            request["attachments"],
            [
                {"id": 1, "kernel": "f", "device_function": False, "point": "entry"},
                {"id": 2, "kernel": "f", "device_function": False, "point": "return"},
                {"id": 3, "kernel": "f", "device_function": True, "point": "memory", "spaces": ["shared", "param"]},
                {"id": 4, "kernel": "f", "device_function": False, "point": "line", "file": "x.cu", "line": 12},
                {"id": 5, "kernel": "f", "device_function": False, "point": "block", "block": 3},
            ],
        )
        equal([program["context"] for program in request["programs"]], [[]] * 5)
        outcome = daemon.why()[0]
        equal((outcome["kernel"], outcome["outcome"], outcome["reason"]), ("f", "not-probed", "no such point in kernel f: line x.cu:12"))
        daemon.ctl("detach", "2")
        ask(1, 0, {"status": "own", "reason": "x"})
        equal([attachment["id"] for attachment in daemon.request["attachments"]], [1, 3, 4, 5])


def test_instructions():
    """Lists of instructions are shown, as far as they make sense."""
    with lying_daemon() as (daemon, ask):
        daemon.attach("--kernel", "*")

        def show(number, text):
            new, _, reason, _ = ask(number, 100, changed(instructions_size=len(text)), instructions=text)
            check(new, reason)
            return daemon.request["image"]

        image = show(
            0,
            '[{"index":0,"kernel":"k","text":"ld.global.u32 %r1, [%rd1];","file":"x.cu","line":3},'
            '{"index":1,"kernel":"other","text":"bar"},{"index":2,"kernel":"k","text":"\\u001b]0;t\\u0007"}]',
        )
        shown = daemon.json("kernel", "show", "k")["instructions"]
        equal(
            [(int(i["id"], 16), i["text"], i.get("line")) for i in shown], [(image << 32, "ld.global.u32 %r1, [%rd1];", 3), (image << 32 | 2, "?]0;t?", None)]
        )
        equal(daemon.json("kernel", "show", "--instruction", f"{image << 32 | 1:x}")["instructions"][0]["kernel"], "other")
        (kernel,) = daemon.json("kernel", "list")["kernels"]
        equal((kernel["name"], kernel["pids"], kernel["attachments"]), ("k", [os.getpid()], [1]))
        equal(len(daemon.json("kernel", "show", kernel["id"])["instructions"]), 2)
        for number, text in enumerate(
            (
                '{"index":0}',
                "[" * 1000,
                '[{"index":-1,"kernel":"k","text":"x"}]',
                '[{"index":0,"kernel":7,"text":"x"}]',
                '[{"index":0,"kernel":"k","text":"' + "x" * 100000 + '"}]',
                '["k"]',
                "\0",
            ),
            1,
        ):
            image = show(number, text)
            daemon.ctl("kernel", "show", "--instruction", f"{image << 32:x}", status=5)
        equal(len(daemon.json("kernel", "show", "k")["instructions"]), 2)  # those of the others are as they were


def test_artifacts():
    with tempfile.TemporaryDirectory() as folder:
        kept = os.path.join(folder, "kept")
        with lying_daemon(f"--keep-artifacts={kept}") as (daemon, ask):
            daemon.attach("--kernel", "*")
            text = "// PTX after all passes"
            for number in 0, 1, 0:  # the third comes from the cache
                ask(number, 100, changed(text_size=len(text)), text_output=text)
            equal((daemon.request["call"], "text_output" in daemon.request), (True, True))
            ask(2, 0, {"status": "own", "reason": "no twin: not kept"})
            wait_until(lambda: os.path.exists(os.path.join(kept, "2-k")), "both are there")
            equal(sorted(os.listdir(kept)), ["1-k", "2-k"])
            for name in "1-k", "2-k":
                with open(os.path.join(kept, name, "main.ptx")) as file:
                    equal(file.read(), text)
                with open(os.path.join(kept, name, "out.fatbin"), "rb") as file:
                    equal(file.read(), b"x" * 100)


def test_modules():
    """A module does not hold its image: when nobody can ask for that any more, it is given up."""
    with lying_daemon() as (daemon, ask):

        def outputs():
            folder = f"/proc/{daemon.process.pid}/fd"
            links = []
            for name in os.listdir(folder):
                with contextlib.suppress(OSError):
                    links.append(os.readlink(f"{folder}/{name}"))
            return sum("gpuprobe-output" in link for link in links)

        daemon.attach("--kernel", "*")
        for number in range(40):
            new, _, reason, _ = ask(number, 100, changed(instructions_size=2), instructions="[]")
            check(new, reason)
        check(outputs() >= 80, outputs())
        daemon.ctl("detach", "1")
        wait_until(lambda: outputs() <= 40, "images are given up")
        equal(outputs(), 40, "lists of instructions")


def test_other_users():
    """What a worker says of one user's image after it has had another's is forgotten: the next process of his has an answer of a worker for him alone."""
    if os.getuid() != 0:
        return
    with tempfile.TemporaryDirectory() as folder:
        worker = os.path.join(folder, "gpuprobe-image-worker")
        with open(worker, "w") as file:
            file.write(TAKEN_OVER.format(python=sys.executable))
        os.chmod(worker, 0o755)
        os.symlink(PROGRAM_WORKER, os.path.join(folder, "gpuprobe-program-worker"))
        with Daemon(f"--worker-dir={folder}", "--workers=1") as daemon:
            daemon.attach("--kernel", "*")

            def load(uid, data):
                with as_user(uid):
                    shim = Shim(daemon.directory, timeout=30)
                new = shim.image(data)[0]
                shim.close()
                return new

            equal(load(1001, b"EVIL"), b"POISON")
            load(1002, b"his")  # by the only worker that there is
            equal([load(1002, b"his"), load(1002, b"his")], [b"HONEST"] * 2)
            cached = [s["value"] for s in daemon.status()["statistics"] if s["group"] == "images" and s["name"] == "from_memory"]
            equal(cached, [1], "and that is kept")


if __name__ == "__main__":
    main([test_lies, test_requests, test_instructions, test_artifacts, test_modules, test_other_users])
