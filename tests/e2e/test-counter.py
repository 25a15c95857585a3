#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The whole way of a probe: a private daemon, gpuprobectl attach, a program under the shim on the CPU driver, the number."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../daemon/worker"))

from harness import BUILD, COUNTER, CTL, GPUPROBED, SHIM, SIM, SOURCE, VEC_ADD, Daemon, Failed, check, equal, main, need, wait_until
from live import LIVE, THREADS, Live
from wire import Shim, in_child
from worker_driver import rank_kernels

need(GPUPROBED, CTL, COUNTER, SHIM, LIVE, os.path.join(SIM, "libcuda.so.1"), VEC_ADD)
N, LAUNCHES = 4096, 3
RUN = (VEC_ADD, "--threads", str(N), "--launches", str(LAUNCHES))


def said(out, err):
    """What a program said, but for the time that it measured."""
    return re.sub(r"first_us=\d+", "first_us=T", out), err


def bare():
    """What the program says and returns without us."""
    done = subprocess.run(RUN, env={**os.environ, "LD_LIBRARY_PATH": SIM}, capture_output=True, text=True, timeout=60)
    equal(done.returncode, 0, f"the program alone: {done.stdout}{done.stderr}")
    return said(done.stdout, done.stderr)


BARE = bare()


def run(daemon, *command, **more):
    """Runs the program under the shim: whatever happens to probes, it behaves as it does alone."""
    status, out, err, seconds = daemon.run(*(command or RUN), **more)
    equal(status, 0, f"exit status ({out}{err})")
    if not command:
        equal(said(out, err), BARE, "output")
    return seconds


def test_count():
    with Daemon() as daemon:
        ids = daemon.attach("--kernel", "vectorAdd")
        equal(len(ids), 1, "attachments")
        equal(daemon.count_of(), 0)
        run(daemon)
        equal(daemon.count_of(), N * LAUNCHES)
        run(daemon)
        equal(daemon.count_of(), 2 * N * LAUNCHES)
        listed = daemon.attachments()
        equal([(a["id"], a["program"], a["kernel"], a["state"]) for a in listed], [(ids[0], "cuda__counter", "vectorAdd", "armed")])
        status = daemon.status()
        equal(status["counters"]["images_made"], 2, "twins")
        equal(status["counters"]["images_cached"], 1, "images cached")
        equal(status["counters"]["processes"], 2, "processes")
        outcomes = daemon.why()
        equal({o["outcome"] for o in outcomes}, {"probed"}, "outcomes")
        check(all("vectorAdd" in o["demangled"] for o in outcomes), outcomes)
        daemon.ctl("detach", str(ids[0]))
        equal(daemon.attachments(), [])
        equal(daemon.json("map", "list")["maps"], [])
        run(daemon)
        equal(daemon.status()["counters"]["images"], 2, "a process that nothing means sends no image")


def test_not_carried():
    """Zeros that nobody wrote are told from zeros that were counted."""
    with Daemon() as daemon:
        daemon.attach("--kernel", "vectorAdd")
        said = [daemon.try_ctl("map", "dump", "counter")]
        run(daemon)
        said.append(daemon.try_ctl("map", "dump", "counter"))
        equal([status for status, _, _ in said], [0, 0])
        equal(said[0][1:], ("0: 0\n", "gpuprobectl: no process has carried the map counter so far; gpuprobectl why says what was probed and what was not\n"))
        equal(said[1][1:], (f"0: {N * LAUNCHES}\n", ""))


def test_names():
    """Glob, mangled, demangled with and without parameters, and what the section says."""
    with Daemon() as daemon:
        for i, kernel in enumerate(("vector*", "_Z9vectorAddPKfS0_Pf", "vectorAdd(float const*, float const*, float*)", None)):
            ids = daemon.attach(*(("--kernel", kernel) if kernel else ()))
            run(daemon)
            equal(daemon.count_of(), N * LAUNCHES, kernel)
            daemon.ctl("detach", str(ids[0]))


