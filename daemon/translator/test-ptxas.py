#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test-ptxas.py PTXAS BPF_RUN CASES...: what the CUDA compiler makes of a counter in vectorAdd; and it takes all cases.

Of the counter: no stack, no spills, and not one register more than the kernel needs by itself; called, and with the function's body pasted into the
kernel (what a pass may do: the body is one block with one `ret;`, and results and labels are its own). The patch forms of all these for the
sanitizer engine, too: the counter's has no stack and no spills although a patch has only the registers that a function may change.
"""

import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/conformance"))
import bpf  # noqa: E402
import patch_text  # noqa: E402
import run  # noqa: E402

KERNEL = """
.visible .entry vectorAdd(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
	.reg .pred %%p<2>;
	.reg .f32 %%f<4>;
	.reg .b32 %%r<6>;
	.reg .b64 %%rd<11>;
	%s
	ld.param.u64 %%rd1, [a];
	ld.param.u64 %%rd2, [b];
	ld.param.u64 %%rd3, [c];
	ld.param.u32 %%r2, [n];
	mov.u32 %%r3, %%ctaid.x;
	mov.u32 %%r4, %%ntid.x;
	mov.u32 %%r5, %%tid.x;
	mad.lo.s32 %%r1, %%r4, %%r3, %%r5;
	setp.ge.s32 %%p1, %%r1, %%r2;
	@%%p1 bra DONE;
	cvta.to.global.u64 %%rd4, %%rd1;
	mul.wide.s32 %%rd5, %%r1, 4;
	add.s64 %%rd6, %%rd4, %%rd5;
	cvta.to.global.u64 %%rd7, %%rd2;
	add.s64 %%rd8, %%rd7, %%rd5;
	ld.global.f32 %%f1, [%%rd8];
	ld.global.f32 %%f2, [%%rd6];
	add.f32 %%f3, %%f2, %%f1;
	cvta.to.global.u64 %%rd9, %%rd3;
	add.s64 %%rd10, %%rd9, %%rd5;
	st.global.f32 [%%rd10], %%f3;
DONE:
	ret;
}
"""

CALL = """
	{
	.param .b64 r;
	call.uni (r), __gpuprobe_run, ();
	}
