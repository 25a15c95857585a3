#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""function-table.py FORMAT FUNCTIONS.TXT OUTPUT: makes of the table of all functions of libcuda what a build needs.

FORMAT: c, the tables behind lib/function.h; shim, rows for the shim (functions.inc); assembly, rows for its trampolines (functions.S.inc).
"""

import re
import sys

NOTE = "/* Made from functions.txt by function-table.py. */\n"
SHIM = (
    NOTE
    + """
/*
 * FUNCTION(number, name, words, floats, extras...): every function of libcuda, sorted by name as strcmp() does.
 *
 * number	of struct trace_call
 * words	how many words the record has. Word 0 to 5: rdi, rsi, rdx, rcx, r8, r9; word 6 and on: stack slots, from 8(%%rsp) at the entry. The last
 *		`floats` words are xmm0, xmm1 (low 4 bytes) instead. A struct by value that lies on the stack counts like this, too: the words of
 *		registers between are then whatever was in them.
 * floats	0, but of three functions
 * extras	at most FUNCTION_EXTRAS_MAX of { argument, word, when, size }: if the word is no NULL, `size` bytes where it points to, at the entry
 *		(when 0) or at the return (when 1; only if the function succeeded: nothing may be there otherwise); size 0: a string, at the entry.
 */
#define FUNCTION_COUNT %d
#define FUNCTION_WORDS_MAX %d
#define FUNCTION_EXTRAS_MAX 4
#define FUNCTION_READ_MAX %d

/* clang-format off */
#ifdef FUNCTION
"""
)
ASSEMBLY = (
    NOTE
    + """/* FUNCTION index, name: in the order of functions.inc, from 0. */
