// SPDX-License-Identifier: Apache-2.0
// The distributed suite over shared memory. The first ranks run a case with fewer ranks. All ranks reach the same
// verdict, so that they stay together.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <fabric.hpp>
#include <optional>
#include <random>
#include <random_seed.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

import shardmesh.shared_memory;

using namespace shardmesh;

shared_memory_communicator& world_communicator();

namespace {

// Shares the verdicts of all ranks before the next case.
std::vector<std::string> tell_all(std::string_view mine) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(600);
  const auto all = world_communicator().all_gather(std::as_bytes(std::span(mine)), {.within = deadline});
  std::vector<std::string> texts;
  for (const auto& text : all.value()) texts.emplace_back(reinterpret_cast<const char*>(text.data()), text.size());
  return texts;
}

std::string run(const shared_memory_options& options, std::int32_t size, const fabric::rank_body& body) {
  const std::int32_t rank = world_communicator().rank();
  std::optional<shared_memory_group> group;
  if (rank == 0) group = shared_memory_group::make(size, options).value();
  const std::string token = tell_all(group ? group->token() : "").front();
  std::string wrong;
  std::optional<any_communicator> comm;
  if (rank < size) {
    comm.emplace(shared_memory_communicator::join(token, rank).value());
    try {
      wrong = body(&*comm);
    } catch (const std::exception& e) {
      wrong = e.what();
    }
    if (!wrong.empty()) comm->abort(fail(errc::checksum_mismatch, wrong));
  }
  const std::vector<std::string> all = tell_all(wrong);
  for (std::size_t i = 0; i < all.size(); ++i)
    if (!all[i].empty()) return "rank " + std::to_string(i) + ": " + all[i];
  return {};
}

}  // namespace

namespace fabric {

const std::vector<kind>& all() {
  static const std::vector<kind> kinds = [] {
    // The ordinary run has each number of ranks with one size of buffers.
    const std::int32_t world = world_communicator().size();
    const bool has_all = random_seed::runs_are_long() || world == 1;
    std::vector<std::int32_t> large, small;
    for (std::int32_t size = world; size >= 1; --size) {
      const bool is_large = (world - size) % 2 == 0;
      if (has_all || is_large) large.push_back(size);
      if (has_all || !is_large) small.push_back(size);
    }
    const auto over = [](shared_memory_options options) {
      return [options](std::int32_t size, const rank_body& body) { return run(options, size, body); };
    };
    return std::vector<kind>{
        {"shared memory", large, over({})},
        {"shared memory, small buffers", small, over({.buffer_bytes = 4096})},
    };
  }();
  return kinds;
}

std::uint64_t seed() {
  static const std::uint64_t value =
      std::strtoull(tell_all(std::to_string(random_seed::seed())).front().c_str(), nullptr, 10);
  return value;
}

int rounds(int normal) {
  // Threads run the normal number; this transport needs enough to meet each kind of message.
  return random_seed::runs_are_long() ? normal : std::max(1, normal / 5);
}

}  // namespace fabric
