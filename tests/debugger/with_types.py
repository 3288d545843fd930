# SPDX-License-Identifier: Apache-2.0
"""Compiles a file of the library again, with debug information.

    with_types.py BUILD SOURCE OBJECT

Clang describes a class of a named module only in the object of its interface unit. So a debugger knows our types
only if the library has debug information, as in the preset debug. For the ordinary build, this script compiles the
few units whose types the test prints, with the build's own command and modules.
"""
import json
import shlex
import subprocess
import sys
from pathlib import Path


def command_of(build, source):
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if entry["file"] == str(source) and "/modules/CMakeFiles/" in entry["output"]:
            return shlex.split(entry["command"])
    sys.exit(f"{source} is not compiled by {build}")


def main(build, source, made):
    command, modules = command_of(build, source), made.with_suffix(".modmap")
    for at, argument in enumerate(command):
        if argument.startswith("@"):
            lines = (build / argument[1:]).read_text().splitlines()
            # The module itself exists: only the object is needed.
            modules.write_text("\n".join(line for line in lines if not line.startswith("-fmodule-output")) + "\n")
            command[at] = f"@{modules}"
        elif argument == "-o":
            command[at + 1] = str(made)
    return subprocess.run([*command, "-g", "-O0"], cwd=build).returncode


if __name__ == "__main__":
    sys.exit(main(*(Path(argument) for argument in sys.argv[1:])))
