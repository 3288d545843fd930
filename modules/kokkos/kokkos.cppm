// SPDX-License-Identifier: Apache-2.0
// shardmesh.kokkos: the kernels of include/shardmesh/kernels run by Kokkos, as a backend. An optional room:
// `import shardmesh;` does not bring it. Not here: Kokkos::View as a tensor (include/shardmesh/kokkos_view.hpp).
export module shardmesh.kokkos;

export import shardmesh.kernels;

export import :scope;
