// SPDX-License-Identifier: Apache-2.0
// Groups of fragments, and the memory of their lists.
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>
module shardmesh.transfer;

import :fragment_groups;

namespace shardmesh {

// The lists of the thread's innermost expansion_memory.
struct expansion_memory::lists {
  static constexpr std::size_t most_lists = 4;
  std::vector<fragment> kept[most_lists];
  std::size_t count = 0;
};

namespace {

thread_local expansion_memory::lists* current = nullptr;  // a mere pointer: see concurrent_runs

std::vector<fragment> take_list() {
  if (!current || current->count == 0) return {};
  return std::move(current->kept[--current->count]);
}

void give_back(std::vector<fragment> list) {
  constexpr std::size_t most_fragments = 4096;
  if (!current || current->count == expansion_memory::lists::most_lists || list.capacity() == 0 ||
      list.capacity() > most_fragments)
    return;
  list.clear();
  current->kept[current->count++] = std::move(list);
}

}  // namespace

expansion_memory::expansion_memory()
    : lists_(std::make_unique<lists>()), outer_(std::exchange(current, lists_.get())) {}
expansion_memory::~expansion_memory() {
  current = outer_;
}

fragment_groups::fragment_groups() : all_(take_list()) {}
fragment_groups::~fragment_groups() {
  give_back(std::move(all_));
}

void fragment_groups::finish() {
  const auto before = [](const fragment& a, const fragment& b) {
    if (a.where != b.where) return a.where < b.where;
    if (a.term != b.term) return a.term < b.term;
    return a.owner != b.owner ? a.owner < b.owner : a.slot < b.slot;
  };
  if (!std::is_sorted(all_.begin(), all_.end(), before)) std::sort(all_.begin(), all_.end(), before);
  for (std::size_t first = 0, last = 0; first < all_.size(); first = last) {
    while (last < all_.size() && all_[last].where == all_[first].where) ++last;
    ranges_.emplace_back(first, last);
  }
}

fragment_groups overlapping(const distribution& d, const box& where) {
  fragment_groups found;
  d.overlapping(where, [&](const fragment& f) { return found.add(f), true; });
  found.finish();
  return found;
}

fragment_groups held_by(const distribution& d, owner_id owner) {
  fragment_groups found;
  d.fragments_of(owner, [&](const fragment& f) { return found.add(f), true; });
  found.finish();
  return found;
}

owner_list owners_of(std::span<const fragment> group, std::int32_t term) {
  owner_list owners;
  for (const fragment& f : group)
    if (f.term == term && (owners.empty() || owners.back() != f.owner)) owners.push_back(f.owner);
  return owners;
}

const fragment* find(std::span<const fragment> group, owner_id owner, std::int32_t term) {
  for (const fragment& f : group)
    if (f.owner == owner && f.term == term) return &f;
  return nullptr;
}

std::vector<std::int32_t> terms_of(std::span<const fragment> group) {
  std::vector<std::int32_t> terms;
  for (const fragment& f : group)
    if (terms.empty() || terms.back() != f.term) terms.push_back(f.term);
  return terms;
}

}  // namespace shardmesh
