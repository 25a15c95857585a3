#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
test-docs.py GPUPROBED GPUPROBECTL SOURCE [GPUTRACE]: whatever a user can type or call has its place in a manual page, and in the completion. What is asked of is the
programs' own help, the interface, and the sources: who adds something finds out here what he has not documented.
"""

import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

DAEMON, CTL, SOURCE = (os.path.abspath(path) for path in sys.argv[1:4])
GPUTRACE = os.path.abspath(sys.argv[4]) if len(sys.argv) > 4 else None
DOCS = os.path.join(SOURCE, "docs")
GLOBAL = {"--help", "--version", "--json", "--pretty", "--session", "--socket"}


def read(*path):
    with open(os.path.join(*path)) as file:
        return file.read()


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout


def options_of(text):
    """Long options that a help text begins a line with, or has in its usage."""
    return set(re.findall(r"(?<![\w-])(--[a-z][a-z-]*[a-z])\b", text))


def page(name):
    """A page without scdoc's escapes."""
    return read(DOCS, name + ".scd").replace("\\", "")


def words_after(*command):
    """What completion is told may come next: commands and options."""
    return [line.removesuffix("=") for line in output(CTL, *command, "--words").splitlines()]


def commands():
    """Commands of gpuprobectl with their verbs, from its tables: {command: [verb, ...]}."""
    names = [word for word in words_after() if not word.startswith("-")]
    found = {name: [word for word in words_after(name) if not word.startswith("-")] for name in names}
    found["trace"].append("report")
    return found


def completed(*words):
    """What bash completion offers behind these words."""
    code = '. "$1"; COMP_WORDS=(gpuprobectl "${@:2}"); COMP_CWORD=$(($# - 1)); _gpuprobectl; printf "%s\\n" "${COMPREPLY[@]}"'
    env = {**os.environ, "PATH": f"{os.path.dirname(CTL)}:{os.environ['PATH']}"}
    command = ["bash", "-c", code, "bash", os.path.join(SOURCE, "ctl/completion/gpuprobectl.bash"), *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=30, check=True).stdout.splitlines()


