// SPDX-License-Identifier: Apache-2.0
// Not exported: the note about its state dict that a rank sends to the others before a load.
module shardmesh.fsdp:rank_note;

import shardmesh.std;
import shardmesh.sharding;
import :offered_state;

namespace shardmesh::detail {

// The kind of value that a rank has for an entry.
enum class offer_kind : std::uint8_t { none, whole, sharded };

struct rank_note {
  digest128 described;            // digest of the distributions of all sharded values, as this rank describes them
  std::vector<offer_kind> kinds;  // one per entry, as `types`
  std::vector<dtype> types;
  std::vector<std::string> unexpected;
};

// Collective. Checks that all ranks load the same entries, and returns their notes in rank order. With the `problem` of
// any rank, every rank gets an error. `unexpected` are this rank's keys that the model does not have.
result<std::vector<rank_note>> exchange_notes(const offered_state& mine, std::span<const std::string> unexpected,
                                              const std::optional<error>& problem);

}  // namespace shardmesh::detail
