# SPDX-License-Identifier: Apache-2.0
"""Checks that one version is everywhere: CMake's, the header's (text and numbers), that in a test of the C interface,
and the changelog's, unless its newest changes are unreleased.

    versions.py ROOT
"""
import re
import sys
from pathlib import Path


def versions(root):
    header = (root / "include/shardmesh/version.hpp").read_text()
    numbers = dict(re.findall(r"#define SHARDMESH_VERSION_(MAJOR|MINOR|PATCH) (\d+)", header))
    yield "include/shardmesh/version.hpp, numbers", ".".join(numbers.get(n, "?") for n in ("MAJOR", "MINOR", "PATCH"))
    for file, pattern in {"CMakeLists.txt": r"project\(shardmesh VERSION ([\d.]+)",
                          "include/shardmesh/version.hpp": r'#define SHARDMESH_VERSION "([\d.]+)"',
                          "tests/unit/c_api/border_test.cpp": r'shardmesh_library_version\(\)\) == "([\d.]+)"'}.items():
        found = re.search(pattern, (root / file).read_text(), re.M)
        yield file, found.group(1) if found else "none"
    changes = (root / "CHANGELOG.md").read_text()
    newest = re.search(r"^## (?:\[Unreleased\]|\[([\d.]+)\] - \d{4}-\d{2}-\d{2})$", changes, re.M)
    if not newest or newest.group(1):
        yield "CHANGELOG.md", newest.group(1) if newest else "none"


def main(root):
    found = dict(versions(root))
    if len(set(found.values())) == 1:
        print(f"{len(found)} places say {found.popitem()[1]}")
        return 0
    print("\n".join(f"{place}: {version}" for place, version in found.items()))
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
