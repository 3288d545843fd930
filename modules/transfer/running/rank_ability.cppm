// SPDX-License-Identifier: Apache-2.0
// Not exported: the abilities of a rank in the runs of an executor. The ranks combine them when they make the executor.
// The rounds of one rank are chosen in schedule.
module shardmesh.transfer:rank_ability;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;

namespace shardmesh {

inline constexpr std::uint32_t collects_reductions = 1, collects_gathers = 2, collects_in_groups = 4;

// The lowest rank whose memory budget no number of rounds fits. Without padding, because its bytes are sent.
struct short_budget {
  std::int64_t rank = -1;  // -1: none
  std::int64_t budget_bytes = 0, needed_bytes = 0;
};

// The data of one rank, or of several together, in the agreement of `executor::make`, in addition to the digest.
struct rank_ability {
  std::uint32_t lends = 0;
  std::uint32_t collects = 0;  // supported collectives, as bits
  // The most rounds that one rank needs to keep its memory budget, with packed messages and with lent memory.
  std::int64_t rounds = 1, lending_rounds = 1;
  short_budget packing, lending;
  std::int64_t sent_bytes = 0;  // the sum
};

// Returns a rank's note: its ability, and its offer of object numbers.
std::vector<std::byte> note_of(const rank_ability& a, std::span<const std::byte> numbers);

// A `note_combiner`: the common features, the sum of the sent bytes, and the most rounds that one rank needs. The
// combination with a malformed note is malformed.
void combine_abilities(std::vector<std::byte>& all, std::span<const std::byte> one);

// Returns the ability of all ranks, whose `rounds` are those of lent memory if all ranks lend theirs.
// \errors errc::disagreement for a note of another call; errc::no_memory for a rank that no number of rounds suits
result<rank_ability> common_ability(std::span<const std::byte> note);

// Returns the offer of object numbers, which follows the ability. Precondition: `common_ability` has read the note.
std::span<const std::byte> offer_in(std::span<const std::byte> note);

}  // namespace shardmesh
