#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Our varlink library and other people's.

interop.py go CERTIFICATION            varlink-go-certification as client of ours, ours as client of it, ours of ours
interop.py systemd DIR SERVICE [ARG]   varlinkctl against SERVICE [ARG] SOCKET: the certification service, or a daemon;
                                       DIR is where get-varlinkctl.sh puts it
interop.py systemd DIR unix:SOCKET     the same, against a daemon that runs

Exit status 77: the other program is not to be had here.
"""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

TIMEOUT = 60


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def expect(what, condition, *more):
    if not condition:
        sys.exit(" ".join(map(str, ("failed:", what, *more))))
    print("ok:", what)


class Service:
    """A process that listens on a socket."""

    def __init__(self, command, path):
        self.command, self.path = command, path

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL)
        end = time.monotonic() + TIMEOUT
        while not self.listens() and self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        expect(f"{os.path.basename(self.command[0])} listens", self.listens())
        return self

    def listens(self):
        """The file is there a moment before anybody can connect."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            return client.connect_ex(self.path) == 0

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def go(certification):
    theirs = shutil.which("varlink-go-certification")
    if not theirs:
        skip("no varlink-go-certification; Debian has it in the package varlink-go")
    with tempfile.TemporaryDirectory() as directory:
        path = directory + "/ours"
        with Service([certification, "server", path], path):
            done = subprocess.run([theirs, "--client", f"--varlink=unix:{path}"], capture_output=True, timeout=TIMEOUT)
            expect("their client, our service", done.returncode == 0 and b"End: 'true'" in done.stdout, done)
            done = subprocess.run([certification, "client", path], capture_output=True, timeout=TIMEOUT)
            expect("our client, our service", done.returncode == 0 and done.stdout == b"certified\n", done)
        path = directory + "/theirs"
        with Service([theirs, f"--varlink=unix:{path}"], path):
            done = subprocess.run([certification, "client", path], capture_output=True, timeout=TIMEOUT)
            expect("our client, their service", done.returncode == 0 and done.stdout == b"certified\n", done)


class Ctl:
    def __init__(self, program, path):
        self.program, self.path = program, path

    def run(self, *args, status=0):
        done = subprocess.run([self.program, "--no-pager", *args], capture_output=True, timeout=TIMEOUT, text=True)
        expect("varlinkctl " + " ".join(arg if len(arg) < 60 else "..." for arg in args), done.returncode == status, done)
        return done

    def call(self, method, parameters, *options):
        """All replies; several come as a JSON sequence (RFC 7464)."""
        out = self.run("call", "--json=short", *options, self.path, method, json.dumps(parameters)).stdout
        return [json.loads(line) for line in out.replace("\x1e", "").split("\n") if line]

    def fails(self, method, parameters, error, *options):
        done = self.run("call", "--json=short", *options, self.path, method, json.dumps(parameters), status=1)
        expect(error, error in done.stderr, done)


def certification_service(ctl):
    interface = "org.varlink.certification."
    reply = ctl.call(interface + "Start", {})[0]
    client = reply["client_id"]
    reply = {}
    for step in range(1, 10):
        reply = ctl.call(f"{interface}Test{step:02}", {"client_id": client, **reply})[0]
    replies = ctl.call(interface + "Test10", {"client_id": client, **reply}, "--more")
    expect("ten replies with --more", [reply["string"] for reply in replies] == [f"Reply number {i}" for i in range(1, 11)], replies)
    ctl.run("call", "--oneway", ctl.path, interface + "Test11", json.dumps({"client_id": client, "last_more_replies": [reply["string"] for reply in replies]}))
    expect("certified", ctl.call(interface + "End", {"client_id": client}) == [{"all_ok": True}])
    ctl.fails(interface + "Test10", {"client_id": client}, "InvalidParameter", "--more")
    ctl.fails(interface + "Test12", {}, "MethodNotFound")


def control_service(ctl):
    interface = "io.gpuprobe.control"
    text = ctl.run("introspect", ctl.path, interface).stdout
    original = pathlib.Path(__file__).parent.parent.parent / "proto" / (interface + ".varlink")
    # it prints what it understood, with its own indentation
    expect("the interface file is what varlinkctl shows", "".join(text.split()) == "".join(original.read_text().split()))
    ctl.run("validate-idl", str(original))
    status = ctl.call(interface + ".Status", {})[0]
    expect("Status", isinstance(status["pid"], int) and status["mode"] in ("system", "session"), status)
    for method, member in ("List", "attachments"), ("ListMaps", "maps"), ("Why", "outcomes"):
        expect(member, isinstance(ctl.call(f"{interface}.{method}", {})[0][member], list))
    for entry in ctl.call(interface + ".ListMaps", {})[0]["maps"]:
        replies = ctl.call(interface + ".DumpMap", {"map": str(entry["id"])}, "--more")
        expect(
            f"dump of map {entry['id']} in {len(replies)} replies",
            replies[0]["map"]["id"] == entry["id"] and sum(len(reply["entries"]) for reply in replies) <= entry["max_entries"],
        )
    ctl.fails(interface + ".DumpMap", {"map": "no-such-map"}, interface + ".NotFound")
    ctl.fails(interface + ".Detach", {"id": "x"}, "InvalidParameter")
    ctl.fails(interface + ".Detach", {"id": 1, "nonsense": 1}, "InvalidParameter")


def systemd_session(ctl):
    info = json.loads(ctl.run("info", "--json=short", ctl.path).stdout)
    expect("info", info["product"] and "org.varlink.service" in info["interfaces"], info)
    interfaces = ctl.run("list-interfaces", ctl.path).stdout.split()
    expect("list-interfaces", interfaces == sorted(info["interfaces"]), interfaces)
    expect("introspect", "method GetInfo()" in ctl.run("introspect", ctl.path, "org.varlink.service").stdout)
    ctl.fails("org.example.No", {}, "InterfaceNotFound")
    if "io.gpuprobe.control" in interfaces:
        control_service(ctl)
    else:
        certification_service(ctl)


def systemd(directory, *service):
    done = subprocess.run([pathlib.Path(__file__).parent / "get-varlinkctl.sh", directory])
    if done.returncode == 77:
        skip("no varlinkctl")
    expect("get-varlinkctl.sh", done.returncode == 0)
    program = os.path.join(directory, "varlinkctl")
    if service[0].startswith("unix:"):
        systemd_session(Ctl(program, service[0]))
        return
    with tempfile.TemporaryDirectory() as temporary:
        path = temporary + "/socket"
        with Service([*service, path], path):
            systemd_session(Ctl(program, path))


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "go":
        go(sys.argv[2])
    elif len(sys.argv) >= 4 and sys.argv[1] == "systemd":
        systemd(*sys.argv[2:])
    else:
        sys.exit(__doc__)
