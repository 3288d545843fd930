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

result<const tensor_entry*> find(const checkpoint_reader& reader, std::string_view key) {
  const tensor_entry* const found = reader.contents().find(key);
  if (!found) return no_such_entry(reader, key, entry_kind::tensor);
  return found;
}

// Whether the stored elements may go there.
result<void> check_request(const tensor_entry& tensor, const load_request& request, const load_options& options) {
  if (!tensor.opaque_type.empty())
    return fail(errc::unsupported, "a tensor of an unknown representation cannot be loaded")
        .with_values("", tensor.opaque_type);
  if (request.where.rank() != tensor.shape.rank() || !is_well_formed(request.where) ||
      !lies_within(request.where, box::whole(tensor.shape)))
    return fail(errc::shape_mismatch, "the wanted box does not fit the stored shape")
        .with_box(request.where)
        .with_values(to_string(tensor.shape), to_string(request.where));
  if (request.to.sizes != request.where.sizes)
    return fail(errc::shape_mismatch, "the tensor to load into does not have the sizes of the wanted box")
        .with_box(request.where)
        .with_values(to_string(request.where.sizes), to_string(request.to.sizes));
  auto fits = check_reachable(request.to);
  if (fits) fits = check_cast(tensor.type, request.to.type, options.allow_narrowing);
  if (!fits) return std::move(fits).error().with_box(request.where);
  return {};
}

}  // namespace

result<load_report> load(checkpoint_reader& reader, std::span<const load_request> requests,
                         const load_options& options) {
  load_report report;
  std::set<std::pair<const tensor_entry*, dtype>> casts;
  std::unordered_map<const tensor_entry*, std::size_t> index_of;
  std::vector<distribution> held;
  std::vector<memory_target> targets;
  for (const load_request& request : requests) {
    SHARDMESH_TRY(const tensor_entry* const tensor, find(reader, request.key));
    if (auto valid = check_request(*tensor, request, options); !valid)
      return std::move(valid).error().with_file(reader.path().string()).with_key(request.key);
    if (tensor->type != request.to.type && casts.emplace(tensor, request.to.type).second)
      report.casts.push_back({tensor->key, tensor->type, request.to.type});
    const auto [entry, added] = index_of.try_emplace(tensor, held.size());
    if (added) {
      SHARDMESH_TRY(distribution chunks, reader.contents().distribution_of(*tensor));
      held.push_back(std::move(chunks));
      report.loaded.push_back(tensor->key);
    }
    report.bytes_read += size_bytes(request.to.type, request.where.volume()).value_or(0);
    targets.push_back({entry->second, request.where, request.to});
  }
  chunk_source source(reader, options.reading);
  item_run_options run;
  run.threads = options.threads;
  run.call = options.call;
  SHARDMESH_CHECK(run_to_memory(held, report.loaded, targets, source, run));
  return report;
}

result<load_report> load_into(checkpoint_reader& reader, std::string_view key, const box& where, const tensor_view& to,
                              const load_options& options) {
  const load_request request{std::string(key), where, to};
  return load(reader, {&request, 1}, options);
}

result<load_report> load_into(checkpoint_reader& reader, std::string_view key, const tensor_view& to,
                              const load_options& options) {
  SHARDMESH_TRY(const tensor_entry* const tensor, find(reader, key));
  if (to.sizes != tensor->shape)
    return fail(errc::shape_mismatch, "the tensor to load into has another shape than the stored one")
        .with_file(reader.path().string())
        .with_key(key)
        .with_values(to_string(tensor->shape), to_string(to.sizes))
        .with_hint("a part of the stored tensor is loaded by giving its box, too");
  return load_into(reader, key, box::whole(to.sizes), to, options);
}

result<host_tensor> load_tensor(checkpoint_reader& reader, std::string_view key, const box& where,
                                const load_options& options) {
  SHARDMESH_TRY(const tensor_entry* const tensor, find(reader, key));
  SHARDMESH_TRY(host_tensor made, host_tensor::make(tensor->type, where.sizes));
  SHARDMESH_CHECK(load_into(reader, key, where, adapter<host_tensor>::view(made), options));
  return made;
}

result<host_tensor> load_tensor(checkpoint_reader& reader, std::string_view key, const load_options& options) {
  SHARDMESH_TRY(const tensor_entry* const tensor, find(reader, key));
  return load_tensor(reader, key, box::whole(tensor->shape), options);
}

}  // namespace shardmesh
