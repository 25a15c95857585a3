#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Passes of the user from the file that defines them to the kernel that runs: good ones, and ones that fail in every way.

Whatever a pass does, the program computes what it should and is counted.
"""

import json
import os
import re
import shutil
import tempfile

from harness import BUILD, COUNTER, VEC_ADD, Daemon, check, equal, main, need, wait_until

need(os.path.join(BUILD, "daemon/worker/ptxpass/gpuprobe-pass-worker"), COUNTER, VEC_ADD)
N, LAUNCHES = 4096, 3
RUN = [VEC_ADD, "--threads", str(N), "--launches", str(LAUNCHES)]
COPY = 'sed \'s/^{"full_ptx"/{"output_ptx"/\''  # the PTX as it came; more sed after it changes it


class Passes:
    """A folder with definitions."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="e2e-passes-")
        os.chmod(self.folder, 0o755)  # a worker of root runs as nobody
        self.marks = os.path.join(self.folder, "marks")
        os.mkdir(self.marks)
        os.chmod(self.marks, 0o1777)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def write(self, name, text, mode=0o644):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, mode)

    def define(self, name, script, interpreter="/bin/sh", order=50, include=("kprobe/*",), **members):
        self.write(name, f"#!{interpreter}\n{script}\n", 0o755)
        members = {"timeout_ms": 15000, **members}  # the default, a second, is not much on a busy machine
        self.write(f"{name}.json", json.dumps({"name": name, "executable": name, "order": order, "attach_points": {"include": list(include)}, **members}))

    def daemon(self, *options):
        return Daemon("--deadline-ms=30000", "--deadline-others-ms=30000", "--pass-dir", self.folder, *options)

    def mark(self, name):
        with open(os.path.join(self.marks, name)) as file:
            return file.read().split()


def run_counted(daemon, counted=N * LAUNCHES):
    status, out, err, seconds = daemon.run(*RUN)
    equal(status, 0, out + err)
    equal(daemon.count_of(), counted, "count")
    return seconds


def reasons(daemon):
    outcomes = [o for o in daemon.why() if o["kernel"]]
    check(outcomes and all(o["outcome"] == "probed" for o in outcomes), daemon.why())
    return outcomes[0]["reason"]


def test_order():
    """Passes run in their order around ours, each on what the one before made; what they are told."""
    with Passes() as passes:
        for name, order in (("late", 400), ("early", 10), ("between", 20)):
            passes.define(
                name,
                f"echo {name} $PTX_ATTACH_POINT >> {passes.marks}/order\n"
                f"{COPY} | tee {passes.marks}/{name} | sed 's/\\.address_size 64/.address_size 64 \\/\\/ {name}/'",
                order=order,
            )
        with passes.daemon("--keep-artifacts", os.path.join(passes.folder, "kept")) as daemon:
            check(f"Discovered 3 pass definitions from {passes.folder}" in daemon.text(), daemon.text())
            listed = json.loads(daemon.ctl("pass", "list", "--json"))
            equal([p["name"] for p in listed["passes"]], ["early", "between", "kprobe_entry", "kretprobe", "kprobe_memcapture", "late"])
            equal(listed["folders"], [passes.folder])
            daemon.attach("--kernel", "vectorAdd")
            run_counted(daemon)
            equal(reasons(daemon), "", "reason")
            order = passes.mark("order")
            equal(order[0::2], ["early", "between", "late"])
            check(all(point.startswith("kprobe/_Z9vectorAdd") for point in order[1::2]), order)
            text = " ".join(passes.mark("early"))
            check("__gpuprobe_o" not in text and "// early" not in text, "early sees what it should not")
            text = " ".join(passes.mark("late"))
            check("__gpuprobe_o" in text and "early" in text and "between" in text, "late does not see the others")
            # A second load of the same image runs no pass.
            run_counted(daemon, 2 * N * LAUNCHES)
            equal(len(passes.mark("order")), 6)
            found = [os.path.join(root, f) for root, _, files in os.walk(os.path.join(passes.folder, "kept")) for f in files]
            texts = [open(f, errors="replace").read() for f in found if f.endswith("main.ptx")]
            check(texts and all("// late" in text for text in texts), found)


