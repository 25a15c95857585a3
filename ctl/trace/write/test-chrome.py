#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test-chrome.py TEST-WRITERS: the Chrome format against its schema, and what must be in it."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

# what is freed is free: memory is measured
ENV = os.environ | {"ASAN_OPTIONS": "quarantine_size_mb=1:thread_local_quarantine_size_kb=64"}


def no_double_keys(pairs):
    assert len({key for key, _ in pairs}) == len(pairs), pairs
    return dict(pairs)


def no_constants(text):
    raise ValueError(text)  # NaN and Infinity are none of JSON's


def load(path):
    trace = json.loads(path.read_bytes().decode("utf-8"), object_pairs_hook=no_double_keys, parse_constant=no_constants)
    assert set(trace) == {"displayTimeUnit", "otherData", "traceEvents"} and trace["displayTimeUnit"] == "ns"
    named = {"process": set(), "thread": set()}
    for event in trace["traceEvents"]:
        check(event)
        if event["ph"] == "M":
            kind = event["name"].split("_")[0]
            named[kind].add(event["pid"] if kind == "process" else (event["pid"], event["tid"]))
        elif event["ph"] not in "C":
            # names come before what they name
            assert event["pid"] in named["process"], event
            assert event["tid"] == 0 or (event["pid"], event["tid"]) in named["thread"], event
    return trace


def check(event):
    """The Trace Event Format, of 'Trace Event Format' (Google, 2016): what each phase needs and may have."""
    needs = {
        "X": {"ts", "dur", "name", "cat", "args"},
        "i": {"ts", "name", "cat", "args", "s"},
        "M": {"name", "args"},
        "s": {"ts", "name", "cat", "id"},
        "f": {"ts", "name", "cat", "id", "bp"},
        "C": {"ts", "name", "args"},
    }
    assert set(event) == needs[event["ph"]] | {"ph", "pid", "tid"}, event
    for key in "pid", "tid":
        assert type(event[key]) is int and 0 <= event[key] < 2**32, event
    for key in "ts", "dur":
        assert key not in event or (type(event[key]) is float and event[key] >= 0), event
    for key in "name", "cat", "id":
        assert key not in event or (type(event[key]) is str and event[key]), event
    if event["ph"] == "M":
        assert event["name"] in ("process_name", "thread_name") and list(event["args"]) == ["name"], event
    if event["ph"] == "i":
        assert event["s"] in "gpt", event
    if event["ph"] == "C":
        assert all(type(n) is int for n in event["args"].values()), event
    if event["ph"] == "f":
        assert event["bp"] == "e", event


def check_nesting(events):
    """No two spans of a thread cross."""
    for a in events:
        for b in events:
            if a["ph"] == b["ph"] == "X" and (a["pid"], a["tid"]) == (b["pid"], b["tid"]):
                assert not a["ts"] < b["ts"] < a["ts"] + a["dur"] < b["ts"] + b["dur"], (a, b)


