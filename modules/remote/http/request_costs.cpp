// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
module shardmesh.remote;

import :request_costs;

namespace shardmesh::remote {
namespace {

constexpr std::int64_t least_bytes = 64 << 10, most_bytes = 8 << 20, guessed_bytes = 512 << 10;
constexpr std::int64_t least_sample_bytes = 64 << 10;  // fewer bytes come in one packet or two, at no rate
constexpr double weight = 0.25;                        // of the newest answer
constexpr std::size_t most_servers = 256;

void move_towards(std::optional<double>& known, double newest) {
  known = known ? *known + weight * (newest - *known) : newest;
}

}  // namespace

// Call it with the mutex locked.
request_costs::costs& request_costs::of(const std::string& server) {
  if (servers_.size() >= most_servers && !servers_.contains(server)) servers_.clear();
  return servers_[server];
}

void request_costs::add(const std::string& server, seconds until_answer, std::int64_t bytes, seconds of_bytes) {
  const std::scoped_lock guard(lock_);
  costs& known = of(server);
  if (until_answer.count() > 0) move_towards(known.until_answer, until_answer.count());
  if (bytes >= least_sample_bytes && of_bytes.count() > 0)
    move_towards(known.bytes_per_second, static_cast<double>(bytes) / of_bytes.count());
}

std::int64_t request_costs::bytes_per_request(const std::string& server) const {
  const std::scoped_lock guard(lock_);
  const auto found = servers_.find(server);
  if (found == servers_.end() || !found->second.until_answer || !found->second.bytes_per_second) return guessed_bytes;
  const double bytes = *found->second.until_answer * *found->second.bytes_per_second;
  return static_cast<std::int64_t>(
      std::clamp(bytes, static_cast<double>(least_bytes), static_cast<double>(most_bytes)));
}

std::optional<int> request_costs::window(const std::string& server) const {
  const std::scoped_lock guard(lock_);
  const auto found = servers_.find(server);
  return found == servers_.end() ? std::nullopt : found->second.window;
}

void request_costs::set_window(const std::string& server, int size) {
  const std::scoped_lock guard(lock_);
  of(server).window = size;
}

}  // namespace shardmesh::remote
