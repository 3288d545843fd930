// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>
module shardmesh.transfer;

namespace shardmesh {

int thread_count(int requested) {
  return requested > 0 ? requested : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

result<void> parallel_for(int threads, std::int64_t count, function_ref<result<void>(std::int64_t)> body) {
  std::atomic<std::int64_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex lock;
  std::optional<std::pair<std::int64_t, error>> first;
  const auto work = [&] {
    for (std::int64_t i = 0; !failed && (i = next++) < count;) {
      auto done = body(i);
      if (done) continue;
      failed = true;
      const std::scoped_lock guard(lock);
      if (!first || i < first->first) first.emplace(i, std::move(done).take_error());
    }
  };
  {
    std::vector<std::jthread> helpers;
    const std::int64_t extra = std::min<std::int64_t>(thread_count(threads), count) - 1;
    for (std::int64_t i = 0; i < extra; ++i) helpers.emplace_back(work);
    work();
  }
  if (first) return std::move(first->second);
  return {};
}

}  // namespace shardmesh
