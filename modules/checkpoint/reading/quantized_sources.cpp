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
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import :quantized_sources;

namespace shardmesh {
namespace {

// Elements computed at a time. They stay in a core's cache between reading and scaling.
constexpr std::int64_t piece_elements = std::int64_t{1} << 17;

tensor_view contiguous_view(void* data, dtype type, const extents& sizes) {
  return {static_cast<std::byte*>(data), type, {}, sizes, contiguous_strides(sizes)};
}

// The next box of a row-major tensor: a run of at most `count` elements that begins at element `first`. Long runs are
// cut into pieces where a dimension allows it.
box next_run(const extents& sizes, std::int64_t first, std::int64_t count) {
  const extents strides = contiguous_strides(sizes);
  const std::int64_t most = std::min(count, piece_elements);
  std::size_t along = sizes.rank() - 1;
  for (std::size_t d = 0; d < sizes.rank(); ++d)
    if (first % strides[d] == 0 && strides[d] <= most) {
      along = d;
      break;
    }
  box run = box::whole(sizes);
  for (std::size_t d = 0; d <= along; ++d) {
    run.offsets[d] = first / strides[d] % sizes[d];
    run.sizes[d] = d < along ? 1 : std::min(most / strides[d], sizes[d] - run.offsets[d]);
  }
  return run;
}

// Row-major float32 elements of a shape, computed while they are read.
class computed_source : public byte_source {
 public:
  computed_source(extents sizes, std::string file) : sizes_(std::move(sizes)), file_(std::move(file)) {}
  std::int64_t size_bytes() const override {
    return shardmesh::size_bytes(dtype::float32, box::whole(sizes_).volume()).value_or(0);
  }
  std::string name() const override { return file_; }

  result<void> read(std::int64_t offset, std::span<std::byte> out) const override {
    const auto length = static_cast<std::int64_t>(out.size());
    if (offset < 0 || length > size_bytes() || offset > size_bytes() - length)
      return fail(errc::out_of_bounds, "reads past the end").with_file(file_);
    constexpr std::int64_t item = sizeof(float);
    const bool is_aligned =
        offset % item == 0 && length % item == 0 && reinterpret_cast<std::uintptr_t>(out.data()) % alignof(float) == 0;
    if (is_aligned) return make_run(offset / item, length / item, reinterpret_cast<float*>(out.data()));
    std::vector<float> made(static_cast<std::size_t>(std::min(length / item + 2, piece_elements)));
    for (std::int64_t at = 0; at < length;) {
      const std::int64_t first = (offset + at) / item, skipped = (offset + at) % item;
      const std::int64_t bytes = std::min(length - at, static_cast<std::int64_t>(made.size()) * item - skipped);
      SHARDMESH_TRY(make_run(first, (skipped + bytes + item - 1) / item, made.data()));
      std::memcpy(out.data() + at, reinterpret_cast<const std::byte*>(made.data()) + skipped,
                  static_cast<std::size_t>(bytes));
      at += bytes;
    }
    return {};
  }

 protected:
  // Fills `to` (contiguous) with a box of the chunk.
  virtual result<void> make(const box& part, float* to) const = 0;

 private:
  result<void> make_run(std::int64_t first, std::int64_t count, float* to) const {
    while (count > 0) {
      const box part = next_run(sizes_, first, count);
      SHARDMESH_TRY(make(part, to));
      const std::int64_t done = part.volume();
      first += done, count -= done, to += done;
    }
    return {};
  }

  extents sizes_;
  std::string file_;
};

// Converts a part of a chunk to a box of the whole tensor.
box within_whole(const box& chunk, box part) {
  for (std::size_t d = 0; d < part.rank(); ++d) part.offsets[d] += chunk.offsets[d];
  return part;
}

class fp8_source final : public computed_source {
 public:
  fp8_source(quantized_chunk weight, stored_boxes scales, std::int64_t block)
      : computed_source(weight.where.sizes, weight.file), weight_(std::move(weight)), scales_(scales), block_(block) {}

 private:
  result<void> make(const box& part, float* to) const override {
    SHARDMESH_TRY(const known_scales* scales, scales_of_chunk());
    SHARDMESH_TRY(weight_.of.source->read({0, weight_.number}, part, contiguous_view(to, dtype::float32, part.sizes)));
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
    const std::scoped_lock guard(lock_);
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
  mutable std::mutex lock_;
  mutable std::optional<known_scales> scales_known_;
};

// The values of the E2M1 codes 0 to 15.
constexpr std::array<float, 16> fp4_values{0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                           -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

class mxfp4_source final : public computed_source {
 public:
  mxfp4_source(quantized_chunk blocks, stored_boxes scales)
      : computed_source(merged(blocks.where.sizes), blocks.file), blocks_(std::move(blocks)), scales_(scales) {}

 private:
  static extents merged(extents sizes) {
    const std::size_t last = sizes.rank() - 1;
    sizes[last - 1] *= sizes[last] * 2;
    sizes.resize(last);
    return sizes;
  }

  // Reads all groups that the part touches. Drops the elements of the first and last group that are outside the part.
  result<void> make(const box& part, float* to) const override {
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

result<void> stored_boxes::read(const box& part, const tensor_view& to) const {
  const catalog& contents = reader->contents();
  if (tensor->chunk_count == 1 && contents.chunk_box(*tensor, tensor->first_chunk) == box::whole(tensor->shape))
    return source->read({0, tensor->first_chunk}, part, to);
  SHARDMESH_TRY(const distribution held, contents.distribution_of(*tensor));
  const memory_target target{0, part, to};
  item_run_options alone;
  alone.threads = 1;  // the caller is one of several threads already
  return run_to_memory({&held, 1}, {&tensor->key, 1}, {&target, 1}, *source, alone);
}

std::shared_ptr<const byte_source> make_fp8_source(quantized_chunk weight, stored_boxes scales, std::int64_t block) {
  return std::make_shared<const fp8_source>(std::move(weight), scales, block);
}

std::shared_ptr<const byte_source> make_mxfp4_source(quantized_chunk blocks, stored_boxes scales) {
  return std::make_shared<const mxfp4_source>(std::move(blocks), scales);
}

}  // namespace shardmesh
