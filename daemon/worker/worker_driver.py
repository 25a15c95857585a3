# SPDX-License-Identifier: Apache-2.0
"""Drives a worker as gpuprobed does: starts it with a socket on descriptor 3 and passes memfds. For tests."""

import fcntl
import json
import os
import socket
import struct
import subprocess

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL

PROBE = """\
.visible .global .align 8 .u64 __gpuprobe_o1_m0 = 0;
.func (.param .b64 r) __gpuprobe_o1_p0()
{
	.reg .pred %p;
	.reg .b64 %a, %one, %zero;
	mov.u64 %zero, 0;
	st.param.b64 [r], %zero;
	ld.global.u64 %a, [__gpuprobe_o1_m0];
	setp.eq.u64 %p, %a, 0;
	@%p ret;
	mov.u64 %one, 1;
	red.global.add.u64 [%a], %one;
	ret;
}
"""


def small_kernels(n, version="8.0", target="sm_75"):
    """A module in PTX of n small kernels, k0 and so on, of which no two are alike."""
    kernel = """\
.visible .entry k{i}(.param .u64 p, .param .u32 n)
{{
	.reg .b64 %rd<5>;
	.reg .b32 %r<6>;
	.reg .f32 %f<3>;
	.reg .pred %p<2>;
	ld.param.u64 %rd1, [p];
	ld.param.u32 %r1, [n];
	cvta.to.global.u64 %rd2, %rd1;
	mov.u32 %r2, %tid.x;
	mov.u32 %r3, %ctaid.x;
	mov.u32 %r4, %ntid.x;
	mad.lo.s32 %r5, %r3, %r4, %r2;
	setp.ge.s32 %p1, %r5, %r1;
	@%p1 bra END;
	mul.wide.s32 %rd3, %r5, 4;
	add.s64 %rd4, %rd2, %rd3;
	ld.global.f32 %f1, [%rd4];
	add.f32 %f2, %f1, 0f3F{i:06X};
	st.global.f32 [%rd4], %f2;
END:
	ret;
}}
"""
    return f".version {version}\n.target {target}\n.address_size 64\n" + "".join(kernel.format(i=i) for i in range(n))


def rank_kernels(n, target="sm_90"):
    """A module in PTX of n kernels that rank two keys among those of their warp, digit by digit: with a call before the atomic one needs more predicate registers than ptxas
    of CUDA 13.0 finds."""
    kernel = """\
.visible .entry rank{i}(.param .u64 p)
{{
	.reg .b32 %r<9>, %key<2>;
	.reg .b64 %rd<3>;
	.reg .pred %p<2>;
	.shared .align 4 .b8 counts[1024];
	ld.param.u64 %rd1, [p];
	mov.u32 %r1, %laneid;
	mul.wide.u32 %rd2, %r1, 4;
	add.s64 %rd1, %rd1, %rd2;
	ld.global.u32 %key0, [%rd1+{at}];
	ld.global.u32 %key1, [%rd1+128];
{ranks}	st.global.u32 [%rd1], %key0;
	st.global.u32 [%rd1+128], %key1;
	ret;
}}
"""
    bit = """\
	and.b32 %r4, %r2, {mask};
	setp.ne.u32 %p0, %r4, 0;
	vote.sync.ballot.b32 %r4, %p0, -1;
	@!%p0 not.b32 %r4, %r4;
	and.b32 %r3, %r3, %r4;
"""
    rank = """\
	and.b32 %r2, %key{k}, 255;
	mov.u32 %r3, -1;
{bits}	clz.b32 %r5, %r3;
	sub.s32 %r5, 31, %r5;
	popc.b32 %r6, %r3;
	mov.u32 %r7, 0;
	setp.ne.s32 %p1, %r1, %r5;
	@%p1 bra L{k};
	shl.b32 %r2, %r2, 2;
	mov.u32 %r8, counts;
	add.s32 %r8, %r8, %r2;
	atom.shared.add.u32 %r7, [%r8], %r6;
L{k}:
	shfl.sync.idx.b32 %r7, %r7, %r5, 31, -1;
	add.s32 %key{k}, %r7, %r6;
"""
    bits = "".join(bit.format(mask=1 << b) for b in range(8))
    ranks = "".join(rank.format(k=k, bits=bits) for k in range(2))
    return f".version 8.0\n.target {target}\n.address_size 64\n" + "".join(kernel.format(i=i, at=4 * i, ranks=ranks) for i in range(n))


def memfd(data, seal=True):
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    if seal:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    return fd


def contents(fd):
    """No buffer larger than that: meson's MALLOC_PERTURB_ writes to all of it."""
    return os.pread(fd, os.fstat(fd).st_size, 0)


class Died(Exception):
    pass


