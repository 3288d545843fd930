// SPDX-License-Identifier: Apache-2.0
// A read of a byte range is split into boxes of the chunk; each box is read and scaled. Reading converts FP8 to
// float32, which is then multiplied in place. MXFP4 codes go through a table of their sixteen values.
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import :quantized_sources;

namespace shardmesh {
namespace {

tensor_view contiguous_view(void* data, dtype type, const extents& sizes) {
  return {static_cast<std::byte*>(data), type, {}, sizes, contiguous_strides(sizes)};
}

// Converts a part of a chunk to a box of the whole tensor.
box within_whole(const box& chunk, box part) {
  for (std::size_t d = 0; d < part.rank(); ++d) part.offsets[d] += chunk.offsets[d];
  return part;
}

class fp8_source final : public computed_source {
 public:
  fp8_source(quantized_chunk weight, stored_boxes scales, std::int64_t block)
      : computed_source(dtype::float32, weight.where.sizes, weight.file),
        weight_(std::move(weight)),
        scales_(scales),
        block_(block) {}

 private:
  result<void> make(const box& part, const tensor_view& made) const override {
    float* to = reinterpret_cast<float*>(made.data);
    SHARDMESH_TRY(const known_scales* scales, scales_of_chunk());
    SHARDMESH_TRY(weight_.of.source->read({0, weight_.number}, part, made));
    const box whole = within_whole(weight_.where, part);
    const std::int64_t begin = whole.offsets[1], end = begin + whole.sizes[1];
    for (std::int64_t i = 0; i < whole.sizes[0]; ++i) {
      const std::int64_t block_row = (whole.offsets[0] + i) / block_ - scales->where.offsets[0];
      const float* const row_scales = scales->values.data() + block_row * scales->where.sizes[1];
      for (std::int64_t column = begin; column < end;) {
        const std::int64_t block_column = column / block_;
        const std::int64_t stop = std::min(end, (block_column + 1) * block_);
        const float scale = row_scales[block_column - scales->where.offsets[1]];
        for (; column < stop; ++column) *to++ *= scale;
      }
    }
    return {};
  }

  // The scales of the chunk's blocks: 4 bytes for 16,384 elements. Read together with the first element.
  struct known_scales {
    box where;
    std::vector<float> values;
  };
  result<const known_scales*> scales_of_chunk() const {
    SHARDMESH_TRY(const auto held, lock_.acquire());
    if (scales_known_) return &*scales_known_;
    known_scales known{weight_.where, {}};
    for (std::size_t d = 0; d < 2; ++d) {
      const std::int64_t last = weight_.where.offsets[d] + weight_.where.sizes[d] - 1;
      known.where.offsets[d] = weight_.where.offsets[d] / block_;
      known.where.sizes[d] = last / block_ + 1 - known.where.offsets[d];
    }
    known.values.resize(static_cast<std::size_t>(known.where.volume()));
    SHARDMESH_TRY(scales_.read(known.where, contiguous_view(known.values.data(), dtype::float32, known.where.sizes)));
    scales_known_ = std::move(known);
    return &*scales_known_;
  }

  quantized_chunk weight_;
  stored_boxes scales_;
  std::int64_t block_;
  mutable detail::call_lock lock_;
  mutable std::optional<known_scales> scales_known_;
};

// The values of the E2M1 codes 0 to 15.
constexpr std::array<float, 16> fp4_values{0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                           -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

class mxfp4_source final : public computed_source {
 public:
  mxfp4_source(quantized_chunk blocks, stored_boxes scales)
      : computed_source(dtype::float32, merged(blocks.where.sizes), blocks.file),
        blocks_(std::move(blocks)),
        scales_(scales) {}

 private:
  static extents merged(extents sizes) {
    const std::size_t last = sizes.rank() - 1;
    sizes[last - 1] *= sizes[last] * 2;
    sizes.resize(last);
    return sizes;
  }

  // Reads all groups that the part touches. Drops the elements of the first and last group that are outside the part.
  result<void> make(const box& part, const tensor_view& made) const override {
    float* to = reinterpret_cast<float*>(made.data);
    const std::size_t last = part.rank() - 1;
    const std::int64_t bytes = blocks_.where.sizes[last + 1], group = bytes * 2;
    box stored = part, scales = part;
    const std::int64_t first_group = part.offsets[last] / group;
    const std::int64_t groups = (part.offsets[last] + part.sizes[last] - 1) / group + 1 - first_group;
    stored.offsets[last] = scales.offsets[last] = first_group;
    stored.sizes[last] = scales.sizes[last] = groups;
    stored.offsets.push_back(0);
    stored.sizes.push_back(bytes);
    box chunk = blocks_.where;
    chunk.offsets.resize(last + 1);
    chunk.sizes.resize(last + 1);
    scales = within_whole(chunk, scales);
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(stored.volume()));
    std::vector<std::uint8_t> exponents(static_cast<std::size_t>(scales.volume()));
    SHARDMESH_TRY(blocks_.of.source->read({0, blocks_.number}, stored,
                                          contiguous_view(codes.data(), dtype::uint8, stored.sizes)));
    SHARDMESH_TRY(scales_.read(scales, contiguous_view(exponents.data(), dtype::uint8, scales.sizes)));
    const std::int64_t begin = part.offsets[last] % group, end = begin + part.sizes[last];
    const std::uint8_t* code = codes.data();
    const std::uint8_t* exponent = exponents.data();
    for (std::int64_t row = part.volume() / part.sizes[last]; row > 0; --row)
      for (std::int64_t g = 0; g < groups; ++g, code += bytes) {
        const auto values = scaled(*exponent++);
        const std::int64_t from = std::max(begin - g * group, std::int64_t{0}),
                           until = std::min(end - g * group, group);
        if (until - from == group) {
          for (std::int64_t i = 0; i < bytes; ++i, to += 2) to[0] = values[code[i] & 15], to[1] = values[code[i] >> 4];
        } else {
          for (std::int64_t i = from; i < until; ++i) *to++ = values[(code[i / 2] >> (i % 2 * 4)) & 15];
        }
      }
    return {};
  }

  // All sixteen values times 2^(exponent - 127), exactly: 2^128 is not a float32, but 0.5 times 2^128 is.
  static std::array<float, 16> scaled(std::uint8_t exponent) {
    std::array<float, 16> values;
    const double factor = std::bit_cast<double>(static_cast<std::uint64_t>(exponent - 127 + 1023) << 52);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(double{fp4_values[i]} * factor);
    return values;
  }

  quantized_chunk blocks_;
  stored_boxes scales_;
};

}  // namespace

std::shared_ptr<const byte_source> make_fp8_source(quantized_chunk weight, stored_boxes scales, std::int64_t block) {
  return std::make_shared<const fp8_source>(std::move(weight), scales, block);
}

std::shared_ptr<const byte_source> make_mxfp4_source(quantized_chunk blocks, stored_boxes scales) {
  return std::make_shared<const mxfp4_source>(std::move(blocks), scales);
}

}  // namespace shardmesh
