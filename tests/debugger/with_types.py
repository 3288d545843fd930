# SPDX-License-Identifier: Apache-2.0
"""A file of the library compiled once more, with debug information.

    with_types.py BUILD SOURCE OBJECT

Clang describes a class of a named module in the object of its interface unit and nowhere else, so a debugger knows our
types only where the library has debug information, as in the preset debug. For the ordinary build the few
units whose types the test prints are compiled here, by the build's own command and with the modules that it made.
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
            # The module itself is there: only the object is wanted.
            modules.write_text("\n".join(line for line in lines if not line.startswith("-fmodule-output")) + "\n")
            command[at] = f"@{modules}"
        elif argument == "-o":
            command[at + 1] = str(made)
    return subprocess.run([*command, "-g", "-O0"], cwd=build).returncode


if __name__ == "__main__":
    sys.exit(main(*(Path(argument) for argument in sys.argv[1:])))
