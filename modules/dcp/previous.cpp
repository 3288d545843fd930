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
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.dcp;

import :item_hasher;
import :previous;
import :previous_folder;
import :reader;

namespace shardmesh::dcp {
namespace fs = std::filesystem;

struct previous_checkpoint::state {
  fs::path folder;
  digest128 digest;
  std::unique_ptr<checkpoint_reader> reader;
  std::shared_ptr<const recorded_sums> record;
  std::vector<std::string> references;         // per file of the catalog; empty: has no reference
  std::map<std::string, file_identity> files;  // by reference
  std::optional<referred_item> item_at(std::int32_t chunk) const;
};

namespace {

// Records the identity of each file that can be referred to. Compares its length with the record.
result<void> look_at_files(previous_checkpoint::state& made) {
  std::map<std::string, std::int64_t> lengths;  // by the record's name
  for (const checksum_range& range : made.record->ranges()) {
    std::int64_t& length = lengths[range.file];
    length = std::max(length, checked_add(range.offset, range.length).value_or(INT64_MAX));
  }
  const std::vector<std::string>& names = made.reader->contents().files;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto length = lengths.find(names[i]);
    if (made.references[i].empty() || length == lengths.end()) continue;
    const auto sibling = parse_sibling_file(made.references[i]);
    if (auto done = check_sibling(made.folder, *sibling); !done)
      return in_previous(std::move(done).error(), made.folder);
    const fs::path file = made.folder.parent_path() / sibling->folder / sibling->file;
    SHARDMESH_TRY(const destination_snapshot seen, look_at(file));
    if (!seen.self) return refuse_previous(errc::io, "a file of the previous checkpoint is missing", file);
    const bool is_own = made.references[i] != names[i];
    if (is_own ? seen.self->size_bytes != length->second : seen.self->size_bytes < length->second)
      return refuse_previous(errc::checksum_mismatch,
                             "a file of the previous checkpoint does not have the recorded length", file)
          .with_values(fmt::format("{}{} bytes", is_own ? "" : "at least ", length->second),
                       fmt::format("{}", seen.self->size_bytes));
    made.files.emplace(made.references[i], *seen.self);
  }
  return {};
}

// Sets the reference of each file. Refuses a checkpoint that refers to the destination, which would be replaced.
result<void> make_references(previous_checkpoint::state& made, const fs::path& destination) {
  SHARDMESH_TRY(const fs::path target, resolved_destination(destination));
  for (const std::string& file : made.reader->contents().files) {
    const auto far = parse_sibling_file(file);
    if (far && far->folder == target.filename().string())
      return refuse_previous(errc::invalid_argument,
                             "the previous checkpoint refers to the destination, and its bytes would be replaced",
                             made.folder)
          .with_values("", file);
    std::string reference = far ? file : to_string(sibling_file{made.folder.filename().string(), file});
    // A file in a sub-folder has no reference.
    made.references.push_back(parse_sibling_file(reference) ? std::move(reference) : std::string());
  }
  return {};
}

// The time of change is not compared: a new hard link sets it.
bool is_same_file(const file_identity& a, const file_identity& b) {
  return a.device == b.device && a.inode == b.inode && a.kind == b.kind && a.size_bytes == b.size_bytes &&
         a.modified == b.modified;
}

// Per chunk of a new tensor: the chunk of the catalog with the same box; -1: none.
std::vector<std::int32_t> equal_boxes_of(const catalog& contents, const output_tensor& tensor) {
  std::vector<std::int32_t> found(tensor.chunks.size(), -1);
  const tensor_entry* const stored = contents.find(tensor.key);
  if (tensor.archive || stored == nullptr || stored->type != tensor.type || !stored->opaque_type.empty() ||
      stored->shape != tensor.bytes.from.global_shape())
    return found;
  std::map<box, std::int32_t> chunks;
  for (std::int32_t i = 0; i < stored->chunk_count; ++i)
    chunks.emplace(contents.chunk_box(*stored, stored->first_chunk + i), stored->first_chunk + i);
  for (std::size_t i = 0; i < found.size(); ++i)
    if (const auto same = chunks.find(tensor.chunks[i].where); same != chunks.end() && !same->first.is_empty())
      found[i] = same->second;
  return found;
}

}  // namespace

std::optional<referred_item> previous_checkpoint::state::item_at(std::int32_t chunk) const {
  if (chunk < 0) return std::nullopt;
  const stored_range& place = reader->contents().chunk_places[static_cast<std::size_t>(chunk)];
  if (place.file < 0 || place.transform != 0) return std::nullopt;
  const std::string& reference = references[static_cast<std::size_t>(place.file)];
  const auto range = record->of_item(place);
  if (!range || !files.contains(reference)) return std::nullopt;
  return referred_item{{reference, place.offset, place.length}, record->ranges()[*range].digits};
}

