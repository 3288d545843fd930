// SPDX-License-Identifier: Apache-2.0
// The entries of a .pt file, and the limits on the sizes that they declare.
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>
module shardmesh.torch_file;

import :local_tensor;
import :object_parts;
import :root_entries;
import :torch_file_reader;

namespace shardmesh::torch_file {
namespace {

constexpr std::int64_t chunk_bytes = 2048;

}  // namespace

void torch_file_reader::say_what_is_missing() {
  if (!first_part_) return;
  const auto& [tensor, holder] = *first_part_;
  problems_.push_back(
      fail(errc::incomplete_save,
           fmt::format("is one rank's part ({}): only the files of all ranks together hold the tensor", holder))
          .with_key(contents_.tensors[tensor].key)
          .with_file(path_.string())
          .with_hint("open the folder that holds them"));
}

void torch_file_reader::find_expanded() {
  std::int64_t left = source_->size_bytes();
  for (const tensor_entry& tensor : contents_.tensors) {
    if (tensor.chunk_count == 0) continue;
    std::int64_t elements = 0;
    for (std::int32_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.chunk_count; ++chunk)
      elements += checked_volume(contents_.chunk_box(tensor, chunk).sizes).value_or(0);
    const std::int64_t bytes = size_bytes(tensor.type, elements).value_or(0);
    const std::int64_t stored = std::min(bytes, left);
    left -= stored;
    auto done = budget_.expand(bytes - stored, stored);
    if (done) continue;
    first_expanded_ = tensor.first_chunk;
    expanded_ = std::move(done).error().with_key(tensor.key).with_file(path_.string());
    problems_.push_back(*expanded_);
    return;
  }
}

result<void> torch_file_reader::list() {
  SHARDMESH_TRY(taken_apart parts, entries_of_root(*item_, *source_, budget_, root_));
  std::move(parts.notes.begin(), parts.notes.end(), std::back_inserter(notes_));
  unread_tensors_ += parts.unread_tensors;
  if (const auto records = item_->unread_records(); !records.empty())
    notes_.push_back(fmt::format("not read: {} to which the pickle does not refer: {}",
                                 detail::counted(records.size(), "record"), name_list(records)));
  for (flat_entry& entry : parts.entries) {
    if (entry.where.empty())
      return fail(errc::unsupported, fmt::format("it holds a {}, whose tensors ({}) have no names",
                                                 escaped(classify(*item_, item_->root()).type), entry.hidden_tensors))
          .with_hint("load it in Python and torch.save its state_dict()");
    SHARDMESH_TRY(add(std::move(entry)));
  }
  return {};
}

result<void> torch_file_reader::add(flat_entry entry) {
  if (root_.part && !entry.tensor) entry.tensor = local_tensor_of(*item_, entry.value);
  if (!entry.tensor && !item_->is_opaque_tensor(entry.value)) {
    contents_.objects.push_back({entry.fqn, entry.where, {}, entry.hidden_tensors});
    objects_.push_back(entry.value);
    return {};
  }
  contents_.tensors.push_back(tensor_of_entry(*item_, entry));
  if (!entry.tensor) return add_part(entry);
  const box whole = box::whole(item_->tensors()[*entry.tensor].sizes);
  add_chunk(whole, *entry.tensor, whole);
  return {};
}

void torch_file_reader::add_chunk(const box& where, std::size_t tensor, const box& local) {
  const torch_file::storage& storage = item_->storages()[item_->tensors()[tensor].storage];
  // Bytes that were rewritten or decoded have no place in the file to refer to.
  contents_.add_chunk(
      where, is_rewritten_ ? stored_range{} : stored_range{0, 0, begin_ + storage.offset, storage.stored_bytes});
  chunks_.push_back({tensor, local});
}

result<void> torch_file_reader::add_part(const flat_entry& entry) {
  tensor_entry& made = contents_.tensors.back();
  auto part = rank_part_of(*item_, entry.value);
  if (!part && part.error().code != errc::unsupported) return std::move(part).error().with_key(made.key);
  if (!part || !*part) {
    if (!part) made.opaque_kind = part.error().message;
    opaque_tensors_.emplace(contents_.tensors.size() - 1, entry.value);
    return {};
  }
  // Charges 2 KiB per piece: each becomes a catalog entry, and comparing ranks opens it.
  SHARDMESH_TRY(budget_.build(chunk_bytes * static_cast<std::int64_t>((*part)->pieces.size())));
  made.type = (*part)->type;
  made.shape = (*part)->shape;
  made.properties.requires_grad = (*part)->requires_grad;
  made.opaque_type.clear();
  made.opaque_kind.clear();
  ranks_ = std::max(ranks_, (*part)->ranks);
  std::int64_t held = 0;
  for (const rank_piece& piece : (*part)->pieces) {
    held += checked_volume(piece.where.sizes).value_or(0);
    add_chunk(piece.where, piece.tensor, {piece.local_offsets, piece.where.sizes});
  }
  if (held < checked_volume(made.shape) && !first_part_)
    first_part_.emplace(contents_.tensors.size() - 1, std::move((*part)->holder));
  return {};
}

}  // namespace shardmesh::torch_file
