// SPDX-License-Identifier: Apache-2.0
// Not exported: the plan that a rank keeps from one save to the next, and the agreement on its use. The cache that
// holds it is in save_plan_cache; planning is in rank_save_plan.cpp.
module shardmesh.collective_checkpoint:kept_plan;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.layout;
import shardmesh.comm;
import shardmesh.checkpoint_core;
import shardmesh.checkpoint;
import :rank_state;
import :save_assignment;
import :save_plan_cache;

namespace shardmesh {

// The weights of a rank's objects. They show whether the holders of each object have equal values, without a list of
// all objects. Of an object with n holders, the lowest has the weight n − 1 and the others −1, so the weighted sum of
// their digests is 0 if all are equal. 0: the object has one holder, or is not saved. Further objects have 0.
using object_weights = std::vector<std::int64_t>;

// One rank's part of a plan.
struct kept_plan {
  digest128 id;   // the same on every rank of one plan, and of no other plan
  digest128 key;  // of everything that determines the rank's part of the plan
  object_weights weights;
  save_assignment work;  // without views
  save_report report;    // rank 0: the notes and counts of the plan
};

// Computes the key of this rank's part. `conditions`: those of the save. The values of objects are left out.
digest128 plan_key(const const_local_state& held, std::vector<described_object> objects,
                   std::span<const agreement_record> conditions, communicator_ref comm);

// Returns the weights of the objects of each rank. `kept`: the result of `select_saved`.
std::vector<object_weights> weigh_objects(const merged_state& all, std::span<const selected> kept, std::int32_t ranks);

// Rank 0's answer about a new plan, before the share of a rank.
digest128 new_plan_id();
void write_plan_id(detail::wire_writer& out, const digest128& id, const object_weights& weights);
// Sets `id` and `weights` of the plan. Returns false for malformed bytes.
bool read_plan_id(detail::wire_reader& in, kept_plan& plan);

// A `note_combiner` for the notes of `plan_keeper::propose`.
void combine_proposals(std::vector<std::byte>& all, std::span<const std::byte> one);

// One save's use of a cache. Without a cache, it proposes and keeps nothing.
class plan_keeper {
 public:
  explicit plan_keeper(save_plan_cache cache) : cache_(std::move(cache)) {}

  bool is_none() const { return cache_.is_none(); }
  // Looks for a plan with this key. Returns this rank's note: the plan, and the weighted sum of its objects' digests.
  std::vector<std::byte> propose(const digest128& key, std::span<const described_object> objects);
  // Reads the combined notes of all ranks. Returns the plan if every rank has it, and equal values of each object;
  // otherwise null.
  std::shared_ptr<const kept_plan> settle(std::span<const std::byte> combined);
  // Keeps a new plan in place of the old one.
  void keep(kept_plan plan);

 private:
  save_plan_cache cache_;
  std::shared_ptr<const kept_plan> proposed_;
};

}  // namespace shardmesh
