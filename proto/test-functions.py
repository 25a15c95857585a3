#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test-functions.py TOOLKIT CC [CC-ARGUMENT...]: functions.txt says what the toolkit says.

It is what make-functions.py makes of this toolkit. It has all that the stub libcuda.so exports. Sizes, offsets and enumerators are what the C
compiler finds in the headers. And each function is called, with the types of the headers, and leaves its arguments in the words that the table says.
Skipped without toolkit or clang, and with a toolkit of another version than the table.
"""

import importlib.util
import os
import platform
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SKIP = 77


def load(name):
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"), os.path.join(HERE, name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def skip(why):
    print("skipped:", why)
    sys.exit(SKIP)


PRELUDE = """
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "generated_cuda_meta.h"
#include "cudaProfiler.h"

/* Whatever it is called as, it leaves its registers and its stack in `words`. */
struct { uint64_t integers[6], stack[16], floats[2]; } words;
int capture(void);
__asm__(".text\\ncapture:\\n"
        "\\tmov %rdi, words(%rip)\\n\\tmov %rsi, words+8(%rip)\\n\\tmov %rdx, words+16(%rip)\\n\\tmov %rcx, words+24(%rip)\\n"
        "\\tmov %r8, words+32(%rip)\\n\\tmov %r9, words+40(%rip)\\n"
        "\\tlea 8(%rsp), %rsi\\n\\tlea words+48(%rip), %rdi\\n\\tmov $16, %ecx\\n\\trep movsq\\n"
        "\\tmovq %xmm0, words+176(%rip)\\n\\tmovq %xmm1, words+184(%rip)\\n\\txor %eax, %eax\\n\\tret\\n");
static int failures;

static void fill(void *to, size_t n)
{
	for (size_t i = 0; i < n; i++)
		((unsigned char *)to)[i] = (unsigned char)(i * 7 + 1);
	memset(&words, 0xee, sizeof(words));
}

static void same(const char *function, const char *argument, const void *value, size_t n, const void *word)
{
	if (memcmp(value, word, n) != 0) {
		printf("%s: %s is elsewhere\\n", function, argument);
		failures++;
	}
}
"""


def layout_checks(table, toolkit):
    for name, (size, members) in table.structs.items():
        path = name.split(".")
        if path[0] not in toolkit.typedefs:
            path[0] = "struct " + path[0]
        if not path[1:]:
            yield f'_Static_assert(sizeof({path[0]}) == {size}, "{name}");'
        for offset, text in members:
            kind, field = re.fullmatch(r"(.*?)(\w+)", text).groups()
            if field == "union":
                continue
            spelled = ".".join(path[1:] + [field])
            base = f" - offsetof({path[0]}, {'.'.join(path[1:])})" if path[1:] else ""
            yield f'_Static_assert(offsetof({path[0]}, {spelled}){base} == {offset}, "{name}.{field}");'
            yield f'_Static_assert(sizeof((({path[0]} *)0)->{spelled}) == {table.type(kind.strip())[1]}, "{name}.{field}");'
    for name, values in table.enums.items():
        for value, member in values:
            yield f'_Static_assert({member} == {value}, "{member}");'
    for name, words in table.types.items():
        if "." not in name and words != ["opaque", "0"]:
            spelled = name if name in toolkit.typedefs else "struct " + name
            yield f'_Static_assert(sizeof({spelled}) == {table.type(name)[1]}, "{name}");'


def call_check(table, function):
    """A C function that calls one, and looks where its arguments went."""
    fields = "".join(f"\t\t{a.type}{'' if a.type.endswith('*') else ' '}{a.name};\n" for a in function.arguments)
    lines = [f"static void call_{function.name}(void)\n{{\n\tstruct {{\n{fields}\t\tchar end;\n\t}} in;\n\n\tfill(&in, sizeof(in));\n"]
    types = ", ".join(a.type for a in function.arguments) or "void"
    lines.append(f"\t((CUresult (*)({types}))capture)({', '.join('in.' + a.name for a in function.arguments)});\n")
    for a in function.arguments:
        kind, size = table.type(a.type)
        if a.word >= function.words - function.floats:
            place = f"&words.floats[{a.word - (function.words - function.floats)}]"
        else:
            place = f"&words.integers[{a.word}]"  # the stack is behind
        lines.append(f'\tsame("{function.name}", "{a.name}", &in.{a.name}, {size}, {place});\n')
    lines.append("}\n")
    return "".join(lines)


def signature_checks(table, toolkit):
    """The types of arguments are those of the toolkit's own structs."""
    for function in table.functions:
        for a in function.arguments:
            if function.name + "_params_st" in toolkit.records:
                yield (
                    f'_Static_assert(__builtin_types_compatible_p(__typeof__((({function.name}_params *)0)->{a.name}), {a.type}), "{function.name}: {a.name}");'
                )


def main():
    folder, *cc = sys.argv[1:]  # the compiler may be ccache's
    path = os.path.join(HERE, "functions.txt")
    maker, tables = load("make-functions"), load("function-table")
    for part in "include/generated_cuda_meta.h", "include/cudaProfiler.h", "lib64/stubs/libcuda.so":  # the wheels of tests/prepare lack some
        if not os.path.exists(os.path.join(folder, part)):
            skip(f"no whole CUDA toolkit in {folder}: {part} is missing")
    try:
        toolkit = maker.Toolkit(folder, "clang-19")
    except FileNotFoundError as error:  # clang-19 or nm
        skip(str(error))
    text = open(path).read()
    if f"\ntoolkit {toolkit.version}\n" not in text:
        skip(f"functions.txt is of another toolkit than {toolkit.version}")
    made = subprocess.run([sys.executable, os.path.join(HERE, "make-functions.py"), folder], capture_output=True, text=True, check=True).stdout
    assert made == text, "functions.txt is not what make-functions.py makes of this toolkit: see its header for how to refresh it"
    table = tables.Table(path)
    names = sorted(function.name for function in table.functions)
    assert names == toolkit.names and len(names) > 600, sorted(set(names) ^ set(toolkit.names))
    numbers = [function.number for function in table.functions]
    assert len(set(numbers)) == len(numbers)
    for function in table.functions:
        assert function.number == toolkit.numbers.get(function.name, function.number), function.name
        assert function.name in toolkit.numbers or 2048 <= function.number < 3072, function.name
    if platform.machine() != "x86_64":
        skip("the words of calls are those of x86-64")
    calls = [call_check(table, function) for function in table.functions]
    source = "\n".join(
        [
            PRELUDE,
            *layout_checks(table, toolkit),
            *signature_checks(table, toolkit),
            *calls,
            "int main(void)\n{",
            *(f"\tcall_{function.name}();" for function in table.functions),
            "\treturn failures != 0;\n}\n",
        ]
    )
    with tempfile.TemporaryDirectory() as place:
        program = os.path.join(place, "calls")
        with open(program + ".c", "w") as output:
            output.write(source)
        subprocess.run(
            [*cc, "-std=gnu17", "-O1", "-no-pie", "-w", "-D__CUDA_API_VERSION_INTERNAL", "-I" + os.path.join(folder, "include"), program + ".c", "-o", program],
            check=True,
        )
        subprocess.run([program], check=True)
    print(f"{len(names)} functions, {len(table.structs)} structs, {len(table.enums)} enums, {source.count('_Static_assert')} assertions")


if __name__ == "__main__":
    main()