class Docs(unittest.TestCase):
    def missing(self, what, names, text):
        """All that is missing, in one message."""
        lacking = [name for name in sorted(names) if not re.search(r"(?<![\w-])" + re.escape(name) + r"(?![\w-])", text)]
        self.assertEqual(lacking, [], f"not in {what}")

    def test_daemon_options(self):
        found = set(re.findall(r"^  (--[a-z-]+)", output(DAEMON, "--help"), re.M))
        self.assertGreater(len(found), 15)
        self.missing("docs/gpuprobed.8.scd", found, page("gpuprobed.8"))

    def test_settings(self):
        """Also those that are keys of the configuration file alone."""
        table = read(SOURCE, "daemon/gpuprobed/settings/config-table.c")
        names = re.findall(r'^\t\{ "([a-z-]+)", CONFIG_\w+(?!.*CONFIG_HIDDEN)', table, re.M)
        self.assertGreater(len(names), 15)
        pages = page("gpuprobed.8") + (page("gpuprobed.conf.5") if os.path.exists(os.path.join(DOCS, "gpuprobed.conf.5.scd")) else "")
        lacking = [name for name in names if not re.search(rf"--{name}\b|\*{name}\*|^{name} =", pages, re.M)]
        self.assertEqual(lacking, [], "not in docs/gpuprobed.8.scd, nor in gpuprobed.conf.5.scd")

    def test_commands(self):
        found = commands()
        self.assertIn("export", found["map"])
        self.assertGreater(len(found), 15)
        text = page("gpuprobectl.1")
        self.missing("what completion offers", found, "\n".join(completed("")))
        for command, verbs in found.items():
            self.missing("docs/gpuprobectl.1.scd", [f"*{command}"] if not verbs else [], text)
            self.missing(f"what completion offers behind {command}", verbs, "\n".join(completed(command, "")))
            self.missing(f"gpuprobectl {command} --help", verbs, output(CTL, command, "--help"))
            for verb in verbs:
                with self.subTest(command=command, verb=verb):
                    self.assertRegex(text, rf"\*{command} (\w+\|)*{verb}\*|\*{command} \w+\*\|\*{verb}\*|\*{command} {verb}")

    def test_command_options(self):
        text, told, offered = page("gpuprobectl.1"), set(), set()
        for command, verbs in commands().items():
            for words in [[command]] + [[command, verb] for verb in verbs]:
                done = subprocess.run([CTL, *words, "--help"], capture_output=True, text=True, timeout=30, check=False)
                with self.subTest(command=words):
                    self.assertTrue(done.stdout.startswith("Usage:"), done)
                    found = options_of(re.sub(r"gpuprobe(d|-\w+) --[\w-]+", "", done.stdout)) - GLOBAL
                    self.missing("docs/gpuprobectl.1.scd", found, text)
                    own = set(completed(*words, "--")) - GLOBAL
                    self.missing(f"gpuprobectl {' '.join(words)} --help", own, "\n".join(found))
                    told |= found
                    offered |= own
        self.missing("what completion offers", told, "\n".join(offered))

    def test_gputrace(self):
        """Options, probes, words and functions are in the page; scripts of the page and the tutorial are right."""
        if not GPUTRACE:
            self.skipTest("gputrace was not built")
        text = page("gputrace.1")
        found = options_of(output(GPUTRACE, "--help"))
        self.assertGreater(len(found), 9)
        self.missing("docs/gputrace.1.scd", found, text)
        probes, words, functions = re.split(r"\n\n(?:Words|Functions)[^\n]*\n", output(GPUTRACE, "--list"))
        names = set(re.findall(r"^  ([A-Za-z.]+)", probes, re.M)) | set(re.findall(r"^  (\w+)", words + "\n" + functions, re.M))
        self.assertGreater(len(names), 50)
        self.missing("docs/gputrace.1.scd", names, text)
        pages = text.replace("\\", "") + re.sub(r"\n\$ gputrace[^\n]*\ngputrace:[^\n]*", "", read(DOCS, "gputrace.md")) + read(DOCS, "guides/from-bpftrace.md")
        scripts = re.findall(r"gputrace (?:-v --dry-run )?-e '([^']*)'", pages)
        self.assertGreater(len(scripts), 25)
        for script in scripts:
            with self.subTest(script=script):
                self.assertEqual(output(GPUTRACE, "--dry-run", "-e", script), "")

    def test_interface(self):
        """The page is made of the interface: all of it."""
        interface = os.path.join(SOURCE, "proto/io.gpuprobe.control.varlink")
        made = output(sys.executable, os.path.join(DOCS, "make-control-page.py"), interface)
        names = re.findall(r"^(?:method|type|error) (\w+)", read(interface), re.M)
        self.assertGreater(len(names), 40)
        self.missing("what make-control-page.py makes", [f"*{name}*" for name in names], made)
        members = set(re.findall(r"^  (\w+): ", read(interface), re.M))
        self.missing("what make-control-page.py makes", [f"*{name}*" for name in members], made.replace("\\", ""))
        # each has a word of explanation
        self.assertNotRegex(made, r"(?m)^\*\w+\*\n\t\n")

    def test_points(self):
        """Each row of the table has its place: a kind of section in the completion, a class of instructions and a name in the interface."""
        rows = re.findall(r'\{ "(\w+)",\s*POINT_(\w+),\s*"(\w+)",', read(SOURCE, "proto/point.h"))
        self.assertGreater(len(rows), 10)
        text, job, interface = page("gpuprobectl.1"), read(SOURCE, "daemon/worker/job.md"), read(SOURCE, "proto/io.gpuprobe.control.varlink")
        completion = read(SOURCE, "ctl/completion/gpuprobectl.bash")
        for name, kind, section in rows:
            with self.subTest(point=name):
                self.assertRegex(interface, rf"(?m)^  # (?=entry, return, ).*\b{name}\b")
                self.assertRegex(text, rf"\*@{name}\*" if kind == "CLASS" else rf"\*{section}/\*")
                self.assertRegex(job, rf"`@{name}`|@{name}`|`{section}/")
                self.assertRegex(completion, rf"[ \"]{section}/ ")

    def test_wire(self):
        header, text = read(SOURCE, "proto/wire.h"), page("gpuprobe-wire.7")
        for name, number in re.findall(r"^\tWIRE_(\w+) = (\d+),", re.search(r"enum wire_type \{(.*?)\};", header, re.S)[1], re.M):
            self.assertIn(f"*{name}* ({number})", text)
        self.assertIn("version %s of" % re.search(r"WIRE_VERSION UINT16_C\((\d+)\)", header)[1], text)
        for role in re.findall(r"^\tWIRE_ROLE_(\w+) =", header, re.M):
            self.assertIn(f"*{role}*", text)

    def test_messages(self):
        """What the journal explains is in the operator's guide."""
        guide = read(DOCS, "guides/operator.md")
        for id, subject in re.findall(r"^-- (\w{32})\nSubject: (.*)$", read(SOURCE, "systemd/gpuprobed.catalog"), re.M):
            with self.subTest(subject=subject):
                self.assertIn(id, guide)

    def test_pages(self):
        """Each page is built, can be read, and refers to pages that there are."""
        names = sorted(name.removesuffix(".scd") for name in os.listdir(DOCS) if name.endswith(".scd"))
        build = read(DOCS, "meson.build")
        self.missing("docs/meson.build", [f"'{name}'" for name in names], build)
        for name in names:
            for title, section in re.findall(r"\*((?:gpuprobe|io\.gpuprobe)[\w.-]*)\*\((\d)\)", page(name)):
                with self.subTest(page=name):
                    self.assertIn(f"{title}.{section}", names + ["io.gpuprobe.control.7"])
            if shutil.which("scdoc"):
                with open(os.path.join(DOCS, name + ".scd")) as file:
                    done = subprocess.run(["scdoc"], stdin=file, capture_output=True, text=True, timeout=30, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""), name)

    def test_compile(self):
        """Lines that compile a program do so as they stand, but for where the header and the source are."""
        clang = shutil.which("clang-19") or shutil.which("clang")
        if not clang:
            self.skipTest("no clang")
        lines = [
            line for name in ((SOURCE, "README.md"), (DOCS, "guides/operator.md")) for line in re.findall(r"^\$ clang (.*?)(?:  +#.*)?$", read(*name), re.M)
        ]
        self.assertEqual(len(lines), 2, lines)
        with tempfile.TemporaryDirectory() as folder:
            for name in "proto", "docs":
                os.symlink(os.path.join(SOURCE, name), os.path.join(folder, name))
            shutil.copy(os.path.join(DOCS, "examples/counter.bpf.c"), folder)
            for line in lines:
                done = subprocess.run(
                    ["sh", "-c", f"'{clang}' {line}"],
                    cwd=folder,
                    env={**os.environ, "CPATH": os.path.join(SOURCE, "proto")},
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                )
                self.assertEqual((done.returncode, done.stderr), (0, ""), line)
                os.unlink(os.path.join(folder, "counter.bpf.o"))

    def test_links(self):
        """What README, SECURITY, the pages and the guides point to is there."""
        files = [os.path.join(SOURCE, name) for name in ("README.md", "SECURITY.md")]
        files += [os.path.join(DOCS, name) for name in os.listdir(DOCS) if name.endswith(".md")]
        files += [os.path.join(DOCS, "guides", name) for name in os.listdir(os.path.join(DOCS, "guides"))]
        for file in files:
            for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", read(file)):
                with self.subTest(file=file, target=target):
                    self.assertTrue(os.path.exists(os.path.join(os.path.dirname(file), target)))

    def test_architecture(self):
        """Each file that architecture.md, adding.md, glossary.md and the decisions name is there, if only in one of the folders that they speak of."""
        there = [
            os.path.relpath(os.path.join(folder, file), SOURCE)
            for top in os.listdir(SOURCE)
            if not top.startswith((".", "build"))
            for folder, _, files in os.walk(os.path.join(SOURCE, top))
            for file in files
        ]
        pages = ["architecture.md", "adding.md", "glossary.md", *(os.path.join("decisions", name) for name in os.listdir(os.path.join(DOCS, "decisions")))]
        text = "".join(read(DOCS, page) for page in pages)
        named = set(re.findall(r"`([\w./*-]+\.(?:c|h|S|py|md|txt|json|varlink))`", text))
        self.assertGreater(len(named), 80)
        lacking = [name for name in sorted(named) if not any(fnmatch.fnmatch("/" + path, "*/" + name) for path in there)]
        self.assertEqual(lacking, [])


unittest.main(argv=sys.argv[:1])
