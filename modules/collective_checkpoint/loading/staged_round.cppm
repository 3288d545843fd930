// SPDX-License-Identifier: Apache-2.0
// Not exported: one round of a load in which ranks read for each other. Each rank reads into staging memory, and the
// usual planner and executor send the data from there to all ranks that want part of it. The rounds are planned in
// reading_rounds, and each rank's part of them is in round_share.
module shardmesh.collective_checkpoint:staged_round;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;
import shardmesh.checkpoint_core;
import shardmesh.checkpoint;
import :rank_state;
import :round_share;

namespace shardmesh {

// The state that all rounds of a load share.
struct staged_load {
  checkpoint_reader& reader;
  round_of_ranks ranks;
  const load_options& options;     // of this rank
  bool check = false;              // compare chunks with their checksums
  std::int64_t message_bytes = 0;  // for messages
  // This rank's memory for a part of a tensor, which is numbered as in the catalog.
  std::function<tensor_view(std::size_t stored, const wanted_part&)> memory_of{};
};

struct round_bytes {
  std::int64_t read = 0, received = 0;
};

class staged_rounds {
 public:
  explicit staged_rounds(staged_load load) : load_(std::move(load)) {}
  // Reads this rank's pieces, and fills this rank's memory with everything that is read in the round. Collective. After
  // an error every rank has one, which names the rank where it happened.
  result<round_bytes> run(const round_share& round);

 private:
  const tensor_entry& stored_of(const round_tensor_share& tensor) const;
  dtype staged_type(const round_tensor_share& tensor) const;
  result<std::int64_t> read(const round_share& round);
  result<std::int64_t> move(const round_share& round);

  staged_load load_;
  std::unique_ptr<std::byte[]> memory_;
  std::int64_t capacity_ = 0;
  std::vector<std::vector<tensor_view>> staged_;  // this rank's pieces in the round, per tensor
  std::set<std::int32_t> checked_chunks_;         // by this rank
};

}  // namespace shardmesh
