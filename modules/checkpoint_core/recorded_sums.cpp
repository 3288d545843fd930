// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.checkpoint_core;

import :recorded_sums;

namespace shardmesh {
namespace fs = places;
namespace {

// Returns the first range that begins within another one, or null. The common bytes would be read once for each range.
const checksum_range* find_repeated(std::span<const checksum_range> ranges) {
  std::vector<const checksum_range*> sorted;
  for (const checksum_range& range : ranges)
    if (range.length > 0) sorted.push_back(&range);
  std::sort(sorted.begin(), sorted.end(), [](const checksum_range* a, const checksum_range* b) {
    return std::tie(a->file, a->offset) < std::tie(b->file, b->offset);
  });
  for (std::size_t i = 1; i < sorted.size(); ++i)
    if (sorted[i]->file == sorted[i - 1]->file && sorted[i]->offset - sorted[i - 1]->offset < sorted[i - 1]->length)
      return sorted[i];
  return nullptr;
}

// Reads the record of one folder; returns nothing when it has none.
result<std::optional<std::vector<checksum_range>>> read_record(const fs::path& record) {
  SHARDMESH_TRY(const fs::file_status there, fs::checked_status(record));
  if (!fs::exists(there)) return std::optional<std::vector<checksum_range>>();
  SHARDMESH_TRY(const std::vector<std::byte> bytes, read_file(record, std::int64_t{1} << 32));
  auto ranges = parse_checksums({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!ranges) return std::move(ranges).error().with_file(record.string());
  if (const checksum_range* range = find_repeated(*ranges))
    return fail(errc::bad_format, fmt::format("the checksum record names bytes of {} twice", range->file))
        .with_file(record.string())
        .with_values("", fmt::format("bytes {} to {}", range->offset,
                                     checked_add(range->offset, range->length).value_or(range->offset)));
  return std::optional(*std::move(ranges));
}

// Returns the folders that hold files of a folder of parts: "", "unet/", "a/", "a/b/". A part may refer to a folder
// beside it ("a/../b/"), whose record is that of another checkpoint.
std::set<std::string> folders_of(const catalog& contents) {
  std::set<std::string> folders{""};
  for (const std::string& file : contents.files) {
    if (file.starts_with("../")) continue;
    for (std::size_t at = file.find('/'); at != std::string::npos; at = file.find('/', at + 1)) {
      if (file.compare(at + 1, 3, "../") == 0) {
        folders.insert(file.substr(0, at + 1));
        break;
      }
      folders.insert(file.substr(0, at + 1));
    }
  }
  return folders;
}

// The keys of a catalog's items by their places. They are listed when the first problem needs one. Thread-safe.
class item_keys {
 public:
  using item = std::tuple<std::int32_t, std::int64_t, std::int64_t>;  // file, offset, length
  explicit item_keys(const catalog& contents) : contents_(contents) {}

  // Returns an empty text when no item is exactly there. If tensors share an item, returns the first one's key.
  std::string key_of(const item& place) {
    std::call_once(listed_, [this] { list(); });
    const auto found = std::lower_bound(keys_.begin(), keys_.end(), place,
                                        [](const auto& entry, const item& wanted) { return entry.first < wanted; });
    return found == keys_.end() || found->first != place ? std::string() : *found->second;
  }

 private:
  void list() {
    const auto add = [this](const stored_range& place, const std::string& key) {
      if (place.file >= 0) keys_.emplace_back(item{place.file, place.offset, place.length}, &key);
    };
    for (const tensor_entry& tensor : contents_.tensors)
      for (std::int32_t i = 0; i < tensor.chunk_count; ++i)
        add(contents_.chunk_places[static_cast<std::size_t>(tensor.first_chunk + i)], tensor.key);
    for (const object_entry& object : contents_.objects) add(object.place, object.key);
    std::stable_sort(keys_.begin(), keys_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  }

  const catalog& contents_;
  std::once_flag listed_;
  std::vector<std::pair<item, const std::string*>> keys_;  // ascending
};

}  // namespace

result<std::shared_ptr<const recorded_sums>> recorded_sums::open(const checkpoint_reader& reader) {
  const catalog& contents = reader.contents();
  SHARDMESH_TRY(const fs::file_status there, fs::checked_status(reader.path()));
  if (!fs::is_directory(there)) return std::shared_ptr<const recorded_sums>();
  const bool is_parts = contents.format == checkpoint_format::parts;
  std::vector<checksum_range> all;
  bool has_record = false;
  for (const std::string& folder : is_parts ? folders_of(contents) : std::set<std::string>{""}) {
    // One name: libstdc++ 12 crashes without memory when it appends to a path that ends with a slash.
    SHARDMESH_TRY(auto ranges, read_record(reader.path() / (folder + std::string(checksum_file_name))));
    if (!ranges) continue;
    has_record = true;
    for (checksum_range& range : *ranges) {
      range.file = folder + range.file;
      all.push_back(std::move(range));
    }
  }
  if (!has_record) return std::shared_ptr<const recorded_sums>();
  return std::shared_ptr<const recorded_sums>(std::make_shared<recorded_sums>(reader.path(), std::move(all), contents));
}

recorded_sums::recorded_sums(fs::path folder, std::vector<checksum_range> ranges, const catalog& contents)
    : folder_(std::move(folder)), ranges_(std::move(ranges)) {
  std::unordered_map<std::string, std::int32_t> numbers;  // by name, as the record spells it
  for (std::size_t i = 0; i < contents.files.size(); ++i)
    numbers.emplace(escaped(contents.files[i]), static_cast<std::int32_t>(i));
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    const auto found = numbers.find(ranges_[i].file);
    files_.push_back(found == numbers.end() ? -1 : found->second);
    if (files_.back() >= 0) by_item_.emplace_back(item{files_.back(), ranges_[i].offset, ranges_[i].length}, i);
  }
  std::sort(by_item_.begin(), by_item_.end());
}

std::optional<std::size_t> recorded_sums::of_item(const stored_range& place) const {
  const item wanted{place.file, place.offset, place.length};
  const auto found = std::lower_bound(by_item_.begin(), by_item_.end(), wanted,
                                      [](const auto& entry, const item& key) { return entry.first < key; });
  if (found == by_item_.end() || found->first != wanted) return std::nullopt;
  return found->second;
}

result<std::shared_ptr<const byte_source>> recorded_sums::open_object(const std::string& name) const {
  SHARDMESH_TRY(const auto held, lock_.acquire());
  if (const auto known = objects_.find(name); known != objects_.end()) return known->second;
  SHARDMESH_TRY(std::unique_ptr<byte_source> opened, open_recorded(folder_, name, pool_));
  return objects_.emplace(name, std::move(opened)).first->second;
}

result<void> recorded_sums::check(std::size_t range) const {
  const checksum_range& one = ranges_[range];
  if (is_url(folder_)) {
    SHARDMESH_TRY(const auto object, open_object(one.file));
    return check_checksum(*object, one);
  }
  SHARDMESH_TRY(const auto file, open_recorded(folder_, one.file, pool_));
  return check_checksum(*file, one);
}

std::vector<error> recorded_sums::check(std::span<const std::size_t> chosen, int threads, const catalog& stored) const {
  item_keys keys(stored);
  return check_checksums(folder_, ranges_, chosen, pool_, threads,
                         [&](std::size_t i) { return keys.key_of({files_[i], ranges_[i].offset, ranges_[i].length}); });
}

}  // namespace shardmesh
