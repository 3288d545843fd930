// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>
module shardmesh.collective_checkpoint;

import shardmesh.checkpoint;
import shardmesh.checkpoint_core;
import shardmesh.torch_file;
import :object_json;

namespace shardmesh {

result<std::string> json_of_archive(std::span<const std::byte> archive, const std::string& key) {
  const memory_source source(archive, key);
  read_budget budget;
  SHARDMESH_TRY(const torch_file::item item, torch_file::item::open(source, {.budget = &budget}));
  const object_entry entry{key, {}, {}, 0};
  SHARDMESH_TRY(const std::vector<tensor_entry> inside, torch_file::tensors_inside(item, entry));
  if (!inside.empty())
    return fail(errc::unsupported, "a save of many ranks does not split an object that holds tensors")
        .with_hint("pass skip_objects to leave it out, or save as DCP and convert that");
  SHARDMESH_TRY(const object_value value, torch_file::describe_object(item, item.root(), source, budget));
  return object_document(value);
}

}  // namespace shardmesh
