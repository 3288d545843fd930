// SPDX-License-Identifier: Apache-2.0
// The distributed suite over c10d: ranks.py makes a gloo group for every number of ranks and calls run_suite on each
// rank. The first ranks run a case with fewer ranks. All ranks reach the same verdict, so that they stay together.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <fabric.hpp>
#include <optional>
#include <random_seed.hpp>
#include <rank_session.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

import shardmesh.comm;
import shardmesh.torch;

using namespace shardmesh;

namespace {

// One run of the suite in this process.
struct suite {
  std::vector<std::string> groups;  // group n has the first n + 1 ranks; empty: this rank is not in it
  std::vector<std::int32_t> sizes;  // numbers of ranks to run cases with
  c10d_communicator all_ranks;      // no case uses it
};
std::optional<suite>& current() {
  static std::optional<suite> made;
  return made;
}

// Shares the verdicts of all ranks before the next case.
std::vector<std::string> tell_all(std::string_view mine) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(600);
  const auto all = current()->all_ranks.all_gather(std::as_bytes(std::span(mine)), {.within = deadline});
  std::vector<std::string> texts;
  for (const auto& text : all.value()) texts.emplace_back(reinterpret_cast<const char*>(text.data()), text.size());
  return texts;
}

std::string run_on_rank(const std::string& group, const fabric::rank_body& body) {
  auto made = c10d_communicator::named(group);
  if (!made) return to_string(made.error());
  any_communicator comm(*std::move(made));
  std::string wrong;
  try {
    wrong = body(&comm);
  } catch (const std::exception& e) {
    wrong = e.what();
  }
  if (!wrong.empty()) comm.abort(fail(errc::checksum_mismatch, wrong));
  return wrong;
}

std::string run(std::int32_t size, const fabric::rank_body& body) {
  const std::string& group = current()->groups.at(static_cast<std::size_t>(size) - 1);
  const std::vector<std::string> all = tell_all(group.empty() ? std::string() : run_on_rank(group, body));
  for (std::size_t i = 0; i < all.size(); ++i)
    if (!all[i].empty()) return "rank " + std::to_string(i) + ": " + all[i];
  return {};
}

}  // namespace

namespace fabric {

const std::vector<kind>& all() {
  static const std::vector<kind> kinds{{"c10d over gloo", current()->sizes, run}};
  return kinds;
}

// ranks.py gives all ranks the same seed.
std::uint64_t seed() {
  return std::strtoull(std::getenv("SHARDMESH_SEED"), nullptr, 10);
}

int rounds(int normal) {
  return random_seed::runs_are_long() ? normal : normal / 10;
}

}  // namespace fabric

/// Runs the suite on this rank, with from `fewest` ranks to as many as there are groups. Returns 0 on success.
/// \param groups  names; group n has the first n + 1 ranks, the last one all; "" if this rank is not in it
/// \param argv    Catch2's arguments
extern "C" __attribute__((visibility("default"))) int run_suite(const char* const* groups, int ranks, int fewest,
                                                                int argc, const char* const* argv) {
  auto all_ranks = c10d_communicator::named(groups[ranks - 1]);
  if (!all_ranks) {
    std::cerr << to_string(all_ranks.error()) << '\n';
    return 2;
  }
  std::vector<std::int32_t> sizes;
  for (std::int32_t size = ranks; size >= fewest; --size) sizes.push_back(size);
  current().emplace(std::vector<std::string>(groups, groups + ranks), sizes, *std::move(all_ranks));
  const int failed = run_rank_session(argc, argv, current()->all_ranks.rank());
  static_cast<void>(tell_all({}));  // no rank leaves before the others have reported
  current().reset();
  return failed;
}
