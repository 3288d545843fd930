// SPDX-License-Identifier: Apache-2.0
#include "values.hpp"

#include <shardmesh/version.hpp>

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "border.hpp"

import shardmesh;
import shardmesh.core;
import shardmesh.kernels;

namespace c_api {
using namespace shardmesh;

static_assert(SHARDMESH_MAX_RANK == max_rank);
static_assert(SHARDMESH_DTYPE_BOOL == static_cast<int>(dtype::boolean));
static_assert(SHARDMESH_DTYPE_FLOAT32 == static_cast<int>(dtype::float32));
static_assert(SHARDMESH_DTYPE_FLOAT8_E4M3 == static_cast<int>(dtype::float8_e4m3));
static_assert(SHARDMESH_DTYPE_BITS4X2 == static_cast<int>(dtype::bits4x2));

namespace {

bool is_dtype(shardmesh_dtype type) {
  return type >= SHARDMESH_DTYPE_UNDEFINED && type <= SHARDMESH_DTYPE_BITS4X2;
}

// Throws errc::overflow if the strides do not fit.
extents row_major(const extents& sizes) {
  extents strides = extents::filled(sizes.rank(), 1);
  std::int64_t step = 1;
  for (std::size_t d = sizes.rank(); d-- > 0;) {
    strides[d] = step;
    if (__builtin_mul_overflow(step, std::max<std::int64_t>(sizes[d], 1), &step))
      refuse(fail(errc::overflow, "a tensor's number of elements does not fit in 64 bits"));
  }
  return strides;
}

// Distances between elements in bytes must fit in 64 bits. An element of less than a byte counts as one.
void check_reach(const extents& sizes, const extents& strides, dtype type) {
  const std::int64_t longest = std::numeric_limits<std::int64_t>::max() / std::max((bits(type) + 7) / 8, 1);
  std::int64_t reach = 0;
  for (std::size_t d = 0; d < sizes.rank() && !box::whole(sizes).is_empty(); ++d) {
    std::int64_t step = 0;
    if (__builtin_mul_overflow(sizes[d] - 1, strides[d], &step) || step == std::numeric_limits<std::int64_t>::min() ||
        __builtin_add_overflow(reach, step < 0 ? -step : step, &reach) || reach > longest)
      refuse(fail(errc::overflow, "the strides of a tensor do not fit in 64 bits")
                 .with_values("", to_string(strides) + " of sizes " + to_string(sizes)));
  }
}

template <class View, class Tensor>
View view_of(const Tensor& tensor) {
  View made;
  made.type = to_dtype(tensor.dtype);
  made.sizes = to_sizes(tensor.sizes, tensor.rank, "sizes of a tensor");
  check(check_shape(made.sizes));
  const extents plain = row_major(made.sizes);
  made.strides = tensor.strides == nullptr ? plain : to_extents(tensor.strides, tensor.rank, "strides of a tensor");
  check_reach(made.sizes, made.strides, made.type);
  if (tensor.data == nullptr && !box::whole(made.sizes).is_empty()) refuse_null("data of a tensor");
  made.data = static_cast<decltype(made.data)>(tensor.data);
  return made;
}

}  // namespace

shardmesh_text to_c(const std::string& text) {
  return {text.c_str(), text.size()};
}

void copy_to(std::int64_t* numbers, const extents& values) {
  std::fill_n(numbers, max_rank, 0);
  std::copy(values.begin(), values.end(), numbers);
}

shardmesh_box to_c(const box& b) {
  shardmesh_box made{};
  made.rank = static_cast<std::int64_t>(b.rank());
  copy_to(made.offsets, b.offsets);
  copy_to(made.sizes, b.sizes);
  return made;
}

extents to_extents(const std::int64_t* numbers, std::int64_t rank, std::string_view name) {
  if (rank < 0) refuse_argument(name, "has a negative number of dimensions");
  if (rank > static_cast<std::int64_t>(max_rank))
    refuse(fail(errc::rank_too_large, "too many dimensions")
               .with_values("at most " + std::to_string(max_rank), std::to_string(rank)));
  if (rank == 0) return {};
  if (numbers == nullptr) refuse_null(name);
  return extents(std::span<const std::int64_t>(numbers, static_cast<std::size_t>(rank)));
}

extents to_sizes(const std::int64_t* numbers, std::int64_t rank, std::string_view name) {
  const extents made = to_extents(numbers, rank, name);
  for (std::size_t d = 0; d < made.rank(); ++d)
    if (made[d] < 0)
      refuse(fail(errc::invalid_argument, "the argument " + std::string(name) + " has a negative number")
                 .with_values("at least 0", std::to_string(made[d]) + " in dimension " + std::to_string(d)));
  return made;
}

dtype to_dtype(shardmesh_dtype type) {
  if (!is_dtype(type) || type == SHARDMESH_DTYPE_UNDEFINED)
    refuse(
        fail(errc::invalid_argument, "no element type has this number").with_values("1 to 31", std::to_string(type)));
  return static_cast<dtype>(type);
}

tensor_view to_view(const shardmesh_tensor& tensor) {
  return view_of<tensor_view>(tensor);
}

const_tensor_view to_view(const shardmesh_const_tensor& tensor) {
  return view_of<const_tensor_view>(tensor);
}

std::string_view to_key(const char* key, std::size_t size) {
  if (key == nullptr) refuse_null("key");
  return size == 0 ? std::string_view(key) : std::string_view(key, size);
}

std::string_view to_text(const char* text, std::string_view name) {
  if (text == nullptr) refuse_null(name);
  return text;
}

int to_threads(std::int32_t threads) {
  if (threads < 0) refuse_argument("threads", "is negative");
  return threads;
}

std::int64_t to_memory(std::int64_t bytes, std::int64_t otherwise) {
  if (bytes < 0) refuse_argument("memory_bytes", "is negative");
  return bytes == 0 ? otherwise : bytes;
}

}  // namespace c_api

extern "C" {

int32_t shardmesh_c_api_version(void) {
  return SHARDMESH_C_API_VERSION;
}

const char* shardmesh_library_version(void) {
  return SHARDMESH_VERSION;
}

// The names are literals, so a 0 follows them.
const char* shardmesh_dtype_name(shardmesh_dtype dtype) {
  return shardmesh::name(c_api::is_dtype(dtype) ? static_cast<shardmesh::dtype>(dtype) : shardmesh::dtype::undefined)
      .data();
}

int32_t shardmesh_dtype_bits(shardmesh_dtype dtype) {
  return c_api::is_dtype(dtype) ? shardmesh::bits(static_cast<shardmesh::dtype>(dtype)) : 0;
}

shardmesh_dtype shardmesh_dtype_parse(const char* name) {
  shardmesh_dtype made = SHARDMESH_DTYPE_UNDEFINED;
  c_api::guarded(nullptr, [&] {
    const auto found = shardmesh::parse_dtype(c_api::to_text(name, "name"));
    if (found) made = static_cast<shardmesh_dtype>(*found);
  });
  return made;
}

}  // extern "C"
