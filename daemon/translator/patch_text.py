# SPDX-License-Identifier: Apache-2.0
"""Modules of patches for tests: patch forms of programs with a function that runs them, as the image worker makes it, and what ptxas says of it."""

import re
import subprocess
import tempfile

BEGIN = """.visible .func (.param .b32 result) gpuprobe_x_1(.param .b64 data, .param .b64 pc)
{
	.reg .pred %gpuprobe_p;
	.reg .b64 %gpuprobe_data, %gpuprobe_slots, %gpuprobe_c;
	ld.param.b64 %gpuprobe_data, [data];
	setp.eq.s64 %gpuprobe_p, %gpuprobe_data, 0;
	@%gpuprobe_p bra $gpuprobe_end;
"""
# of program %(i)d, if its bit is set; its slots lie 512 bytes behind those of the program before
PROGRAM = """	ld.global.b64 %%gpuprobe_c, [%%gpuprobe_data];
	and.b64 %%gpuprobe_c, %%gpuprobe_c, 1 << %(i)d;
	setp.eq.s64 %%gpuprobe_p, %%gpuprobe_c, 0;
	@%%gpuprobe_p bra $gpuprobe_skip%(i)d;
	add.s64 %%gpuprobe_slots, %%gpuprobe_data, 32 + 512 * %(i)d;
	{
%(run)s	}
$gpuprobe_skip%(i)d:
"""
END = """$gpuprobe_end:
	st.param.b32 [result], 0;
	ret;
}
"""


def call(text):
    """A call of the program, whose fields of the context (any numbers here) come from the data."""
    symbol, parameters = re.search(r"\.func +\(.*?\) (\w+)\(([^)]*)\)", text).groups()
    run = "\t.param .b64 r, a0;\n\tst.param.b64 [a0], %gpuprobe_slots;\n"
    for i in range(1, parameters.count(".param")):
        run += "\t.param .b64 a%d;\n\tld.global.b64 %%gpuprobe_c, [%%gpuprobe_data+%d];\n\tst.param.b64 [a%d], %%gpuprobe_c;\n" % (i, 8 * i, i)
    return run + "\tcall.uni (r), %s, (%s);\n" % (symbol, ", ".join("a%d" % i for i in range(parameters.count(".param"))))


def paste(text, i):
    """The body of a program of one block, put in its place."""
    body = text[text.index("\n{\n") + 3 : text.rindex("\n}")]
    assert body.count("ret;") == 1, body
    body = re.sub(r"\tst\.param.*\n\tret;", "", body)
    body = re.sub(r"ld\.param\.u64 \t(%\w+), \[\w+_param_0\];", r"mov.b64 \1, %gpuprobe_slots;", body)
    body = re.sub(r"ld\.param\.u64 \t(%\w+), \[\w+_param_(\d+)\];", r"ld.global.u64 \1, [%gpuprobe_data+8*\2];", body)
    return re.sub(r"(\$L\w+)", r"\1_%d" % i, body) + "\n"


def module(texts, sm, pasted=False):
    """PTX of patch forms and a function that runs all of them."""
    private = [text if not pasted else text[: text.index(".func")] for text in texts]
    runs = [PROGRAM % {"i": i, "run": paste(text, i) if pasted else call(text)} for i, text in enumerate(texts)]
    return ".version 8.6\n.target sm_%d\n.address_size 64\n" % sm + "".join(private) + BEGIN + "".join(runs) + END


def compile(ptxas, sm, text):
    """Compiles for the sanitizer engine: (what ptxas says against it or '', {function: (stack, spill stores, spill loads) in bytes}, registers)."""
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as source, tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        source.write(text)
        source.flush()
        p = subprocess.run([ptxas, "--compile-as-tools-patch", "-arch=sm_%d" % sm, "-v", "-o", cubin.name, source.name], capture_output=True, text=True)
        found = re.findall(r"Function properties for (\S+)\s+(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", p.stderr)
        # .nv.info has {u8 4, u8 0x2f, u16 8, u32 symbol, u32 registers} of each function
        registers = [int.from_bytes(n, "little") for n in re.findall(b"\x04\x2f\x08\0....(....)", cubin.read(), re.S)]
        return p.stderr if p.returncode else "", {f[0]: tuple(map(int, f[1:])) for f in found}, max(registers, default=0)
