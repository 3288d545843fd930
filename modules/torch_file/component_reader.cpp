// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :known_wrapper;
import :wrapper_form;

namespace shardmesh::torch_file {
namespace {

class component_reader final : public checkpoint_reader {
 public:
  component_reader(checkpoint_reader& inner, to_unwrap which) : inner_(inner), which_(which) { describe_as(inner); }

  // False when nothing was taken apart.
  result<bool> unwrap() {
    inner_.identify_opaque_tensors();
    const auto& tensors = inner_.contents().tensors;
    const auto is_meant = [&](const tensor_entry& tensor) {
      return !tensor.opaque_type.empty() && (which_ == to_unwrap::all || tensor.chunk_count == 0);
    };
    if (std::none_of(tensors.begin(), tensors.end(), is_meant)) return false;
    std::vector<std::string> taken;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const tensor_entry& tensor = tensors[i];
      auto opened = is_meant(tensor) ? open_opaque(inner_, i) : std::nullopt;
      auto parts = opened ? take_wrapper_apart(*opened->in.item, opened->value) : std::nullopt;
      const auto way_back = parts ? find_way_back(*parts) : result<void>{};
      if (!parts || (which_ == to_unwrap::without_archive && !way_back)) {
        add_stored(i);
        continue;
      }
      if (!way_back)
        notes_.push_back(fmt::format("{} cannot be put together again: {}", tensor.key, way_back.error().message));
      taken.push_back(fmt::format("{} ({})", tensor.key, tensor_kind(opened->value)));
      SHARDMESH_CHECK(add_components(i, *opened, *std::move(parts)));
    }
    if (taken.empty()) return false;
    if (which_ == to_unwrap::all) notes_.push_back("written as their components: " + name_list(taken));
    if (auto distinct = check_distinct_keys(contents_, "an entry and a component of a tensor have one name"); !distinct)
      return std::move(distinct).error().with_file(path_.string());
    return true;
  }

  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override {
    const origin& from = origins_[tensor_of_chunk(chunk)];
    if (!from.wrapper) {
      const tensor_entry& stored = inner_.contents().tensors[from.tensor];
      return inner_.open_chunk(stored, stored.first_chunk + chunk - tensor.first_chunk);
    }
    auto opened =
        open_tensor(*from.wrapper->item, from.tensor, from.wrapper->source, *from.wrapper->budget, from.wrapper->place);
    if (!opened) return located(std::move(opened).error(), tensor.key);
    return std::make_shared<const opened_chunk>(std::move(*opened));
  }

  result<object_value> read_object(std::size_t index) override {
    if (index < first_description()) return inner_.read_object(index);
    const std::vector<std::byte>& archive = descriptions_[index - first_description()];
    const memory_source source(archive, path_.string());
    read_budget budget;
    SHARDMESH_TRY(const torch_file::item item, torch_file::item::open(source, {.budget = &budget}));
    return describe_object(item, item.root(), source, budget);
  }

  result<std::vector<std::byte>> object_archive(std::size_t index) override {
    if (index < first_description()) return inner_.object_archive(index);
    return descriptions_[index - first_description()];
  }

  const checkpoint_reader& stored() const override { return inner_.stored(); }
  result<std::shared_ptr<const byte_source>> item_bytes(const stored_range& place) override {
    return inner_.item_bytes(place);
  }

  result<std::vector<std::byte>> chunk_archive(const tensor_entry& tensor, std::int32_t chunk) override {
    const origin& from = origins_[tensor_of_chunk(chunk)];
    if (from.wrapper) return checkpoint_reader::chunk_archive(tensor, chunk);
    const tensor_entry& stored = inner_.contents().tensors[from.tensor];
    return inner_.chunk_archive(stored, stored.first_chunk + chunk - tensor.first_chunk);
  }

  // A description was made of a pickle that was read whole; the components are checked as they are read.
  check_outcome check_whole(std::span<const whole_entry> entries, const check_options& options) override {
    std::vector<whole_entry> stored;
    for (const whole_entry& entry : entries)
      if (const auto there = inner_entry(entry)) stored.push_back(*there);
    return inner_.check_whole(stored, options);
  }

  result<std::optional<digest128>> content_of(const whole_entry& entry) override {
    const auto there = inner_entry(entry);
    return there ? inner_.content_of(*there) : result<std::optional<digest128>>(std::nullopt);
  }

 private:
  // A tensor of the inner reader, or a tensor of a wrapper's archive.
  struct origin {
    std::size_t tensor = 0;
    std::shared_ptr<const opened_object> wrapper;
  };

  std::size_t first_description() const { return inner_.contents().objects.size(); }

  std::optional<whole_entry> inner_entry(const whole_entry& entry) const {
    if (!entry.is_tensor) return entry.index < first_description() ? std::optional(entry) : std::nullopt;
    const origin& from = origins_[entry.index];
    return from.wrapper ? std::nullopt : std::optional(whole_entry{true, from.tensor});
  }

