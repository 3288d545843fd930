# SPDX-License-Identifier: Apache-2.0
"""The room cuda finds the library of kernels beside the program or shared library that contains the room, in the order
that docs/gpu.md states. Copies a program, a shared library, and doubles of the kernels into folders.

    kernel_places.py PROGRAM LIBRARY KERNELS OTHER_KERNELS WORK [ARCHITECTURE]
"""
import os
import shutil
import subprocess
import sys
from pathlib import Path

VERSIONED, PLAIN = "libshardmesh_cuda_kernels.so.1", "libshardmesh_cuda_kernels.so"
CALL = "import ctypes, sys; f = ctypes.CDLL(sys.argv[1]).found_kernels; f.restype = ctypes.c_char_p; print(f(b'').decode())"


class Folders:
    def __init__(self, program, library, kernels, work):
        self.program, self.library, self.kernels, self.work = program, library, kernels, work
        shutil.rmtree(work, ignore_errors=True)
        self.problems = 0

    def put(self, file, *places):
        for place in places:
            (self.work / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, self.work / place)

    def answer(self, *command, **variables):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SHARDMESH_")}
        done = subprocess.run(command, env=environment | variables, capture_output=True, text=True, cwd="/")
        return done.stdout.strip() if done.returncode == 0 else f"status {done.returncode}: {done.stderr}"

    def run(self, program, *arguments, **variables):
        return self.answer(self.work / program, *arguments, **variables)

    def check(self, what, found, expected):
        """`expected`: a path below the work folder, another text, or texts that are all in the answer."""
        if isinstance(expected, tuple):
            right = all(part in found for part in expected)
        else:
            right = found == (str(self.work / expected) if "/" in expected else expected)
        if not right:
            self.problems += 1
            print(f"{what}: expected {expected}, found {found}")


def check_program(at, architecture):
    at.put(at.program, "app/bin/finder", "loose/build/finder")
    nothing = at.run("app/bin/finder")  # this machine may have the kernels in its own folders
    at.check("nothing beside the program", str(str(at.work) in nothing), "False")
    folders = ["app/lib64", "app/lib", "app", "app/bin"]  # the first of the list is the last that is searched
    if architecture:
        folders.insert(0, f"app/lib/{architecture}")
    for folder in folders:
        at.put(at.kernels, f"{folder}/{PLAIN}")
        at.check(f"in {folder}", at.run("app/bin/finder"), f"{folder}/{PLAIN}")
        at.put(at.kernels, f"{folder}/{VERSIONED}")
        at.check(f"versioned in {folder}", at.run("app/bin/finder"), f"{folder}/{VERSIONED}")
    (at.work / "link").symlink_to(at.work / "app/bin/finder")
    at.check("by a link", at.run("link"), f"app/bin/{VERSIONED}")
    by_name = at.answer("sh", "-c", "finder", PATH=f"{at.work}/app/bin:{os.environ['PATH']}")
    at.check("by its name alone", by_name, f"app/bin/{VERSIONED}")

    at.put(at.kernels, "loose/lib/" + VERSIONED)
    at.check("lib beside a folder that is not bin", at.run("loose/build/finder"), nothing)


def check_order(at, other):
    at.put(at.kernels, "mine/kernels.so", "own/kernels.so")
    mine, own = str(at.work / "mine/kernels.so"), str(at.work / "own/kernels.so")
    at.check("the variable", at.run("app/bin/finder", SHARDMESH_CUDA_KERNELS=mine), "mine/kernels.so")
    at.check("the option", at.run("app/bin/finder", own, SHARDMESH_CUDA_KERNELS=mine), "own/kernels.so")
    at.check("none as the option", at.run("app/bin/finder", "none", SHARDMESH_CUDA_KERNELS=mine), "none")
    at.check("none as the variable", at.run("app/bin/finder", SHARDMESH_CUDA_KERNELS="none"), "none")
    at.check("nvrtc as the variable", at.run("app/bin/finder", SHARDMESH_CUDA_KERNELS="nvrtc"), "none")
    missing = at.run("app/bin/finder", SHARDMESH_CUDA_KERNELS="/nowhere/kernels.so")
    at.check("a variable that names no file", missing, ("error: ", "/nowhere/kernels.so", "cannot be loaded"))

    at.put(at.program, "damaged/bin/finder", "old/bin/finder")
    at.put(__file__, f"damaged/lib/{VERSIONED}")
    at.check("a damaged library", at.run("damaged/bin/finder"), ("error: ", f"damaged/lib/{VERSIONED}", "cannot be loaded"))
    at.put(other, f"old/lib/{PLAIN}")
    refusal = at.run("old/bin/finder")
    at.check("another version", refusal, (f"old/lib/{PLAIN}", "version 1", "version 7", "install the component cuda_kernels"))


def check_library(at):
    at.put(at.library, "package/_native.so")
    at.put(at.kernels, f"package/{VERSIONED}")
    found = at.answer(sys.executable, "-c", CALL, at.work / "package/_native.so")
    at.check("beside a shared library", found, f"package/{VERSIONED}")


def main(program, library, kernels, other, work, architecture=""):
    at = Folders(program, library, kernels, Path(work).resolve())
    check_program(at, architecture)
    check_order(at, other)
    check_library(at)
    print(f"{at.problems} problems")
    return 1 if at.problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
