#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Judges the PTX model and the pass on large real PTX.

Sources of modules: the .cu files beside this script (compiled by nvcc for several architectures) and its .ptx files, the triton_*.py
scripts (with --triton PYTHON, an interpreter that has triton), what NVRTC or clang make of the .cu files that say so, with
another CUDA's headers (--nvrtc, --clang), and PTX files or folders given as arguments (what
`fatbin-tool extract` took out of libraries; --libraries does that itself).

Of each module: it parses, all bodies too; written unedited it is byte-identical; every kernel gets a counter at
its entry (--everywhere, --bpf: much more, at every memory instruction that a search for text finds); the result assembles with ptxas. If it does not, the unedited module is assembled as well: a module that
ptxas refuses anyway is counted apart. With --compare the unedited one is always assembled, and registers and warnings are
compared. A source that says `corpus: ... same-registers` is compared in any case, and fails if a kernel needs more.

Exit code: 0 all good, 1 something failed (named), 77 no nvcc or ptxas.
"""

import argparse
import collections
import concurrent.futures
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ARCHITECTURES = ["75", "80", "90", "90a", "100", "120"]
NEWER = ["100", "100a", "120"]  # than CUDA 12.4
QUICK = {
    "stubs.cu": ["90"],
    "vector_add.cu": ["75", "90", "120"],
    "calls.cu": ["75", "90"],
    "inline_asm.cu": ["90"],
    "long_names.cu": ["90"],
    "hopper.cu": ["90a"],
    "textures.cu": ["80"],
    "parent.cu": ["120"],
    "tensor_cores.cu": ["80"],
    "accesses.cu": ["90"],
    "bulk.cu": ["90a"],
    "by_value.cu": ["90"],
    "globals.cu": ["120"],
    "groups_async.cu": ["90"],
}


ACCESS = re.compile(rb"(?:ldu?|st|atom|red|ldmatrix|stmatrix|multimem|cp)\.[\w.:]+")
NO_ACCESS = re.compile(rb"\.param|^cp.*(commit|wait|mbarrier\.arrive|prefetch)")
STATEMENT = re.compile(rb"^(?:[\s{}]|[\w$%]+\s*:(?!:))*(?:@!?[\w$%]+\s+)?([\w.:]+)")

KERNEL = re.compile(rb"^[^/\n]*\.entry\s+([\w$%]+)", re.M)
BRACES = re.compile(rb'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/|[{};]', re.S)

PROBED = re.compile(r"^\d+ \S+ [^:\n]*:\d+ (?:@\s*!?\s*\S+\s+)?([\w.:]+)", re.M)  # a line of ptx-tool's --instructions


def find_accesses(text):
    """Counts the memory instructions of a module by mnemonic, without parsing it."""
    text = re.sub(rb'"(?:[^"\\\n]|\\.)*"', b'""', text)
    text = re.sub(rb"//[^\n]*|/\*.*?\*/", b"", text, flags=re.S)
    text = re.sub(rb"^\s*\.(?:loc|file)[^\n]*", b"", text, flags=re.M)
    counts = collections.Counter()
    for statement in text.split(b";"):
        match = STATEMENT.match(re.sub(rb"^\s*(?:\.(?:visible|entry|func|weak|extern)\b.*?\{|\.(?:pragma|section)[^\n]*)", b"", statement, flags=re.S))
        if match and ACCESS.fullmatch(match.group(1)) and not NO_ACCESS.search(match.group(1)):
            counts[match.group(1).split(b".")[0].decode()] += 1
    return counts


def find_kernels(text):
    """(name, text up to the name, text behind it) of each kernel with a body, without parsing the module."""
    for match in KERNEL.finditer(text):
        depth = 0
        for brace in BRACES.finditer(text, match.end()):
            depth += {b"{": 1, b"}": -1}.get(brace.group(), 0)
            if depth == 0 and brace.group() in (b"}", b";"):
                if brace.group() == b"}":
                    yield match.group(1), text[match.start() : match.end(1)], text[match.end(1) : brace.end()]
                break


def find_line(text):
    """A point at a source line in the middle of the module: one with an instruction behind its .loc."""
    files = dict(re.findall(rb'^\s*\.file\s+(\d+)\s+"([^"]*)"', text, re.M))
    lines = re.findall(rb"^\s*\.loc\s+(\d+)\s+(\d+)[^\n]*\n\s*(?:@\S+\s+)?(?:ld|st|add|mov|mul|setp)\.", text, re.M)
    if not lines:
        return None
    file, line = lines[len(lines) // 2]
    return f"line:{os.path.basename(files[file].decode())}:{line.decode()}"


class Judge:
    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.lock = threading.Lock()
        self.seen = set()
        self.kernels = self.functions = self.sites = self.accesses = self.modules = self.bytes = self.duplicates = 0
        self.assembled_bytes = self.model_seconds = self.ptxas_seconds = 0
        self.failures, self.refused, self.slow, self.given_up, self.notes = [], [], [], [], []
        self.more_registers = self.same_registers = 0
        self.added_registers = 0
        self.done = set()
        if options.log and os.path.exists(options.log):
            with open(options.log) as log:
                self.done = {json.loads(line)["hash"] for line in log}

    def run(self, command, **more):
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **more)

    def compile(self, source, architecture, flags, compiler):
        """Compiles a source; returns the path of its PTX."""
        name = f"{os.path.basename(source)}.{architecture}{''.join(flags)}.{compiler}.ptx".replace("/", "_").replace(".nvcc", "")
        path = os.path.join(self.folder, name)
        includes = ["-I" + os.path.join(self.options.old_cuda or "", "include")]
        cutlass = ["-I" + self.options.cutlass] if self.options.cutlass else []
        command = {
            "nvcc": [self.options.nvcc, "-ptx", "-std=c++17", "-w", f"-arch=compute_{architecture}", *cutlass, *flags, source, "-o", path],
            "nvrtc": [
                sys.executable,
                os.path.join(HERE, "nvrtc.py"),
                self.options.nvrtc,
                source,
                path,
                "-std=c++17",
                "-w",
                f"-arch=compute_{architecture}",
                "-default-device",
                "--device-int128",
                *includes,
                *flags,
            ],
            "clang": [
                self.options.clang,
                "-x",
                "cuda",
                "-std=c++17",
                f"--cuda-path={self.options.old_cuda}",
                "--cuda-device-only",
                f"--cuda-gpu-arch=sm_{architecture}",
                "-O2",
                "-w",
                "-S",
                source,
                "-o",
                path,
            ],
        }[compiler]
        result = self.compile_once(source, path, command) if self.options.compiled else self.run(command)
        if result and result.returncode:
            self.fail(name, compiler, result.stdout)
            return None
        return path

    def compile_once(self, source, path, command):
        """Takes the PTX from --compiled, where another run may have left it; None, or what the compiler that failed says."""
        status, words = os.stat(command[0]), [word for word in command if word != path]
        with open(source, "rb") as file:
            digest = hashlib.sha256(repr((words, status.st_size, status.st_mtime_ns, file.read())).encode()).hexdigest()
        os.makedirs(self.options.compiled, exist_ok=True)
        kept = os.path.join(self.options.compiled, digest[:32] + ".ptx")
        with open(kept + ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.exists(kept):
                result = self.run(command)
                if result.returncode:
                    return result
                shutil.copyfile(path, kept + ".new")
                os.rename(kept + ".new", kept)
        shutil.copyfile(kept, path)
        return None

    def programs(self, text):
        """Options of ptx-tool: the programs, with a line that the module has code of. And whether memory points are among them."""
        options = list(self.options.programs)
        line = find_line(text) if self.options.devices else None
        if line:
            options[options.index("return") : options.index("return")] = [line, "--point"]  # one more point of the first or second program
        return options, "memory" in options

    def check_accesses(self, name, text, output):
        """Does a search of the text for memory instructions find those that got programs?"""
        if b"// corpus: kernels=" in text:  # a text that a search gets wrong
            return
        found = collections.Counter(word.split(".")[0] for word in PROBED.findall(output) if ".param" not in word)
        there = find_accesses(text)
        if found != there:
            wrong = {word: (found[word], there[word]) for word in found | there if found[word] != there[word]}
            self.fail(name, "memory", f"(with a program, in the text): {wrong}")

    def fail(self, name, step, output):
        first = next((line for line in output.splitlines() if line.strip()), "(no output)")
        with self.lock:
            self.failures.append((name, step, first))
            print(f"FAIL {name}: {step}: {first}", flush=True)

    def assemble(self, path, target, debug):
        """ptxas; returns (seconds or None if it failed, output)."""
        start = time.monotonic()
        command = [self.options.ptxas, "-v", f"-arch={target}", path, "-o", "/dev/null"]
        if debug:
            command.insert(1, "-g")
        try:
            result = self.run(command, timeout=self.options.timeout)
            if re.search("Unresolved extern|Cannot take address of function", result.stdout):  # made to be linked
                result = self.run([*command, "-c"], timeout=self.options.timeout)
        except subprocess.TimeoutExpired:
            return None, f"timeout after {self.options.timeout} s"
        return (None if result.returncode else time.monotonic() - start), result.stdout

    def judge(self, path, name, same_registers=False):
        with open(path, "rb") as file:
            text = file.read().rstrip(b"\0")
        digest = hashlib.sha256(text).hexdigest()
        with self.lock:
            if digest in self.seen or digest in self.done:
                self.duplicates += 1
                return
            self.seen.add(digest)
        begin = time.monotonic()
        for step in "roundtrip", "parse":
            result = self.run([self.options.tool, step, path])
            if result.returncode:
                return self.fail(name, step, result.stdout)
        target, debug = re.search(r"target (sm_\w+)( debug)?", result.stdout).groups()
        probed = os.path.join(self.folder, f"{digest[:16]}.probed.ptx")
        form = ["--call"] if self.options.call else []
        programs, memory = self.programs(text)
        result = self.run([self.options.tool, "probe", path, *programs, *form, "-o", probed])
        model = time.monotonic() - begin
        if result.returncode:
            return self.fail(name, "probe", result.stdout)
        kernels, sites = map(int, re.search(r"(\d+) kernels probed at (\d+) sites", result.stdout).groups())
        accesses = len(PROBED.findall(result.stdout))
        if memory:
            self.check_accesses(name, text, result.stdout)
        for point in [word for word in programs if word.startswith("line:")]:
            alone = self.run([self.options.tool, "probe", path, "--probe", self.options.probe, "--point", point, "--device", "*", "-o", "/dev/null"])
            if not re.search(r" at [1-9]\d* sites", alone.stdout):
                self.fail(name, point, alone.stdout)
        stated = re.search(rb"^// corpus: kernels=(\d+)$", text, re.M)
        if stated:  # a text that a search gets wrong
            expected = int(stated.group(1))
        else:
            expected = len(re.findall(rb"^[^/\n]*\.entry\b", text, re.M))
            expected -= len(re.findall(r"^kernel-prototype ", self.run([self.options.tool, "list", path]).stdout, re.M))
        if kernels != expected:
            self.fail(name, "probe", f"{kernels} kernels probed, not {expected}")
        seconds = 0
        status = "probed"
        if not self.options.no_ptxas:
            seconds, output = self.assemble(probed, target, bool(debug))
            if seconds is None or self.options.compare or same_registers:
                bare_seconds, bare = self.assemble(path, target, bool(debug))
                if seconds is None and output.startswith("timeout"):
                    status = "timeout"
                elif seconds is None and bare_seconds is not None and "C7600" in output:
                    status = "given up"
                elif seconds is None and bare_seconds is None:
                    status = "refused"
                elif seconds is None:
                    status = "failed"
                elif bare_seconds is not None:
                    self.compare(name, bare, output, same_registers)
        if os.path.exists(probed) and not self.options.keep:
            os.unlink(probed)
        with self.lock:
            self.modules += 1
            self.kernels += kernels
            self.sites += sites
            self.accesses += accesses
            self.functions += len(re.findall(rb"^[^/\n]*\.func\b", text, re.M)) if self.options.devices else 0
            self.bytes += len(text)
            self.model_seconds += model
            if seconds:
                self.ptxas_seconds += seconds
                self.assembled_bytes += len(text)
            if status == "refused":
                self.refused.append((name, bare.splitlines()[0]))
            if status == "timeout":
                self.slow.append((name, len(text)))
            if status == "given up":
                self.given_up.append((name, next(line for line in output.splitlines() if "C7600" in line)))
            if self.options.log:
                with open(self.options.log, "a") as log:
                    json.dump(
                        {
                            "hash": digest,
                            "name": name,
                            "kernels": kernels,
                            "sites": sites,
                            "bytes": len(text),
                            "model": round(model, 3),
                            "ptxas": round(seconds or 0, 2),
                            "status": status,
                        },
                        log,
                    )
                    log.write("\n")
            if self.options.verbose:
                print(f"{status} {name}: {kernels} kernels, {len(text)} bytes, ptxas {seconds or 0:.1f} s", flush=True)
        if status == "failed":
            self.fail(name, "ptxas", output)

    def compare(self, name, bare, probed, same_registers):
        """Registers of each kernel, and what ptxas warns of."""

        def read(output):
            kernels, warnings, current = {}, set(), None
            for line in output.splitlines():
                match = re.search(r"Compiling entry function '(\S+)'", line)
                if match:
                    current = match.group(1)
                match = re.search(r"Used (\d+) registers", line)
                if match and current:
                    kernels[current] = int(match.group(1))
                    current = None
                if "warning" in line or "Potential Performance Loss" in line:
                    warnings.add(re.sub(r"line \d+|'[^']*'", "", line.split(";", 1)[-1]).strip())
            return kernels, warnings

        (before, old), (after, new) = read(bare), read(probed)
        worse = None if before or not same_registers else "no registers reported"
        with self.lock:
            for kernel, registers in before.items():
                added = after.get(kernel, 0) - registers
                if added > 0 and same_registers:
                    worse = f"{kernel} needs {after[kernel]} registers instead of {registers}"
                if added > 0:
                    self.more_registers += 1
                    self.added_registers += added
                else:
                    self.same_registers += 1
            for warning in new - old:
                self.notes.append((name, warning))
        if worse:
            self.fail(name, "registers", worse)

    def sources(self):
        """(source, architecture, flags, same registers wanted) of everything that nvcc makes."""
        for source in sorted(os.listdir(HERE)):
            if not source.endswith(".cu"):
                continue
            with open(os.path.join(HERE, source)) as file:
                words = re.search(r"^// corpus: *(.*)$", file.read(), re.M).group(1)
            if "needs=cutlass" in words and not self.options.cutlass:
                continue
            only = re.search(r"only=(\w+)", words)
            least = re.search(r"min=(\d+)", words)
            architectures = [only.group(1)] if only else ARCHITECTURES
            if self.options.quick:
                architectures = QUICK.get(source, [])
            elif self.options.architectures:
                architectures = [a for a in architectures if a in self.options.architectures]
            if least:
                architectures = [a for a in architectures if int(a.rstrip("af")) >= int(least.group(1))]
            # "flags=A -B": compiled with A, then with A -B
            flags = re.search(r"flags=(\S*)(.*)", words.replace("same-registers", ""))
            base = flags.group(1).split()
            same = "same-registers" in words and not self.options.devices
            variants = [base] + ([] if self.options.quick else [base + [extra] for extra in flags.group(2).split()])
            for architecture in architectures:
                for compiler in "nvcc", "nvrtc", "clang":
                    if compiler == "nvcc" and self.options.no_sources:
                        continue
                    if compiler != "nvcc" and (not self.options.old_cuda or compiler not in words.split() or architecture in NEWER):
                        continue
                    for variant in [[]] if compiler == "clang" else variants:
                        yield os.path.join(HERE, source), architecture, variant, compiler, same and compiler == "nvcc"

    def triton(self):
        folder = os.path.join(self.folder, "triton")
        os.makedirs(folder, exist_ok=True)
        for script in sorted(os.listdir(HERE)):
            if script.startswith("triton_") and script.endswith(".py"):
                result = self.run([self.options.triton, os.path.join(HERE, script), folder])
                if result.returncode:
                    self.fail(script, "triton", result.stdout.strip().splitlines()[-1] if result.stdout.strip() else "")
        for file in sorted(os.listdir(folder)):
            yield os.path.join(folder, file), f"triton/{file}"

    def libraries(self):
        for library in self.options.libraries:
            folder = os.path.join(self.folder, os.path.basename(library) + ".d")
            os.makedirs(folder, exist_ok=True)
            result = self.run([self.options.fatbin_tool, "extract", library, "-o", folder])
            if result.returncode:
                self.fail(library, "fatbin-tool", result.stdout)
            for file in sorted(os.listdir(folder)):
                path = os.path.join(folder, file)
                if not file.endswith(".ptx"):
                    os.unlink(path)
                    continue
                yield path, f"{os.path.basename(library)}/{file}"

    def files(self):
        for argument in self.options.files:
            if not os.path.isdir(argument):
                yield argument, os.path.basename(argument)
                continue
            for folder, _, names in os.walk(argument):
                for name in names:
                    if name.endswith(".ptx"):
                        yield os.path.join(folder, name), os.path.relpath(os.path.join(folder, name), argument)

    def all(self):
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:

            def one(source, architecture, flags, compiler, same_registers):
                path = self.compile(source, architecture, flags, compiler)
                if path:
                    self.judge(path, os.path.basename(path), same_registers)
                    if not self.options.keep:
                        os.unlink(path)

            futures = []
            futures += [pool.submit(one, *source) for source in self.sources()]
            if not self.options.no_sources:
                futures += [
                    pool.submit(self.judge, os.path.join(HERE, name), name)
                    for name in sorted(os.listdir(HERE))
                    if name.endswith(".ptx") and not name.startswith("probe-")
                ]
            if self.options.triton:
                futures += [pool.submit(self.judge, *module) for module in self.triton()]
            given = list(self.files())
            given.sort(key=lambda module: os.path.getsize(module[0]))
            futures += [pool.submit(self.judge, *module) for module in given]
            futures += [pool.submit(self.judge, *module) for module in self.libraries()]
            for future in futures:
                future.result()

    def report(self, seconds):
        print(
            f"{self.modules} modules ({self.duplicates} duplicates left out), {self.kernels} kernels, {self.functions} functions, {self.sites} sites "
            f"({self.accesses} memory instructions), {self.bytes / 1e6:.1f} MB "
            f"in {seconds:.0f} s; model and pass {self.model_seconds:.1f} s, ptxas {self.ptxas_seconds:.0f} s"
        )
        if self.options.compare:
            print(
                f"registers: {self.same_registers} kernels need no more than before, {self.more_registers} need more "
                f"(on average {self.added_registers / max(1, self.more_registers):.1f})"
            )
            for name, note in sorted(set(self.notes)):
                print(f"NOTE {name}: {note}")
        for name, size in self.slow:
            print(f"NOT ASSEMBLED {name}: {size} bytes, ptxas took more than {self.options.timeout} s")
        for name, why in self.given_up:
            print(f"GIVEN UP {name}: {why}")
        for name, why in self.refused:
            print(f"REFUSED BARE {name}: {why}")
        for name, step, why in self.failures:
            print(f"FAILED {name}: {step}: {why}")
        print(f"{len(self.failures)} failures" if self.failures else "all good" if self.modules else "nothing was judged")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="PTX files, or folders of them")
    parser.add_argument("--tool", required=True, help="ptx-tool")
    parser.add_argument("--fatbin-tool", help="needed by --libraries")
    parser.add_argument("--libraries", nargs="+", default=[], metavar="FILE", help="libraries whose PTX is judged")
    parser.add_argument("--cuda", default=os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    parser.add_argument("--ptxas", help="another ptxas than that of --cuda: cuDNN is ahead of its toolkit")
    parser.add_argument("--triton", metavar="PYTHON", help="an interpreter that has triton")
    parser.add_argument("--probe", default=os.path.join(HERE, "probe-counter.ptx"))
    parser.add_argument(
        "--everywhere",
        action="store_true",
        help="not one probe at entries, but programs that read all of their "
        "contexts at entries, returns, blocks and memory instructions, of device functions, too",
    )
    parser.add_argument(
        "--bpf", action="store_true", help="as --everywhere, with programs that clang and the daemon made of probes.bpf.c: a hash, a ring, a log; needs sm_70"
    )
    parser.add_argument("--old-cuda", metavar="FOLDER", help="include/, bin/ and nvvm/ of a CUDA 12: for --nvrtc and --clang")
    parser.add_argument("--nvrtc", metavar="LIBRARY", help="libnvrtc.so.12 of that CUDA")
    parser.add_argument("--clang", default="clang++-19")
    parser.add_argument("--compiled", metavar="FOLDER", help="keep what nvcc makes of the sources there, for other runs")
    parser.add_argument("--cutlass", metavar="FOLDER", help="include/ of CUTLASS, for the sources that need it")
    parser.add_argument("--architectures", nargs="+", help="only these")
    parser.add_argument("--call", action="store_true", help="kernels call the probe; else it is put into them")
    parser.add_argument("--quick", action="store_true", help="a few of the sources only: under a minute")
    parser.add_argument("--no-sources", action="store_true", help="do not compile the .cu files")
    parser.add_argument("--no-ptxas", action="store_true", help="do not assemble")
    parser.add_argument("--compare", action="store_true", help="assemble the unedited module too; compare")
    parser.add_argument("--timeout", type=float, default=600, help="seconds that one ptxas may take (default 600)")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--log", help="a line per module; what is in it already is not judged again")
    parser.add_argument("--keep", action="store_true", help="keep the files that are made, print where")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    options.programs = ["--probe", options.probe]
    options.devices = options.everywhere or options.bpf
    everywhere = ["--device", "*", "--image", "7", "--instructions", "--stub", "__bpftime_cuda__kernel_trace", "--stub", "__gpuprobe_stub"]
    if options.bpf:

        def program(name):
            path = os.path.join(HERE, f"probe-bpf-{name}.ptx")
            with open(path) as file:
                context = re.search("^// corpus: context=(.*)$", file.read(), re.M).group(1)
            return ["--probe", path, *(["--context", context] if context else [])]

        options.programs = [
            *program("hash"),
            "--point",
            "entry",
            "--point",
            "block:2",
            *program("context"),
            "--point",
            "return",
            *program("ring"),
            "--point",
            "memory",
            "--spaces",
            "0x3f",
            *everywhere,
        ]
    elif options.everywhere:
        kernel = ",".join(str(offset) for offset in range(0, 168, 8))
        options.programs = [
            "--probe",
            os.path.join(HERE, "probe-kernel.ptx"),
            "--context",
            kernel,
            "--point",
            "entry",
            "--point",
            "return",
            "--point",
            "block:1",
            "--probe",
            os.path.join(HERE, "probe-memory.ptx"),
            "--context",
            "0,8,16,24,32,40",
            "--point",
            "memory",
            "--spaces",
            "0x3f",
            *everywhere,
        ]
    options.nvcc = os.path.join(options.cuda, "bin/nvcc")
    options.ptxas = options.ptxas or os.path.join(options.cuda, "bin/ptxas")
    if not os.access(options.ptxas, os.X_OK) or (not options.no_sources and not os.access(options.nvcc, os.X_OK)):
        print(f"judge.py: no nvcc or ptxas in {options.cuda}/bin: skipped")
        return 77
    if options.libraries and not options.fatbin_tool:
        parser.error("--libraries needs --fatbin-tool")
    folder = tempfile.mkdtemp(prefix="judge-")
    start = time.monotonic()
    judge = Judge(options, folder)
    try:
        judge.all()
    finally:
        if options.keep:
            print(f"files are in {folder}")
        else:
            shutil.rmtree(folder)
    judge.report(time.monotonic() - start)
    return 1 if judge.failures or not judge.modules else 0


if __name__ == "__main__":
    sys.exit(main())
