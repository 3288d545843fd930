// SPDX-License-Identifier: Apache-2.0
// Not exported: the rules of transfers for distributions (`owner_part`), compiled once; and the memory that they use.
module shardmesh.transfer:expand;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :owner_part;
import :rank_plan;
import :step;
import :transfer_class;

namespace shardmesh {

// While one lives, the lists of fragments that its thread makes are used again: a plan of many tensors makes some
// thousand lists of some hundred KB each, and the system's time for new pages would be half of all.
class expansion_memory {
 public:
  expansion_memory();
  expansion_memory(const expansion_memory&) = delete;
  expansion_memory& operator=(const expansion_memory&) = delete;
  ~expansion_memory();
  struct lists;

 private:
  std::unique_ptr<lists> lists_;
  lists* outer_;  // of the one around it
};

// Calls `emit` with every step in which `owner` of `space` takes part, in no particular order.
void expand(const transfer_class& c, owner_id owner, owner_space space, function_ref<void(const step&)> emit);

// The same as `steps_of` where both sides are grids and the steps very many: computed, not listed. Nothing otherwise.
std::optional<owner_steps> arithmetic_steps(const transfer_class& c, owner_id owner, owner_space space);

// The steps of one owner, sorted, and their bytes. `expected`: how many there may be.
owner_steps steps_of(const transfer_class& c, owner_id owner, owner_space space, std::size_t expected = 0);

// The least number of bytes that any plan moves.
std::int64_t lower_bound_of(const transfer_class& c);

}  // namespace shardmesh
