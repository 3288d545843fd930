// SPDX-License-Identifier: Apache-2.0
module;
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <unordered_map>
#include <utility>
module shardmesh.storage;

import :descriptors;

namespace shardmesh {

namespace {

// How many descriptors one pool may hold, at least one: `most`, or a fifth of the process's limit, since several pools
// are open at a time (two readers of a diff, checksums, a destination).
std::size_t descriptor_share(std::size_t most) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) most = std::min<std::size_t>(most, limit.rlim_cur / 5);
  return std::max<std::size_t>(most, 1);
}

}  // namespace

descriptors::descriptors(std::size_t most) : most_(descriptor_share(most)) {}

descriptors::~descriptors() {
  close_all();
}

result<descriptors::use> descriptors::acquire(std::uint64_t file, function_ref<result<int>()> open) {
  std::unique_lock guard(lock_);
  for (;;) {
    if (const auto found = by_file_.find(file); found != by_file_.end()) {
      recent_.splice(recent_.begin(), recent_, found->second);
      ++recent_.front().users;
      return use(this, recent_.begin());
    }
    if (recent_.size() + opening_ >= most_ && !close_idle()) {
      released_.wait(guard);
      continue;
    }
    ++opening_;
    guard.unlock();
    auto fd = open();
    guard.lock();
    --opening_;
    if (!fd && fd.error().sys == EMFILE && close_idle()) continue;
    released_.notify_all();
    if (!fd) return std::move(fd).error();
    if (by_file_.contains(file)) {  // another thread was faster
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
  if (const auto found = by_file_.find(file); found != by_file_.end()) close(found->second);
}

void descriptors::close_all() {
  const std::scoped_lock guard(lock_);
  while (!recent_.empty()) close(recent_.begin());
}

bool descriptors::close_idle() {
  for (auto last = recent_.end(); last != recent_.begin();)
    if ((--last)->users == 0) {
      close(last);
      return true;
    }
  return false;
}

void descriptors::close(std::list<entry>::iterator closed) {
  ::close(closed->fd);
  by_file_.erase(closed->file);
  recent_.erase(closed);
}

}  // namespace shardmesh
