# SPDX-License-Identifier: Apache-2.0
"""What this machine has: the GPU (from the driver), libcudart, libnccl, nvcc, compute-sanitizer. Loads no PyTorch, which
takes seconds."""
import ctypes
import glob
import importlib.metadata
import os
import shutil
import site
import sys
from pathlib import Path

COMPUTE_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR


def gpus():
    """A list of (name, architecture), and the reason why it is empty."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return [], f"no driver: {error}"
    if (code := driver.cuInit(0)) != 0:
        return [], f"cuInit returned {code}"
    count = ctypes.c_int()
    if (code := driver.cuDeviceGetCount(ctypes.byref(count))) != 0 or count.value == 0:
        return [], f"cuDeviceGetCount returned {code} and {count.value} devices"
    found = []
    for index in range(count.value):
        device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
        driver.cuDeviceGet(ctypes.byref(device), index)
        driver.cuDeviceGetName(name, 256, device)
        numbers = []
        for attribute in COMPUTE_CAPABILITY:
            number = ctypes.c_int()
            driver.cuDeviceGetAttribute(ctypes.byref(number), attribute, device)
            numbers.append(str(number.value))
        found.append((name.value.decode(), "sm_" + "".join(numbers)))
    return found, ""


def driver_version():
    try:
        number = ctypes.c_int()
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"
    except OSError:
        return None


def folders():
    """Where PyTorch and its NVIDIA wheels are."""
    places = [*site.getsitepackages(), site.getusersitepackages(), *sys.path]
    return list(dict.fromkeys(place for place in places if place and Path(place).is_dir()))


def library(variable, names, patterns):
    """The path of a library, or None: the variable, PyTorch's wheels, the toolkit, the loader's own search."""
    if named := os.environ.get(variable):
        return named
    toolkit = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    for name in names:
        for place in folders():
            for pattern in patterns:
                if found := sorted(glob.glob(f"{place}/{pattern}/{name}")):
                    return found[0]
        for place in filter(None, toolkit):
            if os.path.exists(f"{place}/lib64/{name}"):
                return f"{place}/lib64/{name}"
        try:
            ctypes.CDLL(name)
            return name
        except OSError:
            pass
    return None


def cudart():
    return library("SHARDMESH_CUDART", ("libcudart.so.13", "libcudart.so.12"),
                   ("nvidia/cu*/lib", "nvidia/cuda_runtime/lib", "torch/lib"))


def nccl():
    return library("SHARDMESH_NCCL", ("libnccl.so.2",), ("nvidia/nccl/lib", "torch/lib"))


def tool(variable, name):
    """A program of the CUDA toolkit: `variable` names it, or `none`."""
    if named := os.environ.get(variable):
        return None if named == "none" else named
    if found := shutil.which(name):
        return found
    for place in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        if place and os.access(f"{place}/bin/{name}", os.X_OK):
            return f"{place}/bin/{name}"
    return None


def version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def describe():
    """The machine, for the report."""
    found, reason = gpus()
    return {
        "gpus": [{"name": name, "architecture": architecture} for name, architecture in found],
        "no_gpu": reason,
        "driver_cuda": driver_version(),
        "cudart": cudart(),
        "nccl": nccl(),
        "nvcc": tool("NVCC", "nvcc"),
        "compute_sanitizer": tool("COMPUTE_SANITIZER", "compute-sanitizer"),
        "python": sys.version.split()[0],
        **{package: version_of(package) for package in ("torch", "safetensors", "fastsafetensors", "shardmesh")},
        "cpus": os.cpu_count(),
    }
