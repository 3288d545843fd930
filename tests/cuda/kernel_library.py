# SPDX-License-Identifier: Apache-2.0
"""The built library of CUDA kernels loads on a machine without a GPU or a driver, with every symbol resolved. It exports
the functions of its header and nothing else, and agrees with the emulated kernels of tests/gpu on its interface.

    kernel_library.py LIBRARY EMULATED ROOT
"""
import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path


def read(path, *options):
    return subprocess.run(["readelf", "--wide", *options, path], check=True, capture_output=True, text=True).stdout


def exported(path):
    """The names that other programs can use."""
    rows = [line.split() for line in read(path, "--dyn-syms").splitlines()]
    rows = [row for row in rows if len(row) >= 8 and row[0].rstrip(":").isdigit()]
    return {row[7].split("@")[0] for row in rows if row[4] in ("GLOBAL", "WEAK") and row[6] != "UND"}


def check_loaded(path, version, release):
    """Loads the library as the room cuda does. Returns the size of its items."""
    library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    library.shardmesh_cuda_kernels_item_bytes.restype = ctypes.c_size_t
    library.shardmesh_cuda_kernels_build.restype = ctypes.c_char_p
    found = library.shardmesh_cuda_kernels_version()
    assert found == version, f"{path} is of version {found}, the header of {version}"
    build = library.shardmesh_cuda_kernels_build().decode()
    if release:
        assert re.fullmatch(rf"shardmesh {re.escape(release)}, CUDA \d+\.\d+, architectures( \d+)+", build), build
    print(f"{path}: {build}")
    return library


def check_without_gpu(library):
    """Without a GPU, a table is an error of CUDA, and not a crash."""
    refused, table = ctypes.c_size_t(), ctypes.c_void_p()
    create = library.shardmesh_cuda_table_create
    create.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    status = create(None, 0, 0, ctypes.byref(refused), ctypes.byref(table))
    if status == 0:
        print("this machine has a GPU: tests/gpu/run.sh runs the kernels on it")
        library.shardmesh_cuda_table_destroy(table)
    else:
        assert status > 0 and not table, f"a table without a GPU: status {status}, table {table}"
        print(f"a table without a GPU is refused with CUDA error {status}")


def main(path, emulated, root):
    header = (root / "include/shardmesh/kernels/cuda_kernels.h").read_text()
    names = set(re.findall(r"^(?:int|size_t|void|const char\*) (shardmesh_cuda_\w+)\(", header, re.M))
    version = int(re.search(r"define SHARDMESH_CUDA_KERNELS_VERSION (\d+)", header).group(1))
    release = re.search(r'define SHARDMESH_VERSION "(.*)"', (root / "include/shardmesh/version.hpp").read_text()).group(1)
    assert len(names) > 5, f"the header declares {sorted(names)}"
    assert exported(path) == names, f"exported, or declared, but not both: {sorted(exported(path) ^ names)}"
    assert names <= exported(emulated), f"the emulated kernels lack {sorted(names - exported(emulated))}"

    dynamic = read(path, "--dynamic")
    soname = re.search(r"\(SONAME\).*\[(.*)\]", dynamic).group(1)
    assert soname == f"libshardmesh_cuda_kernels.so.{version}", soname
    cuda = re.findall(r"\(NEEDED\).*\[(lib(?:cuda|nv).*)\]", dynamic)
    assert not cuda, f"the library needs {cuda}; the driver is loaded at run time, and the CUDA runtime is inside"

    real, other = check_loaded(path, version, release), check_loaded(emulated, version, "")
    sizes = [one.shardmesh_cuda_kernels_item_bytes() for one in (real, other)]
    assert sizes[0] == sizes[1], f"sizes of a batch_item: {sizes}"
    check_without_gpu(real)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
