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
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.gguf;

import shardmesh.storage;
import shardmesh.torch_file;
import :block_source;
import :metadata_encoding;
import :metadata_value;

namespace shardmesh::gguf {
namespace fs = places;
namespace {

class gguf_reader final : public checkpoint_reader {
 public:
  explicit gguf_reader(const open_options& options) : limits_(options.limits), pool_(options.pool()) {}

  result<void> open(const fs::path& file) {
    path_ = file;
    contents_.format = checkpoint_format::gguf;
    contents_.files.push_back(fs::name_of(file).string());
    SHARDMESH_TRY(auto source, pool_.open(file));
    source_ = std::move(source);
    read_budget budget(limits_);
    auto parsed = parse_header(*source_, budget);
    if (!parsed) return std::move(parsed).error();
    contents_.version = fmt::format("{}", parsed->version);
    contents_.tensors.reserve(parsed->tensors.size());
    for (tensor_info& tensor : parsed->tensors) add_tensor(std::move(tensor));
    for (metadata_entry& entry : parsed->metadata) {
      auto added = add_value(std::move(entry));
      if (!added) return std::move(added).error().with_file(path_.string());
    }
    add_value_types();
    warn_of_split();
    return check_objects_are_distinct();
  }

  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override {
    const stored_range& place = contents_.chunk_places[static_cast<std::size_t>(chunk)];
    const type_traits& type = *types_[static_cast<std::size_t>(chunk)];
    auto opened = std::make_shared<opened_chunk>();
    if (type.is_plain()) {
      opened->source = source_;
      opened->tensor = contiguous_stored_tensor(tensor.type, tensor.shape, place.offset, place.length);
      opened->item_begin = place.offset;
      opened->item_length = place.length;
    } else {
      opened->source =
          std::make_shared<const block_source>(source_, place.offset, type, place.length / type.block_bytes);
      opened->tensor = contiguous_stored_tensor(tensor.type, tensor.shape, 0, opened->source->size_bytes());
    }
    return std::shared_ptr<const opened_chunk>(std::move(opened));
  }

  result<object_value> read_object(std::size_t index) override {
    const kept_object& object = objects_[index];
    if (object.value) return *object.value;
    auto value = read_value(*source_, object.entry, limits_);
    if (!value) return std::move(value).error().with_file(path_.string());
    return value;
  }

  result<std::vector<std::byte>> object_archive(std::size_t index) override {
    SHARDMESH_TRY(const object_value value, read_object(index));
    auto bytes = torch_file::archive_from_json(value.json);
    if (!bytes) return std::move(bytes).error().with_key(contents_.objects[index].key).with_values("", value.type);
    return bytes;
  }

  std::optional<stored_blocks> blocks(std::size_t index) const {
    const tensor_entry& tensor = contents_.tensors[index];
    if (tensor.chunk_count != 1) return std::nullopt;
    const auto chunk = static_cast<std::size_t>(tensor.first_chunk);
    if (types_[chunk]->is_plain()) return std::nullopt;
    const stored_range& place = contents_.chunk_places[chunk];
    return stored_blocks{source_, place.offset, place.length, types_[chunk]->type, tensor.shape};
  }

 private:
  struct kept_object {
    metadata_entry entry;               // in the file, or
    std::optional<object_value> value;  // in the document of objects
  };

  void add_tensor(tensor_info info) {
    const type_traits* const type = find_type(info.type);
    if (type == nullptr) {
      problems_.push_back(fail(errc::unsupported, "is of a tensor type that is not known")
                              .with_key(info.name)
                              .with_file(path_.string())
                              .with_values("a type of GGUF", fmt::format("number {}", info.type)));
      return;
    }
    tensor_entry& entry = contents_.tensors.emplace_back();
    entry.key = std::move(info.name);
    entry.where = shardmesh::path{entry.key};  // dots are part of the name
    entry.shape = info.shape;
    entry.type = type->is_plain() ? type->plain : dtype::float32;
    if (!type->is_plain() && !type->is_decoded) {  // listed, but not read
      entry.opaque_type = fmt::format("ggml.{}", type->name);
      entry.opaque_kind = fmt::format("tensor of {} blocks", type->name);
      return;
    }
    if (!fits_in_memory(entry)) return;
    contents_.add_chunk(box::whole(entry.shape), {0, transform_of(*type), info.begin, info.end - info.begin});
    types_.push_back(type);
  }

