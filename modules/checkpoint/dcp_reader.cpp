// SPDX-License-Identifier: Apache-2.0
// The reader of DCP folders: finds the metadata, recognises interrupted saves, opens items when they are asked for.
module;
#include <fmt/format.h>
#include <try.hpp>

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
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import :file_times;
import :item_records;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t metadata_limit_bytes = std::int64_t{16} << 30;
constexpr std::int64_t archive_limit_bytes = std::int64_t{4} << 30;

// What lies in the folder.
struct folder_listing {
  bool has_metadata = false, has_temporary = false;
  std::map<std::int64_t, std::string> rank_metadata;  // rank -> "__N.metadata"
  std::set<std::string> items;                        // *.distcp
};

result<folder_listing> list_folder(const fs::path& folder) {
  folder_listing found;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(folder, code)) {
    const std::string file = entry.path().filename().string();
    if (file == ".metadata")
      found.has_metadata = true;
    else if (file == ".metadata.tmp")
      found.has_temporary = true;
    else if (file.ends_with(".distcp"))
      found.items.insert(file);
    else if (file.starts_with("__") && file.ends_with(".metadata")) {
      const std::string digits = file.substr(2, file.size() - 11);
      const bool is_number = !digits.empty() && digits.size() < 10 &&
                             std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
      if (is_number) found.rank_metadata[std::stoll(digits)] = file;
    }
  }
  if (code) return fail_sys(code.value(), "cannot list", folder.string());
  return found;
}

class dcp_reader final : public checkpoint_reader {
 public:
  dcp_reader(fs::path folder, dcp_metadata description, const open_options& options)
      : extras_(std::move(description.extras)), files_(folder, description.contents.files, options.max_open_files) {
    contents_ = std::move(description.contents);
    problems_ = std::move(description.problems);
    warnings_ = std::move(description.warnings);
    path_ = std::move(folder);
  }

  void note_oddities(const folder_listing& listing) {
    const auto file = [&](std::string_view name) { return (path_ / name).string(); };
    if (listing.has_metadata && listing.has_temporary)
      problems_.push_back(fail(errc::incomplete_save, "an overwrite was interrupted: a new .metadata was being written")
                              .with_file(file(".metadata.tmp"))
                              .with_hint("the items may be a mixture of two saves"));
    if (listing.has_metadata && !listing.rank_metadata.empty())
      warnings_.push_back(fail(errc::incomplete_save, "is not used: .metadata wins over it")
                              .with_file(file(listing.rank_metadata.begin()->second)));
    std::set<std::string> unreferenced = listing.items;
    for (const std::string& referenced : contents_.files) unreferenced.erase(referenced);
    for (const std::string& item : unreferenced) {
      std::error_code code;
      // A rank that had nothing left to write leaves an empty file: nothing is odd about that.
      if (fs::file_size(path_ / item, code) > 0 && !code)
        warnings_.push_back(fail(errc::incomplete_save, "nothing refers to this file: a leftover of another save")
                                .with_file(file(item)));
    }
    if (!listing.has_metadata) return;
    const std::vector<std::string> rewritten = files_rewritten_after(path_, ".metadata", contents_.files);
    if (rewritten.empty()) return;
    const std::size_t others = rewritten.size() - 1;
    const std::string more = others == 0 ? "" : fmt::format(", like {} more file{}", others, others == 1 ? "" : "s");
    warnings_.push_back(fail(errc::incomplete_save,
                             fmt::format("is newer than .metadata{}: an overwrite may have been interrupted", more))
                            .with_file(file(rewritten.front())));
  }

  const dcp_extras& extras() const override { return extras_; }

  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override {
    if (auto known = cache_.find(chunk)) return known;
    auto opened = open_item(tensor, chunk);
    if (!opened) return describe(std::move(opened).take_error(), tensor, chunk);
    auto shared = std::make_shared<const opened_chunk>(std::move(*opened));
    cache_.insert(chunk, shared);
    return shared;
  }

  result<object_value> read_object(std::size_t index) override {
    const object_entry& object = contents_.objects[index];
    auto value = [&]() -> result<object_value> {
      SHARDMESH_TRY(const auto source, item_source_of(object.place));
      SHARDMESH_TRY(const torch_item item, torch_item::open(*source));
      return describe_object(item, item.root(), *source);
    }();
    if (!value) return name_in(std::move(value).take_error(), object.key, object.place);
    return value;
  }

