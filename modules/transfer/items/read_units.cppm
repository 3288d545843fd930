// SPDX-License-Identifier: Apache-2.0
// Not exported: the reads for boxes in memory, as units of work that threads take one by one. Reading a unit is in
// `unit_read`.
module shardmesh.transfer:read_units;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :items;
import :run_items;

namespace shardmesh {

inline constexpr std::int64_t unit_bytes = std::int64_t{8} << 20;  // work that one thread takes at a time

// A wanted part of one stored fragment.
struct read_demand {
  fragment from;
  const memory_target* target = nullptr;
  box part;  // of the global tensor
};

// Demands on one stored fragment, or on a slab of it.
struct read_unit {
  std::span<const read_demand> demands;
  const box* region = nullptr;
  bool in_order = false;  // one thread reads the item front to back
  bool is_large = false;  // the item prefers large reads
};

// The reads for some targets. Threads may take the units one by one.
struct work_list {
  std::vector<read_demand> demands;
  std::list<box> regions;  // of units that are not a whole demand
  std::vector<read_unit> units;
};

class read_planner {
 public:
  // `from` and `keys` as in `run_to_memory`. The arguments must outlive this.
  read_planner(std::span<const distribution> from, std::span<const std::string> keys, const any_item_source& source)
      : from_(from), keys_(keys), source_(source) {}

  // \errors errc::gap, naming key and box
  result<work_list> plan(std::span<const memory_target* const> targets) const;

 private:
  result<void> add_demands(const memory_target& target, std::vector<read_demand>& demands) const;
  void add_units(std::span<read_demand> group, work_list& made) const;

  std::span<const distribution> from_;
  std::span<const std::string> keys_;
  const any_item_source& source_;
};

}  // namespace shardmesh
