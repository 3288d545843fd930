// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.torchsnapshot;

import shardmesh.storage;
import shardmesh.torch_file;
import :manifest;

namespace shardmesh::torchsnapshot {
namespace fs = places;
namespace {

constexpr std::string_view manifest_name = ".snapshot_metadata";

// Whether a file's name stays within the folder: no "..", not absolute, no URL, and no NUL, where the system would
// cut it.
bool is_safe_path(const std::string& name) {
  const fs::path relative(name);
  if (relative.empty() || relative.is_absolute() || is_url(relative) || name.find('\0') != std::string::npos)
    return false;
  return std::none_of(relative.begin(), relative.end(), [](const fs::path& part) { return part == ".."; });
}

// A tensor or object with the entries of all ranks that belong to it.
struct merged_entry {
  std::string key;
  path where;
  std::vector<const entry*> of_ranks;
};

class snapshot_reader final : public torch_file::payload_reader {
 public:
  snapshot_reader(fs::path folder, const open_options& options)
      : payload_reader(checkpoint_format::torchsnapshot, std::move(folder), options), pool_(options.pool()) {}

  result<void> open() {
    const fs::path file = path_ / manifest_name;
    auto bytes = read_file(file, budget_->limits().description_bytes);
    if (!bytes) return std::move(bytes).error();
    auto parsed = parse_manifest({reinterpret_cast<const char*>(bytes->data()), bytes->size()}, *budget_);
    if (!parsed) return std::move(parsed).error().with_file(file.string());
    const manifest described = std::move(*parsed);
    for (const error& problem : described.problems) problems_.push_back(error(problem).with_file(file.string()));
    std::set<std::string> keys;
    for (const merged_entry& one : merged(described)) {
      if (!keys.insert(one.key).second)
        return fail(errc::duplicate_key, "two entries have the same name").with_key(one.key).with_file(file.string());
      if (auto added = add(one); !added) {
        error problem = std::move(added).error();
        if (problem.key.empty()) problem.key = one.key;
        problems_.push_back(problem.file.empty() ? std::move(problem).with_file(file.string()) : std::move(problem));
      }
    }
    files_ = std::make_unique<folder_files>(path_, contents_.files, pool_);
    check_expanded();
    return {};
  }

  result<std::shared_ptr<const byte_source>> section(const stored_range& place) override {
    return files_->section(place.file, place.offset, place.length);
  }

  // Opens archives, so that callers can inspect the names in them. Refuses plain elements, even if they look like an
  // archive.
  result<std::shared_ptr<const byte_source>> item_bytes(const stored_range& place) override {
    if (archives_.contains({place.file, place.offset})) return section(place);
    return checkpoint_reader::item_bytes(place);
  }

 private:
  // Merges replicated and sharded entries of all ranks, in the order of their first occurrence in the manifest.
  static std::vector<merged_entry> merged(const manifest& described) {
    std::vector<merged_entry> made;
    std::map<std::string, std::size_t> known;
    for (const entry& one : described.entries) {
      const bool is_shared = described.world_size == 1 || one.is_replicated || one.kind == entry_kind::sharded_tensor;
      shardmesh::path where;
      if (!is_shared) where.push_back(fmt::format("rank_{}", one.rank));
      for (const path_key& step : one.where) where.push_back(step);
      std::string key = dotted(where);
      const auto [place, is_new] = known.try_emplace(key, made.size());
      const bool joins = !is_new && made[place->second].where == where && is_shared &&
                         made[place->second].of_ranks.back()->rank != one.rank;
      if (joins)
        made[place->second].of_ranks.push_back(&one);
      else
        made.push_back({std::move(key), std::move(where), {&one}});
    }
    return made;
  }

