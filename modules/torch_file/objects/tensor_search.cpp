// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :tensor_search;

namespace shardmesh::torch_file {
namespace {

bool is_composite(const pickle::value& value) {
  switch (value.kind()) {
    case pickle::kind::list:
    case pickle::kind::tuple:
    case pickle::kind::dict:
    case pickle::kind::set:
    case pickle::kind::frozenset:
    case pickle::kind::record:
      return true;
    default:
      return false;
  }
}

// Calls `visit` with every value that a composite refers to.
template <class Visit>
void for_each_part(const pickle::value& value, Visit visit) {
  for (const pickle::value part : value.items()) visit(part);
  for (const pickle::pair pair : value.pairs()) visit(pair.key), visit(pair.value);
  if (value.kind() != pickle::kind::record) return;
  for (const pickle::value part :
       {value.callable(), value.args(), value.keyword_args(), value.state(), value.appended(), value.assigned()})
    if (part) visit(part);
}

bool is_storage(const pickle::value& value) {
  const pickle::items id = value.persistent_id().items();
  return id.empty() || id[0].text() != "module";  // PyTorch's oldest files refer to modules' source text like this
}

}  // namespace

bool is_tensor(const torch_file::item& item, const pickle::value& value) {
  return item.tensor_of(value).has_value() || item.is_opaque_tensor(value);
}

bool tensor_search::holds(const pickle::value& value) {
  if (is_end(value)) return true;
  if (!is_composite(value)) return false;
  if (!known_.contains(value.identity())) explore(value);
  return known_.at(value.identity());
}

bool tensor_search::is_end(const pickle::value& value) const {
  return value.kind() == pickle::kind::persistent ? is_storage(value) : is_tensor(item_, value);
}

std::int64_t tensor_search::count_below(const pickle::value& value, function_ref<bool(const pickle::value&)> is_named,
                                        std::size_t& budget) const {
  std::unordered_set<std::uint64_t> seen;
  std::vector<pickle::value> pending{value};
  std::int64_t count = 0;
  while (!pending.empty() && budget > 0) {
    const pickle::value at = pending.back();
    pending.pop_back();
    if (!is_end(at) && !is_composite(at)) continue;
    --budget;
    if (!seen.insert(at.identity()).second) continue;
    if (is_end(at))
      count += is_named(at) ? 0 : 1;
    else
      for_each_part(at, [&](const pickle::value& part) { pending.push_back(part); });
  }
  return count;
}

// Visits all new values below `root`, then marks the values above every tensor.
void tensor_search::explore(const pickle::value& root) {
  std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> referring;  // between new values only
  std::vector<std::uint64_t> holding;
  std::vector<pickle::value> pending{root};
  known_.emplace(root.identity(), false);
  while (!pending.empty()) {
    const pickle::value at = pending.back();
    pending.pop_back();
    bool holds_one = false;
    for_each_part(at, [&](const pickle::value& part) {
      if (is_end(part)) return holds_one = true, void();
      if (!is_composite(part)) return;
      const auto [place, is_new] = known_.emplace(part.identity(), false);
      if (place->second) return holds_one = true, void();
      referring[part.identity()].push_back(at.identity());
      if (is_new) pending.push_back(part);
    });
    if (holds_one) holding.push_back(at.identity());
  }
  while (!holding.empty()) {
    const std::uint64_t at = holding.back();
    holding.pop_back();
    if (std::exchange(known_.at(at), true)) continue;
    if (const auto above = referring.find(at); above != referring.end())
      holding.insert(holding.end(), above->second.begin(), above->second.end());
  }
}

}  // namespace shardmesh::torch_file
