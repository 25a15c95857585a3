#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make-control-page.py INTERFACE: the manual page io.gpuprobe.control(7), for scdoc, of the comments in the interface's file: it says what the interface says."""

import re
import sys


def escape(text):
    """Text for scdoc."""
    return re.sub(r"([\\*_#\[\]|<>~])", r"\\\1", text).replace(".\\n", ".\n")


def type_of(text):
    """A type, as people read it."""
    words = {"int": "integer", "bool": "truth", "string": "text", "float": "number"}
    if text.startswith("?"):
        return type_of(text[1:]) + ", may be absent"
    if text.startswith("[]"):
        return "list of " + type_of(text[2:])
    if text.startswith("[string]"):
        return "object of " + type_of(text[8:])
    return words.get(text, f"*{text}*")


def members(lines, i):
    """The members of a struct that begins in line i, over several lines: (name, type, comment), and the line behind it."""
    found, comment = [], []
    while True:
        i += 1
        line = lines[i].strip()
        if line.startswith("#"):
            comment.append(line[1:].strip())
        elif line.startswith(")"):
            return found, i
        elif line:
            name, kind = re.match(r"(\w+): (.*?),?$", line).groups()
            found.append((name, kind, " ".join(comment)))
            comment = []


def inline(text):
    """The members of a struct on one line."""
    return [(name, kind, "") for name, kind in re.findall(r"(\w+): ([\[\]?\w]+)", text)]


def write_members(found, out, title):
    if found:
        out.append(f"\t{title}:\n")
    for name, kind, comment in found:
        out.append(f"\t*{escape(name)}* ({type_of(kind)})" + (f"++\n\t{escape(comment)}" if comment else "") + "\n")


def main():
    with open(sys.argv[1]) as file:
        lines = file.read().split("\n")
    name = next(line.split()[1] for line in lines if line.startswith("interface "))
    start = lines.index("interface " + name)
    about = " ".join(line[1:].strip() for line in lines[:start] if line.startswith("#"))
    parts = {"type": [], "method": [], "error": []}
    comment = []
    i = start
    while i + 1 < len(lines):
        i += 1
        line = lines[i]
        match = re.match(r"(type|method|error) (\w+) ?\((.*)$", line)
        if line.startswith("#"):
            comment.append(line[1:].strip())
        elif match:
            kind, title, rest = match.groups()
            out = [f"*{title}*\n\t{escape(' '.join(comment))}\n"]
            comment = []
            if rest == "":
                found, i = members(lines, i)
                rest = lines[i].strip()[1:]
            else:
                inside, _, rest = rest.partition(")")
                found = inline(inside)
            write_members(found, out, {"type": "Members", "method": "Takes", "error": "Tells"}[kind])
            if kind == "method":
                answer = re.match(r" -> \((.*)$", rest).group(1)
                if answer == "":
                    found, i = members(lines, i)
                else:
                    found = inline(answer)
                write_members(found, out, "Answers")
            parts[kind].append("\n".join(out))
    print(f"{name}(7)\n\n# NAME\n\n{name} - the varlink interface of gpuprobed\n\n# DESCRIPTION\n\n{escape(about)}\n")
    print(
        "The protocol is varlink (_https://varlink.org_): messages in JSON, each with a NUL behind it, on a socket of the file system: _/run/gpuprobe/io.gpuprobe.control_; "
        "_/run/user/UID/gpuprobe[-NAME]/io.gpuprobe.control_ of a session daemon. *gpuprobectl*(1) speaks it; *varlinkctl*(1) does, and programs of yours can. Messages have at most "
        "16 MiB. A member that may be absent may be null, too. Who may call what: *gpuprobed*(8), AUTHORISATION. A later version may have more members and methods; "
        "none changes its meaning.\n\nThis page is made of the interface's own file, _io.gpuprobe.control.varlink_.\n"
    )
    for kind, title in (("method", "METHODS"), ("type", "TYPES"), ("error", "ERRORS")):
        print(f"# {title}\n")
        print("\n".join(parts[kind]))
    print(
        "# EXAMPLES\n\n```\n$ varlinkctl introspect /run/gpuprobe/io.gpuprobe.control io.gpuprobe.control\n"
        "$ varlinkctl call /run/gpuprobe/io.gpuprobe.control io.gpuprobe.control.Status '{}'\n"
        '$ varlinkctl call --more /run/gpuprobe/io.gpuprobe.control io.gpuprobe.control.DumpMap \'{"map":"counter"}\'\n```\n'
    )
    print("# SEE ALSO\n\n*gpuprobectl*(1), *gpuprobed*(8), *gpuprobe-wire*(7), *varlinkctl*(1)")


main()
