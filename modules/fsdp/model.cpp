// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.fsdp;

namespace shardmesh {
namespace {

// The positions of keys in the model's order.
class key_order {
 public:
  explicit key_order(const fsdp_model& model) {
    for (const std::string& key : model.order) places_.emplace(key, places_.size());
  }
  std::size_t of(const std::string& key) const {
    const auto found = places_.find(key);
    return found == places_.end() ? unlisted : found->second;
  }
  // The position of the first listed key of a module.
  std::size_t of_module(const std::string& prefix) const {
    if (prefix.empty()) return 0;
    std::size_t first = unlisted;
    const std::string begin = prefix + ".";
    for (auto at = places_.lower_bound(begin); at != places_.end() && at->first.starts_with(begin); ++at)
      first = std::min(first, at->second);
    return first;
  }

 private:
  static constexpr std::size_t unlisted = std::numeric_limits<std::size_t>::max();
  std::map<std::string, std::size_t> places_;
};

struct placed_entry {
  fsdp_entry entry;
  std::size_t place = 0;
  bool is_other = true;   // false for unlisted flat entries: they come first at their place
  std::size_t depth = 0;  // among these, outer modules come before inner ones
};

result<void> check_unit(const fsdp_unit& unit) {
  if (unit.group.size() != unit.parameters.group_size())
    return fail(errc::invalid_argument, "the group of ranks is not as large as the flat parameter's")
        .with_key(joined_key(unit.prefix, flat_parameter_key))
        .with_values(fmt::format("{} positions", unit.parameters.group_size()), std::to_string(unit.group.size()));
  return {};
}

bool has_flat(const fsdp_unit& unit) {
  return !holds_whole(unit) && !unit.parameters.parameters().empty();
}
std::string flat_key(const fsdp_unit& unit) {
  return joined_key(clean_key(unit.prefix), flat_parameter_key) + unit.key_suffix;
}

}  // namespace

result<std::vector<fsdp_entry>> entries_of(const fsdp_model& model, fsdp_entries which) {
  const key_order order(model);
  std::vector<placed_entry> placed;
  const auto add = [&](std::string key, fsdp_entry_kind kind, std::size_t unit, std::size_t index) {
    const std::size_t place = order.of(key);
    placed.push_back({{std::move(key), kind, unit, index}, place});
  };
  // Several units of one module would share one flat key, so only the names of their parameters identify them.
  std::map<std::string, int> flat_keys;
  for (const fsdp_unit& unit : model.units)
    if (has_flat(unit)) ++flat_keys[flat_key(unit)];
  for (std::size_t u = 0; u < model.units.size(); ++u) {
    const fsdp_unit& unit = model.units[u];
    SHARDMESH_TRY(check_unit(unit));
    const std::string prefix = clean_key(unit.prefix);
    const auto key = [&](const std::string& fqn) { return joined_key(prefix, clean_key(fqn)) + unit.key_suffix; };
    if (has_flat(unit) &&
        (which == fsdp_entries::flat || (which == fsdp_entries::all && flat_keys[flat_key(unit)] == 1))) {
      add(flat_key(unit), fsdp_entry_kind::flat, u, 0);
      placed_entry& flat = placed.back();
      if (flat.place == std::numeric_limits<std::size_t>::max()) {
        flat.place = order.of_module(prefix);
        flat.is_other = false;
        flat.depth = prefix.size();
      }
    }
    if (which == fsdp_entries::flat && has_flat(unit)) continue;
    for (std::size_t i = 0; i < unit.parameters.parameters().size(); ++i)
      add(key(unit.parameters.parameters()[i].fqn), fsdp_entry_kind::parameter, u, i);
    for (const shared_parameter_info& s : unit.parameters.shared())
      add(key(s.fqn), fsdp_entry_kind::shared_parameter, u, *unit.parameters.find(s.of));
  }
  for (std::size_t t = 0; t < model.tensors.size(); ++t)
    add(clean_key(model.tensors[t].fqn), fsdp_entry_kind::tensor, 0, t);

  std::vector<std::size_t> sorted(placed.size());
  for (std::size_t i = 0; i < sorted.size(); ++i) sorted[i] = i;
  std::sort(sorted.begin(), sorted.end(), [&](std::size_t a, std::size_t b) {
    const auto rank = [&](std::size_t i) {
      return std::tuple(placed[i].place, placed[i].is_other, placed[i].depth, i);
    };
    return rank(a) < rank(b);
  });
  std::vector<fsdp_entry> entries;
  std::set<std::string_view> seen;
  for (const std::size_t i : sorted)
    if (!seen.insert(placed[i].entry.key).second)
      return fail(errc::duplicate_key, "two entries of the model have the same key").with_key(placed[i].entry.key);
  for (const std::size_t i : sorted) {
    entries.push_back(std::move(placed[i].entry));
    entries.back().key = model.key_prefix + entries.back().key;
  }
  return entries;
}

result<std::int32_t> detail::ranks_of(const fsdp_model& model, std::int32_t rank) {
  std::int32_t ranks = model.units.empty() ? rank + 1 : model.units[0].group.ranks();
  for (const fsdp_unit& unit : model.units)
    if (unit.group.ranks() != ranks)
      return fail(errc::invalid_argument, "the groups of two units are over different communicators")
          .with_key(unit.prefix)
          .with_values(detail::counted(ranks, "rank"), std::to_string(unit.group.ranks()));
  if (rank < 0 || rank >= ranks)
    return fail(errc::out_of_bounds, "this rank is not in the communicator of the units")
        .with_values(fmt::format("0 to {}", ranks - 1), std::to_string(rank));
  return ranks;
}

}  // namespace shardmesh
