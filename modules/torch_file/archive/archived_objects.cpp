// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
module shardmesh.torch_file;

namespace shardmesh::torch_file {

result<opened_object> open_object(checkpoint_reader& reader, std::size_t index) {
  if (auto* const archived = dynamic_cast<archived_objects*>(&reader)) return archived->open_object(index);
  if (dynamic_cast<composed_reader*>(&reader) != nullptr)  // it shows objects unchanged
    if (const auto there = reader.shown({false, index})) return open_object(*there->reader, there->entry.index);
  return fail(errc::unsupported, "the format's objects have no archives")
      .with_key(reader.contents().objects[index].key);
}

result<opened_object> archive_forwarding_reader::open_object(std::size_t index) {
  return torch_file::open_object(inner(), origin_of_object(index).value());
}

result<opened_chunk> open_tensor(const opened_object& object, std::size_t tensor) {
  return open_tensor(*object.item, tensor, object.source, *object.budget, object.place);
}

result<void> spend_repeated(const opened_object& object, std::size_t tensor) {
  const torch_file::tensor& view = object.item->tensors()[tensor];
  const std::int64_t bytes = size_bytes(view.type, checked_volume(view.sizes).value_or(0)).value_or(0);
  const std::int64_t stored = std::min(bytes, object.item->storages()[view.storage].size_bytes);
  return object.budget->expand(bytes - stored, stored);
}

}  // namespace shardmesh::torch_file
