// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>
module shardmesh.comm;

namespace shardmesh::detail {

result<void> guarded(function_ref<result<void>()> part) {
  try {
    return part();
  } catch (...) {
    return caught_error();
  }
}

result<void> guarded(communicator_ref comm, function_ref<result<void>()> rounds) {
  bool threw = true;
  const auto all = [&] {
    auto ended = rounds();
    threw = false;
    return ended;
  };
  auto done = guarded(all);
  if (threw) comm.abort(done.error());
  return done;
}

result<agreement_notes> settle_round(communicator_ref comm, call_options call, const result<void>& mine,
                                     agree_options options, std::span<const agreement_record> records) {
  error problem;
  if (!mine) {
    problem = reported_by(mine.error(), comm.rank());
    options.problem = &problem;
    call.cancel = {};
  }
  return agree(comm, records, options, call);
}

}  // namespace shardmesh::detail