def check_sample(trace):
    events = trace["traceEvents"]
    by_name = {event["name"]: event for event in events if event["ph"] in "Xi"}
    names = {(event["pid"], event["tid"], event["name"]): event["args"]["name"] for event in events if event["ph"] == "M"}
    process = lambda event: names[event["pid"], 0, "process_name"]
    thread = lambda event: names[event["pid"], event["tid"], "thread_name"]

    assert trace["otherData"] == {
        "monotonic_ns": "5000000000000",
        "realtime_ns": "1800000000000000000",
        "host": 'ho"st\ufffd',
        "driver": "580.159.04",
        "gpuprobed": "0.1.0",
    }, trace["otherData"]
    values = by_name["values"]
    assert (values["ts"], values["dur"]) == (100.0, 1.001) and process(values) == 'py"thon' and thread(values) == "main"
    assert values["args"] == {
        "int": -5,
        "uint": "18446744073709551615",
        "hex": "0x7f0000001000",
        "float": 0.1,
        "nan": "nan",
        "bool": True,
        "size": 4096,
        "enum": "CU_THREE",
        "enum_unknown": 99,
        "string": 'a "b" \\ \n\x01 \xe4 \ufffd \ufffd\ufffd',
        "null": "",
        "group": {"x": 1, "inner": {"y": "00ff"}},
        "same": 1,
        "same#16": 2,
        "liar": {"z": 7},
        "=id": values["args"]["=id"],
        "=result": "CUDA_SUCCESS",
    }, values["args"]
    launch, kernel, graph = by_name["cuLaunchKernel"], by_name["add(int, <char>)"], by_name["graph"]
    assert launch["args"]["=stack"] == ["libfoo.so+0x10 (inner;frame+0x4)", "python (deleted)+0x20 (main+0x3)"] and launch["args"]["=kernel"] == "_Z3addv"
    assert process(kernel) == process(graph) == 'GPU 0 of py"thon (1000)' and kernel["pid"] >= 2**22
    assert thread(kernel) == thread(graph) == "stream 0x0" and kernel["tid"] != graph["tid"]  # they overlap
    assert thread(by_name["on another stream"]) == "stream 0xdeadbeef00"
    assert graph["args"]["=violation"] == "starts 1.0us before its launch" and graph["args"]["=error_ns"] == 40
    flows = {(event["ph"], event["id"]): event for event in events if event["ph"] in "sf"}
    for ident, start, end in ("0x4d", launch, kernel), ("0xfedcba9876543210", by_name["cuGraphLaunch"], graph):
        for phase, event in ("s", start), ("f", end):
            assert {key: flows[phase, ident][key] for key in ("pid", "tid")} == {key: event[key] for key in ("pid", "tid")}
        # that of what starts before its launch does not go back
        assert (flows["s", ident]["ts"], flows["f", ident]["ts"]) == (start["ts"], end["ts"] if end is kernel else 220.001)
    ioctl = by_name["NV_ESC_RM_CONTROL"]
    assert ioctl["args"] == {"=id": ioctl["args"]["=id"], "=result": "NV_ERR_NOT_SUPPORTED", "=failed": True} and ioctl["cat"] == "ioctl"
    counters = [(event["ts"], event["args"]["bytes"]) for event in events if event["ph"] == "C"]
    assert counters == [(301.0, 1 << 20), (303.0, (1 << 20) + (1 << 10)), (305.0, 1 << 10)], counters
    lost = [event for event in events if event["name"] == "lost"]
    assert [(event["s"], event["args"]["=count"]) for event in lost] == [("g", "18446744073709551615"), ("p", 12)], lost
    assert process(lost[1]) == "pid 4444" and process(by_name["irq:irq_handler_entry"]) == "interrupts"
    assert thread(by_name["irq:irq_handler_entry"]) == "CPU 3"
    assert process(by_name["in a process that nobody knows"]) == "pid 4194303"
    assert by_name["cuCtxSynchronize"]["args"]["=open"] is True and "=result" not in by_name["cuCtxSynchronize"]["args"]
    assert by_name["cuInit"]["tid"] == by_name["cuModuleLoad"]["tid"] == 1002 != by_name["crosses"]["tid"]
    assert thread(by_name["cuInit"]) == thread(by_name["crosses"]) == '\ufffd"worker'
    assert len([event for event in events if event["name"] == "clock"]) == 4
    # contexts of all processes have one row, which belongs to none
    contexts = [event for event in events if event.get("cat") == "ctxsw"]
    assert [(event["name"], event["ts"], event["dur"]) for event in contexts] == [('py"thon[1000]', 700, 2), ("another user", 702.085, 1.915)]
    assert len({(event["pid"], event["tid"]) for event in contexts}) == 1
    assert process(contexts[0]) == "GPU 3" and thread(contexts[0]) == "contexts"
    check_nesting(events)


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "trace.json"
        run = lambda scene: subprocess.run([sys.argv[1], "chrome", scene, path], check=True, stdout=subprocess.PIPE, env=ENV).stdout
        run("sample")
        check_sample(load(path))
        run("empty")
        assert load(path)["traceEvents"] == []
        grown = int(run("many"))
        assert grown < 2048, grown  # kB: of the second half
        trace = load(path)
        assert len([event for event in trace["traceEvents"] if event["ph"] == "X"]) == 60000
    subprocess.run([sys.argv[1], "lanes"], check=True)


main()
