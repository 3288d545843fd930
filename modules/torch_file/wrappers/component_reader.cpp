// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :known_wrapper;
import :wrapper_description;
import :wrapper_form;

namespace shardmesh::torch_file {
namespace {

class component_reader final : public forwarding_reader {
 public:
  component_reader(checkpoint_reader& inner, to_unwrap which) : forwarding_reader(inner), which_(which) {}

  // False when nothing was split.
  result<bool> unwrap() {
    inner().identify_opaque_tensors();
    const auto& tensors = inner().contents().tensors;
    const auto is_meant = [&](const tensor_entry& tensor) {
      return !tensor.opaque_type.empty() && (which_ == to_unwrap::all || tensor.chunk_count == 0);
    };
    if (std::none_of(tensors.begin(), tensors.end(), is_meant)) return false;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const tensor_entry& tensor = tensors[i];
      auto opened = is_meant(tensor) ? open_opaque(inner(), i) : std::nullopt;
      auto parts = opened ? take_wrapper_apart(*opened->in.item, opened->value) : std::nullopt;
      const auto way_back = parts ? find_way_back(*parts) : result<void>{};
      if (!parts || (which_ == to_unwrap::without_archive && !way_back)) {
        add_whole_tensor(i);
        continue;
      }
      taken_.emplace(i, unwrapped_tensor{contents_.tensors.size(), parts->components.size(), contents_.objects.size(),
                                         tensor_kind(opened->value), way_back ? "" : way_back.error().message});
      SHARDMESH_TRY(add_components(i, *opened, *std::move(parts)));
    }
    if (taken_.empty()) return false;
    if (auto distinct = check_distinct_keys(contents_, "an entry and a component of a tensor have the same name");
        !distinct)
      return std::move(distinct).error().with_file(path_.string());
    return true;
  }

  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override {
    const auto found = components_.find(chunk);
    if (found == components_.end()) return forwarding_reader::open_chunk(tensor, chunk);
    auto opened = open_tensor(*found->second.wrapper, found->second.tensor);
    if (!opened) return located(std::move(opened).error(), tensor.key);
    return std::make_shared<const opened_chunk>(std::move(*opened));
  }

  result<object_value> read_object(std::size_t index) override {
    if (index < first_description()) return forwarding_reader::read_object(index);
    const std::vector<std::byte>& archive = descriptions_[index - first_description()];
    const memory_source source(archive, path_.string());
    read_budget budget;
    SHARDMESH_TRY(const torch_file::item item, torch_file::item::open(source, {.budget = &budget}));
    return describe_object(item, item.root(), source, budget);
  }

  result<std::vector<std::byte>> object_archive(std::size_t index) override {
    if (index < first_description()) return forwarding_reader::object_archive(index);
    return descriptions_[index - first_description()];
  }

  void identify_opaque_tensors() override {}  // done before any tensor was split

  // Checking a component checks the whole wrapper, whose archive has other records as well.
  check_outcome check_whole(std::span<const whole_entry> entries, const check_options& options) override {
    std::vector<whole_entry> stored;
    std::set<std::size_t> wrappers;
    for (const whole_entry& entry : entries) {
      if (const auto wrapper = wrapper_of(entry))
        wrappers.insert(*wrapper);
      else if (const auto there = shown(entry))
        stored.push_back(there->entry);
    }
    for (const std::size_t wrapper : wrappers) stored.push_back({true, wrapper});
    return inner().check_whole(stored, options);
  }

  std::unordered_map<std::size_t, unwrapped_tensor> release_taken() { return std::move(taken_); }

 private:
  // A tensor of a wrapper's archive. It has no origin, because no inner entry has only its elements.
  struct component_tensor {
    std::size_t tensor = 0;
    std::shared_ptr<const opened_object> wrapper;
    std::size_t part_of = 0;  // the inner reader's tensor
  };

  std::size_t first_description() const { return inner().contents().objects.size(); }

  // Returns the inner reader's tensor of which the entry is a component or the description.
  std::optional<std::size_t> wrapper_of(const whole_entry& entry) const {
    if (!entry.is_tensor)
      return entry.index < first_description() ? std::nullopt
                                               : std::optional(described_[entry.index - first_description()]);
    const tensor_entry& tensor = contents_.tensors[entry.index];
    const auto found = tensor.chunk_count > 0 ? components_.find(tensor.first_chunk) : components_.end();
    return found == components_.end() ? std::nullopt : std::optional(found->second.part_of);
  }

  // Returns an error when the wrapper cannot be rebuilt from its description.
  result<void> find_way_back(const wrapper_parts& parts) const {
    const memory_source source(parts.description, path_.string());
    SHARDMESH_TRY(const torch_file::item item, torch_file::item::open(source));
    SHARDMESH_TRY(read_wrapper_form(item.root()));
    return {};
  }

  result<void> add_components(std::size_t index, const opened_value& opened, wrapper_parts parts) {
    const catalog& shown = inner().contents();
    const tensor_entry& whole = shown.tensors[index];
    const stored_range place = whole.chunk_count > 0 ? shown.chunk_places[static_cast<std::size_t>(whole.first_chunk)]
                                                     : stored_range{shown.files.empty() ? -1 : 0, 0, 0, 0};
    const auto wrapper = std::make_shared<const opened_object>(opened.in);
    const auto below = [&](const std::string& name) {
      shardmesh::path where = whole.where;
      where.push_back(name);
      return where;
    };
    for (const wrapper_component& component : parts.components) {
      const torch_file::tensor& tensor = wrapper->item->tensors()[component.tensor];
      if (auto done = spend_repeated(*wrapper, component.tensor); !done)
        return located(std::move(done).error(), whole.key);
      tensor_entry made;
      made.key = whole.key + "." + component.name;
      made.where = below(component.name);
      made.type = tensor.type;
      made.shape = tensor.sizes;
      add_tensor(std::move(made), std::nullopt);
      components_.insert_or_assign(static_cast<std::int32_t>(contents_.chunk_places.size()),
                                   component_tensor{component.tensor, wrapper, index});
      add_chunk(box::whole(tensor.sizes), place, {});
    }
    add_object({whole.key + ".wrapper", below("wrapper"), {}, 0}, std::nullopt);
    descriptions_.push_back(std::move(parts.description));
    described_.push_back(index);
    return {};
  }

  to_unwrap which_;
  std::unordered_map<std::size_t, unwrapped_tensor> taken_;
  std::unordered_map<std::int32_t, component_tensor> components_;  // by chunk
  // Archives of the objects that follow those of the inner reader.
  std::vector<std::vector<std::byte>> descriptions_;
  std::vector<std::size_t> described_;  // the inner reader's tensor, per description
};

}  // namespace

std::optional<opened_value> open_opaque(checkpoint_reader& reader, std::size_t tensor) {
  if (auto* const values = dynamic_cast<opaque_values*>(&reader)) {
    auto opened = values->open_opaque(tensor);
    return opened ? std::optional(*std::move(opened)) : std::nullopt;
  }
  if (const auto there = reader.shown({true, tensor})) return open_opaque(*there->reader, there->entry.index);
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

result<unwrapped_checkpoint> unwrap_tensors(checkpoint_reader& inner, to_unwrap which) {
  auto made = std::make_unique<component_reader>(inner, which);
  SHARDMESH_TRY(const bool is_unwrapped, made->unwrap());
  if (!is_unwrapped) return unwrapped_checkpoint{};
  auto taken = made->release_taken();
  return unwrapped_checkpoint{std::move(made), std::move(taken)};
}

}  // namespace shardmesh::torch_file
