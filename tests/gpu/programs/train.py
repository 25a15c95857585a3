#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""train.py eager|compile|graphs [--small|--big]: trains a transformer as it is told, a command a line; answers each with a line of JSON.

steps N          N steps: {"losses": [bits of each], "ms": milliseconds of a step}
capture          graphs: captures the step anew
profile N        as steps, under torch.profiler: {"kernels": {name: [launches, threads]}, "order": [names], "us": {name: time on the GPU},
                "median": {name: of one launch}, "busy": part of the time that the GPU works}
profiler 1|0     torch.profiler is on from now on, or ends: {"kernels": number of launches}
memory           {"device": bytes in use on the GPU, "rss": KiB, "descriptors": n}
quit
"""

import json
import os
import statistics
import struct
import sys
import tempfile
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch

torch.manual_seed(1)
mode, small, big = sys.argv[1], "--small" in sys.argv, "--big" in sys.argv
torch.use_deterministic_algorithms(not big)
# big: some 100 ms a step on an H100, of which the GPU idles hardly any, in less than 40 GiB
width, layers, shape = (256, 2, (8, 64)) if small else (4096, 4, (8, 1024)) if big else (1024, 4, (16, 512))
layer = torch.nn.TransformerEncoderLayer(width, 32 if big else 8, 4 * width, batch_first=True, dropout=0.0)
model = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).cuda().to(torch.bfloat16)
data = torch.randn(*shape, width, device="cuda", dtype=torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
forward = torch.compile(model) if mode == "compile" else model
loss = torch.zeros((), device="cuda")
graph = None


def step():
    optimizer.zero_grad(set_to_none=False)
    result = forward(data).float().pow(2).mean()
    result.backward()
    optimizer.step()
    loss.copy_(result.detach())


def capture():
    global graph
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()


def one():
    graph.replay() if graph else step()


def steps(count):
    losses = [torch.zeros((), device="cuda") for _ in range(count)]
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for kept in losses:
        one()
        kept.copy_(loss)
    torch.cuda.synchronize()
    elapsed = time.perf_counter() - begin
    return {"losses": [struct.pack(">f", kept.item()).hex() for kept in losses], "ms": 1e3 * elapsed / max(count, 1)}


def profiled_kernels(run):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        run.export_chrome_trace(file.name)
        events = json.load(open(file.name))["traceEvents"]
    return sorted((event for event in events if event.get("cat") == "kernel"), key=lambda event: float(event["ts"]))


def new_profiler():
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    return profile(activities=[ProfilerActivity.CUDA])


def profiler(on):
    global running
    if on:
        running = new_profiler()
        running.__enter__()
        return {}
    torch.cuda.synchronize()
    running.__exit__(None, None, None)
    return {"kernels": len(profiled_kernels(running))}


def profile(count):
    with new_profiler() as run:
        steps(count)  # the same launches as by that command
    kernels, order, times = {}, [], {}
    events = profiled_kernels(run)
    for event in events:
        order.append(event["name"])
        times.setdefault(event["name"], []).append(float(event["dur"]))
        grid, block = event["args"]["grid"], event["args"]["block"]
        entry = kernels.setdefault(event["name"], [0, 0])
        entry[0] += 1
        entry[1] += grid[0] * grid[1] * grid[2] * block[0] * block[1] * block[2]
    span = float(events[-1]["ts"]) + float(events[-1]["dur"]) - float(events[0]["ts"]) if events else 1
    return {
        "kernels": kernels,
        "order": order,
        "us": {name: sum(values) for name, values in times.items()},
        "median": {name: statistics.median(values) for name, values in times.items()},
        "busy": round(sum(map(sum, times.values())) / span, 4),
    }


def memory():
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return {"device": total - free, "rss": int(status["VmRSS"].split()[0]), "descriptors": len(os.listdir("/proc/self/fd"))}


for _ in range(5):
    step()
if mode == "graphs":
    capture()
print(json.dumps({"ready": os.getpid()}), flush=True)
for line in sys.stdin:
    word, *rest = line.split()
    if word == "quit":
        break
    commands = {"steps": steps, "profile": profile, "memory": memory, "capture": capture, "profiler": profiler}
    print(json.dumps(commands[word](*map(int, rest))), flush=True)
