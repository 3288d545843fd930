// SPDX-License-Identifier: Apache-2.0
// What kernels_bench.cpp measures beside: a STREAM-like copy and Kokkos::deep_copy, with Kokkos's threads. Plain, as
// Kokkos's flags are not those of modules.
#pragma once
#include <shardmesh/tensor_view.hpp>

#include <cstddef>
#include <cstdint>

namespace peers {

/// to[i] = from[i] of doubles, each thread its part.
void stream_copy(std::byte* to, const std::byte* from, std::int64_t bytes);
/// Of float32 views of ranks 2 to 4. False for others.
bool deep_copy(const shardmesh::tensor_view& to, const shardmesh::const_tensor_view& from);
/// A launch of nothing.
void empty_launch();

}  // namespace peers
