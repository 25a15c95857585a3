#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The walk-throughs of docs/guides, as they say it: on the CPU driver, or with GPUPROBE_TEST_GPU=1 on a GPU."""

import json
import os
import re
import subprocess
import tempfile

from harness import BUILD, COUNTER, CTL, GPU, GPUPROBED, SHIM, SIM, SOURCE, VEC_ADD, Daemon, check, equal, main, need, wait_until

EXAMPLES = os.path.join(SOURCE, "docs/examples")
PASSES = {name: os.path.join(BUILD, "daemon/worker/ptxpass", name) for name in ("ptxpass_kprobe_entry", "ptxpass_kretprobe", "ptxpass_kprobe_memcapture")}


def example(name):
    return os.path.join(BUILD, "docs", name + ".bpf.o")


need(GPUPROBED, CTL, COUNTER, SHIM, VEC_ADD, example("kernel_trace"), *([] if GPU else [os.path.join(SIM, "libcuda.so.1")]))


def script(daemon, name, *arguments):
    """Starts a program of docs/examples, with gpuprobectl in the path."""
    path = os.path.dirname(CTL) + ":" + os.environ["PATH"]
    return subprocess.Popen([os.path.join(EXAMPLES, name), *arguments], env=daemon.environment(PATH=path, **daemon.tools()), stdout=subprocess.PIPE, text=True)


def vec_add(daemon, *arguments):
    status, out, err, _ = daemon.run(VEC_ADD, *arguments)
    equal((status, err), (0, ""), out)


def test_artifacts():
    with tempfile.TemporaryDirectory() as folder:
        artifacts = os.path.join(folder, "artifacts")
        with Daemon("--keep-artifacts", artifacts) as daemon:
            daemon.attach("--kernel", "vectorAdd")
            daemon.attach("--point", "kretprobe/vectorAdd")
            daemon.attach("--point", "memcapture/vectorAdd")
            vec_add(daemon, "--threads", "256")
            wait_until(lambda: any(not name.startswith(".") for name in os.listdir(artifacts)), "an image is kept")  # a thread writes it
            equal(len(os.listdir(artifacts)), 1, "images")
            kept = os.path.join(artifacts, os.listdir(artifacts)[0])
            text = open(os.path.join(kept, "main.ptx")).read()
            kernel = "_Z9vectorAddPKfS0_Pfi" if "_Z9vectorAddPKfS0_Pfi" in text else "_Z9vectorAddPKfS0_Pf"
            check(re.search(rf"\.func __probe_func__{kernel}\b", text), text[:1000])
            check(re.search(rf"call\s+(\.uni\s+)?__probe_func__{kernel}\b", text) or re.search(rf"call[^;]*__probe_func__{kernel}", text), "call of the probe")
            check(re.search(r"\.func (\([^)]*\) )?__memcapture__\d+", text) and re.search(r"call[^;]*__memcapture__\d+", text), "memory capture")
            check(f"__retprobe_func__{kernel}" in text, "return")
            for trace in "%ptxpass_", "globaltimer":
                check(trace not in text, trace, "in main.ptx")
            check(os.path.getsize(os.path.join(kept, "out.fatbin")) > 500, "out.fatbin")
            counts = sorted(entry["value"] for m in daemon.json("map", "list")["maps"] for entry in daemon.dump(str(m["id"])))
            equal(counts[:2], [256, 256], "entry and return")
            check(counts[2] >= 3 * 256, counts)


def test_pass_by_hand():
    need(*PASSES.values())
    ptx = open(os.path.join(SOURCE, "tests/targets/vec_add.ptx")).read()
    kernel = re.search(r"\.entry (\w*vectorAdd\w*)", ptx)[1]
    for name, point, words in (
        ("ptxpass_kprobe_entry", "kprobe", f".func __probe_func__{kernel}"),
        ("ptxpass_kretprobe", "kretprobe", f"__retprobe_func__{kernel}"),
        ("ptxpass_kprobe_memcapture", "kprobe/__memcapture", "__memcapture__"),
    ):
        request = {"full_ptx": ptx, "to_patch_kernel": kernel}
        done = subprocess.run(
            [PASSES[name]],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            env={**os.environ, "PTX_ATTACH_POINT": f"{point}/{kernel}" if "/" not in point else point},
        )
        equal(done.returncode, 0, done.stderr)
        check(words in json.loads(done.stdout)["output_ptx"], name)
        equal(subprocess.run([PASSES[name]], input="no JSON", capture_output=True, text=True).returncode, 65, name)


