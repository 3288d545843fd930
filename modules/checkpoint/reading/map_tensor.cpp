// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.checkpoint_core;

namespace shardmesh {
namespace {

// The alignment of a pointer to elements, in bytes. A complex number is two reals.
std::uintptr_t alignment_bytes(dtype type) {
  const std::int64_t bytes = std::max<std::int64_t>(bits(type) / 8, 1);
  return static_cast<std::uintptr_t>(kind(type) == dtype_kind::complex ? bytes / 2 : bytes);
}

// Returns the reason why a view of the file would not show these elements, or an empty text when it would.
std::string unlike_memory(const opened_chunk& chunk) {
  if (chunk.tensor.swap_bytes) return "is stored in the other byte order";
  if (chunk.tensor.conjugate || chunk.tensor.negative) return "is stored lazily conjugated or negated";
  if (!chunk.source->plain_file()) return "is not stored in this form: its bytes are computed when they are read";
  return {};
}

}  // namespace

struct tensor_map::state {
  checkpoint_reader& reader;
  map_options options;
  file_maps files;

  // The chunk that holds the whole box.
  result<std::int32_t> chunk_of(const tensor_entry& tensor, const box& where) const {
    const catalog& contents = reader.contents();
    for (std::int32_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.chunk_count; ++chunk)
      if (lies_within(where, contents.chunk_box(tensor, chunk))) return chunk;
    if (tensor.chunk_count == 0) return fail(errc::gap, "no chunk holds these cells");
    return fail(errc::unsupported, fmt::format("no chunk of its {} holds all of this box", tensor.chunk_count))
        .with_hint(fmt::format("load it, or map boxes that lie within one chunk, as {}",
                               to_string(contents.chunk_box(tensor, tensor.first_chunk))));
  }

  result<mapped_tensor> map(const tensor_entry& tensor, const box& where) {
    if (is_url(reader.path()))
      return fail(errc::unsupported, "a checkpoint under a URL cannot be mapped into memory").with_hint("load it");
    if (!tensor.opaque_type.empty())
      return fail(errc::unsupported, "a tensor of an unknown representation cannot be mapped")
          .with_values("", tensor.opaque_type);
    if (where.rank() != tensor.shape.rank() || !is_well_formed(where) || !lies_within(where, box::whole(tensor.shape)))
      return fail(errc::shape_mismatch, "the requested box does not fit the stored shape")
          .with_values(to_string(tensor.shape), to_string(where));
    SHARDMESH_TRY(const std::int32_t chunk, chunk_of(tensor, where));
    SHARDMESH_TRY(const auto opened, reader.open_chunk(tensor, chunk));
    if (std::string why = unlike_memory(*opened); !why.empty())
      return fail(errc::unsupported, std::move(why)).with_hint("load it");
    const file_range range = *opened->source->plain_file();
    SHARDMESH_TRY(const auto mapped, files.open(range.path));
    const stored_tensor& stored = opened->tensor;
    // `stored` was checked against the file's length when the checkpoint was opened; the file may be shorter by now.
    if (static_cast<std::int64_t>(mapped->bytes().size()) < range.offset + stored.begin + stored.size_bytes)
      return fail(errc::io, "became shorter after it was opened").with_file(range.path);
    const box held = reader.contents().chunk_box(tensor, chunk);
    if (bits(stored.type) < 8 && (where != held || stored.storage_offset != 0))
      return fail(errc::unaligned, "elements smaller than a byte are mapped as whole chunks only");
    const std::byte* const storage = mapped->bytes().data() + range.offset + stored.begin;
    const std::int64_t first = size_bytes(stored.type, stored.storage_offset).value_or(0);
    const const_tensor_view whole{storage + first, stored.type, {}, stored.sizes, stored.strides};
    box part = where;
    for (std::size_t d = 0; d < part.rank(); ++d) part.offsets[d] -= held.offsets[d];
    const const_tensor_view view = subview(whole, part);
    const std::uintptr_t alignment = alignment_bytes(stored.type);
    const auto beyond = reinterpret_cast<std::uintptr_t>(view.data) % alignment;
    if (beyond != 0 && !options.allow_unaligned && !part.is_empty())
      return fail(errc::unaligned, "its first byte is not aligned for its dtype")
          .with_values(fmt::format("an address at a multiple of {} bytes", alignment),
                       fmt::format("an address {} after a multiple", detail::counted(beyond, "byte")))
          .with_hint("load it, or pass allow_unaligned");
    return mapped_tensor(view, mapped);
  }
};

result<void> mapped_tensor::check() const {
  return file_->check();
}

tensor_map::tensor_map(checkpoint_reader& reader, const map_options& options)
    : state_(new state{reader, options, {}}) {}
tensor_map::~tensor_map() = default;
tensor_map::tensor_map(tensor_map&&) noexcept = default;

result<mapped_tensor> tensor_map::tensor(std::string_view key) {
  const tensor_entry* const found = state_->reader.contents().find(key);
  if (!found) return no_such_entry(state_->reader, key, entry_kind::tensor);
  return tensor(key, box::whole(found->shape));
}

result<mapped_tensor> tensor_map::tensor(std::string_view key, const box& where) {
  const tensor_entry* const found = state_->reader.contents().find(key);
  if (!found) return no_such_entry(state_->reader, key, entry_kind::tensor);
  auto mapped = state_->map(*found, where);
  if (mapped) return mapped;
  error why = std::move(mapped).error();
  if (why.file.empty()) why.file = printable_url(state_->reader.path().string());
  if (why.key.empty()) why.key = key;
  if (why.boxes.empty()) why.boxes.push_back(where);
  return why;
}

result<mapped_tensor> map_tensor(checkpoint_reader& reader, std::string_view key, const map_options& options) {
  return tensor_map(reader, options).tensor(key);
}

result<mapped_tensor> map_tensor(checkpoint_reader& reader, std::string_view key, const box& where,
                                 const map_options& options) {
  return tensor_map(reader, options).tensor(key, where);
}

}  // namespace shardmesh
