// SPDX-License-Identifier: Apache-2.0
// Not exported: rounds in which every rank of a call reports success or failure, so that all ranks get the same error.
module shardmesh.replicas:rank_round;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;

namespace shardmesh {

// One call of all ranks: its communicator, its limits, and its name.
struct rank_round {
  communicator_ref comm;
  call_options call;

  // Every rank reports whether its part succeeded, with a note. All ranks get all notes, or the error of the lowest
  // rank that has one.
  result<agreement_notes> settle(const result<void>& mine, std::vector<std::byte> note = {},
                                 std::span<const agreement_record> records = {}) const;
};

// Run one rank's own part between two rounds, and several parts with their rounds.
using detail::guarded;

// Returns the error of a rank whose note cannot be decoded.
error malformed_note(std::size_t rank);

}  // namespace shardmesh