def test_own_pass():
    """The pass of the guide: any program, here in Python; its comment is in what the driver gets."""
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "count_barriers")
        with open(program, "w") as file:
            file.write(
                "#!/usr/bin/python3\nimport json, sys\nr = json.load(sys.stdin)\n"
                "print(json.dumps({'output_ptx': r['full_ptx'] + '// barriers: %d\\n' % r['full_ptx'].count('bar.sync')}))\n"
            )
        os.chmod(program, 0o755)
        os.chmod(folder, 0o755)
        passes = os.path.join(folder, "passes.d")
        os.mkdir(passes)
        guide = open(os.path.join(SOURCE, "docs/guides/passes.md")).read()
        definition = re.search(r"```json\n(.*?)```", guide, re.S)[1].replace("/usr/local/libexec/count_barriers", program)
        with open(os.path.join(passes, "count_barriers.json"), "w") as file:
            file.write(definition)
        artifacts = os.path.join(folder, "artifacts")
        with Daemon("--pass-dir", passes, "--keep-artifacts", artifacts) as daemon:
            check(f"Discovered 1 pass definitions from {passes}" in daemon.text(), daemon.text())
            daemon.attach("--kernel", "vectorAdd")
            vec_add(daemon, "--threads", "256")
            equal(daemon.count_of(), 256)
            text = open(os.path.join(artifacts, os.listdir(artifacts)[0], "main.ptx")).read()
            check("// barriers: 0" in text, daemon.why())
            check("count_barriers" in daemon.ctl("pass", "list"))


def test_kernel_trace():
    with Daemon() as daemon:
        daemon.attach("--kernel", "vectorAdd", object=example("kernel_trace"))
        reader = script(daemon, "kernel_trace")
        vec_add(daemon, "--threads", "256", "--block", "128")
        lines = reader.communicate(timeout=60)[0].splitlines()
        equal(lines[-1], "[kernel_trace] total events: 256")
        seen = set()
        for line in lines[:-1]:
            match = re.fullmatch(r"\[kernel_trace\] ts=(\d+) block=\((\d),0,0\) thread=\((\d+),0,0\)", line)
            check(match and int(match[1]) > 0, line)
            seen.add((int(match[2]), int(match[3])))
        equal(seen, {(block, thread) for block in (0, 1) for thread in range(128)}, "threads")


def test_shared_array():
    with Daemon() as daemon:
        daemon.attach("--kernel", "vectorAdd", object=example("shared_array"))
        program = daemon.start_run(VEC_ADD, "--threads", "256", "--launches", "40", "--sleep-ms", "100")
        lines = script(daemon, "shared_array", "6").communicate(timeout=60)[0].splitlines()
        out, err = program.communicate(timeout=60)
        equal((program.returncode, err), (0, ""), out)
        numbers = [int(re.fullmatch(r"counter\[0\]=(\d+)", line)[1]) for line in lines]
        equal(numbers, sorted(numbers), "it only grows")
        check(numbers[-1] > numbers[0], numbers)


def test_histogram():
    """kernel_duration as map dump shows it: each launch is in one bucket of its kernel."""
    with Daemon() as daemon:
        daemon.attach(object=example("kernel_duration"))
        vec_add(daemon, "--threads", "256", "--launches", "5")
        text = daemon.ctl("map", "dump", "--hist", "launches")
        lines = text.splitlines()
        equal(lines[0], "{.kernel_id = vectorAdd(float const*, float const*, float*)}:")
        check(all(re.fullmatch(r"\[[\d.]+[num]?s, [\d.]+[num]?s\) +\d+ \|@* *\|", line) for line in lines[1:]), text)
        equal(sum(int(line.split()[2]) for line in lines[1:]), 5, text)
        (histogram,) = daemon.json("map", "dump", "--hist=log2_ns", "launches")["histograms"]
        equal((set(histogram["key"]), sum(bucket["count"] for bucket in histogram["buckets"])), ({"kernel_id"}, 5))
        (largest,) = daemon.json("map", "dump", "--top=1", "launches")["entries"]
        equal(largest["value"], max(bucket["count"] for bucket in histogram["buckets"]))


