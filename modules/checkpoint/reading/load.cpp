// SPDX-License-Identifier: Apache-2.0
module;
#include <position_table.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.checkpoint_core;

namespace shardmesh {
namespace {

result<const tensor_entry*> find(const checkpoint_reader& reader, std::string_view key) {
  const tensor_entry* const found = reader.contents().find(key);
  if (!found) return no_such_entry(reader, key, entry_kind::tensor);
  return found;
}

// Finds tensors by key, for many requests. Keys in the catalog's order, the usual case, need no search.
class tensor_finder {
 public:
  explicit tensor_finder(const checkpoint_reader& reader) : reader_(reader) {}

  result<const tensor_entry*> operator()(std::string_view key) {
    const std::vector<tensor_entry>& all = reader_.contents().tensors;
    if (next_ < all.size() && all[next_].key == key) return &all[next_++];
    SHARDMESH_TRY(const tensor_entry* const found, find(reader_, key));
    next_ = static_cast<std::size_t>(found - all.data()) + 1;
    return found;
  }

 private:
  const checkpoint_reader& reader_;
  std::size_t next_ = 0;
};

// Checks that the stored elements can be loaded into the request's memory.
result<void> check_request(const tensor_entry& tensor, const load_request& request, const load_options& options) {
  if (!tensor.opaque_type.empty())
    return fail(errc::unsupported, "a tensor of an unknown representation cannot be loaded")
        .with_values("", tensor.opaque_type);
  if (request.where.rank() != tensor.shape.rank() || !is_well_formed(request.where) ||
      !lies_within(request.where, box::whole(tensor.shape)))
    return fail(errc::shape_mismatch, "the requested box does not fit the stored shape")
        .with_box(request.where)
        .with_values(to_string(tensor.shape), to_string(request.where));
  if (request.to.sizes != request.where.sizes)
    return fail(errc::shape_mismatch, "the tensor to load into does not have the sizes of the requested box")
        .with_box(request.where)
        .with_values(to_string(request.where.sizes), to_string(request.to.sizes));
  auto fits = check_reachable(request.to);
  if (fits) fits = check_fillable(request.to);
  if (fits) fits = check_cast(tensor.type, request.to.type, options.allow_narrowing);
  if (!fits) return std::move(fits).error().with_box(request.where);
  return {};
}

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

// The bytes loaded together when the caller waits for single tensors. Smaller groups would read small neighbours one by
// one.
constexpr std::int64_t group_bytes = std::int64_t{64} << 20;

// A check to run after each group; `is_loaded` is per tensor.
using request_check = function_ref<result<void>(const std::vector<bool>& is_loaded)>;

// Loads tensors group by group, in the order in which they are stored.
class grouped_load {
 public:
  grouped_load(checkpoint_reader& reader, std::span<const tensor_entry* const> tensors,
               std::span<const distribution> held, std::span<const memory_target> targets, const load_options& options,
               const item_run_options& run, request_check check)
      : reader_(reader),
        tensors_(tensors),
        held_(held),
        options_(options),
        run_(run),
        check_(check),
        is_loaded_(tensors.size()),
        sums_(reader.contents()) {
    targets_.resize(tensors.size());
    for (const memory_target& target : targets) targets_[target.transfer].push_back(target);
  }

  result<void> run(chunk_source& source) {
    std::vector<std::size_t> group;
    std::int64_t bytes = 0;
    for (const std::size_t tensor : in_stored_order()) {
      group.push_back(tensor);
      for (const memory_target& target : targets_[tensor])
        bytes += size_bytes(target.to.type, target.where.volume()).value_or(0);
      if (bytes < group_bytes) continue;
      SHARDMESH_TRY(load(group, source));
      group.clear();
      bytes = 0;
    }
    return load(group, source);
  }

 private:
  std::vector<std::size_t> in_stored_order() const {
    const auto place_of = [&](std::size_t tensor) {
      const tensor_entry& entry = *tensors_[tensor];
      const std::ptrdiff_t number = &entry - reader_.contents().tensors.data();
      if (entry.chunk_count == 0) return std::tuple(std::int32_t{-1}, std::int64_t{0}, number);
      const stored_range& at = reader_.contents().chunk_places[static_cast<std::size_t>(entry.first_chunk)];
      return std::tuple(at.file, at.offset, number);
    };
    std::vector<std::size_t> order(tensors_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return place_of(a) < place_of(b); });
    return order;
  }

  result<void> load(std::span<const std::size_t> group, chunk_source& source) {
    std::vector<distribution> held;
    std::vector<std::string> keys;
    std::vector<memory_target> targets;
    for (const std::size_t tensor : group) {
      for (memory_target target : targets_[tensor]) {
        target.transfer = held.size();
        targets.push_back(target);
      }
      held.push_back(held_[tensor]);
      keys.push_back(tensors_[tensor]->key);
    }
    if (options_.check) SHARDMESH_TRY(compare(group));
    SHARDMESH_TRY(run_to_memory(held, keys, targets, source, run_));
    SHARDMESH_TRY(reader_.finish_checks());
    for (const std::size_t tensor : group) is_loaded_[tensor] = true;
    SHARDMESH_TRY(check_(is_loaded_));
    for (const std::string& key : keys) {
      const errc ended = detail::limit_reached(options_.cancel, options_.within);
      if (ended == errc::cancelled) return detail::limit_error(ended, "load");
      if (ended != errc::ok) return detail::limit_error(ended, "load").with_key(key);
      if (options_.on_arrival) options_.on_arrival(key);
    }
    return {};
  }

