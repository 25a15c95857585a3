# SPDX-License-Identifier: Apache-2.0
"""A varlink client, as plain as can be."""
import json
import socket

INTERFACE = "io.gpuprobe.control."


class VarlinkError(Exception):
    def __init__(self, error, parameters):
        super().__init__(f"{error} {parameters}")
        self.error = error.removeprefix(INTERFACE)
        self.parameters = parameters or {}


class Connection:
    def __init__(self, directory, timeout=30):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        self.socket.connect(f"{directory}/io.gpuprobe.control")
        self.pending = b""

    def close(self):
        self.socket.close()

    def send(self, method, more=False, **parameters):
        call = {"method": method if "." in method else INTERFACE + method, "parameters": parameters}
        if more:
            call["more"] = True
        self.socket.sendall(json.dumps(call).encode() + b"\0")

    def receive(self):
        """A reply: its parameters, and whether more follow."""
        while b"\0" not in self.pending:
            data = self.socket.recv(1 << 20)
            if not data:
                raise ConnectionError("the daemon hung up")
            self.pending += data
        text, self.pending = self.pending.split(b"\0", 1)
        reply = json.loads(text)
        if "error" in reply:
            raise VarlinkError(reply["error"], reply.get("parameters"))
        return reply.get("parameters", {}), reply.get("continues", False)

    def call(self, method, **parameters):
        self.send(method, **parameters)
        reply, more = self.receive()
        assert not more
        return reply

    def stream(self, method, **parameters):
        self.send(method, more=True, **parameters)
        more = True
        while more:
            reply, more = self.receive()
            yield reply
