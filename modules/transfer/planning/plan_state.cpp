// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>
module shardmesh.transfer;

import :expand;
import :plan_state;

namespace shardmesh {

transfer_plan::state::source_bytes transfer_plan::state::count_source_bytes(owner_id owner) const {
  source_bytes made;
  std::map<owner_id, std::int64_t> to;
  const expansion_memory memory;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const transfer_class& c = classes[i];
    const auto times = static_cast<std::int64_t>(uses[i]);
    // Steps often come grouped by peer.
    owner_id peer = -1;
    std::int64_t* sum = nullptr;
    const auto count = [&](const step_head& s, std::int64_t volume) {
      if (!rules::is_copied_from(owner, s)) return;
      const std::int64_t size = rules::bytes_of(volume, c.wire_bits_to(s.to_side)) * times;
      if (!transfer_class::travels(s.kind, s.from_side, s.to_side, s.from_owner != s.to_owner, c.one_space())) {
        made.at_home += size;
        return;
      }
      made.moved += size;
      if (sum == nullptr || peer != s.to_owner) sum = &to[peer = s.to_owner];
      *sum += size;
    };
    if (const auto computed = arithmetic_steps(c, owner, c.from.space()))
      computed->steps.for_each([&](std::size_t, const step_head& s, std::int64_t volume) { count(s, volume); });
    else
      expand(c, owner, c.from.space(), [&](const step& s) { count(step_head(s), s.where.volume()); });
  }
  made.to.assign(to.begin(), to.end());
  return made;
}

transfer_plan::state::shared_source_bytes transfer_plan::state::source_bytes_of(owner_id owner) const {
  constexpr std::size_t most_pairs = std::size_t{1} << 22;
  {
    const std::lock_guard locked(counted_lock);
    if (const auto found = counted.find(owner); found != counted.end()) return found->second;
  }
  auto made = std::make_shared<const source_bytes>(count_source_bytes(owner));
  const std::lock_guard locked(counted_lock);
  if (counted_pairs + made->to.size() > most_pairs) {
    counted.clear();
    counted_pairs = 0;
  }
  if (counted.emplace(owner, made).second) counted_pairs += made->to.size();
  return made;
}

void transfer_plan::state::count_totals() const {
  std::set<owner_id> owners;
  for (const transfer_class& c : classes) c.from.for_each_owner([&](owner_id owner) { owners.insert(owner); });
  for (const owner_id owner : owners) {
    const shared_source_bytes mine = source_bytes_of(owner);
    total += mine->at_home + mine->moved;
    moved += mine->moved;
  }
}

owner_tables transfer_plan::state::tables_of(owner_id owner, owner_space space) const {
  constexpr std::size_t most_owners = 8;
  constexpr std::size_t most_bytes = std::size_t{32} << 20;  // per owner
  {
    const std::lock_guard locked(kept_lock);
    for (std::size_t i = 0; i < kept.size(); ++i)
      if (kept[i].owner == owner && kept[i].space == space) {
        std::rotate(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(i),
                    kept.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        if (auto tables = kept.front().tables.lock()) return tables;
        kept.erase(kept.begin());
        break;
      }
  }
  auto made = std::make_shared<std::vector<std::shared_ptr<const owner_steps>>>();
  std::size_t size_bytes = 0;
  const expansion_memory memory;
  for (const transfer_class& c : classes) {
    const std::size_t like_the_last =
        made->empty() || made->back()->steps.is_computed() ? 0 : made->back()->steps.size();
    made->push_back(std::make_shared<const owner_steps>(steps_of(c, owner, space, like_the_last)));
    size_bytes += made->back()->steps.memory_bytes();
  }
  const std::lock_guard locked(kept_lock);
  if (kept.size() >= most_owners) kept.pop_back();
  kept.insert(kept.begin(), {owner, space, made, size_bytes > most_bytes ? nullptr : made});
  return made;
}

}  // namespace shardmesh
