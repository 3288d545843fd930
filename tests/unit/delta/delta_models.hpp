// SPDX-License-Identifier: Apache-2.0
// Checkpoints as maps of bytes: written with any chunks, read back, and changed at random. It imports, so it is the
// last header that a test includes.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <dice.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

import shardmesh.checkpoint;
import shardmesh.core;
import shardmesh.delta;

namespace delta_models {

/// A tensor: its elements are bytes in row-major order.
struct tensor {
  shardmesh::dtype type = shardmesh::dtype::uint8;
  shardmesh::extents shape;
  std::vector<std::byte> bytes;
  friend bool operator==(const tensor&, const tensor&) = default;
};
using tensors = std::map<std::string, tensor>;

inline std::size_t size_of(shardmesh::dtype type, const shardmesh::extents& shape) {
  return static_cast<std::size_t>(shardmesh::box::whole(shape).volume() * shardmesh::item_bytes(type));
}

inline std::byte random_byte(dice& random) {
  return static_cast<std::byte>(random.below(256));
}

inline tensor random_tensor(dice& random, shardmesh::dtype type, const shardmesh::extents& shape) {
  tensor made{type, shape, std::vector<std::byte>(size_of(type, shape))};
  for (std::byte& one : made.bytes) one = random_byte(random);
  return made;
}

/// Of 0 to 3 dimensions; some have a size of 0.
inline shardmesh::extents random_shape(dice& random) {
  shardmesh::extents shape;
  const std::int64_t rank = random.up_to(3);
  for (std::int64_t d = 0; d < rank; ++d)
    shape.push_back(random.one_in(12) ? 0 : 1 + random.below(rank == 1 ? 400 : 12));
  return shape;
}

inline shardmesh::dtype random_type(dice& random) {
  using shardmesh::dtype;
  return random.pick({dtype::uint8, dtype::int8, dtype::bfloat16, dtype::float16, dtype::int32, dtype::float32,
                      dtype::int64, dtype::float64, dtype::float8_e4m3fn});
}

inline shardmesh::tensor_view view_of(tensor& one) {
  return {one.bytes.data(), one.type, {}, one.shape, shardmesh::contiguous_strides(one.shape)};
}

/// The elements of a box, element by element.
inline std::vector<std::byte> part_of(const tensor& whole, const shardmesh::box& part) {
  std::vector<std::byte> made;
  const auto item = static_cast<std::size_t>(shardmesh::item_bytes(whole.type));
  const std::int64_t count = part.volume();
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i, at = 0, stride = 1;
    for (std::size_t d = part.rank(); d-- > 0;) {
      at += (part.offsets[d] + rest % part.sizes[d]) * stride;
      rest /= part.sizes[d];
      stride *= whole.shape[d];
    }
    const auto first = whole.bytes.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(at) * item);
    made.insert(made.end(), first, first + static_cast<std::ptrdiff_t>(item));
  }
  return made;
}

inline shardmesh::box random_box(dice& random, const shardmesh::extents& shape) {
  shardmesh::box made = shardmesh::box::whole(shape);
  for (std::size_t d = 0; d < shape.rank(); ++d) {
    made.offsets[d] = random.up_to(shape[d]);
    made.sizes[d] = random.up_to(shape[d] - made.offsets[d]);
  }
  return made;
}

/// Writes a safetensors file, or a DCP folder whose tensors are cut into up to `cuts` runs of rows.
inline void write(const std::filesystem::path& destination, tensors& all, std::int64_t cuts = 1) {
  std::vector<shardmesh::save_tensor> saved;
  for (auto& [key, one] : all) {
    shardmesh::save_tensor made{key, {}, one.shape, {}};
    const std::int64_t rows = one.shape.rank() == 0 ? 1 : one.shape[0];
    const std::int64_t pieces = one.shape.rank() == 0 ? 1 : std::clamp<std::int64_t>(rows, 1, cuts);
    for (std::int64_t i = 0; i < pieces; ++i) {
      shardmesh::box where = shardmesh::box::whole(one.shape);
      if (pieces > 1) where.offsets[0] = rows * i / pieces, where.sizes[0] = rows * (i + 1) / pieces - where.offsets[0];
      made.parts.push_back({where, shardmesh::subview(view_of(one), where), static_cast<std::int32_t>(i)});
    }
    saved.push_back(std::move(made));
  }
  const bool is_file = destination.extension() == ".safetensors";
  shardmesh::save(destination, saved, is_file ? shardmesh::target_format::safetensors : shardmesh::target_format::dcp,
                  {.durable = false})
      .value();
}

inline shardmesh::result<tensor> read(shardmesh::checkpoint_reader& reader, const shardmesh::tensor_entry& entry,
                                      const shardmesh::box& part) {
  tensor made{entry.type, part.sizes, std::vector<std::byte>(size_of(entry.type, part.sizes))};
  auto loaded = shardmesh::load_into(reader, entry.key, part, view_of(made));
  if (!loaded) return std::move(loaded).error();
  return made;
}

/// All tensors, or the first error.
inline shardmesh::result<tensors> read_all(shardmesh::checkpoint_reader& reader) {
  tensors made;
  for (const shardmesh::tensor_entry& entry : reader.contents().tensors) {
    auto one = read(reader, entry, shardmesh::box::whole(entry.shape));
    if (!one) return std::move(one).error();
    made[entry.key] = *std::move(one);
  }
  return made;
}

inline std::unique_ptr<shardmesh::checkpoint_reader> opened(const std::filesystem::path& path) {
  return shardmesh::open_checkpoint(path).value();
}

/// Writes a delta between two checkpoints.
inline shardmesh::result<shardmesh::delta_report> try_delta(const std::filesystem::path& base,
                                                            const std::filesystem::path& next,
                                                            const std::filesystem::path& file,
                                                            shardmesh::delta_options options = {}) {
  options.durable = false;
  const auto old = opened(base), made = opened(next);
  return shardmesh::save_delta(*old, *made, file, options);
}

inline std::vector<std::byte> bytes_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::vector<std::byte> made(text.size());
  std::transform(text.begin(), text.end(), made.begin(), [](char c) { return static_cast<std::byte>(c); });
  return made;
}

inline void put(const std::filesystem::path& file, const std::vector<std::byte>& bytes) {
  std::ofstream out(file, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace delta_models
