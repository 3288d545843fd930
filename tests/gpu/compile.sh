#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Compiles the kernels, their test, and the bandwidth table with nvcc: for tests/gpu/run.sh, and for the GPU kit.
#   compile.sh ROOT FOLDER NVCC ARCHITECTURE
# ROOT has the folders cuda_kernels, include, and tests; ARCHITECTURE is such as sm_90. Environment: KERNELS, a library
# of kernels to use instead of compiling it (a minute); Kokkos_ROOT, a Kokkos for CUDA, whose deep_copy is then measured.
# The programs search FOLDER for the library. Exits with 1 if anything but Kokkos cannot be compiled.
set -u
root=$1 folder=$2 nvcc=$3 architecture=$4
gpu=$root/tests/gpu
library=libshardmesh_cuda_kernels.so
mkdir -p "$folder" && folder=$(cd "$folder" && pwd) || exit 1
flags=(-std=c++17 -O2 -arch="$architecture" -Xcompiler "-fPIC,-Wall" -I "$root/include" -I "$root/tests/support"
  -I "$root/tests")
link=(-L "$folder" -lshardmesh_cuda_kernels -Xlinker -rpath -Xlinker "$folder")

compile() {
  printf 'compile: %s\n' "$1"
  shift
  "$@" || { printf 'FAILED: %s\n' "$*"; return 1; }
}

compile gpu_at_hand "$nvcc" "${flags[@]}" "$gpu/gpu_at_hand.cu" -o "$folder/gpu_at_hand" || exit 1
if [ -n "${KERNELS:-}" ]; then
  # Its soname, by which the loader searches, has the version.
  cp "$KERNELS" "$folder/$library.1" && ln -sf "$library.1" "$folder/$library" || exit 1
else
  compile "$library for $architecture (a minute)" "$nvcc" "${flags[@]}" -shared \
    -Xlinker "--version-script=$root/cuda_kernels/exports.map" "$root/cuda_kernels/cuda_kernels.cu" \
    -o "$folder/$library" || exit 1
fi
compile kernels_test "$nvcc" "${flags[@]}" "$gpu/kernels_test.cpp" "${link[@]}" -o "$folder/kernels_test" || exit 1
compile bandwidth "$nvcc" "${flags[@]}" "$gpu/bandwidth.cu" "${link[@]}" -o "$folder/bandwidth" || exit 1

if [ -n "${Kokkos_ROOT:-}" ]; then
  lib=$Kokkos_ROOT/lib
  [ -d "$Kokkos_ROOT/lib64" ] && lib=$Kokkos_ROOT/lib64
  compile "kokkos_copy (a failure is no error)" "$nvcc" -x cu -std=c++20 -O2 -arch="$architecture" --extended-lambda \
    --expt-relaxed-constexpr -I "$Kokkos_ROOT/include" "$gpu/kokkos_copy.cpp" -L "$lib" -lkokkoscore -lcuda \
    -Xlinker -rpath -Xlinker "$lib" -o "$folder/kokkos_copy" || rm -f "$folder/kokkos_copy"
fi
exit 0
