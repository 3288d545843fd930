# SPDX-License-Identifier: Apache-2.0
"""_native.pyi has exactly the names and arguments of _native; every public name is documented."""
import ast
import inspect
import re
import unittest
from pathlib import Path

import common
import shardmesh
from shardmesh import _native


def arguments(node):
    return [one.arg for one in node.args.args if one.arg != "self"]


def declared():
    """{name: its arguments; None for other things than functions}, with methods as Class.method."""
    names = {}
    for node in ast.parse((Path(shardmesh.__file__).parent / "_native.pyi").read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names[node.name] = arguments(node)
        elif isinstance(node, ast.ClassDef):
            names[node.name] = None
            for inner in node.body:
                is_property = any(getattr(d, "id", "") == "property" for d in inner.decorator_list)
                names[f"{node.name}.{inner.name}"] = None if is_property else arguments(inner)
        elif isinstance(node, ast.AnnAssign):
            names[node.target.id] = None
    return names


def signature(function):
    """The arguments of a pybind11 function; its docstring begins with `name(self: T, path: str, ...) -> ...`."""
    inner = re.match(r"\w+\((.*)\) -> ", function.__doc__).group(1)
    return [name for name in re.findall(r"(\w+): ", re.sub(r"\[[^\]]*\]", "", inner)) if name != "self"]


class StubTest(unittest.TestCase):
    def test_the_stub_is_the_module(self):
        found = {}
        for name, value in vars(_native).items():
            if name.startswith("__"):
                continue
            found[name] = signature(value) if callable(value) and not inspect.isclass(value) else None
            if inspect.isclass(value):
                for inner, member in vars(value).items():
                    if not inner.startswith("_"):
                        is_property = isinstance(member, property)
                        found[f"{name}.{inner}"] = None if is_property else signature(getattr(value, inner))
        self.assertEqual(declared(), found)

    def test_every_public_function_and_class_says_what_it_is(self):
        for name in shardmesh.__all__:
            value = getattr(shardmesh, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                self.assertTrue((value.__doc__ or "").strip(), name)

    def test_the_package_says_that_it_is_typed(self):
        self.assertTrue((Path(shardmesh.__file__).parent / "py.typed").exists())


if __name__ == "__main__":
    common.main()
