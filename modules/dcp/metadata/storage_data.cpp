// SPDX-License-Identifier: Apache-2.0
// Reads the places of chunks and objects from the pickle into the catalog.
module;
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.dcp;

import :pickled_fields;
import :storage_data;

namespace shardmesh::dcp {
namespace {

// File names must lie within the folder: no "..", no absolute path, no URL. The one exception is the reference of an
// incremental checkpoint to an item in a folder beside it.
bool is_safe_path(const std::filesystem::path& relative) {
  if (parse_sibling_file(relative.native())) return true;
  if (relative.empty() || relative.is_absolute() || is_url(relative)) return false;
  return std::none_of(relative.begin(), relative.end(), [](const auto& part) { return part == ".."; });
}

}  // namespace

std::int32_t storage_data_reader::file_number(std::string_view relative) {
  if (const auto found = files_.find(relative); found != files_.end()) return found->second;
  // The system would open the name that ends before the NUL.
  if (relative.find('\0') != std::string_view::npos) {
    account_.problem(fail(errc::unsafe_path, "a file name holds a NUL").with_values("", std::string(relative)), {});
    return files_.emplace(relative, -1).first->second;
  }
  if (!is_safe_path(std::filesystem::path(relative))) {
    account_.problem(
        fail(errc::unsafe_path, "a file name leaves the checkpoint's folder").with_values("", std::string(relative)),
        {});
    return files_.emplace(relative, -1).first->second;
  }
  contents_.files.emplace_back(relative);
  return files_.emplace(relative, static_cast<std::int32_t>(contents_.files.size() - 1)).first->second;
}

// Returns the number of the joined transforms: 0 for plain bytes, nothing when their names cost too much.
std::optional<std::int32_t> storage_data_reader::transform_number(std::string_view key, pickle::value transforms) {
  std::string joined;
  for (const pickle::value one : transforms.items()) {
    const std::string_view text = one.text().value_or("?");
    if (!account_.spend(8 + text.size(), key)) return std::nullopt;
    (joined += joined.empty() ? "" : "+") += text;
  }
  if (joined.empty()) return 0;
  std::vector<std::string>& known = contents_.transforms;
  const auto [found, is_new] = transforms_.try_emplace(joined, static_cast<std::int32_t>(known.size()));
  if (is_new) known.push_back(std::move(joined));
  return found->second;
}

std::optional<stored_range> storage_data_reader::read_info(std::string_view key, pickle::value info) {
  const auto relative = read_relative_path(account_.field(info, "relative_path"));
  const auto offset = account_.field(info, "offset").as_int();
  const auto length = account_.field(info, "length").as_int();
  if (!relative || !offset || !length || *offset < 0 || *length < 0 || !checked_add(*offset, *length)) {
    account_.problem(errc::bad_format, "its place in a file lacks a valid name, offset, or length", key);
    return std::nullopt;
  }
  if (!account_.spend(relative->size(), key)) return std::nullopt;
  stored_range place{file_number(*relative), 0, *offset, *length};
  const auto transform = transform_number(key, account_.field(info, "transform_descriptors"));
  if (!transform || place.file < 0) return std::nullopt;
  place.transform = *transform;
  return place;
}

// Finds a chunk by the hint (its position in the list, which may be stale), else by offset. When an empty chunk shares
// its offset with another one, the bytes belong to the other.
std::optional<std::int32_t> storage_data_reader::find_chunk(std::size_t tensor, const extents& at,
                                                            std::optional<std::int64_t> hint) {
  const tensor_entry& entry = contents_.tensors[tensor];
  if (hint && *hint >= 0 && *hint < entry.chunk_count) {
    const auto chunk = static_cast<std::int32_t>(entry.first_chunk + *hint);
    const box where = contents_.chunk_box(entry, chunk);
    if (where.offsets == at && (!where.is_empty() || box::whole(entry.shape).is_empty())) return chunk;
  }
  auto [index, is_new] = by_offset_.try_emplace(tensor);
  if (is_new)
    for (std::int32_t chunk = entry.first_chunk; chunk < entry.first_chunk + entry.chunk_count; ++chunk) {
      const box where = contents_.chunk_box(entry, chunk);
      const auto [slot, added] = index->second.try_emplace(where.offsets, chunk);
      if (!added && !where.is_empty()) slot->second = chunk;
    }
  const auto found = index->second.find(at);
  if (found == index->second.end()) return std::nullopt;
  return found->second;
}

void storage_data_reader::read(pickle::value index, pickle::value info) {
  const auto fqn = account_.field(index, "fqn").text();
  if (!fqn) return static_cast<void>(account_.problem(errc::bad_format, "an entry of storage_data has no name", {}));
  if (!account_.spend(fqn->size(), *fqn)) return;
  const auto entry = entries_.find(*fqn);
  if (entry == entries_.end()) {
    // Entries that could not be read were reported already; others are leftovers, which PyTorch ignores as well.
    return;
  }
  const auto place = read_info(*fqn, info);
  if (!place) return;
  const pickle::value offset = account_.field(index, "offset");
  if (entry->second < 0) {
    contents_.objects[static_cast<std::size_t>(-1 - entry->second)].place = *place;
    return;
  }
  const auto tensor = static_cast<std::size_t>(entry->second);
  if (!offset || offset.is_none())
    return static_cast<void>(account_.problem(errc::bad_format, "the place of a chunk has no offset", *fqn));
  auto at = read_sizes(offset, "chunk's offset");
  if (!at) return account_.problem(std::move(at).error(), *fqn);
  const auto chunk = find_chunk(tensor, *at, account_.field(index, "index").as_int());
  if (!chunk)
    return account_.problem(fail(errc::bad_format, "a stored chunk is not one of the tensor's")
                                .with_values("", fmt::format("offset {}", to_string(*at))),
                            *fqn);
  contents_.set_place(*chunk, *place);
}

void storage_data_reader::check_complete() const {
  for (const tensor_entry& tensor : contents_.tensors)
    for (std::int32_t i = 0; i < tensor.chunk_count; ++i) {
      const std::int32_t chunk = tensor.first_chunk + i;
      const box where = contents_.chunk_box(tensor, chunk);
      if (contents_.chunk_places[static_cast<std::size_t>(chunk)].file < 0 && !where.is_empty())
        account_.problem(fail(errc::missing_key, "the metadata does not say where a chunk is stored").with_box(where),
                         tensor.key);
    }
  for (const object_entry& object : contents_.objects)
    if (object.place.file < 0)
      account_.problem(errc::missing_key, "the metadata does not say where the object is stored", object.key);
}

}  // namespace shardmesh::dcp