  result<std::vector<std::byte>> object_archive(std::size_t index) override {
    const object_entry& object = contents_.objects[index];
    auto bytes = archive_of(object.place);
    if (!bytes) return name_in(std::move(bytes).take_error(), object.key, object.place);
    return bytes;
  }

  result<std::vector<std::byte>> chunk_archive(const tensor_entry& tensor, std::int32_t chunk) override {
    const stored_range& place = contents_.chunk_places[static_cast<std::size_t>(chunk)];
    auto bytes = archive_of(place);
    if (!bytes) return name_in(std::move(bytes).take_error(), tensor.key, place);
    return bytes;
  }

  // Everything that is copied of such entries is their archive, so every record of it counts.
  check_outcome check_whole(std::span<const whole_entry> entries, const check_options& options) override {
    return check_each(entries, options, [&](const whole_entry& entry) -> result<std::pair<std::int64_t, std::int64_t>> {
      if (!entry.is_tensor) return check_item(contents_.objects[entry.index].place, options.quick);
      const tensor_entry& tensor = contents_.tensors[entry.index];
      std::pair<std::int64_t, std::int64_t> total;
      for (std::int32_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.chunk_count; ++chunk) {
        auto sums = check_item(contents_.chunk_places[static_cast<std::size_t>(chunk)], options.quick);
        if (!sums) return describe(std::move(sums).take_error(), tensor, chunk);
        total = {total.first + sums->first, total.second + sums->second};
      }
      return total;
    });
  }

  result<std::optional<digest128>> content_of(const whole_entry& entry) override {
    const tensor_entry* const tensor = entry.is_tensor ? &contents_.tensors[entry.index] : nullptr;
    const std::string& key = tensor ? tensor->key : contents_.objects[entry.index].key;
    // A sharded tensor of an unknown representation has no parts that another cut could be compared with.
    if (tensor && tensor->chunk_count != 1) return std::optional<digest128>();
    const stored_range& place = tensor ? contents_.chunk_places[static_cast<std::size_t>(tensor->first_chunk)]
                                       : contents_.objects[entry.index].place;
    auto digest = [&]() -> result<digest128> {
      SHARDMESH_TRY(const auto source, item_source_of(place));
      SHARDMESH_TRY(const torch_item item, torch_item::open(*source));
      SHARDMESH_TRY(item_storages storages, item_storages::open(*source, item));
      return storages.content_of(item.root());
    }();
    if (!digest) return name_in(std::move(digest).take_error(), key, place);
    return std::optional(*digest);
  }

  void identify_opaque_tensors() override {
    for (tensor_entry& tensor : contents_.tensors) {
      if (tensor.chunk_count == 0 || !tensor.opaque_type.empty()) continue;
      const stored_range& place = contents_.chunk_places[static_cast<std::size_t>(tensor.first_chunk)];
      if (place.file < 0) continue;
      const auto source = item_source_of(place);
      if (!source) continue;  // verify and reading say what is wrong
      const auto item = torch_item::open(**source);
      if (item && item->is_opaque_tensor(item->root())) tensor.opaque_type = classify(*item, item->root()).type;
    }
  }

 private:
  error name_in(error e, const std::string& key, const stored_range& place) const {
    if (e.key.empty()) e.key = key;
    if (e.file.empty() && place.file >= 0) e.file = files_.path_of(place.file).string();
    return e;
  }
  error describe(error e, const tensor_entry& tensor, std::int32_t chunk) const {
    return name_in(std::move(e), tensor.key, contents_.chunk_places[static_cast<std::size_t>(chunk)])
        .with_box(contents_.chunk_box(tensor, chunk));
  }

  // The item's bytes, decoded when a transform says so.
  result<std::shared_ptr<const byte_source>> item_source_of(const stored_range& place) {
    if (place.file < 0) return fail(errc::missing_key, "nothing says where it is stored");
    SHARDMESH_TRY(auto section, files_.section(place.file, place.offset, place.length));
    const std::string& transform = contents_.transforms[static_cast<std::size_t>(place.transform)];
    if (transform.empty()) return section;
    if (!transform.starts_with("stream.zstd") || transform.find('+') != std::string::npos)
      return fail(errc::unsupported, "is stored through a transform that we do not know")
          .with_values("stream.zstd/1", transform);
    auto encoded = std::make_unique<shared_section>(section, 0, section->size_bytes());
    SHARDMESH_TRY(std::unique_ptr<byte_source> decoded, open_decoding_source(std::move(encoded), codec::zstd));
    return std::shared_ptr<const byte_source>(std::move(decoded));
  }

