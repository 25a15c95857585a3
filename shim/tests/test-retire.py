#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""RETIRE: launches go to bare kernels, under every handle that the driver gives out, with what the application has set before and after;
and what must not switch: graphs, modules that have no bare kernels, modules of another id. The probe counts threads; no map is disarmed
here, so what it counts is what was launched with it. The program's output is that of a run without the shim."""

import os
import struct
import subprocess
import time

import fake_daemon
import wire
from target_runs import SHIM, SIM, TARGETS, end, mirrors, report, session, within

THREADS = 256


class Program:
    """s-retire, a letter at a time."""

    def __init__(self, name=None, few=False):
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("GPUPROBE", "LD_"))}
        shim = {"LD_PRELOAD": SHIM, "GPUPROBE_SESSION": name} if name else {}
        self.process = subprocess.Popen(
            [os.path.join(TARGETS, "s-retire"), *["few"] * few],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**clean, "LD_LIBRARY_PATH": SIM, **shim},
        )

    def write(self, letters):
        self.process.stdin.write(letters.encode())
        self.process.stdin.flush()

    def read(self):
        return self.process.stdout.readline().decode()

    def step(self, letters):
        lines = ""
        for letter in letters:
            self.write(letter)
            lines += self.read()
        return lines

    def end(self):
        self.process.stdin.close()
        errors = self.process.stderr.read().decode()
        return self.process.wait(timeout=20), errors


def retire(daemon, *modules):
    """Sends RETIRE, and SYNC behind it so that it is done when this returns."""
    if not within(lambda: daemon.connected(2)):
        return False
    before = daemon.seen(wire.SYNCED)
    for module in modules:
        daemon.connections[1].send(wire.message(wire.RETIRE, module, sequence=5))
    daemon.connections[1].send(wire.message(wire.SYNC, sequence=6))
    return within(lambda: daemon.seen(wire.SYNCED) == before + 1)


def count(daemon):
    before = daemon.seen(wire.SYNCED)
    daemon.connections[1].send(wire.message(wire.SYNC, sequence=7))
    within(lambda: daemon.seen(wire.SYNCED) == before + 1)
    return daemon.count() // THREADS


def own_after(daemons, number):
    """A script: of the images behind that many, the application's own is used."""

    def image(connection, answer):
        if daemons[0].module <= number:
            return answer
        os.close(answer[0][1][0])
        return [(wire.message(wire.IMAGE_REPLY, daemons[0].module, 0, 0, 0, 0, 0, b"", sequence=struct.unpack_from("<I", answer[0][0], 12)[0]), [])]

    return {"image": image, "slot": lambda connection, answer: answer if daemons[0].module <= number else []}


def compare(label, parts, bare=True, own=None, few=False, form="pointer"):
    """Parts: (letters, modules to retire behind them, launches that are counted in them). own: how many images are replaced."""
    plain, daemons = Program(few=few), []
    script = own_after(daemons, own) if own else None
    with fake_daemon.FakeDaemon(session("r"), bare=bare, script=script, form=form, deadline_ms=30000) as daemon:
        daemons.append(daemon)
        ours = Program(daemon.name, few)
        total, good, text = 0, True, ""
        for letters, modules, counted in parts:
            expected, got = plain.step(letters), ours.step(letters)
            total += counted
            found = count(daemon) if within(lambda: daemon.connected(2)) else -1
            if expected != got or found != total:
                good = False
                text += f"\n  after {letters}: {found} counted, not {total}\n  bare {expected!r}\n  ours {got!r}"
            good = (not modules or retire(daemon, *modules)) and good
        ended = plain.end(), ours.end()
        report(label, good and ended[0] == ended[1] == (0, ""), f"{text}\n  {ended} {daemon.reports()}")


MODULE, LIBRARY = 1, 2
BOTH = (MODULE, LIBRARY)
for form in ("pointer", "const", "resident", "host"):
    compare(f"{form}: every handle, before and after", [("abcdefxo", BOTH, 8), ("abcdefxo", (), 0), ("abcdefxo", (), 0)], form=form)
