// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <restore_hint.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.run;

import shardmesh.checkpoint;
import shardmesh.checkpoint_core;
import shardmesh.dcp;
import shardmesh.digest;
import shardmesh.storage;
import :step_copy;

namespace shardmesh {
namespace {

constexpr std::int64_t piece_bytes = std::int64_t{8} << 20;

}  // namespace

step_copy::step_copy(const checkpoint_reader& reader, std::span<const checksum_range> record, staged_output& output)
    : reader_(reader), record_(record), output_(output), buffer_(static_cast<std::size_t>(piece_bytes)) {
  for (const checksum_range& range : record) own_names_.insert(range.file);
}

result<void> step_copy::run() {
  SHARDMESH_TRY(reserve());
  for (const checksum_range& range : record_)
    if (range.file != ".metadata") SHARDMESH_TRY(copy(range));
  return {};
}

result<std::vector<dcp::item_place>> step_copy::places_of(const conversion& work) const {
  const catalog& contents = reader_.contents();
  std::vector<dcp::item_place> places;
  for (std::size_t i = 0; i < work.tensors.size(); ++i) {
    const tensor_entry& stored = contents.tensors[work.sources[i]];
    for (const stored_range& at : items_of(stored)) {
      auto place = place_of(at);
      if (!place) return std::move(place).error().with_key(stored.key);
      places.push_back(*std::move(place));
    }
  }
  for (const std::size_t object : work.object_sources) {
    auto place = place_of(contents.objects[object].place);
    if (!place) return std::move(place).error().with_key(contents.objects[object].key);
    places.push_back(*std::move(place));
  }
  return places;
}

result<void> step_copy::reserve() const {
  std::int64_t total = 0;
  for (const checksum_range& range : record_) {
    const auto sum = range.offset < 0 || range.length < 0 || !checked_add(range.offset, range.length)
                         ? std::nullopt
                         : checked_add(total, range.length);
    if (!sum)
      return fail(errc::bad_format, "the record of checksums has an impossible range")
          .with_file((reader_.path() / range.file).string());
    total = *sum;
  }
  return output_.reserve(total);
}

result<void> step_copy::copy(const checksum_range& range) {
  SHARDMESH_TRY(const dcp::item_place to, new_place_of(range));
  SHARDMESH_TRY(const std::int32_t file, number_of(to.file));
  SHARDMESH_TRY(const byte_source* const from, source_of(range.file));
  xxh3_stream sum;
  for (std::int64_t done = 0; done < range.length;) {
    const std::int64_t size = std::min(range.length - done, piece_bytes);
    const std::span<std::byte> piece(buffer_.data(), static_cast<std::size_t>(size));
    SHARDMESH_TRY(from->read(range.offset + done, piece));
    sum.update(piece);
    SHARDMESH_TRY(output_.write(file, to.offset + done, piece));
    done += size;
  }
  if (const std::string found = to_hex(sum.digest()); found != range.digits)
    return fail(errc::checksum_mismatch, fmt::format("bytes {} to {} have changed since they were saved", range.offset,
                                                     range.offset + range.length))
        .with_file((reader_.path() / range.file).string())
        .with_values(range.digits, found)
        .with_hint(detail::restore_hint);
  ranges_.push_back({to.file, to.offset, to.length, range.digits});
  return {};
}

result<dcp::item_place> step_copy::new_place_of(const checksum_range& range) {
  if (!parse_sibling_file(range.file)) return dcp::item_place{range.file, range.offset, range.length};
  const std::string file = new_file_of(rank_of_file(range.file).value_or(0));
  std::int64_t& size = sizes_[file];
  dcp::item_place made{file, size, range.length};
  size += range.length;  // `reserve` has added all lengths
  copied_bytes_ += range.length;
  moved_.insert_or_assign(std::pair(range.file, range.offset), made);
  return made;
}

std::string step_copy::new_file_of(std::int32_t rank) {
  std::string& name = new_files_[rank];
  for (int number = 1; name.empty(); ++number) {
    std::string candidate = fmt::format("__{}_{}.distcp", rank, number);
    if (!own_names_.contains(candidate)) name = std::move(candidate);
  }
  return name;
}

result<std::int32_t> step_copy::number_of(const std::string& file) {
  const auto known = numbers_.find(file);
  if (known != numbers_.end()) return known->second;
  SHARDMESH_TRY(const std::int32_t number, output_.add_file(file));
  numbers_.emplace(file, number);
  return number;
}

result<const byte_source*> step_copy::source_of(const std::string& file) {
  std::unique_ptr<byte_source>& source = sources_[file];
  if (!source) {
    SHARDMESH_TRY(source, open_recorded(reader_.path(), file, pool_));
  }
  return static_cast<const byte_source*>(source.get());
}

std::vector<stored_range> step_copy::items_of(const tensor_entry& stored) const {
  const catalog& contents = reader_.contents();
  std::vector<stored_range> items;
  for (std::int32_t chunk = stored.first_chunk; chunk < stored.first_chunk + stored.chunk_count; ++chunk)
    if (!contents.chunk_box(stored, chunk).is_empty())
      items.push_back(contents.chunk_places[static_cast<std::size_t>(chunk)]);
  if (!items.empty()) return items;
  if (stored.chunk_count == 0) return {stored_range()};
  return {contents.chunk_places[static_cast<std::size_t>(stored.first_chunk)]};
}

result<dcp::item_place> step_copy::place_of(const stored_range& at) const {
  if (at.file < 0 || at.transform != 0)
    return fail(errc::unsupported, "an item without a place, or a compressed one, cannot be copied as it is")
        .with_file(reader_.path().string())
        .with_hint("save the step again without previous");
  const std::string& file = reader_.contents().files[static_cast<std::size_t>(at.file)];
  if (!parse_sibling_file(file)) return dcp::item_place{file, at.offset, at.length};
  const auto moved = moved_.find(std::pair(file, at.offset));
  if (moved != moved_.end() && moved->second.length == at.length) return moved->second;
  return fail(errc::bad_format, "the record of checksums lacks an item to which the step refers")
      .with_file((reader_.path() / file).string())
      .with_values("", fmt::format("{} bytes at {}", at.length, at.offset));
}

}  // namespace shardmesh
