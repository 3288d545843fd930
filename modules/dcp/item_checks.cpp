// SPDX-License-Identifier: Apache-2.0
// Checks the items of a folder, and returns their archives unchanged.
module;
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.dcp;

import :folder_reader;

namespace shardmesh::dcp {
namespace {

constexpr std::int64_t archive_limit_bytes = std::int64_t{4} << 30;

}  // namespace

result<std::vector<std::byte>> folder_reader::object_archive(std::size_t index) {
  const object_entry& object = contents_.objects[index];
  auto bytes = archive_of(object.place);
  if (!bytes) return name_in(std::move(bytes).error(), object.key, object.place);
  return bytes;
}

result<std::vector<std::byte>> folder_reader::chunk_archive(const tensor_entry& tensor, std::int32_t chunk) {
  const stored_range& place = contents_.chunk_places[static_cast<std::size_t>(chunk)];
  auto bytes = archive_of(place);
  if (!bytes) return name_in(std::move(bytes).error(), tensor.key, place);
  return bytes;
}

result<std::vector<std::byte>> folder_reader::archive_of(const stored_range& place) {
  SHARDMESH_TRY(const auto source, item_source_of(place));
  SHARDMESH_TRY(std::vector<std::byte> bytes, read_all(*source, archive_limit_bytes));
  SHARDMESH_TRY(torch_file::check_archive(memory_source(bytes, source->name()), budget_.get(), name_of(place)));
  return bytes;
}

check_outcome folder_reader::check_whole(std::span<const whole_entry> entries, const check_options& options) {
  return check_each(entries, options, [&](const whole_entry& entry) -> result<std::pair<std::int64_t, std::int64_t>> {
    if (!entry.is_tensor) {
      const object_entry& object = contents_.objects[entry.index];
      auto sums = check_item(object.place, options.quick);
      if (!sums) return name_in(std::move(sums).error(), object.key, object.place);
      return sums;
    }
    const tensor_entry& tensor = contents_.tensors[entry.index];
    std::pair<std::int64_t, std::int64_t> total;
    for (std::int32_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.chunk_count; ++chunk) {
      auto sums = check_item(contents_.chunk_places[static_cast<std::size_t>(chunk)], options.quick);
      if (!sums) return describe(std::move(sums).error(), tensor, chunk);
      total = {total.first + sums->first, total.second + sums->second};
    }
    return total;
  });
}

result<std::pair<std::int64_t, std::int64_t>> folder_reader::check_item(const stored_range& place, bool quick) {
  auto sums = [&]() -> result<torch_file::record_sums> {
    SHARDMESH_TRY(const auto source, item_source_of(place));
    SHARDMESH_TRY(torch_file::item::open(*source, item_options()));
    if (quick) return torch_file::record_sums{};
    return torch_file::check_archive(*source, budget_.get(), name_of(place));
  }();
  if (!sums) return name_in(std::move(sums).error(), {}, place);
  return std::pair(sums->checked_bytes, sums->unchecked_bytes);
}

result<std::optional<digest128>> folder_reader::content_of(const whole_entry& entry) {
  const tensor_entry* const tensor = entry.is_tensor ? &contents_.tensors[entry.index] : nullptr;
  const std::string& key = tensor ? tensor->key : contents_.objects[entry.index].key;
  // The parts of a sharded tensor of unknown representation cannot be compared with the parts of another sharding.
  if (tensor && tensor->chunk_count != 1) return std::optional<digest128>();
  const stored_range& place = tensor ? contents_.chunk_places[static_cast<std::size_t>(tensor->first_chunk)]
                                     : contents_.objects[entry.index].place;
  auto digest = [&]() -> result<digest128> {
    SHARDMESH_TRY(const auto source, item_source_of(place));
    SHARDMESH_TRY(const torch_file::item item, torch_file::item::open(*source, item_options()));
    SHARDMESH_TRY(torch_file::item_storages storages,
                  torch_file::item_storages::open(*source, item, budget_.get(), name_of(place)));
    return storages.content_of(item.root());
  }();
  if (!digest) return name_in(std::move(digest).error(), key, place);
  return std::optional(*digest);
}

}  // namespace shardmesh::dcp
