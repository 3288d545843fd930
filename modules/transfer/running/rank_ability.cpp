// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>
module shardmesh.transfer;

import :rank_ability;

namespace shardmesh {
namespace {

static_assert(std::has_unique_object_representations_v<rank_ability>);  // no padding, because its bytes are sent

std::optional<rank_ability> decode(std::span<const std::byte> note) {
  rank_ability made;
  if (note.size() < sizeof made) return std::nullopt;
  std::memcpy(&made, note.data(), sizeof made);
  return made;
}

void keep_lowest(short_budget& all, const short_budget& one) {
  if (one.rank >= 0 && (all.rank < 0 || one.rank < all.rank)) all = one;
}

}  // namespace

std::vector<std::byte> note_of(const rank_ability& a, std::span<const std::byte> numbers) {
  std::vector<std::byte> bytes(sizeof a + numbers.size());
  std::memcpy(bytes.data(), &a, sizeof a);
  std::copy(numbers.begin(), numbers.end(), bytes.begin() + sizeof a);
  return bytes;
}

void combine_abilities(std::vector<std::byte>& all, std::span<const std::byte> one) {
  std::optional<rank_ability> sum = decode(all);
  const std::optional<rank_ability> other = decode(one);
  std::optional<std::vector<std::byte>> numbers;
  if (sum && other) numbers = object_numbers::merge(offer_in(all), offer_in(one));
  if (!numbers) {
    all.assign(1, std::byte{});  // too short for an ability
    return;
  }
  sum->lends &= other->lends;
  sum->collects &= other->collects;
  sum->rounds = std::max(sum->rounds, other->rounds);
  sum->lending_rounds = std::max(sum->lending_rounds, other->lending_rounds);
  keep_lowest(sum->packing, other->packing);
  keep_lowest(sum->lending, other->lending);
  sum->sent_bytes += other->sent_bytes;
  all = note_of(*sum, *numbers);
}

result<rank_ability> common_ability(std::span<const std::byte> note) {
  std::optional<rank_ability> all = decode(note);
  if (!all) return fail(errc::disagreement, "a rank is in another call while the others make an executor");
  const short_budget& lowest = all->lends != 0 ? all->lending : all->packing;
  if (lowest.rank >= 0)
    return fail(errc::no_memory, "the exchange needs more than the memory budget, however finely it is cut")
        .with_rank(static_cast<std::int32_t>(lowest.rank))
        .with_values(fmt::format("at most {} bytes", lowest.budget_bytes), fmt::format("{} bytes", lowest.needed_bytes))
        .with_hint("pass a larger memory_bytes");
  if (all->lends != 0) all->rounds = all->lending_rounds;
  return *all;
}

std::span<const std::byte> offer_in(std::span<const std::byte> note) {
  return note.subspan(sizeof(rank_ability));
}

}  // namespace shardmesh
