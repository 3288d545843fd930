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
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>
module shardmesh.torch_file;

import :item_records;
import :object_parts;
import :split_reader;

namespace shardmesh::torch_file {
namespace {

flat_entry entry_of(const object_entry& object, const pickle::value& value) {
  return {object.where, object.key, value, {}, 0};
}

// A part of an object has the object as its origin, so checking the part checks the whole object.
class split_reader final : public forwarding_reader, public opaque_values {
 public:
  split_reader(checkpoint_reader& inner, to_split which) : forwarding_reader(inner), which_(which) { clear_objects(); }
  split_reader(checkpoint_reader& inner, std::span<const std::size_t> objects)
      : forwarding_reader(inner), flattened_(objects.begin(), objects.end()) {
    clear_objects();
  }

  // False when no object holds a tensor or can be flattened.
  result<bool> split() {
    bool is_split = false;
    const auto& objects = inner().contents().objects;
    for (std::size_t i = 0; i < objects.size(); ++i) {
      const bool flattens = flattened_.contains(i);
      auto opened = !flattened_.empty() && !flattens ? result<opened_object>(fail(errc::unsupported, "it stays whole"))
                    : flattens                       ? open_whole(i)
                                                     : open_object(inner(), i);
      if (opened && (flattens ? has_parts(*opened->item) : is_meant(*opened->item))) {
        if (!std::exchange(is_split, true)) add_whole_tensors();
        SHARDMESH_TRY(add_parts(i, std::move(*opened)));
      } else {
        add_object(objects[i], i);
        objects_.push_back({});
      }
    }
    if (!is_split) return false;
    if (auto distinct = check_distinct_keys(contents_, "an entry and a part of an object have the same name");
        !distinct)
      return std::move(distinct).error().with_file(path_.string());
    return true;
  }

  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override {
    if (static_cast<std::size_t>(chunk) < first_own_chunk_) return forwarding_reader::open_chunk(tensor, chunk);
    const tensor_part& from = tensors_[static_cast<std::size_t>(chunk) - first_own_chunk_];
    auto opened = open_tensor(*from.object, from.tensor);
    if (!opened) return located(std::move(opened).error(), tensor.key);
    return std::make_shared<const opened_chunk>(std::move(*opened));
  }

  result<object_value> read_object(std::size_t index) override {
    const part& from = objects_[index];
    if (!from.object) return forwarding_reader::read_object(index);
    auto value = describe_object(*from.object->item, from.value, *from.object->source, *from.object->budget);
    if (!value) return located(std::move(value).error(), contents_.objects[index].key);
    return value;
  }

  result<std::vector<std::byte>> object_archive(std::size_t index) override {
    const part& from = objects_[index];
    if (!from.object) return forwarding_reader::object_archive(index);
    pickle::writer out(2);
    if (auto done = out.value(from.value); !done) return located(std::move(done).error(), contents_.objects[index].key);
    return torch_file::object_archive(std::move(out).finish());
  }

  result<opened_value> open_opaque(std::size_t tensor) override {
    if (const auto found = opaque_.find(tensor); found != opaque_.end()) return found->second;
    const auto there = shown({true, tensor});
    auto opened = there ? torch_file::open_opaque(*there->reader, there->entry.index) : std::nullopt;
    if (opened) return *std::move(opened);
    return fail(errc::unsupported, "its value cannot be opened").with_key(contents_.tensors[tensor].key);
  }

  // Also checks objects whose parts are all tensors.
  check_outcome check_whole(std::span<const whole_entry> entries, const check_options& options) override {
    std::vector<whole_entry> stored;
    std::set<std::size_t> objects;
    for (const whole_entry& entry : entries) {
      if (const auto object = object_of(entry))
        objects.insert(*object);
      else if (const auto there = shown(entry))
        stored.push_back(there->entry);
    }
    for (const std::size_t object : objects) stored.push_back({false, object});
    return inner().check_whole(stored, options);
  }

