// SPDX-License-Identifier: Apache-2.0
// The checksum record of a folder that shardmesh wrote, with look-up by item. Its text format is in `checksum`.
export module shardmesh.checkpoint_core:recorded_sums;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import :entries;
import :reader;

export namespace shardmesh {

/// The recorded checksums of one checkpoint. Thread-safe.
class recorded_sums {
 public:
  // Reads the checkpoint's record; null when it has none. errc::checksum_mismatch, errc::bad_format, or
  // errc::unsafe_path when the record itself is damaged; errc::io.
  static result<std::shared_ptr<const recorded_sums>> open(const checkpoint_reader& reader);
  recorded_sums(std::filesystem::path folder, std::vector<checksum_range> ranges, const catalog& contents);

  std::span<const checksum_range> ranges() const { return ranges_; }
  // Returns the index of the range that is exactly this item; nothing when there is none.
  std::optional<std::size_t> of_item(const stored_range& place) const;
  // Returns the catalog's number for the file of a range; -1 when the catalog lacks the file.
  std::int32_t file_of(std::size_t range) const { return files_[range]; }
  // Reads one range and compares it with its checksum.
  result<void> check(std::size_t range) const;
  // Returns every problem of the chosen ranges and of their files' lengths. The problem of a range that is exactly an
  // item of `stored` names the item's key. `stored` is the catalog of the checkpoint, or of the reader below the views.
  std::vector<error> check(std::span<const std::size_t> chosen, int threads, const catalog& stored) const;

 private:
  using item = std::tuple<std::int32_t, std::int64_t, std::int64_t>;  // file, offset, length
  result<std::shared_ptr<const byte_source>> open_object(const std::string& name) const;
  std::filesystem::path folder_;
  std::vector<checksum_range> ranges_;
  std::vector<std::int32_t> files_;
  std::vector<std::pair<item, std::size_t>> by_item_;  // ascending
  mutable file_pool pool_;
  mutable detail::call_lock lock_;
  mutable std::map<std::string, std::shared_ptr<const byte_source>> objects_;  // of a store: opening costs a request
};

}  // namespace shardmesh
