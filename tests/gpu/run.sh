#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The GPU suite, for a machine with nvcc and a GPU and nothing else: correctness of every kernel against a loop over
# elements, NCCL with one and two ranks, the bandwidth table. It needs no CMake and builds no module of shardmesh.
# The GPU kit (tests/gpu/kit) runs more, from an archive.
#   tests/gpu/run.sh [BUILD_FOLDER]
# Environment: NVCC, CXX, CUDA_ARCH (sm_90), NCCL_LIBRARY (libnccl.so.2), SKIP_BANDWIDTH=1, COMPILE_ONLY=1.
# Exits with 0 if everything that could run was right; with 77 if it compiled but nothing ran on a GPU (no GPU, or no
# nvcc); with 1 on errors. It reports what was left out.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${1:-$root/build/gpu}
nvcc=${NVCC:-$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)}
cxx=${CXX:-g++}
nccl=${NCCL_LIBRARY:-libnccl.so.2}
mkdir -p "$build" || exit 1
status=0

say() { printf '== %s\n' "$*"; }
# Runs one check: 0 passes, 77 is left out with its reason, and any other status is an error.
check() {
  local name=$1; shift
  say "$name"
  "$@"; local ended=$?
  if [ $ended -eq 77 ]; then
    say "$name: left out"
  elif [ $ended -ne 0 ]; then
    say "$name: FAILED ($ended)"
    status=1
  fi
}
compile() {
  say "compile: $1"; shift
  "$@" || { say "FAILED: $*"; exit 1; }
}

includes=(-I "$root/include" -I "$root/tests/support" -I "$root/tests")
compile "kernels' test, emulated" "$cxx" -std=c++17 -O2 -DSHARDMESH_EMULATED "${includes[@]}" \
  "$here/kernels_test.cpp" "$here/emulated_kernels.cpp" -o "$build/kernels_emulated"
check "the suite's own program, kernels emulated on the host" "$build/kernels_emulated"
compile "nccl_ranks" "$cxx" -std=c++17 -O1 -pthread "${includes[@]}" "$here/nccl_ranks.cpp" -o "$build/nccl_ranks" -ldl

if [ -z "$nvcc" ]; then
  say "nvcc was not found (NVCC names it): nothing for a GPU was compiled or run"
  exit $((status == 0 ? 77 : status))
fi
arch=${CUDA_ARCH:-}
if [ -z "$arch" ] && command -v nvidia-smi > /dev/null; then
  arch=sm_$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d '. ')
fi
case "$arch" in sm_[0-9]*) ;; *) arch=sm_90 ;; esac
compile "what runs on a GPU" "$here/compile.sh" "$root" "$build" "$nvcc" "$arch"
if [ -n "${COMPILE_ONLY:-}" ]; then
  say "compiled; COMPILE_ONLY is set: nothing was run on a GPU"
  exit $((status == 0 ? 77 : status))
fi
if ! "$build/gpu_at_hand"; then
  say "there is no GPU here: all was compiled, nothing was run on one"
  exit $((status == 0 ? 77 : status))
fi

check "every kernel against a loop over elements" "$build/kernels_test"
cudart=$(dirname "$(readlink -f "$nvcc")")/../lib64/libcudart.so
[ -e "$cudart" ] || cudart=libcudart.so
check "NCCL, one rank" timeout 120 "$build/nccl_ranks" "$cudart" "$nccl" 1 1
check "NCCL, two ranks on one GPU" env NCCL_MULTI_RANK_GPU_ENABLE=1 timeout 120 "$build/nccl_ranks" "$cudart" "$nccl" 2 2
check "NCCL, two ranks on a GPU each" timeout 120 "$build/nccl_ranks" "$cudart" "$nccl" 2 1
[ -n "${SKIP_BANDWIDTH:-}" ] || check "bandwidth" "$build/bandwidth"
[ $status -eq 0 ] && say "all that was run is right" || say "something is WRONG"
exit $status
