#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
gpuprobectl while the daemon is restarted or crashes: each command waits for the next daemon and goes on, or says in one line what ended, with an exit status
that is not 0. On the CPU driver.
"""

import json
import os
import signal
import subprocess
import time

from harness import BUILD, COUNTER, CTL, GPUPROBED, SHIM, SIM, VEC_ADD, check, equal, main, need, wait_until
from live import LIVE, THREADS, Live, example, obj
from manager import Manager

need(GPUPROBED, CTL, COUNTER, SHIM, VEC_ADD, LIVE, obj("log"), os.path.join(SIM, "libcuda.so.1"))

ENDS = Manager.hand_over, Manager.crash
HUNG_UP, ENDS_HERE = "the daemon hung up; its log says why: standard error of gpuprobed", "the trace ends here: the daemon is stopped or restarted"


def told(err):
    """Lines of standard error without those on what cannot be traced here."""
    return [line for line in err.splitlines() if "not traced: " not in line]


def test_commands_wait():
    """Those that come while there is no daemon, each of them; then they do what they always do."""
    with Manager() as daemon:
        daemon.attach("--export", "counter")
        status, out, err, _ = daemon.run(VEC_ADD, "--threads", "4096", "--launches", "3")
        equal(status, 0, out + err)
        commands = [
            ["list"],
            ["status"],
            ["why"],
            ["kernel", "list"],
            ["program", "show", "1"],
            ["map", "list"],
            ["map", "dump", "counter"],
            ["map", "export", "counter"],
            ["map", "exports"],
            ["metrics"],
            ["hook", "list"],
            ["pass", "list"],
            ["cache"],
            ["doctor"],
            ["attach", COUNTER],
            ["why"],
            ["detach", "1"],
        ]
        for n in range(0, len(commands), 8):
            daemon.crash()
            waiting = [(command, daemon.start_ctl(*command)) for command in commands[n : n + 8]]
            time.sleep(0.2)
            for command, process in waiting:
                check(process.poll() is None, command, "did not wait")
            daemon.start()
            for command, process in waiting:
                out, err = process.communicate(timeout=30)
                equal((process.returncode, err), (0, ""), command)
                check(command not in (["metrics"], ["map", "dump", "counter"]) or "12288" in out, command, out)
        equal([a["id"] for a in daemon.attachments()], [2])


def test_follows():
    """What programs print: those who follow it go on with the next daemon, several times, and miss nothing."""
    with Manager() as daemon:
        daemon.attach(object=obj("log"))
        with Live(daemon) as live:
            follower = daemon.start_ctl("--json", "log", "-f")
            for end in ENDS * 2:
                for when in "before", "while there is none":
                    live.launch(1)
                    if when != "before":
                        daemon.start()
                    lines = [json.loads(follower.stdout.readline())["text"] for _ in range(THREADS)]
                    equal(len(set(lines)), THREADS, f"lines of one launch, {when}, {end.__name__}")
                    if when == "before":
                        end(daemon)
            follower.send_signal(signal.SIGINT)
            out, err = follower.communicate(timeout=20)
            equal((follower.returncode, out), (0, ""), err)
            equal(set(err.splitlines()), {"gpuprobectl: the daemon went away; waiting for the next"})


def test_follower_gives_up():
    """When the service is stopped there is nothing to wait for: no longer than half a minute, and Ctrl-C ends it at once."""
    with Manager() as daemon:
        daemon.attach(object=obj("log"))
        follower = daemon.start_ctl("log", "-f")
        time.sleep(0.5)
        daemon.crash()
        daemon.control.close()  # nobody listens any more, and the next one is not known
        os.rename(os.path.join(daemon.directory, "io.gpuprobe.control"), os.path.join(daemon.directory, "away"))
        time.sleep(0.5)
        check(follower.poll() is None, "it waits")
        follower.send_signal(signal.SIGINT)
        out, err = follower.communicate(timeout=10)
        equal((follower.returncode, set(err.splitlines())), (0, {"gpuprobectl: the daemon went away; waiting for the next"}))
        os.remove(os.path.join(daemon.directory, "away"))
        daemon.control = daemon.listen("io.gpuprobe.control", __import__("socket").SOCK_STREAM)
        daemon.start()


def test_traces_end():
    """A line says so, and the exit status; what came before is whole, in each format; a program that was started for it runs on."""
    traces = 0
    file = f"/tmp/gpuprobe-test-{os.getpid()}.trace"
    with Manager() as daemon, Live(daemon) as live:
        for end, line in zip(ENDS, (ENDS_HERE, HUNG_UP)):
            end(daemon)  # and a process is traced by daemons that came after it
            daemon.start()
            for options in ((), ("--json",), ("-c",), ("-d", "600"), ("--format", "raw", "-o", file)):
                trace = daemon.start_ctl("trace", "--backend=shim", "--pid", str(live.pid), *options)
                traces += 1
                wait_until(lambda: daemon.text().count("trace: began") == traces, "the trace has begun")
                live.launch(1)
                time.sleep(0.5)  # what was taken from the processes' rings has been sent
                end(daemon)
                daemon.start()
                out, err = trace.communicate(timeout=20)
                equal((trace.returncode, sum(line in told for told in told(err))), (3, 1), f"{options}, {end.__name__}: {err}")
                if "-o" in options:
                    out = daemon.ctl("trace", "report", file)
                    os.remove(file)
                check("cuLaunchKernel" in out, options, end.__name__, out, err)
                if "--json" in options:  # the last line is of a trace that was ended, not of one that was cut off
                    equal(json.loads(out.splitlines()[-1])["type"] == "stop", end == Manager.hand_over)
        trace = daemon.start_ctl("trace", "--backend=shim", "-o", "/dev/null", "--", VEC_ADD, "--threads", "4096", "--launches", "30", "--sleep-ms", "100")
        wait_until(lambda: daemon.text().count("trace: began") == traces + 1, "the trace has begun")
        time.sleep(0.5)  # what was taken from the processes' rings has been sent
        daemon.crash_and_start()
        out, err = trace.communicate(timeout=30)
        equal((trace.returncode, "PASS" in out), (3, True), err)


def test_attach_and_run():
    """A daemon that dies in the middle of it: a line that says what to do; nothing is half attached, and the next attach works."""
    with Manager() as daemon:
        for end in ENDS:
            for command in ["attach", obj("maps")], ["run", obj("direct")]:
                before, process = daemon.attachments(), daemon.start_ctl(*command)
                wait_until(
                    lambda: (
                        process.poll() is not None or subprocess.run(["pgrep", "-P", str(daemon.process.pid), "gpuprobe-progra"], capture_output=True).stdout
                    ),
                    "it is being compiled, or is done already",
                )
                end(daemon)
                daemon.start()
                out, err = process.communicate(timeout=30)
                if process.returncode:  # it was not done before
                    equal((process.returncode, out, len(err.splitlines())), (3, "", 1), err)
                    check("gpuprobectl list shows whether it had done it" in err, err)
                    equal(daemon.attachments(), before, f"{command[0]}, {end.__name__}")
        daemon.attach(object=obj("maps"))
        daemon.attach()
        status, out, err, _ = daemon.run(VEC_ADD, "--threads", "4096", "--launches", "2")
        equal((status, daemon.count_of()), (0, 8192), out + err)


def test_run_goes_on():
    """A program that runs as a kernel of its own when the daemon is restarted: its maps are shown, or Ctrl-C ends it, and nothing stays."""
    with Manager() as daemon:
        for end in Manager.restart, Manager.crash_and_start:
            for count in 1000000, 1000000000:
                process = daemon.start_ctl("--json", "run", example("blocks_by_sm"), "--count", str(count))
                wait_until(lambda: daemon.attachments() and any(sum(entry["values"]) for entry in daemon.dump("blocks")), "it counts")
                end(daemon)
                if count == 1000000000:
                    process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=60)
                if count == 1000000:
                    equal(process.returncode, 0, err)
                    equal([sum(shown["entries"][0]["values"]) for shown in json.loads(out)["maps"]], [count])
                    check("restarted meanwhile" in err or not err, err)
                else:
                    equal((process.returncode, out, err), (1, "", "gpuprobectl: interrupted: the kernel may not have run to its end\n"))
                equal(daemon.attachments(), [])


if __name__ == "__main__":
    main([value for name, value in list(globals().items()) if name.startswith("test_")])
