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
import :mapped_memory;
import :mapped_moves;
import :mapped_run;

namespace shardmesh {
namespace {

result<transfer_plan> planned(const result<mapped_moves>& moves, const redistribute_options& options) {
  if (!moves) return moves.error();
  const plan_options how{.memory_bytes = options.memory_bytes,
                         .allow_narrowing = options.allow_narrowing,
                         .deterministic = options.deterministic};
  return options.cache != nullptr ? options.cache->plan(moves->transfers, how) : plan(moves->transfers, how);
}

// Ends the call: every rank gets the error of the lowest rank that could not complete its targets.
result<void> settled(const result<void>& mine, communicator_ref comm, const call_options& call) {
  agree_options agreement{.what = "targets of a mapping"};
  if (!mine) agreement.problem = &mine.error();
  SHARDMESH_TRY(agree(comm, digest128{}, [] { return std::vector<agreement_record>(); }, agreement, call));
  return {};
}

}  // namespace

result<redistribute_report> run_moves(const result<mapped_moves>& moves, const mapped_sides& sides,
                                      communicator_ref comm, const redistribute_options& options) {
  const call_options call = options.call.named("redistribute");
  const run_options how{.check = options.check, .progress = options.progress};
  std::vector<std::string> keys;
  if (moves) keys = moves->keys;
  SHARDMESH_TRY(executor runner, executor::make(planned(moves, options), comm, std::move(keys), how, call));
  mapped_memory memory(*moves, sides.from, sides.to, sides.from_memory, sides.to_memory, comm.rank());
  SHARDMESH_TRY(runner.run(memory.sources(), memory.destinations(), call));
  SHARDMESH_TRY(settled(memory.finish(), comm, call));
  return redistribute_report{.sent_bytes = runner.sent_bytes(),
                             .received_bytes = runner.received_bytes(),
                             .rounds = runner.rounds(),
                             .scratch_bytes = runner.scratch_bytes()};
}

}  // namespace shardmesh
