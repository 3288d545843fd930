#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the GPU kit (docs/gpu.md#the-kit): compiles the kernels, runs the suites and measurements, and prints the report,
# which is also in WORK/report.json and WORK/report.md. It needs no network and no root, and ends within eight minutes.
#   run.sh [WORK]        WORK: a folder for what is compiled and measured (files of 4 GiB); by default `work`, beside run.sh
# Environment:
#   PYTHON               the Python with PyTorch (python3); its libcudart and libnccl are used
#   SHARDMESH_CUDART, SHARDMESH_NCCL   other libraries
#   NVCC                 nvcc; `none`: compile nothing, and use the kernels that were compiled with the kit
#   CUDA_ARCH            such as sm_90; by default the GPU's
#   Kokkos_ROOT          a Kokkos for CUDA, to measure its deep_copy as well
#   GPU_KIT_SECONDS      the time for all parts (480)
#   GPU_KIT_DOUBLE=1     runs the suites on the double of the GPU libraries, without a GPU, and measures nothing
#   GPU_KIT_SHORT=1      fewer tests of each suite, with the double
# Exits with 0 if all that ran is right, with 1 if something is wrong, with 2 if something was cut off by its limit, and
# with 77 if there is no GPU.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
python=${PYTHON:-python3}
command -v "$python" >/dev/null || { echo "run.sh: no $python: set PYTHON to the Python that has PyTorch" >&2; exit 1; }
work=${1:-$here/work}
mkdir -p "$work" || exit 1
PYTHONUTF8=1 exec "$python" -B "$here/kit/main.py" "$here" "$work"
