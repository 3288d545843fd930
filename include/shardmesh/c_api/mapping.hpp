// SPDX-License-Identifier: Apache-2.0
// `mapped_tensor`: a tensor, or a box of one, in place in a checkpoint's file.
#pragma once
#include <shardmesh/c_api/mapping.h>
#include <shardmesh/c_api/checkpoint.hpp>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace shardmesh {
namespace c_api {

/// Options for mapping a tensor. Empty offsets and sizes: the whole tensor.
struct map_options {
  std::vector<std::int64_t> offsets{}, sizes{};
  bool allow_unaligned = false;
};

/// Read-only memory of a file. It may outlive the checkpoint.
class mapped_tensor {
 public:
  explicit mapped_tensor(shardmesh_mapped* made) : handle_(made) {}
  /// The view is valid while this object lives.
  const_tensor view() const {
    const shardmesh_mapped_view from = described();
    return {from.data, from.dtype, std::vector<std::int64_t>(from.sizes, from.sizes + from.rank),
            std::vector<std::int64_t>(from.strides, from.strides + from.rank)};
  }
  /// Bytes from the first element to the last.
  std::int64_t size_bytes() const { return described().byte_size; }
  /// Throws `error` with status SHARDMESH_IO if the file became shorter.
  void check() const {
    checked([&](shardmesh_error** e) { return shardmesh_mapped_check(handle_.get(), e); });
  }

 private:
  shardmesh_mapped_view described() const {
    shardmesh_mapped_view made{};
    made.struct_size = sizeof made;
    checked([&](shardmesh_error** e) { return shardmesh_mapped_describe(handle_.get(), &made, e); });
    return made;
  }
  std::unique_ptr<shardmesh_mapped, free_with<&shardmesh_mapped_free>> handle_;
};

inline mapped_tensor map_tensor(const checkpoint& from, const std::string& key, const map_options& options = {}) {
  if (options.offsets.size() != options.sizes.size())
    throw std::invalid_argument("a box must have as many offsets as sizes, or none");
  shardmesh_map_options how{};
  how.struct_size = sizeof how;
  how.rank = static_cast<std::int64_t>(options.sizes.size());
  how.offsets = options.offsets.empty() ? nullptr : options.offsets.data();
  how.sizes = options.sizes.empty() ? nullptr : options.sizes.data();
  how.allow_unaligned = options.allow_unaligned ? 1 : 0;
  shardmesh_mapped* made = nullptr;
  checked([&](shardmesh_error** e) { return shardmesh_map_tensor(from.c(), key.data(), key.size(), &how, &made, e); });
  return mapped_tensor(made);
}

}  // namespace c_api
}  // namespace shardmesh
