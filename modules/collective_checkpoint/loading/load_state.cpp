// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.collective_checkpoint;

import shardmesh.checkpoint_core;
import shardmesh.comm;
import shardmesh.tree;
import :one_rank;
import :rank_state;

namespace shardmesh::detail {

result<load_report> load_viewed(const std::filesystem::path& checkpoint, const state_to_load& state,
                                communicator_ref comm, const rank_load_options& options) {
  const call_scope limits(options.loading().call().named("load"));
  std::unique_ptr<checkpoint_reader> reader;
  local_state wanted;
  const auto made = guarded([&]() -> result<void> {
    SHARDMESH_TRY(reader, open_checkpoint(checkpoint));
    SHARDMESH_TRY(wanted, state.make_part(*reader));
    return {};
  });
  if (!made) return tell_others(comm, options.loading().call().named("load"), made);
  auto loaded = load(*reader, wanted, comm, options);
  if (!loaded) return loaded;
  // The communicator is free again: an error from here on keeps no rank waiting.
  SHARDMESH_TRY(guarded([&]() -> result<void> { return state.take_objects(wanted.objects); }));
  return loaded;
}

result<load_report> load_viewed(const std::filesystem::path& checkpoint, const state_to_load& state,
                                const rank_load_options& options) {
  const thread_group alone(1);
  thread_communicator comm = alone.communicator(0);
  return without_rank(load_viewed(checkpoint, state, comm, options));
}

}  // namespace shardmesh::detail
