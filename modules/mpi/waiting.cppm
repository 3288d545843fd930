// SPDX-License-Identifier: Apache-2.0
// backoff: the pauses between the polls of a wait.
module;
#include "includes.hpp"
module shardmesh.mpi:waiting;

import shardmesh.comm;

namespace shardmesh::mpi {

/// The interval at which a wait checks that the awaited processes still exist.
inline constexpr std::chrono::milliseconds watch_interval{20};

/// The policy of a polling wait: a few polls without a pause, then yields for 2 ms, then sleeps of 20 us up to 0.5 ms.
class backoff {
 public:
  inline void reset() {
    polls_ = 0;
    sleep_ = shortest;
  }
  inline void rest() {
    if (polls_++ < eager_polls) return;
    const auto now = std::chrono::steady_clock::now();
    if (polls_ == eager_polls + 1) yields_since_ = now;
    if (now - yields_since_ < yielding) return std::this_thread::yield();
    std::this_thread::sleep_for(sleep_);
    sleep_ = std::min(2 * sleep_, longest);
  }

 private:
  static constexpr std::int64_t eager_polls = 16;
  static constexpr std::chrono::microseconds yielding{2000}, shortest{20}, longest{500};
  std::int64_t polls_ = 0;
  std::chrono::steady_clock::time_point yields_since_;
  std::chrono::microseconds sleep_ = shortest;
};

}  // namespace shardmesh::mpi
