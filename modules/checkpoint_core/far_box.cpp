// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>
module shardmesh.checkpoint_core;

import :box_ranges;
import :far_box;

namespace shardmesh {
namespace {

constexpr std::int64_t least_staging_bytes = std::int64_t{16} << 20;
constexpr std::size_t most_ranges = 4096;  // of one call of `read_ranges`

class far_box_reader {
 public:
  far_box_reader(const byte_source& source, const stored_tensor& tensor, const read_options& options)
      : source_(source),
        tensor_(tensor),
        gap_bytes_(source.bytes_per_request()),
        staging_bytes_(std::max(options.staging_bytes, least_staging_bytes)) {}

  result<void> read(const box& part, const tensor_view& to) {
    SHARDMESH_TRY(add(part, to));
    return read_added();
  }

 private:
  // A part that is read together with the gaps between its elements.
  struct staged_part {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t length = 0;
    box part;
    tensor_view to;
  };

  result<void> add(const box& part, const tensor_view& to) {
    const covering range = cover(tensor_, part);
    if (range.length == 0) return {};
    if (is_row_major(tensor_, part) && is_plain(tensor_, to) && is_contiguous(to))
      return add_range(range.first, {to.data, static_cast<std::size_t>(range.length)});
    if (part.volume() == 1) return add_staged(part, to, range);
    const std::size_t d = outermost(tensor_, part);
    if (gap_after_one(part, d) > gap_bytes_) return add_in_steps(part, to, d, 1);
    if (range.length <= staging_bytes_) return add_staged(part, to, range);
    const std::int64_t per_index = std::max<std::int64_t>(tensor_.strides[d] * item_bytes(tensor_.type), 1);
    const std::int64_t step = std::clamp<std::int64_t>(staging_bytes_ / per_index, 1, part.sizes[d]);
    return add_in_steps(part, to, d, step == part.sizes[d] ? (step + 1) / 2 : step);
  }

  // Returns the number of bytes between the range of one index of a dimension and that of the next.
  std::int64_t gap_after_one(const box& part, std::size_t d) const {
    box one = part;
    one.sizes[d] = 1;
    return tensor_.strides[d] * item_bytes(tensor_.type) - cover(tensor_, one).length;
  }

  result<void> add_in_steps(const box& part, const tensor_view& to, std::size_t d, std::int64_t step) {
    for (std::int64_t at = 0; at < part.sizes[d]; at += step) {
      box piece = part, within = box::whole(part.sizes);
      piece.offsets[d] += at;
      piece.sizes[d] = std::min(step, part.sizes[d] - at);
      within.offsets[d] = at;
      within.sizes[d] = piece.sizes[d];
      SHARDMESH_TRY(add(piece, subview(to, within)));
    }
    return {};
  }

  result<void> add_staged(const box& part, const tensor_view& to, const covering& range) {
    if (staged_bytes_ > 0 && staged_bytes_ + range.length > staging_bytes_) SHARDMESH_TRY(read_added());
    const auto length = static_cast<std::size_t>(range.length);
    staged_part& made =
        staged_.emplace_back(staged_part{std::make_unique_for_overwrite<std::byte[]>(length), length, part, to});
    staged_bytes_ += range.length;
    return add_range(range.first, {made.bytes.get(), length});
  }

  result<void> add_range(std::int64_t first, std::span<std::byte> out) {
    const std::int64_t offset = tensor_.begin + first;
    if (!ranges_.empty()) {
      source_range& last = ranges_.back();
      const bool continues = last.offset + static_cast<std::int64_t>(last.out.size()) == offset &&
                             last.out.data() + last.out.size() == out.data();
      if (continues) {
        last.out = {last.out.data(), last.out.size() + out.size()};
        return {};
      }
    }
    ranges_.push_back({offset, out});
    return ranges_.size() < most_ranges ? result<void>{} : read_added();
  }

  result<void> read_added() {
    if (ranges_.empty()) return {};
    SHARDMESH_TRY(source_.read_ranges(ranges_));
    ranges_.clear();
    for (const staged_part& one : staged_)
      SHARDMESH_TRY(copy_staged(tensor_, {one.bytes.get(), one.length}, one.part, one.to));
    staged_.clear();
    staged_bytes_ = 0;
    return {};
  }

  const byte_source& source_;
  const stored_tensor& tensor_;
  const std::int64_t gap_bytes_, staging_bytes_;
  std::vector<source_range> ranges_;
  std::vector<staged_part> staged_;
  std::int64_t staged_bytes_ = 0;
};

}  // namespace

result<void> read_far_box(const byte_source& source, const stored_tensor& tensor, const box& part,
                          const tensor_view& to, const read_options& options) {
  return far_box_reader(source, tensor, options).read(part, to);
}

}  // namespace shardmesh
