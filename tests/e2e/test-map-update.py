#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""map update and map delete: a program's inputs, before processes start and while they run; what a map reads as afterwards; and what is refused."""

import base64
import os

from harness import BUILD, CTL, GPU, GPUPROBED, SHIM, SIM, Daemon, check, equal, main, need, wait_until
from manager import Manager
from varlink import Connection, VarlinkError

DRIVER = os.path.join(BUILD, "tests/sim/language_driver")
INPUTS = os.path.join(BUILD, "tests/e2e/objects/inputs.bpf.o")
THREADS = 64

need(GPUPROBED, CTL, SHIM, DRIVER, INPUTS, *([] if GPU else [os.path.join(SIM, "libcuda.so.1")]))


def command(*more):
    return DRIVER, "vectorAdd", "--grid", "1,1,1", "--block", f"{THREADS},1,1", *more


def run(daemon, *more):
    status, out, err, _ = daemon.run(*command(*more))
    equal((status, err), (0, ""), out)


def results(daemon):
    return [entry["value"] for entry in daemon.dump("results")]


def refused(daemon, words, *arguments, status=1):
    got, out, error = daemon.try_ctl("map", *arguments)
    equal((got, out), (status, ""), f"{arguments}: {error}")
    check(words in error and len(error.splitlines()) == 1, f"{error!r} does not say {words!r}")


def attach(daemon):
    return daemon.attach("--program", "cuda__*", object=INPUTS)


def test_arrays():
    """Values before a process starts are there for it; what is typed is what is printed."""
    with Daemon() as daemon:
        attach(daemon)
        text = '{.factor = 10, .shift = -3, .mode = FAST, .name = "abc", .low = 5, .high = 17, .list = [7, 8]}'
        equal(daemon.ctl("map", "update", "settings", "0", text), "")
        check(daemon.ctl("map", "dump", "settings").splitlines()[0] == "0: " + text, daemon.ctl("map", "dump", "settings"))
        daemon.ctl("map", "update", "settings", "1", '{"factor": 4294967295, "mode": 1}', "exist")
        equal(daemon.dump("settings")[1]["value"], {"factor": 4294967295, "shift": 0, "mode": "SLOW", "name": "", "low": 0, "high": 0, "list": [0, 0]})
        for _ in range(2):
            run(daemon)
        equal(results(daemon)[0], 2 * THREADS * 7)
        equal(daemon.ctl("map", "dump", "settings").splitlines()[0], "0: " + text)  # two processes had it, and it reads once
        daemon.ctl("map", "update", "settings", "0", "{.factor = 1}")
        run(daemon)
        equal(results(daemon)[0], 2 * THREADS * 7 + THREADS)


def test_global_variables():
    with Daemon() as daemon:
        attach(daemon)
        run(daemon)
        equal(results(daemon)[5], 7 * THREADS)
        daemon.ctl("map", "update", ".data", "0", "{.threshold = 100, .other = -1}")
        equal(daemon.dump(".data")[0]["value"], {"threshold": 100, "other": -1})
        run(daemon)
        equal(results(daemon)[5], (7 + 99) * THREADS)
        refused(daemon, "programs are compiled for what is in it", "update", ".rodata", "0", "hex 01 00 00 00")


def test_threads_and_sms():
    """One value for all threads, or all SMs."""
    with Daemon() as daemon:
        daemon.attach("--program", "cuda__*", "--threads", "128", object=INPUTS)
        daemon.ctl("map", "update", "threads", "0", "0x10")
        daemon.ctl("map", "update", "sms", "0", "3")
        equal([entry["value"] for entry in daemon.dump("threads")], [16] * 128)
        equal(set(daemon.dump("sms")[0]["values"]), {3})
        run(daemon)
        equal(results(daemon)[3:5], [16 * THREADS, 3 * THREADS])
        equal([entry["value"] for entry in daemon.dump("threads")], [16] * 128)


