#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py [--fill | --reference | --patch] BPF_RUN FILE...: the conformance suite.

A case is a program in the assembly of bpf.py and what it must give. Every case is run twice, by the interpreter in
bpf.py and by BPF_RUN --batch (which needs a libcuda.so.1: NVIDIA's or tests/sim); both must give what is written.

    == name                        starts a case
    .mem HEX                       memory: r1 points to it, r2 is its length
    .context HEX                   instead: r1 is a context
    .map TYPE:KEY:VALUE:ENTRIES    a map; the first is map[0]; options: see bpf-run.c
    .grid N[xN[xN]], .block N...   how many threads run it; all must return the same
    .memory                        the memory is part of the result
    .unarmed                       maps have no data yet
    .thread BYTES                  there are variables of a thread, `thread` in the program
    .runs N                        each thread runs the program so often; r0 is that of the last
    .whole                         all threads of each warp are together (see bpf-run.c), so that this is tested without a GPU
    .warps MASK                    these lanes are
    .uniform                       what the place fixes of the context is the same in all lanes, as a pass says (proto/point.h)
    r0 = 1; exit                   the program
    => 0x1 HEX...                  r0, each map's values, the memory
    =+ HEX                         goes on with it
    => error: TEXT                 or: the translator refuses it, with TEXT in the message

--fill writes the interpreter's result where a case has none. --reference runs the interpreter only. --patch runs the patch forms of
the programs, which those that call bpf_cuda_exit or have variables of a thread do not have. Exit 77: no CUDA driver.
"""

import subprocess
import sys
import tempfile

import bpf
import bpf_maps


class Case:
    def __init__(self, name, path, line):
        self.name, self.path, self.line = name, path, line
        self.memory, self.maps, self.grid, self.block = b"", [], "1", "1"
        self.want_memory = self.unarmed = self.uniform = False
        self.warps = None
        self.thread, self.runs = 0, 1
        self.context = None
        self.text, self.expected = "", None

    def code(self):
        return bpf.assemble(self.text)

    def exits(self):
        """Whether the program calls bpf_cuda_exit."""
        code = self.code()
        return any(code[i] == 0x85 and code[i + 1] == 0 and code[i + 4 : i + 8] == (507).to_bytes(4, "little") for i in range(0, len(code), 8))

    def mask(self):
        """The lanes of each warp that are together; 0: each is alone."""
        return 0xFFFFFFFF if self.warps == "whole" else int(self.warps or "0", 16)

    def words(self):
        words = ["prog=" + self.code().hex()]
        if self.memory:
            words.append("mem=" + self.memory.hex())
        if self.context is not None:
            words.append("context=" + self.context.hex())
        words += ["map=" + m for m in self.maps]
        if self.grid != "1" or self.block != "1":
            words += ["grid=" + self.grid, "block=" + self.block]
        if self.want_memory:
            words.append("want=memory")
        if self.warps:
            words.append("warps=" + self.warps)
        if self.thread:
            words += ["thread=%d" % self.thread, "runs=%d" % self.runs]
        if self.unarmed:
            words.append("maps=unarmed")
        if self.uniform:
            words.append("place=uniform")
        return " ".join(words)

    def run_reference(self, backwards):
        maps = [bpf_maps.make(m) for m in self.maps]
        for m in maps:
            m.armed, m.together = not self.unarmed, bool(self.warps)
            if isinstance(m, bpf_maps.Ring) and not m.together and bpf.count(self.block) > 1 and "records" not in m.options:
                raise bpf.BpfError("which records are one batch depends on the driver")
        machine = bpf.Machine(self.code(), self.memory, maps, self.grid, self.block, self.context, self.mask())
        machine.thread_size, machine.runs = self.thread, self.runs
        words = ["0x%x" % machine.run(backwards)] + [m.dump().hex() or "-" for m in maps]
        if self.want_memory:
            words.append(bytes(machine.memory).hex())
        return " ".join(words)

    def reference(self):
        """The result by the interpreter, as bpf-run would print it. It may not depend on the order of threads."""
        try:
            result = self.run_reference(False)
            if self.run_reference(True) != result:
                return "depends on the order of threads, time or SM"
            return result
        except (bpf.BpfError, bpf_maps.MapError) as error:
            return "cannot run: %s" % error


def read_cases(path):
    cases = []
    with open(path) as f:
        for number, line in enumerate(f, 1):
            line = line.split("#")[0].strip()
            case = cases[-1] if cases else None
            if not line:
                continue
            if line.startswith("== "):
                cases.append(Case(line[3:].strip().replace(" ", "-"), path, number))
            elif line.startswith(".mem "):
                case.memory = bytes.fromhex(line[5:])
            elif line.startswith(".context "):
                case.context = bytes.fromhex(line[9:])
            elif line.startswith(".map "):
                case.maps.append(line[5:].strip())
            elif line.startswith(".grid "):
                case.grid = line[6:]
            elif line.startswith(".block "):
                case.block = line[7:]
            elif line.startswith(".thread "):
                case.thread = int(line[8:])
            elif line.startswith(".runs "):
                case.runs = int(line[6:])
            elif line == ".memory":
                case.want_memory = True
            elif line == ".unarmed":
                case.unarmed = True
            elif line == ".uniform":
                case.uniform = True
            elif line == ".whole":
                case.warps = "whole"
            elif line.startswith(".warps "):
                case.warps = line[7:]
            elif line.startswith("=> "):
                case.expected = line[3:].strip()
            elif line.startswith("=+ "):
                case.expected += line[3:].strip()
            else:
                case.text += line + "\n"
    return cases


def fill(path):
    """Adds what is missing."""
    missing = {}
    for case in read_cases(path):
        if case.expected is None:
            missing[case.line] = case
    lines = open(path).read().split("\n")
    out, pending = [], None
    for number, line in enumerate(lines + ["== end"], 1):
        if line.startswith("== "):
            if pending:
                while out and not out[-1].strip():
                    out.pop()
                out += ["=> " + pending.reference(), ""]
            pending = missing.get(number)
        out.append(line)
    with open(path, "w") as f:
        f.write("\n".join(out[:-1]).rstrip("\n") + "\n")


def fits(expected, got):
    if expected.startswith("error: "):
        return got.startswith("error: ") and expected[7:] in got
    return expected == got


def run_batch(bpf_run, cases, environment=None):
    """Answers of bpf-run, by case name; exits with 77 if there is no driver."""
    with tempfile.NamedTemporaryFile("w", suffix=".batch") as f:
        for i, case in enumerate(cases):
            f.write("%d %s\n" % (i, case.words()))
        f.flush()
        p = subprocess.run(bpf_run + ["--batch", f.name], capture_output=True, text=True, env=environment)
    if p.returncode == 1 and "no CUDA driver" in p.stderr:
        print("skipped: %s" % p.stderr.strip())
        sys.exit(77)
    answers = {}
    for line in p.stdout.splitlines():
        number, _, answer = line.partition(" ")
        if number.isdigit():  # not what LLVM says before it ends the process
            answers[int(number)] = answer
    if p.returncode:
        print("bpf-run ended with %d: %s" % (p.returncode, p.stderr.strip()))
    return [answers.get(i, "no answer") for i in range(len(cases))]


def main():
    args = sys.argv[1:]
    mode = args.pop(0) if args and args[0].startswith("--") else None
    if mode == "--fill":
        for path in args:
            fill(path)
        return 0
    bpf_run = [] if mode == "--reference" else [args.pop(0)] + (["--patch"] if mode == "--patch" else [])
    cases = [case for path in args for case in read_cases(path)]
    failures = 0
    if mode == "--patch":
        for case in cases:
            if case.exits() and not case.expected.startswith("error: "):
                case.expected = "error: no patch form: bpf_cuda_exit ends a thread"
            elif case.thread and not case.expected.startswith("error: "):
                case.expected = "error: no patch form: it has variables of a thread"
    answers = run_batch(bpf_run, cases) if bpf_run else [None] * len(cases)
    for case, answer in zip(cases, answers):
        wrong = []
        if not case.expected:
            wrong.append("nothing expected")
        elif not case.expected.startswith("error: ") and case.reference() != case.expected:
            wrong.append("interpreter: %s" % case.reference())
        if answer is not None and case.expected and not fits(case.expected, answer):
            wrong.append("bpf-run: %s" % answer)
        if wrong:
            failures += 1
            print("%s:%d: %s: expected %s; %s" % (case.path, case.line, case.name, case.expected, "; ".join(wrong)))
    print("%d cases, %d failures" % (len(cases), failures))
    return 1 if failures or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