"""

COUNTER = """
*(u32 *)(r10 - 4) = 0; r2 = r10; r2 += -4; r1 = map[0] ll; call 1; if r0 == 0 goto out
r1 = 1; lock *(u64 *)(r0 + 0) += r1
out: ; r0 = 0; exit
"""

HEADER = ".version 8.0\n.target sm_%d\n.address_size 64\n"


def assembled(ptxas, sm, text):
    """Registers, bytes of stack of the kernel."""
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as f:
        f.write(HEADER % sm + text)
        f.flush()
        p = subprocess.run([ptxas, "-arch=sm_%d" % sm, "-v", "-o", "/dev/null", f.name], capture_output=True, text=True)
    if p.returncode:
        sys.exit("ptxas: %s" % p.stderr)
    stacks = [int(n) for n in re.findall(r"(\d+) bytes (?:stack|spill)", p.stderr)]
    return int(re.search(r"Used (\d+) registers", p.stderr)[1]), sum(stacks)


def translated(bpf_run, code, maps, context, *options):
    """The module that bpf-run makes of a program."""
    options = [bpf_run, "--ptx", *options] + [x for m in maps for x in ("--map", m)]
    if context is not None:
        options += ["--context", context.hex()]
    return subprocess.run(options, input=code.hex(), capture_output=True, text=True, check=True).stdout


def patch_form(text, symbol):
    """A program for the sanitizer engine, of its module."""
    return text[text.index(".address_size 64\n") + 17 : text.index(".visible .entry")].replace("__gpuprobe_run", symbol)


def translate_all(bpf_run, cases, *options):
    """The modules of cases, by one process."""
    with tempfile.NamedTemporaryFile("w", suffix=".batch") as f:
        f.writelines("%d %s\n" % (i, case.words()) for i, case in enumerate(cases))
        f.flush()
        out = subprocess.run([bpf_run, "--ptx", *options, "--batch", f.name], capture_output=True, text=True, check=True).stdout
    texts = re.split(r"^// \d+\n", out, flags=re.M)[1:]
    assert len(texts) == len(cases) and not any("error: " in text for text in texts), out
    return texts


def refused(ptxas, text):
    """What ptxas says against a module, for sm_90; None: it takes it."""
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as f:
        f.write(text)
        f.flush()
        p = subprocess.run([ptxas, "-arch=sm_90", "-o", "/dev/null", f.name], capture_output=True, text=True)
    return p.stdout + p.stderr if p.returncode else None


def joined(texts):
    """Modules as one for each version and target: each has names of its own."""
    modules = {}
    for i, text in enumerate(texts):
        header, body = text.split(".address_size 64\n")
        modules.setdefault(header, []).append(re.sub(r"\b(__gpuprobe_\w+|bpf_run)", r"\1_case%d" % i, body))
    return [header + ".address_size 64\n" + "".join(bodies) for header, bodies in modules.items()]


def check_cases(ptxas, bpf_run, cases):
    """For sm_90. Whether there are cases that the CUDA compiler does not take."""
    texts, failed = translate_all(bpf_run, cases), 0
    if any(refused(ptxas, module) for module in joined(texts)):
        for case, text in zip(cases, texts):
            said = refused(ptxas, text)
            if said:
                failed += 1
                print("%s: %s: %s" % (case.path, case.name, said))
        if not failed:
            failed = 1
            print("refused by ptxas: the modules as one, none of them alone")
    print("%d cases, %d refused by ptxas" % (len(cases), failed))
    return failed or not cases


def check_patches(ptxas, bpf_run, cases):
    """The same for the sanitizer engine, many in a module. What the CUDA compiler does not take."""
    texts = translate_all(bpf_run, [case for case in cases if not case.exits()], "--patch")
    forms = [patch_form(text, "__gpuprobe_o%d" % i) for i, text in enumerate(texts)]
    failed, spills, registers = 0, [], []
    for i in range(0, len(forms), 50):
        said, functions, most = patch_text.compile(ptxas, 90, patch_text.module(forms[i : i + 50], 90))
        spills += [f[1] for name, f in functions.items() if name.startswith("__gpuprobe_o")]
        registers.append(most)
        if said:
            failed = 1
            print(said)
    print("%d patches: %d registers at most, %d with spills, of %d bytes at most" % (len(forms), max(registers), sum(map(bool, spills)), max(spills)))
    return failed or not forms


def check_patched_counter(ptxas, bpf_run, kind):
    """A counter as a patch, in the function that runs it and called by that."""
    form = patch_form(translated(bpf_run, bpf.assemble(COUNTER), [kind], b"\0", "--patch"), "__gpuprobe_run")
    failed = ".local" in form or form.count("ld.") != 2 or ".global " in form[: form.index("{")] or ".const" in form
    for sm in (75, 90, 100):
        called = patch_text.compile(ptxas, sm, patch_text.module([form], sm))
        pasted = patch_text.compile(ptxas, sm, patch_text.module([form, form], sm, True))
        print(
            "map %s as a patch, sm_%d: registers %d; bytes of stack, of spills called %s, pasted twice %s %s"
            % (kind, sm, pasted[2], called[1], pasted[1], called[0] + pasted[0])
        )
        failed |= called[1].get("__gpuprobe_run") != (0, 0, 0) or pasted[1].get("gpuprobe_x_1") != (0, 0, 0)
    return failed


def main():
    ptxas, bpf_run, *paths = sys.argv[1:]
    cases = [c for path in paths for c in run.read_cases(path) if not c.expected.startswith("error: ")]
    failed = check_cases(ptxas, bpf_run, cases)
    failed |= check_patches(ptxas, bpf_run, cases)
    for kind in ("2:4:8:1", "1503:4:8:1", "6:4:8:1"):
        failed |= check_patched_counter(ptxas, bpf_run, kind)
        text = translated(bpf_run, bpf.assemble(COUNTER), [kind], b"\0")
        text = text[text.index(".visible ") : text.index(".visible .entry")]
        assert text.count("ret;") == 1 and ".local" not in text, text
        slot, body = text[: text.index(".func")], text[text.index("\n{\n") :]
        body = re.sub(r"\tst\.param.*\n\tret;\n", "", body)
        for sm in (75, 90):
            bare = assembled(ptxas, sm, KERNEL % "")
            called = assembled(ptxas, sm, text + KERNEL % CALL)
            pasted = assembled(ptxas, sm, slot + KERNEL % (body + body))
            print(
                "map %s, sm_%d: registers bare %d, called %d, pasted twice %d; bytes of stack %d, %d, %d"
                % (kind, sm, bare[0], called[0], pasted[0], bare[1], called[1], pasted[1])
            )
            if called[0] > bare[0] or pasted[0] > bare[0] or called[1] or pasted[1]:
                failed = 1
    return 1 if failed else 0


sys.exit(main())
