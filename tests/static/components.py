# SPDX-License-Identifier: Apache-2.0
"""Compares the table of components in docs/install.md with the build: every component of the package is listed once,
with the libraries that its consumers need, and whether a consumer must name it. docs/versioning.md lists the modules of
the components that must be named.

    components.py ROOT
"""
import re
import sys
from pathlib import Path

KEYWORDS = ["OPTIONAL", "APART", "PLAIN", "PLAIN_LINKS", "IMPORTS", "LINKS", "HEADERS", "TARGET", "FIND", "FOUND_ALREADY",
            "LICENSE", "FLAGS", "PURL", "VERSION"]
# Consumers look for nothing. The second one is empty with a shared libcurl, as docs/install.md says.
SYSTEM = {"${CMAKE_DL_LIBS}", "${SHARDMESH_STATIC_CURL}"}
APART = {"tools": set(), "c_api": set(), "cuda_kernels": set()}  # programs and shared libraries: nothing is linked statically


def calls(text, command):
    """(name, {keyword: words}) of each call of a command, without comments."""
    text = re.sub(r"#[^\n]*", "", text)
    for inner in re.findall(rf"\b{command}\(\s*([^()]*)\)", text):
        name, *words = inner.split()
        arguments, keyword = {}, ""
        for word in words:
            if word in KEYWORDS:
                keyword = word
                arguments.setdefault(keyword, [])
            else:
                arguments.setdefault(keyword, []).append(word)
        yield name, arguments


def third_parties(root):
    """{target as rooms spell it: name}"""
    names = {}
    for name, arguments in calls((root / "cmake/dependencies.cmake").read_text(), "shardmesh_third_party"):
        for target in [*arguments["TARGET"], f"${{SHARDMESH_TARGET_{name}}}"]:
            names[target] = name
    return names


def built(root):
    """{component: (must it be named, names of libraries)}"""
    names, found = third_parties(root), {}
    text = (root / "modules/CMakeLists.txt").read_text()
    for name, arguments in [*calls(text, "shardmesh_room"), *calls(text, "shardmesh_component")]:
        libraries = set()
        for other in arguments.get("IMPORTS", []):
            libraries |= found[other][1]
        for target in arguments.get("LINKS", []) + arguments.get("PLAIN_LINKS", []):
            if target not in SYSTEM:
                libraries.add(names[target])
        found[name] = ("OPTIONAL" in arguments, libraries)
    return found | {name: (True, libraries) for name, libraries in APART.items()}


def listed(page, say):
    """The same of the table."""
    found = {}
    for components, named, libraries in re.findall(r"^\| (`[^|]*`) \| (yes|no) \| ([^|]*) \|$", page, re.M):
        needs = set() if libraries == "none" else set(libraries.split(", "))
        for name in re.findall(r"`(\w+)`", components):
            if name in found:
                say(f"docs/install.md lists {name} twice")
            found[name] = (named == "yes", needs)
    return found


def main(root):
    wrong = []
    wanted, found = built(root), listed((root / "docs/install.md").read_text(), wrong.append)
    for name in sorted(wanted.keys() | found.keys()):
        if name not in wanted:
            wrong.append(f"docs/install.md lists {name}, which is no component")
        elif name not in found:
            wrong.append(f"docs/install.md lacks the component {name}")
        elif found[name] != wanted[name]:
            named, libraries = wanted[name]
            wrong.append(f"docs/install.md: {name} must {'' if named else 'not '}be named, and needs "
                         f"{', '.join(sorted(libraries)) or 'none'}; the table says {found[name]}")
    optional = {name for name, (named, _) in wanted.items() if named} - APART.keys()
    versions = (root / "docs/versioning.md").read_text()
    promised = re.search(r"components' modules \(([^)]*)\)", versions)
    modules = set(re.findall(r"\.(\w+)`", promised.group(1))) if promised else set()
    if modules != optional:
        wrong.append(f"docs/versioning.md: the components' modules are {sorted(optional)}, and it lists {sorted(modules)}")
    print("\n".join(wrong) or f"{len(wanted)} components are listed as the build has them")
    return 1 if wrong or len(wanted) < 20 else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
