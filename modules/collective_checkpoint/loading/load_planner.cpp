// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import shardmesh.checkpoint_core;
import shardmesh.comm;
import :chunk_forms;
import :load_assignment;
import :load_planner;
import :rank_state;
import :reading_rounds;
import :request_match;
import :round_share;

namespace shardmesh {
namespace {

// The least memory for the pieces that reads are cut into.
constexpr std::int64_t least_staging_bytes = 4096;

// Takes the last flag off a description; false for an empty one.
bool take_flag(std::vector<std::byte>& description) {
  if (description.empty()) return false;
  const bool flag = description.back() != std::byte{0};
  description.pop_back();
  return flag;
}

}  // namespace

void add_flags(std::vector<std::byte>& description, bool has_ties, bool check) {
  description.push_back(std::byte{has_ties});
  description.push_back(std::byte{check});
}

std::int64_t load_planner::staging_bytes() const {
  return std::max(options_.memory_bytes / 2, least_staging_bytes);
}

result<agreement_notes> load_planner::shares(agreement_notes descriptions) {
  // If one rank wants checksums compared, the ranks that read for it compare them.
  for (std::vector<std::byte>& one : descriptions) {
    plan_.check |= take_flag(one);
    plan_.has_ties |= take_flag(one);
  }
  SHARDMESH_TRY(plan_.all, merge_states(descriptions));
  descriptions.clear();
  SHARDMESH_TRY(plan_.match, match_requests(plan_.all, reader_, options_));
  plan_.reads = assign_reads(plan_.all, plan_.match.is_there, reader_.contents(),
                             {.sharing = options_.sharing, .ranks = ranks_, .staging_bytes = staging_bytes()});
  return encode_load_shares(plan_, reader_.contents(), options_.sharing, ranks_);
}

result<agreement_notes> load_planner::round_shares(const agreement_notes& forms) const {
  SHARDMESH_TRY(const auto read, read_forms(forms, plan_.all, plan_.reads.unclear));
  const std::vector<reading_round> rounds =
      plan_rounds(plan_.all, reader_.contents(), plan_.reads, read,
                  {.ranks = ranks_, .staging_bytes = staging_bytes(), .one_reader_for_a_chunk = plan_.check});
  return encode_round_shares(plan_.all, reader_.contents(), rounds, ranks_);
}

}  // namespace shardmesh