def test_ways():
    """Every way to load and launch."""
    with Daemon() as daemon:
        daemon.attach("--kernel", "vectorAdd")
        counted = 0
        for more in ([], ["--getproc"], ["--bound"], ["--loads", "3"]):
            for load in ("module", "moduleex", "library"):
                for how in ("launch", "ex", "cooperative", "streams", "threads", "graph", "capture"):
                    if more and how not in ("launch", "graph"):
                        continue
                    run(daemon, *RUN, "--how", how, "--load", load, *more)
                    counted += N * LAUNCHES * (3 if "--loads" in more else 1)
                    equal(daemon.count_of(), counted, f"{how} {load} {more}")


def test_kernels():
    """Kernels of the usual kinds compute the same with and without a probe, bit by bit; each thread is counted once. One that calls by pointers has no twin."""
    kernels = os.path.join(SIM, "kernels_driver")
    with tempfile.TemporaryDirectory() as folder, Daemon() as daemon:
        ids = daemon.attach("--kernel", "*")
        for kernel in ("reduceSum", "histogram", "matrixMultiply", "stencil", "warpFunctions", "math64", "functions"):
            before = daemon.count_of()
            files = [os.path.join(folder, f"{kernel}-{how}") for how in ("bare", "probed")]
            status, out, err, _ = daemon.run(kernels, kernel, "--dump", files[0], shim=False)
            equal(status, 0, kernel + out + err)
            run(daemon, kernels, kernel, "--dump", files[1])
            with open(files[0], "rb") as bare_file, open(files[1], "rb") as probed_file:
                memory = bare_file.read()
                check(memory, "the kernel left nothing to compare")
                check(memory == probed_file.read(), kernel, "computes something else with a probe")
            check((daemon.count_of() > before) == (kernel != "functions"), kernel, "counted:", daemon.count_of() - before)
        left_out = {o["kernel"]: o["reason"] for o in daemon.why() if o["outcome"] != "probed"}
        check(left_out and all("functions" in name and "pointer" in reason for name, reason in left_out.items()), left_out)
        daemon.ctl("detach", str(ids[0]))


def test_registers():
    """Blocks for which a thread has registers enough without the probe only: launched without it, by each way, and `why` says so."""
    few = {"GPUPROBE_SIM_REGISTERS": "32768"}  # for 1024 threads of the kernel, not of the probed one
    ways = [("launch", "module"), ("ex", "library"), ("cooperative", "moduleex"), ("graph", "library"), ("capture", "module"), ("threads", "module")]
    with Daemon() as daemon:
        daemon.attach("--kernel", "vectorAdd")
        for how, load in ways:
            run(daemon, VEC_ADD, "--threads", "8192", "--block", "1024", "--launches", "3", "--how", how, "--load", load, **few)
            wait_until(
                lambda: (
                    [(o["outcome"], bool(re.match("launched [13] times? without probes", o["reason"]))) for o in daemon.why()][:2]
                    == [("not-probed", True), ("probed", False)]
                ),
                f"why says so: {how}",
            )
        equal(daemon.count_of(), 0)
        check("vectorAdd" in daemon.why()[0]["demangled"], daemon.why()[0])
        run(daemon, VEC_ADD, "--threads", "65536", "--block", "256", "--launches", "3", **few)  # more blocks than fit at once anyway
        equal(daemon.count_of(), 3 * 65536)
        # blocks that it could have, but not so many at once
        run(daemon, VEC_ADD, "--threads", "8192", "--block", "256", "--launches", "120", "--how", "cooperative", **few)
        equal(daemon.count_of(), 3 * 65536)
        wait_until(lambda: [o["reason"][:18] for o in daemon.why()][:2] == ["launched 100 times", "launched 1 time wi"], "why counts")


def test_options():
    """What the application has for the driver's compiler is for its own kernels: the probed ones are the same."""
    with Daemon() as daemon:
        daemon.attach("--kernel", "vectorAdd")
        run(daemon)
        for count, load in enumerate(("moduleex", "library", "moduleex"), 1):
            run(daemon, VEC_ADD, "--threads", str(N), "--registers", "16", "--load", load)
            equal(daemon.count_of(), N * (LAUNCHES + count), load)
        equal({o["outcome"] for o in daemon.why()}, {"probed"})
        counters = daemon.status()["counters"]
        equal((counters["images_made"], counters["images_cached"]), (4, 3), "one image")


