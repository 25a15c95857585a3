#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpuprobectl attach FILE -- CMD as a user has it: with a private daemon or one that is there, as root and as nobody, with programs on the CPU driver."""

import glob
import json
import os
import signal
import subprocess
import tempfile

from harness import BUILD, COUNTER, CTL, GPUPROBED, SHIM, SIM, VEC_ADD, Daemon, check, equal, main, need, wait_until

THREADS, BLOCK, LAUNCHES = 512, 128, 3
COUNTED = THREADS * LAUNCHES
APP = [VEC_ADD, "--threads", str(THREADS), "--block", str(BLOCK), "--launches", str(LAUNCHES)]
NOBODY = 65534
ERROR, USAGE, UNREACHABLE, NOT_FOUND = 1, 2, 3, 5


def example(name):
    return os.path.join(BUILD, "docs", name + ".bpf.o")


need(GPUPROBED, CTL, SHIM, VEC_ADD, COUNTER, example("kernel_trace"), example("print_launch"))
started = set()  # process ids of gpuprobectl


def start(*arguments, command=APP, session=None, **more):
    environment = {name: value for name, value in os.environ.items() if name != "GPUPROBE_SESSION"}
    environment |= {"LD_LIBRARY_PATH": SIM, **({"GPUPROBE_SESSION": session} if session else {})}
    process = subprocess.Popen(
        [CTL, "attach", *arguments, "--", *command],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
        **more,
    )
    started.add(process.pid)
    return process


def finish(process, status=0):
    """Output without the application's lines, standard error."""
    try:
        out, err = process.communicate(timeout=100)
    finally:
        process.kill()
    equal(process.returncode, status, f"{process.args}: {out}{err}")
    return "".join(line for line in out.splitlines(True) if not line.startswith("threads=")), err


def run(*arguments, status=0, **more):
    return finish(start(*arguments, **more), status)


def shell(script):
    return ["sh", "-c", script]


def private_daemons():
    """Folders of those that this test has started."""
    paths = [path for uid in (0, os.getuid(), NOBODY) for folder in ("/tmp", f"/run/user/{uid}") for path in glob.glob(f"{folder}/gpuprobe*gpuprobectl_*")]
    return sorted({path for path in paths if int(path.rsplit("_", 1)[1]) in started})


def test_maps_at_the_end():
    equal(run(COUNTER), (f"counter:\n0: {COUNTED}\n", ""))
    out, err = run("--json", "--kernel=vector*", COUNTER)
    reply = json.loads(out)
    equal((set(reply), reply["log"], [m["map"]["name"] for m in reply["maps"]], err), ({"log", "maps"}, [], ["counter"], ""))
    equal(reply["maps"][0]["entries"], [{"key": 0, "value": COUNTED}])
    equal(private_daemons(), [], "daemons that are left")


def test_all_of_what_the_command_starts():
    twice = shell(" ".join(APP) + "; " + " ".join(APP))
    equal(run(COUNTER, command=twice), (f"counter:\n0: {2 * COUNTED}\n", ""))


def test_log_and_ring():
    out, err = run(example("print_launch"))
    equal((out.count(f"{THREADS // BLOCK} blocks of {BLOCK} threads"), out.count("\n"), err), (LAUNCHES, LAUNCHES, ""))
    out, err = run(example("kernel_trace"))
    lines = out.splitlines()
    equal((lines[0], len(lines) - 1, err), ("events:", COUNTED, ""))
    out, err = run("--json", example("kernel_trace"))
    records = json.loads(out)["maps"][0]["records"]
    equal((len(records), {r["record"]["thread_x"] for r in records}, err), (COUNTED, set(range(BLOCK)), ""))


def test_ordinary_account():
    if os.getuid() != 0:
        print("skipped: only root can become nobody")
        return
    out, err = run(COUNTER, user=NOBODY, group=NOBODY, extra_groups=[])
    equal(out, f"counter:\n0: {COUNTED}\n")
    check("gpuprobectl: without CAP_BPF nothing is verified by Linux" in err and err.count("\n") == 1, err)


def test_status_of_the_command():
    equal(run(COUNTER, command=shell("exit 7"), status=7)[0], "counter:\n0: 0\n")
    equal(run(COUNTER, command=shell("kill -SEGV $$"), status=128 + signal.SIGSEGV)[0], "counter:\n0: 0\n")
    equal(run(COUNTER, command=["/no/such"], status=127), ("", "gpuprobectl: /no/such: No such file or directory\n"))
    equal(run(COUNTER, command=["/etc/passwd"], status=126), ("", "gpuprobectl: /etc/passwd: Permission denied\n"))
    equal(private_daemons(), [], "daemons that are left")


def test_nothing_probed_is_said():
    out, err = run(COUNTER, command=["true"])
    equal(out, "counter:\n0: 0\n")
    check(err.startswith("gpuprobectl: no process with CUDA was seen: ") and err.count("\n") == 1, err)
    out, err = run(COUNTER, "--kernel=nosuch")
    equal((out, err), ("counter:\n0: 0\n", "gpuprobectl: not probed: no kernel matches; it has vectorAdd\n"))
    equal(run(COUNTER, "--nonzero", command=["true"])[0], "counter:\n")


