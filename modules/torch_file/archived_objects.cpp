// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
module shardmesh.torch_file;

namespace shardmesh::torch_file {

result<opened_object> open_object(checkpoint_reader& reader, std::size_t index) {
  if (auto* const archived = dynamic_cast<archived_objects*>(&reader)) return archived->open_object(index);
  return fail(errc::unsupported, "the format's objects have no archives")
      .with_key(reader.contents().objects[index].key);
}

}  // namespace shardmesh::torch_file
