# SPDX-License-Identifier: Apache-2.0
"""Tests module torch against a second PyTorch, the newest. Its packages are gigabytes and the module is built again, so
only ./dev test --release runs this.

    second_torch.py install FOLDER                            a virtual environment, FOLDER/venv
    second_torch.py check FOLDER SOURCE CMAKE COMPILER NINJA  the module and its tests built against it, and run
    second_torch.py remove FOLDER

SHARDMESH_TORCH_2_15 can name a Python that has it; then nothing is installed. Skips with exit status 77 and a
reason."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

VERSION = "2.15.0"
TARGETS = ["unit_torch", "torch_ranks", "torch_rank_checkpoint", "torch_distributed"]
TESTS = "^unit_torch: |^torch: (c10d_communicator|random|a group|messages|the distributed suite over c10d on 2|ranks)"
# Components that the module's tests do not need.
WITHOUT = ["MPI", "KOKKOS", "PYTHON", "CUDA_KERNELS"]


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def python_of(folder):
    named = os.environ.get("SHARDMESH_TORCH_2_15")
    return Path(named) if named else folder / "venv" / "bin" / "python"


def install(folder):
    python = python_of(folder)
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        done = subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-cache-dir", f"torch=={VERSION}", "numpy"],
                              capture_output=True, text=True)
        if done.returncode != 0:
            shutil.rmtree(folder / "venv")
            skip(f"torch {VERSION} cannot be installed: {done.stderr.strip()[-300:]}")
    print(f"{python} has torch")


def check(folder, source, cmake, compiler, make_program):
    python = python_of(folder)
    if not python.exists():
        skip(f"there is no PyTorch {VERSION} in {folder}")
    version = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True).stdout
    print(f"PyTorch {version.strip()}", flush=True)
    if not version.startswith(VERSION):
        return 1
    build = folder / "build"
    short = {name: value for name, value in os.environ.items() if name != "SHARDMESH_PROPERTY_RUNS"}
    configure = [cmake, "-S", source, "-B", build, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={make_program}",
                 f"-DCMAKE_CXX_COMPILER={compiler}", "-DCMAKE_BUILD_TYPE=Release", "-DSHARDMESH_WITH_TORCH=ON",
                 f"-DSHARDMESH_PYTHON={python}", *(f"-DSHARDMESH_WITH_{room}=OFF" for room in WITHOUT)]
    for line in (configure, [cmake, "--build", build, "--target", *TARGETS],
                 [Path(cmake).with_name("ctest"), "--test-dir", build, "--output-on-failure", "--no-tests=error", "-R", TESTS]):
        if status := subprocess.run(line, env=short).returncode:
            print(f"status {status}: {' '.join(map(str, line))}")
            return 1
    return 0


def remove(folder):
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    verb, place, *words = sys.argv[1:]
    sys.exit({"install": install, "check": check, "remove": remove}[verb](Path(place), *words))
