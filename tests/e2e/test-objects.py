#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Objects and names that other projects' tools make: long sections, the prefix cuda_, contexts of other points, uprobes without a target or with a relative path,
maps that both sides use, names with ABI tags and of Rust.
"""

import os
import shutil
import subprocess
import tempfile

from harness import BUILD, CTL, GPU, GPUPROBED, SHIM, SIM, SOURCE, VEC_ADD, COUNTER, Daemon, check, equal, main, need

OBJECTS = os.path.join(BUILD, "tests/e2e/objects")
PTX_DRIVER = os.path.join(BUILD, "tests/sim/ptx_driver")
NAMES = os.path.join(SOURCE, "tests/targets/names.ptx")
TAGGED, FILL, RUST, LEGACY = (
    "_ZN6cudapy8__main__3addB2v1B4cw51E5ArrayIfLi1E1CE",
    "_Z4fillIA3_iEvPT_",
    "_RNvCs1234_4mykr3add",
    "_ZN4mykr5scale17h0123456789abcdefE",
)


def obj(name):
    return os.path.join(OBJECTS, name + ".bpf.o")


need(GPUPROBED, CTL, COUNTER, SHIM, VEC_ADD, PTX_DRIVER, obj("foreign"), *([] if GPU else [os.path.join(SIM, "libcuda.so.1")]))


def vec_add(daemon, launches=1):
    """Threads that ran."""
    status, out, err, _ = daemon.run(VEC_ADD, "--threads", "256", "--launches", str(launches))
    equal((status, err), (0, ""), out)
    check("PASS" in out, out)
    return 256 * launches


def refused(daemon, words, *arguments, status=None, object=obj("foreign")):
    error = daemon.ctl("attach", object, *arguments, status=None)
    check(words in error, f"{error!r} does not say {words!r}")
    equal(len(error.splitlines()), 1, error)
    equal(daemon.attachments(), [])


# ---- sections ----


def test_long_section():
    """What is as long as the name of a template is attached, and says nothing against the other programs."""
    with Daemon() as daemon:
        daemon.attach("--program", "cuda__long", object=obj("foreign"))
        (attachment,) = daemon.attachments()
        equal(len(attachment["kernel"]), 128)
        equal(attachment["section"], "kprobe/" + attachment["kernel"])
        daemon.attach("--program", "cuda__short", object=obj("foreign"))
        threads = vec_add(daemon)
        (short,) = [m for m in daemon.json("map", "list")["maps"] if m["object"] == max(m["object"] for m in daemon.json("map", "list")["maps"])]
        equal(daemon.dump(str(short["id"]))[2]["value"], threads)


def test_no_such_program():
    with Daemon() as daemon:
        refused(daemon, "no_such", "--program", "no_such")


def test_prefix():
    """cuda_ is left out where no kernel has it, and `why` says so."""
    with Daemon() as daemon:
        daemon.attach("--program", "cuda__prefixed", object=obj("foreign"))
        threads = vec_add(daemon)
        equal(daemon.dump("counts")[0]["value"], threads)
        (outcome,) = [o for o in daemon.why() if o["kernel"]]
        equal(outcome["outcome"], "probed")
        check("cuda__Z9vectorAddPKfS0_Pf was read without cuda_" in outcome["reason"], outcome)
    with Daemon() as daemon:  # --kernel means what it says
        daemon.attach("--program", "cuda__short", "--kernel", "cuda__Z9vectorAddPKfS0_Pf", object=obj("foreign"))
        vec_add(daemon)
        equal(daemon.dump("counts")[2]["value"], 0)


def test_literal_before_prefix():
    """A kernel that has the name with the prefix is the one that is meant."""
    ptx = """.version 7.0\n.target sm_75\n.address_size 64
