// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <position_table.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.safetensors;

import :hf_parts;
import :sharding_info;

namespace shardmesh::safetensors {
namespace {

// Gathers the files' tensors and joins the parts of one tensor.
class gatherer {
 public:
  explicit gatherer(const std::vector<hf_file>& files) : files_(files), by_name_(entry_count(files)) {
    found_.reserve(entry_count(files));
  }

  result<void> add_file(std::size_t number) {
    const hf_file& file = files_[number];
    SHARDMESH_TRY(const auto info, read_sharding_info(file));
    for (const safetensors::entry& entry : file.header.entries) {
      hf_chunk chunk{extents::filled(entry.shape.rank(), 0), entry.shape, number, entry.begin, entry.end};
      if (info) {
        const auto found = info->find(entry.name);
        if (found == info->end())
          return fail(errc::missing_key, "DCP_SHARDING_INFO does not name it")
              .with_key(entry.name)
              .with_file(file.source->name());
        chunk.offsets = found->second;
      }
      SHARDMESH_TRY(add_chunk(entry, chunk, info.has_value()));
    }
    return {};
  }

  std::vector<hf_tensor> tensors() && {
    std::vector<hf_tensor> made;
    made.reserve(found_.size());
    for (gathered& part : found_) made.push_back(std::move(part.tensor));
    const auto by_name = [](const hf_tensor& a, const hf_tensor& b) { return a.name < b.name; };
    if (!std::is_sorted(made.begin(), made.end(), by_name)) std::sort(made.begin(), made.end(), by_name);
    return made;
  }

 private:
  static std::size_t entry_count(const std::vector<hf_file>& files) {
    std::size_t count = 0;
    for (const hf_file& file : files) count += file.header.entries.size();
    return count;
  }
  struct gathered {
    hf_tensor tensor;
    bool is_sharded = false;
  };

  result<void> add_chunk(const safetensors::entry& entry, const hf_chunk& chunk, bool is_sharded) {
    const auto bad = [&](errc code, std::string message) {
      return fail(code, std::move(message)).with_key(entry.name).with_file(files_[chunk.file].source->name());
    };
    if (chunk.offsets.rank() != entry.shape.rank())
      return bad(errc::shape_mismatch, "its saved_offsets and its shape differ in length")
          .with_values(detail::counted(entry.shape.rank(), "offset"), to_string(chunk.offsets));
    const box where{chunk.offsets, chunk.sizes};
    if (!is_well_formed(where))
      return bad(errc::overflow, "its saved_offsets are too large").with_values({}, to_string(chunk.offsets));

    const auto hash_of = [&](std::size_t i) { return std::hash<std::string_view>()(found_[i].tensor.name); };
    const std::uint64_t hash = std::hash<std::string_view>()(entry.name);
    std::size_t at = by_name_.find(hash, [&](std::size_t i) { return found_[i].tensor.name == entry.name; });
    const bool is_new = at == by_name_.none;
    if (is_new) {
      at = found_.size();
      found_.emplace_back();
      by_name_.insert(hash, at, hash_of);
    }
    gathered& known = found_[at];
    if (is_new) {
      known = {{entry.name, entry.type, extents::filled(entry.shape.rank(), 0), {}}, is_sharded};
    } else {
      const std::string& other = files_[known.tensor.chunks.front().file].name;
      if (!known.is_sharded || !is_sharded) return bad(errc::duplicate_key, fmt::format("is also in {}", other));
      if (known.tensor.type != entry.type)
        return bad(errc::dtype_mismatch, fmt::format("its parts differ in dtype, the other is in {}", other))
            .with_values(std::string(name(known.tensor.type)), std::string(name(entry.type)));
      if (known.tensor.shape.rank() != entry.shape.rank())
        return bad(errc::shape_mismatch, fmt::format("its parts differ in rank, the other is in {}", other))
            .with_values(detail::counted(known.tensor.shape.rank(), "dimension"), to_string(entry.shape));
    }
    for (std::size_t d = 0; d < where.rank(); ++d)
      known.tensor.shape[d] = std::max(known.tensor.shape[d], where.end(d));
    if (!checked_volume(known.tensor.shape))
      return bad(errc::overflow, fmt::format("its parts make a tensor of {}, which does not fit in 64 bits",
                                             to_string(known.tensor.shape)));
    known.tensor.chunks.push_back(chunk);
    return {};
  }

  const std::vector<hf_file>& files_;
  std::vector<gathered> found_;
  detail::position_table by_name_;  // indexes found_
};

}  // namespace

result<std::vector<hf_tensor>> join_parts(const std::vector<hf_file>& files) {
  gatherer gathered(files);
  for (std::size_t f = 0; f < files.size(); ++f) SHARDMESH_TRY(gathered.add_file(f));
  return std::move(gathered).tensors();
}

}  // namespace shardmesh::safetensors