  // Decoded elements need more bytes than the blocks, so their number may not fit into 64 bits.
  bool fits_in_memory(const tensor_entry& entry) {
    const auto count = checked_volume(entry.shape);
    if (count && size_bytes(entry.type, *count)) return true;
    problems_.push_back(
        fail(errc::overflow, "its decoded size does not fit in 64 bits").with_key(entry.key).with_file(path_.string()));
    contents_.tensors.pop_back();
    return false;
  }

  std::int32_t transform_of(const type_traits& type) {
    if (type.is_plain()) return 0;
    std::vector<std::string>& known = contents_.transforms;
    const auto found = std::find(known.begin() + 1, known.end(), type.name);
    const auto number = static_cast<std::int32_t>(found - known.begin());
    if (found == known.end()) known.emplace_back(type.name);
    return number;
  }

  result<void> add_value(metadata_entry entry) {
    if (entry.type == value_type::string && entry.key == objects_key) return add_document(entry);
    if (entry.type == value_type::string && entry.key.starts_with(text_prefix)) {
      SHARDMESH_TRY(std::string text, read_string(*source_, entry, limits_));
      contents_.texts.push_back({entry.key.substr(text_prefix.size()), std::move(text), 0});
      return {};
    }
    if (auto type = unusual_type(entry)) unusual_types_.emplace(entry.key, *std::move(type));
    contents_.objects.push_back({entry.key, shardmesh::path{entry.key}, {}});
    objects_.push_back({std::move(entry), std::nullopt});
    return {};
  }

  // Adds the objects that our own writer put into one string.
  result<void> add_document(const metadata_entry& entry) {
    SHARDMESH_TRY(const std::string text, read_string(*source_, entry, limits_));
    auto document = safetensors::parse_objects(text);
    if (!document) {
      problems_.push_back(std::move(document).error().with_file(path_.string()));
      return {};
    }
    for (safetensors::stored_object& object : document->objects) {
      contents_.objects.push_back({object.key, shardmesh::path{object.key}, {}});
      objects_.push_back({{}, std::move(object.value)});
    }
    return {};
  }

  void add_value_types() {
    if (unusual_types_.empty()) return;
    std::string text = "{";
    for (const auto& [key, type] : unusual_types_)
      text += fmt::format("{}{}:{}", text.size() > 1 ? "," : "", json_quoted(key), json_quoted(type));
    contents_.texts.push_back({std::string(value_types_key), text + "}", 0});
  }

  void warn_of_split() {
    for (const kept_object& object : objects_) {
      if (object.entry.key != "split.count") continue;
      const auto count = read_unsigned(*source_, object.entry);
      if (count && *count && **count > 1)
        warnings_.push_back(fail(errc::missing_key, "is one of several files of a model; the others are not read")
                                .with_file(path_.string())
                                .with_values("1 file", fmt::format("{}", **count))
                                .with_hint("merge them first: llama-gguf-split --merge"));
    }
  }

  // Metadata and tensors have separate names in GGUF, but not in a checkpoint.
  result<void> check_objects_are_distinct() const {
    auto distinct = check_distinct_keys(contents_, "a tensor and a metadata value, or two objects, have one name");
    if (!distinct) return std::move(distinct).error().with_file(path_.string());
    return {};
  }

  read_limits limits_;
  file_pool pool_;
  std::shared_ptr<const byte_source> source_;
  std::vector<const type_traits*> types_;  // one per chunk
  std::vector<kept_object> objects_;       // one per object
  std::map<std::string, std::string> unusual_types_;
};

}  // namespace

result<std::unique_ptr<checkpoint_reader>> open(const fs::path& file, const open_options& options) {
  auto reader = std::make_unique<gguf_reader>(options);
  SHARDMESH_TRY(reader->open(file));
  return std::unique_ptr<checkpoint_reader>(std::move(reader));
}

std::optional<stored_blocks> blocks_of(const checkpoint_reader& reader, std::size_t tensor) {
  const checkpoint_reader* at = &reader;
  for (whole_entry entry{true, tensor};;) {
    if (const auto* const own = dynamic_cast<const gguf_reader*>(at)) return own->blocks(entry.index);
    const auto there = at->shown(entry);
    if (!there) return std::nullopt;
    at = there->reader;
    entry = there->entry;
  }
}

}  // namespace shardmesh::gguf
