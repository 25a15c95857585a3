#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Each claim of SECURITY.md names the tests that show it: test-security.py SOURCE BUILD. A claim is a list item of the chapters in CLAIMS, and ends with [test] or
[test: function], one or more, which exist in the build. What no test shows is in another chapter. The tables of TABLES have tests in their last column: NAME, NAME: FUNCTIONS,
or NAME: a case of tests/conformance.
"""

import json
import os
import re
import sys

CLAIMS, NOT_TESTED = "From each place", "Not tested"
TABLES = "docs/decisions/0017-safe-on-a-gpu.md"
LENGTH_MAX = 420  # of a claim: one thing
TAG = re.compile(r"\[([a-z0-9-]+)(?:: (test_[a-z0-9_]+))?\]")
TAGS = re.compile(r"((?:\s*" + TAG.pattern.replace("(test_", "(?:test_").replace("([a", "(?:[a") + r")+)$")


def chapters(text):
    """Their titles and texts."""
    parts = re.split(r"^## (.*)$", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def items(text):
    """List items, on one line each."""
    return [" ".join(item.split()) for item in re.findall(r"^- (.*(?:\n(?![-#\n]).+)*)", text, flags=re.M)]


class Tests:
    """What the build has: names, and for each the sources."""

    def __init__(self, build):
        with open(f"{build}/meson-info/intro-tests.json", encoding="utf-8") as file:
            tests = json.load(file)
        with open(f"{build}/meson-info/intro-targets.json", encoding="utf-8") as file:
            sources = {
                path: [source for group in target["target_sources"] for source in group.get("sources", [])]
                for target in json.load(file)
                for path in target["filename"]
            }
        self.files = {}
        for test in tests:
            paths = [path for word in test["cmd"] for path in sources.get(word, [word] if word.endswith((".py", ".sh")) else [])]
            self.files.setdefault(test["name"], set()).update(paths)

    def has_function(self, name, function):
        for path in self.files[name]:
            if os.path.isfile(path):
                with open(path, encoding="utf-8") as file:
                    if re.search(rf"^(\s*def|static void) {function}\(", file.read(), flags=re.M):
                        return True
        return False


def troubles(text, tests):
    """What is wrong with the page, a line each."""
    parts = chapters(text)
    for chapter in CLAIMS, NOT_TESTED:
        if not items(parts.get(chapter, "")):
            yield f"there is no chapter {chapter}, or nothing in it"
            return
    for claim in items(parts[CLAIMS]):
        tags = TAGS.search(claim)
        if not tags:
            yield f"names no test at its end: {claim}"
            continue
        if tags.start() > LENGTH_MAX:
            yield f"says more than one thing ({tags.start()} bytes): {claim}"
        for name, function in TAG.findall(tags[1]):
            if name not in tests.files:
                yield f"there is no test {name}: {claim}"
            elif function and not tests.has_function(name, function):
                yield f"{name} has no {function}: {claim}"
    for other in items(parts[NOT_TESTED]):
        if TAGS.search(other):
            yield f"names a test, and is under {NOT_TESTED}: {other}"


def has_case(source, name, case):
    path = f"{source}/tests/conformance/cases/{name.removeprefix('conformance-')}.txt"
    if not os.path.isfile(path):
        return False
    with open(path, encoding="utf-8") as file:
        return any(line.startswith(f"== {case.removesuffix(' ...')}") for line in file)


def table_troubles(text, source, tests):
    """The same of a page with tables."""
    rows = [row.strip("| ").split(" | ") for row in text.splitlines() if row.startswith("| ")]
    rows = [row for row in rows if row[-1] != "test"]
    if not rows:
        yield "there is no table"
    for row in rows:
        for item in re.split(r", (?=\*\*|[a-z0-9-]+(?::|,|$))", re.sub(r" \([^)]*\)$", "", row[-1])):
            name, _, what = item.strip("*").partition(": ")
            if name not in tests.files:
                yield f"there is no test {name}: {row[0]}"
            elif what.startswith("test_"):
                yield from (f"{name} has no {function}: {row[0]}" for function in what.split(", ") if not tests.has_function(name, function))
            elif what and not has_case(source, name, what):
                yield f"{name} has no case {what}: {row[0]}"


def self_test(source, tests):
    """What is wrong is found."""
    page = f"## {CLAIMS}\n\n- One. [names]\n- Two, of\n  two lines. [names] [security]\n{{}}\n## {NOT_TESTED}\n\n- Three.\n{{}}"
    assert not list(troubles(page.format("", ""), tests))
    for more, untested, what in (
        ("- Four.", "", "names no test"),
        ("- Four [names] is.", "", "names no test"),
        ("- Four. [nobody]", "", "no test nobody"),
        ("- Four. [names] [nobody]", "", "no test nobody"),
        ("- Four. [e2e-hostile-service: test_nothing]", "", "has no test_nothing"),
        ("- " + "Four " * LENGTH_MAX + "[names]", "", "more than one thing"),
        ("", "- Four. [names]", "is under"),
    ):
        found = list(troubles(page.format(more, untested), tests))
        assert len(found) == 1 and what in found[0], (more, untested, found)
    assert list(troubles("", tests))
    row = "| difference | test |\n|---|---|\n| One | {} |\n"
    for cell in (
        "names",
        "**names**, security",
        "ring: test_counters, test_hostile",
        "**conformance-maps: a value that is read, then replaced**",
        "names (half)",
    ):
        assert not list(table_troubles(row.format(cell), source, tests)), cell
    for cell in ("", "nobody", "names, **nobody**", "ring: test_counters, test_nothing", "conformance-maps: nothing", "names: a case"):
        assert len(list(table_troubles(row.format(cell), source, tests))) == 1, cell
    assert list(table_troubles("", source, tests))
    assert not list(troubles(page.format("- Four. [e2e-hostile-service: test_holes] [ring: test_counters]", ""), tests))


def main(source, build):
    tests = Tests(build)
    self_test(source, tests)
    with open(f"{source}/SECURITY.md", encoding="utf-8") as file:
        found = [f"SECURITY.md: {line}" for line in troubles(file.read(), tests)]
    with open(f"{source}/{TABLES}", encoding="utf-8") as file:
        found += [f"{TABLES}: {line}" for line in table_troubles(file.read(), source, tests)]
    print("\n".join(found) or "each claim names a test that there is")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
