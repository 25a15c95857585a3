#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gputrace as a user has it: scripts on programs that run on the CPU driver, with a private daemon or one that is there, as root and as nobody."""

import json
import os
import re
import signal
import subprocess
import tempfile
import time

from gputracing import APP, BLOCK, GPUTRACE, KERNEL, LAUNCHES, THREADS, as_nobody, environment, gputrace, maps, private_daemons, running, start
from harness import BUILD, SOURCE, VEC_ADD, Daemon, check, equal, main, wait_until

LANGUAGE = os.path.join(BUILD, "tests/sim/language_driver")


def test_first_line():
    out, err = gputrace("-e", "launch:* { @[kernel] = count(); }")
    equal(out, f"\n@[{KERNEL}]: {LAUNCHES}\n")
    equal(err, "")
    equal(private_daemons(), [], "daemons that are left")


def test_ordinary_account():
    """Nothing of ours runs, and the user has no right at all: all of it works on programs of that user."""
    if os.getuid() != 0:
        print("skipped: only root can become nobody")
        return
    script = "launch:* { @l[kernel, grid.x, blockdim.x] = count(); } thread:vectorAdd { @t = count(); }"
    out, err = gputrace("-e", script, user=as_nobody)
    equal(out, f"\n@l[{KERNEL}, {THREADS // BLOCK}, {BLOCK}]: {LAUNCHES}\n\n@t: {THREADS * LAUNCHES}\n")
    check("unverified" in err, err)
    _, err = gputrace("--require-verify", "-e", script, user=as_nobody, status=1)
    check("--require-verify: Linux verifies programs for root" in err, err)
    _, err = gputrace("-e", "launch:* { @ = count(); }", user=as_nobody)
    equal(err, "", "nothing need be verified on the host")
    equal(private_daemons(), [], "daemons that are left")


def test_loops():
    """while, for, break and continue, on the host; maps of both sides are read there."""
    out, err = gputrace(
        "-e",
        "launch:* { @n[kernel, grid.x] = count(); @sum += grid.x; @name[grid.x] = kernel; } thread:* { @t[blockid] = count(); @all = count(); @word += 1; }"
        'END { $i = 0; while ($i < 100) { $i++; if ($i == 2) { continue; } if ($i == 5) { break; } unroll(3) { if ($i == 4) { break; } printf("%d", $i); } } printf(" %d\\n", $i);'
        'for ($k, $g, $n : @n) { printf("%s %d %d\\n", $k, $g, $n); } for ($b, $n : @t) { if ($b == 2) { break; } printf("%d:%d ", $b, $n); } for ($all : @all) { printf("%d", $all); }'
        'for ($g, $name : @name) { printf(" %d %s", $g, $name); } printf(" %d %d %d %d\\n", @n["x", 1], @t[3], @all, @word); clear(@n); clear(@t); clear(@all); clear(@sum); clear(@name); }',
    )
    each, blocks = BLOCK * LAUNCHES, THREADS // BLOCK
    equal(err, "")
    equal(
        out,
        f"111333 4\n{KERNEL} {blocks} {LAUNCHES}\n0:{each} 1:{each} {THREADS * LAUNCHES} {blocks} {KERNEL} 0 {each} {THREADS * LAUNCHES} {THREADS * LAUNCHES}\n"
        f"\n@word: {THREADS * LAUNCHES}\n",
    )
    _, err = gputrace("-e", "BEGIN { while (1) { @n++; } }", app=None, status=1)
    equal(err, "gputrace: -e:1:9: this while did not end after 1000000 rounds\n")
    out, err = gputrace("-e", "thread:* { @n = count(); } interval:ms:20 /@n > 500/ { exit(4); }", app=[*APP[:-1], "30", "--sleep-ms", "100"], status=4)
    check(int(out.split("@n: ")[1].split()[0]) > 500, out, err)


