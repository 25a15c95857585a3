#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernels are patched and unpatched while the process runs: the shim, the sanitizer engine and the stand-in for NVIDIA's library on the CPU
driver; plans that are right, wrong, late and missing."""

import os
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time

import fake_daemon
import wire
from fake_daemon import EVERYONE
from fake_plans import DATA_SIZE, MAP_OFFSET, PID_WORD, PROCESS_OFFSET, PlanDaemon, kernel_id, rule
from target_runs import BUILD, SANITIZED, SHIM, SIM, TARGETS, end, limited, report, session, within

LIVE = os.path.join(SIM, "live_driver")
SANITIZER = os.path.join(SIM, "sanitizer/libsanitizer-public.so")
LANGUAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tests/targets/language.ptx")
OLD_ENGINE = os.path.join(BUILD, "shim/mock/libmock-sass.so")
THREADS = 256
RULE_NOT, RULE_COMM = 32, 4


class Live:
    """live_driver, command by command; `sum` shows that each launch has done its work."""

    def __init__(self, daemon, shim=SHIM, load="load 0", file_size=None, arguments=(), **more):
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("GPUPROBE", "LD_"))}
        self.launches, self.broken = 0, []
        self.process = subprocess.Popen(
            [LIVE, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=limited(file_size),
            env={**clean, "LD_LIBRARY_PATH": SIM, "LD_PRELOAD": shim, "GPUPROBE_SESSION": daemon.name, **more},
        )
        self.read("start")
        if load:
            self.do(load)

    def read(self, command):
        words = self.process.stdout.readline().split()
        if words[:1] != ["ok"]:
            self.broken.append(f"{command}: {words}")
        return [int(word) for word in words[1:]]

    def do(self, command):
        if self.process.poll() is None:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
        return self.read(command)

    def launch(self, number=1, slot=0):
        self.do(f"launch {slot} vectorAdd {number}")
        self.launches += number

    def size(self):
        """Descriptors, mappings, kilobytes. A sanitizer makes mappings of its own."""
        folder = f"/proc/{self.process.pid}"
        if SANITIZED:
            return len(os.listdir(f"{folder}/fd")), 0, 0
        with open(f"{folder}/maps") as maps, open(f"{folder}/statm") as statm:
            return len(os.listdir(f"{folder}/fd")), len(maps.readlines()), int(statm.read().split()[1]) * 4

    def good(self):
        """Whether everything was done, and the program ends well."""
        total = self.do("sum")
        self.process.stdin.close()
        status = self.process.wait(timeout=20)
        if status or self.broken or total != [self.launches * THREADS]:
            self.broken.append(f"status {status}, sum {total}, not {self.launches * THREADS}")
        return not self.broken


def counted(daemon, launches):
    return within(lambda: daemon.count() == launches * THREADS)


def expect(label, daemon, launches, live=None, text=""):
    good = counted(daemon, launches)
    if live:
        good = live.good() and counted(daemon, launches) and good
    report(label, good, f"{daemon.count()} of {launches * THREADS}; {live.broken if live else ''} {sorted(set(daemon.reports()))} {text}")


def report_sizes(label, live, sizes, kilobytes):
    """The program has no more by now than at its most among some early cycles: what comes and goes may be there, or not."""
    most = [max(values) for values in zip(*sizes)]
    limits = [most[0], most[1], most[2] + kilobytes - 1]
    small = within(lambda: all(now <= limit for now, limit in zip(live.size(), limits)))
    report(label, small, f"{live.size()} {limits}")


for kind, label in ((wire.REGION, "region"), (wire.POINTER, "pointer")):
    with PlanDaemon(session("before_" + label), SANITIZER, kind=kind) as daemon:
        live = Live(daemon)
        live.launch(3)
        expect(f"{label}: attached before the start", daemon, 3, live)
        words = daemon.values(8) + daemon.values(16)
        report(f"{label}: the kernel and the process", words == [kernel_id("vectorAdd"), PID_WORD], str(words))
        report(f"{label}: ARMED, and all plans but one unloaded", daemon.seen(wire.ARMED) == daemon.seen(wire.UNLOAD) + 1, str(daemon.messages))

    with PlanDaemon(session("live_" + label), SANITIZER, attached=False, kind=kind) as daemon:
        live = Live(daemon)
        live.launch(2)
        report(f"{label}: nothing attached: nothing said", not daemon.messages)
        daemon.attach()
        live.launch(3)
        expect(f"{label}: attached live", daemon, 3)
        live.do("launch 0 warps 1")
        daemon.attach(False)
        live.launch(2)
        report(f"{label}: detached: UNLOAD", within(lambda: daemon.seen(wire.UNLOAD) == 1))
        daemon.attach()
        live.launch(1)
        daemon.image_number = 1  # another image, the same map
        daemon.attach()
        live.launch(2)
        live.do("sum")
        expect(f"{label}: detached and attached again", daemon, 6)
        live.process.stdin.close()
        report(f"{label}: ends", live.process.wait(timeout=20) == 0 and not live.broken, str(live.broken))

# LeakSanitizer makes system calls when a process ends
if SANITIZED != "address" and os.readlink("/proc/self/ns/pid") == "pid:[4026531836]" and os.readlink("/proc/self/ns/user") == "user:[4026531837]":
    with PlanDaemon(session("sandbox"), SANITIZER, attached=False) as daemon:
        live = Live(daemon)
        live.launch()
        live.do("sandbox")
        for _ in range(3):
            daemon.attach(rules=(rule(1, os.getpid()), rule(2 | RULE_COMM, 0, os.getuid() + 1, b"live_driver")))
            live.launch()
            daemon.attach(False)
            live.launch()
        report("an attachment to others makes no system call in a sandbox", live.good() and not daemon.messages, str(live.broken))

if not SANITIZED:  # sanitizers have files of their own
    with PlanDaemon(session("limit"), SANITIZER) as daemon:
        live = Live(daemon, file_size=16)
        live.launch(2)
        expect("the names are past the limit of files", daemon, 0, live)
        told = within(lambda: any("ulimit -f" in reason for reason in daemon.reports()))
        report("the names are past the limit of files: told", told and not daemon.seen(wire.IMAGE), str(daemon.messages))

with PlanDaemon(session("beside"), SANITIZER) as daemon:
    live = Live(daemon, arguments=("beside",), GPUPROBE_SANITIZER_SLOW="1")
    live.launch(2)
    expect("two threads call cuInit() at a time", daemon, 2, live)

with PlanDaemon(session("cycles"), SANITIZER, attached=False) as daemon:
    live = Live(daemon)
    sizes = []  # of some early cycles: the thread that copies maps, and its connection, come and go
    for cycle in range(1000):
        daemon.attach()
        live.launch()
        daemon.attach(False)
        live.launch()
        if 90 <= cycle < 110:
            sizes.append(live.size())
    report_sizes("1000 cycles: no descriptors and mappings, less than 256 KB", live, sizes, 256)
    expect("1000 cycles: none lost", daemon, 1000, live)
    report("1000 cycles: one instance", len(daemon.instances) == 1 and daemon.seen(wire.UNLOAD) == 1000, str(daemon.seen(wire.UNLOAD)))

for kind, label in ((wire.REGION, "region"), (wire.POINTER, "pointer")):
    with PlanDaemon(session("maps_" + label), SANITIZER, attached=False, kind=kind) as daemon:  # each time with a map of its own
        live = Live(daemon)
        sizes, good = [], True
        for cycle in range(200):
            daemon.map = fake_daemon.MAP + cycle
            daemon.attach()
            live.launch()
            daemon.attach(False)
            good = good and daemon.disarm(daemon.map)
            live.launch()
            if cycle in (49, 199):
                sizes.append(live.size())
        expect(f"{label}: 200 cycles with new maps", daemon, 200, live)
        report(
            f"{label}: 200 cycles with new maps: nothing kept",
            good and abs(sizes[0][0] - sizes[1][0]) < 2 and abs(sizes[0][1] - sizes[1][1]) < 9 and len(daemon.instances) == 200,
            f"{good} {sizes}",
        )

for how, lazy in (("", "0"), (" library", "0"), ("", "1"), (" library", "1")):
    with PlanDaemon(session("loads" + how.strip()), SANITIZER) as daemon:
        live = Live(daemon, load="load 0" + how, GPUPROBE_SIM_LAZY=lazy)
        live.launch(1)
        live.do("load 1" + how)
        live.launch(2, slot=1)
        live.do("unload 0")
        live.launch(1, slot=1)
        live.do("load 0" + how)
        live.launch(1)
        live.do("unload 1")
        daemon.attach(False)
        live.launch(2)
        daemon.attach()
        live.launch(1)
        expect(f"modules come and go while attached{how}{' lazily' * int(lazy)}", daemon, 6, live)

for form in "pointer", "host":  # what is the daemon's own memory is registered before the launch
    for by in "handle", "listed":
        with PlanDaemon(session(f"brings_{form}_{by}"), SANITIZER, kind=wire.POINTER, form=form) as daemon:
            live = Live(daemon, load="load 0 library")
            live.do(f"{by} 0 vectorAdd 1")
            live.launches += 1
            expect(f"a launch brings its module, {form}, {by}", daemon, 1)
            live.do(f"{by} 0 vectorAdd 2")
            live.launches += 2
            expect(f"a launch brings its module, {form}, {by}: and goes on", daemon, 3, live)

with PlanDaemon(session("slots"), SANITIZER) as daemon:  # the module comes within the launch: the next one is too late
    live = Live(daemon, load="load 0 library")
    daemon.slots = [(0, wire.PROCESS, PROCESS_OFFSET)]
    live.launch()
    daemon.slots = None
    for slot in 1, 2:
        live.do(f"load {slot} library")
        live.do(f"handle {slot} vectorAdd 1")
        live.launches += 1
    expect("a launch brings a module whose plan has other slots", daemon, 2)
    asked = len(daemon.asked)
    live.launch(2, slot=1)
    expect("a launch brings a module: and goes on", daemon, 4, live)
    report("a launch brings a module: no plan for all is asked for", len(daemon.asked) == asked, str(daemon.asked))

if not SANITIZED:  # what makes a function slow answers before a sanitizer can
    with PlanDaemon(session("refused"), SANITIZER, attached=False) as daemon:
        live = Live(
            daemon, f"{SHIM}:{TARGETS}/libs-slow.so", load="load 0 library", S_SLOW_CALL="cuModuleUnload", S_SLOW_TILL="cuEventSynchronize", S_SLOW_BEHIND="1"
        )
        live.launch()
        live.do("refuse 0")
        daemon.attach()
        live.launch()  # it is not touched
        live.do("refused")
        live.launch(2)
        expect("a module that the driver did not unload is patched as others are", daemon, 2, live)

with PlanDaemon(session("unload_fails"), SANITIZER) as daemon:  # within the driver it is said to be unloaded, but it is not
    live = Live(daemon, GPUPROBE_SIM_REFUSE="1")
    live.launch(1)
    live.do("unload 0 refused")
    live.launch(1)
    daemon.attach(False)
    live.launch(1)
    for number in (0, 1):
        daemon.image_number = number
        daemon.attach()
        live.launch(2)
    counts = counted(daemon, 6)
    live.do("unload 0")
    live.do("load 0")
    live.launch(1)
    expect("a module whose unloading fails once is patched once at a time", daemon, 7, live)
    report("a module whose unloading fails once: before it is unloaded, too", counts)

with PlanDaemon(session("reload"), SANITIZER) as daemon:
    live = Live(daemon, load=None)
    sizes = []
    for cycle in range(300):
        live.do("load 0")
        live.launch()
        live.do("unload 0")
        if 90 <= cycle < 110:
            sizes.append(live.size())
    report_sizes("300 modules: no descriptors and mappings", live, sizes, 1 << 20)
    expect("300 modules, one after the other", daemon, 300, live)
    report("300 modules: plans go with them", within(lambda: daemon.seen(wire.UNLOAD) > 290), str(daemon.seen(wire.UNLOAD)))

with PlanDaemon(session("many"), SANITIZER) as daemon:  # more than the real one has plans for
    live = Live(daemon)
    for _ in range(1100):
        live.do("load 1")
        live.launch(slot=1)
    live.launch()
    daemon.attach()
    live.launch()
    live.launch(slot=1)
    expect("1100 modules at a time", daemon, 1103, live)
    kept = daemon.most_plans
    report("1100 modules at a time: half as many plans as the daemon has room for", kept <= 513, str(kept))

with PlanDaemon(session("threads"), SANITIZER, attached=False) as daemon:
    live = Live(daemon)
    live.do("start 0 vectorAdd 3")
    for cycle in range(100):
        daemon.attach(cycle % 2 == 0)
        begun = live.do("counts")[0]
        within(lambda: live.do("counts")[0] > begun + 3)
    daemon.attach(False)
    (ended,) = live.do("stop")
    live.launches = ended
    live.launch()
    good = live.good()
    total = daemon.count()
    report(
        "three threads launch while it is attached and detached",
        good and total % THREADS == 0 and 0 < total < ended * THREADS,
        f"{total} of {ended * THREADS} {live.broken} {sorted(set(daemon.reports()))}",
    )

with PlanDaemon(session("threads_on"), SANITIZER) as daemon:  # what changes is nothing to these kernels: none is lost
    live = Live(daemon)
    live.launch()
    live.do("start 0 vectorAdd 3")
    for cycle in range(50):
        daemon.image_number = cycle % 3
        daemon.attach()
        begun = live.do("counts")[0]
        within(lambda: live.do("counts")[0] > begun + 3)
    (ended,) = live.do("stop")
    live.launches += ended
    expect("three threads launch while patches are replaced", daemon, ended + 1, live)

# A module that comes while another thread waits for the daemon is not in that one's list.
for kernels in "vectorAdd", "nothing":
    asked = threading.Event()

    def answer_late(connection, answer):
        if asking:
            asked.set()
            time.sleep(0.1)
            daemon.kernels = "vectorAdd"
        return answer

    asking = False
    with PlanDaemon(session("meanwhile"), SANITIZER, kernels=kernels, script={"plan": answer_late, "plan-own": answer_late}) as daemon:
        live = Live(daemon, GPUPROBE_SIM_LAZY="1")
        live.launch(2)
        live.do("load 1 library")  # its module comes when a kernel of it is looked for
        live.do("start 0 vectorAdd 1")
        asking = True
        daemon.attach()
        asked.wait(15)
        live.launch(3, slot=1)
        asking = False
        (ended,) = live.do("stop")
        live.launches += ended
        expect(f"a module comes while another thread asks ({kernels})", daemon, 3 + (ended + 2) * (kernels == "vectorAdd"), live, str(daemon.asked))

with PlanDaemon(session("graph"), SANITIZER) as daemon:
    live = Live(daemon)
    live.do("capture 0 vectorAdd 2")
    live.do("replay 3")
    expect("a graph that is made while attached", daemon, 6)
    daemon.attach(False)
    live.do("replay 2")
    live.launches = 10
    expect("the same when detached", daemon, 6, live)

with PlanDaemon(session("graph_stays"), SANITIZER) as daemon:
    live = Live(daemon)
    live.do("capture 0 vectorAdd 1")
    live.do("replay 1")
    for number in (1, 2, 0):
        daemon.attach(False)
        live.do("replay 1")
        daemon.image_number = number
        daemon.attach()
        live.do("replay 1")
    live.launch(1)
    live.launches = 8
    expect("a graph goes on while patches come and go", daemon, 5, live)
    live = None

with PlanDaemon(session("graph_before"), SANITIZER, attached=False) as daemon:
    live = Live(daemon)
    live.do("capture 0 vectorAdd 2")
    live.do("replay 1")
    for number in (0, 1):
        daemon.image_number = number
        daemon.attach()
        live.do("replay 2")
    daemon.attach(False)
    live.do("replay 1")
    live.launches = 12
    expect("a graph from before", daemon, 8, live)

with PlanDaemon(session("graph_fixed"), SANITIZER) as daemon:
    live = Live(daemon, GPUPROBE_SIM_NO_CLONE="1")
    live.do("capture 0 vectorAdd 1")
    live.do("replay 1")
    daemon.attach(False)
    live.do("replay 1")
    daemon.image_number = 1
    daemon.attach()
    live.do("replay 1")
    live.launches = 3
    live.launch(1)
    expect("a graph that cannot be cloned keeps its patches, which count nothing", daemon, 1)
    report("and the daemon hears of it", any("keeps kernel patches" in reason for reason in daemon.reports()), str(daemon.reports()))
    live.do("forget 0")
    live.launch(2)
    expect("it is gone: others come", daemon, 3, live)

with PlanDaemon(session("contexts"), SANITIZER) as daemon:
    live = Live(daemon)
    live.launch(2)
    live.do("context")
    live.do("load 1")
    live.launch(1, slot=1)
    daemon.attach(False)
    live.launch(1, slot=1)
    daemon.attach()
    live.launch(1, slot=1)
    expect("two contexts", daemon, 4, live)
    report("two contexts: two instances", len(daemon.instances) == 2, str(len(daemon.instances)))

with PlanDaemon(session("own"), SANITIZER, kernels="nothing") as daemon:
    live = Live(daemon)
    live.launch(2)
    asked = len(daemon.asked)
    live.launch(20)
    report("OWN: asked once, nothing armed", asked == len(daemon.asked) and not daemon.seen(wire.ARMED) and live.good(), str(daemon.asked))

for later, label, stays in ((1, "keep", True), (2, "bare", False)):
    with PlanDaemon(session("later"), SANITIZER) as daemon:
        live = Live(daemon)
        live.launch(2)
        daemon.later, daemon.image_number = later, 1
        daemon.attach()
        live.launch(3)
        asked = len(daemon.asked)
        live.launch(20)
        counts = 2 + 23 * stays
        expect(f"no plan now: {label}", daemon, counts)
        daemon.later = 0
        unasked = len(daemon.asked) - asked
        time.sleep(1.1)
        live.launch(2)
        expect(f"no plan now: {label}: a second later there is one", daemon, counts + 2, live)
        report(f"no plan now: {label}: it is not asked for all the time", not unasked and len(daemon.asked) == asked + 1, str(daemon.asked))

with PlanDaemon(session("descriptors"), SANITIZER) as daemon:
    live = Live(daemon)
    live.launch(2)
    counted(daemon, 2)  # our thread has its connection
    asked = len(daemon.asked)
    limits = resource.prlimit(live.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(live.process.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
    daemon.image_number = 1
    daemon.attach()
    live.launch(3)
    expect("no descriptor to ask with: what is patched stays", daemon, 5)
    resource.prlimit(live.process.pid, resource.RLIMIT_NOFILE, limits)
    time.sleep(1.1)
    live.launch(2)
    expect("there is one again", daemon, 7, live)
    report(
        "and the daemon hears of it once",
        len(daemon.reports()) == 1 and "no descriptor" in daemon.reports()[0] and len(daemon.asked) == asked + 1,
        f"{daemon.reports()} {daemon.asked}",
    )

for kind, label in ((wire.REGION, "region"), (wire.POINTER, "pointer")):
    with PlanDaemon(session("disarm_" + label), SANITIZER, kind=kind, period_ms=0) as daemon:
        live = Live(daemon)
        live.launch(2)
        good = within(lambda: daemon.mirror) and daemon.disarm(daemon.map)
        live.launch(2)
        report(f"{label}: DISARM", live.good() and good and daemon.count() == 2 * THREADS, str(daemon.count()))


def other_slot(_, messages):
    """The slot of a twin, with the map that there is now."""
    ((data, fds),) = messages
    module, _, *rest = struct.unpack_from(wire.BODIES[wire.SLOT], data, 16)
    return [(wire.message(wire.SLOT, module, daemon.map, *rest, sequence=struct.unpack_from("<I", data, 12)[0]), fds)]


# What is not known to be out of use when its map goes is not given back: kernels go on, and may write to it.
for label, patches in (("the pointer of a twin", False), ("the data of a patch", True)):
    script = {} if patches else {"slot": other_slot}
    with (
        tempfile.TemporaryDirectory() as folder,
        PlanDaemon(session("held"), SANITIZER, kind=wire.POINTER, period_ms=0, ptx=not patches, script=script) as daemon,
    ):
        trouble = os.path.join(folder, "trouble")
        fails = {"GPUPROBE_SANITIZER_FAIL": "write unpatch", "GPUPROBE_SANITIZER_WHILE": trouble} if patches else {"GPUPROBE_SIM_NO_UPLOAD": trouble}
        live = Live(daemon, load=f"file 0 {LANGUAGE}", **fails, **({} if patches else {"GPUPROBE": "ptx"}))
        live.launch(2)
        with open(trouble, "w"):
            good = within(lambda: daemon.mirror) and daemon.disarm(daemon.map)
            daemon.attach(False)
            if patches:
                live.launch(2)
        os.unlink(trouble)
        live.launch(2)
        daemon.map += 1
        daemon.attach()
        while not patches and good and len(daemon.instances) < 2:  # a launch does not wait for its twin
            live.launch(1)
        live.launch(3)
        good = live.good() and good and daemon.values()[0] == 2 * THREADS
        second = daemon.values()[1:]
        good = good and second and (second[0] == 3 * THREADS or not patches and second[0] == 4 * THREADS)
        report(f"{label} cannot be written when its map goes", good, f"{daemon.values()} {live.broken} {daemon.reports()}")

# ---- daemons that die, come back, are late


with PlanDaemon(session("dies"), SANITIZER) as daemon:
    live = Live(daemon)
    live.launch(2)
    good = counted(daemon, 2)
    daemon.attach(False)
    daemon.attach()
    daemon.stop()
    live.launch(2)
    with PlanDaemon(daemon.name, SANITIZER) as second:
        live.do("load 1")  # a load looks for a new page
        live.launch(3)
        expect("a second daemon", second, 3, live)
    report("the first one's count", good)

for step, script in (("hangs up", lambda connection, answer: None), ("says nothing", lambda connection, answer: [])):
    for name in ("plan", "plan-slot", "instance"):
        with PlanDaemon(session("breaks"), SANITIZER, script={name: script}, deadline_ms=300) as daemon:
            live = Live(daemon)
            live.launch(2)
            report(f"{name}: {step}", live.good() and daemon.count() == 0, f"{daemon.count()} {live.broken}")

refused = []
with PlanDaemon(session("left"), SANITIZER, script={"welcome": lambda connection, answer: answer if refused else refused.append(1)}) as daemon:
    live = Live(daemon, GPUPROBE_SANITIZER_FAIL="cubin")

    def told():
        live.launch()
        return any("not patched, because" in reason for reason in daemon.reports())

    report("a module is left alone: said to a daemon that answers later", within(told, 60) and refused and live.good(), f"{live.broken} {daemon.messages}")

# ---- plans that are none


def field(form, offset, value):
    def edit(plan):
        struct.pack_into(form, plan, offset, value)
        return bytes(plan)

    return edit


BAD = {
    "empty": lambda plan: b"",
    "short": lambda plan: bytes(plan[:71]),
    "one byte more": lambda plan: bytes(plan) + b"\0",
    "magic": field("<I", 0, 1),
    "version": field("<I", 4, 2),
    "size": field("<Q", 8, 1 << 40),
    "size less": field("<Q", 8, 100),
    "image outside": field("<Q", 16, 1 << 40),
    "image odd": field("<Q", 16, 73),
    "image in the header": field("<Q", 16, 8),
    "image size": field("<Q", 24, 1 << 40),
    "image size around": field("<Q", 24, (1 << 64) - 8),
    "no image size": field("<Q", 24, 0),
    "image id": field("<Q", 32, 0),
    "points outside": field("<I", 40, 1 << 31),
    "points odd": field("<I", 40, 75),
    "many points": field("<I", 44, 1 << 30),
    "no points": field("<I", 44, 0),
    "kernels outside": field("<I", 48, 0xFFFFFFF8),
    "many kernels": field("<I", 52, 0xFFFFFFFF),
    "data odd": field("<I", 56, 56),
    "no data": field("<I", 56, 0),
    "data large": field("<I", 56, 8192),
    "data smaller than slots": field("<I", 56, 32),
    "reserved": field("<I", 60, 1),
    "instruction": field("<I", 64, 13),
    "instruction 0": field("<I", 64, 0),
    "point reserved": field("<I", 68, 1),
    "no symbol": field("<B", 72, 0),
    "symbol without end": field("<56s", 72, b"x" * 56),
    "unknown module": field("<I", 128, 77),
    "unknown name": field("<I", 132, 1000000),
    "no attachments": field("<Q", 144, 0),
    "attachment 58": field("<Q", 144, 1 << 58),
    "image cut": field("<Q", 24, 40),
}
BAD_SLOTS = {
    "slot in the header": [(0, wire.PROCESS, 24)],
    "slot outside": [(77, wire.REGION, DATA_SIZE)],
    "slot odd": [(77, wire.REGION, 41)],
    "slot far outside": [(77, wire.REGION, 0xFFFFFFF8)],
    "slot of a module": [(77, wire.DATA, MAP_OFFSET)],
}
for label, edit in BAD.items():
    with PlanDaemon(session("bad"), SANITIZER) as daemon:
        daemon.edit = edit
        live = Live(daemon)
        live.launch(2)
        report(
            f"plan: {label}",
            live.good() and daemon.count() == 0 and not daemon.seen(wire.ARMED) and len(daemon.asked) == 1,
            f"{daemon.count()} {live.broken} {daemon.reports()} {daemon.asked}",
        )
for label, slots in BAD_SLOTS.items():
    with PlanDaemon(session("bad"), SANITIZER) as daemon:
        daemon.slots = slots
        live = Live(daemon)
        live.launch(2)
        report(f"plan: {label}", live.good() and daemon.count() == 0 and not daemon.seen(wire.ARMED), str(daemon.reports()))
with PlanDaemon(session("unsealed"), SANITIZER, script={"plan": lambda connection, answer: fake_daemon.unsealed(answer)}) as daemon:
    live = Live(daemon)
    live.launch(2)
    report("plan: not sealed", live.good() and daemon.count() == 0 and not daemon.seen(wire.ARMED))

# ---- an engine that fails

for what in ("image", "mark", "patch", "data", "alloc", "write", "unpatch"):
    with PlanDaemon(session("fails"), SANITIZER) as daemon:
        live = Live(daemon, GPUPROBE_SANITIZER_FAIL=what)
        live.launch(2)
        if what != "unpatch":
            good = daemon.count() == 0 and within(lambda: daemon.reports())
        else:
            good = counted(daemon, 2)
            daemon.attach(False)
            live.launch(2)
            good = good and counted(daemon, 2)
        report(f"the engine fails: {what}", good and live.good(), f"{daemon.count()} {daemon.reports()} {live.broken}")

with PlanDaemon(session("not_there"), "/nonexistent/libsanitizer-public.so") as daemon:
    live = Live(daemon)
    live.launch(2)
    report(
        "no library of NVIDIA's: why",
        live.good() and not daemon.asked and len(daemon.reports()) == 1 and [fields[0] for kind, fields in daemon.messages if kind == wire.REPORT] == [0],
        str(daemon.messages),
    )

with tempfile.TemporaryDirectory() as folder:
    shim = shutil.copy(SHIM, folder)
    with PlanDaemon(session("alone"), SANITIZER) as daemon:
        live = Live(daemon, shim)
        live.launch(2)
        report("no engine beside the shim: why", live.good() and len(daemon.reports()) == 1 and "beside the shim" in daemon.reports()[0], str(daemon.messages))
    shutil.copy(OLD_ENGINE, os.path.join(folder, "libgpuprobe-sass.so"))
    with PlanDaemon(session("old"), SANITIZER) as daemon:
        live = Live(daemon, shim)
        live.launch(2)
        report(
            "an engine of another version: why", live.good() and len(daemon.reports()) == 1 and "another version" in daemon.reports()[0], str(daemon.messages)
        )

# ---- who gets the engine

for label, rules, wanted in (
    ("no rules", (), False),
    ("by name", (rule(RULE_COMM, comm=b"live_driver"),), True),
    ("another name", (rule(RULE_COMM, comm=b"python3"),), False),
    ("all but this one", (rule(RULE_NOT | RULE_COMM, comm=b"live_driver"), rule()), False),
    ("all but another one", (rule(RULE_NOT | RULE_COMM, comm=b"python3"), rule()), True),
):
    with PlanDaemon(session("rules"), SANITIZER, rules=rules) as daemon:
        live = Live(daemon)
        live.launch(2)
        report(f"rules: {label}", live.good() and counted(daemon, 2 if wanted else 0) and bool(daemon.asked) == wanted, str(daemon.messages))
with PlanDaemon(session("off"), SANITIZER) as daemon:
    live = Live(daemon, GPUPROBE="off")
    live.launch(2)
    report("GPUPROBE=off", live.good() and not daemon.messages)
with PlanDaemon(session("ptx"), SANITIZER, kind=wire.POINTER, ptx=True) as daemon:
    live = Live(daemon, load=f"file 0 {LANGUAGE}", GPUPROBE="ptx")
    live.launch(2)
    report("GPUPROBE=ptx: twins, whatever the rules", live.good() and daemon.count() == 2 * THREADS and not daemon.asked, str(daemon.messages))
end()
