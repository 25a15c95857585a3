#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes probe-bpf-*.ptx beside this script from probes.bpf.c, with clang and the program worker: what the daemon puts into modules.

usage: probes.py WORKER [CLANG]        WORKER: build/daemon/translator/gpuprobe-program-worker"""

import importlib.util
import os
import subprocess
import sys
import sysconfig
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def main(worker, clang="clang-19"):
    spec = importlib.util.spec_from_file_location("client", os.path.join(ROOT, "daemon/translator/test-program-worker.py"))
    client = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode = True
    spec.loader.exec_module(client)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "probes.bpf.o")
        subprocess.run(
            [
                clang,
                "-O2",
                "-g",
                "-target",
                "bpf",
                "-I",
                os.path.join(ROOT, "proto"),
                "-I/usr/include/" + (sysconfig.get_config_var("MULTIARCH") or ""),
                "-c",
                os.path.join(HERE, "probes.bpf.c"),
                "-o",
                path,
            ],
            check=True,
        )
        with open(path, "rb") as file:
            data = file.read()
    worker = client.Worker(worker)
    linked, blob = client.link(worker, data)
    assert linked["status"] == "linked", linked
    reply, texts = client.compile(worker, linked, blob)
    assert reply["status"] == "compiled", reply
    names = [program["name"] for program in linked["programs"] if program["gpu"]]
    for name, program, text in zip(names, reply["programs"], texts):
        path = os.path.join(HERE, f"probe-bpf-{name.removeprefix('cuda__')}.ptx")
        with open(path, "w") as file:
            file.write(
                "// SPDX-License-Identifier: Apache-2.0\n"
                f"// {name} of probes.bpf.c, made by probes.py. sm_{program['target']} and later.\n"
                f"// corpus: context={','.join(map(str, program['context']))}\n{text}"
            )
        print(path, len(text), "bytes")
    worker.end()


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(*sys.argv[1:])
