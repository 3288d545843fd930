// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :state_pickle;

namespace shardmesh::torch_file {

result<state_file> state_file::make(std::span<const state_entry> entries, std::string prefix) {
  state_file made;
  made.prefix_ = std::move(prefix);
  SHARDMESH_TRY(state_pickle state, pickle_of_state(entries));
  made.data_pkl_ = std::move(state.data_pkl);
  made.storages_ = std::move(state.storages);
  made.storage_of_.resize(entries.size());
  // Offsets do not depend on the data, because checksums follow it.
  archive places(made.prefix_);
  places.head(made.data_pkl_);
  for (std::size_t i = 0; i < made.storages_.size(); ++i) {
    if (made.storages_[i].entry) made.storage_of_[*made.storages_[i].entry] = i;
    places.begin_record(fmt::format("data/{}", i), made.storages_[i].size_bytes);
    places.end_record(0);
  }
  places.tail();
  made.size_bytes_ = places.size_bytes();
  return made;
}

void state_file::place(std::int32_t file, std::vector<written_item>& items) {
  file_ = file;
  first_slot_ = static_cast<std::int32_t>(items.size());
  archive places(prefix_);
  places.head(data_pkl_);
  for (std::size_t i = 0; i < storages_.size(); ++i) {
    const std::int64_t size = storages_[i].size_bytes;
    places.begin_record(fmt::format("data/{}", i), size);
    const std::int64_t begin = places.size_bytes() - size;
    items.push_back(
        {.file = file, .begin = begin, .data_begin = begin, .size_bytes = size, .sizes = {}, .wants_crc32 = true});
    places.end_record(0);
  }
}

std::optional<std::int32_t> state_file::slot_of(std::size_t entry) const {
  if (!storage_of_[entry]) return std::nullopt;
  return first_slot_ + static_cast<std::int32_t>(*storage_of_[entry]);
}

result<void> state_file::write_archived(item_writer& writer) const {
  for (std::size_t i = 0; i < storages_.size(); ++i)
    if (!storages_[i].bytes.empty())
      SHARDMESH_TRY(writer.write({file_, first_slot_ + static_cast<std::int32_t>(i)}, 0, storages_[i].bytes));
  return {};
}

result<std::vector<checksum_range>> state_file::finish(staged_output& output, const item_writer& writer,
                                                       std::string_view name) const {
  archive frame(prefix_);
  std::int64_t at = 0;
  std::vector<std::byte> waiting = frame.head(data_pkl_);
  std::vector<checksum_range> written;
  const auto append = [&](const std::vector<std::byte>& more) {
    waiting.insert(waiting.end(), more.begin(), more.end());
  };
  const auto flush = [&]() -> result<void> {
    written.push_back({std::string(name), at, static_cast<std::int64_t>(waiting.size()), to_hex(xxh3(waiting))});
    return output.write(file_, at, waiting);
  };
  for (std::size_t i = 0; i < storages_.size(); ++i) {
    const std::size_t slot = static_cast<std::size_t>(first_slot_) + i;
    const written_item& item = writer.items()[slot];
    append(frame.begin_record(fmt::format("data/{}", i), item.size_bytes));
    if (item.size_bytes > 0) {
      SHARDMESH_TRY(flush());
      at = item.data_begin + item.size_bytes;
      waiting = frame.end_record(writer.crc32(slot));
    }
  }
  append(frame.tail());
  SHARDMESH_TRY(flush());
  return written;
}

}  // namespace shardmesh::torch_file