  error located(error e, const std::string& key) const {
    if (e.file.empty()) e.file = path_.string();
    return e.key.empty() ? std::move(e).with_key(key) : e;
  }

  // An error where the description does not say all of the wrapper.
  result<void> find_way_back(const wrapper_parts& parts) const {
    const memory_source source(parts.description, path_.string());
    SHARDMESH_TRY(const torch_file::item item, torch_file::item::open(source));
    SHARDMESH_CHECK(read_wrapper_form(item.root()));
    return {};
  }

  void add_stored(std::size_t index) {
    const catalog& stored = inner_.contents();
    tensor_entry entry = stored.tensors[index];
    const std::int32_t first = entry.first_chunk, count = entry.chunk_count;
    entry.first_chunk = static_cast<std::int32_t>(contents_.chunk_places.size());
    entry.chunk_count = 0;
    contents_.tensors.push_back(std::move(entry));
    origins_.push_back({index, nullptr});
    for (std::int32_t chunk = first; chunk < first + count; ++chunk)
      contents_.add_chunk(stored.chunk_box(stored.tensors[index], chunk),
                          stored.chunk_places[static_cast<std::size_t>(chunk)]);
  }

  result<void> add_components(std::size_t index, const opened_value& opened, wrapper_parts parts) {
    const tensor_entry& whole = inner_.contents().tensors[index];
    const stored_range place = whole.chunk_count > 0
                                   ? inner_.contents().chunk_places[static_cast<std::size_t>(whole.first_chunk)]
                                   : stored_range{inner_.contents().files.empty() ? -1 : 0, 0, 0, 0};
    const auto wrapper = std::make_shared<const opened_object>(opened.in);
    const auto below = [&](const std::string& name) {
      shardmesh::path where = whole.where;
      where.push_back(name);
      return where;
    };
    for (const wrapper_component& component : parts.components) {
      const torch_file::tensor& tensor = wrapper->item->tensors()[component.tensor];
      // A view may repeat what is stored.
      const std::int64_t bytes = size_bytes(tensor.type, checked_volume(tensor.sizes).value_or(0)).value_or(0);
      const std::int64_t held = std::min(bytes, wrapper->item->storages()[tensor.storage].size_bytes);
      if (auto done = wrapper->budget->expand(bytes - held, held); !done)
        return located(std::move(done).error(), whole.key);
      tensor_entry made;
      made.key = whole.key + "." + component.name;
      made.where = below(component.name);
      made.type = tensor.type;
      made.shape = tensor.sizes;
      made.first_chunk = static_cast<std::int32_t>(contents_.chunk_places.size());
      contents_.tensors.push_back(std::move(made));
      origins_.push_back({component.tensor, wrapper});
      contents_.add_chunk(box::whole(tensor.sizes), place);
    }
    contents_.objects.push_back({whole.key + ".wrapper", below("wrapper"), {}, 0});
    descriptions_.push_back(std::move(parts.description));
    return {};
  }

  checkpoint_reader& inner_;
  to_unwrap which_;
  std::vector<origin> origins_;                       // one per tensor
  std::vector<std::vector<std::byte>> descriptions_;  // archives of the objects behind the inner reader's
};

}  // namespace

std::optional<opened_value> open_opaque(checkpoint_reader& reader, std::size_t tensor) {
  if (auto* const values = dynamic_cast<opaque_values*>(&reader)) {
    auto opened = values->open_opaque(tensor);
    return opened ? std::optional(*std::move(opened)) : std::nullopt;
  }
  const tensor_entry& entry = reader.contents().tensors[tensor];
  if (entry.chunk_count != 1) return std::nullopt;
  const stored_range& place = reader.contents().chunk_places[static_cast<std::size_t>(entry.first_chunk)];
  auto source = reader.item_bytes(place);
  if (!source) return std::nullopt;
  auto budget = std::make_shared<read_budget>();
  auto item = torch_file::item::open(**source, {.budget = budget.get()});
  if (!item) return std::nullopt;
  opened_object object{*std::move(source), std::make_shared<const torch_file::item>(*std::move(item)),
                       std::move(budget), fmt::format("{}:{}:{}", place.file, place.offset, place.length)};
  const pickle::value root = object.item->root();
  return opened_value{std::move(object), root};
}

result<std::unique_ptr<checkpoint_reader>> unwrap_tensors(checkpoint_reader& inner, to_unwrap which) {
  auto made = std::make_unique<component_reader>(inner, which);
  SHARDMESH_TRY(const bool is_unwrapped, made->unwrap());
  if (!is_unwrapped) made.reset();
  return std::unique_ptr<checkpoint_reader>(std::move(made));
}

}  // namespace shardmesh::torch_file
