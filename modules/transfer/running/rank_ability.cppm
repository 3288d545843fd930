// SPDX-License-Identifier: Apache-2.0
// Not exported: what a rank can do in the runs of an executor. The ranks exchange it when they make the executor.
module shardmesh.transfer:rank_ability;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;

namespace shardmesh {

inline constexpr std::uint32_t collects_reductions = 1, collects_gathers = 2, collects_in_groups = 4;

// A rank's data in the agreement of `executor::make`, in addition to the digest.
struct rank_ability {
  std::uint32_t lends = 0;
  std::uint32_t collects = 0;  // supported collectives, as bits
  // The number of rounds that fits the memory budget, with packed messages and with lent memory; 0: no number does.
  std::int64_t rounds = 1, lending_rounds = 1;
  std::int64_t budget_bytes = 0, needed_bytes = 0;
  std::int64_t sent_bytes = 0;
};

// Returns a rank's note: its ability, and its offer of object numbers.
std::vector<std::byte> note_of(const rank_ability& a, std::span<const std::byte> numbers);

// Returns the offers of object numbers, which follow the abilities in the notes. Precondition: `common_ability` has
// read the notes.
std::vector<std::span<const std::byte>> offers_in(const agreement_notes& notes);

// Combines the abilities of all ranks: the common features, the sum of the sent bytes, and the most rounds that one
// needs.
// \errors errc::disagreement for a note of another call; errc::no_memory for a rank that no number of rounds suits
result<rank_ability> common_ability(const agreement_notes& notes);

}  // namespace shardmesh
