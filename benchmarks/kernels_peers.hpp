// SPDX-License-Identifier: Apache-2.0
// The peers of kernels_bench.cpp: a STREAM-like copy and Kokkos::deep_copy, with Kokkos's threads. Not a module,
// because modules must not have Kokkos's flags.
#pragma once
#include <shardmesh/tensor_view.hpp>

#include <cstddef>
#include <cstdint>

namespace peers {

/// Copies doubles, to[i] = from[i]; each thread copies its part.
void stream_copy(std::byte* to, const std::byte* from, std::int64_t bytes);
/// Copies float32 views of ranks 2 to 4; returns false for others.
bool deep_copy(const shardmesh::tensor_view& to, const shardmesh::const_tensor_view& from);
/// Launches an empty kernel.
void empty_launch();

}  // namespace peers
