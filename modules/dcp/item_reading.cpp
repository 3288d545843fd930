// SPDX-License-Identifier: Apache-2.0
// Opens the items of a folder as chunks and objects.
module;
#include <fmt/format.h>
#include <shardmesh/try.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>
module shardmesh.dcp;

import :folder_reader;

namespace shardmesh::dcp {

folder_reader::place_key folder_reader::key_of(const stored_range& place) {
  return {place.file, place.offset, place.length, place.transform};
}

std::string folder_reader::name_of(const stored_range& place) {
  return fmt::format("{}:{}:{}", place.file, place.offset, place.length);
}

torch_file::item_options folder_reader::item_options() const {
  return {.pickle_limit_bytes = budget_->limits().description_bytes, .budget = budget_.get()};
}

const stored_range& folder_reader::first_place(const tensor_entry& tensor) const {
  return contents_.chunk_places[static_cast<std::size_t>(tensor.first_chunk)];
}

error folder_reader::name_in(error e, const std::string& key, const stored_range& place) {
  if (place.file < 0)
    if (const auto conflict = conflicts_.find(key); conflict != conflicts_.end()) e = conflict->second;
  if (e.key.empty()) e.key = key;
  if (e.file.empty() && place.file >= 0) e.file = files_.path_of(place.file).string();
  return budget_->keep(std::move(e));
}

error folder_reader::describe(error e, const tensor_entry& tensor, std::int32_t chunk) {
  if (e.boxes.empty()) e.boxes.push_back(contents_.chunk_box(tensor, chunk));
  return name_in(std::move(e), tensor.key, contents_.chunk_places[static_cast<std::size_t>(chunk)]);
}

result<std::shared_ptr<const byte_source>> folder_reader::item_source_of(const stored_range& place) {
  if (place.file < 0) return fail(errc::missing_key, "the metadata does not say where it is stored");
  SHARDMESH_TRY(auto section, files_.section(place.file, place.offset, place.length));
  const std::string& transform = contents_.transforms[static_cast<std::size_t>(place.transform)];
  if (transform.empty()) return runs_.with_bytes(place, section);
  if (!transform.starts_with("stream.zstd") || transform.find('+') != std::string::npos)
    return fail(errc::unsupported, "is stored through an unknown transform").with_values("stream.zstd/1", transform);
  // Entries that share a stream share its decoder, because opening one decodes the whole stream to measure it.
  const place_key key = key_of(place);
  {
    const std::scoped_lock guard(repeated_lock_);
    if (decoded_.first == key && decoded_.second) return decoded_.second;
  }
  auto encoded = std::make_unique<shared_section>(section, 0, section->size_bytes());
  SHARDMESH_TRY(std::shared_ptr<const byte_source> decoded,
                open_decoding_source(std::move(encoded), codec::zstd, budget_.get(), name_of(place)));
  const std::scoped_lock guard(repeated_lock_);
  decoded_ = {key, decoded};
  return decoded;
}

result<std::shared_ptr<const byte_source>> folder_reader::item_bytes(const stored_range& place) {
  return item_source_of(place);
}

result<std::shared_ptr<const opened_chunk>> folder_reader::open_chunk(const tensor_entry& tensor, std::int32_t chunk) {
  if (auto known = cache_.find(chunk)) return known;
  if (const auto refusal = budget_->refusal()) return *refusal;
  auto opened = open_item(tensor, chunk);
  if (!opened) return describe(std::move(opened).error(), tensor, chunk);
  auto shared = std::make_shared<const opened_chunk>(std::move(*opened));
  cache_.insert(chunk, shared);
  return shared;
}

result<opened_chunk> folder_reader::open_item(const tensor_entry& tensor, std::int32_t chunk) {
  const stored_range& place = contents_.chunk_places[static_cast<std::size_t>(chunk)];
  SHARDMESH_TRY(const auto source, item_source_of(place));
  SHARDMESH_TRY(const torch_file::item item, torch_file::item::open(*source, item_options()));
  const auto root = item.tensor_of(item.root());
  if (!root) {
    const torch_file::object_class what = classify(item, item.root());
    if (what.kind == torch_file::object_kind::opaque_tensor)
      return fail(errc::unsupported,
                  fmt::format("holds a {}, which is not supported", torch_file::tensor_kind(item.root())))
          .with_values("", what.type);
    return fail(errc::bad_format, "the item is not a tensor").with_values("torch.Tensor", what.type);
  }
  SHARDMESH_TRY(opened_chunk opened, torch_file::open_tensor(item, *root, source, *budget_, name_of(place)));
  if (opened.tensor.type != tensor.type)
    return fail(errc::dtype_mismatch, "the stored dtype is not the declared one")
        .with_values(std::string(name(tensor.type)), std::string(name(opened.tensor.type)));
  const extents sizes = contents_.chunk_box(tensor, chunk).sizes;
  if (opened.tensor.sizes != sizes)
    return fail(errc::shape_mismatch, "the stored sizes are not the declared ones")
        .with_values(to_string(sizes), to_string(opened.tensor.sizes));
  opened.reads_in_order |= place.transform != 0;
  if (place.transform == 0 && opened.source == source) opened.item_length = place.length;
  SHARDMESH_TRY(pay_for_repeats(opened, chunk));
  return opened;
}

result<void> folder_reader::pay_for_repeats(const opened_chunk& opened, std::int32_t chunk) {
  const std::int64_t bytes = size_bytes(opened.tensor.type, box::whole(opened.tensor.sizes).volume()).value_or(0);
  const std::int64_t beyond = bytes - opened.tensor.size_bytes;
  const std::scoped_lock guard(repeated_lock_);
  if (beyond <= 0 || !paid_.insert(chunk).second) return {};
  return budget_->expand(beyond, opened.tensor.size_bytes);
}

result<object_value> folder_reader::read_object(std::size_t index) {
  const object_entry& object = contents_.objects[index];
  if (const auto refusal = budget_->refusal()) return *refusal;
  const place_key place = key_of(object.place);
  {
    const std::scoped_lock guard(repeated_lock_);
    // Tensors inside have keys below the object's own, so a value with tensors is not shared.
    if (repeated_value_ && repeated_value_->first == place && repeated_value_->second.tensors.empty())
      return repeated_value_->second;
  }
  auto value = [&]() -> result<object_value> {
    SHARDMESH_TRY(const auto source, item_source_of(object.place));
    SHARDMESH_TRY(const torch_file::item item, torch_file::item::open(*source, item_options()));
    SHARDMESH_TRY(object_value described, describe_object(item, item.root(), *source, *budget_));
    SHARDMESH_TRY(described.tensors, tensors_inside(item, object));
    return described;
  }();
  if (!value) return name_in(std::move(value).error(), object.key, object.place);
  const std::scoped_lock guard(repeated_lock_);
  repeated_value_.emplace(place, *value);
  return value;
}

result<torch_file::opened_object> folder_reader::open_object(std::size_t index) {
  const object_entry& object = contents_.objects[index];
  auto opened = [&]() -> result<torch_file::opened_object> {
    SHARDMESH_TRY(const auto source, item_source_of(object.place));
    SHARDMESH_TRY(torch_file::item item, torch_file::item::open(*source, item_options()));
    return torch_file::opened_object{source, std::make_shared<const torch_file::item>(std::move(item)), budget_,
                                     name_of(object.place)};
  }();
  if (!opened) return name_in(std::move(opened).error(), object.key, object.place);
  return opened;
}

}  // namespace shardmesh::dcp
