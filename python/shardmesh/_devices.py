# SPDX-License-Identifier: Apache-2.0
"""devices: the GPUs of this machine, and the libraries with which shardmesh uses them."""
from __future__ import annotations

from dataclasses import dataclass

from . import _native


@dataclass(frozen=True)
class Gpu:
    """A GPU that the CUDA runtime lists."""

    #: "cuda:0"
    device: str
    name: str
    #: "9.0"
    compute_capability: str
    #: its whole memory; 0 if unknown
    memory_bytes: int
    #: the reason why the library of kernels cannot run on it; empty if it can, or if there is none
    problem: str


@dataclass(frozen=True)
class GpuLibrary:
    """A library for GPUs: its version and file, or else the reason why shardmesh cannot use it, and a remedy."""

    #: "driver", "cuda_runtime", "nccl", "cuda_kernels", "nvrtc", or "kokkos"
    name: str
    usable: bool
    version: str
    #: the path of the loaded file; empty if none was loaded
    file: str
    problem: str
    remedy: str


@dataclass(frozen=True)
class DeviceReport:
    """The result of `devices`; `str` of it is the text of the command `shardmesh devices`."""

    gpus: list[Gpu]
    #: the reason why `gpus` is empty; empty if it is not
    problem: str
    #: by name
    libraries: dict[str, GpuLibrary]
    #: the source of the kernels of CUDA memory: "library", "nvrtc" (compiled when first needed), or "none"
    kernels: str
    #: the folder of the kernels that NVRTC compiled
    kernel_cache: str
    #: the reason why that folder is not used; empty if it is
    kernel_cache_problem: str
    _text: str

    def __str__(self) -> str:
        return self._text.rstrip("\n")


def devices() -> DeviceReport:
    """Looks for the GPUs of this machine and for the libraries that shardmesh uses for them. A missing library is part
    of the report, not an error. Import torch first to include the libraries that PyTorch brings."""
    found = _native.devices()
    libraries = [GpuLibrary(*one) for one in found["libraries"]]
    return DeviceReport([Gpu(*one) for one in found["gpus"]], found["problem"],
                        {one.name: one for one in libraries}, found["kernels"], found["kernel_cache"],
                        found["kernel_cache_problem"], found["text"])
