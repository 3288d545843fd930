// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <large_pages.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <utility>
module shardmesh.core;

namespace shardmesh {

void host_tensor::free_aligned::operator()(std::byte* memory) const {
  std::free(memory);
}

result<host_tensor> host_tensor::make(dtype type, const extents& sizes) {
  const auto count = checked_volume(sizes);
  if (!count)
    return fail(errc::overflow, fmt::format("a tensor of sizes {} does not fit in 64 bits", to_string(sizes)));
  const auto bytes = shardmesh::size_bytes(type, *count);
  if (!bytes)
    return fail(bits(type) % 8 != 0 ? errc::unaligned : errc::overflow,
                fmt::format("a tensor of {} of sizes {} {}", name(type), to_string(sizes),
                            bits(type) % 8 != 0 ? "is not a whole number of bytes" : "does not fit in 64 bits"));
  host_tensor made;
  made.type_ = type;
  made.sizes_ = sizes;
  made.size_bytes_ = static_cast<std::size_t>(*bytes);
  const std::size_t rounded = (std::max<std::size_t>(made.size_bytes_, 1) + 63) / 64 * 64;
  made.data_.reset(static_cast<std::byte*>(std::aligned_alloc(64, rounded)));
  if (!made.data_) {
    error problem = fail(errc::no_memory, fmt::format("cannot allocate {} bytes", rounded));
    problem.sys = ENOMEM;
    return problem;
  }
  detail::prefer_large_pages(made.data_.get(), rounded);
  return made;
}

result<host_tensor> host_tensor::zeros(dtype type, const extents& sizes) {
  SHARDMESH_TRY(host_tensor made, make(type, sizes));
  std::fill(made.bytes().begin(), made.bytes().end(), std::byte{0});
  return made;
}

result<host_tensor> host_tensor::clone() const {
  SHARDMESH_TRY(host_tensor copy, make(type_, sizes_));
  std::copy(bytes().begin(), bytes().end(), copy.bytes().begin());
  return copy;
}

}  // namespace shardmesh