def test_no_daemon():
    daemon = Daemon(start=False)
    run(daemon)


def test_nothing_attached():
    with Daemon() as daemon:
        run(daemon)
        equal(daemon.status()["counters"]["images"], 0, "images")


def test_stopped_daemon():
    """A daemon that was attached to and is gone, in good order and killed."""
    with Daemon() as daemon:
        daemon.attach("--kernel", "vectorAdd")
        daemon.kill()
        check(os.path.exists(f"{daemon.directory}/interest"))
        check(run(daemon) < 5, "the program waits for a dead daemon")
        daemon.start()  # in the same place
        daemon.attach("--kernel", "vectorAdd")
        run(daemon)
        equal(daemon.count_of(), N * LAUNCHES)
        daemon.stop()
        run(daemon)
        daemon.start()


def test_killed_while_loading():
    with Daemon("--image-worker-argument=--test-fault=hang", "--deadline-ms=60000") as daemon:
        daemon.attach("--kernel", "vectorAdd")
        process = daemon.start_run(*RUN)
        wait_until(lambda: daemon.status()["counters"]["images"] == 1, "the image is at the daemon")
        check(process.poll() is None, "the program did not wait")
        daemon.kill()
        out, err = process.communicate(timeout=10)
        equal((process.returncode, said(out, err)), (0, BARE), "the program")


def reasons(daemon):
    """What why says, from the first to the last."""
    return [(o["outcome"], o["reason"]) for o in sorted(daemon.why(), key=lambda o: o["time"])]


def goes_on(milliseconds, setting="deadline-ms"):
    reason = f"late: the {milliseconds} ms that this process may wait in all for compiling are used up ({setting})"
    return "not-probed", f"{reason}; compiling goes on, and a later launch is probed"


def timeouts(daemon):
    return daemon.status()["counters"]["worker_timeouts"]


def test_worker_hangs():
    """A worker that never ends: the program is held up no longer than a deadline, the worker is killed after its own."""
    with Daemon("--image-worker-argument=--test-fault=hang", "--deadline-ms=700", "--compile-ms=2500") as daemon:
        daemon.attach("--kernel", "vectorAdd")
        seconds = run(daemon)
        check(0.5 < seconds < 5, "held up for", seconds, "s")
        equal(daemon.count_of(), 0)
        equal(reasons(daemon), [goes_on(630)])
        wait_until(lambda: timeouts(daemon) == 1, "the worker is killed")
        check(run(daemon) < 0.5, "the same image holds up the next process, too")
        equal(reasons(daemon), [goes_on(630), ("failed", "worker timed out")])
        equal(timeouts(daemon), 1)


def test_worker_hangs_no_overtime():
    with Daemon("--image-worker-argument=--test-fault=hang", "--deadline-ms=700", "--compile-ms=0") as daemon:
        daemon.attach("--kernel", "vectorAdd")
        seconds = run(daemon)
        check(0.5 < seconds < 5, "held up for", seconds, "s")
        equal(reasons(daemon), [("failed", "worker timed out")])
        check(run(daemon) < 0.5, "the same image holds up the next process, too")
        equal(timeouts(daemon), 1)


def test_worker_slow():
    """Compiling takes longer than a process waits: its launches are not probed till then, the next process's are."""
    with Daemon("--image-worker-argument=--test-fault=slow", "--deadline-ms=2000") as daemon:
        daemon.attach("--kernel", "vectorAdd")
        check(run(daemon, *RUN, "--loads", "3") < 4, "each load waits")
        equal(daemon.count_of(), 0)
        equal(reasons(daemon), [goes_on(1800)])
        run(daemon)  # comes while it is compiled, and waits for that
        equal(daemon.count_of(), N * LAUNCHES)
        run(daemon)
        equal(daemon.count_of(), 2 * N * LAUNCHES)
        counters = daemon.status()["counters"]
        equal((counters["images_made"], counters["images_cached"]), (2, 1), "images")
        equal((counters["worker_timeouts"], counters["worker_crashes"]), (0, 0), "workers")


