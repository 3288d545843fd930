# SPDX-License-Identifier: Apache-2.0
"""Checks that the library exports exactly the functions of tests/c_api/exports.txt, and that the headers declare them.

    exports.py LIBRARY LIST HEADERS...

A missing function breaks programs: it needs a new SHARDMESH_C_API_VERSION. Add a new function to the list.
"""
import re
import subprocess
import sys
from pathlib import Path


def main(library, listed, *headers):
    wanted = set(Path(listed).read_text().split())
    nm = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    symbols = [line.split() for line in nm.splitlines()]
    exported = {name.split("@")[0] for *_, kind, name in symbols if kind != "A"}  # A: the version's name
    versions = {name.partition("@@")[2] for *_, kind, name in symbols if kind != "A"}
    declared = set()
    for header in headers:
        declared |= set(re.findall(r"^SHARDMESH_C_EXPORT [^;(]*\b(shardmesh_\w+)\(", Path(header).read_text(), re.M))
    problems = [f"not exported: {name}" for name in sorted(wanted - exported)]
    problems += [f"exported, and not listed: {name}" for name in sorted(exported - wanted)]
    problems += [f"not declared: {name}" for name in sorted(wanted - declared)]
    problems += [f"declared, and not listed: {name}" for name in sorted(declared - wanted)]
    if versions != {"SHARDMESH_C_1"}:
        problems.append(f"versions of symbols: {sorted(versions)}")
    print("\n".join(problems) or f"{len(wanted)} functions are exported and declared")
    return 1 if problems or not wanted else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
