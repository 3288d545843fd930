// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>
module shardmesh.replicas;

import shardmesh.comm;
import :rank_round;

namespace shardmesh {

result<agreement_notes> rank_round::settle(const result<void>& mine, std::vector<std::byte> note,
                                           std::span<const agreement_record> records) const {
  call_options now = call;
  agree_options options;
  options.what = "options of replicas";
  options.note = std::move(note);
  error problem;
  if (!mine) {
    problem = detail::reported_by(mine.error(), comm.rank());
    options.problem = &problem;
    now.cancel = {};  // even if this rank was cancelled, the others must receive its error
  }
  return agree(comm, records, options, now);
}

result<void> run_part(function_ref<result<void>()> part) {
  try {
    return part();
  } catch (...) {
    return detail::caught_error();
  }
}

result<void> run_rounds(communicator_ref comm, function_ref<result<void>()> rounds) {
  bool threw = true;
  const auto all = [&] {
    auto ended = rounds();
    threw = false;
    return ended;
  };
  auto done = run_part(all);
  if (threw) comm.abort(done.error());
  return done;
}

error malformed_note(std::size_t rank) {
  return fail(errc::communication, "a rank sent a malformed note").with_rank(static_cast<std::int32_t>(rank));
}

}  // namespace shardmesh
