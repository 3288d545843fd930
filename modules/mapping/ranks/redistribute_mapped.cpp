// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.mapping;

import shardmesh.comm;
import shardmesh.layout;
import shardmesh.transfer;
import :mapped_moves;
import :mapped_run;
import :tied_targets;

namespace shardmesh {
namespace {

template <tensor_view_type View>
std::vector<held_tensor> described(std::span<const basic_named_side<View>> sides) {
  std::vector<held_tensor> made;
  made.reserve(sides.size());
  for (const basic_named_side<View>& one : sides) made.push_back({one.key, one.side.where, one.side.type});
  return made;
}

template <tensor_view_type View>
std::vector<basic_tensor_binding<View>> memory_of(std::span<const basic_named_side<View>> sides) {
  std::vector<basic_tensor_binding<View>> made;
  made.reserve(sides.size());
  for (const basic_named_side<View>& one : sides) made.push_back(one.side.memory);
  return made;
}

result<mapped_moves> moves_through(std::span<const held_tensor> from, std::span<const held_tensor> to,
                                   std::span<const mapping_rules> mappings, const model_sizes& sizes,
                                   bool allow_narrowing) {
  SHARDMESH_TRY(const catalog sources, catalog_of(from));
  SHARDMESH_TRY(traced_mapping made, traced(sources, mappings, sizes));
  std::vector<tied_copy> copies = add_tied_targets(made.tensors, to, mappings, sizes);
  SHARDMESH_TRY(mapped_moves moves, moves_between(from, to, made.tensors, std::move(copies), allow_narrowing));
  SHARDMESH_TRY(add_ties(moves, from, made));
  return moves;
}

}  // namespace

result<redistribute_report> redistribute(std::span<const named_source> from, std::span<const named_target> to,
                                         std::span<const mapping_rules> mappings, const model_sizes& sizes,
                                         communicator_ref comm, const redistribute_options& options) {
  const mapped_sides sides{described(from), described(to), memory_of(from), memory_of(to)};
  // If the mappings fail on this rank, the others get its error.
  return run_moves(moves_through(sides.from, sides.to, mappings, sizes, options.allow_narrowing), sides, comm, options);
}

result<transfer_plan> plan(std::span<const named_source> from, std::span<const named_target> to,
                           std::span<const mapping_rules> mappings, const model_sizes& sizes,
                           const plan_options& options) {
  const std::vector<held_tensor> sources = described(from), targets = described(to);
  SHARDMESH_TRY(mapped_moves moves, moves_through(sources, targets, mappings, sizes, options.allow_narrowing));
  return plan(std::move(moves.transfers), options);
}

}  // namespace shardmesh
