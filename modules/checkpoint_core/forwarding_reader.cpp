// SPDX-License-Identifier: Apache-2.0
module;
#include <entry_error.hpp>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.checkpoint_core;

namespace shardmesh {

forwarding_reader::forwarding_reader(checkpoint_reader& inner) : inner_(&inner) {
  describe_as(inner);
  for (std::size_t i = 0; i < contents_.objects.size(); ++i) objects_.emplace_back(i);
}

forwarding_reader::forwarding_reader(std::unique_ptr<checkpoint_reader> inner) : forwarding_reader(*inner) {
  owned_ = std::move(inner);
}

void forwarding_reader::add_tensor(tensor_entry entry, std::optional<std::size_t> from) {
  entry.first_chunk = static_cast<std::int32_t>(chunks_.size());
  entry.chunk_count = 0;
  contents_.tensors.push_back(std::move(entry));
  tensors_.push_back(from);
}

void forwarding_reader::add_chunk(const box& where, const stored_range& place, const inner_chunk& from) {
  contents_.add_chunk(where, place);
  chunks_.push_back(from);
}

void forwarding_reader::add_chunk(const box& where, const inner_chunk& from) {
  add_chunk(where, inner_->contents().chunk_places[static_cast<std::size_t>(from.chunk)], from);
}

void forwarding_reader::add_whole_tensor(std::size_t tensor) {
  const catalog& shown = inner_->contents();
  const tensor_entry& entry = shown.tensors[tensor];
  add_tensor(entry, tensor);
  for (std::int32_t chunk = entry.first_chunk; chunk < entry.first_chunk + entry.chunk_count; ++chunk)
    add_chunk(shown.chunk_box(entry, chunk), {static_cast<std::int32_t>(tensor), chunk});
}

void forwarding_reader::add_object(object_entry entry, std::optional<std::size_t> from) {
  contents_.objects.push_back(std::move(entry));
  objects_.push_back(from);
}

void forwarding_reader::clear_objects() {
  contents_.objects.clear();
  objects_.clear();
}

error forwarding_reader::located(error e, const std::string& key) const {
  if (e.file.empty()) e.file = printable_url(path_.string());
  return e.key.empty() ? detail::at_entry(std::move(e), key) : e;
}

result<std::shared_ptr<const opened_chunk>> forwarding_reader::open_chunk(const tensor_entry& tensor,
                                                                          std::int32_t chunk) {
  const inner_chunk& from = origin_of_chunk(chunk);
  if (from.chunk < 0)
    return located(fail(errc::unsupported, "the chunk has no elements in this view of the checkpoint"), tensor.key);
  return inner_->open_chunk(inner_->contents().tensors[static_cast<std::size_t>(from.tensor)], from.chunk);
}

result<object_value> forwarding_reader::read_object(std::size_t index) {
  return inner_->read_object(objects_[index].value());
}

result<std::vector<std::byte>> forwarding_reader::object_archive(std::size_t index) {
  return inner_->object_archive(objects_[index].value());
}

std::optional<shown_entry> forwarding_reader::shown(const whole_entry& entry) const {
  const std::optional<std::size_t> from = (entry.is_tensor ? tensors_ : objects_)[entry.index];
  if (!from) return std::nullopt;
  return shown_entry{inner_, {entry.is_tensor, *from}};
}

void forwarding_reader::identify_opaque_tensors() {
  inner_->identify_opaque_tensors();
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i]) continue;
    const tensor_entry& shown = inner_->contents().tensors[*tensors_[i]];
    contents_.tensors[i].opaque_type = shown.opaque_type;
    contents_.tensors[i].opaque_kind = shown.opaque_kind;
  }
}

// File numbers beyond the inner catalog's stand for contents that lie in no file.
result<std::shared_ptr<const byte_source>> forwarding_reader::item_bytes(const stored_range& place) {
  if (place.file >= static_cast<std::int64_t>(inner_->contents().files.size()))
    return checkpoint_reader::item_bytes(place);
  return inner_->item_bytes(place);
}

result<std::vector<std::byte>> forwarding_reader::chunk_archive(const tensor_entry& tensor, std::int32_t chunk) {
  const inner_chunk& from = origin_of_chunk(chunk);
  if (from.chunk < 0) return checkpoint_reader::chunk_archive(tensor, chunk);
  return inner_->chunk_archive(inner_->contents().tensors[static_cast<std::size_t>(from.tensor)], from.chunk);
}

check_outcome forwarding_reader::check_whole(std::span<const whole_entry> entries, const check_options& options) {
  std::vector<whole_entry> stored;
  std::set<std::pair<bool, std::size_t>> met;
  for (const whole_entry& entry : entries)
    if (const auto there = shown(entry); there && met.emplace(there->entry.is_tensor, there->entry.index).second)
      stored.push_back(there->entry);
  return inner_->check_whole(stored, options);
}

}  // namespace shardmesh