def workers(daemon):
    """The command lines of the image workers that live."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as stat, open(f"/proc/{pid}/cmdline") as line:
                fields = stat.read().rpartition(")")[2].split()
                words = line.read().split("\0")
                if fields[0] != "Z" and int(fields[1]) == daemon.process.pid and words[0].endswith("gpuprobe-image-worker"):
                    found.append(words)
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def test_detach_while_compiled():
    """Nobody can use the result: the worker ends, which is no failure; the daemon stops while another one goes on."""
    with Daemon("--image-worker-argument=--test-fault=hang", "--deadline-ms=1000", "--compile-ms=90000", "--workers=2") as daemon:
        ids = daemon.attach("--kernel", "vectorAdd")
        run(daemon)
        wait_until(lambda: len(workers(daemon)) == 3, "another worker stands in for the one that goes on")
        check(all("--cpu=91" in words for words in workers(daemon)), "processor time of a job", workers(daemon))
        daemon.ctl("detach", str(ids[0]))
        wait_until(lambda: len(workers(daemon)) == 2, "the worker ends")
        daemon.attach("--kernel", "vectorAdd")
        run(daemon)
        equal(reasons(daemon), [goes_on(900)] * 2)  # as if the first one had not been
        equal(timeouts(daemon), 0)
        wait_until(lambda: len(workers(daemon)) == 3, "another worker stands in for the one that goes on")
        start = time.monotonic()
        daemon.stop()
        check(time.monotonic() - start < 2, "stopping took", time.monotonic() - start)
        daemon.start()


def test_many_loads():
    """A hanging worker costs a process that loads one image many times one deadline, not many."""
    with Daemon("--image-worker-argument=--test-fault=hang", "--deadline-ms=700") as daemon:
        daemon.attach("--kernel", "vectorAdd")
        check(run(daemon, *RUN, "--loads", "20") < 3)


def module(number):
    """A module in PTX with the kernel vectorAdd, of which there is no other one with this number."""
    return (f".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry vectorAdd()\n{{ .reg .u32 %r<2>; mov.u32 %r1, {number}; ret; }}\n").encode()


def loads(daemon, numbers, uid=None):
    """What a process of its own (of another user) is told about these modules, "" where it gets a new one; and how long that takes."""

    def work():
        shim, start = Shim(daemon.directory, timeout=60), time.monotonic()
        return [shim.image(module(number))[2] for number in numbers], time.monotonic() - start

    return in_child(work, uid)


def test_budget():
    """A process waits once for all its modules; what is late is compiled behind, and the next process gets it."""
    numbers = list(range(4))
    with Daemon("--image-worker-argument=--test-fault=slow", "--deadline-ms=2000") as daemon:
        daemon.attach("--kernel", "vectorAdd")
        said, seconds = loads(daemon, numbers)
        check(1.7 < seconds < len(numbers) * 1.8, "held up for", seconds, "s")
        equal(said, [goes_on(1800)[1]] * len(numbers))
        wait_until(lambda: loads(daemon, numbers)[0] == [""] * len(numbers), "the next process has all of them", seconds=60)
        equal(timeouts(daemon), 0)


def test_budget_and_cache():
    """Who has waited enough still gets what is known, from the memory and from the disk."""
    with tempfile.TemporaryDirectory() as folder, Daemon("--image-worker-argument=--test-fault=slow", f"--cache-dir={folder}/cache") as daemon:
        daemon.attach("--kernel", "vectorAdd")
        equal(loads(daemon, [1])[0], [""])
        daemon.stop()
        daemon.options = (*daemon.options, "--deadline-ms=1000")
        daemon.start()
        daemon.attach("--kernel", "vectorAdd")
        for _ in "disk", "memory":
            said, _ = loads(daemon, [2, 1, 3])
            equal([bool(text) for text in said], [True, False, True], said)


def test_budget_of_others():
    """What another user has attached holds a process up for less time."""
    if os.getuid():
        return
    with Daemon("--image-worker-argument=--test-fault=slow", "--deadline-others-ms=300") as daemon:
        daemon.attach("--kernel", "vectorAdd")
        equal(loads(daemon, [1], uid=4242)[0], [goes_on(270, "deadline-others-ms")[1]])
        equal(loads(daemon, [1])[0], [""])


def test_worker_crashes():
    for fault, reason in (("crash", "worker crashed (signal 11)"), ("garbage", "worker sent a malformed reply")):
        with Daemon(f"--image-worker-argument=--test-fault={fault}") as daemon:
            daemon.attach("--kernel", "vectorAdd")
            check(run(daemon) < 5)
            equal([(o["outcome"], o["reason"]) for o in daemon.why()], [("failed", reason)])
            equal(daemon.count_of(), 0)


def test_compiler_aborts():
    """Kernels that ptxas, in several threads, aborts over run as they are, and `why` has what it says: the job is done once more, with one thread."""
    path = tempfile.NamedTemporaryFile("w", suffix=".ptx")
    with path, Daemon("--image-worker-argument=--threads=2") as daemon:
        print(rank_kernels(40), file=path, flush=True)
        daemon.attach("--kernel", "rank*", object=os.path.join(BUILD, "docs/memory_histogram.bpf.o"))
        with Live(daemon, load=f"file 0 {path.name}") as live:
            live.launch(1, "rank7")
        for outcome in daemon.why():
            check(outcome["outcome"] == "failed" and "does not compile the edited PTX for sm_90: ptxas fatal   : (C7600)" in outcome["reason"], outcome)


def test_filters():
    with Daemon() as daemon:
        wrong = (("--pid", "1"), ("--uid", "4242"), ("--comm", "other"), ("--exe", "/bin/true"), ("--exe", "/bin/*"))
        right = (
            ("--uid", str(os.getuid())),
            ("--comm", os.path.basename(VEC_ADD)[:15]),
            ("--exe", os.path.realpath(VEC_ADD)),
            ("--exe", "*/vec_add*"),
            ("--uid", str(os.getuid()), "--exe", "*/vec_add*"),
        )
        for arguments in wrong:
            ids = daemon.attach("--kernel", "vectorAdd", *arguments)
            run(daemon)
            equal(daemon.count_of(), 0, arguments)
            daemon.ctl("detach", str(ids[0]))
        equal(daemon.status()["counters"]["images_made"], 0)
        ended = subprocess.Popen(["true"])
        ended.wait()
        for command in ("attach", COUNTER, "--pid"), ("trace", "-p"):
            for pid in ended.pid, 2**31 - 1, 2**31, 2**32 + os.getpid(), 2**63 - 1:  # the last three are no process ids
                equal(daemon.try_ctl(*command, str(pid)), (5, "", f"gpuprobectl: there is no process {pid}\n"))
        for arguments in right:
            ids = daemon.attach("--kernel", "vectorAdd", *arguments)
            run(daemon)
            equal(daemon.count_of(), N * LAUNCHES, arguments)
            daemon.ctl("detach", str(ids[0]))
        ids = daemon.attach("--kernel", "somethingElse")
        run(daemon)
        equal(daemon.count_of(), 0)
        equal(daemon.why()[0]["reason"], "no kernel matches; it has vectorAdd")


def test_twelve_processes():
    with Daemon() as daemon:
        daemon.attach("--kernel", "vectorAdd")
        processes = [daemon.start_run(*RUN) for _ in range(12)]
        for process in processes:
            out, err = process.communicate(timeout=120)
            equal((process.returncode, said(out, err)), (0, BARE))
        wait_until(lambda: daemon.count_of() == 12 * N * LAUNCHES, "all counts", 3)
        counters = daemon.status()["counters"]
        equal(counters["processes"], 12)
        equal(counters["images_made"], 12)


def test_two_programs():
    """Two objects on one kernel: both run, each into its own map."""
    with Daemon() as daemon:
        first = daemon.attach("--kernel", "vectorAdd")
        second = daemon.attach("--kernel", "vector*")
        maps = [m["id"] for m in daemon.json("map", "list")["maps"]]
        equal(len(maps), 2)
        text = daemon.ctl("map", "dump", "counter", status=None)
        check(all(str(m) in text for m in maps), "which maps have that name:", text)
        run(daemon)
        equal([daemon.count_of(str(m)) for m in maps], [N * LAUNCHES] * 2)
        daemon.ctl("detach", str(first[0]))
        run(daemon)
        equal(daemon.count_of(), 2 * N * LAUNCHES)
        equal([a["id"] for a in daemon.attachments()], second)


def test_many_attachments():
    """As many as fit are applied, and it is told that others were not."""
    with Daemon() as daemon:
        for _ in range(62):
            daemon.attach("--kernel", "vectorAdd", "--exe", "*/vec_add_driver")
        run(daemon)
        maps = [m["id"] for m in daemon.json("map", "list")["maps"]]
        equal([daemon.count_of(str(m)) for m in maps], [N * LAUNCHES] * 58 + [0] * 4)
        check(any("only the first 58" in o["reason"] for o in daemon.why()), daemon.why())


def test_long_names():
    """Names that fill a job: the first that fit are applied."""
    with Daemon() as daemon:
        name = "vectorAdd" + "*" * 2000
        for _ in range(20):
            daemon.attach("--kernel", name, "--exe", "*/vec_add_driver")
        run(daemon)
        maps = [m["id"] for m in daemon.json("map", "list")["maps"]]
        counts = [daemon.count_of(str(m)) for m in maps]
        fit = counts.count(N * LAUNCHES)
        check(10 <= fit < 20, counts)
        equal(counts, [N * LAUNCHES] * fit + [0] * (20 - fit))
        check(any(f"only the first {fit} " in o["reason"] for o in daemon.why()), daemon.why())


def test_read_while_running():
    with Daemon("--mirror-period-ms=0") as daemon:
        daemon.attach("--kernel", "vectorAdd")
        launches = 200
        # it waits between launches, so that there is something to see on a slow machine too
        process = daemon.start_run(VEC_ADD, "--threads", str(N), "--launches", str(launches), "--sleep-ms", "10")
        seen = []
        while process.poll() is None:
            seen.append(daemon.count_of())
        equal(process.returncode, 0, process.communicate())
        wait_until(lambda: daemon.count_of() == N * launches, "the exact count at the end", 3)
        equal(seen, sorted(seen), "counts go up")
        check(len({s for s in seen if 0 < s < N * launches}) >= 2, "nothing was seen while it ran:", seen[:20])


def test_detach_while_running():
    with Daemon() as daemon:
        ids = daemon.attach("--kernel", "vectorAdd")
        process = daemon.start_run(VEC_ADD, "--threads", str(N), "--launches", "400")
        wait_until(lambda: daemon.attachments()[0]["modules"] == 1, "the probe is armed in the process")
        equal(daemon.attachments()[0]["processes"], 1)
        daemon.ctl("detach", str(ids[0]))
        out, err = process.communicate(timeout=60)
        equal(process.returncode, 0, out + err)


def test_killed_process():
    """A killed process loses at most what it counted since the last copy; its instance is given back."""
    with Daemon("--mirror-period-ms=20") as daemon:
        daemon.attach("--kernel", "vectorAdd")
        # the CPU driver has one lock, which launches without a pause leave to nobody else
        process = daemon.start_run(VEC_ADD, "--threads", str(N), "--launches", "100000", "--sleep-ms", "1")
        seen = wait_until(daemon.count_of, "something is counted")
        equal(daemon.json("map", "list")["maps"][0]["instances"], 1, "instances")
        process.kill()
        process.communicate()
        wait_until(lambda: daemon.json("map", "list")["maps"][0]["instances"] == 0, "the instance is folded")
        count = daemon.count_of()
        check(count >= seen, count, "after", seen)
        equal(daemon.attachments()[0]["processes"], 0, "processes")
        run(daemon)
        equal(daemon.count_of(), count + N * LAUNCHES)


def test_broken_context():
    """A kernel that faults takes its context with it, but not what was counted before, though its module is unloaded."""
    with Daemon() as daemon:
        daemon.attach("--kernel", "vectorAdd")
        live = Live(daemon)
        try:
            live.launch(2)
            equal(daemon.count_of(), 2 * THREADS)
            live.do("break 0 vectorAdd")
            equal(daemon.count_of(), 2 * THREADS, "after the fault")
        finally:
            live.process.kill()
            live.process.communicate()
        run(daemon)
        equal(daemon.count_of(), 2 * THREADS + N * LAUNCHES)


def test_past_the_end():
    """The kernel's verifier refuses it, and its log names the line."""
    bad = os.path.join(BUILD, "daemon/translator/objects/past-end.bpf.o")
    check(os.path.exists(bad), bad)
    with Daemon() as daemon:
        text = daemon.ctl("attach", bad, "--kernel", "vectorAdd", status=None)
        check("invalid access to map value" in text, text)
        equal(daemon.attachments(), [])
        run(daemon)


