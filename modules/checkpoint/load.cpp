// SPDX-License-Identifier: Apache-2.0
module;
#include <try.hpp>

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.catalog;

namespace shardmesh {
namespace {

error missing(const checkpoint_reader& reader, std::string_view key) {
  return fail(errc::missing_key, "the checkpoint has no such tensor").with_file(reader.path().string()).with_key(key);
}

// Whether the stored elements may go there.
result<void> check_target(const tensor_entry& tensor, const load_request& request, const load_options& options) {
  SHARDMESH_CHECK(check_host_memory(request.to));
  return check_cast(tensor.type, request.to.type, options.allow_narrowing);
}

}  // namespace

result<tensor_load_report> load(checkpoint_reader& reader, std::span<const load_request> requests,
                                const load_options& options) {
  tensor_load_report report;
  std::set<std::pair<const tensor_entry*, dtype>> casts;
  std::unordered_map<const tensor_entry*, std::size_t> index_of;
  std::vector<distribution> held;
  std::vector<std::string> keys;
  std::vector<memory_target> targets;
  for (const load_request& request : requests) {
    const tensor_entry* const found = reader.find_tensor(request.key);
    if (!found) return missing(reader, request.key);
    const tensor_entry& tensor = *found;
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
    if (auto fits = check_target(tensor, request, options); !fits)
      return std::move(fits).error().with_key(tensor.key).with_box(request.where);
    if (tensor.type != request.to.type && casts.emplace(&tensor, request.to.type).second)
      report.casts.push_back({tensor.key, tensor.type, request.to.type});
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
  run.call = options.call;
  SHARDMESH_CHECK(run_to_memory(held, keys, targets, source, run));
  return report;
}

result<tensor_load_report> load_into(checkpoint_reader& reader, std::string_view key, const tensor_view& to,
                                     const load_options& options) {
  const tensor_entry* tensor = reader.find_tensor(key);
  if (!tensor) return missing(reader, key);
  if (to.sizes != tensor->shape)
    return fail(errc::shape_mismatch, "the tensor to load into has another shape than the stored one")
        .with_file(reader.path().string())
        .with_key(key)
        .with_values(to_string(tensor->shape), to_string(to.sizes))
        .with_hint("a part of a tensor is a load_request with its box");
  const load_request request{std::string(key), box::whole(to.sizes), to};
  return load(reader, {&request, 1}, options);
}

result<host_tensor> load_tensor(checkpoint_reader& reader, std::string_view key, const box& where,
                                const load_options& options) {
  const tensor_entry* tensor = reader.find_tensor(key);
  if (!tensor) return missing(reader, key);
  SHARDMESH_TRY(host_tensor made, host_tensor::make(tensor->type, where.sizes));
  const load_request request{std::string(key), where, adapter<host_tensor>::view(made)};
  SHARDMESH_CHECK(load(reader, {&request, 1}, options));
  return made;
}

result<host_tensor> load_tensor(checkpoint_reader& reader, std::string_view key, const load_options& options) {
  const tensor_entry* tensor = reader.find_tensor(key);
  if (!tensor) return missing(reader, key);
  return load_tensor(reader, key, box::whole(tensor->shape), options);
}

}  // namespace shardmesh
