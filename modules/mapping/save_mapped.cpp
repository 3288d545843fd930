// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>
#include <vector>
module shardmesh.mapping;

import shardmesh.torch_file;
import :memory_reader;

namespace shardmesh {

result<save_report> save_mapped(const std::filesystem::path& destination, const const_local_state& held,
                                std::span<const mapping_rules> mappings, const model_sizes& sizes,
                                const convert_options& options) {
  std::vector<save_tensor> tensors;
  for (const const_local_state_tensor& tensor : held.tensors) {
    save_tensor made{dotted(tensor.where), tensor.where, tensor.shape, {}};
    for (const const_local_part& part : tensor.parts) made.parts.push_back({part.where, part.memory, 0});
    tensors.push_back(std::move(made));
  }
  std::vector<output_object> objects;
  for (const local_state_object& object : held.objects) {
    output_object made;
    made.key = dotted(object.where);
    made.where = object.where;
    made.archive = [&object] { return torch_file::archive_of_object(object); };
    objects.push_back(std::move(made));
  }
  return save_mapped(destination, tensors, objects, mappings, sizes, options);
}

result<save_report> save_mapped(const std::filesystem::path& destination, std::span<const save_tensor> tensors,
                                std::span<const output_object> objects, std::span<const mapping_rules> mappings,
                                const model_sizes& sizes, const convert_options& options) {
  SHARDMESH_TRY(auto reader, make_memory_reader(tensors, objects));
  // Tied tensors are compared, because one of each pair is not written.
  SHARDMESH_TRY(reader, map_checkpoint(std::move(reader), mappings, sizes, {.check_sums = true}));
  return convert(*reader, destination, options);
}

}  // namespace shardmesh
