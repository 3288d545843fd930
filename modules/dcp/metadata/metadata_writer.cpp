// SPDX-License-Identifier: Apache-2.0
// Writes DCP metadata: the same objects, in the same order of fields, as PyTorch 2.13 pickles them.
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.dcp;

import :planner_paths;

namespace shardmesh::dcp {
namespace {

constexpr std::string_view metadata_module = "torch.distributed.checkpoint.metadata";

// Strides describe a part in a rank's memory. They are valid only while the tensor keeps its dtype and its parts.
bool keeps_strides(const output_tensor& tensor) {
  const distribution& from = tensor.bytes.from;
  if (!tensor.properties.strides || tensor.type != tensor.bytes.from_type) return false;
  std::vector<box> were, are;
  from.for_each_owner([&](owner_id owner) {
    from.fragments_of(owner, [&](const fragment& part) { return were.push_back(part.where), true; });
  });
  for (const output_chunk& chunk : tensor.chunks) are.push_back(chunk.where);
  const auto is_empty = [](const box& part) { return part.is_empty(); };
  std::erase_if(were, is_empty);
  std::erase_if(are, is_empty);
  std::sort(were.begin(), were.end());
  std::sort(are.begin(), are.end());
  return were == are;
}

class metadata_writer {
 public:
  metadata_writer(std::span<const output_tensor> tensors, std::span<const output_object> objects,
                  std::span<const item_place> places, const dcp::extras& extras)
      : tensors_(tensors), objects_(objects), places_(places), extras_(extras) {}

  std::vector<std::byte> write() && {
    begin_object(metadata_module, "Metadata");
    out_.text("state_dict_metadata");
    out_.begin_dict();
    for (const output_tensor& tensor : tensors_) {
      out_.text(tensor.key);
      write_tensor(tensor);
    }
    for (const output_object& object : objects_) {
      out_.text(object.key);
      out_.global(metadata_module, "BytesStorageMetadata");
      out_.empty_tuple();
      out_.newobj();
    }
    out_.end_dict();
    write_planner_data();
    write_storage_data();
    for (const auto& [name, value] : extras_.attributes) {
      out_.text(name);
      // The limit is far above any real attribute. A value that cannot be written again becomes None rather than
      // damage.
      if (!out_.value(value)) out_.none();
    }
    write_storage_meta();
    write_texts();
    write_strides();
    write_joined_paths();
    if (extras_.has_version) {
      out_.text("version");
      out_.text(extras_.version);
    }
    end_object();
    return std::move(out_).finish();
  }

 private:
  // Begins a dataclass instance: NEWOBJ of the class, then BUILD with the dict of its fields.
  void begin_object(std::string_view module_name, std::string_view type) {
    out_.global(module_name, type);
    out_.empty_tuple();
    out_.newobj();
    out_.begin_dict();
  }
  void end_object() {
    out_.end_dict();
    out_.build();
  }

  void write_size(const extents& sizes) {
    out_.global("torch", "Size");
    out_.begin_tuple();
    out_.begin_tuple();
    for (const std::int64_t size : sizes) out_.integer(size);
    out_.end_tuple();
    out_.end_tuple();
    out_.reduce();
  }

  void write_properties(const output_tensor& tensor) {
    out_.global(metadata_module, "TensorProperties");
    out_.empty_tuple();
    out_.newobj();
    out_.begin_tuple();
    const std::string& foreign = tensor.properties.foreign_dtype;
    out_.global("torch", foreign.empty() ? name(tensor.type) : std::string_view(foreign));
    out_.global("torch.serialization", "_get_layout");
    out_.begin_tuple();
    out_.text(tensor.properties.layout);
    out_.end_tuple();
    out_.reduce();
    out_.boolean(tensor.properties.requires_grad);
    out_.global(metadata_module, "_MEM_FORMAT_ENCODING");
    out_.begin_tuple();
    out_.integer(tensor.properties.memory_format);
    out_.end_tuple();
    out_.reduce();
    out_.boolean(tensor.properties.pin_memory);
    out_.end_tuple();
    out_.build();
  }

  void write_tensor(const output_tensor& tensor) {
    begin_object(metadata_module, "TensorStorageMetadata");
    out_.text("properties");
    write_properties(tensor);
    out_.text("size");
    write_size(tensor.bytes.from.global_shape());
    out_.text("chunks");
    out_.begin_list();
    for (const output_chunk& chunk : tensor.chunks) {
      begin_object(metadata_module, "ChunkStorageMetadata");
      out_.text("offsets");
      write_size(chunk.where.offsets);
      out_.text("sizes");
      write_size(chunk.where.sizes);
      end_object();
    }
    out_.end_list();
    end_object();
  }

