// SPDX-License-Identifier: Apache-2.0
// Small values that cross the border. Input is checked here, before anything is computed from it.
#pragma once
#include <shardmesh/c_api/values.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

import shardmesh;

namespace c_api {

shardmesh_text to_c(const std::string& text);
shardmesh_box to_c(const shardmesh::box& b);
/// Fills `SHARDMESH_MAX_RANK` numbers; those beyond the rank become 0.
void copy_to(std::int64_t* numbers, const shardmesh::extents& values);

/// `rank` numbers. \throws rank_too_large, invalid_argument for a negative rank or null; `name` describes the numbers
shardmesh::extents to_extents(const std::int64_t* numbers, std::int64_t rank, std::string_view name);
/// The same for numbers that must not be negative.
shardmesh::extents to_sizes(const std::int64_t* numbers, std::int64_t rank, std::string_view name);
shardmesh::dtype to_dtype(shardmesh_dtype type);
/// Memory with checked sizes; null strides mean row-major.
shardmesh::tensor_view to_view(const shardmesh_tensor& tensor);
shardmesh::const_tensor_view to_view(const shardmesh_const_tensor& tensor);
/// A key of `size` bytes; for size 0, up to its first 0.
std::string_view to_key(const char* key, std::size_t size);
/// A text that must not be null.
std::string_view to_text(const char* text, std::string_view name);
/// A number that must not be negative.
int to_threads(std::int32_t threads);
/// The same for bytes; `otherwise` for 0.
std::int64_t to_memory(std::int64_t bytes, std::int64_t otherwise);

}  // namespace c_api