def test_counters():
    """A map to which programs only add, or only store, is set at any time: to what it reads as."""
    with Daemon() as daemon:
        attach(daemon)
        run(daemon)
        equal(results(daemon)[6], THREADS)
        daemon.ctl("map", "update", "results", "6", "1000")
        equal(results(daemon)[6], 1000)
        process = daemon.start_run(*command("--launches", "1000", "--sleep-ms", "20"))
        wait_until(lambda: results(daemon)[6] > 1000, "the process counts")
        daemon.ctl("map", "update", "results", "6", "1000000")
        check(1000000 <= results(daemon)[6] < 1100000, results(daemon))
        wait_until(lambda: results(daemon)[6] > 1000000, "and on")
        process.kill()
        process.communicate()
        check(results(daemon)[6] >= 1000000, results(daemon))
        equal(daemon.dump("last")[0]["value"], 5)
        daemon.ctl("map", "update", "last", "0", "9")
        equal(daemon.dump("last")[0]["value"], 9)
        run(daemon)
        equal(daemon.dump("last")[0]["value"], 5)


def test_while_running():
    """Host memory is written to at once; device memory is refused, with what would help."""
    with Daemon() as daemon:
        attach(daemon)
        daemon.ctl("map", "update", "live", "0", "1")
        process = daemon.start_run(*command("--launches", "1000", "--sleep-ms", "20"))
        wait_until(lambda: results(daemon)[1] > 0, "the process reads what was there before it")
        daemon.ctl("map", "update", "live", "0", "1000000")
        wait_until(lambda: results(daemon)[1] > 1000000, "the process reads what came later")
        equal(daemon.dump("live")[0]["value"], 1000000)
        refused(daemon, "the map settings in the memory of a device", "update", "settings", "0", "{.factor = 1}")
        refused(daemon, "attach --shared", "update", "settings", "0", "{.factor = 1}")
        refused(daemon, "have the hash map table", "update", "table", "1", "1")
        refused(daemon, "have the hash map table", "delete", "table", "1")
        process.kill()
        process.communicate()
        wait_until(lambda: all(m["instances"] == 0 for m in daemon.json("map", "list")["maps"]), "it is gone")
        daemon.ctl("map", "update", "settings", "0", "{.factor = 1}")
    with Daemon() as daemon:
        daemon.attach("--program", "cuda__inputs", "--shared", object=INPUTS)
        process = daemon.start_run(*command("--launches", "1000", "--sleep-ms", "20"))
        wait_until(lambda: results(daemon)[6] > 0, "the process counts")
        daemon.ctl("map", "update", "settings", "0", "{.factor = 5, .shift = 1}")
        wait_until(lambda: results(daemon)[0] > 0, "the process reads what was written")
        process.kill()
        process.communicate()


def test_hash():
    with Daemon() as daemon:
        attach(daemon)
        daemon.ctl("map", "update", "table", "7", "100", "noexist")
        daemon.ctl("map", "update", "table", "8", "1")
        refused(daemon, "noexist", "update", "table", "7", "1", "noexist")
        for arguments in ("update", "table", "9", "1", "exist"), ("delete", "table", "9"), ("update", "settings", "2", "{}"):
            equal(daemon.try_ctl("map", *arguments), (5, "", f"gpuprobectl: the map {arguments[1]} has no such element\n"))
        for arguments, text in (
            (("map", "dump", "ring"), "ring: it is a ring: gpuprobectl ring read takes its records"),
            (("ring", "read", "table"), "table: it is not a ring: gpuprobectl map dump shows it"),
        ):
            equal(daemon.try_ctl(*arguments), (1, "", f"gpuprobectl: {text}\n"))
        run(daemon)
        value = results(daemon)[2]
        check(value >= 100 * THREADS, value)
        equal({e["key"]: e["value"] for e in daemon.dump("table")}, {7: 100 + THREADS, 8: 1})
        run(daemon)
        equal({e["key"]: e["value"] for e in daemon.dump("table")}, {7: 100 + 2 * THREADS, 8: 1})  # a new process starts with 100
        daemon.ctl("map", "update", "table", "7", "5", "exist")
        equal({e["key"]: e["value"] for e in daemon.dump("table")}, {7: 5, 8: 1})
        daemon.ctl("map", "delete", "table", "8")
        daemon.ctl("map", "delete", "table", "7")
        equal(daemon.dump("table"), [])
        before = results(daemon)[2]
        run(daemon)
        equal(results(daemon)[2], before)
        equal(daemon.dump("table"), [])
        for key in range(4):
            daemon.ctl("map", "update", "table", str(key), str(key))
        refused(daemon, "elements of the map; the limit is 4", "update", "table", "4", "4")
        equal(sorted((e["key"], e["value"]) for e in daemon.dump("table")), [(n, n) for n in range(4)])


