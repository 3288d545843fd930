// SPDX-License-Identifier: Apache-2.0
module;
#include <chrono>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <stop_token>
#include <utility>
module shardmesh.remote;

import :attempt;

namespace shardmesh::remote {

attempt_list listed(std::shared_ptr<attempt> one) {
  attempt_list place = std::move(one->place);
  place.front() = std::move(one);
  return place;
}

std::shared_ptr<attempt> take_from(attempt_list& all, attempt_list::iterator at) {
  attempt_list place;
  place.splice(place.begin(), all, at);
  std::shared_ptr<attempt> taken = std::move(place.front());
  taken->place = std::move(place);
  return taken;
}

void inbox::post(std::shared_ptr<attempt> ended) {
  const std::scoped_lock guard(lock_);
  ended_.splice(ended_.end(), listed(std::move(ended)));
  changed_.notify_all();
}

void inbox::wake() {
  const std::scoped_lock guard(lock_);
  changed_.notify_all();
}

std::shared_ptr<attempt> inbox::take(time_point until, const std::stop_token& cancel) {
  std::unique_lock guard(lock_);
  const auto has_reason = [&] { return !ended_.empty() || cancel.stop_requested(); };
  if (until == time_point::max())
    changed_.wait(guard, has_reason);
  else
    changed_.wait_until(guard, until, has_reason);
  if (ended_.empty() || cancel.stop_requested()) return nullptr;
  auto first = std::move(ended_.front());
  ended_.pop_front();
  return first;
}

}  // namespace shardmesh::remote