compare("retired before the first launch", [("", BOTH, 0), ("abcdefxo", (), 0)])
compare("one module and not the other", [("ac", (MODULE,), 2), ("abx", (), 0), ("cdef", (LIBRARY,), 4), ("abcdef", (), 0)])
compare("twice, and one that nobody has", [("a", (MODULE, 99, MODULE), 1), ("a", (MODULE,), 0), ("ac", (LIBRARY,), 1), ("ac", (), 0)])
compare("no bare kernels", [("abcdefxo", BOTH, 8), ("abcdefxo", (), 8), ("hsh", (), 1)], bare=False)
compare("graphs keep what they have", [("ag", BOTH, 2), ("agga", (), 2)])
compare("what captured nodes say that they launch", [("pq", BOTH, 0), ("pqacpq", (), 0)])
compare("attributes from before", [("hisSh", BOTH, 1), ("hi", (), 0), ("hi", (), 0)])
compare("attributes from after", [("hi", BOTH, 0), ("hisShi", (), 0), ("whsh", (), 0)])
compare("attributes from after the first switch", [("", BOTH, 0), ("achisSh", (), 0), ("iwhsha", (), 0)])
compare("lists without bare kernels", [("n", BOTH, 0), ("n", (), 0)])
compare("lists of a module without them", [("n", BOTH, 0), ("n", (), 0)], bare=False)
compare("two threads", [("t", BOTH, 200), ("t", (), 0)])
compare("unloaded and loaded again", [("a", BOTH, 1), ("aubUc", (3,), 2), ("abx", (), 0), ("cd", (4,), 2), ("abcdefxo", (), 0)])
compare("unloaded, never launched", [("", BOTH, 0), ("uU", (), 0), ("ac", (), 2)])
compare("another context", [("a", BOTH, 1), ("acz", (), 0), ("abcd", (3, 4), 4), ("abcdefxo", (), 0), ("z", (), 0), ("a", (), 1)])
compare("another context, the library goes on", [("ay", (3, LIBRARY), 1), ("abcdef", (), 0)])
compare("the library goes on into another context", [("acde", BOTH, 4), ("acdeycdef", (), 0), ("ab", (), 2)])
compare("handles that others get", [("abcdef", BOTH, 6), ("abcdef", (), 0), ("uUabcdef", (), 0), ("uU" * 20 + "abcdef", (), 0)], own=2)
compare("each handle by one way", [("acd", (), 3), ("d", BOTH, 1), ("acd", (), 0)], few=True)

# A RETIRE that comes between the daemon's answer and the driver's load: of the module that "u" loads, when the mirror thread listens.
daemons, retired = [], []


def early(connection, answer):
    if daemons[0].module == 3:
        retired.append(retire(daemons[0], 3))
    return answer


with fake_daemon.FakeDaemon(session("early"), bare=True, script={"slot": early}, deadline_ms=30000) as one:
    daemons.append(one)
    program = Program(one.name)
    lines = program.step("ac")
    good = within(lambda: one.connected(2)) and count(one) == 2
    lines += program.step("uac")
    good = count(one) == 3 and retired == [True] and good
    report("RETIRE before the driver has the module", good and program.end() == (0, ""), f"{lines} {retired} {one.count()} {one.reports()}")

# While two threads launch.
with fake_daemon.FakeDaemon(session("middle"), bare=True, deadline_ms=30000) as one:
    program = Program(one.name)
    good = program.step("ac") and within(lambda: one.connected(2))
    program.write("t")
    time.sleep(0.01)
    good = retire(one, 1, 2) and program.read() == "t: done\n" and good
    first = count(one)
    good = good and program.step("abcdefxo") and count(one) == first and 2 <= first <= 202
    report("in the middle of launches", good and program.end() == (0, ""), f"{first} counted")

# What was attached went away before the modules were armed: they are told so, too.
refused = {
    "instance": lambda connection, answer: [
        (wire.message(wire.INSTANCE_REPLY, fake_daemon.MAP, 1, 0, 0, 0, 0, sequence=struct.unpack_from("<I", answer[0][0], 12)[0]), [])
    ]
}
with fake_daemon.FakeDaemon(session("refused"), bare=True, script=refused, deadline_ms=30000) as one:
    program = Program(one.name)
    program.step("ac")
    good = within(lambda: one.connected(2)) and retire(one, 1) and mirrors(program.process)
    one.connections[1].send(wire.message(wire.RETIRE, 2, sequence=9))
    good = good and within(lambda: not mirrors(program.process))
    report("modules that were not armed are retired", good and bool(program.step("ac")) and program.end() == (0, ""), str(one.reports()))

# The thread stays until all is said, and comes back for the next module.
with fake_daemon.FakeDaemon(session("stay"), bare=True, deadline_ms=30000) as one:
    program = Program(one.name)
    program.step("ac")
    good = within(lambda: one.connected(2))
    one.connections[1].send(wire.message(wire.DISARM, fake_daemon.MAP, sequence=9))
    good = good and within(lambda: one.seen(wire.SYNCED) == 1) and retire(one, 1)
    time.sleep(0.3)
    good = good and mirrors(program.process)
    one.connections[1].send(wire.message(wire.RETIRE, 2, sequence=9))
    report("the thread stays until the last RETIRE", good and within(lambda: not mirrors(program.process)))
    before = one.count()
    lines = program.step("acdu")
    report("without the thread", program.step("c") and one.count() == before, lines)
    program.end()
end()
