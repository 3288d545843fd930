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
  return detail::settle_round(comm, call, mine, {.what = "options of replicas", .note = std::move(note)}, records);
}

error malformed_note(std::size_t rank) {
  return fail(errc::communication, "a rank sent a malformed note").with_rank(static_cast<std::int32_t>(rank));
}

}  // namespace shardmesh