"""
)
BUILTIN = {
    "int": ("int", 4),
    "unsigned int": ("uint", 4),
    "short": ("int", 2),
    "unsigned short": ("uint", 2),
    "char": ("int", 1),
    "signed char": ("int", 1),
    "unsigned char": ("uint", 1),
    "long": ("int", 8),
    "unsigned long": ("uint", 8),
    "long long": ("int", 8),
    "unsigned long long": ("uint", 8),
    "size_t": ("uint", 8),
    "float": ("float", 4),
    "double": ("float", 8),
    "_Bool": ("bool", 1),
}
MARK = re.compile(r"(?:(out|read|string|stream|size|rows)(?:\*(\d+))? )?(.*?)(\w+)$")
EXTRAS_MAX = 4


class Argument:
    def __init__(self, text):
        self.mark, unit, self.type, self.name = MARK.match(text).groups()
        self.type = self.type.strip()
        self.unit = int(unit or 1)


class Function:
    def __init__(self, number, kind, name, arguments):
        self.number, self.kind, self.name = int(number), kind, name
        self.base = re.sub(r"(_v\d+)?(_pt[ds][sz])?$", "", name)
        self.arguments = [Argument(text) for text in arguments.split(", ") if text]

    def lay_out(self, table):
        """Gives each argument its words: first registers, then the stack, then registers of floats."""
        registers, stack, floats = 0, 0, []
        memory = []
        for argument in self.arguments:
            kind, size = table.type(argument.type)
            argument.size, argument.words = size, max(1, (size + 7) // 8)
            if kind == "float":
                floats.append(argument)
            elif argument.words <= 2 and registers + argument.words <= 6:
                argument.word = registers
                registers += argument.words
            else:
                memory.append((argument, stack))
                stack += argument.words
        for argument, slot in memory:
            argument.word = 6 + slot
        self.words = 6 + stack if stack else registers
        for argument in floats:
            argument.word = self.words
            self.words += 1
        self.floats = len(floats)
        self.extras = [
            (i, a.word, 1 if a.mark == "out" else 0, 0 if a.mark == "string" else table.type(table.target(a.type))[1])
            for i, a in enumerate(self.arguments)
            if a.mark in ("out", "read", "string")
        ]
        if len(self.extras) > EXTRAS_MAX:
            raise SystemExit(f"{self.name}: more than {EXTRAS_MAX} extras")


class Table:
    def __init__(self, path):
        self.enums, self.structs, self.types, self.functions = {}, {}, {}, []
        members = None
        for number, line in enumerate(open(path), 1):
            line = line.rstrip("\n")
            words = line.split()
            if not words or line.startswith("#") or words[0] == "toolkit":
                continue
            if line.startswith("\t"):
                members.append(line[1:].split(" ", 1))
            elif words[0] == "enum":
                members = self.enums[words[1]] = []
            elif words[0] == "struct":
                members = []
                self.structs[words[1]] = (int(words[2]), members)
            elif words[0] == "type":
                self.types[words[1]] = words[2:]
            else:
                match = re.fullmatch(r"(\d+) (\w+) (\w+)\((.*)\)", line)
                if not match:
                    sys.exit(f"{path}:{number}: not understood")
                self.functions.append(Function(*match.groups()))
        self.functions.sort(key=lambda function: function.name)
        for function in self.functions:
            function.lay_out(self)

    def target(self, text):
        """What a pointer points to; None: anything."""
        text = re.sub(r" ?\*$", "", text)
        plain = re.sub(r"^const ", "", text)
        return None if plain == "void" else text

    def type(self, text):
        """Kind and size of a type."""
        text = re.sub(r"^const ", "", text)
        array = re.fullmatch(r"(.*?) ?\[(\d+)\](.*)", text)
        if array:
            return "bytes", self.type(array[1] + array[3])[1] * int(array[2])
        if text.endswith("*"):
            return "pointer", 8
        if text in BUILTIN:
            return BUILTIN[text]
        if text in self.enums:
            return "enum", 4
        if text in self.structs:
            return "struct", self.structs[text][0]
        words = self.types[text]
        return self.type(" ".join(words[1:])) if words[0] == "=" else (words[0], int(words[1]))


def shim(table):
    functions = table.functions
    read_max = max(size for function in functions for _, _, _, size in function.extras)
    lines = [SHIM % (len(functions), max(function.words for function in functions), read_max)]
    for function in functions:
        extras = "".join(", { %d, %d, %d, %d }" % extra for extra in function.extras)
        lines.append(f"FUNCTION({function.number}, {function.name}, {function.words}, {function.floats}{extras})\n")
    lines.append("#endif\n/* clang-format on */\n")
    return "".join(lines)


def assembly(table):
    return ASSEMBLY + "".join(f"FUNCTION {i}, {function.name}\n" for i, function in enumerate(table.functions))


class Source:
    """The tables behind lib/function.h. Everything has a number in its array, because things refer to each other in circles."""

    def __init__(self, table):
        self.table = table
        self.types, self.structs, self.enums = {}, {}, {}  # name: number
        self.type_rows, self.struct_rows, self.field_rows, self.enum_rows, self.value_rows = [], [], [], [], []

    def enum(self, name):
        if name not in self.enums:
            self.enums[name] = len(self.enums)
            values = sorted(((int(value), member) for value, member in self.table.enums[name]), key=lambda pair: pair[0])
            self.enum_rows.append(f'{{ "{name}", {len(values)}, values + {len(self.value_rows)} }}')
            self.value_rows += [f'{{ {value}, "{member}" }}' for value, member in values]
        return f"&enums[{self.enums[name]}]"

    def struct(self, name):
        if name not in self.structs:
            size, members = self.table.structs[name]
            self.structs[name] = len(self.structs)
            self.struct_rows.append(None)
            rows = []
            for offset, text in members:
                kind, field = re.fullmatch(r"(.*?)(\w+)", text).groups()
                rows.append(f'{{ "{field}", {offset}, {self.type(kind.strip())} }}')
            self.struct_rows[self.structs[name]] = f'{{ "{name}", {size}, {len(rows)}, fields + {len(self.field_rows)} }}'
            self.field_rows += rows
        return f"&structs[{self.structs[name]}]"

    def resolve(self, text):
        """The name of the struct or enum that a type is."""
        text = re.sub(r"^const ", "", text)
        while self.table.types.get(text, [""])[0] == "=":
            text = " ".join(self.table.types[text][1:])
        return text

    def type(self, text):
        if text not in self.types:
            self.types[text] = len(self.types)
            self.type_rows.append(None)
            kind, size = self.table.type(text)
            enumeration = structure = target = "NULL"
            if kind == "enum":
                enumeration = self.enum(self.resolve(text))
            elif kind == "struct":
                structure = self.struct(self.resolve(text))
            elif text == "const char *":
                kind = "string"
            elif text.endswith("*") and self.table.target(text):
                target = self.type(self.table.target(text))
            kind = "bytes" if kind == "opaque" else kind
            self.type_rows[self.types[text]] = f'{{ "{text}", FUNCTION_{kind.upper()}, {size}, {enumeration}, {structure}, {target} }}'
        return f"&types[{self.types[text]}]"


def marked(function, mark):
    return next((i for i, argument in enumerate(function.arguments) if argument.mark == mark), -1)


def typed(function, name):
    return next((i for i, argument in enumerate(function.arguments) if argument.type == name), -1)


def c(table):
    source = Source(table)
    arguments, extras, functions = [], [], []
    for function in table.functions:
        size = marked(function, "size")
        functions.append(
            f'{{ {function.number}, FUNCTION_{function.kind.upper()}, "{function.name}", "{function.base}", '
            f"{function.words}, {function.floats}, "
            f"{len(function.arguments)}, {len(function.extras)}, arguments + {len(arguments)}, extras + {len(extras)}, "
            f"{size}, {function.arguments[size].unit if size >= 0 else 0}, {marked(function, 'rows')}, "
            f"{marked(function, 'stream')}, {typed(function, 'CUcontext')}, {typed(function, 'CUdevice')}, "
            f"{typed(function, 'CUfunction') if function.kind == 'launch' else -1} }}"
        )
        arguments += [f'{{ "{a.name}", {source.type(a.type)}, {a.word}, {a.words}, {"true" if a.mark == "out" else "false"} }}' for a in function.arguments]
        extras += ["{ %d, %d, %d, %d }" % extra for extra in function.extras]
    results = source.enum("CUresult")
    numbers = {function.number: i for i, function in enumerate(table.functions)}
    if len(numbers) != len(functions):
        raise SystemExit("two functions have one number")
    arrays = [
        ("function_enumerator", "values", source.value_rows),
        ("function_enum", "enums", source.enum_rows),
        ("function_field", "fields", source.field_rows),
        ("function_struct", "structs", source.struct_rows),
        ("function_type", "types", source.type_rows),
        ("function_argument", "arguments", arguments),
        ("function_extra", "extras", extras),
        ("function", "functions", functions),
    ]
    text = [NOTE, '#include "lib/function-table.h"\n\n', f"static const struct function_type types[{len(source.type_rows)}];\n"]
    for kind, name, rows in arrays:
        text.append(f"\nstatic const struct {kind} {name}[{len(rows)}] = {{\n" + "".join(f"\t{row},\n" for row in rows) + "};\n")
    text.append("\nconst struct function *const function_all[] = {\n" + "".join(f"\tfunctions + {i},\n" for i in range(len(functions))) + "};\n")
    text.append(f"const size_t function_count = {len(functions)};\n")
    text.append(
        "\nconst uint16_t function_table_numbers[TRACE_FUNCTION_DYNAMIC] = {\n"
        + "".join(f"\t[{number}] = {i + 1},\n" for number, i in sorted(numbers.items()))
        + "};\n"
    )
    text.append(f"const struct function_enum *const function_table_results = {results};\n")
    return "".join(text)


FORMATS = {"c": c, "shim": shim, "assembly": assembly}


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in FORMATS:
        sys.exit("usage: function-table.py FORMAT FUNCTIONS.TXT OUTPUT")
    text = FORMATS[sys.argv[1]](Table(sys.argv[2]))
    with open(sys.argv[3], "w") as output:
        output.write(text)


if __name__ == "__main__":
    main()
