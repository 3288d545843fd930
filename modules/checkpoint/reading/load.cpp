// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.checkpoint_core;
import :grouped_load;
import :planned_load;

namespace shardmesh {
namespace {

// The tensors that requests want in a larger shape than the stored one.
std::vector<resized_tensor> outgrown(const checkpoint_reader& reader, std::span<const load_request> requests) {
  std::vector<resized_tensor> found;
  std::unordered_map<std::string_view, std::size_t> index_of;
  for (const load_request& request : requests) {
    const tensor_entry* const tensor = reader.contents().find(request.key);
    if (!tensor || tensor->shape.rank() != request.where.rank() || !is_well_formed(request.where) ||
        lies_within(request.where, box::whole(tensor->shape)))
      continue;  // checked later
    const auto [entry, added] = index_of.try_emplace(request.key, found.size());
    if (added) found.push_back({request.key, tensor->shape, tensor->shape});
    extents& wanted = found[entry->second].wanted;
    for (std::size_t d = 0; d < wanted.rank(); ++d)
      wanted[d] = std::max(wanted[d], request.where.offsets[d] + request.where.sizes[d]);
  }
  return found;
}

}  // namespace

result<load_report> load(checkpoint_reader& reader, std::span<const load_request> requests,
                         const load_options& options) {
  const detail::call_scope limits(options.call().named("load"));
  if (options.allow_shape_mismatch)
    if (auto larger = outgrown(reader, requests); !larger.empty()) {
      SHARDMESH_TRY(const auto resized, resize_tensors(reader, larger));
      load_options rest = options;
      rest.allow_shape_mismatch = false;
      SHARDMESH_TRY(load_report report, load(*resized, requests, rest));
      report.resized = std::move(larger);
      return report;
    }
  SHARDMESH_TRY(planned_load planned, plan_load(reader, requests, options));
  auto shared = detail::find_shared_destinations(requests);
  if (!shared) return std::move(shared).error().with_file(reader.path().string());
  std::vector<load_request> apart;  // the requests, each with memory of its own, if some are tied
  if (!shared->tied.empty()) apart.assign(requests.begin(), requests.end());
  SHARDMESH_TRY(auto ties, detail::tied_destinations::make(shared->tied, apart));
  if (!apart.empty()) requests = apart;
  load_report report;
  report.casts = std::move(planned.casts);
  report.loaded.reserve(planned.tensors.size());
  for (const tensor_entry* const tensor : planned.tensors) report.loaded.push_back(tensor->key);
  std::vector<memory_target> targets;
  targets.reserve(requests.size());
  std::vector<bool> is_repeated(requests.size());
  for (const auto& [earlier, later] : shared->repeated)
    is_repeated[later] = !requests[later].copied_to && !requests[earlier].copied_to;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (is_repeated[i]) continue;
    report.bytes_read += size_bytes(requests[i].to.type, requests[i].where.volume()).value_or(0);
    targets.push_back({planned.tensor_of[i], requests[i].where, requests[i].to});
  }
  const auto check_ties = [&](const std::vector<bool>& is_loaded) -> result<void> {
    auto equal = ties.compare(requests, [&](std::size_t request) { return is_loaded[planned.tensor_of[request]]; });
    if (!equal) return std::move(equal).error().with_file(reader.path().string());
    return {};
  };
  chunk_source source(reader, options.reading);
  item_run_options run;
  run.threads = options.threads;
  run.call = options.call();
  run.progress = options.progress;
  const auto read = [&]() -> result<void> {
    if (options.on_arrival || options.check)
      return grouped_load(reader, planned, targets, options, run, check_ties).run(source);
    SHARDMESH_TRY(run_to_memory(planned.held, report.loaded, targets, source, run));
    SHARDMESH_TRY(reader.finish_checks());
    return check_ties(std::vector<bool>(planned.tensors.size(), true));
  };
  if (auto done = read(); !done) {
    error why = std::move(done).error();
    if (detail::is_limit_error(why) && why.file.empty()) return std::move(why).with_file(reader.path().string());
    return why;
  }
  return report;
}

result<load_report> load_into(checkpoint_reader& reader, std::string_view key, const box& where, const tensor_view& to,
                              const load_options& options) {
  const load_request request{std::string(key), where, to};
  return load(reader, {&request, 1}, options);
}

result<load_report> load_into(checkpoint_reader& reader, std::string_view key, const tensor_view& to,
                              const load_options& options) {
  SHARDMESH_TRY(const tensor_entry* const tensor, find_tensor(reader, key));
  const bool is_other = to.sizes != tensor->shape;
  if (is_other && options.allow_shape_mismatch && to.sizes.rank() == tensor->shape.rank()) {
    const extents stored = tensor->shape;
    SHARDMESH_TRY(load_report report, load_into(reader, key, box::whole(to.sizes), to, options));
    report.resized = {{std::string(key), stored, to.sizes}};
    return report;
  }
  if (is_other)
    return fail(errc::shape_mismatch, "the tensor to load into has a different shape than the stored one")
        .with_file(reader.path().string())
        .with_key(key)
        .with_values(to_string(tensor->shape), to_string(to.sizes))
        .with_hint(
            "pass a box to load a part of the stored tensor, or pass allow_shape_mismatch to cut it or fill it with "
            "zeros");
  return load_into(reader, key, box::whole(to.sizes), to, options);
}

result<host_tensor> load_tensor(checkpoint_reader& reader, std::string_view key, const box& where,
                                const load_options& options) {
  SHARDMESH_TRY(const tensor_entry* const tensor, find_tensor(reader, key));
  SHARDMESH_TRY(host_tensor made, host_tensor::make(tensor->type, where.sizes));
  SHARDMESH_TRY(load_into(reader, key, where, adapter<host_tensor>::view(made), options));
  return made;
}

result<host_tensor> load_tensor(checkpoint_reader& reader, std::string_view key, const load_options& options) {
  SHARDMESH_TRY(const tensor_entry* const tensor, find_tensor(reader, key));
  return load_tensor(reader, key, box::whole(tensor->shape), options);
}

}  // namespace shardmesh
