// SPDX-License-Identifier: Apache-2.0
// The tags of the communicators of a process group.
module;
#include <process_token.hpp>
#include <torch/c10d_channel.hpp>

#include <algorithm>
#include <array>
#include <bitset>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.torch;

import shardmesh.comm;
import :c10d_engine;

namespace shardmesh::c10d_detail {
namespace {

// The tag ranges of a group's communicators on one rank. Ranks make the communicators of a group in the same order, so
// the n-th is the same one on every rank. After the last range, the first is used again. A process is one rank of a
// group, or several if ranks are threads.
constexpr std::size_t most_engines = 1 << 10;
struct tag_ranges {
  struct of_group {
    std::uint32_t made = 0;
    std::bitset<most_engines> is_live;
  };
  std::mutex lock;
  std::map<std::pair<std::string, std::int32_t>, of_group> groups;
  detail::maker_process maker;
};
tag_ranges& ranges() {
  static auto& all = *new tag_ranges;  // outlives the threads of engines
  return all;
}

}  // namespace

bool engine::groups_are_of_parent() {
  return !ranges().maker.is_this();
}

engine::engine(std::shared_ptr<channel> group) : group_(std::move(group)) {
  payloads_.resize(static_cast<std::size_t>(size()));
  heard_.resize(static_cast<std::size_t>(size()));
  tag_ranges& all = ranges();
  const std::lock_guard locked(all.lock);
  tag_ranges::of_group& known = all.groups[{group_->name(), rank()}];
  const std::uint32_t slot = known.made++ % most_engines;
  if (known.is_live[slot])
    throw std::length_error("the process group " + group_->name() +
                            " has made 1024 communicators since one that still exists");
  known.is_live[slot] = true;
  base_tag_ = (1 << 30) + static_cast<std::int32_t>(slot) * (record_slot + 1);
}

void engine::give_back_tags() noexcept {
  tag_ranges& all = ranges();
  const std::lock_guard locked(all.lock);
  const auto known = all.groups.find({group_->name(), rank()});
  if (known != all.groups.end())
    known->second.is_live[static_cast<std::size_t>((base_tag_ - (1 << 30)) / (record_slot + 1))] = false;
}

}  // namespace shardmesh::c10d_detail
