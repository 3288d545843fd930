// SPDX-License-Identifier: Apache-2.0
module;
#include <try.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

namespace shardmesh {
namespace {

const tensor_entry* find_tensor(const catalog& contents, std::string_view key) {
  for (const tensor_entry& tensor : contents.tensors)
    if (tensor.key == key) return &tensor;
  return nullptr;
}

error missing(const checkpoint_reader& reader, std::string_view key) {
  return fail(errc::missing_key, "the checkpoint has no such tensor").with_file(reader.path().string()).with_key(key);
}

}  // namespace

result<void> load(checkpoint_reader& reader, std::span<const load_request> requests, const load_options& options) {
  std::unordered_map<std::string_view, const tensor_entry*> by_key;
  for (const tensor_entry& tensor : reader.contents().tensors) by_key.emplace(tensor.key, &tensor);
  std::unordered_map<const tensor_entry*, std::size_t> index_of;
  std::vector<distribution> held;
  std::vector<std::string> keys;
  std::vector<memory_target> targets;
  for (const load_request& request : requests) {
    const auto found = by_key.find(request.key);
    if (found == by_key.end()) return missing(reader, request.key);
    const tensor_entry& tensor = *found->second;
    if (!tensor.opaque_type.empty())
      return fail(errc::unsupported, "a tensor of an unknown representation cannot be loaded")
          .with_key(tensor.key)
          .with_values("", tensor.opaque_type);
    if (request.where.rank() != tensor.shape.rank() || !is_well_formed(request.where) ||
        !lies_within(request.where, box::whole(tensor.shape)))
      return fail(errc::shape_mismatch, "the wanted box does not fit the stored shape")
          .with_key(tensor.key)
          .with_box(request.where)
          .with_values(to_string(tensor.shape), to_string(request.where));
    const auto [entry, added] = index_of.try_emplace(&tensor, held.size());
    if (added) {
      SHARDMESH_TRY(distribution chunks, reader.contents().distribution_of(tensor));
      held.push_back(std::move(chunks));
      keys.push_back(tensor.key);
    }
    targets.push_back({entry->second, request.where, request.to});
  }
  chunk_source source(reader, options.reading);
  item_run_options run;
  run.threads = options.threads;
  run.cancel = options.cancel;
  return run_to_memory(held, keys, targets, source, run);
}

result<host_tensor> load_tensor(checkpoint_reader& reader, std::string_view key, const box& where,
                                const load_options& options) {
  const tensor_entry* tensor = find_tensor(reader.contents(), key);
  if (!tensor) return missing(reader, key);
  SHARDMESH_TRY(host_tensor made, host_tensor::make(tensor->type, where.sizes));
  const load_request request{std::string(key), where, adapter<host_tensor>::view(made)};
  SHARDMESH_CHECK(load(reader, {&request, 1}, options));
  return made;
}

result<host_tensor> load_tensor(checkpoint_reader& reader, std::string_view key, const load_options& options) {
  const tensor_entry* tensor = find_tensor(reader.contents(), key);
  if (!tensor) return missing(reader, key);
  return load_tensor(reader, key, box::whole(tensor->shape), options);
}

}  // namespace shardmesh