def test_refused():
    """What cannot be attached: one line, and the command is not run."""
    with tempfile.TemporaryDirectory() as folder:
        bad, seen = os.path.join(folder, "bad.o"), os.path.join(folder, "seen")
        with open(COUNTER, "rb") as good, open(bad, "wb") as file:
            file.write(good.read(300))
        command = ["touch", seen]
        for arguments, status, text in (
            ((bad,), ERROR, f"{bad}: not usable: "),
            ((os.path.join(folder, "none.o"),), NOT_FOUND, "none.o: No such file or directory"),
            ((COUNTER, "--program=none"), NOT_FOUND, "there is no program none in it"),
            ((COUNTER, "--point=kprobe/f@block:x"), USAGE, "--point: "),
            ((COUNTER, "--pid=1"), USAGE, "--pid is for a process that runs"),
            ((COUNTER, "--export=counter"), USAGE, "--export is for what stays attached"),
            ((), USAGE, "attach: which object?"),
        ):
            out, err = run(*arguments, command=command, status=status)
            check(text in err and err.startswith("gpuprobectl: ") and not out and not os.path.exists(seen), arguments, out, err)
        check("a command is missing behind --" in run(COUNTER, command=[], status=USAGE)[1])
    equal(private_daemons(), [], "daemons that are left")


def test_daemon_that_is_there():
    with Daemon() as daemon:
        equal(run(COUNTER, session=daemon.name), (f"counter:\n0: {COUNTED}\n", ""))
        equal(daemon.attachments(), [])
        out, err = run(COUNTER, session=daemon.name, command=shell(" ".join(APP) + "; true"))  # another process
        equal((out, "made no call of CUDA itself (what it starts is not probed)" in err), ("counter:\n0: 0\n", True))
        out, err = run(COUNTER, f"--exe={VEC_ADD}", session=daemon.name, command=shell(" ".join(APP) + "; true"))
        equal(out, f"counter:\n0: {COUNTED}\n")
        equal((daemon.attachments(), private_daemons()), ([], []))
    out, err = run(COUNTER, session=daemon.name, status=ERROR)
    check(err.startswith("gpuprobectl: no daemon answers in this session") and not out, err)


def test_daemon_that_dies():
    """The program goes on; what was counted is lost, which is said."""
    kill = "kill -9 $(pgrep -f session=gpuprobectl_$PPID)"
    for command in f"{kill}; {' '.join(APP)}", kill:  # it may still be dying when it is asked
        try:
            out, err = run(COUNTER, command=shell(command), status=UNREACHABLE)
        finally:
            for path in private_daemons():
                subprocess.run(["rm", "-r", path], check=True)
        equal(out, "")
        check(err.startswith("gpuprobectl: the private daemon ended before the program did: what was counted is lost\n"), err)
    with Daemon() as daemon:
        process = start(COUNTER, session=daemon.name, command=shell(f"kill -9 {daemon.process.pid}; exit 9"))
        out, err = finish(process, 9)
        equal(out, "")
        check(err.startswith("gpuprobectl: ") and "the daemon" in err, err)
        daemon.process.wait()


def test_interrupted():
    """A Ctrl-C ends the program, and what it has done until then is shown; one that does not end is not waited for by the second."""
    with tempfile.TemporaryDirectory() as folder:
        ready = os.path.join(folder, "ready")
        process = start(COUNTER, command=shell(f"{' '.join(APP)}; touch {ready}; exec sleep 100"), start_new_session=True)
        wait_until(lambda: os.path.exists(ready), "the program has run")
        os.killpg(process.pid, signal.SIGINT)
        equal(finish(process, 128 + signal.SIGINT), (f"counter:\n0: {COUNTED}\n", ""))
        os.remove(ready)
        process = start(COUNTER, command=shell(f"trap '' INT; {' '.join(APP)}; touch {ready}; sleep 5; exit 3"), start_new_session=True)
        wait_until(lambda: os.path.exists(ready), "the program has run")
        os.killpg(process.pid, signal.SIGINT)
        os.killpg(process.pid, signal.SIGINT)
        wait_until(lambda: not has_pending(process.pid), "both were taken")
        os.killpg(process.pid, signal.SIGINT)
        equal(finish(process, 3)[0], f"counter:\n0: {COUNTED}\n")
        os.remove(ready)
        process = start(COUNTER, command=shell(f"{' '.join(APP)}; touch {ready}; exec sleep 100"))
        wait_until(lambda: os.path.exists(ready), "the program has run")
        process.terminate()
        equal(finish(process, 128 + signal.SIGTERM)[0], f"counter:\n0: {COUNTED}\n")
    equal(private_daemons(), [], "daemons that are left")


def has_pending(pid):
    with open(f"/proc/{pid}/status") as status:
        return any(line.startswith(("ShdPnd:", "SigPnd:")) and int(line.split()[1], 16) & 1 << (signal.SIGINT - 1) for line in status)


main(
    [
        test_maps_at_the_end,
        test_all_of_what_the_command_starts,
        test_log_and_ring,
        test_ordinary_account,
        test_status_of_the_command,
        test_nothing_probed_is_said,
        test_refused,
        test_daemon_that_is_there,
        test_daemon_that_dies,
        test_interrupted,
    ]
)
