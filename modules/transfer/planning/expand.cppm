// SPDX-License-Identifier: Apache-2.0
// The transfer rules (`owner_part`) compiled once for `distribution`, and their scratch memory. Exports nothing.
module shardmesh.transfer:expand;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :owner_part;
import :rank_plan;
import :step;
import :transfer_class;

namespace shardmesh {

// Recycles the lists of fragments that this thread makes during the object's lifetime. A plan of many tensors makes
// thousands of lists of some hundred KB each; mapping new pages for them would take half of the planning time.
class expansion_memory {
 public:
  expansion_memory();
  expansion_memory(const expansion_memory&) = delete;
  expansion_memory& operator=(const expansion_memory&) = delete;
  ~expansion_memory();
  struct lists;

 private:
  std::unique_ptr<lists> lists_;
  lists* outer_;  // those of the enclosing `expansion_memory`
};

// Calls `emit` with every step in which `owner` of `space` takes part, in no particular order.
void expand(const transfer_class& c, owner_id owner, owner_space space, function_ref<void(const step&)> emit);

// Computes the result of `steps_of` without listing the steps, if both sides are grids and the steps are very many.
// Returns nothing otherwise.
std::optional<owner_steps> arithmetic_steps(const transfer_class& c, owner_id owner, owner_space space);

// The steps of one owner, sorted, and their bytes. `expected` is an estimate of their number.
owner_steps steps_of(const transfer_class& c, owner_id owner, owner_space space, std::size_t expected = 0);

// The fewest bytes that any plan moves.
std::int64_t lower_bound_of(const transfer_class& c);

}  // namespace shardmesh
