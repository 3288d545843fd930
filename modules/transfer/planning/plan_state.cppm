// SPDX-License-Identifier: Apache-2.0
// Not exported: the state that the copies of a plan share: its classes of equal transfers, and the results that are
// computed from them on demand. The functions of the plan are in `plan`.
module shardmesh.transfer:plan_state;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :plan;
import :rank_plan;
import :schedule;
import :transfer_class;

namespace shardmesh {

// One table per transfer class.
using owner_tables = std::shared_ptr<const std::vector<std::shared_ptr<const owner_steps>>>;

struct transfer_plan::state {
  std::vector<tensor_transfer> transfers;
  plan_options options;
  std::vector<transfer_class> classes;
  std::vector<std::size_t> class_of;  // per transfer
  std::vector<std::size_t> uses;      // transfers per class
  std::shared_ptr<const plan_clock> clock;

  // Tables of recently requested owners. A large table stays only as long as another holder, such as a `rank_plan`,
  // keeps it.
  struct kept_tables {
    owner_id owner = 0;
    owner_space space = owner_space::ranks;
    std::weak_ptr<const owner_tables::element_type> tables;
    owner_tables small;  // keeps small tables alive
  };
  mutable std::mutex kept_lock;
  mutable std::vector<kept_tables> kept;  // the latest first

  owner_tables tables_of(owner_id owner, owner_space space) const;

  // The bytes copied out of one owner's source fragments. They are counted only for requested owners.
  struct source_bytes {
    std::vector<std::pair<owner_id, std::int64_t>> to;  // ascending by receiver; traffic only
    std::int64_t at_home = 0;                           // copies within the owner
    std::int64_t moved = 0;
  };
  using shared_source_bytes = std::shared_ptr<const source_bytes>;
  mutable std::mutex counted_lock;
  mutable std::map<owner_id, shared_source_bytes> counted;
  mutable std::size_t counted_pairs = 0;

  shared_source_bytes source_bytes_of(owner_id owner) const;
  source_bytes count_source_bytes(owner_id owner) const;

  mutable std::once_flag totals_once, bound_once, digest_once;
  mutable std::int64_t total = 0, moved = 0, bound = 0;
  mutable digest128 digest;

  void count_totals() const;
};

}  // namespace shardmesh
