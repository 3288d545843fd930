// SPDX-License-Identifier: Apache-2.0
// Not exported: merges the descriptions that ranks send of their states. Only rank 0 merges for loads and for saves as
// DCP folders; for other saves, every rank merges and gets the same result with the same problems.
module shardmesh.collective_checkpoint:rank_state;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.layout;
import shardmesh.comm;
import :held_parts;
import :said_state;

namespace shardmesh {

// The most problems that an error names.
inline constexpr std::size_t most_problems = 1 + error::max_others;

// One box of a tensor and a rank that holds it.
struct rank_box {
  box where;
  std::int32_t rank = 0;
  std::int32_t part = 0;  // index among the rank's parts
};

struct merged_tensor {
  std::string key;  // PyTorch's: the path joined by dots
  path where;
  extents shape;
  dtype type = dtype::undefined;
  std::vector<std::int32_t> ranks;   // the ranks that have the tensor, ascending
  std::vector<std::size_t> indices;  // per rank, the tensor's index in the rank's state
  std::vector<rank_box> boxes;       // without empty ones; ascending by box, then rank

  // The index of the tensor in the rank's state; -1 if the rank does not have it.
  std::ptrdiff_t index_on(std::int32_t rank) const;
};

// A range [first, last) of equal boxes of a merged tensor: replicas.
struct replica_range {
  std::size_t first = 0, last = 0;
};
std::vector<replica_range> replicas_of(const merged_tensor& tensor);

struct merged_object {
  std::string key;
  path where;
  std::vector<std::int32_t> ranks;
  std::vector<std::size_t> indices;
  std::vector<described_object> said;  // one per rank

  std::ptrdiff_t index_on(std::int32_t rank) const;
};

// In the order of rank 0, then the additions of rank 1, and so on.
struct merged_state {
  std::vector<merged_tensor> tensors;
  std::vector<merged_object> objects;
  detail::problem_list problems;  // contradictions between ranks, each naming key and ranks
};

// `notes`: the description from every rank. \errors errc::bad_format naming the rank if one cannot be decoded.
result<merged_state> merge_states(std::span<const std::vector<std::byte>> notes);

// Rounds of ranks that save or load together. Every rank makes the same calls in the same order.
struct round_of_ranks {
  communicator_ref comm;
  call_options call;

  // One round: every rank reports whether its part succeeded, with a note. All ranks get all notes, or the error of the
  // lowest rank that has one. Every rank receives all notes, so a note is short.
  result<agreement_notes> settle(const result<void>& mine, std::vector<std::byte> note = {},
                                 std::span<const agreement_record> records = {}) const;
  // The same with notes that are combined. Returns the combination on every rank.
  result<std::vector<std::byte>> settle_combined(const result<void>& mine, std::vector<std::byte> note,
                                                 note_combiner combine,
                                                 std::span<const agreement_record> records = {}) const;
  // The same where only rank 0 has a note. Returns it on every rank.
  result<std::vector<std::byte>> settle_with_root(const result<void>& mine, std::vector<std::byte> note) const;
  // A `settle` without notes, and then `send_to_root`. Bodies from here on are in root_rounds.cpp.
  result<agreement_notes> collect(const result<void>& mine, std::vector<std::byte> note,
                                  std::span<const agreement_record> records = {}) const;
  // Rank 0 gets the notes, in rank order. The other ranks get none.
  // Cost: each rank sends its note to rank 0 in two messages: 8 bytes, and the note.
  result<agreement_notes> send_to_root(std::vector<std::byte> note) const;

  // Rank 0 sends each rank its part; returns this rank's. `parts`: on rank 0 one per rank, on the other ranks none.
  // Cost: two messages to each rank: 8 bytes, and the part.
  result<std::vector<std::byte>> hand_out(agreement_notes parts) const;
};

// Checks one rank's state on its own; runs one rank's own part of a phase, or several phases with their rounds.
using detail::check_held;
using detail::guarded;

}  // namespace shardmesh