  // Compares every chunk of the group that a request needs with its checksum.
  result<void> compare(std::span<const std::size_t> group) {
    std::vector<std::pair<const tensor_entry*, std::int32_t>> chunks;
    for (const std::size_t tensor : group) {
      const tensor_entry& entry = *tensors_[tensor];
      for (std::int32_t chunk = entry.first_chunk; chunk < entry.first_chunk + entry.chunk_count; ++chunk) {
        const box where = reader_.contents().chunk_box(entry, chunk);
        if (std::any_of(targets_[tensor].begin(), targets_[tensor].end(),
                        [&](const memory_target& target) { return intersect(target.where, where).has_value(); }))
          chunks.emplace_back(&entry, chunk);
      }
    }
    return parallel_for(
        thread_count(run_.threads), static_cast<std::int64_t>(chunks.size()), [&](std::int64_t i) -> result<void> {
          if (options_.cancel.stop_requested()) return detail::limit_error(errc::cancelled, "load");
          const auto& [entry, chunk] = chunks[static_cast<std::size_t>(i)];
          SHARDMESH_TRY(const auto opened, reader_.open_chunk(*entry, chunk));
          auto checked = sums_.check(*opened, reader_.contents().chunk_places[static_cast<std::size_t>(chunk)]);
          if (checked) return {};
          return std::move(checked).error().with_key(entry->key).with_box(reader_.contents().chunk_box(*entry, chunk));
        });
  }

  checkpoint_reader& reader_;
  std::span<const tensor_entry* const> tensors_;
  std::span<const distribution> held_;
  std::vector<std::vector<memory_target>> targets_;  // per tensor
  const load_options& options_;
  const item_run_options& run_;
  request_check check_;
  std::vector<bool> is_loaded_;  // per tensor
  storage_sums sums_;
};

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
  load_report report;
  std::set<std::pair<const tensor_entry*, dtype>> casts;
  std::vector<distribution> held;
  std::vector<memory_target> targets;
  std::vector<const tensor_entry*> tensors;  // parallel to `held`
  targets.reserve(requests.size());
  held.reserve(requests.size());
  tensors.reserve(requests.size());
  report.loaded.reserve(requests.size());
  tensor_finder find_next(reader);
  detail::position_table index_of(requests.size());
  std::vector<std::size_t> entry_of;  // per request
  entry_of.reserve(requests.size());
  const auto hash_of = [](const tensor_entry* tensor) {
    return std::hash<const tensor_entry*>()(tensor) * 0x9E37'79B9'7F4A'7C15 >> 16;
  };
  for (const load_request& request : requests) {
    SHARDMESH_TRY(const tensor_entry* const tensor, find_next(request.key));
    if (auto valid = check_request(*tensor, request, options); !valid)
      return std::move(valid).error().with_file(reader.path().string()).with_key(request.key);
    if (tensor->type != request.to.type && casts.emplace(tensor, request.to.type).second)
      report.casts.push_back({tensor->key, tensor->type, request.to.type});
    std::size_t entry = index_of.find(hash_of(tensor), [&](std::size_t i) { return tensors[i] == tensor; });
    if (entry == index_of.none) {
      entry = held.size();
      index_of.insert(hash_of(tensor), entry, [&](std::size_t i) { return hash_of(tensors[i]); });
      SHARDMESH_TRY(distribution chunks, reader.contents().distribution_of(*tensor));
      held.push_back(std::move(chunks));
      tensors.push_back(tensor);
      report.loaded.push_back(tensor->key);
    }
    entry_of.push_back(entry);
  }
  auto shared = detail::find_shared_destinations(requests);
  if (!shared) return std::move(shared).error().with_file(reader.path().string());
  std::vector<load_request> apart;  // the requests, each with memory of its own, if some are tied
  if (!shared->tied.empty()) apart.assign(requests.begin(), requests.end());
  SHARDMESH_TRY(auto ties, detail::tied_destinations::make(shared->tied, apart));
  if (!apart.empty()) requests = apart;
  std::vector<bool> is_repeated(requests.size());
  for (const auto& [earlier, later] : shared->repeated)
    is_repeated[later] = !requests[later].copied_to && !requests[earlier].copied_to;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (is_repeated[i]) continue;
    report.bytes_read += size_bytes(requests[i].to.type, requests[i].where.volume()).value_or(0);
    targets.push_back({entry_of[i], requests[i].where, requests[i].to});
  }
  const auto check_ties = [&](const std::vector<bool>& is_loaded) -> result<void> {
    auto equal = ties.compare(requests, [&](std::size_t request) { return is_loaded[entry_of[request]]; });
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
      return grouped_load(reader, tensors, held, targets, options, run, check_ties).run(source);
    SHARDMESH_TRY(run_to_memory(held, report.loaded, targets, source, run));
    SHARDMESH_TRY(reader.finish_checks());
    return check_ties(std::vector<bool>(tensors.size(), true));
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
  SHARDMESH_TRY(const tensor_entry* const tensor, find(reader, key));
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
  SHARDMESH_TRY(const tensor_entry* const tensor, find(reader, key));
  SHARDMESH_TRY(host_tensor made, host_tensor::make(tensor->type, where.sizes));
  SHARDMESH_TRY(load_into(reader, key, where, adapter<host_tensor>::view(made), options));
  return made;
}

result<host_tensor> load_tensor(checkpoint_reader& reader, std::string_view key, const load_options& options) {
  SHARDMESH_TRY(const tensor_entry* const tensor, find(reader, key));
  return load_tensor(reader, key, box::whole(tensor->shape), options);
}

}  // namespace shardmesh
