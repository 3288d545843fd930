# SPDX-License-Identifier: Apache-2.0
"""Makes the GPU kit from a build tree: its stripped programs with the libraries they need, the sources of the kernels,
and the scripts. ./dev gpu-kit and the tests call it, through make_kit.sh of the build.

    make.py --root ROOT --build BUILD --cmake CMAKE [--kernels LIBRARY --nvcc NVCC] --output FILE [--wheels FOLDER]
            [--unpack FOLDER]

With --kernels and --nvcc, the kit also has compiled kernels, for machines without nvcc; with --wheels, the wheels there. The kit is refused if it is
larger than 45 MiB, or needs a newer glibc than Debian 12's. --unpack unpacks the archive, to test it.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

MOST_BYTES = 45 << 20
GLIBC = (2, 36)  # Debian 12
# Parts of glibc, which every machine has, and which must fit its loader.
OF_SYSTEM = re.compile(r"^(linux-vdso|ld-linux.*|lib(c|m|pthread|dl|rt|resolv|util))\.so")
SOURCES = ("cuda_kernels/*", "include/**/*", "tests/gpu/*.cu", "tests/gpu/*.hpp", "tests/gpu/kernels_test.cpp",
           "tests/gpu/kokkos_copy.cpp", "tests/gpu/compile.sh", "tests/support/reference_elements.hpp")
SCRIPTS = ("main.py", "parts.py", "running.py", "report.py", "machine.py", "loads.py", "bandwidth_torch.py")


def run(*line, **options):
    done = subprocess.run([str(word) for word in line], **options)
    if done.returncode != 0:
        sys.exit(f"make.py: {' '.join(str(word) for word in line)}: exits with {done.returncode}")
    return done


def copy(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def programs(kit):
    return [path for path in sorted(kit.rglob("*")) if path.is_file() and not path.is_symlink() and is_elf(path)]


def add_libraries(kit):
    """Copies the shared libraries that the programs need into lib, apart from glibc's."""
    own = {path.name for path in (kit / "lib").iterdir()}
    for program in programs(kit):
        text = run("ldd", program, capture_output=True, text=True).stdout
        for name, path in re.findall(r"^\s*(\S+) => (.+?)(?: \(0x|$)", text, re.M):
            if name in own or OF_SYSTEM.match(name):
                continue
            if not path.startswith("/"):
                sys.exit(f"make.py: {program.name} needs {name}, which the loader finds nowhere: {path}")
            copy(os.path.realpath(path), kit / "lib" / name)
            own.add(name)


def needed_glibc(path):
    """The newest version of glibc whose symbols a program needs."""
    text = run("readelf", "-V", path, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}).stdout
    # Needed versions have "Name:" and "Flags:"; libraries that define versions of such names are glibc's own.
    found = re.findall(r"Name: GLIBC_(\d+)\.(\d+)", text)
    return max((tuple(map(int, version)) for version in found), default=(0, 0))


def check_glibc(kit):
    for path in programs(kit):
        if (needed := needed_glibc(path)) > GLIBC:
            sys.exit(f"make.py: {path.relative_to(kit)} needs glibc {'.'.join(map(str, needed))}; expected at most "
                     f"{'.'.join(map(str, GLIBC))}: make the kit on Debian 12")


def add_sources(kit, root):
    for pattern in SOURCES:
        for path in sorted(root.glob(pattern)):
            if path.is_file():
                copy(path, kit / "source" / path.relative_to(root))
    here = Path(__file__).resolve().parent
    copy(here / "run.sh", kit / "run.sh")
    for name in SCRIPTS:
        copy(here / name, kit / "kit" / name)
    golden = root / "tests" / "data" / "golden"
    for metadata in sorted(golden.glob("*/checkpoint/.metadata")):
        folder = metadata.parent
        shutil.copytree(folder, kit / "data" / "golden" / folder.relative_to(golden))
    for path in sorted(golden.glob("*.json")):
        copy(path, kit / "data" / "golden" / path.name)


def add_version(kit, root):
    version = re.search(r"project\(shardmesh VERSION ([0-9.]+)", (root / "CMakeLists.txt").read_text())[1]
    try:
        described = ["git", "-C", root, "describe", "--always", "--dirty"]
        commit = subprocess.run(described, capture_output=True, text=True).stdout
    except OSError:
        commit = ""
    (kit / "kit" / "version.txt").write_text(f"shardmesh {version}, commit {commit.strip() or 'unknown'}\n")


def add_kernels(kit, kernels, nvcc):
    """Programs of the kernels, for machines without nvcc. The library has its architectures and PTX of the newest."""
    source, folder = kit / "source", kit / "prebuilt"
    architecture = os.environ.get("CUDAARCHS", "75").split(";")[0].split("-")[0]
    run("bash", source / "tests" / "gpu" / "compile.sh", source, folder, nvcc, f"sm_{architecture}",
        env={**{name: value for name, value in os.environ.items() if name != "Kokkos_ROOT"}, "KERNELS": str(kernels)})
    for path in programs(folder):
        run("strip", path)


def pack(kit, cmake, output):
    output.parent.mkdir(parents=True, exist_ok=True)
    output.unlink(missing_ok=True)
    run(cmake, f"-DNAME={kit.name}", f"-DOUTPUT={output}", "-P", Path(__file__).resolve().parent / "archive.cmake",
        cwd=kit.parent)
    size = output.stat().st_size
    if size > MOST_BYTES:
        largest = sorted((path for path in kit.rglob("*") if path.is_file()), key=lambda path: -path.stat().st_size)[:10]
        names = "\n".join(f"  {path.stat().st_size / 2**20:6.1f} MiB {path.relative_to(kit)}" for path in largest)
        output.unlink()
        sys.exit(f"make.py: the kit is too large: expected at most {MOST_BYTES >> 20} MiB, found {size / 2**20:.1f} MiB; "
                 f"leave out wheels or architectures. Its largest files:\n{names}")
    return size


def main():
    parser = argparse.ArgumentParser(description="Makes the GPU kit from a build tree.")
    for name in ("root", "build", "output"):
        parser.add_argument(f"--{name}", type=lambda text: Path(text).resolve(), required=True)
    parser.add_argument("--cmake", default="cmake")
    parser.add_argument("--kernels", type=lambda text: Path(text).resolve())
    parser.add_argument("--nvcc")
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--unpack", type=Path)
    given = parser.parse_args()
    kit = given.build / "gpu-kit-staging" / "gpu-kit"
    shutil.rmtree(kit.parent, ignore_errors=True)
    run(given.cmake, "--install", given.build, "--component", "gpu_kit", "--prefix", kit, "--strip", stdout=sys.stderr)
    add_libraries(kit)
    add_sources(kit, given.root)
    add_version(kit, given.root)
    if given.kernels and given.nvcc:
        add_kernels(kit, given.kernels, given.nvcc)
    for wheel in sorted(given.wheels.glob("shardmesh-*.whl")) if given.wheels else ():
        copy(wheel, kit / "wheel" / wheel.name)
    check_glibc(kit)
    size = pack(kit, given.cmake, given.output)
    shutil.rmtree(kit.parent)
    if given.unpack:
        shutil.rmtree(given.unpack / kit.name, ignore_errors=True)
        given.unpack.mkdir(parents=True, exist_ok=True)
        run(given.cmake, "-E", "tar", "xf", given.output, cwd=given.unpack)
    print(f"{given.output}: {size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
