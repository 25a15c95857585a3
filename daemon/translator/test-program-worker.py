#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program worker as the daemon meets it: started with a socket as descriptor 3, asked to link and compile.

usage: test-program-worker.py WORKER FOLDER_OF_OBJECTS [PTXAS]: takes the patch forms, too"""

import array
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import patch_text

F_ADD_SEALS, SEALS = 1033, 0x1 | 0x2 | 0x4 | 0x8


class Worker:
    def __init__(self, path, *arguments):
        self.socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(60)

        def prepare():
            os.dup2(other.fileno(), 3)  # inheritable, unlike other

        self.process = subprocess.Popen([path, *arguments], preexec_fn=prepare, close_fds=False)
        other.close()
        self.ready = json.loads(self.socket.recv(1 << 17))
        self.id = 0

    def send(self, request, fds):
        self.id += 1
        request["id"] = self.id
        self.socket.sendmsg([json.dumps(request).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])

    def ask(self, request, fds):
        self.send(request, fds)
        reply = json.loads(self.socket.recv(1 << 17))
        assert reply.pop("id") == self.id
        return reply

    def end(self):
        self.socket.close()
        return self.process.wait(10)


def sealed(data):
    fd = os.memfd_create("input", os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    fcntl.fcntl(fd, F_ADD_SEALS, SEALS)
    return fd


def content(fd):
    return os.pread(fd, os.fstat(fd).st_size, 0)


def link(worker, data):
    source, output = sealed(data), os.memfd_create("output", os.MFD_ALLOW_SEALING)
    reply = worker.ask({"job": "link", "input": 0, "output": 1}, [source, output])
    blob = content(output)
    os.close(source)
    os.close(output)
    return reply, blob


def compile(worker, linked, blob, patches=None, **change):
    """The reply and the texts; `patches`: which programs' patch forms are wanted, whose texts follow."""
    programs = [(i, p) for i, p in enumerate(linked["programs"]) if p["gpu"]]
    outputs = [os.memfd_create("ptx", os.MFD_ALLOW_SEALING) for _ in programs]
    maps = [dict(m, slot_symbol=f"__gpuprobe_o1_m{i}", place=0, threads=0, ring_bytes=0) for i, m in enumerate(linked["maps"])]
    request = {
        "job": "compile",
        "input": 0,
        "prefix": "__gpuprobe_o1",
        "maps": maps,
        "thread": linked["thread"],
        "programs": [{"index": i, "name": p["name"], "insns": p["insns"], "line_info": p["line_info"], "output": n + 1} for n, (i, p) in enumerate(programs)],
    }
    for n in patches or []:
        request["programs"][n]["patch_output"] = len(outputs) + 1
        outputs.append(os.memfd_create("patch", os.MFD_ALLOW_SEALING))
    request.update(change)
    source = sealed(blob)
    reply = worker.ask(request, [source] + outputs)
    texts = [content(fd).decode() for fd in outputs]
    for fd in [source] + outputs:
        os.close(fd)
    return reply, texts


def check_thread(worker, read):
    """Variables of a thread: words behind the context's fields; their names are in the object's types."""
    linked, blob = link(worker, read("thread"))
    assert 21 <= linked["thread"] <= 24 and not any("thread" in m["name"] for m in linked["maps"]), linked
    reply, texts = compile(worker, linked, blob)
    contexts = {p["name"]: program["context"] for p, program in zip(linked["programs"], reply["programs"])}
    words = {1024, 1032, 1040}
    assert len(contexts["only_thread"]) == 1 and set(contexts["only_thread"]) < words, contexts
    assert contexts["cuda__access"][:2] == [16, 32] and set(contexts["cuda__access"][2:]) == words, contexts
    assert all(".func  (.param .align 8 .b8 func_retval0[" in text and "local" not in text for text in texts), texts
    linked, blob = link(worker, read("thread-address"))
    said, _ = compile(worker, linked, blob, btf=linked["btf"])
    assert "the address of slot, a variable of a thread, which is a register" in said["message"], said
    for btf in {"offset": 0, "size": 8}, {"offset": linked["btf"]["offset"], "size": linked["btf"]["size"] - 8}:
        said, _ = compile(worker, linked, blob, btf=btf)  # types that are none
        assert "the address of a variable of a thread, which is a register" in said["message"], said
    for thread in 65, -1, "8":
        said, _ = compile(worker, linked, blob, thread=thread)
        assert said["error"] == "internal", said
    said, _ = compile(worker, linked, blob, thread=0)
    assert "refers to map 64 of 1" in said["message"], said


