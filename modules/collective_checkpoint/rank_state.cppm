// SPDX-License-Identifier: Apache-2.0
// Not exported: what all ranks hold, from what each of them says that it holds. Every rank makes the same of it, with
// the same problems. Not here: what is done with it (save, load).
module shardmesh.collective_checkpoint:rank_state;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.layout;
import shardmesh.comm;

namespace shardmesh {

// Most problems that a report names.
inline constexpr std::size_t most_problems = 100;

// Problems: the first ones, and how many more there are.
struct problem_list {
  std::vector<error> named;
  std::int64_t more = 0;
  bool empty() const { return named.empty(); }
  void add(error e);
};

// An object as other ranks need to know it.
struct described_object {
  path where;
  digest128 digest;  // of its archive
  std::int64_t length = 0;
  std::string summary;
};

// What this rank says: its state's shapes and boxes, without memory. `objects` describes those of the state.
std::vector<std::byte> describe(const const_held_state& state, std::span<const described_object> objects);

// Whether what this rank holds makes sense by itself: boxes within shapes, memory that fits them. Names key and box.
result<void> check_held(const const_held_state& state);

// One box of a tensor and a rank that holds it.
struct rank_box {
  box where;
  std::int32_t rank = 0;
  std::int32_t part = 0;  // which of the rank's parts
};

struct merged_tensor {
  std::string key;  // PyTorch's: the path joined by dots
  path where;
  extents shape;
  dtype type = dtype::undefined;
  std::vector<std::int32_t> ranks;   // that know it, ascending
  std::vector<std::size_t> indices;  // which of each rank's tensors
  std::vector<rank_box> boxes;       // not empty; ascending by box, then rank

  // Which of the rank's tensors it is; nothing: -1.
  std::ptrdiff_t index_on(std::int32_t rank) const;
};

// Boxes [first, last) of a merged tensor that are equal: replicas.
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

// In the order of rank 0, then what rank 1 adds, and so on.
struct merged_state {
  std::vector<merged_tensor> tensors;
  std::vector<merged_object> objects;
  problem_list problems;  // ranks that contradict each other, each naming key and ranks
};

// `notes`: what every rank said. \errors errc::bad_format naming the rank when one makes no sense.
result<merged_state> merge_states(std::span<const std::vector<std::byte>> notes);

// One round: every rank says whether it could do its part, and something of its own. All get all notes, or the error of
// the lowest rank that has one.
struct round_of_ranks {
  communicator_ref comm;
  call_options call;
  result<agreement_notes> settle(const result<void>& mine, std::vector<std::byte> note = {},
                                 std::span<const agreement_record> records = {}) const;
};

// Runs one rank's own part of a phase; what it throws becomes its error, so that no other rank waits for it.
result<void> guarded(function_ref<result<void>()> part);
// The same of several phases with their rounds. What is thrown between the rounds ends the communicator, since the
// others wait in the next one.
result<void> guarded(communicator_ref comm, function_ref<result<void>()> phases);

}  // namespace shardmesh
