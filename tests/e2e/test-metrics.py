#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Metrics: the daemon's numbers and exported maps, as a reader that is not ours understands them."""

import json
import os
import re
import resource
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time

from harness import BUILD, COUNTER, CTL, GPUPROBED, SIM, SKIP, SOURCE, VEC_ADD, Daemon, Failed, check, equal, main, need, resident, wait_until
from manager import Manager
from varlink import Connection, VarlinkError

KERNEL_DURATION = os.path.join(BUILD, "docs/kernel_duration.bpf.o")
METRICS = os.path.join(BUILD, "tests/e2e/objects/metrics.bpf.o")
need(GPUPROBED, CTL, COUNTER, KERNEL_DURATION, METRICS, VEC_ADD)
sys.path.append(os.path.join(SOURCE, ".python"))
try:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
    from prometheus_client.parser import text_string_to_metric_families as prometheus
except ImportError:
    print("skipped: no prometheus_client (tests/prepare, or python3-prometheus-client)")
    sys.exit(SKIP)


def families(text):
    """By name. Its numbers are floats; those in the text itself are exact, see exact()."""
    return {family.name: family for family in openmetrics(text)}


def samples(family):
    return {tuple(sorted(sample.labels.items())): sample.value for sample in family.samples}


def exact(text, name):
    """The numbers of a sample, as they are written."""
    return [line.rsplit(" ", 1)[1] for line in text.splitlines() if re.match(re.escape(name) + r"[ {]", line)]


def error(connection, method, **parameters):
    try:
        reply = connection.call(method, **parameters)
    except VarlinkError as refused:
        return refused.error, refused.parameters
    raise Failed(f"{method} {parameters} is not refused: {reply}")


def run_vec_add(daemon):
    status, out, err, _ = daemon.run(VEC_ADD, "--threads", "16384", "--launches", "2")
    equal(status, 0, out + err)