def check_patches(worker, read):
    """The job's part of patch forms."""
    linked, blob = link(worker, read("counter"))
    reply, texts = compile(worker, linked, blob)
    assert not any(name.startswith("patch") for name in reply["programs"][0]), reply
    reply, (text, patch) = compile(worker, linked, blob, [0])
    program = reply["programs"][0]
    assert text == texts[0] and program["size"] == len(text), reply  # no other for that
    assert program["patch_size"] == len(patch) and program["patch_maps"] == 2 and "patch_reason" not in program, reply
    assert ".func  (.param .b64 func_retval0) __gpuprobe_o1_p0(" in patch and "__gpuprobe_o1_m0" not in patch, patch
    assert reply["maps"] == [{"merge": 1, "used": True, "resident": True}], reply

    # the fields of its context follow the slots
    linked, blob = link(worker, read("context"))
    reply, (_, patch) = compile(worker, linked, blob, [0])
    assert reply["programs"][0]["context"] == [64, 160] and patch.count(".param .b64 __gpuprobe_o1_p0_param_") == 3, patch

    # of several programs, the second; its maps are some of the object's
    linked, blob = link(worker, read("sections"))
    reply, texts = compile(worker, linked, blob, [1])
    assert "patch_size" not in reply["programs"][0] and texts[-1].count("__gpuprobe_o1_p1(") == 1, reply
    assert reply["programs"][1]["patch_maps"] == 1 + len(reply["programs"][1]["maps"]), reply

    # a thread cannot end there
    linked, blob = link(worker, read("exit"))
    reply, (text, patch) = compile(worker, linked, blob, [0])
    program = reply["programs"][0]
    assert reply["status"] == "compiled" and "exit;" in text and patch == "", reply
    assert (program["patch_size"], program["patch_maps"]) == (0, 0), reply
    assert program["patch_reason"] == "bpf_cuda_exit ends a thread, which the sanitizer engine cannot", reply

    linked, blob = link(worker, read("counter"))
    for lie in (99, -1, "x", None):
        reply, _ = compile(
            worker, linked, blob, programs=[{"index": 0, "name": "p", "insns": linked["programs"][0]["insns"], "output": 1, "patch_output": lie}]
        )
        assert reply["status"] == "error" and "patch_output" in reply["message"], reply


def check_ptxas(worker, folder, ptxas):
    """The CUDA compiler takes the patch forms of all objects that the worker translates."""
    count = 0
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".bpf.o"):
            continue
        with open(f"{folder}/{name}", "rb") as file:
            linked, blob = link(worker, file.read())
        if linked["status"] != "linked" or not any(p["gpu"] for p in linked["programs"]):
            continue
        wanted = range(sum(p["gpu"] for p in linked["programs"]))
        reply, texts = compile(worker, linked, blob, wanted)
        forms = [text for text in texts[len(wanted) :] if text] if reply["status"] == "compiled" else []
        for sm in (75, 90, 100) if forms else ():
            refused, functions, registers = patch_text.compile(ptxas, sm, patch_text.module(forms, sm))
            assert not refused, (name, sm, refused)
            spills = [functions[p["symbol"]][1] for p in reply["programs"] if p["patch_size"]]
            print(f"{name}, sm_{sm}: registers {registers}, bytes of spills {spills}")
            count += len(forms)
    assert count >= 3 * 20, count