def test_stop_while_running():
    """The daemon goes while a probed program runs: the program does not notice."""
    with Daemon() as daemon:
        daemon.attach("--kernel", "vectorAdd")
        process = daemon.start_run(VEC_ADD, "--threads", str(N), "--launches", "400")
        wait_until(lambda: daemon.attachments()[0]["modules"] == 1, "the probe is armed in the process")
        daemon.stop()
        out, err = process.communicate(timeout=60)
        equal(process.returncode, 0, out + err)


def test_old_targets():
    """PTX for GPUs that no compiler makes code for any more is probed, as the driver takes it; where a program needs a newer one, it is named as its author did."""
    for name in "sm_20", "sm_50":
        with Daemon() as daemon:
            daemon.attach("--kernel", "k")
            with Live(daemon, load=f"file 0 {SOURCE}/tests/targets/{name}.ptx") as live:
                live.launch(1, "k")
                equal((live.do("sum"), daemon.count_of()), ([THREADS], THREADS), name)
            equal([(o["outcome"], o["reason"]) for o in daemon.why()], [("probed", "")], name)
    with Daemon() as daemon:
        daemon.attach("--kernel", "k", object=os.path.join(BUILD, "docs/hash_count.bpf.o"))
        with Live(daemon, load=f"file 0 {SOURCE}/tests/targets/sm_50.ptx") as live:
            live.launch(1, "k")
        reasons = [o["reason"] for o in daemon.why()]
        check("program cuda__hash_count needs PTX for sm_70 or newer with 64-bit addresses, the module's is for sm_50" in reasons[0], reasons)