def test_bad_input():
    with Daemon() as daemon:
        attach(daemon)
        for words, *arguments in (
            ("has no member factr", "update", "settings", "0", "{.factr = 1}"),
            ("does not fit into 32 bits", "update", "settings", "0", "{.factor = 4294967296}"),
            ("does not fit into 32 bits", "update", "settings", "0", "{.factor = -1}"),
            ("does not fit into 3 bits", "update", "settings", "0", "{.low = 8}"),
            ("QUICK is no name of the enum mode", "update", "settings", "0", "{.mode = QUICK}"),
            ("has more than 8 characters", "update", "settings", "0", '{.name = "123456789"}'),
            ("an array has 2 elements", "update", "settings", "0", "{.list = [1, 2, 3]}"),
            ("expected { of struct setting", "update", "settings", "0", "1"),
            ("left over", "update", "settings", "0", "{} x"),
            ("expected , or }", "update", "settings", "0", "{.factor = 1"),
            ("a value is missing", "update", "settings", "0", "{.factor ="),
            ("is not a whole number", "update", "settings", "zero", "{}"),
            ("expected 40 bytes in hexadecimal", "update", "settings", "0", "hex 01 02"),
            ("is none of any, noexist and exist", "update", "settings", "0", "{}", "never"),
            ("takes a map, a key and a value", "update", "settings", "0"),
            ("takes a map and a key", "delete", "settings"),
        ):
            refused(daemon, words, *arguments, status=2)
        for status, words, *arguments in (
            (1, "noexist, and the map has such an element", "update", "settings", "0", "{}", "noexist"),
            (1, "cannot be deleted", "delete", "settings", "0"),
            (1, "is a ring", "update", "ring", "0", "1"),
            (5, "there is no map nothing", "update", "nothing", "0", "1"),
        ):
            refused(daemon, words, *arguments, status=status)
        equal(daemon.ctl("map", "update", "live", "0", "hex 01 02 00 00 00 00 00 00"), "")
        equal(daemon.dump("live")[0]["value"], 0x201)
        equal(daemon.ctl("map", "update", "--json", "live", "0", "7"), "{}\n")


def test_interface():
    """Sizes, base64 and flags are the daemon's to check."""
    with Daemon() as daemon:
        attach(daemon)
        client = Connection(daemon.directory)

        def text(data):
            return base64.b64encode(data).decode()

        for parameters, parameter in (
            ({"key": text(b"123"), "value": text(bytes(8))}, "key"),
            ({"key": text(bytes(4)), "value": text(bytes(7))}, "value"),
            ({"key": "!", "value": text(bytes(8))}, "key"),
            ({"key": text(bytes(4)), "value": text(bytes(8)), "flags": "x"}, "flags"),
        ):
            try:
                client.call("UpdateMap", map="live", **parameters)
            except VarlinkError as error:
                equal((error.error, error.parameters["parameter"]), ("InvalidArgument", parameter), parameters)
            else:
                check(False, "was taken:", parameters)
        client.close()


def test_restart():
    """Inputs survive the daemon, killed or not."""
    with Manager() as manager:
        manager.attach("--program", "cuda__inputs", object=INPUTS)
        manager.ctl("map", "update", "settings", "0", "{.factor = 10}")
        manager.ctl("map", "update", "table", "7", "100")
        manager.restart()
        equal(manager.dump("settings")[0]["value"]["factor"], 10)
        equal([(e["key"], e["value"]) for e in manager.dump("table")], [(7, 100)])
        run(manager)
        equal(results(manager)[0], 10 * THREADS)
        check(results(manager)[2] >= 100 * THREADS)


main([test_arrays, test_global_variables, test_threads_and_sms, test_counters, test_while_running, test_hash, test_bad_input, test_interface, test_restart])