def main(path, folder, ptxas=None):
    def read(name):
        with open(f"{folder}/{name}.bpf.o", "rb") as file:
            return file.read()

    worker = Worker(path)
    assert worker.ready["ready"] is True, worker.ready
    assert worker.ready["features"]["libbpf"].startswith("v1"), worker.ready

    linked, blob = link(worker, read("counter"))
    assert linked["status"] == "linked" and linked["size"] == len(blob), linked
    reply, texts = compile(worker, linked, blob)
    assert reply["status"] == "compiled", reply
    program, layout = reply["programs"][0], reply["maps"][0]
    assert program["symbol"] == "__gpuprobe_o1_p0" and program["size"] == len(texts[0])
    assert program["maps"] == [0] and program["local_bytes"] == 0 and program["context"] == []
    assert layout == {"merge": 1, "used": True, "resident": True} and not program["process"]
    assert ".visible .global .align 128 .b8 __gpuprobe_o1_m0[32768];" in texts[0], texts[0]  # the data itself
    assert "__gpuprobe_o1_p0" in texts[0], texts[0]

    # two programs with functions, data sections, every helper, rings, sections
    for name, count in (
        ("calls", 2),
        ("globals", 1),
        ("helpers", 1),
        ("numbers", 2),
        ("gpu-array", 1),
        ("percpu", 1),
        ("hash-ring", 1),
        ("rings", 1),
        ("exit", 1),
        ("sections", 7),
    ):
        linked, blob = link(worker, read(name))
        assert linked["status"] == "linked", linked
        reply, texts = compile(worker, linked, blob)
        assert reply["status"] == "compiled" and len(reply["programs"]) == count, (name, reply)
        assert all(p["symbol"] in t for p, t in zip(reply["programs"], texts)), name

    # the fields of its context are a program's parameters
    linked, blob = link(worker, read("context"))
    reply, texts = compile(worker, linked, blob)
    assert reply["programs"][0]["context"] == [64, 160], reply
    assert texts[0].count(".param .b64 __gpuprobe_o1_p0_param_") == 2, texts[0]

    # the log is a map, the process a slot
    linked, blob = link(worker, read("log"))
    assert linked["maps"][-1]["internal"] == "log", linked
    reply, texts = compile(worker, linked, blob)
    program = reply["programs"][0]
    assert program["process"] and len(linked["maps"]) - 1 in program["maps"] and program["target"] == 70, reply
    assert ".visible .const .align 8 .b8 __gpuprobe_process[64];\n" in texts[0], texts[0]

    check_patches(worker, read)
    check_thread(worker, read)
    if ptxas:
        check_ptxas(worker, folder, ptxas)

    # a program that a GPU cannot run: said, with its name
    linked, blob = link(worker, read("context-beyond"))
    reply, _ = compile(worker, linked, blob)
    assert reply["status"] == "error" and reply["error"] == "program", reply
    assert "cuda__context_beyond" in reply["message"] and "\n" not in reply["message"], reply
    assert "context-beyond.bpf.c" not in reply["message"], reply
    # and with its source line, if the strings are there
    said, _ = compile(worker, linked, blob, btf=linked["btf"])
    assert said["message"].startswith(reply["message"] + ": ") and "ctx + 168" in said["message"], said
    assert re.search(r" @ context-beyond\.bpf\.c:\d+$", said["message"]), said
    # strings that are none
    for btf in ({"offset": 0, "size": 8}, {"offset": 0, "size": len(blob)}, {"offset": linked["btf"]["offset"], "size": linked["btf"]["size"] - 1}, None):
        said, _ = compile(worker, linked, blob, btf=btf)
        assert said["message"] == reply["message"], said
    said, _ = compile(worker, linked, blob, btf={"offset": 0, "size": len(blob) + 8})
    assert said["error"] == "internal", said

    # no object, and one that does not link
    reply, _ = link(worker, b"not an object" * 100)
    assert (reply["status"], reply["error"], reply["message"]) == ("error", "object", "not an ELF file"), reply
    reply, _ = link(worker, read("extern"))
    assert (reply["status"], reply["error"]) == ("error", "object") and "libbpf: " in reply["log"], reply

    # requests that lie
    linked, blob = link(worker, read("counter"))
    for change in (
        {"prefix": "a b"},
        {"prefix": "x" * 200},
        {"maps": [{}]},
        {"maps": 3},
        {"programs": []},
        {"maps": [dict(m, slot_symbol="m", place=3, threads=0, ring_bytes=0) for m in linked["maps"]]},
        {"maps": [dict(m, slot_symbol="m", place=0, threads=-1, ring_bytes=0) for m in linked["maps"]]},
        {"programs": [{"index": 0, "name": "p", "output": 1, "insns": {"offset": 0, "count": 30000}}]},
        {"programs": [{"index": 0, "name": "p", "output": 9, "insns": linked["programs"][0]["insns"]}]},
        {"programs": [{"index": -1, "name": "p", "output": 1, "insns": linked["programs"][0]["insns"]}]},
    ):
        reply, _ = compile(worker, linked, blob, **change)
        assert reply["status"] == "error" and reply["error"] == "internal", (change, reply)
    # instructions that are none
    reply, _ = compile(worker, linked, b"\xff" * len(blob))
    assert reply["status"] == "error" and reply["error"] == "program", reply
    assert worker.end() == 0

    start = time.monotonic()
    worker = Worker(path)
    ready = time.monotonic()
    linked, blob = link(worker, read("counter"))
    linked_at = time.monotonic()
    compile(worker, linked, blob)
    end = time.monotonic()
    print(f"start {1e3 * (ready - start):.1f} ms, link {1e3 * (linked_at - ready):.1f} ms, compile {1e3 * (end - linked_at):.1f} ms")
    worker.end()

    # faults on purpose, for the daemon's tests
    worker = Worker(path, "--test-fault=crash")
    worker.send({"job": "link", "input": 0, "output": 0}, [sealed(b"x")])
    assert worker.socket.recv(10) == b"" and worker.process.wait(10) == -signal.SIGSEGV
    worker = Worker(path, "--test-fault=garbage")
    worker.send({"job": "link", "input": 0, "output": 0}, [sealed(b"x")])
    try:
        json.loads(worker.socket.recv(1 << 17))
        raise AssertionError("no garbage")
    except ValueError:
        pass
    worker.end()
    worker = Worker(path, "--test-fault=hang")
    worker.send({"job": "link", "input": 0, "output": 0}, [sealed(b"x")])
    worker.socket.settimeout(0.5)
    try:
        worker.socket.recv(10)
        raise AssertionError("an answer")
    except TimeoutError:
        worker.process.kill()
        worker.process.wait()


if __name__ == "__main__":
    if len(sys.argv) < 3 or not sys.argv[2]:
        sys.exit(77)  # no clang 19
    main(*sys.argv[1:4])