.visible .entry cuda_f(.param .u64 p) { ret; }
.visible .entry f(.param .u64 p) { ret; }
"""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "both.ptx")
        with open(path, "w") as file:
            file.write(ptx)
        with Daemon() as daemon:
            daemon.attach("--program", "cuda__short", "--point", "kprobe/cuda_f", object=obj("foreign"))
            status, out, err, _ = daemon.run(PTX_DRIVER, path, "f")
            equal((status, err), (0, ""))
            equal(daemon.dump("counts")[2]["value"], 0)
            status, out, err, _ = daemon.run(PTX_DRIVER, path, "cuda_f")
            equal(daemon.dump("counts")[2]["value"], 32)
            equal({o["kernel"]: o["reason"] for o in daemon.why()}, {"cuda_f": ""})


def test_wrong_context():
    with Daemon() as daemon:
        refused(
            daemon,
            "program cuda__memory takes a struct gpuprobe_memory_ctx, but kprobe/vectorAdd gives a struct gpuprobe_kernel_ctx",
            "--program",
            "cuda__memory",
        )
        daemon.attach("--program", "cuda__memory", "--point", "memcapture/vectorAdd", object=obj("foreign"))
        equal(len(daemon.attachments()), 1)


# ---- objects without a program ----

MAP = 'struct { int (*type)[2]; int (*max_entries)[4]; unsigned *key; unsigned *value; } counts __attribute__((section(".maps")));'
NO_PROGRAM = 'no program in the object: write SEC("kprobe/KERNEL") before a function'


def test_no_program():
    """What beginners compile, and what is no object for us: one line that says what is wrong, and what to do."""
    clang, strip = shutil.which("clang-19"), shutil.which("llvm-strip-19")
    with open(COUNTER, "rb") as file:
        counter = file.read()
    with Daemon() as daemon, tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.o")

        def attach(words):
            refused(daemon, words, object=path)
            daemon.ctl("attach", path, status=1)

        for source, options, words in (
            (
                ("int main() { return 0; }", "", 'no program in the object: function main is in no section of its own; write SEC("kprobe/KERNEL") before it'),
                ("int main() { return 0; }", "-g", "function main is in no section of its own"),
                ("int f() { return 0; } int g() { return 1; }", "", NO_PROGRAM),
                ('__attribute__((section("tracepoint/a/b"))) int f() { return 0; }', "", 'program f (section "tracepoint/a/b") runs on the host'),
                ("", "", NO_PROGRAM),
                ("int x = 3;", "", NO_PROGRAM),
                ("int x = 3;", "-g", NO_PROGRAM),
                ("int x;", "", NO_PROGRAM),
                (MAP, "-g", NO_PROGRAM),
                ('char text[] __attribute__((section("license"))) = "GPL";', "-g", NO_PROGRAM),
                (MAP, "", "it has no types (BTF): compile it with clang -g"),
            )
            if clang
            else ()
        ):
            subprocess.run([clang, "-O2", "-target", "bpf", *options.split(), "-x", "c", "-c", "-", "-o", path], input=source, text=True, check=True)
            attach(words)
            if words == NO_PROGRAM:
                refused(daemon, "there is no program no_such in it", "--program", "no_such", object=path)
        for data, words in (
            (b"", "is empty, not an eBPF object"),
            (b"x", "is not an eBPF object; compile it with"),
            (counter[:64], "malformed ELF file: its section headers"),
            (counter[:18] + b"\x3e\0" + counter[20:], "is an ELF file for another machine"),
        ):
            with open(path, "wb") as file:
                file.write(data)
            attach(words)
        if strip:
            subprocess.run([strip, COUNTER, "-o", path], check=True)
            attach("it has no symbols: strip it with -g at most")


# ---- names ----


def test_names():
    """Names with ABI tags and of Rust are matched by what people call them, and listed so."""
    for pattern, kernel in (
        ("cudapy::__main__::add", TAGGED),
        ("cudapy::__main__::add(Array<float, 1, C>)", TAGGED),
        ("*add*Array*", TAGGED),
        ("cudapy::__main__::add[[]abi:v1][[]abi:cw51](Array<float, 1, C>)", TAGGED),
        (TAGGED, TAGGED),
        ("mykr::add", RUST),
        (RUST, RUST),
        ("mykr::a*", RUST),
        ("mykr::scale", LEGACY),
        ("mykr::scale::h0123456789abcdef", LEGACY),
    ):
        with Daemon() as daemon:
            daemon.attach("--kernel", pattern)
            status, out, err, _ = daemon.run(PTX_DRIVER, NAMES, TAGGED, FILL, RUST, LEGACY)
            equal((status, err), (0, ""))
            bare = subprocess.run(
                [PTX_DRIVER, NAMES, TAGGED, FILL, RUST, LEGACY], env={**os.environ, **daemon.libraries()}, capture_output=True, text=True, timeout=60
            )
            equal(out, bare.stdout, "output, and bare")
            equal(daemon.count_of(), 32, pattern)
            equal([o["kernel"] for o in daemon.why("--kernel", pattern)], [kernel], pattern)
    with Daemon() as daemon:
        daemon.attach("--kernel", "nothing")
        daemon.run(PTX_DRIVER, NAMES, FILL)
        (outcome,) = daemon.why()
        equal(outcome["reason"], "no kernel matches; it has cudapy::__main__::add, fill, mykr::add, ...")


# ---- programs on the host ----


def attach_in(daemon, folder, *arguments):
    return subprocess.run(
        [CTL, "attach", obj("foreign"), *arguments], env=daemon.environment(**daemon.tools()), cwd=folder, capture_output=True, text=True, timeout=60
    )


def may_load():
    """Whether programs on the host can be loaded here at all."""
    with tempfile.TemporaryDirectory() as folder, Daemon() as daemon:
        shutil.copy(VEC_ADD, os.path.join(folder, "target"))
        return "CAP_BPF" not in attach_in(daemon, folder, "--program", "near_*").stderr


def test_no_target():
    with Daemon() as daemon:
        refused(
            daemon, 'program pair_host: its section "uprobe" lacks /FILE:FUNCTION: say where with --host-target=pair_host=FILE:FUNCTION', "--program", "pair_*"
        )
        refused(daemon, "main: expected FILE:FUNCTION", "--program", "pair_*", "--host-target=pair_host=main")
        refused(daemon, "nobody is no program of the object that is attached on the host", "--program", "pair_*", "--host-target=nobody=/bin/sh:main")
        refused(
            daemon, "cuda__short is no program of the object that is attached on the host", "--program", "cuda__short", "--host-target=cuda__short=/bin/sh:main"
        )
        for text in ("pair_host", "=x:y", "pair_host="):
            daemon.ctl("attach", obj("foreign"), "--host-target", text, status=2)
        daemon.ctl("attach", obj("foreign"), "--host-target=a=b", "--host-target=a=c", status=2)


def test_given_target():
    """
    A uprobe and a uretprobe for a loader that attaches by hand, beside a GPU program that shares their array, which is of type 1503. A name without a slash is
    looked for where programs and libraries are, as libbpf does.
    """
    with tempfile.TemporaryDirectory() as folder, Daemon() as daemon:
        target = os.path.join(folder, "target")
        shutil.copy(VEC_ADD, target)
        done = attach_in(daemon, folder, "--program", "pair_*", "--host-target=pair_host=./target:main", "--host-target=pair_return=target:main")
        equal((done.returncode, len(done.stderr.splitlines())), (1, 1), done)
        check("pair_return" in done.stderr and "'target'" in done.stderr, done)
        equal(daemon.attachments(), [])
        done = attach_in(daemon, folder, "--program", "pair_*", "--host-target=pair_host=./target:main", f"--host-target=pair_return={target}:main")
        equal((done.returncode, done.stderr), (0, ""))
        equal(
            {a["program"]: a["kernel"] for a in daemon.attachments()},
            {"pair_gpu": "vectorAdd", "pair_host": f"{folder}/./target:main", "pair_return": f"{target}:main"},
        )
        equal([m["place"] for m in daemon.json("map", "list")["maps"]], ["kernel"])
        for _ in range(3):
            status, out, err, _ = daemon.run(target, "--threads", "256")
            equal((status, err), (0, ""))
        equal([daemon.dump("counts")[i]["value"] for i in (3, 5, 7)], [3, 3, 3 * 256])


def test_relative_path():
    """It is in the folder of whoever attaches."""
    with tempfile.TemporaryDirectory() as folder, Daemon() as daemon:
        shutil.copy(VEC_ADD, os.path.join(folder, "target"))
        done = attach_in(daemon, "/", "--program", "near_*")
        equal((done.returncode, len(done.stderr.splitlines())), (1, 1), done)
        check("//./target:main" in done.stderr, done)
        done = attach_in(daemon, folder, "--program", "near_*")
        equal((done.returncode, done.stderr), (0, ""))
        daemon.run(os.path.join(folder, "target"))
        equal(daemon.dump("counts")[6]["value"], 1)


def test_shared_hash():
    """Of a hash that both sides use the answer names what can be."""
    with Daemon() as daemon:
        refused(
            daemon, "map table (gpu_hash): programs on the host and on the GPU can share arrays only: make it a BPF_MAP_TYPE_ARRAY", object=obj("foreign-hash")
        )


TESTS = [test_long_section, test_no_such_program, test_prefix, test_literal_before_prefix, test_wrong_context, test_no_program, test_names, test_no_target]
HOST_TESTS = [test_given_target, test_relative_path, test_shared_hash]
if not may_load():
    print("skipped: programs on the host cannot be loaded here")
    for test in HOST_TESTS:
        del globals()[test.__name__]
    HOST_TESTS = []
main(TESTS + HOST_TESTS)