class Worker:
    def __init__(self, command, environment=None):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

        def prepare():
            os.dup2(theirs.fileno(), 3, inheritable=True)

        self.socket = ours
        self.socket.settimeout(60)
        self.process = subprocess.Popen(command, preexec_fn=prepare, close_fds=False, env=environment, stderr=subprocess.PIPE)
        theirs.close()
        self.hello = self.receive()

    def receive(self):
        try:
            data = self.socket.recv(1 << 20)
        except ConnectionResetError:
            data = b""
        if not data:
            self.process.wait(10)
            raise Died(f"{self.process.returncode}: {self.process.stderr.read().decode(errors='replace')}")
        return json.loads(data)

    def send(self, message, fds=()):
        if not isinstance(message, bytes):
            message = json.dumps(message).encode()
        socket.send_fds(self.socket, [message], list(fds))

    def close(self):
        """Ends the worker by end of file; returns its exit code and what it printed."""
        self.socket.close()
        _, errors = self.process.communicate(timeout=20)
        return self.process.returncode, errors.decode(errors="replace")

    def image(self, image, kind="fatbin", capability=90, program=PROBE, attachments=(("vectorAdd",),), text=None, outputs=(), **members):
        """One job `image`; returns the reply and the new image. An attachment is (kernel[, point[, members]]).

        `text` is a foreign text; `outputs` names further outputs, which are found in self.outputs afterwards.
        """
        fds = [memfd(image), os.memfd_create("out", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)]
        message = {
            "job": "image",
            "id": 7,
            "kind": kind,
            "input": 0,
            "output": 1,
            "capability": capability,
            "programs": [{"name": "__gpuprobe_o1_p0", "fd": 2, "isa": 63, "target": 52}],
            "attachments": [
                {"id": i, "kernel": a[0], "point": (*a, "entry")[1], "program": "__gpuprobe_o1_p0", **(a[2] if len(a) > 2 else {})}
                for i, a in enumerate(attachments, 3)
            ],
        }
        if isinstance(program, str):
            fds.append(memfd(program.encode()))
        if text is not None:
            message["text"] = len(fds)
            fds.append(memfd(text))
        for name in outputs:
            message[name] = len(fds)
            fds.append(os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
        message.update(members)
        try:
            self.send(message, fds)
            reply = self.receive()
            self.outputs = {name: contents(fds[message[name]]) for name in outputs}
            return reply, contents(fds[1])
        finally:
            for fd in fds:
                os.close(fd)

    def patch(self, programs, attachments, names=None, earlier=None, capability=90, **members):
        """One job `patch`; returns the reply and the plan. A program is (name, text, fields of its context, slots), an attachment
        (kernel, point, index of its program[, members]); names is a list of names as names_list() makes it."""
        fds = [os.memfd_create("out", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)]
        message = {
            "job": "patch",
            "id": 11,
            "output": 0,
            "capability": capability,
            "programs": [],
            "attachments": [
                {"id": i, "kernel": a[0], "point": a[1], "program": programs[a[2]][0], **(a[3] if len(a) > 3 else {})} for i, a in enumerate(attachments, 3)
            ],
        }
        for name, text, context, slots in programs:
            message["programs"].append({"name": name, "isa": 63, "target": 52, "context": list(context), "maps": slots, "process": True})
            if text is not None:
                message["programs"][-1]["fd"] = len(fds)
                fds.append(memfd(text.encode()))
        for key, data in (("names", names), ("patch", earlier)):
            if data is not None:
                message[key] = len(fds)
                fds.append(memfd(data))
        message.update(members)
        try:
            self.send(message, fds)
            reply = self.receive()
            return reply, os.pread(fds[0], os.fstat(fds[0]).st_size, 0)
        finally:
            for fd in fds:
                os.close(fd)


def names_list(modules):
    """A list of names of proto/patch.h; a module is (number, module_id, names)."""
    out = b""
    for number, module_id, names in modules:
        text = b"".join(name.encode() + b"\0" for name in names)
        text += b"\0" * (-len(text) % 8)
        out += struct.pack("<IIQII", 24 + len(text), number, module_id, len(names), 0) + text
    return out


class Plan:
    """A plan of proto/patch.h, taken apart."""

    def __init__(self, data):
        (magic, version, size, image, image_size, self.image_id, points, n_points, kernels, n_kernels, self.data_size, reserved) = struct.unpack_from(
            "<IIQQQQIIIIII", data
        )
        assert (magic, version, size, reserved) == (0x50525047, 1, len(data), 0)
        self.image = data[image : image + image_size]
        self.points = {}
        for i in range(n_points):
            instruction, reserved, symbol = struct.unpack_from("<II56s", data, points + 64 * i)
            assert not reserved and symbol[-1] == 0
            self.points[instruction] = symbol.rstrip(b"\0").decode()
        self.kernels = [struct.unpack_from("<IIQQ", data, kernels + 24 * i) for i in range(n_kernels)]