  void write_planner_data() {
    out_.text("planner_data");
    if (!extras_.has_planner_data) return out_.none();
    out_.begin_dict();
    paths_ = planner_paths(tensors_, objects_);
    for (std::size_t entry = 0; entry < paths_.size(); ++entry) write_path(key_of(entry), paths_[entry]);
    for (const auto& [name, value] : extras_.planner_entries) {
      out_.text(name);
      if (!out_.value(value)) out_.none();
    }
    out_.end_dict();
  }

  void write_storage_meta() {
    if (extras_.save_id.empty()) return;
    out_.text("storage_meta");
    begin_object(metadata_module, "StorageMeta");
    out_.text("checkpoint_id");
    out_.none();
    out_.text("save_id");
    out_.text(extras_.save_id);
    out_.text("load_id");
    out_.none();
    out_.text("modules");
    out_.begin_list();
    out_.end_list();
    end_object();
  }

  void write_texts() {
    if (extras_.texts.empty()) return;
    out_.text(texts_attribute);
    out_.begin_dict();
    for (const auto& [key, value] : extras_.texts) {
      out_.text(key);
      out_.text(value);
    }
    out_.end_dict();
  }

  void write_strides() {
    if (std::none_of(tensors_.begin(), tensors_.end(), keeps_strides)) return;
    out_.text(strides_attribute);
    out_.begin_dict();
    for (const output_tensor& tensor : tensors_) {
      if (!keeps_strides(tensor)) continue;
      out_.text(tensor.key);
      out_.begin_tuple();
      for (const std::int64_t stride : *tensor.properties.strides) out_.integer(stride);
      out_.end_tuple();
    }
    out_.end_dict();
  }

  // Writes the full paths of entries whose path in planner_data is shortened.
  void write_joined_paths() {
    const auto is_joined = [this](std::size_t entry) {
      const path& where = where_of(entry);
      return !where.empty() && where != paths_[entry];
    };
    std::size_t entry = 0;
    while (entry < paths_.size() && !is_joined(entry)) ++entry;
    if (entry == paths_.size()) return;
    out_.text(paths_attribute);
    out_.begin_dict();
    for (; entry < paths_.size(); ++entry)
      if (is_joined(entry)) write_path(key_of(entry), where_of(entry));
    out_.end_dict();
  }

  // Entries are numbered over tensors, then objects.
  const std::string& key_of(std::size_t entry) const {
    return entry < tensors_.size() ? tensors_[entry].key : objects_[entry - tensors_.size()].key;
  }
  const path& where_of(std::size_t entry) const {
    return entry < tensors_.size() ? tensors_[entry].where : objects_[entry - tensors_.size()].where;
  }

  void write_path(std::string_view key, const path& where) {
    out_.text(key);
    out_.begin_tuple();
    for (const path_key& item : where) {
      if (item.is_integer()) {  // a dict's key is (0,), a list's index is 0
        out_.begin_tuple();
        out_.integer(item.integer());
        out_.end_tuple();
      } else if (const auto json = item.is_python() ? torch_file::json_of_key(item) : std::nullopt) {
        out_.begin_tuple();  // a dict's key
        out_.text(item.name());
        out_.text(*json);
        out_.end_tuple();
      } else if (item.is_index()) {
        out_.integer(item.index());
      } else {
        out_.text(item.name());
      }
    }
    out_.end_tuple();
  }

  void write_storage_data() {
    out_.text("storage_data");
    out_.begin_dict();
    std::size_t place = 0;
    for (const output_tensor& tensor : tensors_)
      for (std::size_t i = 0; i < tensor.chunks.size(); ++i) {
        begin_object(metadata_module, "MetadataIndex");
        out_.text("fqn");
        out_.text(tensor.key);
        out_.text("index");
        out_.integer(static_cast<std::int64_t>(i));
        out_.text("offset");
        write_size(tensor.chunks[i].where.offsets);
        end_object();
        write_place(places_[place++]);
      }
    for (const output_object& object : objects_) {
      begin_object(metadata_module, "MetadataIndex");
      out_.text("fqn");
      out_.text(object.key);
      out_.text("index");
      out_.none();
      end_object();
      write_place(places_[place++]);
    }
    out_.end_dict();
  }

  void write_place(const item_place& place) {
    begin_object("torch.distributed.checkpoint.filesystem", "_StorageInfo");
    out_.text("relative_path");
    out_.text(place.file);
    out_.text("offset");
    out_.integer(place.offset);
    out_.text("length");
    out_.integer(place.length);
    end_object();
  }

  std::span<const output_tensor> tensors_;
  std::span<const output_object> objects_;
  std::span<const item_place> places_;
  const extras& extras_;
  std::vector<path> paths_;  // as in planner_data; empty without it
  pickle::writer out_;
};

}  // namespace

std::vector<std::byte> format_metadata(std::span<const output_tensor> tensors, std::span<const output_object> objects,
                                       std::span<const item_place> places, const dcp::extras& extras) {
  return metadata_writer(tensors, objects, places, extras).write();
}

}  // namespace shardmesh::dcp
