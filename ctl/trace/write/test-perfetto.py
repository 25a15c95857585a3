#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test-perfetto.py TEST-WRITERS: the Perfetto format, read with Perfetto's own protobuf definitions (Python packages perfetto, protobuf).

What trace_processor would make of the packets is made here in small: tables of names by sequence, tracks, slices by track and time, flows, counters.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

# where tests/prepare puts them
sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / ".python"))
try:
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb
except ImportError as e:
    print("skipped: no Python packages perfetto and protobuf, which tests/prepare installs: %s" % e)
    sys.exit(77)

# what is freed is free: memory is measured
ENV = os.environ | {"ASAN_OPTIONS": "quarantine_size_mb=1:thread_local_quarantine_size_kb=64"}
MONOTONIC = 3
START = 5000000000000


def value(annotation, strings):
    kind = annotation.WhichOneof("value")
    if kind == "string_value_iid":
        return strings[annotation.string_value_iid]
    if kind:
        return getattr(annotation, kind)
    if annotation.array_values:
        return [value(member, strings) for member in annotation.array_values]
    return None


def annotations(members, names, strings):
    found = []
    for member in members:
        name = names[member.name_iid] if member.name_iid else member.name
        if member.dict_entries:
            found.append((name, dict(annotations(member.dict_entries, names, strings))))
        else:
            found.append((name, value(member, strings)))
    return found


class Reader:
    def __init__(self, data):
        self.trace = pb.Trace()
        self.trace.ParseFromString(data)
        assert self.trace.SerializeToString() and not self.unknown(self.trace)
        self.tracks, self.events, self.clocks, self.resets = {}, [], [], 0
        self.tables, self.default_clock = {}, {}
        for packet in self.trace.packet:
            self.take(packet)
        self.slices = self.make_slices()

    @staticmethod
    def unknown(message):
        """Fields that the definitions do not have: none are written."""
        from google.protobuf import unknown_fields

        return len(unknown_fields.UnknownFieldSet(message)) or any(len(unknown_fields.UnknownFieldSet(packet)) for packet in message.packet[:100])

    def take(self, packet):
        sequence = packet.trusted_packet_sequence_id
        assert sequence
        if packet.sequence_flags & packet.SEQ_INCREMENTAL_STATE_CLEARED:
            self.tables[sequence] = {"event_categories": {}, "event_names": {}, "debug_annotation_names": {}, "debug_annotation_string_values": {}}
            self.default_clock[sequence] = packet.trace_packet_defaults.timestamp_clock_id
            self.resets += 1
        for table, entries in self.tables.get(sequence, {}).items():
            for entry in getattr(packet.interned_data, table):
                text = entry.str.decode() if table == "debug_annotation_string_values" else entry.name
                assert entry.iid and entry.iid not in entries, entry
                entries[entry.iid] = text
        if packet.HasField("track_descriptor"):
            descriptor = packet.track_descriptor
            assert not descriptor.parent_uuid or descriptor.parent_uuid in self.tracks
            self.tracks[descriptor.uuid] = descriptor
        if packet.HasField("clock_snapshot"):
            self.clocks.append((sequence, {clock.clock_id: clock.timestamp for clock in packet.clock_snapshot.clocks}))
            assert packet.clock_snapshot.primary_trace_clock == MONOTONIC
        if packet.HasField("track_event"):
            assert packet.sequence_flags & packet.SEQ_NEEDS_INCREMENTAL_STATE and self.default_clock[sequence] == MONOTONIC
            self.take_event(packet.timestamp, packet.track_event, self.tables[sequence])

    def take_event(self, time, event, tables):
        assert event.track_uuid in self.tracks, "an event on a track that nobody described"
        self.events.append(
            {
                "time": time - START,
                "type": event.type,
                "track": event.track_uuid,
                "name": tables["event_names"][event.name_iid] if event.name_iid else event.name,
                "categories": [tables["event_categories"][iid] for iid in event.category_iids] + list(event.categories),
                "args": annotations(event.debug_annotations, tables["debug_annotation_names"], tables["debug_annotation_string_values"]),
                "flows": list(event.flow_ids),
                "ends": list(event.terminating_flow_ids),
                "counter": event.counter_value,
            }
        )

    def make_slices(self):
        """Ends close what began last on their track, in the order of time, then of the file."""
        open_ones, slices = {}, []
        for event in sorted(self.events, key=lambda event: event["time"]):
            stack = open_ones.setdefault(event["track"], [])
            if event["type"] == pb.TrackEvent.TYPE_SLICE_END:
                assert stack, "an end without a beginning"
                stack.pop()["end"] = event["time"]
            elif event["type"] in (pb.TrackEvent.TYPE_SLICE_BEGIN, pb.TrackEvent.TYPE_INSTANT):
                event["parent"] = stack[-1]["name"] if stack else None
                slices.append(event)
                if event["type"] == pb.TrackEvent.TYPE_SLICE_BEGIN:
                    stack.append(event)
        return slices

    def arrows(self):
        """Between slices: a flow goes from each slice that has it to the next one, in the order of time, until one ends it."""
        last, arrows = {}, []
        for event in self.slices:
            for flow in event["flows"] + event["ends"]:
                if flow in last:
                    arrows.append((last[flow], event))
                last[flow] = event
            for flow in event["ends"]:
                del last[flow]
        return arrows

    def place(self, event):
        """The names from the outermost track to this one."""
        names, uuid = [], event["track"]
        while uuid:
            track = self.tracks[uuid]
            names.insert(0, track.process.process_name or track.thread.thread_name or track.name)
            uuid = track.parent_uuid
        return names