  result<void> add(const merged_entry& one) {
    const entry& first = *one.of_ranks.front();
    switch (first.kind) {
      case entry_kind::value:
      case entry_kind::empty_container:
        add_object(one.key, one.where, first.archive);
        return {};
      case entry_kind::object: {
        const payload& stored = first.parts.front().stored;
        if (stored.serializer != "torch_save") return unknown_serializer(stored);
        SHARDMESH_TRY(const stored_range place, place_of(stored, std::nullopt));
        add_object(one.key, one.where, place);
        return {};
      }
      default:
        return add_tensor_of(one);
    }
  }

  result<void> add_tensor_of(const merged_entry& one) {
    const entry& first = *one.of_ranks.front();
    tensor_entry tensor;
    tensor.key = one.key;
    tensor.where = one.where;
    tensor.shape = first.shape;
    if (!first.dtype.starts_with("torch.")) return fail(errc::bad_format, "its entry in the manifest has no dtype");
    const std::string type = first.dtype.substr(6);
    if (const auto known = parse_dtype(type))
      tensor.type = *known;
    else if (type.starts_with('q'))
      tensor.properties.foreign_dtype = type, tensor.opaque_type = "torch.Tensor",
      tensor.opaque_kind = "quantized tensor";
    else
      return fail(errc::unsupported, fmt::format("has an unknown dtype {}", escaped(first.dtype)));
    // One rank's entry of a replicated tensor covers all of it.
    const bool is_sharded = first.kind == entry_kind::sharded_tensor;
    std::vector<const part*> parts;
    std::set<std::pair<extents, extents>> seen;  // a shard that several ranks hold is read from the first
    for (const entry* of_rank : one.of_ranks) {
      if (of_rank->kind != first.kind || (!of_rank->parts.empty() && of_rank->dtype != first.dtype && is_sharded))
        return fail(errc::bad_format, "ranks describe it differently");
      for (const part& shard : of_rank->parts)
        if (seen.emplace(shard.where.offsets, shard.where.sizes).second) parts.push_back(&shard);
      if (!is_sharded) break;
    }
    if (is_sharded) {
      SHARDMESH_TRY(tensor.shape, shape_of(parts));
    }
    // Checks all parts before adding the first, so an inconsistent tensor is left out and reported once.
    std::vector<std::pair<box, torch_file::tensor_payload>> chunks;
    for (const part* shard : parts) {
      if (!tensor.opaque_type.empty()) break;  // listed, but not read
      SHARDMESH_TRY(auto chunk, chunk_of(*shard, first.dtype, tensor));
      chunks.push_back(std::move(chunk));
    }
    add_tensor(std::move(tensor));
    for (const auto& [where, chunk] : chunks) SHARDMESH_TRY(add_chunk(where, chunk));
    return {};
  }

  // The manifest does not store a sharded tensor's shape. The shards' farthest ends give it.
  static result<extents> shape_of(const std::vector<const part*>& parts) {
    extents shape;
    for (const part* shard : parts) {
      const box& where = shard->where;
      if (shape.rank() == 0) shape = extents(where.sizes);
      if (where.sizes.rank() != shape.rank())
        return fail(errc::shape_mismatch, "its shards have different numbers of dimensions");
      for (std::size_t d = 0; d < shape.rank(); ++d) {
        const auto end = checked_add(where.offsets[d], where.sizes[d]);
        if (!end) return fail(errc::overflow, "the end of a shard does not fit in 64 bits").with_box(where);
        shape[d] = std::max(shape[d], *end);
      }
    }
    return shape;
  }

