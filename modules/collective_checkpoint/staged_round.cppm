// SPDX-License-Identifier: Apache-2.0
// Not exported: one round of a load in which ranks read for each other. Each rank reads into staging memory, and the
// usual planner and executor send the data from there to all ranks that want part of it. The rounds are planned in
// reading_rounds.
module shardmesh.collective_checkpoint:staged_round;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;
import shardmesh.checkpoint_core;
import shardmesh.checkpoint;
import :rank_state;
import :reading_rounds;

namespace shardmesh {

// The state that all rounds of a load share.
struct staged_load {
  const merged_state& all;
  checkpoint_reader& reader;
  round_of_ranks ranks;
  const load_options& options;                                                    // of this rank
  bool check = false;                                                             // compare chunks with their checksums
  std::int64_t message_bytes = 0;                                                 // for messages
  std::function<tensor_view(const merged_tensor&, const rank_box&)> memory_of{};  // of this rank's box
};

struct round_bytes {
  std::int64_t read = 0, received = 0;
};

class staged_rounds {
 public:
  explicit staged_rounds(staged_load load) : load_(std::move(load)) {}
  // Reads this rank's pieces, and fills this rank's memory with everything that is read in the round. Collective. After
  // an error every rank has one, which names the rank where it happened.
  result<round_bytes> run(const reading_round& round);

 private:
  dtype staged_type(const merged_tensor& tensor) const;
  result<std::int64_t> read(const reading_round& round);
  result<std::int64_t> move(const reading_round& round);

  staged_load load_;
  std::unique_ptr<std::byte[]> memory_;
  std::int64_t capacity_ = 0;
  std::vector<std::vector<tensor_view>> staged_;  // this rank's pieces in the round, per tensor
  std::set<std::int32_t> checked_chunks_;         // by this rank
};

}  // namespace shardmesh
