#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make-functions.py TOOLKIT [CLANG]: prints functions.txt, made of a CUDA toolkit's own metadata.

Which functions there are is what the stub libcuda.so exports; what their arguments are, generated_cuda_meta.h (or cuda.h) as clang reads it;
their numbers, cupti_driver_cbid.h. What no header says (what a function is about, which pointers it writes through, which argument counts bytes)
is said by the rules below.
"""

import json
import os
import re
import subprocess
import sys

HEADER = """\
# SPDX-License-Identifier: Apache-2.0
#
# Every function that libcuda exports: facts of the interface, read from the CUDA toolkit's metadata by make-functions.py. Not written by hand.
# For a newer toolkit:
#
#	proto/make-functions.py /usr/local/cuda >proto/functions.new && mv proto/functions.new proto/functions.txt
#
# and run the tests of the layer `trace`. Numbers of functions are CUPTI's callback ids, which never change; one without has a number of ours
# (TRACE_FUNCTION_OWN), which is kept from the table that was here before. Rules for classes and marks are in make-functions.py.
#
#	toolkit VERSION
#	enum NAME SIZE			each enumerator on a line of its own: value, name
#	struct NAME SIZE		each field on a line of its own: offset, type, name; of a union only the size is told
#	type NAME KIND SIZE		int, uint, float, bool, handle (shown in hexadecimal), pointer (to a function), opaque (nobody knows what is in it)
#	type NAME = NAME
#	NUMBER CLASS NAME(ARGUMENT, ...)
#
# A mark before an argument: `out`, the function gives a value of at most 8 bytes back through it; `read`, it points to a struct to be read at the
# call; `string`, to a text; `stream`; `size`, or `size*4`: it counts bytes, or units of 4 bytes; `rows`: the size is to be multiplied by it.
"""

# The first rule whose pattern is found at the beginning of a name without its version decides.
CLASSES = [
    ("launch", r"cuLaunch|cuGraphLaunch$"),
    (
        "sync",
        r"cu(Ctx|Stream|Event)Synchronize$|cu(Stream|Ctx|GreenCtx)Wait|cuStreamWriteValue|cuStreamBatchMemOp|"
        r"cu(Signal|Wait)ExternalSemaphores|cuFlushGPUDirectRDMAWrites$",
    ),
    ("transfer", r"cuMemcpy|cuMemset|cuMemPrefetch|cuMemDiscard|cuMemBatchDecompress"),
    ("ipc", r"cuIpc|cuMem(Export|Import)|cuMemPool(Export|Import)|cuMemGetHandleForAddressRange$|cu(Import|Destroy)External|cuExternalMemory"),
    (
        "module",
        r"cuModule(Load|Unload|Get(Function|Global|TexRef|SurfRef)$)|cuLink|"
        r"cuLibrary(Load|Unload|Get(Kernel|Global|Managed|Module|UnifiedFunction)$)",
    ),
    (
        "query",
        r"cu[A-Za-z0-9]*(Query$|GetErr)|cuGet|cuOccupancy|cuDeviceCan|cuDeviceComputeCapability|cuDeviceTotalMem|cuDriverGet|"
        r"cuCtx(Push|Pop)Current|cuFuncIsLoaded|cuStreamIsCapturing|cuModule|cuLibrary|cuGraphicsResourceGet|"
        r"cu(Graph(?!ics)|Device|Ctx|GreenCtx|Mem|MemPool|Array|MipmappedArray|Pointer|Stream|"
        r"Func|Kernel|TexRef|TexObject|SurfRef|SurfObject|Multicast|Coredump|Checkpoint)[A-Za-z0-9]*Get(?!$)",
    ),
    ("graph", r"cuGraph(?!ics)|cuStream(Begin|End|Update)(Rec|C)apture|cuThreadExchangeStreamCaptureMode$|cuUserObject"),
    ("event", r"cuEvent|cu(Green)?CtxRecordEvent$"),
    (
        "memory",
        r"cuMem|cuArray|cuMipmappedArray|cuMulticast|cuLogicalEndpoint|cuPointer|cuGraphics|cuStreamAttachMem|"
        r"cuDevice(GraphMemTrim|SetMemPool|SetGraphMem)",
    ),
    ("stream", r"cuStream|cuGreenCtxStreamCreate$"),
    ("context", r"cuCtx|cuGreenCtx|cuDevicePrimaryCtx|cuDevResource|cuDevSmResource"),
    ("device", r"cuInit$|cuDevice|cuDriver"),
    ("module", r"cuFunc|cuKernel|cuParamSet"),
    ("other", r""),
]

# Pointers to small values that a function does not write one value through: arrays, and what it reads.
NOT_OUT = re.compile(
    r"""dsts|srcs|sizes|attrsIdxs|dptrs|prefetchLocs|prefetchLocIdxs|options|jitOptions|libraryOptions|optionValues|jitOptionsValues|
    libraryOptionValues|kernelParams|extra|attributes|dataSizes|data|nodes|rootNodes|from|to|dependencies|dependentNodes|edgeData|kernels|functions|
    resources|pBorderColor|capabilities|paramsArray|paramArray|attrs|location|shareData""",
    re.VERBOSE,
)
# Structs that are behind a pointer once, and are read at the call, although nothing says const.
ALSO_READ = {
    ("CUmemLocation *", "location"),
    ("CUctxCreateParams *", "ctxCreateParams"),
    ("CUDA_MEM_ALLOC_NODE_PARAMS *", "nodeParams"),
    ("CUDA_GRAPH_INSTANTIATE_PARAMS *", "instantiateParams"),
}
# Arrays, of which there may be none.
NOT_READ = re.compile("paramsArray|extSemArray|dependencyData|edgeData|input|from|to|operations")
READ_MAX = 256
EXTRAS_MAX = 4

SIZES = {"bytesize", "Bytesize", "ByteCount", "size", "length", "WidthInBytes", "N", "Width"}
COUNTS_BYTES = {"cuMemPrefetchAsync", "cuMemAdvise"}  # in others `count` is of things
HANDLES = {
    "CUdeviceptr",
    "CUdeviceptr_v1",
    "CUdeviceptr_v2",
    "CUtexObject",
    "CUtexObject_v1",
    "CUsurfObject",
    "CUsurfObject_v1",
    "CUmemGenericAllocationHandle",
    "CUmemGenericAllocationHandle_v1",
    "CUgraphConditionalHandle",
}
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
OWN = 2048  # TRACE_FUNCTION_OWN


def base_name(name):
    return re.sub(r"(_v\d+)?(_pt[ds][sz])?$", "", name)


class Toolkit:
    def __init__(self, folder, clang):
        include = os.path.join(folder, "include")
        source = '#include <stddef.h>\n#include "generated_cuda_meta.h"\n#include "cudaProfiler.h"\n'
        tree = json.loads(
            subprocess.run(
                [clang, "-x", "c", "-std=gnu17", "-I" + include, "-D__CUDA_API_VERSION_INTERNAL", "-fsyntax-only", "-Xclang", "-ast-dump=json", "-"],
                input=source,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        self.version = re.search(r"#define CUDA_VERSION (\d+)", open(os.path.join(include, "cuda.h")).read())[1]
        self.numbers = {
            name: int(number) for name, number in re.findall(r"TRACE_CBID_(cu\w+)\s*=\s*(\d+)", open(os.path.join(include, "cupti_driver_cbid.h")).read())
        }
        symbols = subprocess.run(
            ["nm", "-D", "--defined-only", os.path.join(folder, "lib64/stubs/libcuda.so")], capture_output=True, text=True, check=True
        ).stdout
        self.names = sorted(name for name in re.findall(r" [TW] (\w+)", symbols) if name.startswith("cu"))
        self.records, self.enums, self.typedefs, self.declarations = {}, {}, {}, {}
        for node in tree["inner"]:
            self.declare(node)

    def declare(self, node):
        kind, name = node["kind"], node.get("name")
        if kind == "RecordDecl":
            if node.get("completeDefinition"):
                self.records[name or node["id"]] = node
        elif kind == "EnumDecl":
            self.enums[name or node["id"]] = node
        elif kind == "TypedefDecl":
            inner = node.get("inner", [{}])[0]
            self.typedefs[name] = (node["type"]["qualType"], inner.get("ownedTagDecl", {}).get("id"))
        elif kind == "FunctionDecl":
            self.declarations[name] = node

    def arguments(self, name):
        record = self.records.get(name + "_params_st")
        if record:
            return [(node["name"], node["type"]["qualType"]) for node in record["inner"] if node["kind"] == "FieldDecl"]
        return [(node["name"], node["type"]["qualType"]) for node in self.declarations[name].get("inner", []) if node["kind"] == "ParmVarDecl"]


def spell(text):
    """A type's name as the table writes it: `const T *`, without tags and restrict."""
    text = re.sub(r"\b(struct|union|enum|restrict|__restrict) ", "", text)
    return re.sub(r"\s*(\*+)$", r" \1", re.sub(r"\s+", " ", text).strip())