  result<std::optional<digest128>> content_of(const whole_entry& entry) override {
    if (entry.is_tensor || !objects_[entry.index].object) return forwarding_reader::content_of(entry);
    const part& from = objects_[entry.index];
    SHARDMESH_TRY(item_storages storages, item_storages::open(*from.object->source, *from.object->item,
                                                              from.object->budget.get(), from.object->place));
    SHARDMESH_TRY(const digest128 digest, storages.content_of(from.value));
    return std::optional(digest);
  }

 private:
  // A value in the archive of one of the inner reader's objects. Without `object`, the entry is a whole inner object.
  struct part {
    std::shared_ptr<const opened_object> object;
    pickle::value value;
  };
  struct tensor_part {
    std::shared_ptr<const opened_object> object;
    std::size_t tensor = 0;
  };

  // Returns the inner reader's object that the entry is, or is a part of.
  std::optional<std::size_t> object_of(const whole_entry& entry) const {
    if (!entry.is_tensor) return origin_of_object(entry.index);
    const auto found = part_of_.find(entry.index);
    return found == part_of_.end() ? std::nullopt : std::optional(found->second);
  }

  bool is_meant(const torch_file::item& item) const {
    return which_ == to_split::all ? holds_tensors(item, item.root()) : item.is_opaque_tensor(item.root());
  }

  static bool is_container(const pickle::value& root) { return is_mapping(root) || root.kind() == pickle::kind::list; }

  static bool has_parts(const torch_file::item& item) {
    return is_container(item.root()) || holds_tensors(item, item.root());
  }

  // Opens an object of any format. If the format has no archive of it, the reader makes one in memory.
  result<opened_object> open_whole(std::size_t index) {
    if (auto opened = open_object(inner(), index)) return opened;
    SHARDMESH_TRY(std::vector<std::byte> archive, inner().object_archive(index));
    opened_object made;
    made.source = std::make_shared<owned_source>(std::move(archive), path_.string());
    made.budget = std::make_shared<read_budget>();
    SHARDMESH_TRY(torch_file::item item, item::open(*made.source));
    made.item = std::make_shared<const torch_file::item>(std::move(item));
    return made;
  }

