// SPDX-License-Identifier: Apache-2.0
// Small float32 tensors by name: written to a checkpoint, and read whole or box by box. It imports, so it
// is the last header that a test includes.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

import shardmesh.checkpoint;

namespace small_tensors {

struct tensor {
  shardmesh::extents shape;
  std::vector<float> values;  // row-major
  friend bool operator==(const tensor&, const tensor&) = default;
};
using tensors = std::map<std::string, tensor>;

inline std::int64_t volume(const shardmesh::extents& shape) {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) product *= size;
  return product;
}

/// Elements first, first + 1, ...
inline tensor counted(const shardmesh::extents& shape, float first = 0) {
  tensor made{shape, std::vector<float>(static_cast<std::size_t>(volume(shape)))};
  std::iota(made.values.begin(), made.values.end(), first);
  return made;
}

inline shardmesh::tensor_view view_of(tensor& one) {
  return {reinterpret_cast<std::byte*>(one.values.data()),
          shardmesh::dtype::float32,
          {},
          one.shape,
          shardmesh::contiguous_strides(one.shape)};
}

/// The elements of a box.
inline tensor part_of(tensor& whole, const shardmesh::box& part) {
  tensor made{part.sizes, std::vector<float>(static_cast<std::size_t>(part.volume()))};
  if (!part.is_empty()) shardmesh::copy(view_of(made), shardmesh::subview(view_of(whole), part)).value();
  return made;
}

/// The boxes of a tensor that is cut into `cuts` rows of chunks.
inline std::vector<shardmesh::box> rows_of(const shardmesh::extents& shape, std::int64_t cuts) {
  std::vector<shardmesh::box> made;
  const std::int64_t rows = shape.rank() == 0 ? 1 : shape[0];
  const std::int64_t pieces = shape.rank() == 0 ? 1 : std::max(std::int64_t{1}, std::min(cuts, rows));
  for (std::int64_t i = 0; i < pieces; ++i) {
    shardmesh::box where = shardmesh::box::whole(shape);
    if (pieces > 1) where.offsets[0] = rows * i / pieces, where.sizes[0] = rows * (i + 1) / pieces - where.offsets[0];
    made.push_back(where);
  }
  return made;
}

/// Writes a DCP folder whose tensors are cut into `cuts` rows of chunks, or a safetensors file.
inline shardmesh::result<shardmesh::save_report> try_write(const std::filesystem::path& destination, tensors& all,
                                                           std::int64_t cuts, const shardmesh::save_options& options) {
  std::vector<shardmesh::save_tensor> saved;
  for (auto& [key, one] : all) {
    shardmesh::save_tensor made{key, {}, one.shape, {}};
    for (const shardmesh::box& where : rows_of(one.shape, cuts))
      made.parts.push_back(
          {where, shardmesh::subview(view_of(one), where), static_cast<std::int32_t>(made.parts.size())});
    saved.push_back(std::move(made));
  }
  const bool is_file = destination.extension() == ".safetensors";
  return shardmesh::save(destination, saved,
                         is_file ? shardmesh::target_format::safetensors : shardmesh::target_format::dcp, options);
}
inline void write(const std::filesystem::path& destination, tensors& all, std::int64_t cuts = 1) {
  try_write(destination, all, cuts, {.durable = false}).value();
}

/// Reads a box of a tensor.
inline tensor read(shardmesh::checkpoint_reader& reader, const std::string& key, const shardmesh::box& part) {
  tensor made{part.sizes, std::vector<float>(static_cast<std::size_t>(part.volume()), -1.0F)};
  shardmesh::load_into(reader, key, part, view_of(made)).value();
  return made;
}

/// Reads all tensors of a checkpoint.
inline tensors read_all(shardmesh::checkpoint_reader& reader) {
  tensors made;
  for (const shardmesh::tensor_entry& entry : reader.contents().tensors)
    made[entry.key] = read(reader, entry.key, shardmesh::box::whole(entry.shape));
  return made;
}

}  // namespace small_tensors