class Types:
    """All types that the functions need, in the order in which they are found."""

    def __init__(self, toolkit):
        self.toolkit = toolkit
        self.lines = {}  # name: lines
        self.sizes = {}  # name: (size, alignment, kind)
        self.owners = {}  # id of a declaration: its name in the table
        self.later = []  # what pointers point to: structs may point to themselves

    def need(self, text):
        """Size, alignment and kind of a type that is spelled so."""
        text = re.sub(r"\b(const|volatile) ", "", spell(text)).strip()
        array = re.fullmatch(r"(.*?) ?\[(\d+)\](.*)", text)
        if array:
            size, alignment, _ = self.need(array[1] + array[3])
            return size * int(array[2]), alignment, "bytes"
        if text.endswith("*"):
            target = text.rstrip("* ")
            if target != "void":
                self.later.append(target)
            return 8, 8, "pointer"
        if text in BUILTIN:
            kind, size = BUILTIN[text]
            return size, size, kind
        if text not in self.sizes:
            self.sizes[text] = self.define(text)
        return self.sizes[text]

    def used(self, lines):
        """Names of the types that lines speak of, and of those that these are made of."""
        while self.later:
            self.need(self.later.pop())
        names, found = set(), set(re.findall(r"[\w.]+", " ".join(lines))) & self.lines.keys() | {"CUresult"}
        while found:
            names |= found
            found = {
                word for name in found for line in self.lines[name] if not self.lines[name][0].startswith("enum ") for word in re.findall(r"[\w.]+", line)
            } & self.lines.keys() - names
        return names

    def define(self, name):
        declared, owned = self.toolkit.typedefs.get(name, (name, None))
        tag = re.sub(r"^(struct|union|enum) ", "", declared)
        for table in (self.toolkit.enums, self.toolkit.records):
            key = tag if tag in table else owned if owned in table else None
            if key is None:
                continue
            node = table[key]
            owner = self.owners.setdefault(node["id"], name)
            if owner != name:
                self.lines[name] = [f"type {name} = {owner}"]
                return self.sizes[owner]
            return self.define_enum(name, node) if node["kind"] == "EnumDecl" else self.define_record(name, node)
        if name in HANDLES:
            size = self.need(declared)[0]
            self.lines[name] = [f"type {name} handle {size}"]
            return size, size, "handle"
        if "(*)" in declared:
            self.lines[name] = [f"type {name} pointer 8"]
            return 8, 8, "pointer"
        if declared == name:  # struct that is nowhere defined, behind a pointer
            self.lines[name] = [f"type {name} opaque 0"]
            return 0, 1, "opaque"
        if declared.endswith("*"):  # to a struct that is nowhere defined: a handle
            self.lines[name] = [f"type {name} handle 8"]
            return 8, 8, "handle"
        size, alignment, kind = self.need(declared)
        if kind in ("int", "uint", "float", "bool", "handle"):
            self.lines[name] = [f"type {name} {kind} {size}"]
        else:
            self.lines[name] = [f"type {name} = {spell(declared)}"]
        return size, alignment, kind

    def define_enum(self, name, node):
        lines, value = [f"enum {name} 4"], -1
        for constant in node["inner"]:
            if constant["kind"] != "EnumConstantDecl":
                continue
            expression = next((inner for inner in constant.get("inner", []) if "value" in inner), None)
            value = int(expression["value"]) if expression else value + 1
            lines.append(f"\t{value} {constant['name']}")
        self.lines[name] = lines
        return 4, 4, "enum"

    def define_record(self, name, node):
        self.lines[name] = None  # keeps its place before those of its fields' pointers
        lines, size, alignment, nested = [], 0, 1, None
        for inner in node["inner"]:
            if inner["kind"] == "AlignedAttr":
                raise SystemExit(f"{name}: an alignment that this program does not understand")
            if inner["kind"] == "RecordDecl":
                nested = inner
                self.toolkit.declare(inner)
            if inner["kind"] != "FieldDecl":
                continue
            if inner.get("isBitfield"):
                raise SystemExit(f"{name}: a field of bits, which this program does not understand")
            text, field = inner["type"]["qualType"], inner.get("name", "")
            if "(unnamed" in text or "(anonymous" in text:
                array = re.search(r"\)((\[\d+\])*)$", text)[1]
                field = field or "union"
                text = f"{name}.{field}"
                if text not in self.sizes:
                    self.sizes[text] = self.define_record(text, nested)
                text += array
            field_size, field_alignment, _ = self.need(text)
            offset = 0 if node["tagUsed"] == "union" else (size + field_alignment - 1) // field_alignment * field_alignment
            lines.append(f"\t{offset} {spell(text)}{'' if text.endswith('*') else ' '}{field}".rstrip())
            size, alignment = max(size, offset + field_size), max(alignment, field_alignment)
        size = (size + alignment - 1) // alignment * alignment
        if node["tagUsed"] == "union":
            self.lines[name] = [f"type {name} opaque {size}"]
            return size, alignment, "opaque"
        self.lines[name] = [f"struct {name} {size}"] + lines
        return size, alignment, "struct"


