// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
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
import :lone_save;
import :one_rank;
import :rank_state;

namespace shardmesh::detail {
namespace {

// Makes this rank's part. Collective only after an error: the first round of `save`, in which the others get it.
result<const_local_state> made_part(part_maker make, communicator_ref comm, const rank_save_options& options) {
  const_local_state held;
  const auto made = guarded([&]() -> result<void> {
    SHARDMESH_TRY(held, make());
    return {};
  });
  if (!made) return tell_others(comm, options.saving().call().named("save"), made);
  return held;
}

}  // namespace

result<save_report> save_viewed(const std::filesystem::path& destination, part_maker make, communicator_ref comm,
                                const rank_save_options& options) {
  SHARDMESH_TRY(const const_local_state held, made_part(make, comm, options));
  return save(destination, held, comm, options);
}

result<save_report> save_viewed(const std::filesystem::path& destination, part_maker make,
                                const rank_save_options& options) {
  const thread_group alone(1);
  thread_communicator comm = alone.communicator(0);
  if (!is_written_alone(options.format)) return without_rank(save_viewed(destination, make, comm, options));
  SHARDMESH_TRY(const const_local_state held, without_rank(made_part(make, comm, options)));
  return without_rank(save_alone(destination, held, options));
}

result<save_in_progress> start_save_viewed(const std::filesystem::path& destination, part_maker make,
                                           communicator_ref comm, const rank_save_options& options) {
  SHARDMESH_TRY(const const_local_state held, made_part(make, comm, options));
  return start_save(destination, held, comm, options);
}

}  // namespace shardmesh::detail
