#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An image worker in the hands of an attacker: whatever it replies, the program gets its own image, and the reason is told."""
import json
import os
import sys
import tempfile

from harness import BUILD, COUNTER, CTL, GPUPROBED, SOURCE, Daemon, check, equal, main, need
from wire import Shim

need(GPUPROBED, CTL, COUNTER)
PROGRAM_WORKER = os.path.join(BUILD, "daemon/bpf/gpuprobe-program-worker")
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
    reply = plan["reply"]
    if isinstance(reply, dict):
        reply = json.dumps({{"id": request["id"], **reply}})
    s.send(reply.encode())
    for fd in fds:
        os.close(fd)
"""
GOOD = {"status": "replaced", "size": 100, "applied": [1], "kernels": [{"name": "k", "demangled": "k()", "attachments": [1]}]}


def changed(**members):
    return {k: v for k, v in {**GOOD, **members}.items() if v is not None}


LIES = [
    (100, changed(size=99)), (100, changed(size=101)), (100, changed(size=-1)), (100, changed(size="100")), (100, changed(size=None)),
    (0, changed(size=0)), (100, changed(applied=[])), (100, changed(applied=[2])), (100, changed(applied=[1, 1])),
    (100, changed(applied=[-1])), (100, changed(applied=["1"])), (100, changed(applied=None)), (100, changed(applied={})),
    (100, changed(applied=[18446744073709551617])), (100, changed(status="fine")), (100, changed(status=7)), (100, changed(status=None)),
    (100, changed(kernels=7)), (100, changed(kernels=[7])), (100, changed(kernels=[{}])), (100, changed(kernels=[{"name": 7}])),
    (100, changed(kernels=[{"name": "k", "attachments": [9]}])), (100, changed(kernels=[{"name": "k"}] * 501)),
    (100, changed(id=4711)), (100, changed(id="1")), (100, "{}"), (100, "[]"), (100, "null"), (100, "7"), (100, "x"), (100, "{" * 100),
    (100, '{"id":1,"status":"replaced"} '), (100, "\0"), (100, '{"id":1,"status":"\udcff"}'.encode("utf-8", "surrogateescape").decode("latin1")),
    (100, {"status": "error"}), (100, {"status": "error", "error": 7, "message": 7}),
    (100, {"status": "error", "error": "image", "message": "\x1b]0;title\x07 no"}),
    (0, {"status": "own"}), (0, {"status": "own", "reason": 7}), (0, {"status": "own", "reason": "x" * 10000}),
]


def test_lies():
    with tempfile.TemporaryDirectory() as folder:
        plan = os.path.join(folder, "plan")
        worker = os.path.join(folder, "gpuprobe-image-worker")
        with open(worker, "w") as file:
            file.write(WORKER.format(python=sys.executable, plan=plan))
        os.chmod(worker, 0o755)
        os.symlink(PROGRAM_WORKER, os.path.join(folder, "gpuprobe-program-worker"))
        with Daemon(f"--worker-dir={folder}", "--workers=4", "--deadline-ms=20000") as daemon:
            daemon.attach("--kernel", "*")
            shim = Shim(daemon.directory, timeout=30)

            def ask(number, write, reply):
                with open(plan, "w") as file:
                    json.dump({"write": write, "reply": reply}, file)
                return shim.image(PTX + b"// %d\n" % number)

            for number, (write, reply) in enumerate(LIES):
                new, _, reason, slots = ask(number, write, reply)
                check(new is None and not slots, "believed:", reply)
                check(reason and reason.isascii() and reason.isprintable(), reply, "reason:", reason)
                outcome = daemon.why()[0]
                check(outcome["outcome"] in ("failed", "not-probed") and outcome["reason"].isprintable(), outcome)
            new, _, reason, slots = ask(-1, 100, GOOD)  # the truth is believed, so the lies were refused for what they are
            equal((new, len(slots)), (b"x" * 100, 1), reason)
            equal(daemon.why()[0]["outcome"], "probed")
            shim.close()


if __name__ == "__main__":
    main([test_lies])