def test_raised_targets():
    """A program that needs sm_90 is put into PTX for sm_80, too, on a GPU that has it; PTX for less than sm_70 is refused, and stays as it is."""
    for name, clusters, reason in (
        ("sm_80", {0: 64, 1: 64, 2: 64, 3: 64}, ""),
        ("sm_50", {}, "needs PTX for sm_70 or newer with 64-bit addresses, the module's is for sm_50"),
    ):
        with Daemon() as daemon:
            daemon.attach("--kernel", "k", object=os.path.join(BUILD, "tests/e2e/objects/cluster.bpf.o"))
            with Live(daemon, load=f"file 0 {SOURCE}/tests/targets/{name}.ptx") as live:
                live.launch(1, "k")
                equal(live.do("sum"), [THREADS], name)
            equal({e["key"]: e["value"] for e in daemon.dump("clusters", "--nonzero")}, clusters, name)
            (outcome,) = daemon.why()
            check(reason in outcome["reason"] and bool(reason) == bool(outcome["reason"]), outcome)


if __name__ == "__main__":
    main(
        [
            test_count,
            test_not_carried,
            test_names,
            test_ways,
            test_kernels,
            test_registers,
            test_options,
            test_no_daemon,
            test_nothing_attached,
            test_stopped_daemon,
            test_killed_while_loading,
            test_worker_hangs,
            test_worker_hangs_no_overtime,
            test_worker_slow,
            test_detach_while_compiled,
            test_many_loads,
            test_budget,
            test_budget_and_cache,
            test_budget_of_others,
            test_worker_crashes,
            test_compiler_aborts,
            test_filters,
            test_twelve_processes,
            test_two_programs,
            test_many_attachments,
            test_long_names,
            test_read_while_running,
            test_detach_while_running,
            test_killed_process,
            test_broken_context,
            test_past_the_end,
            test_stop_while_running,
            test_old_targets,
            test_raised_targets,
        ]
    )