  // The bytes as they are to be copied: a damaged record must not go on under a fresh checksum.
  result<std::vector<std::byte>> archive_of(const stored_range& place) {
    SHARDMESH_TRY(const auto source, item_source_of(place));
    SHARDMESH_TRY(std::vector<std::byte> bytes, read_all(*source, archive_limit_bytes));
    SHARDMESH_CHECK(check_archive(memory_source(bytes, source->name())));
    return bytes;
  }

  // Bytes with and without checksums of an item that is copied as it is.
  result<std::pair<std::int64_t, std::int64_t>> check_item(const stored_range& place, bool quick) {
    auto sums = [&]() -> result<record_sums> {
      SHARDMESH_TRY(const auto source, item_source_of(place));
      SHARDMESH_CHECK(torch_item::open(*source));
      if (quick) return record_sums{};
      return check_archive(*source);
    }();
    if (!sums) return name_in(std::move(sums).take_error(), {}, place);
    return std::pair(sums->checked_bytes, sums->unchecked_bytes);
  }

  result<opened_chunk> open_item(const tensor_entry& tensor, std::int32_t chunk) {
    const stored_range& place = contents_.chunk_places[static_cast<std::size_t>(chunk)];
    SHARDMESH_TRY(const auto source, item_source_of(place));
    SHARDMESH_TRY(const torch_item item, torch_item::open(*source));
    const auto root = item.tensor_of(item.root());
    if (!root) {
      const object_class what = classify(item, item.root());
      if (what.kind == object_kind::opaque_tensor)
        return fail(errc::unsupported, "holds a tensor of a representation that we do not know")
            .with_values("", what.type);
      return fail(errc::bad_format, "the item is not a tensor").with_values("torch.Tensor", what.type);
    }
    SHARDMESH_TRY(opened_chunk opened, open_torch_tensor(item, *root, source));
    if (opened.tensor.type != tensor.type)
      return fail(errc::dtype_mismatch, "the stored dtype is not the declared one")
          .with_values(std::string(name(tensor.type)), std::string(name(opened.tensor.type)));
    const extents sizes = contents_.chunk_box(tensor, chunk).sizes;
    if (opened.tensor.sizes != sizes)
      return fail(errc::shape_mismatch, "the stored sizes are not the declared ones")
          .with_values(to_string(sizes), to_string(opened.tensor.sizes));
    opened.reads_in_order |= place.transform != 0;
    if (place.transform == 0 && opened.source == source) opened.item_length = place.length;
    return opened;
  }

  dcp_extras extras_;
  folder_files files_;
  chunk_cache cache_;
};

result<dcp_metadata> read_rank_metadata(const fs::path& folder, const folder_listing& listing) {
  std::vector<dcp_metadata> parts;
  for (const auto& [rank, file] : listing.rank_metadata) {
    const fs::path path = folder / file;
    SHARDMESH_TRY(std::vector<std::byte> bytes, read_file(path, metadata_limit_bytes));
    SHARDMESH_TRY(dcp_metadata part, parse_dcp_metadata(std::move(bytes), path.string()));
    parts.push_back(std::move(part));
  }
  return merge_dcp_metadata(std::move(parts));
}

}  // namespace

result<std::unique_ptr<checkpoint_reader>> open_dcp(const fs::path& folder, const open_options& options) {
  SHARDMESH_TRY(const folder_listing listing, list_folder(folder));
  if (!listing.has_metadata && listing.rank_metadata.empty()) {
    if (listing.has_temporary)
      return fail(errc::incomplete_save, "incomplete save: the metadata was being written when it was interrupted")
          .with_file((folder / ".metadata.tmp").string());
    return fail(errc::incomplete_save,
                fmt::format("incomplete save: {} .distcp files without metadata", listing.items.size()))
        .with_file((folder / ".metadata").string());
  }
  dcp_metadata description;
  if (listing.has_metadata) {
    const fs::path path = folder / ".metadata";
    SHARDMESH_TRY(std::vector<std::byte> bytes, read_file(path, metadata_limit_bytes));
    SHARDMESH_TRY(description, parse_dcp_metadata(std::move(bytes), path.string()));
  } else {
    SHARDMESH_TRY(description, read_rank_metadata(folder, listing));
  }
  auto reader = std::make_unique<dcp_reader>(folder, std::move(description), options);
  reader->note_oddities(listing);
  return std::unique_ptr<checkpoint_reader>(std::move(reader));
}

}  // namespace shardmesh