def get(path, request=b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"):
    """What the socket answers: the status line, headers, body."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(20)
        client.connect(path)
        client.sendall(request)
        answer = b""
        while True:
            part = client.recv(1 << 16)
            if not part:
                break
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    return lines[0], dict(line.split(": ", 1) for line in lines[1:]), body.decode()


def test_own_numbers():
    with Daemon() as daemon:
        text = daemon.ctl("metrics")
        check(text.endswith("\n# EOF\n"), text[-100:])
        found = families(text)
        status = daemon.status()
        with open(f"{SOURCE}/docs/gpuprobe-metrics.5.scd") as file:
            page = file.read().replace("\\", "")
        # all that status has is there, with the unit in the name
        for statistic in status["statistics"]:
            unit = {"bytes": "_bytes", "microseconds": "_seconds"}.get(statistic["unit"], "")
            name = f"gpuprobe_{statistic['group']}_{statistic['name']}{unit}"
            check(name in found or statistic["group"] == "requests", name)
            if name in found:
                equal(found[name].type, statistic["kind"], name)
                equal(found[name].unit, unit.lstrip("_"), name)
                check(found[name].documentation, name)
            check(name in page, name, "is not in docs/gpuprobe-metrics.5.scd")
        equal(
            found["gpuprobe_build"].samples[0].labels if "gpuprobe_build" in found else found["gpuprobe_build_info"].samples[0].labels,
            {"version": status["version"]},
        )
        with open(f"/proc/{status['pid']}/statm") as statm:
            rss = int(statm.read().split()[1]) * resource.getpagesize()
        shown = found["gpuprobe_daemon_memory_bytes"].samples[0].value
        check(rss / 2 < shown < rss * 2, shown, rss)
        descriptors = len(os.listdir(f"/proc/{status['pid']}/fd"))
        shown = found["gpuprobe_daemon_descriptors"].samples[0].value
        check(abs(shown - descriptors) <= 2, shown, descriptors)
        daemon.attach()
        run_vec_add(daemon)
        numbers = {(s["group"], s["name"], s.get("of")): s["value"] for s in daemon.status()["statistics"]}
        equal(
            [
                numbers[key]
                for key in (
                    ("images", "received", None),
                    ("images", "made", None),
                    ("processes", "seen", None),
                    ("attachments", "active", None),
                    ("maps", "active", None),
                )
            ],
            [1, 1, 1, 1, 1],
        )
        check(numbers[("workers", "jobs", "image")] >= 1 and numbers[("workers", "jobs", "program")] >= 2, numbers)
        daemon.ctl("map", "dump", "nobody", status=5)
        check('gpuprobe_requests_refused_total{error="NotFound"} 1\n' in daemon.ctl("metrics"))
        # Prometheus' older format has no units and no end, and counters with their suffix
        text = daemon.ctl("metrics", "--prometheus")
        check("# UNIT" not in text and "# EOF" not in text and "# TYPE gpuprobe_images_received_total counter" in text)
        equal({f.name: f.type for f in prometheus(text)}["gpuprobe_images_received"], "counter")
        # for people, a line for each group
        text = daemon.ctl("status")
        check(re.search(r"^  images: +received 1, made 1, own 0", text, re.M), text)


def test_clock_set_back():
    os.environ["LD_PRELOAD"] = os.path.join(BUILD, "tests/libbackward-clock.so")
    try:
        daemon = Daemon()
    finally:
        del os.environ["LD_PRELOAD"]
    with daemon:
        time.sleep(1.1)
        uptime = families(daemon.ctl("metrics"))["gpuprobe_daemon_uptime_seconds"].samples[0].value
        check(1.1 < uptime < 100, uptime)
        check(abs(daemon.status()["started"] / 1e6 - (4e9 - time.time())) < 100, "the library is not there")


def test_exported_maps():
    with Daemon() as daemon:
        equal(daemon.attach("--export=counter"), [1])
        daemon.attach(object=METRICS)
        equal(
            daemon.ctl(
                "map", "export", "by_block", "--as=app_block", "--help-text", 'who\\ "ran"\nwhere', "--type=counter", '--label=site=a"\\', "--label=block=mine"
            ),
            "app_block_threads\napp_block_blocks\n",
        )
        equal(daemon.ctl("map", "export", "sizes", "--type=histogram", "--bucket=log2", "--unit=threads"), "gpuprobe_map_sizes_threads\n")
        equal(daemon.ctl("map", "export", "percpu", "--as=per_sm", "--sm", "--type=gauge"), "per_sm\n")
        run_vec_add(daemon)
        text = daemon.ctl("metrics")
        found = families(text)
        # a counter
        equal(found["gpuprobe_map_counter"].type, "counter")
        equal(exact(text, "gpuprobe_map_counter_total"), [str(daemon.count_of())])
        # a hash map with a struct as key and one as value
        dumped = daemon.dump("by_block")
        equal(len(dumped), 16)
        for member in ("threads", "blocks"):
            family = found[f"app_block_{member}"]
            equal((family.type, family.documentation), ("counter", 'who\\ "ran"\nwhere'))
            wanted = {
                tuple(
                    sorted({"site": 'a"\\', "block": "mine", "block_2": str(e["key"]["block"]), "parity": e["key"]["parity"], "name": 'a"b\\c'}.items())
                ): float(e["value"][member])
                for e in dumped
            }
            equal(samples(family), wanted, member)
        # a histogram for each of the other members of the key
        family = found["gpuprobe_map_sizes_threads"]
        equal((family.type, family.unit), ("histogram", "threads"))
        dumped = daemon.dump("sizes")
        for parity in ("EVEN", "ODD"):
            counts = {e["key"]["log2"]: e["value"] for e in dumped if e["key"]["parity"] == parity}
            buckets = {s.labels["le"]: s.value for s in family.samples if s.labels["parity"] == parity}
            equal(buckets["1.0"], counts[0], "0 and 1")
            equal(buckets["15.0"], counts[0] + counts[3])
            equal(buckets["+Inf"], sum(counts.values()))
            equal(len(buckets), 9)
        # one value for each SM; without --sm their sum
        values = [e for e in daemon.dump("percpu") if e["key"] == 1][0]["values"]
        shown = [s.value for s in found["per_sm"].samples if s.labels["key"] == "1"]
        equal(shown, values)
        equal({s.labels["sm"] for s in found["per_sm"].samples if s.labels["key"] == "1"}, {str(i) for i in range(len(values))})
        daemon.ctl("map", "export", "percpu", "--as=per_sm", "--label=again=1")
        equal([s.value for s in families(daemon.ctl("metrics"))["per_sm"].samples if s.labels["key"] == "1"], [sum(values)])
        # Prometheus' older format
        older = {f.name: f for f in prometheus(daemon.ctl("metrics", "--prometheus"))}
        equal(older["gpuprobe_map_sizes_threads"].type, "histogram")
        check(any(s.name.endswith("_count") and s.value for s in older["gpuprobe_map_sizes_threads"].samples))
        # listed, taken out, and gone with the map
        exports = daemon.json("map", "exports")["exports"]
        equal([e["map_name"] for e in exports], ["counter", "by_block", "sizes", "percpu"])
        equal(exports[1]["families"], ["app_block_threads", "app_block_blocks"])
        daemon.ctl("map", "unexport", "counter")
        check("gpuprobe_map_counter" not in daemon.ctl("metrics"))
        check("not exported" in daemon.ctl("map", "unexport", "counter", status=None))
        daemon.ctl("detach", "--all")
        equal(daemon.json("map", "exports")["exports"], [])
        check("app_block" not in daemon.ctl("metrics"))


def test_keys_stay_apart():
    """Keys that differ in what is long, or in an array of anything, have labels that differ."""
    with Daemon() as daemon:
        daemon.attach("--export=ways", object=METRICS)
        daemon.ctl("map", "export", "last")
        status, out, err, _ = daemon.run(VEC_ADD, "--threads", "64", "--block", "64")
        equal(status, 0, out + err)
        found = families(daemon.ctl("metrics"))
        wanted = {}
        for thread in range(16):
            path = struct.pack("<II", thread >> 1 & 1, thread >> 2 & 1).hex()
            reason = "REASON_WHY_THE_FUNCTION_THAT_MAPS_GRAPHICS_RESOURCES_WAS_CALLED_" + ("AGAIN" if thread & 1 else "FIRST")
            wanted[("path", path), ("reason", reason), ("text", "x" * 298 + ("y" if thread & 8 else "z"))] = float(1 << thread)
        equal(samples(found["gpuprobe_map_ways"]), wanted)
        equal([s.value for s in found["gpuprobe_map_last"].samples], [-1.0], "an enum below zero")


def test_many_enumerators():
    """An array of an enum that has a thousand names is shown by them, with what lies behind it."""
    with Daemon() as daemon:
        daemon.attach(object=METRICS)
        run_vec_add(daemon)
        equal(daemon.dump("codes"), [{"key": 0, "value": {"last": [f"CODE_{999 - i}" for i in range(64)], "behind": 1}}])


def test_buckets_in_value():
    """An array of buckets within a value is a histogram; a number beside it is none."""
    with Daemon() as daemon:
        daemon.attach(object=METRICS)
        equal(daemon.ctl("map", "export", "sized", "--type=histogram"), "gpuprobe_map_sized_buckets\n")
        run_vec_add(daemon)
        found = families(daemon.ctl("metrics"))
        check("gpuprobe_map_sized_sum" not in found, found.keys())
        equal([s.value for s in found["gpuprobe_map_sized_buckets"].samples], [0, 0, 5, 5, 5])


def test_kernel_names():
    """Ids of kernels in keys get a name to join with."""
    with Daemon() as daemon:
        daemon.attach(object=KERNEL_DURATION)
        daemon.ctl("map", "export", "launches", "--as=duration", "--type=histogram", "--bucket=log2_ns", "--unit=nanoseconds")
        run_vec_add(daemon)
        found = families(daemon.ctl("metrics"))
        ids = {s.labels["kernel_id"] for s in found["duration_nanoseconds"].samples}
        equal(len(ids), 1)
        equal([(s.labels["kernel_id"], s.value) for s in found["gpuprobe_kernel_info"].samples], [(*ids, 1.0)])
        check(found["gpuprobe_kernel_info"].samples[0].labels["kernel"].startswith("vectorAdd"), found["gpuprobe_kernel_info"])
        equal(found["duration_nanoseconds"].samples[-1].value, 2.0, "launches")


def test_exact():
    """64 bits, whole: what no double holds."""
    with Daemon() as daemon:
        daemon.attach("--export=wide", object=METRICS)
        run_vec_add(daemon)
        equal(exact(daemon.ctl("metrics"), "gpuprobe_map_wide_total"), [str(2 * (2**60 + 1))])


def test_bound():
    with Daemon("--metrics-series-max=5") as daemon:
        daemon.attach("--export=by_block", object=METRICS)
        run_vec_add(daemon)
        text = daemon.ctl("metrics")
        found = families(text)
        shown = len(found["gpuprobe_map_by_block_threads"].samples) + len(found["gpuprobe_map_by_block_blocks"].samples)
        equal(shown, 5)
        equal(exact(text, "gpuprobe_export_series"), ["5"])
        equal(exact(text, "gpuprobe_export_series_left_out"), ["27"])


def test_large():
    """An export that is too large is left out before all of it is written, and whatever is in labels; others are there, and what fits is written in parts."""

    def labels(character):
        return [f"--label=l{i}={character * 255}" for i in range(8)]

    with Daemon() as daemon:
        daemon.attach("--export=wide", object=METRICS)
        run_vec_add(daemon)
        for options in (["--type=histogram", *labels("\x01")], ["--type=gauge", *labels("\\")]):
            daemon.ctl("map", "export", "many", "--nonzero", *options)
            text = daemon.ctl("metrics")
            equal(exact(text, "gpuprobe_export_series"), ["1", "0"], options[0])
            equal(exact(text, "gpuprobe_export_series_left_out"), ["0", "2500"], options[0])
            equal(len(exact(text, "gpuprobe_map_wide_total")), 1)
        peak = resident(daemon.process.pid, "VmHWM")
        check(peak < 200000, peak, "KiB")
        daemon.ctl("map", "export", "many", "--nonzero", "--type=gauge", *labels("x"))
        turns = [int(exact(daemon.ctl("metrics"), "gpuprobe_loop_turns_total")[0]) for _ in range(2)]
        check(turns[1] - turns[0] > 60, turns)
        equal(len(exact(daemon.ctl("metrics"), "gpuprobe_map_many_buckets")), 2500)


def test_refused():
    with Daemon() as daemon:
        daemon.attach(object=METRICS)
        daemon.attach("--export=counter")
        bus = Connection(daemon.directory)
        bus.call("ExportMap", map="by_block", name="taken", kind="counter")
        cases = [
            (dict(map="nobody"), "NotFound", "nobody"),
            (dict(map="events"), "InvalidArgument", "ring"),
            (dict(map="percpu", name="1x"), "InvalidArgument", "not a name"),
            (dict(map="percpu", name="a-b"), "InvalidArgument", "not a name"),
            (dict(map="percpu", name="x" * 201), "InvalidArgument", "not a name"),
            (dict(map="percpu", name="gpuprobe_images_received"), "InvalidArgument", "the daemon's own"),
            (dict(map="percpu", name="taken_threads"), "InvalidArgument", "taken by map"),
            (dict(map="percpu", name="taken_threads_total", kind="gauge"), "InvalidArgument", "taken by map"),
            (dict(map="percpu", name="gpuprobe_map_counter"), "InvalidArgument", "taken by map"),
            (dict(map="percpu", name="taken"), "InvalidArgument", "taken by map"),  # though the metrics of that one are taken_threads and taken_blocks
            (dict(map="percpu", name="gpuprobe", unit="images_received"), "InvalidArgument", "the daemon's own"),
            (dict(map="percpu", kind="summary"), "InvalidArgument", "counter, gauge"),
            (dict(map="percpu", merge="max"), "InvalidArgument", "sum or latest"),
            (dict(map="percpu", unit="per cent"), "InvalidArgument", "not a unit"),
            (dict(map="percpu", help="x" * 256), "InvalidArgument", "255"),
            (dict(map="percpu", labels={"a-b": "x"}), "InvalidArgument", "not a name of a label"),
            (dict(map="percpu", labels={"__name__": "x"}), "InvalidArgument", "not a name of a label"),
            (dict(map="percpu", labels={"le": "x"}), "InvalidArgument", "already"),
            (dict(map="percpu", labels={"a": "x" * 300}), "InvalidArgument", "at most"),
            (dict(map="percpu", labels={f"a{i}": "x" for i in range(9)}), "InvalidArgument", "more than 8"),
            (dict(map="percpu", bucket="key"), "InvalidArgument", "histogram"),
            (dict(map="sizes", kind="histogram"), "InvalidArgument", "--bucket"),
            (dict(map="sizes", kind="histogram", bucket="nope"), "InvalidArgument", "no such member"),
            (dict(map="by_block", kind="histogram", bucket="name"), "InvalidArgument", "integer"),
            (dict(map="sizes", per_sm=True), "InvalidArgument", "one value for all SMs"),
        ]
        for parameters, wanted, words in cases:
            name, details = error(bus, "ExportMap", **parameters)
            check(name == wanted and words in str(details), f"{parameters}: {name} {details}, expected {wanted} {words}")
        equal(len(bus.call("ListExports")["exports"]), 2, "nothing came of these")
        # an attachment whose map cannot be exported does not stay
        check("ring" in daemon.ctl("attach", METRICS, "--export=events", status=None))
        equal(len(daemon.attachments()), 2)


def test_file():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "gpuprobe.prom")
        with Daemon(f"--metrics={path}", "--metrics-period-ms=100") as daemon:
            wait_until(lambda: os.path.exists(path), "the file")
            equal(stat.S_IMODE(os.stat(path).st_mode), 0o640)
            daemon.attach("--export=counter")
            run_vec_add(daemon)
            count = str(daemon.count_of())

            def has_count():
                with open(path) as file:
                    text = file.read()
                families(text)  # always whole
                return exact(text, "gpuprobe_map_counter_total") == [count]

            wait_until(has_count, "the count in the file")
            with open(path) as old:
                text = old.read()
                wait_until(lambda: os.stat(path).st_ino != os.fstat(old.fileno()).st_ino, "another file in its place")
                old.seek(0)
                equal(old.read(), text, "who has it open goes on with what it was")
            wait_until(lambda: os.listdir(folder) == ["gpuprobe.prom"], "nothing is left beside it")


def test_file_cannot_be_written():
    with tempfile.TemporaryDirectory() as folder:
        missing = os.path.join(folder, "no/such.prom")
        with Daemon(f"--metrics={missing}", "--metrics-period-ms=100") as daemon:
            wait_until(lambda: any("cannot be written" in line for line in daemon.status()["missing"]), "it is said")
            equal(daemon.text().count("cannot be written"), 1, "once: " + daemon.text())
            os.mkdir(os.path.dirname(missing))
            wait_until(lambda: os.path.exists(missing), "the file")
            wait_until(lambda: not any("cannot be written" in line for line in daemon.status()["missing"]), "it is no longer said")
            run_vec_add(daemon)


def test_disk_full():
    """The old file stays."""
    if os.getuid() != 0:
        print("not root: no full disk")
        return
    script = """set -e; mount -t tmpfs -o size=64k none "$1"; shift; exec "$@" """
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "gpuprobe.prom")
        daemon = Daemon(f"--metrics={path}", "--metrics-period-ms=100", start=False)
        daemon.process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", script, "sh", folder, GPUPROBED, f"--session={daemon.name}", *daemon.options],
            stderr=daemon.log,
            env={**os.environ, **daemon.tools()},
        )
        with daemon:
            wait_until(daemon.listens, "the daemon listens")
            inside = f"/proc/{daemon.process.pid}/root{path}"
            wait_until(lambda: os.path.exists(inside), "the file")
            with open(os.path.dirname(inside) + "/filler", "wb") as filler:
                try:
                    while True:
                        filler.write(b"x" * 4096)
                        filler.flush()
                except OSError:
                    pass
                try:
                    filler.close()
                except OSError:
                    pass
            wait_until(lambda: "No space left" in daemon.text(), "it is said")
            with open(inside) as file:
                families(file.read())  # whole, from before
            os.unlink(os.path.dirname(inside) + "/filler")
            wait_until(lambda: "is written again" in daemon.text(), "it goes on")


def test_socket():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "metrics")
        with Daemon(f"--metrics=unix:{path}", "--metrics-mode=0644") as daemon:
            equal(stat.S_IMODE(os.stat(path).st_mode), 0o666)
            daemon.attach("--export=by_block", object=METRICS)
            run_vec_add(daemon)
            status, headers, body = get(path)
            equal((status, headers["Content-Type"]), ("HTTP/1.1 200 OK", "application/openmetrics-text; version=1.0.0; charset=utf-8"))
            equal(int(headers["Content-Length"]), len(body.encode()))
            equal(len(families(body)["gpuprobe_map_by_block_threads"].samples), 16)
            status, headers, body = get(path, b"HEAD /metrics?x=1 HTTP/1.0\r\n\r\n")
            equal((status, body), ("HTTP/1.1 200 OK", ""))
            for request, wanted in (
                (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
                (b"GET / HTTP/1.1\r\n\r\n", "404"),
                (b"nonsense\r\n\r\n", "400"),
                (b"GET /metrics\r\n\r\n", "400"),
                (b"\r\n\r\n", "400"),
                (b"\0\0\r\n\r\n", None),
                (b"x" * 8192, "431"),
            ):
                if wanted is None:
                    continue
                status, _, _ = get(path, request)
                check(status.startswith(f"HTTP/1.1 {wanted} "), request[:40], status)
            # who asks and goes, asks in pieces, or says nothing
            idle = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(30)]
            for client in idle:
                client.connect(path)
                try:
                    client.sendall(b"GET /metrics HTTP/1.1\r\n\r")
                except BrokenPipeError:
                    pass  # one of those that are too many
            for client in idle:
                client.close()
            wait_until(lambda: answers(path), "it serves again")
        check(not os.path.exists(path), "the socket is left behind")


def answers(path):
    try:
        return get(path)[0] == "HTTP/1.1 200 OK"
    except (ConnectionError, IndexError, ValueError):
        return False


def test_options():
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/file")
        for option, words in (
            ("--metrics=relative.prom", "absolute"),
            ("--metrics=/x/", "absolute"),
            ("--metrics=unix:x", "absolute"),
            (f"--metrics=unix:/{'x' * 120}", "at most"),
            ("--metrics-mode=999", "octal"),
            ("--metrics-mode=0040", "octal"),
            ("--metrics-period-ms=5", "100"),
            ("--metrics-series-max=0", "1"),
            ("--metrics-format=xml", "openmetrics"),
        ):
            done = subprocess.run([GPUPROBED, "--session=never", option], capture_output=True, text=True, timeout=20)
            check(done.returncode == 2 and words in done.stderr and len(done.stderr.splitlines()) == 1, option, done.returncode, done.stderr)
        # a file that is no socket is not replaced
        kept = f"{folder}/kept"
        with open(kept, "w") as file:
            file.write("mine")
        with Daemon(f"--metrics=unix:{kept}") as daemon:
            check("something else than a socket" in daemon.text())
            check(any("something else" in line for line in daemon.status()["missing"]))
        with open(kept) as file:
            equal(file.read(), "mine")


def test_restart():
    """What is exported stays so, over a restart and a crash."""
    with Manager() as daemon:
        daemon.attach(object=METRICS)
        daemon.ctl("map", "export", "sizes", "--as=kept", "--type=histogram", "--bucket=log2", "--unit=threads", "--label=a=b", "--help-text=what it is")
        daemon.ctl("map", "export", "by_block")
        daemon.ctl("map", "unexport", "by_block")
        run_vec_add(daemon)
        before = daemon.json("map", "exports")
        lines = [line for line in daemon.ctl("metrics").splitlines() if "kept" in line]
        check(len(lines) > 20, lines)
        for way in (Manager.restart, Manager.crash_and_start):
            way(daemon)
            equal(daemon.json("map", "exports"), before, way.__name__)
            equal([line for line in daemon.ctl("metrics").splitlines() if "kept" in line], lines, way.__name__)
        daemon.ctl("detach", "--all")
        Manager.restart(daemon)
        equal(daemon.json("map", "exports"), {"exports": []})


def test_other_users():
    """Others see the daemon's numbers and what they exported, not what is ours; nor can they export it."""
    if os.getuid() != 0:
        print("not root: no other users")
        return
    with Daemon() as daemon:
        daemon.attach("--export=counter")
        os.chmod(daemon.directory, 0o755)
        os.chmod(f"{daemon.directory}/io.gpuprobe.control", 0o666)
        read, write = os.pipe()
        if os.fork() == 0:
            try:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                bus = Connection(daemon.directory)
                text = bus.call("Metrics")["text"]
                seen = [
                    "gpuprobe_images_received_total" in text,
                    "gpuprobe_map_counter" in text,
                    bus.call("ListExports")["exports"],
                    error(bus, "ExportMap", map="counter")[0],
                    error(bus, "UnexportMap", map="counter")[0],
                ]
            except Exception as wrong:
                seen = [str(wrong)]
            os.write(write, json.dumps(seen).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as answer:
            equal(json.load(answer), [True, False, [], "NotFound", "NotFound"])
        os.wait()


main(
    [
        test_own_numbers,
        test_clock_set_back,
        test_exported_maps,
        test_keys_stay_apart,
        test_many_enumerators,
        test_buckets_in_value,
        test_kernel_names,
        test_exact,
        test_bound,
        test_large,
        test_refused,
        test_file,
        test_file_cannot_be_written,
        test_disk_full,
        test_socket,
        test_options,
        test_restart,
        test_other_users,
    ]
)
