// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>
module shardmesh.transfer;

import :rank_ability;

namespace shardmesh {

std::vector<std::byte> note_of(const rank_ability& a, std::span<const std::byte> numbers) {
  std::vector<std::byte> bytes(sizeof a + numbers.size());
  std::memcpy(bytes.data(), &a, sizeof a);
  std::copy(numbers.begin(), numbers.end(), bytes.begin() + sizeof a);
  return bytes;
}

std::vector<std::span<const std::byte>> offers_in(const agreement_notes& notes) {
  std::vector<std::span<const std::byte>> offers;
  for (const std::vector<std::byte>& note : notes) offers.push_back(std::span(note).subspan(sizeof(rank_ability)));
  return offers;
}

result<rank_ability> common_ability(const agreement_notes& notes) {
  rank_ability all{.lends = 1, .collects = collects_reductions | collects_gathers | collects_in_groups};
  std::vector<rank_ability> each;
  for (std::size_t rank = 0; rank < notes.size(); ++rank) {
    rank_ability one;
    if (notes[rank].size() < sizeof one)
      return fail(errc::disagreement, "a rank is in another call while the others make an executor")
          .with_rank(static_cast<std::int32_t>(rank));
    std::memcpy(&one, notes[rank].data(), sizeof one);
    all.lends &= one.lends;
    all.collects &= one.collects;
    all.sent_bytes += one.sent_bytes;
    each.push_back(one);
  }
  for (std::size_t rank = 0; rank < each.size(); ++rank) {
    const rank_ability& one = each[rank];
    const std::int64_t rounds = all.lends != 0 ? one.lending_rounds : one.rounds;
    if (rounds == 0)
      return fail(errc::no_memory, "the exchange needs more than the memory budget, however finely it is cut")
          .with_rank(static_cast<std::int32_t>(rank))
          .with_values(fmt::format("at most {} bytes", one.budget_bytes), fmt::format("{} bytes", one.needed_bytes))
          .with_hint("pass a larger memory_bytes");
    all.rounds = std::max(all.rounds, rounds);
  }
  return all;
}

}  // namespace shardmesh