  result<std::pair<box, torch_file::tensor_payload>> chunk_of(const part& shard, const std::string& dtype_name,
                                                              const tensor_entry& tensor) {
    const payload& stored = shard.stored;
    const auto refuse = [&](error e) { return std::move(e).with_box(shard.where); };
    if (stored.dtype != dtype_name)
      return refuse(
          fail(errc::dtype_mismatch, "its parts have different dtypes").with_values(dtype_name, stored.dtype));
    if (stored.shape != shard.where.sizes)
      return refuse(fail(errc::shape_mismatch, "the shape of a part is not that of its place")
                        .with_values(to_string(shard.where.sizes), to_string(stored.shape)));
    // torchsnapshot writes a scalar's chunk with one dimension.
    const bool is_scalar = tensor.shape.rank() == 0 && shard.where == box::whole(extents{1});
    const box where = is_scalar ? box::whole(tensor.shape) : shard.where;
    if (!is_well_formed(where) || where.rank() != tensor.shape.rank() || !lies_within(where, box::whole(tensor.shape)))
      return refuse(fail(errc::out_of_bounds, "a part lies outside of the tensor")
                        .with_values(fmt::format("within {}", to_string(tensor.shape)), to_string(where)));
    torch_file::tensor_payload made;
    made.is_archive = stored.serializer == "torch_save";
    if (!made.is_archive && stored.serializer != "buffer_protocol") return unknown_serializer(stored);
    const auto count = checked_volume(stored.shape);
    const auto bytes = count ? size_bytes(tensor.type, *count) : std::nullopt;
    if (!bytes) return refuse(fail(errc::overflow, "its size does not fit in 64 bits"));
    auto place = place_of(stored, made.is_archive ? std::nullopt : bytes);
    if (!place) return refuse(std::move(place).error());
    made.place = *place;
    made.strides = contiguous_strides(where.sizes);
    return std::pair(where, std::move(made));
  }

  static error unknown_serializer(const payload& stored) {
    return fail(errc::unsupported,
                fmt::format("was written by the unknown serializer \"{}\"", escaped(stored.serializer)))
        .with_values("buffer_protocol or torch_save", stored.serializer);
  }

  // `bytes`: size of the elements; empty for an archive.
  result<stored_range> place_of(const payload& stored, std::optional<std::int64_t> bytes) {
    if (!is_safe_path(stored.location))
      return fail(errc::unsafe_path, "its file leaves the snapshot's folder").with_values("", stored.location);
    const auto [known, is_new] =
        numbers_.try_emplace(stored.location, static_cast<std::int32_t>(contents_.files.size()));
    const fs::path path = path_ / stored.location;
    if (is_new) {
      std::error_code code;
      const auto size = fs::file_size(path, code);
      contents_.files.push_back(stored.location);
      file_bytes_.push_back(code ? -1 : static_cast<std::int64_t>(size));
    }
    const std::int32_t file = known->second;
    const std::int64_t there = file_bytes_[static_cast<std::size_t>(file)];
    const auto [begin, end] = stored.byte_range.value_or(std::pair(std::int64_t{0}, std::max<std::int64_t>(there, 0)));
    if (!bytes) archives_.emplace(file, begin);
    // Opening the missing file reports the error.
    if (there < 0) return stored_range{file, 0, begin, bytes.value_or(end - begin)};
    if ((bytes && end - begin != *bytes) || end > there)
      return fail(errc::out_of_bounds,
                  stored.byte_range ? "its range of bytes does not have the size of its elements, or exceeds the file"
                                    : "the file does not have the size of its elements")
          .with_file(path.string())
          .with_values(detail::counted(bytes.value_or(end - begin), "byte"),
                       fmt::format("{} of {}", end - begin, detail::counted(there, "byte")));
    return stored_range{file, 0, begin, end - begin};
  }

  file_pool pool_;
  std::map<std::string, std::int32_t> numbers_;               // files by name
  std::vector<std::int64_t> file_bytes_;                      // per file; -1 when it is missing
  std::set<std::pair<std::int32_t, std::int64_t>> archives_;  // file and offset
  std::unique_ptr<folder_files> files_;
};

}  // namespace

bool is_snapshot(const fs::path& folder) {
  std::error_code code;
  return fs::is_regular_file(folder / manifest_name, code);
}

result<std::unique_ptr<checkpoint_reader>> open(const fs::path& folder, const open_options& options) {
  auto reader = std::make_unique<snapshot_reader>(folder, options);
  SHARDMESH_TRY(reader->open());
  return std::unique_ptr<checkpoint_reader>(std::move(reader));
}

}  // namespace shardmesh::torchsnapshot
