// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
module shardmesh.checkpoint;

import shardmesh.checkpoint_core;
import :compared_entries;
import :value_comparison;

namespace shardmesh {
namespace {

// Prints a value with the precision of the elements: the difference of two float32 is shown as a float32.
std::string difference_text(double value, dtype left, dtype right) {
  const auto is_narrow = [](dtype type) {
    return kind(type) == dtype_kind::floating ? bits(type) <= 32
                                              : kind(type) == dtype_kind::complex && bits(type) <= 64;
  };
  if (is_narrow(left) && is_narrow(right)) return fmt::format("{}", static_cast<float>(value));
  return fmt::format("{}", value);
}

// Reads one slab of a tensor on the calling thread.
result<host_tensor> slab_of(chunk_source& source, const tensor_entry& stored, const distribution& held, dtype type,
                            const box& slab) {
  SHARDMESH_TRY(host_tensor made, host_tensor::make(type, slab.sizes));
  const memory_target target{0, slab, adapter<host_tensor>::view(made)};
  item_run_options run;
  run.threads = 1;
  if (const detail::call_in_progress* const call = detail::current_call()) run.call = call->limits;
  SHARDMESH_TRY(run_to_memory({&held, 1}, {&stored.key, 1}, {&target, 1}, source, run));
  return made;
}

}  // namespace

value_comparer::value_comparer(const diff_side& left, const diff_side& right, const diff_options& options)
    : left_(left), right_(right), options_(options), left_source_(left.reader), right_source_(right.reader) {}

result<std::optional<key_difference>> value_comparer::compare_values(const diff_entry& a, const diff_entry& b) {
  const tensor_entry& left = tensor_of(left_, a);
  const tensor_entry& right = tensor_of(right_, b);
  SHARDMESH_TRY(const distribution left_held, of_side(left_, left_.reader.contents().distribution_of(left)));
  SHARDMESH_TRY(const distribution right_held, of_side(right_, right_.reader.contents().distribution_of(right)));
  const std::int64_t per_thread = options_.memory_bytes / thread_count(options_.threads) / 3;
  const std::int64_t slab_bytes = std::clamp<std::int64_t>(per_thread, 1 << 18, 8 << 20);
  const box whole = box::whole(left.shape);
  const bool sub_byte = bits(a.type) % 8 != 0 || bits(b.type) % 8 != 0;
  const std::int64_t item = sub_byte ? 1 : std::max(item_bytes(a.type), item_bytes(b.type));
  slab_walk walk(whole, sub_byte ? whole.volume() : slab_bytes / item);
  std::optional<key_difference> total;
  while (const auto slab = walk.next()) {
    SHARDMESH_TRY(const host_tensor l, of_side(left_, slab_of(left_source_, left, left_held, a.type, *slab)));
    SHARDMESH_TRY(const host_tensor r, of_side(right_, slab_of(right_source_, right, right_held, b.type, *slab)));
    const const_tensor_view left_view = adapter<host_tensor>::view(l);
    const const_tensor_view right_view = adapter<host_tensor>::view(r);
    SHARDMESH_TRY(
        const comparison outcome,
        compare(left_view, right_view, {.tolerance = options_.tolerance, .ignore_dtype = options_.ignore_dtype}));
    if (outcome.different == 0) continue;
    if (!total) {
      total = difference_at(a.key, difference_kind::values, "");
      total->first_index = outcome.first_index;
      for (std::size_t d = 0; d < slab->rank(); ++d) total->first_index[d] += slab->offsets[d];
      total->text =
          fmt::format("first at {}: {} against {}", to_string(total->first_index),
                      value_text(left_view, outcome.first_index), value_text(right_view, outcome.first_index));
    }
    total->different += outcome.different;
    if (std::isnan(outcome.largest_difference) || outcome.largest_difference > total->largest)
      total->largest = outcome.largest_difference;
  }
  if (total) {
    total->elements = whole.volume();
    total->text = fmt::format("{} of {} {}, {}, largest difference {}", total->different, total->elements,
                              total->elements == 1 ? "element differs" : "elements differ", total->text,
                              difference_text(total->largest, a.type, b.type));
  }
  return total;
}

}  // namespace shardmesh
