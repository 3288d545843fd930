// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
module shardmesh.checkpoint_core;

import :box_ranges;
import :far_box;

namespace shardmesh {
namespace {

// Returns the size in bytes of the longest run that is contiguous in the source, whatever the order of dimensions.
std::int64_t run_bytes(const stored_tensor& tensor, const box& part) {
  std::int64_t run = 1;
  for (bool grown = true; grown;) {
    grown = false;
    for (std::size_t d = 0; d < part.rank(); ++d)
      if (part.sizes[d] > 1 && tensor.strides[d] == run) {
        run *= part.sizes[d];
        grown = true;
        break;
      }
  }
  return run * item_bytes(tensor.type);
}

// True when the covering range is much larger than the part.
bool leaves_much_out(const stored_tensor& tensor, const box& part) {
  const std::int64_t wanted = part.volume() * item_bytes(tensor.type);
  return cover(tensor, part).length > wanted + wanted / 4;
}

bool is_wasteful(const stored_tensor& tensor, const box& part, const read_options& options) {
  return leaves_much_out(tensor, part) && run_bytes(tensor, part) >= options.min_run_bytes;
}

class box_reader {
 public:
  box_reader(const byte_source& source, const stored_tensor& tensor, const read_options& options, file_maps* maps)
      : source_(source), tensor_(tensor), options_(options), maps_(options.map_rows ? maps : nullptr) {}

  // Splits along the outermost dimension until a part's covering range is worth one read and fits the staging memory.
  // The recursion depth is at most rank * log2(size).
  result<void> read(const box& part, const tensor_view& to) {
    const covering range = cover(tensor_, part);
    if (range.length == 0) return {};
    if (is_row_major(tensor_, part) && is_plain(tensor_, to) && is_contiguous(to))
      return source_.read(tensor_.begin + range.first, {to.data, static_cast<std::size_t>(range.length)});
    if (maps_ != nullptr && leaves_much_out(tensor_, part) && !tensor_.swap_bytes && !tensor_.conjugate &&
        !tensor_.negative)
      if (const auto place = source_.plain_file()) return copy_mapped(*place, part, to, range);
    const bool single = part.volume() == 1;
    if (!single && (range.length > options_.staging_bytes || is_wasteful(tensor_, part, options_))) {
      const std::size_t d = outermost(tensor_, part);
      // Equal steps that each fit, instead of repeated halving: reads stay large.
      const std::int64_t per_index = std::max<std::int64_t>(tensor_.strides[d] * item_bytes(tensor_.type), 1);
      std::int64_t step = std::clamp<std::int64_t>(options_.staging_bytes / per_index, 1, part.sizes[d]);
      if (is_wasteful(tensor_, part, options_)) step = 1;
      if (step == part.sizes[d]) step = (step + 1) / 2;
      return read_in_steps(part, to, d, step);
    }
    return read_staged(part, to, range);
  }

 private:
  result<void> read_in_steps(const box& part, const tensor_view& to, std::size_t d, std::int64_t step) {
    for (std::int64_t at = 0; at < part.sizes[d]; at += step) {
      box piece = part;
      box within = box::whole(part.sizes);
      piece.offsets[d] += at;
      piece.sizes[d] = std::min(step, part.sizes[d] - at);
      within.offsets[d] = at;
      within.sizes[d] = piece.sizes[d];
      SHARDMESH_TRY(read(piece, subview(to, within)));
    }
    return {};
  }

  result<void> copy_mapped(const file_range& place, const box& part, const tensor_view& to, const covering& range) {
    SHARDMESH_TRY(const auto mapped, maps_->open(place.path));
    SHARDMESH_TRY(mapped->check());
    // Opening the checkpoint has checked the length, but the file may have shrunk since.
    const std::int64_t begin = place.offset + tensor_.begin + range.first;
    if (begin + range.length > static_cast<std::int64_t>(mapped->bytes().size()))
      return fail(errc::io, "became shorter after it was opened").with_file(place.path);
    return copy(to, const_tensor_view{mapped->bytes().data() + begin, tensor_.type, {}, part.sizes, tensor_.strides});
  }

  result<void> read_staged(const box& part, const tensor_view& to, const covering& range) {
    if (range.length > capacity_) {
      staging_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(range.length));
      capacity_ = range.length;
    }
    SHARDMESH_TRY(source_.read(tensor_.begin + range.first, {staging_.get(), static_cast<std::size_t>(range.length)}));
    return copy_staged(tensor_, {staging_.get(), static_cast<std::size_t>(range.length)}, part, to);
  }

  const byte_source& source_;
  const stored_tensor& tensor_;
  const read_options& options_;
  file_maps* maps_;  // null: nothing is mapped
  std::unique_ptr<std::byte[]> staging_;
  std::int64_t capacity_ = 0;
};

// True when the tensor has all elements of a computed source, in their order.
bool shows_all(const stored_tensor& tensor, const computed_source& source) {
  return tensor.begin == 0 && tensor.storage_offset == 0 && tensor.type == source.type() &&
         tensor.sizes == source.sizes() && is_contiguous(tensor.sizes, tensor.strides) && !tensor.swap_bytes &&
         !tensor.conjugate && !tensor.negative;
}

}  // namespace

stored_tensor contiguous_stored_tensor(dtype type, const extents& sizes, std::int64_t begin, std::int64_t size_bytes) {
  stored_tensor made;
  made.begin = begin;
  made.size_bytes = size_bytes;
  made.type = type;
  made.sizes = sizes;
  made.strides = contiguous_strides(sizes);
  return made;
}

std::int64_t read_cost_bytes(const stored_tensor& tensor, const box& part, const read_options& options) {
  if (part.is_empty()) return 0;
  return is_wasteful(tensor, part, options) ? part.volume() * item_bytes(tensor.type) : cover(tensor, part).length;
}

result<void> read_box(const byte_source& source, const stored_tensor& tensor, const box& part, const tensor_view& to,
                      const read_options& options, file_maps* maps) {
  if (part.rank() != tensor.sizes.rank() || !is_well_formed(part) || !lies_within(part, box::whole(tensor.sizes)))
    return fail(errc::out_of_bounds, "the box lies outside of the stored tensor")
        .with_file(source.name())
        .with_box(part)
        .with_values(to_string(box::whole(tensor.sizes)), to_string(part));
  if (bits(tensor.type) % 8 != 0) {
    if (part != box::whole(tensor.sizes) || to.type != tensor.type || !is_contiguous(to))
      return fail(errc::unaligned, fmt::format("{} can only be read whole", name(tensor.type)))
          .with_file(source.name())
          .with_box(part);
    return source.read(tensor.begin, {to.data, static_cast<std::size_t>(tensor.size_bytes)});
  }
  // A computed source chooses the boxes in which it makes its elements; byte ranges would make it compute whole rows.
  if (const auto* const computed = dynamic_cast<const computed_source*>(&source))
    if (shows_all(tensor, *computed)) return computed->read_part(part, to);
  if (source.bytes_per_request() > 0) return read_far_box(source, tensor, part, to, options);
  return box_reader(source, tensor, options, maps).read(part, to);
}

}  // namespace shardmesh
