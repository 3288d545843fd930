// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.mapping;

import shardmesh.gguf;
import shardmesh.torch_file;
import :model_value;
import :model_values;
import :model_values_reader;

namespace shardmesh::llama_cpp {
namespace {

class model_values_reader final : public torch_file::archive_forwarding_reader {
 public:
  model_values_reader(std::unique_ptr<checkpoint_reader> inner, model_values added)
      : archive_forwarding_reader(std::move(inner)) {
    const catalog& stored = this->inner().contents();
    for (std::size_t i = 0; i < stored.tensors.size(); ++i) add_whole_tensor(i);
    first_tensor_ = stored.tensors.size();
    first_object_ = stored.objects.size();
    const auto is_new = [&](const std::string& key) {
      return stored.find(key) == nullptr && stored.find_object(key) == nullptr;
    };
    for (model_tensor& tensor : added.tensors)
      if (is_new(tensor.key)) list(std::move(tensor));
    for (model_value& value : added.values)
      if (is_new(value.key)) {
        add_object({value.key, {value.key}, {}, 0}, std::nullopt);
        values_.push_back(std::move(value));
      }
    add_types();
    for (std::string& note : added.notes) notes_.push_back(std::move(note));
  }

  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override {
    const std::size_t index = tensor_of_chunk(chunk);
    if (index < first_tensor_) return forwarding_reader::open_chunk(tensor, chunk);
    const std::vector<float>& elements = tensors_[index - first_tensor_].elements;
    std::vector<std::byte> bytes(elements.size() * sizeof(float));
    if (!bytes.empty()) std::memcpy(bytes.data(), elements.data(), bytes.size());
    auto opened = std::make_shared<opened_chunk>();
    const auto size = static_cast<std::int64_t>(bytes.size());
    opened->source = std::make_shared<owned_source>(std::move(bytes), tensor.key);
    opened->tensor = contiguous_stored_tensor(tensor.type, tensor.shape, 0, size);
    return std::shared_ptr<const opened_chunk>(std::move(opened));
  }

  result<object_value> read_object(std::size_t index) override {
    if (index < first_object_) return forwarding_reader::read_object(index);
    const model_value& value = values_[index - first_object_];
    object_value made;
    made.kind = value.kind;
    made.type = "builtins." + value.kind;
    made.json = value.json;
    return made;
  }

  result<std::vector<std::byte>> object_archive(std::size_t index) override {
    if (index < first_object_) return forwarding_reader::object_archive(index);
    return torch_file::archive_from_json(values_[index - first_object_].json);
  }

  result<torch_file::opened_object> open_object(std::size_t index) override {
    if (index < first_object_) return archive_forwarding_reader::open_object(index);
    // It has no tensors, for which callers open an object: a vocabulary would be pickled only to be searched.
    return fail(errc::unsupported, "a value for llama.cpp has no archive in the checkpoint")
        .with_key(contents_.objects[index].key);
  }

 private:
  void list(model_tensor tensor) {
    tensor_entry entry;
    entry.key = tensor.key;
    entry.where = {tensor.key};
    entry.type = dtype::float32;
    entry.shape = extents{static_cast<std::int64_t>(tensor.elements.size())};
    const box whole = box::whole(entry.shape);
    add_tensor(std::move(entry), std::nullopt);
    add_chunk(whole, {}, inner_chunk{});
    tensors_.push_back(std::move(tensor));
  }

  // Adds the types that a writer of GGUF would not choose to the text that carries such types.
  void add_types() {
    std::map<std::string, std::string> types;
    for (const model_value& value : values_)
      if (!value.type.empty()) types.emplace(value.key, value.type);
    if (types.empty()) return;
    for (file_text& text : contents_.texts) {
      if (text.key != gguf::value_types_key || !check_json_depth(text.value, 8)) continue;
      nlohmann::json stated = nlohmann::json::parse(text.value, nullptr, false);
      if (!stated.is_object()) continue;
      for (const auto& [key, type] : types) stated[key] = type;
      text.value = stated.dump(-1, ' ', true);
      return;
    }
    contents_.texts.push_back({std::string(gguf::value_types_key), nlohmann::json(types).dump(-1, ' ', true), -1});
  }

  std::size_t first_tensor_ = 0, first_object_ = 0;  // of those that are added
  std::vector<model_tensor> tensors_;
  std::vector<model_value> values_;
};

}  // namespace

bool is_gguf_convention(std::string_view convention) {
  return convention.starts_with("gguf.");
}

result<std::unique_ptr<checkpoint_reader>> with_model_values(std::unique_ptr<checkpoint_reader> mapped,
                                                             std::string_view convention, const model_sizes& sizes) {
  const places::remembered_answers answers;
  SHARDMESH_TRY(model_values added, read_model_values(mapped->contents(), convention, sizes));
  return std::unique_ptr<checkpoint_reader>(std::make_unique<model_values_reader>(std::move(mapped), std::move(added)));
}

}  // namespace shardmesh::llama_cpp
