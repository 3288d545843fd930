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

// The next box of a row-major tensor: a run of at most `count` elements that begins at element `first`. Runs longer
// than `most` are cut where a dimension allows it.
box next_run(const extents& sizes, std::int64_t first, std::int64_t count, std::int64_t most) {
  if (sizes.rank() == 0) return {};
  const extents strides = contiguous_strides(sizes);
  most = std::min(count, most);
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
  std::vector<std::max_align_t> memory(
      static_cast<std::size_t>(std::min(length + 2 * item, piece_bytes + 2 * item)) / sizeof(std::max_align_t) + 1);
  auto* const made = reinterpret_cast<std::byte*>(memory.data());
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
    const box part = next_run(sizes_, first, count, piece_bytes / item);
    SHARDMESH_TRY(make(part, {to, type_, {}, part.sizes, contiguous_strides(part.sizes)}));
    const std::int64_t done = part.volume();
    first += done, count -= done, to += done * item;
  }
  return {};
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
