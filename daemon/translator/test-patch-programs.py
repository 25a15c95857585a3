#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every program that clang made for the tests, from object to plan: what the program worker writes as a patch form is what the
image worker makes patches of.

usage: test-patch-programs.py PROGRAM_WORKER IMAGE_WORKER FOLDER_OF_OBJECTS"""

import importlib.util
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, os.path.join(here, "../worker")]
import worker_driver  # noqa: E402

spec = importlib.util.spec_from_file_location("programs", os.path.join(here, "test-program-worker.py"))
programs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(programs)

ENDS = {"entry": 56, "return": 56, "memory": 48, "call": 40, "syncwarp": 40}  # of what a program can read there
LAUNCHES = {"entry": 168, "return": 168, "memory": 48}  # and where the launch is, which is 0


def lacks(point, fields):
    """Does machine code lack one of the fields at that point?"""
    first = LAUNCHES.get(point, 1 << 16)
    return any(field >= ENDS[point] and not first <= field < first + 32 for field in fields)


def patch_forms(worker, path):
    """(symbol, text, fields, slots) of each program that has a patch form."""
    with open(path, "rb") as file:
        linked, blob = programs.link(worker, file.read())
    if linked["status"] != "linked":
        return []
    gpu = [p for p in linked["programs"] if p["gpu"]]
    if not gpu:
        return []
    reply, texts = programs.compile(worker, linked, blob, range(len(gpu)))
    if reply["status"] != "compiled":
        return []
    return [(p["symbol"], text, p["context"], p["patch_maps"]) for p, text in zip(reply["programs"], texts[len(gpu) :]) if p["patch_size"]]


def main(program_worker, image_worker, folder):
    image = worker_driver.Worker([image_worker])
    if "patch" not in image.hello["features"]:
        print("no compiler that makes patches")
        sys.exit(77)
    worker = programs.Worker(program_worker)
    planned = 0
    names = worker_driver.names_list([(1, 0, ["_Z9vectorAddPKfS0_Pf"])])
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".bpf.o"):
            continue
        forms = patch_forms(worker, os.path.join(folder, name))
        for point in ENDS:
            for i, (symbol, _, fields, _) in enumerate(forms):
                reply, out = image.patch(forms, [("vectorAdd", point, i)], names=names)
                if lacks(point, fields):
                    assert (reply["status"], reply["error"]) == ("error", "program") and symbol in reply["message"], reply
                    continue
                assert reply["status"] == "planned", (name, symbol, point, reply)
                plan = worker_driver.Plan(out)
                assert len(plan.kernels) == 1 and plan.data_size >= 32 + 8 * sum(form[3] for form in forms), reply
                planned += 1
                if name == "counter.bpf.o":
                    assert all(f["spill_stores"] == f["spill_loads"] == 0 for f in reply["functions"]), reply
                if point == "entry":
                    print(name, symbol, reply["functions"][0], f"{reply['compile_us']} us")
        together = [("*", "entry", i) for i, form in enumerate(forms) if not lacks("entry", form[2])]
        if together:  # all programs of the object, in one function
            reply, _ = image.patch(forms, together)
            assert reply["status"] == "planned", (name, reply)
    assert planned > 20, planned
    assert worker.end() == 0 and image.close() == (0, "")


main(*sys.argv[1:4])
