// SPDX-License-Identifier: Apache-2.0
#include <shardmesh/c_api/plan.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "handle.hpp"
#include "layout.hpp"
#include "values.hpp"

import shardmesh;
import shardmesh.transfer;

struct shardmesh_plan {
  using mark_type = c_api::marked<c_api::handle_kind::plan>;
  mark_type mark;
  shardmesh::transfer_plan made;

  // Computed on first use: it takes a pass over every copy.
  const shardmesh::plan_cost& cost() const {
    std::call_once(counted_, [this] { cost_ = made.cost(); });
    return cost_;
  }

 private:
  mutable std::once_flag counted_;
  mutable shardmesh::plan_cost cost_;
};

namespace c_api {
using namespace shardmesh;

static_assert(SHARDMESH_STEP_FILL == static_cast<int>(step_kind::fill));
static_assert(SHARDMESH_SIDE_STAGING == static_cast<int>(buffer_side::staging));
static_assert(static_cast<int>(step_phase::finish) == 4 && static_cast<int>(reduce_op::bxor) == 8);

namespace {

transfer_plan make(const layout& from, const layout& to, const shardmesh_plan_options& wanted) {
  const dtype first = wanted.from == SHARDMESH_DTYPE_UNDEFINED ? dtype::float32 : to_dtype(wanted.from);
  const dtype second = wanted.to == SHARDMESH_DTYPE_UNDEFINED ? first : to_dtype(wanted.to);
  return value_of(
      plan({{value_of(distribute(from)), value_of(distribute(to)), first, second}},
           {.memory_bytes = to_memory(wanted.memory_bytes, 0), .allow_narrowing = wanted.allow_narrowing != 0}));
}

owner_id rank_count(const transfer_plan& p) {
  return std::max(p.transfers()[0].from.owners(), p.transfers()[0].to.owners());
}

shardmesh_step described(const step& s) {
  shardmesh_step made{};
  made.kind = static_cast<shardmesh_step_kind>(s.kind);
  made.phase = static_cast<std::int32_t>(s.phase);
  made.reduction = static_cast<std::int32_t>(s.reduction);
  made.term = s.term;
  made.factor = s.factor;
  made.where = to_c(s.where);
  made.from_rank = s.from.owner;
  made.from_side = static_cast<shardmesh_step_side>(s.from.side);
  copy_to(made.from_offsets, s.from.offsets);
  made.to_rank = s.to.owner;
  made.to_side = static_cast<shardmesh_step_side>(s.to.side);
  copy_to(made.to_offsets, s.to.offsets);
  return made;
}

}  // namespace

}  // namespace c_api

using namespace c_api;

extern "C" {

shardmesh_status shardmesh_plan_make(const shardmesh_layout* from, const shardmesh_layout* to,
                                     const shardmesh_plan_options* options, shardmesh_plan** plan,
                                     shardmesh_error** error) {
  return guarded(error, plan, [&] {
    auto made = std::make_unique<shardmesh_plan>();
    made->made = make(opened(from, "from").made, opened(to, "to").made, given(options, "options"));
    return made;
  });
}

void shardmesh_plan_free(shardmesh_plan* plan) {
  delete plan;
}

shardmesh_status shardmesh_plan_describe(const shardmesh_plan* plan, shardmesh_plan_cost* cost,
                                         shardmesh_error** error) {
  return guarded(error, [&] {
    const shardmesh::plan_cost& counted = opened(plan, "plan").cost();
    shardmesh_plan_cost made{};
    made.bytes_total = counted.bytes_total;
    made.bytes_moved = counted.bytes_moved;
    made.lower_bound = counted.lower_bound;
    made.peak_bytes = counted.peak_bytes;
    give(cost, made, "cost");
  });
}

shardmesh_status shardmesh_plan_links(const shardmesh_plan* plan, shardmesh_link* links, size_t capacity, size_t* count,
                                      shardmesh_error** error) {
  return guarded(error, [&] {
    const std::vector<shardmesh::link_cost>& all = opened(plan, "plan").cost().links;
    if (capacity > 0) needed(links, "links");
    needed(count, "count") = all.size();
    for (std::size_t i = 0; i < std::min(capacity, all.size()); ++i)
      links[i] = {all[i].from, all[i].to, all[i].size_bytes};
  });
}

shardmesh_status shardmesh_plan_steps(const shardmesh_plan* plan, int32_t rank, size_t first, shardmesh_step* steps,
                                      size_t capacity, size_t* count, shardmesh_error** error) {
  return guarded(error, [&] {
    const shardmesh::transfer_plan& made = opened(plan, "plan").made;
    if (rank < 0 || rank >= rank_count(made))
      refuse(shardmesh::fail(shardmesh::errc::out_of_bounds, "the plan has no such rank")
                 .with_rank(rank)
                 .with_values("a number below " + std::to_string(rank_count(made)), std::to_string(rank)));
    const shardmesh::rank_plan mine = made.for_owner(rank);
    const shardmesh::step_table& table = mine.steps(0);
    if (capacity > 0) needed(steps, "steps");
    needed(count, "count") = table.size();
    for (std::size_t i = first, to = 0; i < table.size() && to < capacity; ++i, ++to) steps[to] = described(table[i]);
  });
}

}  // extern "C"
