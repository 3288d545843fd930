// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>
module shardmesh.remote;

import :lost_servers;

namespace shardmesh::remote {
namespace {

constexpr int most_failures = 4;
constexpr std::size_t most_servers = 256;

}  // namespace

int lost_servers::attempts(const std::string& server, time_point call_began, int usual) const {
  if (!has_any_.load(std::memory_order_relaxed)) return usual;
  const std::scoped_lock guard(lock_);
  const auto found = lost_.find(server);
  if (found == lost_.end() || found->second.since < call_began) return usual;
  return found->second.failures < most_failures ? 1 : 0;
}

void lost_servers::add_failure(const std::string& server, time_point call_began, time_point now, const error& why) {
  const std::scoped_lock guard(lock_);
  if (lost_.size() >= most_servers && !lost_.contains(server)) lost_.clear();
  loss& known = lost_[server];
  if (known.failures == 0 || known.since < call_began) known = {.since = now, .failures = 0, .last = {}};
  ++known.failures;
  known.last = why.message;
  has_any_.store(true, std::memory_order_relaxed);
}

void lost_servers::add_answer(const std::string& server) {
  if (!has_any_.load(std::memory_order_relaxed)) return;
  const std::scoped_lock guard(lock_);
  lost_.erase(server);
  has_any_.store(!lost_.empty(), std::memory_order_relaxed);
}

error lost_servers::not_sent(const std::string& server, const std::string& url) const {
  const std::scoped_lock guard(lock_);
  const auto found = lost_.find(server);
  const std::string last = found == lost_.end() ? std::string() : found->second.last;
  return fail(errc::io, fmt::format("was not requested, because {} other requests of this call to the server failed; "
                                    "the last one: {}",
                                    most_failures, last))
      .with_file(url)
      .with_hint("try again when the server answers");
}

}  // namespace shardmesh::remote