  // Returns the entries that the .pt reader would make of this object as a state dict, below the object's key.
  static result<std::vector<flat_entry>> flattened(const torch_file::item& item, const object_entry& whole) {
    if (!is_container(item.root())) return std::vector<flat_entry>{entry_of(whole, item.root())};
    SHARDMESH_TRY(
        std::vector<flat_entry> entries,
        flatten_state_dict(item, item.root(),
                           {.keep_empty = true, .may_be_list = true, .max_entries = 250'000, .max_depth = 64}));
    // Flattening keeps this list as a leaf, but the other checkpoint may have its elements as entries: PyTorch enters a
    // list with empty dicts, and then drops the dicts.
    const bool is_whole = entries.size() == 1 && entries.front().where.empty();
    if (is_whole && item.root().kind() == pickle::kind::list && !item.root().items().empty()) entries = elements(item);
    for (flat_entry& entry : entries) {
      shardmesh::path below = whole.where;
      below.append(entry.where);
      entry.fqn = entry.where.empty() ? whole.key : whole.key + "." + entry.fqn;  // a key may be empty
      entry.where = std::move(below);
    }
    if (entries.empty()) entries.push_back(entry_of(whole, item.root()));
    return entries;
  }

  static std::vector<flat_entry> elements(const torch_file::item& item) {
    std::vector<flat_entry> entries;
    const pickle::items items = item.root().items();
    for (std::size_t i = 0; i < items.size(); ++i)
      entries.push_back({shardmesh::path{static_cast<std::int64_t>(i)}, std::to_string(i), items[i], {}, 0});
    return entries;
  }

  void add_whole_tensors() {
    for (std::size_t i = 0; i < inner().contents().tensors.size(); ++i) add_whole_tensor(i);
    first_own_chunk_ = contents_.chunk_places.size();
  }

  result<void> add_parts(std::size_t index, opened_object opened) {
    const object_entry& whole = inner().contents().objects[index];
    const auto object = std::make_shared<const opened_object>(std::move(opened));
    std::vector<flat_entry> found{entry_of(whole, object->item->root())};
    if (flattened_.contains(index)) {
      auto entries = flattened(*object->item, whole);
      if (!entries) return located(std::move(entries).error(), whole.key);
      found = *std::move(entries);
    }
    auto parts = take_apart(*object->item, std::move(found));
    if (!parts) return located(std::move(parts).error(), whole.key);
    for (std::string& note : parts->notes) notes_.push_back(std::move(note));
    for (const flat_entry& entry : parts->entries) {
      if (!entry.tensor && !object->item->is_opaque_tensor(entry.value)) {
        add_object({entry.fqn, entry.where, whole.place, entry.hidden_tensors}, index);
        objects_.push_back({object, entry.value});
        continue;
      }
      part_of_.emplace(contents_.tensors.size(), index);
      add_tensor(tensor_of_entry(*object->item, entry), std::nullopt);
      if (!entry.tensor) {
        opaque_.emplace(contents_.tensors.size() - 1, opened_value{*object, entry.value});
        continue;
      }
      if (auto done = spend_repeated(*object, *entry.tensor); !done) return located(std::move(done).error(), entry.fqn);
      add_chunk(box::whole(contents_.tensors.back().shape), whole.place, {});
      tensors_.push_back({object, *entry.tensor});
    }
    return {};
  }

  to_split which_ = to_split::all;
  std::unordered_set<std::size_t> flattened_;  // the inner reader's objects to flatten; if empty, `which_` selects
  std::size_t first_own_chunk_ = 0;
  std::unordered_map<std::size_t, opened_value> opaque_;  // by index into the catalog's tensors
  std::unordered_map<std::size_t, std::size_t> part_of_;  // the inner reader's object of a tensor that is a part of it
  std::vector<part> objects_;                             // one per object of the catalog
  std::vector<tensor_part> tensors_;                      // one per chunk after those of the inner reader
};

}  // namespace

result<std::unique_ptr<checkpoint_reader>> split_objects(checkpoint_reader& inner, to_split which) {
  const checkpoint_format format = inner.contents().format;
  if (format != checkpoint_format::dcp && format != checkpoint_format::torchsnapshot &&
      format != checkpoint_format::parts && format != checkpoint_format::delta)
    return std::unique_ptr<checkpoint_reader>();
  auto made = std::make_unique<split_reader>(inner, which);
  SHARDMESH_TRY(const bool is_split, made->split());
  if (!is_split) made.reset();
  return std::unique_ptr<checkpoint_reader>(std::move(made));
}

result<std::unique_ptr<checkpoint_reader>> flatten_objects(checkpoint_reader& inner,
                                                           std::span<const std::size_t> objects) {
  if (objects.empty()) return std::unique_ptr<checkpoint_reader>();
  auto made = std::make_unique<split_reader>(inner, objects);
  SHARDMESH_TRY(const bool is_split, made->split());
  if (!is_split) made.reset();
  return std::unique_ptr<checkpoint_reader>(std::move(made));
}

result<std::vector<tensor_entry>> tensors_inside(const torch_file::item& item, const object_entry& object) {
  std::vector<tensor_entry> found;
  if (!holds_tensors(item, item.root())) return found;
  SHARDMESH_TRY(const taken_apart parts, take_apart(item, {entry_of(object, item.root())}));
  for (const flat_entry& entry : parts.entries)
    if (entry.tensor || item.is_opaque_tensor(entry.value)) found.push_back(tensor_of_entry(item, entry));
  return found;
}

tensor_entry tensor_of_entry(const torch_file::item& item, const flat_entry& entry) {
  tensor_entry made;
  made.key = entry.fqn;
  made.where = entry.where;
  if (!entry.tensor) {
    made.opaque_type = classify(item, entry.value).type;
    made.opaque_kind = tensor_kind(entry.value);
    return made;
  }
  const torch_file::tensor& tensor = item.tensors()[*entry.tensor];
  made.type = tensor.type;
  made.shape = tensor.sizes;
  made.properties.requires_grad = tensor.requires_grad;
  return made;
}

}  // namespace shardmesh::torch_file
