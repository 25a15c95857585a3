#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Daemons that go on with what the one before had: the process says what it has from that, without a call of its own, and counts on; what
the next one does not know is left alone. Also while threads load, launch and unload all the time."""

import os
import subprocess
import time

import fake_daemon
import wire
from target_runs import SANITIZED, SHIM, SIM, TARGETS, Releasing, Steps, end, report, run, session, within

THREADS = 256
SESSION = 0x1234567890
ATTACHMENTS = list(range(1000, 1030))  # more than one message of ids holds


class SessionDaemon(fake_daemon.FakeDaemon):
    start, knows_modules, knows_instances = 1, True, True

    def __init__(self, name, **more):
        self.wanted, self.ids = {}, {}  # connection: number of ids that are to come; module: those that came
        super().__init__(name, {"welcome": self.welcome, "image": self.image, "slot": self.slot}, **more)

    def welcome(self, connection, answer):
        return [
            (
                wire.message(
                    wire.WELCOME,
                    self.deadline_ms,
                    self.period_ms,
                    fake_daemon.PID,
                    self.start,
                    fake_daemon.COMM,
                    SESSION,
                    sequence=int.from_bytes(answer[0][0][12:16], "little"),
                ),
                [],
            )
        ]

    def image(self, connection, answer):
        data, fds = answer[0]
        return [(data[: 16 + 24] + len(ATTACHMENTS).to_bytes(4, "little") + data[16 + 28 :], fds)]

    def slot(self, connection, answer):
        """The only one, and the ids of attachments behind it."""
        module = int.from_bytes(answer[0][0][16:24], "little")
        some = [ATTACHMENTS[at : at + wire.IDS_MAX] for at in range(0, len(ATTACHMENTS), wire.IDS_MAX)]
        return answer + [(wire.message(wire.IDS, module, len(ids), 0, *ids, *[0] * (wire.IDS_MAX - len(ids))), []) for ids in some]

    def answer_other(self, connection, kind, fields, sequence):
        if kind == wire.RESUME:
            self.wanted[connection], self.ids[fields[0]] = fields[1] + fields[2], []
        if kind == wire.IDS:
            self.ids[fields[0]] += fields[3 : 3 + fields[1]]
            if len(self.ids[fields[0]]) == self.wanted[connection]:
                return self.send(connection, "resumed", [(wire.message(wire.RESUMED, fields[0], self.knows_modules, 0), [])])
        if kind == wire.KEEP:
            return self.send(connection, "kept", [(wire.message(wire.KEPT, *fields, self.knows_instances, 0, sequence=sequence), [])])
        return True

    def restart(self):
        self.start += 1
        self.write_page(fake_daemon.page(deadline_ms=self.deadline_ms))
        self.hang_up()


def resumed(daemon, restarts):
    return within(lambda: daemon.seen(wire.KEEP) == restarts and daemon.connected(2 + 2 * restarts))


def pages(program):
    """Where interest pages are mapped."""
    with open(f"/proc/{program.process.pid}/maps") as maps:
        return [line.split("-")[0] for line in maps if "/interest" in line]


for form in ("pointer", "resident"):
    with SessionDaemon(session(f"goes_{form}"), form=form) as daemon:
        program = Steps(daemon.name)
        good = program.step("k") and within(lambda: daemon.connected(2) and daemon.count() == THREADS)
        first = pages(program)
        daemon.restart()
        good = good and resumed(daemon, 1)
        told = [fields for kind, fields in daemon.messages if kind == wire.RESUME]
        report(
            f"{form}: what it has is told",
            good and told == [(1, len(ATTACHMENTS), 1, 1, 0)] and daemon.ids == {1: ATTACHMENTS + [fake_daemon.MAP]},
            f"{daemon.messages} {daemon.ids}",
        )
        good = program.step("k") and program.step("l") and within(lambda: daemon.count() == 3 * THREADS)
        report(f"{form}: it counts on, where it did", good and len(daemon.instances) == 1, f"{daemon.count()} {len(daemon.instances)}")
        daemon.knows_modules = False
        daemon.restart()
        good = resumed(daemon, 2) and program.step("k") and program.step("k")
        report(
            f"{form}: a module that is not known any more is asked for anew",
            good and program.step("l") and within(lambda: daemon.count() == 6 * THREADS),
            str(daemon.count()),
        )
        daemon.knows_instances = False
        daemon.restart()
        good = resumed(daemon, 3) and program.step("l")
        report(
            f"{form}: a page takes the place of the one before",
            len(first) == 1 and first[0] in pages(program) and len(pages(program)) == 2,
            f"{first} {pages(program)}",
        )
        good = good and program.end() == 0
        report(
            f"{form}: an instance that is not known any more",
            good and len(daemon.instances) == 2 and daemon.values()[1] == THREADS,
            f"{daemon.values()} {len(daemon.instances)}",
        )

    if not SANITIZED:  # what makes a function slow answers before a sanitizer can
        with SessionDaemon(session(f"ending_{form}"), form=form) as daemon:
            releasing = Releasing(daemon.folder)
            program = Steps(daemon.name, **releasing.environment)
            good = program.step("k") and within(lambda: daemon.connected(2) and daemon.count() == THREADS)
            good = good and program.step("r") and releasing.begun()
            daemon.knows_instances = False
            daemon.restart()
            good = good and resumed(daemon, 1)
            releasing.end()
            good = good and program.step("l") and program.end() == 0
            report(
                f"{form}: an instance that is not known any more, of a context that was ending",
                good and len(daemon.instances) == 2 and daemon.values()[1] == THREADS,
                f"{daemon.values()} {len(daemon.instances)}",
            )

bare = run(["s-threads", "400"], preload=())
with SessionDaemon(session("threads"), deadline_ms=5000) as daemon:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("GPUPROBE", "LD_"))}
    good = True
    for _ in range(20):  # on a busy machine a program may be over before a daemon has come back
        program = subprocess.Popen(
            [os.path.join(TARGETS, "s-threads"), "400"],
            stdout=subprocess.PIPE,
            text=True,
            env={**clean, "LD_LIBRARY_PATH": SIM, "LD_PRELOAD": SHIM, "GPUPROBE_SESSION": daemon.name},
        )
        while program.poll() is None:
            time.sleep(0.1)
            daemon.restart()
        good = good and bare[:2] == (0, program.stdout.read()) and program.returncode == 0
        if not good or daemon.seen(wire.RESUME) > 0:
            break
    report("threads, while daemons come and go", good and daemon.seen(wire.RESUME) > 0, f"{bare} {program.returncode} {daemon.seen(wire.RESUME)}")
end()
