#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No test, and no helper of tests, is lost because something behind it has the same name."""

import ast
import os
import sys

SCOPES = (ast.Module, ast.ClassDef)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def twice(path):
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read(), path)
    for scope in ast.walk(tree):
        seen = set()
        for node in scope.body if isinstance(scope, SCOPES) else []:
            if isinstance(node, FUNCTIONS):
                if node.name in seen and not node.decorator_list:
                    yield f"{path}:{node.lineno}: another {node.name} came before"
                seen.add(node.name)


def main(source):
    paths = [
        os.path.join(folder, name)
        for part in ("ctl", "daemon", "docs", "lib", "passes", "shim", "systemd", "tests")
        for folder, _, names in os.walk(os.path.join(source, part))
        for name in names
        if name.endswith(".py")
    ]
    found = [line for path in paths for line in twice(path)]
    print("\n".join(found) or f"{len(paths)} files")
    return 1 if found or len(paths) < 50 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
