// SPDX-License-Identifier: Apache-2.0
// Not exported: the descriptions of ranks that do not agree, and the errors made of them. How ranks exchange the
// descriptions is in agreement and tree_agreement.
module shardmesh.comm:disagreement;

import shardmesh.std;
import shardmesh.core;
import :agreement;

namespace shardmesh {

// Bytes, and the ranks that sent exactly these.
struct contribution {
  std::vector<std::byte> bytes;
  std::vector<std::int32_t> ranks;  // ascending; not empty
};

// The different descriptions of ranks. At most 64 are compared, so that the memory of an error does not grow with the
// ranks.
struct contributions {
  static constexpr std::size_t most = 64;

  std::vector<contribution> kept;
  std::int64_t dropped = 0;  // ranks whose descriptions are not kept

  void add(contribution one);
  // Ends a series of `add`: sorts by the lowest rank, and keeps the first ones.
  void keep_first();

  std::vector<std::byte> encode() const;
  // Nothing for malformed bytes. `ranks`: the size of the group.
  static std::optional<contributions> decode(std::span<const std::byte> bytes, std::int32_t ranks);
};

std::vector<std::byte> encode_records(std::span<const agreement_record> records);

// The name of a call that says whether it combines notes, for ranks whose calls differ only in that.
std::string call_with_notes(std::string_view call, bool combines);

// The errors of ranks that are in different calls, or have different records. The contributions are names of calls, or
// results of `encode_records`; at least two differ. `what` names the records.
error different_calls(const contributions& calls);
error different_records(const contributions& lists, const std::string& what);

// The error for a rank whose message does not belong to the agreement, because the rank is in another call.
error in_another_call(std::int32_t rank, const std::string& what);

}  // namespace shardmesh