def test_python():
    with Passes() as passes:
        passes.define(
            "mine",
            "import json, sys\nrequest = json.load(sys.stdin)\nassert request['mine'] == 7\n"
            "json.dump({'output_ptx': request['full_ptx'] + '// by python\\n'}, sys.stdout)",
            interpreter="/usr/bin/python3",
            parameters={"mine": 7},
        )
        with passes.daemon() as daemon:
            daemon.attach("--kernel", "vectorAdd")
            run_counted(daemon)
            equal(reasons(daemon), "", "reason")


def test_bad():
    """Each is left out, alone, and the outcome says why."""
    for order in 50, 500:
        for name, script, words, members in [
            ("status", "echo no good >&2; exit 66", "without pass status: exit status 66: no good", {}),
            ("crash", "kill -SEGV $$", "without pass crash: ended by signal 11 (Segmentation fault)", {}),
            ("sleep", "exec sleep 1000", "without pass sleep: timed out after 300 ms", {"timeout_ms": 300}),
            ("forks", "b() { b | b & }; b 2> /dev/null; while :; do sleep 1; done", "without pass forks: ", {"timeout_ms": 500}),
            ("allocates", "exec /usr/bin/python3 -c 'x = bytearray(1 << 31)'", "without pass allocates: exit status 1: ", {"memory_mib": 200}),
            ("garbage", "head -c 1000 /dev/urandom", "without pass garbage: its answer is not a JSON object", {}),
            ("noptx", 'echo \'{"output_ptx":"nothing"}\'', "without pass noptx: output_ptx, line 1: ", {}),
            ("deletes", f"{COPY} | sed 's/_Z9vectorAdd/_Z9vectorSub/g'", "without pass deletes: kernel _Z9vectorAdd", {}),
            ("params", f"{COPY} | sed 's/\\.param \\.u64/.param .u32/'", "without pass params: parameter 0 of kernel", {}),
            ("lacks", COPY, "without pass lacks: output_ptx lacks here", {"validation": {"required_symbols": ["here"]}}),
        ]:
            with Passes() as passes:
                passes.define(name, script, order=order, **members)
                passes.define("good", f"echo x >> {passes.marks}/good; echo '{{}}'", order=order + 1)
                with passes.daemon() as daemon:
                    daemon.attach("--kernel", "vectorAdd")
                    run_counted(daemon)
                    check(reasons(daemon).startswith(words), name, order, reasons(daemon))
                    equal(passes.mark("good"), ["x"], "the next pass runs")


def test_removes_slots():
    """A pass after ours that takes the probe out again does not get its way."""
    with Passes() as passes:
        passes.define("undo", f"{COPY} | sed 's/__gpuprobe_o[0-9a-f]*_m0/__mine/g'", order=900)
        with passes.daemon() as daemon:
            daemon.attach("--kernel", "vectorAdd")
            run_counted(daemon)
            check(re.match("without pass undo: variable __gpuprobe_o[0-9a-f]+_m0 is gone", reasons(daemon)), reasons(daemon))


def test_not_compiled():
    """What parses and does not assemble is found when it is too late for one pass: then the image is made without any."""
    with Passes() as passes:
        passes.define("broken", f"{COPY} | sed 's/ret;/ret.nonsense;/'", order=900)
        with passes.daemon() as daemon:
            daemon.attach("--kernel", "vectorAdd")
            wait_until(lambda: daemon.status()["compiler"] != "unknown yet", "a worker has said what it can do")
            if daemon.status()["compiler"] == "driver":
                return
            run_counted(daemon)
            check(reasons(daemon).startswith("without the user's passes: "), reasons(daemon))


def test_instructions():
    """What is known about memory instructions is known with passes around, too."""
    with Passes() as passes:
        passes.define("mine", f"{COPY} | sed 's/\\.address_size 64/.address_size 64 \\/\\/ mine/'", order=900, include=["memcapture/*"])
        with passes.daemon() as daemon:
            daemon.attach("--point", "memcapture/vectorAdd")
            status, out, err, _ = daemon.run(*RUN)
            equal(status, 0, out + err)
            equal(reasons(daemon), "", "reason")
            count = daemon.count_of()
            # Two loads and a store for each element; programs that are still there have their instructions listed.
            equal(count, 3 * N * LAUNCHES)
            listed = daemon.json("kernel", "show", "vectorAdd")["instructions"]
            equal(len(listed), 3, listed)