def test_nothing_attached():
    """What readers say where there is nothing to read: one line, and the status of gpuprobectl."""
    with Daemon() as daemon:
        for name, words, status in (
            ("kernel_trace", "there is no map events", 5),
            ("shared_array", "there is no map counter", 5),
            ("launch_latency", "there is no map times", 5),
            ("kernel_report", "nothing was counted so far", 0),
        ):
            done = subprocess.run(
                [os.path.join(EXAMPLES, name)],
                env=daemon.environment(PATH=os.path.dirname(CTL) + ":" + os.environ["PATH"], **daemon.tools()),
                capture_output=True,
                text=True,
                timeout=60,
            )
            equal((done.returncode, len(done.stderr.splitlines())), (status, 1), name + ": " + done.stderr)
            check(words in done.stderr, name, done.stderr)


def test_launch_latency():
    with Daemon() as daemon:
        object = os.path.join(BUILD, "docs/launch_latency.bpf.o")
        done = subprocess.run([CTL, "attach", object], env=daemon.environment(**daemon.tools()), capture_output=True, text=True)
        if done.returncode == 6 or "CAP_BPF" in done.stderr:
            print("       (no programs on the host here: " + done.stderr.strip() + ")")
            return
        equal((done.returncode, len(done.stdout.split())), (0, 2), done.stderr)
        vec_add(daemon, "--threads", "256", "--launches", "20", "--sleep-ms", "10")
        times = [entry["value"] for entry in daemon.dump("times")]
        equal(times[2], 20, "launches")
        text = script(daemon, "launch_latency").communicate(timeout=60)[0]
        match = re.fullmatch(r"launches: 20, from cuLaunchKernel to the first thread: (-?[\d.]+) us on average\n", text)
        check(match, text)
        check(-20 < float(match[1]) < 1e6, text)  # the script relates the clocks to a microsecond, then; they drift


# ---- the other examples of docs/examples ----


def test_memory_histogram():
    with Daemon() as daemon:
        daemon.attach(object=example("memory_histogram"))
        vec_add(daemon, "--threads", "256")
        entries = daemon.dump("accesses")
        kinds = sorted((e["key"]["kind"], e["key"]["bytes"], e["value"]) for e in entries)
        equal(kinds, [("GPUPROBE_ACCESS_LOAD", 4, 256)] * 2 + [("GPUPROBE_ACCESS_STORE", 4, 256)])
        for entry in entries:
            (shown,) = daemon.json("kernel", "show", f"--instruction={entry['key']['instruction']}")["instructions"]
            check(shown["text"].startswith("ld." if entry["key"]["kind"].endswith("LOAD") else "st."), shown)
            place = f"{shown['file']}:{shown['line']}" if "file" in shown else shown["text"]
            check(f"{{.instruction = {place}, .bytes = 4," in daemon.ctl("map", "dump", "accesses"), place)


def test_print_launch():
    with Daemon() as daemon:
        daemon.attach(object=example("print_launch"))
        vec_add(daemon, "--threads", "256", "--block", "64", "--launches", "3")
        lines = [line["text"] for line in daemon.json_lines("log")]
        equal(len(lines), 3, lines)
        for line in lines:
            check(re.fullmatch(r"4 blocks of 64 threads, c = 0x[1-9a-f][0-9a-f]+", line), line)


def test_device_calls():
    with Daemon() as daemon:
        daemon.attach(object=example("device_calls"))
        status, out, err, _ = daemon.run(os.path.join(BUILD, "tests/sim/language_driver"), "calls")
        equal((status, err), (0, ""), out)
        names = {kernel["id"]: kernel["name"] for kernel in daemon.json("kernel", "list")["kernels"]}
        equal({names[e["key"]]: e["value"] for e in daemon.dump("calls")}, {"twice": 512})
        equal(daemon.ctl("map", "dump", "calls"), "twice: 512\n")


def test_thread_time():
    with Daemon() as daemon:
        equal(len(daemon.attach("--threads", "200", object=example("thread_time"))), 2)
        vec_add(daemon, "--threads", "256", "--block", "64")
        times = {entry["thread"]: entry["value"] for entry in daemon.dump("nanoseconds")}
        check(len(times) <= 200 and max(times.values()) < 10**11, times)  # the clock has steps: a thread may need no time


def test_blocks_by_sm():
    with Daemon() as daemon:
        entries = daemon.json("run", example("blocks_by_sm"), "--grid", "100", "--count", "2")["maps"][0]["entries"]
        equal(sum(entries[0]["values"]), 200)


def test_hash_count():
    with Daemon() as daemon:
        daemon.attach(object=example("hash_count"))
        vec_add(daemon, "--threads", "256", "--block", "64")
        equal({entry["key"]: entry["value"] for entry in daemon.dump("counts")}, {block: 64 for block in range(4)})


if __name__ == "__main__":
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
