#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Daemons that die, come back, and lose interest while a process runs."""

import os
import time

import fake_daemon
import wire
from target_runs import SANITIZED, Releasing, Steps, end, report, run, session, within

THREADS = 256

# A process that calls nothing finds the next daemon, also one that does not answer at first. That takes ten seconds: the end looks at it.
script = {"welcome": lambda connection, answer: answer if late.seen(wire.HELLO) != 3 else None}
late = fake_daemon.FakeDaemon(session("late"), script)
waiting = Steps(late.name)
report("late: the first daemon counts", waiting.step("k") and within(lambda: late.connected(2) and late.count() == THREADS), str(late.count()))
late.write_page(fake_daemon.page())
late.hang_up()

for form in ("pointer", "resident"):
    # A daemon is killed and another takes its place, with the same numbers of maps and modules.
    name = session(f"again_{form}")
    first = fake_daemon.FakeDaemon(name, form=form)
    program = Steps(name)
    good = program.step("k") and program.step("l") and within(lambda: first.count() == 2 * THREADS)
    report(f"{form}: the first daemon counts", good, str(first.count()))
    first.stop()
    report(f"{form}: no daemon", program.step("k") and program.step("l") and program.seconds < 1)
    second = fake_daemon.FakeDaemon(name, form=form)
    good = program.step("l") and program.step("k") and program.step("l") and within(lambda: second.count() == 3 * THREADS)
    report(f"{form}: the second daemon counts, also what was loaded before", good, str(second.count()))
    report(
        f"{form}: and hears of no old module",
        sorted(f[0] for k, f in second.messages if k in (wire.ARMED, wire.UNLOAD)) == [1, 1, 2, 3, 3],
        str(second.messages),
    )
    report(f"{form}: ends", program.end() == 0 and second.count() == 3 * THREADS, str(second.count()))
    second.stop()

    # The connections break while the daemon goes on, as when it restarts in place.
    with fake_daemon.FakeDaemon(session(f"broken_{form}"), form=form) as daemon:
        program = Steps(daemon.name)
        good = program.step("k") and within(lambda: daemon.connected(2))
        daemon.hang_up()
        time.sleep(0.2)
        good = good and program.step("k") and program.step("l") and program.step("l") and within(lambda: daemon.seen(wire.HELLO) >= 4)
        # one more if the mirror's connection was not there yet when the loader's was: then it is made again
        report(f"{form}: broken connections", program.end() == 0 and good and daemon.seen(wire.HELLO) <= 5, f"{daemon.seen(wire.HELLO)} hellos")

    # On demand: SYNC is answered, and then the numbers are there. DISARM stops the counting, and ends the thread.
    with fake_daemon.FakeDaemon(session(f"sync_{form}"), form=form, period_ms=0) as daemon:
        program = Steps(daemon.name)
        good = program.step("k") and program.step("k") and daemon.count() == 0 and within(lambda: daemon.connected(2))
        daemon.connections[1].send(wire.message(wire.SYNC, sequence=99))
        good = good and within(lambda: daemon.seen(wire.SYNCED) == 1)
        report(f"{form}: SYNC", good and daemon.count() == 2 * THREADS, str(daemon.count()))
        report(f"{form}: a thread while there are instances", program.mirrors())
        daemon.connections[1].send(wire.message(wire.DISARM, fake_daemon.MAP, sequence=100))
        good = within(lambda: daemon.seen(wire.SYNCED) == 2) and program.step("k")
        report(f"{form}: none without", within(lambda: not program.mirrors()))
        report(f"{form}: DISARM", good and program.end() == 0 and daemon.count() == 2 * THREADS, str(daemon.count()))

    # DISARM while a call may end the context, which lives on.
    if not SANITIZED:  # what makes a function slow answers before a sanitizer can
        with fake_daemon.FakeDaemon(session(f"ending_{form}"), form=form) as daemon:
            releasing = Releasing(daemon.folder)
            program = Steps(daemon.name, **releasing.environment)
            good = program.step("k") and within(lambda: daemon.connected(2) and daemon.count() == THREADS)
            good = good and program.step("r") and releasing.begun()
            daemon.connections[1].send(wire.message(wire.DISARM, fake_daemon.MAP, sequence=100))
            good = good and within(lambda: daemon.seen(wire.SYNCED) == 1)
            releasing.end()
            good = good and program.step("k") and program.step("k")
            report(f"{form}: DISARM while a context is ending", good and program.end() == 0 and daemon.count() == THREADS, str(daemon.count()))

    # A daemon that does not take the mirror's connection at first: it is asked again, and nothing is lost.
    refused = []
    script = {"welcome": lambda connection, answer: answer if len(refused) or daemon.seen(wire.HELLO) == 1 else refused.append(1)}
    with fake_daemon.FakeDaemon(session(f"busy_{form}"), script, form=form) as daemon:
        program = Steps(daemon.name)
        good = program.step("k") and within(lambda: daemon.connected(2)) and within(lambda: daemon.count() == THREADS)
        report(f"{form}: a mirror that was refused tries again", good and refused and program.end() == 0, str(daemon.count()))
    always = {"welcome": lambda connection, answer: answer if daemon.seen(wire.HELLO) == 1 else None}
    with fake_daemon.FakeDaemon(session(f"no_{form}"), always, form=form) as daemon:
        program = Steps(daemon.name)
        good = program.step("k") and within(lambda: daemon.seen(wire.HELLO) == 2)
        report(f"{form}: the last copy needs no connection", good and program.end() == 0 and daemon.count() == THREADS, str(daemon.count()))

    # Another daemon is there, and does not take the first connection, while the one before still has ours: what that one gave is not for this one.
    with fake_daemon.FakeDaemon(
        session(f"other_{form}"), {"welcome": lambda connection, answer: answer if daemon.seen(wire.HELLO) != 3 else None}, form=form
    ) as daemon:
        program = Steps(daemon.name)
        good = program.step("k") and within(lambda: daemon.connected(2) and daemon.count() == THREADS)
        daemon.write_page(fake_daemon.page())
        good = good and program.step("l") and within(lambda: daemon.seen(wire.HELLO) == 3)
        with open(os.path.join(daemon.folder, "interest"), "r+b") as file:
            file.write(fake_daemon.page())
        good = good and program.step("l") and within(lambda: len(daemon.instances) == 2 and daemon.values() == [THREADS] * 2)
        report(f"{form}: another daemon, at the second try", good and program.end() == 0, str(daemon.values()))

    # A process that may make no thread: that is said.
    with fake_daemon.FakeDaemon(session(f"no_thread_{form}"), form=form) as daemon:
        ran = run(["s-seccomp", "threads"], GPUPROBE_SESSION=daemon.name)
        report(
            f"{form}: no thread",
            ran[0] == 0 and ran[1] == "33152 33152\n" and any("no thread" in reason for reason in daemon.reports()),
            f"{ran} {daemon.reports()}",
        )

    # It may later: then a launch finds out.
    with fake_daemon.FakeDaemon(session(f"thread_later_{form}"), form=form) as daemon:
        ran = run(["s-seccomp", "threads", "later"], GPUPROBE_SESSION=daemon.name)
        report(
            f"{form}: a thread later",
            ran[:2] == (0, f"33152 33152\n{20 * 33152}\n") and any("no thread" in reason for reason in daemon.reports()) and daemon.count() == 22 * THREADS,
            f"{ran} {daemon.reports()} {daemon.count()}",
        )

    # A child that lives on does not keep the parent's connections open.
    with fake_daemon.FakeDaemon(session(f"fork_{form}"), form=form) as daemon:
        program = Steps(daemon.name)
        good = program.step("k") and within(lambda: daemon.connected(2)) and not time.sleep(0.1) and program.step("f")
        time.sleep(0.2)
        program.end()
        report(f"{form}: a child lives on", good and within(lambda: all(c.fileno() < 0 for c in daemon.connections), 2))

    # Nor the mirror's that was just being made.
    with fake_daemon.FakeDaemon(
        session(f"fork_early_{form}"), {"welcome": lambda connection, answer: answer if daemon.seen(wire.HELLO) == 1 else []}, form=form
    ) as daemon:
        program = Steps(daemon.name)
        good = program.step("k") and within(lambda: daemon.seen(wire.HELLO) == 2) and program.step("f")
        time.sleep(0.2)
        program.end()
        report(f"{form}: a child of a process that connects lives on", good and within(lambda: all(c.fileno() < 0 for c in daemon.connections), 2))

with fake_daemon.FakeDaemon(session("noise")) as daemon:  # what the daemon says by itself may be anything, too
    program = Steps(daemon.name)
    good = program.step("k") and within(lambda: daemon.connected(2))
    daemon.connections[1].send(os.urandom(300))
    daemon.connections[0].send(os.urandom(300))
    report("noise out of turn", good and program.step("k") and program.step("l") and program.end() == 0)
with fake_daemon.FakeDaemon(session("late_interest"), flags=0) as daemon:
    program = Steps(daemon.name)
    good = program.step("l") and not daemon.messages
    daemon.write_page(fake_daemon.page(generation=4))
    good = good and program.step("l") and within(lambda: daemon.count() == THREADS)
    daemon.write_page(fake_daemon.page(flags=fake_daemon.EVERYONE | fake_daemon.CLOSED, generation=6))
    good = good and program.step("l") and program.end() == 0 and daemon.seen(wire.IMAGE) == 1
    report("interest comes and goes", good, str(daemon.messages))
report("late: the next daemon is asked again", within(lambda: late.seen(wire.HELLO) >= 4, 20) and waiting.end() == 0, str(late.seen(wire.HELLO)))
late.stop()
end()
