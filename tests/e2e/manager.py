# SPDX-License-Identifier: Apache-2.0
"""
What systemd is to the service, for a session daemon: listens on its sockets, keeps its descriptors (sd_notify(3), FDSTORE=1), and starts the next
daemon with all of them.
"""

import array
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading

from harness import CTL, GPUPROBED, Daemon, check, equal, wait_until

# Makes the descriptors the first from 3 on, and becomes the daemon.
LAUNCH = """
import os, sys
fds = [int(fd) for fd in sys.argv[1].split(",")]
for n, fd in enumerate(fds):
    os.dup2(fd, 3 + n, inheritable=True)
for fd in fds:
    os.close(fd)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.argv[2], sys.argv[2:])
"""


class Manager(Daemon):
    """As Daemon, with restart(), crash() and so on. At the end it is stopped, as by `systemctl stop`."""

    def __init__(self, *options, store_max=100000, program=GPUPROBED, **more):
        self.program = program
        self.aside = []  # files that a stop leaves, too
        self.kept = {}  # name: descriptors
        self.store_max = store_max
        self.ready = self.marks = 0
        self.changed = threading.Condition()
        self.awake = threading.Event()  # clear: as a PID 1 that hangs
        self.awake.set()
        super().__init__(*options, start=False, **more)
        os.mkdir(self.directory, 0o700)
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind("\0" + f"gpuprobe-test-{self.name}")
        self.control = self.listen("io.gpuprobe.control", socket.SOCK_STREAM)
        self.shim = self.listen("shim.sock", socket.SOCK_SEQPACKET)
        threading.Thread(target=self.serve, daemon=True).start()
        self.start()

    def listen(self, name, kind):
        listener = socket.socket(socket.AF_UNIX, kind)
        listener.bind(os.path.join(self.directory, name))
        listener.listen(1024)
        return listener

    def serve(self):
        while True:
            self.awake.wait()
            data, ancillary, _, _ = self.notify.recvmsg(4096, socket.CMSG_SPACE(4 * 16))
            fds = [fd for level, kind, payload in ancillary for fd in array.array("i", payload)]
            with self.changed:
                self.handle(dict(line.split("=", 1) for line in data.decode().splitlines()), fds)
                self.changed.notify_all()

    def handle(self, message, fds):
        name = message.get("FDNAME", "stored")
        if "END" in message:
            raise SystemExit
        if "MARK" in message:
            self.marks += 1
        elif message.get("FDSTORE") == "1" and message.get("FDPOLL") == "0":
            for fd in fds:
                if sum(map(len, self.kept.values())) < self.store_max:
                    self.kept.setdefault(name, []).append(fd)
                else:
                    os.close(fd)
        elif message.get("FDSTOREREMOVE") == "1":
            for fd in self.kept.pop(name, []):
                os.close(fd)
        elif message.get("READY") == "1":
            self.ready += 1

    def send(self, text):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(text.encode(), self.notify.getsockname())

    def hang(self):
        """Reads nothing until awake is set, and its queue is full."""
        self.awake.clear()
        self.send("IGNORED=1")  # which it is waiting for now
        while True:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                try:
                    sender.sendto(b"IGNORED=1", self.notify.getsockname())
                except BlockingIOError:
                    return

    def settle(self):
        """Until all is read that was sent so far."""
        with self.changed:
            mark = self.marks + 1
            self.send("MARK=1")
            self.changed.wait_for(lambda: self.marks >= mark)

    def start(self):
        self.settle()
        with self.changed:
            before = self.ready
            named = [("control", self.control.fileno()), ("shim", self.shim.fileno()), *((name, fd) for name, fds in self.kept.items() for fd in fds)]
            fds = [fcntl.fcntl(fd, fcntl.F_DUPFD, 1000) for _, fd in named]  # out of the way
        environment = {
            **os.environ,
            **self.tools(),
            "NOTIFY_SOCKET": "@" + self.notify.getsockname()[1:].decode(),
            "LISTEN_FDS": str(len(named)),
            "LISTEN_FDNAMES": ":".join(name for name, _ in named),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, ",".join(map(str, fds)), self.program, f"--session={self.name}", *self.options],
            stderr=self.log,
            env=environment,
            pass_fds=fds,
        )
        for fd in fds:
            os.close(fd)
        wait_until(lambda: self.ready > before or self.process.poll() is not None, "the daemon is ready")
        check(self.process.poll() is None, "gpuprobed ended:", self.text())
        return self

    def end(self, number, status):
        self.process.send_signal(number)
        equal(self.process.wait(timeout=15), status, "exit status of gpuprobed: " + self.text())
        self.settle()

    def hand_over(self):
        """Ends as for a restart; nobody is started yet."""
        self.end(signal.SIGUSR1, 0)

    def restart(self):
        self.hand_over()
        self.start()

    def crash(self):
        self.end(signal.SIGKILL, -signal.SIGKILL)

    def crash_and_start(self):
        self.crash()
        self.start()

    def drop(self):
        """A stop: systemd keeps nothing."""
        with self.changed:
            for fds in self.kept.values():
                for fd in fds:
                    os.close(fd)
            self.kept.clear()

    def stop(self):
        """Also looks at what is left behind: nothing but the sockets."""
        self.end(signal.SIGTERM, 0)
        equal(self.kept, {}, "kept by a daemon that was stopped")
        equal(sorted(os.listdir(self.directory)), ["io.gpuprobe.control", "shim.sock", *self.aside], "left behind")

    def start_ctl(self, *arguments):
        return subprocess.Popen([CTL, *arguments], env=self.environment(**self.tools()), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def state(self):
        return os.path.join(self.directory, "state")

    def __exit__(self, kind, value, trace):
        super().__exit__(kind, value, trace)
        self.send("END=1")
        self.control.close()
        self.shim.close()
        self.drop()
