// SPDX-License-Identifier: Apache-2.0
module;
#include <entry_error.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.checkpoint_core;
import :grouped_load;
import :planned_load;

namespace shardmesh {
namespace {

// The bytes loaded together. Smaller groups would read small neighbours one by one.
constexpr std::int64_t group_bytes = std::int64_t{64} << 20;

}  // namespace

grouped_load::grouped_load(checkpoint_reader& reader, const planned_load& planned,
                           std::span<const memory_target> targets, const load_options& options,
                           const item_run_options& run, request_check check)
    : reader_(reader),
      planned_(planned),
      options_(options),
      run_(run),
      check_(check),
      is_loaded_(planned.tensors.size()),
      sums_(reader.contents()) {
  targets_.resize(planned.tensors.size());
  for (const memory_target& target : targets) targets_[target.transfer].push_back(target);
}

result<void> grouped_load::run(chunk_source& source) {
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

std::vector<std::size_t> grouped_load::in_stored_order() const {
  const auto place_of = [&](std::size_t tensor) {
    const tensor_entry& entry = *planned_.tensors[tensor];
    const std::ptrdiff_t number = &entry - reader_.contents().tensors.data();
    if (entry.chunk_count == 0) return std::tuple(std::int32_t{-1}, std::int64_t{0}, number);
    const stored_range& at = reader_.contents().chunk_places[static_cast<std::size_t>(entry.first_chunk)];
    return std::tuple(at.file, at.offset, number);
  };
  std::vector<std::size_t> order(planned_.tensors.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return place_of(a) < place_of(b); });
  return order;
}

result<void> grouped_load::load(std::span<const std::size_t> group, chunk_source& source) {
  std::vector<distribution> held;
  std::vector<std::string> keys;
  std::vector<memory_target> targets;
  for (const std::size_t tensor : group) {
    for (memory_target target : targets_[tensor]) {
      target.transfer = held.size();
      targets.push_back(target);
    }
    held.push_back(planned_.held[tensor]);
    keys.push_back(planned_.tensors[tensor]->key);
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

result<void> grouped_load::compare(std::span<const std::size_t> group) {
  std::vector<std::pair<const tensor_entry*, std::int32_t>> chunks;
  for (const std::size_t tensor : group) {
    const tensor_entry& entry = *planned_.tensors[tensor];
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
        return detail::at_entry(std::move(checked).error(), entry->key)
            .with_box(reader_.contents().chunk_box(*entry, chunk));
      });
}

}  // namespace shardmesh
