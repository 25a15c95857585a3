#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where maps can be: DISARM in every place, registrations that fail, contexts that end, slots and instances that are not what they say."""

import fcntl
import os
import struct
import subprocess

import fake_daemon
import wire
from fake_daemon import DATA_SIZE, FORMS, INSTANCE_SEALS, MAP, RING_SIZE, RINGS
from target_runs import SHIM, SIM, TARGETS, Steps, as_bare, end, report, run, session, within

THREADS = 256
RING_AREA = 4096 + RINGS * RING_SIZE
OF_MAP = f"map {MAP}: "
NOT_REGISTERED = OF_MAP + "the driver does not register a map's host memory"
NO_INSTANCE = OF_MAP + "no memory for a map: what the daemon gave is none"


class Program:
    """A program that prints a line for each that it reads."""

    def __init__(self, name, program, *arguments):
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("GPUPROBE", "LD_"))}
        self.process = subprocess.Popen(
            [os.path.join(TARGETS, program), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**clean, "LD_LIBRARY_PATH": SIM, "LD_PRELOAD": SHIM, "GPUPROBE_SESSION": name},
        )

    def line(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self):
        self.process.stdin.close()
        return self.process.wait(timeout=20)


def disarm(form):
    """The probes of all loaded modules stop; what they counted stays."""
    with fake_daemon.FakeDaemon(session(f"disarm_{form}"), form=form, period_ms=0) as daemon:
        program = Steps(daemon.name)
        good = program.step("k") and within(lambda: daemon.connected(2))
        daemon.connections[1].send(wire.message(wire.SYNC, sequence=98))
        good = good and within(lambda: daemon.seen(wire.SYNCED) == 1) and daemon.count() == THREADS
        daemon.gone.add(MAP)
        daemon.connections[1].send(wire.message(wire.DISARM, MAP, sequence=99))
        good = good and within(lambda: daemon.seen(wire.SYNCED) == 2) and program.step("k") and program.step("l")
        good = good and program.end() == 0 and daemon.count() == THREADS
        report(f"{form}: DISARM", good, str(daemon.count()))


def disarm_map(daemon, map_id):
    """Whether the process has answered; its thread may just be ending, as it had nothing left, or another one beginning."""
    seen = daemon.seen(wire.SYNCED)

    def answered():
        try:
            [one for one in daemon.connections if daemon.roles.get(one) == wire.MIRROR][-1].send(wire.message(wire.DISARM, map_id, sequence=99))
        except (OSError, IndexError):
            return False
        return within(lambda: daemon.seen(wire.SYNCED) > seen, 0.5)

    return within(answered)


def disarm_partly():
    """The daemon goes between a module's two maps: the first one's probes stop all the same when that is gone."""
    with fake_daemon.FakeDaemon(session("partly"), {"instance": lambda connection, answer: answer if not daemon.instances[1:] else None}, form="two") as daemon:
        program = Steps(daemon.name)
        good = program.step("k") and within(lambda: daemon.connected(2)) and daemon.values()[0] == THREADS and disarm_map(daemon, MAP)
        good = good and program.step("k") and program.end() == 0
        report("two: DISARM of one, the daemon did not give the other", good and daemon.values()[0] == THREADS, f"{daemon.values()} {daemon.reports()}")


