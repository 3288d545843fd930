// SPDX-License-Identifier: Apache-2.0
module;
#include <sys/resource.h>
#include <unistd.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
module shardmesh.storage;

import :descriptors;

namespace shardmesh {

namespace {

// Returns how many descriptors one pool may hold, at least one. The result is at most `most`, and at most a fifth of
// the process's limit, because several pools are open at a time (two readers of a diff, checksums, a destination). A
// pool that writes may take half of the process's limit when that leaves enough for the other pools. It has to sync
// each file that it closes to open another.
std::size_t descriptor_share(std::size_t most, bool writes) {
  constexpr rlim_t least_to_halve = 256;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0)
    most = std::min<std::size_t>(most, limit.rlim_cur / (writes && limit.rlim_cur >= least_to_halve ? 2 : 5));
  return std::max<std::size_t>(most, 1);
}

}  // namespace

descriptors::descriptors(std::size_t most, closer close)
    : most_(descriptor_share(most, static_cast<bool>(close))), close_(std::move(close)) {}

descriptors::~descriptors() {
  abandon_all();
}

result<descriptors::use> descriptors::acquire(std::uint64_t file, function_ref<result<int>()> open) {
  std::unique_lock guard(lock_);
  for (;;) {
    if (const auto found = by_file_.find(file); found != by_file_.end()) {
      recent_.splice(recent_.begin(), recent_, found->second);
      ++recent_.front().users;
      return use(this, recent_.begin());
    }
    if (recent_.size() + opening_ >= most_) {
      if (const auto idle = take_idle())
        SHARDMESH_TRY(end_idle(guard, *idle));
      else
        released_.wait(guard);
      continue;
    }
    ++opening_;
    guard.unlock();
    auto fd = open();
    guard.lock();
    --opening_;
    if (!fd && fd.error().sys == EMFILE)
      if (const auto idle = take_idle()) {
        SHARDMESH_TRY(end_idle(guard, *idle));
        continue;
      }
    released_.notify_all();
    if (!fd) return std::move(fd).error();
    if (by_file_.contains(file)) {  // another thread opened it first
      ::close(*fd);
      continue;
    }
    recent_.push_front({file, *fd, 1});
    by_file_[file] = recent_.begin();
    return use(this, recent_.begin());
  }
}

void descriptors::release(std::list<entry>::iterator held) {
  {
    const std::scoped_lock guard(lock_);
    --held->users;
  }
  released_.notify_one();
}

void descriptors::forget(std::uint64_t file) {
  const std::scoped_lock guard(lock_);
  if (const auto found = by_file_.find(file); found != by_file_.end()) ::close(take(found->second).fd);
}

void descriptors::abandon_all() {
  const std::scoped_lock guard(lock_);
  while (!recent_.empty()) ::close(take(recent_.begin()).fd);
}

result<void> descriptors::close_all() {
  const std::scoped_lock guard(lock_);
  result<void> first;
  while (!recent_.empty())
    if (auto done = end(take(recent_.begin())); !done && first) first = std::move(done);
  return first;
}

std::optional<descriptors::entry> descriptors::take_idle() {
  for (auto last = recent_.end(); last != recent_.begin();)
    if ((--last)->users == 0) return take(last);
  return std::nullopt;
}

descriptors::entry descriptors::take(std::list<entry>::iterator taken) {
  const entry value = *taken;
  by_file_.erase(value.file);
  recent_.erase(taken);
  return value;
}

result<void> descriptors::end(const entry& taken) const {
  if (close_) return close_(taken.file, taken.fd);
  ::close(taken.fd);
  return {};
}

// The descriptor's place counts as taken until it is closed.
result<void> descriptors::end_idle(std::unique_lock<std::mutex>& guard, const entry& idle) {
  ++opening_;
  guard.unlock();
  auto done = end(idle);
  guard.lock();
  --opening_;
  released_.notify_all();
  return done;
}

}  // namespace shardmesh