def check_sample(reader):
    by_name = {event["name"]: event for event in reader.slices}

    def span(name):
        return by_name[name]["time"], by_name[name].get("end")

    assert reader.clocks[0] == (1, {MONOTONIC: START, 1: 1800000000000000000}), reader.clocks
    # the pair that goes back is not there
    gpu = 1700000000000000000
    assert [clocks for sequence, clocks in reader.clocks[1:]] == [
        {MONOTONIC: START + 60, 64: gpu},
        {MONOTONIC: START + 1060, 64: gpu + 1000},
        {MONOTONIC: START - 1000, 64: 1795323403571122560},
    ]
    assert reader.clocks[1][0] == reader.clocks[2][0] != 1 and reader.clocks[3][0] not in (1, reader.clocks[1][0])
    # contexts of all processes have one track, which belongs to none
    contexts = [by_name['py"thon[1000]'], by_name["another user"]]
    assert [reader.place(event) for event in contexts] == [["GPU 3 contexts"]] * 2 and contexts[0]["track"] == contexts[1]["track"]
    assert span('py"thon[1000]') == (700000, 702000) and dict(contexts[0]["args"])["began"] == "SIMPLE_START"
    values = by_name["values"]
    assert span("values") == (100000, 101001) and reader.place(values) == ['py"thon', "main"]
    assert values["args"] == [
        ("int", -5),
        ("uint", 2**64 - 1),
        ("hex", 0x7F0000001000),
        ("float", 0.1),
        ("nan", values["args"][4][1]),
        ("bool", True),
        ("size", 4096),
        ("enum", "CU_THREE"),
        ("enum_unknown", 99),
        ("string", 'a "b" \\ \n\x01 \xe4 \ufffd \ufffd\ufffd'),
        ("null", ""),
        ("group", {"x": 1, "inner": {"y": "00ff"}}),
        ("same", 1),
        ("same", 2),
        ("liar", {"z": 7}),
        ("=result", "CUDA_SUCCESS"),
        values["args"][-1],
    ], values["args"]
    assert values["args"][4][1] != values["args"][4][1] and values["args"][-1][0] == "=id"
    launch, kernel, graph = by_name["cuLaunchKernel"], by_name["add(int, <char>)"], by_name["graph"]
    assert span("cuLaunchKernel") == (200000, 210500) and launch["categories"] == ["launch"]
    assert (
        dict(launch["args"])["=stack"] == ["libfoo.so+0x10 (inner;frame+0x4)", "python (deleted)+0x20 (main+0x3)"]
        and dict(launch["args"])["=kernel"] == "_Z3addv"
    )
    assert reader.place(kernel) == reader.place(graph) == ['py"thon', "GPU 0 stream 0x0"] and kernel["track"] != graph["track"]
    assert reader.place(by_name["on another stream"]) == ['py"thon', "GPU 0 stream 0xdeadbeef00"]
    assert span("add(int, <char>)") == (215000, 235000) and span("graph") == (219000, 240000)
    assert dict(graph["args"])["=violation"] == "starts 1.0us before its launch" and dict(graph["args"])["=error_ns"] == 40
    assert launch["flows"] == kernel["flows"] == [77] and by_name["cuGraphLaunch"]["flows"] == graph["flows"] == [0xFEDCBA9876543210]
    assert (launch, kernel) in reader.arrows()
    ioctl = by_name["NV_ESC_RM_CONTROL"]
    assert ioctl["parent"] == "cuLaunchKernel" and span("NV_ESC_RM_CONTROL") == (201000, 204000)
    assert dict(ioctl["args"])["=result"] == "NV_ERR_NOT_SUPPORTED" and dict(ioctl["args"])["=failed"] is True
    counters = [event for event in reader.events if event["type"] == pb.TrackEvent.TYPE_COUNTER]
    assert [(event["time"], event["counter"]) for event in counters] == [(301000, 1 << 20), (303000, (1 << 20) + (1 << 10)), (305000, 1 << 10)]
    counter = reader.tracks[counters[0]["track"]]
    assert counter.counter.unit == counter.counter.UNIT_SIZE_BYTES and reader.place(counters[0])[0] == 'py"thon'
    lost = [event for event in reader.slices if event["name"] == "lost"]
    assert [dict(event["args"])["=count"] for event in lost] == [2**64 - 1, 12] and all(event["type"] == pb.TrackEvent.TYPE_INSTANT for event in lost)
    assert reader.place(lost[1])[0] == "pid 4444" and reader.place(lost[0]) == ["interrupts on CPU 0"]
    assert reader.place(by_name["irq:irq_handler_entry"]) == ["interrupts on CPU 3"]
    assert reader.place(by_name["in a process that nobody knows"])[0] == "pid 4194303"
    assert span("cuCtxSynchronize") == (400000, 500000) and dict(by_name["cuCtxSynchronize"]["args"])["=open"] is True
    assert span("cuInit") == (9000, 12000) and by_name["cuModuleLoad"]["parent"] == "cuInit" and span("cuModuleLoad") == (10000, 11000)
    assert by_name["of a process with the same pid"]["parent"] is None
    assert span("crosses") == (11500, 13000) and reader.place(by_name["crosses"]) == ['py"thon', '\ufffd"worker', "overlapping"]
    threads = {(track.thread.pid, track.thread.tid) for track in reader.tracks.values() if track.HasField("thread")}
    assert {(1000, 1001), (1000, 1002), (4194303, 4194303)} <= threads, threads
    process = next(track.process for track in reader.tracks.values() if track.process.pid == 1000)
    assert process.cmdline == ["/usr/bin/py\ufffdthon"]


with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / "trace.pftrace"

    def run(scene):
        output = subprocess.run([sys.argv[1], "perfetto", scene, path], check=True, stdout=subprocess.PIPE, env=ENV).stdout
        return Reader(path.read_bytes()), output

    check_sample(run("sample")[0])
    assert not run("empty")[0].events
    reader = run("graph")[0]
    assert [(a["time"], b["time"]) for a, b in reader.arrows()] == [(1000, 3000), (3000, 4000), (4000, 5000)], reader.arrows()
    reader, grown = run("many")
    assert int(grown) < 2048, grown
    # the tables of names began anew, and the names are still right
    assert reader.resets > 10 and len(reader.slices) == 60000
    for i in range(0, 60000, 97):
        event = reader.slices[i]
        number = event["time"] // 10
        assert event["name"] == "function %d" % number and ("enum", "enumerator %d" % number) in event["args"]