def test_records():
    """What a trace tells besides calls: kernels that have run, GPUs without work, processes, modules."""
    found, err = maps(
        "launch:*:end { @n[kernel, grid.x, blockdim.x, smem, device, func] = count(); @d = stats(duration); @l = stats(latency); @late[nsecs > 0, tid == pid] = count(); }"
        "idle: { @idle = stats(duration); } process:exit { @exit[args.status] = count(); } process: { @exe[args.exe] = count(); } module:load { @load[func] = count(); }"
        "module:unload { @unload = count(); }",
        app=[*APP, "--sleep-ms", "20"],
    )
    equal(err, "")
    equal(found["@n"], {(KERNEL, THREADS // BLOCK, BLOCK, 0, 0, "cuLaunchKernel"): LAUNCHES})
    equal((found["@d"][()]["count"], found["@late"]), (LAUNCHES, {(1, 1): LAUNCHES}))
    check(0 < found["@d"][()]["total"] < 10**9 and 0 < found["@l"][()]["total"] < 10**9, found)
    equal(found["@idle"][()]["count"], LAUNCHES - 1)
    check(found["@idle"][()]["average"] > 15000000, found["@idle"])
    equal((found["@exit"], found["@load"], found["@unload"]), ({(0,): 1}, {("cuModuleLoadData",): 1}, {(): 1}))
    check((VEC_ADD,) in found["@exe"], found["@exe"])


def test_shared_words():
    """What the host sets the GPU reads, from the beginning and later; what the GPU sets the host reads."""
    found, err = maps("BEGIN { @limit = 100; } thread:* /threadid < @limit/ { @n = count(); @last = 7; } END { @seen = @last; }")
    equal((found["@n"], found["@limit"], found["@seen"], err), ({(): 100 * THREADS // BLOCK * LAUNCHES}, {(): 100}, {(): 7}, ""))
    out, err = gputrace(
        "-f",
        "json",
        "-e",
        "thread:* /!@off/ { @n = count(); } thread:* { @all = count(); } interval:ms:50 /@n > 0/ { @off = 1; print(@n); print(@all); }",
        app=[*APP[:-1], "40", "--sleep-ms", "30"],
    )
    printed = [(item["name"], item["entries"][0]["value"]) for item in map(json.loads, out.splitlines())]
    of_n, of_all = ([value for name, value in printed if name == wanted] for wanted in ("@n", "@all"))
    check(0 < of_n[-1] < of_all[-1] == 40 * THREADS and of_n[-1] <= of_n[0] + 3 * THREADS, out, err)


def test_control():
    found, _ = maps(
        "thread:vectorAdd /!(lane & 1)/ { if (lane < 8) { @if[lane] = count(); } else if (lane < 12) { @elif[lane] = count(); } else { @else = count() }"
        "$i = 0; unroll(5) { $i += lane; } @u[lane] = max($i); if (lane == 30 && blockid == 3) { @last[lane, blockid] = count(); } }"
    )
    times = THREADS // 32 * LAUNCHES
    equal(found["@if"], {(lane,): times for lane in (0, 2, 4, 6)})
    equal(found["@elif"], {(lane,): times for lane in (8, 10)})
    equal(found["@else"], {(): times * 10})
    equal(found["@u"], {(lane,): 5 * lane for lane in range(0, 32, 2)})
    equal(found["@last"], {(30, 3): BLOCK // 32 * LAUNCHES})


def test_blocks_of_code():
    found, err = maps("bb:vectorAdd:0 { @0 = count(); } thread:vectorAdd { @p = sum(param(0) != 0); }")
    equal(err, "")
    equal((found["@0"][()], found["@p"][()]), (THREADS * LAUNCHES, THREADS * LAUNCHES))


def test_calls():
    found, err = maps(
        "driver:cuMemAlloc_v2 { @alloc[func] = sum(args.bytesize); } driver:cuModuleGetFunction:end { @name[args.name, retval] = count(); } copy: { @copy[func] = sum(bytes); }"
        "alloc: { @n = stats(bytes); } free: { @free = count(); } sync: { @sync = count(); } launch:vector* { @comm[comm, pid == tid] = count(); }"
        "launch:nosuch { @never = count(); } driver:cuMem*:end /duration < 0 || nsecs == 0/ { @wrong = count(); } driver:cuMemAlloc_v2 { @stack[ustack] = count(); }"
    )
    size = 4 * THREADS
    equal(err, "")
    equal(found["@alloc"], {("cuMemAlloc_v2",): 3 * size})
    check(list(found["@name"].values()) == [1] and "vectorAdd" in next(iter(found["@name"]))[0], found["@name"])
    equal((found["@copy"][("cuMemcpyHtoD_v2",)], found["@copy"][("cuMemcpyDtoH_v2",)]), (2 * size, size))
    equal(found["@n"][()], {"count": 3, "average": size, "total": 3 * size})
    equal((found["@free"][()], found["@comm"]), (3, {("vec_add_driver", 1): LAUNCHES}))
    check("@never" not in found and "@wrong" not in found, found)
    check(all("main+0x" in keys[0] for keys in found["@stack"]), found["@stack"])


def test_ways_of_launching():
    """Each way has its launches and threads; kernels of graphs are seen on the GPU alone, and that is said. Children of CMD are seen, too."""
    script = "launch:* { @l[kernel, grid.x, blockdim.x] = count(); } thread:* { @t = count(); }"
    for how in ("ex", "cooperative", "streams", "threads"):
        found, err = maps(script, app=[*APP[:-1], "8", "--how", how])
        equal((found, err), ({"@l": {(KERNEL, THREADS // BLOCK, BLOCK): 8}, "@t": {(): 8 * THREADS}}, ""), how)
    found, err = maps(script, app=[*APP[:-1], "8", "--how", "graph"])
    equal(found, {"@t": {(): 8 * THREADS}})
    equal(err, "gputrace: CUDA graphs were launched: launch: does not see their kernels, thread: does\n")
    found, err = maps(script, app=["sh", "-c", f"{VEC_ADD} --threads 512 --block 128; {VEC_ADD} --threads 512 --block 128 & wait"])
    equal((found, err), ({"@l": {(KERNEL, 4, 128): 2}, "@t": {(): 1024}}, ""))


def test_device_functions():
    if not os.path.exists(LANGUAGE):
        print(f"skipped: {LANGUAGE} was not built")
        return
    found, err = maps("func:* { @f[kernel] = count(); } thread:* { @t[kernel] = count(); }", app=[LANGUAGE, "calls", "--block", "32"])
    equal((found, err), ({"@f": {("twice",): 256}, "@t": {("calls",): 128}}, ""), "each of 128 threads calls it twice")


def test_source_lines():
    if not os.path.exists(LANGUAGE):
        print(f"skipped: {LANGUAGE} was not built")
        return
    with open(os.path.join(SOURCE, "tests/targets/language.cu")) as source:
        line = next(i for i, text in enumerate(source, 1) if "/* this one */" in text)
    found, err = maps(f"line:language.cu:{line} {{ @[threadid % 4] = count(); }} thread:lines {{ @t = count(); }}", app=[LANGUAGE, "lines"])
    equal((list(found["@"]), found["@"][(3,)] * 4), ([(3,)], found["@t"][()]))


def test_begin_end_printf():
    out, _ = gputrace(
        "-e",
        'BEGIN { printf("%d|%5d|%-5d|%05d|%x|%s|%%|%8s|\\n", -3, 7, 8, 9, 255, "text", "right"); @x = 5; @s["a"] = "b"; @t["k"] = 1; delete(@t["k"]); }'
        'launch:* /grid.x == 4/ { @n = count(); } END { printf("x %d %s\\n", @x, @s["a"]); print(@x); clear(@n); zero(@x); }',
    )
    equal(out, "-3|    7|8    |00009|ff|text|%|   right|\nx 5 b\n@x: 5\n\n@x: 0\n\n@s[a]: b\n")
    out, _ = gputrace("-e", 'BEGIN { @s = "a"; $x = @s; @s = "b"; @s2 = @s; printf("%s %s\\n", $x, @s); exit(); }', app=None)
    equal(out, "a b\n\n@s: b\n\n@s2: b\n", "a variable is what it was given")
    out, _ = gputrace("-e", "launch:* { @[tid - tid + nsecs % 3] = count(); @h = hist(grid.x); @c[grid.x] = lhist(grid.y, 0, 4, 2) } END { clear(@) }")
    bar = "|" + "@" * 52 + "|"
    equal(out, f"\n@h:\n[4, 8)                  {LAUNCHES} {bar}\n\n@c[4]:\n[0, 2)                  {LAUNCHES} {bar}\n")
    out, _ = gputrace("-e", "thread:* { @[lane] = sum(lane); } END { print(@, 2); print(@, 1, 16); clear(@) }")
    each = THREADS // 32 * LAUNCHES
    equal(out, f"@[30]: {30 * each}\n@[31]: {31 * each}\n@[31]: {31 * each // 16}\n")


def test_gpu_printf():
    """Lines come in order of time, no more than the rate in a second, and what was left out is said."""
    script = 'thread:* /lane == 0/ { printf("%s %d %d %5.5s\\n", kernel, blockid, warp, kernel); }'
    _, err = gputrace("-e", script, status=1)
    check("%5.: printf() has" in err, err)
    script = 'thread:* /lane == 0/ { printf("%s %d %3d %g %x|\\n", kernel, blockid, warp, f32(0x3fc00000), -1); }'
    out, err = gputrace("-e", script + ' END { printf("end\\n"); }')
    warps = [(block, warp) for block in range(THREADS // BLOCK) for warp in range(BLOCK // 32)]
    equal(err, "")
    lines = out.splitlines()
    equal(sorted(lines), sorted([f"{KERNEL} {block} {warp:3d} 1.5 ffffffffffffffff|" for block, warp in warps] * LAUNCHES + ["end"]))
    equal(lines[-1], "end")
    numbers = [int(line) for line in gputrace("-e", 'thread:* { printf("%d\\n", gputime); }', "--rate", "100000")[0].splitlines()]
    equal((len(numbers), numbers), (THREADS * LAUNCHES, sorted(numbers)))
    out, err = gputrace("-f", "json", "--strict", "--rate", "5", "-e", 'mem.thread:*:store { printf("%s|%s", kernel, line); }', status=3)
    check([json.loads(line)["data"].startswith(f"{KERNEL}|st.global.f32 [") for line in out.splitlines()] == [True] * 5, out)
    left_out = THREADS * LAUNCHES - 5
    equal(err, f"gputrace: {left_out} lines of printf() were left out: more than 5 in a second (--rate)\n")
    with Daemon() as daemon, running(daemon, "-d", "3", "-e", script) as process:
        wait_until(daemon.attachments, "it is attached")
        daemon.run(*APP)
        begin = time.monotonic()
        check(process.stdout.readline().startswith(KERNEL) and time.monotonic() - begin < 2, "lines come while it runs")
        process.communicate(timeout=20)


def test_intervals_lose_nothing():
    """What is printed and cleared a hundred times a second adds up to all that there was."""
    launches = 40
    out, err = gputrace(
        "-f",
        "json",
        "-e",
        "thread:* { @n = count(); @h[lane] = hist(warp); } launch:* { @l = count(); } interval:ms:10 { print(@n); clear(@n); print(@h); clear(@h); print(@l); clear(@l); }",
        app=[VEC_ADD, "--threads", str(THREADS), "--block", str(BLOCK), "--launches", str(launches), "--sleep-ms", "20"],
    )
    sums, prints = {"@n": 0, "@h": 0, "@l": 0}, 0
    for line in out.splitlines():
        item = json.loads(line)
        prints += item["name"] == "@n" and len(item["entries"]) > 0
        for entry in item["entries"]:
            value = entry["value"]
            sums[item["name"]] += sum(bucket["count"] for bucket in value) if isinstance(value, list) else value
    equal(sums, {"@n": THREADS * launches, "@h": THREADS * launches, "@l": launches})
    check(prints > 5, "intervals with something to print:", prints)
    equal(err, "")


def test_lost_is_said():
    threads = 20480
    script = "thread:* { @many[blockid * blockdim + threadid] = count(); @all = count(); }"
    app = [VEC_ADD, "--threads", str(threads), "--block", "128"]
    out, err = gputrace("-e", script, app=app)
    equal(out.count("@many["), 16384)
    check(f"@all: {threads}\n" in out, out[-100:])
    equal(err, f"gputrace: @many: {threads - 16384} events were lost: the map is full\n")
    gputrace("--strict", "-e", script, app=app, status=3)
    gputrace("--strict", "-e", script)


def test_exit_status():
    gputrace("-e", "launch:* { @ = count(); }", app=["sh", "-c", "exit 9"], status=9)
    gputrace("-e", "launch:* { @ = count(); }", app=["sh", "-c", "kill -9 $$"], status=137)
    gputrace("-e", "launch:* { exit(7); }", status=7)
    gputrace("-e", "BEGIN { exit(); }", app=["sh", "-c", "exit 9"], status=0)
    gputrace("-e", 'BEGIN { exit(3); } END { printf("end\\n"); }', app=None, status=3)
    _, err = gputrace("-e", "thread:* { @ = count(); }", app=["/nonexistent"], status=127)
    check("no process with CUDA was seen" not in err, err)
    check("gputrace: /nonexistent: No such file" in err, err)
    gputrace("-c", "exit 5", "-e", "launch:* { @ = count(); }", app=None, status=5)
    out, _ = gputrace("-c", f"{VEC_ADD} --threads 64 && exit 4", "-e", "thread:* { @ = count(); } launch:* { @l = count(); }", app=None, status=4)
    equal(out, "\n@: 256\n\n@l: 1\n")
    for arguments, said in (
        (["-c", "true", "-e", "BEGIN { exit(); }", "--", "ls"], "-c and -- are two commands"),
        ([], "a script is missing: -e PROGRAM, or FILE"),
        (["-e", "BEGIN { exit(); }", "ls"], "ls: a command stands behind --, as in -- ls"),
        (["-e", "BEGIN { exit(); }", "--"], "a command is missing behind --"),
        (["-f", "xml", "-e", "x"], "-f: xml is neither text nor json"),
        (["-d", "x", "-e", "x"], "-d: x is not a number from 1 up"),
        (["--nonsense"], "unrecognized option"),
        (["-p", "1", "-e", "BEGIN { exit(); }", "--", "ls"], "-p is for a process that runs, and -- for one to be started"),
    ):
        _, err = gputrace(*arguments, app=None, status=2)
        check(said in err, arguments, err)
    _, err = gputrace("/nonexistent.gt", app=None, status=1)
    equal(err, "gputrace: /nonexistent.gt: No such file or directory\n")
    _, err = gputrace("-e", "thrad:x { @ = count(); }", app=None, status=1)
    equal(err, "gputrace: -e:1:1: there is no probe thrad:; did you mean thread?\n")
    _, err = gputrace("-e", "launch:* { @ = count(); }", app=None, status=1)
    check("no daemon answers; processes that run already can be probed by one that was there" in err, err)
    _, err = gputrace("-e", "thread:nosuch { @ = count(); }")
    equal(err, "gputrace: not probed: no kernel matches; it has vectorAdd\n")


def test_files():
    with tempfile.TemporaryDirectory(prefix="test-gputrace-") as folder:
        os.chmod(folder, 0o755)
        path = os.path.join(folder, "count.gt")
        with open(path, "w") as file:
            file.write("#!/usr/bin/env gputrace\n// launches\nlaunch:*\n{\n\t/* by kernel */\n\t@[kernel] = count();\n}\n")
        os.chmod(path, 0o755)
        out, _ = gputrace(path)
        equal(out, f"\n@[{KERNEL}]: {LAUNCHES}\n")
        done = subprocess.run(
            [path, "--", *APP], env=environment(PATH=os.path.dirname(GPUTRACE) + ":" + os.environ["PATH"]), capture_output=True, text=True, timeout=60
        )
        check(f"@[{KERNEL}]: {LAUNCHES}\n" in done.stdout and done.returncode == 0, done)
        out, _ = gputrace("-", text="thread:* { @ = count(); }")
        equal(out, f"\n@: {THREADS * LAUNCHES}\n")
        result = os.path.join(folder, "out")
        out, _ = gputrace("-o", result, "-e", "thread:* { @ = count(); }")
        with open(result) as file:
            equal((out, file.read()), ("", f"\n@: {THREADS * LAUNCHES}\n"))
        with open(path, "w") as file:
            file.write("launch:*\n{\n\t@x = counts();\n}\n")
        _, err = gputrace(path, app=None, status=1)
        equal(err, f"gputrace: {path}:3:7: there is no function counts(); did you mean count?\n")
        _, err = gputrace("--dry-run", "-e", "launch:* { @x = count(); }", app=None)
        equal(err, "")
        compiled = os.path.join(folder, "x.bpf.o")
        gputrace("--emit", compiled, "-e", "thread:vectorAdd { @x = count(); }", app=None)
        with Daemon() as daemon:
            daemon.attach(object=compiled)
            daemon.run(*APP)
            equal(daemon.count_of("m0"), THREADS * LAUNCHES)


def test_daemon_that_is_there():
    """It is used, for CMD alone; nothing stays attached, whatever ends gputrace."""
    script = 'BEGIN { printf("ready\\n"); } thread:* { @ = count(); } launch:* { @l = count(); }'
    with Daemon() as daemon:
        with running(daemon, "-e", script, app=APP) as process:
            other = daemon.start_run(*APP)
            out, err = process.communicate(timeout=60)
            other.communicate(timeout=60)
            check(f"@: {THREADS * LAUNCHES}\n" in out and f"@l: {LAUNCHES}\n" in out, out, err)
        equal(daemon.attachments(), [])
        script = "thread:* { @ = count(); }"  # the trace would have all programs of the machine
        for sent in (signal.SIGINT, signal.SIGTERM):
            with running(daemon, "-e", script) as process:
                wait_until(daemon.attachments, "it is attached")
                daemon.run(*APP)
                process.send_signal(sent)
                out, err = process.communicate(timeout=20)
                equal((process.returncode, out, err), (0, f"\n@: {THREADS * LAUNCHES}\n", ""))
            equal(daemon.attachments(), [])
        with running(daemon, "-d", "1", "-e", script) as process:
            process.communicate(timeout=20)
            equal(process.returncode, 0)
        equal(daemon.attachments(), [])


def test_process_that_runs():
    with Daemon() as daemon:
        process = daemon.start_run(VEC_ADD, "--threads", "512", "--launches", "60", "--sleep-ms", "100")
        time.sleep(0.5)
        with running(daemon, "-p", str(process.pid), "-d", "1", "-e", "launch:* { @[kernel, pid] = count(); }") as tracer:
            out, err = tracer.communicate(timeout=20)
            found = re.fullmatch(rf"\n@\[{re.escape(KERNEL)}, {process.pid}\]: (\d+)\n", out)
            check(found and 3 <= int(found[1]) <= 30, out, err)
        check(process.poll() is None, "the program goes on")
        process.kill()
        process.communicate()


def test_twins():
    """In a process that runs, by twins: launches have numbers and streams, so overlapping ones have exact durations."""
    with Daemon() as daemon:
        process = daemon.start_run(*APP[:-1], "240", "--sleep-ms", "50", "--how", "streams")  # long enough for a busy machine
        time.sleep(0.5)
        script = "thread:* { @[launch != 0, stream != 0] = count(); } block.lead:*:end { @d = stats(duration); } thread:*:end { @e = count(); } launch:* { @l = count(); }"
        with running(daemon, "-f", "json", "-p", str(process.pid), "-d", "90", "-e", script) as tracer:
            out, err = tracer.communicate(timeout=100)  # it ends with the process
        process.communicate()
        found = {item["name"]: item["entries"] for item in map(json.loads, out.splitlines())}
        equal([entry["keys"] for entry in found["@"]], [[1, 1]])
        threads = found["@"][0]["value"]
        check(found["@l"][0]["value"] * THREADS >= threads >= THREADS and threads % THREADS == 0, out, err)
        equal(found["@d"][0]["value"]["count"], threads // BLOCK)
        equal((found["@e"][0]["value"], err), (threads, ""))


def test_not_probed_is_said():
    """Also where other kernels, or the same one elsewhere, are probed."""
    found, err = maps("thread:vectorAdd { @n = count(); } bb:vectorAdd:99 { @never = count(); }")
    equal(found, {"@n": {(): THREADS * LAUNCHES}})
    equal(err, f"gputrace: not probed: {KERNEL}: no such point in this kernel: block 99\n")


def test_interrupted_command():
    """A Ctrl-C goes to CMD; what was counted until then is printed, the private daemon goes, and so does everything when gputrace is killed."""
    command = [VEC_ADD, "--threads", "512", "--launches", "1000", "--sleep-ms", "50"]
    began = time.monotonic()
    process = start("-e", "thread:* { @ = count(); } launch:* { @l = count(); }", app=command, environment=environment())
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    equal(process.returncode, 128 + signal.SIGINT, out + err)
    check(re.search(r"@: [1-9]", out) and re.search(r"@l: [1-9]", out), out, err)
    check(time.monotonic() - began < 20, "it took long")
    equal(private_daemons(), [], "daemons that are left")
    process = start("-e", "thread:* { @ = count(); }", app=["sleep", "5"], environment=environment())
    wait_until(private_daemons, "the private daemon runs")
    time.sleep(0.5)
    process.kill()
    process.communicate(timeout=20)
    wait_until(lambda: not private_daemons(), "the private daemon ends with it", 20)


def test_reader_that_stops():
    """Who reads our output and stops reading does not keep probes attached: a signal ends gputrace."""
    with Daemon() as daemon:
        with running(daemon, "-e", 'thread:* { @ = count(); } interval:ms:10 { unroll(100) { printf("%100d\\n", 1); } }') as process:
            wait_until(daemon.attachments, "it is attached")
            process.stdout.readline()
            time.sleep(1)  # the pipe is full now
            process.send_signal(signal.SIGTERM)
            wait_until(lambda: process.poll() is not None, "it ends", 20)
            equal(process.returncode, -signal.SIGTERM)
        equal(daemon.attachments(), [])


def test_output_that_ends():
    with subprocess.Popen(
        [GPUTRACE, "-e", 'interval:ms:10 { printf("line\\n"); }', "--", "sleep", "1"], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        process.wait(timeout=20)
        equal(process.stderr.read(), b"")


if __name__ == "__main__":
    main(
        [
            test_first_line,
            test_ordinary_account,
            test_loops,
            test_records,
            test_shared_words,
            test_control,
            test_blocks_of_code,
            test_calls,
            test_ways_of_launching,
            test_device_functions,
            test_source_lines,
            test_begin_end_printf,
            test_gpu_printf,
            test_intervals_lose_nothing,
            test_lost_is_said,
            test_exit_status,
            test_files,
            test_daemon_that_is_there,
            test_process_that_runs,
            test_twins,
            test_not_probed_is_said,
            test_interrupted_command,
            test_reader_that_stops,
            test_output_that_ends,
        ]
    )