def test_deadline():
    """Passes that hang leave enough of the usual deadline to do without them."""
    with Passes() as passes:
        for name in "one", "two", "three":
            passes.define(name, "exec sleep 1000", timeout_ms=1000)
        with Daemon("--pass-dir", passes.folder) as daemon:
            daemon.attach("--kernel", "vectorAdd")
            run_counted(daemon)
            check(reasons(daemon).startswith("without pass one: timed out"), reasons(daemon))


def test_slow_worker():
    """When nobody waits any more, passes still have their time, and the next program has what they made."""
    with Passes() as passes:
        passes.define("mine", f"echo x >> {passes.marks}/ran; {COPY}")
        with Daemon("--pass-dir", passes.folder, "--image-worker-argument=--test-fault=slow", "--deadline-ms=500") as daemon:
            daemon.attach("--kernel", "vectorAdd")
            run_counted(daemon, 0)

            def probed():
                status, out, err, _ = daemon.run(*RUN)
                equal(status, 0, out + err)
                return daemon.count_of() == N * LAUNCHES

            wait_until(probed, "the next one is probed", 60)
            equal(reasons(daemon), "", "reason")
            equal(passes.mark("ran"), ["x"], "runs of the pass")
            equal(daemon.status()["counters"]["worker_timeouts"], 0)


def test_stopped():
    """The daemon stops in good order while a pass runs, and the program goes on."""
    with Passes() as passes:
        passes.define("mine", f"echo x > {passes.marks}/started; exec sleep 1000", timeout_ms=15000)
        with passes.daemon() as daemon:
            daemon.attach("--kernel", "vectorAdd")
            process = daemon.start_run(*RUN)
            wait_until(lambda: os.path.exists(f"{passes.marks}/started"), "the pass runs")
            daemon.stop()
            out, err = process.communicate(timeout=30)
            equal(process.returncode, 0, out + err)


def test_not_meant():
    with Passes() as passes:
        passes.define("mine", f"echo x >> {passes.marks}/ran; echo '{{}}'", include=["kprobe/other", "kretprobe/*"])
        with passes.daemon() as daemon:
            daemon.attach("--kernel", "vectorAdd")
            run_counted(daemon)
            check(not os.path.exists(f"{passes.marks}/ran"), "a pass ran that was not meant")


def test_definitions():
    """Bad files are named and left out; definitions of ours say which points there are; the variable; none at all."""
    with Passes() as passes:
        passes.write("a.json", "{")
        passes.write("b.json", '{"name":"open","executable":"/bin/true","attach_points":{"include":["*"]}}', 0o666)
        passes.write("c.json", '{"name":"kretprobe","attach_points":{"include":["kretprobe/*"]},"order":1}')
        with passes.daemon() as daemon:
            for line in (
                f"Discovered 1 pass definitions from {passes.folder}",
                f"pass left out: {passes.folder}/a.json: not JSON: it ends too early",
                f"pass left out: {passes.folder}/b.json: it is writable by everybody",
            ):
                equal(daemon.text().count(line), 1, line)
            message = daemon.ctl("attach", COUNTER, "--kernel", "vectorAdd", status=None)
            check("the definitions of passes have none for this point" in message, message)
            daemon.attach("--point", "kretprobe/vectorAdd")
            run_counted(daemon)
        os.environ["GPUPROBE_PTXPASS_DIR"] = passes.folder + "/none"
        try:
            with Daemon() as daemon:
                check(f"Discovered 0 pass definitions from {passes.folder}/none" in daemon.text(), daemon.text())
                daemon.attach("--kernel", "vectorAdd")
                run_counted(daemon)
        finally:
            del os.environ["GPUPROBE_PTXPASS_DIR"]


if __name__ == "__main__":
    main(
        [
            test_order,
            test_python,
            test_bad,
            test_removes_slots,
            test_not_compiled,
            test_instructions,
            test_deadline,
            test_slow_worker,
            test_stopped,
            test_not_meant,
            test_definitions,
        ]
    )
