// SPDX-License-Identifier: Apache-2.0
// The cost of all owners of a plan, and plans and costs as text.
module;
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.transfer;

namespace shardmesh {
namespace {

constexpr std::size_t named_owners = 16, named_links = 4, named_transfers = 8;

// Most pairs of owners for which a text counts each owner's sends.
constexpr std::int64_t counted_pairs = std::int64_t{1} << 20;

using owner_key = std::pair<owner_space, owner_id>;

std::set<owner_key> owners_of(const transfer_plan& plan) {
  std::set<owner_key> owners;
  std::set<std::uintptr_t> met;  // many transfers share a distribution
  for (const tensor_transfer& t : plan.transfers())
    for (const distribution* side : {&t.from, &t.to})
      if (met.insert(side->identity()).second)
        side->for_each_owner([&](owner_id owner) { owners.emplace(side->space(), owner); });
  return owners;
}

const char* word(owner_space space) {
  return space == owner_space::ranks ? "rank" : "item";
}

std::string text_of(std::int64_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string more(std::size_t all, std::size_t named, const char* what) {
  return all > named ? fmt::format("\n  and {} more", text_of(static_cast<std::int64_t>(all - named), what)) : "";
}

// " (8 B to 1, 4 B to 2 and 3 more)": the links of one owner, the busiest first.
std::string links_text(std::vector<link_cost> links) {
  std::sort(links.begin(), links.end(), [](const link_cost& a, const link_cost& b) {
    return std::tuple(-a.size_bytes, a.to) < std::tuple(-b.size_bytes, b.to);
  });
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < std::min(links.size(), named_links); ++i)
    parts.push_back(fmt::format("{} to {}", human_bytes(links[i].size_bytes), links[i].to));
  if (parts.empty()) return {};
  const std::size_t rest = links.size() - parts.size();
  return fmt::format(" ({}{})", fmt::join(parts, ", "), rest > 0 ? fmt::format(" and {} more", rest) : "");
}

std::string text_of(const tensor_transfer& t, std::size_t index) {
  const auto side = [](const distribution& d) { return text_of(d.owners(), word(d.space())); };
  const std::string cast = t.from_type == t.to_type ? "" : fmt::format(" as {}", name(t.to_type));
  return fmt::format("\n  transfer {}: {} {}{}, {} to {}", index, name(t.from_type), to_string(t.from.global_shape()),
                     cast, side(t.from), side(t.to));
}

// Whether a text counts the copies of this plan.
bool is_small(const transfer_plan& plan) {
  std::int64_t pairs = 0;
  for (const tensor_transfer& t : plan.transfers()) {
    pairs += std::int64_t{t.from.owners()} * t.to.owners();
    if (pairs > counted_pairs) return false;
  }
  return true;
}

}  // namespace

plan_cost transfer_plan::cost() const {
  plan_cost made;
  made.bytes_total = bytes_total();
  made.bytes_moved = bytes_moved();
  made.lower_bound = lower_bound();
  for (const auto& [space, owner] : owners_of(*this)) {
    const rank_plan mine = for_owner(owner, space);
    const owner_cost& one =
        made.owners.emplace_back(owner_cost{owner, space, mine.sent_bytes(), mine.received_bytes(), mine.peak_bytes()});
    made.peak_bytes = std::max(made.peak_bytes, one.peak_bytes);
    for (const peer_traffic& peer : mine.sends()) made.links.push_back({owner, peer.peer, peer.size_bytes});
  }
  std::sort(made.links.begin(), made.links.end(), [](const link_cost& a, const link_cost& b) {
    return std::tuple(a.from, a.to, a.size_bytes) < std::tuple(b.from, b.to, b.size_bytes);
  });
  return made;
}

std::string to_string(const plan_cost& cost) {
  std::string text = fmt::format(
      "{} copied, {} of it between owners (the least possible: {}), at most {} of memory beside the tensors",
      human_bytes(cost.bytes_total), human_bytes(cost.bytes_moved), human_bytes(cost.lower_bound),
      human_bytes(cost.peak_bytes));
  auto link = cost.links.begin();
  for (std::size_t i = 0; i < std::min(cost.owners.size(), named_owners); ++i) {
    const owner_cost& one = cost.owners[i];
    std::vector<link_cost> links;
    if (one.sent_bytes > 0) {
      link = std::find_if(link, cost.links.end(), [&](const link_cost& l) { return l.from == one.owner; });
      for (; link != cost.links.end() && link->from == one.owner; ++link) links.push_back(*link);
    }
    text += fmt::format("\n  {} {}: sends {}{}, receives {}, takes {}", word(one.space), one.owner,
                        human_bytes(one.sent_bytes), links_text(std::move(links)), human_bytes(one.received_bytes),
                        human_bytes(one.peak_bytes));
  }
  return text + more(cost.owners.size(), named_owners, "owner");
}

std::string to_string(const transfer_plan& plan) {
  const std::span<const tensor_transfer> all = plan.transfers();
  std::string text = text_of(static_cast<std::int64_t>(all.size()), "transfer") + ": ";
  text += is_small(plan) ? to_string(plan.cost())
                         : fmt::format("at least {} travel between owners", human_bytes(plan.lower_bound()));
  for (std::size_t t = 0; t < std::min(all.size(), named_transfers); ++t) text += text_of(all[t], t);
  return text + more(all.size(), named_transfers, "transfer");
}

}  // namespace shardmesh
