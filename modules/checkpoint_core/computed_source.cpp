// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>
module shardmesh.checkpoint_core;

namespace shardmesh {
namespace {

// The next box of a row-major tensor: a run of at most `count` elements that begins at element `first`.
box next_run(const extents& sizes, std::int64_t first, std::int64_t count) {
  if (sizes.rank() == 0) return {};
  const extents strides = contiguous_strides(sizes);
  std::size_t along = sizes.rank() - 1;
  for (std::size_t d = 0; d < sizes.rank(); ++d)
    if (first % strides[d] == 0 && strides[d] <= count) {
      along = d;
      break;
    }
  box run = box::whole(sizes);
  for (std::size_t d = 0; d <= along; ++d) {
    run.offsets[d] = first / strides[d] % sizes[d];
    run.sizes[d] = d < along ? 1 : std::min(count / strides[d], sizes[d] - run.offsets[d]);
  }
  return run;
}

// Memory for elements of any dtype, reused by the next piece.
class aligned_buffer {
 public:
  std::byte* reserve(std::int64_t bytes) {
    constexpr auto unit = static_cast<std::int64_t>(sizeof(std::max_align_t));
    const auto units = static_cast<std::size_t>(bytes / unit + 1);
    if (units > memory_.size()) memory_.resize(units);
    return reinterpret_cast<std::byte*>(memory_.data());
  }

 private:
  std::vector<std::max_align_t> memory_;
};

}  // namespace

std::int64_t computed_source::size_bytes() const {
  return shardmesh::size_bytes(type_, box::whole(sizes_).volume()).value_or(0);
}

result<void> computed_source::read(std::int64_t offset, std::span<std::byte> out) const {
  const auto length = static_cast<std::int64_t>(out.size());
  if (offset < 0 || length > size_bytes() || offset > size_bytes() - length)
    return fail(errc::out_of_bounds, "a read goes beyond the end of the data").with_file(file_);
  const std::int64_t item = item_bytes(type_);
  const bool is_aligned = offset % item == 0 && length % item == 0 &&
                          reinterpret_cast<std::uintptr_t>(out.data()) % static_cast<std::uintptr_t>(item) == 0;
  if (is_aligned) return make_run(offset / item, length / item, out.data());
  aligned_buffer memory;
  std::byte* const made = memory.reserve(std::min(length, piece_bytes) + 2 * item);
  for (std::int64_t at = 0; at < length;) {
    const std::int64_t first = (offset + at) / item, skipped = (offset + at) % item;
    const std::int64_t bytes = std::min(length - at, piece_bytes - skipped);
    SHARDMESH_TRY(make_run(first, (skipped + bytes + item - 1) / item, made));
    std::memcpy(out.data() + at, made + skipped, static_cast<std::size_t>(bytes));
    at += bytes;
  }
  return {};
}

result<void> computed_source::make_run(std::int64_t first, std::int64_t count, std::byte* to) const {
  const std::int64_t item = item_bytes(type_);
  while (count > 0) {
    const box part = next_run(sizes_, first, count);
    SHARDMESH_TRY(read_part(part, {to, type_, {}, part.sizes, contiguous_strides(part.sizes)}));
    const std::int64_t done = part.volume();
    first += done, count -= done, to += done * item;
  }
  return {};
}

bool computed_source::is_made_directly(const tensor_view& to) const {
  return to.type == type_ && is_contiguous(to) &&
         reinterpret_cast<std::uintptr_t>(to.data) % static_cast<std::uintptr_t>(item_bytes(type_)) == 0;
}

result<void> computed_source::read_part(const box& part, const tensor_view& to) const {
  if (part.is_empty()) return {};
  if (prefers_large_reads() && is_made_directly(to)) return make(part, to);
  const extents most = piece_sizes(part.sizes);
  aligned_buffer memory;
  box within{extents::filled(part.rank(), 0), most};
  while (true) {
    for (std::size_t d = 0; d < part.rank(); ++d)
      within.sizes[d] = std::min(most[d], part.sizes[d] - within.offsets[d]);
    const box piece = shifted(within, part.offsets);
    const tensor_view target = subview(to, within);
    if (is_made_directly(target)) {
      SHARDMESH_TRY(make(piece, target));
    } else {
      std::byte* const made = memory.reserve(piece.volume() * item_bytes(type_));
      SHARDMESH_TRY(make(piece, {made, type_, {}, piece.sizes, contiguous_strides(piece.sizes)}));
      SHARDMESH_TRY(copy(target, {made, type_, {}, piece.sizes, contiguous_strides(piece.sizes)}));
    }
    std::size_t d = part.rank();
    while (d > 0 && (within.offsets[d - 1] += most[d - 1]) >= part.sizes[d - 1]) within.offsets[--d] = 0;
    if (d == 0) return {};
  }
}

extents computed_source::piece_sizes(const extents& sizes) const {
  const std::int64_t most = piece_bytes / item_bytes(type_);
  extents made = extents::filled(sizes.rank(), 1);
  std::int64_t inner = 1;
  for (std::size_t d = sizes.rank(); d-- > 0;) {
    made[d] = std::min(sizes[d], most / inner);
    if (made[d] < sizes[d]) break;  // the dimensions before it keep the size 1
    inner *= sizes[d];
  }
  return made;
}

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

}  // namespace shardmesh
