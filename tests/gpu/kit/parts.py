# SPDX-License-Identifier: Apache-2.0
"""The parts of the kit: what runs, for how long at most, and why a part is left out. On a GPU the limits add up to less
than eight minutes. With the double, the same suites run without limits of their own."""
import json
import os
import sys
from pathlib import Path

from running import Part

GPU_SECONDS = 470  # eight minutes, less what the report takes
DOUBLE_SECONDS = {False: 5400, True: 170}  # whole, short
SANITIZER = ("memcheck", "racecheck", "initcheck")
BYTES = 4 << 30  # of a checkpoint that is loaded
NO_NCCL = "libnccl was not found (SHARDMESH_NCCL names it)"


class Kit:
    def __init__(self, root, work, machine, is_double, is_short):
        self.root, self.work, self.machine = Path(root), Path(work), machine
        self.is_double, self.is_short = is_double, is_short
        self.bin, self.lib, self.compiled = self.root / "bin", self.root / "lib", self.work / "compiled"
        self.suites = json.loads((self.root / "kit" / "suites.json").read_text())
        self.gpus = len(machine["gpus"])

    def missing(self):
        """Why nothing runs on a GPU; empty if it can."""
        if self.is_double:
            return ""
        if not self.gpus:
            return f"no GPU: {self.machine['no_gpu']}"
        return "" if self.machine["cudart"] else "libcudart was not found (SHARDMESH_CUDART names it)"

    def kernels(self):
        """The folder with the kernels and their programs: compiled here, or with the kit. None: there is none."""
        for folder in (self.compiled, self.root / "prebuilt"):
            if (folder / "libshardmesh_cuda_kernels.so").exists() and (folder / "kernels_test").exists():
                return folder
        return None

    def without_kernels(self):
        if self.is_double or self.missing():
            return self.missing()
        return "" if self.kernels() else "no kernels: nvcc was not found or failed, and the kit was made without nvcc"

    def without_nccl(self):
        return self.without_kernels() or ("" if self.is_double or self.machine["nccl"] else NO_NCCL)

    def paths(self, *folders):
        return os.pathsep.join(filter(None, (*map(str, folders), os.environ.get("LD_LIBRARY_PATH"))))

    def of_compiled(self):
        """The environment of the programs that nvcc compiled: beside their library, with this machine's libraries."""
        return {"LD_LIBRARY_PATH": self.paths(self.kernels() or self.root)}

    def libraries(self):
        """The environment of the kit's own programs, with the libraries that they load by name. A library's own needs
        are not searched on the program's path (RUNPATH), so the folder is named here as well."""
        common = {"LD_LIBRARY_PATH": self.paths(self.lib), "TMPDIR": str(self.work / "tmp"),
                  "NCCL_MULTI_RANK_GPU_ENABLE": "1"}
        if self.is_double:
            double = str(self.lib / "libgpu_double.so")
            return {**common, "SHARDMESH_CUDART": double, "SHARDMESH_NCCL": double}
        folder = self.kernels()
        return {**common, "SHARDMESH_CUDART": self.machine["cudart"] or "", "SHARDMESH_NCCL": self.machine["nccl"] or "",
                "SHARDMESH_CUDA_KERNELS": str(folder / "libshardmesh_cuda_kernels.so") if folder else "none",
                "SHARDMESH_TEST_ON_GPU": "1"}

    def of_suites(self, **more):
        """The environment of the suites, which are written for the double: on a GPU, lib/real takes its place."""
        given = {**self.libraries(), "SHARDMESH_GOLDEN_DIR": str(self.root / "data" / "golden"), **more}
        if self.is_double:
            # The tests name the double themselves. NCCL refuses ranks on one device unless a test allows it.
            for name in ("SHARDMESH_CUDART", "SHARDMESH_NCCL", "NCCL_MULTI_RANK_GPU_ENABLE"):
                del given[name]
            return given
        return {**given, "LD_LIBRARY_PATH": self.paths(self.lib / "real", self.lib),
                "SHARDMESH_REAL_KERNELS": given["SHARDMESH_CUDA_KERNELS"],
                "SHARDMESH_CUDA_KERNELS": str(self.lib / "real" / "libgpu_double.so")}

    def limit(self, seconds):
        return DOUBLE_SECONDS[self.is_short] if self.is_double else seconds

    def per_gpu(self, ranks):
        return (1 if ranks == 1 else 2) if self.is_double else -(-ranks // max(self.gpus, 1))


def compile_part(kit):
    nvcc = kit.machine["nvcc"]
    reason = "the double runs no CUDA kernels" if kit.is_double else "" if nvcc else "nvcc was not found (NVCC names it)"
    architecture = os.environ.get("CUDA_ARCH") or (kit.machine["gpus"] or [{"architecture": "sm_90"}])[0]["architecture"]
    source = kit.root / "source"
    return Part("compile the kernels", "Setup",
                ["bash", source / "tests" / "gpu" / "compile.sh", source, kit.compiled, nvcc, architecture],
                90 if kit.gpus else 900, reason=reason)


def nccl_parts(kit):
    given = kit.libraries()
    for ranks in (1, 2, 4):
        each = kit.per_gpu(ranks)
        yield Part(f"NCCL itself, {ranks} rank{'s' * (ranks > 1)}, {each} on a GPU", "Suites",
                   [kit.bin / "gpu_nccl_ranks", given["SHARDMESH_CUDART"], given["SHARDMESH_NCCL"], ranks, each],
                   kit.limit(12), given,
                   kit.missing() or ("" if given["SHARDMESH_NCCL"] else NO_NCCL),
                   shares_gpu=each > 1)


def suite(kit, name, program, spec, seconds, ranks=(), shares_gpu=None, **more):
    if ranks:
        more["SHARDMESH_FABRIC_SIZES"] = ",".join(map(str, ranks))
    shares = max(ranks, default=1) > max(kit.gpus, 1) if shares_gpu is None else shares_gpu
    return Part(name, "Suites", [kit.bin / program, *spec], kit.limit(seconds), kit.of_suites(**more), kit.without_nccl(),
                shares_gpu=shares and not kit.is_double, is_catch=True)


def suite_parts(kit):
    # [double]: faults that only the double has.
    spec = [] if kit.is_double else ["~[double]"]
    yield suite(kit, "unit_cuda", "unit_cuda", spec, 12)
    # One of its tests sleeps for eleven seconds.
    yield suite(kit, "unit_nccl", "unit_nccl", ["~*however long that takes"] if kit.is_short else spec, 30,
                shares_gpu=kit.gpus < 8)
    device, staged, conformance = (["-#", kit.suites[name]] for name in ("device", "staged", "conformance"))
    calls = device
    if kit.is_short:
        device, staged, calls = (["-#", f"[#{name}_test]{kit.suites['excluded']}"]
                                 for name in ("redistribute", "messages", "redistribute_call"))
    numbers = (2,) if kit.is_short else (1, 2, 4, 8) if kit.is_double else (1, 2, 4)
    limits = {1: 12, 2: 18, 4: 22}
    for ranks in numbers:
        yield suite(kit, f"distributed suite, NCCL, {ranks} rank{'s' * (ranks > 1)}", "distributed_nccl", device,
                    limits.get(ranks, 22), (ranks,))
    few = numbers[:2]
    yield suite(kit, "distributed suite, NCCL, staged", "distributed_nccl", staged, 12, few, SHARDMESH_FABRIC="staged")
    yield suite(kit, "conformance suite, NCCL, staged", "distributed_nccl", conformance, 8, few, SHARDMESH_FABRIC="staged")
    yield suite(kit, "distributed suite, threads, staged from devices", "distributed_nccl", calls, 16, (1, 2, 4) if not
                kit.is_short else (2,), shares_gpu=False, SHARDMESH_FABRIC="threads")
    reason = "the ranks of the double are threads; unit_nccl loses one" if kit.is_double else kit.missing() or (
        "" if kit.machine["nccl"] else NO_NCCL)
    yield Part("a rank is killed", "Suites", [kit.bin / "gpu_lost_rank"], 12, kit.libraries(), reason, kit.gpus < 2)


def kernel_parts(kit):
    yield Part("kernels against the reference, emulated on the host", "Kernels",
               [kit.bin / "gpu_kernels_emulated", *(["short"] if kit.is_short else [])], kit.limit(600),
               reason="" if kit.is_double or kit.missing() else "they run on the GPU")
    reason = "the double runs no CUDA kernels" if kit.is_double else kit.without_kernels()
    program = (kit.kernels() or kit.root) / "kernels_test"
    yield Part("kernels against the reference", "Kernels", [program], 25, kit.of_compiled(), reason)
    sanitizer = kit.machine["compute_sanitizer"]
    for what in SANITIZER:
        yield Part(f"compute-sanitizer {what}", "Kernels",
                   [sanitizer, f"--tool={what}", "--error-exitcode=1", program, "short"], 14, kit.of_compiled(), reason or ("" if sanitizer else "compute-sanitizer is not installed"))


def measured_parts(kit):
    reason = "the double has no speed" if kit.is_double else kit.without_kernels()
    folder = kit.kernels() or kit.root
    yield Part("bandwidth of the kernels", "Bandwidth", [folder / "bandwidth"], 22, kit.of_compiled(), reason)
    kokkos = "" if (folder / "kokkos_copy").exists() else "no Kokkos for CUDA was compiled (Kokkos_ROOT names one)"
    yield Part("bandwidth of Kokkos", "Bandwidth", [folder / "kokkos_copy"], 8, kit.of_compiled(), reason or kokkos)
    no_torch = "" if kit.machine["torch"] else "this Python has no PyTorch (PYTHON names one that has)"
    python, here = [sys.executable, "-B"], kit.root / "kit"
    # With the double: on the CPU and small, so that the programs themselves are tested.
    device = "cpu" if kit.is_double else "cuda"
    size = 1 << 22 if kit.is_double else int(os.environ.get("GPU_KIT_BYTES", BYTES))
    yield Part("bandwidth of PyTorch", "Bandwidth", [*python, here / "bandwidth_torch.py", device], kit.limit(16),
               reason=kit.missing() or no_torch)
    yield Part("loading into device memory", "Loading", [*python, here / "loads.py", kit.root, kit.work, size, device],
               kit.limit(65), reason=kit.missing() or no_torch)
    for ranks in (1, 2):
        yield Part(f"redistribute, {ranks} rank{'s' * (ranks > 1)}", "Redistribution",
                   [kit.bin / "gpu_redistribute", ranks, 1 if kit.is_double else 9], kit.limit(10), kit.libraries(),
                   kit.without_nccl(), shares_gpu=ranks > kit.gpus and not kit.is_double)


def later_parts(kit):
    """All parts after the compilation, those that are cut off first at the end."""
    kernels = list(kernel_parts(kit))
    return [*nccl_parts(kit), *kernels[:2], *measured_parts(kit), *suite_parts(kit), *kernels[2:]]