def mark(types, name, argument, text, function_class):
    """What is said of an argument besides its type."""
    text = spell(text)
    if text == "CUstream":
        return "stream"
    if text == "const char *":
        return "string"
    if text.endswith("*"):
        target = re.sub(r"^const ", "", re.sub(r" ?\*$", "", text))
        size, _, kind = (8, 8, "pointer") if target.endswith("*") else (0, 1, "opaque") if target == "void" else types.need(target)
        if (text, argument) in ALSO_READ or text.startswith("const ") and kind == "struct" and size <= READ_MAX and not NOT_READ.fullmatch(argument):
            return "read"
        written = not text.startswith("const ") or text.endswith("**")
        if written and 0 < size <= 8 and kind != "opaque" and text != "char *" and not NOT_OUT.fullmatch(argument):
            return "out"
        return ""
    if function_class in ("memory", "transfer") and (argument in SIZES or argument == "count" and base_name(name) in COUNTS_BYTES):
        bits = re.search(r"cuMemset\w*D(\d+)(Async)?$", base_name(name))
        unit = int(bits[1]) // 8 if bits else 1
        return "size" if unit == 1 else f"size*{unit}"
    if argument == "Height" and re.match(r"cuMemset|cuMemAllocPitch", name):
        return "rows"
    return ""


