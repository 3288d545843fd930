// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.torch_file;

namespace shardmesh {
namespace {

class selected_entries final : public torch_file::archive_forwarding_reader {
 public:
  selected_entries(std::shared_ptr<checkpoint_reader> inner, const selection_result& chosen)
      : archive_forwarding_reader(*inner), inner_owner_(std::move(inner)) {
    const catalog& stored = inner_owner_->contents();
    clear_objects();
    for (const selected& one : chosen.kept) {
      if (one.index < stored.tensors.size())
        show_tensor(one.index, one.key);
      else
        show_object(one.index - stored.tensors.size(), one.key);
    }
    notes_.insert(notes_.end(), chosen.notes.begin(), chosen.notes.end());
  }

 private:
  template <class Entry>
  static Entry renamed(const Entry& stored, const std::string& key) {
    Entry made = stored;
    if (key != stored.key) made.where = shardmesh::path{key};
    made.key = key;
    return made;
  }

  void show_tensor(std::size_t index, const std::string& key) {
    const catalog& stored = inner_owner_->contents();
    const tensor_entry& entry = stored.tensors[index];
    add_tensor(renamed(entry, key), index);
    for (std::int32_t chunk = entry.first_chunk; chunk < entry.first_chunk + entry.chunk_count; ++chunk)
      add_chunk(stored.chunk_box(entry, chunk), {static_cast<std::int32_t>(index), chunk});
  }

  void show_object(std::size_t index, const std::string& key) {
    add_object(renamed(inner_owner_->contents().objects[index], key), index);
  }

  std::shared_ptr<checkpoint_reader> inner_owner_;
};

// A view shows stored values: a selection that changes some of them is refused.
result<void> check_values_stay(const checkpoint_reader& reader, const selection_result& chosen) {
  const catalog& stored = reader.contents();
  for (const selected& one : chosen.kept) {
    const bool is_tensor = one.index < stored.tensors.size();
    if (is_tensor && one.type != stored.tensors[one.index].type)
      return fail(errc::unsupported, "a view of a checkpoint shows tensors in their stored dtype")
          .with_key(stored.tensors[one.index].key)
          .with_file(reader.path().string())
          .with_values(to_string(stored.tensors[one.index].type), to_string(one.type))
          .with_hint("cast where the tensor is read: with state_dict, load_into, or convert");
    if (!is_tensor && chosen.lists.concerns(one.index))
      return fail(errc::unsupported, "a view of a checkpoint cannot change the names in a list of parameters")
          .with_key(stored.objects[one.index - stored.tensors.size()].key)
          .with_file(reader.path().string())
          .with_hint("pass the selection to state_dict or convert, which change such lists");
  }
  return {};
}

}  // namespace

result<std::unique_ptr<checkpoint_reader>> select_entries(std::shared_ptr<checkpoint_reader> inner,
                                                          const selection_options& selection) {
  const catalog& stored = inner->contents();
  std::vector<selectable> keys;
  keys.reserve(stored.tensors.size() + stored.objects.size());
  for (const tensor_entry& tensor : stored.tensors) keys.push_back({tensor.key, tensor.type, true});
  for (const object_entry& object : stored.objects) keys.push_back({object.key, dtype::undefined, false});
  selection_result chosen = select_keys(keys, selection);
  if (!chosen.errors.empty()) return std::move(chosen.errors.front()).with_file(inner->path().string());
  SHARDMESH_TRY(check_values_stay(*inner, chosen));
  return std::unique_ptr<checkpoint_reader>(std::make_unique<selected_entries>(std::move(inner), chosen));
}

}  // namespace shardmesh
