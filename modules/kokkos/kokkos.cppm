// SPDX-License-Identifier: Apache-2.0
// shardmesh.kokkos: a backend that runs the kernels of include/shardmesh/kernels with Kokkos. An optional room:
// `import shardmesh;` does not include it. For a Kokkos::View as a tensor, see include/shardmesh/kokkos_view.hpp.
export module shardmesh.kokkos;

export import shardmesh.kernels;

export import :scope;