def reused(form, waits=True):
    """Attached and detached again and again, each time with another map: the memory of one that is gone is given back when the next twin is loaded or a twin is
    unloaded, as the context is idle then, whether the program waits for its kernels or not; nothing of it is seen in the next one."""

    def slot(_, messages):
        ((data, fds),) = messages
        fields = list(struct.unpack_from(wire.BODIES[wire.SLOT], data, 16))
        return [(wire.message(wire.SLOT, fields[0], MAP + fields[0], *fields[2:], sequence=struct.unpack_from("<I", data, 12)[0]), fds)]

    with fake_daemon.FakeDaemon(session(f"reused_{form}"), {"slot": slot}, form=form, period_ms=0, deadline_ms=5000) as daemon:
        program, used, good = Program(daemon.name, "s-reuse", *["none"] * (not waits)), [], True
        for cycle in range(1, 31):
            good = good and program.line() == "33152" and disarm_map(daemon, MAP + cycle)
            used.append(program.line())
        with open(f"/proc/{program.process.pid}/maps") as file:
            mapped = sum("memfd:instance" in line for line in file)
        good = good and mapped == 0 and program.end() == 0 and daemon.values() == [THREADS] * 30 and not daemon.reports()
        if good:  # our thread may be just looking at the lists: then it is known the next time
            counts = [int(number) // int(used[0]) for number in used]
            good = counts[0] == 1 and min(counts[1:]) == 1 and max(counts) < 10
        report(
            f"{form}: the memory of maps that are gone is given back{'' if waits else ', without a wait'}",
            good,
            f"{used} {mapped} {daemon.values()} {daemon.reports()}",
        )


def register_fails(form, place_bytes):
    """Nothing is registered: a report, and the program runs on; then room for one of the two contexts that live at once; then for both."""
    bare = run(["s-context"], preload=())
    for room, counted, reports in ((0, 0, 7), (1, 4, 3), (2, 7, 0)):
        with fake_daemon.FakeDaemon(session(f"register_{form}_{room}"), form=form) as daemon:
            ours = run(["s-context"], GPUPROBE_SESSION=daemon.name, GPUPROBE_SIM_REGISTER_MAX=str(room * place_bytes))
            if as_bare(f"{form}: room for {room}", bare, ours):
                good = daemon.count() == counted * THREADS and daemon.reports() == [NOT_REGISTERED] * reports
                report(f"{form}: room for {room}", good and daemon.seen(wire.ARMED) == counted, f"{daemon.count()}, {daemon.reports()}")


def no_first(_, messages):
    """No memory for the first of two maps."""
    ((data, fds),) = messages
    if struct.unpack_from("<Q", data, 16)[0] != MAP:
        return messages
    os.close(fds[0])
    return [(data, [])]


def one_of_two():
    """Where one map's memory cannot be registered, or the daemon has none for it, the other works; both do where it can."""
    bare = run(["s-unload"], preload=())
    with fake_daemon.FakeDaemon(session("two_refused"), {"instance": no_first}, form="two") as daemon:
        if as_bare("two maps, one refused", bare, run(["s-unload"], GPUPROBE_SESSION=daemon.name)):
            good = daemon.values()[1] == 3 * THREADS and daemon.reports() == [OF_MAP + "no memory for a map: the daemon refused it"] * 3
            report("two maps, one refused", good and daemon.seen(wire.ARMED) == 3, f"{daemon.values()}, {daemon.reports()}")
    for room, counts in (("0", [0, 3]), ("1000000", [3, 3])):
        with fake_daemon.FakeDaemon(session(f"two{room}"), form="two") as daemon:
            ours = run(["s-unload"], GPUPROBE_SESSION=daemon.name, GPUPROBE_SIM_REGISTER_MAX=room)
            if as_bare(f"two maps, room {room}", bare, ours):
                good = daemon.values() == [count * THREADS for count in counts]
                report(f"two maps, room {room}", good and daemon.seen(wire.ARMED) == 3, f"{daemon.values()}, {daemon.reports()}")


def in_message(form, offset, value):
    """A step's right answer with one field changed."""

    def answer(_, messages):
        data = bytearray(messages[0][0])
        struct.pack_into(form, data, offset, value)
        return [(bytes(data), messages[0][1])]

    return answer


def in_header(*changes):
    """A right instance whose memory has other values at these offsets."""

    def answer(_, messages):
        for offset, form, value in changes:
            os.pwrite(messages[0][1][0], struct.pack(form, value), offset)
        return messages

    return answer


def instead(make):
    """Another descriptor than the right one."""

    def answer(_, messages):
        for fd in messages[0][1]:
            os.close(fd)
        return [(messages[0][0], [make()])]

    return answer


def file_of(size, seals):
    fd = os.memfd_create("instance", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def pipe():
    reader, writer = os.pipe()
    os.close(reader)
    return writer


SIZES = [  # form, change of the slot, what is reported
    ("pointer", in_message("<I", 32, wire.DATA), OF_MAP + "a probe's map in the module has another size than the map"),
    ("resident", in_message("<I", 32, wire.POINTER), OF_MAP + "a probe's map in the module has another size than the map"),
    ("pointer", in_message("<I", 32, wire.PROCESS), "a probe's process variable in the module has a wrong size"),
    ("resident", in_message("<I", 32, wire.PROCESS), "a probe's process variable in the module has a wrong size"),
    ("pointer", in_message("<I", 32, 0), None),
    ("pointer", in_message("<I", 32, 4), None),
]
# of struct wire_instance_reply: size at 32, data_size 40, place 48, kind 52; of struct map_header: see wire.HEADER
INSTANCES = [
    ("pointer", "place 3", in_message("<I", 48, 3)),
    ("pointer", "place of another", in_message("<I", 48, wire.HOST)),
    ("host", "place of another", in_message("<I", 48, wire.DEVICE)),
    ("pointer", "kind 4", in_message("<I", 52, 4)),
    ("pointer", "kind of another", in_message("<I", 52, wire.HASH)),
    ("pointer", "said to be a ring", in_message("<I", 52, wire.RING)),
    ("ring", "said to be none", in_message("<I", 52, wire.ARRAY)),
    ("pointer", "old layout", in_header((4, "<I", 1))),
    ("pointer", "map of another", in_header((8, "<Q", 5))),
    ("pointer", "size of its data", in_header((104, "<Q", 8))),
    ("pointer", "a host area", in_header((112, "<Q", 4096))),
    ("ring", "no rings", in_header((60, "<I", 0))),
    ("ring", "three rings", in_header((60, "<I", 3))),
    ("ring", "more rings", in_header((60, "<I", 8))),
    ("ring", "a ring of 2^63", in_header((96, "<Q", 1 << 63))),
    ("ring", "a ring of 100", in_header((96, "<Q", 100))),
    ("ring", "larger rings", in_header((96, "<Q", 2 * RING_SIZE))),
    ("ring", "a smaller area", in_header((112, "<Q", RING_AREA - 4096))),
    ("ring", "in host memory", in_header((44, "<I", wire.HOST))),
    ("host", "unsealed", instead(lambda: file_of(8192, 0))),
    ("kernel", "a memfd, unsealed", instead(lambda: file_of(DATA_SIZE, 0))),
    ("kernel", "a memfd, too small", instead(lambda: file_of(2048, INSTANCE_SEALS))),
    ("kernel", "a pipe", instead(pipe)),
    ("kernel", "a device", instead(lambda: os.open("/dev/zero", os.O_RDWR))),
    ("kernel", "larger than it is", in_message("<Q", 32, 1 << 20)),
    ("kernel", "less than its data", in_message("<Q", 40, 4097)),
    ("kernel", "not whole pages", in_message("<Q", 32, 4000)),
    ("kernel", "no array", in_message("<I", 52, wire.HASH)),
]


def wrong():
    bare = run(["s-unload"], preload=())
    for number, (form, change, reason) in enumerate(SIZES):
        with fake_daemon.FakeDaemon(session(f"size{number}"), {"slot": change}, form=form) as daemon:
            if as_bare(f"{form}: slot {number}", bare, run(["s-unload"], GPUPROBE_SESSION=daemon.name)):
                good = set(daemon.reports()) == ({reason} if reason else set()) and not daemon.seen(wire.ARMED)
                report(f"{form}: slot {number}", good, str(daemon.reports()))
    for number, (form, label, change) in enumerate(INSTANCES):
        with fake_daemon.FakeDaemon(session(f"instance{number}"), {"instance": change}, form=form) as daemon:
            if as_bare(f"{form}: {label}", bare, run(["s-unload"], GPUPROBE_SESSION=daemon.name)):
                good = set(daemon.reports()) == {NO_INSTANCE} and not daemon.seen(wire.ARMED) and daemon.seen(wire.INSTANCE) > 0
                report(f"{form}: {label}", good, str(daemon.reports()))
    # a memfd stands for a kernel map where it is one that keeps its size
    with fake_daemon.FakeDaemon(session("memfd"), {"instance": instead(lambda: file_of(DATA_SIZE, INSTANCE_SEALS))}, form="kernel") as daemon:
        if as_bare("kernel: a memfd", bare, run(["s-unload"], GPUPROBE_SESSION=daemon.name)):
            report("kernel: a memfd", not daemon.reports() and daemon.seen(wire.ARMED) == 3, str(daemon.reports()))


for one in FORMS:
    if one not in ("resident", "two"):
        disarm(one)
disarm_partly()
reused("pointer")
reused("const")
reused("pointer", False)
register_fails("host", DATA_SIZE)
register_fails("kernel", DATA_SIZE)
register_fails("ring", RING_AREA)
one_of_two()
wrong()
end()