def function_line(types, number, name, arguments):
    function_class = next(kind for kind, pattern in CLASSES if re.match(pattern, base_name(name)))
    marks = [mark(types, name, argument, text, function_class) for argument, text in arguments]
    extras = [i for i, what in enumerate(marks) if what in ("out", "read", "string")]
    if len(extras) > EXTRAS_MAX:  # pointers to arrays say least
        extras.sort(key=lambda i: arguments[i][1].endswith("**"))
        for i in extras[EXTRAS_MAX:]:
            marks[i] = ""
    words = []
    for (argument, text), what in zip(arguments, marks):
        types.need(text)
        words.append(f"{what} {spell(text)}{'' if text.endswith('*') else ' '}{argument}".strip())
    return f"{number} {function_class} {name}({', '.join(words)})"


def old_numbers(path):
    """Numbers of ours that the table gives already."""
    numbers = {}
    if os.path.exists(path):
        for line in open(path):
            match = re.match(r"(\d+) \w+ (\w+)\(", line)
            if match and int(match[1]) >= OWN:
                numbers[match[2]] = int(match[1])
    return numbers


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: make-functions.py TOOLKIT [CLANG]")
    toolkit = Toolkit(sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else "clang-19")
    types = Types(toolkit)
    own = old_numbers(os.path.join(os.path.dirname(os.path.abspath(__file__)), "functions.txt"))
    following = max([OWN - 1, *own.values()]) + 1
    types.need("CUresult")
    functions = []
    for name in toolkit.names:
        number = toolkit.numbers.get(name, own.get(name))
        if number is None:
            number, following = following, following + 1
        functions.append((number, function_line(types, number, name, toolkit.arguments(name))))
    functions = [line for _, line in sorted(functions)]
    used = types.used(functions)
    print(HEADER)
    print("toolkit", toolkit.version)
    for name in sorted(used):
        print("\n".join(types.lines[name]))
    print("\n".join(functions))


if __name__ == "__main__":
    main()
