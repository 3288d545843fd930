// SPDX-License-Identifier: Apache-2.0
// retry_pace and request_window: when a failed request is sent again, and how many requests of a call run at a time.
// Internal to `remote`.
module shardmesh.remote:retry_pace;

import shardmesh.std;
import :failure;
import :http_client;

namespace shardmesh::remote {

// The budget of repetitions of one call. Not thread-safe.
class retry_pace {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  // `requests` is the number of requests that the call makes if none fails.
  retry_pace(const http_options& options, std::int64_t requests);
  // Returns when an attempt may be repeated, or nothing when it must not be: because of its kind, of its number, of the
  // time since the first attempt, or of the call's budget.
  std::optional<time_point> next(const failure& last, int attempts_made, time_point first, time_point now);

 private:
  const http_options& options_;
  std::int64_t left_;
  std::uint64_t random_;
};

// The requests of one call at a time. Not thread-safe.
class request_window {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  // `first` is the size at the beginning, at most `most`.
  request_window(int most, int first, time_point now);
  int size() const { return size_; }
  // Counts a finished request. After as many as the window has, it grows if the throughput has grown.
  void finished(std::int64_t bytes, time_point now);
  // Halves the window, at most once a second: the server asked for fewer requests.
  void slow_down(time_point now);

 private:
  void begin_period(time_point now);

  const int most_;
  int size_;
  bool doubles_ = true;  // until the server asks for fewer requests
  double best_ = 0;      // bytes per second
  int count_ = 0;
  std::int64_t bytes_ = 0;
  time_point since_;
  std::optional<time_point> halved_;
};

}  // namespace shardmesh::remote