result<previous_checkpoint> previous_checkpoint::open(const fs::path& folder, const fs::path& destination) {
  auto made = std::make_shared<state>();
  SHARDMESH_TRY(made->folder, checked_folder(folder, destination));
  auto reader = dcp::open(made->folder);
  if (!reader) return in_previous(std::move(reader).error(), folder);
  made->reader = *std::move(reader);
  if (!made->reader->problems().empty()) return in_previous(made->reader->problems().front(), folder);
  auto record = recorded_sums::open(*made->reader);
  if (!record) return in_previous(std::move(record).error(), folder);
  made->record = *std::move(record);
  if (!made->record)
    return refuse_previous(errc::invalid_argument, "the previous checkpoint has no record of checksums", folder);
  SHARDMESH_TRY(check_record(*made->record, folder));
  SHARDMESH_TRY(make_references(*made, destination));
  SHARDMESH_TRY(look_at_files(*made));
  const std::string text = format_checksums(made->record->ranges());
  made->digest = xxh3(std::as_bytes(std::span(text)));
  return previous_checkpoint(std::move(made));
}

digest128 previous_checkpoint::digest() const {
  return state_->digest;
}

result<std::vector<std::int64_t>> previous_checkpoint::find_unchanged(std::span<const output_tensor> tensors,
                                                                      element_source source,
                                                                      std::optional<std::int32_t> only,
                                                                      const item_run_options& options) const {
  struct candidate {
    std::int64_t number = 0;
    std::string digits;
  };
  std::vector<candidate> candidates;  // by slot of the hasher
  std::vector<tensor_transfer> transfers;
  std::vector<std::string> keys;
  item_hasher hasher;
  std::int64_t first = 0;
  for (const output_tensor& tensor : tensors) {
    const std::int64_t number = std::exchange(first, first + static_cast<std::int64_t>(tensor.chunks.size()));
    if (tensor.archive) continue;
    const std::vector<std::int32_t> stored = equal_boxes_of(state_->reader->contents(), tensor);
    distribution_builder chunks(tensor.bytes.from.global_shape(), owner_space::items);
    const std::size_t before = candidates.size();
    for (std::size_t i = 0; i < stored.size(); ++i) {
      const output_chunk& chunk = tensor.chunks[i];
      if (only && chunk.rank != *only) continue;
      auto item = state_->item_at(stored[i]);
      if (!item) continue;
      chunks.add(0, hasher.add(tensor.type, chunk.where.sizes), chunk.where.offsets, chunk.where.sizes);
      candidates.push_back({number + static_cast<std::int64_t>(i), std::move(item->digits)});
    }
    if (candidates.size() == before) continue;
    auto to = chunks.finish();
    if (!to) return std::move(to).error().with_key(tensor.key);
    transfers.push_back({tensor.bytes.from, *std::move(to), tensor.bytes.from_type, tensor.type});
    keys.push_back(tensor.key);
  }
  SHARDMESH_TRY(write_items(transfers, keys, source, hasher, options));
  std::vector<std::int64_t> unchanged;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    if (hasher.digest(i) && to_hex(*hasher.digest(i)) == candidates[i].digits)
      unchanged.push_back(candidates[i].number);
  return unchanged;
}

result<referred_items> previous_checkpoint::items_of(std::span<const output_tensor> tensors,
                                                     std::span<const std::int64_t> chunks) const {
  std::set<std::int64_t> wanted(chunks.begin(), chunks.end());
  referred_items found;
  std::int64_t first = 0;
  for (const output_tensor& tensor : tensors) {
    const std::int64_t end = first + static_cast<std::int64_t>(tensor.chunks.size());
    auto at = wanted.lower_bound(first);
    if (at != wanted.end() && *at < end) {
      const std::vector<std::int32_t> stored = equal_boxes_of(state_->reader->contents(), tensor);
      for (; at != wanted.end() && *at < end; ++at)
        if (auto item = state_->item_at(stored[static_cast<std::size_t>(*at - first)]))
          found.emplace(*at, *std::move(item));
    }
    first = end;
  }
  if (found.size() == wanted.size()) return found;
  return refuse_previous(errc::bad_format, "the previous checkpoint lacks a chunk to which a rank refers",
                         state_->folder);
}

result<void> previous_checkpoint::check_unchanged(const referred_items& items) const {
  std::set<std::string> needed;
  for (const auto& [number, item] : items) needed.insert(item.at.file);
  for (const std::string& reference : needed) {
    const auto sibling = parse_sibling_file(reference);
    const fs::path file = state_->folder.parent_path() / sibling->folder / sibling->file;
    auto seen = look_at(file);
    if (!seen) return in_previous(std::move(seen).error(), file);
    const auto known = state_->files.find(reference);
    if (!seen->self || known == state_->files.end() || !is_same_file(*seen->self, known->second))
      return fail(errc::io, "a file of the previous checkpoint was changed or removed during the save")
          .with_file(file.string())
          .with_hint("save again, and keep the previous checkpoint meanwhile");
  }
  return {};
}

result<std::vector<std::string>> references_of(const fs::path& folder) {
  SHARDMESH_TRY(const auto reader, dcp::open(folder));
  if (!reader->problems().empty()) return reader->problems().front();
  std::set<std::string> folders;
  for (const std::string& file : reader->contents().files)
    if (auto sibling = parse_sibling_file(file)) folders.insert(std::move(sibling->folder));
  return std::vector<std::string>(folders.begin(), folders.end());
}

}  // namespace shardmesh::dcp
